/* Gradients of parameters. Those of kernels are computed over the whole batch, in blocks of
 * kernel rows; those of other parameters are partial sums that are joined here.
 *
 * Sums have a fixed order: within a kernel ascending over the rows of a lane, in blocks of
 * FR_SUM_ROWS that are joined in ascending order (a batch has few samples, but its sequences may
 * have many steps and a narrow kernel, for which one block of kernel rows would be a single
 * task); for other parameters chunk by chunk of a lane. The sums of lanes are joined by their tree
 * (lanes.h). Of a kernel this is done in the task of a block of its rows, while the block's sums
 * are in the cache, so lanes cost no passes over all parameters; a task then has all blocks of a
 * batch's rows.
 *
 * Owner thread: the graph's; a block belongs to one worker. Other gradients of nodes are not
 * used here. */
#include "passes.h"

#include <string.h>

enum { JOIN_FLOATS = 512 }; /* floats of a parameter whose lanes are joined together */

/* Rows of one lane that one product sums over. */
struct block {
    uint32_t begin, rows;
    struct fr_operand right; /* the outputs' gradients */
};

static struct rows lane_rows(const struct fr_graph *graph, const struct linear *linear, uint32_t lane)
{
    uint32_t space = graph->variant->nodes[linear->node].space, begin = fr_lane_row(graph, space, lane);
    uint32_t rows = fr_lane_row(graph, space, lane + 1) - begin;
    return (struct rows){begin, rows, rows};
}

static uint32_t lane_blocks(const struct fr_graph *graph, const struct linear *linear, uint32_t lane)
{
    return fr_linear_blocks(graph, linear, lane_rows(graph, linear, lane).real);
}

static struct block block_of(const struct fr_graph *graph, const struct linear *linear, uint32_t lane, uint32_t b)
{
    const struct variant *v = graph->variant;
    struct rows r = lane_rows(graph, linear, lane);
    uint32_t size = fr_linear_blocks(graph, linear, r.real) > 1 ? FR_SUM_ROWS : r.real;
    struct block block = {.begin = r.begin + b * size};
    block.rows = r.real - b * size < size ? r.real - b * size : size;
    struct fr_view g = fr_node_gradients(v, &v->nodes[linear->node], block.begin);
    float *packed = linear->packed;
    if (packed)
        packed += linear->lane_packed[lane] + b * graph->ops->packed_floats(size, linear->out);
    block.right = (struct fr_operand){g.values, g.ld, block.rows, linear->out, false, packed};
    return block;
}

size_t fr_graph_place_gradients(const struct fr_graph *graph, struct linear *linear)
{
    size_t at = 0;
    for (uint32_t lane = 0; lane < graph->lanes.n; lane++) {
        uint32_t rows = lane_rows(graph, linear, lane).real, whole = lane_blocks(graph, linear, lane) - 1;
        linear->lane_packed[lane] = at;
        at += whole * graph->ops->packed_floats(FR_SUM_ROWS, linear->out) +
              graph->ops->packed_floats(rows - whole * FR_SUM_ROWS, linear->out);
    }
    return at;
}

void fr_graph_pack_gradients(const struct fr_graph *graph, const struct linear *linear, const struct chunk *c)
{
    struct rows lane = lane_rows(graph, linear, c->lane);
    struct rows r = fr_rows_of(graph, graph->variant->nodes[linear->node].space, c);
    bool split = fr_linear_blocks(graph, linear, lane.real) > 1;
    if (graph->device)
        return; /* these factors are not packed */
    for (uint32_t row = r.begin, end = r.begin + r.real; row < end;) {
        struct block block = block_of(graph, linear, c->lane, split ? (row - lane.begin) / FR_SUM_ROWS : 0);
        uint32_t stop = block.begin + block.rows < end ? block.begin + block.rows : end;
        FR_CHECK(stop > row); /* the rows of a chunk are rows of its lane */
        graph->ops->pack(&block.right, row - block.begin, stop - block.begin);
        row = stop;
    }
}

/* Returns the address of row 0 of the product, so that the rows of a segment lie where the
 * parameter has them. */
static float *parameter_gradient(const struct fr_graph *graph, const struct gradient_task *task, uint32_t span)
{
    const struct linear *linear = &graph->variant->linears[task->linear];
    const struct segment *segment = &linear->segments[task->segment];
    return fr_span_gradient(graph, linear->kernel, span) +
           (size_t)(segment->parameter_row - segment->row) * linear->out;
}

