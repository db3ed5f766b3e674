/* What an epoch changes in a table, beside the table, until it may go into it.
 *
 * A view of a table is its rows and a few overlays, the newest first: a reader finds a key in the
 * first overlay that has it, else in the rows. So an overlay hides the keys it has, and what is
 * under it may be changed in place once every reader inside has it: the index takes over its slots
 * (merge), and a view without it follows. Where readers stay, overlays gather; two neighbours of
 * like size become one, so that there are few (as the levels of a log-structured merge tree;
 * O'Neil et al. 1996).
 *
 * An overlay is never changed after its view is published, but for what the feeder alone looks at.
 * Thread: the feeder's, but for find. */
#ifndef FR_REPLICA_OVERLAY_H
#define FR_REPLICA_OVERLAY_H

#include "row_table.h"

enum { FR_OVERLAYS_MAX = 8 }; /* of a table in a view */

struct fr_overlay {
    struct fr_retired retired;
    struct fr_row_table *rows;
    uint64_t since; /* the first view that has it */
    uint32_t n, room;
    uint32_t capacity; /* 2^(64 - shift) places, at most half of them taken */
    unsigned shift;
    uint8_t *tags;   /* [capacity] 0: empty */
    uint64_t *keys;  /* [capacity] */
    uint32_t *slots; /* [capacity] FR_NO_SLOT: the row is gone */
    /* the feeder's */
    uint32_t merged; /* places below it are in the rows */
    uint32_t n_replaced;
    uint32_t *replaced; /* [room] slots that nobody can reach once nobody has the overlay */
};

/* NULL: refused. */
struct fr_overlay *fr_overlay_new(struct fr_row_table *rows, uint64_t room, struct fr_replica_memory *memory);
/* Frees one that was not published, with the slots it brought. */
void fr_overlay_abandon(struct fr_overlay *overlay);
/* Retires a published one, with what it replaced. */
void fr_overlay_retire(struct fr_overlay *overlay, struct fr_retirement *retirement);
/* The place of a key, which is made (with FR_NO_SLOT) when there is none. */
uint32_t *fr_overlay_put(struct fr_overlay *overlay, uint64_t key);
/* Whether the overlay says anything of the key; *slot is FR_NO_SLOT when it is gone. */
bool fr_overlay_find(const struct fr_overlay *overlay, uint64_t hash, uint64_t key, uint32_t *slot);
void fr_overlay_prefetch(const struct fr_overlay *overlay, uint64_t hash);
/* Adds what an older overlay has of keys that this one has not; slots of the others are replaced
 * with the older one. There was room made for them. */
void fr_overlay_absorb(struct fr_overlay *overlay, struct fr_overlay *older);
/* Puts it into the rows. False: memory was refused, and it goes on from there another time. */
bool fr_overlay_merge(struct fr_overlay *overlay);

#endif
