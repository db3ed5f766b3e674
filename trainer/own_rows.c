/* Rows in the store of this process (provider.h).
 *
 * While the whole batch is stepped, the next one is prepared: prepare_next decides whether it is
 * planned, only looked up, or left alone. Owner thread only. */
#include "provider.h"

#include "trainer_private.h"

bool fr_own_can_plan_next(struct fr_trainer *trainer, uint64_t now_ns)
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
    bool plans = on_device && fr_own_can_plan_next(trainer, begin_ns);
    if (plans)
        fr_trainer_agree(trainer, trainer->pipeline.next, &trainer->pipeline.early.facts);
    fr_pipeline_move(trainer, plans ? FR_MOVE_PLAN_NEXT : FR_MOVE_LOOK_UP_NEXT);
    trainer->run.plan_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
}

static void look(struct fr_trainer *trainer)
{
    if (!fr_graph_runs_beside(trainer->graph))
        prepare_next(trainer);
}

static void plan(struct fr_trainer *trainer, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows)
{
    fr_store_plan(trainer->store, batch, watermark_ms, rows);
}

static void plan_next(struct fr_trainer *trainer, const struct fr_batch *batch, int64_t watermark_ms,
                      struct fr_rows *rows)
{
    fr_store_plan_next(trainer->store, batch, watermark_ms, rows);
    fr_graph_bring(trainer->graph, batch, rows);
}

void fr_own_undo(struct fr_trainer *trainer)
{
    fr_store_undo(trainer->store);
}

static enum fr_status apply(struct fr_trainer *trainer, const struct fr_batch *batch, const struct fr_rows *rows,
                            double *loss)
{
    fr_graph_train_begin(trainer->graph, batch, rows);
    if (batch == trainer->pipeline.current && fr_graph_runs_beside(trainer->graph))
        prepare_next(trainer);
    return fr_graph_train_finish(trainer->graph, batch, rows, loss);
}

static enum fr_status fetch(struct fr_trainer *trainer)
{
    return fr_graph_fetch(trainer->graph, NULL);
}

void fr_own_cut(struct fr_trainer *trainer, struct fr_stage *stage)
{
    fr_store_cut(trainer->store, stage);
}

const struct fr_provider fr_own_rows = {.look = look,
                                        .plan = plan,
                                        .plan_next = plan_next,
                                        .undo = fr_own_undo,
                                        .apply = apply,
                                        .fetch = fetch,
                                        .cut = fr_own_cut};
