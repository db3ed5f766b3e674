/* Whole steps on a card: store, plan and network, without Kafka, journal and cold store. One JSON
 * object a line.
 *
 *     gpu_learn train MODEL SAMPLES BATCH TOLERANCE    the stream on the processor, then twice on
 *         the card: AUC of predictions before training within TOLERANCE of the processor's, and the
 *         same bits twice
 *     gpu_learn bench [--small]    samples/s from batches that lie ready on the host: planned
 *         beside the step before, as the daemon does, and with plans given (the value plane alone);
 *         of each step, what its owner's thread spent on the phases
 *     gpu_learn bench MODEL BATCH    of this one alone, for a profiler
 *
 * MODEL: r16, wide, small (model.c). FRESHET_DEVICE names the plug-in; else the emulated card,
 * where only that it runs is seen. Thread: one, and a pool of all cores that plans. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "graph/graph.h"
#include "model.h"
#include "shim/shim.h"
#include "store/store.h"

enum { RING_SAMPLES = 1 << 18, RING_MIN = 4, RING_MAX = 64, BENCH_NS = 1500000000 };

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- a trainer without its surroundings ---- */

enum phase { FORWARD, BEGIN, PLAN, BRING, FINISH, N_PHASES };
static const char *const phase_names[N_PHASES] = {"forward", "begin", "plan", "bring", "finish"};

struct machine {
    struct gpu_model model;
    struct fr_pool *pool;
    struct fr_store *store;
    struct fr_rows *rows[2];
    struct fr_graph_device device;
    struct fr_value_place first_place;
    struct fr_graph *graph;
    uint64_t phase_ns[N_PHASES]; /* of the owner's thread: in FINISH it waits for the card */
};

static bool admit_all(const void *config, uint32_t count)
{
    (void)config, (void)count;
    return true;
}

static bool forget_none(const void *config, int64_t seen_ms, int64_t watermark_ms)
{
    (void)config, (void)seen_ms, (void)watermark_ms;
    return false;
}

static float *row_of(void *self, uint32_t table, uint64_t key)
{
    return fr_store_row_of(((const struct machine *)self)->store, table, key);
}

static struct machine *machine_open(const char *name, uint32_t batch_size, bool device)
{
    struct machine *m = fr_alloc(1, sizeof(*m));
    const struct gpu_shape *shape = gpu_shape(name);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (!shape) {
        fprintf(stderr, "gpu_learn: there is no model %s\n", name);
        exit(2);
    }
    gpu_model_init(&m->model, shape, batch_size);
    m->pool = fr_pool_new(cores > 0 ? (size_t)cores : 1);
    struct fr_store_table table = {
        .name = "ids", .gate = {.name = "all", .admits = admit_all, .forgets = forget_none}, .pending_max = 1 << 20};
    fr_graph_row_layout(&m->model.table, &table.layout);
    m->store = fr_store_new(&(struct fr_store_options){
        .n_tables = 1, .tables = &table, .seed = 1, .pool = m->pool, .conf = &m->model.conf});
    for (int i = 0; i < 2; i++)
        m->rows[i] = fr_store_rows_new(m->store);
    m->first_place = fr_store_first_place(m->store, 0);
    m->device = (struct fr_graph_device){.row_of = row_of, .self = m, .first_places = &m->first_place};
    if (device) {
        m->device.api = fr_shim_api();
        m->device.queue = fr_shim_queue();
    }
    m->graph = fr_graph_new(
        &(struct fr_graph_options){.conf = &m->model.conf, .pool = m->pool, .device = device ? &m->device : NULL});
    return m;
}

static void machine_close(struct machine *m)
{
    fr_graph_free(m->graph);
    for (int i = 0; i < 2; i++)
        fr_store_rows_free(m->rows[i]);
    fr_store_free(m->store);
    fr_pool_free(m->pool);
    gpu_model_release(&m->model);
    free(m);
}

