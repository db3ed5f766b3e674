/* The trainer's inside, shared by trainer.c (loop), attempt.c, ahead.c, quarantine.c, lookout.c,
 * memory_limit.c, measure.c, silent_tasks.c, cut_epoch.c (staging), restore_state.c and
 * trainer_status.c. */
#ifndef FR_TRAINER_PRIVATE_H
#define FR_TRAINER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainer/section.h"
#include "trainer/trainer.h"

#define FR_NEVER UINT64_MAX
/* then a parameter's name: its optimizer state (graph/graph.h) */
#define FR_SECTION_DENSE_STATE "dense_state/"

/* A task in this run. */
struct task_run {
    uint64_t silent_samples; /* trained since one counted for it */
    bool learns;             /* its loss reaches something that can be trained */
    bool said;               /* in the log, that it learns nothing */
};

enum {
    FR_SIFT_LOOKS_MAX = 6, /* at a refused batch: a look may uncover what the one before hid */
    /* steps with parts of it: two culprits nobody points at are found among 2^15 samples */
    FR_SIFT_TRIALS_MAX = 64,
};

/* Numbers of the slices between two counts of trained samples, first to last. */
struct fr_slices {
    uint64_t first, last;
    bool due; /* one of them looks at something */
};

/* What was left out of the batch at hand (quarantine.c). Memory grows with the largest refused
 * batch and stays. */
struct fr_sift {
    struct fr_batch *rest;       /* the samples that are tried */
    uint32_t capacity;           /* of the arrays, in samples */
    uint8_t *left_out;           /* of the batch */
    uint8_t *mask;               /* of the batch: not tried now */
    uint32_t *origin;            /* of each sample tried, its number in the batch */
    struct fr_suspect *found;    /* of each sample tried */
    struct fr_suspect *findings; /* of each sample left out */
    uint32_t looks_max;          /* FR_SIFT_LOOKS_MAX; tests make the looks blind with 0 */
    /* trials: of parts of the batch, when nothing pointed at a sample */
    uint32_t n_left_out, trials;
    bool trains; /* one of those left out would have trained */
    bool whole;  /* nothing that trains or is measured is left */
    uint32_t letter_at;
    const struct fr_batch_record *letter_last; /* has its letter */
    unsigned long long told_ns;
};

/* The batch after the one at hand (lookout.c). */
struct fr_lookout {
    struct fr_batch *next; /* out of the ring, its turn is next; NULL: none */
    bool started;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    const struct fr_batch *batch; /* looked at now */
    bool sliced;                  /* there may be something to read for the next slices */
    bool stop;
};

/* The plan of lookout.next, made beside a device's step (ahead.c). */
struct fr_ahead {
    bool planned;
    bool sliced;          /* what falls due after the batch at hand was done, too */
    struct fr_rows *rows; /* of that plan; NULL until there is one */
    int64_t watermark_ms; /* that it was made with */
    bool watermark_held;
    uint64_t dirty_before; /* of the open epoch */
};

/* Of memory_limit (memory_limit.c), in bytes. */
struct fr_memory {
    uint64_t measured_ns;
    uint64_t others; /* what is not the store's, as it counts against the share */
    uint64_t share;  /* the store's */
    uint64_t floor;  /* least share that can be had */
    bool cut_wanted; /* what is too much is of the open epoch */
};

struct fr_trainer {
    struct fr_trainer_options options;
    const struct fr_conf *conf;
    struct fr_store *store;
    struct fr_rows *rows;
    struct fr_graph *graph;
    struct fr_task_metrics *metrics[FR_TASKS_MAX];

    /* What the newest epoch that carried it, or published it, had seen of changes
     * (fr_parameter.changes and others). FR_NEVER: none did. */
    uint64_t *journaled, *published; /* [parameters] */
    uint64_t journaled_shared;
    uint64_t journaled_metrics[FR_TASKS_MAX];

    uint64_t epoch; /* of the last cut */
    struct fr_trainer_history history;

