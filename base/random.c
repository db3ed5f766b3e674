/* Counter-based random numbers (idea: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * 2011; mixing: the SplitMix finalizer, variant 13 of Stafford, in Steele, Lea, Flood 2014).
 *
 * First round: (seed, stream, key) to a starting point; second round: starting point + (index + 1)
 * * golden ratio. Values are part of the format: initial weights must be the same on every machine
 * and version (golden values in the unit test).
 *
 * Thread: any, no state. It does not resist an adversary. */
#include "base/random_math.h"

#include "base/clones.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

double fr_random_uniform(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    return fr_random_unit_interval(fr_random_u64(seed, stream, key, index));
}

double fr_random_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    uint64_t start = fr_random_start(seed, stream, key);
    return fr_random_normal_of(fr_random_draw(start, 2 * index), fr_random_draw(start, 2 * index + 1));
}

FR_CLONES
void fr_random_uniforms(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index, struct fr_doubles out)
{
    uint64_t start = fr_random_start(seed, stream, key);
    for (size_t i = 0; i < out.n; i++)
        out.values[i] = fr_random_unit_interval(fr_random_draw(start, index + i));
}

FR_CLONES
void fr_random_normals(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index, struct fr_doubles out)
{
    uint64_t start = fr_random_start(seed, stream, key);
    for (size_t i = 0; i < out.n; i++)
        out.values[i] =
            fr_random_normal_of(fr_random_draw(start, 2 * (index + i)), fr_random_draw(start, 2 * (index + i) + 1));
}

double fr_random_truncated_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    return fr_random_truncated_normal_at(fr_random_start(seed, stream, key), index);
}
