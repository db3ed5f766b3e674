/* What the transforms of a dense slot make of a number: log1p, clip and the two times. Decoding
 * applies them to what samples carry; the graph must know what a missing value comes to. The
 * network does the others (standardize, bucketize). Thread: any. */
#ifndef FR_NUMERICS_TRANSFORM_VALUES_H
#define FR_NUMERICS_TRANSFORM_VALUES_H

#include <stdbool.h>

#include "conf/conf.h"

/* Takes a number through the steps, to out[0], of a time to out[1] too. It is false when the number
 * has no image (log1p of x <= -1, a time that is neither seconds nor ms). */
bool fr_transform_apply(const struct fr_conf_slot *slot, double x, float out[static 2]);
/* Gives what a missing value reads as, for even and odd numbers of an entry (only of a time they
 * differ). It is NaN behind standardize without a default, and where the default has no image. */
void fr_transform_missing(const struct fr_conf_slot *slot, float out[static 2]);

#endif
