/* Partitions of topics before they are read: does the log still hold what our positions speak of
 * (docs/architecture.md, "Recovery"; P8)?
 *
 * The position must lie in [low, high] and the record that was delivered last must have the
 * timestamp and CRC32C that were noted (the fingerprint): same name and a plausible offset do not
 * prove the same log, a topic may have been deleted and created again. librdkafka 2.0.2 checks
 * neither (no KIP-320 truncation detection, nor later for an assigned start), so this does, at the
 * start, whenever reading a partition broke, and while it is read (log_identity.c). A partition
 * that begins after records which it did not deliver takes the fingerprint of the last of these.
 * Losses and a log created again go by `on_loss`; another cluster always stops. All partitions are
 * asked for together, and each is judged by itself: one that cannot be asked waits alone.
 *
 * Owner: ingest thread. It does not wait between tries (the caller backs off). */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

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
    /* what follows is another log, or has a hole: nothing to compare with */
    stream->mark = stream->anchor = (struct fr_mark){.offset = -1};
    stream->lost += lost;
    if (damage != BEGINNING_GONE) {
        stream->counted = to;
        fr_stream_forget_skips(ingest, stream);
    }
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

/* What is known of one partition. */
struct look {
    struct fr_stream *stream;
    int64_t low;
    /* where `start` begins, a time or the stable end; -1: no record is so late, or none was asked
     * for */
    int64_t at;
    bool reading, anchored;
};

static struct fr_mark mark_of(const struct look *look)
{
    return look->anchored ? look->stream->anchor : look->stream->mark;
}

/* The record is gone while its offset still lies inside the log. Said once of each; that of an
 * anchor was delivered a while ago. */
static void tell_unverified(struct fr_ingest *ingest, const struct look *look)
{
    struct fr_stream *stream = look->stream;
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    if (look->anchored || stream->unverified == stream->mark.offset)
        return;
    stream->unverified = stream->mark.offset;
    fr_log(FR_LOG_WARN, "ingest", "unverified",
           "topic=%s partition=%" PRId32 " offset=%" PRId64
           " reason=\"the last delivered record is no longer in the log\" note=\"retention deleted it, and reading "
           "continues; if the topic was deleted and created again, stop the daemon and see ingest.on_loss\"",
           p->topic, p->partition, stream->mark.offset);
}

static enum fr_status compare(struct fr_ingest *ingest, const struct look *look, const struct fr_source_answer *mark,
                              struct fr_err *err)
{
    struct fr_stream *stream = look->stream;
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    struct fr_mark noted = mark_of(look);
    if (mark->status == FR_EOF) {
        tell_unverified(ingest, look);
        return FR_OK;
    }
    if (mark->crc32c == noted.crc32c && mark->timestamp_ms == noted.timestamp_ms)
        return FR_OK;
    (void)fr_err_set(
        err, FR_E_MISMATCH,
        "%s/%" PRId32 ": the record at offset %" PRId64 " is not the one that was trained (timestamp %" PRId64
        ", CRC32C %08" PRIx32 "; noted %" PRId64 ", %08" PRIx32
        "): the topic was created again under the same name, or an unclean leader election cut its log; use the "
        "right topic or another state_dir, or continue with this log by ingest.on_loss: earliest or latest",
        p->topic, p->partition, noted.offset, mark->timestamp_ms, mark->crc32c, noted.timestamp_ms, noted.crc32c);
    return lose(ingest, stream, look->low, OTHER_RECORDS, err);
}

static void first_offset(struct fr_ingest *ingest, const struct look *look)
{
    struct fr_stream *stream = look->stream;
    if (stream->added || ingest->conf->ingest.start == FR_START_EARLIEST)
        stream->next = look->low;
    else if (look->at < 0 || look->at > stream->high) /* none so late */
        stream->next = stream->high;
    else
        stream->next = look->at < look->low ? look->low : look->at;
}

