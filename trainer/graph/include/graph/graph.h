/* The layer graph: forward, loss, backward and updates over a batch and its resolved rows, and
 * scoring. The graph does not depend on the store.
 *
 * If ops->rows_independent is true (fr_ops_cpu on processors with FMA), a sample's logit has the
 * same bits alone and in any batch. Otherwise forward products run on exactly conf->chunk_rows
 * rows, zero-padded, and the bits depend on the sample's place in its chunk (P12,
 * docs/architecture.md, "Exactness"). With shared columns the bits are also the same where dense
 * layers read the shared columns before the others; otherwise the order of the sums differs (1e-6
 * of the logit).
 *
 * All work is split over the pool in fixed chunks and fixed blocks, so the results do not depend on
 * the pool's size. A row's gradients are summed in occurrence order (slot by slot, entry by entry),
 * dense gradients over rows in fixed order; there are no float atomics.
 *
 * Owns: parameters, optimizer state, activations (sized at the first batch of a size, then reused).
 * Thread: the owner loop. */
#ifndef FR_GRAPH_GRAPH_H
#define FR_GRAPH_GRAPH_H

#include "base/pool.h"
#include "base/clock.h"
#include "base/ranks.h"
#include "batch/batch.h"
#include "batch/rows.h"
#include "conf/conf.h"
#include "numerics/first_values.h"
#include "ops/ops.h"

/* Writes the layout of a table's row: all values first, then all optimizer state
 * (fr_row_state_floats). */
void fr_graph_row_layout(const struct fr_conf_table *table, struct fr_row_layout *out);

struct fr_graph;
struct fr_graph_device;
struct fr_device_api;
struct fr_device_queue;

struct fr_graph_options {
    const struct fr_conf *conf; /* borrowed for the graph's life */
    const struct fr_ops *ops;   /* NULL: the table for conf->precision, or f32 if scoring_only */
    struct fr_pool *pool;       /* borrowed; NULL: everything runs on the calling thread */
    /* no gradients and no optimizer state; rows hold value_floats only */
    bool scoring_only;
    /* Limit in bytes for the activations of all variants. Beyond it, the least recently used
     * variants are freed. 0: 1 GiB. */
    size_t variant_bytes_max;
    const struct fr_clock *clock;         /* borrowed; NULL: fr_graph_get_times stays 0 */
    const struct fr_graph_device *device; /* NULL: the processor; must be NULL if scoring_only */
    /* the lanes that this process has, if it is one of several ranks (graph/ranks.h); 0, 0: all */
    struct fr_domains lanes;
    uint32_t rank, n_ranks; /* then: which of how many ranks this process is */
};

/* A device that the graph computes on, and the function that finds a row in the store. The function
 * returns the address of the row's floats on the host, or NULL if the row is not in memory. If
 * first_places is given, the device computes the first values of rows that a batch creates, with
 * the same bits as the store. Otherwise these values are copied from the store like all others. */
typedef float *fr_graph_row_of(void *self, uint32_t table, uint64_t key);
struct fr_graph_device {
    const struct fr_device_api *api;
    struct fr_device_queue *queue; /* borrowed; used by this graph only */
    /* memory limit for the rows kept on the device; 0: all memory it has */
    size_t row_bytes_max;
    fr_graph_row_of *row_of;
    void *self;
    const struct fr_value_place *first_places; /* [tables] seed and stream, copied; NULL: none */
};

/* FR_E_UNSUPPORTED: this processor cannot train with conf->precision, and fr_graph_new may only be
 * called with scoring_only. */
enum fr_status fr_graph_check_machine(const struct fr_conf *conf, struct fr_err *err);

/* Makes a graph. The configuration must have been checked by the loader: bounds, shapes
 * (fr_conf_layer.width, is_sequence), the places of optimizers. Parameters are initialised from
 * conf->seed and their names. */
struct fr_graph *fr_graph_new(const struct fr_graph_options *options);
void fr_graph_free(struct fr_graph *graph);

struct fr_parameter {
    /* <layer>/kernel [in, out] row-major, <layer>/bias [out]; for an mlp <layer>/0/kernel and so
     * on */
    char name[160];
    uint32_t n_dims; /* 2 or 1 */
    uint32_t shape[2];
    size_t n_values;
    float *values; /* 64-byte aligned */
    /* What replicas receive: `values` itself, or their moving average (export.average), which each
     * step updates too. */
    float *published;
    bool trained; /* false: statistics (standardize, dice), updated without gradient */
    bool exact;   /* always published as f32, whatever export.quantize is: statistics */
    /* The number of times this run changed the values or the optimizer state. A caller that copies
     * them compares it with the number at the last copy. */
    uint64_t changes;
};
/* Copies everything that is newer on the device to the host: parameters, their state, and rows
 * into the store (row_of). Must be called before any of these are read, for example by a cut or
 * by a sweep that examines values. On the processor this does nothing and returns FR_OK. An
 * error is final: nothing on the device may be used, and the valid state is that of the last
 * durable epoch. */
