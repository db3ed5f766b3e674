/* The fold loop moves durable epochs from the journal into the cold store, and takes savepoints,
 * which are of what is folded.
 *
 *   fold_all.c    folds everything durable
 *   savepoints.c  when savepoints are taken and which ones stay; folds first
 *   fold_loop.c   the turn: a fold when it is due, else the savepoints' part
 *
 * Thread: `fold`, which owns everything except `shared`. */
#ifndef FR_DAEMON_LOOPS_FOLD_LOOP_H
#define FR_DAEMON_LOOPS_FOLD_LOOP_H

#include "loops/upkeep_loop.h"

/* The copy of the state that a drain takes last, a savepoint or a snapshot: the main thread changes
 * NONE to WANTED, the loop that takes it WANTED to DONE. */
enum fr_last_copy { FR_LAST_NONE, FR_LAST_WANTED, FR_LAST_DONE };

/* The atomics are sequentially consistent. */
struct fr_shared_fold {
    /* Asks for a fold soon, whatever unfolded_max says: set by the trainer and the snapshot loop,
     * cleared by the fold loop before it reads what is durable. */
    atomic_bool wanted;
    atomic_int last_savepoint; /* enum fr_last_copy: main thread and fold loop */
    /* Taken, and failed, by this process: written by the fold loop, read by the main thread. */
    _Atomic uint64_t savepoints, savepoint_failures;
};

struct fr_fold_loop {
    struct fr_shared_fold shared;
    /* given */
    const struct fr_loop_context *context;
    struct fr_durable *durable;
    struct fr_publisher *publisher;
    const struct fr_timings *timings;
    const struct fr_shared_disk *disk;
    const struct fr_shared_durable *appended;
    /* own */
    struct fr_retry retry; /* of a fold without room */
    struct {
        uint64_t looked_ns;    /* when requests were last looked for */
        uint64_t due_ns;       /* when the policy is asked again */
        struct fr_retry retry; /* of a folder of savepoints that failed */
    } savepoints;
};

/* Folds what `before` shows as durable and not folded. */
enum fr_status fr_fold_all(struct fr_fold_loop *loop, const struct fr_durable_status *before,
                           struct fr_err *err) FR_MUST_CHECK;
/* The savepoints' part of a turn: requests, the policy, the last one of a drain. */
enum fr_status fr_step_savepoints(struct fr_fold_loop *loop, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_step_fold(struct fr_fold_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
