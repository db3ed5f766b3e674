/* Row and element mathematics of the optimizers, written once for CPU and GPU.
 *
 * The header is valid as C17 and as CUDA C++. A row body takes (lane, lane_count): the CPU passes
 * 0, 1 and a warp its lane and 32; lane l works on elements l, l + lane_count, ... Only basic
 * operations and sqrt are used, which IEEE 754 fixes, so every processor gives the same bits
 * (-ffp-contract=off). Reductions over a row use FR_ROW_LANES partial sums and a fixed tree
 * whatever lane_count is.
 *
 * Time is counted in units, not in steps: a row's unit is one trained occurrence, a layer's is
 * batch_size samples. A step over `units` of them gets the gradient s summed over them (a
 * layer's: divided by batch_size, so of units = n / batch_size), and rates, decays and moments
 * change as much as by that many single steps on gradients with the same noise: rates linearly,
 * decay factors by the power `units`, second moments by s^2 / units (Malladi et al. 2022 for
 * Adam and RMSProp). So learning does not depend on how samples are divided into batches; at
 * units = 1 every rule is the textbook's.
 *
 * The order of a step: the mean gradient of a unit, s / units, is scaled so that its norm is at
 * most clip_norm; its elements are cut to +-clip_value; l2 w + l1 sign(w) is added, except for ftrl
 * kinds, whose l1 and l2 belong to the algorithm; the mean is turned into the sum again; then the
 * rule runs. The raw gradient is finite and at most FR_GRADIENT_MAX, which the graph has checked.
 *
 * Finite stays finite: values are cut to +-FR_VALUE_MAX, accumulators and z to FR_STATE_MAX, and
 * with 0 < lr, eps and decay rates < 1 no rule computes inf - inf, 0 * inf or 0 / 0 on the way
 * (docs/learning.md says why). Healthy training never reaches these bounds.
 *
 * Sources: Adagrad: Duchi et al. 2011; row-wise: Naumov et al. 2019 (DLRM); momentum, RMSProp
 * (Tieleman and Hinton 2012), Adam (Kingma and Ba 2015; for rows lazy: only a row that is
 * trained moves and ages), AdamW (Loshchilov and Hutter 2019): PyTorch's order of operations;
 * FTRL-Proximal: McMahan et al. 2013, algorithm 1; group FTRL: Yue et al. 2021, "Adaptive
 * Optimizers with Sparse Group Lasso for Neural Networks in CTR Prediction", algorithm of group
 * FTRL with l2 as in McMahan et al.
 *
 * Thread: the owner of the row. Whether gradients are finite is not checked here. */
#ifndef FR_OPS_ROW_H
#define FR_OPS_ROW_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/math.h"
#include "vocabulary/optimizer.h"

/* What one step of `units` units means for a rule; see fr_pace_of. */
struct fr_pace {
    float units;
    float scale; /* factor that turns the given gradient into the sum s of the units */
    /* factor that turns the given gradient into the mean of a unit, clip_norm included */
    float mean_scale;
    float rate;
    /* moments: keep * old + gain * (s or s^2); adagrad*: gain2 is the share that is lost */
    float keep1, keep2, gain1, gain2;
    float second_scale; /* adam*: 1 / sqrt(1 - beta2^t) */
    float shrink;       /* adamw: the share of a value that the decay leaves */
};

enum { FR_ROW_LANES = 32 };

/* A gradient beyond this limit counts as not finite. The square of a gradient within it, and a
 * sum of some 10^7 such squares, stay below FR_STATE_MAX. */
#define FR_GRADIENT_MAX 1e15f
#define FR_VALUE_MAX 1e15f
#define FR_STATE_MAX 1e37f
/* Moments smaller than this become 0: so close to the subnormal numbers they no longer move a
 * weight, but would slow every later step. */
#define FR_MOMENT_FLUSH 1e-37f

/* Cuts x to +-bound; NaN stays NaN. There are selections and no branches, because loops over
 * this function must vectorise. */
