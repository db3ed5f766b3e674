/* Keys whose newest image is in the cold store only (docs/architecture.md, "The store"): reading
 * them back, and letting clean ones leave. Private to this module. */
#ifndef FR_STORE_TIER_H
#define FR_STORE_TIER_H

#include "plan.h"

/* Reads the images of the keys of a shard that are not in memory into the plan's scratch; changes
 * nothing else, and notes which keys it asked for. */
void fr_tier_fetch(struct fr_plan *plan, uint32_t t, uint32_t s);
/* Before the keys are resolved: what was fetched becomes entries, and what is still missing, since
 * it left after the look, or as there was none, is fetched now. */
void fr_tier_take(struct fr_plan *plan, uint32_t t, uint32_t s);
/* An entry for an image of the cold store: clean, and counted already. The key has none. */
void fr_tier_enter(const struct fr_table *table, struct fr_shard *shard, uint64_t hash, uint8_t kind,
                   const uint8_t *bytes);
/* The key of a cold image goes: its absence becomes an entry of the open epoch. It has none yet. */
struct fr_tier_victim {
    uint64_t hash;
    uint8_t kind; /* of its image */
    uint8_t reason;
};
void fr_tier_remove(struct fr_store *store, struct fr_shard *shard, const struct fr_tier_victim *victim);
/* An image that the cold store holds fits the table, or the store is damaged. */
bool fr_tier_fits(const struct fr_table *table, const struct fr_image *image);
/* An error of the cold store: the first one is kept for fr_store_failure. */
void fr_tier_fail(struct fr_store *store, const struct fr_err *err);

#endif
