/* Records that wait for the open transaction of a producer. Committed records that come after
 * the first record of the transaction are not delivered either (read_committed), so the stream
 * stands still although brokers answer and everything that can be read has been read. Brokers
 * end such a transaction themselves after the producer's transaction.timeout.ms, if they know
 * that it exists (they do not know of a hanging one, KIP-664).
 *
 * Ingest sees the following: the source reported that the stream is at its end (the last stable
 * offset), delivered nothing since, and the log is longer than that. New records on their way
 * look the same for an instant, so the state counts after FR_TRANSACTION_MS. The wait is
 * measured up to the last poll that gave nothing: while reading is paused, or the trainer is
 * slower, what was written since then is not checked. Lag and series count from then on. Log,
 * problem and readiness report it after `ready_lag`, because some producers always use short
 * transactions; a bounded run, whose end lies after the transaction, reports it at once.
 *
 * Owner: ingest thread. No broker is asked, and what is read does not change. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"

enum { FR_TRANSACTION_MS = 1000 };
#define LOG_NS UINT64_C(60000000000) /* time between two lines in the log */
#define REMEDY                                                                                                         \
    "brokers end it after the producer's transaction.timeout.ms; one that stays longer is found by "                   \
    "kafka-transactions.sh find-hanging and ended by its abort"

void fr_transaction_event(struct fr_stream *stream, const struct fr_source_event *event)
{
    stream->idle_at = event->kind == FR_SOURCE_END ? event->offset : -1;
    stream->transaction_ns = 0;
}

int64_t fr_transaction_waited_ms(const struct fr_ingest *ingest, const struct fr_stream *stream)
{
    int64_t ms = stream->transaction_ns ? (int64_t)((ingest->drained_ns - stream->transaction_ns) / 1000000) : 0;
    return ms >= FR_TRANSACTION_MS ? ms : 0;
}

static bool waits(const struct fr_ingest *ingest, const struct fr_stream *stream)
{
    const struct fr_source *source = &stream->feed->source;
    bool reads = fr_stream_is_read(stream) && source->high && stream->idle_at >= 0;
    if (!reads || (stream->end >= 0 && stream->idle_at >= stream->end))
        return false;
    /* in lockstep only the partition of the round was polled */
    return (!ingest->lockstep || stream == &ingest->streams[ingest->piece.stream]) &&
           source->high(source->self, stream->partition) > stream->idle_at;
}

void fr_transactions_note_waiting(struct fr_ingest *ingest)
{
    uint64_t now_ns = ingest->drained_ns = fr_mono_ns(ingest->clock);
    for (uint32_t i = 0; i < ingest->n_streams; i++) {
        struct fr_stream *stream = &ingest->streams[i];
        if (!waits(ingest, stream))
            stream->transaction_ns = 0;
        else if (!stream->transaction_ns)
            stream->transaction_ns = now_ns;
    }
}

/* Writes the problem, and a line in the log if one is due. `stream` is the one of n waiting
 * streams that has waited longest. */
static void report(struct fr_ingest *ingest, const struct fr_stream *stream, uint32_t n, int64_t ms, char *problem)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    int64_t high = stream->feed->source.high(stream->feed->source.self, stream->partition);
    char more[32] = "";
    if (n > 1)
        snprintf(more, sizeof(more), ", %" PRIu32 " partitions", n);
    snprintf(problem, FR_PROBLEM_MAX,
             "%.100s/%" PRId32 ": records from offset %" PRId64 " to %" PRId64
             " wait for a producer's transaction, open for %" PRId64 " s or more%s; " REMEDY,
             p->topic, p->partition, stream->idle_at, high - 1, ms / 1000, more);
    if (fr_log_due(&ingest->logged_transaction_ns, fr_mono_ns(ingest->clock), LOG_NS))
        fr_log(FR_LOG_WARN, "ingest", "transaction_open",
               "topic=%s partition=%" PRId32 " offset=%" PRId64 " high=%" PRId64 " end=%" PRId64 " seconds=%" PRId64
               " partitions=%" PRIu32
               " note=\"records from this offset on wait for a producer's open transaction; " REMEDY "\"",
               p->topic, p->partition, stream->idle_at, high, stream->end, ms / 1000, n);
}

void fr_transactions_status(struct fr_ingest *ingest, struct fr_ingest_status *status)
{
    int64_t patience_ms = ingest->until_end ? FR_TRANSACTION_MS : ingest->conf->ingest.ready_lag_ms, longest_ms = 0;
    const struct fr_stream *longest = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < ingest->n_streams; i++) {
        int64_t ms = fr_transaction_waited_ms(ingest, &ingest->streams[i]);
        n += ms > 0;
        if (ms > longest_ms) {
            longest_ms = ms;
            longest = &ingest->streams[i];
        }
    }
    if (!longest)
        return;
    if (status->at_end)
        status->lag_ms = longest_ms;
    status->at_end = false;
    if (longest_ms >= patience_ms)
        report(ingest, longest, n, longest_ms, status->problems[FR_INGEST_PROBLEM_TRANSACTIONS]);
}
