/* Handling of a batch that was refused because numbers were not finite: its samples are examined
 * one by one, unfit samples are left out, and the rest is trained as if the unfit samples had never
 * been in the batch (promise P2: they count as quarantined). This file also decides whether
 * publishing is held.
 *
 * The graph points at suspects. The batch without the suspects is planned and tried again, as a
 * batch of its own (fr_batch_select), at most FR_SIFT_EXAMINATIONS_MAX times, because each
 * examination may reveal what the one before hid (a logit, then a gradient, then a sum). If nothing
 * points at a sample, halves of the rest are tried, each as a step of its own, down to single
 * samples, in at most FR_SIFT_TRIALS_MAX steps; what is not tried by then is left out. A refused
 * batch therefore costs at most FR_SIFT_EXAMINATIONS_MAX + FR_SIFT_TRIALS_MAX steps of its size,
 * most often one. Everything is a function of state and batch, so lockstep runs and restarts agree.
 *
 * On several ranks all of them sift together: an examination ends when some rank has found a
 * suspect, halves are of the samples of all ranks in their order, and each rank leaves out its own
 * samples and sends their letters. Owner thread only. */
#include "trainer_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "batch/records.h"

enum {
    /* ranges that wait at once: each halving of a 32-bit number of samples leaves at most two */
    RANGES_MAX = 64,
    REASON_MAX = 512,
    LOG_EVERY_NS = 1000000000,
};

/* Samples [begin, end) of the batch of all ranks, without those left out. */
struct range {
    uint64_t begin, end;
};

void fr_trainer_sift_release(struct fr_trainer *trainer)
{
    struct fr_sift *sift = &trainer->sift;
    fr_batch_free(sift->rest);
    free(sift->left_out);
    free(sift->mask);
    free(sift->found);
    free(sift->findings);
    *sift = (struct fr_sift){0};
}

static void reserve(struct fr_trainer *trainer, uint32_t n)
{
    struct fr_sift *sift = &trainer->sift;
    if (!sift->rest)
        sift->rest = fr_batch_new(trainer->conf);
    if (n <= sift->capacity)
        return;
    sift->capacity = n;
    sift->left_out = fr_realloc(sift->left_out, n, sizeof(*sift->left_out));
    sift->mask = fr_realloc(sift->mask, n, sizeof(*sift->mask));
    sift->found = fr_realloc(sift->found, n, sizeof(*sift->found));
    sift->findings = fr_realloc(sift->findings, n, sizeof(*sift->findings));
}

/* Whether sample i of this rank's batch is in the range and not left out. */
static bool remains(const struct fr_sift *sift, struct range range, uint32_t i)
{
    uint64_t number = sift->batch.first + i;
    return number >= range.begin && number < range.end && !sift->left_out[i];
}

/* Returns how many samples of all ranks remain of a range. */
static uint64_t remaining(struct fr_trainer *trainer, const struct fr_batch *batch, struct range range)
{
    struct fr_err err = {0};
    uint64_t n = 0;
    for (uint32_t i = 0; i < batch->n_samples; i++)
        n += remains(&trainer->sift, range, i);
    fr_trainer_sum(trainer, &n, 1);
    if (n <= range.end - range.begin)
        return n;
    (void)fr_trainer_ranks_check(trainer,
                                 fr_err_set(&err, FR_E_CORRUPT,
                                            "the ranks say that %" PRIu64 " of %" PRIu64 " samples remain", n,
                                            range.end - range.begin),
                                 &err);
    return 0;
}

static enum fr_status attempt(struct fr_trainer *trainer, const struct fr_batch *batch, struct range range)
{
    struct fr_sift *sift = &trainer->sift;
    for (uint32_t i = 0; i < batch->n_samples; i++)
        sift->mask[i] = !remains(sift, range, i);
    fr_batch_select(batch, sift->mask, sift->rest);
    fr_trainer_agree(trainer, sift->rest, &trainer->pipeline.plan.facts);
    return trainer->pipeline.plan.facts.n_samples > 0 ? fr_trainer_attempt(trainer, sift->rest) : FR_OK;
}

static void leave_out(struct fr_sift *sift, uint32_t sample, struct fr_suspect finding)
{
    sift->left_out[sample] = 1;
    sift->findings[sample] = finding;
}

/* The batch as a whole was refused, so halves of it are tried. Each half that is accepted has taken
 * effect. */
