/* The rows and keys that slices removed while the batch before them could still be refused. They
 * are kept until a later slice needs the memory, so that fr_store_undo_slices can restore them.
 *
 * For each table with a slice, the sweep, k and the numbers of every shard are kept, once; for each
 * key that was removed, its entry as it was and its row's floats. The memory grows to the largest
 * slice and stays. Without a device nothing is kept.
 *
 * Thread: fr_removed_keep by the worker that handles the shard, the rest by the owner loop. */
#ifndef FR_STORE_REMOVED_H
#define FR_STORE_REMOVED_H

#include "tables.h"

struct fr_removed;

/* Removals are kept from now on; what was kept before is dropped. */
void fr_removed_begin(struct fr_store *store);
void fr_removed_end(struct fr_store *store);
/* Call before a slice changes anything in this table. Does nothing while removals are not kept. */
void fr_removed_note_table(struct fr_store *store, const struct fr_table *table);
/* Call before a key is removed. `number` is that of its entry; FR_NO_ENTRY: the key is in the cold
 * store only. */
void fr_removed_keep(struct fr_store *store, const struct fr_table *table, uint32_t shard, uint64_t hash,
                     uint32_t number);
/* Whether slices that can still be undone were run after the last plan. */
bool fr_removed_stand(const struct fr_store *store);
void fr_removed_free(struct fr_store *store);
uint64_t fr_removed_bytes(const struct fr_store *store);

#endif
