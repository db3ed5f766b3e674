/* One entry's life: absent -> pending -> live -> dead -> absent, with what the open epoch must say
 * about it.
 *
 * Flags and images (DESIGN section 5): the cut writes one image per dirty entry. Whether a removed
 * key needs one depends on what earlier epochs hold: nothing (the entry simply vanishes), a pending
 * image (silent absence) or a row image (a tombstone with its reason). A key that goes and comes
 * back within one epoch keeps its flags in the entry, which stays as dead in between.
 *
 * Invariants: an entry that no epoch holds is dirty; a dead entry is dirty and in an epoch; live
 * and pending entries are counted, dead ones are not.
 *
 * Thread: the worker that handles the shard. It does not decide who is admitted or removed. */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { DIRTY_CAPACITY_MIN = 64 };

void fr_shard_init(struct fr_shard *shard, size_t row_bytes, uint64_t pending_max)
{
    *shard = (struct fr_shard){.pending_max = pending_max};
    fr_index_init(&shard->index);
    fr_slab_init(&shard->slab, row_bytes);
}

void fr_shard_release(struct fr_shard *shard)
{
    fr_index_release(&shard->index);
    fr_slab_release(&shard->slab);
    free(shard->dirty);
    *shard = (struct fr_shard){0};
}

size_t fr_shard_bytes(const struct fr_shard *shard)
{
    return fr_index_bytes(&shard->index) + shard->slab.reserved + shard->capacity_dirty * sizeof(*shard->dirty);
}

void fr_entry_mark_dirty(struct fr_shard *shard, struct fr_entry *entry, size_t image_size)
{
    if (entry->flags & FR_ENTRY_DIRTY)
        return;
    entry->flags |= FR_ENTRY_DIRTY;
    if (shard->n_dirty == shard->capacity_dirty) {
        shard->capacity_dirty = shard->capacity_dirty ? shard->capacity_dirty * 2 : DIRTY_CAPACITY_MIN;
        shard->dirty = fr_realloc(shard->dirty, shard->capacity_dirty, sizeof(*shard->dirty));
    }
    shard->dirty[shard->n_dirty++] = entry->hash;
    shard->dirty_bytes += image_size;
}

float *fr_entry_make_live(struct fr_shard *shard, struct fr_entry *entry)
{
    if (entry->state == FR_ENTRY_PENDING)
        shard->counts.pending--;
    entry->state = FR_ENTRY_LIVE;
    entry->count = 0;
    entry->row = fr_slab_take(&shard->slab);
    shard->counts.rows++;
    return entry->row;
}

void fr_entry_make_pending(struct fr_shard *shard, struct fr_entry *entry)
{
    entry->state = FR_ENTRY_PENDING;
    entry->count = 0;
    entry->seen_ms = 0;
    shard->counts.pending++;
}

void fr_entry_remove(struct fr_shard *shard, struct fr_entry *entry, uint8_t reason)
{
    if (entry->state == FR_ENTRY_LIVE) {
        fr_slab_give(&shard->slab, entry->row);
        shard->counts.rows--;
    } else {
        FR_CHECK(entry->state == FR_ENTRY_PENDING);
        shard->counts.pending--;
    }
    if (!(entry->flags & FR_ENTRY_IN_EPOCH)) {
        fr_index_erase(&shard->index, entry);
        return;
    }
    entry->state = FR_ENTRY_DEAD;
    entry->row = NULL;
    entry->count = 0;
    if ((entry->flags & FR_ENTRY_PUBLISHED) && reason != FR_ABSENT_SILENT)
        entry->reason = reason;
    fr_entry_mark_dirty(shard, entry, 0);
}

static void init_part(const struct fr_store *store, const struct fr_table *table, uint64_t key,
                      const struct fr_layout_part *part, float *row)
{
    const struct fr_value_place at = {store->seed,        table->random_stream, key,
                                      part->value_offset, (double)part->dim,    (double)part->dim};
    fr_conf_first_values(&part->init, &at, row + part->value_offset, part->dim);
    for (uint32_t j = 0; j < part->state_floats; j++)
        row[part->state_offset + j] = part->state_initial;
}

void fr_entry_init_row(const struct fr_store *store, const struct fr_table *table, uint64_t key, float *row)
{
    memset(row, 0, table->tail_offset + sizeof(struct fr_row_head));
    for (uint32_t p = 0; p < table->spec.layout.n_parts; p++)
        init_part(store, table, key, &table->spec.layout.parts[p], row);
}
