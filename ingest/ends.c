/* End offsets of a bounded run (--until end, lockstep): fixed once, before the first record is
 * read, so that every restart stops at the same place.
 *
 * Text form: "partitions <n>\n", then one "topic partition end\n" line for each partition. The
 * first line makes it possible to refuse a text that was cut at the end of a line; older texts lack
 * it. A rank whose lanes have no partition fixes the end of none. The end of a file (`file:<path> 0
 * bytes`) is its size in bytes: a file is read whole and must not have changed since. A partition
 * that the text does not name was added later and is not read. With --until TIME the end is the
 * first record with that Kafka timestamp or a later one.
 *
 * Owner: ingest thread. */
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "files.h"

#define RESTORE_IT "restore the file from a backup, or use another state_dir"

static const char count_word[] = "partitions ";

static enum fr_status parse_line(struct fr_ingest *ingest, const char *line, struct fr_err *err)
{
    char topic[FR_TOPIC_MAX];
    int64_t partition, end;
    /* searched from the end of the line, because a path may hold spaces */
    const char *second = strrchr(line, ' '), *first = second;
    while (first && first > line && *--first != ' ')
        continue;
    size_t size = first ? (size_t)(first - line) : 0;
    if (!second || size == 0 || size >= sizeof(topic) ||
        !fr_ingest_parse_offset(first + 1, (size_t)(second - first - 1), INT32_MAX, &partition) ||
        !fr_ingest_parse_offset(second + 1, strlen(second + 1), INT64_MAX, &end))
        return fr_err_set(err, FR_E_CORRUPT,
                          "lockstep.end of the state directory: \"%.80s\" is not \"topic partition end\"; " RESTORE_IT,
                          line);
    memcpy(topic, line, size);
    topic[size] = 0;
    if (strchr(topic, ' ') && !fr_is_file_topic(topic))
        return fr_err_set(err, FR_E_CORRUPT,
                          "lockstep.end of the state directory: \"%.80s\" names no topic; " RESTORE_IT, line);
    for (uint32_t i = 0; i < ingest->n_streams; i++) {
        const struct fr_partition_position *p = fr_stream_position(ingest, &ingest->streams[i]);
        if (p->partition != partition || strcmp(p->topic, topic) != 0)
            continue;
        ingest->streams[i].fixed_end = end;
        return FR_OK;
    }
    return fr_err_set(err, FR_E_MISMATCH,
                      "lockstep.end of the state directory names partition %" PRId64
                      " of topic %s, which is not there: the topic was created again, or ingest.topics or ingest.files "
                      "changed within the run; use another state_dir",
                      partition, topic);
}

/* Reads the number of partitions; -1: the text has no such number, because an older version
 * wrote it. */
static int64_t partitions_of(char **text)
{
    int64_t n = -1;
    const char *number = *text + sizeof(count_word) - 1;
    size_t size = strncmp(*text, count_word, sizeof(count_word) - 1) == 0 ? strcspn(number, "\n") : 0;
    if (size && number[size] == '\n' && fr_ingest_parse_offset(number, size, UINT32_MAX, &n))
        *text += sizeof(count_word) + size;
    return n;
}

static enum fr_status parse(struct fr_ingest *ingest, struct fr_err *err)
{
    for (uint32_t i = 0; i < ingest->n_streams; i++)
        ingest->streams[i].fixed_end = -1;
    enum fr_status status = FR_OK;
    char *line = ingest->end_offsets;
    int64_t n = partitions_of(&line), found = 0;
    for (; status == FR_OK && *line; found++) {
        char *stop = strchr(line, '\n');
        if (!stop)
            return fr_err_set(err, FR_E_CORRUPT,
                              "lockstep.end of the state directory: the last line is cut off; " RESTORE_IT);
        *stop = 0;
        status = parse_line(ingest, line, err);
        *stop = '\n';
        line = stop + 1;
    }
    if (status == FR_OK && (n >= 0 ? found != n : found == 0))
        return fr_err_set(err, FR_E_CORRUPT,
                          "lockstep.end of the state directory is cut off: it names %" PRId64
                          " of the run's partitions; " RESTORE_IT,
                          found);
    return status;
}

