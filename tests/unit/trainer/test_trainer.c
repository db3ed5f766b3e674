/* The owner loop over real store, graph and journal, without Kafka: batches come from a table in
 * memory. */
#include "../../../trainer/trainer_private.h"
#include "trainer_fixture.h"

FR_CASE(a_restart_between_epochs_leaves_the_chain_as_it_was)
{
    char whole_dir[FR_TEST_FOLDER], cut_dir[FR_TEST_FOLDER];
    fr_test_folder(whole_dir);
    fr_test_folder(cut_dir);
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
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
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

    atomic_int wanted = FR_EPOCH_WANTED_WHILE_PAUSED; /* not at an end */
    run_open(&run, dir, 1);
    run.trainer->options.epoch_wanted = &wanted;
    fr_trainer_stop(run.trainer);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_EOF);
    assert_int_equal(drain_stages(&run), 0);
    run_close(&run);

    wanted = FR_EPOCH_WANTED; /* an empty one, then */
    run_open(&run, dir, 1);
    run.trainer->options.epoch_wanted = &wanted;
    fr_trainer_stop(run.trainer);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_EOF);
    assert_int_equal(drain_stages(&run), 1);
    run_close(&run);
    remove_dir(dir);
}

FR_CASE(a_pause_takes_no_batch_until_it_is_lifted)
{
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
    struct run run;
    struct fr_err err = {0};
    run_open(&run, dir, 1);
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, 0)));
    fr_trainer_pause(run.trainer, FR_PAUSE_JOURNAL, "the journal is full");
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, 0);
    struct fr_trainer_status status;
    fr_trainer_get_status(run.trainer, &status);
    assert_string_equal(status.paused, "the journal is full");
    assert_int_equal(status.pause, FR_PAUSE_JOURNAL);
    fr_trainer_pause(run.trainer, FR_PAUSE_NONE, NULL);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, 1);
    run_close(&run);
    remove_dir(dir);
}

/* Rows that are not folded cannot leave memory: reading waits for the fold, which is requested, and
 * continues by itself. */
FR_CASE(without_memory_reading_waits_for_a_fold_and_continues)
{
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
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
    assert_int_equal(status.pause, FR_PAUSE_MEMORY);
    assert_int_equal(fr_durable_fold(run.durable, &err), FR_OK);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, applied + 1);
    assert_true(fr_store_tiered(run.trainer->store));
    run_close(&run);
    remove_dir(dir);
}

FR_CASE(a_stage_that_is_not_back_holds_a_lockstep_cut_and_the_next_batch)
{
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
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

/* ---- live: by the clock ---- */

enum { LIVE_EPOCH_MS = 1000, LIVE_HEARTBEAT_MS = 10000 };

static void live_open(struct run *run, const char *dir)
{
    run_open(run, dir, 1);
    run->conf->ingest.lockstep = false;
    run->conf->epoch_ms = LIVE_EPOCH_MS;
    run->conf->heartbeat_ms = LIVE_HEARTBEAT_MS;
}

static void live_train(struct run *run)
{
    struct fr_err err = {0};
    uint64_t applied = run->applied;
    assert_true(fr_ring_try_push(run->full, make_batch(run->conf, applied)));
    for (int i = 0; i < 3 && run->applied == applied; i++)
        assert_true(fr_trainer_step(run->trainer, &err) >= 0);
    assert_int_equal(run->applied, applied + 1);
}

/* Returns whether an idle trainer cuts an epoch within the time of a heartbeat. */
static bool beats(struct run *run)
{
    struct fr_err err = {0};
    int cuts = 0;
    fr_clock_fake_advance_ms(&run->clock, LIVE_HEARTBEAT_MS);
    for (int i = 0; i < 3; i++) {
        assert_true(fr_trainer_step(run->trainer, &err) >= 0);
        cuts += drain_stages(run);
    }
    return cuts == 1;
}

FR_CASE(no_epoch_without_samples_comes_while_nobody_could_use_it)
{
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
    struct run run;
    live_open(&run, dir);
    atomic_bool checked = false;
    run.trainer->options.heartbeats = &checked;
    live_train(&run);
    assert_true(beats(&run));  /* this one has samples */
    assert_false(beats(&run)); /* the delta topic is not known */
    atomic_store(&checked, true);
    assert_true(beats(&run));
    fr_trainer_pause(run.trainer, FR_PAUSE_JOURNAL, "the journal is full");
    assert_int_equal(fr_trainer_step(run.trainer, &(struct fr_err){0}), FR_AGAIN);
    assert_false(beats(&run));
    atomic_int wanted = FR_EPOCH_WANTED_WHILE_PAUSED; /* what ends the pause needs it */
    run.trainer->options.epoch_wanted = &wanted;
    assert_true(beats(&run));
    run.trainer->history.held = true;
    assert_false(beats(&run));
    run.trainer->history.held = false;
    atomic_store(&wanted, FR_EPOCH_NOT_WANTED);
    assert_false(beats(&run));
    fr_trainer_pause(run.trainer, FR_PAUSE_NONE, NULL);
    assert_int_equal(fr_trainer_step(run.trainer, &(struct fr_err){0}), FR_AGAIN);
    assert_true(beats(&run));
    run.trainer->history.held = true;
    assert_false(beats(&run));
    run.trainer->history.held = false;
    assert_true(beats(&run));
    run_close(&run);
    remove_dir(dir);
}

FR_CASE(a_pause_does_not_keep_what_was_trained_from_its_epoch)
{
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
    struct run run;
    live_open(&run, dir);
    live_train(&run);
    fr_trainer_pause(run.trainer, FR_PAUSE_JOURNAL, "the journal is full");
    assert_true(beats(&run));
    assert_int_equal(fr_trainer_produced_bytes(run.trainer), run.trainer->cuts.bytes);
    assert_false(beats(&run));
    run_close(&run);
    remove_dir(dir);
}

FR_CASE(reading_stops_before_what_is_allowed_even_if_the_loop_looks_late)
{
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
    struct run run;
    struct fr_err err = {0};
    live_open(&run, dir);
    live_train(&run);
    live_train(&run);
    uint64_t produced = fr_trainer_produced_bytes(run.trainer), batch = run.trainer->cuts.batch_bytes;
    assert_true(batch > 0);
    fr_trainer_allow(run.trainer, produced + batch, FR_PAUSE_UNFOLDED, "the disk is slow");
    uint64_t applied = run.applied;
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, applied)));
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, applied);
    struct fr_trainer_status status;
    fr_trainer_get_status(run.trainer, &status);
    assert_string_equal(status.paused, "the disk is slow");
    assert_int_equal(status.pause, FR_PAUSE_UNFOLDED);
    fr_trainer_allow(run.trainer, produced + batch + 1, FR_PAUSE_UNFOLDED, "the disk is slow");
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, applied + 1);
    fr_trainer_get_status(run.trainer, &status);
    assert_int_equal(status.pause, FR_PAUSE_NONE);
    run_close(&run);
    remove_dir(dir);
}