    /* Of this run only. */
    /* the next cut publishes the model and all of its parameters */
    bool other_model;
    char carried_name[FR_SECTION_NAME_MAX]; /* for the next cut; empty: nothing */
    struct fr_buffer carried;
    /* learnt from, and its letters are not all sent: it has not taken effect */
    struct fr_batch *open;
    struct fr_sift sift;
    struct fr_lookout lookout;
    struct fr_ahead ahead;
    struct fr_memory memory;
    int64_t watermark_begin_ms;  /* before the batch at hand */
    int64_t watermark_before_ms; /* of the last attempt */
    bool watermark_held;         /* by watermark_step_max, in the batch at hand */
    bool consumed;               /* a batch was applied since the last cut */
    bool ended;                  /* end_of_stream seen */
    bool drained;
    uint64_t dead_sequence;
    uint64_t last_cut_ns, last_dense_ns, last_status_ns, last_idle_ns;
    uint64_t cut_due_ns;          /* since when a cut with samples cannot be taken; 0: none */
    bool late_told, waits;        /* waits: reading did, in the last step */
    uint64_t cut_bytes;           /* of all epochs */
    uint64_t section_bytes;       /* the most that an epoch's sections took */
    uint64_t dirty_begin;         /* of the open epoch before the batch at hand */
    uint64_t batch_bytes;         /* the most that a batch added to its epoch */
    _Atomic uint64_t dense_since; /* fr_trainer_dense_since */
    _Atomic uint64_t produced;    /* cut_bytes, and the open epoch */
    struct fr_trainer_run run;
    struct task_run tasks[FR_TASKS_MAX];
    atomic_bool stop;

    /* Guards what follows: publication only (base/pool and rings carry the rest). */
    pthread_mutex_t lock;
    struct fr_allowance {
        uint64_t bytes;
        enum fr_pause why;
        char text[256];
    } allowed;           /* fr_trainer_allow */
    enum fr_pause pause; /* the daemon's */
    char pause_text[256];
    struct fr_trainer_status status;
};

/* cut_epoch.c: the newest cut's parameters are published or not. */
void fr_trainer_note_dense(struct fr_trainer *trainer);

/* measure.c */
void fr_trainer_measure_init(struct fr_trainer *trainer);
void fr_trainer_measure_release(struct fr_trainer *trainer);
/* After fr_graph_train of a batch that was finite: logits are still those of its forward pass. */
void fr_trainer_measure(struct fr_trainer *trainer, const struct fr_batch *batch);
void fr_trainer_measure_status(const struct fr_trainer *trainer, struct fr_trainer_status *status);
void fr_trainer_stage_metrics(struct fr_trainer *trainer, struct fr_stage *stage);
/* Which tasks the section "metrics" lists, and whether their images came. */
struct fr_metrics_restore {
    struct fr_metrics_section section;
    bool restored[FR_TASKS_MAX];
};
/* A section "metrics", or one below it, which comes later. */
enum fr_status fr_trainer_restore_metrics(struct fr_trainer *trainer, struct fr_metrics_restore *restore,
                                          const char *name, const uint8_t *bytes, size_t size) FR_MUST_CHECK;
