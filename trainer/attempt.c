/* One attempt to train a batch, or a part of it after a refusal (quarantine.c): plan (keys),
 * forward, loss, backward, update, metrics of the forward pass. Either all of it takes effect, or
 * the attempt is refused and has changed only the plan and the watermark, which the move UNDO
 * restores. On several ranks each has its own samples of the batch, and all make the attempt
 * together. pipeline.c has the moves and the order in which they are undone. Owner thread only. */
#include "trainer_private.h"

#include "base/trace.h"
#include "insight/insight.h"

static enum fr_status step(struct fr_trainer *trainer, const struct fr_batch *part, double *loss)
{
    const struct fr_rows *rows = trainer->pipeline.plan.rows;
    bool whole = part == trainer->pipeline.current;
    if (whole)
        trainer->provider->look(trainer);
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock), traced_ns = fr_trace_begin();
    bool seen =
        whole && trainer->insight && fr_insight_wants(trainer->insight, trainer->run.step_ns, trainer->history.batches);
    if (seen)
        fr_insight_forward(trainer->insight, part, rows, trainer->history.watermark_ms);
    else if (part->n_samples > 0)
        fr_graph_forward(trainer->graph, part, rows);
    trainer->run.forward_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
    fr_trace_end("forward", traced_ns);
    traced_ns = fr_trace_begin();
    enum fr_status status = trainer->provider->apply(trainer, part, rows, loss);
    fr_trace_end("train", traced_ns); /* loss, backward pass and updates */
    if (seen && status == FR_OK)
        fr_insight_look(trainer->insight, part, rows, trainer->history.watermark_ms);
    /* any other status ends the trainer, in the middle of what it did: there is nothing to undo */
    if (status == FR_OK || status == FR_E_NONFINITE)
        fr_pipeline_move(trainer, status == FR_OK ? FR_MOVE_ACCEPT : FR_MOVE_REFUSE);
    return status;
}

enum fr_status fr_trainer_attempt(struct fr_trainer *trainer, const struct fr_batch *part)
{
    double loss = 0;
    trainer->pipeline.plan.batch = part;
    if (trainer->pipeline.state != FR_PIPELINE_PLANNED) /* it was not planned early */
        fr_pipeline_move(trainer, FR_MOVE_PLAN);
    enum fr_status status = fr_trainer_failure(trainer, NULL);
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
    fr_trainer_count_tasks(trainer);
    trainer->run.metrics_ns += fr_mono_ns(trainer->options.clock) - trained_ns;
    return fr_trainer_failure(trainer, NULL);
}
