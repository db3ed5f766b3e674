/* The changes that an epoch makes to a table, kept separate from the table until they can be
 * merged.
 *
 * The view of a table is its rows and a few overlays, the newest first. A reader finds a key in the
 * first overlay that contains it, otherwise in the rows. An overlay therefore hides the keys that
 * it contains, and the rows of these keys may be changed in place once every reader inside has the
 * overlay: the index takes over the overlay's slots (merge), and a view without the overlay
 * follows. Where readers stay in old views, overlays accumulate; two neighbours of similar size
 * become one, so that there are few (like the levels of a log-structured merge tree; O'Neil et al.
 * 1996).
 *
 * After its view is published, an overlay never changes, except the fields that only the feeder
 * reads. Thread: the feeder's, except fr_overlay_find, which any reader calls. */
#ifndef FR_REPLICA_OVERLAY_H
#define FR_REPLICA_OVERLAY_H

#include "row_table.h"

enum { FR_OVERLAYS_MAX = 8 }; /* overlays of a table in one view */

struct fr_overlay {
    struct fr_retired retired;
    struct fr_row_table *rows;
    uint64_t since; /* number of the first view with this overlay */
    uint32_t n, room;
    uint32_t capacity; /* 2^(64 - shift) places, at most half of them in use */
    unsigned shift;
    uint8_t *tags;   /* [capacity] 0: the place is empty */
    uint64_t *keys;  /* [capacity] */
    uint32_t *slots; /* [capacity] FR_NO_SLOT: the row was removed */
    /* The fields below belong to the feeder. */
    uint32_t merged; /* the places below it are merged into the rows */
    uint32_t n_replaced;
    uint32_t *replaced; /* [room] slots that are out of reach once no reader has the overlay */
};

/* NULL: memory was refused. */
struct fr_overlay *fr_overlay_new(struct fr_row_table *rows, uint64_t room, struct fr_replica_memory *memory);
/* Frees an overlay that was not published, and the slots in it. */
void fr_overlay_abandon(struct fr_overlay *overlay);
/* Retires a published overlay and the slots that it replaced. */
void fr_overlay_retire(struct fr_overlay *overlay, struct fr_retirement *retirement);
/* Returns the place of a key; a new place contains FR_NO_SLOT. */
uint32_t *fr_overlay_put(struct fr_overlay *overlay, uint64_t key);
/* Returns whether the overlay contains the key; *slot is FR_NO_SLOT when the row was removed. */
bool fr_overlay_find(const struct fr_overlay *overlay, uint64_t hash, uint64_t key, uint32_t *slot);
void fr_overlay_prefetch(const struct fr_overlay *overlay, uint64_t hash);
/* Adds the keys of an older overlay that this one lacks. For the other keys, the slots of the older
 * overlay are recorded as replaced and retired with it. The caller has made room for both. */
void fr_overlay_absorb(struct fr_overlay *overlay, struct fr_overlay *older);
/* Merges the overlay into the rows. False: memory was refused, and the next call continues from
 * there. */
bool fr_overlay_merge(struct fr_overlay *overlay);

#endif
