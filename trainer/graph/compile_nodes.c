/* Makes nodes, whatever layer they are for: leaves, expansions of groups' rows to samples,
 * concatenations, products.
 *
 * A node that copies or reads without parameters (a leaf, an expansion, a concatenation) is made
 * only once for equal arguments, so it is computed once and its gradient is summed in one place.
 * Owner thread: the graph's. */
#include "compile_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/pooling.h"

static enum level level_of(const struct builder *b, uint32_t node)
{
    return b->variant->spaces[b->variant->nodes[node].space].level;
}

static uint32_t add_space(struct variant *v, enum level level, int32_t slot, int32_t from)
{
    for (uint32_t s = SPACE_GROUPS + 1; s < v->n_spaces; s++)
        if (v->spaces[s].level == level && v->spaces[s].slot == slot)
            return s;
    if (v->n_spaces == v->capacity_spaces) {
        v->capacity_spaces = 2 * v->capacity_spaces + 4;
        v->spaces = fr_realloc(v->spaces, v->capacity_spaces, sizeof(*v->spaces));
    }
    v->spaces[v->n_spaces] = (struct space){.level = level, .slot = slot, .from = from};
    return v->n_spaces++;
}

uint32_t fr_build_last(const struct builder *b)
{
    return b->variant->n_nodes - 1;
}

struct value fr_build_value(uint32_t node)
{
    struct value value = {.n = 1, .parts = fr_alloc(1, sizeof(*value.parts))};
    value.parts[0].node = node;
    return value;
}

uint32_t fr_build_parameter(const struct builder *b, const char *prefix, const char *what)
{
    char name[sizeof(b->graph->parameters->name)];
    snprintf(name, sizeof(name), "%s/%s", prefix, what);
    return fr_graph_find_parameter(b->graph, name);
}

/* The space and the trainability of a node follow from its arguments; leaves set their own. */
struct node *fr_build_node(struct builder *b, enum node_kind kind, uint32_t width, const struct value *arguments)
{
    struct variant *v = b->variant;
    if (v->n_nodes == v->capacity_nodes) {
        v->capacity_nodes = v->capacity_nodes ? 2 * v->capacity_nodes : 64;
        v->nodes = fr_realloc(v->nodes, v->capacity_nodes, sizeof(*v->nodes));
    }
    struct node *node = &v->nodes[v->n_nodes++];
    *node = (struct node){.kind = kind, .width = width, .n_arguments = arguments ? arguments->n : 0};
    node->parent = node->slot = node->part = node->mean = node->variance = node->linear = node->loss = FR_NO_INDEX;
    node->layer = b->layer;
    node->sums = FR_NO_INDEX;
    if (!arguments)
        return node;
    node->arguments = fr_alloc(arguments->n, sizeof(*node->arguments));
    node->space = v->nodes[arguments->parts[0].node].space;
    for (uint32_t i = 0; i < arguments->n; i++) {
        node->arguments[i] = (struct argument){.node = arguments->parts[i].node, .stop = arguments->parts[i].stop};
        node->trainable |= v->nodes[arguments->parts[i].node].trainable && !arguments->parts[i].stop;
    }
    return node;
}

void fr_build_partial(struct builder *b, uint32_t parameter)
{
    struct node *node = &b->variant->nodes[fr_build_last(b)];
    FR_CHECK(node->n_partials < FR_NODE_PARAMETERS);
    node->partials[node->n_partials++] =
        (struct partial){.parameter = parameter, .n = (uint32_t)b->graph->parameters[parameter].n_values};
    node->trainable = true;
}

static bool same_node(const struct node *a, const struct node *b)
{
    if (a->kind != b->kind || a->space != b->space || a->slot != b->slot || a->part != b->part ||
        a->pooling != b->pooling || a->n_arguments != b->n_arguments)
        return false;
    for (uint32_t i = 0; i < a->n_arguments; i++)
        if (a->arguments[i].node != b->arguments[i].node || a->arguments[i].stop != b->arguments[i].stop)
            return false;
    return true;
}

/* Returns an earlier node that equals the newest one, and removes the newest; otherwise returns
 * the newest. */
static uint32_t only_once(struct builder *b)
{
    struct variant *v = b->variant;
    uint32_t last = fr_build_last(b);
    for (uint32_t n = 0; n < last; n++) {
        if (same_node(&v->nodes[n], &v->nodes[last])) {
            free(v->nodes[last].arguments);
            v->n_nodes--;
            return n;
        }
    }
    return last;
}