static enum fr_status train_in_halves(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_sift *sift = &trainer->sift;
    struct range stack[RANGES_MAX] = {{0, sift->batch.n_samples}};
    uint32_t depth = 1;
    bool tried = true; /* only the first range, the whole batch, was tried before */
    while (depth > 0) {
        struct range range = stack[--depth];
        uint64_t n = remaining(trainer, batch, range);
        if (n == 0)
            continue;
        if (!tried && sift->batch.trials < FR_SIFT_TRIALS_MAX) {
            sift->batch.trials++;
            enum fr_status status = attempt(trainer, batch, range);
            if (status == FR_OK)
                continue;
            if (status != FR_E_NONFINITE)
                return status;
            fr_pipeline_move(trainer, FR_MOVE_UNDO);
        }
        if (n == 1 || sift->batch.trials == FR_SIFT_TRIALS_MAX) {
            for (uint32_t i = 0; i < batch->n_samples; i++)
                if (remains(sift, range, i))
                    leave_out(sift, i, (struct fr_suspect){FR_SUSPECT_NONE, 0});
            continue;
        }
        tried = false;
        uint64_t middle = range.begin + (range.end - range.begin) / 2;
        FR_CHECK(depth + 2 <= RANGES_MAX);
        stack[depth++] = (struct range){middle, range.end};
        stack[depth++] = (struct range){range.begin, middle};
    }
    return FR_OK;
}

/* Finds the suspects of this rank that the first examination finds which finds some on any rank.
 * Returns their number over all ranks. */
static uint64_t find_suspects(struct fr_trainer *trainer, const struct fr_batch *tried)
{
    uint64_t n = 0;
    for (enum fr_suspect_look look = 0; look < FR_SUSPECT_LOOKS && n == 0; look++) {
        n = tried->n_samples == 0
                ? 0
                : fr_graph_suspects(trainer->graph, tried, trainer->pipeline.plan.rows, look, trainer->sift.found);
        fr_trainer_sum(trainer, &n, 1);
    }
    return n;
}

/* The whole batch was just refused, and its plan stands. */
static enum fr_status train_fit_samples(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_sift *sift = &trainer->sift;
    const struct fr_batch *tried = batch;
    for (uint32_t examinations = 0;; examinations++) {
        uint64_t n = examinations < FR_SIFT_EXAMINATIONS_MAX ? find_suspects(trainer, tried) : 0;
        fr_pipeline_move(trainer, FR_MOVE_UNDO);
        if (n == 0)
            return train_in_halves(trainer, batch);
        for (uint32_t i = 0, at = 0; i < batch->n_samples; i++)
            if (!sift->mask[i] && sift->found[at++].why != FR_SUSPECT_NONE)
                leave_out(sift, i, sift->found[at - 1]);
        tried = sift->rest;
        enum fr_status status = attempt(trainer, batch, (struct range){0, sift->batch.n_samples});
        if (status != FR_E_NONFINITE)
            return status;
    }
}

enum fr_status fr_trainer_sift(struct fr_trainer *trainer, struct fr_batch *batch)
{
    struct fr_sift *sift = &trainer->sift;
    reserve(trainer, batch->n_samples);
    if (batch->n_samples > 0) { /* otherwise there may be no memory yet */
        memset(sift->left_out, 0, batch->n_samples);
        memset(sift->mask, 0, batch->n_samples);
    }
    sift->batch.first = trainer->pipeline.plan.facts.first;
    sift->batch.n_samples = trainer->pipeline.plan.facts.n_samples;
    enum fr_status status = train_fit_samples(trainer, batch);
    if (status != FR_OK)
        return status;
    fr_pipeline_move(trainer, FR_MOVE_LEAVE_REST_OUT);
    enum { LEFT_OUT, TRAINS, EFFECTIVE, NUMBERS };
    uint64_t numbers[NUMBERS] = {0};
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        if (sift->left_out[i]) {
            sift->batch.n_left_out++;
            numbers[TRAINS] += batch->role[i] == FR_ROLE_TRAIN;
            fr_batch_quarantine(batch, i);
        }
        numbers[EFFECTIVE] += batch->role[i] == FR_ROLE_TRAIN || batch->role[i] == FR_ROLE_METRICS_ONLY;
    }
    numbers[LEFT_OUT] = sift->batch.n_left_out;
    fr_trainer_sum(trainer, numbers, NUMBERS);
    sift->batch.all_left_out = numbers[LEFT_OUT];
    sift->batch.trains = numbers[TRAINS] > 0;
    sift->batch.whole = numbers[EFFECTIVE] == 0;
    return FR_OK;
}

/* ---- letters ---- */

static void write_reason(const struct fr_trainer *trainer, const struct fr_batch *batch, uint32_t sample, char *text)
{
    const struct fr_batch_record *record = fr_batch_record_of(batch, sample);
    char why[REASON_MAX / 2];
    uint32_t more = 0;
    fr_graph_suspect_text(trainer->graph, batch, sample, trainer->sift.findings[sample], why, sizeof(why));
    for (uint32_t i = sample + 1; i < batch->n_samples && fr_batch_record_of(batch, i) == record; i++)
        more += trainer->sift.left_out[i];
    int size = snprintf(text, REASON_MAX, "quarantined: sample %" PRIu32 " of the record (from 0): %s",
                        record ? record->first_item + sample - record->first_sample : sample, why);
    if (more > 0 && size > 0 && size < REASON_MAX)
        snprintf(text + size, REASON_MAX - (size_t)size, "; and %" PRIu32 " more samples of it", more);
}

