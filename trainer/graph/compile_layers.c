/* Makes nodes from layers: every operation of the layer grammar, composed of primitives.
 *
 * Sources of the compositions: DCN-v2 (Wang et al. 2021), DIN (Zhou et al. 2018), DIEN (Zhou et
 * al. 2019), MMoE (Ma et al. 2018), FM (Rendle 2010). Parameters, which parameters.c made, are
 * found by name. Owner thread: the graph's. Nothing here can fail, because the configuration's
 * loader has checked the shapes. */
#include "compile_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The name of a parameter up to the last slash. */
struct prefix {
    char text[FR_NAME_MAX + 32];
};

__attribute__((format(printf, 1, 2))) static struct prefix prefix(const char *format, ...)
{
    struct prefix p;
    va_list list;
    va_start(list, format);
    int n = vsnprintf(p.text, sizeof(p.text), format, list);
    va_end(list);
    FR_CHECK(n > 0 && (size_t)n < sizeof(p.text));
    return p;
}

static uint32_t node_of(const struct value *value)
{
    FR_CHECK(value->n == 1);
    return value->parts[0].node;
}

static uint32_t width_of(const struct builder *b, const struct value *value)
{
    return b->variant->nodes[node_of(value)].width;
}

/* Returns the newest node as a value; frees `arguments`, which it replaces. */
static struct value made(const struct builder *b, struct value *arguments)
{
    free(arguments->parts);
    *arguments = (struct value){0};
    return fr_build_value(fr_build_last(b));
}

static struct value copy_of(const struct value *value)
{
    FR_CHECK(value->n == 1);
    struct value copy = fr_build_value(value->parts[0].node);
    copy.parts[0].stop = value->parts[0].stop;
    return copy;
}

/* ---- arguments ---- */

/* Returns the references of a role, one after the other. Groups' parts and samples' parts stay
 * separate. */
static struct value role_value(struct builder *b, const struct fr_conf_layer *layer, uint32_t role)
{
    uint32_t begin = layer->role_begin[role], n = layer->role_begin[role + 1] - begin;
    FR_CHECK(n > 0);
    struct value *values = fr_alloc(n, sizeof(*values));
    for (uint32_t i = 0; i < n; i++)
        values[i] = fr_build_ref(b, &layer->refs[begin + i]);
    struct value list = fr_build_list(values, n);
    free(values);
    fr_build_concatenate(b, &list);
    return list;
}

static struct value joined_role(struct builder *b, const struct fr_conf_layer *layer, uint32_t role)
{
    struct value value = role_value(b, layer, role);
    fr_build_join(b, &value);
    return value;
}

/* Returns every reference as a part of its own, all at one level. */
static struct value separate_refs(struct builder *b, const struct fr_conf_layer *layer)
{
    struct value *values = fr_alloc(layer->n_refs, sizeof(*values));
    for (uint32_t i = 0; i < layer->n_refs; i++) {
        values[i] = fr_build_ref(b, &layer->refs[i]);
        fr_build_join(b, &values[i]);
    }
    struct value list = fr_build_list(values, layer->n_refs);
    free(values);
    fr_build_bring_together(b, &list);
    return list;
}

/* Makes two or three values the arguments of one node: they are brought to one level, but each
 * keeps its own space. Frees the values. */
static struct value arguments_of(struct builder *b, struct value *values, uint32_t n)
{
    struct value list = fr_build_list(values, n);
    bool samples = false;
    for (uint32_t i = 0; i < n; i++)
        samples |= b->variant->spaces[b->variant->nodes[list.parts[i].node].space].level == LEVEL_SAMPLE;
    if (samples)
        fr_build_bring_to_samples(b, &list);
    return list;
}

static enum level level_of(const struct builder *b, const struct value *value)
{
    return b->variant->spaces[b->variant->nodes[node_of(value)].space].level;
}

static uint32_t vectors_of(const struct builder *b, const struct value *value)
{
    return level_of(b, value) == LEVEL_GROUP ? SPACE_GROUPS : SPACE_SAMPLES;
}

/* ---- dense layers ---- */

static struct value activate(struct builder *b, struct value in, enum fr_activation activation, const char *name)
{
    if (fr_activation_form(activation) == FR_ACTIVATED_NOWHERE)
        return in;
    struct node *node = fr_build_node(b, NODE_ACTIVATE, width_of(b, &in), &in);
    node->activation = activation;
    if (fr_activation_has_statistics(activation)) {
        node->mean = (int32_t)fr_build_parameter(b, name, "mean");
        node->variance = (int32_t)fr_build_parameter(b, name, "variance");
    }
    if (fr_activation_has_alpha(activation))
        fr_build_partial(b, fr_build_parameter(b, name, "alpha"));
    return made(b, &in);
}

