/* Training with and without a snapshot at the same time; a part of `freshet-bench snapshot`.
 *
 * A trainer with journal and folds (bench_run.h) makes all rows of R16 with one id space for all
 * slots, about 1 GB of them, and continues with ids by Zipf 1.05, while a thread at the daemon's
 * nice level writes snapshots of the cold store at the default `snapshot.rate`. The writer passes a
 * gate at each record. Windows of a second alternate between an open and a shut gate, and pairs of
 * windows alternate in which comes first: other work of the machine moves both windows of a pair,
 * and the median of many pairs has an interval narrow enough for an aim of a few percent. A window
 * with an open gate ends when the writer has stopped at it. Folds are small, so that each window
 * has its share of them.
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
#include "bench_run.h"
#include "process.h"
#include "exporter/snapshot.h"
#include "tool.h"

enum { ROWS = 8500000, PAIRS = 144, CHUNK = 4, SETTLE = 64, UNFOLDED_MIB = 64, NICE = 15 };
/* Ranks of 144 sorted values between which their median lies with 97 % (sign test). */
enum { RANK_LOW = 59, RANK_HIGH = 86 };
static const double window_seconds = 1;

struct beside {
    struct fr_bench_run run;
    uint64_t rows, next; /* of the stream */
    uint32_t n_keys;
    uint64_t rate;
    struct fr_tool_zipf zipf;
    char directory[4096], snapshots[4200];
    bool writing;
    pthread_t writer;
    uint64_t n_written;
    atomic_bool open, ends; /* the gate; the writer gives up */
    /* the writer's */
    atomic_bool parked, written;
    enum fr_status status;
    struct fr_err err;
    struct fr_snapshot snapshot;
};

struct window {
    uint64_t samples;
    double seconds, cpu, writer_cpu; /* cpu: of all threads but the writer */
};

static uint64_t in_order(const void *self, uint64_t number, uint32_t i)
{
    const struct beside *beside = self;
    return (number * beside->n_keys + i) % beside->rows;
}

static uint64_t by_zipf(const void *self, uint64_t number, uint32_t i)
{
    const struct beside *beside = self;
    return fr_zipf_rank(&beside->zipf, fr_random_u64(3, 1, number, i));
}

static void pass_gate(void *self)
{
    struct beside *beside = self;
    while (!atomic_load(&beside->open) && !atomic_load(&beside->ends)) {
        atomic_store(&beside->parked, true);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    atomic_store(&beside->parked, false);
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
                                                .rate = beside->rate,
                                                .stop = &beside->ends,
                                                .progress = pass_gate,
                                                .self = beside};
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    pass_gate(beside);
    beside->status = fr_snapshot_write(&options, &beside->snapshot, &beside->err);
    atomic_store(&beside->written, true);
    return NULL;
}

/* ---- windows ---- */

