/* Streams: which partitions there are, whether the log still is the one our positions speak of, and
 * beginning to read (DESIGN section 5, Recovery; P8).
 *
 * The position must lie in [low, high] and the record that was delivered last must have the
 * timestamp and CRC32C that were noted (the fingerprint): same name and a plausible offset do not
 * prove the same log, a topic may have been deleted and made anew. librdkafka 2.0.2 checks neither
 * (no KIP-320 truncation detection, nor later for an assigned start), so this does, at the start
 * and whenever reading a partition broke. Losses and a log made anew go by `on_loss`; another
 * cluster always stops. Files check theirs in their own way (files.c).
 *
 * Owner: ingest thread. It does not wait between tries (the caller backs off). */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "files.h"

void fr_stream_moved(struct fr_ingest *ingest, struct fr_stream *stream)
{
    if (!stream->moved)
        ingest->n_moved++;
    stream->moved = true;
}

/* ---- discovery ---- */

static void add_stream(struct fr_ingest *ingest, const struct fr_feed *feed, const struct fr_source_partition *at,
                       bool added)
{
    if (ingest->n_streams == ingest->capacity_streams) {
        ingest->capacity_streams = ingest->capacity_streams ? 2 * ingest->capacity_streams : 8;
        ingest->streams = fr_realloc(ingest->streams, ingest->capacity_streams, sizeof(*ingest->streams));
        ingest->touched = fr_realloc(ingest->touched, ingest->capacity_streams, sizeof(*ingest->touched));
    }
    pthread_mutex_lock(&ingest->shared.mutex);
    uint32_t stream_index = fr_positions_index(&ingest->shared.known, at->topic, at->partition);
    struct fr_partition_position p = ingest->shared.known.partitions[stream_index];
    pthread_mutex_unlock(&ingest->shared.mutex);
    ingest->streams[ingest->n_streams] = (struct fr_stream){
        .feed = feed,
        .partition = ingest->n_streams - feed->first,
        .turn = feed->in_turn ? ingest->n_streams : feed->first,
        .stream_index = stream_index,
        .next = p.offset,
        .item = p.item,
        .delivered = p.delivered,
        .mark = {p.fingerprint_offset, p.fingerprint_timestamp_ms, p.fingerprint_crc32c},
        .end = -1,
        .high = -1,
        .seen = p.offset,
        .touched = -1,
        .added = added,
    };
    ingest->n_streams++;
    ingest->n_stopped++;
}

/* Partitions that were read before must still be there: a topic never shrinks, it was made anew. */
static enum fr_status check_complete(const struct fr_ingest *ingest, struct fr_err *err)
{
    const struct fr_positions *known = &ingest->shared.known;
    for (uint32_t i = 0; i < known->count; i++) {
        const struct fr_partition_position *p = &known->partitions[i];
        bool topic_there = false, there = false;
        for (uint32_t k = 0; k < ingest->n_streams && !there; k++) {
            there = ingest->streams[k].stream_index == i;
            topic_there |= there || strcmp(fr_stream_position(ingest, &ingest->streams[k])->topic, p->topic) == 0;
        }
        if (topic_there && !there && ingest->conf->ingest.on_loss == FR_ON_LOSS_STOP)
            return fr_err_set(err, FR_E_MISMATCH,
                              "topic %s has no partition %" PRId32 ", of which the state holds offset %" PRId64
                              ": the topic was made anew with fewer partitions; use another topic or another "
                              "state_dir, or go on with the partitions there are by ingest.on_loss: earliest or latest",
                              p->topic, p->partition, p->offset);
        if (topic_there && !there && !ingest->started)
            fr_log(FR_LOG_WARN, "ingest", "partition_gone", "topic=%s partition=%" PRId32 " offset=%" PRId64, p->topic,
                   p->partition, p->offset);
        if (!topic_there && !ingest->started && !(ingest->past_files && fr_is_file_topic(p->topic)))
            fr_log(FR_LOG_WARN, "ingest", "topic_left", "topic=%s partition=%" PRId32 " offset=%" PRId64, p->topic,
                   p->partition, p->offset);
    }
    return FR_OK;
}

