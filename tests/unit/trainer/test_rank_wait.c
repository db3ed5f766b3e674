/* What a rank shows while the job waits for another one: two ranks as threads, of which rank 0 has
 * the reason and rank 1 shows it. */
#include "rank_job.h"

#include "../../../trainer/trainer_private.h"

enum { SHOWN_MS = 1000 };

#define CONFIG(lockstep)                                                                                               \
    "version: 1\n"                                                                                                     \
    "model: unit\n"                                                                                                    \
    "state_dir: /nonexistent\n"                                                                                        \
    "scale: {domains: 2}\n"                                                                                            \
    "epoch: 10m\n"                                                                                                     \
    "heartbeat: 10m\n"                                                                                                 \
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, batch_size: 16" lockstep "}\n"                         \
    "tables: {user: {dim: 4, admit: {count: 2}, optimizer: {adagrad: {lr: 0.1}}}}\n"                                   \
    "slots: {user_id: {table: user}, price: {kind: dense, dim: 1}}\n"                                                  \
    "labels: {click: {}}\n"                                                                                            \
    "network: {layers: [{name: out, dense: [user_id, price], units: 1}], optimizer: {adam: {lr: 0.01}}}\n"             \
    "tasks: [{name: click, label: click, logit: out}]\n"                                                               \
    "export: {topic: d}\n"

static const char live[] = CONFIG("");
static const char lockstep[] = CONFIG(", lockstep: {records: 16, epoch_batches: 2}");

/* Offers a batch of the rank's lane, with one unfit sample or none. */
static void offer(struct job *job, uint32_t r, bool unfit)
{
    struct fr_batch *batch = make_lane(job, r, job->ranks[r].run.applied);
    if (unfit)
        break_sample(batch, 3);
    assert_true(fr_ring_try_push(job->ranks[r].run.full, batch));
}

static void train(struct job *job)
{
    for (uint32_t r = 0; r < RANKS; r++)
        offer(job, r, false);
    assert_int_equal(step(job, 0), FR_OK);
}

/* Checks what a rank's status shows: the pause, and a text with the words. */
static void assert_shows(struct job *job, uint32_t r, enum fr_pause pause, const char *words)
{
    struct fr_trainer_status status;
    fr_trainer_get_status(job->ranks[r].run.trainer, &status);
    if (status.pause != pause || !strstr(status.paused, words))
        fail_msg("rank %u shows pause %d, \"%s\"; expected %d, \"%s\"", r, status.pause, status.paused, pause, words);
    if (pause == FR_PAUSE_NONE)
        assert_string_equal(status.paused, "");
}

/* Steps through a wait: rank 1 shows it after a second, and not before. */
static void wait_until_shown(struct job *job, const char *words)
{
    assert_int_equal(step(job, 0), FR_AGAIN);
    assert_int_equal(step(job, SHOWN_MS - 1), FR_AGAIN);
    assert_shows(job, 1, FR_PAUSE_NONE, "");
    assert_int_equal(step(job, 1), FR_AGAIN);
    assert_shows(job, 1, FR_PAUSE_RANK, words);
    assert_int_equal(step(job, SHOWN_MS), FR_AGAIN);
    assert_shows(job, 1, FR_PAUSE_RANK, "the job waits for rank 0, ");
    struct fr_trainer_status status;
    fr_trainer_get_status(job->ranks[0].run.trainer, &status);
    assert_int_not_equal(status.pause, FR_PAUSE_RANK); /* it waits for itself */
    /* Before a roll call has answered, the wait stays in the status. */
    assert_false(fr_trainer_publish_pause(job->ranks[1].run.trainer, FR_PAUSE_NONE, ""));
    assert_shows(job, 1, FR_PAUSE_RANK, words);
}

FR_CASE(a_rank_shows_that_another_one_is_paused_until_training_continues)
{
    struct job job;
    job_open(&job, live);
    train(&job);
    offer(&job, 1, false);
    fr_trainer_pause(job.ranks[0].run.trainer, FR_PAUSE_DISK, "the disk is full");
    wait_until_shown(&job, "where reading is paused");
    assert_shows(&job, 0, FR_PAUSE_DISK, "the disk is full");
    assert_int_equal(job.ranks[1].run.applied, 1);
    assert_int_equal(step(&job, 600 * SHOWN_MS), FR_OK); /* a cut; training still waits */
    assert_int_equal(drain_stages(&job.ranks[1].run), 1);
    assert_shows(&job, 1, FR_PAUSE_RANK, "rank 0");

    /* a reason of its own comes first, and the wait is still shown after it */
    fr_trainer_pause(job.ranks[1].run.trainer, FR_PAUSE_JOURNAL, "the journal is full");
    assert_int_equal(step(&job, 0), FR_AGAIN);
    assert_shows(&job, 1, FR_PAUSE_JOURNAL, "the journal is full");
    fr_trainer_pause(job.ranks[1].run.trainer, FR_PAUSE_NONE, NULL);
    assert_int_equal(step(&job, 0), FR_AGAIN);
    assert_shows(&job, 1, FR_PAUSE_RANK, "rank 0");

    fr_trainer_pause(job.ranks[0].run.trainer, FR_PAUSE_NONE, NULL);
    assert_int_equal(step(&job, 0), FR_OK);
    assert_int_equal(job.ranks[1].run.applied, 2);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_shows(&job, r, FR_PAUSE_NONE, "");
    job_close(&job);
}

