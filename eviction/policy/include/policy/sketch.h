/* Approximate counts of keys in fixed memory: a blocked count-min sketch with conservative update
 * (Estan, Varghese 2002; Cormode, Muthukrishnan 2005) of small saturating counters that are halved
 * as event time passes (TinyLFU: Einziger, Friedman, Manes 2017).
 *
 * A key belongs to one block, which is one cache line: the number of the half-life in which the
 * block was last changed, and four groups of 30 counters of 4 bits. The key has one counter in each
 * group. An occurrence raises those of the four counters that are below the new minimum. So a count
 * is never too low (up to its limit, FR_GATE_SKETCH_MAX), and too high only if the key shares all
 * four counters.
 *
 * Error: with n keys to a block, a key that never occurred reads more than 0 with probability (1 -
 * (29/30)^n)^4: 0.1 % at 6, 0.7 % at 10, 6 % at 20 keys a block. So 8 bytes for each key that
 * occurs within a few half-lives keep false admissions below 0.3 %; an exact pending entry takes
 * about 40 bytes. tests/unit/eviction/test_sketch.c measures the error.
 *
 * Halving is lazy: when a block is changed, it is first halved once for each half-life that began
 * since its last change. So its bytes are a function of the additions and their watermarks.
 *
 * Thread: the worker that handles the shard. The sketch has no notion of tables, keys or epochs. */
#ifndef FR_POLICY_SKETCH_H
#define FR_POLICY_SKETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FR_SKETCH_COUNTER_BYTES = 60 };

struct fr_sketch_block {
    /* half-life in which the block was last changed: watermark / half-life */
    _Alignas(64) uint32_t period;
    uint8_t counters[FR_SKETCH_COUNTER_BYTES];
};
_Static_assert(sizeof(struct fr_sketch_block) == 64, "stored, and a cache line");

struct fr_sketch { /* sketch of one shard */
    struct fr_sketch_block *blocks;
    uint64_t n_blocks; /* 0: there is no sketch */
    int64_t half_life_ms;
    /* one bit for each block: whether the block changed since the last cut */
    uint64_t *changed_bits;
    uint32_t *changed; /* numbers of those blocks */
    size_t n_changed, capacity_changed;
};

/* A copy of a block from before an addition, so that a refused batch can be undone. */
struct fr_sketch_undo {
    struct fr_sketch_block before;
    uint32_t block;
    bool was_changed;
};

struct fr_sketch_log {
    struct fr_sketch_undo *list;
    size_t n, capacity;
};

/* Reserves at most `bytes`, at least one block. Pages take memory only once they are used. */
void fr_sketch_init(struct fr_sketch *sketch, uint64_t bytes, int64_t half_life_ms);
void fr_sketch_release(struct fr_sketch *sketch);
size_t fr_sketch_bytes(const struct fr_sketch *sketch); /* bytes reserved */

void fr_sketch_prefetch(const struct fr_sketch *sketch, uint64_t hash);
/* Adds n >= 1 occurrences and returns the key's count. The block's previous content is appended to
 * the log. *changed is set if this is the block's first change since the cut. */
uint32_t fr_sketch_add(struct fr_sketch *sketch, uint64_t hash, uint64_t n, int64_t watermark_ms,
                       struct fr_sketch_log *log, bool *changed);
/* Undoes the additions in the log, last first, and empties the log. */
void fr_sketch_revert(struct fr_sketch *sketch, struct fr_sketch_log *log);
void fr_sketch_log_release(struct fr_sketch_log *log);
/* After a cut: no block counts as changed. */
void fr_sketch_clear_changes(struct fr_sketch *sketch);

#endif
