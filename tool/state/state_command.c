/* `freshet state`: the content of a state directory, as logfmt. Read-only, also for a running or
 * damaged state. Scripts read the first line. The checks are those of opening (mark, chain of
 * digests, cold store), of every section, of the P2 ledger, and with --images a walk over all keys,
 * compared with the counts. */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/log.h"
#include "output.h"
#include "state/state_reader.h"
#include "state/state_sections.h"
#include "tool.h"
#include "trainer/training.h"

enum { QUOTED_MAX = 1200 };

static const char usage[] =
    "freshet state DIR [--images]\n\n"
    "Epochs, sizes, model, tables, metrics, positions and checks of a state directory; read-only.\n"
    "  --images   also walks all rows and pending keys and compares them with the counts\n"
    "Exit 1 when a check fails; the line `checks` names it.\n";

struct report {
    const struct fr_tool_state *state;
    char problem[1024]; /* the first failed check; "": none */
};

static void note(struct report *report, const char *problem)
{
    if (!report->problem[0])
        snprintf(report->problem, sizeof(report->problem), "%s", problem);
}

/* ---- sizes: files as they are, damaged or not ---- */

static void put_size(const char *dir, const char *name)
{
    char path[PATH_MAX];
    uint64_t files = 0, bytes = 0;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    DIR *folder = opendir(path);
    int at = folder ? dirfd(folder) : -1;
    for (struct dirent *entry; at >= 0 && (entry = readdir(folder));) {
        struct stat info;
        if (fstatat(at, entry->d_name, &info, 0) == 0 && S_ISREG(info.st_mode)) {
            files++;
            bytes += (uint64_t)info.st_size;
        }
    }
    if (folder)
        (void)closedir(folder);
    printf("size part=%s files=%" PRIu64 " bytes=%" PRIu64 "\n", name, files, bytes);
}

/* ---- sections ---- */

static void print_first_line(struct report *report, const char *dir)
{
    const struct fr_tool_state *state = report->state;
    const struct fr_durable_status *status = &state->status;
    struct fr_trainer_history trainer = {.watermark_ms = INT64_MIN};
    struct fr_err err = {0};
    if (status->epoch > 0 && fr_tool_trainer_section(state, &trainer, &err) != FR_OK)
        note(report, err.text);
    char quoted[QUOTED_MAX];
    printf("state dir=%s epoch=%" PRIu64 " folded=%" PRIu64 " acked=%" PRIu64 " timeline=%" PRIu64 " samples=%" PRIu64
           " watermark_ms=",
           fr_log_quote(quoted, sizeof(quoted), dir), status->epoch, status->folded, status->acked, status->timeline,
           trainer.samples);
    if (trainer.watermark_ms == INT64_MIN)
        printf("none");
    else
        printf("%" PRId64, trainer.watermark_ms);
    printf(" drained=%s digest=0x%016" PRIx64 " format=%d\n", trainer.closed ? "true" : "false",
           fr_sha256_u64(&status->digest), FR_STATE_FORMAT);
    printf("journal first=%" PRIu64 " bytes=%" PRIu64 " unfolded_bytes=%" PRIu64 "\n", status->journal_first,
           status->journal_bytes, status->unfolded_bytes);
    if (!fr_tool_state_find_section(state, "trainer"))
        return;
    printf("trainer");
    for (size_t i = 0; i < FR_TRAINER_COUNTER_COUNT; i++)
        printf(" %s=%" PRIu64, fr_trainer_counters[i].name, trainer.counters[i]);
    printf(" held=%s publishable=%" PRIu64 "\n", trainer.held ? "true" : "false", trainer.publishable);
}

static void print_model(const struct fr_tool_state *state)
{
    const struct fr_codec_settings *settings = &state->settings;
    printf("model name=%s fp=0x%016" PRIx64 " partitions=%" PRIu32 " quantize=%s kernel=\"%s\"\n", settings->model,
           settings->fp, settings->np, fr_codec_quantize_name(settings->quantize), settings->kernel);
}

static void count_images(struct report *report, uint32_t table, const struct fr_store_counts *counts)
{
    const struct fr_tool_state *state = report->state;
    uint64_t rows = 0, pending = 0;
    if (state->depth != FR_STATE_PRIVATE)
        return;
    for (size_t i = 0; i < state->n_keys; i++)
        if (state->keys[i].table == table) /* the key of a row, not a gate's block */
            (*(state->keys[i].kind == FR_IMAGE_ROW ? &rows : &pending))++;
    if (rows == counts->rows && pending == counts->pending)
        return;
    char problem[256];
    snprintf(problem, sizeof(problem),
             "table %s: images of %" PRIu64 " rows and %" PRIu64 " pending keys, where %" PRIu64 " and %" PRIu64
             " are counted",
             state->settings.tables[table].name, rows, pending, counts->rows, counts->pending);
    note(report, problem);
}

