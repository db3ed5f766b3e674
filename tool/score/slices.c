/* See slices.h. AUC is computed by metrics/auc. One accumulator is made for one result at a time,
 * because it takes a megabyte, whatever the number of slices. */
#include "score/slices.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum { FIRST = 1024, BLOCK = 512 };

void fr_tool_slices_release(struct fr_tool_slices *slices)
{
    for (uint32_t c = 0; c < slices->n_cuts; c++) {
        free(slices->cuts[c].slices);
        free(slices->cuts[c].index);
        free(slices->cuts[c].members);
    }
    free(slices->samples);
}

struct fr_tool_sample *fr_tool_slices_add(struct fr_tool_slices *slices)
{
    FR_CHECK(slices->n_samples < UINT32_MAX);
    if (slices->n_samples == slices->capacity_samples) {
        slices->capacity_samples = slices->capacity_samples ? 2 * slices->capacity_samples : FIRST;
        slices->samples =
            fr_realloc(slices->samples, slices->capacity_samples * slices->n_tasks, sizeof(*slices->samples));
    }
    return &slices->samples[slices->n_samples++ * slices->n_tasks];
}

/* ---- slices ---- */

static size_t place_of(const struct fr_tool_cut *cut, uint64_t key)
{
    size_t at = fr_fmix64(key) & (cut->index_size - 1);
    while (cut->index[at] != 0 && cut->slices[cut->index[at] - 1].key != key)
        at = (at + 1) & (cut->index_size - 1);
    return at;
}

static void index_all(struct fr_tool_cut *cut, size_t size)
{
    free(cut->index);
    cut->index = fr_alloc(size, sizeof(*cut->index));
    cut->index_size = size;
    for (size_t i = 0; i < cut->n_slices; i++)
        cut->index[place_of(cut, cut->slices[i].key)] = (uint32_t)i + 1;
}

struct fr_tool_slice *fr_tool_slices_find(struct fr_tool_cut *cut, uint64_t key)
{
    if (2 * (cut->n_slices + 1) > cut->index_size)
        index_all(cut, cut->index_size ? 2 * cut->index_size : FIRST);
    size_t at = place_of(cut, key);
    if (cut->index[at] != 0)
        return &cut->slices[cut->index[at] - 1];
    if (cut->n_slices == cut->capacity_slices) {
        cut->capacity_slices = cut->capacity_slices ? 2 * cut->capacity_slices : FIRST;
        cut->slices = fr_realloc(cut->slices, cut->capacity_slices, sizeof(*cut->slices));
    }
    cut->slices[cut->n_slices] = (struct fr_tool_slice){.key = key};
    cut->index[at] = (uint32_t)++cut->n_slices;
    return &cut->slices[cut->n_slices - 1];
}

void fr_tool_slices_join(struct fr_tool_slices *slices, struct fr_tool_cut *cut, struct fr_tool_slice *slice)
{
    uint32_t sample = (uint32_t)(slices->n_samples - 1), number = (uint32_t)(slice - cut->slices);
    for (size_t i = cut->n_members; i > 0 && cut->members[i - 1].sample == sample; i--)
        if (cut->members[i - 1].slice == number)
            return;
    if (cut->n_members == cut->capacity_members) {
        cut->capacity_members = cut->capacity_members ? 2 * cut->capacity_members : FIRST;
        cut->members = fr_realloc(cut->members, cut->capacity_members, sizeof(*cut->members));
    }
    cut->members[cut->n_members++] = (struct fr_tool_member){number, sample};
    slice->samples++;
}

static int compare_slices(const void *left, const void *right)
{
    const struct fr_tool_slice *a = left, *b = right;
    if (a->samples != b->samples)
        return a->samples > b->samples ? -1 : 1;
    return strcmp(a->value, b->value);
}

static int compare_members(const void *left, const void *right)
{
    const struct fr_tool_member *a = left, *b = right;
    if (a->slice != b->slice)
        return a->slice < b->slice ? -1 : 1;
    return (a->sample > b->sample) - (a->sample < b->sample);
}

void fr_tool_slices_order(struct fr_tool_cut *cut)
{
    uint32_t *place = fr_alloc(cut->n_slices + 1, sizeof(*place));
    uint64_t *keys = fr_alloc(cut->n_slices + 1, sizeof(*keys));
    for (size_t i = 0; i < cut->n_slices; i++)
        keys[i] = cut->slices[i].key;
    if (cut->n_slices > 1)
        qsort(cut->slices, cut->n_slices, sizeof(*cut->slices), compare_slices);
    if (cut->index_size > 0)
        index_all(cut, cut->index_size);
    for (size_t i = 0; i < cut->n_slices; i++)
        place[i] = cut->index[place_of(cut, keys[i])] - 1;
    for (size_t i = 0; i < cut->n_members; i++)
        cut->members[i].slice = place[cut->members[i].slice];
    if (cut->n_members > 1)
        qsort(cut->members, cut->n_members, sizeof(*cut->members), compare_members);
    free(place);
    free(keys);
}

/* ---- results ---- */

/* A block of samples to be added to an accumulator. */
struct block {
    struct fr_auc *auc;
    size_t n;
    float scores[BLOCK], labels[BLOCK];
    double weights[BLOCK];
    int64_t t_ms[BLOCK];
};

static void flush(struct block *block)
{
    struct fr_auc_samples samples = {.count = block->n,
                                     .scores = block->scores,
                                     .labels = block->labels,
                                     .weights = block->weights,
                                     .t_ms = block->t_ms};
    fr_auc_add(block->auc, &samples);
    block->n = 0;
}

static void add_sample(struct block *block, const struct fr_tool_sample *sample)
{
    block->scores[block->n] = sample->score;
    block->labels[block->n] = sample->label;
    block->weights[block->n++] = sample->weight;
    if (block->n == BLOCK)
        flush(block);
}

static const struct fr_tool_member *first_of(const struct fr_tool_cut *cut, size_t place)
{
    size_t low = 0, high = cut->n_members;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (cut->members[middle].slice < place)
            low = middle + 1;
        else
            high = middle;
    }
    return &cut->members[low];
}

void fr_tool_slices_result(const struct fr_tool_slices *slices, uint32_t task, enum fr_auc_scores scores,
                           const struct fr_tool_cut *cut, size_t place, struct fr_auc_result *out)
{
    struct block *block = fr_alloc(1, sizeof(*block));
    block->auc = fr_auc_new(&(struct fr_auc_options){.scores = scores});
    if (!cut) {
        for (size_t i = 0; i < slices->n_samples; i++)
            add_sample(block, &slices->samples[i * slices->n_tasks + task]);
    } else {
        const struct fr_tool_member *member = first_of(cut, place);
        for (uint64_t i = 0; i < cut->slices[place].samples; i++)
            add_sample(block, &slices->samples[(size_t)member[i].sample * slices->n_tasks + task]);
    }
    flush(block);
    fr_auc_result(block->auc, -1, out);
    fr_auc_free(block->auc);
    free(block);
}
