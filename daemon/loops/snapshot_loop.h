/* The snapshot loop takes snapshots during training, by `snapshot.every`, on request (`freshet
 * snapshot`) and at the end of a drain, and follows each to its end: CURRENT names it, the hook
 * uploads it, commits announce it, another one replaces it.
 *
 *   snapshot_take.c      writes one: room, fold, file
 *   snapshot_current.c   CURRENT, hook, announcement, removal of old ones
 *   rewind.c             one that a new timeline begins with
 *   snapshot_loop.c      what is there at the start; the turn: which of these is due
 *
 * A snapshot is of an epoch all of whose dense parameters are published, so that a replica that
 * begins with it holds the same as one that followed every epoch: cuts publish them while a
 * snapshot is waited for. Then everything durable is folded, by the fold loop, and the cold store
 * of that epoch is written out.
 *
 * Invariants: CURRENT moves only to a snapshot whose epoch the delta topic has acknowledged, while
 * publishing is not held; a snapshot is announced after CURRENT named it and its hook ended well. A
 * step that fails is reported (/healthz, log, answer to the request), counted and tried again; it
 * never ends the service. What CURRENT names or commits announce is never removed.
 *
 * Thread: `snapshot`, which owns everything except `shared` (shared_snapshots.h). */
#ifndef FR_DAEMON_LOOPS_SNAPSHOT_LOOP_H
#define FR_DAEMON_LOOPS_SNAPSHOT_LOOP_H

#include <limits.h>

#include "loops/fold_loop.h"
#include "loops/hook.h"
#include "loops/publish_loop.h"
#include "loops/shared_snapshots.h"

struct fr_snapshot_loop {
    struct fr_shared_snapshots shared;
    char dir[PATH_MAX]; /* snapshot.dir; constant once opened */
    /* given */
    const struct fr_loop_context *context;
    struct fr_durable *durable;
    struct fr_publisher *publisher;
    struct fr_trainer *trainer;
    const struct fr_shared_durable *appended;
    const struct fr_shared_publish *publish;
    const struct fr_shared_disk *disk;
    struct fr_shared_fold *fold;
    /* its own, for heartbeats of long steps */
    const struct fr_loop_thread *thread;
    /* nothing is cut when both are done */
    const struct fr_loop_thread *trainer_thread, *durable_thread;
    /* own */
    uint64_t looked_ns, due_ns;
    struct fr_retry take_retry, point_retry, hook_retry;
    bool ends;                          /* a drain wants one: its steps are retried soon */
    struct fr_snapshot newest, current; /* name "": none */
    struct fr_snapshot uploaded;        /* what the hook is given */
    struct fr_hook hook;
};

/* ---- snapshot_take.c ---- */

enum fr_status fr_snapshots_path(const struct fr_snapshot_loop *loop, const char *name, char out[PATH_MAX],
                                 struct fr_err *err) FR_MUST_CHECK;
/* Reports the end of a step, `what`, in /healthz, in the log and to fr_shared_snapshots.problem. */
void fr_snapshots_report(struct fr_snapshot_loop *loop, enum fr_status status, const char *what,
                         const struct fr_err *err);
void fr_snapshots_retry_later(const struct fr_snapshot_loop *loop, struct fr_retry *retry);
/* Writes one: of an epoch whose parameters are all published or, with `least`, of that epoch or a
 * later one. FR_E_EXISTS: *out is there already. */
enum fr_status fr_snapshots_write(struct fr_snapshot_loop *loop, uint64_t least, struct fr_snapshot *out,
                                  struct fr_err *err) FR_MUST_CHECK;
/* Writes one of the newest epoch, unless it exists, and makes it the newest. Failures are
 * counted. */
enum fr_status fr_snapshots_take(struct fr_snapshot_loop *loop, struct fr_snapshot *out,
                                 struct fr_err *err) FR_MUST_CHECK;

/* ---- snapshot_current.c ---- */

/* What follows `snapshot` is from here on all that replicas need of the topic. */
enum fr_status fr_snapshots_begin_with(struct fr_snapshot_loop *loop, const struct fr_snapshot *snapshot,
                                       struct fr_err *err) FR_MUST_CHECK;
/* CURRENT names this one; name "": none of this timeline. */
enum fr_status fr_snapshots_set_current(struct fr_snapshot_loop *loop, const struct fr_snapshot *current,
                                        struct fr_err *err) FR_MUST_CHECK;
/* Forgets newest and current when they are of another timeline. */
void fr_snapshots_leave(struct fr_snapshot_loop *loop, uint64_t timeline);
/* Starts the hook, of which none may run. */
enum fr_status fr_snapshots_upload(struct fr_snapshot_loop *loop, const struct fr_snapshot *snapshot,
                                   struct fr_err *err) FR_MUST_CHECK;
bool fr_snapshots_is_own(const struct fr_snapshot_loop *loop, const char *name);
/* Moves CURRENT to the newest snapshot when that may be, and removes old ones. */
void fr_snapshots_point(struct fr_snapshot_loop *loop);
/* Runs the hook for what CURRENT names, and announces it when that ended well. `uploaded`: its hook
 * has run already. */
void fr_snapshots_publish(struct fr_snapshot_loop *loop, bool uploaded);

/* ---- rewind.c ---- */

/* The publisher's question (fr_publisher_options.rewind); self is the loop. Publish thread: it uses
 * `shared` and what the loop was given. */
enum fr_status fr_rewind_ask(void *self, uint64_t least, struct fr_publisher_rewind *out) FR_MUST_CHECK;
/* Makes the snapshot that was asked for; whether there is something in hand. */
bool fr_rewind_step(struct fr_snapshot_loop *loop);
/* Whether a snapshot of that name was made, and uploaded, for a rewind. */
bool fr_rewind_made(const struct fr_snapshot_loop *loop, const char *name);

/* ---- snapshot_loop.c ---- */

/* Finds what is in snapshot.dir. Before the loop begins, after fr_service_recover. */
enum fr_status fr_snapshots_open(struct fr_snapshot_loop *loop, struct fr_err *err) FR_MUST_CHECK;
/* For the publisher (fr_publisher_options.covers); self is the loop. Publish thread. */
bool fr_snapshots_covers(void *self, const int64_t *low, const int64_t *high, uint32_t partitions);
enum fr_status fr_step_snapshot(struct fr_snapshot_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
