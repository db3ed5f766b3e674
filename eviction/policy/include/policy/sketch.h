/* Approximate counts of keys in fixed memory: a blocked count-min sketch with conservative update
 * (Estan, Varghese 2002; Cormode, Muthukrishnan 2005) of small saturating counters that are halved
 * as event time passes (TinyLFU: Einziger, Friedman, Manes 2017).
 *
 * A key has one block, a cache line: the number of the half-life in which the block was last
 * touched, and four groups of 30 counters of 4 bits. It has one counter in each group. An
 * occurrence raises those of its counters that are below the new minimum, so a count is never too
 * low (up to its limit, FR_GATE_SKETCH_MAX) and too high only when all four are shared.
 *
 * Error: with n keys to a block, a key that never came reads more than 0 with probability
 * (1 - (29/30)^n)^4: 0.1 % at 6, 0.7 % at 10, 6 % at 20 keys a block. So 8 bytes a key that comes
 * within a few half-lives keep false admissions below 0.3 %, against about 40 bytes of an exact
 * pending entry. tests/unit/eviction/test_sketch.c measures it.
 *
 * Halving is lazy: a block is halved as often as half-lives began since it was last touched, when
 * it is touched next. So its bytes are a function of the additions and their watermarks.
 *
 * Thread: the worker that handles the shard. It does not know tables, keys or epochs. */
#ifndef FR_POLICY_SKETCH_H
#define FR_POLICY_SKETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FR_SKETCH_COUNTER_BYTES = 60 };

struct fr_sketch_block {
    _Alignas(64) uint32_t period; /* of its last addition: watermark / half-life */
    uint8_t counters[FR_SKETCH_COUNTER_BYTES];
};
_Static_assert(sizeof(struct fr_sketch_block) == 64, "stored, and a cache line");

struct fr_sketch { /* of one shard */
    struct fr_sketch_block *blocks;
    uint64_t n_blocks; /* 0: there is no sketch */
    int64_t half_life_ms;
    uint64_t *changed_bits; /* per block: changed since the last cut */
    uint32_t *changed;      /* their numbers */
    size_t n_changed, capacity_changed;
};

/* A block as it was before an addition, so that a refused batch can be taken back. */
struct fr_sketch_undo {
    struct fr_sketch_block before;
    uint32_t block;
    bool was_changed;
};

struct fr_sketch_log {
    struct fr_sketch_undo *list;
    size_t n, capacity;
};

/* At most `bytes`, at least one block. Pages are touched when used only. */
void fr_sketch_init(struct fr_sketch *sketch, uint64_t bytes, int64_t half_life_ms);
void fr_sketch_release(struct fr_sketch *sketch);
size_t fr_sketch_bytes(const struct fr_sketch *sketch); /* as reserved */

void fr_sketch_prefetch(const struct fr_sketch *sketch, uint64_t hash);
/* n >= 1 more occurrences; returns the key's count. The log takes what the block was; *changed says
 * that the block is new among those changed since the cut. */
uint32_t fr_sketch_add(struct fr_sketch *sketch, uint64_t hash, uint64_t n, int64_t watermark_ms,
                       struct fr_sketch_log *log, bool *changed);
/* Takes back what the log says, last first, and empties it. */
void fr_sketch_take_back(struct fr_sketch *sketch, struct fr_sketch_log *log);
void fr_sketch_log_release(struct fr_sketch_log *log);
/* The list of changed blocks begins anew. */
void fr_sketch_settle(struct fr_sketch *sketch);

#endif
