/* The compiled network: nodes, buffers, products, parameters. Private to the module.
 *
 * A node is one vector per sample. Concatenations are not computed: their arguments are views into one buffer and are
 * written there by their producers; so are gradients. Only an argument that already lives in another concatenation is
 * copied.
 *
 *   buffer of `x`:  | user_id | item_id.v | mean(history.v) | price | fm |      one row per sample, `ld` floats
 *                     node      node        node              node    node      each a (buffer, column) view
 *
 * Everything is computed chunk by chunk (FR conf chunk_rows samples), forward and backward alike; only weight gradients
 * run over the batch, in blocks of kernel rows. Owner thread: the graph's; chunks and blocks go to the pool. */
#ifndef FR_GRAPH_NETWORK_H
#define FR_GRAPH_NETWORK_H

#include "base/check.h"
#include "graph/graph.h"

enum {
    FR_WIDTH_MAX = 1 << 20,         /* of one vector: 512 slots of dimension 2048 */
    FR_KERNEL_VALUES_MAX = 1 << 30, /* of one kernel: 4 GiB of f32 */
    FR_DIRECT_SAMPLES = 24,         /* up to here packing a kernel costs more than it saves */
    FR_PACK_ROWS = 128,             /* inner rows packed by one task */
    FR_DENSE_BLOCK = 16384,         /* values updated by one task */
    FR_UNIQUE_BLOCK = 256,          /* unique keys updated by one task */
};
/* Gradients beyond this count as not finite: their squares and some 10^8 of their sums must stay below FLT_MAX in an
 * accumulator. */
#define FR_GRADIENT_MAX 1e15f

enum node_kind { NODE_POOLED, NODE_DENSE, NODE_CONCAT, NODE_LINEAR, NODE_BI_INTERACTION, NODE_ADD };

/* One argument of a node, with what its gradient needs (settled when the graph is made). */
struct argument {
    uint32_t node;
    bool in_place;      /* of a concatenation: lives in its buffer */
    bool skip_gradient; /* nothing behind it can be trained */
    bool zero_buffer;   /* first to touch the argument's gradient buffer, without covering it */
    bool accumulate;    /* its gradient holds something already */
};

struct node {
    enum node_kind kind;
    uint32_t width;
    uint32_t n_arguments;
    struct argument *arguments;
    int32_t parent; /* concatenation it lives in, FR_NO_INDEX: a buffer of its own */
    uint32_t parent_column;
    uint32_t buffer, column;
    bool trainable;      /* gradients are wanted */
    uint32_t slot, part; /* pooled, dense */
    bool mean;
    float *scale;    /* pooled mean: [capacity] 1 / sum of weights */
    uint32_t linear; /* of a linear node */
};

struct node_buffer {
    uint32_t width;
    size_t ld;
    float *values;    /* [capacity, ld] */
    float *gradients; /* the same; NULL when nothing in it is trained or the graph only scores */
};

/* y = activation(x kernel + bias). */
struct linear {
    uint32_t node;
    uint32_t kernel, bias; /* parameters */
    uint32_t in, out;
    bool relu;
    struct fr_operand weights;   /* right: [in, out] */
    struct fr_operand weights_t; /* right: [out, in], for the gradient of x */
    struct fr_operand inputs_t;  /* left: [in, samples], for the gradient of the kernel */
    struct fr_operand gradients; /* right: [samples, out] */
    float *bias_partial;         /* [chunks, out] */
};

struct parameter_state {
    float *gradient, *state0, *state1;
    bool live; /* reached by a task: trained */
};

/* Work lists fixed by the network. */
struct pack_task {
    uint32_t linear, k_begin, k_end;
};
struct gradient_task {
    uint32_t linear, row_begin, row_end;
};
struct dense_task {
    uint32_t parameter;
    size_t begin, end;
};

/* Sources of row gradients by table: groups are the table's slots in config order. */
struct table_sources {
    uint32_t n_parts;
    struct fr_row_part parts[FR_PARTS_MAX];
    uint32_t n_groups;
    uint32_t *source_begin;        /* [n_groups + 1] */
    uint32_t *source_node;         /* [sources] */
    struct fr_row_source *sources; /* filled per batch */
    struct fr_occurrence *occurrences;
    size_t capacity_occurrences;
};

struct task_state {
    uint32_t node;
    bool zero_buffer; /* before the loss writes its gradient */
    uint32_t unmasked;
    float *logits; /* [capacity] */
};

