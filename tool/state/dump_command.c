/* `freshet dump`: a state directory as JSON Lines, as published or exactly (--private), or its
 * metrics (--metrics). Read-only. A running daemon's state is read as of its newest durable
 * epoch. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "output.h"
#include "state/state_reader.h"
#include "tool.h"

static const char usage[] =
    "freshet dump --state-dir D [--private | --metrics]\n\n"
    "  --state-dir D   a state directory, drained or running\n"
    "  --private       exact values, optimizer state, counters, pending keys, positions, metric state; its own hash\n"
    "  --metrics       one JSON document: AUC, logloss, calibration .. of every task (the form of GET /auc)\n\n"
    "JSON Lines: rows by table name and key, dense parameters by name, a closing line with the hash of all before.\n";

static enum fr_status dump_metrics(const char *dir, struct fr_err *err)
{
    struct fr_buffer text = {0};
    enum fr_status status = fr_tool_metrics_document(dir, &text, err);
    if (status == FR_OK && fr_tool_write_stdout(NULL, text.data, text.size) != 0)
        status = FR_E_IO;
    fr_buffer_release(&text);
    return status;
}

static enum fr_status dump_rows(const char *dir, bool private, struct fr_err *err)
{
    struct fr_tool_state *state = NULL;
    enum fr_status status = fr_tool_state_open(dir, private ? FR_STATE_PRIVATE : FR_STATE_PUBLIC, &state, err);
    if (status == FR_OK && state->status.epoch == 0)
        status = fr_err_set(err, FR_E_NOT_FOUND, "%s holds no epoch yet: nothing to dump", dir);
    if (status == FR_OK && private)
        status = fr_tool_state_dump_private(state, fr_tool_write_stdout, NULL, err);
    else if (status == FR_OK)
        status = fr_tool_state_dump_public(state, fr_tool_write_stdout, NULL, NULL, err);
    fr_tool_state_close(state);
    return status;
}

static int dump_state(const char *dir, bool private, bool metrics)
{
    struct fr_err err = {0};
    enum fr_status status = metrics ? dump_metrics(dir, &err) : dump_rows(dir, private, &err);
    if (fflush(stdout) != 0 || status == FR_E_IO) {
        if (!err.text[0])
            (void)fr_err_set(&err, FR_E_IO, "writing to stdout: %s", strerror(errno));
        status = FR_E_IO;
    }
    if (status == FR_OK)
        return FR_TOOL_OK;
    fprintf(stderr, "freshet dump: %s\n", err.text);
    return FR_TOOL_FAILED;
}

int fr_tool_dump(int argc, char **argv)
{
    const char *dir = NULL;
    bool private = false, metrics = false;
    const struct fr_tool_option options[] = {
        {.name = "--state-dir", .value = &dir},
        {.name = "--private", .flag = &private},
        {.name = "--metrics", .flag = &metrics},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    if (!dir || (private && metrics)) {
        fprintf(stderr, "freshet dump: %s\n\n%s",
                dir ? "--private and --metrics exclude each other" : "--state-dir is missing", usage);
        return FR_TOOL_USAGE;
    }
    return dump_state(dir, private, metrics);
}
