/* What the trainer measures: every task's predictions, made before the batch's own update, and how
 * fresh the batch is (docs/metrics.md).
 *
 * metrics/task.h has the format of the sections "metrics" and "metrics/<task>"; a task's section is
 * staged only when it changed. A section of another version is FR_E_MISMATCH, one that does not
 * parse FR_E_CORRUPT. Freshness is measured for this run only and is never part of a state. A
 * refused batch is not measured. On several ranks each measures the samples of all of them, except
 * for freshness, so metrics are equal everywhere. Owner thread only; the status gets a copy. */
#include "rank_samples.h"
#include "trainer_private.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

_Static_assert((int)FR_TASKS_MAX <= (int)FR_METRICS_TASKS_MAX && (int)FR_NAME_MAX <= (int)FR_METRICS_NAME_MAX,
               "every task has its place in the section");

void fr_trainer_measure_init(struct fr_trainer *trainer)
{
    const struct fr_conf *conf = trainer->conf;
    struct fr_task_metrics_options options = {.n_half_lives = conf->metrics.n_half_lives};
    memcpy(options.half_life_ms, conf->metrics.half_life_ms, sizeof(options.half_life_ms));
    if (conf->metrics.gauc_by != FR_NO_INDEX) {
        const char *slot = conf->slots[conf->metrics.gauc_by].name;
        options.gauc_groups_max = conf->metrics.gauc_groups_max;
        options.gauc_salt = fr_xxh3_seed(slot, strlen(slot), conf->seed);
    }
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        options.regression = fr_loss_prediction(conf->tasks[i].loss) == FR_PREDICTS_VALUE;
        trainer->measuring.tasks[i] = fr_task_metrics_new(&options);
        trainer->measuring.journaled[i] = FR_NEVER;
    }
}

void fr_trainer_measure_release(struct fr_trainer *trainer)
{
    fr_rank_samples_free(trainer->ranks.samples);
    for (size_t i = 0; i < FR_ARRAY_LEN(trainer->measuring.tasks); i++)
        fr_task_metrics_free(trainer->measuring.tasks[i]);
}

/* A part of a batch has no records (fr_batch_select), so nothing is observed for it. */
static void measure_arrivals(struct fr_freshness *freshness, const struct fr_batch *batch, int64_t wall_ms)
{
    for (uint32_t r = 0; r < batch->n_records; r++) {
        uint32_t end = r + 1 < batch->n_records ? batch->records[r + 1].first_sample : batch->n_samples, trained = 0;
        for (uint32_t i = batch->records[r].first_sample; i < end; i++)
            trained += batch->role[i] == FR_ROLE_TRAIN;
        if (batch->records[r].kafka_ms > 0)
            fr_freshness_arrived(freshness, batch->records[r].kafka_ms, trained, wall_ms);
    }
}

static void measure_freshness(struct fr_freshness *freshness, const struct fr_batch *batch, int64_t wall_ms)
{
    _Static_assert(FR_ROLE_TRAIN == 0, "fr_freshness_trained skips a sample whose role is not 0");
    measure_arrivals(freshness, batch, wall_ms);
    fr_freshness_trained(freshness, batch->t_ms, batch->role, batch->n_samples, wall_ms);
    if (batch->kafka_t_max_ms > 0)
        fr_freshness_lag(freshness, batch->kafka_t_max_ms, wall_ms);
}

/* The samples of this rank's batch, for a task. */
static struct fr_task_samples samples_of(const struct fr_trainer *trainer, const struct fr_batch *batch, uint32_t task)
{
    const struct fr_conf *conf = trainer->conf;
    const struct fr_column *group =
        conf->metrics.gauc_by != FR_NO_INDEX ? &batch->columns[conf->metrics.gauc_by] : NULL;
    size_t label = (size_t)conf->tasks[task].label * batch->capacity_samples;
    return (struct fr_task_samples){
        .count = batch->n_samples,
        .scores = fr_graph_logits(trainer->graph, task),
        .labels = batch->labels + label,
        .weights = batch->weights + label,
        .keep = batch->keep,
        .use = batch->use,
        .served = batch->served ? batch->served + (size_t)task * batch->capacity_samples : NULL,
        .t_ms = batch->t_ms,
        .entry_of = group && group->shared ? batch->group_of : NULL,
        .group_begin = group ? group->begin : NULL,
        .group_keys = group ? group->keys : NULL,
    };
}

