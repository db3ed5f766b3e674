/* Some samples of a batch, or all in another order, as another batch: what is left when the trainer
 * leaves samples out (fr_batch_select), and the samples lane by lane (fr_batch_arrange).
 *
 * Both are one gather. A list has the samples that go to the other batch, in their new order, a
 * second list has the groups of these samples. Entries that lie next to each other in both batches
 * are copied together. The lists are kept with the batch that is written, so a steady stream
 * allocates nothing.
 *
 * The result is the batch that decoding these samples alone, in this order, would give, so samples
 * that are left out do not affect training: group numbers and entries follow from the samples that
 * stay. There are two differences. Weights of 1 are written out where a left-out entry had
 * weights. A column that has an entry per sample because of a left-out group keeps that form,
 * because the batch does not record whether the other groups' values were shared.
 *
 * Owner: the thread that holds both batches. */
#include "batch/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* What is gathered: numbers of `from`, in the order of `to`. A group has at least one sample. */
struct gather {
    const struct fr_batch *from;
    struct fr_batch *to;
    uint32_t *samples, *groups; /* [to->n_samples], [to->n_groups] */
};

static struct gather gather_of(const struct fr_batch *from, struct fr_batch *to)
{
    FR_CHECK(from != to && from->n_slots == to->n_slots && from->n_labels == to->n_labels);
    FR_CHECK(from->n_tasks == to->n_tasks && from->n_lanes == to->n_lanes);
    fr_batch_clear(to);
    fr_batch_reserve(to, from->n_samples);
    if (to->capacity_gathered < to->capacity_samples) {
        to->capacity_gathered = to->capacity_samples;
        to->gathered = fr_realloc(to->gathered, 2 * (size_t)to->capacity_gathered, sizeof(*to->gathered));
    }
    return (struct gather){
        .from = from, .to = to, .samples = to->gathered, .groups = to->gathered + to->capacity_gathered};
}

/* ---- what is copied ---- */

#define GATHER(field)                                                                                                  \
    for (uint32_t i = 0; i < n; i++)                                                                                   \
    to->field[i] = from->field[samples[i]]

static void gather_row(const float *from, const uint32_t *samples, uint32_t n, float *to)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = from[samples[i]];
}

static void gather_fields(const struct gather *gather)
{
    const struct fr_batch *from = gather->from;
    struct fr_batch *to = gather->to;
    const uint32_t *samples = gather->samples;
    uint32_t n = to->n_samples;
    GATHER(t_ms);
    GATHER(origin);
    GATHER(use);
    GATHER(role);
    GATHER(keep);
    for (size_t l = 0; l < from->n_labels; l++) {
        gather_row(from->labels + l * from->capacity_samples, samples, n, to->labels + l * to->capacity_samples);
        gather_row(from->weights + l * from->capacity_samples, samples, n, to->weights + l * to->capacity_samples);
    }
    if (!from->served)
        return;
    if (!to->served_storage)
        to->served_storage = fr_alloc((size_t)to->capacity_samples * to->n_tasks, sizeof(*to->served_storage));
    to->served = to->served_storage;
    for (size_t t = 0; t < from->n_tasks; t++)
        gather_row(from->served + t * from->capacity_samples, samples, n, to->served + t * to->capacity_samples);
}

/* How many of the n >= 1 numbers count up by one from the first on. */
static uint32_t run_of(const uint32_t *numbers, uint32_t n)
{
    uint32_t run = 1;
    while (run < n && numbers[run] == numbers[0] + run)
        run++;
    return run;
}

static void reserve_ids(const struct fr_column *from, size_t ids, struct fr_column *to)
{
    fr_column_reserve_keys(to, ids);
    if (!from->weights)
        return;
    if (ids > to->capacity_weights) {
        to->capacity_weights = to->capacity_keys;
        to->weights_storage = fr_realloc(to->weights_storage, to->capacity_weights, sizeof(*to->weights_storage));
    }
    if (ids)
        to->weights = to->weights_storage;
}

