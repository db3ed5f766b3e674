/* Batches from records: decode, split at the batch's size, keep positions, ledger and fingerprints;
 * refused records to the dead-letter sink.
 *
 * A record is handled in steps that may each find no batch or no room for a letter; `pending` says
 * what remains, and nothing is polled before it is done, so a full ring stops polling. A record's
 * position moves only with its items: (offset, item) until the last one, then (offset + 1, 0), when
 * the record is also counted and becomes the fingerprint. Invariants: open->positions[i] is the
 * entry of lanes[touched[i]]; entries get their final offsets when the batch closes. Batches are
 * small while the model is young: how many samples close one follows from how many there were in
 * the batches before, which the positions' ledgers say after a restart too. Lockstep: which records
 * a batch holds is a function of the positions and the log alone. That is why a round that is cut
 * short starts again at the first partition: a restart from those positions would. Owner: ingest
 * thread. */
#include "internal.h"

#include "base/check.h"
#include "base/crc32c.h"

/* Samples that close the open batch; changes between batches only. */
static uint32_t batch_target(const struct fr_ingest *self)
{
    uint32_t size = self->conf->ingest.batch_size, first = self->conf->ingest.batch_warmup_first;
    if (first == 0)
        return size;
    uint64_t grown = self->history_samples / self->conf->ingest.batch_warmup_growth;
    grown = grown > first ? grown : first;
    return grown < size ? (uint32_t)grown : size;
}

bool fr_assembly_young(const struct fr_ingest *self)
{
    return batch_target(self) < self->conf->ingest.batch_size;
}

static uint32_t batch_limit(const struct fr_ingest *self)
{
    return self->lockstep && !fr_assembly_young(self) ? FR_LOCKSTEP_SAMPLES_MAX : batch_target(self);
}

/* ---- the open batch ---- */

static enum fr_status push_ready(struct fr_ingest *self, uint64_t timeout_ns)
{
    if (!self->ready)
        return FR_OK;
    enum fr_status status = fr_ring_push(self->full, self->ready, timeout_ns);
    if (status == FR_OK)
        self->ready = NULL;
    return status;
}

enum fr_status fr_assembly_ready(struct fr_ingest *self, int wait_ms)
{
    uint64_t timeout_ns = (uint64_t)wait_ms * 1000000u, before = fr_mono_ns(self->clock);
    bool waited = self->ready || (!self->open && !self->finished);
    enum fr_status status = push_ready(self, timeout_ns);
    if (status == FR_OK && !self->open && !self->finished) {
        void *batch;
        status = fr_ring_pop(self->empty, &batch, timeout_ns);
        if (status == FR_OK) {
            self->open = batch;
            fr_batch_clear(self->open);
        }
    }
    if (waited && status == FR_AGAIN)
        self->tally.ring_full_ns += fr_mono_ns(self->clock) - before;
    return status;
}

/* The lane's entry in the open batch, made when this is its first mention. */
static struct fr_batch_position *touch(struct fr_ingest *self, uint32_t index)
{
    struct fr_lane *lane = &self->lanes[index];
    struct fr_batch *batch = self->open;
    if (lane->touched >= 0)
        return &batch->positions[lane->touched];
    if (batch->n_positions == batch->capacity_positions) {
        batch->capacity_positions = batch->capacity_positions ? 2 * batch->capacity_positions : 16;
        batch->positions = fr_realloc(batch->positions, batch->capacity_positions, sizeof(*batch->positions));
    }
    if (batch->n_positions == 0)
        self->open_since_ns = batch->born_mono_ns = fr_mono_ns(self->clock);
    lane->touched = batch->n_positions;
    self->touched[batch->n_positions] = index;
    batch->positions[batch->n_positions] = (struct fr_batch_position){.partition_slot = lane->slot, .lost = lane->lost};
    lane->lost = 0;
    if (lane->moved)
        self->n_moved--;
    lane->moved = false;
    return &batch->positions[batch->n_positions++];
}

void fr_assembly_moved(struct fr_ingest *self)
{
    for (uint32_t i = 0; self->n_moved && i < self->n_lanes; i++)
        if (self->lanes[i].moved)
            (void)touch(self, i);
}

bool fr_assembly_due(const struct fr_ingest *self, uint64_t now_ns)
{
    if (self->lockstep || !self->open)
        return false;
    uint64_t wait_ns = (uint64_t)self->conf->ingest.batch_wait_ms * 1000000u;
    return self->open->n_positions && now_ns - self->open_since_ns >= wait_ns;
}

