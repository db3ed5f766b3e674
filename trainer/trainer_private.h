/* The private parts of the trainer, shared by trainer.c (loop), attempt.c, ahead.c, quarantine.c,
 * lookout.c, memory_limit.c, measure.c, silent_tasks.c, cut_epoch.c (staging), restore_state.c and
 * trainer_status.c. */
#ifndef FR_TRAINER_PRIVATE_H
#define FR_TRAINER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainer/section.h"
#include "trainer/trainer.h"

#define FR_NEVER UINT64_MAX
/* followed by a parameter's name: the section with its optimizer state (graph/graph.h) */
#define FR_SECTION_DENSE_STATE "dense_state/"

/* What this run records about one task. */
struct task_run {
    uint64_t silent_samples; /* samples trained since the last one that counted for the task */
    bool learns;             /* the task's loss reaches something that can be trained */
    bool said;               /* the log has reported that the task learns nothing */
};

enum {
    /* the most examinations of a refused batch; one may reveal what the previous one hid */
    FR_SIFT_LOOKS_MAX = 6,
    /* The most trial steps with parts of a batch: enough to find two unfit samples, at which
     * nothing points, among 2^15. */
    FR_SIFT_TRIALS_MAX = 64,
};

/* The numbers, first to last, of the expiry slices between two counts of trained samples. */
struct fr_slices {
    uint64_t first, last;
    bool due; /* at least one of these slices examines rows */
};

/* What was left out of the current batch (quarantine.c). The memory grows to fit the largest
 * refused batch and is kept. */
struct fr_sift {
    struct fr_batch *rest;       /* the samples being tried */
    uint32_t capacity;           /* of the arrays, in samples */
    uint8_t *left_out;           /* [samples of the batch] 1: the sample is left out */
    uint8_t *mask;               /* [samples of the batch] 1: the sample is not tried now */
    uint32_t *origin;            /* for each sample tried: its number in the batch */
    struct fr_suspect *found;    /* for each sample tried: what the graph suspects */
    struct fr_suspect *findings; /* for each sample left out: why */
    uint32_t looks_max;          /* FR_SIFT_LOOKS_MAX; tests disable the examinations with 0 */
    /* trials: trial steps with parts of the batch, made when nothing pointed at a sample */
    uint32_t n_left_out, trials;
    bool trains; /* at least one sample left out would have been trained */
    bool whole;  /* no sample that trains or is measured remains */
    uint32_t letter_at;
    const struct fr_batch_record *letter_last; /* the last record with a letter */
    unsigned long long told_ns;
};

/* The batch after the current one (lookout.c). */
struct fr_lookout {
    struct fr_batch *next; /* taken from the ring, to be trained next; NULL: none */
    bool started;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    const struct fr_batch *batch; /* the batch being examined; NULL: none */
    bool sliced;                  /* there may be keys to read for the next slices */
    bool stop;
};

/* The plan of lookout.next, made during a device's step (ahead.c). */
struct fr_ahead {
    bool planned;
    bool sliced;          /* the slices due after the current batch were also run */
    struct fr_rows *rows; /* rows of the plan; NULL before the first plan */
    int64_t watermark_ms; /* the watermark with which the plan was made */
    bool watermark_held;
    uint64_t dirty_before; /* dirty bytes of the open epoch before the plan */
};

/* The state of memory_limit (memory_limit.c). Sizes are in bytes. */
struct fr_memory {
    uint64_t measured_ns;
    uint64_t others; /* memory outside the store, which reduces the share */
    uint64_t share;  /* what the store may use */
    uint64_t floor;  /* the smallest share that is possible */
    bool cut_wanted; /* the excess belongs to the open epoch, so a cut is needed */
};

struct fr_trainer {
    struct fr_trainer_options options;
    const struct fr_conf *conf;
    struct fr_store *store;
    struct fr_rows *rows;
    struct fr_graph *graph;
    struct fr_task_metrics *metrics[FR_TASKS_MAX];

    /* The number of changes (fr_parameter.changes and others) at the newest epoch that journaled
     * the parameter, or published it. FR_NEVER: no epoch has. */
    uint64_t *journaled, *published; /* [parameters] */
    uint64_t journaled_shared;
    uint64_t journaled_metrics[FR_TASKS_MAX];

    uint64_t epoch; /* the epoch of the last cut */
    struct fr_trainer_history history;

