/* The shim's table; products, rows and recurrence. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ops/pooling.h"
#include "staging.h"

#define OPS fr_shim_api()->ops
#define QUEUE fr_shim_queue()

static size_t unpacked(uint32_t rows, uint32_t columns)
{
    (void)rows, (void)columns;
    return 0;
}

static void pack_nothing(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end)
{
    (void)right, (void)row_begin, (void)row_end;
}

static void operand(struct shim_staging *s, struct fr_operand *o)
{
    struct fr_view view = {(float *)(uintptr_t)o->values, o->ld};
    uint32_t rows = o->transposed ? o->columns : o->rows, columns = o->transposed ? o->rows : o->columns;
    if (rows > 0)
        fr_shim_memory(s, &o->values, ((size_t)(rows - 1) * view.ld + columns) * sizeof(float), SHIM_READ);
}

static void multiply_with(const struct fr_multiply *call, bool bf16)
{
    struct shim_staging s = {0};
    struct fr_operand left = *call->left, right = *call->right;
    struct fr_multiply c = *call;
    FR_CHECK(left.columns == right.rows && c.row_end <= left.rows);
    FR_CHECK(!c.bits); /* as fr_graph_multiply calls a device */
    SHIM_ARRAY(&s, c.bias, right.columns, SHIM_READ);
    fr_shim_view(&s, &c.gate, c.row_end, right.columns, SHIM_READ);
    c.left = &left;
    c.right = &right;
    operand(&s, &left);
    operand(&s, &right);
    fr_shim_view(&s, &c.out, c.row_end, right.columns, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->multiply(QUEUE, &c, bf16);
    struct fr_view out = {c.out.values + c.row_begin * c.out.ld, c.out.ld};
    uint32_t rows = c.row_end - c.row_begin;
    if (c.bias)
        OPS->bias_activate(QUEUE, rows, right.columns, out, c.bias, c.relu);
    if (c.gate.values)
        OPS->relu_backward(QUEUE, rows, right.columns,
                           (struct fr_view){c.gate.values + c.row_begin * c.gate.ld, c.gate.ld}, out);
    fr_shim_leave(&s);
}

static void multiply(const struct fr_multiply *call)
{
    multiply_with(call, false);
}

static void multiply_bf16(const struct fr_multiply *call)
{
    multiply_with(call, true);
}

/* ---- rows ---- */

/* One more than the largest of n. */
static uint32_t bound_of(const uint32_t *values, size_t n)
{
    uint32_t bound = 0;
    for (size_t i = 0; i < n; i++)
        bound = values[i] >= bound ? values[i] + 1 : bound;
    return bound;
}

