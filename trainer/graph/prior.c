/* Output biases that begin at the rate of the labels, so that a model of a rare label need not
 * learn this rate step by step.
 *
 * This applies to a task whose loss has a prior (vocabulary/loss.h), while at most
 * FR_PRIOR_SAMPLES labels have been trained. The first step sets the bias of the task's logit to
 * the log-odds of the weighted mean of the labels, (positives + 1/2) / (weight + 1) (Krichevsky
 * and Trofimov 1981); each later step moves the bias by the change of the log-odds. Changes by
 * gradients in the meantime stay. The bias is that of the layer that the task names as its
 * logit, or that of the first layer if several are added.
 *
 * Owner thread: the graph's. */
#include <stdio.h>

#include "learning.h"

static bool takes_prior(const struct fr_conf_task *task)
{
    return task->bias_from_labels && task->logit != FR_NO_INDEX && fr_loss_has_prior(task->loss);
}

static int32_t find_bias(const struct fr_graph *graph, int32_t l)
{
    const struct fr_conf_layer *layer = &graph->conf->layers[l];
    char name[FR_NAME_MAX + 32];
    bool plain = fr_activation_form(layer->activation) == FR_ACTIVATED_NOWHERE;
    if (layer->op == FR_LAYER_BIAS || (layer->op == FR_LAYER_DENSE && plain))
        snprintf(name, sizeof(name), "%s/bias", layer->name);
    else if (layer->op == FR_LAYER_MLP && plain)
        snprintf(name, sizeof(name), "%s/%u/bias", layer->name, layer->n_units - 1);
    else if (layer->op != FR_LAYER_ADD)
        return FR_NO_INDEX;
    else {
        int32_t found = FR_NO_INDEX; /* the loop ends, because arguments come before the layer */
        for (uint32_t i = 0; i < layer->n_refs && found == FR_NO_INDEX; i++)
            if (layer->refs[i].kind == FR_REF_LAYER)
                found = find_bias(graph, layer->refs[i].index);
        return found;
    }
    uint32_t parameter = fr_graph_find_parameter(graph, name);
    return graph->parameters[parameter].n_values == 1 ? (int32_t)parameter : FR_NO_INDEX;
}

void fr_graph_make_priors(struct fr_graph *graph)
{
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        const struct fr_conf_task *task = &graph->conf->tasks[t];
        struct prior *prior = &graph->tasks[t].prior;
        prior->bias = takes_prior(task) ? find_bias(graph, task->logit) : FR_NO_INDEX;
        for (uint32_t i = 0; i < t; i++) /* each bias follows one task */
            if (graph->tasks[i].prior.bias == prior->bias)
                prior->bias = FR_NO_INDEX;
    }
}

static double log_odds(const struct prior *prior)
{
    double positives = prior->positives + 0.5, negatives = prior->weight - prior->positives + 0.5;
    return (double)fr_logf((float)positives) - (double)fr_logf((float)negatives);
}

/* Adds the samples of a lane that count. */
static void add_labels(const struct fr_graph *graph, uint32_t t, const float *labels, const float *weights,
                       uint32_t lane, struct prior *prior)
{
    const struct lane_begin *begin = &graph->lanes.begin[LEVEL_SAMPLE][lane];
    for (uint32_t i = begin[0].entry; i < begin[1].entry; i++) {
        if (!(graph->sample_losses[i] >> t & 1))
            continue;
        prior->weight += (double)weights[i];
        prior->positives += (double)weights[i] * (double)labels[i];
        prior->samples++;
    }
}

/* Where in the numbers of a span (struct span_sums) the weight of a task's labels is; that of the
 * positives follows. */
static size_t place_of(const struct fr_graph *graph, uint32_t t)
{
    return graph->conf->n_tasks + graph->conf->n_losses + 2 * (size_t)t;
}

