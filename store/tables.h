/* The store's own structures: store -> tables -> shards. Private to this module.
 *
 * A shard is what one worker handles at a time: an index, entries and rows, the dirty keys of the
 * open epoch and counters. Shard and position in its index are given by the keyed order of the
 * state, a function of the key alone. */
#ifndef FR_STORE_TABLES_H
#define FR_STORE_TABLES_H

#include <pthread.h>

#include "base/order.h"
#include "durable/epoch.h"
#include "index.h"
#include "policy/sketch.h"
#include "policy/sweep.h"
#include "store/store.h"

_Static_assert(FR_SHARDS == 1 << FR_SHARD_BITS, "the shard is the top bits of the hash");

/* A dead entry whose absence is in an epoch that is not folded yet. */
struct fr_buried {
    uint64_t hash;
    uint64_t epoch;
};

/* What a changed key takes until its epoch is durable, beside the bytes of its image: the
 * image's head, its hash in a list that doubles, and what the cut sorts it with, with half as much
 * to spare (cut.c). */
enum { FR_DIRTY_KEY_BYTES = FR_IMAGE_HEAD + 2 * 8 + 3 * 8 / 2 };

struct fr_shard {
    /* a cache line of its own: neighbours belong to other workers */
    _Alignas(64) struct fr_index index;
    struct fr_entries entries;
    /* hashes; may name keys that are gone again, and those then twice: the entry's flag decides */
    uint64_t *dirty;
    size_t n_dirty, capacity_dirty;
    uint64_t dirty_bytes; /* what the epoch takes for them, from above */
    uint64_t pending_max; /* this shard's share */
    /* in order of their epochs; the first ones may be gone (entry.c) */
    struct fr_buried *buried;
    size_t buried_begin, buried_end, capacity_buried;
    uint64_t evicted;          /* keys whose newest image is in the cold store only */
    uint64_t evictions;        /* of this run */
    uint32_t hand, light_hand; /* where eviction goes on (tier.c) */
    struct fr_store_counts counts;
};

struct fr_table {
    struct fr_store_table spec;
    uint64_t random_stream;     /* XXH3 of the name */
    size_t row_bytes;           /* floats */
    size_t image_size;          /* of a row */
    uint32_t slice_bits;        /* k: an expiry slice is 1/2^k of the keys */
    struct fr_shard *shards;    /* [FR_SHARDS] */
    struct fr_scan *scan;       /* NULL until a slice ran (scan.h) */
    struct fr_sketch *sketches; /* [FR_SHARDS], of a gate that has them; else NULL (gate.h) */
    struct fr_sweep *sweep;     /* policy/sweep.h */
};

struct fr_store_slot {
    int32_t table; /* FR_NO_INDEX: dense */
    bool admit, touch;
};

struct fr_plan;
struct fr_cut;

struct fr_store {
    uint64_t seed;
    struct fr_order order;
    struct fr_durable *durable; /* the cold store below; NULL: there is none */
    struct fr_pool *pool;
    uint32_t n_tables, n_slots;
    struct fr_table *tables;
    struct fr_store_slot *slots;
    struct fr_plan *plan;          /* scratch of fr_store_plan, and what fr_store_undo takes back */
    uint32_t undoable;             /* the last plans, 2 at most, since which nothing else changed */
    uint64_t plans;                /* that were made and not taken back */
    struct fr_removed *removed;    /* by slices between those two (removed.h); NULL: none yet */
    struct fr_plan *ahead;         /* of the batch after it, or of an undoable one before it */
    const struct fr_batch *looked; /* which that is; NULL: none */
    uint64_t looked_folded;        /* epochs up to this one were folded when the look began */
    bool restores_hot;             /* rows follow on demand, only unfolded ones were restored */
    uint64_t limit;                /* bytes of indexes, entries and rows; 0: none */
    pthread_mutex_t lock;          /* guards failure: any worker may meet it */
    pthread_mutex_t scan_lock;     /* guards tables' scans */
    struct fr_err failure;
    struct fr_cut *cut; /* scratch of fr_store_cut */
};

