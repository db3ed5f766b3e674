/* Training with and without a snapshot beside it; a part of `freshet bench snapshot`.
 *
 * A trainer with journal and folds (bench_run.h) makes all rows of R16 with one id space for all
 * slots, about 1 GB of them, and goes on with ids drawn uniformly. In every odd turn a thread at
 * the daemon's nice level writes a snapshot of the cold store at the default `snapshot.rate`
 * meanwhile; the even turns train as many batches alone. Each pair of turns gives a ratio of their
 * rates, so that what else a machine does moves both. Processor time says more there: that of
 * training (all threads but the one that writes) for a sample, and the writer's own.
 *
 * Thread: the caller's (owner loop), the run's, the writer's. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "base/thread.h"
#include "bench/bench_run.h"
#include "bench/process.h"
#include "exporter/snapshot.h"
#include "tool.h"

enum { ROWS = 8500000, PAIRS = 3, CHUNK = 8, SETTLE = 64, UNFOLDED_MIB = 512, NICE = 15 };

struct beside {
    struct fr_tool_run run;
    uint64_t rows, next; /* of the stream */
    uint32_t n_keys;
    uint64_t rate;
    char directory[4096], snapshots[4200];
    /* the writer's */
    atomic_bool written;
    enum fr_status status;
    struct fr_err err;
    struct fr_snapshot snapshot;
    double writer_seconds, writer_cpu;
};

struct turn {
    uint64_t samples;
    double seconds, cpu; /* cpu: of all threads but the writer */
};

static uint64_t in_order(const void *self, uint64_t number, uint32_t i)
{
    const struct beside *beside = self;
    return (number * beside->n_keys + i) % beside->rows;
}

static uint64_t uniform(const void *self, uint64_t number, uint32_t i)
{
    const struct beside *beside = self;
    return fr_random_u64(3, 1, number, i) % beside->rows;
}

