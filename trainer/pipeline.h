/* The states of the two batches that the owner loop works on, the moves between the states, and
 * what the loop stores about both batches. pipeline.c draws them. */
#ifndef FR_TRAINER_PIPELINE_H
#define FR_TRAINER_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct fr_batch;
struct fr_rows;
struct fr_trainer;

/* The names, for enums and messages. */
#define FR_PIPELINE_STATE_LIST(STATE)                                                                                  \
    STATE(EMPTY), STATE(TAKEN), STATE(PLANNED), STATE(NEXT_LOOKED_UP), STATE(BOTH_PLANNED), STATE(REFUSED),            \
        STATE(TRAINED), STATE(TRAINED_NEXT_PLANNED), STATE(NEXT_PLANNED)
#define FR_PIPELINE_MOVE_LIST(MOVE)                                                                                    \
    MOVE(TAKE), MOVE(PLAN), MOVE(LOOK_UP_NEXT), MOVE(PLAN_NEXT), MOVE(ACCEPT), MOVE(REFUSE), MOVE(UNDO),               \
        MOVE(LEAVE_REST_OUT), MOVE(CONCLUDE), MOVE(INTERRUPT)

#define FR_PIPELINE_STATE(name) FR_PIPELINE_##name
#define FR_PIPELINE_MOVE(name) FR_MOVE_##name
enum fr_pipeline_state { FR_PIPELINE_STATE_LIST(FR_PIPELINE_STATE), FR_PIPELINE_STATES };
enum fr_pipeline_move { FR_PIPELINE_MOVE_LIST(FR_PIPELINE_MOVE), FR_PIPELINE_MOVES };
#undef FR_PIPELINE_STATE
#undef FR_PIPELINE_MOVE

/* What all ranks together have of what is planned (agree.c). */
struct fr_facts {
    uint64_t n_samples, n_trained; /* trained: of the role FR_ROLE_TRAIN */
    uint64_t first;                /* samples of the ranks before this one */
    /* the largest event time of a sample that trains; INT64_MIN: none does */
    int64_t latest_ms;
};

/* Owner: pipeline.c. */
struct fr_pipeline {
    enum fr_pipeline_state state;
    /* the batch that is trained, from TAKE to CONCLUDE; NULL: none */
    struct fr_batch *current;
    /* the batch after `current`, if it was popped from the ring already; NULL: it was not */
    struct fr_batch *next;
    /* The newest plan of `current` or of a part of it; and the early plan of `next`, which is valid
     * in the states whose names say that `next` is planned. */
    struct fr_plan {
        const struct fr_batch *batch; /* what is planned; attempt.c sets it before PLAN */
        struct fr_facts facts;        /* of what is planned; set before PLAN and PLAN_NEXT */
        struct fr_rows *rows;         /* NULL before the first plan */
        uint64_t dirty_before;        /* dirty bytes of the open epoch before the plan */
        int64_t watermark_before_ms;  /* the watermark before the plan */
        int64_t watermark_ms;         /* the watermark with which the plan was made */
        bool watermark_held;          /* watermark_step_max limited it */
    } plan, early;
    bool watermark_held; /* watermark_step_max limited the watermark of some plan of `current` */
    /* What was when `current` was taken, without the effects of its early plan. */
    struct {
        uint64_t samples; /* samples trained in the history */
        int64_t watermark_ms;
        uint64_t dirty_bytes; /* dirty bytes of the open epoch */
    } begin;
    uint64_t last_idle_ns; /* monotonic time of the last slices run while no batch was trained */
};

/* Makes the move that the table in pipeline.c lists for the present state, and does what belongs to
 * it. A move that is not listed ends the process. */
void fr_pipeline_move(struct fr_trainer *trainer, enum fr_pipeline_move move);
/* Whether a pipeline in the state `from` may make the move. */
bool fr_pipeline_allows(enum fr_pipeline_state from, enum fr_pipeline_move move);

/* Pops the next batch from the ring, unless that was done already. FR_AGAIN: none came within
 * wait_ns. FR_EOF: the ring is closed and empty. */
enum fr_status fr_pipeline_await_next(struct fr_trainer *trainer, uint64_t wait_ns) FR_MUST_CHECK;
/* Where this rank has no batch: gives it one without samples as the next one, and tells such a
 * batch from others; the batch may be NULL. */
void fr_pipeline_next_is_nothing(struct fr_trainer *trainer);
bool fr_pipeline_is_nothing(const struct fr_trainer *trainer, const struct fr_batch *batch);
/* Whether expiry slices are due between the current batch, if all of it is accepted, and the next
 * one. */
bool fr_pipeline_slices_due(const struct fr_trainer *trainer);
/* Whether some of these slices examine the values of rows. The newest values may be on a device
 * only, so such slices follow the step. */
bool fr_pipeline_slices_need_step(const struct fr_trainer *trainer);
/* Runs more slices while no batch is trained. */
void fr_pipeline_slice_idle(struct fr_trainer *trainer, uint64_t now_ns);
/* The rows of the early plan, for those who fill a part of them before PLAN_NEXT. */
struct fr_rows *fr_pipeline_next_rows(struct fr_trainer *trainer);
/* fr_store_dirty_bytes without the effects of the next batch's plan. */
uint64_t fr_pipeline_dirty_bytes(const struct fr_trainer *trainer);
/* Frees the batches and plans. */
void fr_pipeline_release(struct fr_trainer *trainer);

#endif