FR_HD float fr_cut(float x, float bound)
{
    return fr_select_f32(x > bound, bound, fr_select_f32(x < -bound, -bound, x));
}

FR_HD float fr_flush(float moment)
{
    return fr_select_f32((moment < FR_MOMENT_FLUSH) & (moment > -FR_MOMENT_FLUSH), 0.0f, moment);
}

/* ---- the gradient before the rule ---- */

FR_HD bool fr_ftrl_kind(enum fr_optimizer_kind kind)
{
    return kind == FR_OPT_FTRL || kind == FR_OPT_GROUP_FTRL;
}

/* Whether the rule gets a gradient that differs from the raw one. */
FR_HD bool fr_shapes_gradient(const struct fr_optimizer *o)
{
    bool penalty = !fr_ftrl_kind(o->kind) && (o->l1 != 0.0f || o->l2 != 0.0f);
    return penalty || o->clip_value != 0.0f || o->clip_norm != 0.0f;
}

/* Returns s of the units after clipping and penalties. */
FR_HD float fr_shaped_gradient(float g, float w, const struct fr_optimizer *o, const struct fr_pace *pace)
{
    float bound = o->clip_value != 0.0f ? o->clip_value : FR_GRADIENT_MAX;
    float l1 = fr_ftrl_kind(o->kind) ? 0.0f : o->l1, l2 = fr_ftrl_kind(o->kind) ? 0.0f : o->l2;
    g = fr_cut(g * pace->mean_scale, bound);
    g += l2 * w;
    g += fr_select_f32(w > 0.0f, l1, fr_select_f32(w < 0.0f, -l1, 0.0f));
    return fr_cut(g * pace->units, FR_GRADIENT_MAX);
}

FR_HD float fr_clip_scale(float norm, float clip_norm)
{
    return clip_norm != 0.0f && norm > clip_norm ? clip_norm / norm : 1.0f;
}

/* ---- the pace of a step ---- */

/* Computes the powers of a step that takes `units` and ends at age t, in double. base1 is beta1 or
 * momentum, base2 is beta2, rho or what adagrad keeps. */
struct fr_powers {
    double units;
    double units1, units2; /* base1 and base2 to the power `units` */
    double age1, age2;     /* adam*: base1 and base2 to the power t */
};

FR_HD bool fr_adagrad_kind(enum fr_optimizer_kind kind)
{
    return kind == FR_OPT_ADAGRAD || kind == FR_OPT_ADAGRAD_ROWWISE;
}

FR_HD double fr_base1(const struct fr_optimizer *o)
{
    return (double)(o->kind == FR_OPT_MOMENTUM ? o->momentum : o->beta1);
}

FR_HD double fr_base2(const struct fr_optimizer *o)
{
    if (fr_adagrad_kind(o->kind))
        return o->keep > 0.0 ? o->keep : 1.0;
    return (double)(o->kind == FR_OPT_RMSPROP ? o->rho : o->beta2);
}

FR_HD double fr_power(double base, uint64_t n)
{
    double result = 1.0;
    for (; n > 0; n >>= 1) {
        if (n & 1)
            result *= base;
        base *= base;
    }
    return result;
}

FR_HD bool fr_adam_kind(enum fr_optimizer_kind kind)
{
    return kind == FR_OPT_ADAM || kind == FR_OPT_ADAMW || kind == FR_OPT_ADAM_ROWWISE;
}

