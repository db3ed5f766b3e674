/* The running daemon: every object, its thread, and how they stop. Private to daemon/.
 *
 *   ingest thread ─ full ring ─► trainer thread ─ cut_stages ─► durable thread ─ offer ─► publisher
 *   thread
 *
 * beside: upkeep thread (limits, acknowledgement), fold thread, main thread (signals, documents).
 *
 * A thread that cannot go on calls fr_service_fail once; the main thread then stops all and exits
 * with the code of that status. */
#ifndef FR_DAEMON_SERVICE_H
#define FR_DAEMON_SERVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/machine.h"
#include "conf/conf.h"
#include "durable/durable.h"
#include "eviction/eviction.h"
#include "exporter/publisher.h"
#include "exporter/snapshot.h"
#include "hook.h"
#include "ingest/ingest.h"
#include "metrics/http.h"
#include "metrics/process_series.h"
#include "metrics/thread_series.h"
#include "trainer/trainer.h"
#include "trainer/training.h"

enum {
    FR_EXIT_OK = 0,
    FR_EXIT_FAILURE = 1,
    FR_EXIT_CONFIG = 2,
    FR_EXIT_OPERATOR = 3,
    FR_EXIT_RETRY = 75,
    FR_STAGES = 2,         /* one being filled, one becoming durable (docs/architecture.md) */
    FR_RETRY_MS_MIN = 250, /* back-off of a start or a drain, doubled up to the next */
    FR_RETRY_MS_MAX = 5000,
    /* Until the wait is so long (1.75 s), a failed start check is no trouble: topics that were just
     * made have no leader at first. */
    FR_RETRY_TOLD_MS = 2000,
    FR_SECOND_SIGNAL_MS = 1000,     /* supervisors signal a process and its group in one instant */
    FR_JOURNAL_FILE_MAX = 64 << 20, /* upper bound of a journal file: what a trim waits for */
    /* durable, publisher and fold thread beside the trainer and its workers */
    FR_BACKGROUND_NICE = 10,
    /* A twenty-eighth of a core that training wants: nothing waits for a snapshot. */
    FR_SNAPSHOT_NICE = 15,
    FR_TICK_MS = 200,       /* main loop: documents and supervision */
    FR_WATCHDOG_MS = 60000, /* a loop that has not turned for so long makes /healthz 503 */
    /* then the process ends without waiting for clients and threads */
    FR_CLOSE_S = 5,
    FR_DISK_LOOK_MS = 200, /* how often free bytes are asked for */
    /* Bytes of the disk under state_dir that stay free beside what epochs, a fold and a compaction
     * may take: for marks, and for RocksDB's manifests and logs (three of 4 MiB). */
    FR_DISK_RESERVE = 16 << 20,
};
/* A compaction writes at most about so much before it removes what it read: 24 files of
 * level 0, of 256 MiB at most, and a base level of 4 GiB (cold_tuning.c). */
#define FR_COMPACTION_ROOM ((uint64_t)10 << 30)

/* What a drain goes through, in order. */
enum fr_phase { FR_PHASE_RECOVERING, FR_PHASE_RUNNING, FR_PHASE_DRAINING, FR_PHASE_STOPPED };

enum fr_loop {
    FR_LOOP_PUBLISH,
    FR_LOOP_INGEST,
    FR_LOOP_TRAINER,
    FR_LOOP_DURABLE,
    FR_LOOP_UPKEEP,
    FR_LOOP_FOLD,
    FR_LOOP_SNAPSHOT,
    FR_LOOPS
};

struct fr_loop_thread {
    struct fr_service *service;
    pthread_t thread;
    int beat; /* for fr_http_beat */
    bool started;
    atomic_bool done;
};

/* A check of the outside world that is repeated until it is good. */
struct fr_retry {
    uint64_t next_ns;
    uint32_t wait_ms;
    uint64_t since_ns;          /* the first try began; 0: no try has failed */
    unsigned long long told_ns; /* its last line in the log; 0: none */
    uint64_t told_text;         /* hash of the reason in it */
};

struct fr_policy_configs { /* what a table's policies point to */
    struct fr_gate_count count;
    struct fr_gate_sketch sketch;
    struct fr_gate_probability probability;
    struct fr_expire_idle idle;
    struct fr_expire_weak weak;
    struct fr_expire_score score;
    struct fr_expire_capacity capacity;
};

