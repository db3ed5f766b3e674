/* Batches from records: decodes records, splits them at the batch's size, keeps positions, ledgers
 * and fingerprints, and sends refused records to the dead-letter sink.
 *
 * A record is handled in steps, each of which may find no batch or no room for a letter. `pending`
 * records what remains to be done, and nothing is polled before that is done, so a full ring stops
 * polling. A record's position moves only with its items: (offset, item) until the last one, then
 * (offset + 1, 0), when the record is also counted and becomes the fingerprint.
 *
 * A record of a skipped range is decoded, counted and completed like any other, but none of its
 * samples goes into a batch. It has no place in a round, so the training is that of a log without
 * the record.
 *
 * Invariants: open->positions[i] is the entry of streams[touched[i]]; entries get their final
 * offsets when the batch closes. Batches are small while the model is young: the number of samples
 * that close a batch follows from the number in all batches before, which the positions' ledgers
 * also give after a restart. Lockstep: the records of a batch are a function of the positions and
 * the log alone. For that reason a round that is cut short starts again at the first partition, as
 * a restart from those positions would.
 *
 * Lockstep with several lanes: a batch is a piece of each lane, one after the other. A piece is
 * what the lane's streams alone would give as a batch, within the lane's share of each limit. A
 * process that reads only some of the lanes therefore makes the same pieces of these lanes. For the
 * same reason a batch of several lanes does not wait for a first good record (malformed.c), which
 * another process might have. Live, records of all lanes come in any order, and the samples are put
 * in the order of lanes when the batch closes.
 *
 * Owner: ingest thread. */
#include "internal.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/trace.h"

/* Time between two log lines about records from the future. */
#define LOG_FUTURE_NS 60000000000ULL

/* The number of samples that closes a batch after a history of so many. */
static uint32_t batch_target(const struct fr_ingest *ingest, uint64_t history_samples)
{
    uint32_t size = ingest->conf->ingest.batch_size, first = ingest->conf->ingest.batch_warmup_first;
    if (first == 0)
        return size;
    uint64_t grown = history_samples / ingest->conf->ingest.batch_warmup_growth;
    double share = (double)history_samples / (double)ingest->conf->ingest.batch_warmup_full;
    if (share >= 1.0)
        return size;
    /* The cube keeps batches small while a small batch teaches most, and grows fast after that. */
    uint64_t cube = (uint64_t)((double)size * share * share * share);
    grown = cube > grown ? cube : grown;
    grown = grown > first ? grown : first;
    return grown < size ? (uint32_t)grown : size;
}

/* The lanes of a share. */
static uint32_t share_lanes(const struct fr_ingest *ingest)
{
    return ingest->lockstep ? 1 : ingest->lane_end - ingest->lane_first;
}

/* The same for the open batch, with what other processes read of it; it changes between batches
 * only. A share cannot know the history of the others, and takes them to be like itself. */
static uint32_t open_target(const struct fr_ingest *ingest)
{
    uint64_t history = ingest->shares[ingest->piece.share].history_samples;
    return batch_target(ingest, history * ingest->n_lanes / share_lanes(ingest));
}

bool fr_assembly_young(const struct fr_ingest *ingest)
{
    return open_target(ingest) < ingest->conf->ingest.batch_size;
}

/* The number of samples that makes the piece full. */
static uint32_t piece_limit(const struct fr_ingest *ingest)
{
    uint32_t limit = ingest->lockstep && !fr_assembly_young(ingest) ? FR_LOCKSTEP_SAMPLES_MAX : open_target(ingest);
    return (uint32_t)(((uint64_t)limit * share_lanes(ingest) + ingest->n_lanes - 1) / ingest->n_lanes);
}

static uint32_t piece_samples(const struct fr_ingest *ingest)
{
    return ingest->open->n_samples - ingest->piece.first_sample;
}

static void end_piece(struct fr_ingest *ingest)
{
    if (ingest->piece.share < ingest->share_end)
        ingest->shares[ingest->piece.share].history_samples += piece_samples(ingest);
}

static void begin_piece(struct fr_ingest *ingest, uint32_t share)
{
    ingest->piece = (struct fr_piece){.share = share};
    if (!ingest->open)
        return;
    ingest->piece.first_sample = ingest->open->n_samples;
    ingest->piece.first_position = ingest->open->n_positions;
    ingest->piece.ids_before = ingest->open->ids;
    ingest->piece.bytes_before = ingest->open->image_bytes;
}

void fr_assembly_begin_piece(struct fr_ingest *ingest, uint32_t share)
{
    end_piece(ingest);
    begin_piece(ingest, share);
}

