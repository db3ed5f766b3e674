/* The metrics of one task and the section that keeps them (see metrics/task.h for the contract).
 * Samples are looked at in blocks, so that their weights need no memory of a batch's size.
 *
 * Not here: what AUC is (auc.c), groups (gauc.c). */
#include "metrics/task.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum {
    BLOCK = 256,
    USE_METRICS = 2, /* FR_USE_METRICS of batch/batch.h, which metrics does not know */
    /* above any count of tasks, with which the first form of the section began */
    SECTION_VERSION = 0x104,
};

struct fr_task_metrics {
    struct fr_task_metrics_options options;
    struct fr_auc *auc;
    struct fr_auc *served; /* lifetime only */
    struct fr_gauc *gauc;  /* NULL: none */
};

struct fr_task_metrics *fr_task_metrics_new(const struct fr_task_metrics_options *options)
{
    struct fr_task_metrics *task = fr_alloc(1, sizeof(*task));
    task->options = *options;
    struct fr_auc_options auc = {.scores = options->regression ? FR_AUC_VALUES : FR_AUC_LOGITS,
                                 .n_half_lives = options->n_half_lives};
    memcpy(auc.half_life_ms, options->half_life_ms, sizeof(auc.half_life_ms));
    task->auc = fr_auc_new(&auc);
    task->served =
        fr_auc_new(&(struct fr_auc_options){.scores = options->regression ? FR_AUC_VALUES : FR_AUC_PROBABILITIES});
    if (options->gauc_groups_max > 0 && !options->regression) {
        struct fr_gauc_options gauc = {
            .salt = options->gauc_salt, .groups_max = options->gauc_groups_max, .n_half_lives = options->n_half_lives};
        memcpy(gauc.half_life_ms, options->half_life_ms, sizeof(gauc.half_life_ms));
        task->gauc = fr_gauc_new(&gauc);
    }
    return task;
}

void fr_task_metrics_free(struct fr_task_metrics *task)
{
    if (!task)
        return;
    fr_auc_free(task->auc);
    fr_auc_free(task->served);
    fr_gauc_free(task->gauc);
    free(task);
}

/* Returns the weight of a sample; 0: the sample does not count. */
static double weight_of(const struct fr_task_metrics *task, const struct fr_task_samples *samples, size_t i)
{
    float label = samples->labels[i];
    /* NaN: neither */
    bool has_label = task->options.regression ? isfinite(label) != 0 : label >= 0 && label <= 1;
    if (!(samples->use[i] & USE_METRICS) || !has_label || !(samples->weights[i] > 0))
        return 0;
    return (double)samples->weights[i] / (samples->keep ? (double)samples->keep[i] : 1.0);
}

static bool is_served(const struct fr_task_metrics *task, float score)
{
    return task->options.regression ? isfinite(score) != 0 : score >= 0 && score <= 1;
}

static void add_groups(struct fr_gauc *gauc, const struct fr_task_samples *samples, size_t from,
                       const struct fr_auc_samples *block)
{
    /* time moves with samples only: an image that lacks none is the newest */
    bool advanced = false;
    for (size_t k = 0; k < block->count; k++) {
        size_t entry = samples->entry_of ? samples->entry_of[from + k] : from + k;
        uint32_t begin = samples->group_begin[entry];
        if (!(block->weights[k] > 0) || begin == samples->group_begin[entry + 1])
            continue;
        if (!advanced)
            fr_gauc_advance(gauc, block->watermark_ms);
        advanced = true;
        fr_gauc_add(gauc, &(struct fr_gauc_sample){.key = samples->group_keys[begin],
                                                   .score = block->scores[k],
                                                   .label = block->labels[k],
                                                   .weight = block->weights[k],
                                                   .t_ms = block->t_ms[k]});
    }
}

static void add_block(struct fr_task_metrics *task, const struct fr_task_samples *samples, size_t from, size_t count)
{
    double weights[BLOCK];
    for (size_t k = 0; k < count; k++)
        weights[k] = weight_of(task, samples, from + k);
    struct fr_auc_samples block = {.count = count,
                                   .scores = samples->scores + from,
                                   .labels = samples->labels + from,
                                   .weights = weights,
                                   .t_ms = samples->t_ms + from,
                                   .watermark_ms = samples->watermark_ms};
    fr_auc_add(task->auc, &block);
    if (task->gauc && samples->group_begin)
        add_groups(task->gauc, samples, from, &block);
    if (samples->served) {
        block.scores = samples->served + from;
        for (size_t k = 0; k < count; k++)
            weights[k] = is_served(task, block.scores[k]) ? weights[k] : 0;
        fr_auc_add(task->served, &block);
    }
}

