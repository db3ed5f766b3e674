/* Finds what begins at zero and can never learn, from the network and its first values, before
 * any sample.
 *
 * Zero times zero has no slope. A value that is zero for every sample gets a gradient only where
 * it is multiplied by something other than zero, and no gradient passes a relu at exactly zero.
 * Therefore two properties of every node, whether it is always zero and whether a gradient can
 * reach it, are computed repeatedly until they no longer change: a zero value that gets a
 * gradient is no longer zero. A value that is still zero then, such as a product of two zero
 * parts, stays zero for ever. A zero part that is multiplied by a part other than zero learns,
 * and so does a part with a path around the product.
 *
 * Nodes are judged as a whole: a concatenation with one number other than zero is not zero. So
 * whatever is reported never learns, but not all that never learns is reported. First values of
 * rows are the configuration's. Owner thread: the graph's. */
#include "network.h"

#include <stdlib.h>

/* The answers found so far. */
struct zeros {
    const struct fr_graph *graph;
    const struct variant *v;
    bool *parameter;            /* [parameters] all of its values are zero */
    bool (*part)[FR_PARTS_MAX]; /* [tables] the rows of this part begin at zero and stay there */
    bool *value;                /* [nodes] the node is always zero */
    bool *gradient;             /* [nodes] a gradient can reach the node */
    bool changed;
};

static bool is_zero(const struct zeros *z, const struct node *node, uint32_t argument)
{
    return z->value[node->arguments[argument].node];
}

/* Counts the arguments, other than `except`, that are not always zero. */
static uint32_t others(const struct zeros *z, const struct node *node, uint32_t except)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n_arguments; i++)
        n += i != except && !is_zero(z, node, i);
    return n;
}

static bool *part_of(const struct zeros *z, const struct node *node)
{
    return &z->part[z->graph->conf->slots[node->slot].table][node->part];
}

static const struct linear *linear_of(const struct zeros *z, const struct node *node)
{
    return &z->v->linears[node->linear];
}

/* ---- forward ---- */

static bool linear_zero(const struct zeros *z, const struct node *node)
{
    bool product = is_zero(z, node, 0) || z->parameter[linear_of(z, node)->kernel];
    bool start = node->n_arguments < 2 || is_zero(z, node, 1);
    return product && start && (node->n_partials == 0 || z->parameter[node->partials[0].parameter]);
}

static bool value_zero(const struct zeros *z, const struct node *node)
{
    uint32_t nonzero = others(z, node, UINT32_MAX);
    switch (node->kind) {
    case NODE_POOLED:
    case NODE_SEQUENCE:
        return *part_of(z, node);
    case NODE_LINEAR:
        return linear_zero(z, node);
    case NODE_ACTIVATE:
        return nonzero == 0 && fr_activation_zero(node->activation) != FR_ZERO_LIFTED;
    case NODE_BIAS:
        return nonzero == 0 && z->parameter[node->partials[0].parameter];
    case NODE_LAYER_NORM: /* its scale and bias decide */
        return (nonzero == 0 || z->parameter[node->partials[0].parameter]) && z->parameter[node->partials[1].parameter];
    case NODE_ATTENTION_DENSE:
        return (nonzero == 0 || z->parameter[node->partials[0].parameter]) &&
               (node->n_partials < 2 || z->parameter[node->partials[1].parameter]);
    case NODE_GRU: /* the state begins at zero; the recurrent kernel and bias decide */
        return is_zero(z, node, 0) && z->parameter[node->partials[1].parameter];
    case NODE_BI_INTERACTION:
    case NODE_DOT_INTERACTION:
        return nonzero < 2;
    case NODE_MULTIPLY:
    case NODE_ATTENTION_POOL:
    case NODE_DOT_STEPS:
        return nonzero < node->n_arguments;
    case NODE_MIXTURE: /* gates are never zero */
        return is_zero(z, node, 1);
    case NODE_DENSE:
    case NODE_SOFTMAX_STEPS:
    case NODE_MSE_PAIR:
    case NODE_NEXT_STEP:
        return false;
    case NODE_EXPAND:
    case NODE_ALIGN:
    case NODE_CONCAT:
    case NODE_DROPOUT:
    case NODE_ROW_SUM:
    case NODE_ADD:
    case NODE_CROSS:
    case NODE_POOL_STEPS:
        return nonzero == 0;
    }
    return false;
}

