/* `freshet evaluate`: AUC, log loss and calibration of a saved stream of samples, scored by a
 * replica, in total and by slices. Nothing learns: all samples are scored with the same epoch.
 *
 * A line is decoded twice: with its labels by the daemon's decoder, and by the library, which
 * scores it. The samples that count are those that count in the daemon's metrics: samples for
 * metrics (`u`), weighted by `w` and 1/`s`.
 *
 * Thread: one. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "decode/decoder.h"
#include "input.h"
#include "metrics/task.h"
#include "score/served.h"
#include "score/slices.h"

enum { SAMPLES_MAX = 1 << 16, SHOWN = 20 };

static const char usage[] =
    "freshet evaluate --config FILE --file F.jsonl (--brokers B --topic T | --snapshot DIR | --dump DUMP)\n"
    "    [--by SLOT].. [--by-label L]..\n\n"
    "Scores every sample of the file (JSON Lines of any form, plain, gzip or zstd) by a replica of the configuration's model\n"
    "and prints AUC, log loss and calibration of each task, as the daemon's metrics count (`u`, `w`, `s`).\n"
    "  --by SLOT        also for the samples with each id of a slot; of several ids, with each of them\n"
    "  --by-label L     also for the samples with each value of a label\n"
    "  --slices N       how many slices are shown, those with most samples (default 20)\n"
    "  --json           one JSON document instead of a table\n"
    "  --set path=value, --kafka-file FILE, --kafka NAME=VALUE   as for freshetd and freshet follow\n"
    "A line that is malformed is counted, and the first is shown.\n";

struct evaluating {
    const struct fr_conf *conf;
    struct freshet_replica *replica;
    struct fr_decoder *decoder;
    struct fr_batch *batch;
    float *scores; /* [SAMPLES_MAX][n_tasks] */
    struct fr_tool_slices slices;
    struct cut_by {
        const char *name;
        int32_t slot, label; /* one of the two is FR_NO_INDEX */
    } by[FR_SLICE_CUTS_MAX];
    uint64_t lines, malformed, shown;
    bool json;
    char problem[512]; /* of the first malformed line */
    struct fr_buffer scratch;
};

/* ---- from a key to its id ---- */

/* Finds the id in the line that makes this key, in any place where the slot has a value. */
static bool find_id(struct evaluating *e, const struct fr_line *line, const struct fr_conf_slot *slot, uint64_t key,
                    char out[FR_SLICE_VALUE_MAX])
{
    struct fr_cursor cursor;
    struct fr_token token;
    /* number of open containers below the slot's name; 1: the value itself is next */
    uint32_t below = 0;
    bool inside = false;
    fr_cursor_init(&cursor, FR_FORMAT_JSON, line->value, line->size, &e->scratch);
    while (fr_cursor_next(&cursor, &token) == FR_OK) {
        bool opens = token.kind == FR_TOKEN_MAP || token.kind == FR_TOKEN_ARRAY;
        if (!inside) {
            inside = token.kind == FR_TOKEN_STRING && token.size == strlen(slot->name) &&
                     memcmp(token.bytes, slot->name, token.size) == 0;
            continue;
        }
        if (token.kind == FR_TOKEN_STRING && fr_key_string(token.bytes, token.size, slot->seed, slot->id_raw) == key)
            return snprintf(out, FR_SLICE_VALUE_MAX, "%.*s", (int)token.size, (const char *)token.bytes) >= 0;
        below += opens;
        below -= token.kind == FR_TOKEN_END;
        inside = below > 0;
    }
    return false;
}

/* An integer id follows from its key; a text id is searched in the line. */
static void name_value(struct evaluating *e, const struct fr_line *line, const struct fr_conf_slot *slot, uint64_t key,
                       char out[FR_SLICE_VALUE_MAX])
{
    uint64_t integer = fr_fmix64_inverse(key) ^ slot->seed;
    if (slot->source == FR_SOURCE_SAMPLE && find_id(e, line, slot, key, out))
        return;
    if (slot->source == FR_SOURCE_CROSS)
        snprintf(out, FR_SLICE_VALUE_MAX, "key %" PRIu64, key);
    else
        snprintf(out, FR_SLICE_VALUE_MAX, "%" PRId64, (int64_t)integer);
}

/* ---- samples ---- */

static void join_slot(struct evaluating *e, struct fr_tool_cut *cut, int32_t s, uint32_t sample,
                      const struct fr_line *line)
{
    const struct fr_column *column = &e->batch->columns[s];
    uint32_t entry = column->shared ? e->batch->group_of[sample] : sample;
    if (column->begin[entry] == column->begin[entry + 1]) {
        /* ^the key of samples without a value; another id has this key by chance only (2^-64) */
        struct fr_tool_slice *none = fr_tool_slices_find(cut, fr_fmix64(UINT64_MAX));
        snprintf(none->value, sizeof(none->value), "(none)");
        fr_tool_slices_join(&e->slices, cut, none);
    }
    for (uint32_t k = column->begin[entry]; k < column->begin[entry + 1]; k++) {
        struct fr_tool_slice *slice = fr_tool_slices_find(cut, column->keys[k]);
        if (slice->samples == 0)
            name_value(e, line, &e->conf->slots[s], slice->key, slice->value);
        fr_tool_slices_join(&e->slices, cut, slice);
    }
}

