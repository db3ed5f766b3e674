/* One training step: gradients, the check that all of them are finite, then dense and row updates
 * in place.
 *
 * Nothing is changed before every logit, loss, gradient and new statistic is known to be finite,
 * and every raw gradient, before any clipping, to be below FR_GRADIENT_MAX. From such gradients
 * the rules give finite numbers by construction (ops/row.h, README). Row gradients are not
 * stored: they are bounded by (largest gradient of a pooled vector or step) x (largest
 * coefficient) x (occurrences) x (readers); only where that bound is too weak are they computed
 * for the check alone.
 *
 * Owner thread: the graph's; a block of values or of unique keys belongs to one worker. Rows are
 * reached by pointers, wherever they are. */
#include "graph/ranks.h"
#include "graph/step_view.h"
#include "learning.h"
#include "ops/pooling.h"
#include "passes.h"

#include <math.h>
#include <string.h>

/* ---- rows in blocks ---- */

static uint32_t readers_of(const struct graph_run *run, uint32_t t)
{
    const struct fr_graph *graph = run->graph;
    return graph->variant->tables[t].source_begin[graph->tables[t].n_groups];
}

struct fr_row_update fr_graph_row_update(const struct graph_run *run, uint32_t t, size_t worker)
{
    const struct fr_graph *graph = run->graph;
    const struct table_sources *sources = &graph->variant->tables[t];
    const struct fr_table_rows *rows = &run->rows->tables[t];
    return (struct fr_row_update){
        .rows = rows->rows,
        .served = fr_served_rows(rows),
        .occ_begin = rows->occ_begin,
        .occ = rows->occ,
        .occ_from = rows->occ_from,
        .occ_lane = rows->occ_lane,
        .entry_bits = FR_ENTRY_BITS,
        .n_groups = graph->tables[t].n_groups,
        .source_begin = sources->source_begin,
        .sources = sources->sources,
        .parts = graph->tables[t].parts,
        .n_parts = graph->tables[t].n_parts,
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
    struct fr_row_update update = fr_graph_row_update(run, t, worker);
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
        graph->row_block_begin[t] = n;
        if (readers_of(run, t) > 0)
            n += fr_blocks_of(run->rows->tables[t].n_unique, FR_UNIQUE_BLOCK);
    }
    graph->row_block_begin[graph->conf->n_tables] = n;
    return n;
}

/* ---- is everything finite? ---- */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t largest_of(const struct fr_graph *graph, const float *x, size_t n)
{
    /* max_bits only reads */
    return n ? graph->ops->max_bits(1, (uint32_t)n, (struct fr_view){(float *)(uintptr_t)x, n}) : 0;
}

static bool logits_finite(const struct fr_graph *graph)
{
    uint32_t bits = 0;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        bits = larger(bits, largest_of(graph, graph->tasks[t].logits, graph->n_samples));
    return bits < fr_f32_bits(INFINITY);
}

static bool output_gradients_finite(const struct fr_graph *graph)
{
    uint32_t bits = 0;
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        bits = larger(bits, largest_of(graph, graph->outputs[k].gradient, graph->n_samples));
    return bits <= fr_f32_bits(FR_GRADIENT_MAX);
}

static void check_rows(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    struct fr_row_update update = row_task(run, index, worker);
    uint32_t bits = run->graph->ops->check_rows(&update);
    run->graph->worker_bits[worker] = larger(run->graph->worker_bits[worker], bits);
}

/* Returns an upper bound, in double, of |weight * scale| over all occurrences of table t; NaN or
 * infinite if a factor is. */
static double largest_coefficient(const struct graph_run *run, uint32_t t)
{
    const struct fr_graph *graph = run->graph;
    const struct table_sources *table = &graph->variant->tables[t];
    double largest = 1.0;
    for (uint32_t i = 0; i < readers_of(run, t); i++) {
        const struct fr_row_source *source = &table->sources[i];
        uint32_t slot = table->source_slot[i], entries = fr_batch_entries(run->batch, slot);
        double bound = 1.0;
        if (source->weights)
            bound *= (double)fr_bits_f32(largest_of(graph, source->weights, run->batch->columns[slot].begin[entries]));
        if (fr_pooling_keeps_scale(source->pooling))
            bound *= (double)fr_bits_f32(largest_of(graph, source->kept, entries));
        if (!(bound <= largest))
            largest = bound;
    }
    return largest;
}

/* Returns an upper bound of the gradient of each row of table t. */
static double row_bound(const struct graph_run *run, uint32_t t)
{
    uint32_t readers = readers_of(run, t);
    return readers == 0 ? 0.0
                        : (double)fr_bits_f32(run->leaf_bits) * largest_coefficient(run, t) *
                              (double)run->rows->tables[t].n_occurrences * (double)readers;
}

static bool rows_finite(const struct graph_run *run, uint32_t n_row_tasks)
{
    const struct fr_graph *graph = run->graph;
    bool bounded = true;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        bounded &= row_bound(run, t) <= (double)FR_GRADIENT_MAX;
    if (bounded)
        return true;
    for (uint32_t w = 0; w < graph->workers; w++)
        graph->worker_bits[w] = 0;
    fr_graph_run_tasks(graph, n_row_tasks, check_rows, (void *)(uintptr_t)run);
    uint32_t bits = 0;
    for (uint32_t w = 0; w < graph->workers; w++)
        bits = larger(bits, graph->worker_bits[w]);
    return bits <= fr_f32_bits(FR_GRADIENT_MAX);
}