/* The savepoint and the snapshot at the end of a drain: main wants it, the thread of its kind takes
 * it. */
enum fr_last_savepoint { FR_LAST_NONE, FR_LAST_WANTED, FR_LAST_DONE };

/* A snapshot by which a new timeline is told on the topic (rewinds.c). */
enum fr_rewinding { FR_REWIND_NONE, FR_REWIND_WANTED, FR_REWIND_UPLOADS, FR_REWIND_READY, FR_REWIND_REFUSED };

/* Of snapshots.c; the snapshot thread's but where it says otherwise. */
struct fr_service_snapshots {
    char dir[PATH_MAX]; /* fixed once opened */
    uint64_t looked_ns, due_ns;
    struct fr_retry take_retry, point_retry, hook_retry;
    bool ends;                          /* a drain wants one: its steps are retried soon */
    struct fr_snapshot newest, current; /* name "": none */
    struct fr_snapshot uploaded;        /* the hook's */
    struct fr_hook hook;
    /* Written by the snapshot thread and read by any, under the service's lock: what commits
     * announce, what CURRENT names, where in the topic that goes on (owned). */
    struct fr_announced_snapshot announced;
    char current_name[FR_MANIFEST_NAME_MAX];
    char problem[1024]; /* why the last one could not be taken, named or uploaded; "": none */
    uint64_t *offsets;
    uint32_t n_offsets;
    atomic_bool dense_wanted; /* cuts publish all dense parameters */
    atomic_int last;          /* enum fr_last_savepoint: the one at the end of a drain */
    struct {
        atomic_int stage;            /* enum fr_rewinding */
        uint64_t least;              /* the publisher's, before it wants one */
        struct fr_snapshot snapshot; /* to be read once ready */
    } rewind;
    _Atomic uint64_t taken, failures, hook_failures, kept, current_epoch;
    _Atomic uint64_t bytes, millis; /* of the last one that this process took */
};

/* The counters of the history that may be shown (series.c); main thread. */
struct fr_settled {
    struct fr_trainer_status *shown, *waiting; /* owned; NULL: none */
};

/* How the configuration stands to the state; the recovering thread's (identity.c). */
struct fr_identity {
    struct fr_training training;    /* recorded */
    struct fr_conf_changes changes; /* of it, or of the model */
    bool other_model;               /* epochs so far are of another model record */
    struct fr_err err;              /* status FR_OK: it fits */
};

struct fr_progress { /* progress.c */
    /* of the last line of a minute */
    uint64_t told_ns, samples;
    /* the open pause: its begin (0: none), and from where on no line has it */
    uint64_t paused_ns, pause_counted_ns;
    uint64_t pause_total_ns; /* of pauses since the last line */
    unsigned long long pause_told_ns;
    uint32_t pauses;
    bool pause_told;
};

struct fr_service {
    struct fr_conf *conf;
    const char *config; /* its file */
    const struct fr_clock *clock;
    bool until_end;
    int64_t until_ms;                   /* --until TIME; 0: none */
    const struct fr_ingest_skip *skips; /* --skip */
    size_t n_skips;
    const char *restore;    /* --restore DIR, or NULL */
    uint64_t left_timeline; /* --new-timeline N; 0: not asked for */

    struct fr_progress progress; /* main thread */
    uint64_t stop_ns;            /* main thread: when the first SIGTERM came; 0: none */
    struct fr_registry *registry;
    struct fr_thread_series times;    /* main thread */
    struct fr_process_series process; /* main thread */
    struct fr_settled settled;
    struct fr_http *http;
    struct fr_freshness *freshness;
    struct fr_timings timings;
    struct fr_durable *durable;
    struct fr_pool *pool;
    struct fr_graph_device device; /* queue NULL: the processor */
    struct {
        char name[32];     /* "cpu", "cuda:0"; empty until the start has chosen */
        char card[128];    /* of a card: what its driver calls it */
        char reason[1024]; /* why `device: auto` computes on the processor */
    } computes_on;         /* set at the start, before the documents are published; then constant */
    struct fr_trainer *trainer;
    struct fr_ingest *ingest;
    struct fr_publisher *publisher;
    struct fr_ring *full, *empty, *cut_stages, *free_stages;
    struct fr_stage stages[FR_STAGES];
    struct fr_policy_configs policy_configs[FR_TABLES_MAX];
    struct fr_table_policies policies[FR_TABLES_MAX];

