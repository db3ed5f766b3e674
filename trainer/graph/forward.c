/* Forward pass: chunk by chunk through all nodes, each node's output written where its readers want it.
 *
 * A chunk stays in the second-level cache from pooling to logit. With a backend whose rows depend on their position
 * (openblas) a chunk always has exactly C rows, zero-padded; with the others only the real rows are computed, and their
 * bits are the same. Owner thread: the graph's; a chunk belongs to one worker. Does not: look at labels, roles or
 * weights of samples. */
#include "network.h"

#include <string.h>

static void zero_padding(struct fr_view out, uint32_t width, const struct chunk *c)
{
    for (uint32_t i = c->samples; i < c->rows; i++)
        memset(out.values + i * out.ld, 0, width * sizeof(float));
}

static void forward_pooled(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const struct fr_column *column = &run->batch->columns[node->slot];
    const int32_t t = graph->conf->slots[node->slot].table;
    const struct fr_table_rows *rows = &run->rows->tables[t];
    struct fr_gather gather = {
        .begin = column->begin,
        .weights = column->weights,
        .unique_of = rows->unique_of + run->rows->slot_base[node->slot],
        .rows = rows->rows,
        .value_offset = graph->layouts[t].parts[node->part].value_offset,
        .dim = node->width,
        .sample_begin = c->first,
        .sample_end = c->first + c->samples,
        .mean = node->mean,
        .scale = node->scale,
        .out = fr_node_values(graph, node, 0),
    };
    graph->ops->gather(&gather);
    zero_padding(fr_node_values(graph, node, c->first), node->width, c);
}

static void forward_dense(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    float *values = run->batch->columns[node->slot].dense + (size_t)c->first * node->width;
    struct fr_view out = fr_node_values(run->graph, node, c->first);
    run->graph->ops->copy(c->samples, node->width, (struct fr_view){values, node->width}, out);
    zero_padding(out, node->width, c);
}

static void forward_concat(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    struct fr_view out = fr_node_values(graph, node, c->first);
    for (uint32_t i = 0; i < node->n_arguments; i++) {
        const struct node *from = &graph->nodes[node->arguments[i].node];
        if (!node->arguments[i].in_place)
            graph->ops->copy(c->rows, from->width, fr_node_values(graph, from, c->first), out);
        out.values += from->width;
    }
}

static void forward_linear(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct linear *linear = &graph->linears[node->linear];
    struct fr_view x = fr_node_values(graph, &graph->nodes[node->arguments[0].node], c->first);
    struct fr_view y = fr_node_values(graph, node, c->first);
    struct fr_operand left = {.values = x.values, .ld = x.ld, .rows = c->rows, .columns = linear->in};
    struct fr_operand right = linear->weights;
    if (graph->n_samples <= FR_DIRECT_SAMPLES)
        right.packed = NULL;
    graph->ops->multiply(&(struct fr_multiply){.left = &left, .right = &right, .row_end = c->rows, .out = y});
    graph->ops->bias_activate(c->rows, linear->out, y, graph->parameters[linear->bias].values, linear->relu);
}

static void forward_sums(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    struct fr_view out = fr_node_values(graph, node, c->first);
    struct fr_view *in = graph->views + (size_t)c->worker * 2 * graph->views_max;
    for (uint32_t i = 0; i < node->n_arguments; i++)
        in[i] = fr_node_values(graph, &graph->nodes[node->arguments[i].node], c->first);
    if (node->kind == NODE_BI_INTERACTION) {
        graph->ops->bi_interaction(c->rows, node->width, node->n_arguments, in, out);
        return;
    }
    graph->ops->copy(c->rows, node->width, in[0], out);
    for (uint32_t i = 1; i < node->n_arguments; i++)
        graph->ops->add(c->rows, node->width, in[i], out);
}

/* Notes where the chunk's occurrences come from, for the row gradients; every slot of a table, read by the network or
 * not. */
static void note_occurrences(const struct graph_run *run, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    for (uint32_t s = 0; s < graph->conf->n_slots; s++) {
        if (graph->conf->slots[s].kind == FR_SLOT_DENSE)
            continue;
        struct fr_occurrence *out = graph->tables[graph->conf->slots[s].table].occurrences + run->rows->slot_base[s];
        const uint32_t *begin = run->batch->columns[s].begin;
        for (uint32_t i = c->first; i < c->first + c->samples; i++)
            for (uint32_t p = begin[i]; p < begin[i + 1]; p++)
                out[p] = (struct fr_occurrence){.sample = i, .group = graph->slot_group[s]};
    }
}

static void forward_chunk(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    struct chunk c = fr_chunk_of(graph, index, worker);
    if (!graph->scoring_only)
        note_occurrences(run, &c);
    for (uint32_t n = 0; n < graph->n_nodes; n++) {
        const struct node *node = &graph->nodes[n];
        switch (node->kind) {
        case NODE_POOLED:
            forward_pooled(run, node, &c);
            break;
        case NODE_DENSE:
            forward_dense(run, node, &c);
            break;
        case NODE_CONCAT:
            forward_concat(graph, node, &c);
            break;
        case NODE_LINEAR:
            forward_linear(graph, node, &c);
            break;
        case NODE_BI_INTERACTION:
        case NODE_ADD:
            forward_sums(graph, node, &c);
            break;
        }
    }
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        graph->ops->copy(c.samples, 1, fr_node_values(graph, &graph->nodes[graph->tasks[t].node], c.first),
                         (struct fr_view){graph->tasks[t].logits + c.first, 1});
}

static void pack_weights(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct pack_task *task = &run->graph->pack_tasks[index];
    (void)worker;
    run->graph->ops->pack(&run->graph->linears[task->linear].weights, task->k_begin, task->k_end);
}

void fr_graph_forward(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows)
{
    struct graph_run run = {.graph = graph, .batch = batch, .rows = rows};
    FR_CHECK(batch->n_slots == graph->conf->n_slots);
    fr_graph_reserve(graph, batch->n_samples);
    if (!graph->scoring_only)
        fr_graph_reserve_occurrences(graph, rows);
    graph->n_samples = batch->n_samples;
    /* Parameters may have been written from outside: packed copies do not outlive a call. */
    if (graph->n_samples > FR_DIRECT_SAMPLES && graph->ops->packed_floats(1, 1) > 0)
        fr_graph_run_tasks(graph, graph->n_pack_tasks, pack_weights, &run);
    fr_graph_run_tasks(graph, fr_blocks_of(graph->n_samples, graph->conf->chunk_rows), forward_chunk, &run);
}