static void join_label(struct evaluating *e, struct fr_tool_cut *cut, int32_t l, uint32_t sample)
{
    float label = e->batch->labels[(size_t)l * e->batch->capacity_samples + sample];
    uint32_t bits;
    memcpy(&bits, &label, sizeof(bits));
    struct fr_tool_slice *slice = fr_tool_slices_find(cut, isnan(label) ? UINT64_MAX : bits);
    if (isnan(label))
        snprintf(slice->value, sizeof(slice->value), "(masked)");
    else
        snprintf(slice->value, sizeof(slice->value), "%.9g", (double)label);
    fr_tool_slices_join(&e->slices, cut, slice);
}

static void add_sample(struct evaluating *e, uint32_t i, const struct fr_line *line)
{
    const struct fr_batch *batch = e->batch;
    bool counts = batch->use[i] & FR_USE_METRICS;
    struct fr_tool_sample *out = fr_tool_slices_add(&e->slices);
    for (uint32_t t = 0; t < e->conf->n_tasks; t++) {
        size_t at = (size_t)e->conf->tasks[t].label * batch->capacity_samples + i;
        double keep = e->conf->ingest.sampling == FR_SAMPLING_NONE ? 1.0 : (double)batch->keep[i];
        out[t] = (struct fr_tool_sample){.score = e->scores[(size_t)i * e->conf->n_tasks + t],
                                         .label = counts ? batch->labels[at] : NAN,
                                         .weight = (double)batch->weights[at] / keep};
    }
    for (uint32_t c = 0; c < e->slices.n_cuts; c++) {
        if (e->by[c].slot != FR_NO_INDEX)
            join_slot(e, &e->slices.cuts[c], e->by[c].slot, i, line);
        else
            join_label(e, &e->slices.cuts[c], e->by[c].label, i);
    }
}

static void evaluate_line(struct evaluating *e, const struct fr_line *line)
{
    struct fr_record record = {.value = line->value, .size = line->size};
    uint32_t n = 0, scored = SAMPLES_MAX;
    const char *reason = NULL;
    e->lines++;
    enum fr_status decoded = fr_decode_record(e->decoder, &record, &n, &reason);
    if (decoded == FR_OK && freshet_replica_score_json(e->replica, line->value, line->size, e->scores, &scored) != 0) {
        decoded = FR_E_INVALID;
        reason = freshet_replica_score_problem(e->replica);
    }
    if (decoded != FR_OK) {
        if (e->malformed++ == 0)
            snprintf(e->problem, sizeof(e->problem), "line %" PRId64 ": %s", line->number + 1, reason);
        return;
    }
    FR_CHECK(scored == n);
    fr_batch_clear(e->batch);
    fr_decode_append(e->decoder, 0, n, e->batch);
    for (uint32_t i = 0; i < n; i++)
        add_sample(e, i, line);
}

static enum fr_status read_file(struct evaluating *e, const char *path, struct fr_err *err)
{
    struct fr_lines *lines = NULL;
    struct fr_line line;
    enum fr_status status = fr_tool_lines_open(path, &lines, err);
    if (status != FR_OK)
        return status;
    while ((status = fr_tool_lines_next(lines, path, &line, err)) == FR_OK)
        if (!fr_lines_blank(&line))
            evaluate_line(e, &line);
    fr_lines_free(lines);
    if (status == FR_EOF && e->slices.n_samples == 0)
        return fr_err_set(err, FR_E_INVALID, "%s has no sample that can be scored%s%s", path, e->malformed ? ": " : "",
                          e->problem);
    return status == FR_EOF ? FR_OK : status;
}

/* ---- results ---- */

static enum fr_auc_scores scores_of(const struct evaluating *e, uint32_t t)
{
    switch (fr_loss_prediction(e->conf->tasks[t].loss)) {
    case FR_PREDICTS_VALUE:
        return FR_AUC_VALUES;
    case FR_PREDICTS_PROBABILITY:
        break;
    }
    return FR_AUC_PROBABILITIES;
}

static void put_tasks(const struct evaluating *e, const struct fr_tool_cut *cut, size_t place, struct fr_json *json)
{
    fr_json_object(json, "tasks");
    for (uint32_t t = 0; t < e->conf->n_tasks; t++) {
        struct fr_auc_result result;
        fr_tool_slices_result(&e->slices, t, scores_of(e, t), cut, place, &result);
        fr_auc_result_json(json, e->conf->tasks[t].name, &result, scores_of(e, t) == FR_AUC_VALUES);
    }
    fr_json_end(json);
}

