/* `freshet-bench tiers`: training on a table that is larger than row_memory.
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
#include "bench_run.h"
#include "process.h"
#include "tool.h"
#include "trainer/trainer.h"

enum {
    ROWS = 20000000,
    SETTLE_OF = 4,
    THREADS_MAX = 64, /* names of them */
};

/* Percent of the need; the first has no limit. */
static const uint32_t shares[] = {0, 100, 30, 10};

enum stream { FILL, ZIPF, UNIFORM };
static const char *const stream_names[] = {"fill", "zipf", "uniform"};

struct tiers {
    struct fr_bench *bench;
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
    struct fr_bench_run at;
    struct tiers *tiers;
};

/* ---- batches ---- */

struct numbers {
    const struct tiers *tiers;
    enum stream stream;
};

static uint64_t rank_of(const void *self, uint64_t number, uint32_t i)
{
    const struct numbers *numbers = self;
    const struct tiers *tiers = numbers->tiers;
    if (numbers->stream == FILL)
        return (number * tiers->n_keys + i) % tiers->rows;
    return numbers->stream == ZIPF ? tiers->ranks[number * tiers->n_keys + i]
                                   : fr_random_u64(3, 1, number, i) % tiers->rows;
}

static int train(struct run *run, enum stream stream, uint64_t first, uint64_t n, struct fr_bench_times *times)
{
    const struct numbers numbers = {run->tiers, stream};
    const struct fr_bench_stream ranks = {rank_of, &numbers};
    return fr_bench_run_train(&run->at, &ranks, first, n, times);
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
    if (fr_durable_fold(run->at.durable, &err) != FR_OK || fr_durable_restore(run->at.durable, &visitor, &err) != FR_OK)
        return fr_bench_fail("tiers", &err);
    return FR_TOOL_OK;
}

static uint64_t row_bytes(struct run *run)
{
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    fr_trainer_get_status(run->at.trainer, status);
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
    cpu[PART_COMPACTION] = fr_bench_cpu_seconds();
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
    fr_durable_get_status(run->at.durable, &durable);
    fr_trainer_get_status(run->at.trainer, status);
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
    struct fr_bench *bench = run->tiers->bench;
    struct traffic now = traffic_of(run);
    double asked = (double)(now.asked - before->asked), found = (double)(now.found - before->found);
    double ids = samples * run->tiers->n_keys / run->at.conf->ingest.batch_size;
    fr_bench_number(bench, "resident_percent", 100.0 * now.resident);
    fr_bench_number(bench, "hit_percent", 100.0 * (1.0 - found / ids));
    fr_bench_number(bench, "reads_per_sample", asked / samples);
    fr_bench_number(bench, "found_per_sample", found / samples);
    fr_bench_number(bench, "evictions_per_sample", (double)(now.evictions - before->evictions) / samples);
    for (int p = 0; p < PARTS; p++) {
        char name[64];
        snprintf(name, sizeof(name), "%s_microseconds_per_sample", part_names[p]);
        fr_bench_number(bench, name, (now.cpu[p] - before->cpu[p]) / samples * 1e6);
    }
}

static void report_stream(struct run *run, uint32_t share, enum stream stream, const struct traffic *before,
                          struct fr_bench_times *times)
{
    struct tiers *tiers = run->tiers;
    double seconds = 0.0, cpu = 0.0, samples = (double)times->n * run->at.conf->ingest.batch_size;
    char name[32];
    for (size_t i = 0; i < times->n; i++) {
        seconds += times->wall[i];
        cpu += times->cpu[i];
    }
    if (share == 0)
        tiers->rate_unlimited[stream] = samples / seconds, tiers->cpu_unlimited[stream] = cpu / samples;
    snprintf(name, sizeof(name), "tiers_%s", stream_names[stream]);
    fr_bench_begin(tiers->bench, name);
    fr_bench_number(tiers->bench, "rows", (double)tiers->rows);
    fr_bench_number(tiers->bench, "limit_percent", share);
    fr_bench_number(tiers->bench, "row_memory_mb", (double)run->at.conf->row_memory * 1e-6);
    fr_bench_number(tiers->bench, "rows_mb", (double)row_bytes(run) * 1e-6);
    fr_bench_number(tiers->bench, "rss_mb", (double)(run->at.rss_peak - run->at.rss_empty) * 1e-6);
    fr_bench_number(tiers->bench, "samples_per_second", samples / seconds);
    fr_bench_number(tiers->bench, "cpu_microseconds_per_sample", cpu / samples * 1e6);
    fr_bench_number(tiers->bench, "ratio_to_unlimited", samples / seconds / tiers->rate_unlimited[stream]);
    fr_bench_number(tiers->bench, "cpu_ratio_to_unlimited", tiers->cpu_unlimited[stream] * samples / cpu);
    report_traffic(run, before, samples);
    fr_bench_times_report(times, tiers->bench);
    fr_bench_end(tiers->bench);
}

