/* What the files of the reference backend share: its functions, fr_reference_<name> for each
 * operation; elements read as double and rounded once when written. Private to the module. */
#ifndef FR_REFERENCE_VIEW_H
#define FR_REFERENCE_VIEW_H

#include <math.h>

#include "ops/ops.h"

#define FR_REFERENCE_DECLARE(result, name, arguments) result fr_reference_##name arguments;
#define FR_REFERENCE_MEMBER(result, name, arguments) .name = fr_reference_##name,
FR_OPS_OWN(FR_REFERENCE_DECLARE)
FR_OPS_SHARED(FR_REFERENCE_DECLARE)

static inline double fr_at(struct fr_view v, size_t i, size_t j)
{
    return (double)v.values[i * v.ld + j];
}

static inline void fr_put(struct fr_view v, size_t i, size_t j, double x)
{
    v.values[i * v.ld + j] = (float)x;
}

/* A pooling, of rows whose weights add up to `sum` and their squares to `squares`. */
struct fr_reference_pooling {
    double scale; /* of a pooled sum */
    bool scaled;  /* the scale is kept for the gradients of rows */
    int sign;     /* 0: a sum; 1, -1: in each column the largest or the smallest counts alone */
    bool newest;  /* the newest step counts alone, masked or not */
};

static inline struct fr_reference_pooling fr_reference_pooling(enum fr_pooling kind, double sum, double squares)
{
    struct fr_reference_pooling plain = {.scale = 1.0};
    switch (kind) {
    case FR_POOL_SUM:
        break;
    case FR_POOL_MAX:
        return (struct fr_reference_pooling){.scale = 1.0, .sign = 1};
    case FR_POOL_LAST:
        return (struct fr_reference_pooling){.scale = 1.0, .newest = true};
    case FR_POOL_MEAN:
        return (struct fr_reference_pooling){.scale = sum == 0.0 ? 0.0 : 1.0 / sum, .scaled = true};
    case FR_POOL_SQRTN:
        return (struct fr_reference_pooling){.scale = squares == 0.0 ? 0.0 : 1.0 / sqrt(squares), .scaled = true};
    }
    return plain;
}

/* Adds, where the view is wanted. */
static inline void fr_put_sum(struct fr_view v, size_t i, size_t j, double x)
{
    if (v.values)
        fr_put(v, i, j, fr_at(v, i, j) + x);
}

#endif
