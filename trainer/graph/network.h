/* The compiled network: variants, nodes, buffers, products; parameters and their state. Private to
 * the module.
 *
 * A layer becomes nodes, each of them one operation of the table (ops/ops.h). A node has one row
 * per row of its space:
 *
 *   space 0   samples                   one row per sample of the batch
 *   space 1   groups                    one row per group
 *   space i   steps of a sequence slot  rows begin[e] .. begin[e + 1] per entry e (sample or group)
 *
 * Which columns are shared by groups differs from batch to batch, and with it which nodes need one
 * row per group only. So the network is compiled once per set of shared slots, a variant;
 * parameters, optimizer state and statistics are outside. A node all of whose arguments have rows
 * per group has rows per group itself; where they meet the samples' own, an expanding node stands
 * between, and a product over both is two products.
 *
 * Concatenations are not computed: their arguments are views into one buffer and are written there
 * by their producers; so are gradients. Only an argument that already lives in another
 * concatenation is copied.
 *
 *   buffer of `x`:  | user_id | item_id.v | mean(history.v) | price | fm | one row per sample, `ld`
 *                     node      node        node              node    node   floats; each a view
 *
 * Everything is computed chunk by chunk (conf->chunk_rows entries with all their steps), forward
 * and backward alike; only kernel gradients run over the batch, in blocks of kernel rows.
 *
 * Owner thread: the graph's; chunks and blocks go to the pool. */
#ifndef FR_GRAPH_NETWORK_H
#define FR_GRAPH_NETWORK_H

#include "base/check.h"
#include "graph/graph.h"

enum {
    FR_DIRECT_ROWS = 24, /* up to here packing a kernel costs more than it saves */
    FR_PACK_ROWS = 128,  /* inner rows packed by one task */
    FR_SUM_ROWS = 4096,  /* rows of a batch over which one task sums a kernel's gradient */
    /* of larger kernels every task sums over all rows: they have tasks enough */
    FR_SUM_VALUES = 1 << 20,
    FR_DENSE_BLOCK = 16384,  /* values updated by one task */
    FR_UNIQUE_BLOCK = 256,   /* unique keys updated by one task */
    FR_VARIANTS_MAX = 16,    /* compiled at a time; the least recently used goes */
    FR_PRIOR_SAMPLES = 1000, /* labels after which a task's bias is learnt by gradients alone */
    FR_NODE_PARAMETERS = 2,  /* gradients summed per chunk that a node has at most */
    /* Pairs of one group that are computed at most: all of up to 512 samples with two labels (362
     * with any), and a group of ingest.group_max costs a few steps of logloss, not n^2. */
    FR_GROUP_PAIRS_MAX = 65536,
    FR_PAIR_SAMPLES = 256, /* groups that begin in so many samples are one task */
};

/* A moving average waits until the values would be so much of it: smaller steps round off in f32
 * and never add up. */
#define FR_AVERAGE_SHARE_MIN 1e-4
/* Default of variant_bytes_max: 16 variants of a network with long sequences would each keep their
 * largest batch. */
#define FR_VARIANT_BYTES_MAX ((size_t)1 << 30)
#define FR_LAYER_NORM_EPSILON 1e-5f
#define FR_STANDARDIZE_EPSILON 1e-6f
#define FR_STANDARDIZE_LIMIT 10.0f /* deviations: of what is read, and of what enters the moments */
/* Samples counted before anything is read: a deviation of 100 is known to 7 %. */
#define FR_STANDARDIZE_COUNT_MIN 100.0f

/* ---- parameters: made by parameters.c, outside the variants ---- */

struct parameter_state {
    float *gradient; /* complete after fr_graph_backward, for live parameters */
    float *state0, *state1;
    /* that reach it; 0: not trained. Set while compiling, before fr_graph_make_states */
    uint32_t losses;
    uint32_t set;                    /* of those losses */
    const struct fr_optimizer *conf; /* of its layer */
    uint64_t samples;                /* it was stepped for: Adam's age */
    /* what is published (export.average); NULL: the values are */
    float *average;
    /* samples it stands for; trained since it last took the values in */
    uint64_t averaged, waiting;
    float share; /* of the values in it after this step; 0: it waits */
    /* in this step: a loss that reaches it counted a sample */
    bool moves;
    struct fr_optimizer optimizer; /* of this step: scheduled rate */
    struct fr_pace pace;
};

