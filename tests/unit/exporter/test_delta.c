/* From epoch bytes to delta records: what becomes public and what does not. */
#include "case.h"

#include "fixture.h"

struct seen {
    uint64_t rows, drops, dense, exact, commits, models, rewinds;
    uint8_t why;
    float first[2];
    struct fr_delta_record commit;
    struct fr_buffer bytes; /* all records one after the other */
};

static enum fr_status look(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct seen *seen = self;
    struct fr_delta_record record;
    struct fr_err err = {0};
    assert_int_equal(fr_delta_read(bytes, size, &record, &err), FR_OK);
    assert_int_equal(record.partition, partition);
    assert_int_equal(record.piece, piece);
    seen->models += record.kind == FR_DELTA_MODEL;
    seen->rewinds += record.kind == FR_DELTA_REWIND;
    seen->dense += record.kind == FR_DELTA_DENSE;
    seen->exact += record.kind == FR_DELTA_DENSE && record.dense.quantize == FR_CODEC_F32;
    if (record.kind == FR_DELTA_ROWS) {
        seen->rows += record.rows.n_rows;
        fr_delta_segment_row(&record, 0, 0, seen->first);
        assert_int_equal(record.rows.segments[0].dim, 2);
    }
    if (record.kind == FR_DELTA_DROP) {
        seen->drops += record.drop.n_rows;
        seen->why = record.drop.why[0];
    }
    if (record.kind == FR_DELTA_COMMIT) {
        seen->commits++;
        seen->commit = record;
    }
    fr_buffer_append(&seen->bytes, bytes, size);
    return FR_OK;
}

static struct fr_epoch encode(struct fr_stage *stage, struct fr_buffer *bytes)
{
    struct fr_sha256 previous = {{1, 2, 3, 4, 5, 6, 7, 8, 9}};
    struct fr_order order = fr_order_of(0x5eed);
    struct fr_epoch epoch;
    fr_buffer_clear(bytes);
    fr_epoch_encode(stage, &order, &previous, bytes);
    assert_int_equal(fr_epoch_parse(bytes->data, bytes->size, &epoch), FR_OK);
    return epoch;
}

static void stage_begin(struct fr_stage *stage, uint64_t epoch)
{
    fr_stage_init(stage);
    stage->epoch = epoch;
    stage->timeline = 1;
}

FR_CASE(only_rows_and_reasoned_absences_are_public)
{
    struct fixture f = {0};
    fixture_settings(&f, "ctr");
    struct fr_stage stage;
    stage_begin(&stage, 5);
    stage_row(&stage, 0, 11, 3.0f);
    stage_row(&stage, 1, 12, 4.0f);
    stage_absent(&stage, 1, 13, FR_ABSENT_IDLE);
    stage_absent(&stage, 1, 14, FR_ABSENT_SILENT);
    stage_image(&stage, &(struct fr_image){.key = 15, .size = 12, .kind = FR_IMAGE_PENDING}, "123456789012");
    stage_sections(&stage, 1700000005000, false, false);
    struct fr_buffer bytes = {0};
    struct fr_epoch epoch = encode(&stage, &bytes);
    struct seen seen = {0};
    uint64_t saturated = 0;
    struct fr_err err = {0};
    assert_int_equal(fr_export_epoch(&f.settings, &epoch, look, &seen, &saturated, &err), FR_OK);
    assert_int_equal(seen.rows, 2);
    assert_int_equal(seen.drops, 1);
    assert_int_equal(seen.why, FR_ABSENT_IDLE);
    assert_int_equal(seen.dense + seen.models + seen.rewinds, 0);
    assert_int_equal(seen.commits, FIXTURE_PARTITIONS);
    assert_true(seen.first[0] == 4.0f && seen.first[1] == 4.5f);
    assert_int_equal(seen.commit.epoch, 5);
    assert_int_equal(seen.commit.from, 5);
    assert_int_equal(seen.commit.commit.t_ms, 1700000005000);
    assert_int_equal(seen.commit.commit.samples, 500);
    assert_int_equal(seen.commit.digest, fr_sha256_u64(&epoch.digest));
    assert_int_equal(seen.commit.commit.previous, 0x0102030405060708u);
    assert_int_equal(saturated, 0);
    int64_t wall = 0;
    assert_int_equal(fr_export_wall_ms(&epoch, &wall, &err), FR_OK);
    assert_int_equal(wall, 1700000005000);
    fr_buffer_release(&seen.bytes);
    fr_buffer_release(&bytes);
    fr_buffer_release(&f.head);
    fr_stage_release(&stage);
}

