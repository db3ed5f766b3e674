/* The replica with which a command scores: from the present content of a topic, a dump or a
 * snapshot. Private to tool. */
#ifndef FR_TOOL_SERVED_H
#define FR_TOOL_SERVED_H

#include <stdio.h>

#include "follow/follower.h"
#include "tool.h"

struct fr_tool_served {
    struct freshet_replica *replica;
    struct fr_follower *follower; /* owns the replica; NULL: the replica is from a dump */
};

/* Where the replica comes from. Exactly one of topic, dump and snapshot is given. */
struct fr_tool_source {
    struct fr_consume_options topic; /* with brokers and a topic: what the topic holds now */
    const char *dump;                /* a public dump, of the model `cfg` */
    const char *snapshot;            /* a snapshot, or a folder whose file CURRENT names one */
    struct fr_buffer cfg;            /* the model as a model record contains it */
};
#define FR_TOOL_SOURCE_OPTIONS(source, texts)                                                                          \
    FR_TOOL_TOPIC_OPTIONS((source).topic, texts, false), {.name = "--dump", .value = &(source).dump},                  \
    {                                                                                                                  \
        .name = "--snapshot", .value = &(source).snapshot                                                              \
    }

/* Returns whether exactly one source is given. */
bool fr_tool_source_given(const struct fr_tool_source *source);
/* Makes the replica and checks that it can score. Records that it refuses are reported on stderr in
 * the name of `command`. Errors: FR_E_NOT_FOUND (also: the model or a parameter is missing),
 * FR_E_INVALID (with the line of a dump), FR_E_CORRUPT (a dump does not match its hash),
 * FR_E_MISMATCH, and those of a follower. Close `out` in any case. */
enum fr_status fr_tool_served_open(const struct fr_tool_source *source, const char *command, struct fr_tool_served *out,
                                   struct fr_err *err) FR_MUST_CHECK;
/* Makes the replica of a topic, without that check. */
enum fr_status fr_tool_served_topic(const struct fr_consume_options *topic, const char *command,
                                    struct fr_tool_served *out, struct fr_err *err) FR_MUST_CHECK;
/* Makes the replica of a dump, without that check. */
enum fr_status fr_tool_served_dump(const struct fr_tool_source *source, struct fr_tool_served *out,
                                   struct fr_err *err) FR_MUST_CHECK;
void fr_tool_served_close(struct fr_tool_served *served);

/* Scores a file of samples: one JSON line of task -> probability per sample. The file has a sample
 * or an array of samples per line, plain, gzip or zstd; empty lines are skipped. Errors:
 * FR_E_NOT_FOUND (the file), FR_E_INVALID (with the line), FR_E_IO. */
enum fr_status fr_tool_score_file(struct freshet_replica *replica, const char *path, FILE *out,
                                  struct fr_err *err) FR_MUST_CHECK;

#endif
