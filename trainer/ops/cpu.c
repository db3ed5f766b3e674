/* CPU backend: vectorised elementwise loops, gradients of small layers, loss and dense updates.
 *
 * Idea: every loop runs over one chunk that a matrix product has just left in cache. Elements are
 * independent, or are summed down the rows in ascending order, so the bits do not depend on the
 * vector width the machine has.
 *
 * Thread: any, no state. Nothing here splits work or allocates, and only max_bits checks whether
 * numbers are finite. */
#include "cpu.h"

#include <string.h>

#include "base/math.h"

/* The loops here are worth vectorising; with -O2 alone the compiler vectorises only the
 * cheapest. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Treats rows without gaps as one row, so that a column of single numbers is a vectorised loop,
 * too. */
static inline void join_rows(uint32_t *m, uint32_t *n, size_t ld, size_t other_ld)
{
    bool joined = ld == *n && other_ld == *n && *m > 0 && *n <= UINT32_MAX / *m;
    *n *= joined ? *m : 1;
    *m = joined ? 1 : *m;
}

void fr_cpu_copy(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    join_rows(&m, &n, in.ld, out.ld);
    for (uint32_t i = 0; i < m; i++)
        memcpy(out.values + i * out.ld, in.values + i * in.ld, n * sizeof(float));
}

FR_CLONES
void fr_cpu_add(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    join_rows(&m, &n, in.ld, out.ld);
    for (uint32_t i = 0; i < m; i++) {
        const float *restrict x = in.values + i * in.ld;
        float *restrict y = out.values + i * out.ld;
        for (uint32_t j = 0; j < n; j++)
            y[j] += x[j];
    }
}

FR_CLONES
void fr_cpu_bias_activate(uint32_t m, uint32_t n, struct fr_view y, const float *bias, bool relu)
{
    for (uint32_t i = 0; i < m; i++) {
        float *restrict row = y.values + i * y.ld;
        const float *restrict b = bias;
        if (relu) {
            for (uint32_t j = 0; j < n; j++) {
                float z = row[j] + b[j];
                /* NaN stays NaN, so that the check of the logits finds it */
                row[j] = z < 0.0f ? 0.0f : z;
            }
        } else {
            for (uint32_t j = 0; j < n; j++)
                row[j] += b[j];
        }
    }
}

FR_CLONES
void fr_cpu_relu_backward(uint32_t m, uint32_t n, struct fr_view y, struct fr_view gradient)
{
    for (uint32_t i = 0; i < m; i++) {
        const float *restrict value = y.values + i * y.ld;
        float *restrict g = gradient.values + i * gradient.ld;
        for (uint32_t j = 0; j < n; j++)
            g[j] = value[j] > 0.0f ? g[j] : 0.0f;
    }
}

FR_CLONES
void fr_cpu_bias_gradient(uint32_t m, uint32_t n, struct fr_view gradient, float *out)
{
    enum { BLOCK = 64, NARROW = 16 }; /* columns whose sums stay in registers */
    uint32_t j = 0;
    for (; j + BLOCK <= n; j += BLOCK) {
        float sum[BLOCK] = {0};
        for (uint32_t i = 0; i < m; i++) {
            const float *g = gradient.values + i * gradient.ld + j;
            for (uint32_t c = 0; c < BLOCK; c++)
                sum[c] += g[c];
        }
        memcpy(out + j, sum, sizeof(sum));
    }
    for (; j + NARROW <= n; j += NARROW) {
        float sum[NARROW] = {0};
        for (uint32_t i = 0; i < m; i++) {
            const float *g = gradient.values + i * gradient.ld + j;
            for (uint32_t c = 0; c < NARROW; c++)
                sum[c] += g[c];
        }
        memcpy(out + j, sum, sizeof(sum));
    }
    for (; j < n; j++) {
        float sum = 0.0f;
        for (uint32_t i = 0; i < m; i++)
            sum += gradient.values[i * gradient.ld + j];
        out[j] = sum;
    }
}

enum { BI_BLOCK = 32 }; /* columns of one pass over the arguments */

FR_CLONES
void fr_cpu_bi_interaction(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in, struct fr_view out)
{
    for (uint32_t i = 0; i < m; i++) {
        for (uint32_t first = 0; first < n; first += BI_BLOCK) {
            uint32_t width = n - first < BI_BLOCK ? n - first : BI_BLOCK;
            float sum[BI_BLOCK] = {0}, squares[BI_BLOCK] = {0};
            for (uint32_t a = 0; a < count; a++) {
                const float *v = in[a].values + i * in[a].ld + first;
                for (uint32_t j = 0; j < width; j++) {
                    sum[j] += v[j];
                    squares[j] += v[j] * v[j];
                }
            }
            float *y = out.values + i * out.ld + first;
            for (uint32_t j = 0; j < width; j++)
                y[j] = 0.5f * (sum[j] * sum[j] - squares[j]);
        }
    }
}

FR_CLONES
void fr_cpu_bi_interaction_backward(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in,
                                    struct fr_view gradient, const struct fr_view *in_gradient)
{
    for (uint32_t i = 0; i < m; i++) {
        for (uint32_t first = 0; first < n; first += BI_BLOCK) {
            uint32_t width = n - first < BI_BLOCK ? n - first : BI_BLOCK;
            float sum[BI_BLOCK] = {0};
            for (uint32_t a = 0; a < count; a++) {
                const float *v = in[a].values + i * in[a].ld + first;
                for (uint32_t j = 0; j < width; j++)
                    sum[j] += v[j];
            }
            const float *g = gradient.values + i * gradient.ld + first;
            for (uint32_t a = 0; a < count; a++) {
                if (!in_gradient[a].values)
                    continue;
                const float *v = in[a].values + i * in[a].ld + first;
                float *d = in_gradient[a].values + i * in_gradient[a].ld + first;
                for (uint32_t j = 0; j < width; j++)
                    d[j] += g[j] * (sum[j] - v[j]);
            }
        }
    }
}

FR_CLONES
uint32_t fr_cpu_max_bits(uint32_t m, uint32_t n, struct fr_view x)
{
    join_rows(&m, &n, x.ld, x.ld);
    uint32_t largest = 0;
    for (uint32_t i = 0; i < m; i++) {
        const float *row = x.values + i * x.ld;
        for (uint32_t j = 0; j < n; j++) {
            uint32_t bits = fr_f32_bits(row[j]) & 0x7fffffffu;
            largest = bits > largest ? bits : largest;
        }
    }
    return largest;
}

/* ---- after a product ---- */

static struct fr_view part_of(struct fr_view x, const struct fr_product_part *part)
{
    return (struct fr_view){x.values + part->row * x.ld + part->column, x.ld};
}

void fr_cpu_finish(const struct fr_multiply *product, const struct fr_product_part *part)
{
    struct fr_view out = part_of(product->out, part);
    if (product->bias)
        fr_cpu_bias_activate(part->rows, part->columns, out, product->bias + part->column, product->relu);
    if (product->gate.values)
        fr_cpu_relu_backward(part->rows, part->columns, part_of(product->gate, part), out);
    if (product->bits) {
        uint32_t bits = fr_cpu_max_bits(part->rows, part->columns, out);
        *product->bits = bits > *product->bits ? bits : *product->bits;
    }
}
