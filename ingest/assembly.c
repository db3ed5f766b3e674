/* Batches from records: decode, split at the batch's size, keep positions, ledger and fingerprints;
 * refused records to the dead-letter sink.
 *
 * A record is handled in steps that may each find no batch or no room for a letter; `pending` says
 * what remains, and nothing is polled before it is done, so a full ring stops polling. A record's
 * position moves only with its items: (offset, item) until the last one, then (offset + 1, 0), when
 * the record is also counted and becomes the fingerprint.
 *
 * A record of a skipped range is decoded, counted and completed like any other, but none of its
 * samples goes into a batch. It takes no place in a round, so what is trained is what a log without
 * it would give.
 *
 * Invariants: open->positions[i] is the entry of streams[touched[i]]; entries get their final
 * offsets when the batch closes. Batches are small while the model is young: how many samples close
 * one follows from how many there were in the batches before, which the positions' ledgers say
 * after a restart too. Lockstep: which records a batch holds is a function of the positions and the
 * log alone. That is why a round that is cut short starts again at the first partition: a restart
 * from those positions would.
 *
 * Owner: ingest thread. */
#include "internal.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/trace.h"

/* Between two lines about records from the future. */
#define FR_TELL_FUTURE_NS 60000000000ULL

/* Samples that close the open batch; changes between batches only. */
static uint32_t batch_target(const struct fr_ingest *ingest)
{
    uint32_t size = ingest->conf->ingest.batch_size, first = ingest->conf->ingest.batch_warmup_first;
    if (first == 0)
        return size;
    uint64_t grown = ingest->history_samples / ingest->conf->ingest.batch_warmup_growth;
    double share = (double)ingest->history_samples / (double)ingest->conf->ingest.batch_warmup_full;
    if (share >= 1.0)
        return size;
    /* The cube leaves batches small while a small batch teaches most, and ends that soon after. */
    uint64_t cube = (uint64_t)((double)size * share * share * share);
    grown = cube > grown ? cube : grown;
    grown = grown > first ? grown : first;
    return grown < size ? (uint32_t)grown : size;
}

bool fr_assembly_young(const struct fr_ingest *ingest)
{
    return batch_target(ingest) < ingest->conf->ingest.batch_size;
}

static uint32_t batch_limit(const struct fr_ingest *ingest)
{
    return ingest->lockstep && !fr_assembly_young(ingest) ? FR_LOCKSTEP_SAMPLES_MAX : batch_target(ingest);
}

/* ---- the open batch ---- */

static enum fr_status push_ready(struct fr_ingest *ingest, uint64_t timeout_ns)
{
    if (!ingest->ready)
        return FR_OK;
    uint64_t born_ns = ingest->ready->born_mono_ns;
    enum fr_status status = fr_ring_push(ingest->full, ingest->ready, timeout_ns);
    if (status == FR_OK) {
        fr_trace_end("batch", born_ns); /* from its first record */
        ingest->ready = NULL;
    }
    return status;
}

enum fr_status fr_assembly_ready(struct fr_ingest *ingest, int wait_ms)
{
    uint64_t timeout_ns = (uint64_t)wait_ms * 1000000u, before = fr_mono_ns(ingest->clock);
    bool waited = ingest->ready || (!ingest->open && !ingest->finished);
    enum fr_status status = push_ready(ingest, timeout_ns);
    if (status == FR_OK && !ingest->open && !ingest->finished) {
        void *batch;
        status = fr_ring_pop(ingest->empty, &batch, timeout_ns);
        if (status == FR_OK) {
            ingest->open = batch;
            fr_batch_clear(ingest->open);
        }
    }
    if (waited && status == FR_AGAIN)
        ingest->tally.ring_full_ns += fr_mono_ns(ingest->clock) - before;
    return status;
}

/* The stream's entry in the open batch, made when this is its first mention. */
static struct fr_batch_position *touch(struct fr_ingest *ingest, struct fr_stream *stream)
{
    struct fr_batch *batch = ingest->open;
    if (stream->touched >= 0)
        return &batch->positions[stream->touched];
    if (batch->n_positions == batch->capacity_positions) {
        batch->capacity_positions = batch->capacity_positions ? 2 * batch->capacity_positions : 16;
        batch->positions = fr_realloc(batch->positions, batch->capacity_positions, sizeof(*batch->positions));
    }
    if (batch->n_positions == 0)
        ingest->open_since_ns = batch->born_mono_ns = fr_mono_ns(ingest->clock);
    stream->touched = batch->n_positions;
    ingest->touched[batch->n_positions] = (uint32_t)(stream - ingest->streams);
    batch->positions[batch->n_positions] =
        (struct fr_batch_position){.stream_index = stream->stream_index, .lost = stream->lost};
    stream->lost = 0;
    if (stream->moved)
        ingest->n_moved--;
    stream->moved = false;
    return &batch->positions[batch->n_positions++];
}

