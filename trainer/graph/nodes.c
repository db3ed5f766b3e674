/* Nodes that are one call of an operation, forward or backward: the arguments of the call are set
 * in one place for both directions.
 *
 * Gradients are views without values in the forward pass, and where no gradient is wanted. The
 * forward pass also runs on padding rows where products do (rows_independent); the backward pass
 * runs on real rows only.
 *
 * Owner thread: the graph's; a chunk belongs to one worker. Nothing is allocated, and no
 * gradient is cleared except the partial sums of the node itself. */
#include "passes.h"

#include <string.h>

/* One node in one pass. */
struct pass {
    const struct fr_graph *graph;
    const struct node *node;
    const struct chunk *c;
    struct rows r;
    uint32_t m; /* the number of rows of vectors */
    bool backward;
};

/* Returns row `row` of argument i, counted from the beginning of its space. */
static struct fr_view argument(const struct pass *p, uint32_t i, uint32_t row)
{
    return fr_node_values(p->graph->variant, fr_argument(p->graph, p->node, i), row);
}

static struct fr_view wanted(const struct pass *p, uint32_t i, uint32_t row)
{
    return p->backward ? fr_node_wanted(p->graph, p->node, i, row) : (struct fr_view){NULL, 0};
}

static struct fr_view values(const struct pass *p, uint32_t row)
{
    return fr_node_values(p->graph->variant, p->node, row);
}

static struct fr_view gradient(const struct pass *p, uint32_t row)
{
    return p->backward ? fr_node_gradients(p->graph->variant, p->node, row) : (struct fr_view){NULL, 0};
}

/* Returns the output in the forward pass and its gradient in the backward pass, for operations
 * that have one argument for both. */
static struct fr_view output(const struct pass *p, uint32_t row)
{
    return p->backward ? gradient(p, row) : values(p, row);
}

static uint32_t width_of(const struct pass *p, uint32_t i)
{
    return fr_argument(p->graph, p->node, i)->width;
}

static struct fr_steps steps_of(const struct pass *p, uint32_t i)
{
    return fr_steps_of(p->graph, fr_argument(p->graph, p->node, i)->space, p->c);
}

static const float *parameter(const struct pass *p, uint32_t i)
{
    return p->graph->places[p->node->partials[i].parameter].values;
}

static float *partial(const struct pass *p, uint32_t i)
{
    return p->backward ? fr_node_partial(p->graph, p->node, i, p->c) : NULL;
}

#define FR_EITHER(p, back, forth, call)                                                                                \
    do {                                                                                                               \
        if ((p)->backward)                                                                                             \
            FR_RUN((p)->graph, back, call);                                                                            \
        else                                                                                                           \
            FR_RUN((p)->graph, forth, call);                                                                           \
    } while (0)

/* ---- vectors ---- */

static void call_activate(const struct pass *p)
{
    const struct node *node = p->node;
    struct fr_activate call = {
        .kind = node->activation,
        .m = p->m,
        .n = node->width,
        .x = argument(p, 0, p->r.begin),
        .y = values(p, p->r.begin),
        .gradient = gradient(p, p->r.begin),
        .x_gradient = wanted(p, 0, p->r.begin),
    };
    if (node->n_partials > 0) {
        call.alpha = parameter(p, 0);
        call.alpha_gradient = partial(p, 0);
    }
    if (node->mean != FR_NO_INDEX) {
        call.mean = p->graph->places[node->mean].values;
        call.variance = p->graph->places[node->variance].values;
    }
    FR_EITHER(p, activate_backward, activate, &call);
}

static void call_layer_norm(const struct pass *p)
{
    struct fr_layer_norm call = {
        .m = p->m,
        .n = p->node->width,
        .epsilon = FR_LAYER_NORM_EPSILON,
        .scale = parameter(p, 0),
        .bias = parameter(p, 1),
        .x = argument(p, 0, p->r.begin),
        .y = values(p, p->r.begin),
        .moments = fr_node_extra(p->node, p->r.begin),
        .gradient = gradient(p, p->r.begin),
        .x_gradient = wanted(p, 0, p->r.begin),
        .scale_gradient = partial(p, 0),
        .bias_gradient = partial(p, 1),
    };
    FR_EITHER(p, layer_norm_backward, layer_norm, &call);
}

