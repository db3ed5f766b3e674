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
 * The set of columns that groups share differs from batch to batch, and with it the set of nodes
 * that need only one row per group. Therefore the network is compiled once for each set of shared
 * slots, as a variant; parameters, optimizer state and statistics are outside the variants. A node
 * all of whose arguments have rows per group has rows per group itself. Where such rows meet the
 * samples' own rows, an expanding node is inserted, and a product over both becomes two products.
 *
 * Concatenations are not computed: the arguments are views into one buffer, and their producers
 * write there. The same holds for gradients. Only an argument that already belongs to another
 * concatenation is copied.
 *
 *   buffer of `x`:  | user_id | item_id.v | mean(history.v) | price | fm | one row per sample, `ld`
 *                     node      node        node              node    node   floats; each a view
 *
 * Everything is computed chunk by chunk (up to conf->chunk_rows entries of one lane, with all their
 * steps), forward and backward alike; only kernel gradients run over the batch, in blocks of kernel
 * rows.
 *
 * Owner thread: the graph's; chunks and blocks go to the pool. */
#ifndef FR_GRAPH_NETWORK_H
#define FR_GRAPH_NETWORK_H

#include "base/check.h"
#include "graph/graph.h"
#include "lanes.h"

enum {
    FR_DIRECT_ROWS = 24,  /* up to this many rows, packing a kernel costs more than it saves */
    FR_PACK_ROWS = 128,   /* inner rows packed by one task */
    FR_PACK_PADDING = 32, /* a packed factor has as many rows, rounded up to at most this */
    FR_SUM_ROWS = 4096,   /* rows of a batch over which one task sums a kernel's gradient */
    /* for kernels larger than this every task sums over all rows, because they have enough tasks */
    FR_SUM_VALUES = 1 << 20,
    FR_DENSE_BLOCK = 16384,  /* values updated by one task */
    FR_UNIQUE_BLOCK = 256,   /* unique keys updated by one task */
    FR_VARIANTS_MAX = 16,    /* variants kept; the least recently used one is freed */
    FR_PRIOR_SAMPLES = 1000, /* labels after which only gradients move a task's bias */
    FR_NODE_PARAMETERS = 2,  /* the most gradients summed per chunk that a node has */
    /* The most pairs of one group that are computed. It covers all pairs of up to 512 samples with
     * two distinct labels (362 with any labels), and keeps the cost of a group of ingest.group_max
     * samples at a few steps of logloss instead of n^2. */
    FR_GROUP_PAIRS_MAX = 65536,
    FR_PAIR_SAMPLES = 256, /* the groups that begin within this many samples are one task */
};

/* A moving average is not updated until the values would have at least this share in it. Smaller
 * steps would be lost to f32 rounding and never add up. */
#define FR_AVERAGE_SHARE_MIN 1e-4
/* Default of variant_bytes_max. Without a limit, each of 16 variants of a network with long
 * sequences would keep the memory of its largest batch. */
#define FR_VARIANT_BYTES_MAX ((size_t)1 << 30)
#define FR_LAYER_NORM_EPSILON 1e-5f
#define FR_STANDARDIZE_EPSILON 1e-6f
/* in deviations; bounds both the values read and those that enter the moments */
#define FR_STANDARDIZE_LIMIT 10.0f
/* Samples counted before standardized values are read: a deviation from 100 samples is accurate to
 * 7 %. */
#define FR_STANDARDIZE_COUNT_MIN 100.0f

/* ---- parameters: made by parameters.c, outside the variants ---- */

struct parameter_state {
    float *gradient; /* complete after fr_graph_backward, for live parameters */
    float *state0, *state1;
    /* Bit set of the losses that reach the parameter; 0: not trained. Set while compiling, before
     * fr_graph_make_states. */
    uint32_t losses;
    uint32_t set;                    /* index of the loss set of these losses */
    const struct fr_optimizer *conf; /* the layer's optimizer */
    uint64_t samples;                /* samples that the parameter was stepped for: Adam's age */
    /* the published moving average (export.average); NULL: the values are published */
    float *average;
    /* Samples that the average represents; samples trained since the average was last updated. */
    uint64_t averaged, waiting;
    /* share of the values in the average after this step; 0: the average is not updated */
    float share;
    /* in this step, a loss that reaches the parameter counted a sample */
    bool moves;
    struct fr_optimizer optimizer; /* the optimizer for this step, with the scheduled rate */
    struct fr_pace pace;
};

