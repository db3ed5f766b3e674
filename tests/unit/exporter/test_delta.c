/* From epoch bytes to delta records: what becomes public and what does not. */
#include "case.h"

#include "base/check.h"
#include "fixture.h"
#include "epoch_bytes.h"

struct seen {
    uint64_t rows, drops, dense, exact, commits, models, rewinds;
    uint8_t why;
    float first[2], newest[8]; /* newest: the first float of each row */
    struct fr_delta_record commit;
    struct fr_buffer bytes; /* all records one after the other */
};

static enum fr_status count_record(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
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
        for (uint32_t r = 0; r < record.rows.n_rows && seen->rows + r < 8; r++) {
            float values[2];
            fr_delta_segment_row(&record, 0, r, values);
            seen->newest[seen->rows + r] = values[0];
        }
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
    encode_epoch(stage, &order, &previous, bytes);
    assert_int_equal(fr_epoch_parse(bytes->data, bytes->size, &epoch), FR_OK);
    return epoch;
}

static void stage_begin(struct fr_stage *stage, uint64_t epoch)
{
    fr_stage_init(stage);
    stage->epoch = epoch;
    stage->timeline = 1;
}

/* One epoch from its stage to the records seen. */
struct run {
    struct fixture f;
    struct fr_stage stage;
    struct fr_buffer bytes;
    struct fr_epoch epoch;
    struct seen seen;
    uint64_t saturated;
    struct fr_err err;
};

static void run_begin(struct run *run, uint64_t epoch)
{
    memset(run, 0, sizeof(*run));
    fixture_settings(&run->f, "ctr");
    stage_begin(&run->stage, epoch);
}

static enum fr_status run_export(struct run *run)
{
    run->epoch = encode(&run->stage, &run->bytes);
    return export_epoch(&run->f.settings, &run->epoch, count_record, &run->seen, &run->saturated, &run->err);
}

static void expect_the_same_again(struct run *run)
{
    struct seen again = {0};
    assert_int_equal(export_epoch(&run->f.settings, &run->epoch, count_record, &again, &run->saturated, NULL), FR_OK);
    assert_int_equal(run->seen.bytes.size, again.bytes.size);
    assert_memory_equal(run->seen.bytes.data, again.bytes.data, again.bytes.size);
    fr_buffer_release(&again.bytes);
}

static void run_end(struct run *run)
{
    fr_buffer_release(&run->seen.bytes);
    fr_buffer_release(&run->bytes);
    fr_buffer_release(&run->f.head);
    fr_stage_release(&run->stage);
}

FR_CASE(only_rows_and_reasoned_absences_are_public)
{
    struct run run;
    run_begin(&run, 5);
    stage_row(&run.stage, 0, 11, 3.0f);
    stage_row(&run.stage, 1, 12, 4.0f);
    stage_absent(&run.stage, 1, 13, FR_ABSENT_IDLE);
    stage_absent(&run.stage, 1, 14, FR_ABSENT_SILENT);
    stage_image(&run.stage, &(struct fr_image){.key = 15, .size = 12, .kind = FR_IMAGE_PENDING}, "123456789012");
    stage_sections(&run.stage, 1700000005000, false, false);
    assert_int_equal(run_export(&run), FR_OK);
    const struct seen seen = run.seen;
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
    assert_int_equal(seen.commit.digest, fr_sha256_u64(&run.epoch.digest));
    assert_int_equal(seen.commit.commit.previous, 0x0102030405060708u);
    assert_int_equal(run.saturated, 0);
    int64_t wall = 0;
    struct seen again = {0};
    const struct fr_export_span span = {.epochs = &run.epoch, .n = 1, .wall_ms = &wall};
    assert_int_equal(fr_export_span(&run.f.settings, &span, count_record, &again, &run.saturated, &run.err), FR_OK);
    fr_buffer_release(&again.bytes);
    assert_int_equal(wall, 1700000005000);
    run_end(&run);
}

FR_CASE(model_and_dense_go_out_when_announced_and_epoch_1_has_no_predecessor)
{
    struct run run;
    run_begin(&run, 1);
    stage_sections(&run.stage, 1, true, true);
    assert_int_equal(run_export(&run), FR_OK);
    const struct seen seen = run.seen;
    assert_int_equal(seen.models, 1);
    assert_int_equal(seen.dense, 2);
    assert_int_equal(seen.exact, 1); /* the parameter that the section marks exact */
    assert_int_equal(seen.commit.commit.previous, 0);
    run_end(&run);
}

