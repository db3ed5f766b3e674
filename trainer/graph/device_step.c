/* A step on a device: everything is started, including updates, and then one block reports the
 * result.
 *
 * Updates obey a flag that the checks before them set (struct fr_device_judge), so a refused
 * step changes nothing, and the host's numbers (ages, counts, statistics) are restored or not
 * adopted. Row gradients are not computed twice: if the leaves' gradients are small enough for
 * any sum of them (as on the processor, update.c), nothing more is checked. If that bound is too
 * weak, the step is not refused but unsure: updates have done nothing, the rows' gradients are
 * checked, and if they are fit the updates are started again.
 *
 * Between begin and finish the host does other work (trainer/attempt.c). Owner thread: the
 * graph's. */
#include "learning.h"
#include "passes.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/pooling.h"

enum { DICE_BITS = 32 }; /* bits of the number of times that an entry counts */

/* ---- the answer ---- */

static uint32_t dice_floats(const struct fr_graph *graph)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->variant->n_nodes; i++)
        if (fr_activation_has_statistics(graph->variant->nodes[i].activation))
            n += graph->variant->nodes[i].width;
    return n;
}

static bool lay_out_answer(struct fr_graph *graph, uint32_t n_groups)
{
    struct graph_device *device = graph->device;
    const struct fr_conf *conf = graph->conf;
    bool pairs = false;
    for (uint32_t t = 0; t < conf->n_tasks; t++)
        pairs |= fr_loss_terms(conf->tasks[t].loss) == FR_TRAINS_PAIRS;
    device->n_groups = pairs ? n_groups : 0;
    device->sums_at = FR_DEVICE_WORDS * sizeof(uint32_t);
    device->pairs_at = device->sums_at + (conf->n_tasks + conf->n_losses) * sizeof(double);
    device->dices_at = device->pairs_at + (size_t)conf->n_tasks * device->n_groups * sizeof(double);
    device->answer_bytes = device->dices_at + (size_t)DICE_BITS * 2 * dice_floats(graph) * sizeof(double);
    if (device->answer_bytes > device->answer_capacity) {
        device->api->release(device->queue, device->answer);
        device->api->release_pinned(device->queue, device->answered);
        device->answer_capacity = device->answer_bytes + device->answer_bytes / 2;
        device->answer = fr_graph_memory(graph, device->answer_capacity);
        device->answered = device->api->alloc_pinned(device->queue, device->answer_capacity);
    }
    if (!device->answer || !device->answered) {
        device->answer_capacity = 0;
        fr_graph_device_fail(device, FR_E_NO_MEMORY, "there is no memory for a step's answer");
        return false;
    }
    fr_graph_clear(graph, device->answer, device->answer_bytes);
    device->api->obey(device->queue, fr_graph_device_bits(device, FR_DEVICE_REFUSED));
    return true;
}

static uint32_t answered(const struct graph_device *device, enum fr_device_word word)
{
    return ((const uint32_t *)(const void *)device->answered)[word];
}

static const double *answered_sums(const struct graph_device *device, size_t at)
{
    return (const double *)(const void *)(device->answered + at);
}

static enum fr_status ask(struct graph_device *device)
{
    device->api->download(device->queue, device->answered, device->answer, device->answer_bytes);
    return fr_graph_device_wait(device);
}

static void measure(struct graph_device *device, enum fr_device_word word, uint32_t m, uint32_t n, struct fr_view x)
{
    if (m > 0 && n > 0)
        device->ops->max_bits(device->queue, fr_graph_device_bits(device, word), m, n, x);
}

static void judge(struct graph_device *device, enum fr_device_word word, uint32_t bound, enum fr_device_refusal reason)
{
    device->ops->judge(device->queue,
                       &(struct fr_device_judge){.bits = fr_graph_device_bits(device, word),
                                                 .bound = bound,
                                                 .reason = reason,
                                                 .flag = fr_graph_device_bits(device, FR_DEVICE_REFUSED)});
}

/* ---- forward ---- */

