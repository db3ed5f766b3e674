/* The compiled network as text, for a developer: its spaces, nodes and parameters. The structs
 * themselves are private to the module (network.h), so a program that prints them uses the
 * functions below.
 *
 * The description is of the variant in which no slot is shared by the samples of a group; every
 * graph has this variant. Thread: the graph's owner. */
#ifndef FR_GRAPH_DESCRIBE_H
#define FR_GRAPH_DESCRIBE_H

#include "graph/graph.h"

enum { FR_GRAPH_KIND_MAX = 24, FR_GRAPH_NODE_PARAMETERS_MAX = 6 };

/* What one row of the nodes in a space stands for. */
struct fr_graph_space_info {
    const char *rows; /* "samples", "groups", or "steps" of the slot below */
    const char *slot; /* the sequence slot that the steps belong to; NULL: rows are not steps */
};

struct fr_graph_node_info {
    char kind[FR_GRAPH_KIND_MAX]; /* the name of enum node_kind in lower case: "pooled", "linear" */
    const char *layer;            /* the layer the node was compiled from; NULL: none */
    /* the slot, and the part of the slot's table, that the node reads; NULL: none */
    const char *slot, *part;
    const char *pooling;  /* how the node pools rows or steps: "mean"; NULL: no pooling */
    uint32_t space;       /* number of the node's space */
    uint32_t width;       /* floats of a row */
    uint32_t n_arguments; /* the number of nodes it reads: fr_graph_node_argument */
    /* A row's values are the floats [column, column + width) of the same row in this buffer. Nodes
     * that share a buffer are views of a concatenation. */
    uint32_t buffer, column;
    bool trained; /* the gradient of a loss reaches the node */
    uint32_t n_parameters;
    uint32_t parameters[FR_GRAPH_NODE_PARAMETERS_MAX]; /* indexes of fr_graph_parameters */
};

uint32_t fr_graph_space_count(const struct fr_graph *graph);
void fr_graph_space_info(const struct fr_graph *graph, uint32_t space, struct fr_graph_space_info *out);
/* Nodes are numbered in the order of the forward pass: a node reads only nodes with smaller
 * numbers. */
uint32_t fr_graph_node_count(const struct fr_graph *graph);
void fr_graph_node_info(const struct fr_graph *graph, uint32_t node, struct fr_graph_node_info *out);
uint32_t fr_graph_node_argument(const struct fr_graph *graph, uint32_t node, uint32_t argument);

#endif
