/* The publish loop sends durable epochs to the delta topic. Before anything else it checks that the
 * topic belongs to this state, and repeats that check until it succeeds.
 *
 * Thread: `publish`, which owns everything except `shared`. */
#ifndef FR_DAEMON_LOOPS_PUBLISH_LOOP_H
#define FR_DAEMON_LOOPS_PUBLISH_LOOP_H

#include "exporter/publisher.h"
#include "loops/durable_loop.h"
#include "loops/retry.h"
#include "metrics/freshness.h"

/* Written by the publish thread (published_wall_ms by recovery before the loops begin). The atomics
 * are sequentially consistent, and no two of them are read as a pair. */
struct fr_shared_publish {
    /* The delta topic was reached and is ours. Until then the ingest loop consumes nothing, the
     * trainer cuts no heartbeats and the snapshot loop takes no snapshot by policy. */
    atomic_bool delta_checked;
    atomic_int epoch_wanted; /* enum fr_epoch_wanted; read by the trainer */
    /* fr_publisher_status.acked; read by the trainer, which tells the other ranks */
    _Atomic uint64_t acknowledged;
    /* When an epoch was last acknowledged; before the first one, when recovery ended. Read by the
     * main thread. */
    _Atomic int64_t published_wall_ms;
};

struct fr_publish_loop {
    struct fr_shared_publish shared;
    /* The loop is given these members and does not own them. */
    const struct fr_loop_context *context;
    struct fr_publisher *publisher;
    struct fr_freshness *freshness;
    const struct fr_shared_durable *durable;
    /* The members below belong to the loop alone. */
    struct fr_retry retry; /* repeats the check of the topic */
    bool troubled;         /* the last turn failed for a reason that may pass */
    uint64_t acked;        /* the largest number of an acknowledged epoch so far */
};

enum fr_status fr_step_publish(struct fr_publish_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
