/* Keeps what readers may still read until they have left: epoch-based reclamation (Fraser,
 * Practical lock-freedom, 2004), where an epoch is a published view.
 *
 * The feeder numbers views. An item that becomes unreachable for new readers while view n is the
 * newest is retired with n, and released once every reader inside began with a later view. Nothing
 * blocks: an item that cannot be released yet stays in the list.
 *
 * Thread: the feeder's. Readers are tracked in view.c. */
#ifndef FR_REPLICA_RETIRE_H
#define FR_REPLICA_RETIRE_H

#include <stdint.h>

/* The first member of every struct that can be retired. */
struct fr_retired {
    struct fr_retired *next;
    uint64_t number;
    void (*release)(struct fr_retired *self);
};

struct fr_retirement {
    uint64_t number; /* the newest view when the item was retired */
    struct fr_retired *first, **last;
};

void fr_retired_init(struct fr_retirement *retirement);
void fr_retired_add(struct fr_retirement *retirement, struct fr_retired *item,
                    void (*release)(struct fr_retired *self));
/* Releases what was retired before view `number` became the newest. */
void fr_retired_release(struct fr_retirement *retirement, uint64_t number);
/* Frees an item that is one block of memory. */
void fr_retired_free(struct fr_retired *self);

#endif
