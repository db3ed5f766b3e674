/* See trainer/section.h. */
#include "trainer/section.h"

#include <string.h>

enum { VERSION = 5 };

#define COUNTER(name, metric, help) {#name, metric, help},
const struct fr_trainer_counter fr_trainer_counters[] = {FR_TRAINER_COUNTERS(COUNTER)};

void fr_trainer_section_encode(const struct fr_trainer_history *history, struct fr_buffer *out)
{
    fr_put_u32(out, VERSION);
    for (size_t i = 0; i < FR_TRAINER_COUNTER_COUNT; i++)
        fr_put_u64(out, history->counters[i]);
    fr_put_u64(out, (uint64_t)history->watermark_ms);
    fr_put_u8(out, history->closed);
    fr_put_u32(out, history->bad_streak);
    fr_put_u32(out, history->good_streak);
    fr_put_u32(out, history->bad_streak_samples);
    fr_put_u8(out, history->held);
    fr_put_u64(out, history->publishable);
    fr_put_u8(out, history->dense_published);
    fr_put_u32(out, history->n_tasks);
    for (uint32_t i = 0; i < history->n_tasks; i++) {
        const struct fr_trainer_task_counts *task = &history->tasks[i];
        fr_put_u8(out, (uint8_t)strlen(task->name));
        fr_buffer_append(out, task->name, strlen(task->name));
        fr_put_u64(out, task->samples);
        fr_put_u64(out, task->pairs);
    }
}

static bool take_task(struct fr_reader *reader, struct fr_trainer_task_counts *out)
{
    _Static_assert(FR_NAME_MAX <= UINT8_MAX, "the length of a name is a byte");
    uint8_t size = fr_take_u8(reader);
    const uint8_t *name = size < FR_NAME_MAX ? fr_take(reader, size) : NULL;
    if (!name)
        return false;
    memcpy(out->name, name, size);
    out->samples = fr_take_u64(reader);
    out->pairs = fr_take_u64(reader);
    return !reader->failed;
}

enum fr_status fr_trainer_section_parse(const uint8_t *bytes, size_t size, struct fr_trainer_history *out)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    struct fr_trainer_history read = {0};
    uint32_t version = fr_take_u32(&reader);
    if (!reader.failed && version != VERSION)
        return FR_E_MISMATCH;
    for (size_t i = 0; i < FR_TRAINER_COUNTER_COUNT; i++)
        read.counters[i] = fr_take_u64(&reader);
    read.watermark_ms = (int64_t)fr_take_u64(&reader);
    read.closed = fr_take_u8(&reader) != 0;
    read.bad_streak = fr_take_u32(&reader);
    read.good_streak = fr_take_u32(&reader);
    read.bad_streak_samples = fr_take_u32(&reader);
    read.held = fr_take_u8(&reader) != 0;
    read.publishable = fr_take_u64(&reader);
    read.dense_published = fr_take_u8(&reader) != 0;
    read.n_tasks = fr_take_u32(&reader);
    if (read.n_tasks > FR_TASKS_MAX)
        return FR_E_CORRUPT;
    for (uint32_t i = 0; i < read.n_tasks; i++)
        if (!take_task(&reader, &read.tasks[i]))
            return FR_E_CORRUPT;
    if (reader.failed || reader.at != reader.end)
        return FR_E_CORRUPT;
    *out = read;
    return FR_OK;
}
