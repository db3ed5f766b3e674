/* What each layer is like after the last step: numbers of its parameters and of its output, units
 * that were 0 in every row looked at, the norm of its gradient.
 *
 * A layer with several products has one entry a product, which is named as its parameters are
 * ("deep/0" has deep/0/kernel and deep/0/bias). With a device none of these numbers is on the host.
 * Owner: the owner loop. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "insight_private.h"

static struct insight_layer *add_layer(struct fr_insight *insight, const char *name, size_t size, uint32_t layer)
{
    insight->layers = fr_realloc(insight->layers, insight->n_layers + 1, sizeof(*insight->layers));
    struct insight_layer *entry = &insight->layers[insight->n_layers++];
    FR_CHECK(size < sizeof(entry->name));
    memset(entry, 0, sizeof(*entry));
    memcpy(entry->name, name, size);
    entry->layer = layer;
    entry->gradient_norm = (double)NAN;
    return entry;
}

static struct insight_layer *find_layer(const struct fr_insight *insight, const char *name, size_t size)
{
    for (uint32_t i = 0; i < insight->n_layers; i++)
        if (strlen(insight->layers[i].name) == size && memcmp(insight->layers[i].name, name, size) == 0)
            return &insight->layers[i];
    return NULL;
}

/* Whether a parameter is of the layer: its name begins with the layer's. */
static bool is_of_layer(const char *parameter, const char *layer)
{
    size_t size = strlen(layer);
    return strncmp(parameter, layer, size) == 0 && parameter[size] == '/';
}

/* Adds the parts of a layer that have parameters, or the layer itself if it has none. */
static void add_parts(struct fr_insight *insight, uint32_t l)
{
    const char *layer = insight->conf->layers[l].name;
    const struct fr_parameter *parameters = fr_graph_parameters(insight->options.graph);
    bool any = false;
    for (uint32_t p = 0; p < fr_graph_parameter_count(insight->options.graph); p++) {
        const char *name = parameters[p].name;
        if (!is_of_layer(name, layer) || !parameters[p].trained)
            continue;
        size_t size = (size_t)(strrchr(name, '/') - name);
        struct insight_layer *entry = find_layer(insight, name, size);
        if (!entry)
            entry = add_layer(insight, name, size, l);
        entry->parameters = fr_realloc(entry->parameters, entry->n_parameters + 1, sizeof(*entry->parameters));
        entry->parameters[entry->n_parameters++] = p;
        entry->n_values += parameters[p].n_values;
        any = true;
    }
    if (!any)
        add_layer(insight, layer, strlen(layer), l);
}

void fr_insight_layers_init(struct fr_insight *insight)
{
    for (uint32_t l = 0; l < insight->conf->n_layers; l++)
        add_parts(insight, l);
}

void fr_insight_layers_release(struct fr_insight *insight)
{
    for (uint32_t i = 0; i < insight->n_layers; i++) {
        free(insight->layers[i].parameters);
        free(insight->layers[i].alive);
    }
    free(insight->layers);
}

/* ---- after a step ---- */

static bool has_output(const struct insight_layer *layer, const struct fr_graph_output_view *output)
{
    if (layer->layer != output->layer)
        return false;
    for (uint32_t i = 0; i < layer->n_parameters; i++)
        if ((int32_t)layer->parameters[i] == output->parameter)
            return true;
    return layer->n_parameters == 0;
}

static void keep_output(void *self, const struct fr_graph_output_view *output)
{
    struct fr_insight *insight = self;
    for (uint32_t i = 0; i < insight->n_layers; i++)
        if (has_output(&insight->layers[i], output))
            insight->layers[i].output = *output;
}

static void look_at_units(struct insight_layer *layer)
{
    const struct fr_graph_output_view *output = &layer->output;
    if (layer->width != output->width) {
        free(layer->alive);
        layer->alive = fr_alloc(output->width, 1);
        layer->width = output->width;
    }
    layer->relu = output->relu;
    uint32_t looks = output->rows < INSIGHT_ROWS ? output->rows : INSIGHT_ROWS;
    for (uint32_t i = 0; i < looks && output->relu; i++) {
        const float *row = output->values + (size_t)((uint64_t)i * output->rows / looks) * output->ld;
        for (uint32_t c = 0; c < output->width; c++)
            layer->alive[c] |= row[c] != 0.0f;
    }
}

