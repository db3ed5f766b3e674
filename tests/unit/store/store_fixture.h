/* What the store's tests share: small tables and slots described in one line each, batches filled
 * by hand, and a step that changes rows as a trainer would. */
#ifndef FR_TESTS_STORE_FIXTURE_H
#define FR_TESTS_STORE_FIXTURE_H

#include <math.h>
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "eviction/eviction.h"
#include "store/store.h"
#include "store_find.h"
#include "../../../store/durable/epoch_layout.h"

enum { TEST_TABLES = 4, TEST_SLOTS = 8, TEST_SAMPLES = 64, TEST_SLOT_KEYS = 1024, TEST_DIM = 3, TEST_ROW_FLOATS = 5 };

struct world { /* everything that a store borrows */
    struct fr_pool *pool;
    struct fr_conf conf;
    struct fr_conf_slot slots[TEST_SLOTS];
    struct fr_store_table tables[TEST_TABLES];
    struct fr_gate_count gates[TEST_TABLES];
    struct fr_expire_idle idles[TEST_TABLES];
    uint32_t n_tables;
    struct fr_store *store;
    struct fr_rows *rows;
};

/* A table of one part: 3 values (normal), 2 floats of state that start at 0.5. idle 0: rows never
 * expire. */
static inline void world_add_table(struct world *w, uint32_t count, int64_t gate_idle_ms, int64_t idle_ms)
{
    uint32_t t = w->n_tables++;
    assert_true(t < TEST_TABLES);
    w->gates[t] = (struct fr_gate_count){.count = count, .idle_ms = gate_idle_ms};
    w->idles[t] = (struct fr_expire_idle){.idle_ms = idle_ms};
    struct fr_store_table *table = &w->tables[t];
    *table = (struct fr_store_table){.layout = {.n_parts = 1, .value_floats = TEST_DIM, .row_floats = TEST_ROW_FLOATS}};
    snprintf(table->name, sizeof(table->name), "table%u", t);
    table->layout.parts[0] = (struct fr_layout_part){.dim = TEST_DIM,
                                                     .state_offset = TEST_DIM,
                                                     .state_floats = TEST_ROW_FLOATS - TEST_DIM,
                                                     .state_initial = 0.5f,
                                                     .init = {.kind = FR_INIT_NORMAL, .scale = 0.1f}};
    table->gate = fr_gate_count_policy(&w->gates[t]);
    table->pending_max = 1 << 20;
    table->n_expiries = idle_ms > 0;
    table->expiries[0] = fr_expire_idle_policy(&w->idles[t]);
    table->expire_every = 1;
}

static inline void world_add_slot(struct world *w, int32_t table, bool admit, bool touch)
{
    uint32_t s = w->conf.n_slots++;
    assert_true(s < TEST_SLOTS);
    w->slots[s] = (struct fr_conf_slot){
        .kind = table == FR_NO_INDEX ? FR_SLOT_DENSE : FR_SLOT_SPARSE, .table = table, .admit = admit, .touch = touch};
}

static inline void world_open(struct world *w, size_t workers)
{
    w->conf.slots = w->slots;
    w->pool = fr_pool_new(workers);
    w->store = fr_store_new(&(struct fr_store_options){
        .n_tables = w->n_tables, .tables = w->tables, .seed = 7, .pool = w->pool, .conf = &w->conf});
    w->rows = fr_store_rows_new(w->store);
}

static inline void world_close(struct world *w)
{
    fr_store_rows_free(w->rows);
    fr_store_free(w->store);
    fr_pool_free(w->pool);
    w->rows = NULL;
    w->store = NULL;
    w->pool = NULL;
}

/* One table, one slot that admits and touches. */
static inline void world_simple(struct world *w, uint32_t gate_count, int64_t idle_ms)
{
    *w = (struct world){0};
    world_add_table(w, gate_count, 0, idle_ms);
    world_add_slot(w, 0, true, true);
    world_open(w, 1);
}

struct test_batch {
    struct fr_batch batch;
    struct fr_column columns[TEST_SLOTS];
    uint32_t begin[TEST_SLOTS][TEST_SAMPLES + 1];
    uint64_t keys[TEST_SLOTS][TEST_SLOT_KEYS];
    uint8_t role[TEST_SAMPLES];
    uint64_t origin[TEST_SAMPLES], first_origin; /* ascend from it */
    float labels[TEST_SAMPLES];
    uint32_t group_begin[TEST_SAMPLES + 1], group_of[TEST_SAMPLES];
};

