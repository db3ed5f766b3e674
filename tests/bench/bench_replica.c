/* A replica under load: two threads look rows up and score, first alone, then while a third applies
 * 200,000 changed rows a second. Processor time of each thread beside the wall clock, which on a
 * machine with less than three idle cores is the scheduler's. Rows are R16's (dim 16), keys of a
 * lookup come in batches of 1024, a score is one sample.
 *
 * Thread: the caller's feeds. It does not check values (tests/unit/replica/test_readers.c does). */
#include <freshet/reader.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/hash.h"
#include "bench.h"
#include "codec/codec.h"
#include "decode/decoder.h"
#include "graph/graph.h"
#include "tool.h"

enum { READERS = 2, BATCH = 1024, ROWS = 500000, CHANGED = 20000, STEP_MS = 100, PHASE_MS = 4000, TIMES_MAX = 1 << 18 };
enum { PIECE_MAX = 1 << 20, DIM = 16, SAMPLES = 256 };

struct reading {
    struct freshet_replica *replica;
    const uint64_t *keys;
    size_t n_keys;
    const struct fr_buffer *samples; /* [SAMPLES] */
    atomic_int *done;
    uint64_t lookups;
    double lookup_cpu_s, lookup_wall_s;
    size_t n_times;
    double *cpu_s, *wall_s; /* [TIMES_MAX] of scores */
};

struct epochs {
    struct freshet_replica *replica;
    struct fr_codec_settings settings;
    struct fr_delta_dense *dense;
    size_t n_dense;
    uint64_t epoch, digest;
    float *values;             /* [ROWS * DIM] */
    struct fr_delta_row *rows; /* [ROWS] */
    double feed_s_max;
};

/* ---- readers ---- */

static void look_up(struct reading *reading, struct freshet_reader *reader, size_t *at)
{
    static _Thread_local float values[BATCH * DIM];
    static _Thread_local uint8_t found[BATCH];
    struct freshet_lookup lookup = {
        .table = "ids", .n = BATCH, .found = found, .values = values, .capacity = (size_t)BATCH * DIM};
    double wall = fr_bench_now(), cpu = fr_bench_thread_seconds();
    for (int i = 0; i < 16; i++) {
        lookup.keys = reading->keys + *at;
        *at = (*at + BATCH) % (reading->n_keys - BATCH);
        FR_CHECK(freshet_reader_lookup(reader, &lookup) == FRESHET_OK);
        reading->lookups += BATCH;
    }
    reading->lookup_cpu_s += fr_bench_thread_seconds() - cpu;
    reading->lookup_wall_s += fr_bench_now() - wall;
}

static void *run_reading(void *self)
{
    struct reading *reading = self;
    struct freshet_reader *reader = NULL;
    size_t at = 0;
    float score;
    FR_CHECK(freshet_reader_new(reading->replica, &reader) == FRESHET_OK);
    for (uint64_t i = 0; !atomic_load(reading->done); i++) {
        if (i % 64 == 0)
            look_up(reading, reader, &at);
        const struct fr_buffer *sample = &reading->samples[i % SAMPLES];
        uint32_t n = 1;
        double wall = fr_bench_now(), cpu = fr_bench_thread_seconds();
        FR_CHECK(freshet_reader_score(reader, FRESHET_MSGPACK, sample->data, sample->size, &score, &n) == FRESHET_OK);
        reading->cpu_s[reading->n_times % TIMES_MAX] = fr_bench_thread_seconds() - cpu;
        reading->wall_s[reading->n_times++ % TIMES_MAX] = fr_bench_now() - wall;
    }
    freshet_reader_free(reader);
    return NULL;
}

/* ---- the feeder ---- */

static enum fr_status feed(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct epochs *epochs = self;
    struct freshet_event event;
    (void)piece;
    double begin = fr_bench_now();
    int status = freshet_replica_feed(epochs->replica, partition, bytes, size, &event);
    double took = fr_bench_now() - begin;
    epochs->feed_s_max = took > epochs->feed_s_max ? took : epochs->feed_s_max;
    return status == FRESHET_OK ? FR_OK : FR_E_STATE;
}

