/* The pipeline of the owner loop: the batch that is trained (k) and the batch after it (k+1) as one
 * machine. attempt.c decides how batch k+1 is prepared while batch k is stepped. The table at the
 * end of this file lists what may happen when; the functions above the table do it.
 *
 *   EMPTY ─TAKE─► TAKEN ─PLAN─► PLANNED ──────────────ACCEPT────────────► TRAINED ─CONCLUDE─► EMPTY
 *                   ▲            │   │                                       ▲
 *                   │            │   ├─LOOK_UP_NEXT─► NEXT_LOOKED_UP ─ACCEPT─┘
 *                   │            │   │                      │
 *                   │            │   └─PLAN_NEXT─► BOTH_PLANNED ─ACCEPT─► TRAINED_NEXT_PLANNED
 *                   │          REFUSE                │      │                      │
 *                   │            ▼                   │      │                  CONCLUDE
 *                   └────UNDO─ REFUSED ◄───REFUSE────┴──────┘                      ▼
 *                              PLANNED ◄────────────────────────────TAKE───── NEXT_PLANNED
 *                                EMPTY ◄───────────────────────INTERRUPT───────────┘
 *
 *   Not drawn: TRAINED ─PLAN─► PLANNED, with another part of batch k; TAKEN or TRAINED
 *   ─LEAVE_REST_OUT─► TRAINED; EMPTY ─INTERRUPT─► EMPTY.
 *
 *   state                 batch k                       batch k+1
 *   EMPTY                 none                          not planned
 *   TAKEN                 no part of it is planned      not planned
 *   PLANNED               planned, being stepped        not planned
 *   NEXT_LOOKED_UP        planned, being stepped        its keys are looked up
 *   BOTH_PLANNED          planned, being stepped        planned, after the slices due after k
 *   REFUSED               refused; its plan stands      not planned
 *   TRAINED               the planned part has trained  not planned
 *   TRAINED_NEXT_PLANNED  has trained                   planned
 *   NEXT_PLANNED          none                          planned
 *
 *   move             what it does
 *   TAKE             makes batch k+1 batch k, with its early plan if there is one
 *   PLAN             plans batch k, or a part of it after a refusal (quarantine.c)
 *   LOOK_UP_NEXT     finds the keys of batch k+1, which changes scratch memory only
 *   PLAN_NEXT        runs the slices due after batch k, then plans batch k+1, both as if batch k
 *                    were accepted: while a device steps, because then the pool is idle; and on
 *                    several ranks, whose messages then travel beside those of batch k
 *   ACCEPT           the step has changed parameters and rows
 *   REFUSE           the step has changed nothing: undoes the plan of batch k+1, then the slices
 *   UNDO             undoes the plan of batch k and its watermark
 *   LEAVE_REST_OUT   no further part of batch k is tried
 *   CONCLUDE         runs the slices due after batch k, unless PLAN_NEXT ran them
 *   INTERRUPT        undoes the plan of batch k+1, because a stop, a pause or a cut must precede it
 *
 * A refused batch is thus undone in this order: the plan of k+1, the slices, the plan of k. Results
 * do not depend on whether anything was done early: a plan reads no value that a step writes, and
 * an early plan's watermark becomes the trainer's when its batch is taken. A cut happens in EMPTY
 * only. Owner thread only. */
#include "trainer_private.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "base/trace.h"

enum { IDLE_SLICE_NS = 250000000 };

void fr_pipeline_release(struct fr_trainer *trainer)
{
    struct fr_pipeline *pipeline = &trainer->pipeline;
    if (!fr_pipeline_is_nothing(trainer, pipeline->current))
        fr_batch_free(pipeline->current);
    if (!fr_pipeline_is_nothing(trainer, pipeline->next))
        fr_batch_free(pipeline->next);
    fr_store_rows_free(pipeline->plan.rows);
    fr_store_rows_free(pipeline->early.rows);
}

enum fr_status fr_pipeline_await_next(struct fr_trainer *trainer, uint64_t wait_ns)
{
    struct fr_pipeline *pipeline = &trainer->pipeline;
    void *item = NULL;
    if (pipeline->next)
        return FR_OK;
    enum fr_status status = fr_ring_pop(trainer->options.full, &item, wait_ns);
    pipeline->next = item;
    return status;
}

