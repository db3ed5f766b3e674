/* The schedule of insight, and its document (insight/insight.h).
 *
 * A batch is looked at when the training time since the last look is FR_INSIGHT_SHARE times the
 * time of that look, so that looking costs a fixed share with any model and any batches. Where
 * little is trained, there are nevertheless FR_INSIGHT_LOOKS_MIN looks in an interval. Importance
 * has a schedule of its own: batches whose number is a multiple of insight.importance.
 *
 * Not here: what is measured (insight_slots.c, insight_layers.c, importance.c). Owner: the owner
 * loop. */
#include "insight_private.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

enum { MS = 1000000 };

static int32_t first_probability(const struct fr_conf *conf)
{
    for (uint32_t t = 0; t < conf->n_tasks; t++)
        if (fr_loss_prediction(conf->tasks[t].loss) != FR_PREDICTS_VALUE)
            return (int32_t)t;
    return FR_NO_INDEX;
}

/* The shortest and the longest half-life of the metrics. */
static void choose_half_lives(struct fr_insight *insight)
{
    const int64_t *ms = insight->conf->metrics.half_life_ms;
    for (uint32_t h = 1; h < insight->conf->metrics.n_half_lives; h++) {
        if (ms[h] < ms[insight->half_lives[FR_DRIFT_SHORT]])
            insight->half_lives[FR_DRIFT_SHORT] = h;
        if (ms[h] > ms[insight->half_lives[FR_DRIFT_LONG]])
            insight->half_lives[FR_DRIFT_LONG] = h;
    }
}

static uint64_t interval_ns(const struct fr_insight *insight)
{
    return (uint64_t)insight->conf->insight.interval_ms * MS;
}

struct fr_insight *fr_insight_new(const struct fr_insight_options *options)
{
    struct fr_insight *insight = fr_alloc(1, sizeof(*insight));
    insight->options = *options;
    insight->conf = options->conf;
    insight->task = first_probability(options->conf);
    insight->as_of_ms = INT64_MIN;
    choose_half_lives(insight);
    pthread_mutex_init(&insight->published.lock, NULL);
    fr_insight_slots_init(insight);
    fr_insight_layers_init(insight);
    fr_insight_importance_init(insight);
    /* the first document comes early, because people look at a model that has just begun */
    insight->next_renewal_ns = fr_mono_ns(options->clock) + interval_ns(insight) / FR_INSIGHT_LOOKS_MIN;
    return insight;
}

void fr_insight_free(struct fr_insight *insight)
{
    if (!insight)
        return;
    fr_insight_slots_release(insight);
    fr_insight_layers_release(insight);
    fr_insight_importance_release(insight);
    fr_buffer_release(&insight->published.document);
    pthread_mutex_destroy(&insight->published.lock);
    free(insight);
}

/* ---- batches ---- */

bool fr_insight_wants(struct fr_insight *insight, uint64_t step_ns, uint64_t batches)
{
    uint32_t every = insight->conf->insight.importance;
    insight->is_looked_at =
        step_ns >= insight->next_look_step_ns || fr_mono_ns(insight->options.clock) >= insight->next_look_ns;
    insight->is_scored = insight->importance.n_tasks > 0 && batches % every == 0;
    insight->looking_ns = 0;
    insight->next_look_step_ns = insight->is_looked_at ? step_ns : insight->next_look_step_ns;
    insight->window.of_batches++;
    return insight->is_looked_at || insight->is_scored;
}

void fr_insight_forward(struct fr_insight *insight, const struct fr_batch *batch, const struct fr_rows *rows,
                        int64_t watermark_ms)
{
    if (insight->is_looked_at) {
        uint64_t began_ns = fr_mono_ns(insight->options.clock);
        fr_insight_slots_before(insight, batch, rows);
        insight->steps = fr_graph_shared_changes(insight->options.graph);
        insight->looking_ns += fr_mono_ns(insight->options.clock) - began_ns;
    }
    if (insight->is_scored)
        fr_insight_importance_exchange(insight, batch, rows, watermark_ms);
    fr_graph_forward(insight->options.graph, batch, rows);
    if (insight->is_scored)
        fr_insight_importance_score(insight, batch);
}

/* Moves the time to which decayed numbers are decayed. */
static void move_to(struct fr_insight *insight, int64_t watermark_ms)
{
    const struct fr_conf *conf = insight->conf;
    if (insight->as_of_ms != INT64_MIN && watermark_ms > insight->as_of_ms) {
        double passed_ms = (double)(watermark_ms - insight->as_of_ms), factors[FR_DRIFT_AGES];
        const int64_t *half_lives_ms = conf->metrics.half_life_ms;
        bool several = insight->half_lives[FR_DRIFT_LONG] != insight->half_lives[FR_DRIFT_SHORT];
        factors[FR_DRIFT_SHORT] = exp2(-passed_ms / (double)half_lives_ms[insight->half_lives[FR_DRIFT_SHORT]]);
        factors[FR_DRIFT_LONG] =
            several ? exp2(-passed_ms / (double)half_lives_ms[insight->half_lives[FR_DRIFT_LONG]]) : 1.0;
        fr_insight_slots_decay(insight, factors);
    }
    insight->as_of_ms = watermark_ms;
}

