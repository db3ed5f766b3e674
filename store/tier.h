/* Keys whose newest image is in the cold store only (docs/architecture.md, "The store"): reading
 * images back, and evicting clean entries. Private to this module. */
#ifndef FR_STORE_TIER_H
#define FR_STORE_TIER_H

#include "plan.h"

/* Reads the images of the keys at place p of table t that are not in memory into the plan's scratch
 * and records which keys were asked for. Changes nothing else. */
void fr_tier_fetch(struct fr_plan *plan, uint32_t t, uint32_t p);
/* Before the keys are resolved: makes entries of the fetched images, and fetches the images that
 * are still missing, because a key left memory after the look or there was no look. */
void fr_tier_take(struct fr_plan *plan, uint32_t t, uint32_t p);
/* Makes an entry from an image of the cold store, for a key without an entry. The entry is clean,
 * and the key is already counted. */
void fr_tier_enter(const struct fr_table *table, struct fr_shard *shard, uint64_t hash, uint8_t kind,
                   const uint8_t *bytes);
/* Removes the key of a cold image: its absence becomes an entry of the open epoch. The key must not
 * have an entry. */
struct fr_tier_victim {
    uint64_t hash;
    uint8_t kind; /* kind of the image */
    uint8_t reason;
};
void fr_tier_remove(struct fr_store *store, struct fr_shard *shard, const struct fr_tier_victim *victim);
/* Whether an image of the cold store fits the table. If not, the cold store is damaged. */
bool fr_tier_fits(const struct fr_table *table, const struct fr_image *image);
/* Reports an error of the cold store. The first one is kept for fr_store_failure. */
void fr_tier_fail(struct fr_store *store, const struct fr_err *err);

#endif