/* ---- the open batch ---- */

static enum fr_status push_ready(struct fr_ingest *ingest, uint64_t timeout_ns)
{
    if (!ingest->ready)
        return FR_OK;
    uint64_t born_ns = ingest->ready->born_mono_ns;
    enum fr_status status = fr_ring_push(ingest->full, ingest->ready, timeout_ns);
    if (status == FR_OK) {
        fr_trace_end("batch", born_ns); /* since its first record was polled */
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

/* Returns the stream's entry in the open batch. The entry is made if there is none yet. */
static struct fr_batch_position *entry_of(struct fr_ingest *ingest, struct fr_stream *stream)
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
            (void)entry_of(ingest, &ingest->streams[i]);
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
    if (fr_files_left(ingest) && batch->n_samples) /* the lag of files is that of event time */
        ingest->last_timestamp_ms = batch->t_ms[batch->n_samples - 1];
    batch->dead_sequence = ingest->dead_sequence;
    ingest->tally.batches++;
    ingest->tally.samples += batch->n_samples;
    end_piece(ingest);
    if (batch->n_lanes > 1) /* in lockstep pieces are made lane by lane */
        fr_batch_arrange(batch, ingest->spare);
    ingest->ready = batch;
    ingest->open = NULL;
    begin_piece(ingest, ingest->share_first);
}

void fr_assembly_end(struct fr_ingest *ingest)
{
    ingest->open->end_of_stream = true;
    fr_assembly_close(ingest);
    fr_ends_log(ingest);
    ingest->finished = true;
}

/* ---- one record ---- */

static struct fr_stream *pending_stream(const struct fr_ingest *ingest)
{
    return &ingest->streams[ingest->pending_stream];
}

/* Whether lag and freshness may be computed from the pending record's Kafka timestamp. They may
 * not if the clock that wrote the timestamp is ahead of this host's. */
static bool is_believed(const struct fr_ingest *ingest, int64_t timestamp_ms)
{
    int64_t received_ms = ingest->received_ms;
    return received_ms <= 0 || timestamp_ms <= received_ms ||
           timestamp_ms - received_ms <= ingest->conf->ingest.future_max_ms;
}

/* The whole record has taken effect. */
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
    /* a line of a file has no timestamp */
    if (event->timestamp_ms && is_believed(ingest, event->timestamp_ms)) {
        if (event->timestamp_ms > ingest->open->kafka_t_max_ms)
            ingest->open->kafka_t_max_ms = event->timestamp_ms;
        ingest->last_timestamp_ms = event->timestamp_ms;
    }
    fr_decode_effective(stream->feed->decoder);
    fr_stream_release(stream, &ingest->event);
    ingest->piece.taken += ingest->pending != FR_PENDING_SKIP;
    ingest->pending = FR_PENDING_NONE;
    if (stream->end >= 0 && stream->next >= stream->end)
        fr_stream_change_state(ingest, stream, FR_STREAM_FINISHED);
}

/* The piece is full. If it is all that a batch consists of, the batch closes. In lockstep the rest
 * of the pending record waits until its partition comes again in a later round (see the head).
 * While the model is young there are no rounds, and the record continues in the next batch. If a
 * batch consists of several pieces, the record waits even then, because other pieces come first. */
static void fill_piece(struct fr_ingest *ingest)
{
    struct fr_stream *stream = pending_stream(ingest);
    ingest->piece.full = true;
    if (ingest->n_shares == 1)
        fr_assembly_close(ingest);
    bool waits = ingest->lockstep && (ingest->n_shares > 1 || !fr_assembly_young(ingest));
    if (!waits || ingest->pending == FR_PENDING_NONE)
        return;
    fr_stream_change_state(ingest, stream, FR_STREAM_RECORD_CUT);
    stream->remainder = ingest->event;
    ingest->pending = FR_PENDING_NONE;
}

/* Items are numbered by samples, so a sample has the same origin in a group, a block or an
 * array. */
static void set_origins(const struct fr_ingest *ingest, const struct fr_stream *stream, uint32_t first)
{
    const struct fr_partition_position *position = fr_stream_position(ingest, stream);
    uint64_t place = fr_xxh3_seed(position->topic, strlen(position->topic), (uint64_t)position->partition);
    uint64_t record = fr_fmix64(place + (uint64_t)ingest->event.offset);
    struct fr_batch *batch = ingest->open;
    for (uint32_t i = first; i < batch->n_samples; i++)
        batch->origin[i] = fr_fmix64(record + ingest->staged_from + (i - first));
}

