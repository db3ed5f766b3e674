/* Recovery: images and the section "store" back into tables.
 *
 * The section comes first. It gives the number of rows and pending keys of each shard, so room is
 * made for them; if they do not fit the limit, the images of the cold store are not requested. Then
 * come the images, those of the cold store first, then epoch by epoch; a later image replaces an
 * earlier one. Every restored key is known to an epoch and, if it has a row, published. Only
 * carried keys are dirty (cut.c). The absence of a key is remembered until its epoch is folded.
 *
 * At the end, the section's numbers are compared with what came. If all images were requested and
 * some are missing, the state is refused. Otherwise the keys that did not come are in the cold
 * store only.
 *
 * Bytes from disk are checked (FR_E_CORRUPT), never asserted. Thread: before the first batch;
 * images by several threads, each shard by one of them, the rest by the owner loop. */
#include "gate.h"
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "store/section.h"

enum { INDEX_BYTES = 8 }; /* approximate bytes that a key takes in the index */

/* Marks the entry as held by an epoch, so that it stays in memory while that epoch is not
 * folded. */
static void mark_restored(struct fr_entry *entry, uint8_t flags, uint64_t epoch)
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
    memcpy(fr_entries_image(&shard->entries, number), image->bytes, table->image_size);
    mark_restored(&live->entry, FR_ENTRY_IN_EPOCH | FR_ENTRY_PUBLISHED, image->epoch);
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
    mark_restored(&light->entry, FR_ENTRY_IN_EPOCH, image->epoch);
}

/* The cold store may still hold an older image, so the absence is remembered until it is folded. */
static void restore_absent(struct fr_shard *shard, uint64_t hash, uint32_t number, const struct fr_image *image)
{
    if (number == FR_NO_ENTRY)
        number = fr_entry_make_pending(shard, hash, number);
    if (fr_shard_entry(shard, number)->state != FR_ENTRY_DEAD) {
        /* with these flags, removal leaves the entry dead and clean */
        fr_shard_entry(shard, number)->flags = FR_ENTRY_BURIED;
        fr_entry_remove(shard, number, FR_ABSENT_SILENT);
    }
    mark_restored(fr_shard_entry(shard, fr_shard_find(shard, hash)), FR_ENTRY_BURIED, image->epoch);
    fr_entry_bury(shard, hash, image->epoch);
}

enum fr_status fr_store_restore_image(struct fr_store *store, const struct fr_image *image)
{
    if (image->kind == FR_IMAGE_BLOCK)
        return fr_admission_restore(store, image);
    const struct fr_table *table = fr_store_numbered(store, image->table);
    if (!table || fr_store_subtable_of(store, fr_subtable_table(image->table), image->key) != table)
        return FR_E_CORRUPT;
    bool fits = (image->kind == FR_IMAGE_ROW && image->size == table->image_size) ||
                (image->kind == FR_IMAGE_PENDING && image->size == FR_PENDING_IMAGE_SIZE) ||
                (image->kind == FR_IMAGE_ABSENT && image->size == 0);
    if (!fits)
        return FR_E_CORRUPT;
    uint64_t hash = fr_order_hash(&store->order, image->key);
    struct fr_shard *shard = &table->shards[fr_shard_of(hash)];
    uint32_t number = fr_shard_find(shard, hash);
    /* no batch has run yet, so nothing is dirty */
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
    const struct fr_table *table = fr_store_numbered(store, carried->table);
    if (!table || fr_store_subtable_of(store, fr_subtable_table(carried->table), carried->key) != table)
        return FR_E_CORRUPT;
    uint64_t hash = fr_order_hash(&store->order, carried->key);
    struct fr_shard *shard = &table->shards[fr_shard_of(hash)];
    uint32_t number = fr_shard_find(shard, hash);
    if (number != FR_NO_ENTRY && fr_shard_entry(shard, number)->state != FR_ENTRY_DEAD)
        return FR_E_CORRUPT; /* the key's image should have been an absence */
    number = fr_entry_make_pending(shard, hash, number);
    struct fr_light_entry *light = fr_entries_light(&shard->entries, number);
    light->seen_ms = carried->seen_ms;
    light->count = carried->count;
    light->entry.flags = FR_ENTRY_IN_EPOCH;
    fr_entry_mark_dirty(shard, &light->entry, FR_PENDING_IMAGE_SIZE);
    return FR_OK;
}

