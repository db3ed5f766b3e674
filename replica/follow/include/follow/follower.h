/* A replica fed from a delta topic: what libfreshet_follow and the tool's commands share.
 *
 * Thread: one. */
#ifndef FR_FOLLOW_FOLLOWER_H
#define FR_FOLLOW_FOLLOWER_H

#include <freshet/replica.h>

#include "base/buffer.h"
#include "follow/consume.h"

enum {
    FR_FOLLOW_AHEAD_MAX = 8,
    FR_FOLLOW_PROPERTIES_MAX = 64,
    FR_FOLLOW_REFUSALS_MAX = 100, /* records in a row: no topic of deltas, or another's */
};

/* What one record brought. */
struct fr_followed {
    int32_t partition;
    int64_t offset;
    bool applied; /* an epoch became served; the fields below are its own */
    uint64_t epoch, changed, dropped, bytes;
    const char *auc; /* "auc.click=0.7412 ..", until the next call */
    bool refused;
    const char *problem; /* of a refused record, until the next call */
    bool starved;        /* memory was refused: the record comes again, so wait a little */
    bool reloaded;       /* a snapshot was loaded, and reading begins again where it leads on */
};

struct fr_follower;

struct fr_follower_options {
    struct fr_consume_options topic; /* ahead_max, begin and self are the follower's */
    const char *model;               /* NULL: that of the first record */
    const char *snapshots;           /* a snapshot or a folder of them, to begin with; NULL: none */
    uint64_t memory_max;             /* of the replica; 0: what the system gives */
    /* A gap, a rewind or refused memory is waited out: the replica serves what it has until
     * something leads on. Else it is an error. */
    bool patient;
    /* The topic is opened by the first step, which says when it cannot be; its properties are
     * looked at now. */
    bool later;
};

/* Partition 0 is added to those asked for. Partitions beyond the number that the topic's records
 * have (`np`) are left alone: somebody added them to the topic. FR_E_UNAVAILABLE,
 * FR_E_NOT_FOUND: broker or topic not there yet. */
enum fr_status fr_follower_open(const struct fr_follower_options *options, struct fr_follower **out,
                                struct fr_err *err) FR_MUST_CHECK;
void fr_follower_close(struct fr_follower *follower);
/* Feeds one record, or returns FR_AGAIN when none came within wait_ms. Else the replica cannot go
 * on: err says why and what to do. It still serves what it has. */
enum fr_status fr_follower_step(struct fr_follower *follower, int wait_ms, struct fr_followed *out,
                                struct fr_err *err) FR_MUST_CHECK;
/* The topic is opened again by the next step: the replica passes over what it has. */
void fr_follower_reopen(struct fr_follower *follower);
/* Brokers are away, or what the topic has leads nowhere: err says so. */
bool fr_follower_waits(const struct fr_follower *follower, struct fr_err *err);
/* The topic, read to its end, lacks what a replica begins with, or what follows the one that is
 * served, and no snapshot leads on: err says so. (Where the beginning is missing the step ends in
 * FR_E_LOST, without `patient`.) */
bool fr_follower_lacks(const struct fr_follower *follower, struct fr_err *err);
/* Records that follow what is served were deleted: later epochs may be missing. Err says which;
 * nothing else shows it. */
bool fr_follower_deleted(const struct fr_follower *follower, struct fr_err *err);
/* Says that no epoch was served though the follower came to its end, and what to look at. */
enum fr_status fr_follower_unserved(const struct fr_follower *follower, struct fr_err *err);
/* Everything that was on the topic at open, or at the last refresh, was read. */
bool fr_follower_ended(const struct fr_follower *follower);
/* Asks where the topic ends now. FR_AGAIN: it is not open, and the step that opens it asks;
 * FR_E_UNAVAILABLE: brokers did not answer within wait_ms. */
enum fr_status fr_follower_refresh(struct fr_follower *follower, int wait_ms, struct fr_err *err) FR_MUST_CHECK;
/* The follower has ended, and the newest epoch that is complete there is served and scores. */
bool fr_follower_caught_up(const struct fr_follower *follower);
/* Counts the records that are on the topic and not read; UINT64_MAX: not known, the topic is not
 * open. */
uint64_t fr_follower_lag(const struct fr_follower *follower);
struct freshet_replica *fr_follower_replica(struct fr_follower *follower);

#endif
