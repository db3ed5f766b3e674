/* Counter-based random numbers are a pure function of (seed, stream, key, index): there is no state
 * to save and no order to keep. Two rounds of a 64-bit finalizer mix the combined counter (SplitMix
 * construction, Steele et al. 2014). */
#ifndef FR_BASE_RANDOM_H
#define FR_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

uint64_t fr_random_u64(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);
/* Uniform in [0, 1), 53 bits. */
double fr_random_uniform(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);
/* Returns a standard normal by Box and Muller's method from two draws, with our own log, sqrt and
 * sine polynomial, so that every processor and libm gives the same bits (DESIGN section 10). */
double fr_random_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);
/* The same for index, index + 1, ... out.n values at once, bit for bit. */
struct fr_doubles {
    double *values;
    size_t n;
};
void fr_random_uniforms(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index, struct fr_doubles out);
void fr_random_normals(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index, struct fr_doubles out);
/* Draws the same again until it is within two standard deviations. index < 2^32, because the higher
 * bits count the draws. */
double fr_random_truncated_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);

#endif