/* Losses are numbered: tasks first, then auxiliary ones. Samples that count for any of a set of
 * them; one entry for each set that reaches a parameter or a table's row. */
struct loss_set {
    uint32_t losses;   /* bits */
    uint32_t count;    /* samples, of this batch */
    uint32_t *samples; /* [capacity_samples] 1: it counts */
    uint32_t *groups;  /* [capacity_groups] how many of its samples count */
    /* where operations read them: the same, or their copies on the device */
    const uint32_t *at_samples, *at_groups;
};

/* Where operations find a parameter: its own memory and its state's, or the device's copies. */
struct place {
    float *values, *state0, *state1, *average;
    bool stale; /* the device's copy is older than the host's, */
    bool ahead; /* or newer */
};

/* ---- nodes ---- */

enum level { LEVEL_SAMPLE, LEVEL_GROUP, LEVELS };

enum { SPACE_SAMPLES, SPACE_GROUPS };

/* Rows of nodes. */
struct space {
    enum level level;
    int32_t slot; /* of steps; FR_NO_INDEX: vectors */
    /* steps of a shared slot, expanded to samples: the space of its groups' steps */
    int32_t from;
    const uint32_t *begin; /* steps: [entries + 1] of this batch */
    /* where operations read begin, masked and source: the same, or their copies on the device */
    const uint32_t *at_begin, *at_source;
    uint8_t *at_masked;
    uint32_t rows;      /* of this batch */
    uint32_t capacity;  /* rows every buffer of the space holds */
    uint8_t *masked;    /* steps: [capacity] 1: no row behind it */
    uint32_t *expanded; /* `from`: [capacity_entries + 1] what `begin` points to */
    uint32_t *source;   /* `from`: [capacity] row of `from` a row is a copy of */
    uint32_t capacity_entries;
};

/* Nodes whose passes are written out (forward.c, backward_nodes.c). */
#define FR_WRITTEN_NODES(KIND)                                                                                         \
    KIND(NODE_POOLED)                                                                                                  \
    KIND(NODE_SEQUENCE)                                                                                                \
    KIND(NODE_DENSE)                                                                                                   \
    KIND(NODE_EXPAND) /* groups' rows -> samples' rows */                                                              \
    KIND(NODE_CONCAT)                                                                                                  \
    /* second argument, if any: a product over the groups' part, expanded as the start of the sum */                   \
    KIND(NODE_LINEAR)                                                                                                  \
    KIND(NODE_BIAS)                                                                                                    \
    KIND(NODE_DROPOUT)                                                                                                 \
    KIND(NODE_ADD)                                                                                                     \
    KIND(NODE_MSE_PAIR)  /* a, b: an auxiliary loss; no output */                                                      \
    KIND(NODE_NEXT_STEP) /* states, positives, negatives: an auxiliary loss; no output */
/* Those that are one call in either direction: call_<name> of nodes.c. */
#define FR_CALLED_NODES(KIND)                                                                                          \
    KIND(NODE_ALIGN, align) /* steps of one slot -> steps of another */                                                \
    KIND(NODE_ACTIVATE, activate)                                                                                      \
    KIND(NODE_LAYER_NORM, layer_norm)                                                                                  \
    KIND(NODE_BI_INTERACTION, bi_interaction)                                                                          \
    KIND(NODE_ROW_SUM, row_sum)                                                                                        \
    KIND(NODE_MULTIPLY, multiply)                                                                                      \
    KIND(NODE_DOT_INTERACTION, dot_interaction)                                                                        \
    KIND(NODE_CROSS, cross)     /* x0, t, x */                                                                         \
    KIND(NODE_MIXTURE, mixture) /* gates, experts */                                                                   \
    KIND(NODE_POOL_STEPS, pool_steps)                                                                                  \
    KIND(NODE_ATTENTION_DENSE, attention_dense) /* query, keys */                                                      \
    KIND(NODE_SOFTMAX_STEPS, softmax_steps)                                                                            \
    KIND(NODE_ATTENTION_POOL, attention_pool) /* scores, keys */                                                       \
    KIND(NODE_DOT_STEPS, dot_steps)           /* keys, query */                                                        \
    KIND(NODE_GRU, gru)                       /* input, [scores] */

enum node_kind { FR_WRITTEN_NODES(FR_KIND_MEMBER) FR_CALLED_NODES(FR_KIND_MEMBER) };

