/* The sample source over Kafka: librdkafka's per-partition consumer ("simple" API), two clients.
 *
 * The reader streams: consume_start at the stored offsets, without group membership, so nothing can
 * rebalance or reset them. All partitions share one queue; in lockstep each has its own, which the
 * group consumer offers only with a race at assignment. Back-pressure works by not polling: each
 * partition's queue is bounded (queued.max.messages.kbytes), and fetching stops when it is full.
 * Questions are asked by another client (kafka_questions.c). Messages are polled one by one,
 * because 2.0.2's batch calls may lose some (fixed in 2.1.0). Records below the begun offset may
 * appear (2.0.2, fixed in 2.4.0); the caller drops them. librdkafka skips a message set that fails
 * its check sum; it is reported as FR_SOURCE_BROKEN, and the caller begins again at its own offset.
 *
 * Owner: ingest thread. Offsets are chosen by the caller. */
#include "kafka.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "kafka_internal.h"

enum {
    /* how long the last commit may delay a stop; it is for lag tools only */
    COMMIT_CLOSE_MS = 2000,
    REVIVED_MS = 200,   /* limit of a question to brokers that were down, about once a second */
    REVIVED_POLLS = 20, /* empty polls between two such questions */
    SILENT_MS = 3000,   /* silence after which brokers are asked whether they answer */
    ANSWER_MS = 2000,   /* limit of the answer to that question */
    /* If the questions about all partitions took longer than this, the process may have stood still
     * meanwhile, and they are asked once more. */
    CHECK_MS = 2000,
};

/* ---- the stream ---- */

static void checked(void *self, bool all)
{
    struct fr_kafka_source *source = self;
    fr_ingest_kafka_shut(source, &source->probe, &source->probe_topics);
    if (!source->contact)
        return;
    struct fr_kafka_contact_time now = fr_kafka_contact_now();
    bool twice = now.boot_ns - source->polled_ns > (uint64_t)CHECK_MS * 1000000;
    if (twice && !(all && source->twice)) {
        source->twice = all;
        return; /* the next poll reports that contact was lost */
    }
    source->polled_ns = now.boot_ns;
    if (!all)
        return;
    source->twice = false;
    fr_kafka_contact_checked(source->contact, now);
}

static void heard(struct fr_kafka_source *source)
{
    /* the system clock, because brokers have no fake one */
    source->heard_ns = fr_mono_ns(fr_clock_system());
}

static enum fr_status begin(void *self, uint32_t index, int64_t offset, struct fr_err *err)
{
    struct fr_kafka_source *source = self;
    const struct fr_source_partition *name = &source->names[index];
    if (!source->reader) {
        enum fr_status status = fr_ingest_kafka_connect(source, false, &source->reader, &source->reader_topics, err);
        if (status != FR_OK)
            return status;
        source->queue = source->per_partition ? NULL : rd_kafka_queue_new(source->reader);
        source->commits = rd_kafka_queue_new(source->reader);
        source->polled_ns = source->asked.boot_ns;
        heard(source);
    }
    rd_kafka_topic_t *topic = source->reader_topics[source->partitions[index].topic];
    int failed = source->queue ? rd_kafka_consume_start_queue(topic, name->partition, offset, source->queue)
                               : rd_kafka_consume_start(topic, name->partition, offset);
    if (failed)
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s/%" PRId32 ": reading from %" PRId64 ": %s", name->topic,
                          name->partition, offset, rd_kafka_err2str(rd_kafka_last_error()));
    source->partitions[index].reading = true;
    source->partitions[index].broker = -1;
    /* errors from before the check that let this partition begin no longer count */
    source->health.topic_gone = source->health.topic_denied = false;
    return FR_OK;
}

static void halt(void *self, uint32_t index)
{
    struct fr_kafka_source *source = self;
    if (!source->partitions[index].reading)
        return;
    source->partitions[index].reading = false;
    uint32_t at;
    if (source->aside && fr_ingest_kafka_index(source->aside, &at) && at == index) {
        rd_kafka_message_destroy(source->aside);
        source->aside = NULL;
    }
    rd_kafka_consume_stop(source->reader_topics[source->partitions[index].topic], source->names[index].partition);
}

