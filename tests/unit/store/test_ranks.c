/* Plans over several ranks (store/ranks.h): ranks that read some of the lanes each and own some of
 * the domains give the rows, counts and images of one rank that does all, whatever their number.
 * Messages that are cut or forged are refused and change nothing. */
#include "store/ranks.h"

#include "lane_batches.h"
#include "store_fixture.h"
#include "store_image.h"

enum { DOMAINS = 12, RANKS_MAX = 6, IDS = 40 };

struct rank {
    struct world world;
    struct test_batch batch; /* of its lanes */
    uint32_t lane_begin[DOMAINS];
    struct fr_domains domains;        /* and lanes */
    struct fr_buffer keys[RANKS_MAX]; /* for each home */
    struct fr_buffer rows[RANKS_MAX]; /* for each source */
    struct fr_buffer late[RANKS_MAX];
    const struct fr_home_rows *home, *home_before; /* of the last two plans */
    bool direct;                                   /* reads the rows of its own keys in place */
};

static void open_world(struct world *w, size_t workers)
{
    *w = (struct world){0};
    world_add_table(w, 1, 0, 0);
    world_add_table(w, 4, 0, 0);
    w->tables[1].pending_max = 12 * FR_SHARDS; /* one for each place: not all new keys have room */
    world_add_slot(w, 0, true, true);
    world_add_slot(w, 1, true, true);
    world_add_slot(w, FR_NO_INDEX, false, false);
    world_add_slot(w, 0, false, true);
    world_add_slot(w, 1, true, false);
    w->conf.domains = DOMAINS;
    world_open(w, workers);
}

static void begin_batch(struct test_batch *b, const struct world *w, uint32_t *lane_begin)
{
    batch_begin(b, w);
    for (uint32_t s = 1; s < w->conf.n_slots; s += 2)
        b->columns[s].shared = true;
    b->batch.n_lanes = DOMAINS;
    b->batch.lane_begin = lane_begin;
}

/* Draws the lanes of a batch, for one rank and for the ranks that have some of the lanes each. */
static void draw_batch(const struct world *one, struct test_batch *all, uint32_t *lane_begin, struct rank *ranks,
                       uint32_t n, uint64_t *random)
{
    struct test_batch *lane = fr_alloc(1, sizeof(*lane));
    begin_batch(all, one, lane_begin);
    for (uint32_t r = 0; r < n; r++)
        begin_batch(&ranks[r].batch, one, ranks[r].lane_begin);
    for (uint32_t l = 0; l < DOMAINS; l++) {
        draw_lane(lane, one, random, (uint32_t)(test_random(random) % 3));
        /* clicks that 29 bits hold, and others */
        for (uint32_t i = 0; i < lane->batch.n_samples && l % 3 == 0; i++)
            lane->labels[i] *= 300.5f;
        append_lane(all, lane, l, lane_begin);
        for (uint32_t r = 0; r < n; r++) {
            if (l >= ranks[r].domains.first && l < ranks[r].domains.end)
                append_lane(&ranks[r].batch, lane, l, ranks[r].lane_begin);
            else
                ranks[r].lane_begin[l] = ranks[r].batch.batch.n_groups;
        }
    }
    free(lane);
}

/* Plans the batches of all ranks at all homes; next: beside the step of the batch before. */
static void resolve_ranks(struct rank *ranks, uint32_t n, int64_t watermark_ms, bool next)
{
    struct fr_err err = {0};
    for (uint32_t r = 0; r < n; r++) {
        fr_store_gather(ranks[r].world.store, &ranks[r].batch.batch, ranks[r].world.rows);
        for (uint32_t h = 0; h < n; h++) {
            fr_buffer_clear(&ranks[r].keys[h]);
            fr_store_put_keys(ranks[r].world.store, ranks[h].domains, &ranks[r].keys[h]);
        }
    }
    for (uint32_t h = 0; h < n; h++) {
        struct fr_store *store = ranks[h].world.store;
        struct fr_bytes in[RANKS_MAX];
        for (uint32_t r = 0; r < n; r++)
            in[r] = (struct fr_bytes){ranks[r].keys[h].data, ranks[r].keys[h].size};
        enum fr_status status = next ? fr_store_resolve_next(store, ranks[h].domains, in, n, watermark_ms, &err)
                                     : fr_store_resolve(store, ranks[h].domains, in, n, watermark_ms, &err);
        assert_int_equal(status, FR_OK);
        ranks[h].home_before = ranks[h].home;
        ranks[h].home = fr_store_home_rows(store);
        for (uint32_t r = 0; r < n; r++) {
            fr_buffer_clear(&ranks[h].rows[r]);
            fr_store_put_rows(store, r, &ranks[h].rows[r]);
        }
    }
}

