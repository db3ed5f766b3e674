/* Skipped ranges (--skip): offsets whose records are passed over, because an operator knows that
 * they must not be trained.
 *
 * A requested range must lie ahead of its partition's position, because what took effect cannot be
 * undone. The range is stored with the positions, so it is durable with the first epoch that holds
 * a batch of this start. From then on it applies without being requested again, also in savepoints,
 * and requesting it again is allowed wherever the position is by then. A partition keeps its newest
 * FR_SKIPS_MAX ranges: when another one is added, the oldest that the position has passed is
 * removed. Skipped records are still decoded (assembly.c), because P2 counts their samples; a
 * malformed one becomes a dead letter as always.
 *
 * Owner: ingest thread. The ingest thread changes `known` under the mutex, and the owner loop
 * adopts the ranges from there. */
#include "internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

/* ---- the text of a range ---- */

bool fr_ingest_parse_offset(const char *text, size_t size, int64_t most, int64_t *out)
{
    int64_t number = 0;
    if (size == 0)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9' || number > (most - (text[i] - '0')) / 10)
            return false;
        number = number * 10 + (text[i] - '0');
    }
    *out = number;
    return true;
}

/* Parsed from the right, because the path of `file:<path>` may hold any of the separators. */
bool fr_ingest_skip_parse(const char *text, struct fr_ingest_skip *out, struct fr_err *err)
{
    struct fr_ingest_skip skip = {.topic = ""};
    size_t range = strlen(text), size = range;
    while (range > 0 && text[range - 1] != ':')
        range--;
    size_t partition = range > 0 ? range - 1 : 0;
    while (partition > 0 && text[partition - 1] != ':')
        partition--;
    const char *dash = strchr(text + range, '-');
    int64_t number;
    if (partition < 2 || !dash ||
        !fr_ingest_parse_offset(text + partition, range - 1 - partition, INT32_MAX, &number) ||
        !fr_ingest_parse_offset(text + range, (size_t)(dash - text) - range, INT64_MAX, &skip.range.first) ||
        !fr_ingest_parse_offset(dash + 1, size - (size_t)(dash + 1 - text), INT64_MAX, &skip.range.last)) {
        (void)fr_err_set(err, FR_E_INVALID,
                         "expected topic:partition:first-last, the offsets of the first and of the last record to pass "
                         "over, like samples:0:1200-1399");
        return false;
    }
    if (partition - 1 >= FR_TOPIC_MAX) {
        (void)fr_err_set(err, FR_E_INVALID, "a topic's name has less than %d bytes", FR_TOPIC_MAX);
        return false;
    }
    if (skip.range.last < skip.range.first) {
        (void)fr_err_set(err, FR_E_INVALID, "the last offset is smaller than the first one");
        return false;
    }
    memcpy(skip.topic, text, partition - 1);
    skip.partition = (int32_t)number;
    *out = skip;
    return true;
}

/* ---- the ranges of a stream ---- */

#define SKIP_NAME "--skip %s:%" PRId32 ":%" PRId64 "-%" PRId64
#define SKIP_ARGUMENTS(skip) (skip)->topic, (skip)->partition, (skip)->range.first, (skip)->range.last

static bool is_known(const struct fr_ingest *ingest, const struct fr_ingest_skip *skip)
{
    const struct fr_positions *known = &ingest->shared.known;
    for (uint32_t i = 0; i < known->count; i++) {
        const struct fr_partition_position *p = &known->partitions[i];
        for (uint32_t k = 0; k < p->n_skips; k++)
            if (p->partition == skip->partition && p->skips[k].first <= skip->range.first &&
                skip->range.last <= p->skips[k].last && strcmp(p->topic, skip->topic) == 0)
                return true;
    }
    return false;
}

static enum fr_status find(struct fr_ingest *ingest, const struct fr_ingest_skip *skip, struct fr_stream **out,
                           struct fr_err *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ingest->n_streams; i++) {
        const struct fr_partition_position *p = fr_stream_position(ingest, &ingest->streams[i]);
        if (strcmp(p->topic, skip->topic) != 0)
            continue;
        n++;
        if (p->partition == skip->partition) {
            *out = &ingest->streams[i];
            return FR_OK;
        }
    }
    if (n == 0)
        return fr_err_set(err, FR_E_INVALID,
                          SKIP_NAME ": the configuration reads no topic %s; it must be one of ingest.topics, or "
                                    "file:<path> with a path of ingest.files",
                          SKIP_ARGUMENTS(skip), skip->topic);
    return fr_err_set(err, FR_E_INVALID,
                      SKIP_NAME ": topic %s has %" PRIu32 " partition%s, which count from 0: there is no %" PRId32,
                      SKIP_ARGUMENTS(skip), skip->topic, n, n == 1 ? "" : "s", skip->partition);
}