static enum fr_status check_cluster(struct fr_ingest *ingest, const char *cluster_id, struct fr_err *err)
{
    if (cluster_id[0] == 0)
        return FR_OK;
    char known[FR_CLUSTER_ID_MAX];
    pthread_mutex_lock(&ingest->shared.mutex);
    if (ingest->shared.known.cluster_id[0] == 0)
        snprintf(ingest->shared.known.cluster_id, FR_CLUSTER_ID_MAX, "%s", cluster_id);
    memcpy(known, ingest->shared.known.cluster_id, sizeof(known));
    pthread_mutex_unlock(&ingest->shared.mutex);
    if (strcmp(known, cluster_id) == 0)
        return FR_OK;
    return fr_err_set(
        err, FR_E_MISMATCH,
        "the brokers at %s are cluster %s, the state was trained from cluster %s: offsets of one mean nothing in the "
        "other; point ingest.brokers at the right cluster or use another state_dir",
        ingest->conf->ingest.brokers, cluster_id, known);
}

/* Where partitions of a topic were read before, one without a position is new: its records were
 * written since, and none may be skipped. Of a topic that was not read before (one more in
 * ingest.topics) `start` decides. */
static bool was_read(const struct fr_ingest *ingest, const char *topic, uint32_t n_resolved)
{
    for (uint32_t i = 0; i < n_resolved; i++)
        if (strcmp(ingest->shared.known.partitions[i].topic, topic) == 0)
            return true;
    return false;
}

static bool is_known(const struct fr_ingest *ingest, const struct fr_source_partition *at)
{
    const struct fr_positions *known = &ingest->shared.known;
    for (uint32_t i = 0; i < known->count; i++)
        if (known->partitions[i].partition == at->partition && strcmp(known->partitions[i].topic, at->topic) == 0)
            return true;
    return false;
}

static enum fr_status add_streams(struct fr_ingest *ingest, const struct fr_feed *feed,
                                  const struct fr_source_layout *layout, uint32_t resumed, struct fr_err *err)
{
    for (uint32_t i = ingest->n_streams - feed->first; i < layout->n_partitions; i++) {
        if (ingest->shared.known.count == FR_PARTITIONS_MAX && !is_known(ingest, &layout->partitions[i]))
            return fr_err_set(err, FR_E_LIMIT,
                              "the state holds positions of %d partitions, of topics that were left too, and no more; "
                              "read further topics with another state_dir",
                              FR_PARTITIONS_MAX);
        add_stream(ingest, feed, &layout->partitions[i], was_read(ingest, layout->partitions[i].topic, resumed));
    }
    return FR_OK;
}

enum fr_status fr_streams_discover(struct fr_ingest *ingest, struct fr_err *err)
{
    struct fr_source_layout files = {0}, topics = {0};
    const struct fr_source *of_topics = &ingest->topics.source, *of_files = &ingest->files.source;
    enum fr_status status = of_topics->self ? of_topics->discover(of_topics->self, &topics, err) : FR_OK;
    if (status == FR_OK && of_files->self)
        status = of_files->discover(of_files->self, &files, err);
    if (status == FR_OK && files.n_partitions + topics.n_partitions > FR_PARTITIONS_MAX)
        status = fr_err_set(err, FR_E_LIMIT, "%u partitions are more than the %d this service reads",
                            files.n_partitions + topics.n_partitions, FR_PARTITIONS_MAX);
    if (status == FR_OK)
        status = check_cluster(ingest, topics.cluster_id, err);
    uint32_t resumed = ingest->shared.n_resolved;
    if (status == FR_OK)
        status = add_streams(ingest, &ingest->files, &files, resumed, err);
    if (status == FR_OK)
        status = add_streams(ingest, &ingest->topics, &topics, resumed, err);
    return status == FR_OK ? check_complete(ingest, err) : status;
}

