/* The owner loop: plan, step, cut (docs/architecture.md, "One sample's life"). Owns store, graph,
 * metric state, watermark and, through a small function table, stream positions.
 *
 * One call of fr_trainer_step makes a due cut, or trains one batch (plan, forward, metrics,
 * backward, update, positions), or waits for a batch. A cut is staged only between batches and
 * before the next batch is planned, so that gate counts, positions and values of a batch are always
 * in the same epoch. At most two epochs are between cut and durable: two stages circulate through
 * two rings. When none of them is free for fr_trainer_late_ns after a cut with samples was due, the
 * next batch waits: what a crash would undo stays bounded.
 *
 * An epoch without samples (a heartbeat) is cut only while reading goes on and publishing is not
 * held, since nobody could use it, and the journal would grow.
 *
 * Every decision about data uses the watermark (largest event time of a trained sample, moved at
 * the beginning of its batch); the monotonic clock decides only when a live epoch is cut. In
 * lockstep mode cuts follow the batch count and announced times are the watermark: everything is a
 * function of the log.
 *
 * A batch with anything non-finite in it is looked at sample by sample (quarantine.c). Those unfit
 * are left out, dead-lettered and counted as quarantined, and the rest trains; store, parameters,
 * statistics, metrics and watermark are as if they had never been.
 *
 * When nothing trains of FR_QUARANTINE_STREAK_MAX batches in a row that should have, and that came
 * to FR_QUARANTINE_SAMPLES_MIN samples, publishing is held: something is wrong with the model or
 * the whole stream, and replicas are better off with what they have. Reading, training and epochs
 * go on, and fr_stage.publishable stays. As many batches in a row that trained something end the
 * hold. It is state, so a restart does not end it.
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
#include "graph/graph.h"
#include "metrics/freshness.h"
#include "metrics/task.h"
#include "store/store.h"
#include "trainer/section.h"

enum {
    /* So many batches in a row of which nothing could train hold publishing, and as many good ones
     * end the hold (P6), */
    FR_QUARANTINE_STREAK_MAX = 3,
    /* if the bad ones had so many samples. On a slow stream a batch is a sample, and three bad ones
     * do not speak against the model. */
    FR_QUARANTINE_SAMPLES_MIN = 32,
    /* When so many trained samples in a row do not count for a task, the task is said to learn
     * nothing: a label of one sample in a hundred is there long before. */
    FR_TASK_SILENT_SAMPLES = 10000,
    /* The longest wait for a batch in one step bounds the reaction to stop and cut deadlines. */
    FR_TRAINER_WAIT_MS = 50,
    /* A disk or a broker that hesitates for less is no reason to keep from reading. */
    FR_LATE_MS = 2000,
};

/* An epoch without samples is cut for somebody who goes on with it: every `epoch` while reading is
 * paused, because nothing else would bring one, and at a drain unless that does without. */
enum fr_epoch_wanted { FR_EPOCH_NOT_WANTED, FR_EPOCH_WANTED, FR_EPOCH_WANTED_WHILE_PAUSED };

