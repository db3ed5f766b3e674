/* Shared columns: an occurrence in a group counts once per trained sample of the group, and nothing
 * else tells the two forms of the same samples apart. */
#include "store_fixture.h"
#include "store_image.h"

static void world_of_groups(struct world *w, uint64_t pending_max)
{
    *w = (struct world){0};
    world_add_table(w, 1, 0, 40);
    world_add_table(w, 4, 20, 0);
    world_add_table(w, 9, 0, 0);
    w->tables[2].pending_max = pending_max;
    world_add_slot(w, 0, true, true);
    world_add_slot(w, 0, true, true);
    world_add_slot(w, 1, true, true);
    world_add_slot(w, 1, true, true);
    world_add_slot(w, FR_NO_INDEX, false, false);
    world_add_slot(w, 2, false, true);
    world_add_slot(w, 2, true, true);
    world_add_slot(w, 2, true, false);
    world_open(w, 2);
}

FR_CASE(an_occurrence_in_a_group_counts_once_per_trained_sample)
{
    struct world w;
    world_simple(&w, 3, 0);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    b->columns[0].shared = true;
    batch_sample(b, FR_ROLE_TRAIN, 1.0f);
    batch_id(b, 0, 7);
    batch_item(b, FR_ROLE_METRICS_ONLY, 1.0f);
    batch_item(b, FR_ROLE_TRAIN, 0.25f);
    batch_item(b, FR_ROLE_MASKED, 1.0f);
    fr_store_plan(w.store, &b->batch, 5, w.rows);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 7, &view), FR_OK);
    assert_int_equal(view.kind, FR_IMAGE_PENDING);
    assert_int_equal(view.count, 2);
    assert_int_equal(w.rows->tables[0].n_occurrences, 1); /* resolved once for all of them */
    fr_store_plan(w.store, &b->batch, 6, w.rows);
    assert_int_equal(fr_store_find(w.store, 0, 7, &view), FR_OK);
    assert_int_equal(view.kind, FR_IMAGE_ROW);
    assert_true(view.show == 2.0f && view.click == 1.25f);
    free(b);
    world_close(&w);
}

FR_CASE(a_group_without_a_trained_sample_only_looks_up)
{
    struct world w;
    world_simple(&w, 1, 0);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    b->columns[0].shared = true;
    batch_sample(b, FR_ROLE_MASKED, 1.0f);
    batch_id(b, 0, 7);
    batch_item(b, FR_ROLE_METRICS_ONLY, 1.0f);
    fr_store_plan(w.store, &b->batch, 5, w.rows);
    assert_null(w.rows->tables[0].rows[0]);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 7, &view), FR_E_NOT_FOUND);
    free(b);
    world_close(&w);
}

FR_CASE(groups_and_single_samples_leave_the_same_store)
{
    struct world g, e;
    world_of_groups(&g, 48);
    world_of_groups(&e, 48);
    struct test_batch *grouped = fr_alloc(1, sizeof(*grouped)), *expanded = fr_alloc(1, sizeof(*expanded));
    uint64_t seed = test_seed(23), random = seed;
    print_message("FR_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t round = 1; round <= 120; round++) {
        random_groups(grouped, expanded, &g, &random);
        fr_store_plan(g.store, &grouped->batch, (int64_t)round, g.rows);
        fr_store_plan(e.store, &expanded->batch, (int64_t)round, e.rows);
        assert_same_store(g.store, e.store);
        for (uint32_t t = 0; t < g.n_tables; t++) {
            assert_int_equal(g.rows->tables[t].n_unique, e.rows->tables[t].n_unique);
            assert_memory_equal(g.rows->tables[t].keys, e.rows->tables[t].keys,
                                g.rows->tables[t].n_unique * sizeof(uint64_t));
        }
        fr_store_slice(g.store, round, (int64_t)round);
        fr_store_slice(e.store, round, (int64_t)round);
        if (round % 7 == 0)
            assert_same_cut(g.store, e.store);
    }
    struct fr_store_table_stats stats;
    fr_store_stats(g.store, 2, &stats);
    /* the streams had all of these events */
    assert_true(stats.counts.unremembered > 0 && stats.counts.admitted > 0 && stats.counts.rejected > 0);
    free(grouped);
    free(expanded);
    world_close(&g);
    world_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_occurrence_in_a_group_counts_once_per_trained_sample),
        cmocka_unit_test(a_group_without_a_trained_sample_only_looks_up),
        cmocka_unit_test(groups_and_single_samples_leave_the_same_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