static void must(const struct machine *m, enum fr_status status, const char *what)
{
    struct fr_err err = {0};
    if (status == FR_OK)
        return;
    (void)!fr_graph_failure(m->graph, &err);
    fprintf(stderr, "gpu_learn: %s: %s %s\n", what, fr_status_name(status), err.text);
    exit(1);
}

/* ---- learning a stream ---- */

struct score {
    float logit, label;
};

struct learnt {
    double auc, seconds;
    uint64_t hash;
};

static int by_logit(const void *a, const void *b)
{
    float x = ((const struct score *)a)->logit, y = ((const struct score *)b)->logit;
    return (x > y) - (x < y);
}

/* Equal scores count half. */
static double auc_of(struct score *scores, size_t n)
{
    double below = 0.0, pairs = 0.0, positives = 0.0;
    qsort(scores, n, sizeof(*scores), by_logit);
    for (size_t i = 0, end; i < n; i = end) {
        double negative = 0.0, positive = 0.0;
        for (end = i; end < n && !(scores[end].logit > scores[i].logit); end++)
            *(scores[end].label > 0.5f ? &positive : &negative) += 1.0;
        pairs += positive * (below + negative / 2.0);
        below += negative;
        positives += positive;
    }
    return pairs / (positives * below);
}

static uint64_t add_hash(uint64_t hash, const void *bytes, size_t size)
{
    const uint32_t *words = bytes;
    for (size_t i = 0; i < size / sizeof(*words); i++)
        hash = fr_fmix64(hash ^ words[i]);
    return hash;
}

/* Of all parameters, and of rows with their state. */
static uint64_t hash_of(struct machine *m)
{
    struct fr_err err = {0};
    struct fr_row_layout layout;
    uint64_t hash = 0;
    must(m, fr_graph_fetch(m->graph, &err), "bringing the model back");
    for (size_t p = 0; p < fr_graph_parameter_count(m->graph); p++)
        hash = add_hash(hash, fr_graph_parameters(m->graph)[p].values,
                        fr_graph_parameters(m->graph)[p].n_values * sizeof(float));
    fr_graph_row_layout(&m->model.table, &layout);
    for (uint32_t slot = 0; slot < GPU_SLOTS; slot++)
        for (uint32_t id = 0; id < m->model.zipf.count; id++) {
            const float *row = fr_store_row_of(m->store, 0, gpu_key(slot, id));
            hash = row ? add_hash(hash, row, layout.row_floats * sizeof(float)) : fr_fmix64(hash);
        }
    return hash;
}

/* What was done since `*since_ns` was this phase's. */
static void add_phase(struct machine *m, enum phase phase, uint64_t *since_ns)
{
    uint64_t at_ns = now_ns();
    m->phase_ns[phase] += at_ns - *since_ns;
    *since_ns = at_ns;
}

/* A step of a batch that is planned; the next one, if there is one, is planned beside a card's. */
static void step(struct machine *m, const struct fr_batch *batch, const struct fr_batch *next, uint64_t k)
{
    bool beside = fr_graph_runs_beside(m->graph);
    struct fr_rows *rows = m->rows[k % 2], *after = m->rows[(k + 1) % 2];
    uint64_t since_ns = now_ns();
    fr_graph_forward(m->graph, batch, rows);
    add_phase(m, FORWARD, &since_ns);
    fr_graph_train_begin(m->graph, batch, rows);
    add_phase(m, BEGIN, &since_ns);
    if (next && beside) {
        fr_store_plan_next(m->store, next, (int64_t)k, after);
        add_phase(m, PLAN, &since_ns);
        fr_graph_bring(m->graph, next, after);
        add_phase(m, BRING, &since_ns);
    }
    must(m, fr_graph_train_finish(m->graph, batch, rows, NULL), "a step");
    add_phase(m, FINISH, &since_ns);
    if (next && !beside) {
        fr_store_plan(m->store, next, (int64_t)k, after);
        add_phase(m, PLAN, &since_ns);
    }
}

