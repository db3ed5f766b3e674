/* Looking one batch ahead: while the network trains on a batch, a thread finds the keys of the next
 * one and reads those that are in the cold store only. What the thread reads becomes rows only in
 * that batch's own plan, so nothing has to be undone when the previous batch is refused.
 *
 * When there is no batch to look at it reads the cold part of the next slices (store/scan.h).
 *
 * During a device's step the owner thread itself looks, or plans (ahead.c).
 *
 * The next batch is taken from the ring early and kept until its turn. The thread starts when keys
 * are first in the cold store only; until then nothing is looked at early. All functions are the
 * owner thread's, except those of the lookout thread. */
#include "trainer_private.h"

#include "base/check.h"
#include "base/thread.h"
#include "base/trace.h"

static void *lookout_main(void *self)
{
    struct fr_trainer *trainer = self;
    struct fr_lookout *lookout = &trainer->lookout;
    pthread_mutex_lock(&lookout->lock);
    while (!lookout->stop) {
        if (!lookout->batch) {
            pthread_mutex_unlock(&lookout->lock);
            bool more = fr_store_scan_ahead(trainer->store);
            pthread_mutex_lock(&lookout->lock);
            while (!more && !lookout->batch && !lookout->stop && !lookout->sliced)
                pthread_cond_wait(&lookout->changed, &lookout->lock);
            lookout->sliced = false;
            continue;
        }
        const struct fr_batch *batch = lookout->batch;
        pthread_mutex_unlock(&lookout->lock);
        uint64_t traced_ns = fr_trace_begin();
        fr_store_look(trainer->store, batch);
        fr_trace_end("look", traced_ns);
        pthread_mutex_lock(&lookout->lock);
        lookout->batch = NULL;
        pthread_cond_broadcast(&lookout->changed);
    }
    pthread_mutex_unlock(&lookout->lock);
    return NULL;
}

void fr_trainer_lookout_init(struct fr_trainer *trainer)
{
    pthread_mutex_init(&trainer->lookout.lock, NULL);
    pthread_cond_init(&trainer->lookout.changed, NULL);
}

void fr_trainer_lookout_release(struct fr_trainer *trainer)
{
    struct fr_lookout *lookout = &trainer->lookout;
    if (lookout->started) {
        pthread_mutex_lock(&lookout->lock);
        lookout->stop = true;
        pthread_cond_broadcast(&lookout->changed);
        pthread_mutex_unlock(&lookout->lock);
        pthread_join(lookout->thread, NULL);
    }
    pthread_mutex_destroy(&lookout->lock);
    pthread_cond_destroy(&lookout->changed);
    fr_batch_free(lookout->next);
}

const struct fr_batch *fr_trainer_next_batch(struct fr_trainer *trainer)
{
    struct fr_lookout *lookout = &trainer->lookout;
    void *item = NULL;
    if (!lookout->next && fr_ring_pop(trainer->options.full, &item, 0) == FR_OK)
        lookout->next = item;
    return lookout->next;
}

void fr_trainer_lookout_start(struct fr_trainer *trainer)
{
    struct fr_lookout *lookout = &trainer->lookout;
    if (!lookout->started)
        lookout->started = fr_thread_start(&lookout->thread, "lookout", lookout_main, trainer);
}

void fr_trainer_look_begin(struct fr_trainer *trainer)
{
    struct fr_lookout *lookout = &trainer->lookout;
    if (!fr_store_tiered(trainer->store))
        return;
    const struct fr_batch *next = fr_trainer_next_batch(trainer);
    if (!next || next->n_samples == 0)
        return;
    fr_trainer_lookout_start(trainer);
    if (!lookout->started)
        return; /* the plan reads what is missing itself */
    pthread_mutex_lock(&lookout->lock);
    lookout->batch = lookout->next;
    pthread_cond_broadcast(&lookout->changed);
    pthread_mutex_unlock(&lookout->lock);
}

void fr_trainer_look_at_slices(struct fr_trainer *trainer)
{
    struct fr_lookout *lookout = &trainer->lookout;
    if (!lookout->started)
        return;
    pthread_mutex_lock(&lookout->lock);
    lookout->sliced = true;
    pthread_cond_broadcast(&lookout->changed);
    pthread_mutex_unlock(&lookout->lock);
}

void fr_trainer_look_end(struct fr_trainer *trainer)
{
    struct fr_lookout *lookout = &trainer->lookout;
    if (!lookout->started)
        return;
    pthread_mutex_lock(&lookout->lock);
    while (lookout->batch)
        pthread_cond_wait(&lookout->changed, &lookout->lock);
    pthread_mutex_unlock(&lookout->lock);
}
