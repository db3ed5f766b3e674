/* Pairs of ranking tasks: which samples of a group are compared, and their losses, group by group
 * on the pool.
 *
 * A pair is two samples of one group that are trained, labelled y_i > y_j and of weight > 0. If
 * samples are sorted by label, the samples that sample i is compared with are a prefix of the
 * order, so pairs are counted without being listed:
 *
 *   order   3 7 | 1 2 8 | 5        samples 3 and 7 have the smallest label
 *   lower   0 0   2 2 2   5        pairs: 0 + 0 + 2 + 2 + 2 + 5 = 11
 *
 * In a group with more than FR_GROUP_PAIRS_MAX pairs, a sample is compared with only as many
 * samples of its prefix as keep the group within the bound. They are evenly spread over the
 * prefix, shifted from sample to sample (fr_pair_partner), and represent the whole prefix.
 * Drawing at random was rejected (it needs another number in the state), and so was dropping
 * samples (each has its own gradient).
 *
 * A task of the pool computes whole groups: those that begin in one block of FR_PAIR_SAMPLES
 * samples of a lane. Gradients of groups are disjoint, sums are joined by group and by block in
 * order and then by the tree of lanes (lanes.h), so numbers do not depend on the number of
 * workers.
 *
 * Owner thread: the graph's; a block belongs to one worker. Samples of different groups are
 * never compared. */
#include "learning.h"
#include "passes.h"

#include <math.h>
#include <string.h>

enum { FR_PAIR_RUN = 8 }; /* runs of this length are sorted by insertion before merging */

/* ---- one group in the order of its labels ---- */

static void sort_run(const float *labels, uint32_t *order, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t sample = order[i], at = i;
        for (; at > 0 && labels[order[at - 1]] > labels[sample]; at--)
            order[at] = order[at - 1];
        order[at] = sample;
    }
}

static void merge_runs(const float *labels, const uint32_t *from, uint32_t *to, uint32_t middle, uint32_t end)
{
    uint32_t a = 0, b = middle;
    for (uint32_t i = 0; i < end; i++)
        to[i] = b == end || (a < middle && labels[from[a]] <= labels[from[b]]) ? from[a++] : from[b++];
}

/* Sorts by ascending label and keeps the order of equal labels: a merge sort that begins with
 * short runs. `scratch` [n]. */
static void sort_by_label(const float *labels, uint32_t *order, uint32_t *scratch, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += FR_PAIR_RUN)
        sort_run(labels, order + i, n - i < FR_PAIR_RUN ? n - i : FR_PAIR_RUN);
    uint32_t *from = order, *to = scratch;
    for (uint32_t size = FR_PAIR_RUN; size < n; size *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * size) {
            uint32_t end = n - i < 2 * size ? n - i : 2 * size;
            merge_runs(labels, from + i, to + i, end < size ? end : size, end);
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order)
        memcpy(order, from, n * sizeof(*order));
}

/* ---- blocks of groups ---- */

struct pair_run {
    const struct graph_run *run;
    uint32_t task;
    const float *labels, *weights;
    uint32_t begin[FR_LANES_MAX + 1]; /* the first block of each lane */
};

/* Finds the groups [*begin, *end) that begin in block `index` of samples; an empty group may be
 * in no block. */
static void groups_of_block(const struct pair_run *p, size_t index, uint32_t *begin, uint32_t *end)
{
    const struct fr_batch *batch = p->run->batch;
    const struct lanes *lanes = &p->run->graph->lanes;
    uint32_t lane = 0, bounds[2];
    while (p->begin[lane + 1] <= index)
        lane++;
    for (uint32_t i = 0; i < 2; i++) {
        size_t first = lanes->begin[LEVEL_SAMPLE][lane].entry + (index - p->begin[lane] + i) * FR_PAIR_SAMPLES;
        bool within = first < lanes->begin[LEVEL_SAMPLE][lane + 1].entry;
        bounds[i] = within ? batch->group_of[first] : fr_batch_lane_begin(batch, lane + 1);
        if (within && batch->group_begin[bounds[i]] < first)
            bounds[i]++;
    }
    *begin = bounds[0];
    *end = bounds[1];
}

/* Orders the samples of group g that count. Marks them if they are part of a pair, and adds the
 * number of pairs to *pairs. */
static struct pair_group order_group(const struct pair_run *p, uint32_t g, uint64_t *pairs)
{
    const struct fr_graph *graph = p->run->graph;
    const struct task_pairs *task = &graph->tasks[p->task].pairs;
    uint32_t begin = p->run->batch->group_begin[g], end = p->run->batch->group_begin[g + 1];
    uint32_t *order = task->order + begin, *lower = task->lower + begin, n = 0, higher = 0;
    uint64_t count = 0;
    for (uint32_t i = begin; i < end && end - begin > 1; i++)
        if (graph->trained[i] && !isnan(p->labels[i]) && p->weights[i] > 0.0f)
            order[n++] = i;
    sort_by_label(p->labels, order, lower, n);
    for (uint32_t i = 0; i < n; i++) {
        bool equal = i > 0 && p->labels[order[i]] == p->labels[order[i - 1]];
        lower[i] = equal ? lower[i - 1] : i;
        count += lower[i];
        higher += lower[i] > 0;
    }
    if (count == 0)
        return (struct pair_group){0};
    /* all are part of a pair: for the lowest there is a higher label, for the others a lower one */
    for (uint32_t i = 0; i < n; i++)
        graph->sample_losses[order[i]] |= 1u << p->task;
    *pairs += count;
    uint32_t each = FR_GROUP_PAIRS_MAX / higher;
    return (struct pair_group){.n = n,
                               .partners = count <= FR_GROUP_PAIRS_MAX ? n
                                           : each > 0                  ? each
                                                                       : 1,
                               .scale = (float)((double)n / (double)count)};
}

