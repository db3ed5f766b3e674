/* How a follower reads its topic, as one machine.
 *
 *   AWAITS_MODEL ─── model shown ───► READS_ALL ─── passed over ───► LACKS_BEGINNING
 *        ▲                            │ ▲  │ ▲                         │   │  ▲  ▲
 *        └──── snapshot unproven ─────┘ │  │ └──── epoch applied, ─────┘   │  │  │
 *                                       │  │      timeline begun,          │  │  │
 *                                       │  │         reopened              │  │  │
 *                        epoch applied  │  │ gap, hint misled              │  │  │
 *                                       │  │              gap, hint misled │  │  │
 *                                       │  ▼                               │  │  │
 *                                     REREADS ◄────────────────────────────┘  │  │
 *                                       ▲  └────────── passed over ───────────┘  │
 *                                       │ gap, hint misled                       │
 *   every state ── snapshot loaded ──► CONTINUES ────── passed over ─────────────┘
 *
 *   every state except AWAITS_MODEL ── records lost ──► READS_ALL
 *
 *   READS_ALL        the topic is read from the first records there are
 *   AWAITS_MODEL     the same, and a snapshot waits for a record that shows whether the snapshot is
 *                    of the topic's model
 *   CONTINUES        the topic is read from where it continues the newest loaded snapshot
 *   REREADS          the topic is read from its first records a second time, because a gap or a
 *                    misleading hint showed that records were skipped; another gap is final
 *   LACKS_BEGINNING  records of the newest timeline are passed over, because a partition has lost
 *                    the beginning of the epoch that holds the whole state
 *
 * In every state the topic may be closed (`consumer` is NULL); the next step opens it and begins
 * where the state says. The events after which other records are to be read close it: a loaded
 * snapshot, a gap, a misleading hint, lost records and a reopening.
 *
 * The functions that raise the events:
 *
 *   snapshot loaded, unproven     load_snapshot; loaded also finish_record, when the replica has
 *                                 loaded one by itself
 *   model shown                   load_proven_snapshot
 *   epoch applied, gap            finish_record. Where nothing was skipped (in all states except
 *                                 CONTINUES) an impatient follower reports a gap as an error.
 *   hint misled                   note_misleading
 *   passed over, timeline begun   note_passed
 *   records lost                  next_message
 *   reopened                      fr_follower_reopen, for the caller
 *
 * Any other event is an error of this program and ends it (fr_follower_change_state). What is
 * missing while a follower waits follows from the state and from what is on the topic
 * (standing.c).
 *
 * Thread: one. Records are read in follower.c. */
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/log.h"
#include "follower_internal.h"

/* ---- what transitions do ---- */

static void close_topic(struct fr_follower *follower)
{
    fr_consumer_close(follower->consumer);
    follower->consumer = NULL;
    follower->starved = NULL; /* its message is no longer valid */
    follower->refusals = 0;
    for (size_t i = 0; i < FR_FOLLOW_IN_FLIGHT_MAX; i++)
        follower->epochs[i].epoch = 0;
}

static void continue_snapshot(struct fr_follower *follower)
{
    struct freshet_replica_info info;
    close_topic(follower);
    freshet_replica_get_info(follower->replica, &info);
    for (uint32_t p = 0; p < FR_CONSUME_PARTITIONS_MAX; p++)
        follower->expects[p] = freshet_replica_next_offset(follower->replica, p);
    snprintf(follower->begins_after, sizeof(follower->begins_after),
             "the snapshot of timeline %" PRIu64 ", epoch %" PRIu64, info.timeline, info.epoch);
    follower->np = info.np;
    follower->deleted = (struct fr_deleted){0};
}

/* The epoch continues what was served, or holds a whole state. */
static void end_loss(struct fr_follower *follower)
{
    follower->deleted = (struct fr_deleted){0};
    follower->begins_after[0] = '\0';
}

/* ---- the table ---- */

enum {
    ALL = FR_FOLLOWER_READS_ALL,
    MODEL = FR_FOLLOWER_AWAITS_MODEL,
    SNAP = FR_FOLLOWER_CONTINUES,
    AGAIN = FR_FOLLOWER_REREADS,
    LACK = FR_FOLLOWER_LACKS_BEGINNING,
    NONE = FR_FOLLOWER_NO_STATE,
};

/* What an event does, and to which state it leads from each state, in the order of
 * FR_FOLLOWER_STATE_LIST. NONE: the state refuses the event. */
static const struct {
    void (*act)(struct fr_follower *follower); /* NULL: nothing else changes */
    uint8_t to[FR_FOLLOWER_STATES];            /* enum fr_follower_state */
} transitions[FR_FOLLOWER_EVENTS] = {
    [FR_FOLLOWER_SNAPSHOT_LOADED] = {continue_snapshot, {NONE, SNAP, SNAP, SNAP, SNAP, SNAP}},
    [FR_FOLLOWER_SNAPSHOT_UNPROVEN] = {NULL, {NONE, MODEL, MODEL, NONE, NONE, NONE}},
    [FR_FOLLOWER_MODEL_SHOWN] = {NULL, {NONE, NONE, ALL, NONE, NONE, NONE}},
    [FR_FOLLOWER_EPOCH_APPLIED] = {end_loss, {NONE, ALL, NONE, SNAP, ALL, ALL}},
    [FR_FOLLOWER_GAP_FOUND] = {close_topic, {NONE, AGAIN, NONE, AGAIN, NONE, AGAIN}},
    [FR_FOLLOWER_HINT_MISLED] = {close_topic, {NONE, AGAIN, NONE, AGAIN, NONE, AGAIN}},
    [FR_FOLLOWER_PASSED_OVER] = {NULL, {NONE, LACK, NONE, LACK, LACK, NONE}},
    [FR_FOLLOWER_TIMELINE_BEGUN] = {NULL, {NONE, NONE, NONE, NONE, NONE, ALL}},
    [FR_FOLLOWER_RECORDS_LOST] = {close_topic, {NONE, ALL, MODEL, ALL, ALL, ALL}},
    [FR_FOLLOWER_REOPENED] = {close_topic, {NONE, ALL, MODEL, SNAP, AGAIN, ALL}},
};

enum fr_follower_state fr_follower_next_state(enum fr_follower_state from, enum fr_follower_event event)
{
    return transitions[event].to[from];
}

#define QUOTED(name) #name,
const char *fr_follower_state_name(enum fr_follower_state state)
{
    static const char *const names[] = {"", FR_FOLLOWER_STATE_LIST(QUOTED)};
    return names[state];
}

const char *fr_follower_event_name(enum fr_follower_event event)
{
    static const char *const names[] = {FR_FOLLOWER_EVENT_LIST(QUOTED)};
    return names[event];
}
#undef QUOTED

void fr_follower_change_state(struct fr_follower *follower, enum fr_follower_event event)
{
    enum fr_follower_state to = fr_follower_next_state(follower->state, event);
    if (to == FR_FOLLOWER_NO_STATE)
        fr_log(FR_LOG_ERROR, "follow", "event_refused", "state=%s event=%s", fr_follower_state_name(follower->state),
               fr_follower_event_name(event));
    FR_CHECK(to != FR_FOLLOWER_NO_STATE);
    follower->state = to;
    if (transitions[event].act)
        transitions[event].act(follower);
}
