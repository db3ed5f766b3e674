/* The metrics of a state directory in the form of GET /auc. Read-only. A running daemon's state is
 * read as of its newest durable epoch. Thread: any. */
#include "state/metrics_document.h"

#include <stdio.h>

#include "output.h"
#include "state/state_reader.h"
#include "state/state_sections.h"

static void put_task(void *self, const struct fr_tool_metrics_task *task)
{
    const char *names[FR_AUC_HALF_LIVES_MAX];
    char texts[FR_AUC_HALF_LIVES_MAX][24];
    for (uint32_t i = 0; i < task->result.n_half_lives; i++) {
        fr_tool_duration_text(task->result.half_life_ms[i], texts[i]);
        names[i] = texts[i];
    }
    fr_task_result_json(self, task->name, &task->result, names);
}

static enum fr_status put_document(const struct fr_tool_state *state, struct fr_buffer *out, struct fr_err *err)
{
    struct fr_trainer_history counted;
    enum fr_status status = fr_tool_trainer_section(state, &counted, err);
    if (status != FR_OK)
        return status;
    struct fr_json json = {.out = out};
    fr_json_object(&json, NULL);
    fr_json_text(&json, "model", state->settings.model);
    fr_json_u64(&json, "tl", state->status.timeline);
    fr_json_u64(&json, "epoch", state->status.epoch);
    if (counted.watermark_ms == INT64_MIN)
        fr_json_null(&json, "as_of_ms");
    else
        fr_json_i64(&json, "as_of_ms", counted.watermark_ms);
    fr_json_object(&json, "tasks");
    status = fr_tool_visit_metrics(state, put_task, &json, err);
    fr_json_end(&json);
    fr_json_end(&json);
    fr_put_u8(out, '\n');
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
