/* The owner loop (docs/architecture.md, "One sample's life"): one step makes a due cut, or trains
 * the next batch, or waits. A trained batch is concluded once its dead letters are sent: counters,
 * positions, slices, hold.
 *
 * Invariant: positions, gate counts and values of a batch change between the same two cuts. Owner
 * thread only.
 *
 * Not here: what the states of the two batches are (pipeline.c), one attempt at a batch and
 * preparing the next one (attempt.c), refused batches (quarantine.c), cuts (cut_epoch.c), recovery
 * (restore_state.c), what crosses threads (trainer_status.c). */
#include "trainer_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/trace.h"
#include "insight/insight.h"

enum {
    STATUS_EVERY_NS = 1000000000,
    WAIT_NS = FR_TRAINER_WAIT_MS * 1000000,
    /* Of a job of several ranks: the wait for a batch, which other ranks wait for, too. */
    BUSY_CALL_NS = 1000000, /* while batches are trained */
    IDLE_CALL_NS = 10000000,
};

static void store_tables(const struct fr_trainer_options *options, struct fr_store_table *tables)
{
    for (uint32_t i = 0; i < options->conf->n_tables; i++) {
        const struct fr_conf_table *from = &options->conf->tables[i];
        struct fr_store_table *to = &tables[i];
        memset(to, 0, sizeof(*to));
        memcpy(to->name, from->name, sizeof(to->name));
        fr_graph_row_layout(from, &to->layout);
        to->gate = options->policies[i].gate;
        to->pending_max = from->admit_count_max;
        to->n_expiries = options->policies[i].n_expiries;
        memcpy(to->expiries, options->policies[i].expiries, sizeof(to->expiries));
        to->expire_every = from->expire_every;
        to->expire_slice_rows = from->expire_slice_rows;
        to->initial_capacity = from->initial_capacity;
    }
}

static float *row_of(void *self, uint32_t table, uint64_t key)
{
    const struct fr_trainer *trainer = self;
    return fr_store_row_of(trainer->store, table, key);
}

static void open_store(struct fr_trainer *trainer)
{
    const struct fr_trainer_options *options = &trainer->options;
    struct fr_store_table *tables = fr_alloc(options->conf->n_tables, sizeof(*tables));
    store_tables(options, tables);
    uint64_t reserve = options->conf->memory_reserve;
    if (reserve > 0)
        fr_log(FR_LOG_INFO, "trainer", "reserve", "bytes=%" PRIu64 " note=\"memory_reserve is being taken\"", reserve);
    trainer->store = fr_store_new(&(struct fr_store_options){.n_tables = options->conf->n_tables,
                                                             .tables = tables,
                                                             .seed = options->conf->seed,
                                                             .pool = options->pool,
                                                             .conf = options->conf});
    if (reserve > 0)
        fr_log(FR_LOG_INFO, "trainer", "reserved", "bytes=%" PRIu64, reserve);
    free(tables);
}

/* The store must be open, because a device finds rows and their first values by it. */
static void open_graph(struct fr_trainer *trainer)
{
    const struct fr_trainer_options *options = &trainer->options;
    struct fr_graph_device device = options->device ? *options->device : (struct fr_graph_device){0};
    struct fr_value_place places[FR_TABLES_MAX];
    const struct fr_ranks *ranks = &trainer->ranks;
    struct fr_domains lanes = {0};
    if (ranks->n > 1)
        lanes = fr_rank_domains(fr_exchange_rank(ranks->exchange), ranks->n, fr_conf_domains(options->conf));
    for (uint32_t t = 0; t < options->conf->n_tables; t++)
        places[t] = fr_store_first_place(trainer->store, t);
    device.row_of = row_of;
    device.self = trainer;
    device.first_places = places;
    trainer->graph = fr_graph_new(&(struct fr_graph_options){.conf = options->conf,
                                                             .pool = options->pool,
                                                             .clock = options->clock,
                                                             .lanes = lanes,
                                                             .rank = fr_exchange_rank(ranks->exchange),
                                                             .n_ranks = ranks->n,
                                                             .device = options->device ? &device : NULL});
}

