/* The struct of a follower, shared by follower.c, which feeds the replica, and standing.c, which
 * determines how far it is and what it lacks. Thread: one. */
#ifndef FR_FOLLOW_FOLLOWER_INTERNAL_H
#define FR_FOLLOW_FOLLOWER_INTERNAL_H

#include "follow/follower.h"

enum { FR_FOLLOW_IN_FLIGHT_MAX = 2 * FR_FOLLOW_AHEAD_MAX + 8, FR_FOLLOW_TASK_NAME_MAX = 64 };

/* An epoch that is not complete yet: how many records came, and what the commits contain. */
struct in_flight {
    uint64_t timeline, epoch; /* 0: the entry is free */
    uint64_t changed, dropped, bytes;
    struct fr_buffer auc;
};

/* A partition in the present reading: the highest rank (timeline and epoch, fr_follower_rank_of) of
 * any record, and of a commit. */
struct fr_follower_place {
    uint64_t read, committed;
};

/* Records that were to be read next and have been deleted from the topic. */
struct fr_deleted {
    bool found;
    int32_t partition;
    int64_t from, to; /* the deleted offsets; `to` is excluded */
};

struct fr_follower {
    struct fr_consumer *consumer; /* NULL: the topic is to be opened again */
    struct freshet_replica *replica;
    struct fr_consume_options topic;
    bool keeps_texts; /* the texts in `topic` belong to the follower; otherwise to the caller */
    uint32_t *partitions;
    bool patient;
    char *snapshots;      /* the snapshot or the folder of them; NULL: none */
    char not_loaded[512]; /* why the last attempt to load a snapshot failed */
    /* when to search for a newer snapshot while nothing else continues the epoch */
    uint64_t look_ns;
    /* The topic's model is known: it was given at the open, or by a snapshot that names the
     * topic. */
    bool named;
    bool unproven; /* a snapshot waits for a record that shows the model */
    bool hinted;   /* the topic is read from where it continues the newest snapshot */
    bool reread;   /* the topic was read from its first records for a gap that is still there */
    bool again;    /* the message was not taken for lack of memory and is fed again */
    struct fr_consumed message;
    struct fr_follower_place *places; /* [fr_consumer_count] by the consumer's index */
    /* The next offset to read of each partition, by its number; -1: unknown. */
    int64_t expects[FR_CONSUME_PARTITIONS_MAX];
    /* the source of `expects`, such as "the snapshot of .."; "": reading */
    char begins_after[96];
    struct fr_deleted deleted; /* valid until an epoch is applied or a snapshot is loaded */
    uint32_t np;               /* the records' number of partitions; 0: unknown */
    uint32_t refusals;         /* refused records in a row */
    /* Records of the newest timeline that come after what is served were passed over, because a
     * partition lacks piece 0 of an epoch from 1. */
    bool lacks_beginning;
    int32_t lacking; /* the partition that lacks it */
    uint64_t newest_timeline;
    struct in_flight epochs[FR_FOLLOW_IN_FLIGHT_MAX];
    struct freshet_event event; /* its problem is borrowed by the caller */
    char topic_name[250];
};

uint64_t fr_follower_rank_of(uint64_t timeline, uint64_t epoch);
/* After the topic was opened, notes whether the records that were to be read next are still
 * there. */
void fr_follower_note_deleted(struct fr_follower *follower);
/* Returns whether everything that was there at the open was read, and some partition lacked the
 * records with which a replica begins. */
bool fr_follower_is_headless(const struct fr_follower *follower);
enum fr_status fr_follower_say_headless(const struct fr_follower *follower, struct fr_err *err);

#endif
