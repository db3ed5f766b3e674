/* Memory of a plan and of the rows it resolves. It grows to one and a half times the largest batch
 * seen and is kept. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct rows_box { /* the allocation of fr_store_rows_new */
    struct fr_rows rows;
    size_t *capacity; /* [n_tables] */
};

struct fr_plan *fr_plan_new(struct fr_store *store)
{
    struct fr_plan *plan = fr_alloc(1, sizeof(*plan));
    plan->store = store;
    plan->n_places = store->n_domains * FR_SHARDS;
    plan->tables = fr_alloc(store->n_configured, sizeof(*plan->tables));
    for (uint32_t t = 0; t < store->n_configured; t++)
        plan->tables[t].places = fr_alloc(plan->n_places + 1, sizeof(*plan->tables[t].places));
    plan->n_workers = fr_pool_workers(store->pool);
    plan->workers = fr_alloc(plan->n_workers, sizeof(*plan->workers));
    plan->slot_base = fr_alloc(store->n_slots + 1, sizeof(*plan->slot_base));
    plan->slot_ordinal = fr_alloc(store->n_slots + 1, sizeof(*plan->slot_ordinal));
    return plan;
}

static void release_fetched(struct plan_fetched *fetched)
{
    free(fetched->images);
    free(fetched->missing);
    fr_buffer_release(&fetched->bytes);
}

void fr_plan_free(struct fr_plan *plan)
{
    if (!plan)
        return;
    for (uint32_t t = 0; t < plan->store->n_configured; t++) {
        free(plan->tables[t].records);
        free(plan->tables[t].record_keys);
        free(plan->tables[t].keys);
        free(plan->tables[t].undo);
        for (uint32_t p = 0; p < plan->n_places; p++) {
            release_fetched(&plan->tables[t].places[p].fetched);
            fr_sketch_log_release(&plan->tables[t].places[p].sketched);
        }
        free(plan->tables[t].places);
    }
    for (size_t w = 0; w < plan->n_workers; w++) {
        free(plan->workers[w].heads);
        free(plan->workers[w].hashes);
        free(plan->workers[w].places);
    }
    free(plan->workers);
    fr_plan_free_home(plan->home);
    free(plan->slot_base);
    free(plan->slot_ordinal);
    free(plan->groups);
    free(plan->clicks);
    free(plan->tables);
    free(plan->parts);
    free(plan->units);
    free(plan->at);
    free(plan);
}

size_t fr_plan_bytes(const struct fr_plan *plan)
{
    size_t bytes = plan->capacity_parts * sizeof(*plan->parts) + plan->capacity_units * sizeof(*plan->units) +
                   plan->capacity_at * sizeof(*plan->at) + plan->capacity_groups * sizeof(*plan->groups) +
                   plan->capacity_samples * sizeof(*plan->clicks) +
                   plan->n_workers * (plan->capacity_heads * sizeof(uint32_t) +
                                      plan->capacity_hashes * (sizeof(uint64_t) + sizeof(uint16_t)));
    for (uint32_t t = 0; t < plan->store->n_configured; t++) {
        bytes += plan->tables[t].capacity *
                 (sizeof(struct plan_record) + sizeof(uint32_t) + sizeof(struct plan_key) + sizeof(struct plan_undo));
        for (uint32_t p = 0; p < plan->n_places; p++)
            bytes += plan->tables[t].places[p].sketched.capacity * sizeof(struct fr_sketch_undo);
    }
    return bytes;
}

struct fr_rows *fr_store_rows_new(const struct fr_store *store)
{
    struct rows_box *box = fr_alloc(1, sizeof(*box));
    box->rows.n_tables = store->n_configured;
    box->rows.tables = fr_alloc(store->n_configured, sizeof(*box->rows.tables));
    box->capacity = fr_alloc(store->n_configured, sizeof(*box->capacity));
    box->rows.n_slots = store->n_slots;
    box->rows.slot_base = fr_alloc(store->n_slots, sizeof(*box->rows.slot_base));
    return &box->rows;
}

static void release_table_rows(struct fr_table_rows *rows)
{
    free(rows->keys);
    free(rows->rows);
    free(rows->served);
    free(rows->unique_of);
    free(rows->occ_begin);
    free(rows->occ);
    free(rows->occ_from);
    free(rows->occ_lane);
}

void fr_store_rows_free(struct fr_rows *rows)
{
    if (!rows)
        return;
    for (uint32_t t = 0; t < rows->n_tables; t++)
        release_table_rows(&rows->tables[t]);
    free(rows->tables);
    free(rows->slot_base);
    free(((struct rows_box *)(void *)rows)->capacity);
    free(rows); /* the first member of the box */
}

