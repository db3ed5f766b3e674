/* One turn of the replicas loop (replicas_loop.h). */
#include "loops/replicas_loop.h"

static struct fr_replicas_chain chain_of(void *self)
{
    struct fr_replicas_chain chain;
    fr_durable_get_end(self, &chain.timeline, &chain.durable);
    return chain;
}

enum fr_status fr_step_replicas(struct fr_replicas_loop *loop, struct fr_err *err)
{
    (void)err;
    if (!loop->replicas || atomic_load(&loop->context->life->abandon))
        return FR_EOF;
    return fr_replicas_step(loop->replicas, chain_of, loop->durable) ? FR_OK : FR_AGAIN;
}
