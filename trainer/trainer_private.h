/* The private parts of the trainer: one struct for each file that owns some of its state, and
 * what the files call of each other. All of it belongs to the owner thread, except members whose
 * comment names other threads. */
#ifndef FR_TRAINER_PRIVATE_H
#define FR_TRAINER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "exchange/exchange.h"
#include "pipeline.h"
#include "provider.h"
#include "roll_call.h"
#include "trainer/feature.h"
#include "trainer/section.h"
#include "trainer/trainer.h"

#define FR_NEVER UINT64_MAX
/* followed by a parameter's name: the section with its optimizer state (graph/graph.h) */
#define FR_SECTION_DENSE_STATE "dense_state/"

enum {
    /* the most examinations of a refused batch; one may reveal what the previous one hid */
    FR_SIFT_EXAMINATIONS_MAX = 6,
    /* The most trial steps with parts of a batch: enough to find two unfit samples, at which
     * nothing points, among 2^15. */
    FR_SIFT_TRIALS_MAX = 64,
};

/* What was left out of the current batch (quarantine.c). The memory grows to fit the largest
 * refused batch and is kept. */
struct fr_sift {
    struct fr_batch *rest;        /* the samples being tried */
    uint32_t capacity;            /* capacity of the arrays, in samples */
    uint8_t *left_out;            /* [samples of the batch] 1: the sample is left out */
    uint8_t *mask;                /* [samples of the batch] 1: the sample is not tried now */
    struct fr_suspect *found;     /* for each sample tried: what the graph suspects */
    struct fr_suspect *findings;  /* for each sample left out: why */
    unsigned long long logged_ns; /* when the log last reported samples left out */
    /* What is zeroed at the beginning of each batch. */
    struct fr_sift_batch {
        /* the number of this rank's first sample among those of all ranks, and their number */
        uint64_t first, n_samples;
        uint32_t n_left_out; /* of this rank */
        uint32_t trials;     /* steps with halves, because nothing pointed at a sample */
        /* Of all ranks. */
        uint64_t all_left_out;
        bool trains;        /* at least one sample left out would have been trained */
        bool whole;         /* no sample that trains or is measured remains */
        uint32_t letter_at; /* the sample whose dead letter is next */
        /* the last record with a letter; NULL: none */
        const struct fr_batch_record *letter_last;
    } batch;
};

/* The lookout thread (lookout.c). */
struct fr_lookout {
    bool started;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    const struct fr_batch *batch; /* the batch whose keys are read; NULL: none */
    bool scan;                    /* there may be cold rows to read for the next slices */
    bool stop;
};

/* The state of memory_limit (memory_limit.c). Sizes are in bytes. */
struct fr_memory {
    uint64_t measured_ns;
    uint64_t others; /* memory outside the store, which reduces the share */
    uint64_t share;  /* what the store may use */
    uint64_t floor;  /* the smallest share that is possible */
    bool cut_wanted; /* the excess belongs to the open epoch, so a cut is needed */
};

/* The metrics of all tasks (measure.c). */
struct fr_measuring {
    struct fr_task_metrics *tasks[FR_TASKS_MAX];
    /* the number of changes of a task's metrics at the newest epoch with them; FR_NEVER: none */
    uint64_t journaled[FR_TASKS_MAX];
};

/* What this run records about one task (silent_tasks.c). */
struct fr_task_run {
    uint64_t silent_samples; /* samples trained since the last one that counted for the task */
    bool learns;             /* the task's loss reaches something that can be trained */
    bool reported;           /* the log has reported that the task learns nothing */
};

/* What epochs have, and when the next cut is due (cut_epoch.c). */
struct fr_cuts {
    /* The number of changes (fr_parameter.changes) at the newest epoch that journaled the
     * parameter, or published it. FR_NEVER: no epoch has. */
    uint64_t *journaled, *published; /* [parameters] */
    uint64_t journaled_shared;       /* the same for what parameters share */
    /* the next cut publishes the model record and all parameters */
    bool other_model;
    /* A section for the next cut (fr_trainer_carry). The name is empty if there is no such
     * section. */
    char carried_name[FR_SECTION_NAME_MAX];
    struct fr_buffer carried;
    bool consumed; /* a batch was applied since the last cut */
    /* for the next cut, from fr_trainer_reserve_stage; NULL: none is reserved */
    struct fr_stage *stage;
    /* monotonic times of the last cut, and of the last one that published dense parameters */
    uint64_t last_ns, last_dense_ns;
    /* the time since which a due cut with samples has been impossible; 0: no due cut is
     * impossible */
    uint64_t due_ns;
    bool late_reported;           /* the log has reported that this cut is late */
    uint64_t bytes;               /* bytes of all epochs cut */
    uint64_t section_bytes;       /* the largest size of an epoch's sections so far */
    uint64_t batch_bytes;         /* the most bytes that a batch added to its epoch so far */
    _Atomic uint64_t dense_since; /* fr_trainer_dense_since */
    _Atomic uint64_t produced;    /* `bytes` plus the bytes of the open epoch */
};

