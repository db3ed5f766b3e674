/* Key plane of a batch: from ids to rows.
 *
 * Four passes over the pool, each a barrier, on the occurrences of all tables.
 *
 * count (by unit: a slot, or a part of one): how many of its occurrences fall into each shard of
 * its table.
 *
 * scatter (by unit): one record per occurrence into its shard's region; regions keep the order of
 * occurrences (stable counting sort).
 *
 * resolve (by shard): distinct keys in order of first occurrence, occurrences counted before
 * anything is admitted; then index, gate, touch.
 *
 * publish (by shard): keys, rows and occurrence lists into struct fr_rows, unique numbers shard
 * after shard.
 *
 * Shared columns have an entry per group of samples. An occurrence in one counts once per trained
 * sample of the group and is resolved once, so entries, counters and dirty keys come out as if
 * every sample had its own: distinct keys have the same order of first occurrence in both forms,
 * and sums of clicks are kept in double, where adding the labels of a group first makes no
 * difference.
 *
 * undo (by shard) takes resolve back from what the keys remember: the entry and the row's tail as
 * they were.
 *
 * Both many small tables and one large table split into enough tasks. Nothing depends on which
 * worker ran what: every order comes from the batch and from the keys' hashes. Sums over a key's
 * samples go by occurrence number.
 *
 * Index lookups go in blocks: prefetch all groups, find all, prefetch all row tails, then apply
 * (group prefetching: Chen, Ailamaki, Gibbons, Mowry 2004). Memory grows to the largest batch seen
 * and stays: no allocation per batch after that.
 *
 * Owner: the owner loop; one plan at a time. It does not read or write row values beyond a new
 * row's first ones. */
#include "plan.h"

#include <string.h>

#include "base/check.h"

enum {
    UNIT_OCCURRENCES = 8192, /* a slot with more is split */
    BLOCK = 32,              /* keys between prefetch and use */
    ENTRY_BITS = 27,
};

/* What an occurrence may do, beside its entry number. */
#define OCC_COUNTS ((uint32_t)1 << 31)  /* some sample of the entry trains, slot admits */
#define OCC_TRAINS ((uint32_t)1 << 30)  /* some sample of the entry trains */
#define OCC_TOUCHES ((uint32_t)1 << 29) /* some sample of the entry trains, slot touches */
#define OCC_SHARED ((uint32_t)1 << 28)  /* the entry is a group */
#define OCC_FALLS ((uint32_t)1 << 27)   /* the coin of one that counts */
#define OCC_ENTRY (((uint32_t)1 << ENTRY_BITS) - 1)

/* ---- layout, count, scatter ---- */

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
            float click = plan->clicks ? plan->clicks[i] : 0.0f;
            if (click > 0.0f) /* false for a masked label (NaN) */
                group.clicks += (double)click;
        }
        plan->groups[g] = group;
    }
}

static void lay_out(struct fr_plan *plan)
{
    const struct fr_store *store = plan->store;
    const struct fr_batch *batch = plan->batch;
    plan->n_units = 0;
    bool shared = false;
    for (uint32_t t = 0; t < store->n_tables; t++)
        plan->tables[t].n_occurrences = 0;
    for (uint32_t s = 0; s < store->n_slots; s++) {
        plan->rows->slot_base[s] = 0;
        if (store->slots[s].table == FR_NO_INDEX)
            continue;
        uint32_t n_entries = fr_batch_entries(batch, s);
        uint32_t n = n_entries ? batch->columns[s].begin[n_entries] : 0;
        struct plan_table *table = &plan->tables[store->slots[s].table];
        plan->rows->slot_base[s] = table->n_occurrences;
        FR_CHECK(n <= UINT32_MAX - table->n_occurrences);
        table->n_occurrences += n;
        if (n == 0)
            continue;
        shared |= batch->columns[s].shared;
        uint32_t pieces = n / UNIT_OCCURRENCES + 1;
        uint32_t step = n_entries / pieces + 1;
        for (uint32_t i = 0; i < n_entries; i += step) {
            uint32_t end = n_entries - i < step ? n_entries : i + step;
            fr_plan_add_unit(plan, (struct plan_unit){.slot = s, .entry_begin = i, .entry_end = end});
        }
    }
    if (shared)
        sum_groups(plan);
    for (uint32_t t = 0; t < store->n_tables; t++)
        fr_plan_reserve_table(plan, t);
}

