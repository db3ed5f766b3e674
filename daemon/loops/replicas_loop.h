/* The replicas loop reads what replicas acknowledge (export.acknowledgements). No other thread
 * waits for this loop.
 *
 * Thread: `replicas`, which owns everything; the reader's status is read by any thread. Without a
 * reader the loop ends with its first turn. */
#ifndef FR_DAEMON_LOOPS_REPLICAS_LOOP_H
#define FR_DAEMON_LOOPS_REPLICAS_LOOP_H

#include "durable/durable.h"
#include "exporter/replicas.h"
#include "loops/lifecycle.h"

struct fr_replicas_loop {
    /* The loop is given these members and does not own them. */
    const struct fr_loop_context *context;
    struct fr_durable *durable;
    struct fr_replicas *replicas; /* NULL: acknowledgements are not read */
};

enum fr_status fr_step_replicas(struct fr_replicas_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
