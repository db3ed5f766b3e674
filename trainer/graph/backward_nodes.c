/* The backward pass of every node: the node's gradient is passed to its arguments, and partial
 * sums to its parameters.
 *
 * Most operations add to the gradients they are given. The first operation that writes to a buffer
 * clears the chunk's rows of it (decided when the variant is compiled).
 *
 * Owner thread: the graph's; a chunk belongs to one worker. Sums over chunks are in
 * backward_kernels.c. */
#include "passes.h"

#include <string.h>

void fr_graph_zero_gradients(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    const struct node_buffer *b = &graph->variant->buffers[node->buffer];
    fr_graph_clear(graph, b->gradients + r.begin * b->ld, r.count * b->ld * sizeof(float));
}

static void clear_first(const struct fr_graph *graph, const struct node *node, uint32_t i, const struct chunk *c)
{
    const struct argument *argument = &node->arguments[i];
    const struct node *from = &graph->variant->nodes[argument->node];
    if (!argument->skip_gradient && argument->zero_buffer)
        fr_graph_zero_gradients(graph, from, fr_rows_of(graph, from->space, c));
}

static struct fr_view values(const struct fr_graph *graph, const struct node *node, uint32_t i, uint32_t row)
{
    return fr_node_values(graph->variant, fr_argument(graph, node, i), row);
}

/* Adds `gradient` unchanged to the gradient of argument i. */
static void pass_gradient(const struct fr_graph *graph, const struct node *node, uint32_t i, struct fr_view gradient,
                          struct rows r)
{
    if (node->arguments[i].skip_gradient)
        return;
    uint32_t width = fr_argument(graph, node, i)->width;
    struct fr_view to = fr_node_wanted(graph, node, i, r.begin);
    if (node->arguments[i].accumulate)
        FR_RUN(graph, add, r.count, width, gradient, to);
    else
        FR_RUN(graph, copy, r.count, width, gradient, to);
}

static void backward_copies(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    struct fr_view gradient = fr_node_gradients(graph->variant, node, r.begin);
    for (uint32_t i = 0; i < node->n_arguments; i++) {
        pass_gradient(graph, node, i, gradient, r);
        if (node->kind == NODE_CONCAT)
            gradient.values += fr_argument(graph, node, i)->width;
    }
}

static void backward_linear(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct linear *linear = &graph->variant->linears[node->linear];
    struct rows r = fr_rows_of(graph, node->space, c);
    struct fr_view gradient = fr_node_gradients(graph->variant, node, r.begin);
    if (linear->relu && !node->gated)
        FR_RUN(graph, relu_backward, r.count, node->width, fr_node_values(graph->variant, node, r.begin), gradient);
    if (linear->bias)
        FR_RUN(graph, bias_gradient, r.real, node->width, gradient,
               node->partials[0].values + (size_t)c->index * linear->out);
    if (!node->arguments[0].skip_gradient) {
        struct fr_operand left = {gradient.values, gradient.ld, r.count, linear->out, false, NULL};
        struct fr_multiply product = {.left = &left,
                                      .right = &linear->weights_t,
                                      .row_end = r.count,
                                      .out = fr_node_wanted(graph, node, 0, r.begin),
                                      .accumulate = node->arguments[0].accumulate};
        const struct node *from = fr_argument(graph, node, 0);
        if (from->gated)
            product.gate = fr_node_values(graph->variant, from, r.begin);
        fr_graph_multiply_chunk(graph, node, c, &product);
    }
    fr_graph_pack_gradients(graph, linear, c);
}

static void backward_bias(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    struct rows r = fr_rows_of(graph, node->space, c);
    FR_RUN(graph, bias_gradient, r.real, node->width, fr_node_gradients(graph->variant, node, r.begin),
           fr_node_partial(graph, node, 0, c));
    backward_copies(graph, node, r);
}

static void backward_dropout(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    struct rows r = fr_rows_of(graph, node->space, c);
    if (graph->conf->layers[node->layer].rate <= 0.0f) {
        backward_copies(graph, node, r);
        return;
    }
    if (node->arguments[0].skip_gradient)
        return;
    struct fr_dropout call = fr_graph_dropout(graph, node, c);
    call.accumulate = node->arguments[0].accumulate;
    call.x = fr_node_gradients(graph->variant, node, r.begin);
    call.y = fr_node_wanted(graph, node, 0, r.begin);
    FR_RUN(graph, dropout, &call);
}

