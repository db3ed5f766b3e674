/* See sketch.h. The four counters of a key are chosen by a second mix of the hash, because the
 * hash's own bits choose shard and block. */
#include "policy/sketch.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/pages.h"
#include "policy/policy.h"

enum {
    SHARD_BITS = 4, /* all keys of a shard agree in these top bits */
    GROUPS = 4,
    GROUP_COUNTERS = 30,
    COUNTER_BITS = 4,
    CHANGED_MIN = 64,
    LOG_MIN = 64,
};
_Static_assert(GROUPS *GROUP_COUNTERS *COUNTER_BITS == FR_SKETCH_COUNTER_BYTES * 8, "a block is full");
_Static_assert(FR_GATE_SKETCH_MAX == (1 << COUNTER_BITS) - 1, "what a counter holds");

static size_t bit_words(uint64_t n_blocks)
{
    return (size_t)((n_blocks + 63) / 64);
}

void fr_sketch_init(struct fr_sketch *sketch, uint64_t bytes, int64_t half_life_ms)
{
    uint64_t n = bytes / sizeof(struct fr_sketch_block);
    FR_CHECK(n <= UINT32_MAX);
    *sketch = (struct fr_sketch){.n_blocks = n > 0 ? n : 1, .half_life_ms = half_life_ms};
    sketch->blocks = fr_pages_take(sketch->n_blocks * sizeof(*sketch->blocks), 1);
    sketch->changed_bits = fr_pages_take(bit_words(sketch->n_blocks) * sizeof(uint64_t), 0);
}

void fr_sketch_release(struct fr_sketch *sketch)
{
    fr_pages_give(sketch->blocks, sketch->n_blocks * sizeof(*sketch->blocks));
    fr_pages_give(sketch->changed_bits, bit_words(sketch->n_blocks) * sizeof(uint64_t));
    free(sketch->changed);
    *sketch = (struct fr_sketch){0};
}

size_t fr_sketch_bytes(const struct fr_sketch *sketch)
{
    return sketch->n_blocks * sizeof(*sketch->blocks) + bit_words(sketch->n_blocks) * sizeof(uint64_t) +
           sketch->capacity_changed * sizeof(*sketch->changed);
}

static uint32_t block_of(const struct fr_sketch *sketch, uint64_t hash)
{
    return (uint32_t)((unsigned __int128)(hash << SHARD_BITS) * sketch->n_blocks >> 64);
}

void fr_sketch_prefetch(const struct fr_sketch *sketch, uint64_t hash)
{
    __builtin_prefetch(&sketch->blocks[block_of(sketch, hash)], 1);
}

/* All times before 1970 count as one period; so do all beyond 32 bits of half-lives. */
static uint32_t period_of(const struct fr_sketch *sketch, int64_t watermark_ms)
{
    if (sketch->half_life_ms <= 0 || watermark_ms <= 0)
        return 0;
    int64_t period = watermark_ms / sketch->half_life_ms;
    return period > UINT32_MAX ? UINT32_MAX : (uint32_t)period;
}

static void halve(struct fr_sketch_block *block, uint32_t times)
{
    if (times >= COUNTER_BITS) {
        memset(block->counters, 0, sizeof(block->counters));
        return;
    }
    uint8_t kept = (uint8_t)(FR_GATE_SKETCH_MAX >> times);
    uint8_t mask = (uint8_t)(kept << COUNTER_BITS | kept);
    for (size_t i = 0; i < sizeof(block->counters); i++)
        block->counters[i] = (uint8_t)(block->counters[i] >> times & mask);
}

static unsigned read_counter(const struct fr_sketch_block *block, unsigned counter)
{
    return block->counters[counter / 2] >> (counter % 2 * COUNTER_BITS) & FR_GATE_SKETCH_MAX;
}