static void count_unit(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    struct plan_unit *unit = &plan->units[index];
    const struct fr_column *column = &plan->batch->columns[unit->slot];
    uint32_t counts[FR_SHARDS] = {0};
    for (uint32_t o = column->begin[unit->entry_begin]; o < column->begin[unit->entry_end]; o++)
        counts[fr_shard_of(fr_order_hash(&plan->store->order, column->keys[o]))]++;
    memcpy(unit->at, counts, sizeof(counts));
}

/* Counts become places: shard after shard, in it unit after unit (units are in slot and entry
 * order). */
static void place_units(struct fr_plan *plan)
{
    const struct fr_store *store = plan->store;
    for (uint32_t t = 0; t < store->n_tables; t++)
        memset(plan->tables[t].begin, 0, sizeof(plan->tables[t].begin));
    for (size_t u = 0; u < plan->n_units; u++) {
        struct plan_table *table = &plan->tables[store->slots[plan->units[u].slot].table];
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            uint32_t count = plan->units[u].at[s];
            plan->units[u].at[s] = table->begin[s + 1]; /* inside its shard, so far */
            table->begin[s + 1] += count;
        }
    }
    uint32_t records_max = 0;
    for (uint32_t t = 0; t < store->n_tables; t++) {
        uint32_t *begin = plan->tables[t].begin;
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            if (begin[s + 1] > records_max)
                records_max = begin[s + 1];
            begin[s + 1] += begin[s];
        }
    }
    for (size_t u = 0; u < plan->n_units; u++) {
        const struct plan_table *table = &plan->tables[store->slots[plan->units[u].slot].table];
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            plan->units[u].at[s] += table->begin[s];
    }
    fr_plan_reserve_heads(plan, records_max);
}

static uint32_t throw_coin(const struct fr_plan *plan, const struct fr_table *table, const struct fr_column *column,
                           uint32_t entry, uint64_t key)
{
    const uint32_t *groups = plan->batch->group_begin;
    uint32_t begin = column->shared ? groups[entry] : entry, end = column->shared ? groups[entry + 1] : entry + 1;
    return fr_admission_falls(plan->store, table, plan->batch, begin, end, key) ? OCC_FALLS : 0;
}

static void scatter_unit(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    struct plan_unit *unit = &plan->units[index];
    const struct fr_store_slot *slot = &plan->store->slots[unit->slot];
    const struct fr_column *column = &plan->batch->columns[unit->slot];
    const struct fr_table *table = &plan->store->tables[slot->table];
    struct plan_record *records = plan->tables[slot->table].records;
    bool coins = slot->admit && table->spec.gate.memory == FR_GATE_NOTHING;
    uint32_t base = plan->rows->slot_base[unit->slot];
    uint32_t trained = OCC_TRAINS | (slot->admit ? OCC_COUNTS : 0) | (slot->touch ? OCC_TOUCHES : 0);
    for (uint32_t i = unit->entry_begin; i < unit->entry_end; i++) {
        bool trains = column->shared ? plan->groups[i].n_trained > 0 : plan->batch->role[i] == FR_ROLE_TRAIN;
        uint32_t entry = i | (column->shared ? OCC_SHARED : 0) | (trains ? trained : 0);
        for (uint32_t o = column->begin[i]; o < column->begin[i + 1]; o++) {
            uint64_t hash = fr_order_hash(&plan->store->order, column->keys[o]);
            uint32_t falls = coins && trains ? throw_coin(plan, table, column, i, column->keys[o]) : 0;
            records[unit->at[fr_shard_of(hash)]++] =
                (struct plan_record){.hash = hash, .occurrence = base + o, .entry = entry | falls};
        }
    }
}

/* ---- resolve ---- */

static inline void add_occurrence(const struct fr_plan *plan, struct plan_key *key, uint32_t entry)
{
    uint32_t samples = 1;
    double clicks = 0;
    if (entry & OCC_SHARED) {
        samples = plan->groups[entry & OCC_ENTRY].n_trained;
        clicks = plan->groups[entry & OCC_ENTRY].clicks;
    } else if ((entry & OCC_TOUCHES) && plan->clicks) {
        float click = plan->clicks[entry & OCC_ENTRY];
        clicks = click > 0.0f ? (double)click : 0.0; /* 0 for a masked label (NaN) */
    }
    key->n_occurrences++;
    key->trained |= (entry & OCC_TRAINS) != 0;
    if (entry & OCC_COUNTS)
        key->n_counted += samples;
    key->fell |= (entry & OCC_FALLS) != 0;
    if (entry & OCC_TOUCHES) {
        key->n_touched += samples;
        key->clicks += clicks;
    }
}

