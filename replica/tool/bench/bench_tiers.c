/* `freshet bench tiers`: training on a table that is larger than row_memory.
 *
 * R16 with one id space for all slots, in this process: trainer, journal and folds with the
 * threads the daemon gives them, no Kafka and no publisher. First every row is made and trained
 * once. Then ids come by Zipf 1.05 over all rows, then uniformly, each after a quarter of the
 * batches to settle. The first run has no limit: what its indexes and rows then take is the
 * need, and the others get 100, 30 and 10 % of it, or --limit percent. All runs train the same
 * batches, so their states, as a hash over all images and dense parameters, must be equal.
 *
 * The lines say where the processor time goes that a table in memory does not need. A batch's time
 * is that between two batches coming back. A run whose reading pauses for good says so.
 *
 * Thread: the caller's (owner loop), one that appends, one that folds, the pool's. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/random.h"
#include "base/resident.h"
#include "base/thread.h"
#include "bench/bench_table.h"
#include "bench/process.h"
#include "tool.h"
#include "trainer/trainer.h"

enum {
    ROWS = 20000000,
    SETTLE_OF = 4,
    IN_FLIGHT = 3, /* batches: trained, planned, next */
    STAGES = 2,
    STUCK_S = 60, /* without a batch: reading pauses for good */
    NAP_MS = 20,
    OWNER_NAP_MS = 2, /* as the daemon's owner loop */
    BATCH_MS = 20,    /* event time of a batch */
    LOOK_BATCHES = 16,
    UNFOLDED_OF = 4,      /* as unfolded_max of memory_limit */
    UNFOLDED_MIN_MIB = 8, /* more than what an epoch has of the network */
    THREADS_MAX = 64,     /* names of them */
};

/* Percent of the need; the first has no limit. */
static const uint32_t shares[] = {0, 100, 30, 10};

enum stream { FILL, ZIPF, UNIFORM };
static const char *const stream_names[] = {"fill", "zipf", "uniform"};

struct tiers {
    struct fr_tool_bench *bench;
    uint64_t rows;
    uint32_t *ranks; /* of the zipf stream: [batches][keys of a batch] */
    uint32_t n_keys, n_settle;
    char directory[4096];
    double rate_unlimited[3];      /* by stream */
    double cpu_unlimited[3];       /* seconds a sample */
    uint64_t need, hash_unlimited; /* need: bytes of indexes and rows */
};

/* One run: a trainer and a state directory. */
struct run {
    struct tiers *tiers;
    struct fr_conf *conf;
    struct fr_pool *pool;
    struct fr_ring *full, *empty, *cut_stages, *free_stages;
    struct fr_stage stages[STAGES];
    struct fr_gate_count gate_config;
    struct fr_table_policies policies;
    struct fr_trainer *trainer;
    struct fr_durable *durable;
    pthread_t append_thread, fold_thread;
    atomic_bool stop, failed, fold_wanted;
    struct fr_err append_err, fold_err; /* of the thread that failed */
    uint64_t n_batches;                 /* of the history: event time goes by it */
    uint64_t rss_empty, rss_peak;
    bool started, stuck;
};

