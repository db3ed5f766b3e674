/* What the forward and backward passes share: chunks, and the rows of nodes in a chunk. Private to
 * the two passes. */
#ifndef FR_GRAPH_PASSES_H
#define FR_GRAPH_PASSES_H

#include "device.h"
#include "network.h"

/* Runs one operation on the device, or on the processor if there is none. */
#define FR_RUN(graph, op, ...)                                                                                         \
    do {                                                                                                               \
        if ((graph)->device)                                                                                           \
            (graph)->device->ops->op((graph)->device->queue, __VA_ARGS__);                                             \
        else                                                                                                           \
            (graph)->ops->op(__VA_ARGS__);                                                                             \
    } while (0)
/* Runs an operation that returns a sum. On a device the result here is 0, and word `at` of the
 * answer gets the sum later. */
#define FR_SUM(graph, at, op, call)                                                                                    \
    ((graph)->device                                                                                                   \
         ? ((graph)->device->ops->op((graph)->device->queue, fr_graph_device_sum((graph)->device, at), call), 0.0)     \
         : (graph)->ops->op(call))

/* Where operations read which samples train, and where they write the step counts of a
 * next_step. */
static inline const uint8_t *fr_graph_at_trained(const struct fr_graph *graph)
{
    return graph->device ? graph->device->trained : graph->trained;
}

static inline uint32_t *fr_graph_at_counts(const struct fr_graph *graph)
{
    return graph->device ? graph->device->step_counts : graph->step_counts;
}

/* A chunk: up to chunk_rows entries of a level and of one lane, with all their steps. */
struct chunk {
    enum level level;
    uint32_t index; /* within its level */
    uint32_t lane;
    uint32_t first, entries;
    uint32_t worker;
};

/* The rows of a space that a chunk computes: `count` rows, of which `real` belong to entries.
 * Vectors are computed in whole chunks where the backend's bits depend on a row's position, unless
 * the batch has several lanes (fr_graph_multiply_chunk). */
struct rows {
    uint32_t begin, count, real;
};

static inline uint32_t fr_level_entries(const struct fr_graph *graph, enum level level)
{
    return level == LEVEL_SAMPLE ? graph->n_samples : graph->n_groups;
}

static inline uint32_t fr_level_chunks(const struct fr_graph *graph, enum level level)
{
    return graph->lanes.begin[level][graph->lanes.n].chunk;
}

static inline struct chunk fr_chunk_of(const struct fr_graph *graph, enum level level, size_t index, size_t worker)
{
    struct chunk c = {.level = level, .index = (uint32_t)index, .worker = (uint32_t)worker};
    c.lane = fr_lane_of_chunk(&graph->lanes, level, c.index);
    const struct lane_begin *lane = &graph->lanes.begin[level][c.lane];
    c.first = lane->entry + (c.index - lane->chunk) * graph->chunk_rows;
    FR_CHECK(c.first < lane[1].entry);
    c.entries = lane[1].entry - c.first < graph->chunk_rows ? lane[1].entry - c.first : graph->chunk_rows;
    return c;
}

static inline struct rows fr_rows_of(const struct fr_graph *graph, uint32_t space, const struct chunk *c)
{
    const struct space *s = &graph->variant->spaces[space];
    if (s->slot != FR_NO_INDEX) {
        uint32_t begin = s->begin[c->first], count = s->begin[c->first + c->entries] - begin;
        return (struct rows){begin, count, count};
    }
    return (struct rows){c->first, graph->pads && graph->lanes.n == 1 ? graph->chunk_rows : c->entries, c->entries};
}

/* Returns the first row of a lane in a space. */
static inline uint32_t fr_lane_row(const struct fr_graph *graph, uint32_t space, uint32_t lane)
{
    const struct space *s = &graph->variant->spaces[space];
    uint32_t entry = graph->lanes.begin[s->level][lane].entry;
    return s->slot == FR_NO_INDEX ? entry : s->begin[entry];
}

static inline struct fr_steps fr_steps_of(const struct fr_graph *graph, uint32_t space, const struct chunk *c)
{
    const struct space *s = &graph->variant->spaces[space];
    return (struct fr_steps){s->at_begin, s->at_masked, c->first, c->first + c->entries};
}

static inline const struct node *fr_argument(const struct fr_graph *graph, const struct node *node, uint32_t i)
{
    return &graph->variant->nodes[node->arguments[i].node];
}

/* Where argument i's gradient is added; row 0 of the view is row `row` of the argument's space.
 * .values is NULL if no gradient is wanted. */
static inline struct fr_view fr_node_wanted(const struct fr_graph *graph, const struct node *node, uint32_t i,
                                            uint32_t row)
{
    if (node->arguments[i].skip_gradient)
        return (struct fr_view){NULL, 0};
    return fr_node_gradients(graph->variant, fr_argument(graph, node, i), row);
}

/* Returns the chunk's partial sum of a parameter's gradient, cleared. */
static inline float *fr_node_partial(const struct fr_graph *graph, const struct node *node, uint32_t p,
                                     const struct chunk *c)
{
    float *sum = node->partials[p].values + (size_t)c->index * node->partials[p].n;
    fr_graph_clear(graph, sum, node->partials[p].n * sizeof(float));
    return sum;
}

/* Returns row `row` of the values that a node keeps for the backward pass. */
static inline struct fr_view fr_node_extra(const struct node *node, uint32_t row)
{
    return (struct fr_view){node->extra ? node->extra + (size_t)row * node->extra_width : NULL, node->extra_width};
}

/* backward.c: joins the numbers of chunks of samples, `stride` apart, over the lanes of a span. */
double fr_graph_sum_chunks(const struct fr_graph *graph, uint32_t span, const double *partial, size_t stride);

