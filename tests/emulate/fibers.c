/* The scheduler of device.h: one block at a time, its 256 threads as fibers.
 *
 * A fiber that ends a thread begins the next one, so a kernel without barriers costs two switches a
 * block. Threads that wait keep their fiber, which switches to the next one that can run. When none
 * can, those that meet are let go: a warp once all 32 lanes wait in it, the block once all its
 * threads wait. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/random.h"
#include "switch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define SWITCH_BEGIN(fake, stack, size) __sanitizer_start_switch_fiber(fake, stack, size)
#define SWITCH_END(fake, bottom, size) __sanitizer_finish_switch_fiber(fake, bottom, size)
#else
#define SWITCH_BEGIN(fake, stack, size) ((void)(fake), (void)(stack), (void)(size))
#define SWITCH_END(fake, bottom, size) ((void)(fake), (void)(bottom), (void)(size))
#endif

enum { THREADS = 256, LANES = 32, STACK_BYTES = 96 << 10, SHARED_MAX = 8 };

enum state { WAITS_TO_BEGIN, RUNS, AT_WARP, AT_BLOCK, ENDED };

struct fiber {
    struct fr_emulated_stack stack;
    void *memory, *fake_stack;
    uint32_t thread; /* the thread that this fiber runs */
};

struct fr_emulated_place fr_emulated;

static struct fiber fibers[THREADS];
static struct {
    const char *name;
    fr_emulated_kernel *kernel;
    const void *call;
    uint32_t order[THREADS], next; /* threads in the order in which they begin and continue */
    uint32_t turn, n_fibers;       /* place in `order` of the next thread to run; fibers begun */
    enum state state[THREADS];
    uint32_t fiber_of[THREADS];
    uint64_t word[THREADS], got[THREADS];
    uint32_t from[THREADS];
    void *shared[SHARED_MAX];
    uint32_t n_shared, running;
    uint64_t launches;
    struct fr_emulated_stack scheduler;
    void *scheduler_fake;
    const void *scheduler_memory;
    size_t scheduler_bytes;
} run;

static _Noreturn void fail(const char *what, uint32_t thread)
{
    fprintf(stderr, "emulation: kernel %s, block %u, thread %u: %s\n", run.name, fr_emulated.block.x, thread, what);
    abort();
}

/* ---- fibers ---- */

static void fiber_main(void);

static void make_fiber(struct fiber *fiber)
{
    fiber->memory = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FR_CHECK(fiber->memory != MAP_FAILED);
    fr_emulate_make(&fiber->stack, fiber->memory, STACK_BYTES, fiber_main);
}

/* Returns the fiber that continues, or begins, after the running one; NULL if every thread waits or
 * has ended, so that release must let some continue. */
static struct fiber *next_fiber(void)
{
    while (run.turn < THREADS) {
        uint32_t thread = run.order[run.turn++];
        if (run.state[thread] == RUNS)
            return &fibers[run.fiber_of[thread]];
    }
    if (run.next == THREADS)
        return NULL;
    struct fiber *fiber = &fibers[run.n_fibers++]; /* a thread has at most one fiber */
    if (!fiber->memory)
        make_fiber(fiber);
    return fiber;
}

static void leave(struct fiber *fiber)
{
    struct fiber *next = next_fiber();
    if (next) {
        SWITCH_BEGIN(&fiber->fake_stack, next->memory, (size_t)STACK_BYTES);
        run.running = (uint32_t)(next - fibers);
        fr_emulate_switch(&fiber->stack, &next->stack);
    } else {
        SWITCH_BEGIN(&fiber->fake_stack, run.scheduler_memory, run.scheduler_bytes);
        fr_emulate_switch(&fiber->stack, &run.scheduler);
    }
    SWITCH_END(fiber->fake_stack, NULL, NULL);
    fr_emulated.thread.x = fiber->thread;
}

static void run_fiber(struct fiber *fiber)
{
    run.running = (uint32_t)(fiber - fibers);
    SWITCH_BEGIN(&run.scheduler_fake, fiber->memory, (size_t)STACK_BYTES);
    fr_emulate_switch(&run.scheduler, &fiber->stack);
    SWITCH_END(run.scheduler_fake, NULL, NULL);
}