/* Who keeps stream positions (ingest); called by the owner thread only. */
struct fr_trainer_stream {
    void *self;
    /* Samples that took no effect have the role FR_ROLE_QUARANTINED, also in the batch's
     * positions. */
    void (*applied)(void *self, const struct fr_batch *batch);
    void (*stage)(void *self, struct fr_buffer *section);
    /* Gives the offsets for the commit record and returns their number; they are valid until the
     * next call. */
    uint32_t (*offsets)(void *self, struct fr_announced_offset **offsets);
    /* Sends a record some samples of which were left out to the dead letters. *number is the
     * letter's, or 0 when the record has one already. FR_AGAIN says that there is no room now. The
     * member is NULL when there are no dead letters. */
    enum fr_status (*dead_letter)(void *self, const struct fr_batch *batch, const struct fr_batch_record *record,
                                  const char *reason, uint64_t *number);
    /* Fills in the snapshot that the commit record announces; NULL: none ever. */
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
    /* stages to and back from the durable thread; the caller puts the free ones in */
    struct fr_ring *free_stages;
    /* set when changes have to be folded before reading can go on; NULL: nobody listens */
    atomic_bool *fold_wanted;
    /* While it is false an epoch needs samples: there are no heartbeats. NULL: true. */
    const atomic_bool *heartbeats;
    const atomic_int *epoch_wanted; /* enum fr_epoch_wanted; NULL: nobody does */
    /* While it is true every cut publishes the dense parameters that changed; NULL: false. */
    const atomic_bool *dense_wanted;
    /* What epochs between cut and durable wait for, for messages; NULL, or to NULL: the disk. */
    const char *_Atomic *waits_for;
    struct fr_freshness *freshness;   /* borrowed; told of trained batches and cuts; NULL: nobody */
    const struct fr_timings *timings; /* likewise */
    /* That the network is computed on: api, queue, row_bytes_max; borrowed. NULL: the processor. */
    const struct fr_graph_device *device;
    bool serial; /* tests: nothing is planned beside a device's step */
};

struct fr_trainer;

struct fr_trainer *fr_trainer_new(const struct fr_trainer_options *options);
void fr_trainer_free(struct fr_trainer *trainer);

/* Restores from a durable state (sections of its own, of store and graph; images). Other sections
 * go to `other` (may be NULL). FR_E_CORRUPT, FR_E_MISMATCH. */
typedef enum fr_status fr_section_restore(void *self, const char *name, const uint8_t *bytes, size_t size);
struct fr_trainer_restore_options {
    const char *first;         /* one of the others that comes before all (durable.h); NULL: none */
    fr_section_restore *other; /* NULL: none */
    void (*progress)(void *self, uint64_t done, uint64_t total);
    void *self;              /* of both */
    const atomic_bool *stop; /* ends it with FR_E_CANCELLED; NULL: never */
};
enum fr_status fr_trainer_restore(struct fr_trainer *trainer, struct fr_durable *durable,
                                  const struct fr_trainer_restore_options *options, struct fr_err *err) FR_MUST_CHECK;

/* Says why the loss of a task teaches nothing, whatever samples come; NULL when it does. */
const char *fr_trainer_task_warning(const struct fr_graph *graph, uint32_t task);
enum { FR_STUCK_MAX = 16 }; /* named; the rest is named when these are mended */
/* Writes what begins at zero and never learns, with the remedy. */
void fr_trainer_stuck_text(const struct fr_conf *conf, const struct fr_graph_stuck *stuck, char *out, size_t size);

/* Epochs before were of another model record: the next cut publishes this one, with all dense
 * parameters. Before the loop begins. */
void fr_trainer_other_model(struct fr_trainer *trainer);
/* The next cut stages this section too, and a drain cuts for it. Before the loop begins, once. */
void fr_trainer_carry(struct fr_trainer *trainer, const char *name, const struct fr_buffer *section);
/* From this epoch on all of every cut epoch's dense parameters are published; 0: not of the newest.
 * Any thread. */
uint64_t fr_trainer_dense_since(const struct fr_trainer *trainer);
/* Makes one step. FR_AGAIN says that there is nothing to do for a moment, FR_EOF that the trainer
 * is drained: the last epoch was handed to the durable thread. */
enum fr_status fr_trainer_step(struct fr_trainer *trainer, struct fr_err *err) FR_MUST_CHECK;
/* Asks for a drain: the current batch is the last. Any thread. */
void fr_trainer_stop(struct fr_trainer *trainer);
/* Why reading pauses; fr_trainer_pauses has the names that /metrics shows. */
#define FR_PAUSES(X)                                                                                                   \
    X(NONE, "")                                                                                                        \
    X(MEMORY, "memory_limit")                                                                                          \
    X(JOURNAL, "journal_max")                                                                                          \
    X(UNFOLDED, "unfolded_max")                                                                                        \
    X(COMPACTION, "compaction")                                                                                        \
    X(DISK, "disk")                                                                                                    \
    X(CUT, "cut")