/* Brings the rows to their sources, the late ones as they are now. */
static void take_ranks(struct rank *ranks, uint32_t n)
{
    struct fr_err err = {0};
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t h = 0; h < n; h++) {
            if (ranks[r].direct && h == r) {
                fr_store_own_rows(ranks[r].world.store, r, ranks[r].world.rows);
                continue;
            }
            struct fr_buffer *late = &ranks[h].late[r];
            fr_buffer_clear(late);
            fr_store_put_late_rows(ranks[h].world.store, r, late);
            struct fr_bytes in = {ranks[h].rows[r].data, ranks[h].rows[r].size};
            assert_int_equal(fr_store_take_rows(ranks[r].world.store, ranks[h].domains, in,
                                                (struct fr_bytes){late->data, late->size}, ranks[r].world.rows, &err),
                             FR_OK);
        }
}

static void plan_ranks(struct rank *ranks, uint32_t n, int64_t watermark_ms)
{
    resolve_ranks(ranks, n, watermark_ms, false);
    take_ranks(ranks, n);
}

static uint32_t find(const struct fr_table_rows *rows, uint64_t key)
{
    uint32_t u = 0;
    while (u < rows->n_unique && rows->keys[u] != key)
        u++;
    assert_true(u < rows->n_unique);
    return u;
}

static void expect_rows(const struct world *one, const struct rank *rank)
{
    for (uint32_t t = 0; t < one->n_tables; t++) {
        const struct fr_table_rows *all = &one->rows->tables[t], *mine = &rank->world.rows->tables[t];
        for (uint32_t u = 0; u < mine->n_unique; u++) {
            uint32_t a = find(all, mine->keys[u]);
            assert_int_equal(mine->rows[u] != NULL, all->rows[a] != NULL);
            assert_int_equal(mine->served[u] != NULL, all->served[a] != NULL);
            if (mine->served[u])
                assert_memory_equal(mine->served[u], all->served[a], TEST_DIM * sizeof(float));
        }
    }
}

/* The list of merged keys of a home: each key that a rank sent has the key's row, and no two keys
 * are one. */
static void expect_home(struct rank *ranks, uint32_t n, uint32_t h)
{
    const struct fr_home_rows *home = fr_store_home_rows(ranks[h].world.store);
    assert_true(home->n_ranks == n && home->n_tables == ranks[h].world.n_tables);
    for (uint32_t t = 0; t < home->n_tables; t++) {
        const struct fr_home_table *table = &home->tables[t];
        uint64_t *keys = fr_alloc(table->n_keys + 1, sizeof(*keys));
        bool *named = fr_alloc(table->n_keys + 1, sizeof(*named));
        for (uint32_t r = 0; r < n; r++) {
            struct fr_unique_range ranges[FR_TABLES_MAX];
            const struct fr_table_rows *sent = &ranks[r].world.rows->tables[t];
            fr_store_sent_ranges(ranks[r].world.store, ranks[h].domains, ranges);
            assert_int_equal(table->n_sent[r], ranges[t].end - ranges[t].begin);
            for (uint32_t i = 0; i < table->n_sent[r]; i++) {
                uint64_t key = sent->keys[ranges[t].begin + i];
                uint32_t merged = table->merged[r][i], domain = fr_key_domain(key, DOMAINS);
                assert_true(domain >= ranks[h].domains.first && domain < ranks[h].domains.end);
                assert_true(merged < table->n_keys && (!named[merged] || keys[merged] == key));
                assert_ptr_equal(table->rows[merged], fr_store_row_of(ranks[h].world.store, t, key));
                keys[merged] = key;
                named[merged] = true;
            }
        }
        for (uint32_t k = 0; k < table->n_keys; k++) {
            assert_true(named[k]);
            for (uint32_t j = 0; j < k; j++)
                assert_true(keys[j] != keys[k]);
        }
        free(keys);
        free(named);
    }
}