struct fr_graph {
    const struct fr_conf *conf;
    const struct fr_ops *ops;
    struct fr_pool *pool;
    bool scoring_only;
    uint32_t workers;

    uint32_t layer_width[FR_LAYERS_MAX];
    bool layer_live[FR_LAYERS_MAX];
    uint32_t layer_node[FR_LAYERS_MAX];
    uint32_t n_nodes, capacity_nodes;
    struct node *nodes; /* in evaluation order */
    uint32_t n_buffers;
    struct node_buffer *buffers;
    uint32_t n_linears;
    struct linear *linears;
    size_t n_parameters, capacity_parameters;
    struct fr_parameter *parameters;
    struct parameter_state *parameter_states;
    struct task_state *tasks;
    struct table_sources *tables;
    struct fr_row_layout *layouts;
    uint32_t *slot_group; /* [n_slots] group within its table */

    uint32_t n_pack_tasks, n_pack_t_tasks, n_gradient_tasks, n_dense_tasks;
    struct pack_task *pack_tasks, *pack_t_tasks;
    struct gradient_task *gradient_tasks;
    struct dense_task *dense_tasks;
    struct fr_optimizer dense_optimizer;
    uint64_t steps;

    /* Sized by the largest batch so far. */
    uint32_t capacity;         /* samples, a multiple of chunk_rows */
    uint8_t *trained;          /* [capacity] */
    double *loss_partial;      /* [chunks, tasks] */
    uint32_t *chunk_bits;      /* [chunks] largest gradient of a pooled vector */
    uint32_t *gradient_bits;   /* [n_gradient_tasks] */
    uint32_t *row_block_begin; /* [n_tables + 1] row tasks by table */
    uint32_t *worker_bits;     /* [workers] */
    float *scratch;            /* [workers, scratch_floats] */
    size_t scratch_floats;
    struct fr_view *views; /* [workers, 2 * views_max] arguments of a bi_interaction and their gradients */
    uint32_t views_max;
    uint32_t n_samples; /* of the last forward */
};

/* One call's view of the world, for pool tasks. */
struct graph_run {
    struct fr_graph *graph;
    const struct fr_batch *batch;
    const struct fr_rows *rows;
    float step_size, second_scale; /* of Adam, for this step */
};

/* A chunk: `rows` are computed (whole chunks where the backend's bits depend on it), `samples` are real. */
struct chunk {
    uint32_t first, samples, rows;
    uint32_t worker;
};

enum fr_status fr_graph_infer_shapes(struct fr_graph *graph, struct fr_err *err) FR_MUST_CHECK;
struct fr_optimizer fr_graph_optimizer_of(const struct fr_conf_optimizer *conf);
void fr_graph_compile(struct fr_graph *graph);
void fr_graph_reserve(struct fr_graph *graph, uint32_t n_samples);
void fr_graph_reserve_occurrences(struct fr_graph *graph, const struct fr_rows *rows);

static inline uint32_t fr_blocks_of(size_t n, size_t size)
{
    return (uint32_t)((n + size - 1) / size);
}

static inline struct chunk fr_chunk_of(const struct fr_graph *graph, size_t index, size_t worker)
{
    uint32_t size = graph->conf->chunk_rows;
    struct chunk c = {.first = (uint32_t)index * size, .worker = (uint32_t)worker};
    c.samples = graph->n_samples - c.first < size ? graph->n_samples - c.first : size;
    c.rows = graph->ops->rows_independent ? c.samples : size;
    return c;
}

static inline struct fr_view fr_node_values(const struct fr_graph *graph, const struct node *node, uint32_t first)
{
    const struct node_buffer *b = &graph->buffers[node->buffer];
    return (struct fr_view){b->values + first * b->ld + node->column, b->ld};
}

static inline struct fr_view fr_node_gradients(const struct fr_graph *graph, const struct node *node, uint32_t first)
{
    const struct node_buffer *b = &graph->buffers[node->buffer];
    return (struct fr_view){b->gradients + first * b->ld + node->column, b->ld};
}

static inline void fr_graph_run_tasks(const struct fr_graph *graph, size_t count, fr_pool_task *task, void *context)
{
    if (graph->pool && count > 1) {
        fr_pool_run(graph->pool, count, task, context);
        return;
    }
    for (size_t i = 0; i < count; i++)
        task(context, i, 0);
}

#endif