FR_CASE(model_and_dense_go_out_when_announced_and_epoch_1_has_no_predecessor)
{
    struct fixture f = {0};
    fixture_settings(&f, "ctr");
    struct fr_stage stage;
    stage_begin(&stage, 1);
    stage_sections(&stage, 1, true, true);
    struct fr_buffer bytes = {0};
    struct fr_epoch epoch = encode(&stage, &bytes);
    struct seen seen = {0};
    uint64_t saturated = 0;
    assert_int_equal(fr_export_epoch(&f.settings, &epoch, look, &seen, &saturated, NULL), FR_OK);
    assert_int_equal(seen.models, 1);
    assert_int_equal(seen.dense, 2);
    assert_int_equal(seen.exact, 1); /* what the section calls so */
    assert_int_equal(seen.commit.commit.previous, 0);
    fr_buffer_release(&seen.bytes);
    fr_buffer_release(&bytes);
    fr_buffer_release(&f.head);
    fr_stage_release(&stage);
}

FR_CASE(the_same_epoch_gives_the_same_bytes)
{
    struct fixture f = {0};
    fixture_settings(&f, "ctr");
    struct fr_stage stage;
    stage_begin(&stage, 9);
    for (uint64_t i = 0; i < 500; i++)
        stage_row(&stage, (uint32_t)(i % 2), fr_fmix64(i), (float)i);
    stage_sections(&stage, 1, true, true);
    struct fr_buffer bytes = {0};
    struct fr_epoch epoch = encode(&stage, &bytes);
    struct seen a = {0}, b = {0};
    uint64_t saturated = 0;
    assert_int_equal(fr_export_epoch(&f.settings, &epoch, look, &a, &saturated, NULL), FR_OK);
    assert_int_equal(fr_export_epoch(&f.settings, &epoch, look, &b, &saturated, NULL), FR_OK);
    assert_int_equal(a.rows, 500);
    assert_int_equal(a.bytes.size, b.bytes.size);
    assert_memory_equal(a.bytes.data, b.bytes.data, a.bytes.size);
    fr_buffer_release(&a.bytes);
    fr_buffer_release(&b.bytes);
    fr_buffer_release(&bytes);
    fr_buffer_release(&f.head);
    fr_stage_release(&stage);
}

FR_CASE(a_rewind_section_makes_piece_0_of_every_partition)
{
    struct fixture f = {0};
    fixture_settings(&f, "ctr");
    struct fr_stage stage;
    stage_begin(&stage, 7);
    stage_sections(&stage, 1, true, true);
    struct fr_buffer *section = fr_stage_section(&stage, "rewind");
    fr_put_u64(section, 6);
    fr_buffer_append(section, "ctr-1-6", 7);
    struct fr_buffer bytes = {0};
    struct fr_epoch epoch = encode(&stage, &bytes);
    struct seen seen = {0};
    uint64_t saturated = 0;
    assert_int_equal(fr_export_epoch(&f.settings, &epoch, look, &seen, &saturated, NULL), FR_OK);
    assert_int_equal(seen.rewinds, FIXTURE_PARTITIONS);
    fr_buffer_release(&seen.bytes);
    fr_buffer_release(&bytes);
    fr_buffer_release(&f.head);
    fr_stage_release(&stage);
}

FR_CASE(images_that_do_not_fit_the_settings_are_corrupt)
{
    struct fixture f = {0};
    fixture_settings(&f, "ctr");
    struct fr_buffer bytes = {0};
    for (int wrong = 0; wrong < 3; wrong++) {
        struct fr_stage stage;
        stage_begin(&stage, 2);
        if (wrong == 0)
            stage_row(&stage, 2, 1, 1.0f); /* a table too many */
        if (wrong == 1)
            stage_image(&stage, &(struct fr_image){.key = 1, .size = 20, .kind = FR_IMAGE_ROW}, "01234567890123456789");
        if (wrong < 2)
            stage_sections(&stage, 1, false, false); /* wrong == 2: nothing announced */
        struct fr_epoch epoch = encode(&stage, &bytes);
        struct seen seen = {0};
        struct fr_err err = {0};
        uint64_t saturated = 0;
        assert_int_equal(fr_export_epoch(&f.settings, &epoch, look, &seen, &saturated, &err), FR_E_CORRUPT);
        assert_string_not_equal(err.text, "");
        fr_buffer_release(&seen.bytes);
        fr_stage_release(&stage);
    }
    fr_buffer_release(&bytes);
    fr_buffer_release(&f.head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_rows_and_reasoned_absences_are_public),
        cmocka_unit_test(model_and_dense_go_out_when_announced_and_epoch_1_has_no_predecessor),
        cmocka_unit_test(the_same_epoch_gives_the_same_bytes),
        cmocka_unit_test(a_rewind_section_makes_piece_0_of_every_partition),
        cmocka_unit_test(images_that_do_not_fit_the_settings_are_corrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
