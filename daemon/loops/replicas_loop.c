/* One turn of the replicas loop (replicas_loop.h). */
#include "loops/replicas_loop.h"

enum fr_status fr_step_replicas(struct fr_replicas_loop *loop, struct fr_err *err)
{
    struct fr_durable_status durable;
    (void)err;
    if (!loop->replicas || atomic_load(&loop->context->life->abandon))
        return FR_EOF;
    fr_durable_get_status(loop->durable, &durable);
    struct fr_replicas_chain chain = {.timeline = durable.timeline, .durable = durable.epoch};
    return fr_replicas_step(loop->replicas, &chain) ? FR_OK : FR_AGAIN;
}
