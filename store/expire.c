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
#include "tables.h"

#include "base/check.h"

enum { LOOK_AHEAD = 32 }; /* entries whose row tails are on their way into the cache */

struct slice_table {
    struct fr_table *table;
    uint64_t slice;
};

struct slice {
    uint32_t n_tables;
    struct slice_table tables[FR_TABLES_MAX];
    int64_t watermark_ms;
};

struct slice_visit {
    const struct fr_table *table;
    struct fr_shard *shard;
    int64_t watermark_ms;
    uint32_t n;
    struct fr_entry *ahead[LOOK_AHEAD];
};

static void judge_entry(const struct slice_visit *visit, struct fr_entry *entry)
{
    const struct fr_store_table *spec = &visit->table->spec;
    if (entry->state == FR_ENTRY_LIVE) {
        if (!spec->expires)
            return;
        const struct fr_row_head *tail = fr_row_tail(visit->table, entry->row);
        struct fr_row_facts facts = {.seen_ms = tail->seen_ms, .show = tail->show, .click = tail->click};
        if (!spec->expiry.expires(spec->expiry.config, &facts, visit->watermark_ms))
            return;
        visit->shard->counts.expired[spec->expiry.reason]++;
        fr_entry_remove(visit->shard, entry, spec->expiry.reason);
    } else if (entry->state == FR_ENTRY_PENDING) {
        if (!spec->gate.forgets(spec->gate.config, entry->seen_ms, visit->watermark_ms))
            return;
        visit->shard->counts.forgotten++;
        fr_entry_remove(visit->shard, entry, FR_ABSENT_SILENT);
    }
}

/* Entries do not move while a slice runs, so judging them later is safe. */
static void judge_ahead(struct slice_visit *visit)
{
    for (uint32_t i = 0; i < visit->n; i++)
        judge_entry(visit, visit->ahead[i]);
    visit->n = 0;
}

static void visit_entry(void *self, struct fr_entry *entry)
{
    struct slice_visit *visit = self;
    if (entry->state == FR_ENTRY_LIVE)
        __builtin_prefetch(fr_row_tail(visit->table, entry->row));
    visit->ahead[visit->n++] = entry;
    if (visit->n == LOOK_AHEAD)
        judge_ahead(visit);
}

static void slice_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct slice *slice = context;
    const struct slice_table *due = &slice->tables[index / FR_SHARDS];
    struct slice_visit visit = {
        .table = due->table, .shard = &due->table->shards[index % FR_SHARDS], .watermark_ms = slice->watermark_ms};
    fr_index_scan(&visit.shard->index, due->table->slice_bits, due->slice, visit_entry, &visit);
    judge_ahead(&visit);
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
    struct slice slice = {.watermark_ms = watermark_ms};
    store->undoable = false;
    for (uint32_t t = 0; t < store->n_tables; t++) {
        struct fr_table *table = &store->tables[t];
        if (batch_number % table->spec.expire_every != 0)
            continue;
        struct fr_store_counts counts = fr_table_counts(table);
        table->slice_bits =
            next_slice_bits(table->slice_bits, counts.rows + counts.pending, table->spec.expire_slice_rows);
        if (counts.pending == 0 && (counts.rows == 0 || !table->spec.expires))
            continue;
        uint64_t turn = batch_number / table->spec.expire_every;
        uint64_t mask = ((uint64_t)1 << table->slice_bits) - 1;
        slice.tables[slice.n_tables++] = (struct slice_table){.table = table, .slice = turn & mask};
    }
    fr_pool_run(store->pool, (size_t)slice.n_tables * FR_SHARDS, slice_shard, &slice);
}