/* One argument of a node, with what its gradient needs (settled when the variant is compiled). */
struct argument {
    uint32_t node;
    bool stop;          /* through stop_gradient */
    bool in_place;      /* of a concatenation: lives in its buffer */
    bool skip_gradient; /* nothing behind it can be trained, or in place */
    bool zero_buffer;   /* first to touch the argument's gradient buffer, without covering it */
    bool accumulate;    /* its gradient holds something already */
};

/* A parameter gradient that is summed chunk by chunk: `values` are [chunks of the node's
 * level][n]. */
struct partial {
    uint32_t parameter;
    uint32_t n;
    float *values;
};

struct node {
    enum node_kind kind;
    uint32_t space;
    uint32_t width;
    uint32_t n_arguments;
    struct argument *arguments;
    int32_t parent; /* concatenation it lives in, FR_NO_INDEX: a buffer of its own */
    uint32_t parent_column;
    uint32_t buffer, column;
    bool trainable;                /* something behind it can be trained */
    bool reached;                  /* a loss's gradient comes to it, and it is trainable */
    bool gated;                    /* its gradient is given past its relu (settle_gates) */
    uint32_t losses;               /* those losses */
    uint32_t set;                  /* reached leaves with rows, dice: of those losses */
    int32_t slot, part;            /* leaves */
    enum fr_pooling pooling;       /* pooled, pool_steps */
    enum fr_activation activation; /* activate; attention_dense: relu or none */
    /* parameters: dense (standardize), activate (dice); FR_NO_INDEX */
    int32_t mean, variance;
    int32_t count;  /* parameter: dense (standardize) */
    int32_t linear; /* of a linear node */
    int32_t loss;   /* of an auxiliary loss: its number in conf */
    /* it was made for; FR_NO_INDEX: for an auxiliary loss or an output */
    int32_t layer;
    int32_t sums; /* of the variant, that it is part of; FR_NO_INDEX */
    uint32_t n_partials;
    /* linear, bias: bias; activate: alpha; layer_norm: scale, bias; gru: recurrent kernel,
     * recurrent bias; attention_dense: kernel, bias if there is one */
    struct partial partials[FR_NODE_PARAMETERS];
    /* [capacity, extra_width] kept from forward to backward: scale of pooled, moments of
     * layer_norm, weights of mixture, gates of gru */
    float *extra;
    uint32_t extra_width;
};

/* Whether the products of the backends do the node's activation: the one they can do is relu. */
static inline bool fr_node_has_relu(const struct node *node)
{
    return fr_activation_form(node->activation) == FR_ACTIVATED_IN_PRODUCT;
}

struct node_buffer {
    uint32_t width, space;
    size_t ld;
    float *values;    /* [capacity of the space, ld] */
    float *gradients; /* the same; NULL when nothing in it is trained or the graph only scores */
};

/* Rows of a product's kernel that lie together in the parameter: product rows [row, row + n). */
struct segment {
    uint32_t row, n, parameter_row;
};

/* y = activation(x kernel + bias), or without bias. */
struct linear {
    uint32_t node;
    uint32_t kernel; /* parameter */
    bool bias;       /* node.partials[0] is its bias */
    bool relu;
    uint32_t in, out; /* in: rows of this part of the kernel */
    uint32_t n_segments;
    struct segment *segments;
    float *gathered;             /* [in, out] this part of the kernel, when it is not one segment */
    struct fr_operand weights;   /* right: [in, out] */
    struct fr_operand weights_t; /* right: [out, in], for the gradient of x */
    /* For the gradient of the kernel: outputs' gradients packed in blocks of rows
     * (fr_linear_blocks), and the product of each block when there are several. */
    float *packed;
    float *block_sums; /* [blocks, in, out] */
};

/* Work lists fixed by the variant. */
struct pack_task {
    uint32_t linear, k_begin, k_end;
};
struct gradient_task {
    uint32_t linear, segment, row_begin, row_end; /* of the product */
};

/* Readers of row gradients of one table, by slot of the table: all that update.c needs is in
 * `sources`, complete after fr_graph_backward. */