/* Begins the current batch, which may have been sent while the previous step ran. */
static void begin_arrival(struct graph_run *run)
{
    struct graph_device *device = run->graph->device;
    struct arrival *next = device->next;
    bool there = next->of_batch == run->batch && next->of_rows == run->rows;
    next->of_batch = NULL;
    if (there) {
        device->next = device->now;
        device->now = next;
        device->arena = &next->arena;
    }
    device->next->turn = 0;
    if (there)
        return;
    fr_graph_device_begin_arena(device, &device->now->arena);
    fr_graph_device_send_batch(run->graph, device->now, run->batch, run->rows);
}

void fr_graph_device_forward(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    if (device->waiting)
        (void)fr_graph_device_wait(device);
    begin_arrival(run);
    fr_graph_prepare(run);
    if (device->status != FR_OK || fr_graph_device_send_rows(run) != FR_OK)
        return;
    fr_graph_device_send_steps(run);
    if (device->status != FR_OK || !lay_out_answer(graph, run->batch->n_groups))
        return;
    run->at_batch = &device->now->batch;
    run->at_rows = &device->now->rows;
    fr_graph_device_begin_piece(device);
    fr_graph_device_push(graph);
    fr_graph_gather_kernels(run);
    fr_graph_forward_chunks(run);
    fr_graph_task_logits(run);
    fr_graph_device_end_piece(device);
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        device->api->download(device->queue, graph->tasks[t].logits, graph->tasks[t].at_logits,
                              graph->n_samples * sizeof(float));
    device->waiting = true;
}

/* ---- limits of the rows' gradients ---- */

/* Returns the largest |weight x scale| of a reader's ids, with the scale of the pooling. */
static double largest_coefficient(const struct graph_run *run, const struct node *node)
{
    const struct fr_column *column = &run->batch->columns[node->slot];
    double largest = 1.0; /* without weights the largest possible scale is 1 */
    uint32_t entries = fr_batch_entries(run->batch, (uint32_t)node->slot);
    for (uint32_t e = 0; column->weights && e < entries; e++) {
        uint32_t begin = column->begin[e], end = column->begin[e + 1];
        float scale = fr_pooling_scale(node->pooling, column->weights, begin, end), weight = 0.0f;
        for (uint32_t p = begin; p < end; p++)
            weight = fabsf(column->weights[p]) > weight ? fabsf(column->weights[p]) : weight;
        double bound = (double)weight * fabs((double)scale);
        if (!(bound <= largest))
            largest = bound;
    }
    return largest;
}

/* Returns the largest gradient of leaves with which no row's sum can exceed the bound. */
static float leaf_bound(const struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    double bound = (double)FR_GRADIENT_MAX;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        const struct table_sources *table = &graph->variant->tables[t];
        double most = (double)run->rows->tables[t].n_occurrences * (double)table->n_sources, largest = 1.0;
        for (uint32_t i = 0; i < table->n_sources; i++) {
            double coefficient = largest_coefficient(run, &graph->variant->nodes[table->source_node[i]]);
            if (!(coefficient <= largest))
                largest = coefficient;
        }
        double own = (double)FR_GRADIENT_MAX / (largest * (most > 1.0 ? most : 1.0));
        if (!(own >= bound)) /* if a coefficient is NaN, no gradient is small enough */
            bound = own > 0.0 ? own : 0.0;
    }
    return (float)(bound / 2.0); /* the half allows for rounding */
}

/* ---- updates ---- */

static struct fr_row_update row_update(const struct graph_run *run, uint32_t t)
{
    const struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    const struct table_sources *sources = &graph->variant->tables[t];
    const struct table_state *table = &graph->tables[t];
    const struct fr_table_rows *rows = &device->now->rows.tables[t];
    return (struct fr_row_update){
        .rows = rows->rows,
        .occ_begin = rows->occ_begin,
        .occ = rows->occ,
        .occ_from = rows->occ_from,
        .entry_bits = FR_ENTRY_BITS,
        .n_groups = table->n_groups,
        .source_begin = fr_graph_array(graph, sources->source_begin, (table->n_groups + 1) * sizeof(uint32_t)),
        .sources = fr_graph_array(graph, sources->sources, sources->n_sources * sizeof(*sources->sources)),
        .parts = fr_graph_array(graph, table->parts, table->n_parts * sizeof(*table->parts)),
        .n_parts = table->n_parts,
        .end = rows->n_unique,
    };
}

