/* Temporary errors of brokers (a partition without a leader, a topic that is just being created)
 * are not final: the tool's commands retry for a while. Private to tool. Thread: one. */
#ifndef FR_TOOL_PATIENCE_H
#define FR_TOOL_PATIENCE_H

#include "follow/follower.h"

enum { FR_TOOL_STEP_MS = 100 };

/* Zero the struct before the first call, except the first two fields. */
struct fr_tool_patience {
    bool endless; /* outages are waited out without a time limit */
    /* How long to wait for brokers and a topic that have not been found yet. 0: as for those that
     * were found, 30 s for an outage and 2 s for a topic that does not exist. */
    int64_t absent_ms;
    bool found;        /* the topic has been open */
    uint64_t since_ns; /* the time since which nothing has come; 0: something has come */
    unsigned long long logged_ns;
};

/* Takes one step of a follower. FR_AGAIN: nothing has come yet, or the topic will be opened again;
 * this call has paused, and logged the reason of an outage. FR_E_UNAVAILABLE or FR_E_NOT_FOUND: the
 * time is over. The end of the topic is not a reason to wait. */
enum fr_status fr_tool_follow_step(struct fr_follower *follower, struct fr_tool_patience *patience, const char *command,
                                   struct fr_followed *out, struct fr_err *err) FR_MUST_CHECK;

#endif
