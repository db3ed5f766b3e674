/* What is known of the topic between two looks: where each partition begins for a new replica, and
 * where our next record should land.
 *
 * Every delivery report says at which offset a record landed. When that is further than we counted,
 * somebody else wrote in between: what lies there is read and judged (publisher_check.c). When it
 * is less, the topic was made anew or cut. Once a minute one question about the ends of all
 * partitions finds the same while nothing is sent, and a beginning that retention took.
 *
 * The beginning is kept in the state directory as `delta.begin` (docs/formats/state.md), because
 * only the one who sent it knows where a merged epoch lies in a topic with an older beginning. A
 * file that is missing, damaged or of another topic says nothing; then the topic's first records
 * decide. Of a timeline that began behind a snapshot it says that its number is taken, and no more:
 * new replicas begin with a snapshot.
 *
 * Thread: the publisher thread. */
#include "publisher_internal.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/log.h"

#define BEGIN_FILE "delta.begin"
enum { BEGIN_HEAD = 48, BEGIN_FORMAT = 1 };
_Static_assert(BEGIN_HEAD == 8 + 5 * 8, "format, partitions, topic, timeline, epoch, digest, to");

/* ---- the file ---- */

static uint64_t topic_hash(const struct fr_publisher *publisher)
{
    return fr_xxh3(publisher->options.topic, strlen(publisher->options.topic));
}

void fr_publisher_forget_begin(struct fr_publisher *publisher)
{
    publisher->begin = (struct fr_topic_begin){0};
    for (uint32_t p = 0; p < publisher->options.partitions; p++)
        publisher->topic[p].begin = -1;
}

void fr_publisher_load_begin(struct fr_publisher *publisher)
{
    struct fr_buffer bytes = {0};
    uint32_t np = publisher->options.partitions;
    size_t size = BEGIN_HEAD + (size_t)np * 8;
    fr_publisher_forget_begin(publisher);
    bool good = fr_durable_read_file(publisher->options.durable, BEGIN_FILE, &bytes, NULL) == FR_OK &&
                bytes.size == size + 4 && fr_load_u32(bytes.data + size) == fr_crc32c(0, bytes.data, size) &&
                fr_load_u32(bytes.data) == BEGIN_FORMAT && fr_load_u32(bytes.data + 4) == np &&
                fr_load_u64(bytes.data + 8) == topic_hash(publisher);
    publisher->settled = good ? fr_load_u64(bytes.data + 16) : 0;
    if (good && fr_load_u64(bytes.data + 40) == 0) {
        publisher->begin =
            (struct fr_topic_begin){publisher->settled, fr_load_u64(bytes.data + 24), fr_load_u64(bytes.data + 32), 0};
        for (uint32_t p = 0; p < np; p++)
            publisher->topic[p].begin = (int64_t)fr_load_u64(bytes.data + BEGIN_HEAD + (size_t)p * 8);
    }
    fr_buffer_release(&bytes);
}

void fr_publisher_begin_sent(struct fr_publisher *publisher, uint64_t first, const struct fr_epoch *last)
{
    uint64_t to = publisher->rewind.ready && first == publisher->rewind.to.epoch + 1 ? first - 1 : 0;
    if (first == 1 || to > 0)
        publisher->sent_begin = (struct fr_topic_begin){last->timeline, last->epoch, fr_sha256_u64(&last->digest), to};
}

static enum fr_status save_begin(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_buffer bytes = {0};
    fr_put_u32(&bytes, BEGIN_FORMAT);
    fr_put_u32(&bytes, publisher->options.partitions);
    fr_put_u64(&bytes, topic_hash(publisher));
    fr_put_u64(&bytes, publisher->begin.timeline);
    fr_put_u64(&bytes, publisher->begin.epoch);
    fr_put_u64(&bytes, publisher->begin.digest);
    fr_put_u64(&bytes, publisher->begin.to);
    for (uint32_t p = 0; p < publisher->options.partitions; p++)
        fr_put_u64(&bytes, (uint64_t)publisher->topic[p].begin);
    fr_put_u32(&bytes, fr_crc32c(0, bytes.data, bytes.size));
    enum fr_status status = fr_durable_write_file(publisher->options.durable, BEGIN_FILE, bytes.data, bytes.size, err);
    fr_buffer_release(&bytes);
    /* without it the next start fills the topic again, at worst */
    return status == FR_E_NO_SPACE ? FR_OK : status;
}