static void gather_ids(const struct fr_column *from, const uint32_t *entries, uint32_t n, struct fr_column *to)
{
    for (uint32_t i = 0, run; i < n; i += run) {
        run = run_of(entries + i, n - i);
        const uint32_t *begin = from->begin + entries[i];
        uint32_t first = begin[0], count = begin[run] - first, base = to->begin[i];
        reserve_ids(from, (size_t)base + count, to);
        if (count)
            memcpy(to->keys + base, from->keys + first, count * sizeof(*to->keys));
        if (count && from->weights)
            memcpy(to->weights + base, from->weights + first, count * sizeof(*to->weights));
        for (uint32_t k = 1; k <= run; k++)
            to->begin[i + k] = base + (begin[k] - first);
    }
}

static void gather_dense(const struct fr_column *from, const uint32_t *entries, uint32_t n, struct fr_column *to)
{
    size_t dim = from->dim;
    for (uint32_t i = 0, run; i < n; i += run) {
        run = run_of(entries + i, n - i);
        memcpy(to->dense + i * dim, from->dense + entries[i] * dim, run * dim * sizeof(*to->dense));
    }
}

static void gather_all(const struct gather *gather)
{
    struct fr_batch *to = gather->to;
    gather_fields(gather);
    for (uint32_t s = 0; s < to->n_slots; s++) {
        const struct fr_column *column = &gather->from->columns[s];
        const uint32_t *entries = column->shared ? gather->groups : gather->samples;
        uint32_t n = column->shared ? to->n_groups : to->n_samples;
        if (column->dim)
            gather_dense(column, entries, n, &to->columns[s]);
        else
            gather_ids(column, entries, n, &to->columns[s]);
        to->columns[s].shared = column->shared && to->n_groups < to->n_samples;
    }
}

/* ---- some samples ---- */

void fr_batch_select(const struct fr_batch *from, const uint8_t *left_out, struct fr_batch *to)
{
    struct gather gather = gather_of(from, to);
    uint32_t n = 0, lane = 0;
    for (uint32_t g = 0; g < from->n_groups; g++) {
        uint32_t begin = n;
        for (; lane < to->n_lanes && fr_batch_lane_begin(from, lane) <= g; lane++)
            to->lane_begin[lane] = to->n_groups;
        for (uint32_t i = from->group_begin[g]; i < from->group_begin[g + 1]; i++) {
            if (left_out[i])
                continue;
            gather.samples[n] = i;
            to->group_of[n++] = to->n_groups;
        }
        if (n == begin)
            continue;
        gather.groups[to->n_groups] = g;
        to->group_begin[++to->n_groups] = n;
    }
    for (; lane < to->n_lanes; lane++)
        to->lane_begin[lane] = to->n_groups;
    to->n_samples = n;
    gather_all(&gather);
    to->kafka_t_max_ms = from->kafka_t_max_ms;
    to->born_mono_ns = from->born_mono_ns;
}

/* ---- lane by lane ---- */

/* By lane: how many of each it has, then where the next one goes. */
struct lane_places {
    uint32_t groups[FR_DOMAINS_MAX], samples[FR_DOMAINS_MAX], records[FR_DOMAINS_MAX];
};

static uint32_t samples_end(const struct fr_batch *batch, uint32_t record)
{
    return record + 1 < batch->n_records ? batch->records[record + 1].first_sample : batch->n_samples;
}

static uint32_t group_at(const struct fr_batch *batch, uint32_t sample)
{
    return sample < batch->n_samples ? batch->group_of[sample] : batch->n_groups;
}

/* Makes the first place of each lane of the counts. Returns their sum. */
static uint32_t places_of(uint32_t *counts, uint32_t n_lanes)
{
    uint32_t sum = 0;
    for (uint32_t l = 0; l < n_lanes; l++) {
        uint32_t count = counts[l];
        counts[l] = sum;
        sum += count;
    }
    return sum;
}

