/* A trainer with journal and folds in this process, as the benchmarks of large tables need it
 * (bench_run.h): the threads that the daemon gives them, no Kafka and no publisher.
 *
 * Thread: the caller's (owner loop), one that appends, one that folds, the pool's. */
#include "bench_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/resident.h"
#include "base/thread.h"
#include "process.h"
#include "tool.h"

enum {
    STUCK_S = 60, /* without a batch: reading pauses for good */
    NAP_MS = 20,
    OWNER_NAP_MS = 2, /* as the daemon's owner loop */
    BATCH_MS = 20,    /* event time of a batch */
    LOOK_BATCHES = 16,
    UNFOLDED_MIN_MIB = 8,   /* more than what an epoch has of the network */
    UNFOLDED_MAX_MIB = 512, /* as the default of unfolded_max */
    UNFOLDED_OF = 4,        /* of memory_limit: likewise */
    OTHERS_MIB = 384,       /* what such a process has in memory beside rows (rss_mb - rows_mb) */
    PINNED_OF = 2,          /* of row_memory at most: rows that are not folded cannot leave */
};

static void nap(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* ---- threads ---- */

static void *append_main(void *self)
{
    struct fr_bench_run *run = self;
    void *item = NULL;
    for (;;) {
        enum fr_status popped = fr_ring_pop(run->cut_stages, &item, (uint64_t)NAP_MS * 1000000);
        if (popped == FR_EOF)
            return NULL;
        if (popped != FR_OK)
            continue;
        struct fr_stage *stage = item;
        uint64_t epoch = stage->epoch;
        if (fr_durable_append(run->durable, stage, NULL, NULL, &run->append_err) != FR_OK ||
            fr_durable_acknowledge(run->durable, epoch, &run->append_err) != FR_OK) {
            atomic_store(&run->failed, true);
            return NULL;
        }
        fr_stage_clear(stage);
        if (!fr_ring_try_push(run->free_stages, stage))
            return NULL;
    }
}

static enum fr_pause pressure(const struct fr_bench_run *run, const struct fr_durable_status *durable)
{
    if (durable->unfolded_bytes >= 2 * run->conf->unfolded_max)
        return FR_PAUSE_UNFOLDED;
    return durable->level0_files >= FR_LEVEL0_FILES_MAX ? FR_PAUSE_COMPACTION : FR_PAUSE_NONE;
}

static void *fold_main(void *self)
{
    struct fr_bench_run *run = self;
    struct fr_durable_status durable;
    while (!atomic_load(&run->stop)) {
        fr_durable_get_status(run->durable, &durable);
        enum fr_pause why = pressure(run, &durable);
        fr_trainer_pause(run->trainer, why, fr_trainer_pauses[why]);
        bool wanted = atomic_exchange(&run->fold_wanted, false) && durable.unfolded_bytes > 0;
        if (!wanted && durable.unfolded_bytes < run->conf->unfolded_max)
            nap(NAP_MS);
        else if (fr_durable_fold(run->durable, &run->fold_err) != FR_OK)
            atomic_store(&run->failed, true);
        if (atomic_load(&run->failed))
            return NULL;
    }
    return NULL;
}

/* ---- a run ---- */

static void no_positions(void *self, const struct fr_batch *batch)
{
    (void)self, (void)batch;
}

static void stage_nothing(void *self, struct fr_buffer *section)
{
    (void)self, (void)section;
}

static uint32_t no_offsets(void *self, struct fr_announced_offset **offsets)
{
    (void)self;
    *offsets = NULL;
    return 0;
}

/* What unfolded_max is by default under the memory_limit that leaves so much for rows. */
static uint64_t unfolded_mib(uint64_t row_mib)
{
    uint64_t most = (row_mib + OTHERS_MIB) / UNFOLDED_OF;
    most = most < row_mib / PINNED_OF ? most : row_mib / PINNED_OF;
    return most < UNFOLDED_MIN_MIB ? UNFOLDED_MIN_MIB : most > UNFOLDED_MAX_MIB ? UNFOLDED_MAX_MIB : most;
}

static int load_conf(struct fr_bench_run *run, uint64_t limit)
{
    char rows[64], unfolded[64], directory[4200];
    snprintf(rows, sizeof(rows), "row_memory=%" PRIu64 "MiB", (limit >> 20) + 1);
    snprintf(unfolded, sizeof(unfolded), "unfolded_max=%" PRIu64 "MiB",
             limit ? unfolded_mib(limit >> 20) : (uint64_t)run->unfolded_mib);
    snprintf(directory, sizeof(directory), "state_dir=%s", run->directory);
    const char *sets[] = {"memory_limit=1TiB", directory, unfolded, rows};
    size_t n_sets = limit ? FR_ARRAY_LEN(sets) : run->unfolded_mib ? 3 : 2;
    struct fr_buffer problems = {0};
    struct fr_conf_load_options options = {.path = run->bench->config, .sets = sets, .n_sets = n_sets};
    enum fr_status status = fr_conf_load(&options, &run->conf, &problems);
    if (status != FR_OK)
        fprintf(stderr, "freshet-bench: %.*s\n", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&problems);
    return status == FR_OK ? FR_TOOL_OK : FR_TOOL_FAILED;
}

static void open_rings(struct fr_bench_run *run)
{
    run->full = fr_ring_new(FR_RUN_IN_FLIGHT);
    run->empty = fr_ring_new(FR_RUN_IN_FLIGHT);
    run->cut_stages = fr_ring_new(FR_RUN_STAGES);
    run->free_stages = fr_ring_new(FR_RUN_STAGES);
    for (int i = 0; i < FR_RUN_IN_FLIGHT; i++) {
        struct fr_batch *batch = fr_bench_batch_new(run->conf);
        bool pushed = fr_ring_try_push(run->empty, batch);
        FR_CHECK(pushed);
    }
    for (int i = 0; i < FR_RUN_STAGES; i++) {
        fr_stage_init(&run->stages[i]);
        bool pushed = fr_ring_try_push(run->free_stages, &run->stages[i]);
        FR_CHECK(pushed);
    }
}

static void open_trainer(struct fr_bench_run *run)
{
    run->gate_config = (struct fr_gate_count){.count = 1};
    run->policies.gate = fr_gate_count_policy(&run->gate_config);
    run->trainer =
        fr_trainer_new(&(struct fr_trainer_options){.conf = run->conf,
                                                    .clock = fr_clock_system(),
                                                    .pool = run->pool,
                                                    .policies = &run->policies,
                                                    .stream = {run, no_positions, stage_nothing, no_offsets, NULL},
                                                    .full = run->full,
                                                    .empty = run->empty,
                                                    .cut_stages = run->cut_stages,
                                                    .fold_wanted = &run->fold_wanted,
                                                    .free_stages = run->free_stages});
}

int fr_bench_run_open(struct fr_bench_run *run, uint64_t limit)
{
    struct fr_err err = {0};
    if (load_conf(run, limit) != FR_TOOL_OK)
        return FR_TOOL_FAILED;
    run->pool = fr_pool_new(run->bench->threads);
    open_rings(run);
    open_trainer(run);
    run->rss_empty = run->rss_peak = fr_bench_rss_bytes();
    struct fr_durable_options options = {.dir = run->directory,
                                         .salt = 1,
                                         .fold_bytes = run->conf->unfolded_max,
                                         .head = run->head ? run->head->data : NULL,
                                         .head_size = run->head ? run->head->size : 0};
    struct fr_trainer_restore_options nothing = {0}; /* the directory is new */
    if (fr_durable_open(&options, &run->durable, &err) != FR_OK ||
        fr_trainer_restore(run->trainer, run->durable, &nothing, &err) != FR_OK)
        return fr_bench_fail(run->name, &err);
    run->started = true;
    bool begun = fr_thread_start(&run->append_thread, "append", append_main, run) &&
                 fr_thread_start(&run->fold_thread, "fold", fold_main, run);
    FR_CHECK(begun);
    return FR_TOOL_OK;
}

void fr_bench_run_drain(struct fr_bench_run *run)
{
    struct fr_err err = {0};
    enum fr_status status = FR_OK;
    if (run->started) {
        fr_trainer_stop(run->trainer);
        while (status >= 0 && status != FR_EOF && !atomic_load(&run->failed))
            status = fr_trainer_step(run->trainer, &err);
        fr_ring_close(run->cut_stages);
        pthread_join(run->append_thread, NULL);
        atomic_store(&run->stop, true);
        pthread_join(run->fold_thread, NULL);
    }
}

void fr_bench_run_close(struct fr_bench_run *run)
{
    void *batch;
    while (run->empty && fr_ring_pop(run->empty, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    while (run->full && fr_ring_pop(run->full, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    fr_trainer_free(run->trainer);
    fr_durable_close(run->durable);
    for (int i = 0; i < FR_RUN_STAGES; i++)
        fr_stage_release(&run->stages[i]);
    fr_ring_free(run->full);
    fr_ring_free(run->empty);
    fr_ring_free(run->cut_stages);
    fr_ring_free(run->free_stages);
    fr_pool_free(run->pool);
    fr_conf_free(run->conf);
}

/* ---- batches ---- */

static void fill_batch(struct fr_bench_run *run, struct fr_batch *batch, const struct fr_bench_stream *stream,
                       uint64_t number)
{
    uint32_t n = 0;
    fr_bench_batch_refill(batch, INT64_C(1767225600000) + (int64_t)run->n_batches++ * BATCH_MS);
    for (uint32_t s = 0; s < batch->n_slots; s++) {
        struct fr_column *column = &batch->columns[s];
        for (uint32_t i = 0; column->keys && i < batch->n_samples; i++)
            column->keys[i] = fr_bench_table_key(stream->rank_of(stream->self, number, n++));
    }
}

/* Batches back from the trainer are filled and offered again, as long as there are any to come. */
static uint64_t offer(struct fr_bench_run *run, const struct fr_bench_stream *stream, uint64_t offered, uint64_t n,
                      uint64_t in_flight)
{
    void *batch;
    while (offered < n && in_flight < FR_RUN_IN_FLIGHT && fr_ring_pop(run->empty, &batch, 0) == FR_OK) {
        fill_batch(run, batch, stream, offered++);
        bool pushed = fr_ring_try_push(run->full, batch);
        FR_CHECK(pushed);
        in_flight++;
    }
    return offered;
}

static int say_stuck(struct fr_bench_run *run)
{
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    fr_trainer_get_status(run->trainer, status);
    fr_bench_progress("%s: no batch for %d s: %s", run->name, STUCK_S, status->paused);
    run->stuck = true;
    free(status);
    return FR_TOOL_FAILED;
}

static void look(struct fr_bench_run *run, uint64_t trained)
{
    uint64_t now = trained % LOOK_BATCHES == 0 ? fr_resident_bytes() : 0;
    run->rss_peak = now > run->rss_peak ? now : run->rss_peak;
}

int fr_bench_run_train(struct fr_bench_run *run, const struct fr_bench_stream *stream, uint64_t first, uint64_t n,
                       struct fr_bench_times *times)
{
    struct fr_err err = {0};
    uint64_t offered = first, end = first + n, trained = first;
    double last = fr_bench_now();
    int result = FR_TOOL_OK;
    if (times)
        fr_bench_times_begin(times);
    while (trained < end && result == FR_TOOL_OK) {
        offered = offer(run, stream, offered, end, offered - trained);
        size_t waiting = fr_ring_count(run->empty);
        enum fr_status stepped = fr_trainer_step(run->trainer, &err);
        if (stepped < 0)
            result = fr_bench_fail(run->name, &err);
        else if (atomic_load(&run->failed))
            result = fr_bench_fail(run->name, run->append_err.status < 0 ? &run->append_err : &run->fold_err);
        else if (fr_ring_count(run->empty) == waiting && fr_bench_now() - last > STUCK_S)
            result = say_stuck(run);
        else if (stepped == FR_AGAIN && fr_ring_count(run->empty) == waiting)
            nap(OWNER_NAP_MS);
        for (; fr_ring_count(run->empty) > waiting; waiting++) {
            look(run, ++trained);
            last = fr_bench_now();
            if (times)
                fr_bench_times_end(times);
            if (times && trained < end)
                fr_bench_times_begin(times);
        }
    }
    return result;
}