static void print_tables(struct report *report)
{
    struct fr_store_section store;
    struct fr_err err = {0};
    if (fr_tool_store_section(report->state, &store, &err) != FR_OK) {
        note(report, err.text);
        return;
    }
    if (store.n_tables != report->state->settings.n_tables)
        note(report, "the section \"store\" and the journal's head differ in their tables");
    for (uint32_t t = 0; t < store.n_tables && t < report->state->settings.n_tables; t++) {
        printf("table name=%s", report->state->settings.tables[t].name);
        for (size_t i = 0; i < FR_STORE_COUNTS; i++)
            printf(" %s=%" PRIu64, fr_store_count_names[i], store.tables[t].counts.of[i]);
        printf("\n");
        count_images(report, t, &store.tables[t].counts);
    }
    fr_store_section_release(&store);
}

static void print_announcement(const struct fr_tool_state *state)
{
    const struct fr_announcement *a = &state->announcement;
    printf("announcement wall_ms=%" PRId64 " watermark_ms=%" PRId64 " samples=%" PRIu64 " model=%s dense=%s\n",
           a->wall_ms, a->watermark_ms, a->samples, a->publish_model ? "true" : "false",
           a->publish_dense ? "true" : "false");
    for (uint32_t i = 0; i < a->n_tasks; i++) {
        if (isfinite(a->tasks[i].auc))
            printf("auc task=%s lifetime=%.4f\n", a->tasks[i].task, a->tasks[i].auc);
        else
            printf("auc task=%s lifetime=undefined\n", a->tasks[i].task);
    }
}

/* Prints what changed in the training options since the model began (trainer/training.h). */
static void print_training(struct report *report)
{
    const struct fr_buffer *section = fr_tool_state_find_section(report->state, FR_SECTION_TRAINING);
    if (!section)
        return;
    struct fr_training *training = fr_alloc(1, sizeof(*training));
    if (fr_trainer_training_parse(section->data, section->size, training) != FR_OK)
        note(report, "the section \"" FR_SECTION_TRAINING "\" does not parse");
    char quoted[QUOTED_MAX];
    for (uint32_t i = 0; i < training->n; i++)
        printf("change epoch=%" PRIu64 " time_ms=%" PRId64 " what=%s\n", training->changes[i].epoch,
               training->changes[i].time_ms, fr_log_quote(quoted, sizeof(quoted), training->changes[i].text));
    if (training->forgotten > 0)
        printf("changes forgotten=%" PRIu64 "\n", training->forgotten);
    fr_trainer_training_release(training);
    free(training);
}

static void print_value(const char *name, double value)
{
    if (isfinite(value))
        printf(" %s=%.6g", name, value);
    else
        printf(" %s=undefined", name);
}

static void print_result(const char *task, const char *half_life, const struct fr_auc_result *result)
{
    printf("metrics task=%s half_life=%s", task, half_life);
    print_value("auc", result->auc);
    print_value("logloss", result->logloss);
    print_value("calibration", result->calibration);
    print_value("positive_rate", result->positive_rate);
    print_value("prediction_mean", result->prediction_mean);
    if (isfinite(result->mse))
        print_value("mse", result->mse);
    else
        print_value("outside", result->outside);
    print_value("weight", result->weight);
    printf("\n");
}

static void print_gauc(const char *task, const char *half_life, const struct fr_gauc_result *result)
{
    printf("gauc task=%s half_life=%s", task, half_life);
    print_value("auc", result->auc);
    print_value("error_max", result->error_max);
    printf(" groups=%" PRIu64, result->groups);
    print_value("weight", result->weight);
    printf("\n");
}

static void print_task(void *self, const struct fr_tool_metrics_task *task)
{
    (void)self;
    const struct fr_task_result *result = &task->result;
    char half_life[24];
    for (uint32_t i = 0; i < result->n_half_lives; i++) {
        fr_tool_duration_text(result->half_life_ms[i], half_life);
        print_result(task->name, half_life, &result->decayed[i]);
    }
    print_result(task->name, "lifetime", &result->lifetime);
    if (result->served.weight > 0)
        print_result(task->name, "served", &result->served);
    if (!result->has_gauc)
        return;
    for (uint32_t i = 0; i < result->n_half_lives; i++) {
        fr_tool_duration_text(result->half_life_ms[i], half_life);
        print_gauc(task->name, half_life, &result->gauc_decayed[i]);
    }
    print_gauc(task->name, "lifetime", &result->gauc);
}

static void print_metrics(struct report *report)
{
    struct fr_err err = {0};
    if (fr_tool_visit_metrics(report->state, print_task, NULL, &err) != FR_OK)
        note(report, err.text);
}

