/* Tables in several domains, and batches in several lanes: results are those of one domain, limits
 * are shares, and lists of occurrences go lane by lane. Images, cuts, restarts, slices and undo of
 * several domains are compared with a model in test_model.c. */
#include "store/section.h"
#include "store_fixture.h"
#include "store_image.h"
#include "lane_batches.h"

#include "policy/sweep.h"

enum { DOMAINS = 4, LANES = 3, UNIVERSE = 700 };

static void open_mixed(struct world *w, uint32_t n_domains, size_t workers)
{
    *w = (struct world){0};
    world_add_table(w, 1, 0, 0);
    world_add_table(w, 4, 0, 0);
    world_add_slot(w, 0, true, true);
    world_add_slot(w, 1, true, true);
    world_add_slot(w, FR_NO_INDEX, false, false);
    world_add_slot(w, 0, false, true);
    world_add_slot(w, 1, true, false);
    w->conf.domains = n_domains;
    world_open(w, workers);
}

/* ---- several domains ---- */

static void expect_the_same_keys(const struct world *one, const struct world *four)
{
    for (uint32_t t = 0; t < one->n_tables; t++) {
        struct fr_store_table_stats stats[2];
        fr_store_stats(one->store, t, &stats[0]);
        fr_store_stats(four->store, t, &stats[1]);
        assert_memory_equal(&stats[0].counts, &stats[1].counts, sizeof(stats[0].counts));
        assert_int_equal(stats[0].resident, stats[1].resident);
        for (uint32_t i = 0; i < UNIVERSE; i++) {
            struct fr_store_view a, b;
            enum fr_status found = fr_store_find(one->store, t, test_key(i), &a);
            assert_int_equal(fr_store_find(four->store, t, test_key(i), &b), found);
            assert_true(a.kind == b.kind && a.count == b.count && a.seen_ms == b.seen_ms);
            assert_true(a.show == b.show && a.click == b.click);
            if (found == FR_OK && a.kind == FR_IMAGE_ROW)
                assert_memory_equal(a.row, b.row, TEST_ROW_FLOATS * sizeof(float));
        }
    }
}

/* The keys of a plan ascend by domain; within a domain and a shard they have the order of the plan
 * in one domain. */
static void expect_order(const struct fr_table_rows *one, const struct fr_table_rows *four, uint32_t n_domains)
{
    assert_int_equal(one->n_unique, four->n_unique);
    uint32_t at = 0;
    for (uint32_t d = 0; d < n_domains; d++)
        for (uint32_t u = 0; u < one->n_unique; u++)
            if (fr_key_domain(one->keys[u], n_domains) == d)
                assert_int_equal(four->keys[at++], one->keys[u]);
}

FR_CASE(the_same_batches_give_the_same_rows_in_one_domain_and_in_four)
{
    struct world one, four;
    open_mixed(&one, 0, 1);
    open_mixed(&four, DOMAINS, 2);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    uint64_t random = 5;
    for (int round = 0; round < 60; round++) {
        random_batch(b, &one, &random, UNIVERSE);
        fr_store_plan(one.store, &b->batch, round, one.rows);
        if (round % 3 == 0)
            fr_store_look(four.store, &b->batch);
        fr_store_plan(four.store, &b->batch, round, four.rows);
        for (uint32_t t = 0; t < one.n_tables; t++)
            expect_order(&one.rows->tables[t], &four.rows->tables[t], DOMAINS);
        if (round % 5 == 4) { /* refused: nothing of it stays */
            fr_store_undo(one.store);
            fr_store_undo(four.store);
        } else {
            step_rows(&one, b);
            step_rows(&four, b);
        }
    }
    expect_the_same_keys(&one, &four);
    free(b);
    world_close(&one);
    world_close(&four);
}