/* What a fiber runs: one thread after the other, as long as some threads have not begun. */
static void fiber_main(void)
{
    struct fiber *fiber = &fibers[run.running];
    const void *bottom = NULL;
    size_t size = 0;
    SWITCH_END(NULL, &bottom, &size);
    if (bottom && !run.scheduler_memory) { /* the first fiber learns the scheduler's stack */
        run.scheduler_memory = bottom;
        run.scheduler_bytes = size;
    }
    for (;;) {
        while (run.next < THREADS) {
            uint32_t thread = run.order[run.next++];
            fiber->thread = thread;
            run.fiber_of[thread] = (uint32_t)(fiber - fibers);
            run.state[thread] = RUNS;
            fr_emulated.thread.x = thread;
            run.kernel(run.call);
            run.state[thread] = ENDED;
        }
        leave(fiber);
    }
}

/* ---- meeting ---- */

static void wait_at(enum state state)
{
    struct fiber *fiber = &fibers[run.fiber_of[fr_emulated.thread.x]];
    run.state[fiber->thread] = state;
    leave(fiber);
}

void fr_emulate_block_meet(void)
{
    wait_at(AT_BLOCK);
}

uint64_t fr_emulate_warp_meet(uint64_t word, uint32_t from)
{
    uint32_t thread = fr_emulated.thread.x;
    if (from >= LANES)
        fail("a lane that a warp has not", thread);
    run.word[thread] = word;
    run.from[thread] = from;
    wait_at(AT_WARP);
    return run.got[thread];
}

void fr_emulate_shared(void *memory, size_t bytes)
{
    for (uint32_t i = 0; i < run.n_shared; i++)
        if (run.shared[i] == memory)
            return;
    FR_CHECK(run.n_shared < SHARED_MAX);
    run.shared[run.n_shared++] = memory;
    memset(memory, 0xff, bytes); /* NaN, as float and as double */
}

/* Lets the lanes of a warp continue; returns false if none of them waits. */
static bool release_warp(uint32_t first)
{
    uint32_t waiting = 0, other = first;
    for (uint32_t l = 0; l < LANES; l++) {
        if (run.state[first + l] == AT_WARP)
            waiting++;
        else
            other = first + l;
    }
    if (waiting == 0)
        return false;
    if (waiting < LANES)
        fail(run.state[other] == ENDED ? "ended while its warp meets" : "waits for its block while its warp meets",
             other);
    for (uint32_t l = 0; l < LANES; l++) {
        run.got[first + l] = run.word[first + run.from[first + l]];
        run.state[first + l] = RUNS;
    }
    return true;
}

/* Called when every thread waits or has ended: lets the threads continue whose warp or block has
 * met. Returns false if the block has ended. */
static bool release(void)
{
    bool any = false;
    for (uint32_t first = 0; first < THREADS; first += LANES)
        any |= release_warp(first);
    if (any)
        return true;
    uint32_t waiting = 0;
    for (uint32_t t = 0; t < THREADS; t++)
        waiting += run.state[t] == AT_BLOCK;
    if (waiting == 0)
        return false;
    for (uint32_t t = 0; t < THREADS; t++) {
        if (run.state[t] != AT_BLOCK)
            fail("ended while its block meets", t);
        run.state[t] = RUNS;
    }
    return true;
}

/* ---- blocks ---- */

static void shuffle(uint32_t *order, uint32_t n, uint64_t stream)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)(fr_random_u64(run.launches, stream, 0, i) % i), kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

static void run_block(uint32_t block)
{
    fr_emulated.block.x = block;
    run.next = 0;
    run.n_shared = 0;
    run.n_fibers = 0;
    memset(run.state, WAITS_TO_BEGIN, sizeof(run.state));
    shuffle(run.order, THREADS, 1 + (uint64_t)block);
    do {
        run.turn = 0;
        run_fiber(next_fiber());
    } while (release());
}

void fr_emulate_launch(const char *name, fr_emulated_kernel *kernel, const void *call, uint32_t blocks)
{
    uint32_t *order = malloc(blocks * sizeof(*order));
    FR_CHECK(order && blocks > 0);
    run.name = name;
    run.kernel = kernel;
    run.call = call;
    run.launches++;
    fr_emulated.grid.x = blocks;
    shuffle(order, blocks, 0);
    for (uint32_t b = 0; b < blocks; b++)
        run_block(order[b]);
    free(order);
}