/* Counted keys without an entry are in the cold store only. If all images were requested, there
 * must be none. */
static enum fr_status restore_shard(const struct fr_store *store, struct fr_shard *shard, uint64_t rows,
                                    uint64_t pending)
{
    uint64_t resident = shard->counts.rows + shard->counts.pending;
    if (rows > UINT64_MAX / 2 || pending > UINT64_MAX / 2 || rows + pending < resident || shard->counts.rows > rows ||
        shard->counts.pending > pending)
        return FR_E_CORRUPT;
    shard->evicted = rows + pending - resident;
    if (shard->evicted > 0 && !store->restores_hot)
        return FR_E_CORRUPT;
    shard->counts = (struct fr_store_counts){.rows = rows, .pending = pending};
    return FR_OK;
}

static enum fr_status restore_table(const struct fr_store *store, struct fr_table *table,
                                    const struct fr_store_section_table *saved)
{
    enum fr_status status = FR_OK;
    for (uint32_t s = 0; s < FR_SHARDS && status == FR_OK; s++)
        status = restore_shard(store, &table->shards[s], saved->rows[s], saved->pending[s]);
    if (status != FR_OK)
        return status;
    struct fr_store_counts sums = fr_table_counts(table);
    if (saved->counts.rows != sums.rows || saved->counts.pending != sums.pending ||
        saved->slice_bits > FR_INDEX_SLICE_BITS_MAX)
        return FR_E_CORRUPT;
    table->slice_bits = saved->slice_bits;
    /* The history's counts go to the first shard, because only sums over the shards are read. */
    struct fr_store_counts first = saved->counts;
    first.rows = table->shards[0].counts.rows;
    first.pending = table->shards[0].counts.pending;
    table->shards[0].counts = first;
    return FR_OK;
}

enum fr_status fr_store_restore_section(struct fr_store *store, const char *name, const uint8_t *bytes, size_t size)
{
    uint32_t domain;
    if (fr_store_section_is(name, FR_SECTION_EXPIRY, &domain))
        return domain < store->n_domains ? fr_expiry_restore(store, domain, bytes, size) : FR_E_MISMATCH;
    if (!fr_store_section_is(name, FR_SECTION_STORE, &domain))
        return FR_E_NOT_FOUND;
    if (domain >= store->n_domains)
        return FR_E_MISMATCH;
    fr_buffer_clear(&store->restoring[domain]);
    fr_buffer_append(&store->restoring[domain], bytes, size);
    return FR_OK;
}

/* Parses the section "store" of a domain. Release the section on success. */
static enum fr_status parse_section(const struct fr_store *store, uint32_t domain, struct fr_store_section *out)
{
    const struct fr_buffer *bytes = &store->restoring[domain];
    enum fr_status status = fr_store_section_parse(bytes->data, bytes->size, out);
    if (status == FR_OK && out->n_tables != store->n_configured) {
        fr_store_section_release(out);
        status = FR_E_MISMATCH;
    }
    return status;
}

static enum fr_status refuse_section(const struct fr_store *store, uint32_t domain, enum fr_status status,
                                     struct fr_err *err)
{
    char name[FR_SECTION_NAME_MAX];
    fr_store_section_name(FR_SECTION_STORE, domain, store->n_domains, name);
    if (status == FR_E_NOT_FOUND)
        return fr_err_set(err, FR_E_CORRUPT, "no epoch holds the section of \"%s\"", name);
    return fr_err_set(err, status, "the section \"%s\" was refused (%s)", name, fr_status_name(status));
}