static struct value dense(struct builder *b, struct value in, enum fr_activation activation, const char *name)
{
    bool relu = fr_activation_form(activation) == FR_ACTIVATED_IN_PRODUCT;
    uint32_t kernel = fr_build_parameter(b, name, "kernel");
    struct value out = fr_build_linear(b, &in, kernel, (int32_t)fr_build_parameter(b, name, "bias"), relu);
    return relu ? out : activate(b, out, activation, name);
}

static struct value without_bias(struct builder *b, struct value in, const char *name, const char *what)
{
    return fr_build_linear(b, &in, fr_build_parameter(b, name, what), FR_NO_INDEX, false);
}

static struct value mlp(struct builder *b, struct value in, const struct fr_conf_layer *layer, const char *name)
{
    for (uint32_t i = 0; i < layer->n_units; i++)
        in = dense(b, in, layer->activation, prefix("%s/%u", name, i).text);
    return in;
}

static struct value experts(struct builder *b, const struct fr_conf_layer *layer)
{
    struct value *values = fr_alloc(layer->count, sizeof(*values));
    for (uint32_t e = 0; e < layer->count; e++)
        values[e] = mlp(b, role_value(b, layer, 0), layer, prefix("%s/%u", layer->name, e).text);
    struct value all = fr_build_list(values, layer->count);
    free(values);
    fr_build_join(b, &all);
    return all;
}

static struct value mixture(struct builder *b, const struct fr_conf_layer *layer)
{
    struct value both[] = {without_bias(b, role_value(b, layer, 0), layer->name, "kernel"), joined_role(b, layer, 1)};
    struct value arguments = arguments_of(b, both, 2);
    const struct node *nodes = b->variant->nodes;
    uint32_t count = nodes[arguments.parts[0].node].width, experts_width = nodes[arguments.parts[1].node].width;
    struct node *node = fr_build_node(b, NODE_MIXTURE, experts_width / count, &arguments);
    node->extra_width = count;
    return made(b, &arguments);
}

/* ---- interactions ---- */

static struct value interaction(struct builder *b, const struct fr_conf_layer *layer, enum node_kind kind)
{
    struct value list = separate_refs(b, layer);
    uint32_t width = b->variant->nodes[list.parts[0].node].width;
    if (kind == NODE_DOT_INTERACTION)
        width = list.n * (list.n - 1) / 2;
    fr_build_node(b, kind, width, &list);
    return made(b, &list);
}

static struct value row_sum(struct builder *b, struct value in)
{
    fr_build_node(b, NODE_ROW_SUM, 1, &in);
    return made(b, &in);
}

static struct value cross(struct builder *b, const struct fr_conf_layer *layer)
{
    struct value x0 = joined_role(b, layer, 0), x = copy_of(&x0);
    for (uint32_t i = 0; i < layer->depth; i++) {
        struct prefix name = prefix("%s/%u", layer->name, i);
        int32_t bias = (int32_t)fr_build_parameter(b, name.text, "bias");
        struct value t = copy_of(&x);
        if (layer->rank > 0) {
            t = without_bias(b, t, name.text, "down");
            t = fr_build_linear(b, &t, fr_build_parameter(b, name.text, "up"), bias, false);
        } else {
            t = fr_build_linear(b, &t, fr_build_parameter(b, name.text, "kernel"), bias, false);
        }
        struct value three[] = {copy_of(&x0), t, x};
        struct value arguments = fr_build_list(three, 3);
        fr_build_node(b, NODE_CROSS, width_of(b, &x0), &arguments);
        x = made(b, &arguments);
    }
    free(x0.parts);
    return x;
}

/* ---- sequences ---- */

static struct value pool_steps(struct builder *b, struct value in, enum fr_pooling kind)
{
    uint32_t space = vectors_of(b, &in);
    struct node *node = fr_build_node(b, NODE_POOL_STEPS, width_of(b, &in), &in);
    node->space = space;
    node->pooling = kind;
    return made(b, &in);
}

/* Reduces the steps of one sequence (sum, mean, sqrtn, last); otherwise adds vectors. */
static struct value reduce(struct builder *b, const struct fr_conf_layer *layer)
{
    enum fr_pooling pooling;
    if (fr_conf_ref_shape(b->graph->conf, &layer->refs[0]).is_sequence && fr_layer_step_pooling(layer->op, &pooling))
        return pool_steps(b, joined_role(b, layer, 0), pooling);
    FR_CHECK(layer->op == FR_LAYER_SUM);
    return interaction(b, layer, NODE_ADD);
}

