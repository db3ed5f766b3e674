/* Epochs as bytes: encoding, parsing, iteration, the two shared sections. */
#include "scene.h"
#include "epoch_bytes.h"

#include <math.h>
#include <sys/mman.h>

static struct fr_sha256 counting_digest(void)
{
    struct fr_sha256 digest;
    for (uint8_t i = 0; i < 32; i++)
        digest.bytes[i] = i;
    return digest;
}

/* In the order of this salt the last key comes before key 3. */
static const uint64_t golden_salt = 0x0123456789abcdef;

/* The epoch of tests/golden/epoch.bin, staged out of order. */
static void stage_golden(struct fr_stage *stage)
{
    static const struct fr_image images[] = {
        {.key = 0x0100000000000000, .table = 7},
        {.key = 0xffffffffffffffff, .kind = FR_IMAGE_ABSENT, .reason = FR_ABSENT_CAPACITY},
        {.key = 3, .size = 4},
        {.key = 1, .table = 1, .kind = FR_IMAGE_PENDING, .size = 12},
    };
    fr_stage_clear(stage);
    stage->epoch = 42;
    stage->timeline = 3;
    for (size_t i = 0; i < 4; i++) {
        uint8_t *bytes = fr_stage_image(stage, &images[i]);
        for (uint8_t b = 0; b < images[i].size; b++)
            bytes[b] = images[i].table == 1 ? b : (uint8_t)(0x11 * (b + 1));
    }
    fr_buffer_append(fr_stage_section(stage, "store"), "\0\1\2", 3);
    fr_buffer_append(fr_stage_section(stage, "dense"), "DD", 2);
    fr_stage_section(stage, "positions");
}

static struct fr_buffer encode_golden(void)
{
    struct fr_stage stage;
    struct fr_buffer out = {0};
    struct fr_sha256 previous = counting_digest();
    struct fr_order order = fr_order_of(golden_salt);
    fr_stage_init(&stage);
    stage_golden(&stage);
    encode_epoch(&stage, &order, &previous, &out);
    fr_stage_release(&stage);
    return out;
}

FR_CASE(a_stage_knows_what_its_epoch_takes_in_the_journal)
{
    struct fr_stage stage;
    struct fr_buffer bytes = {0};
    struct fr_sha256 previous = counting_digest();
    struct fr_order order = fr_order_of(golden_salt);
    fr_stage_init(&stage);
    stage_golden(&stage);
    uint64_t expected = fr_stage_bytes(&stage);
    encode_epoch(&stage, &order, &previous, &bytes);
    assert_int_equal(expected, FR_STAGE_FRONT + bytes.size);
    fr_buffer_release(&bytes);
    fr_stage_release(&stage);
}

FR_CASE(a_stage_that_was_touched_has_its_pages_and_gives_the_same_bytes)
{
    enum { BYTES = 3 << 20, PAGE = 4096 };
    struct fr_stage stage;
    struct fr_buffer bytes = {0}, golden = encode_golden();
    struct fr_sha256 previous = counting_digest();
    struct fr_order order = fr_order_of(golden_salt);
    unsigned char there[BYTES / PAGE];
    fr_stage_init(&stage);
    fr_stage_touch(&stage, BYTES);
    uint8_t *room = fr_stage_reserve(&stage, BYTES), *page = (uint8_t *)(((uintptr_t)room + PAGE - 1) / PAGE * PAGE);
    assert_int_equal(mincore(page, BYTES - PAGE, there), 0);
    for (size_t i = 0; i + 1 < BYTES / PAGE; i++)
        assert_int_equal(there[i] & 1, 1);
    stage_golden(&stage);
    encode_epoch(&stage, &order, &previous, &bytes);
    assert_int_equal(bytes.size, golden.size);
    assert_memory_equal(bytes.data, golden.data, golden.size);
    fr_buffer_release(&golden);
    fr_buffer_release(&bytes);
    fr_stage_release(&stage);
}

/* epoch.bin was written from the layout in docs/formats/state.md by Python's struct and hashlib,
 * not by this encoder. */