struct table_sources {
    uint32_t *source_begin; /* [groups + 1], groups: the table's slots in config order */
    uint32_t *source_node;  /* [sources] of a slot: readers of steps, then poolings */
    uint32_t *source_slot;  /* [sources]; entries: fr_batch_entries */
    /* [sources] losses by which an occurrence counts that this reader contributes to */
    uint32_t *source_set;
    uint32_t n_sources;
    struct fr_row_source *sources;
};

/* A sum of pooled rows, perhaps with their interaction by pairs, that nothing else reads
 * (pooled_sums.c). */
struct row_sums {
    uint32_t add;  /* node; its arguments are the leaves */
    int32_t pairs; /* likewise, or FR_NO_INDEX */
    uint32_t first;
    bool active; /* in this batch rows are summed where they lie */
    struct fr_summed_slot *slots;
    uint32_t n_bits;
    uint32_t *bits; /* [chunks] largest value read */
};

struct variant {
    /* the key: slots read by the network whose columns are shared */
    uint64_t shared[FR_SLOTS_MAX / 64];
    uint64_t last_used;
    uint32_t n_spaces, capacity_spaces;
    struct space *spaces;
    uint32_t n_nodes, capacity_nodes;
    struct node *nodes; /* in evaluation order */
    uint32_t n_buffers;
    struct node_buffer *buffers;
    uint32_t n_linears;
    struct linear *linears;
    uint32_t n_pack_tasks, n_pack_t_tasks, n_gradient_tasks, n_join_tasks;
    struct pack_task *pack_tasks, *pack_t_tasks;
    struct gradient_task *gradient_tasks;
    uint32_t *join_tasks; /* node * FR_NODE_PARAMETERS + partial */
    /* [n_gradient_tasks + 1] with blocks of rows, of this batch */
    uint32_t *gradient_begin;
    uint32_t *gradient_bits;       /* [n_gradient_tasks + n_join_tasks] */
    uint32_t *output_node;         /* [n_outputs] at sample level */
    struct argument *output_claim; /* [n_outputs] zero_buffer, accumulate of their gradients */
    struct table_sources *tables;  /* [n_tables] */
    uint32_t n_sums;
    struct row_sums *sums;
    uint32_t capacity_chunks[LEVELS]; /* of partials */
};

/* ---- outputs, tasks, tables: outside the variants ---- */

/* A layer some task uses as a logit. Forward writes values for all samples; loss.c writes gradient
 * (all n_samples elements, zeros included) before fr_graph_backward. */
struct output {
    uint32_t layer;
    /* tasks with a loss it serves, directly or as a factor of a product */
    uint32_t losses;
    float *values, *gradient; /* [capacity_samples] */
};

/* The labels a task saw first, as long as they are few: the bias behind its logit follows their
 * log-odds. */
struct prior {
    int32_t bias;             /* parameter; FR_NO_INDEX: it has none, or was not asked to */
    double weight, positives; /* of the samples so far */
    uint64_t samples;
};

/* What a pairwise task compares in this batch; see ranking_pairs.c. Of other tasks NULL. */
struct pair_group {
    /* samples that stand in a pair: all that are trained, labelled and of weight > 0, or 0 */
    uint32_t n;
    uint32_t partners; /* with how many of a smaller label each is compared at most */
    float scale;       /* n / pairs */
};
struct task_pairs {
    uint32_t *order, *lower;   /* [capacity_samples] a group's from its first sample's place on */
    struct pair_group *groups; /* [capacity_pair_groups] */
};

struct task_state {
    struct prior prior;
    /* of its own logit; FR_NO_INDEX: a product of the outputs of its `prob` tasks */
    int32_t output;
    float *logits;    /* [capacity_samples], filled by fr_graph_task_logits */
    float *at_logits; /* the same, or where the device has them */
    struct task_pairs pairs;
};

struct table_state {
    uint32_t n_parts;
    struct fr_row_part parts[FR_PARTS_MAX]; /* optimizer: of this step */
    uint32_t n_groups;                      /* slots of the table */
};

struct dense_task {
    uint32_t parameter;
    size_t begin, end;
};

struct fr_graph {
    const struct fr_conf *conf;
    const struct fr_ops *ops;    /* the processor's */
    struct graph_device *device; /* that computes instead (device.h); NULL: the processor does */
    uint32_t chunk_rows;         /* entries computed by one call: conf's; a device takes a batch */
    bool pads;                   /* vectors are computed in whole chunks */
    struct fr_pool *pool;
    bool scoring_only;
    uint32_t workers;
    bool has_dropout;
    const struct fr_clock *clock; /* or NULL */
    struct fr_graph_times times;

