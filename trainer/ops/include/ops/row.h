/* Row and element mathematics of the optimizers, written once for CPU and GPU.
 *
 * Valid as C17 and as CUDA C++. A row body takes (lane, lane_count): the CPU passes 0, 1 and a warp its lane and 32;
 * lane l works on elements l, l + lane_count, ... Only basic operations and sqrt, which IEEE 754 fixes, so every
 * processor gives the same bits (-ffp-contract=off). Reductions over a row use FR_ROW_LANES partial sums and a fixed
 * tree whatever lane_count is.
 *
 * Order of a step: the raw gradient (finite and at most FR_GRADIENT_MAX, the graph has checked) is scaled so that its
 * norm is at most clip_norm; its elements are cut to +-clip_value; l2 w + l1 sign(w) is added, but for ftrl kinds,
 * whose l1 and l2 belong to the algorithm; then the rule. Both bounds hold for what the rule sees of the loss.
 *
 * Finite stays finite: values are cut to +-FR_VALUE_MAX, accumulators and z to FR_STATE_MAX, and with 0 < lr, eps and
 * decay rates < 1 no rule computes inf - inf, 0 * inf or 0 / 0 on the way (why: README). Training that is well never
 * meets the cuts.
 *
 * Sources: Adagrad: Duchi et al. 2011; row-wise: Naumov et al. 2019 (DLRM); momentum, RMSProp (Tieleman and Hinton
 * 2012), Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019): PyTorch's order of operations; FTRL-Proximal:
 * McMahan et al. 2013, algorithm 1; group FTRL: Yue et al. 2021, "Adaptive Optimizers with Sparse Group Lasso for
 * Neural Networks in CTR Prediction", algorithm of group FTRL with l2 as in McMahan et al. Thread: the owner of the
 * row. Does not: check for finite gradients. */
#ifndef FR_OPS_ROW_H
#define FR_OPS_ROW_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/math.h"

enum fr_update_kind {
    FR_UPDATE_SGD,
    FR_UPDATE_ADAGRAD,
    FR_UPDATE_ADAGRAD_ROWWISE,
    FR_UPDATE_ADAM,
    FR_UPDATE_FTRL,
    FR_UPDATE_MOMENTUM,
    FR_UPDATE_RMSPROP,
    FR_UPDATE_ADAM_ROWWISE,
    FR_UPDATE_GROUP_FTRL,
    FR_UPDATE_ADAMW,
};

struct fr_optimizer {
    enum fr_update_kind kind;
    float lr; /* ftrl*: alpha; the scheduled value of this step */
    float eps;
    float beta1, beta2;          /* adam* */
    float momentum, rho;         /* momentum; rmsprop */
    float beta, l21;             /* ftrl*; group_ftrl */
    float l1, l2;                /* ftrl*: of the algorithm; others: added to the gradient after clipping */
    float weight_decay;          /* adamw */
    float clip_value, clip_norm; /* 0: off; norm: of a row's part (dense: the caller's gradient_scale) */
};

enum { FR_ROW_LANES = 32 };

/* State floats of a part of `dim` values: sgd 0; adagrad, momentum, rmsprop dim; adagrad_rowwise 1; ftrl, group_ftrl
 * 2 dim (z then n); adam 2 dim + 1 (m, v, steps of this row); adam_rowwise dim + 2 (m, v, steps). adamw is dense's. */
FR_HD uint32_t fr_row_state_floats(enum fr_update_kind kind, uint32_t dim)
{
    switch (kind) {
    case FR_UPDATE_SGD:
        return 0;
    case FR_UPDATE_ADAGRAD:
    case FR_UPDATE_MOMENTUM:
    case FR_UPDATE_RMSPROP:
        return dim;
    case FR_UPDATE_ADAGRAD_ROWWISE:
        return 1;
    case FR_UPDATE_ADAM:
        return 2 * dim + 1;
    case FR_UPDATE_ADAM_ROWWISE:
        return dim + 2;
    case FR_UPDATE_FTRL:
    case FR_UPDATE_GROUP_FTRL:
    case FR_UPDATE_ADAMW:
        return 2 * dim;
    }
    return 0;
}

