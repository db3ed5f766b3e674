/* The state of snapshots that several threads use: the snapshot that commits announce, the one that
 * CURRENT names, the newest problem, counts, and the publisher's request for a snapshot with which
 * a timeline begins.
 *
 *   member                    written by                    read by
 *   announced                 snapshot thread, recovery     trainer (each cut), main
 *   current, problem          snapshot thread               main
 *   offsets                   snapshot thread               publish thread
 *   dense_wanted              snapshot thread               trainer (each cut)
 *   last                      main: NONE to WANTED          snapshot thread: WANTED to DONE
 *   counts                    snapshot thread               main
 *   rewind                    see below                     see below
 *
 * `lock` guards texts and offsets and is held only while they are copied. The atomics are
 * sequentially consistent. */
#ifndef FR_DAEMON_LOOPS_SHARED_SNAPSHOTS_H
#define FR_DAEMON_LOOPS_SHARED_SNAPSHOTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "durable/epoch.h"
#include "exporter/snapshot.h"

enum { FR_SNAPSHOT_PROBLEM_MAX = 1024 };

/* The stages of a snapshot by which a new timeline begins on the topic (rewind.c):
 *
 *   NONE ── publisher asks ──► WANTED ── written ──► UPLOADS ── hook ended well ──► READY
 *                                 │   └── written, and there is no hook ────────────►┘
 *                                 └──── any failure, also in UPLOADS ──► REFUSED
 *
 * The publish thread makes the first step, the snapshot thread all others. */
enum fr_rewind_stage { FR_REWIND_NONE, FR_REWIND_WANTED, FR_REWIND_UPLOADS, FR_REWIND_READY, FR_REWIND_REFUSED };

struct fr_rewind {
    /* enum fr_rewind_stage; the store that enters a stage publishes the member that was written
     * before it */
    atomic_int stage;
    /* the publish thread's before WANTED, then the snapshot thread's */
    uint64_t least;
    struct fr_snapshot snapshot; /* the snapshot thread's before READY, then constant */
};

struct fr_shared_snapshots {
    pthread_mutex_t lock;
    struct fr_announced_snapshot announced;
    char current[FR_MANIFEST_NAME_MAX]; /* named by CURRENT; "": none of this timeline */
    /* why the last snapshot could not be taken, named or uploaded; "": no problem */
    char problem[FR_SNAPSHOT_PROBLEM_MAX];
    /* offsets of the topic from which on a replica that began with CURRENT reads; owned; NULL:
     * unknown */
    uint64_t *offsets;
    uint32_t n_offsets;
    atomic_bool dense_wanted; /* cuts publish all dense parameters */
    atomic_int last;          /* enum fr_last_copy */
    struct fr_rewind rewind;
    _Atomic uint64_t taken, failures, hook_failures, kept, current_epoch;
    _Atomic uint64_t bytes, millis; /* of the last snapshot that this process took */
};

void fr_shared_snapshots_init(struct fr_shared_snapshots *shared);
void fr_shared_snapshots_release(struct fr_shared_snapshots *shared);
void fr_shared_snapshots_announce(struct fr_shared_snapshots *shared, const struct fr_announced_snapshot *announced);
void fr_shared_snapshots_announced(struct fr_shared_snapshots *shared, struct fr_announced_snapshot *out);
/* Sets name and epoch of the snapshot that CURRENT names. */
void fr_shared_snapshots_set_current(struct fr_shared_snapshots *shared, const char *name, uint64_t epoch);
void fr_shared_snapshots_set_problem(struct fr_shared_snapshots *shared, const char *text);
/* Copies `current` and `problem`. */
void fr_shared_snapshots_get_texts(struct fr_shared_snapshots *shared, char current[FR_MANIFEST_NAME_MAX],
                                   char problem[FR_SNAPSHOT_PROBLEM_MAX]);
/* Takes over `offsets`, which may be NULL. */
void fr_shared_snapshots_set_offsets(struct fr_shared_snapshots *shared, uint64_t *offsets, uint32_t n);

#endif