FR_CASE(an_epoch_encodes_to_the_golden_bytes)
{
    struct fr_buffer golden = scene_read(FR_SOURCE_DIR "/tests/golden/epoch.bin");
    struct fr_buffer bytes = encode_golden();
    assert_int_equal(bytes.size, golden.size);
    assert_memory_equal(bytes.data, golden.data, golden.size);
    struct fr_epoch epoch;
    assert_int_equal(fr_epoch_parse(golden.data, golden.size, &epoch), FR_OK);
    assert_int_equal(fr_sha256_u64(&epoch.digest), 0x5d73f02f47494eb7);
    fr_buffer_release(&golden);
    fr_buffer_release(&bytes);
}

FR_CASE(a_parsed_epoch_yields_what_was_staged_in_table_and_hash_order)
{
    struct fr_buffer bytes = encode_golden();
    struct fr_epoch epoch;
    struct fr_sha256 previous = counting_digest();
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    assert_int_equal(epoch.epoch, 42);
    assert_int_equal(epoch.timeline, 3);
    assert_int_equal(epoch.salt, golden_salt);
    assert_memory_equal(&epoch.previous, &previous, sizeof(previous));
    static const uint64_t keys[] = {0xffffffffffffffff, 3, 1, 0x0100000000000000};
    static const uint32_t tables[] = {0, 0, 1, 7}, sizes[] = {0, 4, 12, 0};
    const uint8_t *at = NULL;
    struct fr_image image;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(fr_epoch_next(&epoch, &at, &image), FR_OK);
        assert_int_equal(image.key, keys[i]);
        assert_int_equal(image.table, tables[i]);
        assert_int_equal(image.size, sizes[i]);
        assert_int_equal(image.reason, i == 0 ? FR_ABSENT_CAPACITY : 0);
    }
    assert_int_equal(fr_epoch_next(&epoch, &at, &image), FR_EOF);
    fr_buffer_release(&bytes);
}

FR_CASE(sections_come_in_name_order_and_are_found_by_name)
{
    struct fr_buffer bytes = encode_golden();
    struct fr_epoch epoch;
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    static const char *const names[] = {"dense", "positions", "store"};
    const uint8_t *at = NULL, *content;
    size_t size;
    char name[FR_SECTION_NAME_MAX];
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fr_epoch_next_section(&epoch, &at, name, &content, &size), FR_OK);
        assert_string_equal(name, names[i]);
    }
    assert_int_equal(fr_epoch_next_section(&epoch, &at, name, &content, &size), FR_EOF);
    assert_int_equal(fr_epoch_section(&epoch, "store", &content, &size), FR_OK);
    assert_int_equal(size, 3);
    assert_memory_equal(content, "\0\1\2", 3);
    assert_int_equal(fr_epoch_section(&epoch, "positions", &content, &size), FR_OK);
    assert_int_equal(size, 0);
    assert_int_equal(fr_epoch_section(&epoch, "stor", &content, &size), FR_E_NOT_FOUND);
    fr_buffer_release(&bytes);
}

FR_CASE(an_empty_epoch_is_legal)
{
    struct fr_stage stage;
    struct fr_buffer out = {0};
    struct fr_sha256 zero = {{0}};
    struct fr_epoch epoch;
    const uint8_t *at = NULL;
    struct fr_image image;
    struct fr_order order = fr_order_of(0);
    fr_stage_init(&stage);
    stage.epoch = stage.timeline = 1;
    encode_epoch(&stage, &order, &zero, &out);
    assert_int_equal(fr_epoch_parse(out.data, out.size, &epoch), FR_OK);
    assert_int_equal(fr_epoch_next(&epoch, &at, &image), FR_EOF);
    fr_stage_release(&stage);
    fr_buffer_release(&out);
}