enum fr_status fr_graph_fetch(struct fr_graph *graph, struct fr_err *err) FR_MUST_CHECK;
/* Returns the first error of the device, which is final; FR_OK: none. */
enum fr_status fr_graph_failure(const struct fr_graph *graph, struct fr_err *err);

size_t fr_graph_parameter_count(const struct fr_graph *graph);
/* Returns the bytes that activations and their gradients occupy now. A batch gets what it needs,
 * whatever variant_bytes_max is: for each sample, group and step of a sequence the widths of the
 * network, at 8 bytes a number (4 if scoring_only). Packed kernels and packed gradients are not
 * counted. */
size_t fr_graph_variant_bytes(const struct fr_graph *graph);
struct fr_parameter *fr_graph_parameters(struct fr_graph *graph);

/* Runs the forward pass as a replica does (without dropout). It computes the logits of every task
 * for batch->n_samples samples; for tasks with `prob` the logit of the product, for mse the
 * prediction. Shared columns are computed once per group: nodes that depend only on them have one
 * row per group, which is expanded where it meets the samples' own columns. A dense layer over both
 * kinds is computed as two products. */
void fr_graph_forward(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows);
const float *fr_graph_logits(const struct fr_graph *graph,
                             uint32_t task); /* [n_samples], valid until the next forward */

/* Trains on the batch and rows of the preceding fr_graph_forward. The logits stay as the forward
 * pass left them; with dropout layers a second forward pass with masks runs first. The function
 * computes the gradients of the tasks' losses, summed over unmasked trained samples and not divided
 * by the size of the batch, and then updates dense parameters and rows in place.
 *
 * *loss (may be NULL) is the mean loss: for each task and auxiliary loss, sum w l / samples that
 * counted, added up with the losses' weights; w includes 1/s according to ingest.sampling. Without
 * an unmasked trained sample there is no step, and the loss is 0.
 *
 * FR_E_NONFINITE: a logit (of any sample), the loss or a gradient is not finite, or a gradient
 * exceeds 1e15. Nothing was changed. */
enum fr_status fr_graph_train(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                              double *loss) FR_MUST_CHECK;
/* fr_graph_train in two halves, with the same arguments. On a device the first half starts
 * everything and the second half waits, so the caller can work in between. Until the second half
 * returns, batch and rows must not change, except the addresses of rows and their values in the
 * store. On the processor the first half does nothing. */
void fr_graph_train_begin(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows);
enum fr_status fr_graph_train_finish(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                                     double *loss) FR_MUST_CHECK;
bool fr_graph_runs_beside(const struct fr_graph *graph);
/* On a device, between fr_graph_train_begin and fr_graph_train_finish: sends the next batch, which
 * was resolved early, to the device while it computes the step, together with those of the batch's
 * rows that the device lacks and has room for. The next forward pass uses both, as they are now, if
 * it is of this batch and these rows; otherwise they are ignored. */
void fr_graph_bring(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows);
uint64_t fr_graph_rows_brought(const struct fr_graph *graph); /* total so far */

/* Total time of all calls of fr_graph_train: losses and gradients, and updates. */
struct fr_graph_times {
    uint64_t backward_ns, update_ns;
};
struct fr_graph_times fr_graph_get_times(const struct fr_graph *graph);

/* What counted for a task or an auxiliary loss in the last trained batch. */
struct fr_graph_loss {
    /* trained samples with a label; pairwise: that are part of a pair; next_step: with a next
     * step */
    uint32_t samples;
    uint64_t pairs; /* pairwise */
    double sum;     /* weighted sum of the samples' losses */
};
/* [n_tasks + n_losses], tasks first, of all ranks; valid until the next fr_graph_train or
 * fr_graph_sum. */
const struct fr_graph_loss *fr_graph_losses_of(const struct fr_graph *graph);

