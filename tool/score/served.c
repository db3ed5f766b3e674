/* See served.h. Thread: one. */
#include "score/served.h"

#include <inttypes.h>
#include <stdio.h>

#include "follow/patience.h"

/* Reads the topic to its present end. */
static enum fr_status read_topic(struct fr_follower *follower, const char *command, struct fr_err *err)
{
    struct freshet_replica_info info;
    struct fr_tool_patience patience = {0};
    while (!fr_follower_ended(follower)) {
        struct fr_followed followed = {0};
        enum fr_status status = fr_tool_follow_step(follower, &patience, command, &followed, err);
        if (followed.refused)
            fprintf(stderr, "freshet %s: refused partition=%" PRId32 " offset=%" PRId64 ": %s\n", command,
                    followed.partition, followed.offset, followed.problem);
        if (status != FR_OK && status != FR_AGAIN)
            return status;
    }
    freshet_replica_get_info(fr_follower_replica(follower), &info);
    return info.epoch > 0 ? FR_OK : fr_follower_unserved(follower, err);
}

enum fr_status fr_tool_served_topic(const struct fr_consume_options *topic, const char *command,
                                    struct fr_tool_served *out, struct fr_err *err)
{
    enum fr_status status = fr_follower_open(&(struct fr_follower_options){.topic = *topic}, &out->follower, err);
    if (status == FR_OK)
        status = read_topic(out->follower, command, err);
    if (status == FR_OK)
        out->replica = fr_follower_replica(out->follower);
    return status;
}

static enum fr_status load_snapshot(const char *directory, struct fr_tool_served *out, struct fr_err *err)
{
    char problem[256] = "";
    if (freshet_replica_new(&(struct freshet_replica_options){0}, &out->replica) != FRESHET_OK)
        return fr_err_set(err, FR_E_NO_MEMORY, "the replica cannot be made");
    int status = freshet_replica_load(out->replica, directory, problem, sizeof(problem));
    return status == FRESHET_OK ? FR_OK
                                : fr_err_set(err, (enum fr_status)status, "snapshot %s: %s", directory, problem);
}

bool fr_tool_source_given(const struct fr_tool_source *source)
{
    bool topic = source->topic.brokers && source->topic.topic, files = source->dump || source->snapshot;
    return topic ? !files
                 : files && !source->topic.brokers && !source->topic.topic && !(source->dump && source->snapshot);
}

enum fr_status fr_tool_served_open(const struct fr_tool_source *source, const char *command, struct fr_tool_served *out,
                                   struct fr_err *err)
{
    struct freshet_replica_info info;
    enum fr_status status = source->dump       ? fr_tool_served_dump(source, out, err)
                            : source->snapshot ? load_snapshot(source->snapshot, out, err)
                                               : fr_tool_served_topic(&source->topic, command, out, err);
    if (status != FR_OK)
        return status;
    freshet_replica_get_info(out->replica, &info);
    if (info.scorable)
        return FR_OK;
    return fr_err_set(err, FR_E_NOT_FOUND,
                      "the replica cannot score at epoch %" PRIu64 ": the model or a dense parameter is missing",
                      info.epoch);
}

void fr_tool_served_close(struct fr_tool_served *served)
{
    if (served->follower)
        fr_follower_close(served->follower);
    else
        freshet_replica_free(served->replica);
}
