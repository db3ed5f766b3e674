/* CPU backend: the first layer of a target attention (Zhou et al. 2018, DIN) over [q, k, q - k, q o
 * k] of an entry's query and each of its keys.
 *
 * Idea: for a given query all of these are linear in k. With Q, K, D, P the kernel's rows for
 * the four parts, the layer is k M + c with M = K - D + diag(q) P and c = q (Q + D) + b.
 * Computing M and c of an entry costs as much as one step. A step then costs the products of one
 * block of rows instead of four, and nothing four times as wide as a key is stored. In the
 * backward pass, X = sum over steps of g k' and s = sum of g suffice for the gradients of the
 * kernel and of the query.
 *
 * In the backward pass all matrices are transposed, [units, width], so that sums over units run
 * down a column. Bits of an entry do not depend on the others where rows of a product do not
 * (fr_ops.rows_independent). Thread: any, no state. Whether numbers are finite is not checked. */
#include <string.h>

#include "cpu.h"
#include "lanes.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { ALIGNMENT = 16 }; /* floats in a cache line */

/* The blocks of the kernel's rows. */
enum { QUERY, KEY, DIFFERENCE, PRODUCT };

/* Matrices, each [units, width]. */
enum matrix {
    OF_ENTRY,    /* M; forward [width, units] */
    OF_KEYS,     /* K - D */
    OF_PRODUCTS, /* P */
    OF_QUERY,    /* Q + D */
    OUTER,       /* X of the entry */
    SUM_OUTER,   /* sums over entries: of X, of X diag(q), of s q' */
    SUM_SCALED,
    SUM_QUERY,
    MATRICES,
};

struct workspace {
    float *matrix[MATRICES];
    float *units; /* [units] c; in the backward pass s */
};

