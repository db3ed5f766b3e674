/* Appends staged samples to the columns of a batch. Nothing can fail here, because the whole
 * record was checked before.
 *
 * A column has an entry per group while the rule in batch.h allows it, and per sample otherwise.
 * As long as every group has one sample, both forms have the same entries. The choice is
 * therefore made when the first larger group comes, without moving anything. A later group that
 * breaks the rule makes copies of the entries there are (fr_column_expand). Usually a column has
 * values of one level only. These are contiguous in the staging and are copied at once; only
 * offsets are rewritten, and gaps are filled with empty entries or defaults. */
#include "staging.h"

#include <string.h>

/* What is appended: samples [from, to). They are all, or the last, samples of the groups [group,
 * group_end). */
struct range {
    const struct fr_staging *staging;
    uint32_t from, to, group, group_end;
    bool grouped; /* some group has more than one of the samples */
};

static uint32_t group_first(const struct range *range, uint32_t group)
{
    uint32_t first = range->staging->group_begin[group];
    return first > range->from ? first : range->from;
}

static bool is_single(const struct range *range, uint32_t group)
{
    return range->staging->group_begin[group + 1] - group_first(range, group) == 1;
}

/* ---- weights ---- */

static void append_weights(const struct fr_stage_part *from, struct fr_column *to, uint32_t first, uint32_t base,
                           uint32_t count)
{
    if (!from->weighted && !to->weights)
        return;
    /* every id before the first weighted entry has the weight 1 */
    uint32_t unit_from = to->weights ? base : 0;
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

/* Appends entries of one part: entries [from, from + count) of the part become entries [at, at +
 * count) of the batch. */

static void append_keys(const struct fr_stage_part *part, struct fr_column *to, uint32_t from, uint32_t count,
                        uint32_t at)
{
    uint32_t entry = fr_staging_first(part, from);
    uint32_t entry_end;
    if (part->n_entries - entry >= count && (count == 0 || part->at[entry + count - 1] == from + count - 1))
        entry_end = entry + count; /* there are no gaps between the entries */
    else
        entry_end = fr_staging_first(part, from + count);
    uint32_t first = part->begin[entry];
    uint32_t n_keys = part->begin[entry_end] - first;
    uint32_t base = to->begin[at];
    fr_column_reserve_keys(to, (size_t)base + n_keys);
    if (n_keys)
        memcpy(to->keys + base, part->keys + first, n_keys * sizeof(*to->keys));
    append_weights(part, to, first, base, n_keys);

    uint32_t *end = to->begin + at + 1;
    uint32_t shift = base - first; /* modulo 2^32 */
    if (entry_end - entry == count) {
        for (uint32_t i = 0; i < count; i++)
            end[i] = part->begin[entry + i + 1] + shift;
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (entry < entry_end && part->at[entry] == from + i)
            entry++;
        end[i] = part->begin[entry] + shift;
    }
}

static void append_dense(const struct fr_stage_column *stage, const struct fr_stage_part *part, struct fr_column *to,
                         const uint32_t span[3])
{
    uint32_t from = span[0], count = span[1], at = span[2], dim = stage->dim;
    uint32_t entry = fr_staging_first(part, from);
    uint32_t entry_end = fr_staging_first(part, from + count);
    float *out = to->dense + (size_t)at * dim;
    if (entry_end - entry == count) {
        if (count)
            memcpy(out, part->dense + (size_t)entry * dim, (size_t)count * dim * sizeof(*out));
        return;
    }
    for (uint32_t i = 0; i < count; i++, out += dim) {
        if (entry < entry_end && part->at[entry] == from + i) {
            memcpy(out, part->dense + (size_t)entry * dim, dim * sizeof(*out));
            entry++;
        } else {
            for (uint32_t j = 0; j < dim; j++)
                out[j] = stage->missing[j & 1];
        }
    }
}

static void append_part(const struct fr_stage_column *stage, const struct fr_stage_part *part, struct fr_column *to,
                        const uint32_t span[3])
{
    if (fr_slot_has_numbers(stage->kind))
        append_dense(stage, part, to, span);
    else
        append_keys(part, to, span[0], span[1], span[2]);
}

/* ---- values of both levels ---- */

/* Appends one entry to the batch from entry `entry` of the part; part NULL: there is no value. */
static void append_one(const struct fr_stage_column *stage, const struct fr_stage_part *part, uint32_t entry,
                       struct fr_column *to, uint32_t at)
{
    if (fr_slot_has_numbers(stage->kind)) {
        float *out = to->dense + (size_t)at * stage->dim;
        for (uint32_t j = 0; j < stage->dim; j++)
            out[j] = part ? part->dense[(size_t)entry * stage->dim + j] : stage->missing[j & 1];
        return;
    }
    static const struct fr_stage_part nothing;
    uint32_t first = part ? part->begin[entry] : 0, count = part ? part->begin[entry + 1] - first : 0;
    uint32_t base = to->begin[at];
    fr_column_reserve_keys(to, (size_t)base + count);
    if (count)
        memcpy(to->keys + base, part->keys + first, count * sizeof(*to->keys));
    append_weights(part ? part : &nothing, to, first, base, count);
    to->begin[at + 1] = base + count;
}

static void append_both(const struct range *range, const struct fr_stage_column *stage, struct fr_column *to,
                        uint32_t at)
{
    const struct fr_stage_part *own = &stage->own, *shared = &stage->shared;
    uint32_t o = fr_staging_first(own, range->from), g = fr_staging_first(shared, range->group);
    for (uint32_t group = range->group; group < range->group_end; group++) {
        uint32_t end = range->staging->group_begin[group + 1];
        bool has_shared = g < shared->n_entries && shared->at[g] == group;
        bool once = to->shared && !is_single(range, group);
        for (uint32_t i = group_first(range, group); i < end; i = once ? end : i + 1) {
            bool has_own = o < own->n_entries && own->at[o] == i && !once;
            append_one(stage, has_own ? own : has_shared ? shared : NULL, has_own ? o : g, to, at++);
            o += has_own;
        }
        /* passes over empty entries of samples in a group whose column is shared */
        while (o < own->n_entries && own->at[o] < end)
            o++;
        g += has_shared;
    }
}

/* ---- shared or per sample ---- */

/* Whether one of the samples of a group of several has a value of its own: at least an id or a
 * number. */
static bool has_own_values(const struct range *range, const struct fr_stage_column *stage)
{
    const struct fr_stage_part *own = &stage->own;
    uint32_t group = range->group;
    for (uint32_t k = fr_staging_first(own, range->from); k < own->n_entries && own->at[k] < range->to; k++) {
        if (fr_slot_has_rows(stage->kind) && own->begin[k + 1] == own->begin[k])
            continue;
        while (range->staging->group_begin[group + 1] <= own->at[k])
            group++;
        if (!is_single(range, group))
            return true;
    }
    return false;
}

static void append_column(const struct range *range, const struct fr_stage_column *stage, struct fr_column *to,
                          const struct fr_batch *batch)
{
    bool grouped = batch->n_groups < batch->n_samples;
    bool shared = grouped ? to->shared : range->grouped;
    if (shared && range->grouped && has_own_values(range, stage))
        shared = false;
    if (to->shared && !shared)
        fr_column_expand(batch, to);
    to->shared = shared;
    uint32_t at = shared ? batch->n_groups : batch->n_samples;
    uint32_t g = fr_staging_first(&stage->shared, range->group);
    bool any_shared = g < stage->shared.n_entries && stage->shared.at[g] < range->group_end;
    if (!any_shared && (!shared || !range->grouped)) {
        append_part(stage, &stage->own, to, (uint32_t[3]){range->from, range->to - range->from, at});
        return;
    }
    uint32_t o = fr_staging_first(&stage->own, range->from);
    bool any_own = o < stage->own.n_entries && stage->own.at[o] < range->to;
    if (shared && !any_own)
        append_part(stage, &stage->shared, to, (uint32_t[3]){range->group, range->group_end - range->group, at});
    else
        append_both(range, stage, to, at);
}

/* ---- samples ---- */

static void append_served(const struct fr_staging *staging, uint32_t from, uint32_t count, struct fr_batch *batch)
{
    uint32_t at = batch->n_samples, n_tasks = batch->n_tasks;
    bool any = false;
    for (size_t i = (size_t)from * n_tasks; staging->has_served && i < (size_t)(from + count) * n_tasks; i++)
        any |= staging->served[i] == staging->served[i];
    if (!any && !batch->served)
        return;
    if (!batch->served) {
        if (!batch->served_storage)
            batch->served_storage = fr_alloc((size_t)batch->capacity_samples * n_tasks, sizeof(*batch->served_storage));
        batch->served = batch->served_storage;
        for (uint32_t k = 0; k < n_tasks; k++)
            for (uint32_t i = 0; i < at; i++)
                batch->served[(size_t)k * batch->capacity_samples + i] = __builtin_nanf("");
    }
    for (uint32_t k = 0; k < n_tasks; k++)
        for (uint32_t i = 0; i < count; i++)
            batch->served[(size_t)k * batch->capacity_samples + at + i] =
                any ? staging->served[(size_t)(from + i) * n_tasks + k] : __builtin_nanf("");
}

static void append_fields(const struct fr_staging *staging, uint32_t from, uint32_t count, struct fr_batch *batch)
{
    uint32_t at = batch->n_samples, n_labels = staging->n_labels;
    memcpy(batch->t_ms + at, staging->t_ms + from, count * sizeof(*batch->t_ms));
    for (uint32_t i = 0; i < count; i++)
        /* the sample's number in the record, until the caller sets the record's place in a log */
        batch->origin[at + i] = from + i;
    memcpy(batch->use + at, staging->use + from, count);
    memcpy(batch->role + at, staging->role + from, count);
    memcpy(batch->keep + at, staging->keep + from, count * sizeof(*batch->keep));
    for (uint32_t l = 0; l < n_labels; l++) {
        float *labels = batch->labels + (size_t)l * batch->capacity_samples + at;
        float *weights = batch->weights + (size_t)l * batch->capacity_samples + at;
        for (uint32_t i = 0; i < count; i++) {
            labels[i] = staging->labels[(size_t)(from + i) * n_labels + l];
            weights[i] = staging->weights[(size_t)(from + i) * n_labels + l];
        }
    }
    append_served(staging, from, count, batch);
}

/* Returns the group of a sample of the record. */
static uint32_t group_of(const struct fr_staging *staging, uint32_t sample)
{
    uint32_t low = 0, high = staging->n_groups;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (staging->group_begin[middle] <= sample)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint64_t column_ids(const struct fr_staging *staging, const struct fr_stage_column *column, uint32_t from,
                           uint32_t to)
{
    const struct fr_stage_part *own = &column->own, *shared = &column->shared;
    uint64_t ids = own->n_entries ? own->begin[fr_staging_first(own, to)] - own->begin[fr_staging_first(own, from)] : 0;
    if (!shared->n_entries)
        return ids;
    for (uint32_t k = fr_staging_first(shared, group_of(staging, from)); k < shared->n_entries; k++) {
        const uint32_t *begin = staging->group_begin + shared->at[k];
        if (begin[0] >= to)
            break;
        ids += (uint64_t)(begin[1] - begin[0]) * (shared->begin[k + 1] - shared->begin[k]);
    }
    return ids;
}

uint64_t fr_staging_ids(const struct fr_staging *staging, uint32_t from, uint32_t count)
{
    uint64_t ids = 0;
    for (uint32_t s = 0; s < staging->n_slots; s++) {
        const struct fr_stage_column *column = &staging->columns[s];
        if (fr_slot_has_numbers(column->kind))
            continue;
        if (count == staging->n_samples)
            ids += column->own.n_keys + column->expanded;
        else
            ids += column_ids(staging, column, from, from + count);
    }
    return ids;
}

void fr_staging_append(const struct fr_staging *staging, uint32_t from, uint32_t count, struct fr_batch *batch)
{
    FR_CHECK(from <= staging->n_samples && count <= staging->n_samples - from);
    FR_CHECK(batch->n_slots == staging->n_slots && batch->n_labels == staging->n_labels);
    FR_CHECK(batch->n_tasks == staging->n_tasks);
    if (from == 0) {
        batch->unknown_slots += staging->unknown_slots;
        batch->unknown_keys += staging->unknown_keys;
        batch->excess_ids += staging->excess_ids;
    }
    if (count == 0)
        return;
    struct range range = {.staging = staging, .from = from, .to = from + count};
    range.group = group_of(staging, from);
    range.group_end = group_of(staging, from + count - 1) + 1;
    FR_CHECK(staging->group_begin[range.group_end] == from + count); /* groups are never split */
    range.grouped = range.group_end - range.group < count;
    batch->ids += fr_staging_ids(staging, from, count);
    uint32_t at = batch->n_samples, groups_at = batch->n_groups;
    FR_CHECK(count < UINT32_MAX - at);
    fr_batch_reserve(batch, at + count);
    append_fields(staging, from, count, batch);
    for (uint32_t s = 0; s < batch->n_slots; s++)
        append_column(&range, &staging->columns[s], &batch->columns[s], batch);
    for (uint32_t g = range.group; g < range.group_end; g++) {
        uint32_t number = groups_at + g - range.group;
        uint32_t end = at + staging->group_begin[g + 1] - from;
        for (uint32_t i = batch->group_begin[number]; i < end; i++)
            batch->group_of[i] = number;
        batch->group_begin[number + 1] = end;
    }
    batch->n_samples = at + count;
    batch->n_groups = groups_at + range.group_end - range.group;
}
