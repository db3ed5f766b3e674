/* Configured optimizers: schedules, and the optimizer that every parameter and part gets for one
 * step.
 *
 * A rate depends on the number of samples trained before the step, which the graph counts and
 * saves: interrupting a run changes no rate. Factors are computed in double by multiplication,
 * division and sqrt only, so that every machine and libm agrees. Owner thread: the graph's. The
 * rules themselves are in ops/row.h. */
#include "graph/ranks.h"
#include "learning.h"

#include <math.h>
#include <stdio.h>

/* bits of the fraction of a decay's exponent; the next bit would change the factor by less than
 * 1e-13 */
enum { FRACTION_BITS = 48 };

/* Computes base^(n / d), 0 < base <= 1. The integral part of the exponent is applied by
 * squaring, the fraction bit by bit by square roots. */
double fr_power_of_ratio(double base, uint64_t n, uint64_t d)
{
    double result = 1.0, square = base, root = base;
    for (uint64_t whole = n / d; whole > 0; whole >>= 1) {
        if (whole & 1)
            result *= square;
        square *= square;
    }
    double fraction = (double)(n % d) / (double)d;
    for (int i = 0; i < FRACTION_BITS && fraction > 0.0; i++) {
        root = sqrt(root);
        fraction *= 2.0;
        if (fraction >= 1.0) {
            fraction -= 1.0;
            result *= root;
        }
    }
    return result;
}

struct fr_optimizer fr_graph_optimizer_of(const struct fr_optimizer *conf)
{
    struct fr_optimizer optimizer = *conf;
    optimizer.keep = conf->half_life > 0 ? fr_power_of_ratio(0.5, 1, conf->half_life) : 0.0;
    return optimizer;
}

/* ---- schedules ---- */

double fr_schedule_factor(const struct fr_optimizer *conf, uint64_t samples)
{
    double factor = 1.0;
    if (conf->warmup_samples > 0 && samples < conf->warmup_samples)
        factor = (double)(samples + 1) / (double)conf->warmup_samples;
    if (conf->decay_samples > 0) {
        double decay = fr_power_of_ratio((double)conf->decay_rate, samples, conf->decay_samples);
        factor *= decay > (double)conf->decay_floor ? decay : (double)conf->decay_floor;
    }
    return factor;
}

static struct fr_optimizer optimizer_at(const struct fr_optimizer *conf, uint64_t samples)
{
    struct fr_optimizer optimizer = fr_graph_optimizer_of(conf);
    optimizer.lr = (float)((double)conf->lr * fr_schedule_factor(conf, samples));
    return optimizer;
}

/* ---- one step ---- */

static void square_task(void *context, size_t index, size_t worker)
{
    const struct fr_graph *graph = context;
    const struct dense_task *task = &graph->dense_tasks[index];
    const struct parameter_state *state = &graph->parameter_states[task->parameter];
    (void)worker;
    graph->dense_squares[index] = 0.0;
    if (state->moves && (state->conf->clip_norm > 0.0f || graph->conf->clip_global_norm > 0.0f))
        graph->dense_squares[index] = graph->ops->sum_squares(task->end - task->begin, state->gradient + task->begin);
}

/* Computes norms of mean gradients: that of each parameter for clip_norm, and that of all
 * parameters that move for clip_global_norm. Blocks are joined in ascending order. Over several
 * ranks the squares of all blocks are there already (portions.c). */
static void clip_norms(struct fr_graph *graph)
{
    if (!fr_graph_clips(graph))
        return;
    if (!graph->sums.of_rank)
        fr_graph_run_tasks(graph, graph->n_dense_tasks, square_task, graph);
    double all = 0.0;
    for (uint32_t i = 0; i < graph->n_dense_tasks;) {
        uint32_t parameter = graph->dense_tasks[i].parameter;
        double squares = 0.0;
        for (; i < graph->n_dense_tasks && graph->dense_tasks[i].parameter == parameter; i++)
            squares += graph->dense_squares[i];
        struct parameter_state *state = &graph->parameter_states[parameter];
        if (!state->moves)
            continue;
        double mean = (double)state->pace.mean_scale;
        state->pace.mean_scale *= fr_clip_scale((float)(sqrt(squares) * mean), state->conf->clip_norm);
        all += squares * mean * mean;
    }
    float scale = fr_clip_scale((float)sqrt(all), graph->conf->clip_global_norm);
    for (size_t p = 0; p < graph->n_parameters && scale < 1.0f; p++) {
        /* used if the gradient is shaped before the rule */
        graph->parameter_states[p].pace.mean_scale *= scale;
        graph->parameter_states[p].pace.scale *= scale;
    }
}

