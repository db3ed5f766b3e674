/* Creation and release of a graph, which layers are computed, and queries about the graph.
 *
 * Layers a task reaches are computed, and those an auxiliary loss reaches while training; the
 * others keep their parameters.
 *
 * Invariants: parameters keep their addresses for life; the variant without shared slots stays.
 *
 * Owner thread: the owner loop. The computation is in forward.c, backward.c and update.c, the
 * parameters are in parameters.c. */
#include "learning.h"
#include "passes.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

void fr_graph_row_layout(const struct fr_conf_table *table, struct fr_row_layout *out)
{
    struct fr_row_layout layout = {.n_parts = table->n_parts};
    for (uint32_t p = 0; p < table->n_parts; p++) {
        layout.parts[p].value_offset = layout.value_floats;
        layout.parts[p].dim = table->parts[p].dim;
        layout.value_floats += table->parts[p].dim;
    }
    layout.row_floats = layout.value_floats;
    for (uint32_t p = 0; p < table->n_parts; p++) {
        struct fr_optimizer optimizer = fr_graph_optimizer_of(&table->parts[p].optimizer);
        bool adagrad = optimizer.kind == FR_OPT_ADAGRAD || optimizer.kind == FR_OPT_ADAGRAD_ROWWISE;
        layout.parts[p].state_offset = layout.row_floats;
        layout.parts[p].state_floats = fr_row_state_floats(optimizer.kind, table->parts[p].dim);
        layout.parts[p].init = table->parts[p].init;
        layout.parts[p].state_initial = adagrad ? table->parts[p].optimizer.initial : 0.0f;
        layout.row_floats += layout.parts[p].state_floats;
    }
    *out = layout;
}

/* ---- what is computed ---- */

static void mark_ref(struct fr_graph *graph, const struct fr_conf_ref *ref)
{
    if (ref->kind == FR_REF_LAYER)
        graph->layer_live[ref->index] = true;
    else
        graph->slots_read[ref->index / 64] |= 1ull << ref->index % 64;
}

static void mark_live(struct fr_graph *graph)
{
    const struct fr_conf *conf = graph->conf;
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        graph->layer_live[graph->outputs[k].layer] = true;
    for (uint32_t i = 0; i < conf->n_losses && !graph->scoring_only; i++)
        for (uint32_t r = 0; r < conf->losses[i].n_refs; r++)
            mark_ref(graph, &conf->losses[i].refs[r]);
    for (uint32_t l = conf->n_layers; l-- > 0;) {
        const struct fr_conf_layer *layer = &conf->layers[l];
        if (!graph->layer_live[l])
            continue;
        graph->has_dropout |= layer->op == FR_LAYER_DROPOUT && layer->rate > 0.0f;
        for (uint32_t i = 0; i < layer->n_refs; i++) {
            FR_CHECK(layer->refs[i].kind != FR_REF_LAYER || (uint32_t)layer->refs[i].index < l);
            mark_ref(graph, &layer->refs[i]);
        }
    }
}

static uint32_t output_of(struct fr_graph *graph, int32_t layer)
{
    FR_CHECK(layer >= 0 && (uint32_t)layer < graph->conf->n_layers && graph->conf->layers[layer].width == 1);
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        if (graph->outputs[k].layer == (uint32_t)layer)
            return k;
    graph->outputs[graph->n_outputs] = (struct output){.layer = (uint32_t)layer};
    return graph->n_outputs++;
}

static void make_outputs(struct fr_graph *graph)
{
    const struct fr_conf *conf = graph->conf;
    graph->outputs = fr_alloc(conf->n_tasks, sizeof(*graph->outputs));
    graph->tasks = fr_alloc(conf->n_tasks, sizeof(*graph->tasks));
    for (uint32_t t = 0; t < conf->n_tasks; t++) {
        const struct fr_conf_task *task = &conf->tasks[t];
        uint32_t losses = fr_loss_terms(task->loss) != FR_TRAINS_NOTHING ? 1u << t : 0;
        graph->tasks[t].output = FR_NO_INDEX;
        if (task->logit != FR_NO_INDEX) {
            graph->tasks[t].output = (int32_t)output_of(graph, task->logit);
            graph->outputs[graph->tasks[t].output].losses |= losses;
        }
        for (uint32_t i = 0; i < task->n_prob; i++) {
            FR_CHECK(task->prob[i] >= 0 && (uint32_t)task->prob[i] < t);
            int32_t factor = graph->tasks[task->prob[i]].output;
            FR_CHECK(factor != FR_NO_INDEX);
            graph->outputs[factor].losses |= losses;
        }
    }
}