/* Exchanges what metrics need of the samples. */
static enum fr_status gather_samples(struct fr_trainer *trainer, const struct fr_batch *batch, struct fr_err *err)
{
    struct fr_ranks *ranks = &trainer->ranks;
    struct fr_bytes parts[FR_RANKS_MAX];
    const float *scores[FR_TASKS_MAX];
    if (!ranks->samples)
        ranks->samples = fr_rank_samples_new(trainer->conf);
    for (uint32_t t = 0; t < trainer->conf->n_tasks; t++)
        scores[t] = fr_graph_logits(trainer->graph, t);
    fr_buffer_clear(&ranks->sums);
    fr_rank_samples_put(trainer->conf, batch, scores, &ranks->sums);
    enum fr_status status = fr_trainer_give_all(trainer, &ranks->sums, parts, err);
    fr_rank_samples_clear(ranks->samples);
    for (uint32_t r = 0; r < ranks->n && status == FR_OK; r++)
        status = fr_rank_samples_take(ranks->samples, parts[r], r, err);
    return status;
}

void fr_trainer_measure(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    const struct fr_conf *conf = trainer->conf;
    struct fr_err err = {0};
    bool several = trainer->ranks.n > 1;
    if (several && fr_trainer_ranks_check(trainer, gather_samples(trainer, batch, &err), &err) != FR_OK)
        return;
    for (uint32_t task = 0; task < conf->n_tasks; task++) {
        struct fr_task_samples samples =
            several ? fr_rank_samples_of(trainer->ranks.samples, task) : samples_of(trainer, batch, task);
        samples.watermark_ms = trainer->history.watermark_ms;
        if (conf->ingest.sampling == FR_SAMPLING_NONE)
            samples.keep = NULL;
        fr_task_metrics_add(trainer->measuring.tasks[task], &samples);
    }
    if (trainer->options.freshness)
        measure_freshness(trainer->options.freshness, batch, fr_wall_ms(trainer->options.clock));
}

void fr_trainer_measure_status(const struct fr_trainer *trainer, struct fr_trainer_status *status)
{
    for (uint32_t i = 0; i < trainer->conf->n_tasks; i++)
        fr_task_metrics_result(trainer->measuring.tasks[i], &status->tasks[i].result);
}

/* Called at a cut; also ends the epoch of freshness. */
void fr_trainer_stage_metrics(struct fr_trainer *trainer, struct fr_stage *stage)
{
    const struct fr_conf *conf = trainer->conf;
    struct fr_metrics_section section = {0};
    for (uint32_t i = 0; i < conf->n_tasks; i++)
        fr_metrics_section_add(&section, conf->tasks[i].name, trainer->measuring.tasks[i]);
    fr_metrics_section_encode(&section, fr_stage_section(stage, FR_SECTION_METRICS));
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        uint64_t changes = fr_task_metrics_changes(trainer->measuring.tasks[i]);
        if (changes == trainer->measuring.journaled[i])
            continue;
        char name[FR_SECTION_NAME_MAX];
        snprintf(name, sizeof(name), FR_SECTION_METRICS_TASK "%s", conf->tasks[i].name);
        fr_task_metrics_encode(trainer->measuring.tasks[i], fr_stage_section(stage, name));
        trainer->measuring.journaled[i] = changes;
    }
    if (trainer->options.freshness)
        fr_freshness_cut(trainer->options.freshness, trainer->epoch);
}

enum fr_status fr_trainer_restore_metrics(struct fr_trainer *trainer, struct fr_metrics_restore *restore,
                                          const char *name, const uint8_t *bytes, size_t size)
{
    if (strcmp(name, FR_SECTION_METRICS) == 0)
        return fr_metrics_section_parse(bytes, size, &restore->section);
    const char *task = name + sizeof(FR_SECTION_METRICS_TASK) - 1;
    const struct fr_metrics_listed *listed = fr_metrics_section_find(&restore->section, task);
    uint32_t i = 0;
    while (i < trainer->conf->n_tasks && strcmp(trainer->conf->tasks[i].name, task) != 0)
        i++;
    if (!listed || i == trainer->conf->n_tasks) /* a task of an earlier configuration */
        return FR_OK;
    enum fr_status status = fr_task_metrics_parse(trainer->measuring.tasks[i], bytes, size, listed->as_of_ms);
    if (status == FR_OK)
        trainer->measuring.journaled[i] = fr_task_metrics_changes(trainer->measuring.tasks[i]);
    else if (status != FR_E_MISMATCH)
        return FR_E_CORRUPT;
    else
        fr_log(FR_LOG_WARN, "trainer", "metrics_changed",
               "task=%s note=\"half-lives or gauc_by differ from those of the state: the changed metrics start empty\"",
               task);
    restore->restored[i] = true;
    return FR_OK;
}