static uint32_t dense_leaf(struct builder *b, uint32_t slot, enum level level)
{
    const struct fr_conf_slot *s = &b->graph->conf->slots[slot];
    struct node *node = fr_build_node(b, NODE_DENSE, fr_conf_slot_width(s), NULL);
    node->slot = (int32_t)slot;
    node->space = level == LEVEL_GROUP ? SPACE_GROUPS : SPACE_SAMPLES;
    if (fr_transform_learns(s->transform)) {
        node->mean = (int32_t)fr_build_parameter(b, s->name, "mean");
        node->variance = (int32_t)fr_build_parameter(b, s->name, "variance");
        node->count = (int32_t)fr_build_parameter(b, s->name, "count");
    }
    return only_once(b);
}

static uint32_t row_leaf(struct builder *b, const struct fr_conf_ref *ref, enum level level)
{
    bool steps = ref->kind == FR_REF_SEQUENCE;
    const struct fr_conf *conf = b->graph->conf;
    const struct fr_conf_table *table = &conf->tables[conf->slots[ref->index].table];
    uint32_t space = level == LEVEL_GROUP ? SPACE_GROUPS : SPACE_SAMPLES;
    if (steps)
        space = add_space(b->variant, level, ref->index, FR_NO_INDEX);
    struct node *node = fr_build_node(b, steps ? NODE_SEQUENCE : NODE_POOLED, table->parts[ref->part].dim, NULL);
    node->space = space;
    node->slot = ref->index;
    node->part = ref->part;
    node->trainable = true;
    if (!steps) {
        node->pooling = ref->pooling;
        node->extra_width = fr_pooling_kept(node->pooling, node->width);
    }
    return only_once(b);
}

struct value fr_build_ref(struct builder *b, const struct fr_conf_ref *ref)
{
    if (ref->kind == FR_REF_LAYER) {
        const struct value *layer = &b->layers[ref->index];
        struct value copy = {.n = layer->n, .parts = fr_alloc(layer->n, sizeof(*copy.parts))};
        memcpy(copy.parts, layer->parts, layer->n * sizeof(*copy.parts));
        return copy;
    }
    enum level level = fr_bit(b->variant->shared, (uint32_t)ref->index) ? LEVEL_GROUP : LEVEL_SAMPLE;
    if (ref->kind == FR_REF_DENSE)
        return fr_build_value(dense_leaf(b, (uint32_t)ref->index, level));
    return fr_build_value(row_leaf(b, ref, level));
}

struct value fr_build_list(struct value *values, uint32_t n)
{
    struct value list = {0};
    for (uint32_t i = 0; i < n; i++)
        list.n += values[i].n;
    list.parts = fr_alloc(list.n, sizeof(*list.parts));
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(list.parts + at, values[i].parts, values[i].n * sizeof(*list.parts));
        at += values[i].n;
        free(values[i].parts);
    }
    return list;
}

/* ---- levels ---- */

static void expand(struct builder *b, struct operand *part)
{
    struct variant *v = b->variant;
    const struct space *from = &v->spaces[v->nodes[part->node].space];
    uint32_t space = SPACE_SAMPLES;
    if (from->slot != FR_NO_INDEX)
        space = add_space(v, LEVEL_SAMPLE, from->slot, (int32_t)v->nodes[part->node].space);
    struct value argument = {.n = 1, .parts = part};
    struct node *node = fr_build_node(b, NODE_EXPAND, v->nodes[part->node].width, &argument);
    node->space = space;
    *part = (struct operand){.node = only_once(b)};
}

/* Aligns the part with the steps of `space`, newest step to newest step. */
static void align(struct builder *b, struct operand *part, uint32_t space)
{
    struct value argument = {.n = 1, .parts = part};
    struct node *node = fr_build_node(b, NODE_ALIGN, b->variant->nodes[part->node].width, &argument);
    node->space = space;
    *part = (struct operand){.node = only_once(b)};
}

static void bring(struct builder *b, struct value *value, enum level level)
{
    struct variant *v = b->variant;
    for (uint32_t i = 0; i < value->n; i++)
        if (level == LEVEL_SAMPLE && level_of(b, value->parts[i].node) == LEVEL_GROUP)
            expand(b, &value->parts[i]);
    uint32_t space = v->nodes[value->parts[0].node].space;
    for (uint32_t i = 1; i < value->n; i++) {
        uint32_t other = v->nodes[value->parts[i].node].space;
        if (other == space)
            continue;
        FR_CHECK(v->spaces[space].slot != FR_NO_INDEX && v->spaces[other].slot != FR_NO_INDEX);
        align(b, &value->parts[i], space);
    }
}

