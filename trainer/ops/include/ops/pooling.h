/* The one definition of each pooling, for slots' rows (rows.c, rows.cu) and for steps (steps.c,
 * steps.cu), forward and backward. A pooling is one of two things:
 *
 *   a sum     of the rows, each times its weight and times a scale that the entry has; the gradient
 *             reaches every row. The scale is kept for the backward pass unless it is 1.
 *   a choice  of one row in each column, among the rows times their weights; the gradient reaches
 *             the chosen row alone. For slots' rows the chosen ids are kept, for steps the choice
 *             is made again.
 *
 * What an entry keeps: [fr_pooling_kept] floats. Valid as C17 and as CUDA C++. */
#ifndef FR_OPS_POOLING_H
#define FR_OPS_POOLING_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/math.h"
#include "ops/layers.h"

#define FR_POOLING_FUNCTION FR_HD __attribute__((always_inline))

/* Whether the pooled row is the sum of the weighted rows itself, so that the gradient of a row of
 * weight 1 is that of its entry. */
FR_POOLING_FUNCTION bool fr_pooling_is_sum(enum fr_pooling kind)
{
    return fr_pooling_scaling(kind) == FR_POOLED_PLAIN && fr_pooling_taking(kind) == FR_POOLED_ALL;
}

/* Whether the scale of an entry is another number than 1 and kept for the backward pass. */
FR_POOLING_FUNCTION bool fr_pooling_keeps_scale(enum fr_pooling kind)
{
    return fr_pooling_scaling(kind) != FR_POOLED_PLAIN;
}

/* Returns the factor of the weights of ids [begin, end). weights: per id; NULL: all weights are
 * 1. */
FR_POOLING_FUNCTION float fr_pooling_scale(enum fr_pooling kind, const float *weights, uint32_t begin, uint32_t end)
{
    float total = weights ? 0.0f : (float)(end - begin);
    switch (fr_pooling_scaling(kind)) {
    case FR_POOLED_PLAIN:
        break;
    case FR_POOLED_BY_WEIGHTS:
        for (uint32_t p = begin; p < end && weights; p++)
            total += weights[p];
        return total == 0.0f ? 0.0f : 1.0f / total;
    case FR_POOLED_BY_NORM:
        for (uint32_t p = begin; p < end && weights; p++)
            total += weights[p] * weights[p];
        return total == 0.0f ? 0.0f : 1.0f / sqrtf(total);
    }
    return 1.0f;
}

/* Whether the pooling is a choice. */
FR_POOLING_FUNCTION bool fr_pooling_chooses(enum fr_pooling kind)
{
    switch (fr_pooling_taking(kind)) {
    case FR_POOLED_ALL:
    case FR_POOLED_NEWEST:
        break;
    case FR_POOLED_LARGEST:
        return true;
    }
    return false;
}

/* For a choice: whether `value` is chosen instead of `chosen`, which comes before it. NaN is
 * chosen, so that it stays visible. */
FR_POOLING_FUNCTION bool fr_pooling_prefers(enum fr_pooling kind, float value, float chosen)
{
    bool better = false;
    switch (fr_pooling_taking(kind)) {
    case FR_POOLED_ALL:
    case FR_POOLED_NEWEST:
        break;
    case FR_POOLED_LARGEST:
        better = value > chosen;
        break;
    }
    return better || (value != value && chosen == chosen);
}

/* Returns how many floats an entry of `dim` columns keeps for the gradients of its rows. */
FR_POOLING_FUNCTION uint32_t fr_pooling_kept(enum fr_pooling kind, uint32_t dim)
{
    return fr_pooling_keeps_scale(kind) ? 1 : fr_pooling_chooses(kind) ? dim : 0;
}

/* ---- a choice of ids ---- */

/* kept[i] gets the bits of the number of the id that is chosen in column i. At first no id is
 * chosen. */
FR_POOLING_FUNCTION void fr_pooling_choose_none(float *kept, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        kept[i] = fr_bits_f32(UINT32_MAX);
}

/* As in ops/row.h, a kernel passes registers and pointers, no struct.
 * NOLINTBEGIN(readability-function-size) */

/* Offers row v of id p, times coef; `begun`: a row was offered before. */
FR_POOLING_FUNCTION void fr_pooling_offer(enum fr_pooling kind, float *__restrict__ out, float *__restrict__ kept,
                                          const float *__restrict__ v, float coef, uint32_t p, uint32_t dim, bool begun)
{
    for (uint32_t i = 0; i < dim; i++) {
        float value = coef * v[i];
        bool chosen = !begun || fr_pooling_prefers(kind, value, out[i]);
        out[i] = chosen ? value : out[i];
        kept[i] = chosen ? fr_bits_f32(p) : kept[i];
    }
}

/* Adds to g coef times the part of the entry's gradient d that reaches the row of id p, or
 * begins g with it. */
FR_POOLING_FUNCTION void fr_pooling_add_reached(float *__restrict__ g, const float *__restrict__ d,
                                                const float *__restrict__ kept, uint32_t p, float coef, uint32_t dim,
                                                bool begun, uint32_t lane, uint32_t lane_count)
{
    for (uint32_t i = lane; i < dim; i += lane_count)
        g[i] = (begun ? g[i] : 0.0f) + (fr_f32_bits(kept[i]) == p ? coef * d[i] : 0.0f);
}
/* NOLINTEND(readability-function-size) */

/* ---- steps ---- */

/* Whether step p of an entry that ends at `end` counts. A masked step counts if it is the newest
 * one, because a recurrence keeps its state there. */
FR_POOLING_FUNCTION bool fr_pooling_takes_step(const struct fr_pool_steps *c, uint32_t p, uint32_t end)
{
    switch (fr_pooling_taking(c->kind)) {
    case FR_POOLED_ALL:
    case FR_POOLED_LARGEST:
        break;
    case FR_POOLED_NEWEST:
        return p + 1 == end;
    }
    return !c->steps.masked || !c->steps.masked[p];
}

/* For a choice: returns the step chosen for entry e in this column, or the entry's end if there
 * is none. */
FR_POOLING_FUNCTION uint32_t fr_pooling_chosen_step(const struct fr_pool_steps *c, uint32_t e, uint32_t column)
{
    uint32_t end = c->steps.begin[e + 1], chosen = end;
    float most = 0.0f;
    for (uint32_t p = c->steps.begin[e]; p < end; p++) {
        float value = c->in.values[p * c->in.ld + column];
        if (fr_pooling_takes_step(c, p, end) && (chosen == end || fr_pooling_prefers(c->kind, value, most))) {
            chosen = p;
            most = value;
        }
    }
    return chosen;
}

#endif
