/* CPU backend: updates of rows of one part, in loops of a length that the compiler knows: eight
 * and sixteen values, and single weights of FTRL. If every occurrence contributes in the same
 * way, the sums take fewer steps.
 *
 * Several rows are stepped at the same time. The bits are those of fr_row_step. Owner of the
 * rows: the caller, who gives each unique key to one worker. */
#include <math.h>

#include "rows.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum {
    ROWS = 16,          /* rows that are stepped together */
    PLAIN_DIM_MAX = 16, /* longest rows whose loops have a fixed length */
};

/* Whether every slot has one reader in which every entry counts once and nothing is scaled, so
 * that an occurrence adds a row of gradients unchanged; or whether all are rows of one sum with
 * pairs. */
static bool is_plain(const struct fr_row_update *u)
{
    bool plain = u->n_parts == 1 && u->n_groups > 0;
    for (uint32_t g = 0; plain && g < u->n_groups; g++) {
        const struct fr_row_source *s = &u->sources[g], *first = &u->sources[0];
        plain = u->source_begin[g + 1] == g + 1 && s->whole && !s->by_id && !s->weights && !s->masked &&
                fr_pooling_is_sum(s->pooling) && s->pairs.values == first->pairs.values;
    }
    return plain;
}

FR_IN_LINE const float *plain_gradient(const struct fr_row_update *u, uint32_t o)
{
    struct fr_occurrence at = fr_occurrence_at(u, o);
    const struct fr_view *gradient = &u->sources[at.group].gradient;
    return gradient->values + at.entry * gradient->ld;
}

FR_IN_LINE void add_gradients(float *restrict sum, const float *restrict d, uint32_t dim)
{
    _Pragma("GCC unroll 1") for (uint32_t i = 0; i < dim; i++) sum[i] += d[i];
}

/* Adds the gradient of an occurrence; v: the row as it was served. */
FR_IN_LINE void add_plain(const struct fr_row_update *u, uint32_t o, const float *v, uint32_t dim, bool paired,
                          float *sum)
{
    const struct fr_row_source *source = &u->sources[0];
    if (!paired) {
        add_gradients(sum, plain_gradient(u, o), dim);
        return;
    }
    add_summed(source, fr_occurrence_at(u, o).entry, v, dim, sum);
}

FR_IN_LINE void prefetch_plain(const struct fr_row_update *u, uint32_t o, bool paired)
{
    if (paired) {
        const struct fr_row_source *source = &u->sources[0];
        uint32_t entry = fr_occurrence_at(u, o).entry;
        __builtin_prefetch(source->gradient.values + entry * source->gradient.ld);
        __builtin_prefetch(source->pairs.values + entry * source->pairs.ld);
        __builtin_prefetch(source->sum.values + entry * source->sum.ld);
    } else {
        __builtin_prefetch(plain_gradient(u, o));
    }
}

/* Sums the occurrences of a key. The sum begins with minus zero, because minus zero plus a
 * number is exactly that number. */
FR_IN_LINE void sum_plain_block(const struct fr_row_update *u, struct range range, const float *v, uint32_t dim,
                                bool paired, float *sum)
{
    uint32_t last = u->occ_begin[u->end];
    for (uint32_t i = 0; i < dim; i++)
        sum[i] = -0.0f;
    for (uint32_t o = range.begin; o < range.end; o++) {
        if (dim > 1 && last - o > PREFETCH_OCCURRENCES)
            prefetch_plain(u, o + PREFETCH_OCCURRENCES, paired);
        add_plain(u, o, v, dim, paired, sum);
    }
}

FR_IN_LINE void sum_plain_blocks(const struct fr_row_update *u, struct range range, const float *v, uint32_t dim,
                                 bool paired, float *sum)
{
    uint32_t end = range.end;
    if (end - range.begin <= FR_OCCURRENCE_BLOCK) {
        sum_plain_block(u, range, v, dim, paired, sum);
        return;
    }
    range.end = range.begin + FR_OCCURRENCE_BLOCK;
    sum_plain_block(u, range, v, dim, paired, sum);
    while (range.end < end) {
        float block[PLAIN_DIM_MAX];
        range.begin = range.end;
        range.end = end - range.begin < FR_OCCURRENCE_BLOCK ? end : range.begin + FR_OCCURRENCE_BLOCK;
        sum_plain_block(u, range, v, dim, paired, block);
        add_gradients(sum, block, dim);
    }
}

