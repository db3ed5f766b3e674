/* `freshet savepoint`: takes a savepoint of a state, or lists savepoints. If a daemon runs on the
 * state, the daemon is asked for it; otherwise this command takes it, after a fold. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "durable/savepoint.h"
#include "output.h"
#include "tool.h"

enum { QUOTED_MAX = 1200, LOOK_MS = 20 };

static const char usage[] =
    "freshet savepoint --state-dir DIR [--name NAME] [--wait 60s]\n"
    "freshet savepoint --state-dir DIR --list\n\n"
    "A copy of the state as of its newest epoch, in DIR/savepoints/NAME, made of links where it can be. A running\n"
    "daemon takes it beside training; of a stopped one it is taken here. `freshet state` reads it like any state,\n"
    "`freshetd --restore` begins a new state from it.\n"
    "  --name NAME   letters, digits, - and _ (default: the time, as 20260102T030405Z)\n"
    "  --wait TIME   how long to wait for the daemon\n"
    "  --list        a line for each savepoint, ascending names\n"
    "Exit 1 when there is none in the end; what was asked of a daemon may still come.\n";

static void print_one(const char *path, const struct fr_savepoint *savepoint)
{
    char quoted[QUOTED_MAX];
    printf("savepoint dir=%s timeline=%" PRIu64 " epoch=%" PRIu64 " digest=0x%016" PRIx64 " bytes=%" PRIu64 "\n",
           fr_log_quote(quoted, sizeof(quoted), path), savepoint->timeline, savepoint->epoch,
           fr_sha256_u64(&savepoint->digest), savepoint->bytes);
}

static enum fr_status list(const char *dir, struct fr_err *err)
{
    char(*names)[FR_SAVEPOINT_NAME_MAX] = NULL;
    size_t n = 0;
    enum fr_status status = fr_savepoint_names(dir, &names, &n, err);
    for (size_t i = 0; i < n && status == FR_OK; i++) {
        char path[PATH_MAX];
        struct fr_savepoint savepoint = {0};
        status = fr_savepoint_path(dir, names[i], path, err);
        if (status == FR_OK)
            status = fr_savepoint_look(path, &savepoint, err);
        if (status == FR_OK)
            print_one(path, &savepoint);
        else if (access(path, F_OK) != 0) /* the daemon removed it during this listing */
            status = FR_OK;
    }
    free(names);
    return status;
}

static enum fr_status take_stopped(struct fr_durable *durable, const char *path, struct fr_err *err)
{
    struct fr_savepoint savepoint;
    enum fr_status status = fr_durable_fold(durable, err);
    return status == FR_OK ? fr_durable_savepoint(durable, path, &savepoint, err) : status;
}

/* Opens the state as its writer, which excludes other writers; FR_E_BUSY when there is one. */
static enum fr_status open_state(const char *dir, struct fr_durable **out, struct fr_err *err)
{
    struct fr_savepoint savepoint;
    enum fr_status status = fr_savepoint_look(dir, &savepoint, err);
    /* no state, or a damaged one: opening it must not create one */
    if (status != FR_OK && status != FR_E_STATE)
        return status;
    return fr_durable_open(&(struct fr_durable_options){.dir = dir}, out, err);
}

static enum fr_status ask(const char *dir, const char *name, int64_t wait_ms, struct fr_err *err)
{
    enum fr_status status = fr_savepoint_ask(dir, name, err);
    if (status != FR_OK)
        return status;
    for (int64_t waited = 0; waited <= wait_ms; waited += LOOK_MS) {
        status = fr_savepoint_answered(dir, name, err);
        if (status != FR_AGAIN)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    return fr_err_set(
        err, FR_E_UNAVAILABLE,
        "the daemon of %s did not take the savepoint %s in time: look at its log, or --wait longer; it is still asked for",
        dir, name);
}

static enum fr_status take_savepoint(const char *dir, const char *name, int64_t wait_ms, struct fr_err *err)
{
    char path[PATH_MAX];
    struct fr_durable *durable = NULL;
    struct fr_savepoint savepoint = {0};
    enum fr_status status = fr_savepoint_path(dir, name, path, err);
    if (status != FR_OK)
        return status;
    status = open_state(dir, &durable, err);
    if (status == FR_E_BUSY)
        status = ask(dir, name, wait_ms, err);
    else if (status == FR_OK)
        status = take_stopped(durable, path, err);
    fr_durable_close(durable);
    if (status == FR_OK)
        status = fr_savepoint_look(path, &savepoint, err);
    if (status == FR_OK)
        print_one(path, &savepoint);
    return status;
}

int fr_tool_savepoint(int argc, char **argv)
{
    const char *dir = NULL, *name = NULL;
    int64_t wait_ms = 60000;
    bool lists = false;
    const struct fr_tool_option options[] = {{.name = "--state-dir", .value = &dir, .required = true},
                                             {.name = "--name", .value = &name},
                                             {.name = "--wait", .duration_ms = &wait_ms},
                                             {.name = "--list", .flag = &lists}};
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    char by_time[FR_SAVEPOINT_NAME_MAX];
    time_t now = time(NULL);
    struct tm parts;
    FR_CHECK(gmtime_r(&now, &parts) != NULL);
    FR_CHECK(strftime(by_time, sizeof(by_time), "%Y%m%dT%H%M%SZ", &parts) > 0);
    struct fr_err err = {0};
    enum fr_status status = lists ? list(dir, &err) : take_savepoint(dir, name ? name : by_time, wait_ms, &err);
    if (status != FR_OK)
        return fr_tool_fail("savepoint", &err);
    return fflush(stdout) == 0 ? FR_TOOL_OK : FR_TOOL_FAILED;
}
