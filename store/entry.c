/* One entry's life: absent -> pending -> live -> dead -> absent, and what the open epoch must hold
 * of it.
 *
 * Flags and images (docs/architecture.md, "The store"): the cut writes one image per dirty entry.
 * Which image a removed key needs depends on what earlier epochs hold: nothing (the entry simply
 * vanishes), a pending image (an absence without a reason) or a row image (a tombstone with its
 * reason). A key that goes and comes back within one epoch keeps its flags in its entry, which
 * stays as dead in between.
 *
 * A dead entry stays after its cut until the epoch that holds its absence is folded. Without the
 * entry, the cold store would be asked for the key, and it still holds the older image. The entry
 * stays even longer while images that a slice has read ahead may include that older image (scan.h).
 *
 * Invariants: an entry that no epoch holds is dirty or buried; a dead entry is dirty or buried;
 * live and pending entries are counted, dead ones are not.
 *
 * Thread: the worker that handles the shard. Other files decide which keys are admitted or
 * removed. */
#include "scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "numerics/first_values.h"

enum {
    DIRTY_CAPACITY_MIN = 64,
    BURIED_CAPACITY_MIN = 64,
};

void fr_shard_init(struct fr_shard *shard, uint32_t number, size_t row_bytes, uint64_t pending_max)
{
    *shard = (struct fr_shard){.pending_max = pending_max};
    fr_index_init(&shard->index);
    fr_entries_init(&shard->entries, row_bytes);
    /* the shards of a table have about the same size, to within the square root */
    fr_array_stagger(&shard->entries.live, number, FR_SHARDS);
    fr_array_stagger(&shard->entries.light, number, FR_SHARDS);
}

void fr_shard_release(struct fr_shard *shard)
{
    fr_index_release(&shard->index);
    fr_entries_release(&shard->entries);
    free(shard->dirty);
    free(shard->buried);
    *shard = (struct fr_shard){0};
}

size_t fr_shard_bytes(const struct fr_shard *shard)
{
    const struct fr_entries *entries = &shard->entries;
    return shard->index.bytes + fr_array_bytes(&entries->live) + fr_array_bytes(&entries->light) +
           shard->capacity_dirty * sizeof(*shard->dirty) + shard->capacity_buried * sizeof(*shard->buried);
}

void fr_shard_trim(struct fr_shard *shard)
{
    fr_index_trim(&shard->index, &shard->entries);
    fr_array_trim(&shard->entries.live);
    fr_array_trim(&shard->entries.light);
}

void fr_entry_list_dirty(struct fr_shard *shard, struct fr_entry *entry, size_t image_size)
{
    entry->flags |= FR_ENTRY_DIRTY;
    if (shard->n_dirty == shard->capacity_dirty) {
        shard->capacity_dirty = shard->capacity_dirty ? shard->capacity_dirty * 2 : DIRTY_CAPACITY_MIN;
        shard->dirty = fr_realloc(shard->dirty, shard->capacity_dirty, sizeof(*shard->dirty));
    }
    shard->dirty[shard->n_dirty++] = entry->hash;
    shard->dirty_bytes += FR_DIRTY_KEY_BYTES + image_size;
}

/* After an entry was removed from the index: moves the last item of its array into its place. */
static void fill_hole(struct fr_shard *shard, uint32_t number)
{
    struct fr_entries *entries = &shard->entries;
    uint32_t kind = number & FR_LIGHT;
    struct fr_array *array = kind ? &entries->light : &entries->live;
    uint32_t last = (array->n - 1) | kind;
    if (number != last) {
        const struct fr_entry *moved = fr_entries_at(entries, last);
        fr_index_renumber(&shard->index, moved->hash, last, number);
        memcpy(fr_entries_at(entries, number), moved, array->stride);
    }
    array->n--;
}

static uint32_t push_live(struct fr_shard *shard, struct fr_entry entry)
{
    struct fr_entries *entries = &shard->entries;
    uint32_t made = fr_array_push(&entries->live);
    struct fr_live_entry *live = fr_entries_live(entries, made);
    entry.state = FR_ENTRY_LIVE;
    live->entry = entry;
    live->head = (struct fr_row_head){0};
    return made;
}

static uint32_t push_light(struct fr_shard *shard, struct fr_entry entry, uint8_t state)
{
    uint32_t made = fr_array_push(&shard->entries.light) | FR_LIGHT;
    entry.state = state;
    *fr_entries_light(&shard->entries, made) = (struct fr_light_entry){.entry = entry};
    return made;
}

uint32_t fr_entry_make_live(struct fr_shard *shard, uint64_t hash, uint32_t number)
{
    shard->counts.rows++;
    if (number == FR_NO_ENTRY) {
        uint32_t made = push_live(shard, (struct fr_entry){.hash = hash});
        fr_index_insert(&shard->index, &shard->entries, hash, made);
        return made;
    }
    struct fr_entry entry = *fr_shard_entry(shard, number);
    FR_CHECK((number & FR_LIGHT) && entry.hash == hash);
    if (entry.state == FR_ENTRY_PENDING)
        shard->counts.pending--;
    uint32_t made = push_live(shard, entry);
    fr_index_renumber(&shard->index, hash, number, made);
    fill_hole(shard, number);
    return made;
}