enum fr_status fr_publisher_begin_landed(struct fr_publisher *publisher, struct fr_err *err)
{
    bool first = true; /* of all that the topic holds */
    publisher->begin = publisher->sent_begin;
    publisher->settled = publisher->begin.timeline;
    publisher->sent_begin = (struct fr_topic_begin){0};
    for (uint32_t p = 0; p < publisher->options.partitions; p++) {
        struct fr_topic_partition *at = &publisher->topic[p];
        at->begin = at->sent_begin;
        first = first && at->begin == at->low;
    }
    /* that a timeline began is kept too: its number is this state's from now on */
    enum fr_status status = first && publisher->begin.timeline <= 1 ? FR_OK : save_begin(publisher, err);
    if (publisher->begin.to > 0)
        fr_publisher_forget_begin(publisher);
    return status;
}

/* ---- for other threads ---- */

void fr_publisher_tell(struct fr_publisher *publisher)
{
    publisher->tally.sent = publisher->sent;
    publisher->tally.acked = publisher->acked;
    publisher->tally.in_flight_bytes = publisher->in_flight_bytes;
    publisher->tally.topic.begin = publisher->begin.epoch;
    pthread_mutex_lock(&publisher->mutex);
    publisher->status = publisher->tally;
    for (uint32_t p = 0; publisher->told_next && p < publisher->options.partitions; p++)
        publisher->told_next[p] = publisher->checked ? publisher->topic[p].next : -1;
    pthread_mutex_unlock(&publisher->mutex);
}

bool fr_publisher_offsets(struct fr_publisher *publisher, uint64_t *out)
{
    bool known = true;
    pthread_mutex_lock(&publisher->mutex);
    for (uint32_t p = 0; p < publisher->options.partitions && known; p++) {
        known = publisher->told_next[p] >= 0;
        out[p] = (uint64_t)publisher->told_next[p];
    }
    pthread_mutex_unlock(&publisher->mutex);
    return known;
}

void fr_publisher_get_status(struct fr_publisher *publisher, struct fr_publisher_status *out)
{
    pthread_mutex_lock(&publisher->mutex);
    *out = publisher->status;
    pthread_mutex_unlock(&publisher->mutex);
    out->offered = atomic_load(&publisher->offered);
}

/* ---- without brokers ---- */

/* No topic gets the epochs that count as acknowledged now. They are of a timeline that no topic
 * knows, so that a later start with brokers fills its topic with the whole state. */
enum fr_status fr_publisher_check_without_brokers(struct fr_publisher *publisher, struct fr_err *err)
{
    struct fr_durable_status durable;
    fr_publisher_load_begin(publisher);
    fr_durable_get_status(publisher->options.durable, &durable);
    enum fr_status status = FR_OK;
    if (durable.timeline <= 1 || publisher->settled == durable.timeline)
        status = fr_durable_begin_timeline(publisher->options.durable, durable.timeline + 1, err);
    if (status != FR_OK)
        return status;
    fr_log(FR_LOG_INFO, "publisher", "no_brokers", "effect=\"no deltas are published; set ingest.brokers for them\"");
    publisher->checked = true;
    return FR_OK;
}

enum fr_status fr_publisher_step_without_brokers(struct fr_publisher *publisher, int wait_ms)
{
    uint64_t offered = atomic_load(&publisher->offered);
    if (publisher->acked == offered)
        (void)poll(NULL, 0, wait_ms);
    publisher->sent = publisher->acked = publisher->highest_sent = offered;
    fr_publisher_tell(publisher);
    return FR_OK;
}

/* ---- delivery reports ---- */

