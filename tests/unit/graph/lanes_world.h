/* Batches with lanes, one lane of a batch alone, and the gradients of rows as an update gets them,
 * for tests of lanes. */
#ifndef FR_TESTS_GRAPH_LANES_WORLD_H
#define FR_TESTS_GRAPH_LANES_WORLD_H

#include "../../../trainer/graph/passes.h"
#include "fixture.h"

/* ---- batches ---- */

/* Returns the lane of each occurrence of a table. */
static inline uint8_t *lx_lanes_of(const struct fixture *fx, uint32_t t)
{
    const struct fr_batch *b = &fx->batch;
    const struct fr_table_rows *table = &fx->rows.tables[t];
    uint8_t *of_group = fr_alloc(b->n_groups, 1), *lanes = fr_alloc(table->n_occurrences, 1);
    uint32_t slots[FX_SLOTS], n = 0;
    for (uint32_t s = 0; s < fx->conf.n_slots; s++)
        if (fx->conf.slots[s].table == (int32_t)t)
            slots[n++] = s;
    for (uint32_t lane = 0; lane < b->n_lanes; lane++)
        for (uint32_t g = fr_batch_lane_begin(b, lane); g < fr_batch_lane_begin(b, lane + 1); g++)
            of_group[g] = (uint8_t)lane;
    for (uint32_t o = 0; o < table->n_occurrences; o++) {
        uint32_t slot = slots[table->occ_from[o] >> FR_ENTRY_BITS];
        uint32_t entry = table->occ_from[o] & ((1u << FR_ENTRY_BITS) - 1);
        lanes[o] = of_group[b->columns[slot].shared ? entry : b->group_of[entry]];
    }
    free(of_group);
    return lanes;
}

/* Sorts the occurrences of each key by lane, those of one lane as they are. */
static inline void lx_order_rows(struct fixture *fx)
{
    for (uint32_t t = 0; t < fx->rows.n_tables; t++) {
        struct fr_table_rows *table = &fx->rows.tables[t];
        uint32_t n = table->n_occurrences, *occ = fr_alloc(n, sizeof(*occ)), *from = fr_alloc(n, sizeof(*from)), at = 0;
        uint8_t *lanes = lx_lanes_of(fx, t);
        free(table->occ_lane);
        table->occ_lane = fr_alloc(n, 1);
        for (uint32_t u = 0; u < table->n_unique; u++)
            for (uint32_t lane = 0; at < table->occ_begin[u + 1]; lane++)
                for (uint32_t o = table->occ_begin[u]; o < table->occ_begin[u + 1]; o++) {
                    if (lanes[o] != lane)
                        continue;
                    occ[at] = table->occ[o];
                    from[at] = table->occ_from[o];
                    table->occ_lane[at++] = (uint8_t)lane;
                }
        free(lanes);
        free(table->occ);
        free(table->occ_from);
        table->occ = occ;
        table->occ_from = from;
    }
}

/* Rows of some keys as if this batch had made them. */
static inline void lx_serve(struct fixture *fx)
{
    for (uint32_t t = 0; t < fx->rows.n_tables; t++) {
        struct fr_table_rows *table = &fx->rows.tables[t];
        table->served = fr_alloc(fx->vocabulary, sizeof(*table->served));
        for (uint32_t u = 0; u < table->n_unique; u++)
            table->served[u] = table->keys[u] % 11 == 4 ? NULL : table->rows[u];
    }
}

/* How the groups of a batch are divided. */
enum split { SPLIT_UNEVEN, SPLIT_ONE_LANE, SPLITS };

/* Divides the batch into lanes of very different sizes, some of them empty, or puts all of it into
 * one. */
