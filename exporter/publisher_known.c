/* What is known of the topic between two inspections (publisher_known.h).
 *
 * Every delivery report has the offset of a record. An offset beyond our count means that another
 * writer wrote in between; the records there are read and judged (publisher_inspection.c). A
 * smaller offset means that the topic was created again or cut. Once a minute, one query of the
 * ends of all partitions finds the same while nothing is sent, and finds a beginning that retention
 * deleted.
 *
 * The beginning is kept in the state directory as `delta.begin` (docs/formats/state.md), because
 * only the process that sent it knows where a merged epoch lies in a topic with an older beginning.
 * If the file is missing or of another topic, the topic's first records decide. Of a timeline that
 * began after a snapshot, the file holds only that its number is taken, because new replicas begin
 * with a snapshot.
 *
 * Thread: the publisher thread. */
#include "publisher_known.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/log.h"

#define BEGIN_FILE "delta.begin"
enum { BEGIN_HEAD = 48, BEGIN_FORMAT = 1, COMPARE_MS = 60000 };
_Static_assert(BEGIN_HEAD == 8 + 5 * 8, "format, partitions, topic, timeline, epoch, digest, to");

void fr_publisher_known_init(struct fr_publisher_known *known, struct fr_publisher_board *board)
{
    known->board = board;
    known->partitions = fr_alloc(board->options.partitions, sizeof(*known->partitions));
}

void fr_publisher_known_release(struct fr_publisher_known *known)
{
    free(known->partitions);
}

/* ---- the file ---- */

static uint64_t topic_hash(const struct fr_publisher_board *board)
{
    return fr_xxh3(board->options.topic, strlen(board->options.topic));
}

void fr_publisher_forget_begin(struct fr_publisher_known *known)
{
    known->begin = (struct fr_topic_begin){0};
    for (uint32_t p = 0; p < known->board->options.partitions; p++)
        known->partitions[p].begin = -1;
}

void fr_publisher_read_begin(struct fr_publisher_known *known)
{
    const struct fr_publisher_board *board = known->board;
    struct fr_buffer bytes = {0};
    uint32_t np = board->options.partitions;
    size_t size = BEGIN_HEAD + (size_t)np * 8;
    fr_publisher_forget_begin(known);
    bool good = fr_durable_read_file(board->options.durable, BEGIN_FILE, &bytes, NULL) == FR_OK &&
                bytes.size == size + 4 && fr_load_u32(bytes.data + size) == fr_crc32c(0, bytes.data, size) &&
                fr_load_u32(bytes.data) == BEGIN_FORMAT && fr_load_u32(bytes.data + 4) == np &&
                fr_load_u64(bytes.data + 8) == topic_hash(board);
    known->begun_timeline = good ? fr_load_u64(bytes.data + 16) : 0;
    if (good && fr_load_u64(bytes.data + 40) == 0) {
        known->begin = (struct fr_topic_begin){known->begun_timeline, fr_load_u64(bytes.data + 24),
                                               fr_load_u64(bytes.data + 32), 0};
        for (uint32_t p = 0; p < np; p++)
            known->partitions[p].begin = (int64_t)fr_load_u64(bytes.data + BEGIN_HEAD + (size_t)p * 8);
    }
    fr_buffer_release(&bytes);
}

static enum fr_status write_begin(const struct fr_publisher_known *known, struct fr_err *err)
{
    const struct fr_publisher_board *board = known->board;
    struct fr_buffer bytes = {0};
    fr_put_u32(&bytes, BEGIN_FORMAT);
    fr_put_u32(&bytes, board->options.partitions);
    fr_put_u64(&bytes, topic_hash(board));
    fr_put_u64(&bytes, known->begin.timeline);
    fr_put_u64(&bytes, known->begin.epoch);
    fr_put_u64(&bytes, known->begin.digest);
    fr_put_u64(&bytes, known->begin.to);
    for (uint32_t p = 0; p < board->options.partitions; p++)
        fr_put_u64(&bytes, (uint64_t)known->partitions[p].begin);
    fr_put_u32(&bytes, fr_crc32c(0, bytes.data, bytes.size));
    enum fr_status status = fr_durable_write_file(board->options.durable, BEGIN_FILE, bytes.data, bytes.size, err);
    fr_buffer_release(&bytes);
    /* At worst the next start fills the topic again because the file is missing. */
    return status == FR_E_NO_SPACE ? FR_OK : status;
}

