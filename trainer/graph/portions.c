/* The parameters of a model over several ranks (graph/ranks.h). The blocks of all parameters are
 * divided among the ranks: each joins the gradients of its portion and makes the step with it, then
 * the new values go to all. So the gradients and values that a rank sends do not grow with the
 * number of ranks. This is the traffic of a reduce-scatter and an all-gather; a reduce-scatter
 * itself is not used, because it adds in another order.
 *
 * A rank has the optimizer's state of its own portion only, until the states of all portions are
 * collected for an epoch. Averages of values follow from the values on each rank.
 *
 * Owner thread: the graph's. */
#include <string.h>

#include "graph/ranks.h"
#include "learning.h"
#include "passes.h"

static size_t place_of(const struct fr_graph *graph, uint32_t task)
{
    const struct dense_task *block = &graph->dense_tasks[task];
    return task < graph->n_dense_tasks ? graph->sums.gradient_at[block->parameter] + block->begin
                                       : graph->sums.n_gradients;
}

struct portion fr_graph_portion_of(const struct fr_graph *graph, uint32_t rank)
{
    uint32_t n = graph->sums.n_ranks;
    struct portion portion = {.first = (uint32_t)((uint64_t)graph->n_dense_tasks * rank / n),
                              .last = (uint32_t)((uint64_t)graph->n_dense_tasks * (rank + 1) / n)};
    portion.begin = place_of(graph, portion.first);
    portion.end = place_of(graph, portion.last);
    return portion;
}

static enum fr_status bad_portion(struct fr_err *err, uint32_t rank, const char *what, size_t size, size_t want)
{
    return fr_err_set(err, FR_E_CORRUPT, "rank %u sent %zu bytes of %s, and its portion of the parameters has %zu",
                      rank, size, what, want);
}

/* ---- norms ---- */

bool fr_graph_clips(const struct fr_graph *graph)
{
    bool clips = graph->conf->clip_global_norm > 0.0f;
    for (uint32_t i = 0; i < graph->n_dense_tasks; i++)
        clips |= graph->parameter_states[graph->dense_tasks[i].parameter].conf->clip_norm > 0.0f;
    return clips;
}

static void square_block(void *context, size_t index, size_t worker)
{
    const struct fr_graph *graph = context;
    size_t i = fr_graph_portion_of(graph, graph->sums.rank).first + index;
    const struct dense_task *task = &graph->dense_tasks[i];
    (void)worker;
    graph->dense_squares[i] = graph->ops->sum_squares(task->end - task->begin,
                                                      graph->parameter_states[task->parameter].gradient + task->begin);
}

void fr_graph_put_squares(struct fr_graph *graph, struct fr_buffer *out)
{
    struct portion portion = fr_graph_portion_of(graph, graph->sums.rank);
    fr_graph_run_tasks(graph, portion.last - portion.first, square_block, graph);
    fr_buffer_append(out, graph->dense_squares + portion.first, (portion.last - portion.first) * sizeof(double));
}

enum fr_status fr_graph_take_squares(struct fr_graph *graph, const struct fr_bytes *in, struct fr_err *err)
{
    for (uint32_t r = 0; r < graph->sums.n_ranks; r++) {
        struct portion portion = fr_graph_portion_of(graph, r);
        size_t size = (portion.last - portion.first) * sizeof(double);
        if (in[r].size != size)
            return bad_portion(err, r, "squares", in[r].size, size);
    }
    for (uint32_t r = 0; r < graph->sums.n_ranks; r++)
        if (in[r].size > 0)
            memcpy(graph->dense_squares + fr_graph_portion_of(graph, r).first, in[r].data, in[r].size);
    return FR_OK;
}

/* ---- values ---- */

/* Updates a moving average: `share` of the values plus the rest of the old average; the values
 * themselves if there was no average. */
static void average_block(float *restrict average, const float *restrict values, size_t n, float share)
{
    if (share == 1.0f) {
        memcpy(average, values, n * sizeof(*average));
        return;
    }
    for (size_t i = 0; i < n; i++)
        average[i] += share * (values[i] - average[i]);
}

static void follow_average(const struct fr_graph *graph, const struct dense_task *task)
{
    const struct parameter_state *state = &graph->parameter_states[task->parameter];
    if (state->moves && state->share > 0.0f)
        average_block(state->average + task->begin, graph->parameters[task->parameter].values + task->begin,
                      task->end - task->begin, state->share);
}

