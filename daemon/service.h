/* The running daemon: the objects that service.c makes and wires, and what the main thread keeps.
 * Private to daemon/.
 *
 * The threads are drawn in loops/loops.h; each loop's struct there says what crosses to others.
 * What stands here is either constant once the loops run (options, modules, rings, device), or the
 * main thread's. Until the loops run, recovery has a thread of its own (recovery_thread.h), and the
 * main thread uses nothing of what it restores. */
#ifndef FR_DAEMON_SERVICE_H
#define FR_DAEMON_SERVICE_H

#include "documents.h"
#include "exit_code.h"
#include "identity.h"
#include "loops/loops.h"
#include "metrics/process_series.h"
#include "metrics/thread_series.h"
#include "policies.h"
#include "progress.h"
#include "readiness.h"
#include "recovery_thread.h"
#include "service_device.h"

enum {
    /* one being filled, one becoming durable (docs/architecture.md) */
    FR_STAGES = 2,
    FR_SECOND_SIGNAL_MS = 1000,     /* supervisors signal a process and its group in one instant */
    FR_JOURNAL_FILE_MAX = 64 << 20, /* upper bound of a journal file: what a trim waits for */
    FR_TICK_MS = 200,               /* main loop: documents and supervision */
    /* then the process ends without waiting for clients and threads */
    FR_CLOSE_S = 5,
};

/* What the command line asks for; freshetd.c writes it before fr_service_open. Borrowed. */
struct fr_service_options {
    const char *config; /* path of the configuration */
    bool until_end;
    int64_t until_ms;                   /* --until TIME; 0: none */
    const struct fr_ingest_skip *skips; /* --skip */
    size_t n_skips;
    const char *restore;    /* --restore DIR, or NULL */
    uint64_t left_timeline; /* --new-timeline N; 0: not asked for */
};

/* Batches between ingest and trainer, stages between trainer and durable loop; both ways. */
struct fr_service_rings {
    struct fr_ring *full, *empty, *cut_stages, *free_stages;
    struct fr_stage stages[FR_STAGES];
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

    struct fr_lifecycle life;
    struct fr_recovery recovery;
    struct fr_loops loops;

    /* main thread */
    uint64_t stop_ns; /* when the first SIGTERM came; 0: none */
    struct fr_progress progress;
    struct fr_readiness readiness;
    struct fr_thread_series times;
    struct fr_process_series process;
    struct fr_settled settled;
};

/* service.c: builds everything up to recovery. fr_service_close ends and frees all of it, whatever
 * fr_service_open returned. */
enum fr_status fr_service_open(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
void fr_service_close(struct fr_service *service);
/* Makes the locks and points the loops at each other and at the modules that exist. Called by
 * fr_service_open and by tests of the steps. */
void fr_service_wire(struct fr_service *service);

/* ---- run.c ---- */

/* A drain has used up export.drain_timeout: what it lacks, what became of the rest, and what to do.
 * FR_E_UNAVAILABLE; FR_E_MISMATCH where no retry helps. */
enum fr_status fr_service_drain_timed_out(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* Runs the opened service to its end on the main thread. */
enum fr_status fr_service_run(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* Whether the answer of fr_signals_wait asks for a drain. A second SIGTERM ends the process, unless
 * it belongs to the first: `timeout` and others signal a process and then its group, so that one
 * stop arrives twice. Main thread. */
bool fr_service_stops(struct fr_service *service, int signal_number);

#endif