uint32_t fr_entry_make_pending(struct fr_shard *shard, uint64_t hash, uint32_t number)
{
    shard->counts.pending++;
    if (number == FR_NO_ENTRY) {
        uint32_t made = push_light(shard, (struct fr_entry){.hash = hash}, FR_ENTRY_PENDING);
        fr_index_insert(&shard->index, &shard->entries, hash, made);
        return made;
    }
    struct fr_light_entry *light = fr_entries_light(&shard->entries, number);
    FR_CHECK(light->entry.state == FR_ENTRY_DEAD);
    light->entry.state = FR_ENTRY_PENDING;
    light->count = 0;
    light->seen_ms = 0;
    return number;
}

static void uncount(struct fr_shard *shard, const struct fr_entry *entry)
{
    if (entry->state == FR_ENTRY_LIVE)
        shard->counts.rows--;
    else if (entry->state == FR_ENTRY_PENDING)
        shard->counts.pending--;
}

void fr_entry_drop(struct fr_shard *shard, uint32_t number)
{
    const struct fr_entry *entry = fr_shard_entry(shard, number);
    uncount(shard, entry);
    fr_index_erase(&shard->index, entry->hash, number);
    fill_hole(shard, number);
}

void fr_entry_remove(struct fr_shard *shard, uint32_t number, uint8_t reason)
{
    struct fr_entry *entry = fr_shard_entry(shard, number);
    FR_CHECK(entry->state == FR_ENTRY_LIVE || entry->state == FR_ENTRY_PENDING);
    if (!(entry->flags & (FR_ENTRY_IN_EPOCH | FR_ENTRY_BURIED))) {
        fr_entry_drop(shard, number);
        return;
    }
    uncount(shard, entry);
    if (entry->state == FR_ENTRY_LIVE) {
        uint32_t dead = push_light(shard, *entry, FR_ENTRY_DEAD);
        fr_index_renumber(&shard->index, entry->hash, number, dead);
        fill_hole(shard, number);
        entry = fr_shard_entry(shard, dead);
    }
    entry->state = FR_ENTRY_DEAD;
    if (!(entry->flags & FR_ENTRY_IN_EPOCH)) {
        /* came and went within the epoch: the buried absence is still true */
        entry->flags = FR_ENTRY_BURIED;
        return;
    }
    if ((entry->flags & FR_ENTRY_PUBLISHED) && reason != FR_ABSENT_SILENT)
        entry->reason = reason;
    fr_entry_mark_dirty(shard, entry, 0);
}

/* ---- dead entries until their epoch is folded ---- */

void fr_entry_bury(struct fr_shard *shard, uint64_t hash, uint64_t epoch)
{
    if (shard->buried_end == shard->capacity_buried) {
        size_t n = shard->buried_end - shard->buried_begin;
        if (n > 0)
            memmove(shard->buried, shard->buried + shard->buried_begin, n * sizeof(*shard->buried));
        shard->buried_begin = 0;
        shard->buried_end = n;
        if (2 * n >= shard->capacity_buried) {
            shard->capacity_buried = shard->capacity_buried ? 2 * shard->capacity_buried : BURIED_CAPACITY_MIN;
            shard->buried = fr_realloc(shard->buried, shard->capacity_buried, sizeof(*shard->buried));
        }
    }
    shard->buried[shard->buried_end++] = (struct fr_buried){.hash = hash, .epoch = epoch};
}

void fr_shard_exhume(const struct fr_table *table, struct fr_shard *shard, uint64_t folded, size_t most)
{
    for (; most > 0 && shard->buried_begin < shard->buried_end && shard->buried[shard->buried_begin].epoch <= folded;
         most--) {
        const struct fr_buried *buried = &shard->buried[shard->buried_begin];
        if (fr_scan_covers(table, buried->hash))
            return; /* its older row may be among the images read ahead */
        shard->buried_begin++;
        uint32_t number = fr_shard_find(shard, buried->hash);
        if (number == FR_NO_ENTRY)
            continue;
        const struct fr_entry *entry = fr_shard_entry(shard, number);
        /* the key may have come back, and gone again, since */
        if (!(entry->flags & FR_ENTRY_BURIED) || entry->changed != buried->epoch)
            continue;
        if (entry->state == FR_ENTRY_DEAD)
            fr_entry_drop(shard, number);
        else
            fr_shard_entry(shard, number)->flags &= (uint8_t)~FR_ENTRY_BURIED;
    }
}

static struct fr_value_place first_place(const struct fr_store *store, const struct fr_table *table)
{
    return (struct fr_value_place){.seed = store->seed, .stream = table->random_stream};
}

struct fr_value_place fr_store_first_place(const struct fr_store *store, uint32_t table)
{
    FR_CHECK(table < store->n_configured);
    return first_place(store, &store->tables[table]);
}

void fr_entry_init_rows(const struct fr_store *store, const struct fr_table *table, const uint64_t *keys,
                        float *const *rows, size_t n)
{
    struct fr_value_place at = first_place(store, table);
    for (size_t r = 0; r < n; r++)
        memset(rows[r], 0, table->row_bytes);
    for (uint32_t p = 0; p < table->spec.layout.n_parts; p++) {
        const struct fr_layout_part *part = &table->spec.layout.parts[p];
        at.index = part->value_offset;
        at.fan_in = at.fan_out = (double)part->dim;
        fr_first_values_of_rows(
            &part->init, &at,
            &(struct fr_first_rows){.keys = keys, .rows = rows, .n_rows = n, .offset = part->value_offset}, part->dim);
        for (size_t r = 0; r < n; r++)
            for (uint32_t j = 0; j < part->state_floats; j++)
                rows[r][part->state_offset + j] = part->state_initial;
    }
}
