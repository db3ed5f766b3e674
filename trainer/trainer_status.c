/* What crosses threads: the status, which the owner thread publishes at most once a second, and
 * additionally at every cut and when a hold begins or ends; and why reading pauses, and how much
 * may be produced, which the daemon sets. The lock is held for copies only. */
#include "trainer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void fr_trainer_publish_status(struct fr_trainer *trainer)
{
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    status->epoch = trainer->epoch;
    status->open = trainer->cuts.consumed || fr_store_dirty_bytes(trainer->store) > 0;
    status->history = trainer->history;
    status->run = trainer->run;
    status->run.rows_brought = fr_graph_rows_brought(trainer->graph);
    status->store_bytes = fr_store_bytes(trainer->store);
    status->dirty_bytes = fr_store_dirty_bytes(trainer->store);
    status->n_tables = trainer->conf->n_tables;
    for (uint32_t i = 0; i < status->n_tables; i++) {
        memcpy(status->tables[i].name, trainer->conf->tables[i].name, FR_NAME_MAX);
    for (int channel = 0; channel < FR_CHANNELS; channel++)
        status->run.exchange_wait_ns[channel] = fr_exchange_waited_ns(trainer->ranks.exchange, channel);
        fr_store_stats(trainer->store, i, &status->tables[i].stats);
    }
    fr_trainer_measure_status(trainer, status);
    fr_trainer_tasks_status(trainer, status);
    trainer->board.published_ns = fr_mono_ns(trainer->options.clock);
    pthread_mutex_lock(&trainer->board.lock);
    status->pause = trainer->board.status.pause;
    memcpy(status->paused, trainer->board.status.paused, sizeof(status->paused));
    trainer->board.status = *status;
    pthread_mutex_unlock(&trainer->board.lock);
    free(status);
}

void fr_trainer_get_status(struct fr_trainer *trainer, struct fr_trainer_status *out)
{
    pthread_mutex_lock(&trainer->board.lock);
    *out = trainer->board.status;
    pthread_mutex_unlock(&trainer->board.lock);
}

bool fr_trainer_held(struct fr_trainer *trainer)
{
    pthread_mutex_lock(&trainer->board.lock);
    bool held = trainer->board.status.history.held;
    pthread_mutex_unlock(&trainer->board.lock);
    return held;
}

uint64_t fr_trainer_publishable(const struct fr_trainer *trainer)
{
    return trainer->history.publishable;
}

const char *const fr_trainer_pauses[FR_PAUSE_KINDS] = {
#define FR_PAUSE_NAME(name, text) text,
    FR_PAUSES(FR_PAUSE_NAME)
#undef FR_PAUSE_NAME
};

void fr_trainer_pause(struct fr_trainer *trainer, enum fr_pause why, const char *text)
{
    struct fr_trainer_board *board = &trainer->board;
    pthread_mutex_lock(&board->lock);
    board->pause = why;
    snprintf(board->pause_text, sizeof(board->pause_text), "%s", text && why != FR_PAUSE_NONE ? text : "");
    pthread_mutex_unlock(&board->lock);
}

void fr_trainer_allow(struct fr_trainer *trainer, uint64_t produced_bytes, enum fr_pause why, const char *text)
{
    struct fr_trainer_board *board = &trainer->board;
    pthread_mutex_lock(&board->lock);
    board->allowed = (struct fr_allowance){.bytes = produced_bytes, .why = why};
    snprintf(board->allowed.text, sizeof(board->allowed.text), "%s", text);
    pthread_mutex_unlock(&board->lock);
}

bool fr_trainer_publish_pause(struct fr_trainer *trainer, enum fr_pause why, const char *text)
{
    struct fr_trainer_board *board = &trainer->board;
    pthread_mutex_lock(&board->lock);
    if (why == FR_PAUSE_NONE && board->pause != FR_PAUSE_NONE) {
        why = board->pause;
        text = board->pause_text;
    } else if (why == FR_PAUSE_NONE && fr_trainer_at_limit(trainer)) {
        why = board->allowed.why;
        text = board->allowed.text;
    }
    board->status.pause = why;
    snprintf(board->status.paused, sizeof(board->status.paused), "%s", why != FR_PAUSE_NONE ? text : "");
    pthread_mutex_unlock(&board->lock);
    return why != FR_PAUSE_NONE;
}