void fr_assembly_close(struct fr_ingest *self)
{
    struct fr_batch *batch = self->open;
    FR_CHECK(batch && !self->ready);
    fr_assembly_moved(self);
    for (uint32_t i = 0; i < batch->n_positions; i++) {
        struct fr_batch_position *entry = &batch->positions[i];
        struct fr_lane *lane = &self->lanes[self->touched[i]];
        entry->offset = lane->next;
        entry->item = lane->item;
        entry->fingerprint.offset = lane->mark.offset;
        entry->fingerprint.timestamp_ms = lane->mark.timestamp_ms;
        entry->fingerprint.crc32c = lane->mark.crc32c;
        lane->touched = -1;
    }
    if (self->files_left && batch->n_samples) /* history lags by its own times */
        self->last_timestamp_ms = batch->t_ms[batch->n_samples - 1];
    batch->dead_sequence = self->dead_sequence;
    self->tally.batches++;
    self->tally.samples += batch->n_samples;
    self->history_samples += batch->n_samples;
    self->ready = batch;
    self->open = NULL;
    self->round_lane = self->round_taken = 0;
}

void fr_assembly_end(struct fr_ingest *self)
{
    self->open->end_of_stream = true;
    fr_assembly_close(self);
    self->finished = true;
}

/* ---- one record ---- */

/* The record has taken effect whole. */
static void complete(struct fr_ingest *self, struct fr_batch_position *entry)
{
    const struct fr_source_event *event = &self->event;
    uint32_t index = event->partition;
    struct fr_lane *lane = &self->lanes[index];
    entry->delivered++;
    lane->delivered++;
    lane->next = lane->seen = event->offset + 1;
    lane->item = 0;
    uint32_t crc = event->withheld ? event->crc32c : fr_crc32c(0, event->value, event->size);
    lane->mark = (struct fr_mark){event->offset, event->timestamp_ms, crc};
    if (event->timestamp_ms > self->open->kafka_t_max_ms)
        self->open->kafka_t_max_ms = event->timestamp_ms;
    if (index >= self->n_files)
        self->last_timestamp_ms = event->timestamp_ms;
    self->source.release(self->source.self, &self->event);
    self->pending = FR_PENDING_NONE;
    self->round_taken++;
    if (lane->end >= 0 && lane->next >= lane->end)
        fr_lane_finish(self, index);
}

/* A batch is full of samples: in lockstep what is left of the record waits for its partition's turn
 * (see the head). While the model is young it is that partition's turn still. */
static void cut_round(struct fr_ingest *self)
{
    struct fr_lane *lane = &self->lanes[self->event.partition];
    if (!self->lockstep || self->pending == FR_PENDING_NONE || fr_assembly_young(self))
        return;
    FR_CHECK(!lane->held_valid);
    lane->held = self->event;
    lane->held_valid = true;
    self->pending = FR_PENDING_NONE;
}

/* `count` more samples of the record go into the open batch; true: it is full of samples, by less
 * than a group, which is never split. */
static bool append_samples(struct fr_ingest *self, uint32_t count)
{
    struct fr_batch *batch = self->open;
    struct fr_batch_position *entry = touch(self, self->event.partition);
    uint32_t before = batch->n_samples;
    fr_letter_keep(self, count);
    fr_decode_append(self->decoder, self->staged_from, count, batch);
    FR_CHECK(batch->n_samples == before + count);
    entry->samples += count;
    for (uint32_t i = before; i < batch->n_samples; i++)
        entry->roles[batch->role[i]]++;
    self->staged_from += count;
    if (self->staged_from == self->staged) {
        entry->decoded++;
        complete(self, entry);
    } else {
        self->lanes[self->event.partition].next = self->event.offset;
        self->lanes[self->event.partition].item = self->staged_from;
    }
    return batch->n_samples >= batch_limit(self);
}

