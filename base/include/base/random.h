/* Counter-based random numbers: each is a pure function of (seed, stream, key, index), so there is
 * no state to save and no order to keep. Two rounds of a 64-bit finalizer mix the combined counter
 * (SplitMix construction, Steele et al. 2014). Functions marked FR_HD are valid as C17 and as CUDA
 * C++. */
#ifndef FR_BASE_RANDOM_H
#define FR_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/math.h"

FR_HD uint64_t fr_random_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

/* The start of the draws of a (seed, stream, key). Odd factors without simple relations keep tuples
 * of small numbers apart before the first round. */
FR_HD uint64_t fr_random_start(uint64_t seed, uint64_t stream, uint64_t key)
{
    return fr_random_mix(key + seed * 0xd1342543de82ef95ULL + stream * 0xaef17502108ef2d9ULL + 0x2545f4914f6cdd1dULL);
}

#define FR_RANDOM_STEP 0x9e3779b97f4a7c15ULL
FR_HD uint64_t fr_random_draw(uint64_t start, uint64_t index)
{
    return fr_random_mix(start + (index + 1) * FR_RANDOM_STEP);
}

FR_HD uint64_t fr_random_u64(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    return fr_random_draw(fr_random_start(seed, stream, key), index);
}

/* Uniform in [0, 1), 53 bits. */
double fr_random_uniform(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);
/* Returns a standard normal by Box and Muller's method from two draws, with our own log, sqrt and
 * sine polynomial, so that every processor and libm gives the same bits (docs/architecture.md,
 * "Exactness"). */
double fr_random_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);
/* The same numbers as fr_random_uniform for index, index + 1, ...: out.n values at once, bit for
 * bit. */
struct fr_doubles {
    double *values;
    size_t n;
};
void fr_random_uniforms(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index, struct fr_doubles out);
/* Draws initial weights: standard normals in the precision of f32, at a fraction of the cost,
 * because one draw gives two numbers (fr_random_weight_at). The numbers differ from those of
 * fr_random_normal. Writes the weights of index, index + 1, ... (n values) of each key k to
 * values[k] + offset, times scale (multiplied in double and rounded once more). Rows with few
 * values are best drawn several at a time. */
struct fr_random_rows {
    uint64_t seed, stream, index;
    double scale;
    const uint64_t *keys;
    float *const *values;
    size_t n_keys, offset, n;
};
void fr_random_weights(const struct fr_random_rows *rows);
/* A standard normal, drawn again until it is within two standard deviations. index < 2^32, because
 * the higher bits count the draws. */
double fr_random_truncated_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);

#endif
