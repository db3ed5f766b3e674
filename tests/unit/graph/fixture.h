/* A small world for graph tests: a configuration (by hand or from text), batches in plain or
 * grouped form, resolved rows and the memory of the rows. */
#ifndef FR_TESTS_GRAPH_FIXTURE_H
#define FR_TESTS_GRAPH_FIXTURE_H

#include <math.h>
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "graph/graph.h"
#include "whole_state.h"

enum { FX_SLOTS = 32, FX_LAYERS = 8, FX_REFS = 32 };

struct fixture {
    struct fr_conf conf;    /* by hand: over the arrays below; from text: a copy of *loaded */
    struct fr_conf *loaded; /* from text; owns what conf points to */
    struct fr_conf_table tables[FX_SLOTS];
    struct fr_conf_slot slots[FX_SLOTS];
    struct fr_conf_label labels[4];
    struct fr_conf_layer layers[FX_LAYERS];
    struct fr_conf_ref refs[FX_LAYERS][FX_REFS];
    struct fr_conf_task tasks[4];
    /* ids 0 .. vocabulary - 1 in every table; those with id % 7 == 3 have no row */
    uint32_t vocabulary;
    struct fr_row_layout layouts[FX_SLOTS];
    float *row_memory[FX_SLOTS];
    struct fr_batch batch;
    struct fr_rows rows;
};

static inline double fx_uniform(uint64_t seed, uint64_t a, uint64_t b)
{
    return fr_random_uniform(seed, 77, a, b);
}

/* ---- configuration ---- */