FR_CASE(bytes_do_not_depend_on_the_order_of_staging)
{
    enum { N = 5000 };
    struct fr_sha256 zero = {{0}};
    struct fr_buffer out[2] = {{0}, {0}};
    struct fr_order order = fr_order_of(77);
    for (uint64_t run = 0; run < 2; run++) {
        struct fr_stage stage;
        fr_stage_init(&stage);
        stage.epoch = stage.timeline = 1;
        for (uint64_t i = 0; i < N; i++) {
            uint64_t index = run == 0 ? i : N - 1 - i;
            /* Tables that differ in every byte, keys that share all but some digits. */
            struct fr_image image = {.key = fr_random_u64(9, 1, index, 0) << (index % 3 * 16),
                                     .table = (uint32_t)(index % 7) * 0x01020304u & 0x7fffffffu,
                                     .size = 8};
            uint8_t *bytes = fr_stage_image(&stage, &image);
            assert_int_equal((uintptr_t)bytes % 8, 0);
            memcpy(bytes, &index, 8);
        }
        encode_epoch(&stage, &order, &zero, &out[run]);
        fr_stage_release(&stage);
    }
    struct fr_epoch epoch;
    /* parse checks the order */
    assert_int_equal(fr_epoch_parse(out[0].data, out[0].size, &epoch), FR_OK);
    assert_int_equal(epoch.n_images, N);
    assert_int_equal(out[0].size, out[1].size);
    assert_memory_equal(out[0].data, out[1].data, out[0].size);
    fr_buffer_release(&out[0]);
    fr_buffer_release(&out[1]);
}

FR_CASE(a_cleared_stage_is_reused_without_traces_and_without_new_memory)
{
    struct fr_stage stage;
    struct fr_sha256 zero = {{0}}, previous = counting_digest();
    struct fr_buffer out = {0}, golden = encode_golden();
    struct fr_order order = fr_order_of(golden_salt);
    fr_stage_init(&stage);
    size_t reserved = 0;
    for (uint64_t round = 0; round < 5; round++) {
        fr_stage_clear(&stage);
        stage.epoch = stage.timeline = 1;
        for (uint64_t i = 0; i < 3000; i++) {
            /* image 7 needs a piece of its own */
            struct fr_image image = {.key = ~i, .size = i == 7 ? 40000 : 100};
            memset(fr_stage_image(&stage, &image), 1, image.size);
        }
        fr_put_u64(fr_stage_section(&stage, "left_over"), 1);
        fr_buffer_clear(&out);
        encode_epoch(&stage, &order, &zero, &out);
        if (round == 1)
            reserved = stage.arena.reserved;
        if (round > 1)
            assert_int_equal(stage.arena.reserved, reserved);
    }
    stage_golden(&stage);
    fr_buffer_clear(&out);
    encode_epoch(&stage, &order, &previous, &out);
    assert_int_equal(out.size, golden.size);
    assert_memory_equal(out.data, golden.data, golden.size);
    fr_stage_release(&stage);
    fr_buffer_release(&out);
    fr_buffer_release(&golden);
}

FR_CASE(an_epoch_cut_at_any_byte_is_refused)
{
    struct fr_buffer bytes = encode_golden();
    struct fr_epoch epoch;
    for (size_t size = 0; size < bytes.size; size++) {
        uint8_t *copy = malloc(size + 1); /* its own allocation: a read after the end is seen */
        memcpy(copy, bytes.data, size);
        assert_int_equal(fr_epoch_parse(copy, size, &epoch), FR_E_CORRUPT);
        free(copy);
    }
    fr_buffer_append(&bytes, "x", 1);
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_E_CORRUPT);
    fr_buffer_release(&bytes);
}

FR_CASE(every_changed_byte_is_refused_or_changes_the_digest)
{
    struct fr_buffer bytes = encode_golden();
    struct fr_epoch whole, changed;
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &whole), FR_OK);
    for (size_t i = 0; i < bytes.size; i++) {
        for (unsigned flip = 1; flip < 256; flip = flip * 5 + 1) {
            bytes.data[i] ^= (uint8_t)flip;
            if (fr_epoch_parse(bytes.data, bytes.size, &changed) == FR_OK) {
                assert_memory_not_equal(&whole.digest, &changed.digest, sizeof(whole.digest));
                const uint8_t *at = NULL;
                struct fr_image image;
                while (fr_epoch_next(&changed, &at, &image) == FR_OK)
                    ;
            }
            bytes.data[i] ^= (uint8_t)flip;
        }
    }
    fr_buffer_release(&bytes);
}

