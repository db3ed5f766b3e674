/* The owner loop (docs/architecture.md, "One sample's life"). One batch at a time: plan (keys),
 * forward, backward and update, metrics of the forward pass, dead letters of samples left out
 * (quarantine.c), positions, slice.
 *
 * Invariant: positions, gate counts and values of a batch change between the same two cuts. Owner
 * thread only.
 *
 * Not here: one attempt at a batch (attempt.c), staging (cut_epoch.c), recovery (restore_state.c),
 * the status for other threads (trainer_status.c).
 *
 * During step(k) the next batch is looked at if rows are in the cold store only (lookout.c); during
 * a device's step it is planned (ahead.c, docs/architecture.md, "Planning beside a device"). */
#include "trainer_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/trace.h"

enum { IDLE_SLICE_NS = 250000000 };

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
    trainer->rows = fr_store_rows_new(trainer->store);
}

/* After the store, whose rows a device finds and begins. */
static void open_graph(struct fr_trainer *trainer)
{
    const struct fr_trainer_options *options = &trainer->options;
    struct fr_graph_device device = options->device ? *options->device : (struct fr_graph_device){0};
    struct fr_value_place places[FR_TABLES_MAX];
    for (uint32_t t = 0; t < options->conf->n_tables; t++)
        places[t] = fr_store_first_place(trainer->store, t);
    device.row_of = row_of;
    device.self = trainer;
    device.first_places = places;
    trainer->graph = fr_graph_new(&(struct fr_graph_options){.conf = options->conf,
                                                             .pool = options->pool,
                                                             .clock = options->clock,
                                                             .device = options->device ? &device : NULL});
}

struct fr_trainer *fr_trainer_new(const struct fr_trainer_options *options)
{
    struct fr_trainer *trainer = fr_alloc(1, sizeof(*trainer));
    trainer->options = *options;
    trainer->conf = options->conf;
    trainer->history.watermark_ms = INT64_MIN;
    trainer->history.n_tasks = options->conf->n_tasks;
    trainer->last_cut_ns = fr_mono_ns(options->clock);
    trainer->run.last_loss = NAN;
    trainer->allowed.bytes = UINT64_MAX;
    trainer->sift.looks_max = FR_SIFT_LOOKS_MAX;
    pthread_mutex_init(&trainer->lock, NULL);

    open_store(trainer);
    open_graph(trainer);
    size_t n_parameters = fr_graph_parameter_count(trainer->graph);
    trainer->journaled = fr_alloc(n_parameters + 1, sizeof(*trainer->journaled));
    trainer->published = fr_alloc(n_parameters + 1, sizeof(*trainer->published));
    for (size_t i = 0; i < n_parameters; i++)
        trainer->journaled[i] = trainer->published[i] = FR_NEVER;
    trainer->journaled_shared = FR_NEVER;
    for (size_t i = 0; i < FR_TASKS_MAX; i++)
        trainer->journaled_metrics[i] = FR_NEVER;
    fr_trainer_lookout_init(trainer);
    fr_trainer_measure_init(trainer);
    fr_trainer_tasks_init(trainer);
    fr_trainer_publish_status(trainer);
    return trainer;
}

void fr_trainer_free(struct fr_trainer *trainer)
{
    if (!trainer)
        return;
    fr_trainer_lookout_release(trainer);
    fr_trainer_measure_release(trainer);
    fr_trainer_sift_release(trainer);
    fr_batch_free(trainer->open);
    fr_store_rows_free(trainer->rows);
    fr_store_rows_free(trainer->ahead.rows);
    fr_store_free(trainer->store);
    fr_graph_free(trainer->graph);
    free(trainer->journaled);
    free(trainer->published);
    fr_buffer_release(&trainer->carried);
    pthread_mutex_destroy(&trainer->lock);
    free(trainer);
}