/* Sets arguments of one width in the worker's views. */
static struct fr_interaction interaction(const struct pass *p)
{
    struct fr_view *in = p->graph->views + (size_t)p->c->worker * 2 * p->graph->views_max;
    struct fr_view *in_gradient = in + p->graph->views_max;
    const uint32_t n = p->node->n_arguments;
    for (uint32_t i = 0; i < n; i++) {
        in[i] = argument(p, i, p->r.begin);
        in_gradient[i] = wanted(p, i, p->r.begin);
    }
    return (struct fr_interaction){.m = p->m,
                                   .n = width_of(p, 0),
                                   .count = n,
                                   .in = fr_graph_array(p->graph, in, n * sizeof(*in)),
                                   .out = output(p, p->r.begin),
                                   .in_gradient = fr_graph_array(p->graph, in_gradient, n * sizeof(*in))};
}

static void call_bi_interaction(const struct pass *p)
{
    struct fr_interaction call = interaction(p);
    if (p->backward)
        FR_RUN(p->graph, bi_interaction_backward, p->r.count, call.n, call.count, call.in, call.out, call.in_gradient);
    else
        FR_RUN(p->graph, bi_interaction, p->r.count, call.n, call.count, call.in, call.out);
}

static void call_multiply(const struct pass *p)
{
    struct fr_interaction call = interaction(p);
    FR_EITHER(p, product_backward, product, &call);
}

static void call_dot_interaction(const struct pass *p)
{
    struct fr_interaction call = interaction(p);
    FR_EITHER(p, dot_interaction_backward, dot_interaction, &call);
}

static void call_row_sum(const struct pass *p)
{
    if (!p->backward)
        FR_RUN(p->graph, row_sum, p->m, width_of(p, 0), argument(p, 0, p->r.begin), values(p, p->r.begin));
    else if (!p->node->arguments[0].skip_gradient)
        FR_RUN(p->graph, row_sum_backward, p->m, width_of(p, 0), gradient(p, p->r.begin), wanted(p, 0, p->r.begin));
}

static void call_cross(const struct pass *p)
{
    struct fr_cross call = {
        .m = p->m,
        .n = p->node->width,
        .x0 = argument(p, 0, p->r.begin),
        .t = argument(p, 1, p->r.begin),
        .x = argument(p, 2, p->r.begin),
        .out = output(p, p->r.begin),
        .x0_gradient = wanted(p, 0, p->r.begin),
        .t_gradient = wanted(p, 1, p->r.begin),
        .x_gradient = wanted(p, 2, p->r.begin),
    };
    FR_EITHER(p, cross_backward, cross, &call);
}

static void call_mixture(const struct pass *p)
{
    struct fr_mixture call = {
        .m = p->m,
        .n = p->node->width,
        .count = p->node->extra_width,
        .gates = argument(p, 0, p->r.begin),
        .experts = argument(p, 1, p->r.begin),
        .out = values(p, p->r.begin),
        .weights = fr_node_extra(p->node, p->r.begin),
        .gradient = gradient(p, p->r.begin),
        .gates_gradient = wanted(p, 0, p->r.begin),
        .experts_gradient = wanted(p, 1, p->r.begin),
    };
    FR_EITHER(p, mixture_backward, mixture, &call);
}

/* ---- sequences: step views are those of the whole batch ---- */

static void call_align(const struct pass *p)
{
    const struct variant *v = p->graph->variant;
    struct fr_align call = {
        .to_begin = v->spaces[p->node->space].at_begin,
        .from_begin = v->spaces[fr_argument(p->graph, p->node, 0)->space].at_begin,
        .entry_begin = p->c->first,
        .entry_end = p->c->first + p->c->entries,
        .width = p->node->width,
        .to = output(p, 0),
        .from = p->backward ? wanted(p, 0, 0) : argument(p, 0, 0),
    };
    FR_EITHER(p, align_backward, align, &call);
}

static void call_pool_steps(const struct pass *p)
{
    struct fr_pool_steps call = {
        .steps = steps_of(p, 0),
        .kind = p->node->pooling,
        .width = p->node->width,
        .in = argument(p, 0, 0),
        .out = output(p, p->c->first),
        .in_gradient = wanted(p, 0, 0),
    };
    FR_EITHER(p, pool_steps_backward, pool_steps, &call);
}

