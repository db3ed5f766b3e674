/* The first half of a plan: finds the keys of a batch. It changes only the plan's scratch, so it
 * may run for the next batch while the rows of the current one are trained.
 *
 * There are two passes, each followed by a barrier, over the occurrences of all tables.
 *
 * scatter (by unit, which is a slot or a part of one): writes one record per occurrence. Within a
 * unit the records are grouped by shard, in the order of occurrences (stable counting sort).
 *
 * gather (by shard, from unit to unit): finds distinct keys in the order of first occurrence, with
 * the sums over their occurrences. If the look is ahead of the plan, the keys that are not in
 * memory are then read from the cold store (tier.c).
 *
 * Shared columns have one entry per group of samples. An occurrence in such a column counts once
 * per trained sample of the group and is resolved once. Entries, counters and dirty keys come out
 * as if every sample had its own occurrence: distinct keys have the same order of first occurrence
 * in both forms, and clicks are summed in double, where adding the labels of a group first makes no
 * difference.
 *
 * Thread: the owner loop with the pool; or one other thread alone, while no other thread calls the
 * store. Memory grows to the largest batch seen and stays, so later batches allocate nothing. */
#include "plan.h"
#include "tier.h"

#include <string.h>

#include "base/check.h"

enum { UNIT_OCCURRENCES = 8192 }; /* a slot with more occurrences is split */

/* ---- layout, scatter ---- */

static void read_clicks(struct fr_plan *plan)
{
    const struct fr_batch *batch = plan->batch;
    fr_plan_reserve_samples(plan, batch->n_samples);
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        float click = batch->n_labels > 0 ? batch->labels[i] : 0.0f;
        plan->clicks[i] = click > 0.0f ? (double)click : 0.0; /* 0 for a masked label (NaN) */
    }
}

static void sum_groups(struct fr_plan *plan)
{
    const struct fr_batch *batch = plan->batch;
    fr_plan_reserve_groups(plan, batch->n_groups);
    for (uint32_t g = 0; g < batch->n_groups; g++) {
        struct plan_group group = {0};
        for (uint32_t i = batch->group_begin[g]; i < batch->group_begin[g + 1]; i++) {
            if (batch->role[i] != FR_ROLE_TRAIN)
                continue;
            group.n_trained++;
            group.clicks += plan->clicks[i];
        }
        plan->groups[g] = group;
    }
}

/* Adds the table's next unit, whose records are in the order of its occurrences. */
static void add_unit(struct fr_plan *plan, struct plan_unit unit)
{
    const struct fr_column *column = &plan->batch->columns[unit.slot];
    struct plan_table *table = &plan->tables[plan->store->slots[unit.slot].table];
    uint32_t base = plan->slot_base[unit.slot], number = (uint32_t)plan->n_units;
    unit.ordinal = table->n_slots - 1;
    unit.next = PLAN_NO_UNIT;
    unit.at[0] = base + column->begin[unit.entry_begin];
    unit.at[FR_SHARDS] = base + column->begin[unit.entry_end];
    fr_plan_reserve_hashes(plan, unit.at[FR_SHARDS] - unit.at[0]);
    fr_plan_add_unit(plan, unit);
    if (table->first_unit == PLAN_NO_UNIT)
        table->first_unit = number;
    else
        plan->units[table->last_unit].next = number;
    table->last_unit = number;
}

static void lay_out(struct fr_plan *plan)
{
    const struct fr_store *store = plan->store;
    const struct fr_batch *batch = plan->batch;
    plan->n_units = 0;
    bool shared = false;
    for (uint32_t t = 0; t < store->n_tables; t++) {
        plan->tables[t].n_occurrences = plan->tables[t].n_slots = 0;
        plan->tables[t].first_unit = PLAN_NO_UNIT;
    }
    for (uint32_t s = 0; s < store->n_slots; s++) {
        plan->slot_base[s] = 0;
        if (store->slots[s].table == FR_NO_INDEX)
            continue;
        uint32_t n_entries = fr_batch_entries(batch, s);
        uint32_t n = n_entries ? batch->columns[s].begin[n_entries] : 0;
        struct plan_table *table = &plan->tables[store->slots[s].table];
        plan->slot_base[s] = table->n_occurrences;
        FR_CHECK(n <= UINT32_MAX - table->n_occurrences);
        table->n_occurrences += n;
        table->n_slots++;
        if (n == 0)
            continue;
        shared |= batch->columns[s].shared;
        uint32_t pieces = n / UNIT_OCCURRENCES + 1;
        uint32_t step = n_entries / pieces + 1;
        for (uint32_t i = 0; i < n_entries; i += step) {
            uint32_t end = n_entries - i < step ? n_entries : i + step;
            add_unit(plan, (struct plan_unit){.slot = s, .entry_begin = i, .entry_end = end});
        }
    }
    if (shared)
        sum_groups(plan);
    for (uint32_t t = 0; t < store->n_tables; t++)
        fr_plan_reserve_table(plan, t);
}

