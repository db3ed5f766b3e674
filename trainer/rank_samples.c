/* See rank_samples.h. A message: u32 samples, u32 tasks, u32 flags, u32 0; then columns: event
 * times (i64), with HAS_GROUPS the keys by which GAUC groups (u64), keep rates (f32), for each task
 * scores, labels, weights and, with HAS_SERVED, served scores (f32); and bytes: use, and with
 * HAS_GROUPS whether there is a key. */
#include "rank_samples.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/check.h"

enum { HAS_GROUPS = 1, HAS_SERVED = 2 };

struct fr_rank_samples {
    uint32_t n_tasks;
    bool grouped, any_served;
    size_t n;
    struct fr_buffer t_ms, keep, use, group_begin, group_keys;
    struct task_columns {
        struct fr_buffer scores, labels, weights, served;
    } tasks[FR_TASKS_MAX];
};

struct fr_rank_samples *fr_rank_samples_new(const struct fr_conf *conf)
{
    struct fr_rank_samples *samples = fr_alloc(1, sizeof(*samples));
    samples->n_tasks = conf->n_tasks;
    samples->grouped = conf->metrics.gauc_by != FR_NO_INDEX;
    return samples;
}

void fr_rank_samples_free(struct fr_rank_samples *samples)
{
    if (!samples)
        return;
    struct fr_buffer *const columns[] = {&samples->t_ms, &samples->keep, &samples->use, &samples->group_begin,
                                         &samples->group_keys};
    for (size_t i = 0; i < FR_ARRAY_LEN(columns); i++)
        fr_buffer_release(columns[i]);
    for (uint32_t t = 0; t < samples->n_tasks; t++) {
        struct task_columns *task = &samples->tasks[t];
        struct fr_buffer *const own[] = {&task->scores, &task->labels, &task->weights, &task->served};
        for (size_t i = 0; i < FR_ARRAY_LEN(own); i++)
            fr_buffer_release(own[i]);
    }
    free(samples);
}

/* ---- writing ---- */

/* Returns where the key is by which a sample is grouped; NULL: it has none. */
static const uint64_t *group_key(const struct fr_column *column, const struct fr_batch *batch, uint32_t sample)
{
    uint32_t entry = column->shared ? batch->group_of[sample] : sample;
    return column->begin[entry] < column->begin[entry + 1] ? &column->keys[column->begin[entry]] : NULL;
}

void fr_rank_samples_put(const struct fr_conf *conf, const struct fr_batch *batch, const float *const *scores,
                         struct fr_buffer *out)
{
    const struct fr_column *group =
        conf->metrics.gauc_by != FR_NO_INDEX ? &batch->columns[conf->metrics.gauc_by] : NULL;
    size_t n = batch->n_samples, floats = n * sizeof(float);
    fr_put_u32(out, batch->n_samples);
    fr_put_u32(out, conf->n_tasks);
    fr_put_u32(out, (group ? HAS_GROUPS : 0) | (batch->served ? HAS_SERVED : 0));
    fr_put_u32(out, 0);
    fr_buffer_append(out, batch->t_ms, n * sizeof(int64_t));
    for (uint32_t i = 0; group && i < n; i++) {
        const uint64_t *key = group_key(group, batch, i);
        fr_put_u64(out, key ? *key : 0);
    }
    fr_buffer_append(out, batch->keep, floats);
    for (uint32_t t = 0; t < conf->n_tasks; t++) {
        size_t label = (size_t)conf->tasks[t].label * batch->capacity_samples;
        fr_buffer_append(out, scores[t], floats);
        fr_buffer_append(out, batch->labels + label, floats);
        fr_buffer_append(out, batch->weights + label, floats);
        if (batch->served)
            fr_buffer_append(out, batch->served + (size_t)t * batch->capacity_samples, floats);
    }
    fr_buffer_append(out, batch->use, n);
    for (uint32_t i = 0; group && i < n; i++)
        fr_put_u8(out, group_key(group, batch, i) != NULL);
}

/* ---- reading ---- */

bool fr_rank_times_valid(struct fr_bytes in)
{
    bool valid = in.size % sizeof(int64_t) == 0 && (in.data || in.size == 0);
    for (size_t at = 0; valid && at < in.size; at += sizeof(int64_t))
        valid = (int64_t)fr_load_u64(in.data + at) > 0;
    return valid;
}

