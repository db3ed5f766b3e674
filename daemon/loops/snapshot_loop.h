/* The snapshot loop takes snapshots during training, by `snapshot.every`, on request (`freshet
 * snapshot`) and at the end of a drain, and follows each to its end: CURRENT names it, the hook
 * uploads it, commits announce it, another one replaces it.
 *
 *   snapshot_take.c      writes a snapshot: room, fold, file
 *   snapshot_current.c   CURRENT, hook, announcement, removal of old snapshots
 *   rewind.c             the snapshot that a new timeline begins with
 *   snapshot_loop.c      reads the folder at the start; decides which step a turn takes
 *
 * A snapshot is of an epoch all of whose dense parameters are published, so that a replica that
 * begins with it holds the same as one that followed every epoch: cuts publish them while a
 * snapshot is waited for. Then everything durable is folded, by the fold loop, and the cold store
 * of that epoch is written out.
 *
 * Invariants: CURRENT moves only to a snapshot whose epoch the delta topic has acknowledged, while
 * publishing is not held; a snapshot is announced after CURRENT named it and its hook ended well. A
 * step that fails is reported (/healthz, log, answer to the request), counted and tried again, and
 * never ends the service. A snapshot that CURRENT names or commits announce is never removed.
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
    /* The loop is given these members and does not own them. */
    const struct fr_loop_context *context;
    struct fr_durable *durable;
    struct fr_publisher *publisher;
    struct fr_trainer *trainer;
    const struct fr_shared_durable *appended;
    const struct fr_shared_publish *publish;
    const struct fr_shared_disk *disk;
    struct fr_shared_fold *fold;
    /* this loop's thread, for heartbeats during long steps */
    const struct fr_loop_thread *thread;
    /* no epoch follows when both are done */
    const struct fr_loop_thread *trainer_thread, *durable_thread;
    /* The members below belong to the loop alone. */
    uint64_t looked_ns, due_ns;
    struct fr_retry take_retry, point_retry, hook_retry;
    bool ends;                          /* a drain waits for a snapshot: short retries */
    struct fr_snapshot newest, current; /* name "": there is none */
    struct fr_snapshot uploaded;        /* the snapshot that the hook is run for */
    struct fr_hook hook;
};

/* ---- snapshot_take.c ---- */

enum fr_status fr_snapshots_path(const struct fr_snapshot_loop *loop, const char *name, char out[PATH_MAX],
                                 struct fr_err *err) FR_MUST_CHECK;
/* Reports the end of a step, `what`, in /healthz, in the log and to fr_shared_snapshots.problem. */
void fr_snapshots_report(struct fr_snapshot_loop *loop, enum fr_status status, const char *what,
                         const struct fr_err *err);
void fr_snapshots_retry_later(const struct fr_snapshot_loop *loop, struct fr_retry *retry);
/* Writes a snapshot as of an epoch whose parameters are all published or, if `least` is not 0, as
 * of that epoch or a later one. FR_E_EXISTS: the snapshot exists, and *out describes it. */
enum fr_status fr_snapshots_write(struct fr_snapshot_loop *loop, uint64_t least, struct fr_snapshot *out,
                                  struct fr_err *err) FR_MUST_CHECK;
/* Writes a snapshot of the newest epoch, unless it exists, and makes it the newest. Failures are
 * counted. */
enum fr_status fr_snapshots_take(struct fr_snapshot_loop *loop, struct fr_snapshot *out,
                                 struct fr_err *err) FR_MUST_CHECK;

/* ---- snapshot_current.c ---- */

/* Reads the offsets of the topic from which a replica continues after the snapshot; it needs
 * nothing before them. */
enum fr_status fr_snapshots_read_offsets(struct fr_snapshot_loop *loop, const struct fr_snapshot *snapshot,
                                         struct fr_err *err) FR_MUST_CHECK;
/* Notes which snapshot CURRENT names; name "": none of this timeline. */
enum fr_status fr_snapshots_set_current(struct fr_snapshot_loop *loop, const struct fr_snapshot *current,
                                        struct fr_err *err) FR_MUST_CHECK;
/* Forgets `newest` and `current` if they are of another timeline. */
void fr_snapshots_forget_other_timelines(struct fr_snapshot_loop *loop, uint64_t timeline);
/* Starts the hook for a snapshot. No hook may be running. */
enum fr_status fr_snapshots_upload(struct fr_snapshot_loop *loop, const struct fr_snapshot *snapshot,
                                   struct fr_err *err) FR_MUST_CHECK;
bool fr_snapshots_is_own(const struct fr_snapshot_loop *loop, const char *name);
/* Moves CURRENT to the newest snapshot if that is allowed now, and removes old snapshots. */
void fr_snapshots_move_current(struct fr_snapshot_loop *loop);
/* Runs the hook for the snapshot that CURRENT names, and announces the snapshot when the hook has
 * ended with 0. uploaded: the hook of that snapshot has run already. */
void fr_snapshots_publish(struct fr_snapshot_loop *loop, bool uploaded);

/* ---- rewind.c ---- */

/* Answers the publisher's request (fr_publisher_options.rewind); self is the loop. Called on the
 * publish thread: it uses only `shared` and the constant members. */
enum fr_status fr_rewind_ask(void *self, uint64_t least, struct fr_publisher_rewind *out) FR_MUST_CHECK;
/* Makes the requested snapshot. Returns whether a request is in progress. */
bool fr_rewind_step(struct fr_snapshot_loop *loop);
/* Whether the snapshot of a rewind has this name and was uploaded. */
bool fr_rewind_is_uploaded(const struct fr_snapshot_loop *loop, const char *name);

/* ---- snapshot_loop.c ---- */

/* Reads snapshot.dir. Called after fr_service_recover and before the loop begins. */
enum fr_status fr_snapshots_open(struct fr_snapshot_loop *loop, struct fr_err *err) FR_MUST_CHECK;
/* fr_publisher_options.covers: whether the topic, which holds the offsets low to high of each
 * partition, has everything that follows the snapshot of CURRENT. self is the loop. Called on the
 * publish thread. */
bool fr_snapshots_covers(void *self, const int64_t *low, const int64_t *high, uint32_t partitions);
enum fr_status fr_step_snapshot(struct fr_snapshot_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
