/* The lookout thread: while the network trains on a batch, the thread finds the keys of the next
 * one and reads those that are in the cold store only. What the thread reads becomes rows only in
 * that batch's own plan, so nothing has to be undone when the previous batch is refused. While
 * there is no batch to read for, the thread reads the cold rows that the next expiry slices will
 * examine (store/scan.h).
 *
 * All functions are the owner thread's, except those of the lookout thread. */
#include "trainer_private.h"

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
            while (!more && !lookout->batch && !lookout->stop && !lookout->scan)
                pthread_cond_wait(&lookout->changed, &lookout->lock);
            lookout->scan = false;
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

bool fr_trainer_lookout_start(struct fr_trainer *trainer)
{
    struct fr_lookout *lookout = &trainer->lookout;
    if (!lookout->started)
        lookout->started = fr_thread_start(&lookout->thread, "lookout", lookout_main, trainer);
    return lookout->started;
}

static void request(struct fr_lookout *lookout, const struct fr_batch *batch, bool scan, bool stop)
{
    pthread_mutex_lock(&lookout->lock);
    lookout->batch = batch;
    lookout->scan = scan;
    lookout->stop = stop;
    pthread_cond_broadcast(&lookout->changed);
    pthread_mutex_unlock(&lookout->lock);
}

void fr_trainer_lookout_read(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    request(&trainer->lookout, batch, false, false);
}

void fr_trainer_lookout_scan(struct fr_trainer *trainer)
{
    request(&trainer->lookout, NULL, true, false);
}

void fr_trainer_lookout_wait(struct fr_trainer *trainer)
{
    struct fr_lookout *lookout = &trainer->lookout;
    pthread_mutex_lock(&lookout->lock);
    while (lookout->batch)
        pthread_cond_wait(&lookout->changed, &lookout->lock);
    pthread_mutex_unlock(&lookout->lock);
}

void fr_trainer_lookout_release(struct fr_trainer *trainer)
{
    struct fr_lookout *lookout = &trainer->lookout;
    if (lookout->started) {
        request(lookout, NULL, false, true);
        pthread_join(lookout->thread, NULL);
    }
    pthread_mutex_destroy(&lookout->lock);
    pthread_cond_destroy(&lookout->changed);
}