void fr_assembly_moved(struct fr_ingest *ingest)
{
    for (uint32_t i = 0; ingest->n_moved && i < ingest->n_streams; i++)
        if (ingest->streams[i].moved)
            (void)touch(ingest, &ingest->streams[i]);
}

bool fr_assembly_due(struct fr_ingest *ingest, uint64_t now_ns)
{
    if (ingest->lockstep || !ingest->open)
        return false;
    uint64_t wait_ns = (uint64_t)ingest->conf->ingest.batch_wait_ms * 1000000u;
    return ingest->open->n_positions && now_ns - ingest->open_since_ns >= wait_ns;
}

void fr_assembly_close(struct fr_ingest *ingest)
{
    struct fr_batch *batch = ingest->open;
    FR_CHECK(batch && !ingest->ready);
    fr_assembly_moved(ingest);
    for (uint32_t i = 0; i < batch->n_positions; i++) {
        struct fr_batch_position *entry = &batch->positions[i];
        struct fr_stream *stream = &ingest->streams[ingest->touched[i]];
        entry->offset = stream->next;
        entry->item = stream->item;
        entry->fingerprint.offset = stream->mark.offset;
        entry->fingerprint.timestamp_ms = stream->mark.timestamp_ms;
        entry->fingerprint.crc32c = stream->mark.crc32c;
        stream->touched = -1;
    }
    if (fr_files_left(ingest) && batch->n_samples) /* history lags by its own times */
        ingest->last_timestamp_ms = batch->t_ms[batch->n_samples - 1];
    batch->dead_sequence = ingest->dead_sequence;
    ingest->tally.batches++;
    ingest->tally.samples += batch->n_samples;
    ingest->history_samples += batch->n_samples;
    ingest->ready = batch;
    ingest->open = NULL;
    ingest->round_stream = ingest->round_taken = 0;
}

void fr_assembly_end(struct fr_ingest *ingest)
{
    ingest->open->end_of_stream = true;
    fr_assembly_close(ingest);
    fr_ends_tell(ingest);
    ingest->finished = true;
}

/* ---- one record ---- */

static struct fr_stream *pending_stream(const struct fr_ingest *ingest)
{
    return &ingest->streams[ingest->pending_stream];
}

/* Whether the pending record's Kafka timestamp may say how old data are (lag, freshness): not one
 * of a clock that is ahead of ours. */
static bool is_believed(const struct fr_ingest *ingest, int64_t timestamp_ms)
{
    int64_t received_ms = ingest->received_ms;
    return received_ms <= 0 || timestamp_ms <= received_ms ||
           timestamp_ms - received_ms <= ingest->conf->ingest.future_max_ms;
}

/* The record has taken effect whole. */
static void complete(struct fr_ingest *ingest, struct fr_batch_position *entry)
{
    const struct fr_source_event *event = &ingest->event;
    struct fr_stream *stream = pending_stream(ingest);
    entry->delivered++;
    stream->delivered++;
    stream->next = stream->seen = event->offset + 1;
    stream->item = 0;
    uint32_t crc = event->withheld ? event->crc32c : fr_crc32c(0, event->value, event->size);
    stream->mark = (struct fr_mark){event->offset, event->timestamp_ms, crc};
    if (event->timestamp_ms && is_believed(ingest, event->timestamp_ms)) { /* a line has none */
        if (event->timestamp_ms > ingest->open->kafka_t_max_ms)
            ingest->open->kafka_t_max_ms = event->timestamp_ms;
        ingest->last_timestamp_ms = event->timestamp_ms;
    }
    fr_decode_effective(stream->feed->decoder);
    fr_stream_release(stream, &ingest->event);
    ingest->round_taken += ingest->pending != FR_PENDING_SKIP;
    ingest->pending = FR_PENDING_NONE;
    if (stream->end >= 0 && stream->next >= stream->end)
        fr_stream_finish(ingest, stream);
}

/* A batch is full of samples: in lockstep what is left of the record waits for its partition's turn
 * (see the head). While the model is young it is that partition's turn still. */
