/* CPU backend: losses of tasks and their gradients.
 *
 * Each is a loop over the batch in sample order, in f32 with base/math.h's functions, so that
 * every processor gives the same bits; the sum of losses is double. The mathematics of a sample
 * is ops/loss.h. A block of samples is first computed by vectors, including samples that are
 * then skipped.
 *
 * Thread: any, no state. Only masked and untrained samples are skipped. Samples are compared in
 * pairs.c. */
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

/* Computes for samples [first, first + n): w l, and what is added to the gradient. */
#define BLOCK_OF(result, name, arguments)                                                                              \
    FR_CLONES                                                                                                          \
    static void name##_block(const struct fr_loss *loss, uint32_t first, uint32_t n, double *restrict cost,            \
                             float *restrict slope)                                                                    \
    {                                                                                                                  \
        const struct fr_loss numbers = *loss;                                                                          \
        const float *restrict z = loss->z + first, *restrict y = loss->labels + first;                                 \
        const float *restrict w = loss->weights + first;                                                               \
        for (uint32_t i = 0; i < n; i++) {                                                                             \
            float by_z;                                                                                                \
            cost[i] = (double)w[i] * fr_##name##_loss(&numbers, z[i], y[i], &by_z);                                    \
            slope[i] = numbers.scale * w[i] * by_z;                                                                    \
        }                                                                                                              \
    }
FR_OPS_SAMPLE_LOSSES(BLOCK_OF)

typedef void block_of(const struct fr_loss *loss, uint32_t first, uint32_t n, double *restrict cost,
                      float *restrict slope);

static double sum_blocks(const struct fr_loss *loss, block_of *block)
{
    double total = 0.0, cost[BLOCK];
    float slope[BLOCK];
    for (uint32_t first = 0; first < loss->n; first += BLOCK) {
        uint32_t n = loss->n - first < BLOCK ? loss->n - first : BLOCK;
        block(loss, first, n, cost, slope);
        for (uint32_t i = 0; i < n; i++) {
            if (skipped(loss, first + i))
                continue;
            total += cost[i];
            loss->gradient[first + i] += slope[i];
        }
    }
    return total;
}

#define LOSS_OF(result, name, arguments)                                                                               \
    result fr_cpu_##name arguments                                                                                     \
    {                                                                                                                  \
        return sum_blocks(loss, name##_block);                                                                         \
    }
FR_OPS_SAMPLE_LOSSES(LOSS_OF)

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
