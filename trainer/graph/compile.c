/* Compiling a variant of the network: the nodes of the layers that a loss reaches, their buffers
 * and gradients, and the work lists.
 *
 * Nodes are made in evaluation order. Then the arguments of every concatenation that belong to no
 * buffer yet become views of the concatenation's buffer, and one walk in reverse order determines
 * which gradients are wanted and which node writes a gradient buffer first. Buffers of groups' rows
 * are written backward in a phase after that of samples' rows; the walk's order holds within each.
 *
 * Owner thread: the graph's. Compiling cannot fail, because the configuration's loader has
 * checked the shapes. */
#include "compile_internal.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_FLOATS = 16, ALIGNMENT = 64 };

/* ---- places of values ---- */

static void move_in(struct variant *v, uint32_t n)
{
    const struct node *concat = &v->nodes[n];
    uint32_t column = 0;
    for (uint32_t i = 0; i < concat->n_arguments; i++) {
        struct argument *argument = &concat->arguments[i];
        struct node *child = &v->nodes[argument->node];
        if (child->parent == FR_NO_INDEX && !argument->stop) {
            child->parent = (int32_t)n;
            child->parent_column = column;
            argument->in_place = true;
        }
        column += child->width;
    }
}

/* Returns the distance between two rows: whole cache lines, or a fraction of one, so that
 * several rows share a line. With whole lines only, a column of single numbers (scores, weights
 * of ids) would take sixteen times the memory. */
