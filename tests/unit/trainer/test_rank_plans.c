/* The next batch planned beside the step of a batch (trainer/rank_rows.c): two ranks as threads, of
 * which rank 0 is the home of all keys. */
#include "rank_job.h"

#include "base/hash.h"
#include "durable/image.h"

#define CONFIG(every)                                                                                                  \
    "version: 1\n"                                                                                                     \
    "model: unit\n"                                                                                                    \
    "state_dir: /nonexistent\n"                                                                                        \
    "scale: {domains: 2}\n"                                                                                            \
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, batch_size: 32,\n"                                     \
    "  lockstep: {records: 16, epoch_batches: 100}}\n"                                                                 \
    "tables: {user: {dim: 4, admit: {count: 2}, expire: {idle: 30s, every: " every "}}}\n"                             \
    "slots: {user_id: {table: user}, price: {kind: dense, dim: 1}}\n"                                                  \
    "labels: {click: {}}\n"                                                                                            \
    "network: {layers: [{name: out, dense: [user_id, price], units: 1}], optimizer: {adam: {lr: 0.01}}}\n"             \
    "tasks: [{name: click, label: click, logit: out}]\n"                                                               \
    "export: {topic: d}\n"

enum { BATCHES = 4 };

static const char slices_always[] = CONFIG("1");
static const char slices_seldom[] = CONFIG("1000");

/* Replaces each key by one of the first domain. */
static void move_keys(struct fr_batch *batch)
{
    struct fr_column *users = &batch->columns[0];
    for (uint32_t i = 0; i < users->begin[batch->n_samples]; i++)
        while (fr_key_domain(users->keys[i], RANKS) != 0)
            users->keys[i] = fr_fmix64(users->keys[i]);
}

/* Opens a job that has all its batches. */
static void open_job(struct job *job, const char *text)
{
    job_open(job, text);
    for (uint64_t number = 0; number < BATCHES; number++)
        for (uint32_t r = 0; r < RANKS; r++) {
            struct fr_batch *batch = make_lane(job, r, number);
            move_keys(batch);
            assert_true(fr_ring_try_push(job->ranks[r].run.full, batch));
        }
}

/* Trains the batches. Returns how many were planned beside the step of the batch before, on all
 * ranks alike. */
static uint64_t train_all(const char *text)
{
    struct job job;
    struct fr_trainer_status status[RANKS];
    open_job(&job, text);
    for (uint64_t number = 0; number < BATCHES; number++)
        assert_int_equal(step(&job, 0), FR_OK);
    fr_trainer_stop(job.ranks[0].run.trainer);
    while (step(&job, 0) != FR_EOF)
        continue;
    for (uint32_t r = 0; r < RANKS; r++)
        fr_trainer_get_status(job.ranks[r].run.trainer, &status[r]);
    assert_int_equal(status[0].history.batches, BATCHES);
    assert_int_equal(status[1].run.planned_early, status[0].run.planned_early);
    assert_true(status[0].tables[0].stats.counts.rows > 0 && status[1].tables[0].stats.counts.rows == 0);
    job_close(&job);
    return status[0].run.planned_early;
}

/* Rank 1 has no rows that a slice could examine. */
FR_CASE(ranks_do_not_plan_ahead_where_one_of_them_has_slices_due)
{
    assert_true(train_all(slices_seldom) > 0);
    assert_int_equal(train_all(slices_always), 0);
}

/* A rank ends the job at each of its calls, also in the middle of an early plan: the other one has
 * an error. */
FR_CASE(a_rank_that_ends_the_job_at_any_call_is_an_error_of_the_others)
{
    uint64_t calls = 0;
    for (bool ended = true; ended; calls++) {
        struct job job;
        int steps = 0;
        fault_at = calls + 1;
        open_job(&job, slices_seldom);
        do
            try_step(&job, 0);
        while (job.ranks[0].status == FR_OK && job.ranks[1].status == FR_OK && ++steps < BATCHES);
        ended = steps < BATCHES;
        if (ended) /* rank 0 may have had all that it needed for its step */
            try_step(&job, 0);
        for (uint32_t r = 0; r < RANKS && ended; r++) {
            assert_int_equal(job.ranks[r].status, FR_E_CANCELLED);
            assert_non_null(strstr(job.ranks[r].err.text, "rank 1 ended the job with code 9"));
        }
        job_close(&job);
    }
    fault_at = 0;
    assert_true(calls > BATCHES * 10);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(ranks_do_not_plan_ahead_where_one_of_them_has_slices_due),
        cmocka_unit_test(a_rank_that_ends_the_job_at_any_call_is_an_error_of_the_others),
    };
    return cmocka_run_group_tests_name("rank_plans", cases, NULL, NULL);
}
