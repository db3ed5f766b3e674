/* Slots: their kinds and what becomes of the numbers of a dense one. */
#ifndef FR_VOCABULARY_SLOT_H
#define FR_VOCABULARY_SLOT_H

#include "vocabulary/kinds.h"

/* KIND(name, text, has rows, has steps). With rows a sample carries ids of a table's rows, without
 * them numbers; with steps the ids are in order, oldest first, and a longer list loses its oldest
 * ones as a matter of course. */
#define FR_SLOT_KINDS(KIND)                                                                                            \
    KIND(FR_SLOT_SPARSE, "sparse", true, false)                                                                        \
    KIND(FR_SLOT_SEQUENCE, "sequence", true, true)                                                                     \
    KIND(FR_SLOT_DENSE, "dense", false, false)

FR_KINDS(fr_slot_kind, FR_SLOT_KINDS)

#define FR_SLOT_ROWS(name, text, rows, steps)                                                                          \
    case name:                                                                                                         \
        return rows;
#define FR_SLOT_STEPS(name, text, rows, steps)                                                                         \
    case name:                                                                                                         \
        return steps;
FR_KIND_COLUMN(bool, fr_slot_has_rows, fr_slot_kind, FR_SLOT_KINDS, FR_SLOT_ROWS)
FR_KIND_COLUMN(bool, fr_slot_has_steps, fr_slot_kind, FR_SLOT_KINDS, FR_SLOT_STEPS)
static inline bool fr_slot_has_numbers(enum fr_slot_kind kind)
{
    return !fr_slot_has_rows(kind);
}

/* Where a transform happens, and with that where it may stand in a list of them. */
enum fr_transform_place {
    FR_TRANSFORMED_NOWHERE,    /* alone: numbers stay as they are */
    FR_TRANSFORMED_IN_DECODER, /* a step while decoding, anywhere before one of the network */
    FR_TRANSFORMED_AS_TIME,    /* a step while decoding, alone: a Unix time becomes two numbers */
    FR_TRANSFORMED_IN_NETWORK, /* last */
};

/* The argument that is written after a transform's name. */
enum fr_transform_argument { FR_TAKES_NOTHING, FR_TAKES_RANGE, FR_TAKES_BOUNDARIES };

/* KIND(name, text, place, argument, learns): learns where the model keeps statistics of the slot, a
 * mean, a variance and their count, and a missing value without a default reads as the mean. */
#define FR_TRANSFORMS(KIND)                                                                                            \
    KIND(FR_TRANSFORM_NONE, "none", NOWHERE, NOTHING, false)                                                           \
    KIND(FR_TRANSFORM_LOG1P, "log1p", IN_DECODER, NOTHING, false)                                                      \
    KIND(FR_TRANSFORM_CLIP, "clip", IN_DECODER, RANGE, false)                                                          \
    KIND(FR_TRANSFORM_TIME_OF_DAY, "time_of_day", AS_TIME, NOTHING, false)   /* sine and cosine */                     \
    KIND(FR_TRANSFORM_TIME_OF_WEEK, "time_of_week", AS_TIME, NOTHING, false) /* from Monday 00:00 UTC on */            \
    /* (x - mean) / sqrt(variance + 1e-6), statistics of trained samples before the batch */                           \
    KIND(FR_TRANSFORM_STANDARDIZE, "standardize", IN_NETWORK, NOTHING, true)                                           \
    /* one-hot of the number of boundaries <= x: width (n_boundaries + 1) per number */                                \
    KIND(FR_TRANSFORM_BUCKETIZE, "bucketize", IN_NETWORK, BOUNDARIES, false)

FR_KINDS(fr_transform, FR_TRANSFORMS)

#define FR_TRANSFORM_PLACE(name, text, place, argument, learns)                                                        \
    case name:                                                                                                         \
        return FR_TRANSFORMED_##place;
#define FR_TRANSFORM_ARGUMENT(name, text, place, argument, learns)                                                     \
    case name:                                                                                                         \
        return FR_TAKES_##argument;
#define FR_TRANSFORM_LEARNS(name, text, place, argument, learns)                                                       \
    case name:                                                                                                         \
        return learns;
FR_KIND_COLUMN(enum fr_transform_place, fr_transform_place, fr_transform, FR_TRANSFORMS, FR_TRANSFORM_PLACE)
FR_KIND_COLUMN(enum fr_transform_argument, fr_transform_argument, fr_transform, FR_TRANSFORMS, FR_TRANSFORM_ARGUMENT)
FR_KIND_COLUMN(bool, fr_transform_learns, fr_transform, FR_TRANSFORMS, FR_TRANSFORM_LEARNS)

#endif