/* The pace for gradients that are sums already, so that `scale` is 1. */
FR_HD struct fr_pace fr_pace_of(const struct fr_optimizer *o, const struct fr_powers *powers)
{
    struct fr_pace pace;
    pace.units = (float)powers->units;
    pace.scale = 1.0f;
    pace.mean_scale = 1.0f / pace.units;
    pace.rate = o->lr;
    pace.keep1 = pace.keep2 = pace.gain1 = pace.gain2 = 0.0f;
    pace.second_scale = 1.0f;
    pace.shrink = 1.0f;
    if (fr_adagrad_kind(o->kind))
        /* the share that is lost, which f32 holds more exactly than the share that is kept */
        pace.gain2 = (float)(1.0 - powers->units2);
    if (o->kind == FR_OPT_MOMENTUM) {
        pace.keep1 = (float)powers->units1;
        pace.gain1 = (float)((1.0 - powers->units1) / (1.0 - (double)o->momentum) / powers->units);
        pace.rate = (float)((double)o->lr * powers->units);
    }
    if (o->kind == FR_OPT_RMSPROP || fr_adam_kind(o->kind)) {
        pace.keep2 = (float)powers->units2;
        pace.gain2 = (float)((1.0 - powers->units2) / powers->units);
    }
    if (fr_adam_kind(o->kind)) {
        double rate = (double)o->lr * powers->units, shrink = 1.0 - rate * (double)o->weight_decay;
        pace.keep1 = (float)powers->units1;
        pace.gain1 = (float)((1.0 - powers->units1) / powers->units);
        pace.rate = (float)(rate / (1.0 - powers->age1));
        pace.second_scale = (float)(1.0 / sqrt(1.0 - powers->age2));
        pace.shrink = (float)(shrink > 0.0 ? shrink : 0.0);
    }
    return pace;
}

/* The sum over `count` occurrences of a frequent key would move plain SGD beyond the minimum,
 * where single steps would have changed direction. So the step is damped like an implicit step
 * with curvature 1/4, the largest curvature of the log loss: lr / (1 + lr (count - 1) / 4). The
 * step is at most 4 mean gradients, however often the key occurs (Kulis and Bartlett 2010). */
FR_HD float fr_row_damping(float lr, uint32_t count)
{
    return 1.0f / (1.0f + lr * 0.25f * (float)(count - 1));
}

/* Returns the age of a row after `count` more occurrences, in a float. The age is exact up to
 * 2^24 and then stays there; the corrections that depend on it are 1 long before. */
FR_HD uint32_t fr_row_age(float age, uint32_t count)
{
    if (!(age >= 0.0f && age < 16777216.0f) || count > 16777216u)
        return 16777216u;
    uint32_t next = (uint32_t)age + count;
    return next < 16777216u ? next : 16777216u;
}

/* `age`: fr_row_age, read by adam kinds only. */
FR_HD struct fr_pace fr_row_pace(const struct fr_optimizer *o, uint32_t count, uint32_t age)
{
    struct fr_powers powers = {.units = (double)count, .units1 = fr_base1(o), .units2 = fr_base2(o)};
    if (count != 1) {
        powers.units1 = fr_power(powers.units1, count);
        powers.units2 = fr_power(powers.units2, count);
    }
    if (fr_adam_kind(o->kind)) {
        powers.age1 = fr_power((double)o->beta1, age);
        powers.age2 = fr_power((double)o->beta2, age);
    }
    struct fr_pace pace = fr_pace_of(o, &powers);
    if (o->kind == FR_OPT_SGD)
        pace.rate *= fr_row_damping(o->lr, count);
    if (o->kind == FR_OPT_MOMENTUM)
        pace.rate *= fr_row_damping(o->lr / (1.0f - o->momentum), count);
    return pace;
}

/* ---- elements: s is the sum of the step's units ---- */

FR_HD void fr_sgd_element(float *w, float s, float rate)
{
    *w = fr_cut(*w - rate * s, FR_VALUE_MAX);
}

FR_HD void fr_momentum_element(float *w, float *buffer, float s, const struct fr_pace *pace)
{
    float b = fr_flush(pace->keep1 * *buffer + pace->gain1 * s);
    *buffer = b;
    *w = fr_cut(*w - pace->rate * b, FR_VALUE_MAX);
}

/* s^2 is added to the accumulator before the accumulator is used. */
FR_HD void fr_adagrad_element(float *w, float *acc, float s, const struct fr_pace *pace, float eps)
{
    float a = fr_cut(*acc - pace->gain2 * *acc + s * s, FR_STATE_MAX);
    *acc = a;
    *w = fr_cut(*w - pace->rate * s / (sqrtf(a) + eps), FR_VALUE_MAX);
}