/* Other options by which ranks decide together, or on which metrics depend. */
static void put_shared_options(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_put_u64(out, (uint64_t)conf->ingest.watermark_step_max_ms);
    fr_put_u64(out, conf->ingest.lockstep_epoch_batches);
    fr_put_u64(out, conf->ingest.lockstep_records);
    fr_put_u32(out, conf->metrics.gauc_by != FR_NO_INDEX ? (uint32_t)conf->metrics.gauc_by : UINT32_MAX);
    fr_put_u32(out, conf->metrics.gauc_groups_max);
    fr_buffer_append(out, conf->metrics.half_life_ms, conf->metrics.n_half_lives * sizeof(*conf->metrics.half_life_ms));
}

/* What ranks must share follows from what replicas hold and what training goes by. */
static void open_ranks(struct fr_trainer *trainer)
{
    struct fr_buffer text = {0};
    fr_conf_model_json(trainer->conf, &text);
    fr_conf_training_json(trainer->conf, &text);
    put_shared_options(trainer->conf, &text);
    trainer->ranks.fingerprint = fr_xxh3_seed(text.data, text.size, sizeof(struct fr_roll));
    fr_buffer_release(&text);
    trainer->ranks.self = trainer->options.exchange ? NULL : fr_exchange_self_new();
    trainer->ranks.exchange = trainer->ranks.self ? trainer->ranks.self : trainer->options.exchange;
    trainer->ranks.n = fr_exchange_size(trainer->ranks.exchange);
    trainer->ranks.rolls = fr_alloc(trainer->ranks.n, sizeof(*trainer->ranks.rolls));
    trainer->provider = &fr_own_rows;
    if (trainer->ranks.n == 1)
        return;
    FR_CHECK(trainer->ranks.n <= fr_conf_domains(trainer->conf) && !trainer->options.device);
    trainer->provider = &fr_rank_rows;
    for (size_t i = 0; i < FR_ARRAY_LEN(trainer->ranks.nothing); i++)
        trainer->ranks.nothing[i] = fr_batch_new(trainer->conf);
}

static void release_ranks(struct fr_ranks *ranks)
{
    for (uint32_t r = 0; r < ranks->n; r++) {
        fr_buffer_release(&ranks->keys[r]);
        fr_buffer_release(&ranks->rows[r]);
        fr_buffer_release(&ranks->row_sums[r]);
        fr_buffer_release(&ranks->sums_of[r]);
        fr_buffer_release(&ranks->values[r]);
        fr_buffer_release(&ranks->late[r]);
    }
    fr_trainer_announced_release(&ranks->announced);
    fr_buffer_release(&ranks->answers);
    fr_buffer_release(&ranks->sums);
    for (size_t i = 0; i < FR_ARRAY_LEN(ranks->nothing); i++)
        fr_batch_free(ranks->nothing[i]);
    fr_exchange_free(ranks->self);
    free(ranks->rolls);
}

struct fr_trainer *fr_trainer_new(const struct fr_trainer_options *options)
{
    struct fr_trainer *trainer = fr_alloc(1, sizeof(*trainer));
    trainer->options = *options;
    trainer->conf = options->conf;
    trainer->history.watermark_ms = INT64_MIN;
    trainer->history.n_tasks = options->conf->n_tasks;
    trainer->run.last_loss = NAN;
    trainer->board.allowed.bytes = UINT64_MAX;
    pthread_mutex_init(&trainer->board.lock, NULL);
    open_ranks(trainer);
    open_store(trainer);
    open_graph(trainer);
    fr_trainer_lookout_init(trainer);
    fr_trainer_cuts_init(trainer);
    fr_trainer_measure_init(trainer);
    fr_trainer_tasks_init(trainer);
    if (trainer->conf->insight.interval_ms > 0 && trainer->ranks.n == 1) /* it looks at one store */
        trainer->insight = fr_insight_new(&(struct fr_insight_options){trainer->conf, options->clock, trainer->graph});
    fr_trainer_questions_init(trainer);
    fr_trainer_publish_status(trainer);
    return trainer;
}

