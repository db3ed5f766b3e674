/* What readers may still look at is kept until they have left: epoch-based reclamation (Fraser,
 * Practical lock-freedom, 2004), where an epoch is a published view.
 *
 * The feeder numbers views. What it takes out of reach while view n is the newest is retired with
 * n, and released once every reader that is inside began with a later view. Nobody waits: what
 * cannot be released yet stays in the list.
 *
 * Thread: the feeder's. It does not know who reads. */
#ifndef FR_REPLICA_RETIRE_H
#define FR_REPLICA_RETIRE_H

#include <stdint.h>

/* The first member of whatever is retired. */
struct fr_retired {
    struct fr_retired *next;
    uint64_t number;
    void (*release)(struct fr_retired *self);
};

struct fr_retirement {
    uint64_t number; /* of the newest view */
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