/* ---- backward ---- */

/* Whether a gradient passes the relu of a linear node, which it does not at exactly zero. */
static bool passes_relu(const struct zeros *z, const struct node *node)
{
    return !(linear_of(z, node)->relu && z->value[node - z->v->nodes]);
}

static bool blocks(const struct node *node)
{
    return fr_activation_zero(node->activation) == FR_ZERO_BLOCKS;
}

/* Whether a gradient that reaches the node is passed on to argument i, because the slope there is
 * not zero. */
static bool passes(const struct zeros *z, const struct node *node, uint32_t i)
{
    bool zero = z->value[node - z->v->nodes];
    switch (node->kind) {
    case NODE_LINEAR:
        return passes_relu(z, node) && (i > 0 || !z->parameter[linear_of(z, node)->kernel]);
    case NODE_ACTIVATE:
        return !(blocks(node) && zero);
    case NODE_ATTENTION_DENSE:
        return !(blocks(node) && zero) && !z->parameter[node->partials[0].parameter];
    case NODE_LAYER_NORM:
        return node->width > 1 && !z->parameter[node->partials[0].parameter];
    case NODE_BI_INTERACTION:
    case NODE_DOT_INTERACTION:
    case NODE_MSE_PAIR: /* a - b */
        return others(z, node, i) > 0 || (node->kind == NODE_MSE_PAIR && !is_zero(z, node, i));
    case NODE_MULTIPLY:
    case NODE_ATTENTION_POOL:
    case NODE_DOT_STEPS:
        return others(z, node, i) == node->n_arguments - 1;
    case NODE_CROSS: /* x0 o t + x */
        return i == 2 || !is_zero(z, node, 1 - i);
    case NODE_MIXTURE:
        return i == 1 || !is_zero(z, node, 1);
    case NODE_GRU:
        return i == 0 || !zero;
    case NODE_NEXT_STEP: /* states; what they are multiplied by */
        return i > 0 ? !is_zero(z, node, 0) : others(z, node, 0) > 0;
    default:
        return true;
    }
}

/* Marks a zero value that gets a gradient as no longer zero. */
static void awake(struct zeros *z, bool *zero)
{
    z->changed |= *zero;
    *zero = false;
}

/* Whether no gradient reaches the parameter, because what it multiplies is zero. */
static bool multiplies_zero(const struct zeros *z, const struct node *node, uint32_t p)
{
    if (p > 0)
        return false;
    if (node->kind == NODE_GRU) /* it multiplies the states */
        return z->value[node - z->v->nodes];
    if (node->kind == NODE_ATTENTION_DENSE)
        return others(z, node, UINT32_MAX) == 0;
    return (node->kind == NODE_LAYER_NORM || node->kind == NODE_ACTIVATE) && is_zero(z, node, 0);
}

static void awake_own(struct zeros *z, const struct node *node)
{
    bool zero = z->value[node - z->v->nodes];
    if (node->kind == NODE_POOLED || node->kind == NODE_SEQUENCE)
        awake(z, part_of(z, node));
    if (node->kind == NODE_LINEAR && !passes_relu(z, node))
        return;
    if (node->kind == NODE_ATTENTION_DENSE && blocks(node) && zero)
        return;
    if (node->kind == NODE_LINEAR && !is_zero(z, node, 0))
        awake(z, &z->parameter[linear_of(z, node)->kernel]);
    for (uint32_t p = 0; p < node->n_partials; p++) {
        if (!multiplies_zero(z, node, p))
            awake(z, &z->parameter[node->partials[p].parameter]);
    }
}

static void find_zeros(struct zeros *z)
{
    const struct variant *v = z->v;
    for (uint32_t n = 0; n < v->n_nodes; n++)
        z->value[n] = value_zero(z, &v->nodes[n]);
    for (uint32_t n = 0; n < v->n_nodes; n++)
        z->gradient[n] = v->nodes[n].loss != FR_NO_INDEX;
    for (uint32_t k = 0; k < z->graph->n_outputs; k++)
        z->gradient[v->output_node[k]] |= z->graph->outputs[k].losses != 0;
    for (uint32_t n = v->n_nodes; n-- > 0;) {
        const struct node *node = &v->nodes[n];
        for (uint32_t i = 0; i < node->n_arguments && z->gradient[n]; i++)
            z->gradient[node->arguments[i].node] |= !node->arguments[i].stop && passes(z, node, i);
        if (z->gradient[n])
            awake_own(z, node);
    }
}

