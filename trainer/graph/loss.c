/* From outputs to logits, and from labels to the outputs' gradients and the tasks' loss.
 *
 * A task's loss is divided by the number of its unmasked trained samples (pairwise: of its pairs) and weighted. Losses
 * run over the whole batch in sample order, so neither chunks nor workers nor sample forms show in a bit. The weight of
 * a sample is its label's `w`, times 1/s where ingest.sampling says that dropped samples are made up for in training.
 * Owner thread: the graph's. Does not: know auxiliary losses (backward.c). */
#include "learning.h"

#include <math.h>
#include <string.h>

static const float *labels_of(const struct graph_run *run, const struct fr_conf_task *task)
{
    return run->batch->labels + (size_t)task->label * run->batch->capacity_samples;
}

static bool trains(const struct fr_conf_task *task)
{
    return task->loss != FR_LOSS_NONE && task->weight > 0.0f;
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
            memcpy(state->logits, graph->outputs[state->output].values, graph->n_samples * sizeof(float));
            continue;
        }
        const float *z[FR_TASKS_MAX];
        for (uint32_t i = 0; i < task->n_prob; i++)
            z[i] = factor_of(graph, task, i)->values;
        graph->ops->product_logit(graph->n_samples, task->n_prob, z, state->logits);
    }
}

/* ---- what counts ---- */

static uint32_t count_samples(const struct graph_run *run, const float *labels)
{
    uint32_t unmasked = 0;
    for (uint32_t i = 0; i < run->graph->n_samples; i++)
        unmasked += run->graph->trained[i] && !isnan(labels[i]);
    return unmasked;
}

/* Pairs y_i > y_j, both trained and unmasked, within groups. */
static uint32_t count_pairs(const struct graph_run *run, const float *labels)
{
    const struct fr_batch *batch = run->batch;
    const uint8_t *trained = run->graph->trained;
    uint64_t pairs = 0;
    for (uint32_t g = 0; g < batch->n_groups; g++) {
        uint32_t begin = batch->group_begin[g], end = batch->group_begin[g + 1];
        for (uint32_t i = begin; i < end && end - begin > 1; i++)
            for (uint32_t j = begin; j < end; j++)
                pairs += trained[i] && trained[j] && labels[i] > labels[j]; /* not so with NaN */
    }
    return pairs < UINT32_MAX ? (uint32_t)pairs : UINT32_MAX;
}

bool fr_graph_count_unmasked(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    bool any = false;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        const struct fr_conf_task *task = &graph->conf->tasks[t];
        const float *labels = labels_of(run, task);
        uint32_t counted = 0;
        if (trains(task))
            counted = task->loss == FR_LOSS_PAIRWISE ? count_pairs(run, labels) : count_samples(run, labels);
        graph->tasks[t].unmasked = counted;
        any |= counted > 0;
    }
    for (uint32_t i = 0; i < graph->conf->n_losses; i++) /* whether any of its steps counts is known after backward */
        any |= graph->conf->losses[i].weight > 0.0f && graph->n_trained > 0;
    return any;
}

/* ---- losses ---- */

static const float *weights_of(const struct graph_run *run, const struct fr_conf_task *task)
{
    struct fr_graph *graph = run->graph;
    const float *weights = run->batch->weights + (size_t)task->label * run->batch->capacity_samples;
    if (graph->conf->ingest.sampling != FR_SAMPLING_ALL || !run->batch->keep)
        return weights;
    for (uint32_t i = 0; i < graph->n_samples; i++)
        graph->effective_weights[i] = weights[i] / run->batch->keep[i];
    return graph->effective_weights;
}

static double product_loss(const struct graph_run *run, const struct fr_conf_task *task, float scale)
{
    struct fr_graph *graph = run->graph;
    const float *z[FR_TASKS_MAX];
    float *gradient[FR_TASKS_MAX];
    for (uint32_t i = 0; i < task->n_prob; i++) {
        z[i] = factor_of(graph, task, i)->values;
        gradient[i] = factor_of(graph, task, i)->gradient;
    }
    return graph->ops->product_logloss(&(struct fr_product_loss){.n = graph->n_samples,
                                                                 .count = task->n_prob,
                                                                 .z = z,
                                                                 .labels = labels_of(run, task),
                                                                 .weights = weights_of(run, task),
                                                                 .trained = graph->trained,
                                                                 .scale = scale,
                                                                 .gradient = gradient});
}

static double logit_loss(const struct graph_run *run, uint32_t t, float scale)
{
    const struct fr_graph *graph = run->graph;
    const struct fr_conf_task *task = &graph->conf->tasks[t];
    const struct output *output = &graph->outputs[graph->tasks[t].output];
    struct fr_loss loss = {.n = graph->n_samples,
                           .z = output->values,
                           .labels = labels_of(run, task),
                           .weights = weights_of(run, task),
                           .trained = graph->trained,
                           .scale = scale,
                           .gradient = output->gradient,
                           .gamma = task->focal_gamma,
                           .alpha = task->focal_alpha};
    switch (task->loss) {
    case FR_LOSS_MSE:
        return graph->ops->mse(&loss);
    case FR_LOSS_FOCAL:
        return graph->ops->focal(&loss);
    case FR_LOSS_PAIRWISE:
        return graph->ops->pairwise(&(struct fr_pair_loss){&loss, run->batch->group_begin, run->batch->n_groups});
    case FR_LOSS_LOGLOSS:
    case FR_LOSS_NONE: /* not called for it */
        break;
    }
    return graph->ops->logloss(&loss);
}

double fr_graph_losses(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        memset(graph->outputs[k].gradient, 0, graph->n_samples * sizeof(float));
    double total = 0.0;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        const struct fr_conf_task *task = &graph->conf->tasks[t];
        uint32_t unmasked = graph->tasks[t].unmasked;
        if (unmasked == 0)
            continue;
        float scale = task->weight / (float)unmasked;
        double sum = graph->tasks[t].output == FR_NO_INDEX ? product_loss(run, task, scale) : logit_loss(run, t, scale);
        total += (double)task->weight * sum / (double)unmasked;
    }
    return total;
}
