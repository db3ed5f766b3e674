/* The writer of delta records: order, numbering, limits, and that the reader gives back what was
 * written, also for drawn names, numbers and positions. */
#include "delta_records.h"

#include <stdio.h>

#include "base/cursor.h"

FR_CASE(pieces_are_numbered_from_0_and_ordered_rewind_model_rows_drop_dense_commit)
{
    struct golden g;
    golden_init(&g);
    write_golden(&g);
    static const int rank[] = {[FR_DELTA_REWIND] = 0, [FR_DELTA_MODEL] = 1, [FR_DELTA_ROWS] = 2,
                               [FR_DELTA_DROP] = 3,   [FR_DELTA_DENSE] = 4, [FR_DELTA_COMMIT] = 5};
    uint32_t partition = 0, piece = 0;
    int last = -1, commits = 0;
    for (size_t i = 0; i < all.count; i++) {
        struct fr_delta_record record = read_ok(i);
        if (record.partition != partition) {
            assert_int_equal(record.partition, partition + 1);
            assert_int_equal(last, 5);
            partition = record.partition;
            piece = 0;
            last = -1;
        }
        assert_int_equal(record.piece, piece++);
        assert_int_equal(all.list[i].piece, record.piece);
        assert_int_equal(all.list[i].partition, record.partition);
        assert_true(rank[record.kind] >= last);
        last = rank[record.kind];
        if (record.kind == FR_DELTA_COMMIT) {
            commits += 1;
            assert_int_equal(record.commit.n_pieces, record.piece);
        }
        if (record.kind == FR_DELTA_MODEL || record.kind == FR_DELTA_DENSE)
            assert_int_equal(record.partition, 0);
        assert_int_equal(record.digest, 0x0123456789abcdefu);
        assert_int_equal(record.fp, g.settings.fp);
        assert_int_equal(record.epoch, 7);
        assert_int_equal(record.timeline, 2);
        assert_int_equal(record.np, 2);
    }
    assert_int_equal(commits, 2);
    assert_int_equal(last, 5);
}

/* What the reader gives back is what was written: rows by (table, key), quantized; drops with
 * reasons. */
FR_CASE(rows_drops_and_dense_read_back_as_quantized)
{
    struct golden g;
    golden_init(&g);
    write_golden(&g);
    size_t rows = 0, drops = 0;
    uint64_t dense_at[2] = {0, 0};
    for (size_t i = 0; i < all.count; i++) {
        struct fr_delta_record record = read_ok(i);
        if (record.kind == FR_DELTA_ROWS || record.kind == FR_DELTA_DROP) {
            bool is_drop = record.kind == FR_DELTA_DROP;
            struct fr_delta_text name = is_drop ? record.drop.table : record.rows.table;
            uint32_t table = memcmp(name.bytes, "item", 4) == 0, n = is_drop ? record.drop.n_rows : record.rows.n_rows;
            for (uint32_t r = 0; r < n; r++) {
                struct fr_delta_row probe = {
                    .table = table, .key = fr_load_u64((is_drop ? record.drop.keys : record.rows.keys) + r * 8)};
                struct fr_delta_row *row =
                    bsearch(&probe, g.rows, GOLDEN_ROWS + GOLDEN_DROPS, sizeof(g.rows[0]), golden_order);
                assert_non_null(row);
                assert_int_equal(row->values == NULL, is_drop);
                if (is_drop) {
                    assert_int_equal(record.drop.why[r], row->why);
                    drops++;
                    continue;
                }
                float values[4];
                fr_delta_segment_row(&record, 0, r, values);
                if (table == 1)
                    fr_delta_segment_row(&record, 1, r, values + 1);
                for (uint32_t d = 0; d < g.tables[table].value_floats; d++)
                    assert_true(values[d] == fr_quantized(row->values[d], FR_CODEC_F16));
                rows++;
            }
        } else if (record.kind == FR_DELTA_DENSE) {
            int d = memcmp(record.dense.name.bytes, "h/bias", 6) == 0;
            assert_int_equal(record.dense.offset, dense_at[d]);
            float values[256];
            fr_delta_dense_values(&record, values);
            for (uint64_t j = 0; j < record.dense.n_values; j++)
                assert_true(values[j] ==
                            fr_quantized(((const float *)g.dense[d].values)[record.dense.offset + j], FR_CODEC_F16));
            dense_at[d] += record.dense.n_values;
        }
    }
    assert_int_equal(rows, GOLDEN_ROWS);
    assert_int_equal(drops, GOLDEN_DROPS);
    assert_int_equal(dense_at[0], GOLDEN_KERNEL);
    assert_int_equal(dense_at[1], GOLDEN_BIAS);
}

