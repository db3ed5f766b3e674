/* A new timeline that begins with a rewind to a snapshot, so that the whole state need not go
 * through the topic (docs/formats/deltas.md, "Timelines").
 *
 * The snapshot is of the state's new timeline, as of an epoch that no older timeline goes beyond in
 * its history; its maker (options.rewind) answers once replicas can fetch the snapshot. Epochs
 * after it are sent from the journal, the first of them with a rewind as piece 0 in every
 * partition. When that one is acknowledged the timeline has begun; before, nothing counts as
 * acknowledged, so that a kill begins another one, and a resend by this process has the same
 * rewind.
 *
 * Where there is no snapshot, or no epoch follows it that could carry the rewind, the topic is
 * filled with the whole state (publisher_rebase.c), which every replica takes.
 *
 * Thread: the publisher thread. It writes no snapshot. */
#include "publisher_ways.h"

#include <inttypes.h>

#include "base/log.h"

enum fr_publisher_event fr_publisher_ask_rewind(struct fr_publisher_rewinding *rewinding)
{
    struct fr_publisher_board *board = rewinding->board;
    struct fr_publisher_rewind to;
    enum fr_status status = board->options.rewind(board->options.self, rewinding->least, &to);
    if (status != FR_OK && status != FR_AGAIN) {
        fr_log(FR_LOG_INFO, "publisher", "rewind_refused",
               "topic=%s note=\"there is no snapshot to name, or no epoch behind it: the topic is filled with the "
               "whole state\"",
               board->options.topic);
        return FR_PUBLISHER_SNAPSHOT_REFUSED;
    }
    if (status != FR_OK || rewinding->to.epoch > 0 || to.epoch > atomic_load(&board->offered))
        return FR_PUBLISHER_NO_EVENT;
    rewinding->to = to;
    fr_log(FR_LOG_INFO, "publisher", "rewind_begin", "topic=%s to=%" PRIu64 " snapshot=%s", board->options.topic,
           to.epoch, to.snapshot);
    return FR_PUBLISHER_SNAPSHOT_NAMED;
}
