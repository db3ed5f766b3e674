/* What compile.c, compile_layers.c and compile_nodes.c share while a variant is made from
 * layers. */
#ifndef FR_GRAPH_COMPILE_INTERNAL_H
#define FR_GRAPH_COMPILE_INTERNAL_H

#include "network.h"

/* A node as one of its readers sees it. */
struct operand {
    uint32_t node;
    bool stop; /* no gradient is passed to the node */
};

/* The value of a layer or a reference: vectors that are read one after the other. There are several
 * parts only where groups' and samples' rows meet, so that a product can treat them separately. */
struct value {
    uint32_t n;
    struct operand *parts;
};

struct builder {
    const struct fr_graph *graph;
    struct variant *variant;
    struct value layers[FR_LAYERS_MAX];
    int32_t layer; /* the layer whose nodes are being made; FR_NO_INDEX: none */
};

/* Builds the nodes of layer l, after those of all earlier layers, and sets layers[l]. */
void fr_graph_build_layer(struct builder *b, uint32_t l);
/* Builds the nodes of an auxiliary loss. */
void fr_graph_build_loss(struct builder *b, uint32_t loss);
/* Returns the node of a layer of width 1 with one row per sample. */
uint32_t fr_graph_build_output(struct builder *b, uint32_t layer);

/* ---- compile_nodes.c: nodes, whatever layer they are for ---- */

struct node *fr_build_node(struct builder *b, enum node_kind kind, uint32_t width, const struct value *arguments);
uint32_t fr_build_last(const struct builder *b);
/* Adds a sum per chunk for a parameter's gradient to the newest node. */
void fr_build_partial(struct builder *b, uint32_t parameter);
/* Returns the parameter <prefix>/<what>. */
uint32_t fr_build_parameter(const struct builder *b, const char *prefix, const char *what);
struct value fr_build_value(uint32_t node);
struct value fr_build_ref(struct builder *b, const struct fr_conf_ref *ref);
/* Concatenates all values and frees them. */
struct value fr_build_list(struct value *values, uint32_t n);
/* Brings every part of `value` into one space: samples, groups, or the steps of the first part. */
void fr_build_bring_together(struct builder *b, struct value *value);
void fr_build_bring_to_samples(struct builder *b, struct value *value);
/* Replaces `value` by one node that has all its parts. */
void fr_build_join(struct builder *b, struct value *value);
/* Joins the parts of each level; parts of different levels stay separate. */
void fr_build_concatenate(struct builder *b, struct value *value);
struct value fr_build_linear(struct builder *b, struct value *in, uint32_t kernel, int32_t bias, bool relu);

#endif