static void nap(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* ---- threads ---- */

static void *append_main(void *self)
{
    struct run *run = self;
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

static enum fr_pause pressure(const struct run *run, const struct fr_durable_status *durable)
{
    if (durable->unfolded_bytes >= 2 * run->conf->unfolded_max)
        return FR_PAUSE_UNFOLDED;
    return durable->level0_files >= FR_LEVEL0_FILES_MAX ? FR_PAUSE_COMPACTION : FR_PAUSE_NONE;
}

static void *fold_main(void *self)
{
    struct run *run = self;
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

/* limit 0: none. */
static int load_conf(struct run *run, uint64_t limit)
{
    char rows[64], unfolded[64], directory[4200];
    snprintf(rows, sizeof(rows), "row_memory=%" PRIu64 "MiB", (limit >> 20) + 1);
    uint64_t quarter = limit / UNFOLDED_OF >> 20;
    snprintf(unfolded, sizeof(unfolded), "unfolded_max=%" PRIu64 "MiB",
             quarter < UNFOLDED_MIN_MIB ? UNFOLDED_MIN_MIB : quarter);
    snprintf(directory, sizeof(directory), "state_dir=%s", run->tiers->directory);
    const char *sets[] = {"memory_limit=1TiB", directory, rows, unfolded};
    struct fr_buffer problems = {0};
    struct fr_conf_load_options options = {
        .path = run->tiers->bench->config, .sets = sets, .n_sets = limit ? FR_ARRAY_LEN(sets) : 2};
    enum fr_status status = fr_conf_load(&options, &run->conf, &problems);
    if (status != FR_OK)
        fprintf(stderr, "freshet bench: %.*s\n", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&problems);
    return status == FR_OK ? FR_TOOL_OK : FR_TOOL_FAILED;
}

static void open_rings(struct run *run)
{
    run->full = fr_ring_new(IN_FLIGHT);
    run->empty = fr_ring_new(IN_FLIGHT);
    run->cut_stages = fr_ring_new(STAGES);
    run->free_stages = fr_ring_new(STAGES);
    for (int i = 0; i < IN_FLIGHT; i++) {
        struct fr_batch *batch = fr_tool_batch_new(run->conf);
        bool pushed = fr_ring_try_push(run->empty, batch);
        FR_CHECK(pushed);
    }
    for (int i = 0; i < STAGES; i++) {
        fr_stage_init(&run->stages[i]);
        bool pushed = fr_ring_try_push(run->free_stages, &run->stages[i]);
        FR_CHECK(pushed);
    }
}

static void open_trainer(struct run *run)
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

static int open_run(struct run *run, struct tiers *tiers, uint64_t limit)
{
    struct fr_err err = {0};
    *run = (struct run){.tiers = tiers};
    if (load_conf(run, limit) != FR_TOOL_OK)
        return FR_TOOL_FAILED;
    run->pool = fr_pool_new(tiers->bench->threads);
    open_rings(run);
    open_trainer(run);
    run->rss_empty = run->rss_peak = fr_tool_rss_bytes();
    struct fr_durable_options options = {.dir = tiers->directory, .salt = 1, .fold_bytes = run->conf->unfolded_max};
    struct fr_trainer_restore_options nothing = {0}; /* the directory is new */
    if (fr_durable_open(&options, &run->durable, &err) != FR_OK ||
        fr_trainer_restore(run->trainer, run->durable, &nothing, &err) != FR_OK)
        return fr_tool_fail("bench tiers", &err);
    run->started = true;
    bool begun = fr_thread_start(&run->append_thread, "append", append_main, run) &&
                 fr_thread_start(&run->fold_thread, "fold", fold_main, run);
    FR_CHECK(begun);
    return FR_TOOL_OK;
}

/* The last epoch, and the threads' end. */
static void drain(struct run *run)
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

static void close_run(struct run *run)
{
    void *batch;
    while (run->empty && fr_ring_pop(run->empty, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    while (run->full && fr_ring_pop(run->full, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    fr_trainer_free(run->trainer);
    fr_durable_close(run->durable);
    for (int i = 0; i < STAGES; i++)
        fr_stage_release(&run->stages[i]);
    fr_ring_free(run->full);
    fr_ring_free(run->empty);
    fr_ring_free(run->cut_stages);
    fr_ring_free(run->free_stages);
    fr_pool_free(run->pool);
    fr_conf_free(run->conf);
}

/* ---- batches ---- */

static uint64_t rank_of(const struct tiers *tiers, enum stream stream, uint64_t number, uint32_t i)
{
    if (stream == FILL)
        return (number * tiers->n_keys + i) % tiers->rows;
    return stream == ZIPF ? tiers->ranks[number * tiers->n_keys + i] : fr_random_u64(3, 1, number, i) % tiers->rows;
}

static void fill_batch(struct run *run, struct fr_batch *batch, enum stream stream, uint64_t number)
{
    uint32_t n = 0;
    fr_tool_batch_refill(batch, INT64_C(1767225600000) + (int64_t)run->n_batches++ * BATCH_MS);
    for (uint32_t s = 0; s < batch->n_slots; s++) {
        struct fr_column *column = &batch->columns[s];
        for (uint32_t i = 0; column->keys && i < batch->n_samples; i++)
            column->keys[i] = fr_tool_table_key(rank_of(run->tiers, stream, number, n++));
    }
}

/* Batches back from the trainer are filled and offered again, as long as there are any to come. */
static uint64_t offer(struct run *run, enum stream stream, uint64_t offered, uint64_t n, uint64_t in_flight)
{
    void *batch;
    while (offered < n && in_flight < IN_FLIGHT && fr_ring_pop(run->empty, &batch, 0) == FR_OK) {
        fill_batch(run, batch, stream, offered++);
        bool pushed = fr_ring_try_push(run->full, batch);
        FR_CHECK(pushed);
        in_flight++;
    }
    return offered;
}

static int say_stuck(struct run *run)
{
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    fr_trainer_get_status(run->trainer, status);
    fr_tool_bench_progress("tiers: no batch for %d s: %s", STUCK_S, status->paused);
    run->stuck = true;
    free(status);
    return FR_TOOL_FAILED;
}

static void look(struct run *run, uint64_t trained)
{
    uint64_t now = trained % LOOK_BATCHES == 0 ? fr_resident_bytes() : 0;
    run->rss_peak = now > run->rss_peak ? now : run->rss_peak;
}

/* Trains n batches of the stream, the first of which has the number `first`; times NULL: not
 * measured. */
static int train(struct run *run, enum stream stream, uint64_t first, uint64_t n, struct fr_tool_times *times)
{
    struct fr_err err = {0};
    uint64_t offered = first, end = first + n, trained = first;
    double last = fr_tool_bench_now();
    int result = FR_TOOL_OK;
    if (times)
        fr_tool_times_begin(times);
    while (trained < end && result == FR_TOOL_OK) {
        offered = offer(run, stream, offered, end, offered - trained);
        size_t waiting = fr_ring_count(run->empty);
        enum fr_status stepped = fr_trainer_step(run->trainer, &err);
        if (stepped < 0)
            result = fr_tool_fail("bench tiers", &err);
        else if (atomic_load(&run->failed))
            result = fr_tool_fail("bench tiers", run->append_err.status < 0 ? &run->append_err : &run->fold_err);
        else if (fr_ring_count(run->empty) == waiting && fr_tool_bench_now() - last > STUCK_S)
            result = say_stuck(run);
        else if (stepped == FR_AGAIN && fr_ring_count(run->empty) == waiting)
            nap(OWNER_NAP_MS);
        for (; fr_ring_count(run->empty) > waiting; waiting++) {
            look(run, ++trained);
            last = fr_tool_bench_now();
            if (times)
                fr_tool_times_end(times);
            if (times && trained < end)
                fr_tool_times_begin(times);
        }
    }
    return result;
}

/* ---- what is equal and what is printed ---- */

struct state_hash {
    uint64_t images, rows;
};

/* Images come in any order: a sum of hashes. */
static enum fr_status hash_image(void *self, size_t thread, const struct fr_image *image)
{
    (void)thread;
    struct state_hash *hash = self;
    uint64_t seed = image->key ^ (uint64_t)image->kind << 62 ^ (uint64_t)image->table << 32;
    hash->images += fr_xxh3_seed(image->bytes, image->size, fr_fmix64(seed));
    hash->rows += image->kind == FR_IMAGE_ROW;
    return FR_OK;
}

static enum fr_status hash_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct state_hash *hash = self;
    if (strncmp(name, "dense", 5) == 0) /* values, and optimizer state */
        hash->images += fr_xxh3_seed(bytes, size, fr_xxh3_seed(name, strlen(name), 1));
    return FR_OK;
}

/* Of the drained state, all of it folded, so that a key has one image. */
static int hash_state(struct run *run, struct state_hash *hash)
{
    struct fr_err err = {0};
    struct fr_restore_visitor visitor = {.self = hash, .image = hash_image, .section = hash_section};
    if (fr_durable_fold(run->durable, &err) != FR_OK || fr_durable_restore(run->durable, &visitor, &err) != FR_OK)
        return fr_tool_fail("bench tiers", &err);
    return FR_TOOL_OK;
}

static uint64_t row_bytes(struct run *run)
{
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    fr_trainer_get_status(run->trainer, status);
    uint64_t bytes = status->tables[0].stats.bytes;
    free(status);
    return bytes;
}

enum part { PART_LOOKOUT, PART_APPEND, PART_FOLD, PART_COMPACTION, PARTS };
static const char *const part_names[] = {"lookout", "append", "fold", "compaction"};

/* What has been asked of the cold store so far, and what left memory. */
struct traffic {
    uint64_t asked, found, evictions;
    double resident;   /* of the keys, the share in memory */
    double cpu[PARTS]; /* seconds */
};

/* Seconds of processor time of the threads that a table in memory does not need. RocksDB's end with
 * each compaction: theirs is what all the others have not taken. */
static void take_times(double cpu[PARTS])
{
    struct fr_thread_time times[THREADS_MAX];
    size_t n = fr_thread_times(times, FR_ARRAY_LEN(times));
    cpu[PART_COMPACTION] = fr_tool_cpu_seconds();
    for (int p = 0; p < PART_COMPACTION; p++)
        cpu[p] = 0;
    for (size_t i = 0; i < n; i++) {
        for (int p = 0; p < PART_COMPACTION; p++)
            if (strcmp(times[i].name, part_names[p]) == 0)
                cpu[p] = (double)times[i].ns * 1e-9;
        if (strncmp(times[i].name, "rocksdb", 7) != 0)
            cpu[PART_COMPACTION] -= (double)times[i].ns * 1e-9;
    }
}

static struct traffic traffic_of(struct run *run)
{
    struct fr_durable_status durable;
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    fr_durable_get_status(run->durable, &durable);
    fr_trainer_get_status(run->trainer, status);
    const struct fr_store_table_stats *stats = &status->tables[0].stats;
    uint64_t keys = stats->counts.rows + stats->counts.pending;
    struct traffic traffic = {.asked = durable.cold_asked,
                              .found = durable.cold_found,
                              .evictions = stats->evictions,
                              .resident = keys ? (double)stats->resident / (double)keys : 1.0};
    take_times(traffic.cpu);
    free(status);
    return traffic;
}

/* A hit is an id of a sample whose row was in memory, once for each batch and key that had to be
 * fetched. */
static void report_traffic(struct run *run, const struct traffic *before, double samples)
{
    struct fr_tool_bench *bench = run->tiers->bench;
    struct traffic now = traffic_of(run);
    double asked = (double)(now.asked - before->asked), found = (double)(now.found - before->found);
    double ids = samples * run->tiers->n_keys / run->conf->ingest.batch_size;
    fr_tool_bench_number(bench, "resident_percent", 100.0 * now.resident);
    fr_tool_bench_number(bench, "hit_percent", 100.0 * (1.0 - found / ids));
    fr_tool_bench_number(bench, "reads_per_sample", asked / samples);
    fr_tool_bench_number(bench, "found_per_sample", found / samples);
    fr_tool_bench_number(bench, "evictions_per_sample", (double)(now.evictions - before->evictions) / samples);
    for (int p = 0; p < PARTS; p++) {
        char name[64];
        snprintf(name, sizeof(name), "%s_microseconds_per_sample", part_names[p]);
        fr_tool_bench_number(bench, name, (now.cpu[p] - before->cpu[p]) / samples * 1e6);
    }
}

static void report_stream(struct run *run, uint32_t share, enum stream stream, const struct traffic *before,
                          struct fr_tool_times *times)
{
    struct tiers *tiers = run->tiers;
    double seconds = 0.0, cpu = 0.0, samples = (double)times->n * run->conf->ingest.batch_size;
    char name[32];
    for (size_t i = 0; i < times->n; i++) {
        seconds += times->wall[i];
        cpu += times->cpu[i];
    }
    if (share == 0)
        tiers->rate_unlimited[stream] = samples / seconds, tiers->cpu_unlimited[stream] = cpu / samples;
    snprintf(name, sizeof(name), "tiers_%s", stream_names[stream]);
    fr_tool_bench_begin(tiers->bench, name);
    fr_tool_bench_number(tiers->bench, "rows", (double)tiers->rows);
    fr_tool_bench_number(tiers->bench, "limit_percent", share);
    fr_tool_bench_number(tiers->bench, "row_memory_mb", (double)run->conf->row_memory * 1e-6);
    fr_tool_bench_number(tiers->bench, "rows_mb", (double)row_bytes(run) * 1e-6);
    fr_tool_bench_number(tiers->bench, "rss_mb", (double)(run->rss_peak - run->rss_empty) * 1e-6);
    fr_tool_bench_number(tiers->bench, "samples_per_second", samples / seconds);
    fr_tool_bench_number(tiers->bench, "cpu_microseconds_per_sample", cpu / samples * 1e6);
    fr_tool_bench_number(tiers->bench, "ratio_to_unlimited", samples / seconds / tiers->rate_unlimited[stream]);
    fr_tool_bench_number(tiers->bench, "cpu_ratio_to_unlimited", tiers->cpu_unlimited[stream] * samples / cpu);
    report_traffic(run, before, samples);
    fr_tool_times_report(times, tiers->bench);
    fr_tool_bench_end(tiers->bench);
}

static int train_stream(struct run *run, uint32_t share, enum stream stream)
{
    struct fr_tool_times times = {0};
    int result = train(run, stream, 0, run->tiers->n_settle, NULL);
    run->rss_peak = fr_resident_bytes();
    struct traffic before = traffic_of(run);
    if (result == FR_TOOL_OK)
        result = train(run, stream, run->tiers->n_settle, run->tiers->bench->batches, &times);
    if (result == FR_TOOL_OK)
        report_stream(run, share, stream, &before, &times);
    fr_tool_times_release(&times);
    return result;
}

static int compare_state(struct run *run, uint32_t share)
{
    struct tiers *tiers = run->tiers;
    struct state_hash hash = {0};
    if (hash_state(run, &hash) != FR_TOOL_OK)
        return FR_TOOL_FAILED;
    if (share == 0)
        tiers->hash_unlimited = hash.images;
    char text[32];
    snprintf(text, sizeof(text), "%016" PRIx64, hash.images);
    fr_tool_bench_begin(tiers->bench, "tiers_state");
    fr_tool_bench_number(tiers->bench, "limit_percent", share);
    fr_tool_bench_number(tiers->bench, "rows", (double)hash.rows);
    fr_tool_bench_text(tiers->bench, "hash", text);
    fr_tool_bench_end(tiers->bench);
    if (hash.images == tiers->hash_unlimited)
        return FR_TOOL_OK;
    fputs("freshet bench: the state is not that of the run without a limit\n", stderr);
    return FR_TOOL_FAILED;
}

/* A run whose reading pauses for good is no failure of the benchmark: it has said so. */
static int run_share(struct tiers *tiers, uint32_t share)
{
    struct run *run = fr_alloc(1, sizeof(*run));
    uint64_t limit = tiers->need / 100 * share;
    fr_tool_bench_progress("tiers: %u %% of the need (0: no limit), %" PRIu64 " rows", share, tiers->rows);
    int result = open_run(run, tiers, limit);
    uint64_t fills = (tiers->rows + tiers->n_keys - 1) / tiers->n_keys;
    if (result == FR_TOOL_OK)
        result = train(run, FILL, 0, fills, NULL);
    if (result == FR_TOOL_OK)
        result = train_stream(run, share, ZIPF);
    if (result == FR_TOOL_OK)
        result = train_stream(run, share, UNIFORM);
    if (share == 0)
        tiers->need = row_bytes(run);
    drain(run);
    if (result == FR_TOOL_OK)
        result = compare_state(run, share);
    bool stuck = run->stuck;
    close_run(run);
    free(run);
    return stuck ? FR_TOOL_OK : result;
}

static void draw_ranks(struct tiers *tiers)
{
    struct fr_tool_zipf zipf;
    size_t n = (size_t)(tiers->bench->batches + tiers->n_settle) * tiers->n_keys;
    tiers->ranks = fr_alloc(n, sizeof(*tiers->ranks));
    fr_tool_zipf_init(&zipf, (uint32_t)tiers->rows, 1.05);
    for (size_t i = 0; i < n; i++)
        tiers->ranks[i] = fr_zipf_rank(&zipf, fr_random_u64(2, 1, i, 0));
    fr_tool_zipf_release(&zipf);
}

int fr_tool_bench_tiers(struct fr_tool_bench *bench)
{
    struct tiers tiers = {
        .bench = bench, .rows = bench->rows ? bench->rows : ROWS, .n_settle = (uint32_t)(bench->batches / SETTLE_OF)};
    for (uint32_t s = 0; s < bench->conf->n_slots; s++)
        tiers.n_keys += bench->conf->slots[s].kind != FR_SLOT_DENSE ? bench->conf->ingest.batch_size : 0;
    if (tiers.rows > UINT32_MAX) {
        fputs("freshet bench: tiers takes at most 4294967295 rows\n", stderr);
        return FR_TOOL_USAGE;
    }
    draw_ranks(&tiers);
    int result = FR_TOOL_OK;
    uint32_t only[] = {0, bench->limit};
    const uint32_t *runs = bench->limit ? only : shares;
    for (size_t i = 0; i < (bench->limit ? FR_ARRAY_LEN(only) : FR_ARRAY_LEN(shares)) && result == FR_TOOL_OK; i++) {
        result = FR_TOOL_FAILED;
        if (!fr_tool_scratch_make(tiers.directory, sizeof(tiers.directory))) {
            fputs("freshet bench: no temporary directory could be made (TMPDIR)\n", stderr);
            break;
        }
        result = run_share(&tiers, runs[i]);
        fr_tool_scratch_remove(tiers.directory);
    }
    free(tiers.ranks);
    return result;
}