static inline void fx_init(struct fixture *fx, uint32_t vocabulary)
{
    memset(fx, 0, sizeof(*fx));
    fx->vocabulary = vocabulary;
    fx->conf.seed = 1;
    fx->conf.chunk_rows = FR_CHUNK_ROWS;
    /* a layer's unit is one sample, so that gradients of layers are sums */
    fx->conf.ingest.batch_size = 1;
    fx->conf.tables = fx->tables;
    fx->conf.slots = fx->slots;
    fx->conf.labels = fx->labels;
    fx->conf.layers = fx->layers;
    fx->conf.tasks = fx->tasks;
    fx->conf.n_labels = 1;
    fx->conf.dense_optimizer =
        (struct fr_optimizer){.kind = FR_OPT_ADAM, .lr = 0.001f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
}

/* Tables, slots, labels and all the rest from configuration text. */
static inline void fx_load(struct fixture *fx, uint32_t vocabulary, const char *text)
{
    memset(fx, 0, sizeof(*fx));
    fx->vocabulary = vocabulary;
    struct fr_buffer problems = {0};
    struct fr_conf_load_options options = {.path = "test.yaml", .text = text};
    if (fr_conf_load(&options, &fx->loaded, &problems) != FR_OK)
        fail_msg("%.*s", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&problems);
    fx->conf = *fx->loaded;
    fx->conf.ingest.batch_size = 1;
    for (uint32_t t = 0; t < fx->conf.n_tasks; t++)
        fx->conf.tasks[t].bias_from_labels = false; /* a bias that labels move is no gradient */
    assert_true(fx->conf.n_tables <= FX_SLOTS && fx->conf.n_slots <= FX_SLOTS);
}

static inline struct fr_optimizer fx_optimizer(enum fr_optimizer_kind kind, float lr)
{
    return (struct fr_optimizer){.kind = kind,
                                 .lr = lr,
                                 .eps = 1e-8f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.999f,
                                 .momentum = 0.9f,
                                 .rho = 0.99f,
                                 .beta = 1.0f,
                                 .decay_rate = 0.5f};
}

static inline struct fr_conf_table *fx_table(struct fixture *fx, const char *name)
{
    struct fr_conf_table *table = &fx->tables[fx->conf.n_tables++];
    snprintf(table->name, sizeof(table->name), "%s", name);
    return table;
}

static inline void fx_part(struct fr_conf_table *table, const char *name, uint32_t dim, enum fr_optimizer_kind kind)
{
    struct fr_conf_part *part = &table->parts[table->n_parts++];
    snprintf(part->name, sizeof(part->name), "%s", name);
    part->dim = dim;
    part->optimizer = fx_optimizer(kind, 0.05f);
}

static inline int32_t fx_slot(struct fixture *fx, const char *name, int32_t table, uint32_t dim)
{
    struct fr_conf_slot *slot = &fx->slots[fx->conf.n_slots];
    snprintf(slot->name, sizeof(slot->name), "%s", name);
    slot->kind = table == FR_NO_INDEX ? FR_SLOT_DENSE : FR_SLOT_SPARSE;
    slot->table = table;
    slot->dim = dim;
    return (int32_t)fx->conf.n_slots++;
}

static inline struct fr_conf_layer *fx_layer(struct fixture *fx, const char *name, enum fr_layer_op op)
{
    uint32_t l = fx->conf.n_layers++;
    struct fr_conf_layer *layer = &fx->layers[l];
    snprintf(layer->name, sizeof(layer->name), "%s", name);
    layer->op = op;
    layer->refs = fx->refs[l];
    layer->init.kind = FR_INIT_DEFAULT;
    layer->line = 40 + l;
    return layer;
}

static inline void fx_pooled(struct fr_conf_layer *layer, int32_t slot, int32_t part, enum fr_pooling pooling)
{
    layer->refs[layer->n_refs++] = (struct fr_conf_ref){FR_REF_POOLED, slot, part, pooling};
}

static inline void fx_dense(struct fr_conf_layer *layer, int32_t slot)
{
    layer->refs[layer->n_refs++] = (struct fr_conf_ref){FR_REF_DENSE, slot, 0, FR_POOL_SUM};
}

static inline int32_t fx_index(const struct fixture *fx, const struct fr_conf_layer *layer)
{
    return (int32_t)(layer - fx->layers);
}

static inline void fx_input(const struct fixture *fx, struct fr_conf_layer *layer, const struct fr_conf_layer *from)
{
    layer->refs[layer->n_refs++] = (struct fr_conf_ref){FR_REF_LAYER, fx_index(fx, from), 0, FR_POOL_SUM};
}

static inline void fx_units(struct fr_conf_layer *layer, enum fr_activation activation, uint32_t n,
                            const uint32_t *units)
{
    layer->n_units = n;
    layer->activation = activation;
    memcpy(layer->units, units, n * sizeof(*units));
}

static inline void fx_task(struct fixture *fx, const char *name, int32_t label, const struct fr_conf_layer *logit,
                           float weight)
{
    struct fr_conf_task *task = &fx->tasks[fx->conf.n_tasks++];
    snprintf(task->name, sizeof(task->name), "%s", name);
    task->label = label;
    task->logit = fx_index(fx, logit);
    task->weight = weight;
}

static inline uint32_t fx_ref_width(const struct fixture *fx, const struct fr_conf_ref *ref)
{
    if (ref->kind == FR_REF_LAYER)
        return fx->conf.layers[ref->index].width;
    const struct fr_conf_slot *slot = &fx->conf.slots[ref->index];
    return ref->kind == FR_REF_DENSE ? slot->dim : fx->conf.tables[slot->table].parts[ref->part].dim;
}

/* Widths of layers made by hand: the first operations only. */
static inline void fx_widths(struct fixture *fx)
{
    for (uint32_t l = 0; l < fx->conf.n_layers; l++) {
        struct fr_conf_layer *layer = &fx->conf.layers[l];
        uint32_t total = 0;
        for (uint32_t i = 0; i < layer->n_refs; i++)
            total += fx_ref_width(fx, &layer->refs[i]);
        layer->width = layer->op == FR_LAYER_CONCAT ? total
                       : layer->n_units > 0         ? layer->units[layer->n_units - 1]
                                                    : total / layer->n_refs;
        layer->role_begin[1] = layer->role_begin[2] = layer->n_refs;
    }
}

static inline struct fr_graph *fx_graph(struct fixture *fx, const struct fr_ops *ops, struct fr_pool *pool)
{
    struct fr_graph_options options = {.conf = &fx->conf, .ops = ops, .pool = pool};
    if (!fx->loaded)
        fx_widths(fx);
    return fr_graph_new(&options);
}

/* Sets the counts as if enough samples had been counted, so that standardized slots give numbers
 * from the first batch on. */
static inline void fx_count_enough(struct fr_graph *graph)
{
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        if (strstr(fr_graph_parameters(graph)[p].name, "/count"))
            fr_graph_parameters(graph)[p].values[0] = 100.0f;
}

/* ---- rows ---- */

/* Rows with seeded values in +-0.2 and the layout's initial state. */
static inline void fx_make_rows(struct fixture *fx, uint64_t seed)
{
    for (uint32_t t = 0; t < fx->conf.n_tables; t++) {
        struct fr_row_layout *layout = &fx->layouts[t];
        fr_graph_row_layout(&fx->conf.tables[t], layout);
        free(fx->row_memory[t]);
        fx->row_memory[t] = fr_alloc_aligned(64, (size_t)fx->vocabulary * layout->row_floats * sizeof(float));
        for (uint32_t id = 0; id < fx->vocabulary; id++) {
            float *row = fx->row_memory[t] + (size_t)id * layout->row_floats;
            for (uint32_t i = 0; i < layout->value_floats; i++)
                row[i] = (float)(0.4 * fx_uniform(seed, t * 1000003ull + id, i) - 0.2);
            for (uint32_t p = 0; p < layout->n_parts; p++)
                for (uint32_t i = 0; i < layout->parts[p].state_floats; i++)
                    row[layout->parts[p].state_offset + i] = layout->parts[p].state_initial;
        }
    }
}

static inline void fx_rows_release(struct fixture *fx)
{
    for (uint32_t t = 0; t < fx->rows.n_tables; t++) {
        free(fx->rows.tables[t].keys);
        free(fx->rows.tables[t].rows);
        free(fx->rows.tables[t].served);
        free(fx->rows.tables[t].unique_of);
        free(fx->rows.tables[t].occ_begin);
        free(fx->rows.tables[t].occ);
        free(fx->rows.tables[t].occ_from);
        free(fx->rows.tables[t].occ_lane);
    }
    free(fx->rows.tables);
    free(fx->rows.slot_base);
    memset(&fx->rows, 0, sizeof(fx->rows));
}

static inline void fx_batch_release(struct fixture *fx)
{
    for (uint32_t s = 0; s < fx->batch.n_slots; s++) {
        free(fx->batch.columns[s].begin);
        free(fx->batch.columns[s].keys);
        free(fx->batch.columns[s].weights);
        free(fx->batch.columns[s].dense);
    }
    free(fx->batch.columns);
    free(fx->batch.group_begin);
    free(fx->batch.group_of);
    free(fx->batch.lane_begin);
    free(fx->batch.role);
    free(fx->batch.use);
    free(fx->batch.keep);
    free(fx->batch.labels);
    free(fx->batch.weights);
    memset(&fx->batch, 0, sizeof(fx->batch));
    fx_rows_release(fx);
}

static inline void fx_release(struct fixture *fx)
{
    fx_batch_release(fx);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        free(fx->row_memory[t]);
    fr_conf_free(fx->loaded);
}

static inline uint32_t fx_ids(const struct fixture *fx, uint32_t slot)
{
    return fx->batch.columns[slot].begin[fr_batch_entries(&fx->batch, slot)];
}

/* Resolves the batch's keys: unique keys by first occurrence. */
static inline void fx_resolve(struct fixture *fx)
{
    struct fr_rows *rows = &fx->rows;
    fx_rows_release(fx);
    rows->n_tables = fx->conf.n_tables;
    rows->n_slots = fx->conf.n_slots;
    rows->tables = fr_alloc(rows->n_tables, sizeof(*rows->tables));
    rows->slot_base = fr_alloc(rows->n_slots, sizeof(*rows->slot_base));
    for (uint32_t t = 0; t < rows->n_tables; t++) {
        struct fr_table_rows *table = &rows->tables[t];
        uint32_t n = 0;
        for (uint32_t s = 0; s < fx->conf.n_slots; s++)
            if (fx->conf.slots[s].table == (int32_t)t)
                n += fx_ids(fx, s);
        table->keys = fr_alloc(fx->vocabulary, sizeof(*table->keys));
        table->rows = fr_alloc(fx->vocabulary, sizeof(*table->rows));
        table->unique_of = fr_alloc(n, sizeof(*table->unique_of));
        table->occ = fr_alloc(n, sizeof(*table->occ));
        table->occ_from = fr_alloc(n, sizeof(*table->occ_from));
        table->occ_begin = fr_alloc(fx->vocabulary + 1, sizeof(*table->occ_begin));
        uint32_t *number = fr_alloc(fx->vocabulary, sizeof(*number)), *from = fr_alloc(n, sizeof(*from)), slot = 0;
        for (uint32_t s = 0; s < fx->conf.n_slots; s++) {
            if (fx->conf.slots[s].table != (int32_t)t)
                continue;
            rows->slot_base[s] = table->n_occurrences;
            for (uint32_t p = 0, i = 0; p < fx_ids(fx, s); p++) {
                while (p >= fx->batch.columns[s].begin[i + 1])
                    i++;
                from[table->n_occurrences] = slot << FR_ENTRY_BITS | i;
                uint64_t key = fx->batch.columns[s].keys[p];
                if (number[key] == 0) {
                    table->keys[table->n_unique] = key;
                    table->rows[table->n_unique] =
                        key % 7 == 3 ? NULL : fx->row_memory[t] + key * fx->layouts[t].row_floats;
                    number[key] = ++table->n_unique;
                }
                table->unique_of[table->n_occurrences++] = number[key] - 1;
            }
            slot++;
        }
        free(number);
        for (uint32_t o = 0; o < n; o++)
            table->occ_begin[table->unique_of[o] + 1]++;
        for (uint32_t u = 0; u < table->n_unique; u++)
            table->occ_begin[u + 1] += table->occ_begin[u];
        uint32_t *next = fr_alloc(table->n_unique, sizeof(*next));
        memcpy(next, table->occ_begin, table->n_unique * sizeof(*next));
        for (uint32_t o = 0; o < n; o++) {
            uint32_t place = next[table->unique_of[o]]++;
            table->occ[place] = o;
            table->occ_from[place] = from[o];
        }
        free(from);
        free(next);
    }
}

/* ---- batches ---- */

/* Allocates the batch and fills what every sample has. Labels follow from the first sparse id, so
 * that there is something to learn. */
static inline void fx_begin_batch(struct fixture *fx, uint32_t n, uint32_t n_groups)
{
    fx_batch_release(fx);
    struct fr_batch *b = &fx->batch;
    b->n_samples = n;
    b->n_groups = n_groups;
    b->capacity_samples = n + 3;
    b->n_labels = fx->conf.n_labels;
    b->n_tasks = fx->conf.n_tasks;
    b->n_slots = fx->conf.n_slots;
    b->group_begin = fr_alloc(n_groups + 1, sizeof(*b->group_begin));
    b->group_of = fr_alloc(n, sizeof(*b->group_of));
    b->role = fr_alloc(n, 1);
    b->use = fr_alloc(n, 1);
    b->keep = fr_alloc(n, sizeof(float));
    b->labels = fr_alloc((size_t)b->n_labels * b->capacity_samples, sizeof(float));
    b->weights = fr_alloc((size_t)b->n_labels * b->capacity_samples, sizeof(float));
    b->columns = fr_alloc(b->n_slots, sizeof(*b->columns));
    memset(b->use, FR_USE_TRAIN | FR_USE_METRICS, n);
}

static inline void fx_make_column(struct fixture *fx, uint32_t s, uint32_t ids_max, bool weighted, uint64_t seed)
{
    struct fr_column *c = &fx->batch.columns[s];
    const struct fr_conf_slot *slot = &fx->conf.slots[s];
    uint32_t n = fr_batch_entries(&fx->batch, s);
    if (fr_slot_has_numbers(slot->kind)) {
        c->dim = fr_conf_slot_numbers(slot);
        c->dense = fr_alloc((size_t)n * c->dim, sizeof(float));
        for (size_t i = 0; i < (size_t)n * c->dim; i++)
            c->dense[i] = (float)(2.0 * fx_uniform(seed, s + 500, i) - 1.0);
        return;
    }
    c->begin = fr_alloc(n + 1, sizeof(*c->begin));
    c->keys = fr_alloc((size_t)n * ids_max, sizeof(*c->keys));
    if (weighted && s % 2 == 0)
        c->weights = fr_alloc((size_t)n * ids_max, sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t ids = ids_max == 1 ? 1 : (uint32_t)(fx_uniform(seed, s + 100, i) * (ids_max + 1));
        c->begin[i + 1] = c->begin[i] + ids;
        for (uint32_t p = c->begin[i]; p < c->begin[i + 1]; p++) {
            c->keys[p] = (uint64_t)(fx_uniform(seed, s + 200, p) * fx->vocabulary);
            if (c->weights)
                c->weights[p] = (float)(0.25 + fx_uniform(seed, s + 300, p));
        }
    }
}

static inline void fx_make_labels(struct fixture *fx, uint64_t seed)
{
    struct fr_batch *b = &fx->batch;
    const struct fr_column *c = &b->columns[0];
    for (uint32_t i = 0; i < b->n_samples; i++) {
        uint32_t entry = c->shared ? b->group_of[i] : i;
        uint64_t key = c->begin && c->begin[entry] < c->begin[entry + 1] ? c->keys[c->begin[entry]] : 0;
        double p = (key * 2654435761u >> 7) % 2 ? 0.9 : 0.1;
        b->keep[i] = 1.0f;
        for (uint32_t l = 0; l < b->n_labels; l++) {
            b->labels[l * b->capacity_samples + i] = fx_uniform(seed, 900 + l, i) < p ? 1.0f : 0.0f;
            b->weights[l * b->capacity_samples + i] = 1.0f;
        }
    }
}

/* n samples; sparse and sequence slots with 0..ids_max ids (exactly one when ids_max is 1), every
 * second slot weighted when `weighted`. */
static inline void fx_make_batch(struct fixture *fx, uint32_t n, uint32_t ids_max, bool weighted, uint64_t seed)
{
    fx_begin_batch(fx, n, n);
    for (uint32_t i = 0; i < n; i++) {
        fx->batch.group_of[i] = i;
        fx->batch.group_begin[i + 1] = i + 1;
    }
    for (uint32_t s = 0; s < fx->conf.n_slots; s++)
        fx_make_column(fx, s, ids_max, weighted, seed);
    fx_make_labels(fx, seed);
    fx_resolve(fx);
}

/* n samples in groups of 1 to size_max; bit s of `shared`: slot s has one entry per group. */
static inline void fx_make_groups(struct fixture *fx, uint32_t n, uint32_t size_max, uint32_t shared, uint64_t seed)
{
    uint32_t *begin = fr_alloc(n + 1, sizeof(*begin)), groups = 0;
    while (begin[groups] < n) {
        uint32_t size = 1 + (uint32_t)(fx_uniform(seed, 4000, groups) * size_max);
        uint32_t left = n - begin[groups];
        begin[groups + 1] = begin[groups] + (size < left ? size : left);
        groups++;
    }
    fx_begin_batch(fx, n, groups);
    memcpy(fx->batch.group_begin, begin, (groups + 1) * sizeof(*begin));
    free(begin);
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t i = fx->batch.group_begin[g]; i < fx->batch.group_begin[g + 1]; i++)
            fx->batch.group_of[i] = g;
    for (uint32_t s = 0; s < fx->conf.n_slots; s++) {
        fx->batch.columns[s].shared = groups < n && shared >> s & 1;
        fx_make_column(fx, s, 4, true, seed);
    }
    fx_make_labels(fx, seed);
    fx_resolve(fx);
}

