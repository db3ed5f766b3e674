/* `freshet dump`: a state directory as JSON Lines, as published or exactly (--private), or its metrics (--metrics).
 * Read-only: also beside a running daemon, then as of its newest durable epoch. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "output.h"
#include "state_reader.h"
#include "state_sections.h"
#include "tool.h"

static const char usage[] =
    "freshet dump --state-dir D [--private | --metrics]\n\n"
    "  --state-dir D   a state directory, drained or running\n"
    "  --private       exact values, optimizer state, counters, pending keys, positions, metric state; its own hash\n"
    "  --metrics       one JSON document: AUC, logloss, calibration .. of every task (the form of GET /auc)\n\n"
    "JSON Lines: rows by table name and key, dense parameters by name, a closing line with the hash of all before.\n";

static void put_number_or_null(struct fr_buffer *out, const char *name, double value)
{
    if (isfinite(value))
        fr_buffer_printf(out, "\"%s\":%.9g", name, value);
    else
        fr_buffer_printf(out, "\"%s\":null", name);
}

static void put_block(struct fr_buffer *out, const struct fr_auc_result *result)
{
    fr_put_u8(out, '{');
    put_number_or_null(out, "auc", result->auc);
    fr_put_u8(out, ',');
    put_number_or_null(out, "logloss", result->logloss);
    fr_put_u8(out, ',');
    put_number_or_null(out, "calibration", result->calibration);
    fr_put_u8(out, ',');
    put_number_or_null(out, "positive_rate", result->positive_rate);
    fr_put_u8(out, ',');
    put_number_or_null(out, "weight", result->weight);
    fr_put_u8(out, '}');
}

struct document {
    struct fr_buffer text;
    bool any;
};

static void put_task(void *self, const struct fr_metrics_task *task)
{
    struct document *document = self;
    struct fr_buffer *out = &document->text;
    fr_buffer_printf(out, "%s\"%s\":{\"decayed\":{", document->any ? "," : "", task->name);
    document->any = true;
    for (uint32_t i = 0; i < task->n_half_lives; i++) {
        char name[24];
        fr_duration_text(task->half_life_ms[i], name);
        fr_buffer_printf(out, "%s\"%s\":", i ? "," : "", name);
        put_block(out, &task->decayed[i]);
    }
    fr_buffer_printf(out, "},\"lifetime\":");
    put_block(out, &task->lifetime);
    fr_buffer_printf(out, ",\"gauc\":null,\"served\":null}");
}

static enum fr_status dump_metrics(const struct fr_state *state, struct fr_err *err)
{
    const struct fr_buffer *metrics = fr_state_find_section(state, "metrics");
    const struct fr_buffer *trainer = fr_state_find_section(state, "trainer");
    struct fr_trainer_section counted;
    if (!metrics || !trainer)
        return fr_err_set(err, FR_E_CORRUPT, "the section \"metrics\" or \"trainer\" is missing");
    enum fr_status status = fr_trainer_section_parse(trainer, &counted, err);
    if (status != FR_OK)
        return status;
    struct document document = {0};
    fr_buffer_printf(&document.text,
                     "{\"model\":\"%s\",\"tl\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"as_of_ms\":", state->settings.model,
                     state->status.timeline, state->status.epoch);
    if (counted.watermark_ms == INT64_MIN)
        fr_buffer_printf(&document.text, "null");
    else
        fr_buffer_printf(&document.text, "%" PRId64, counted.watermark_ms);
    fr_buffer_printf(&document.text, ",\"tasks\":{");
    status = fr_metrics_section_parse(metrics, put_task, &document, err);
    fr_buffer_printf(&document.text, "}}\n");
    if (status == FR_OK && fr_write_stdout(NULL, document.text.data, document.text.size) != 0)
        status = FR_E_IO;
    fr_buffer_release(&document.text);
    return status;
}

static int dump_state(const char *dir, bool private, bool metrics)
{
    struct fr_err err = {0};
    struct fr_state *state = NULL;
    enum fr_state_depth depth = metrics ? FR_STATE_SECTIONS : private ? FR_STATE_PRIVATE : FR_STATE_PUBLIC;
    enum fr_status status = fr_state_open(dir, depth, &state, &err);
    if (status == FR_OK && state->status.epoch == 0)
        status = fr_err_set(&err, FR_E_NOT_FOUND, "%s holds no epoch yet: nothing to dump", dir);
    if (status == FR_OK && metrics)
        status = dump_metrics(state, &err);
    else if (status == FR_OK && private)
        status = fr_state_dump_private(state, fr_write_stdout, NULL, &err);
    else if (status == FR_OK)
        status = fr_state_dump_public(state, fr_write_stdout, NULL, NULL, &err);
    if (fflush(stdout) != 0 || status == FR_E_IO) {
        if (!err.text[0])
            (void)fr_err_set(&err, FR_E_IO, "writing to stdout: %s", strerror(errno));
        status = FR_E_IO;
    }
    fr_state_close(state);
    if (status == FR_OK)
        return FR_TOOL_OK;
    fprintf(stderr, "freshet dump: %s\n", err.text);
    return FR_TOOL_FAILED;
}

int fr_tool_dump(int argc, char **argv)
{
    const char *dir = NULL, *snapshot = NULL;
    bool private = false, metrics = false;
    const struct fr_option options[] = {
        {.name = "--state-dir", .value = &dir},
        {.name = "--snapshot", .value = &snapshot},
        {.name = "--private", .flag = &private},
        {.name = "--metrics", .flag = &metrics},
    };
    int parsed = fr_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed < 0 ? FR_TOOL_OK : parsed;
    if (snapshot) {
        fputs("freshet dump: --snapshot is not in this version\n", stderr);
        return FR_TOOL_USAGE;
    }
    if (!dir || (private && metrics)) {
        fprintf(stderr, "freshet dump: %s\n\n%s",
                dir ? "--private and --metrics exclude each other" : "--state-dir is missing", usage);
        return FR_TOOL_USAGE;
    }
    return dump_state(dir, private, metrics);
}
