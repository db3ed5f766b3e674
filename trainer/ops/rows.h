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

/* The gradient of a key in several lanes. A part has a tree of its own, because a lane may reach
 * some parts only. */
FR_CLONES
static uint32_t sum_lanes(const struct fr_row_update *u, uint32_t unique, struct row_sum *row)
{
    struct fr_lane_tree trees[FR_ROW_PARTS_MAX] = {{0}};
    uint32_t reached = 0, end = u->occ_begin[unique + 1];
    for (struct range range = {0, u->occ_begin[unique]}; range.end < end;) {
        range = lane_at(u, range.end, end);
        uint32_t lane = u->occ_lane[range.begin], parts = sum_blocks(u, unique, range, 0, row, row->lane);
        for (uint32_t p = 0; p < u->n_parts; p++) {
            if (!(parts >> p & 1))
                continue;
            for (uint32_t at; (at = fr_lane_tree_join(&trees[p], lane)) > 0;)
                add_gradient(waiting_sum(row, p, at - 1), waiting_sum(row, p, at), u->parts[p].dim, 1.0f, true);
            memcpy(waiting_sum(row, p, fr_lane_tree_push(&trees[p], lane)), row->lane[p],
                   u->parts[p].dim * sizeof(float));
        }
        reached |= parts;
    }
    for (uint32_t p = 0; p < u->n_parts; p++)
        for (uint32_t at; (at = fr_lane_tree_join(&trees[p], FR_LANES_MAX)) > 0;)
            add_gradient(waiting_sum(row, p, at - 1), waiting_sum(row, p, at), u->parts[p].dim, 1.0f, true);
    return reached;
}

/* Writes the gradients of all parts of one unique key to row->parts. Returns the parts that are
 * reached, whose counts are set. */
FR_IN_LINE uint32_t row_gradient(const struct fr_row_update *u, uint32_t unique, uint32_t known, struct row_sum *row)
{
    struct range range = {u->occ_begin[unique], u->occ_begin[unique + 1]};
    memset(row->counts, 0, u->n_parts * sizeof(*row->counts));
    return in_lanes(u, range) ? sum_lanes(u, unique, row) : sum_blocks(u, unique, range, known, row, row->parts);
}

static void lay_out_scratch(const struct fr_row_update *u, struct row_sum *row)
{
    FR_CHECK(u->n_parts > 0 && u->n_parts <= FR_ROW_PARTS_MAX);
    memset(row, 0, sizeof(*row));
    float *at = u->scratch;
    for (uint32_t p = 0; p < u->n_parts; p++) {
        uint32_t room = (u->parts[p].dim + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE;
        row->parts[p] = at;
        row->block[p] = at + room;
        at += FR_ROW_SCRATCH * (size_t)room;
        row->stride += room;
    }
    for (uint32_t p = 0; p < u->n_parts && u->occ_lane; p++) {
        row->lane[p] = at;
        at += row->block[p] - row->parts[p];
    }
}

/* plain.c: updates the rows if they have one part of a usual length; false: they have not. */
bool fr_cpu_update_plain(const struct fr_row_update *u);

#endif
