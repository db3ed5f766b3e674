/* Numbers that the last step left in the graph, for GET /insight: outputs of the layers, and
 * gradients of parameters and rows. Nothing is changed or copied.
 *
 * Processor only: with a device (fr_graph_runs_beside) the host has none of it.
 *
 * Valid from fr_graph_train_finish, which must have made a step (fr_graph_shared_changes grew), to
 * the next forward pass. Thread: the graph's owner, while the pool is idle. */
#ifndef FR_GRAPH_STEP_VIEW_H
#define FR_GRAPH_STEP_VIEW_H

#include "graph/graph.h"

/* The output of a node. Row r has the floats [r * ld, r * ld + width) of `values`. */
struct fr_graph_output_view {
    uint32_t layer; /* the configured layer that the node was compiled from */
    /* A parameter of the product or of the other part of the layer that the node belongs to;
     * FR_NO_INDEX: that part has no parameters. */
    int32_t parameter;
    bool relu;     /* negative values are 0 */
    uint32_t rows; /* samples, groups, or steps */
    uint32_t width;
    size_t ld;
    const float *values;
};
/* Visits the nodes of the layers in the order of the forward pass: the last one of a layer or of a
 * part of it is its output. With dropout the values are those of the pass with masks. */
void fr_graph_visit_outputs(const struct fr_graph *graph,
                            void (*visit)(void *self, const struct fr_graph_output_view *output), void *self);

/* Returns the sum of squares of a parameter's gradient, which is summed over the batch's samples;
 * 0: nothing trains the parameter. */
double fr_graph_gradient_squares(const struct fr_graph *graph, size_t parameter);

/* Returns the largest magnitude in the gradient of a row, summed over the row's occurrences in the
 * batch; 0: there is no row, or nothing trains it. `unique` is the row's index in
 * rows->tables[table]. Where rows are summed with their interaction by pairs, the gradient is
 * computed with the row as it is after the step. */
float fr_graph_row_gradient(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                            uint32_t table, uint32_t unique);

/* Whether the network reads the slot. At any time. */
bool fr_graph_reads_slot(const struct fr_graph *graph, uint32_t slot);

#endif