FR_CASE(a_domain_has_an_equal_share_of_each_limit)
{
    static const struct fr_gate_sketch sketch = {.min = 2, .bytes = 1 << 20};
    struct world w = {0};
    world_add_table(&w, 2, 0, 50);
    world_add_table(&w, 2, 0, 50);
    struct fr_store_table *table = &w.tables[0], *small = &w.tables[1];
    table->pending_max = 10;
    table->expire_slice_rows = 7;
    table->initial_capacity = 4096;
    table->expiries[table->n_expiries++] = fr_expire_capacity_policy(&(struct fr_expire_capacity){.rows_max = 9});
    small->pending_max = 2;
    small->expire_slice_rows = 1;
    small->gate = fr_gate_sketch_policy(&sketch);
    small->expiries[small->n_expiries++] = fr_expire_capacity_policy(&(struct fr_expire_capacity){.rows_max = 1});
    w.conf.domains = DOMAINS;
    world_add_slot(&w, 0, true, true);
    world_add_slot(&w, 1, true, true);
    world_open(&w, 1);
    static const uint64_t pending[] = {3, 3, 2, 2}, slices[] = {2, 2, 2, 1}, rows[] = {3, 2, 2, 2};
    for (uint32_t d = 0; d < DOMAINS; d++) {
        const struct fr_table *of = fr_store_subtable(w.store, 0, d);
        uint64_t remembered = 0;
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            remembered += of->shards[s].pending_max;
        assert_int_equal(remembered, pending[d]);
        assert_int_equal(of->spec.expire_slice_rows, slices[d]);
        assert_int_equal(of->spec.initial_capacity, 1024);
        assert_int_equal(of->spec.expiries[0].rows_max, 0); /* a rule without a limit */
        assert_int_equal(of->sweep->rules[1].rows_max, rows[d]);
        /* no share is less than what a table could have */
        const struct fr_store_table *least = &fr_store_subtable(w.store, 1, d)->spec;
        assert_true(least->pending_max == 1 && least->expire_slice_rows == 1 && least->expiries[1].rows_max == 1);
        assert_int_equal(least->gate.sketch_bytes, (1 << 20) / DOMAINS);
    }
    world_close(&w);
}

static uint32_t examined[UNIVERSE]; /* by the shows of the row, which are different for each */

static double count_row(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms)
{
    (void)config, (void)watermark_ms;
    examined[facts->show]++;
    return 1;
}

FR_CASE(a_sweep_of_each_domain_examines_each_of_its_rows_once)
{
    enum { ROWS = 120, TURNS = 300 };
    struct world w = {0};
    world_add_table(&w, 1, 0, 50);
    w.tables[0].expiries[0] =
        (struct fr_expiry_policy){.name = "count", .reason = FR_ABSENT_IDLE, .rank = count_row, .threshold = 0};
    w.tables[0].expire_slice_rows = 16;
    world_add_slot(&w, 0, true, true);
    w.conf.domains = DOMAINS;
    world_open(&w, 1);
    memset(examined, 0, sizeof(examined));
    for (uint32_t i = 0; i < ROWS; i++)
        plan_key_times(&w, test_key(100 + i), i + 1, 1);
    uint32_t sweeps[DOMAINS] = {0};
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        fr_store_slice(w.store, turn, 2);
        for (uint32_t d = 0; d < DOMAINS; d++) {
            const struct fr_table *table = fr_store_subtable(w.store, 0, d);
            assert_true(table->slice_bits > 0);
            if (table->sweep->next != 0)
                continue;
            sweeps[d]++;
            for (uint32_t i = 0; i < ROWS; i++)
                if (fr_key_domain(test_key(100 + i), DOMAINS) == d)
                    assert_int_equal(examined[i + 1], sweeps[d]);
        }
    }
    for (uint32_t d = 0; d < DOMAINS; d++)
        assert_true(sweeps[d] > 3);
    world_close(&w);
}

/* One trained sample of key 7 with the label, in a store of so many domains. */
static double click_of(float label, uint32_t n_domains)
{
    struct world w = {0};
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    struct fr_store_view view;
    world_add_table(&w, 1, 0, 0);
    world_add_slot(&w, 0, true, true);
    w.conf.domains = n_domains;
    world_open(&w, 1);
    batch_begin(b, &w);
    batch_sample(b, FR_ROLE_TRAIN, label);
    batch_id(b, 0, 7);
    fr_store_plan(w.store, &b->batch, 1, w.rows);
    assert_int_equal(fr_store_find(w.store, 0, 7, &view), FR_OK);
    free(b);
    world_close(&w);
    return view.click;
}

FR_CASE(clicks_in_several_domains_are_multiples_of_a_millionth)
{
    const double part = 1.0 / (1 << 20);
    assert_true(click_of(0.1f, 1) == (double)0.1f);
    assert_true(click_of(0.1f, 2) == 104858 * part);
    assert_true(click_of(1.0f, 2) == 1.0);
    assert_true(click_of(1e-9f, 2) == 0.0 && click_of(1e-9f, 1) == (double)1e-9f);
    assert_true(click_of(3e7f, 2) == 1 << 20 && click_of(3e7f, 1) == (double)3e7f);
    assert_true(click_of(nanf(""), 2) == 0.0 && click_of(-1.0f, 2) == 0.0);
}