FR_HD void fr_rmsprop_element(float *w, float *square, float s, const struct fr_pace *pace, float eps)
{
    float v = fr_flush(pace->keep2 * *square + pace->gain2 * (s * s));
    *square = v;
    *w = fr_cut(*w - pace->rate * s / (sqrtf(v) + eps), FR_VALUE_MAX);
}

FR_HD void fr_adam_element(float *w, float *m, float *v, float s, const struct fr_pace *pace, float eps)
{
    float mi = fr_flush(pace->keep1 * *m + pace->gain1 * s);
    float vi = fr_flush(pace->keep2 * *v + pace->gain2 * (s * s));
    *m = mi;
    *v = vi;
    *w = fr_cut(*w - pace->rate * mi / (sqrtf(vi) * pace->second_scale + eps), FR_VALUE_MAX);
}

/* Keeps first values: before the first gradient (n = 0), returns the z from which the closed
 * form gives w. */
FR_HD float fr_ftrl_first(float w, const struct fr_optimizer *o)
{
    float z = w * fr_cut(o->beta / o->lr + o->l2, FR_STATE_MAX);
    z += fr_select_f32(w > 0.0f, o->l1, fr_select_f32(w < 0.0f, -o->l1, 0.0f));
    return fr_cut(-z, FR_STATE_MAX);
}

/* Updates z and n of FTRL with gradient g; w is the value before the step. */
FR_HD void fr_ftrl_accumulate(float w, float *z, float *n, float g, float alpha)
{
    float n_new = fr_cut(*n + g * g, FR_STATE_MAX);
    float sigma = fr_cut((sqrtf(n_new) - sqrtf(*n)) / alpha, FR_STATE_MAX);
    *z = fr_cut(*z + (g - sigma * w), FR_STATE_MAX);
    *n = n_new;
}

/* Returns z, moved towards 0 by l1. */
FR_HD float fr_ftrl_shrunk(float z, float l1)
{
    float magnitude = fr_select_f32(z < 0.0f, -z, z);
    return fr_select_f32(magnitude <= l1, 0.0f, fr_select_f32(z < 0.0f, z + l1, z - l1));
}

FR_HD float fr_ftrl_value(float shrunk, float n, const struct fr_optimizer *o)
{
    float value = fr_cut(-shrunk / ((o->beta + sqrtf(n)) / o->lr + o->l2), FR_VALUE_MAX);
    return fr_select_f32(shrunk == 0.0f, 0.0f, value); /* also if 0 was divided by 0 */
}

FR_HD void fr_ftrl_element(float *w, float *z, float *n, float s, const struct fr_optimizer *o)
{
    *z = fr_select_f32(*n == 0.0f, fr_ftrl_first(*w, o), *z);
    fr_ftrl_accumulate(*w, z, n, s, o->lr);
    *w = fr_ftrl_value(fr_ftrl_shrunk(*z, o->l1), *n, o);
}

/* If these were not inlined, they would be compiled only once, for the simplest processor and
 * rows of any length. */
#define FR_HD_IN_LINE FR_HD __attribute__((always_inline))

/* ---- reductions over a row ---- */

/* Returns partial sum `lane` of the FR_ROW_LANES sums of squares of a row. Each lane of a warp
 * computes its own, and shuffles join them in the order of fr_row_tree. */
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

/* Sums up to 16 squares. The lanes beyond them are 0, and a square plus 0 is that square, so the
 * tree may begin at 16 lanes. With this fixed length the sums stay in a vector register. */
FR_HD_IN_LINE float fr_row_sum_few_squares(const float *g, uint32_t dim)
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

FR_HD_IN_LINE float fr_row_sum_squares(const float *g, uint32_t dim)
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

/* g is the given gradient, scaled by the pace. A kernel passes registers and pointers, no
 * struct. NOLINTBEGIN(readability-function-size) */