static struct learnt learn(const char *name, uint64_t samples, uint32_t batch_size, bool device)
{
    struct machine *m = machine_open(name, batch_size, device);
    struct fr_batch *batches[2] = {fr_batch_new(&m->model.conf), fr_batch_new(&m->model.conf)};
    uint64_t n = samples / batch_size, begin_ns = now_ns();
    struct score *scores = fr_alloc(n * batch_size, sizeof(*scores));
    gpu_model_fill(&m->model, batches[0], 0);
    fr_store_plan(m->store, batches[0], 0, m->rows[0]);
    for (uint64_t k = 0; k < n; k++) {
        struct fr_batch *batch = batches[k % 2], *next = k + 1 < n ? batches[(k + 1) % 2] : NULL;
        if (next)
            gpu_model_fill(&m->model, next, (k + 1) * batch_size);
        step(m, batch, next, k);
        for (uint32_t i = 0; i < batch_size; i++)
            scores[k * batch_size + i] = (struct score){fr_graph_logits(m->graph, 0)[i], batch->labels[i]};
    }
    struct learnt learnt = {.seconds = (double)(now_ns() - begin_ns) / 1e9, .hash = hash_of(m)};
    learnt.auc = auc_of(scores, n * batch_size);
    printf("{\"train\":\"%s, %s\",\"samples\":%llu,\"auc\":%.6f,\"seconds\":%.2f,\"hash\":\"%016llx\"}\n", name,
           device ? "card" : "processor", (unsigned long long)(n * batch_size), learnt.auc, learnt.seconds,
           (unsigned long long)learnt.hash);
    fflush(stdout);
    free(scores);
    fr_batch_free(batches[0]);
    fr_batch_free(batches[1]);
    machine_close(m);
    return learnt;
}

static int train(const char *name, uint64_t samples, uint32_t batch_size, double tolerance)
{
    struct learnt host = learn(name, samples, batch_size, false), card = learn(name, samples, batch_size, true),
                  twin = learn(name, samples, batch_size, true);
    double difference = card.auc > host.auc ? card.auc - host.auc : host.auc - card.auc;
    bool near = difference <= tolerance, same = card.hash == twin.hash && card.auc == twin.auc;
    if (!near)
        printf("FAILED: AUC differs by %.6f, at most %g\n", difference, tolerance);
    if (!same)
        printf("FAILED: a second run on the card has other bits\n");
    return near && same ? 0 : 1;
}

/* ---- how fast ---- */

struct ring {
    struct fr_batch *batches[RING_MAX];
    struct fr_rows *plans[RING_MAX]; /* once all rows are there */
    uint32_t n;
};

/* Steps since the phases were cleared. */
static void report(const char *what, const struct machine *m, uint64_t steps, uint64_t ns)
{
    double ms = (double)ns / 1e6 / (double)steps;
    printf("{\"bench\":\"%s\",\"ms\":%.4f,\"M samples/s\":%.4f", what, ms, m->model.conf.ingest.batch_size / ms / 1e3);
    for (size_t i = 0; i < N_PHASES; i++)
        printf(",\"%s ms\":%.4f", phase_names[i], (double)m->phase_ns[i] / 1e6 / (double)steps);
    puts("}");
    fflush(stdout);
}

/* From here on steps are timed. */
static uint64_t begin_timing(struct machine *m)
{
    memset(m->phase_ns, 0, sizeof(m->phase_ns));
    return now_ns();
}

static void run_planned(struct machine *m, const struct ring *ring, const char *name, bool small)
{
    char what[96];
    uint64_t k = 0, first = 2 * ring->n, begin_ns = 0;
    snprintf(what, sizeof(what), "%s, batch %u, from a host ring", name, m->model.conf.ingest.batch_size);
    fr_store_plan(m->store, ring->batches[0], 0, m->rows[0]);
    for (; k <= first || now_ns() - begin_ns < (small ? 0 : BENCH_NS); k++) {
        if (k == first) /* rows are made, memory has its size */
            begin_ns = begin_timing(m);
        step(m, ring->batches[k % ring->n], ring->batches[(k + 1) % ring->n], k);
    }
    report(what, m, k - first, now_ns() - begin_ns);
}

