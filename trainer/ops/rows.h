/* What rows.c and plain.c share: the gradient of a row, which is the sum over its occurrences,
 * in blocks, in a worker's scratch memory. The occurrences of a key in several lanes are summed
 * lane by lane, and lanes are joined by their tree (ops/lane_tree.h); with one lane, or a key that
 * one lane has, the sum is that of its blocks. */
#ifndef FR_OPS_ROWS_H
#define FR_OPS_ROWS_H

#include <string.h>

#include "base/check.h"
#include "cpu.h"
#include "lanes.h"
#include "ops/pooling.h"

enum {
    PREFETCH_ROWS = 16, /* prefetch distance in unique keys when updating */
    PREFETCH_OCCURRENCES = 12,
    FLOATS_PER_LINE = 16,
};

static inline void prefetch_floats(const float *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += FLOATS_PER_LINE)
        __builtin_prefetch(at + i, 1);
}

/* `known`: the length of all parts if the compiler knows it, otherwise 0. */
FR_IN_LINE uint32_t dim_of(const struct fr_row_update *u, uint32_t part, uint32_t known)
{
    return known ? known : u->parts[part].dim;
}

/* Prefetches the gradients that occurrence `o` of the block's list will add. It may belong to a
 * later key. */
FR_IN_LINE void prefetch_gradients(const struct fr_row_update *u, uint32_t o, uint32_t known)
{
    uint32_t number = u->occ[o];
    struct fr_occurrence at = fr_occurrence_at(u, o);
    for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
        const struct fr_row_source *source = &u->sources[k];
        const float *d =
            source->gradient.values + (source->by_id ? number - source->first : at.entry) * source->gradient.ld;
        for (uint32_t i = 0; i < dim_of(u, source->part, known); i += FLOATS_PER_LINE)
            __builtin_prefetch(d + i);
    }
}

/* A row that is being updated: where the gradients of its parts are summed, and how many trained
 * samples reach each part. */
struct row_sum {
    float *parts[FR_ROW_PARTS_MAX];
    /* sums of the present block of occurrences, if there are several blocks */
    float *block[FR_ROW_PARTS_MAX];
    /* sums of the present lane, if there are several lanes; after them, each `stride` floats after
     * the one before, the sums that wait for others above place 0, which is in `parts` */
    float *lane[FR_ROW_PARTS_MAX];
    size_t stride;
    uint32_t counts[FR_ROW_PARTS_MAX];
};

/* Occurrences of a key, at least one. */
struct range {
    uint32_t begin, end;
};

/* Adds coef * d to the part's sum, or begins it. */
FR_IN_LINE void add_gradient(float *restrict g, const float *restrict d, uint32_t dim, float coef, bool begun)
{
    if (begun) {
        _Pragma("GCC unroll 1") for (uint32_t i = 0; i < dim; i++) g[i] += coef * d[i];
    } else {
        _Pragma("GCC unroll 1") for (uint32_t i = 0; i < dim; i++) g[i] = coef * d[i];
    }
}

/* Returns the row as the forward pass read it. */
FR_IN_LINE const float *served_row(const struct fr_row_update *u, uint32_t unique, uint32_t part)
{
    static const float nothing[FR_SUM_DIM_MAX];
    const float *row = u->served ? u->served[unique] : u->rows[unique];
    return row ? row + u->parts[part].value_offset : nothing;
}

/* A separate function, because compilers use `restrict` of parameters only; so the loop is kept
 * and vectorised. */
FR_IN_LINE void add_products(float *restrict to, const float *restrict gradient, const float *restrict pairs,
                             const float *restrict sum, const float *restrict v, uint32_t dim)
{
    _Pragma("GCC unroll 1") for (uint32_t i = 0; i < dim; i++) to[i] += pairs[i] * (sum[i] - v[i]) + gradient[i];
}

/* Adds the gradient of a summed row v from an entry. */
FR_IN_LINE void add_summed(const struct fr_row_source *source, uint32_t entry, const float *v, uint32_t dim, float *to)
{
    add_products(to, source->gradient.values + entry * source->gradient.ld,
                 source->pairs.values + entry * source->pairs.ld, source->sum.values + entry * source->sum.ld, v, dim);
}