static uint32_t throw_coin(const struct fr_plan *plan, const struct fr_table *table, const struct fr_column *column,
                           uint32_t entry, uint64_t key)
{
    const uint32_t *groups = plan->batch->group_begin;
    uint32_t begin = column->shared ? groups[entry] : entry, end = column->shared ? groups[entry + 1] : entry + 1;
    return fr_admission_falls(plan->store, table, plan->batch, begin, end, key) ? OCC_FALLS : 0;
}

/* Hashes the unit's occurrences and gives each shard of the table its part of the unit's records.
 * at[shard] is where the next record of that shard goes. */
static void divide_unit(const struct fr_plan *plan, struct plan_unit *unit, uint64_t *hashes, uint32_t at[FR_SHARDS])
{
    const struct fr_column *column = &plan->batch->columns[unit->slot];
    const uint64_t *keys = column->keys + column->begin[unit->entry_begin];
    uint32_t n = unit->at[FR_SHARDS] - unit->at[0], counts[FR_SHARDS] = {0};
    for (uint32_t i = 0; i < n; i++) {
        hashes[i] = fr_order_hash(&plan->store->order, keys[i]);
        counts[fr_shard_of(hashes[i])]++;
    }
    for (uint32_t s = 0; s < FR_SHARDS; s++) {
        at[s] = unit->at[s];
        unit->at[s + 1] = unit->at[s] + counts[s];
    }
}

static void scatter_unit(void *context, size_t index, size_t worker)
{
    struct fr_plan *plan = context;
    struct plan_unit *unit = &plan->units[index];
    const struct fr_store_slot *slot = &plan->store->slots[unit->slot];
    const struct fr_column *column = &plan->batch->columns[unit->slot];
    const struct fr_table *table = &plan->store->tables[slot->table];
    struct plan_record *records = plan->tables[slot->table].records;
    bool coins = slot->admit && table->spec.gate.memory == FR_GATE_NOTHING;
    uint32_t base = plan->slot_base[unit->slot], at[FR_SHARDS];
    uint32_t trained = OCC_TRAINS | (slot->admit ? OCC_COUNTS : 0) | (slot->touch ? OCC_TOUCHES : 0);
    const uint64_t *hash = plan->workers[worker].hashes;
    divide_unit(plan, unit, plan->workers[worker].hashes, at);
    for (uint32_t i = unit->entry_begin; i < unit->entry_end; i++) {
        bool trains = column->shared ? plan->groups[i].n_trained > 0 : plan->batch->role[i] == FR_ROLE_TRAIN;
        uint32_t entry = i | (column->shared ? OCC_SHARED : 0) | (trains ? trained : 0);
        for (uint32_t o = column->begin[i]; o < column->begin[i + 1]; o++, hash++) {
            uint32_t falls = coins && trains ? throw_coin(plan, table, column, i, column->keys[o]) : 0;
            records[at[fr_shard_of(*hash)]++] =
                (struct plan_record){.hash = *hash, .occurrence = base + o, .entry = entry | falls};
        }
    }
}

/* Computes where each shard's keys begin. */
static void place_shards(struct fr_plan *plan)
{
    const struct fr_store *store = plan->store;
    uint32_t records_max = 0;
    for (uint32_t t = 0; t < store->n_tables; t++) {
        uint32_t *begin = plan->tables[t].begin;
        memset(begin, 0, sizeof(plan->tables[t].begin));
        for (uint32_t u = plan->tables[t].first_unit; u != PLAN_NO_UNIT; u = plan->units[u].next)
            for (uint32_t s = 0; s < FR_SHARDS; s++)
                begin[s + 1] += plan->units[u].at[s + 1] - plan->units[u].at[s];
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            if (begin[s + 1] > records_max)
                records_max = begin[s + 1];
            begin[s + 1] += begin[s];
        }
    }
    fr_plan_reserve_heads(plan, records_max);
}

/* ---- gather ---- */

