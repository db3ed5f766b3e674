/* Streams before they are read: which partitions there are, which of them can be read, when they
 * are checked again, and when they begin. stream_machine.c draws the states.
 *
 * Whether a log is still the one that the positions refer to is checked by the stream's feed
 * (partitions.c, files.c). Live, every stream that can be read begins, and each of the others is
 * checked again by itself; a bounded run needs all of them, because its ends are fixed together.
 *
 * Owner: ingest thread. There is no wait between tries here; the caller backs off. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "files.h"

void fr_stream_moved(struct fr_ingest *ingest, struct fr_stream *stream)
{
    if (!stream->moved)
        ingest->n_moved++;
    stream->moved = true;
}

/* ---- discovery ---- */

uint32_t fr_stream_lane(const char *topic, int32_t partition, uint32_t n_lanes)
{
    uint64_t number = fr_is_file_topic(topic) ? fr_xxh3(topic, strlen(topic)) : (uint64_t)partition;
    return (uint32_t)(number % n_lanes);
}

void fr_streams_next_files(struct fr_ingest *ingest)
{
    for (uint32_t i = 0; i < ingest->n_shares; i++) {
        struct fr_share *share = &ingest->shares[i];
        for (; share->order < ingest->n_files; share->order++) {
            const struct fr_stream *file = &ingest->streams[share->order];
            if (fr_stream_share(ingest, file) == share && file->state != FR_STREAM_DONE)
                break;
        }
    }
}

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
        .state = FR_STREAM_NEW,
        .feed = feed,
        .partition = ingest->n_streams - feed->first,
        .order = feed->one_by_one ? ingest->n_streams : feed->first,
        .lane = fr_stream_lane(at->topic, at->partition, ingest->n_lanes),
        .stream_index = stream_index,
        .next = p.offset,
        .item = p.item,
        .delivered = p.delivered,
        .mark = {p.fingerprint_offset, p.fingerprint_timestamp_ms, p.fingerprint_crc32c},
        .anchor = {.offset = -1},
        .unverified = -1,
        .end = -1,
        .high = -1,
        .seen = p.offset,
        .idle_at = -1,
        .touched = -1,
        .check.why = "not checked yet",
        .added = added,
    };
    struct fr_stream *stream = &ingest->streams[ingest->n_streams++];
    if (fr_stream_is_ours(ingest, stream)) {
        ingest->n_stopped++;
        return;
    }
    stream->state = FR_STREAM_DONE; /* for this ingest, which does not read its lane */
    ingest->n_done++;
}

/* Partitions that were read before must still be there. A topic never shrinks, so one with fewer
 * partitions was created again. */