static int train_stream(struct run *run, uint32_t share, enum stream stream)
{
    struct fr_bench_times times = {0};
    int result = train(run, stream, 0, run->tiers->n_settle, NULL);
    run->at.rss_peak = fr_resident_bytes();
    struct traffic before = traffic_of(run);
    if (result == FR_TOOL_OK)
        result = train(run, stream, run->tiers->n_settle, run->tiers->bench->batches, &times);
    if (result == FR_TOOL_OK)
        report_stream(run, share, stream, &before, &times);
    fr_bench_times_release(&times);
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
    fr_bench_begin(tiers->bench, "tiers_state");
    fr_bench_number(tiers->bench, "limit_percent", share);
    fr_bench_number(tiers->bench, "rows", (double)hash.rows);
    fr_bench_text(tiers->bench, "hash", text);
    fr_bench_end(tiers->bench);
    if (hash.images == tiers->hash_unlimited)
        return FR_TOOL_OK;
    fputs("freshet-bench: the state is not that of the run without a limit\n", stderr);
    return FR_TOOL_FAILED;
}

/* A run whose reading pauses for good is no failure of the benchmark: it has said so. */
static int run_share(struct tiers *tiers, uint32_t share)
{
    struct run *run = fr_alloc(1, sizeof(*run));
    uint64_t limit = tiers->need / 100 * share;
    fr_bench_progress("tiers: %u %% of the need (0: no limit), %" PRIu64 " rows", share, tiers->rows);
    *run = (struct run){{.bench = tiers->bench, .name = "tiers", .directory = tiers->directory}, tiers};
    int result = fr_bench_run_open(&run->at, limit);
    uint64_t fills = (tiers->rows + tiers->n_keys - 1) / tiers->n_keys;
    if (result == FR_TOOL_OK)
        result = train(run, FILL, 0, fills, NULL);
    if (result == FR_TOOL_OK)
        result = train_stream(run, share, ZIPF);
    if (result == FR_TOOL_OK)
        result = train_stream(run, share, UNIFORM);
    if (share == 0)
        tiers->need = row_bytes(run);
    fr_bench_run_drain(&run->at);
    if (result == FR_TOOL_OK)
        result = compare_state(run, share);
    bool stuck = run->at.stuck;
    fr_bench_run_close(&run->at);
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

int fr_bench_tiers(struct fr_bench *bench)
{
    struct tiers tiers = {
        .bench = bench, .rows = bench->rows ? bench->rows : ROWS, .n_settle = (uint32_t)(bench->batches / SETTLE_OF)};
    for (uint32_t s = 0; s < bench->conf->n_slots; s++)
        tiers.n_keys += fr_slot_has_rows(bench->conf->slots[s].kind) ? bench->conf->ingest.batch_size : 0;
    if (tiers.rows > UINT32_MAX) {
        fputs("freshet-bench: tiers takes at most 4294967295 rows\n", stderr);
        return FR_TOOL_USAGE;
    }
    draw_ranks(&tiers);
    int result = FR_TOOL_OK;
    uint32_t only[] = {0, bench->limit};
    const uint32_t *runs = bench->limit ? only : shares;
    for (size_t i = 0; i < (bench->limit ? FR_ARRAY_LEN(only) : FR_ARRAY_LEN(shares)) && result == FR_TOOL_OK; i++) {
        result = FR_TOOL_FAILED;
        if (!fr_bench_scratch_make(tiers.directory, sizeof(tiers.directory))) {
            fputs("freshet-bench: no temporary directory could be made (TMPDIR)\n", stderr);
            break;
        }
        result = run_share(&tiers, runs[i]);
        fr_bench_scratch_remove(tiers.directory);
    }
    free(tiers.ranks);
    return result;
}
