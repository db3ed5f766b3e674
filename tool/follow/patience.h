/* Temporary errors of brokers (a partition without a leader, a topic that is just being created)
 * are not final: the tool's commands retry for a while. Private to tool. Thread: one. */
#ifndef FR_TOOL_PATIENCE_H
#define FR_TOOL_PATIENCE_H

#include "follow/follower.h"

enum { FR_TOOL_STEP_MS = 100 };

/* Zero the struct before the first call, except `endless`. */
struct fr_tool_patience {
    bool endless; /* true: once the topic was found, wait for it without a time limit */
    /* the topic was found, so a later "no such topic" is not a misspelled name */
    bool found;
    uint64_t since_ns; /* the time since which nothing has come; 0: something has come */
    unsigned long long logged_ns;
};

/* Returns whether to retry, after a pause that this call makes: brokers gave no answer or no usable
 * one, and the time is not over. The reason is logged. */
bool fr_tool_passes(struct fr_tool_patience *patience, const char *command, enum fr_status status,
                    const struct fr_err *err);
/* Takes one step of a follower that opens its topic itself (`later`). FR_AGAIN: nothing has come
 * yet, or the topic will be opened again. FR_E_UNAVAILABLE: the time is over. The end of the topic
 * is not a reason to wait. */
enum fr_status fr_tool_follow_step(struct fr_follower *follower, struct fr_tool_patience *patience, const char *command,
                                   struct fr_followed *out, struct fr_err *err) FR_MUST_CHECK;

#endif