bool fr_pipeline_is_nothing(const struct fr_trainer *trainer, const struct fr_batch *batch)
{
    return batch && (batch == trainer->ranks.nothing[0] || batch == trainer->ranks.nothing[1]);
}

void fr_pipeline_next_is_nothing(struct fr_trainer *trainer)
{
    struct fr_pipeline *pipeline = &trainer->pipeline;
    FR_CHECK(!pipeline->next);
    pipeline->next = trainer->ranks.nothing[pipeline->current == trainer->ranks.nothing[0]];
}

uint64_t fr_pipeline_dirty_bytes(const struct fr_trainer *trainer)
{
    const struct fr_pipeline *pipeline = &trainer->pipeline;
    bool early = pipeline->state == FR_PIPELINE_BOTH_PLANNED || pipeline->state == FR_PIPELINE_TRAINED_NEXT_PLANNED ||
                 pipeline->state == FR_PIPELINE_NEXT_PLANNED;
    return early ? pipeline->early.dirty_before : fr_store_dirty_bytes(trainer->store);
}

/* ---- watermark ---- */

static void prepare_rows(struct fr_trainer *trainer, struct fr_plan *plan)
{
    if (!plan->rows)
        plan->rows = fr_store_rows_new(trainer->store);
}

struct fr_rows *fr_pipeline_next_rows(struct fr_trainer *trainer)
{
    prepare_rows(trainer, &trainer->pipeline.early);
    return trainer->pipeline.early.rows;
}

/* Begins a plan: its watermark is the largest event time of a sample that trains, in this batch or
 * earlier, but at most watermark_step_max above from_ms, the watermark before the batch, however
 * often parts of the batch are planned. */
static void begin_plan(struct fr_trainer *trainer, struct fr_plan *plan, int64_t from_ms)
{
    int64_t watermark_ms = trainer->history.watermark_ms, latest_ms = plan->facts.latest_ms;
    int64_t step_ms = trainer->conf->ingest.watermark_step_max_ms;
    plan->watermark_held = false;
    if (step_ms > 0 && latest_ms > watermark_ms) {
        /* The first watermark of a history rises from the median of times, so that one host with a
         * wrong clock, fast or slow, does not decide it. */
        from_ms = from_ms == INT64_MIN ? fr_trainer_median_time(trainer, plan->batch) : from_ms;
        /* both times are above 0, so the difference does not overflow */
        if (latest_ms > from_ms && latest_ms - from_ms > step_ms) {
            latest_ms = from_ms + step_ms;
            plan->watermark_held = true;
        }
    }
    plan->watermark_before_ms = watermark_ms;
    plan->watermark_ms = latest_ms > watermark_ms ? latest_ms : watermark_ms;
    plan->dirty_before = fr_store_dirty_bytes(trainer->store);
    prepare_rows(trainer, plan);
}

/* ---- slices between two batches ---- */

/* The numbers, first to last, of the expiry slices that are due after the current batch, of which
 * n_trained samples were trained, or will be. */
struct slices {
    uint64_t first, last;
    bool due; /* at least one of the slices examines rows */
};

/* Slices are numbered by full batches of trained samples, because small batches would make them
 * examine the tables far too often. A sample left out is not counted, so slices too are as if the
 * sample had not existed. */
static struct slices slices_after_current(const struct fr_trainer *trainer, uint64_t n_trained)
{
    uint64_t before = trainer->pipeline.begin.samples, after = before + n_trained;
    uint32_t size = trainer->conf->ingest.batch_size;
    struct slices slices = {.first = before / size + 1, .last = after / size};
    for (uint64_t n = slices.first; n <= slices.last; n++)
        slices.due |= fr_store_slice_due(trainer->store, n);
    return slices;
}

static bool rules_need_values(const struct fr_trainer *trainer)
{
    bool needed = false;
    for (uint32_t t = 0; t < trainer->conf->n_tables; t++)
        for (uint32_t e = 0; e < trainer->options.policies[t].n_expiries; e++)
            needed |= trainer->options.policies[t].expiries[e].needs_values;
    return needed;
}

bool fr_pipeline_slices_due(const struct fr_trainer *trainer)
{
    return slices_after_current(trainer, trainer->pipeline.plan.facts.n_trained).due;
}

