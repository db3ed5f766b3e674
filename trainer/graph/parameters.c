/* Parameters of the layers: names, shapes, first values.
 *
 * All layers have parameters, also those that no task reaches, because they are part of the
 * model. A first value is a function of (seed, full name, index) alone, so adding or removing
 * another layer does not change it. Statistics (dice, standardize) are parameters, too, although
 * no gradient reaches them, because replicas need them.
 *
 * By default, kernel and bias are uniform in +-1/sqrt(fan_in), where fan_in is the number of
 * inputs of the map (for all four arrays of a gru the number of its units, as in PyTorch). With
 * an initializer of the layer or the network, kernels follow it, with the fans of the kernel's
 * shape, and biases are 0. Owner thread: the graph's. Training is in optimizers.c and
 * optimizer_state.c. */
#include "learning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "numerics/first_values.h"

enum { ALIGNMENT = 64, STREAM_DENSE = 2 /* a stream of base/random, keyed by name */ };

/* ---- first values ---- */

static void initialise(const struct fr_graph *graph, struct fr_parameter *p, const struct fr_conf_init *init,
                       uint32_t fan_in)
{
    const struct fr_value_place at = {.seed = graph->conf->seed,
                                      .stream = STREAM_DENSE,
                                      .key = fr_xxh3(p->name, strlen(p->name)),
                                      .fan_in = (double)fan_in,
                                      .fan_out = (double)p->shape[p->n_dims - 1]};
    fr_first_values(init, &at, p->values, p->n_values);
}

static void fill(struct fr_parameter *p, float value)
{
    for (size_t i = 0; i < p->n_values; i++)
        p->values[i] = value;
}

/* ---- making ---- */

/* The parameters being made, and the layer they are for. */
struct maker {
    struct fr_graph *graph;
    const struct fr_conf_layer *layer; /* NULL: statistics of a slot */
    char prefix[FR_NAME_MAX + 32];     /* <layer>, <layer>/<i>, <layer>/<e>/<i> .. */
};

static struct fr_parameter *add(struct maker *m, const char *what, uint32_t rows, uint32_t columns)
{
    struct fr_graph *graph = m->graph;
    if (graph->n_parameters == graph->capacity_parameters) {
        graph->capacity_parameters = graph->capacity_parameters ? 2 * graph->capacity_parameters : 16;
        graph->parameters = fr_realloc(graph->parameters, graph->capacity_parameters, sizeof(*graph->parameters));
    }
    struct fr_parameter *p = &graph->parameters[graph->n_parameters++];
    *p = (struct fr_parameter){
        .n_dims = rows ? 2 : 1, .shape = {rows ? rows : columns, rows ? columns : 0}, .trained = true};
    int n = snprintf(p->name, sizeof(p->name), "%s/%s", m->prefix, what);
    FR_CHECK(n > 0 && (size_t)n < sizeof(p->name));
    size_t bytes;
    FR_CHECK(fr_mul_size(rows ? rows : 1, columns, &p->n_values) && fr_mul_size(p->n_values, sizeof(float), &bytes));
    p->values = fr_alloc_aligned(ALIGNMENT, bytes);
    p->published = p->values;
    return p;
}

static void add_kernel(struct maker *m, const char *what, uint32_t rows, uint32_t columns, uint32_t fan_in)
{
    initialise(m->graph, add(m, what, rows, columns), &m->layer->init, fan_in);
}

/* fan_in 0: the map has no inputs of its own, so the bias begins at 0, or at the configured
 * constant. */
static void add_bias(struct maker *m, const char *what, uint32_t columns, uint32_t fan_in)
{
    struct fr_parameter *p = add(m, what, 0, columns);
    if ((m->layer->init.kind == FR_INIT_DEFAULT && fan_in > 0) ||
        (m->layer->init.kind == FR_INIT_CONSTANT && m->layer->op == FR_LAYER_BIAS))
        initialise(m->graph, p, &m->layer->init, fan_in);
}

static void add_constant(struct maker *m, const char *what, uint32_t columns, float value)
{
    fill(add(m, what, 0, columns), value);
}

static void add_statistics(struct maker *m, uint32_t columns)
{
    add_constant(m, "mean", columns, 0.0f);
    add_constant(m, "variance", columns, 1.0f);
    for (size_t i = 1; i <= 2; i++) {
        struct fr_parameter *p = &m->graph->parameters[m->graph->n_parameters - i];
        p->trained = false;
        p->exact = true;
    }
}

static void add_activation(struct maker *m, uint32_t width)
{
    enum fr_activation activation = m->layer->activation;
    if (fr_activation_has_alpha(activation))
        add_constant(m, "alpha", width, 0.25f);
    if (fr_activation_has_statistics(activation))
        add_statistics(m, width);
}

static void set_prefix(struct maker *m, const char *suffix)
{
    int n = snprintf(m->prefix, sizeof(m->prefix), "%s%s", m->layer->name, suffix);
    FR_CHECK(n > 0 && (size_t)n < sizeof(m->prefix));
}

static void add_dense(struct maker *m, uint32_t in, uint32_t out)
{
    add_kernel(m, "kernel", in, out, in);
    add_bias(m, "bias", out, in);
}

/* `outer`: "" or "/<e>"; returns the width of the last layer. */
static uint32_t add_mlp(struct maker *m, const char *outer, uint32_t in)
{
    for (uint32_t i = 0; i < m->layer->n_units; i++) {
        char suffix[24];
        snprintf(suffix, sizeof(suffix), "%.11s/%u", outer, i);
        set_prefix(m, suffix);
        add_dense(m, in, m->layer->units[i]);
        add_activation(m, m->layer->units[i]);
        in = m->layer->units[i];
    }
    return in;
}

