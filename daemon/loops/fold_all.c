/* A fold of everything durable, with its lines in the log and its time (fold_loop.h). */
#include <inttypes.h>

#include "base/log.h"
#include "base/trace.h"
#include "loops/fold_loop.h"

enum fr_status fr_fold_all(struct fr_fold_loop *loop, const struct fr_durable_status *before, struct fr_err *err)
{
    const struct fr_clock *clock = loop->context->clock;
    struct fr_durable_status durable;
    uint64_t begin_ns = fr_mono_ns(clock);
    fr_log(FR_LOG_INFO, "fold", "begin", "from=%" PRIu64 " to=%" PRIu64 " bytes=%" PRIu64, before->folded + 1,
           before->epoch, before->unfolded_bytes);
    uint64_t traced_ns = fr_trace_begin();
    enum fr_status status = fr_durable_fold(loop->durable, err);
    fr_trace_end("fold", traced_ns);
    fr_durable_get_status(loop->durable, &durable);
    double seconds = (double)(fr_mono_ns(clock) - begin_ns) / 1e9;
    fr_timings_observe(loop->timings, FR_TIMING_FOLD, seconds);
    fr_log(FR_LOG_INFO, "fold", "end", "folded=%" PRIu64 " seconds=%.3f", durable.folded, seconds);
    return status;
}
