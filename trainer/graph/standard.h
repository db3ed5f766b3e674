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
    /* [FR_LANE_TREE_DEPTH, 1 + 2 dim] counts and moments of lanes that wait to be merged; NULL:
     * there was no batch with several lanes */
    double *lanes;
};

/* Cuts x to FR_STANDARDIZE_LIMIT deviations around the mean, once both are known. */
static inline double fr_graph_cut(double x, double mean, double variance)
{
    double reach = (double)FR_STANDARDIZE_LIMIT * sqrt(variance + (double)FR_STANDARDIZE_EPSILON);
    return x < mean - reach ? mean - reach : x > mean + reach ? mean + reach : x;
}

/* Stages the moments after a batch with several lanes. `staged` are those before it. */
void fr_graph_stage_lanes(const struct graph_run *run, struct standard *s);

#endif