/* With an empty journal 2 x unfolded_max bytes are allowed; a single batch may be larger. */
FR_CASE(a_limit_that_is_smaller_than_a_batch_still_lets_one_come)
{
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
    struct run run;
    live_open(&run, dir);
    live_train(&run);
    run.conf->unfolded_max = run.trainer->cuts.batch_bytes / 4;
    fr_trainer_allow(run.trainer, fr_trainer_produced_bytes(run.trainer) + 2 * run.conf->unfolded_max,
                     FR_PAUSE_UNFOLDED, "");
    live_train(&run);
    run_close(&run);
    remove_dir(dir);
}

/* The first batch of an epoch brings more: the sections, and what slices changed meanwhile. */
FR_CASE(at_a_limit_between_epochs_a_fold_is_asked_for)
{
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
    struct run run;
    struct fr_err err = {0};
    live_open(&run, dir);
    atomic_bool wanted = false;
    run.trainer->options.fold_wanted = &wanted;
    live_train(&run);
    assert_true(beats(&run));
    uint64_t next = run.trainer->cuts.batch_bytes + run.trainer->cuts.section_bytes;
    uint64_t produced = fr_trainer_produced_bytes(run.trainer), applied = run.applied;
    fr_trainer_allow(run.trainer, produced + next, FR_PAUSE_JOURNAL, "the topic is away");
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, applied)));
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, applied);
    assert_true(atomic_load(&wanted));
    fr_trainer_allow(run.trainer, produced + next + 1, FR_PAUSE_JOURNAL, "the topic is away");
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, applied + 1);
    run_close(&run);
    remove_dir(dir);
}

FR_CASE(a_cut_that_is_late_holds_the_next_batch_and_says_why)
{
    char dir[FR_TEST_FOLDER];
    fr_test_folder(dir);
    struct run run;
    struct fr_err err = {0};
    live_open(&run, dir);
    const char *_Atomic waits_for = "the dead-letter topic to acknowledge";
    run.trainer->options.waits_for = &waits_for;
    for (int epoch = 0; epoch < 2; epoch++) { /* both stages are on their way */
        live_train(&run);
        fr_clock_fake_advance_ms(&run.clock, LIVE_EPOCH_MS);
        assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    }
    assert_int_equal(run.trainer->epoch, 2);
    live_train(&run);
    fr_clock_fake_advance_ms(&run.clock, LIVE_EPOCH_MS);
    live_train(&run); /* now the cut is due */
    fr_clock_fake_advance_ms(&run.clock, FR_LATE_MS - 1);
    live_train(&run);
    fr_clock_fake_advance_ms(&run.clock, 1);
    uint64_t applied = run.applied;
    assert_true(fr_ring_try_push(run.full, make_batch(run.conf, applied)));
    for (int i = 0; i < 3; i++)
        assert_int_equal(fr_trainer_step(run.trainer, &err), FR_AGAIN);
    assert_int_equal(run.applied, applied);
    struct fr_trainer_status status;
    fr_trainer_get_status(run.trainer, &status);
    assert_string_equal(status.paused, "epoch 3 cannot be cut: epochs before it are not durable and wait for the "
                                       "dead-letter topic to acknowledge");
    assert_int_equal(status.pause, FR_PAUSE_CUT);
    assert_int_equal(drain_stages(&run), 2);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.trainer->epoch, 3);
    assert_int_equal(fr_trainer_step(run.trainer, &err), FR_OK);
    assert_int_equal(run.applied, applied + 1);
    fr_trainer_get_status(run.trainer, &status);
    assert_string_equal(status.paused, "");
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
        cmocka_unit_test(without_memory_reading_waits_for_a_fold_and_continues),
        cmocka_unit_test(a_stage_that_is_not_back_holds_a_lockstep_cut_and_the_next_batch),
        cmocka_unit_test(no_epoch_without_samples_comes_while_nobody_could_use_it),
        cmocka_unit_test(a_pause_does_not_keep_what_was_trained_from_its_epoch),
        cmocka_unit_test(reading_stops_before_what_is_allowed_even_if_the_loop_looks_late),
        cmocka_unit_test(a_limit_that_is_smaller_than_a_batch_still_lets_one_come),
        cmocka_unit_test(at_a_limit_between_epochs_a_fold_is_asked_for),
        cmocka_unit_test(a_cut_that_is_late_holds_the_next_batch_and_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
