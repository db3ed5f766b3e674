/* The newest records of a topic: their offsets are chosen from the ends of the partitions, then the
 * partitions are assigned by hand and read up to these ends.
 *
 * Records arrive in any order of partitions and are sorted at the end, so that the same log gives
 * the same sample. Records of transactions that were aborted are left out by the client.
 *
 * Owner: the caller's thread. */
#include "sampled.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "kafka/kafka.h"

enum { ANSWER_MS = 5000, POLL_MS = 100, PARTITIONS_MAX = 4096 };

struct partition {
    int64_t low, end, from;
    bool read; /* up to the end */
};

struct reading {
    rd_kafka_t *client;
    const struct fr_proposal_options *options;
    struct partition *partitions;
    uint32_t n, unread;
    char problem[FR_KAFKA_TEXT_MAX]; /* the last error of a connection; "": none */
};

static void on_error(rd_kafka_t *client, int code, const char *reason, void *opaque)
{
    struct reading *reading = opaque;
    (void)client;
    (void)fr_kafka_explain_connection(code, reason, reading->problem, sizeof(reading->problem));
}

static enum fr_status connect_client(struct reading *reading, struct fr_err *err)
{
    static const struct fr_kafka_setting ours[] = {
        {"group.id", "freshet.init"}, /* required for assigning; never joined */
        {"enable.auto.commit", "false"},
        {"auto.offset.reset", "earliest"}, /* retention may delete the first records meanwhile */
        {"enable.partition.eof", "true"},
        {"allow.auto.create.topics", "false"},
        {"socket.timeout.ms", "10000"}, /* a broker that hangs counts as unavailable */
        {NULL, NULL},
    };
    enum fr_status status = fr_kafka_open(&(struct fr_kafka_options){.type = RD_KAFKA_CONSUMER,
                                                                     .brokers = reading->options->brokers,
                                                                     .name = "init",
                                                                     .ours = ours,
                                                                     .file = reading->options->kafka_file,
                                                                     .texts = reading->options->properties,
                                                                     .n_texts = reading->options->n_properties,
                                                                     .opaque = reading,
                                                                     .on_error = on_error},
                                          &reading->client, err);
    if (status == FR_OK)
        rd_kafka_poll_set_consumer(reading->client);
    return status;
}

/* Sets err to "what: error (last error of a connection)". */
static enum fr_status unavailable(struct reading *reading, const char *what, rd_kafka_resp_err_t code,
                                  struct fr_err *err)
{
    rd_kafka_message_t *message = rd_kafka_consumer_poll(reading->client, 0); /* reports errors */
    if (message)
        rd_kafka_message_destroy(message);
    bool known = reading->problem[0] != '\0', denied = fr_kafka_status(code) == FR_E_DENIED;
    return fr_err_set(err, fr_kafka_status(code), "%s at %s: %s%s%s%s; %s", what, reading->options->brokers,
                      rd_kafka_err2str(code), known ? " (" : "", reading->problem, known ? ")" : "",
                      denied ? "allow this user to read the topic" : "start the brokers, or correct --brokers");
}

static enum fr_status find_topic(struct reading *reading, struct fr_err *err)
{
    const char *topic = reading->options->topic;
    struct fr_kafka_topic found;
    rd_kafka_resp_err_t code = fr_kafka_topic_ask(reading->client, topic, false, ANSWER_MS, &found);
    if (code)
        return unavailable(reading, "no answer from the brokers", code, err);
    if (found.error == RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION)
        return fr_err_set(err, FR_E_INVALID, "--topic %s: a topic cannot have this name; correct --topic", topic);
    if (found.error)
        return fr_err_set(err, fr_kafka_status(found.error), "topic %s at %s: %s", topic, reading->options->brokers,
                          rd_kafka_err2str(found.error));
    if (found.partitions == 0)
        return fr_err_set(err, FR_E_INVALID,
                          "topic %s does not exist at %s: correct --topic, or make the topic (`freshet topic create "
                          "--brokers %s --topic %s`) and write samples to it",
                          topic, reading->options->brokers, reading->options->brokers, topic);
    if (found.partitions > PARTITIONS_MAX)
        return fr_err_set(err, FR_E_LIMIT,
                          "topic %s has %" PRIu32
                          " partitions, and at most %d are read: give some of its records as --file",
                          topic, found.partitions, PARTITIONS_MAX);
    reading->n = found.partitions;
    reading->partitions = fr_alloc(reading->n, sizeof(*reading->partitions));
    for (uint32_t p = 0; p < reading->n; p++) {
        struct partition *partition = &reading->partitions[p];
        code = rd_kafka_query_watermark_offsets(reading->client, topic, (int32_t)p, &partition->low, &partition->end,
                                                ANSWER_MS);
        if (code)
            return unavailable(reading, "the offsets of the topic are not known", code, err);
    }
    return FR_OK;
}

