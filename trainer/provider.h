/* What keeps the rows of a batch's keys (batch/rows.h), as the owner loop sees it. The loop knows
 * no more of rows than this table, and there is one for each place where they can be:
 *
 *   fr_own_rows   own_rows.c   the store of this process, for a job of one rank. On a device
 *                              (graph/device_rows.c) rows are there too; the graph moves them.
 *   fr_rank_rows  rank_rows.c  the stores of all ranks: keys go to their homes, values come back,
 *                              and gradients go to the homes, which step the rows
 *
 * Errors: functions without a status leave theirs to fr_trainer_failure; what they made is then
 * invalid, and the job ends. Thread: the owner loop. */
#ifndef FR_TRAINER_PROVIDER_H
#define FR_TRAINER_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>

#include "batch/batch.h"
#include "batch/rows.h"

struct fr_stage;
struct fr_trainer;

struct fr_provider {
    /* Called before the forward pass of a whole batch: prepares the next batch while this one is
     * stepped, or decides whether `apply` does. Results do not depend on it. */
    void (*look)(struct fr_trainer *trainer);
    /* Counts, admits, creates, touches and resolves the keys of the batch, as fr_store_plan. */
    void (*plan)(struct fr_trainer *trainer, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows);
    /* The move PLAN_NEXT (pipeline.c): plans the batch after the one that is stepped. `rows` is
     * complete once `apply` has returned. */
    void (*plan_next)(struct fr_trainer *trainer, const struct fr_batch *batch, int64_t watermark_ms,
                      struct fr_rows *rows);
    /* Undoes the last plan. */
    void (*undo)(struct fr_trainer *trainer);
    /* The step after the forward pass: gradients, parameters, rows. FR_E_NONFINITE: it is refused,
     * and nothing was changed. */
    enum fr_status (*apply)(struct fr_trainer *trainer, const struct fr_batch *batch, const struct fr_rows *rows,
                            double *loss);
    /* Called before a cut: brings what the cut saves, and is elsewhere, to this process. FR_E_*:
     * the next step reports the failure. */
    enum fr_status (*fetch)(struct fr_trainer *trainer);
    /* Copies what has changed since the last cut into the stage, and begins a new epoch. */
    void (*cut)(struct fr_trainer *trainer, struct fr_stage *stage);
};

extern const struct fr_provider fr_own_rows, fr_rank_rows;

/* own_rows.c: undo and cut of this process's store, which are those of either provider. */
void fr_own_undo(struct fr_trainer *trainer);
void fr_own_cut(struct fr_trainer *trainer, struct fr_stage *stage);
/* Whether the next batch can be planned early: no stop, cut, pause for memory or end of the stream
 * is due in this process, and no slice that examines what the step changes. */
bool fr_own_can_plan_next(struct fr_trainer *trainer, uint64_t now_ns);

#endif
