/* `freshet score`: probabilities for a file of samples, from a followed topic or from a dump.
 * Scores are those of the replica library, so they are what a serving process would answer
 * (P12). */
#include <stdio.h>

#include "base/check.h"
#include "base/file.h"
#include "base/sum_line.h"
#include "score/served.h"
#include "state/state_reader.h"
#include "tool.h"

enum { MODEL_BYTES_MAX = 16 << 20 };

static const char usage[] =
    "freshet score --file F.jsonl --brokers B --topic T [--kafka-file FILE] [--kafka NAME=VALUE]...\n"
    "freshet score --file F.jsonl --snapshot DIR\n"
    "freshet score --file F.jsonl --dump DUMP (--state-dir D | --model MODEL.json)\n\n"
    "One line of task -> probability for every sample of the file (plain, gzip or zstd; `y` and `t` are not needed).\n"
    "From a topic: the replica as of its end now. From a dump: the model is that of the state directory or of the "
    "file\n"
    "model.json in it.\n";

static enum fr_status read_model(const char *dir, const char *model, struct fr_buffer *cfg, struct fr_err *err)
{
    if (model) {
        enum fr_status status = fr_file_read(model, MODEL_BYTES_MAX, cfg, err);
        /* a file without a checksum line is used as it is */
        if (status == FR_OK && fr_sum_line_take(cfg) == FR_E_CORRUPT)
            status = fr_err_set(err, FR_E_CORRUPT, "%s is not as it was written (its checksum is another)", model);
        while (status == FR_OK && cfg->size > 0 && cfg->data[cfg->size - 1] == '\n')
            cfg->size--;
        return status;
    }
    struct fr_tool_state *state = NULL;
    enum fr_status status = fr_tool_state_open(dir, FR_STATE_SECTIONS, &state, err);
    if (status == FR_OK && state->status.epoch == 0)
        status = fr_err_set(err, FR_E_NOT_FOUND, "%s holds no epoch yet, so no model", dir);
    if (status == FR_OK)
        fr_buffer_append(cfg, state->settings.cfg, state->settings.cfg_size);
    fr_tool_state_close(state);
    return status;
}

int fr_tool_score(int argc, char **argv)
{
    const char *file = NULL, *dir = NULL, *model = NULL, *properties[FR_FOLLOW_PROPERTIES_MAX];
    struct fr_tool_source source = {.topic.properties = properties};
    const struct fr_tool_option options[] = {
        {.name = "--file", .value = &file, .required = true},
        {.name = "--state-dir", .value = &dir},
        {.name = "--model", .value = &model},
        FR_TOOL_SOURCE_OPTIONS(source, properties),
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    if (!fr_tool_source_given(&source) || (source.dump ? !dir == !model : dir || model)) {
        fprintf(stderr,
                "freshet score: give --brokers and --topic, or --snapshot, or --dump and one of --state-dir and "
                "--model\n\n%s",
                usage);
        return FR_TOOL_USAGE;
    }
    struct fr_err err = {0};
    struct fr_tool_served served = {0};
    enum fr_status status = source.dump ? read_model(dir, model, &source.cfg, &err) : FR_OK;
    if (status == FR_OK)
        status = fr_tool_served_open(&source, "score", &served, &err);
    if (status == FR_OK)
        status = fr_tool_score_file(served.replica, file, stdout, &err);
    fr_tool_served_close(&served);
    fr_buffer_release(&source.cfg);
    return status == FR_OK ? FR_TOOL_OK : fr_tool_fail("score", &err);
}