/* Returns how many records at most `each` from the end of every partition are. */
static uint64_t count_newest(const struct reading *reading, uint64_t each)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < reading->n; p++) {
        uint64_t held = (uint64_t)(reading->partitions[p].end - reading->partitions[p].low);
        sum += held < each ? held : each;
    }
    return sum;
}

/* Chooses the largest number of offsets from each end with which the sum does not exceed the
 * request, but at least one. */
static void choose_offsets(struct reading *reading, struct fr_sampled *out)
{
    uint64_t low = 1, high = reading->options->records;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (count_newest(reading, middle) <= reading->options->records)
            low = middle;
        else
            high = middle - 1;
    }
    out->partitions = reading->n;
    out->in_log = count_newest(reading, UINT64_MAX);
    for (uint32_t p = 0; p < reading->n; p++) {
        struct partition *partition = &reading->partitions[p];
        uint64_t held = (uint64_t)(partition->end - partition->low);
        partition->from = partition->end - (int64_t)(held < low ? held : low);
        partition->read = held == 0;
        reading->unread += held > 0;
    }
}

static enum fr_status assign(struct reading *reading, struct fr_err *err)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)reading->n);
    for (uint32_t p = 0; p < reading->n; p++)
        if (!reading->partitions[p].read)
            rd_kafka_topic_partition_list_add(list, reading->options->topic, (int32_t)p)->offset =
                reading->partitions[p].from;
    rd_kafka_resp_err_t code = rd_kafka_assign(reading->client, list);
    rd_kafka_topic_partition_list_destroy(list);
    return code ? unavailable(reading, "the partitions cannot be read", code, err) : FR_OK;
}

static void finish_partition(struct reading *reading, int32_t partition)
{
    reading->unread -= !reading->partitions[partition].read;
    reading->partitions[partition].read = true;
}

static enum fr_status take_message(struct reading *reading, const rd_kafka_message_t *message, struct fr_sampled *out,
                                   struct fr_err *err)
{
    enum fr_status status = FR_OK;
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        finish_partition(reading, message->partition);
    } else if (message->err) {
        fr_kafka_explain(message->err, rd_kafka_message_errstr(message), reading->problem, sizeof(reading->problem));
        if (fr_kafka_status(message->err) == FR_E_DENIED)
            status = fr_err_set(err, FR_E_DENIED, "topic %s: %s; allow this user to read the topic",
                                reading->options->topic, reading->problem);
    } else {
        const struct partition *partition = &reading->partitions[message->partition];
        rd_kafka_timestamp_type_t type;
        struct fr_sampled_record record = {.size = message->len,
                                           .timestamp_ms = rd_kafka_message_timestamp(message, &type),
                                           .partition = message->partition,
                                           .offset = message->offset};
        if (message->offset < partition->end)
            fr_sampled_add(out, &record, message->payload);
        if (message->offset + 1 >= partition->end)
            finish_partition(reading, message->partition);
    }
    return status;
}

static enum fr_status read_records(struct reading *reading, struct fr_sampled *out, struct fr_err *err)
{
    const struct fr_clock *clock = fr_clock_system();
    uint64_t end_ns = fr_mono_ns(clock) + FR_SAMPLED_S * UINT64_C(1000000000);
    enum fr_status status = FR_OK;
    while (status == FR_OK && reading->unread > 0 && !out->cut) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reading->client, POLL_MS);
        if (message) {
            status = take_message(reading, message, out, err);
            rd_kafka_message_destroy(message);
        }
        out->cut |= fr_mono_ns(clock) >= end_ns;
    }
    if (status == FR_OK && out->n == 0 && reading->unread > 0)
        return unavailable(reading, "no record of the topic arrived", RD_KAFKA_RESP_ERR__TIMED_OUT, err);
    return status;
}

static int by_place(const void *a, const void *b)
{
    const struct fr_sampled_record *one = a, *other = b;
    if (one->partition != other->partition)
        return one->partition < other->partition ? -1 : 1;
    return one->offset < other->offset ? -1 : one->offset > other->offset;
}

enum fr_status fr_sampled_topic(const struct fr_proposal_options *options, struct fr_sampled *out, struct fr_err *err)
{
    struct reading reading = {.options = options};
    enum fr_status status = connect_client(&reading, err);
    if (status == FR_OK)
        status = find_topic(&reading, err);
    if (status == FR_OK) {
        choose_offsets(&reading, out);
        status = out->in_log > 0 ? assign(&reading, err) : FR_OK;
    }
    if (status == FR_OK)
        status = read_records(&reading, out, err);
    if (reading.client) {
        (void)rd_kafka_consumer_close(reading.client); /* nothing depends on the result */
        rd_kafka_destroy(reading.client);
    }
    free(reading.partitions);
    if (out->n > 0)
        qsort(out->records, out->n, sizeof(*out->records), by_place);
    return status;
}
