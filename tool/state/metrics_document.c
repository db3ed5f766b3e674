/* The metrics of a state directory in the form of GET /auc. Read-only: also beside a running
 * daemon, then as of its newest durable epoch. Thread: any. */
#include "state/metrics_document.h"

#include <inttypes.h>
#include <stdio.h>

#include "output.h"
#include "state/state_reader.h"
#include "state/state_sections.h"

struct document {
    struct fr_buffer *text;
    bool any;
};

static void put_task(void *self, const struct fr_tool_metrics_task *task)
{
    struct document *document = self;
    const char *names[FR_AUC_HALF_LIVES_MAX];
    char texts[FR_AUC_HALF_LIVES_MAX][24];
    for (uint32_t i = 0; i < task->result.n_half_lives; i++) {
        fr_tool_duration_text(task->result.half_life_ms[i], texts[i]);
        names[i] = texts[i];
    }
    fr_buffer_printf(document->text, "%s\"%s\":", document->any ? "," : "", task->name);
    fr_task_result_json(&task->result, names, document->text);
    document->any = true;
}

static enum fr_status put_document(const struct fr_tool_state *state, struct fr_buffer *out, struct fr_err *err)
{
    struct fr_trainer_history counted;
    enum fr_status status = fr_tool_trainer_section(state, &counted, err);
    if (status != FR_OK)
        return status;
    struct document document = {.text = out};
    fr_buffer_printf(document.text,
                     "{\"model\":\"%s\",\"tl\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"as_of_ms\":", state->settings.model,
                     state->status.timeline, state->status.epoch);
    if (counted.watermark_ms == INT64_MIN)
        fr_buffer_printf(document.text, "null");
    else
        fr_buffer_printf(document.text, "%" PRId64, counted.watermark_ms);
    fr_buffer_printf(document.text, ",\"tasks\":{");
    status = fr_tool_visit_metrics(state, put_task, &document, err);
    fr_buffer_printf(document.text, "}}\n");
    return status;
}

enum fr_status fr_tool_metrics_document(const char *dir, struct fr_buffer *out, struct fr_err *err)
{
    struct fr_tool_state *state = NULL;
    enum fr_status status = fr_tool_state_open(dir, FR_STATE_SECTIONS, &state, err);
    if (status == FR_OK && state->status.epoch == 0)
        status = fr_err_set(err, FR_E_NOT_FOUND, "%s holds no epoch yet: it has no metrics", dir);
    if (status == FR_OK)
        status = put_document(state, out, err);
    fr_tool_state_close(state);
    return status;
}