static size_t row_floats(uint32_t width)
{
    size_t floats = 1;
    while (floats < width && floats < LINE_FLOATS)
        floats *= 2;
    return width <= LINE_FLOATS ? floats : (size_t)(width + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

static void place_values(struct variant *v)
{
    for (uint32_t n = 0; n < v->n_nodes; n++)
        if (v->nodes[n].kind == NODE_CONCAT)
            move_in(v, n);
    v->buffers = fr_alloc(v->n_nodes, sizeof(*v->buffers));
    for (uint32_t n = v->n_nodes; n-- > 0;) { /* a parent comes after its children */
        struct node *node = &v->nodes[n];
        if (node->parent != FR_NO_INDEX) {
            const struct node *parent = &v->nodes[node->parent];
            node->buffer = parent->buffer;
            node->column = parent->column + node->parent_column;
            continue;
        }
        struct node_buffer *buffer = &v->buffers[v->n_buffers];
        buffer->space = node->space;
        buffer->width = node->width;
        buffer->ld = row_floats(node->width);
        /* rows whose distance is a multiple of a kilobyte would share few cache sets */
        if (buffer->ld % 256 == 0 && buffer->ld > 0)
            buffer->ld += LINE_FLOATS;
        node->buffer = v->n_buffers++;
    }
}

/* ---- gradients ---- */

/* Whether the operation overwrites the gradient of the argument, which then need not be zeroed
 * first. The other operations add to it. */
static bool overwrites(enum node_kind kind, uint32_t argument)
{
    return kind == NODE_CONCAT || kind == NODE_ADD || kind == NODE_BIAS || kind == NODE_DROPOUT ||
           (kind == NODE_LINEAR && argument == 0);
}

/* Decides how the next writer of `node`'s gradient treats the buffer: as new, to be zeroed, or
 * to be added to. `covers`: the writer overwrites the whole gradient of the node. */
static void claim_gradient(const struct variant *v, const struct node *node, bool covers, bool *touched,
                           struct argument *out)
{
    bool whole = node->column == 0 && node->width == v->buffers[node->buffer].width;
    out->zero_buffer = !touched[node->buffer] && !(covers && whole);
    out->accumulate = touched[node->buffer] || out->zero_buffer;
    touched[node->buffer] = true;
}

static void reach_arguments(struct variant *v, const struct node *node, bool *touched)
{
    for (uint32_t i = 0; i < node->n_arguments; i++) {
        struct argument *argument = &node->arguments[i];
        struct node *from = &v->nodes[argument->node];
        bool wanted = node->reached && from->trainable && !argument->stop;
        from->reached |= wanted;
        from->losses |= wanted ? node->losses : 0;
        argument->skip_gradient = !wanted || argument->in_place;
        if (!argument->skip_gradient)
            claim_gradient(v, from, overwrites(node->kind, i), touched, argument);
    }
}

static void find_reached(const struct fr_graph *graph, struct variant *v)
{
    bool *touched = fr_alloc(v->n_buffers, sizeof(*touched));
    for (uint32_t k = 0; k < graph->n_outputs; k++) {
        struct node *node = &v->nodes[v->output_node[k]];
        v->output_claim[k].skip_gradient = graph->outputs[k].losses == 0 || !node->trainable;
        if (v->output_claim[k].skip_gradient)
            continue;
        node->reached = true;
        node->losses |= graph->outputs[k].losses;
        claim_gradient(v, node, true, touched, &v->output_claim[k]);
    }
    for (uint32_t n = v->n_nodes; n-- > 0;) {
        struct node *node = &v->nodes[n];
        if (node->loss != FR_NO_INDEX && node->trainable) {
            node->reached = true;
            node->losses |= 1u << (graph->conf->n_tasks + (uint32_t)node->loss);
        }
        reach_arguments(v, node, touched);
    }
    free(touched);
}

static bool has_relu(const struct variant *v, const struct node *node)
{
    if (node->kind == NODE_LINEAR)
        return v->linears[node->linear].relu;
    return node->kind == NODE_ATTENTION_DENSE && fr_node_has_relu(node);
}

/* Finds layers with relu whose gradient comes from a single product, because only this product
 * reads the output and the layer is no output of the network. The product then applies the
 * derivative of the relu. */
static void find_gated(const struct fr_graph *graph, struct variant *v)
{
    uint32_t *givers = fr_alloc(v->n_nodes, sizeof(*givers));
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        givers[v->output_node[k]]++;
    for (uint32_t n = 0; n < v->n_nodes; n++)
        for (uint32_t i = 0; i < v->nodes[n].n_arguments; i++)
            givers[v->nodes[n].arguments[i].node]++;
    for (uint32_t n = 0; n < v->n_nodes; n++) {
        const struct node *node = &v->nodes[n];
        if (node->kind != NODE_LINEAR || node->arguments[0].skip_gradient)
            continue;
        uint32_t from = node->arguments[0].node;
        v->nodes[from].gated = givers[from] == 1 && has_relu(v, &v->nodes[from]);
    }
    free(givers);
}

/* ---- work lists ---- */

static bool input_wanted(const struct variant *v, const struct linear *linear)
{
    return !v->nodes[linear->node].arguments[0].skip_gradient;
}

static void list_kernel_tasks(struct variant *v, uint32_t l)
{
    const struct linear *linear = &v->linears[l];
    uint32_t in = linear->in, out = linear->out;
    for (uint32_t k = 0; k < in; k += FR_PACK_ROWS)
        v->pack_tasks[v->n_pack_tasks++] = (struct pack_task){l, k, in - k < FR_PACK_ROWS ? in : k + FR_PACK_ROWS};
    for (uint32_t k = 0; k < out && input_wanted(v, linear); k += FR_PACK_ROWS)
        v->pack_t_tasks[v->n_pack_t_tasks++] =
            (struct pack_task){l, k, out - k < FR_PACK_ROWS ? out : k + FR_PACK_ROWS};
    for (uint32_t s = 0; s < linear->n_segments && v->nodes[linear->node].reached; s++) {
        uint32_t end = linear->segments[s].row + linear->segments[s].n;
        for (uint32_t r = linear->segments[s].row; r < end; r += FR_ROW_BLOCK)
            v->gradient_tasks[v->n_gradient_tasks++] =
                (struct gradient_task){l, s, r, end - r < FR_ROW_BLOCK ? end : r + FR_ROW_BLOCK};
    }
}

static void list_tasks(struct variant *v)
{
    size_t packs = 0, packs_t = 0, blocks = 0;
    for (uint32_t l = 0; l < v->n_linears; l++) {
        const struct linear *linear = &v->linears[l];
        packs += fr_blocks_of(linear->in, FR_PACK_ROWS);
        packs_t += fr_blocks_of(linear->out, FR_PACK_ROWS);
        for (uint32_t s = 0; s < linear->n_segments; s++)
            blocks += fr_blocks_of(linear->segments[s].n, FR_ROW_BLOCK);
    }
    v->pack_tasks = fr_alloc(packs, sizeof(*v->pack_tasks));
    v->pack_t_tasks = fr_alloc(packs_t, sizeof(*v->pack_t_tasks));
    v->gradient_tasks = fr_alloc(blocks, sizeof(*v->gradient_tasks));
    v->gradient_begin = fr_alloc(blocks + 1, sizeof(*v->gradient_begin));
    v->join_tasks = fr_alloc((size_t)v->n_nodes * FR_NODE_PARAMETERS, sizeof(*v->join_tasks));
    for (uint32_t l = 0; l < v->n_linears; l++)
        list_kernel_tasks(v, l);
    for (uint32_t n = 0; n < v->n_nodes; n++)
        for (uint32_t p = 0; p < v->nodes[n].n_partials && v->nodes[n].reached; p++)
            v->join_tasks[v->n_join_tasks++] = n * FR_NODE_PARAMETERS + p;
    v->gradient_bits = fr_alloc((size_t)v->n_gradient_tasks + v->n_join_tasks, sizeof(*v->gradient_bits));
}

/* ---- kernels ---- */

static float *packed_memory(const struct fr_graph *graph, uint32_t rows, uint32_t columns)
{
    size_t floats = graph->device ? 0 : graph->ops->packed_floats(rows, columns);
    return floats ? fr_alloc_aligned(ALIGNMENT, floats * sizeof(float)) : NULL;
}

static void make_operands(const struct fr_graph *graph, struct variant *v)
{
    for (uint32_t l = 0; l < v->n_linears; l++) {
        struct linear *linear = &v->linears[l];
        float *kernel = graph->places[linear->kernel].values;
        if (linear->n_segments > 1) {
            linear->gathered = fr_graph_memory(graph, (size_t)linear->in * linear->out * sizeof(float));
            kernel = linear->gathered;
        } else {
            kernel += (size_t)linear->segments[0].parameter_row * linear->out;
        }
        linear->weights = (struct fr_operand){kernel, linear->out, linear->in, linear->out, false, NULL};
        linear->weights.packed = packed_memory(graph, linear->in, linear->out);
        if (graph->scoring_only)
            continue;
        linear->weights_t = (struct fr_operand){kernel, linear->out, linear->out, linear->in, true, NULL};
        if (input_wanted(v, linear))
            linear->weights_t.packed = packed_memory(graph, linear->out, linear->in);
    }
}

/* ---- row gradients ---- */

/* Adds the readers of the slot that are of one kind. */
static uint32_t add_sources(const struct variant *v, struct table_sources *table, enum node_kind kind, uint32_t slot,
                            uint32_t n)
{
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        if (v->nodes[i].kind != kind || !v->nodes[i].reached || v->nodes[i].slot != (int32_t)slot)
            continue;
        table->source_slot[n] = slot;
        table->source_node[n++] = i;
    }
    return n;
}

static void make_table(const struct fr_graph *graph, struct variant *v, uint32_t t)
{
    const struct fr_conf *conf = graph->conf;
    struct table_sources *table = &v->tables[t];
    table->source_begin = fr_alloc(graph->tables[t].n_groups + 1, sizeof(*table->source_begin));
    table->source_node = fr_alloc(v->n_nodes, sizeof(*table->source_node));
    table->source_slot = fr_alloc(v->n_nodes, sizeof(*table->source_slot));
    table->source_set = fr_alloc(v->n_nodes, sizeof(*table->source_set));
    table->sources = fr_alloc(v->n_nodes, sizeof(*table->sources));
    uint32_t group = 0, n = 0;
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        if (fr_slot_has_numbers(conf->slots[s].kind) || conf->slots[s].table != (int32_t)t)
            continue;
        table->source_begin[group++] = n;
        /* these come first, because the first contributing reader determines what an occurrence
         * counts */
        n = add_sources(v, table, NODE_SEQUENCE, s, n);
        n = add_sources(v, table, NODE_POOLED, s, n);
    }
    table->source_begin[group] = n;
    table->n_sources = n;
}