void fr_rank_samples_clear(struct fr_rank_samples *samples)
{
    samples->n = 0;
    samples->any_served = false;
    struct fr_buffer *const columns[] = {&samples->t_ms, &samples->keep, &samples->use, &samples->group_begin,
                                         &samples->group_keys};
    for (size_t i = 0; i < FR_ARRAY_LEN(columns); i++)
        fr_buffer_clear(columns[i]);
    fr_put_u32(&samples->group_begin, 0);
    for (uint32_t t = 0; t < samples->n_tasks; t++) {
        struct task_columns *task = &samples->tasks[t];
        fr_buffer_clear(&task->scores);
        fr_buffer_clear(&task->labels);
        fr_buffer_clear(&task->weights);
        fr_buffer_clear(&task->served);
    }
}

static void append_missing(struct fr_buffer *out, size_t n)
{
    const float missing = NAN;
    for (size_t i = 0; i < n; i++)
        fr_buffer_append(out, &missing, sizeof(missing));
}

static void add_groups(struct fr_rank_samples *samples, size_t n, const uint8_t *keys, const uint8_t *has)
{
    for (size_t i = 0; i < n; i++) {
        if (has[i])
            fr_buffer_append(&samples->group_keys, keys + i * sizeof(uint64_t), sizeof(uint64_t));
        fr_put_u32(&samples->group_begin, (uint32_t)(samples->group_keys.size / sizeof(uint64_t)));
    }
}

enum fr_status fr_rank_samples_take(struct fr_rank_samples *samples, struct fr_bytes in, uint32_t rank,
                                    struct fr_err *err)
{
    struct fr_reader reader = {.at = in.data, .end = in.data + in.size};
    size_t n = fr_take_u32(&reader);
    uint32_t n_tasks = fr_take_u32(&reader), flags = fr_take_u32(&reader), zero = fr_take_u32(&reader);
    bool grouped = flags & HAS_GROUPS, served = flags & HAS_SERVED;
    size_t each = sizeof(int64_t) + sizeof(float) + 1 + (grouped ? sizeof(uint64_t) + 1 : 0) +
                  samples->n_tasks * (served ? 4 : 3) * sizeof(float);
    if (reader.failed || n_tasks != samples->n_tasks || zero != 0 || flags > (HAS_GROUPS | HAS_SERVED) ||
        grouped != samples->grouped || (size_t)(reader.end - reader.at) != n * each)
        return fr_err_set(err, FR_E_CORRUPT, "rank %" PRIu32 " sent no message with samples, or one that is cut", rank);
    size_t floats = n * sizeof(float);
    struct fr_bytes times = {fr_take(&reader, n * sizeof(int64_t)), n * sizeof(int64_t)};
    if (!fr_rank_times_valid(times))
        return fr_err_set(err, FR_E_CORRUPT, "rank %" PRIu32 " sent samples with an event time that is not above 0",
                          rank);
    fr_buffer_append(&samples->t_ms, times.data, times.size);
    const uint8_t *keys = grouped ? fr_take(&reader, n * sizeof(uint64_t)) : NULL;
    fr_buffer_append(&samples->keep, fr_take(&reader, floats), floats);
    for (uint32_t t = 0; t < n_tasks; t++) {
        struct task_columns *task = &samples->tasks[t];
        fr_buffer_append(&task->scores, fr_take(&reader, floats), floats);
        fr_buffer_append(&task->labels, fr_take(&reader, floats), floats);
        fr_buffer_append(&task->weights, fr_take(&reader, floats), floats);
        if (served)
            fr_buffer_append(&task->served, fr_take(&reader, floats), floats);
        else
            append_missing(&task->served, n);
    }
    fr_buffer_append(&samples->use, fr_take(&reader, n), n);
    if (grouped)
        add_groups(samples, n, keys, fr_take(&reader, n));
    samples->any_served |= served;
    samples->n += n;
    return FR_OK;
}

struct fr_task_samples fr_rank_samples_of(const struct fr_rank_samples *samples, uint32_t task)
{
    const struct task_columns *columns = &samples->tasks[task];
    return (struct fr_task_samples){
        .count = samples->n,
        .scores = (const float *)(const void *)columns->scores.data,
        .labels = (const float *)(const void *)columns->labels.data,
        .weights = (const float *)(const void *)columns->weights.data,
        .keep = (const float *)(const void *)samples->keep.data,
        .use = samples->use.data,
        .served = samples->any_served ? (const float *)(const void *)columns->served.data : NULL,
        .t_ms = (const int64_t *)(const void *)samples->t_ms.data,
        .group_begin = samples->grouped ? (const uint32_t *)(const void *)samples->group_begin.data : NULL,
        .group_keys = (const uint64_t *)(const void *)samples->group_keys.data,
    };
}
