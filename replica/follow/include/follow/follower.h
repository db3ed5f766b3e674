/* A replica fed from a delta topic. libfreshet_follow and the commands of the tool share it.
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
    FR_FOLLOW_REFUSALS_MAX = 100, /* this many in a row: not a delta topic, or another model's */
};

/* The effect of one record. */
struct fr_followed {
    int32_t partition;
    int64_t offset;
    bool applied; /* an epoch became served; the fields up to `auc` describe that epoch */
    uint64_t epoch, changed, dropped, bytes;
    const char *auc; /* "auc.click=0.7412 ..", valid until the next call */
    bool refused;
    const char *problem; /* why the record was refused; valid until the next call */
    bool starved;        /* memory was refused: the same record comes again, so wait a little */
    /* a snapshot was loaded, and reading begins again where the topic continues it */
    bool reloaded;
};

struct fr_follower;

struct fr_follower_options {
    struct fr_consume_options topic; /* ahead_max, begin and self are set by the follower */
    const char *model;               /* NULL: the model of the first record */
    /* the snapshot, or the folder of snapshots, to begin with; NULL: none */
    const char *snapshots;
    uint64_t memory_max; /* bytes of the replica; 0: whatever the system gives */
    /* true: a gap, a rewind or refused memory is waited out, and the replica serves what it has
     * until it can continue. false: each of them is an error. */
    bool patient;
};

/* Loads the newest snapshot and checks the properties; the first step opens the topic. Texts are
 * borrowed during the call only. Partition 0 is added to the partitions asked for. Partitions
 * beyond the number that the topic's records carry (`np`) are ignored, because they were added
 * to the topic later. Errors: FR_E_INVALID. */
enum fr_status fr_follower_open(const struct fr_follower_options *options, struct fr_follower **out,
                                struct fr_err *err) FR_MUST_CHECK;
void fr_follower_close(struct fr_follower *follower);
/* Opens the topic if it is not open, and returns FR_AGAIN; otherwise feeds one record, or returns
 * FR_AGAIN when none came within wait_ms. FR_E_UNAVAILABLE or FR_E_NOT_FOUND while opening: the
 * brokers or the topic are not there yet. Any other status means that the replica cannot continue:
 * err contains the reason and the remedy. The replica still serves what it has. */
enum fr_status fr_follower_step(struct fr_follower *follower, int wait_ms, struct fr_followed *out,
                                struct fr_err *err) FR_MUST_CHECK;
/* Requests that the next step opens the topic again. The replica drops the records that it has
 * already. */
void fr_follower_reopen(struct fr_follower *follower);
/* Returns whether brokers are away, or nothing on the topic continues what is served; err contains
 * the reason. */
bool fr_follower_waits(const struct fr_follower *follower, struct fr_err *err);
/* Returns whether the topic, read to its end, lacks the records with which a replica begins, or
 * those that follow the served epoch, and no snapshot closes the gap; err contains the reason.
 * (Without `patient`, a missing beginning ends the step in FR_E_LOST.) */
bool fr_follower_lacks(const struct fr_follower *follower, struct fr_err *err);
/* Returns whether records that follow the served epoch were deleted, so that later epochs may be
 * missing; err names them. No other call shows this. */
bool fr_follower_deleted(const struct fr_follower *follower, struct fr_err *err);
/* Reports that the follower reached the end of the topic without serving an epoch, and what to
 * check. */
enum fr_status fr_follower_unserved(const struct fr_follower *follower, struct fr_err *err);
/* Returns whether everything that was on the topic at the open, or at the last refresh, was
 * read. */
bool fr_follower_ended(const struct fr_follower *follower);
/* Asks brokers where the topic ends now. FR_AGAIN: the topic is not open, and the step that opens
 * it asks. FR_E_UNAVAILABLE: brokers did not answer within wait_ms. */
enum fr_status fr_follower_refresh(struct fr_follower *follower, int wait_ms, struct fr_err *err) FR_MUST_CHECK;
/* Returns whether the follower has ended (fr_follower_ended), and the newest epoch that is complete
 * on the topic is served and can be scored. */
bool fr_follower_caught_up(const struct fr_follower *follower);
/* Counts the records on the topic that are not read yet. UINT64_MAX: unknown, because the topic is
 * not open. */
uint64_t fr_follower_lag(const struct fr_follower *follower);
struct freshet_replica *fr_follower_replica(struct fr_follower *follower);

#endif