/* The same samples with every column's entries repeated for each sample of their group. */
static inline void fx_expand_groups(struct fixture *fx)
{
    struct fr_batch *b = &fx->batch;
    for (uint32_t s = 0; s < b->n_slots; s++) {
        struct fr_column old = b->columns[s], *c = &b->columns[s];
        if (!old.shared)
            continue;
        c->shared = false;
        if (old.dense) {
            c->dense = fr_alloc((size_t)b->n_samples * old.dim, sizeof(float));
            for (uint32_t i = 0; i < b->n_samples; i++)
                memcpy(c->dense + (size_t)i * old.dim, old.dense + (size_t)b->group_of[i] * old.dim,
                       old.dim * sizeof(float));
            free(old.dense);
            continue;
        }
        c->begin = fr_alloc(b->n_samples + 1, sizeof(*c->begin));
        for (uint32_t i = 0; i < b->n_samples; i++)
            c->begin[i + 1] = c->begin[i] + old.begin[b->group_of[i] + 1] - old.begin[b->group_of[i]];
        uint32_t ids = c->begin[b->n_samples];
        c->keys = fr_alloc(ids, sizeof(*c->keys));
        c->weights = old.weights ? fr_alloc(ids, sizeof(*c->weights)) : NULL;
        for (uint32_t i = 0; i < b->n_samples; i++) {
            uint32_t from = old.begin[b->group_of[i]], n = c->begin[i + 1] - c->begin[i];
            memcpy(c->keys + c->begin[i], old.keys + from, n * sizeof(*c->keys));
            if (c->weights)
                memcpy(c->weights + c->begin[i], old.weights + from, n * sizeof(*c->weights));
        }
        free(old.begin);
        free(old.keys);
        free(old.weights);
    }
    fx_resolve(fx);
}

