/* From layers to nodes, buffers and work lists; memory for batches.
 *
 * Nodes are made in evaluation order for the layers a task reaches. A pooled slot is one node per (slot, part,
 * pooling), however often it is referred to: computed once, its gradient summed in one place. Then every concatenation
 * takes in the arguments that have no home yet (they become views of its buffer), and one walk in reverse order settles
 * who writes a gradient buffer first. Owner thread: the graph's. Does not: fail; shapes were checked before. */
#include "network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"

enum { LINE_FLOATS = 16, ALIGNMENT = 64, STREAM_DENSE = 2 /* of base/random: dense parameters, keyed by name */ };

static struct node *add_node(struct fr_graph *graph, enum node_kind kind, uint32_t width, uint32_t n_arguments)
{
    if (graph->n_nodes == graph->capacity_nodes) {
        graph->capacity_nodes = graph->capacity_nodes ? 2 * graph->capacity_nodes : 64;
        graph->nodes = fr_realloc(graph->nodes, graph->capacity_nodes, sizeof(*graph->nodes));
    }
    struct node *node = &graph->nodes[graph->n_nodes++];
    *node = (struct node){.kind = kind, .width = width, .n_arguments = n_arguments, .parent = FR_NO_INDEX};
    node->arguments = fr_alloc(n_arguments, sizeof(*node->arguments));
    return node;
}

static uint32_t last_node(const struct fr_graph *graph)
{
    return graph->n_nodes - 1;
}

static uint32_t leaf_node(struct fr_graph *graph, const struct fr_conf_ref *ref)
{
    const struct fr_conf *conf = graph->conf;
    bool pooled = ref->kind == FR_REF_POOLED, mean = pooled && ref->pooling == FR_POOL_MEAN;
    enum node_kind kind = pooled ? NODE_POOLED : NODE_DENSE;
    uint32_t slot = (uint32_t)ref->index, part = pooled ? (uint32_t)ref->part : 0;
    for (uint32_t n = 0; n < graph->n_nodes; n++) {
        const struct node *have = &graph->nodes[n];
        if (have->kind == kind && have->slot == slot && have->part == part && have->mean == mean)
            return n;
    }
    const struct fr_conf_slot *s = &conf->slots[slot];
    struct node *node = add_node(graph, kind, pooled ? conf->tables[s->table].parts[part].dim : s->dim, 0);
    node->slot = slot;
    node->part = part;
    node->mean = mean;
    node->trainable = pooled;
    return last_node(graph);
}

/* A node over all references of a layer. */
static uint32_t join_refs(struct fr_graph *graph, const struct fr_conf_layer *layer, enum node_kind kind,
                          uint32_t width)
{
    uint32_t *arguments = fr_alloc(layer->n_refs, sizeof(*arguments));
    bool trainable = false;
    for (uint32_t i = 0; i < layer->n_refs; i++) {
        const struct fr_conf_ref *ref = &layer->refs[i];
        arguments[i] = ref->kind == FR_REF_LAYER ? graph->layer_node[ref->index] : leaf_node(graph, ref);
        trainable |= graph->nodes[arguments[i]].trainable;
        if (kind == NODE_CONCAT)
            width += graph->nodes[arguments[i]].width;
    }
    uint32_t joined = arguments[0];
    if (kind != NODE_CONCAT || layer->n_refs > 1) {
        struct node *node = add_node(graph, kind, width, layer->n_refs);
        for (uint32_t i = 0; i < layer->n_refs; i++)
            node->arguments[i].node = arguments[i];
        node->trainable = trainable;
        joined = last_node(graph);
    }
    free(arguments);
    return joined;
}

static size_t find_parameter(const struct fr_graph *graph, const char *name)
{
    for (size_t p = 0; p < graph->n_parameters; p++)
        if (strcmp(graph->parameters[p].name, name) == 0)
            return p;
    FR_CHECK(!"a layer without its parameters");
    return 0;
}