static void missing(struct fr_ingest *ingest, struct fr_stream *stream, const struct fr_source_answer *answer,
                    const char *what)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    /* a broker that starts may not know its topics yet: the second look counts */
    bool gone = answer->status == FR_E_NOT_FOUND && stream->wait_ms > 0;
    stream->there = gone || answer->status != FR_E_NOT_FOUND ? answer->status : FR_E_UNAVAILABLE;
    if (gone) {
        snprintf(stream->why, sizeof(stream->why),
                 "topic %.60s is gone (deleted?), and is looked for again. If it is not needed, take it out of "
                 "ingest.topics and restart. If it is created again, that is a new log, and the daemon ends with "
                 "exit 3 unless ingest.on_loss is earliest or latest",
                 p->topic);
        return;
    }
    snprintf(stream->why, sizeof(stream->why), "%.60s/%" PRId32 ": no %s: %.60s", p->topic, p->partition, what,
             answer->why);
}

/* One question about all that are there so far: those without an answer drop out. */
static enum fr_status ask(struct fr_ingest *ingest, int64_t when, struct fr_source_answer *answers, struct look *looks,
                          uint32_t *n, struct fr_err *err)
{
    const struct fr_source *source = &ingest->topics.source;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++)
        answers[i] = (struct fr_source_answer){.partition = looks[i].stream->partition};
    enum fr_status status = *n ? source->offsets(source->self, when, answers, *n, err) : FR_OK;
    for (uint32_t i = 0; status == FR_OK && i < *n; i++) {
        struct look *look = &looks[i];
        if (answers[i].status < 0) {
            missing(ingest, look->stream, &answers[i], "offsets");
            continue;
        }
        if (when == FR_SOURCE_EARLIEST)
            look->low = answers[i].offset;
        else if (when == FR_SOURCE_LATEST)
            look->stream->high = answers[i].offset;
        else /* a time, or STABLE */
            look->at = answers[i].status == FR_OK ? answers[i].offset : -1;
        looks[kept++] = *look;
    }
    *n = status == FR_OK ? kept : 0;
    return status;
}

/* Of a partition that is being read, retention may have taken records that were fetched before: a
 * hole is found, and reported, by reading. */
static bool is_in_range(const struct look *look)
{
    const struct fr_stream *stream = look->stream;
    return (look->reading || stream->next >= look->low) && stream->next <= stream->high;
}

static bool asks_mark(const struct look *look)
{
    int64_t offset = mark_of(look).offset;
    return offset >= 0 && is_in_range(look) && offset >= look->low && offset < look->stream->high;
}

/* Fingerprints of all that have one. */
static enum fr_status ask_marks(struct fr_ingest *ingest, struct fr_source_answer *answers, const struct look *looks,
                                uint32_t n, struct fr_err *err)
{
    const struct fr_source *source = &ingest->topics.source;
    uint32_t asked = 0;
    for (uint32_t i = 0; i < n; i++)
        if (asks_mark(&looks[i]))
            answers[asked++] = (struct fr_source_answer){.partition = looks[i].stream->partition,
                                                         .offset = mark_of(&looks[i]).offset,
                                                         .in_passing = looks[i].anchored};
    return asked ? source->marks(source->self, answers, asked, err) : FR_OK;
}

/* `mark` is of this stream, or NULL: none was asked for. */
static enum fr_status judge(struct fr_ingest *ingest, const struct look *look, const struct fr_source_answer *mark,
                            struct fr_err *err)
{
    static const struct fr_source_answer gone = {.status = FR_EOF};
    struct fr_stream *stream = look->stream;
    enum fr_status status = FR_OK;
    if (mark && mark->status < 0) {
        missing(ingest, stream, mark, "last delivered record");
        return FR_OK;
    }
    if (stream->next < 0)
        first_offset(ingest, look);
    else if (!is_in_range(look))
        status = check_range(ingest, stream, look->low, err);
    else if (mark_of(look).offset >= 0)
        status = compare(ingest, look, mark ? mark : &gone, err);
    if (look->anchored || stream->anchor.offset < 0)
        stream->anchor = stream->mark;
    stream->from = stream->next;
    stream->there = FR_OK;
    if (status == FR_OK)
        fr_stream_resolve(ingest, stream);
    return status;
}

/* Records of a transaction that is open are written before the start and take effect after it:
 * `latest` does not pass over them. */
static int64_t start_of(const struct fr_conf *conf)
{
    return conf->ingest.start == FR_START_TIME ? conf->ingest.start_ms : FR_SOURCE_STABLE;
}

/* Where reading begins after records that were not delivered (start: latest, on_loss), the record
 * before distinguishes this log from another; nothing does when that is a marker, or when there is
 * no answer. */
