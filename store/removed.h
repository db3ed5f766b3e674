/* What slices removed while the batch before them could still be refused: kept until a later slice
 * needs the memory, so that fr_store_undo_slices can bring it back.
 *
 * Kept are, of each table a slice came to, the sweep, k and every shard's numbers, once, and of
 * each key that went its entry as it was and its row's floats. Memory grows to the largest slice
 * and stays; without a device nothing is kept.
 *
 * Thread: keep by the worker that handles the shard; the rest by the owner loop. */
#ifndef FR_STORE_REMOVED_H
#define FR_STORE_REMOVED_H

#include "tables.h"

struct fr_removed;

/* What goes from here on is kept, and what was kept before is no longer. */
void fr_removed_begin(struct fr_store *store);
void fr_removed_end(struct fr_store *store);
/* Before a slice of this table changes anything; nothing where nothing is kept. */
void fr_removed_note_table(struct fr_store *store, const struct fr_table *table);
/* Before a key goes: `number` is its entry's, FR_NO_ENTRY when it is in the cold store only. */
void fr_removed_keep(struct fr_store *store, const struct fr_table *table, uint32_t shard, uint64_t hash,
                     uint32_t number);
/* Whether slices that can be taken back stand after the last plan. */
bool fr_removed_stand(const struct fr_store *store);
void fr_removed_free(struct fr_store *store);
uint64_t fr_removed_bytes(const struct fr_store *store);

#endif