static void cut_round(struct fr_ingest *ingest)
{
    struct fr_stream *stream = pending_stream(ingest);
    if (!ingest->lockstep || ingest->pending == FR_PENDING_NONE || fr_assembly_young(ingest))
        return;
    FR_CHECK(!stream->has_interrupted);
    stream->interrupted = ingest->event;
    stream->has_interrupted = true;
    ingest->pending = FR_PENDING_NONE;
}

/* Item numbers go by samples, so a sample has the same origin in a group, a block or an array. */
static void set_origins(const struct fr_ingest *ingest, const struct fr_stream *stream, uint32_t first)
{
    const struct fr_partition_position *position = fr_stream_position(ingest, stream);
    uint64_t lane = fr_xxh3_seed(position->topic, strlen(position->topic), (uint64_t)position->partition);
    uint64_t record = fr_fmix64(lane + (uint64_t)ingest->event.offset);
    struct fr_batch *batch = ingest->open;
    for (uint32_t i = first; i < batch->n_samples; i++)
        batch->origin[i] = fr_fmix64(record + ingest->staged_from + (i - first));
}

/* `count` more samples of the record go into the open batch; true: it is full of samples, by less
 * than a group, which is never split. */
static bool append_samples(struct fr_ingest *ingest, uint32_t count)
{
    struct fr_batch *batch = ingest->open;
    struct fr_stream *stream = pending_stream(ingest);
    struct fr_batch_position *entry = touch(ingest, stream);
    uint32_t before = batch->n_samples;
    fr_letter_keep(ingest, count);
    fr_decode_append(stream->feed->decoder, ingest->staged_from, count, batch);
    fr_decode_present(stream->feed->decoder, ingest->staged_from, count, ingest->present);
    FR_CHECK(batch->n_samples == before + count);
    entry->samples += count;
    for (uint32_t i = before; i < batch->n_samples; i++)
        entry->roles[batch->role[i]]++;
    set_origins(ingest, stream, before);
    ingest->staged_from += count;
    if (ingest->staged_from == ingest->staged) {
        entry->decoded++;
        complete(ingest, entry);
    } else {
        stream->next = ingest->event.offset;
        stream->item = ingest->staged_from;
    }
    return batch->n_samples >= batch_limit(ingest);
}

static enum fr_status take_samples(struct fr_ingest *ingest)
{
    struct fr_decoder *decoder = pending_stream(ingest)->feed->decoder;
    for (;;) {
        if (!ingest->open)
            return FR_AGAIN;
        uint32_t limit = batch_limit(ingest), before = ingest->open->n_samples;
        FR_CHECK(before < limit);
        uint32_t count = fr_decode_take(decoder, ingest->staged_from, limit - before);
        count = fr_letter_fits(ingest) ? fr_decode_fit(decoder, ingest->staged_from, count, ingest->open) : 0;
        bool full = count == 0 && ingest->staged_from < ingest->staged; /* of ids or of bytes */
        if (!full)
            full = append_samples(ingest, count);
        if (full) {
            fr_assembly_close(ingest);
            cut_round(ingest);
        }
        if (ingest->pending == FR_PENDING_NONE)
            return FR_OK;
        enum fr_status status = fr_assembly_ready(ingest, 0);
        if (status != FR_OK)
            return status;
    }
}

static enum fr_status take_letter(struct fr_ingest *ingest)
{
    if (!ingest->open)
        return FR_AGAIN;
    enum fr_status status = fr_letter_send(ingest, ingest->reason);
    if (status != FR_OK)
        return status;
    struct fr_batch_position *entry = touch(ingest, pending_stream(ingest));
    entry->dead_lettered++;
    complete(ingest, entry);
    return FR_OK;
}

static enum fr_status take_skip(struct fr_ingest *ingest)
{
    if (!ingest->open)
        return FR_AGAIN;
    struct fr_batch_position *entry = touch(ingest, pending_stream(ingest));
    uint32_t samples = ingest->staged - ingest->staged_from;
    entry->decoded++;
    entry->samples += samples;
    entry->skipped += samples;
    complete(ingest, entry);
    return FR_OK;
}

enum fr_status fr_assembly_pending(struct fr_ingest *ingest)
{
    switch (ingest->pending) {
    case FR_PENDING_SKIP:
        return take_skip(ingest);
    case FR_PENDING_SAMPLES:
        return take_samples(ingest);
    case FR_PENDING_LETTER:
        return take_letter(ingest);
    case FR_PENDING_NONE:
        break;
    }
    return FR_OK;
}

