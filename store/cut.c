/* The cut: the image of every key that changed since the last cut, and the section "store".
 *
 * One pass over the shards. Each shard sorts the hashes of its dirty keys, determines in that order
 * what each image is, updates the entries' flags, and writes the images one after the other, as the
 * epoch has them, into a part of the stage's record. The part has room for the most that the
 * shard's images can take. Then the owner moves the parts together. So the images are in their
 * final order and place before anything is encoded, and do not depend on the order of changes. In
 * hash order, the keys also go through the index group by group; entries and rows are scattered in
 * memory and are prefetched. The cost is proportional to the dirty keys, mostly cache misses on
 * entries and rows (`freshet-bench epochs`). Changed blocks of sketches follow (gate.c), and the
 * section "expiry" if a slice has run (expiry_section.c).
 *
 * One image per key and epoch is not enough in one case: a published row expired, and the key came
 * back but has not passed the gate again. Followers need the tombstone, recovery needs the count.
 * The image is then the tombstone; the count is carried in the section "store" of this epoch, and
 * the key stays dirty, so the next epoch holds its pending image.
 *
 * Owner: the owner loop, between batches, after the step of the last planned batch. Writing to disk
 * and syncing is the durable thread's work. */
#include "gate.h"
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/radix.h"
#include "store/section.h"

enum { GROUP_AHEAD = 40, ENTRY_AHEAD = 28, ROW_AHEAD = 12, CARRIED_MIN = 64, EXHUMED_MIN = 1024 };

struct cut_item {
    int64_t seen_ms; /* valid for a pending key */
    uint32_t count;  /* valid for a pending key */
    uint8_t kind, reason;
    bool carried;
};

/* The scratch of one shard. */
struct cut_range {
    uint64_t *spare;                /* room for its dirty keys, for sorting */
    uint8_t *begin, *end;           /* the images written so far */
    size_t n;                       /* number of images */
    struct fr_carried_key *carried; /* memory is kept between cuts */
    size_t n_carried, capacity_carried;
};

struct fr_cut {
    const struct fr_store *store;
    uint64_t epoch, forgettable;
    uint64_t *spare; /* [capacity], shared by all shards */
    size_t capacity;
    struct cut_range *ranges; /* [n_tables * FR_SHARDS] */
    struct fr_carried_key *carried;
    size_t n_carried, capacity_carried;
    struct fr_store_section_table *tables; /* [n_configured], for a section */
};

struct fr_cut *fr_cut_new(const struct fr_store *store)
{
    struct fr_cut *cut = fr_alloc(1, sizeof(*cut));
    cut->store = store;
    cut->ranges = fr_alloc((size_t)store->n_tables * FR_SHARDS, sizeof(*cut->ranges));
    cut->tables = fr_alloc(store->n_configured, sizeof(*cut->tables));
    return cut;
}

void fr_cut_free(struct fr_cut *cut)
{
    if (!cut)
        return;
    for (size_t i = 0; i < (size_t)cut->store->n_tables * FR_SHARDS; i++)
        free(cut->ranges[i].carried);
    free(cut->spare);
    free(cut->ranges);
    free(cut->carried);
    free(cut->tables);
    free(cut);
}

size_t fr_cut_bytes(const struct fr_cut *cut)
{
    size_t carried = cut->capacity_carried;
    for (size_t i = 0; i < (size_t)cut->store->n_tables * FR_SHARDS; i++)
        carried += cut->ranges[i].capacity_carried;
    return cut->capacity * sizeof(*cut->spare) + carried * sizeof(*cut->carried);
}

/* Determines what the epoch holds of an entry, and updates the entry's flags for the next epoch.
 * The caller buries dead entries and marks carried ones. */
