/* A new timeline that is told by a rewind to a snapshot, so that the whole state need not go
 * through the topic (docs/formats/deltas.md, "Timelines").
 *
 * The snapshot is of the state's new timeline, as of an epoch that no older timeline goes beyond in
 * its history; whoever makes it (options.rewind) answers once replicas can fetch it. Epochs behind
 * it are sent from the journal, the first of them with a rewind as piece 0 in every partition. When
 * that one is acknowledged the timeline is settled; before, nothing counts as acknowledged, so that
 * a kill begins another one, and a resend by this process has the same rewind.
 *
 * Where there is no snapshot, or no epoch follows it that could carry the rewind, the topic is
 * filled with the whole state (publisher_rebase.c), which every replica takes.
 *
 * Thread: the publisher thread. It writes no snapshot. */
#include "publisher_internal.h"

#include <inttypes.h>

#include "base/log.h"

bool fr_publisher_wants_rewind(struct fr_publisher *publisher, uint64_t least, uint64_t *resume)
{
    if (!publisher->options.rewind || publisher->rewind.refused || publisher->rebase.full)
        return false;
    publisher->rewind.least = least;
    publisher->rewind.wanted = !publisher->rewind.ready;
    *resume = 0;
    return true;
}

/* The look that follows finds that the topic has to be filled. */
static void refuse(struct fr_publisher *publisher)
{
    publisher->rewind.wanted = publisher->rewind.ready = false;
    publisher->rewind.refused = publisher->rewind.looks = publisher->moved = true;
    fr_log(FR_LOG_INFO, "publisher", "rewind_refused",
           "topic=%s note=\"there is no snapshot to name, or no epoch behind it: the topic is filled with the whole "
           "state\"",
           publisher->options.topic);
}

bool fr_publisher_await_rewind(struct fr_publisher *publisher)
{
    uint64_t offered = atomic_load(&publisher->offered);
    struct fr_publisher_rewind to;
    if (publisher->rewind.ready && publisher->sent == 0) /* a new producer */
        publisher->sent = publisher->rewind.to.epoch;
    bool idle = publisher->rewind.ready && publisher->sent == publisher->rewind.to.epoch && publisher->sent >= offered;
    publisher->tally.rewind_waits = idle;
    if (!publisher->rewind.wanted && !idle)
        return true;
    enum fr_status status = publisher->options.rewind(publisher->options.self, publisher->rewind.least, &to);
    if (status != FR_OK && status != FR_AGAIN)
        refuse(publisher);
    if (status != FR_OK || idle || to.epoch > offered)
        return false;
    publisher->rewind.wanted = false;
    publisher->rewind.ready = true;
    publisher->rewind.to = to;
    publisher->tally.rewind_waits = to.epoch >= offered;
    publisher->sent = to.epoch;
    fr_log(FR_LOG_INFO, "publisher", "rewind_begin", "topic=%s to=%" PRIu64 " snapshot=%s", publisher->options.topic,
           to.epoch, to.snapshot);
    return true;
}

const struct fr_delta_rewind *fr_publisher_rewind_of(struct fr_publisher *publisher, uint64_t first,
                                                     struct fr_delta_rewind *room)
{
    if (!publisher->rewind.ready || first != publisher->rewind.to.epoch + 1)
        return NULL;
    *room = (struct fr_delta_rewind){publisher->rewind.to.epoch, publisher->rewind.to.snapshot};
    return room;
}

void fr_publisher_rewind_landed(struct fr_publisher *publisher)
{
    publisher->rewind.ready = false;
    publisher->covered = true;
    publisher->tally.rewinds += 1;
    fr_log(FR_LOG_INFO, "publisher", "rewind_end", "topic=%s snapshot=%s", publisher->options.topic,
           publisher->rewind.to.snapshot);
}