/* Changes the rows of the one rank's batch, and copies them to their homes. */
static void step(const struct world *one, struct rank *ranks, uint32_t n)
{
    for (uint32_t t = 0; t < one->n_tables; t++)
        for (uint32_t u = 0; u < one->rows->tables[t].n_unique; u++)
            for (uint32_t j = 0; one->rows->tables[t].rows[u] && j < TEST_ROW_FLOATS; j++)
                one->rows->tables[t].rows[u][j] += (float)(u + j + 1) * 0.01f;
    for (uint32_t t = 0; t < one->n_tables; t++) {
        const struct fr_table_rows *all = &one->rows->tables[t];
        for (uint32_t u = 0; u < all->n_unique; u++) {
            uint32_t domain = fr_key_domain(all->keys[u], DOMAINS), h = 0;
            while (domain >= ranks[h].domains.end)
                h++;
            float *row = fr_store_row_of(ranks[h].world.store, t, all->keys[u]);
            assert_true(row || !all->rows[u]); /* a batch planned since may have made others */
            if (all->rows[u])
                memcpy(row, all->rows[u], TEST_ROW_FLOATS * sizeof(float));
            for (uint32_t r = 0; r < n; r++) /* nobody else has the key */
                if (r != h)
                    assert_null(fr_store_row_of(ranks[r].world.store, t, all->keys[u]));
        }
    }
}

static void expect_state(const struct world *one, const struct rank *ranks, uint32_t n)
{
    for (uint32_t t = 0; t < one->n_tables; t++) {
        struct fr_store_table_stats all, sum, mine;
        memset(&sum, 0, sizeof(sum));
        fr_store_stats(one->store, t, &all);
        for (uint32_t r = 0; r < n; r++) {
            fr_store_stats(ranks[r].world.store, t, &mine);
            for (int i = 0; i < FR_STORE_COUNTS; i++)
                sum.counts.of[i] += mine.counts.of[i];
        }
        assert_memory_equal(&sum.counts, &all.counts, sizeof(all.counts));
        for (uint32_t i = 0; i < IDS; i++) {
            struct fr_store_view a, b;
            uint32_t domain = fr_key_domain(test_key(i), DOMAINS), h = 0;
            while (domain >= ranks[h].domains.end)
                h++;
            enum fr_status found = fr_store_find(one->store, t, test_key(i), &a);
            assert_int_equal(fr_store_find(ranks[h].world.store, t, test_key(i), &b), found);
            if (found != FR_OK)
                continue;
            assert_true(a.kind == b.kind && a.count == b.count && a.seen_ms == b.seen_ms);
            assert_true(a.show == b.show && a.click == b.click);
            if (a.kind == FR_IMAGE_ROW)
                assert_memory_equal(a.row, b.row, TEST_ROW_FLOATS * sizeof(float));
        }
    }
}

struct ranks_world {
    struct world one;
    struct rank *ranks;
    uint32_t n;
    struct test_batch *all;
    uint32_t lane_begin[DOMAINS];
    uint64_t random;
};

static void open_ranks(struct ranks_world *w, uint32_t n)
{
    *w = (struct ranks_world){.n = n, .random = 31};
    w->ranks = fr_alloc(n, sizeof(*w->ranks));
    w->all = fr_alloc(1, sizeof(*w->all));
    open_world(&w->one, 1);
    for (uint32_t r = 0; r < n; r++) {
        w->ranks[r].domains = (struct fr_domains){DOMAINS * r / n, DOMAINS * (r + 1) / n};
        open_world(&w->ranks[r].world, 1 + r % 2);
        w->ranks[r].direct = n % 2 == 0;
    }
}

static void close_ranks(struct ranks_world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        for (uint32_t h = 0; h < w->n; h++) {
            fr_buffer_release(&w->ranks[r].keys[h]);
            fr_buffer_release(&w->ranks[r].rows[h]);
            fr_buffer_release(&w->ranks[r].late[h]);
        }
        world_close(&w->ranks[r].world);
    }
    world_close(&w->one);
    free(w->all);
    free(w->ranks);
}

static void draw(struct ranks_world *w)
{
    draw_batch(&w->one, w->all, w->lane_begin, w->ranks, w->n, &w->random);
}

