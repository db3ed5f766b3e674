/* Key plane of a batch: from ids to rows.
 *
 * Four passes over the pool, each a barrier, on the occurrences of all tables.
 *
 * count (by unit: a slot, or a part of one): how many of its occurrences fall into each shard of its table.
 *
 * scatter (by unit): one record per occurrence into its shard's region; regions keep the order of occurrences (stable
 * counting sort).
 *
 * resolve (by shard): distinct keys in order of first occurrence, occurrences counted before anything is admitted; then
 * index, gate, touch.
 *
 * publish (by shard): keys, rows and occurrence lists into struct fr_rows, unique numbers shard after shard.
 *
 * Both many small tables and one large table split into enough tasks. Nothing depends on which worker ran what: every
 * order comes from the batch and from the keys' hashes. Sums over a key's samples go by occurrence number.
 *
 * Index lookups go in blocks: prefetch all groups, find all, prefetch all row tails, then apply (group prefetching:
 * Chen, Ailamaki, Gibbons, Mowry 2004). Memory grows to the largest batch seen and stays: no allocation per batch after
 * that.
 *
 * Owner: the owner loop; one plan at a time. Does not: read or write row values beyond a new row's first ones. */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum {
    UNIT_OCCURRENCES = 8192, /* a slot with more is split */
    BLOCK = 32,              /* keys between prefetch and use */
    SAMPLE_BITS = 29,
};

/* What an occurrence may do, beside its sample number. */
#define OCC_COUNTS ((uint32_t)1 << 31)  /* trained sample, slot admits */
#define OCC_TRAINS ((uint32_t)1 << 30)  /* trained sample */
#define OCC_TOUCHES ((uint32_t)1 << 29) /* trained sample, slot touches */
#define OCC_SAMPLE (((uint32_t)1 << SAMPLE_BITS) - 1)

struct plan_record {
    uint64_t hash;
    uint32_t occurrence;
    uint32_t sample; /* OCC_* | sample number; after resolve: number of the key in its shard */
};
_Static_assert(sizeof(struct plan_record) == 16, "the largest scratch array");

struct plan_key {
    uint64_t hash;
    struct fr_entry *entry;
    float *row;
    uint32_t n_occurrences, n_counted, n_touched;
    float clicks;
    bool trained;
};

struct plan_unit {
    uint32_t slot, sample_begin, sample_end;
    uint32_t at[FR_SHARDS]; /* counts, then where its next record of a shard goes */
};

struct plan_table {
    uint32_t n_occurrences;
    size_t capacity;
    struct plan_record *records; /* [n_occurrences] by shard */
    struct plan_key *keys;       /* a shard's keys begin where its records begin */
    uint32_t begin[FR_SHARDS + 1];
    uint32_t n_unique[FR_SHARDS];
    uint32_t unique_begin[FR_SHARDS];
};

struct plan_worker { /* find-or-add table of resolve: number of the key + 1 */
    uint32_t *heads;
};

struct fr_plan {
    const struct fr_store *store;
    struct plan_table *tables;
    size_t n_units, capacity_units;
    struct plan_unit *units;
    size_t n_workers, capacity_heads;
    struct plan_worker *workers;
    /* The call in progress. */
    const struct fr_batch *batch;
    struct fr_rows *rows;
    int64_t watermark_ms;
};

struct rows_box { /* what fr_store_rows_new really makes */
    struct fr_rows rows;
    size_t capacity[FR_TABLES_MAX];
};

/* ---- memory ---- */

struct fr_plan *fr_plan_new(const struct fr_store *store)
{
    struct fr_plan *plan = fr_alloc(1, sizeof(*plan));
    plan->store = store;
    plan->tables = fr_alloc(store->n_tables, sizeof(*plan->tables));
    plan->n_workers = fr_pool_workers(store->pool);
    plan->workers = fr_alloc(plan->n_workers, sizeof(*plan->workers));
    return plan;
}

void fr_plan_free(struct fr_plan *plan)
{
    if (!plan)
        return;
    for (uint32_t t = 0; t < plan->store->n_tables; t++) {
        free(plan->tables[t].records);
        free(plan->tables[t].keys);
    }
    for (size_t w = 0; w < plan->n_workers; w++)
        free(plan->workers[w].heads);
    free(plan->workers);
    free(plan->tables);
    free(plan->units);
    free(plan);
}

