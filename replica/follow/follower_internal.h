/* The struct of a follower and the states of its machine, shared by follower.c, which feeds the
 * replica, follower_machine.c, which draws the machine and has the table of its transitions, and
 * standing.c, which determines how far the follower is and what it lacks. Thread: one. */
#ifndef FR_FOLLOW_FOLLOWER_INTERNAL_H
#define FR_FOLLOW_FOLLOWER_INTERNAL_H

#include "follow/follower.h"

enum { FR_FOLLOW_IN_FLIGHT_MAX = 2 * FR_FOLLOW_AHEAD_MAX + 8, FR_FOLLOW_TASK_NAME_MAX = 64 };

#define FR_FOLLOWER_STATE_LIST(STATE)                                                                                  \
    STATE(READS_ALL)                                                                                                   \
    STATE(AWAITS_MODEL)                                                                                                \
    STATE(CONTINUES)                                                                                                   \
    STATE(REREADS)                                                                                                     \
    STATE(LACKS_BEGINNING)

#define FR_FOLLOWER_EVENT_LIST(EVENT)                                                                                  \
    EVENT(SNAPSHOT_LOADED)                                                                                             \
    EVENT(SNAPSHOT_UNPROVEN)                                                                                           \
    EVENT(MODEL_SHOWN)                                                                                                 \
    EVENT(EPOCH_APPLIED)                                                                                               \
    EVENT(GAP_FOUND)                                                                                                   \
    EVENT(HINT_MISLED)                                                                                                 \
    EVENT(PASSED_OVER)                                                                                                 \
    EVENT(TIMELINE_BEGUN)                                                                                              \
    EVENT(RECORDS_LOST)                                                                                                \
    EVENT(REOPENED)

#define FR_FOLLOWER_NAME(name) FR_FOLLOWER_##name,
enum fr_follower_state { FR_FOLLOWER_NO_STATE, FR_FOLLOWER_STATE_LIST(FR_FOLLOWER_NAME) FR_FOLLOWER_STATES };
enum fr_follower_event { FR_FOLLOWER_EVENT_LIST(FR_FOLLOWER_NAME) FR_FOLLOWER_EVENTS };
#undef FR_FOLLOWER_NAME

/* An epoch that is not complete yet: how many records came, and what the commits contain. */
struct in_flight {
    uint64_t timeline, epoch; /* 0: the entry is free */
    uint64_t changed, dropped, bytes;
    struct fr_buffer auc;
};

/* A partition in the present reading. */
struct fr_follower_place {
    /* the highest rank (timeline and epoch, fr_follower_rank_of) of any record, and of a commit */
    uint64_t read, committed;
    /* where the topic continues the snapshot, as the snapshot says; -1: reading began with the
     * first record */
    int64_t hint;
};

/* Records that were to be read next and have been deleted from the topic. */
struct fr_deleted {
    int32_t partition;
    int64_t from, to; /* the deleted offsets; `to` is excluded; both 0: none are known */
};

struct fr_follower {
    enum fr_follower_state state;
    struct fr_consumer *consumer; /* NULL: the next step opens the topic */
    struct freshet_replica *replica;
    struct fr_consume_options topic; /* with texts of its own */
    uint32_t *partitions;
    bool patient;         /* as in struct fr_follower_options */
    bool named;           /* the model was given at the open */
    char *snapshots;      /* the snapshot or the folder of them; NULL: none */
    char not_loaded[512]; /* why the last attempt to load a snapshot failed */
    /* when to search for a newer snapshot while nothing else continues the epoch */
    uint64_t search_ns;
    struct fr_consumed message;
    /* The message that was not taken for lack of memory and is fed again; NULL: none. */
    const struct fr_consumed *starved;
    struct fr_follower_place *places; /* [fr_consumer_count] by the consumer's index */
    /* The next offset to read of each partition, by its number; -1: unknown. */
    int64_t expects[FR_CONSUME_PARTITIONS_MAX];
    /* the source of `expects`, such as "the snapshot of .."; "": reading */
    char begins_after[96];
    struct fr_deleted deleted; /* valid until an epoch is applied or a snapshot is loaded */
    /* The number of partitions that records or a snapshot carry; 0: neither has shown the model. */
    uint32_t np;
    uint32_t refusals; /* refused records in a row */
    int32_t lacking;   /* in LACKS_BEGINNING: the partition that lacks piece 0 of an epoch from 1 */
    uint64_t newest_timeline;
    struct in_flight epochs[FR_FOLLOW_IN_FLIGHT_MAX];
    struct freshet_event event; /* its problem is borrowed by the caller */
};

uint64_t fr_follower_rank_of(uint64_t timeline, uint64_t epoch);
/* After the topic was opened, notes whether the records that were to be read next are still
 * there. */
void fr_follower_note_deleted(struct fr_follower *follower);
/* Returns whether everything that was there at the open was read, and a partition lacked the
 * records with which a replica begins; err then names the partition. */
bool fr_follower_lacks_beginning(const struct fr_follower *follower, struct fr_err *err);

/* Returns the state that follows; FR_FOLLOWER_NO_STATE: a follower in this state refuses the
 * event. */
enum fr_follower_state fr_follower_next_state(enum fr_follower_state from, enum fr_follower_event event);
/* The only function that changes `state`. An event that the state refuses ends the program. */
void fr_follower_change_state(struct fr_follower *follower, enum fr_follower_event event);
/* Return the names as in the lists above. */
const char *fr_follower_state_name(enum fr_follower_state state);
const char *fr_follower_event_name(enum fr_follower_event event);

#endif
