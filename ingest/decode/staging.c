/* Staging columns: growth and entries. See staging.h for the layout and its reason. */
#include "staging.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MAX_IDS = 1024, DEFAULT_MAX_LEN = 50 };

void fr_staging_init(struct fr_staging *staging, const struct fr_conf *conf)
{
    memset(staging, 0, sizeof(*staging));
    staging->n_slots = conf->n_slots;
    staging->n_labels = conf->n_labels;
    staging->columns = fr_alloc(conf->n_slots ? conf->n_slots : 1, sizeof(*staging->columns));
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &conf->slots[s];
        struct fr_stage_column *column = &staging->columns[s];
        column->kind = slot->kind;
        column->dim = slot->dim;
        if (slot->kind == FR_SLOT_SEQUENCE)
            column->ids_max = slot->max_len ? slot->max_len : DEFAULT_MAX_LEN;
        else
            column->ids_max = slot->max_ids ? slot->max_ids : DEFAULT_MAX_IDS;
        FR_CHECK(slot->kind != FR_SLOT_DENSE || (slot->dim > 0 && slot->dim <= FR_DIM_MAX));
        fr_stage_grow_entries(column);
    }
}

void fr_staging_release(struct fr_staging *staging)
{
    for (uint32_t s = 0; s < staging->n_slots; s++) {
        struct fr_stage_column *column = &staging->columns[s];
        free(column->sample);
        free(column->begin);
        free(column->keys);
        free(column->weights);
        free(column->dense);
    }
    free(staging->columns);
    free(staging->t_ms);
    free(staging->use);
    free(staging->role);
    free(staging->labels);
    free(staging->weights);
    memset(staging, 0, sizeof(*staging));
}

void fr_staging_clear(struct fr_staging *staging)
{
    staging->n_samples = 0;
    staging->unknown_slots = staging->unknown_extra = staging->excess_ids = staging->unused_fields = 0;
    for (uint32_t s = 0; s < staging->n_slots; s++) {
        staging->columns[s].n_entries = 0;
        staging->columns[s].n_keys = 0;
        staging->columns[s].weighted = false;
    }
}

void fr_staging_add_sample(struct fr_staging *staging)
{
    if (staging->n_samples == staging->capacity_samples) {
        uint32_t capacity = fr_stage_capacity(staging->capacity_samples, staging->n_samples + 1);
        size_t n = (size_t)capacity * (staging->n_labels ? staging->n_labels : 1);
        staging->t_ms = fr_realloc(staging->t_ms, capacity, sizeof(*staging->t_ms));
        staging->use = fr_realloc(staging->use, capacity, sizeof(*staging->use));
        staging->role = fr_realloc(staging->role, capacity, sizeof(*staging->role));
        staging->labels = fr_realloc(staging->labels, n, sizeof(*staging->labels));
        staging->weights = fr_realloc(staging->weights, n, sizeof(*staging->weights));
        staging->capacity_samples = capacity;
    }
    staging->n_samples++;
}

void fr_stage_grow_entries(struct fr_stage_column *column)
{
    column->capacity_entries = fr_stage_capacity(column->capacity_entries, column->n_entries + 1);
    column->sample = fr_realloc(column->sample, column->capacity_entries, sizeof(*column->sample));
    if (column->kind != FR_SLOT_DENSE) {
        column->begin = fr_realloc(column->begin, (size_t)column->capacity_entries + 1, sizeof(*column->begin));
        column->begin[0] = 0;
    }
}

void fr_stage_grow_keys(struct fr_stage_column *column)
{
    column->capacity_keys = fr_stage_capacity(column->capacity_keys, column->n_keys + 1);
    column->keys = fr_realloc(column->keys, column->capacity_keys, sizeof(*column->keys));
}

static void reserve_weights(struct fr_stage_column *column)
{
    if (column->capacity_weights < column->n_keys) {
        column->capacity_weights = fr_stage_capacity(column->capacity_weights, column->n_keys);
        column->weights = fr_realloc(column->weights, column->capacity_weights, sizeof(*column->weights));
    }
}

uint32_t fr_stage_close(struct fr_stage_column *column, const float *weights)
{
    uint32_t first = column->begin[column->n_entries];
    uint32_t count = column->n_keys - first;
    uint32_t cut = count > column->ids_max ? count - column->ids_max : 0;
    uint32_t kept = count - cut;
    if (cut) {
        memmove(column->keys + first, column->keys + first + cut, kept * sizeof(*column->keys));
        column->n_keys = first + kept;
    }
    if (weights || column->weighted) {
        reserve_weights(column);
        uint32_t unit_from = column->weighted ? first : 0;
        uint32_t unit_to = weights ? first : first + kept;
        for (uint32_t k = unit_from; k < unit_to; k++)
            column->weights[k] = 1.0f;
        if (weights && kept)
            memcpy(column->weights + first, weights + cut, kept * sizeof(*weights));
        column->weighted = true;
    }
    column->begin[++column->n_entries] = column->n_keys;
    return cut;
}

float *fr_stage_dense(struct fr_stage_column *column)
{
    size_t need = ((size_t)column->n_entries + 1) * column->dim;
    FR_CHECK(need <= UINT32_MAX / 2); /* dim numbers per entry are at least dim bytes of the record */
    if (need > column->capacity_dense) {
        column->capacity_dense = fr_stage_capacity(column->capacity_dense, (uint32_t)need);
        column->dense = fr_realloc(column->dense, column->capacity_dense, sizeof(*column->dense));
    }
    return column->dense + (size_t)column->n_entries * column->dim;
}
