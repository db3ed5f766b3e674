/* One attempt at a batch, or at a part of it: plan (keys), forward, metrics of the forward pass,
 * backward and update. Either all of it takes effect or, refused, all of it can be taken back
 * (quarantine.c). Owner thread only. */
#include "trainer_private.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "base/trace.h"

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The lower median of event times that train, of which there are some: where a history's first
 * watermark begins to rise from. Neither a clock that is ahead nor one that is behind decides
 * it. */
static int64_t median_time(const struct fr_batch *batch)
{
    int64_t *times = fr_alloc(batch->n_samples, sizeof(*times)); /* once in a history */
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->n_samples; i++)
        if (batch->role[i] == FR_ROLE_TRAIN)
            times[n++] = batch->t_ms[i];
    qsort(times, n, sizeof(*times), by_time);
    int64_t median = times[(n - 1) / 2];
    free(times);
    return median;
}

int64_t fr_trainer_watermark_after(const struct fr_trainer *trainer, const struct fr_batch *batch, int64_t from_ms,
                                   bool *held)
{
    int64_t watermark_ms = trainer->history.watermark_ms, latest_ms = watermark_ms;
    for (uint32_t i = 0; i < batch->n_samples; i++)
        if (batch->role[i] == FR_ROLE_TRAIN && batch->t_ms[i] > latest_ms)
            latest_ms = batch->t_ms[i];
    int64_t step_ms = trainer->conf->ingest.watermark_step_max_ms;
    if (step_ms > 0 && latest_ms > watermark_ms) {
        from_ms = from_ms == INT64_MIN ? median_time(batch) : from_ms;
        if (latest_ms > from_ms && latest_ms - from_ms > step_ms) { /* both above 0: no overflow */
            latest_ms = from_ms + step_ms;
            *held = true;
        }
    }
    return latest_ms > watermark_ms ? latest_ms : watermark_ms;
}

/* Key plane. It may have been made beside the step before (ahead.c). */
static void plan(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock), traced_ns = fr_trace_begin();
    trainer->watermark_before_ms = trainer->history.watermark_ms;
    if (!fr_trainer_take_ahead(trainer, batch)) {
        trainer->history.watermark_ms =
            fr_trainer_watermark_after(trainer, batch, trainer->watermark_begin_ms, &trainer->watermark_held);
        fr_store_plan(trainer->store, batch, trainer->history.watermark_ms, trainer->rows);
    }
    trainer->run.plan_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
    fr_trace_end("plan", traced_ns);
}

/* Value plane. While a device computes the host looks at the next batch. */
static enum fr_status train(struct fr_trainer *trainer, const struct fr_batch *batch, double *loss)
{
    bool whole = batch == trainer->open, beside = fr_graph_runs_beside(trainer->graph) && !trainer->options.serial;
    if (whole && !beside)
        fr_trainer_look_begin(trainer);
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock), traced_ns = fr_trace_begin();
    fr_graph_forward(trainer->graph, batch, trainer->rows);
    trainer->run.forward_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
    fr_trace_end("forward", traced_ns);
    traced_ns = fr_trace_begin();
    fr_graph_train_begin(trainer->graph, batch, trainer->rows);
    if (whole && beside)
        fr_trainer_plan_beside(trainer);
    enum fr_status status = fr_graph_train_finish(trainer->graph, batch, trainer->rows, loss);
    fr_trace_end("train", traced_ns); /* loss, backward pass and updates */
    fr_trainer_look_end(trainer);
    if (status != FR_OK)
        fr_trainer_drop_ahead(trainer);
    return status;
}

enum fr_status fr_trainer_attempt(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    double loss = 0;
    plan(trainer, batch);
    enum fr_status status = fr_store_failure(trainer->store, NULL);
    if (status == FR_OK)
        status = train(trainer, batch, &loss);
    if (status != FR_OK)
        return status;
    trainer->run.last_loss = loss;
    struct fr_graph_times times = fr_graph_get_times(trainer->graph);
    trainer->run.backward_ns = times.backward_ns;
    trainer->run.update_ns = times.update_ns;
    uint64_t trained_ns = fr_mono_ns(trainer->options.clock);
    fr_trainer_measure(trainer, batch);
    fr_trainer_count_tasks(trainer, batch);
    trainer->run.metrics_ns += fr_mono_ns(trainer->options.clock) - trained_ns;
    return FR_OK;
}

void fr_trainer_take_back(struct fr_trainer *trainer)
{
    fr_store_undo(trainer->store);
    trainer->history.watermark_ms = trainer->watermark_before_ms;
}
