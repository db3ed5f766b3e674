/* What a follower is: shared by follower.c, which feeds the replica, and standing.c, which says
 * where it stands. Thread: one. */
#ifndef FR_FOLLOW_FOLLOWER_INTERNAL_H
#define FR_FOLLOW_FOLLOWER_INTERNAL_H

#include "follow/follower.h"

enum { FR_FOLLOW_IN_FLIGHT_MAX = 2 * FR_FOLLOW_AHEAD_MAX + 8, FR_FOLLOW_TASK_NAME_MAX = 64 };

/* Of an epoch that is not complete yet: how much came, and what the commits say. */
struct in_flight {
    uint64_t timeline, epoch; /* 0: free */
    uint64_t changed, dropped, bytes;
    struct fr_buffer auc;
};

/* Of a partition as it is read now: the highest timeline and epoch (fr_follower_rank_of) of a
 * record, and of a commit. */
struct fr_follower_place {
    uint64_t read, committed;
};

/* Records that were to be read next and are not on the topic any more. */
struct fr_deleted {
    bool found;
    int32_t partition;
    int64_t from, to; /* these offsets, `to` not included */
};

struct fr_follower {
    struct fr_consumer *consumer; /* NULL: to be opened again */
    struct freshet_replica *replica;
    struct fr_consume_options topic;
    bool keeps_texts; /* those of the topic are its own; else the caller's */
    uint32_t *partitions;
    bool patient;
    char *snapshots;      /* NULL: none */
    char not_loaded[512]; /* why the last try to load one failed */
    uint64_t look_ns;     /* when a newer one is looked for next, where nothing else leads on */
    /* Which model the topic is of was said at the open, or by a snapshot that names the topic. */
    bool named;
    bool unproven; /* a snapshot waits for a record that says so */
    bool hinted;   /* the topic is read from where the newest snapshot leads on */
    bool reread;   /* it was read from its first records on for a gap that is still there */
    bool again;    /* the message was not taken for want of memory: it comes once more */
    struct fr_consumed message;
    struct fr_follower_place *places; /* by the consumer's index */
    /* The next offset to read of each partition, by its number; -1: nobody said one. */
    int64_t expects[FR_CONSUME_PARTITIONS_MAX];
    char begins_after[96];     /* who said these offsets, "the snapshot of .."; "": reading */
    struct fr_deleted deleted; /* until an epoch is applied, or a snapshot loaded */
    uint32_t np;               /* as the records say; 0: not known yet */
    uint32_t refusals;         /* in a row */
    /* Of the newest timeline something was passed over that comes after what is served: a partition
     * lacks piece 0 of an epoch from 1. */
    bool lacks_beginning;
    int32_t lacking; /* that partition */
    uint64_t newest_timeline;
    struct in_flight epochs[FR_FOLLOW_IN_FLIGHT_MAX];
    struct freshet_event event; /* its problem is lent to the caller */
    char topic_name[250];
};

uint64_t fr_follower_rank_of(uint64_t timeline, uint64_t epoch);
/* After the topic was opened: whether what was to be read next is still there. */
void fr_follower_note_deleted(struct fr_follower *follower);
/* What was there at open was read, and some partition did not have what a replica begins with. */
bool fr_follower_is_headless(const struct fr_follower *follower);
enum fr_status fr_follower_say_headless(const struct fr_follower *follower, struct fr_err *err);

#endif