/* Only samples [first, first + n) of a plain batch, with the rows they had. */
static inline void fx_keep_samples(struct fixture *fx, uint32_t first, uint32_t n)
{
    for (uint32_t s = 0; s < fx->conf.n_slots; s++) {
        struct fr_column *c = &fx->batch.columns[s];
        uint32_t dim = fx->conf.slots[s].dim;
        if (!c->begin) {
            memmove(c->dense, c->dense + (size_t)first * dim, (size_t)n * dim * sizeof(float));
            continue;
        }
        uint32_t from = c->begin[first], ids = c->begin[first + n] - from;
        memmove(c->keys, c->keys + from, ids * sizeof(*c->keys));
        if (c->weights)
            memmove(c->weights, c->weights + from, ids * sizeof(*c->weights));
        for (uint32_t i = 0; i <= n; i++)
            c->begin[i] = c->begin[first + i] - from;
    }
    fx->batch.n_samples = fx->batch.n_groups = n;
    fx_resolve(fx);
}

/* Some samples measured only, some labels masked, some weights not 1. */
static inline void fx_vary_roles(struct fixture *fx)
{
    struct fr_batch *b = &fx->batch;
    for (uint32_t i = 0; i < b->n_samples; i++) {
        b->role[i] = i % 9 == 5 ? FR_ROLE_METRICS_ONLY : FR_ROLE_TRAIN;
        b->weights[i] = 0.5f + (float)(i % 4);
        if (i % 5 == 2 && b->n_labels > 1)
            b->labels[b->capacity_samples + i] = NAN;
    }
}