static size_t shown_of(const struct evaluating *e, const struct fr_tool_cut *cut)
{
    return cut->n_slices < e->shown ? cut->n_slices : (size_t)e->shown;
}

static void put_cut(const struct evaluating *e, uint32_t c, struct fr_json *json)
{
    const struct fr_tool_cut *cut = &e->slices.cuts[c];
    fr_json_object(json, NULL);
    fr_json_text(json, e->by[c].slot != FR_NO_INDEX ? "slot" : "label", e->by[c].name);
    fr_json_u64(json, "slices", cut->n_slices);
    fr_json_array(json, "shown");
    for (size_t i = 0; i < shown_of(e, cut); i++) {
        fr_json_object(json, NULL);
        fr_json_text(json, "value", cut->slices[i].value);
        fr_json_u64(json, "samples", cut->slices[i].samples);
        put_tasks(e, cut, i, json);
        fr_json_end(json);
    }
    fr_json_end(json);
    fr_json_end(json);
}

static void print_json(const struct evaluating *e, const struct freshet_replica_info *info)
{
    struct fr_buffer out = {0};
    struct fr_json json = {.out = &out};
    fr_json_object(&json, NULL);
    fr_json_text(&json, "model", e->conf->model);
    fr_json_u64(&json, "tl", info->timeline);
    fr_json_u64(&json, "epoch", info->epoch);
    fr_json_u64(&json, "lines", e->lines);
    fr_json_u64(&json, "malformed", e->malformed);
    fr_json_u64(&json, "samples", e->slices.n_samples);
    put_tasks(e, NULL, 0, &json);
    fr_json_array(&json, "by");
    for (uint32_t c = 0; c < e->slices.n_cuts; c++)
        put_cut(e, c, &json);
    fr_json_end(&json);
    fr_json_end(&json);
    fr_put_u8(&out, '\n');
    fwrite(out.data, 1, out.size, stdout);
    fr_buffer_release(&out);
}

static void print_number(double value)
{
    if (isfinite(value))
        printf(" %9.6f", value);
    else
        printf(" %9s", "-");
}

static void print_tasks(const struct evaluating *e, const char *by, const char *value, const struct fr_tool_cut *cut,
                        size_t place)
{
    for (uint32_t t = 0; t < e->conf->n_tasks; t++) {
        struct fr_auc_result result;
        fr_tool_slices_result(&e->slices, t, scores_of(e, t), cut, place, &result);
        printf("%-16s %-24s %-12s %12.6g", by, value, e->conf->tasks[t].name, result.weight);
        print_number(result.auc);
        print_number(scores_of(e, t) == FR_AUC_VALUES ? result.mse : result.logloss);
        print_number(result.calibration);
        print_number(result.positive_rate);
        printf("\n");
    }
}

static void print_table(const struct evaluating *e, const struct freshet_replica_info *info)
{
    printf("evaluated model=%s timeline=%" PRIu64 " epoch=%" PRIu64 " lines=%" PRIu64 " malformed=%" PRIu64
           " samples=%zu\n\n",
           e->conf->model, info->timeline, info->epoch, e->lines, e->malformed, e->slices.n_samples);
    printf("%-16s %-24s %-12s %12s %9s %9s %9s %9s\n", "by", "value", "task", "weight", "auc", "loss", "calibr.",
           "rate");
    print_tasks(e, "all", "", NULL, 0);
    for (uint32_t c = 0; c < e->slices.n_cuts; c++) {
        const struct fr_tool_cut *cut = &e->slices.cuts[c];
        for (size_t i = 0; i < shown_of(e, cut); i++)
            print_tasks(e, e->by[c].name, cut->slices[i].value, cut, i);
        if (cut->n_slices > shown_of(e, cut))
            printf("%-16s %zu more\n", e->by[c].name, cut->n_slices - shown_of(e, cut));
    }
}

/* ---- the command line ---- */

/* Resolves names to indices; false after a message when a name is unknown. */
static bool find_cuts(struct evaluating *e, const char *const *slots, size_t n_slots, const char *const *labels,
                      size_t n_labels)
{
    for (size_t i = 0; i < n_slots + n_labels; i++) {
        struct cut_by *by = &e->by[e->slices.n_cuts++];
        *by = (struct cut_by){i < n_slots ? slots[i] : labels[i - n_slots], FR_NO_INDEX, FR_NO_INDEX};
        for (uint32_t s = 0; s < e->conf->n_slots && i < n_slots; s++)
            if (strcmp(e->conf->slots[s].name, by->name) == 0 && fr_slot_has_rows(e->conf->slots[s].kind))
                by->slot = (int32_t)s;
        for (uint32_t l = 0; l < e->conf->n_labels && i >= n_slots; l++)
            if (strcmp(e->conf->labels[l].name, by->name) == 0)
                by->label = (int32_t)l;
        if (by->slot == FR_NO_INDEX && by->label == FR_NO_INDEX) {
            fprintf(stderr, "freshet evaluate: --by%s %s: the configuration has no %s of this name%s\n",
                    i < n_slots ? "" : "-label", by->name, i < n_slots ? "slot of ids" : "label",
                    i < n_slots ? " (of a number, slice by a slot with buckets)" : "");
            return false;
        }
    }
    return true;
}

