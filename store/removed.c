/* See removed.h. Undo works by shard and takes the victims in reverse order, so a key that went,
 * came back and went again gets its first state. Where entries are in memory, and whether a row of
 * the cold store has been read meanwhile, may differ from before; neither has an effect. */
#include "removed.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { VICTIMS_MIN = 64 };

struct removed_key {
    uint64_t hash;
    bool cold;
    union {
        struct fr_entry entry; /* the first member of both other structs */
        struct fr_live_entry live;
        struct fr_light_entry light;
    };
    size_t row; /* for a live entry: the index in `rows` at which its floats begin */
};

struct removed_shard {
    /* begins a cache line, because neighbouring shards belong to other workers */
    _Alignas(64) size_t n_dirty;
    uint64_t dirty_bytes;
    struct fr_store_counts counts;
    size_t n, capacity;
    struct removed_key *keys;
    size_t n_rows, capacity_rows;
    float *rows;
};

struct removed_table {
    bool noted;
    uint32_t slice_bits;
    struct fr_sweep sweep;
    /* [FR_SHARDS], the sweep's histograms; NULL: the sweep has none */
    uint64_t (*bins)[FR_SWEEP_BINS];
    struct removed_shard shards[FR_SHARDS];
};

struct fr_removed {
    bool keeps;    /* slices that can be undone are running now */
    bool holds;    /* there are slices that can be undone */
    uint64_t plan; /* the plan after which the slices ran (fr_store.plans) */
    struct removed_table *tables;
};

static struct fr_removed *removed_new(const struct fr_store *store)
{
    struct fr_removed *removed = fr_alloc(1, sizeof(*removed));
    removed->tables = fr_alloc_aligned(_Alignof(struct removed_table), store->n_tables * sizeof(*removed->tables));
    memset(removed->tables, 0, store->n_tables * sizeof(*removed->tables));
    return removed;
}

void fr_removed_free(struct fr_store *store)
{
    struct fr_removed *removed = store->removed;
    for (uint32_t t = 0; removed && t < store->n_tables; t++) {
        free(removed->tables[t].bins);
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            free(removed->tables[t].shards[s].keys);
            free(removed->tables[t].shards[s].rows);
        }
    }
    if (removed)
        free(removed->tables);
    free(removed);
    store->removed = NULL;
}

uint64_t fr_removed_bytes(const struct fr_store *store)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; store->removed && t < store->n_tables; t++) {
        const struct removed_table *table = &store->removed->tables[t];
        bytes += sizeof(*table) + (table->bins ? FR_SHARDS * sizeof(*table->bins) : 0);
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            bytes += table->shards[s].capacity * sizeof(struct removed_key) +
                     table->shards[s].capacity_rows * store->tables[t].row_bytes;
    }
    return bytes;
}

/* ---- keeping ---- */

void fr_removed_begin(struct fr_store *store)
{
    if (!store->removed)
        store->removed = removed_new(store);
    struct fr_removed *removed = store->removed;
    removed->keeps = true;
    removed->holds = false;
    removed->plan = store->plans;
    for (uint32_t t = 0; t < store->n_tables; t++)
        removed->tables[t].noted = false;
}

void fr_removed_end(struct fr_store *store)
{
    store->removed->keeps = false;
    store->removed->holds = true;
}

void fr_removed_note_table(struct fr_store *store, const struct fr_table *table)
{
    if (!store->removed || !store->removed->keeps)
        return;
    struct removed_table *noted = &store->removed->tables[table - store->tables];
    if (noted->noted)
        return;
    noted->noted = true;
    noted->slice_bits = table->slice_bits;
    noted->sweep = *table->sweep;
    if (table->sweep->bins && !noted->bins)
        noted->bins = fr_alloc(FR_SHARDS, sizeof(*noted->bins));
    if (table->sweep->bins)
        memcpy(noted->bins, table->sweep->bins, FR_SHARDS * sizeof(*noted->bins));
    for (uint32_t s = 0; s < FR_SHARDS; s++) {
        const struct fr_shard *shard = &table->shards[s];
        noted->shards[s].n_dirty = shard->n_dirty;
        noted->shards[s].dirty_bytes = shard->dirty_bytes;
        noted->shards[s].counts = shard->counts;
        noted->shards[s].n = noted->shards[s].n_rows = 0;
    }
}

