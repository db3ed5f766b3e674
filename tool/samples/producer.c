/* See producer.h.
 *
 * The topic is looked up in the list of all topics, so that the lookup does not create it. It is
 * created through the admin interface. Where that gives no answer (the embedded broker), it is
 * created by requesting its metadata, with a warning, because the broker then chooses the partition
 * count. Pacing computes, per partition, the next offset as the log's end at start plus the records
 * sent since (only this process should write), and requests the group's committed offsets only when
 * the limit seems reached. One request is in flight at a time: with more, the first records of a
 * partition may be reported as delivered and be lost (fr_kafka_refusal), which counts as failed. */
#include "samples/producer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kafka/kafka.h"

enum {
    METADATA_WAIT_MS = 10000,
    GROUP_WAIT_MS = 5000,
    PACE_POLL_MS = 20, /* between two requests for the group's offsets */
    QUEUE_POLL_MS = 5,
};

struct place {
    int64_t next;      /* the offset of the next record sent */
    int64_t committed; /* the group's position */
    int64_t begin;     /* the offset at which a group without a position starts */
};

struct fr_tool_producer {
    rd_kafka_t *handle;
    rd_kafka_topic_t *topic;
    rd_kafka_t *group; /* consumer handle for committed(); NULL: no pacing */
    uint32_t n_partitions;
    struct place *places;
    uint64_t max_ahead;
    const volatile sig_atomic_t *stop;
    uint64_t stop_ns; /* 0: never */
    struct fr_tool_producer_totals totals;
    const char *refused;          /* the reason of the first refusal; NULL: none */
    char said[FR_KAFKA_TEXT_MAX]; /* the last connection error; "": none */
};

static void on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque)
{
    (void)handle;
    struct fr_tool_producer *producer = opaque;
    char before[FR_KAFKA_TEXT_MAX], quoted[2 * FR_KAFKA_TEXT_MAX];
    memcpy(before, producer->said, sizeof(before));
    (void)fr_kafka_explain_connection(code, reason, producer->said, sizeof(producer->said));
    if (strcmp(before, producer->said) != 0)
        fr_log(FR_LOG_WARN, "produce", "connection", "reason=%s", fr_log_quote(quoted, sizeof(quoted), producer->said));
}

static void on_delivery(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque)
{
    (void)handle;
    struct fr_tool_producer *producer = opaque;
    const char *refusal = fr_kafka_refusal(message);
    if (!refusal) {
        producer->totals.acknowledged++;
        return;
    }
    producer->totals.failed++;
    if (!producer->refused)
        producer->refused = refusal;
}

/* ---- opening ---- */

static enum fr_status open_handle(const struct fr_tool_producer_options *o, struct fr_tool_producer *producer,
                                  bool producing, rd_kafka_t **out, struct fr_err *err)
{
    static const struct fr_kafka_setting sending[] = {
        {"enable.idempotence", "true"},
        {"max.in.flight", "1"},
        {"log.connection.close", "true"}, /* shows what a listener of another protocol does */
        {"linger.ms", "5"},
        {"compression.codec", "lz4"},
        {"queue.buffering.max.messages", "200000"},
        {"queue.buffering.max.kbytes", "131072"},
        {NULL, NULL},
    };
    const struct fr_kafka_setting asking[] = {{"group.id", o->group}, {NULL, NULL}};
    return fr_kafka_open(&(struct fr_kafka_options){.type = producing ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER,
                                                    .brokers = o->brokers,
                                                    .name = "produce",
                                                    .ours = producing ? sending : asking,
                                                    .file = o->kafka_file,
                                                    .texts = o->kafka,
                                                    .n_texts = o->n_kafka,
                                                    .opaque = producer,
                                                    .on_error = producing ? on_error : NULL,
                                                    .on_delivery = producing ? on_delivery : NULL},
                         out, err);
}

/* Returns the number of the topic's partitions if all have a leader, otherwise 0. With `make`,
 * requests the metadata of this topic alone, which makes brokers that allow it create the topic. */
static enum fr_status look_up(struct fr_tool_producer *producer, const char *topic, bool make,
                              struct fr_kafka_topic *found, struct fr_err *err)
{
    rd_kafka_resp_err_t error = fr_kafka_topic_ask(producer->handle, topic, !make, METADATA_WAIT_MS, found);
    rd_kafka_poll(producer->handle, 0); /* handles connection errors */
    if (error)
        return fr_err_set(err, FR_E_UNAVAILABLE, "no answer from the brokers: %s%s%s", rd_kafka_err2str(error),
                          producer->said[0] ? ": " : "", producer->said);
    producer->n_partitions = found->led ? found->partitions : 0;
    return FR_OK;
}

/* Waits for a new topic: it is announced, and its leaders are chosen, shortly after it is
 * created. */
