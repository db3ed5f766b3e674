/* All metrics of one task: which samples count and with what weight, AUC and the other metrics
 * over half-lives and the lifetime, the same metrics of the served scores, and GAUC.
 *
 * Two kinds of sections of an epoch hold this. "metrics" lists the tasks and the time to which
 * each is current; "metrics/<task>" has a task's image, in the epochs in which it changed. All
 * half-lives of a task change together, so they are one image.
 *
 * A sample counts if it is used for metrics (u), its label is present and valid for the task (in
 * [0, 1]; any finite number for a regression), and its weight is positive. If the caller gives
 * keep rates s, its weight is w / s: metrics are then those of the stream before samples were
 * dropped.
 *
 * Thread: one owner. Determinism: the state is a function of the samples in their order (auc.h,
 * gauc.h). */
#ifndef FR_METRICS_TASK_H
#define FR_METRICS_TASK_H

#include <stdbool.h>

#include "base/json.h"
#include "metrics/auc.h"
#include "metrics/gauc.h"

struct fr_task_metrics;

struct fr_task_metrics_options {
    bool regression; /* scores are predictions, not logits: no AUC, no logloss, no GAUC */
    uint32_t n_half_lives;
    int64_t half_life_ms[FR_AUC_HALF_LIVES_MAX];
    uint64_t gauc_salt;       /* names the grouping (gauc.h) */
    uint32_t gauc_groups_max; /* 0: no GAUC */
};

struct fr_task_metrics *fr_task_metrics_new(const struct fr_task_metrics_options *options);
void fr_task_metrics_free(struct fr_task_metrics *task);

/* All arrays [count] unless said otherwise, borrowed for the call. */
struct fr_task_samples {
    size_t count;
    const float *scores; /* finite: logits, or predictions of a regression, made before training */
    const float *labels; /* NaN: masked */
    const float *weights;
    const float *keep;  /* in (0, 1]; NULL: no correction */
    const uint8_t *use; /* bit 2 (FR_USE_METRICS): counts */
    /* probability (regression: prediction) that was served; NaN, or no probability: none; may be
     * NULL */
    const float *served;
    const int64_t *t_ms;
    int64_t watermark_ms;
    /* Group of a sample for GAUC: with e = entry_of[i] (NULL: i) the key
     * group_keys[group_begin[e]], none when group_begin[e] == group_begin[e + 1]. group_begin NULL:
     * none. */
    const uint32_t *entry_of, *group_begin;
    const uint64_t *group_keys;
};
void fr_task_metrics_add(struct fr_task_metrics *task, const struct fr_task_samples *samples);

struct fr_task_result {
    bool regression, has_gauc;
    uint32_t n_half_lives;
    int64_t half_life_ms[FR_AUC_HALF_LIVES_MAX];
    struct fr_auc_result decayed[FR_AUC_HALF_LIVES_MAX];
    struct fr_auc_curve curves[FR_AUC_HALF_LIVES_MAX];
    struct fr_auc_result lifetime;
    struct fr_auc_result served; /* lifetime of served scores; weight 0: no sample had one */
    struct fr_gauc_result gauc_decayed[FR_AUC_HALF_LIVES_MAX];
    struct fr_gauc_result gauc; /* lifetime */
};
void fr_task_metrics_result(const struct fr_task_metrics *task, struct fr_task_result *out);
/* Writes one of its results as an object (`name` as in base/json.h); regression: with mse. */
void fr_auc_result_json(struct fr_json *json, const char *name, const struct fr_auc_result *result, bool regression);
/* Writes the task's object in /auc (docs/http.md, "/auc"); half_lives[i] names decayed[i]. */
void fr_task_result_json(struct fr_json *json, const char *name, const struct fr_task_result *result,
                         const char *const *half_lives);
void fr_task_metrics_lifetime(const struct fr_task_metrics *task, struct fr_auc_result *out);

/* ---- section "metrics": tasks, and the time each is as of ---- */

#define FR_SECTION_METRICS "metrics"

enum { FR_METRICS_TASKS_MAX = 16, FR_METRICS_NAME_MAX = 64 };
struct fr_metrics_section {
    uint32_t n_tasks;
    struct fr_metrics_listed {
        char name[FR_METRICS_NAME_MAX];
        int64_t as_of_ms;
    } tasks[FR_METRICS_TASKS_MAX];
};
void fr_metrics_section_add(struct fr_metrics_section *section, const char *name, const struct fr_task_metrics *task);
/* Returns the task's entry, or NULL if the task is not listed. */
const struct fr_metrics_listed *fr_metrics_section_find(const struct fr_metrics_section *section, const char *name);
void fr_metrics_section_encode(const struct fr_metrics_section *section, struct fr_buffer *out);
/* FR_E_MISMATCH: another version. FR_E_CORRUPT. *out is written on success only. */
enum fr_status fr_metrics_section_parse(const uint8_t *bytes, size_t size,
                                        struct fr_metrics_section *out) FR_MUST_CHECK;

/* ---- section "metrics/<task>": the image of a task ---- */

#define FR_SECTION_METRICS_TASK FR_SECTION_METRICS "/"

/* Grows whenever the image changes. */
uint64_t fr_task_metrics_changes(const struct fr_task_metrics *task);
void fr_task_metrics_encode(const struct fr_task_metrics *task, struct fr_buffer *out);
/* Replaces the state by an image that is current to as_of_ms, the time in the section "metrics".
 * FR_E_MISMATCH: half-lives or the grouping differ; what is not in the image starts empty, and
 * the rest is restored. Other errors: FR_E_CORRUPT. */
enum fr_status fr_task_metrics_parse(struct fr_task_metrics *task, const uint8_t *image, size_t size,
                                     int64_t as_of_ms) FR_MUST_CHECK;
/* Reads the numbers of an image without a configuration. Errors: FR_E_CORRUPT. */
enum fr_status fr_task_metrics_read(const uint8_t *image, size_t size, int64_t as_of_ms,
                                    struct fr_task_result *out) FR_MUST_CHECK;

#endif
