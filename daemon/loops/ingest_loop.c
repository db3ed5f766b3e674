/* One turn of the ingest loop (ingest_loop.h): the start check until it succeeds, then reading,
 * then serving dead letters and group commits. */
#include "loops/ingest_loop.h"

enum { TURN_MS = 50 };

static enum fr_status start_reading(void *self, struct fr_err *err)
{
    struct fr_ingest_loop *loop = self;
    return fr_ingest_start(loop->ingest, err);
}

enum fr_status fr_step_ingest(struct fr_ingest_loop *loop, struct fr_err *err)
{
    const struct fr_lifecycle *life = loop->context->life;
    bool stop = atomic_load(&life->stop_ingest);
    if (!atomic_load(&loop->shared.started)) {
        /* Nothing is consumed before the delta topic is known to be ours (docs/architecture.md,
         * "Publishing"). */
        if (stop || !atomic_load(&loop->publish->delta_checked))
            return stop ? FR_EOF : FR_AGAIN;
        enum fr_status status = fr_retry_check(loop->context, &loop->retry, "ingest", start_reading, loop, err);
        atomic_store(&loop->shared.started, status == FR_OK);
        return status;
    }
    if (!stop && !loop->ended) {
        enum fr_status status = fr_ingest_step(loop->ingest, TURN_MS, err);
        loop->ended = status == FR_EOF;
        return status < 0 ? status : FR_OK;
    }
    /* Dead letters and group commits are served until the last epoch is durable. Records that the
     * stream still holds are left for the next start. */
    if (atomic_load(&loop->durable_thread->done) || atomic_load(&life->abandon))
        return FR_EOF;
    fr_ingest_serve(loop->ingest);
    return FR_AGAIN;
}