static bool one_level(const struct builder *b, const struct value *value)
{
    for (uint32_t i = 1; i < value->n; i++)
        if (level_of(b, value->parts[i].node) != level_of(b, value->parts[0].node))
            return false;
    return true;
}

void fr_build_bring_together(struct builder *b, struct value *value)
{
    bring(b, value, one_level(b, value) ? level_of(b, value->parts[0].node) : LEVEL_SAMPLE);
}

void fr_build_bring_to_samples(struct builder *b, struct value *value)
{
    for (uint32_t i = 0; i < value->n; i++)
        if (level_of(b, value->parts[i].node) == LEVEL_GROUP)
            expand(b, &value->parts[i]);
}

void fr_build_join(struct builder *b, struct value *value)
{
    if (value->n == 1)
        return;
    fr_build_bring_together(b, value);
    uint32_t width = 0;
    for (uint32_t i = 0; i < value->n; i++)
        width += b->variant->nodes[value->parts[i].node].width;
    fr_build_node(b, NODE_CONCAT, width, value);
    value->n = 1;
    value->parts[0] = (struct operand){.node = only_once(b)};
}

void fr_build_concatenate(struct builder *b, struct value *value)
{
    const struct variant *v = b->variant;
    bool steps = v->spaces[v->nodes[value->parts[0].node].space].slot != FR_NO_INDEX;
    if (steps || one_level(b, value))
        fr_build_join(b, value);
}

/* ---- products ---- */

/* Joins the parts of one level, and finds where the kernel rows of each lie in the parameter. */
static struct value part_of(struct builder *b, const struct value *in, enum level level, struct linear *out)
{
    struct value mine = {.parts = fr_alloc(in->n, sizeof(*mine.parts))};
    out->segments = fr_alloc(in->n, sizeof(*out->segments));
    uint32_t parameter_row = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        uint32_t width = b->variant->nodes[in->parts[i].node].width;
        if (level_of(b, in->parts[i].node) == level) {
            mine.parts[mine.n++] = in->parts[i];
            struct segment *last = out->n_segments ? &out->segments[out->n_segments - 1] : NULL;
            if (last && last->parameter_row + last->n == parameter_row)
                last->n += width;
            else
                out->segments[out->n_segments++] = (struct segment){out->in, width, parameter_row};
            out->in += width;
        }
        parameter_row += width;
    }
    fr_build_join(b, &mine);
    return mine;
}

static void linear_node(struct builder *b, struct value *arguments, struct linear *linear)
{
    struct variant *v = b->variant;
    struct node *node = fr_build_node(b, NODE_LINEAR, linear->out, arguments);
    node->trainable = true;
    node->linear = (int32_t)v->n_linears;
    linear->node = fr_build_last(b);
    v->linears = fr_realloc(v->linears, v->n_linears + 1, sizeof(*v->linears));
    v->linears[v->n_linears++] = *linear;
}

/* Makes one product, or two if the input has parts of both levels: first that of the groups,
 * without bias. Frees `in`. */
struct value fr_build_linear(struct builder *b, struct value *in, uint32_t kernel, int32_t bias, bool relu)
{
    const struct fr_parameter *parameter = &b->graph->parameters[kernel];
    fr_build_concatenate(b, in);
    bool split = !one_level(b, in);
    struct linear base = {.kernel = kernel, .out = parameter->shape[1]};
    struct linear own = base;
    enum level level = split ? LEVEL_SAMPLE : level_of(b, in->parts[0].node);
    struct value arguments = part_of(b, in, level, &own);
    if (split) {
        struct linear shared = base;
        struct value groups = part_of(b, in, LEVEL_GROUP, &shared);
        linear_node(b, &groups, &shared);
        struct value both[] = {arguments, groups};
        groups.parts[0] = (struct operand){.node = fr_build_last(b)};
        arguments = fr_build_list(both, 2);
        FR_CHECK(shared.in + own.in == parameter->shape[0]);
    } else {
        FR_CHECK(own.in == parameter->shape[0]);
    }
    own.bias = bias != FR_NO_INDEX;
    own.relu = relu;
    linear_node(b, &arguments, &own);
    if (own.bias)
        fr_build_partial(b, (uint32_t)bias);
    free(arguments.parts);
    free(in->parts);
    *in = (struct value){0};
    return fr_build_value(fr_build_last(b));
}