static void count_batch(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    uint64_t *const counters[FR_ROLES] = {
        [FR_ROLE_TRAIN] = &trainer->history.samples,
        [FR_ROLE_METRICS_ONLY] = &trainer->history.metrics_only,
        [FR_ROLE_MASKED] = &trainer->history.masked,
        [FR_ROLE_QUARANTINED] = &trainer->history.quarantined_samples,
    };
    for (uint32_t i = 0; i < batch->n_samples; i++)
        (*counters[batch->role[i]])++;
    trainer->history.quarantined_batches += trainer->sift.whole;
    trainer->history.quarantined_singly += trainer->sift.whole ? 0 : trainer->sift.n_left_out;
    trainer->history.unknown_slots += batch->unknown_slots;
    trainer->history.unknown_keys += batch->unknown_keys;
    trainer->history.excess_ids += batch->excess_ids;
    if (batch->dead_sequence > trainer->dead_sequence)
        trainer->dead_sequence = batch->dead_sequence;
    if (batch->kafka_t_max_ms > trainer->run.kafka_t_max_ms)
        trainer->run.kafka_t_max_ms = batch->kafka_t_max_ms;
}

/* Samples that are unfit leave store, parameters, metrics and watermark as if they had never been
 * in the batch; predictions are those made before the batch's own update. */
static enum fr_status learn(struct fr_trainer *trainer, struct fr_batch *batch, struct fr_err *err)
{
    if (batch->n_samples == 0)
        return FR_OK;
    enum fr_status status = fr_trainer_attempt(trainer, batch);
    if (status == FR_E_NONFINITE)
        status = fr_trainer_sift(trainer, batch);
    if (status != FR_OK &&
        (fr_store_failure(trainer->store, err) != FR_OK || fr_graph_failure(trainer->graph, err) != FR_OK))
        return status; /* with the cold store's own words, or the device's */
    if (status != FR_OK)
        return fr_err_set(err, status, "training step failed: %s", fr_status_name(status));
    trainer->history.batches++;
    return FR_OK;
}

static bool hold_is_due(const struct fr_trainer *trainer)
{
    return trainer->history.bad_streak >= FR_QUARANTINE_STREAK_MAX &&
           trainer->history.bad_streak_samples >= FR_QUARANTINE_SAMPLES_MIN;
}

/* One more batch of which nothing trained, though it should have, or of which something did. */
static void lengthen_streak(struct fr_trainer *trainer, bool bad)
{
    uint32_t *streak = bad ? &trainer->history.bad_streak : &trainer->history.good_streak;
    if (*streak < FR_QUARANTINE_STREAK_MAX)
        (*streak)++;
    if (!bad) {
        trainer->history.bad_streak = trainer->history.bad_streak_samples = 0;
        return;
    }
    trainer->history.good_streak = 0;
    uint64_t samples = (uint64_t)trainer->history.bad_streak_samples + trainer->sift.n_left_out;
    trainer->history.bad_streak_samples =
        samples < FR_QUARANTINE_SAMPLES_MIN ? (uint32_t)samples : FR_QUARANTINE_SAMPLES_MIN;
}

/* Batches in a row of which nothing could train begin the hold, batches of which something trained
 * end it: a sample left out of a batch whose others train is the sample's fault, not the model's.
 * Batches with nothing to train say nothing. */