/* Distinct keys of n records, in order of first occurrence, and what their occurrences add up
 * to. */
static uint32_t gather_keys(const struct fr_plan *plan, struct plan_record *records, uint32_t n, uint32_t *heads,
                            struct plan_key *keys)
{
    uint32_t size = 16, bits = 4;
    for (; size < 2 * n; size *= 2)
        bits++;
    memset(heads, 0, size * sizeof(*heads));
    uint32_t n_keys = 0;
    for (uint32_t r = 0; r < n; r++) {
        uint64_t hash = records[r].hash;
        uint32_t at = (uint32_t)((hash << FR_SHARD_BITS) >> (64 - bits));
        while (heads[at] && keys[heads[at] - 1].hash != hash)
            at = (at + 1) & (size - 1);
        if (!heads[at]) {
            keys[n_keys] = (struct plan_key){.hash = hash};
            heads[at] = ++n_keys;
        }
        add_occurrence(plan, &keys[heads[at] - 1], records[r].entry);
        records[r].entry = heads[at] - 1;
    }
    return n_keys;
}

struct resolve {
    const struct fr_plan *plan;
    const struct fr_table *table;
    struct fr_shard *shard;
    uint32_t shard_number;
    struct fr_sketch_log *sketched;
};

static void admit(const struct resolve *r, struct plan_key *key)
{
    struct fr_shard *shard = r->shard;
    key->number = fr_entry_make_live(shard, key->hash, key->number);
    struct fr_live_entry *live = fr_entries_live(&shard->entries, key->number);
    fr_entry_init_row(r->plan->store, r->table, fr_order_key(&r->plan->store->order, key->hash),
                      fr_entries_row(&shard->entries, key->number));
    live->head.seen_ms = r->plan->watermark_ms;
    if (live->entry.flags & FR_ENTRY_DIRTY) /* as pending: its image has grown */
        shard->dirty_bytes += r->table->image_size;
    fr_entry_mark_dirty(shard, &live->entry, r->table->image_size);
    shard->counts.admitted++;
}

/* A key's trained occurrences so far, as the gate's memory knows them. */
static uint32_t count_of(const struct resolve *r, const struct plan_key *key, const struct fr_light_entry *pending)
{
    uint32_t before = 0;
    switch (r->table->spec.gate.memory) {
    case FR_GATE_ENTRIES:
        before = pending ? pending->count : 0;
        return key->n_counted > UINT32_MAX - before ? UINT32_MAX : before + (uint32_t)key->n_counted;
    case FR_GATE_SKETCH:
        return fr_admission_count_sketch(r->table, r->shard_number, key->hash, key->n_counted, r->plan->watermark_ms,
                                         r->sketched);
    case FR_GATE_NOTHING:
        break;
    }
    return key->fell;
}

/* A key without a row that trained occurrences may count for. */
static void count_key(const struct resolve *r, struct plan_key *key)
{
    struct fr_shard *shard = r->shard;
    const struct fr_gate_policy *gate = &r->table->spec.gate;
    bool pending = key->number != FR_NO_ENTRY && fr_shard_entry(shard, key->number)->state == FR_ENTRY_PENDING;
    uint32_t count = count_of(r, key, pending ? fr_entries_light(&shard->entries, key->number) : NULL);
    if (gate->admits(gate->config, count)) {
        admit(r, key);
        return;
    }
    shard->counts.rejected += key->n_counted;
    if (gate->memory != FR_GATE_ENTRIES)
        return;
    if (!pending && shard->counts.pending >= shard->pending_max) {
        shard->counts.unremembered++;
        return;
    }
    if (!pending)
        key->number = fr_entry_make_pending(shard, key->hash, key->number);
    struct fr_light_entry *light = fr_entries_light(&shard->entries, key->number);
    light->count = count;
    light->seen_ms = r->plan->watermark_ms;
    fr_entry_mark_dirty(shard, &light->entry, FR_PENDING_IMAGE_SIZE);
}

static void remember(const struct resolve *r, const struct plan_key *key, struct plan_undo *undo)
{
    undo->known = key->number != FR_NO_ENTRY;
    if (!undo->known)
        return;
    if (key->number & FR_LIGHT)
        undo->light = *fr_entries_light(&r->shard->entries, key->number);
    else
        undo->live = *fr_entries_live(&r->shard->entries, key->number);
}

