/* The emulated card: kernels of trainer/cuda compiled for the processor
 * (tests/emulate/device.h). */
#ifndef FR_EMULATE_EMULATED_H
#define FR_EMULATE_EMULATED_H

#include "cuda/api.h"

const struct fr_device_api *fr_emulate_api(void);

/* What a queue was asked for so far: waits for all that was started, copies to the card, copies
 * back, bytes copied to the card. */
struct fr_emulated_counts {
    uint64_t waits, up, down, up_bytes;
};
struct fr_emulated_counts fr_emulate_counts(const struct fr_device_queue *queue);

/* The failures of a card. NO_CODE: the n-th opening finds that the plug-in has no code for the
 * card. NO_MEMORY: the n-th allocation and all later ones fail. LOST: the n-th start is an error,
 * which stays. NO_GRAPH: the n-th graph cannot be made. fr_emulate_fail with 0 calls orders no
 * failure. */
enum fr_emulated_failure { FR_EMULATED_NO_MEMORY, FR_EMULATED_LOST, FR_EMULATED_NO_GRAPH, FR_EMULATED_NO_CODE };
void fr_emulate_fail(enum fr_emulated_failure kind, uint64_t calls);

#endif