static int train(struct beside *beside, uint64_t batches)
{
    const struct fr_bench_stream stream = {by_zipf, beside};
    int result = fr_bench_run_train(&beside->run, &stream, beside->next, batches, NULL);
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

static int begin_writing(struct beside *beside)
{
    atomic_store(&beside->open, false);
    atomic_store(&beside->written, false);
    beside->writing = fr_thread_start(&beside->writer, "snapshot", write_main, beside);
    if (!beside->writing)
        fputs("freshet-bench: no thread could be started\n", stderr);
    return beside->writing ? FR_TOOL_OK : FR_TOOL_FAILED;
}

static int end_writing(struct beside *beside)
{
    if (!beside->writing)
        return FR_TOOL_OK;
    pthread_join(beside->writer, NULL);
    beside->writing = false;
    if (beside->status == FR_E_CANCELLED)
        return FR_TOOL_OK;
    beside->n_written++;
    if (beside->status == FR_OK)
        beside->status = fr_snapshot_remove(beside->snapshots, beside->snapshot.name, &beside->err);
    return beside->status == FR_OK ? FR_TOOL_OK : fr_bench_fail(beside->run.name, &beside->err);
}

static double writer_cpu(const struct beside *beside)
{
    clockid_t clock;
    struct timespec now;
    if (!beside->writing || pthread_getcpuclockid(beside->writer, &clock) != 0 || clock_gettime(clock, &now) != 0)
        return 0;
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int train_window(struct beside *beside, bool with, struct window *window)
{
    uint64_t batches = 0;
    int result = FR_TOOL_OK;
    double began = fr_bench_now(), cpu = fr_bench_cpu_seconds(), writer = writer_cpu(beside), seconds = 0;
    atomic_store(&beside->parked, !with);
    atomic_store(&beside->open, with);
    while (result == FR_TOOL_OK && (seconds < window_seconds || !atomic_load(&beside->parked))) {
        result = train(beside, CHUNK);
        batches += CHUNK;
        seconds = fr_bench_now() - began;
        if (seconds >= window_seconds || atomic_load(&beside->written))
            atomic_store(&beside->open, false);
        if (with && atomic_load(&beside->written))
            break;
    }
    writer = writer_cpu(beside) - writer;
    *window = (struct window){batches * beside->run.conf->ingest.batch_size, seconds,
                              fr_bench_cpu_seconds() - cpu - writer, writer};
    return result;
}

/* A window with the writer and one without; one that its end cuts short is not taken. */
static int train_pair(struct beside *beside, bool with_first, struct window *with, struct window *without)
{
    int result = FR_TOOL_OK;
    bool whole = false;
    while (result == FR_TOOL_OK && !whole) {
        if (atomic_load(&beside->written))
            result = end_writing(beside);
        if (result == FR_TOOL_OK && !beside->writing)
            result = fold(beside);
        if (result == FR_TOOL_OK && !beside->writing)
            result = begin_writing(beside);
        if (result == FR_TOOL_OK)
            result = train_window(beside, with_first, with_first ? with : without);
        whole = result == FR_TOOL_OK && !atomic_load(&beside->written);
        if (whole) {
            result = train_window(beside, !with_first, with_first ? without : with);
            whole = !atomic_load(&beside->written);
        }
    }
    return result;
}

struct pairs {
    double slower[PAIRS], rate[PAIRS], rate_with[PAIRS], cpu[PAIRS], cpu_with[PAIRS], share[PAIRS];
};

static void note_pair(struct pairs *pairs, int i, const struct window *with, const struct window *without)
{
    pairs->rate[i] = (double)without->samples / without->seconds;
    pairs->rate_with[i] = (double)with->samples / with->seconds;
    pairs->slower[i] = 100.0 * (1.0 - pairs->rate_with[i] / pairs->rate[i]);
    pairs->cpu[i] = without->cpu / (double)without->samples * 1e6;
    pairs->cpu_with[i] = with->cpu / (double)with->samples * 1e6;
    pairs->share[i] = 100.0 * with->writer_cpu / with->seconds;
}

static void print_pairs(const struct beside *beside, struct pairs *pairs)
{
    struct fr_bench *bench = beside->run.bench;
    fr_bench_begin(bench, "snapshot_beside_training");
    fr_bench_number(bench, "rows", (double)beside->rows);
    fr_bench_number(bench, "snapshots_written", (double)beside->n_written);
    fr_bench_number(bench, "pairs", PAIRS);
    fr_bench_number(bench, "samples_per_second", fr_bench_median(pairs->rate, PAIRS));
    fr_bench_number(bench, "samples_per_second_with", fr_bench_median(pairs->rate_with, PAIRS));
    fr_bench_number(bench, "slower_percent", fr_bench_median(pairs->slower, PAIRS));
    fr_bench_number(bench, "slower_percent_low", pairs->slower[RANK_LOW - 1]); /* sorted now */
    fr_bench_number(bench, "slower_percent_high", pairs->slower[RANK_HIGH - 1]);
    fr_bench_number(bench, "cpu_microseconds_per_sample", fr_bench_median(pairs->cpu, PAIRS));
    fr_bench_number(bench, "cpu_microseconds_per_sample_with", fr_bench_median(pairs->cpu_with, PAIRS));
    fr_bench_number(bench, "writer_percent_of_a_core", fr_bench_median(pairs->share, PAIRS));
    fr_bench_end(bench);
}

static int measure(struct beside *beside)
{
    struct window with, without;
    struct pairs pairs;
    int result = train(beside, SETTLE);
    for (int i = 0; i < PAIRS && result == FR_TOOL_OK; i++) {
        fr_bench_progress("snapshot: beside training, pair %d of %d", i + 1, PAIRS);
        result = train_pair(beside, i % 2 == 0, &with, &without);
        if (result == FR_TOOL_OK)
            note_pair(&pairs, i, &with, &without);
    }
    atomic_store(&beside->ends, true);
    int ended = end_writing(beside);
    if (result == FR_TOOL_OK && ended == FR_TOOL_OK)
        print_pairs(beside, &pairs);
    return result == FR_TOOL_OK ? ended : result;
}

int fr_bench_beside(struct fr_bench *bench, struct fr_buffer *head, uint64_t rate)
{
    struct beside *beside = fr_alloc(1, sizeof(*beside));
    beside->rows = bench->rows ? bench->rows : ROWS;
    beside->rate = rate;
    for (uint32_t s = 0; s < bench->conf->n_slots; s++)
        beside->n_keys += fr_slot_has_rows(bench->conf->slots[s].kind) ? bench->conf->ingest.batch_size : 0;
    int result = FR_TOOL_FAILED;
    if (beside->rows > UINT32_MAX) {
        fputs("freshet-bench: snapshot takes at most 4294967295 rows\n", stderr);
    } else if (fr_bench_scratch_make(beside->directory, sizeof(beside->directory))) {
        const struct fr_bench_stream fill = {in_order, beside};
        snprintf(beside->snapshots, sizeof(beside->snapshots), "%s/snapshots", beside->directory);
        beside->run.bench = bench;
        beside->run.name = "snapshot";
        beside->run.directory = beside->directory;
        beside->run.head = head;
        beside->run.unfolded_mib = UNFOLDED_MIB;
        fr_bench_progress("snapshot: training %llu rows", (unsigned long long)beside->rows);
        fr_tool_zipf_init(&beside->zipf, (uint32_t)beside->rows, 1.05);
        result = fr_bench_run_open(&beside->run, 0);
        if (result == FR_TOOL_OK)
            result =
                fr_bench_run_train(&beside->run, &fill, 0, (beside->rows + beside->n_keys - 1) / beside->n_keys, NULL);
        if (result == FR_TOOL_OK)
            result = measure(beside);
        fr_tool_zipf_release(&beside->zipf);
        fr_bench_run_drain(&beside->run);
        fr_bench_run_close(&beside->run);
        fr_bench_scratch_remove(beside->directory);
    } else {
        fputs("freshet-bench: no temporary directory could be made (TMPDIR)\n", stderr);
    }
    free(beside);
    return result;
}
