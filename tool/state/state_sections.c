/* See state_sections.h. Thread: any. */
#include "state/state_sections.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
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

static bool is_store_section(const struct fr_tool_state_section *section)
{
    uint32_t domain;
    return fr_store_section_is(section->name, FR_SECTION_STORE, &domain);
}

bool fr_tool_has_store_section(const struct fr_tool_state *state)
{
    for (size_t i = 0; i < state->n_sections; i++)
        if (is_store_section(&state->sections[i]))
            return true;
    return false;
}

static void add_table(struct fr_store_section_table *sum, const struct fr_store_section_table *part)
{
    for (size_t i = 0; i < FR_STORE_COUNTS; i++)
        sum->counts.of[i] += part->counts.of[i];
    for (uint32_t s = 0; s < FR_SHARDS; s++) {
        sum->rows[s] += part->rows[s];
        sum->pending[s] += part->pending[s];
    }
    if (sum->slice_bits != part->slice_bits)
        sum->slice_bits = (uint32_t)fr_fmix64((uint64_t)sum->slice_bits << 32 | part->slice_bits);
}

/* Takes the section of the first domain as it is, and adds the others. Releases `part`. */
static enum fr_status add_domain(struct fr_store_section *sum, struct fr_store_section *part)
{
    if (!sum->tables) {
        *sum = *part;
        return FR_OK;
    }
    enum fr_status status = sum->n_tables == part->n_tables ? FR_OK : FR_E_CORRUPT;
    for (uint32_t t = 0; t < sum->n_tables && status == FR_OK; t++)
        add_table(&sum->tables[t], &part->tables[t]);
    sum->carried = fr_realloc(sum->carried, sum->n_carried + part->n_carried + 1, sizeof(*sum->carried));
    memcpy(sum->carried + sum->n_carried, part->carried, part->n_carried * sizeof(*part->carried));
    sum->n_carried += part->n_carried;
    fr_store_section_release(part);
    return status;
}

enum fr_status fr_tool_store_section(const struct fr_tool_state *state, struct fr_store_section *out,
                                     struct fr_err *err)
{
    enum fr_status status = FR_E_NOT_FOUND;
    struct fr_store_section sum = {0};
    for (size_t i = 0; i < state->n_sections; i++) {
        struct fr_store_section part;
        const struct fr_buffer *bytes = &state->sections[i].bytes;
        if (!is_store_section(&state->sections[i]))
            continue;
        status = fr_store_section_parse(bytes->data, bytes->size, &part);
        if (status == FR_OK)
            status = add_domain(&sum, &part);
        if (status != FR_OK)
            break;
    }
    if (status == FR_OK)
        *out = sum;
    else
        fr_store_section_release(&sum);
    return refuse(status, FR_SECTION_STORE, err);
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
