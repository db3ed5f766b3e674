/* The status of ingest: what each step publishes, and the copy that other threads get. Several
 * problems may be present; `problem` holds the one that is shown first.
 *
 * Owner: ingest thread; `shared` is exchanged with other threads, under its mutex. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

const char *const fr_ingest_problems[FR_INGEST_PROBLEM_KINDS] = {
#define FR_INGEST_PROBLEM_NAME(name, text) text,
    FR_INGEST_PROBLEMS(FR_INGEST_PROBLEM_NAME)
#undef FR_INGEST_PROBLEM_NAME
};

static int64_t lag_ms(const struct fr_ingest *ingest, bool at_end)
{
    if (at_end)
        return 0;
    int64_t since = ingest->last_timestamp_ms > 0 ? ingest->last_timestamp_ms : ingest->started_ms;
    int64_t lag = fr_wall_ms(ingest->clock) - since;
    return lag > 0 ? lag : 0;
}

/* Whether no stream that is next in order can be read, or a topic is gone. */
static bool stands(const struct fr_ingest *ingest)
{
    uint32_t waiting = 0, others = 0;
    for (uint32_t i = 0; i < ingest->n_streams; i++) {
        const struct fr_stream *stream = &ingest->streams[i];
        if (stream->state == FR_STREAM_DONE || !fr_stream_may_be_read(ingest, stream))
            continue;
        if (stream->state == FR_STREAM_GONE)
            return true;
        waiting += fr_stream_is_waiting(stream);
        others += !fr_stream_is_waiting(stream);
    }
    return waiting > 0 && others == 0;
}

static void choose_problem(struct fr_ingest_status *status)
{
    int first = status->pause != FR_INGEST_READS ? FR_INGEST_PROBLEM_RECORDS : 0;
    while (first < FR_INGEST_PROBLEM_KINDS - 1 && !status->problems[first][0])
        first++;
    status->first = (enum fr_ingest_problem)first;
    memcpy(status->problem, status->problems[first], FR_PROBLEM_MAX);
}

/* size of the text that gives the time since which a problem exists */
enum { SINCE_MAX = 96 };

/* Whether brokers answer. Otherwise `problem` gets why not and, after the start, since when. */
static bool note_connection(struct fr_ingest *ingest, char problem[FR_PROBLEM_MAX])
{
    char quoted[FR_PROBLEM_MAX], since[FR_CLOCKS_UTC_MAX];
    problem[0] = '\0';
    bool connected = fr_is_connected(ingest, problem, FR_PROBLEM_MAX - SINCE_MAX);
    if (ingest->started && !connected && !ingest->down_since_ms) {
        ingest->down_since_ms = fr_wall_ms(ingest->clock);
        fr_log(FR_LOG_WARN, "ingest", "disconnected", "reason=%s", fr_log_quote(quoted, sizeof(quoted), problem));
    }
    if (ingest->started && connected && ingest->down_since_ms) {
        fr_log(FR_LOG_INFO, "ingest", "connected", "down_since=%s", fr_clocks_utc(ingest->down_since_ms, since));
        ingest->down_since_ms = 0;
    }
    size_t size = strlen(problem);
    if (ingest->down_since_ms)
        snprintf(problem + size, FR_PROBLEM_MAX - size, " (since %s; reading continues by itself when brokers answer)",
                 fr_clocks_utc(ingest->down_since_ms, since));
    if (connected)
        problem[0] = '\0';
    return connected;
}

void fr_ingest_publish_status(struct fr_ingest *ingest)
{
    struct fr_dead_counts dead = {0};
    if (ingest->drained)
        fr_transactions_note_waiting(ingest);
    ingest->sink.counts(ingest->sink.self, &dead);
    struct fr_ingest_status status = ingest->tally;
    status.dead_sent = dead.sent;
    status.dead_failed = dead.failed;
    status.dead_without_value = dead.without_value;
    status.n_partitions = ingest->n_streams;
    status.at_end = ingest->n_streams > 0;
    for (uint32_t i = 0; i < ingest->n_streams; i++)
        status.at_end &= fr_stream_is_at_end(&ingest->streams[i]) && ingest->streams[i].n_held == 0;
    status.lag_ms = lag_ms(ingest, status.at_end);
    status.stands = ingest->started && stands(ingest);
    status.connected = note_connection(ingest, status.problems[FR_INGEST_PROBLEM_BROKERS]);
    memcpy(status.problems[FR_INGEST_PROBLEM_STREAMS], ingest->problem, FR_PROBLEM_MAX);
    (void)ingest->sink.healthy(ingest->sink.self, status.problems[FR_INGEST_PROBLEM_DEAD_LETTER_SINK], FR_PROBLEM_MAX);
    fr_transactions_status(ingest, &status);
    fr_ingest_malformed_status(ingest, &status);
    choose_problem(&status);
    status.n_slots = ingest->conf->n_slots;
    status.unknown = *fr_decoder_unknown(ingest->polled->decoder);
    struct fr_ingest_shared *shared = &ingest->shared;
    pthread_mutex_lock(&shared->mutex);
    struct fr_ingest_partition *partitions = shared->status.partitions;
    if (shared->status_capacity < ingest->n_streams) {
        partitions = fr_realloc(partitions, ingest->n_streams, sizeof(*partitions));
        for (uint32_t i = shared->status_capacity; i < ingest->n_streams; i++) {
            const struct fr_partition_position *p = fr_stream_position(ingest, &ingest->streams[i]);
            memcpy(partitions[i].topic, p->topic, FR_TOPIC_MAX);
            partitions[i].partition = p->partition;
        }
        shared->status_capacity = ingest->n_streams;
    }
    for (uint32_t i = 0; i < ingest->n_streams; i++) {
        const struct fr_stream *stream = &ingest->streams[i];
        const struct fr_source *source = &stream->feed->source;
        int64_t high = fr_stream_is_read(stream) && source->high ? source->high(source->self, stream->partition) : -1;
        high = high > stream->high ? high : stream->high;
        partitions[i].waits = fr_stream_is_stopped(stream) && fr_stream_may_be_read(ingest, stream);
        partitions[i].next_offset = stream->seen;
        partitions[i].transaction_ms = fr_transaction_waited_ms(ingest, stream);
        partitions[i].high = high > stream->seen ? high : stream->seen;
    }
    memcpy(shared->status.present, ingest->present, status.n_slots * sizeof(*ingest->present));
    status.present = shared->status.present;
    status.partitions = partitions;
    shared->status = status;
    pthread_mutex_unlock(&shared->mutex);
}

void fr_ingest_get_status(struct fr_ingest *ingest, struct fr_ingest_status *out)
{
    struct fr_ingest_shared *shared = &ingest->shared;
    pthread_mutex_lock(&shared->mutex);
    *out = shared->status;
    out->partitions = fr_alloc(out->n_partitions ? out->n_partitions : 1, sizeof(*out->partitions));
    if (out->n_partitions)
        memcpy(out->partitions, shared->status.partitions, out->n_partitions * sizeof(*out->partitions));
    out->present = fr_alloc(out->n_slots + 1, sizeof(*out->present));
    memcpy(out->present, shared->status.present, out->n_slots * sizeof(*out->present));
    pthread_mutex_unlock(&shared->mutex);
}

void fr_ingest_status_release(struct fr_ingest_status *status)
{
    free(status->partitions);
    free(status->present);
    *status = (struct fr_ingest_status){0};
}