static void judge_numbers(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    bool trains = false;
    for (uint32_t i = 0; i < batch->n_samples && !trains; i++)
        trains = batch->role[i] == FR_ROLE_TRAIN;
    bool bad = !trains && (trainer->sift.trains || trainer->sift.whole);
    if (!bad && !trains)
        return;
    lengthen_streak(trainer, bad);
    if (bad)
        fr_log(FR_LOG_WARN, "trainer", "batch_quarantined", "batch=%" PRIu64 " samples=%u in_a_row=%u",
               trainer->history.batches, batch->n_samples, trainer->history.bad_streak);
    bool due = bad ? hold_is_due(trainer) : trainer->history.good_streak == FR_QUARANTINE_STREAK_MAX;
    if (!due || trainer->history.held == bad)
        return;
    trainer->history.held = bad;
    if (bad)
        fr_log(FR_LOG_ERROR, "trainer", "publishing_held",
               "batch=%" PRIu64 " publishable=%" PRIu64
               " reason=\"%d batches in a row gave non-finite numbers and nothing of them could train\"",
               trainer->history.batches, trainer->history.publishable, FR_QUARANTINE_STREAK_MAX);
    else
        fr_log(FR_LOG_INFO, "trainer", "publishing_resumed", "batch=%" PRIu64 " after_good_batches=%d",
               trainer->history.batches, FR_QUARANTINE_STREAK_MAX);
    fr_trainer_publish_status(trainer);
}

/* Rules that look at values see those of the store, which a device may have newer. */
static bool values_are_there(struct fr_trainer *trainer)
{
    return !fr_trainer_slices_need_values(trainer) || fr_graph_settle(trainer->graph, NULL) == FR_OK;
}

bool fr_trainer_slices_need_values(const struct fr_trainer *trainer)
{
    bool needed = false;
    for (uint32_t t = 0; t < trainer->conf->n_tables; t++)
        for (uint32_t e = 0; e < trainer->options.policies[t].n_expiries; e++)
            needed |= trainer->options.policies[t].expiries[e].needs_values;
    return needed;
}

/* Slices go by trained samples, counted in full batches, or small ones would look at the tables far
 * too often. Those left out are not counted: slices too are as if they had not been. */
struct fr_slices fr_trainer_slices(const struct fr_trainer *trainer, uint64_t samples_before, uint64_t samples_after)
{
    uint32_t size = trainer->conf->ingest.batch_size;
    struct fr_slices slices = {.first = samples_before / size + 1, .last = samples_after / size};
    for (uint64_t n = slices.first; n <= slices.last; n++)
        slices.due |= fr_store_slice_due(trainer->store, n);
    return slices;
}

/* After a batch; they may have run beside its step. */
static void slice(struct fr_trainer *trainer, uint64_t samples_before)
{
    struct fr_slices slices = fr_trainer_slices(trainer, samples_before, trainer->history.samples);
    if (!trainer->ahead.sliced) {
        if (slices.due && !values_are_there(trainer))
            return; /* the next step says why */
        for (uint64_t n = slices.first; n <= slices.last; n++)
            fr_store_slice(trainer->store, n, trainer->history.watermark_ms);
    }
    trainer->ahead.sliced = false;
    if (slices.first <= slices.last)
        fr_trainer_look_at_slices(trainer);
}

/* While nothing is read, or nothing arrives, slices continue until all rows were examined with this
 * watermark. In lockstep they are a function of the log. */
static void slice_idle(struct fr_trainer *trainer, uint64_t now_ns)
{
    if (trainer->conf->ingest.lockstep || trainer->history.watermark_ms == INT64_MIN ||
        now_ns - trainer->last_idle_ns < IDLE_SLICE_NS)
        return;
    if (fr_store_dirty_bytes(trainer->store) >= trainer->conf->epoch_bytes_max)
        return; /* a cut must come first, which may have to wait */
    trainer->last_idle_ns = now_ns;
    if (!values_are_there(trainer))
        return;
    if (fr_store_slice_idle(trainer->store, trainer->history.watermark_ms))
        fr_trainer_look_at_slices(trainer);
}

/* The batch has taken effect once its dead letters are on their way: an epoch that has its
 * positions then also waits for them. FR_AGAIN: there is no room for a letter; no cut comes in
 * between. */