static void make_tables(struct fr_graph *graph)
{
    const struct fr_conf *conf = graph->conf;
    graph->layouts = fr_alloc(conf->n_tables, sizeof(*graph->layouts));
    graph->tables = fr_alloc(conf->n_tables, sizeof(*graph->tables));
    for (uint32_t t = 0; t < conf->n_tables; t++)
        fr_graph_row_layout(&conf->tables[t], &graph->layouts[t]);
    for (uint32_t s = 0; s < conf->n_slots; s++)
        if (fr_slot_has_rows(conf->slots[s].kind))
            graph->tables[conf->slots[s].table].n_groups++;
}

/* ---- life ---- */

static uint32_t set_of(struct fr_graph *graph, uint32_t losses)
{
    for (uint32_t i = 0; i < graph->n_loss_sets; i++)
        if (graph->loss_sets[i].losses == losses)
            return i;
    if (graph->n_loss_sets == graph->capacity_loss_sets) {
        graph->capacity_loss_sets = graph->capacity_loss_sets ? 2 * graph->capacity_loss_sets : 4;
        graph->loss_sets = fr_realloc(graph->loss_sets, graph->capacity_loss_sets, sizeof(*graph->loss_sets));
    }
    graph->loss_sets[graph->n_loss_sets] = (struct loss_set){
        .losses = losses,
        .samples = fr_alloc(graph->capacity_samples, sizeof(uint32_t)),
        .groups = fr_alloc(graph->capacity_groups, sizeof(uint32_t)),
    };
    return graph->n_loss_sets++;
}

/* An occurrence of a key counts once for every sample that is trained through any of its
 * readers; a masked step of a sequence, which contributes through poolings alone, counts once
 * for every sample that is trained through any pooling. */
static void find_source_sets(struct fr_graph *graph, const struct variant *v, const struct table_sources *table)
{
    for (uint32_t i = 0; i < table->n_sources; i++) {
        const struct node *node = &v->nodes[table->source_node[i]];
        uint32_t losses = 0;
        for (uint32_t j = 0; j < table->n_sources; j++) {
            const struct node *other = &v->nodes[table->source_node[j]];
            if (table->source_slot[j] == table->source_slot[i] && other->part == node->part &&
                (other->kind == NODE_POOLED || node->kind == NODE_SEQUENCE))
                losses |= other->losses;
        }
        table->source_set[i] = set_of(graph, losses);
    }
}

void fr_graph_find_loss_sets(struct fr_graph *graph, struct variant *v)
{
    for (uint32_t n = 0; n < v->n_nodes; n++)
        if (v->nodes[n].reached)
            v->nodes[n].set = set_of(graph, v->nodes[n].losses);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        find_source_sets(graph, v, &v->tables[t]);
}

/* Marks what reaches a parameter. It is the same in every variant. */
static void mark_parameters(struct fr_graph *graph, const struct variant *v)
{
    for (uint32_t n = 0; n < v->n_nodes; n++) {
        const struct node *node = &v->nodes[n];
        if (!node->reached)
            continue;
        if (node->linear != FR_NO_INDEX)
            graph->parameter_states[v->linears[node->linear].kernel].losses |= node->losses;
        for (uint32_t p = 0; p < node->n_partials; p++)
            graph->parameter_states[node->partials[p].parameter].losses |= node->losses;
    }
    for (size_t p = 0; p < graph->n_parameters; p++)
        if (graph->parameter_states[p].losses != 0)
            graph->parameter_states[p].set = set_of(graph, graph->parameter_states[p].losses);
}

enum fr_status fr_graph_check_machine(const struct fr_conf *conf, struct fr_err *err)
{
    if (conf->precision == FR_PRECISION_BF16 && !fr_ops_bf16())
        return fr_err_set(err, FR_E_UNSUPPORTED,
                          "network.precision: bf16 needs a processor with AVX512_BF16, and this one has none; "
                          "f32 runs here");
    return FR_OK;
}