/* True: the samples already lie in the order of their lanes. */
static bool find_places(const struct fr_batch *batch, struct lane_places *at)
{
    bool ordered = true;
    for (uint32_t r = 0; r < batch->n_records; r++) {
        uint32_t lane = batch->records[r].lane, first = batch->records[r].first_sample, end = samples_end(batch, r);
        FR_CHECK(lane < batch->n_lanes);
        ordered &= r == 0 || batch->records[r - 1].lane <= lane;
        at->groups[lane] += group_at(batch, end) - group_at(batch, first);
        at->samples[lane] += end - first;
        at->records[lane]++;
    }
    uint32_t n_groups = places_of(at->groups, batch->n_lanes), n_samples = places_of(at->samples, batch->n_lanes);
    (void)places_of(at->records, batch->n_lanes);
    FR_CHECK(n_groups == batch->n_groups && n_samples == batch->n_samples);
    return ordered;
}

/* Writes the lists, groups and records of `to`. */
static void place_records(struct gather *gather, struct lane_places *at)
{
    const struct fr_batch *from = gather->from;
    struct fr_batch *to = gather->to;
    if (to->capacity_records < from->n_records) {
        to->capacity_records = from->capacity_records;
        to->records = fr_realloc(to->records, to->capacity_records, sizeof(*to->records));
    }
    for (uint32_t r = 0; r < from->n_records; r++) {
        const struct fr_batch_record *record = &from->records[r];
        uint32_t lane = record->lane, first = record->first_sample, end = samples_end(from, r);
        to->records[at->records[lane]] = *record;
        to->records[at->records[lane]++].first_sample = at->samples[lane];
        for (uint32_t i = first; i < end; i++)
            gather->samples[at->samples[lane]++] = i;
        for (uint32_t g = group_at(from, first); g < group_at(from, end); g++)
            gather->groups[at->groups[lane]++] = g;
    }
    to->n_samples = from->n_samples;
    to->n_groups = from->n_groups;
    for (uint32_t g = 0; g < to->n_groups; g++) {
        uint32_t begin = to->group_begin[g], of = gather->groups[g];
        to->group_begin[g + 1] = begin + (from->group_begin[of + 1] - from->group_begin[of]);
        for (uint32_t i = begin; i < to->group_begin[g + 1]; i++)
            to->group_of[i] = g;
    }
}

static void swap_bytes(void *a, void *b, size_t size)
{
    unsigned char kept[sizeof(void *)];
    FR_CHECK(size <= sizeof(kept));
    memcpy(kept, a, size);
    memcpy(a, b, size);
    memcpy(b, kept, size);
}

#define SWAP(field) swap_bytes(&a->field, &b->field, sizeof(a->field))

/* Exchanges what was gathered; the rest of a batch does not depend on the order of its samples. */
static void swap_gathered(struct fr_batch *a, struct fr_batch *b)
{
    SWAP(capacity_samples);
    SWAP(group_begin);
    SWAP(group_of);
    SWAP(t_ms);
    SWAP(origin);
    SWAP(use);
    SWAP(role);
    SWAP(labels);
    SWAP(weights);
    SWAP(keep);
    SWAP(served);
    SWAP(served_storage);
    SWAP(columns);
    SWAP(capacity_records);
    SWAP(records);
}

void fr_batch_arrange(struct fr_batch *batch, struct fr_batch *spare)
{
    struct lane_places at = {{0}, {0}, {0}};
    bool ordered = find_places(batch, &at);
    memcpy(batch->lane_begin, at.groups, batch->n_lanes * sizeof(*batch->lane_begin));
    if (ordered)
        return;
    FR_CHECK(spare != NULL);
    struct gather gather = gather_of(batch, spare);
    place_records(&gather, &at);
    gather_all(&gather);
    swap_gathered(batch, spare);
    spare->n_samples = spare->n_groups = 0;
}