/* Offsets: head 96; the first image's head at 96 (key, table 104, size, kind 112, reason 113), no
 * bytes; the second image at 114 (kind 130, reason 131). */
FR_CASE(images_that_break_a_rule_are_refused)
{
    static const struct {
        size_t offset;
        uint8_t value;
    } cases[] = {
        {130, 4},    /* kind */
        {131, 1},    /* a row with a reason */
        {112, 0},    /* an absent key with a reason becomes a row with one */
        {107, 0x80}, /* table over the limit */
        {104, 1},    /* order: table 1 before table 0 */
        {24, 0},     /* another salt, by which the first two images are not in order */
        {64, 5},     /* one image more than there are bytes */
        {81, 0x41},  /* too many sections */
        {80, 33},    /* more than there are bytes */
        {4, 2},      /* version */
        {113, FR_ABSENT_REASONS},
    };
    struct fr_buffer bytes = encode_golden();
    struct fr_epoch epoch;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t before = bytes.data[cases[i].offset];
        bytes.data[cases[i].offset] = cases[i].value;
        assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_E_CORRUPT);
        bytes.data[cases[i].offset] = before;
    }
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    fr_buffer_release(&bytes);
}

/* ---- announce ---- */

static struct fr_buffer encode_announcement(void)
{
    static struct fr_announced_offset offsets[] = {{"a", 0, 17}, {"a", 5, 0}, {"b", -1, INT64_MAX}};
    struct fr_announcement said = {.watermark_ms = -5,
                                   .samples = 1ull << 40,
                                   .wall_ms = 1700000000000,
                                   .publish_dense = true,
                                   .n_tasks = 2,
                                   .n_offsets = 3,
                                   .offsets = offsets};
    strcpy(said.tasks[0].task, "click");
    said.tasks[0].auc = 0.75;
    strcpy(said.tasks[1].task, "buy");
    said.tasks[1].auc = -NAN;
    struct fr_buffer out = {0};
    fr_announcement_encode(&said, &out);
    return out;
}

FR_CASE(an_announcement_comes_back)
{
    struct fr_buffer bytes = encode_announcement();
    struct fr_arena arena = {0};
    struct fr_announcement heard;
    assert_int_equal(fr_announcement_parse(bytes.data, bytes.size, &arena, &heard), FR_OK);
    assert_int_equal(heard.watermark_ms, -5);
    assert_int_equal(heard.samples, 1ull << 40);
    assert_int_equal(heard.wall_ms, 1700000000000);
    assert_true(heard.publish_dense && !heard.publish_model);
    assert_int_equal(heard.n_tasks, 2);
    assert_string_equal(heard.tasks[0].task, "click");
    assert_true(heard.tasks[0].auc == 0.75);
    assert_true(isnan(heard.tasks[1].auc));
    assert_int_equal(heard.n_offsets, 3);
    assert_string_equal(heard.offsets[2].topic, "b");
    assert_int_equal(heard.offsets[2].partition, -1);
    assert_int_equal(heard.offsets[2].next_offset, INT64_MAX);
    assert_int_equal(heard.offsets[1].partition, 5);
    fr_arena_release(&arena);
    fr_buffer_release(&bytes);
}