size_t fr_plan_bytes(const struct fr_plan *plan)
{
    size_t bytes =
        plan->capacity_units * sizeof(*plan->units) + plan->n_workers * plan->capacity_heads * sizeof(uint32_t);
    for (uint32_t t = 0; t < plan->store->n_tables; t++)
        bytes += plan->tables[t].capacity * (sizeof(struct plan_record) + sizeof(struct plan_key));
    return bytes;
}

struct fr_rows *fr_store_rows_new(const struct fr_store *store)
{
    struct rows_box *box = fr_alloc(1, sizeof(*box));
    box->rows.n_tables = store->n_tables;
    box->rows.tables = fr_alloc(store->n_tables, sizeof(*box->rows.tables));
    box->rows.n_slots = store->n_slots;
    box->rows.slot_base = fr_alloc(store->n_slots, sizeof(*box->rows.slot_base));
    return &box->rows;
}

static void release_table_rows(struct fr_table_rows *rows)
{
    free(rows->keys);
    free(rows->rows);
    free(rows->unique_of);
    free(rows->occ_begin);
    free(rows->occ);
}

void fr_store_rows_free(struct fr_rows *rows)
{
    if (!rows)
        return;
    for (uint32_t t = 0; t < rows->n_tables; t++)
        release_table_rows(&rows->tables[t]);
    free(rows->tables);
    free(rows->slot_base);
    free(rows); /* the box begins with it */
}

/* Half as much again beyond what is needed, so that slowly growing batches settle. */
static size_t roomy(size_t n)
{
    return n + n / 2 + 16;
}

static void reserve_table(struct plan_table *table, struct fr_rows *rows, uint32_t t)
{
    size_t n = table->n_occurrences;
    if (n > table->capacity || !table->records) {
        table->capacity = roomy(n);
        free(table->records);
        free(table->keys);
        table->records = fr_alloc(table->capacity, sizeof(*table->records));
        table->keys = fr_alloc(table->capacity, sizeof(*table->keys));
    }
    struct rows_box *box = (struct rows_box *)(void *)rows;
    struct fr_table_rows *out = &rows->tables[t];
    if (n > box->capacity[t] || !out->keys) {
        size_t capacity = roomy(n);
        release_table_rows(out);
        out->keys = fr_alloc(capacity, sizeof(*out->keys));
        out->rows = fr_alloc(capacity, sizeof(*out->rows));
        out->unique_of = fr_alloc(capacity, sizeof(*out->unique_of));
        out->occ_begin = fr_alloc(capacity + 1, sizeof(*out->occ_begin));
        out->occ = fr_alloc(capacity, sizeof(*out->occ));
        box->capacity[t] = capacity;
    }
}

static void reserve_heads(struct fr_plan *plan, size_t records_max)
{
    size_t need = 16;
    while (need < 2 * records_max)
        need *= 2;
    if (need <= plan->capacity_heads)
        return;
    plan->capacity_heads = need;
    for (size_t w = 0; w < plan->n_workers; w++) {
        free(plan->workers[w].heads);
        plan->workers[w].heads = fr_alloc(need, sizeof(uint32_t));
    }
}

/* ---- layout, count, scatter ---- */

static void add_unit(struct fr_plan *plan, struct plan_unit unit)
{
    if (plan->n_units == plan->capacity_units) {
        plan->capacity_units = roomy(plan->n_units);
        plan->units = fr_realloc(plan->units, plan->capacity_units, sizeof(*plan->units));
    }
    plan->units[plan->n_units++] = unit;
}

static void lay_out(struct fr_plan *plan)
{
    const struct fr_store *store = plan->store;
    const struct fr_batch *batch = plan->batch;
    plan->n_units = 0;
    for (uint32_t t = 0; t < store->n_tables; t++)
        plan->tables[t].n_occurrences = 0;
    for (uint32_t s = 0; s < store->n_slots; s++) {
        plan->rows->slot_base[s] = 0;
        if (store->slots[s].table == FR_NO_INDEX)
            continue;
        FR_CHECK(!batch->columns[s].shared); /* every slot is per sample in this version */
        uint32_t n = batch->n_samples ? batch->columns[s].begin[batch->n_samples] : 0;
        struct plan_table *table = &plan->tables[store->slots[s].table];
        plan->rows->slot_base[s] = table->n_occurrences;
        FR_CHECK(n <= UINT32_MAX - table->n_occurrences);
        table->n_occurrences += n;
        if (n == 0)
            continue;
        uint32_t pieces = n / UNIT_OCCURRENCES + 1;
        uint32_t step = batch->n_samples / pieces + 1;
        for (uint32_t i = 0; i < batch->n_samples; i += step) {
            uint32_t end = batch->n_samples - i < step ? batch->n_samples : i + step;
            add_unit(plan, (struct plan_unit){.slot = s, .sample_begin = i, .sample_end = end});
        }
    }
    for (uint32_t t = 0; t < store->n_tables; t++)
        reserve_table(&plan->tables[t], plan->rows, t);
}

