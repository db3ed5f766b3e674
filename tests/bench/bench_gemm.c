/* `freshet-bench gemm`: the matrix products of R16 alone, in the shapes, order and split in which
 * trainer/graph runs them, and the roof they imply: no trainer on this machine can be faster than
 * its products.
 *
 * One round is a batch of 1024: per chunk of 128 rows the forward products and the gradients of the
 * inputs, then the kernels' gradients over the whole batch in blocks of 96 rows; packing counts
 * where a backend packs. Measured with the project's own kernel and with OpenBLAS (one thread a
 * call, a worker per core); the roof is the faster of the two, so that a slow kernel of our own
 * cannot flatter the ratio. Then each shape alone on one core, beside that core's own peak. Values
 * are random; nothing is learned. Thread: the caller and a pool of its own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"
#include "base/pool.h"
#include "base/random.h"
#include "bench.h"
#include "ops/ops.h"
#include "tool.h"

enum { BATCH = 1024, CHUNK = FR_CHUNK_ROWS, CHUNKS = BATCH / CHUNK, PACK_ROWS = 128, LAYERS = 4 };

static const double measure_seconds = 0.5;
static const uint32_t widths[LAYERS + 1] = {FR_R16_SLOTS * 16 + FR_R16_DENSE, 512, 256, 64, 1};

struct layer {
    uint32_t in, out;
    float *x, *g; /* [BATCH, in], [BATCH, out] */
    float *kernel, *kernel_gradient;
    struct fr_operand weights, weights_t, gradients;
};

struct task {
    uint32_t layer, begin, end;
};

struct products {
    const struct fr_ops *ops;
    struct fr_pool *pool;
    struct layer layers[LAYERS];
    float *x_gradient; /* of the widest input; never read */
    struct task *packs, *packs_t, *blocks;
    size_t n_packs, n_packs_t, n_blocks;
};

static float *random_matrix(size_t rows, size_t columns, uint64_t stream)
{
    float *values = fr_alloc_aligned(64, rows * columns * sizeof(float));
    for (size_t i = 0; i < rows * columns; i++)
        values[i] = (float)fr_random_uniform(1, stream, i, 0) - 0.5f;
    return values;
}

static float *packed_memory(const struct fr_ops *ops, uint32_t rows, uint32_t columns)
{
    size_t floats = ops->packed_floats(rows, columns);
    return floats ? fr_alloc_aligned(64, floats * sizeof(float)) : NULL;
}

static size_t split(struct task *tasks, uint32_t layer, uint32_t count, uint32_t step)
{
    size_t n = 0;
    for (uint32_t begin = 0; begin < count; begin += step)
        tasks[n++] = (struct task){layer, begin, count - begin < step ? count : begin + step};
    return n;
}

static void open_products(struct products *p, const struct fr_ops *ops, struct fr_pool *pool)
{
    *p = (struct products){.ops = ops, .pool = pool};
    p->packs = fr_alloc(64, sizeof(*p->packs));
    p->packs_t = fr_alloc(64, sizeof(*p->packs_t));
    p->blocks = fr_alloc(64, sizeof(*p->blocks));
    p->x_gradient = fr_alloc_aligned(64, (size_t)BATCH * 512 * sizeof(float));
    for (uint32_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &p->layers[l];
        uint32_t in = widths[l], out = widths[l + 1];
        layer->in = in;
        layer->out = out;
        layer->x = random_matrix(BATCH, in, 4 * l);
        layer->g = random_matrix(BATCH, out, 4 * l + 1);
        layer->kernel = random_matrix(in, out, 4 * l + 2);
        layer->kernel_gradient = random_matrix(in, out, 4 * l + 3);
        layer->weights = (struct fr_operand){layer->kernel, out, in, out, false, packed_memory(ops, in, out)};
        layer->weights_t = (struct fr_operand){layer->kernel, out, out, in, true, packed_memory(ops, out, in)};
        layer->gradients = (struct fr_operand){layer->g, out, BATCH, out, false, packed_memory(ops, BATCH, out)};
        p->n_packs += split(p->packs + p->n_packs, l, in, PACK_ROWS);
        p->n_packs_t += split(p->packs_t + p->n_packs_t, l, out, PACK_ROWS);
        p->n_blocks += split(p->blocks + p->n_blocks, l, in, FR_ROW_BLOCK);
    }
}

static void close_products(struct products *p)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &p->layers[l];
        float *owned[] = {layer->x,
                          layer->g,
                          layer->kernel,
                          layer->kernel_gradient,
                          layer->weights.packed,
                          layer->weights_t.packed,
                          layer->gradients.packed};
        for (size_t i = 0; i < FR_ARRAY_LEN(owned); i++)
            free(owned[i]);
    }
    free(p->x_gradient);
    free(p->packs);
    free(p->packs_t);
    free(p->blocks);
}

static void pack_weights(void *context, size_t index, size_t worker)
{
    struct products *p = context;
    (void)worker;
    bool transposed = index >= p->n_packs;
    const struct task *task = transposed ? &p->packs_t[index - p->n_packs] : &p->packs[index];
    const struct layer *layer = &p->layers[task->layer];
    p->ops->pack(transposed ? &layer->weights_t : &layer->weights, task->begin, task->end);
}