/* Appends `count` more samples of the pending record to the open batch. True: the piece is full of
 * samples; it may exceed its limit by less than one group, because a group is never split. */
static bool append_samples(struct fr_ingest *ingest, uint32_t count)
{
    struct fr_batch *batch = ingest->open;
    struct fr_stream *stream = pending_stream(ingest);
    struct fr_batch_position *entry = entry_of(ingest, stream);
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
    return piece_samples(ingest) >= piece_limit(ingest);
}

static enum fr_status add_samples(struct fr_ingest *ingest)
{
    struct fr_decoder *decoder = pending_stream(ingest)->feed->decoder;
    for (;;) {
        if (!ingest->open)
            return FR_AGAIN;
        uint32_t limit = piece_limit(ingest), before = piece_samples(ingest);
        struct fr_decode_room room = {
            .samples = before, .ids = ingest->open->ids - ingest->piece.ids_before, .shares = ingest->n_shares};
        FR_CHECK(before < limit);
        uint32_t count = fr_decode_take(decoder, ingest->staged_from, limit - before);
        count = fr_letter_fits(ingest) ? fr_decode_fit(decoder, ingest->staged_from, count, &room) : 0;
        /* the piece is full of ids or of bytes */
        bool full = count == 0 && ingest->staged_from < ingest->staged;
        if (!full)
            full = append_samples(ingest, count);
        if (full)
            fill_piece(ingest);
        if (ingest->pending == FR_PENDING_NONE)
            return FR_OK;
        enum fr_status status = fr_assembly_ready(ingest, 0);
        if (status != FR_OK)
            return status;
    }
}

static enum fr_status add_letter(struct fr_ingest *ingest)
{
    if (!ingest->open)
        return FR_AGAIN;
    enum fr_status status = fr_letter_send(ingest, ingest->reason);
    if (status != FR_OK)
        return status;
    struct fr_batch_position *entry = entry_of(ingest, pending_stream(ingest));
    entry->dead_lettered++;
    complete(ingest, entry);
    return FR_OK;
}

static enum fr_status add_skipped(struct fr_ingest *ingest)
{
    if (!ingest->open)
        return FR_AGAIN;
    struct fr_batch_position *entry = entry_of(ingest, pending_stream(ingest));
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
        return add_skipped(ingest);
    case FR_PENDING_SAMPLES:
        return add_samples(ingest);
    case FR_PENDING_LETTER:
        return add_letter(ingest);
    case FR_PENDING_NONE:
        break;
    }
    return FR_OK;
}

/* ---- events ---- */

/* Returns the wall time by which a record is judged; 0: the record is not judged by the clock.
 * Live, the wall clock bounds event times. In lockstep it does not, so that all runs over one
 * log give the same result. A record of which some items are in effect (`again`) was accepted,
 * and stays accepted if the clock was set back. */
static int64_t receipt_ms(const struct fr_ingest *ingest, bool again)
{
    return ingest->lockstep || again ? 0 : fr_wall_ms(ingest->clock);
}

