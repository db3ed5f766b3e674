/* Memory that may be refused: see memory.h. A header before each block links it into the list of
 * its owner. A refusal within a run jumps out of the run, as PostgreSQL's and Lua's allocators do.
 * Blocks allocated outside a run have no owner, and a refusal there returns NULL.
 *
 * Thread: any. What the memory is used for does not matter here. */
#include "memory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { ALIGNMENT = 16 }; /* the alignment of malloc's blocks */

struct fr_replica_block {
    struct fr_replica_block *next, **at; /* links of the owner's list */
    struct fr_replica_memory *memory;    /* the owner; NULL: none */
    void *base;                          /* the block as the system returned it */
    size_t size;                         /* bytes from `base` */
    size_t unused;
};
_Static_assert(sizeof(struct fr_replica_block) % ALIGNMENT == 0, "what follows a header is aligned");

struct run {
    struct fr_replica_memory *memory;
    struct run *outer;
    jmp_buf refused;
};
static _Thread_local struct run *current;

bool fr_replica_memory_run(struct fr_replica_memory *memory, void (*call)(void *self), void *self)
{
    struct run run = {.memory = memory, .outer = current};
    if (setjmp(run.refused) != 0) {
        current = current->outer;
        return false;
    }
    current = &run;
    call(self);
    current = run.outer;
    return true;
}

/* ---- replacements of the C library's functions ---- */

void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
void __wrap_free(void *memory);

static void *refuse(void)
{
    if (current)
        longjmp(current->refused, 1);
    return NULL;
}

/* Charges `more` bytes to the budget; false: it has no room for them. */
static bool charge(const struct fr_replica_memory *memory, size_t more)
{
    struct fr_replica_budget *budget = memory ? memory->budget : NULL;
    if (!budget)
        return true;
    uint64_t max = atomic_load_explicit(&budget->max, memory_order_relaxed);
    uint64_t before = atomic_fetch_add_explicit(&budget->held, more, memory_order_relaxed);
    if (max == 0 || (before <= max && more <= max - before))
        return true;
    atomic_fetch_sub_explicit(&budget->held, more, memory_order_relaxed);
    return false;
}

static void refund(const struct fr_replica_memory *memory, size_t size)
{
    if (memory && memory->budget)
        atomic_fetch_sub_explicit(&memory->budget->held, size, memory_order_relaxed);
}

static void link_block(struct fr_replica_block *block)
{
    struct fr_replica_memory *memory = block->memory;
    if (!memory)
        return;
    block->next = memory->first;
    block->at = &memory->first;
    if (block->next)
        block->next->at = &block->next;
    memory->first = block;
}

static void unlink_block(struct fr_replica_block *block)
{
    if (!block->memory)
        return;
    *block->at = block->next;
    if (block->next)
        block->next->at = block->at;
}

static struct fr_replica_memory *owner(void)
{
    return current ? current->memory : NULL;
}

/* Turns the `whole` bytes at `base` into a block whose header ends at `place`. */
static void *take_block(void *base, size_t whole, void *place)
{
    struct fr_replica_block *block = (struct fr_replica_block *)place - 1;
    *block = (struct fr_replica_block){.memory = owner(), .base = base, .size = whole};
    link_block(block);
    return place;
}

void *__wrap_calloc(size_t count, size_t size)
{
    size_t bytes, whole;
    bool fits = fr_mul_size(count, size, &bytes) && fr_add_size(bytes, sizeof(struct fr_replica_block), &whole);
    if (!fits || !charge(owner(), whole))
        return refuse();
    struct fr_replica_block *block = __real_calloc(1, whole);
    if (block)
        return take_block(block, whole, block + 1);
    refund(owner(), whole);
    return refuse();
}

void *__wrap_malloc(size_t size)
{
    return __wrap_calloc(1, size);
}

/* The block keeps its owner. */
void *__wrap_realloc(void *memory, size_t size)
{
    size_t whole = 0;
    if (!memory)
        return __wrap_calloc(1, size);
    struct fr_replica_block *block = (struct fr_replica_block *)memory - 1;
    FR_CHECK(block->base == block); /* aligned memory is not resized */
    bool fits = fr_add_size(size, sizeof(*block), &whole);
    const size_t before = block->size, more = whole > before ? whole - before : 0;
    if (!fits || !charge(block->memory, more))
        return refuse();
    unlink_block(block);
    struct fr_replica_block *moved = __real_realloc(block, whole);
    if (!moved) {
        link_block(block);
        refund(block->memory, more);
        return refuse();
    }
    if (whole < before)
        refund(moved->memory, before - whole);
    moved->base = moved;
    moved->size = whole;
    link_block(moved);
    return moved + 1;
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    void *base = NULL;
    /* room for the header, so that the memory after it stays aligned */
    size_t before = alignment, whole;
    while (before < sizeof(struct fr_replica_block))
        before *= 2;
    bool fits = fr_add_size(size, before, &whole);
    if (!fits || !charge(owner(), whole)) {
        (void)refuse();
        return ENOMEM;
    }
    if (__real_posix_memalign(&base, alignment, whole) != 0) {
        refund(owner(), whole);
        (void)refuse();
        return ENOMEM;
    }
    *out = take_block(base, whole, (char *)base + before);
    return 0;
}

void __wrap_free(void *memory)
{
    if (!memory)
        return;
    struct fr_replica_block *block = (struct fr_replica_block *)memory - 1;
    unlink_block(block);
    refund(block->memory, block->size);
    __real_free(block->base);
}

struct trying {
    size_t alignment, size;
    void *given;
};

static void run_try(void *self)
{
    struct trying *trying = self;
    void *given = NULL;
    if (trying->alignment <= ALIGNMENT)
        given = __wrap_calloc(1, trying->size);
    else if (__wrap_posix_memalign(&given, trying->alignment, trying->size) == 0)
        memset(given, 0, trying->size);
    trying->given = given;
}

void *fr_replica_memory_try(struct fr_replica_memory *memory, size_t alignment, size_t size)
{
    struct trying trying = {.alignment = alignment, .size = size};
    return fr_replica_memory_run(memory, run_try, &trying) ? trying.given : NULL;
}

void fr_replica_memory_release(struct fr_replica_memory *memory)
{
    while (memory->first)
        __wrap_free(memory->first + 1);
}