/* Short waits do not add up; while live, no samples on a rank, or on all of them, are no wait. */
FR_CASE(short_waits_are_not_shown)
{
    struct job job;
    job_open(&job, live);
    for (int i = 0; i < 5; i++) {
        fr_trainer_pause(job.ranks[0].run.trainer, FR_PAUSE_DISK, "test");
        assert_int_equal(step(&job, 0), FR_AGAIN);
        assert_int_equal(step(&job, SHOWN_MS - 1), FR_AGAIN);
        assert_shows(&job, 1, FR_PAUSE_NONE, "");
        fr_trainer_pause(job.ranks[0].run.trainer, FR_PAUSE_NONE, NULL);
        train(&job);
    }
    offer(&job, 1, false);
    assert_int_equal(step(&job, 2 * SHOWN_MS), FR_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(step(&job, 2 * SHOWN_MS), FR_AGAIN);
    assert_shows(&job, 1, FR_PAUSE_NONE, "");
    job_close(&job);
}

FR_CASE(a_rank_shows_that_another_one_has_no_batch_in_lockstep)
{
    struct job job;
    job_open(&job, lockstep);
    offer(&job, 1, false);
    wait_until_shown(&job, "which has no batch");
    offer(&job, 0, false);
    assert_int_equal(step(&job, 0), FR_OK);
    assert_shows(&job, 1, FR_PAUSE_NONE, "");
    assert_shows(&job, 0, FR_PAUSE_NONE, "");
    job_close(&job);
}

FR_CASE(a_rank_shows_that_letters_of_another_one_wait)
{
    struct job job;
    job_open(&job, lockstep);
    job.ranks[0].run.letters_full = true;
    offer(&job, 0, true);
    offer(&job, 1, false);
    assert_int_equal(step(&job, 0), FR_OK);
    assert_int_equal(job.ranks[0].status, FR_AGAIN);
    wait_until_shown(&job, "whose dead letters are not accepted");
    job.ranks[0].run.letters_full = false;
    assert_int_equal(step(&job, 0), FR_AGAIN); /* sends the letter */
    assert_int_equal(job.ranks[0].run.n_letters, 1);
    train(&job);
    assert_shows(&job, 1, FR_PAUSE_NONE, "");
    assert_int_equal(job.ranks[0].run.applied, 2);
    job_close(&job);
}

/* Trains and cuts until rank 0 has no stage for the cut that is due; rank 1 has one. */
static void leave_no_stage(struct job *job)
{
    while (fr_ring_count(job->ranks[0].run.free_stages) > 0 || job->ranks[0].run.trainer->cuts.stage) {
        train(job);
        while (job->ranks[0].run.trainer->history.batches % 2 == 0 && job->ranks[0].run.trainer->cuts.consumed)
            assert_int_equal(step(job, 0), FR_OK);
        drain_stages(&job->ranks[1].run);
    }
}

/* Rank 0 is named, although rank 1, which has a stage, is the one whose next batch waits, too. */
FR_CASE(a_rank_shows_that_another_one_cannot_cut)
{
    struct job job;
    job_open(&job, lockstep);
    leave_no_stage(&job);
    train(&job);
    train(&job);
    wait_until_shown(&job, "which cannot cut an epoch");
    drain_stages(&job.ranks[0].run);
    assert_int_equal(step(&job, 0), FR_OK); /* the cut */
    train(&job);
    assert_shows(&job, 1, FR_PAUSE_NONE, "");

    leave_no_stage(&job);
    train(&job);
    fr_trainer_stop(job.ranks[1].run.trainer);
    wait_until_shown(&job, "which cannot cut an epoch"); /* at the end, too */
    drain_stages(&job.ranks[0].run);
    assert_int_equal(step(&job, 0), FR_EOF);
    assert_shows(&job, 1, FR_PAUSE_NONE, "");
    job_close(&job);
}

FR_CASE(the_status_has_the_waits_of_each_channel)
{
    struct job job;
    struct fr_trainer_status status;
    job_open(&job, live);
    train(&job);
    assert_int_equal(step(&job, SHOWN_MS), FR_AGAIN); /* publishes */
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct fr_exchange *exchange = fr_exchange_group_rank(job.group, r);
        fr_trainer_get_status(job.ranks[r].run.trainer, &status);
        for (int channel = 0; channel < FR_CHANNELS; channel++) {
            if (channel == FR_CHANNEL_VOTES) /* the service's */
                continue;
            assert_true(status.run.exchange_wait_ns[channel] > 0);
            assert_true(status.run.exchange_wait_ns[channel] <= fr_exchange_waited_ns(exchange, channel));
        }
    }
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_rank_shows_that_another_one_is_paused_until_training_continues),
        cmocka_unit_test(short_waits_are_not_shown),
        cmocka_unit_test(a_rank_shows_that_another_one_has_no_batch_in_lockstep),
        cmocka_unit_test(a_rank_shows_that_letters_of_another_one_wait),
        cmocka_unit_test(a_rank_shows_that_another_one_cannot_cut),
        cmocka_unit_test(the_status_has_the_waits_of_each_channel),
    };
    return cmocka_run_group_tests_name("rank_wait", cases, NULL, NULL);
}
