/* The fold loop moves durable epochs from the journal into the cold store, and takes savepoints of
 * the folded state.
 *
 * Thread: `fold`, which owns everything except `shared`. */
#ifndef FR_DAEMON_LOOPS_FOLD_LOOP_H
#define FR_DAEMON_LOOPS_FOLD_LOOP_H

#include "loops/upkeep_loop.h"

/* The last copy of the state that a drain takes, a savepoint or a snapshot. The main thread changes
 * NONE to WANTED, the loop that takes the copy changes WANTED to DONE. */
enum fr_last_copy { FR_LAST_NONE, FR_LAST_WANTED, FR_LAST_DONE };

/* The atomics are sequentially consistent. */
struct fr_shared_fold {
    /* Requests a fold below unfolded_max. Set by the trainer and the snapshot loop, cleared by the
     * fold loop before it reads the durable epoch. */
    atomic_bool wanted;
    atomic_int last_savepoint; /* enum fr_last_copy: main thread and fold loop */
    /* Counts of this process, written by the fold loop and read by the main thread. */
    _Atomic uint64_t savepoints, savepoint_failures;
};

struct fr_fold_loop {
    struct fr_shared_fold shared;
    /* The loop is given these members and does not own them. */
    const struct fr_loop_context *context;
    struct fr_durable *durable;
    struct fr_publisher *publisher;
    const struct fr_timings *timings;
    const struct fr_shared_disk *disk;
    const struct fr_shared_durable *appended;
    /* The members below belong to the loop alone. */
    struct fr_retry retry; /* repeats a fold that found no room */
    struct {
        uint64_t looked_ns;    /* when requests were last searched for */
        uint64_t due_ns;       /* when the policy may next take a savepoint */
        struct fr_retry retry; /* repeats reading and writing of the folder of savepoints */
    } savepoints;
};

enum fr_status fr_step_fold(struct fr_fold_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
