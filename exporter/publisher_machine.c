/* The publisher as one machine: what it sends, and when it looks at the topic first.
 *
 *   NEW ── no brokers ──► OFFLINE
 *    │
 *    │ first look       LOOKS ◄── topic changed, a producer or delivery failed: from all below;
 *    │                    │       snapshot refused: from AWAITS_SNAPSHOT and REWINDS
 *    ▼                    ▼
 *   a look finds what has to be sent, that new replicas can begin with the topic
 *    │
 *    ├─ the whole state ──► AWAITS_FOLD ── opened ──► FILLS ── sent ──► FILLED ─ acknowledged ─┐
 *    │                           ▲                                                             │
 *    │                           └────────────── backlog abandoned ──┬────────────────────┐    │
 *    │                                                               │                    │    │
 *    ├─ a snapshot ───────► AWAITS_SNAPSHOT ──── named ─────────► REWINDS ─ acknowledged ─│─┐  │
 *    │                                                               ▲                    │ │  │
 *    ├─ a snapshot that is named already ────────────────────────────┘                    │ ▼  ▼
 *    └─ nothing but the epochs that follow ─────────────────────────────────────────────► FOLLOWS
 *
 *   NEW              nothing is known of the topic; steps are refused
 *   OFFLINE          there is no topic: what is offered counts as acknowledged
 *   LOOKS            there is no producer; when the pause after a failure is over, the topic is
 *                    looked at (publisher_look.c)
 *   FOLLOWS          new replicas have something to begin with; epochs of the journal go out
 *   AWAITS_FOLD      the whole state is to go out, and is not folded so far yet
 *   FILLS            records of the whole state go out, and nothing else
 *   FILLED           they are all sent and not acknowledged; epochs after it go out
 *   AWAITS_SNAPSHOT  a timeline begins; the snapshot that it begins with is being made, and nothing
 *                    goes out
 *   REWINDS          epochs after that snapshot go out, the first of them with the rewind, which is
 *                    not acknowledged yet
 *
 * The functions that make the transitions:
 *
 *   no brokers                   fr_publisher_check, by go_offline
 *   what a look finds            look_at_topic, by fr_publisher_check or look_again
 *   opened                       load_next, by fr_publisher_open_rebase
 *   sent                         send_waiting
 *   backlog abandoned            load_epochs
 *   named                        may_send, by fr_publisher_ask_rewind
 *   acknowledged                 note_acknowledged
 *   refused, changed, failed     fr_publisher_step, at its end. Callbacks and parts notice them in
 *                                the middle of a step (fr_publisher_notice); the worst one counts.
 *
 * Any other event is an error of this program and ends it (fr_publisher_change_state). What a
 * resend needs to have the same bytes outlives the producer: the view of the whole state, from
 * FILLS on, and the name of the snapshot, from REWINDS on, until they are acknowledged or a look
 * has no use for them.
 *
 * A failed delivery or a fatal error ends the producer: it is purged, and after a pause of 100 ms
 * to 5 s and a look sending resumes after `acked`. Records may then be on the topic twice, which
 * replicas drop by rule; order within a partition stays ascending from the resent epoch on.
 *
 * Owner: the publisher thread, which also runs librdkafka's callbacks.
 * Does not: move the acknowledged mark of the journal. */
#include "publisher_machine.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/log.h"

/* ---- what transitions do ---- */

static void resume(struct fr_publisher *publisher)
{
    struct fr_publisher_status *tally = &publisher->board.tally;
    tally->sent = tally->acked = publisher->found.resume;
    if (publisher->epochs.highest < tally->acked)
        publisher->epochs.highest = tally->acked;
}

static void follow(struct fr_publisher *publisher)
{
    fr_publisher_close_rebase(&publisher->rebase);
    resume(publisher);
}

static void want_rebase(struct fr_publisher *publisher)
{
    fr_publisher_want_rebase(&publisher->rebase, publisher->found.above);
    resume(publisher);
}

static void want_snapshot(struct fr_publisher *publisher)
{
    publisher->rewinding.least = publisher->found.least;
    follow(publisher);
}

static void send_after_snapshot(struct fr_publisher *publisher)
{
    publisher->board.tally.sent = publisher->rewinding.to.epoch;
}

static void rewind_again(struct fr_publisher *publisher)
{
    want_snapshot(publisher);
    send_after_snapshot(publisher);
}

static void forget_snapshot(struct fr_publisher *publisher)
{
    publisher->rewinding.to = (struct fr_publisher_rewind){0};
}

static void abandon_backlog(struct fr_publisher *publisher)
{
    struct fr_publisher_board *board = &publisher->board;
    uint64_t last = atomic_load(&board->offered);
    fr_publisher_want_rebase(&publisher->rebase, last - 1);
    board->tally.backlog.abandoned += 1;
    fr_log(FR_LOG_WARN, "publisher", "backlog_abandoned",
           "first=%" PRIu64 " last=%" PRIu64 " note=\"the whole state is published instead\"", board->tally.sent + 1,
           last);
}

static void end_rebase(struct fr_publisher *publisher)
{
    publisher->board.tally.rebases += 1;
    fr_log(FR_LOG_INFO, "publisher", "rebase_end", "topic=%s epoch=%" PRIu64, publisher->board.options.topic,
           publisher->known.begin.epoch);
    fr_publisher_close_rebase(&publisher->rebase);
}

static void end_rewind(struct fr_publisher *publisher)
{
    publisher->known.snapshot_is_begin = true;
    publisher->board.tally.rewinds += 1;
    fr_log(FR_LOG_INFO, "publisher", "rewind_end", "topic=%s snapshot=%s", publisher->board.options.topic,
           publisher->rewinding.to.snapshot);
    forget_snapshot(publisher);
}

