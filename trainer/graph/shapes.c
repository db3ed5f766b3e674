/* Shape inference: the width of every layer, and the errors an operator can act on: layer, line, both shapes.
 *
 * Also decides which layers a task reaches; the others keep their parameters but are neither computed nor trained.
 * Owner thread: whoever makes the graph. Does not: trust layer order or indices blindly, although the config loader has
 * sorted them. */
#include "network.h"

#include <stdio.h>

static const char *op_name(enum fr_layer_op op)
{
    switch (op) {
    case FR_LAYER_CONCAT:
        return "concat";
    case FR_LAYER_MLP:
        return "mlp";
    case FR_LAYER_DENSE:
        return "dense";
    case FR_LAYER_BI_INTERACTION:
        return "bi_interaction";
    case FR_LAYER_SUM:
        return "sum";
    case FR_LAYER_ADD:
        return "add";
    }
    return "?";
}

struct ref_text {
    char text[2 * FR_NAME_MAX + 16];
};

static struct ref_text describe_ref(const struct fr_conf *conf, const struct fr_conf_ref *ref)
{
    struct ref_text t = {0};
    if (ref->kind == FR_REF_LAYER) {
        snprintf(t.text, sizeof(t.text), "%s", conf->layers[ref->index].name);
        return t;
    }
    const struct fr_conf_slot *slot = &conf->slots[ref->index];
    if (ref->kind == FR_REF_DENSE)
        snprintf(t.text, sizeof(t.text), "%s", slot->name);
    else
        snprintf(t.text, sizeof(t.text), "%s of %s.%s", ref->pooling == FR_POOL_MEAN ? "mean" : "sum", slot->name,
                 conf->tables[slot->table].parts[ref->part].name);
    return t;
}

static struct ref_text describe_layer(const struct fr_conf_layer *layer)
{
    struct ref_text t = {0};
    if (layer->line > 0)
        snprintf(t.text, sizeof(t.text), "layer `%s` (line %u)", layer->name, layer->line);
    else
        snprintf(t.text, sizeof(t.text), "layer `%s`", layer->name);
    return t;
}

/* Width of a reference from layer `at`; 0 when it points nowhere. */
static uint32_t ref_width(const struct fr_graph *graph, uint32_t at, const struct fr_conf_ref *ref)
{
    const struct fr_conf *conf = graph->conf;
    if (ref->kind == FR_REF_LAYER)
        return ref->index >= 0 && (uint32_t)ref->index < at ? graph->layer_width[ref->index] : 0;
    if (ref->index < 0 || (uint32_t)ref->index >= conf->n_slots)
        return 0;
    const struct fr_conf_slot *slot = &conf->slots[ref->index];
    if (ref->kind == FR_REF_DENSE)
        return slot->kind == FR_SLOT_DENSE ? slot->dim : 0;
    if (slot->kind == FR_SLOT_DENSE || slot->table < 0 || (uint32_t)slot->table >= conf->n_tables)
        return 0;
    const struct fr_conf_table *table = &conf->tables[slot->table];
    if (ref->part < 0 || (uint32_t)ref->part >= table->n_parts)
        return 0;
    return table->parts[ref->part].dim;
}

static enum fr_status check_equal_widths(const struct fr_graph *graph, uint32_t at, struct fr_err *err)
{
    const struct fr_conf_layer *layer = &graph->conf->layers[at];
    uint32_t width = ref_width(graph, at, &layer->refs[0]);
    for (uint32_t i = 1; i < layer->n_refs; i++) {
        uint32_t other = ref_width(graph, at, &layer->refs[i]);
        if (other != width)
            return fr_err_set(
                err, FR_E_INVALID, "%s: %s needs arguments of one width, but `%s` is [%u] and `%s` is [%u]",
                describe_layer(layer).text, op_name(layer->op), describe_ref(graph->conf, &layer->refs[0]).text, width,
                describe_ref(graph->conf, &layer->refs[i]).text, other);
    }
    return FR_OK;
}