static void check_rows(const struct graph_run *run)
{
    struct graph_device *device = run->graph->device;
    for (uint32_t t = 0; t < run->graph->conf->n_tables; t++) {
        struct fr_row_update update = row_update(run, t);
        if (run->graph->variant->tables[t].n_sources > 0 && update.end > 0)
            device->ops->check_rows(device->queue, fr_graph_device_bits(device, FR_DEVICE_ROWS), &update);
    }
}

/* Computes the factors of the gradients of clipped parameters, in the order of the parameters
 * that move; NULL: no parameter is clipped. */
static const float *clip_factors(const struct fr_graph *graph)
{
    struct graph_device *device = graph->device;
    size_t n = graph->n_parameters;
    bool any = graph->conf->clip_global_norm > 0.0f;
    for (size_t p = 0; p < n; p++)
        any |= graph->parameter_states[p].moves && graph->parameter_states[p].conf->clip_norm > 0.0f;
    if (!any)
        return NULL;
    if (!device->factors) {
        device->factors = fr_graph_memory(graph, 2 * n * sizeof(float));
        device->squares = fr_graph_memory(graph, n * sizeof(double));
    }
    void *scales, *norms;
    struct fr_device_clip clip = {.n = (uint32_t)n, .squares = device->squares, .factors = device->factors};
    clip.mean_scales = fr_graph_device_room(device, n * sizeof(float), &scales);
    clip.clip_norms = fr_graph_device_room(device, n * sizeof(float), &norms);
    clip.clip_global_norm = graph->conf->clip_global_norm;
    if (!scales || !norms || !device->factors || !device->squares)
        return NULL;
    fr_graph_clear(graph, device->squares, n * sizeof(double));
    for (size_t p = 0; p < n; p++) {
        const struct parameter_state *state = &graph->parameter_states[p];
        ((float *)scales)[p] = state->moves ? state->pace.mean_scale : 0.0f;
        ((float *)norms)[p] = state->moves ? state->conf->clip_norm : 0.0f;
        if (state->moves)
            device->ops->sum_squares(device->queue, device->squares + p, graph->parameters[p].n_values,
                                     state->gradient);
    }
    device->ops->clip_norms(device->queue, &clip);
    return device->factors;
}

static void update(const struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    const float *factors = clip_factors(graph);
    for (size_t p = 0; p < graph->n_parameters; p++) {
        const struct parameter_state *state = &graph->parameter_states[p];
        const struct place *place = &graph->places[p];
        if (!state->gradient || !state->moves)
            continue;
        struct fr_dense_update call = {.n = graph->parameters[p].n_values,
                                       .values = place->values,
                                       .gradient = state->gradient,
                                       .state0 = place->state0,
                                       .state1 = place->state1,
                                       .optimizer = state->optimizer,
                                       .pace = state->pace};
        device->ops->update_dense_clipped(device->queue, &call, factors ? factors + 2 * p : NULL);
        if (state->share > 0.0f)
            device->ops->average(device->queue, &(struct fr_device_average){.n = call.n,
                                                                            .average = place->average,
                                                                            .values = place->values,
                                                                            .share = state->share});
    }
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        struct fr_row_update call = row_update(run, t);
        if (graph->variant->tables[t].n_sources > 0 && call.end > 0)
            device->ops->update_rows_long(device->queue, &call, &device->now->plans[t].keys);
    }
}

/* ---- statistics of activations ---- */

/* Counts how often each row of a dice's input counts: once for each sample of the dice's losses
 * that reads the row. Returns the total. */
