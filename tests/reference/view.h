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

/* What a pooled sum is multiplied by; `sum` and `squares` are those of the weights. */
static inline double fr_reference_pooling_scale(enum fr_pooling kind, double sum, double squares)
{
    switch (kind) {
    case FR_POOL_SUM:
    case FR_POOL_LAST:
        break;
    case FR_POOL_MEAN:
        return sum == 0.0 ? 0.0 : 1.0 / sum;
    case FR_POOL_SQRTN:
        return squares == 0.0 ? 0.0 : 1.0 / sqrt(squares);
    }
    return 1.0;
}

/* Whether an entry has a scale of its own, which the gradient of its rows is multiplied by. */
static inline bool fr_reference_pooling_is_scaled(enum fr_pooling kind)
{
    switch (kind) {
    case FR_POOL_SUM:
    case FR_POOL_LAST:
        break;
    case FR_POOL_MEAN:
    case FR_POOL_SQRTN:
        return true;
    }
    return false;
}

/* Adds, where the view is wanted. */
static inline void fr_put_sum(struct fr_view v, size_t i, size_t j, double x)
{
    if (v.values)
        fr_put(v, i, j, fr_at(v, i, j) + x);
}

#endif
