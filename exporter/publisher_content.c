/* Makes outgoing records from what the publisher sends (publisher_content.h).
 *
 * Epochs of the journal are sent one by one, or merged when they are a backlog: durable epochs
 * that wait for the topic and take more than export.backlog_max bytes of the journal, as after
 * an outage of the brokers. The next epochs are then sent as one epoch, whose `from` is the
 * first of them, MERGE_BYTES of journal at a time, until the waiting epochs are within the bound
 * again. So each key and parameter that changed in many of them is sent once, and each partition
 * has one commit. The records are a function of the journal and of the epochs that are merged. A
 * resend, by this process or another one, either merges the same epochs and has the same bytes,
 * or merges other epochs and is another merged epoch. Replicas distinguish merged epochs by
 * (epoch, from). With export.on_backlog: rebase the whole state is sent instead. In lockstep,
 * where every run writes the same records, nothing is a backlog (max_backlog_bytes is 0). Nor is
 * anything in a job of several ranks, because each of them would merge other epochs.
 *
 * The whole state is one merged epoch, `from` 1, as of the newest folded epoch. Its records come
 * from full.h piece by piece. The journal keeps the epochs after it, because nothing later is
 * acknowledged before. If the producer fails in between, the same records are made again from the
 * same view of the cold store. A new process makes them of a later epoch (publisher_inspection.c),
 * for which it may have to wait until one is folded. An epoch that is held back is not sent in this
 * way either.
 *
 * Invariants: nothing beyond `offered` is read; each epoch is encoded with the settings of its own
 * journal file. Thread: the publisher thread. */
#include "publisher_content.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

/* Journal bytes that one merge reads, and holds together with the records made of them. */
#define MERGE_BYTES (UINT64_C(32) << 20)
enum {
    BACKLOG_EPOCHS = 16, /* fewer epochs are no backlog; it is measured again after so many */
    TIMESTAMP_SKEW_MS = 3600 * 1000,
};

void fr_publisher_epochs_release(struct fr_publisher_epochs *epochs)
{
    fr_buffer_release(&epochs->borrowed.own);
    fr_buffer_release(&epochs->head);
    fr_export_room_release(&epochs->room);
}

bool fr_publisher_is_backlog(struct fr_publisher_epochs *epochs, uint64_t *last)
{
    const struct fr_publisher_board *board = epochs->sender->board;
    uint64_t most = board->options.max_backlog_bytes, sent = board->tally.sent, end = 0;
    uint64_t offered = atomic_load(&board->offered);
    if (most == 0 || !fr_publisher_has_all(board) || offered < sent + BACKLOG_EPOCHS || sent < epochs->measured_at)
        return false;
    if (fr_durable_span(board->options.durable, sent + 1, offered, MERGE_BYTES, &end) > most) {
        *last = end;
        return true;
    }
    epochs->measured_at = sent + BACKLOG_EPOCHS;
    return false;
}

/* ---- encoding ---- */

/* Consecutive epochs with one head. */
struct window {
    struct fr_epoch *epochs;
    size_t n;
    const struct fr_buffer *head;
    const struct fr_delta_rewind *rewind;
};

static enum fr_status encode_with(struct fr_publisher_epochs *epochs, const struct window *window,
                                  struct fr_codec_settings *settings, uint64_t *saturated, struct fr_err *err)
{
    struct fr_outgoing *out = &epochs->sender->out;
    const struct fr_export_span span = {window->epochs, window->n, window->rewind, &epochs->room, &out->timestamp_ms};
    uint64_t asked = settings->piece_max;
    uint64_t first = window->epochs[0].epoch;
    if (settings->np != epochs->sender->board->options.partitions)
        return fr_err_set(err, FR_E_MISMATCH, "epoch %" PRIu64 " was cut for %u delta partitions, the config says %u",
                          first, settings->np, epochs->sender->board->options.partitions);
    enum fr_status status = fr_export_span(settings, &span, fr_publisher_add_record, out, saturated, err);
    while (status == FR_E_LIMIT && fr_export_widen(settings)) {
        fr_publisher_clear_outgoing(out);
        *saturated = 0;
        status = fr_export_span(settings, &span, fr_publisher_add_record, out, saturated, err);
    }
    if (status == FR_OK && settings->piece_max != asked)
        fr_log(FR_LOG_WARN, "publisher", "piece_max_widened",
               "epoch=%" PRIu64 " from=%" PRIu64 " to=%" PRIu64
               " problem=\"a row, the model or the commit does not fit export.piece_max of its journal file; the "
               "brokers and readers of the topic must take records of the larger size\"",
               first, asked, settings->piece_max);
    return status;
}

