/* CPU backend: products of vectors, dot products of pairs, cross, mixture of experts, sums over
 * columns.
 *
 * Rows are computed one by one. Sums over a row use lanes (lanes.h), sums over inputs run in
 * ascending order, so bits do not depend on vector width, chunk or neighbours. Gradients may be
 * the same view several times: each is added in a loop of its own.
 *
 * Thread: any, no state. Whether numbers are finite is not checked. */
#include <string.h>

#include "base/math.h"
#include "cpu.h"
#include "lanes.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { COLUMNS = 64 }; /* columns of one pass over the inputs */

/* Computes elements [first, first + width) of row i: the product of all inputs except `skipped`,
 * times the elements of `start`. */
FR_IN_LINE void multiply_inputs(const struct fr_interaction *c, uint32_t skipped, uint32_t i, uint32_t first,
                                uint32_t width, float *restrict product)
{
    for (uint32_t a = 0; a < c->count; a++) {
        if (a == skipped)
            continue;
        const float *v = c->in[a].values + i * c->in[a].ld + first;
        for (uint32_t j = 0; j < width; j++)
            product[j] *= v[j];
    }
}

FR_CLONES
void fr_cpu_product(const struct fr_interaction *c)
{
    for (uint32_t i = 0; i < c->m; i++) {
        for (uint32_t first = 0; first < c->n; first += COLUMNS) {
            uint32_t width = c->n - first < COLUMNS ? c->n - first : COLUMNS;
            float product[COLUMNS];
            for (uint32_t j = 0; j < width; j++)
                product[j] = 1.0f;
            multiply_inputs(c, c->count, i, first, width, product);
            memcpy(c->out.values + i * c->out.ld + first, product, width * sizeof(float));
        }
    }
}

FR_CLONES
void fr_cpu_product_backward(const struct fr_interaction *c)
{
    for (uint32_t i = 0; i < c->m; i++) {
        for (uint32_t first = 0; first < c->n; first += COLUMNS) {
            uint32_t width = c->n - first < COLUMNS ? c->n - first : COLUMNS;
            for (uint32_t a = 0; a < c->count; a++) {
                if (!c->in_gradient[a].values)
                    continue;
                float product[COLUMNS];
                memcpy(product, c->out.values + i * c->out.ld + first, width * sizeof(float));
                multiply_inputs(c, a, i, first, width, product);
                float *d = c->in_gradient[a].values + i * c->in_gradient[a].ld + first;
                for (uint32_t j = 0; j < width; j++)
                    d[j] += product[j];
            }
        }
    }
}

FR_CLONES
void fr_cpu_dot_interaction(const struct fr_interaction *c)
{
    for (uint32_t i = 0; i < c->m; i++) {
        float *out = c->out.values + i * c->out.ld;
        for (uint32_t b = 1; b < c->count; b++) {
            const float *right = c->in[b].values + i * c->in[b].ld;
            for (uint32_t a = 0; a < b; a++)
                *out++ = fr_lanes_dot(c->in[a].values + i * c->in[a].ld, right, c->n);
        }
    }
}

FR_CLONES
void fr_cpu_dot_interaction_backward(const struct fr_interaction *c)
{
    for (uint32_t i = 0; i < c->m; i++) {
        const float *g = c->out.values + i * c->out.ld;
        for (uint32_t first = 0; first < c->n; first += COLUMNS) {
            uint32_t width = c->n - first < COLUMNS ? c->n - first : COLUMNS;
            for (uint32_t a = 0; a < c->count; a++) {
                if (!c->in_gradient[a].values)
                    continue;
                float sum[COLUMNS] = {0};
                for (size_t b = 0; b < c->count; b++) {
                    if (b == a)
                        continue;
                    float pair = b < a ? g[(size_t)a * (a - 1) / 2 + b] : g[b * (b - 1) / 2 + a];
                    const float *v = c->in[b].values + i * c->in[b].ld + first;
                    for (uint32_t j = 0; j < width; j++)
                        sum[j] += pair * v[j];
                }
                float *d = c->in_gradient[a].values + i * c->in_gradient[a].ld + first;
                for (uint32_t j = 0; j < width; j++)
                    d[j] += sum[j];
            }
        }
    }
}