void fr_trainer_free(struct fr_trainer *trainer)
{
    if (!trainer)
        return;
    fr_trainer_lookout_release(trainer);
    fr_trainer_measure_release(trainer);
    fr_trainer_questions_release(trainer);
    fr_insight_free(trainer->insight);
    fr_trainer_sift_release(trainer);
    fr_pipeline_release(trainer);
    fr_store_free(trainer->store);
    fr_graph_free(trainer->graph);
    fr_trainer_cuts_release(trainer);
    release_ranks(&trainer->ranks);
    pthread_mutex_destroy(&trainer->board.lock);
    free(trainer);
}

/* Counts what the batch has done on all ranks. Only what an epoch must not have before the batch's
 * dead letters are sent comes later (conclude). */
static void count_batch(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    const struct fr_batch_counts *counts = &trainer->ranks.counts;
    const struct fr_sift_batch *sift = &trainer->sift.batch;
    struct fr_trainer_history *history = &trainer->history;
    fr_trainer_count(trainer, batch);
    history->batches += counts->n_samples > 0;
    history->samples += counts->roles[FR_ROLE_TRAIN];
    history->metrics_only += counts->roles[FR_ROLE_METRICS_ONLY];
    history->masked += counts->roles[FR_ROLE_MASKED];
    history->quarantined_samples += counts->roles[FR_ROLE_QUARANTINED];
    history->quarantined_batches += sift->whole;
    history->quarantined_singly += sift->whole ? 0 : sift->all_left_out;
    history->unknown_slots += counts->unknown_slots;
    history->unknown_keys += counts->unknown_keys;
    history->excess_ids += counts->excess_ids;
    if (batch->dead_sequence > trainer->dead_sequence)
        trainer->dead_sequence = batch->dead_sequence;
    if (batch->kafka_t_max_ms > trainer->run.kafka_t_max_ms)
        trainer->run.kafka_t_max_ms = batch->kafka_t_max_ms;
}

/* Predictions are those made before the batch's own update. Unfit samples leave store, parameters,
 * metrics and watermark as if they had never been in the batch. */
static enum fr_status learn(struct fr_trainer *trainer, struct fr_batch *batch, struct fr_err *err)
{
    if (trainer->pipeline.state != FR_PIPELINE_PLANNED) /* it was not planned early */
        fr_trainer_agree(trainer, batch, &trainer->pipeline.plan.facts);
    if (trainer->pipeline.plan.facts.n_samples == 0) {
        fr_pipeline_move(trainer, FR_MOVE_LEAVE_REST_OUT);
        return fr_trainer_failure(trainer, err);
    }
    enum fr_status status = fr_trainer_attempt(trainer, batch);
    if (status == FR_E_NONFINITE)
        status = fr_trainer_sift(trainer, batch);
    if (status != FR_OK && fr_trainer_failure(trainer, err) != FR_OK)
        return status; /* err has the text of the cold store, of the device or of the exchange */
    if (status != FR_OK)
        return fr_err_set(err, status, "training step failed: %s", fr_status_name(status));
    return FR_OK;
}

static enum fr_status train_next(struct fr_trainer *trainer, struct fr_err *err)
{
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock);
    if (!trainer->pipeline.next)
        fr_pipeline_next_is_nothing(trainer);
    fr_pipeline_move(trainer, FR_MOVE_TAKE);
    struct fr_batch *batch = trainer->pipeline.current;
    trainer->sift.batch = (struct fr_sift_batch){0};
    enum fr_status status = learn(trainer, batch, err);
    if (status == FR_OK) {
        count_batch(trainer, batch);
        status = fr_trainer_failure(trainer, err);
    }
    trainer->run.watermark_held += trainer->pipeline.watermark_held;
    uint64_t took_ns = fr_mono_ns(trainer->options.clock) - begin_ns;
    trainer->run.step_ns += took_ns;
    if (batch->n_samples) {
        fr_timings_observe(trainer->options.timings, FR_TIMING_STEP, (double)took_ns / 1e9);
        fr_timings_observe(trainer->options.timings, FR_TIMING_BATCH, batch->n_samples);
    }
    return status;
}