/* Checks that the range is ahead of everything that took effect and overlaps no other range. */
static enum fr_status check_ahead(const struct fr_stream *stream, const struct fr_partition_position *p,
                                  const struct fr_ingest_skip *skip, struct fr_err *err)
{
    int64_t ahead = stream->next + (stream->item > 0);
    if (skip->range.first < ahead)
        return fr_err_set(err, FR_E_MISMATCH,
                          SKIP_NAME ": what lies before offset %" PRId64
                                    " has taken effect and cannot be passed over any more%s; give a range that begins "
                                    "there or later, or go back to a savepoint of before it (--restore)",
                          SKIP_ARGUMENTS(skip), ahead, stream->item > 0 ? " (of the last record a part has)" : "");
    for (uint32_t i = 0; i < p->n_skips; i++)
        if (skip->range.first <= p->skips[i].last && p->skips[i].first <= skip->range.last)
            return fr_err_set(err, FR_E_MISMATCH,
                              SKIP_NAME ": overlaps the range %" PRId64 "-%" PRId64
                                        ", which is recorded; give what lies outside of it",
                              SKIP_ARGUMENTS(skip), p->skips[i].first, p->skips[i].last);
    return FR_OK;
}

/* Makes room for one more range by removing the oldest that the position has passed. */
static bool make_room(struct fr_partition_position *p, int64_t next)
{
    if (p->n_skips < FR_SKIPS_MAX)
        return true;
    for (uint32_t i = 0; i < p->n_skips; i++)
        if (p->skips[i].last < next) {
            memmove(&p->skips[i], &p->skips[i + 1], (--p->n_skips - i) * sizeof(p->skips[0]));
            return true;
        }
    return false;
}

static enum fr_status add_range(struct fr_ingest *ingest, struct fr_stream *stream, const struct fr_ingest_skip *skip,
                                struct fr_err *err)
{
    struct fr_partition_position *p = &ingest->shared.known.partitions[stream->stream_index];
    enum fr_status status = check_ahead(stream, p, skip, err);
    if (status != FR_OK)
        return status;
    pthread_mutex_lock(&ingest->shared.mutex);
    bool room = make_room(p, stream->next);
    if (room) {
        p->skips[p->n_skips++] = skip->range;
        ingest->shared.skips_due = true;
    }
    pthread_mutex_unlock(&ingest->shared.mutex);
    if (!room)
        return fr_err_set(err, FR_E_INVALID,
                          SKIP_NAME ": %d ranges lie ahead of the position of this partition, and no more are kept; "
                                    "request the range again when the position has passed one of them",
                          SKIP_ARGUMENTS(skip), FR_SKIPS_MAX);
    if (stream->next >= 0)
        fr_stream_moved(ingest, stream); /* the range is stored even if no record comes for long */
    bool beyond = stream->high >= 0 && skip->range.last >= stream->high;
    fr_log(beyond ? FR_LOG_WARN : FR_LOG_INFO, "ingest", "skip",
           "topic=%s partition=%" PRId32 " first=%" PRId64 " last=%" PRId64 " next=%" PRId64 " high=%" PRId64
           " note=\"records are decoded and counted, not trained%s\"",
           SKIP_ARGUMENTS(skip), stream->next, stream->high,
           beyond ? "; the range reaches beyond the end of the log: what comes there is passed over too" : "");
    return FR_OK;
}

enum fr_status fr_streams_skip(struct fr_ingest *ingest, struct fr_err *err)
{
    for (size_t i = 0; i < ingest->n_skips; i++) {
        struct fr_stream *stream = NULL;
        if (is_known(ingest, &ingest->skips[i]))
            continue;
        enum fr_status status = find(ingest, &ingest->skips[i], &stream, err);
        if (status != FR_OK)
            return status;
        FR_CHECK(stream);
        if (!fr_stream_is_ours(ingest, stream))
            continue;
        status = add_range(ingest, stream, &ingest->skips[i], err);
        if (status != FR_OK)
            return status;
    }
    return FR_OK;
}

void fr_stream_forget_skips(struct fr_ingest *ingest, const struct fr_stream *stream)
{
    struct fr_partition_position *p = &ingest->shared.known.partitions[stream->stream_index];
    if (p->n_skips == 0)
        return;
    pthread_mutex_lock(&ingest->shared.mutex);
    p->n_skips = 0;
    ingest->shared.skips_due = true;
    pthread_mutex_unlock(&ingest->shared.mutex);
    fr_log(FR_LOG_WARN, "ingest", "skips_forgotten",
           "topic=%s partition=%" PRId32 " note=\"the topic was created again: its offsets are other records\"",
           p->topic, p->partition);
}
