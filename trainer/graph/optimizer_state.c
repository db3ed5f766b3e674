/* Optimizer state of the dense parameters: its memory, and its bytes in the sections
 * "dense_state" and "dense_state/..".
 *
 * Only parameters that a loss reaches have state. The bytes hold what a run needs to continue as
 * if it had not stopped: steps, trained samples (schedules), moments, and the accumulators of
 * the published statistics; parameter values have their own section.
 *
 * Invariant: everything is checked before anything changes.
 *
 * Owner thread: the graph's. */
#include "learning.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_FLOATS = 16, ALIGNMENT = 64, STATE_VERSION = 5 };

static float *floats(size_t n)
{
    return fr_alloc_aligned(ALIGNMENT, (n ? n : 1) * sizeof(float));
}

/* Returns the number of state arrays of a parameter. */
static uint32_t states_of(const struct fr_graph *graph, size_t p)
{
    const struct parameter_state *state = &graph->parameter_states[p];
    return state->gradient ? fr_dense_states(fr_graph_optimizer_of(state->conf).kind) : 0;
}

static void make_state(struct fr_graph *graph, size_t p)
{
    struct parameter_state *state = &graph->parameter_states[p];
    size_t n = graph->parameters[p].n_values;
    state->gradient = fr_graph_memory(graph, n * sizeof(float));
    uint32_t states = states_of(graph, p);
    if (states > 0)
        state->state0 = floats(n);
    if (states > 1)
        state->state1 = floats(n);
    if (graph->conf->export_.average_half_life > 0) {
        state->average = floats(n);
        memcpy(state->average, graph->parameters[p].values, n * sizeof(float));
        graph->parameters[p].published = state->average;
    }
    for (size_t i = 0; state->conf->kind == FR_OPT_ADAGRAD && i < n; i++)
        state->state0[i] = state->conf->initial;
}

static void list_blocks(struct fr_graph *graph)
{
    size_t blocks = 0;
    for (size_t p = 0; p < graph->n_parameters; p++)
        blocks += fr_blocks_of(graph->parameters[p].n_values, FR_DENSE_BLOCK);
    graph->dense_tasks = fr_alloc(blocks, sizeof(*graph->dense_tasks));
    for (uint32_t p = 0; p < graph->n_parameters; p++) {
        size_t n = graph->parameter_states[p].gradient ? graph->parameters[p].n_values : 0;
        for (size_t i = 0; i < n; i += FR_DENSE_BLOCK)
            graph->dense_tasks[graph->n_dense_tasks++] =
                (struct dense_task){p, i, n - i < FR_DENSE_BLOCK ? n : i + FR_DENSE_BLOCK};
    }
    graph->dense_squares = fr_alloc(graph->n_dense_tasks, sizeof(*graph->dense_squares));
}