FR_IN_LINE void join_plain(struct fr_lane_tree *tree, uint32_t next, uint32_t dim, float (*sums)[PLAIN_DIM_MAX])
{
    for (uint32_t at; (at = fr_lane_tree_join(tree, next)) > 0;)
        add_gradients(sums[at - 1], sums[at], dim);
}

/* Gives the tree the sum of a span of lanes. */
FR_IN_LINE void push_plain(struct fr_lane_tree *tree, uint32_t lane, uint32_t dim, const float *sum,
                           float (*sums)[PLAIN_DIM_MAX])
{
    join_plain(tree, lane, dim, sums);
    memcpy(sums[fr_lane_tree_push(tree, lane)], sum, dim * sizeof(*sum));
}

FR_IN_LINE void sum_plain_lanes(const struct fr_row_update *u, struct range all, const float *v, uint32_t dim,
                                bool paired, float *sum)
{
    struct fr_lane_tree tree = {0};
    float sums[FR_LANE_TREE_DEPTH][PLAIN_DIM_MAX];
    for (struct range range = {0, all.begin}; range.end < all.end;) {
        range = lane_at(u, range.end, all.end);
        uint32_t lane = u->occ_lane[range.begin];
        join_plain(&tree, lane, dim, sums);
        sum_plain_blocks(u, range, v, dim, paired, sums[fr_lane_tree_push(&tree, lane)]);
    }
    join_plain(&tree, FR_LANES_MAX, dim, sums);
    memcpy(sum, sums[0], dim * sizeof(*sum));
}

/* A function with clones of its own, so that the loop over keys stays as small as it is with one
 * lane. */
FR_CLONES
static void sum_lanes_of_any(const struct fr_row_update *u, struct range range, const float *v, uint32_t dim,
                             float *sum)
{
    bool paired = v != NULL;
    if (dim == 16)
        paired ? sum_plain_lanes(u, range, v, 16, true, sum) : sum_plain_lanes(u, range, v, 16, false, sum);
    else if (dim == 8)
        paired ? sum_plain_lanes(u, range, v, 8, true, sum) : sum_plain_lanes(u, range, v, 8, false, sum);
    else
        sum_plain_lanes(u, range, v, 1, false, sum);
}

FR_IN_LINE void sum_plain_range(const struct fr_row_update *u, uint32_t unique, struct range range, uint32_t dim,
                                bool paired, float *sum)
{
    const float *v = paired ? served_row(u, unique, 0) : NULL;
    if (in_lanes(u, range))
        sum_lanes_of_any(u, range, v, dim, sum);
    else
        sum_plain_blocks(u, range, v, dim, paired, sum);
}

FR_IN_LINE void sum_plain(const struct fr_row_update *u, uint32_t unique, uint32_t dim, bool paired, float *sum)
{
    sum_plain_range(u, unique, (struct range){u->occ_begin[unique], u->occ_begin[unique + 1]}, dim, paired, sum);
}

/* Prefetches a row of this many floats, unless it is NULL. */
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

/* ---- rows of one part ---- */

/* Rows whose gradients are summed before any of them is stepped. A step has long dependency
 * chains, and with several rows the processor can overlap them. */
struct block {
    uint32_t n;
    float *row[ROWS];
    uint32_t count[ROWS];
    _Alignas(64) float sums[ROWS][PLAIN_DIM_MAX];
};

/* Returns the share of its accumulator that row-wise Adagrad loses in this many units
 * (fr_pace.gain2). */
FR_IN_LINE float lost_of(const struct fr_optimizer *o, uint32_t count)
{
    return fr_base2(o) == 1.0 ? 0.0f : fr_row_pace(o, count, 0).gain2;
}