/* Arrays of state a dense parameter needs beside its values: 0 to 2. */
FR_HD uint32_t fr_dense_states(enum fr_update_kind kind)
{
    switch (kind) {
    case FR_UPDATE_ADAM:
    case FR_UPDATE_ADAMW:
    case FR_UPDATE_FTRL:
        return 2;
    case FR_UPDATE_ADAGRAD:
    case FR_UPDATE_MOMENTUM:
    case FR_UPDATE_RMSPROP:
        return 1;
    default: /* sgd; the others are optimizers of rows */
        return 0;
    }
}

/* Gradients beyond this count as not finite: their squares and some 10^7 of their sums stay below FR_STATE_MAX. */
#define FR_GRADIENT_MAX 1e15f
#define FR_VALUE_MAX 1e15f
#define FR_STATE_MAX 1e37f
/* Moments smaller than this become 0: halfway to subnormal they no longer move a weight but slow every later step. */
#define FR_MOMENT_FLUSH 1e-37f

/* NaN stays NaN. Selections, not branches: loops over these must vectorise. */
FR_HD float fr_cut(float x, float bound)
{
    return fr_select_f32(x > bound, bound, fr_select_f32(x < -bound, -bound, x));
}

FR_HD float fr_flush(float moment)
{
    return fr_select_f32((moment < FR_MOMENT_FLUSH) & (moment > -FR_MOMENT_FLUSH), 0.0f, moment);
}

/* ---- the gradient before the rule ---- */

FR_HD bool fr_ftrl_kind(enum fr_update_kind kind)
{
    return kind == FR_UPDATE_FTRL || kind == FR_UPDATE_GROUP_FTRL;
}

/* Whether the rule sees another gradient than the raw one. */
FR_HD bool fr_shapes_gradient(const struct fr_optimizer *o)
{
    bool penalty = !fr_ftrl_kind(o->kind) && (o->l1 != 0.0f || o->l2 != 0.0f);
    return penalty || o->clip_value != 0.0f || o->clip_norm != 0.0f;
}

FR_HD float fr_shaped_gradient(float g, float w, float scale, const struct fr_optimizer *o)
{
    float bound = o->clip_value != 0.0f ? o->clip_value : FR_GRADIENT_MAX;
    float l1 = fr_ftrl_kind(o->kind) ? 0.0f : o->l1, l2 = fr_ftrl_kind(o->kind) ? 0.0f : o->l2;
    g = fr_cut(g * scale, bound);
    g += l2 * w;
    g += fr_select_f32(w > 0.0f, l1, fr_select_f32(w < 0.0f, -l1, 0.0f));
    return fr_cut(g, FR_GRADIENT_MAX);
}

FR_HD float fr_clip_scale(float norm, float clip_norm)
{
    return clip_norm != 0.0f && norm > clip_norm ? clip_norm / norm : 1.0f;
}

/* ---- elements ---- */

FR_HD void fr_sgd_element(float *w, float g, float lr)
{
    *w = fr_cut(*w - lr * g, FR_VALUE_MAX);
}

FR_HD void fr_momentum_element(float *w, float *buffer, float g, float momentum, float lr)
{
    float b = fr_flush(momentum * *buffer + g);
    *buffer = b;
    *w = fr_cut(*w - lr * b, FR_VALUE_MAX);
}

/* The accumulator takes g^2 before it is used. */
FR_HD void fr_adagrad_element(float *w, float *acc, float g, float lr, float eps)
{
    float a = fr_cut(*acc + g * g, FR_STATE_MAX);
    *acc = a;
    *w = fr_cut(*w - lr * g / (sqrtf(a) + eps), FR_VALUE_MAX);
}

FR_HD void fr_rmsprop_element(float *w, float *square, float g, float rho, float lr, float eps)
{
    float s = fr_flush(rho * *square + (1.0f - rho) * (g * g));
    *square = s;
    *w = fr_cut(*w - lr * g / (sqrtf(s) + eps), FR_VALUE_MAX);
}

