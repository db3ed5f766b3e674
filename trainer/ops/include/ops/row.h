/* Row mathematics, written once for CPU and GPU: optimizer steps on one part of an embedding row.
 *
 * Valid as C17 and as CUDA C++. A body takes (lane, lane_count): the CPU passes 0, 1 and a warp its lane and 32; lane l
 * works on elements l, l + lane_count, ... Only basic operations and sqrt, which IEEE 754 fixes, so every processor
 * gives the same bits
 * (-ffp-contract=off). Reductions over a row use FR_ROW_LANES partial sums and a fixed tree whatever lane_count is.
 * Sources: Adagrad: Duchi et al. 2011; row-wise: Naumov et al. 2019 (DLRM); FTRL-Proximal: McMahan et al. 2013,
 * algorithm 1. Thread: the owner of the row. Does not: check for finite gradients (the graph does, before any row
 * changes). */
#ifndef FR_OPS_ROW_H
#define FR_OPS_ROW_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/math.h"

enum fr_update_kind { FR_UPDATE_SGD, FR_UPDATE_ADAGRAD, FR_UPDATE_ADAGRAD_ROWWISE, FR_UPDATE_ADAM, FR_UPDATE_FTRL };

struct fr_optimizer {
    enum fr_update_kind kind;
    float lr; /* ftrl: alpha */
    float eps;
    float beta1, beta2; /* adam */
    float beta, l1, l2; /* ftrl */
};

enum { FR_ROW_LANES = 32 };

/* State floats of a part of `dim` values: sgd 0, adagrad dim, adagrad_rowwise 1, ftrl 2 dim (z then n). */
FR_HD uint32_t fr_row_state_floats(enum fr_update_kind kind, uint32_t dim)
{
    switch (kind) {
    case FR_UPDATE_ADAGRAD:
        return dim;
    case FR_UPDATE_ADAGRAD_ROWWISE:
        return 1;
    case FR_UPDATE_ADAM: /* dense parameters only */
    case FR_UPDATE_FTRL:
        return 2 * dim;
    case FR_UPDATE_SGD:
        break;
    }
    return 0;
}

FR_HD void fr_row_sgd(float *__restrict__ v, const float *__restrict__ g, uint32_t dim, float lr, uint32_t lane,
                      uint32_t lane_count)
{
    for (uint32_t i = lane; i < dim; i += lane_count)
        v[i] -= lr * g[i];
}

/* The accumulator takes g^2 before it is used. */
FR_HD void fr_adagrad_element(float *v, float *acc, float g, float lr, float eps)
{
    float a = *acc + g * g;
    *acc = a;
    *v -= lr * g / (sqrtf(a) + eps);
}

FR_HD void fr_row_adagrad(float *__restrict__ v, float *__restrict__ acc, const float *__restrict__ g, uint32_t dim,
                          const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    float lr = o->lr, eps = o->eps;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_adagrad_element(&v[i], &acc[i], g[i], lr, eps);
}

/* Partial sum `lane` of FR_ROW_LANES of the squares of a row; a warp's lane computes its own and joins them by shuffles
 * in the order of fr_row_tree. */
FR_HD float fr_row_square_partial(const float *g, uint32_t dim, uint32_t lane)
{
    float sum = 0.0f;
    for (uint32_t i = lane; i < dim; i += FR_ROW_LANES)
        sum += g[i] * g[i];
    return sum;
}

FR_HD float fr_row_tree(float *partial)
{
    for (uint32_t half = FR_ROW_LANES / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            partial[i] += partial[i + half];
    return partial[0];
}

FR_HD float fr_row_sum_squares(const float *g, uint32_t dim)
{
    float partial[FR_ROW_LANES];
    for (uint32_t i = 0; i < FR_ROW_LANES; i++)
        partial[i] = 0.0f;
    uint32_t whole = dim / FR_ROW_LANES * FR_ROW_LANES;
    for (uint32_t i = 0; i < whole; i += FR_ROW_LANES)
        for (uint32_t j = 0; j < FR_ROW_LANES; j++)
            partial[j] += g[i + j] * g[i + j];
    for (uint32_t i = whole; i < dim; i++)
        partial[i - whole] += g[i] * g[i];
    return fr_row_tree(partial);
}

/* One accumulator for the part: `sum_squares` of its gradient comes from fr_row_sum_squares or a warp. Every lane reads
 * *acc before lane 0 writes it: a warp calls this converged and synchronises after. */
FR_HD void fr_row_adagrad_rowwise(float *__restrict__ v, float *__restrict__ acc, const float *__restrict__ g,
                                  uint32_t dim, float sum_squares, const struct fr_optimizer *o, uint32_t lane,
                                  uint32_t lane_count)
{
    float a = *acc + sum_squares / (float)dim;
    float rate = o->lr / (sqrtf(a) + o->eps);
    for (uint32_t i = lane; i < dim; i += lane_count)
        v[i] -= rate * g[i];
    if (lane == 0)
        *acc = a;
}

FR_HD void fr_row_ftrl(float *__restrict__ w, float *__restrict__ z, float *__restrict__ n, const float *__restrict__ g,
                       uint32_t dim, const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    float alpha = o->lr, beta = o->beta, l1 = o->l1, l2 = o->l2;
    for (uint32_t i = lane; i < dim; i += lane_count) {
        float n_new = n[i] + g[i] * g[i];
        float root = sqrtf(n_new);
        float sigma = (root - sqrtf(n[i])) / alpha;
        float zi = z[i] + (g[i] - sigma * w[i]);
        float magnitude = zi < 0.0f ? -zi : zi;
        float shrunk = zi < 0.0f ? zi + l1 : zi - l1;
        w[i] = magnitude <= l1 ? 0.0f : -shrunk / ((beta + root) / alpha + l2);
        z[i] = zi;
        n[i] = n_new;
    }
}

/* One part of a row on the CPU: values `v`, its state, its gradient. */
FR_HD void fr_row_step(float *v, float *state, const float *g, uint32_t dim, const struct fr_optimizer *o)
{
    switch (o->kind) {
    case FR_UPDATE_SGD:
        fr_row_sgd(v, g, dim, o->lr, 0, 1);
        break;
    case FR_UPDATE_ADAGRAD:
        fr_row_adagrad(v, state, g, dim, o, 0, 1);
        break;
    case FR_UPDATE_ADAGRAD_ROWWISE:
        fr_row_adagrad_rowwise(v, state, g, dim, fr_row_sum_squares(g, dim), o, 0, 1);
        break;
    case FR_UPDATE_FTRL:
        fr_row_ftrl(v, state, state + dim, g, dim, o, 0, 1);
        break;
    case FR_UPDATE_ADAM: /* not an optimizer of rows: refused when the graph is made */
        break;
    }
}

/* Adam moments smaller than this become 0: halfway to subnormal they no longer move a weight but slow every later step.
 */
#define FR_MOMENT_FLUSH 1e-37f

FR_HD void fr_adam_element(float *w, float *m, float *v, float g, const struct fr_optimizer *o, float step_size,
                           float second_scale)
{
    float mi = o->beta1 * *m + (1.0f - o->beta1) * g;
    float vi = o->beta2 * *v + (1.0f - o->beta2) * (g * g);
    mi = (mi < 0.0f ? -mi : mi) < FR_MOMENT_FLUSH ? 0.0f : mi;
    vi = vi < FR_MOMENT_FLUSH ? 0.0f : vi;
    *m = mi;
    *v = vi;
    *w -= step_size * mi / (sqrtf(vi) * second_scale + o->eps);
}

#endif
