/* `freshet follow`: a replica on the command line. Prints one logfmt line per epoch, refused
 * records with their reason, and scores and dump at the end. SIGTERM and SIGINT end the command in
 * order. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "follow/acknowledger.h"
#include "follow/patience.h"
#include "output.h"
#include "score/served.h"
#include "tool.h"

enum { PARTITIONS_TEXT_MAX = 4096 };

static const char usage[] =
    "freshet follow --brokers B --topic T [options]\n\n"
    "  --snapshot DIR      begin with this snapshot, or with the newest of this folder of snapshots, and load the\n"
    "                      next one after a gap or a rewind\n"
    "  --model NAME        end when the topic or the snapshot is another model's. Needed where the snapshot names\n"
    "                      another topic and T has no records\n"
    "  --partitions 0,3    rows of these delta partitions only (0 is always followed); default all\n"
    "  --until-idle 5s     end when the topic is read to its end and no record came for so long\n"
    "  --until-epoch N     end when epoch N is served\n"
    "  --score F.jsonl     at the end, score these samples: one line of task -> probability each\n"
    "  --dump FILE         at the end, write the replica as JSON Lines (as `freshet dump`)\n"
    "  --acknowledge NAME  write which epoch is served to the topic <model>.ack, under this name of the replica: the\n"
    "                      daemon's /status shows it (export.acknowledgements)\n"
    "  --acknowledgement-topic T  another topic for that\n"
    "  --kafka-file FILE   librdkafka properties, NAME=VALUE a line: the place of passwords\n"
    "  --kafka NAME=VALUE  a librdkafka property (many); every user of the host can see it\n\n"
    "Follows from the first epoch there is, one line per epoch. Ends with SIGTERM or SIGINT. Exit 1 when the replica cannot continue\n"
    "(a gap, another writer, 100 records refused in a row), no epoch was served, or records that follow the served one were\n"
    "deleted before they were read.\n";

struct follow {
    struct fr_follower_options from;
    struct fr_acknowledger_options acknowledger;
    const char *score, *dump;
    int64_t until_idle_ms; /* 0: no limit */
    uint64_t until_epoch;  /* 0: none */
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    FR_CHECK(sigaction(SIGTERM, &action, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0);
}

static uint64_t now_ns(void)
{
    return fr_mono_ns(fr_clock_system());
}

static bool idle(const struct follow *follow, uint64_t since_ns)
{
    return follow->until_idle_ms > 0 && now_ns() - since_ns >= (uint64_t)follow->until_idle_ms * 1000000u;
}

static void print_epoch(struct fr_follower *follower, const struct fr_followed *followed)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(fr_follower_replica(follower), &info);
    printf("epoch=%" PRIu64 " timeline=%" PRIu64 " rows=%" PRIu64 " changed=%" PRIu64 " dropped=%" PRIu64
           " dense=%" PRIu32 " samples=%" PRIu64 " wm=%" PRId64 "%s delay_ms=%" PRId64 " bytes=%" PRIu64 "\n",
           info.epoch, info.timeline, info.rows, followed->changed, followed->dropped, info.dense, info.samples,
           info.watermark_ms, followed->auc, fr_wall_ms(fr_clock_system()) - info.commit_wall_ms, followed->bytes);
}

static bool reached(const struct follow *follow, uint64_t epoch)
{
    return follow->until_epoch > 0 && epoch >= follow->until_epoch;
}

/* Prints what is served before the topic is read. */
static void print_begin(const struct freshet_replica_info *info)
{
    if (info->epoch > 0)
        printf("snapshot epoch=%" PRIu64 " timeline=%" PRIu64 " rows=%" PRIu64 " dense=%" PRIu32 " samples=%" PRIu64
               " wm=%" PRId64 "\n",
               info->epoch, info->timeline, info->rows, info->dense, info->samples, info->watermark_ms);
    (void)fflush(stdout);
}

/* Prints, when the topic has been opened, which records that follow the snapshot are missing. */
static void print_deleted(const struct fr_follower *follower)
{
    char quoted[1200];
    struct fr_err lost = {0};
    if (fr_follower_deleted(follower, &lost))
        printf("deleted reason=%s\n", fr_log_quote(quoted, sizeof(quoted), lost.text));
    (void)fflush(stdout);
}

static void print_refused(const struct fr_followed *followed)
{
    char quoted[600];
    printf("refused partition=%" PRId32 " offset=%" PRId64 " reason=%s\n", followed->partition, followed->offset,
           fr_log_quote(quoted, sizeof(quoted), followed->problem));
}

/* Acknowledges what is served and, after a step that brought nothing, why. */
static void acknowledge(struct fr_acknowledger *acknowledger, struct fr_follower *follower, enum fr_status status)
{
    struct fr_err waits = {0};
    bool waiting = acknowledger && status == FR_AGAIN && fr_follower_waits(follower, &waits);
    fr_acknowledger_step(acknowledger, fr_follower_replica(follower), waiting ? waits.text : NULL);
}

static enum fr_status follow_topic(const struct follow *follow, struct fr_follower *follower,
                                   struct fr_acknowledger *acknowledger, struct fr_err *err)
{
    uint64_t last_ns = now_ns();
    struct fr_tool_patience patience = {.endless = follow->until_idle_ms == 0, .absent_ms = follow->until_idle_ms};
    while (!stopped && !(idle(follow, last_ns) && fr_follower_ended(follower))) {
        struct fr_followed followed = {0};
        bool first = !patience.found;
        enum fr_status status = fr_tool_follow_step(follower, &patience, "follow", &followed, err);
        acknowledge(acknowledger, follower, status);
        if (first && patience.found) {
            print_deleted(follower);
            last_ns = now_ns();
        }
        if (status == FR_AGAIN)
            continue;
        last_ns = now_ns();
        if (followed.refused)
            print_refused(&followed);
        if (followed.applied)
            print_epoch(follower, &followed);
        if (followed.refused || followed.applied)
            /* lets readers of stdout see the line now; a failure stays set until the end */
            (void)fflush(stdout);
        if (status != FR_OK)
            return status;
        if (!followed.applied)
            continue;
        if (reached(follow, followed.epoch))
            break;
    }
    return FR_OK;
}