FR_CASE(exact_parameters_travel_as_f32_in_an_f16_timeline)
{
    struct golden g;
    golden_init(&g);
    for (int i = 0; i < GOLDEN_BIAS; i++)
        g.bias[i] = 0.1f * (float)i;
    g.dense[1].exact = true;
    write_golden(&g);
    uint64_t seen = 0;
    for (size_t i = 0; i < all.count; i++) {
        struct fr_delta_record record = read_ok(i);
        if (record.kind != FR_DELTA_DENSE)
            continue;
        bool bias = memcmp(record.dense.name.bytes, "h/bias", 6) == 0;
        assert_int_equal(record.dense.quantize, bias ? FR_CODEC_F32 : FR_CODEC_F16);
        if (!bias)
            continue;
        float values[GOLDEN_BIAS];
        fr_delta_dense_values(&record, values);
        assert_memory_equal(values, g.bias + record.dense.offset, (size_t)record.dense.n_values * sizeof(float));
        seen += record.dense.n_values;
    }
    assert_int_equal(seen, GOLDEN_BIAS);
}

FR_CASE(commits_count_the_rows_and_drops_before_them)
{
    struct golden g;
    golden_init(&g);
    write_golden(&g);
    uint64_t rows = 0, drops = 0;
    for (size_t i = 0; i < all.count; i++) {
        struct fr_delta_record record = read_ok(i);
        rows += record.kind == FR_DELTA_ROWS ? record.rows.n_rows : 0;
        drops += record.kind == FR_DELTA_DROP ? record.drop.n_rows : 0;
        if (record.kind != FR_DELTA_COMMIT)
            continue;
        assert_int_equal(record.commit.n_rows, rows);
        assert_int_equal(record.commit.n_drops, drops);
        assert_int_equal(record.commit.previous, 0xfedcba9876543210u);
        assert_int_equal(record.commit.wm_ms, 1700000000000);
        assert_int_equal(record.commit.t_ms, 1700000001234);
        assert_int_equal(record.commit.samples, 123456789);
        static const uint8_t auc[] = "\x82\xa5"
                                     "click\xcb\x3f\xe8\0\0\0\0\0\0\xa3"
                                     "buy\xc0";
        assert_int_equal(record.commit.auc_size, sizeof(auc) - 1);
        assert_memory_equal(record.commit.auc, auc, sizeof(auc) - 1);
        static const uint8_t off[] = "\x82\xa7samples\x82\x00\x05\x01\xcf\0\0\0\x02\0\0\0\0\xa4zeta\x81\x03\x00";
        assert_int_equal(record.commit.offsets_size, sizeof(off) - 1);
        assert_memory_equal(record.commit.offsets, off, sizeof(off) - 1);
        assert_int_equal(record.commit.snap_size, 1);
        assert_int_equal(record.commit.snap[0], 0xc0);
        rows = drops = 0;
    }
}

FR_CASE(records_of_every_piece_max_keep_the_limit_and_lose_nothing)
{
    for (uint64_t piece_max = 330; piece_max < 2500; piece_max += 7) {
        struct golden g;
        golden_init(&g);
        g.settings.piece_max = piece_max;
        write_golden(&g);
        uint64_t rows = 0, drops = 0, dense = 0;
        for (size_t i = 0; i < all.count; i++) {
            assert_true(all.list[i].size <= piece_max);
            struct fr_delta_record record = read_ok(i);
            rows += record.kind == FR_DELTA_ROWS ? record.rows.n_rows : 0;
            drops += record.kind == FR_DELTA_DROP ? record.drop.n_rows : 0;
            dense += record.kind == FR_DELTA_DENSE ? record.dense.n_values : 0;
        }
        assert_int_equal(rows, GOLDEN_ROWS);
        assert_int_equal(drops, GOLDEN_DROPS);
        assert_int_equal(dense, GOLDEN_KERNEL + GOLDEN_BIAS);
    }
}

FR_CASE(a_row_that_fits_no_piece_is_an_error)
{
    struct golden g;
    golden_init(&g);
    g.settings.piece_max = 200;
    uint64_t saturated = 0;
    drop_records(&all);
    assert_int_equal(fr_delta_write(&g.settings, &g.epoch, keep, &all, &saturated), FR_E_LIMIT);
}

enum { LONGEST_NAME = 63, WIDE_DIM = 512 };