/* The samples that count for any of a set of losses. Losses are numbered: tasks first, then
 * auxiliary losses. There is one loss_set for each set that reaches a parameter or a table's
 * row. */
struct loss_set {
    uint32_t losses;   /* bit set */
    uint32_t count;    /* samples of this batch that count; of all ranks once sums are joined */
    uint32_t *samples; /* [capacity_samples] 1: the sample counts */
    uint32_t *groups;  /* [capacity_groups] how many of the group's samples count */
    /* where operations read samples and groups: the arrays above, or their copies on the device */
    const uint32_t *at_samples, *at_groups;
};

/* Where operations find a parameter and its state: in host memory, or as copies on the device. */
struct place {
    float *values, *state0, *state1, *average;
    bool stale; /* the device's copy is older than the host's */
    bool ahead; /* the device's copy is newer than the host's */
};

/* ---- nodes ---- */

enum { SPACE_SAMPLES, SPACE_GROUPS };

/* The set of rows that nodes share. */
struct space {
    enum level level;
    int32_t slot; /* the slot whose steps are the rows; FR_NO_INDEX: rows are samples or groups */
    /* If the space has the steps of a shared slot expanded to samples: the space of the groups'
     * steps. */
    int32_t from;
    const uint32_t *begin; /* steps: [entries + 1] of this batch */
    /* where operations read begin, masked and source: the arrays here, or their copies on the
     * device */
    const uint32_t *at_begin, *at_source;
    uint8_t *at_masked;
    uint32_t rows;     /* rows of this batch */
    uint32_t capacity; /* the rows that every buffer of the space has room for */
    uint8_t *masked;   /* steps: [capacity] 1: the step has no row */
    /* if `from` is set: [capacity_entries + 1] the array that `begin` points to */
    uint32_t *expanded;
    uint32_t *source; /* if `from` is set: [capacity] the row of `from` that each row copies */
    uint32_t capacity_entries;
};

/* Nodes with a hand-written pass in either direction (forward.c, backward_nodes.c). */
#define FR_WRITTEN_NODES(KIND)                                                                                         \
    KIND(NODE_POOLED)                                                                                                  \
    KIND(NODE_SEQUENCE)                                                                                                \
    KIND(NODE_DENSE)                                                                                                   \
    KIND(NODE_EXPAND) /* groups' rows are copied to samples' rows */                                                   \
    KIND(NODE_CONCAT)                                                                                                  \
    /* a second argument is a product over the groups' part, expanded; the sum begins with it */                       \
    KIND(NODE_LINEAR)                                                                                                  \
    KIND(NODE_BIAS)                                                                                                    \
    KIND(NODE_DROPOUT)                                                                                                 \
    KIND(NODE_ADD)                                                                                                     \
    KIND(NODE_MSE_PAIR)  /* a, b: an auxiliary loss; no output */                                                      \
    KIND(NODE_NEXT_STEP) /* states, positives, negatives: an auxiliary loss; no output */
/* Nodes that are one call of an operation in either direction: call_<name> in nodes.c. */
#define FR_CALLED_NODES(KIND)                                                                                          \
    KIND(NODE_ALIGN, align) /* steps of one slot, aligned with steps of another */                                     \
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

