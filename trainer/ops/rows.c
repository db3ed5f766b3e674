/* CPU backend: embedding rows; pooling forward, gradient and optimizer step fused backward.
 *
 * A row's gradient is summed over its occurrences, in blocks, in a worker's scratch memory and
 * applied at once, so it is never stored for the batch. Rows are scattered over memory: what the
 * next keys need is prefetched. Owner of the rows: the caller, who gives each unique key to one
 * worker. Does not: know tables or slots (the graph prepares the source lists). */
#include "cpu.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "lanes.h"
#include "ops/pooling.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum {
    PREFETCH_IDS = 12,    /* ids ahead when pooling */
    PREFETCH_SINGLE = 16, /* the same where each entry has one */
    PREFETCH_ROWS = 16,   /* unique keys ahead when updating */
    PREFETCH_OCCURRENCES = 12,
    WEIGHTS = 16,       /* of rows of one value that are stepped together */
    PLAIN_DIM_MAX = 16, /* of rows whose loops are of fixed length */
    FLOATS_PER_LINE = 16,
};

static inline void prefetch_floats(const float *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += FLOATS_PER_LINE)
        __builtin_prefetch(at + i, 1);
}

/* What the weights of ids [begin, end) are multiplied by. */
static inline float gather_scale(const struct fr_gather *g, uint32_t begin, uint32_t end)
{
    if (g->kind == FR_POOL_SUM)
        return 1.0f;
    float total = g->weights ? 0.0f : (float)(end - begin);
    for (uint32_t p = begin; p < end && g->weights; p++)
        total += fr_pooling_share(g->kind, g->weights[p]);
    return total == 0.0f ? 0.0f : fr_pooling_scale(g->kind, total);
}

/* The row of id p, or NULL; fetches what comes PREFETCH_IDS later, before `last`. */
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

/* Rows of one value: no loop over columns. */
static void gather_weights(const struct fr_gather *g)
{
    uint32_t last = g->begin[g->entry_end];
    for (uint32_t s = g->entry_begin; s < g->entry_end; s++) {
        uint32_t begin = g->begin[s], end = g->begin[s + 1];
        float scale = gather_scale(g, begin, end), sum = 0.0f;
        if (g->scale)
            g->scale[s] = scale;
        bool any = false;
        for (uint32_t p = begin; p < end; p++) {
            const float *v = row_of(g->rows, g->unique_of, p, last, g->value_offset);
            if (!v)
                continue;
            float product = (g->weights ? g->weights[p] : 1.0f) * scale * *v;
            sum = any ? sum + product : product;
            any = true;
        }
        g->out.values[s * g->out.ld] = sum;
    }
}