void fr_task_metrics_add(struct fr_task_metrics *task, const struct fr_task_samples *samples)
{
    for (size_t from = 0; from < samples->count; from += BLOCK)
        add_block(task, samples, from, samples->count - from < BLOCK ? samples->count - from : BLOCK);
}

void fr_task_metrics_result(const struct fr_task_metrics *task, struct fr_task_result *out)
{
    memset(out, 0, sizeof(*out));
    out->regression = task->options.regression;
    out->n_half_lives = task->options.n_half_lives;
    memcpy(out->half_life_ms, task->options.half_life_ms, sizeof(out->half_life_ms));
    for (uint32_t h = 0; h < out->n_half_lives; h++) {
        fr_auc_result(task->auc, (int)h, &out->decayed[h]);
        fr_auc_curve(task->auc, (int)h, &out->curves[h]);
    }
    fr_auc_result(task->auc, -1, &out->lifetime);
    fr_auc_result(task->served, -1, &out->served);
    out->has_gauc = task->gauc != NULL;
    if (!task->gauc)
        return;
    for (uint32_t h = 0; h < out->n_half_lives; h++)
        fr_gauc_result(task->gauc, (int)h, &out->gauc_decayed[h]);
    fr_gauc_result(task->gauc, -1, &out->gauc);
}

void fr_task_metrics_lifetime(const struct fr_task_metrics *task, struct fr_auc_result *out)
{
    fr_auc_result(task->auc, -1, out);
}

/* ---- section "metrics" ---- */

/* u32 version, u32 tasks; per task u32 name size, name, i64 as of. */

void fr_metrics_section_add(struct fr_metrics_section *section, const char *name, const struct fr_task_metrics *task)
{
    FR_CHECK(section->n_tasks < FR_METRICS_TASKS_MAX && strlen(name) < FR_METRICS_NAME_MAX);
    struct fr_metrics_listed *listed = &section->tasks[section->n_tasks++];
    memcpy(listed->name, name, strlen(name) + 1);
    listed->as_of_ms = fr_auc_as_of_ms(task->auc);
}

const struct fr_metrics_listed *fr_metrics_section_find(const struct fr_metrics_section *section, const char *name)
{
    for (uint32_t i = 0; i < section->n_tasks; i++)
        if (strcmp(section->tasks[i].name, name) == 0)
            return &section->tasks[i];
    return NULL;
}

void fr_metrics_section_encode(const struct fr_metrics_section *section, struct fr_buffer *out)
{
    fr_put_u32(out, SECTION_VERSION);
    fr_put_u32(out, section->n_tasks);
    for (uint32_t i = 0; i < section->n_tasks; i++) {
        const struct fr_metrics_listed *listed = &section->tasks[i];
        fr_put_u32(out, (uint32_t)strlen(listed->name));
        fr_buffer_append(out, listed->name, strlen(listed->name));
        fr_put_u64(out, (uint64_t)listed->as_of_ms);
    }
}

/* A u32 size and as many bytes. */
static const uint8_t *take_sized(struct fr_reader *reader, size_t *size)
{
    *size = fr_take_u32(reader);
    return fr_take(reader, *size);
}

enum fr_status fr_metrics_section_parse(const uint8_t *bytes, size_t size, struct fr_metrics_section *out)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    struct fr_metrics_section read = {0};
    if (fr_take_u32(&reader) != SECTION_VERSION)
        return reader.failed ? FR_E_CORRUPT : FR_E_MISMATCH;
    read.n_tasks = fr_take_u32(&reader);
    if (read.n_tasks > FR_METRICS_TASKS_MAX)
        return FR_E_CORRUPT;
    for (uint32_t i = 0; i < read.n_tasks; i++) {
        size_t name_size;
        const uint8_t *name = take_sized(&reader, &name_size);
        if (!name || name_size >= FR_METRICS_NAME_MAX)
            return FR_E_CORRUPT;
        memcpy(read.tasks[i].name, name, name_size);
        read.tasks[i].as_of_ms = (int64_t)fr_take_u64(&reader);
    }
    if (reader.failed || reader.at != reader.end)
        return FR_E_CORRUPT;
    *out = read;
    return FR_OK;
}

