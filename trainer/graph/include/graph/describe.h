/* The compiled network as text, for a developer: its spaces, nodes and parameters. Those are
 * private to the module (network.h), so what a program prints is taken from here.
 *
 * What is described is the variant in which no slot is shared by the samples of a group, which
 * every graph has. Thread: the graph's owner. */
#ifndef FR_GRAPH_DESCRIBE_H
#define FR_GRAPH_DESCRIBE_H

#include "graph/graph.h"

enum { FR_GRAPH_KIND_MAX = 24, FR_GRAPH_NODE_PARAMETERS_MAX = 6 };

/* What one row of the space's nodes is. */
struct fr_graph_space_info {
    const char *rows; /* "samples", "groups", or "steps" of the slot below */
    const char *slot; /* a sequence slot of the configuration; NULL: rows are no steps */
};

struct fr_graph_node_info {
    char kind[FR_GRAPH_KIND_MAX]; /* of enum node_kind, lower case: "pooled", "linear" */
    const char *layer;            /* the layer it was compiled from; NULL: none */
    const char *slot, *part;      /* the slot and the part of its table that it reads; NULL: none */
    const char *pooling;          /* how it pools rows or steps: "mean"; NULL: it does not */
    uint32_t space;               /* number of its space */
    uint32_t width;               /* floats of a row */
    uint32_t n_arguments;         /* nodes it reads: fr_graph_node_argument */
    /* A row's values are the floats [column, column + width) of the row in that buffer: nodes of
     * one buffer are views of a concatenation. */
    uint32_t buffer, column;
    bool trained; /* a loss's gradient comes to it */
    uint32_t n_parameters;
    uint32_t parameters[FR_GRAPH_NODE_PARAMETERS_MAX]; /* indexes of fr_graph_parameters */
};

uint32_t fr_graph_space_count(const struct fr_graph *graph);
void fr_graph_space_info(const struct fr_graph *graph, uint32_t space, struct fr_graph_space_info *out);
/* Nodes count in the order of the forward pass: a node reads earlier ones only. */
uint32_t fr_graph_node_count(const struct fr_graph *graph);
void fr_graph_node_info(const struct fr_graph *graph, uint32_t node, struct fr_graph_node_info *out);
uint32_t fr_graph_node_argument(const struct fr_graph *graph, uint32_t node, uint32_t argument);

#endif