static inline uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline void add_occurrence(const struct fr_plan *plan, struct plan_key *key, uint32_t entry)
{
    uint32_t samples = 1, trains = entry / OCC_TRAINS % 2, counts = entry / OCC_COUNTS,
             touches = entry / OCC_TOUCHES % 2;
    double clicks;
    if (entry & OCC_SHARED) {
        samples = plan->groups[entry & OCC_ENTRY].n_trained;
        clicks = plan->groups[entry & OCC_ENTRY].clicks;
    } else {
        clicks = plan->clicks[entry & OCC_ENTRY];
    }
    key->n_occurrences++;
    key->trained |= trains;
    key->n_counted += counts ? samples : 0;
    key->fell |= (entry & OCC_FALLS) != 0;
    key->n_touched += touches ? samples : 0;
    key->clicks += touches ? clicks : 0.0;
}

/* Finds the distinct keys of a shard's records, in order of first occurrence, with the sums over
 * their occurrences. The slot after the last key already holds the hash that is sought. So a search
 * ends in the same way at an empty place and at a place that has the key, without a branch that no
 * processor could predict. */
static uint32_t gather_keys(const struct fr_plan *plan, const struct plan_table *table, uint32_t s, uint32_t *heads)
{
    struct plan_key *keys = table->keys + table->begin[s];
    uint32_t size = 16, bits = 4, n_keys = 0;
    for (; size < 2 * (table->begin[s + 1] - table->begin[s]); size *= 2)
        bits++;
    memset(heads, UINT8_MAX, size * sizeof(*heads));
    for (uint32_t u = table->first_unit; u != PLAN_NO_UNIT; u = plan->units[u].next) {
        uint32_t end = plan->units[u].at[s + 1];
        for (uint32_t r = plan->units[u].at[s]; r < end; r++) {
            const struct plan_record *record = &table->records[r];
            uint64_t hash = record->hash;
            uint32_t at = (uint32_t)((hash << FR_SHARD_BITS) >> (64 - bits));
            keys[n_keys] = (struct plan_key){.hash = hash};
            uint32_t k = smaller(heads[at], n_keys);
            while (keys[k].hash != hash) {
                at = (at + 1) & (size - 1);
                k = smaller(heads[at], n_keys);
            }
            heads[at] = k;
            n_keys += k == n_keys;
            add_occurrence(plan, &keys[k], record->entry);
            table->record_keys[r] = k;
        }
    }
    return n_keys;
}

static void gather_shard(void *context, size_t index, size_t worker)
{
    struct fr_plan *plan = context;
    uint32_t t = (uint32_t)(index / FR_SHARDS), s = (uint32_t)(index % FR_SHARDS);
    struct plan_table *table = &plan->tables[t];
    table->n_unique[s] = 0;
    table->fetched[s].n = 0;
    if (table->begin[s + 1] > table->begin[s])
        table->n_unique[s] = gather_keys(plan, table, s, plan->workers[worker].heads);
    if (plan->ahead && table->n_unique[s] > 0)
        fr_tier_fetch(plan, t, s);
}

static void run_tasks(struct fr_plan *plan, size_t count, fr_pool_task *task)
{
    if (!plan->alone) {
        fr_pool_run(plan->store->pool, count, task, plan);
        return;
    }
    for (size_t i = 0; i < count; i++)
        task(plan, i, 0);
}

void fr_plan_look(struct fr_plan *plan, const struct fr_batch *batch, bool ahead, bool alone)
{
    const struct fr_store *store = plan->store;
    FR_CHECK(batch->n_slots == store->n_slots && batch->n_samples <= OCC_ENTRY);
    plan->batch = batch;
    plan->ahead = ahead;
    plan->alone = alone;
    read_clicks(plan);
    lay_out(plan);
    run_tasks(plan, plan->n_units, scatter_unit);
    place_shards(plan);
    run_tasks(plan, (size_t)store->n_tables * FR_SHARDS, gather_shard);
}

static void look_ahead(struct fr_store *store, const struct fr_batch *batch, bool alone)
{
    store->looked_folded = fr_store_folded(store);
    if (store->undoable > 1)
        store->undoable = 1; /* the look uses the scratch of the plan before the last */
    fr_plan_look(store->ahead, batch, true, alone);
    store->looked = batch;
}

void fr_store_look(struct fr_store *store, const struct fr_batch *batch)
{
    look_ahead(store, batch, true);
}

void fr_store_look_pooled(struct fr_store *store, const struct fr_batch *batch)
{
    look_ahead(store, batch, false);
}
