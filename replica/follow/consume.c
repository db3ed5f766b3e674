/* A topic through librdkafka's consumer with one queue per partition, so that this file decides the
 * order between partitions (see consume.h). librdkafka stops fetching a partition whose queue is
 * full, which bounds what waits. Partitions are assigned by hand. An offset that disappears while
 * it is needed (retention, a topic that was deleted and created again) is an error and is never
 * skipped.
 *
 * Thread: the caller's. Records are parsed by the caller. */
#include "follow/consume.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kafka/kafka.h"

enum { POLL_MS = 5, LOG_INTERVAL_S = 10 };

struct partition {
    int32_t number;
    rd_kafka_queue_t *queue;
    int64_t low; /* when the topic was opened */
    int64_t end; /* at the open, or at a refresh since */
    /* the next offset to read, or the end that the broker reported: logs have holes */
    int64_t position;
    uint64_t rank;
};

struct fr_consumer {
    rd_kafka_t *handle;
    char *topic;
    size_t n;
    struct partition *partitions;
    uint64_t ahead_max;
    rd_kafka_message_t *message; /* borrowed by the caller */
    unsigned long long logged_ns;
    char outage[FR_KAFKA_TEXT_MAX]; /* the newest reason, until something arrives; "": none */
};

/* ---- open ---- */

static void log_outage(struct fr_consumer *consumer)
{
    char quoted[600];
    if (fr_log_due(&consumer->logged_ns, fr_mono_ns(fr_clock_system()), LOG_INTERVAL_S * 1000000000ull))
        fr_log(FR_LOG_WARN, "kafka", "waiting", "topic=%s reason=%s", consumer->topic,
               fr_log_quote(quoted, sizeof(quoted), consumer->outage));
}

/* librdkafka keeps trying after these errors. */
static void on_error(rd_kafka_t *client, int code, const char *reason, void *opaque)
{
    struct fr_consumer *consumer = opaque;
    (void)client;
    if (fr_kafka_explain_connection(code, reason, consumer->outage, sizeof(consumer->outage)))
        log_outage(consumer);
}

/* Without a consumer only the properties are checked. */
static enum fr_status make_handle(const struct fr_consume_options *options, struct fr_consumer *consumer,
                                  struct fr_err *err)
{
    rd_kafka_t **out = consumer ? &consumer->handle : NULL;
    static const struct fr_kafka_setting ours[] = {
        {"group.id", "freshet.follow"}, /* required for assigning; never joined */
        {"enable.auto.commit", "false"},
        {"auto.offset.reset", "error"},
        {"enable.partition.eof", "true"},
        {"isolation.level", "read_uncommitted"}, /* transactions of other producers hide nothing */
        {"fetch.wait.max.ms", "20"},
        {"socket.timeout.ms", "10000"}, /* a broker that hangs counts as unavailable */
        {NULL, NULL},
    };
    enum fr_status status = fr_kafka_open(&(struct fr_kafka_options){.type = RD_KAFKA_CONSUMER,
                                                                     .brokers = options->brokers,
                                                                     .name = "follow",
                                                                     .ours = ours,
                                                                     .file = options->kafka_file,
                                                                     .opaque = consumer,
                                                                     .on_error = on_error,
                                                                     .texts = options->properties,
                                                                     .n_texts = options->n_properties},
                                          out, err);
    if (status == FR_OK && out)
        rd_kafka_poll_set_consumer(*out);
    return status;
}

enum fr_status fr_consumer_check(const struct fr_consume_options *options, struct fr_err *err)
{
    return make_handle(options, NULL, err);
}

