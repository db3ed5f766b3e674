/* Staging: one parsed record, column by column, before any of it takes effect.
 *
 * Only values that are present are stored: entry k of a part belongs to sample (own) or group
 * (shared) at[k], ascending. A record of 1 MiB may hold 10^5 samples that name no slot at all. A
 * full matrix of samples x slots would need gigabytes for it; with this layout the memory stays
 * a small multiple of the record's bytes. Defaults, empty entries and copies of shared values
 * appear only when samples are appended to a batch, whose size the assembler bounds. Every
 * sample belongs to a group; a plain sample is a group of one.
 *
 * Owner: the decoder. Limits: counts are below the record's size in bytes, which is below 2^31
 * (decoder.c). */
#ifndef FR_DECODE_STAGING_H
#define FR_DECODE_STAGING_H

#include "base/check.h"
#include "batch/batch.h"
#include "decode/decoder.h"

struct fr_stage_part {
    bool weighted; /* weights holds one number per key */
    uint32_t n_entries, n_keys;
    uint32_t capacity_entries, capacity_keys, capacity_weights, capacity_dense;
    uint32_t *at;    /* [n_entries] */
    uint32_t *begin; /* [n_entries + 1] first key of the entry; sparse and sequence */
    uint64_t *keys;
    float *weights;
    float *dense; /* [n_entries * dim] */
    /* [n_entries] the number before its transform; NULL unless buckets are computed from it */
    float *raw;
};

struct fr_stage_column {
    enum fr_slot_kind kind;
    uint32_t dim;     /* dense: numbers of an entry, as the batch has them */
    uint32_t ids_max; /* sparse: max_ids, sequence: max_len */
    /* dense: what the batch gets for an absent number at an even and at an odd place; NaN:
     * missing */
    float missing[2];
    bool plain;    /* dense: no steps change its numbers */
    bool required; /* dense: must be neither nil nor absent */
    bool mean;     /* ids: some layer takes the mean of their rows */
    float bound;   /* dense: limit of |number| after the transform's steps */
    /* Serial numbers that find duplicates. `seen`: the map that last named this slot. `own_in`
     * and `shared_in`: the group or block whose items (or `cols`), or whose shared part, last
     * named the slot. */
    uint64_t seen, own_in, shared_in;
    uint32_t rows;     /* block: length of the column in `shared` */
    uint64_t expanded; /* ids of the shared part, if it were copied to each sample */
    struct fr_stage_part own, shared;
};

/* What the present record adds to the counts of unknown names (decode/decoder.h). */
struct fr_unknown_counts {
    uint64_t slots[FR_UNKNOWN_PLACES], keys[FR_UNKNOWN_PLACES];
};

struct fr_staging {
    uint32_t n_samples, n_groups, capacity_samples, capacity_served;
    uint32_t n_slots, n_labels, n_tasks;
    uint32_t *group_begin; /* [n_groups + 1] */
    int64_t *t_ms;         /* 0: not given */
    uint8_t *use;
    uint8_t *role;
    float *keep;
    float *labels;  /* [n_samples * n_labels], sample-major; NaN: masked */
    float *weights; /* weights of the labels, in the same layout */
    /* [n_samples * n_tasks], sample-major, NaN absent; meaningful while has_served */
    float *served;
    bool has_served;
    struct fr_stage_column *columns;
    bool any_unknown;
    struct fr_unknown_counts unknown;
    uint64_t unknown_slots, unknown_keys, excess_ids; /* of the whole record */
};

/* Returns a capacity that holds `need`. It is at least doubled, so that growth is rare; 0 stays
 * 0 if nothing is needed. */
static inline uint32_t fr_staging_capacity(uint32_t capacity, uint32_t need)
{
    uint32_t grown = capacity < 8 ? 16 : capacity * 2;
    return need > grown ? need : grown;
}

void fr_staging_init(struct fr_staging *staging, const struct fr_conf *conf);
void fr_staging_release(struct fr_staging *staging);
void fr_staging_clear(struct fr_staging *staging);
/* Adds `count` samples with all values at their defaults. */
void fr_staging_add(struct fr_staging *staging, uint32_t count);
/* Removes the last sample, if its map turned out to have another form. The sample must have no
 * values. */
void fr_staging_drop(struct fr_staging *staging);
/* Makes room for served scores, which are NaN at first. */
void fr_staging_serve(struct fr_staging *staging);
/* Makes the samples since the last group a group. */
static inline void fr_staging_close_group(struct fr_staging *staging)
{
    staging->group_begin[++staging->n_groups] = staging->n_samples;
}

/* Make room for `more` further entries or keys, for weights of all keys, and for `need` dense
 * numbers in total. */
void fr_staging_reserve_entries(struct fr_stage_part *part, uint32_t more, bool dense);
void fr_staging_reserve_keys(struct fr_stage_part *part, uint32_t more);
void fr_staging_reserve_weights(struct fr_stage_part *part);
void fr_staging_reserve_dense(struct fr_stage_part *part, size_t need);

/* Opens an entry of sample or group `at`; fr_staging_close keeps begin[n_entries] equal to
 * n_keys. */
static inline void fr_staging_open(struct fr_stage_part *part, uint32_t at, bool dense)
{
    if (part->n_entries == part->capacity_entries)
        fr_staging_reserve_entries(part, 1, dense);
    part->at[part->n_entries] = at;
}
static inline void fr_staging_key(struct fr_stage_part *part, uint64_t key)
{
    if (part->n_keys == part->capacity_keys)
        fr_staging_reserve_keys(part, 1);
    part->keys[part->n_keys++] = key;
}
/* Ends a sparse or sequence entry: keeps its last ids_max ids (weights: one per id, or NULL for all
 * 1); returns how many were cut. */
uint32_t fr_staging_close(struct fr_stage_part *part, uint32_t ids_max, const float *weights);
/* Returns room for the dim floats of a new dense entry. The caller then calls fr_staging_open and
 * counts the entry in n_entries. */
static inline float *fr_staging_dense(struct fr_stage_part *part, uint32_t dim)
{
    size_t at = (size_t)part->n_entries * dim;
    if (at + dim > part->capacity_dense)
        fr_staging_reserve_dense(part, at + dim);
    return part->dense + at;
}
/* Returns the first entry whose sample or group is >= `at`. */
uint32_t fr_staging_first(const struct fr_stage_part *part, uint32_t at);

/* Counts the ids of samples [from, from + count), which are whole groups; ids of a group's shared
 * part count for each of its samples. */
uint64_t fr_staging_ids(const struct fr_staging *staging, uint32_t from, uint32_t count);

/* Counts the samples among [from, from + count), which are whole groups, that have a value in the
 * column. */
uint32_t fr_staging_present(const struct fr_staging *staging, const struct fr_stage_column *column, uint32_t from,
                            uint32_t count);

/* Appends samples [from, from + count) of the staging to the batch. */
void fr_staging_append(const struct fr_staging *staging, uint32_t from, uint32_t count, struct fr_batch *batch);

#endif
