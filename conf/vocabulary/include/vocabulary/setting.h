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

/* What happens to epochs that wait beyond export.backlog_max. */
#define FR_BACKLOGS(KIND)                                                                                              \
    KIND(FR_BACKLOG_MERGE, "merge")                                                                                    \
    KIND(FR_BACKLOG_REBASE, "rebase")
FR_KINDS(fr_backlog, FR_BACKLOGS)

#define FR_QUANTIZES(KIND)                                                                                             \
    KIND(FR_QUANT_F32, "f32")                                                                                          \
    KIND(FR_QUANT_F16, "f16")                                                                                          \
    KIND(FR_QUANT_BF16, "bf16")                                                                                        \
    KIND(FR_QUANT_I8, "i8")
FR_KINDS(fr_quantize, FR_QUANTIZES)

/* Values of a snapshot: as those of the deltas, or in a form of their own. */
#define FR_SNAPSHOT_QUANTIZES(KIND)                                                                                    \
    KIND(FR_SNAPSHOT_AS_EXPORT, "export")                                                                              \
    KIND(FR_SNAPSHOT_F32, "f32")                                                                                       \
    KIND(FR_SNAPSHOT_F16, "f16")                                                                                       \
    KIND(FR_SNAPSHOT_BF16, "bf16")                                                                                     \
    KIND(FR_SNAPSHOT_I8, "i8")
FR_KINDS(fr_snapshot_quantize, FR_SNAPSHOT_QUANTIZES)

/* What the delta topic has to keep: with what a new replica begins. */
#define FR_RETENTIONS(KIND)                                                                                            \
    KIND(FR_RETENTION_ALL, "all")                                                                                      \
    KIND(FR_RETENTION_SNAPSHOTS, "snapshots")
FR_KINDS(fr_retention, FR_RETENTIONS)

/* What is written beside the delta topic: nothing, or topics for consumers of NVIDIA's HPS. */
#define FR_EXPORT_FORMATS(KIND)                                                                                        \
    KIND(FR_EXPORT_DELTA, "delta")                                                                                     \
    KIND(FR_EXPORT_HPS, "hps")
FR_KINDS(fr_export_format, FR_EXPORT_FORMATS)

#define FR_DEVICES(KIND)                                                                                               \
    KIND(FR_DEVICE_AUTO, "auto")                                                                                       \
    KIND(FR_DEVICE_CPU, "cpu")                                                                                         \
    KIND(FR_DEVICE_CUDA, "cuda")
FR_KINDS(fr_device, FR_DEVICES)

/* What factors of the layers' products are rounded to. */
#define FR_PRECISIONS(KIND)                                                                                            \
    KIND(FR_PRECISION_F32, "f32")                                                                                      \
    KIND(FR_PRECISION_BF16, "bf16")
FR_KINDS(fr_precision, FR_PRECISIONS)

#endif