struct variant *fr_graph_compile(const struct fr_graph *graph, const uint64_t *shared)
{
    const struct fr_conf *conf = graph->conf;
    struct variant *v = fr_alloc(1, sizeof(*v));
    struct builder *b = fr_alloc(1, sizeof(*b));
    *b = (struct builder){.graph = graph, .variant = v, .layer = FR_NO_INDEX};
    memcpy(v->shared, shared, sizeof(v->shared));
    v->capacity_spaces = SPACE_GROUPS + 1;
    v->spaces = fr_alloc(v->capacity_spaces, sizeof(*v->spaces));
    v->spaces[SPACE_SAMPLES] = (struct space){.level = LEVEL_SAMPLE, .slot = FR_NO_INDEX, .from = FR_NO_INDEX};
    v->spaces[SPACE_GROUPS] = (struct space){.level = LEVEL_GROUP, .slot = FR_NO_INDEX, .from = FR_NO_INDEX};
    v->n_spaces = SPACE_GROUPS + 1;
    for (uint32_t l = 0; l < conf->n_layers; l++)
        if (graph->layer_live[l])
            fr_graph_build_layer(b, l);
    v->output_node = fr_alloc(graph->n_outputs, sizeof(*v->output_node));
    v->output_claim = fr_alloc(graph->n_outputs, sizeof(*v->output_claim));
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        v->output_node[k] = fr_graph_build_output(b, graph->outputs[k].layer);
    for (uint32_t i = 0; i < conf->n_losses && !graph->scoring_only; i++)
        fr_graph_build_loss(b, i);
    for (uint32_t l = 0; l < conf->n_layers; l++)
        free(b->layers[l].parts);
    free(b);
    place_values(v);
    if (!graph->scoring_only) {
        find_reached(graph, v);
        find_gated(graph, v);
    }
    list_tasks(v);
    make_operands(graph, v);
    v->tables = fr_alloc(conf->n_tables, sizeof(*v->tables));
    for (uint32_t t = 0; t < conf->n_tables && !graph->scoring_only; t++)
        make_table(graph, v, t);
    if (!graph->scoring_only)
        fr_graph_find_sums(graph, v);
    return v;
}