/* Sums the occurrences of one unique key into `sums`; returns the parts that they reach. */
FR_IN_LINE uint32_t sum_occurrences(const struct fr_row_update *u, uint32_t unique, struct range range, uint32_t known,
                                    float *const *sums, uint32_t *counts)
{
    uint32_t reached = 0, last = u->occ_begin[u->end];
    float summed[FR_SUM_DIM_MAX];
    for (uint32_t o = range.begin; o < range.end; o++) {
        if (last - o > PREFETCH_OCCURRENCES)
            prefetch_gradients(u, o + PREFETCH_OCCURRENCES, known);
        uint32_t number = u->occ[o], counted = 0;
        struct fr_occurrence at = fr_occurrence_at(u, o);
        for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
            const struct fr_row_source *source = &u->sources[k];
            uint32_t id = number - source->first, bit = 1u << source->part, dim = dim_of(u, source->part, known);
            if (source->trained[at.entry] == 0 || (source->masked && source->masked[id]))
                continue;
            float coef = source->weights ? source->weights[id] : 1.0f;
            if (fr_pooling_keeps_scale(source->pooling))
                coef *= source->kept[at.entry];
            const float *d = source->gradient.values + (source->by_id ? id : at.entry) * source->gradient.ld;
            if (source->pairs.values) {
                for (uint32_t i = 0; i < dim; i++)
                    summed[i] = -0.0f; /* minus zero plus a number is exactly that number */
                add_summed(source, at.entry, served_row(u, unique, source->part), dim, summed);
                d = summed;
            }
            if (fr_pooling_chooses(source->pooling))
                fr_pooling_add_reached(sums[source->part], d, source->kept + (size_t)at.entry * dim, id, coef, dim,
                                       (reached & bit) != 0, 0, 1);
            else
                add_gradient(sums[source->part], d, dim, coef, (reached & bit) != 0);
            reached |= bit;
            if (!(counted & bit)) /* an occurrence counts once, however many readers it has */
                counts[source->part] += source->counted[at.entry];
            counted |= bit;
        }
    }
    return reached;
}

/* Sums the occurrences in blocks; adds to row->counts. Returns the parts that are reached. */
FR_IN_LINE uint32_t sum_blocks(const struct fr_row_update *u, uint32_t unique, struct range range, uint32_t known,
                               struct row_sum *row, float *const *sums)
{
    if (range.end - range.begin <= FR_OCCURRENCE_BLOCK)
        return sum_occurrences(u, unique, range, known, sums, row->counts);
    uint32_t reached = 0;
    for (uint32_t o = range.begin; o < range.end; o += FR_OCCURRENCE_BLOCK) {
        struct range block = {o, range.end - o < FR_OCCURRENCE_BLOCK ? range.end : o + FR_OCCURRENCE_BLOCK};
        uint32_t parts = sum_occurrences(u, unique, block, known, row->block, row->counts);
        for (uint32_t p = 0; p < u->n_parts; p++)
            if (parts >> p & 1)
                add_gradient(sums[p], row->block[p], dim_of(u, p, known), 1.0f, reached >> p & 1);
        reached |= parts;
    }
    return reached;
}

/* Whether the occurrences of a key are in several lanes. */
FR_IN_LINE bool in_lanes(const struct fr_row_update *u, struct range range)
{
    return u->occ_lane && u->occ_lane[range.begin] != u->occ_lane[range.end - 1];
}

/* Returns the occurrences from `begin` on that are in the lane of the first of them. */
FR_IN_LINE struct range lane_at(const struct fr_row_update *u, uint32_t begin, uint32_t end)
{
    struct range range = {begin, begin + 1};
    while (range.end < end && u->occ_lane[range.end] == u->occ_lane[begin])
        range.end++;
    return range;
}

FR_IN_LINE float *waiting_sum(const struct row_sum *row, uint32_t p, uint32_t place)
{
    return place == 0 ? row->parts[p] : row->lane[p] + place * row->stride;
}

/* Joins what waits for part p before the sum of lane `next`; FR_LANES_MAX: no lane follows. */
FR_IN_LINE void join_waiting(const struct row_sum *row, uint32_t p, uint32_t dim, struct fr_lane_tree *tree,
                             uint32_t next)
{
    for (uint32_t at; (at = fr_lane_tree_join(tree, next)) > 0;)
        add_gradient(waiting_sum(row, p, at - 1), waiting_sum(row, p, at), dim, 1.0f, true);
}

/* Gives the tree of part p its sum over a lane, or over a span of lanes. */
FR_IN_LINE void push_waiting(const struct row_sum *row, uint32_t p, uint32_t dim, struct fr_lane_tree *tree,
                             uint32_t lane, const float *sum)
{
    join_waiting(row, p, dim, tree, lane);
    memcpy(waiting_sum(row, p, fr_lane_tree_push(tree, lane)), sum, dim * sizeof(float));
}