/* ---- results ---- */

static bool begins_at_zero(const struct fr_conf_init *init)
{
    return init->kind == FR_INIT_ZEROS || (init->kind == FR_INIT_CONSTANT && init->scale == 0.0f);
}

static void begin(struct zeros *z)
{
    const struct fr_graph *graph = z->graph;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        for (uint32_t p = 0; p < graph->conf->tables[t].n_parts; p++)
            z->part[t][p] = begins_at_zero(&graph->conf->tables[t].parts[p].init);
    for (size_t p = 0; p < graph->n_parameters; p++) {
        z->parameter[p] = graph->parameters[p].trained;
        for (size_t i = 0; i < graph->parameters[p].n_values && z->parameter[p]; i++)
            z->parameter[p] = graph->parameters[p].values[i] == 0.0f;
    }
}

/* Returns the first layer that passes no gradient back to what depends on the node; if there is
 * none, the last layer that depends on the node. */
static int32_t blocked_at(const struct zeros *z, uint32_t from)
{
    const struct variant *v = z->v;
    bool *depends = fr_alloc(v->n_nodes, sizeof(*depends));
    int32_t layer = v->nodes[from].layer;
    depends[from] = true;
    for (uint32_t n = from + 1; n < v->n_nodes; n++) {
        const struct node *node = &v->nodes[n];
        bool blocked = false;
        for (uint32_t i = 0; i < node->n_arguments; i++) {
            if (!depends[node->arguments[i].node] || node->arguments[i].stop)
                continue;
            depends[n] = true;
            blocked |= node->reached && !passes(z, node, i);
        }
        if (depends[n])
            layer = node->layer;
        if (blocked)
            break;
    }
    free(depends);
    return layer;
}

static bool is_listed(const struct fr_graph_stuck *out, uint32_t n, const struct fr_graph_stuck *stuck)
{
    for (uint32_t i = 0; i < n; i++)
        if (out[i].table == stuck->table && out[i].part == stuck->part &&
            (stuck->table != FR_NO_INDEX || out[i].layer == stuck->layer))
            return true;
    return false;
}

/* Whether a loss would reach the node, but the node's own values never move from zero. */
static bool is_stuck(const struct zeros *z, uint32_t n, struct fr_graph_stuck *stuck)
{
    const struct node *node = &z->v->nodes[n];
    bool leaf = node->kind == NODE_POOLED || node->kind == NODE_SEQUENCE;
    *stuck = (struct fr_graph_stuck){FR_NO_INDEX, FR_NO_INDEX, node->layer};
    if (!node->reached)
        return false;
    if (leaf && *part_of(z, node))
        *stuck = (struct fr_graph_stuck){z->graph->conf->slots[node->slot].table, node->part, blocked_at(z, n)};
    else if (node->kind == NODE_ATTENTION_DENSE)
        return z->parameter[node->partials[0].parameter];
    else if (node->linear == FR_NO_INDEX || !z->parameter[linear_of(z, node)->kernel])
        return false;
    return true;
}

uint32_t fr_graph_find_stuck(const struct fr_graph *graph, struct fr_graph_stuck *out, uint32_t capacity)
{
    FR_CHECK(!graph->scoring_only);
    const struct variant *v = graph->variants[0];
    struct zeros z = {.graph = graph, .v = v, .changed = true};
    z.parameter = fr_alloc(graph->n_parameters + 1, sizeof(*z.parameter));
    z.part = fr_alloc(graph->conf->n_tables + 1, sizeof(*z.part));
    z.value = fr_alloc(v->n_nodes, sizeof(*z.value));
    z.gradient = fr_alloc(v->n_nodes, sizeof(*z.gradient));
    begin(&z);
    /* the loop ends, because each round except the last finds a value that is not zero */
    while (z.changed) {
        z.changed = false;
        find_zeros(&z);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n_nodes && n < capacity; i++) {
        struct fr_graph_stuck stuck;
        if (is_stuck(&z, i, &stuck) && !is_listed(out, n, &stuck))
            out[n++] = stuck;
    }
    free(z.parameter);
    free(z.part);
    free(z.value);
    free(z.gradient);
    return n;
}