static enum fr_status wait_for_topic(struct fr_tool_producer *producer, const char *topic, bool make,
                                     struct fr_err *err)
{
    const struct fr_clock *clock = fr_clock_system();
    uint64_t end = fr_mono_ns(clock) + METADATA_WAIT_MS * UINT64_C(1000000);
    struct fr_kafka_topic found;
    while (!(producer->stop && *producer->stop)) {
        enum fr_status status = look_up(producer, topic, make, &found, err);
        if (status != FR_OK || producer->n_partitions > 0)
            return status;
        if (fr_mono_ns(clock) > end)
            return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s does not appear", topic);
        rd_kafka_poll(producer->handle, PACE_POLL_MS);
    }
    return fr_err_set(err, FR_E_UNAVAILABLE, "stopped");
}

static enum fr_status find_topic(struct fr_tool_producer *producer, const struct fr_tool_producer_options *o,
                                 struct fr_err *err)
{
    struct fr_kafka_topic found;
    enum fr_status status = look_up(producer, o->topic, false, &found, err);
    if (status != FR_OK)
        return status;
    if (producer->n_partitions == 0) {
        uint32_t partitions = o->partitions ? o->partitions : 1;
        if (found.administrable)
            status = fr_kafka_topic_create(
                producer->handle, &(struct fr_kafka_new_topic){.name = o->topic, .partitions = partitions}, err);
        bool unanswered = !found.administrable || status == FR_AGAIN;
        if (status != FR_OK && !unanswered) {
            (void)fr_err_wrap(err, "topic %s cannot be made", o->topic);
            return status;
        }
        status = wait_for_topic(producer, o->topic, unanswered, err);
        if (status != FR_OK)
            return status;
        if (unanswered)
            fr_log(FR_LOG_WARN, "produce", "topic_by_broker",
                   "topic=%s partitions=%" PRIu32 " reason=\"the broker does not make topics on request\"", o->topic,
                   producer->n_partitions);
    }
    /* Only after the lookup of the topic: librdkafka requests metadata of every opened topic, and
     * the request creates it. */
    producer->topic = rd_kafka_topic_new(producer->handle, o->topic, NULL);
    if (!producer->topic)
        return fr_err_set(err, FR_E_INVALID, "topic %s: %s", o->topic, rd_kafka_err2str(rd_kafka_last_error()));
    if (producer->n_partitions > FR_PRODUCER_PARTITIONS_MAX)
        return fr_err_set(err, FR_E_LIMIT, "topic %s has more than %d partitions", o->topic,
                          FR_PRODUCER_PARTITIONS_MAX);
    if (o->partitions && o->partitions != producer->n_partitions)
        fr_log(FR_LOG_WARN, "produce", "partitions_differ", "topic=%s asked=%" PRIu32 " used=%" PRIu32, o->topic,
               o->partitions, producer->n_partitions);
    return FR_OK;
}

/* Retries while the partition has no leader, which is temporary. */
static rd_kafka_resp_err_t ask_ends(struct fr_tool_producer *producer, const char *topic, uint32_t p)
{
    const struct fr_clock *clock = fr_clock_system();
    uint64_t end = fr_mono_ns(clock) + METADATA_WAIT_MS * UINT64_C(1000000);
    for (;;) {
        struct place *place = &producer->places[p];
        rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(producer->handle, topic, (int32_t)p, &place->begin,
                                                                     &place->next, METADATA_WAIT_MS);
        if (!error || (producer->stop && *producer->stop) || fr_mono_ns(clock) > end)
            return error;
        rd_kafka_poll(producer->handle, PACE_POLL_MS);
    }
}

static enum fr_status start_pacing(struct fr_tool_producer *producer, const struct fr_tool_producer_options *o,
                                   struct fr_err *err)
{
    if (!o->max_ahead)
        return FR_OK;
    producer->max_ahead = o->max_ahead;
    for (uint32_t p = 0; p < producer->n_partitions; p++) {
        struct place *place = &producer->places[p];
        rd_kafka_resp_err_t error = ask_ends(producer, o->topic, p);
        if (error)
            return fr_err_set(err, FR_E_UNAVAILABLE, "end of %s[%" PRIu32 "]: %s", o->topic, p,
                              rd_kafka_err2str(error));
        place->committed = place->begin;
    }
    return open_handle(o, producer, false, &producer->group, err);
}

enum fr_status fr_tool_producer_open(const struct fr_tool_producer_options *options, struct fr_tool_producer **out,
                                     struct fr_err *err)
{
    struct fr_tool_producer *producer = fr_alloc(1, sizeof(*producer));
    producer->stop = options->stop;
    enum fr_status status = open_handle(options, producer, true, &producer->handle, err);
    if (status == FR_OK)
        status = find_topic(producer, options, err);
    if (status == FR_OK) {
        producer->places = fr_alloc(producer->n_partitions, sizeof(*producer->places));
        status = start_pacing(producer, options, err);
    }
    if (status == FR_OK)
        *out = producer;
    else
        fr_tool_producer_close(producer);
    return status;
}