/* The positions of the trained batch move once its dead letters are sent, so that an epoch with
 * them also waits for the letters. FR_AGAIN: there is no room for a letter; no cut happens before
 * there is. */
static enum fr_status conclude(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    enum fr_status status = fr_trainer_send_letters(trainer, batch);
    if (status != FR_OK)
        return status;
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock);
    fr_trainer_log_left_out(trainer, batch);
    if (!fr_pipeline_is_nothing(trainer, batch))
        trainer->options.stream.applied(trainer->options.stream.self, batch);
    fr_pipeline_move(trainer, FR_MOVE_CONCLUDE);
    fr_trainer_add_to_epoch(trainer);
    fr_trainer_update_hold(trainer, batch);
    trainer->run.step_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
    return FR_OK;
}

/* Concludes the current batch and returns it to ingest, which fills it again. */
static enum fr_status return_batch(struct fr_trainer *trainer)
{
    struct fr_batch *batch = trainer->pipeline.current;
    if (trainer->ranks.counts.n_samples > 0 || trainer->ranks.counts.n_positions > 0) {
        enum fr_status status = conclude(trainer, batch);
        if (status != FR_OK)
            return status;
    } else {
        /* this batch only marks the end of the stream */
        fr_pipeline_move(trainer, FR_MOVE_CONCLUDE);
    }
    if (fr_pipeline_is_nothing(trainer, batch))
        return FR_OK;
    if (batch->end_of_stream && trainer->ranks.n > 1)
        trainer->ranks.ended = true; /* other ranks may have batches */
    else if (batch->end_of_stream)
        trainer->life = FR_TRAINER_ENDS;
    fr_batch_clear(batch);
    if (!fr_ring_try_push(trainer->options.empty, batch))
        fr_batch_free(batch); /* the ring is closed */
    return FR_OK;
}

/* Whether the next batch has to wait; the status has the reason. */
static bool is_paused(struct fr_trainer *trainer, uint64_t now_ns)
{
    char text[sizeof(trainer->board.status.paused)] = "";
    enum fr_pause why = FR_PAUSE_NONE;
    if (fr_trainer_cut_late(trainer, now_ns, text, sizeof(text)))
        why = FR_PAUSE_CUT;
    else if (trainer->pipeline.state != FR_PIPELINE_NEXT_PLANNED &&
             fr_trainer_waits_for_memory(trainer, text, sizeof(text)))
        why = FR_PAUSE_MEMORY;
    return fr_trainer_publish_pause(trainer, why, text);
}

/* Whether a last epoch would contain nothing that the state lacks. */
static bool has_nothing_new(const struct fr_trainer *trainer)
{
    if (trainer->cuts.consumed || trainer->cuts.carried_name[0] != '\0' ||
        fr_trainer_epoch_wanted(trainer) == FR_EPOCH_WANTED)
        return false;
    return trainer->history.closed || trainer->epoch == 0;
}

/* ---- one step ---- */

/* Whether some rank gave the flag at the last call, after which no epoch was cut. */
static bool some_rank_said(const struct fr_trainer *trainer, uint32_t flag)
{
    bool said = false;
    for (uint32_t r = 0; r < trainer->ranks.n && trainer->ranks.n > 1; r++)
        said |= (trainer->ranks.rolls[r].flags & flag) != 0;
    return said && trainer->ranks.rolls[0].epoch == trainer->epoch;
}

static uint32_t flags_of_news(const struct fr_trainer *trainer)
{
    return has_nothing_new(trainer) ? 0 : FR_ROLL_NEWS;
}

