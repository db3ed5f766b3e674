/* The owner loop: plan, step, cut (docs/architecture.md, "One sample's life"). Owns store, graph,
 * metric state, watermark and, through a small function table, stream positions.
 *
 * One call of fr_trainer_step makes a due cut, trains one batch (plan, forward, metrics, backward,
 * update, positions), or waits for a batch. A cut is staged only between batches and before the
 * next batch is planned, so the gate counts, positions and values of a batch are always in the same
 * epoch. At most two epochs are cut and not yet durable, because two stages circulate through two
 * rings. If a cut with samples is due and no stage has been free for fr_trainer_late_ns, the next
 * batch waits. This bounds the work that a crash would undo.
 *
 * An epoch without samples (a heartbeat) is cut only while reading continues and publishing is not
 * held. Otherwise the epoch would be of no use and the journal would grow.
 *
 * Every decision about data uses the watermark (the largest event time of a trained sample, updated
 * at the beginning of the sample's batch). The monotonic clock decides only when a live epoch is
 * cut. In lockstep mode cuts follow the batch count and announced times are the watermark, so
 * everything is a function of the log.
 *
 * A batch that produces any non-finite number is examined sample by sample (quarantine.c). Unfit
 * samples are left out, dead-lettered and counted as quarantined, and the rest is trained. Store,
 * parameters, statistics, metrics and watermark are the same as if the unfit samples had never
 * existed.
 *
 * Publishing is held when nothing could be trained in FR_QUARANTINE_STREAK_MAX consecutive batches
 * that should have trained something and that together had at least FR_QUARANTINE_SAMPLES_MIN
 * samples. In that case the model or the whole stream is broken, and replicas are better off with
 * what they have. Reading, training and epochs continue, and fr_stage.publishable stays where it
 * is. The same number of consecutive batches that trained something ends the hold. The hold is part
 * of the state, so a restart does not end it.
 *
 * Thread: the owner thread; any thread calls fr_trainer_get_status and fr_trainer_stop. */
#ifndef FR_TRAINER_TRAINER_H
#define FR_TRAINER_TRAINER_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/ring.h"
#include "batch/batch.h"
#include "durable/durable.h"
#include "exchange/exchange.h"
#include "graph/graph.h"
#include "metrics/freshness.h"
#include "metrics/task.h"
#include "store/store.h"
#include "trainer/section.h"

enum {
    /* The number of consecutive batches without anything trainable that holds publishing, and the
     * number of consecutive good batches that ends the hold (P6). */
    FR_QUARANTINE_STREAK_MAX = 3,
    /* The bad batches must have had at least this many samples together. On a slow stream a batch
     * is a single sample, and three bad samples say nothing about the model. */
    FR_QUARANTINE_SAMPLES_MIN = 32,
    /* After this many consecutive trained samples that do not count for a task, the task is
     * reported as learning nothing. A label that only one sample in a hundred has would have
     * appeared long before. */
    FR_TASK_SILENT_SAMPLES = 10000,
    /* The longest wait for a batch in one step. It bounds how late a stop or a cut deadline is
     * noticed. */
    FR_TRAINER_WAIT_MS = 50,
    /* A disk or a broker that stalls for less than this does not pause reading. */
    FR_LATE_MS = 2000,
};

/* Whether some component needs an epoch even if it has no samples. While reading is paused such an
 * epoch is cut every `epoch`, because nothing else would produce one. At a drain it is cut too,
 * unless it is wanted only while reading is paused. */
enum fr_epoch_wanted { FR_EPOCH_NOT_WANTED, FR_EPOCH_WANTED, FR_EPOCH_WANTED_WHILE_PAUSED };

/* The callbacks of the module that keeps stream positions (ingest). Only the owner thread calls
 * them. */
struct fr_trainer_stream {
    void *self;
    /* The batch was trained. Samples that took no effect have the role FR_ROLE_QUARANTINED, also in
     * the batch's positions. */
    void (*applied)(void *self, const struct fr_batch *batch);
    void (*stage)(void *self, struct fr_buffer *section);
    /* Returns the number of offsets for the commit record and sets *offsets to them. They are valid
     * until the next call. */
    uint32_t (*offsets)(void *self, struct fr_announced_offset **offsets);
    /* Sends a record to the dead letters because some of its samples were left out. *number is the
     * number of the letter, or 0 when the record already has one. FR_AGAIN: there is no room now.
     * The member is NULL when there is no dead-letter topic. */
    enum fr_status (*dead_letter)(void *self, const struct fr_batch *batch, const struct fr_batch_record *record,
                                  const char *reason, uint64_t *number);
    /* Fills in the snapshot that the commit record announces. NULL: no snapshot is ever
     * announced. */
    void (*snapshot)(void *self, struct fr_announced_snapshot *out);
};

