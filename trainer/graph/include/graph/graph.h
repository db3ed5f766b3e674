/* The layer graph: forward, loss, backward and updates over a batch and its resolved rows, and
 * scoring. It knows no store.
 *
 * A sample's logit has the same bits alone and in any batch where ops->rows_independent (fr_ops_cpu
 * on processors with FMA). Else forward products run on exactly conf->chunk_rows rows, zero-padded,
 * and the bits depend on a sample's place in its chunk (P12, docs/architecture.md, "Exactness").
 * With shared columns the bits are the same too where dense layers read what is shared before the
 * rest; else the order of their sums differs (1e-6 of the logit).
 *
 * Everything is split over the pool by fixed chunks and fixed blocks, and numbers do not depend on
 * its size. A row's gradients are summed in occurrence order (slot by slot, entry by entry), dense
 * gradients over rows in fixed order; there are no float atomics.
 *
 * Owns: parameters, optimizer state, activations (sized at the first batch of a size, then reused).
 * Thread: the owner loop. */
#ifndef FR_GRAPH_GRAPH_H
#define FR_GRAPH_GRAPH_H

#include "base/pool.h"
#include "base/clock.h"
#include "batch/batch.h"
#include "batch/rows.h"
#include "conf/conf.h"
#include "numerics/first_values.h"
#include "ops/ops.h"

/* All values first, then all optimizer state (fr_row_state_floats). */
void fr_graph_row_layout(const struct fr_conf_table *table, struct fr_row_layout *out);

struct fr_graph;
struct fr_graph_device;
struct fr_device_api;
struct fr_device_queue;

struct fr_graph_options {
    const struct fr_conf *conf; /* borrowed for the graph's life */
    const struct fr_ops *ops;   /* NULL: of conf->precision; f32 where it only scores */
    struct fr_pool *pool;       /* borrowed; NULL: no threads */
    bool scoring_only;          /* no gradients, no optimizer state; rows hold value_floats only */
    /* of all activations: beyond, sets of shared slots seen before go; 0: 1 GiB */
    size_t variant_bytes_max;
    const struct fr_clock *clock;         /* borrowed; NULL: fr_graph_get_times stays 0 */
    const struct fr_graph_device *device; /* NULL: the processor. Not scoring_only. */
};

/* A device that the graph computes on, and where it finds a row in the store: the address of its
 * floats on the host, NULL when memory has none. Where it knows the places of first values, it
 * makes them itself for rows that a batch makes, with the store's bits; else those come from the
 * store as others do. */
typedef float *fr_graph_row_of(void *self, uint32_t table, uint64_t key);
struct fr_graph_device {
    const struct fr_device_api *api;
    struct fr_device_queue *queue; /* borrowed, and this graph's alone */
    size_t row_bytes_max;          /* of the rows that it keeps; 0: what it has */
    fr_graph_row_of *row_of;
    void *self;
    const struct fr_value_place *first_places; /* [tables] seed and stream, copied; NULL: unknown */
};

/* FR_E_UNSUPPORTED: this processor cannot train as conf->precision says, and fr_graph_new must not
 * be called but with scoring_only. */
enum fr_status fr_graph_check_machine(const struct fr_conf *conf, struct fr_err *err);

/* The config loader has checked everything: bounds, shapes (fr_conf_layer.width, is_sequence),
 * where optimizers stand. Parameters are initialised from conf->seed by name. */
struct fr_graph *fr_graph_new(const struct fr_graph_options *options);
void fr_graph_free(struct fr_graph *graph);

struct fr_parameter {
    /* <layer>/kernel [in, out] row-major, <layer>/bias [out]; of an mlp <layer>/0/kernel .. */
    char name[160];
    uint32_t n_dims; /* 2 or 1 */
    uint32_t shape[2];
    size_t n_values;
    float *values; /* 64-byte aligned */
    /* What replicas get: `values` itself, or their moving average (export.average), which a step
     * moves too. */
    float *published;
    bool trained; /* false: statistics (standardize, dice), updated without gradient */
    bool exact;   /* published as f32 whatever export.quantize says: statistics */
    /* How often this run changed values or optimizer state: who carries them somewhere compares it
     * with what he saw. */
    uint64_t changes;
};
/* Brings what a device has newer to the host: parameters, their state, and rows into the store
 * (row_of). Before anybody reads them: a cut, a sweep that looks at values. FR_OK and nothing to do
 * on the processor. An error is final: nothing of the device may be taken, and the state is that of
 * the last durable epoch. */