static void print_positions(struct report *report)
{
    struct fr_positions positions = {0};
    struct fr_err err = {0};
    if (fr_tool_positions_section(report->state, &positions, &err) != FR_OK) {
        note(report, err.text);
        return;
    }
    if (positions.cluster_id[0])
        printf("cluster id=%s\n", positions.cluster_id);
    for (uint32_t i = 0; i < positions.count; i++) {
        const struct fr_partition_position *p = &positions.partitions[i];
        printf("position topic=%s partition=%" PRId32 " offset=%" PRId64 " item=%" PRIu32, p->topic, p->partition,
               p->offset, p->item);
        for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
            printf(" %s=%" PRIu64, fr_positions_ledger[k].name, p->ledger[k]);
        for (uint32_t k = 0; k < p->n_skips; k++)
            printf("%s%" PRId64 "-%" PRId64, k ? "," : " skips=", p->skips[k].first, p->skips[k].last);
        printf("\n");
    }
    if (!fr_positions_balanced(&positions, &err))
        note(report, err.text);
    fr_positions_release(&positions);
}

/* Checks that every parameter is complete and finite. */
static void check_dense(struct report *report)
{
    uint64_t parameters = 0, values = 0;
    for (size_t s = 0; s < report->state->n_sections; s++) {
        const struct fr_tool_state_section *section = &report->state->sections[s];
        struct fr_dense_view view;
        if (!fr_is_dense_section(section->name))
            continue;
        if (fr_dense_parse(section->name, section->bytes.data, section->bytes.size, &view) != FR_OK) {
            note(report, "a section of a dense parameter does not parse");
            continue;
        }
        parameters++;
        values += view.n_values;
        for (uint64_t i = 0; i < view.n_values; i++)
            if (!isfinite(fr_load_f32((const uint8_t *)view.values + i * sizeof(float)))) {
                note(report, "a dense parameter is not finite");
                break;
            }
    }
    if (!fr_tool_state_find_section(report->state, "dense_state"))
        note(report, "the section \"dense_state\" is missing");
    printf("dense parameters=%" PRIu64 " values=%" PRIu64 "\n", parameters, values);
}

static int print_state(const char *dir, const struct fr_tool_state *state)
{
    struct report report = {.state = state};
    char quoted[QUOTED_MAX];
    print_first_line(&report, dir);
    put_size(dir, "journal");
    put_size(dir, "cold");
    if (state->status.epoch > 0) {
        print_model(state);
        print_training(&report);
        print_tables(&report);
        check_dense(&report);
        print_announcement(state);
        print_metrics(&report);
        print_positions(&report);
    }
    if (report.problem[0])
        printf("checks passed=false problem=%s\n", fr_log_quote(quoted, sizeof(quoted), report.problem));
    else
        printf("checks passed=true checked=chain,cold,sections,ledger%s\n",
               state->depth == FR_STATE_PRIVATE ? ",images" : "");
    return report.problem[0] ? FR_TOOL_FAILED : FR_TOOL_OK;
}

static int print_damage(const char *dir, const struct fr_err *err)
{
    char quoted[QUOTED_MAX], where[QUOTED_MAX];
    printf("state dir=%s readable=false\n", fr_log_quote(where, sizeof(where), dir));
    put_size(dir, "journal");
    put_size(dir, "cold");
    printf("checks passed=false problem=%s\n", fr_log_quote(quoted, sizeof(quoted), err->text));
    fprintf(stderr, "freshet state: %s\n", err->text);
    return FR_TOOL_FAILED;
}

int fr_tool_state(int argc, char **argv)
{
    bool images = false;
    const char *dir = NULL;
    const struct fr_tool_option options[] = {{.name = "--images", .flag = &images},
                                             {.name = "--state-dir", .value = &dir}};
    /* The directory is the only argument without a name. */
    char *rest[8];
    int n = 0;
    for (int i = 0; i < argc && n < (int)FR_ARRAY_LEN(rest); i++) {
        if (i > 0 && !dir && argv[i][0] != '-' && strcmp(argv[i - 1], "--state-dir") != 0)
            dir = argv[i];
        else
            rest[n++] = argv[i];
    }
    int parsed = fr_tool_options_parse(n, rest, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    if (!dir) {
        fprintf(stderr, "freshet state: which directory?\n\n%s", usage);
        return FR_TOOL_USAGE;
    }
    struct fr_err err = {0};
    struct fr_tool_state *state = NULL;
    enum fr_status status = fr_tool_state_open(dir, images ? FR_STATE_PRIVATE : FR_STATE_SECTIONS, &state, &err);
    int result = status == FR_OK ? print_state(dir, state) : print_damage(dir, &err);
    fr_tool_state_close(state);
    return fflush(stdout) == 0 ? result : FR_TOOL_FAILED;
}