struct fr_graph *fr_graph_new(const struct fr_graph_options *options)
{
    const struct fr_conf *conf = options->conf;
    FR_CHECK(conf->n_layers > 0 && conf->n_layers <= FR_LAYERS_MAX && conf->n_tasks > 0 && conf->chunk_rows > 0);
    FR_CHECK(conf->n_tasks + conf->n_losses <= 32); /* a set of losses has 32 bits */
    struct fr_graph *graph = fr_alloc(1, sizeof(*graph));
    graph->conf = conf;
    bool bf16 = conf->precision == FR_PRECISION_BF16 && !options->scoring_only && !options->device;
    graph->ops = options->ops ? options->ops : bf16 ? fr_ops_bf16() : fr_ops_cpu();
    FR_CHECK(graph->ops); /* fr_graph_check_machine has checked this */
    graph->chunk_rows = conf->chunk_rows;
    graph->pads = !graph->ops->rows_independent;
    if (options->device) {
        FR_CHECK(!options->scoring_only);
        graph->device = fr_graph_device_new(graph, options->device);
        graph->chunk_rows = UINT32_MAX;
        graph->pads = false;
    }
    graph->pool = options->pool;
    graph->clock = options->clock;
    graph->workers = options->pool ? (uint32_t)fr_pool_workers(options->pool) : 1;
    graph->scoring_only = options->scoring_only;
    fr_graph_begin_spans(graph, options);
    graph->variant_bytes_max = options->variant_bytes_max ? options->variant_bytes_max : FR_VARIANT_BYTES_MAX;
    make_outputs(graph);
    mark_live(graph);
    make_tables(graph);
    graph->losses = fr_alloc(conf->n_tasks + conf->n_losses, sizeof(*graph->losses));
    fr_graph_make_parameters(graph);
    graph->places = fr_alloc(graph->n_parameters, sizeof(*graph->places));
    for (size_t p = 0; p < graph->n_parameters && !graph->device; p++)
        graph->places[p].values = graph->parameters[p].values;
    if (graph->device)
        fr_graph_device_places(graph);
    graph->variants[0] = fr_graph_compile(graph, (const uint64_t[FR_SLOTS_MAX / 64]){0});
    graph->variant = graph->variants[0];
    graph->n_variants = 1;
    graph->views_max = 1;
    for (uint32_t n = 0; n < graph->variant->n_nodes; n++)
        if (graph->variant->nodes[n].n_arguments > graph->views_max)
            graph->views_max = graph->variant->nodes[n].n_arguments;
    graph->views = fr_alloc((size_t)graph->workers * 2 * graph->views_max, sizeof(*graph->views));
    if (!graph->scoring_only) {
        fr_graph_find_loss_sets(graph, graph->variant);
        mark_parameters(graph, graph->variant);
        fr_graph_make_states(graph);
        fr_graph_make_span_sums(graph);
        if (graph->device)
            fr_graph_device_places(graph);
        fr_graph_make_priors(graph);
    }
    return graph;
}

static void free_task(const struct fr_graph *graph, struct task_state *task)
{
    if (task->at_logits != task->logits)
        fr_graph_release(graph, task->at_logits);
    fr_graph_answer_release(graph, task->logits);
    free(task->pairs.order);
    free(task->pairs.lower);
    free(task->pairs.groups);
}

void fr_graph_free(struct fr_graph *graph)
{
    if (!graph)
        return;
    for (uint32_t i = 0; i < graph->n_variants; i++)
        fr_graph_free_variant(graph, graph->variants[i]);
    for (uint32_t k = 0; k < graph->n_outputs; k++) {
        fr_graph_release(graph, graph->outputs[k].values);
        fr_graph_release(graph, graph->outputs[k].gradient);
    }
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        free_task(graph, &graph->tasks[t]);
    for (uint32_t i = 0; i < graph->n_loss_sets; i++) {
        free(graph->loss_sets[i].samples);
        free(graph->loss_sets[i].groups);
    }
    fr_graph_release(graph, graph->workspace);
    free(graph->lane_products);
    free(graph->padded);
    fr_graph_free_span_sums(graph);
    fr_graph_free_parameters(graph);
    fr_graph_free_row_ranks(graph);
    fr_graph_device_free(graph);
    void *const arrays[] = {graph->outputs,       graph->tasks,       graph->tables,       graph->layouts,
                            graph->trained,       graph->chunk_bits,  graph->loss_partial, graph->effective_weights,
                            graph->loss_sets,     graph->views,       graph->places,       graph->losses,
                            graph->sample_losses, graph->step_counts, graph->pair_sums,    graph->pair_blocks};
    for (size_t i = 0; i < FR_ARRAY_LEN(arrays); i++)
        free(arrays[i]);
    free(graph);
}

