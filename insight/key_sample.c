/* See key_sample.h. A sorted array: once many more keys came than it holds, a key is nearly always
 * above the largest one, which takes one comparison, and few are still inserted. */
#include "key_sample.h"

#include <math.h>
#include <string.h>

/* The place of the first key that is not below `key`. */
static uint32_t place_of(const struct fr_key_sample *sample, uint64_t key)
{
    uint32_t low = 0, high = sample->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sample->keys[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct fr_sampled_key *fr_insight_key_find(struct fr_key_sample *sample, uint64_t key)
{
    if (sample->n == 0 || key > sample->keys[sample->n - 1].key)
        return NULL;
    struct fr_sampled_key *found = &sample->keys[place_of(sample, key)];
    return found->key == key ? found : NULL;
}

struct fr_sampled_key *fr_insight_key_add(struct fr_key_sample *sample, uint64_t key)
{
    bool full = sample->n == FR_INSIGHT_KEYS;
    if (full && key > sample->keys[sample->n - 1].key)
        return NULL;
    uint32_t at = place_of(sample, key);
    if (at < sample->n && sample->keys[at].key == key)
        return &sample->keys[at];
    sample->n -= full;
    memmove(sample->keys + at + 1, sample->keys + at, (sample->n - at) * sizeof(*sample->keys));
    sample->n++;
    sample->keys[at] = (struct fr_sampled_key){.key = key, .gradient = NAN, .update = NAN};
    return &sample->keys[at];
}

void fr_insight_key_keep(struct fr_key_sample *sample, const bool *keep)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sample->n; i++)
        if (keep[i])
            sample->keys[n++] = sample->keys[i];
    sample->n = n;
}
