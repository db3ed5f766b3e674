/* What crosses threads: the status, which the owner thread publishes at most once a second, and
 * additionally at every cut and when a hold begins or ends; why reading pauses, and how much may be
 * produced, which the daemon sets; and the rank that training waits for. The lock is held for
 * copies only. */
#include "trainer_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* A shorter wait for another rank is not shown: ranks are never equally fast. */
enum { RANK_WAIT_NS = 1000000000 };

void fr_trainer_publish_status(struct fr_trainer *trainer)
{
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    status->epoch = trainer->epoch;
    status->open = trainer->cuts.consumed || fr_store_dirty_bytes(trainer->store) > 0;
    status->history = trainer->history;
    status->run = trainer->run;
    status->run.rows_brought = fr_graph_rows_brought(trainer->graph);
    for (int channel = 0; channel < FR_CHANNELS; channel++)
        status->run.exchange_wait_ns[channel] = fr_exchange_waited_ns(trainer->ranks.exchange, channel);
    status->store_bytes = fr_store_bytes(trainer->store);
    status->dirty_bytes = fr_store_dirty_bytes(trainer->store);
    status->n_tables = trainer->conf->n_tables;
    for (uint32_t i = 0; i < status->n_tables; i++) {
        memcpy(status->tables[i].name, trainer->conf->tables[i].name, FR_NAME_MAX);
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
    /* The wait for another rank ends when the ranks decide so (fr_trainer_publish_wait). */
    if (why != FR_PAUSE_NONE || board->status.pause != FR_PAUSE_RANK) {
        board->status.pause = why;
        snprintf(board->status.paused, sizeof(board->status.paused), "%s", why != FR_PAUSE_NONE ? text : "");
    }
    pthread_mutex_unlock(&board->lock);
    return why != FR_PAUSE_NONE;
}

/* ---- the wait for another rank ---- */

/* What the rank named by a decision said. ends: the job ends, with an epoch. */
static const char *name_reason(const struct fr_roll *roll, bool ends)
{
    if (roll->flags & FR_ROLL_LETTERS)
        return "whose dead letters are not accepted";
    if (roll->flags & FR_ROLL_PAUSED)
        return "where reading is paused";
    if (ends || roll->flags & FR_ROLL_DUE)
        return "which cannot cut an epoch, because epochs before it are not durable";
    return "which has no batch, and in lockstep every rank needs one";
}

void fr_trainer_publish_wait(struct fr_trainer *trainer, const struct fr_decision *decision, uint64_t now_ns)
{
    struct fr_ranks *ranks = &trainer->ranks;
    struct fr_trainer_status *status = &trainer->board.status;
    if (decision->next == FR_NEXT_CUT) /* training may wait before and after it */
        return;
    bool waits = decision->next == FR_NEXT_WAIT && decision->rank != UINT32_MAX;
    if (waits && !ranks->waits)
        ranks->wait_since_ns = now_ns;
    ranks->waits = waits;
    bool shows =
        waits && decision->rank != fr_exchange_rank(ranks->exchange) && now_ns - ranks->wait_since_ns >= RANK_WAIT_NS;
    if (status->pause != FR_PAUSE_RANK && (!shows || status->pause != FR_PAUSE_NONE))
        return; /* there is nothing to show, or this rank's own reason is shown */
    pthread_mutex_lock(&trainer->board.lock);
    status->pause = shows ? FR_PAUSE_RANK : FR_PAUSE_NONE;
    status->paused[0] = '\0';
    if (shows)
        snprintf(status->paused, sizeof(status->paused),
                 "the job waits for rank %" PRIu32 ", %s; /status and the log of rank %" PRIu32 " have the reason",
                 decision->rank, name_reason(&ranks->rolls[decision->rank], decision->ends), decision->rank);
    pthread_mutex_unlock(&trainer->board.lock);
}