FR_IN_LINE void step_values(float *restrict w, const float *restrict g, float rate, uint32_t dim)
{
    _Pragma("GCC unroll 1") for (uint32_t i = 0; i < dim; i++) w[i] = fr_cut(w[i] - rate * g[i], FR_VALUE_MAX);
}

/* Sums the squares of a short row in the same order as fr_row_sum_squares. */
FR_IN_LINE float sum_squares(const float *restrict g, uint32_t dim)
{
    float p[PLAIN_DIM_MAX] = {0};
    _Pragma("GCC unroll 1") for (uint32_t i = 0; i < dim; i++) p[i] = g[i] * g[i];
    _Pragma("GCC unroll 1") for (uint32_t i = 0; i < 8; i++) p[i] += p[i + 8];
    _Pragma("GCC unroll 1") for (uint32_t i = 0; i < 4; i++) p[i] += p[i + 4];
    return (p[0] + p[2]) + (p[1] + p[3]);
}

/* Computes the roots and quotients of all rows together, with the same operations as
 * fr_row_step. */
FR_IN_LINE void step_rowwise(const struct fr_row_part *part, struct block *block, uint32_t dim)
{
    const struct fr_optimizer *o = &part->optimizer;
    float squares[ROWS] = {0}, acc[ROWS] = {0}, lost[ROWS] = {0}, rate[ROWS];
    for (uint32_t r = 0; r < block->n; r++) {
        squares[r] = sum_squares(block->sums[r], dim);
        acc[r] = block->row[r][part->state_offset];
        lost[r] = lost_of(o, block->count[r]);
    }
    float pace = o->lr, eps = o->eps;
    for (uint32_t r = 0; r < ROWS; r++) {
        acc[r] = fr_cut(acc[r] - lost[r] * acc[r] + squares[r] / (float)dim, FR_STATE_MAX);
        rate[r] = fr_cut(pace / (sqrtf(acc[r]) + eps), FR_STATE_MAX);
    }
    for (uint32_t r = 0; r < block->n; r++) {
        step_values(block->row[r] + part->value_offset, block->sums[r], rate[r], dim);
        block->row[r][part->state_offset] = acc[r];
    }
    block->n = 0;
}

FR_IN_LINE void step_block(const struct fr_row_part *part, struct block *block, uint32_t dim)
{
    if (part->optimizer.kind == FR_OPT_ADAGRAD_ROWWISE && !fr_shapes_gradient(&part->optimizer)) {
        step_rowwise(part, block, dim);
        return;
    }
    for (uint32_t r = 0; r < block->n; r++)
        fr_row_step(block->row[r] + part->value_offset, block->row[r] + part->state_offset, block->sums[r], dim,
                    block->count[r], &part->optimizer);
    block->n = 0;
}

enum reach { PLAIN, PAIRED, ANY }; /* is_plain without pairs, is_plain with pairs, or neither */

/* Steps rows whose length the compiler knows. */
FR_IN_LINE void update_part(const struct fr_row_update *u, uint32_t dim, enum reach reach)
{
    const struct fr_row_part *part = &u->parts[0];
    struct block block = {.n = 0};
    struct row_sum sum;
    uint32_t floats = floats_of(part);
    lay_out_scratch(u, &sum);
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        if (u->end - unique > PREFETCH_ROWS)
            prefetch_row(u->rows[unique + PREFETCH_ROWS], floats);
        if (!u->rows[unique])
            continue;
        sum.parts[0] = block.sums[block.n];
        sum.counts[0] = u->occ_begin[unique + 1] - u->occ_begin[unique];
        if (reach != ANY)
            sum_plain(u, unique, dim, reach == PAIRED, sum.parts[0]);
        else if (row_gradient(u, unique, dim, &sum) == 0)
            continue;
        block.count[block.n] = sum.counts[0];
        block.row[block.n++] = u->rows[unique];
        if (block.n == ROWS)
            step_block(part, &block, dim);
    }
    step_block(part, &block, dim);
}

#define UPDATE(name, dim, reach)                                                                                       \
    FR_CLONES                                                                                                          \
    static void name(const struct fr_row_update *u)                                                                    \
    {                                                                                                                  \
        update_part(u, dim, reach);                                                                                    \
    }