FR_CASE(the_same_epoch_gives_the_same_bytes)
{
    struct run run;
    run_begin(&run, 9);
    for (uint64_t i = 0; i < 500; i++)
        stage_row(&run.stage, (uint32_t)(i % 2), fr_fmix64(i), (float)i);
    stage_sections(&run.stage, 1, true, true);
    assert_int_equal(run_export(&run), FR_OK);
    assert_int_equal(run.seen.rows, 500);
    expect_the_same_again(&run);
    run_end(&run);
}

FR_CASE(rows_of_several_domains_come_by_table)
{
    struct run run;
    run_begin(&run, 3);
    for (uint32_t domain = 0; domain < 2; domain++)
        for (uint32_t t = 0; t < 2; t++)
            stage_row(&run.stage, fr_subtable(t, domain), (uint64_t)domain << 63 | 5, (float)(2 * domain + t + 1));
    stage_absent(&run.stage, fr_subtable(1, 1), UINT64_MAX, FR_ABSENT_IDLE);
    stage_sections(&run.stage, 1, false, false);
    assert_int_equal(run_export(&run), FR_OK);
    assert_true(run.seen.rows == 4 && run.seen.drops == 1);
    for (uint32_t r = 0; r < 4; r++)
        assert_true(run.seen.newest[r] == (float)(r + 1));
    run_end(&run);
}

/* Spread keys, keys that share their first 32 bits, and nearly equal ones. */
FR_CASE(rows_come_in_the_order_of_their_keys_however_these_are_spread)
{
    struct fr_export_room room = {0};
    for (unsigned spread = 0; spread < 3; spread++) {
        struct run run;
        run_begin(&run, 9);
        for (uint64_t i = 0; i < 3000; i++) {
            uint64_t hash = fr_fmix64(i), low = hash & 0xffffffff;
            uint64_t key = spread == 0 ? hash : spread == 1 ? 0xabcdef0000000000 | low : ~i;
            if (i % 7 == 0)
                stage_absent(&run.stage, (uint32_t)(i % 2), key, FR_ABSENT_IDLE);
            else
                stage_row(&run.stage, (uint32_t)(i % 2), key, (float)i);
        }
        stage_sections(&run.stage, 1, true, true);
        assert_int_equal(run_export(&run), FR_OK); /* the reader refuses keys that do not ascend */
        assert_int_equal(run.seen.rows + run.seen.drops, 3000);
        struct seen again = {0};
        const struct fr_export_span span = {.epochs = &run.epoch, .n = 1, .room = &room};
        assert_int_equal(fr_export_span(&run.f.settings, &span, count_record, &again, &run.saturated, NULL), FR_OK);
        assert_int_equal(run.seen.bytes.size, again.bytes.size);
        assert_memory_equal(run.seen.bytes.data, again.bytes.data, again.bytes.size);
        fr_buffer_release(&again.bytes);
        run_end(&run);
    }
    fr_export_room_release(&room);
}

/* The announcement is in the journal's epoch, so an epoch that is sent again after a kill announces
 * the same snapshot, even if a newer one was announced since. */
FR_CASE(every_commit_announces_the_snapshot_of_its_epoch_in_the_same_bytes_each_time)
{
    struct run run;
    run_begin(&run, 9);
    stage_row(&run.stage, 0, 11, 3.0f);
    struct fr_announcement *said = calloc(1, sizeof(*said));
    said->snapshot = (struct fr_announced_snapshot){.name = "ctr-1-8", .bytes = 70000};
    memset(said->snapshot.sha256.bytes, 0xab, sizeof(said->snapshot.sha256.bytes));
    fr_announcement_encode(said, fr_stage_section(&run.stage, "announce"));
    free(said);
    assert_int_equal(run_export(&run), FR_OK);
    expect_the_same_again(&run);
    /* {name, bytes, sha256} as MessagePack, in the commit of every partition */
    static const uint8_t head[] = "\x83\xa4name\xa7"
                                  "ctr-1-8\xa5"
                                  "bytes\xce\x00\x01\x11\x70\xa6sha256\xc4\x20";
    uint8_t expected[sizeof(head) - 1 + 32];
    memcpy(expected, head, sizeof(head) - 1);
    memset(expected + sizeof(head) - 1, 0xab, 32);
    unsigned found = 0;
    for (size_t at = 0; at + sizeof(expected) <= run.seen.bytes.size; at++)
        found += memcmp(run.seen.bytes.data + at, expected, sizeof(expected)) == 0;
    assert_int_equal(run.seen.commits, FIXTURE_PARTITIONS);
    assert_int_equal(found, FIXTURE_PARTITIONS);
    run_end(&run);
}

