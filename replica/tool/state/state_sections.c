/* See state_sections.h. Thread: any. */
#include "state/state_sections.h"

#include <stdio.h>

#include "base/hash.h"

static enum fr_status refuse(enum fr_status status, const char *name, struct fr_err *err)
{
    if (status == FR_OK)
        return FR_OK;
    return fr_err_set(err, status == FR_E_NOT_FOUND ? FR_E_CORRUPT : status, "the section \"%s\" %s", name,
                      status == FR_E_MISMATCH    ? "has another version than this program reads"
                      : status == FR_E_NOT_FOUND ? "is missing"
                                                 : "does not parse");
}

enum fr_status fr_tool_trainer_section(const struct fr_tool_state *state, struct fr_trainer_history *out,
                                       struct fr_err *err)
{
    const struct fr_buffer *section = fr_tool_state_find_section(state, "trainer");
    return refuse(section ? fr_trainer_section_parse(section->data, section->size, out) : FR_E_NOT_FOUND, "trainer",
                  err);
}

enum fr_status fr_tool_store_section(const struct fr_tool_state *state, struct fr_store_section *out,
                                     struct fr_err *err)
{
    const struct fr_buffer *section = fr_tool_state_find_section(state, FR_SECTION_STORE);
    return refuse(section ? fr_store_section_parse(section->data, section->size, out) : FR_E_NOT_FOUND,
                  FR_SECTION_STORE, err);
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
        return refuse(FR_E_NOT_FOUND, "metrics", err);
    enum fr_status status = fr_metrics_section_open(section->data, section->size, &tasks);
    while (status == FR_OK && (status = fr_metrics_section_next(&tasks)) == FR_OK) {
        struct fr_tool_metrics_task task = {0};
        status = read_task(state, &tasks, &task);
        if (status == FR_OK)
            visit(self, &task);
    }
    return refuse(status == FR_EOF ? FR_OK : status, "metrics", err);
}
