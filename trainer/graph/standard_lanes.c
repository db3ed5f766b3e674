/* Statistics of standardized slots over a batch with several lanes.
 *
 * Moments of samples taken one after another (statistics.c) cannot be joined, because each sample
 * is cut by the moments before it. Here the samples of each lane make moments of their own, from
 * zero, cut by the mean and the variance before the batch, which are the same for all lanes. Lanes
 * are merged by their tree (ops/lane_tree.h), and the result is merged into the moments. If their
 * count would exceed FR_EFFECTIVE_COUNT_MAX, the moments before the batch first lose the weight of
 * the samples that are too many, as they do when samples are taken one by one.
 *
 * Sources: Welford 1962; Chan, Golub and LeVeque 1983. Owner thread: the graph's; a slot belongs to
 * one worker. Values are not standardized here. */
#include "standard.h"

#include <string.h>

/* Adds the moments of n samples to those of *count samples. The order of both matters to the bits.
 * Chan, Golub and LeVeque 1983. */
static void merge_moments(uint32_t dim, double *count, double *moments, double n, const double *added)
{
    double all = *count + n;
    if (n == 0.0)
        return;
    for (uint32_t j = 0; j < dim; j++) {
        double delta = added[j] - moments[j];
        moments[j] += delta * (n / all);
        moments[dim + j] += added[dim + j] + delta * delta * (*count * (n / all));
    }
    *count = all;
}

/* Moments of lanes: for each sum that waits [1 + 2 dim] numbers, the first of which is the number
 * of samples. */
struct lane_moments {
    struct fr_lane_tree tree;
    uint32_t dim;
    double *first, *more;
};

static struct lane_moments moments_into(struct standard *s, double *result)
{
    if (!s->waiting)
        s->waiting = fr_alloc((FR_LANE_TREE_DEPTH - 1) * (1 + 2 * (size_t)s->dim), sizeof(*s->waiting));
    return (struct lane_moments){.dim = s->dim, .first = result, .more = s->waiting};
}

static double *waiting_moments(const struct lane_moments *lanes, uint32_t at)
{
    return at == 0 ? lanes->first : lanes->more + (at - 1) * (1 + 2 * (size_t)lanes->dim);
}

static void merge_lanes(struct lane_moments *lanes, uint32_t next)
{
    for (uint32_t at; (at = fr_lane_tree_join(&lanes->tree, next)) > 0;) {
        double *left = waiting_moments(lanes, at - 1), *right = waiting_moments(lanes, at);
        merge_moments(lanes->dim, left, left + 1, right[0], right + 1);
    }
}

/* Adds a sample to the moments of its lane. */
static void add_to_lane(const struct standard *s, const float *x, double *count, double *moments)
{
    bool missing = isnan(x[0]), known = s->count >= (double)FR_STANDARDIZE_COUNT_MIN;
    if (missing && isnan(s->missing))
        return;
    *count += 1.0;
    for (uint32_t j = 0; j < s->dim; j++) {
        double v = missing ? (double)s->missing : (double)x[j];
        if (known)
            v = fr_graph_cut(v, s->moments[j], s->moments[s->dim + j] / s->count);
        double delta = v - moments[j];
        moments[j] += delta / *count;
        moments[s->dim + j] += delta * (v - moments[j]);
    }
}

static void sum_span(const struct graph_run *run, struct standard *s, uint32_t span)
{
    const struct fr_graph *graph = run->graph;
    const struct fr_column *column = &run->batch->columns[s->slot];
    const struct lane_begin *begin = graph->lanes.begin[LEVEL_SAMPLE];
    struct fr_lane_span in = fr_span_of(&graph->lanes, span);
    struct lane_moments lanes = moments_into(s, fr_span_numbers(&graph->sums, span) + s->at);
    for (uint32_t lane = in.first; lane < in.end; lane++) {
        if (begin[lane + 1].entry == begin[lane].entry)
            continue;
        merge_lanes(&lanes, lane);
        double *moments = waiting_moments(&lanes, fr_lane_tree_push(&lanes.tree, lane));
        memset(moments, 0, (1 + 2 * (size_t)s->dim) * sizeof(*moments));
        for (uint32_t i = begin[lane].entry; i < begin[lane + 1].entry; i++)
            if (graph->trained[i])
                add_to_lane(s, column->dense + (size_t)(column->shared ? run->batch->group_of[i] : i) * s->dim, moments,
                            moments + 1);
    }
    merge_lanes(&lanes, FR_LANES_MAX);
}

void fr_graph_sum_standard(const struct graph_run *run, struct standard *s)
{
    for (uint32_t span = 0; span < run->graph->lanes.n_spans; span++)
        if (fr_span_present(&run->graph->lanes, span))
            sum_span(run, s, span);
}

void fr_graph_join_standard(struct fr_graph *graph, struct standard *s, const struct sent_spans *sent)
{
    struct lane_moments lanes = moments_into(s, graph->sums.joined + s->at);
    for (uint32_t i = 0; i < sent->n; i++) {
        merge_lanes(&lanes, sent->lanes[i]);
        double *moments = waiting_moments(&lanes, fr_lane_tree_push(&lanes.tree, sent->lanes[i]));
        memcpy(moments, sent->numbers[i] + s->at * sizeof(*moments), (1 + 2 * (size_t)s->dim) * sizeof(*moments));
    }
    merge_lanes(&lanes, FR_LANES_MAX);
}

void fr_graph_stage_lanes(const struct fr_graph *graph, struct standard *s)
{
    const double *joined = graph->sums.joined + s->at;
    double added = joined[0], kept = FR_EFFECTIVE_COUNT_MAX - added;
    if (s->staged_count > kept) {
        for (uint32_t j = 0; j < s->dim; j++)
            s->staged[s->dim + j] *= kept / s->staged_count;
        s->staged_count = kept;
    }
    merge_moments(s->dim, &s->staged_count, s->staged, added, joined + 1);
}