FR_CASE(an_announced_snapshot_comes_back_and_is_never_read_half)
{
    struct fr_announcement said = {.samples = 7, .snapshot = {.name = "ctr-1-812", .bytes = 1ull << 40}}, heard;
    struct fr_buffer bytes = {0};
    struct fr_arena arena = {0};
    memset(said.snapshot.sha256.bytes, 0xab, sizeof(said.snapshot.sha256.bytes));
    fr_announcement_encode(&said, &bytes);
    assert_int_equal(fr_announcement_parse(bytes.data, bytes.size, &arena, &heard), FR_OK);
    assert_string_equal(heard.snapshot.name, "ctr-1-812");
    assert_int_equal(heard.snapshot.bytes, 1ull << 40);
    assert_memory_equal(&heard.snapshot.sha256, &said.snapshot.sha256, sizeof(said.snapshot.sha256));
    for (size_t size = 0; size < bytes.size; size++)
        assert_int_equal(fr_announcement_parse(bytes.data, size, &arena, &heard), FR_E_CORRUPT);
    fr_put_u8(&bytes, 0);
    assert_int_equal(fr_announcement_parse(bytes.data, bytes.size, &arena, &heard), FR_E_CORRUPT);
    fr_arena_release(&arena);
    fr_buffer_release(&bytes);
}

/* Watermark and samples; t, flags, number of tasks; two tasks with an AUC of 0.75 and the one NaN;
 * three offsets. */
FR_CASE(an_announcement_encodes_to_known_bytes)
{
    static const uint8_t expected[] = {
        0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0,    0,    0,    0,    0,    1,    0,    0,    0x00,
        0x68, 0xe5, 0xcf, 0x8b, 0x01, 0,    0,    2,    2,    0,    0,    0,    5,    'c',  'l',  'i',  'c',
        'k',  0,    0,    0,    0,    0,    0,    0xe8, 0x3f, 3,    'b',  'u',  'y',  0,    0,    0,    0,
        0,    0,    0xf8, 0x7f, 3,    0,    0,    0,    1,    'a',  0,    0,    0,    0,    17,   0,    0,
        0,    0,    0,    0,    0,    1,    'a',  5,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    1,    'b',  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    };
    struct fr_buffer bytes = encode_announcement();
    assert_int_equal(bytes.size, sizeof(expected));
    assert_memory_equal(bytes.data, expected, sizeof(expected));
    fr_buffer_release(&bytes);
}

FR_CASE(an_announcement_cut_or_changed_anywhere_never_reads_outside)
{
    struct fr_buffer bytes = encode_announcement();
    struct fr_arena arena = {0};
    struct fr_announcement heard;
    for (size_t size = 0; size < bytes.size; size++) {
        uint8_t *copy = malloc(size + 1);
        memcpy(copy, bytes.data, size);
        assert_int_equal(fr_announcement_parse(copy, size, &arena, &heard), FR_E_CORRUPT);
        free(copy);
    }
    for (size_t i = 0; i < bytes.size; i++) {
        bytes.data[i] ^= 0xff;
        enum fr_status status = fr_announcement_parse(bytes.data, bytes.size, &arena, &heard);
        assert_true(status == FR_OK || status == FR_E_CORRUPT);
        bytes.data[i] ^= 0xff;
    }
    fr_arena_release(&arena);
    fr_buffer_release(&bytes);
}

FR_CASE(offsets_out_of_order_are_refused)
{
    struct fr_buffer bytes = encode_announcement();
    struct fr_arena arena = {0};
    struct fr_announcement heard;
    bytes.data[bytes.size - 13] = 'A'; /* "b" becomes "A", before "a" */
    assert_int_equal(fr_announcement_parse(bytes.data, bytes.size, &arena, &heard), FR_E_CORRUPT);
    fr_arena_release(&arena);
    fr_buffer_release(&bytes);
}

/* ---- dense ---- */

static struct fr_buffer encode_dense(void)
{
    static const float kernel[] = {1, 2, 3, 4, 5, 6}, bias[] = {-1, -2};
    struct fr_dense_view views[2] = {{.n_dims = 2, .shape = {3, 2}, .n_values = 6, .values = kernel},
                                     {.n_dims = 1, .shape = {2, 1}, .n_values = 2, .values = bias, .exact = true}};
    strcpy(views[0].name, "h/0/kernel");
    strcpy(views[1].name, "h/0/bias");
    struct fr_stage stage;
    struct fr_buffer out = {0};
    struct fr_sha256 zero = {{0}};
    struct fr_order order = fr_order_of(0);
    fr_stage_init(&stage);
    stage.epoch = stage.timeline = 1;
    fr_stage_section(&stage, "dense_state");
    for (size_t i = 0; i < 2; i++)
        fr_dense_stage(&stage, &views[i]);
    fr_stage_section(&stage, "announce");
    encode_epoch(&stage, &order, &zero, &out);
    fr_stage_release(&stage);
    return out;
}

