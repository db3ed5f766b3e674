/* Events that were read and have no effect yet: records that were refused while it is open whether
 * the records or this host are at fault, and the events that came after them (malformed.c decides).
 *
 * The positions of held records stand still, so a crash or a stop loses nothing: the next start
 * reads the records again. When the events are to take effect, they are replayed from the first to
 * the last as if they were read then, before anything else is read: each record is decoded again
 * and judged by the clock of that moment. Rejected: reading the records from the log again
 * (retention may have deleted them, and a gzip file is read from its beginning), and keeping
 * librdkafka's messages (letters.c).
 *
 * Invariant: while events are replayed no stream is halted (log_identity.c), so no event is dropped
 * then, and the pending record may point into the first event. Limit: FR_HELD_BYTES_MAX, or one
 * event. Lockstep holds nothing, because its batches are a function of the log.
 *
 * Owner: ingest thread. */
#include "internal.h"

#include <stdlib.h>

#include "base/check.h"

enum { FR_HELD_BYTES_MAX = 16 << 20 };

static struct fr_held *first_of(const struct fr_ingest *ingest)
{
    return &ingest->held.records[ingest->held.head];
}

static size_t bytes_of(const struct fr_record_parts *parts)
{
    return sizeof(struct fr_held) + fr_record_image_size(parts);
}

static void make_room(struct fr_held_queue *held)
{
    if (held->head + held->n < held->capacity)
        return;
    if (held->head >= held->capacity / 2 && held->head > 0) {
        memmove(held->records, held->records + held->head, held->n * sizeof(*held->records));
        held->head = 0;
        return;
    }
    held->capacity = held->capacity ? 2 * held->capacity : 64;
    held->records = fr_realloc(held->records, held->capacity, sizeof(*held->records));
}

static struct fr_record_image *image_of(struct fr_ingest *ingest, const struct fr_stream *stream,
                                        const struct fr_source_event *event)
{
    struct fr_record_header headers[FR_SOURCE_HEADERS_MAX];
    struct fr_record_parts parts = fr_letter_parts(stream, event, headers);
    ingest->held.bytes += bytes_of(&parts);
    return fr_record_image_new(&parts);
}

/* A held end is no longer the end of its stream once a record is held after it: the next end is
 * then held too. The earlier event stays in the queue; the record after it ends its effect. */
static void forget_end(struct fr_held_queue *held, struct fr_stream *stream)
{
    held->n_ends -= stream->end_held;
    stream->end_held = false;
}

void fr_held_push(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_source_event *event, bool again)
{
    struct fr_held_queue *held = &ingest->held;
    FR_CHECK(!ingest->lockstep);
    make_room(held);
    if (held->n == 0 && !again)
        held->since_ns = fr_mono_ns(ingest->clock);
    struct fr_held *record = &held->records[held->head + held->n++];
    *record = (struct fr_held){
        .kind = event->kind == FR_SOURCE_RECORD ? FR_HELD_RECORD
                : event->kind == FR_SOURCE_END  ? FR_HELD_END
                                                : FR_HELD_FINISHED,
        .stream = (uint32_t)(stream - ingest->streams),
        .offset = event->offset,
        .timestamp_ms = event->timestamp_ms,
        .size = event->size,
        .crc32c = event->crc32c,
        .withheld = event->withheld,
        .of_broker = event->of_broker,
    };
    if (record->kind == FR_HELD_RECORD) {
        record->image = image_of(ingest, stream, event);
        fr_stream_release(stream, event);
        forget_end(held, stream);
    } else {
        stream->end_held = true;
        held->n_ends++;
    }
    stream->n_held++;
}

bool fr_held_is_filled_by(size_t size)
{
    return size >= FR_HELD_BYTES_MAX;
}

bool fr_held_is_full(const struct fr_ingest *ingest)
{
    return ingest->held.bytes >= FR_HELD_BYTES_MAX;
}

/* Frees what the event keeps. */
static void drop(struct fr_ingest *ingest, struct fr_held *record)
{
    struct fr_stream *stream = &ingest->streams[record->stream];
    if (record->kind == FR_HELD_GONE)
        return;
    if (record->kind == FR_HELD_RECORD) {
        struct fr_record_header headers[FR_SOURCE_HEADERS_MAX];
        struct fr_record_parts parts;
        fr_record_image_parts(record->image, headers, FR_SOURCE_HEADERS_MAX, &parts);
        ingest->held.bytes -= bytes_of(&parts);
        fr_record_image_drop(record->image);
        record->image = NULL;
    } else if (stream->n_held == 1) {
        forget_end(&ingest->held, stream);
    }
    record->kind = FR_HELD_GONE;
    stream->n_held--;
}

void fr_held_forget(struct fr_ingest *ingest, struct fr_stream *stream)
{
    struct fr_held_queue *held = &ingest->held;
    FR_CHECK(held->state == FR_HELD_WAITS || stream->n_held == 0);
    for (size_t i = held->head; stream->n_held && i < held->head + held->n; i++)
        if (&ingest->streams[held->records[i].stream] == stream)
            drop(ingest, &held->records[i]);
    while (held->n && first_of(ingest)->kind == FR_HELD_GONE) {
        held->head++;
        held->n--;
    }
}

static void pop(struct fr_ingest *ingest)
{
    drop(ingest, first_of(ingest));
    ingest->held.head++;
    ingest->held.n--;
    ingest->held.state = FR_HELD_REPLAYS;
}

bool fr_held_next(struct fr_ingest *ingest, struct fr_stream **stream, struct fr_source_event *out)
{
    struct fr_held_queue *held = &ingest->held;
    FR_CHECK(held->state != FR_HELD_WAITS && ingest->pending == FR_PENDING_NONE);
    if (held->state == FR_HELD_TAKEN)
        pop(ingest);
    while (held->n && first_of(ingest)->kind == FR_HELD_GONE)
        pop(ingest);
    if (held->n == 0) {
        held->state = FR_HELD_WAITS;
        held->head = 0;
        return false;
    }
    const struct fr_held *record = first_of(ingest);
    *stream = &ingest->streams[record->stream];
    *out = (struct fr_source_event){
        .kind = record->kind == FR_HELD_RECORD ? FR_SOURCE_RECORD
                : record->kind == FR_HELD_END  ? FR_SOURCE_END
                                               : FR_SOURCE_FINISHED,
        .partition = (*stream)->partition,
        .offset = record->offset,
        .timestamp_ms = record->timestamp_ms,
        .size = record->size,
        .withheld = record->withheld,
        .crc32c = record->crc32c,
        .of_broker = record->of_broker,
    };
    if (record->kind != FR_HELD_RECORD) {
        pop(ingest);
        return true;
    }
    struct fr_record_header headers[FR_SOURCE_HEADERS_MAX];
    struct fr_record_parts parts;
    fr_record_image_parts(record->image, headers, FR_SOURCE_HEADERS_MAX, &parts);
    out->value = parts.value;
    out->key = parts.key;
    out->key_size = parts.key_size;
    held->state = FR_HELD_TAKEN;
    return true;
}

void fr_held_parts(const struct fr_ingest *ingest, struct fr_record_header *headers, struct fr_record_parts *out)
{
    FR_CHECK(ingest->held.state == FR_HELD_TAKEN);
    fr_record_image_parts(first_of(ingest)->image, headers, FR_SOURCE_HEADERS_MAX, out);
}

void fr_held_release(struct fr_held_queue *held)
{
    for (size_t i = held->head; i < held->head + held->n; i++)
        fr_record_image_drop(held->records[i].image);
    free(held->records);
    *held = (struct fr_held_queue){0};
}
