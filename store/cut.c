/* The cut: images of every key that changed since the last one, and the section "store".
 *
 * Three passes: shards look their dirty keys up and say what each image is (and settle the entries'
 * flags); the owner takes room for all of them in the stage, in order of table, shard and change;
 * shards copy the bytes. The encoder sorts by hash, so the epoch's bytes do not depend on that
 * order. Cost: in proportion to the dirty keys, mostly the copy. Changed blocks of sketches follow
 * (gate.c), and the section "expiry" when a slice ran (sweep.c).
 *
 * One image per key and epoch is not enough for one case: a published row expired, the key came
 * back, and it has not reached the gate again. Followers need the tombstone, recovery the count.
 * The image is the tombstone; the count is carried in the section "store" of this epoch, and the
 * key stays dirty, so that the next epoch holds its pending image.
 *
 * Owner: the owner loop, at a batch boundary, after the step of the last planned batch. Does not:
 * encode, write or sync. */
#include "gate.h"
#include "sweep.h"
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "store/section.h"

enum { LOOK_AHEAD = 16, CARRIED_MIN = 64 };

struct cut_item {
    uint64_t hash;
    int64_t seen_ms; /* pending */
    uint8_t *to;     /* in the stage */
    union {
        uint32_t number; /* of a live entry */
        uint32_t count;  /* pending */
    };
    uint8_t kind, reason;
    bool carried;
};

struct cut_range {
    size_t begin, n;
};

struct fr_cut {
    const struct fr_store *store;
    uint64_t epoch, folded;
    struct cut_item *items;
    size_t capacity;
    struct cut_range *ranges; /* [n_tables * FR_SHARDS] */
    struct fr_carried_key *carried;
    size_t n_carried, capacity_carried;
};

struct fr_cut *fr_cut_new(const struct fr_store *store)
{
    struct fr_cut *cut = fr_alloc(1, sizeof(*cut));
    cut->store = store;
    cut->ranges = fr_alloc((size_t)store->n_tables * FR_SHARDS, sizeof(*cut->ranges));
    return cut;
}

void fr_cut_free(struct fr_cut *cut)
{
    if (!cut)
        return;
    free(cut->items);
    free(cut->ranges);
    free(cut->carried);
    free(cut);
}

size_t fr_cut_bytes(const struct fr_cut *cut)
{
    return cut->capacity * sizeof(*cut->items) + cut->capacity_carried * sizeof(*cut->carried);
}

/* What the epoch says about an entry; settles its flags for the next epoch. The caller buries dead
 * entries and marks carried ones. */
static struct cut_item settle_entry(struct fr_shard *shard, uint32_t number, uint64_t epoch)
{
    struct fr_entry *entry = fr_shard_entry(shard, number);
    struct cut_item item = {.hash = entry->hash};
    uint8_t gone = entry->flags & FR_ENTRY_PUBLISHED ? entry->reason : FR_ABSENT_SILENT;
    switch (entry->state) {
    case FR_ENTRY_LIVE:
        item.kind = FR_IMAGE_ROW;
        item.number = number;
        entry->flags = FR_ENTRY_IN_EPOCH | FR_ENTRY_PUBLISHED;
        break;
    case FR_ENTRY_PENDING:
        item.carried = gone != FR_ABSENT_SILENT;
        item.kind = item.carried ? FR_IMAGE_ABSENT : FR_IMAGE_PENDING;
        item.reason = gone;
        item.seen_ms = fr_entries_light(&shard->entries, number)->seen_ms;
        item.count = fr_entries_light(&shard->entries, number)->count;
        entry->flags = FR_ENTRY_IN_EPOCH;
        break;
    default:
        item.kind = FR_IMAGE_ABSENT;
        item.reason = gone;
        entry->flags = FR_ENTRY_BURIED;
        break;
    }
    entry->reason = FR_ABSENT_SILENT;
    entry->changed = (uint32_t)epoch;
    return item;
}

static void settle_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_cut *cut = context;
    struct fr_shard *shard = &cut->store->tables[index / FR_SHARDS].shards[index % FR_SHARDS];
    struct cut_range *range = &cut->ranges[index];
    range->n = 0;
    size_t n_dirty = shard->n_dirty;
    shard->n_dirty = 0; /* carried keys are listed anew, in places already read */
    shard->dirty_bytes = 0;
    for (size_t i = 0; i < n_dirty; i++) {
        if (n_dirty - i > 2 * LOOK_AHEAD)
            fr_index_prefetch(&shard->index, shard->dirty[i + 2 * LOOK_AHEAD]);
        if (n_dirty - i > LOOK_AHEAD)
            fr_index_prefetch_entry(&shard->index, &shard->entries, shard->dirty[i + LOOK_AHEAD]);
        uint32_t number = fr_shard_find(shard, shard->dirty[i]);
        /* Gone without ever being in an epoch; or listed twice because it came back after that. */
        if (number == FR_NO_ENTRY || !(fr_shard_entry(shard, number)->flags & FR_ENTRY_DIRTY))
            continue;
        struct cut_item item = settle_entry(shard, number, cut->epoch);
        if (item.carried)
            fr_entry_mark_dirty(shard, fr_shard_entry(shard, number), FR_PENDING_IMAGE_SIZE);
        else if (item.kind == FR_IMAGE_ABSENT)
            fr_entry_bury(shard, item.hash, cut->epoch);
        cut->items[range->begin + range->n++] = item;
    }
}