/* lookout.c */
void fr_trainer_lookout_init(struct fr_trainer *trainer);
void fr_trainer_lookout_release(struct fr_trainer *trainer);
/* From begin to end the store's rows may be read and written, and no call of the store may come. */
void fr_trainer_look_begin(struct fr_trainer *trainer);
void fr_trainer_look_end(struct fr_trainer *trainer);
/* Takes the next batch out of the ring if one is there. */
const struct fr_batch *fr_trainer_next_batch(struct fr_trainer *trainer);
/* The thread, once there is something in the cold store. */
void fr_trainer_lookout_start(struct fr_trainer *trainer);
/* After slices. */
void fr_trainer_look_at_slices(struct fr_trainer *trainer);
/* trainer.c */
struct fr_slices fr_trainer_slices(const struct fr_trainer *trainer, uint64_t samples_before, uint64_t samples_after);
/* Some rule looks at rows' values. */
bool fr_trainer_slices_need_values(const struct fr_trainer *trainer);
/* ahead.c */
/* Between begin and end of a device's step of the batch at hand. */
void fr_trainer_plan_beside(struct fr_trainer *trainer);
/* Its plan was made: it is the one at hand now. */
bool fr_trainer_take_ahead(struct fr_trainer *trainer, const struct fr_batch *batch);
/* Before anything that a plan must come after: it is taken back, if there is one. */
void fr_trainer_drop_ahead(struct fr_trainer *trainer);
/* fr_store_dirty_bytes, without what a plan ahead changed. */
uint64_t fr_trainer_dirty_bytes(const struct fr_trainer *trainer);
/* memory_limit.c */
/* At most ten times a second: what the store may take. */
void fr_trainer_measure_memory(struct fr_trainer *trainer, uint64_t now_ns);
/* Between batches: lets clean rows leave. true: reading waits, for the reason in text. */
bool fr_trainer_waits_for_memory(struct fr_trainer *trainer, char *text, size_t size);
/* silent_tasks.c */
void fr_trainer_tasks_init(struct fr_trainer *trainer);
/* After fr_graph_train of a batch that was finite. */
void fr_trainer_count_tasks(struct fr_trainer *trainer, const struct fr_batch *batch);
void fr_trainer_tasks_status(const struct fr_trainer *trainer, struct fr_trainer_status *status);
/* cut_epoch.c */
bool fr_trainer_cut_due(const struct fr_trainer *trainer, uint64_t now_ns);
int fr_trainer_epoch_wanted(const struct fr_trainer *trainer); /* enum fr_epoch_wanted */
/* Whether one is after the batch at hand. */
bool fr_trainer_cut_follows(const struct fr_trainer *trainer, uint64_t now_ns);
/* Whether a cut that is due has been impossible for too long, and why in text. */
bool fr_trainer_cut_late(struct fr_trainer *trainer, uint64_t now_ns, char *text, size_t size);
/* Whether the next batch may go beyond what is allowed. The caller holds the lock. */
bool fr_trainer_at_limit(const struct fr_trainer *trainer);
/* After a batch and its slices: how much it added to the epoch. */
void fr_trainer_measure_batch(struct fr_trainer *trainer);
/* After what changed the open epoch. */
void fr_trainer_measure_produced(struct fr_trainer *trainer);
enum fr_status fr_trainer_cut(struct fr_trainer *trainer, bool last, uint64_t wait_ns) FR_MUST_CHECK;
/* trainer_status.c */
void fr_trainer_publish_status(struct fr_trainer *trainer);
/* attempt.c */
/* Key plane, value plane and measurement of these samples. FR_E_NONFINITE: refused; nothing but the
 * plan and the watermark has changed, which fr_trainer_take_back undoes. */
enum fr_status fr_trainer_attempt(struct fr_trainer *trainer, const struct fr_batch *batch) FR_MUST_CHECK;
void fr_trainer_take_back(struct fr_trainer *trainer);
/* The watermark of a batch: the largest event time of a sample that trains, in it or before; at
 * most watermark_step_max beyond from_ms, the watermark before the batch, in however many attempts
 * it is trained: then it is held. */
int64_t fr_trainer_watermark_after(const struct fr_trainer *trainer, const struct fr_batch *batch, int64_t from_ms,
                                   bool *held);
/* quarantine.c */
void fr_trainer_sift_release(struct fr_trainer *trainer);
/* After a refused attempt: what is fit of the batch has taken effect, the rest has the role
 * FR_ROLE_QUARANTINED. */
enum fr_status fr_trainer_sift(struct fr_trainer *trainer, struct fr_batch *batch) FR_MUST_CHECK;
/* Returns FR_AGAIN when the dead letters have no room now; the next call goes on. */
enum fr_status fr_trainer_send_letters(struct fr_trainer *trainer, const struct fr_batch *batch) FR_MUST_CHECK;
void fr_trainer_tell_left_out(struct fr_trainer *trainer, const struct fr_batch *batch);

#endif