static inline size_t fr_shard_of(uint64_t hash)
{
    return (size_t)(hash >> (64 - FR_SHARD_BITS));
}

static inline struct fr_store_counts fr_table_counts(const struct fr_table *table)
{
    struct fr_store_counts sum = {0};
    for (uint32_t s = 0; s < FR_SHARDS; s++)
        for (uint32_t i = 0; i < FR_STORE_COUNTS; i++)
            sum.of[i] += table->shards[s].counts.of[i];
    return sum;
}

struct fr_plan *fr_plan_new(struct fr_store *store);
void fr_plan_free(struct fr_plan *plan);
size_t fr_plan_bytes(const struct fr_plan *plan);
/* Stages the section "expiry" when a slice ran since the last cut. */
void fr_expiry_cut(struct fr_store *store, struct fr_stage *stage);

struct fr_cut *fr_cut_new(const struct fr_store *store);
void fr_cut_free(struct fr_cut *cut);
size_t fr_cut_bytes(const struct fr_cut *cut);

/* ---- one entry's life (entry.c); `shard` is the entry's ---- */

void fr_shard_init(struct fr_shard *shard, uint32_t number, size_t row_bytes, uint64_t pending_max);
void fr_shard_release(struct fr_shard *shard);
size_t fr_shard_bytes(const struct fr_shard *shard);
/* Gives memory back that removed entries leave at the ends of arrays and in the index. */
void fr_shard_trim(struct fr_shard *shard);

static inline uint32_t fr_shard_find(const struct fr_shard *shard, uint64_t hash)
{
    return fr_index_find(&shard->index, &shard->entries, hash);
}

static inline struct fr_entry *fr_shard_entry(const struct fr_shard *shard, uint32_t number)
{
    return fr_entries_at(&shard->entries, number);
}

/* Puts the entry into the open epoch, once, and counts the memory that takes: the image, and
 * FR_DIRTY_KEY_BYTES whatever the image is. */
void fr_entry_list_dirty(struct fr_shard *shard, struct fr_entry *entry, size_t image_size);
static inline void fr_entry_mark_dirty(struct fr_shard *shard, struct fr_entry *entry, size_t image_size)
{
    if (!(entry->flags & FR_ENTRY_DIRTY))
        fr_entry_list_dirty(shard, entry, image_size);
}
/* A live entry for a key that has none (FR_NO_ENTRY) or a light one, whose flags it keeps. Its
 * row's floats are undefined, its head is zero. Returns its number; light entries may have
 * moved. */
uint32_t fr_entry_make_live(struct fr_shard *shard, uint64_t hash, uint32_t number);
/* Likewise; a dead entry becomes pending in its place. */
uint32_t fr_entry_make_pending(struct fr_shard *shard, uint64_t hash, uint32_t number);
/* Takes row or pending count away. A key that an epoch knows stays as a dead entry; any other
 * vanishes. Entries move. reason: FR_ABSENT_SILENT keeps the reason an expiry of this epoch
 * gave. */
void fr_entry_remove(struct fr_shard *shard, uint32_t number, uint8_t reason);
/* The entry vanishes without a word, and is not counted any more: eviction, undo. Entries move. */
void fr_entry_drop(struct fr_shard *shard, uint32_t number);
/* A dead entry that an epoch now says absent of vanishes once that epoch is folded: until then an
 * older image of the key could be taken for its newest. Of those that may, `most` do. */
void fr_entry_bury(struct fr_shard *shard, uint64_t hash, uint64_t epoch);
void fr_shard_exhume(const struct fr_table *table, struct fr_shard *shard, uint64_t folded, size_t most);
/* Up to which epoch dead entries may vanish: folded ones, and while a look waits for its plan those
 * only that it read as folded, or what it read of a key could be taken for its newest image. */
uint64_t fr_store_forgettable(const struct fr_store *store);
/* First values: parts' initial distribution as a function of (seed, table, key, float index), and
 * their states. */
void fr_entry_init_rows(const struct fr_store *store, const struct fr_table *table, const uint64_t *keys,
                        float *const *rows, size_t n);

#endif