bool fr_pipeline_slices_need_step(const struct fr_trainer *trainer)
{
    return fr_pipeline_slices_due(trainer) && rules_need_values(trainer);
}

/* Brings the newest values from a device to the store if an expiry rule examines values. false: the
 * device failed, which the next step reports. */
static bool fetch_values(struct fr_trainer *trainer)
{
    return !rules_need_values(trainer) || fr_graph_fetch(trainer->graph, NULL) == FR_OK;
}

/* Slices continue until all rows were examined with this watermark. In lockstep mode there are none
 * here, because there slices are a function of the log. */
void fr_pipeline_slice_idle(struct fr_trainer *trainer, uint64_t now_ns)
{
    struct fr_pipeline *pipeline = &trainer->pipeline;
    FR_CHECK(pipeline->state == FR_PIPELINE_EMPTY);
    if (trainer->conf->ingest.lockstep || trainer->history.watermark_ms == INT64_MIN ||
        now_ns - pipeline->last_idle_ns < IDLE_SLICE_NS)
        return;
    if (fr_store_dirty_bytes(trainer->store) >= trainer->conf->epoch_bytes_max)
        return; /* a cut must come first, and it may have to wait */
    pipeline->last_idle_ns = now_ns;
    if (fetch_values(trainer) && fr_store_slice_idle(trainer->store, trainer->history.watermark_ms))
        fr_trainer_lookout_scan(trainer);
}

/* ---- what moves do ---- */

static void take(struct fr_trainer *trainer)
{
    struct fr_pipeline *pipeline = &trainer->pipeline;
    FR_CHECK(pipeline->next != NULL);
    pipeline->begin.samples = trainer->history.samples;
    pipeline->begin.watermark_ms = trainer->history.watermark_ms;
    pipeline->begin.dirty_bytes = fr_pipeline_dirty_bytes(trainer);
    pipeline->current = pipeline->next;
    pipeline->next = NULL;
    pipeline->watermark_held = false;
}

/* The trainer's watermark becomes that of the plan of batch k. */
static void adopt_plan(struct fr_trainer *trainer)
{
    trainer->history.watermark_ms = trainer->pipeline.plan.watermark_ms;
    trainer->pipeline.watermark_held |= trainer->pipeline.plan.watermark_held;
}

static void take_planned(struct fr_trainer *trainer)
{
    struct fr_plan plan = trainer->pipeline.plan;
    take(trainer);
    trainer->pipeline.plan = trainer->pipeline.early;
    trainer->pipeline.early = plan; /* only its rows are used again */
    adopt_plan(trainer);
}

static void plan(struct fr_trainer *trainer)
{
    struct fr_plan *plan = &trainer->pipeline.plan;
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock), traced_ns = fr_trace_begin();
    begin_plan(trainer, plan, trainer->pipeline.begin.watermark_ms);
    adopt_plan(trainer);
    trainer->provider->plan(trainer, plan->batch, plan->watermark_ms, plan->rows);
    trainer->run.plan_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
    fr_trace_end("plan", traced_ns);
}

static void look_up_next(struct fr_trainer *trainer)
{
    if (fr_graph_runs_beside(trainer->graph))
        fr_store_look_pooled(trainer->store, trainer->pipeline.next);
    else
        fr_trainer_lookout_read(trainer, trainer->pipeline.next);
}

/* Nothing can fall due between these slices and the plan of the next batch, because the rows that
 * the plan creates do not exist yet. */
static void plan_next(struct fr_trainer *trainer)
{
    struct fr_plan *early = &trainer->pipeline.early;
    struct slices slices = slices_after_current(trainer, trainer->pipeline.plan.facts.n_trained);
    fr_store_slices_beside(trainer->store, slices.first, slices.last, trainer->history.watermark_ms);
    trainer->run.sliced_early += slices.due;
    early->batch = trainer->pipeline.next;
    begin_plan(trainer, early, trainer->history.watermark_ms);
    trainer->provider->plan_next(trainer, early->batch, early->watermark_ms, early->rows);
    trainer->run.planned_early++;
}

static void undo_next(struct fr_trainer *trainer)
{
    fr_store_undo(trainer->store);
    trainer->run.early_plans_undone++;
}

