/* Memory that may be refused. All that the library allocates, in whichever module, belongs to the
 * part of the replica it was allocated for, and a call that meets a refusal ends as if it had not
 * been made, with false: the host process is not the library's to end (base/check.h ends the
 * daemon's).
 *
 * The link of the library puts the four functions of the C library behind these (`--wrap` in
 * cmake/modules.cmake), so that code which the daemon shares needs no second way to allocate.
 *
 * Owner: a memory is one thread's, a budget everybody's. */
#ifndef FR_REPLICA_MEMORY_H
#define FR_REPLICA_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One for a handle and its readers. */
struct fr_replica_budget {
    _Atomic uint64_t held, max; /* bytes, headers included; max 0: what the system gives */
};

struct fr_replica_block;
struct fr_replica_memory {
    struct fr_replica_block *first;
    struct fr_replica_budget *budget;
};

/* Runs call(self), whose allocations belong to memory. False: one was refused, and call was left
 * where it stood. What it allocated is held until the release; what it changed it must have changed
 * in an order that leaves it whole, or its memory is to be released. Runs may be nested. */
bool fr_replica_memory_run(struct fr_replica_memory *memory, void (*call)(void *self), void *self);
/* Zeroed memory aligned to `alignment`, or NULL, inside a run or outside; free() releases it, in
 * the thread of `memory`. */
void *fr_replica_memory_try(struct fr_replica_memory *memory, size_t alignment, size_t size);
/* To be called where the struct lies elsewhere now than when its blocks were allocated. */
void fr_replica_memory_moved(struct fr_replica_memory *memory);
/* Frees whatever belongs to it. */
void fr_replica_memory_release(struct fr_replica_memory *memory);

#endif