/* The Kafka timestamp of an epoch is the wall time of the cut. In lockstep the announcement has the
 * watermark instead, which is event time. Brokers delete by timestamp, so the present replaces a
 * time that is far from it. */
static int64_t timestamp_near(int64_t cut_ms, int64_t now_ms)
{
    return cut_ms < now_ms - TIMESTAMP_SKEW_MS || cut_ms > now_ms + TIMESTAMP_SKEW_MS ? now_ms : cut_ms;
}

/* Replaces the digests of this rank's journal by those of all ranks. */
static enum fr_status name_digests(const struct fr_publisher_board *board, const struct window *window,
                                   struct fr_err *err)
{
    struct fr_epoch *first = &window->epochs[0], *last = &window->epochs[window->n - 1];
    if (!board->options.digests.of)
        return FR_OK;
    enum fr_status status = fr_publisher_digest(board, last->epoch, &last->digest);
    if (status == FR_OK && first->epoch > 1)
        status = fr_publisher_digest(board, first->epoch - 1, &first->previous);
    return status == FR_OK ? FR_OK
                           : fr_err_set(err, status,
                                        "the digests of epochs %" PRIu64 " and %" PRIu64
                                        " of all ranks are not known here; restart the job",
                                        first->epoch - 1, last->epoch);
}

/* Encodes the epochs as one, with the number of the newest. Saturated values are counted unless
 * the newest was sent before. */
static enum fr_status encode(struct fr_publisher_epochs *epochs, const struct window *window, struct fr_err *err)
{
    struct fr_publisher_sender *sender = epochs->sender;
    struct fr_publisher_status *tally = &sender->board->tally;
    const struct fr_epoch *first = &window->epochs[0], *last = &window->epochs[window->n - 1];
    struct fr_codec_settings settings;
    uint64_t saturated = 0;
    enum fr_status status = name_digests(sender->board, window, err);
    if (status != FR_OK)
        return status;
    status = fr_codec_settings_parse(window->head->data, window->head->size, &settings);
    if (status != FR_OK)
        return fr_err_set(err, status, "the head of the journal file of epoch %" PRIu64 " does not parse",
                          first->epoch);
    sender->out.begins = first->epoch == 1 || window->rewind;
    sender->out.ends = true;
    sender->out.epoch = last->epoch;
    status = encode_with(epochs, window, &settings, &saturated, err);
    fr_codec_settings_release(&settings);
    if (status != FR_OK)
        return status;
    int64_t now_ms = fr_wall_ms(sender->board->options.clock);
    sender->out.timestamp_ms = window->n == 1 ? timestamp_near(sender->out.timestamp_ms, now_ms) : now_ms;
    if (sender->out.begins)
        sender->known->sent_begin = (struct fr_topic_begin){last->timeline, last->epoch, fr_sha256_u64(&last->digest),
                                                            window->rewind ? window->rewind->to : 0};
    if (last->epoch > epochs->highest)
        tally->saturated += saturated;
    else
        tally->resent_epochs += 1;
    if (last->epoch > epochs->highest)
        epochs->highest = last->epoch;
    return FR_OK;
}

/* ---- one epoch ---- */

static enum fr_status encode_borrowed(struct fr_publisher_epochs *epochs, uint64_t number,
                                      const struct fr_delta_rewind *rewind, struct fr_err *err)
{
    const struct fr_borrowed_epoch *borrowed = &epochs->borrowed;
    struct fr_epoch epoch;
    enum fr_status status = borrowed->kept ? fr_epoch_own(borrowed->bytes, borrowed->size, &epoch)
                                           : fr_epoch_view(borrowed->bytes, borrowed->size, &epoch);
    if (status != FR_OK || epoch.epoch != number)
        return fr_err_set(err, FR_E_CORRUPT, "epoch %" PRIu64 " of the journal does not parse", number);
    epoch.digest = borrowed->digest;
    return encode(epochs, &(struct window){&epoch, 1, &epochs->head, rewind}, err);
}