static inline void lx_divide(struct fixture *fx, uint32_t n_lanes, enum split split, uint32_t only)
{
    struct fr_batch *b = &fx->batch;
    double sizes[FR_LANES_MAX], all = 0.0, sum = 0.0;
    b->n_lanes = n_lanes;
    free(b->lane_begin);
    b->lane_begin = fr_alloc(n_lanes, sizeof(*b->lane_begin));
    for (uint32_t l = 0; l < n_lanes; l++) {
        double u = fx_uniform(n_lanes, 31, l);
        sizes[l] = split == SPLIT_ONE_LANE ? l == only : l % 4 == 3 ? 0.0 : u * u * u;
        all += sizes[l];
    }
    for (uint32_t l = 0; l < n_lanes; l++) {
        b->lane_begin[l] = (uint32_t)(sum / all * b->n_groups + 0.5);
        sum += sizes[l];
    }
    if (n_lanes > 1)
        lx_order_rows(fx);
}

static inline void lx_keep(void *array, size_t size, uint32_t first, uint32_t n)
{
    memmove(array, (char *)array + first * size, n * size);
}

/* Makes the batch one of groups [g, g + groups) only. */
static inline void lx_keep_groups(struct fixture *fx, uint32_t g, uint32_t groups)
{
    struct fr_batch *b = &fx->batch;
    uint32_t s = b->group_begin[g], n = b->group_begin[g + groups] - s;
    for (uint32_t k = 0; k < b->n_slots; k++) {
        struct fr_column *c = &b->columns[k];
        uint32_t first = c->shared ? g : s, entries = c->shared ? groups : n;
        if (!c->begin) {
            lx_keep(c->dense, c->dim * sizeof(float), first, entries);
            continue;
        }
        uint32_t from = c->begin[first], ids = c->begin[first + entries] - from;
        lx_keep(c->keys, sizeof(*c->keys), from, ids);
        if (c->weights)
            lx_keep(c->weights, sizeof(*c->weights), from, ids);
        for (uint32_t i = 0; i <= entries; i++)
            c->begin[i] = c->begin[first + i] - from;
    }
    for (uint32_t l = 0; l < b->n_labels; l++) {
        lx_keep(b->labels + (size_t)l * b->capacity_samples, sizeof(float), s, n);
        lx_keep(b->weights + (size_t)l * b->capacity_samples, sizeof(float), s, n);
    }
    lx_keep(b->role, 1, s, n);
    lx_keep(b->keep, sizeof(float), s, n);
    for (uint32_t i = 0; i <= groups; i++)
        b->group_begin[i] = b->group_begin[g + i] - s;
    for (uint32_t i = 0; i < n; i++)
        b->group_of[i] = b->group_of[s + i] - g;
    b->n_samples = n;
    b->n_groups = groups;
    fx_resolve(fx);
}

/* Makes the batch one of only one of its lanes: with one lane, or with as many as it had, of which
 * the others are empty. */
static inline void lx_keep_lane(struct fixture *fx, uint32_t lane, bool alone)
{
    uint32_t begin = fr_batch_lane_begin(&fx->batch, lane), lanes = fx->batch.n_lanes;
    lx_keep_groups(fx, begin, fr_batch_lane_begin(&fx->batch, lane + 1) - begin);
    lx_divide(fx, alone ? 1 : lanes, SPLIT_ONE_LANE, alone ? 0 : lane);
}

/* Makes the batch the one of a rank that has only some of the lanes; the others are empty. */
static inline void lx_keep_lanes(struct fixture *fx, struct fr_domains kept)
{
    struct fr_batch *b = &fx->batch;
    uint32_t begin = fr_batch_lane_begin(b, kept.first), end = fr_batch_lane_begin(b, kept.end);
    for (uint32_t l = 0; l < b->n_lanes; l++) {
        uint32_t at = fr_batch_lane_begin(b, l);
        b->lane_begin[l] = at < begin ? 0 : at > end ? end - begin : at - begin;
    }
    lx_keep_groups(fx, begin, end - begin);
    lx_order_rows(fx);
}

/* ---- gradients of rows ---- */

/* By table, key and float of the row. */
struct lx_rows {
    const struct fixture *fx;
    struct lx_table {
        float *gradients;           /* 0 where nothing reaches the value */
        uint32_t *counts, *reached; /* [vocabulary, FR_PARTS_MAX] */
    } tables[FX_SLOTS];
};

