/* Poolings combine several rows into one. Each is a layer operation too (vocabulary/layer.h). */
#ifndef FR_VOCABULARY_POOLING_H
#define FR_VOCABULARY_POOLING_H

#include "vocabulary/kinds.h"

/* How the rows of an entry become one. SUM: the weighted sum itself, so that the gradient of a row
 * of weight 1 is that of its entry. BY_WEIGHTS, BY_NORM: that sum divided by the sum of the
 * weights, or by the root of the sum of their squares. NEWEST: the newest row. */
enum fr_pooling_form { FR_POOLED_SUM, FR_POOLED_BY_WEIGHTS, FR_POOLED_BY_NORM, FR_POOLED_NEWEST };

/* KIND(name, text, its layer operation, form). Of a slot's rows, weighted by w: sum: sum w v; mean:
 * / sum w; sqrtn: / sqrt(sum w^2). Of the steps of a sequence w = 1. */
#define FR_ROW_POOLINGS(KIND)                                                                                          \
    KIND(FR_POOL_SUM, "sum", FR_LAYER_SUM, SUM)                                                                        \
    KIND(FR_POOL_MEAN, "mean", FR_LAYER_MEAN, BY_WEIGHTS)                                                              \
    KIND(FR_POOL_SQRTN, "sqrtn", FR_LAYER_SQRTN, BY_NORM)
/* Of the steps of a sequence only: the newest one. */
#define FR_STEP_POOLINGS(KIND) KIND(FR_POOL_LAST, "last", FR_LAYER_LAST, NEWEST)
#define FR_POOLINGS(KIND) FR_ROW_POOLINGS(KIND) FR_STEP_POOLINGS(KIND)

FR_KINDS(fr_pooling, FR_POOLINGS)

#define FR_POOLING_FORM(name, text, layer, form)                                                                       \
    case name:                                                                                                         \
        return FR_POOLED_##form;
FR_KIND_COLUMN(enum fr_pooling_form, fr_pooling_form, fr_pooling, FR_POOLINGS, FR_POOLING_FORM)

/* " `sum` `mean` `sqrtn`", " `last`" and "sum, mean, sqrtn or last" */
#define FR_ROW_POOLINGS_QUOTED FR_ROW_POOLINGS(FR_KIND_QUOTED)
#define FR_STEP_POOLINGS_QUOTED FR_STEP_POOLINGS(FR_KIND_QUOTED)
#define FR_POOLING_WORDS (&FR_ROW_POOLINGS(FR_KIND_COMMA) FR_STEP_POOLINGS(FR_KIND_OR)[2])

#endif
