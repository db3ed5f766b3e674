/* Reads the sections of an epoch that one module owns: the tool prints them, nobody else needs
 * their insides. Layouts are those that trainer/restore.c and store/section.h state; a change there
 * shows here as a version or a size that does not fit. The section "metrics" is read by metrics
 * itself (metrics/task.h). Thread: any. */
#include "state/state_sections.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "state/state_reader.h"

enum {
    STORE_VERSION = 2,
    STORE_TABLE_BYTES = FR_STORE_COUNTERS * 8 + 4,
    STORE_CARRIED_BYTES = 24,
};

const char *const fr_tool_store_counter_names[FR_STORE_COUNTERS] = {
    "rows",         "pending",      "admitted",     "rejected",      "forgotten",        "unremembered",
    "expired_none", "expired_idle", "expired_weak", "expired_score", "expired_capacity", "expired_manual"};

static enum fr_status refuse(enum fr_status status, const char *name, struct fr_err *err)
{
    return fr_err_set(err, status, "the section \"%s\" %s", name,
                      status == FR_E_MISMATCH ? "has another version than this program reads" : "does not parse");
}

enum fr_status fr_tool_trainer_section(const struct fr_buffer *section, struct fr_trainer_section *out,
                                       struct fr_err *err)
{
    enum fr_status status = fr_trainer_section_parse(section->data, section->size, out);
    return status == FR_OK ? FR_OK : refuse(status, "trainer", err);
}

enum fr_status fr_tool_store_section_parse(const struct fr_buffer *section, struct fr_tool_store_section *out,
                                           struct fr_err *err)
{
    struct fr_reader reader = {.at = section->data, .end = section->data + section->size};
    struct fr_tool_store_section read = {0};
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
        fr_tool_store_section_release(&read);
        return refuse(FR_E_CORRUPT, "store", err);
    }
    *out = read;
    return FR_OK;
}

struct fr_tool_store_carried fr_tool_store_section_carried(const struct fr_tool_store_section *section, uint64_t i)
{
    const uint8_t *at = section->carried + i * STORE_CARRIED_BYTES;
    return (struct fr_tool_store_carried){.table = fr_load_u32(at),
                                          .key = fr_load_u64(at + 4),
                                          .seen_ms = (int64_t)fr_load_u64(at + 12),
                                          .count = fr_load_u32(at + 20)};
}

void fr_tool_store_section_release(struct fr_tool_store_section *section)
{
    free(section->tables);
    *section = (struct fr_tool_store_section){0};
}

static enum fr_status read_task(const struct fr_tool_state *state, const struct fr_metrics_section *listed,
                                struct fr_tool_metrics_task *out)
{
    char name[FR_SECTION_NAME_MAX];
    if (listed->name_size >= sizeof(out->name))
        return FR_E_CORRUPT;
    memcpy(out->name, listed->name, listed->name_size);
    snprintf(name, sizeof(name), FR_SECTION_METRICS_TASK "%s", out->name);
    const struct fr_buffer *image = fr_tool_state_find_section(state, name);
    if (!image)
        return FR_E_CORRUPT;
    out->image_hash = fr_xxh3(image->data, image->size);
    return fr_task_metrics_read(image->data, image->size, listed->as_of_ms, &out->result);
}

enum fr_status fr_tool_visit_metrics(const struct fr_tool_state *state,
                                     void (*visit)(void *self, const struct fr_tool_metrics_task *task), void *self,
                                     struct fr_err *err)
{
    const struct fr_buffer *section = fr_tool_state_find_section(state, "metrics");
    struct fr_metrics_section tasks;
    if (!section)
        return fr_err_set(err, FR_E_CORRUPT, "the section \"metrics\" is missing");
    enum fr_status status = fr_metrics_section_open(section->data, section->size, &tasks);
    while (status == FR_OK && (status = fr_metrics_section_next(&tasks)) == FR_OK) {
        struct fr_tool_metrics_task task = {0};
        status = read_task(state, &tasks, &task);
        if (status == FR_OK)
            visit(self, &task);
    }
    return status == FR_EOF ? FR_OK : refuse(status, "metrics", err);
}
