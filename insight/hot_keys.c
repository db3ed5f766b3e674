/* See hot_keys.h. The arrays are short and separate, so that the compiler makes vectors of both
 * searches. */
#include "hot_keys.h"

void fr_hot_keys_add(struct fr_hot_keys *hot, uint64_t key, float weight)
{
    hot->total += (double)weight;
    uint32_t at = 0;
    while (at < hot->n && hot->keys[at] != key)
        at++;
    if (at < hot->n) {
        hot->counts[at] += weight;
        return;
    }
    if (hot->n < FR_INSIGHT_HOT) {
        hot->keys[hot->n] = key;
        hot->errors[hot->n] = 0.0f;
        hot->counts[hot->n++] = weight;
        return;
    }
    at = 0;
    for (uint32_t i = 1; i < FR_INSIGHT_HOT; i++)
        at = hot->counts[i] < hot->counts[at] ? i : at;
    hot->keys[at] = key;
    hot->errors[at] = hot->counts[at];
    hot->counts[at] += weight;
}

void fr_hot_keys_halve(struct fr_hot_keys *hot)
{
    hot->total *= 0.5;
    for (uint32_t i = 0; i < hot->n; i++) {
        hot->counts[i] *= 0.5f;
        hot->errors[i] *= 0.5f;
    }
}

uint32_t fr_hot_keys_top(const struct fr_hot_keys *hot, uint32_t *places, uint32_t capacity)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < hot->n; i++) {
        uint32_t at = n;
        while (at > 0 && hot->counts[places[at - 1]] < hot->counts[i])
            at--;
        if (at == capacity)
            continue;
        n += n < capacity;
        for (uint32_t k = n - 1; k > at; k--)
            places[k] = places[k - 1];
        places[at] = i;
    }
    return n;
}
