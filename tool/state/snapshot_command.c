/* `freshet snapshot`: takes a snapshot of what is served, lists snapshots or checks them. If a
 * daemon runs on the state, the daemon is asked for it; otherwise this command writes it, after a
 * fold. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "durable/savepoint.h"
#include "exporter/snapshot.h"
#include "output.h"
#include "tool.h"

enum { QUOTED_MAX = 2200, LOOK_MS = 20 };

static const char usage[] =
    "freshet snapshot --state-dir DIR [--dir DIR] [--topic TOPIC] [--quantize f32|f16|bf16|i8] [--wait 10m]\n"
    "freshet snapshot (--state-dir DIR | --dir DIR) --list\n"
    "freshet snapshot --check DIR\n\n"
    "All that is served of a state as of its newest epoch, as files that replicas begin with. A running daemon writes\n"
    "it beside training, where and how its configuration says; of a stopped state it is written here.\n"
    "  --dir DIR         the folder of the snapshots (default: STATE_DIR/snapshots)\n"
    "  --topic TOPIC     of a stopped state: the delta topic with which replicas continue (default: MODEL.delta)\n"
    "  --quantize FORM   of a stopped state: form of the values (default: that of its deltas)\n"
    "  --wait TIME       how long to wait for the daemon\n"
    "  --list            a line for each snapshot, the oldest first; current=true: replicas begin with it\n"
    "  --check DIR       reads all of one snapshot: sums, records, row counts\n"
    "Exit 1 when there is none in the end, or it is damaged; what was asked of a daemon may still come.\n";

struct arguments {
    const char *state, *dir, *topic, *quantize, *check;
    int64_t wait_ms;
    bool lists;
};

static void print_one(const char *path, const struct fr_snapshot *snapshot, const char *more)
{
    char quoted[QUOTED_MAX];
    printf("snapshot dir=%s timeline=%" PRIu64 " epoch=%" PRIu64 " digest=0x%016" PRIx64 " rows=%" PRIu64
           " files=%" PRIu64 " bytes=%" PRIu64 "%s\n",
           fr_log_quote(quoted, sizeof(quoted), path), snapshot->timeline, snapshot->epoch, snapshot->digest,
           snapshot->rows, snapshot->files, snapshot->bytes, more);
}

static void print_unread(const char *path, const struct fr_snapshot *snapshot)
{
    char dir[QUOTED_MAX], problem[QUOTED_MAX];
    printf("snapshot dir=%s timeline=%" PRIu64 " epoch=%" PRIu64 " problem=%s\n", fr_log_quote(dir, sizeof(dir), path),
           snapshot->timeline, snapshot->epoch, fr_log_quote(problem, sizeof(problem), snapshot->problem));
}

static enum fr_status join(char out[PATH_MAX], const char *dir, const char *name, struct fr_err *err)
{
    int size = snprintf(out, PATH_MAX, "%s/%s", dir, name);
    return size > 0 && size < PATH_MAX ? FR_OK : fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", dir);
}

static enum fr_status folder_of(const struct arguments *arguments, char out[PATH_MAX], struct fr_err *err)
{
    if (arguments->dir)
        return join(out, arguments->dir, "", err);
    return join(out, arguments->state, "snapshots", err);
}

static enum fr_status list(const struct arguments *arguments, struct fr_err *err)
{
    char dir[PATH_MAX], path[PATH_MAX], current[FR_MANIFEST_NAME_MAX];
    struct fr_snapshot *all = NULL;
    size_t n = 0;
    enum fr_status status = folder_of(arguments, dir, err);
    if (status == FR_OK && access(dir, F_OK) != 0 && arguments->dir)
        return fr_err_set(err, FR_E_NOT_FOUND, "there is no directory %s", dir);
    if (status == FR_OK)
        status = fr_snapshot_list(dir, &all, &n, err);
    bool points = status == FR_OK && fr_snapshot_current(dir, current);
    for (size_t i = 0; i < n && status == FR_OK; i++) {
        bool is_current = points && strcmp(current, all[i].name) == 0;
        status = join(path, dir, all[i].name, err);
        if (status == FR_OK && all[i].unread != FR_OK)
            print_unread(path, &all[i]);
        else if (status == FR_OK)
            print_one(path, &all[i], is_current ? " current=true" : " current=false");
    }
    free(all);
    return status;
}

static enum fr_status check(const char *path, struct fr_err *err)
{
    struct fr_snapshot snapshot;
    enum fr_status status = fr_snapshot_check(path, &snapshot, err);
    if (status == FR_OK)
        print_one(path, &snapshot,
                  snapshot.summed ? " checks passed=true checked=sums,records,rows"
                                  : " checks passed=true checked=sums,records,rows manifest_sum=none");
    return status;
}

/* ---- taking one ---- */

static bool form_of(const char *text, enum fr_codec_quantize *out)
{
    for (int q = FR_CODEC_F32; q <= FR_CODEC_I8; q++)
        if (strcmp(text, fr_codec_quantize_name((enum fr_codec_quantize)q)) == 0) {
            *out = (enum fr_codec_quantize)q;
            return true;
        }
    return false;
}

