/* The parts of the module: one struct for each file that owns it. All of it belongs to the owner
 * loop, except struct insight_published. */
#ifndef FR_INSIGHT_PRIVATE_H
#define FR_INSIGHT_PRIVATE_H

#include <pthread.h>

#include "base/json.h"
#include "decayed_auc.h"
#include "drift.h"
#include "graph/step_view.h"
#include "hot_keys.h"
#include "insight/insight.h"
#include "key_sample.h"

enum {
    INSIGHT_STEPPED = 32, /* keys of a slot whose step is measured in one batch */
    INSIGHT_HOT_SHOWN = 8,
    INSIGHT_BUCKETS_SHOWN = 3,
    INSIGHT_VALUES = 512, /* numbers of a layer that quantiles are taken of */
    INSIGHT_ROWS = 128,   /* rows of a layer's output that are searched for units that are not 0 */
};

/* The weights of a slot's samples and ids; a shared entry counts once for each sample of its
 * group. */
struct insight_counts {
    double samples, present, ids, made, unknown;
};

/* What one sample or group of the batch counts for: samples, labels of the task, their sum. */
struct insight_entry {
    double samples, labelled, positives;
};

struct insight_slot {
    struct insight_counts window, before; /* of the window; decayed by the short half-life */
    struct fr_hot_keys hot;
    struct fr_key_sample sample;
    struct fr_drift drift;
    /* The keys of the batch that is being looked at whose rows' values are in `floats`. */
    uint32_t n_stepped;
    uint32_t stepped[INSIGHT_STEPPED]; /* index in the table's unique keys */
    /* [INSIGHT_STEPPED, value floats]; NULL: the slot has no rows, or a device has them */
    float *floats;
};

/* A layer, or a part of it with parameters of its own: "deep/0". */
struct insight_layer {
    char name[sizeof(((struct fr_parameter *)NULL)->name)];
    uint32_t layer;
    uint32_t n_parameters;
    uint32_t *parameters;
    uint64_t n_values; /* of all its parameters */
    /* of the batch that is being looked at; values NULL: none */
    struct fr_graph_output_view output;
    uint32_t width;
    bool relu;
    bool looked;    /* in this window */
    uint8_t *alive; /* [width] 1: the unit was not 0 in this window */
    uint32_t n_activations;
    float activations[INSIGHT_VALUES];
    double gradient_norm; /* NaN: unknown */
};

/* Importance: scores of each slot's exchange, as bins. */
struct insight_importance {
    uint32_t n_tasks;
    uint32_t tasks[FR_INSIGHT_TASKS];
    int64_t as_of_ms;               /* the watermark that the weights are decayed to */
    struct fr_decayed_auc *with;    /* [n_tasks] */
    struct fr_decayed_auc *without; /* [n_slots, n_tasks] */
    /* [n_slots] [n_tasks]: as `with`, of the batches in which a sequence was exchanged; NULL: the
     * slot is no sequence, and is exchanged in all of them */
    struct fr_decayed_auc **with_exchanged;
    bool *exchanged; /* [n_slots] in this batch */
    /* scratch: a batch with one column exchanged, and its rows */
    struct fr_column *columns;
    struct fr_table_rows *tables;
    uint32_t *unique_of, *begin;
    float *numbers;
    size_t capacity_unique, capacity_begin, capacity_numbers;
};

struct insight_published {
    pthread_mutex_t lock; /* guards the document */
    struct fr_buffer document;
};

struct fr_insight {
    struct fr_insight_options options;
    const struct fr_conf *conf;
    struct insight_slot *slots;
    uint32_t n_layers;
    struct insight_layer *layers;
    struct insight_importance importance;
    uint32_t half_lives[FR_DRIFT_AGES]; /* numbers of those of the metrics */
    int32_t task;                       /* whose label drift is of; FR_NO_INDEX: none */
    /* the watermark that `before` and drift are decayed to; INT64_MIN: none yet */
    int64_t as_of_ms;
    uint32_t looks;                         /* in this process, modulo 2^32 */
    struct insight_entry *samples, *groups; /* [capacity_entries] of the batch */
    uint32_t capacity_entries;
    uint64_t steps; /* fr_graph_shared_changes before the step */

    /* the schedule: see insight.c */
    bool is_looked_at, is_scored; /* of the batch that fr_insight_wants wanted */
    uint64_t next_look_step_ns, next_look_ns, next_renewal_ns;
    uint64_t spent_ns;   /* time of all looks and documents of this process */
    uint64_t looking_ns; /* time of the look at this batch */
    struct {
        uint64_t batches, of_batches, samples;
    } window;

    struct insight_published published;
};

/* ---- insight_slots.c ---- */

void fr_insight_slots_init(struct fr_insight *insight);
void fr_insight_slots_release(struct fr_insight *insight);
/* Before the step: keeps the values of rows. */
void fr_insight_slots_before(struct fr_insight *insight, const struct fr_batch *batch, const struct fr_rows *rows);
/* stepped: rows have changed, and their gradients are there. */
void fr_insight_slots_look(struct fr_insight *insight, const struct fr_batch *batch, const struct fr_rows *rows,
                           bool stepped);
void fr_insight_slots_decay(struct fr_insight *insight, const double factors[FR_DRIFT_AGES]);
void fr_insight_slots_begin_window(struct fr_insight *insight);
void fr_insight_slots_json(struct fr_insight *insight, fr_insight_row_of *row_of, void *self, struct fr_json *json);

/* ---- insight_layers.c ---- */

void fr_insight_layers_init(struct fr_insight *insight);
void fr_insight_layers_release(struct fr_insight *insight);
void fr_insight_layers_look(struct fr_insight *insight);
void fr_insight_layers_begin_window(struct fr_insight *insight);
void fr_insight_layers_json(struct fr_insight *insight, struct fr_json *json);

/* ---- importance.c ---- */

void fr_insight_importance_init(struct fr_insight *insight);
void fr_insight_importance_release(struct fr_insight *insight);
/* Scores the batch once for each slot that the network reads, with the slot's values exchanged. The
 * graph's logits are then those of the last exchange. */
void fr_insight_importance_exchange(struct fr_insight *insight, const struct fr_batch *batch,
                                    const struct fr_rows *rows, int64_t watermark_ms);
/* After the forward pass of the batch itself. */
void fr_insight_importance_score(struct fr_insight *insight, const struct fr_batch *batch);
void fr_insight_importance_json(const struct fr_insight *insight, uint32_t slot, struct fr_json *json);

/* ---- insight.c ---- */

/* Whether a sample's label counts for a task, as in the task's metrics; then *label is the label
 * and *weight its weight. */
bool fr_insight_counts(const struct fr_conf *conf, const struct fr_batch *batch, uint32_t task, uint32_t sample,
                       float *label, double *weight);
/* Writes quantiles of the numbers that are finite, which are sorted for it; null without one. */
void fr_insight_quantiles(struct fr_json *json, const char *name, float *values, uint32_t n);

#endif