/* Makes the layer `name` over [q, k, q - k, q o k], without storing that concatenation. */
static struct value attention_dense(struct builder *b, struct value *arguments, enum fr_activation activation,
                                    const char *name, bool bias)
{
    uint32_t steps = b->variant->nodes[arguments->parts[1].node].space;
    uint32_t kernel = fr_build_parameter(b, name, "kernel");
    struct node *node = fr_build_node(b, NODE_ATTENTION_DENSE, b->graph->parameters[kernel].shape[1], arguments);
    bool relu = fr_activation_form(activation) == FR_ACTIVATED_IN_PRODUCT;
    node->space = steps;
    node->activation = relu ? activation : FR_ACT_NONE;
    fr_build_partial(b, kernel);
    if (bias)
        fr_build_partial(b, fr_build_parameter(b, name, "bias"));
    struct value out = made(b, arguments);
    return relu ? out : activate(b, out, activation, name);
}

/* Makes the scores of the steps: hidden layers, then one unit. The unit has no bias if a softmax
 * follows, because a softmax does not change when all scores change by one number. */
static struct value attention_scores(struct builder *b, struct value *arguments, const struct fr_conf_layer *layer)
{
    struct prefix score = prefix("%s/score", layer->name);
    if (layer->n_units == 0)
        return attention_dense(b, arguments, FR_ACT_NONE, score.text, !layer->softmax);
    struct prefix first = prefix("%s/%u", layer->name, 0u);
    struct value hidden = attention_dense(b, arguments, layer->activation, first.text, true);
    for (uint32_t i = 1; i < layer->n_units; i++)
        hidden = dense(b, hidden, layer->activation, prefix("%s/%u", layer->name, i).text);
    if (layer->softmax)
        return without_bias(b, hidden, score.text, "kernel");
    return dense(b, hidden, FR_ACT_NONE, score.text);
}

static struct value attention(struct builder *b, const struct fr_conf_layer *layer)
{
    struct value both[] = {joined_role(b, layer, 0), joined_role(b, layer, 1)};
    struct value arguments = arguments_of(b, both, 2);
    struct value keys = fr_build_value(arguments.parts[1].node);
    keys.parts[0].stop = arguments.parts[1].stop;
    uint32_t width = width_of(b, &keys);
    struct value scores = attention_scores(b, &arguments, layer);
    if (layer->softmax) {
        fr_build_node(b, NODE_SOFTMAX_STEPS, 1, &scores);
        scores = made(b, &scores);
    }
    uint32_t vectors = vectors_of(b, &keys);
    struct value pooled[] = {scores, keys};
    arguments = fr_build_list(pooled, 2);
    fr_build_node(b, NODE_ATTENTION_POOL, width, &arguments)->space = vectors;
    return made(b, &arguments);
}

/* `scores`: the score of each step; without parts if there are none. */
static struct value gru(struct builder *b, struct value steps, struct value scores, const struct fr_conf_layer *layer)
{
    uint32_t units = layer->width; /* for augru, the width of its keys */
    uint32_t kernel = fr_build_parameter(b, layer->name, "kernel"), bias = fr_build_parameter(b, layer->name, "bias");
    struct value both[] = {fr_build_linear(b, &steps, kernel, (int32_t)bias, false), scores};
    struct value arguments = fr_build_list(both, scores.n ? 2 : 1);
    struct node *node = fr_build_node(b, NODE_GRU, units, &arguments);
    node->extra_width = 4 * units;
    fr_build_partial(b, fr_build_parameter(b, layer->name, "recurrent_kernel"));
    fr_build_partial(b, fr_build_parameter(b, layer->name, "recurrent_bias"));
    return made(b, &arguments);
}

static struct value augru(struct builder *b, const struct fr_conf_layer *layer)
{
    struct value query = joined_role(b, layer, 0), keys = joined_role(b, layer, 1);
    struct value both[] = {keys, query};
    struct value arguments = arguments_of(b, both, 2);
    keys = fr_build_value(arguments.parts[0].node);
    keys.parts[0].stop = arguments.parts[0].stop;
    struct value scored = without_bias(b, copy_of(&keys), layer->name, "attention");
    query = fr_build_value(arguments.parts[1].node);
    query.parts[0].stop = arguments.parts[1].stop;
    free(arguments.parts);
    struct value pair[] = {scored, query};
    arguments = fr_build_list(pair, 2);
    fr_build_node(b, NODE_DOT_STEPS, 1, &arguments);
    struct value scores = made(b, &arguments);
    fr_build_node(b, NODE_SOFTMAX_STEPS, 1, &scores);
    scores = made(b, &scores);
    return pool_steps(b, gru(b, keys, scores, layer), FR_POOL_LAST);
}

/* ---- element by element ---- */

static struct value bias(struct builder *b, struct value in, const struct fr_conf_layer *layer)
{
    fr_build_node(b, NODE_BIAS, width_of(b, &in), &in);
    fr_build_partial(b, fr_build_parameter(b, layer->name, "bias"));
    return made(b, &in);
}

