/* `freshet score`: probabilities for a file of samples, from a followed topic or from a dump.
 * Scores are those of the replica library, so they are what a serving process would answer
 * (P12). */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/sum_line.h"
#include "score/scorer.h"
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
    const char *file = NULL, *dump = NULL, *dir = NULL, *model = NULL, *snapshot = NULL;
    const char *properties[FR_FOLLOW_PROPERTIES_MAX];
    struct fr_consume_options topic = {.properties = properties};
    const struct fr_tool_option options[] = {
        {.name = "--file", .value = &file, .required = true},
        {.name = "--brokers", .value = &topic.brokers},
        {.name = "--topic", .value = &topic.topic},
        {.name = "--dump", .value = &dump},
        {.name = "--state-dir", .value = &dir},
        {.name = "--model", .value = &model},
        {.name = "--snapshot", .value = &snapshot},
        {.name = "--kafka-file", .value = &topic.kafka_file},
        {.name = "--kafka", .many = properties, .n_many = &topic.n_properties, .many_max = FR_FOLLOW_PROPERTIES_MAX},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed < 0 ? FR_TOOL_OK : parsed;
    bool from_topic = topic.brokers && topic.topic && !dump && !dir && !model && !snapshot;
    bool from_dump = dump && !topic.brokers && !topic.topic && !snapshot && (dir != NULL) != (model != NULL);
    bool from_snapshot = snapshot && !topic.brokers && !topic.topic && !dump && !dir && !model;
    if (!from_topic && !from_dump && !from_snapshot) {
        fprintf(stderr,
                "freshet score: give --brokers and --topic, or --snapshot, or --dump and one of --state-dir and "
                "--model\n\n%s",
                usage);
        return FR_TOOL_USAGE;
    }
    struct fr_err err = {0};
    struct fr_buffer cfg = {0};
    struct fr_tool_served served = {0};
    enum fr_status status = from_dump ? read_model(dir, model, &cfg, &err) : FR_OK;
    if (status == FR_OK)
        status = from_dump       ? fr_tool_served_dump(dump, &cfg, &served, &err)
                 : from_snapshot ? fr_tool_served_snapshot(snapshot, &served, &err)
                                 : fr_tool_served_topic(&topic, "score", &served, &err);
    if (status == FR_OK)
        status = fr_tool_served_scorable(&served, &err);
    if (status == FR_OK)
        status = fr_tool_score_file(served.replica, file, stdout, &err);
    fr_tool_served_close(&served);
    fr_buffer_release(&cfg);
    return status == FR_OK ? FR_TOOL_OK : fr_tool_fail("score", &err);
}
