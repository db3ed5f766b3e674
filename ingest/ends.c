/* End offsets of a bounded run (--until end, lockstep): fixed once, before the first record is read, so that every
 * restart stops at the same place.
 *
 * Text form: one "topic partition end\n" line per partition; topic names hold no spaces. A partition that the text does
 * not name was added later and is not read. Owner: ingest thread. */
#include "internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

static const struct fr_partition_position *position_of(const struct fr_ingest *self, const struct fr_lane *lane)
{
    return &self->shared.known.partitions[lane->slot];
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

static enum fr_status parse_line(struct fr_ingest *self, const char *line, struct fr_err *err)
{
    char topic[FR_TOPIC_MAX];
    int64_t partition, end;
    const char *first = strchr(line, ' '), *second = first ? strchr(first + 1, ' ') : NULL;
    size_t size = first ? (size_t)(first - line) : 0;
    if (!second || size == 0 || size >= sizeof(topic) || !parse_number(first + 1, ' ', INT32_MAX, &partition) ||
        !parse_number(second + 1, 0, INT64_MAX, &end))
        return fr_err_set(err, FR_E_CORRUPT, "end offsets: \"%.80s\" is not \"topic partition end\"", line);
    memcpy(topic, line, size);
    topic[size] = 0;
    for (uint32_t i = 0; i < self->n_lanes; i++) {
        const struct fr_partition_position *p = position_of(self, &self->lanes[i]);
        if (p->partition == partition && strcmp(p->topic, topic) == 0) {
            self->lanes[i].end = end;
            return FR_OK;
        }
    }
    return fr_err_set(err, FR_E_MISMATCH,
                      "end offsets name partition %" PRId64
                      " of topic %s, which the broker does not have: the topic was made anew; "
                      "use another state_dir",
                      partition, topic);
}

static enum fr_status parse(struct fr_ingest *self, struct fr_err *err)
{
    for (uint32_t i = 0; i < self->n_lanes; i++)
        self->lanes[i].end = 0;
    enum fr_status status = FR_OK;
    char *line = self->end_offsets;
    while (status == FR_OK && *line) {
        char *stop = strchr(line, '\n');
        if (!stop)
            return fr_err_set(err, FR_E_CORRUPT, "end offsets: the last line is cut off");
        *stop = 0;
        status = parse_line(self, line, err);
        *stop = '\n';
        line = stop + 1;
    }
    return status;
}

static enum fr_status ask(struct fr_ingest *self, struct fr_err *err)
{
    struct fr_buffer text = {0};
    for (uint32_t i = 0; i < self->n_lanes; i++) {
        const struct fr_partition_position *p = position_of(self, &self->lanes[i]);
        self->lanes[i].end = self->lanes[i].high;
        fr_buffer_printf(&text, "%s %" PRId32 " %" PRId64 "\n", p->topic, p->partition, self->lanes[i].high);
    }
    fr_put_u8(&text, 0);
    enum fr_status status = FR_OK;
    if (self->fix_end)
        status = self->fix_end(self->fix_end_self, (const char *)text.data, text.size - 1, err);
    if (status == FR_OK)
        self->end_offsets = fr_strdup((const char *)text.data); /* a start that is repeated keeps them */
    fr_buffer_release(&text);
    return status;
}

enum fr_status fr_ends_fix(struct fr_ingest *self, struct fr_err *err)
{
    enum fr_status status = self->end_offsets ? parse(self, err) : ask(self, err);
    for (uint32_t i = 0; status == FR_OK && i < self->n_lanes; i++) {
        struct fr_lane *lane = &self->lanes[i];
        const struct fr_partition_position *p = position_of(self, lane);
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
