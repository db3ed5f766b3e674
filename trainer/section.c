/* See trainer/section.h. */
#include "trainer/section.h"

#include <string.h>

enum { VERSION = 5 };

const char *const fr_trainer_counter_names[FR_TRAINER_COUNTERS] = {
    [FR_TRAINER_BATCHES] = "batches",
    [FR_TRAINER_SAMPLES] = "samples",
    [FR_TRAINER_METRICS_ONLY] = "metrics_only",
    [FR_TRAINER_MASKED] = "masked",
    [FR_TRAINER_QUARANTINED_SAMPLES] = "quarantined_samples",
    [FR_TRAINER_QUARANTINED_BATCHES] = "quarantined_batches",
    [FR_TRAINER_QUARANTINED_SINGLY] = "quarantined_singly",
    [FR_TRAINER_UNKNOWN_SLOTS] = "unknown_slots",
    [FR_TRAINER_UNKNOWN_EXTRA] = "unknown_extra",
    [FR_TRAINER_EXCESS_IDS] = "excess_ids",
};

void fr_trainer_section_encode(const struct fr_trainer_section *section, struct fr_buffer *out)
{
    fr_put_u32(out, VERSION);
    for (size_t i = 0; i < FR_TRAINER_COUNTERS; i++)
        fr_put_u64(out, section->counters[i]);
    fr_put_u64(out, (uint64_t)section->watermark_ms);
    fr_put_u8(out, section->closed);
    fr_put_u32(out, section->quarantined_row);
    fr_put_u32(out, section->good_row);
    fr_put_u32(out, section->quarantined_row_samples);
    fr_put_u8(out, section->held);
    fr_put_u64(out, section->publishable);
    fr_put_u8(out, section->dense_published);
    fr_put_u32(out, section->n_tasks);
    for (uint32_t i = 0; i < section->n_tasks; i++) {
        const struct fr_trainer_task_counts *task = &section->tasks[i];
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

enum fr_status fr_trainer_section_parse(const uint8_t *bytes, size_t size, struct fr_trainer_section *out)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    struct fr_trainer_section read = {0};
    uint32_t version = fr_take_u32(&reader);
    if (!reader.failed && version != VERSION)
        return FR_E_MISMATCH;
    for (size_t i = 0; i < FR_TRAINER_COUNTERS; i++)
        read.counters[i] = fr_take_u64(&reader);
    read.watermark_ms = (int64_t)fr_take_u64(&reader);
    read.closed = fr_take_u8(&reader) != 0;
    read.quarantined_row = fr_take_u32(&reader);
    read.good_row = fr_take_u32(&reader);
    read.quarantined_row_samples = fr_take_u32(&reader);
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