static void run_chunk(void *context, size_t index, size_t worker)
{
    struct products *p = context;
    uint32_t first = (uint32_t)index * CHUNK;
    (void)worker;
    for (uint32_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &p->layers[l];
        struct fr_operand left = {layer->x + (size_t)first * layer->in, layer->in, CHUNK, layer->in, false, NULL};
        /* Into the next layer's input, as in a forward pass; the last output is nobody's input. */
        struct fr_view out = l + 1 < LAYERS
                                 ? (struct fr_view){p->layers[l + 1].x + (size_t)first * layer->out, layer->out}
                                 : (struct fr_view){p->x_gradient + (size_t)first * 512, layer->out};
        p->ops->multiply(&(struct fr_multiply){.left = &left, .right = &layer->weights, .row_end = CHUNK, .out = out});
    }
    for (uint32_t l = LAYERS; l-- > 0;) {
        struct layer *layer = &p->layers[l];
        struct fr_operand left = {layer->g + (size_t)first * layer->out, layer->out, CHUNK, layer->out, false, NULL};
        struct fr_view out = {p->x_gradient + (size_t)first * 512, layer->in};
        p->ops->multiply(
            &(struct fr_multiply){.left = &left, .right = &layer->weights_t, .row_end = CHUNK, .out = out});
        p->ops->pack(&layer->gradients, first, first + CHUNK);
    }
}

static void run_block(void *context, size_t index, size_t worker)
{
    struct products *p = context;
    const struct task *task = &p->blocks[index];
    struct layer *layer = &p->layers[task->layer];
    (void)worker;
    struct fr_operand left = {layer->x, layer->in, layer->in, BATCH, true, NULL};
    p->ops->multiply(&(struct fr_multiply){.left = &left,
                                           .right = &layer->gradients,
                                           .row_begin = task->begin,
                                           .row_end = task->end,
                                           .out = {layer->kernel_gradient, layer->out}});
}

static void run_batch(struct products *p)
{
    if (p->layers[0].weights.packed)
        fr_pool_run(p->pool, p->n_packs + p->n_packs_t, pack_weights, p);
    fr_pool_run(p->pool, CHUNKS, run_chunk, p);
    fr_pool_run(p->pool, p->n_blocks, run_block, p);
}

/* Samples a second, median of the repeats. */
static double measure(const struct fr_ops *ops, uint32_t threads)
{
    struct fr_pool *pool = fr_pool_new(threads);
    struct products *p = fr_alloc(1, sizeof(*p));
    open_products(p, ops, pool);
    double rates[FR_BENCH_REPEATS];
    run_batch(p); /* memory touched, clocks up */
    for (uint32_t r = 0; r < FR_BENCH_REPEATS; r++) {
        double begin = fr_bench_now(), end = begin;
        uint64_t batches = 0;
        while (end - begin < measure_seconds) {
            run_batch(p);
            batches++;
            end = fr_bench_now();
        }
        rates[r] = (double)batches * BATCH / (end - begin);
    }
    close_products(p);
    free(p);
    fr_pool_free(pool);
    return fr_bench_median(rates, FR_BENCH_REPEATS);
}

static double flops_per_sample(void)
{
    double sum = 0.0;
    for (uint32_t l = 0; l < LAYERS; l++)
        sum += 3.0 * 2.0 * (double)widths[l] * (double)widths[l + 1];
    return sum;
}

/* ---- shares of the peak ---- */

enum { PEAK_ROUNDS = 2000, SHARE_REPEATS = 100 };

#if defined(__x86_64__)
enum { CHAINS = 24 }; /* enough for two units of a latency of 4 to 6 */

__attribute__((target("avx512f"))) static double peak_flops(void)
{
    /* read again for every chain, or the compiler would see that all are equal */
    static volatile float factors[2] = {0.75f, -1.25f};
    __m512 x = _mm512_set1_ps(factors[0]), y = _mm512_set1_ps(factors[1]), sum[CHAINS];
    double begin = fr_bench_now();
#pragma GCC unroll 24
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm512_set1_ps(factors[1]);
    for (int round = 0; round < PEAK_ROUNDS; round++)
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++)
            sum[i] = _mm512_fmadd_ps(sum[i], x, y);
    __m512 all = sum[0];
#pragma GCC unroll 24
    for (int i = 1; i < CHAINS; i++)
        all = _mm512_add_ps(all, sum[i]);
    factors[1] = _mm512_reduce_add_ps(all) < 0.0f ? -1.25f : 1.25f;
    return 2.0 * 16 * CHAINS * PEAK_ROUNDS / (fr_bench_now() - begin);
}
#else
static double peak_flops(void)
{
    return 0.0;
}
#endif