/* One argument of a node, with what its gradient needs (decided when the variant is compiled). */
struct argument {
    uint32_t node;
    bool stop;     /* read through stop_gradient */
    bool in_place; /* argument of a concatenation, whose buffer it is part of */
    /* no gradient is passed: nothing the argument depends on can be trained, or it is in place */
    bool skip_gradient;
    /* this is the first write to the argument's gradient buffer, and it does not cover all of it */
    bool zero_buffer;
    bool accumulate; /* the argument's gradient already has content that must be added to */
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
    /* the concatenation whose buffer holds this node; FR_NO_INDEX: it has its own buffer */
    int32_t parent;
    uint32_t parent_column;
    uint32_t buffer, column;
    bool trainable; /* something the node depends on can be trained */
    bool reached;   /* the node is trainable and the gradient of a loss reaches it */
    /* its gradient arrives with the derivative of its relu already applied (find_gated) */
    bool gated;
    uint32_t losses; /* bit set of the losses whose gradient reaches the node */
    /* reached leaves with rows, and dice: the loss set of these losses */
    uint32_t set;
    int32_t slot, part;            /* of a leaf: the slot and the part of its table */
    enum fr_pooling pooling;       /* of pooled and pool_steps */
    enum fr_activation activation; /* of activate; of attention_dense: relu or none */
    /* Statistics parameters of dense (standardize) and activate (dice); otherwise FR_NO_INDEX. */
    int32_t mean, variance;
    int32_t count;  /* statistics parameter of dense (standardize) */
    int32_t linear; /* of a linear node: its index in the variant's linears */
    int32_t loss;   /* of an auxiliary loss: its number in the configuration */
    /* the configured layer this node was compiled from; FR_NO_INDEX if it belongs to an auxiliary
     * loss or an output */
    int32_t layer;
    int32_t sums; /* index of the variant's row_sums that the node is part of; FR_NO_INDEX: none */
    uint32_t n_partials;
    /* linear, bias: bias; activate: alpha; layer_norm: scale, bias; gru: recurrent kernel,
     * recurrent bias; attention_dense: kernel, bias if there is one */
    struct partial partials[FR_NODE_PARAMETERS];
    /* [capacity, extra_width] values that the backward pass needs from the forward pass: what
     * pooled keeps (ops/pooling.h), moments of layer_norm, weights of mixture, gates of gru */
    float *extra;
    uint32_t extra_width;
};

/* Whether the backends' products apply the node's activation. They can apply relu only. */
static inline bool fr_node_has_relu(const struct node *node)
{
    return fr_activation_form(node->activation) == FR_ACTIVATED_IN_PRODUCT;
}

struct node_buffer {
    uint32_t width, space;
    size_t ld;
    float *values; /* [capacity of the space, ld] */
    /* the same shape; NULL if nothing in the buffer is trained or the graph only scores */
    float *gradients;
};

/* Rows of a product's kernel that are contiguous in the parameter: product rows [row, row + n). */
struct segment {
    uint32_t row, n, parameter_row;
};

/* y = activation(x kernel + bias), or without bias. */
struct linear {
    uint32_t node;
    uint32_t kernel; /* parameter */
    bool bias;       /* node.partials[0] is its bias */
    bool relu;
    uint32_t in, out; /* in: the number of rows of this part of the kernel */
    uint32_t n_segments;
    struct segment *segments;
    /* [in, out] a copy of this part of the kernel, if it has several segments */
    float *gathered;
    struct fr_operand weights;   /* right: [in, out] */
    struct fr_operand weights_t; /* right: [out, in], for the gradient of x */
    /* For the gradient of the kernel: the outputs' gradients packed in blocks of rows
     * (fr_linear_blocks), and the product of each block if one lane has several blocks. */
    float *packed;
    size_t packed_floats;
    size_t lane_packed[FR_LANES_MAX]; /* where the first block of each lane begins in `packed` */
    float *block_sums;                /* [blocks, in, out] */
};

/* Work lists that depend on the variant only. */
struct pack_task {
    uint32_t linear, k_begin, k_end;
};
struct gradient_task {
    uint32_t linear, segment, row_begin, row_end; /* rows of the product */
};

/* The readers of one table's rows, by slot of the table. `sources` has all that update.c needs and
 * is complete after fr_graph_backward. */
struct table_sources {
    uint32_t *source_begin; /* [groups + 1], groups: the table's slots in config order */
    uint32_t *source_node;  /* [sources] for each slot: first readers of steps, then poolings */
    uint32_t *source_slot;  /* [sources] the slot; its entries: fr_batch_entries */
    /* [sources] loss set by which an occurrence counts if this reader contributes to its
     * gradient */
    uint32_t *source_set;
    uint32_t n_sources;
    struct fr_row_source *sources;
};

/* A sum of pooled rows, optionally with their pairwise interaction, where nothing else reads the
 * rows (pooled_sums.c). */
struct row_sums {
    uint32_t add;  /* the adding node, whose arguments are the leaves */
    int32_t pairs; /* the interaction node with the same arguments; FR_NO_INDEX: none */
    uint32_t first;
    bool active; /* in this batch the rows are summed in place, without a gather */
    struct fr_summed_slot *slots;
    uint32_t n_bits;
    uint32_t *bits; /* [chunks] the largest value read, as bits */
};