/* Returns where the gradient of a parameter is summed over the lanes of a span. */
static inline float *fr_span_gradient(const struct fr_graph *graph, uint32_t parameter, uint32_t span)
{
    const struct span_sums *sums = &graph->sums;
    return sums->gradients ? sums->gradients + span * sums->n_gradients + sums->gradient_at[parameter]
                           : graph->parameter_states[parameter].gradient;
}

/* Whether the batch has so few rows that kernels are read without packing. */
static inline bool fr_reads_directly(const struct fr_graph *graph, const struct linear *linear)
{
    const struct variant *v = graph->variant;
    return v->spaces[v->nodes[linear->node].space].rows <= FR_DIRECT_ROWS;
}

/* The number of blocks of `rows` rows of one lane over which a kernel's gradient is summed; the
 * blocks are joined in ascending order. */
static inline uint32_t fr_linear_blocks(const struct fr_graph *graph, const struct linear *linear, uint32_t rows)
{
    bool split = !graph->device && rows > FR_SUM_ROWS && (size_t)linear->in * linear->out <= FR_SUM_VALUES;
    return split ? fr_blocks_of(rows, FR_SUM_ROWS) : 1;
}

/* forward_prepare.c: selects the variant of the batch and prepares its memory and the rows of its
 * spaces. */
void fr_graph_prepare(struct graph_run *run);

/* The rows as a replica would have them: rows that this batch created are absent. */
static inline float *const *fr_served_rows(const struct fr_table_rows *table)
{
    return table->served ? table->served : table->rows;
}

/* update.c: the call that updates rows of table t, without a range. */
struct fr_row_update fr_graph_row_update(const struct graph_run *run, uint32_t t, size_t worker);
/* row_ranks.c: steps the rows of this home with the sums that fr_graph_read_row_sums read, after
 * fr_graph_begin_step. */
void fr_graph_step_home_rows(struct fr_graph *graph);
void fr_graph_free_row_ranks(struct fr_graph *graph);

/* pooled_sums.c: the active sums that the node is part of; NULL: none. */
static inline const struct row_sums *fr_sums_of(const struct variant *v, const struct node *node)
{
    const struct row_sums *sums = node->sums == FR_NO_INDEX ? NULL : &v->sums[node->sums];
    return sums && sums->active ? sums : NULL;
}
void fr_graph_begin_sums(const struct graph_run *run); /* decides which sums are active */
void fr_graph_forward_sums(const struct fr_graph *graph, const struct row_sums *sums, const struct chunk *c);
/* An upper bound, as bits, of the gradient that any row gets from an entry of the chunk. */
uint32_t fr_graph_sum_bits(const struct fr_graph *graph, const struct row_sums *sums, const struct chunk *c);
void fr_graph_sum_source(const struct fr_graph *graph, const struct row_sums *sums, struct fr_row_source *source);
void fr_graph_write_sums(const struct graph_run *run);

/* forward.c, backward_nodes.c: one node. */
void fr_graph_forward_node(const struct graph_run *run, const struct node *node, const struct chunk *c);

/* nodes.c: FR_CALLED_NODES. */
void fr_graph_call_node(const struct fr_graph *graph, const struct node *node, const struct chunk *c, bool backward);

/* forward.c: fills the expanded steps of a chunk, on the host. */
void fr_graph_fill_expanded(const struct graph_run *run, const struct chunk *c);
/* forward.c: the pass over all chunks; the copies of kernels that have several segments. */
void fr_graph_forward_chunks(struct graph_run *run);
void fr_graph_gather_kernels(struct graph_run *run);

/* Computes all rows of a product with its bias, relu and gate. On a device it does not compute
 * `bits`. */
static inline void fr_graph_multiply(const struct fr_graph *graph, const struct fr_multiply *call)
{
    if (!graph->device) {
        graph->ops->multiply(call);
        return;
    }
    const struct fr_device_ops *ops = graph->device->ops;
    struct fr_device_queue *queue = graph->device->queue;
    ops->multiply(queue, call, graph->device->bf16);
    if (call->bias)
        ops->bias_activate(queue, call->row_end, call->right->columns, call->out, call->bias, call->relu);
    if (call->gate.values)
        ops->relu_backward(queue, call->row_end, call->right->columns, call->gate, call->out);
}

/* forward.c: the same for the chunk of a node, padded where the backend's bits depend on it. */
void fr_graph_multiply_chunk(const struct fr_graph *graph, const struct node *node, const struct chunk *c,
                             const struct fr_multiply *call);

/* forward.c: the call of a dropout for a chunk; the caller sets the views. */
struct fr_dropout fr_graph_dropout(const struct fr_graph *graph, const struct node *node, const struct chunk *c);

/* backward_nodes.c: passes the gradient of a node to its arguments and adds to its parameters'
 * partial sums. The node must be of the chunk's level. Gradients from samples to groups are passed
 * by fr_graph_backward_collapse, for a chunk of groups. */
void fr_graph_backward_node(const struct graph_run *run, const struct node *node, const struct chunk *c);
void fr_graph_backward_collapse(const struct graph_run *run, const struct node *node, const struct chunk *c);
/* backward_kernels.c: the first function sets where each lane's packed output gradients lie and
 * returns the floats of all, the second packs those of a chunk, the third computes the batch's
 * gradients of all parameters. */
size_t fr_graph_place_gradients(const struct fr_graph *graph, struct linear *linear);
void fr_graph_pack_gradients(const struct fr_graph *graph, const struct linear *linear, const struct chunk *c);
void fr_graph_parameter_gradients(struct graph_run *run);
void fr_graph_zero_gradients(const struct fr_graph *graph, const struct node *node, struct rows r);

#endif
