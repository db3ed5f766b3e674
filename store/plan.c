/* The key work of a batch: from ids to rows.
 *
 * look (look.c): finds the distinct keys of every shard, perhaps one batch ahead.
 *
 * Work is divided by place: a shard of one of the table's sub-tables (tables.h).
 *
 * resolve (by place): counts all occurrences before it admits anything; then index, gate and touch.
 * A key that is not in memory is first read from the cold store, unless the look has read it.
 *
 * publish (by place, right after resolve): writes keys, rows and occurrence lists into struct
 * fr_rows. Unique numbers go place after place, so those of a domain are contiguous.
 *
 * number (by unit, after a barrier): writes the unique number of each occurrence. If places wrote
 * them, different places would write to the same cache lines.
 *
 * undo (by place): restores, from the copies that resolve made, the entry of each key. Of two plans
 * in a row the later one is undone first; removed.h undoes slices between them.
 *
 * Many small tables and one large table both divide into enough tasks. No result depends on which
 * worker ran a task: every order comes from the batch and from the hashes of keys, and sums over a
 * key's samples go by lane, then occurrence number.
 *
 * Index lookups are a pipeline: while one key is applied, the entry of a later key and the group of
 * a still later key are being prefetched (software-pipelined prefetching: Chen, Ailamaki, Gibbons,
 * Mowry 2004).
 *
 * Owner: the owner loop, one plan at a time. Row values are read or written only for rows that the
 * plan creates or brings back. */
#include "plan.h"
#include "removed.h"
#include "tier.h"

#include <string.h>

#include "base/check.h"

enum { GROUP_AHEAD = 64, ENTRY_AHEAD = 32 }; /* keys between prefetch and use */

/* ---- resolve ---- */

struct resolve {
    const struct fr_plan *plan;
    const struct fr_table *table;
    struct fr_shard *shard;
    uint32_t shard_number;
    struct fr_sketch_log *sketched;
    /* What this worker resolves next, to be prefetched. */
    const struct resolve *next;
    const struct plan_key *next_keys;
    uint32_t n_next; /* 0: nothing */
};

static void admit(const struct resolve *r, struct plan_key *key)
{
    struct fr_shard *shard = r->shard;
    key->number = fr_entry_make_live(shard, key->hash, key->number);
    struct fr_live_entry *live = fr_entries_live(&shard->entries, key->number);
    live->head.seen_ms = r->plan->watermark_ms;
    if (live->entry.flags & FR_ENTRY_DIRTY) /* dirty as a pending key: its image becomes larger */
        shard->dirty_bytes += r->table->image_size;
    fr_entry_mark_dirty(shard, &live->entry, r->table->image_size);
    shard->counts.admitted++;
}

/* The number of a key's trained occurrences so far, as the gate counts them. */
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

/* Counts the trained occurrences of a key without a row and admits it if the gate says so. */
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

static void remember_key(const struct resolve *r, const struct plan_key *key, struct plan_undo *undo)
{
    if (key->number == FR_NO_ENTRY) {
        undo->state = 0;
        return;
    }
    const struct fr_entry *entry = fr_shard_entry(r->shard, key->number);
    undo->changed = entry->changed;
    undo->state = entry->state;
    undo->flags = entry->flags;
    undo->reason = entry->reason;
    undo->recent = entry->recent;
    undo->planned = entry->planned;
    if (key->number & FR_LIGHT) {
        undo->seen_ms = fr_entries_light(&r->shard->entries, key->number)->seen_ms;
        undo->count = fr_entries_light(&r->shard->entries, key->number)->count;
    } else {
        undo->head = fr_entries_live(&r->shard->entries, key->number)->head;
    }
}