    struct fr_identity identity;
    struct fr_positions positions;       /* trainer thread after start */
    struct fr_announced_offset *offsets; /* trainer thread: offsets of the announcement */
    size_t offsets_capacity;
    struct fr_buffer end_offsets; /* lockstep: fixed ends, read at start */

    struct fr_loop_thread loops[FR_LOOPS];
    atomic_bool stop_ingest, abandon;
    atomic_bool stop_recovery; /* a signal came before the loops began */
    /* Any thread asks with true that the fold thread folds soon, whatever unfolded_max says. */
    atomic_bool fold_wanted;
    atomic_bool delta_checked, ingest_started;
    atomic_int epoch_wanted; /* enum fr_epoch_wanted: by the publisher */
    atomic_int phase;
    _Atomic uint64_t durable_epoch;
    struct fr_service_snapshots snapshots;
    atomic_int last_savepoint; /* enum fr_last_savepoint */
    _Atomic uint64_t savepoints, savepoint_failures;
    /* epochs above it are held back: fr_stage.publishable of the newest durable one */
    _Atomic uint64_t publishable;
    _Atomic uint64_t recovered_bytes, recover_bytes;
    _Atomic uint64_t append_ns, appends, epoch_bytes;
    _Atomic uint64_t cut_to_durable_ns; /* of the last epoch */
    /* when the newest epoch became durable, and was acknowledged; before that the end of
     * recovery */
    _Atomic int64_t durable_wall_ms, published_wall_ms;
    int64_t epoch_wall_ms;           /* of the restored state's newest epoch; 0: none */
    _Atomic uint64_t appended_bytes; /* as fr_trainer_produced_bytes counts them */
    /* Of the epoch that the durable thread has in hand: when it was cut (0: none), what it waits
     * for. */
    _Atomic uint64_t waiting_cut_ns;
    const char *_Atomic waits_for;
    /* Of the disk under state_dir, by the upkeep thread: free, and what has to stay free for
     * reading to go on. Both 0: not looked at yet. */
    _Atomic uint64_t disk_free, disk_reserve;

    /* Each of one loop's thread (steps.c). */
    struct fr_retry ingest_retry, delta_retry, append_retry, fold_retry;
    bool stream_ended;                  /* ingest */
    bool publish_troubled;              /* publish */
    uint64_t published;                 /* publish: acknowledged epochs when last told */
    struct fr_stage *stage;             /* durable: cut, and not durable yet */
    unsigned long long letters_told_ns; /* durable: the wait for dead letters; 0: none */
    uint64_t acknowledged;              /* upkeep: epochs the journal was told of */
    uint64_t savepoints_looked_ns;      /* fold */
    uint64_t savepoint_due_ns;          /* fold: when the policy is asked again */
    struct fr_retry savepoint_retry;    /* fold: the folder of savepoints failed */
    bool hold_told;                     /* upkeep */
    uint64_t disk_looked_ns;            /* upkeep */

    /* Failure, problem texts and durable positions: publication between threads. */
    pthread_mutex_t lock;
    struct fr_err failure; /* status FR_OK: none */
    char starting[1024];   /* why the start is not done, for /readyz */
    struct fr_positions durable_positions;
};

