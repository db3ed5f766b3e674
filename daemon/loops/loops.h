/* The threads of the service: one a loop, each around its own struct.
 *
 *   ingest ─ full ring ─► trainer ─ cut stages ─► durable ─ offer ─► publish
 *                                                    │
 *                   upkeep (limits, acknowledgements) fold (cold store, savepoints) snapshot
 *                   replicas (what replicas say of themselves)
 *
 * Each struct below belongs to its loop's thread, except its member `shared`, whose comment states
 * which threads write and read it. wiring.c connects the loops before they begin.
 *
 * A step (fr_step_*) does one thing and returns. FR_OK: it is called again at once. FR_AGAIN: there
 * is nothing to do for a moment. FR_EOF: the loop is over. A negative status: the service has
 * failed. No step sleeps by itself and time is the context's clock, so that a test can call steps
 * in any order with a fake clock. (The snapshot step waits for a fold.) */
#ifndef FR_DAEMON_LOOPS_LOOPS_H
#define FR_DAEMON_LOOPS_LOOPS_H

#include "loops/durable_loop.h"
#include "loops/fold_loop.h"
#include "loops/ingest_loop.h"
#include "loops/publish_loop.h"
#include "loops/replicas_loop.h"
#include "loops/snapshot_loop.h"
#include "loops/trainer_loop.h"
#include "loops/upkeep_loop.h"

enum {
    /* nice of the durable, publish and fold threads, which run at the same time as the trainer and
     * its workers */
    FR_BACKGROUND_NICE = 10,
    /* At this niceness the snapshot thread gets about 1/28 of a core while training is busy;
     * nothing waits for a snapshot. */
    FR_SNAPSHOT_NICE = 15,
    FR_WATCHDOG_MS = 60000, /* a loop without a turn for this long makes /healthz 503 */
};

enum fr_loop {
    FR_LOOP_PUBLISH,
    FR_LOOP_INGEST,
    FR_LOOP_TRAINER,
    FR_LOOP_DURABLE,
    FR_LOOP_UPKEEP,
    FR_LOOP_FOLD,
    FR_LOOP_SNAPSHOT,
    FR_LOOP_REPLICAS,
    FR_LOOPS
};

struct fr_loops {
    struct fr_loop_context context;
    struct fr_publish_loop publish;
    struct fr_ingest_loop ingest;
    struct fr_trainer_loop trainer;
    struct fr_durable_loop durable;
    struct fr_upkeep_loop upkeep;
    struct fr_fold_loop fold;
    struct fr_snapshot_loop snapshot;
    struct fr_replicas_loop replicas;
    struct fr_loop_thread threads[FR_LOOPS];
};

/* Makes the locks and connects each loop with the parts of the others that it reads. */
void fr_loops_init(struct fr_loops *loops);
void fr_loops_release(struct fr_loops *loops);
/* FR_E_NO_MEMORY: a thread did not start; those that did are ended by `abandon` and
 * fr_loops_join. */
enum fr_status fr_loops_start(struct fr_loops *loops, struct fr_err *err) FR_MUST_CHECK;
void fr_loops_join(struct fr_loops *loops);
/* Whether a loop has ended. Any thread. */
bool fr_loops_done(const struct fr_loops *loops, enum fr_loop loop);

#endif
