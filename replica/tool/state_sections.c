/* Reads the sections of an epoch that one module owns: the tool prints them, nobody else needs their insides. Layouts
 * are those that trainer/restore.c, store/section.h and metrics/auc.c state; a change there shows here as a version or
 * a size that does not fit. Numbers of a metric image come from metrics itself (fr_auc_parse). Thread: any. */
#include "state_sections.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

enum {
    TRAINER_VERSION = 1,
    STORE_VERSION = 1,
    STORE_TABLE_BYTES = FR_STORE_COUNTERS * 8 + 4,
    STORE_CARRIED_BYTES = 24,
    AUC_FORMAT = 1,
    AUC_HEAD_BYTES = 8 + 5 * 8, /* half-life, reference, four sums */
    AUC_BIN_BYTES = 20,
};

const char *const fr_trainer_counter_names[FR_TRAINER_COUNTERS] = {
    "batches",       "samples",       "metrics_only", "masked",       "quarantined_samples", "quarantined_batches",
    "unknown_slots", "unknown_extra", "excess_ids",   "unused_fields"};
const char *const fr_store_counter_names[FR_STORE_COUNTERS] = {
    "rows",         "pending",      "admitted",     "rejected",      "forgotten",        "unremembered",
    "expired_none", "expired_idle", "expired_weak", "expired_score", "expired_capacity", "expired_manual"};

static enum fr_status refuse(enum fr_status status, const char *name, struct fr_err *err)
{
    return fr_err_set(err, status, "the section \"%s\" %s", name,
                      status == FR_E_MISMATCH ? "has another version than this program reads" : "does not parse");
}

enum fr_status fr_trainer_section_parse(const struct fr_buffer *section, struct fr_trainer_section *out,
                                        struct fr_err *err)
{
    struct fr_reader reader = {.at = section->data, .end = section->data + section->size};
    struct fr_trainer_section read = {0};
    if (fr_take_u32(&reader) != TRAINER_VERSION)
        return refuse(FR_E_MISMATCH, "trainer", err);
    for (size_t i = 0; i < FR_TRAINER_COUNTERS; i++)
        read.counters[i] = fr_take_u64(&reader);
    read.watermark_ms = (int64_t)fr_take_u64(&reader);
    read.closed = fr_take_u8(&reader) != 0;
    if (reader.failed || reader.at != reader.end)
        return refuse(FR_E_CORRUPT, "trainer", err);
    *out = read;
    return FR_OK;
}

enum fr_status fr_store_section_parse(const struct fr_buffer *section, struct fr_store_section *out, struct fr_err *err)
{
    struct fr_reader reader = {.at = section->data, .end = section->data + section->size};
    struct fr_store_section read = {0};
    if (fr_take_u32(&reader) != STORE_VERSION)
        return refuse(FR_E_MISMATCH, "store", err);
    read.n_tables = fr_take_u32(&reader);
    if (reader.failed || read.n_tables > (size_t)(reader.end - reader.at) / STORE_TABLE_BYTES)
        return refuse(FR_E_CORRUPT, "store", err);
    read.tables = fr_alloc(read.n_tables ? read.n_tables : 1, sizeof(*read.tables));
    for (uint32_t t = 0; t < read.n_tables; t++) {
        for (size_t i = 0; i < FR_STORE_COUNTERS; i++)
            read.tables[t].counters[i] = fr_take_u64(&reader);
        read.tables[t].slice_bits = fr_take_u32(&reader);
    }
    read.n_carried = fr_take_u64(&reader);
    read.carried = reader.at;
    size_t left = (size_t)(reader.end - reader.at);
    if (reader.failed || left % STORE_CARRIED_BYTES != 0 || read.n_carried != left / STORE_CARRIED_BYTES) {
        fr_store_section_release(&read);
        return refuse(FR_E_CORRUPT, "store", err);
    }
    *out = read;
    return FR_OK;
}

struct fr_store_carried fr_store_section_carried(const struct fr_store_section *section, uint64_t i)
{
    const uint8_t *at = section->carried + i * STORE_CARRIED_BYTES;
    return (struct fr_store_carried){.table = fr_load_u32(at),
                                     .key = fr_load_u64(at + 4),
                                     .seen_ms = (int64_t)fr_load_u64(at + 12),
                                     .count = fr_load_u32(at + 20)};
}

void fr_store_section_release(struct fr_store_section *section)
{
    free(section->tables);
    *section = (struct fr_store_section){0};
}

/* The half-lives of an image, in its order; the configuration that named them is not part of a state. */
static bool take_half_lives(const uint8_t *bytes, size_t size, struct fr_metrics_task *out)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    if (fr_take_u32(&reader) != AUC_FORMAT)
        return false;
    out->as_of_ms = (int64_t)fr_take_u64(&reader);
    out->n_half_lives = fr_take_u32(&reader);
    if (reader.failed || out->n_half_lives > FR_AUC_HALF_LIVES_MAX)
        return false;
    for (uint32_t i = 0; i < out->n_half_lives; i++) {
        out->half_life_ms[i] = (int64_t)fr_take_u64(&reader);
        (void)fr_take(&reader, AUC_HEAD_BYTES - 8);
        uint32_t bins = fr_take_u32(&reader);
        (void)fr_take(&reader, (size_t)bins * AUC_BIN_BYTES);
        if (reader.failed || out->half_life_ms[i] <= 0)
            return false;
    }
    return true;
}

static bool take_task(const uint8_t *image, size_t size, struct fr_metrics_task *out)
{
    if (!take_half_lives(image, size, out))
        return false;
    struct fr_auc_options options = {.n_half_lives = out->n_half_lives};
    memcpy(options.half_life_ms, out->half_life_ms, sizeof(options.half_life_ms));
    struct fr_auc *auc = fr_auc_new(&options);
    bool fits = fr_auc_parse(auc, image, size) == FR_OK;
    for (uint32_t i = 0; fits && i < out->n_half_lives; i++)
        fr_auc_result(auc, (int)i, &out->decayed[i]);
    if (fits)
        fr_auc_result(auc, -1, &out->lifetime);
    out->image_hash = fr_xxh3(image, size);
    fr_auc_free(auc);
    return fits;
}

enum fr_status fr_metrics_section_parse(const struct fr_buffer *section,
                                        void (*visit)(void *self, const struct fr_metrics_task *task), void *self,
                                        struct fr_err *err)
{
    struct fr_reader reader = {.at = section->data, .end = section->data + section->size};
    uint32_t n_tasks = fr_take_u32(&reader);
    for (uint32_t i = 0; i < n_tasks && !reader.failed; i++) {
        struct fr_metrics_task task = {0};
        uint32_t name_size = fr_take_u32(&reader);
        const uint8_t *name = fr_take(&reader, name_size);
        uint32_t image_size = fr_take_u32(&reader);
        const uint8_t *image = fr_take(&reader, image_size);
        if (!name || !image || name_size >= sizeof(task.name))
            return refuse(FR_E_CORRUPT, "metrics", err);
        memcpy(task.name, name, name_size);
        if (!take_task(image, image_size, &task))
            return refuse(FR_E_CORRUPT, "metrics", err);
        visit(self, &task);
    }
    return reader.failed || reader.at != reader.end ? refuse(FR_E_CORRUPT, "metrics", err) : FR_OK;
}