static enum fr_status take_samples(struct fr_ingest *self)
{
    for (;;) {
        if (!self->open)
            return FR_AGAIN;
        uint32_t limit = batch_limit(self), before = self->open->n_samples;
        FR_CHECK(before < limit);
        uint32_t count = fr_decode_take(self->decoder, self->staged_from, limit - before);
        count = fr_letter_fits(self) ? fr_decode_fit(self->decoder, self->staged_from, count, self->open) : 0;
        bool full = count == 0 && self->staged_from < self->staged; /* of ids or of bytes */
        if (!full)
            full = append_samples(self, count);
        if (full) {
            fr_assembly_close(self);
            cut_round(self);
        }
        if (self->pending == FR_PENDING_NONE)
            return FR_OK;
        enum fr_status status = fr_assembly_ready(self, 0);
        if (status != FR_OK)
            return status;
    }
}

static enum fr_status take_letter(struct fr_ingest *self)
{
    if (!self->open)
        return FR_AGAIN;
    enum fr_status status = fr_letter_send(self, self->reason);
    if (status != FR_OK)
        return status;
    struct fr_batch_position *entry = touch(self, self->event.partition);
    entry->dead_lettered++;
    complete(self, entry);
    return FR_OK;
}

enum fr_status fr_assembly_pending(struct fr_ingest *self)
{
    switch (self->pending) {
    case FR_PENDING_SAMPLES:
        return take_samples(self);
    case FR_PENDING_LETTER:
        return take_letter(self);
    case FR_PENDING_NONE:
        break;
    }
    return FR_OK;
}

/* ---- events ---- */

static enum fr_status take_record(struct fr_ingest *self, struct fr_source_event *event)
{
    struct fr_lane *lane = &self->lanes[event->partition];
    bool counted = lane->held_valid;
    lane->held_valid = false;
    if (event->offset < lane->next) {
        self->tally.dropped_duplicates++;
        self->source.release(self->source.self, event);
        return FR_OK;
    }
    if (lane->end >= 0 && event->offset >= lane->end) {
        self->source.release(self->source.self, event);
        fr_lane_finish(self, event->partition);
        return FR_OK;
    }
    lane->at_end = false;
    self->event = *event;
    /* some of its items are in effect already */
    bool again = event->offset == lane->next && lane->item > 0;
    if (!counted) {
        self->tally.records++;
        self->tally.bytes += event->size;
    }
    self->decoder = event->partition < self->n_files ? self->file_decoder : self->topic_decoder;
    struct fr_record record = {event->value, event->size, event->timestamp_ms};
    enum fr_status status = fr_decode_record(self->decoder, &record, &self->staged, &self->reason);
    if (status == FR_OK) {
        self->staged_from = !again ? 0 : lane->item < self->staged ? lane->item : self->staged;
        self->pending = FR_PENDING_SAMPLES;
    } else {
        *(fr_decoder_refused_future(self->decoder) ? &self->tally.future : &self->tally.malformed) += 1;
        self->pending = FR_PENDING_LETTER;
    }
    return fr_assembly_pending(self);
}

static void take_end(struct fr_ingest *self, const struct fr_source_event *event)
{
    struct fr_lane *lane = &self->lanes[event->partition];
    if (lane->end >=
        /* only whether the fixed end is reached: a batch must not depend on when the log was at its
         * end */
        0) {
        if (event->offset >= lane->end)
            fr_lane_finish(self, event->partition);
        return;
    }
    lane->at_end = true;
    if (event->offset <= lane->next)
        return;
    /* Markers and aborted records only: were the position to stay behind them, retention would
     * later look like a loss. */
    lane->next = lane->seen = event->offset;
    lane->item = 0;
    fr_lane_moved(self, lane);
}

enum fr_status fr_assembly_event(struct fr_ingest *self, struct fr_source_event *event)
{
    struct fr_lane *lane = &self->lanes[event->partition];
    FR_CHECK(event->partition < self->n_lanes);
    /* was in the queue when reading ended */
    if (lane->done || (!lane->reading && !lane->held_valid)) {
        self->source.release(self->source.self, event);
        return FR_OK;
    }
    switch (event->kind) {
    case FR_SOURCE_RECORD:
        return take_record(self, event);
    case FR_SOURCE_END:
        take_end(self, event);
        break;
    case FR_SOURCE_RESET:
        fr_lane_stop(self, event->partition, event->text[0] ? event->text : "the next offset is not in the log");
        break;
    case FR_SOURCE_BROKEN:
        fr_lane_stop(self, event->partition, event->text);
        lane->retry_ns = fr_mono_ns(self->clock) + (uint64_t)FR_RECHECK_MS * 1000000u;
        break;
    }
    self->source.release(self->source.self, event);
    return FR_OK;
}