FR_CLONES
void fr_cpu_cross(const struct fr_cross *c)
{
    for (uint32_t i = 0; i < c->m; i++) {
        const float *x0 = c->x0.values + i * c->x0.ld, *t = c->t.values + i * c->t.ld, *x = c->x.values + i * c->x.ld;
        float *out = c->out.values + i * c->out.ld;
        _Pragma("GCC ivdep") for (uint32_t j = 0; j < c->n; j++) out[j] = x0[j] * t[j] + x[j];
    }
}

/* d += a b. */
FR_IN_LINE void add_products(float *restrict d, const float *restrict a, const float *restrict b, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        d[j] += a[j] * b[j];
}

FR_IN_LINE void add_scaled(float *restrict d, float scale, const float *restrict a, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        d[j] += scale * a[j];
}

FR_CLONES
void fr_cpu_cross_backward(const struct fr_cross *c)
{
    for (uint32_t i = 0; i < c->m; i++) {
        const float *g = c->out.values + i * c->out.ld;
        if (c->x0_gradient.values)
            add_products(c->x0_gradient.values + i * c->x0_gradient.ld, g, c->t.values + i * c->t.ld, c->n);
        if (c->t_gradient.values)
            add_products(c->t_gradient.values + i * c->t_gradient.ld, g, c->x0.values + i * c->x0.ld, c->n);
        if (c->x_gradient.values)
            add_scaled(c->x_gradient.values + i * c->x_gradient.ld, 1.0f, g, c->n);
    }
}

FR_CLONES
void fr_cpu_mixture(const struct fr_mixture *c)
{
    for (uint32_t i = 0; i < c->m; i++) {
        const float *restrict gates = c->gates.values + i * c->gates.ld;
        float *restrict w = c->weights.values + i * c->weights.ld, *restrict out = c->out.values + i * c->out.ld;
        float largest = gates[0], sum = 0.0f;
        for (uint32_t e = 1; e < c->count; e++)
            largest = gates[e] > largest ? gates[e] : largest;
        for (uint32_t e = 0; e < c->count; e++) {
            w[e] = fr_expf(gates[e] - largest);
            sum += w[e];
        }
        for (uint32_t e = 0; e < c->count; e++)
            w[e] /= sum;
        memset(out, 0, c->n * sizeof(float));
        for (uint32_t e = 0; e < c->count; e++)
            add_scaled(out, w[e], c->experts.values + i * c->experts.ld + (size_t)e * c->n, c->n);
    }
}

FR_CLONES
void fr_cpu_mixture_backward(const struct fr_mixture *c)
{
    for (uint32_t i = 0; i < c->m; i++) {
        const float *w = c->weights.values + i * c->weights.ld, *g = c->gradient.values + i * c->gradient.ld;
        const float *experts = c->experts.values + i * c->experts.ld;
        if (c->gates_gradient.values) {
            float *d = c->gates_gradient.values + i * c->gates_gradient.ld, mean = 0.0f;
            for (uint32_t e = 0; e < c->count; e++)
                mean += w[e] * fr_lanes_dot(g, experts + (size_t)e * c->n, c->n);
            for (uint32_t e = 0; e < c->count; e++)
                d[e] += w[e] * (fr_lanes_dot(g, experts + (size_t)e * c->n, c->n) - mean);
        }
        if (c->experts_gradient.values) {
            float *d = c->experts_gradient.values + i * c->experts_gradient.ld;
            for (uint32_t e = 0; e < c->count; e++)
                add_scaled(d + (size_t)e * c->n, w[e], g, c->n);
        }
    }
}

FR_CLONES
void fr_cpu_row_sum(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    for (uint32_t i = 0; i < m; i++)
        out.values[i * out.ld] = fr_lanes_sum(in.values + i * in.ld, n);
}

FR_CLONES
void fr_cpu_row_sum_backward(uint32_t m, uint32_t n, struct fr_view gradient, struct fr_view in_gradient)
{
    for (uint32_t i = 0; i < m; i++) {
        float g = gradient.values[i * gradient.ld];
        float *d = in_gradient.values + i * in_gradient.ld;
        for (uint32_t j = 0; j < n; j++)
            d[j] += g;
    }
}
