/* Reading the delta topic back: the ends of all partitions, and the records of spans of offsets.
 *
 * Both cover all partitions at once, because a topic of a thousand partitions must not take a
 * thousand round trips, and a partition without a leader must not delay the answers about the
 * others. A record without a valid crc is a stray: it is counted, logged and skipped, as replicas
 * do. The visitor gets the envelope of every other record; values are not kept.
 *
 * Thread: the publisher thread. Records are not judged here. */
#include "publisher_topic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

enum { POLL_MS = 100 };

enum fr_status fr_publisher_reader_open(struct fr_publisher_board *board, rd_kafka_t **out, struct fr_err *err)
{
    static const struct fr_kafka_setting required[] = {
        {"group.id", "freshet.check"},
        {"enable.auto.commit", "false"},
        {"enable.partition.eof", "true"},
        {"auto.offset.reset", "earliest"},
        {"allow.auto.create.topics", "false"},
        {"isolation.level", "read_uncommitted"}, /* other producers' transactions hide nothing */
        {"fetch.wait.max.ms", "10"},
        {"log.connection.close", "true"}, /* shows a listener of another protocol */
        {NULL, NULL},
    };
    rd_kafka_t *client;
    struct fr_kafka_options options = {.type = RD_KAFKA_CONSUMER, .required = required};
    enum fr_status status = fr_publisher_client(board, options, &client, err);
    if (status != FR_OK || board->report)
        return status;
    (void)rd_kafka_poll_set_consumer(client);
    *out = client;
    return FR_OK;
}

void fr_publisher_reader_close(rd_kafka_t *client)
{
    if (!client)
        return;
    (void)rd_kafka_consumer_close(client);
    rd_kafka_destroy(client);
}

/* Queries the offset that `which` (RD_KAFKA_OFFSET_BEGINNING or _END) stands for, of all partitions
 * of this publisher. */
static enum fr_status ask_offsets(const struct fr_publisher_board *board, rd_kafka_t *client, int64_t which,
                                  int64_t *out, struct fr_err *err)
{
    const char *topic = board->options.topic;
    uint32_t first = board->options.first_partition, end = board->options.end_partition;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)(end - first));
    for (uint32_t p = first; p < end; p++)
        rd_kafka_topic_partition_list_add(list, topic, (int32_t)p)->offset = which;
    rd_kafka_resp_err_t error = rd_kafka_offsets_for_times(client, list, BROKER_TIMEOUT_MS);
    enum fr_status status = FR_OK;
    if (error)
        status = fr_err_set(err, FR_E_UNAVAILABLE, "topic %s: %s", topic, rd_kafka_err2str(error));
    for (int i = 0; i < list->cnt && status == FR_OK; i++) {
        const rd_kafka_topic_partition_t *answer = &list->elems[i];
        if (answer->err || answer->offset < 0)
            status =
                fr_err_set(err, FR_E_UNAVAILABLE, "topic %s partition %d: %s", topic, (int)answer->partition,
                           answer->err ? rd_kafka_err2str(answer->err) : "the broker does not report where it ends");
        else
            out[answer->partition] = answer->offset;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return status;
}

enum fr_status fr_publisher_ends(const struct fr_publisher_board *board, rd_kafka_t *client, int64_t *low,
                                 int64_t *high, struct fr_err *err)
{
    enum fr_status status = ask_offsets(board, client, RD_KAFKA_OFFSET_BEGINNING, low, err);
    return status == FR_OK ? ask_offsets(board, client, RD_KAFKA_OFFSET_END, high, err) : status;
}

