/* What poolings are, for slots' rows (rows.c) and steps (steps.c) alike: a sum of some rows, times
 * a scale. Valid as C17 and as CUDA C++. */
#ifndef FR_OPS_POOLING_H
#define FR_OPS_POOLING_H

#include <math.h>
#include <stdint.h>

#include "base/math.h"
#include "vocabulary/pooling.h"

/* What a row of this weight adds to the total that the scale is made of. */
FR_HD __attribute__((always_inline)) float fr_pooling_share(enum fr_pooling kind, float weight)
{
    return kind == FR_POOL_SQRTN ? weight * weight : weight;
}

/* The scale of the sum, `total` not 0. */
FR_HD __attribute__((always_inline)) float fr_pooling_scale(enum fr_pooling kind, float total)
{
    switch (kind) {
    case FR_POOL_SUM:
    case FR_POOL_LAST:
        break;
    case FR_POOL_MEAN:
        return 1.0f / total;
    case FR_POOL_SQRTN:
        return 1.0f / sqrtf(total);
    }
    return 1.0f;
}

#endif