/* No row comes any more, so plans stay true. */
static void run_given(struct machine *m, struct ring *ring, const char *name, bool small)
{
    char what[96];
    uint64_t k = 0, begin_ns = 0;
    snprintf(what, sizeof(what), "%s, batch %u, plans given", name, m->model.conf.ingest.batch_size);
    for (uint32_t i = 0; i < ring->n; i++) {
        ring->plans[i] = fr_store_rows_new(m->store);
        fr_store_plan(m->store, ring->batches[i], 0, ring->plans[i]);
    }
    for (; k <= ring->n || now_ns() - begin_ns < (small ? 0 : BENCH_NS); k++) {
        uint32_t at = (uint32_t)(k % ring->n), after = (at + 1) % ring->n;
        if (k == ring->n)
            begin_ns = begin_timing(m);
        uint64_t since_ns = now_ns();
        fr_graph_forward(m->graph, ring->batches[at], ring->plans[at]);
        add_phase(m, FORWARD, &since_ns);
        fr_graph_train_begin(m->graph, ring->batches[at], ring->plans[at]);
        add_phase(m, BEGIN, &since_ns);
        fr_graph_bring(m->graph, ring->batches[after], ring->plans[after]);
        add_phase(m, BRING, &since_ns);
        must(m, fr_graph_train_finish(m->graph, ring->batches[at], ring->plans[at], NULL), "a step");
        add_phase(m, FINISH, &since_ns);
    }
    report(what, m, k - ring->n, now_ns() - begin_ns);
    for (uint32_t i = 0; i < ring->n; i++)
        fr_store_rows_free(ring->plans[i]);
}

static void bench_one(const char *name, uint32_t batch_size, bool small)
{
    struct machine *m = machine_open(name, batch_size, true);
    struct ring ring = {.n = RING_SAMPLES / batch_size};
    ring.n = small || ring.n < RING_MIN ? RING_MIN : ring.n < RING_MAX ? ring.n : RING_MAX;
    for (uint32_t i = 0; i < ring.n; i++) {
        ring.batches[i] = fr_batch_new(&m->model.conf);
        gpu_model_fill(&m->model, ring.batches[i], (uint64_t)i * batch_size);
    }
    run_planned(m, &ring, name, small);
    run_given(m, &ring, name, small);
    for (uint32_t i = 0; i < ring.n; i++)
        fr_batch_free(ring.batches[i]);
    machine_close(m);
}

static void bench(bool small)
{
    static const uint32_t sizes[] = {1024, 4096, 16384, 65536};
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes) && !small; i++)
        bench_one("r16", sizes[i], false);
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes) && !small; i++)
        bench_one("wide", sizes[i], false);
    if (small)
        bench_one("small", 32, true);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "train") == 0) {
        uint64_t samples = strtoull(argv[3], NULL, 10), batch_size = strtoull(argv[4], NULL, 10);
        if (batch_size > 0 && batch_size <= 1 << 20 && samples >= batch_size)
            return train(argv[2], samples, (uint32_t)batch_size, strtod(argv[5], NULL));
    }
    bool small = argc == 3 && strcmp(argv[2], "--small") == 0;
    if (argc == 4 && strcmp(argv[1], "bench") == 0) {
        uint64_t batch_size = strtoull(argv[3], NULL, 10);
        if (batch_size > 0 && batch_size <= 1 << 20) {
            bench_one(argv[2], (uint32_t)batch_size, true);
            return 0;
        }
    }
    if ((argc == 2 || small) && strcmp(argv[1], "bench") == 0) {
        bench(small);
        return 0;
    }
    fputs("usage: gpu_learn train MODEL SAMPLES BATCH TOLERANCE | bench [--small | MODEL BATCH]\n", stderr);
    return 2;
}
