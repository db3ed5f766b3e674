/* The emulated card: kernels of trainer/cuda compiled for the processor
 * (tests/emulate/device.h). */
#ifndef FR_EMULATE_EMULATED_H
#define FR_EMULATE_EMULATED_H

#include "cuda/api.h"

const struct fr_device_api *fr_emulate_api(void);

#endif