/* `sum_squares`: of the given gradient, from fr_row_sum_squares or a warp; used only with
 * clip_norm. Afterwards g is s, and the scale of the pace is 1. */
FR_HD void fr_row_shape_gradient(float *__restrict__ g, const float *__restrict__ w, uint32_t dim, float sum_squares,
                                 const struct fr_optimizer *o, struct fr_pace *pace, uint32_t lane, uint32_t lane_count)
{
    struct fr_pace local = *pace;
    local.mean_scale *= fr_clip_scale(sqrtf(sum_squares) * local.mean_scale, o->clip_norm);
    for (uint32_t i = lane; i < dim; i += lane_count)
        g[i] = fr_shaped_gradient(g[i], w[i], o, &local);
    pace->scale = 1.0f;
}

FR_HD_IN_LINE void fr_row_sgd(float *__restrict__ w, const float *__restrict__ g, uint32_t dim,
                              const struct fr_pace *pace, uint32_t lane, uint32_t lane_count)
{
    float rate = pace->rate, scale = pace->scale;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_sgd_element(&w[i], g[i] * scale, rate);
}

FR_HD void fr_row_momentum(float *__restrict__ w, float *__restrict__ buffer, const float *__restrict__ g, uint32_t dim,
                           const struct fr_pace *pace, uint32_t lane, uint32_t lane_count)
{
    struct fr_pace local = *pace;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_momentum_element(&w[i], &buffer[i], g[i] * local.scale, &local);
}

FR_HD_IN_LINE void fr_row_adagrad(float *__restrict__ w, float *__restrict__ acc, const float *__restrict__ g,
                                  uint32_t dim, const struct fr_optimizer *o, const struct fr_pace *pace, uint32_t lane,
                                  uint32_t lane_count)
{
    struct fr_pace local = *pace;
    float eps = o->eps;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_adagrad_element(&w[i], &acc[i], g[i] * local.scale, &local, eps);
}

FR_HD void fr_row_rmsprop(float *__restrict__ w, float *__restrict__ square, const float *__restrict__ g, uint32_t dim,
                          const struct fr_optimizer *o, const struct fr_pace *pace, uint32_t lane, uint32_t lane_count)
{
    struct fr_pace local = *pace;
    float eps = o->eps;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_rmsprop_element(&w[i], &square[i], g[i] * local.scale, &local, eps);
}

FR_HD void fr_row_adam(float *__restrict__ w, float *__restrict__ m, float *__restrict__ v, const float *__restrict__ g,
                       uint32_t dim, const struct fr_optimizer *o, const struct fr_pace *pace, uint32_t lane,
                       uint32_t lane_count)
{
    struct fr_pace local = *pace;
    float eps = o->eps;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_adam_element(&w[i], &m[i], &v[i], g[i] * local.scale, &local, eps);
}

/* The decay is applied first, as in PyTorch. */
FR_HD void fr_row_adamw(float *__restrict__ w, float *__restrict__ m, float *__restrict__ v,
                        const float *__restrict__ g, uint32_t dim, const struct fr_optimizer *o,
                        const struct fr_pace *pace, uint32_t lane, uint32_t lane_count)
{
    struct fr_pace local = *pace;
    float eps = o->eps;
    for (uint32_t i = lane; i < dim; i += lane_count) {
        w[i] = fr_cut(w[i] * local.shrink, FR_VALUE_MAX);
        fr_adam_element(&w[i], &m[i], &v[i], g[i] * local.scale, &local, eps);
    }
}

/* Row-wise rules exist only for rows; g is s already (scale 1). The part has one accumulator;
 * `sum_squares`, of s, comes from fr_row_sum_squares or a warp. Every lane reads *acc before
 * lane 0 writes it, so all lanes of a warp call this function together and synchronise
 * afterwards. The same holds for the functions below. */