static enum fr_status conclude(struct fr_trainer *trainer)
{
    struct fr_batch *batch = trainer->open;
    enum fr_status status = fr_trainer_send_letters(trainer, batch);
    if (status != FR_OK)
        return status;
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock), samples_before = trainer->history.samples;
    count_batch(trainer, batch);
    fr_trainer_tell_left_out(trainer, batch);
    trainer->options.stream.applied(trainer->options.stream.self, batch);
    trainer->consumed = true;
    trainer->history.closed = false;
    slice(trainer, samples_before);
    fr_trainer_measure_batch(trainer);
    fr_trainer_measure_produced(trainer);
    judge_numbers(trainer, batch);
    trainer->run.step_ns += fr_mono_ns(trainer->options.clock) - begin_ns;
    return FR_OK;
}

static enum fr_status apply_batch(struct fr_trainer *trainer, struct fr_batch *batch, struct fr_err *err)
{
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock);
    struct fr_sift *sift = &trainer->sift;
    sift->n_left_out = sift->trials = sift->letter_at = 0;
    sift->letter_last = NULL;
    sift->trains = sift->whole = false;
    trainer->watermark_begin_ms = trainer->history.watermark_ms;
    trainer->watermark_held = false;
    trainer->dirty_begin = fr_trainer_dirty_bytes(trainer);
    enum fr_status status = learn(trainer, batch, err);
    trainer->run.watermark_held += trainer->watermark_held;
    uint64_t took_ns = fr_mono_ns(trainer->options.clock) - begin_ns;
    trainer->run.step_ns += took_ns;
    if (batch->n_samples) {
        fr_timings_observe(trainer->options.timings, FR_TIMING_STEP, (double)took_ns / 1e9);
        fr_timings_observe(trainer->options.timings, FR_TIMING_BATCH, batch->n_samples);
    }
    return status;
}

/* Whether the next batch has to wait; why is in the status. */
static bool paused(struct fr_trainer *trainer, uint64_t now_ns)
{
    char own[sizeof(trainer->status.paused)] = "";
    enum fr_pause why = FR_PAUSE_NONE;
    if (fr_trainer_cut_late(trainer, now_ns, own, sizeof(own)))
        why = FR_PAUSE_CUT;
    else if (!trainer->ahead.planned && fr_trainer_waits_for_memory(trainer, own, sizeof(own)))
        why = FR_PAUSE_MEMORY;
    pthread_mutex_lock(&trainer->lock);
    if (why == FR_PAUSE_NONE && trainer->pause == FR_PAUSE_NONE && fr_trainer_at_limit(trainer)) {
        why = trainer->allowed.why;
        memcpy(own, trainer->allowed.text, sizeof(own));
    }
    trainer->status.pause = why != FR_PAUSE_NONE ? why : trainer->pause;
    memcpy(trainer->status.paused, why != FR_PAUSE_NONE ? own : trainer->pause_text, sizeof(trainer->status.paused));
    trainer->waits = trainer->status.pause != FR_PAUSE_NONE;
    pthread_mutex_unlock(&trainer->lock);
    return trainer->waits;
}

/* FR_AGAIN: it is due, and no stage is free. Live cuts do not wait for the durable thread, except
 * when the dirty set is at its limit; lockstep cuts have to be here. Then no batch may come before
 * (*must). */
static enum fr_status due_cut(struct fr_trainer *trainer, bool *must)
{
    *must = trainer->conf->ingest.lockstep || fr_trainer_dirty_bytes(trainer) >= trainer->conf->epoch_bytes_max;
    enum fr_status status = fr_trainer_cut(trainer, false, *must ? (uint64_t)FR_TRAINER_WAIT_MS * 1000000 : 0);
    return status == FR_OK ? FR_OK : FR_AGAIN;
}

/* Nobody would miss a last epoch. */
static bool has_nothing_new(const struct fr_trainer *trainer)
{
    if (trainer->consumed || trainer->carried_name[0] != '\0' || fr_trainer_epoch_wanted(trainer) == FR_EPOCH_WANTED)
        return false;
    return trainer->history.closed || trainer->epoch == 0;
}