static void write_counter(struct fr_sketch_block *block, unsigned counter, unsigned value)
{
    unsigned shift = counter % 2 * COUNTER_BITS;
    uint8_t *byte = &block->counters[counter / 2];
    *byte = (uint8_t)((*byte & ~(FR_GATE_SKETCH_MAX << shift)) | value << shift);
}

static bool mark_changed(struct fr_sketch *sketch, uint32_t block)
{
    uint64_t *word = &sketch->changed_bits[block / 64], bit = (uint64_t)1 << block % 64;
    if (*word & bit)
        return false;
    *word |= bit;
    if (sketch->n_changed == sketch->capacity_changed) {
        sketch->capacity_changed = sketch->capacity_changed ? 2 * sketch->capacity_changed : CHANGED_MIN;
        sketch->changed = fr_realloc(sketch->changed, sketch->capacity_changed, sizeof(*sketch->changed));
    }
    sketch->changed[sketch->n_changed++] = block;
    return true;
}

static struct fr_sketch_undo *log_entry(struct fr_sketch_log *log)
{
    if (log->n == log->capacity) {
        log->capacity = log->capacity ? 2 * log->capacity : LOG_MIN;
        struct fr_sketch_undo *grown =
            fr_alloc_aligned(_Alignof(struct fr_sketch_undo), log->capacity * sizeof(*grown));
        if (log->n > 0)
            memcpy(grown, log->list, log->n * sizeof(*grown));
        free(log->list);
        log->list = grown;
    }
    return &log->list[log->n++];
}

uint32_t fr_sketch_add(struct fr_sketch *sketch, uint64_t hash, uint64_t n, int64_t watermark_ms,
                       struct fr_sketch_log *log, bool *changed)
{
    uint32_t number = block_of(sketch, hash), period = period_of(sketch, watermark_ms);
    struct fr_sketch_block *block = &sketch->blocks[number];
    struct fr_sketch_undo *undo = log_entry(log);
    undo->before = *block;
    undo->block = number;
    *changed = mark_changed(sketch, number);
    undo->was_changed = !*changed;
    if (period > block->period) {
        halve(block, period - block->period);
        block->period = period;
    }
    uint64_t bits = fr_fmix64(hash + 0x9e3779b97f4a7c15ULL);
    unsigned counters[GROUPS], least = FR_GATE_SKETCH_MAX;
    for (unsigned g = 0; g < GROUPS; g++) {
        unsigned in_group = (unsigned)((bits >> 16 * g & 0xffff) * GROUP_COUNTERS >> 16);
        counters[g] = g * GROUP_COUNTERS + in_group;
        unsigned value = read_counter(block, counters[g]);
        least = value < least ? value : least;
    }
    unsigned count = n >= FR_GATE_SKETCH_MAX - least ? FR_GATE_SKETCH_MAX : least + (unsigned)n;
    for (unsigned g = 0; g < GROUPS; g++)
        if (read_counter(block, counters[g]) < count)
            write_counter(block, counters[g], count);
    return count;
}

void fr_sketch_revert(struct fr_sketch *sketch, struct fr_sketch_log *log)
{
    for (; log->n > 0; log->n--) {
        const struct fr_sketch_undo *undo = &log->list[log->n - 1];
        sketch->blocks[undo->block] = undo->before;
        if (undo->was_changed)
            continue;
        FR_CHECK(sketch->n_changed > 0);
        FR_CHECK(sketch->changed[sketch->n_changed - 1] == undo->block);
        sketch->n_changed--;
        sketch->changed_bits[undo->block / 64] &= ~((uint64_t)1 << undo->block % 64);
    }
}

void fr_sketch_log_release(struct fr_sketch_log *log)
{
    free(log->list);
    *log = (struct fr_sketch_log){0};
}

void fr_sketch_clear_changes(struct fr_sketch *sketch)
{
    for (size_t i = 0; i < sketch->n_changed; i++)
        /* clears other blocks' bits too: all of them are being cleared */
        sketch->changed_bits[sketch->changed[i] / 64] = 0;
    sketch->n_changed = 0;
}