struct variant {
    /* the key of the variant: the slots read by the network whose columns are shared */
    uint64_t shared[FR_SLOTS_MAX / 64];
    uint64_t last_used;
    uint32_t n_spaces, capacity_spaces;
    struct space *spaces;
    uint32_t n_nodes, capacity_nodes;
    struct node *nodes; /* nodes in evaluation order */
    uint32_t n_buffers;
    struct node_buffer *buffers;
    uint32_t n_linears;
    struct linear *linears;
    uint32_t n_pack_tasks, n_pack_t_tasks, n_gradient_tasks, n_join_tasks;
    struct pack_task *pack_tasks, *pack_t_tasks;
    struct gradient_task *gradient_tasks;
    uint32_t *join_tasks; /* node * FR_NODE_PARAMETERS + partial */
    /* [n_gradient_tasks + 1] first block of each task, for this batch's blocks of rows */
    uint32_t *gradient_begin;
    uint32_t *gradient_bits; /* [n_gradient_tasks + n_join_tasks] */
    uint32_t *output_node;   /* [n_outputs] at sample level */
    /* [n_outputs] how their gradients are written: zero_buffer, accumulate */
    struct argument *output_claim;
    struct table_sources *tables; /* [n_tables] */
    uint32_t n_sums;
    struct row_sums *sums;
    uint32_t capacity_chunks[LEVELS]; /* of the partials */
    uint32_t capacity_lanes;          /* of the linears' packed gradients */
};

/* ---- outputs, tasks, tables: outside the variants ---- */

/* A layer that some task uses as a logit. The forward pass writes `values` for all samples; loss.c
 * writes `gradient` (all n_samples elements, zeros included) before fr_graph_backward. */
struct output {
    uint32_t layer;
    /* bit set of the tasks with a loss that use the output, directly or as a factor of a product */
    uint32_t losses;
    float *values, *gradient; /* [capacity_samples] */
};

/* The first labels of a task. While they are few, the bias of the task's logit follows their
 * log-odds. */
struct prior {
    /* the bias parameter; FR_NO_INDEX: there is none, or it is not to follow the labels */
    int32_t bias;
    double weight, positives; /* sums over the samples so far */
    uint64_t samples;
};

/* What a pairwise task compares in this batch (ranking_pairs.c). For other tasks the pointers of
 * task_pairs are NULL. */
struct pair_group {
    /* samples that are part of a pair: all that are trained, labelled and of weight > 0, or none */
    uint32_t n;
    uint32_t partners; /* the most samples with a smaller label that each sample is compared with */
    float scale;       /* n / pairs */
};
struct task_pairs {
    /* [capacity_samples] a group's part begins at the index of its first sample */
    uint32_t *order, *lower;
    struct pair_group *groups; /* [capacity_pair_groups] */
};

struct task_state {
    struct prior prior;
    /* the output of the task's own logit; FR_NO_INDEX: the product of the outputs of its `prob`
     * tasks */
    int32_t output;
    float *logits;    /* [capacity_samples], filled by fr_graph_task_logits */
    float *at_logits; /* where operations read the logits: `logits`, or the device's copy */
    struct task_pairs pairs;
};

struct table_state {
    uint32_t n_parts;
    struct fr_row_part parts[FR_PARTS_MAX]; /* with the optimizer of this step */
    uint32_t n_groups;                      /* number of slots of the table */
};

struct dense_task {
    uint32_t parameter;
    size_t begin, end;
};

struct fr_graph {
    const struct fr_conf *conf;
    const struct fr_ops *ops; /* the processor's operations */
    /* the device that computes instead (device.h); NULL: the processor computes */
    struct graph_device *device;
    /* entries computed by one call: conf->chunk_rows, or a whole batch on a device */
    uint32_t chunk_rows;
    bool pads; /* vectors are computed in whole chunks, zero-padded */
    struct fr_pool *pool;
    bool scoring_only;
    uint32_t workers;
    bool has_dropout;
    const struct fr_clock *clock; /* NULL: times are not measured */
    struct fr_graph_times times;

    bool layer_live[FR_LAYERS_MAX]; /* a task or an auxiliary loss reaches the layer */
    uint64_t slots_read[FR_SLOTS_MAX / 64];
    uint32_t n_variants;
    struct variant *variants[FR_VARIANTS_MAX]; /* [0]: nothing is shared; it is never freed */
    struct variant *variant;                   /* the variant of the last forward pass */
    uint64_t variant_clock;
    size_t variant_bytes_max;