static enum fr_status finish(struct fr_trainer *trainer)
{
    if (!trainer->drained) {
        if (!has_nothing_new(trainer)) {
            enum fr_status status = fr_trainer_cut(trainer, true, (uint64_t)FR_TRAINER_WAIT_MS * 1000000);
            if (status != FR_OK)
                return FR_AGAIN;
        }
        trainer->drained = true;
        fr_trainer_publish_status(trainer);
    }
    return FR_EOF;
}

/* Concludes the batch at hand and gives it back to be filled. */
static enum fr_status return_batch(struct fr_trainer *trainer)
{
    struct fr_batch *batch = trainer->open;
    if (batch->n_samples > 0 || batch->n_positions > 0) {
        enum fr_status status = conclude(trainer);
        if (status != FR_OK)
            return status;
    }
    trainer->open = NULL;
    trainer->ended = trainer->ended || batch->end_of_stream;
    fr_batch_clear(batch);
    if (!fr_ring_try_push(trainer->options.empty, batch))
        fr_batch_free(batch); /* closing down */
    return FR_OK;
}

enum fr_status fr_trainer_step(struct fr_trainer *trainer, struct fr_err *err)
{
    uint64_t now_ns = fr_mono_ns(trainer->options.clock);
    enum fr_status status = fr_store_failure(trainer->store, err); /* of a slice, or of a look */
    if (status == FR_OK)
        status = fr_graph_failure(trainer->graph, err); /* of a cut, or a slice */
    if (status != FR_OK)
        return status;
    if (trainer->open)
        return return_batch(trainer);
    if (trainer->ended || atomic_load(&trainer->stop)) {
        fr_trainer_drop_ahead(trainer);
        return finish(trainer);
    }

    if (now_ns - trainer->last_status_ns >= 1000000000)
        fr_trainer_publish_status(trainer);
    bool must = false;
    if (fr_trainer_cut_due(trainer, now_ns) && due_cut(trainer, &must) == FR_OK)
        return FR_OK;
    void *item = NULL;
    if (paused(trainer, now_ns) || must) { /* the ring fills and ingest stops polling */
        fr_trainer_drop_ahead(trainer);
        slice_idle(trainer, now_ns);
        return FR_AGAIN;
    }
    if (trainer->lookout.next) {
        item = trainer->lookout.next;
        trainer->lookout.next = NULL;
    } else {
        uint64_t traced_ns = fr_trace_begin();
        enum fr_status popped = fr_ring_pop(trainer->options.full, &item, (uint64_t)FR_TRAINER_WAIT_MS * 1000000);
        fr_trace_end("wait for a batch", traced_ns);
        trainer->run.wait_ns += fr_mono_ns(trainer->options.clock) - now_ns;
        if (popped == FR_EOF)
            trainer->ended = true;
        if (popped != FR_OK) {
            slice_idle(trainer, now_ns);
            return FR_AGAIN;
        }
    }
    struct fr_batch *batch = item;
    trainer->open = batch;
    /* an empty one only says that the stream has ended */
    if (batch->n_samples > 0 || batch->n_positions > 0) {
        status = apply_batch(trainer, batch, err);
        if (status != FR_OK)
            return status;
    }
    return return_batch(trainer);
}

void fr_trainer_stop(struct fr_trainer *trainer)
{
    atomic_store(&trainer->stop, true);
}

const char *const fr_trainer_pauses[FR_PAUSE_KINDS] = {
#define FR_PAUSE_NAME(name, text) text,
    FR_PAUSES(FR_PAUSE_NAME)
#undef FR_PAUSE_NAME
};

void fr_trainer_pause(struct fr_trainer *trainer, enum fr_pause why, const char *text)
{
    pthread_mutex_lock(&trainer->lock);
    trainer->pause = why;
    snprintf(trainer->pause_text, sizeof(trainer->pause_text), "%s", text && why != FR_PAUSE_NONE ? text : "");
    pthread_mutex_unlock(&trainer->lock);
}
