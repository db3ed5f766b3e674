/* Which columns have one entry per group, agreed over the ranks of a job.
 *
 * Whether a column is shared follows from all groups of a batch (batch.h), and a rank has only the
 * groups of its lanes. A rank with a group of several samples reports that, and each column that is
 * not shared although such a group is there. The OR of all reports has the form of the columns in
 * the batch of all ranks. A rank without a group of several samples reports nothing, because an
 * entry per group and an entry per sample are the same for it.
 *
 * Owner: the thread that holds the batch. */
#include "batch/batch.h"

#include <string.h>

#include "base/check.h"

/* Works from the last entry to the first, so what is still to be read lies before what is
 * written. */
void fr_column_expand(const struct fr_batch *batch, struct fr_column *column)
{
    const uint32_t *group_begin = batch->group_begin;
    if (column->dim) {
        for (uint32_t g = batch->n_groups; g-- > 0;)
            for (uint32_t i = group_begin[g + 1]; i-- > group_begin[g];)
                memmove(column->dense + (size_t)i * column->dim, column->dense + (size_t)g * column->dim,
                        column->dim * sizeof(*column->dense));
        return;
    }
    size_t total = 0;
    for (uint32_t g = 0; g < batch->n_groups; g++)
        total += (size_t)(group_begin[g + 1] - group_begin[g]) * (column->begin[g + 1] - column->begin[g]);
    fr_column_reserve_keys(column, total);
    if (column->weights && total > column->capacity_weights) {
        column->capacity_weights = column->capacity_keys;
        column->weights = column->weights_storage =
            fr_realloc(column->weights_storage, column->capacity_weights, sizeof(*column->weights_storage));
    }
    uint32_t end = (uint32_t)total;
    for (uint32_t g = batch->n_groups; g-- > 0;) {
        uint32_t first = column->begin[g], count = column->begin[g + 1] - first;
        for (uint32_t i = group_begin[g + 1]; i-- > group_begin[g]; end -= count) {
            column->begin[i + 1] = end;
            if (count == 0)
                continue;
            memmove(column->keys + end - count, column->keys + first, count * sizeof(*column->keys));
            if (column->weights)
                memmove(column->weights + end - count, column->weights + first, count * sizeof(*column->weights));
        }
    }
}

static bool has_several(const struct fr_batch *batch)
{
    return batch->n_groups < batch->n_samples;
}

void fr_batch_get_shape(const struct fr_batch *batch, struct fr_batch_shape *out)
{
    *out = (struct fr_batch_shape){.several = has_several(batch)};
    for (uint32_t s = 0; out->several && s < batch->n_slots; s++)
        if (!batch->columns[s].shared)
            out->own[s / 64] |= (uint64_t)1 << s % 64;
}

void fr_batch_take_shape(struct fr_batch *batch, const struct fr_batch_shape *joined)
{
    FR_CHECK(joined->several || !has_several(batch));
    for (uint32_t s = 0; s < batch->n_slots; s++) {
        struct fr_column *column = &batch->columns[s];
        bool shared = joined->several && !(joined->own[s / 64] >> s % 64 & 1);
        FR_CHECK(column->shared || !shared || !has_several(batch));
        if (column->shared && !shared)
            fr_column_expand(batch, column);
        column->shared = shared;
    }
}