static void convert_message(rd_kafka_message_t *message, uint32_t index, struct fr_source_event *out)
{
    rd_kafka_timestamp_type_t clock;
    int64_t timestamp_ms = rd_kafka_message_timestamp(message, &clock);
    *out = (struct fr_source_event){
        .kind = FR_SOURCE_RECORD,
        .partition = index,
        .offset = message->offset,
        .timestamp_ms = timestamp_ms,
        .of_broker = clock == RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME,
        .value = message->payload,
        .size = message->payload ? message->len : 0,
        .key = message->key,
        .key_size = message->key ? message->key_len : 0,
        .handle = message,
    };
}

/* A revoked right may be granted again: reading is then tried again and continues where it was. */
static void report_denied(const struct fr_kafka_source *source, const char *reason, struct fr_source_event *out)
{
    out->kind = FR_SOURCE_BROKEN;
    snprintf(out->text, sizeof(out->text), "%.60s; grant this user READ on the topic and on group freshet.%.120s",
             reason, source->conf->model);
}

static void convert_error(const struct fr_kafka_source *source, const rd_kafka_message_t *message, uint32_t index,
                          struct fr_source_event *out)
{
    rd_kafka_resp_err_t code = message->err;
    *out = (struct fr_source_event){.partition = index, .offset = message->offset};
    snprintf(out->text, sizeof(out->text), "%s", rd_kafka_message_errstr(message));
    switch (code) {
    case RD_KAFKA_RESP_ERR__PARTITION_EOF:
        out->kind = FR_SOURCE_END;
        break;
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        out->kind = FR_SOURCE_RESET;
        break;
    default:
        out->kind = FR_SOURCE_BROKEN;
        if (fr_kafka_status(code) == FR_E_DENIED)
            report_denied(source, rd_kafka_err2str(code), out);
    }
}

/* Gives an error that was reported to the client as a whole to its partitions, one in each call: a
 * topic was deleted or may not be read. The error does not name the topic; the check of each
 * partition shows which one it was. */
static enum fr_status give_client_error(struct fr_kafka_source *source, struct fr_source_event *out)
{
    bool broken = source->health.topic_gone || source->health.topic_denied;
    for (uint32_t i = 0; broken && i < source->n_partitions; i++)
        if (source->partitions[i].reading) {
            *out = (struct fr_source_event){.kind = FR_SOURCE_BROKEN, .partition = i};
            snprintf(out->text, sizeof(out->text), "%.255s", source->health.text);
            if (source->health.topic_denied)
                report_denied(source, source->health.text, out);
            return FR_OK;
        }
    source->health.topic_gone = source->health.topic_denied = false;
    return FR_AGAIN;
}

struct fr_kafka_contact_count fr_ingest_kafka_asking(const struct fr_kafka_source *source)
{
    return source->contact ? fr_kafka_contact_count(source->contact) : (struct fr_kafka_contact_count){0};
}

void fr_ingest_kafka_asked(struct fr_kafka_source *source, struct fr_kafka_contact_count before)
{
    bool answered = memcmp(&before, &source->answered, sizeof(before)) == 0;
    if (answered && fr_ingest_kafka_asking(source).metadata == before.metadata + 1)
        source->answered.metadata = before.metadata + 1;
}

/* Finds out whether brokers answer while there is nothing to read, which only a question shows.
 * librdkafka notices a broker that has stopped but keeps its connections (a machine that hangs, a
 * network that drops packets) after socket.timeout.ms, a minute; a shorter time would end large
 * answers on slow lines. It reports that all brokers are down only while it knows the address of
 * each, including the group's coordinator. */