/* service.c: builds everything up to recovery and the start of threads; main.c runs and ends it. */
enum fr_status fr_service_open(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
void fr_service_close(struct fr_service *service);

/* run.c */
/* A drain has used up export.drain_timeout: what it lacks, what became of the rest, and what to do.
 * FR_E_UNAVAILABLE; FR_E_MISMATCH where no retry helps. */
enum fr_status fr_service_drain_timed_out(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_service_run(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* Whether the answer of fr_signals_wait asks for a drain. A second SIGTERM ends the process, unless
 * it belongs to the first: `timeout` and others signal a process and then its group, so that one
 * stop arrives twice. Main thread. */
bool fr_service_stops(struct fr_service *service, int signal_number);
void fr_service_fail(struct fr_service *service, const struct fr_err *err);
int fr_exit_code(enum fr_status status);

/* signals.c: blocks and takes what asks for something, ignores what else would end the process. */
void fr_signals_take(void);
/* Waits for one of ours: SIGTERM, also for SIGINT; SIGQUIT, also for SIGXCPU; SIGHUP; 0: none. */
int fr_signals_wait(long most_ms);
/* From here on an abort ends with a line and an exit code; `dir` is looked at for room. */
void fr_signals_aborts(const char *dir);

/* limits.c */
/* Descriptors, threads and address space that a run takes. FR_E_LIMIT, FR_E_NO_MEMORY. */
enum fr_status fr_limits_check(const struct fr_conf *conf, struct fr_err *err) FR_MUST_CHECK;
/* What of the configuration is beyond the machine, a line each. */
void fr_limits_warn(const struct fr_conf *conf, const struct fr_machine *machine, const char *config,
                    struct fr_buffer *out);
/* A line of the log: what the machine gives. */
void fr_limits_tell(void);
/* Workers of the pool. */
size_t fr_limits_workers(const struct fr_conf *conf);

/* identity.c */
/* Records what a state without epochs is made with. */
/* Delta side of a model that begins from a savepoint whose newest journal file had this head: the
 * configuration's name, partitions and piece_max; *other: the savepoint is of another model. */
#define FR_IDENTITY_DELTA "delta.json"
enum fr_status fr_identity_as(const struct fr_conf *conf, const struct fr_buffer *recorded, struct fr_buffer *head,
                              struct fr_buffer *delta, bool *other, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_identity_write(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* Compares a state with epochs; the section is its newest "training", or NULL. FR_E_MISMATCH: the
 * configuration changes what is fixed; identity.err says what. */
enum fr_status fr_identity_check(struct fr_service *service, const uint8_t *section, size_t size) FR_MUST_CHECK;
/* The same of the savepoint that a state is to begin from, before anything is made of it; other:
 * as another model (--as). */
enum fr_status fr_identity_fits(struct fr_service *service, struct fr_durable *savepoint, bool other,
                                struct fr_err *err) FR_MUST_CHECK;
/* After recovery: what changed is recorded with the next epoch. */
void fr_identity_take_over(struct fr_service *service);
/* The head of every journal file: all that its delta records depend on beside the epochs. */
void fr_identity_head(const struct fr_conf *conf, const char *kernel, struct fr_buffer *out);

/* loops.c */
enum fr_status fr_loops_start(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
void fr_loops_join(struct fr_service *service);

/* steps.c: one turn of each loop; what they return is said there. */
enum fr_status fr_step_publish(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_step_ingest(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_step_trainer(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_step_durable(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* upkeep.c */
enum fr_status fr_step_upkeep(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_step_fold(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* Whether an epoch has been cut for too long without being durable, and why in text. Any thread. */
bool fr_service_epoch_late(struct fr_service *service, char *text, size_t size);

/* steps.c: the next try is twice as late as the one before, after least_ms at first and never after
 * more than most_ms. */
void fr_service_wait_longer(struct fr_retry *retry, const struct fr_clock *clock, uint32_t least_ms, uint32_t most_ms);
/* The same up to FR_RETRY_MS_MAX; source names what is tried again in /healthz and in the log,
 * until fr_service_retry_good. */
void fr_service_retry_later(struct fr_service *service, struct fr_retry *retry, const char *source,
                            const struct fr_err *err);
void fr_service_retry_good(struct fr_service *service, struct fr_retry *retry, const char *source);

/* Folds what `before` says is durable and not folded. */
enum fr_status fr_service_fold(struct fr_service *service, const struct fr_durable_status *before,
                               struct fr_err *err) FR_MUST_CHECK;

/* restore.c: the state directory is made from a savepoint; the state goes on in a new timeline. */
/* device.c: FR_E_UNSUPPORTED when the card that is asked for is not there. */
enum fr_status fr_service_open_device(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
void fr_service_close_device(struct fr_service *service);
enum fr_status fr_service_restore(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_service_new_timeline(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;

/* savepoints.c: requests, policy and the end of a drain; a part of the fold thread's turn. */
enum fr_status fr_step_savepoints(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;

/* snapshots.c: the snapshot thread's turn; what is there at start; the newest announcement. */
enum fr_status fr_step_snapshots(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_snapshots_open(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_snapshots_restore(struct fr_service *service, const uint8_t *section, size_t size) FR_MUST_CHECK;
void fr_snapshots_close(struct fr_service *service);
/* For trainer and publisher; self is the service. */
void fr_snapshots_announced(void *self, struct fr_announced_snapshot *out);
bool fr_snapshots_cover(void *self, const int64_t *low, const int64_t *high, uint32_t partitions);

/* Writes one, of an epoch whose parameters are all published or, with `least`, as of that epoch or
 * a later one; FR_E_EXISTS: *out is there. */
enum fr_status fr_snapshots_write(struct fr_service *service, uint64_t least, struct fr_snapshot *out,
                                  struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_snapshots_upload(struct fr_service *service, const struct fr_snapshot *snapshot,
                                   struct fr_err *err) FR_MUST_CHECK;
/* What comes behind it is all that replicas need of the topic. */
enum fr_status fr_snapshots_begin_with(struct fr_service *service, const struct fr_snapshot *snapshot,
                                       struct fr_err *err) FR_MUST_CHECK;
/* Those of any other timeline are nobody's any more. */
void fr_snapshots_leave(struct fr_service *service, uint64_t timeline);
void fr_snapshots_tell(struct fr_service *service, enum fr_status status, const char *what, const struct fr_err *err);
/* rewinds.c: the publisher's question, and a part of the snapshot thread's turn; whether it has
 * something in hand. */
enum fr_status fr_snapshots_ask_rewind(void *self, uint64_t least, struct fr_publisher_rewind *out) FR_MUST_CHECK;
bool fr_step_rewind(struct fr_service *service);
bool fr_snapshots_is_rewind(const struct fr_service *service, const char *name);

/* documents.c: /status /auc /readyz and series, from snapshots. */
void fr_documents_publish(struct fr_service *service);

struct fr_expiry_reason {
    const char *name;
    enum fr_absent_reason reason;
};
enum { FR_EXPIRY_REASONS = 4 };
extern const struct fr_expiry_reason fr_documents_expiry[FR_EXPIRY_REASONS];

/* ---- series.c ---- */

/* Copies of what the modules say of themselves. */
struct fr_snapshots {
    struct fr_trainer_status trainer;
    struct fr_ingest_status ingest;
    struct fr_publisher_status publisher;
    struct fr_durable_status durable;
    uint64_t waiting_bytes; /* of the journal, for the delta topic */
    bool recovered;         /* the history is known */
    bool ready;
};
void fr_documents_series(struct fr_service *service, const struct fr_snapshots *s);
/* The newest status none of whose counters a crash could take back: all that it counted is durable.
 * `now` is copied. */
/* Durable positions, and without offset the partitions that wait for their first one. */
void fr_documents_positions(struct fr_service *service, const struct fr_ingest_status *ingest,
                            struct fr_positions *out);
/* What ingest knows of a position's partition, or NULL. *at (0 at first): where the last one was;
 * lists of one order are passed once. */
const struct fr_ingest_partition *fr_documents_read_partition(const struct fr_ingest_status *ingest,
                                                              const struct fr_partition_position *position,
                                                              uint32_t *at);
const struct fr_trainer_status *fr_documents_settle(struct fr_settled *settled, const struct fr_trainer_status *now,
                                                    uint64_t durable);
void fr_documents_settled_release(struct fr_settled *settled);

/* ---- check.c ---- */

/* Every problem of the Kafka clients' settings, a line each; false when there is one. */
bool fr_service_check_clients(const struct fr_conf *conf, const char *config, struct fr_buffer *out);
/* What learns nothing: warnings, for other tasks may be fine. */
void fr_service_check_warnings(const struct fr_conf *conf, const char *config, struct fr_buffer *out);

/* ---- progress.c: log lines of a healthy run ---- */

void fr_progress_start(const struct fr_service *service);
/* To be called every FR_TICK_MS: the line of the minute, pauses. */
void fr_progress_turn(struct fr_service *service);
/* What the last line says. */
void fr_progress_end(struct fr_service *service, char *out, size_t size);

/* ---- policies.c ---- */

/* Gate and expiry rules of a table; `configs` must outlive them. */
void fr_service_policies(const struct fr_conf_table *table, struct fr_policy_configs *configs,
                         struct fr_table_policies *out);

/* What with memory_reserve is made at the start of each epoch that may be there at once, two in
 * stages and the newest durable one: about what images are of epoch_bytes_max. */
static inline size_t fr_epoch_touch_bytes(const struct fr_conf *conf)
{
    return conf->memory_reserve > 0 ? (size_t)(conf->epoch_bytes_max / 4 * 3) : 0;
}

#endif
