/* Computes logits from outputs, and determines from labels what counts. From logits and labels
 * follow the gradients of the outputs and the tasks' loss.
 *
 * A task's loss is the weighted sum over its trained samples with a label: gradients are not
 * divided by the number of samples in the batch. pairwise: per group the sum over pairs, times
 * (samples that are part of a pair / pairs), so that a sample has the same weight as with
 * another loss. Losses run over each lane in sample order, and the sums of lanes are joined by
 * their tree (lanes.h), so the bits do not depend on chunks, workers or sample forms. The weight of
 * a sample is its label's `w`, times 1/s if ingest.sampling requires that training compensates for
 * dropped samples; the weight of a pair is the product of both samples' weights.
 *
 * What counts is determined before any gradient is computed: sample_losses, for tasks and for
 * auxiliary losses, whose values backward.c computes.
 *
 * Owner thread: the graph's. */
#include "learning.h"

#include <math.h>
#include <string.h>

#include "passes.h"

const float *fr_graph_labels_of(const struct graph_run *run, const struct fr_conf_task *task)
{
    return run->batch->labels + (size_t)task->label * run->batch->capacity_samples;
}

/* Returns the labels at the address where the loss reads them. */
static const float *at_labels(const struct graph_run *run, const struct fr_conf_task *task)
{
    return run->at_batch->labels + (size_t)task->label * run->at_batch->capacity_samples;
}

/* On a device the effective weights are there already. */
const float *fr_graph_at_weights(const struct graph_run *run, const struct fr_conf_task *task)
{
    if (!run->graph->device)
        return fr_graph_weights_of(run, task);
    return run->at_batch->weights + (size_t)task->label * run->at_batch->capacity_samples;
}

static bool trains(const struct fr_conf_task *task)
{
    return fr_loss_terms(task->loss) != FR_TRAINS_NOTHING && task->weight > 0.0f;
}

static const struct output *factor_of(const struct fr_graph *graph, const struct fr_conf_task *task, uint32_t i)
{
    return &graph->outputs[graph->tasks[task->prob[i]].output];
}

/* ---- logits ---- */

void fr_graph_task_logits(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        const struct fr_conf_task *task = &graph->conf->tasks[t];
        struct task_state *state = &graph->tasks[t];
        if (state->output != FR_NO_INDEX) {
            FR_RUN(graph, copy, graph->n_samples, 1, (struct fr_view){graph->outputs[state->output].values, 1},
                   (struct fr_view){state->at_logits, 1});
            continue;
        }
        const float *z[FR_TASKS_MAX];
        for (uint32_t i = 0; i < task->n_prob; i++)
            z[i] = factor_of(graph, task, i)->values;
        FR_RUN(graph, product_logit, graph->n_samples, task->n_prob,
               fr_graph_array(graph, z, task->n_prob * sizeof(*z)), state->at_logits);
    }
}

/* ---- what counts ---- */

const float *fr_graph_weights_of(const struct graph_run *run, const struct fr_conf_task *task)
{
    struct fr_graph *graph = run->graph;
    const float *weights = run->batch->weights + (size_t)task->label * run->batch->capacity_samples;
    if (graph->conf->ingest.sampling != FR_SAMPLING_ALL || !run->batch->keep)
        return weights;
    for (uint32_t i = 0; i < graph->n_samples; i++)
        graph->effective_weights[i] = weights[i] / run->batch->keep[i];
    return graph->effective_weights;
}

static uint32_t mark_samples(const struct graph_run *run, const float *labels, uint32_t bit)
{
    struct fr_graph *graph = run->graph;
    uint32_t counted = 0;
    for (uint32_t i = 0; i < graph->n_samples; i++) {
        bool counts = graph->trained[i] && !isnan(labels[i]);
        graph->sample_losses[i] |= counts ? bit : 0;
        counted += counts;
    }
    return counted;
}

static struct fr_steps host_steps(const struct fr_graph *graph, uint32_t space)
{
    const struct space *s = &graph->variant->spaces[space];
    return (struct fr_steps){s->begin, s->masked, 0, graph->n_samples};
}

/* Marks all trained samples for mse, and for next_step those with a step that counts. */
static uint32_t mark_auxiliary(const struct graph_run *run, const struct node *node, uint32_t bit)
{
    struct fr_graph *graph = run->graph;
    uint32_t counted = 0;
    if (node->kind == NODE_NEXT_STEP) {
        (void)graph->ops->next_step(&(struct fr_next_step){
            .states_steps = host_steps(graph, fr_argument(graph, node, 0)->space),
            .positive_steps = host_steps(graph, fr_argument(graph, node, 1)->space),
            .negative_steps = host_steps(graph, fr_argument(graph, node, 2)->space),
            .trained = graph->trained,
            .counts = graph->step_counts,
        });
    }
    for (uint32_t i = 0; i < graph->n_samples; i++) {
        bool counts = graph->trained[i] && (node->kind != NODE_NEXT_STEP || graph->step_counts[i] > 0);
        graph->sample_losses[i] |= counts ? bit : 0;
        counted += counts;
    }
    return counted;
}

static void count_auxiliary(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    for (uint32_t n = 0; n < graph->variant->n_nodes; n++) {
        const struct node *node = &graph->variant->nodes[n];
        if (node->loss == FR_NO_INDEX)
            continue;
        uint32_t bit = 1u << (graph->conf->n_tasks + (uint32_t)node->loss);
        if (graph->conf->losses[node->loss].weight > 0.0f)
            graph->losses[graph->conf->n_tasks + (uint32_t)node->loss].samples = mark_auxiliary(run, node, bit);
    }
}

