/* The index of the rows that the device has of each table, by key, and the look-up of all unique
 * keys of a batch on the pool.
 *
 * The index is open addressing with linear probing. A place holds all that a look-up reads or
 * writes, so finding a row costs one cache line, and the lines of the next keys are fetched
 * meanwhile.
 *
 * A table's unique keys are distinct, so tasks write places and elements of their own. Keys that
 * need more than a look-up are listed part by part, and the lists are joined in the order of the
 * keys. What the owner does with the list therefore does not depend on which worker looked up a
 * key.
 *
 * Owner thread: the graph's; a part of the keys belongs to one worker. How rows get to the
 * device is in device_rows.c. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

enum {
    INDEX_LOG2_MIN = 10,
    PART_KEYS = 2048, /* keys of one task */
    LOOK_AHEAD = 16,  /* keys between the prefetch and the look-up */
};

/* ---- the index ---- */

static uint32_t home_of(const struct row_cache *cache, uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> (64 - cache->log2_index));
}

static uint32_t mask_of(const struct row_cache *cache)
{
    return (uint32_t)(((uint64_t)1 << cache->log2_index) - 1);
}

struct row_place *fr_graph_device_find_row(const struct row_cache *cache, uint64_t key)
{
    if (!cache->index)
        return NULL;
    for (uint32_t at = home_of(cache, key); cache->index[at].number != 0; at = (at + 1) & mask_of(cache))
        if (cache->index[at].key == key)
            return &cache->index[at];
    return NULL;
}

static void put_place(struct row_cache *cache, struct row_place place)
{
    uint32_t at = home_of(cache, place.key);
    while (cache->index[at].number != 0)
        at = (at + 1) & mask_of(cache);
    cache->index[at] = place;
}

static void grow_index(struct row_cache *cache)
{
    struct row_place *before = cache->index;
    size_t n = before ? (size_t)1 << cache->log2_index : 0;
    cache->log2_index = before ? cache->log2_index + 1 : INDEX_LOG2_MIN;
    cache->index = fr_alloc((size_t)1 << cache->log2_index, sizeof(*cache->index));
    for (size_t i = 0; i < n; i++)
        if (before[i].number != 0)
            put_place(cache, before[i]);
    free(before);
}

void fr_graph_device_insert_row(struct row_cache *cache, uint64_t key, uint32_t number, uint32_t turn)
{
    if (!cache->index || 3 * (uint64_t)cache->n > (uint64_t)2 << cache->log2_index)
        grow_index(cache);
    cache->keys[number] = key;
    cache->dirty[number] = false;
    put_place(cache, (struct row_place){.key = key, .number = number + 1, .turn = turn});
}

/* Entries after the erased one move towards their places, so that no search ends too early. */
void fr_graph_device_erase_row(struct row_cache *cache, uint64_t key)
{
    uint32_t mask = mask_of(cache), hole = (uint32_t)(fr_graph_device_find_row(cache, key) - cache->index);
    for (uint32_t at = (hole + 1) & mask; cache->index[at].number != 0; at = (at + 1) & mask) {
        uint32_t home = home_of(cache, cache->index[at].key);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        cache->index[hole] = cache->index[at];
        hole = at;
    }
    cache->index[hole].number = 0;
}

/* ---- parts of the keys ---- */

/* What tasks read. Tasks write the arrival's plans and the places of its keys. */
struct key_run {
    const struct fr_graph *graph;
    struct arrival *arrival;
    const struct fr_rows *rows;
};

/* The keys of a task, all of one table. */
struct key_part {
    uint32_t table, begin, end;
};

static void reserve(struct device_plan *plan, uint32_t n)
{
    if (n <= plan->capacity)
        return;
    plan->capacity = n + n / 2;
    plan->numbers = fr_realloc(plan->numbers, plan->capacity, sizeof(*plan->numbers));
    plan->rows = fr_realloc(plan->rows, plan->capacity, sizeof(*plan->rows));
    plan->served = fr_realloc(plan->served, plan->capacity, sizeof(*plan->served));
    plan->listed.of = fr_realloc(plan->listed.of, plan->capacity, sizeof(*plan->listed.of));
    plan->longs.of = fr_realloc(plan->longs.of, plan->capacity, sizeof(*plan->longs.of));
    size_t parts = fr_blocks_of(plan->capacity, PART_KEYS);
    plan->listed.counts = fr_realloc(plan->listed.counts, parts, sizeof(*plan->listed.counts));
    plan->longs.counts = fr_realloc(plan->longs.counts, parts, sizeof(*plan->longs.counts));
}

