/* Expiry slices: what goes, when its turn comes, how much is looked at; forgetting and limits of
 * pending keys. */
#include "store_fixture.h"

#include "../../../store/tables.h"

static struct fr_store_counts counts_of(const struct world *w)
{
    struct fr_store_table_stats stats;
    fr_store_stats(w->store, 0, &stats);
    return stats.counts;
}

FR_CASE(a_row_idle_longer_goes_with_its_reason_and_others_stay)
{
    struct world w;
    world_simple(&w, 1, 100);
    plan_key_times(&w, 1, 1, 1000);
    plan_key_times(&w, 2, 1, 1050);
    fr_store_slice(w.store, 1, 1100);
    assert_true(is_live(&w, 0, 1) && is_live(&w, 0, 2));
    fr_store_slice(w.store, 2, 1101);
    assert_false(is_live(&w, 0, 1));
    assert_true(is_live(&w, 0, 2));
    assert_int_equal(counts_of(&w).expired[FR_ABSENT_IDLE], 1);
    assert_int_equal(counts_of(&w).rows, 1);
    world_close(&w);
}

FR_CASE(a_table_without_expiry_keeps_its_rows)
{
    struct world w;
    world_simple(&w, 1, 0);
    plan_key_times(&w, 1, 1, 0);
    fr_store_slice(w.store, 1, INT64_MAX);
    assert_true(is_live(&w, 0, 1));
    world_close(&w);
}

FR_CASE(a_slice_runs_only_on_the_tables_turn)
{
    struct world w = {0};
    world_add_table(&w, 1, 0, 100);
    w.tables[0].expire_every = 4;
    world_add_slot(&w, 0, true, true);
    world_open(&w, 1);
    plan_key_times(&w, 1, 1, 0);
    for (uint64_t batch = 5; batch < 8; batch++)
        fr_store_slice(w.store, batch, 1000000);
    assert_true(is_live(&w, 0, 1));
    fr_store_slice(w.store, 8, 1000000);
    assert_false(is_live(&w, 0, 1));
    world_close(&w);
}

FR_CASE(an_expired_key_returns_with_initial_weights_and_a_count_of_zero)
{
    struct world w;
    world_simple(&w, 2, 100);
    plan_key_times(&w, 9, 2, 0);
    float first[TEST_ROW_FLOATS];
    memcpy(first, w.rows->tables[0].rows[0], sizeof(first));
    w.rows->tables[0].rows[0][0] = 123.0f;
    fr_store_slice(w.store, 1, 1000);
    plan_key_times(&w, 9, 1, 1000);
    struct fr_store_view view;
    assert_int_equal(fr_store_find(w.store, 0, 9, &view), FR_OK);
    assert_true(view.kind == FR_IMAGE_PENDING && view.count == 1);
    plan_key_times(&w, 9, 1, 1000);
    assert_int_equal(fr_store_find(w.store, 0, 9, &view), FR_OK);
    assert_int_equal(view.kind, FR_IMAGE_ROW);
    assert_memory_equal(view.row, first, sizeof(first));
    assert_true(view.show == 1.0f);
    world_close(&w);
}

/* n rows that are all idle; a slice is about 64 of them. */
static void world_sliced(struct world *w, uint32_t n)
{
    *w = (struct world){0};
    world_add_table(w, 1, 0, 100);
    w->tables[0].expire_slice_rows = 64;
    world_add_slot(w, 0, true, true);
    world_open(w, 2);
    for (uint32_t i = 0; i < n; i++)
        plan_key_times(w, test_key(i), 1, 0);
}

FR_CASE(slices_take_turns_over_the_whole_table)
{
    enum { ROWS = 4000, SLICES = 64 }; /* 4000 / 64 = 62.5, rounded up to a power of two */
    struct world w;
    world_sliced(&w, ROWS);
    /* Nothing expires at this watermark, so that the division into slices stays; then one round
     * takes everything. */
    fr_store_slice(w.store, SLICES, 100);
    assert_int_equal(counts_of(&w).rows, ROWS);
    uint64_t rows = ROWS;
    uint64_t batch = 2 * SLICES;
    for (; rows > ROWS / 2; batch++) { /* from half on slices get larger */
        fr_store_slice(w.store, batch, 1000);
        uint64_t left = counts_of(&w).rows;
        assert_true(rows - left <= 3 * 64);
        rows = left;
    }
    assert_true(batch >= 2 * SLICES + 16);
    for (; batch < 4 * SLICES; batch++)
        fr_store_slice(w.store, batch, 1000);
    assert_int_equal(counts_of(&w).rows, 0);
    assert_int_equal(counts_of(&w).expired[FR_ABSENT_IDLE], ROWS);
    world_close(&w);
}