static void long_name(char *name)
{
    memset(name, 'n', LONGEST_NAME);
    name[LONGEST_NAME] = '\0';
}

/* conf/load.c checks that a row and a commit fit a record. It counts 2048 bytes beside a row's
 * values; and for a commit 2048 bytes, 8 beside each topic's name, and 14 for each offset. */
FR_CASE(the_widest_row_and_the_largest_commit_fit_what_a_configuration_proves)
{
    static struct fr_delta_offset offsets[4096];
    static struct fr_delta_auc auc[16];
    static float values[FR_CODEC_PARTS_MAX * WIDE_DIM];
    char name[64], topic[250] = "";
    struct golden g;
    golden_init(&g);
    long_name(name);
    memset(topic, 't', 249);
    memset(g.settings.model, 'm', 120);
    struct fr_codec_table table = {.n_parts = FR_CODEC_PARTS_MAX, .value_floats = FR_CODEC_PARTS_MAX * WIDE_DIM};
    long_name(table.name);
    for (int p = 0; p < FR_CODEC_PARTS_MAX; p++) {
        long_name(table.parts[p].name);
        table.parts[p].dim = WIDE_DIM;
    }
    g.settings.tables = &table;
    g.settings.n_tables = 1;
    g.settings.quantize = FR_CODEC_F32;
    g.settings.np = 1;
    g.settings.fp = UINT64_MAX;
    struct fr_delta_row row = {.key = UINT64_MAX, .values = values};
    for (size_t i = 0; i < 16; i++)
        auc[i] = (struct fr_delta_auc){name, 0.5};
    for (int i = 0; i < 4096; i++)
        offsets[i] = (struct fr_delta_offset){topic, INT32_MAX - 4096 + i, INT64_MAX};
    struct fr_delta_epoch epoch = {.timeline = UINT64_MAX,
                                   .epoch = UINT64_MAX - 1,
                                   .from = UINT64_MAX - 1,
                                   .digest = UINT64_MAX,
                                   .previous = UINT64_MAX,
                                   .rows = &row,
                                   .n_rows = 1,
                                   .commit = {.wm_ms = INT64_MAX,
                                              .samples = UINT64_MAX,
                                              .t_ms = INT64_MAX,
                                              .n_auc = 16,
                                              .auc = auc,
                                              .n_offsets = 4096,
                                              .offsets = offsets}};
    g.settings.piece_max = UINT64_MAX;
    uint64_t saturated = 0;
    drop_records(&all);
    assert_int_equal(fr_delta_write(&g.settings, &epoch, keep, &all, &saturated), FR_OK);
    assert_int_equal(all.count, 2);
    assert_true(all.list[1].size <= 2048 + 249 + 8 + 4096 * 14);
    epoch.commit.n_offsets = epoch.commit.n_auc = 0;
    g.settings.piece_max = sizeof(values) + 2048;
    drop_records(&all);
    assert_int_equal(fr_delta_write(&g.settings, &epoch, keep, &all, &saturated), FR_OK);
}

FR_CASE(input_out_of_order_is_refused_by_the_writer)
{
    struct golden g;
    golden_init(&g);
    struct fr_delta_row swap = g.rows[3];
    g.rows[3] = g.rows[4];
    g.rows[4] = swap;
    uint64_t saturated = 0;
    drop_records(&all);
    assert_int_equal(fr_delta_write(&g.settings, &g.epoch, keep, &all, &saturated), FR_E_INVALID);
    golden_init(&g);
    g.rows[GOLDEN_ROWS].table = 2;
    assert_int_equal(fr_delta_write(&g.settings, &g.epoch, keep, &all, &saturated), FR_E_INVALID);
    golden_init(&g);
    g.epoch.from = 8;
    assert_int_equal(fr_delta_write(&g.settings, &g.epoch, keep, &all, &saturated), FR_E_INVALID);
}

FR_CASE(an_empty_epoch_is_one_commit_a_partition)
{
    struct golden g;
    golden_init(&g);
    g.settings.np = 5;
    g.epoch.n_rows = g.epoch.n_dense = 0;
    g.epoch.with_model = false;
    g.epoch.rewind = NULL;
    write_golden(&g);
    assert_int_equal(all.count, 5);
    for (uint32_t p = 0; p < 5; p++) {
        struct fr_delta_record record = read_ok(p);
        assert_int_equal(record.kind, FR_DELTA_COMMIT);
        assert_int_equal(record.partition, p);
        assert_int_equal(record.commit.n_pieces, 0);
    }
}