/* ---- the beginning ---- */

enum fr_status fr_publisher_begin_is_acknowledged(struct fr_publisher_known *known, struct fr_err *err)
{
    bool first = true; /* the beginning is the first record of each partition */
    known->begin = known->sent_begin;
    known->begun_timeline = known->begin.timeline;
    known->sent_begin = (struct fr_topic_begin){0};
    const struct fr_publisher_options *options = &known->board->options;
    for (uint32_t p = options->first_partition; p < options->end_partition; p++) {
        struct fr_topic_partition *at = &known->partitions[p];
        at->begin = at->sent_begin;
        first = first && at->begin == at->low;
    }
    /* The file also records that the timeline began, so that its number stays this state's. */
    enum fr_status status = first && known->begin.timeline <= 1 ? FR_OK : write_begin(known, err);
    if (known->begin.to > 0)
        fr_publisher_forget_begin(known);
    return status;
}

/* ---- delivery reports ---- */

void fr_publisher_record_landed(struct fr_publisher_known *known, int32_t partition, int64_t offset, bool begins)
{
    FR_CHECK(partition >= 0 && (uint32_t)partition < known->board->options.partitions);
    struct fr_topic_partition *at = &known->partitions[partition];
    FR_CHECK(offset >= 0);
    if (begins)
        at->sent_begin = offset;
    if (at->next >= 0 && offset < at->next)
        fr_publisher_notice(known->board, FR_PUBLISHER_TOPIC_CHANGED);
    if (at->next >= 0 && offset > at->next) {
        if (at->gap_to <= at->gap_from)
            at->gap_from = at->next;
        at->gap_to = offset;
    }
    at->next = offset + 1;
}

bool fr_publisher_has_gaps(const struct fr_publisher_known *known)
{
    for (uint32_t p = 0; p < known->board->options.partitions; p++)
        if (known->partitions[p].gap_to > known->partitions[p].gap_from)
            return true;
    return false;
}

/* ---- the query once a minute ---- */

static void compare(struct fr_publisher_known *known, const int64_t *low, const int64_t *high)
{
    const struct fr_publisher_options *options = &known->board->options;
    bool changed = false;
    for (uint32_t p = options->first_partition; p < options->end_partition; p++) {
        struct fr_topic_partition *at = &known->partitions[p];
        at->low = low[p];
        changed |= known->begin.epoch > 0 && low[p] > at->begin; /* deleted by retention */
        changed |= at->next >= 0 && high[p] < at->next;
        if (at->next >= 0 && high[p] > at->next) {
            at->gap_from = at->next;
            at->gap_to = at->next = high[p];
        }
    }
    /* retention deleted records after the snapshot that new replicas begin with */
    changed |= known->snapshot_is_begin && !options->covers(options->self, low, high, options->partitions);
    if (changed)
        fr_publisher_notice(known->board, FR_PUBLISHER_TOPIC_CHANGED);
}

void fr_publisher_compare_ends(struct fr_publisher_known *known, struct fr_publisher_topic *topic, rd_kafka_t *client)
{
    struct fr_publisher_board *board = known->board;
    uint64_t now = fr_mono_ns(board->options.clock);
    uint64_t every = board->options.look_ms ? board->options.look_ms : COMPARE_MS;
    /* Our count is exact only while nothing is in flight. */
    if (now - known->asked_ns < every * 1000000u || board->tally.in_flight_bytes > 0)
        return;
    known->asked_ns = now;
    fr_publisher_check_retention(topic, client, now);
    uint32_t np = board->options.partitions;
    int64_t *low = fr_alloc(np, sizeof(*low)), *high = fr_alloc(np, sizeof(*high));
    struct fr_err err = {0};
    if (fr_publisher_ends(board, client, low, high, &err) == FR_OK) {
        board->tally.topic.looked_ms = (uint64_t)fr_wall_ms(board->options.clock);
        compare(known, low, high);
    } else {
        fr_log(FR_LOG_WARN, "publisher", "topic_unknown", "reason=\"%s\" note=\"the next query follows in a minute\"",
               err.text);
    }
    free(low);
    free(high);
}