static void apply_key(const struct resolve *r, struct plan_key *key, struct plan_undo *undo)
{
    struct fr_shard *shard = r->shard;
    remember_key(r, key, undo);
    bool live = key->number != FR_NO_ENTRY && !(key->number & FR_LIGHT);
    if (!live && key->n_counted > 0)
        count_key(r, key);
    if (key->number == FR_NO_ENTRY || (key->number & FR_LIGHT))
        return;
    key->made = !live;
    struct fr_live_entry *entry = fr_entries_live(&shard->entries, key->number);
    if (key->trained) {
        /* the step of this batch changes the row's values, even if the slot does not touch rows */
        fr_entry_mark_dirty(shard, &entry->entry, r->table->image_size);
        if (entry->entry.recent == FR_RECENT_BACK)
            entry->entry.recent = 0;
        else if (entry->entry.recent < FR_RECENT_MAX)
            entry->entry.recent++;
    }
    if (key->n_touched > 0) {
        entry->head.seen_ms = r->plan->watermark_ms;
        entry->head.show += key->n_touched;
        entry->head.click += key->clicks;
    }
}

static void fetch_group(const struct resolve *r, uint64_t hash)
{
    fr_index_prefetch(&r->shard->index, hash);
    if (r->table->sketches)
        fr_sketch_prefetch(&r->table->sketches[r->shard_number], hash);
}

static void resolve_keys(const struct resolve *r, struct plan_key *keys, struct plan_undo *undo, uint32_t n)
{
    const struct fr_shard *shard = r->shard;
    for (uint32_t u = 0; u < n + GROUP_AHEAD; u++) {
        if (u < n)
            fetch_group(r, keys[u].hash);
        else if (u - n < r->n_next)
            fetch_group(r->next, r->next_keys[u - n].hash);
        if (u >= GROUP_AHEAD - ENTRY_AHEAD && u < n + GROUP_AHEAD - ENTRY_AHEAD) {
            struct plan_key *key = &keys[u - (GROUP_AHEAD - ENTRY_AHEAD)];
            key->number = fr_index_guess(&shard->index, &shard->entries, key->hash, &key->absent);
        }
        if (u < GROUP_AHEAD)
            continue;
        struct plan_key *key = &keys[u - GROUP_AHEAD];
        if (!key->absent && !fr_entries_is(&shard->entries, key->number, key->hash))
            key->number = fr_shard_find(shard, key->hash);
        apply_key(r, key, &undo[u - GROUP_AHEAD]);
    }
}

static struct resolve resolve_of(const struct fr_plan *plan, uint32_t t, uint32_t p)
{
    return (struct resolve){.plan = plan,
                            .table = fr_plan_subtable(plan, t, p),
                            .shard = fr_plan_shard(plan, t, p),
                            .shard_number = p % FR_SHARDS,
                            .sketched = &plan->tables[t].places[p].sketched};
}

/* Resolves a place of a run of places, which ends before end_place. */
static void resolve_place(struct fr_plan *plan, uint32_t t, uint32_t p, uint32_t end_place)
{
    const struct plan_table *scratch = &plan->tables[t];
    struct plan_place *place = &scratch->places[p];
    struct resolve r = resolve_of(plan, t, p), next;
    if (p + 1 < end_place) {
        next = resolve_of(plan, t, p + 1);
        r.next = &next;
        r.next_keys = scratch->keys + place[1].begin;
        r.n_next = place[1].n_unique;
    }
    place->before = (struct shard_before){
        .n_dirty = r.shard->n_dirty, .dirty_bytes = r.shard->dirty_bytes, .counts = r.shard->counts};
    if (r.shard->evicted > 0)
        fr_tier_take(plan, t, p);
    resolve_keys(&r, scratch->keys + place->begin, scratch->undo + place->begin, place->n_unique);
}

/* ---- publish ---- */

static void place_uniques(struct fr_plan *plan)
{
    for (uint32_t t = 0; t < plan->store->n_configured; t++) {
        struct plan_table *table = &plan->tables[t];
        uint32_t n = 0;
        for (uint32_t p = 0; p < plan->n_places; p++) {
            table->places[p].unique_begin = n;
            n += table->places[p].n_unique;
        }
        struct fr_table_rows *out = &plan->rows->tables[t];
        out->n_unique = n;
        out->n_occurrences = table->n_occurrences;
        out->occ_begin[n] = table->n_occurrences;
    }
}