enum fr_status fr_publisher_load_epoch(struct fr_publisher_epochs *epochs, const struct fr_delta_rewind *rewind,
                                       struct fr_err *err)
{
    struct fr_publisher_board *board = epochs->sender->board;
    uint64_t number = board->tally.sent + 1;
    fr_buffer_clear(&epochs->head);
    enum fr_status status = fr_durable_borrow(board->options.durable, number, &epochs->borrowed, &epochs->head, err);
    if (status == FR_OK)
        status = encode_borrowed(epochs, number, rewind, err);
    fr_durable_give_back(board->options.durable, &epochs->borrowed);
    return status;
}

/* ---- merged epochs ---- */

/* Reads the epochs after the newest one sent into bytes[] and read[], as long as they have the head
 * and the timeline of the first. *n: the most epochs to read; then how many were read. */
static enum fr_status read_window(struct fr_publisher_epochs *epochs, struct fr_buffer *bytes, struct fr_epoch *read,
                                  size_t *n, struct fr_err *err)
{
    struct fr_durable *durable = epochs->sender->board->options.durable;
    uint64_t first = epochs->sender->board->tally.sent + 1;
    size_t most = *n;
    struct fr_buffer head = {0};
    enum fr_status status = FR_OK;
    *n = 0;
    fr_buffer_clear(&epochs->head);
    for (size_t i = 0; i < most && *n == i; i++) {
        fr_buffer_clear(&head);
        status = fr_durable_read_epoch(durable, first + i, &bytes[i], &head, err);
        if (status == FR_OK)
            status = fr_epoch_view(bytes[i].data, bytes[i].size, &read[i]);
        if (status != FR_OK || read[i].epoch != first + i) {
            status = fr_err_set(err, status == FR_OK ? FR_E_CORRUPT : status,
                                "epoch %" PRIu64 " of the journal cannot be read", first + i);
            break;
        }
        if (i == 0)
            fr_buffer_append(&epochs->head, head.data, head.size);
        bool same =
            head.size == epochs->head.size && (head.size == 0 || memcmp(head.data, epochs->head.data, head.size) == 0);
        *n += same && read[i].timeline == read[0].timeline;
    }
    fr_buffer_release(&head);
    return status == FR_OK ? fr_durable_digest(durable, first + *n - 1, &read[*n - 1].digest) : status;
}

enum fr_status fr_publisher_load_merged(struct fr_publisher_epochs *epochs, uint64_t last,
                                        const struct fr_delta_rewind *rewind, struct fr_err *err)
{
    struct fr_publisher_sender *sender = epochs->sender;
    size_t most = (size_t)(last - sender->board->tally.sent), n = most;
    struct fr_buffer *bytes = fr_alloc(most, sizeof(*bytes));
    struct fr_epoch *read = fr_alloc(most, sizeof(*read));
    enum fr_status status = read_window(epochs, bytes, read, &n, err);
    if (status == FR_OK)
        status = encode(epochs, &(struct window){read, n, &epochs->head, rewind}, err);
    if (status == FR_OK) {
        sender->board->tally.backlog.merges += 1;
        sender->board->tally.backlog.merged_epochs += n;
        fr_log(FR_LOG_INFO, "publisher", "backlog_merged", "from=%" PRIu64 " epoch=%" PRIu64 " records=%zu",
               read[0].epoch, read[n - 1].epoch, sender->out.n);
    }
    for (size_t i = 0; i < most; i++)
        fr_buffer_release(&bytes[i]);
    free(bytes);
    free(read);
    return status;
}

/* ---- the whole state ---- */

/* Reports whether the rebase waits for a fold, and whether for a later epoch. */
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
    enum fr_status status = fr_export_full_open(board->options.durable, NULL, &full, err);
    if (status != FR_OK)
        return status;
    uint64_t epoch = fr_export_full_epoch(full).epoch;
    if (epoch > offered) { /* another fold ended after `durable` was read */
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