enum fr_status fr_graph_settle(struct fr_graph *graph, struct fr_err *err) FR_MUST_CHECK;
/* The first error of the device; FR_OK: none. It is final too. */
enum fr_status fr_graph_failure(const struct fr_graph *graph, struct fr_err *err);

size_t fr_graph_parameter_count(const struct fr_graph *graph);
/* Counts the bytes of activations and their gradients that are held now. One batch has what it
 * needs, whatever variant_bytes_max: per sample, per group and per step of a sequence the network's
 * widths, 8 bytes a number (4 when scoring only). Packed kernels and gradients are not in it. */
size_t fr_graph_variant_bytes(const struct fr_graph *graph);
struct fr_parameter *fr_graph_parameters(struct fr_graph *graph);

/* Makes the forward pass as served (without dropout). It gives logits of every task for
 * batch->n_samples; for tasks of `prob` the logit of the product, for mse the prediction. Shared
 * columns are computed once per group: what depends only on them runs on one row per group and is
 * expanded where it meets the samples' own; a dense layer over both is two products. */
void fr_graph_forward(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows);
const float *fr_graph_logits(const struct fr_graph *graph,
                             uint32_t task); /* [n_samples], valid until the next forward */

/* Trains after forward on the same batch and rows. Logits stay as forward left them; with dropout
 * layers a second forward pass with masks is made first. It computes gradients of the tasks' summed
 * losses over unmasked trained samples, never divided by what the batch happens to be, and then
 * makes dense and row updates in place.
 *
 * *loss (may be NULL) is the mean: per task and auxiliary loss sum w l / samples that counted,
 * added up by weight; w includes 1/s as ingest.sampling says. Without an unmasked trained sample
 * there is no step, and the loss is 0.
 *
 * FR_E_NONFINITE says that a logit (of any sample), the loss or a gradient is not finite, or a
 * gradient exceeds 1e15; nothing was changed. */
enum fr_status fr_graph_train(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                              double *loss) FR_MUST_CHECK;
/* The same in two halves, with the same arguments. On a device the first one starts all of it and
 * the second one waits, so the caller has something to do in between; batch and rows stay as they
 * are until then, but for rows' addresses and values in the store. On the processor the first one
 * does nothing. */
void fr_graph_train_begin(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows);
enum fr_status fr_graph_train_finish(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                                     double *loss) FR_MUST_CHECK;
bool fr_graph_runs_beside(const struct fr_graph *graph);
/* Between the two on a device: the next batch, resolved before its turn, is sent there beside the
 * step, and of its rows those that the device lacks, as far as there is room. It does not matter
 * whether that batch comes; the next forward pass, if it is of this batch and these rows, takes
 * both as they are now. */
void fr_graph_bring(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows);
uint64_t fr_graph_rows_brought(const struct fr_graph *graph); /* so far */

/* How long all calls of fr_graph_train took by the clock: losses and gradients, updates. */
struct fr_graph_times {
    uint64_t backward_ns, update_ns;
};
struct fr_graph_times fr_graph_get_times(const struct fr_graph *graph);

/* What counted of a task or an auxiliary loss in the last batch that was trained. */
struct fr_graph_loss {
    /* with a label, trained; pairwise: that stand in a pair; next_step: with a next step */
    uint32_t samples;
    uint64_t pairs; /* pairwise */
    double sum;     /* of the samples' losses, weighted */
};
/* [n_tasks + n_losses], tasks first; valid until the next fr_graph_train. */
const struct fr_graph_loss *fr_graph_losses_of(const struct fr_graph *graph);

/* Why a sample may be what a batch was refused for. */
enum fr_suspect_why {
    FR_SUSPECT_NONE,
    FR_SUSPECT_LOGIT,    /* of task `where` */
    FR_SUSPECT_LOSS,     /* the gradient of its loss */
    FR_SUSPECT_VALUE,    /* of a node, of slot `where` when it is a slot's */
    FR_SUSPECT_GRADIENT, /* of a node, or what it gives to a parameter */
    FR_SUSPECT_ROW,      /* what it gives to rows of slot `where` */
};
#define FR_SUSPECT_NOWHERE UINT32_MAX
struct fr_suspect {
    enum fr_suspect_why why;
    uint32_t where;
};
/* Fills suspects [n_samples] right after fr_graph_train said FR_E_NONFINITE for the same batch and
 * rows (not yet undone), and returns how many there are; with 0 nothing points at a sample.
 * Determinism: a function of state and batch. */
