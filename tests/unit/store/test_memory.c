/* The memory limit counts the memory that an epoch takes. */
#include "../../../store/tables.h"
#include "base/resident.h"
#include "store_fixture.h"

enum { PENDING_KEYS = 400000, EPOCH_FACTOR = 3 };

/* The epoch with the smallest images: keys seen once, of 12 bytes each. With two full stages both
 * cuts take at most EPOCH_FACTOR times what the limit counts for one. */
FR_CASE(an_epoch_of_pending_keys_takes_the_memory_that_is_counted)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* the process size includes memory of the sanitizer */
#endif
    struct world w = {0};
    struct fr_stage stages[2];
    uint64_t random = test_seed(5), counted = 0;
    world_simple(&w, 1u << 30, 0);
    uint64_t before = fr_resident_bytes() - fr_store_kept_bytes(w.store);
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int i = 0; i < PENDING_KEYS; i++) {
            uint64_t hash = test_random(&random);
            struct fr_shard *shard = &w.store->tables[0].shards[fr_shard_of(hash)];
            uint32_t number = fr_entry_make_pending(shard, hash, FR_NO_ENTRY);
            fr_entry_mark_dirty(shard, fr_shard_entry(shard, number), FR_PENDING_IMAGE_SIZE);
        }
        counted = fr_store_dirty_bytes(w.store);
        fr_stage_init(&stages[epoch]);
        stages[epoch].epoch = (uint64_t)epoch + 1;
        fr_store_cut(w.store, &stages[epoch]);
        assert_int_equal(stages[epoch].n_images, PENDING_KEYS);
        assert_int_equal(fr_store_dirty_bytes(w.store), 0);
    }
    uint64_t after = fr_resident_bytes() - fr_store_kept_bytes(w.store);
    uint64_t taken = after > before ? after - before : 0;
    print_message("%llu bytes are counted, %llu are taken\n", (unsigned long long)counted, (unsigned long long)taken);
    assert_true(taken <= EPOCH_FACTOR * counted);
    assert_true(counted <= EPOCH_FACTOR * taken); /* nor is it counted far too high */
    fr_stage_release(&stages[0]);
    fr_stage_release(&stages[1]);
    world_close(&w);
}

/* A removed row takes the memory of its tombstone, whatever its size was. */
FR_CASE(dead_keys_are_counted_too)
{
    struct world w = {0};
    struct fr_stage stage;
    world_simple(&w, 1, 0);
    fr_stage_init(&stage);
    stage.epoch = 1;
    plan_key_times(&w, 1, 1, 0);
    assert_int_equal(fr_store_dirty_bytes(w.store), FR_DIRTY_KEY_BYTES + w.store->tables[0].image_size);
    fr_store_cut(w.store, &stage);
    uint64_t hash = fr_order_hash(&w.store->order, 1);
    struct fr_shard *shard = &w.store->tables[0].shards[fr_shard_of(hash)];
    fr_entry_remove(shard, fr_shard_find(shard, hash), FR_ABSENT_IDLE);
    assert_int_equal(fr_store_dirty_bytes(w.store), FR_DIRTY_KEY_BYTES);
    fr_stage_release(&stage);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_of_pending_keys_takes_the_memory_that_is_counted),
        cmocka_unit_test(dead_keys_are_counted_too),
    };
    return cmocka_run_group_tests_name("store memory", tests, NULL, NULL);
}
