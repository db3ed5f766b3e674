/* Bump arena.
 *
 * The blocks in use form a list, newest first; only the first block is bumped. A reset moves all
 * blocks to the spare list, from which the smallest block that fits is reused. So a repetitive
 * workload soon has a fixed set of blocks and asks the system for nothing more. A large request
 * gets its own block, inserted after the first, so that the rest of the first block is not wasted.
 *
 * Invariants: every pointer handed out is 64-byte aligned; used <= reserved.
 *
 * Owner: one thread. Memory is not zeroed, and blocks are freed only by release. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/check.h"

enum { ALIGNMENT = 64, DEFAULT_BLOCK = 1 << 20 };

/* One cache line, so that the bytes after it are aligned too. */
struct fr_arena_block {
    struct fr_arena_block *next;
    size_t capacity; /* bytes after this header */
    size_t used;
    uint8_t padding[ALIGNMENT - sizeof(void *) - 2 * sizeof(size_t)];
};
_Static_assert(sizeof(struct fr_arena_block) == ALIGNMENT, "the header keeps the payload aligned");

static void *bump(struct fr_arena *arena, struct fr_arena_block *block, size_t size)
{
    uint8_t *memory = (uint8_t *)block + sizeof(*block) + block->used;
    block->used += size;
    arena->used += size;
    return memory;
}

static struct fr_arena_block *take_spare(struct fr_arena *arena, size_t size)
{
    struct fr_arena_block **best = NULL;
    for (struct fr_arena_block **link = &arena->spare; *link; link = &(*link)->next)
        if ((*link)->capacity >= size && (!best || (*link)->capacity < (*best)->capacity))
            best = link;
    if (!best)
        return NULL;
    struct fr_arena_block *block = *best;
    *best = block->next;
    return block;
}

static struct fr_arena_block *new_block(struct fr_arena *arena, size_t size)
{
    size_t capacity = arena->block_size ? arena->block_size : DEFAULT_BLOCK;
    if (capacity < size)
        capacity = size;
    size_t total;
    bool fits = fr_add_size(capacity, sizeof(struct fr_arena_block), &total);
    FR_CHECK(fits);
    void *memory = NULL;
    int rc = posix_memalign(&memory, ALIGNMENT, total);
    /* refused memory ends the process, as in fr_alloc; unlike there, the memory is not zeroed */
    FR_CHECK(rc == 0);
    struct fr_arena_block *block = memory;
    block->capacity = capacity;
    arena->reserved += total;
    return block;
}

void *fr_arena_take(struct fr_arena *arena, size_t size)
{
    size_t rounded;
    bool fits = fr_add_size(size ? size : 1, ALIGNMENT - 1, &rounded);
    FR_CHECK(fits);
    rounded &= ~(size_t)(ALIGNMENT - 1);
    struct fr_arena_block *first = arena->blocks;
    if (first && first->capacity - first->used >= rounded)
        return bump(arena, first, rounded);
    struct fr_arena_block *block = take_spare(arena, rounded);
    if (!block)
        block = new_block(arena, rounded);
    block->used = 0;
    if (first && first->capacity - first->used > block->capacity - rounded) {
        block->next = first->next;
        first->next = block;
    } else {
        block->next = first;
        arena->blocks = block;
    }
    return bump(arena, block, rounded);
}

void fr_arena_reset(struct fr_arena *arena)
{
    while (arena->blocks) {
        struct fr_arena_block *block = arena->blocks;
        arena->blocks = block->next;
        block->next = arena->spare;
        arena->spare = block;
    }
    arena->used = 0;
}

void fr_arena_release(struct fr_arena *arena)
{
    if (!arena)
        return;
    fr_arena_reset(arena);
    while (arena->spare) {
        struct fr_arena_block *block = arena->spare;
        arena->spare = block->next;
        free(block);
    }
    *arena = (struct fr_arena){.block_size = arena->block_size};
}