static size_t rounded(size_t floats)
{
    return (floats + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t fr_cpu_attention_workspace(uint32_t width, uint32_t units)
{
    return ALIGNMENT + MATRICES * rounded((size_t)width * units) + units;
}

static struct workspace lay_out(const struct fr_attention_dense *c)
{
    size_t misaligned = (uintptr_t)c->workspace / sizeof(float) % ALIGNMENT;
    struct workspace w = {.units = c->workspace + (misaligned ? ALIGNMENT - misaligned : 0)};
    for (uint32_t i = 0; i < MATRICES; i++, w.units += rounded((size_t)c->width * c->units))
        w.matrix[i] = w.units;
    return w;
}

static const float *kernel_row(const struct fr_attention_dense *c, uint32_t block, uint32_t j)
{
    return c->kernel + ((size_t)block * c->width + j) * c->units;
}

static uint32_t steps_of(const struct fr_attention_dense *c, uint32_t e)
{
    return c->steps.begin[e + 1] - c->steps.begin[e];
}

static struct fr_view from_step(struct fr_view v, size_t p)
{
    return (struct fr_view){v.values ? v.values + p * v.ld : NULL, v.ld};
}

static const float *query_of(const struct fr_attention_dense *c, uint32_t e)
{
    return c->query.values + (size_t)(e - c->steps.entry_begin) * c->query.ld;
}

/* ---- forward ---- */

/* Computes M and c of one entry. */
FR_CLONES
static void entry_kernel(const struct fr_attention_dense *c, const float *q, const struct workspace *w)
{
    uint32_t u = c->units;
    float *restrict start = w->units;
    for (uint32_t o = 0; o < u; o++)
        start[o] = c->bias ? c->bias[o] : 0.0f;
    for (uint32_t j = 0; j < c->width; j++) {
        const float *restrict of_query = kernel_row(c, QUERY, j), *restrict of_key = kernel_row(c, KEY, j);
        const float *restrict difference = kernel_row(c, DIFFERENCE, j), *restrict product = kernel_row(c, PRODUCT, j);
        float *restrict out = w->matrix[OF_ENTRY] + (size_t)j * u;
        for (uint32_t o = 0; o < u; o++) {
            out[o] = of_key[o] - difference[o] + q[j] * product[o];
            start[o] += q[j] * (of_query[o] + difference[o]);
        }
    }
}

void fr_cpu_attention_dense(const struct fr_attention_dense *c, const struct fr_ops *ops)
{
    struct workspace w = lay_out(c);
    struct fr_operand right = {.values = w.matrix[OF_ENTRY], .ld = c->units, .rows = c->width, .columns = c->units};
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        uint32_t n = steps_of(c, e);
        if (n == 0)
            continue;
        entry_kernel(c, query_of(c, e), &w);
        struct fr_view keys = from_step(c->keys, c->steps.begin[e]), out = from_step(c->out, c->steps.begin[e]);
        struct fr_operand left = {.values = keys.values, .ld = keys.ld, .rows = n, .columns = c->width};
        ops->multiply(&(struct fr_multiply){
            .left = &left, .right = &right, .row_end = n, .out = out, .bias = w.units, .relu = c->relu});
    }
}

/* ---- backward ---- */

/* Computes what all entries share, and zeroes the sums. */
FR_CLONES
static void begin_backward(const struct fr_attention_dense *c, const struct workspace *w)
{
    for (uint32_t j = 0; j < c->width; j++) {
        const float *of_query = kernel_row(c, QUERY, j), *of_key = kernel_row(c, KEY, j);
        const float *difference = kernel_row(c, DIFFERENCE, j), *product = kernel_row(c, PRODUCT, j);
        for (uint32_t o = 0; o < c->units; o++) {
            size_t at = (size_t)o * c->width + j;
            w->matrix[OF_KEYS][at] = of_key[o] - difference[o];
            w->matrix[OF_PRODUCTS][at] = product[o];
            w->matrix[OF_QUERY][at] = of_query[o] + difference[o];
        }
    }
    for (uint32_t i = SUM_OUTER; i <= SUM_QUERY; i++)
        memset(w->matrix[i], 0, (size_t)c->width * c->units * sizeof(float));
}

/* Computes the gradient of the keys of one entry, g M'. */
FR_CLONES
static void turned_kernel(const struct fr_attention_dense *c, const float *restrict q, const struct workspace *w)
{
    for (uint32_t o = 0; o < c->units; o++) {
        size_t row = (size_t)o * c->width;
        const float *restrict keys = w->matrix[OF_KEYS] + row, *restrict products = w->matrix[OF_PRODUCTS] + row;
        float *restrict out = w->matrix[OF_ENTRY] + row;
        for (uint32_t j = 0; j < c->width; j++)
            out[j] = keys[j] + q[j] * products[j];
    }
}

FR_CLONES
static void add_to_kernel(const struct fr_attention_dense *c, const float *restrict q, const struct workspace *w)
{
    for (uint32_t o = 0; o < c->units; o++) {
        size_t row = (size_t)o * c->width;
        const float *restrict outer = w->matrix[OUTER] + row;
        float *restrict sum = w->matrix[SUM_OUTER] + row, *restrict scaled = w->matrix[SUM_SCALED] + row;
        float *restrict of_query = w->matrix[SUM_QUERY] + row, s = w->units[o];
        for (uint32_t j = 0; j < c->width; j++) {
            sum[j] += outer[j];
            scaled[j] += q[j] * outer[j];
            of_query[j] += q[j] * s;
        }
    }
}

FR_CLONES
static void add_to_query(const struct fr_attention_dense *c, uint32_t e, const struct workspace *w)
{
    float *restrict d = c->query_gradient.values + (size_t)(e - c->steps.entry_begin) * c->query_gradient.ld;
    for (uint32_t o = 0; o < c->units; o++) {
        size_t row = (size_t)o * c->width;
        const float *restrict outer = w->matrix[OUTER] + row, *restrict products = w->matrix[OF_PRODUCTS] + row;
        const float *restrict of_query = w->matrix[OF_QUERY] + row;
        float s = w->units[o];
        for (uint32_t j = 0; j < c->width; j++)
            d[j] += products[j] * outer[j] + of_query[j] * s;
    }
}

/* Converts the sums over entries to the layout of the kernel. */
static void end_backward(const struct fr_attention_dense *c, const struct workspace *w)
{
    for (uint32_t j = 0; j < c->width; j++) {
        float *row[PRODUCT + 1];
        for (uint32_t block = 0; block <= PRODUCT; block++)
            row[block] = c->kernel_gradient + ((size_t)block * c->width + j) * c->units;
        for (uint32_t o = 0; o < c->units; o++) {
            size_t at = (size_t)o * c->width + j;
            float outer = w->matrix[SUM_OUTER][at], of_query = w->matrix[SUM_QUERY][at];
            row[QUERY][o] += of_query;
            row[KEY][o] += outer;
            row[DIFFERENCE][o] += of_query - outer;
            row[PRODUCT][o] += w->matrix[SUM_SCALED][at];
        }
    }
}

/* Computes the products of one entry: the gradient of its keys, and X. */
static void entry_products(const struct fr_attention_dense *c, uint32_t e, const struct workspace *w,
                           const struct fr_ops *ops)
{
    uint32_t n = steps_of(c, e), begin = c->steps.begin[e], u = c->units, width = c->width;
    struct fr_view g = from_step(c->gradient, begin), keys = from_step(c->keys, begin);
    if (c->keys_gradient.values) {
        turned_kernel(c, query_of(c, e), w);
        struct fr_operand left = {.values = g.values, .ld = g.ld, .rows = n, .columns = u};
        struct fr_operand right = {.values = w->matrix[OF_ENTRY], .ld = width, .rows = u, .columns = width};
        ops->multiply(&(struct fr_multiply){.left = &left,
                                            .right = &right,
                                            .row_end = n,
                                            .out = from_step(c->keys_gradient, begin),
                                            .accumulate = true});
    }
    struct fr_operand left = {.values = g.values, .ld = g.ld, .rows = u, .columns = n, .transposed = true};
    struct fr_operand right = {.values = keys.values, .ld = keys.ld, .rows = n, .columns = width};
    if (c->kernel_gradient || c->query_gradient.values)
        ops->multiply(
            &(struct fr_multiply){.left = &left, .right = &right, .row_end = u, .out = {w->matrix[OUTER], width}});
}

void fr_cpu_attention_dense_backward(const struct fr_attention_dense *c, const struct fr_ops *ops)
{
    struct workspace w = lay_out(c);
    begin_backward(c, &w);
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        uint32_t n = steps_of(c, e);
        struct fr_view g = from_step(c->gradient, c->steps.begin[e]);
        if (n == 0)
            continue;
        if (c->relu)
            ops->relu_backward(n, c->units, from_step(c->out, c->steps.begin[e]), g);
        ops->bias_gradient(n, c->units, g, w.units);
        for (uint32_t o = 0; o < c->units && c->bias_gradient; o++)
            c->bias_gradient[o] += w.units[o];
        entry_products(c, e, &w, ops);
        if (c->kernel_gradient)
            add_to_kernel(c, query_of(c, e), &w);
        if (c->query_gradient.values)
            add_to_query(c, e, &w);
    }
    if (c->kernel_gradient)
        end_backward(c, &w);
}
