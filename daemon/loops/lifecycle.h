/* The life of the service, as every thread sees it: its phase, whether it stops, why the start is
 * not complete, and the first failure.
 *
 *   RECOVERING ── recovered ──► RUNNING ── signal or end of stream ──► DRAINING
 *
 *   member         written by                              read by
 *   phase          main thread                             publish thread (rewind.c)
 *   stop_ingest    main thread, when a drain begins        ingest thread
 *   abandon        the thread that closes the service      every loop, which then ends
 *   failure        the first loop that fails, once         main thread, which ends the service
 *   starting       publish thread until the delta topic    main thread, for /readyz
 *                  is checked, then the ingest thread
 *
 * The atomics are sequentially consistent. No two of them are read as a pair, and none is read on
 * the training path. `lock` guards the two texts and is held only while one is copied. */
#ifndef FR_DAEMON_LOOPS_LIFECYCLE_H
#define FR_DAEMON_LOOPS_LIFECYCLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/status.h"
#include "conf/conf.h"
#include "metrics/http.h"

enum fr_phase { FR_PHASE_RECOVERING, FR_PHASE_RUNNING, FR_PHASE_DRAINING };

struct fr_lifecycle {
    atomic_int phase; /* enum fr_phase */
    atomic_bool stop_ingest, abandon;
    pthread_mutex_t lock;
    struct fr_err failure; /* status FR_OK: none */
    char starting[1024];   /* why the start is not complete; "": no reason is known */
};

void fr_lifecycle_init(struct fr_lifecycle *life);
void fr_lifecycle_release(struct fr_lifecycle *life);
/* Keeps the first failure. Any thread. */
void fr_lifecycle_fail(struct fr_lifecycle *life, const struct fr_err *err);
/* Whether a loop has failed; *err is written then. Any thread. */
bool fr_lifecycle_failed(struct fr_lifecycle *life, struct fr_err *err);
void fr_lifecycle_set_starting(struct fr_lifecycle *life, const char *text);
void fr_lifecycle_get_starting(struct fr_lifecycle *life, char *out, size_t size);

/* A loop's thread. Written by the thread that starts it, with two exceptions: the thread itself
 * sets and reads `beat`, and sets `done` last, for which the main thread, the ingest loop and the
 * publisher's request for a rewind wait. */
struct fr_loop_thread {
    struct fr_loops *loops; /* loops.h */
    pthread_t thread;
    bool started;
    int beat; /* number of the loop for fr_http_beat */
    atomic_bool done;
};

/* Given to every loop; constant once the loops run. */
struct fr_loop_context {
    const struct fr_conf *conf;
    const struct fr_clock *clock;
    struct fr_http *http;
    struct fr_lifecycle *life;
};

#endif
