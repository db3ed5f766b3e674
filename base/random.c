/* Counter-based random numbers (idea: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * 2011; mixing: the SplitMix finalizer, variant 13 of Stafford, in Steele, Lea, Flood 2014).
 *
 * The first round maps (seed, stream, key) to a start; the second one mixes start + (index + 1) *
 * golden ratio. The values are part of the format: initial weights must be the same on every
 * machine and in every version (golden values in the unit test).
 *
 * Thread: any; no state. The numbers are predictable for an adversary. */
#include "base/random_math.h"

#include <string.h>

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

/* The place of the next pair of numbers; each key has its pairs in order. */
struct walk {
    size_t key, pair;
    uint64_t counter; /* counter of the pair's draw */
};

static uint64_t first_counter(const struct fr_random_rows *rows, size_t key)
{
    uint64_t start = fr_random_start(rows->seed, rows->stream, rows->keys[key]);
    return start + (rows->index / 2 + 1) * FR_RANDOM_STEP;
}

static void put_pairs(const struct fr_random_rows *rows, struct walk at, const float *pairs, size_t n)
{
    size_t per_key = (rows->index % 2 + rows->n + 1) / 2;
    for (size_t i = 0; i < n; i++) {
        float *to = rows->values[at.key] + rows->offset;
        /* if the first index is odd, the first pair begins one place earlier */
        size_t place = 2 * at.pair - rows->index % 2;
        if (place + 1 < rows->n && place + 1 > 0)
            memcpy(to + place, pairs + 2 * i, 2 * sizeof(float));
        else if (place < rows->n)
            to[place] = pairs[2 * i];
        else if (place + 1 < rows->n)
            to[place + 1] = pairs[2 * i + 1];
        if (++at.pair == per_key)
            at = (struct walk){.key = at.key + 1};
    }
}

/* Works in blocks of pairs, of which the last block may have unused ones, because loops of a fixed
 * length are vectorised completely. */
FR_CLONES
void fr_random_weights(const struct fr_random_rows *rows)
{
    enum { PAIRS = 32 };
    size_t per_key = (rows->index % 2 + rows->n + 1) / 2, left = rows->n > 0 ? rows->n_keys * per_key : 0;
    struct walk at = {.counter = left > 0 ? first_counter(rows, 0) : 0};
    uint64_t counters[PAIRS] = {0};
    while (left > 0) {
        uint32_t radii[PAIRS], angles[PAIRS];
        float pairs[2 * PAIRS];
        struct walk begin = at;
        size_t n = left < PAIRS ? left : PAIRS;
        left -= n;
        for (size_t i = 0; i < n; i++) {
            counters[i] = at.counter;
            at.counter += FR_RANDOM_STEP;
            if (++at.pair < per_key)
                continue;
            at = (struct walk){.key = at.key + 1};
            if (at.key < rows->n_keys)
                at.counter = first_counter(rows, at.key);
        }
        for (size_t i = 0; i < PAIRS; i++) {
            uint64_t bits = fr_random_mix(counters[i]);
            radii[i] = (uint32_t)(bits >> 32);
            angles[i] = (uint32_t)bits;
        }
        for (size_t i = 0; i < PAIRS; i++) {
            float radius = fr_random_radius(radii[i]), cosine, sine;
            fr_random_angle(angles[i], &cosine, &sine);
            pairs[2 * i] = (float)((double)(radius * cosine) * rows->scale);
            pairs[2 * i + 1] = (float)((double)(radius * sine) * rows->scale);
        }
        put_pairs(rows, begin, pairs, n);
    }
}

double fr_random_truncated_normal(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index)
{
    return fr_random_truncated_normal_at(fr_random_start(seed, stream, key), index);
}
