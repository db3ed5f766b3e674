/* Gradients of parameters. Those of kernels are computed over the whole batch, in blocks of
 * kernel rows; those of other parameters are partial sums that are joined here.
 *
 * Sums have a fixed order: within a kernel ascending over the rows of the batch, in blocks of
 * FR_SUM_ROWS that are joined in ascending order (a batch has few samples, but its sequences may
 * have many steps and a narrow kernel, for which one block of kernel rows would be a single
 * task); for other parameters chunk by chunk.
 *
 * Owner thread: the graph's; a block belongs to one worker. Other gradients of nodes are not
 * used here. */
#include "passes.h"

#include <string.h>

static uint32_t rows_of(const struct variant *v, const struct linear *linear)
{
    return v->spaces[v->nodes[linear->node].space].rows;
}

struct block {
    uint32_t begin, rows;
    struct fr_operand right; /* the outputs' gradients */
};

static struct block block_of(const struct fr_graph *graph, const struct linear *linear, uint32_t b)
{
    const struct variant *v = graph->variant;
    uint32_t rows = rows_of(v, linear), size = fr_linear_blocks(graph, linear, rows) > 1 ? FR_SUM_ROWS : rows;
    struct block block = {.begin = b * size};
    block.rows = rows - block.begin < size ? rows - block.begin : size;
    struct fr_view g = fr_node_gradients(v, &v->nodes[linear->node], block.begin);
    float *packed = linear->packed ? linear->packed + b * graph->ops->packed_floats(size, linear->out) : NULL;
    block.right = (struct fr_operand){g.values, g.ld, block.rows, linear->out, false, packed};
    return block;
}

void fr_graph_pack_gradients(const struct fr_graph *graph, const struct linear *linear, struct rows r)
{
    bool split = fr_linear_blocks(graph, linear, rows_of(graph->variant, linear)) > 1;
    if (graph->device)
        return; /* these factors are not packed */
    for (uint32_t row = r.begin, end = r.begin + r.real; row < end;) {
        uint32_t b = split ? row / FR_SUM_ROWS : 0;
        struct block block = block_of(graph, linear, b);
        uint32_t stop = block.begin + block.rows < end ? block.begin + block.rows : end;
        graph->ops->pack(&block.right, row - block.begin, stop - block.begin);
        row = stop;
    }
}

/* Returns the address of row 0 of the product, so that the rows of a segment lie where the
 * parameter has them. */
static float *parameter_gradient(const struct fr_graph *graph, const struct gradient_task *task)
{
    const struct linear *linear = &graph->variant->linears[task->linear];
    const struct segment *segment = &linear->segments[task->segment];
    return graph->parameter_states[linear->kernel].gradient +
           (size_t)(segment->parameter_row - segment->row) * linear->out;
}

static uint32_t task_bits(const struct fr_graph *graph, const struct gradient_task *task)
{
    size_t out = graph->variant->linears[task->linear].out;
    struct fr_view rows = {parameter_gradient(graph, task) + task->row_begin * out, out};
    return graph->ops->max_bits(task->row_end - task->row_begin, (uint32_t)out, rows);
}

/* Computes the product of one block of rows: the gradient itself, or one of the sums to be
 * joined. */
static void multiply_block(const struct fr_graph *graph, uint32_t task_index, uint32_t b)
{
    const struct variant *v = graph->variant;
    const struct gradient_task *task = &v->gradient_tasks[task_index];
    const struct linear *linear = &v->linears[task->linear];
    bool split = fr_linear_blocks(graph, linear, rows_of(v, linear)) > 1;
    struct block block = block_of(graph, linear, b);
    uint32_t bits = 0;
    float *out = split ? linear->block_sums + (size_t)b * linear->in * linear->out : parameter_gradient(graph, task);
    struct fr_view x = fr_node_values(v, fr_argument(graph, &v->nodes[linear->node], 0), block.begin);
    struct fr_operand left = {x.values, x.ld, linear->in, block.rows, true, NULL};
    if (block.rows == 0)
        memset(out + (size_t)task->row_begin * linear->out, 0,
               (size_t)(task->row_end - task->row_begin) * linear->out * sizeof(float));
    else
        graph->ops->multiply(&(struct fr_multiply){.left = &left,
                                                   .right = &block.right,
                                                   .row_begin = task->row_begin,
                                                   .row_end = task->row_end,
                                                   .out = {out, linear->out},
                                                   .bits = split ? NULL : &bits});
    if (!split)
        v->gradient_bits[task_index] = bits;
}

static void join_partials(const struct fr_graph *graph, uint32_t index)
{
    const struct variant *v = graph->variant;
    const struct node *node = &v->nodes[v->join_tasks[index] / FR_NODE_PARAMETERS];
    const struct partial *partial = &node->partials[v->join_tasks[index] % FR_NODE_PARAMETERS];
    float *out = graph->parameter_states[partial->parameter].gradient;
    uint32_t chunks = fr_level_chunks(graph, v->spaces[node->space].level);
    graph->ops->bias_gradient(chunks, partial->n, (struct fr_view){partial->values, partial->n}, out);
    v->gradient_bits[v->n_gradient_tasks + index] =
        graph->ops->max_bits(1, partial->n, (struct fr_view){out, partial->n});
}

