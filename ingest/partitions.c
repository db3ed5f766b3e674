/* The check of topics' partitions: does the log still hold what the positions refer to
 * (docs/architecture.md, "Recovery"; P8)?
 *
 * The position must lie in [low, high], and the record that was delivered last must have the
 * timestamp and CRC32C that were noted (the fingerprint). The same name and a plausible offset do
 * not prove that the log is the same, because a topic may have been deleted and created again.
 * librdkafka 2.0.2 checks neither (it has no KIP-320 truncation detection, and later versions have
 * none for an assigned start), so it is checked here: at the start, after reading a partition
 * failed, and while it is read (log_identity.c). A partition that begins after records which it did
 * not deliver gets the fingerprint of the last of these. `on_loss` decides about losses and about a
 * log that was created again; another cluster always stops the service. All partitions are asked
 * for together, and each is judged by itself: one that cannot be asked waits alone.
 *
 * Owner: ingest thread. There is no wait between tries here; the caller backs off. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

enum damage { BEGINNING_GONE, END_GONE, OTHER_RECORDS };

/* Applies `on_loss`: `stop` leaves the text and status in err; `earliest` and `latest` begin
 * again in what the log holds now. A record is lost if it is known to have been in a log and is
 * never read. With `latest` these are all records that another log holds now, with `earliest`
 * none of them. */
static enum fr_status apply_on_loss(struct fr_ingest *ingest, struct fr_stream *stream, int64_t low, enum damage damage,
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
    /* the records that follow are of another log, or come after a hole, so there is no record to
     * compare with */
    stream->mark = stream->anchor = (struct fr_mark){.offset = -1};
    stream->lost += lost;
    if (damage != BEGINNING_GONE) {
        stream->counted = to;
        fr_stream_forget_skips(ingest, stream);
    }
    fr_stream_moved(ingest, stream);
    return FR_OK;
}

#define ON_LOSS_REMEDY "ingest.on_loss: earliest or latest continues without them, another state_dir starts over"

static enum fr_status check_range(struct fr_ingest *ingest, struct fr_stream *stream, int64_t low, struct fr_err *err)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    if (stream->next < low) {
        (void)fr_err_set(err, FR_E_LOST,
                         "%s/%" PRId32 ": %" PRId64
                         " records were deleted before they were read (retention): the next offset is %" PRId64
                         ", the log holds [%" PRId64 ", %" PRId64 "); " ON_LOSS_REMEDY,
                         p->topic, p->partition, low - stream->next, stream->next, low, stream->high);
        return apply_on_loss(ingest, stream, low, BEGINNING_GONE, err);
    }
    (void)fr_err_set(err, FR_E_LOST,
                     "%s/%" PRId32 ": %" PRId64
                     " records are missing at its end (truncated, or the topic was created again): the next offset is "
                     "%" PRId64 ", the log holds [%" PRId64 ", %" PRId64 "); " ON_LOSS_REMEDY,
                     p->topic, p->partition, stream->next - stream->high, stream->next, low, stream->high);
    return apply_on_loss(ingest, stream, low, END_GONE, err);
}

/* The check of one partition, as far as it has got. */
struct check {
    struct fr_stream *stream;
    int64_t low; /* first offset of the log */
    /* offset that `start` names (by its time, or the stable end); -1: no record is as late as
     * that time, or no offset was asked for */
    int64_t at;
    bool reading;  /* the partition is read meanwhile */
    bool anchored; /* the anchor is compared instead of the mark */
};

static struct fr_mark mark_of(const struct check *check)
{
    return check->anchored ? check->stream->anchor : check->stream->mark;
}

/* The record is gone while its offset still lies inside the log. Each mark is logged once; an
 * anchor is not logged, because its record was delivered a minute or more before. */
static void log_unverified(struct fr_ingest *ingest, const struct check *check)
{
    struct fr_stream *stream = check->stream;
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    if (check->anchored || stream->unverified == stream->mark.offset)
        return;
    stream->unverified = stream->mark.offset;
    fr_log(FR_LOG_WARN, "ingest", "unverified",
           "topic=%s partition=%" PRId32 " offset=%" PRId64
           " reason=\"the last delivered record is no longer in the log\" note=\"retention deleted it, and reading "
           "continues; if the topic was deleted and created again, stop the daemon and see ingest.on_loss\"",
           p->topic, p->partition, stream->mark.offset);
}

