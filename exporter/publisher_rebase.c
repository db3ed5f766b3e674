/* Filling the topic with the whole state: one merged epoch, `from` 1, as of the newest folded
 * epoch.
 *
 * The records come from full.h piece by piece and go out like those of any epoch; when all are
 * acknowledged, the epochs behind it follow from the journal, which keeps them meanwhile because
 * nothing later is acknowledged. When the producer fails in between, the same records come again
 * from the same view of the cold store. A new process makes them of a later epoch
 * (publisher_check.c), for which it may have to wait until one is folded.
 *
 * Only epochs that may be published are: a state that is held back waits.
 *
 * Thread: the publisher thread. */
#include "publisher_internal.h"

#include <inttypes.h>

#include "base/log.h"

void fr_publisher_end_rebase(struct fr_publisher *publisher)
{
    fr_export_full_close(publisher->rebase.full);
    publisher->rebase.full = NULL;
    publisher->rebase.wanted = publisher->rebase.sent = false;
    publisher->tally.rebasing = publisher->tally.fold_wanted = publisher->tally.epoch_wanted = false;
}

void fr_publisher_tell_rebase(struct fr_publisher *publisher, const struct fr_durable_status *durable)
{
    publisher->tally.rebasing = true;
    publisher->tally.fold_wanted = durable->folded <= publisher->rebase.above;
    publisher->tally.epoch_wanted = durable->epoch <= publisher->rebase.above;
}

static enum fr_status begin(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_durable_status durable;
    fr_durable_get_status(publisher->options.durable, &durable);
    uint64_t offered = atomic_load(&publisher->offered);
    fr_publisher_tell_rebase(publisher, &durable);
    if (durable.folded == 0 || durable.folded <= publisher->rebase.above || durable.folded > offered)
        return FR_AGAIN;
    struct fr_export_full *full = NULL;
    enum fr_status status = fr_export_full_of_newest(publisher->options.durable, NULL, &full, err);
    if (status != FR_OK)
        return status;
    uint64_t epoch = fr_export_full_epoch(full).epoch;
    if (epoch > offered) { /* folded since the look */
        fr_export_full_close(full);
        return FR_AGAIN;
    }
    fr_export_full_begin_timeline(full);
    publisher->rewind.wanted = publisher->rewind.ready = false;
    publisher->rebase.full = full;
    publisher->rebase.begun_ns = fr_mono_ns(publisher->options.clock);
    fr_log(FR_LOG_INFO, "publisher", "rebase_begin", "topic=%s epoch=%" PRIu64, publisher->options.topic, epoch);
    return FR_OK;
}

enum fr_status fr_publisher_load_rebase(struct fr_publisher *publisher, fr_delta_sink *keep, struct fr_err *err)
{
    enum fr_status status = publisher->rebase.full ? FR_OK : begin(publisher, err);
    if (status != FR_OK)
        return status;
    struct fr_durable_folded_epoch of = fr_export_full_epoch(publisher->rebase.full);
    struct outgoing *out = &publisher->out;
    uint64_t saturated = 0;
    out->epoch = of.epoch;
    out->begins = true;
    out->timestamp_ms = fr_wall_ms(publisher->options.clock);
    publisher->sent_begin = (struct fr_topic_begin){of.timeline, of.epoch, fr_sha256_u64(&of.digest), 0};
    status = fr_export_full_next(publisher->rebase.full, keep, out, &saturated, err);
    publisher->rebase.sent = status == FR_EOF;
    return status == FR_EOF ? FR_OK : status;
}
