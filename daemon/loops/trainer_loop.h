/* The trainer loop: the owner loop's thread around fr_trainer_step, and the stream positions that
 * the trainer stages with each epoch.
 *
 * Thread: `owner`, which owns all of it. Recovery fills `positions` before the loop begins.
 * Nothing here is shared: the trainer itself publishes what other threads read
 * (trainer/trainer.h). */
#ifndef FR_DAEMON_LOOPS_TRAINER_LOOP_H
#define FR_DAEMON_LOOPS_TRAINER_LOOP_H

#include "ingest/ingest.h"
#include "loops/lifecycle.h"
#include "loops/shared_snapshots.h"
#include "trainer/trainer.h"

struct fr_trainer_loop {
    /* The loop is given these members and does not own them. */
    const struct fr_loop_context *context;
    struct fr_trainer *trainer;
    struct fr_ingest *ingest;
    struct fr_ring *cut_stages; /* closed when the trainer is drained: the durable loop then ends */
    struct fr_shared_snapshots *snapshots;
    /* The members below belong to the loop alone. */
    struct fr_positions positions;
    struct fr_announced_offset *offsets; /* scratch of the commit record; owned */
    size_t offsets_capacity;
};

/* What the trainer calls on its own thread for positions, dead letters and the announced
 * snapshot. */
struct fr_trainer_stream fr_loop_trainer_stream(struct fr_trainer_loop *loop);
void fr_loop_trainer_release(struct fr_trainer_loop *loop);
enum fr_status fr_step_trainer(struct fr_trainer_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