UPDATE(update_plain_8, 8, PLAIN)
UPDATE(update_paired_8, 8, PAIRED)
UPDATE(update_any_8, 8, ANY)
UPDATE(update_plain_16, 16, PLAIN)
UPDATE(update_paired_16, 16, PAIRED)
UPDATE(update_any_16, 16, ANY)

/* ---- rows of one value ---- */

/* The weights of several rows, column by column. A step of FTRL is a chain of three roots and
 * three quotients; computed together, the chains of several rows cost hardly more than that of
 * one row. */
struct weights {
    uint32_t n;
    float *row[ROWS];
    float w[ROWS], z[ROWS], squares[ROWS], g[ROWS];
};

static bool has_weights(const struct fr_row_part *parts, uint32_t n_parts)
{
    const struct fr_optimizer *o = &parts[0].optimizer;
    return n_parts == 1 && parts[0].dim == 1 && o->kind == FR_OPT_FTRL && !fr_shapes_gradient(o);
}

FR_IN_LINE void step_weights(const struct fr_row_part *part, struct weights *weights)
{
    for (uint32_t i = 0; i < ROWS; i++)
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
    if (weights->n == ROWS)
        step_weights(part, weights);
}

FR_IN_LINE void update_each_weight(const struct fr_row_update *u, bool plain)
{
    struct weights weights = {0};
    struct row_sum sum;
    uint32_t floats = floats_of(&u->parts[0]);
    lay_out_scratch(u, &sum);
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        if (u->end - unique > PREFETCH_ROWS)
            prefetch_row(u->rows[unique + PREFETCH_ROWS], floats);
        if (!u->rows[unique])
            continue;
        float alone = 0.0f;
        if (plain)
            sum_plain(u, unique, 1, false, &alone);
        if (plain || row_gradient(u, unique, 1, &sum) != 0)
            put_weight(&u->parts[0], u->rows[unique], plain ? alone : sum.parts[0][0], &weights);
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

bool fr_cpu_update_plain(const struct fr_row_update *u)
{
    bool plain = is_plain(u), paired = plain && u->sources[0].pairs.values;
    uint32_t dim = u->n_parts == 1 ? u->parts[0].dim : 0;
    if (has_weights(u->parts, u->n_parts))
        (plain && !paired ? update_plain_weights : update_weights)(u);
    else if (dim == 8)
        (paired ? update_paired_8 : plain ? update_plain_8 : update_any_8)(u);
    else if (dim == 16)
        (paired ? update_paired_16 : plain ? update_plain_16 : update_any_16)(u);
    else
        return false;
    return true;
}

/* ---- over ranks ---- */

/* Sums of rows that are plain. */
FR_IN_LINE size_t sum_spans(const struct fr_row_spans *c, uint32_t dim, bool paired)
{
    const struct fr_row_update *u = &c->update;
    float *to = c->sums;
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        uint32_t k = unique - u->begin, end = u->occ_begin[unique + 1];
        struct range range = {0, u->occ_begin[unique]};
        c->counts[k] = u->rows[unique] ? end - range.end : 0;
        for (uint32_t s = 0; s < c->n_spans; s++) {
            range = span_at(u, range.end, end, c->spans[s]);
            bool reached = u->rows[unique] && range.begin < range.end;
            c->reached[k * c->n_spans + s] = reached;
            if (!reached)
                continue;
            float sum[PLAIN_DIM_MAX];
            sum_plain_range(u, unique, range, dim, paired, sum);
            memcpy(to, sum, dim * sizeof(*to));
            to += dim;
        }
        FR_CHECK(range.end == end);
    }
    return (size_t)(to - c->sums);
}

#define SUM_SPANS(name, dim, paired)                                                                                   \
    FR_CLONES                                                                                                          \
    static size_t name(const struct fr_row_spans *c)                                                                   \
    {                                                                                                                  \
        return sum_spans(c, dim, paired);                                                                              \
    }
SUM_SPANS(sum_spans_1, 1, false)
SUM_SPANS(sum_spans_8, 8, false)
SUM_SPANS(sum_spans_paired_8, 8, true)
SUM_SPANS(sum_spans_16, 16, false)
SUM_SPANS(sum_spans_paired_16, 16, true)

