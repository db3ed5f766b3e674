/* A staged epoch as bytes, and its images before it is an epoch. */
#ifndef FR_TESTS_EPOCH_BYTES_H
#define FR_TESTS_EPOCH_BYTES_H

#include "durable/epoch.h"

/* Completes the stage and appends the epoch's bytes to out. */
static inline void encode_epoch(struct fr_stage *stage, const struct fr_order *order, const struct fr_sha256 *previous,
                                struct fr_buffer *out)
{
    fr_epoch_complete(stage, order, previous);
    fr_buffer_append(out, stage->record.data + FR_STAGE_FRONT, stage->record.size - FR_STAGE_FRONT);
}

#endif
