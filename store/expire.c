/* Expiry slices. In `expire_every` batches (full batches of trained samples, as the trainer counts
 * them) a table examines about expire_slice_rows of its rows. It removes rows that a rule of expiry
 * names, and pending keys that the gate forgets. It does so in slices of 1/2^k of its keys, spread
 * over those batches; a large table has a slice at every batch. Removing a row moves another one
 * into its place, so no single batch should bear the removals that fall due in many.
 *
 * A slice is a range of hashes below the shard bits, the same in every shard: a range of index
 * groups. If a shard has keys in the cold store only, the slice includes the same range of the cold
 * store, read ahead if there was time (scan.h). So the cost is bounded by the slice, and all
 * workers share it. k follows the number of rows and pending keys, in memory or not, so that a
 * slice has at most one batch's share of expire_slice_rows. k grows when that is exceeded, shrinks
 * only at half of it, and changes between sweeps only (policy/sweep.h). k is saved in the section
 * "store", the number of the next slice in the section "expiry".
 *
 * A key of the cold store that goes becomes a dead entry of the open epoch; one that stays is not
 * brought into memory.
 *
 * Determinism: what goes is a function of k, the sweep's state, keys, salt, rows and watermark.
 * Neither the order within a slice nor the place of a key has an effect. Idle slices
 * (fr_store_slice_idle) depend on when they run; lockstep has none.
 *
 * Owner: the owner loop, either between batches, when no row is in use, or during the step of a
 * device, which has its own copy of the rows; in that case what goes is kept (removed.h). Rows
 * outside the slice are not touched, and the wall clock is not read. */
#include "removed.h"
#include "scan.h"
#include "tier.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { VICTIMS_MIN = 64, LOOK_AHEAD = 16 };

struct slice {
    struct fr_store *store;
    uint32_t n_tables; /* of store->due */
    int64_t watermark_ms;
};

struct slice_visit {
    struct fr_store *store;
    const struct fr_table *table;
    struct fr_shard *shard;
    uint32_t shard_number;
    int64_t watermark_ms;
    size_t n, capacity;
    struct slice_victim {
        struct fr_tier_victim key; /* key.kind is valid for a cold victim only */
        bool cold;
    } * victims; /* removed after the scan, because a removal moves entries */
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
    return spec->n_expiries > 0
               ? fr_sweep_judge(visit->table->sweep, visit->shard_number, hash, &facts, visit->watermark_ms)
               : FR_ABSENT_SILENT;
}

static bool judge_pending(const struct slice_visit *visit, int64_t seen_ms)
{
    const struct fr_gate_policy *gate = &visit->table->spec.gate;
    if (gate->memory != FR_GATE_ENTRIES)
        return true; /* left by a gate that the table had before: the count has no reader */
    return gate->forgets(gate->config, seen_ms, visit->watermark_ms);
}

/* Whether an entry goes, and the reason. */
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
        add_victim(visit, (struct slice_victim){
                              .key = {.hash = fr_shard_entry(visit->shard, number)->hash, .reason = reason}});
}

/* The same slice of the cold store. The image of a key that has an entry is ignored: it is older
 * than the entry, or the same. */
static void visit_cold(struct slice_visit *visit, const struct fr_scan_part *part)
{
    size_t floats = visit->table->spec.layout.value_floats;
    for (size_t i = 0; i < part->n; i++) {
        const struct fr_scan_image *image = &part->images[i];
        uint8_t reason = FR_ABSENT_SILENT;
        if (part->n - i > LOOK_AHEAD)
            fr_index_prefetch(&visit->shard->index, part->images[i + LOOK_AHEAD].hash);
        if (fr_shard_find(visit->shard, image->hash) != FR_NO_ENTRY)
            continue;
        if (image->kind == FR_IMAGE_ROW)
            reason = judge_row(visit, image->hash, &image->head, part->values ? part->values + i * floats : NULL);
        bool goes =
            image->kind == FR_IMAGE_ROW ? reason != FR_ABSENT_SILENT : judge_pending(visit, image->head.seen_ms);
        if (goes)
            add_victim(visit, (struct slice_victim){.key = {image->hash, image->kind, reason}, .cold = true});
    }
}

static void remove_victim(const struct slice_visit *visit, const struct slice_victim *victim)
{
    struct fr_shard *shard = visit->shard;
    const struct fr_tier_victim *key = &victim->key;
    if (key->reason == FR_ABSENT_SILENT)
        shard->counts.forgotten++;
    else
        shard->counts.expired[key->reason]++;
    uint32_t number = victim->cold ? FR_NO_ENTRY : fr_shard_find(shard, key->hash);
    fr_removed_keep(visit->store, visit->table, visit->shard_number, key->hash, number);
    if (victim->cold)
        fr_tier_remove(visit->store, shard, key);
    else
        fr_entry_remove(shard, number, key->reason);
}

/* Prefetches what the removal of a later victim touches: its entry and row, and the index group of
 * the entry that will then be the last and move into its place. */
static void prefetch_removal(const struct slice_visit *visit, size_t i)
{
    const struct fr_shard *shard = visit->shard;
    const struct fr_entries *entries = &shard->entries;
    if (visit->n - i > 2 * LOOK_AHEAD && !visit->victims[i + 2 * LOOK_AHEAD].cold)
        fr_index_prefetch_entry(&shard->index, entries, visit->victims[i + 2 * LOOK_AHEAD].key.hash);
    if (entries->live.n > 2 * LOOK_AHEAD)
        fr_index_prefetch(&shard->index, fr_entries_live(entries, entries->live.n - 2 * LOOK_AHEAD)->entry.hash);
    if (visit->n - i <= LOOK_AHEAD || visit->victims[i + LOOK_AHEAD].cold)
        return;
    uint32_t number = fr_shard_find(shard, visit->victims[i + LOOK_AHEAD].key.hash);
    if (number & FR_LIGHT)
        return;
    const uint8_t *live = (const uint8_t *)fr_entries_live(entries, number);
    __builtin_prefetch(live, 1);
    __builtin_prefetch(live + entries->live.stride - 1, 1);
}