static void count_unit(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    struct plan_unit *unit = &plan->units[index];
    const struct fr_column *column = &plan->batch->columns[unit->slot];
    uint32_t counts[FR_SHARDS] = {0};
    for (uint32_t o = column->begin[unit->sample_begin]; o < column->begin[unit->sample_end]; o++)
        counts[fr_shard_of(fr_fmix64(column->keys[o]))]++;
    memcpy(unit->at, counts, sizeof(counts));
}

/* Counts become places: shard after shard, in it unit after unit (units are in slot and sample order). */
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
    reserve_heads(plan, records_max);
}

static void scatter_unit(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct fr_plan *plan = context;
    struct plan_unit *unit = &plan->units[index];
    const struct fr_store_slot *slot = &plan->store->slots[unit->slot];
    const struct fr_column *column = &plan->batch->columns[unit->slot];
    struct plan_record *records = plan->tables[slot->table].records;
    uint32_t base = plan->rows->slot_base[unit->slot];
    uint32_t trained = OCC_TRAINS | (slot->admit ? OCC_COUNTS : 0) | (slot->touch ? OCC_TOUCHES : 0);
    for (uint32_t i = unit->sample_begin; i < unit->sample_end; i++) {
        uint32_t sample = i | (plan->batch->role[i] == FR_ROLE_TRAIN ? trained : 0);
        for (uint32_t o = column->begin[i]; o < column->begin[i + 1]; o++) {
            uint64_t hash = fr_fmix64(column->keys[o]);
            records[unit->at[fr_shard_of(hash)]++] =
                (struct plan_record){.hash = hash, .occurrence = base + o, .sample = sample};
        }
    }
}

/* ---- resolve ---- */

/* Distinct keys of n records, in order of first occurrence, and what their occurrences add up to. */
static uint32_t gather_keys(struct plan_record *records, uint32_t n, const float *clicks, uint32_t *heads,
                            struct plan_key *keys)
{
    uint32_t size = 16;
    while (size < 2 * n)
        size *= 2;
    memset(heads, 0, size * sizeof(*heads));
    uint32_t n_keys = 0;
    for (uint32_t r = 0; r < n; r++) {
        uint64_t hash = records[r].hash;
        uint32_t at = (uint32_t)hash & (size - 1);
        while (heads[at] && keys[heads[at] - 1].hash != hash)
            at = (at + 1) & (size - 1);
        if (!heads[at]) {
            keys[n_keys] = (struct plan_key){.hash = hash};
            heads[at] = ++n_keys;
        }
        struct plan_key *key = &keys[heads[at] - 1];
        uint32_t sample = records[r].sample;
        key->n_occurrences++;
        key->n_counted += (sample & OCC_COUNTS) != 0;
        key->trained |= (sample & OCC_TRAINS) != 0;
        if (sample & OCC_TOUCHES) {
            key->n_touched++;
            float click = clicks ? clicks[sample & OCC_SAMPLE] : 0.0f;
            if (click > 0.0f) /* false for a masked label (NaN) */
                key->clicks += click;
        }
        records[r].sample = heads[at] - 1;
    }
    return n_keys;
}

struct resolve {
    const struct fr_plan *plan;
    const struct fr_table *table;
    struct fr_shard *shard;
};

static void admit(const struct resolve *r, struct plan_key *key)
{
    struct fr_shard *shard = r->shard;
    struct fr_entry *entry = key->entry;
    float *row = fr_entry_make_live(shard, entry);
    fr_row_init(r->plan->store, r->table, fr_fmix64_inverse(entry->hash), row);
    fr_row_tail(r->table, row)->seen_ms = r->plan->watermark_ms;
    if (entry->flags & FR_ENTRY_DIRTY) /* as pending: its image has grown */
        shard->dirty_bytes += r->table->image_size;
    fr_entry_mark_dirty(shard, entry, r->table->image_size);
    shard->counters.admitted++;
}

