/* Undo: a plan taken back leaves the store as it was, and the next plan gives what it would have
 * given. */
#include "store_fixture.h"
#include "store_image.h"

static void world_of_everything(struct world *w)
{
    *w = (struct world){0};
    world_add_table(w, 1, 0, 30);
    world_add_table(w, 3, 15, 25);
    world_add_table(w, 6, 0, 0);
    w->tables[2].pending_max = 40;
    world_add_slot(w, 0, true, true);
    world_add_slot(w, 1, true, true);
    world_add_slot(w, 2, true, true);
    world_add_slot(w, 1, false, true);
    world_add_slot(w, 2, true, false);
    world_open(w, 2);
}

struct undoing { /* a store that plans and undoes beside one that never saw those batches */
    struct world w, never;
    struct test_batch *grouped, *expanded, *second;
    struct fr_rows *rows; /* of a second plan */
    struct fr_buffer before, between, sliced, after;
    uint64_t random;
};

static void undoing_open(struct undoing *u, uint64_t random)
{
    *u = (struct undoing){.random = random};
    world_of_everything(&u->w);
    world_of_everything(&u->never);
    u->rows = fr_store_rows_new(u->w.store);
    u->grouped = fr_alloc(1, sizeof(*u->grouped));
    u->expanded = fr_alloc(1, sizeof(*u->expanded));
    u->second = fr_alloc(1, sizeof(*u->second));
}

static void undoing_close(struct undoing *u)
{
    free(u->grouped);
    free(u->expanded);
    free(u->second);
    fr_buffer_release(&u->before);
    fr_buffer_release(&u->between);
    fr_buffer_release(&u->sliced);
    fr_store_rows_free(u->rows);
    fr_buffer_release(&u->after);
    world_close(&u->w);
    world_close(&u->never);
}

static void assert_same_bytes(const struct fr_buffer *x, const struct fr_buffer *y)
{
    assert_int_equal(x->size, y->size);
    assert_memory_equal(x->data, y->data, x->size);
}

static void plan_and_undo(struct undoing *u, const struct test_batch *b, int64_t watermark_ms)
{
    store_image(u->w.store, &u->before);
    fr_store_plan(u->w.store, &b->batch, watermark_ms, u->w.rows);
    fr_store_undo(u->w.store);
    store_image(u->w.store, &u->after);
    assert_same_bytes(&u->before, &u->after);
}

/* Plans two batches in a row, the second while the first can still be refused, and undoes them;
 * then the first one alone. Then the same with the slices of `round` and the next round between
 * them. */
static void plan_and_undo_two(struct undoing *u, const struct test_batch *a, const struct test_batch *b, uint64_t round,
                              bool looks)
{
    int64_t watermark_ms = (int64_t)round;
    struct fr_store *store = u->w.store;
    store_image(store, &u->before);
    fr_store_plan(store, &a->batch, watermark_ms, u->w.rows);
    store_image(store, &u->between);
    if (looks)
        fr_store_look_pooled(store, &b->batch);
    fr_store_plan_next(store, &b->batch, watermark_ms + 3, u->rows);
    fr_store_undo(store);
    store_image(store, &u->after);
    assert_same_bytes(&u->between, &u->after);
    fr_store_slices_beside(store, round, round + 1, watermark_ms + 40);
    store_image(store, &u->sliced);
    fr_store_plan_next(store, &b->batch, watermark_ms + 43, u->rows);
    fr_store_undo(store);
    store_image(store, &u->after);
    assert_same_bytes(&u->sliced, &u->after);
    fr_store_undo_slices(store);
    store_image(store, &u->after);
    assert_same_bytes(&u->between, &u->after);
    fr_store_plan_next(store, &b->batch, watermark_ms + 3, u->rows);
    fr_store_undo(store);
    fr_store_undo(store);
    store_image(store, &u->after);
    assert_same_bytes(&u->before, &u->after);
}

