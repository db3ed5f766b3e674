/* The digests that the delta topic carries, by epoch, in a job of several ranks: each is made of
 * the digests of all ranks' journals (durable/agreement.h), so no rank can compute them alone.
 *
 * Recovery adds those of the epochs that may be published again, and the durable thread that of
 * each epoch before it is offered to the publisher. The durable thread drops those of epochs that
 * have left its journal. 32 bytes an epoch, as the journal's index has them too.
 *
 * Thread: any. A mutex guards all of it, and is held for a copy, or for moving the digests once in
 * a while. */
#ifndef FR_DAEMON_LOOPS_SHARED_DIGESTS_H
#define FR_DAEMON_LOOPS_SHARED_DIGESTS_H

#include <pthread.h>

#include "base/hash.h"
#include "base/status.h"

struct fr_shared_digests {
    pthread_mutex_t lock;
    uint64_t first; /* the epoch of of[0]; the next one that is added if n is 0 */
    size_t n, capacity;
    struct fr_sha256 *of;
};

void fr_shared_digests_init(struct fr_shared_digests *digests);
void fr_shared_digests_release(struct fr_shared_digests *digests);
/* The first digest that will be added is that of this epoch. Called once, before all others. */
void fr_shared_digests_begin(struct fr_shared_digests *digests, uint64_t first);
/* Adds the digest of the epoch after the last one (FR_CHECK). */
void fr_shared_digests_add(struct fr_shared_digests *digests, uint64_t epoch, const struct fr_sha256 *digest);
/* The digests of epochs before this one are not asked for any more. */
void fr_shared_digests_drop(struct fr_shared_digests *digests, uint64_t before);
/* FR_E_NOT_FOUND: the epoch's digest was not added, or was dropped. self: the digests. */
enum fr_status fr_shared_digests_get(void *self, uint64_t epoch, struct fr_sha256 *out);

#endif
