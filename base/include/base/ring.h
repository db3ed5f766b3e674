/* A bounded queue of pointers between threads; a pushed pointer is no longer yours. It uses a mutex
 * and a condition variable, because it carries batches and epochs (thousands a second), not
 * samples.
 *
 * Thread: any number of pushers and poppers. */
#ifndef FR_BASE_RING_H
#define FR_BASE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct fr_ring;

struct fr_ring *fr_ring_new(size_t capacity);
void fr_ring_free(struct fr_ring *ring); /* The caller first removes the items that are left. */
bool fr_ring_try_push(struct fr_ring *ring, void *item);
/* fr_ring_push and fr_ring_pop return FR_AGAIN on timeout, and FR_EOF when the ring is closed (and,
 * for pop, empty). timeout_ns 0 tries once. */
enum fr_status fr_ring_push(struct fr_ring *ring, void *item, uint64_t timeout_ns) FR_MUST_CHECK;
enum fr_status fr_ring_pop(struct fr_ring *ring, void **item, uint64_t timeout_ns) FR_MUST_CHECK;
/* Refuses further pushes and wakes the waiting threads. */
void fr_ring_close(struct fr_ring *ring);
size_t fr_ring_count(struct fr_ring *ring);

#endif
