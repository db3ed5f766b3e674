/* End offsets of a bounded run (--until end, lockstep): fixed once, before the first record is
 * read, so that every restart stops at the same place.
 *
 * Text form: one "topic partition end\n" line per partition. The end of a file (`file:<path> 0
 * bytes`) is its size in bytes: a file is read whole, and must not have changed in between. A
 * partition that the text does not name was added later and is not read. --until TIME: the end is
 * the first record with that Kafka timestamp or a later one. Owner: ingest thread. */
#include "internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "files.h"

static const struct fr_partition_position *position_of(const struct fr_ingest *ingest, const struct fr_lane *lane)
{
    return &ingest->shared.known.partitions[lane->slot];
}

/* A decimal number of [0, max] that ends at `stop`. */
static bool parse_number(const char *text, char stop, int64_t max, int64_t *out)
{
    char *rest;
    errno = 0;
    long long number = strtoll(text, &rest, 10);
    if (*text < '0' || *text > '9' || errno != 0 || *rest != stop || number > max)
        return false;
    *out = number;
    return true;
}

static enum fr_status parse_line(struct fr_ingest *ingest, const char *line, struct fr_err *err)
{
    char topic[FR_TOPIC_MAX];
    int64_t partition, end;
    /* from the back: a path may hold spaces */
    const char *second = strrchr(line, ' '), *first = second;
    while (first && first > line && *--first != ' ')
        continue;
    size_t size = first ? (size_t)(first - line) : 0;
    if (!second || size == 0 || size >= sizeof(topic) || !parse_number(first + 1, ' ', INT32_MAX, &partition) ||
        !parse_number(second + 1, 0, INT64_MAX, &end))
        return fr_err_set(err, FR_E_CORRUPT, "end offsets: \"%.80s\" is not \"topic partition end\"", line);
    memcpy(topic, line, size);
    topic[size] = 0;
    if (strchr(topic, ' ') && !fr_is_file_topic(topic))
        return fr_err_set(err, FR_E_CORRUPT, "end offsets: \"%.80s\" names no topic", line);
    for (uint32_t i = 0; i < ingest->n_lanes; i++) {
        const struct fr_partition_position *p = position_of(ingest, &ingest->lanes[i]);
        if (p->partition != partition || strcmp(p->topic, topic) != 0)
            continue;
        ingest->lanes[i].end_named = true;
        if (i >= ingest->n_files)
            ingest->lanes[i].end = end;
        else if (!ingest->lanes[i].done && ingest->lanes[i].bytes != end)
            return fr_err_set(
                err, FR_E_MISMATCH,
                "ingest.files: %s has %" PRId64 " bytes, it had %" PRId64
                " when the ends of this run were fixed; put the same file there, or use another state_dir",
                fr_file_path(topic), ingest->lanes[i].bytes, end);
        return FR_OK;
    }
    return fr_err_set(err, FR_E_MISMATCH,
                      "end offsets name partition %" PRId64
                      " of topic %s, which is not there: the topic was made anew, or ingest.topics or ingest.files "
                      "changed within the run; use another state_dir",
                      partition, topic);
}

static enum fr_status parse(struct fr_ingest *ingest, struct fr_err *err)
{
    for (uint32_t i = ingest->n_files; i < ingest->n_lanes; i++)
        ingest->lanes[i].end = 0;
    enum fr_status status = FR_OK;
    char *line = ingest->end_offsets;
    while (status == FR_OK && *line) {
        char *stop = strchr(line, '\n');
        if (!stop)
            return fr_err_set(err, FR_E_CORRUPT, "end offsets: the last line is cut off");
        *stop = 0;
        status = parse_line(ingest, line, err);
        *stop = '\n';
        line = stop + 1;
    }
    for (uint32_t i = 0; status == FR_OK && i < ingest->n_files; i++) {
        const struct fr_partition_position *p = position_of(ingest, &ingest->lanes[i]);
        if (!ingest->lanes[i].done && !ingest->lanes[i].end_named)
            status = fr_err_set(err, FR_E_MISMATCH,
                                "ingest.files: %s was added after the ends of this run were fixed; take it out, or use "
                                "another state_dir",
                                fr_file_path(p->topic));
    }
    return status;
}

/* Where this run ends on a partition. */
static enum fr_status end_of(struct fr_ingest *ingest, uint32_t index, int64_t *out, struct fr_err *err)
{
    int64_t high = ingest->lanes[index].high, at = high;
    enum fr_status status = FR_EOF;
    if (ingest->until_ms > 0)
        status = ingest->source.offset_at(ingest->source.self, index, ingest->until_ms, &at, err);
    if (status < 0)
        return status;
    *out = status == FR_OK && at < high ? at : high;
    return FR_OK;
}

static enum fr_status ask(struct fr_ingest *ingest, struct fr_err *err)
{
    struct fr_buffer text = {0};
    enum fr_status status = FR_OK;
    for (uint32_t i = 0; status == FR_OK && i < ingest->n_lanes; i++) {
        const struct fr_partition_position *p = position_of(ingest, &ingest->lanes[i]);
        int64_t end = ingest->lanes[i].bytes;
        if (i >= ingest->n_files) {
            status = end_of(ingest, i, &end, err);
            ingest->lanes[i].end = end;
        }
        fr_buffer_printf(&text, "%s %" PRId32 " %" PRId64 "\n", p->topic, p->partition, end);
    }
    fr_put_u8(&text, 0);
    if (status == FR_OK && ingest->fix_end)
        status = ingest->fix_end(ingest->fix_end_self, (const char *)text.data, text.size - 1, err);
    if (status == FR_OK)
        /* a start that is repeated keeps them */
        ingest->end_offsets = fr_strdup((const char *)text.data);
    fr_buffer_release(&text);
    return status;
}

enum fr_status fr_ends_fix(struct fr_ingest *ingest, struct fr_err *err)
{
    enum fr_status status = ingest->end_offsets ? parse(ingest, err) : ask(ingest, err);
    for (uint32_t i = 0; status == FR_OK && i < ingest->n_lanes; i++) {
        struct fr_lane *lane = &ingest->lanes[i];
        const struct fr_partition_position *p = position_of(ingest, lane);
        if (lane->end > lane->high)
            status =
                fr_err_set(err, FR_E_LOST,
                           "%s/%" PRId32 ": the log ends at %" PRId64 ", before the end %" PRId64
                           " fixed for this run: records were lost or the topic was made anew; use another state_dir",
                           p->topic, p->partition, lane->high, lane->end);
        else
            fr_log(FR_LOG_INFO, "ingest", "end_fixed", "topic=%s partition=%" PRId32 " next=%" PRId64 " end=%" PRId64,
                   p->topic, p->partition, lane->next, lane->end);
    }
    return status;
}