/* ---- is it the same log? ---- */

enum damage { BEGINNING_GONE, END_GONE, OTHER_RECORDS };

/* By the policy: `stop` leaves the text and status in err; the others begin again in what the log
 * holds now. What counts as lost are records known to be in neither the old nor the new reading:
 * with `earliest` in a log that is another one there are none that we know of, with `latest` all
 * that it holds now. */
static enum fr_status lose(struct fr_ingest *ingest, struct fr_stream *stream, int64_t low, enum damage damage,
                           struct fr_err *err)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    if (ingest->conf->ingest.on_loss == FR_ON_LOSS_STOP)
        return err->status;
    int64_t to = ingest->conf->ingest.on_loss == FR_ON_LOSS_EARLIEST ? low : stream->high;
    int64_t unread = damage == BEGINNING_GONE ? stream->next : low;
    uint64_t lost = to > unread ? (uint64_t)(to - unread) : 0;
    char quoted[1100];
    fr_log(FR_LOG_WARN, "ingest", "records_lost",
           "topic=%s partition=%" PRId32 " expected=%" PRId64 " low=%" PRId64 " high=%" PRId64 " next=%" PRId64
           " lost=%" PRIu64 " reason=%s",
           p->topic, p->partition, stream->next, low, stream->high, to, lost,
           fr_log_quote(quoted, sizeof(quoted), err->text));
    stream->next = to;
    stream->item = 0;
    stream->mark =
        /* what follows is another log, or has a hole: nothing to compare with */
        (struct fr_mark){.offset = -1};
    stream->lost += lost;
    fr_stream_moved(ingest, stream);
    return FR_OK;
}

#define ON_LOSS_REMEDY "ingest.on_loss: earliest or latest goes on without them, another state_dir begins anew"

static enum fr_status check_range(struct fr_ingest *ingest, struct fr_stream *stream, int64_t low, struct fr_err *err)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    if (stream->next < low) {
        (void)fr_err_set(err, FR_E_LOST,
                         "%s/%" PRId32 ": %" PRId64
                         " records were deleted before they were read (retention): the next offset is %" PRId64
                         ", the log holds [%" PRId64 ", %" PRId64 "); " ON_LOSS_REMEDY,
                         p->topic, p->partition, low - stream->next, stream->next, low, stream->high);
        return lose(ingest, stream, low, BEGINNING_GONE, err);
    }
    (void)fr_err_set(err, FR_E_LOST,
                     "%s/%" PRId32 ": %" PRId64
                     " records are missing at its end (truncated, or the topic was made anew): the next offset is "
                     "%" PRId64 ", the log holds [%" PRId64 ", %" PRId64 "); " ON_LOSS_REMEDY,
                     p->topic, p->partition, stream->next - stream->high, stream->next, low, stream->high);
    return lose(ingest, stream, low, END_GONE, err);
}

static enum fr_status verify(struct fr_ingest *ingest, struct fr_stream *stream, int64_t low, struct fr_err *err)
{
    const struct fr_source *source = &stream->feed->source;
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    if (stream->mark.offset < 0)
        return FR_OK;
    enum fr_status status = FR_EOF;
    struct fr_source_event event;
    if (stream->mark.offset >= low && stream->mark.offset < stream->high)
        status = source->fetch(source->self, stream->partition, stream->mark.offset, &event, err);
    if (status == FR_EOF) {
        fr_log(FR_LOG_WARN, "ingest", "unverified",
               "topic=%s partition=%" PRId32 " offset=%" PRId64
               " reason=\"the last delivered record is no longer in the log\"",
               p->topic, p->partition, stream->mark.offset);
        return FR_OK;
    }
    if (status != FR_OK)
        return status;
    uint32_t crc = fr_crc32c(0, event.value, event.size);
    int64_t timestamp_ms = event.timestamp_ms;
    fr_stream_release(stream, &event);
    if (crc == stream->mark.crc32c && timestamp_ms == stream->mark.timestamp_ms)
        return FR_OK;
    (void)fr_err_set(
        err, FR_E_MISMATCH,
        "%s/%" PRId32 ": the record at offset %" PRId64 " is not the one that was trained (timestamp %" PRId64
        ", CRC32C %08" PRIx32 "; noted %" PRId64 ", %08" PRIx32
        "): another topic under the same name, made anew; use the right topic or another state_dir, or go "
        "on with this log by ingest.on_loss: earliest or latest",
        p->topic, p->partition, stream->mark.offset, timestamp_ms, crc, stream->mark.timestamp_ms, stream->mark.crc32c);
    return lose(ingest, stream, low, OTHER_RECORDS, err);
}

