/* CPU backend: embedding rows; pooling forward, gradient and optimizer step fused backward.
 *
 * A row's gradient is summed over its occurrences, in blocks, in a worker's scratch memory and
 * applied at once, so it is never stored for the batch. Rows are scattered over memory, so what
 * the next keys need is prefetched. Owner of the rows: the caller, who gives each unique key to
 * one worker. Tables and slots are not known here; the graph prepares the lists of sources. */

#include <math.h>
#include <string.h>

#include "base/math.h"
#include "ops/pooling.h"
#include "rows.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum {
    PREFETCH_IDS = 12,    /* prefetch distance in ids when pooling */
    PREFETCH_SINGLE = 16, /* the same distance if each entry has one id */
    SINGLE_DIM_MAX = 16,  /* longest rows whose loops have a fixed length */
};

/* Returns the row of id p, or NULL; prefetches the id PREFETCH_IDS later, if it is before
 * `last`. */
static inline const float *row_of(float *const *rows, const uint32_t *unique_of, uint32_t p, uint32_t last,
                                  uint32_t value_offset)
{
    if (last - p > PREFETCH_IDS) {
        const float *next = rows[unique_of[p + PREFETCH_IDS]];
        if (next)
            __builtin_prefetch(next + value_offset);
    }
    const float *row = rows[unique_of[p]];
    return row ? row + value_offset : NULL;
}

/* Adds a row to a sum. The sum begins with the first row, not with zeros, so the bits of a
 * single row stay the same. */
FR_IN_LINE void add_row(float *restrict out, const float *restrict v, float coef, uint32_t dim, bool begun)
{
    if (begun) {
        for (uint32_t i = 0; i < dim; i++)
            out[i] += coef * v[i];
    } else {
        for (uint32_t i = 0; i < dim; i++)
            out[i] = coef * v[i];
    }
}

/* Pools entries of any number of ids. The compiler knows the pooling, and the length of rows if
 * it is 1. */
FR_IN_LINE void gather_entries(const struct fr_gather *g, enum fr_pooling kind, uint32_t dim)
{
    uint32_t last = g->begin[g->entry_end];
    for (uint32_t s = g->entry_begin; s < g->entry_end; s++) {
        uint32_t begin = g->begin[s], end = g->begin[s + 1];
        float *out = g->out.values + s * g->out.ld;
        float scale = fr_pooling_scale(kind, g->weights, begin, end);
        float *chosen = fr_pooling_chooses(kind) ? g->kept + (size_t)s * dim : NULL;
        bool any = false;
        if (fr_pooling_keeps_scale(kind))
            g->kept[s] = scale;
        if (chosen)
            fr_pooling_choose_none(chosen, dim);
        for (uint32_t p = begin; p < end; p++) {
            const float *v = row_of(g->rows, g->unique_of, p, last, g->value_offset);
            if (!v)
                continue;
            float coef = (g->weights ? g->weights[p] : 1.0f) * scale;
            if (chosen)
                fr_pooling_offer(kind, out, chosen, v, coef, p, dim, any);
            else
                add_row(out, v, coef, dim, any);
            any = true;
        }
        if (!any)
            memset(out, 0, dim * sizeof(float));
    }
}

/* A separate function, so that the compiler keeps the loop and vectorises it (see sums.c). */
FR_IN_LINE void copy_scaled(float *restrict out, const float *restrict v, float scale, uint32_t dim)
{
    _Pragma("GCC unroll 1") for (uint32_t i = 0; i < dim; i++) out[i] = scale * v[i];
}

/* Gathers entries of one id. For rows of one value there is no inner loop, and the processor
 * overlaps many ids by itself. Of wider rows it overlaps fewer, so later rows are prefetched,
 * and the places where they are written, too. */
