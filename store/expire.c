/* Expiry slices: every `expire_every` turns (full batches of trained samples, the trainer's count)
 * a table looks at 1/2^k of its keys, and lets go of rows the expiry policy names and of pending
 * keys the gate forgets.
 *
 * A slice is a range of hashes below the shard bits, the same in every shard: a range of index
 * groups, so its cost is bounded by the slice and all workers share it. k follows the number of
 * entries, so that about expire_slice_rows are looked at; it grows when that is exceeded and
 * shrinks only at half, so that a table at a border does not flip between two divisions and leave
 * keys unseen. k is state (section "store").
 *
 * Determinism: what goes is a function of (k, batch number, keys, seen, watermark). Order within a
 * slice has no effect.
 *
 * Owner: the owner loop, between batches: no row is in flight. It does not touch rows outside the
 * slice, or ask the wall clock. */
#include "sweep.h"
#include "tier.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { VICTIMS_MIN = 64 };

struct slice_table {
    struct fr_table *table;
    uint64_t slice;
};

struct slice {
    struct fr_store *store;
    uint32_t n_tables;
    struct slice_table tables[FR_TABLES_MAX];
    int64_t watermark_ms;
};

struct slice_visit {
    struct fr_store *store;
    const struct fr_table *table;
    struct fr_shard *shard;
    uint32_t shard_number;
    int64_t watermark_ms;
    float *values; /* of a cold row: images have no alignment */
    size_t n, capacity;
    struct slice_victim {
        uint64_t hash;
        uint8_t reason;
        uint8_t kind; /* of an image in the cold store */
        bool cold;
    } * victims; /* removed after the scan, because entries move then */
};

static uint8_t judge_row(const struct slice_visit *visit, uint64_t hash, const struct fr_row_head *head,
                         const float *values)
{
    const struct fr_store_table *spec = &visit->table->spec;
    struct fr_row_facts facts = {.seen_ms = head->seen_ms,
                                 .show = head->show,
                                 .click = head->click,
                                 .values = values,
                                 .n_values = spec->layout.value_floats};
    return spec->n_expiries > 0 ? fr_sweep_judge(visit->table, visit->shard_number, hash, &facts, visit->watermark_ms)
                                : FR_ABSENT_SILENT;
}

static bool judge_pending(const struct slice_visit *visit, int64_t seen_ms)
{
    const struct fr_gate_policy *gate = &visit->table->spec.gate;
    return gate->memory == FR_GATE_ENTRIES && gate->forgets(gate->config, seen_ms, visit->watermark_ms);
}

/* Says whether an entry goes, and why. */
static bool judge(const struct slice_visit *visit, uint32_t number, uint8_t *reason)
{
    const struct fr_entries *entries = &visit->shard->entries;
    const struct fr_entry *entry = fr_shard_entry(visit->shard, number);
    *reason = FR_ABSENT_SILENT;
    if (!(number & FR_LIGHT)) {
        *reason =
            judge_row(visit, entry->hash, &fr_entries_live(entries, number)->head, fr_entries_row(entries, number));
        return *reason != FR_ABSENT_SILENT;
    }
    return entry->state == FR_ENTRY_PENDING && judge_pending(visit, fr_entries_light(entries, number)->seen_ms);
}

static void add_victim(struct slice_visit *visit, struct slice_victim victim)
{
    if (visit->n == visit->capacity) {
        visit->capacity = visit->capacity ? 2 * visit->capacity : VICTIMS_MIN;
        visit->victims = fr_realloc(visit->victims, visit->capacity, sizeof(*visit->victims));
    }
    visit->victims[visit->n++] = victim;
}

static void visit_entry(void *self, uint32_t number)
{
    struct slice_visit *visit = self;
    uint8_t reason;
    if (judge(visit, number, &reason))
        add_victim(visit, (struct slice_victim){.hash = fr_shard_entry(visit->shard, number)->hash, .reason = reason});
}