static enum fr_status count_partitions(struct fr_consumer *consumer, size_t *count, struct fr_err *err)
{
    struct fr_kafka_topic found;
    rd_kafka_resp_err_t error =
        fr_kafka_topic_ask(consumer->handle, consumer->topic, false, FR_CONSUME_TIMEOUT_MS, &found);
    if (error) {
        /* reports errors */
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer->handle, 0);
        if (message)
            rd_kafka_message_destroy(message);
        return fr_err_set(err, FR_E_UNAVAILABLE, "no answer from the brokers about topic %s: %s%s%s", consumer->topic,
                          rd_kafka_err2str(error), consumer->outage[0] ? ": " : "", consumer->outage);
    }
    if (found.partitions == 0)
        return fr_err_set(err, found.error ? FR_E_UNAVAILABLE : FR_E_NOT_FOUND, "topic %s: %s", consumer->topic,
                          rd_kafka_err2str(found.error ? found.error : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART));
    if (found.partitions > FR_CONSUME_PARTITIONS_MAX)
        return fr_err_set(err, FR_E_LIMIT, "topic %s has %" PRIu32 " partitions, more than %d", consumer->topic,
                          found.partitions, FR_CONSUME_PARTITIONS_MAX);
    *count = found.partitions;
    return FR_OK;
}

static enum fr_status choose_partitions(struct fr_consumer *consumer, const struct fr_consume_options *options,
                                        struct fr_err *err)
{
    size_t count = 0;
    enum fr_status status = count_partitions(consumer, &count, err);
    if (status != FR_OK)
        return status;
    size_t n = options->partitions ? options->n_partitions : count;
    consumer->partitions = fr_alloc(n ? n : 1, sizeof(*consumer->partitions));
    for (size_t i = 0; i < n; i++) {
        uint32_t number = options->partitions ? options->partitions[i] : (uint32_t)i;
        if (number >= count)
            return fr_err_set(err, FR_E_INVALID, "topic %s has %zu partitions, none of number %" PRIu32,
                              consumer->topic, count, number);
        consumer->partitions[i] = (struct partition){.number = (int32_t)number};
    }
    consumer->n = n;
    return FR_OK;
}

static int64_t begin_of(const struct fr_consume_options *options, const struct partition *p)
{
    int64_t wanted = options->begin ? options->begin(options->self, (uint32_t)p->number) : -1;
    return wanted > p->low && wanted <= p->end ? wanted - 1 : p->low;
}

static enum fr_status assign(struct fr_consumer *consumer, const struct fr_consume_options *options, struct fr_err *err)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)consumer->n);
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < consumer->n && status == FR_OK; i++) {
        struct partition *p = &consumer->partitions[i];
        rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(consumer->handle, consumer->topic, p->number,
                                                                     &p->low, &p->end, FR_CONSUME_TIMEOUT_MS);
        if (error) {
            status = fr_err_set(err, FR_E_UNAVAILABLE, "the offsets of %s/%" PRId32 ": %s", consumer->topic, p->number,
                                rd_kafka_err2str(error));
            break;
        }
        p->position = begin_of(options, p);
        p->queue = rd_kafka_queue_get_partition(consumer->handle, consumer->topic, p->number);
        if (!p->queue) {
            status = fr_err_set(err, FR_E_UNAVAILABLE, "%s/%" PRId32 " is not known", consumer->topic, p->number);
            break;
        }
        rd_kafka_queue_forward(p->queue, NULL); /* its own queue, not the consumer's */
        rd_kafka_topic_partition_list_add(list, consumer->topic, p->number)->offset = p->position;
    }
    if (status == FR_OK) {
        rd_kafka_resp_err_t error = rd_kafka_assign(consumer->handle, list);
        if (error)
            status = fr_err_set(err, FR_E_UNAVAILABLE, "assigning %s: %s", consumer->topic, rd_kafka_err2str(error));
    }
    rd_kafka_topic_partition_list_destroy(list);
    return status;
}

enum fr_status fr_consumer_open(const struct fr_consume_options *options, struct fr_consumer **out, struct fr_err *err)
{
    struct fr_consumer *consumer = fr_alloc(1, sizeof(*consumer));
    consumer->topic = fr_strdup(options->topic);
    consumer->ahead_max = options->ahead_max;
    enum fr_status status = make_handle(options, consumer, err);
    if (status == FR_OK)
        status = choose_partitions(consumer, options, err);
    if (status == FR_OK)
        status = assign(consumer, options, err);
    if (status != FR_OK) {
        fr_consumer_close(consumer);
        return status;
    }
    *out = consumer;
    return FR_OK;
}

