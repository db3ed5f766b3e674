/* One training step: gradients, the check that all of them are finite, then dense and row updates in place.
 *
 * Nothing is changed before every logit, the loss and every gradient is known to be finite and below FR_GRADIENT_MAX.
 * Row gradients are not stored: they are bounded by (largest gradient of a pooled vector) x (largest coefficient) x
 * (occurrences); only where that bound is too weak are they computed for the check alone. Owner thread: the graph's; a
 * block of values or of unique keys belongs to one worker. Does not: know where rows live. */
#include "backward.h"

#include <math.h>

#include "base/math.h"

static void fill_sources(const struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        struct table_sources *table = &graph->tables[t];
        for (uint32_t i = 0; i < table->source_begin[table->n_groups]; i++) {
            const struct node *node = &graph->nodes[table->source_node[i]];
            table->sources[i] = (struct fr_row_source){
                .part = node->part,
                .first = run->rows->slot_base[node->slot],
                .gradient = fr_node_gradients(graph, node, 0),
                .weights = run->batch->columns[node->slot].weights,
                .scale = node->scale,
            };
        }
    }
}

static struct fr_row_update row_update(const struct graph_run *run, uint32_t t, size_t worker)
{
    const struct fr_graph *graph = run->graph;
    const struct table_sources *table = &graph->tables[t];
    const struct fr_table_rows *rows = &run->rows->tables[t];
    return (struct fr_row_update){
        .rows = rows->rows,
        .occ_begin = rows->occ_begin,
        .occ = rows->occ,
        .occurrences = table->occurrences,
        .trained = graph->trained,
        .source_begin = table->source_begin,
        .sources = table->sources,
        .parts = table->parts,
        .n_parts = table->n_parts,
        .scratch = graph->scratch + worker * graph->scratch_floats,
    };
}

/* Sets the range of row task `index` (counted over all tables) and returns its table. */
static struct fr_row_update row_task(const struct graph_run *run, size_t index, size_t worker)
{
    const struct fr_graph *graph = run->graph;
    uint32_t t = 0;
    while (graph->row_block_begin[t + 1] <= index)
        t++;
    struct fr_row_update update = row_update(run, t, worker);
    uint32_t n = run->rows->tables[t].n_unique;
    update.begin = (uint32_t)(index - graph->row_block_begin[t]) * FR_UNIQUE_BLOCK;
    update.end = n - update.begin < FR_UNIQUE_BLOCK ? n : update.begin + FR_UNIQUE_BLOCK;
    return update;
}

static uint32_t count_row_tasks(const struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    uint32_t n = 0;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        const struct table_sources *table = &graph->tables[t];
        graph->row_block_begin[t] = n;
        if (table->source_begin[table->n_groups] > 0)
            n += fr_blocks_of(run->rows->tables[t].n_unique, FR_UNIQUE_BLOCK);
    }
    graph->row_block_begin[graph->conf->n_tables] = n;
    return n;
}

/* ---- are all gradients finite? ---- */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void check_rows(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    struct fr_row_update update = row_task(run, index, worker);
    uint32_t bits = run->graph->ops->check_rows(&update);
    run->graph->worker_bits[worker] = larger(run->graph->worker_bits[worker], bits);
}

/* Largest |weight * scale| of any occurrence, as an upper bound in double; NaN or infinite when a factor is. */
static double largest_coefficient(const struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    double largest = 1.0;
    for (uint32_t n = 0; n < graph->n_nodes; n++) {
        const struct node *node = &graph->nodes[n];
        if (node->kind != NODE_POOLED)
            continue;
        const struct fr_column *column = &run->batch->columns[node->slot];
        uint32_t ids = column->begin[graph->n_samples];
        uint32_t weight = column->weights ? graph->ops->max_bits(1, ids, (struct fr_view){column->weights, ids}) : 0;
        uint32_t scale = 0;
        if (node->mean)
            scale = graph->ops->max_bits(1, graph->n_samples, (struct fr_view){node->scale, graph->n_samples});
        double bound = (weight ? (double)fr_bits_f32(weight) : 1.0) * (scale ? (double)fr_bits_f32(scale) : 1.0);
        if (!(bound <= largest))
            largest = bound;
    }
    return largest;
}