/* Sums each lane from zero, and joins the lanes of a span by their tree. */
static void add_lanes(const struct graph_run *run, uint32_t t, uint32_t span)
{
    const struct fr_graph *graph = run->graph;
    const struct fr_conf_task *task = &graph->conf->tasks[t];
    const float *labels = fr_graph_labels_of(run, task), *weights = fr_graph_weights_of(run, task);
    double *numbers = fr_span_numbers(&graph->sums, span) + place_of(graph, t);
    struct fr_lane_span lanes = fr_span_of(&graph->lanes, span);
    struct fr_lane_sum weight = {0}, positives = {0};
    for (uint32_t lane = lanes.first; lane < lanes.end; lane++) {
        struct prior own = {0};
        if (fr_lane_entries(&graph->lanes, LEVEL_SAMPLE, lane) == 0)
            continue;
        add_labels(graph, t, labels, weights, lane, &own);
        fr_lane_sum_add(&weight, lane, own.weight);
        fr_lane_sum_add(&positives, lane, own.positives);
    }
    numbers[0] = fr_lane_sum_total(&weight);
    numbers[1] = fr_lane_sum_total(&positives);
}

static bool waits_for_labels(const struct prior *prior)
{
    return prior->bias != FR_NO_INDEX && prior->samples < FR_PRIOR_SAMPLES;
}

void fr_graph_sum_priors(const struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    for (uint32_t t = 0; t < graph->conf->n_tasks && graph->lanes.n > 1; t++)
        for (uint32_t s = 0; s < graph->lanes.n_spans && waits_for_labels(&graph->tasks[t].prior); s++)
            add_lanes(run, t, s);
}

static void follow(struct graph_run *run, uint32_t t)
{
    struct fr_graph *graph = run->graph;
    struct prior *prior = &graph->tasks[t].prior;
    const struct fr_conf_task *task = &graph->conf->tasks[t];
    bool first = prior->samples == 0;
    double before = log_odds(prior);
    if (graph->lanes.n == 1 && !graph->sums.of_rank) {
        add_labels(graph, t, fr_graph_labels_of(run, task), fr_graph_weights_of(run, task), 0, prior);
    } else {
        prior->weight += graph->sums.joined[place_of(graph, t)];
        prior->positives += graph->sums.joined[place_of(graph, t) + 1];
        prior->samples += graph->losses[t].samples;
    }
    struct fr_parameter *bias = &graph->parameters[prior->bias];
    /* the average takes the change at once, because the rate of labels is no noise */
    float *both[] = {bias->values, bias->published};
    bias->changes++;
    graph->places[prior->bias].stale = true;
    for (size_t i = 0; i < (both[0] == both[1] ? 1 : 2); i++)
        *both[i] = first ? (float)log_odds(prior) : (float)((double)*both[i] + log_odds(prior) - before);
}

bool fr_graph_follows_prior(const struct fr_graph *graph, uint32_t task)
{
    return graph->losses[task].samples > 0 && waits_for_labels(&graph->tasks[task].prior);
}

void fr_graph_follow_priors(struct graph_run *run)
{
    for (uint32_t t = 0; t < run->graph->conf->n_tasks; t++)
        if (fr_graph_follows_prior(run->graph, t))
            follow(run, t);
}

void fr_graph_adopt_priors(struct fr_graph *graph, const bool *given)
{
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        struct prior *prior = &graph->tasks[t].prior;
        if (prior->bias != FR_NO_INDEX && given[prior->bias])
            prior->samples = FR_PRIOR_SAMPLES;
    }
}

/* Writes for each task the number of samples, the weight and the positives. */
void fr_graph_put_priors(const struct fr_graph *graph, struct fr_buffer *out)
{
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        fr_put_u64(out, graph->tasks[t].prior.samples);
        fr_put_f64(out, graph->tasks[t].prior.weight);
        fr_put_f64(out, graph->tasks[t].prior.positives);
    }
}

enum fr_status fr_graph_parse_priors(struct fr_graph *graph, struct fr_reader *r, bool write)
{
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        struct prior prior = graph->tasks[t].prior;
        prior.samples = fr_take_u64(r);
        prior.weight = fr_take_f64(r);
        prior.positives = fr_take_f64(r);
        if (r->failed)
            return FR_E_CORRUPT;
        if (write)
            graph->tasks[t].prior = prior;
    }
    return FR_OK;
}
