/* The running daemon: the objects that wiring.c makes and connects. Private to daemon/.
 *
 * The threads are drawn in loops/loops.h; each loop's struct there states what other threads may
 * read or write. The other members of struct fr_service are constant once the loops run (options,
 * modules, rings, device) or belong to the main thread. Until the loops run, recovery has a thread
 * of its own (recovery_thread.c), and the main thread uses nothing that it restores. */
#ifndef FR_DAEMON_SERVICE_H
#define FR_DAEMON_SERVICE_H

#include "exit_code.h"
#include "identity.h"
#include "loops/loops.h"
#include "policies.h"
#include "service_device.h"

enum {
    /* number of stages: one that is being filled, and one that is becoming durable
     * (docs/architecture.md) */
    FR_STAGES = 2,
    FR_SECOND_SIGNAL_MS = 1000,     /* a SIGTERM within this time after the first repeats it */
    FR_JOURNAL_FILE_MAX = 64 << 20, /* upper bound of a journal file; a trim frees whole files */
    FR_TICK_MS = 200,               /* a turn of the main loop: documents and supervision */
    /* After this time a close ends the process without waiting for clients and threads. */
    FR_CLOSE_S = 5,
};

/* The options of the command line, written before fr_service_open by the one who runs the service.
 * Borrowed. */
struct fr_service_options {
    const char *config; /* path of the configuration */
    bool until_end;
    int64_t until_ms;                   /* --until TIME; 0: none */
    const struct fr_ingest_skip *skips; /* --skip */
    size_t n_skips;
    const char *restore;    /* --restore DIR, or NULL */
    uint64_t left_timeline; /* --new-timeline N; 0: not requested */
    /* How this rank reaches the others of the job. NULL: the job has one rank. */
    struct fr_exchange *exchange;
};

struct fr_documents; /* documents.h */

/* Batches between ingest and trainer, stages between trainer and durable loop, each with a ring for
 * either direction. */
struct fr_service_rings {
    struct fr_ring *full, *empty, *cut_stages, *free_stages;
    struct fr_stage stages[FR_STAGES];
};

/* Recovery: the state directory is opened, made from a savepoint or continued in a new timeline,
 * and restored into the trainer, on a thread of its own, so that a signal can end it.
 *
 *   member                    written by                             read by
 *   done_bytes, total_bytes   recovery thread                        main thread (documents)
 *   stop                      main thread, when a signal came        recovery thread, main thread
 *   identity, epoch_wall_ms   recovery thread, until it is joined    main thread afterwards
 *
 * The atomics are sequentially consistent; the two of the progress are not read as a pair. */
struct fr_recovery {
    _Atomic uint64_t done_bytes, total_bytes;
    atomic_bool stop;
    struct fr_identity identity;
    /* when the newest epoch of the restored state was cut; 0: there is none */
    int64_t epoch_wall_ms;
};

/* Copies of the modules' statuses, of about one moment. */
struct fr_service_status {
    struct fr_trainer_status trainer;
    struct fr_ingest_status ingest;
    struct fr_publisher_status publisher;
    struct fr_durable_status durable;
    uint64_t waiting_bytes;                    /* journal bytes that wait for the delta topic */
    const struct fr_replicas_status *replicas; /* NULL: acknowledgements are not read */
    bool recovered;                            /* the history is known */
    bool ready;
};

struct fr_service {
    struct fr_conf *conf;
    const struct fr_clock *clock;
    struct fr_service_options options;

    /* modules, in the order in which they are made */
    struct fr_registry *registry;
    struct fr_timings timings;
    struct fr_freshness *freshness;
    struct fr_http *http;
    struct fr_service_device device;
    struct fr_pool *pool;
    struct fr_service_policies policies;
    struct fr_service_rings rings;
    struct fr_trainer *trainer;
    struct fr_durable *durable;
    struct fr_ingest *ingest;
    struct fr_publisher *publisher;
    struct fr_replicas *replicas; /* NULL: acknowledgements are not read */

    struct fr_lifecycle life;
    struct fr_recovery recovery;
    struct fr_loops loops;

    /* owned by the main thread */
    uint64_t stop_ns; /* when the first SIGTERM came; 0: none */
    struct fr_documents *documents;
};

/* ---- wiring.c ---- */

/* Makes all objects and recovers the state. fr_service_close ends and frees everything, whatever
 * fr_service_open returned. */
enum fr_status fr_service_open(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
void fr_service_close(struct fr_service *service);
/* Makes the locks and connects the loops with each other and with the modules that exist. Called by
 * fr_service_open and by tests of the steps. */
void fr_service_wire(struct fr_service *service);

/* ---- recovery_thread.c ---- */

/* Called by the main thread; returns when the recovery thread has ended: FR_OK, FR_E_CANCELLED
 * after a signal, or why the state cannot be used. Nothing is lost in any of these cases. */
enum fr_status fr_service_recover(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;

/* ---- restore.c, on the recovery thread ---- */

/* --restore: makes the state directory from a savepoint. */
enum fr_status fr_service_restore(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* --new-timeline: the opened state continues in a new timeline. */
enum fr_status fr_service_new_timeline(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;

/* ---- run.c ---- */

/* Describes a drain that has used up export.drain_timeout: what it waits for, what became of the
 * rest, and what to do. FR_E_UNAVAILABLE; FR_E_MISMATCH if no retry helps. */
enum fr_status fr_service_drain_timed_out(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* Runs the opened service to its end on the main thread. */
enum fr_status fr_service_run(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* Whether a result of fr_signals_wait requests a drain. A second SIGTERM ends the process, unless
 * it comes within FR_SECOND_SIGNAL_MS: `timeout` and other supervisors signal a process and then
 * its group, so that one request arrives twice. Main thread. */
bool fr_service_stops(struct fr_service *service, int signal_number);

#endif