void fr_tool_producer_close(struct fr_tool_producer *producer)
{
    if (!producer)
        return;
    if (producer->handle)
        rd_kafka_purge(producer->handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    if (producer->topic)
        rd_kafka_topic_destroy(producer->topic);
    if (producer->group)
        rd_kafka_destroy(producer->group);
    if (producer->handle)
        rd_kafka_destroy(producer->handle);
    free(producer->places);
    free(producer);
}

uint32_t fr_tool_producer_partitions(const struct fr_tool_producer *producer)
{
    return producer->n_partitions;
}

struct fr_tool_producer_totals fr_tool_producer_totals(const struct fr_tool_producer *producer)
{
    return producer->totals;
}

/* ---- sending ---- */

void fr_tool_producer_stop_at(struct fr_tool_producer *producer, uint64_t mono_ns)
{
    producer->stop_ns = mono_ns;
}

static bool stopped(const struct fr_tool_producer *producer)
{
    return (producer->stop && *producer->stop) ||
           (producer->stop_ns && fr_mono_ns(fr_clock_system()) >= producer->stop_ns);
}

/* Requests the group's offsets. After an error the wait continues, and the next round requests them
 * again. */
static void ask_group(struct fr_tool_producer *producer)
{
    const char *topic = rd_kafka_topic_name(producer->topic);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)producer->n_partitions);
    for (uint32_t p = 0; p < producer->n_partitions; p++)
        rd_kafka_topic_partition_list_add(list, topic, (int32_t)p);
    rd_kafka_resp_err_t error = rd_kafka_committed(producer->group, list, GROUP_WAIT_MS);
    if (error)
        fr_log(FR_LOG_DEBUG, "produce", "group_unknown", "reason=\"%s\"", rd_kafka_err2str(error));
    for (int i = 0; !error && i < list->cnt; i++) {
        struct place *place = &producer->places[list->elems[i].partition];
        place->committed = list->elems[i].offset >= 0 ? list->elems[i].offset : place->begin;
    }
    rd_kafka_topic_partition_list_destroy(list);
}

static enum fr_status wait_for_group(struct fr_tool_producer *producer, const struct place *place)
{
    while (place->next - place->committed >= (int64_t)producer->max_ahead) {
        ask_group(producer);
        if (place->next - place->committed < (int64_t)producer->max_ahead)
            break;
        if (stopped(producer))
            return FR_AGAIN;
        rd_kafka_poll(producer->handle, PACE_POLL_MS);
    }
    return FR_OK;
}

static enum fr_status refusal(const struct fr_tool_producer *producer, struct fr_err *err)
{
    return fr_err_set(err, FR_E_UNAVAILABLE, "%" PRIu64 " records were not taken, first reason: %s",
                      producer->totals.failed, producer->refused);
}

/* producev carries the timestamp; 0 means the present time. */
static rd_kafka_resp_err_t enqueue(struct fr_tool_producer *producer, uint32_t partition, const void *bytes,
                                   size_t size, int64_t t_ms)
{
    return rd_kafka_producev(producer->handle, RD_KAFKA_V_RKT(producer->topic),
                             RD_KAFKA_V_PARTITION((int32_t)partition), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                             RD_KAFKA_V_VALUE((void *)(uintptr_t)bytes, size), RD_KAFKA_V_TIMESTAMP(t_ms),
                             RD_KAFKA_V_END);
}

enum fr_status fr_tool_producer_send(struct fr_tool_producer *producer, uint32_t partition, const void *bytes,
                                     size_t size, int64_t t_ms, struct fr_err *err)
{
    FR_CHECK(partition < producer->n_partitions);
    struct place *place = &producer->places[partition];
    if (producer->max_ahead && wait_for_group(producer, place) == FR_AGAIN)
        return FR_AGAIN;
    for (;;) {
        if (producer->refused)
            return refusal(producer, err);
        rd_kafka_resp_err_t error = enqueue(producer, partition, bytes, size, t_ms);
        if (!error)
            break;
        if (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
            return fr_err_set(err, FR_E_LIMIT, "a record of %zu bytes is larger than message.max.bytes", size);
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            return fr_err_set(err, FR_E_UNAVAILABLE, "%s", rd_kafka_err2str(error));
        if (stopped(producer))
            return FR_AGAIN;
        rd_kafka_poll(producer->handle, QUEUE_POLL_MS);
    }
    place->next++;
    producer->totals.records++;
    producer->totals.bytes += size;
    rd_kafka_poll(producer->handle, 0);
    return FR_OK;
}

void fr_tool_producer_poll(struct fr_tool_producer *producer, int wait_ms)
{
    rd_kafka_poll(producer->handle, wait_ms);
}

enum fr_status fr_tool_producer_finish(struct fr_tool_producer *producer, struct fr_err *err)
{
    while (rd_kafka_outq_len(producer->handle) > 0)
        rd_kafka_flush(producer->handle, 1000);
    return producer->refused ? refusal(producer, err) : FR_OK;
}