static enum fr_status check_units(const struct fr_conf_layer *layer, uint32_t in, struct fr_err *err)
{
    if (layer->n_units == 0 || layer->n_units > FR_ARRAY_LEN(layer->units) ||
        (layer->op == FR_LAYER_DENSE && layer->n_units != 1))
        return fr_err_set(err, FR_E_INVALID, "%s: %s with %u units entries", describe_layer(layer).text,
                          op_name(layer->op), layer->n_units);
    for (uint32_t i = 0; i < layer->n_units; i++) {
        uint32_t out = layer->units[i];
        if (out == 0 || out > FR_WIDTH_MAX || (uint64_t)in * out > FR_KERNEL_VALUES_MAX)
            return fr_err_set(err, FR_E_INVALID, "%s: a kernel of shape [%u, %u] is outside the limits (%d values)",
                              describe_layer(layer).text, in, out, FR_KERNEL_VALUES_MAX);
        in = out;
    }
    return FR_OK;
}

static enum fr_status infer_layer(struct fr_graph *graph, uint32_t at, struct fr_err *err)
{
    const struct fr_conf_layer *layer = &graph->conf->layers[at];
    if (layer->n_refs == 0)
        return fr_err_set(err, FR_E_INVALID, "%s: %s without arguments", describe_layer(layer).text,
                          op_name(layer->op));
    uint64_t total = 0;
    for (uint32_t i = 0; i < layer->n_refs; i++) {
        uint32_t width = ref_width(graph, at, &layer->refs[i]);
        if (width == 0)
            return fr_err_set(err, FR_E_INVALID, "%s: argument %u is not a vector that exists before this layer",
                              describe_layer(layer).text, i + 1);
        total += width;
    }
    if (total > FR_WIDTH_MAX)
        return fr_err_set(err, FR_E_INVALID, "%s: its arguments together are [%llu], the limit is [%d]",
                          describe_layer(layer).text, (unsigned long long)total, FR_WIDTH_MAX);
    enum fr_status status = FR_OK;
    switch (layer->op) {
    case FR_LAYER_CONCAT:
        graph->layer_width[at] = (uint32_t)total;
        break;
    case FR_LAYER_MLP:
    case FR_LAYER_DENSE:
        status = check_units(layer, (uint32_t)total, err);
        if (status == FR_OK)
            graph->layer_width[at] = layer->units[layer->n_units - 1];
        break;
    case FR_LAYER_BI_INTERACTION:
    case FR_LAYER_SUM:
    case FR_LAYER_ADD:
        status = check_equal_widths(graph, at, err);
        if (status == FR_OK)
            graph->layer_width[at] = ref_width(graph, at, &layer->refs[0]);
        break;
    }
    return status;
}

static void mark_live(struct fr_graph *graph)
{
    const struct fr_conf *conf = graph->conf;
    for (uint32_t t = 0; t < conf->n_tasks; t++)
        graph->layer_live[conf->tasks[t].logit] = true;
    for (uint32_t l = conf->n_layers; l-- > 0;) {
        const struct fr_conf_layer *layer = &conf->layers[l];
        for (uint32_t i = 0; i < layer->n_refs && graph->layer_live[l]; i++)
            if (layer->refs[i].kind == FR_REF_LAYER)
                graph->layer_live[layer->refs[i].index] = true;
    }
}

enum fr_status fr_graph_infer_shapes(struct fr_graph *graph, struct fr_err *err)
{
    const struct fr_conf *conf = graph->conf;
    if (conf->n_layers > FR_LAYERS_MAX || conf->n_tasks == 0 || conf->n_tasks > FR_TASKS_MAX || conf->chunk_rows == 0)
        return fr_err_set(err, FR_E_INVALID, "network: %u layers (at most %d), %u tasks (1 to %d), chunks of %u rows",
                          conf->n_layers, FR_LAYERS_MAX, conf->n_tasks, FR_TASKS_MAX, conf->chunk_rows);
    for (uint32_t l = 0; l < conf->n_layers; l++) {
        enum fr_status status = infer_layer(graph, l, err);
        if (status != FR_OK)
            return status;
    }
    for (uint32_t t = 0; t < conf->n_tasks; t++) {
        const struct fr_conf_task *task = &conf->tasks[t];
        if (task->logit < 0 || (uint32_t)task->logit >= conf->n_layers || task->label < 0 ||
            (uint32_t)task->label >= conf->n_labels)
            return fr_err_set(err, FR_E_INVALID, "task `%s`: its label or logit layer does not exist", task->name);
        uint32_t width = graph->layer_width[task->logit];
        if (width != 1)
            return fr_err_set(err, FR_E_INVALID, "task `%s`: a logit is [1], but %s is [%u]", task->name,
                              describe_layer(&conf->layers[task->logit]).text, width);
    }
    mark_live(graph);
    return FR_OK;
}