static enum fr_status check_model(const struct evaluating *e, const struct fr_tool_served *served,
                                  struct freshet_replica_info *info, struct fr_err *err)
{
    freshet_replica_get_info(served->replica, info);
    if (info->fp != fr_conf_fingerprint(e->conf))
        return fr_err_set(err, FR_E_MISMATCH, "the replica holds another model than the configuration describes");
    return FR_OK;
}

static enum fr_status evaluate(struct evaluating *e, struct fr_tool_source *source, const char *file,
                               struct fr_err *err)
{
    struct fr_tool_served served = {0};
    struct freshet_replica_info info = {0};
    fr_conf_model_json(e->conf, &source->cfg);
    enum fr_status status = fr_tool_served_open(source, "evaluate", &served, err);
    if (status == FR_OK)
        status = check_model(e, &served, &info, err);
    if (status == FR_OK) {
        e->replica = served.replica;
        e->decoder = fr_decoder_new_scoring(e->conf, FR_FORMAT_JSON);
        e->batch = fr_batch_new(e->conf);
        e->slices.n_tasks = e->conf->n_tasks;
        e->scores = fr_alloc((size_t)SAMPLES_MAX * e->conf->n_tasks, sizeof(*e->scores));
        status = read_file(e, file, err);
    }
    for (uint32_t c = 0; c < e->slices.n_cuts && status == FR_OK; c++)
        fr_tool_slices_order(&e->slices.cuts[c]);
    if (status == FR_OK && e->malformed > 0)
        fprintf(stderr, "freshet evaluate: %" PRIu64 " of %" PRIu64 " lines are malformed; the first: %s\n",
                e->malformed, e->lines, e->problem);
    if (status == FR_OK && e->json)
        print_json(e, &info);
    else if (status == FR_OK)
        print_table(e, &info);
    fr_tool_served_close(&served);
    fr_decoder_free(e->decoder);
    fr_batch_free(e->batch);
    fr_tool_slices_release(&e->slices);
    fr_buffer_release(&e->scratch);
    fr_buffer_release(&source->cfg);
    free(e->scores);
    return status;
}

int fr_tool_evaluate(int argc, char **argv)
{
    const char *file = NULL, *sets[FR_TOOL_SETS_MAX], *slots[FR_SLICE_CUTS_MAX / 2], *labels[FR_SLICE_CUTS_MAX / 2],
               *properties[FR_FOLLOW_PROPERTIES_MAX];
    size_t n_slots = 0, n_labels = 0;
    struct evaluating *e = fr_alloc(1, sizeof(*e));
    struct fr_tool_source source = {.topic.properties = properties};
    struct fr_conf_load_options load = {.sets = sets};
    e->shown = SHOWN;
    const struct fr_tool_option options[] = {
        FR_TOOL_CONFIG_OPTIONS(load, sets, true),
        {.name = "--file", .value = &file, .required = true},
        FR_TOOL_SOURCE_OPTIONS(source, properties),
        FR_TOOL_MANY("--by", slots, n_slots),
        FR_TOOL_MANY("--by-label", labels, n_labels),
        {.name = "--slices", .number = &e->shown, .min = 1, .max = 1000000},
        {.name = "--json", .flag = &e->json},
    };
    struct fr_conf *conf = NULL;
    struct fr_err err = {0};
    int code = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (code == FR_TOOL_OK && !fr_tool_source_given(&source)) {
        fprintf(stderr, "freshet evaluate: give --brokers and --topic, or one of --snapshot and --dump\n\n%s", usage);
        code = FR_TOOL_USAGE;
    }
    if (code == FR_TOOL_OK)
        code = fr_tool_load_conf(&load, &conf);
    e->conf = conf;
    if (code == FR_TOOL_OK && !find_cuts(e, slots, n_slots, labels, n_labels))
        code = FR_TOOL_USAGE;
    if (code == FR_TOOL_OK && evaluate(e, &source, file, &err) != FR_OK)
        code = fr_tool_fail("evaluate", &err);
    if (code == FR_TOOL_OK && fflush(stdout) != 0)
        code = FR_TOOL_FAILED;
    fr_conf_free(conf);
    free(e);
    return code;
}