/* A network by hand that uses the first operations, shared slots, a slot in two concatenations, two
 * tasks and a layer no task reaches. */
static inline void fx_every_operation(struct fixture *fx, uint32_t vocabulary, enum fr_optimizer_kind rows)
{
    fx_init(fx, vocabulary);
    fx->conf.n_labels = 2;
    fx_part(fx_table(fx, "user"), "v", 4, rows);
    struct fr_conf_table *item = fx_table(fx, "item");
    fx_part(item, "w", 1, rows == FR_OPT_SGD ? FR_OPT_SGD : FR_OPT_FTRL);
    fx_part(item, "v", 4, rows);
    int32_t user = fx_slot(fx, "user_id", 0, 0), item_id = fx_slot(fx, "item_id", 1, 0);
    int32_t history = fx_slot(fx, "history", 1, 0), price = fx_slot(fx, "price", FR_NO_INDEX, 2);
    struct fr_conf_layer *x = fx_layer(fx, "x", FR_LAYER_CONCAT);
    fx_pooled(x, user, 0, FR_POOL_SUM);
    fx_pooled(x, item_id, 1, FR_POOL_SUM);
    fx_pooled(x, history, 1, FR_POOL_MEAN);
    fx_dense(x, price);
    struct fr_conf_layer *fm = fx_layer(fx, "fm", FR_LAYER_BI_INTERACTION);
    fx_pooled(fm, user, 0, FR_POOL_SUM);
    fx_pooled(fm, item_id, 1, FR_POOL_SUM);
    fx_pooled(fm, history, 1, FR_POOL_SUM);
    struct fr_conf_layer *h = fx_layer(fx, "h", FR_LAYER_MLP);
    fx_input(fx, h, x);
    fx_input(fx, h, fm);
    fx_units(h, FR_ACT_RELU, 2, (uint32_t[]){24, 7});
    struct fr_conf_layer *z = fx_layer(fx, "z", FR_LAYER_DENSE);
    fx_input(fx, z, h);
    fx_units(z, FR_ACT_NONE, 1, (uint32_t[]){1});
    struct fr_conf_layer *wide = fx_layer(fx, "wide", FR_LAYER_SUM);
    fx_pooled(wide, item_id, 0, FR_POOL_SUM);
    fx_pooled(wide, history, 0, FR_POOL_SUM);
    struct fr_conf_layer *spare = fx_layer(fx, "spare", FR_LAYER_DENSE);
    fx_input(fx, spare, x);
    fx_units(spare, FR_ACT_NONE, 1, (uint32_t[]){3});
    struct fr_conf_layer *out = fx_layer(fx, "out", FR_LAYER_ADD);
    fx_input(fx, out, z);
    fx_input(fx, out, wide);
    struct fr_conf_layer *other = fx_layer(fx, "other", FR_LAYER_DENSE);
    fx_pooled(other, item_id, 1, FR_POOL_SUM);
    fx_input(fx, other, h);
    fx_dense(other, price);
    fx_units(other, FR_ACT_NONE, 1, (uint32_t[]){1});
    fx_task(fx, "click", 0, out, 1.0f);
    fx_task(fx, "buy", 1, other, 0.5f);
    fx_make_rows(fx, 11);
}

