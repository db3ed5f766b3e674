/* Filling the topic with the whole state: one merged epoch, `from` 1, as of the newest folded
 * epoch.
 *
 * The records come from full.h piece by piece and go out like those of any epoch; when all are
 * acknowledged, the epochs after it follow from the journal, which keeps them meanwhile because
 * nothing later is acknowledged. When the producer fails in between, the same records come again
 * from the same view of the cold store. A new process makes them of a later epoch
 * (publisher_look.c), for which it may have to wait until one is folded.
 *
 * Only epochs that may be published are: a state that is held back waits.
 *
 * Thread: the publisher thread. */
#include "publisher_ways.h"

#include <inttypes.h>

#include "base/log.h"

/* Whether a fold, and a later epoch, are waited for. */
static void report_wait(struct fr_publisher_rebase *rebase, const struct fr_durable_status *durable)
{
    struct fr_publisher_status *tally = &rebase->sender->board->tally;
    tally->rebasing = true;
    tally->fold_wanted = durable->folded <= rebase->above;
    tally->epoch_wanted = durable->epoch <= rebase->above;
}

void fr_publisher_close_rebase(struct fr_publisher_rebase *rebase)
{
    struct fr_publisher_status *tally = &rebase->sender->board->tally;
    fr_export_full_close(rebase->full);
    rebase->full = NULL;
    tally->rebasing = tally->fold_wanted = tally->epoch_wanted = false;
}

void fr_publisher_want_rebase(struct fr_publisher_rebase *rebase, uint64_t above)
{
    struct fr_durable_status durable;
    fr_durable_get_status(rebase->sender->board->options.durable, &durable);
    if (rebase->full && above < fr_export_full_epoch(rebase->full).epoch)
        fr_export_full_rewind(rebase->full);
    else
        fr_publisher_close_rebase(rebase);
    rebase->above = above;
    report_wait(rebase, &durable);
}

enum fr_status fr_publisher_open_rebase(struct fr_publisher_rebase *rebase, struct fr_err *err)
{
    struct fr_publisher_board *board = rebase->sender->board;
    struct fr_durable_status durable;
    if (rebase->full)
        return FR_OK;
    fr_durable_get_status(board->options.durable, &durable);
    uint64_t offered = atomic_load(&board->offered);
    report_wait(rebase, &durable);
    if (durable.folded == 0 || durable.folded <= rebase->above || durable.folded > offered)
        return FR_AGAIN;
    struct fr_export_full *full = NULL;
    enum fr_status status = fr_export_full_of_newest(board->options.durable, NULL, &full, err);
    if (status != FR_OK)
        return status;
    uint64_t epoch = fr_export_full_epoch(full).epoch;
    if (epoch > offered) { /* folded since it was looked at */
        fr_export_full_close(full);
        return FR_AGAIN;
    }
    fr_export_full_begin_timeline(full);
    rebase->full = full;
    rebase->begun_ns = fr_mono_ns(board->options.clock);
    fr_log(FR_LOG_INFO, "publisher", "rebase_begin", "topic=%s epoch=%" PRIu64, board->options.topic, epoch);
    return FR_OK;
}

enum fr_status fr_publisher_load_rebase(struct fr_publisher_rebase *rebase, struct fr_err *err)
{
    struct fr_durable_folded_epoch of = fr_export_full_epoch(rebase->full);
    struct fr_outgoing *out = &rebase->sender->out;
    uint64_t saturated = 0;
    out->epoch = of.epoch;
    out->begins = true;
    out->timestamp_ms = fr_wall_ms(rebase->sender->board->options.clock);
    rebase->sender->known->sent_begin = (struct fr_topic_begin){of.timeline, of.epoch, fr_sha256_u64(&of.digest), 0};
    enum fr_status status = fr_export_full_next(rebase->full, fr_publisher_add_record, out, &saturated, err);
    out->ends = status == FR_EOF;
    return out->ends ? FR_OK : status;
}