    bool layer_live[FR_LAYERS_MAX]; /* a task or an auxiliary loss reaches it */
    uint64_t slots_read[FR_SLOTS_MAX / 64];
    uint32_t n_variants;
    struct variant *variants[FR_VARIANTS_MAX]; /* [0]: nothing shared, stays */
    struct variant *variant;                   /* of the last forward */
    uint64_t variant_clock;
    size_t variant_bytes_max;

    /* parameters.c makes these; parameters are ordered by layer, then slots with statistics. */
    size_t n_parameters, capacity_parameters;
    struct fr_parameter *parameters;
    struct parameter_state *parameter_states;
    struct place *places;   /* [parameters] */
    uint32_t n_dense_tasks; /* blocks of live parameters */
    struct dense_task *dense_tasks;
    double *dense_squares; /* [n_dense_tasks] of gradients, for clip_norm */
    struct fr_row_layout *layouts;
    /* graph.c makes it and n_groups; parameters.c fills parts */
    struct table_state *tables;
    uint32_t *row_block_begin; /* [n_tables + 1] row tasks by table */
    uint32_t *worker_bits;     /* [workers] */
    float *scratch;            /* [workers, scratch_floats] of row updates */
    size_t scratch_floats;
    uint32_t n_loss_sets, capacity_loss_sets;
    struct loss_set *loss_sets;
    uint64_t steps;           /* of the optimizer: batches that moved anything */
    uint64_t trained_samples; /* by those steps, for schedules */
    uint64_t changes;         /* steps of this run */
    /* of standardize and dice; NULL when scoring only (statistics.c) */
    struct statistics *statistics;

    uint32_t n_outputs;
    struct output *outputs;
    struct task_state *tasks;
    /* of the arrays below and of outputs and tasks; a multiple of chunk_rows */
    uint32_t capacity_samples;
    uint8_t *trained; /* [capacity_samples] role TRAIN */
    /* [capacity_samples] bit t: the sample counts for task t; bit n_tasks + i: for auxiliary loss
     * i. Set by fr_graph_count_unmasked */
    uint32_t *sample_losses;
    uint32_t *step_counts;    /* [capacity_samples] of one next_step */
    float *effective_weights; /* [capacity_samples] loss.c's */
    /* [capacity_samples], of one pairwise task; NULL when there is none */
    double *pair_sums;
    struct fr_graph_loss *pair_blocks; /* [capacity_samples / FR_PAIR_SAMPLES, rounded up] */
    uint32_t capacity_pair_groups;     /* of tasks' pairs */
    uint32_t capacity_groups;
    uint32_t n_trained; /* samples of this batch with role TRAIN */

    uint32_t capacity_chunks[LEVELS];
    /* [chunks of samples, then of groups] largest gradient of a leaf with rows */
    uint32_t *chunk_bits;
    double *loss_partial;         /* [chunks of samples, n_losses] auxiliary losses */
    struct fr_graph_loss *losses; /* [n_tasks + n_losses] of the last fr_graph_train */
    /* [workers, 2 * views_max] arguments of an interaction and their gradients */
    struct fr_view *views;
    uint32_t views_max;
    float *workspace; /* [workers, workspace_floats] of gru, attention_dense */
    size_t workspace_floats;
    uint32_t n_samples, n_groups; /* of the last forward */
};

/* One call's view of the world, for pool tasks. */
struct graph_run {
    struct fr_graph *graph;
    const struct fr_batch *batch;
    const struct fr_rows *rows;
    /* the same, or with pointers of the device: what operations are given */
    const struct fr_batch *at_batch;
    const struct fr_rows *at_rows;
    bool training; /* dropout masks are on */
    /* Out of fr_graph_backward. */
    uint32_t parameter_bits; /* largest |gradient| of any live parameter, as bits (ops->max_bits) */
    uint32_t leaf_bits;      /* largest |gradient| of any vector or step a table row went into */
};

/* ---- parameters.c ---- */

struct fr_optimizer fr_graph_optimizer_of(const struct fr_optimizer *conf);

/* Makes and initialises all parameters of all layers, also of those no task reaches, in the order
 * of conf's layers, then statistics of standardized slots; allocates parameter_states (zeroed) too.
 * Called before compiling. */
