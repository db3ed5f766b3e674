/* Settings of the daemon that are one of a few words. */
#ifndef FR_VOCABULARY_SETTING_H
#define FR_VOCABULARY_SETTING_H

#include "vocabulary/kinds.h"

/* What the keep rate `s` of a sample (1/s: how many like it were dropped) corrects. */
#define FR_SAMPLINGS(KIND)                                                                                             \
    KIND(FR_SAMPLING_ALL, "all")                                                                                       \
    KIND(FR_SAMPLING_METRICS, "metrics")                                                                               \
    KIND(FR_SAMPLING_NONE, "none")
FR_KINDS(fr_sampling, FR_SAMPLINGS)

#define FR_ON_LOSSES(KIND)                                                                                             \
    KIND(FR_ON_LOSS_STOP, "stop")                                                                                      \
    KIND(FR_ON_LOSS_EARLIEST, "earliest")                                                                              \
    KIND(FR_ON_LOSS_LATEST, "latest")
FR_KINDS(fr_on_loss, FR_ON_LOSSES)

/* What happens to a delta topic that does not hold what a new replica begins with. */
#define FR_DELTA_LOSSES(KIND)                                                                                          \
    KIND(FR_DELTA_LOSS_REBASE, "rebase")                                                                               \
    KIND(FR_DELTA_LOSS_STOP, "stop")
FR_KINDS(fr_delta_loss, FR_DELTA_LOSSES)

#define FR_QUANTIZES(KIND)                                                                                             \
    KIND(FR_QUANT_F32, "f32")                                                                                          \
    KIND(FR_QUANT_F16, "f16")
FR_KINDS(fr_quantize, FR_QUANTIZES)

#define FR_DEVICES(KIND)                                                                                               \
    KIND(FR_DEVICE_AUTO, "auto")                                                                                       \
    KIND(FR_DEVICE_CPU, "cpu")
FR_KINDS(fr_device, FR_DEVICES)

/* What factors of the layers' products are rounded to. */
#define FR_PRECISIONS(KIND)                                                                                            \
    KIND(FR_PRECISION_F32, "f32")                                                                                      \
    KIND(FR_PRECISION_BF16, "bf16")
FR_KINDS(fr_precision, FR_PRECISIONS)

#endif