FR_CASE(dense_parameters_come_back_by_name)
{
    struct fr_buffer bytes = encode_dense();
    struct fr_epoch epoch;
    const uint8_t *at = NULL;
    struct fr_dense_view view;
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    assert_int_equal(fr_epoch_next_dense(&epoch, &at, &view), FR_OK);
    assert_string_equal(view.name, "h/0/bias");
    assert_int_equal(view.n_dims, 1);
    assert_int_equal(view.shape[0], 2);
    assert_int_equal(view.n_values, 2);
    assert_true(view.exact);
    assert_int_equal(fr_epoch_next_dense(&epoch, &at, &view), FR_OK);
    assert_string_equal(view.name, "h/0/kernel");
    assert_int_equal(view.shape[0] * 10 + view.shape[1], 32);
    assert_int_equal(view.n_values, 6);
    assert_false(view.exact);
    float values[6];
    memcpy(values, view.values, sizeof(values));
    assert_true(values[0] == 1 && values[5] == 6);
    assert_int_equal(fr_epoch_next_dense(&epoch, &at, &view), FR_EOF);
    fr_buffer_release(&bytes);
}

FR_CASE(dense_bytes_cut_anywhere_are_refused)
{
    struct fr_buffer bytes = encode_dense();
    struct fr_epoch epoch;
    struct fr_dense_view view;
    const uint8_t *section;
    size_t size;
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    assert_int_equal(fr_epoch_section(&epoch, "dense/h/0/kernel", &section, &size), FR_OK);
    assert_int_equal(size, 1 + 8 + 24);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, section, cut);
        assert_int_equal(fr_dense_parse("dense/h/0/kernel", copy, cut, &view), FR_E_CORRUPT);
        free(copy);
    }
    assert_int_equal(fr_dense_parse("dense/", section, size, &view), FR_E_CORRUPT);
    memset(bytes.data + (section - bytes.data) + 1, 0xff, 8); /* a shape of 2^64 values */
    assert_int_equal(fr_dense_parse("dense/h/0/kernel", section, size, &view), FR_E_CORRUPT);
    fr_buffer_release(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(a_stage_knows_what_its_epoch_takes_in_the_journal),
        SCENE_CASE(a_stage_that_was_touched_has_its_pages_and_gives_the_same_bytes),
        SCENE_CASE(an_epoch_encodes_to_the_golden_bytes),
        SCENE_CASE(a_parsed_epoch_yields_what_was_staged_in_table_and_hash_order),
        SCENE_CASE(sections_come_in_name_order_and_are_found_by_name),
        SCENE_CASE(an_empty_epoch_is_legal),
        SCENE_CASE(bytes_do_not_depend_on_the_order_of_staging),
        SCENE_CASE(a_cleared_stage_is_reused_without_traces_and_without_new_memory),
        SCENE_CASE(an_epoch_cut_at_any_byte_is_refused),
        SCENE_CASE(every_changed_byte_is_refused_or_changes_the_digest),
        SCENE_CASE(images_that_break_a_rule_are_refused),
        SCENE_CASE(an_announcement_comes_back),
        SCENE_CASE(an_announced_snapshot_comes_back_and_is_never_read_half),
        SCENE_CASE(an_announcement_encodes_to_known_bytes),
        SCENE_CASE(an_announcement_cut_or_changed_anywhere_never_reads_outside),
        SCENE_CASE(offsets_out_of_order_are_refused),
        SCENE_CASE(dense_parameters_come_back_by_name),
        SCENE_CASE(dense_bytes_cut_anywhere_are_refused),
    };
    return cmocka_run_group_tests_name("durable epoch", tests, NULL, NULL);
}