static struct value layer_norm(struct builder *b, struct value in, const struct fr_conf_layer *layer)
{
    struct node *node = fr_build_node(b, NODE_LAYER_NORM, width_of(b, &in), &in);
    node->extra_width = 2;
    fr_build_partial(b, fr_build_parameter(b, layer->name, "scale"));
    fr_build_partial(b, fr_build_parameter(b, layer->name, "bias"));
    return made(b, &in);
}

/* Masks are drawn per sample, also for columns that groups share. */
static struct value dropout(struct builder *b, struct value in)
{
    fr_build_bring_to_samples(b, &in);
    fr_build_node(b, NODE_DROPOUT, width_of(b, &in), &in);
    return made(b, &in);
}

static struct value stop_gradient(struct builder *b, const struct fr_conf_layer *layer)
{
    struct value value = role_value(b, layer, 0);
    for (uint32_t i = 0; i < value.n; i++)
        value.parts[i].stop = true;
    return value;
}

static struct value layer_value(struct builder *b, uint32_t l)
{
    const struct fr_conf_layer *layer = &b->graph->conf->layers[l];
    switch (layer->op) {
    case FR_LAYER_CONCAT:
        return role_value(b, layer, 0);
    case FR_LAYER_MLP:
        return mlp(b, role_value(b, layer, 0), layer, layer->name);
    case FR_LAYER_DENSE:
        return dense(b, role_value(b, layer, 0), layer->activation, layer->name);
    case FR_LAYER_BI_INTERACTION:
        return interaction(b, layer, NODE_BI_INTERACTION);
    case FR_LAYER_SUM:
        FR_STEP_LAYERS(FR_KIND_CASE)
        return reduce(b, layer);
    case FR_LAYER_ADD:
        return interaction(b, layer, NODE_ADD);
    case FR_LAYER_MULTIPLY:
        return interaction(b, layer, NODE_MULTIPLY);
    case FR_LAYER_FM:
        return row_sum(b, interaction(b, layer, NODE_BI_INTERACTION));
    case FR_LAYER_DOT_INTERACTION:
        return interaction(b, layer, NODE_DOT_INTERACTION);
    case FR_LAYER_CROSS:
        return cross(b, layer);
    case FR_LAYER_BIAS:
        return bias(b, joined_role(b, layer, 0), layer);
    case FR_LAYER_LAYER_NORM:
        return layer_norm(b, joined_role(b, layer, 0), layer);
    case FR_LAYER_DROPOUT:
        return dropout(b, joined_role(b, layer, 0));
    case FR_LAYER_ACTIVATE:
        return activate(b, joined_role(b, layer, 0), layer->activation, layer->name);
    case FR_LAYER_STOP_GRADIENT:
        return stop_gradient(b, layer);
    case FR_LAYER_ATTENTION:
        return attention(b, layer);
    case FR_LAYER_GRU:
        return gru(b, joined_role(b, layer, 0), (struct value){0}, layer);
    case FR_LAYER_AUGRU:
        return augru(b, layer);
    case FR_LAYER_EXPERTS:
        return experts(b, layer);
    case FR_LAYER_MIXTURE:
        return mixture(b, layer);
    }
    FR_CHECK(!"an operation that is not there");
    return (struct value){0};
}

void fr_graph_build_layer(struct builder *b, uint32_t l)
{
    b->layer = (int32_t)l;
    b->layers[l] = layer_value(b, l);
    b->layer = FR_NO_INDEX;
}

void fr_graph_build_loss(struct builder *b, uint32_t loss)
{
    const struct fr_conf_loss *conf = &b->graph->conf->losses[loss];
    struct value values[3];
    FR_CHECK(conf->n_refs == fr_aux_loss_refs(conf->kind) && conf->n_refs <= FR_ARRAY_LEN(values));
    for (uint32_t i = 0; i < conf->n_refs; i++) {
        values[i] = fr_build_ref(b, &conf->refs[i]);
        fr_build_join(b, &values[i]);
    }
    struct value arguments = fr_build_list(values, conf->n_refs);
    fr_build_bring_to_samples(b, &arguments);
    enum node_kind kind = NODE_MSE_PAIR;
    switch (conf->kind) {
    case FR_AUX_MSE:
        break;
    case FR_AUX_NEXT_STEP:
        kind = NODE_NEXT_STEP;
        break;
    }
    fr_build_node(b, kind, 0, &arguments)->loss = (int32_t)loss;
    free(arguments.parts);
}

uint32_t fr_graph_build_output(struct builder *b, uint32_t layer)
{
    struct value value = fr_build_ref(b, &(struct fr_conf_ref){.kind = FR_REF_LAYER, .index = (int32_t)layer});
    fr_build_join(b, &value);
    fr_build_bring_to_samples(b, &value);
    uint32_t node = node_of(&value);
    free(value.parts);
    return node;
}
