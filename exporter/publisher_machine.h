/* The states of a publisher, the events that move it from one to another, and the table of all
 * transitions. publisher.c draws the machine and has the table. */
#ifndef FR_EXPORTER_PUBLISHER_MACHINE_H
#define FR_EXPORTER_PUBLISHER_MACHINE_H

#include "exporter/publisher.h"

/* (enumerator, what it is called in messages) */
#define FR_PUBLISHER_STATE_LIST(STATE)                                                                                 \
    STATE(NEW, "has not looked at the topic")                                                                          \
    STATE(OFFLINE, "has no brokers")                                                                                   \
    STATE(LOOKS, "looks at the topic")                                                                                 \
    STATE(FOLLOWS, "follows the journal")                                                                              \
    STATE(AWAITS_FOLD, "waits for a folded state")                                                                     \
    STATE(FILLS, "fills the topic")                                                                                    \
    STATE(FILLED, "has filled the topic")                                                                              \
    STATE(AWAITS_SNAPSHOT, "waits for a snapshot")                                                                     \
    STATE(REWINDS, "rewinds to a snapshot")

enum fr_publisher_state {
    FR_PUBLISHER_NO_STATE,
#define STATE(name, text) FR_PUBLISHER_##name,
    FR_PUBLISHER_STATE_LIST(STATE)
#undef STATE
        FR_PUBLISHER_STATES
};

/* The last four are noticed in the middle of a step, by callbacks too, and happen at its end: the
 * worst one, which is the last in this order. */
#define FR_PUBLISHER_EVENT_LIST(EVENT)                                                                                 \
    EVENT(NO_BROKERS, "no brokers")                                                                                    \
    EVENT(BEGINNING_FOUND, "a beginning found")                                                                        \
    EVENT(STATE_NEEDED, "the whole state needed")                                                                      \
    EVENT(SNAPSHOT_NEEDED, "a snapshot needed")                                                                        \
    EVENT(SNAPSHOT_NEEDED_AGAIN, "a named snapshot needed again")                                                      \
    EVENT(FOLD_OPENED, "a folded state opened")                                                                        \
    EVENT(STATE_SENT, "the whole state sent")                                                                          \
    EVENT(SNAPSHOT_NAMED, "a snapshot named")                                                                          \
    EVENT(BEGINNING_ACKNOWLEDGED, "a beginning acknowledged")                                                          \
    EVENT(BACKLOG_ABANDONED, "a backlog abandoned")                                                                    \
    EVENT(SNAPSHOT_REFUSED, "a snapshot refused")                                                                      \
    EVENT(TOPIC_CHANGED, "the topic changed")                                                                          \
    EVENT(PRODUCER_FAILED, "the producer failed")                                                                      \
    EVENT(DELIVERY_FAILED, "a delivery failed")

enum fr_publisher_event {
    FR_PUBLISHER_NO_EVENT,
#define EVENT(name, text) FR_PUBLISHER_##name,
    FR_PUBLISHER_EVENT_LIST(EVENT)
#undef EVENT
        FR_PUBLISHER_EVENTS
};

struct fr_publisher_transition {
    enum fr_publisher_state to;                  /* NO_STATE: the event is refused */
    void (*act)(struct fr_publisher *publisher); /* NULL: nothing is to be done */
};
/* NULL: a publisher in this state refuses the event. */
const struct fr_publisher_transition *fr_publisher_transition(enum fr_publisher_state from,
                                                              enum fr_publisher_event event);
const char *fr_publisher_state_text(enum fr_publisher_state state);
const char *fr_publisher_event_text(enum fr_publisher_event event);

#endif