static void parameter_name(char *name, const struct fr_conf_layer *layer, uint32_t i, const char *what)
{
    if (layer->op == FR_LAYER_MLP)
        snprintf(name, sizeof(((struct fr_parameter *)NULL)->name), "%s/%u/%s", layer->name, i, what);
    else
        snprintf(name, sizeof(((struct fr_parameter *)NULL)->name), "%s/%s", layer->name, what);
}

static uint32_t linear_nodes(struct fr_graph *graph, const struct fr_conf_layer *layer, uint32_t input)
{
    for (uint32_t i = 0; i < layer->n_units; i++) {
        graph->linears = fr_realloc(graph->linears, graph->n_linears + 1, sizeof(*graph->linears));
        struct linear *linear = &graph->linears[graph->n_linears];
        *linear = (struct linear){.in = graph->nodes[input].width, .out = layer->units[i]};
        char name[sizeof(graph->parameters->name)];
        parameter_name(name, layer, i, "kernel");
        linear->kernel = (uint32_t)find_parameter(graph, name);
        parameter_name(name, layer, i, "bias");
        linear->bias = (uint32_t)find_parameter(graph, name);
        linear->relu = layer->activation == FR_ACT_RELU;
        graph->parameter_states[linear->kernel].live = graph->parameter_states[linear->bias].live = true;
        struct node *node = add_node(graph, NODE_LINEAR, linear->out, 1);
        node->arguments[0].node = input;
        node->trainable = true;
        node->linear = graph->n_linears++;
        input = linear->node = last_node(graph);
    }
    return input;
}

static void layer_nodes(struct fr_graph *graph, uint32_t l)
{
    const struct fr_conf_layer *layer = &graph->conf->layers[l];
    uint32_t node = 0;
    switch (layer->op) {
    case FR_LAYER_CONCAT:
        node = join_refs(graph, layer, NODE_CONCAT, 0);
        break;
    case FR_LAYER_MLP:
    case FR_LAYER_DENSE:
        node = linear_nodes(graph, layer, join_refs(graph, layer, NODE_CONCAT, 0));
        break;
    case FR_LAYER_BI_INTERACTION:
        node = join_refs(graph, layer, NODE_BI_INTERACTION, graph->layer_width[l]);
        break;
    case FR_LAYER_SUM:
    case FR_LAYER_ADD:
        node = join_refs(graph, layer, NODE_ADD, graph->layer_width[l]);
        break;
    }
    graph->layer_node[l] = node;
}

/* ---- parameters ---- */

static struct fr_parameter *add_parameter(struct fr_graph *graph, uint32_t rows, uint32_t columns)
{
    if (graph->n_parameters == graph->capacity_parameters) {
        graph->capacity_parameters = graph->capacity_parameters ? 2 * graph->capacity_parameters : 16;
        graph->parameters = fr_realloc(graph->parameters, graph->capacity_parameters, sizeof(*graph->parameters));
    }
    struct fr_parameter *p = &graph->parameters[graph->n_parameters++];
    *p = (struct fr_parameter){.n_dims = rows ? 2 : 1, .shape = {rows ? rows : columns, rows ? columns : 0}};
    p->n_values = (size_t)(rows ? rows : 1) * columns;
    p->values = fr_alloc_aligned(ALIGNMENT, p->n_values * sizeof(float));
    return p;
}

/* Uniform in +-1/sqrt(fan_in), a function of (seed, name, index) alone: another layer more or less changes nothing
 * here. */
static void initialise(const struct fr_graph *graph, struct fr_parameter *p, uint32_t fan_in)
{
    uint64_t key = fr_xxh3(p->name, strlen(p->name));
    double bound = 1.0 / sqrt((double)fan_in);
    for (size_t i = 0; i < p->n_values; i++)
        p->values[i] = (float)((2.0 * fr_random_uniform(graph->conf->seed, STREAM_DENSE, key, i) - 1.0) * bound);
}

static uint32_t refs_width(const struct fr_graph *graph, const struct fr_conf_layer *layer)
{
    const struct fr_conf *conf = graph->conf;
    uint32_t width = 0;
    for (uint32_t i = 0; i < layer->n_refs; i++) {
        const struct fr_conf_ref *ref = &layer->refs[i];
        if (ref->kind == FR_REF_LAYER)
            width += graph->layer_width[ref->index];
        else if (ref->kind == FR_REF_DENSE)
            width += conf->slots[ref->index].dim;
        else
            width += conf->tables[conf->slots[ref->index].table].parts[ref->part].dim;
    }
    return width;
}

