/* Growth and entries of staging columns. See staging.h for the layout and the reason for it. */
#include "staging.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MAX_IDS = 1024, DEFAULT_MAX_LEN = 50 };

static void keep_raw(struct fr_stage_column *column)
{
    struct fr_stage_part *parts[] = {&column->own, &column->shared};
    for (size_t i = 0; i < FR_ARRAY_LEN(parts); i++)
        parts[i]->raw = fr_realloc(parts[i]->raw, parts[i]->capacity_entries, sizeof(*parts[i]->raw));
}

void fr_staging_init(struct fr_staging *staging, const struct fr_conf *conf)
{
    memset(staging, 0, sizeof(*staging));
    staging->n_slots = conf->n_slots;
    staging->n_labels = conf->n_labels;
    staging->n_tasks = conf->n_tasks;
    staging->group_begin = fr_alloc(1, sizeof(*staging->group_begin));
    staging->columns = fr_alloc(conf->n_slots ? conf->n_slots : 1, sizeof(*staging->columns));
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &conf->slots[s];
        struct fr_stage_column *column = &staging->columns[s];
        column->kind = slot->kind;
        column->dim = fr_slot_has_numbers(slot->kind) ? fr_conf_slot_numbers(slot) : 0;
        if (fr_slot_has_steps(slot->kind))
            column->ids_max = slot->max_len ? slot->max_len : DEFAULT_MAX_LEN;
        else
            column->ids_max = slot->max_ids ? slot->max_ids : DEFAULT_MAX_IDS;
        FR_CHECK(fr_slot_has_rows(slot->kind) || (slot->dim > 0 && slot->dim <= FR_DIM_MAX));
        fr_staging_reserve_entries(&column->own, 1, fr_slot_has_numbers(slot->kind));
        fr_staging_reserve_entries(&column->shared, 1, fr_slot_has_numbers(slot->kind));
    }
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        if (conf->slots[s].source == FR_SOURCE_BUCKETS && conf->slots[conf->slots[s].sources[0]].n_steps > 0)
            keep_raw(&staging->columns[conf->slots[s].sources[0]]);
    }
}

static void release_part(struct fr_stage_part *part)
{
    free(part->at);
    free(part->begin);
    free(part->keys);
    free(part->weights);
    free(part->dense);
    free(part->raw);
}

void fr_staging_release(struct fr_staging *staging)
{
    for (uint32_t s = 0; s < staging->n_slots; s++) {
        release_part(&staging->columns[s].own);
        release_part(&staging->columns[s].shared);
    }
    free(staging->columns);
    free(staging->group_begin);
    free(staging->t_ms);
    free(staging->use);
    free(staging->role);
    free(staging->keep);
    free(staging->labels);
    free(staging->weights);
    free(staging->served);
    memset(staging, 0, sizeof(*staging));
}

static void clear_part(struct fr_stage_part *part)
{
    part->n_entries = part->n_keys = 0;
    part->weighted = false;
}

void fr_staging_clear(struct fr_staging *staging)
{
    staging->n_samples = staging->n_groups = 0;
    staging->has_served = false;
    staging->unknown_slots = staging->unknown_keys = staging->excess_ids = 0;
    if (staging->any_unknown)
        memset(&staging->unknown, 0, sizeof(staging->unknown));
    staging->any_unknown = false;
    for (uint32_t s = 0; s < staging->n_slots; s++) {
        clear_part(&staging->columns[s].own);
        clear_part(&staging->columns[s].shared);
        staging->columns[s].expanded = 0;
    }
}

static void reserve_samples(struct fr_staging *staging, uint32_t samples)
{
    if (samples <= staging->capacity_samples)
        return;
    uint32_t capacity = fr_staging_capacity(staging->capacity_samples, samples);
    size_t n = (size_t)capacity * staging->n_labels;
    staging->group_begin = fr_realloc(staging->group_begin, (size_t)capacity + 1, sizeof(*staging->group_begin));
    staging->t_ms = fr_realloc(staging->t_ms, capacity, sizeof(*staging->t_ms));
    staging->use = fr_realloc(staging->use, capacity, sizeof(*staging->use));
    staging->role = fr_realloc(staging->role, capacity, sizeof(*staging->role));
    staging->keep = fr_realloc(staging->keep, capacity, sizeof(*staging->keep));
    staging->labels = fr_realloc(staging->labels, n ? n : 1, sizeof(*staging->labels));
    staging->weights = fr_realloc(staging->weights, n ? n : 1, sizeof(*staging->weights));
    staging->capacity_samples = capacity;
}

/* Makes the served scores of samples [from, to) absent. */
static void serve_none(struct fr_staging *staging, uint32_t from, uint32_t to)
{
    if (to > staging->capacity_served) {
        staging->capacity_served = staging->capacity_samples;
        staging->served =
            fr_realloc(staging->served, (size_t)staging->capacity_served * staging->n_tasks, sizeof(*staging->served));
    }
    for (size_t i = (size_t)from * staging->n_tasks; i < (size_t)to * staging->n_tasks; i++)
        staging->served[i] = __builtin_nanf("");
}