/* ---- events ---- */

/* The wall clock bounds event times live. In lockstep it does not: runs over one log agree at
 * whatever time they are made. A record of which some items are in effect was accepted, and stays
 * so under a clock that was set back. */
static int64_t receipt_ms(const struct fr_ingest *ingest, bool again)
{
    return ingest->lockstep || again ? 0 : fr_wall_ms(ingest->clock);
}

static void tell_future(struct fr_ingest *ingest, enum fr_future future)
{
    uint64_t *count = future == FR_FUTURE_CLOCK ? &ingest->tally.future_clock : &ingest->tally.future_timestamp;
    (*count)++;
    if (!fr_log_due(&ingest->told_future_ns, fr_mono_ns(ingest->clock), FR_TELL_FUTURE_NS))
        return;
    const struct fr_partition_position *place = fr_stream_position(ingest, pending_stream(ingest));
    char reason[512];
    fr_log(FR_LOG_WARN, "ingest", "record_from_future",
           "topic=%s partition=%" PRId32 " offset=%" PRId64 " kafka_timestamp_ms=%" PRId64 " of_timestamp=%" PRIu64
           " of_clock=%" PRIu64 " reason=%s note=\"dead-lettered: a clock is ahead, the producer's, or this host's is "
           "behind; message.timestamp.type=LogAppendTime of the topic keeps producers' clocks out\"",
           place->topic, place->partition, ingest->event.offset, ingest->event.timestamp_ms,
           ingest->tally.future_timestamp, ingest->tally.future_clock,
           fr_log_quote(reason, sizeof(reason), ingest->reason));
}

static const char *unknown_note(const struct fr_ingest *ingest, const char *name, bool slot)
{
    if (slot)
        return "no such slot: its values are ignored; if it is misspelled, correct the producer or set "
               "slots.NAME.key";
    for (uint32_t i = 0; strncmp(name, "p.", 2) == 0 && i < ingest->conf->n_tasks; i++)
        if (strcmp(name + 2, ingest->conf->tasks[i].name) == 0)
            return "a score out of range is ignored: correct what is served, or what is sent";
    return "no such field, label or task: its values are ignored; if it is misspelled, correct the producer, or set "
           "labels.NAME.key for a label";
}

/* A line for each of the first few names. */
static void tell_names(struct fr_ingest *ingest, const struct fr_stream *stream, const struct fr_unknown_names *names,
                       bool slots, uint32_t *told)
{
    const struct fr_partition_position *place = fr_stream_position(ingest, stream);
    for (; *told < names->n; ++*told) {
        char quoted[2 * FR_UNKNOWN_NAME_MAX];
        fr_log(FR_LOG_WARN, "ingest", slots ? "unknown_slot" : "unknown_key",
               "name=%s topic=%s partition=%" PRId32 " offset=%" PRId64 " note=\"%s\"",
               fr_log_quote(quoted, sizeof(quoted), names->names[*told]), place->topic, place->partition,
               ingest->event.offset, unknown_note(ingest, names->names[*told], slots));
    }
}

/* What is misspelled trains as absent. */
static void tell_unknown(struct fr_ingest *ingest, const struct fr_stream *stream)
{
    const struct fr_unknown *unknown = fr_decoder_unknown(stream->feed->decoder);
    tell_names(ingest, stream, &unknown->slots, true, &stream->feed->proof->told_slots);
    tell_names(ingest, stream, &unknown->keys, false, &stream->feed->proof->told_keys);
}

/* The end of a stream of which records are held waits with them. */
static bool holds_end(struct fr_ingest *ingest, struct fr_stream *stream, const struct fr_source_event *event)
{
    if (stream->n_held == 0 || fr_held_replays(ingest))
        return false;
    struct fr_source_event end = {.kind = event->kind, .offset = event->offset};
    if (event->kind == FR_SOURCE_RECORD) /* a record after the end of a bounded run */
        end.kind = FR_SOURCE_END;
    stream->at_end = true;
    if (!stream->end_held)
        fr_held_push(ingest, stream, &end, false);
    if (event->kind == FR_SOURCE_FINISHED)
        fr_ingest_malformed_held(ingest, stream);
    return true;
}