/* Returns the powers for a parameter that was stepped for `before` samples and is now stepped
 * for `n` more. A unit is batch_size samples. */
static struct fr_powers powers_of(const struct fr_graph *graph, const struct fr_optimizer *conf, uint64_t before,
                                  uint32_t n)
{
    struct fr_optimizer o = fr_graph_optimizer_of(conf);
    uint64_t unit = graph->conf->ingest.batch_size;
    double base1 = fr_base1(&o), base2 = fr_base2(&o);
    struct fr_powers powers = {.units = (double)n / (double)unit};
    powers.units1 = fr_power_of_ratio(base1, n, unit);
    powers.units2 = fr_power_of_ratio(base2, n, unit);
    if (fr_adagrad_kind(o.kind))
        powers.units2 = conf->half_life > 0 ? fr_power_of_ratio(0.5, n, conf->half_life) : 1.0;
    if (fr_adam_kind(o.kind)) {
        powers.age1 = fr_power_of_ratio(base1, before + n, unit);
        powers.age2 = fr_power_of_ratio(base2, before + n, unit);
    }
    return powers;
}

/* Removes the penalties that do not apply to a parameter: biases, scales and the like do not
 * decay. */
static void spare(struct parameter_state *state, const struct fr_parameter *parameter)
{
    struct fr_optimizer *o = &state->optimizer;
    if (state->conf->decay_all || parameter->n_dims == 2 || fr_ftrl_kind(o->kind))
        return;
    o->l1 = 0.0f;
    o->l2 = 0.0f;
    state->pace.shrink = 1.0f;
}

static void begin_parameter(const struct fr_graph *graph, struct parameter_state *state,
                            const struct parameter_state *like)
{
    uint32_t n = graph->loss_sets[state->set].count;
    state->moves = n > 0;
    if (!state->moves)
        return;
    bool same = like && like->moves && like->conf == state->conf && like->set == state->set &&
                /* the samples of `like` were counted already */
                like->samples == state->samples + n;
    /* this is so for the parameters of one layer, and often for those of all layers */
    if (same) {
        state->pace = like->pace;
        state->optimizer = like->optimizer;
    } else {
        struct fr_powers powers = powers_of(graph, state->conf, state->samples, n);
        state->optimizer = optimizer_at(state->conf, graph->trained_samples);
        state->pace = fr_pace_of(&state->optimizer, &powers);
        state->pace.scale = 1.0f / (float)graph->conf->ingest.batch_size;
        state->pace.mean_scale = 1.0f / (float)n;
    }
    state->samples += n;
}

/* Computes the share of the values in the moving average after n more trained samples. Older
 * values keep 2^(-n / half_life) of their weight, and the sum is divided by the total weight, so
 * the average begins with the values after the first step (Polyak and Juditsky 1992 with
 * exponential forgetting; the division is Adam's). */
static void pace_average(const struct fr_graph *graph, struct parameter_state *state)
{
    uint64_t half_life = graph->conf->export_.average_half_life;
    state->share = 0.0f;
    if (!state->average || !state->moves)
        return;
    state->waiting += graph->loss_sets[state->set].count;
    uint64_t all = state->averaged + state->waiting;
    double share =
        (1.0 - fr_power_of_ratio(0.5, state->waiting, half_life)) / (1.0 - fr_power_of_ratio(0.5, all, half_life));
    /* also true for NaN, when the half-life is so long that 1 - 0.5^(n / half_life) is 0 in
     * double */
    if (!(share >= FR_AVERAGE_SHARE_MIN))
        return;
    state->share = (float)share;
    state->averaged = all;
    state->waiting = 0;
}

void fr_graph_begin_step(struct fr_graph *graph)
{
    const struct parameter_state *like = NULL;
    for (size_t p = 0; p < graph->n_parameters; p++) {
        struct parameter_state *state = &graph->parameter_states[p];
        if (!state->gradient)
            continue;
        begin_parameter(graph, state, like);
        if (state->moves)
            like = state;
    }
    for (size_t p = 0; p < graph->n_parameters; p++)
        if (graph->parameter_states[p].moves)
            spare(&graph->parameter_states[p], &graph->parameters[p]);
    for (size_t p = 0; p < graph->n_parameters; p++)
        pace_average(graph, &graph->parameter_states[p]);
    if (!graph->device) /* the device computes the factors itself */
        clip_norms(graph);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        for (uint32_t p = 0; p < graph->tables[t].n_parts; p++)
            graph->tables[t].parts[p].optimizer =
                optimizer_at(&graph->conf->tables[t].parts[p].optimizer, graph->trained_samples);
}
