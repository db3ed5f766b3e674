/* Limits, folds and the disk, by a fake clock: why reading pauses and when it continues, also while
 * a fold runs. */
#include "world.h"

#include <fcntl.h>
#include <unistd.h>

#include "exchange/exchange.h"

FR_CASE(what_is_acknowledged_is_passed_on_once)
{
    w->publisher.acked = 4;
    w->durable.epoch = 5;
    for (int i = 0; i < 3; i++)
        expect(upkeep, FR_AGAIN);
    assert_int_equal(w->acknowledgements, 1);
    assert_int_equal(w->acknowledged, 4);
}

/* The journals of all ranks are needed for the digests of what any of them has to send. */
FR_CASE(of_several_ranks_only_what_all_have_acknowledged_is_passed_on)
{
    struct fr_exchange *self = fr_exchange_self_new();
    w->service.loops.upkeep.exchange = self;
    w->publisher.acked = w->durable.epoch = 6;
    expect(upkeep, FR_AGAIN);
    assert_int_equal(w->acknowledgements, 0);
    w->all_acknowledged = 4;
    expect(upkeep, FR_AGAIN);
    assert_int_equal(w->acknowledged, 4);
    w->publisher.acked = 3; /* sending begins again */
    expect(upkeep, FR_AGAIN);
    assert_int_equal(w->acknowledged, 3);
    fr_exchange_free(self);
}

FR_CASE(what_is_acknowledged_last_is_passed_on_before_the_end)
{
    w->publisher.acked = w->durable.epoch = 4;
    expect(upkeep, FR_AGAIN);
    w->publisher.acked = w->durable.epoch = 5;
    atomic_store(&w->service.life.abandon, true);
    expect(upkeep, FR_EOF);
    assert_int_equal(w->acknowledged, 5);
}

/* Expects that the trainer may produce `more` bytes beyond those in the journal before it stops,
 * for the reason `why`. */
static void limit_is(uint64_t more, enum fr_pause why)
{
    expect(upkeep, FR_AGAIN);
    assert_int_equal(w->allowed, atomic_load(&w->service.loops.durable.shared.appended_bytes) + more);
    assert_int_equal(w->limit, why);
}

FR_CASE(reading_pauses_at_each_limit_and_continues_below)
{
    w->durable = (struct fr_durable_status){.epoch = 9, .acked = 8, .journal_bytes = 999};
    limit_is(1, FR_PAUSE_JOURNAL);
    w->durable.journal_bytes = 1000;
    limit_is(0, FR_PAUSE_JOURNAL);
    assert_string_equal(w->limit_text, "journal_max: the journal holds 1000 bytes; epochs up to 8 of 9 are "
                                       "acknowledged. Look at the delta topic");
    w->held = true;
    limit_is(0, FR_PAUSE_JOURNAL);
    assert_non_null(strstr(w->limit_text, "because publishing is held after non-finite numbers"));
    w->durable.acked = 9; /* a pause could not shorten the journal then */
    limit_is(2 * 100, FR_PAUSE_UNFOLDED);
    w->durable.unfolded_bytes = 2 * w->conf.unfolded_max;
    limit_is(0, FR_PAUSE_UNFOLDED);
    assert_non_null(strstr(w->limit_text, "unfolded_max: 200 journal bytes wait for a fold"));
    expect(fold, FR_AGAIN);
    limit_is(2 * 100, FR_PAUSE_UNFOLDED);
    assert_string_equal(w->pause, "");
    w->durable.level0_files = FR_LEVEL0_FILES_MAX;
    expect(upkeep, FR_AGAIN);
    assert_non_null(strstr(w->pause, "files to compact"));
    assert_int_equal(w->why, FR_PAUSE_COMPACTION);
}

FR_CASE(a_hold_is_a_reason_until_it_ends)
{
    w->held = true;
    expect(upkeep, FR_AGAIN);
    assert_non_null(strstr(reason("numbers"), "publishing is held: 3 batches in a row"));
    w->held = false;
    expect(upkeep, FR_AGAIN);
    assert_string_equal(reason("numbers"), "");
}

