/* The replica with which a command scores: from the present content of a topic, a dump or a
 * snapshot. Private to tool. */
#ifndef FR_TOOL_SERVED_H
#define FR_TOOL_SERVED_H

#include "follow/follower.h"
#include "tool.h"

struct fr_tool_served {
    struct freshet_replica *replica;
    struct fr_follower *follower; /* owns the replica; NULL: the replica is from a dump */
};

/* Follows the topic to its present end. Refused records are reported on stderr in the name of
 * `command`. */
enum fr_status fr_tool_served_topic(const struct fr_consume_options *topic, const char *command,
                                    struct fr_tool_served *out, struct fr_err *err) FR_MUST_CHECK;
/* cfg: the model as a model record contains it. */
enum fr_status fr_tool_served_dump(const char *dump, const struct fr_buffer *cfg, struct fr_tool_served *out,
                                   struct fr_err *err) FR_MUST_CHECK;
/* `directory` is a snapshot, or a folder of snapshots whose file CURRENT names one. */
enum fr_status fr_tool_served_snapshot(const char *directory, struct fr_tool_served *out,
                                       struct fr_err *err) FR_MUST_CHECK;
void fr_tool_served_close(struct fr_tool_served *served);
/* FR_E_NOT_FOUND: the model or a parameter is missing. */
enum fr_status fr_tool_served_scorable(const struct fr_tool_served *served, struct fr_err *err) FR_MUST_CHECK;

#endif