static void probe_connection(struct fr_kafka_source *source)
{
    bool down = source->health.down;
    if (down && source->empty_polls++ % REVIVED_POLLS != 0)
        return;
    if (!down && fr_mono_ns(fr_clock_system()) - source->heard_ns < (uint64_t)SILENT_MS * 1000000)
        return;
    const struct rd_kafka_metadata *metadata;
    struct fr_kafka_contact_count before = fr_ingest_kafka_asking(source);
    rd_kafka_resp_err_t code =
        rd_kafka_metadata(source->reader, 0, source->reader_topics[0], &metadata, down ? REVIVED_MS : ANSWER_MS);
    fr_ingest_kafka_asked(source, before);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_metadata_destroy(metadata);
        heard(source);
        if (down)
            source->health = (struct fr_ingest_health){0};
    } else if (!down && (code == RD_KAFKA_RESP_ERR__TIMED_OUT || code == RD_KAFKA_RESP_ERR__TRANSPORT)) {
        source->health.down = true;
        source->empty_polls = 0;
        if (!source->health.text[0] && code == RD_KAFKA_RESP_ERR__TRANSPORT)
            snprintf(source->health.text, sizeof(source->health.text),
                     "no broker can be reached; check that the brokers run, and the network to them");
        else if (!source->health.text[0])
            snprintf(source->health.text, sizeof(source->health.text),
                     "connected, but no answer within %d ms: a broker or the network hangs; check the brokers' "
                     "processes (a stopped or overloaded one), and restart one that hangs",
                     ANSWER_MS);
    }
}

static void drain_commits(struct fr_kafka_source *source, int wait_ms)
{
    rd_kafka_event_t *event;
    while (source->n_commits && (event = rd_kafka_queue_poll(source->commits, wait_ms))) {
        source->n_commits--;
        rd_kafka_resp_err_t code = rd_kafka_event_error(event);
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR && !source->commit_error_logged) {
            source->commit_error_logged = true;
            fr_log(FR_LOG_WARN, "ingest", "group_commit",
                   "reason=\"%s\" effect=\"lag tools see no progress; training is not affected\"",
                   rd_kafka_err2str(code));
        }
        rd_kafka_event_destroy(event);
    }
}

/* ---- contact ---- */

/* Whether contact was lost since the last FR_SOURCE_GAP or FR_SOURCE_CONNECTED, which includes that
 * this process waited or stood still for longer than it meant to. */
static bool lost_contact(struct fr_kafka_source *source, int wait_ms)
{
    uint64_t now = fr_clock_boot_ns(), before = source->polled_ns;
    struct fr_kafka_contact_count count = fr_kafka_contact_count(source->contact);
    source->polled_ns = now;
    source->gap |= now - before > (uint64_t)(wait_ms + FR_KAFKA_CONTACT_SILENCE_MS) * 1000000 ||
                   memcmp(&count, &source->answered, sizeof(count)) != 0;
    return source->gap;
}

static void rest(void *self)
{
    struct fr_kafka_source *source = self;
    if (!source->reader)
        return;
    (void)lost_contact(source, 0);
    rd_kafka_poll(source->reader, 0); /* error callbacks, also while there are no polls */
    drain_commits(source, 0);
    if (source->health.down)
        probe_connection(source);
}

/* Reports that contact was lost. Records over another connection may be of a log that an election
 * cut below what was fetched before, so FR_SOURCE_CONNECTED drops what was fetched. */
static enum fr_status give_gap(struct fr_kafka_source *source, struct fr_source_event *out)
{
    struct fr_kafka_contact_count count = fr_kafka_contact_count(source->contact);
    bool drop = count.connections != source->answered.connections;
    *out = (struct fr_source_event){.kind = drop ? FR_SOURCE_CONNECTED : FR_SOURCE_GAP};
    source->answered = count;
    source->gap = false;
    return FR_OK;
}

/* Whether another broker gives the partition than before. */
static bool is_moved(struct fr_kafka_source *source, const rd_kafka_message_t *message, uint32_t index)
{
    struct fr_kafka_partition *partition = &source->partitions[index];
    int32_t broker = rd_kafka_message_broker_id(message);
    bool moved = partition->broker >= 0 && broker >= 0 && broker != partition->broker;
    if (partition->broker < 0)
        partition->broker = broker;
    return moved;
}