enum fr_status fr_ends_ask_partition(struct fr_ingest *ingest, const struct fr_stream *stream, int64_t *end,
                                     struct fr_err *err)
{
    const struct fr_source *source = &stream->feed->source;
    const struct fr_partition_position *p = fr_stream_position(ingest, stream);
    struct fr_source_answer at = {.partition = stream->partition, .status = FR_EOF};
    if (ingest->until_ms > 0) {
        enum fr_status status = source->offsets(source->self, ingest->until_ms, &at, 1, err);
        if (status != FR_OK)
            return status;
    }
    if (at.status < 0)
        return fr_err_set(err, at.status == FR_E_NOT_FOUND ? FR_E_UNAVAILABLE : at.status,
                          "%s/%" PRId32 ": no offset by time: %s", p->topic, p->partition, at.why);
    *end = at.status == FR_OK && at.offset < stream->high ? at.offset : stream->high;
    return FR_OK;
}

/* A partition that the ends do not name was added later and is not read. */
enum fr_status fr_ends_apply_partition(struct fr_ingest *ingest, struct fr_stream *stream, struct fr_err *err)
{
    (void)ingest;
    (void)err;
    stream->end = stream->fixed_end < 0 ? 0 : stream->fixed_end;
    return FR_OK;
}

static enum fr_status ask(struct fr_ingest *ingest, struct fr_err *err)
{
    struct fr_buffer text = {0};
    enum fr_status status = FR_OK;
    uint32_t n = 0;
    for (uint32_t i = 0; i < ingest->n_streams; i++)
        n += fr_stream_is_ours(ingest, &ingest->streams[i]);
    fr_buffer_printf(&text, "%s%" PRIu32 "\n", count_word, n);
    for (uint32_t i = 0; status == FR_OK && i < ingest->n_streams; i++) {
        struct fr_stream *stream = &ingest->streams[i];
        if (!fr_stream_is_ours(ingest, stream))
            continue;
        const struct fr_partition_position *p = fr_stream_position(ingest, stream);
        status = stream->feed->ask_end(ingest, stream, &stream->fixed_end, err);
        fr_buffer_printf(&text, "%s %" PRId32 " %" PRId64 "\n", p->topic, p->partition, stream->fixed_end);
    }
    fr_put_u8(&text, 0);
    if (status == FR_OK && ingest->fix_end)
        status = ingest->fix_end(ingest->fix_end_self, (const char *)text.data, text.size - 1, err);
    if (status == FR_OK)
        /* a start that is repeated uses the same ends */
        ingest->end_offsets = fr_strdup((const char *)text.data);
    fr_buffer_release(&text);
    return status;
}

enum fr_status fr_ends_fix(struct fr_ingest *ingest, struct fr_err *err)
{
    enum fr_status status = ingest->end_offsets ? parse(ingest, err) : ask(ingest, err);
    for (uint32_t i = 0; status == FR_OK && i < ingest->n_streams; i++) {
        struct fr_stream *stream = &ingest->streams[i];
        const struct fr_partition_position *p = fr_stream_position(ingest, stream);
        if (!fr_stream_is_ours(ingest, stream))
            continue;
        status = stream->feed->apply_end(ingest, stream, err);
        if (status == FR_OK && stream->end > stream->high)
            status = fr_err_set(err, FR_E_LOST,
                                "%s/%" PRId32 ": the log ends at %" PRId64 ", before the end %" PRId64
                                " fixed for this run (in lockstep in lockstep.end): records were "
                                "lost or the topic was created again; use another state_dir",
                                p->topic, p->partition, stream->high, stream->end);
        else if (status == FR_OK)
            fr_log(FR_LOG_INFO, "ingest", "end_fixed", "topic=%s partition=%" PRId32 " next=%" PRId64 " end=%" PRId64,
                   p->topic, p->partition, stream->next, stream->end);
    }
    return status;
}

void fr_ends_log(const struct fr_ingest *ingest)
{
    for (uint32_t i = 0; i < ingest->n_streams; i++) {
        const struct fr_stream *stream = &ingest->streams[i];
        const struct fr_partition_position *p = fr_stream_position(ingest, stream);
        if (stream->fixed_end >= 0 && fr_stream_is_ours(ingest, stream))
            fr_log(FR_LOG_INFO, "ingest", "end_reached",
                   "topic=%s partition=%" PRId32 " next=%" PRId64 " end=%" PRId64 " delivered=%" PRIu64, p->topic,
                   p->partition, stream->next, stream->end, stream->delivered);
    }
}
