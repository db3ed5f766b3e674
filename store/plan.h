/* Scratch memory of a plan: shared by looking (look.c, tier.c), resolving (plan.c) and its memory
 * management (plan_memory.c). There are two such structs, for the current batch and for the next
 * one; they are used alternately. */
#ifndef FR_STORE_PLAN_H
#define FR_STORE_PLAN_H

#include "gate.h"
#include "tables.h"

/* What an occurrence may do; stored in one word with its entry number. */
#define OCC_COUNTS ((uint32_t)1 << 31)  /* some sample of the entry trains, and the slot admits */
#define OCC_TRAINS ((uint32_t)1 << 30)  /* some sample of the entry trains */
#define OCC_TOUCHES ((uint32_t)1 << 29) /* some sample of the entry trains, and the slot touches */
#define OCC_SHARED ((uint32_t)1 << 28)  /* the entry is a group */
#define OCC_FALLS ((uint32_t)1 << 27)   /* the coin of an occurrence that counts admits the key */
#define OCC_ENTRY (((uint32_t)1 << FR_ENTRY_BITS) - 1)

struct plan_record {
    uint64_t hash;
    uint32_t occurrence;
    uint32_t entry; /* OCC_* flags | entry number */
};
_Static_assert(sizeof(struct plan_record) == 16, "the largest scratch array");

struct plan_key {
    uint64_t hash;
    /* counted per trained sample: the ids of a group times its samples may exceed 32 bits */
    uint64_t n_counted, n_touched;
    double clicks;
    uint32_t n_occurrences;
    uint32_t number; /* number of the key's entry, as last found */
    bool trained;
    bool fell;   /* the coin of some occurrence admits the key */
    bool made;   /* this plan created the row */
    bool asked;  /* the cold store was asked for the key ahead of the plan */
    bool absent; /* it is certain that the index has no entry of the key */
    bool late;   /* of several ranks: the step of the batch before may change the row */
};

/* Images that the cold store returned for keys of a shard. */
struct plan_fetched {
    size_t n, capacity;
    struct plan_image {
        uint64_t hash;
        size_t at; /* offset of the image in `bytes` */
        uint8_t kind;
    } * images;
    struct fr_buffer bytes;
    /* hashes to read, ascending */
    uint64_t *missing;
    size_t capacity_missing;
};

/* Kept for each key: its entry from before the plan, copied while the entry is in the cache
 * anyway. */
struct plan_undo {
    /* as in struct fr_entry */
    uint32_t changed;
    uint8_t state; /* 0: there was no entry */
    uint8_t flags, reason;
    uint8_t recent : 3, planned : FR_PLANNED_BITS;
    union {
        struct fr_row_head head; /* of a live entry */
        struct {
            int64_t seen_ms; /* of a light entry */
            uint32_t count;
        };
    };
};
_Static_assert(sizeof(struct plan_undo) == 32, "half a cache line");

/* Entries of one slot in one lane. */
struct plan_part {
    uint32_t slot, entry_begin, entry_end;
    uint32_t ordinal;    /* number of the slot among the table's slots */
    uint32_t begin, end; /* occurrences */
};

/* Parts of a table that one worker scatters together: those of one lane that follow each other. */
struct plan_unit {
    uint32_t table, lane;
    uint32_t first_part, end_part;
    uint32_t begin, end; /* the unit's records among the table's */
};

struct shard_before { /* a shard's numbers from before the plan, for undo */
    size_t n_dirty;
    uint64_t dirty_bytes;
    struct fr_store_counts counts;
};

struct plan_group { /* sums over the trained samples of a group */
    uint32_t n_trained;
    double clicks;
};

/* A shard of one of the table's sub-tables. Places ascend by domain, then shard. */
struct plan_place {
    uint32_t begin; /* of its keys, and of its occurrences in struct fr_rows */
    uint32_t n_unique, unique_begin;
    struct shard_before before; /* valid if the place has keys */
    uint32_t moved;             /* of several ranks: fr_entries_moved when the rows were listed */
    struct fr_sketch_log sketched;
    struct plan_fetched fetched;
};