static void undo_next_and_slices(struct fr_trainer *trainer)
{
    undo_next(trainer);
    fr_store_undo_slices(trainer->store);
}

static void undo(struct fr_trainer *trainer)
{
    trainer->provider->undo(trainer);
    trainer->history.watermark_ms = trainer->pipeline.plan.watermark_before_ms;
}

static struct slices slices_now(const struct fr_trainer *trainer)
{
    return slices_after_current(trainer, fr_trainer_trained(trainer, trainer->pipeline.current));
}

static void conclude_sliced(struct fr_trainer *trainer)
{
    struct slices slices = slices_now(trainer);
    trainer->pipeline.current = NULL;
    if (slices.first <= slices.last)
        fr_trainer_lookout_scan(trainer);
}

static void conclude(struct fr_trainer *trainer)
{
    struct slices slices = slices_now(trainer);
    if (!slices.due || fetch_values(trainer))
        for (uint64_t n = slices.first; n <= slices.last; n++)
            fr_store_slice(trainer->store, n, trainer->history.watermark_ms);
    conclude_sliced(trainer);
}

static void change_state_only(struct fr_trainer *trainer)
{
    (void)trainer;
}

/* ---- the table ---- */

struct transition {
    enum fr_pipeline_state to;
    void (*act)(struct fr_trainer *trainer); /* NULL: the move is not allowed */
};

#define ON(move, to, act) [FR_MOVE_##move] = {FR_PIPELINE_##to, act}
static const struct transition transitions[FR_PIPELINE_STATES][FR_PIPELINE_MOVES] = {
    [FR_PIPELINE_EMPTY] = {ON(TAKE, TAKEN, take), ON(INTERRUPT, EMPTY, change_state_only)},
    [FR_PIPELINE_TAKEN] = {ON(PLAN, PLANNED, plan), ON(LEAVE_REST_OUT, TRAINED, change_state_only)},
    [FR_PIPELINE_PLANNED] = {ON(LOOK_UP_NEXT, NEXT_LOOKED_UP, look_up_next), ON(PLAN_NEXT, BOTH_PLANNED, plan_next),
                             ON(ACCEPT, TRAINED, change_state_only), ON(REFUSE, REFUSED, change_state_only)},
    [FR_PIPELINE_NEXT_LOOKED_UP] = {ON(ACCEPT, TRAINED, fr_trainer_lookout_wait),
                                    ON(REFUSE, REFUSED, fr_trainer_lookout_wait)},
    [FR_PIPELINE_BOTH_PLANNED] = {ON(ACCEPT, TRAINED_NEXT_PLANNED, change_state_only),
                                  ON(REFUSE, REFUSED, undo_next_and_slices)},
    [FR_PIPELINE_REFUSED] = {ON(UNDO, TAKEN, undo)},
    [FR_PIPELINE_TRAINED] = {ON(PLAN, PLANNED, plan), ON(LEAVE_REST_OUT, TRAINED, change_state_only),
                             ON(CONCLUDE, EMPTY, conclude)},
    [FR_PIPELINE_TRAINED_NEXT_PLANNED] = {ON(CONCLUDE, NEXT_PLANNED, conclude_sliced)},
    [FR_PIPELINE_NEXT_PLANNED] = {ON(TAKE, PLANNED, take_planned), ON(INTERRUPT, EMPTY, undo_next)},
};

bool fr_pipeline_allows(enum fr_pipeline_state from, enum fr_pipeline_move move)
{
    return transitions[from][move].act != NULL;
}

void fr_pipeline_move(struct fr_trainer *trainer, enum fr_pipeline_move move)
{
#define QUOTED(name) #name
    static const char *const states[] = {FR_PIPELINE_STATE_LIST(QUOTED)};
    static const char *const moves[] = {FR_PIPELINE_MOVE_LIST(QUOTED)};
#undef QUOTED
    enum fr_pipeline_state from = trainer->pipeline.state;
    if (!fr_pipeline_allows(from, move))
        fr_log(FR_LOG_ERROR, "trainer", "move_refused", "state=%s move=%s", states[from], moves[move]);
    FR_CHECK(fr_pipeline_allows(from, move));
    transitions[from][move].act(trainer);
    trainer->pipeline.state = transitions[from][move].to;
}