static void keep_row(const struct fr_table *table, struct removed_shard *kept, const float *row)
{
    if (kept->n_rows == kept->capacity_rows) {
        kept->capacity_rows = kept->capacity_rows ? 2 * kept->capacity_rows : VICTIMS_MIN;
        kept->rows = fr_realloc(kept->rows, kept->capacity_rows, table->row_bytes);
    }
    memcpy((uint8_t *)kept->rows + kept->n_rows++ * table->row_bytes, row, table->row_bytes);
}

void fr_removed_keep(struct fr_store *store, const struct fr_table *table, uint32_t shard_number, uint64_t hash,
                     uint32_t number)
{
    if (!store->removed || !store->removed->keeps)
        return;
    struct removed_shard *kept = &store->removed->tables[table - store->tables].shards[shard_number];
    const struct fr_entries *entries = &table->shards[shard_number].entries;
    if (kept->n == kept->capacity) {
        kept->capacity = kept->capacity ? 2 * kept->capacity : VICTIMS_MIN;
        kept->keys = fr_realloc(kept->keys, kept->capacity, sizeof(*kept->keys));
    }
    struct removed_key *key = &kept->keys[kept->n++];
    *key = (struct removed_key){.hash = hash, .cold = number == FR_NO_ENTRY, .row = kept->n_rows};
    if (key->cold)
        return;
    if (number & FR_LIGHT) {
        key->light = *fr_entries_light(entries, number);
        return;
    }
    key->live = *fr_entries_live(entries, number);
    keep_row(table, kept, fr_entries_row(entries, number));
}

/* ---- undo ---- */

bool fr_removed_stand(const struct fr_store *store)
{
    return store->removed && store->removed->holds && store->removed->plan == store->plans;
}

static void bring_back(const struct fr_table *table, struct fr_shard *shard, const struct removed_shard *kept,
                       const struct removed_key *key)
{
    uint32_t number = fr_shard_find(shard, key->hash); /* dead, or FR_NO_ENTRY */
    if (key->cold && number == FR_NO_ENTRY)
        return; /* the removal did not happen, because the cold store had failed */
    if (key->cold) {
        fr_entry_drop(shard, number);
        shard->evicted++;
    } else if (key->entry.state == FR_ENTRY_LIVE) {
        number = fr_entry_make_live(shard, key->hash, number);
        *fr_entries_live(&shard->entries, number) = key->live;
        memcpy(fr_entries_row(&shard->entries, number), (const uint8_t *)kept->rows + key->row * table->row_bytes,
               table->row_bytes);
    } else {
        number = fr_entry_make_pending(shard, key->hash, number);
        *fr_entries_light(&shard->entries, number) = key->light;
    }
}

static void undo_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct fr_store *store = context;
    const struct fr_table *table = &store->tables[index / FR_SHARDS];
    const struct removed_table *noted = &store->removed->tables[index / FR_SHARDS];
    const struct removed_shard *kept = &noted->shards[index % FR_SHARDS];
    struct fr_shard *shard = &table->shards[index % FR_SHARDS];
    if (!noted->noted)
        return;
    for (size_t i = kept->n; i > 0; i--)
        bring_back(table, shard, kept, &kept->keys[i - 1]);
    shard->n_dirty = kept->n_dirty; /* a slice only appends to the list */
    shard->dirty_bytes = kept->dirty_bytes;
    shard->counts = kept->counts;
}

void fr_store_undo_slices(struct fr_store *store)
{
    struct fr_removed *removed = store->removed;
    FR_CHECK(fr_removed_stand(store) && store->undoable > 0);
    removed->holds = false;
    fr_pool_run(store->pool, (size_t)store->n_tables * FR_SHARDS, undo_shard, store);
    for (uint32_t t = 0; t < store->n_tables; t++) {
        struct fr_table *table = &store->tables[t];
        const struct removed_table *noted = &removed->tables[t];
        if (!noted->noted)
            continue;
        table->slice_bits = noted->slice_bits;
        *table->sweep = noted->sweep;
        if (table->sweep->bins)
            memcpy(table->sweep->bins, noted->bins, FR_SHARDS * sizeof(*noted->bins));
    }
}