enum fr_pause {
#define FR_PAUSE_ENUM(name, text) FR_PAUSE_##name,
    FR_PAUSES(FR_PAUSE_ENUM)
#undef FR_PAUSE_ENUM
        FR_PAUSE_KINDS
};
extern const char *const fr_trainer_pauses[FR_PAUSE_KINDS];
/* Holds reading (decided by the daemon) until FR_PAUSE_NONE, whose text may be NULL; the
 * text, for operators, is copied. Any thread. */
void fr_trainer_pause(struct fr_trainer *trainer, enum fr_pause why, const char *text);
/* Journal bytes, about, of all epochs that this process cut and of the samples of the open one. Any
 * thread may ask. */
uint64_t fr_trainer_produced_bytes(const struct fr_trainer *trainer);
/* Reading pauses between batches, for this reason, before so many are exceeded: who keeps a limit
 * says in advance how far it lies, and may look again late. What a batch will bring is taken to be
 * the most that one brought. The text is copied. Any thread. */
void fr_trainer_allow(struct fr_trainer *trainer, uint64_t produced_bytes, enum fr_pause why, const char *text);
/* An epoch that is not durable, or cannot even be cut, for so long is late: the larger of two
 * epochs and FR_LATE_MS. */
uint64_t fr_trainer_late_ns(const struct fr_conf *conf);
/* Says whether publishing is held. Any thread may ask. */
bool fr_trainer_held(struct fr_trainer *trainer);
/* Gives the newest epoch that may be published. The owner thread calls it, or another before the
 * loop begins (after a restore). */
uint64_t fr_trainer_publishable(const struct fr_trainer *trainer);

struct fr_trainer_table_status {
    char name[FR_NAME_MAX];
    struct fr_store_table_stats stats;
};
struct fr_trainer_task_status {
    struct fr_task_result result;
    char problem[300]; /* why it learns nothing and what to do, or empty */
};
/* Of this process only. */
struct fr_trainer_run {
    uint64_t quarantined_records; /* dead-lettered for quarantined samples */
    uint64_t watermark_held;      /* batches whose event times go beyond it (watermark_step_max) */
    double last_loss;
    /* Totals; the owner thread's, whose steps the pool shares. step_ns has all but cuts and waits
     * for batches. */
    uint64_t step_ns, plan_ns, forward_ns, backward_ns, update_ns, metrics_ns, cut_ns, wait_ns;
    uint64_t cuts;
    uint64_t planned_beside, planned_in_vain; /* beside a device's step; of those, taken back */
    uint64_t sliced_beside;                   /* of those, behind slices that were due */
    uint64_t rows_brought;                    /* to the device, which holds a part of them */
    int64_t kafka_t_max_ms;                   /* newest Kafka timestamp trained */
};
struct fr_trainer_status {
    uint64_t epoch; /* last cut */
    bool open;      /* the next one has something already */
    struct fr_trainer_history history;
    struct fr_trainer_run run;
    uint64_t store_bytes, dirty_bytes;
    uint32_t n_tables;
    struct fr_trainer_table_status tables[FR_TABLES_MAX];
    struct fr_trainer_task_status tasks[FR_TASKS_MAX]; /* as in the history */
    enum fr_pause pause;
    char paused[256]; /* what an operator can do about it, or empty */
};
/* Copies the last published snapshot. At most one a second is made, one at every cut and one
 * whenever publishing is held or goes on. */
void fr_trainer_get_status(struct fr_trainer *trainer, struct fr_trainer_status *out);

const char *fr_trainer_kernel(const struct fr_trainer *trainer);

#endif
