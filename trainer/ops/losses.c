/* CPU backend: losses of tasks and their gradients.
 *
 * Each is a loop over the batch in sample order, in f32 with base/math.h's functions, so that every
 * processor gives the same bits; the sum of losses is double. The mathematics of a sample is
 * ops/loss.h. Log loss, the most frequent one, computes a block of samples by vectors first, those
 * that are skipped too.
 *
 * Thread: any, no state. It skips only masked and untrained samples and does not compare samples
 * (pairs.c). */
#include "cpu.h"

#include "ops/loss.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { BLOCK = 128 };

static inline bool skipped(const struct fr_loss *loss, uint32_t i)
{
    return !loss->trained[i] || loss->labels[i] != loss->labels[i];
}

/* Of samples [first, first + n): w l, and what is added to the gradient. */
FR_CLONES
static void logloss_block(const struct fr_loss *loss, uint32_t first, uint32_t n, double *restrict cost,
                          float *restrict slope)
{
    const float *restrict z = loss->z + first, *restrict y = loss->labels + first, *restrict w = loss->weights + first;
    float scale = loss->scale;
    for (uint32_t i = 0; i < n; i++) {
        cost[i] = (double)w[i] * fr_cross_entropy(z[i], y[i]);
        slope[i] = scale * w[i] * (fr_sigmoidf(z[i]) - y[i]);
    }
}

double fr_cpu_logloss(const struct fr_loss *loss)
{
    double total = 0.0, cost[BLOCK];
    float slope[BLOCK];
    for (uint32_t first = 0; first < loss->n; first += BLOCK) {
        uint32_t n = loss->n - first < BLOCK ? loss->n - first : BLOCK;
        logloss_block(loss, first, n, cost, slope);
        for (uint32_t i = 0; i < n; i++) {
            if (skipped(loss, first + i))
                continue;
            total += cost[i];
            loss->gradient[first + i] += slope[i];
        }
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

double fr_cpu_focal(const struct fr_loss *loss)
{
    double total = 0.0;
    for (uint32_t i = 0; i < loss->n; i++) {
        if (skipped(loss, i))
            continue;
        float z = loss->z[i], y = loss->labels[i], w = loss->weights[i];
        float positive_slope, negative_slope;
        float positive = fr_focal_half(z, loss->gamma, &positive_slope);
        float negative = fr_focal_half(-z, loss->gamma, &negative_slope);
        float a = loss->alpha * y, b = (1.0f - loss->alpha) * (1.0f - y);
        total += (double)w * ((double)a * (double)positive + (double)b * (double)negative);
        loss->gradient[i] += loss->scale * w * (a * positive_slope - b * negative_slope);
    }
    return total;
}

/* ---- products of probabilities ---- */

void fr_cpu_product_logit(uint32_t n, uint32_t count, const float *const *z, float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = fr_probability_of(count, z, i).logit;
}

double fr_cpu_product_logloss(const struct fr_product_loss *loss)
{
    double total = 0.0;
    for (uint32_t i = 0; i < loss->n; i++) {
        float y = loss->labels[i], w = loss->weights[i];
        if (!loss->trained[i] || y != y)
            continue;
        struct fr_probability p = fr_probability_of(loss->count, loss->z, i);
        total += (double)w * fr_probability_loss(&p, y);
        for (uint32_t k = 0; k < loss->count; k++)
            loss->gradient[k][i] += loss->scale * w * fr_probability_slope(&p, loss->z[k][i], y);
    }
    return total;
}