static enum fr_status take_marks(struct fr_ingest *ingest, struct fr_source_answer *answers, const struct look *looks,
                                 uint32_t n, struct fr_err *err)
{
    const struct fr_source *source = &ingest->topics.source;
    struct fr_stream **streams = fr_alloc(n + 1, sizeof(struct fr_stream *));
    uint32_t asked = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct fr_stream *stream = looks[i].stream;
        if (stream->there != FR_OK || stream->mark.offset >= 0 || stream->next <= looks[i].low)
            continue;
        answers[asked] = (struct fr_source_answer){.partition = stream->partition, .offset = stream->next - 1};
        streams[asked++] = stream;
    }
    enum fr_status status = asked ? source->marks(source->self, answers, asked, err) : FR_OK;
    for (uint32_t i = 0; status == FR_OK && i < asked; i++)
        if (answers[i].status == FR_OK)
            streams[i]->mark = streams[i]->anchor =
                (struct fr_mark){answers[i].offset, answers[i].timestamp_ms, answers[i].crc32c};
    free(streams);
    return status;
}

/* Where reading begins after records that were not delivered (start, on_loss), the log's first
 * records may be those of a transaction that is still open: then the source gives neither records
 * nor an end. Without an answer nothing is known of it. */
static void take_transactions(struct fr_ingest *ingest, struct fr_source_answer *answers, const struct look *looks,
                              uint32_t n)
{
    const struct fr_source *source = &ingest->topics.source;
    struct fr_err unanswered = {0};
    uint32_t asked = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct fr_stream *stream = looks[i].stream;
        stream->held_back &= looks[i].reading;
        if (!looks[i].reading && stream->there == FR_OK && stream->mark.offset < 0 && stream->next > 0)
            answers[asked++] = (struct fr_source_answer){.partition = stream->partition};
    }
    if (asked == 0 || source->offsets(source->self, FR_SOURCE_STABLE, answers, asked, &unanswered) != FR_OK)
        return;
    for (uint32_t i = 0, k = 0; i < n && k < asked; i++) {
        struct fr_stream *stream = looks[i].stream;
        if (stream->partition != answers[k].partition)
            continue;
        stream->held_back = answers[k].status == FR_OK && answers[k].offset < stream->next;
        k++;
    }
}

static enum fr_status check(struct fr_ingest *ingest, struct look *looks, uint32_t n, struct fr_err *err)
{
    struct fr_source_answer *answers = fr_alloc(n, sizeof(*answers));
    enum fr_status status = ask(ingest, FR_SOURCE_EARLIEST, answers, looks, &n, err);
    if (status == FR_OK)
        status = ask(ingest, FR_SOURCE_LATEST, answers, looks, &n, err);
    bool begins = false;
    for (uint32_t i = 0; i < n; i++)
        begins |= looks[i].stream->next < 0 && !looks[i].stream->added;
    if (status == FR_OK && begins && ingest->conf->ingest.start != FR_START_EARLIEST)
        status = ask(ingest, start_of(ingest->conf), answers, looks, &n, err);
    if (status == FR_OK)
        status = ask_marks(ingest, answers, looks, n, err);
    for (uint32_t i = 0, asked = 0; status == FR_OK && i < n; i++) {
        bool marked = asks_mark(&looks[i]);
        status = judge(ingest, &looks[i], marked ? &answers[asked] : NULL, err);
        asked += marked;
    }
    if (status == FR_OK)
        take_transactions(ingest, answers, looks, n);
    if (status == FR_OK)
        status = take_marks(ingest, answers, looks, n, err);
    free(answers);
    return status;
}

enum fr_status fr_streams_check_partitions(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n,
                                           struct fr_err *err)
{
    struct look *looks = fr_alloc(n, sizeof(*looks));
    for (uint32_t i = 0; i < n; i++)
        looks[i] = (struct look){.stream = streams[i], .at = -1};
    enum fr_status status = check(ingest, looks, n, err);
    free(looks);
    return status;
}

enum fr_status fr_streams_look_at_partitions(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n,
                                             bool anchored, struct fr_err *err)
{
    struct look *looks = fr_alloc(n, sizeof(*looks));
    for (uint32_t i = 0; i < n; i++)
        looks[i] = (struct look){.stream = streams[i], .at = -1, .reading = true, .anchored = anchored};
    enum fr_status status = check(ingest, looks, n, err);
    free(looks);
    return status;
}