/* What crosses threads, except what goes through rings, the pool and the atomics of fr_cuts
 * (trainer_status.c). Only the owner thread writes `status`. */
struct fr_trainer_board {
    pthread_mutex_t lock; /* guards all members below except published_ns */
    struct fr_allowance {
        uint64_t bytes;
        enum fr_pause why;
        char text[256];
    } allowed;           /* set by fr_trainer_allow */
    enum fr_pause pause; /* set by the daemon (fr_trainer_pause) */
    char pause_text[256];
    struct fr_trainer_status status;
    uint64_t published_ns; /* when `status` was last published */
};

/* The question about one id that is open (feature.c). */
struct fr_questions {
    atomic_bool open;
    pthread_mutex_t lock; /* guards the members below, and changes of `open` */
    pthread_cond_t answered;
    struct fr_feature_question question;
    struct fr_feature *answer; /* the asker's; NULL: the asker has given up */
    struct fr_err *err;
    enum fr_status status; /* of the answer */
};

struct fr_trainer {
    struct fr_trainer_options options;
    const struct fr_conf *conf;
    struct fr_store *store;
    struct fr_graph *graph;

    uint64_t epoch; /* the epoch of the last cut */
    struct fr_trainer_history history;

    /* Everything below is of this run only. */
    struct fr_trainer_run run;
    uint64_t dead_sequence; /* the number of the newest dead letter */
    /* ENDS: the stream has ended or a stop was seen. DRAINED: the last epoch was cut. */
    enum { FR_TRAINER_READS, FR_TRAINER_ENDS, FR_TRAINER_DRAINED } life;
    atomic_bool stop; /* set by fr_trainer_stop */

    /* The ranks of the job. */
    struct fr_ranks {
        uint32_t n;
        struct fr_exchange *exchange, *self; /* self: the exchange of a job of one rank, or NULL */
        struct fr_err failure;               /* of an exchange or a message; final */
        uint64_t fingerprint;                /* fr_roll.fingerprint */
        uint64_t calls;                      /* roll calls made */
        struct fr_roll *rolls;               /* [ranks] of the last call */
        bool trained;                        /* at the last call a batch was trained */
        _Atomic uint64_t acknowledged;       /* fr_trainer_acknowledged */
        bool waits;                          /* training waits for a rank, since wait_since_ns */
        uint64_t wait_since_ns;              /* monotonic time of its first call */
        bool ended;                          /* this rank's streams have ended */
        struct fr_batch *nothing[2];         /* taken in turn where this rank has no batch */
        /* What all ranks together had in the batch that was trained last (agree.c). */
        struct fr_batch_counts {
            uint64_t n_samples, n_positions, roles[FR_ROLES];
            uint64_t unknown_slots, unknown_keys, excess_ids;
        } counts;
        struct fr_buffer answers; /* of agree.c */
        struct fr_buffer sums;    /* messages to all ranks of rank_rows.c and measure.c */
        struct fr_buffer keys[FR_RANKS_MAX], rows[FR_RANKS_MAX], row_sums[FR_RANKS_MAX];
        struct fr_buffer sums_of[FR_RANKS_MAX]; /* for each, with its portion of gradients */
        struct fr_buffer values[FR_RANKS_MAX];  /* parameters and late rows */
        uint64_t fetched;                       /* changes of the graph whose state is here */
        struct fr_buffer late[FR_RANKS_MAX];    /* late rows that each rank sent */
        /* of the batch that is stepped, and of the batch after it */
        const struct fr_home_rows *home, *next_home;
        bool ahead;                      /* all ranks plan the next batch beside the step */
        struct fr_rank_samples *samples; /* of measure.c */
        struct fr_announced {            /* of announce.c */
            struct fr_arena arena;       /* memory of one rank's offsets */
            struct fr_buffer offsets;    /* struct fr_announced_offset [], those of all ranks */
        } announced;
    } ranks;
    const struct fr_provider *provider;
    struct fr_pipeline pipeline;
    struct fr_sift sift;
    struct fr_lookout lookout;
    struct fr_memory memory;
    struct fr_measuring measuring;
    struct fr_task_run tasks[FR_TASKS_MAX];
    struct fr_cuts cuts;
    struct fr_insight *insight; /* NULL: insight.interval is 0 */
    struct fr_questions questions;
    struct fr_trainer_board board;
};

