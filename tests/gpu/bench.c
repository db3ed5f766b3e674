/* Kernels on a card, each beside what bounds it: gathering and updating rows beside the card's own
 * copies, products beside their number of operations, small kernels call by call beside one graph
 * of them. One JSON object a line.
 *
 *     gpu_bench [--small]     FRESHET_DEVICE names the plug-in; else the emulated card, where
 *                             times are 0 and only that it runs is seen
 *
 * Memory is larger than a card's second cache and holds random numbers; times are the median of
 * REPEATS by the card's events, after one run that is not timed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "shim/shim.h"

enum { REPEATS = 9, SLOTS = 26 };

static const struct fr_device_api *api;
static struct fr_device_queue *queue;

static void finish(void)
{
    struct fr_err err = {0};
    if (api->finish(queue, &err) == FR_OK)
        return;
    fprintf(stderr, "gpu_bench: %s\n", err.text);
    exit(1);
}

static void *device_alloc(size_t bytes)
{
    void *memory = api->alloc(queue, bytes);
    if (memory)
        return memory;
    fprintf(stderr, "gpu_bench: the card has no %zu bytes left: --small needs less\n", bytes);
    exit(1);
}

static void *to_device(const void *host, size_t bytes)
{
    void *device = device_alloc(bytes);
    api->upload(queue, device, host, bytes);
    finish();
    return device;
}

static float *random_floats(size_t n)
{
    enum { PERIOD = 1 << 20 };
    float *host = fr_alloc(PERIOD, sizeof(*host)), *device = device_alloc(n * sizeof(*device));
    for (size_t i = 0; i < PERIOD; i++)
        host[i] = (float)fr_random_uniform(1, 2, n, i) - 0.5f;
    for (size_t i = 0; i < n; i += PERIOD)
        api->upload(queue, device + i, host, (n - i < PERIOD ? n - i : PERIOD) * sizeof(*host));
    finish();
    free(host);
    return device;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

typedef void bench_body(const void *context);

/* Median milliseconds. */
static double timed(bench_body *body, const void *context)
{
    double ms[REPEATS];
    body(context);
    finish();
    for (int i = 0; i < REPEATS; i++) {
        api->mark(queue, 0);
        body(context);
        api->mark(queue, 1);
        finish();
        ms[i] = api->elapsed_ms(queue, 0, 1);
    }
    qsort(ms, REPEATS, sizeof(*ms), ascending);
    return ms[REPEATS / 2];
}

static void report(const char *name, double ms, const char *unit, double amount)
{
    printf("{\"bench\":\"%s\",\"ms\":%.4f,\"%s\":%.1f}\n", name, ms, unit, ms > 0.0 ? amount / ms / 1e6 : 0.0);
    fflush(stdout);
}

/* ---- copies ---- */

struct copy_bench {
    void *to, *from;
    size_t bytes;
};

static void run_copy(const void *context)
{
    const struct copy_bench *c = context;
    api->copy(queue, c->to, c->from, c->bytes);
}

static void bench_copy(size_t bytes)
{
    struct copy_bench c = {device_alloc(bytes), random_floats(bytes / sizeof(float)), bytes};
    report("copy, read and written", timed(run_copy, &c), "GB/s", 2.0 * (double)bytes);
    api->release(queue, c.to);
    api->release(queue, c.from);
}

/* ---- launches ---- */

enum { LAUNCHES = 100 };

struct launch_bench {
    struct fr_view values[2]; /* [32, 16] */
    bool graph;
};

static void run_launches(const void *context)
{
    const struct launch_bench *b = context;
    if (b->graph)
        api->begin_graph(queue);
    for (uint32_t i = 0; i < LAUNCHES; i++)
        api->ops->copy(queue, 32, 16, b->values[i % 2], b->values[1 - i % 2]);
    if (b->graph)
        api->end_graph(queue);
}

static void bench_launches(void)
{
    struct launch_bench b = {{{random_floats(512), 16}, {random_floats(512), 16}}, false};
    report("small kernels, call by call", timed(run_launches, &b), "M/s", LAUNCHES * 1e3);
    b.graph = true;
    report("small kernels, as a graph", timed(run_launches, &b), "M/s", LAUNCHES * 1e3);
    api->release(queue, b.values[0].values);
    api->release(queue, b.values[1].values);
}

/* ---- rows ---- */

struct row_bench {
    struct fr_gather gather[SLOTS];
    struct fr_row_update update;
    float *slab;
};

static void run_gather(const void *context)
{
    const struct row_bench *b = context;
    for (uint32_t s = 0; s < SLOTS; s++)
        api->ops->gather(queue, &b->gather[s]);
}

static void run_update(const void *context)
{
    api->ops->update_rows(queue, &((const struct row_bench *)context)->update);
}