FR_IN_LINE void gather_single(const struct fr_gather *g, uint32_t dim)
{
    static const float nothing[SINGLE_DIM_MAX];
    uint32_t begin = g->begin[g->entry_begin], n = g->entry_end - g->entry_begin;
    const uint32_t *restrict unique_of = g->unique_of + begin;
    float *out_begin = g->out.values + g->entry_begin * g->out.ld;
    float scale = fr_pooling_scale(g->kind, g->weights, begin, begin + 1);
    for (uint32_t s = 0; s < n; s++) {
        if (dim > 1 && n - s > PREFETCH_SINGLE) {
            const float *next = g->rows[unique_of[s + PREFETCH_SINGLE]];
            next = next ? next + g->value_offset : nothing;
            __builtin_prefetch(next);
            __builtin_prefetch(next + dim - 1);
            __builtin_prefetch(out_begin + (s + PREFETCH_SINGLE) * g->out.ld, 1);
        }
        const float *row = g->rows[unique_of[s]];
        copy_scaled(out_begin + s * g->out.ld, row ? row + g->value_offset : nothing, scale, dim);
    }
    for (uint32_t s = g->entry_begin; fr_pooling_keeps_scale(g->kind) && s < g->entry_end; s++)
        g->kept[s] = scale;
}

static bool has_single_ids(const struct fr_gather *g)
{
    return !fr_pooling_chooses(g->kind) && (g->dim == 1 || g->dim == 8 || g->dim == SINGLE_DIM_MAX) &&
           g->entry_begin < g->entry_end &&
           fr_single_ids(g->begin + g->entry_begin, g->entry_end - g->entry_begin, g->weights);
}

FR_CLONES
static void gather_singles(const struct fr_gather *g)
{
    if (g->dim == 1)
        gather_single(g, 1);
    else if (g->dim == 8)
        gather_single(g, 8);
    else
        gather_single(g, SINGLE_DIM_MAX);
}

#define GATHER_ENTRIES(name, ...)                                                                                      \
    case name:                                                                                                         \
        g->dim == 1 ? gather_entries(g, name, 1) : gather_entries(g, name, g->dim);                                    \
        break;
FR_CLONES
static void gather_by_pooling(const struct fr_gather *g)
{
    switch (g->kind) {
        FR_POOLINGS(GATHER_ENTRIES)
    }
}

void fr_cpu_gather(const struct fr_gather *g)
{
    (has_single_ids(g) ? gather_singles : gather_by_pooling)(g);
}

FR_CLONES
void fr_cpu_gather_steps(const struct fr_gather_steps *g)
{
    uint32_t dim = g->dim;
    for (uint32_t p = g->begin; p < g->end; p++) {
        const float *restrict v = row_of(g->rows, g->unique_of, p, g->end, g->value_offset);
        float *restrict out = g->out.values + p * g->out.ld;
        g->masked[p] = v == NULL;
        if (v) {
            float weight = g->weights ? g->weights[p] : 1.0f;
            for (uint32_t i = 0; i < dim; i++)
                out[i] = weight * v[i];
        } else {
            memset(out, 0, dim * sizeof(float));
        }
    }
}

FR_CLONES
static void update_parts(const struct fr_row_update *u)
{
    struct row_sum sum;
    lay_out_scratch(u, &sum);
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        if (u->end - unique > PREFETCH_ROWS)
            prefetch_parts(u->rows[unique + PREFETCH_ROWS], u->parts, u->n_parts);
        float *row = u->rows[unique];
        if (!row)
            continue;
        uint32_t reached = row_gradient(u, unique, 0, &sum);
        for (uint32_t p = 0; p < u->n_parts; p++) {
            const struct fr_row_part *part = &u->parts[p];
            if (reached >> p & 1)
                fr_row_step(row + part->value_offset, row + part->state_offset, sum.parts[p], part->dim, sum.counts[p],
                            &part->optimizer);
        }
    }
}

void fr_cpu_update_rows(const struct fr_row_update *u)
{
    if (!fr_cpu_update_plain(u))
        update_parts(u);
}

uint32_t fr_cpu_check_rows(const struct fr_row_update *u)
{
    struct row_sum sum;
    lay_out_scratch(u, &sum);
    uint32_t largest = 0;
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        if (!u->rows[unique])
            continue;
        uint32_t bits = largest_bits(u->parts, u->n_parts, row_gradient(u, unique, 0, &sum), &sum);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}