static void expect_plan(struct ranks_world *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        expect_rows(&w->one, &w->ranks[r]);
        expect_home(w->ranks, w->n, r);
    }
}

static void run_ranks(uint32_t n)
{
    struct ranks_world w;
    open_ranks(&w, n);
    for (int round = 0; round < 120; round++) {
        draw(&w);
        fr_store_plan(w.one.store, &w.all->batch, round, w.one.rows);
        plan_ranks(w.ranks, n, round);
        expect_plan(&w);
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t h = 0; h < n; h++)
                assert_int_equal(w.ranks[h].late[r].size, 0);
        if (round % 5 == 4) { /* refused: nothing of it stays, at any home */
            fr_store_undo(w.one.store);
            for (uint32_t r = 0; r < n; r++)
                fr_store_undo(w.ranks[r].world.store);
            continue;
        }
        step(&w.one, w.ranks, n);
    }
    expect_state(&w.one, w.ranks, n);
    close_ranks(&w);
}

FR_CASE(any_number_of_ranks_gives_the_rows_of_one)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6};
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes); i++)
        run_ranks(sizes[i]);
}

/* The rows that the home listed for the batch before are those that its step has to change. */
static void expect_home_before(const struct world *one, const struct rank *ranks, uint32_t n, uint32_t h)
{
    const struct fr_home_rows *home = ranks[h].home_before;
    for (uint32_t t = 0; t < one->n_tables; t++) {
        const struct fr_table_rows *all = &one->rows->tables[t];
        uint32_t rows = 0, listed = 0;
        for (uint32_t u = 0; u < all->n_unique; u++) {
            uint32_t domain = fr_key_domain(all->keys[u], DOMAINS);
            const float *row = fr_store_row_of(ranks[h].world.store, t, all->keys[u]);
            if (!all->rows[u] || domain < ranks[h].domains.first || domain >= ranks[h].domains.end)
                continue;
            rows++;
            for (uint32_t k = 0; k < home->tables[t].n_keys; k++)
                listed += home->tables[t].rows[k] == row;
        }
        assert_int_equal(listed, rows);
    }
    assert_int_equal(home->n_ranks, n);
}

/* Returns how many late rows were other ones before the step, when early rows left. */
static size_t count_changed(const struct rank *ranks, uint32_t n, struct fr_buffer before[RANKS_MAX][RANKS_MAX])
{
    size_t changed = 0, each = TEST_DIM * sizeof(float);
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t r = 0; r < n; r++) {
            const struct fr_buffer *now = &ranks[h].late[r];
            if (ranks[r].direct && h == r)
                continue;
            assert_int_equal(before[h][r].size, now->size);
            for (size_t at = 0; at < now->size; at += each)
                changed += memcmp(before[h][r].data + at, now->data + at, each) != 0;
        }
    return changed;
}

/* Returns how many rows have their values in a message with rows. */
static size_t early_rows(const struct fr_buffer *message)
{
    uint32_t n_keys = fr_load_u32(message->data);
    return (message->size - 2 * sizeof(uint32_t) - (n_keys + 3) / 4 * (size_t)4) / (TEST_DIM * sizeof(float));
}

/* Each batch is planned at all homes before the step of the batch before, at the one rank after. */
static void run_beside(uint32_t n)
{
    struct ranks_world w;
    struct fr_buffer before[RANKS_MAX][RANKS_MAX] = {0};
    size_t late = 0, changed = 0, early = 0;
    open_ranks(&w, n);
    draw(&w);
    fr_store_plan(w.one.store, &w.all->batch, 0, w.one.rows);
    plan_ranks(w.ranks, n, 0);
    for (int round = 1; round < 120; round++) {
        draw(&w);
        resolve_ranks(w.ranks, n, round, true);
        for (uint32_t h = 0; h < n; h++)
            expect_home_before(&w.one, w.ranks, n, h);
        if (round % 5 == 4) { /* both plans are undone, and made again one after the other */
            for (int plans = 0; plans < 2; plans++)
                for (uint32_t r = 0; r < n; r++)
                    fr_store_undo(w.ranks[r].world.store);
            fr_store_undo(w.one.store);
        } else {
            for (uint32_t h = 0; h < n; h++)
                for (uint32_t r = 0; r < n; r++) {
                    fr_buffer_clear(&before[h][r]);
                    fr_store_put_late_rows(w.ranks[h].world.store, r, &before[h][r]);
                    late += w.ranks[r].direct && h == r ? 0 : before[h][r].size / (TEST_DIM * sizeof(float));
                    early += early_rows(&w.ranks[h].rows[r]);
                }
            step(&w.one, w.ranks, n);
        }
        fr_store_plan(w.one.store, &w.all->batch, round, w.one.rows);
        if (round % 5 == 4)
            plan_ranks(w.ranks, n, round);
        else
            take_ranks(w.ranks, n);
        expect_plan(&w);
        if (round % 5 != 4)
            changed += count_changed(w.ranks, n, before);
    }
    step(&w.one, w.ranks, n);
    expect_state(&w.one, w.ranks, n);
    assert_true(early > 100);
    /* the control: a row that is sent early although it is late would be an older one */
    assert_true(late > 100 && changed == late);
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t r = 0; r < n; r++)
            fr_buffer_release(&before[h][r]);
    close_ranks(&w);
}