/* An image of a key with an entry is an old one, or that entry's. */
static enum fr_status visit_cold(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    (void)index;
    struct slice_visit *visit = self;
    uint8_t reason = FR_ABSENT_SILENT;
    struct fr_row_head head;
    if (!fr_tier_fits(visit->table, image))
        return FR_E_CORRUPT;
    if (fr_shard_find(visit->shard, hash) != FR_NO_ENTRY)
        return FR_OK;
    if (image->kind == FR_IMAGE_ROW) {
        memcpy(&head, image->bytes, sizeof(head));
        memcpy(visit->values, image->bytes + FR_ROW_IMAGE_HEAD, visit->table->row_bytes);
        reason = judge_row(visit, hash, &head, visit->values);
        if (reason == FR_ABSENT_SILENT)
            return FR_OK;
    } else {
        int64_t seen_ms;
        uint32_t count;
        fr_pending_load(image->bytes, &seen_ms, &count);
        if (!judge_pending(visit, seen_ms))
            return FR_OK;
    }
    add_victim(visit, (struct slice_victim){.hash = hash, .reason = reason, .kind = image->kind, .cold = true});
    return FR_OK;
}

/* The same slice of the cold store: a range of hashes. */
static void scan_cold(struct slice_visit *visit, uint32_t bits, uint64_t slice)
{
    struct fr_err err = {.status = FR_OK};
    struct fr_durable_reader reader = {visit, visit_cold};
    uint64_t width = (uint64_t)1 << (64 - FR_SHARD_BITS - bits);
    uint64_t first = ((uint64_t)visit->shard_number << (64 - FR_SHARD_BITS)) + slice * width;
    uint32_t t = (uint32_t)(visit->table - visit->store->tables);
    visit->values = fr_alloc(visit->table->spec.layout.row_floats, sizeof(float));
    if (fr_durable_scan(visit->store->durable, t, first, first + (width - 1), &reader, &err) != FR_OK)
        fr_tier_fail(visit->store, &err);
    free(visit->values);
}

static void remove_victim(struct fr_shard *shard, const struct slice_victim *victim)
{
    if (victim->reason == FR_ABSENT_SILENT)
        shard->counts.forgotten++;
    else
        shard->counts.expired[victim->reason]++;
    if (victim->cold)
        fr_tier_remove(shard, victim->hash, victim->kind, victim->reason);
    else
        fr_entry_remove(shard, fr_shard_find(shard, victim->hash), victim->reason);
}

static void slice_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct slice *slice = context;
    const struct slice_table *due = &slice->tables[index / FR_SHARDS];
    struct fr_shard *shard = &due->table->shards[index % FR_SHARDS];
    struct slice_visit visit = {.store = slice->store,
                                .table = due->table,
                                .shard = shard,
                                .shard_number = (uint32_t)(index % FR_SHARDS),
                                .watermark_ms = slice->watermark_ms};
    fr_index_scan(&shard->index, &shard->entries, due->table->slice_bits, due->slice, visit_entry, &visit);
    if (shard->evicted > 0)
        scan_cold(&visit, due->table->slice_bits, due->slice);
    for (size_t i = 0; i < visit.n; i++)
        remove_victim(shard, &visit.victims[i]);
    if (visit.n > 0)
        fr_shard_trim(shard);
    free(visit.victims);
}

static uint32_t next_slice_bits(uint32_t bits, uint64_t entries, uint32_t slice_rows)
{
    while (bits < FR_INDEX_SLICE_BITS_MAX && entries >> bits > slice_rows)
        bits++;
    while (bits > 0 && entries >> (bits - 1) <= slice_rows / 2)
        bits--;
    return bits;
}

void fr_store_slice(struct fr_store *store, uint64_t batch_number, int64_t watermark_ms)
{
    struct slice slice = {.store = store, .watermark_ms = watermark_ms};
    store->undoable = false;
    for (uint32_t t = 0; t < store->n_tables; t++) {
        struct fr_table *table = &store->tables[t];
        if (batch_number % table->spec.expire_every != 0)
            continue;
        struct fr_store_counts counts = fr_table_counts(table);
        if (counts.pending == 0 && (counts.rows == 0 || table->spec.n_expiries == 0))
            continue;
        uint32_t bits = next_slice_bits(table->slice_bits, counts.rows + counts.pending, table->spec.expire_slice_rows);
        uint64_t number = fr_sweep_begin_slice(table, bits, watermark_ms);
        slice.tables[slice.n_tables++] = (struct slice_table){.table = table, .slice = number};
    }
    fr_pool_run(store->pool, (size_t)slice.n_tables * FR_SHARDS, slice_shard, &slice);
    for (uint32_t i = 0; i < slice.n_tables; i++)
        fr_sweep_end_slice(slice.tables[i].table);
}
