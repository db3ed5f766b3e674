/* The most frequent keys of a slot (Space-Saving: Metwally, Agrawal and El Abbadi 2005). A key
 * without a counter takes over the smallest counter with its count, which bounds the error. So
 * every key with more than 1 / FR_INSIGHT_HOT of all occurrences has a counter. Counters are halved
 * at each document, so the newest windows count most. Owner: the owner loop. */
#ifndef FR_INSIGHT_HOT_KEYS_H
#define FR_INSIGHT_HOT_KEYS_H

#include <stdint.h>

#include "insight/insight.h"

enum { FR_HOT_FILTER_WORDS = 32 };

struct fr_hot_keys {
    double total;
    uint32_t n;
    uint64_t keys[FR_INSIGHT_HOT];
    /* A count is too large by at most the error. */
    float counts[FR_INSIGHT_HOT], errors[FR_INSIGHT_HOT];
    /* Finds quickly that a key has no counter, and the smallest counter (hot_keys.c). */
    uint64_t filter[FR_HOT_FILTER_WORDS];
    float smallest;
    uint32_t hand, taken_over;
};

void fr_hot_keys_add(struct fr_hot_keys *hot, uint64_t key, float weight);
void fr_hot_keys_halve(struct fr_hot_keys *hot);
/* Writes the places of the largest counts, largest first; returns how many, at most `capacity`. */
uint32_t fr_hot_keys_top(const struct fr_hot_keys *hot, uint32_t *places, uint32_t capacity);

#endif
