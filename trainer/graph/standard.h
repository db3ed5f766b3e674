/* The moments of a standardized slot (statistics.c, standard_lanes.c). Private to these two.
 * Owner thread: the graph's; a slot belongs to one worker. */
#ifndef FR_GRAPH_STANDARD_H
#define FR_GRAPH_STANDARD_H

#include <math.h>

#include "network.h"

/* Samples that the moments represent at most; older ones fade. */
#define FR_EFFECTIVE_COUNT_MAX 1e7

/* A standardized slot. */
struct standard {
    /* mean: the parameter; the next two parameters are variance and count */
    uint32_t slot, dim, mean;
    float missing; /* what a missing value counts as; NaN: it does not count */
    double count, staged_count;
    double *moments, *staged; /* [2 dim] mean, then M2 */
    /* where in the numbers of a span (struct span_sums) the 1 + 2 dim of its samples begin: how
     * many, then their moments */
    size_t at;
    /* [FR_LANE_TREE_DEPTH - 1, 1 + 2 dim] the same of lanes that wait to be merged; NULL: there
     * was no batch with several lanes */
    double *waiting;
};

/* Cuts x to FR_STANDARDIZE_LIMIT deviations around the mean, once both are known. */
static inline double fr_graph_cut(double x, double mean, double variance)
{
    double reach = (double)FR_STANDARDIZE_LIMIT * sqrt(variance + (double)FR_STANDARDIZE_EPSILON);
    return x < mean - reach ? mean - reach : x > mean + reach ? mean + reach : x;
}

/* For a batch with several lanes. Computes the numbers of the slot for each span that has
 * samples. */
void fr_graph_sum_standard(const struct graph_run *run, struct standard *s);
/* Joins the numbers of the slot of all ranks into the joined ones. */
void fr_graph_join_standard(struct fr_graph *graph, struct standard *s, const struct sent_spans *sent);
/* Merges the joined numbers into the staged moments, which are those before the batch. */
void fr_graph_stage_lanes(const struct fr_graph *graph, struct standard *s);

#endif