static inline void batch_begin(struct test_batch *b, const struct world *w)
{
    memset(b, 0, sizeof(*b));
    b->batch.n_slots = w->conf.n_slots;
    b->batch.columns = b->columns;
    b->batch.role = b->role;
    b->batch.origin = b->origin;
    b->batch.labels = b->labels;
    b->batch.group_begin = b->group_begin;
    b->batch.group_of = b->group_of;
    b->batch.n_labels = 1;
    b->batch.capacity_samples = TEST_SAMPLES;
    for (uint32_t s = 0; s < w->conf.n_slots; s++) {
        if (fr_slot_has_numbers(w->slots[s].kind))
            continue;
        b->columns[s].begin = b->begin[s];
        b->columns[s].keys = b->keys[s];
    }
}

/* A sample without ids, a group of its own; batch_id adds to the last one. */
static inline void batch_sample(struct test_batch *b, enum fr_role role, float label)
{
    uint32_t i = b->batch.n_samples++;
    assert_true(i < TEST_SAMPLES);
    b->role[i] = (uint8_t)role;
    b->origin[i] = b->first_origin + i;
    b->labels[i] = label;
    b->group_of[i] = b->batch.n_groups++;
    b->group_begin[b->batch.n_groups] = i + 1;
    for (uint32_t s = 0; s < b->batch.n_slots; s++) {
        uint32_t entry = b->columns[s].shared ? b->group_of[i] : i;
        b->begin[s][entry + 1] = b->begin[s][entry];
    }
}

/* A sample of the last group, which shares the slots marked in b->columns[s].shared. */
static inline void batch_item(struct test_batch *b, enum fr_role role, float label)
{
    uint32_t i = b->batch.n_samples++;
    assert_true(i < TEST_SAMPLES && b->batch.n_groups > 0);
    b->role[i] = (uint8_t)role;
    b->origin[i] = b->first_origin + i;
    b->labels[i] = label;
    b->group_of[i] = b->batch.n_groups - 1;
    b->group_begin[b->batch.n_groups] = i + 1;
    for (uint32_t s = 0; s < b->batch.n_slots; s++)
        if (!b->columns[s].shared)
            b->begin[s][i + 1] = b->begin[s][i];
}

static inline void batch_id(struct test_batch *b, uint32_t slot, uint64_t key)
{
    uint32_t *end = &b->begin[slot][fr_batch_entries(&b->batch, slot)];
    assert_true(*end < TEST_SLOT_KEYS);
    b->keys[slot][(*end)++] = key;
}

/* One trained sample with n occurrences of a key in slot 0, label 0; planned at once. */
static inline void plan_key_times(struct world *w, uint64_t key, uint32_t n, int64_t watermark_ms)
{
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, w);
    batch_sample(b, FR_ROLE_TRAIN, 0.0f);
    for (uint32_t i = 0; i < n; i++)
        batch_id(b, 0, key);
    fr_store_plan(w->store, &b->batch, watermark_ms, w->rows);
    free(b);
}

static inline bool is_live(const struct world *w, uint32_t table, uint64_t key)
{
    struct fr_store_view view;
    return fr_store_find(w->store, table, key, &view) == FR_OK && view.kind == FR_IMAGE_ROW;
}

/* Changes the rows that some trained sample refers to, by an amount that depends on the occurrence
 * numbers and on their order (a sum of floats depends on its order). */
static inline void step_rows(const struct world *w, const struct test_batch *b)
{
    for (uint32_t t = 0; t < w->n_tables; t++) {
        const struct fr_table_rows *rows = &w->rows->tables[t];
        uint8_t *trained = fr_alloc(rows->n_occurrences, 1);
        for (uint32_t s = 0; s < w->conf.n_slots; s++)
            for (uint32_t i = 0; w->slots[s].table == (int32_t)t && i < b->batch.n_samples; i++)
                for (uint32_t o = b->begin[s][i]; o < b->begin[s][i + 1]; o++)
                    trained[w->rows->slot_base[s] + o] = b->role[i] == FR_ROLE_TRAIN;
        for (uint32_t u = 0; u < rows->n_unique; u++)
            for (uint32_t i = rows->occ_begin[u]; rows->rows[u] && i < rows->occ_begin[u + 1]; i++)
                for (uint32_t j = 0; trained[rows->occ[i]] && j < TEST_ROW_FLOATS; j++)
                    rows->rows[u][j] = rows->rows[u][j] * 0.9f + (float)(rows->occ[i] + j) * 0.01f;
        free(trained);
    }
}