static void plan_both(struct undoing *u, const struct test_batch *b, int64_t watermark_ms)
{
    fr_store_plan(u->w.store, &b->batch, watermark_ms, u->w.rows);
    fr_store_plan(u->never.store, &b->batch, watermark_ms, u->never.rows);
    for (uint32_t t = 0; t < u->w.n_tables; t++) {
        const struct fr_table_rows *a = &u->w.rows->tables[t], *n = &u->never.rows->tables[t];
        assert_int_equal(a->n_unique, n->n_unique);
        for (uint32_t k = 0; k < a->n_unique; k++) {
            assert_int_equal(a->keys[k], n->keys[k]);
            assert_int_equal(a->rows[k] != NULL, n->rows[k] != NULL);
        }
    }
    step_rows(&u->w, b);
    step_rows(&u->never, b);
}

FR_CASE(plan_and_undo_change_nothing_at_any_moment)
{
    struct undoing u;
    uint64_t seed = test_seed(31);
    print_message("FR_TEST_SEED=%llu\n", (unsigned long long)seed);
    undoing_open(&u, seed);
    for (uint64_t round = 1; round <= 150; round++) {
        int64_t watermark_ms = (int64_t)round;
        random_groups(u.grouped, u.expanded, &u.w, &u.random);
        plan_and_undo(&u, u.grouped, watermark_ms + 5);
        if (round % 3 == 0) /* the same batch again, first undone and then kept */
            plan_and_undo(&u, u.expanded, watermark_ms);
        else
            random_groups(u.grouped, u.expanded, &u.w, &u.random);
        plan_both(&u, u.expanded, watermark_ms);
        assert_same_store(u.w.store, u.never.store);
        fr_store_slice(u.w.store, round, watermark_ms);
        fr_store_slice(u.never.store, round, watermark_ms);
        if (round % 5 == 0)
            assert_same_cut(u.w.store, u.never.store);
        assert_same_store(u.w.store, u.never.store);
    }
    struct fr_store_table_stats stats[2];
    fr_store_stats(u.w.store, 1, &stats[0]);
    fr_store_stats(u.w.store, 2, &stats[1]);
    assert_true(stats[0].counts.forgotten > 0 && stats[0].counts.expired[FR_ABSENT_IDLE] > 0 &&
                stats[1].counts.unremembered > 0);
    undoing_close(&u);
}

FR_CASE(two_plans_in_a_row_are_taken_back_the_later_one_first)
{
    struct undoing u;
    uint64_t seed = test_seed(32);
    uint32_t shrunk = 0;
    print_message("FR_TEST_SEED=%llu\n", (unsigned long long)seed);
    undoing_open(&u, seed);
    for (uint64_t round = 1; round <= 100; round++) {
        int64_t watermark_ms = (int64_t)round;
        random_groups(u.second, u.expanded, &u.w, &u.random);
        random_groups(u.grouped, u.expanded, &u.w, &u.random);
        plan_and_undo_two(&u, u.expanded, u.second, round, round % 2 == 0);
        shrunk += u.sliced.size < u.between.size;
        plan_both(&u, u.expanded, watermark_ms);
        assert_same_store(u.w.store, u.never.store);
        fr_store_slices_beside(u.w.store, round, round, watermark_ms);
        fr_store_slice(u.never.store, round, watermark_ms);
        assert_same_store(u.w.store, u.never.store);
        if (round % 5 == 0)
            assert_same_cut(u.w.store, u.never.store);
    }
    assert_true(shrunk > 20); /* slices removed something */
    undoing_close(&u);
}

/* A second plan that is kept has the effect that it would have had alone. */
FR_CASE(a_plan_made_beside_a_step_gives_what_one_after_it_gives)
{
    struct undoing u;
    undoing_open(&u, 33);
    for (uint64_t round = 1; round <= 100; round++) {
        random_groups(u.grouped, u.expanded, &u.w, &u.random);
        fr_store_plan_next(u.w.store, &u.expanded->batch, (int64_t)round, u.w.rows);
        fr_store_plan(u.never.store, &u.expanded->batch, (int64_t)round, u.never.rows);
        step_rows(&u.w, u.expanded);
        step_rows(&u.never, u.expanded);
        assert_same_store(u.w.store, u.never.store);
        bool due = fr_store_slice_due(u.never.store, round);
        store_image(u.never.store, &u.before);
        fr_store_slice(u.w.store, round, (int64_t)round);
        fr_store_slice(u.never.store, round, (int64_t)round);
        store_image(u.never.store, &u.after);
        if (!due)
            assert_same_bytes(&u.before, &u.after);
        assert_same_cut(u.w.store, u.never.store);
    }
    undoing_close(&u);
}

