/* Handling of a batch that fr_graph_train refuses: its samples are examined one by one, unfit
 * samples are left out, and the rest is trained as if the unfit samples had never been in the batch
 * (promise P2: they count as quarantined).
 *
 * The graph points at suspects; without them the batch is planned and tried again, as a batch of
 * its own (fr_batch_select), at most FR_SIFT_LOOKS_MAX times: each look may uncover what the one
 * before hid (a logit, then a gradient, then a sum). Where nothing points at a sample, what is left
 * goes in halves, each a step of its own, down to single samples, at most FR_SIFT_TRIALS_MAX steps;
 * what is not tried by then is left out. So a refused batch costs at most FR_SIFT_LOOKS_MAX +
 * FR_SIFT_TRIALS_MAX batches of its size, most often one more. All of it is a function of state and
 * batch: lockstep runs and restarts agree. Owner thread only. */
#include "trainer_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "batch/records.h"

enum {
    RANGES_MAX = 64, /* a range and its halves, 32 bits deep */
    REASON_MAX = 512,
    LOG_EVERY_NS = 1000000000,
};

/* Samples [begin, end) of the batch, without those left out. */
struct range {
    uint32_t begin, end;
};

void fr_trainer_sift_release(struct fr_trainer *trainer)
{
    struct fr_sift *sift = &trainer->sift;
    fr_batch_free(sift->rest);
    free(sift->left_out);
    free(sift->mask);
    free(sift->origin);
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
    sift->origin = fr_realloc(sift->origin, n, sizeof(*sift->origin));
    sift->found = fr_realloc(sift->found, n, sizeof(*sift->found));
    sift->findings = fr_realloc(sift->findings, n, sizeof(*sift->findings));
}

static uint32_t remaining(const struct fr_sift *sift, struct range range)
{
    uint32_t n = 0;
    for (uint32_t i = range.begin; i < range.end; i++)
        n += !sift->left_out[i];
    return n;
}

static enum fr_status attempt(struct fr_trainer *trainer, const struct fr_batch *batch, struct range range)
{
    struct fr_sift *sift = &trainer->sift;
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        sift->mask[i] = sift->left_out[i] || i < range.begin || i >= range.end;
        if (!sift->mask[i])
            sift->origin[n++] = i;
    }
    if (n == 0)
        return FR_OK;
    fr_batch_select(batch, sift->mask, sift->rest);
    return fr_trainer_attempt(trainer, sift->rest);
}

static void leave_out(struct fr_sift *sift, uint32_t sample, struct fr_suspect finding)
{
    sift->left_out[sample] = 1;
    sift->findings[sample] = finding;
}

/* Each half that is accepted has taken effect when it returns. */
static enum fr_status train_in_halves(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_sift *sift = &trainer->sift;
    struct range stack[RANGES_MAX] = {{0, batch->n_samples}};
    uint32_t depth = 1;
    bool refused = true; /* the whole was */
    while (depth > 0) {
        struct range range = stack[--depth];
        uint32_t n = remaining(sift, range);
        if (n == 0)
            continue;
        bool tries = !refused && sift->trials < FR_SIFT_TRIALS_MAX;
        enum fr_status status = FR_E_NONFINITE;
        if (tries) {
            sift->trials++;
            status = attempt(trainer, batch, range);
        }
        if (status != FR_E_NONFINITE) {
            if (status != FR_OK)
                return status;
            continue;
        }
        if (tries)
            fr_trainer_take_back(trainer);
        if (n == 1 || sift->trials == FR_SIFT_TRIALS_MAX) {
            for (uint32_t i = range.begin; i < range.end; i++)
                if (!sift->left_out[i])
                    leave_out(sift, i, (struct fr_suspect){FR_SUSPECT_NONE, 0});
            continue;
        }
        refused = false;
        uint32_t middle = range.begin + (range.end - range.begin) / 2;
        FR_CHECK(depth + 2 <= RANGES_MAX);
        stack[depth++] = (struct range){middle, range.end};
        stack[depth++] = (struct range){range.begin, middle};
    }
    return FR_OK;
}

