/* One attempt to train a batch, or a part of it after a refusal (quarantine.c): plan (keys),
 * forward, loss, backward, update, metrics of the forward pass. Either all of it takes effect, or
 * the attempt is refused and has changed only the plan and the watermark, which the move UNDO
 * restores.
 *
 * While the whole batch is stepped, the next one is prepared: prepare_next decides whether it is
 * planned, only looked up, or left alone. pipeline.c has the moves and the order in which they are
 * undone. Owner thread only. */
#include "trainer_private.h"

#include "base/trace.h"
#include "insight/insight.h"

/* Whether, as far as is known now, nothing has to happen between the end of the current batch and
 * the plan of the next one. */
static bool next_can_be_planned(struct fr_trainer *trainer, uint64_t now_ns)
{
    if (trainer->pipeline.current->end_of_stream || atomic_load(&trainer->stop))
        return false;
    /* no memory is measured between two batches if the second one is planned early */
    fr_trainer_measure_memory(trainer, now_ns);
    return !fr_trainer_cut_due(trainer, now_ns, true) && !fr_store_over_limit(trainer->store) &&
           !fr_pipeline_slices_need_step(trainer);
}

/* On the processor only the lookout thread is free during a step. It starts when keys are first in
 * the cold store only; before that, a lookup ahead would not save any time. */
static void prepare_next(struct fr_trainer *trainer)
{
    bool on_device = fr_graph_runs_beside(trainer->graph);
    bool reads = fr_store_tiered(trainer->store) && fr_trainer_lookout_start(trainer);
    if ((!on_device && !reads) || fr_pipeline_await_next(trainer, 0) != FR_OK || trainer->pipeline.next->n_samples == 0)
        return;
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock);
    bool plans = on_device && next_can_be_planned(trainer, begin_ns);
    fr_pipeline_move(trainer, plans ? FR_MOVE_PLAN_NEXT : FR_MOVE_LOOK_UP_NEXT);
    trainer->run.plan_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
}

static enum fr_status step(struct fr_trainer *trainer, const struct fr_batch *part, double *loss)
{
    const struct fr_rows *rows = trainer->pipeline.plan.rows;
    bool whole = part == trainer->pipeline.current, on_device = fr_graph_runs_beside(trainer->graph);
    if (whole && !on_device)
        prepare_next(trainer);
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock), traced_ns = fr_trace_begin();
    bool seen =
        whole && trainer->insight && fr_insight_wants(trainer->insight, trainer->run.step_ns, trainer->history.batches);
    if (seen)
        fr_insight_forward(trainer->insight, part, rows, trainer->history.watermark_ms);
    else
        fr_graph_forward(trainer->graph, part, rows);
    trainer->run.forward_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
    fr_trace_end("forward", traced_ns);
    traced_ns = fr_trace_begin();
    fr_graph_train_begin(trainer->graph, part, rows);
    if (whole && on_device)
        prepare_next(trainer);
    enum fr_status status = fr_graph_train_finish(trainer->graph, part, rows, loss);
    fr_trace_end("train", traced_ns); /* loss, backward pass and updates */
    if (seen && status == FR_OK)
        fr_insight_look(trainer->insight, part, rows, trainer->history.watermark_ms);
    fr_pipeline_move(trainer, status == FR_OK ? FR_MOVE_ACCEPT : FR_MOVE_REFUSE);
    return status;
}

enum fr_status fr_trainer_attempt(struct fr_trainer *trainer, const struct fr_batch *part)
{
    double loss = 0;
    trainer->pipeline.plan.batch = part;
    if (trainer->pipeline.state != FR_PIPELINE_PLANNED) /* it was not planned early */
        fr_pipeline_move(trainer, FR_MOVE_PLAN);
    enum fr_status status = fr_store_failure(trainer->store, NULL);
    if (status == FR_OK)
        status = step(trainer, part, &loss);
    if (status != FR_OK)
        return status;
    trainer->run.last_loss = loss;
    struct fr_graph_times times = fr_graph_get_times(trainer->graph);
    trainer->run.backward_ns = times.backward_ns;
    trainer->run.update_ns = times.update_ns;
    uint64_t trained_ns = fr_mono_ns(trainer->options.clock);
    fr_trainer_measure(trainer, part);
    fr_trainer_count_tasks(trainer, part);
    trainer->run.metrics_ns += fr_mono_ns(trainer->options.clock) - trained_ns;
    return FR_OK;
}