static struct cut_item cut_entry(struct fr_shard *shard, uint32_t number, uint64_t epoch)
{
    struct fr_entry *entry = fr_shard_entry(shard, number);
    struct cut_item item = {.kind = FR_IMAGE_ROW};
    uint8_t gone = entry->flags & FR_ENTRY_PUBLISHED ? entry->reason : FR_ABSENT_SILENT;
    switch (entry->state) {
    case FR_ENTRY_LIVE:
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

/* Returns the shard's dirty keys in hash order, in the memory of the dirty list, which is empty
 * from now on. A key listed during the cut overwrites a key that was already cut. */
static const uint64_t *sort_dirty(struct fr_shard *shard, const struct cut_range *range, size_t *n)
{
    FR_CHECK(shard->n_dirty <= UINT32_MAX);
    *n = shard->n_dirty;
    fr_radix_sort(shard->dirty, range->spare, (uint32_t)*n);
    shard->n_dirty = 0;
    shard->dirty_bytes = 0;
    return shard->dirty;
}

static void add_carried(struct fr_carried_key **keys, size_t *n, size_t *capacity, const struct fr_carried_key *key)
{
    if (*n == *capacity) {
        *capacity = *capacity ? 2 * *capacity : CARRIED_MIN;
        *keys = fr_realloc(*keys, *capacity, sizeof(**keys));
    }
    (*keys)[(*n)++] = *key;
}

static void prefetch_row(const struct fr_table *table, const struct fr_shard *shard, uint32_t number)
{
    if (number == FR_NO_ENTRY || (number & FR_LIGHT))
        return;
    const uint8_t *image = fr_entries_image(&shard->entries, number);
    for (size_t at = 0; at < table->image_size + FR_LINE; at += FR_LINE)
        __builtin_prefetch(image + (at < table->image_size ? at : table->image_size - 1));
}

/* Appends the image to those of the shard. */
static void put_image(const struct fr_table *table, const struct fr_shard *shard, uint32_t number,
                      const struct cut_item *item, const struct fr_image *head, struct cut_range *range)
{
    uint8_t *to = fr_image_put(range->end, head);
    if (item->kind == FR_IMAGE_ROW) {
        memcpy(to, fr_entries_image(&shard->entries, number), table->image_size);
    } else if (item->kind == FR_IMAGE_PENDING) {
        fr_pending_store(to, item->seen_ms, item->count);
    }
    range->end = to + head->size;
    range->n++;
}

static uint32_t image_size(const struct fr_table *table, uint8_t kind)
{
    if (kind == FR_IMAGE_ROW)
        return (uint32_t)table->image_size;
    return kind == FR_IMAGE_PENDING ? FR_PENDING_IMAGE_SIZE : 0;
}

static void cut_key(struct fr_cut *cut, size_t index, uint64_t hash, uint32_t number)
{
    const struct fr_table *table = &cut->store->tables[index / FR_SHARDS];
    struct fr_shard *shard = &table->shards[index % FR_SHARDS];
    struct cut_range *range = &cut->ranges[index];
    /* The key vanished without ever being in an epoch, or it came back after that and is listed
     * twice. */
    if (number == FR_NO_ENTRY || !(fr_shard_entry(shard, number)->flags & FR_ENTRY_DIRTY))
        return;
    struct cut_item item = cut_entry(shard, number, cut->epoch);
    struct fr_image head = {.key = fr_order_key(&cut->store->order, hash),
                            .table = table->number,
                            .size = image_size(table, item.kind),
                            .kind = item.kind,
                            .reason = item.reason};
    put_image(table, shard, number, &item, &head, range);
    if (item.carried) {
        fr_entry_mark_dirty(shard, fr_shard_entry(shard, number), FR_PENDING_IMAGE_SIZE);
        struct fr_carried_key key = {
            .table = head.table, .key = head.key, .seen_ms = item.seen_ms, .count = item.count};
        add_carried(&range->carried, &range->n_carried, &range->capacity_carried, &key);
    } else if (item.kind == FR_IMAGE_ABSENT) {
        fr_entry_bury(shard, hash, cut->epoch);
    }
}

static void cut_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_cut *cut = context;
    const struct fr_table *table = &cut->store->tables[index / FR_SHARDS];
    struct fr_shard *shard = &table->shards[index % FR_SHARDS];
    struct cut_range *range = &cut->ranges[index];
    uint32_t numbers[ROW_AHEAD]; /* valid until the last one is written: nothing moves before */
    size_t n;
    const uint64_t *hashes = sort_dirty(shard, range, &n);
    for (size_t i = 0; i < n + ROW_AHEAD; i++) {
        if (i + GROUP_AHEAD - ROW_AHEAD < n)
            fr_index_prefetch(&shard->index, hashes[i + GROUP_AHEAD - ROW_AHEAD]);
        if (i + ENTRY_AHEAD - ROW_AHEAD < n)
            fr_index_prefetch_entry(&shard->index, &shard->entries, hashes[i + ENTRY_AHEAD - ROW_AHEAD]);
        if (i >= ROW_AHEAD)
            cut_key(cut, index, hashes[i - ROW_AHEAD], numbers[i % ROW_AHEAD]);
        if (i < n) {
            numbers[i % ROW_AHEAD] = fr_shard_find(shard, hashes[i]);
            prefetch_row(table, shard, numbers[i % ROW_AHEAD]);
        }
    }
    /* A fold may have released millions of dead entries at once. They are dropped at a multiple of
     * the rate at which new ones can come. */
    fr_shard_exhume(table, shard, cut->forgettable, EXHUMED_MIN + 2 * n);
}

static int compare_carried(const void *a, const void *b)
{
    const struct fr_carried_key *x = a, *y = b;
    if (x->table != y->table)
        return x->table < y->table ? -1 : 1;
    return (x->key > y->key) - (x->key < y->key);
}

/* Stages the section of one domain. Returns how many of the carried keys are the domain's: they are
 * sorted by sub-table, so those of a domain are next to each other. */
static size_t stage_section(const struct fr_store *store, uint32_t domain, struct fr_carried_key *carried,
                            size_t n_carried, struct fr_stage *stage)
{
    char name[FR_SECTION_NAME_MAX];
    struct fr_store_section section = {
        .n_tables = store->n_configured, .tables = store->cut->tables, .carried = carried};
    while (section.n_carried < n_carried && fr_subtable_domain(carried[section.n_carried].table) == domain)
        section.n_carried++;
    for (uint32_t t = 0; t < store->n_configured; t++) {
        const struct fr_table *table = fr_store_subtable(store, t, domain);
        section.tables[t].counts = fr_table_counts(table);
        section.tables[t].slice_bits = table->slice_bits;
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            section.tables[t].rows[s] = table->shards[s].counts.rows;
            section.tables[t].pending[s] = table->shards[s].counts.pending;
        }
    }
    fr_store_section_name(FR_SECTION_STORE, domain, store->n_domains, name);
    fr_store_section_encode(&section, fr_stage_section(stage, name));
    return section.n_carried;
}

