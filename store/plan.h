/* Scratch of a plan: what looking (look.c, tier.c) and resolving (plan.c) share with its memory
 * (plan_memory.c). There are two, of the batch at hand and of the one after it: they take
 * turns. */
#ifndef FR_STORE_PLAN_H
#define FR_STORE_PLAN_H

#include "gate.h"
#include "tables.h"

/* What an occurrence may do, beside its entry number. */
#define OCC_COUNTS ((uint32_t)1 << 31)  /* some sample of the entry trains, slot admits */
#define OCC_TRAINS ((uint32_t)1 << 30)  /* some sample of the entry trains */
#define OCC_TOUCHES ((uint32_t)1 << 29) /* some sample of the entry trains, slot touches */
#define OCC_SHARED ((uint32_t)1 << 28)  /* the entry is a group */
#define OCC_FALLS ((uint32_t)1 << 27)   /* the coin of one that counts */
#define OCC_ENTRY (((uint32_t)1 << FR_ENTRY_BITS) - 1)

struct plan_record {
    uint64_t hash;
    uint32_t occurrence;
    uint32_t entry; /* OCC_* | entry number */
};
_Static_assert(sizeof(struct plan_record) == 16, "the largest scratch array");

struct plan_key {
    uint64_t hash;
    /* per trained sample: a group's ids times its samples may pass 32 bits */
    uint64_t n_counted, n_touched;
    double clicks;
    uint32_t n_occurrences;
    uint32_t number; /* of its entry, as last found */
    bool trained;
    bool fell;   /* some occurrence's coin */
    bool made;   /* the row, by this plan */
    bool asked;  /* of the cold store, ahead */
    bool absent; /* from the index, for certain */
};

/* Images that the cold store gave for keys of a shard. */
struct plan_fetched {
    size_t n, capacity;
    struct plan_image {
        uint64_t hash;
        size_t at; /* in bytes */
        uint8_t kind;
    } * images;
    struct fr_buffer bytes;
    /* hashes to ask for, ascending */
    uint64_t *missing;
    size_t capacity_missing;
};

/* Beside each key: what was known of it, written while its entry is in the cache anyway. */
struct plan_undo {
    /* as in the entry */
    uint32_t changed;
    uint8_t state; /* 0: there was none */
    uint8_t flags, reason, recent;
    union {
        struct fr_row_head head; /* live */
        struct {
            int64_t seen_ms; /* light */
            uint32_t count;
        };
    };
};
_Static_assert(sizeof(struct plan_undo) == 32, "half a cache line");

struct plan_unit {
    uint32_t slot, entry_begin, entry_end;
    uint32_t ordinal; /* of its slot among the table's */
    uint32_t next;    /* unit of the table; PLAN_NO_UNIT: it is the last */
    /* its records of a shard are at[shard] .. at[shard + 1] of the table's; before it is scattered
     * all are at[0] .. at[FR_SHARDS] */
    uint32_t at[FR_SHARDS + 1];
};
#define PLAN_NO_UNIT UINT32_MAX

struct shard_before { /* a shard's numbers, for undo */
    size_t n_dirty;
    uint64_t dirty_bytes;
    struct fr_store_counts counts;
};

struct plan_group { /* what the trained samples of a group add up to */
    uint32_t n_trained;
    double clicks;
};

struct plan_table {
    uint32_t n_occurrences;
    uint32_t n_slots;
    uint32_t first_unit, last_unit;
    size_t capacity;
    struct plan_record *records; /* [n_occurrences] by unit, in it by shard */
    uint32_t *record_keys;       /* [as records] their keys' numbers in the shard */
    struct plan_key *keys;       /* [n_occurrences] by shard */
    struct plan_undo *undo;      /* [as keys] */
    /* of a shard: its keys, and as occurrences are listed in struct fr_rows */
    uint32_t begin[FR_SHARDS + 1];
    uint32_t n_unique[FR_SHARDS];
    uint32_t unique_begin[FR_SHARDS];
    struct shard_before before[FR_SHARDS]; /* of shards with keys */
    struct fr_sketch_log sketched[FR_SHARDS];
    struct plan_fetched fetched[FR_SHARDS];
};

struct plan_worker {
    uint32_t *heads;  /* find-or-add table of gather: number of the key; none: UINT32_MAX */
    uint64_t *hashes; /* of a unit's occurrences */
};

struct fr_plan {
    struct fr_store *store;
    struct plan_table *tables;
    size_t n_units, capacity_units;
    struct plan_unit *units;
    size_t n_workers, capacity_heads, capacity_hashes;
    struct plan_worker *workers;
    size_t capacity_groups;
    struct plan_group *groups; /* filled when some column is shared */
    size_t capacity_samples;
    double *clicks;      /* of the batch's samples: label 0 where it is above 0 */
    uint32_t *slot_base; /* [n_slots] as in fr_rows */
    bool ahead;          /* it was looked at before its turn */
    bool alone;          /* by one thread, without the pool */
    /* The call in progress. */
    const struct fr_batch *batch;
    struct fr_rows *rows;
    int64_t watermark_ms;
};

/* look.c: which keys the batch has; ahead of its turn with their cold images. */
void fr_plan_look(struct fr_plan *plan, const struct fr_batch *batch, bool ahead, bool alone);

/* Room for table t's n_occurrences; in plan->rows, for those of all tables. */
void fr_plan_reserve_table(struct fr_plan *plan, uint32_t t);
void fr_plan_reserve_rows(struct fr_plan *plan);
/* Room for keys of at most records_max records in each worker's find-or-add table; for the hashes
 * of a unit. */
void fr_plan_reserve_heads(struct fr_plan *plan, size_t records_max);
void fr_plan_reserve_hashes(struct fr_plan *plan, size_t unit_max);
void fr_plan_reserve_groups(struct fr_plan *plan, uint32_t n_groups);
void fr_plan_reserve_samples(struct fr_plan *plan, uint32_t n_samples);
void fr_plan_add_unit(struct fr_plan *plan, struct plan_unit unit);

#endif