/* Rows that are given their first values together. */
enum { MADE_MAX = 16 };
struct made_rows {
    const struct fr_store *store;
    const struct fr_table *table;
    size_t n;
    uint64_t keys[MADE_MAX];
    float *rows[MADE_MAX];
};

static void give_first_values(struct made_rows *made)
{
    if (made->n > 0)
        fr_entry_init_rows(made->store, made->table, made->keys, made->rows, made->n);
    made->n = 0;
}

static void add_made(struct made_rows *made, uint64_t key, float *row)
{
    made->keys[made->n] = key;
    made->rows[made->n++] = row;
    if (made->n == MADE_MAX)
        give_first_values(made);
}

/* Writes the occurrence lists of a place's keys, unit by unit. */
static void list_occurrences(const struct fr_plan *plan, uint32_t t, uint32_t p)
{
    const struct plan_table *table = &plan->tables[t];
    uint32_t *occ = plan->rows->tables[t].occ, *occ_from = plan->rows->tables[t].occ_from;
    uint8_t *occ_lane = plan->rows->tables[t].occ_lane;
    struct plan_key *keys = table->keys + table->places[p].begin;
    for (uint32_t i = table->first_unit; i < table->end_unit; i++) {
        const struct plan_unit *unit = &plan->units[i];
        const struct plan_part *part = &plan->parts[unit->first_part];
        const uint32_t *at = fr_plan_at(plan, i) + p;
        for (uint32_t r = at[0]; r < at[1]; r++) {
            const struct plan_record *record = &table->records[r];
            uint32_t place = keys[table->record_keys[r]].n_occurrences++;
            while (record->occurrence >= part->end) /* records have the order of the parts */
                part++;
            occ[place] = record->occurrence;
            occ_from[place] = part->ordinal << FR_ENTRY_BITS | (record->entry & OCC_ENTRY);
            if (occ_lane)
                occ_lane[place] = (uint8_t)unit->lane;
        }
    }
}

/* All rows that the batch creates at this place exist by now, so their addresses are final. */
static void publish_place(struct fr_plan *plan, uint32_t t, uint32_t p)
{
    const struct plan_table *table = &plan->tables[t];
    const struct plan_place *place = &table->places[p];
    const struct fr_store *store = plan->store;
    const struct fr_entries *entries = &fr_plan_shard(plan, t, p)->entries;
    struct fr_table_rows *out = &plan->rows->tables[t];
    struct plan_key *keys = table->keys + place->begin;
    uint32_t base = place->unique_begin, at = place->begin;
    struct made_rows made = {.store = store, .table = fr_plan_subtable(plan, t, p)};
    for (uint32_t u = 0; u < place->n_unique; u++) {
        bool live = !(keys[u].number & FR_LIGHT); /* FR_NO_ENTRY has that bit, too */
        float *row = live ? fr_entries_row(entries, keys[u].number) : NULL;
        out->keys[base + u] = fr_order_key(&store->order, keys[u].hash);
        if (live && keys[u].made)
            add_made(&made, out->keys[base + u], row);
        out->rows[base + u] = row;
        out->served[base + u] = keys[u].made ? NULL : row;
        out->occ_begin[base + u] = at;
        uint32_t n = keys[u].n_occurrences;
        keys[u].n_occurrences = at; /* from here on: the index of its next occurrence */
        at += n;
    }
    give_first_values(&made);
    list_occurrences(plan, t, p);
}

/* Places of a table that follow each other and are one worker's: the more there are, the fewer keys
 * each has. */
struct run {
    uint32_t table, begin, end;
};

static uint32_t run_places(const struct fr_plan *plan)
{
    uint32_t n = plan->n_places * plan->store->n_configured / (8 * (uint32_t)plan->n_workers);
    return n < 1 ? 1 : n > plan->n_places ? plan->n_places : n;
}

static size_t count_runs(const struct fr_plan *plan)
{
    uint32_t places = run_places(plan);
    return (size_t)plan->store->n_configured * ((plan->n_places + places - 1) / places);
}

static struct run run_of(const struct fr_plan *plan, size_t index)
{
    uint32_t places = run_places(plan), runs = (plan->n_places + places - 1) / places;
    uint32_t begin = (uint32_t)(index % runs) * places, end = begin + places;
    return (struct run){(uint32_t)(index / runs), begin, end < plan->n_places ? end : plan->n_places};
}