    /* The members below are valid for this run only. */
    /* the next cut publishes the model record and all parameters */
    bool other_model;
    /* name of a section for the next cut (`carried`); empty: none */
    char carried_name[FR_SECTION_NAME_MAX];
    struct fr_buffer carried;
    /* The batch that was trained but whose dead letters are not all sent; it does not count as
     * applied until they are. NULL: none. */
    struct fr_batch *open;
    struct fr_sift sift;
    struct fr_lookout lookout;
    struct fr_ahead ahead;
    struct fr_memory memory;
    int64_t watermark_begin_ms;  /* the watermark before the current batch */
    int64_t watermark_before_ms; /* the watermark before the last attempt */
    /* watermark_step_max held the watermark back in the current batch */
    bool watermark_held;
    bool consumed; /* a batch was applied since the last cut */
    bool ended;    /* the end of the stream was seen */
    bool drained;
    uint64_t dead_sequence;
    uint64_t last_cut_ns, last_dense_ns, last_status_ns, last_idle_ns;
    /* the time since which a due cut with samples has been impossible; 0: none is */
    uint64_t cut_due_ns;
    /* late_told: the late cut was reported; waits: reading waited in the last step */
    bool late_told, waits;
    uint64_t cut_bytes;           /* bytes of all epochs cut */
    uint64_t section_bytes;       /* the largest size of an epoch's sections so far */
    uint64_t dirty_begin;         /* dirty bytes of the open epoch before the current batch */
    uint64_t batch_bytes;         /* the most bytes that a batch added to its epoch so far */
    _Atomic uint64_t dense_since; /* fr_trainer_dense_since */
    _Atomic uint64_t produced;    /* cut_bytes plus the bytes of the open epoch */
    struct fr_trainer_run run;
    struct task_run tasks[FR_TASKS_MAX];
    atomic_bool stop;

    /* Guards the members below, which are for publication only. Everything else crosses threads
     * through the pool (base/pool.h) and the rings. */
    pthread_mutex_t lock;
    struct fr_allowance {
        uint64_t bytes;
        enum fr_pause why;
        char text[256];
    } allowed;           /* set by fr_trainer_allow */
    enum fr_pause pause; /* set by the daemon (fr_trainer_pause) */
    char pause_text[256];
    struct fr_trainer_status status;
};

/* cut_epoch.c: notes whether the newest cut published all parameters. */
void fr_trainer_note_dense(struct fr_trainer *trainer);

/* measure.c */
void fr_trainer_measure_init(struct fr_trainer *trainer);
void fr_trainer_measure_release(struct fr_trainer *trainer);
/* Called after fr_graph_train of a batch that was finite. The logits are still those of the batch's
 * forward pass. */
void fr_trainer_measure(struct fr_trainer *trainer, const struct fr_batch *batch);
void fr_trainer_measure_status(const struct fr_trainer *trainer, struct fr_trainer_status *status);
void fr_trainer_stage_metrics(struct fr_trainer *trainer, struct fr_stage *stage);
/* The tasks that the section "metrics" lists, and whether their images have been read. */
struct fr_metrics_restore {
    struct fr_metrics_section section;
    bool restored[FR_TASKS_MAX];
};
/* Restores the section "metrics", or one below it, which comes later. */
enum fr_status fr_trainer_restore_metrics(struct fr_trainer *trainer, struct fr_metrics_restore *restore,
                                          const char *name, const uint8_t *bytes, size_t size) FR_MUST_CHECK;
/* lookout.c */
void fr_trainer_lookout_init(struct fr_trainer *trainer);
void fr_trainer_lookout_release(struct fr_trainer *trainer);
/* Between begin and end the store's rows may be read and written, but no function of the store may
 * be called. */
