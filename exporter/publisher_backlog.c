/* A backlog: durable epochs that wait for the topic and take more than export.backlog_max bytes of
 * the journal, as after an outage of the brokers.
 *
 * Merged: the next epochs go out as one, whose `from` is the first of them, MERGE_BYTES of journal
 * at a time, until what waits is within the bound again; so each key and parameter that changed in
 * many of them is sent once, and each partition has one commit. What is sent is a function of the
 * journal and of which epochs were taken: a resend by this process or another one takes the same
 * ones, and gives the same bytes, or others, and gives another epoch; replicas tell those apart by
 * (epoch, from). With export.on_backlog: rebase the whole state goes out instead, as of an epoch
 * behind all that waits (publisher_rebase.c).
 *
 * Not in lockstep, where every run writes the same records (max_backlog_bytes is 0).
 *
 * Thread: the publisher thread. */
#include "publisher_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

/* What a merge reads at a time, and holds with the records made of it. */
#define MERGE_BYTES (UINT64_C(32) << 20)
/* A backlog of fewer epochs is none; between looks so many go out. */
enum { LOOK_EPOCHS = 16 };

/* ---- is there one ---- */

static bool is_over(struct fr_publisher *publisher, uint64_t *end)
{
    uint64_t most = publisher->options.max_backlog_bytes, offered = atomic_load(&publisher->offered);
    if (most == 0 || offered < publisher->sent + LOOK_EPOCHS || publisher->sent < publisher->backlog.look_at)
        return false;
    if (fr_durable_span(publisher->options.durable, publisher->sent + 1, offered, MERGE_BYTES, end) > most)
        return true;
    publisher->backlog.look_at = publisher->sent + LOOK_EPOCHS;
    return false;
}

bool fr_publisher_wants_merge(struct fr_publisher *publisher)
{
    uint64_t end = 0;
    if (!is_over(publisher, &end))
        return false;
    if (!publisher->options.backlog_rebases) {
        publisher->backlog.end = end;
        return end > publisher->sent + 1;
    }
    if (publisher->n_pending > 0)
        return false; /* what is in flight lands first */
    publisher->rebase.wanted = true;
    publisher->rebase.sent = false;
    publisher->rebase.above = atomic_load(&publisher->offered) - 1;
    publisher->tally.rebasing = true;
    publisher->tally.backlog.abandoned += 1;
    fr_log(FR_LOG_WARN, "publisher", "backlog_abandoned",
           "first=%" PRIu64 " last=%" PRIu64 " note=\"the whole state is published instead\"", publisher->sent + 1,
           publisher->rebase.above + 1);
    return false;
}

/* ---- merging ---- */

struct window {
    struct fr_buffer *bytes; /* of each epoch */
    struct fr_epoch *epochs;
    size_t n, room;
    struct fr_buffer head;
};

static void release(struct window *window)
{
    for (size_t i = 0; i < window->room; i++)
        fr_buffer_release(&window->bytes[i]);
    free(window->bytes);
    free(window->epochs);
    fr_buffer_release(&window->head);
}

/* The epochs up to `end` that have the head and the timeline of the first. */
static enum fr_status read_window(struct fr_publisher *publisher, struct window *window, struct fr_err *err)
{
    uint64_t first = publisher->sent + 1;
    struct fr_buffer head = {0};
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < window->room && status == FR_OK; i++) {
        struct fr_epoch *epoch = &window->epochs[i];
        fr_buffer_clear(&head);
        status = fr_durable_read_epoch(publisher->options.durable, first + i, &window->bytes[i], &head, err);
        if (status == FR_OK)
            status = fr_epoch_view(window->bytes[i].data, window->bytes[i].size, epoch);
        if (status != FR_OK || epoch->epoch != first + i) {
            status = fr_err_set(err, status == FR_OK ? FR_E_CORRUPT : status,
                                "epoch %" PRIu64 " of the journal cannot be read", first + i);
            break;
        }
        if (i == 0)
            fr_buffer_append(&window->head, head.data, head.size);
        bool same =
            head.size == window->head.size && (head.size == 0 || memcmp(head.data, window->head.data, head.size) == 0);
        if (!same || epoch->timeline != window->epochs[0].timeline)
            break;
        window->n = i + 1;
    }
    fr_buffer_release(&head);
    if (status == FR_OK)
        status =
            fr_durable_digest(publisher->options.durable, first + window->n - 1, &window->epochs[window->n - 1].digest);
    return status;
}

static enum fr_status encode(struct fr_publisher *publisher, const struct window *window, fr_delta_sink *keep,
                             struct fr_err *err)
{
    struct outgoing *out = &publisher->out;
    const struct fr_epoch *first = &window->epochs[0], *last = &window->epochs[window->n - 1];
    struct fr_delta_rewind room;
    const struct fr_export_span span = {window->epochs, window->n,
                                        fr_publisher_rewind_of(publisher, first->epoch, &room), &publisher->room};
    struct fr_codec_settings settings;
    uint64_t saturated = 0;
    enum fr_status status = fr_codec_settings_parse(window->head.data, window->head.size, &settings);
    if (status != FR_OK)
        return fr_err_set(err, status, "the head of the journal file of epoch %" PRIu64 " does not parse",
                          first->epoch);
    out->begins = first->epoch == 1 || span.rewind;
    if (settings.np != publisher->options.partitions)
        status = fr_err_set(err, FR_E_MISMATCH, "epoch %" PRIu64 " was cut for %u delta partitions, the config says %u",
                            first->epoch, settings.np, publisher->options.partitions);
    if (status == FR_OK)
        status = fr_export_span(&settings, &span, keep, out, &saturated, err);
    while (status == FR_E_LIMIT && fr_export_widen(&settings)) {
        fr_publisher_clear_outgoing(out);
        saturated = 0;
        status = fr_export_span(&settings, &span, keep, out, &saturated, err);
    }
    fr_codec_settings_release(&settings);
    if (status != FR_OK)
        return status;
    out->epoch = last->epoch;
    out->timestamp_ms = fr_wall_ms(publisher->options.clock);
    fr_publisher_begin_sent(publisher, first->epoch, last);
    publisher->tally.saturated += saturated;
    publisher->tally.backlog.merges += 1;
    publisher->tally.backlog.merged_epochs += window->n;
    fr_log(FR_LOG_INFO, "publisher", "backlog_merged", "from=%" PRIu64 " epoch=%" PRIu64 " records=%zu", first->epoch,
           last->epoch, out->n);
    return FR_OK;
}

enum fr_status fr_publisher_load_merged(struct fr_publisher *publisher, fr_delta_sink *keep, struct fr_err *err)
{
    struct window window = {.room = (size_t)(publisher->backlog.end - publisher->sent)};
    window.bytes = fr_alloc(window.room, sizeof(*window.bytes));
    window.epochs = fr_alloc(window.room, sizeof(*window.epochs));
    enum fr_status status = read_window(publisher, &window, err);
    if (status == FR_OK)
        status = encode(publisher, &window, keep, err);
    release(&window);
    if (status == FR_OK && publisher->highest_sent < publisher->out.epoch)
        publisher->highest_sent = publisher->out.epoch;
    return status;
}