/* Adds half of what is needed, so that slowly growing batches soon cause no more growth. */
static size_t roomy(size_t n)
{
    return n + n / 2 + 16;
}

void fr_plan_reserve_table(struct fr_plan *plan, uint32_t t)
{
    struct plan_table *table = &plan->tables[t];
    if (table->n_occurrences <= table->capacity && table->records)
        return;
    table->capacity = roomy(table->n_occurrences);
    free(table->records);
    free(table->record_keys);
    free(table->keys);
    free(table->undo);
    table->records = fr_alloc(table->capacity, sizeof(*table->records));
    table->record_keys = fr_alloc(table->capacity, sizeof(*table->record_keys));
    table->keys = fr_alloc(table->capacity, sizeof(*table->keys));
    table->undo = fr_alloc(table->capacity, sizeof(*table->undo));
}

void fr_plan_reserve_rows(struct fr_plan *plan)
{
    struct rows_box *box = (struct rows_box *)(void *)plan->rows;
    memcpy(box->rows.slot_base, plan->slot_base, plan->store->n_slots * sizeof(*plan->slot_base));
    bool lanes = plan->batch->n_lanes > 1;
    for (uint32_t t = 0; t < plan->store->n_configured; t++) {
        struct fr_table_rows *out = &box->rows.tables[t];
        size_t n = plan->tables[t].n_occurrences;
        if (n <= box->capacity[t] && out->keys && lanes == (out->occ_lane != NULL))
            continue;
        size_t capacity = roomy(n);
        release_table_rows(out);
        out->occ_lane = lanes ? fr_alloc(capacity, sizeof(*out->occ_lane)) : NULL;
        out->keys = fr_alloc(capacity, sizeof(*out->keys));
        out->rows = fr_alloc(capacity, sizeof(*out->rows));
        out->served = fr_alloc(capacity, sizeof(*out->served));
        out->unique_of = fr_alloc(capacity, sizeof(*out->unique_of));
        out->occ_begin = fr_alloc(capacity + 1, sizeof(*out->occ_begin));
        out->occ = fr_alloc(capacity, sizeof(*out->occ));
        out->occ_from = fr_alloc(capacity, sizeof(*out->occ_from));
        box->capacity[t] = capacity;
    }
}

void fr_plan_reserve_heads(struct fr_plan *plan, size_t records_max)
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

void fr_plan_reserve_hashes(struct fr_plan *plan, size_t unit_max)
{
    if (unit_max <= plan->capacity_hashes)
        return;
    plan->capacity_hashes = roomy(unit_max);
    for (size_t w = 0; w < plan->n_workers; w++) {
        free(plan->workers[w].hashes);
        free(plan->workers[w].places);
        plan->workers[w].hashes = fr_alloc(plan->capacity_hashes, sizeof(uint64_t));
        plan->workers[w].places = fr_alloc(plan->capacity_hashes, sizeof(uint16_t));
    }
}

void fr_plan_reserve_groups(struct fr_plan *plan, uint32_t n_groups)
{
    if (n_groups <= plan->capacity_groups)
        return;
    plan->capacity_groups = roomy(n_groups);
    free(plan->groups);
    plan->groups = fr_alloc(plan->capacity_groups, sizeof(*plan->groups));
}

void fr_plan_reserve_samples(struct fr_plan *plan, uint32_t n_samples)
{
    if (n_samples <= plan->capacity_samples)
        return;
    plan->capacity_samples = roomy(n_samples);
    free(plan->clicks);
    plan->clicks = fr_alloc(plan->capacity_samples, sizeof(*plan->clicks));
}

void fr_plan_add_part(struct fr_plan *plan, struct plan_part part)
{
    if (plan->n_parts == plan->capacity_parts) {
        plan->capacity_parts = roomy(plan->n_parts);
        plan->parts = fr_realloc(plan->parts, plan->capacity_parts, sizeof(*plan->parts));
    }
    plan->parts[plan->n_parts++] = part;
}

void fr_plan_add_unit(struct fr_plan *plan, struct plan_unit unit)
{
    if (plan->n_units == plan->capacity_units) {
        plan->capacity_units = roomy(plan->n_units);
        plan->units = fr_realloc(plan->units, plan->capacity_units, sizeof(*plan->units));
    }
    plan->units[plan->n_units++] = unit;
}

void fr_plan_reserve_at(struct fr_plan *plan)
{
    size_t need = (size_t)plan->n_units * (plan->n_places + 1);
    if (need <= plan->capacity_at)
        return;
    plan->capacity_at = roomy(need);
    free(plan->at);
    plan->at = fr_alloc(plan->capacity_at, sizeof(*plan->at));
}
