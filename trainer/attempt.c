/* One attempt at a batch, or at a part of it: plan (keys), forward, metrics of the forward pass,
 * backward and update. Either all of it takes effect or, refused, all of it can be taken back
 * (quarantine.c). Owner thread only. */
#include "trainer_private.h"

/* The watermark of a batch: the largest event time of a sample that trains, in it or before. */
static void advance_watermark(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_samples; i++)
        if (batch->role[i] == FR_ROLE_TRAIN && batch->t_ms[i] > trainer->history.watermark_ms)
            trainer->history.watermark_ms = batch->t_ms[i];
}

enum fr_status fr_trainer_attempt(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock);
    double loss = 0;
    trainer->watermark_before_ms = trainer->history.watermark_ms;
    advance_watermark(trainer, batch);
    fr_store_plan(trainer->store, batch, trainer->history.watermark_ms, trainer->rows);
    trainer->run.plan_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
    fr_graph_forward(trainer->graph, batch, trainer->rows);
    enum fr_status status = fr_graph_train(trainer->graph, batch, trainer->rows, &loss);
    if (status != FR_OK)
        return status;
    trainer->run.last_loss = loss;
    fr_trainer_measure(trainer, batch);
    fr_trainer_count_tasks(trainer, batch);
    return FR_OK;
}

void fr_trainer_take_back(struct fr_trainer *trainer)
{
    fr_store_undo(trainer->store);
    trainer->history.watermark_ms = trainer->watermark_before_ms;
}