static void order_block(void *context, size_t index, size_t worker)
{
    const struct pair_run *p = context;
    struct fr_graph *graph = p->run->graph;
    struct fr_graph_loss counted = {0};
    uint32_t begin, end;
    (void)worker;
    groups_of_block(p, index, &begin, &end);
    for (uint32_t g = begin; g < end; g++) {
        graph->tasks[p->task].pairs.groups[g] = order_group(p, g, &counted.pairs);
        counted.samples += graph->tasks[p->task].pairs.groups[g].n;
    }
    graph->pair_blocks[index] = counted;
}

static void loss_block(void *context, size_t index, size_t worker)
{
    const struct pair_run *p = context;
    struct fr_graph *graph = p->run->graph;
    const struct task_pairs *pairs = &graph->tasks[p->task].pairs;
    const struct output *output = &graph->outputs[graph->tasks[p->task].output];
    double sum = 0.0;
    uint32_t begin, end;
    (void)worker;
    groups_of_block(p, index, &begin, &end);
    for (uint32_t g = begin; g < end; g++) {
        const struct pair_group *group = &pairs->groups[g];
        uint32_t first = p->run->batch->group_begin[g];
        if (group->n == 0)
            continue;
        sum += graph->ops->pairwise(&(struct fr_pair_loss){.n = group->n,
                                                           .order = pairs->order + first,
                                                           .lower = pairs->lower + first,
                                                           .partners = group->partners,
                                                           .group_scale = group->scale,
                                                           .scale = graph->conf->tasks[p->task].weight,
                                                           .z = output->values,
                                                           .weights = p->weights,
                                                           .gradient = output->gradient,
                                                           .sums = graph->pair_sums + first});
    }
    graph->pair_blocks[index].sum = sum;
}

/* On a device, which has no blocks: one call for each group, whose sum has a word of its own. */
static void device_losses(const struct pair_run *p)
{
    const struct graph_run *run = p->run;
    const struct fr_graph *graph = run->graph;
    const struct fr_conf_task *task = &graph->conf->tasks[p->task];
    const struct task_pairs *pairs = &graph->tasks[p->task].pairs;
    const struct output *output = &graph->outputs[graph->tasks[p->task].output];
    size_t bytes = graph->n_samples * sizeof(uint32_t);
    const uint32_t *order = fr_graph_array(graph, pairs->order, bytes);
    const uint32_t *lower = fr_graph_array(graph, pairs->lower, bytes);
    for (uint32_t g = 0; g < run->batch->n_groups; g++) {
        const struct pair_group *group = &pairs->groups[g];
        uint32_t first = run->batch->group_begin[g];
        struct fr_pair_loss loss = {.n = group->n,
                                    .order = order + first,
                                    .lower = lower + first,
                                    .partners = group->partners,
                                    .group_scale = group->scale,
                                    .scale = task->weight,
                                    .z = output->values,
                                    .weights = fr_graph_at_weights(run, task),
                                    .gradient = output->gradient};
        if (group->n > 0)
            graph->device->ops->pairwise(graph->device->queue, fr_graph_device_pair_sum(graph->device, p->task, g),
                                         &loss);
    }
}

static struct pair_run pairs_of(const struct graph_run *run, uint32_t t)
{
    const struct fr_conf_task *conf = &run->graph->conf->tasks[t];
    const struct lanes *lanes = &run->graph->lanes;
    struct pair_run p = {
        .run = run, .task = t, .labels = fr_graph_labels_of(run, conf), .weights = fr_graph_weights_of(run, conf)};
    for (uint32_t lane = 0; lane < lanes->n; lane++)
        p.begin[lane + 1] = p.begin[lane] + fr_blocks_of(fr_lane_entries(lanes, LEVEL_SAMPLE, lane), FR_PAIR_SAMPLES);
    return p;
}

struct fr_graph_loss fr_graph_order_pairs(const struct graph_run *run, uint32_t t)
{
    struct fr_graph_loss all = {0};
    struct pair_run p = pairs_of(run, t);
    uint32_t blocks = p.begin[run->graph->lanes.n];
    fr_graph_run_tasks(run->graph, blocks, order_block, &p);
    for (uint32_t b = 0; b < blocks; b++) {
        all.samples += run->graph->pair_blocks[b].samples;
        all.pairs += run->graph->pair_blocks[b].pairs;
    }
    return all;
}

/* Joins the sums of the blocks over the lanes of a span. */
static double join_pair_blocks(const struct pair_run *p, uint32_t span)
{
    const struct fr_graph *graph = p->run->graph;
    struct fr_lane_span lanes = fr_span_of(&graph->lanes, span);
    struct fr_lane_sum all = {0};
    for (uint32_t lane = lanes.first; lane < lanes.end; lane++) {
        double sum = 0.0;
        for (uint32_t b = p->begin[lane]; b < p->begin[lane + 1]; b++)
            sum += graph->pair_blocks[b].sum;
        if (p->begin[lane + 1] > p->begin[lane])
            fr_lane_sum_add(&all, lane, sum);
    }
    return fr_lane_sum_total(&all);
}

void fr_graph_pair_losses(const struct graph_run *run, uint32_t t)
{
    const struct fr_graph *graph = run->graph;
    if (graph->device) {
        device_losses(&(struct pair_run){.run = run, .task = t});
        return; /* the sums come with the device's answer */
    }
    struct pair_run p = pairs_of(run, t);
    fr_graph_run_tasks(graph, p.begin[graph->lanes.n], loss_block, &p);
    for (uint32_t s = 0; s < graph->lanes.n_spans; s++)
        fr_span_numbers(&graph->sums, s)[t] = join_pair_blocks(&p, s);
}
