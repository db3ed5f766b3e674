/* Staging: one parsed record, column by column, before any of it takes effect.
 *
 * Only values that are present are stored: entry k of a column belongs to sample[k] (ascending). A record of 1 MiB may
 * hold 10^5 samples that name no slot at all; a full matrix of samples x slots would let it ask for gigabytes, this
 * stays a small multiple of its bytes. Defaults and empty entries appear only when samples are appended to a batch,
 * whose size the assembler bounds. Owner: the decoder. Limits: counts are below the record's size in bytes, which is
 * below 2^31 (decoder.c). */
#ifndef FR_DECODE_STAGING_H
#define FR_DECODE_STAGING_H

#include "base/check.h"
#include "decode/batch.h"

struct fr_stage_column {
    enum fr_slot_kind kind;
    uint32_t dim;        /* dense */
    uint32_t ids_max;    /* sparse: max_ids, sequence: max_len */
    float default_value; /* dense: transformed */
    bool weighted;       /* weights holds one number per key */
    uint32_t n_entries, n_keys;
    uint32_t capacity_entries, capacity_keys, capacity_weights, capacity_dense;
    uint32_t *sample; /* [n_entries] */
    uint32_t *begin;  /* [n_entries + 1] first key of the entry; sparse and sequence */
    uint64_t *keys;
    float *weights;
    float *dense;  /* [n_entries * dim] */
    uint64_t seen; /* serial number of the sample that named this slot last: finds duplicates */
};

struct fr_staging {
    uint32_t n_samples, capacity_samples;
    uint32_t n_slots, n_labels;
    int64_t *t_ms;
    uint8_t *use;
    uint8_t *role;
    float *labels;  /* [n_samples * n_labels], sample-major */
    float *weights; /* same */
    struct fr_stage_column *columns;
    uint64_t unknown_slots, unknown_extra, excess_ids, unused_fields;
};

/* Capacity that holds `need`, at least doubled so that growth is rare; 0 stays for "nothing yet". */
static inline uint32_t fr_stage_capacity(uint32_t capacity, uint32_t need)
{
    uint32_t grown = capacity < 8 ? 16 : capacity * 2;
    return need > grown ? need : grown;
}

void fr_staging_init(struct fr_staging *staging, const struct fr_conf *conf);
void fr_staging_release(struct fr_staging *staging);
void fr_staging_clear(struct fr_staging *staging);
/* One more sample, its fields not set yet. */
void fr_staging_add_sample(struct fr_staging *staging);

/* A new entry of the sample; begin[n_entries] is kept equal to n_keys by fr_stage_close. */
void fr_stage_grow_entries(struct fr_stage_column *column);
void fr_stage_grow_keys(struct fr_stage_column *column);
static inline void fr_stage_open(struct fr_stage_column *column, uint32_t sample)
{
    if (column->n_entries == column->capacity_entries)
        fr_stage_grow_entries(column);
    column->sample[column->n_entries] = sample;
}
static inline void fr_stage_key(struct fr_stage_column *column, uint64_t key)
{
    if (column->n_keys == column->capacity_keys)
        fr_stage_grow_keys(column);
    column->keys[column->n_keys++] = key;
}
/* Ends a sparse or sequence entry: keeps its last ids_max ids (weights: one per id, or NULL for all 1); returns how
 * many were cut. */
uint32_t fr_stage_close(struct fr_stage_column *column, const float *weights);
/* Where the dim floats of a new dense entry go; it counts once fr_stage_open and n_entries + 1 are done by the caller.
 */
float *fr_stage_dense(struct fr_stage_column *column);

/* Copies samples [from, from + count) of the staging behind those of the batch. */
void fr_staging_append(const struct fr_staging *staging, uint32_t from, uint32_t count, struct fr_batch *batch);

#endif