/* ---- image of a task ---- */

/* Three parts (auc, served, gauc), each u32 size and the image of its module; size 0: none. */

uint64_t fr_task_metrics_changes(const struct fr_task_metrics *task)
{
    /* A group gains a sample only together with `auc`. */
    return fr_auc_changes(task->auc) + fr_auc_changes(task->served);
}

static size_t begin_sized(struct fr_buffer *out)
{
    fr_put_u32(out, 0);
    return out->size;
}

static void end_sized(struct fr_buffer *out, size_t begin)
{
    uint32_t size = (uint32_t)(out->size - begin);
    memcpy(out->data + begin - sizeof(size), &size, sizeof(size));
}

void fr_task_metrics_encode(const struct fr_task_metrics *task, struct fr_buffer *out)
{
    size_t part = begin_sized(out);
    fr_auc_encode(task->auc, out);
    end_sized(out, part);
    part = begin_sized(out);
    fr_auc_encode(task->served, out);
    end_sized(out, part);
    part = begin_sized(out);
    if (task->gauc)
        fr_gauc_encode(task->gauc, out);
    end_sized(out, part);
}

enum part { PART_AUC, PART_SERVED, PART_GAUC, PARTS };

struct parts {
    const uint8_t *bytes[PARTS];
    size_t size[PARTS];
};

static bool take_parts(const uint8_t *image, size_t size, struct parts *out)
{
    struct fr_reader reader = {.at = image, .end = image + size};
    for (int i = 0; i < PARTS; i++)
        out->bytes[i] = take_sized(&reader, &out->size[i]);
    return !reader.failed && reader.at == reader.end;
}

static enum fr_status worse(enum fr_status a, enum fr_status b)
{
    return a == FR_E_CORRUPT || b == FR_E_CORRUPT ? FR_E_CORRUPT : a != FR_OK ? a : b;
}

enum fr_status fr_task_metrics_parse(struct fr_task_metrics *task, const uint8_t *image, size_t size, int64_t as_of_ms)
{
    struct parts parts;
    if (!take_parts(image, size, &parts))
        return FR_E_CORRUPT;
    enum fr_status status = fr_auc_parse(task->auc, parts.bytes[PART_AUC], parts.size[PART_AUC]);
    status = worse(status, fr_auc_parse(task->served, parts.bytes[PART_SERVED], parts.size[PART_SERVED]));
    if (task->gauc)
        status = worse(status, parts.size[PART_GAUC] == 0
                                   ? FR_E_MISMATCH /* there was no grouping */
                                   : fr_gauc_parse(task->gauc, parts.bytes[PART_GAUC], parts.size[PART_GAUC]));
    fr_auc_set_as_of_ms(task->auc, as_of_ms);
    return status;
}

enum fr_status fr_task_metrics_read(const uint8_t *image, size_t size, int64_t as_of_ms, struct fr_task_result *out)
{
    struct parts parts;
    struct fr_auc_options auc;
    struct fr_gauc_options gauc = {0};
    struct fr_task_metrics_options options = {0};
    if (!take_parts(image, size, &parts) ||
        fr_auc_image_options(parts.bytes[PART_AUC], parts.size[PART_AUC], &auc) != FR_OK)
        return FR_E_CORRUPT;
    if (parts.size[PART_GAUC] > 0 &&
        fr_gauc_image_options(parts.bytes[PART_GAUC], parts.size[PART_GAUC], &gauc) != FR_OK)
        return FR_E_CORRUPT;
    options.gauc_salt = gauc.salt;
    options.gauc_groups_max = gauc.groups_max;
    options.regression = auc.scores == FR_AUC_VALUES;
    options.n_half_lives = auc.n_half_lives;
    memcpy(options.half_life_ms, auc.half_life_ms, sizeof(options.half_life_ms));
    struct fr_task_metrics *task = fr_task_metrics_new(&options);
    enum fr_status status = fr_task_metrics_parse(task, image, size, as_of_ms);
    if (status == FR_OK)
        fr_task_metrics_result(task, out);
    fr_task_metrics_free(task);
    return status == FR_OK ? FR_OK : FR_E_CORRUPT;
}
