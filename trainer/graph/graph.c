/* The graph's life: making and freeing it, memory for batches, optimizer state as bytes, what it says about itself.
 *
 * Invariants: parameters keep their addresses for life; memory for batches only grows; nothing is allocated for a batch
 * not larger than an earlier one. Owner thread: the owner loop. Does not: compute (forward.c, backward.c, update.c). */
#include "network.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_FLOATS = 16, ALIGNMENT = 64, STATE_VERSION = 1 };

struct fr_optimizer fr_graph_optimizer_of(const struct fr_conf_optimizer *conf)
{
    static const enum fr_update_kind kinds[] = {
        [FR_OPT_SGD] = FR_UPDATE_SGD,
        [FR_OPT_ADAGRAD] = FR_UPDATE_ADAGRAD,
        [FR_OPT_ADAGRAD_ROWWISE] = FR_UPDATE_ADAGRAD_ROWWISE,
        [FR_OPT_ADAM] = FR_UPDATE_ADAM,
        [FR_OPT_FTRL] = FR_UPDATE_FTRL,
    };
    return (struct fr_optimizer){.kind = kinds[conf->kind],
                                 .lr = conf->lr,
                                 .eps = conf->eps,
                                 .beta1 = conf->beta1,
                                 .beta2 = conf->beta2,
                                 .beta = conf->beta,
                                 .l1 = conf->l1,
                                 .l2 = conf->l2};
}

void fr_row_layout_of(const struct fr_conf_table *table, struct fr_row_layout *out)
{
    struct fr_row_layout layout = {.n_parts = table->n_parts};
    for (uint32_t p = 0; p < table->n_parts; p++) {
        layout.parts[p].value_offset = layout.value_floats;
        layout.parts[p].dim = table->parts[p].dim;
        layout.value_floats += table->parts[p].dim;
    }
    layout.row_floats = layout.value_floats;
    for (uint32_t p = 0; p < table->n_parts; p++) {
        struct fr_optimizer optimizer = fr_graph_optimizer_of(&table->parts[p].optimizer);
        bool adagrad = optimizer.kind == FR_UPDATE_ADAGRAD || optimizer.kind == FR_UPDATE_ADAGRAD_ROWWISE;
        layout.parts[p].state_offset = layout.row_floats;
        layout.parts[p].state_floats = fr_row_state_floats(optimizer.kind, table->parts[p].dim);
        layout.parts[p].state_initial = adagrad ? table->parts[p].optimizer.initial : 0.0f;
        layout.row_floats += layout.parts[p].state_floats;
    }
    *out = layout;
}

static enum fr_status check_optimizers(const struct fr_conf *conf, struct fr_err *err)
{
    enum fr_optimizer_kind dense = conf->dense_optimizer.kind;
    if (dense != FR_OPT_SGD && dense != FR_OPT_ADAGRAD && dense != FR_OPT_ADAM)
        return fr_err_set(err, FR_E_INVALID, "network.optimizer: adam, adagrad or sgd; the others are for table rows");
    for (uint32_t t = 0; t < conf->n_tables; t++)
        for (uint32_t p = 0; p < conf->tables[t].n_parts; p++)
            if (conf->tables[t].parts[p].optimizer.kind == FR_OPT_ADAM)
                return fr_err_set(err, FR_E_INVALID, "table `%s`, part `%s`: adam is for dense parameters",
                                  conf->tables[t].name, conf->tables[t].parts[p].name);
    return FR_OK;
}

enum fr_status fr_graph_new(const struct fr_graph_options *options, struct fr_graph **out, struct fr_err *err)
{
    const struct fr_conf *conf = options->conf;
    struct fr_graph *graph = fr_alloc(1, sizeof(*graph));
    graph->conf = conf;
    graph->ops = options->ops ? options->ops : fr_ops_cpu();
    graph->pool = options->pool;
    graph->workers = options->pool ? (uint32_t)fr_pool_workers(options->pool) : 1;
    graph->scoring_only = options->scoring_only;
    enum fr_status status = graph->scoring_only ? FR_OK : check_optimizers(conf, err);
    if (status == FR_OK)
        status = fr_graph_infer_shapes(graph, err);
    if (status != FR_OK) {
        free(graph);
        return status;
    }
    graph->dense_optimizer = fr_graph_optimizer_of(&conf->dense_optimizer);
    graph->layouts = fr_alloc(conf->n_tables, sizeof(*graph->layouts));
    for (uint32_t t = 0; t < conf->n_tables; t++)
        fr_row_layout_of(&conf->tables[t], &graph->layouts[t]);
    fr_graph_compile(graph);
    *out = graph;
    return FR_OK;
}

