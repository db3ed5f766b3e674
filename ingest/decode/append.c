/* Staged samples -> batch columns. Nothing can fail here: the record was checked whole.
 *
 * The keys, weights and numbers of a range of samples are one stretch of the staging column, so they are copied in one
 * go; only the offsets are rewritten, and gaps (slots a sample does not name) filled with empty entries or defaults. */
#include "staging.h"

#include <string.h>

/* First entry whose sample is >= `sample`. */
static uint32_t first_entry(const struct fr_stage_column *column, uint32_t sample)
{
    uint32_t low = 0, high = column->n_entries;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (column->sample[middle] < sample)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void append_weights(const struct fr_stage_column *from, struct fr_column *to, uint32_t first, uint32_t base,
                           uint32_t count)
{
    if (!from->weighted && !to->weights)
        return;
    uint32_t unit_from = to->weights ? base : 0; /* everything before the first weighted entry weighs 1 */
    uint32_t unit_to = from->weighted ? base : base + count;
    size_t need = (size_t)base + count;
    if (need > to->capacity_weights) {
        to->capacity_weights = need > to->capacity_keys ? need : to->capacity_keys;
        to->weights_storage = fr_realloc(to->weights_storage, to->capacity_weights, sizeof(*to->weights_storage));
    }
    to->weights = to->weights_storage;
    for (uint32_t k = unit_from; k < unit_to; k++)
        to->weights[k] = 1.0f;
    if (from->weighted && count)
        memcpy(to->weights + base, from->weights + first, count * sizeof(*to->weights));
}

/* Samples [from, from + count) of a sparse or sequence column; `at` is the batch's number of samples before. */
static void append_keys(const struct fr_stage_column *stage, struct fr_column *to, uint32_t from, uint32_t count,
                        uint32_t at)
{
    uint32_t entry = first_entry(stage, from);
    uint32_t entry_end;
    if (stage->n_entries - entry >= count && (count == 0 || stage->sample[entry + count - 1] == from + count - 1))
        entry_end = entry + count; /* every sample has an entry */
    else
        entry_end = first_entry(stage, from + count);
    uint32_t first = stage->begin[entry];
    uint32_t n_keys = stage->begin[entry_end] - first;
    uint32_t base = to->begin[at];
    fr_column_reserve_keys(to, (size_t)base + n_keys);
    if (n_keys)
        memcpy(to->keys + base, stage->keys + first, n_keys * sizeof(*to->keys));
    append_weights(stage, to, first, base, n_keys);

    uint32_t *end = to->begin + at + 1;
    uint32_t shift = base - first; /* modulo 2^32 */
    if (entry_end - entry == count) {
        for (uint32_t i = 0; i < count; i++)
            end[i] = stage->begin[entry + i + 1] + shift;
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (entry < entry_end && stage->sample[entry] == from + i)
            entry++;
        end[i] = stage->begin[entry] + shift;
    }
}

static void append_dense(const struct fr_stage_column *stage, struct fr_column *to, uint32_t from, uint32_t count,
                         uint32_t at)
{
    uint32_t dim = stage->dim;
    uint32_t entry = first_entry(stage, from);
    uint32_t entry_end = first_entry(stage, from + count);
    float *out = to->dense + (size_t)at * dim;
    if (entry_end - entry == count) {
        if (count)
            memcpy(out, stage->dense + (size_t)entry * dim, (size_t)count * dim * sizeof(*out));
        return;
    }
    for (uint32_t i = 0; i < count; i++, out += dim) {
        if (entry < entry_end && stage->sample[entry] == from + i) {
            memcpy(out, stage->dense + (size_t)entry * dim, dim * sizeof(*out));
            entry++;
        } else {
            for (uint32_t j = 0; j < dim; j++)
                out[j] = stage->default_value;
        }
    }
}

void fr_staging_append(const struct fr_staging *staging, uint32_t from, uint32_t count, struct fr_batch *batch)
{
    FR_CHECK(from <= staging->n_samples && count <= staging->n_samples - from);
    FR_CHECK(batch->n_slots == staging->n_slots && batch->n_labels == staging->n_labels);
    if (count == 0)
        return;
    uint32_t at = batch->n_samples;
    FR_CHECK(count < UINT32_MAX - at);
    fr_batch_reserve(batch, at + count);
    memcpy(batch->t_ms + at, staging->t_ms + from, count * sizeof(*batch->t_ms));
    memcpy(batch->use + at, staging->use + from, count);
    memcpy(batch->role + at, staging->role + from, count);
    for (uint32_t l = 0; l < batch->n_labels; l++) {
        float *labels = batch->labels + (size_t)l * batch->capacity_samples + at;
        float *weights = batch->weights + (size_t)l * batch->capacity_samples + at;
        for (uint32_t i = 0; i < count; i++) {
            labels[i] = staging->labels[(size_t)(from + i) * staging->n_labels + l];
            weights[i] = staging->weights[(size_t)(from + i) * staging->n_labels + l];
        }
    }
    for (uint32_t s = 0; s < batch->n_slots; s++) {
        const struct fr_stage_column *stage = &staging->columns[s];
        if (stage->kind == FR_SLOT_DENSE)
            append_dense(stage, &batch->columns[s], from, count, at);
        else
            append_keys(stage, &batch->columns[s], from, count, at);
    }
    batch->n_samples = batch->n_groups = at + count;
    for (uint32_t i = 0; i < count; i++)
        batch->group_begin[at + 1 + i] = at + 1 + i;
    if (from == 0) {
        batch->unknown_slots += staging->unknown_slots;
        batch->unknown_extra += staging->unknown_extra;
        batch->excess_ids += staging->excess_ids;
        batch->unused_fields += staging->unused_fields;
    }
}