void fr_graph_make_parameters(struct fr_graph *graph);
/* By its full name; must exist. */
uint32_t fr_graph_find_parameter(const struct fr_graph *graph, const char *name);
/* Called after the first variant was compiled (losses are known), not when scoring only: gradients
 * and optimizer state of live parameters, those a loss reaches, dense_tasks, tables' parts, scratch
 * of row updates. */
void fr_graph_make_states(struct fr_graph *graph);
/* prior.c: finds each task's bias. Parameters are made. */
void fr_graph_make_priors(struct fr_graph *graph);
/* Frees all that parameters.c allocated. */
void fr_graph_free_parameters(struct fr_graph *graph);

/* ---- loss.c ---- */

/* After forward: fills every task's logits from the outputs' values. */
void fr_graph_task_logits(struct graph_run *run);
/* Fills sample_losses and counts its bits (trained is marked, nodes' masks are there); false: none,
 * no step. */
bool fr_graph_count_unmasked(struct graph_run *run);
/* Number of samples of this batch that count for any of `losses` (bits as in sample_losses). */
uint32_t fr_graph_count_losses(const struct fr_graph *graph, uint32_t losses);
/* Fills every trained output's gradient, of the weighted sum of the tasks' losses, for all samples,
 * and those sums. */
void fr_graph_losses(struct graph_run *run);
/* After backward, as it is shown: per loss the mean over the samples that counted, added up by
 * weight. */
double fr_graph_mean_loss(const struct fr_graph *graph);

/* ---- compile.c ---- */

struct variant *fr_graph_compile(const struct fr_graph *graph, const uint64_t *shared);
/* Numbers of the loss sets of a variant's nodes; new sets are added. Not when scoring only. */
void fr_graph_settle_sets(struct fr_graph *graph, struct variant *v);
void fr_graph_free_variant(const struct fr_graph *graph, struct variant *variant);
/* pooled_sums.c: finds those of a compiled variant. */
void fr_graph_find_sums(const struct fr_graph *graph, struct variant *v);
void fr_graph_free_sums(struct variant *v);

/* ---- forward.c, backward.c: what fr_graph_train calls, in this order ---- */

/* Fills the loss sets of the batch from sample_losses. */
void fr_graph_fill_sets(struct graph_run *run);
/* Fills trained, n_trained. */
void fr_graph_mark_trained(struct graph_run *run);
/* The forward pass again with dropout masks, when the network has any: new values of nodes and
 * outputs; tasks' logits stay. */
void fr_graph_forward_training(struct graph_run *run);
/* From the outputs' gradients: gradients of all live parameters, of leaves (table_sources.sources),
 * auxiliary losses; see the end of struct graph_run. Changes no parameter and no row. */
void fr_graph_backward(struct graph_run *run);

static inline uint32_t fr_blocks_of(size_t n, size_t size)
{
    return (uint32_t)((n + size - 1) / size);
}

static inline bool fr_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

/* Row `row` of a node, absolute in its space. */
static inline struct fr_view fr_node_values(const struct variant *variant, const struct node *node, uint32_t row)
{
    const struct node_buffer *b = &variant->buffers[node->buffer];
    return (struct fr_view){b->values + row * b->ld + node->column, b->ld};
}

static inline struct fr_view fr_node_gradients(const struct variant *variant, const struct node *node, uint32_t row)
{
    const struct node_buffer *b = &variant->buffers[node->buffer];
    return (struct fr_view){b->gradients + row * b->ld + node->column, b->ld};
}

/* ---- memory that operations read and write ---- */

/* NULL on a device that has no more; the device's status says so. */
void *fr_graph_memory(const struct fr_graph *graph, size_t bytes) FR_MUST_CHECK;
void fr_graph_release(const struct fr_graph *graph, void *memory);
/* Memory of the host that results come back to: pinned beside a device, because a copy to pageable
 * memory makes the caller wait for all that was started. NULL as above. */
void *fr_graph_answer_memory(const struct fr_graph *graph, size_t bytes) FR_MUST_CHECK;
void fr_graph_answer_release(const struct fr_graph *graph, void *memory);
void fr_graph_clear(const struct fr_graph *graph, void *memory, size_t bytes);
/* A small array of the host where operations of this piece (begin_graph) can read it, until the end
 * of the step. */
const void *fr_graph_array(const struct fr_graph *graph, const void *array, size_t bytes);

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