/* ---- images and sections ---- */

FR_CASE(images_and_sections_of_another_domain_are_refused)
{
    struct world w;
    struct fr_err err = {0};
    uint8_t bytes[FR_ROW_IMAGE_HEAD + TEST_ROW_FLOATS * sizeof(float)] = {0};
    struct fr_image image = {
        .key = UINT64_MAX, .table = fr_subtable(1, 3), .size = sizeof(bytes), .kind = FR_IMAGE_ROW, .bytes = bytes};
    open_mixed(&w, DOMAINS, 1);
    assert_int_equal(fr_store_restore_image(w.store, &image), FR_OK);
    image.table = fr_subtable(1, 2); /* the key is in domain 3 */
    assert_int_equal(fr_store_restore_image(w.store, &image), FR_E_CORRUPT);
    image.table = fr_subtable(1, 4);
    assert_int_equal(fr_store_restore_image(w.store, &image), FR_E_CORRUPT);
    image.table = fr_subtable(2, 3);
    assert_int_equal(fr_store_restore_image(w.store, &image), FR_E_CORRUPT);
    assert_int_equal(fr_store_restore_section(w.store, "store/4", bytes, 8), FR_E_MISMATCH);
    assert_int_equal(fr_store_restore_section(w.store, "expiry/4", bytes, 8), FR_E_MISMATCH);
    assert_int_equal(fr_store_restore_section(w.store, "stores", bytes, 8), FR_E_NOT_FOUND);
    assert_int_equal(fr_store_restore_section(w.store, "store/1x", bytes, 8), FR_E_NOT_FOUND);
    assert_int_equal(fr_store_restore_section(w.store, "store/", bytes, 8), FR_E_NOT_FOUND);
    assert_int_equal(fr_store_restore_end(w.store, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "\"store/0\""));
    world_close(&w);
}

FR_CASE(each_domain_has_its_own_sections)
{
    static const char *const names[] = {"expiry/1", "store/0", "store/1", "store/2", "store/3"};
    struct world w = {0};
    struct fr_stage stage;
    world_add_table(&w, 1, 0, 50);
    world_add_slot(&w, 0, true, true);
    w.conf.domains = DOMAINS;
    world_open(&w, 1);
    plan_key_times(&w, UINT64_C(0x5) << 60, 1, 1); /* only domain 1 has a key */
    fr_store_slice(w.store, 16, 2);
    fr_stage_init(&stage);
    stage.epoch = 1;
    fr_store_cut(w.store, &stage);
    assert_int_equal(stage.n_sections, FR_ARRAY_LEN(names));
    for (size_t i = 0; i < FR_ARRAY_LEN(names); i++) {
        bool found = false;
        for (size_t k = 0; k < stage.n_sections; k++)
            found |= strcmp(stage.sections[k].name, names[i]) == 0;
        assert_true(found);
    }
    fr_stage_release(&stage);
    world_close(&w);
}

/* ---- several lanes ---- */

/* A lane's own plan, and where its occurrences are in the batch of all lanes. */
struct lane {
    struct fr_rows *rows;
    uint32_t offset[TEST_SLOTS]; /* in each slot's column */
    struct test_batch batch;
};

static uint32_t in_all(const struct world *w, const struct lane *lane, uint32_t t, uint32_t occurrence)
{
    uint32_t slot = 0;
    for (uint32_t s = 0; s < w->conf.n_slots; s++)
        if (w->slots[s].table == (int32_t)t && lane->rows->slot_base[s] <= occurrence &&
            occurrence - lane->rows->slot_base[s] < lane->batch.begin[s][fr_batch_entries(&lane->batch.batch, s)])
            slot = s;
    return w->rows->slot_base[slot] + lane->offset[slot] + occurrence - lane->rows->slot_base[slot];
}

static uint32_t find_key(const struct fr_table_rows *rows, uint64_t key)
{
    uint32_t u = 0;
    while (u < rows->n_unique && rows->keys[u] != key)
        u++;
    return u;
}