    /* Made by parameters.c. Parameters are ordered by layer; those of slots with statistics
     * follow. */
    size_t n_parameters, capacity_parameters;
    struct fr_parameter *parameters;
    struct parameter_state *parameter_states;
    struct place *places;   /* [parameters] */
    uint32_t n_dense_tasks; /* blocks of values of live parameters */
    struct dense_task *dense_tasks;
    double *dense_squares; /* [n_dense_tasks] sums of squares of gradients, for clip_norm */
    struct fr_row_layout *layouts;
    /* graph.c allocates the array and sets n_groups; parameters.c fills the parts */
    struct table_state *tables;
    uint32_t *row_block_begin; /* [n_tables + 1] first row task of each table */
    uint32_t *worker_bits;     /* [workers] */
    float *scratch;            /* [workers, scratch_floats] scratch of row updates */
    size_t scratch_floats;
    uint32_t n_loss_sets, capacity_loss_sets;
    struct loss_set *loss_sets;
    uint64_t steps;           /* steps of the optimizer: batches that moved anything */
    uint64_t trained_samples; /* samples trained by those steps, for schedules */
    uint64_t changes;         /* steps of this run */
    /* statistics of standardize and dice (statistics.c); NULL if scoring_only */
    struct statistics *statistics;

    uint32_t n_outputs;
    struct output *outputs;
    struct task_state *tasks;
    /* Capacity of the arrays below and of those in outputs and tasks; a multiple of chunk_rows. */
    uint32_t capacity_samples;
    uint8_t *trained; /* [capacity_samples] 1: the sample has role TRAIN */
    /* [capacity_samples] bit t: the sample counts for task t; bit n_tasks + i: it counts for
     * auxiliary loss i. Set by fr_graph_count_unmasked. */
    uint32_t *sample_losses;
    uint32_t *step_counts;    /* [capacity_samples] steps that counted for one next_step */
    float *effective_weights; /* [capacity_samples] weights computed by loss.c */
    /* [capacity_samples] sums of one pairwise task; NULL if there is no such task */
    double *pair_sums;
    /* [capacity_samples / FR_PAIR_SAMPLES, rounded up for each lane] */
    struct fr_graph_loss *pair_blocks;
    uint32_t capacity_pair_groups; /* capacity of the tasks' pairs */
    uint32_t capacity_groups;
    uint32_t n_trained; /* samples of this batch with role TRAIN */

    uint32_t capacity_chunks[LEVELS];
    /* [chunks of samples, then of groups] the largest gradient of a leaf with rows, as bits */
    uint32_t *chunk_bits;
    double *loss_partial;         /* [chunks of samples, n_losses] sums of auxiliary losses */
    struct fr_graph_loss *losses; /* [n_tasks + n_losses] from the last fr_graph_train */
    struct fr_view *views;        /* [workers, 2 * views_max] of an interaction and its gradients */
    uint32_t views_max;
    float *workspace; /* [workers, workspace_floats] for gru and attention_dense */
    size_t workspace_floats;
    uint32_t n_samples, n_groups; /* of the batch of the last forward pass */
    struct lanes lanes;           /* of that batch */
    struct span_sums sums;        /* of the last training step */
    bool swept;                   /* its backward pass was made: table_sources.sources are filled */
    struct row_ranks *row_ranks;  /* row_ranks.c; NULL: there was no step over ranks */
    /* [workers, FR_LANE_TREE_DEPTH, lane_floats] products of a block of kernel rows that wait to be
     * joined, and the product of one block of rows; NULL: there was no batch with several lanes */
    float *lane_products;
    size_t lane_floats;
    /* [workers, padded_floats] both sides of a product of a whole chunk; NULL as above */
    float *padded;
    size_t padded_floats;
};

/* What one call works on, for its pool tasks. */
struct graph_run {
    struct fr_graph *graph;
    const struct fr_batch *batch;
    const struct fr_rows *rows;
    /* what operations are given: batch and rows themselves, or copies with device pointers */
    const struct fr_batch *at_batch;
    const struct fr_rows *at_rows;
    bool training; /* dropout masks are on */
    /* Results of fr_graph_backward. */
    uint32_t parameter_bits; /* largest |gradient| of any live parameter, as bits (ops->max_bits) */
    /* largest |gradient|, as bits, of any vector or step that a table row contributed to */
    uint32_t leaf_bits;
};

/* ---- parameters.c ---- */

struct fr_optimizer fr_graph_optimizer_of(const struct fr_optimizer *conf);

