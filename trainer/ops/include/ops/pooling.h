/* What poolings are, for slots' rows (rows.c) and steps (steps.c) alike: a sum of some rows, times
 * a scale. Valid as C17 and as CUDA C++. */
#ifndef FR_OPS_POOLING_H
#define FR_OPS_POOLING_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/math.h"
#include "vocabulary/pooling.h"

#define FR_POOLING_FUNCTION FR_HD __attribute__((always_inline))

/* Whether the scale of an entry is another number than 1 and kept for the backward pass. */
FR_POOLING_FUNCTION bool fr_pooling_keeps_scale(enum fr_pooling kind)
{
    switch (fr_pooling_form(kind)) {
    case FR_POOLED_SUM:
    case FR_POOLED_NEWEST:
        break;
    case FR_POOLED_BY_WEIGHTS:
    case FR_POOLED_BY_NORM:
        return true;
    }
    return false;
}

/* What a row of this weight adds to the total that the scale is made of. */
FR_POOLING_FUNCTION float fr_pooling_share(enum fr_pooling kind, float weight)
{
    switch (fr_pooling_form(kind)) {
    case FR_POOLED_SUM:
    case FR_POOLED_NEWEST:
    case FR_POOLED_BY_WEIGHTS:
        break;
    case FR_POOLED_BY_NORM:
        return weight * weight;
    }
    return weight;
}

/* The scale of the sum, `total` not 0. */
FR_POOLING_FUNCTION float fr_pooling_scale(enum fr_pooling kind, float total)
{
    switch (fr_pooling_form(kind)) {
    case FR_POOLED_SUM:
    case FR_POOLED_NEWEST:
        break;
    case FR_POOLED_BY_WEIGHTS:
        return 1.0f / total;
    case FR_POOLED_BY_NORM:
        return 1.0f / sqrtf(total);
    }
    return 1.0f;
}

/* What the weights of ids [begin, end) are multiplied by; weights: per id, or NULL: 1. */
FR_POOLING_FUNCTION float fr_pooling_scale_of(enum fr_pooling kind, const float *weights, uint32_t begin, uint32_t end)
{
    if (!fr_pooling_keeps_scale(kind))
        return 1.0f;
    float total = weights ? 0.0f : (float)(end - begin);
    for (uint32_t p = begin; p < end && weights; p++)
        total += fr_pooling_share(kind, weights[p]);
    return total == 0.0f ? 0.0f : fr_pooling_scale(kind, total);
}

/* The first of the steps [begin, end) that counts. */
FR_POOLING_FUNCTION uint32_t fr_pooling_first_step(enum fr_pooling kind, uint32_t begin, uint32_t end)
{
    switch (fr_pooling_form(kind)) {
    case FR_POOLED_SUM:
    case FR_POOLED_BY_WEIGHTS:
    case FR_POOLED_BY_NORM:
        break;
    case FR_POOLED_NEWEST:
        return end > begin ? end - 1 : begin;
    }
    return begin;
}

/* Whether a masked step counts: as the newest one it is a row like others, because a recurrence
 * keeps its state there. */
FR_POOLING_FUNCTION bool fr_pooling_takes_masked(enum fr_pooling kind)
{
    switch (fr_pooling_form(kind)) {
    case FR_POOLED_SUM:
    case FR_POOLED_BY_WEIGHTS:
    case FR_POOLED_BY_NORM:
        break;
    case FR_POOLED_NEWEST:
        return true;
    }
    return false;
}

#endif