/* One message, or none within wait_ms. */
static rd_kafka_message_t *receive(struct fr_kafka_source *source, int64_t index, int wait_ms)
{
    if (source->queue)
        return rd_kafka_consume_queue(source->queue, wait_ms);
    return rd_kafka_consume(source->reader_topics[source->partitions[index].topic], source->names[index].partition,
                            wait_ms);
}

static bool is_read(const struct fr_kafka_source *source, const rd_kafka_message_t *message)
{
    uint32_t at;
    return fr_ingest_kafka_index(message, &at) && source->partitions[at].reading;
}

/* Converts a message of a partition that is read, and takes ownership of it. */
static enum fr_status give(struct fr_kafka_source *source, rd_kafka_message_t *message, struct fr_source_event *out)
{
    uint32_t at = 0;
    FR_CHECK(fr_ingest_kafka_index(message, &at));
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR && is_moved(source, message, at)) {
        *out = (struct fr_source_event){.kind = FR_SOURCE_MOVED, .partition = at};
        rd_kafka_message_destroy(message);
        return FR_OK;
    }
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        convert_message(message, at, out);
        source->health.down = false;
        source->health.text[0] = 0;
        heard(source);
        return FR_OK;
    }
    convert_error(source, message, at, out);
    if (out->kind == FR_SOURCE_END) {
        source->health = (struct fr_ingest_health){0};
        heard(source);
    }
    rd_kafka_message_destroy(message);
    return FR_OK;
}

static enum fr_status poll_event(void *self, int64_t index, int wait_ms, struct fr_source_event *out,
                                 struct fr_err *err)
{
    struct fr_kafka_source *source = self;
    (void)err;
    FR_CHECK(source->reader && (index < 0) == (source->queue != NULL));
    rd_kafka_message_t *message = source->aside;
    if (message) { /* polled before the check that followed the gap */
        source->aside = NULL;
        return give(source, message, out);
    }
    if (lost_contact(source, 0))
        return give_gap(source, out);
    message = receive(source, index, wait_ms);
    bool lost = lost_contact(source, wait_ms);
    if (!message) {
        rd_kafka_poll(source->reader, 0); /* error callbacks */
        drain_commits(source, 0);
        probe_connection(source);
        return give_client_error(source, out);
    }
    /* the message was in the queue when its partition was halted */
    if (!is_read(source, message)) {
        rd_kafka_message_destroy(message);
        return FR_AGAIN;
    }
    if (!lost)
        return give(source, message, out);
    source->aside = message;
    return give_gap(source, out);
}

static void release(void *self, struct fr_source_event *event)
{
    (void)self;
    if (event->handle)
        rd_kafka_message_destroy(event->handle);
    event->handle = NULL;
}

static size_t headers(void *self, const struct fr_source_event *event, struct fr_record_header *out, size_t capacity)
{
    (void)self;
    rd_kafka_headers_t *list;
    if (!event->handle || rd_kafka_message_headers(event->handle, &list) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return 0;
    size_t n = rd_kafka_header_cnt(list);
    for (size_t i = 0; i < n && i < capacity; i++)
        if (rd_kafka_header_get_all(list, i, &out[i].name, &out[i].value, &out[i].size) != RD_KAFKA_RESP_ERR_NO_ERROR)
            return i;
    return n;
}

/* Positions also name files, and topics that are no longer read. */
static bool is_topic(const struct fr_kafka_source *source, const char *name)
{
    for (uint32_t i = 0; i < source->conf->ingest.n_topics; i++)
        if (strcmp(source->conf->ingest.topics[i], name) == 0)
            return true;
    return false;
}

static void commit(void *self, const struct fr_positions *positions)
{
    struct fr_kafka_source *source = self;
    if (!source->reader)
        return;
    drain_commits(source, 0);
    /* the broker has not answered; the next durable epoch is committed later */
    if (source->n_commits)
        return;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)positions->count);
    for (uint32_t i = 0; i < positions->count; i++)
        if (positions->partitions[i].offset >= 0 && is_topic(source, positions->partitions[i].topic))
            rd_kafka_topic_partition_list_add(list, positions->partitions[i].topic, positions->partitions[i].partition)
                ->offset = positions->partitions[i].offset;
    if (list->cnt &&
        rd_kafka_commit_queue(source->reader, list, source->commits, NULL, NULL) == RD_KAFKA_RESP_ERR_NO_ERROR)
        source->n_commits++;
    rd_kafka_topic_partition_list_destroy(list);
}