/* Parameters of all layers, also of those no task reaches: they are part of the model. */
static void make_parameters(struct fr_graph *graph)
{
    const struct fr_conf *conf = graph->conf;
    for (uint32_t l = 0; l < conf->n_layers; l++) {
        const struct fr_conf_layer *layer = &conf->layers[l];
        if (layer->op != FR_LAYER_MLP && layer->op != FR_LAYER_DENSE)
            continue;
        uint32_t in = refs_width(graph, layer);
        for (uint32_t i = 0; i < layer->n_units; i++) {
            struct fr_parameter *kernel = add_parameter(graph, in, layer->units[i]);
            parameter_name(kernel->name, layer, i, "kernel");
            initialise(graph, kernel, in);
            struct fr_parameter *bias = add_parameter(graph, 0, layer->units[i]);
            parameter_name(bias->name, layer, i, "bias");
            initialise(graph, bias, in);
            in = layer->units[i];
        }
    }
    graph->parameter_states = fr_alloc(graph->n_parameters, sizeof(*graph->parameter_states));
}

static void make_parameter_states(struct fr_graph *graph)
{
    enum fr_update_kind kind = graph->dense_optimizer.kind;
    for (size_t p = 0; p < graph->n_parameters; p++) {
        struct parameter_state *state = &graph->parameter_states[p];
        size_t bytes = graph->parameters[p].n_values * sizeof(float);
        state->gradient = fr_alloc_aligned(ALIGNMENT, bytes);
        if (kind != FR_UPDATE_SGD)
            state->state0 = fr_alloc_aligned(ALIGNMENT, bytes);
        if (kind == FR_UPDATE_ADAM)
            state->state1 = fr_alloc_aligned(ALIGNMENT, bytes);
        for (size_t i = 0; kind == FR_UPDATE_ADAGRAD && i < graph->parameters[p].n_values; i++)
            state->state0[i] = graph->conf->dense_optimizer.initial;
    }
}

/* ---- homes ---- */

static void settle_homes(struct fr_graph *graph)
{
    for (uint32_t n = 0; n < graph->n_nodes; n++) {
        struct node *concat = &graph->nodes[n];
        uint32_t column = 0;
        for (uint32_t i = 0; i < concat->n_arguments && concat->kind == NODE_CONCAT; i++) {
            struct argument *argument = &concat->arguments[i];
            struct node *child = &graph->nodes[argument->node];
            if (child->parent == FR_NO_INDEX) {
                child->parent = (int32_t)n;
                child->parent_column = column;
                argument->in_place = true;
            }
            column += child->width;
        }
    }
    graph->buffers = fr_alloc(graph->n_nodes, sizeof(*graph->buffers));
    for (uint32_t n = graph->n_nodes; n-- > 0;) { /* a parent comes after its children */
        struct node *node = &graph->nodes[n];
        if (node->parent != FR_NO_INDEX) {
            const struct node *parent = &graph->nodes[node->parent];
            node->buffer = parent->buffer;
            node->column = parent->column + node->parent_column;
            continue;
        }
        struct node_buffer *buffer = &graph->buffers[graph->n_buffers];
        buffer->width = node->width;
        buffer->ld = (size_t)(node->width + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
        if (buffer->ld % 256 == 0) /* rows a kilobyte apart would share few cache sets */
            buffer->ld += LINE_FLOATS;
        node->buffer = graph->n_buffers++;
    }
}

/* Says for a writer of `node`'s gradient whether the buffer is fresh. `covers`: it overwrites all it is given. */
static void claim_gradient(const struct fr_graph *graph, const struct node *node, bool covers, bool *touched,
                           struct argument *out)
{
    bool whole = node->column == 0 && node->width == graph->buffers[node->buffer].width;
    out->zero_buffer = !touched[node->buffer] && !(covers && whole);
    out->accumulate = touched[node->buffer] || out->zero_buffer;
    touched[node->buffer] = true;
}

static void settle_gradients(struct fr_graph *graph)
{
    bool *touched = fr_alloc(graph->n_buffers, sizeof(*touched));
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        struct argument claim;
        claim_gradient(graph, &graph->nodes[graph->tasks[t].node], false, touched, &claim);
        graph->tasks[t].zero_buffer = claim.zero_buffer;
    }
    for (uint32_t n = graph->n_nodes; n-- > 0;) {
        struct node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->n_arguments; i++) {
            struct argument *argument = &node->arguments[i];
            const struct node *from = &graph->nodes[argument->node];
            argument->skip_gradient = !node->trainable || !from->trainable || argument->in_place;
            if (!argument->skip_gradient)
                claim_gradient(graph, from, node->kind != NODE_BI_INTERACTION, touched, argument);
        }
    }
    free(touched);
}