/* How long to wait for a batch. Other ranks wait as long, and they may have one. */
static uint64_t batch_wait_ns(const struct fr_trainer *trainer)
{
    uint64_t idle_ns = trainer->ranks.n > 1 ? IDLE_CALL_NS : WAIT_NS;
    bool busy = trainer->ranks.n > 1 && trainer->ranks.trained;
    return busy ? BUSY_CALL_NS : idle_ns;
}

/* How this rank stands when nothing was begun that has to be finished. A live cut does not wait for
 * the durable thread unless the dirty rows have reached their limit. Then, and in lockstep mode,
 * the next batch waits for the cut. */
static uint32_t flags_while_reading(struct fr_trainer *trainer, uint64_t now_ns)
{
    /* news of a rank that reads count if another one is asked to stop */
    uint32_t flags = trainer->ranks.n > 1 ? flags_of_news(trainer) : 0;
    flags |= trainer->ranks.ended ? FR_ROLL_ENDED : 0;
    /* If a cut is due on some rank, the others make room for it, too, because their own reasons for
     * one may come much later. */
    if (fr_trainer_cut_due(trainer, now_ns, false) || some_rank_said(trainer, FR_ROLL_DUE)) {
        flags |= FR_ROLL_DUE;
        if (trainer->conf->ingest.lockstep || fr_pipeline_dirty_bytes(trainer) >= trainer->conf->epoch_bytes_max)
            flags |= FR_ROLL_MUST;
        if (fr_trainer_reserve_stage(trainer, flags & FR_ROLL_MUST ? WAIT_NS : 0) == FR_OK)
            return flags | FR_ROLL_STAGE; /* the cut comes before anything else */
    }
    if (is_paused(trainer, now_ns)) /* the ring fills and ingest stops polling */
        flags |= FR_ROLL_PAUSED;
    if (flags & (FR_ROLL_PAUSED | FR_ROLL_MUST | FR_ROLL_ENDED))
        return flags;
    uint64_t traced_ns = fr_trace_begin();
    enum fr_status status = fr_pipeline_await_next(trainer, batch_wait_ns(trainer));
    fr_trace_end("wait for a batch", traced_ns);
    trainer->run.wait_ns += fr_mono_ns(trainer->options.clock) - now_ns;
    return flags | (status == FR_OK ? FR_ROLL_READY : status == FR_EOF ? FR_ROLL_ENDED : 0);
}

static uint32_t flags_at_the_end(struct fr_trainer *trainer)
{
    uint32_t flags = FR_ROLL_STOP | flags_of_news(trainer);
    fr_pipeline_move(trainer, FR_MOVE_INTERRUPT);
    bool cuts = flags & FR_ROLL_NEWS || some_rank_said(trainer, FR_ROLL_NEWS);
    if (cuts && fr_trainer_reserve_stage(trainer, WAIT_NS) == FR_OK)
        flags |= FR_ROLL_STAGE;
    return flags;
}

/* Finishes what the step before left, and looks at how this rank stands. */
static enum fr_status look_around(struct fr_trainer *trainer, uint64_t now_ns, uint32_t *flags, struct fr_err *err)
{
    enum fr_status status = fr_trainer_failure(trainer, err); /* of a slice, a lookup or a cut */
    if (status != FR_OK)
        return status;
    if (trainer->pipeline.current) { /* there was no room for a dead letter */
        *flags = FR_ROLL_LETTERS;
        status = return_batch(trainer);
        return status == FR_AGAIN ? FR_OK : status;
    }
    if (trainer->life == FR_TRAINER_READS && atomic_load(&trainer->stop))
        trainer->life = FR_TRAINER_ENDS;
    if (trainer->life == FR_TRAINER_ENDS) {
        *flags = flags_at_the_end(trainer);
        return FR_OK;
    }
    if (now_ns - trainer->board.published_ns >= STATUS_EVERY_NS)
        fr_trainer_publish_status(trainer);
    if (trainer->insight && fr_insight_due(trainer->insight, now_ns))
        fr_insight_renew(trainer->insight, trainer->history.watermark_ms, trainer->run.step_ns, row_of, trainer);
    fr_trainer_answer(trainer);
    *flags = flags_while_reading(trainer, now_ns);
    return FR_OK;
}