bool fr_graph_count_unmasked(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    _Static_assert(2 * FR_TASKS_MAX <= 32, "a bit of a u32 for every task and auxiliary loss");
    memset(graph->losses, 0, (graph->conf->n_tasks + graph->conf->n_losses) * sizeof(*graph->losses));
    memset(graph->sample_losses, 0, graph->n_samples * sizeof(*graph->sample_losses));
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        const struct fr_conf_task *task = &graph->conf->tasks[t];
        if (trains(task) && fr_loss_terms(task->loss) == FR_TRAINS_PAIRS)
            graph->losses[t] = fr_graph_order_pairs(run, t);
        else if (trains(task))
            graph->losses[t].samples = mark_samples(run, fr_graph_labels_of(run, task), 1u << t);
    }
    count_auxiliary(run);
    return fr_graph_count_losses(graph, UINT32_MAX) > 0;
}

uint32_t fr_graph_count_losses(const struct fr_graph *graph, uint32_t losses)
{
    uint32_t counted = 0;
    for (uint32_t i = 0; i < graph->n_samples; i++)
        counted += (graph->sample_losses[i] & losses) != 0;
    return counted;
}

/* ---- losses ---- */

/* Samples of one lane. */
struct samples {
    uint32_t first, n;
    const float *weights; /* effective, of the whole batch */
};

static double product_loss(const struct graph_run *run, uint32_t t, const struct samples *part)
{
    uint32_t first = part->first;
    struct fr_graph *graph = run->graph;
    const struct fr_conf_task *task = &graph->conf->tasks[t];
    const float *z[FR_TASKS_MAX];
    float *gradient[FR_TASKS_MAX];
    for (uint32_t i = 0; i < task->n_prob; i++) {
        z[i] = factor_of(graph, task, i)->values + first;
        gradient[i] = factor_of(graph, task, i)->gradient + first;
    }
    struct fr_product_loss loss = {.n = part->n,
                                   .count = task->n_prob,
                                   .z = fr_graph_array(graph, z, task->n_prob * sizeof(*z)),
                                   .labels = at_labels(run, task) + first,
                                   .weights = part->weights + first,
                                   .trained = fr_graph_at_trained(graph) + first,
                                   .scale = task->weight,
                                   .gradient = fr_graph_array(graph, gradient, task->n_prob * sizeof(*gradient))};
    return FR_SUM(graph, t, product_logloss, &loss);
}

static double logit_loss(const struct graph_run *run, uint32_t t, const struct samples *part)
{
    uint32_t first = part->first;
    const struct fr_graph *graph = run->graph;
    const struct fr_conf_task *task = &graph->conf->tasks[t];
    const struct output *output = &graph->outputs[graph->tasks[t].output];
    struct fr_loss loss = {.n = part->n,
                           .z = output->values + first,
                           .labels = at_labels(run, task) + first,
                           .weights = part->weights + first,
                           .trained = fr_graph_at_trained(graph) + first,
                           .scale = task->weight,
                           .gradient = output->gradient + first,
                           .gamma = task->focal_gamma,
                           .alpha = task->focal_alpha};
    switch (task->loss) {
    case FR_LOSS_MSE:
        return FR_SUM(graph, t, mse, &loss);
    case FR_LOSS_FOCAL:
        return FR_SUM(graph, t, focal, &loss);
    case FR_LOSS_LOGLOSS:
    case FR_LOSS_PAIRWISE: /* this function is not called for these two */
    case FR_LOSS_NONE:
        break;
    }
    return FR_SUM(graph, t, logloss, &loss);
}

static double task_loss(const struct graph_run *run, uint32_t t, uint32_t span)
{
    const struct fr_graph *graph = run->graph;
    struct fr_lane_span lanes = fr_span_of(&graph->lanes, span);
    const struct lane_begin *begin = graph->lanes.begin[LEVEL_SAMPLE];
    struct fr_lane_sum sum = {0};
    struct samples part = {.weights = fr_graph_at_weights(run, &graph->conf->tasks[t])};
    for (uint32_t lane = lanes.first; lane < lanes.end; lane++) {
        part.first = begin[lane].entry;
        part.n = begin[lane + 1].entry - part.first;
        if (part.n > 0)
            fr_lane_sum_add(&sum, lane,
                            graph->tasks[t].output == FR_NO_INDEX ? product_loss(run, t, &part)
                                                                  : logit_loss(run, t, &part));
    }
    return fr_lane_sum_total(&sum);
}

void fr_graph_losses(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        fr_graph_clear(graph, graph->outputs[k].gradient, graph->n_samples * sizeof(float));
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        bool counts = graph->losses[t].samples > 0,
             pairs = fr_loss_terms(graph->conf->tasks[t].loss) == FR_TRAINS_PAIRS;
        for (uint32_t s = 0; s < graph->lanes.n_spans; s++)
            fr_span_numbers(&graph->sums, s)[t] = counts && !pairs ? task_loss(run, t, s) : 0.0;
        if (counts && pairs)
            fr_graph_pair_losses(run, t);
    }
}

void fr_graph_weigh_losses(struct fr_graph *graph)
{
    const struct fr_conf *conf = graph->conf;
    for (uint32_t k = 0; k < conf->n_tasks + conf->n_losses; k++) {
        float weight = k < conf->n_tasks ? conf->tasks[k].weight : conf->losses[k - conf->n_tasks].weight;
        graph->losses[k].sum = (double)weight * graph->sums.joined[k];
    }
}

double fr_graph_mean_loss(const struct fr_graph *graph)
{
    double mean = 0.0;
    for (uint32_t k = 0; k < graph->conf->n_tasks + graph->conf->n_losses; k++)
        if (graph->losses[k].samples > 0)
            mean += graph->losses[k].sum / (double)graph->losses[k].samples;
    return mean;
}