static void drop_producer(struct fr_publisher *publisher)
{
    fr_publisher_drop_producer(&publisher->sender);
    publisher->epochs.measured_at = 0;
}

static void give_up_snapshot(struct fr_publisher *publisher)
{
    publisher->rewinding.impossible = true;
    forget_snapshot(publisher);
    drop_producer(publisher);
}

static void leave_topic(struct fr_publisher *publisher)
{
    fr_log(FR_LOG_WARN, "publisher", "topic_changed",
           "topic=%s acked=%" PRIu64 " note=\"it was made anew or lost records; it is looked at\"",
           publisher->board.options.topic, publisher->board.tally.acked);
    drop_producer(publisher);
}

static void pause_after_failure(struct fr_publisher *publisher)
{
    struct fr_publisher_status *tally = &publisher->board.tally;
    char quoted[300];
    uint64_t ms = publisher->pause.ms > 0 ? publisher->pause.ms * 2 : PAUSE_MIN_MS;
    drop_producer(publisher);
    publisher->pause.ms = ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
    publisher->pause.until_ns = fr_mono_ns(publisher->board.options.clock) + publisher->pause.ms * 1000000u;
    tally->errors += 1;
    fr_log(FR_LOG_WARN, "publisher", "producer_restart", "acked=%" PRIu64 " retry_in_ms=%" PRIu64 " problem=%s",
           tally->acked, publisher->pause.ms, fr_log_quote(quoted, sizeof(quoted), tally->problem));
}

/* ---- the table ---- */

#define ON(event, to, act) [FR_PUBLISHER_##event] = {FR_PUBLISHER_##to, act}
#define AFTER_A_LOOK                                                                                                   \
    ON(BEGINNING_FOUND, FOLLOWS, follow), ON(STATE_NEEDED, AWAITS_FOLD, want_rebase),                                  \
        ON(SNAPSHOT_NEEDED, AWAITS_SNAPSHOT, want_snapshot), ON(NAMED_SNAPSHOT_NEEDED, REWINDS, rewind_again)
#define WITH_A_PRODUCER                                                                                                \
    ON(TOPIC_CHANGED, LOOKS, leave_topic), ON(PRODUCER_FAILED, LOOKS, pause_after_failure),                            \
        ON(DELIVERY_FAILED, LOOKS, pause_after_failure)

static const struct fr_publisher_transition transitions[FR_PUBLISHER_STATES][FR_PUBLISHER_EVENTS] = {
    [FR_PUBLISHER_NEW] = {ON(NO_BROKERS, OFFLINE, NULL), AFTER_A_LOOK},
    [FR_PUBLISHER_OFFLINE] = {{0}},
    [FR_PUBLISHER_LOOKS] = {AFTER_A_LOOK},
    [FR_PUBLISHER_FOLLOWS] = {ON(BEGINNING_ACKNOWLEDGED, FOLLOWS, NULL),
                              ON(BACKLOG_ABANDONED, AWAITS_FOLD, abandon_backlog), WITH_A_PRODUCER},
    [FR_PUBLISHER_AWAITS_FOLD] = {ON(FOLD_OPENED, FILLS, forget_snapshot), WITH_A_PRODUCER},
    [FR_PUBLISHER_FILLS] = {ON(STATE_SENT, FILLED, NULL), WITH_A_PRODUCER},
    [FR_PUBLISHER_FILLED] = {ON(BEGINNING_ACKNOWLEDGED, FOLLOWS, end_rebase), WITH_A_PRODUCER},
    [FR_PUBLISHER_AWAITS_SNAPSHOT] = {ON(SNAPSHOT_NAMED, REWINDS, send_after_snapshot),
                                      ON(SNAPSHOT_REFUSED, LOOKS, give_up_snapshot), WITH_A_PRODUCER},
    [FR_PUBLISHER_REWINDS] = {ON(BEGINNING_ACKNOWLEDGED, FOLLOWS, end_rewind),
                              ON(BACKLOG_ABANDONED, AWAITS_FOLD, abandon_backlog),
                              ON(SNAPSHOT_REFUSED, LOOKS, give_up_snapshot), WITH_A_PRODUCER},
};

const struct fr_publisher_transition *fr_publisher_transition(enum fr_publisher_state from,
                                                              enum fr_publisher_event event)
{
    const struct fr_publisher_transition *found = &transitions[from][event];
    return found->to == FR_PUBLISHER_NO_STATE ? NULL : found;
}

#define QUOTED(name) #name,
const char *fr_publisher_state_name(enum fr_publisher_state state)
{
    static const char *const names[] = {"", FR_PUBLISHER_STATE_LIST(QUOTED)};
    return names[state];
}

const char *fr_publisher_event_name(enum fr_publisher_event event)
{
    static const char *const names[] = {"", FR_PUBLISHER_EVENT_LIST(QUOTED)};
    return names[event];
}
#undef QUOTED

void fr_publisher_change_state(struct fr_publisher *publisher, enum fr_publisher_event event)
{
    const struct fr_publisher_transition *transition = fr_publisher_transition(publisher->state, event);
    if (!transition)
        fr_log(FR_LOG_ERROR, "publisher", "event_refused", "state=%s event=%s",
               fr_publisher_state_name(publisher->state), fr_publisher_event_name(event));
    FR_CHECK(transition != NULL);
    publisher->state = transition->to;
    if (transition->act)
        transition->act(publisher);
}
