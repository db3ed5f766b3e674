/* A task's metrics as JSON: the one form of GET /auc and `freshet dump --metrics`. Undefined
 * numbers are null. */
#include <inttypes.h>
#include <math.h>

#include "metrics/task.h"

static void put_number(struct fr_buffer *out, const char *name, double value, const char *after)
{
    if (isfinite(value))
        fr_buffer_printf(out, "\"%s\":%.9g%s", name, value, after);
    else
        fr_buffer_printf(out, "\"%s\":null%s", name, after);
}

void fr_auc_result_json(const struct fr_auc_result *result, bool regression, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{");
    put_number(out, "auc", result->auc, ",");
    put_number(out, "logloss", result->logloss, ",");
    put_number(out, "calibration", result->calibration, ",");
    put_number(out, "positive_rate", result->positive_rate, ",");
    put_number(out, "prediction_mean", result->prediction_mean, ",");
    if (regression)
        put_number(out, "mse", result->mse, ",");
    else
        put_number(out, "outside", result->outside, ",");
    put_number(out, "weight", result->weight, "}");
}

/* Without the brace that ends it. */
static void put_gauc(struct fr_buffer *out, const struct fr_gauc_result *result)
{
    fr_buffer_printf(out, "{");
    put_number(out, "auc", result->auc, ",");
    put_number(out, "error_max", result->error_max, ",");
    fr_buffer_printf(out, "\"groups\":%" PRIu64 ",", result->groups);
    put_number(out, "weight", result->weight, "");
}

void fr_task_result_json(const struct fr_task_result *result, const char *const *half_lives, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{\"decayed\":{");
    for (uint32_t h = 0; h < result->n_half_lives; h++) {
        fr_buffer_printf(out, "%s\"%s\":", h ? "," : "", half_lives[h]);
        fr_auc_result_json(&result->decayed[h], result->regression, out);
    }
    fr_buffer_printf(out, "},\"lifetime\":");
    fr_auc_result_json(&result->lifetime, result->regression, out);
    if (result->has_gauc) {
        fr_buffer_printf(out, ",\"gauc\":");
        put_gauc(out, &result->gauc);
        fr_buffer_printf(out, ",\"decayed\":{");
        for (uint32_t h = 0; h < result->n_half_lives; h++) {
            fr_buffer_printf(out, "%s\"%s\":", h ? "," : "", half_lives[h]);
            put_gauc(out, &result->gauc_decayed[h]);
            fr_buffer_printf(out, "}");
        }
        fr_buffer_printf(out, "}}");
    } else {
        fr_buffer_printf(out, ",\"gauc\":null");
    }
    fr_buffer_printf(out, ",\"served\":");
    if (result->served.weight > 0)
        fr_auc_result_json(&result->served, result->regression, out);
    else
        fr_buffer_printf(out, "null");
    fr_buffer_printf(out, "}");
}