static inline void fx_vary(struct fixture *fx, uint64_t seed)
{
    fx_make_batch(fx, 90, 3, true, seed);
    fx_vary_roles(fx);
}

/* ---- a step, and what it may change ---- */

static inline double fx_step(const struct fixture *fx, struct fr_graph *graph)
{
    double loss = 0.0;
    fr_graph_forward(graph, &fx->batch, &fx->rows);
    assert_int_equal(fr_graph_train(graph, &fx->batch, &fx->rows, &loss), FR_OK);
    return loss;
}

static inline struct fr_parameter *fx_parameter(struct fr_graph *graph, const char *name)
{
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        if (strcmp(fr_graph_parameters(graph)[p].name, name) == 0)
            return &fr_graph_parameters(graph)[p];
    fail_msg("no parameter `%s`", name);
    return NULL;
}

/* Hash of everything a batch may change: parameters (statistics too), their state, rows and the
 * state of rows. */
static inline uint64_t fx_hash(const struct fixture *fx, struct fr_graph *graph)
{
    struct fr_buffer bytes = {0};
    save_model(graph, &bytes);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        fr_buffer_append(&bytes, fx->row_memory[t], (size_t)fx->vocabulary * fx->layouts[t].row_floats * sizeof(float));
    uint64_t hash = fr_xxh3(bytes.data, bytes.size);
    fr_buffer_release(&bytes);
    return hash;
}

#endif