static void free_table(struct table_sources *table)
{
    free(table->source_begin);
    free(table->source_node);
    free(table->source_slot);
    free(table->source_set);
    free(table->sources);
}

void fr_graph_free_variant(const struct fr_graph *graph, struct variant *v)
{
    if (!v)
        return;
    for (uint32_t s = 0; s < v->n_spaces; s++) {
        free(v->spaces[s].masked);
        free(v->spaces[s].expanded);
        free(v->spaces[s].source);
    }
    for (uint32_t n = 0; n < v->n_nodes; n++) {
        for (uint32_t p = 0; p < v->nodes[n].n_partials; p++)
            fr_graph_release(graph, v->nodes[n].partials[p].values);
        free(v->nodes[n].arguments);
        fr_graph_release(graph, v->nodes[n].extra);
    }
    for (uint32_t i = 0; i < v->n_buffers; i++) {
        fr_graph_release(graph, v->buffers[i].values);
        fr_graph_release(graph, v->buffers[i].gradients);
    }
    for (uint32_t l = 0; l < v->n_linears; l++) {
        free(v->linears[l].segments);
        fr_graph_release(graph, v->linears[l].gathered);
        free(v->linears[l].weights.packed);
        free(v->linears[l].weights_t.packed);
        free(v->linears[l].packed);
        free(v->linears[l].block_sums);
    }
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        free_table(&v->tables[t]);
    fr_graph_free_sums(v);
    void *const arrays[] = {v->spaces,       v->nodes,          v->buffers,    v->linears,        v->pack_tasks,
                            v->pack_t_tasks, v->gradient_tasks, v->join_tasks, v->gradient_begin, v->gradient_bits,
                            v->output_node,  v->output_claim,   v->tables};
    for (size_t i = 0; i < FR_ARRAY_LEN(arrays); i++)
        free(arrays[i]);
    free(v);
}