void fr_insight_look(struct fr_insight *insight, const struct fr_batch *batch, const struct fr_rows *rows,
                     int64_t watermark_ms)
{
    if (!insight->is_looked_at)
        return;
    uint64_t began_ns = fr_mono_ns(insight->options.clock);
    bool stepped = !fr_graph_runs_beside(insight->options.graph) &&
                   fr_graph_shared_changes(insight->options.graph) != insight->steps;
    move_to(insight, watermark_ms);
    fr_insight_slots_look(insight, batch, rows, stepped);
    if (stepped)
        fr_insight_layers_look(insight);
    insight->window.batches++;
    insight->window.samples += batch->n_samples;
    uint64_t now_ns = fr_mono_ns(insight->options.clock);
    insight->looking_ns += now_ns - began_ns;
    insight->spent_ns += insight->looking_ns;
    insight->next_look_step_ns += FR_INSIGHT_SHARE * insight->looking_ns;
    insight->next_look_ns = now_ns + interval_ns(insight) / FR_INSIGHT_LOOKS_MIN;
}

bool fr_insight_counts(const struct fr_conf *conf, const struct fr_batch *batch, uint32_t task, uint32_t sample,
                       float *label, double *weight)
{
    size_t at = (size_t)conf->tasks[task].label * batch->capacity_samples + sample;
    *label = batch->labels[at];
    *weight = (double)batch->weights[at];
    if (conf->ingest.sampling != FR_SAMPLING_NONE)
        *weight /= (double)batch->keep[sample];
    return (batch->use[sample] & FR_USE_METRICS) && *label >= 0.0f && *label <= 1.0f && *weight > 0.0;
}

/* ---- the document ---- */

void fr_insight_quantiles(struct fr_json *json, const char *name, float *values, uint32_t n)
{
    static const struct {
        const char *name;
        double q;
    } shown[] = {{"min", 0.0}, {"p01", 0.01}, {"p10", 0.1}, {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1.0}};
    uint32_t known = 0;
    for (uint32_t i = 0; i < n; i++)
        if (isfinite(values[i]))
            values[known++] = values[i];
    if (known == 0) {
        fr_json_null(json, name);
        return;
    }
    qsort(values, known, sizeof(*values), fr_drift_ascending);
    fr_json_object(json, name);
    fr_json_u64(json, "n", known);
    for (size_t i = 0; i < FR_ARRAY_LEN(shown); i++)
        fr_json_number(json, shown[i].name, (double)values[(size_t)(shown[i].q * (known - 1) + 0.5)]);
    fr_json_end(json);
}

static void put_head(const struct fr_insight *insight, uint64_t step_ns, struct fr_json *json)
{
    const struct fr_conf *conf = insight->conf;
    uint32_t shorter = insight->half_lives[FR_DRIFT_SHORT], longer = insight->half_lives[FR_DRIFT_LONG];
    fr_json_text(json, "model", conf->model);
    fr_json_i64(json, "as_of_ms", insight->as_of_ms);
    fr_json_i64(json, "interval_ms", conf->insight.interval_ms);
    fr_json_i64(json, "renewed_ms", fr_wall_ms(insight->options.clock));
    fr_json_object(json, "window");
    fr_json_u64(json, "batches", insight->window.batches);
    fr_json_u64(json, "of_batches", insight->window.of_batches);
    fr_json_u64(json, "samples", insight->window.samples);
    fr_json_end(json);
    fr_json_number(json, "cost", step_ns > 0 ? (double)insight->spent_ns / (double)step_ns : (double)NAN);
    fr_json_u64(json, "importance_every", conf->insight.importance);
    fr_json_text(json, "task", insight->task == FR_NO_INDEX ? NULL : conf->tasks[insight->task].name);
    fr_json_array(json, "half_lives");
    fr_json_text(json, NULL, conf->metrics.half_life_name[shorter]);
    fr_json_text(json, NULL, longer != shorter ? conf->metrics.half_life_name[longer] : NULL);
    fr_json_end(json);
}

bool fr_insight_due(const struct fr_insight *insight, uint64_t now_ns)
{
    return now_ns >= insight->next_renewal_ns && insight->window.batches > 0;
}

void fr_insight_renew(struct fr_insight *insight, int64_t watermark_ms, uint64_t step_ns, fr_insight_row_of *row_of,
                      void *self)
{
    uint64_t began_ns = fr_mono_ns(insight->options.clock);
    struct fr_buffer document = {0};
    struct fr_json json = {.out = &document};
    move_to(insight, watermark_ms);
    fr_json_object(&json, NULL);
    put_head(insight, step_ns, &json);
    fr_insight_slots_json(insight, row_of, self, &json);
    fr_insight_layers_json(insight, &json);
    fr_json_end(&json);
    fr_buffer_printf(&document, "\n");
    pthread_mutex_lock(&insight->published.lock);
    struct fr_buffer old = insight->published.document;
    insight->published.document = document;
    pthread_mutex_unlock(&insight->published.lock);
    fr_buffer_release(&old);
    fr_insight_slots_begin_window(insight);
    fr_insight_layers_begin_window(insight);
    insight->window.batches = insight->window.of_batches = insight->window.samples = 0;
    uint64_t now_ns = fr_mono_ns(insight->options.clock);
    insight->spent_ns += now_ns - began_ns;
    insight->next_renewal_ns = now_ns + interval_ns(insight);
}

bool fr_insight_read(struct fr_insight *insight, struct fr_buffer *out)
{
    pthread_mutex_lock(&insight->published.lock);
    bool known = insight->published.document.size > 0;
    fr_buffer_append(out, insight->published.document.data, insight->published.document.size);
    pthread_mutex_unlock(&insight->published.lock);
    return known;
}