static void apply_key(const struct resolve *r, struct plan_key *key, struct plan_undo *undo)
{
    struct fr_shard *shard = r->shard;
    /* A light entry may have moved since it was found: an admission takes one away. */
    if (key->number != FR_NO_ENTRY && (key->number & FR_LIGHT))
        key->number = fr_shard_find(shard, key->hash);
    remember(r, key, undo);
    bool live = key->number != FR_NO_ENTRY && !(key->number & FR_LIGHT);
    if (!live && key->n_counted > 0)
        count_key(r, key);
    if (key->number == FR_NO_ENTRY || (key->number & FR_LIGHT))
        return;
    key->made = !live;
    struct fr_live_entry *entry = fr_entries_live(&shard->entries, key->number);
    if (key->trained) { /* its values will change in this batch's step, touched or not */
        fr_entry_mark_dirty(shard, &entry->entry, r->table->image_size);
        if (entry->entry.recent < FR_RECENT_MAX)
            entry->entry.recent++;
    }
    if (key->n_touched > 0) {
        entry->head.seen_ms = r->plan->watermark_ms;
        entry->head.show += key->n_touched;
        entry->head.click += key->clicks;
    }
}

static void resolve_keys(const struct resolve *r, struct plan_key *keys, struct plan_undo *undo, uint32_t n)
{
    const struct fr_shard *shard = r->shard;
    for (uint32_t begin = 0; begin < n; begin += BLOCK) {
        uint32_t end = n - begin < BLOCK ? n : begin + BLOCK;
        for (uint32_t u = begin; u < end; u++)
            fr_index_prefetch(&shard->index, keys[u].hash);
        for (uint32_t u = begin; r->table->sketches && u < end; u++)
            fr_sketch_prefetch(&r->table->sketches[r->shard_number], keys[u].hash);
        for (uint32_t u = begin; u < end; u++)
            fr_index_prefetch_entry(&shard->index, &shard->entries, keys[u].hash);
        for (uint32_t u = begin; u < end; u++)
            keys[u].number = fr_shard_find(shard, keys[u].hash);
        for (uint32_t u = begin; u < end; u++)
            apply_key(r, &keys[u], &undo[u]);
    }
    /* A row's place is certain once all rows of the batch are made: the first chunk moves. */
    for (uint32_t u = 0; u < n; u++)
        if (keys[u].number != FR_NO_ENTRY && !(keys[u].number & FR_LIGHT))
            keys[u].row = fr_entries_row(&shard->entries, keys[u].number);
}

static void resolve_shard(void *context, size_t index, size_t worker)
{
    struct fr_plan *plan = context;
    uint32_t t = (uint32_t)(index / FR_SHARDS), s = (uint32_t)(index % FR_SHARDS);
    struct plan_table *scratch = &plan->tables[t];
    uint32_t begin = scratch->begin[s], n = scratch->begin[s + 1] - begin;
    scratch->n_unique[s] = 0;
    scratch->sketched[s].n = 0;
    if (n == 0)
        return;
    struct resolve r = {
        .plan = plan, .table = &plan->store->tables[t], .shard_number = s, .sketched = &scratch->sketched[s]};
    r.shard = &r.table->shards[s];
    scratch->before[s] = (struct shard_before){
        .n_dirty = r.shard->n_dirty, .dirty_bytes = r.shard->dirty_bytes, .counts = r.shard->counts};
    struct plan_key *keys = scratch->keys + begin;
    uint32_t n_keys = gather_keys(plan, scratch->records + begin, n, plan->workers[worker].heads, keys);
    resolve_keys(&r, keys, scratch->undo + begin, n_keys);
    scratch->n_unique[s] = n_keys;
}

/* ---- publish ---- */

static void place_uniques(struct fr_plan *plan)
{
    for (uint32_t t = 0; t < plan->store->n_tables; t++) {
        struct plan_table *table = &plan->tables[t];
        uint32_t n = 0;
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            table->unique_begin[s] = n;
            n += table->n_unique[s];
        }
        struct fr_table_rows *out = &plan->rows->tables[t];
        out->n_unique = n;
        out->n_occurrences = table->n_occurrences;
        out->occ_begin[n] = table->n_occurrences;
    }
}