bool fr_cpu_sum_plain_spans(const struct fr_row_spans *c, size_t *floats)
{
    if (!is_plain(&c->update))
        return false;
    uint32_t dim = c->update.parts[0].dim;
    bool paired = c->update.sources[0].pairs.values;
    if (dim == 8)
        *floats = (paired ? sum_spans_paired_8 : sum_spans_8)(c);
    else if (dim == 16)
        *floats = (paired ? sum_spans_paired_16 : sum_spans_16)(c);
    else if (dim == 1 && !paired)
        *floats = sum_spans_1(c);
    else
        return false;
    return true;
}

/* Joins the sums that all ranks sent of a row; returns the number of samples, 0 if there is no
 * sum. A single sum, as most rows have, is copied once. */
FR_IN_LINE uint32_t join_row(const struct fr_row_join *c, uint32_t index, uint32_t dim, float *out)
{
    struct fr_lane_tree tree = {0};
    float sums[FR_LANE_TREE_DEPTH][PLAIN_DIM_MAX];
    const float *first = NULL;
    uint32_t count = 0, first_lane = 0;
    for (uint32_t i = c->places_begin[index]; i < c->places_begin[index + 1]; i++) {
        const struct fr_row_sent *sent = &c->sent[c->places[i].rank];
        size_t key = c->places[i].key;
        const float *sum = sent->sums + sent->begin[key];
        count += sent->counts[key];
        for (uint32_t s = 0; s < sent->n_spans; s++) {
            if (!sent->reached[key * sent->n_spans + s])
                continue;
            if (!first) {
                first = sum;
                first_lane = sent->lanes[s];
            } else {
                if (tree.depth == 0)
                    push_plain(&tree, first_lane, dim, first, sums);
                push_plain(&tree, sent->lanes[s], dim, sum, sums);
            }
            sum += dim;
        }
    }
    join_plain(&tree, FR_LANES_MAX, dim, sums);
    if (first)
        memcpy(out, tree.depth > 0 ? sums[0] : first, dim * sizeof(*out));
    return count;
}

FR_IN_LINE void join_spans(const struct fr_row_join *c, uint32_t dim)
{
    const struct fr_row_part *part = &c->parts[0];
    struct block block = {.n = 0};
    uint32_t floats = floats_of(part);
    for (uint32_t i = c->begin; i < c->end; i++) {
        if (c->end - i > PREFETCH_ROWS)
            prefetch_row(c->rows[i + PREFETCH_ROWS], floats);
        uint32_t count = c->rows[i] ? join_row(c, i, dim, block.sums[block.n]) : 0;
        if (count == 0)
            continue;
        block.count[block.n] = count;
        block.row[block.n++] = c->rows[i];
        if (block.n == ROWS)
            step_block(part, &block, dim);
    }
    step_block(part, &block, dim);
}

FR_CLONES
static void join_spans_8(const struct fr_row_join *c)
{
    join_spans(c, 8);
}

FR_CLONES
static void join_spans_16(const struct fr_row_join *c)
{
    join_spans(c, 16);
}

FR_CLONES
static void join_weights(const struct fr_row_join *c)
{
    struct weights weights = {0};
    uint32_t floats = floats_of(&c->parts[0]);
    for (uint32_t i = c->begin; i < c->end; i++) {
        if (c->end - i > PREFETCH_ROWS)
            prefetch_row(c->rows[i + PREFETCH_ROWS], floats);
        float sum = 0.0f;
        if (c->rows[i] && join_row(c, i, 1, &sum) > 0)
            put_weight(&c->parts[0], c->rows[i], sum, &weights);
    }
    step_weights(&c->parts[0], &weights);
}

bool fr_cpu_join_plain_spans(const struct fr_row_join *c)
{
    uint32_t dim = c->n_parts == 1 ? c->parts[0].dim : 0;
    if (has_weights(c->parts, c->n_parts))
        join_weights(c);
    else if (dim == 8)
        join_spans_8(c);
    else if (dim == 16)
        join_spans_16(c);
    else
        return false;
    return true;
}
