/* See graph/step_view.h. Row gradients are in update.c, which has what they are computed of.
 * Owner thread: the graph's. */
#include "graph/step_view.h"

#include "passes.h"

/* Returns a parameter of the part of a layer that the node belongs to. A node without parameters of
 * its own, such as an activation, belongs to the part whose output it reads. */
static int32_t parameter_of(const struct variant *v, const struct node *node)
{
    if (node->kind == NODE_LINEAR)
        return (int32_t)v->linears[node->linear].kernel;
    if (node->n_partials > 0)
        return (int32_t)node->partials[0].parameter;
    if (node->kind != NODE_ACTIVATE || node->n_arguments == 0)
        return FR_NO_INDEX;
    const struct node *from = &v->nodes[node->arguments[0].node];
    return from->layer == node->layer ? parameter_of(v, from) : FR_NO_INDEX;
}

static bool has_relu(const struct variant *v, const struct node *node)
{
    return node->kind == NODE_LINEAR ? v->linears[node->linear].relu : fr_node_has_relu(node);
}

void fr_graph_visit_outputs(const struct fr_graph *graph,
                            void (*visit)(void *self, const struct fr_graph_output_view *output), void *self)
{
    const struct variant *v = graph->variant;
    for (uint32_t n = 0; n < v->n_nodes; n++) {
        const struct node *node = &v->nodes[n];
        bool written = node->kind != NODE_POOLED || !fr_sums_of(v, node);
        if (node->layer == FR_NO_INDEX || node->width == 0 || !written)
            continue;
        struct fr_view values = fr_node_values(v, node, 0);
        visit(self, &(struct fr_graph_output_view){
                        .layer = (uint32_t)node->layer,
                        .parameter = parameter_of(v, node),
                        .relu = has_relu(v, node),
                        .rows = v->spaces[node->space].rows,
                        .width = node->width,
                        .ld = values.ld,
                        .values = values.values,
                    });
    }
}

double fr_graph_gradient_squares(const struct fr_graph *graph, size_t parameter)
{
    const struct parameter_state *state = &graph->parameter_states[parameter];
    return state->moves && state->gradient
               ? graph->ops->sum_squares(graph->parameters[parameter].n_values, state->gradient)
               : 0.0;
}

bool fr_graph_reads_slot(const struct fr_graph *graph, uint32_t slot)
{
    return fr_bit(graph->slots_read, slot);
}
