/* Recovery: images and the section "store" back into tables.
 *
 * Images come cold store first, then epoch by epoch; a later one replaces an earlier one. Every
 * restored key is known to an epoch and, with a row, published; nothing is dirty but carried keys
 * (cut.c). The section comes after the images and names how many rows and pending keys there are: a
 * state that lost images is refused, not served.
 *
 * Bytes from disk are checked (FR_E_CORRUPT), never asserted. Owner: the owner loop before its
 * first batch. */
#include "gate.h"
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "store/section.h"

/* Restored images are of an epoch: an unfolded one must stay in memory. */
static void settle(struct fr_entry *entry, uint8_t flags, uint64_t epoch)
{
    entry->flags = flags;
    entry->changed = (uint32_t)epoch;
}

static void restore_row(const struct fr_table *table, struct fr_shard *shard, uint64_t hash, uint32_t number,
                        const struct fr_image *image)
{
    if (number == FR_NO_ENTRY || (number & FR_LIGHT))
        number = fr_entry_make_live(shard, hash, number);
    struct fr_live_entry *live = fr_entries_live(&shard->entries, number);
    memcpy(&live->head, image->bytes, FR_ROW_IMAGE_HEAD);
    memcpy(fr_entries_row(&shard->entries, number), image->bytes + FR_ROW_IMAGE_HEAD, table->row_bytes);
    settle(&live->entry, FR_ENTRY_IN_EPOCH | FR_ENTRY_PUBLISHED, image->epoch);
}

static void restore_pending(struct fr_shard *shard, uint64_t hash, uint32_t number, const struct fr_image *image)
{
    if (number != FR_NO_ENTRY && !(number & FR_LIGHT)) {
        fr_entry_drop(shard, number);
        number = FR_NO_ENTRY;
    }
    if (number == FR_NO_ENTRY || fr_shard_entry(shard, number)->state == FR_ENTRY_DEAD)
        number = fr_entry_make_pending(shard, hash, number);
    struct fr_light_entry *light = fr_entries_light(&shard->entries, number);
    fr_pending_load(image->bytes, &light->seen_ms, &light->count);
    settle(&light->entry, FR_ENTRY_IN_EPOCH, image->epoch);
}

/* The cold store may still hold an older image: the absence is remembered until it is folded. */
static void restore_absent(struct fr_shard *shard, uint64_t hash, uint32_t number, const struct fr_image *image)
{
    if (number == FR_NO_ENTRY)
        number = fr_entry_make_pending(shard, hash, number);
    if (fr_shard_entry(shard, number)->state != FR_ENTRY_DEAD) {
        /* removal leaves it dead and clean */
        fr_shard_entry(shard, number)->flags = FR_ENTRY_BURIED;
        fr_entry_remove(shard, number, FR_ABSENT_SILENT);
    }
    settle(fr_shard_entry(shard, fr_shard_find(shard, hash)), FR_ENTRY_BURIED, image->epoch);
    fr_entry_bury(shard, hash, image->epoch);
}

enum fr_status fr_store_restore_image(struct fr_store *store, const struct fr_image *image)
{
    if (image->kind == FR_IMAGE_BLOCK)
        return fr_admission_restore(store, image);
    if (image->table >= store->n_tables)
        return FR_E_CORRUPT;
    const struct fr_table *table = &store->tables[image->table];
    bool fits = (image->kind == FR_IMAGE_ROW && image->size == table->image_size) ||
                (image->kind == FR_IMAGE_PENDING && image->size == FR_PENDING_IMAGE_SIZE) ||
                (image->kind == FR_IMAGE_ABSENT && image->size == 0);
    if (!fits)
        return FR_E_CORRUPT;
    uint64_t hash = fr_order_hash(&store->order, image->key);
    struct fr_shard *shard = &table->shards[fr_shard_of(hash)];
    uint32_t number = fr_shard_find(shard, hash);
    /* recovery comes before the first batch */
    FR_CHECK(number == FR_NO_ENTRY || !(fr_shard_entry(shard, number)->flags & FR_ENTRY_DIRTY));
    if (image->kind == FR_IMAGE_ABSENT)
        restore_absent(shard, hash, number, image);
    else if (image->kind == FR_IMAGE_ROW)
        restore_row(table, shard, hash, number, image);
    else
        restore_pending(shard, hash, number, image);
    return FR_OK;
}

/* ---- section "store" ---- */

static enum fr_status restore_carried(struct fr_store *store, const struct fr_carried_key *carried)
{
    if (carried->table >= store->n_tables)
        return FR_E_CORRUPT;
    uint64_t hash = fr_order_hash(&store->order, carried->key);
    struct fr_shard *shard = &store->tables[carried->table].shards[fr_shard_of(hash)];
    uint32_t number = fr_shard_find(shard, hash);
    if (number != FR_NO_ENTRY && fr_shard_entry(shard, number)->state != FR_ENTRY_DEAD)
        return FR_E_CORRUPT; /* its image said absent */
    number = fr_entry_make_pending(shard, hash, number);
    struct fr_light_entry *light = fr_entries_light(&shard->entries, number);
    light->seen_ms = carried->seen_ms;
    light->count = carried->count;
    light->entry.flags = FR_ENTRY_IN_EPOCH;
    fr_entry_mark_dirty(shard, &light->entry, FR_PENDING_IMAGE_SIZE);
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