static int64_t high(void *self, uint32_t index)
{
    struct fr_kafka_source *source = self;
    int64_t first, end;
    if (!source->reader ||
        rd_kafka_get_watermark_offsets(source->reader, source->names[index].topic, source->names[index].partition,
                                       &first, &end) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return -1;
    return end;
}

static bool connected(void *self, char *problem, size_t size)
{
    struct fr_kafka_source *source = self;
    if (source->reader && !source->health.down)
        return true;
    if (source->health.text[0])
        snprintf(problem, size, "brokers %s: %s", source->conf->ingest.brokers, source->health.text);
    else
        snprintf(problem, size, "brokers %s: not connected yet", source->conf->ingest.brokers);
    return false;
}

/* ---- life ---- */

static void kafka_source_free(struct fr_kafka_source *source)
{
    for (uint32_t i = 0; i < source->conf->ingest.n_topics; i++)
        free(source->topics[i].index);
    free(source->topics);
    free(source->order);
    free(source->names);
    free(source->partitions);
    fr_kafka_contact_free(source->contact);
    free(source);
}

static void source_close(void *self)
{
    struct fr_kafka_source *source = self;
    fr_ingest_kafka_shut(source, &source->probe, &source->probe_topics);
    if (source->reader) {
        for (uint32_t i = 0; i < source->n_partitions; i++)
            halt(source, i);
        drain_commits(source, COMMIT_CLOSE_MS);
        rd_kafka_queue_destroy(source->commits);
        if (source->queue)
            rd_kafka_queue_destroy(source->queue);
        fr_ingest_kafka_shut(source, &source->reader, &source->reader_topics);
    }
    kafka_source_free(source);
}

enum fr_status fr_ingest_kafka_source(const struct fr_conf *conf, bool per_partition, struct fr_source *out,
                                      struct fr_err *err)
{
    struct fr_kafka_source *source = fr_alloc(1, sizeof(*source));
    source->conf = conf;
    source->per_partition = per_partition;
    uint32_t n = conf->ingest.n_topics;
    source->topics = fr_alloc(n, sizeof(*source->topics));
    source->order = fr_alloc(n, sizeof(*source->order));
    for (uint32_t i = 0; i < n; i++) { /* topics in the order of their names */
        uint32_t at = i;
        for (; at > 0 && strcmp(conf->ingest.topics[source->order[at - 1]], conf->ingest.topics[i]) > 0; at--)
            source->order[at] = source->order[at - 1];
        source->order[at] = i;
    }
    /* properties are checked now, brokers later */
    enum fr_status status = fr_ingest_kafka_probe(source, err);
    if (status != FR_OK) {
        kafka_source_free(source);
        return status;
    }
    *out = (struct fr_source){
        .self = source,
        .discover = fr_ingest_kafka_discover,
        .offsets = fr_ingest_kafka_offsets,
        .marks = fr_ingest_kafka_marks,
        .policies = fr_ingest_kafka_policies,
        .checked = checked,
        .begin = begin,
        .halt = halt,
        .poll = poll_event,
        .rest = rest,
        .release = release,
        .headers = headers,
        .commit = commit,
        .high = high,
        .connected = connected,
        .close = source_close,
    };
    return FR_OK;
}