static enum fr_status compare(struct fr_ingest *ingest, const struct check *check, const struct fr_source_answer *mark,
                              struct fr_err *err)
{
    struct fr_stream *stream = check->stream;
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    struct fr_mark noted = mark_of(check);
    if (mark->status == FR_EOF) {
        log_unverified(ingest, check);
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
    return apply_on_loss(ingest, stream, check->low, OTHER_RECORDS, err);
}

static void first_offset(struct fr_ingest *ingest, const struct check *check)
{
    struct fr_stream *stream = check->stream;
    if (stream->added || ingest->conf->ingest.start == FR_START_EARLIEST)
        stream->next = check->low;
    /* no record is as late as the time of `start` */
    else if (check->at < 0 || check->at > stream->high)
        stream->next = stream->high;
    else
        stream->next = check->at < check->low ? check->low : check->at;
}

static void note_unanswered(struct fr_ingest *ingest, struct fr_stream *stream, const struct fr_source_answer *answer,
                            const char *what)
{
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    const struct fr_stream_transition *next = fr_stream_transition(stream->state, FR_STREAM_TOPIC_MISSING);
    stream->check.answer = answer->status;
    if (answer->status == FR_E_NOT_FOUND && next && next->to == FR_STREAM_GONE)
        snprintf(stream->check.why, sizeof(stream->check.why),
                 "topic %.60s is gone (deleted?), and is looked for again. If it is not needed, take it out of "
                 "ingest.topics and restart. If it is created again, that is a new log, and the daemon ends with "
                 "exit 3 unless ingest.on_loss is earliest or latest",
                 p->topic);
    else
        snprintf(stream->check.why, sizeof(stream->check.why), "%.60s/%" PRId32 ": no %s: %.60s", p->topic,
                 p->partition, what, answer->why);
}

/* Asks one question about all partitions of the check; those without an answer leave the check. */
static enum fr_status ask(struct fr_ingest *ingest, int64_t when, struct fr_source_answer *answers,
                          struct check *checks, uint32_t *n, struct fr_err *err)
{
    const struct fr_source *source = &ingest->topics.source;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++)
        answers[i] = (struct fr_source_answer){.partition = checks[i].stream->partition};
    enum fr_status status = *n ? source->offsets(source->self, when, answers, *n, err) : FR_OK;
    for (uint32_t i = 0; status == FR_OK && i < *n; i++) {
        struct check *check = &checks[i];
        if (answers[i].status < 0) {
            note_unanswered(ingest, check->stream, &answers[i], "offsets");
            continue;
        }
        if (when == FR_SOURCE_EARLIEST)
            check->low = answers[i].offset;
        else if (when == FR_SOURCE_LATEST)
            check->stream->high = answers[i].offset;
        else /* `start` is a time, or STABLE */
            check->at = answers[i].status == FR_OK ? answers[i].offset : -1;
        checks[kept++] = *check;
    }
    *n = status == FR_OK ? kept : 0;
    return status;
}

/* Whether the position lies within the log. While a partition is being read only the end of the
 * log counts, because retention may have deleted records after they were fetched; reading finds
 * and reports a hole. */
static bool is_in_range(const struct check *check)
{
    const struct fr_stream *stream = check->stream;
    return (check->reading || stream->next >= check->low) && stream->next <= stream->high;
}

static bool asks_mark(const struct check *check)
{
    int64_t offset = mark_of(check).offset;
    return offset >= 0 && is_in_range(check) && offset >= check->low && offset < check->stream->high;
}

/* Asks for the fingerprints of all partitions that have a mark. */
static enum fr_status ask_marks(struct fr_ingest *ingest, struct fr_source_answer *answers, const struct check *checks,
                                uint32_t n, struct fr_err *err)
{
    const struct fr_source *source = &ingest->topics.source;
    uint32_t asked = 0;
    for (uint32_t i = 0; i < n; i++)
        if (asks_mark(&checks[i]))
            answers[asked++] = (struct fr_source_answer){.partition = checks[i].stream->partition,
                                                         .offset = mark_of(&checks[i]).offset,
                                                         .in_passing = checks[i].anchored};
    return asked ? source->marks(source->self, answers, asked, err) : FR_OK;
}

/* Judges one partition. `mark`: the answer about its mark; NULL: none was asked for. */
static enum fr_status judge(struct fr_ingest *ingest, const struct check *check, const struct fr_source_answer *mark,
                            struct fr_err *err)
{
    static const struct fr_source_answer gone = {.status = FR_EOF};
    struct fr_stream *stream = check->stream;
    enum fr_status status = FR_OK;
    if (mark && mark->status < 0) {
        note_unanswered(ingest, stream, mark, "last delivered record");
        return FR_OK;
    }
    if (stream->next < 0)
        first_offset(ingest, check);
    else if (!is_in_range(check))
        status = check_range(ingest, stream, check->low, err);
    else if (mark_of(check).offset >= 0)
        status = compare(ingest, check, mark ? mark : &gone, err);
    if (check->anchored || stream->anchor.offset < 0)
        stream->anchor = stream->mark;
    stream->check.from = stream->next;
    stream->check.answer = FR_OK;
    if (status == FR_OK)
        fr_stream_resolve(ingest, stream);
    return status;
}