static int by_key(const void *a, const void *b)
{
    const struct fr_delta_row *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Rows [from, from + n) of the keys, modulo all, and every parameter. */
static void publish(struct epochs *epochs, const uint64_t *keys, size_t from, size_t n)
{
    uint64_t previous = epochs->digest, saturated = 0;
    epochs->epoch += 1;
    epochs->digest = fr_fmix64(epochs->epoch);
    for (size_t i = 0; i < n; i++) {
        size_t row = (from + i) % ROWS;
        for (size_t d = 0; d < DIM; d++)
            epochs->values[row * DIM + d] = (float)(epochs->epoch % 64) / 64.0f;
        epochs->rows[i] = (struct fr_delta_row){.key = keys[row], .values = epochs->values + row * DIM};
    }
    qsort(epochs->rows, n, sizeof(epochs->rows[0]), by_key);
    struct fr_delta_epoch epoch = {.timeline = 1,
                                   .epoch = epochs->epoch,
                                   .from = epochs->epoch,
                                   .digest = epochs->digest,
                                   .previous = previous,
                                   .with_model = epochs->epoch == 1,
                                   .rows = epochs->rows,
                                   .n_rows = n,
                                   .dense = epochs->dense,
                                   .n_dense = epochs->n_dense};
    FR_CHECK(fr_delta_write(&epochs->settings, &epoch, feed, epochs, &saturated) == FR_OK);
}

static void make_settings(struct epochs *epochs, const struct fr_conf *conf, struct fr_codec_table *table,
                          struct fr_buffer *cfg)
{
    fr_conf_model_json(conf, cfg);
    struct fr_sha256 digest = fr_sha256(cfg->data, cfg->size);
    *table = (struct fr_codec_table){.name = "ids", .n_parts = 1, .value_floats = DIM};
    memcpy(table->parts[0].name, conf->tables[0].parts[0].name, sizeof(table->parts[0].name));
    table->parts[0].dim = DIM;
    epochs->settings = (struct fr_codec_settings){.revision = FR_CODEC_REVISION,
                                                  .np = 1,
                                                  .quantize = FR_CODEC_F16,
                                                  .piece_max = PIECE_MAX,
                                                  .fp = fr_sha256_u64(&digest),
                                                  .model = "bench_r16",
                                                  .cfg = (char *)cfg->data,
                                                  .cfg_size = cfg->size,
                                                  .n_tables = 1,
                                                  .tables = table};
}

static void make_dense(struct epochs *epochs, struct fr_graph *graph)
{
    struct fr_parameter *parameters = fr_graph_parameters(graph);
    epochs->n_dense = fr_graph_parameter_count(graph);
    epochs->dense = fr_alloc(epochs->n_dense, sizeof(*epochs->dense));
    for (size_t i = 0; i < epochs->n_dense; i++)
        epochs->dense[i] = (struct fr_delta_dense){.name = parameters[i].name,
                                                   .n_dims = parameters[i].n_dims,
                                                   .shape = {parameters[i].shape[0], parameters[i].shape[1]},
                                                   .n_values = parameters[i].n_values,
                                                   .values = parameters[i].values,
                                                   .exact = parameters[i].exact};
}

/* ---- phases ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double percentile(struct reading *reading, double *times, double part)
{
    size_t n = reading->n_times < TIMES_MAX ? reading->n_times : TIMES_MAX;
    FR_CHECK(n > 0);
    qsort(times, n, sizeof(*times), ascending);
    return times[(size_t)((double)(n - 1) * part)] * 1e6;
}

/* Both readers for PHASE_MS; epochs NULL: nothing is applied. The first reader's numbers. */
static void run_phase(struct fr_bench *bench, struct reading *readings, struct epochs *epochs, const uint64_t *keys,
                      double *p99_cpu)
{
    pthread_t threads[READERS];
    atomic_int done = 0;
    size_t from = 0;
    for (int i = 0; i < READERS; i++) {
        readings[i].done = &done;
        readings[i].lookups = readings[i].n_times = 0;
        readings[i].lookup_cpu_s = readings[i].lookup_wall_s = 0;
        FR_CHECK(pthread_create(&threads[i], NULL, run_reading, &readings[i]) == 0);
    }
    double begin = fr_bench_now(), next = begin;
    while (fr_bench_now() - begin < PHASE_MS / 1e3) {
        if (epochs)
            publish(epochs, keys, from, CHANGED);
        from = (from + CHANGED) % ROWS;
        next += STEP_MS / 1e3;
        double rest = next - fr_bench_now();
        if (rest > 0)
            nanosleep(&(struct timespec){.tv_nsec = (long)(rest * 1e9)}, NULL);
    }
    double took = fr_bench_now() - begin;
    atomic_store(&done, 1);
    for (int i = 0; i < READERS; i++)
        FR_CHECK(pthread_join(threads[i], NULL) == 0);
    struct reading *r = &readings[0];
    fr_bench_number(bench, "rows_per_s", epochs ? (double)(epochs->epoch - 1) * CHANGED / took : 0);
    fr_bench_number(bench, "lookups_per_cpu_s", (double)r->lookups / r->lookup_cpu_s);
    fr_bench_number(bench, "lookups_per_s", (double)r->lookups / r->lookup_wall_s);
    fr_bench_number(bench, "score_us_p50_cpu", percentile(r, r->cpu_s, 0.5));
    *p99_cpu = percentile(r, r->cpu_s, 0.99);
    fr_bench_number(bench, "score_us_p99_cpu", *p99_cpu);
    fr_bench_number(bench, "score_us_p99", percentile(r, r->wall_s, 0.99));
}

int fr_bench_replica(struct fr_bench *bench)
{
    struct epochs epochs = {.values = fr_alloc((size_t)ROWS * DIM, sizeof(float)),
                            .rows = fr_alloc(ROWS, sizeof(*epochs.rows))};
    struct fr_graph *graph = fr_graph_new(&(struct fr_graph_options){.conf = bench->conf, .scoring_only = true});
    struct fr_codec_table table;
    struct fr_buffer cfg = {0}, samples[SAMPLES] = {{0}};
    struct reading readings[READERS] = {{0}};
    uint64_t *keys = fr_alloc(ROWS, sizeof(*keys));
    const uint32_t ids = ROWS / FR_R16_SLOTS;
    struct fr_bench_r16 stream;
    fr_bench_r16_init(&stream, 7, ids);
    for (size_t i = 0; i < ROWS; i++) /* so that neighbours are of all slots */
        keys[i] = fr_key_integer(i / FR_R16_SLOTS, bench->conf->slots[i % FR_R16_SLOTS].seed);
    for (int i = 0; i < SAMPLES; i++)
        fr_bench_r16_append(&stream, &samples[i]);
    FR_CHECK(freshet_replica_new(&(struct freshet_replica_options){0}, &epochs.replica) == FRESHET_OK);
    make_settings(&epochs, bench->conf, &table, &cfg);
    make_dense(&epochs, graph);
    publish(&epochs, keys, 0, ROWS);
    for (int i = 0; i < READERS; i++)
        readings[i] = (struct reading){.replica = epochs.replica,
                                       .keys = keys,
                                       .n_keys = ROWS,
                                       .samples = samples,
                                       .cpu_s = fr_alloc(TIMES_MAX, sizeof(double)),
                                       .wall_s = fr_alloc(TIMES_MAX, sizeof(double))};
    struct freshet_replica_info info;
    freshet_replica_get_info(epochs.replica, &info);
    double idle, applying;
    fr_bench_begin(bench, "replica_idle");
    fr_bench_number(bench, "rows", (double)info.rows);
    fr_bench_number(bench, "bytes_a_row", (double)info.memory_bytes / (double)info.rows);
    run_phase(bench, readings, NULL, keys, &idle);
    fr_bench_end(bench);
    fr_bench_begin(bench, "replica_applying");
    epochs.feed_s_max = 0;
    run_phase(bench, readings, &epochs, keys, &applying);
    freshet_replica_get_info(epochs.replica, &info);
    fr_bench_number(bench, "score_p99_cpu_by_idle", applying / idle);
    fr_bench_number(bench, "feed_ms_max", epochs.feed_s_max * 1e3);
    fr_bench_number(bench, "bytes_a_row", (double)info.memory_bytes / (double)info.rows);
    fr_bench_end(bench);
    for (int i = 0; i < READERS; i++) {
        free(readings[i].cpu_s);
        free(readings[i].wall_s);
    }
    for (int i = 0; i < SAMPLES; i++)
        fr_buffer_release(&samples[i]);
    fr_bench_r16_release(&stream);
    freshet_replica_free(epochs.replica);
    fr_graph_free(graph);
    fr_buffer_release(&cfg);
    free(epochs.dense);
    free(epochs.rows);
    free(epochs.values);
    free(keys);
    return FR_TOOL_OK;
}