static enum fr_status take_record(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_source_event *event)
{
    /* What is held, or was cut by a round, is read a second time, or a third when its stream was
     * begun again meanwhile. */
    bool was_held = fr_held_replays(ingest), counted = event->offset < stream->counted;
    stream->has_interrupted = false;
    if (event->offset < stream->next) {
        ingest->tally.dropped_duplicates++;
        fr_stream_release(stream, event);
        return FR_OK;
    }
    if (stream->end >= 0 && event->offset >= stream->end) {
        bool held = holds_end(ingest, stream, event);
        fr_stream_release(stream, event);
        if (!held)
            fr_stream_finish(ingest, stream);
        return FR_OK;
    }
    stream->at_end = false;
    ingest->event = *event;
    ingest->pending_stream = (uint32_t)(stream - ingest->streams);
    /* some of its items are in effect already */
    bool again = event->offset == stream->next && stream->item > 0;
    if (!counted) {
        ingest->tally.records++;
        ingest->tally.bytes += event->size;
        stream->counted = event->offset + 1;
    }
    struct fr_decoder *decoder = stream->feed->decoder;
    ingest->received_ms = receipt_ms(ingest, again);
    struct fr_record record = {event->value, event->size, event->timestamp_ms, ingest->received_ms};
    enum fr_status status = fr_decode_record(decoder, &record, &ingest->staged, &ingest->reason);
    tell_unknown(ingest, stream);
    enum fr_future future = status == FR_OK ? FR_FUTURE_NONE : fr_decoder_refused_future(decoder);
    if (status == FR_OK ? fr_ingest_malformed_accepted(ingest, stream, counted)
                        : fr_ingest_malformed_refused(ingest, stream, future, counted)) {
        if (!was_held) /* else it is the first one still */
            fr_held_push(ingest, stream, &ingest->event, counted);
        fr_ingest_malformed_held(ingest, stream);
        return FR_OK;
    }
    if (status == FR_OK) {
        ingest->staged_from = !again ? 0 : stream->item < ingest->staged ? stream->item : ingest->staged;
        bool skipped = fr_positions_skips(fr_stream_position(ingest, stream), event->offset);
        ingest->pending = skipped ? FR_PENDING_SKIP : FR_PENDING_SAMPLES;
    } else {
        if (future != FR_FUTURE_NONE)
            tell_future(ingest, future);
        ingest->pending = FR_PENDING_LETTER;
    }
    return fr_assembly_pending(ingest);
}

static void take_end(struct fr_ingest *ingest, struct fr_stream *stream, const struct fr_source_event *event)
{
    /* Only whether the fixed end is reached: a batch must not depend on when the log was at its
     * end, which may be where an open transaction begins. */
    if (stream->end >= 0 && event->offset < stream->end)
        return;
    if (holds_end(ingest, stream, event))
        return;
    if (stream->end >= 0) {
        fr_stream_finish(ingest, stream);
        return;
    }
    stream->at_end = true;
    if (event->offset <= stream->next)
        return;
    /* Markers and aborted records only: if the position did not move past them,
     * retention would later look like a loss. */
    stream->next = stream->seen = event->offset;
    stream->item = 0;
    fr_stream_moved(ingest, stream);
}

enum fr_status fr_assembly_event(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_source_event *event)
{
    /* was in the queue when reading ended */
    if (!fr_stream_is_read(stream)) {
        fr_stream_release(stream, event);
        return FR_OK;
    }
    fr_transaction_event(stream, event);
    switch (event->kind) {
    case FR_SOURCE_RECORD:
        return take_record(ingest, stream, event);
    case FR_SOURCE_END:
        take_end(ingest, stream, event);
        break;
    case FR_SOURCE_FINISHED:
        if (holds_end(ingest, stream, event))
            break;
        take_end(ingest, stream, event);
        fr_stream_finish(ingest, stream);
        break;
    case FR_SOURCE_RESET:
        fr_stream_stop(ingest, stream, event->text[0] ? event->text : "the next offset is not in the log");
        break;
    case FR_SOURCE_BROKEN:
        fr_stream_stop(ingest, stream, event->text);
        stream->retry_ns = fr_mono_ns(ingest->clock) + (uint64_t)FR_RECHECK_MS * 1000000u;
        break;
    case FR_SOURCE_MOVED:
        fr_stream_renew(ingest, stream);
        break;
    case FR_SOURCE_GAP:
    case FR_SOURCE_CONNECTED:
        break; /* of no stream */
    }
    fr_stream_release(stream, event);
    return FR_OK;
}
