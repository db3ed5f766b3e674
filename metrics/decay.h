/* Exponential decay by event time without touching every weight: weights are kept relative to a
 * reference time, a sample of time t adds w 2^((t - reference) / half_life). When that exponent
 * could exceed FR_DECAY_STEP, the reference moves by whole multiples of FR_DECAY_STEP half-lives
 * and all weights are scaled by an exact power of two. So a state depends on its samples in their
 * order only, not on when it was read, cut or restored.
 *
 * Source: forward decay (Cormode et al., ICDE 2009). Private to metrics. */
#ifndef FR_METRICS_DECAY_H
#define FR_METRICS_DECAY_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { FR_DECAY_STEP = 32 };

/* Computes 2^x for |x| <= 1000 as 2^n e^(f ln2), |f| <= 1/2, by Taylor's series to degree 13 (error
 * below 1 ulp of the sum). It uses basic operations only, so its bits are the same everywhere, and
 * no branches, so a loop of it is computed by vectors. */
static inline double fr_decay_exp2(double x)
{
    static const double over[14] = {0,       1.0,     1.0 / 2, 1.0 / 3,  1.0 / 4,  1.0 / 5,  1.0 / 6,
                                    1.0 / 7, 1.0 / 8, 1.0 / 9, 1.0 / 10, 1.0 / 11, 1.0 / 12, 1.0 / 13};
    int32_t n = (int32_t)(x + (x >= 0 ? 0.5 : -0.5));
    double r = (x - (double)n) * 0.69314718055994530942;
    double sum = 1.0, power;
    for (int k = 13; k >= 1; k--)
        sum = 1.0 + sum * r * over[k];
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    memcpy(&power, &bits, sizeof(power));
    return sum * power;
}

/* Times whose differences do not overflow: images of a state may hold others, which are refused. */
static inline bool fr_decay_is_time(int64_t ms)
{
    return ms > INT64_MIN / 4 && ms < INT64_MAX / 4;
}

/* Moves the reference (INT64_MIN: none yet) so that exponents of times up to as_of stay within one
 * step. Returns the power of two by which every weight must be scaled; 0: nothing to do. */
static inline int fr_decay_rebase(int64_t *reference_ms, int64_t half_life_ms, int64_t as_of_ms)
{
    if (*reference_ms == INT64_MIN) {
        *reference_ms = as_of_ms;
        return 0;
    }
    int64_t step_ms = half_life_ms * FR_DECAY_STEP;
    int64_t steps = (as_of_ms - *reference_ms) / step_ms;
    if (steps <= 0)
        return 0;
    *reference_ms += steps * step_ms;
    /* far in the past: everything becomes 0 */
    return steps > 64 ? -2048 : (int)(-steps * FR_DECAY_STEP);
}

/* 2^half_lives from -900 to 900, and 0 below. */
static inline double fr_decay_power(double half_lives)
{
    double x = half_lives < 900.0 ? half_lives : 900.0, power = fr_decay_exp2(x > -900.0 ? x : -900.0);
    return half_lives > -900.0 ? power : 0;
}

/* Returns what a weight of time t counts relative to the reference; 0 below the smallest double. */
static inline double fr_decay_factor(int64_t t_ms, int64_t reference_ms, int64_t half_life_ms)
{
    return fr_decay_power((double)(t_ms - reference_ms) / (double)half_life_ms);
}

/* Returns what a weight relative to the reference counts as of a later time; 0 below the smallest
 * double. A forged image may name any two times: that gives some number. */
static inline double fr_decay_since(int64_t as_of_ms, int64_t reference_ms, int64_t half_life_ms)
{
    double age = ((double)as_of_ms - (double)reference_ms) / (double)half_life_ms;
    return age >= 1000.0 ? 0 : fr_decay_exp2(age > -900.0 ? -age : 900.0);
}

#endif