void fr_staging_serve(struct fr_staging *staging)
{
    if (!staging->has_served)
        serve_none(staging, 0, staging->n_samples);
    staging->has_served = true;
}

void fr_staging_add(struct fr_staging *staging, uint32_t count)
{
    uint32_t from = staging->n_samples, to = from + count;
    reserve_samples(staging, to);
    for (uint32_t i = from; i < to; i++) {
        staging->t_ms[i] = 0;
        staging->use[i] = FR_USE_TRAIN | FR_USE_METRICS;
        staging->keep[i] = 1.0f;
    }
    for (size_t i = (size_t)from * staging->n_labels; i < (size_t)to * staging->n_labels; i++) {
        staging->labels[i] = __builtin_nanf("");
        staging->weights[i] = 1.0f;
    }
    if (staging->has_served)
        serve_none(staging, from, to);
    staging->n_samples = to;
}

void fr_staging_drop(struct fr_staging *staging)
{
    FR_CHECK(staging->n_samples > 0);
    staging->n_samples--;
}

void fr_staging_reserve_entries(struct fr_stage_part *part, uint32_t more, bool dense)
{
    if (part->n_entries + more <= part->capacity_entries)
        return;
    part->capacity_entries = fr_staging_capacity(part->capacity_entries, part->n_entries + more);
    part->at = fr_realloc(part->at, part->capacity_entries, sizeof(*part->at));
    if (part->raw)
        part->raw = fr_realloc(part->raw, part->capacity_entries, sizeof(*part->raw));
    if (!dense) {
        part->begin = fr_realloc(part->begin, (size_t)part->capacity_entries + 1, sizeof(*part->begin));
        part->begin[0] = 0;
    }
}

void fr_staging_reserve_keys(struct fr_stage_part *part, uint32_t more)
{
    if (part->n_keys + more <= part->capacity_keys)
        return;
    part->capacity_keys = fr_staging_capacity(part->capacity_keys, part->n_keys + more);
    part->keys = fr_realloc(part->keys, part->capacity_keys, sizeof(*part->keys));
}

void fr_staging_reserve_weights(struct fr_stage_part *part)
{
    if (part->capacity_weights < part->n_keys) {
        part->capacity_weights = fr_staging_capacity(part->capacity_weights, part->n_keys);
        part->weights = fr_realloc(part->weights, part->capacity_weights, sizeof(*part->weights));
    }
}

void fr_staging_reserve_dense(struct fr_stage_part *part, size_t need)
{
    /* `need` is below 2^31, because a number is at least one byte of the record */
    FR_CHECK(need <= UINT32_MAX / 2);
    part->capacity_dense = fr_staging_capacity(part->capacity_dense, (uint32_t)need);
    part->dense = fr_realloc(part->dense, part->capacity_dense, sizeof(*part->dense));
}

uint32_t fr_staging_close(struct fr_stage_part *part, uint32_t ids_max, const float *weights)
{
    uint32_t first = part->begin[part->n_entries];
    uint32_t count = part->n_keys - first;
    uint32_t cut = count > ids_max ? count - ids_max : 0;
    uint32_t kept = count - cut;
    if (cut) {
        memmove(part->keys + first, part->keys + first + cut, kept * sizeof(*part->keys));
        part->n_keys = first + kept;
    }
    if (weights || part->weighted) {
        fr_staging_reserve_weights(part);
        uint32_t unit_from = part->weighted ? first : 0;
        uint32_t unit_to = weights ? first : first + kept;
        for (uint32_t k = unit_from; k < unit_to; k++)
            part->weights[k] = 1.0f;
        if (weights && kept)
            memcpy(part->weights + first, weights + cut, kept * sizeof(*weights));
        part->weighted = true;
    }
    part->begin[++part->n_entries] = part->n_keys;
    return cut;
}

uint32_t fr_staging_first(const struct fr_stage_part *part, uint32_t at)
{
    uint32_t low = 0, high = part->n_entries;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (part->at[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t fr_staging_present(const struct fr_staging *staging, const struct fr_stage_column *column, uint32_t from,
                            uint32_t count)
{
    const struct fr_stage_part *own = &column->own, *shared = &column->shared;
    uint32_t present = count == staging->n_samples ? own->n_entries
                                                   : fr_staging_first(own, from + count) - fr_staging_first(own, from);
    for (uint32_t g = 0; g < shared->n_entries; g++) {
        uint32_t begin = staging->group_begin[shared->at[g]], end = staging->group_begin[shared->at[g] + 1];
        begin = begin > from ? begin : from;
        end = end < from + count ? end : from + count;
        present += end > begin ? end - begin : 0;
    }
    return present;
}
