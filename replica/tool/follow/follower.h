/* A replica fed from a delta topic: what follow, verify and score share. Private to replica/tool.
 *
 * Thread: one. */
#ifndef FR_TOOL_FOLLOWER_H
#define FR_TOOL_FOLLOWER_H

#include <freshet/replica.h>

#include "base/buffer.h"
#include "follow/consume.h"
#include "tool.h"

enum {
    FR_FOLLOW_AHEAD_MAX = 8,
    FR_FOLLOW_PROPERTIES_MAX = 64,
    FR_FOLLOW_REFUSALS_MAX = 100, /* records in a row: no topic of deltas, or another's */
};

/* What one record brought. */
struct fr_tool_followed {
    int32_t partition;
    int64_t offset;
    bool applied; /* an epoch became served; the fields below are its own */
    uint64_t epoch, changed, dropped, bytes;
    const char *auc; /* "auc.click=0.7412 ..", until the next call */
    bool refused;
    const char *problem; /* of a refused record, until the next call */
};

struct fr_tool_follower;

/* Partition 0 is added to those asked for. What the topic has beyond the partitions that its
 * records tell of (`np`) is left alone: somebody added them to the topic. FR_E_UNAVAILABLE:
 * broker or topic not there yet. */
enum fr_status fr_tool_follower_open(const struct fr_tool_consume_options *options, struct fr_tool_follower **out,
                                     struct fr_err *err) FR_MUST_CHECK;
void fr_tool_follower_close(struct fr_tool_follower *follower);
/* Feeds one record, or returns FR_AGAIN when none came within wait_ms. Else the replica cannot go
 * on: err says why and what to do. It still serves what it has. */
enum fr_status fr_tool_follower_step(struct fr_tool_follower *follower, int wait_ms, struct fr_tool_followed *out,
                                     struct fr_err *err) FR_MUST_CHECK;
/* Says that no epoch was served though the follower came to its end, and what to look at. */
enum fr_status fr_tool_follower_unserved(const struct fr_tool_follower *follower, struct fr_err *err);
/* Everything that was on the topic at open was read. */
bool fr_tool_follower_ended(const struct fr_tool_follower *follower);
struct freshet_replica *fr_tool_follower_replica(struct fr_tool_follower *follower);

#endif
