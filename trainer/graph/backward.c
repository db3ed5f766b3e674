/* Gradients go from the outputs through every node in reverse order, chunk by chunk, samples' rows
 * first, then groups' rows.
 *
 * A node's gradient is complete when its turn comes, because its readers come later in evaluation
 * order, or belong to the samples' phase. Nothing here changes a parameter or a row.
 *
 * Owner thread: the graph's; a chunk belongs to one worker. Sums over the batch are in
 * backward_kernels.c, updates in update.c. */
#include "passes.h"

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* ---- chunks ---- */

static void output_gradients(const struct fr_graph *graph, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    for (uint32_t k = 0; k < graph->n_outputs; k++) {
        const struct argument *claim = &v->output_claim[k];
        const struct node *node = &v->nodes[v->output_node[k]];
        if (claim->skip_gradient)
            continue;
        if (claim->zero_buffer)
            fr_graph_zero_gradients(graph, node, fr_rows_of(graph, node->space, c));
        struct fr_view from = {graph->outputs[k].gradient + c->first, 1};
        struct fr_view to = fr_node_gradients(v, node, c->first);
        if (claim->accumulate)
            FR_RUN(graph, add, c->entries, 1, from, to);
        else
            FR_RUN(graph, copy, c->entries, 1, from, to);
    }
}

/* Returns the largest gradient of the chunk's leaves that have rows. */
static uint32_t leaf_bits(const struct fr_graph *graph, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    uint32_t largest = 0, *word = graph->device ? fr_graph_device_bits(graph->device, FR_DEVICE_LEAVES) : NULL;
    for (uint32_t n = 0; n < v->n_nodes; n++) {
        const struct node *node = &v->nodes[n];
        const struct row_sums *sums = fr_sums_of(v, node);
        if (sums && n == sums->first && c->level == LEVEL_SAMPLE)
            largest = larger(largest, fr_graph_sum_bits(graph, sums, c));
        if ((node->kind != NODE_POOLED && node->kind != NODE_SEQUENCE) || !node->reached || sums ||
            v->spaces[node->space].level != c->level)
            continue;
        struct rows r = fr_rows_of(graph, node->space, c);
        struct fr_view gradients = fr_node_gradients(v, node, r.begin);
        if (word)
            graph->device->ops->max_bits(graph->device->queue, word, r.real, node->width, gradients);
        else
            largest = larger(largest, graph->ops->max_bits(r.real, node->width, gradients));
    }
    return largest;
}

static void backward_samples(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    struct chunk c = fr_chunk_of(graph, LEVEL_SAMPLE, index, worker);
    output_gradients(graph, &c);
    for (uint32_t n = v->n_nodes; n-- > 0;) {
        if (!v->nodes[n].reached || v->spaces[v->nodes[n].space].level != LEVEL_SAMPLE || fr_sums_of(v, &v->nodes[n]))
            continue;
        fr_graph_device_enter_node(graph, &v->nodes[n]);
        fr_graph_backward_node(run, &v->nodes[n], &c);
    }
    fr_graph_device_enter_node(graph, NULL);
    graph->chunk_bits[index] = leaf_bits(graph, &c);
}

static bool collapses(const struct node *node)
{
    return node->kind == NODE_EXPAND || (node->kind == NODE_LINEAR && node->n_arguments > 1);
}

static void backward_groups(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    struct chunk c = fr_chunk_of(graph, LEVEL_GROUP, index, worker);
    for (uint32_t n = v->n_nodes; n-- > 0;) {
        const struct node *node = &v->nodes[n];
        if (!node->reached)
            continue;
        fr_graph_device_enter_node(graph, node);
        if (v->spaces[node->space].level == LEVEL_GROUP)
            fr_graph_backward_node(run, node, &c);
        else if (collapses(node))
            fr_graph_backward_collapse(run, node, &c);
    }
    fr_graph_device_enter_node(graph, NULL);
    graph->chunk_bits[fr_level_chunks(graph, LEVEL_SAMPLE) + index] = leaf_bits(graph, &c);
}

/* ---- kernels ---- */

static void pack_weights_t(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct variant *v = run->graph->variant;
    const struct pack_task *task = &v->pack_t_tasks[index];
    (void)worker;
    run->graph->ops->pack(&v->linears[task->linear].weights_t, task->k_begin, task->k_end);
}

/* ---- sources of row gradients ---- */