/* Of the step's gradient, unless other ranks have a part in it. */
static uint32_t task_bits(const struct fr_graph *graph, const struct gradient_task *task)
{
    size_t out = graph->variant->linears[task->linear].out;
    struct fr_view rows = {parameter_gradient(graph, task, 0) + task->row_begin * out, out};
    return graph->ops->max_bits(task->row_end - task->row_begin, (uint32_t)out, rows);
}

/* Computes the product of a block of rows for the kernel rows of a task. `out`: row 0 of the
 * product. */
static void multiply_block(const struct fr_graph *graph, const struct gradient_task *task, const struct block *block,
                           float *out, uint32_t *bits)
{
    const struct variant *v = graph->variant;
    const struct linear *linear = &v->linears[task->linear];
    struct fr_view x = fr_node_values(v, fr_argument(graph, &v->nodes[linear->node], 0), block->begin);
    struct fr_operand left = {x.values, x.ld, linear->in, block->rows, true, NULL};
    if (block->rows == 0)
        memset(out + (size_t)task->row_begin * linear->out, 0,
               (size_t)(task->row_end - task->row_begin) * linear->out * sizeof(float));
    else
        graph->ops->multiply(&(struct fr_multiply){.left = &left,
                                                   .right = &block->right,
                                                   .row_begin = task->row_begin,
                                                   .row_end = task->row_end,
                                                   .out = {out, linear->out},
                                                   .bits = bits});
}

/* One lane: computes the gradient itself, or block b of several, which join_blocks joins. */
static void sum_block(const struct fr_graph *graph, uint32_t task_index, uint32_t b)
{
    const struct variant *v = graph->variant;
    const struct gradient_task *task = &v->gradient_tasks[task_index];
    const struct linear *linear = &v->linears[task->linear];
    bool split = lane_blocks(graph, linear, 0) > 1;
    struct block block = block_of(graph, linear, 0, b);
    uint32_t bits = 0;
    float *out = split ? linear->block_sums + (size_t)b * linear->in * linear->out : parameter_gradient(graph, task, 0);
    multiply_block(graph, task, &block, out, split ? NULL : &bits);
    if (!split)
        v->gradient_bits[task_index] = bits;
}

/* The sum of one lane in `sum`, which has the kernel rows of the task; `product` is as large. The
 * bits are those of sum_block and join_blocks. */
static void sum_lane(const struct fr_graph *graph, const struct gradient_task *task, uint32_t lane, float *sum,
                     float *product)
{
    const struct linear *linear = &graph->variant->linears[task->linear];
    uint32_t blocks = lane_blocks(graph, linear, lane), n = (task->row_end - task->row_begin) * linear->out;
    size_t at = (size_t)task->row_begin * linear->out;
    if (blocks > 1)
        memset(sum, 0, n * sizeof(*sum));
    for (uint32_t b = 0; b < blocks; b++) {
        struct block block = block_of(graph, linear, lane, b);
        multiply_block(graph, task, &block, (blocks > 1 ? product : sum) - at, NULL);
        if (blocks > 1)
            graph->ops->add(1, n, (struct fr_view){product, n}, (struct fr_view){sum, n});
    }
}

static void sum_lanes(const struct fr_graph *graph, uint32_t task_index, size_t worker)
{
    const struct variant *v = graph->variant;
    const struct gradient_task *task = &v->gradient_tasks[task_index];
    const struct linear *linear = &v->linears[task->linear];
    enum level level = v->spaces[v->nodes[linear->node].space].level;
    float *product = graph->lane_products + worker * FR_LANE_TREE_DEPTH * graph->lane_floats;
    for (uint32_t s = 0; s < graph->lanes.n_spans; s++) {
        struct fr_lane_span span = fr_span_of(&graph->lanes, s);
        struct lane_arrays sums = {.n = (size_t)(task->row_end - task->row_begin) * linear->out,
                                   .first = parameter_gradient(graph, task, s) + (size_t)task->row_begin * linear->out,
                                   .more = product + graph->lane_floats,
                                   .stride = graph->lane_floats};
        for (uint32_t lane = span.first; lane < span.end; lane++)
            if (fr_lane_entries(&graph->lanes, level, lane) > 0)
                sum_lane(graph, task, lane, fr_lane_arrays_push(graph->ops, &sums, lane), product);
        fr_lane_arrays_join(graph->ops, &sums, FR_LANES_MAX);
    }
    v->gradient_bits[task_index] = graph->sums.of_rank ? 0 : task_bits(graph, task);
}