static void slice_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct slice *slice = context;
    const struct fr_due_slice *due = &slice->store->due[index / FR_SHARDS];
    struct fr_shard *shard = &due->table->shards[index % FR_SHARDS];
    struct slice_visit visit = {.store = slice->store,
                                .table = due->table,
                                .shard = shard,
                                .shard_number = (uint32_t)(index % FR_SHARDS),
                                .watermark_ms = slice->watermark_ms};
    fr_index_scan(&shard->index, &shard->entries, due->table->slice_bits, due->slice, visit_entry, &visit);
    if (shard->evicted > 0)
        visit_cold(&visit, fr_scan_take(slice->store, (uint32_t)(due->table - slice->store->tables), visit.shard_number,
                                        due->table->slice_bits, due->slice));
    for (size_t i = 0; i < visit.n; i++) {
        prefetch_removal(&visit, i);
        remove_victim(&visit, &visit.victims[i]);
    }
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

/* Runs the due slices of the listed tables. */
static void run_slices(struct slice *slice)
{
    struct fr_store *store = slice->store;
    /* Under the lock, parts that are being read ahead are complete and do not change. */
    pthread_mutex_lock(&store->scan_lock);
    for (uint32_t i = 0; i < slice->n_tables; i++)
        if (!store->due[i].table->scan)
            fr_scan_expect(store->due[i].table, 0, 0);
    fr_pool_run(store->pool, (size_t)slice->n_tables * FR_SHARDS, slice_shard, slice);
    for (uint32_t i = 0; i < slice->n_tables; i++) {
        struct fr_table *table = store->due[i].table;
        fr_sweep_end_slice(table->sweep, table->slice_bits, fr_table_counts(table).rows);
        fr_scan_expect(table, table->slice_bits, table->sweep->next);
    }
    pthread_mutex_unlock(&store->scan_lock);
}

/* The approximate number of rows that a slice examines. */
static uint32_t slice_rows(const struct fr_store_table *spec)
{
    return spec->expire_slice_rows > spec->expire_every ? spec->expire_slice_rows / spec->expire_every : 1;
}

/* Batches from one slice to the next. A table with few slices has run all of them after
 * expire_every batches. */
static uint64_t turns_between(const struct fr_table *table)
{
    uint64_t turns = table->spec.expire_every >> table->slice_bits;
    return turns > 0 ? turns : 1;
}

/* Whether the table has anything that may go. */
static bool has_mortals(const struct fr_table *table)
{
    struct fr_store_counts counts = fr_table_counts(table);
    return counts.pending > 0 || (counts.rows > 0 && table->spec.n_expiries > 0);
}

static bool is_due(const struct fr_table *table, uint64_t batch_number)
{
    return batch_number % turns_between(table) == 0 && has_mortals(table);
}

static void add_slice(struct slice *slice, struct fr_table *table)
{
    struct fr_store_counts counts = fr_table_counts(table);
    if (!has_mortals(table))
        return;
    fr_removed_note_table(slice->store, table);
    uint32_t bits = next_slice_bits(table->slice_bits, counts.rows + counts.pending, slice_rows(&table->spec));
    uint64_t number = fr_sweep_begin_slice(table->sweep, &table->slice_bits, bits, counts.rows, slice->watermark_ms);
    slice->store->due[slice->n_tables++] = (struct fr_due_slice){.table = table, .slice = number};
}

static void slice_due(struct fr_store *store, uint64_t batch_number, int64_t watermark_ms)
{
    struct slice slice = {.store = store, .watermark_ms = watermark_ms};
    for (uint32_t t = 0; t < store->n_tables; t++)
        if (is_due(&store->tables[t], batch_number))
            add_slice(&slice, &store->tables[t]);
    if (slice.n_tables > 0)
        run_slices(&slice);
}

void fr_store_slice(struct fr_store *store, uint64_t batch_number, int64_t watermark_ms)
{
    if (fr_store_slice_due(store, batch_number))
        store->undoable = 0;
    slice_due(store, batch_number, watermark_ms);
}

void fr_store_slices_beside(struct fr_store *store, uint64_t first, uint64_t last, int64_t watermark_ms)
{
    fr_removed_begin(store);
    for (uint64_t number = first; number <= last; number++)
        slice_due(store, number, watermark_ms);
    fr_removed_end(store);
}

bool fr_store_slice_due(const struct fr_store *store, uint64_t batch_number)
{
    for (uint32_t t = 0; t < store->n_tables; t++)
        if (is_due(&store->tables[t], batch_number))
            return true;
    return false;
}

bool fr_store_slice_idle(struct fr_store *store, int64_t watermark_ms)
{
    bool any = false;
    for (uint64_t round = 0;; round++) {
        struct slice slice = {.store = store, .watermark_ms = watermark_ms};
        for (uint32_t t = 0; t < store->n_tables; t++) {
            struct fr_table *table = &store->tables[t];
            if (table->sweep->swept_ms != watermark_ms && round < table->spec.expire_every / turns_between(table))
                add_slice(&slice, table);
        }
        if (slice.n_tables == 0)
            return any;
        store->undoable = 0;
        run_slices(&slice);
        any = true;
    }
}
