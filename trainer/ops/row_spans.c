/* CPU backend: the update of rows over ranks, in two halves. A rank sums the gradients of its own
 * lanes, and the home of a row joins the sums of all ranks and steps the row. The bits are those of
 * rows.c with all lanes. Owner of the rows: the caller of join_spans, who gives each row to one
 * worker. */
#include <string.h>

#include "base/math.h"
#include "rows.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* ---- the source ---- */

/* Copies the sums of the parts that are reached. */
static float *put_sums(const struct fr_row_update *u, uint32_t reached, const struct row_sum *row, float *to)
{
    for (uint32_t p = 0; p < u->n_parts; p++) {
        if (!(reached >> p & 1))
            continue;
        memcpy(to, row->parts[p], u->parts[p].dim * sizeof(float));
        to += u->parts[p].dim;
    }
    return to;
}

FR_CLONES
static size_t sum_parts(const struct fr_row_spans *c)
{
    const struct fr_row_update *u = &c->update;
    struct row_sum row;
    float *to = c->sums;
    lay_out_scratch(u, &row);
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        uint32_t k = unique - u->begin, end = u->occ_begin[unique + 1];
        memset(row.counts, 0, u->n_parts * sizeof(*row.counts));
        struct range range = {0, u->occ_begin[unique]};
        for (uint32_t s = 0; s < c->n_spans; s++) {
            uint32_t reached = 0;
            range = span_at(u, range.end, end, c->spans[s]);
            if (u->rows[unique] && range.begin < range.end)
                reached = range_gradient(u, unique, range, 0, &row);
            to = put_sums(u, reached, &row, to);
            c->reached[k * c->n_spans + s] = (uint16_t)reached;
        }
        FR_CHECK(range.end == end);
        memcpy(c->counts + (size_t)k * u->n_parts, row.counts, u->n_parts * sizeof(*row.counts));
    }
    return (size_t)(to - c->sums);
}

size_t fr_cpu_sum_spans(const struct fr_row_spans *c)
{
    size_t floats = 0;
    return fr_cpu_sum_plain_spans(c, &floats) ? floats : sum_parts(c);
}

/* ---- the home ---- */

/* Writes the gradients of all parts of a row to row->parts, which the trees of lanes join. Returns
 * the parts that are reached, whose counts are set. */
FR_IN_LINE uint32_t join_parts(const struct fr_row_join *c, uint32_t index, struct row_sum *row)
{
    struct fr_lane_tree trees[FR_ROW_PARTS_MAX];
    uint32_t all = 0;
    memset(row->counts, 0, c->n_parts * sizeof(*row->counts));
    memset(trees, 0, c->n_parts * sizeof(*trees));
    for (uint32_t i = c->places_begin[index]; i < c->places_begin[index + 1]; i++) {
        const struct fr_row_sent *sent = &c->sent[c->places[i].rank];
        size_t key = c->places[i].key;
        const float *sum = sent->sums + sent->begin[key];
        for (uint32_t p = 0; p < c->n_parts; p++)
            row->counts[p] += sent->counts[key * c->n_parts + p];
        for (uint32_t s = 0; s < sent->n_spans; s++) {
            uint32_t reached = sent->reached[key * sent->n_spans + s];
            for (uint32_t p = 0; p < c->n_parts; p++) {
                if (!(reached >> p & 1))
                    continue;
                push_waiting(row, p, c->parts[p].dim, &trees[p], sent->lanes[s], sum);
                sum += c->parts[p].dim;
            }
            all |= reached;
        }
    }
    for (uint32_t p = 0; p < c->n_parts; p++)
        join_waiting(row, p, c->parts[p].dim, &trees[p], FR_LANES_MAX);
    return all;
}

FR_CLONES
static void step_parts(const struct fr_row_join *c)
{
    struct row_sum row;
    lay_out_parts(c->parts, c->n_parts, true, c->scratch, &row);
    for (uint32_t i = c->begin; i < c->end; i++) {
        if (c->end - i > PREFETCH_ROWS)
            prefetch_parts(c->rows[i + PREFETCH_ROWS], c->parts, c->n_parts);
        float *values = c->rows[i];
        uint32_t reached = values ? join_parts(c, i, &row) : 0;
        for (uint32_t p = 0; p < c->n_parts; p++) {
            const struct fr_row_part *part = &c->parts[p];
            if (reached >> p & 1)
                fr_row_step(values + part->value_offset, values + part->state_offset, row.parts[p], part->dim,
                            row.counts[p], &part->optimizer);
        }
    }
}

static uint32_t check_parts(const struct fr_row_join *c)
{
    struct row_sum row;
    uint32_t largest = 0;
    lay_out_parts(c->parts, c->n_parts, true, c->scratch, &row);
    for (uint32_t i = c->begin; i < c->end; i++) {
        uint32_t bits = c->rows[i] ? largest_bits(c->parts, c->n_parts, join_parts(c, i, &row), &row) : 0;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

uint32_t fr_cpu_join_spans(const struct fr_row_join *c)
{
    if (c->checks)
        return check_parts(c);
    if (!fr_cpu_join_plain_spans(c))
        step_parts(c);
    return 0;
}
