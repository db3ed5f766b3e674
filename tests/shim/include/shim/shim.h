/* A device as a backend of the operation table: what a call reads is copied to the device, the
 * device's operation runs, what it writes is copied back. So the parity suite (tests/unit/ops)
 * drives a device as it drives the processor.
 *
 * Each span of memory that a call names is an allocation of its own on the device, exactly as long:
 * AddressSanitizer (emulated) and compute-sanitizer (a card) see every access beyond. Views that
 * overlap stay so. The device is the plug-in that FRESHET_DEVICE names, else the emulated one; one
 * that cannot be had ends the process with its message. Thread: one. */
#ifndef FR_SHIM_SHIM_H
#define FR_SHIM_SHIM_H

#include "cuda/api.h"

const struct fr_device_api *fr_shim_api(void);
struct fr_device_queue *fr_shim_queue(void);
const struct fr_ops *fr_shim_ops(void);
/* The same with products of factors rounded to bf16. */
const struct fr_ops *fr_shim_bf16_ops(void);

#endif
