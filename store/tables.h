/* The store's own structures: store -> sub-tables -> shards. Private to this module.
 *
 * A table of the configuration has a sub-table for each domain of the state (scale.domains): the
 * table's keys in one range, with an equal share of the table's limits. What follows from the
 * number or the order of a table's keys follows from one sub-table's, so domains can be apart.
 *
 * A shard is what one worker handles at a time: an index, entries and rows, the dirty keys of the
 * open epoch, and counters. The state's keyed order, a function of the key alone, gives a key's
 * shard and its position in the shard's index. */
#ifndef FR_STORE_TABLES_H
#define FR_STORE_TABLES_H

#include <pthread.h>

#include "base/order.h"
#include "durable/epoch.h"
#include "index.h"
#include "policy/sketch.h"
#include "policy/sweep.h"
#include "store/ranks.h"
#include "store/store.h"

_Static_assert(FR_SHARDS == 1 << FR_SHARD_BITS, "the shard is the top bits of the hash");

/* A dead entry whose absence is in an epoch that is not folded yet. */
struct fr_buried {
    uint64_t hash;
    uint64_t epoch;
};

/* Bytes that a changed key takes until its epoch is durable, in addition to its image: the head of
 * the image, the hash in a list that doubles, and the cut's sort buffer, which has half as much to
 * spare (cut.c). */
enum { FR_DIRTY_KEY_BYTES = FR_IMAGE_HEAD + 2 * 8 + 3 * 8 / 2 };

struct fr_shard {
    /* begins a cache line, because neighbouring shards belong to other workers */
    _Alignas(64) struct fr_index index;
    struct fr_entries entries;
    /* Hashes. The list may contain keys that are gone again, and keys that came back twice; the
     * dirty flag of the entry decides. */
    uint64_t *dirty;
    size_t n_dirty, capacity_dirty;
    uint64_t dirty_bytes; /* upper bound of what the dirty keys take in the epoch */
    uint64_t pending_max; /* this shard's share of the table's limit */
    /* in the order of their epochs; entries of the list that come first may be gone already
     * (entry.c) */
    struct fr_buried *buried;
    size_t buried_begin, buried_end, capacity_buried;
    uint64_t evicted;          /* keys whose newest image is in the cold store only */
    uint64_t evictions;        /* evictions since the process started */
    uint32_t hand, light_hand; /* where eviction continues (tier.c) */
    struct fr_store_counts counts;
};

/* A sub-table. */
struct fr_table {
    struct fr_store_table spec; /* of the table, with this sub-table's share of the limits */
    uint32_t number;            /* in images: fr_subtable of table and domain */
    uint64_t random_stream;     /* XXH3 of the table's name */
    size_t row_bytes;           /* bytes of a row's floats */
    size_t image_size;          /* bytes of a row image */
    uint32_t slice_bits;        /* k: an expiry slice is 1/2^k of the keys */
    struct fr_shard *shards;    /* [FR_SHARDS] */
    struct fr_scan *scan;       /* NULL until a slice has run (scan.h) */
    struct fr_sketch *sketches; /* [FR_SHARDS] if the gate uses sketches; otherwise NULL (gate.h) */
    struct fr_sweep *sweep;     /* state of the sweep (policy/sweep.h) */
};

struct fr_store_slot {
    int32_t table; /* FR_NO_INDEX: the slot is dense */
    bool admit, touch;
};

struct fr_plan;
struct fr_cut;

_Static_assert((int)FR_TABLES_MAX <= 1 << FR_SUBTABLE_BITS, "a table is in the low bits of a sub-table's number");
_Static_assert(FR_DOMAINS_MAX <= FR_BLOCK_TABLES >> FR_SUBTABLE_BITS, "no sub-table has the number of a block");

struct fr_store {
    uint64_t seed;
    struct fr_order order;
    struct fr_durable *durable; /* owner of the cold store; NULL: there is none */
    struct fr_pool *pool;
    uint32_t n_domains;    /* at least 1 */
    uint32_t n_configured; /* tables of the configuration */
    uint32_t n_tables;     /* sub-tables: n_domains * n_configured */
    uint32_t n_slots;
    /* [n_tables] by domain, then table: in the order of their numbers in images */
    struct fr_table *tables;
    struct fr_store_slot *slots;
    /* [n_tables] scratch of expiry: the slices that are due */
    struct fr_due_slice {
        struct fr_table *table;
        uint64_t slice;
    } * due;
    /* of a job of several ranks (store/ranks.h): the keys of this rank's samples; the messages of
     * keys that were merged into `plan`, as they were read; and their domains */
    struct fr_plan *gathered;
    struct sent *sent;
    struct fr_domains resolved;
    struct fr_plan *plan; /* scratch of the last plan, from which fr_store_undo restores */
    /* how many of the last plans (at most 2) can be undone, because nothing else has changed the
     * store since */
    uint32_t undoable;
    uint64_t plans; /* number of plans that were made and not undone */
    /* what slices removed after the last plan (removed.h); NULL: nothing yet */
    struct fr_removed *removed;
    /* scratch of the next batch's look, or of the plan before the last if that can be undone */
    struct fr_plan *ahead;
    const struct fr_batch *looked; /* the batch of that look; NULL: none */
    uint64_t looked_folded;        /* the folded epoch when the look began */
    /* only unfolded rows were restored; the others are read when a batch needs them */
    bool restores_hot;
    struct fr_buffer *restoring; /* [n_domains] sections "store", kept during recovery */
    uint64_t limit;              /* bytes that indexes, entries and rows may take; 0: no limit */
    pthread_mutex_t lock;        /* guards `failure`, which any worker may set */
    pthread_mutex_t scan_lock;   /* guards the scans of all tables */
    struct fr_err failure;
    struct fr_cut *cut; /* scratch of fr_store_cut */
};

