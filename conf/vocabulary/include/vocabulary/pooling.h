/* Poolings: several rows to one. Each is a layer operation too (vocabulary/layer.h). */
#ifndef FR_VOCABULARY_POOLING_H
#define FR_VOCABULARY_POOLING_H

#include "vocabulary/kinds.h"

/* KIND(name, text, its layer operation). Of a slot's rows, weighted by w: sum: sum w v; mean: / sum
 * w; sqrtn: / sqrt(sum w^2). Of the steps of a sequence w = 1. */
#define FR_ROW_POOLINGS(KIND)                                                                                          \
    KIND(FR_POOL_SUM, "sum", FR_LAYER_SUM)                                                                             \
    KIND(FR_POOL_MEAN, "mean", FR_LAYER_MEAN)                                                                          \
    KIND(FR_POOL_SQRTN, "sqrtn", FR_LAYER_SQRTN)
/* Of the steps of a sequence only. */
#define FR_STEP_POOLINGS(KIND) KIND(FR_POOL_LAST, "last", FR_LAYER_LAST) /* the newest step */
#define FR_POOLINGS(KIND) FR_ROW_POOLINGS(KIND) FR_STEP_POOLINGS(KIND)

FR_KINDS(fr_pooling, FR_POOLINGS)

/* " `sum` `mean` `sqrtn`", " `last`" and "sum, mean, sqrtn or last" */
#define FR_ROW_POOLINGS_QUOTED FR_ROW_POOLINGS(FR_KIND_QUOTED)
#define FR_STEP_POOLINGS_QUOTED FR_STEP_POOLINGS(FR_KIND_QUOTED)
#define FR_POOLING_WORDS (&FR_ROW_POOLINGS(FR_KIND_COMMA) FR_STEP_POOLINGS(FR_KIND_OR)[2])

#endif