FR_HD_IN_LINE void fr_row_adagrad_rowwise(float *__restrict__ w, float *__restrict__ acc, const float *__restrict__ g,
                                          uint32_t dim, float sum_squares, const struct fr_optimizer *o,
                                          const struct fr_pace *pace, uint32_t lane, uint32_t lane_count)
{
    float a = fr_cut(*acc - pace->gain2 * *acc + sum_squares / (float)dim, FR_STATE_MAX);
    float rate = fr_cut(pace->rate / (sqrtf(a) + o->eps), FR_STATE_MAX);
    for (uint32_t i = lane; i < dim; i += lane_count)
        w[i] = fr_cut(w[i] - rate * g[i], FR_VALUE_MAX);
    if (lane == 0)
        *acc = a;
}

/* The part has one second moment: the mean of the squares takes the place of s^2. */
FR_HD void fr_row_adam_rowwise(float *__restrict__ w, float *__restrict__ m, float *__restrict__ second,
                               const float *__restrict__ g, uint32_t dim, float sum_squares,
                               const struct fr_optimizer *o, const struct fr_pace *pace, uint32_t lane,
                               uint32_t lane_count)
{
    float v = fr_flush(pace->keep2 * *second + pace->gain2 * (sum_squares / (float)dim));
    float divisor = sqrtf(v) * pace->second_scale + o->eps;
    float keep = pace->keep1, gain = pace->gain1, rate = pace->rate;
    for (uint32_t i = lane; i < dim; i += lane_count) {
        float mi = fr_flush(keep * m[i] + gain * g[i]);
        m[i] = mi;
        w[i] = fr_cut(w[i] - rate * mi / divisor, FR_VALUE_MAX);
    }
    if (lane == 0)
        *second = v;
}

FR_HD void fr_row_ftrl(float *__restrict__ w, float *__restrict__ z, float *__restrict__ n, const float *__restrict__ g,
                       uint32_t dim, const struct fr_optimizer *o, const struct fr_pace *pace, uint32_t lane,
                       uint32_t lane_count)
{
    struct fr_optimizer local = *o;
    float scale = pace->scale;
    for (uint32_t i = lane; i < dim; i += lane_count)
        fr_ftrl_element(&w[i], &z[i], &n[i], g[i] * scale, &local);
}

/* Group FTRL has two functions, with a reduction before each. The first updates z and n, and
 * sets w to the shrunk z. `first_squares`: the sum of the squares of w if the part has had no
 * gradient yet (n all 0), otherwise negative. In the first case z is scaled so that the penalty
 * of the group leaves exactly w. */
FR_HD void fr_row_group_ftrl_shrink(float *__restrict__ w, float *__restrict__ z, float *__restrict__ n,
                                    const float *__restrict__ g, uint32_t dim, float first_squares,
                                    const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    float alpha = o->lr, l1 = o->l1;
    float norm = sqrtf(first_squares > 0.0f ? first_squares : 0.0f) * fr_cut(o->beta / o->lr + o->l2, FR_STATE_MAX);
    float stretch = norm > 0.0f ? 1.0f + fr_cut(sqrtf((float)dim) * o->l21 / norm, FR_STATE_MAX) : 1.0f;
    struct fr_optimizer plain = *o;
    plain.l1 = 0.0f;
    for (uint32_t i = lane; i < dim; i += lane_count) {
        if (first_squares >= 0.0f) {
            float first = fr_cut(fr_ftrl_first(w[i], &plain) * stretch, FR_STATE_MAX);
            z[i] = first + fr_select_f32(first > 0.0f, l1, fr_select_f32(first < 0.0f, -l1, 0.0f));
        }
        fr_ftrl_accumulate(w[i], &z[i], &n[i], g[i], alpha);
        w[i] = fr_ftrl_shrunk(z[i], l1);
    }
}

/* The second function of group FTRL: the part becomes 0 if the norm of the shrunk z is at most
 * sqrt(dim) l21; otherwise every value is scaled by 1 - sqrt(dim) l21 / norm. `sum_squares`: of
 * w, which holds the shrunk z. With l21 = 0 the bits are those of plain FTRL. */