/* Numbers the parts of all tables consecutively; returns how many there are. */
static uint32_t divide(struct key_run *run)
{
    uint32_t parts = 0;
    for (uint32_t t = 0; t < run->graph->conf->n_tables; t++) {
        run->arrival->plans[t].first_part = parts;
        parts += fr_blocks_of(run->rows->tables[t].n_unique, PART_KEYS);
    }
    return parts;
}

static struct key_part part_of(const struct key_run *run, size_t index)
{
    uint32_t t = run->graph->conf->n_tables - 1;
    while (run->arrival->plans[t].first_part > index)
        t--;
    uint32_t begin = ((uint32_t)index - run->arrival->plans[t].first_part) * PART_KEYS;
    uint32_t n = run->rows->tables[t].n_unique;
    uint32_t end = begin + PART_KEYS;
    return (struct key_part){t, begin, end < n ? end : n};
}

/* Before the join, the entries of a part begin at the number of the part's first key. */
static void join(struct key_list *list, uint32_t n_keys)
{
    list->n = 0;
    for (uint32_t part = 0; part < fr_blocks_of(n_keys, PART_KEYS); part++) {
        memmove(list->of + list->n, list->of + (size_t)part * PART_KEYS, list->counts[part] * sizeof(*list->of));
        list->n += list->counts[part];
    }
}

/* ---- look-up ---- */

static void find_part(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct key_run *run = context;
    struct key_part part = part_of(run, index);
    const struct row_cache *cache = &run->graph->device->tables[part.table];
    const struct fr_table_rows *rows = &run->rows->tables[part.table];
    struct device_plan *plan = &run->arrival->plans[part.table];
    uint32_t n_listed = 0, n_long = 0;
    for (uint32_t u = part.begin; u < part.end; u++) {
        if (u + LOOK_AHEAD < part.end && cache->index)
            __builtin_prefetch(&cache->index[home_of(cache, rows->keys[u + LOOK_AHEAD])], 1);
        struct row_place *place = rows->rows[u] ? fr_graph_device_find_row(cache, rows->keys[u]) : NULL;
        plan->numbers[u] = place ? (uint32_t)place->number - 1 : FR_NO_ROW;
        if (place)
            place->turn = run->arrival->turn;
        if (rows->rows[u] && (!place || place->first || fr_graph_device_is_made(rows, u)))
            plan->listed.of[part.begin + n_listed++] = u;
        if (rows->occ_begin[u + 1] - rows->occ_begin[u] > FR_OCCURRENCE_BLOCK)
            plan->longs.of[part.begin + n_long++] = u;
        fr_graph_device_set_address(cache, plan, rows, u);
    }
    plan->listed.counts[part.begin / PART_KEYS] = n_listed;
    plan->longs.counts[part.begin / PART_KEYS] = n_long;
}

void fr_graph_device_find_keys(const struct fr_graph *graph, struct arrival *arrival, const struct fr_rows *rows)
{
    struct key_run run = {graph, arrival, rows};
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        reserve(&arrival->plans[t], rows->tables[t].n_unique);
    fr_graph_run_tasks(graph, divide(&run), find_part, &run);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        join(&arrival->plans[t].listed, rows->tables[t].n_unique);
        join(&arrival->plans[t].longs, rows->tables[t].n_unique);
    }
}

/* ---- rows that a step changed ---- */

/* Lists the numbers of rows that were not marked as changed before. */
static void mark_part(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct key_run *run = context;
    struct key_part part = part_of(run, index);
    struct device_plan *plan = &run->arrival->plans[part.table];
    bool *dirty = run->graph->device->tables[part.table].dirty;
    uint32_t n = 0;
    for (uint32_t u = part.begin; u < part.end; u++) {
        uint32_t number = plan->numbers[u];
        if (number == FR_NO_ROW || dirty[number])
            continue;
        dirty[number] = true;
        plan->listed.of[part.begin + n++] = number;
    }
    plan->listed.counts[part.begin / PART_KEYS] = n;
}

void fr_graph_device_mark_rows(const struct fr_graph *graph, struct arrival *arrival, const struct fr_rows *rows)
{
    struct key_run run = {graph, arrival, rows};
    fr_graph_run_tasks(graph, divide(&run), mark_part, &run);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        struct row_cache *cache = &graph->device->tables[t];
        struct key_list *marked = &arrival->plans[t].listed;
        join(marked, rows->tables[t].n_unique);
        size_t n = cache->n_changed + marked->n;
        if (n > cache->capacity_changed) {
            cache->capacity_changed = n + n / 2;
            cache->changed = fr_realloc(cache->changed, cache->capacity_changed, sizeof(*cache->changed));
        }
        if (marked->n > 0)
            memcpy(cache->changed + cache->n_changed, marked->of, marked->n * sizeof(*marked->of));
        cache->n_changed = n;
    }
}