static bool rows_finite(struct graph_run *run, uint32_t n_row_tasks)
{
    struct fr_graph *graph = run->graph;
    uint32_t bits = 0, occurrences = 0;
    for (uint32_t c = 0; c < fr_blocks_of(graph->n_samples, graph->conf->chunk_rows); c++)
        bits = larger(bits, graph->chunk_bits[c]);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        occurrences = larger(occurrences, run->rows->tables[t].n_occurrences);
    double bound = (double)fr_bits_f32(bits) * largest_coefficient(run) * (double)occurrences * (double)graph->n_nodes;
    if (bound <= (double)FR_GRADIENT_MAX)
        return true;
    for (uint32_t w = 0; w < graph->workers; w++)
        graph->worker_bits[w] = 0;
    fr_graph_run_tasks(graph, n_row_tasks, check_rows, run);
    bits = 0;
    for (uint32_t w = 0; w < graph->workers; w++)
        bits = larger(bits, graph->worker_bits[w]);
    return bits <= fr_f32_bits(FR_GRADIENT_MAX);
}

static bool logits_finite(const struct fr_graph *graph)
{
    uint32_t bits = 0, n = graph->n_samples;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        bits = larger(bits, graph->ops->max_bits(1, n, (struct fr_view){graph->tasks[t].logits, n}));
    return bits < fr_f32_bits(INFINITY);
}

static bool kernels_finite(const struct fr_graph *graph)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < graph->n_gradient_tasks; i++)
        bits = larger(bits, graph->gradient_bits[i]);
    return bits <= fr_f32_bits(FR_GRADIENT_MAX);
}

/* ---- updates ---- */

static void update_task(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    if (index >= graph->n_dense_tasks) {
        struct fr_row_update update = row_task(run, index - graph->n_dense_tasks, worker);
        graph->ops->update_rows(&update);
        return;
    }
    const struct dense_task *task = &graph->dense_tasks[index];
    const struct parameter_state *state = &graph->parameter_states[task->parameter];
    struct fr_dense_update update = {
        .n = task->end - task->begin,
        .values = graph->parameters[task->parameter].values + task->begin,
        .gradient = state->gradient + task->begin,
        .state0 = state->state0 ? state->state0 + task->begin : NULL,
        .state1 = state->state1 ? state->state1 + task->begin : NULL,
        .optimizer = graph->dense_optimizer,
        .step_size = run->step_size,
        .second_scale = run->second_scale,
    };
    graph->ops->update_dense(&update);
}

/* base^exponent by squaring: multiplications only, so every libm agrees. */
static double power(double base, uint64_t exponent)
{
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            result *= base;
        base *= base;
    }
    return result;
}

static void begin_step(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    const struct fr_optimizer *o = &graph->dense_optimizer;
    graph->steps++;
    if (o->kind != FR_UPDATE_ADAM)
        return;
    run->step_size = (float)((double)o->lr / (1.0 - power((double)o->beta1, graph->steps)));
    run->second_scale = (float)(1.0 / sqrt(1.0 - power((double)o->beta2, graph->steps)));
}

enum fr_status fr_graph_train(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                              double *loss)
{
    struct graph_run run = {.graph = graph, .batch = batch, .rows = rows};
    FR_CHECK(!graph->scoring_only && graph->n_samples == batch->n_samples);
    if (!logits_finite(graph))
        return FR_E_NONFINITE;
    if (!fr_graph_trained_samples(&run)) {
        if (loss)
            *loss = 0.0;
        return FR_OK; /* nothing to learn from: no step, so that moments do not decay either */
    }
    fr_graph_backward(&run);
    double value = fr_graph_loss(graph);
    fill_sources(&run);
    uint32_t n_row_tasks = count_row_tasks(&run);
    if (!isfinite(value) || !kernels_finite(graph) || !rows_finite(&run, n_row_tasks))
        return FR_E_NONFINITE;
    begin_step(&run);
    fr_graph_run_tasks(graph, (size_t)graph->n_dense_tasks + n_row_tasks, update_task, &run);
    if (loss)
        *loss = value;
    return FR_OK;
}