/* A pause does not take back what is cut or trained. */
FR_CASE(limits_count_what_is_on_its_way)
{
    atomic_store(&w->service.loops.durable.shared.appended_bytes, 1000);
    w->durable = (struct fr_durable_status){.epoch = 9, .acked = 8, .journal_bytes = 900};
    limit_is(1000 - 900, FR_PAUSE_JOURNAL);
    w->durable = (struct fr_durable_status){.epoch = 9, .acked = 9, .journal_bytes = 900, .unfolded_bytes = 130};
    limit_is(2 * 100 - 130, FR_PAUSE_UNFOLDED);
    assert_non_null(strstr(w->limit_text, "unfolded_max: 130 journal bytes"));
    w->durable.acked = 8;
    w->durable.journal_bytes = 970;
    limit_is(1000 - 970, FR_PAUSE_JOURNAL);
    assert_non_null(strstr(w->limit_text, "journal_max: the journal holds 970 bytes"));
    w->durable.journal_bytes = 2000;
    limit_is(0, FR_PAUSE_JOURNAL);
    assert_string_equal(w->pause, "");
}

/* What comes in while a fold runs: epochs, and acknowledgements that shorten the journal. */
static void traffic(void)
{
    w->durable.unfolded_bytes = 199;
    limit_is(1, FR_PAUSE_UNFOLDED);
    w->durable.unfolded_bytes = 200;
    limit_is(0, FR_PAUSE_UNFOLDED);
    w->publisher.acked = 5;
    expect(upkeep, FR_AGAIN);
    assert_int_equal(w->acknowledged, 5);
}

FR_CASE(limits_hold_and_acknowledgements_continue_while_a_fold_runs)
{
    w->durable = (struct fr_durable_status){.epoch = 5, .unfolded_bytes = 100};
    w->beside_fold = traffic;
    expect(fold, FR_AGAIN);
    assert_int_equal(w->folds, 1);
    limit_is(2 * 100, FR_PAUSE_UNFOLDED);
}

/* ---- the disk ---- */

FR_CASE(reading_pauses_before_the_disk_is_full_and_continues_when_there_is_room)
{
    w->durable = (struct fr_durable_status){.epoch = 5, .acked = 5, .unfolded_bytes = 50, .cold_bytes = 70};
    w->produced = 30;
    w->disk_free = FR_DISK_RESERVE + 150;
    expect(upkeep, FR_AGAIN);
    assert_string_equal(w->pause, "");
    w->disk_free--;
    fr_clock_fake_advance_ms(&w->clock, FR_DISK_LOOK_MS);
    expect(upkeep, FR_AGAIN);
    assert_string_equal(w->pause, "the disk under state_dir has 16777365 bytes free, and 16777366 have to stay free "
                                  "for epochs, a fold and compactions; make room, then reading continues by itself");
    assert_int_equal(w->why, FR_PAUSE_DISK);
    w->durable.cold_bytes = UINT64_MAX; /* a table of any size needs the room of a compaction */
    w->disk_free = FR_DISK_RESERVE + 80 + FR_COMPACTION_ROOM;
    fr_clock_fake_advance_ms(&w->clock, FR_DISK_LOOK_MS);
    expect(upkeep, FR_AGAIN);
    assert_string_equal(w->pause, "");
}

FR_CASE(a_fold_without_room_is_not_begun_and_tried_again)
{
    w->durable = (struct fr_durable_status){.epoch = 5, .unfolded_bytes = 100};
    w->disk_free = 99;
    expect(upkeep, FR_AGAIN);
    atomic_store(&w->service.loops.fold.shared.wanted, true);
    expect(fold, FR_AGAIN);
    assert_int_equal(w->folds, 0);
    assert_non_null(strstr(reason("fold"), "make room under state"));
    w->disk_free = 1 << 30;
    fr_clock_fake_advance_ms(&w->clock, FR_RETRY_MS_MAX);
    expect(upkeep, FR_AGAIN);
    w->fold = FR_E_NO_SPACE; /* another process took the free space first */
    expect(fold, FR_AGAIN);
    expect(fold, FR_AGAIN);
    assert_int_equal(w->folds, 1);
    w->fold = FR_OK;
    w->durable.unfolded_bytes = 1; /* the fold is still wanted */
    fr_clock_fake_advance_ms(&w->clock, FR_RETRY_MS_MAX);
    expect(fold, FR_AGAIN);
    assert_int_equal(w->folds, 2);
    assert_string_equal(reason("fold"), "");
}

