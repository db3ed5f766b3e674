/* Computes the slots that samples do not carry (docs/formats/samples.md, "Ids and keys"):
 * buckets of a dense slot, and crosses of sparse slots.
 *
 * They are computed in the staging, when the record is read and before any of it reaches a
 * batch, so that trainer, replica and every sample form get the same ids. A computed slot of a
 * group has its value in the group's shared part if all slots that it is computed from have
 * theirs there; otherwise each sample has a value. A bucket's id is its number. A cross takes
 * one id from each slot in every possible way, the last slot's ids changing fastest; its key
 * folds their keys in the order of the slots, so [a, b] and [b, a] differ, and two slots that
 * hold the same id do not cancel:
 *
 *     key = fmix64(.. fmix64(fmix64(seed ^ key_1) ^ key_2) ..)
 *
 * If there are more than max_ids combinations, the last ones are kept. Golden vectors:
 * tests/golden/keys.json.
 *
 * Determinism: a function of the record. Owner: the decoder's thread. */
#include "parse.h"

#include <stdlib.h>

#include "base/hash.h"

void fr_decode_computed_init(struct fr_decoder *d)
{
    const struct fr_conf *conf = d->conf;
    d->computed = fr_alloc((size_t)conf->n_slots + 1, sizeof(*d->computed));
    for (int source = FR_SOURCE_BUCKETS; source <= FR_SOURCE_CROSS; source++)
        for (uint32_t s = 0; s < conf->n_slots; s++)
            if ((int)conf->slots[s].source == source)
                d->computed[d->n_computed++] = s;
}

/* Checks the number of ids that the slot will have once the ids of its shared part are copied to
 * the samples, `more` included. */
static enum fr_status check_room(struct fr_decoder *d, uint32_t s, uint64_t more)
{
    const struct fr_stage_column *column = &d->staging.columns[s];
    uint64_t ids = column->own.n_keys + column->expanded + more;
    if (ids <= FR_CROSS_IDS_MAX)
        return FR_OK;
    d->path.name = d->conf->slots[s].name;
    return fr_decode_fail(d, FR_E_LIMIT, "more than %d combinations in a record; lower max_ids of the slot",
                          FR_CROSS_IDS_MAX);
}

static uint32_t group_size(const struct fr_staging *staging, uint32_t group)
{
    return staging->group_begin[group + 1] - staging->group_begin[group];
}

/* ---- buckets ---- */

static uint32_t bucket_of(const struct fr_conf_slot *slot, float x)
{
    uint32_t low = 0, high = slot->n_boundaries; /* boundaries below low are <= x */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (slot->boundaries[middle] <= x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void compute_buckets(const struct fr_conf_slot *slot, const struct fr_stage_part *from, struct fr_stage_part *to)
{
    const float *numbers = from->raw ? from->raw : from->dense;
    fr_staging_reserve_entries(to, from->n_entries, false);
    fr_staging_reserve_keys(to, from->n_entries);
    for (uint32_t k = 0; k < from->n_entries; k++) {
        to->at[k] = from->at[k];
        to->keys[k] = fr_key_integer(bucket_of(slot, numbers[k]), slot->seed);
        to->begin[k + 1] = k + 1;
    }
    to->n_entries = to->n_keys = from->n_entries;
}

static void compute_bucket_slot(struct fr_decoder *d, uint32_t s)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    struct fr_stage_column *to = &d->staging.columns[s];
    const struct fr_stage_column *from = &d->staging.columns[slot->sources[0]];
    compute_buckets(slot, &from->own, &to->own);
    compute_buckets(slot, &from->shared, &to->shared);
    for (uint32_t k = 0; k < to->shared.n_entries; k++)
        to->expanded += group_size(&d->staging, to->shared.at[k]);
}

/* ---- crosses ---- */

/* The ids of one slot that take part in a combination. */
struct operand {
    const uint64_t *keys;
    const float *weights; /* NULL: all 1 */
    uint32_t count;
};

static struct operand operand_of(const struct fr_stage_part *part, uint32_t entry)
{
    uint32_t first = part->begin[entry];
    return (struct operand){part->keys + first, part->weighted ? part->weights + first : NULL,
                            part->begin[entry + 1] - first};
}

/* Returns the key of one combination; `place`: the number of the id that each operand
 * contributes. */
static uint64_t combine(uint64_t key, const struct operand *operands, const uint32_t *place, uint32_t n, float *weight)
{
    *weight = 1.0f;
    for (uint32_t i = 0; i < n; i++) {
        key = fr_fmix64(key ^ operands[i].keys[place[i]]);
        if (operands[i].weights)
            *weight *= operands[i].weights[place[i]];
    }
    return key;
}

/* Steps to the combination before this one. */
static void step_back(const struct operand *operands, uint32_t *place, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;) {
        if (place[i]-- > 0)
            return;
        place[i] = operands[i].count - 1;
    }
}

static float *loose_weights(struct fr_decoder *d, uint32_t n)
{
    if (n > d->capacity_loose) {
        d->capacity_loose = fr_staging_capacity(d->capacity_loose, n);
        d->loose = fr_realloc(d->loose, d->capacity_loose, sizeof(*d->loose));
    }
    return d->loose;
}

/* Writes all combinations of the operands as the entry of sample or group `at`. There is none if
 * an operand has no id. Each combination counts `times` towards FR_CROSS_IDS_MAX. */