/* Compares the lists of a table with those of its lanes, one after the other. */
static void expect_lanes(const struct world *w, const struct lane *lanes, uint32_t t)
{
    const struct fr_table_rows *all = &w->rows->tables[t];
    for (uint32_t u = 0; u < all->n_unique; u++) {
        uint32_t at = all->occ_begin[u];
        for (uint32_t l = 0; l < LANES; l++) {
            const struct fr_table_rows *own = &lanes[l].rows->tables[t];
            uint32_t k = find_key(own, all->keys[u]);
            for (uint32_t o = k < own->n_unique ? own->occ_begin[k] : 0; k < own->n_unique && o < own->occ_begin[k + 1];
                 o++, at++) {
                assert_true(at < all->occ_begin[u + 1]);
                assert_int_equal(all->occ[at], in_all(w, &lanes[l], t, own->occ[o]));
                assert_int_equal(all->occ_lane[at], l);
                assert_int_equal(all->unique_of[all->occ[at]], u);
                assert_int_equal(all->occ_from[at] >> FR_ENTRY_BITS, own->occ_from[o] >> FR_ENTRY_BITS);
            }
        }
        assert_int_equal(at, all->occ_begin[u + 1]);
    }
}

/* Distinct keys of a place have the order of their first occurrence, lane by lane. */
static void expect_first_occurrences(const struct world *w, uint32_t t)
{
    const struct fr_table_rows *all = &w->rows->tables[t];
    struct fr_order order = w->store->order;
    for (uint32_t u = 1; u < all->n_unique; u++) {
        uint32_t a = all->occ_begin[u - 1], b = all->occ_begin[u];
        bool same_place =
            fr_shard_of(fr_order_hash(&order, all->keys[u])) == fr_shard_of(fr_order_hash(&order, all->keys[u - 1])) &&
            fr_key_domain(all->keys[u], DOMAINS) == fr_key_domain(all->keys[u - 1], DOMAINS);
        if (same_place)
            assert_true(all->occ_lane[a] < all->occ_lane[b] ||
                        (all->occ_lane[a] == all->occ_lane[b] && all->occ[a] < all->occ[b]));
    }
}

FR_CASE(lists_of_occurrences_go_lane_by_lane)
{
    struct world w, single;
    struct lane *lanes = fr_alloc(LANES, sizeof(*lanes));
    struct test_batch *all = fr_alloc(1, sizeof(*all));
    uint32_t lane_begin[LANES];
    uint64_t random = 99;
    open_mixed(&w, DOMAINS, 2);
    open_mixed(&single, 1, 1);
    for (int round = 0; round < 30; round++) {
        batch_begin(all, &w);
        for (uint32_t s = 1; s < w.conf.n_slots; s += 2)
            all->columns[s].shared = true;
        for (uint32_t l = 0; l < LANES; l++) {
            draw_lane(&lanes[l].batch, &w, &random, (uint32_t)(test_random(&random) % 8));
            for (uint32_t s = 0; s < w.conf.n_slots; s++)
                lanes[l].offset[s] = all->begin[s][fr_batch_entries(&all->batch, s)];
            append_lane(all, &lanes[l].batch, l, lane_begin);
            lanes[l].rows = fr_store_rows_new(single.store);
            fr_store_plan(single.store, &lanes[l].batch.batch, round, lanes[l].rows);
            assert_null(lanes[l].rows->tables[0].occ_lane);
        }
        all->batch.n_lanes = LANES;
        all->batch.lane_begin = lane_begin;
        fr_store_plan(w.store, &all->batch, round, w.rows);
        for (uint32_t t = 0; t < w.n_tables; t++) {
            expect_lanes(&w, lanes, t);
            expect_first_occurrences(&w, t);
        }
        for (uint32_t l = 0; l < LANES; l++)
            fr_store_rows_free(lanes[l].rows);
    }
    free(all);
    free(lanes);
    world_close(&w);
    world_close(&single);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_batches_give_the_same_rows_in_one_domain_and_in_four),
        cmocka_unit_test(a_domain_has_an_equal_share_of_each_limit),
        cmocka_unit_test(a_sweep_of_each_domain_examines_each_of_its_rows_once),
        cmocka_unit_test(clicks_in_several_domains_are_multiples_of_a_millionth),
        cmocka_unit_test(images_and_sections_of_another_domain_are_refused),
        cmocka_unit_test(each_domain_has_its_own_sections),
        cmocka_unit_test(lists_of_occurrences_go_lane_by_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
