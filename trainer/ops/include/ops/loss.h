/* Element mathematics of the losses of tasks, written once for CPU and GPU.
 *
 * The header is valid as C17 and as CUDA C++. Logarithms of probabilities are softplus, never
 * log of a rounded probability: a confident, right answer keeps its small loss, and a confident,
 * wrong one keeps its slope.
 *
 * Product of probabilities (ESMM, Ma et al. 2018): with S = sum softplus(-z_k), p = e^-S; logit
 * = -log(e^S - 1); d loss / d z_k = -sigmoid(-z_k) (y - (1 - y) / (e^S - 1)). When all z are
 * large, S is below the resolution of e^S and, for still larger z, below that of f32. Then
 * softplus(-z) = e^-z, and everything is computed relative to the smallest z.
 *
 * Focal loss: Lin et al. 2017.
 *
 * Thread: any, no state. Masks and weights of samples are applied by the callers. */
#ifndef FR_OPS_LOSS_H
#define FR_OPS_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/math.h"
#include "ops/ops.h"

/* log(1 + e^z) - y z. max(z, 0) - y z is exact in double. */
FR_HD double fr_cross_entropy(float z, float y)
{
    float tail = fr_log1pf(fr_expf(fr_select_f32(z < 0.0f, z, -z)));
    return (double)fr_select_f32(z > 0.0f, z, 0.0f) - (double)y * (double)z + (double)tail;
}

/* One half of the focal loss, for the right answer "z large": (1 - p)^gamma (-log p) and its
 * derivative by z. */
FR_HD float fr_focal_half(float z, float gamma, float *slope)
{
    float miss = fr_sigmoidf(-z), cost = fr_softplusf(-z);
    float factor = fr_expf(-gamma * fr_softplusf(z));
    *slope = -factor * (gamma * fr_sigmoidf(z) * cost + miss);
    return factor * cost;
}

/* ---- the loss of one sample ---- */

/* The loss of output z and label y, and its derivative by z; `loss` has the numbers that are
 * set. */

FR_HD double fr_logloss_loss(const struct fr_loss *loss, float z, float y, float *slope)
{
    (void)loss;
    *slope = fr_sigmoidf(z) - y;
    return fr_cross_entropy(z, y);
}

FR_HD double fr_mse_loss(const struct fr_loss *loss, float z, float y, float *slope)
{
    (void)loss;
    *slope = z - y;
    return 0.5 * (double)*slope * (double)*slope;
}

FR_HD double fr_focal_loss(const struct fr_loss *loss, float z, float y, float *slope)
{
    float right, wrong;
    float positive = fr_focal_half(z, loss->gamma, &right), negative = fr_focal_half(-z, loss->gamma, &wrong);
    float a = loss->alpha * y, b = (1.0f - loss->alpha) * (1.0f - y);
    *slope = a * right - b * wrong;
    return (double)a * (double)positive + (double)b * (double)negative;
}

/* ---- products of probabilities ---- */

/* Above this for all z: softplus(-z) = e^-z and e^S - 1 = S within half a unit of f32. */
#define FR_SURE_LOGIT 17.0f
/* From this S on, e^S - 1 is computed as e^S (1 - e^-S). */
#define FR_RARE_SUM 1.0f

struct fr_probability {
    bool sure;
    float smallest;     /* the smallest z */
    float surprise;     /* S */
    float relative;     /* if all z are above FR_SURE_LOGIT: sum of e^(smallest - z) */
    float inverse_odds; /* otherwise: e^S - 1; +inf when out of range */
    float logit;
};

/* Returns e^s - 1 for s > 0 by Kahan's correction: (u - 1) s / log(u), u = e^s. */
FR_HD float fr_expm1_of(float s)
{
    float u = fr_expf(s);
    return u == 1.0f ? s : u > 3.402823466e38f ? u : (u - 1.0f) * (s / fr_logf(u));
}

/* Computes the probability of sample i; z: [count] arrays. */
FR_HD struct fr_probability fr_probability_of(uint32_t count, const float *const *z, size_t i)
{
    struct fr_probability p;
    p.smallest = z[0][i];
    p.surprise = p.relative = p.inverse_odds = 0.0f;
    for (uint32_t k = 1; k < count; k++)
        p.smallest = z[k][i] < p.smallest || z[k][i] != z[k][i] ? z[k][i] : p.smallest;
    p.sure = p.smallest > FR_SURE_LOGIT;
    for (uint32_t k = 0; k < count; k++) {
        p.surprise += fr_softplusf(-z[k][i]);
        if (p.sure)
            p.relative += fr_expf(p.smallest - z[k][i]);
    }
    if (p.sure) {
        p.logit = p.smallest - fr_logf(p.relative);
        return p;
    }
    p.inverse_odds = fr_expm1_of(p.surprise);
    p.logit = p.surprise > FR_RARE_SUM ? -p.surprise - fr_log1pf(-fr_expf(-p.surprise)) : -fr_logf(p.inverse_odds);
    return p;
}

/* -y log p - (1 - y) log(1 - p). */
FR_HD double fr_probability_loss(const struct fr_probability *p, float y)
{
    double wrong = (double)p->logit + (double)p->surprise; /* -log(1 - p) */
    if (p->surprise > FR_RARE_SUM)
        wrong = -(double)fr_log1pf(-fr_expf(-p->surprise));
    double right = (double)y * (double)p->surprise;
    return y == 1.0f ? right : right + (1.0 - (double)y) * wrong;
}

/* Returns the derivative of that loss by one z. */
FR_HD float fr_probability_slope(const struct fr_probability *p, float z, float y)
{
    /* sigmoid(-z_k) / (e^S - 1) */
    float share = p->sure ? fr_expf(p->smallest - z) / p->relative : fr_sigmoidf(-z) / p->inverse_odds;
    return (1.0f - y) * share - y * fr_sigmoidf(-z);
}

#endif
