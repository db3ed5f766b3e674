/* The first half of a plan: finds the keys of a batch. It changes only the plan's scratch, so it
 * may run for the next batch while the rows of the current one are trained.
 *
 * There are two passes, each followed by a barrier, over the occurrences of all tables.
 *
 * scatter (by unit: slots of one lane, or a part of a slot): writes one record per occurrence.
 * Within a unit the records are grouped by place (a shard of one domain's sub-table), in the order
 * of occurrences (stable counting sort).
 *
 * gather (by place, from unit to unit, lane by lane): finds distinct keys in the order of first
 * occurrence (lane, slot, entry), with the sums over their occurrences. If the look is ahead of the
 * plan, the keys that are not in memory are then read from the cold store (tier.c).
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

#include <math.h>
#include <string.h>

#include "base/check.h"

enum { UNIT_OCCURRENCES = 8192 }; /* a slot with more occurrences is split */
/* Slots are put together up to so many occurrences for each place: at least, at most. */
enum { UNIT_PLACE_MIN = 16, UNIT_PLACE_MAX = 64 };
enum { CLICK_PARTS = 1 << 20, CLICK_MAX = 1 << 20 };
enum { PLACES_MAX = FR_DOMAINS_MAX * FR_SHARDS };

/* ---- layout, scatter ---- */

/* A click in whole parts of 2^-20, at most 2^20: sums of up to 2^33 are exact in double. Samples of
 * several lanes are added in any order. */
static double exact_click(double click)
{
    return click < CLICK_MAX ? nearbyint(click * CLICK_PARTS) / CLICK_PARTS : CLICK_MAX;
}

