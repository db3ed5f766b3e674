/* Slots: their kinds and what becomes of the numbers of a dense one. */
#ifndef FR_VOCABULARY_SLOT_H
#define FR_VOCABULARY_SLOT_H

#include "vocabulary/kinds.h"

#define FR_SLOT_KINDS(KIND)                                                                                            \
    KIND(FR_SLOT_SPARSE, "sparse")                                                                                     \
    KIND(FR_SLOT_SEQUENCE, "sequence")                                                                                 \
    KIND(FR_SLOT_DENSE, "dense")

FR_KINDS(fr_slot_kind, FR_SLOT_KINDS)

/* Steps happen while decoding, one after the other; standardize and bucketize are the network's
 * (standardize has learned statistics) and stand last. */
#define FR_TRANSFORMS(KIND)                                                                                            \
    KIND(FR_TRANSFORM_NONE, "none")                                                                                    \
    KIND(FR_TRANSFORM_LOG1P, "log1p")                                                                                  \
    KIND(FR_TRANSFORM_CLIP, "clip")                                                                                    \
    KIND(FR_TRANSFORM_TIME_OF_DAY, "time_of_day")   /* a Unix time: sine and cosine; alone */                          \
    KIND(FR_TRANSFORM_TIME_OF_WEEK, "time_of_week") /* from Monday 00:00 UTC on */                                     \
    /* (x - mean) / sqrt(variance + 1e-6), statistics of trained samples before the batch */                           \
    KIND(FR_TRANSFORM_STANDARDIZE, "standardize")                                                                      \
    /* one-hot of the number of boundaries <= x: width (n_boundaries + 1) per number */                                \
    KIND(FR_TRANSFORM_BUCKETIZE, "bucketize")

FR_KINDS(fr_transform, FR_TRANSFORMS)

#endif
