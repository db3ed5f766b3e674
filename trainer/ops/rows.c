/* CPU backend: embedding rows; pooling forward, gradient and optimizer step fused backward.
 *
 * A row's gradient is summed over its occurrences in ascending order in a worker's scratch memory and applied at once,
 * so it is never stored for the batch. Rows are scattered over memory: what the next keys need is prefetched. Owner of
 * the rows: the caller, who gives each unique key to one worker. Does not: know tables or slots (the graph prepares the
 * source lists). */
#include "cpu.h"

#include <string.h>

#include "base/check.h"
#include "base/math.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum {
    PREFETCH_IDS = 12,  /* ids ahead when pooling */
    PREFETCH_ROWS = 16, /* unique keys ahead when updating */
    FLOATS_PER_LINE = 16,
};

static inline void prefetch_floats(const float *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += FLOATS_PER_LINE)
        __builtin_prefetch(at + i, 1);
}

static inline float weight_sum(const struct fr_gather *g, uint32_t begin, uint32_t end)
{
    if (!g->weights)
        return (float)(end - begin);
    float sum = 0.0f;
    for (uint32_t p = begin; p < end; p++)
        sum += g->weights[p];
    return sum;
}

FR_CLONES
void fr_cpu_gather(const struct fr_gather *g)
{
    uint32_t last = g->begin[g->sample_end], dim = g->dim;
    for (uint32_t s = g->sample_begin; s < g->sample_end; s++) {
        uint32_t begin = g->begin[s], end = g->begin[s + 1];
        float *restrict out = g->out.values + s * g->out.ld;
        float scale = 1.0f;
        if (g->mean) {
            float sum = weight_sum(g, begin, end);
            scale = sum == 0.0f ? 0.0f : 1.0f / sum;
            g->scale[s] = scale;
        }
        bool any = false;
        for (uint32_t p = begin; p < end; p++) {
            if (last - p > PREFETCH_IDS) {
                const float *next = g->rows[g->unique_of[p + PREFETCH_IDS]];
                if (next)
                    __builtin_prefetch(next + g->value_offset);
            }
            const float *row = g->rows[g->unique_of[p]];
            if (!row)
                continue;
            const float *restrict v = row + g->value_offset;
            float coef = (g->weights ? g->weights[p] : 1.0f) * scale;
            if (any) {
                for (uint32_t i = 0; i < dim; i++)
                    out[i] += coef * v[i];
            } else {
                for (uint32_t i = 0; i < dim; i++)
                    out[i] = coef * v[i];
                any = true;
            }
        }
        if (!any)
            memset(out, 0, dim * sizeof(float));
    }
}

/* Gradients of all parts of one unique key into scratch, part after part at multiples of a cache line; returns the
 * parts reached. */
static inline uint32_t row_gradient(const struct fr_row_update *u, uint32_t unique, float *const *parts)
{
    uint32_t reached = 0;
    for (uint32_t o = u->occ_begin[unique]; o < u->occ_begin[unique + 1]; o++) {
        uint32_t number = u->occ[o];
        struct fr_occurrence at = u->occurrences[number];
        if (!u->trained[at.sample])
            continue;
        for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
            const struct fr_row_source *source = &u->sources[k];
            float coef = source->weights ? source->weights[number - source->first] : 1.0f;
            if (source->scale)
                coef *= source->scale[at.sample];
            const float *restrict d = source->gradient.values + at.sample * source->gradient.ld;
            float *restrict g = parts[source->part];
            uint32_t dim = u->parts[source->part].dim;
            if (reached >> source->part & 1) {
                for (uint32_t i = 0; i < dim; i++)
                    g[i] += coef * d[i];
            } else {
                for (uint32_t i = 0; i < dim; i++)
                    g[i] = coef * d[i];
                reached |= 1u << source->part;
            }
        }
    }
    return reached;
}

static void lay_out_scratch(const struct fr_row_update *u, float **parts)
{
    FR_CHECK(u->n_parts <= FR_ROW_PARTS_MAX);
    float *at = u->scratch;
    for (uint32_t p = 0; p < u->n_parts; p++) {
        parts[p] = at;
        at += (u->parts[p].dim + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE;
    }
}

static inline void prefetch_unique(const struct fr_row_update *u, uint32_t unique)
{
    const float *row = u->rows[unique];
    if (!row)
        return;
    for (uint32_t p = 0; p < u->n_parts; p++) {
        const struct fr_row_part *part = &u->parts[p];
        prefetch_floats(row + part->value_offset, part->dim);
        prefetch_floats(row + part->state_offset, fr_row_state_floats(part->optimizer.kind, part->dim));
    }
}

FR_CLONES
void fr_cpu_update_rows(const struct fr_row_update *u)
{
    float *parts[FR_ROW_PARTS_MAX];
    lay_out_scratch(u, parts);
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        if (u->end - unique > PREFETCH_ROWS)
            prefetch_unique(u, unique + PREFETCH_ROWS);
        float *row = u->rows[unique];
        if (!row)
            continue;
        uint32_t reached = row_gradient(u, unique, parts);
        for (uint32_t p = 0; p < u->n_parts; p++) {
            const struct fr_row_part *part = &u->parts[p];
            if (reached >> p & 1)
                fr_row_step(row + part->value_offset, row + part->state_offset, parts[p], part->dim, &part->optimizer);
        }
    }
}

uint32_t fr_cpu_check_rows(const struct fr_row_update *u)
{
    float *parts[FR_ROW_PARTS_MAX];
    lay_out_scratch(u, parts);
    uint32_t largest = 0;
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        if (!u->rows[unique])
            continue;
        uint32_t reached = row_gradient(u, unique, parts);
        for (uint32_t p = 0; p < u->n_parts; p++) {
            if (!(reached >> p & 1))
                continue;
            uint32_t bits = fr_cpu_max_bits(1, u->parts[p].dim, (struct fr_view){parts[p], u->parts[p].dim});
            largest = bits > largest ? bits : largest;
        }
    }
    return largest;
}