FR_CASE(a_batch_planned_beside_a_step_reads_what_the_step_wrote)
{
    static const uint32_t sizes[] = {1, 2, 3, 6};
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes); i++)
        run_beside(sizes[i]);
}

/* A message of keys, the rank that it goes to, and what it changed there: nothing. */
static void expect_refused(struct rank *rank, const uint8_t *bytes, size_t size)
{
    struct fr_err err = {0};
    struct fr_store_table_stats before, after;
    struct fr_bytes in = {bytes, size};
    fr_store_stats(rank->world.store, 0, &before);
    enum fr_status status = fr_store_resolve(rank->world.store, rank->domains, &in, 1, 5, &err);
    if (status == FR_OK) /* a number that may be any */
        fr_store_undo(rank->world.store);
    else
        assert_int_equal(status, FR_E_CORRUPT);
    fr_store_stats(rank->world.store, 0, &after);
    assert_memory_equal(&before.counts, &after.counts, sizeof(before.counts));
}

FR_CASE(a_cut_or_forged_message_is_refused_and_changes_nothing)
{
    struct rank *rank = fr_alloc(1, sizeof(*rank));
    struct world one;
    struct test_batch *all = fr_alloc(1, sizeof(*all));
    uint32_t lane_begin[DOMAINS];
    uint64_t random = 3;
    struct fr_err err = {0};
    open_world(&one, 1);
    rank->domains = (struct fr_domains){0, DOMAINS};
    open_world(&rank->world, 1);
    draw_batch(&one, all, lane_begin, rank, 1, &random);
    plan_ranks(rank, 1, 1);
    const struct fr_buffer *keys = &rank->keys[0], *rows = &rank->rows[0];
    for (int round = 0; round < 3000; round++) {
        struct fr_buffer forged = {0};
        const struct fr_buffer *from = round % 2 ? rows : keys;
        fr_buffer_append(&forged, from->data, from->size);
        if (round % 5 == 0)
            forged.size = test_random(&random) % forged.size;
        for (uint64_t n = test_random(&random) % 4; n > 0 && forged.size > 0; n--)
            forged.data[test_random(&random) % forged.size] = (uint8_t)test_random(&random);
        /* memory of exactly its size, so that a sanitizer sees a read beyond it */
        uint8_t *exact = malloc(forged.size + 1);
        memcpy(exact, forged.data, forged.size);
        struct fr_bytes in = {exact, forged.size};
        if (round % 2) {
            enum fr_status status =
                fr_store_take_rows(rank->world.store, rank->domains, in, (struct fr_bytes){0}, rank->world.rows, &err);
            assert_true(status == FR_OK || status == FR_E_CORRUPT);
        } else {
            expect_refused(rank, exact, forged.size);
        }
        free(exact);
        fr_buffer_release(&forged);
    }
    fr_buffer_release(&rank->keys[0]);
    fr_buffer_release(&rank->rows[0]);
    world_close(&rank->world);
    world_close(&one);
    free(all);
    free(rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_gives_the_rows_of_one),
        cmocka_unit_test(a_batch_planned_beside_a_step_reads_what_the_step_wrote),
        cmocka_unit_test(a_cut_or_forged_message_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