static void fill_sources(const struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        const struct table_sources *table = &v->tables[t];
        for (uint32_t i = 0; i < table->source_begin[graph->tables[t].n_groups]; i++) {
            const struct node *node = &v->nodes[table->source_node[i]];
            bool groups = v->spaces[node->space].level == LEVEL_GROUP;
            const struct loss_set *trained = &graph->loss_sets[node->set];
            const struct loss_set *counted = &graph->loss_sets[table->source_set[i]];
            table->sources[i] = (struct fr_row_source){
                .part = (uint32_t)node->part,
                .first = run->rows->slot_base[node->slot],
                .gradient = fr_node_gradients(v, node, 0),
                .weights = run->at_batch->columns[node->slot].weights,
                .pooling = node->pooling,
                .kept = node->extra,
                .trained = groups ? trained->at_groups : trained->at_samples,
                .counted = groups ? counted->at_groups : counted->at_samples,
                .masked = node->kind == NODE_SEQUENCE ? v->spaces[node->space].at_masked : NULL,
                .by_id = node->kind == NODE_SEQUENCE,
                .whole = !groups && trained->count == graph->n_samples && counted->count == graph->n_samples,
            };
            if (fr_sums_of(v, node))
                fr_graph_sum_source(graph, fr_sums_of(v, node), &table->sources[i]);
        }
    }
}

/* ---- the whole pass ---- */

double fr_graph_sum_chunks(const struct fr_graph *graph, uint32_t span, const double *partial, size_t stride)
{
    struct fr_lane_span lanes = fr_span_of(&graph->lanes, span);
    const struct lane_begin *begin = graph->lanes.begin[LEVEL_SAMPLE];
    struct fr_lane_sum all = {0};
    for (uint32_t lane = lanes.first; lane < lanes.end; lane++) {
        double sum = 0.0;
        for (uint32_t c = begin[lane].chunk; c < begin[lane + 1].chunk; c++)
            sum += partial[c * stride];
        if (begin[lane + 1].chunk > begin[lane].chunk)
            fr_lane_sum_add(&all, lane, sum);
    }
    return fr_lane_sum_total(&all);
}

void fr_graph_mark_trained(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    const struct fr_batch *batch = run->batch;
    graph->n_trained = 0;
    for (uint32_t i = 0; i < graph->n_samples; i++) {
        graph->trained[i] = batch->role[i] == FR_ROLE_TRAIN;
        graph->n_trained += graph->trained[i];
    }
}

static void fill_set(const struct graph_run *run, struct loss_set *set)
{
    const struct fr_graph *graph = run->graph;
    const struct fr_batch *batch = run->batch;
    set->count = 0;
    for (uint32_t i = 0; i < graph->n_samples; i++) {
        set->samples[i] = (graph->sample_losses[i] & set->losses) != 0;
        set->count += set->samples[i];
    }
    for (uint32_t g = 0; g < graph->n_groups; g++) {
        set->groups[g] = 0;
        for (uint32_t i = batch->group_begin[g]; i < batch->group_begin[g + 1]; i++)
            set->groups[g] += set->samples[i];
    }
}

void fr_graph_fill_sets(struct graph_run *run)
{
    for (uint32_t i = 0; i < run->graph->n_loss_sets; i++)
        fill_set(run, &run->graph->loss_sets[i]);
}

static void sum_auxiliary_losses(const struct fr_graph *graph)
{
    uint32_t n = graph->conf->n_losses;
    for (uint32_t s = 0; s < graph->lanes.n_spans; s++)
        for (uint32_t i = 0; i < n; i++)
            fr_span_numbers(&graph->sums, s)[graph->conf->n_tasks + i] =
                fr_graph_sum_chunks(graph, s, graph->loss_partial + i, n);
}

void fr_graph_backward(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    uint32_t samples = fr_level_chunks(graph, LEVEL_SAMPLE), groups = fr_level_chunks(graph, LEVEL_GROUP);
    if (!graph->device && graph->ops->packed_floats(1, 1) > 0)
        fr_graph_run_tasks(graph, v->n_pack_t_tasks, pack_weights_t, run);
    fr_graph_run_tasks(graph, samples, backward_samples, run);
    fr_graph_run_tasks(graph, groups, backward_groups, run);
    if (graph->device) {
        fr_graph_device_parameter_gradients(run);
        fill_sources(run);
        return;
    }
    fr_graph_parameter_gradients(run);
    run->leaf_bits = 0;
    for (uint32_t c = 0; c < samples + groups; c++)
        run->leaf_bits = larger(run->leaf_bits, graph->chunk_bits[c]);
    sum_auxiliary_losses(graph);
    fill_sources(run);
    graph->swept = true;
}