/* Makes and initialises all parameters of all layers, including layers that no task reaches, in the
 * order of the configured layers, followed by the statistics of standardized slots. Also allocates
 * parameter_states (zeroed). Called before compiling. */
void fr_graph_make_parameters(struct fr_graph *graph);
/* Finds a parameter, which must exist, by its full name. */
uint32_t fr_graph_find_parameter(const struct fr_graph *graph, const char *name);
/* Makes gradients and optimizer state of live parameters (those that a loss reaches), dense_tasks,
 * the tables' parts, and the scratch of row updates. Called after the first variant was compiled,
 * when the losses are known; not called if scoring_only. */
void fr_graph_make_states(struct fr_graph *graph);
/* prior.c: finds each task's bias, after the parameters are made. */
void fr_graph_make_priors(struct fr_graph *graph);
/* Frees all that parameters.c allocated. */
void fr_graph_free_parameters(struct fr_graph *graph);

/* ---- loss.c ---- */

/* Called after the forward pass: fills every task's logits from the outputs' values. */
void fr_graph_task_logits(struct graph_run *run);
/* Fills sample_losses and counts its bits, after `trained` and the nodes' masks are set. false: no
 * bit is set, so there is no step. */
bool fr_graph_count_unmasked(struct graph_run *run);
/* Returns the number of samples of this batch that count for any of `losses` (bits as in
 * sample_losses). */
uint32_t fr_graph_count_losses(const struct fr_graph *graph, uint32_t losses);
/* For all samples, fills the gradient of the weighted sum of the tasks' losses at every trained
 * output, and computes the sums of the losses, without their weights, for each span. */
void fr_graph_losses(struct graph_run *run);
/* Sets the losses' sums, with their weights, from the joined numbers. */
void fr_graph_weigh_losses(struct fr_graph *graph);
/* Called after fr_graph_weigh_losses. Returns the loss as it is shown: for each loss the mean over
 * the samples that counted, added up with the losses' weights. */
double fr_graph_mean_loss(const struct fr_graph *graph);

/* ---- compile.c ---- */

struct variant *fr_graph_compile(const struct fr_graph *graph, const uint64_t *shared);
/* Assigns the numbers of loss sets to a variant's nodes and adds new sets. Not called if
 * scoring_only. */
void fr_graph_find_loss_sets(struct fr_graph *graph, struct variant *v);
void fr_graph_free_variant(const struct fr_graph *graph, struct variant *variant);
/* pooled_sums.c: finds the row_sums of a compiled variant. */
void fr_graph_find_sums(const struct fr_graph *graph, struct variant *v);
void fr_graph_free_sums(struct variant *v);

/* ---- forward.c, backward.c: what fr_graph_train calls, in this order ---- */

/* Fills the loss sets of the batch from sample_losses. */
void fr_graph_fill_sets(struct graph_run *run);
/* Fills trained, n_trained. */
void fr_graph_mark_trained(struct graph_run *run);
/* Repeats the forward pass with dropout masks if the network has dropout: nodes and outputs get new
 * values, and the tasks' logits stay. */
void fr_graph_forward_training(struct graph_run *run);
/* Computes, from the outputs' gradients, the gradients of all live parameters and of leaves
 * (table_sources.sources), the auxiliary losses, and the results at the end of struct graph_run. It
 * changes no parameter and no row. */
void fr_graph_backward(struct graph_run *run);

static inline uint32_t fr_blocks_of(size_t n, size_t size)
{
    return (uint32_t)((n + size - 1) / size);
}

static inline bool fr_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

/* Returns row `row` of a node, counted from the beginning of its space. */
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

/* Returns NULL if the device has no more memory; the device's status then reports it. */
void *fr_graph_memory(const struct fr_graph *graph, size_t bytes) FR_MUST_CHECK;
void fr_graph_release(const struct fr_graph *graph, void *memory);
/* Host memory for results. With a device it is pinned, because a copy to pageable memory makes the
 * caller wait for everything started. NULL as above. */
void *fr_graph_answer_memory(const struct fr_graph *graph, size_t bytes) FR_MUST_CHECK;
void fr_graph_answer_release(const struct fr_graph *graph, void *memory);
void fr_graph_clear(const struct fr_graph *graph, void *memory, size_t bytes);
/* Puts a small array of the host where operations of the current piece (begin_graph) can read it,
 * until the end of the step. */
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
