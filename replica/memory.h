/* Memory that may be refused. Everything that the library allocates, in any module, belongs to the
 * part of the replica for which it was allocated. A call that meets a refusal returns false, as if
 * it had not been made, because a library must not end its host process (base/check.h ends the
 * daemon).
 *
 * The library is linked so that these functions replace four functions of the C library (`--wrap`
 * in cmake/modules.cmake). So code that is shared with the daemon allocates in one way only.
 *
 * Owner: a memory belongs to one thread; a budget is shared by all threads. */
#ifndef FR_REPLICA_MEMORY_H
#define FR_REPLICA_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One budget for a handle and its readers. */
struct fr_replica_budget {
    _Atomic uint64_t held, max; /* bytes with headers; max 0: whatever the system gives */
};

struct fr_replica_block;
struct fr_replica_memory {
    struct fr_replica_block *first;
    struct fr_replica_budget *budget;
};

/* Runs call(self), whose allocations belong to `memory`. False: an allocation was refused and
 * `call` was left at that point. What `call` allocated is held until the release. `call` must make
 * its changes in an order that leaves them whole at every allocation; otherwise release its memory.
 * Runs may be nested. */
bool fr_replica_memory_run(struct fr_replica_memory *memory, void (*call)(void *self), void *self);
/* Returns zeroed memory aligned to `alignment`, or NULL, inside or outside a run. free() releases
 * it in the thread of `memory`. */
void *fr_replica_memory_try(struct fr_replica_memory *memory, size_t alignment, size_t size);
/* Frees every block that belongs to `memory`. */
void fr_replica_memory_release(struct fr_replica_memory *memory);

#endif
