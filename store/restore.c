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

#include <string.h>

#include "base/check.h"
#include "section.h"

enum { SECTION_VERSION = 2 };

static void restore_row(const struct fr_table *table, struct fr_shard *shard, struct fr_entry *entry,
                        const uint8_t *bytes)
{
    float *row = entry->state == FR_ENTRY_LIVE ? entry->row : fr_entry_make_live(shard, entry);
    size_t floats = (size_t)table->spec.row_floats * sizeof(float);
    memset(row, 0, table->tail_offset + sizeof(struct fr_row_tail));
    memcpy(fr_row_tail(table, row), bytes, FR_ROW_IMAGE_HEAD);
    memcpy(row, bytes + FR_ROW_IMAGE_HEAD, floats);
    entry->flags = FR_ENTRY_IN_EPOCH | FR_ENTRY_PUBLISHED;
}

static void restore_pending(struct fr_shard *shard, struct fr_entry *entry, const uint8_t *bytes)
{
    if (entry->state == FR_ENTRY_LIVE) {
        fr_slab_give(&shard->slab, entry->row);
        shard->n_live--;
    }
    if (entry->state != FR_ENTRY_PENDING)
        fr_entry_make_pending(shard, entry);
    memcpy(&entry->seen_ms, bytes, sizeof(entry->seen_ms));
    memcpy(&entry->count, bytes + sizeof(entry->seen_ms), sizeof(entry->count));
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

void fr_section_encode(const struct fr_store *store, const struct fr_carried_key *carried, size_t n_carried,
                       struct fr_buffer *out)
{
    fr_put_u32(out, SECTION_VERSION);
    fr_put_u32(out, store->n_tables);
    for (uint32_t t = 0; t < store->n_tables; t++) {
        struct fr_store_table_stats stats;
        fr_store_stats(store, t, &stats);
        fr_put_u64(out, stats.rows);
        fr_put_u64(out, stats.pending);
        fr_put_u64(out, stats.admitted);
        fr_put_u64(out, stats.rejected);
        fr_put_u64(out, stats.forgotten);
        fr_put_u64(out, stats.unremembered);
        for (uint32_t i = 0; i < FR_EXPIRY_REASONS; i++)
            fr_put_u64(out, stats.expired[i]);
        fr_put_u32(out, store->tables[t].slice_bits);
    }
    fr_put_u64(out, n_carried);
    for (size_t i = 0; i < n_carried; i++) {
        fr_put_u32(out, carried[i].table);
        fr_put_u64(out, carried[i].key);
        fr_put_u64(out, (uint64_t)carried[i].seen_ms);
        fr_put_u32(out, carried[i].count);
    }
}

static enum fr_status restore_carried(struct fr_store *store, struct fr_reader *reader)
{
    uint64_t n = fr_take_u64(reader);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t t = fr_take_u32(reader);
        uint64_t hash = fr_fmix64(fr_take_u64(reader));
        int64_t seen_ms = (int64_t)fr_take_u64(reader);
        uint32_t count = fr_take_u32(reader);
        if (reader->failed || t >= store->n_tables)
            return FR_E_CORRUPT;
        struct fr_shard *shard = &store->tables[t].shards[fr_shard_of(hash)];
        if (fr_index_find(&shard->index, hash))
            return FR_E_CORRUPT; /* its image said absent */
        (void)fr_index_prepare(&shard->index, 1);
        struct fr_entry *entry = fr_index_insert(&shard->index, hash);
        fr_entry_make_pending(shard, entry);
        entry->seen_ms = seen_ms;
        entry->count = count;
        entry->flags = FR_ENTRY_IN_EPOCH;
        fr_entry_mark_dirty(shard, entry, FR_PENDING_IMAGE_SIZE);
    }
    return reader->failed || reader->at != reader->end ? FR_E_CORRUPT : FR_OK;
}

struct table_state { /* as the section says */
    uint64_t rows, pending;
    struct fr_table_counters counters;
    uint32_t slice_bits;
};

static struct table_state take_table(struct fr_reader *reader)
{
    struct table_state state = {0};
    state.rows = fr_take_u64(reader);
    state.pending = fr_take_u64(reader);
    state.counters.admitted = fr_take_u64(reader);
    state.counters.rejected = fr_take_u64(reader);
    state.counters.forgotten = fr_take_u64(reader);
    state.counters.unremembered = fr_take_u64(reader);
    for (uint32_t i = 0; i < FR_EXPIRY_REASONS; i++)
        state.counters.expired[i] = fr_take_u64(reader);
    state.slice_bits = fr_take_u32(reader);
    return state;
}

static enum fr_status apply_table(struct fr_store *store, uint32_t t, const struct table_state *state)
{
    struct fr_store_table_stats now;
    fr_store_stats(store, t, &now);
    if (state->rows != now.rows || state->pending != now.pending || state->slice_bits > FR_INDEX_SLICE_BITS_MAX)
        return FR_E_CORRUPT;
    struct fr_table *table = &store->tables[t];
    table->slice_bits = state->slice_bits;
    for (uint32_t s = 0; s < FR_SHARDS; s++)
        table->shards[s].counters = (struct fr_table_counters){0};
    table->shards[0].counters = state->counters; /* only sums are ever read */
    return FR_OK;
}

enum fr_status fr_store_restore_section(struct fr_store *store, const uint8_t *bytes, size_t size)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    uint32_t version = fr_take_u32(&reader);
    uint32_t n_tables = fr_take_u32(&reader);
    if (reader.failed)
        return FR_E_CORRUPT;
    if (version != SECTION_VERSION || n_tables != store->n_tables)
        return FR_E_MISMATCH;
    struct table_state states[FR_TABLES_MAX];
    for (uint32_t t = 0; t < n_tables; t++)
        states[t] = take_table(&reader);
    enum fr_status status = restore_carried(store, &reader);
    for (uint32_t t = 0; t < n_tables && status == FR_OK; t++)
        status = apply_table(store, t, &states[t]);
    return status;
}