float fr_graph_row_gradient(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                            uint32_t table, uint32_t unique)
{
    const struct graph_run run = {.graph = graph, .batch = batch, .rows = rows};
    if (readers_of(&run, table) == 0)
        return 0.0f;
    struct fr_row_update update = fr_graph_row_update(&run, table, 0);
    update.begin = unique;
    update.end = unique + 1;
    return fr_bits_f32(graph->ops->check_rows(&update));
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
    fr_graph_step_dense(graph, &graph->dense_tasks[index]);
}

/* Computes the sums of the batch for each span of lanes; false: a gradient of an output is unfit,
 * and there are none. */
static bool compute_sums(struct graph_run *run)
{
    fr_graph_forward_training(run);
    fr_graph_losses(run);
    fr_graph_fill_sets(run);
    if (!output_gradients_finite(run->graph))
        return false;
    fr_graph_backward(run);
    fr_graph_sum_statistics(run);
    fr_graph_sum_priors(run);
    return true;
}

/* Computes the gradients, and checks whether all numbers are fit for a step. */
static enum fr_status compute_step(struct graph_run *run, uint32_t *n_row_tasks, double *loss)
{
    struct fr_graph *graph = run->graph;
    if (!compute_sums(run))
        return FR_E_NONFINITE;
    fr_graph_weigh_losses(graph);
    double value = fr_graph_mean_loss(graph);
    *n_row_tasks = count_row_tasks(run);
    if (!isfinite(value) || run->parameter_bits > fr_f32_bits(FR_GRADIENT_MAX) || !rows_finite(run, *n_row_tasks) ||
        !fr_graph_stage_statistics(graph))
        return FR_E_NONFINITE;
    *loss = value;
    return FR_OK;
}

static uint64_t now_ns(const struct fr_graph *graph)
{
    return graph->clock ? fr_mono_ns(graph->clock) : 0;
}

struct fr_graph_times fr_graph_get_times(const struct fr_graph *graph)
{
    return graph->times;
}

bool fr_graph_runs_beside(const struct fr_graph *graph)
{
    return graph->device != NULL;
}

enum fr_status fr_graph_train(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                              double *loss)
{
    fr_graph_train_begin(graph, batch, rows);
    return fr_graph_train_finish(graph, batch, rows, loss);
}

void fr_graph_train_begin(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows)
{
    FR_CHECK(!graph->scoring_only && graph->n_samples == batch->n_samples);
    if (graph->device)
        fr_graph_device_begin(&(struct graph_run){.graph = graph, .batch = batch, .rows = rows, .training = true});
}

void fr_graph_finish_step(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    fr_graph_commit_statistics(graph);
    fr_graph_follow_priors(run);
    graph->steps++;
    graph->trained_samples += graph->n_trained;
    fr_graph_note_step(graph);
}

enum fr_status fr_graph_train_finish(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                                     double *loss)
{
    struct graph_run run = {
        .graph = graph, .batch = batch, .rows = rows, .at_batch = batch, .at_rows = rows, .training = true};
    if (graph->device)
        return fr_graph_device_finish(&run, loss);
    if (!logits_finite(graph))
        return FR_E_NONFINITE;
    fr_graph_mark_trained(&run);
    uint32_t n_row_tasks = 0;
    double value = 0.0;
    if (fr_graph_count_unmasked(&run)) {
        uint64_t began_ns = now_ns(graph);
        enum fr_status status = compute_step(&run, &n_row_tasks, &value);
        uint64_t computed_ns = now_ns(graph);
        graph->times.backward_ns += computed_ns - began_ns;
        if (status != FR_OK)
            return status;
        fr_graph_begin_step(graph);
        fr_graph_run_tasks(graph, (size_t)graph->n_dense_tasks + n_row_tasks, update_task, &run);
        fr_graph_finish_step(&run);
        graph->times.update_ns += now_ns(graph) - computed_ns;
    }
    if (loss)
        *loss = value;
    return FR_OK;
}

/* ---- the same over several ranks ---- */

void fr_graph_sum(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows)
{
    struct graph_run run = {
        .graph = graph, .batch = batch, .rows = rows, .at_batch = batch, .at_rows = rows, .training = true};
    struct span_sums *sums = &graph->sums;
    FR_CHECK(sums->of_rank);
    fr_graph_begin_span_sums(graph, batch->n_samples);
    if (batch->n_samples == 0)
        return;
    FR_CHECK(graph->n_samples == batch->n_samples && graph->lanes.n == fr_conf_domains(graph->conf));
    sums->unfit = logits_finite(graph) ? 0 : UNFIT_LOGITS;
    if (sums->unfit)
        return;
    uint64_t began_ns = now_ns(graph);
    fr_graph_mark_trained(&run);
    (void)fr_graph_count_unmasked(&run); /* samples of other ranks may count */
    sums->unfit = compute_sums(&run) ? 0 : UNFIT_GRADIENTS;
    for (uint32_t t = 0; t < graph->conf->n_tables && !sums->unfit; t++)
        sums->row_bounds[t] = row_bound(&run, t);
    fr_graph_count_span_sums(graph, rows);
    graph->times.backward_ns += now_ns(graph) - began_ns;
}

static void step_block(void *context, size_t index, size_t worker)
{
    const struct fr_graph *graph = context;
    (void)worker;
    fr_graph_step_dense(graph, &graph->dense_tasks[fr_graph_portion_of(graph, graph->sums.rank).first + index]);
}

void fr_graph_step(struct fr_graph *graph)
{
    struct portion portion = fr_graph_portion_of(graph, graph->sums.rank);
    if (!graph->sums.steps)
        return;
    uint64_t began_ns = now_ns(graph);
    fr_graph_begin_step(graph);
    fr_graph_run_tasks(graph, portion.last - portion.first, step_block, graph);
    fr_graph_step_home_rows(graph);
    graph->sums.steps = false;
    graph->times.update_ns += now_ns(graph) - began_ns;
}
