/* Reference backend: the meaning of each operation in plain loops with double accumulation. The
 * parity suite holds every other backend against it; finite differences are taken through it. Only
 * tests link it. Thread: any, no state. */
#ifndef FR_REFERENCE_REFERENCE_H
#define FR_REFERENCE_REFERENCE_H

#include "ops/ops.h"

const struct fr_ops *fr_reference_ops(void);
/* The same, but factors of products are rounded to bf16. For one thread at a time. */
const struct fr_ops *fr_reference_bf16_ops(void);

#endif
