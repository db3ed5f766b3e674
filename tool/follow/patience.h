/* What brokers say in passing (a partition without a leader, a topic that is just being made known)
 * is no answer: the tool's commands ask again for a while. Private to tool. Thread: one. */
#ifndef FR_TOOL_PATIENCE_H
#define FR_TOOL_PATIENCE_H

#include "follow/follower.h"

enum { FR_TOOL_STEP_MS = 100 };

/* Zeroed before the first call, except for `endless`. */
struct fr_tool_patience {
    bool endless;      /* once the topic was found, it is waited for without a limit of time */
    bool found;        /* the topic: that it is not there is no wrong name any more */
    uint64_t since_ns; /* nothing has come since; 0: something has */
    unsigned long long logged_ns;
};

/* Whether to ask again after a pause, which it makes: brokers did not answer, or not usefully, and
 * the time is not over. The reason is logged. */
bool fr_tool_passes(struct fr_tool_patience *patience, const char *command, enum fr_status status,
                    const struct fr_err *err);
/* One step of a follower that opens its topic itself (`later`). FR_AGAIN: nothing came yet, or the
 * topic is opened once more; FR_E_UNAVAILABLE: the time is over. The end of the topic is no
 * reason to wait. */
enum fr_status fr_tool_follow_step(struct fr_follower *follower, struct fr_tool_patience *patience, const char *command,
                                   struct fr_followed *out, struct fr_err *err) FR_MUST_CHECK;

#endif