/* ---- work lists ---- */

static bool input_trainable(const struct fr_graph *graph, const struct linear *linear)
{
    return !graph->nodes[linear->node].arguments[0].skip_gradient;
}

static void list_tasks(struct fr_graph *graph)
{
    size_t packs = 0, packs_t = 0, blocks = 0, dense = 0;
    for (uint32_t l = 0; l < graph->n_linears; l++) {
        packs += fr_blocks_of(graph->linears[l].in, FR_PACK_ROWS);
        packs_t += fr_blocks_of(graph->linears[l].out, FR_PACK_ROWS);
        blocks += fr_blocks_of(graph->linears[l].in, FR_ROW_BLOCK);
    }
    for (size_t p = 0; p < graph->n_parameters; p++)
        dense += fr_blocks_of(graph->parameters[p].n_values, FR_DENSE_BLOCK);
    graph->pack_tasks = fr_alloc(packs, sizeof(*graph->pack_tasks));
    graph->pack_t_tasks = fr_alloc(packs_t, sizeof(*graph->pack_t_tasks));
    graph->gradient_tasks = fr_alloc(blocks, sizeof(*graph->gradient_tasks));
    graph->gradient_bits = fr_alloc(blocks, sizeof(*graph->gradient_bits));
    graph->dense_tasks = fr_alloc(dense, sizeof(*graph->dense_tasks));
    for (uint32_t l = 0; l < graph->n_linears; l++) {
        uint32_t in = graph->linears[l].in, out = graph->linears[l].out;
        for (uint32_t k = 0; k < in; k += FR_PACK_ROWS)
            graph->pack_tasks[graph->n_pack_tasks++] =
                (struct pack_task){l, k, in - k < FR_PACK_ROWS ? in : k + FR_PACK_ROWS};
        for (uint32_t k = 0; k < out && input_trainable(graph, &graph->linears[l]); k += FR_PACK_ROWS)
            graph->pack_t_tasks[graph->n_pack_t_tasks++] =
                (struct pack_task){l, k, out - k < FR_PACK_ROWS ? out : k + FR_PACK_ROWS};
        for (uint32_t r = 0; r < in; r += FR_ROW_BLOCK)
            graph->gradient_tasks[graph->n_gradient_tasks++] =
                (struct gradient_task){l, r, in - r < FR_ROW_BLOCK ? in : r + FR_ROW_BLOCK};
    }
    for (uint32_t p = 0; p < graph->n_parameters; p++) {
        size_t n = graph->parameter_states[p].live ? graph->parameters[p].n_values : 0;
        for (size_t i = 0; i < n; i += FR_DENSE_BLOCK)
            graph->dense_tasks[graph->n_dense_tasks++] =
                (struct dense_task){p, i, n - i < FR_DENSE_BLOCK ? n : i + FR_DENSE_BLOCK};
    }
}

static float *packed_memory(const struct fr_graph *graph, uint32_t rows, uint32_t columns)
{
    size_t floats = graph->ops->packed_floats(rows, columns);
    return floats ? fr_alloc_aligned(ALIGNMENT, floats * sizeof(float)) : NULL;
}