void fr_shim_gather(const struct fr_gather *call)
{
    struct shim_staging s = {0};
    struct fr_gather c = *call;
    uint32_t last = c.begin[c.entry_end], keys = bound_of(c.unique_of, last);
    fr_shim_rows(&s, &c.rows, keys, c.value_offset + c.dim, SHIM_READ);
    SHIM_ARRAY(&s, c.begin, c.entry_end + 1, SHIM_READ);
    SHIM_ARRAY(&s, c.weights, last, SHIM_READ);
    SHIM_ARRAY(&s, c.unique_of, last, SHIM_READ);
    SHIM_ARRAY(&s, c.kept, (size_t)c.entry_end * fr_pooling_kept(c.kind, c.dim), SHIM_WRITTEN);
    fr_shim_view(&s, &c.out, c.entry_end, c.dim, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->gather(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_gather_steps(const struct fr_gather_steps *call)
{
    struct shim_staging s = {0};
    struct fr_gather_steps c = *call;
    fr_shim_rows(&s, &c.rows, bound_of(c.unique_of, c.end), c.value_offset + c.dim, SHIM_READ);
    SHIM_ARRAY(&s, c.weights, c.end, SHIM_READ);
    SHIM_ARRAY(&s, c.unique_of, c.end, SHIM_READ);
    SHIM_ARRAY(&s, c.masked, c.end, SHIM_WRITTEN);
    fr_shim_view(&s, &c.out, c.end, c.dim, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->gather_steps(QUEUE, &c);
    fr_shim_leave(&s);
}

/* What the occurrences of a group reach of one of its sources. */
static void source_memory(struct shim_staging *s, const struct fr_row_update *u, uint32_t group,
                          struct fr_row_source *source, uint32_t n_occurrences)
{
    uint32_t ids = 0, entries = 0;
    for (uint32_t o = 0; o < n_occurrences; o++) {
        struct fr_occurrence at = fr_occurrence_at(u, o);
        if (at.group != group)
            continue;
        ids = u->occ[o] - source->first >= ids ? u->occ[o] - source->first + 1 : ids;
        entries = at.entry >= entries ? at.entry + 1 : entries;
    }
    fr_shim_view(s, &source->gradient, source->by_id ? ids : entries, u->parts[source->part].dim, SHIM_READ);
    SHIM_ARRAY(s, source->weights, ids, SHIM_READ);
    SHIM_ARRAY(s, source->kept, (size_t)entries * fr_pooling_kept(source->pooling, u->parts[source->part].dim),
               SHIM_READ);
    SHIM_ARRAY(s, source->trained, entries, SHIM_READ);
    SHIM_ARRAY(s, source->counted, entries, SHIM_READ);
    SHIM_ARRAY(s, source->masked, ids, SHIM_READ);
}

/* Keys [begin, end) that are long: the lists that plan makes. */
struct long_keys {
    struct fr_device_long_keys lists;
    uint32_t *unique, *begin, *first_block;
};

static void find_long(const struct fr_row_update *u, uint32_t dims, struct long_keys *keys)
{
    uint32_t capacity = u->occ_begin[u->end] / FR_OCCURRENCE_BLOCK + u->end + 1, n = 0;
    keys->unique = fr_alloc(capacity, sizeof(uint32_t));
    keys->begin = fr_alloc(capacity, sizeof(uint32_t));
    keys->first_block = fr_alloc(u->end + 1, sizeof(uint32_t));
    for (uint32_t k = 0; k < u->end; k++) {
        keys->first_block[k] = FR_DEVICE_SHORT;
        if (k < u->begin || u->occ_begin[k + 1] - u->occ_begin[k] <= FR_OCCURRENCE_BLOCK)
            continue;
        keys->first_block[k] = n;
        for (uint32_t o = u->occ_begin[k]; o < u->occ_begin[k + 1]; o += FR_OCCURRENCE_BLOCK) {
            keys->unique[n] = k;
            keys->begin[n++] = o;
        }
    }
    keys->lists = (struct fr_device_long_keys){.n_blocks = n,
                                               .unique = keys->unique,
                                               .begin = keys->begin,
                                               .first_block = keys->first_block,
                                               .sums = fr_alloc((size_t)n * dims + 1, sizeof(float)),
                                               .counts = fr_alloc((size_t)n * u->n_parts + 1, sizeof(uint32_t))};
}

static void long_memory(struct shim_staging *s, const struct fr_row_update *u, uint32_t dims,
                        struct fr_device_long_keys *lists)
{
    SHIM_ARRAY(s, lists->unique, lists->n_blocks, SHIM_READ);
    SHIM_ARRAY(s, lists->begin, lists->n_blocks, SHIM_READ);
    SHIM_ARRAY(s, lists->first_block, u->end, SHIM_READ);
    SHIM_ARRAY(s, lists->sums, (size_t)lists->n_blocks * dims, SHIM_WRITTEN);
    SHIM_ARRAY(s, lists->counts, lists->n_blocks * u->n_parts, SHIM_WRITTEN);
}

/* The call on its way; returns the numbers of all parts. */
static uint32_t update_memory(struct shim_staging *s, struct fr_row_update *c, enum shim_use use)
{
    struct fr_row_update u = *c; /* on the host */
    uint32_t n = u.occ_begin[u.end], groups = 0, floats = 0, dims = 0;
    for (uint32_t o = 0; o < n; o++) {
        uint32_t group = fr_occurrence_at(&u, o).group;
        groups = group >= groups ? group + 1 : groups;
    }
    for (uint32_t p = 0; p < u.n_parts; p++) {
        const struct fr_row_part *part = &u.parts[p];
        uint32_t state = part->state_offset + fr_row_state_floats(part->optimizer.kind, part->dim);
        floats = part->value_offset + part->dim > floats ? part->value_offset + part->dim : floats;
        floats = state > floats ? state : floats;
        dims += part->dim;
    }
    fr_shim_rows(s, &c->rows, u.end, floats, use);
    SHIM_ARRAY(s, c->occ_begin, u.end + 1, SHIM_READ);
    SHIM_ARRAY(s, c->occ, n, SHIM_READ);
    SHIM_ARRAY(s, c->occ_from, n, SHIM_READ);
    SHIM_ARRAY(s, c->source_begin, groups + 1, SHIM_READ);
    SHIM_ARRAY(s, c->parts, u.n_parts, SHIM_READ);
    struct fr_row_source *sources = fr_shim_array(s, &c->sources, u.source_begin[groups] * sizeof(*sources));
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t k = u.source_begin[g]; k < u.source_begin[g + 1]; k++)
            source_memory(s, &u, g, &sources[k], n);
    return dims;
}

void fr_shim_update_rows(const struct fr_row_update *call)
{
    struct shim_staging s = {0};
    struct fr_row_update c = *call;
    struct long_keys keys;
    uint32_t dims = update_memory(&s, &c, SHIM_WRITTEN);
    find_long(call, dims, &keys);
    struct fr_device_long_keys host = keys.lists;
    long_memory(&s, call, dims, &keys.lists);
    fr_shim_enter(&s);
    OPS->update_rows_long(QUEUE, &c, &keys.lists);
    fr_shim_leave(&s);
    free(keys.unique);
    free(keys.begin);
    free(keys.first_block);
    free(host.sums);
    free(host.counts);
}

uint32_t fr_shim_check_rows(const struct fr_row_update *call)
{
    struct shim_staging s = {0};
    struct fr_row_update c = *call;
    update_memory(&s, &c, SHIM_READ);
    fr_shim_enter(&s);
    OPS->check_rows(QUEUE, fr_shim_bits(), &c);
    fr_shim_leave(&s);
    return fr_shim_bits_of();
}

/* ---- recurrence ---- */

static size_t gru_workspace(const struct fr_steps *steps, uint32_t units)
{
    return fr_device_gru_floats(steps->entry_end - steps->entry_begin, units);
}

static void gru_memory(struct shim_staging *s, struct fr_device_gru *c, uint32_t *begin, uint32_t *entries)
{
    struct fr_gru *g = &c->call;
    struct fr_steps *steps = &g->steps;
    uint32_t rows = steps->begin[steps->entry_end], u = g->units, n = 0;
    for (uint32_t e = steps->entry_begin; e < steps->entry_end; e++) {
        uint32_t length = steps->begin[e + 1] - steps->begin[e];
        c->longest = length > c->longest ? length : c->longest;
    }
    for (uint32_t t = 0; t < c->longest; t++) {
        begin[t] = n;
        for (uint32_t e = steps->entry_begin; e < steps->entry_end; e++)
            if (steps->begin[e + 1] - steps->begin[e] > t)
                entries[n++] = e;
        begin[t + 1] = n;
    }
    c->begin = begin;
    c->entries = entries;
    SHIM_ARRAY(s, c->entries, n, SHIM_READ);
    SHIM_ARRAY(s, g->workspace, gru_workspace(steps, u), SHIM_WRITTEN);
    SHIM_ARRAY(s, steps->begin, steps->entry_end + 1, SHIM_READ);
    SHIM_ARRAY(s, steps->masked, rows, SHIM_READ);
    SHIM_ARRAY(s, g->kernel, (size_t)u * 3 * u, SHIM_READ);
    SHIM_ARRAY(s, g->bias, 3 * u, SHIM_READ);
    SHIM_ARRAY(s, g->kernel_gradient, (size_t)u * 3 * u, SHIM_WRITTEN);
    SHIM_ARRAY(s, g->bias_gradient, 3 * u, SHIM_WRITTEN);
    fr_shim_view(s, &g->input, rows, 3 * u, SHIM_READ);
    fr_shim_view(s, &g->scores, rows, 1, SHIM_READ);
    fr_shim_view(s, &g->states, rows, u, SHIM_WRITTEN);
    fr_shim_view(s, &g->gates, rows, 4 * u, SHIM_WRITTEN);
    fr_shim_view(s, &g->gradient, rows, u, SHIM_READ);
    fr_shim_view(s, &g->input_gradient, rows, 3 * u, SHIM_WRITTEN);
    fr_shim_view(s, &g->scores_gradient, rows, 1, SHIM_WRITTEN);
}

static void run_gru(const struct fr_gru *call, bool backward)
{
    struct shim_staging s = {0};
    struct fr_device_gru c = {.call = *call};
    uint32_t rows = call->steps.begin[call->steps.entry_end];
    uint32_t *begin = fr_alloc(rows + 2, sizeof(uint32_t)), *entries = fr_alloc(rows + 1, sizeof(uint32_t));
    gru_memory(&s, &c, begin, entries);
    fr_shim_enter(&s);
    if (backward)
        OPS->gru_backward(QUEUE, &c);
    else
        OPS->gru(QUEUE, &c);
    fr_shim_leave(&s);
    free(begin);
    free(entries);
}

void fr_shim_gru(const struct fr_gru *call)
{
    run_gru(call, false);
}

void fr_shim_gru_backward(const struct fr_gru *call)
{
    run_gru(call, true);
}

/* ---- attention ---- */

/* The device's own is another one: it grows with the batch. */
static size_t attention_workspace(uint32_t width, uint32_t units)
{
    (void)width, (void)units;
    return 0;
}

static void run_attention(const struct fr_attention_dense *call, bool backward)
{
    struct shim_staging s = {0};
    struct fr_device_attention c = {.call = *call, .first = call->steps.begin[call->steps.entry_begin]};
    struct fr_attention_dense *a = &c.call;
    uint32_t entries = a->steps.entry_end - a->steps.entry_begin, end = a->steps.begin[a->steps.entry_end];
    c.rows = end - c.first;
    size_t floats = fr_device_attention_floats(entries, c.rows, a->width, a->units);
    float *workspace = a->workspace = fr_alloc(floats + 1, sizeof(float));
    SHIM_ARRAY(&s, a->workspace, floats, SHIM_WRITTEN);
    SHIM_ARRAY(&s, a->steps.begin, a->steps.entry_end + 1, SHIM_READ);
    SHIM_ARRAY(&s, a->steps.masked, end, SHIM_READ);
    SHIM_ARRAY(&s, a->kernel, 4 * (size_t)a->width * a->units, SHIM_READ);
    SHIM_ARRAY(&s, a->bias, a->units, SHIM_READ);
    SHIM_ARRAY(&s, a->kernel_gradient, 4 * (size_t)a->width * a->units, SHIM_WRITTEN);
    SHIM_ARRAY(&s, a->bias_gradient, a->units, SHIM_WRITTEN);
    fr_shim_view(&s, &a->query, entries, a->width, SHIM_READ);
    fr_shim_view(&s, &a->query_gradient, entries, a->width, SHIM_WRITTEN);
    fr_shim_view(&s, &a->keys, end, a->width, SHIM_READ);
    fr_shim_view(&s, &a->keys_gradient, end, a->width, SHIM_WRITTEN);
    fr_shim_view(&s, &a->out, end, a->units, SHIM_WRITTEN);
    fr_shim_view(&s, &a->gradient, end, a->units, SHIM_WRITTEN);
    fr_shim_enter(&s);
    if (backward)
        OPS->attention_dense_backward(QUEUE, &c);
    else
        OPS->attention_dense(QUEUE, &c);
    fr_shim_leave(&s);
    free(workspace);
}

void fr_shim_attention_dense(const struct fr_attention_dense *call)
{
    run_attention(call, false);
}

void fr_shim_attention_dense_backward(const struct fr_attention_dense *call)
{
    run_attention(call, true);
}

/* ---- tables ---- */

#define SHIM_MEMBER(result, name, arguments) .name = fr_shim_##name,
#define SHIM_TABLE(product)                                                                                            \
    .packed_floats = unpacked, .pack = pack_nothing, .multiply = product, .gru_workspace = gru_workspace,              \
    .gru = fr_shim_gru, .gru_backward = fr_shim_gru_backward, .attention_workspace = attention_workspace,              \
    .attention_dense = fr_shim_attention_dense, .attention_dense_backward = fr_shim_attention_dense_backward,          \
    FR_OPS_SHARED(SHIM_MEMBER)

const struct fr_ops *fr_shim_ops(void)
{
    static const struct fr_ops ops = {.name = "device", .kernel = "device", SHIM_TABLE(multiply)};
    return &ops;
}

const struct fr_ops *fr_shim_bf16_ops(void)
{
    static const struct fr_ops ops = {.name = "device-bf16", .kernel = "device bf16", SHIM_TABLE(multiply_bf16)};
    return &ops;
}
