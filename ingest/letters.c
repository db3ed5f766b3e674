/* Dead letters of two kinds: of malformed records, sent when the record is decoded; and of records
 * whose samples the owner loop found unfit to train, sent before their batch takes effect.
 *
 * For the second kind the bytes of every record travel with the batch of its samples
 * (batch/records.h): at most FR_BATCH_BYTES_MIN, or FR_BYTES_PER_SAMPLE for each sample of
 * ingest.batch_size. At that limit the batch closes, which like the limit on ids is a function of
 * the records alone. Rejected: reading such a record again (retention may have deleted it, and a
 * gzip file is read from its beginning), and keeping librdkafka's messages (they pin fetch buffers
 * that no limit of ingest counts). The sink numbers letters of both kinds in one series.
 *
 * Owners: the ingest thread; fr_ingest_dead_letter and `lettered` belong to the owner loop. */
#include "internal.h"

#include <stdlib.h>

#include "base/check.h"

struct fr_record_parts fr_letter_parts(const struct fr_stream *stream, const struct fr_source_event *event,
                                       struct fr_record_header headers[static FR_SOURCE_HEADERS_MAX])
{
    const struct fr_source *source = &stream->feed->source;
    size_t n = source->headers(source->self, event, headers, FR_SOURCE_HEADERS_MAX);
    return (struct fr_record_parts){
        .value = event->value,
        .size = event->value ? event->size : 0,
        .key = event->key,
        .key_size = event->key_size,
        .headers = headers,
        .n_headers = n < FR_SOURCE_HEADERS_MAX ? n : FR_SOURCE_HEADERS_MAX,
    };
}

static struct fr_record_parts pending_parts(struct fr_ingest *ingest,
                                            struct fr_record_header headers[static FR_SOURCE_HEADERS_MAX])
{
    if (ingest->held.state != FR_HELD_TAKEN)
        return fr_letter_parts(&ingest->streams[ingest->pending_stream], &ingest->event, headers);
    struct fr_record_parts parts;
    fr_held_parts(ingest, headers, &parts);
    return parts;
}

static struct fr_dead_letter letter_of(const struct fr_partition_position *place, int64_t offset, const char *reason,
                                       const struct fr_record_parts *parts)
{
    return (struct fr_dead_letter){
        .topic = place->topic,
        .partition = place->partition,
        .offset = offset,
        .reason = reason,
        .parts = *parts,
    };
}

/* ---- malformed records ---- */

enum fr_status fr_letter_send(struct fr_ingest *ingest, const char *reason)
{
    struct fr_record_header headers[FR_SOURCE_HEADERS_MAX];
    const struct fr_partition_position *place = fr_stream_position(ingest, &ingest->streams[ingest->pending_stream]);
    struct fr_record_parts parts = pending_parts(ingest, headers);
    struct fr_dead_letter letter = letter_of(place, ingest->event.offset, reason, &parts);
    enum fr_status status = ingest->sink.send(ingest->sink.self, &letter, &ingest->dead_sequence);
    if (status == FR_AGAIN && ingest->withholding)
        fr_ingest_malformed_full(ingest, &ingest->streams[ingest->pending_stream]);
    return status;
}

/* ---- bytes that travel with a batch ---- */

bool fr_letter_fits(struct fr_ingest *ingest)
{
    const struct fr_batch *batch = ingest->open;
    uint64_t most = (uint64_t)ingest->conf->ingest.batch_size * FR_BYTES_PER_SAMPLE;
    most = most < FR_BATCH_BYTES_MIN ? FR_BATCH_BYTES_MIN : most;
    most = (most + ingest->n_shares - 1) / ingest->n_shares;
    uint64_t bytes = batch->image_bytes - ingest->piece.bytes_before; /* of the piece */
    if (batch->n_samples == ingest->piece.first_sample ||
        bytes + ingest->event.size + ingest->event.key_size <= most / 2)
        return true; /* headers are measured only if they could matter */
    struct fr_record_header headers[FR_SOURCE_HEADERS_MAX];
    struct fr_record_parts parts = pending_parts(ingest, headers);
    return bytes + fr_record_image_size(&parts) <= most;
}

void fr_letter_keep(struct fr_ingest *ingest, uint32_t count)
{
    struct fr_record_header headers[FR_SOURCE_HEADERS_MAX];
    struct fr_batch *batch = ingest->open;
    size_t capacity = batch->record_bytes.capacity;
    if (count == 0)
        return;
    const struct fr_stream *stream = &ingest->streams[ingest->pending_stream];
    struct fr_share *share = fr_stream_share(ingest, stream);
    if (share->image &&
        (share->image_stream != ingest->pending_stream || share->image_offset != ingest->event.offset)) {
        fr_record_image_drop(share->image);
        share->image = NULL;
    }
    struct fr_record_parts parts = pending_parts(ingest, headers);
    bool split = ingest->staged_from > 0 || count < ingest->staged;
    if (split && !share->image && fr_record_image_size(&parts) >= FR_SHARED_IMAGE_MIN) {
        share->image = fr_record_image_new(&parts);
        share->image_stream = ingest->pending_stream;
        share->image_offset = ingest->event.offset;
    }
    fr_batch_add_record(batch,
                        &(struct fr_batch_record){.stream_index = stream->stream_index,
                                                  .lane = stream->lane,
                                                  .offset = ingest->event.offset,
                                                  .kafka_ms = ingest->event.timestamp_ms,
                                                  .first_item = ingest->staged_from,
                                                  .shared = split ? share->image : NULL},
                        &parts);
    ingest->tally.record_bytes += batch->record_bytes.capacity - capacity;
}

/* ---- records of unfit samples ---- */

enum fr_status fr_ingest_dead_letter(struct fr_ingest *ingest, const struct fr_batch *batch,
                                     const struct fr_batch_record *record, const char *reason, uint64_t *number)
{
    struct fr_record_header headers[FR_SOURCE_HEADERS_MAX];
    struct fr_record_parts parts;
    uint32_t stream = record->stream_index;
    if (stream >= ingest->n_lettered) {
        ingest->lettered = fr_realloc(ingest->lettered, FR_PARTITIONS_MAX, sizeof(*ingest->lettered));
        for (; ingest->n_lettered < FR_PARTITIONS_MAX; ingest->n_lettered++)
            ingest->lettered[ingest->n_lettered] = -1;
    }
    FR_CHECK(stream < ingest->n_lettered);
    if (ingest->lettered[stream] == record->offset) {
        *number = 0;
        return FR_OK;
    }
    pthread_mutex_lock(&ingest->shared.mutex);
    struct fr_partition_position place = ingest->shared.known.partitions[stream];
    pthread_mutex_unlock(&ingest->shared.mutex);
    fr_batch_record_parts(batch, record, headers, FR_SOURCE_HEADERS_MAX, &parts);
    struct fr_dead_letter letter = letter_of(&place, record->offset, reason, &parts);
    enum fr_status status = ingest->sink.send(ingest->sink.self, &letter, number);
    if (status == FR_OK)
        ingest->lettered[stream] = record->offset;
    return status;
}