void fr_consumer_close(struct fr_consumer *consumer)
{
    if (!consumer)
        return;
    if (consumer->message)
        rd_kafka_message_destroy(consumer->message);
    for (size_t i = 0; i < consumer->n; i++)
        if (consumer->partitions[i].queue)
            rd_kafka_queue_destroy(consumer->partitions[i].queue);
    if (consumer->handle) {
        /* nothing here depends on the result */
        (void)rd_kafka_consumer_close(consumer->handle);
        rd_kafka_destroy(consumer->handle);
    }
    free(consumer->partitions);
    free(consumer->topic);
    free(consumer);
}

size_t fr_consumer_count(const struct fr_consumer *consumer)
{
    return consumer->n;
}

struct fr_consumer_place fr_consumer_place(const struct fr_consumer *consumer, size_t index)
{
    FR_CHECK(index < consumer->n);
    const struct partition *p = &consumer->partitions[index];
    return (struct fr_consumer_place){
        .partition = p->number, .low = p->low, .end = p->end, .left = p->rank == UINT64_MAX};
}

enum fr_status fr_consumer_refresh(struct fr_consumer *consumer, int wait_ms, struct fr_err *err)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)consumer->n);
    for (size_t i = 0; i < consumer->n; i++)
        rd_kafka_topic_partition_list_add(list, consumer->topic, consumer->partitions[i].number)->offset =
            RD_KAFKA_OFFSET_END;
    rd_kafka_resp_err_t error = rd_kafka_offsets_for_times(consumer->handle, list, wait_ms);
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < consumer->n && status == FR_OK; i++) {
        const rd_kafka_topic_partition_t *answer = &list->elems[i];
        rd_kafka_resp_err_t code = error ? error : answer->err;
        if (code || answer->offset < 0)
            status = fr_err_set(err, FR_E_UNAVAILABLE, "the offsets of %s/%" PRId32 ": %s", consumer->topic,
                                answer->partition, code ? rd_kafka_err2str(code) : "the broker does not say its end");
        else
            consumer->partitions[i].end = answer->offset;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return status;
}

/* ---- next ---- */

static uint64_t lowest_rank(const struct fr_consumer *consumer)
{
    uint64_t lowest = UINT64_MAX;
    for (size_t i = 0; i < consumer->n; i++)
        if (consumer->partitions[i].rank < lowest)
            lowest = consumer->partitions[i].rank;
    return lowest;
}

static bool within_reach(const struct fr_consumer *consumer, const struct partition *partition, uint64_t lowest)
{
    return partition->rank - lowest <= consumer->ahead_max;
}

static enum fr_status judge_error(struct fr_consumer *consumer, const rd_kafka_message_t *message, struct fr_err *err)
{
    switch (message->err) {
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        return fr_err_set(err, FR_E_LOST, "%s/%" PRId32 ": records were deleted before they were read (%s)",
                          consumer->topic, message->partition, rd_kafka_message_errstr(message));
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
        return fr_err_set(err, FR_E_DENIED, "topic %s: %s", consumer->topic, rd_kafka_message_errstr(message));
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s is not there any more: %s", consumer->topic,
                          rd_kafka_message_errstr(message));
    default: /* librdkafka keeps trying */
        fr_kafka_explain(message->err, rd_kafka_message_errstr(message), consumer->outage, sizeof(consumer->outage));
        log_outage(consumer);
        return FR_AGAIN;
    }
}

/* Handles one message of the partition's queue: a record, the end, or an error. FR_AGAIN: there is
 * no message, or none of use. */