void fr_graph_step_dense(const struct fr_graph *graph, const struct dense_task *task)
{
    const struct parameter_state *state = &graph->parameter_states[task->parameter];
    struct fr_dense_update update = {
        .n = task->end - task->begin,
        .values = graph->parameters[task->parameter].values + task->begin,
        .gradient = state->gradient + task->begin,
        .state0 = state->state0 ? state->state0 + task->begin : NULL,
        .state1 = state->state1 ? state->state1 + task->begin : NULL,
        .optimizer = state->optimizer,
        .pace = state->pace,
    };
    if (state->moves)
        graph->ops->update_dense(&update);
    follow_average(graph, task);
}

void fr_graph_put_values(const struct fr_graph *graph, struct fr_buffer *out)
{
    struct portion portion = fr_graph_portion_of(graph, graph->sums.rank);
    for (uint32_t i = portion.first; i < portion.last; i++) {
        const struct dense_task *task = &graph->dense_tasks[i];
        fr_buffer_append(out, graph->parameters[task->parameter].values + task->begin,
                         (task->end - task->begin) * sizeof(float));
    }
}

size_t fr_graph_value_bytes(const struct fr_graph *graph, uint32_t rank)
{
    struct portion portion = fr_graph_portion_of(graph, rank);
    return (portion.end - portion.begin) * sizeof(float);
}

enum fr_status fr_graph_take_values(struct fr_graph *graph, const struct fr_bytes *in, struct fr_err *err)
{
    for (uint32_t r = 0; r < graph->sums.n_ranks; r++)
        if (in[r].size != fr_graph_value_bytes(graph, r))
            return bad_portion(err, r, "values", in[r].size, fr_graph_value_bytes(graph, r));
    for (uint32_t r = 0; r < graph->sums.n_ranks; r++) {
        struct portion portion = fr_graph_portion_of(graph, r);
        const uint8_t *at = in[r].data;
        for (uint32_t i = portion.first; r != graph->sums.rank && i < portion.last; i++) {
            const struct dense_task *task = &graph->dense_tasks[i];
            size_t bytes = (task->end - task->begin) * sizeof(float);
            memcpy(graph->parameters[task->parameter].values + task->begin, at, bytes);
            at += bytes;
            follow_average(graph, task);
        }
    }
    fr_graph_finish_step(&(struct graph_run){.graph = graph});
    return FR_OK;
}

/* ---- the state of optimizers ---- */

/* Appends the state of a block, or takes it from `at` if out is NULL. Returns its bytes. */
static size_t pass_state(const struct fr_graph *graph, const struct dense_task *task, struct fr_buffer *out,
                         const uint8_t *at)
{
    const struct parameter_state *state = &graph->parameter_states[task->parameter];
    float *const arrays[] = {state->state0, state->state1};
    size_t bytes = (task->end - task->begin) * sizeof(float), passed = 0;
    for (size_t i = 0; i < FR_ARRAY_LEN(arrays); i++) {
        if (!arrays[i])
            continue;
        if (out)
            fr_buffer_append(out, arrays[i] + task->begin, bytes);
        else if (at)
            memcpy(arrays[i] + task->begin, at + passed, bytes);
        passed += bytes;
    }
    return passed;
}

void fr_graph_put_states(const struct fr_graph *graph, struct fr_buffer *out)
{
    struct portion portion = fr_graph_portion_of(graph, graph->sums.rank);
    for (uint32_t i = portion.first; i < portion.last; i++)
        (void)pass_state(graph, &graph->dense_tasks[i], out, NULL);
}

enum fr_status fr_graph_take_states(struct fr_graph *graph, const struct fr_bytes *in, struct fr_err *err)
{
    for (uint32_t r = 0; r < graph->sums.n_ranks; r++) {
        struct portion portion = fr_graph_portion_of(graph, r);
        size_t size = 0;
        for (uint32_t i = portion.first; i < portion.last; i++)
            size += pass_state(graph, &graph->dense_tasks[i], NULL, NULL);
        if (in[r].size != size)
            return bad_portion(err, r, "optimizer state", in[r].size, size);
    }
    for (uint32_t r = 0; r < graph->sums.n_ranks; r++) {
        struct portion portion = fr_graph_portion_of(graph, r);
        size_t size = 0;
        for (uint32_t i = portion.first; r != graph->sums.rank && i < portion.last; i++)
            size += pass_state(graph, &graph->dense_tasks[i], NULL, in[r].data + size);
    }
    return FR_OK;
}