static void plan_run(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    struct run run = run_of(plan, index);
    for (uint32_t p = run.begin; p < run.end; p++) {
        plan->tables[run.table].places[p].sketched.n = 0;
        if (plan->tables[run.table].places[p].n_unique == 0)
            continue;
        resolve_place(plan, run.table, p, run.end);
        publish_place(plan, run.table, p);
    }
}

static void number_unit(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    uint32_t t = plan->units[index].table;
    const struct plan_table *table = &plan->tables[t];
    const uint32_t *at = fr_plan_at(plan, index);
    uint32_t *unique_of = plan->rows->tables[t].unique_of;
    for (uint32_t p = 0; p < plan->n_places; p++)
        for (uint32_t r = at[p]; r < at[p + 1]; r++)
            unique_of[table->records[r].occurrence] = table->places[p].unique_begin + table->record_keys[r];
}

void fr_store_swap_plans(struct fr_store *store)
{
    struct fr_plan *ahead = store->ahead;
    store->ahead = store->plan;
    store->plan = ahead;
}

static void plan_batch(struct fr_store *store, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows)
{
    FR_CHECK(rows->n_slots == store->n_slots && rows->n_tables == store->n_configured);
    if (store->looked != batch) /* otherwise the scratch of the look has become store->plan */
        fr_plan_look(store->plan, batch, false, false);
    store->looked = NULL; /* this plan may create keys that a look found to be absent */
    struct fr_plan *plan = store->plan;
    plan->rows = rows;
    plan->watermark_ms = watermark_ms;
    fr_plan_reserve_rows(plan);
    place_uniques(plan);
    fr_pool_run(store->pool, count_runs(plan), plan_run, plan);
    fr_pool_run(store->pool, plan->n_units, number_unit, plan);
    plan->batch = NULL;
    plan->rows = NULL;
    store->plans++;
}

/* No key has an entry, so no row is published. */
static void list_place(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    uint32_t t = (uint32_t)(index / plan->n_places), p = (uint32_t)(index % plan->n_places);
    const struct plan_place *place = &plan->tables[t].places[p];
    struct plan_key *keys = plan->tables[t].keys + place->begin;
    for (uint32_t u = 0; u < place->n_unique; u++)
        keys[u].number = FR_NO_ENTRY;
    if (place->n_unique > 0)
        publish_place(plan, t, p);
}

void fr_plan_list(struct fr_plan *plan, struct fr_rows *rows)
{
    plan->rows = rows;
    fr_plan_reserve_rows(plan);
    place_uniques(plan);
    fr_pool_run(plan->store->pool, (size_t)plan->store->n_configured * plan->n_places, list_place, plan);
    fr_pool_run(plan->store->pool, plan->n_units, number_unit, plan);
    plan->batch = NULL;
    plan->rows = NULL;
}

/* Notes that the plan has the row, and whether the plan before has it, too: the step of that batch
 * changes the row. As few bits of the plans' numbers are kept, some rows are late that the step
 * does not change, which costs time only. */
static void mark_planned(const struct fr_plan *plan, struct plan_key *key, struct fr_entry *entry)
{
    uint32_t bits = (1u << FR_PLANNED_BITS) - 1;
    key->late = plan->follows && !key->made && entry->planned == ((plan->store->plans - 1) & bits);
    entry->planned = plan->store->plans & bits;
}

static void resolve_only(struct fr_plan *plan, uint32_t t, uint32_t p, uint32_t end_place)
{
    struct plan_place *place = &plan->tables[t].places[p];
    struct made_rows made = {.store = plan->store, .table = fr_plan_subtable(plan, t, p)};
    place->sketched.n = 0;
    if (place->n_unique == 0)
        return;
    resolve_place(plan, t, p, end_place);
    struct plan_key *keys = plan->tables[t].keys + place->begin;
    const struct fr_entries *entries = &fr_plan_shard(plan, t, p)->entries;
    for (uint32_t u = 0; u < place->n_unique; u++) {
        if (keys[u].number & FR_LIGHT)
            continue;
        mark_planned(plan, &keys[u], &fr_entries_live(entries, keys[u].number)->entry);
        if (keys[u].made)
            add_made(&made, fr_order_key(&plan->store->order, keys[u].hash), fr_entries_row(entries, keys[u].number));
    }
    give_first_values(&made);
}