static uint64_t count_rows(const struct graph_run *run, const struct node *node, uint32_t *counts, uint32_t *most)
{
    const struct fr_graph *graph = run->graph;
    const struct space *space = &graph->variant->spaces[node->space];
    const struct loss_set *set = &graph->loss_sets[node->set];
    const uint32_t *of = space->level == LEVEL_GROUP ? set->groups : set->samples;
    uint64_t all = 0;
    for (uint32_t e = 0; e < fr_level_entries(graph, space->level); e++) {
        uint32_t begin = space->slot == FR_NO_INDEX ? e : space->begin[e];
        uint32_t end = space->slot == FR_NO_INDEX ? e + 1 : space->begin[e + 1];
        *most = of[e] > *most ? of[e] : *most;
        for (uint32_t p = begin; p < end; p++) {
            counts[p] = space->slot != FR_NO_INDEX && space->masked[p] ? 0 : of[e];
            all += counts[p];
        }
    }
    return all;
}

/* An operation on moments counts each row once or not at all. So there is one call for each bit
 * of the number of times that rows count. */
static void sum_dice(const struct graph_run *run, const struct node *node, double *sums)
{
    const struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    uint32_t rows = graph->variant->spaces[node->space].rows, most = 0, n = node->width;
    uint32_t *counts = fr_alloc(rows ? rows : 1, sizeof(*counts));
    struct fr_view x = fr_node_values(graph->variant, fr_argument(graph, node, 0), 0);
    (void)count_rows(run, node, counts, &most);
    measure(device, FR_DEVICE_SQUARED, rows, n, x);
    for (uint32_t bit = 0; bit < DICE_BITS && most >> bit > 0; bit++) {
        void *use;
        const uint8_t *there = fr_graph_device_room(device, rows, &use);
        for (uint32_t p = 0; p < rows && use; p++)
            ((uint8_t *)use)[p] = counts[p] >> bit & 1;
        double *sum = sums + (size_t)bit * 2 * n;
        if (use)
            device->ops->moments(device->queue, &(struct fr_moments){rows, n, x, there, sum, sum + n});
    }
    free(counts);
}

static bool is_dice(const struct node *node)
{
    return node->kind == NODE_ACTIVATE && fr_activation_has_statistics(node->activation) && node->reached;
}

static void sum_dices(const struct graph_run *run)
{
    const struct variant *v = run->graph->variant;
    struct graph_device *device = run->graph->device;
    double *sums = (double *)(void *)(device->answer + device->dices_at);
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        if (!is_dice(&v->nodes[i]))
            continue;
        sum_dice(run, &v->nodes[i], sums);
        sums += (size_t)DICE_BITS * 2 * v->nodes[i].width;
    }
    /* the square of a larger value, or a sum of a few such squares, is not finite in f32 */
    judge(device, FR_DEVICE_SQUARED, fr_f32_bits(sqrtf(FLT_MAX)), FR_REFUSED_STATISTIC);
}

static void stage_dices(const struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    const double *sums = answered_sums(graph->device, graph->device->dices_at);
    for (uint32_t i = 0; i < graph->variant->n_nodes; i++) {
        const struct node *node = &graph->variant->nodes[i];
        if (!is_dice(node))
            continue;
        uint32_t rows = graph->variant->spaces[node->space].rows, most = 0, n = node->width;
        uint32_t *counts = fr_alloc(rows ? rows : 1, sizeof(*counts));
        uint64_t all = count_rows(run, node, counts, &most);
        double *total = fr_alloc(2 * (size_t)n, sizeof(*total));
        for (uint32_t bit = 0; bit < DICE_BITS && most >> bit > 0; bit++)
            for (uint32_t j = 0; j < 2 * n; j++)
                total[j] += (double)(1u << bit) * sums[(size_t)bit * 2 * n + j];
        if (all > 0)
            fr_graph_stage_dice(graph, node, total, all);
        sums += (size_t)DICE_BITS * 2 * n;
        free(total);
        free(counts);
    }
}

/* ---- a step ---- */

