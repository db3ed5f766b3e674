/* CPU backend: losses of tasks and their gradients.
 *
 * Each is a scalar loop over the batch in sample order, in f32 with base/math.h's functions, so
 * that every processor gives the same bits; the sum of losses is double. Logarithms of
 * probabilities are softplus, never log of a rounded probability: a confident, right answer keeps
 * its small loss and a confident, wrong one its slope.
 *
 * Product of probabilities (ESMM, Ma et al. 2018): with S = sum softplus(-z_k), p = e^-S; logit =
 * -log(e^S - 1); d loss / d z_k = -sigmoid(-z_k) (y - (1 - y) / (e^S - 1)). When all z are large, S
 * is below the resolution of e^S and at last of f32: there softplus(-z) = e^-z, and everything is
 * taken relative to the smallest z.
 *
 * Thread: any, no state. It skips only masked and untrained samples and does not compare samples
 * (pairs.c). */
#include "cpu.h"

#include <math.h>

#include "base/math.h"

static inline bool skipped(const struct fr_loss *loss, uint32_t i)
{
    return !loss->trained[i] || loss->labels[i] != loss->labels[i];
}

/* log(1 + e^z) - y z. max(z, 0) - y z is exact in double. */
static inline double cross_entropy(float z, float y)
{
    float tail = fr_log1pf(fr_expf(z < 0.0f ? z : -z));
    return (z > 0.0f ? (double)z : 0.0) - (double)y * (double)z + (double)tail;
}

double fr_cpu_logloss(const struct fr_loss *loss)
{
    double total = 0.0;
    for (uint32_t i = 0; i < loss->n; i++) {
        if (skipped(loss, i))
            continue;
        float z = loss->z[i], y = loss->labels[i], w = loss->weights[i];
        total += (double)w * cross_entropy(z, y);
        loss->gradient[i] += loss->scale * w * (fr_sigmoidf(z) - y);
    }
    return total;
}

double fr_cpu_mse(const struct fr_loss *loss)
{
    double total = 0.0;
    for (uint32_t i = 0; i < loss->n; i++) {
        if (skipped(loss, i))
            continue;
        float w = loss->weights[i], difference = loss->z[i] - loss->labels[i];
        total += 0.5 * (double)w * (double)difference * (double)difference;
        loss->gradient[i] += loss->scale * w * difference;
    }
    return total;
}

/* One half of the focal loss, for the right answer "z large": (1 - p)^gamma (-log p) and its
 * derivative by z. */
static inline float focal_half(float z, float gamma, float *slope)
{
    float miss = fr_sigmoidf(-z), cost = fr_softplusf(-z);
    float factor = fr_expf(-gamma * fr_softplusf(z));
    *slope = -factor * (gamma * fr_sigmoidf(z) * cost + miss);
    return factor * cost;
}

double fr_cpu_focal(const struct fr_loss *loss)
{
    double total = 0.0;
    for (uint32_t i = 0; i < loss->n; i++) {
        if (skipped(loss, i))
            continue;
        float z = loss->z[i], y = loss->labels[i], w = loss->weights[i];
        float positive_slope, negative_slope;
        float positive = focal_half(z, loss->gamma, &positive_slope);
        float negative = focal_half(-z, loss->gamma, &negative_slope);
        float a = loss->alpha * y, b = (1.0f - loss->alpha) * (1.0f - y);
        total += (double)w * ((double)a * (double)positive + (double)b * (double)negative);
        loss->gradient[i] += loss->scale * w * (a * positive_slope - b * negative_slope);
    }
    return total;
}

/* ---- products of probabilities ---- */

/* Above this for all z: softplus(-z) = e^-z and e^S - 1 = S within half a unit of f32. */
#define SURE_LOGIT 17.0f
/* S from where e^S - 1 is taken as e^S (1 - e^-S). */
#define RARE_SUM 1.0f

struct product {
    bool sure;
    float smallest;     /* z */
    float surprise;     /* S */
    float relative;     /* sure: sum of e^(smallest - z) */
    float inverse_odds; /* else e^S - 1; +inf when out of range */
    float logit;
};

/* e^s - 1 for s > 0 by Kahan's correction: (u - 1) s / log(u), u = e^s. */
static inline float expm1_of(float s)
{
    float u = fr_expf(s);
    return u == 1.0f ? s : u > 3.402823466e38f ? u : (u - 1.0f) * (s / fr_logf(u));
}

static inline struct product product_of(uint32_t count, const float *const *z, uint32_t i)
{
    struct product p = {.smallest = z[0][i]};
    for (uint32_t k = 1; k < count; k++)
        p.smallest = z[k][i] < p.smallest || z[k][i] != z[k][i] ? z[k][i] : p.smallest;
    p.sure = p.smallest > SURE_LOGIT;
    for (uint32_t k = 0; k < count; k++) {
        p.surprise += fr_softplusf(-z[k][i]);
        if (p.sure)
            p.relative += fr_expf(p.smallest - z[k][i]);
    }
    if (p.sure) {
        p.logit = p.smallest - fr_logf(p.relative);
        return p;
    }
    p.inverse_odds = expm1_of(p.surprise);
    p.logit = p.surprise > RARE_SUM ? -p.surprise - fr_log1pf(-fr_expf(-p.surprise)) : -fr_logf(p.inverse_odds);
    return p;
}

/* sigmoid(-z_k) / (e^S - 1). */
static inline float product_share(const struct product *p, float z)
{
    return p->sure ? fr_expf(p->smallest - z) / p->relative : fr_sigmoidf(-z) / p->inverse_odds;
}

void fr_cpu_product_logit(uint32_t n, uint32_t count, const float *const *z, float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = product_of(count, z, i).logit;
}

double fr_cpu_product_logloss(const struct fr_product_loss *loss)
{
    double total = 0.0;
    for (uint32_t i = 0; i < loss->n; i++) {
        float y = loss->labels[i], w = loss->weights[i];
        if (!loss->trained[i] || y != y)
            continue;
        struct product p = product_of(loss->count, loss->z, i);
        double wrong = p.surprise > RARE_SUM ? -(double)fr_log1pf(-fr_expf(-p.surprise))
                                             /* -log(1 - p) */
                                             : (double)p.logit + (double)p.surprise;
        double right = (double)y * (double)p.surprise;
        total += (double)w * (y == 1.0f ? right : right + (1.0 - (double)y) * wrong);
        for (uint32_t k = 0; k < loss->count; k++) {
            float z = loss->z[k][i];
            float slope = (1.0f - y) * product_share(&p, z) - y * fr_sigmoidf(-z);
            loss->gradient[k][i] += loss->scale * w * slope;
        }
    }
    return total;
}