/* A key without a row that trained occurrences may count for. */
static void count_key(const struct resolve *r, struct plan_key *key)
{
    struct fr_shard *shard = r->shard;
    const struct fr_gate_policy *gate = &r->table->spec.gate;
    bool pending = key->entry && key->entry->state == FR_ENTRY_PENDING;
    uint32_t count = pending ? key->entry->count : 0;
    if (__builtin_add_overflow(count, key->n_counted, &count))
        count = UINT32_MAX;
    bool admitted = gate->admits(gate->config, count);
    if (!admitted) {
        shard->counters.rejected += key->n_counted;
        if (!pending && shard->n_pending >= shard->pending_max) {
            shard->counters.unremembered++;
            return;
        }
    }
    if (!key->entry)
        key->entry = fr_index_insert(&shard->index, key->hash);
    if (admitted) {
        admit(r, key);
        return;
    }
    if (!pending)
        fr_entry_make_pending(shard, key->entry);
    key->entry->count = count;
    key->entry->seen_ms = r->plan->watermark_ms;
    fr_entry_mark_dirty(shard, key->entry, FR_PENDING_IMAGE_SIZE);
}

static void apply_key(const struct resolve *r, struct plan_key *key)
{
    bool live = key->entry && key->entry->state == FR_ENTRY_LIVE;
    if (!live && key->n_counted > 0)
        count_key(r, key);
    if (!key->entry || key->entry->state != FR_ENTRY_LIVE)
        return;
    key->row = key->entry->row;
    if (key->trained) /* its values will change in this batch's step, touched or not */
        fr_entry_mark_dirty(r->shard, key->entry, r->table->image_size);
    if (key->n_touched > 0) {
        struct fr_row_tail *tail = fr_row_tail(r->table, key->row);
        tail->seen_ms = r->plan->watermark_ms;
        tail->show += (float)key->n_touched;
        tail->click += key->clicks;
    }
}

static void resolve_keys(const struct resolve *r, struct plan_key *keys, uint32_t n)
{
    uint32_t n_counted = 0;
    for (uint32_t u = 0; u < n; u++)
        n_counted += keys[u].n_counted > 0;
    (void)fr_index_prepare(&r->shard->index, n_counted);
    for (uint32_t begin = 0; begin < n; begin += BLOCK) {
        uint32_t end = n - begin < BLOCK ? n : begin + BLOCK;
        for (uint32_t u = begin; u < end; u++)
            fr_index_prefetch(&r->shard->index, keys[u].hash);
        for (uint32_t u = begin; u < end; u++) {
            keys[u].entry = fr_index_find(&r->shard->index, keys[u].hash);
            if (keys[u].entry && keys[u].entry->state == FR_ENTRY_LIVE)
                __builtin_prefetch(fr_row_tail(r->table, keys[u].entry->row), 1);
        }
        for (uint32_t u = begin; u < end; u++)
            apply_key(r, &keys[u]);
    }
}

static void resolve_shard(void *context, size_t index, size_t worker)
{
    struct fr_plan *plan = context;
    uint32_t t = (uint32_t)(index / FR_SHARDS), s = (uint32_t)(index % FR_SHARDS);
    struct plan_table *scratch = &plan->tables[t];
    uint32_t begin = scratch->begin[s], n = scratch->begin[s + 1] - begin;
    scratch->n_unique[s] = 0;
    if (n == 0)
        return;
    struct resolve r = {.plan = plan, .table = &plan->store->tables[t]};
    r.shard = &r.table->shards[s];
    const float *clicks = plan->batch->n_labels > 0 ? plan->batch->labels : NULL;
    struct plan_key *keys = scratch->keys + begin;
    uint32_t n_keys = gather_keys(scratch->records + begin, n, clicks, plan->workers[worker].heads, keys);
    resolve_keys(&r, keys, n_keys);
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
        out->keys[base + u] = fr_fmix64_inverse(keys[u].hash);
        out->rows[base + u] = keys[u].row;
        out->occ_begin[base + u] = at;
        uint32_t n = keys[u].n_occurrences;
        keys[u].n_occurrences = at; /* from here on: where its next occurrence goes */
        at += n;
    }
    for (uint32_t r = table->begin[s]; r < table->begin[s + 1]; r++) {
        uint32_t u = table->records[r].sample, occurrence = table->records[r].occurrence;
        out->unique_of[occurrence] = base + u;
        out->occ[keys[u].n_occurrences++] = occurrence;
    }
}

void fr_store_plan(struct fr_store *store, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows)
{
    struct fr_plan *plan = store->plan;
    FR_CHECK(batch->n_slots == store->n_slots && rows->n_slots == store->n_slots && rows->n_tables == store->n_tables);
    FR_CHECK(batch->n_samples <= OCC_SAMPLE);
    plan->batch = batch;
    plan->rows = rows;
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
    plan->rows = NULL;
}
