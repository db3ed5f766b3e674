/* One turn of the fold loop (fold_loop.h): when a fold is due, and that it has room. */
#include "loops/fold_loop.h"

#include <inttypes.h>

/* Without room a fold is not begun, or was given up; it is tried again later. */
static enum fr_status fold(struct fr_fold_loop *loop, const struct fr_durable_status *durable, bool wanted,
                           struct fr_err *err)
{
    const struct fr_loop_context *context = loop->context;
    uint64_t free_bytes = atomic_load(&loop->disk->free_bytes);
    enum fr_status status = FR_E_NO_SPACE;
    if (atomic_load(&loop->disk->reserve_bytes) > 0 && free_bytes < durable->unfolded_bytes)
        (void)fr_err_set(err, status, "a fold may write %" PRIu64 " bytes, and %" PRIu64 " are free",
                         durable->unfolded_bytes, free_bytes);
    else
        status = fr_fold_all(loop, durable, err);
    if (status == FR_E_NO_SPACE) {
        if (wanted)
            atomic_store(&loop->shared.wanted, true);
        (void)fr_err_wrap(err, "make room under %s, then it goes on by itself", context->conf->state_dir);
        fr_retry_failed(context, &loop->retry, "fold", err);
        return FR_AGAIN;
    }
    if (status == FR_OK)
        fr_retry_succeeded(context, &loop->retry, "fold");
    return status == FR_OK ? FR_AGAIN : status;
}

enum fr_status fr_step_fold(struct fr_fold_loop *loop, struct fr_err *err)
{
    const struct fr_loop_context *context = loop->context;
    if (atomic_load(&context->life->abandon))
        return FR_EOF;
    if (fr_mono_ns(context->clock) < loop->retry.next_ns)
        return FR_AGAIN;
    /* The wish is taken before what is durable is read: an epoch that is durable when the wish
     * comes is folded. */
    struct fr_publisher_status publisher;
    fr_publisher_get_status(loop->publisher, &publisher);
    bool wanted = atomic_exchange(&loop->shared.wanted, false) || publisher.fold_wanted;
    struct fr_durable_status durable;
    fr_durable_get_status(loop->durable, &durable);
    /* On a short disk the journal's bytes are better folded, where a key stands once. */
    bool is_short = atomic_load(&loop->disk->free_bytes) < atomic_load(&loop->disk->reserve_bytes) &&
                    durable.unfolded_bytes >= FR_DISK_RESERVE;
    if (durable.unfolded_bytes >= context->conf->unfolded_max || is_short || (wanted && durable.epoch > durable.folded))
        return fold(loop, &durable, wanted, err);
    enum fr_status status = fr_step_savepoints(loop, err);
    return status == FR_OK ? FR_AGAIN : status;
}