static void start_checks(struct graph_run *run, bool fit)
{
    struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    if (!fit) { /* undo the host's statistics */
        uint32_t reason = FR_REFUSED_STATISTIC;
        const void *word = fr_graph_array(graph, &reason, sizeof(reason));
        device->api->copy(device->queue, fr_graph_device_bits(device, FR_DEVICE_REFUSED), word, sizeof(reason));
    }
    fr_graph_forward_training(run);
    fr_graph_losses(run);
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        measure(device, FR_DEVICE_OUTPUTS, 1, graph->n_samples,
                (struct fr_view){graph->outputs[k].gradient, graph->n_samples});
    judge(device, FR_DEVICE_OUTPUTS, fr_f32_bits(FR_GRADIENT_MAX), FR_REFUSED_LOSS);
    fr_graph_backward(run);
    judge(device, FR_DEVICE_PARAMETERS, fr_f32_bits(FR_GRADIENT_MAX), FR_REFUSED_GRADIENT);
    judge(device, FR_DEVICE_LEAVES, fr_f32_bits(leaf_bound(run)), FR_REFUSED_UNSURE);
    size_t n_sums = (device->dices_at - device->sums_at) / sizeof(double);
    device->ops->judge_sums(device->queue,
                            &(struct fr_device_judge_sums){.sums = fr_graph_device_sum(device, 0),
                                                           .n = (uint32_t)n_sums,
                                                           .reason = FR_REFUSED_LOSS,
                                                           .flag = fr_graph_device_bits(device, FR_DEVICE_REFUSED)});
    sum_dices(run);
}

/* Checks the rows' own gradients, if nothing else requires a refusal of the step. */
static enum fr_status make_sure(const struct graph_run *run, uint32_t *refused)
{
    struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    fr_graph_device_begin_piece(device);
    check_rows(run);
    fr_graph_device_end_piece(device);
    enum fr_status status = ask(device);
    if (status != FR_OK)
        return status;
    *refused = answered(device, FR_DEVICE_ROWS) > fr_f32_bits(FR_GRADIENT_MAX) ? FR_REFUSED_GRADIENT : 0;
    if (*refused)
        return FR_OK;
    fr_graph_device_begin_piece(device);
    fr_graph_clear(graph, fr_graph_device_bits(device, FR_DEVICE_REFUSED), sizeof(uint32_t));
    update(run);
    fr_graph_device_end_piece(device);
    return fr_graph_device_wait(device);
}

static void read_sums(struct fr_graph *graph)
{
    const struct graph_device *device = graph->device;
    const struct fr_conf *conf = graph->conf;
    const double *sums = answered_sums(device, device->sums_at), *pairs = answered_sums(device, device->pairs_at);
    for (uint32_t k = 0; k < conf->n_tasks + conf->n_losses; k++) {
        bool task = k < conf->n_tasks;
        double weight = (double)(task ? conf->tasks[k].weight : conf->losses[k - conf->n_tasks].weight), sum = sums[k];
        bool in_pairs = task && fr_loss_terms(conf->tasks[k].loss) == FR_TRAINS_PAIRS;
        for (uint32_t g = 0; in_pairs && g < device->n_groups; g++)
            sum += pairs[(size_t)k * device->n_groups + g];
        if (graph->losses[k].samples > 0)
            graph->losses[k].sum = weight * sum;
    }
}

/* Adopts what the host keeps of a step that took effect. */
static enum fr_status commit_step(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    bool follows = false;
    for (size_t p = 0; p < graph->n_parameters; p++)
        graph->places[p].ahead |= graph->parameter_states[p].gradient && graph->parameter_states[p].moves;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        if (fr_graph_follows_prior(graph, t)) {
            fr_graph_device_fetch(graph, (size_t)graph->tasks[t].prior.bias);
            follows = true;
        }
    enum fr_status status = follows ? fr_graph_device_wait(graph->device) : FR_OK;
    if (status != FR_OK)
        return status;
    stage_dices(run);
    fr_graph_commit_statistics(graph);
    fr_graph_follow_priors(run);
    graph->steps++;
    graph->trained_samples += graph->n_trained;
    fr_graph_note_step(graph);
    fr_graph_device_trained_rows(run);
    return FR_OK;
}