static void sum_task(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct variant *v = run->graph->variant;
    uint32_t n_products = v->gradient_begin[v->n_gradient_tasks], low = 0, high = v->n_gradient_tasks;
    (void)worker;
    if (index >= n_products) {
        join_partials(run->graph, (uint32_t)index - n_products);
        return;
    }
    while (high - low > 1) { /* find the last task that begins at or before index */
        uint32_t middle = low + (high - low) / 2;
        if (v->gradient_begin[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    multiply_block(run->graph, low, (uint32_t)index - v->gradient_begin[low]);
}

static void join_blocks(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    const struct gradient_task *task = &v->gradient_tasks[index];
    const struct linear *linear = &v->linears[task->linear];
    uint32_t blocks = fr_linear_blocks(graph, linear, rows_of(v, linear));
    size_t at = (size_t)task->row_begin * linear->out, stride = (size_t)linear->in * linear->out;
    (void)worker;
    if (blocks == 1)
        return;
    graph->ops->bias_gradient(blocks, (task->row_end - task->row_begin) * linear->out,
                              (struct fr_view){linear->block_sums + at, stride}, parameter_gradient(graph, task) + at);
    v->gradient_bits[index] = task_bits(graph, task);
}

void fr_graph_parameter_gradients(struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    for (uint32_t i = 0; i < v->n_gradient_tasks; i++) {
        const struct linear *linear = &v->linears[v->gradient_tasks[i].linear];
        v->gradient_begin[i + 1] = v->gradient_begin[i] + fr_linear_blocks(graph, linear, rows_of(v, linear));
    }
    uint32_t n_products = v->gradient_begin[v->n_gradient_tasks];
    fr_graph_run_tasks(graph, (size_t)n_products + v->n_join_tasks, sum_task, run);
    if (n_products > v->n_gradient_tasks)
        fr_graph_run_tasks(graph, v->n_gradient_tasks, join_blocks, run);
    run->parameter_bits = 0;
    for (uint32_t i = 0; i < v->n_gradient_tasks + v->n_join_tasks; i++)
        if (v->gradient_bits[i] > run->parameter_bits)
            run->parameter_bits = v->gradient_bits[i];
}

/* On a device: computes the gradient of each segment of a kernel by one product, and joins the
 * sums of the other parameters, whose only chunk is the batch. */
void fr_graph_device_parameter_gradients(struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    const struct graph_device *device = graph->device;
    uint32_t *bits = fr_graph_device_bits(graph->device, FR_DEVICE_PARAMETERS);
    for (uint32_t i = 0; i < v->n_gradient_tasks; i++) {
        const struct gradient_task *task = &v->gradient_tasks[i];
        const struct linear *linear = &v->linears[task->linear];
        const struct segment *segment = &linear->segments[task->segment];
        if (task->row_begin != segment->row)
            continue; /* the first task of the segment stands for all its tasks */
        fr_graph_device_enter_node(graph, &v->nodes[linear->node]);
        struct fr_view x = fr_node_values(v, fr_argument(graph, &v->nodes[linear->node], 0), 0);
        struct fr_view g = fr_node_gradients(v, &v->nodes[linear->node], 0);
        uint32_t rows = rows_of(v, linear);
        struct fr_operand left = {x.values, x.ld, linear->in, rows, true, NULL};
        struct fr_operand right = {g.values, g.ld, rows, linear->out, false, NULL};
        float *out = parameter_gradient(graph, task), *first = out + (size_t)segment->row * linear->out;
        if (rows == 0)
            fr_graph_clear(graph, first, (size_t)segment->n * linear->out * sizeof(float));
        else
            fr_graph_multiply(graph, &(struct fr_multiply){.left = &left,
                                                           .right = &right,
                                                           .row_begin = segment->row,
                                                           .row_end = segment->row + segment->n,
                                                           .out = {out, linear->out}});
        device->ops->max_bits(device->queue, bits, segment->n, linear->out, (struct fr_view){first, linear->out});
    }
    fr_graph_device_enter_node(graph, NULL);
    for (uint32_t i = 0; i < v->n_join_tasks; i++) {
        const struct node *node = &v->nodes[v->join_tasks[i] / FR_NODE_PARAMETERS];
        const struct partial *partial = &node->partials[v->join_tasks[i] % FR_NODE_PARAMETERS];
        float *out = graph->parameter_states[partial->parameter].gradient;
        bool any = fr_level_entries(graph, v->spaces[node->space].level) > 0;
        if (any)
            FR_RUN(graph, copy, 1, partial->n, (struct fr_view){partial->values, partial->n},
                   (struct fr_view){out, partial->n});
        else
            fr_graph_clear(graph, out, partial->n * sizeof(float));
        device->ops->max_bits(device->queue, bits, 1, partial->n, (struct fr_view){out, partial->n});
    }
}