/* Work that falls due over many batches is not done in one batch. */
FR_CASE(rows_of_one_turn_in_many_are_looked_at_in_slices_at_every_turn)
{
    enum { ROWS = 4000, EVERY = 16 };
    struct world w;
    world_sliced(&w, ROWS);
    w.store->tables[0].spec.expire_every = EVERY;
    w.store->tables[0].spec.expire_slice_rows = 64 * EVERY;
    fr_store_slice(w.store, EVERY, 100);
    uint64_t rows = ROWS, before = ROWS;
    for (uint64_t batch = EVERY + 1; rows > ROWS / 2; batch++, before = rows) {
        fr_store_slice(w.store, batch, 1000);
        rows = counts_of(&w).rows;
        assert_true(rows < before && before - rows <= 3 * 64);
    }
    /* at once while nothing is trained */
    assert_true(fr_store_slice_idle(w.store, 1000));
    assert_true(before - counts_of(&w).rows > 8 * 64);
    world_close(&w);
}

/* Re-plans the first n keys now, then lets two slices take what is idle. */
static uint32_t slice_bits_after_shrinking_to(struct world *w, uint32_t n, int64_t watermark_ms)
{
    for (uint32_t i = 0; i < n; i++)
        plan_key_times(w, test_key(i), 1, watermark_ms);
    for (uint64_t batch = 0; batch < 3; batch++)
        fr_store_slice(w->store, batch, watermark_ms);
    assert_int_equal(counts_of(w).rows, n);
    return w->store->tables[0].slice_bits;
}

FR_CASE(the_division_into_slices_changes_back_only_at_half)
{
    struct world w;
    world_sliced(&w, 64);
    fr_store_slice(w.store, 0, 0);
    assert_int_equal(w.store->tables[0].slice_bits, 0);
    plan_key_times(&w, test_key(64), 1, 0);
    fr_store_slice(w.store, 0, 0);
    assert_int_equal(w.store->tables[0].slice_bits, 1);
    assert_int_equal(slice_bits_after_shrinking_to(&w, 33, 1000), 1);
    assert_int_equal(slice_bits_after_shrinking_to(&w, 32, 2000), 0);
    world_close(&w);
}

FR_CASE(what_a_slice_takes_depends_on_batch_number_not_on_order_of_arrival)
{
    enum { ROWS = 1500 };
    struct world a, b;
    world_sliced(&a, ROWS);
    world_sliced(&b, 0);
    for (uint32_t i = ROWS; i > 0; i--)
        plan_key_times(&b, test_key(i - 1), 1, 0);
    for (uint64_t batch = 77; batch < 90; batch++) {
        fr_store_slice(a.store, batch, 1000);
        fr_store_slice(b.store, batch, 1000);
        for (uint32_t i = 0; i < ROWS; i++)
            assert_int_equal(is_live(&a, 0, test_key(i)), is_live(&b, 0, test_key(i)));
    }
    assert_true(counts_of(&a).rows < ROWS && counts_of(&a).rows > 0);
    world_close(&a);
    world_close(&b);
}

/* The exact gate must not keep every id that was seen once for ever. */
FR_CASE(once_seen_keys_are_forgotten_and_counted)
{
    struct world w = {0};
    world_add_table(&w, 2, 50, 0);
    world_add_slot(&w, 0, true, true);
    world_open(&w, 1);
    for (uint32_t i = 0; i < 100; i++)
        plan_key_times(&w, test_key(i), 1, i);
    assert_int_equal(counts_of(&w).pending, 100);
    fr_store_slice(w.store, 1, 100);
    assert_int_equal(counts_of(&w).pending, 50); /* seen at 50..99 */
    assert_int_equal(counts_of(&w).forgotten, 50);
    fr_store_slice(w.store, 2, 1000);
    assert_int_equal(counts_of(&w).pending, 0);
    /* A forgotten key starts again. */
    plan_key_times(&w, test_key(0), 1, 1000);
    assert_false(is_live(&w, 0, test_key(0)));
    plan_key_times(&w, test_key(0), 1, 1000);
    assert_true(is_live(&w, 0, test_key(0)));
    world_close(&w);
}

