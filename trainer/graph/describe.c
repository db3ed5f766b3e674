/* Describes the compiled network to a developer (contract: graph/describe.h): variant 0, in
 * which nothing is shared. Nothing is changed or formatted here; names are borrowed from the
 * configuration.
 *
 * Owner thread: the graph's. */
#include "graph/describe.h"

#include <string.h>

#include "network.h"

#define KIND_NAME(node, ...) [node] = #node,
static const char *const kinds[] = {FR_WRITTEN_NODES(KIND_NAME) FR_CALLED_NODES(KIND_NAME)};
#undef KIND_NAME
enum { KIND_PREFIX = sizeof("NODE_") - 1 };

static const struct node *node_of(const struct fr_graph *graph, uint32_t node)
{
    FR_CHECK(node < graph->variants[0]->n_nodes);
    return &graph->variants[0]->nodes[node];
}

uint32_t fr_graph_space_count(const struct fr_graph *graph)
{
    return graph->variants[0]->n_spaces;
}

void fr_graph_space_info(const struct fr_graph *graph, uint32_t space, struct fr_graph_space_info *out)
{
    FR_CHECK(space < graph->variants[0]->n_spaces);
    const struct space *it = &graph->variants[0]->spaces[space];
    bool steps = it->slot != FR_NO_INDEX;
    *out = (struct fr_graph_space_info){
        .rows = steps                      ? "steps"
                : it->level == LEVEL_GROUP ? "groups"
                                           : "samples",
        .slot = steps ? graph->conf->slots[it->slot].name : NULL,
    };
}

uint32_t fr_graph_node_count(const struct fr_graph *graph)
{
    return graph->variants[0]->n_nodes;
}

static void add_parameter(struct fr_graph_node_info *out, int32_t parameter)
{
    if (parameter == FR_NO_INDEX)
        return;
    FR_CHECK(out->n_parameters < FR_GRAPH_NODE_PARAMETERS_MAX);
    out->parameters[out->n_parameters++] = (uint32_t)parameter;
}

static void add_parameters(const struct variant *v, const struct node *node, struct fr_graph_node_info *out)
{
    if (node->kind == NODE_LINEAR)
        add_parameter(out, (int32_t)v->linears[node->linear].kernel);
    for (uint32_t i = 0; i < node->n_partials; i++)
        add_parameter(out, (int32_t)node->partials[i].parameter);
    add_parameter(out, node->mean);
    add_parameter(out, node->variance);
    if (node->kind == NODE_DENSE && node->mean != FR_NO_INDEX) /* the node is a standardize */
        add_parameter(out, node->count);
}

static void add_slot(const struct fr_conf *conf, const struct node *node, struct fr_graph_node_info *out)
{
    if (node->slot == FR_NO_INDEX)
        return;
    const struct fr_conf_slot *slot = &conf->slots[node->slot];
    out->slot = slot->name;
    if (node->part != FR_NO_INDEX)
        out->part = conf->tables[slot->table].parts[node->part].name;
}

void fr_graph_node_info(const struct fr_graph *graph, uint32_t node, struct fr_graph_node_info *out)
{
    const struct node *it = node_of(graph, node);
    *out = (struct fr_graph_node_info){
        .layer = it->layer == FR_NO_INDEX ? NULL : graph->conf->layers[it->layer].name,
        .space = it->space,
        .width = it->width,
        .n_arguments = it->n_arguments,
        .buffer = it->buffer,
        .column = it->column,
        .pooling = it->kind == NODE_POOLED || it->kind == NODE_POOL_STEPS ? fr_pooling_text(it->pooling) : NULL,
        .trained = it->reached,
    };
    const char *name = kinds[it->kind] + KIND_PREFIX;
    for (size_t i = 0; name[i] && i + 1 < sizeof(out->kind); i++)
        out->kind[i] = name[i] == '_' ? '_' : (char)(name[i] - 'A' + 'a');
    add_slot(graph->conf, it, out);
    add_parameters(graph->variants[0], it, out);
}

uint32_t fr_graph_node_argument(const struct fr_graph *graph, uint32_t node, uint32_t argument)
{
    const struct node *it = node_of(graph, node);
    FR_CHECK(argument < it->n_arguments);
    return it->arguments[argument].node;
}