FR_CASE(epoch_1_of_a_later_timeline_begins_with_a_rewind)
{
    const struct {
        uint64_t epoch, timeline, rewinds;
    } cases[] = {{1, 2, FIXTURE_PARTITIONS}, {1, 1, 0}, {2, 2, 0}};
    for (size_t c = 0; c < FR_ARRAY_LEN(cases); c++) {
        struct run run;
        run_begin(&run, cases[c].epoch);
        run.stage.timeline = cases[c].timeline;
        stage_sections(&run.stage, 1, true, true);
        assert_int_equal(run_export(&run), FR_OK);
        assert_int_equal(run.seen.rewinds, cases[c].rewinds);
        run_end(&run);
    }
}

/* Rows as (table, key): 0/1 changes twice, 0/2 goes, 1/3 comes back, 1/4 is pending at last. */
FR_CASE(merged_epochs_have_the_newest_of_each_key_and_parameter)
{
    struct fixture f = {0};
    fixture_settings(&f, "ctr");
    struct fr_buffer bytes[3] = {{0}};
    struct fr_epoch epochs[3];
    for (uint64_t e = 0; e < 3; e++) {
        struct fr_stage stage;
        stage_begin(&stage, 7 + e);
        if (e != 1)
            stage_row(&stage, 0, 1, 10.0f + (float)e);
        if (e == 0)
            stage_row(&stage, 0, 2, 20.0f), stage_absent(&stage, 1, 3, FR_ABSENT_WEAK), stage_row(&stage, 1, 4, 40.0f);
        if (e == 1)
            stage_absent(&stage, 0, 2, FR_ABSENT_IDLE), stage_row(&stage, 1, 3, 30.0f);
        if (e == 2)
            stage_image(&stage, &(struct fr_image){.key = 4, .table = 1, .size = 12, .kind = FR_IMAGE_PENDING},
                        "123456789012");
        stage_sections(&stage, 1700000005000 + (int64_t)e, e == 0, e < 2);
        epochs[e] = encode(&stage, &bytes[e]);
        fr_stage_release(&stage);
    }
    const struct fr_export_span span = {.epochs = epochs, .n = 3};
    struct seen seen = {0}, again = {0};
    uint64_t saturated = 0;
    assert_int_equal(fr_export_span(&f.settings, &span, count_record, &seen, &saturated, NULL), FR_OK);
    assert_int_equal(fr_export_span(&f.settings, &span, count_record, &again, &saturated, NULL), FR_OK);
    assert_int_equal(seen.bytes.size, again.bytes.size);
    assert_memory_equal(seen.bytes.data, again.bytes.data, seen.bytes.size);
    assert_int_equal(seen.rows, 3);
    assert_int_equal(seen.drops, 1);
    assert_int_equal(seen.why, FR_ABSENT_IDLE);
    assert_true(seen.newest[0] == 12.0f && seen.newest[1] == 30.0f && seen.newest[2] == 40.0f);
    assert_int_equal(seen.models, 1);
    assert_int_equal(seen.dense, 2);
    assert_int_equal(seen.commits, FIXTURE_PARTITIONS);
    assert_int_equal(seen.commit.epoch, 9);
    assert_int_equal(seen.commit.from, 7);
    assert_int_equal(seen.commit.digest, fr_sha256_u64(&epochs[2].digest));
    assert_int_equal(seen.commit.commit.previous, fr_sha256_u64(&epochs[0].previous));
    assert_int_equal(seen.commit.commit.t_ms, 1700000005002);
    fr_buffer_release(&seen.bytes);
    fr_buffer_release(&again.bytes);
    for (int e = 0; e < 3; e++)
        fr_buffer_release(&bytes[e]);
    fr_buffer_release(&f.head);
}

enum { MIXED_KEYS = 2000, MIXED_EPOCHS = 40 };

/* The newest value of each key of each table, and how many rows with that key were seen. */
struct mixed {
    float newest[2][MIXED_KEYS];
    uint32_t seen[2][MIXED_KEYS];
};

/* Half of the keys share their first 52 bits. */
static uint64_t mixed_key(uint64_t i)
{
    return i % 2 ? 0xabcdef0123456000 | i : fr_fmix64(i);
}