static enum fr_status cross_entry(struct fr_decoder *d, uint32_t s, struct fr_stage_part *to, uint32_t at,
                                  const struct operand *operands)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    struct fr_stage_column *column = &d->staging.columns[s];
    uint32_t place[FR_CROSS_MAX], n = slot->n_sources;
    uint64_t total = 1, times = to == &column->shared ? group_size(&d->staging, at) : 1;
    for (uint32_t i = 0; i < n; i++) {
        if (__builtin_mul_overflow(total, (uint64_t)operands[i].count, &total))
            total = UINT64_MAX; /* as four slots of 65536 ids would have */
        place[i] = operands[i].count - 1;
    }
    if (total == 0)
        return FR_OK;
    for (uint32_t i = 0; i < n; i++)
        FR_CHECK(operands[i].keys != NULL); /* every operand has ids */
    uint32_t kept = total < column->ids_max ? (uint32_t)total : column->ids_max;
    enum fr_status status = check_room(d, s, kept * times);
    if (status != FR_OK)
        return status;
    d->staging.excess_ids += total - kept;
    fr_staging_open(to, at, false);
    fr_staging_reserve_keys(to, kept);
    float *weights = loose_weights(d, kept);
    bool weighted = false;
    for (uint32_t k = kept; k-- > 0; step_back(operands, place, n)) {
        to->keys[to->n_keys + k] = combine(slot->seed, operands, place, n, &weights[k]);
        weighted |= weights[k] != 1.0f;
        if (!__builtin_isfinite(weights[k]) || !(__builtin_fabsf(weights[k]) <= d->weight_max)) {
            d->path.name = slot->name;
            return fr_decode_fail(d, FR_E_INVALID, "weights of ids multiply to %.9g, beyond ingest.weight_max (%g)",
                                  (double)weights[k], (double)d->weight_max);
        }
    }
    to->n_keys += kept;
    (void)fr_staging_close(to, kept, weighted ? weights : NULL);
    if (to == &column->shared)
        column->expanded += kept * times;
    return weighted ? fr_decode_check_mean(d, s, to, to->n_entries - 1) : FR_OK;
}

/* The places of the next entries of the source slots. */
struct sources {
    uint32_t n;
    const struct fr_stage_column *columns[FR_CROSS_MAX];
    uint32_t own[FR_CROSS_MAX], shared[FR_CROSS_MAX];
};

/* Finds the ids of the source slots for sample i of the group or, with `i` = UINT32_MAX, for the
 * group's shared part. A source without an entry has no id. */
static void find_operands(struct sources *sources, uint32_t group, uint32_t i, struct operand *operands)
{
    for (uint32_t k = 0; k < sources->n; k++) {
        const struct fr_stage_part *own = &sources->columns[k]->own, *shared = &sources->columns[k]->shared;
        uint32_t g = sources->shared[k];
        operands[k] = (struct operand){0};
        if (g < shared->n_entries && shared->at[g] == group)
            operands[k] = operand_of(shared, g);
        if (i != UINT32_MAX && sources->own[k] < own->n_entries && own->at[sources->own[k]] == i)
            operands[k] = operand_of(own, sources->own[k]++);
    }
}

static bool has_own(const struct sources *sources, uint32_t end)
{
    for (uint32_t k = 0; k < sources->n; k++) {
        const struct fr_stage_part *own = &sources->columns[k]->own;
        if (sources->own[k] < own->n_entries && own->at[sources->own[k]] < end)
            return true;
    }
    return false;
}

static enum fr_status compute_cross(struct fr_decoder *d, uint32_t s)
{
    const struct fr_conf_slot *slot = &d->conf->slots[s];
    const struct fr_staging *staging = &d->staging;
    struct fr_stage_column *to = &d->staging.columns[s];
    struct sources sources = {.n = slot->n_sources};
    struct operand operands[FR_CROSS_MAX] = {0};
    enum fr_status status = FR_OK;
    for (uint32_t k = 0; k < sources.n; k++)
        sources.columns[k] = &staging->columns[slot->sources[k]];
    for (uint32_t group = 0; group < staging->n_groups && status == FR_OK; group++) {
        uint32_t from = staging->group_begin[group], end = staging->group_begin[group + 1];
        for (uint32_t k = 0; k < sources.n; k++) {
            const struct fr_stage_part *shared = &sources.columns[k]->shared;
            while (sources.shared[k] < shared->n_entries && shared->at[sources.shared[k]] < group)
                sources.shared[k]++;
        }
        if (!has_own(&sources, end)) {
            find_operands(&sources, group, UINT32_MAX, operands);
            status = cross_entry(d, s, &to->shared, group, operands);
            continue;
        }
        for (uint32_t i = from; i < end && status == FR_OK; i++) {
            find_operands(&sources, group, i, operands);
            status = cross_entry(d, s, &to->own, i, operands);
        }
    }
    return status;
}

enum fr_status fr_decode_computed(struct fr_decoder *d)
{
    d->path = (struct fr_decode_path){.item = -1, .sub = -1, .entry = -1, .index = -1};
    for (uint32_t i = 0; i < d->n_computed; i++) {
        if (d->conf->slots[d->computed[i]].source == FR_SOURCE_BUCKETS) {
            compute_bucket_slot(d, d->computed[i]);
            continue;
        }
        enum fr_status status = compute_cross(d, d->computed[i]);
        if (status != FR_OK)
            return status;
    }
    return FR_OK;
}