void fr_trainer_look_begin(struct fr_trainer *trainer);
void fr_trainer_look_end(struct fr_trainer *trainer);
/* Takes the next batch out of the ring if there is one. */
const struct fr_batch *fr_trainer_next_batch(struct fr_trainer *trainer);
/* Starts the thread once the cold store has content. */
void fr_trainer_lookout_start(struct fr_trainer *trainer);
/* Called after slices. */
void fr_trainer_look_at_slices(struct fr_trainer *trainer);
/* trainer.c */
struct fr_slices fr_trainer_slices(const struct fr_trainer *trainer, uint64_t samples_before, uint64_t samples_after);
/* Whether some expiry rule examines the rows' values. */
bool fr_trainer_slices_need_values(const struct fr_trainer *trainer);
/* ahead.c */
/* Called between begin and end of a device's step of the current batch. */
void fr_trainer_plan_beside(struct fr_trainer *trainer);
/* Whether the batch's plan was made early; if so, the plan becomes the current one. */
bool fr_trainer_take_ahead(struct fr_trainer *trainer, const struct fr_batch *batch);
/* Undoes an early plan, if there is one. Called before everything that a plan must follow. */
void fr_trainer_drop_ahead(struct fr_trainer *trainer);
/* fr_store_dirty_bytes without the changes of an early plan. */
uint64_t fr_trainer_dirty_bytes(const struct fr_trainer *trainer);
/* memory_limit.c */
/* Computes what the store may use, at most ten times a second. */
void fr_trainer_measure_memory(struct fr_trainer *trainer, uint64_t now_ns);
/* Called between batches: evicts clean rows. true: reading waits, for the reason in `text`. */
bool fr_trainer_waits_for_memory(struct fr_trainer *trainer, char *text, size_t size);
/* silent_tasks.c */
void fr_trainer_tasks_init(struct fr_trainer *trainer);
/* Called after fr_graph_train of a batch that was finite. */
void fr_trainer_count_tasks(struct fr_trainer *trainer, const struct fr_batch *batch);
void fr_trainer_tasks_status(const struct fr_trainer *trainer, struct fr_trainer_status *status);
/* cut_epoch.c */
bool fr_trainer_cut_due(const struct fr_trainer *trainer, uint64_t now_ns);
int fr_trainer_epoch_wanted(const struct fr_trainer *trainer); /* enum fr_epoch_wanted */
/* Whether a cut follows the current batch. */
bool fr_trainer_cut_follows(const struct fr_trainer *trainer, uint64_t now_ns);
/* Whether a cut that is due has been impossible for too long; `text` then has the reason. */
bool fr_trainer_cut_late(struct fr_trainer *trainer, uint64_t now_ns, char *text, size_t size);
/* Whether the next batch might exceed what is allowed. The caller holds the lock. */
bool fr_trainer_at_limit(const struct fr_trainer *trainer);
/* Called after a batch and its slices: measures how much the batch added to the epoch. */
void fr_trainer_measure_batch(struct fr_trainer *trainer);
/* Called after a change of the open epoch. */
void fr_trainer_measure_produced(struct fr_trainer *trainer);
enum fr_status fr_trainer_cut(struct fr_trainer *trainer, bool last, uint64_t wait_ns) FR_MUST_CHECK;
/* trainer_status.c */
void fr_trainer_publish_status(struct fr_trainer *trainer);
/* attempt.c */
/* Plans, trains and measures the samples of the batch. FR_E_NONFINITE: the batch is refused; only
 * the plan and the watermark have changed, and fr_trainer_take_back undoes both. */
enum fr_status fr_trainer_attempt(struct fr_trainer *trainer, const struct fr_batch *batch) FR_MUST_CHECK;
void fr_trainer_take_back(struct fr_trainer *trainer);
/* Returns the watermark of a batch: the largest event time of a sample that trains, in this batch
 * or earlier. The result is at most watermark_step_max beyond from_ms, the watermark before the
 * batch, in however many attempts the batch is trained; *held: this limit applied. */
int64_t fr_trainer_watermark_after(const struct fr_trainer *trainer, const struct fr_batch *batch, int64_t from_ms,
                                   bool *held);
/* quarantine.c */
void fr_trainer_sift_release(struct fr_trainer *trainer);
/* Called after a refused attempt. On return the fit samples of the batch have taken effect, and the
 * others have the role FR_ROLE_QUARANTINED. */
enum fr_status fr_trainer_sift(struct fr_trainer *trainer, struct fr_batch *batch) FR_MUST_CHECK;
/* Sends the batch's dead letters. FR_AGAIN: there is no room for a letter now; the next call
 * continues. */
enum fr_status fr_trainer_send_letters(struct fr_trainer *trainer, const struct fr_batch *batch) FR_MUST_CHECK;
void fr_trainer_tell_left_out(struct fr_trainer *trainer, const struct fr_batch *batch);

#endif