/* The reason why a sample is suspected of having caused a refusal of its batch. */
enum fr_suspect_why {
    FR_SUSPECT_NONE,
    FR_SUSPECT_LOGIT,    /* the logit of task `where` */
    FR_SUSPECT_LOSS,     /* the gradient of its loss */
    FR_SUSPECT_VALUE,    /* a value of a node, and of slot `where` if the node reads a slot */
    FR_SUSPECT_GRADIENT, /* a gradient of a node, or its contribution to a parameter */
    FR_SUSPECT_ROW,      /* its contribution to rows of slot `where` */
};
#define FR_SUSPECT_NOWHERE UINT32_MAX
struct fr_suspect {
    enum fr_suspect_why why;
    uint32_t where;
};
/* Examinations of a refused batch, in the order in which they are made. */
enum fr_suspect_look {
    FR_SUSPECT_LOOK_LOGITS,
    FR_SUSPECT_LOOK_OUTPUTS, /* the gradients of the outputs */
    FR_SUSPECT_LOOK_ALONE,   /* single values and gradients of the network */
    FR_SUSPECT_LOOK_SQUARES, /* squares for statistics */
    FR_SUSPECT_LOOK_SHARES,  /* contributions to sums that exceed a bound */
    FR_SUSPECT_LOOKS,
};
/* Makes one examination, fills suspects [n_samples] and returns their number. If it is 0, on all
 * ranks, the next examination is made; if the last one finds none, no sample can be identified.
 * Must be called directly after fr_graph_train returned FR_E_NONFINITE, or fr_graph_join_sums
 * refused the step, for the same batch and rows, before the plan is undone. The result is a
 * function of state and batch. */
uint32_t fr_graph_suspects(const struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                           enum fr_suspect_look look, struct fr_suspect *suspects);
/* Describes one finding in printable ASCII, with the largest number in the sample. */
void fr_graph_suspect_text(const struct fr_graph *graph, const struct fr_batch *batch, uint32_t sample,
                           struct fr_suspect found, char *text, size_t size);

/* Returns whether the loss of a task reaches anything that can be trained. It does not if every
 * path from the logit to a parameter or a row passes through stop_gradient or a layer_norm of width
 * 1 (whose output is its bias). The result is true for `loss: none`. */
bool fr_graph_task_learns(const struct fr_graph *graph, uint32_t task);

/* Values that begin at zero and stay there, whatever samples arrive: the rows' values in `table`,
 * `part`, or, if table is FR_NO_INDEX, the kernels of `layer`. `layer` is where the gradient ends,
 * because everything the values are combined with there is zero too. */
struct fr_graph_stuck {
    int32_t table, part, layer;
};
/* Finds at most `capacity` such values and returns their number. Must not be called if
 * scoring_only. A part that learns through another reader is not reported. */
uint32_t fr_graph_find_stuck(const struct fr_graph *graph, struct fr_graph_stuck *out, uint32_t capacity);

/* Call before the first step, after the values of the parameters for which `given` [parameters] is
 * true were set from a model that was trained elsewhere. Statistics continue from the given ones, a
 * moving average begins with the given values, and a given task bias is no longer derived from the
 * first labels. FR_E_INVALID: statistics that belong together are incomplete, or a count or
 * variance is impossible; the graph can then only be freed. */
enum fr_status fr_graph_adopt(struct fr_graph *graph, const bool *given, struct fr_err *err) FR_MUST_CHECK;
/* The same for a parameter's optimizer state: `n` arrays, each as large as the values, one after
 * another (adam, adamw: m, v; ftrl: z, n; adagrad, momentum, rmsprop: one), and the number of
 * samples that the parameter was stepped for. FR_E_INVALID: the parameter's optimizer has other
 * arrays, or a number is negative that cannot be. */
enum fr_status fr_graph_adopt_state(struct fr_graph *graph, size_t parameter, const float *values, uint32_t n,
                                    uint64_t samples, struct fr_err *err) FR_MUST_CHECK;

/* Optimizer state of the dense parameters, in parts that change independently: the shared part
 * (steps, trained samples, the accumulators of the statistics) is the section "dense_state", and
 * each parameter's own part is "dense_state/<parameter>". A part is restored whole or not at all.
 * Errors: FR_E_CORRUPT; FR_E_MISMATCH (another version, network or optimizer). */
void fr_graph_save_shared(const struct fr_graph *graph, struct fr_buffer *out);
enum fr_status fr_graph_restore_shared(struct fr_graph *graph, const uint8_t *bytes, size_t size) FR_MUST_CHECK;
/* counted as in struct fr_parameter.changes */
uint64_t fr_graph_shared_changes(const struct fr_graph *graph);
void fr_graph_save_parameter(const struct fr_graph *graph, size_t parameter, struct fr_buffer *out);
enum fr_status fr_graph_restore_parameter(struct fr_graph *graph, size_t parameter, const uint8_t *bytes,
                                          size_t size) FR_MUST_CHECK;
/* Returns the trained values [n] within a parameter's part, possibly unaligned. NULL: the part
 * holds none, because the published values are the trained ones. */
const uint8_t *fr_graph_trained_values(const uint8_t *bytes, size_t size, uint64_t n);

/* Names the arithmetic of the products: the `kernel` of the model record. "fma 1" means the same
 * bits on every processor with FMA; else it is BLAS library, version and core type. */
const char *fr_graph_kernel(const struct fr_graph *graph);

#endif
