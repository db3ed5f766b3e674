/* Backward of every node: its gradient goes to its arguments, partial sums to its parameters.
 *
 * Most operations add to the gradients they are given; whoever is first to touch a buffer clears
 * the chunk's rows of it (settled when the variant was compiled). Owner thread: the graph's; a
 * chunk belongs to one worker. Does not: sum over chunks (backward.c). */
#include "passes.h"

#include <string.h>

void fr_graph_zero_gradients(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    const struct node_buffer *b = &graph->variant->buffers[node->buffer];
    memset(b->gradients + r.begin * b->ld, 0, r.count * b->ld * sizeof(float));
}

/* Where argument i's gradient is added, row 0 being `row` of its space; .values NULL when it is not
 * wanted. */
static struct fr_view wanted(const struct fr_graph *graph, const struct node *node, uint32_t i, uint32_t row)
{
    if (node->arguments[i].skip_gradient)
        return (struct fr_view){NULL, 0};
    return fr_node_gradients(graph->variant, fr_argument(graph, node, i), row);
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

/* This chunk's partial sum of a parameter, cleared. */
static float *partial(const struct node *node, uint32_t p, const struct chunk *c)
{
    float *sum = node->partials[p].values + (size_t)c->index * node->partials[p].n;
    memset(sum, 0, node->partials[p].n * sizeof(float));
    return sum;
}

static const float *parameter(const struct fr_graph *graph, const struct node *node, uint32_t p)
{
    return graph->parameters[node->partials[p].parameter].values;
}

/* Gives `gradient` to argument i as it is. */
static void pass_gradient(const struct fr_graph *graph, const struct node *node, uint32_t i, struct fr_view gradient,
                          struct rows r)
{
    if (node->arguments[i].skip_gradient)
        return;
    uint32_t width = fr_argument(graph, node, i)->width;
    struct fr_view to = wanted(graph, node, i, r.begin);
    if (node->arguments[i].accumulate)
        graph->ops->add(r.count, width, gradient, to);
    else
        graph->ops->copy(r.count, width, gradient, to);
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
    if (linear->relu)
        graph->ops->relu_backward(r.count, node->width, fr_node_values(graph->variant, node, r.begin), gradient);
    if (linear->bias)
        graph->ops->bias_gradient(r.real, node->width, gradient,
                                  node->partials[0].values + (size_t)c->index * linear->out);
    if (!node->arguments[0].skip_gradient) {
        struct fr_operand left = {gradient.values, gradient.ld, r.count, linear->out, false, NULL};
        struct fr_multiply product = {.left = &left,
                                      .right = &linear->weights_t,
                                      .row_end = r.count,
                                      .out = wanted(graph, node, 0, r.begin),
                                      .accumulate = node->arguments[0].accumulate};
        graph->ops->multiply(&product);
    }
    fr_graph_pack_gradients(graph, linear, r);
}

static void backward_activate(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    struct rows r = fr_rows_of(graph, node->space, c);
    struct fr_activate call = {
        .kind = node->activation,
        .m = r.real,
        .n = node->width,
        .x = values(graph, node, 0, r.begin),
        .y = fr_node_values(graph->variant, node, r.begin),
        .gradient = fr_node_gradients(graph->variant, node, r.begin),
        .x_gradient = wanted(graph, node, 0, r.begin),
    };
    if (node->n_partials > 0) {
        call.alpha = parameter(graph, node, 0);
        call.alpha_gradient = partial(node, 0, c);
    }
    if (node->mean != FR_NO_INDEX) {
        call.mean = graph->parameters[node->mean].values;
        call.variance = graph->parameters[node->variance].values;
    }
    graph->ops->activate_backward(&call);
}

static void backward_layer_norm(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    struct rows r = fr_rows_of(graph, node->space, c);
    graph->ops->layer_norm_backward(&(struct fr_layer_norm){
        .m = r.real,
        .n = node->width,
        .epsilon = FR_LAYER_NORM_EPSILON,
        .scale = parameter(graph, node, 0),
        .bias = parameter(graph, node, 1),
        .x = values(graph, node, 0, r.begin),
        .y = fr_node_values(graph->variant, node, r.begin),
        .moments = fr_node_extra(node, r.begin),
        .gradient = fr_node_gradients(graph->variant, node, r.begin),
        .x_gradient = wanted(graph, node, 0, r.begin),
        .scale_gradient = partial(node, 0, c),
        .bias_gradient = partial(node, 1, c),
    });
}

static void backward_bias(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    struct rows r = fr_rows_of(graph, node->space, c);
    graph->ops->bias_gradient(r.real, node->width, fr_node_gradients(graph->variant, node, r.begin),
                              partial(node, 0, c));
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
    struct fr_dropout call = fr_graph_dropout(graph, node, r);
    call.accumulate = node->arguments[0].accumulate;
    call.x = fr_node_gradients(graph->variant, node, r.begin);
    call.y = wanted(graph, node, 0, r.begin);
    graph->ops->dropout(&call);
}

static void backward_interaction(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    struct rows r = fr_rows_of(graph, node->space, c);
    struct fr_view gradient = fr_node_gradients(graph->variant, node, r.begin);
    struct fr_view *in = graph->views + (size_t)c->worker * 2 * graph->views_max;
    struct fr_view *in_gradient = in + graph->views_max;
    for (uint32_t i = 0; i < node->n_arguments; i++) {
        in[i] = values(graph, node, i, r.begin);
        in_gradient[i] = wanted(graph, node, i, r.begin);
    }
    if (node->kind == NODE_BI_INTERACTION) {
        graph->ops->bi_interaction_backward(r.count, node->width, node->n_arguments, in, gradient, in_gradient);
        return;
    }
    struct fr_interaction call = {.m = r.real,
                                  .n = fr_argument(graph, node, 0)->width,
                                  .count = node->n_arguments,
                                  .in = in,
                                  .out = gradient,
                                  .in_gradient = in_gradient};
    if (node->kind == NODE_MULTIPLY)
        graph->ops->product_backward(&call);
    else
        graph->ops->dot_interaction_backward(&call);
}

static void backward_cross(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    graph->ops->cross_backward(&(struct fr_cross){
        .m = r.real,
        .n = node->width,
        .x0 = values(graph, node, 0, r.begin),
        .t = values(graph, node, 1, r.begin),
        .x = values(graph, node, 2, r.begin),
        .out = fr_node_gradients(graph->variant, node, r.begin),
        .x0_gradient = wanted(graph, node, 0, r.begin),
        .t_gradient = wanted(graph, node, 1, r.begin),
        .x_gradient = wanted(graph, node, 2, r.begin),
    });
}

static void backward_mixture(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    graph->ops->mixture_backward(&(struct fr_mixture){
        .m = r.real,
        .n = node->width,
        .count = node->extra_width,
        .gates = values(graph, node, 0, r.begin),
        .experts = values(graph, node, 1, r.begin),
        .out = fr_node_values(graph->variant, node, r.begin),
        .weights = fr_node_extra(node, r.begin),
        .gradient = fr_node_gradients(graph->variant, node, r.begin),
        .gates_gradient = wanted(graph, node, 0, r.begin),
        .experts_gradient = wanted(graph, node, 1, r.begin),
    });
}

/* ---- sequences ---- */

static void backward_align(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    graph->ops->align_backward(&(struct fr_align){
        .to_begin = v->spaces[node->space].begin,
        .from_begin = v->spaces[fr_argument(graph, node, 0)->space].begin,
        .entry_begin = c->first,
        .entry_end = c->first + c->entries,
        .width = node->width,
        .to = fr_node_gradients(v, node, 0),
        .from = wanted(graph, node, 0, 0),
    });
}

static void backward_pool_steps(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    graph->ops->pool_steps_backward(&(struct fr_pool_steps){
        .steps = fr_steps_of(graph, fr_argument(graph, node, 0)->space, c),
        .kind = node->pooling,
        .width = node->width,
        .in = values(graph, node, 0, 0),
        .out = fr_node_gradients(graph->variant, node, c->first),
        .in_gradient = wanted(graph, node, 0, 0),
    });
}

static void backward_attention(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    switch (node->kind) {
    case NODE_ATTENTION_INPUT:
        graph->ops->attention_input_backward(
            &(struct fr_attention_input){.steps = fr_steps_of(graph, node->space, c),
                                         .width = fr_argument(graph, node, 1)->width,
                                         .query = values(graph, node, 0, c->first),
                                         .keys = values(graph, node, 1, 0),
                                         .out = fr_node_gradients(v, node, 0),
                                         .query_gradient = wanted(graph, node, 0, c->first),
                                         .keys_gradient = wanted(graph, node, 1, 0)});
        break;
    case NODE_SOFTMAX_STEPS:
        graph->ops->softmax_steps_backward(&(struct fr_softmax_steps){.steps = fr_steps_of(graph, node->space, c),
                                                                      .in = values(graph, node, 0, 0),
                                                                      .out = fr_node_values(v, node, 0),
                                                                      .gradient = fr_node_gradients(v, node, 0),
                                                                      .in_gradient = wanted(graph, node, 0, 0)});
        break;
    case NODE_ATTENTION_POOL:
        graph->ops->attention_pool_backward(
            &(struct fr_attention_pool){.steps = fr_steps_of(graph, fr_argument(graph, node, 1)->space, c),
                                        .width = node->width,
                                        .scores = values(graph, node, 0, 0),
                                        .keys = values(graph, node, 1, 0),
                                        .out = fr_node_gradients(v, node, c->first),
                                        .scores_gradient = wanted(graph, node, 0, 0),
                                        .keys_gradient = wanted(graph, node, 1, 0)});
        break;
    default:
        graph->ops->dot_steps_backward(&(struct fr_dot_steps){.steps = fr_steps_of(graph, node->space, c),
                                                              .width = fr_argument(graph, node, 0)->width,
                                                              .keys = values(graph, node, 0, 0),
                                                              .query = values(graph, node, 1, c->first),
                                                              .out = fr_node_gradients(v, node, 0),
                                                              .keys_gradient = wanted(graph, node, 0, 0),
                                                              .query_gradient = wanted(graph, node, 1, c->first)});
        break;
    }
}

static void backward_gru(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    struct fr_gru call = {
        .steps = fr_steps_of(graph, node->space, c),
        .units = node->width,
        .input = values(graph, node, 0, 0),
        .kernel = parameter(graph, node, 0),
        .bias = parameter(graph, node, 1),
        .states = fr_node_values(v, node, 0),
        .gates = fr_node_extra(node, 0),
        .workspace = graph->workspace + c->worker * graph->workspace_floats,
        .gradient = fr_node_gradients(v, node, 0),
        .input_gradient = wanted(graph, node, 0, 0),
        .kernel_gradient = partial(node, 0, c),
        .bias_gradient = partial(node, 1, c),
    };
    if (node->n_arguments > 1) {
        call.scores = values(graph, node, 1, 0);
        call.scores_gradient = wanted(graph, node, 1, 0);
    }
    graph->ops->gru_backward(&call);
}

/* ---- auxiliary losses ---- */

static void backward_loss(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    uint32_t loss = (uint32_t)node->loss;
    double *sum = &graph->loss_partial[(size_t)c->index * graph->conf->n_losses + loss];
    *sum = 0.0;
    if (graph->losses[graph->conf->n_tasks + loss].samples == 0)
        return;
    float scale = graph->conf->losses[loss].weight;
    if (node->kind == NODE_MSE_PAIR) {
        *sum = graph->ops->mse_pair(&(struct fr_mse_pair){.m = c->entries,
                                                          .n = fr_argument(graph, node, 0)->width,
                                                          .trained = graph->trained + c->first,
                                                          .scale = scale,
                                                          .a = values(graph, node, 0, c->first),
                                                          .b = values(graph, node, 1, c->first),
                                                          .a_gradient = wanted(graph, node, 0, c->first),
                                                          .b_gradient = wanted(graph, node, 1, c->first)});
        return;
    }
    struct fr_next_step call = {
        .states_steps = fr_steps_of(graph, fr_argument(graph, node, 0)->space, c),
        .positive_steps = fr_steps_of(graph, fr_argument(graph, node, 1)->space, c),
        .negative_steps = fr_steps_of(graph, fr_argument(graph, node, 2)->space, c),
        .width = fr_argument(graph, node, 0)->width,
        .trained = graph->trained,
        .scale = scale,
        .counts = graph->step_counts,
        .states = values(graph, node, 0, 0),
        .positives = values(graph, node, 1, 0),
        .negatives = values(graph, node, 2, 0),
        .states_gradient = wanted(graph, node, 0, 0),
        .positives_gradient = wanted(graph, node, 1, 0),
        .negatives_gradient = wanted(graph, node, 2, 0),
    };
    *sum = graph->ops->next_step(&call);
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
    case NODE_EXPAND: /* by the groups' chunks */
        break;
    case NODE_ALIGN:
        backward_align(graph, node, c);
        break;
    case NODE_CONCAT:
    case NODE_ADD:
        backward_copies(graph, node, r);
        break;
    case NODE_LINEAR:
        backward_linear(graph, node, c);
        break;
    case NODE_ACTIVATE:
        backward_activate(graph, node, c);
        break;
    case NODE_BIAS:
        backward_bias(graph, node, c);
        break;
    case NODE_LAYER_NORM:
        backward_layer_norm(graph, node, c);
        break;
    case NODE_DROPOUT:
        backward_dropout(run, node, c);
        break;
    case NODE_ROW_SUM:
        if (!node->arguments[0].skip_gradient)
            graph->ops->row_sum_backward(r.real, fr_argument(graph, node, 0)->width,
                                         fr_node_gradients(graph->variant, node, r.begin),
                                         wanted(graph, node, 0, r.begin));
        break;
    case NODE_BI_INTERACTION:
    case NODE_MULTIPLY:
    case NODE_DOT_INTERACTION:
        backward_interaction(graph, node, c);
        break;
    case NODE_CROSS:
        backward_cross(graph, node, r);
        break;
    case NODE_MIXTURE:
        backward_mixture(graph, node, r);
        break;
    case NODE_POOL_STEPS:
        backward_pool_steps(graph, node, c);
        break;
    case NODE_ATTENTION_INPUT:
    case NODE_SOFTMAX_STEPS:
    case NODE_ATTENTION_POOL:
    case NODE_DOT_STEPS:
        backward_attention(graph, node, c);
        break;
    case NODE_GRU:
        backward_gru(graph, node, c);
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
    /* of an expansion its argument, of a product in two parts the groups' */
    uint32_t i = node->n_arguments - 1;
    if (node->arguments[i].skip_gradient)
        return;
    clear_first(graph, node, i, c);
    const struct space *space = &v->spaces[node->space];
    struct fr_view in = fr_node_gradients(v, node, 0), out = wanted(graph, node, i, 0);
    if (space->from == FR_NO_INDEX) {
        graph->ops->collapse(
            &(struct fr_collapse){run->batch->group_begin, c->first, c->first + c->entries, node->width, in, out});
        return;
    }
    graph->ops->collapse_steps(&(struct fr_collapse_steps){
        .group_begin = run->batch->group_begin,
        .steps_begin = v->spaces[space->from].begin,
        .expanded_begin = space->begin,
        .begin = c->first,
        .end = c->first + c->entries,
        .width = node->width,
        .in = in,
        .out = out,
    });
}