/* ---- folds ---- */

FR_CASE(a_fold_begins_at_unfolded_max)
{
    w->durable.unfolded_bytes = w->conf.unfolded_max - 1;
    expect(fold, FR_AGAIN);
    assert_int_equal(w->folds, 0);
    w->durable.unfolded_bytes = w->conf.unfolded_max;
    expect(fold, FR_AGAIN);
    expect(fold, FR_AGAIN);
    assert_int_equal(w->folds, 1);
}

FR_CASE(a_fold_that_was_asked_for_comes_once_and_only_if_there_is_something)
{
    w->durable = (struct fr_durable_status){.epoch = 4, .folded = 4};
    atomic_store(&w->service.loops.fold.shared.wanted, true);
    expect(fold, FR_AGAIN);
    assert_int_equal(w->folds, 0);
    w->durable.epoch = 5;
    expect(fold, FR_AGAIN);
    assert_int_equal(w->folds, 0); /* the fold was wanted for the epochs that were durable then */
    atomic_store(&w->service.loops.fold.shared.wanted, true);
    expect(fold, FR_AGAIN);
    expect(fold, FR_AGAIN);
    assert_int_equal(w->folds, 1);
}

/* Listing the folder fails, as it does in a process without a free descriptor. */
FR_CASE(a_folder_of_savepoints_that_fails_is_looked_at_less_and_less_often)
{
    char dir[] = "/tmp/fr_daemon_XXXXXX", file[64];
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/savepoints", dir);
    int fd = open(file, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    w->conf.state_dir = dir;
    w->conf.savepoint.every_ms = 3600000;
    for (int i = 0; i < 5 * 120; i++) { /* two minutes */
        expect(fold, FR_AGAIN);
        fr_clock_fake_advance_ms(&w->clock, 200);
    }
    /* looks come after 1, 2, 4 .. 60 s */
    assert_in_range(atomic_load(&w->service.loops.fold.shared.savepoint_failures), 5, 8);
    assert_int_equal(unlink(file), 0);
    fr_clock_fake_advance_ms(&w->clock, 60000);
    expect(fold, FR_AGAIN);
    assert_int_equal(w->service.loops.fold.savepoints.retry.wait_ms, 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FR_STEP_CASE(of_several_ranks_only_what_all_have_acknowledged_is_passed_on),
        FR_STEP_CASE(what_is_acknowledged_last_is_passed_on_before_the_end),
        FR_STEP_CASE(what_is_acknowledged_is_passed_on_once),
        FR_STEP_CASE(reading_pauses_at_each_limit_and_continues_below),
        FR_STEP_CASE(a_hold_is_a_reason_until_it_ends),
        FR_STEP_CASE(limits_count_what_is_on_its_way),
        FR_STEP_CASE(limits_hold_and_acknowledgements_continue_while_a_fold_runs),
        FR_STEP_CASE(reading_pauses_before_the_disk_is_full_and_continues_when_there_is_room),
        FR_STEP_CASE(a_fold_without_room_is_not_begun_and_tried_again),
        FR_STEP_CASE(a_fold_begins_at_unfolded_max),
        FR_STEP_CASE(a_fold_that_was_asked_for_comes_once_and_only_if_there_is_something),
        FR_STEP_CASE(a_folder_of_savepoints_that_fails_is_looked_at_less_and_less_often),
    };
    return cmocka_run_group_tests_name("daemon upkeep", tests, NULL, NULL);
}