FR_CASE(envelope_keys_come_in_the_published_order_with_shortest_integers)
{
    struct golden g;
    golden_init(&g);
    write_golden(&g);
    static const uint8_t head[] = "\xde\x00\x16\xa1v\x01\xa1k\xa6"
                                  "commit\xa1m\xa6golden\xa2"
                                  "fp\xcf";
    static const uint8_t middle[] = "\xa2tl\x02\xa1"
                                    "e\x07\xa4"
                                    "from\x07\xa3"
                                    "dig\xcf\x01\x23\x45\x67\x89\xab\xcd\xef\xa1p\x01\xa2np\x02\xa1i";
    const uint8_t *bytes = all.list[all.count - 1].bytes;
    assert_memory_equal(bytes, head, sizeof(head) - 1);
    assert_memory_equal(bytes + sizeof(head) - 1 + 8, middle, sizeof(middle) - 1);
}

/* The writer refuses what the reader would refuse: a name that no reader accepts is not sent. */
FR_CASE(a_record_that_no_reader_takes_is_not_written)
{
    struct golden g;
    golden_init(&g);
    uint64_t saturated = 0;
    drop_records(&all);
    g.settings.model[0] = '\0';
    assert_int_equal(fr_delta_write(&g.settings, &g.epoch, keep, &all, &saturated), FR_E_STATE);
    assert_int_equal(all.count, 0);
}

/* ---- drawn records ---- */

static uint64_t random_state = 11;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

static void draw_name(char *out, size_t most, const char *signs)
{
    size_t size = draw(3) == 0 ? most : 1 + draw(most), n = strlen(signs);
    for (size_t i = 0; i < size; i++)
        out[i] = signs[draw(n)];
    out[size] = '\0';
}

#define NAME_SIGNS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
#define TOPIC_SIGNS NAME_SIGNS "0123456789.-"
#define PATH_SIGNS TOPIC_SIGNS " !#$%&'()*+,/:;<=>?@[]^`{|}~"

enum { OFFSETS = 6, TABLES = 3, DRAWN_ROWS = 20 };

/* Reads the positions of a commit with a cursor, as a reader that needs them does. */
static void assert_offsets(const struct fr_delta_record *record, const struct fr_delta_offset *expected, uint32_t n)
{
    struct fr_cursor cursor;
    struct fr_token token;
    uint32_t at = 0;
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, record->commit.offsets, record->commit.offsets_size, NULL);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_int_equal(token.kind, FR_TOKEN_MAP);
    while (fr_cursor_next(&cursor, &token) == FR_OK && token.kind == FR_TOKEN_STRING) {
        const struct fr_token topic = token;
        assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
        assert_int_equal(token.kind, FR_TOKEN_MAP);
        while (fr_cursor_next(&cursor, &token) == FR_OK && token.kind == FR_TOKEN_UINT) {
            assert_true(at < n && topic.size == strlen(expected[at].topic) &&
                        memcmp(topic.bytes, expected[at].topic, topic.size) == 0);
            assert_true(token.u == (uint64_t)expected[at].partition);
            assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
            assert_true(token.kind == FR_TOKEN_UINT && token.u == (uint64_t)expected[at].next_offset);
            at++;
        }
    }
    assert_int_equal(at, n);
}

static const float drawn_values[3] = {0.5f, -1e30f, 0.0f};

static void draw_settings(struct fr_codec_settings *settings, struct fr_codec_table *tables)
{
    static char cfg[] = "{}";
    *settings = (struct fr_codec_settings){.revision = FR_CODEC_REVISION,
                                           .np = (uint32_t)(draw(10) ? 1 + draw(5) : FR_DELTA_PARTITIONS_MAX),
                                           .quantize = (enum fr_codec_quantize)draw(4),
                                           .piece_max = 8192,
                                           .fp = draw(2) ? UINT64_MAX : draw(UINT32_MAX),
                                           .cfg = cfg,
                                           .cfg_size = sizeof(cfg) - 1,
                                           .n_tables = TABLES,
                                           .tables = tables};
    draw_name(settings->model, 120, TOPIC_SIGNS);
    for (uint32_t t = 0; t < TABLES; t++) {
        tables[t] = (struct fr_codec_table){.n_parts = 1 + (uint32_t)draw(3)};
        draw_name(tables[t].name, 63, NAME_SIGNS);
        for (uint32_t p = 0; p < tables[t].n_parts; p++) {
            draw_name(tables[t].parts[p].name, 63, NAME_SIGNS);
            tables[t].value_floats += tables[t].parts[p].dim = 1;
        }
    }
}