FR_HD void fr_row_group_ftrl_values(float *__restrict__ w, const float *__restrict__ n, uint32_t dim, float sum_squares,
                                    const struct fr_optimizer *o, uint32_t lane, uint32_t lane_count)
{
    struct fr_optimizer local = *o;
    float threshold = sqrtf((float)dim) * o->l21, norm = sqrtf(sum_squares);
    float factor = o->l21 == 0.0f ? 1.0f : norm <= threshold ? 0.0f : 1.0f - threshold / norm;
    for (uint32_t i = lane; i < dim; i += lane_count)
        w[i] = fr_ftrl_value(w[i] * factor, n[i], &local);
}

/* NOLINTEND(readability-function-size) */

/* Whether no gradient has come to the part yet, by its accumulators n. */
FR_HD bool fr_row_untouched(const float *n, uint32_t dim)
{
    float largest = 0.0f;
    for (uint32_t i = 0; i < dim; i++)
        largest = n[i] > largest ? n[i] : largest;
    return largest == 0.0f;
}

/* Returns where a row of an adam kind keeps its age; NULL: it has none. */
FR_HD float *fr_row_age_of(float *state, uint32_t dim, enum fr_optimizer_kind kind)
{
    return kind == FR_OPT_ADAM ? state + 2 * dim : kind == FR_OPT_ADAM_ROWWISE ? state + dim + 1 : NULL;
}

/* Steps one part of a row on the CPU: values, state, and the gradient summed over `count`
 * trained occurrences, which is overwritten. If this function is not inlined, updates of rows
 * take a third longer. */
FR_HD_IN_LINE void fr_row_step(float *w, float *state, float *g, uint32_t dim, uint32_t count,
                               const struct fr_optimizer *o)
{
    float *age = fr_row_age_of(state, dim, o->kind);
    uint32_t next_age = age ? fr_row_age(*age, count) : 0;
    struct fr_pace pace = fr_row_pace(o, count, next_age);
    if (age)
        *age = (float)next_age;
    if (fr_shapes_gradient(o))
        fr_row_shape_gradient(g, w, dim, o->clip_norm != 0.0f ? fr_row_sum_squares(g, dim) : 0.0f, o, &pace, 0, 1);
    switch (o->kind) {
    case FR_OPT_SGD:
        fr_row_sgd(w, g, dim, &pace, 0, 1);
        break;
    case FR_OPT_MOMENTUM:
        fr_row_momentum(w, state, g, dim, &pace, 0, 1);
        break;
    case FR_OPT_ADAGRAD:
        fr_row_adagrad(w, state, g, dim, o, &pace, 0, 1);
        break;
    case FR_OPT_ADAGRAD_ROWWISE:
        fr_row_adagrad_rowwise(w, state, g, dim, fr_row_sum_squares(g, dim), o, &pace, 0, 1);
        break;
    case FR_OPT_RMSPROP:
        fr_row_rmsprop(w, state, g, dim, o, &pace, 0, 1);
        break;
    case FR_OPT_ADAM:
        fr_row_adam(w, state, state + dim, g, dim, o, &pace, 0, 1);
        break;
    case FR_OPT_ADAM_ROWWISE:
        fr_row_adam_rowwise(w, state, state + dim, g, dim, fr_row_sum_squares(g, dim), o, &pace, 0, 1);
        break;
    case FR_OPT_FTRL:
        fr_row_ftrl(w, state, state + dim, g, dim, o, &pace, 0, 1);
        break;
    case FR_OPT_GROUP_FTRL: {
        bool first = fr_row_untouched(state + dim, dim);
        fr_row_group_ftrl_shrink(w, state, state + dim, g, dim, first ? fr_row_sum_squares(w, dim) : -1.0f, o, 0, 1);
        fr_row_group_ftrl_values(w, state + dim, dim, fr_row_sum_squares(w, dim), o, 0, 1);
        break;
    }
    case FR_OPT_ADAMW: /* not an optimizer of rows; refused when the graph is made */
        break;
    }
}

#endif