static enum fr_status consume_one(struct fr_consumer *consumer, struct partition *partition, struct fr_consumed *out,
                                  struct fr_err *err)
{
    rd_kafka_message_t *message = rd_kafka_consume_queue(partition->queue, 0);
    if (!message)
        return FR_AGAIN;
    enum fr_status status = FR_AGAIN;
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        if (message->offset > partition->position)
            partition->position = message->offset;
        consumer->outage[0] = '\0';
    } else if (message->err) {
        status = judge_error(consumer, message, err);
    } else {
        partition->position = message->offset + 1;
        consumer->outage[0] = '\0';
        *out = (struct fr_consumed){.index = (uint32_t)(partition - consumer->partitions),
                                    .partition = message->partition,
                                    .offset = message->offset,
                                    .bytes = message->payload,
                                    .size = message->len};
        consumer->message = message;
        return FR_OK;
    }
    rd_kafka_message_destroy(message);
    return status;
}

/* Takes from the lowest rank first, then from any partition within reach. */
static enum fr_status consume_any(struct fr_consumer *consumer, struct fr_consumed *out, struct fr_err *err)
{
    uint64_t lowest = lowest_rank(consumer);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < consumer->n; i++) {
            struct partition *partition = &consumer->partitions[i];
            if ((partition->rank == lowest) != (pass == 0) || !within_reach(consumer, partition, lowest))
                continue;
            enum fr_status status = consume_one(consumer, partition, out, err);
            if (status != FR_AGAIN)
                return status;
        }
    return FR_AGAIN;
}

enum fr_status fr_consumer_next(struct fr_consumer *consumer, int wait_ms, struct fr_consumed *out, struct fr_err *err)
{
    if (consumer->message)
        rd_kafka_message_destroy(consumer->message);
    consumer->message = NULL;
    uint64_t until_ns = fr_mono_ns(fr_clock_system()) + (uint64_t)wait_ms * 1000000u;
    for (;;) {
        enum fr_status status = consume_any(consumer, out, err);
        if (status != FR_AGAIN)
            return status;
        if (fr_mono_ns(fr_clock_system()) >= until_ns)
            return FR_AGAIN;
        /* Errors that belong to no partition. The call is also the pause between two attempts. */
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer->handle, POLL_MS);
        if (!message)
            continue;
        status = message->err && message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF ? judge_error(consumer, message, err)
                                                                                  : FR_AGAIN;
        rd_kafka_message_destroy(message);
        if (status != FR_AGAIN)
            return status;
    }
}

void fr_consumer_rank(struct fr_consumer *consumer, uint32_t index, uint64_t rank)
{
    FR_CHECK(index < consumer->n);
    consumer->partitions[index].rank = rank;
}

void fr_consumer_leave(struct fr_consumer *consumer, uint32_t from)
{
    for (size_t i = 0; i < consumer->n; i++)
        if ((uint32_t)consumer->partitions[i].number >= from)
            consumer->partitions[i].rank = UINT64_MAX; /* out of reach of every other partition */
}

const char *fr_consumer_outage(const struct fr_consumer *consumer)
{
    return consumer->outage[0] ? consumer->outage : NULL;
}

uint64_t fr_consumer_lag(const struct fr_consumer *consumer)
{
    uint64_t lag = 0;
    for (size_t i = 0; i < consumer->n; i++) {
        const struct partition *p = &consumer->partitions[i];
        int64_t low = 0, end = 0;
        if (p->rank == UINT64_MAX)
            continue;
        /* Uses what the last fetch reported, without a request to a broker. Before the first fetch
         * nothing is known. */
        if (rd_kafka_get_watermark_offsets(consumer->handle, consumer->topic, p->number, &low, &end) !=
                RD_KAFKA_RESP_ERR_NO_ERROR ||
            end < p->end)
            end = p->end;
        if (end > p->position)
            lag += (uint64_t)(end - p->position);
    }
    return lag;
}

bool fr_consumer_ended(const struct fr_consumer *consumer)
{
    uint64_t lowest = lowest_rank(consumer);
    for (size_t i = 0; i < consumer->n; i++) {
        const struct partition *p = &consumer->partitions[i];
        if (p->position < p->end && within_reach(consumer, p, lowest))
            return false;
    }
    return true;
}