FR_CASE(an_admission_taken_back_is_pending_with_its_old_count)
{
    struct world w;
    world_simple(&w, 3, 0);
    plan_key_times(&w, 9, 2, 5);
    plan_key_times(&w, 9, 1, 6);
    assert_true(is_live(&w, 0, 9));
    fr_store_undo(w.store);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 9, &view), FR_OK);
    assert_int_equal(view.kind, FR_IMAGE_PENDING);
    assert_int_equal(view.count, 2);
    assert_int_equal(view.seen_ms, 5);
    struct fr_store_table_stats stats;
    fr_store_stats(w.store, 0, &stats);
    assert_int_equal(stats.counts.admitted, 0);
    assert_int_equal(stats.counts.rows, 0);
    plan_key_times(&w, 9, 1, 7);
    assert_true(is_live(&w, 0, 9));
    world_close(&w);
}

FR_CASE(a_key_of_the_last_epoch_is_clean_again)
{
    struct world w;
    world_simple(&w, 1, 0);
    plan_key_times(&w, 9, 1, 5);
    struct fr_stage stage;
    fr_stage_init(&stage);
    fr_store_cut(w.store, &stage);
    plan_key_times(&w, 9, 1, 6);
    plan_key_times(&w, 9, 4, 7);
    fr_store_undo(w.store);
    assert_true(fr_store_dirty_bytes(w.store) > 0); /* by the first of the two */
    fr_stage_clear(&stage);
    fr_store_cut(w.store, &stage);
    plan_key_times(&w, 9, 4, 7);
    fr_store_undo(w.store);
    assert_int_equal(fr_store_dirty_bytes(w.store), 0);
    fr_stage_clear(&stage);
    fr_store_cut(w.store, &stage);
    assert_int_equal(stage.n_images, 0);
    fr_stage_release(&stage);
    world_close(&w);
}

/* Twelve new keys for each shard: batches of one shape, so that only what undo leaves behind can
 * add up. */
static void even_batch(struct test_batch *b, const struct world *w, uint64_t *random)
{
    batch_begin(b, w);
    batch_sample(b, FR_ROLE_TRAIN, 1.0f);
    for (uint64_t i = 0; i < 12 * (uint64_t)FR_SHARDS; i++) {
        uint64_t hash = i % FR_SHARDS << (64 - FR_SHARD_BITS) | test_random(random) >> FR_SHARD_BITS;
        batch_id(b, 0, fr_order_key(&w->store->order, hash));
    }
}

FR_CASE(quarantined_batches_without_end_take_no_more_memory)
{
    struct world w;
    world_simple(&w, 1, 0);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    uint64_t random = 77;
    for (int64_t round = 0; round < 53; round++) {
        even_batch(b, &w, &random);
        fr_store_plan(w.store, &b->batch, round, w.rows);
    }
    uint64_t bytes = 0;
    for (int64_t round = 0; round < 2000; round++) {
        even_batch(b, &w, &random);
        fr_store_plan(w.store, &b->batch, 61, w.rows);
        fr_store_undo(w.store);
        if (round < 200) /* buffers that are almost full grow once */
            bytes = fr_store_bytes(w.store);
        assert_true(fr_store_bytes(w.store) <= bytes);
    }
    free(b);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_and_undo_change_nothing_at_any_moment),
        cmocka_unit_test(two_plans_in_a_row_are_taken_back_the_later_one_first),
        cmocka_unit_test(a_plan_made_beside_a_step_gives_what_one_after_it_gives),
        cmocka_unit_test(an_admission_taken_back_is_pending_with_its_old_count),
        cmocka_unit_test(a_key_of_the_last_epoch_is_clean_again),
        cmocka_unit_test(quarantined_batches_without_end_take_no_more_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