/* A table may get another gate; the counts of the previous gate are then not used. */
FR_CASE(counts_of_a_gate_that_is_gone_are_forgotten)
{
    struct fr_image image = {.key = 7, .size = FR_PENDING_IMAGE_SIZE, .kind = FR_IMAGE_PENDING, .epoch = 1};
    uint8_t bytes[FR_PENDING_IMAGE_SIZE] = {[8] = 5}; /* seen at 0, counted 5 times */
    image.bytes = bytes;
    const struct fr_gate_sketch sketch = {.min = 3, .bytes = 1 << 20};
    const struct fr_gate_probability coins = {.probability = 1e-9f};
    const struct fr_gate_policy gates[] = {fr_gate_sketch_policy(&sketch), fr_gate_probability_policy(&coins)};
    for (size_t i = 0; i < FR_ARRAY_LEN(gates); i++) {
        struct world w = {0};
        world_add_table(&w, 2, 50, 0);
        w.tables[0].gate = gates[i];
        world_add_slot(&w, 0, true, true);
        world_open(&w, 1);
        assert_int_equal(fr_store_restore_image(w.store, &image), FR_OK);
        plan_key_times(&w, 7, 1, 0);
        assert_false(is_live(&w, 0, 7)); /* the key begins again */
        assert_int_equal(counts_of(&w).pending, 1);
        fr_store_slice(w.store, 1, 0);
        assert_int_equal(counts_of(&w).pending, 0);
        assert_int_equal(counts_of(&w).forgotten, 1);
        world_close(&w);
    }
}

FR_CASE(pending_keys_are_bounded_and_keys_beyond_are_counted_not_remembered)
{
    struct world w = {0};
    world_add_table(&w, 2, 50, 0);
    w.tables[0].pending_max = 40;
    world_add_slot(&w, 0, true, true);
    world_open(&w, 2);
    for (uint32_t i = 0; i < 1000; i++)
        plan_key_times(&w, test_key(i), 1, 0);
    struct fr_store_counts counts = counts_of(&w);
    assert_int_equal(counts.pending, 40); /* 1000 keys fill every shard's share */
    assert_int_equal(counts.unremembered, 960);
    assert_int_equal(counts.rejected, 1000);
    /* A key that passes the gate within one batch needs no memory of the past. */
    plan_key_times(&w, test_key(5000), 2, 0);
    assert_true(is_live(&w, 0, test_key(5000)));
    /* Forgetting makes room. */
    fr_store_slice(w.store, 1, 1000);
    for (uint32_t i = 1000; i < 2000; i++)
        plan_key_times(&w, test_key(i), 1, 1000);
    assert_int_equal(counts_of(&w).pending, 40);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_idle_longer_goes_with_its_reason_and_others_stay),
        cmocka_unit_test(a_table_without_expiry_keeps_its_rows),
        cmocka_unit_test(a_slice_runs_only_on_the_tables_turn),
        cmocka_unit_test(an_expired_key_returns_with_initial_weights_and_a_count_of_zero),
        cmocka_unit_test(slices_take_turns_over_the_whole_table),
        cmocka_unit_test(rows_of_one_turn_in_many_are_looked_at_in_slices_at_every_turn),
        cmocka_unit_test(the_division_into_slices_changes_back_only_at_half),
        cmocka_unit_test(what_a_slice_takes_depends_on_batch_number_not_on_order_of_arrival),
        cmocka_unit_test(once_seen_keys_are_forgotten_and_counted),
        cmocka_unit_test(counts_of_a_gate_that_is_gone_are_forgotten),
        cmocka_unit_test(pending_keys_are_bounded_and_keys_beyond_are_counted_not_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
