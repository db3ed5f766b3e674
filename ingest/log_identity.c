/* Whether a log that is being read still is the one that was read.
 *
 * A topic may be deleted and made again, and an unclean election may cut it, while this process,
 * its machine or its network stands still; reading on by offset number would then pass over records
 * of the new log without a word. So after every loss of contact that the source reports, the
 * question of the start is asked again (partitions.c), before any record takes effect that may have
 * been fetched since. Records that were fetched before are kept after a silence, because a topic
 * that was made again has another record at the last delivered offset; they are dropped when
 * connections were made again or the partition's leader moved, because an election may have cut the
 * log after that offset. A partition that cannot be asked waits, like one that broke.
 *
 * Once a minute the same is asked without a reason, of many partitions some at a time, about the
 * record that was the last one a minute before: the newest may be of the other log already. An
 * answer that does not come is waited for until the next minute, and reading continues meanwhile.
 * The look comes between two records: one that is half in effect, or held and about to take effect,
 * would end at an offset of the old log in the new one.
 *
 * Owner: ingest thread. */
#include "internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

/* Of topics, from *from on; at most `most`. Leaves in *from the stream after them. */
static uint32_t topics_read(struct fr_ingest *ingest, uint32_t *from, uint32_t most, struct fr_stream **streams)
{
    uint32_t n = 0;
    for (; *from < ingest->n_streams && n < most; ++*from)
        if (fr_stream_is_read(&ingest->streams[*from]))
            streams[n++] = &ingest->streams[*from];
    return n;
}

/* `must`: what is not answered for is not read on. */
static enum fr_status look(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n, bool must,
                           struct fr_err *err)
{
    int64_t *next = fr_alloc(n + 1, sizeof(*next));
    for (uint32_t i = 0; i < n; i++)
        next[i] = streams[i]->next;
    enum fr_status status = n ? fr_streams_look_at_partitions(ingest, streams, n, !must, err) : FR_OK;
    bool asked = status == FR_OK;
    if (status == FR_E_UNAVAILABLE || status == FR_E_DENIED)
        status = FR_OK;
    for (uint32_t i = 0; status == FR_OK && i < n; i++) {
        if (streams[i]->next != next[i])
            fr_stream_renew(ingest, streams[i]);
        else if (must && (!asked || streams[i]->there != FR_OK))
            fr_stream_stop(ingest, streams[i], asked ? streams[i]->why : err->text);
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
                fr_stream_renew(ingest, &ingest->streams[i]);
        return fr_streams_revive(ingest, err);
    }
    struct fr_stream **streams = fr_alloc(ingest->n_streams + 1, sizeof(struct fr_stream *));
    uint32_t from = ingest->topics.first, n = topics_read(ingest, &from, ingest->n_streams, streams);
    enum fr_status status = look(ingest, streams, n, true, err);
    free(streams);
    source->checked(source->self, true);
    return status;
}

enum fr_status fr_streams_look(struct fr_ingest *ingest, uint64_t now_ns, struct fr_err *err)
{
    const struct fr_source *source = &ingest->topics.source;
    char problem[256];
    if (now_ns < ingest->look_ns || ingest->pending != FR_PENDING_NONE || fr_held_replays(ingest))
        return FR_OK;
    if (!source->self || fr_files_left(ingest) || !fr_is_connected(ingest, problem, sizeof(problem)))
        return FR_OK;
    struct fr_stream *streams[FR_LOOK_PARTITIONS];
    uint32_t first = ingest->topics.first;
    uint32_t from = ingest->look_from < first ? first : ingest->look_from, before = from;
    uint32_t rounds = 1 + (ingest->n_streams - first) / FR_LOOK_PARTITIONS;
    uint32_t n = topics_read(ingest, &from, FR_LOOK_PARTITIONS, streams);
    ingest->look_ns = now_ns + (uint64_t)FR_LOOK_MS * 1000000u / rounds;
    ingest->look_from = from < ingest->n_streams ? from : first;
    enum fr_status status = look(ingest, streams, n, false, err);
    if (status == FR_OK && before == first && source->policies)
        status = source->policies(source->self, err);
    source->checked(source->self, false);
    return status;
}