/* The owner learns positions without gaps. */
void fr_stream_resolve(struct fr_ingest *ingest, const struct fr_stream *stream)
{
    struct fr_ingest_shared *shared = &ingest->shared;
    pthread_mutex_lock(&shared->mutex);
    if (shared->known.partitions[stream->stream_index].offset < 0)
        shared->known.partitions[stream->stream_index].offset = stream->next;
    while (shared->n_resolved < shared->known.count && shared->known.partitions[shared->n_resolved].offset >= 0)
        shared->n_resolved++;
    pthread_mutex_unlock(&shared->mutex);
}

static enum fr_status first_offset(struct fr_ingest *ingest, struct fr_stream *stream, int64_t low, struct fr_err *err)
{
    const struct fr_source *source = &stream->feed->source;
    int64_t at = low;
    enum fr_status status = FR_OK;
    if (!stream->added && ingest->conf->ingest.start == FR_START_LATEST)
        at = stream->high;
    else if (!stream->added && ingest->conf->ingest.start == FR_START_TIME)
        status = source->offset_at(source->self, stream->partition, ingest->conf->ingest.start_ms, &at, err);
    if (status < 0)
        return status;
    /* None so late: what is written from now on is. */
    stream->next = status == FR_EOF || at > stream->high ? stream->high : at < low ? low : at;
    return FR_OK;
}

enum fr_status fr_stream_check_partition(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_err *err)
{
    const struct fr_source *source = &stream->feed->source;
    int64_t low, high;
    enum fr_status status = source->watermarks(source->self, stream->partition, &low, &high, err);
    if (status != FR_OK)
        return status;
    stream->high = high;
    if (stream->next < 0)
        status = first_offset(ingest, stream, low, err);
    else if (stream->next < low || stream->next > high)
        status = check_range(ingest, stream, low, err);
    else
        status = verify(ingest, stream, low, err);
    stream->from = stream->next;
    if (status == FR_OK)
        fr_stream_resolve(ingest, stream);
    return status;
}

/* ---- reading ---- */

enum fr_status fr_stream_begin(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_err *err)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    FR_CHECK(stream->state == FR_STREAM_STOPPED);
    if (stream->end >= 0 && stream->next >= stream->end) {
        fr_stream_finish(ingest, stream);
        return FR_OK;
    }
    const struct fr_source *source = &stream->feed->source;
    enum fr_status status = source->begin(source->self, stream->partition, stream->from, err);
    if (status != FR_OK)
        return status;
    stream->state = stream->from < stream->next ? FR_STREAM_VERIFYING : FR_STREAM_READING;
    ingest->polled = stream->feed;
    /* Nothing to wait for as far as we know; the source says so again. */
    stream->at_end = stream->high >= 0 && stream->next >= stream->high;
    stream->seen = stream->next;
    ingest->n_stopped--;
    fr_log(stream->troubled ? FR_LOG_DEBUG : FR_LOG_INFO, "ingest", "reading",
           "topic=%s partition=%" PRId32 " offset=%" PRId64 " item=%" PRIu32 " high=%" PRId64, p->topic, p->partition,
           stream->next, stream->item, stream->high);
    return FR_OK;
}