/* The gradient over occurrences in several lanes. A part has a tree of its own, because a lane may
 * reach some parts only. */
FR_CLONES
static uint32_t sum_lanes(const struct fr_row_update *u, uint32_t unique, struct range all, struct row_sum *row)
{
    struct fr_lane_tree trees[FR_ROW_PARTS_MAX] = {{0}};
    uint32_t reached = 0;
    for (struct range range = {0, all.begin}; range.end < all.end;) {
        range = lane_at(u, range.end, all.end);
        uint32_t parts = sum_blocks(u, unique, range, 0, row, row->lane);
        for (uint32_t p = 0; p < u->n_parts; p++)
            if (parts >> p & 1)
                push_waiting(row, p, u->parts[p].dim, &trees[p], u->occ_lane[range.begin], row->lane[p]);
        reached |= parts;
    }
    for (uint32_t p = 0; p < u->n_parts; p++)
        join_waiting(row, p, u->parts[p].dim, &trees[p], FR_LANES_MAX);
    return reached;
}

/* Writes the gradients of all parts over these occurrences of a unique key to row->parts, and adds
 * to row->counts. Returns the parts that are reached. */
FR_IN_LINE uint32_t range_gradient(const struct fr_row_update *u, uint32_t unique, struct range range, uint32_t known,
                                   struct row_sum *row)
{
    return in_lanes(u, range) ? sum_lanes(u, unique, range, row) : sum_blocks(u, unique, range, known, row, row->parts);
}

/* The same over all occurrences, whose counts are set. */
FR_IN_LINE uint32_t row_gradient(const struct fr_row_update *u, uint32_t unique, uint32_t known, struct row_sum *row)
{
    struct range range = {u->occ_begin[unique], u->occ_begin[unique + 1]};
    memset(row->counts, 0, u->n_parts * sizeof(*row->counts));
    return range_gradient(u, unique, range, known, row);
}

/* Returns the occurrences from `begin` on that are in the lanes of a span. */
FR_IN_LINE struct range span_at(const struct fr_row_update *u, uint32_t begin, uint32_t end, struct fr_lane_span span)
{
    struct range range = {begin, end};
    if (u->occ_lane && u->occ_lane[end - 1] >= span.end)
        for (range.end = begin; u->occ_lane[range.end] < span.end;)
            range.end++;
    return range;
}

static void lay_out_parts(const struct fr_row_part *parts, uint32_t n_parts, bool lanes, float *scratch,
                          struct row_sum *row)
{
    FR_CHECK(n_parts > 0 && n_parts <= FR_ROW_PARTS_MAX);
    memset(row, 0, sizeof(*row));
    float *at = scratch;
    for (uint32_t p = 0; p < n_parts; p++) {
        uint32_t room = (parts[p].dim + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE;
        row->parts[p] = at;
        row->block[p] = at + room;
        at += FR_ROW_SCRATCH * (size_t)room;
        row->stride += room;
    }
    for (uint32_t p = 0; p < n_parts && lanes; p++) {
        row->lane[p] = at;
        at += row->block[p] - row->parts[p];
    }
}

static inline void lay_out_scratch(const struct fr_row_update *u, struct row_sum *row)
{
    lay_out_parts(u->parts, u->n_parts, u->occ_lane != NULL, u->scratch, row);
}

/* Prefetches a row, unless it is NULL. */
static inline void prefetch_parts(const float *row, const struct fr_row_part *parts, uint32_t n_parts)
{
    for (uint32_t p = 0; p < n_parts && row; p++) {
        prefetch_floats(row + parts[p].value_offset, parts[p].dim);
        prefetch_floats(row + parts[p].state_offset, fr_row_state_floats(parts[p].optimizer.kind, parts[p].dim));
    }
}

/* Returns the max_bits of the gradients of the parts that are reached. */
static inline uint32_t largest_bits(const struct fr_row_part *parts, uint32_t n_parts, uint32_t reached,
                                    const struct row_sum *row)
{
    uint32_t largest = 0;
    for (uint32_t p = 0; p < n_parts; p++) {
        if (!(reached >> p & 1))
            continue;
        uint32_t bits = fr_cpu_max_bits(1, parts[p].dim, (struct fr_view){row->parts[p], parts[p].dim});
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* plain.c: update_rows, sum_spans and join_spans of rows that have one part of a usual length;
 * false: they have not. */
bool fr_cpu_update_plain(const struct fr_row_update *u);
bool fr_cpu_sum_plain_spans(const struct fr_row_spans *c, size_t *floats);
bool fr_cpu_join_plain_spans(const struct fr_row_join *c);

#endif
