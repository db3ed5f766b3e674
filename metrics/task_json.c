/* A task's metrics as JSON: the one form of GET /auc and `freshet dump --metrics`. Undefined
 * numbers are null. */
#include "metrics/task.h"

void fr_auc_result_json(struct fr_json *json, const char *name, const struct fr_auc_result *result, bool regression)
{
    fr_json_object(json, name);
    fr_json_number(json, "auc", result->auc);
    fr_json_number(json, "logloss", result->logloss);
    fr_json_number(json, "calibration", result->calibration);
    fr_json_number(json, "positive_rate", result->positive_rate);
    fr_json_number(json, "prediction_mean", result->prediction_mean);
    if (regression)
        fr_json_number(json, "mse", result->mse);
    else
        fr_json_number(json, "outside", result->outside);
    fr_json_number(json, "weight", result->weight);
    fr_json_end(json);
}

/* Begins the object of a GAUC, which stays open. */
static void begin_gauc(struct fr_json *json, const char *name, const struct fr_gauc_result *result)
{
    fr_json_object(json, name);
    fr_json_number(json, "auc", result->auc);
    fr_json_number(json, "error_max", result->error_max);
    fr_json_u64(json, "groups", result->groups);
    fr_json_number(json, "weight", result->weight);
}

static void put_gauc(struct fr_json *json, const struct fr_task_result *result, const char *const *half_lives)
{
    begin_gauc(json, "gauc", &result->gauc);
    fr_json_object(json, "decayed");
    for (uint32_t h = 0; h < result->n_half_lives; h++) {
        begin_gauc(json, half_lives[h], &result->gauc_decayed[h]);
        fr_json_end(json);
    }
    fr_json_end(json);
    fr_json_end(json);
}

static void put_curve(struct fr_json *json, const char *name, const struct fr_auc_curve *curve)
{
    fr_json_array(json, name);
    for (uint32_t b = 0; b < curve->n; b++) {
        const struct fr_auc_bucket *bucket = &curve->buckets[b];
        fr_json_object(json, NULL);
        fr_json_number(json, "predicted", bucket->predicted);
        fr_json_number(json, "observed", bucket->observed);
        fr_json_number(json, "low", bucket->low);
        fr_json_number(json, "high", bucket->high);
        fr_json_number(json, "weight", bucket->weight);
        fr_json_end(json);
    }
    fr_json_end(json);
}

static void put_curves(struct fr_json *json, const struct fr_task_result *result, const char *const *half_lives)
{
    fr_json_object(json, "curve");
    for (uint32_t h = 0; h < result->n_half_lives; h++)
        put_curve(json, half_lives[h], &result->curves[h]);
    fr_json_end(json);
}

void fr_task_result_json(struct fr_json *json, const char *name, const struct fr_task_result *result,
                         const char *const *half_lives)
{
    fr_json_object(json, name);
    fr_json_object(json, "decayed");
    for (uint32_t h = 0; h < result->n_half_lives; h++)
        fr_auc_result_json(json, half_lives[h], &result->decayed[h], result->regression);
    fr_json_end(json);
    fr_auc_result_json(json, "lifetime", &result->lifetime, result->regression);
    if (result->regression)
        fr_json_null(json, "curve");
    else
        put_curves(json, result, half_lives);
    if (result->has_gauc)
        put_gauc(json, result, half_lives);
    else
        fr_json_null(json, "gauc");
    if (result->served.weight > 0)
        fr_auc_result_json(json, "served", &result->served, result->regression);
    else
        fr_json_null(json, "served");
    fr_json_end(json);
}