static enum fr_status restore_domain(struct fr_store *store, uint32_t domain)
{
    struct fr_store_section section;
    if (store->restoring[domain].size == 0)
        return FR_E_NOT_FOUND;
    enum fr_status status = parse_section(store, domain, &section);
    if (status != FR_OK)
        return status;
    for (size_t i = 0; i < section.n_carried && status == FR_OK; i++)
        status = restore_carried(store, &section.carried[i]);
    for (uint32_t t = 0; t < section.n_tables && status == FR_OK; t++)
        status = restore_table(store, fr_store_subtable(store, t, domain), &section.tables[t]);
    fr_store_section_release(&section);
    return status;
}

enum fr_status fr_store_restore_end(struct fr_store *store, struct fr_err *err)
{
    for (uint32_t d = 0; d < store->n_domains; d++) {
        enum fr_status status = restore_domain(store, d);
        if (status != FR_OK)
            return refuse_section(store, d, status, err);
        fr_buffer_release(&store->restoring[d]);
    }
    store->restores_hot = false;
    return FR_OK;
}

/* ---- before the images ---- */

static enum fr_status visit_block(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    (void)index, (void)hash;
    return fr_admission_restore(self, image);
}

/* The counters of sketches are always in memory, whether the rows are or not. */
static enum fr_status restore_blocks(struct fr_store *store, struct fr_err *err)
{
    struct fr_durable_reader reader = {store, visit_block};
    enum fr_status status = FR_OK;
    for (uint32_t t = 0; t < store->n_tables && status == FR_OK; t++)
        if (store->tables[t].sketches)
            status =
                fr_durable_scan(store->durable, FR_BLOCK_TABLES + store->tables[t].number, 0, UINT64_MAX, &reader, err);
    return status;
}

/* Bytes of memory that the rows and pending keys of a table take. */
static uint64_t needed_bytes(const struct fr_table *table, const struct fr_store_counts *counts)
{
    return counts->rows * (table->row_bytes + sizeof(struct fr_live_entry) + INDEX_BYTES) +
           counts->pending * (sizeof(struct fr_light_entry) + INDEX_BYTES);
}

/* Makes room in the indexes of a domain for all of its keys. */
static enum fr_status make_room(const struct fr_store *store, uint32_t domain, const struct fr_store_section *section,
                                struct fr_err *err)
{
    for (uint32_t t = 0; t < section->n_tables; t++)
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            uint64_t rows = section->tables[t].rows[s], pending = section->tables[t].pending[s];
            if (rows >= FR_LIGHT || pending >= FR_LIGHT)
                return fr_err_set(err, FR_E_CORRUPT, "the section \"store\" counts more keys than a shard can hold");
            fr_index_reserve(&fr_store_subtable(store, t, domain)->shards[s].index, rows + pending);
        }
    return FR_OK;
}

enum fr_status fr_store_restore_begin(struct fr_store *store, bool *wants_cold, struct fr_err *err)
{
    uint64_t need = 0;
    enum fr_status status = FR_OK;
    struct fr_store_section *sections = fr_alloc(store->n_domains, sizeof(*sections));
    for (uint32_t d = 0; d < store->n_domains && status == FR_OK; d++) {
        if (store->restoring[d].size == 0)
            continue; /* fr_store_restore_end refuses the state */
        status = parse_section(store, d, &sections[d]);
        if (status != FR_OK)
            status = refuse_section(store, d, status, err);
        for (uint32_t t = 0; t < sections[d].n_tables; t++)
            need += needed_bytes(fr_store_subtable(store, t, d), &sections[d].tables[t].counts);
    }
    if (status == FR_OK) {
        *wants_cold = store->limit == 0 || !store->durable || need <= store->limit;
        store->restores_hot = !*wants_cold;
        if (store->restores_hot)
            status = restore_blocks(store, err);
    }
    for (uint32_t d = 0; d < store->n_domains; d++) {
        if (status == FR_OK && !store->restores_hot)
            status = make_room(store, d, &sections[d], err);
        fr_store_section_release(&sections[d]);
    }
    free(sections);
    return status;
}
