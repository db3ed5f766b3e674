/* The result of a dense slot's transforms for one number: log1p, clip and the two times. Decoding
 * applies them to the values in samples; the graph needs the result for a missing value. The
 * network applies the other transforms (standardize, bucketize). Thread: any. */
#ifndef FR_NUMERICS_TRANSFORM_VALUES_H
#define FR_NUMERICS_TRANSFORM_VALUES_H

#include <stdbool.h>

#include "conf/conf.h"

/* Applies the steps to a number. The result is out[0]; a time has a second number, out[1]. False:
 * the number has no image (log1p of x <= -1, or a time that is neither seconds nor ms). */
bool fr_transform_apply(const struct fr_conf_slot *slot, double x, float out[static 2]);
/* Writes what a missing value reads as, for the even and odd numbers of an entry (they differ for a
 * time only). It is NaN if the slot is standardized and has no default, or if the default has no
 * image. */
void fr_transform_missing(const struct fr_conf_slot *slot, float out[static 2]);

#endif