/* The scratch of one table of the configuration. */
struct plan_table {
    uint32_t n_occurrences;
    uint32_t n_slots;
    uint32_t first_unit, end_unit;
    size_t capacity;
    struct plan_record *records; /* [n_occurrences], by unit, and by place within a unit */
    uint32_t *record_keys;       /* [as records], number of each record's key within the place */
    struct plan_key *keys;       /* [n_occurrences], by place */
    struct plan_undo *undo;      /* [as keys] */
    struct plan_place *places;   /* [n_places + 1]; of the last one only `begin` is valid */
};

struct plan_worker {
    uint32_t *heads;  /* find-or-add table of the gather pass: number of a key; UINT32_MAX: empty */
    uint64_t *hashes; /* hashes of a unit's occurrences */
    uint16_t *places; /* the place of each */
};

struct fr_plan {
    struct fr_store *store;
    uint32_t n_places;         /* of each table: n_domains * FR_SHARDS */
    struct plan_table *tables; /* [n_configured] */
    uint32_t n_parts, n_units;
    size_t capacity_parts, capacity_units;
    struct plan_part *parts; /* of the units, unit by unit */
    struct plan_unit *units; /* table by table, lane by lane */
    /* [n_units * (n_places + 1)]: the records of place p of unit u are at[p] .. at[p + 1] of the
     * unit's part (fr_plan_at) */
    uint32_t *at;
    size_t capacity_at;
    size_t n_workers, capacity_heads, capacity_hashes;
    struct plan_worker *workers;
    size_t capacity_groups;
    struct plan_group *groups; /* filled if some column is shared */
    size_t capacity_samples;
    double *clicks;            /* [samples]: the first label where it is positive, otherwise 0 */
    uint32_t *slot_base;       /* [n_slots], as in fr_rows */
    uint32_t *slot_ordinal;    /* [n_slots] number of the slot among its table's slots */
    bool ahead;                /* the batch was looked at before it was planned */
    bool alone;                /* one thread works alone, without the pool */
    bool follows;              /* of several ranks: the batch before is not stepped yet */
    struct fr_home_list *home; /* of several ranks: the keys as a list (ranks.c); NULL: none yet */
    /* The call in progress. */
    const struct fr_batch *batch;
    struct fr_rows *rows;
    int64_t watermark_ms;
};

/* look.c: finds the batch's keys and, if `ahead`, reads their cold images. */
void fr_plan_look(struct fr_plan *plan, const struct fr_batch *batch, bool ahead, bool alone);

/* plan.c: fills the keys and lists of `rows`, without rows, after a look. */
void fr_plan_list(struct fr_plan *plan, struct fr_rows *rows);
/* plan.c: resolves the keys of all places, and gives the rows that are made their first values. */
void fr_plan_resolve(struct fr_plan *plan);
/* plan.c: makes the scratch of the last plan that for the batch after the next one, and the other
 * way round. */
void fr_store_swap_plans(struct fr_store *store);
/* ranks.c */
void fr_plan_free_home(struct fr_home_list *home);
/* Make room for the n_occurrences of table t; in plan->rows, for those of all tables. */
void fr_plan_reserve_table(struct fr_plan *plan, uint32_t t);
void fr_plan_reserve_rows(struct fr_plan *plan);
/* Make room for the keys of at most records_max records in each worker's find-or-add table; for the
 * hashes and places of a unit. */
void fr_plan_reserve_heads(struct fr_plan *plan, size_t records_max);
void fr_plan_reserve_hashes(struct fr_plan *plan, size_t unit_max);
void fr_plan_reserve_groups(struct fr_plan *plan, uint32_t n_groups);
void fr_plan_reserve_samples(struct fr_plan *plan, uint32_t n_samples);
void fr_plan_add_part(struct fr_plan *plan, struct plan_part part);
void fr_plan_add_unit(struct fr_plan *plan, struct plan_unit unit);
/* Makes room for where the records of all units lie. */
void fr_plan_reserve_at(struct fr_plan *plan);

static inline uint32_t *fr_plan_at(const struct fr_plan *plan, size_t unit)
{
    return plan->at + unit * (plan->n_places + 1);
}

static inline struct fr_table *fr_plan_subtable(const struct fr_plan *plan, uint32_t t, uint32_t place)
{
    return fr_store_subtable(plan->store, t, place / FR_SHARDS);
}

static inline struct fr_shard *fr_plan_shard(const struct fr_plan *plan, uint32_t t, uint32_t place)
{
    return &fr_plan_subtable(plan, t, place)->shards[place % FR_SHARDS];
}

#endif