static enum fr_status call_roll(struct fr_trainer *trainer, uint32_t flags, struct fr_decision *out, struct fr_err *err)
{
    const _Atomic uint64_t *acknowledged = trainer->options.acknowledged;
    struct fr_roll mine = {.fingerprint = trainer->ranks.fingerprint,
                           .call = ++trainer->ranks.calls,
                           .epoch = trainer->epoch,
                           .batches = trainer->history.batches,
                           .samples = trainer->history.samples,
                           .watermark_ms = trainer->history.watermark_ms,
                           .acknowledged = acknowledged ? atomic_load(acknowledged) : 0,
                           .flags = flags,
                           .lockstep = trainer->conf->ingest.lockstep};
    struct fr_ranks *ranks = &trainer->ranks;
    enum fr_status status = fr_exchange_gather(ranks->exchange, &mine, sizeof(mine), ranks->rolls, err);
    if (status == FR_OK)
        status = fr_roll_check(ranks->rolls, ranks->n, err);
    if (status == FR_OK) {
        *out = fr_roll_decide(ranks->rolls, ranks->n);
        atomic_store(&ranks->acknowledged, fr_roll_acknowledged(ranks->rolls, ranks->n));
    }
    ranks->trained = status == FR_OK && out->next == FR_NEXT_TRAIN;
    return status;
}

uint64_t fr_trainer_acknowledged(const struct fr_trainer *trainer)
{
    return atomic_load(&trainer->ranks.acknowledged);
}

static enum fr_status finish(struct fr_trainer *trainer)
{
    trainer->life = FR_TRAINER_DRAINED;
    fr_trainer_publish_status(trainer);
    return FR_EOF;
}

static enum fr_status act(struct fr_trainer *trainer, const struct fr_decision *decision, uint32_t flags,
                          uint64_t now_ns, struct fr_err *err)
{
    enum fr_status status;
    if (decision->ends)
        trainer->life = FR_TRAINER_ENDS;
    switch (decision->next) {
    case FR_NEXT_CUT:
        return fr_trainer_cut(trainer, false);
    case FR_NEXT_TRAIN:
        status = train_next(trainer, err);
        return status == FR_OK ? return_batch(trainer) : status;
    case FR_NEXT_CUT_LAST:
        return fr_trainer_cut(trainer, true) == FR_OK ? finish(trainer) : FR_AGAIN;
    case FR_NEXT_END:
        return finish(trainer);
    case FR_NEXT_WAIT:
        break;
    }
    if (flags & FR_ROLL_LETTERS)
        return trainer->pipeline.current ? FR_AGAIN : FR_OK;
    if (decision->ends)
        return FR_AGAIN;
    if (decision->interrupts)
        fr_pipeline_move(trainer, FR_MOVE_INTERRUPT);
    if (trainer->pipeline.state == FR_PIPELINE_EMPTY)
        fr_pipeline_slice_idle(trainer, now_ns);
    return FR_AGAIN;
}

enum fr_status fr_trainer_step(struct fr_trainer *trainer, struct fr_err *err)
{
    uint64_t now_ns = fr_mono_ns(trainer->options.clock);
    struct fr_decision decision;
    uint32_t flags;
    if (trainer->life == FR_TRAINER_DRAINED)
        return FR_EOF;
    enum fr_status status = look_around(trainer, now_ns, &flags, err);
    if (status == FR_OK)
        status = call_roll(trainer, flags, &decision, err);
    if (status != FR_OK)
        return status;
    fr_trainer_publish_wait(trainer, &decision, now_ns);
    return act(trainer, &decision, flags, now_ns, err);
}

void fr_trainer_stop(struct fr_trainer *trainer)
{
    atomic_store(&trainer->stop, true);
}

struct fr_insight *fr_trainer_insight(const struct fr_trainer *trainer)
{
    return trainer->insight;
}

const char *fr_trainer_kernel(const struct fr_trainer *trainer)
{
    return fr_graph_kernel(trainer->graph);
}