struct fr_trainer_options {
    const struct fr_conf *conf; /* borrowed */
    const struct fr_clock *clock;
    struct fr_pool *pool;
    const struct fr_table_policies *policies; /* [n_tables] */
    struct fr_trainer_stream stream;
    struct fr_ring *full, *empty; /* batches from and back to ingest */
    struct fr_ring *cut_stages;
    /* Stages to the durable thread (cut_stages) and back from it. The caller puts the free stages
     * in. */
    struct fr_ring *free_stages;
    /* set when changes must be folded before reading can continue; NULL: not reported */
    atomic_bool *fold_wanted;
    /* While false, an epoch needs samples and there are no heartbeats. NULL: true. */
    const atomic_bool *heartbeats;
    const atomic_int *epoch_wanted; /* enum fr_epoch_wanted; NULL: FR_EPOCH_NOT_WANTED */
    /* The epoch up to which the publisher of this rank has all acknowledged, for
     * fr_trainer_acknowledged. NULL: 0. */
    const _Atomic uint64_t *acknowledged;
    /* While true, every cut publishes the dense parameters that changed. NULL: false. */
    const atomic_bool *dense_wanted;
    /* What cut epochs that are not yet durable wait for, as a text for messages. If the pointer is
     * NULL or points to NULL, they wait for the disk. */
    const char *_Atomic *waits_for;
    struct fr_freshness *freshness;   /* borrowed; receives trained batches and cuts; NULL: none */
    const struct fr_timings *timings; /* borrowed; NULL: none */
    /* The device that computes the network: api, queue, row_bytes_max; borrowed. NULL: the
     * processor computes it. */
    const struct fr_graph_device *device;
    /* How the ranks of the job reach each other; borrowed. With more than one rank conf->domains is
     * at least their number, there is no device, and the rank's batches are of its lanes only
     * (base/ranks.h). NULL: the job has one rank. */
    struct fr_exchange *exchange;
};

struct fr_trainer;

struct fr_trainer *fr_trainer_new(const struct fr_trainer_options *options);
void fr_trainer_free(struct fr_trainer *trainer);

/* Restores the trainer from a durable state: images, and the sections of trainer, store and graph.
 * Other sections go to `other` (may be NULL). Errors: FR_E_CORRUPT, FR_E_MISMATCH. */
typedef enum fr_status fr_section_restore(void *self, const char *name, const uint8_t *bytes, size_t size);
struct fr_trainer_restore_options {
    /* the section for `other` that is read before all (durable.h); NULL: none */
    const char *first;
    fr_section_restore *other; /* NULL: none */
    void (*progress)(void *self, uint64_t done, uint64_t total);
    void *self;              /* passed to `other` and `progress` */
    const atomic_bool *stop; /* when true, the restore ends with FR_E_CANCELLED; NULL: never */
};
enum fr_status fr_trainer_restore(struct fr_trainer *trainer, struct fr_durable *durable,
                                  const struct fr_trainer_restore_options *options, struct fr_err *err) FR_MUST_CHECK;

/* Returns the reason why the loss of a task cannot teach anything, whatever samples arrive; NULL
 * when it can. */
const char *fr_trainer_task_warning(const struct fr_graph *graph, uint32_t task);
enum { FR_STUCK_MAX = 16 }; /* named in one message; further ones are named once these are fixed */
/* Writes a text that names what begins at zero and never learns, with the remedy. */
void fr_trainer_stuck_text(const struct fr_conf *conf, const struct fr_graph_stuck *stuck, char *out, size_t size);

/* Earlier epochs had another model record, so the next cut publishes the present one, with all
 * dense parameters. Must be called before the loop begins. */
void fr_trainer_other_model(struct fr_trainer *trainer);
/* The next cut also stages this section, and a drain makes a cut for its sake. Must be called
 * before the loop begins, at most once. */
void fr_trainer_carry(struct fr_trainer *trainer, const char *name, const struct fr_buffer *section);
/* Returns the epoch since which every cut epoch has had all its dense parameters published; 0:
 * those of the newest epoch are not. Any thread may call it. */
uint64_t fr_trainer_dense_since(const struct fr_trainer *trainer);
/* Returns the epoch up to which the publishers of all ranks had all epochs acknowledged at the last
 * roll call. A journal must keep the epochs after it, because the digest of an epoch on the delta
 * topic is made of those of all journals (durable/agreement.h). Any thread may call it. */
uint64_t fr_trainer_acknowledged(const struct fr_trainer *trainer);
/* Makes one step. FR_AGAIN: there is nothing to do at the moment. FR_EOF: the trainer is drained,
 * and the last epoch was handed to the durable thread. */