/* While publishing is held, the model is suspect. A batch of which nothing is left then sends no
 * letters, because its records may be sound. */
static bool sends_letters(const struct fr_trainer *trainer)
{
    return trainer->options.stream.dead_letter && !(trainer->sift.batch.whole && trainer->history.held);
}

enum fr_status fr_trainer_send_letters(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_sift_batch *sift = &trainer->sift.batch;
    char reason[REASON_MAX];
    if (sift->n_left_out == 0 || !sends_letters(trainer))
        return FR_OK;
    for (; sift->letter_at < batch->n_samples; sift->letter_at++) {
        const struct fr_batch_record *record = fr_batch_record_of(batch, sift->letter_at);
        if (!trainer->sift.left_out[sift->letter_at] || !record || record == sift->letter_last)
            continue;
        uint64_t number = 0;
        write_reason(trainer, batch, sift->letter_at, reason);
        enum fr_status status =
            trainer->options.stream.dead_letter(trainer->options.stream.self, batch, record, reason, &number);
        if (status != FR_OK)
            return status;
        sift->letter_last = record;
        trainer->run.quarantined_records += number > 0;
        if (number > trainer->dead_sequence)
            trainer->dead_sequence = number;
    }
    return FR_OK;
}

void fr_trainer_log_left_out(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_sift *sift = &trainer->sift;
    char reason[REASON_MAX], quoted[REASON_MAX + 16];
    uint32_t first = 0;
    if (sift->batch.n_left_out == 0 || !fr_log_due(&sift->logged_ns, fr_mono_ns(trainer->options.clock), LOG_EVERY_NS))
        return;
    while (!sift->left_out[first])
        first++;
    write_reason(trainer, batch, first, reason);
    fr_log(FR_LOG_WARN, "trainer", "samples_quarantined",
           "batch=%" PRIu64 " samples=%" PRIu32 " of=%" PRIu32 " total=%" PRIu64 " first=%s", trainer->history.batches,
           sift->batch.n_left_out, batch->n_samples, trainer->history.quarantined_samples,
           fr_log_quote(quoted, sizeof(quoted), reason));
}

/* ---- hold ---- */

static bool hold_is_due(const struct fr_trainer_history *history)
{
    return history->bad_streak >= FR_QUARANTINE_STREAK_MAX && history->bad_streak_samples >= FR_QUARANTINE_SAMPLES_MIN;
}

/* Counts one more bad batch (nothing of it was trained although something should have been), or
 * one more good batch (something of it was trained). */
static void lengthen_streak(struct fr_trainer_history *history, bool bad, uint64_t n_left_out)
{
    uint32_t *streak = bad ? &history->bad_streak : &history->good_streak;
    if (*streak < FR_QUARANTINE_STREAK_MAX)
        (*streak)++;
    if (!bad) {
        history->bad_streak = history->bad_streak_samples = 0;
        return;
    }
    history->good_streak = 0;
    uint64_t samples = history->bad_streak_samples + n_left_out;
    history->bad_streak_samples = samples < FR_QUARANTINE_SAMPLES_MIN ? (uint32_t)samples : FR_QUARANTINE_SAMPLES_MIN;
}

/* Consecutive batches of which nothing could train begin the hold, and batches of which something
 * trained end it: if the other samples of a batch train, a sample left out is at fault itself, not
 * the model. A batch without samples to train changes nothing. */
void fr_trainer_update_hold(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_trainer_history *history = &trainer->history;
    const struct fr_sift_batch *sift = &trainer->sift.batch;
    bool trains = history->samples > trainer->pipeline.begin.samples; /* the batch is counted */
    bool bad = !trains && (sift->trains || sift->whole);
    if (!bad && !trains)
        return;
    lengthen_streak(history, bad, sift->all_left_out);
    if (bad)
        fr_log(FR_LOG_WARN, "trainer", "batch_quarantined", "batch=%" PRIu64 " samples=%u in_a_row=%u",
               history->batches, batch->n_samples, history->bad_streak);
    bool due = bad ? hold_is_due(history) : history->good_streak == FR_QUARANTINE_STREAK_MAX;
    if (!due || history->held == bad)
        return;
    history->held = bad;
    if (bad)
        fr_log(FR_LOG_ERROR, "trainer", "publishing_held",
               "batch=%" PRIu64 " publishable=%" PRIu64
               " reason=\"%d batches in a row gave non-finite numbers and nothing of them could train\"",
               history->batches, history->publishable, FR_QUARANTINE_STREAK_MAX);
    else
        fr_log(FR_LOG_INFO, "trainer", "publishing_resumed", "batch=%" PRIu64 " after_good_batches=%d",
               history->batches, FR_QUARANTINE_STREAK_MAX);
    fr_trainer_publish_status(trainer);
}