static void free_batch_memory(struct fr_graph *graph)
{
    for (uint32_t b = 0; b < graph->n_buffers; b++) {
        free(graph->buffers[b].values);
        free(graph->buffers[b].gradients);
    }
    for (uint32_t n = 0; n < graph->n_nodes; n++)
        free(graph->nodes[n].scale);
    for (uint32_t l = 0; l < graph->n_linears; l++) {
        free(graph->linears[l].gradients.packed);
        free(graph->linears[l].bias_partial);
    }
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        free(graph->tasks[t].logits);
    free(graph->trained);
    free(graph->loss_partial);
    free(graph->chunk_bits);
}

void fr_graph_free(struct fr_graph *graph)
{
    if (!graph)
        return;
    free_batch_memory(graph);
    for (uint32_t n = 0; n < graph->n_nodes; n++)
        free(graph->nodes[n].arguments);
    for (uint32_t l = 0; l < graph->n_linears; l++) {
        free(graph->linears[l].weights.packed);
        free(graph->linears[l].weights_t.packed);
    }
    for (size_t p = 0; p < graph->n_parameters; p++) {
        free(graph->parameters[p].values);
        free(graph->parameter_states[p].gradient);
        free(graph->parameter_states[p].state0);
        free(graph->parameter_states[p].state1);
    }
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        free(graph->tables[t].source_begin);
        free(graph->tables[t].source_node);
        free(graph->tables[t].sources);
        free(graph->tables[t].occurrences);
    }
    void *const arrays[] = {
        graph->nodes,        graph->buffers,        graph->linears,     graph->parameters,    graph->parameter_states,
        graph->tasks,        graph->tables,         graph->layouts,     graph->slot_group,    graph->pack_tasks,
        graph->pack_t_tasks, graph->gradient_tasks, graph->dense_tasks, graph->gradient_bits, graph->row_block_begin,
        graph->worker_bits,  graph->scratch,        graph->views};
    for (size_t i = 0; i < FR_ARRAY_LEN(arrays); i++)
        free(arrays[i]);
    free(graph);
}

/* ---- memory for batches ---- */

static float *floats(size_t rows, size_t columns)
{
    size_t n, bytes;
    FR_CHECK(fr_mul_size(rows, columns, &n) && fr_mul_size(n, sizeof(float), &bytes));
    return fr_alloc_aligned(ALIGNMENT, bytes);
}

static void reserve_training(struct fr_graph *graph, uint32_t capacity, uint32_t chunks)
{
    for (uint32_t n = 0; n < graph->n_nodes; n++) {
        struct node_buffer *buffer = &graph->buffers[graph->nodes[n].buffer];
        if (graph->nodes[n].trainable && !buffer->gradients)
            buffer->gradients = floats(capacity, buffer->ld);
    }
    for (uint32_t l = 0; l < graph->n_linears; l++) {
        struct linear *linear = &graph->linears[l];
        size_t right = graph->ops->packed_floats(capacity, linear->out);
        linear->gradients.packed = right ? floats(right, 1) : NULL;
        linear->bias_partial = floats(chunks, linear->out);
    }
    graph->trained = fr_alloc(capacity, 1);
    graph->loss_partial = fr_alloc((size_t)chunks * graph->conf->n_tasks, sizeof(*graph->loss_partial));
    graph->chunk_bits = fr_alloc(chunks, sizeof(*graph->chunk_bits));
}

void fr_graph_reserve(struct fr_graph *graph, uint32_t n_samples)
{
    if (n_samples <= graph->capacity)
        return;
    uint32_t chunks = fr_blocks_of(n_samples, graph->conf->chunk_rows);
    uint32_t capacity = chunks * graph->conf->chunk_rows;
    FR_CHECK(capacity >= n_samples);
    free_batch_memory(graph);
    for (uint32_t b = 0; b < graph->n_buffers; b++) {
        graph->buffers[b].values = floats(capacity, graph->buffers[b].ld);
        graph->buffers[b].gradients = NULL;
    }
    for (uint32_t n = 0; n < graph->n_nodes; n++)
        graph->nodes[n].scale = graph->nodes[n].mean ? floats(capacity, 1) : NULL;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        graph->tasks[t].logits = floats(capacity, 1);
    if (!graph->scoring_only)
        reserve_training(graph, capacity, chunks);
    graph->capacity = capacity;
}