static void publish_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    uint32_t t = (uint32_t)(index / FR_SHARDS), s = (uint32_t)(index % FR_SHARDS);
    const struct plan_table *table = &plan->tables[t];
    struct fr_table_rows *out = &plan->rows->tables[t];
    struct plan_key *keys = table->keys + table->begin[s];
    uint32_t base = table->unique_begin[s], at = table->begin[s];
    for (uint32_t u = 0; u < table->n_unique[s]; u++) {
        out->keys[base + u] = fr_order_key(&plan->store->order, keys[u].hash);
        out->rows[base + u] = keys[u].row;
        out->served[base + u] = keys[u].made ? NULL : keys[u].row;
        out->occ_begin[base + u] = at;
        uint32_t n = keys[u].n_occurrences;
        keys[u].n_occurrences = at; /* from here on: where its next occurrence goes */
        at += n;
    }
    for (uint32_t r = table->begin[s]; r < table->begin[s + 1]; r++) {
        uint32_t u = table->records[r].entry, occurrence = table->records[r].occurrence;
        out->unique_of[occurrence] = base + u;
        out->occ[keys[u].n_occurrences++] = occurrence;
    }
}

void fr_store_plan(struct fr_store *store, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows)
{
    struct fr_plan *plan = store->plan;
    FR_CHECK(batch->n_slots == store->n_slots && rows->n_slots == store->n_slots && rows->n_tables == store->n_tables);
    FR_CHECK(batch->n_samples <= OCC_ENTRY);
    plan->batch = batch;
    plan->rows = rows;
    plan->clicks = batch->n_labels > 0 ? batch->labels : NULL;
    plan->watermark_ms = watermark_ms;
    size_t n_shards = (size_t)store->n_tables * FR_SHARDS;
    lay_out(plan);
    fr_pool_run(store->pool, plan->n_units, count_unit, plan);
    place_units(plan);
    fr_pool_run(store->pool, plan->n_units, scatter_unit, plan);
    fr_pool_run(store->pool, n_shards, resolve_shard, plan);
    place_uniques(plan);
    fr_pool_run(store->pool, n_shards, publish_shard, plan);
    plan->batch = NULL;
    plan->clicks = NULL;
    plan->rows = NULL;
    store->undoable = true;
}

/* ---- undo ---- */

/* What is known of the key is again what it was; where it lies may differ, and nothing depends on
 * that. */
static void undo_key(struct fr_shard *shard, const struct plan_key *key, const struct plan_undo *undo)
{
    uint32_t number = fr_shard_find(shard, key->hash);
    if (number == FR_NO_ENTRY)
        return;
    bool is_light = number & FR_LIGHT;
    if (undo->known && undo->entry.state == FR_ENTRY_LIVE) {
        *fr_entries_live(&shard->entries, number) = undo->live;
        return;
    }
    if (!undo->known || !is_light)
        fr_entry_drop(shard, number);
    if (!undo->known)
        return;
    if (!is_light)
        number = fr_entry_make_pending(shard, key->hash, FR_NO_ENTRY);
    *fr_entries_light(&shard->entries, number) = undo->light;
}

static void undo_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    uint32_t t = (uint32_t)(index / FR_SHARDS), s = (uint32_t)(index % FR_SHARDS);
    const struct plan_table *scratch = &plan->tables[t];
    struct fr_shard *shard = &plan->store->tables[t].shards[s];
    const struct plan_key *keys = scratch->keys + scratch->begin[s];
    const struct plan_undo *undo = scratch->undo + scratch->begin[s];
    if (scratch->n_unique[s] == 0)
        return;
    for (uint32_t u = scratch->n_unique[s]; u > 0; u--)
        undo_key(shard, &keys[u - 1], &undo[u - 1]);
    const struct fr_table *table = &plan->store->tables[t];
    if (table->sketches)
        fr_sketch_take_back(&table->sketches[s], &plan->tables[t].sketched[s]);
    const struct shard_before *before = &scratch->before[s];
    shard->n_dirty = before->n_dirty; /* a plan only adds to the list */
    shard->dirty_bytes = before->dirty_bytes;
    shard->counts = before->counts;
}

void fr_store_undo(struct fr_store *store)
{
    /* a slice or a cut in between made the keys' entries and numbers stale */
    FR_CHECK(store->undoable);
    store->undoable = false;
    fr_pool_run(store->pool, (size_t)store->n_tables * FR_SHARDS, undo_shard, store->plan);
}
