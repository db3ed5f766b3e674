/* A job of two ranks as threads, each a run of trainer_fixture.h, which step together. */
#ifndef FR_TESTS_RANK_JOB_H
#define FR_TESTS_RANK_JOB_H

#include "trainer_fixture.h"

#include <pthread.h>

#include "base/thread.h"
#include "exchange/threads.h"

enum { RANKS = 2 };

struct rank {
    struct run run;
    enum fr_status status; /* of the last step */
    struct fr_err err;
    char dir[FR_TEST_FOLDER];
};

struct job {
    struct fr_exchange_group *group;
    struct rank ranks[RANKS];
};

/* Of the next job_open: the call of the exchange at which rank 1 ends the job; 0: it does not. */
static uint64_t fault_at;
enum { FAULT_CODE = 9 };

static inline void job_open(struct job *job, const char *text)
{
    job->group = fr_exchange_group_new(&(struct fr_exchange_group_options){
        .ranks = RANKS, .deadline_ns = 60000000000, .fault_rank = 1, .fault_at = fault_at, .fault_code = FAULT_CODE});
    other_text = text;
    for (uint32_t r = 0; r < RANKS; r++) {
        fr_test_folder(job->ranks[r].dir);
        other_exchange = fr_exchange_group_rank(job->group, r);
        run_open(&job->ranks[r].run, job->ranks[r].dir, 1);
    }
    other_exchange = NULL;
    other_text = NULL;
}

static inline void job_close(struct job *job)
{
    void *left;
    for (uint32_t r = 0; r < RANKS; r++) {
        while (fr_ring_pop(job->ranks[r].run.full, &left, 0) == FR_OK)
            fr_batch_free(left);
        run_close(&job->ranks[r].run);
        remove_dir(job->ranks[r].dir);
    }
    fr_exchange_group_free(job->group);
}

/* The batch of that number, all of it in the rank's lane. */
static inline struct fr_batch *make_lane(struct job *job, uint32_t r, uint64_t number)
{
    struct fr_batch *batch = make_batch(job->ranks[r].run.conf, number);
    for (uint32_t lane = r + 1; lane < RANKS; lane++)
        batch->lane_begin[lane] = batch->n_groups;
    return batch;
}

static inline void *step_main(void *self)
{
    struct rank *rank = self;
    rank->status = fr_trainer_step(rank->run.trainer, &rank->err);
    return NULL;
}

/* One step of both ranks, after `ms` on their clocks; their statuses are in the job. */
static inline void try_step(struct job *job, int64_t ms)
{
    pthread_t threads[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        fr_clock_fake_advance_ms(&job->ranks[r].run.clock, ms);
        assert_true(fr_thread_start(&threads[r], "rank", step_main, &job->ranks[r]));
    }
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
}

/* A step that no rank fails. Returns the status of rank 1. */
static inline enum fr_status step(struct job *job, int64_t ms)
{
    try_step(job, ms);
    for (uint32_t r = 0; r < RANKS; r++)
        if (job->ranks[r].status < 0)
            fail_msg("rank %u: %s", r, job->ranks[r].err.text);
    return job->ranks[1].status;
}

#endif