/* Finds the topic to which a state publishes by default. */
static enum fr_status topic_of(struct fr_durable *durable, const char *given, char out[FR_MANIFEST_TOPIC_MAX],
                               struct fr_err *err)
{
    struct fr_buffer head = {0};
    struct fr_codec_settings settings;
    snprintf(out, FR_MANIFEST_TOPIC_MAX, "%s", given ? given : "");
    if (given)
        return FR_OK;
    enum fr_status status = fr_durable_newest_head(durable, &head, err);
    if (status == FR_OK)
        status = fr_codec_settings_parse(head.data, head.size, &settings);
    if (status == FR_OK) {
        snprintf(out, FR_MANIFEST_TOPIC_MAX, "%s.delta", settings.model);
        fr_codec_settings_release(&settings);
    }
    fr_buffer_release(&head);
    return status;
}

static enum fr_status take_stopped(struct fr_durable *durable, const struct arguments *arguments, struct fr_err *err)
{
    char dir[PATH_MAX], topic[FR_MANIFEST_TOPIC_MAX], path[PATH_MAX];
    enum fr_codec_quantize quantize = FR_CODEC_F32;
    struct fr_snapshot taken;
    struct fr_durable_status durable_status;
    if (arguments->quantize && !form_of(arguments->quantize, &quantize))
        return fr_err_set(err, FR_E_INVALID, "--quantize is \"%s\"; expected f32, f16, bf16 or i8",
                          arguments->quantize);
    enum fr_status status = folder_of(arguments, dir, err);
    if (status == FR_OK)
        status = fr_durable_fold(durable, err);
    if (status == FR_OK)
        status = topic_of(durable, arguments->topic, topic, err);
    if (status != FR_OK)
        return status;
    const struct fr_snapshot_options options = {.durable = durable,
                                                .clock = fr_clock_system(),
                                                .dir = dir,
                                                .topic = topic,
                                                .quantize = arguments->quantize ? &quantize : NULL};
    status = fr_snapshot_write(&options, &taken, err);
    if (status == FR_E_EXISTS)
        status = FR_OK;
    /* Replicas may begin with the snapshot if all of it has been published on the topic. */
    fr_durable_get_status(durable, &durable_status);
    if (status == FR_OK && durable_status.acked >= taken.epoch)
        status = fr_snapshot_set_current(dir, taken.name, err);
    if (status == FR_OK)
        status = join(path, dir, taken.name, err);
    if (status == FR_OK)
        print_one(path, &taken, "");
    return status;
}

static enum fr_status ask(const struct arguments *arguments, struct fr_err *err)
{
    char id[FR_SNAPSHOT_ID_MAX], path[PATH_MAX];
    struct fr_snapshot taken;
    struct timespec now;
    FR_CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    snprintf(id, sizeof(id), "tool-%ld-%lld-%ld", (long)getpid(), (long long)now.tv_sec, now.tv_nsec);
    if (arguments->dir || arguments->topic || arguments->quantize)
        return fr_err_set(err, FR_E_INVALID,
                          "a daemon runs this state: its configuration (snapshot.*, export.*) says where and how, not "
                          "--dir, --topic or --quantize");
    enum fr_status status = fr_snapshot_ask(arguments->state, id, err);
    if (status != FR_OK)
        return status;
    status = FR_AGAIN;
    for (int64_t waited = 0; waited <= arguments->wait_ms && status == FR_AGAIN; waited += LOOK_MS) {
        status = fr_snapshot_answered(arguments->state, id, path, err);
        if (status == FR_AGAIN)
            nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    if (status == FR_AGAIN)
        return fr_err_set(
            err, FR_E_UNAVAILABLE,
            "the daemon of %s did not take the snapshot in time: look at its log, or --wait longer; it is still asked for",
            arguments->state);
    if (status == FR_OK)
        status = fr_snapshot_read(path, &taken, err);
    if (status == FR_OK)
        print_one(path, &taken, "");
    return status;
}

static enum fr_status take_snapshot(const struct arguments *arguments, struct fr_err *err)
{
    struct fr_savepoint savepoint;
    struct fr_durable *durable = NULL;
    enum fr_status status = fr_savepoint_look(arguments->state, &savepoint, err);
    /* no state, or a damaged one: opening it must not create one */
    if (status != FR_OK && status != FR_E_STATE)
        return status;
    status = fr_durable_open(&(struct fr_durable_options){.dir = arguments->state}, &durable, err);
    if (status == FR_E_BUSY)
        status = ask(arguments, err);
    else if (status == FR_OK)
        status = take_stopped(durable, arguments, err);
    fr_durable_close(durable);
    return status;
}

int fr_tool_snapshot(int argc, char **argv)
{
    struct arguments arguments = {.wait_ms = 600000};
    const struct fr_tool_option options[] = {
        {.name = "--state-dir", .value = &arguments.state}, {.name = "--dir", .value = &arguments.dir},
        {.name = "--topic", .value = &arguments.topic},     {.name = "--quantize", .value = &arguments.quantize},
        {.name = "--check", .value = &arguments.check},     {.name = "--wait", .duration_ms = &arguments.wait_ms},
        {.name = "--list", .flag = &arguments.lists}};
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    struct fr_err err = {0};
    enum fr_status status = FR_OK;
    if (arguments.check && (arguments.state || arguments.dir || arguments.lists))
        status = fr_err_set(&err, FR_E_INVALID, "--check takes the directory of one snapshot and nothing else");
    else if (arguments.check)
        status = check(arguments.check, &err);
    else if (!arguments.state && !(arguments.dir && arguments.lists))
        status = fr_err_set(&err, FR_E_INVALID, "--state-dir is missing");
    else
        status = arguments.lists ? list(&arguments, &err) : take_snapshot(&arguments, &err);
    if (status != FR_OK)
        return fr_tool_fail("snapshot", &err);
    return fflush(stdout) == 0 ? FR_TOOL_OK : FR_TOOL_FAILED;
}