static void parse_envelope(const rd_kafka_message_t *message, struct fr_topic_record *out)
{
    struct fr_delta_record record;
    struct fr_err problem = {0};
    rd_kafka_timestamp_type_t type;
    *out = (struct fr_topic_record){.found = true, .offset = message->offset};
    out->written_ms = rd_kafka_message_timestamp(message, &type);
    out->status = fr_delta_read(message->payload, message->len, &record, &problem);
    memcpy(out->problem, problem.text, sizeof(out->problem));
    out->problem[sizeof(out->problem) - 1] = '\0';
    if (out->status != FR_OK)
        return;
    out->kind = record.kind;
    out->timeline = record.timeline;
    out->epoch = record.epoch;
    out->from = record.from;
    out->digest = record.digest;
    out->partition = record.partition;
    out->np = record.np;
    out->piece = record.piece;
    snprintf(out->model, sizeof(out->model), "%.*s", (int)record.model.size, record.model.bytes);
}

static void note_stray(struct fr_publisher_board *board, struct fr_topic_span *span,
                       const struct fr_topic_record *stray)
{
    char quoted[300];
    span->strays += 1;
    if (fr_log_due(&board->stray_logged_ns, fr_mono_ns(board->options.clock), UINT64_C(10000000000)))
        fr_log(
            FR_LOG_WARN, "publisher", "stray_record",
            "topic=%s partition=%" PRId32 " offset=%" PRId64 " problem=%s note=\"it is skipped, here and by replicas; "
            "find out who else may write to the topic\"",
            board->options.topic, span->partition, stray->offset, fr_log_quote(quoted, sizeof(quoted), stray->problem));
}

static struct fr_topic_span *span_of(struct fr_topic_span *spans, size_t n, int32_t partition)
{
    for (size_t i = 0; i < n; i++)
        if (spans[i].partition == partition)
            return &spans[i];
    return NULL;
}

/* Visits one polled message. Returns whether its span is done. */
static bool visit_message(struct fr_publisher_board *board, const rd_kafka_message_t *message,
                          struct fr_topic_span *span, const struct fr_topic_visitor *visitor)
{
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
        return true;
    if (message->err)
        return false; /* polling continues until the deadline */
    struct fr_topic_record record;
    bool enough = false;
    if (message->offset < span->to) {
        parse_envelope(message, &record);
        if (record.status == FR_E_CORRUPT)
            note_stray(board, span, &record);
        else
            enough = visitor->record(visitor->self, span->partition, &record);
    }
    return enough || message->offset >= span->to - 1;
}

enum fr_status fr_publisher_read(const struct fr_topic_reading *reading, const struct fr_topic_visitor *visitor,
                                 struct fr_err *err)
{
    const char *topic = reading->board->options.topic;
    struct fr_topic_span *spans = reading->spans;
    size_t n = reading->n;
    const struct fr_clock *clock =
        fr_clock_system(); /* real time, even under a fake clock: brokers wait in real time */
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        spans[i].done = spans[i].from >= spans[i].to;
        if (spans[i].done)
            continue;
        rd_kafka_topic_partition_list_add(list, topic, spans[i].partition)->offset = spans[i].from;
        left++;
    }
    rd_kafka_resp_err_t error = left > 0 ? rd_kafka_assign(reading->client, list) : RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_topic_partition_list_destroy(list);
    if (error)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s: %s", topic, rd_kafka_err2str(error));
    uint64_t deadline = fr_mono_ns(clock) + UINT64_C(1000000) * BROKER_TIMEOUT_MS;
    while (left > 0 && fr_mono_ns(clock) < deadline) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reading->client, POLL_MS);
        if (!message)
            continue;
        struct fr_topic_span *span = span_of(spans, n, message->partition);
        if (span && !span->done) {
            span->done = visit_message(reading->board, message, span, visitor);
            left -= span->done;
            if (!message->err || span->done) /* the broker answers */
                deadline = fr_mono_ns(clock) + UINT64_C(1000000) * BROKER_TIMEOUT_MS;
        }
        rd_kafka_message_destroy(message);
    }
    (void)rd_kafka_assign(reading->client, NULL);
    for (size_t i = 0; i < n && left > 0; i++)
        if (!spans[i].done)
            return fr_err_set(err, FR_E_UNAVAILABLE,
                              "records of topic %s partition %" PRId32 " from offset %" PRId64
                              " on did not arrive in time",
                              topic, spans[i].partition, spans[i].from);
    return FR_OK;
}