static void add_cross(struct maker *m, uint32_t width)
{
    uint32_t rank = m->layer->rank;
    for (uint32_t i = 0; i < m->layer->depth; i++) {
        char suffix[16];
        snprintf(suffix, sizeof(suffix), "/%u", i);
        set_prefix(m, suffix);
        if (rank > 0) {
            add_kernel(m, "down", width, rank, width);
            add_kernel(m, "up", rank, width, rank);
        } else {
            add_kernel(m, "kernel", width, width, width);
        }
        add_bias(m, "bias", width, rank > 0 ? rank : width);
    }
}

static void add_gru(struct maker *m, uint32_t in)
{
    uint32_t units = m->layer->width;
    bool standard = m->layer->init.kind == FR_INIT_DEFAULT;
    add_kernel(m, "kernel", in, 3 * units, standard ? units : in);
    add_bias(m, "bias", 3 * units, units);
    add_kernel(m, "recurrent_kernel", units, 3 * units, units);
    add_bias(m, "recurrent_bias", 3 * units, units);
}

static void add_experts(struct maker *m, uint32_t in)
{
    for (uint32_t e = 0; e < m->layer->count; e++) {
        char outer[12];
        snprintf(outer, sizeof(outer), "/%u", e);
        add_mlp(m, outer, in);
    }
}

static void add_layer(struct fr_graph *graph, const struct fr_conf_layer *layer)
{
    struct maker m = {.graph = graph, .layer = layer};
    uint32_t in = fr_conf_role_width(graph->conf, layer, 0);
    set_prefix(&m, "");
    switch (layer->op) {
    case FR_LAYER_MLP:
        add_mlp(&m, "", in);
        break;
    case FR_LAYER_DENSE:
        add_dense(&m, in, layer->units[0]);
        add_activation(&m, layer->units[0]);
        break;
    case FR_LAYER_CROSS:
        add_cross(&m, in);
        break;
    case FR_LAYER_BIAS:
        add_bias(&m, "bias", in, 0);
        break;
    case FR_LAYER_LAYER_NORM:
        add_constant(&m, "scale", in, 1.0f);
        add_bias(&m, "bias", in, 0);
        break;
    case FR_LAYER_ACTIVATE:
        add_activation(&m, in);
        break;
    case FR_LAYER_ATTENTION:
        in = add_mlp(&m, "", 4 * fr_conf_role_width(graph->conf, layer, 1));
        set_prefix(&m, "/score");
        add_kernel(&m, "kernel", in, 1, in);
        if (!layer->softmax) /* under a softmax, its gradient would be rounding noise */
            add_bias(&m, "bias", 1, in);
        break;
    case FR_LAYER_GRU:
        add_gru(&m, in);
        break;
    case FR_LAYER_AUGRU: {
        uint32_t keys = fr_conf_role_width(graph->conf, layer, 1);
        add_gru(&m, keys);
        add_kernel(&m, "attention", keys, in, keys);
        break;
    }
    case FR_LAYER_EXPERTS:
        add_experts(&m, in);
        break;
    case FR_LAYER_MIXTURE:
        FR_CHECK(layer->width > 0);
        add_kernel(&m, "kernel", in, fr_conf_role_width(graph->conf, layer, 1) / layer->width, in);
        break;
    case FR_LAYER_CONCAT:
    case FR_LAYER_BI_INTERACTION:
    case FR_LAYER_SUM:
    case FR_LAYER_ADD:
        FR_STEP_LAYERS(FR_KIND_CASE)
    case FR_LAYER_MULTIPLY:
    case FR_LAYER_FM:
    case FR_LAYER_DOT_INTERACTION:
    case FR_LAYER_DROPOUT:
    case FR_LAYER_STOP_GRADIENT:
        break;
    }
}

void fr_graph_make_parameters(struct fr_graph *graph)
{
    const struct fr_conf *conf = graph->conf;
    /* first parameter of each layer */
    size_t *first = fr_alloc(conf->n_layers + 1, sizeof(*first));
    for (uint32_t l = 0; l < conf->n_layers; l++) {
        add_layer(graph, &conf->layers[l]);
        first[l + 1] = graph->n_parameters;
    }
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &conf->slots[s];
        if (!fr_conf_slot_learns(slot))
            continue;
        struct maker m = {.graph = graph};
        snprintf(m.prefix, sizeof(m.prefix), "%s", slot->name);
        add_statistics(&m, slot->dim);
        /* the number of samples, up to the limit in statistics.c */
        add_constant(&m, "count", 1, 0.0f);
        struct fr_parameter *count = &graph->parameters[graph->n_parameters - 1];
        count->trained = false;
        count->exact = true;
    }
    graph->parameter_states = fr_alloc(graph->n_parameters, sizeof(*graph->parameter_states));
    for (uint32_t l = 0; l < conf->n_layers; l++)
        for (size_t p = first[l]; p < first[l + 1]; p++)
            graph->parameter_states[p].conf =
                conf->layers[l].has_optimizer ? &conf->layers[l].optimizer : &conf->dense_optimizer;
    free(first);
}

/* ---- reading ---- */

uint32_t fr_graph_find_parameter(const struct fr_graph *graph, const char *name)
{
    for (size_t p = 0; p < graph->n_parameters; p++)
        if (strcmp(graph->parameters[p].name, name) == 0)
            return (uint32_t)p;
    FR_CHECK(!"a layer without its parameters");
    return 0;
}

size_t fr_graph_parameter_count(const struct fr_graph *graph)
{
    return graph->n_parameters;
}

struct fr_parameter *fr_graph_parameters(struct fr_graph *graph)
{
    return graph->parameters;
}
