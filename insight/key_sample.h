/* The keys of a slot with the smallest values, at most FR_INSIGHT_KEYS: keys are hashes of ids, so
 * this is a sample of the ids that is uniform and the same each time (bottom-k: Cohen and Kaplan
 * 2007). Only keys with rows are put in. Owner: the owner loop. */
#ifndef FR_INSIGHT_KEY_SAMPLE_H
#define FR_INSIGHT_KEY_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "insight/insight.h"

struct fr_sampled_key {
    uint64_t key;
    /* of the newest step that was measured; NaN: no step was */
    float gradient, update;
    uint32_t look; /* the number of the last look that measured the key's step; 0: no look has */
};

struct fr_key_sample {
    uint32_t n;
    struct fr_sampled_key keys[FR_INSIGHT_KEYS]; /* ascending */
};

/* Returns the key's place; adds the key if it belongs to the sample. NULL: it does not. Places move
 * when another key is added. */
struct fr_sampled_key *fr_insight_key_add(struct fr_key_sample *sample, uint64_t key);
/* Returns the key's place; NULL: it is not in the sample. */
struct fr_sampled_key *fr_insight_key_find(struct fr_key_sample *sample, uint64_t key);
/* Keeps the keys for which `keep` [n] is true. */
void fr_insight_key_keep(struct fr_key_sample *sample, const bool *keep);

#endif