static void resolve_run(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    struct run run = run_of(plan, index);
    for (uint32_t p = run.begin; p < run.end; p++)
        resolve_only(plan, run.table, p, run.end);
}

void fr_plan_resolve(struct fr_plan *plan)
{
    fr_pool_run(plan->store->pool, count_runs(plan), resolve_run, plan);
    plan->store->plans++;
}

void fr_store_plan(struct fr_store *store, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows)
{
    if (store->looked == batch)
        fr_store_swap_plans(store);
    plan_batch(store, batch, watermark_ms, rows);
    store->undoable = 1;
}

void fr_store_plan_next(struct fr_store *store, const struct fr_batch *batch, int64_t watermark_ms,
                        struct fr_rows *rows)
{
    fr_store_swap_plans(store); /* keeps what is needed to undo the previous plan */
    plan_batch(store, batch, watermark_ms, rows);
    store->undoable = store->undoable > 0 ? 2 : 1;
}

/* ---- undo ---- */

/* Restores the key's entry. Its place in memory may differ, which has no effect. */
static void undo_key(struct fr_shard *shard, const struct plan_key *key, const struct plan_undo *undo)
{
    uint32_t number = fr_shard_find(shard, key->hash);
    if (number == FR_NO_ENTRY)
        return;
    bool known = undo->state != 0, is_light = number & FR_LIGHT;
    if (undo->state != FR_ENTRY_LIVE && (!known || !is_light))
        fr_entry_drop(shard, number);
    if (!known)
        return;
    if (undo->state != FR_ENTRY_LIVE && !is_light)
        number = fr_entry_make_pending(shard, key->hash, FR_NO_ENTRY);
    struct fr_entry *entry = fr_shard_entry(shard, number);
    *entry = (struct fr_entry){.hash = key->hash,
                               .changed = undo->changed,
                               .state = undo->state,
                               .flags = undo->flags,
                               .reason = undo->reason,
                               .recent = undo->recent,
                               .planned = undo->planned};
    if (undo->state == FR_ENTRY_LIVE) {
        fr_entries_live(&shard->entries, number)->head = undo->head;
    } else {
        fr_entries_light(&shard->entries, number)->seen_ms = undo->seen_ms;
        fr_entries_light(&shard->entries, number)->count = undo->count;
    }
}

static void undo_place(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    uint32_t t = (uint32_t)(index / plan->n_places), p = (uint32_t)(index % plan->n_places);
    struct plan_place *place = &plan->tables[t].places[p];
    struct fr_shard *shard = fr_plan_shard(plan, t, p);
    const struct plan_key *keys = plan->tables[t].keys + place->begin;
    const struct plan_undo *undo = plan->tables[t].undo + place->begin;
    if (place->n_unique == 0)
        return;
    for (uint32_t u = place->n_unique; u > 0; u--)
        undo_key(shard, &keys[u - 1], &undo[u - 1]);
    const struct fr_table *table = fr_plan_subtable(plan, t, p);
    if (table->sketches)
        fr_sketch_revert(&table->sketches[p % FR_SHARDS], &place->sketched);
    shard->n_dirty = place->before.n_dirty; /* a plan only appends to the list */
    shard->dirty_bytes = place->before.dirty_bytes;
    shard->counts = place->before.counts;
}

void fr_store_undo(struct fr_store *store)
{
    /* a slice or a cut in between would have invalidated the numbers of entries */
    FR_CHECK(store->undoable > 0 && !fr_removed_stand(store));
    store->plans--;
    fr_pool_run(store->pool, (size_t)store->n_configured * store->plan->n_places, undo_place, store->plan);
    if (--store->undoable > 0)
        fr_store_swap_plans(store);
}
