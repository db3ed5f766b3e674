/* The states of a publisher, the events that move it from one to another, and the table of all
 * transitions; publisher_machine.c draws them. */
#ifndef FR_EXPORTER_PUBLISHER_STATES_H
#define FR_EXPORTER_PUBLISHER_STATES_H

struct fr_publisher;

#define FR_PUBLISHER_STATE_LIST(STATE)                                                                                 \
    STATE(NEW)                                                                                                         \
    STATE(OFFLINE)                                                                                                     \
    STATE(INSPECTS)                                                                                                    \
    STATE(FOLLOWS)                                                                                                     \
    STATE(AWAITS_FOLD)                                                                                                 \
    STATE(FILLS)                                                                                                       \
    STATE(FILLED)                                                                                                      \
    STATE(AWAITS_SNAPSHOT)                                                                                             \
    STATE(REWINDS)

/* The last four events are noticed in the middle of a step, some by callbacks. At the end of the
 * step only the worst of them happens, which is the last in this order. */
#define FR_PUBLISHER_EVENT_LIST(EVENT)                                                                                 \
    EVENT(NO_BROKERS)                                                                                                  \
    EVENT(BEGINNING_FOUND)                                                                                             \
    EVENT(STATE_NEEDED)                                                                                                \
    EVENT(SNAPSHOT_NEEDED)                                                                                             \
    EVENT(NAMED_SNAPSHOT_NEEDED)                                                                                       \
    EVENT(FOLD_OPENED)                                                                                                 \
    EVENT(STATE_SENT)                                                                                                  \
    EVENT(SNAPSHOT_NAMED)                                                                                              \
    EVENT(BEGINNING_ACKNOWLEDGED)                                                                                      \
    EVENT(BACKLOG_ABANDONED)                                                                                           \
    EVENT(SNAPSHOT_REFUSED)                                                                                            \
    EVENT(TOPIC_CHANGED)                                                                                               \
    EVENT(PRODUCER_FAILED)                                                                                             \
    EVENT(DELIVERY_FAILED)

#define FR_PUBLISHER_NAME(name) FR_PUBLISHER_##name,
enum fr_publisher_state { FR_PUBLISHER_NO_STATE, FR_PUBLISHER_STATE_LIST(FR_PUBLISHER_NAME) FR_PUBLISHER_STATES };
enum fr_publisher_event { FR_PUBLISHER_NO_EVENT, FR_PUBLISHER_EVENT_LIST(FR_PUBLISHER_NAME) FR_PUBLISHER_EVENTS };
#undef FR_PUBLISHER_NAME

struct fr_publisher_transition {
    enum fr_publisher_state to;                  /* NO_STATE: the event is refused */
    void (*act)(struct fr_publisher *publisher); /* NULL: no action */
};
/* Returns the transition of the table; NULL: a publisher in this state refuses the event. */
const struct fr_publisher_transition *fr_publisher_transition(enum fr_publisher_state from,
                                                              enum fr_publisher_event event);

#endif