static enum fr_status compare_mixed(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct mixed *mixed = self;
    struct fr_delta_record record;
    (void)partition;
    (void)piece;
    assert_int_equal(fr_delta_read(bytes, size, &record, NULL), FR_OK);
    for (uint32_t r = 0; record.kind == FR_DELTA_ROWS && r < record.rows.n_rows; r++) {
        uint32_t table = record.rows.table.bytes[0] == 'i', i = 0;
        float values[2] = {0};
        while (i < MIXED_KEYS && mixed_key(i) != fr_load_u64(record.rows.keys + (size_t)r * 8))
            i++;
        assert_in_range(i, 0, MIXED_KEYS - 1);
        assert_int_equal(record.rows.segments[0].dim, table ? 1 : 2);
        fr_delta_segment_row(&record, 0, r, values);
        assert_true(values[0] == mixed->newest[table][i]);
        mixed->seen[table][i]++;
    }
    return FR_OK;
}

/* One table has one value a row, the other has two. Every epoch changes the first 50 keys and an
 * eighth of the others; of the former all but the last values are too large for f16. */
FR_CASE(each_row_has_the_newest_values_of_its_key_and_only_those_count_as_saturated)
{
    struct fixture f = {0};
    fixture_settings(&f, "ctr");
    f.tables[1].parts[0].dim = f.tables[1].value_floats = 1;
    struct mixed *mixed = calloc(1, sizeof(*mixed));
    struct fr_buffer bytes[MIXED_EPOCHS] = {{0}};
    struct fr_epoch epochs[MIXED_EPOCHS];
    for (uint64_t e = 0; e < MIXED_EPOCHS; e++) {
        struct fr_stage stage;
        stage_begin(&stage, 7 + e);
        for (uint32_t t = 0; t < 2; t++)
            for (uint64_t i = 0; i < MIXED_KEYS; i++) {
                if (i >= 50 && (i + e) % 8 != 0)
                    continue;
                bool late = i >= 50 || e == MIXED_EPOCHS - 1;
                mixed->newest[t][i] = (float)((i * 7 + e + t) % 2048);
                stage_row(&stage, t, mixed_key(i), late ? mixed->newest[t][i] : 1e9f);
            }
        stage_sections(&stage, 1700000005000, false, false);
        epochs[e] = encode(&stage, &bytes[e]);
        fr_stage_release(&stage);
    }
    const struct fr_export_span span = {.epochs = epochs, .n = MIXED_EPOCHS};
    uint64_t saturated = 0;
    assert_int_equal(fr_export_span(&f.settings, &span, compare_mixed, mixed, &saturated, NULL), FR_OK);
    assert_int_equal(saturated, 0);
    for (uint32_t i = 0; i < MIXED_KEYS; i++)
        assert_true(mixed->seen[0][i] == 1 && mixed->seen[1][i] == 1);
    for (int e = 0; e < MIXED_EPOCHS; e++)
        fr_buffer_release(&bytes[e]);
    fr_buffer_release(&f.head);
    free(mixed);
}

FR_CASE(images_that_do_not_fit_the_settings_are_corrupt)
{
    for (int wrong = 0; wrong < 3; wrong++) {
        struct run run;
        run_begin(&run, 2);
        if (wrong == 0)
            stage_row(&run.stage, 2, 1, 1.0f); /* a table too many */
        if (wrong == 1)
            stage_image(&run.stage, &(struct fr_image){.key = 1, .size = 20, .kind = FR_IMAGE_ROW},
                        "01234567890123456789");
        if (wrong < 2)
            stage_sections(&run.stage, 1, false, false); /* wrong == 2: nothing announced */
        assert_int_equal(run_export(&run), FR_E_CORRUPT);
        assert_string_not_equal(run.err.text, "");
        run_end(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_rows_and_reasoned_absences_are_public),
        cmocka_unit_test(model_and_dense_go_out_when_announced_and_epoch_1_has_no_predecessor),
        cmocka_unit_test(the_same_epoch_gives_the_same_bytes),
        cmocka_unit_test(rows_of_several_domains_come_by_table),
        cmocka_unit_test(rows_come_in_the_order_of_their_keys_however_these_are_spread),
        cmocka_unit_test(every_commit_announces_the_snapshot_of_its_epoch_in_the_same_bytes_each_time),
        cmocka_unit_test(merged_epochs_have_the_newest_of_each_key_and_parameter),
        cmocka_unit_test(each_row_has_the_newest_values_of_its_key_and_only_those_count_as_saturated),
        cmocka_unit_test(epoch_1_of_a_later_timeline_begins_with_a_rewind),
        cmocka_unit_test(images_that_do_not_fit_the_settings_are_corrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
