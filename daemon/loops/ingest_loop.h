/* The ingest loop reads the sample stream into batches. It starts reading when the delta topic is
 * known to be ours, and after a stop it serves dead letters and group commits until the last epoch
 * is durable.
 *
 * Thread: `ingest`, which owns everything except `shared`. */
#ifndef FR_DAEMON_LOOPS_INGEST_LOOP_H
#define FR_DAEMON_LOOPS_INGEST_LOOP_H

#include "ingest/ingest.h"
#include "loops/publish_loop.h"
#include "loops/retry.h"

/* Written by the ingest thread, read by the main thread for its documents; sequentially
 * consistent. */
struct fr_shared_ingest {
    atomic_bool started; /* the start check succeeded and reading has begun */
};

struct fr_ingest_loop {
    struct fr_shared_ingest shared;
    /* The loop is given these members and does not own them. */
    const struct fr_loop_context *context;
    struct fr_ingest *ingest;
    const struct fr_shared_publish *publish;
    const struct fr_loop_thread *durable_thread; /* the last epoch is durable when it is done */
    /* The members below belong to the loop alone. */
    struct fr_retry retry; /* repeats the start check */
    bool ended;            /* the stream gave its last batch */
};

enum fr_status fr_step_ingest(struct fr_ingest_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