static void make_operands(struct fr_graph *graph)
{
    for (uint32_t l = 0; l < graph->n_linears; l++) {
        struct linear *linear = &graph->linears[l];
        float *kernel = graph->parameters[linear->kernel].values;
        linear->weights = (struct fr_operand){kernel, linear->out, linear->in, linear->out, false, NULL};
        linear->weights.packed = packed_memory(graph, linear->in, linear->out);
        if (graph->scoring_only)
            continue;
        linear->weights_t = (struct fr_operand){kernel, linear->out, linear->out, linear->in, true, NULL};
        if (input_trainable(graph, linear))
            linear->weights_t.packed = packed_memory(graph, linear->out, linear->in);
    }
}

/* ---- row gradients ---- */

static void make_table(struct fr_graph *graph, uint32_t t)
{
    const struct fr_conf *conf = graph->conf;
    struct table_sources *table = &graph->tables[t];
    const struct fr_row_layout *layout = &graph->layouts[t];
    size_t scratch = 0;
    table->n_parts = layout->n_parts;
    for (uint32_t p = 0; p < layout->n_parts; p++) {
        table->parts[p].value_offset = layout->parts[p].value_offset;
        table->parts[p].dim = layout->parts[p].dim;
        table->parts[p].state_offset = layout->parts[p].state_offset;
        table->parts[p].optimizer = fr_graph_optimizer_of(&conf->tables[t].parts[p].optimizer);
        scratch += (size_t)(layout->parts[p].dim + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    }
    if (scratch > graph->scratch_floats)
        graph->scratch_floats = scratch;
    for (uint32_t s = 0; s < conf->n_slots; s++)
        if (conf->slots[s].kind != FR_SLOT_DENSE && conf->slots[s].table == (int32_t)t)
            graph->slot_group[s] = table->n_groups++;
    table->source_begin = fr_alloc(table->n_groups + 1, sizeof(*table->source_begin));
    table->source_node = fr_alloc(graph->n_nodes, sizeof(*table->source_node));
    table->sources = fr_alloc(graph->n_nodes, sizeof(*table->sources));
    uint32_t group = 0, n = 0;
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        if (conf->slots[s].kind == FR_SLOT_DENSE || conf->slots[s].table != (int32_t)t)
            continue;
        table->source_begin[group++] = n;
        for (uint32_t i = 0; i < graph->n_nodes; i++)
            if (graph->nodes[i].kind == NODE_POOLED && graph->nodes[i].slot == s)
                table->source_node[n++] = i;
    }
    table->source_begin[group] = n;
}

void fr_graph_compile(struct fr_graph *graph)
{
    const struct fr_conf *conf = graph->conf;
    make_parameters(graph);
    for (uint32_t l = 0; l < conf->n_layers; l++)
        if (graph->layer_live[l])
            layer_nodes(graph, l);
    graph->tasks = fr_alloc(conf->n_tasks, sizeof(*graph->tasks));
    for (uint32_t t = 0; t < conf->n_tasks; t++)
        graph->tasks[t].node = graph->layer_node[conf->tasks[t].logit];
    settle_homes(graph);
    settle_gradients(graph);
    list_tasks(graph);
    make_operands(graph);
    for (uint32_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].n_arguments > graph->views_max)
            graph->views_max = graph->nodes[n].n_arguments;
    graph->views = fr_alloc((size_t)graph->workers * 2 * graph->views_max, sizeof(*graph->views));
    graph->slot_group = fr_alloc(conf->n_slots, sizeof(*graph->slot_group));
    graph->tables = fr_alloc(conf->n_tables, sizeof(*graph->tables));
    graph->row_block_begin = fr_alloc(conf->n_tables + 1, sizeof(*graph->row_block_begin));
    if (graph->scoring_only)
        return;
    make_parameter_states(graph);
    for (uint32_t t = 0; t < conf->n_tables; t++)
        make_table(graph, t);
    graph->worker_bits = fr_alloc(graph->workers, sizeof(*graph->worker_bits));
    graph->scratch = fr_alloc_aligned(ALIGNMENT, graph->workers * graph->scratch_floats * sizeof(float));
}