/* step_size, second_scale: fr_adam_correct. */
FR_HD void fr_adam_element(float *w, float *m, float *v, float g, const struct fr_optimizer *o, float step_size,
                           float second_scale)
{
    float mi = fr_flush(o->beta1 * *m + (1.0f - o->beta1) * g);
    float vi = fr_flush(o->beta2 * *v + (1.0f - o->beta2) * (g * g));
    *m = mi;
    *v = vi;
    *w = fr_cut(*w - step_size * mi / (sqrtf(vi) * second_scale + o->eps), FR_VALUE_MAX);
}

/* z and n of FTRL after gradient g; w is the value before. */
FR_HD void fr_ftrl_accumulate(float w, float *z, float *n, float g, float alpha)
{
    float n_new = fr_cut(*n + g * g, FR_STATE_MAX);
    float sigma = fr_cut((sqrtf(n_new) - sqrtf(*n)) / alpha, FR_STATE_MAX);
    *z = fr_cut(*z + (g - sigma * w), FR_STATE_MAX);
    *n = n_new;
}

/* z moved towards 0 by l1. */
FR_HD float fr_ftrl_shrunk(float z, float l1)
{
    float magnitude = fr_select_f32(z < 0.0f, -z, z);
    return fr_select_f32(magnitude <= l1, 0.0f, fr_select_f32(z < 0.0f, z + l1, z - l1));
}

FR_HD float fr_ftrl_value(float shrunk, float n, const struct fr_optimizer *o)
{
    float value = fr_cut(-shrunk / ((o->beta + sqrtf(n)) / o->lr + o->l2), FR_VALUE_MAX);
    return fr_select_f32(shrunk == 0.0f, 0.0f, value); /* also where 0 was divided by 0 */
}

FR_HD void fr_ftrl_element(float *w, float *z, float *n, float g, const struct fr_optimizer *o)
{
    fr_ftrl_accumulate(*w, z, n, g, o->lr);
    *w = fr_ftrl_value(fr_ftrl_shrunk(*z, o->l1), *n, o);
}

/* Factors of Adam's step number `steps` (from 1): lr / (1 - beta1^steps), 1 / sqrt(1 - beta2^steps). Powers by squaring
 * in double: multiplications only. */
struct fr_adam_factors {
    float step_size, second_scale;
};

FR_HD struct fr_adam_factors fr_adam_correct(const struct fr_optimizer *o, uint64_t steps)
{
    double first = 1.0, second = 1.0, b1 = (double)o->beta1, b2 = (double)o->beta2;
    for (; steps > 0; steps >>= 1) {
        if (steps & 1) {
            first *= b1;
            second *= b2;
        }
        b1 *= b1;
        b2 *= b2;
    }
    struct fr_adam_factors factors;
    factors.step_size = (float)((double)o->lr / (1.0 - first));
    factors.second_scale = (float)(1.0 / sqrt(1.0 - second));
    return factors;
}

/* ---- reductions over a row ---- */

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

/* Up to 16 squares: a lane beyond them is 0, and a square plus 0 is that square, so the tree may begin at 16 lanes. Of
 * fixed length, it stays in a vector register. */
FR_HD float fr_row_sum_few_squares(const float *g, uint32_t dim)
{
    float p[16];
    for (uint32_t i = 0; i < 16; i++)
        p[i] = 0.0f;
    for (uint32_t i = 0; i < dim; i++)
        p[i] = g[i] * g[i];
    for (uint32_t i = 0; i < 8; i++)
        p[i] += p[i + 8];
    for (uint32_t i = 0; i < 4; i++)
        p[i] += p[i + 4];
    return (p[0] + p[2]) + (p[1] + p[3]);
}

