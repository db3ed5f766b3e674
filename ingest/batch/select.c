/* Some samples of a batch as a batch of their own (fr_batch_select): what is left when the trainer
 * leaves samples out.
 *
 * The result is the batch that decoding the remaining samples alone would give, so samples that
 * are left out do not affect training: group numbers and entries follow from the samples that
 * stay. There are two differences. Weights of 1 are written out where a left-out entry had
 * weights. A column that has an entry per sample because of a left-out group keeps that form,
 * because the batch does not record whether the other groups' values were shared.
 *
 * Owner: the thread that holds both batches. */
#include "batch/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static void select_fields(const struct fr_batch *from, uint32_t sample, struct fr_batch *to, uint32_t at)
{
    to->t_ms[at] = from->t_ms[sample];
    to->origin[at] = from->origin[sample];
    to->use[at] = from->use[sample];
    to->role[at] = from->role[sample];
    to->keep[at] = from->keep[sample];
    for (uint32_t l = 0; l < from->n_labels; l++) {
        to->labels[(size_t)l * to->capacity_samples + at] = from->labels[(size_t)l * from->capacity_samples + sample];
        to->weights[(size_t)l * to->capacity_samples + at] = from->weights[(size_t)l * from->capacity_samples + sample];
    }
    for (uint32_t t = 0; to->served && t < from->n_tasks; t++)
        to->served[(size_t)t * to->capacity_samples + at] = from->served[(size_t)t * from->capacity_samples + sample];
}

static void reserve_weights(struct fr_column *to, size_t count)
{
    if (count <= to->capacity_weights)
        return;
    to->capacity_weights = count > to->capacity_keys ? count : to->capacity_keys;
    to->weights_storage = fr_realloc(to->weights_storage, to->capacity_weights, sizeof(*to->weights_storage));
}

static void select_entry(const struct fr_column *from, uint32_t entry, struct fr_column *to, uint32_t at)
{
    if (from->dim) {
        memcpy(to->dense + (size_t)at * to->dim, from->dense + (size_t)entry * from->dim, from->dim * sizeof(float));
        return;
    }
    uint32_t first = from->begin[entry], count = from->begin[entry + 1] - first, base = to->begin[at];
    fr_column_reserve_keys(to, (size_t)base + count);
    if (count)
        memcpy(to->keys + base, from->keys + first, count * sizeof(*to->keys));
    if (from->weights) {
        reserve_weights(to, (size_t)base + count);
        if (count)
            memcpy(to->weights_storage + base, from->weights + first, count * sizeof(float));
        to->weights = to->weights_storage;
    }
    to->begin[at + 1] = base + count;
}

static uint32_t select_samples(const struct fr_batch *from, const uint8_t *left_out, struct fr_batch *to)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < from->n_groups; g++) {
        uint32_t begin = n;
        for (uint32_t i = from->group_begin[g]; i < from->group_begin[g + 1]; i++) {
            if (left_out[i])
                continue;
            select_fields(from, i, to, n);
            to->group_of[n++] = to->n_groups;
        }
        if (n > begin)
            to->group_begin[++to->n_groups] = n;
    }
    return n;
}

static void select_column(const struct fr_batch *from, const uint8_t *left_out, uint32_t slot, struct fr_batch *to)
{
    const struct fr_column *column = &from->columns[slot];
    uint32_t at = 0;
    for (uint32_t g = 0; g < from->n_groups; g++) {
        bool any = false;
        for (uint32_t i = from->group_begin[g]; i < from->group_begin[g + 1]; i++) {
            if (left_out[i])
                continue;
            any = true;
            if (!column->shared)
                select_entry(column, i, &to->columns[slot], at++);
        }
        if (any && column->shared)
            select_entry(column, g, &to->columns[slot], at++);
    }
    to->columns[slot].shared = column->shared && to->n_groups < to->n_samples;
}

void fr_batch_select(const struct fr_batch *from, const uint8_t *left_out, struct fr_batch *to)
{
    FR_CHECK(from != to && from->n_slots == to->n_slots && from->n_labels == to->n_labels &&
             from->n_tasks == to->n_tasks);
    fr_batch_clear(to);
    fr_batch_reserve(to, from->n_samples);
    if (from->served) {
        if (!to->served_storage)
            to->served_storage = fr_alloc((size_t)to->capacity_samples * to->n_tasks, sizeof(*to->served_storage));
        to->served = to->served_storage;
    }
    to->n_samples = select_samples(from, left_out, to);
    for (uint32_t s = 0; s < from->n_slots; s++)
        select_column(from, left_out, s, to);
    to->kafka_t_max_ms = from->kafka_t_max_ms;
    to->born_mono_ns = from->born_mono_ns;
}