/* ---- auxiliary losses ---- */

static void backward_loss(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    uint32_t loss = (uint32_t)node->loss;
    uint32_t number = graph->conf->n_tasks + loss;
    double *sum = &graph->loss_partial[(size_t)c->index * graph->conf->n_losses + loss];
    *sum = 0.0;
    if (graph->losses[number].samples == 0)
        return;
    float scale = graph->conf->losses[loss].weight;
    if (node->kind == NODE_MSE_PAIR) {
        struct fr_mse_pair call = {.m = c->entries,
                                   .n = fr_argument(graph, node, 0)->width,
                                   .trained = fr_graph_at_trained(graph) + c->first,
                                   .scale = scale,
                                   .a = values(graph, node, 0, c->first),
                                   .b = values(graph, node, 1, c->first),
                                   .a_gradient = fr_node_wanted(graph, node, 0, c->first),
                                   .b_gradient = fr_node_wanted(graph, node, 1, c->first)};
        *sum = FR_SUM(graph, number, mse_pair, &call);
        return;
    }
    struct fr_next_step call = {
        .states_steps = fr_steps_of(graph, fr_argument(graph, node, 0)->space, c),
        .positive_steps = fr_steps_of(graph, fr_argument(graph, node, 1)->space, c),
        .negative_steps = fr_steps_of(graph, fr_argument(graph, node, 2)->space, c),
        .width = fr_argument(graph, node, 0)->width,
        .trained = fr_graph_at_trained(graph),
        .scale = scale,
        .counts = fr_graph_at_counts(graph),
        .states = values(graph, node, 0, 0),
        .positives = values(graph, node, 1, 0),
        .negatives = values(graph, node, 2, 0),
        .states_gradient = fr_node_wanted(graph, node, 0, 0),
        .positives_gradient = fr_node_wanted(graph, node, 1, 0),
        .negatives_gradient = fr_node_wanted(graph, node, 2, 0),
    };
    *sum = FR_SUM(graph, number, next_step, &call);
}

/* ---- dispatch ---- */

void fr_graph_backward_node(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    struct rows r = fr_rows_of(graph, node->space, c);
    uint32_t own_level = node->kind == NODE_EXPAND ? 0 : node->kind == NODE_LINEAR ? 1 : node->n_arguments;
    for (uint32_t i = 0; i < own_level; i++)
        clear_first(graph, node, i, c);
    switch (node->kind) {
    case NODE_POOLED:
    case NODE_SEQUENCE:
    case NODE_DENSE:
    case NODE_EXPAND: /* the chunks of groups do this */
        break;
    case NODE_CONCAT:
    case NODE_ADD:
        backward_copies(graph, node, r);
        break;
    case NODE_LINEAR:
        backward_linear(graph, node, c);
        break;
    case NODE_BIAS:
        backward_bias(graph, node, c);
        break;
    case NODE_DROPOUT:
        backward_dropout(run, node, c);
        break;
        FR_CALLED_NODES(FR_KIND_CASE)
        fr_graph_call_node(graph, node, c, true);
        break;
    case NODE_MSE_PAIR:
    case NODE_NEXT_STEP:
        backward_loss(run, node, c);
        break;
    }
}

void fr_graph_backward_collapse(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    /* the argument of an expansion; of a product in two parts, the groups' part */
    uint32_t i = node->n_arguments - 1;
    if (node->arguments[i].skip_gradient)
        return;
    clear_first(graph, node, i, c);
    const struct space *space = &v->spaces[node->space];
    struct fr_view in = fr_node_gradients(v, node, 0), out = fr_node_wanted(graph, node, i, 0);
    if (space->from == FR_NO_INDEX) {
        FR_RUN(
            graph, collapse,
            &(struct fr_collapse){run->at_batch->group_begin, c->first, c->first + c->entries, node->width, in, out});
        return;
    }
    FR_RUN(graph, collapse_steps,
           &(struct fr_collapse_steps){
               .group_begin = run->at_batch->group_begin,
               .steps_begin = v->spaces[space->from].at_begin,
               .expanded_begin = space->at_begin,
               .begin = c->first,
               .end = c->first + c->entries,
               .width = node->width,
               .in = in,
               .out = out,
           });
}