void fr_graph_reserve_occurrences(struct fr_graph *graph, const struct fr_rows *rows)
{
    FR_CHECK(rows->n_tables == graph->conf->n_tables && rows->n_slots == graph->conf->n_slots);
    for (uint32_t t = 0; t < rows->n_tables; t++) {
        struct table_sources *table = &graph->tables[t];
        size_t n = rows->tables[t].n_occurrences;
        if (n <= table->capacity_occurrences)
            continue;
        size_t capacity = n + n / 2; /* occurrences vary from batch to batch */
        table->occurrences = fr_realloc(table->occurrences, capacity, sizeof(*table->occurrences));
        table->capacity_occurrences = capacity;
    }
}

/* ---- parameters, state, description ---- */

size_t fr_graph_parameter_count(const struct fr_graph *graph)
{
    return graph->n_parameters;
}

struct fr_parameter *fr_graph_parameters(struct fr_graph *graph)
{
    return graph->parameters;
}

const float *fr_graph_logits(const struct fr_graph *graph, uint32_t task)
{
    FR_CHECK(task < graph->conf->n_tasks);
    return graph->tasks[task].logits;
}

static uint32_t moments_of(const struct fr_graph *graph)
{
    enum fr_update_kind kind = graph->dense_optimizer.kind;
    return graph->scoring_only || kind == FR_UPDATE_SGD ? 0 : kind == FR_UPDATE_ADAM ? 2 : 1;
}

/* version, optimizer kind, steps, parameters; per parameter: number of values, moments. Little-endian. */
void fr_graph_save_state(const struct fr_graph *graph, struct fr_buffer *out)
{
    uint32_t moments = moments_of(graph);
    fr_put_u32(out, STATE_VERSION);
    fr_put_u32(out, (uint32_t)graph->dense_optimizer.kind);
    fr_put_u64(out, graph->steps);
    fr_put_u64(out, graph->n_parameters);
    for (size_t p = 0; p < graph->n_parameters; p++) {
        size_t n = graph->parameters[p].n_values;
        fr_put_u64(out, n);
        if (moments > 0)
            fr_buffer_append(out, graph->parameter_states[p].state0, n * sizeof(float));
        if (moments > 1)
            fr_buffer_append(out, graph->parameter_states[p].state1, n * sizeof(float));
    }
}

enum fr_status fr_graph_restore_state(struct fr_graph *graph, const uint8_t *bytes, size_t size)
{
    uint32_t moments = moments_of(graph);
    uint64_t steps = 0;
    for (int write = 0; write < 2; write++) { /* everything is checked before anything changes */
        struct fr_reader r = {.at = bytes, .end = bytes + size};
        uint32_t version = fr_take_u32(&r), kind = fr_take_u32(&r);
        steps = fr_take_u64(&r);
        uint64_t n_parameters = fr_take_u64(&r);
        if (r.failed)
            return FR_E_CORRUPT;
        if (version != STATE_VERSION || kind != (uint32_t)graph->dense_optimizer.kind ||
            n_parameters != graph->n_parameters)
            return FR_E_MISMATCH;
        for (size_t p = 0; p < graph->n_parameters; p++) {
            uint64_t n = fr_take_u64(&r);
            if (!r.failed && n != graph->parameters[p].n_values)
                return FR_E_MISMATCH;
            for (uint32_t m = 0; m < moments; m++) {
                const uint8_t *values = fr_take(&r, (size_t)n * sizeof(float));
                float *to = m == 0 ? graph->parameter_states[p].state0 : graph->parameter_states[p].state1;
                if (write && values)
                    memcpy(to, values, (size_t)n * sizeof(float));
            }
        }
        if (r.failed || r.at != r.end)
            return FR_E_CORRUPT;
    }
    graph->steps = steps;
    return FR_OK;
}

const char *fr_graph_kernel(const struct fr_graph *graph)
{
    return fr_ops_kernel(graph->ops);
}

double fr_graph_flops_per_sample(const struct fr_graph *graph)
{
    double flops = 0.0;
    for (uint32_t l = 0; l < graph->n_linears; l++) {
        const struct linear *linear = &graph->linears[l];
        double product = 2.0 * (double)linear->in * (double)linear->out;
        bool input = !graph->nodes[linear->node].arguments[0].skip_gradient;
        flops += product * (graph->scoring_only ? 1.0 : input ? 3.0 : 2.0);
    }
    return flops;
}