/* The batch as it was tried first has just been refused; its plan stands. */
static enum fr_status train_fit_samples(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_sift *sift = &trainer->sift;
    const struct fr_batch *tried = batch;
    for (uint32_t looks = 0;; looks++) {
        uint32_t n = looks < sift->looks_max ? fr_graph_suspects(trainer->graph, tried, trainer->rows, sift->found) : 0;
        fr_trainer_take_back(trainer);
        if (n == 0)
            return train_in_halves(trainer, batch);
        for (uint32_t i = 0; i < tried->n_samples; i++)
            if (sift->found[i].why != FR_SUSPECT_NONE)
                leave_out(sift, sift->origin[i], sift->found[i]);
        tried = sift->rest;
        enum fr_status status = attempt(trainer, batch, (struct range){0, batch->n_samples});
        if (status != FR_E_NONFINITE)
            return status;
    }
}

enum fr_status fr_trainer_sift(struct fr_trainer *trainer, struct fr_batch *batch)
{
    struct fr_sift *sift = &trainer->sift;
    reserve(trainer, batch->n_samples);
    memset(sift->left_out, 0, batch->n_samples);
    for (uint32_t i = 0; i < batch->n_samples; i++)
        sift->origin[i] = i;
    enum fr_status status = train_fit_samples(trainer, batch);
    if (status != FR_OK)
        return status;
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        if (!sift->left_out[i])
            continue;
        sift->n_left_out++;
        sift->trains |= batch->role[i] == FR_ROLE_TRAIN;
        fr_batch_quarantine(batch, i);
    }
    sift->whole = true;
    for (uint32_t i = 0; i < batch->n_samples; i++)
        sift->whole &= batch->role[i] != FR_ROLE_TRAIN && batch->role[i] != FR_ROLE_METRICS_ONLY;
    return FR_OK;
}

/* ---- letters ---- */

static void reason_of(const struct fr_trainer *trainer, const struct fr_batch *batch, uint32_t sample, char *text)
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

/* A model that refuses everything says nothing about records: while publishing is held for that,
 * they stay out of the dead letters. */
static bool sends_letters(const struct fr_trainer *trainer)
{
    return trainer->options.stream.dead_letter && !(trainer->sift.whole && trainer->history.held);
}

enum fr_status fr_trainer_send_letters(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_sift *sift = &trainer->sift;
    char reason[REASON_MAX];
    if (sift->n_left_out == 0 || !sends_letters(trainer))
        return FR_OK;
    for (; sift->letter_at < batch->n_samples; sift->letter_at++) {
        const struct fr_batch_record *record = fr_batch_record_of(batch, sift->letter_at);
        if (!sift->left_out[sift->letter_at] || !record || record == sift->letter_last)
            continue;
        uint64_t number = 0;
        reason_of(trainer, batch, sift->letter_at, reason);
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

void fr_trainer_tell_left_out(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_sift *sift = &trainer->sift;
    char reason[REASON_MAX], quoted[REASON_MAX + 16];
    uint32_t first = 0;
    if (sift->n_left_out == 0 || !fr_log_due(&sift->told_ns, fr_mono_ns(trainer->options.clock), LOG_EVERY_NS))
        return;
    while (!sift->left_out[first])
        first++;
    reason_of(trainer, batch, first, reason);
    fr_log(FR_LOG_WARN, "trainer", "samples_quarantined",
           "batch=%" PRIu64 " samples=%" PRIu32 " of=%" PRIu32 " total=%" PRIu64 " first=%s", trainer->history.batches,
           sift->n_left_out, batch->n_samples, trainer->history.quarantined_samples,
           fr_log_quote(quoted, sizeof(quoted), reason));
}