static void log_future(struct fr_ingest *ingest, enum fr_future future)
{
    uint64_t *count = future == FR_FUTURE_CLOCK ? &ingest->tally.future_clock : &ingest->tally.future_timestamp;
    (*count)++;
    if (!fr_log_due(&ingest->logged_future_ns, fr_mono_ns(ingest->clock), LOG_FUTURE_NS))
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

/* Logs a line for each of the first few names; *logged counts them. */
static void log_names(struct fr_ingest *ingest, const struct fr_stream *stream, const struct fr_unknown_names *names,
                      bool slots, uint32_t *logged)
{
    const struct fr_partition_position *place = fr_stream_position(ingest, stream);
    for (; *logged < names->n; ++*logged) {
        char quoted[2 * FR_UNKNOWN_NAME_MAX];
        fr_log(FR_LOG_WARN, "ingest", slots ? "unknown_slot" : "unknown_key",
               "name=%s topic=%s partition=%" PRId32 " offset=%" PRId64 " note=\"%s\"",
               fr_log_quote(quoted, sizeof(quoted), names->names[*logged]), place->topic, place->partition,
               ingest->event.offset, unknown_note(ingest, names->names[*logged], slots));
    }
}

/* Logs unknown names, because a value under a misspelled name is trained as an absent value. */
static void log_unknown(struct fr_ingest *ingest, const struct fr_stream *stream)
{
    const struct fr_unknown *unknown = fr_decoder_unknown(stream->feed->decoder);
    log_names(ingest, stream, &unknown->slots, true, &stream->feed->proof->logged_slots);
    log_names(ingest, stream, &unknown->keys, false, &stream->feed->proof->logged_keys);
}

/* Holds the end of a stream if records of the stream are held; false: no record is held. */
static bool hold_end(struct fr_ingest *ingest, struct fr_stream *stream, const struct fr_source_event *event)
{
    if (stream->n_held == 0 || fr_held_replays(ingest))
        return false;
    struct fr_source_event end = {.kind = event->kind, .offset = event->offset};
    if (event->kind == FR_SOURCE_RECORD) /* a record that lies after the end of a bounded run */
        end.kind = FR_SOURCE_END;
    fr_stream_change_state(ingest, stream, FR_STREAM_END_CAME);
    if (!stream->end_held)
        fr_held_push(ingest, stream, &end, false);
    if (event->kind == FR_SOURCE_FINISHED)
        fr_ingest_malformed_held(ingest, stream);
    return true;
}

static enum fr_status add_record(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_source_event *event)
{
    /* A record that was held, or cut by a round, comes a second time, or a third time if its stream
     * was begun again meanwhile. */
    bool was_held = fr_held_replays(ingest), counted = event->offset < stream->counted;
    if (event->offset < stream->next) {
        ingest->tally.dropped_duplicates++;
        fr_stream_release(stream, event);
        return FR_OK;
    }
    if (stream->end >= 0 && event->offset >= stream->end) {
        bool held = hold_end(ingest, stream, event);
        fr_stream_release(stream, event);
        if (!held)
            fr_stream_change_state(ingest, stream, FR_STREAM_FINISHED);
        return FR_OK;
    }
    if (stream->state != FR_STREAM_READS)
        fr_stream_change_state(ingest, stream, FR_STREAM_RECORD_CAME);
    ingest->event = *event;
    ingest->pending_stream = (uint32_t)(stream - ingest->streams);
    /* some items of the record are in effect already */
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
    log_unknown(ingest, stream);
    enum fr_future future = status == FR_OK ? FR_FUTURE_NONE : fr_decoder_refused_future(decoder);
    if (status == FR_OK ? fr_ingest_malformed_accepted(ingest, stream, counted)
                        : fr_ingest_malformed_refused(ingest, stream, future, counted)) {
        if (!was_held) /* otherwise it is still the first of the held records */
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
            log_future(ingest, future);
        ingest->pending = FR_PENDING_LETTER;
    }
    return fr_assembly_pending(ingest);
}

static void reach_end(struct fr_ingest *ingest, struct fr_stream *stream, const struct fr_source_event *event)
{
    /* In a bounded run only the fixed end counts: a batch must not depend on when the log was at
     * its end, which may be the beginning of an open transaction. */
    if (stream->end >= 0 && event->offset < stream->end)
        return;
    if (hold_end(ingest, stream, event))
        return;
    if (stream->end >= 0) {
        fr_stream_change_state(ingest, stream, FR_STREAM_FINISHED);
        return;
    }
    fr_stream_change_state(ingest, stream, FR_STREAM_END_CAME);
    if (event->offset <= stream->next)
        return;
    /* Only markers and aborted records follow. If the position did not move past them, retention
     * would later look like a loss. */
    stream->next = stream->seen = event->offset;
    stream->item = 0;
    fr_stream_moved(ingest, stream);
}

enum fr_status fr_assembly_event(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_source_event *event)
{
    if (!fr_stream_is_read(stream)) { /* the event was in the queue when reading ended */
        fr_stream_release(stream, event);
        return FR_OK;
    }
    fr_transaction_event(stream, event);
    switch (event->kind) {
    case FR_SOURCE_RECORD:
        return add_record(ingest, stream, event);
    case FR_SOURCE_END:
        reach_end(ingest, stream, event);
        break;
    case FR_SOURCE_FINISHED:
        if (hold_end(ingest, stream, event))
            break;
        reach_end(ingest, stream, event);
        fr_stream_change_state(ingest, stream, FR_STREAM_FINISHED);
        break;
    case FR_SOURCE_RESET:
        fr_stream_fail(ingest, stream, event->text[0] ? event->text : "the next offset is not in the log");
        break;
    case FR_SOURCE_BROKEN:
        fr_stream_fail(ingest, stream, event->text);
        stream->retry_ns = fr_mono_ns(ingest->clock) + (uint64_t)FR_RECHECK_MS * 1000000u;
        break;
    case FR_SOURCE_MOVED:
        fr_stream_change_state(ingest, stream, FR_STREAM_RESTARTED);
        break;
    case FR_SOURCE_GAP:
    case FR_SOURCE_CONNECTED:
        break; /* these events concern no single stream */
    }
    fr_stream_release(stream, event);
    return FR_OK;
}