static void call_attention_dense(const struct pass *p)
{
    bool bias = p->node->n_partials > 1;
    struct fr_attention_dense call = {
        .steps = steps_of(p, 1),
        .width = width_of(p, 1),
        .units = p->node->width,
        .relu = fr_node_has_relu(p->node) && !(p->backward && p->node->gated),
        .kernel = parameter(p, 0),
        .bias = bias ? parameter(p, 1) : NULL,
        .query = argument(p, 0, p->c->first),
        .keys = argument(p, 1, 0),
        .out = values(p, 0),
        .workspace = p->graph->workspace + p->c->worker * p->graph->workspace_floats,
        .gradient = gradient(p, 0),
        .query_gradient = wanted(p, 0, p->c->first),
        .keys_gradient = wanted(p, 1, 0),
        .kernel_gradient = partial(p, 0),
        .bias_gradient = bias ? partial(p, 1) : NULL,
    };
    if (p->graph->device)
        fr_graph_device_attention(p->graph, &call, fr_argument(p->graph, p->node, 1)->space, p->backward);
    else
        (p->backward ? p->graph->ops->attention_dense_backward : p->graph->ops->attention_dense)(&call);
}

static void call_softmax_steps(const struct pass *p)
{
    struct fr_softmax_steps call = {
        .steps = steps_of(p, 0),
        .in = argument(p, 0, 0),
        .out = values(p, 0),
        .gradient = gradient(p, 0),
        .in_gradient = wanted(p, 0, 0),
    };
    FR_EITHER(p, softmax_steps_backward, softmax_steps, &call);
}

static void call_attention_pool(const struct pass *p)
{
    struct fr_attention_pool call = {
        .steps = steps_of(p, 1),
        .width = p->node->width,
        .scores = argument(p, 0, 0),
        .keys = argument(p, 1, 0),
        .out = output(p, p->c->first),
        .scores_gradient = wanted(p, 0, 0),
        .keys_gradient = wanted(p, 1, 0),
    };
    FR_EITHER(p, attention_pool_backward, attention_pool, &call);
}

static void call_dot_steps(const struct pass *p)
{
    struct fr_dot_steps call = {
        .steps = steps_of(p, 0),
        .width = width_of(p, 0),
        .keys = argument(p, 0, 0),
        .query = argument(p, 1, p->c->first),
        .out = output(p, 0),
        .keys_gradient = wanted(p, 0, 0),
        .query_gradient = wanted(p, 1, p->c->first),
    };
    FR_EITHER(p, dot_steps_backward, dot_steps, &call);
}

static void call_gru(const struct pass *p)
{
    struct fr_gru call = {
        .steps = fr_steps_of(p->graph, p->node->space, p->c),
        .units = p->node->width,
        .input = argument(p, 0, 0),
        .kernel = parameter(p, 0),
        .bias = parameter(p, 1),
        .states = values(p, 0),
        .gates = fr_node_extra(p->node, 0),
        .workspace = p->graph->workspace + p->c->worker * p->graph->workspace_floats,
        .gradient = gradient(p, 0),
        .input_gradient = wanted(p, 0, 0),
        .kernel_gradient = partial(p, 0),
        .bias_gradient = partial(p, 1),
    };
    if (p->node->n_arguments > 1) {
        call.scores = argument(p, 1, 0);
        call.scores_gradient = wanted(p, 1, 0);
    }
    if (p->graph->device)
        fr_graph_device_gru(p->graph, &call, p->node->space, p->backward);
    else
        (p->backward ? p->graph->ops->gru_backward : p->graph->ops->gru)(&call);
}

#define CALL(name, call)                                                                                               \
    case name:                                                                                                         \
        call_##call(&p);                                                                                               \
        break;

void fr_graph_call_node(const struct fr_graph *graph, const struct node *node, const struct chunk *c, bool backward)
{
    struct rows r = fr_rows_of(graph, node->space, c);
    const struct pass p = {graph, node, c, r, backward ? r.real : r.count, backward};
    switch (node->kind) {
        FR_CALLED_NODES(CALL)
        FR_WRITTEN_NODES(FR_KIND_CASE)
        break;
    }
}
