/* Counter-based random numbers: a pure function of (seed, stream, key, index), no state to save, no
 * order to keep. Mixing: two rounds of a 64-bit finalizer over the combined counter (SplitMix
 * construction, Steele et al. 2014). */
#ifndef FR_BASE_RANDOM_H
#define FR_BASE_RANDOM_H

#include <stdint.h>

uint64_t fr_random_u64(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);
/* Uniform in [0, 1), 53 bits. */
double fr_random_uniform(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);
/* Standard normal: inverse-CDF-free Box-Muller from two draws, with our own log, sqrt and sine
 * polynomial so that every processor and libm gives the same bits (DESIGN section 10). */
double fr_random_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);
/* The same, drawn again until it is within two standard deviations. index < 2^32: the higher bits
 * count the draws. */
double fr_random_truncated_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index);

#endif