/* Records of an open transaction are written before the start and take effect after it, so `latest`
 * does not pass over them. */
static int64_t start_of(const struct fr_conf *conf)
{
    return conf->ingest.start == FR_START_TIME ? conf->ingest.start_ms : FR_SOURCE_STABLE;
}

/* If reading begins after records that were not delivered (start: latest, on_loss), the record
 * before `next` becomes the mark. There is none if a marker is there, or without an answer. */
static enum fr_status adopt_marks(struct fr_ingest *ingest, struct fr_source_answer *answers,
                                  const struct check *checks, uint32_t n, struct fr_err *err)
{
    const struct fr_source *source = &ingest->topics.source;
    struct fr_stream **streams = fr_alloc(n + 1, sizeof(struct fr_stream *));
    uint32_t asked = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct fr_stream *stream = checks[i].stream;
        if (stream->check.answer != FR_OK || stream->mark.offset >= 0 || stream->next <= checks[i].low)
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

/* If reading begins after records that were not delivered (start, on_loss), it may begin inside a
 * transaction that is still open: then the source gives neither records nor an end. Without an
 * answer no transaction is assumed. */
static void find_transactions(struct fr_ingest *ingest, struct fr_source_answer *answers, const struct check *checks,
                              uint32_t n)
{
    const struct fr_source *source = &ingest->topics.source;
    struct fr_err unanswered = {0};
    uint32_t asked = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct fr_stream *stream = checks[i].stream;
        stream->check.in_transaction &= checks[i].reading;
        if (!checks[i].reading && stream->check.answer == FR_OK && stream->mark.offset < 0 && stream->next > 0)
            answers[asked++] = (struct fr_source_answer){.partition = stream->partition};
    }
    if (asked == 0 || source->offsets(source->self, FR_SOURCE_STABLE, answers, asked, &unanswered) != FR_OK)
        return;
    for (uint32_t i = 0, k = 0; i < n && k < asked; i++) {
        struct fr_stream *stream = checks[i].stream;
        if (stream->partition != answers[k].partition)
            continue;
        stream->check.in_transaction = answers[k].status == FR_OK && answers[k].offset < stream->next;
        k++;
    }
}

static enum fr_status check_all(struct fr_ingest *ingest, struct check *checks, uint32_t n, struct fr_err *err)
{
    struct fr_source_answer *answers = fr_alloc(n, sizeof(*answers));
    enum fr_status status = ask(ingest, FR_SOURCE_EARLIEST, answers, checks, &n, err);
    if (status == FR_OK)
        status = ask(ingest, FR_SOURCE_LATEST, answers, checks, &n, err);
    bool begins = false;
    for (uint32_t i = 0; i < n; i++)
        begins |= checks[i].stream->next < 0 && !checks[i].stream->added;
    if (status == FR_OK && begins && ingest->conf->ingest.start != FR_START_EARLIEST)
        status = ask(ingest, start_of(ingest->conf), answers, checks, &n, err);
    if (status == FR_OK)
        status = ask_marks(ingest, answers, checks, n, err);
    for (uint32_t i = 0, asked = 0; status == FR_OK && i < n; i++) {
        bool marked = asks_mark(&checks[i]);
        status = judge(ingest, &checks[i], marked ? &answers[asked] : NULL, err);
        asked += marked;
    }
    if (status == FR_OK)
        find_transactions(ingest, answers, checks, n);
    if (status == FR_OK)
        status = adopt_marks(ingest, answers, checks, n, err);
    free(answers);
    return status;
}

static enum fr_status check_streams(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n, struct check kind,
                                    struct fr_err *err)
{
    struct check *checks = fr_alloc(n, sizeof(*checks));
    for (uint32_t i = 0; i < n; i++) {
        checks[i] = kind;
        checks[i].stream = streams[i];
    }
    enum fr_status status = check_all(ingest, checks, n, err);
    free(checks);
    return status;
}

enum fr_status fr_streams_check_partitions(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n,
                                           struct fr_err *err)
{
    return check_streams(ingest, streams, n, (struct check){.at = -1}, err);
}

enum fr_status fr_streams_check_read_partitions(struct fr_ingest *ingest, struct fr_stream **streams, uint32_t n,
                                                bool anchored, struct fr_err *err)
{
    return check_streams(ingest, streams, n, (struct check){.at = -1, .reading = true, .anchored = anchored}, err);
}