static void stage_sections(const struct fr_store *store, struct fr_stage *stage)
{
    const struct fr_cut *cut = store->cut;
    size_t done = 0;
    for (uint32_t d = 0; d < store->n_domains; d++)
        done += stage_section(store, d, cut->carried + done, cut->n_carried - done, stage);
}

/* The most that the images of one dirty key can take. */
static size_t image_room(const struct fr_table *table)
{
    return FR_IMAGE_HEAD + (table->image_size > FR_PENDING_IMAGE_SIZE ? table->image_size : FR_PENDING_IMAGE_SIZE);
}

/* Gives every shard its scratch and its part of the record. */
static uint8_t *reserve_room(struct fr_cut *cut, struct fr_stage *stage)
{
    const struct fr_store *store = cut->store;
    size_t n_shards = (size_t)store->n_tables * FR_SHARDS, total = 0, bytes = 0;
    for (size_t i = 0; i < n_shards; i++) {
        size_t n = store->tables[i / FR_SHARDS].shards[i % FR_SHARDS].n_dirty;
        total += n;
        bytes += n * image_room(&store->tables[i / FR_SHARDS]);
    }
    if (total > cut->capacity) {
        free(cut->spare);
        cut->capacity = total + total / 2;
        cut->spare = fr_alloc(cut->capacity, sizeof(*cut->spare));
    }
    uint8_t *begin = fr_stage_reserve(stage, bytes), *at = begin;
    uint64_t *spare = cut->spare;
    for (size_t i = 0; i < n_shards; i++) {
        size_t n = store->tables[i / FR_SHARDS].shards[i % FR_SHARDS].n_dirty;
        struct cut_range *range = &cut->ranges[i];
        range->spare = spare;
        range->begin = range->end = at;
        range->n = range->n_carried = 0;
        spare += n;
        at += n * image_room(&store->tables[i / FR_SHARDS]);
    }
    return begin;
}

/* Moves the shards' images together and collects the carried keys. */
static void join_parts(struct fr_cut *cut, uint8_t *begin, struct fr_stage *stage)
{
    uint8_t *end = begin;
    size_t n = 0;
    cut->n_carried = 0;
    for (size_t i = 0; i < (size_t)cut->store->n_tables * FR_SHARDS; i++) {
        const struct cut_range *range = &cut->ranges[i];
        size_t bytes = (size_t)(range->end - range->begin);
        if (end != range->begin && bytes > 0)
            memmove(end, range->begin, bytes);
        end += bytes;
        n += range->n;
        for (size_t c = 0; c < range->n_carried; c++)
            add_carried(&cut->carried, &cut->n_carried, &cut->capacity_carried, &range->carried[c]);
    }
    fr_stage_ordered(stage, n, (size_t)(end - begin),
                     cut->store->n_tables ? cut->store->tables[cut->store->n_tables - 1].number : 0);
    /* carried keys are sorted by table and key in the section of their domain */
    if (cut->n_carried > 0)
        qsort(cut->carried, cut->n_carried, sizeof(*cut->carried), compare_carried);
}

void fr_store_cut(struct fr_store *store, struct fr_stage *stage)
{
    struct fr_cut *cut = store->cut;
    store->undoable = 0;
    FR_CHECK(stage->epoch <= UINT32_MAX); /* enough for 13 years of ten cuts a second */
    cut->epoch = stage->epoch;
    cut->forgettable = fr_store_forgettable(store);
    uint8_t *begin = reserve_room(cut, stage);
    fr_pool_run(store->pool, (size_t)store->n_tables * FR_SHARDS, cut_shard, cut);
    join_parts(cut, begin, stage);
    fr_admission_cut(store, stage);
    stage_sections(store, stage);
    fr_expiry_cut(store, stage);
}