void fr_publisher_landed(struct fr_publisher *publisher, int32_t partition, int64_t offset, bool begins)
{
    FR_CHECK(partition >= 0 && (uint32_t)partition < publisher->options.partitions);
    struct fr_topic_partition *at = &publisher->topic[partition];
    FR_CHECK(offset >= 0);
    if (begins)
        at->sent_begin = offset;
    if (at->next >= 0 && offset < at->next)
        publisher->moved = true;
    if (at->next >= 0 && offset > at->next) {
        if (at->gap_to <= at->gap_from)
            at->gap_from = at->next;
        at->gap_to = offset;
    }
    at->next = offset + 1;
}

void fr_publisher_refused(struct fr_publisher *publisher, const rd_kafka_message_t *message)
{
    char text[sizeof(publisher->tally.refused)], remedy[80] = "";
    bool large = message->err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    uint64_t most = publisher->options.record_max > message->len ? publisher->options.record_max : message->len;
    if (large)
        snprintf(remedy, sizeof(remedy), "; set max.message.bytes=%" PRIu64 " on it", most + BATCH_ROOM);
    snprintf(text, sizeof(text), "a record of %zu bytes was not accepted by topic %.80s partition %d: %.60s%s",
             message->len, rd_kafka_topic_name(message->rkt), (int)message->partition, fr_kafka_refusal(message),
             remedy);
    publisher->tally.refused[0] = '\0'; /* for another reason now */
    if (large) {
        memcpy(publisher->tally.refused, text, sizeof(text));
        snprintf(publisher->refused.topic, sizeof(publisher->refused.topic), "%s", rd_kafka_topic_name(message->rkt));
        publisher->refused.bytes = most + BATCH_ROOM;
    }
    fr_publisher_problem(publisher, text);
}

bool fr_publisher_has_gaps(const struct fr_publisher *publisher)
{
    for (uint32_t p = 0; p < publisher->options.partitions; p++)
        if (publisher->topic[p].gap_to > publisher->topic[p].gap_from)
            return true;
    return false;
}

/* ---- the minute's question ---- */

static void compare(struct fr_publisher *publisher, const int64_t *low, const int64_t *high)
{
    for (uint32_t p = 0; p < publisher->options.partitions; p++) {
        struct fr_topic_partition *at = &publisher->topic[p];
        at->low = low[p];
        if (publisher->begin.epoch > 0 && low[p] > at->begin)
            publisher->moved = true; /* retention took what a new replica begins with */
        if (at->next >= 0 && high[p] < at->next)
            publisher->moved = true;
        if (at->next >= 0 && high[p] > at->next) {
            at->gap_from = at->next;
            at->gap_to = at->next = high[p];
        }
    }
    /* retention took what comes after the snapshot that new replicas begin with */
    const struct fr_publisher_options *options = &publisher->options;
    if (publisher->covered && !options->covers(options->self, low, high, options->partitions))
        publisher->moved = true;
}

void fr_publisher_ask(struct fr_publisher *publisher)
{
    uint64_t now = fr_mono_ns(publisher->options.clock);
    uint64_t every = publisher->options.look_ms ? publisher->options.look_ms : LOOK_MS;
    /* with nothing in flight our own count is exact */
    if (now - publisher->looked_ns < every * 1000000u || publisher->in_flight_bytes > 0)
        return;
    publisher->looked_ns = now;
    if (now - publisher->policy_ns >= POLICY_MS * UINT64_C(1000000)) {
        publisher->policy_ns = now;
        fr_publisher_look_at_retention(publisher);
    }
    uint32_t np = publisher->options.partitions;
    int64_t *low = fr_alloc(np, sizeof(*low)), *high = fr_alloc(np, sizeof(*high));
    struct fr_err err = {0};
    if (fr_publisher_ends(publisher, publisher->producer, low, high, &err) == FR_OK)
        publisher->tally.topic.looked_ms = (uint64_t)fr_wall_ms(publisher->options.clock),
        compare(publisher, low, high);
    else
        fr_log(FR_LOG_WARN, "publisher", "topic_unknown", "reason=\"%s\" note=\"asked again in a minute\"", err.text);
    free(low);
    free(high);
}
