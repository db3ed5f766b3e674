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

enum fr_status fr_tool_positions_section(const struct fr_tool_state *state, struct fr_positions *out,
                                         struct fr_err *err)
{
    const struct fr_buffer *section = fr_tool_state_find_section(state, "positions");
    return refuse(section ? fr_positions_parse(section->data, section->size, out) : FR_E_NOT_FOUND, "positions", err);
}

enum fr_status fr_tool_visit_metrics(const struct fr_tool_state *state,
                                     void (*visit)(void *self, const struct fr_tool_metrics_task *task), void *self,
                                     struct fr_err *err)
{
    const struct fr_buffer *section = fr_tool_state_find_section(state, FR_SECTION_METRICS);
    struct fr_metrics_section listed = {0};
    enum fr_status status = section ? fr_metrics_section_parse(section->data, section->size, &listed) : FR_E_NOT_FOUND;
    for (uint32_t i = 0; i < listed.n_tasks && status == FR_OK; i++) {
        struct fr_tool_metrics_task task = {.name = listed.tasks[i].name};
        char name[FR_SECTION_NAME_MAX];
        snprintf(name, sizeof(name), FR_SECTION_METRICS_TASK "%s", task.name);
        const struct fr_buffer *image = fr_tool_state_find_section(state, name);
        status = image ? fr_task_metrics_read(image->data, image->size, listed.tasks[i].as_of_ms, &task.result)
                       : FR_E_CORRUPT;
        if (status != FR_OK)
            break;
        task.image_hash = fr_xxh3(image->data, image->size);
        visit(self, &task);
    }
    return refuse(status, FR_SECTION_METRICS, err);
}