static double thread_cpu(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *write_main(void *self)
{
    struct beside *beside = self;
    const enum fr_codec_quantize quantize = FR_CODEC_F16;
    const struct fr_snapshot_options options = {.durable = beside->run.durable,
                                                .clock = fr_clock_system(),
                                                .dir = beside->snapshots,
                                                .topic = "bench.delta",
                                                .quantize = &quantize,
                                                .rate = beside->rate};
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    double began = fr_tool_bench_now();
    beside->status = fr_snapshot_write(&options, &beside->snapshot, &beside->err);
    beside->writer_seconds = fr_tool_bench_now() - began;
    beside->writer_cpu = thread_cpu();
    atomic_store(&beside->written, true);
    return NULL;
}

/* ---- turns ---- */

static int train(struct beside *beside, uint64_t batches)
{
    const struct fr_tool_stream stream = {uniform, beside};
    int result = fr_tool_run_train(&beside->run, &stream, beside->next, batches, NULL);
    beside->next += batches;
    return result;
}

/* Folds what there is: a snapshot is as of a fold. */
static int fold(struct beside *beside)
{
    struct fr_durable_status durable;
    fr_durable_get_status(beside->run.durable, &durable);
    uint64_t before = durable.folded;
    int result = FR_TOOL_OK;
    while (result == FR_TOOL_OK && durable.folded == before) {
        atomic_store(&beside->run.fold_wanted, true);
        result = train(beside, CHUNK);
        fr_durable_get_status(beside->run.durable, &durable);
    }
    return result;
}

static int with_writer(struct beside *beside, struct turn *turn)
{
    pthread_t writer;
    uint64_t batches = 0;
    int result = FR_TOOL_OK;
    atomic_store(&beside->written, false);
    double began = fr_tool_bench_now(), cpu = fr_tool_cpu_seconds();
    if (!fr_thread_start(&writer, "snapshot", write_main, beside)) {
        fputs("freshet bench: no thread could be started\n", stderr);
        return FR_TOOL_FAILED;
    }
    for (; !atomic_load(&beside->written) && result == FR_TOOL_OK; batches += CHUNK)
        result = train(beside, CHUNK);
    pthread_join(writer, NULL);
    *turn = (struct turn){batches * beside->run.conf->ingest.batch_size, fr_tool_bench_now() - began,
                          fr_tool_cpu_seconds() - cpu - beside->writer_cpu};
    if (result == FR_TOOL_OK && beside->status == FR_OK)
        beside->status = fr_snapshot_remove(beside->snapshots, beside->snapshot.name, &beside->err);
    return result == FR_TOOL_OK && beside->status != FR_OK ? fr_tool_fail(beside->run.name, &beside->err) : result;
}

static int alone(struct beside *beside, uint64_t samples, struct turn *turn)
{
    double began = fr_tool_bench_now(), cpu = fr_tool_cpu_seconds();
    int result = train(beside, samples / beside->run.conf->ingest.batch_size);
    *turn = (struct turn){samples, fr_tool_bench_now() - began, fr_tool_cpu_seconds() - cpu};
    return result;
}

static int measure(struct beside *beside)
{
    struct turn with, without;
    double slower[PAIRS], rate[PAIRS], rate_with[PAIRS], cpu[PAIRS], cpu_with[PAIRS], writer[PAIRS], share[PAIRS];
    struct fr_tool_bench *bench = beside->run.bench;
    int result = train(beside, SETTLE);
    for (int i = 0; i < PAIRS && result == FR_TOOL_OK; i++) {
        fr_tool_bench_progress("snapshot: beside training, %d of %d", i + 1, PAIRS);
        result = fold(beside);
        if (result == FR_TOOL_OK)
            result = with_writer(beside, &with);
        if (result == FR_TOOL_OK)
            result = alone(beside, with.samples, &without);
        if (result != FR_TOOL_OK)
            break;
        rate[i] = (double)without.samples / without.seconds;
        rate_with[i] = (double)with.samples / with.seconds;
        slower[i] = 100.0 * (1.0 - rate_with[i] / rate[i]);
        cpu[i] = without.cpu / (double)without.samples * 1e6;
        cpu_with[i] = with.cpu / (double)with.samples * 1e6;
        writer[i] = beside->writer_cpu;
        share[i] = 100.0 * beside->writer_cpu / (with.cpu + beside->writer_cpu);
    }
    if (result != FR_TOOL_OK)
        return result;
    fr_tool_bench_begin(bench, "snapshot_beside_training");
    fr_tool_bench_number(bench, "rows", (double)beside->snapshot.rows);
    fr_tool_bench_number(bench, "snapshot_gb", (double)beside->snapshot.bytes * 1e-9);
    fr_tool_bench_number(bench, "snapshot_seconds", beside->writer_seconds);
    fr_tool_bench_number(bench, "samples_per_second", fr_tool_bench_median(rate, PAIRS));
    fr_tool_bench_number(bench, "samples_per_second_with", fr_tool_bench_median(rate_with, PAIRS));
    fr_tool_bench_number(bench, "slower_percent", fr_tool_bench_median(slower, PAIRS));
    fr_tool_bench_number(bench, "slower_percent_least", slower[0]); /* sorted now */
    fr_tool_bench_number(bench, "slower_percent_most", slower[PAIRS - 1]);
    fr_tool_bench_number(bench, "cpu_microseconds_per_sample", fr_tool_bench_median(cpu, PAIRS));
    fr_tool_bench_number(bench, "cpu_microseconds_per_sample_with", fr_tool_bench_median(cpu_with, PAIRS));
    fr_tool_bench_number(bench, "writer_cpu_seconds", fr_tool_bench_median(writer, PAIRS));
    fr_tool_bench_number(bench, "writer_cpu_percent", fr_tool_bench_median(share, PAIRS));
    fr_tool_bench_end(bench);
    return FR_TOOL_OK;
}

int fr_tool_bench_beside(struct fr_tool_bench *bench, struct fr_buffer *head, uint64_t rate)
{
    struct beside *beside = fr_alloc(1, sizeof(*beside));
    beside->rows = bench->rows ? bench->rows : ROWS;
    beside->rate = rate;
    for (uint32_t s = 0; s < bench->conf->n_slots; s++)
        beside->n_keys += bench->conf->slots[s].kind != FR_SLOT_DENSE ? bench->conf->ingest.batch_size : 0;
    int result = FR_TOOL_FAILED;
    if (fr_tool_scratch_make(beside->directory, sizeof(beside->directory))) {
        const struct fr_tool_stream fill = {in_order, beside};
        snprintf(beside->snapshots, sizeof(beside->snapshots), "%s/snapshots", beside->directory);
        beside->run.bench = bench;
        beside->run.name = "bench snapshot";
        beside->run.directory = beside->directory;
        beside->run.head = head;
        beside->run.unfolded_mib = UNFOLDED_MIB;
        fr_tool_bench_progress("snapshot: training %llu rows", (unsigned long long)beside->rows);
        result = fr_tool_run_open(&beside->run, 0);
        if (result == FR_TOOL_OK)
            result =
                fr_tool_run_train(&beside->run, &fill, 0, (beside->rows + beside->n_keys - 1) / beside->n_keys, NULL);
        if (result == FR_TOOL_OK)
            result = measure(beside);
        fr_tool_run_drain(&beside->run);
        fr_tool_run_close(&beside->run);
        fr_tool_scratch_remove(beside->directory);
    } else {
        fputs("freshet bench: no temporary directory could be made (TMPDIR)\n", stderr);
    }
    free(beside);
    return result;
}
