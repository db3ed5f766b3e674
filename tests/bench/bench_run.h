/* A trainer with journal and folds in this process. Private to tests/bench. Thread: the caller's
 * is the owner loop; two of its own; the pool's. */
#ifndef FR_BENCH_RUN_H
#define FR_BENCH_RUN_H

#include <pthread.h>
#include <stdatomic.h>

#include "bench_table.h"
#include "trainer/trainer.h"

enum {
    FR_RUN_IN_FLIGHT = 3, /* batches: trained, planned, next */
    FR_RUN_STAGES = 2
};

/* The keys of batches: number i of batch `number` of the stream is a rank from 0. */
struct fr_bench_stream {
    uint64_t (*rank_of)(const void *self, uint64_t number, uint32_t i);
    const void *self;
};

struct fr_bench_run {
    /* Set by the caller before opening, and borrowed: name is the name of the benchmark, for
     * messages; directory is that of the state; head is the head of journal files, NULL: empty;
     * unfolded_mib is unfolded_max where rows have no limit, 0: by memory. */
    struct fr_bench *bench;
    const char *name, *directory;
    struct fr_buffer *head;
    uint32_t unfolded_mib;
    struct fr_conf *conf;
    struct fr_pool *pool;
    struct fr_ring *full, *empty, *cut_stages, *free_stages;
    struct fr_stage stages[FR_RUN_STAGES];
    struct fr_gate_count gate_config;
    struct fr_table_policies policies;
    struct fr_trainer *trainer;
    struct fr_durable *durable;
    pthread_t append_thread, fold_thread;
    atomic_bool stop, failed, fold_wanted;
    struct fr_err append_err, fold_err; /* of the thread that failed */
    uint64_t n_batches;                 /* batches so far, for event time */
    uint64_t rss_empty, rss_peak;
    bool started, stuck;
};

/* limit: bytes of rows in memory; 0: all rows. Returns FR_TOOL_OK, or what the tool exits with. */
int fr_bench_run_open(struct fr_bench_run *run, uint64_t limit);
/* Trains n batches of the stream, the first of which has the number `first`; times NULL: not
 * measured. */
int fr_bench_run_train(struct fr_bench_run *run, const struct fr_bench_stream *stream, uint64_t first, uint64_t n,
                       struct fr_bench_times *times);
/* Makes the last epoch durable, and ends the threads. */
void fr_bench_run_drain(struct fr_bench_run *run);
void fr_bench_run_close(struct fr_bench_run *run);

#endif