static enum fr_status write_dump(const struct follow *follow, const struct freshet_replica *replica, struct fr_err *err)
{
    struct fr_tool_replaced file;
    enum fr_status status = fr_tool_replaced_open(follow->dump, &file, err);
    if (status != FR_OK)
        return status;
    int dumped = freshet_replica_dump(replica, fr_tool_write_file, file.file, NULL);
    if (dumped != FRESHET_OK) {
        fr_tool_replaced_abandon(&file);
        return dumped == FRESHET_E_NOT_READY
                   ? fr_err_set(err, FR_E_NOT_FOUND, "no epoch was served: there is nothing to dump")
                   : fr_err_set(err, FR_E_IO, "writing %s: %s", follow->dump, strerror(errno));
    }
    return fr_tool_replaced_commit(&file, true, err);
}

/* The replica's dump is written even if the replica could not continue; the exit code reports
 * that. */
static int finish(const struct follow *follow, struct fr_follower *follower)
{
    struct fr_err err = {0};
    int result = FR_TOOL_OK;
    if (follow->score && fr_tool_score_file(fr_follower_replica(follower), follow->score, stdout, &err) != FR_OK) {
        fprintf(stderr, "freshet follow: --score: %s\n", err.text);
        result = FR_TOOL_FAILED;
    }
    if (follow->dump && write_dump(follow, fr_follower_replica(follower), &err) != FR_OK) {
        fprintf(stderr, "freshet follow: --dump: %s\n", err.text);
        result = FR_TOOL_FAILED;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("freshet follow: writing to stdout failed\n", stderr);
        result = FR_TOOL_FAILED;
    }
    return result;
}

static int run(const struct follow *follow)
{
    struct fr_err err = {0};
    struct fr_follower *follower = NULL;
    struct fr_acknowledger *acknowledger = NULL;
    catch_signals();
    struct freshet_replica_info info = {0};
    enum fr_status status = fr_acknowledger_open(&follow->acknowledger, &acknowledger, &err);
    if (status == FR_OK)
        status = fr_follower_open(&follow->from, &follower, &err);
    if (status == FR_OK) {
        freshet_replica_get_info(fr_follower_replica(follower), &info);
        print_begin(&info);
        if (!reached(follow, info.epoch))
            status = follow_topic(follow, follower, acknowledger, &err);
        freshet_replica_get_info(fr_follower_replica(follower), &info);
    }
    if (status == FR_OK && info.epoch == 0)
        status = fr_follower_unserved(follower, &err);
    else if (status == FR_OK && !reached(follow, info.epoch) && fr_follower_deleted(follower, &err))
        status = FR_E_LOST;
    fr_acknowledger_close(acknowledger);
    int result = follower ? finish(follow, follower) : FR_TOOL_FAILED;
    if (status != FR_OK)
        result = fr_tool_fail("follow", &err);
    fr_follower_close(follower);
    return result;
}

/* Parses a list such as "0,3". */
static bool parse_partitions(const char *text, uint32_t *out, size_t *n)
{
    char copy[PARTITIONS_TEXT_MAX];
    if (strlen(text) >= sizeof(copy)) {
        fputs("freshet follow: --partitions is too long\n", stderr);
        return false;
    }
    memcpy(copy, text, strlen(text) + 1);
    char *rest = copy;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        uint64_t number;
        if (*n == FR_CONSUME_PARTITIONS_MAX ||
            !fr_tool_option_u64("freshet follow: --partitions", item, 0, FR_CONSUME_PARTITIONS_MAX - 1, &number))
            return false;
        for (size_t i = 0; i < *n; i++)
            if (out[i] == number) {
                fprintf(stderr, "freshet follow: --partitions names %s twice\n", item);
                return false;
            }
        out[(*n)++] = (uint32_t)number;
    }
    return true;
}

int fr_tool_follow(int argc, char **argv)
{
    const char *partitions = NULL;
    const char *properties[FR_FOLLOW_PROPERTIES_MAX];
    uint32_t numbers[FR_CONSUME_PARTITIONS_MAX] = {0};
    struct follow follow = {.from.topic.properties = properties};
    const struct fr_tool_option options[] = {
        FR_TOOL_TOPIC_OPTIONS(follow.from.topic, properties, true),
        {.name = "--snapshot", .value = &follow.from.snapshots},
        {.name = "--model", .value = &follow.from.model},
        {.name = "--partitions", .value = &partitions},
        {.name = "--until-idle", .duration_ms = &follow.until_idle_ms},
        {.name = "--until-epoch", .number = &follow.until_epoch, .min = 1},
        {.name = "--score", .value = &follow.score},
        {.name = "--dump", .value = &follow.dump},
        {.name = "--acknowledge", .value = &follow.acknowledger.name},
        {.name = "--acknowledgement-topic", .value = &follow.acknowledger.topic},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    if (partitions && !parse_partitions(partitions, numbers, &follow.from.topic.n_partitions))
        return FR_TOOL_USAGE;
    if (partitions)
        follow.from.topic.partitions = numbers;
    follow.acknowledger.from = &follow.from.topic;
    return run(&follow);
}
