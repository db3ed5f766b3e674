/* The owner loop over real store, graph and journal, without Kafka: batches come from a table in
 * memory. */
#include "../../../trainer/trainer_private.h"
#include "trainer_fixture.h"

FR_CASE(a_restart_between_epochs_leaves_the_chain_as_it_was)
{
    char whole_dir[32], cut_dir[32];
    make_dir(whole_dir);
    make_dir(cut_dir);
    struct run run;
    run_open(&run, whole_dir, 1);
    feed_until(&run, 48);
    struct fr_sha256 whole = chain_digest(&run);
    run_close(&run);
    /* 10, 29, 48: the first two in mid-epoch */
    for (uint64_t end = 10; end <= 48; end += end < 48 ? 19 : 1) {
        run_open(&run, cut_dir, 2);
        struct fr_trainer_status status;
        fr_trainer_get_status(run.trainer, &status);
        assert_int_equal(status.history.batches, run.applied);
        assert_int_equal(run.applied % EPOCH_BATCHES, 0);
        feed_until(&run, end);
        struct fr_sha256 digest = chain_digest(&run);
        if (end == 48)
            assert_memory_equal(&digest, &whole, sizeof(whole));
        run_close(&run);
    }
    remove_dir(whole_dir);
    remove_dir(cut_dir);
}

FR_CASE(a_drain_writes_one_last_epoch_and_a_restart_none)
{
    char dir[32];
    make_dir(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    feed_until(&run, 6);
    fr_trainer_stop(run.trainer);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_EOF);
    assert_int_equal(drain_stages(&run), 1);
    run_close(&run);

    run_open(&run, dir, 1);
    struct fr_trainer_status status;
    fr_trainer_get_status(run.trainer, &status);
    assert_int_equal(status.history.batches, 6);
    assert_int_equal(status.epoch, 2);
    fr_trainer_stop(run.trainer);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_EOF);
    assert_int_equal(drain_stages(&run), 0);
    run_close(&run);
    remove_dir(dir);
}

FR_CASE(a_pause_takes_no_batch_until_it_is_lifted)
{
    char dir[32];
    make_dir(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, 0)));
    fr_trainer_pause(run.trainer, "journal_max: full");
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, 0);
    struct fr_trainer_status status;
    fr_trainer_get_status(run.trainer, &status);
    assert_string_equal(status.paused, "journal_max: full");
    fr_trainer_pause(run.trainer, NULL);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, 1);
    run_close(&run);
    remove_dir(dir);
}

/* Rows that are not folded cannot leave: reading waits for the fold, which is asked for, and goes
 * on by itself. */
FR_CASE(without_memory_reading_waits_for_a_fold_and_goes_on)
{
    char dir[32];
    make_dir(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    atomic_bool wanted = false;
    run.trainer->options.fold_wanted = &wanted;
    while (run.trainer->epoch == 0 || fr_store_dirty_bytes(run.trainer->store) > 0)
        feed_until(&run, run.applied + 1);
    uint64_t applied = run.applied;
    fr_store_limit(run.trainer->store, 1);
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, applied)));
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, applied);
    assert_true(atomic_load(&wanted));
    struct fr_trainer_status status;
    fr_trainer_get_status(run.trainer, &status);
    assert_non_null(strstr(status.paused, "memory_limit"));
    assert_int_equal(fr_durable_fold(run.durable, &err), FR_OK);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, applied + 1);
    assert_true(fr_store_tiered(run.trainer->store));
    run_close(&run);
    remove_dir(dir);
}

FR_CASE(a_stage_that_is_not_back_holds_a_lockstep_cut_and_the_next_batch)
{
    char dir[32];
    make_dir(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    void *first, *second;
    assert_int_equal(fr_ring_pop(run.free_stages, &first, 0), FR_OK);
    assert_int_equal(fr_ring_pop(run.free_stages, &second, 0), FR_OK);
    for (uint64_t i = 0; i < EPOCH_BATCHES; i++) {
        assert_true(fr_ring_try_push(run.full, make_batch(run.conf, i)));
        assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    }
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, EPOCH_BATCHES)));
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, EPOCH_BATCHES);
    assert_true(fr_ring_try_push(run.free_stages, first));
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK); /* the cut */
    assert_int_equal(run.applied, EPOCH_BATCHES);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, EPOCH_BATCHES + 1);
    drain_stages(&run);
    run_close(&run);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restart_between_epochs_leaves_the_chain_as_it_was),
        cmocka_unit_test(a_drain_writes_one_last_epoch_and_a_restart_none),
        cmocka_unit_test(a_pause_takes_no_batch_until_it_is_lifted),
        cmocka_unit_test(without_memory_reading_waits_for_a_fold_and_goes_on),
        cmocka_unit_test(a_stage_that_is_not_back_holds_a_lockstep_cut_and_the_next_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
