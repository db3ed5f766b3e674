/* A bump arena holds many small allocations with one lifetime. Blocks are kept on reset, so that a
 * steady workload allocates nothing. Memory is 64-byte aligned and not zeroed.
 *
 * Thread: one owner. */
#ifndef FR_BASE_ARENA_H
#define FR_BASE_ARENA_H

#include <stddef.h>

struct fr_arena_block;
struct fr_arena {
    struct fr_arena_block *blocks; /* blocks in use, newest first */
    struct fr_arena_block *spare;
    size_t block_size; /* 0: 1 MiB */
    size_t used;       /* bytes handed out since the last reset */
    size_t reserved;   /* bytes held from the system */
};

void *fr_arena_take(struct fr_arena *arena, size_t size);
void fr_arena_reset(struct fr_arena *arena);
void fr_arena_release(struct fr_arena *arena);

#endif