/* The fastest of many calls: on a shared machine the others have been interrupted. */
static double best_flops(const struct fr_ops *ops, const struct fr_multiply *product, double *peak)
{
    double flops = 2.0 * (product->row_end - product->row_begin) * product->right->rows * product->right->columns;
    double best = 0.0;
    for (int i = 0; i < SHARE_REPEATS; i++) {
        double begin = fr_bench_now();
        ops->multiply(product);
        double rate = flops / (fr_bench_now() - begin), bound = peak_flops();
        best = rate > best ? rate : best;
        *peak = bound > *peak ? bound : *peak;
    }
    return best;
}

static void report_share(struct fr_bench *bench, const char *kind, const struct layer *layer, double share)
{
    char name[64];
    snprintf(name, sizeof(name), "%s_%" PRIu32 "x%" PRIu32, kind, layer->in, layer->out);
    fr_bench_number(bench, name, share);
}

/* One core's rate in each shape of products beside a loop of f32 fused multiply-adds in registers;
 * bf16 can be above 1. */
static void report_shares(struct fr_bench *bench, const struct fr_ops *ops)
{
    struct products *p = fr_alloc(1, sizeof(*p));
    double peak = 0.0;
    open_products(p, ops, NULL);
    fr_bench_begin(bench, "gemm_shares");
    fr_bench_text(bench, "kernel", ops->name);
    for (uint32_t l = 0; l + 1 < LAYERS; l++) {
        struct layer *layer = &p->layers[l];
        ops->pack(&layer->weights, 0, layer->in);
        ops->pack(&layer->weights_t, 0, layer->out);
        ops->pack(&layer->gradients, 0, BATCH);
        struct fr_operand x = {layer->x, layer->in, CHUNK, layer->in, false, NULL};
        struct fr_operand g = {layer->g, layer->out, CHUNK, layer->out, false, NULL};
        struct fr_operand x_t = {layer->x, layer->in, layer->in, BATCH, true, NULL};
        struct fr_multiply products[] = {
            {.left = &x, .right = &layer->weights, .row_end = CHUNK, .out = {p->x_gradient, layer->out}},
            {.left = &g, .right = &layer->weights_t, .row_end = CHUNK, .out = {p->x_gradient, layer->in}},
            {.left = &x_t, .right = &layer->gradients, .row_end = FR_ROW_BLOCK, .out = {p->x_gradient, layer->out}},
        };
        static const char *const kinds[] = {"forward", "inputs", "kernel"};
        for (size_t i = 0; i < FR_ARRAY_LEN(products); i++) {
            double best = best_flops(ops, &products[i], &peak);
            report_share(bench, kinds[i], layer, peak > 0.0 ? best / peak : 0.0);
        }
    }
    fr_bench_number(bench, "peak_gflops", peak * 1e-9);
    fr_bench_end(bench);
    close_products(p);
    free(p);
}

static const struct fr_ops *own_ops(const struct fr_bench *bench)
{
    return bench->conf && bench->conf->precision == FR_PRECISION_BF16 ? fr_ops_bf16() : fr_ops_cpu();
}

double fr_bench_measure_roof(struct fr_bench *bench)
{
    double own = measure(own_ops(bench), bench->threads), blas = measure(fr_ops_openblas(), bench->threads);
    double roof = own > blas ? own : blas;
    bench->roof = roof > bench->roof ? roof : bench->roof;
    bench->blas_roof = blas > bench->blas_roof ? blas : bench->blas_roof;
    return roof;
}

int fr_bench_gemm(struct fr_bench *bench)
{
    fr_bench_progress("gemm: the products of R16, %u threads, about %d s", bench->threads,
                      (int)(4 * FR_BENCH_REPEATS * measure_seconds) + 1);
    double giga = flops_per_sample() * 1e-9;
    double own = measure(own_ops(bench), bench->threads), blas = measure(fr_ops_openblas(), bench->threads);
    double own_one = measure(own_ops(bench), 1), blas_one = measure(fr_ops_openblas(), 1);
    double roof = own > blas ? own : blas;
    bench->roof = roof > bench->roof ? roof : bench->roof;
    bench->blas_roof = blas > bench->blas_roof ? blas : bench->blas_roof;
    fr_bench_begin(bench, "gemm");
    fr_bench_text(bench, "kernel", own_ops(bench)->name);
    fr_bench_text(bench, "blas", fr_ops_openblas()->kernel);
    fr_bench_number(bench, "threads", bench->threads);
    fr_bench_number(bench, "flops_per_sample", flops_per_sample());
    fr_bench_number(bench, "kernel_gflops", own * giga);
    fr_bench_number(bench, "blas_gflops", blas * giga);
    fr_bench_number(bench, "kernel_gflops_one_core", own_one * giga);
    fr_bench_number(bench, "blas_gflops_one_core", blas_one * giga);
    fr_bench_number(bench, "kernel_samples_per_second", own);
    fr_bench_number(bench, "blas_samples_per_second", blas);
    fr_bench_number(bench, "roof_samples_per_second", roof);
    fr_bench_end(bench);
    if (fr_ops_cpu_avx512())
        report_shares(bench, fr_ops_cpu());
    if (fr_ops_bf16())
        report_shares(bench, fr_ops_bf16());
    return FR_TOOL_OK;
}