static enum fr_status check_complete(const struct fr_ingest *ingest, struct fr_err *err)
{
    const struct fr_positions *known = &ingest->shared.known;
    for (uint32_t i = 0; i < known->count; i++) {
        const struct fr_partition_position *p = &known->partitions[i];
        bool topic_there = false, there = false;
        uint32_t lane = fr_stream_lane(p->topic, p->partition, ingest->n_lanes);
        bool past_files = ingest->shares[ingest->n_shares > 1 ? lane : 0].past_files;
        for (uint32_t k = 0; k < ingest->n_streams && !there; k++) {
            there = ingest->streams[k].stream_index == i;
            topic_there |= there || strcmp(fr_stream_position(ingest, &ingest->streams[k])->topic, p->topic) == 0;
        }
        if (topic_there && !there && ingest->conf->ingest.on_loss == FR_ON_LOSS_STOP)
            return fr_err_set(
                err, FR_E_MISMATCH,
                "topic %s has no partition %" PRId32 ", of which the state holds offset %" PRId64
                ": the topic was created again with fewer partitions; use another topic or another "
                "state_dir, or continue with the present partitions by ingest.on_loss: earliest or latest",
                p->topic, p->partition, p->offset);
        if (topic_there && !there && !ingest->started)
            fr_log(FR_LOG_WARN, "ingest", "partition_gone", "topic=%s partition=%" PRId32 " offset=%" PRId64, p->topic,
                   p->partition, p->offset);
        if (!topic_there && !ingest->started && !(past_files && fr_is_file_topic(p->topic)))
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

/* If some partitions of a topic were read before and one has no position, that one was added
 * since then, and none of its records may be skipped. For a topic that was not read before (one
 * more in ingest.topics) `start` decides. */
static bool was_read(const struct fr_ingest *ingest, const char *topic, uint32_t n_resolved)
{
    for (uint32_t i = 0; i < n_resolved; i++)
        if (strcmp(ingest->shared.known.partitions[i].topic, topic) == 0)
            return true;
    return false;
}

static enum fr_status add_streams(struct fr_ingest *ingest, const struct fr_feed *feed,
                                  const struct fr_source_layout *layout, uint32_t resumed, struct fr_err *err)
{
    const struct fr_positions *known = &ingest->shared.known;
    uint32_t index;
    for (uint32_t i = ingest->n_streams - feed->first; i < layout->n_partitions; i++) {
        const struct fr_source_partition *at = &layout->partitions[i];
        if (known->count == FR_PARTITIONS_MAX && !fr_positions_find(known, at->topic, at->partition, &index))
            return fr_err_set(
                err, FR_E_LIMIT,
                "the state holds positions of %d partitions, including those of topics that are no longer read, "
                "and no more; read further topics with another state_dir",
                FR_PARTITIONS_MAX);
        add_stream(ingest, feed, at, was_read(ingest, at->topic, resumed));
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
        fr_streams_next_files(ingest);
    if (status == FR_OK)
        status = add_streams(ingest, &ingest->topics, &topics, resumed, err);
    return status == FR_OK ? check_complete(ingest, err) : status;
}

/* ---- can it be read? ---- */

/* The owner learns of streams in the order of their positions, so it learns of a stream that begins
 * together with all before it. A stream among those that has no offset yet needs an entry in a
 * batch once its offset is known. */
void fr_stream_resolve(struct fr_ingest *ingest, struct fr_stream *stream)
{
    struct fr_ingest_shared *shared = &ingest->shared;
    pthread_mutex_lock(&shared->mutex);
    struct fr_partition_position *position = &shared->known.partitions[stream->stream_index];
    bool late = position->offset < 0 && stream->stream_index < shared->n_resolved;
    if (position->offset < 0)
        position->offset = stream->next;
    if (shared->n_resolved <= stream->stream_index)
        shared->n_resolved = stream->stream_index + 1;
    pthread_mutex_unlock(&shared->mutex);
    if (late)
        fr_stream_moved(ingest, stream);
}

/* How many streams cannot be read, and why the first one cannot. */
static void report_waiting(struct fr_ingest *ingest)
{
    uint32_t n = 0;
    const struct fr_stream *first = NULL;
    for (uint32_t i = 0; i < ingest->n_streams; i++) {
        if (!fr_stream_is_waiting(&ingest->streams[i]))
            continue;
        first = first ? first : &ingest->streams[i];
        n++;
    }
    if (n)
        snprintf(ingest->problem, sizeof(ingest->problem), "%s (%" PRIu32 " of %" PRIu32 " partitions wait)",
                 first->check.why, n, ingest->n_streams);
}

static void put_off(struct fr_stream *stream, uint64_t now_ns)
{
    stream->wait_ms = stream->wait_ms == 0 ? FR_RECHECK_MS : 2 * stream->wait_ms;
    if (stream->wait_ms > FR_RECHECK_MS_MAX)
        stream->wait_ms = FR_RECHECK_MS_MAX;
    stream->retry_ns = now_ns + (uint64_t)stream->wait_ms * 1000000u;
}

/* Moves the stream as the check found; true: it can be read. If the whole check failed, streams
 * without an answer stay in their states. */
static bool apply_answer(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_status whole, uint64_t now_ns)
{
    enum fr_status answer = stream->check.answer;
    if (answer != FR_AGAIN)
        fr_stream_change_state(ingest, stream,
                               answer == FR_OK            ? FR_STREAM_CHECK_PASSED
                               : answer == FR_EOF         ? FR_STREAM_FINISHED
                               : answer == FR_E_NOT_FOUND ? FR_STREAM_TOPIC_MISSING
                                                          : FR_STREAM_CHECK_FAILED);
    if (whole == FR_OK && answer >= 0) {
        stream->retry_ns = stream->wait_ms = 0;
        return true;
    }
    put_off(stream, now_ns);
    return false;
}

/* Whether the time has come to check the stream, or to begin it. */
static bool is_due(const struct fr_ingest *ingest, const struct fr_stream *stream, uint64_t now_ns)
{
    return fr_stream_is_stopped(stream) && now_ns >= stream->retry_ns && fr_stream_may_be_read(ingest, stream);
}

enum fr_status fr_streams_check(struct fr_ingest *ingest, bool again, uint32_t *n_there, struct fr_err *err)
{
    const struct fr_feed *feeds[] = {&ingest->files, &ingest->topics};
    struct fr_stream **streams = fr_alloc(ingest->n_streams + 1, sizeof(struct fr_stream *));
    uint64_t now = fr_mono_ns(ingest->clock);
    enum fr_status status = FR_OK;
    *n_there = 0;
    for (size_t f = 0; status == FR_OK && f < FR_ARRAY_LEN(feeds); f++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < ingest->n_streams; i++) {
            struct fr_stream *stream = &ingest->streams[i];
            if (stream->feed != feeds[f] || !(again ? is_due(ingest, stream, now) : fr_stream_is_stopped(stream)))
                continue;
            stream->check.answer = FR_AGAIN;
            streams[n++] = stream;
        }
        if (n)
            status = feeds[f]->check(ingest, streams, n, err);
        for (uint32_t i = 0; i < n; i++)
            *n_there += apply_answer(ingest, streams[i], status, now);
    }
    free(streams);
    if (status == FR_OK)
        report_waiting(ingest);
    return status;
}

/* ---- reading ---- */

enum fr_status fr_stream_begin(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_err *err)
{
    const struct fr_source *source = &stream->feed->source;
    if (stream->end >= 0 && stream->next >= stream->end) {
        fr_stream_change_state(ingest, stream, FR_STREAM_FINISHED);
        return FR_OK;
    }
    enum fr_status status = source->begin(source->self, stream->partition, stream->check.from, err);
    if (status != FR_OK)
        return status;
    /* As far as is known there are no more records. The source will report the end again. */
    bool at_end = stream->check.in_transaction || (stream->high >= 0 && stream->next >= stream->high);
    fr_stream_change_state(ingest, stream,
                           stream->check.from < stream->next ? FR_STREAM_BEGUN_AT_MARK
                           : at_end                          ? FR_STREAM_BEGUN_AT_END
                                                             : FR_STREAM_BEGUN);
    return FR_OK;
}

void fr_stream_fail(struct fr_ingest *ingest, struct fr_stream *stream, const char *why)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    fr_stream_change_state(ingest, stream, FR_STREAM_FAILED);
    snprintf(ingest->problem, sizeof(ingest->problem), "%s/%" PRId32 ": %s", p->topic, p->partition, why);
    char quoted[512];
    /* A stream that is interrupted after each try is logged as a warning only the first time. */
    fr_log(stream->interrupted ? FR_LOG_DEBUG : FR_LOG_WARN, "ingest", "interrupted",
           "topic=%s partition=%" PRId32 " offset=%" PRId64 " reason=%s", p->topic, p->partition, stream->next,
           fr_log_quote(quoted, sizeof(quoted), why));
    stream->interrupted = true;
}

/* The problem is over when no stream is interrupted and none is stopped that should be read. */
static void clear_problem(struct fr_ingest *ingest)
{
    for (uint32_t i = 0; ingest->problem[0] && i < ingest->n_streams; i++) {
        const struct fr_stream *stream = &ingest->streams[i];
        if (stream->interrupted || (fr_stream_is_stopped(stream) && fr_stream_may_be_read(ingest, stream)))
            return;
    }
    ingest->problem[0] = 0;
}

void fr_stream_recover(struct fr_ingest *ingest, struct fr_stream *stream)
{
    stream->interrupted = false;
    clear_problem(ingest);
}

enum fr_status fr_streams_revive(struct fr_ingest *ingest, struct fr_err *err)
{
    uint64_t now = fr_mono_ns(ingest->clock);
    /* true while no partition is found that is read without being checked here */
    bool due = false, all = true;
    for (uint32_t i = 0; i < ingest->n_streams; i++) {
        const struct fr_stream *stream = &ingest->streams[i];
        due |= is_due(ingest, stream, now);
        all &= stream->feed != &ingest->topics || !fr_stream_is_read(stream);
    }
    uint32_t there = 0;
    enum fr_status status = due ? fr_streams_check(ingest, true, &there, err) : FR_OK;
    for (uint32_t i = 0; status == FR_OK && there && i < ingest->n_streams; i++) {
        struct fr_stream *stream = &ingest->streams[i];
        if (stream->state == FR_STREAM_READY && is_due(ingest, stream, now))
            status = fr_stream_begin(ingest, stream, err);
    }
    if (due && ingest->topics.source.self)
        ingest->topics.source.checked(ingest->topics.source.self, all);
    if (status == FR_E_UNAVAILABLE || status == FR_E_DENIED) {
        snprintf(ingest->problem, sizeof(ingest->problem), "%.255s", err->text);
        status = FR_OK;
    }
    clear_problem(ingest);
    return status;
}
