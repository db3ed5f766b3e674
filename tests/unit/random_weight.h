/* One initial weight, which the product draws many at a time (base/random.h). */
#ifndef FR_TESTS_RANDOM_WEIGHT_H
#define FR_TESTS_RANDOM_WEIGHT_H

#include "base/random_math.h"

static inline float random_weight(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    return fr_random_weight_at(fr_random_start(seed, stream, key), index);
}

#endif
