/* From layers to nodes: what compile.c and compile_layers.c share while a variant is made. */
#ifndef FR_GRAPH_COMPILE_INTERNAL_H
#define FR_GRAPH_COMPILE_INTERNAL_H

#include "network.h"

/* A node as something reads it. */
struct operand {
    uint32_t node;
    bool stop; /* no gradient goes back */
};

/* What a layer or a reference is: vectors to be read one after the other. More than one only where
 * groups' and samples' rows meet, so that a product may take them apart. */
struct value {
    uint32_t n;
    struct operand *parts;
};

struct builder {
    const struct fr_graph *graph;
    struct variant *variant;
    struct value layers[FR_LAYERS_MAX];
    int32_t layer; /* whose nodes are being made; FR_NO_INDEX: no layer's */
};

/* Nodes of layer l (earlier ones are there); sets layers[l]. */
void fr_graph_build_layer(struct builder *b, uint32_t l);
/* Nodes of an auxiliary loss. */
void fr_graph_build_loss(struct builder *b, uint32_t loss);
/* The node of a layer of width 1 with a row per sample. */
uint32_t fr_graph_build_output(struct builder *b, uint32_t layer);

/* ---- compile_nodes.c: nodes without regard to layers ---- */

struct node *fr_build_node(struct builder *b, enum node_kind kind, uint32_t width, const struct value *arguments);
uint32_t fr_build_last(const struct builder *b);
/* A sum per chunk of the newest node's parameter. */
void fr_build_partial(struct builder *b, uint32_t parameter);
/* The parameter <prefix>/<what>. */
uint32_t fr_build_parameter(const struct builder *b, const char *prefix, const char *what);
struct value fr_build_value(uint32_t node);
struct value fr_build_ref(struct builder *b, const struct fr_conf_ref *ref);
/* All values one after the other: frees them. */
struct value fr_build_list(struct value *values, uint32_t n);
/* Every part of `value` in one space: that of samples or groups, or the first one's steps. */
void fr_build_bring_together(struct builder *b, struct value *value);
void fr_build_bring_to_samples(struct builder *b, struct value *value);
/* One node for the whole of `value`, which it replaces. */
void fr_build_join(struct builder *b, struct value *value);
/* As join, but parts of different levels stay apart. */
void fr_build_concatenate(struct builder *b, struct value *value);
struct value fr_build_linear(struct builder *b, struct value *in, uint32_t kernel, int32_t bias, bool relu);

#endif