static void look_at_output(struct insight_layer *layer)
{
    const struct fr_graph_output_view *output = &layer->output;
    if (!output->values || output->rows == 0)
        return;
    look_at_units(layer);
    uint64_t all = (uint64_t)output->rows * output->width;
    layer->n_activations = (uint32_t)(all < INSIGHT_VALUES ? all : INSIGHT_VALUES);
    for (uint32_t i = 0; i < layer->n_activations; i++) {
        uint64_t row = all <= INSIGHT_VALUES ? i / output->width : (uint64_t)i * output->rows / INSIGHT_VALUES;
        uint64_t column = all <= INSIGHT_VALUES ? i % output->width : fr_fmix64(i) % output->width;
        layer->activations[i] = output->values[row * output->ld + column];
    }
    layer->looked = true;
}

void fr_insight_layers_look(struct fr_insight *insight)
{
    for (uint32_t i = 0; i < insight->n_layers; i++)
        insight->layers[i].output.values = NULL;
    fr_graph_visit_outputs(insight->options.graph, keep_output, insight);
    for (uint32_t i = 0; i < insight->n_layers; i++) {
        struct insight_layer *layer = &insight->layers[i];
        look_at_output(layer);
        double squares = 0.0;
        for (uint32_t p = 0; p < layer->n_parameters; p++)
            squares += fr_graph_gradient_squares(insight->options.graph, layer->parameters[p]);
        layer->gradient_norm = layer->n_parameters > 0 ? sqrt(squares) : (double)NAN;
    }
}

void fr_insight_layers_begin_window(struct fr_insight *insight)
{
    for (uint32_t i = 0; i < insight->n_layers; i++) {
        insight->layers[i].looked = false;
        if (insight->layers[i].alive)
            memset(insight->layers[i].alive, 0, insight->layers[i].width);
    }
}

/* ---- the document ---- */

/* The number of all the layer's parameters that is at place `at`. */
static float parameter_at(const struct fr_insight *insight, const struct insight_layer *layer, uint64_t at)
{
    const struct fr_parameter *parameters = fr_graph_parameters(insight->options.graph);
    uint32_t p = 0;
    while (at >= parameters[layer->parameters[p]].n_values)
        at -= parameters[layer->parameters[p++]].n_values;
    return parameters[layer->parameters[p]].values[at];
}

static void put_weights(const struct fr_insight *insight, const struct insight_layer *layer, struct fr_json *json)
{
    float values[INSIGHT_VALUES];
    uint32_t n = (uint32_t)(layer->n_values < INSIGHT_VALUES ? layer->n_values : INSIGHT_VALUES);
    if (fr_graph_runs_beside(insight->options.graph))
        n = 0; /* those of the host are as old as the last cut */
    for (uint32_t i = 0; i < n; i++)
        values[i] =
            parameter_at(insight, layer, layer->n_values <= INSIGHT_VALUES ? i : fr_fmix64(i) % layer->n_values);
    fr_insight_quantiles(json, "weights", values, n);
}

static void put_dead(const struct insight_layer *layer, struct fr_json *json)
{
    uint32_t dead = 0;
    for (uint32_t c = 0; c < layer->width && layer->alive; c++)
        dead += !layer->alive[c];
    fr_json_number(json, "dead",
                   layer->looked && layer->relu && layer->width > 0 ? (double)dead / layer->width : (double)NAN);
}

void fr_insight_layers_json(struct fr_insight *insight, struct fr_json *json)
{
    fr_json_array(json, "layers");
    for (uint32_t i = 0; i < insight->n_layers; i++) {
        struct insight_layer *layer = &insight->layers[i];
        const struct fr_conf_layer *conf = &insight->conf->layers[layer->layer];
        fr_json_object(json, NULL);
        fr_json_text(json, "name", layer->name);
        fr_json_text(json, "layer", conf->name);
        fr_json_text(json, "op", fr_layer_op_text(conf->op));
        if (layer->width > 0)
            fr_json_u64(json, "units", layer->width);
        else
            fr_json_null(json, "units");
        put_dead(layer, json);
        put_weights(insight, layer, json);
        fr_insight_quantiles(json, "activations", layer->activations, layer->looked ? layer->n_activations : 0);
        fr_json_number(json, "gradient_norm", layer->gradient_norm);
        fr_json_end(json);
    }
    fr_json_end(json);
}