static inline void lx_rows_init(struct lx_rows *rows, const struct fixture *fx)
{
    memset(rows, 0, sizeof(*rows));
    rows->fx = fx;
    for (uint32_t t = 0; t < fx->conf.n_tables; t++) {
        rows->tables[t].gradients =
            fr_alloc_aligned(64, (size_t)fx->vocabulary * fx->layouts[t].row_floats * sizeof(float));
        rows->tables[t].counts = fr_alloc((size_t)fx->vocabulary * FR_PARTS_MAX, sizeof(uint32_t));
        rows->tables[t].reached = fr_alloc((size_t)fx->vocabulary * FR_PARTS_MAX, sizeof(uint32_t));
    }
}

static inline void lx_rows_release(struct lx_rows *rows)
{
    for (uint32_t t = 0; t < FX_SLOTS; t++) {
        free(rows->tables[t].gradients);
        free(rows->tables[t].counts);
        free(rows->tables[t].reached);
    }
}

static inline float *lx_gradient(const struct lx_rows *rows, uint32_t t, uint64_t key)
{
    return rows->tables[t].gradients + key * rows->fx->layouts[t].row_floats;
}

/* The occurrences that reach the parts of a key, by the definition. */
static inline void lx_count(struct lx_rows *rows, const struct fr_row_update *u, uint32_t t, uint32_t unique)
{
    uint64_t key = rows->fx->rows.tables[t].keys[unique];
    for (uint32_t o = u->occ_begin[unique]; o < u->occ_begin[unique + 1]; o++) {
        struct fr_occurrence at = fr_occurrence_at(u, o);
        bool counted[FR_PARTS_MAX] = {false};
        for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
            const struct fr_row_source *source = &u->sources[k];
            if (source->trained[at.entry] == 0 || (source->masked && source->masked[u->occ[o] - source->first]))
                continue;
            rows->tables[t].reached[key * FR_PARTS_MAX + source->part] = 1;
            if (!counted[source->part])
                rows->tables[t].counts[key * FR_PARTS_MAX + source->part] += source->counted[at.entry];
            counted[source->part] = true;
        }
    }
}

/* Fills `rows` with the gradients that the update would apply. Steps of sgd from -0 with a rate
 * that is a power of two, and so small that its damping rounds to 1, show every bit of them. */
static inline void lx_capture(struct lx_rows *rows, const struct fr_ops *ops, const struct fr_row_update *update)
{
    const struct fixture *fx = rows->fx;
    struct fr_row_update u = *update;
    struct fr_row_part parts[FR_PARTS_MAX];
    uint32_t t = 0;
    while (fx->rows.tables[t].rows != u.rows)
        t++;
    for (uint32_t p = 0; p < u.n_parts; p++) {
        parts[p] = u.parts[p];
        parts[p].optimizer = fx_optimizer(FR_OPT_SGD, 0x1p-40f);
    }
    float **shown = fr_alloc(fx->rows.tables[t].n_unique, sizeof(*shown));
    for (uint32_t k = u.begin; k < u.end; k++) {
        if (!u.rows[k])
            continue;
        shown[k] = lx_gradient(rows, t, fx->rows.tables[t].keys[k]);
        for (uint32_t i = 0; i < fx->layouts[t].row_floats; i++)
            shown[k][i] = -0.0f;
        lx_count(rows, &u, t, k);
    }
    u.rows = shown;
    u.parts = parts;
    ops->update_rows(&u);
    for (uint32_t k = u.begin; k < u.end; k++) {
        struct fr_row_update one = *update;
        float largest = 0.0f;
        for (uint32_t i = 0; shown[k] && i < fx->layouts[t].row_floats; i++) {
            shown[k][i] *= -0x1p40f;
            largest = fmaxf(largest, fabsf(shown[k][i]));
        }
        one.begin = k;
        one.end = k + 1;
        if (shown[k]) /* the check has the same gradient */
            assert_true(ops->check_rows(&one) == fr_f32_bits(largest));
    }
    free(shown);
}

#endif
