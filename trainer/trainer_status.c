/* The trainer's status for other threads: a snapshot that the owner thread publishes at most once a
 * second, and additionally at every cut and when a hold begins or ends. The lock is held for a copy
 * only. */
#include "trainer_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void fr_trainer_publish_status(struct fr_trainer *trainer)
{
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    status->epoch = trainer->epoch;
    status->open = trainer->consumed || fr_store_dirty_bytes(trainer->store) > 0;
    status->history = trainer->history;
    status->run = trainer->run;
    status->run.rows_brought = fr_graph_rows_brought(trainer->graph);
    status->store_bytes = fr_store_bytes(trainer->store);
    status->dirty_bytes = fr_store_dirty_bytes(trainer->store);
    status->n_tables = trainer->conf->n_tables;
    for (uint32_t i = 0; i < status->n_tables; i++) {
        memcpy(status->tables[i].name, trainer->conf->tables[i].name, FR_NAME_MAX);
        fr_store_stats(trainer->store, i, &status->tables[i].stats);
    }
    fr_trainer_measure_status(trainer, status);
    fr_trainer_tasks_status(trainer, status);
    trainer->last_status_ns = fr_mono_ns(trainer->options.clock);
    pthread_mutex_lock(&trainer->lock);
    status->pause = trainer->status.pause;
    memcpy(status->paused, trainer->status.paused, sizeof(status->paused));
    trainer->status = *status;
    pthread_mutex_unlock(&trainer->lock);
    free(status);
}

void fr_trainer_get_status(struct fr_trainer *trainer, struct fr_trainer_status *out)
{
    pthread_mutex_lock(&trainer->lock);
    *out = trainer->status;
    pthread_mutex_unlock(&trainer->lock);
}

bool fr_trainer_held(struct fr_trainer *trainer)
{
    pthread_mutex_lock(&trainer->lock);
    bool held = trainer->status.history.held;
    pthread_mutex_unlock(&trainer->lock);
    return held;
}

uint64_t fr_trainer_publishable(const struct fr_trainer *trainer)
{
    return trainer->history.publishable;
}

const char *fr_trainer_kernel(const struct fr_trainer *trainer)
{
    return fr_graph_kernel(trainer->graph);
}