/* A batch of single ids in each slot, every id another row: nothing is found in a cache. */
static void bench_rows(uint32_t batch, uint32_t dim)
{
    uint32_t n = batch * SLOTS, floats = dim + 4;
    float *slab = random_floats((size_t)n * floats), *out = random_floats((size_t)n * dim);
    float **rows = fr_alloc(n, sizeof(*rows));
    uint32_t *numbers = fr_alloc((size_t)n + 1, sizeof(*numbers)), *ones = fr_alloc(n, sizeof(*ones));
    for (uint32_t i = 0; i < n; i++) {
        numbers[i + 1] = i + 1;
        ones[i] = 1;
    }
    for (uint32_t i = 0; i < n; i++) /* a permutation: no row is two keys' */
        rows[i] = slab + (size_t)((uint64_t)i * 2654435761u % n) * floats;
    const struct fr_row_part part = {0, dim, dim, {.kind = FR_OPT_ADAGRAD_ROWWISE, .lr = 0.01f, .eps = 1e-8f}};
    uint32_t *counting = to_device(numbers, ((size_t)n + 1) * sizeof(*numbers)),
             *trained = to_device(ones, n * sizeof(*ones));
    const struct fr_row_source source = {.gradient = {out, dim}, .trained = trained, .counted = trained};
    struct row_bench b = {.slab = slab};
    float **there = to_device(rows, n * sizeof(*rows));
    for (uint32_t s = 0; s < SLOTS; s++)
        b.gather[s] = (struct fr_gather){.begin = counting,
                                         .unique_of = counting + s * batch,
                                         .rows = there,
                                         .dim = dim,
                                         .entry_end = batch,
                                         .kind = FR_POOL_SUM,
                                         .out = {out + s * dim, SLOTS * (size_t)dim}};
    b.update = (struct fr_row_update){.rows = there,
                                      .occ_begin = counting,
                                      .occ = counting,
                                      .occ_from = counting, /* entry i of slot 0 */
                                      .entry_bits = 31,
                                      .n_groups = 1,
                                      .source_begin = to_device((const uint32_t[]){0, 1}, 2 * sizeof(uint32_t)),
                                      .sources = to_device(&source, sizeof(source)),
                                      .parts = to_device(&part, sizeof(part)),
                                      .n_parts = 1,
                                      .end = n};
    char name[80];
    snprintf(name, sizeof(name), "gather, %u x %u ids, dim %u", batch, SLOTS, dim);
    report(name, timed(run_gather, &b), "GB/s", 8.0 * n * dim);
    snprintf(name, sizeof(name), "update of rows, %u keys, dim %u, adagrad_rowwise", n, dim);
    report(name, timed(run_update, &b), "GB/s", 4.0 * n * (3.0 * dim + 2.0));
    void *const device[] = {slab,
                            out,
                            counting,
                            trained,
                            there,
                            (void *)(uintptr_t)b.update.source_begin,
                            (void *)(uintptr_t)b.update.sources,
                            (void *)(uintptr_t)b.update.parts};
    for (size_t i = 0; i < FR_ARRAY_LEN(device); i++)
        api->release(queue, device[i]);
    free(rows);
    free(numbers);
    free(ones);
}

/* ---- products ---- */

struct product_bench {
    struct fr_operand left, right;
    struct fr_multiply call;
    bool bf16;
};

static void run_product(const void *context)
{
    const struct product_bench *b = context;
    struct fr_multiply call = b->call;
    call.left = &b->left;
    call.right = &b->right;
    api->ops->multiply(queue, &call, b->bf16);
}

static void bench_product(uint32_t m, uint32_t k, uint32_t n, bool bf16)
{
    float *left = random_floats((size_t)m * k), *right = random_floats((size_t)k * n),
          *out = random_floats((size_t)m * n);
    struct product_bench b = {
        {left, k, m, k, false, NULL}, {right, n, k, n, false, NULL}, {.row_end = m, .out = {out, n}}, bf16};
    char name[80];
    snprintf(name, sizeof(name), "product %u x %u x %u, %s", m, k, n, bf16 ? "bf16 with rounding" : "f32");
    report(name, timed(run_product, &b), "GFLOP/s", 2.0 * m * k * n);
    api->release(queue, left);
    api->release(queue, right);
    api->release(queue, out);
}

int main(int argc, char **argv)
{
    bool small = argc == 2 && strcmp(argv[1], "--small") == 0;
    if (argc > 1 && !small) {
        fprintf(stderr, "usage: gpu_bench [--small]\n");
        return 2;
    }
    struct fr_device_info info;
    api = fr_shim_api();
    queue = fr_shim_queue();
    api->info(queue, &info);
    printf("{\"card\":\"%s\",\"capability\":\"%u.%u\",\"driver\":%u,\"runtime\":%u,\"memory_bytes\":%llu}\n", info.name,
           info.major, info.minor, info.driver, info.runtime, (unsigned long long)info.memory_bytes);
    bench_copy(small ? 1 << 22 : (size_t)1 << 31);
    bench_launches();
    static const uint32_t batches[] = {1024, 4096, 16384, 65536};
    for (size_t i = 0; i < (small ? 1 : FR_ARRAY_LEN(batches)); i++) {
        bench_rows(small ? 32 : batches[i], 16);
        bench_rows(small ? 32 : batches[i], 128);
    }
    static const uint32_t widths[][2] = {{429, 512},   {512, 256},  {256, 64}, {3341, 1024},
                                         {1024, 1024}, {1024, 512}, {512, 256}};
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (size_t i = 0; i < FR_ARRAY_LEN(widths); i++)
            bench_product(small ? 8 : 16384, small ? 16 : widths[i][0], small ? 16 : widths[i][1], bf16);
    return 0;
}
