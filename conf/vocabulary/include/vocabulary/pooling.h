/* Poolings combine several rows into one. Each is a layer operation too (vocabulary/layer.h). */
#ifndef FR_VOCABULARY_POOLING_H
#define FR_VOCABULARY_POOLING_H

#include "vocabulary/kinds.h"

/* By what the weighted sum of rows is divided: nothing, the sum of the weights, or the root of the
 * sum of their squares. */
enum fr_pooling_scaling { FR_POOLED_PLAIN, FR_POOLED_BY_WEIGHTS, FR_POOLED_BY_NORM };
/* Which rows count: all, the newest step alone, or in each column the row of the largest value. */
enum fr_pooling_taking { FR_POOLED_ALL, FR_POOLED_NEWEST, FR_POOLED_LARGEST };

/* KIND(name, text, its layer operation, scaling, taking). Of a slot's rows, weighted by w: sum:
 * sum w v; mean: / sum w; sqrtn: / sqrt(sum w^2); max: the largest w v in each column. Of the
 * steps of a sequence w = 1. */
#define FR_ROW_POOLINGS(KIND)                                                                                          \
    KIND(FR_POOL_SUM, "sum", FR_LAYER_SUM, PLAIN, ALL)                                                                 \
    KIND(FR_POOL_MEAN, "mean", FR_LAYER_MEAN, BY_WEIGHTS, ALL)                                                         \
    KIND(FR_POOL_SQRTN, "sqrtn", FR_LAYER_SQRTN, BY_NORM, ALL)                                                         \
    KIND(FR_POOL_MAX, "max", FR_LAYER_MAX, PLAIN, LARGEST)
/* Of the steps of a sequence only: the newest one. */
#define FR_STEP_POOLINGS(KIND) KIND(FR_POOL_LAST, "last", FR_LAYER_LAST, PLAIN, NEWEST)
#define FR_POOLINGS(KIND) FR_ROW_POOLINGS(KIND) FR_STEP_POOLINGS(KIND)

FR_KINDS(fr_pooling, FR_POOLINGS)

#define FR_POOLING_SCALING(name, text, layer, scaling, taking)                                                         \
    case name:                                                                                                         \
        return FR_POOLED_##scaling;
FR_KIND_COLUMN(enum fr_pooling_scaling, fr_pooling_scaling, fr_pooling, FR_POOLINGS, FR_POOLING_SCALING)
#define FR_POOLING_TAKING(name, text, layer, scaling, taking)                                                          \
    case name:                                                                                                         \
        return FR_POOLED_##taking;
FR_KIND_COLUMN(enum fr_pooling_taking, fr_pooling_taking, fr_pooling, FR_POOLINGS, FR_POOLING_TAKING)

/* " `sum` `mean` `sqrtn` `max`", " `last`" and "sum, mean, sqrtn, max or last" */
#define FR_ROW_POOLINGS_QUOTED FR_ROW_POOLINGS(FR_KIND_QUOTED)
#define FR_STEP_POOLINGS_QUOTED FR_STEP_POOLINGS(FR_KIND_QUOTED)
#define FR_POOLING_WORDS (&FR_ROW_POOLINGS(FR_KIND_COMMA) FR_STEP_POOLINGS(FR_KIND_OR)[2])

#endif
