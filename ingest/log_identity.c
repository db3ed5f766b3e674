/* Whether a log that is being read is still the log that was read.
 *
 * A topic may be deleted and created again, and an unclean election may cut it, while this process,
 * its machine or its network stands still. Reading on by offset number would then pass over records
 * of the new log without notice. So after every loss of contact that the source reports, the check
 * of the start is repeated (partitions.c) before any record takes effect that may have been fetched
 * since. Records that were fetched before a silence are kept, because a topic that was created
 * again has another record at the last delivered offset. They are dropped if connections were made
 * again or another broker leads the partition, because an election may have cut the log after that
 * offset. A partition without an answer waits, as one whose reading failed does.
 *
 * Once a minute the same check is made without a reason, of many partitions some at a time, with
 * the record that was the last one a minute before: the newest may be of the other log already. An
 * answer that does not come is asked for again in the next minute, and reading continues meanwhile.
 * The check comes between two records: a record that is half in effect, or held and about to take
 * effect, would end at an offset of the old log in the new one.
 *
 * Owner: ingest thread. */
#include "internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

/* Collects at most `most` partitions that are read, from stream *from on, and leaves the number of
 * the next stream in *from. */
static uint32_t collect_read(struct fr_ingest *ingest, uint32_t *from, uint32_t most, struct fr_stream **streams)
{
    uint32_t n = 0;
    for (; *from < ingest->n_streams && n < most; ++*from)
        if (fr_stream_is_read(&ingest->streams[*from]))
            streams[n++] = &ingest->streams[*from];
    return n;
}

/* `must`: a partition without an answer is not read any further. */
static enum fr_status identify(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n, bool must,
                               struct fr_err *err)
{
    int64_t *next = fr_alloc(n + 1, sizeof(*next));
    for (uint32_t i = 0; i < n; i++)
        next[i] = streams[i]->next;
    enum fr_status status = n ? fr_streams_check_read_partitions(ingest, streams, n, !must, err) : FR_OK;
    bool asked = status == FR_OK;
    if (status == FR_E_UNAVAILABLE || status == FR_E_DENIED)
        status = FR_OK;
    for (uint32_t i = 0; status == FR_OK && i < n; i++) {
        if (streams[i]->next != next[i])
            fr_stream_change_state(ingest, streams[i], FR_STREAM_RESTARTED);
        else if (must && (!asked || streams[i]->check.answer != FR_OK))
            fr_stream_fail(ingest, streams[i], asked ? streams[i]->check.why : err->text);
    }
    free(next);
    return status;
}

enum fr_status fr_streams_identify(struct fr_ingest *ingest, bool again, struct fr_err *err)
{
    const struct fr_source *source = &ingest->topics.source;
    fr_log(FR_LOG_DEBUG, "ingest", "contact",
           "again=%s note=\"contact with the brokers was lost: is the log the same?\"", again ? "true" : "false");
    if (again) {
        for (uint32_t i = ingest->topics.first; i < ingest->n_streams; i++)
            if (fr_stream_is_read(&ingest->streams[i]))
                fr_stream_change_state(ingest, &ingest->streams[i], FR_STREAM_RESTARTED);
        return fr_streams_revive(ingest, err);
    }
    struct fr_stream **streams = fr_alloc(ingest->n_streams + 1, sizeof(struct fr_stream *));
    uint32_t from = ingest->topics.first, n = collect_read(ingest, &from, ingest->n_streams, streams);
    enum fr_status status = identify(ingest, streams, n, true, err);
    free(streams);
    source->checked(source->self, true);
    return status;
}

enum fr_status fr_streams_identify_some(struct fr_ingest *ingest, uint64_t now_ns, struct fr_err *err)
{
    const struct fr_source *source = &ingest->topics.source;
    char problem[256];
    if (now_ns < ingest->identify_ns || ingest->pending != FR_PENDING_NONE || fr_held_replays(ingest))
        return FR_OK;
    if (!source->self || !fr_topics_begun(ingest) || !fr_is_connected(ingest, problem, sizeof(problem)))
        return FR_OK;
    struct fr_stream *streams[FR_IDENTIFY_PARTITIONS];
    uint32_t first = ingest->topics.first;
    uint32_t from = ingest->identify_from < first ? first : ingest->identify_from, before = from;
    uint32_t rounds = 1 + (ingest->n_streams - first) / FR_IDENTIFY_PARTITIONS;
    uint32_t n = collect_read(ingest, &from, FR_IDENTIFY_PARTITIONS, streams);
    ingest->identify_ns = now_ns + (uint64_t)FR_IDENTIFY_MS * 1000000u / rounds;
    ingest->identify_from = from < ingest->n_streams ? from : first;
    enum fr_status status = identify(ingest, streams, n, false, err);
    if (status == FR_OK && before == first && source->policies)
        status = source->policies(source->self, err);
    source->checked(source->self, false);
    return status;
}
