/* Where a follower stands: whether it serves all that its topic has, and what it lacks if not.
 * Brokers delete records by time or size without notice, also records that are still needed. So a
 * topic whose records were deleted looks like a topic that is read to its end.
 *
 * The low watermark distinguishes the two. A partition that begins after the offset that was to be
 * read next (the snapshot's `delta_offsets`, or where reading stopped) has lost records. Whether
 * these held epochs beyond the served one cannot be known, because `delta_offsets` may be lower
 * than the exact place. So the loss is reported until a snapshot is loaded or an epoch applies,
 * which either continues what is served or holds a whole state. A snapshot without `delta_offsets`
 * gives no evidence.
 *
 * Thread: one. */
#include <inttypes.h>
#include <stdio.h>

#include "follower_internal.h"

/* How a loss ends without the operator. */
#define REFILLS                                                                                                        \
    "A running daemon also publishes its whole state again within a minute, unless its snapshots cover the loss "      \
    "(export.retention: snapshots)"

void fr_follower_note_deleted(struct fr_follower *follower)
{
    for (size_t i = 0; i < fr_consumer_count(follower->consumer) && follower->deleted.to == 0; i++) {
        struct fr_consumer_place place = fr_consumer_place(follower->consumer, i);
        int64_t expected = follower->expects[place.partition];
        if (!place.left && expected >= 0 && place.low > expected)
            follower->deleted = (struct fr_deleted){place.partition, expected, place.low};
    }
}

/* ---- what is lacking ---- */

bool fr_follower_lacks_beginning(const struct fr_follower *follower, struct fr_err *err)
{
    if (follower->state != FR_FOLLOWER_LACKS_BEGINNING || !fr_follower_ended(follower))
        return false;
    return fr_err_set(err, FR_E_LOST,
                      "%s/%" PRId32
                      " lost its beginning, and no epoch in it holds the whole state. Begin with a snapshot of the "
                      "daemon (--snapshot), or try again after the daemon has published its whole state: it looks once "
                      "a minute, and does not publish it while its snapshots cover the loss (export.retention: "
                      "snapshots)",
                      follower->topic.topic, follower->lacking) != FR_OK;
}

bool fr_follower_deleted(const struct fr_follower *follower, struct fr_err *err)
{
    struct freshet_replica_info info;
    const struct fr_deleted *deleted = &follower->deleted;
    if (deleted->to == 0)
        return false;
    freshet_replica_get_info(follower->replica, &info);
    return fr_err_set(err, FR_E_LOST,
                      "%s/%" PRId32 ": the records that follow %s, offsets %" PRId64 " to %" PRId64
                      ", were deleted: epoch %" PRIu64
                      " is served, and later ones may be missing. Load a newer snapshot (freshet snapshot). " REFILLS,
                      follower->topic.topic, deleted->partition,
                      follower->begins_after[0] ? follower->begins_after : "what was read", deleted->from,
                      deleted->to - 1, info.epoch) != FR_OK;
}

/* Finds the first partition of which brokers deleted all records; false: every partition has some,
 * or never had any. */
static bool find_emptied(const struct fr_follower *follower, struct fr_consumer_place *out)
{
    for (size_t i = 0; i < fr_consumer_count(follower->consumer); i++) {
        *out = fr_consumer_place(follower->consumer, i);
        if (!out->left && out->low > 0 && out->low >= out->end)
            return true;
    }
    return false;
}

static bool holds_nothing(const struct fr_follower *follower)
{
    for (size_t i = 0; i < fr_consumer_count(follower->consumer); i++) {
        struct fr_consumer_place place = fr_consumer_place(follower->consumer, i);
        if (!place.left && place.low < place.end)
            return false;
    }
    return true;
}

static bool explain_emptied(const struct fr_follower *follower, const struct fr_consumer_place *place,
                            struct fr_err *err)
{
    char loading[600] = "", partition[16] = "";
    if (!holds_nothing(follower))
        snprintf(partition, sizeof(partition), "/%" PRId32, place->partition);
    if (follower->snapshots)
        snprintf(loading, sizeof(loading), ", which could not be loaded: %s", follower->not_loaded);
    return fr_err_set(err, FR_E_LOST,
                      "%s%s holds nothing: its records up to offset %" PRId64
                      " were deleted. Begin with a snapshot of the daemon that publishes here (--snapshot)%s. " REFILLS,
                      follower->topic.topic, partition, place->low - 1, loading) != FR_OK;
}

bool fr_follower_lacks(const struct fr_follower *follower, struct fr_err *err)
{
    struct freshet_replica_info info;
    struct fr_consumer_place place;
    if (fr_follower_lacks_beginning(follower, err) || fr_follower_deleted(follower, err))
        return true;
    freshet_replica_get_info(follower->replica, &info);
    return info.epoch == 0 && fr_follower_ended(follower) && find_emptied(follower, &place) &&
           explain_emptied(follower, &place, err);
}

bool fr_follower_waits(const struct fr_follower *follower, struct fr_err *err)
{
    struct freshet_replica_info info;
    const char *outage = follower->consumer ? fr_consumer_outage(follower->consumer) : NULL;
    if (outage)
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s", outage) != FR_OK;
    if (fr_follower_lacks(follower, err))
        return true;
    freshet_replica_get_info(follower->replica, &info);
    return info.epoch == 0 && fr_follower_ended(follower) && fr_follower_unserved(follower, err) != FR_OK;
}

enum fr_status fr_follower_unserved(const struct fr_follower *follower, struct fr_err *err)
{
    if (fr_follower_lacks(follower, err))
        return FR_E_LOST;
    return fr_err_set(err, FR_E_NOT_FOUND,
                      "no epoch of %s was served: name the topic of the deltas (export.topic of the daemon), and look "
                      "whether the daemon publishes to it (outbox.problem in its /status)",
                      follower->topic.topic);
}

/* ---- caught up ---- */

/* Returns the newest epoch whose commit has been read from every followed partition. */
static uint64_t complete_rank(const struct fr_follower *follower)
{
    uint64_t lowest = UINT64_MAX;
    for (size_t i = 0; i < fr_consumer_count(follower->consumer); i++)
        if (!fr_consumer_place(follower->consumer, i).left && follower->places[i].committed < lowest)
            lowest = follower->places[i].committed;
    return lowest;
}

bool fr_follower_caught_up(const struct fr_follower *follower)
{
    struct freshet_replica_info info;
    if (follower->starved || follower->deleted.to > 0 || !fr_follower_ended(follower))
        return false;
    freshet_replica_get_info(follower->replica, &info);
    return info.epoch > 0 && info.scorable && fr_follower_rank_of(info.timeline, info.epoch) >= complete_rank(follower);
}