/* xorshift64*: enough for test data. */
static inline uint64_t test_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dULL;
}

/* Key number i of a small universe, which includes values that code might reserve. */
static inline uint64_t test_key(uint64_t i)
{
    if (i < 3)
        return i; /* 0, 1, 2 */
    if (i == 3)
        return UINT64_MAX;
    if (i < 12)
        return fr_fmix64_inverse(i); /* hash in the lowest group of shard 0 */
    return fr_fmix64(i * 0x9e3779b97f4a7c15ULL);
}

/* A seed from FR_TEST_SEED repeats one case. */
static inline uint64_t test_seed(uint64_t standard)
{
    const char *text = getenv("FR_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : standard;
}

/* Random batch over every sparse slot: up to 3 ids each, all roles, labels 0, 1 and masked. */
static inline void random_batch(struct test_batch *b, const struct world *w, uint64_t *random, uint32_t universe)
{
    batch_begin(b, w);
    uint32_t n = 1 + (uint32_t)(test_random(random) % TEST_SAMPLES);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t role = test_random(random) % 8;
        float label = (float)(test_random(random) % 2);
        if (test_random(random) % 8 == 0)
            label = nanf("");
        batch_sample(b, role < 6 ? FR_ROLE_TRAIN : role == 6 ? FR_ROLE_METRICS_ONLY : FR_ROLE_MASKED, label);
        for (uint32_t s = 0; s < w->conf.n_slots; s++) {
            if (fr_slot_has_numbers(w->slots[s].kind))
                continue;
            for (uint64_t k = test_random(random) % 4; k > 0; k--) {
                /* The smaller of two draws, so that some keys are frequent. */
                uint64_t x = test_random(random) % universe, y = test_random(random) % universe;
                batch_id(b, s, test_key(x < y ? x : y));
            }
        }
    }
}

/* Appends the same random sample to both forms. */
static inline void random_item(struct test_batch *grouped, struct test_batch *expanded, uint64_t *random, bool first)
{
    const float labels[] = {0.0f, 1.0f, 0.1f, 0.7f, -1.0f, nanf("")};
    float label = labels[test_random(random) % FR_ARRAY_LEN(labels)];
    uint64_t roll = test_random(random) % 8;
    enum fr_role role = roll < 4 ? FR_ROLE_TRAIN : roll < 6 ? FR_ROLE_METRICS_ONLY : FR_ROLE_MASKED;
    batch_sample(expanded, role, label);
    if (first)
        batch_sample(grouped, role, label);
    else
        batch_item(grouped, role, label);
}

/* The same random samples in both forms: groups of one to eight whose odd slots are shared
 * (`grouped`), and every sample with all of its ids (`expanded`). */
static inline void random_groups(struct test_batch *grouped, struct test_batch *expanded, const struct world *w,
                                 uint64_t *random)
{
    batch_begin(grouped, w);
    batch_begin(expanded, w);
    for (uint32_t s = 1; s < w->conf.n_slots; s += 2)
        grouped->columns[s].shared = true;
    uint64_t ids[TEST_SLOTS][3];
    uint32_t n_ids[TEST_SLOTS] = {0};
    uint64_t n = 1 + test_random(random) % TEST_SAMPLES, left = 0;
    for (; n > 0; n--, left--) {
        bool first = left == 0;
        if (first)
            left = 1 + test_random(random) % 8;
        random_item(grouped, expanded, random, first);
        for (uint32_t s = 0; s < w->conf.n_slots; s++) {
            if (fr_slot_has_numbers(w->slots[s].kind))
                continue;
            if (first || !grouped->columns[s].shared) {
                n_ids[s] = (uint32_t)(test_random(random) % 4);
                for (uint32_t k = 0; k < n_ids[s]; k++) {
                    ids[s][k] = test_key(test_random(random) % 200);
                    batch_id(grouped, s, ids[s][k]);
                }
            }
            for (uint32_t k = 0; k < n_ids[s]; k++)
                batch_id(expanded, s, ids[s][k]);
        }
    }
}

/* The images of a stage that the cut wrote, for fr_epoch_next. */
static inline struct fr_epoch stage_view(const struct fr_stage *stage)
{
    const uint8_t *begin = stage->n_ordered ? stage->record.data + STAGE_IMAGES : NULL;
    return (struct fr_epoch){
        .n_images = stage->n_ordered, .images_begin = begin, .images_end = begin + stage->ordered_bytes};
}

#endif