/* measure.c */
void fr_trainer_measure_init(struct fr_trainer *trainer);
void fr_trainer_measure_release(struct fr_trainer *trainer);
/* Called after a step that was accepted. The logits are still those of the batch's forward pass. */
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
/* Ends the thread. */
void fr_trainer_lookout_release(struct fr_trainer *trainer);
/* Starts the thread if it does not run. false: it could not be started. */
bool fr_trainer_lookout_start(struct fr_trainer *trainer);
/* Reads the keys of the batch. Until fr_trainer_lookout_wait, rows of the store may be read and
 * written, but no function of the store may be called. */
void fr_trainer_lookout_read(struct fr_trainer *trainer, const struct fr_batch *batch);
/* Waits until the thread reads for no batch. */
void fr_trainer_lookout_wait(struct fr_trainer *trainer);
/* Reads the cold rows for the slices after those that were just run. */
void fr_trainer_lookout_scan(struct fr_trainer *trainer);
/* memory_limit.c */
/* Computes what the store may use, at most ten times a second. */
void fr_trainer_measure_memory(struct fr_trainer *trainer, uint64_t now_ns);
/* Called between batches: evicts clean rows. true: reading waits, for the reason in `text`. */
bool fr_trainer_waits_for_memory(struct fr_trainer *trainer, char *text, size_t size);
/* feature.c */
void fr_trainer_questions_init(struct fr_trainer *trainer);
void fr_trainer_questions_release(struct fr_trainer *trainer);
/* Answers the question that is open, if any. Called between two batches. */
void fr_trainer_answer(struct fr_trainer *trainer);
/* silent_tasks.c */
void fr_trainer_tasks_init(struct fr_trainer *trainer);
/* Called after a step that was accepted. */
void fr_trainer_count_tasks(struct fr_trainer *trainer);
void fr_trainer_tasks_status(const struct fr_trainer *trainer, struct fr_trainer_status *status);
/* cut_epoch.c */
void fr_trainer_cuts_init(struct fr_trainer *trainer);
void fr_trainer_cuts_release(struct fr_trainer *trainer);
/* Whether a cut is due now, or, with after_batch, once the current batch is applied. */
bool fr_trainer_cut_due(const struct fr_trainer *trainer, uint64_t now_ns, bool after_batch);
enum fr_epoch_wanted fr_trainer_epoch_wanted(const struct fr_trainer *trainer);
/* Whether a cut that is due has been impossible for too long; `text` then has the reason. */
bool fr_trainer_cut_late(struct fr_trainer *trainer, uint64_t now_ns, char *text, size_t size);
/* Whether the next batch might exceed what is allowed. The caller holds the board's lock. */
bool fr_trainer_at_limit(const struct fr_trainer *trainer);
/* Counts the current batch, which was applied and whose slices ran, to the open epoch. */
void fr_trainer_add_to_epoch(struct fr_trainer *trainer);
/* Takes a stage for the next cut, unless one is reserved already. FR_AGAIN: none came within
 * wait_ns. */
enum fr_status fr_trainer_reserve_stage(struct fr_trainer *trainer, uint64_t wait_ns) FR_MUST_CHECK;
/* Cuts an epoch into the reserved stage. FR_AGAIN: the device failed, which the next step
 * reports. */
enum fr_status fr_trainer_cut(struct fr_trainer *trainer, bool last) FR_MUST_CHECK;
/* Updates fr_trainer_dense_since after a cut or a restore. */
void fr_trainer_update_dense_since(struct fr_trainer *trainer);
/* announce.c */
/* Fills in what the epoch that is cut announces, except publish_model and publish_dense, which the
 * caller has set and which become those of rank 0. All ranks call it together. out->offsets is
 * valid until the next call. An error is kept for fr_trainer_failure. */
