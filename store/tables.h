/* The store's own structures: store -> tables -> shards. Private to this module.
 *
 * A shard is what one worker handles at a time: an index, a slab, the dirty keys of the open epoch
 * and counters. Shard and position in its index are given by fr_fmix64(key): a function of the key
 * alone.
 *
 * Memory of a row: floats (values, then optimizer state), then at tail_offset seen, show and click.
 * Rows begin on a cache line, so that gathers of values touch as few lines as possible; the tail is
 * a row image's head. */
#ifndef FR_STORE_TABLES_H
#define FR_STORE_TABLES_H

#include "base/hash.h"
#include "index.h"
#include "slab.h"
#include "store/store.h"

_Static_assert(FR_SHARDS == 1 << FR_SHARD_BITS, "the shard is the top bits of the hash");

struct fr_shard {
    /* a cache line of its own: neighbours belong to other workers */
    _Alignas(64) struct fr_index index;
    struct fr_slab slab;
    /* hashes; may name keys that are gone again, and those then twice: the entry's flag decides */
    uint64_t *dirty;
    size_t n_dirty, capacity_dirty;
    uint64_t dirty_bytes; /* of their images, from above */
    uint64_t pending_max; /* this shard's share */
    struct fr_store_counts counts;
};

struct fr_table {
    struct fr_store_table spec;
    uint64_t random_stream;  /* XXH3 of the name */
    size_t tail_offset;      /* bytes from the row's start */
    size_t image_size;       /* of a row */
    uint32_t slice_bits;     /* k: an expiry slice is 1/2^k of the keys */
    struct fr_shard *shards; /* [FR_SHARDS] */
};

struct fr_store_slot {
    int32_t table; /* FR_NO_INDEX: dense */
    bool admit, touch;
};

struct fr_plan;
struct fr_cut;

struct fr_store {
    uint64_t seed;
    struct fr_pool *pool;
    uint32_t n_tables, n_slots;
    struct fr_table *tables;
    struct fr_store_slot *slots;
    struct fr_plan *plan; /* scratch of fr_store_plan, and what fr_store_undo takes back */
    bool undoable;        /* nothing changed since the last plan */
    struct fr_cut *cut;   /* scratch of fr_store_cut */
};

static inline size_t fr_shard_of(uint64_t hash)
{
    return (size_t)(hash >> (64 - FR_SHARD_BITS));
}

static inline struct fr_row_head *fr_row_tail(const struct fr_table *table, float *row)
{
    return (struct fr_row_head *)(void *)((uint8_t *)row + table->tail_offset);
}

static inline struct fr_store_counts fr_table_counts(const struct fr_table *table)
{
    struct fr_store_counts sum = {0};
    for (uint32_t s = 0; s < FR_SHARDS; s++)
        for (uint32_t i = 0; i < FR_STORE_COUNTS; i++)
            sum.of[i] += table->shards[s].counts.of[i];
    return sum;
}

struct fr_plan *fr_plan_new(const struct fr_store *store);
void fr_plan_free(struct fr_plan *plan);
size_t fr_plan_bytes(const struct fr_plan *plan);
struct fr_cut *fr_cut_new(const struct fr_store *store);
void fr_cut_free(struct fr_cut *cut);
size_t fr_cut_bytes(const struct fr_cut *cut);

/* ---- one entry's life (entry.c); `shard` is the entry's ---- */

void fr_shard_init(struct fr_shard *shard, size_t row_bytes, uint64_t pending_max);
void fr_shard_release(struct fr_shard *shard);
size_t fr_shard_bytes(const struct fr_shard *shard);

/* Puts the entry into the open epoch, once. */
void fr_entry_mark_dirty(struct fr_shard *shard, struct fr_entry *entry, size_t image_size);
/* A row for an entry that has none; its bytes are undefined. Ends pending or dead. */
float *fr_entry_make_live(struct fr_shard *shard, struct fr_entry *entry);
void fr_entry_make_pending(struct fr_shard *shard, struct fr_entry *entry);
/* Takes row or pending count away. A key that an epoch knows stays as a dead entry until the cut
 * has said so; any other vanishes. reason: FR_ABSENT_SILENT keeps the reason an expiry of this
 * epoch gave. */
void fr_entry_remove(struct fr_shard *shard, struct fr_entry *entry, uint8_t reason);
/* First values: parts' initial distribution as a function of (seed, table, key, float index), their
 * states, and zero counters. */
void fr_entry_init_row(const struct fr_store *store, const struct fr_table *table, uint64_t key, float *row);

#endif
