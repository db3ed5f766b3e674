/* Planning during a device's step. While the device computes batch k, the owner thread, whose pool
 * is idle, makes the plan of batch k+1 and sends the rows that the device lacks.
 *
 * A plan must follow everything that the previous batch changes in the store. The plan of batch k
 * is complete, and its step changes only the values of rows, on the device, which a plan does not
 * read. Between two batches there may also be a slice, a cut, a pause or the eviction of clean
 * rows. A slice due after batch k runs here, before the plan of k+1, unless expiry rules examine
 * values, because the newest values are on the device. If one of the others is due, the next batch
 * is only looked at, which is the larger part of a plan and changes nothing. If something
 * unforeseen happens (a stop, a pause, a cut by the clock), the early plan is undone first. If
 * batch k is refused, three things are undone, in this order: the plan of k+1, the slices, the plan
 * of k. The results therefore do not depend on whether anything was done early.
 *
 * The plan's watermark is kept here until the batch's turn. Owner thread only. */
#include "trainer_private.h"

uint64_t fr_trainer_dirty_bytes(const struct fr_trainer *trainer)
{
    return trainer->ahead.planned ? trainer->ahead.dirty_before : fr_store_dirty_bytes(trainer->store);
}

static uint64_t samples_after(const struct fr_trainer *trainer)
{
    const struct fr_batch *batch = trainer->open;
    uint64_t after = trainer->history.samples;
    for (uint32_t i = 0; i < batch->n_samples; i++)
        after += batch->role[i] == FR_ROLE_TRAIN;
    return after;
}

/* As far as is known now, the next batch is planned as soon as the one at hand took effect. */
static bool nothing_stands_between(struct fr_trainer *trainer, uint64_t now_ns)
{
    if (trainer->open->end_of_stream || atomic_load(&trainer->stop))
        return false;
    fr_trainer_measure_memory(trainer, now_ns); /* between batches only where no plan waits */
    if (fr_trainer_cut_follows(trainer, now_ns) || fr_store_over_limit(trainer->store))
        return false;
    struct fr_slices slices = fr_trainer_slices(trainer, trainer->history.samples, samples_after(trainer));
    if (slices.due && fr_trainer_slices_need_values(trainer))
        return false;
    pthread_mutex_lock(&trainer->lock);
    bool pauses = trainer->pause != FR_PAUSE_NONE;
    pthread_mutex_unlock(&trainer->lock);
    return !pauses;
}

/* What falls due after the batch at hand, as if it were accepted. Nothing does later: what the plan
 * makes is not there yet. */
static void slice_beside(struct fr_trainer *trainer)
{
    struct fr_slices slices = fr_trainer_slices(trainer, trainer->history.samples, samples_after(trainer));
    fr_store_slices_beside(trainer->store, slices.first, slices.last, trainer->history.watermark_ms);
    trainer->ahead.sliced = true;
    trainer->run.sliced_beside += slices.due;
}

void fr_trainer_plan_beside(struct fr_trainer *trainer)
{
    struct fr_ahead *ahead = &trainer->ahead;
    const struct fr_batch *next = fr_trainer_next_batch(trainer);
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock);
    if (fr_store_tiered(trainer->store))
        fr_trainer_lookout_start(trainer);
    if (!next || next->n_samples == 0)
        return;
    if (!ahead->rows)
        ahead->rows = fr_store_rows_new(trainer->store);
    ahead->planned = nothing_stands_between(trainer, begin_ns);
    if (ahead->planned) {
        slice_beside(trainer);
        ahead->dirty_before = fr_store_dirty_bytes(trainer->store);
        ahead->watermark_held = false;
        ahead->watermark_ms =
            fr_trainer_watermark_after(trainer, next, trainer->history.watermark_ms, &ahead->watermark_held);
        fr_store_plan_next(trainer->store, next, ahead->watermark_ms, ahead->rows);
        trainer->run.planned_beside++;
        fr_graph_bring(trainer->graph, next, ahead->rows);
    } else {
        fr_store_look_pooled(trainer->store, next);
    }
    trainer->run.plan_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
}

bool fr_trainer_take_ahead(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_ahead *ahead = &trainer->ahead;
    if (!ahead->planned || batch != trainer->open)
        return false;
    struct fr_rows *rows = trainer->rows;
    trainer->rows = ahead->rows;
    ahead->rows = rows;
    trainer->history.watermark_ms = ahead->watermark_ms;
    trainer->watermark_held = ahead->watermark_held;
    ahead->planned = false;
    return true;
}

void fr_trainer_drop_ahead(struct fr_trainer *trainer)
{
    if (!trainer->ahead.planned)
        return;
    fr_store_undo(trainer->store);
    if (trainer->ahead.sliced)
        fr_store_undo_slices(trainer->store);
    trainer->ahead.planned = trainer->ahead.sliced = false;
    trainer->run.planned_in_vain++;
}