static uint32_t draw_offsets(struct fr_delta_offset *offsets, char (*names)[250])
{
    uint32_t n = (uint32_t)draw(OFFSETS + 1);
    for (uint32_t i = 0; i < n; i++) {
        bool file = draw(2);
        snprintf(names[i], 250, file ? "file:%u" : "t%u", i);
        draw_name(names[i] + strlen(names[i]), 200, file ? PATH_SIGNS : TOPIC_SIGNS);
        offsets[i] = (struct fr_delta_offset){names[i], (int32_t)draw(INT32_MAX),
                                              draw(2) ? INT64_MAX : (int64_t)draw(UINT32_MAX)};
    }
    return n;
}

/* The names, numbers and positions are drawn from everything that a configuration and a state may
 * have: the reader accepts each record, and gives back what was written. */
FR_CASE(every_record_that_may_be_written_is_read_back)
{
    for (int round = 0; round < 200; round++) {
        struct fr_codec_settings settings;
        struct fr_codec_table tables[TABLES];
        struct fr_delta_offset offsets[OFFSETS];
        char names[OFFSETS][250], snap[180];
        struct fr_delta_row rows[TABLES * DRAWN_ROWS];
        size_t n_rows = 0;
        draw_settings(&settings, tables);
        draw_name(snap, 170, TOPIC_SIGNS);
        for (uint32_t t = 0; t < TABLES; t++)
            for (uint64_t k = 0; k < DRAWN_ROWS; k++)
                rows[n_rows++] =
                    (struct fr_delta_row){.table = t,
                                          .key = k == DRAWN_ROWS - 1 ? UINT64_MAX : k << 59 | draw(1 << 30),
                                          .why = (uint8_t)(k % 3 ? 0 : 1 + draw(5)),
                                          .values = k % 3 ? drawn_values : NULL};
        const uint64_t epoch = draw(2) ? UINT64_MAX - 1 : 1 + draw(1000);
        const struct fr_delta_rewind rewind = {draw(2) ? 0 : UINT64_MAX - 1, snap};
        const struct fr_delta_epoch written = {
            .timeline = draw(2) ? UINT64_MAX : 1,
            .epoch = epoch,
            .from = draw(2) ? 1 : epoch,
            .digest = UINT64_MAX,
            .with_model = true,
            .rewind = draw(2) ? &rewind : NULL,
            .rows = rows,
            .n_rows = n_rows,
            .commit = {.wm_ms = INT64_MAX,
                       .t_ms = -1,
                       .samples = UINT64_MAX,
                       .n_offsets = draw_offsets(offsets, names),
                       .offsets = offsets,
                       .snap = {.name = draw(2) ? snap : NULL, .bytes = UINT64_MAX}}};
        uint64_t saturated = 0;
        drop_records(&all);
        assert_int_equal(fr_delta_write(&settings, &written, keep, &all, &saturated), FR_OK);
        for (size_t i = 0; i < all.count; i++) {
            struct fr_delta_record record = read_ok(i);
            assert_true(record.timeline == written.timeline && record.epoch == epoch && record.from == written.from);
            assert_true(record.model.size == strlen(settings.model) && record.np == settings.np);
            if (record.kind == FR_DELTA_COMMIT)
                assert_offsets(&record, offsets, written.commit.n_offsets);
        }
    }
    drop_records(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_numbered_from_0_and_ordered_rewind_model_rows_drop_dense_commit),
        cmocka_unit_test(rows_drops_and_dense_read_back_as_quantized),
        cmocka_unit_test(exact_parameters_travel_as_f32_in_an_f16_timeline),
        cmocka_unit_test(commits_count_the_rows_and_drops_before_them),
        cmocka_unit_test(records_of_every_piece_max_keep_the_limit_and_lose_nothing),
        cmocka_unit_test(a_row_that_fits_no_piece_is_an_error),
        cmocka_unit_test(the_widest_row_and_the_largest_commit_fit_what_a_configuration_proves),
        cmocka_unit_test(input_out_of_order_is_refused_by_the_writer),
        cmocka_unit_test(an_empty_epoch_is_one_commit_a_partition),
        cmocka_unit_test(envelope_keys_come_in_the_published_order_with_shortest_integers),
        cmocka_unit_test(a_record_that_no_reader_takes_is_not_written),
        cmocka_unit_test(every_record_that_may_be_written_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, release_all);
}