static inline size_t fr_shard_of(uint64_t hash)
{
    return (size_t)(hash >> (64 - FR_SHARD_BITS));
}

/* The sub-table of a table of the configuration in a domain. */
static inline struct fr_table *fr_store_subtable(const struct fr_store *store, uint32_t table, uint32_t domain)
{
    return &store->tables[(size_t)domain * store->n_configured + table];
}

static inline struct fr_table *fr_store_subtable_of(const struct fr_store *store, uint32_t table, uint64_t key)
{
    return fr_store_subtable(store, table, fr_key_domain(key, store->n_domains));
}

/* The sub-table with a number of an image; NULL: the store has no such sub-table. */
static inline struct fr_table *fr_store_numbered(const struct fr_store *store, uint32_t number)
{
    uint32_t table = fr_subtable_table(number), domain = number >> FR_SUBTABLE_BITS;
    return table < store->n_configured && domain < store->n_domains ? fr_store_subtable(store, table, domain) : NULL;
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
/* Stages the sections "expiry" of the domains in which a slice has run since the last cut. */
void fr_expiry_cut(struct fr_store *store, struct fr_stage *stage);
/* FR_E_CORRUPT, FR_E_MISMATCH as for fr_store_restore_end. */
enum fr_status fr_expiry_restore(struct fr_store *store, uint32_t domain, const uint8_t *bytes,
                                 size_t size) FR_MUST_CHECK;

struct fr_cut *fr_cut_new(const struct fr_store *store);
void fr_cut_free(struct fr_cut *cut);
size_t fr_cut_bytes(const struct fr_cut *cut);

/* ---- one entry's life (entry.c); `shard` is the entry's shard ---- */

void fr_shard_init(struct fr_shard *shard, uint32_t number, size_t row_bytes, uint64_t pending_max);
void fr_shard_release(struct fr_shard *shard);
size_t fr_shard_bytes(const struct fr_shard *shard);
/* Gives back the memory that removed entries leave at the ends of arrays and in the index. */
void fr_shard_trim(struct fr_shard *shard);

static inline uint32_t fr_shard_find(const struct fr_shard *shard, uint64_t hash)
{
    return fr_index_find(&shard->index, &shard->entries, hash);
}

static inline struct fr_entry *fr_shard_entry(const struct fr_shard *shard, uint32_t number)
{
    return fr_entries_at(&shard->entries, number);
}

/* Adds the entry to the dirty keys of the open epoch, once, and adds to dirty_bytes what it takes:
 * image_size and FR_DIRTY_KEY_BYTES. */
void fr_entry_list_dirty(struct fr_shard *shard, struct fr_entry *entry, size_t image_size);
static inline void fr_entry_mark_dirty(struct fr_shard *shard, struct fr_entry *entry, size_t image_size)
{
    if (!(entry->flags & FR_ENTRY_DIRTY))
        fr_entry_list_dirty(shard, entry, image_size);
}
/* Makes a live entry for a key without an entry (number FR_NO_ENTRY) or with a light one, whose
 * flags it keeps. The row's floats are undefined, its head is zero. Returns the entry's number;
 * light entries may have moved. */
uint32_t fr_entry_make_live(struct fr_shard *shard, uint64_t hash, uint32_t number);
/* Makes a pending entry for a key without an entry; a dead entry becomes pending in its place.
 * Returns the number. */
uint32_t fr_entry_make_pending(struct fr_shard *shard, uint64_t hash, uint32_t number);
/* Removes the row or the pending count. If an epoch holds an image of the key, the entry stays as
 * dead; otherwise it vanishes. Entries move. FR_ABSENT_SILENT keeps the reason that an expiry gave
 * in this epoch. */
void fr_entry_remove(struct fr_shard *shard, uint32_t number, uint8_t reason);
/* Removes the entry and its count without a trace in the epoch, for eviction and undo. Entries
 * move. */
void fr_entry_drop(struct fr_shard *shard, uint32_t number);
/* fr_entry_bury: epoch `epoch` now holds the absence of this dead entry, which must stay until the
 * epoch is folded; until then an older image of the key could be taken for its newest.
 * fr_shard_exhume drops at most `most` of the buried entries whose epoch is folded. */
void fr_entry_bury(struct fr_shard *shard, uint64_t hash, uint64_t epoch);
void fr_shard_exhume(const struct fr_table *table, struct fr_shard *shard, uint64_t folded, size_t most);
/* The epoch up to which dead entries may be dropped: the folded epoch. While a look waits for its
 * plan, the epoch that was folded when the look began, because otherwise an older image that the
 * look read could be taken for the key's newest. */
uint64_t fr_store_forgettable(const struct fr_store *store);
/* Writes first values: the parts' initial distribution as a function of (seed, table, key, float
 * index), and the optimizer state. */
void fr_entry_init_rows(const struct fr_store *store, const struct fr_table *table, const uint64_t *keys,
                        float *const *rows, size_t n);

#endif