/* Handles the outcome of a step whose answer is there. */
static enum fr_status conclude(struct graph_run *run, double *loss)
{
    struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    enum fr_status status = FR_OK;
    uint32_t refused = answered(device, FR_DEVICE_REFUSED);
    read_sums(graph);
    *loss = fr_graph_mean_loss(graph);
    if (refused == FR_REFUSED_UNSURE)
        status = make_sure(run, &refused);
    if (status != FR_OK)
        return status;
    if (refused) {
        memcpy(graph->parameter_states, device->states_before, graph->n_parameters * sizeof(*graph->parameter_states));
        return FR_E_NONFINITE;
    }
    return commit_step(run);
}

void fr_graph_device_begin(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    device->stepping = false;
    if (device->status != FR_OK)
        return;
    run->at_batch = &device->now->batch;
    run->at_rows = &device->now->rows;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        measure(device, FR_DEVICE_LOGITS, 1, graph->n_samples,
                (struct fr_view){graph->tasks[t].at_logits, graph->n_samples});
    judge(device, FR_DEVICE_LOGITS, fr_f32_bits(INFINITY) - 1, FR_REFUSED_LOGIT);
    fr_graph_mark_trained(run);
    if (!fr_graph_count_unmasked(run))
        return; /* only the logits of this pass may cause a refusal */
    fr_graph_fill_sets(run);
    device->states_before = fr_realloc(device->states_before, graph->n_parameters, sizeof(*device->states_before));
    memcpy(device->states_before, graph->parameter_states, graph->n_parameters * sizeof(*device->states_before));
    fr_graph_device_send_training(run);
    bool fit = fr_graph_stage_standards(run);
    fr_graph_device_begin_piece(device);
    start_checks(run, fit);
    fr_graph_begin_step(graph);
    update(run);
    fr_graph_device_end_piece(device);
    device->stepping = true;
}

enum fr_status fr_graph_device_finish(struct graph_run *run, double *loss)
{
    struct graph_device *device = run->graph->device;
    double value = 0.0;
    run->at_batch = &device->now->batch;
    run->at_rows = &device->now->rows;
    enum fr_status status = device->status == FR_OK ? ask(device) : device->status;
    if (status != FR_OK)
        return status;
    if (device->stepping)
        status = conclude(run, &value);
    else if (answered(device, FR_DEVICE_REFUSED))
        status = FR_E_NONFINITE;
    device->stepping = false;
    if (status == FR_OK && loss)
        *loss = value;
    return status;
}

/* ---- for suspects.c ---- */

static float *borrowed(struct graph_device *device, float *there, size_t n)
{
    if (!there)
        return NULL;
    float *host = fr_alloc_aligned(64, n ? n * sizeof(float) : 64);
    device->api->download(device->queue, host, there, n * sizeof(float));
    return host;
}

/* A pointer of the device, kept while `slot` has a pointer to the host's copy. */
struct loan {
    float **slot;
    float *device;
};

static void lend(struct graph_device *device, float **slot, size_t n)
{
    float *there = *slot;
    if (!there)
        return;
    device->loans = fr_realloc(device->loans, device->n_loans + 1, sizeof(*device->loans));
    device->loans[device->n_loans++] = (struct loan){slot, there};
    *slot = borrowed(device, there, n);
}

void fr_graph_device_borrow(const struct fr_graph *graph)
{
    struct graph_device *device = graph->device;
    const struct variant *v = graph->variant;
    for (uint32_t i = 0; i < v->n_buffers; i++) {
        struct node_buffer *buffer = &v->buffers[i];
        size_t n = v->spaces[buffer->space].rows * buffer->ld;
        lend(device, &buffer->values, n);
        lend(device, &buffer->gradients, n);
    }
    for (uint32_t i = 0; i < v->n_nodes; i++)
        lend(device, &v->nodes[i].extra, (size_t)v->spaces[v->nodes[i].space].rows * v->nodes[i].extra_width);
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        lend(device, &graph->outputs[k].gradient, graph->n_samples);
    (void)fr_graph_device_wait(device);
}

void fr_graph_device_return(const struct fr_graph *graph)
{
    struct graph_device *device = graph->device;
    for (size_t i = 0; i < device->n_loans; i++) {
        free(*device->loans[i].slot);
        *device->loans[i].slot = device->loans[i].device;
    }
    free(device->loans);
    device->loans = NULL;
    device->n_loans = 0;
}
