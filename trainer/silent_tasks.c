/* Counts the samples that count for each task, and finds tasks that learn nothing. Such tasks are
 * reported in the status, and once in the log. First values of zero that can never learn are
 * reported in the log only.
 *
 * A task learns nothing in two cases: its loss reaches no parameter and no row, which the network
 * shows; or none of the last FR_TASK_SILENT_SAMPLES trained samples counted for the task, because
 * they had no label or, with a pairwise loss, formed no pair. The second case ends with the first
 * sample that counts. Training continues in both, because other tasks may learn. Owner thread
 * only. */
#include "trainer_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

static const char REACHES_NOTHING[] =
    "its loss reaches no parameter and no row: set a logit that is computed from some, not only through "
    "stop_gradient or a layer_norm of width 1, or set loss: none";
static const char NO_PAIR[] =
    "no pair in the last %" PRIu64 " trained samples: pairs are samples of one group with unequal labels; send samples "
    "that compete with each other as one group, or use loss: logloss";
static const char NO_LABEL[] =
    "no label `%s` in the last %" PRIu64 " trained samples: check that producers send it, or set loss: none";

const char *fr_trainer_task_warning(const struct fr_graph *graph, uint32_t task)
{
    return fr_graph_task_learns(graph, task) ? NULL : REACHES_NOTHING;
}

void fr_trainer_stuck_text(const struct fr_conf *conf, const struct fr_graph_stuck *stuck, char *out, size_t size)
{
    const char *layer = stuck->layer != FR_NO_INDEX ? conf->layers[stuck->layer].name : "";
    if (stuck->table != FR_NO_INDEX)
        snprintf(
            out, size,
            "table `%s`, part `%s`: begins at zero and can never learn: all that layer `%s` multiplies it with is zero "
            "too, so its gradient is zero; set init: {normal: 0.01} for it or for one of the others",
            conf->tables[stuck->table].name, conf->tables[stuck->table].parts[stuck->part].name, layer);
    else
        snprintf(
            out, size,
            "layer `%s`: begins at zero and can never learn: its input is zero, or its output goes into a relu or is "
            "multiplied with zeros; remove its init, or set init: xavier_uniform",
            layer);
}

static void log_stuck(const struct fr_trainer *trainer)
{
    struct fr_graph_stuck stuck[FR_STUCK_MAX];
    uint32_t n = fr_graph_find_stuck(trainer->graph, stuck, FR_STUCK_MAX);
    for (uint32_t i = 0; i < n; i++) {
        char text[1024];
        fr_trainer_stuck_text(trainer->conf, &stuck[i], text, sizeof(text));
        fr_log(FR_LOG_WARN, "trainer", "zeros_never_learn", "reason=\"%s\"", text);
    }
}

static bool trains(const struct fr_conf_task *task)
{
    return fr_loss_terms(task->loss) != FR_TRAINS_NOTHING && task->weight > 0.0f;
}

static void write_problem(const struct fr_trainer *trainer, uint32_t t, char *out, size_t size)
{
    const struct fr_conf_task *conf = &trainer->conf->tasks[t];
    const struct fr_task_run *task = &trainer->tasks[t];
    out[0] = '\0';
    if (!trains(conf))
        return;
    if (!task->learns)
        snprintf(out, size, "%s", REACHES_NOTHING);
    else if (task->silent_samples >= FR_TASK_SILENT_SAMPLES && fr_loss_terms(conf->loss) == FR_TRAINS_PAIRS)
        snprintf(out, size, NO_PAIR, task->silent_samples);
    else if (task->silent_samples >= FR_TASK_SILENT_SAMPLES)
        snprintf(out, size, NO_LABEL, trainer->conf->labels[conf->label].name, task->silent_samples);
}

static void log_once(struct fr_trainer *trainer, uint32_t t)
{
    char problem[sizeof(((struct fr_trainer_task_status *)0)->problem)];
    if (trainer->tasks[t].reported)
        return;
    write_problem(trainer, t, problem, sizeof(problem));
    if (problem[0] == '\0')
        return;
    trainer->tasks[t].reported = true;
    fr_log(FR_LOG_WARN, "trainer", "task_learns_nothing", "task=%s reason=\"%s\"", trainer->conf->tasks[t].name,
           problem);
}

void fr_trainer_tasks_init(struct fr_trainer *trainer)
{
    log_stuck(trainer);
    for (uint32_t t = 0; t < trainer->conf->n_tasks; t++) {
        memcpy(trainer->history.tasks[t].name, trainer->conf->tasks[t].name, FR_NAME_MAX);
        trainer->tasks[t].learns = fr_graph_task_learns(trainer->graph, t);
        log_once(trainer, t);
    }
}

void fr_trainer_count_tasks(struct fr_trainer *trainer)
{
    const struct fr_graph_loss *losses = fr_graph_losses_of(trainer->graph);
    uint64_t trained = trainer->pipeline.plan.facts.n_trained;
    for (uint32_t t = 0; t < trainer->conf->n_tasks; t++) {
        struct fr_task_run *task = &trainer->tasks[t];
        trainer->history.tasks[t].samples += losses[t].samples;
        trainer->history.tasks[t].pairs += losses[t].pairs;
        task->silent_samples = losses[t].samples > 0 ? 0 : task->silent_samples + trained;
        if (task->silent_samples >= FR_TASK_SILENT_SAMPLES)
            log_once(trainer, t);
    }
}

void fr_trainer_tasks_status(const struct fr_trainer *trainer, struct fr_trainer_status *status)
{
    for (uint32_t t = 0; t < trainer->conf->n_tasks; t++)
        write_problem(trainer, t, status->tasks[t].problem, sizeof(status->tasks[t].problem));
}