enum fr_status fr_trainer_step(struct fr_trainer *trainer, struct fr_err *err) FR_MUST_CHECK;
/* Asks for a drain: the current batch is the last. Any thread. */
void fr_trainer_stop(struct fr_trainer *trainer);
/* Why reading pauses; fr_trainer_pauses has the names that /metrics shows. RANK: training waits for
 * another rank of the job. */
#define FR_PAUSES(X)                                                                                                   \
    X(NONE, "")                                                                                                        \
    X(MEMORY, "memory_limit")                                                                                          \
    X(JOURNAL, "journal_max")                                                                                          \
    X(UNFOLDED, "unfolded_max")                                                                                        \
    X(COMPACTION, "compaction")                                                                                        \
    X(DISK, "disk")                                                                                                    \
    X(CUT, "cut")                                                                                                      \
    X(RANK, "rank")
enum fr_pause {
#define FR_PAUSE_ENUM(name, text) FR_PAUSE_##name,
    FR_PAUSES(FR_PAUSE_ENUM)
#undef FR_PAUSE_ENUM
        FR_PAUSE_KINDS
};
extern const char *const fr_trainer_pauses[FR_PAUSE_KINDS];
/* Pauses reading, as decided by the daemon, until the call with FR_PAUSE_NONE, whose text may be
 * NULL. The text is for operators and is copied. Any thread may call it. */
void fr_trainer_pause(struct fr_trainer *trainer, enum fr_pause why, const char *text);
/* Returns the approximate journal bytes of all epochs that this process cut and of the samples in
 * the open epoch. Any thread may call it. */
uint64_t fr_trainer_produced_bytes(const struct fr_trainer *trainer);
/* Sets the limit of fr_trainer_produced_bytes: reading pauses between batches, for the given
 * reason, before the limit would be exceeded. The caller that enforces a limit sets it in advance,
 * so a late update does no harm. A coming batch is assumed to add the most that any batch added so
 * far. The text is copied. Any thread may call it. */
void fr_trainer_allow(struct fr_trainer *trainer, uint64_t produced_bytes, enum fr_pause why, const char *text);
/* The time after which an epoch that is not durable, or that cannot even be cut, is late: the
 * larger of two epoch lengths and FR_LATE_MS. */
uint64_t fr_trainer_late_ns(const struct fr_conf *conf);
/* Returns whether publishing is held. Any thread may call it. */
bool fr_trainer_held(struct fr_trainer *trainer);
/* Returns the newest epoch that may be published. Only the owner thread may call it; before the
 * loop begins (after a restore), any thread. */
uint64_t fr_trainer_publishable(const struct fr_trainer *trainer);

struct fr_trainer_table_status {
    char name[FR_NAME_MAX];
    struct fr_store_table_stats stats;
};
struct fr_trainer_task_status {
    struct fr_task_result result;
    char problem[300]; /* why the task learns nothing and what to do; empty: it learns */
};
/* Counters of this process only. */
struct fr_trainer_run {
    uint64_t quarantined_records; /* dead-lettered because of quarantined samples */
    uint64_t watermark_held;      /* batches in which watermark_step_max held the watermark back */
    double last_loss;
    /* Total times of the owner thread, whose steps the pool shares. step_ns contains everything
     * except cuts and waits for batches. */
    uint64_t step_ns, plan_ns, forward_ns, backward_ns, update_ns, metrics_ns, cut_ns, wait_ns;
    uint64_t cuts;
    /* batches planned during the device's step of the batch before; those of the plans that were
     * undone; those of the batches before whose due slices also ran during their step */
    uint64_t planned_early, early_plans_undone, sliced_early;
    uint64_t rows_brought;  /* rows copied to the device, which holds only part of the rows */
    int64_t kafka_t_max_ms; /* the newest Kafka timestamp trained */
    /* how long this rank waited for others on each channel */
    uint64_t exchange_wait_ns[FR_CHANNELS];
};
struct fr_trainer_status {
    uint64_t epoch; /* the last epoch cut */
    bool open;      /* the open epoch already has content */
    struct fr_trainer_history history;
    struct fr_trainer_run run;
    uint64_t store_bytes, dirty_bytes;
    uint32_t n_tables;
    struct fr_trainer_table_status tables[FR_TABLES_MAX];
    struct fr_trainer_task_status tasks[FR_TASKS_MAX]; /* in the order of the history */
    enum fr_pause pause;
    char paused[256]; /* why reading pauses and what an operator can do; empty: reading continues */
};
/* Copies the last published status. A status is published at most once a second, and additionally
 * at every cut and whenever a hold begins or ends. */
void fr_trainer_get_status(struct fr_trainer *trainer, struct fr_trainer_status *out);

/* What is noted of batches for GET /insight; NULL: insight.interval is 0. Any thread. */
struct fr_insight;
struct fr_insight *fr_trainer_insight(const struct fr_trainer *trainer);

const char *fr_trainer_kernel(const struct fr_trainer *trainer);

#endif
