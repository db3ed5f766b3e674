/* Recovery: images and the section "store" back into tables.
 *
 * Images come cold store first, then epoch by epoch; a later one replaces an earlier one. Every
 * restored key is known to an epoch and, with a row, published; nothing is dirty but carried keys
 * (cut.c). The section comes after the images and names how many rows and pending keys there are: a
 * state that lost images is refused, not served.
 *
 * Bytes from disk are checked (FR_E_CORRUPT), never asserted. Owner: the owner loop before its
 * first batch. */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "store/section.h"

static void restore_row(const struct fr_table *table, struct fr_shard *shard, struct fr_entry *entry,
                        const uint8_t *bytes)
{
    float *row = entry->state == FR_ENTRY_LIVE ? entry->row : fr_entry_make_live(shard, entry);
    size_t floats = (size_t)table->spec.layout.row_floats * sizeof(float);
    memset(row, 0, table->tail_offset + sizeof(struct fr_row_head));
    memcpy(fr_row_tail(table, row), bytes, FR_ROW_IMAGE_HEAD);
    memcpy(row, bytes + FR_ROW_IMAGE_HEAD, floats);
    entry->flags = FR_ENTRY_IN_EPOCH | FR_ENTRY_PUBLISHED;
}

static void restore_pending(struct fr_shard *shard, struct fr_entry *entry, const uint8_t *bytes)
{
    if (entry->state == FR_ENTRY_LIVE) {
        fr_slab_give(&shard->slab, entry->row);
        shard->counts.rows--;
    }
    if (entry->state != FR_ENTRY_PENDING)
        fr_entry_make_pending(shard, entry);
    fr_pending_load(bytes, &entry->seen_ms, &entry->count);
    entry->flags = FR_ENTRY_IN_EPOCH;
}

static void restore_absent(struct fr_shard *shard, struct fr_entry *entry)
{
    if (!entry)
        return;
    entry->flags = 0; /* as if no epoch knew it: then removal erases */
    fr_entry_remove(shard, entry, FR_ABSENT_SILENT);
}

enum fr_status fr_store_restore_image(struct fr_store *store, const struct fr_image *image)
{
    if (image->table >= store->n_tables)
        return FR_E_CORRUPT;
    const struct fr_table *table = &store->tables[image->table];
    bool fits = (image->kind == FR_IMAGE_ROW && image->size == table->image_size) ||
                (image->kind == FR_IMAGE_PENDING && image->size == FR_PENDING_IMAGE_SIZE) ||
                (image->kind == FR_IMAGE_ABSENT && image->size == 0);
    if (!fits)
        return FR_E_CORRUPT;
    uint64_t hash = fr_fmix64(image->key);
    struct fr_shard *shard = &table->shards[fr_shard_of(hash)];
    struct fr_entry *entry = fr_index_find(&shard->index, hash);
    /* recovery comes before the first batch */
    FR_CHECK(!entry || !(entry->flags & FR_ENTRY_DIRTY));
    if (image->kind == FR_IMAGE_ABSENT) {
        restore_absent(shard, entry);
        return FR_OK;
    }
    if (!entry) {
        (void)fr_index_prepare(&shard->index, 1);
        entry = fr_index_insert(&shard->index, hash);
    }
    if (image->kind == FR_IMAGE_ROW)
        restore_row(table, shard, entry, image->bytes);
    else
        restore_pending(shard, entry, image->bytes);
    return FR_OK;
}

/* ---- section "store" ---- */

static enum fr_status restore_carried(struct fr_store *store, const struct fr_carried_key *carried)
{
    uint64_t hash = fr_fmix64(carried->key);
    if (carried->table >= store->n_tables)
        return FR_E_CORRUPT;
    struct fr_shard *shard = &store->tables[carried->table].shards[fr_shard_of(hash)];
    if (fr_index_find(&shard->index, hash))
        return FR_E_CORRUPT; /* its image said absent */
    (void)fr_index_prepare(&shard->index, 1);
    struct fr_entry *entry = fr_index_insert(&shard->index, hash);
    fr_entry_make_pending(shard, entry);
    entry->seen_ms = carried->seen_ms;
    entry->count = carried->count;
    entry->flags = FR_ENTRY_IN_EPOCH;
    fr_entry_mark_dirty(shard, entry, FR_PENDING_IMAGE_SIZE);
    return FR_OK;
}

static enum fr_status restore_table(struct fr_store *store, uint32_t t, const struct fr_store_section_table *saved)
{
    struct fr_table *table = &store->tables[t];
    struct fr_store_counts now = fr_table_counts(table);
    if (saved->counts.rows != now.rows || saved->counts.pending != now.pending ||
        saved->slice_bits > FR_INDEX_SLICE_BITS_MAX)
        return FR_E_CORRUPT;
    table->slice_bits = saved->slice_bits;
    /* The history's counts go to the first shard: only sums are ever read. */
    for (uint32_t s = 0; s < FR_SHARDS; s++) {
        struct fr_store_counts counts = s == 0 ? saved->counts : (struct fr_store_counts){0};
        counts.rows = table->shards[s].counts.rows;
        counts.pending = table->shards[s].counts.pending;
        table->shards[s].counts = counts;
    }
    return FR_OK;
}

enum fr_status fr_store_restore_section(struct fr_store *store, const uint8_t *bytes, size_t size)
{
    struct fr_store_section section;
    enum fr_status status = fr_store_section_parse(bytes, size, &section);
    if (status != FR_OK)
        return status;
    if (section.n_tables != store->n_tables)
        status = FR_E_MISMATCH;
    for (size_t i = 0; i < section.n_carried && status == FR_OK; i++)
        status = restore_carried(store, &section.carried[i]);
    for (uint32_t t = 0; t < section.n_tables && status == FR_OK; t++)
        status = restore_table(store, t, &section.tables[t]);
    free(section.carried);
    return status;
}