static void read_clicks(struct fr_plan *plan)
{
    const struct fr_batch *batch = plan->batch;
    fr_plan_reserve_samples(plan, batch->n_samples);
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        float click = batch->n_labels > 0 ? batch->labels[i] : 0.0f;
        plan->clicks[i] = click > 0.0f ? (double)click : 0.0; /* 0 for a masked label (NaN) */
        if (plan->store->n_domains > 1)
            plan->clicks[i] = exact_click(plan->clicks[i]);
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

/* Numbers the occurrences, slot by slot. Returns whether some column with ids is shared. */
static bool number_occurrences(struct fr_plan *plan)
{
    const struct fr_store *store = plan->store;
    const struct fr_batch *batch = plan->batch;
    bool shared = false;
    for (uint32_t t = 0; t < store->n_configured; t++)
        plan->tables[t].n_occurrences = plan->tables[t].n_slots = 0;
    for (uint32_t s = 0; s < store->n_slots; s++) {
        plan->slot_base[s] = plan->slot_ordinal[s] = 0;
        if (store->slots[s].table == FR_NO_INDEX)
            continue;
        uint32_t n_entries = fr_batch_entries(batch, s);
        uint32_t n = n_entries ? batch->columns[s].begin[n_entries] : 0;
        struct plan_table *table = &plan->tables[store->slots[s].table];
        plan->slot_base[s] = table->n_occurrences;
        plan->slot_ordinal[s] = table->n_slots++;
        FR_CHECK(n <= UINT32_MAX - table->n_occurrences);
        table->n_occurrences += n;
        shared |= n > 0 && batch->columns[s].shared;
    }
    return shared;
}

/* Adds a part to the last unit of its table, or to a new one: a unit has the parts of one lane, and
 * at most unit_max occurrences unless a single entry has more. */
static void add_part(struct fr_plan *plan, uint32_t t, uint32_t lane, struct plan_part part, uint32_t unit_max)
{
    struct plan_table *table = &plan->tables[t];
    uint32_t n = part.end - part.begin;
    struct plan_unit *last = table->end_unit > table->first_unit ? &plan->units[plan->n_units - 1] : NULL;
    if (!last || last->lane != lane || last->end - last->begin + n > unit_max) {
        uint32_t begin = last ? last->end : 0;
        fr_plan_add_unit(
            plan,
            (struct plan_unit){.table = t, .lane = lane, .first_part = plan->n_parts, .begin = begin, .end = begin});
        table->end_unit = plan->n_units;
        last = &plan->units[plan->n_units - 1];
    }
    fr_plan_add_part(plan, part);
    last->end_part = plan->n_parts;
    last->end += n;
    fr_plan_reserve_hashes(plan, last->end - last->begin);
}

/* Adds the parts of one slot's entries in a lane. */
static void add_slot(struct fr_plan *plan, uint32_t slot, uint32_t lane, uint32_t unit_max)
{
    const struct fr_column *column = &plan->batch->columns[slot];
    uint32_t base = plan->slot_base[slot];
    uint32_t first = fr_batch_lane_entry(plan->batch, column->shared, lane);
    uint32_t end = fr_batch_lane_entry(plan->batch, column->shared, lane + 1);
    uint32_t n = end > first ? column->begin[end] - column->begin[first] : 0;
    if (n == 0)
        return;
    uint32_t pieces = n / UNIT_OCCURRENCES + 1;
    uint32_t step = (end - first) / pieces + 1;
    for (uint32_t i = first; i < end; i += step) {
        struct plan_part part = {.slot = slot,
                                 .ordinal = plan->slot_ordinal[slot],
                                 .entry_begin = i,
                                 .entry_end = end - i < step ? end : i + step};
        part.begin = base + column->begin[part.entry_begin];
        part.end = base + column->begin[part.entry_end];
        add_part(plan, (uint32_t)plan->store->slots[slot].table, lane, part, unit_max);
    }
}

/* Each unit is passed over once for each place, so units of few occurrences are put together, as
 * long as all workers have some. */
static uint32_t unit_max(const struct fr_plan *plan, uint32_t n_occurrences)
{
    uint32_t least = UNIT_PLACE_MIN * plan->n_places, most = UNIT_PLACE_MAX * plan->n_places;
    uint32_t fair = n_occurrences / (4 * (uint32_t)plan->n_workers);
    uint32_t n = fair < least ? least : fair > most ? most : fair;
    return n < UNIT_OCCURRENCES ? n : UNIT_OCCURRENCES;
}

static void lay_out(struct fr_plan *plan)
{
    const struct fr_store *store = plan->store;
    const struct fr_batch *batch = plan->batch;
    plan->n_parts = plan->n_units = 0;
    if (number_occurrences(plan))
        sum_groups(plan);
    for (uint32_t t = 0; t < store->n_configured; t++) {
        plan->tables[t].first_unit = plan->tables[t].end_unit = plan->n_units;
        for (uint32_t lane = 0; lane == 0 || lane < batch->n_lanes; lane++)
            for (uint32_t s = 0; s < store->n_slots; s++)
                if (store->slots[s].table == (int)t)
                    add_slot(plan, s, lane, unit_max(plan, plan->tables[t].n_occurrences));
    }
    fr_plan_reserve_at(plan);
    for (uint32_t t = 0; t < store->n_configured; t++)
        fr_plan_reserve_table(plan, t);
}

static uint32_t throw_coin(const struct fr_plan *plan, const struct fr_table *table, const struct fr_column *column,
                           uint32_t entry, uint64_t key)
{
    const uint32_t *groups = plan->batch->group_begin;
    uint32_t begin = column->shared ? groups[entry] : entry, end = column->shared ? groups[entry + 1] : entry + 1;
    return fr_admission_falls(plan->store, table, plan->batch, begin, end, key) ? OCC_FALLS : 0;
}

/* The place of a key. The branch is the same for all keys of a store, and spares a store of one
 * domain the load of the key. */
static inline size_t place_of(uint32_t n_domains, const uint64_t *key, uint64_t hash)
{
    size_t domain = n_domains == 1 ? 0 : fr_key_domain(*key, n_domains);
    return domain * FR_SHARDS + fr_shard_of(hash);
}

/* Hashes the unit's occurrences and gives each place of the table its part of the unit's records.
 * at[place] is where the next record of that place goes. */
static void divide_unit(const struct fr_plan *plan, size_t index, const struct plan_worker *worker,
                        uint32_t at[PLACES_MAX])
{
    uint64_t *hash = worker->hashes;
    uint16_t *place = worker->places;
    const struct plan_unit *unit = &plan->units[index];
    uint32_t n_places = plan->n_places, n_domains = plan->store->n_domains;
    uint32_t *of_unit = fr_plan_at(plan, index);
    memset(at, 0, n_places * sizeof(*at));
    for (uint32_t i = unit->first_part; i < unit->end_part; i++) {
        const struct plan_part *part = &plan->parts[i];
        const struct fr_column *column = &plan->batch->columns[part->slot];
        const uint64_t *keys = column->keys + column->begin[part->entry_begin];
        for (uint32_t o = 0; o < part->end - part->begin; o++, hash++, place++) {
            *hash = fr_order_hash(&plan->store->order, keys[o]);
            *place = (uint16_t)place_of(n_domains, &keys[o], *hash);
            at[*place]++;
        }
    }
    of_unit[0] = unit->begin;
    for (uint32_t p = 0; p < n_places; p++) {
        of_unit[p + 1] = of_unit[p] + at[p];
        at[p] = of_unit[p];
    }
}

/* Writes the records of a part, whose occurrences have these hashes and places. */
static void scatter_part(const struct fr_plan *plan, const struct plan_part *part, const uint64_t *hash,
                         const uint16_t *place, uint32_t *at)
{
    const struct fr_store_slot *slot = &plan->store->slots[part->slot];
    const struct fr_column *column = &plan->batch->columns[part->slot];
    /* of any domain: gate and name are the same in all of them */
    const struct fr_table *table = &plan->store->tables[slot->table];
    struct plan_record *records = plan->tables[slot->table].records;
    bool coins = slot->admit && table->spec.gate.memory == FR_GATE_NOTHING;
    uint32_t base = plan->slot_base[part->slot];
    uint32_t trained = OCC_TRAINS | (slot->admit ? OCC_COUNTS : 0) | (slot->touch ? OCC_TOUCHES : 0);
    for (uint32_t i = part->entry_begin; i < part->entry_end; i++) {
        bool trains = column->shared ? plan->groups[i].n_trained > 0 : plan->batch->role[i] == FR_ROLE_TRAIN;
        uint32_t entry = i | (column->shared ? OCC_SHARED : 0) | (trains ? trained : 0);
        for (uint32_t o = column->begin[i]; o < column->begin[i + 1]; o++, hash++, place++) {
            uint32_t falls = coins && trains ? throw_coin(plan, table, column, i, column->keys[o]) : 0;
            records[at[*place]++] = (struct plan_record){.hash = *hash, .occurrence = base + o, .entry = entry | falls};
        }
    }
}

static void scatter_unit(void *context, size_t index, size_t worker)
{
    struct fr_plan *plan = context;
    const struct plan_unit *unit = &plan->units[index];
    uint32_t at[PLACES_MAX], done = 0;
    divide_unit(plan, index, &plan->workers[worker], at);
    for (uint32_t i = unit->first_part; i < unit->end_part; i++) {
        scatter_part(plan, &plan->parts[i], plan->workers[worker].hashes + done, plan->workers[worker].places + done,
                     at);
        done += plan->parts[i].end - plan->parts[i].begin;
    }
}

/* Computes where each place's keys begin. */
static void place_keys(struct fr_plan *plan)
{
    uint32_t records_max = 0;
    for (uint32_t t = 0; t < plan->store->n_configured; t++) {
        struct plan_place *places = plan->tables[t].places;
        for (uint32_t p = 0; p <= plan->n_places; p++)
            places[p].begin = 0;
        for (uint32_t u = plan->tables[t].first_unit; u < plan->tables[t].end_unit; u++) {
            const uint32_t *at = fr_plan_at(plan, u);
            for (uint32_t p = 0; p < plan->n_places; p++)
                places[p + 1].begin += at[p + 1] - at[p];
        }
        for (uint32_t p = 0; p < plan->n_places; p++) {
            if (places[p + 1].begin > records_max)
                records_max = places[p + 1].begin;
            places[p + 1].begin += places[p].begin;
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

/* Finds the distinct keys of a place's records, in order of first occurrence, with the sums over
 * their occurrences. The slot after the last key already holds the hash that is sought. So a search
 * ends in the same way at an empty place and at a place that has the key, without a branch that no
 * processor could predict. */
static uint32_t gather_keys(const struct fr_plan *plan, const struct plan_table *table, uint32_t p, uint32_t *heads)
{
    uint32_t begin = table->places[p].begin, n = table->places[p + 1].begin - begin;
    struct plan_key *keys = table->keys + begin;
    uint32_t size = 16, bits = 4, n_keys = 0;
    for (; size < 2 * n; size *= 2)
        bits++;
    memset(heads, UINT8_MAX, size * sizeof(*heads));
    for (uint32_t u = table->first_unit; u < table->end_unit; u++) {
        const uint32_t *of_unit = fr_plan_at(plan, u) + p;
        uint32_t end = of_unit[1];
        for (uint32_t r = of_unit[0]; r < end; r++) {
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

static void gather_place(void *context, size_t index, size_t worker)
{
    struct fr_plan *plan = context;
    uint32_t t = (uint32_t)(index / plan->n_places), p = (uint32_t)(index % plan->n_places);
    struct plan_place *place = &plan->tables[t].places[p];
    place->n_unique = 0;
    place->fetched.n = 0;
    if (place[1].begin > place->begin)
        place->n_unique = gather_keys(plan, &plan->tables[t], p, plan->workers[worker].heads);
    if (plan->ahead && place->n_unique > 0)
        fr_tier_fetch(plan, t, p);
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
    place_keys(plan);
    run_tasks(plan, (size_t)store->n_configured * plan->n_places, gather_place);
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