FR_CLONES
static void gather_vectors(const struct fr_gather *g)
{
    uint32_t last = g->begin[g->entry_end], dim = g->dim;
    for (uint32_t s = g->entry_begin; s < g->entry_end; s++) {
        uint32_t begin = g->begin[s], end = g->begin[s + 1];
        float *restrict out = g->out.values + s * g->out.ld;
        float scale = gather_scale(g, begin, end);
        if (g->scale)
            g->scale[s] = scale;
        bool any = false;
        for (uint32_t p = begin; p < end; p++) {
            const float *restrict v = row_of(g->rows, g->unique_of, p, last, g->value_offset);
            if (!v)
                continue;
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

/* Whether each entry has one id, and no weight. */
FR_CLONES
static bool has_single_ids(const struct fr_gather *g)
{
    const uint32_t *begin = g->begin + g->entry_begin;
    uint32_t n = g->entry_end - g->entry_begin, other = 0;
    for (uint32_t s = 0; s <= n; s++)
        other |= (begin[s] - begin[0]) ^ s;
    return other == 0 && !g->weights;
}

/* Without inner loops: the processor has many ids of one value at work by itself. Of wider rows it
 * has fewer, so what comes later is fetched, and the place where it goes, too. */
FR_IN_LINE void gather_single(const struct fr_gather *g, uint32_t dim)
{
    static const float nothing[PLAIN_DIM_MAX];
    uint32_t begin = g->begin[g->entry_begin], n = g->entry_end - g->entry_begin;
    const uint32_t *restrict unique_of = g->unique_of + begin;
    float *out_begin = g->out.values + g->entry_begin * g->out.ld;
    float scale = gather_scale(g, begin, begin + 1);
    for (uint32_t s = 0; s < n; s++) {
        if (dim > 1 && n - s > PREFETCH_SINGLE) {
            const float *next = g->rows[unique_of[s + PREFETCH_SINGLE]];
            next = next ? next + g->value_offset : nothing;
            __builtin_prefetch(next);
            __builtin_prefetch(next + dim - 1);
            __builtin_prefetch(out_begin + (s + PREFETCH_SINGLE) * g->out.ld, 1);
        }
        const float *row = g->rows[unique_of[s]], *restrict v = row ? row + g->value_offset : nothing;
        float *restrict out = out_begin + s * g->out.ld;
        for (uint32_t i = 0; i < dim; i++)
            out[i] = scale * v[i];
    }
    for (uint32_t s = g->entry_begin; g->scale && s < g->entry_end; s++)
        g->scale[s] = scale;
}

FR_CLONES
static void gather_single_weights(const struct fr_gather *g)
{
    gather_single(g, 1);
}

FR_CLONES
static void gather_single_8(const struct fr_gather *g)
{
    gather_single(g, 8);
}

FR_CLONES
static void gather_single_16(const struct fr_gather *g)
{
    gather_single(g, 16);
}

void fr_cpu_gather(const struct fr_gather *g)
{
    bool is_single = g->entry_begin < g->entry_end && has_single_ids(g);
    if (g->dim == 1 && is_single)
        gather_single_weights(g);
    else if (g->dim == 1)
        gather_weights(g);
    else if (g->dim == 8 && is_single)
        gather_single_8(g);
    else if (g->dim == 16 && is_single)
        gather_single_16(g);
    else
        gather_vectors(g);
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

/* What occurrence `o` of the block's list, perhaps of a later key, will add. */
static inline void prefetch_gradients(const struct fr_row_update *u, uint32_t o)
{
    uint32_t number = u->occ[o];
    struct fr_occurrence at = fr_occurrence_at(u, o);
    for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
        const struct fr_row_source *source = &u->sources[k];
        const float *d =
            source->gradient.values + (source->by_id ? number - source->first : at.entry) * source->gradient.ld;
        for (uint32_t i = 0; i < u->parts[source->part].dim; i += FLOATS_PER_LINE)
            __builtin_prefetch(d + i);
    }
}

/* A row at work: where its parts' gradients are summed, how many trained samples reach each. */
struct row_sum {
    float *parts[FR_ROW_PARTS_MAX];
    float *block[FR_ROW_PARTS_MAX]; /* of the occurrences at hand, when there are several blocks */
    uint32_t counts[FR_ROW_PARTS_MAX];
};

/* Adds coef * d to the part's sum, or begins it. */
static inline void add_gradient(float *restrict g, const float *restrict d, uint32_t dim, float coef, bool begun)
{
    if (begun) {
        for (uint32_t i = 0; i < dim; i++)
            g[i] += coef * d[i];
    } else {
        for (uint32_t i = 0; i < dim; i++)
            g[i] = coef * d[i];
    }
}

/* Sums occurrences [begin, end) of one unique key into `sums`; returns the parts reached. `last`:
 * end of the list, for prefetching. */
static inline uint32_t sum_occurrences(const struct fr_row_update *u, uint32_t begin, uint32_t end, uint32_t last,
                                       float *const *sums, uint32_t *counts)
{
    uint32_t reached = 0;
    for (uint32_t o = begin; o < end; o++) {
        if (last - o > PREFETCH_OCCURRENCES)
            prefetch_gradients(u, o + PREFETCH_OCCURRENCES);
        uint32_t number = u->occ[o], counted = 0;
        struct fr_occurrence at = fr_occurrence_at(u, o);
        for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
            const struct fr_row_source *source = &u->sources[k];
            uint32_t id = number - source->first, bit = 1u << source->part;
            if (source->trained[at.entry] == 0 || (source->masked && source->masked[id]))
                continue;
            float coef = source->weights ? source->weights[id] : 1.0f;
            if (source->scale)
                coef *= source->scale[at.entry];
            const float *d = source->gradient.values + (source->by_id ? id : at.entry) * source->gradient.ld;
            add_gradient(sums[source->part], d, u->parts[source->part].dim, coef, (reached & bit) != 0);
            reached |= bit;
            if (!(counted & bit)) /* an occurrence is one, however many read it */
                counts[source->part] += source->counted[at.entry];
            counted |= bit;
        }
    }
    return reached;
}

/* Gradients of all parts of one unique key into row->parts; returns the parts reached, whose counts
 * are set. */
static inline uint32_t row_gradient(const struct fr_row_update *u, uint32_t unique, struct row_sum *row)
{
    uint32_t begin = u->occ_begin[unique], end = u->occ_begin[unique + 1], last = u->occ_begin[u->end];
    memset(row->counts, 0, u->n_parts * sizeof(*row->counts));
    if (end - begin <= FR_OCCURRENCE_BLOCK)
        return sum_occurrences(u, begin, end, last, row->parts, row->counts);
    uint32_t reached = 0;
    for (uint32_t o = begin; o < end; o += FR_OCCURRENCE_BLOCK) {
        uint32_t until = end - o < FR_OCCURRENCE_BLOCK ? end : o + FR_OCCURRENCE_BLOCK;
        uint32_t parts = sum_occurrences(u, o, until, last, row->block, row->counts);
        for (uint32_t p = 0; p < u->n_parts; p++)
            if (parts >> p & 1)
                add_gradient(row->parts[p], row->block[p], u->parts[p].dim, 1.0f, reached >> p & 1);
        reached |= parts;
    }
    return reached;
}

static void lay_out_scratch(const struct fr_row_update *u, struct row_sum *row)
{
    FR_CHECK(u->n_parts <= FR_ROW_PARTS_MAX);
    memset(row, 0, sizeof(*row));
    float *at = u->scratch;
    for (uint32_t p = 0; p < u->n_parts; p++) {
        uint32_t room = (u->parts[p].dim + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE;
        row->parts[p] = at;
        row->block[p] = at + room;
        at += 2 * (size_t)room;
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

/* ---- rows of one part ---- */

/* Every slot has one reader, of which every entry counts once and nothing is scaled: an occurrence
 * adds a row of gradients as it is. */
static bool is_plain(const struct fr_row_update *u)
{
    bool plain = u->n_parts == 1 && u->n_groups > 0;
    for (uint32_t g = 0; plain && g < u->n_groups; g++) {
        const struct fr_row_source *s = &u->sources[g];
        plain = u->source_begin[g + 1] == g + 1 && s->whole && !s->by_id && !s->weights && !s->scale && !s->masked;
    }
    return plain;
}

FR_IN_LINE const float *plain_gradient(const struct fr_row_update *u, uint32_t o)
{
    struct fr_occurrence at = fr_occurrence_at(u, o);
    const struct fr_view *gradient = &u->sources[at.group].gradient;
    return gradient->values + at.entry * gradient->ld;
}

/* Sum of occurrences [begin, end), at least one, of a key; `last`: end of the list. */
FR_IN_LINE void sum_plain_block(const struct fr_row_update *u, uint32_t begin, uint32_t end, uint32_t last,
                                uint32_t dim, float *restrict sum)
{
    const float *restrict first = plain_gradient(u, begin);
    for (uint32_t i = 0; i < dim; i++)
        sum[i] = first[i];
    for (uint32_t o = begin; o < end; o++) {
        if (dim > 1 && last - o > PREFETCH_OCCURRENCES)
            __builtin_prefetch(plain_gradient(u, o + PREFETCH_OCCURRENCES));
        const float *restrict d = plain_gradient(u, o);
        for (uint32_t i = 0; i < dim && o > begin; i++)
            sum[i] += d[i];
    }
}

FR_IN_LINE void sum_plain(const struct fr_row_update *u, uint32_t unique, uint32_t last, uint32_t dim,
                          float *restrict sum)
{
    uint32_t begin = u->occ_begin[unique], end = u->occ_begin[unique + 1];
    if (end - begin <= FR_OCCURRENCE_BLOCK) {
        sum_plain_block(u, begin, end, last, dim, sum);
        return;
    }
    sum_plain_block(u, begin, begin + FR_OCCURRENCE_BLOCK, last, dim, sum);
    for (uint32_t o = begin + FR_OCCURRENCE_BLOCK; o < end; o += FR_OCCURRENCE_BLOCK) {
        float block[PLAIN_DIM_MAX];
        sum_plain_block(u, o, end - o < FR_OCCURRENCE_BLOCK ? end : o + FR_OCCURRENCE_BLOCK, last, dim, block);
        for (uint32_t i = 0; i < dim; i++)
            sum[i] += block[i];
    }
}

/* Of a row of so many floats, unless it is NULL. */
FR_IN_LINE void prefetch_row(const float *row, uint32_t floats)
{
    for (uint32_t i = 0; i < floats && row; i += FLOATS_PER_LINE)
        __builtin_prefetch(row + i, 1);
    if (row)
        __builtin_prefetch(row + floats - 1, 1);
}

static uint32_t floats_of(const struct fr_row_part *part)
{
    return part->state_offset + fr_row_state_floats(part->optimizer.kind, part->dim);
}

/* Steps of the rows, whose length the compiler knows. */
FR_IN_LINE void update_plain(const struct fr_row_update *u, uint32_t dim)
{
    const struct fr_row_part *part = &u->parts[0];
    uint32_t last = u->occ_begin[u->end], floats = floats_of(part);
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        if (u->end - unique > PREFETCH_ROWS)
            prefetch_row(u->rows[unique + PREFETCH_ROWS], floats);
        float *row = u->rows[unique], sum[PLAIN_DIM_MAX];
        if (!row)
            continue;
        sum_plain(u, unique, last, dim, sum);
        fr_row_step(row + part->value_offset, row + part->state_offset, sum, dim,
                    u->occ_begin[unique + 1] - u->occ_begin[unique], &part->optimizer);
    }
}

FR_CLONES
static void update_plain_8(const struct fr_row_update *u)
{
    update_plain(u, 8);
}

FR_CLONES
static void update_plain_16(const struct fr_row_update *u)
{
    update_plain(u, 16);
}

/* ---- rows of one value ---- */

/* Weights of as many rows, column by column: a step of FTRL is three roots and three quotients one
 * after the other, and side by side they cost hardly more than one row's. */
struct weights {
    uint32_t n;
    float *row[WEIGHTS];
    float w[WEIGHTS], z[WEIGHTS], squares[WEIGHTS], g[WEIGHTS];
};

static bool has_weights(const struct fr_row_update *u)
{
    const struct fr_optimizer *o = &u->parts[0].optimizer;
    return u->n_parts == 1 && u->parts[0].dim == 1 && o->kind == FR_OPT_FTRL && !fr_shapes_gradient(o);
}

FR_IN_LINE void step_weights(const struct fr_row_part *part, struct weights *weights)
{
    for (uint32_t i = 0; i < WEIGHTS; i++)
        fr_ftrl_element(&weights->w[i], &weights->z[i], &weights->squares[i], weights->g[i], &part->optimizer);
    for (uint32_t i = 0; i < weights->n; i++) {
        float *state = weights->row[i] + part->state_offset;
        weights->row[i][part->value_offset] = weights->w[i];
        state[0] = weights->z[i];
        state[1] = weights->squares[i];
    }
    weights->n = 0;
}

FR_IN_LINE void put_weight(const struct fr_row_part *part, float *row, float g, struct weights *weights)
{
    uint32_t i = weights->n++;
    const float *state = row + part->state_offset;
    weights->row[i] = row;
    weights->w[i] = row[part->value_offset];
    weights->z[i] = state[0];
    weights->squares[i] = state[1];
    weights->g[i] = g;
    if (weights->n == WEIGHTS)
        step_weights(part, weights);
}

FR_IN_LINE void update_each_weight(const struct fr_row_update *u, bool plain)
{
    struct weights weights = {0};
    struct row_sum sum;
    uint32_t last = u->occ_begin[u->end], floats = floats_of(&u->parts[0]);
    lay_out_scratch(u, &sum);
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        if (u->end - unique > PREFETCH_ROWS)
            prefetch_row(u->rows[unique + PREFETCH_ROWS], floats);
        if (!u->rows[unique])
            continue;
        if (plain)
            sum_plain(u, unique, last, 1, sum.parts[0]);
        if (plain || row_gradient(u, unique, &sum) != 0)
            put_weight(&u->parts[0], u->rows[unique], sum.parts[0][0], &weights);
    }
    step_weights(&u->parts[0], &weights);
}

FR_CLONES
static void update_weights(const struct fr_row_update *u)
{
    update_each_weight(u, false);
}

FR_CLONES
static void update_plain_weights(const struct fr_row_update *u)
{
    update_each_weight(u, true);
}

FR_CLONES
static void update_parts(const struct fr_row_update *u)
{
    struct row_sum sum;
    lay_out_scratch(u, &sum);
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        if (u->end - unique > PREFETCH_ROWS)
            prefetch_unique(u, unique + PREFETCH_ROWS);
        float *row = u->rows[unique];
        if (!row)
            continue;
        uint32_t reached = row_gradient(u, unique, &sum);
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
    bool plain = is_plain(u);
    uint32_t dim = plain ? u->parts[0].dim : 0;
    if (has_weights(u) && plain)
        update_plain_weights(u);
    else if (has_weights(u))
        update_weights(u);
    else if (dim == 8)
        update_plain_8(u);
    else if (dim == 16)
        update_plain_16(u);
    else
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
        uint32_t reached = row_gradient(u, unique, &sum);
        for (uint32_t p = 0; p < u->n_parts; p++) {
            if (!(reached >> p & 1))
                continue;
            uint32_t bits = fr_cpu_max_bits(1, u->parts[p].dim, (struct fr_view){sum.parts[p], u->parts[p].dim});
            largest = bits > largest ? bits : largest;
        }
    }
    return largest;
}