/* Joins the chunks' partial sums of n floats, lane by lane within a span. */
static void join_lanes(const struct fr_graph *graph, enum level level, struct fr_lane_span span, struct fr_view partial,
                       float *out)
{
    size_t n = partial.ld;
    float more[(FR_LANE_TREE_DEPTH - 1) * JOIN_FLOATS];
    for (size_t at = 0; at < n; at += JOIN_FLOATS) {
        struct lane_arrays sums = {
            .n = n - at < JOIN_FLOATS ? n - at : JOIN_FLOATS, .first = out + at, .more = more, .stride = JOIN_FLOATS};
        for (uint32_t lane = span.first; lane < span.end; lane++) {
            uint32_t chunks = fr_lane_chunks(&graph->lanes, level, lane);
            size_t first = graph->lanes.begin[level][lane].chunk;
            if (chunks > 0)
                graph->ops->bias_gradient(chunks, (uint32_t)sums.n,
                                          (struct fr_view){partial.values + first * partial.ld + at, partial.ld},
                                          fr_lane_arrays_push(graph->ops, &sums, lane));
        }
        fr_lane_arrays_join(graph->ops, &sums, FR_LANES_MAX);
    }
}

static void join_partials(const struct fr_graph *graph, uint32_t index)
{
    const struct variant *v = graph->variant;
    const struct node *node = &v->nodes[v->join_tasks[index] / FR_NODE_PARAMETERS];
    const struct partial *partial = &node->partials[v->join_tasks[index] % FR_NODE_PARAMETERS];
    float *out = graph->parameter_states[partial->parameter].gradient;
    enum level level = v->spaces[node->space].level;
    struct fr_view sums = {partial->values, partial->n};
    for (uint32_t s = 0; s < graph->lanes.n_spans && graph->lanes.n > 1; s++)
        join_lanes(graph, level, fr_span_of(&graph->lanes, s), sums, fr_span_gradient(graph, partial->parameter, s));
    if (graph->lanes.n == 1)
        graph->ops->bias_gradient(fr_level_chunks(graph, level), partial->n, sums, out);
    v->gradient_bits[v->n_gradient_tasks + index] =
        graph->sums.of_rank ? 0 : graph->ops->max_bits(1, partial->n, (struct fr_view){out, partial->n});
}

static void sum_task(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct variant *v = run->graph->variant;
    uint32_t n_products = v->gradient_begin[v->n_gradient_tasks], low = 0, high = v->n_gradient_tasks;
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
    if (run->graph->lanes.n > 1)
        sum_lanes(run->graph, low, worker);
    else
        sum_block(run->graph, low, (uint32_t)index - v->gradient_begin[low]);
}

static void join_blocks(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    const struct gradient_task *task = &v->gradient_tasks[index];
    const struct linear *linear = &v->linears[task->linear];
    uint32_t blocks = lane_blocks(graph, linear, 0);
    size_t at = (size_t)task->row_begin * linear->out, stride = (size_t)linear->in * linear->out;
    (void)worker;
    if (blocks == 1)
        return;
    graph->ops->bias_gradient(blocks, (task->row_end - task->row_begin) * linear->out,
                              (struct fr_view){linear->block_sums + at, stride},
                              parameter_gradient(graph, task, 0) + at);
    v->gradient_bits[index] = task_bits(graph, task);
}

void fr_graph_parameter_gradients(struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    for (uint32_t i = 0; i < v->n_gradient_tasks; i++) {
        const struct linear *linear = &v->linears[v->gradient_tasks[i].linear];
        v->gradient_begin[i + 1] = v->gradient_begin[i] + (graph->lanes.n > 1 ? 1 : lane_blocks(graph, linear, 0));
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
        uint32_t rows = lane_rows(graph, linear, 0).real;
        struct fr_operand left = {x.values, x.ld, linear->in, rows, true, NULL};
        struct fr_operand right = {g.values, g.ld, rows, linear->out, false, NULL};
        float *out = parameter_gradient(graph, task, 0), *first = out + (size_t)segment->row * linear->out;
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