FR_HD float fr_row_sum_squares(const float *g, uint32_t dim)
{
    if (dim <= 16)
        return fr_row_sum_few_squares(g, dim);
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

/* ---- rows: one part of `dim` values ---- */

/* `sum_squares` of the raw gradient: fr_row_sum_squares or a warp. */
FR_HD void fr_row_shape_gradient(float *__restrict__ g, const float *__restrict__ w, uint32_t dim, float sum_squares,
                                 const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    float scale = fr_clip_scale(sqrtf(sum_squares), o->clip_norm);
    for (uint32_t i = lane; i < dim; i += lane_count)
        g[i] = fr_shaped_gradient(g[i], w[i], scale, o);
}

FR_HD void fr_row_sgd(float *__restrict__ w, const float *__restrict__ g, uint32_t dim, const struct fr_optimizer *o,
                      uint32_t lane, uint32_t lane_count)
{
    float lr = o->lr;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_sgd_element(&w[i], g[i], lr);
}

FR_HD void fr_row_momentum(float *__restrict__ w, float *__restrict__ buffer, const float *__restrict__ g, uint32_t dim,
                           const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    float momentum = o->momentum, lr = o->lr;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_momentum_element(&w[i], &buffer[i], g[i], momentum, lr);
}

FR_HD void fr_row_adagrad(float *__restrict__ w, float *__restrict__ acc, const float *__restrict__ g, uint32_t dim,
                          const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    float lr = o->lr, eps = o->eps;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_adagrad_element(&w[i], &acc[i], g[i], lr, eps);
}

FR_HD void fr_row_rmsprop(float *__restrict__ w, float *__restrict__ square, const float *__restrict__ g, uint32_t dim,
                          const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    float rho = o->rho, lr = o->lr, eps = o->eps;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_rmsprop_element(&w[i], &square[i], g[i], rho, lr, eps);
}

/* One accumulator for the part: `sum_squares` of its gradient comes from fr_row_sum_squares or a warp. Every lane reads
 * *acc before lane 0 writes it: a warp calls this converged and synchronises after; so with the steps of Adam below. */
FR_HD void fr_row_adagrad_rowwise(float *__restrict__ w, float *__restrict__ acc, const float *__restrict__ g,
                                  uint32_t dim, float sum_squares, const struct fr_optimizer *o, uint32_t lane,
                                  uint32_t lane_count)
{
    float a = fr_cut(*acc + sum_squares / (float)dim, FR_STATE_MAX);
    float rate = fr_cut(o->lr / (sqrtf(a) + o->eps), FR_STATE_MAX);
    for (uint32_t i = lane; i < dim; i += lane_count)
        w[i] = fr_cut(w[i] - rate * g[i], FR_VALUE_MAX);
    if (lane == 0)
        *acc = a;
}

/* Lazy Adam: a row's moments and steps move only when the row is trained. Steps are counted in a float, exact up to
 * 2^24, where they stay: the corrections are 1 long before. */
FR_HD uint32_t fr_row_next_step(float steps)
{
    return steps >= 0.0f && steps < 16777216.0f ? (uint32_t)steps + 1 : 16777216u;
}

FR_HD void fr_row_adam(float *__restrict__ w, float *__restrict__ state, const float *__restrict__ g, uint32_t dim,
                       const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    float *__restrict__ m = state, *__restrict__ v = state + dim;
    struct fr_optimizer local = *o;
    uint32_t steps = fr_row_next_step(state[2 * dim]);
    struct fr_adam_factors factors = fr_adam_correct(&local, steps);
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_adam_element(&w[i], &m[i], &v[i], g[i], &local, factors.step_size, factors.second_scale);
    if (lane == 0)
        state[2 * dim] = (float)steps;
}

/* One second moment for the part: the mean of the squares takes the place of g^2. */
FR_HD void fr_row_adam_rowwise(float *__restrict__ w, float *__restrict__ state, const float *__restrict__ g,
                               uint32_t dim, float sum_squares, const struct fr_optimizer *o, uint32_t lane,
                               uint32_t lane_count)
{
    float beta1 = o->beta1;
    uint32_t steps = fr_row_next_step(state[dim + 1]);
    struct fr_adam_factors factors = fr_adam_correct(o, steps);
    float v = fr_flush(o->beta2 * state[dim] + (1.0f - o->beta2) * (sum_squares / (float)dim));
    float divisor = sqrtf(v) * factors.second_scale + o->eps;
    for (uint32_t i = lane; i < dim; i += lane_count) {
        float m = fr_flush(beta1 * state[i] + (1.0f - beta1) * g[i]);
        state[i] = m;
        w[i] = fr_cut(w[i] - factors.step_size * m / divisor, FR_VALUE_MAX);
    }
    if (lane == 0) {
        state[dim] = v;
        state[dim + 1] = (float)steps;
    }
}

FR_HD void fr_row_ftrl(float *__restrict__ w, float *__restrict__ z, float *__restrict__ n, const float *__restrict__ g,
                       uint32_t dim, const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    struct fr_optimizer local = *o;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_ftrl_element(&w[i], &z[i], &n[i], g[i], &local);
}

/* Group FTRL in two bodies with a reduction between them. First: z and n; w takes the shrunk z. */
FR_HD void fr_row_group_ftrl_shrink(float *__restrict__ w, float *__restrict__ z, float *__restrict__ n,
                                    const float *__restrict__ g, uint32_t dim, const struct fr_optimizer *o,
                                    uint32_t lane, uint32_t lane_count)
{
    float alpha = o->lr, l1 = o->l1;
    for (uint32_t i = lane; i < dim; i += lane_count) {
        fr_ftrl_accumulate(w[i], &z[i], &n[i], g[i], alpha);
        w[i] = fr_ftrl_shrunk(z[i], l1);
    }
}

/* Second: the part is 0 when the norm of the shrunk z is at most sqrt(dim) l21; else every value is scaled by 1 -
 * sqrt(dim) l21 / norm. `sum_squares` is that of w, the shrunk z. l21 = 0: plain FTRL, to the bit. */
FR_HD void fr_row_group_ftrl_values(float *__restrict__ w, const float *__restrict__ n, uint32_t dim, float sum_squares,
                                    const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    struct fr_optimizer local = *o;
    float threshold = sqrtf((float)dim) * o->l21, norm = sqrtf(sum_squares);
    float factor = o->l21 == 0.0f ? 1.0f : norm <= threshold ? 0.0f : 1.0f - threshold / norm;
    for (uint32_t i = lane; i < dim; i += lane_count)
        w[i] = fr_ftrl_value(w[i] * factor, n[i], &local);
}

/* One part of a row on the CPU: values, state, and its raw gradient, which is overwritten. Always inlined: left out of
 * line it is compiled once for the plainest processor, and row updates take a third longer. */
FR_HD __attribute__((always_inline)) void fr_row_step(float *w, float *state, float *g, uint32_t dim,
                                                      const struct fr_optimizer *o)
{
    if (fr_shapes_gradient(o))
        fr_row_shape_gradient(g, w, dim, o->clip_norm != 0.0f ? fr_row_sum_squares(g, dim) : 0.0f, o, 0, 1);
    switch (o->kind) {
    case FR_UPDATE_SGD:
        fr_row_sgd(w, g, dim, o, 0, 1);
        break;
    case FR_UPDATE_MOMENTUM:
        fr_row_momentum(w, state, g, dim, o, 0, 1);
        break;
    case FR_UPDATE_ADAGRAD:
        fr_row_adagrad(w, state, g, dim, o, 0, 1);
        break;
    case FR_UPDATE_ADAGRAD_ROWWISE:
        fr_row_adagrad_rowwise(w, state, g, dim, fr_row_sum_squares(g, dim), o, 0, 1);
        break;
    case FR_UPDATE_RMSPROP:
        fr_row_rmsprop(w, state, g, dim, o, 0, 1);
        break;
    case FR_UPDATE_ADAM:
        fr_row_adam(w, state, g, dim, o, 0, 1);
        break;
    case FR_UPDATE_ADAM_ROWWISE:
        fr_row_adam_rowwise(w, state, g, dim, fr_row_sum_squares(g, dim), o, 0, 1);
        break;
    case FR_UPDATE_FTRL:
        fr_row_ftrl(w, state, state + dim, g, dim, o, 0, 1);
        break;
    case FR_UPDATE_GROUP_FTRL:
        fr_row_group_ftrl_shrink(w, state, state + dim, g, dim, o, 0, 1);
        fr_row_group_ftrl_values(w, state + dim, dim, fr_row_sum_squares(w, dim), o, 0, 1);
        break;
    case FR_UPDATE_ADAMW: /* not an optimizer of rows: refused when the graph is made */
        break;
    }
}

#endif