/* ---- description ---- */

const float *fr_graph_logits(const struct fr_graph *graph, uint32_t task)
{
    FR_CHECK(task < graph->conf->n_tasks);
    if (graph->device && graph->device->waiting)
        /* an error is returned by the next training call */
        (void)fr_graph_device_wait(graph->device);
    return graph->tasks[task].logits;
}

const struct fr_graph_loss *fr_graph_losses_of(const struct fr_graph *graph)
{
    return graph->losses;
}

const char *fr_graph_kernel(const struct fr_graph *graph)
{
    if (graph->device)
        return graph->device->bf16 ? "cuda bf16" : "cuda f32";
    return graph->ops->kernel;
}

/* ---- memory that operations read and write ---- */

void *fr_graph_memory(const struct fr_graph *graph, size_t bytes)
{
    struct graph_device *device = graph->device;
    if (!device)
        return fr_alloc_aligned(ALIGNMENT, bytes ? bytes : ALIGNMENT);
    void *memory = device->api->alloc(device->queue, bytes ? bytes : ALIGNMENT);
    if (!memory)
        fr_graph_device_fail(device, FR_E_NO_MEMORY, "the device has no more memory");
    return memory;
}

void fr_graph_release(const struct fr_graph *graph, void *memory)
{
    if (!graph->device)
        free(memory);
    else if (memory)
        graph->device->api->release(graph->device->queue, memory);
}

void *fr_graph_answer_memory(const struct fr_graph *graph, size_t bytes)
{
    struct graph_device *device = graph->device;
    if (!device)
        return fr_graph_memory(graph, bytes);
    void *memory = device->api->alloc_pinned(device->queue, bytes ? bytes : ALIGNMENT);
    if (!memory)
        fr_graph_device_fail(device, FR_E_NO_MEMORY, "there is no pinned memory of the host for the device's answers");
    return memory;
}

void fr_graph_answer_release(const struct fr_graph *graph, void *memory)
{
    if (graph->device)
        graph->device->api->release_pinned(graph->device->queue, memory);
    else
        free(memory);
}

void fr_graph_clear(const struct fr_graph *graph, void *memory, size_t bytes)
{
    if (graph->device && bytes > 0)
        graph->device->api->zero(graph->device->queue, memory, bytes);
    else if (bytes > 0)
        memset(memory, 0, bytes);
}

const void *fr_graph_array(const struct fr_graph *graph, const void *array, size_t bytes)
{
    if (!graph->device)
        return array;
    return fr_graph_device_put(graph->device, array, bytes);
}

static bool node_learns(const struct node *node, const bool *learns)
{
    bool own =
        node->n_partials > 0 || node->linear != FR_NO_INDEX || node->kind == NODE_POOLED || node->kind == NODE_SEQUENCE;
    if (node->kind == NODE_LAYER_NORM && node->width == 1)
        return false;
    for (uint32_t i = 0; i < node->n_arguments; i++)
        own |= learns[node->arguments[i].node] && !node->arguments[i].stop;
    return own;
}

bool fr_graph_task_learns(const struct fr_graph *graph, uint32_t task)
{
    const struct variant *v = graph->variants[0];
    const struct fr_conf_task *conf = &graph->conf->tasks[task];
    bool *learns = fr_alloc(v->n_nodes, sizeof(*learns));
    for (uint32_t n = 0; n < v->n_nodes; n++) /* arguments come before the nodes that read them */
        learns[n] = node_learns(&v->nodes[n], learns);
    bool any = fr_loss_terms(conf->loss) == FR_TRAINS_NOTHING;
    if (graph->tasks[task].output != FR_NO_INDEX)
        any |= learns[v->output_node[graph->tasks[task].output]];
    for (uint32_t i = 0; i < conf->n_prob; i++)
        any |= learns[v->output_node[graph->tasks[conf->prob[i]].output]];
    free(learns);
    return any;
}