static void copy_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct fr_cut *cut = context;
    const struct fr_table *table = &cut->store->tables[index / FR_SHARDS];
    struct fr_shard *shard = &table->shards[index % FR_SHARDS];
    const struct cut_item *items = cut->items + cut->ranges[index].begin;
    for (size_t i = 0; i < cut->ranges[index].n; i++) {
        uint8_t *to = items[i].to;
        if (items[i].kind == FR_IMAGE_ROW) {
            memcpy(to, &fr_entries_live(&shard->entries, items[i].number)->head, FR_ROW_IMAGE_HEAD);
            memcpy(to + FR_ROW_IMAGE_HEAD, fr_entries_row(&shard->entries, items[i].number), table->row_bytes);
        } else if (items[i].kind == FR_IMAGE_PENDING) {
            fr_pending_store(to, items[i].seen_ms, items[i].count);
        }
    }
    fr_shard_exhume(table, shard, cut->folded);
}

static uint32_t image_size(const struct fr_table *table, uint8_t kind)
{
    if (kind == FR_IMAGE_ROW)
        return (uint32_t)table->image_size;
    return kind == FR_IMAGE_PENDING ? FR_PENDING_IMAGE_SIZE : 0;
}

static void carry(struct fr_cut *cut, uint32_t table, uint64_t key, const struct cut_item *item)
{
    if (cut->n_carried == cut->capacity_carried) {
        cut->capacity_carried = cut->capacity_carried ? 2 * cut->capacity_carried : CARRIED_MIN;
        cut->carried = fr_realloc(cut->carried, cut->capacity_carried, sizeof(*cut->carried));
    }
    cut->carried[cut->n_carried++] =
        (struct fr_carried_key){.table = table, .key = key, .seen_ms = item->seen_ms, .count = item->count};
}

static int compare_carried(const void *a, const void *b)
{
    const struct fr_carried_key *x = a, *y = b;
    if (x->table != y->table)
        return x->table < y->table ? -1 : 1;
    return (x->key > y->key) - (x->key < y->key);
}

static void take_room(struct fr_cut *cut, struct fr_stage *stage)
{
    for (uint32_t t = 0; t < cut->store->n_tables; t++) {
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            const struct cut_range *range = &cut->ranges[(size_t)t * FR_SHARDS + s];
            for (size_t i = range->begin; i < range->begin + range->n; i++) {
                struct cut_item *item = &cut->items[i];
                struct fr_image image = {.key = fr_order_key(&cut->store->order, item->hash),
                                         .table = t,
                                         .size = image_size(&cut->store->tables[t], item->kind),
                                         .kind = item->kind,
                                         .reason = item->reason};
                item->to = fr_stage_image(stage, &image);
                if (item->carried)
                    carry(cut, t, image.key, item);
            }
        }
    }
}

static void stage_section(const struct fr_store *store, struct fr_stage *stage)
{
    struct fr_store_section section = {
        .n_tables = store->n_tables, .n_carried = store->cut->n_carried, .carried = store->cut->carried};
    for (uint32_t t = 0; t < store->n_tables; t++) {
        section.tables[t].counts = fr_table_counts(&store->tables[t]);
        section.tables[t].slice_bits = store->tables[t].slice_bits;
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            section.tables[t].rows[s] = store->tables[t].shards[s].counts.rows;
            section.tables[t].pending[s] = store->tables[t].shards[s].counts.pending;
        }
    }
    fr_store_section_encode(&section, fr_stage_section(stage, FR_SECTION_STORE));
}

void fr_store_cut(struct fr_store *store, struct fr_stage *stage)
{
    struct fr_cut *cut = store->cut;
    store->undoable = false;
    /* What goes in this epoch may be forgotten before the batch that was looked at comes. */
    store->looked = NULL;
    FR_CHECK(stage->epoch <= UINT32_MAX); /* 13 years of ten cuts a second */
    cut->epoch = stage->epoch;
    cut->folded = fr_store_folded(store);
    size_t n_shards = (size_t)store->n_tables * FR_SHARDS, total = 0;
    for (size_t i = 0; i < n_shards; i++) {
        cut->ranges[i].begin = total;
        total += store->tables[i / FR_SHARDS].shards[i % FR_SHARDS].n_dirty;
    }
    if (total > cut->capacity) {
        free(cut->items);
        cut->capacity = total + total / 2;
        cut->items = fr_alloc(cut->capacity, sizeof(*cut->items));
    }
    fr_pool_run(store->pool, n_shards, settle_shard, cut);
    cut->n_carried = 0;
    take_room(cut, stage);
    /* change order depends on the index's layout, the section's bytes must not */
    if (cut->n_carried > 0)
        qsort(cut->carried, cut->n_carried, sizeof(*cut->carried), compare_carried);
    fr_pool_run(store->pool, n_shards, copy_shard, cut);
    fr_admission_cut(store, stage);
    stage_section(store, stage);
    fr_sweep_cut(store, stage);
}