uint32_t fr_graph_suspects(const struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                           struct fr_suspect *suspects);
/* Puts one finding in words, printable ASCII, with the largest number the sample brought. */
void fr_graph_suspect_text(const struct fr_graph *graph, const struct fr_batch *batch, uint32_t sample,
                           struct fr_suspect found, char *text, size_t size);

/* Says whether the loss of a task reaches anything that can be trained. It does not when the logit
 * has no parameter and no row behind it but through stop_gradient or a layer_norm of width 1 (whose
 * output is its bias). It is true for `loss: none`. */
bool fr_graph_task_learns(const struct fr_graph *graph, uint32_t task);

/* What begins at zero and never leaves it, whatever samples come: rows' values in `table`, `part`,
 * or, table being FR_NO_INDEX, the kernels of `layer`; `layer`: where no gradient comes back, for
 * all it meets there is zero too. */
struct fr_graph_stuck {
    int32_t table, part, layer;
};
/* Finds at most `capacity` of them and returns how many. It must not be called when scoring only. A
 * part that another reader teaches is none. */
uint32_t fr_graph_find_stuck(const struct fr_graph *graph, struct fr_graph_stuck *out, uint32_t capacity);

/* Before the first step: the values of parameters for which `given` [parameters] is true were
 * written from a model that was trained elsewhere. Statistics go on from theirs, an average begins
 * with them, and a task's bias no longer begins at its first labels. FR_E_INVALID: of statistics
 * that belong together some are missing, or a count or variance is not possible; the graph is only
 * good for fr_graph_free then. */
enum fr_status fr_graph_adopt(struct fr_graph *graph, const bool *given, struct fr_err *err) FR_MUST_CHECK;
/* The same of a parameter's optimizer state: `n` arrays as large as its values, one after another,
 * (adam, adamw: m, v; ftrl: z, n; adagrad, momentum, rmsprop: one), and the samples that it was
 * stepped for. FR_E_INVALID: its optimizer has other arrays, or one is negative that never is. */
enum fr_status fr_graph_adopt_state(struct fr_graph *graph, size_t parameter, const float *values, uint32_t n,
                                    uint64_t samples, struct fr_err *err) FR_MUST_CHECK;

/* Optimizer state of the dense parameters, in parts that change apart: what they share (steps,
 * trained samples, what is behind the statistics), for the section "dense_state", and each
 * parameter's own, for "dense_state/<parameter>". A part is restored whole or not at all:
 * FR_E_CORRUPT, FR_E_MISMATCH (version, network or optimizer are other ones). */
void fr_graph_save_shared(const struct fr_graph *graph, struct fr_buffer *out);
enum fr_status fr_graph_restore_shared(struct fr_graph *graph, const uint8_t *bytes, size_t size) FR_MUST_CHECK;
uint64_t fr_graph_shared_changes(const struct fr_graph *graph); /* as struct fr_parameter.changes */
void fr_graph_save_parameter(const struct fr_graph *graph, size_t parameter, struct fr_buffer *out);
enum fr_status fr_graph_restore_parameter(struct fr_graph *graph, size_t parameter, const uint8_t *bytes,
                                          size_t size) FR_MUST_CHECK;
/* Finds the trained values [n] in a parameter's part, perhaps unaligned; NULL when it holds none,
 * because what is published is they. */
const uint8_t *fr_graph_trained_values(const uint8_t *bytes, size_t size, uint64_t n);
/* Both take all parts one after another, the shared one last: the whole state at once. */
void fr_graph_save_state(const struct fr_graph *graph, struct fr_buffer *out);
enum fr_status fr_graph_restore_state(struct fr_graph *graph, const uint8_t *bytes, size_t size) FR_MUST_CHECK;
/* Counts the bytes of values and optimizer state of all parameters, which an epoch holds when all
 * of them changed. */
uint64_t fr_graph_bytes(const struct fr_graph *graph);

/* Names the arithmetic of the products: the `kernel` of the model record. "fma 1" means the same
 * bits on every processor with FMA; else it is BLAS library, version and core type. */
const char *fr_graph_kernel(const struct fr_graph *graph);

#endif