void fr_stream_stop(struct fr_ingest *ingest, struct fr_stream *stream, const char *why)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    FR_CHECK(fr_stream_is_read(stream));
    stream->feed->source.halt(stream->feed->source.self, stream->partition);
    stream->state = FR_STREAM_STOPPED;
    stream->at_end = false;
    stream->retry_ns = 0;
    ingest->n_stopped++;
    snprintf(ingest->problem, sizeof(ingest->problem), "%s/%" PRId32 ": %s", p->topic, p->partition, why);
    char quoted[512];
    /* A stream that is interrupted at every new try says so once. */
    fr_log(stream->troubled ? FR_LOG_DEBUG : FR_LOG_WARN, "ingest", "interrupted",
           "topic=%s partition=%" PRId32 " offset=%" PRId64 " reason=%s", p->topic, p->partition, stream->next,
           fr_log_quote(quoted, sizeof(quoted), why));
    stream->troubled = true;
}

/* No stream is troubled, and none waits that could be read: no problem is left to tell. */
static void settle(struct fr_ingest *ingest)
{
    for (uint32_t i = 0; ingest->problem[0] && i < ingest->n_streams; i++) {
        const struct fr_stream *stream = &ingest->streams[i];
        if (stream->troubled || (stream->state == FR_STREAM_STOPPED && fr_stream_its_turn(ingest, stream)))
            return;
    }
    ingest->problem[0] = 0;
}

void fr_stream_recovered(struct fr_ingest *ingest, struct fr_stream *stream)
{
    stream->troubled = false;
    settle(ingest);
}

void fr_stream_finish(struct fr_ingest *ingest, struct fr_stream *stream)
{
    FR_CHECK(stream->state != FR_STREAM_DONE);
    if (stream->state == FR_STREAM_STOPPED)
        ingest->n_stopped--;
    else
        stream->feed->source.halt(stream->feed->source.self, stream->partition);
    stream->state = FR_STREAM_DONE;
    stream->troubled = false;
    stream->at_end = true;
    ingest->n_done++;
    while (fr_files_left(ingest) && ingest->streams[ingest->turn].state == FR_STREAM_DONE)
        ingest->turn++;
    if (stream->next < stream->end) { /* only markers were left: in effect all the same */
        stream->next = stream->end;
        stream->item = 0;
        fr_stream_moved(ingest, stream);
    }
    stream->seen = stream->next;
}

enum fr_status fr_streams_revive(struct fr_ingest *ingest, struct fr_err *err)
{
    uint64_t now = fr_mono_ns(ingest->clock);
    bool looked = false;
    enum fr_status status = FR_OK;
    for (uint32_t i = 0; status == FR_OK && ingest->n_stopped && i < ingest->n_streams; i++) {
        struct fr_stream *stream = &ingest->streams[i];
        if (stream->state != FR_STREAM_STOPPED || now < stream->retry_ns || !fr_stream_its_turn(ingest, stream))
            continue;
        looked = true;
        stream->retry_ns = now + (uint64_t)FR_RECHECK_MS * 1000000u;
        status = stream->feed->check(ingest, stream, err);
        /* The owner learns positions without gaps: behind one whose first offset is not known this
         * one waits. */
        if (status == FR_OK && stream->state == FR_STREAM_STOPPED && stream->stream_index < ingest->shared.n_resolved)
            status = fr_stream_begin(ingest, stream, err);
    }
    if (looked && ingest->topics.source.self)
        ingest->topics.source.checked(ingest->topics.source.self);
    if (status == FR_E_UNAVAILABLE || status == FR_E_DENIED) {
        snprintf(ingest->problem, sizeof(ingest->problem), "%.255s", err->text);
        status = FR_OK;
    }
    settle(ingest);
    return status;
}
