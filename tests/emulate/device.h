/* kernel.h's words for a small emulation of a card, for kernels compiled as C: grid, blocks of 256
 * threads, warps of 32 lanes, shared memory, barriers, shuffles, the two atomics that are allowed.
 *
 * Each thread of a block is a fiber. It runs until it has to meet others, then the next one runs;
 * blocks, and the threads of a block, are taken in another order at each launch. So what depends on
 * the order of blocks (an addition of floats by atomics, say) or on threads having come further (a
 * missing barrier) gives other bits when it is run twice. Shared memory begins as NaN in each
 * block. The process ends with the kernel's name when
 * - lanes of a warp meet and one of them has ended or is elsewhere: a shuffle in a branch;
 * - threads of a block meet at a barrier and one has ended, or waits for its warp.
 *
 * It does not find races on memory that happen to give the same numbers in every order tried, and
 * it says nothing about speed. Thread: one at a time. */
#ifndef FR_EMULATE_DEVICE_H
#define FR_EMULATE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct fr_emulated_index {
    uint32_t x;
};
struct fr_emulated_place {
    struct fr_emulated_index thread, block, grid;
};
extern struct fr_emulated_place fr_emulated; /* of the thread that runs */
#define threadIdx (fr_emulated.thread)
#define blockIdx (fr_emulated.block)
#define gridDim (fr_emulated.grid)

typedef void fr_emulated_kernel(const void *call);

#define FR_DEVICE static inline
#define FR_KERNEL(name, type)                                                                                          \
    static void name(const type c);                                                                                    \
    static void name##_thread(const void *call)                                                                        \
    {                                                                                                                  \
        name(*(const type *)call);                                                                                     \
    }                                                                                                                  \
    static void name(const type c)
#define FR_LAUNCH(queue, name, blocks, call)                                                                           \
    fr_queue_launch((queue), #name, (const void *)(uintptr_t)name##_thread, &(call), sizeof(call), (blocks))
/* One array for all blocks: they run one after the other. */
#define FR_SHARED(type, name, n)                                                                                       \
    static type name[n];                                                                                               \
    fr_emulate_shared(name, sizeof(name))

void fr_emulate_launch(const char *name, fr_emulated_kernel *kernel, const void *call, uint32_t blocks);
/* Fills it with NaN when a thread of the block is the first to come here. */
void fr_emulate_shared(void *memory, size_t bytes);
void fr_emulate_block_meet(void);
/* Lanes give a word each, of 64 bits, and get that of lane `from`. */
uint64_t fr_emulate_warp_meet(uint64_t word, uint32_t from);

#define fr_block_meet() fr_emulate_block_meet()
#define fr_warp_meet() (void)fr_emulate_warp_meet(0, 0)

static inline uint32_t fr_emulated_down(uint32_t n)
{
    uint32_t lane = threadIdx.x % 32;
    return lane + n < 32 ? lane + n : lane;
}

static inline float fr_warp_from_f32(float x, uint32_t lane)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    bits = (uint32_t)fr_emulate_warp_meet(bits, lane);
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float fr_warp_down_f32(float x, uint32_t n)
{
    return fr_warp_from_f32(x, fr_emulated_down(n));
}

static inline double fr_warp_down_f64(double x, uint32_t n)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    bits = fr_emulate_warp_meet(bits, fr_emulated_down(n));
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline void fr_atomic_max(uint32_t *word, uint32_t bits)
{
    *word = bits > *word ? bits : *word;
}

static inline void fr_atomic_or(uint32_t *word, uint32_t bits)
{
    *word |= bits;
}

#endif