static void make_table(struct fr_graph *graph, uint32_t t)
{
    struct table_state *table = &graph->tables[t];
    const struct fr_row_layout *layout = &graph->layouts[t];
    size_t scratch = 0;
    table->n_parts = layout->n_parts;
    for (uint32_t p = 0; p < layout->n_parts; p++) {
        table->parts[p] = (struct fr_row_part){
            .value_offset = layout->parts[p].value_offset,
            .dim = layout->parts[p].dim,
            .state_offset = layout->parts[p].state_offset,
            .optimizer = fr_graph_optimizer_of(&graph->conf->tables[t].parts[p].optimizer),
        };
        scratch +=
            FR_ROW_SCRATCH_LANES * (size_t)((layout->parts[p].dim + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS);
    }
    if (scratch > graph->scratch_floats)
        graph->scratch_floats = scratch;
}

void fr_graph_make_states(struct fr_graph *graph)
{
    for (size_t p = 0; p < graph->n_parameters; p++)
        if (graph->parameter_states[p].losses != 0 && graph->parameters[p].trained)
            make_state(graph, p);
    list_blocks(graph);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        make_table(graph, t);
    graph->row_block_begin = fr_alloc(graph->conf->n_tables + 1, sizeof(*graph->row_block_begin));
    graph->worker_bits = fr_alloc(graph->workers, sizeof(*graph->worker_bits));
    graph->scratch = floats(graph->workers * graph->scratch_floats);
    fr_graph_make_statistics(graph);
}

void fr_graph_free_parameters(struct fr_graph *graph)
{
    for (size_t p = 0; p < graph->n_parameters; p++) {
        free(graph->parameters[p].values);
        fr_graph_release(graph, graph->parameter_states[p].gradient);
        free(graph->parameter_states[p].state0);
        free(graph->parameter_states[p].state1);
        free(graph->parameter_states[p].average);
    }
    fr_graph_free_statistics(graph);
    free(graph->parameters);
    free(graph->parameter_states);
    free(graph->dense_tasks);
    free(graph->dense_squares);
    free(graph->row_block_begin);
    free(graph->worker_bits);
    free(graph->scratch);
}

/* ---- what changed ---- */

void fr_graph_note_step(struct fr_graph *graph)
{
    graph->changes++;
    for (size_t p = 0; p < graph->n_parameters; p++)
        graph->parameters[p].changes += graph->parameter_states[p].gradient && graph->parameter_states[p].moves;
}

uint64_t fr_graph_shared_changes(const struct fr_graph *graph)
{
    return graph->changes;
}

/* ---- bytes, little-endian ---- */

/* Writes the state of a parameter: u64 number of values, u32 optimizer (UINT32_MAX: none), u64
 * samples that the parameter was stepped for, u32 number of state arrays, u32 whether an average
 * is published. If it is: u64 samples that the average represents, u64 samples that wait for its
 * next update, and the trained values, because the section of the values then holds the average.
 * At the end the state arrays. */
static void put_parameter(const struct fr_graph *graph, size_t p, struct fr_buffer *out)
{
    const struct parameter_state *state = &graph->parameter_states[p];
    uint32_t states = states_of(graph, p);
    size_t n = graph->parameters[p].n_values;
    fr_put_u64(out, n);
    fr_put_u32(out, state->conf ? (uint32_t)state->conf->kind : UINT32_MAX);
    fr_put_u64(out, state->samples);
    fr_put_u32(out, states);
    fr_put_u32(out, state->average != NULL);
    if (state->average) {
        fr_put_u64(out, state->averaged);
        fr_put_u64(out, state->waiting);
        fr_buffer_append(out, graph->parameters[p].values, n * sizeof(float));
    }
    if (states > 0)
        fr_buffer_append(out, state->state0, n * sizeof(float));
    if (states > 1)
        fr_buffer_append(out, state->state1, n * sizeof(float));
}

static enum fr_status parse_average(struct fr_graph *graph, size_t p, struct fr_reader *r, bool write)
{
    struct parameter_state *state = &graph->parameter_states[p];
    size_t size = graph->parameters[p].n_values * sizeof(float);
    uint64_t averaged = fr_take_u64(r), waiting = fr_take_u64(r);
    const uint8_t *values = fr_take(r, size);
    if (!values)
        return FR_E_CORRUPT;
    if (write) {
        state->averaged = averaged;
        state->waiting = waiting;
        memcpy(graph->parameters[p].values, values, size);
    }
    return FR_OK;
}

/* Whether an optimizer can continue with the state of another one: the configuration may have
 * changed to an optimizer with the same state (docs/commands.md, "Changing a model"). */
static bool is_continued(uint32_t before, uint32_t now)
{
    return before == now || (before != UINT32_MAX && now != UINT32_MAX &&
                             fr_optimizer_same_state((enum fr_optimizer_kind)before, (enum fr_optimizer_kind)now));
}

static enum fr_status parse_parameter(struct fr_graph *graph, size_t p, struct fr_reader *r, bool write)
{
    struct parameter_state *state = &graph->parameter_states[p];
    uint32_t want = states_of(graph, p), kind = state->conf ? (uint32_t)state->conf->kind : UINT32_MAX;
    uint64_t n = fr_take_u64(r);
    uint32_t have_kind = fr_take_u32(r);
    uint64_t samples = fr_take_u64(r);
    uint32_t have = fr_take_u32(r), averages = fr_take_u32(r);
    if (r->failed)
        return FR_E_CORRUPT;
    if (n != graph->parameters[p].n_values || !is_continued(have_kind, kind) || have != want ||
        averages != (state->average != NULL))
        return FR_E_MISMATCH;
    if (averages && parse_average(graph, p, r, write) != FR_OK)
        return FR_E_CORRUPT;
    if (write)
        state->samples = samples;
    for (uint32_t s = 0; s < want; s++) {
        const uint8_t *values = fr_take(r, (size_t)n * sizeof(float));
        if (!values)
            return FR_E_CORRUPT;
        if (write)
            memcpy(s == 0 ? state->state0 : state->state1, values, (size_t)n * sizeof(float));
    }
    return FR_OK;
}

/* The shared part: u32 version, u64 number of parameters, u64 steps, u64 trained samples; then
 * the statistics, then the tasks' first labels. */
void fr_graph_save_shared(const struct fr_graph *graph, struct fr_buffer *out)
{
    fr_put_u32(out, STATE_VERSION);
    fr_put_u64(out, graph->n_parameters);
    fr_put_u64(out, graph->steps);
    fr_put_u64(out, graph->trained_samples);
    fr_graph_put_statistics(graph, out);
    fr_graph_put_priors(graph, out);
}

static enum fr_status parse_shared(struct fr_graph *graph, struct fr_reader *r, bool write)
{
    uint32_t version = fr_take_u32(r);
    uint64_t n_parameters = fr_take_u64(r), steps = fr_take_u64(r), samples = fr_take_u64(r);
    if (r->failed)
        return FR_E_CORRUPT;
    if (version != STATE_VERSION || n_parameters != graph->n_parameters)
        return FR_E_MISMATCH;
    enum fr_status status = fr_graph_parse_statistics(graph, r, write);
    if (status == FR_OK)
        status = fr_graph_parse_priors(graph, r, write);
    if (status == FR_OK && write) {
        graph->steps = steps;
        graph->trained_samples = samples;
    }
    return status;
}

enum fr_status fr_graph_restore_shared(struct fr_graph *graph, const uint8_t *bytes, size_t size)
{
    struct fr_reader check = {.at = bytes, .end = bytes + size}, take = check;
    enum fr_status status = parse_shared(graph, &check, false);
    if (status == FR_OK && check.at != check.end)
        status = FR_E_CORRUPT;
    return status == FR_OK ? parse_shared(graph, &take, true) : status;
}

void fr_graph_save_parameter(const struct fr_graph *graph, size_t parameter, struct fr_buffer *out)
{
    put_parameter(graph, parameter, out);
}

enum fr_status fr_graph_restore_parameter(struct fr_graph *graph, size_t parameter, const uint8_t *bytes, size_t size)
{
    struct fr_reader check = {.at = bytes, .end = bytes + size}, take = check;
    enum fr_status status = parse_parameter(graph, parameter, &check, false);
    if (status == FR_OK && check.at != check.end)
        status = FR_E_CORRUPT;
    return status == FR_OK ? parse_parameter(graph, parameter, &take, true) : status;
}

const uint8_t *fr_graph_trained_values(const uint8_t *bytes, size_t size, uint64_t n)
{
    struct fr_reader r = {.at = bytes, .end = bytes + size};
    uint64_t values = fr_take_u64(&r);
    (void)fr_take_u32(&r);
    (void)fr_take_u64(&r);
    (void)fr_take_u32(&r);
    if (fr_take_u32(&r) != 1 || r.failed || values != n || n > size / sizeof(float))
        return NULL;
    (void)fr_take_u64(&r);
    (void)fr_take_u64(&r);
    return fr_take(&r, (size_t)n * sizeof(float));
}

enum fr_status fr_graph_adopt(struct fr_graph *graph, const bool *given, struct fr_err *err)
{
    enum fr_status status = fr_graph_adopt_statistics(graph, given, err);
    if (status != FR_OK)
        return status;
    fr_graph_adopt_priors(graph, given);
    for (size_t p = 0; p < graph->n_parameters; p++) {
        const struct fr_parameter *parameter = &graph->parameters[p];
        if (graph->parameter_states[p].average)
            memcpy(graph->parameter_states[p].average, parameter->values, parameter->n_values * sizeof(float));
    }
    return FR_OK;
}

enum fr_status fr_graph_adopt_state(struct fr_graph *graph, size_t parameter, const float *values, uint32_t n,
                                    uint64_t samples, struct fr_err *err)
{
    struct parameter_state *state = &graph->parameter_states[parameter];
    const char *name = graph->parameters[parameter].name;
    size_t count = graph->parameters[parameter].n_values;
    if (n != states_of(graph, parameter))
        return fr_err_set(err, FR_E_INVALID, "%s.state has %u arrays, and %s has %u", name, n,
                          state->gradient ? fr_optimizer_kind_text(state->conf->kind) : "what is not trained",
                          states_of(graph, parameter));
    for (size_t i = n > 0 && fr_optimizer_first_state_signed(state->conf->kind) ? count : 0; i < n * count; i++)
        if (values[i] < 0.0f)
            return fr_err_set(err, FR_E_INVALID, "%s.state[%zu][%zu] is %.9g, and is never negative with %s", name,
                              i / count, i % count, (double)values[i], fr_optimizer_kind_text(state->conf->kind));
    if (n > 0)
        memcpy(state->state0, values, count * sizeof(float));
    if (n > 1)
        memcpy(state->state1, values + count, count * sizeof(float));
    state->samples = samples;
    return FR_OK;
}