enum fr_status fr_trainer_announce(struct fr_trainer *trainer, struct fr_announcement *out) FR_MUST_CHECK;
void fr_trainer_announced_release(struct fr_announced *announced);
/* trainer_status.c */
void fr_trainer_publish_status(struct fr_trainer *trainer);
/* Publishes why reading waits: `why` with `text`; if `why` is FR_PAUSE_NONE, the pause of the
 * daemon, or else the limit of fr_trainer_allow. Returns whether reading waits for any of them. */
bool fr_trainer_publish_pause(struct fr_trainer *trainer, enum fr_pause why, const char *text);
/* Called after each decision of all ranks: publishes FR_PAUSE_RANK while training has waited for
 * another rank for a second, unless this rank has a reason of its own. */
void fr_trainer_publish_wait(struct fr_trainer *trainer, const struct fr_decision *decision, uint64_t now_ns);
/* agree.c: all ranks call these together */
/* Adds up [n] numbers over the ranks. */
void fr_trainer_sum(struct fr_trainer *trainer, uint64_t *numbers, uint32_t n);
uint64_t fr_trainer_largest(struct fr_trainer *trainer, uint64_t number);
/* Finds the facts of a batch, or of a part of it, and gives its columns the forms that they have in
 * the batch of all ranks. */
void fr_trainer_agree(struct fr_trainer *trainer, struct fr_batch *batch, struct fr_facts *out);
/* Likewise for the batch after the current one. NULL: this rank has none, or has to do something
 * else before. Returns whether every rank has one, and there are samples; otherwise nothing was
 * given a form. */
bool fr_trainer_agree_next(struct fr_trainer *trainer, struct fr_batch *next, struct fr_facts *out);
/* The lower median of the event times of samples that train; some rank has at least one. */
int64_t fr_trainer_median_time(struct fr_trainer *trainer, const struct fr_batch *batch);
/* Called after the last attempt at a batch: sets ranks.counts. */
void fr_trainer_count(struct fr_trainer *trainer, const struct fr_batch *batch);
/* Gives the same bytes to every rank on the channel of values; in[r] is what rank r gave, valid
 * until the next message of the channel. */
enum fr_status fr_trainer_give_all(struct fr_trainer *trainer, const struct fr_buffer *mine, struct fr_bytes *in,
                                   struct fr_err *err) FR_MUST_CHECK;
/* agree.c: alone */
/* The trained samples of the current batch, as far as they are known: those of this rank, and of
 * all ranks once the batch is counted. */
uint64_t fr_trainer_trained(const struct fr_trainer *trainer, const struct fr_batch *batch);
/* Keeps the first error of an exchange or a message, and returns the status. */
enum fr_status fr_trainer_ranks_check(struct fr_trainer *trainer, enum fr_status status, const struct fr_err *err);
/* The failure of the store, of the graph, or of the exchange, after which the job ends. err may be
 * NULL. */
enum fr_status fr_trainer_failure(struct fr_trainer *trainer, struct fr_err *err) FR_MUST_CHECK;
/* attempt.c */
/* Plans, trains and measures the samples of the current batch, or of a part of it, whose facts are
 * in pipeline.plan; there is at least one sample. FR_E_NONFINITE: the part is refused; the move
 * UNDO undoes its plan. */
enum fr_status fr_trainer_attempt(struct fr_trainer *trainer, const struct fr_batch *part) FR_MUST_CHECK;
/* quarantine.c */
void fr_trainer_sift_release(struct fr_trainer *trainer);
/* Called after a refused attempt. On return the fit samples of the batch have taken effect, and the
 * others have the role FR_ROLE_QUARANTINED. */
enum fr_status fr_trainer_sift(struct fr_trainer *trainer, struct fr_batch *batch) FR_MUST_CHECK;
/* Sends the batch's dead letters. FR_AGAIN: there is no room for a letter now; the next call
 * continues. */
enum fr_status fr_trainer_send_letters(struct fr_trainer *trainer, const struct fr_batch *batch) FR_MUST_CHECK;
void fr_trainer_log_left_out(struct fr_trainer *trainer, const struct fr_batch *batch);
/* Begins or ends the hold of publishing, if the applied batch completes the streak for it. */
void fr_trainer_update_hold(struct fr_trainer *trainer, const struct fr_batch *batch);

#endif
