/* One turn of the publish loop (publish_loop.h). The publisher decides what is sent and when. */
#include "loops/publish_loop.h"

#include "base/trace.h"

enum { TURN_MS = 20 }; /* the precision of the stage `published` of freshness */

static enum fr_status check_topic(void *self, struct fr_err *err)
{
    struct fr_publish_loop *loop = self;
    return fr_publisher_check(loop->publisher, err);
}

static void read_publisher(struct fr_publish_loop *loop, struct fr_publisher_status *out)
{
    fr_publisher_get_status(loop->publisher, out);
    atomic_store(&loop->shared.acknowledged, out->acked);
    atomic_store(&loop->shared.epoch_wanted, out->epoch_wanted   ? FR_EPOCH_WANTED
                                             : out->rewind_waits ? FR_EPOCH_WANTED_WHILE_PAUSED
                                                                 : FR_EPOCH_NOT_WANTED);
}

static enum fr_status start(struct fr_publish_loop *loop, struct fr_err *err)
{
    struct fr_publisher_status publisher;
    enum fr_status status = fr_retry_check(loop->context, &loop->retry, "publisher", check_topic, loop, err);
    read_publisher(loop, &publisher); /* before the trainer may see the check succeed */
    atomic_store(&loop->shared.delta_checked, status == FR_OK);
    if (status == FR_OK)
        fr_publisher_offer(loop->publisher, atomic_load(&loop->durable->publishable));
    return status;
}

enum fr_status fr_step_publish(struct fr_publish_loop *loop, struct fr_err *err)
{
    const struct fr_loop_context *context = loop->context;
    if (atomic_load(&context->life->abandon))
        return FR_EOF;
    if (!atomic_load(&loop->shared.delta_checked))
        return start(loop, err);
    struct fr_publisher_status publisher;
    uint64_t traced_ns = fr_trace_begin();
    enum fr_status status = fr_publisher_step(loop->publisher, TURN_MS, err);
    read_publisher(loop, &publisher);
    fr_freshness_published(loop->freshness, publisher.acked, fr_wall_ms(context->clock));
    if (publisher.acked > loop->acked) {
        fr_trace_end("acknowledged", traced_ns); /* the turn that received the acknowledgement */
        loop->acked = publisher.acked;
        atomic_store(&loop->shared.published_wall_ms, fr_wall_ms(context->clock));
    }
    bool troubled = fr_retry_may_pass(status);
    if (status < 0 && !troubled)
        return status;
    if (troubled != loop->troubled)
        fr_http_reason(context->http, "publisher", troubled ? err->text : NULL);
    loop->troubled = troubled;
    return troubled ? FR_AGAIN : FR_OK;
}
