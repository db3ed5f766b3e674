/* Questions about the delta topic: does it exist, how many partitions has it, which cleanup policy.
 *
 * Asked through a consumer handle, which never creates a topic by asking for it; a broker of its
 * own default partition count must not decide ours. librdkafka's embedded broker has no controller
 * and answers neither CreateTopics nor DescribeConfigs: it is used with a warning
 * (docs/commands.md, "Topics"), and a missing topic is then made by asking through the producer
 * handle, which lets the broker create it.
 *
 * Thread: the publisher thread, at start; each call blocks for at most a few seconds. It does not
 * change the settings of a topic that exists. */
#include "publisher_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { CREATED_POLLS_MAX = 30, CREATED_POLL_MS = 100, NEEDED_AFTER_MS = 600000 };

/* "what: answer (what the connection said)" */
static enum fr_status no_metadata(struct fr_publisher *publisher, rd_kafka_t *client, const char *topic,
                                  rd_kafka_resp_err_t error, struct fr_err *err)
{
    if (rd_kafka_type(client) == RD_KAFKA_CONSUMER) {
        /* error callbacks; nothing is subscribed */
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, 0);
        if (message)
            rd_kafka_message_destroy(message);
    } else {
        rd_kafka_poll(client, 0);
    }
    const char *said = publisher->connection;
    return fr_err_set(err, FR_E_UNAVAILABLE, "brokers %s do not answer about topic %s: %s%s%s%s",
                      publisher->options.brokers, topic, rd_kafka_err2str(error), said[0] ? " (" : "", said,
                      said[0] ? ")" : "");
}

static enum fr_status ask_topic(struct fr_publisher *publisher, rd_kafka_t *client, const char *topic,
                                struct fr_kafka_topic *found, struct fr_err *err)
{
    rd_kafka_resp_err_t error = fr_kafka_topic_ask(client, topic, false, BROKER_TIMEOUT_MS, found);
    if (error)
        return no_metadata(publisher, client, topic, error, err);
    if (found->error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        return fr_err_set(err, FR_E_DENIED, "not authorised for topic %s", topic);
    if (found->error)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s: %s", topic, rd_kafka_err2str(found->error));
    return FR_OK;
}

/* Waits (bounded) until the brokers know the topic that was just created. */
static enum fr_status await_topic(struct fr_publisher *publisher, rd_kafka_t *client, const char *topic,
                                  struct fr_kafka_topic *found, struct fr_err *err)
{
    for (int i = 0; i < CREATED_POLLS_MAX; i++) {
        enum fr_status status = ask_topic(publisher, client, topic, found, err);
        if (status == FR_OK && found->partitions > 0)
            return FR_OK;
        if (status != FR_OK && status != FR_E_UNAVAILABLE)
            return status;
        rd_kafka_poll(client, CREATED_POLL_MS);
    }
    return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s was created, but the brokers do not show it yet", topic);
}

/* false: the broker does not tell. */
static bool ask_settings(rd_kafka_t *client, const char *topic, struct fr_kafka_topic_settings *out)
{
    char name[256], text[FR_KAFKA_TEXT_MAX]; /* a topic has 249 characters at most */
    char *const topics[] = {name};
    snprintf(name, sizeof(name), "%s", topic);
    return fr_kafka_topic_describe(client, topics, 1, out, text) && out->error == RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* What a partition gets in the time that has to be kept, by what this process sent; 0: not known
 * yet. */
static uint64_t needed_bytes(const struct fr_publisher *publisher)
{
    uint64_t ms = (fr_mono_ns(publisher->options.clock) - publisher->begun_ns) / 1000000;
    if (ms < NEEDED_AFTER_MS)
        return 0;
    double bytes = (double)publisher->tally.bytes * (double)publisher->options.retention_ms / (double)ms;
    return (uint64_t)(bytes / publisher->options.partitions);
}

/* Whether the topic keeps what new replicas need, with what to set. */
static void judge_retention(struct fr_publisher *publisher, const struct fr_kafka_topic_settings *settings)
{
    const char *topic = publisher->options.topic;
    int64_t need_ms = publisher->options.retention_ms;
    uint64_t need_bytes = need_ms > 0 ? needed_bytes(publisher) : 0;
    bool short_ms = settings->retention_ms >= 0 && (need_ms == 0 || settings->retention_ms < need_ms);
    bool short_bytes =
        settings->retention_bytes >= 0 && (need_ms == 0 || (uint64_t)settings->retention_bytes < need_bytes);
    publisher->tally.topic.short_retention = short_ms || short_bytes;
    if (need_ms == 0 && (short_ms || short_bytes))
        fr_log(
            FR_LOG_WARN, "publisher", "topic_retention_finite",
            "topic=%s problem=\"old delta records are deleted, and without snapshots a replica begins with the oldest: "
            "set retention.ms=-1 and retention.bytes=-1 on it, or snapshot.every and export.retention: snapshots\"",
            topic);
    if (need_ms > 0 && short_ms)
        fr_log(FR_LOG_WARN, "publisher", "topic_retention_short",
               "topic=%s problem=\"records are deleted after %" PRId64
               " ms, and the oldest kept snapshot may be older: "
               "set retention.ms=%" PRId64 " or more on it\"",
               topic, settings->retention_ms, need_ms);
    if (need_ms > 0 && short_bytes)
        fr_log(FR_LOG_WARN, "publisher", "topic_retention_short",
               "topic=%s problem=\"a partition keeps %" PRId64
               " bytes, and gets more while the oldest kept snapshot is needed: set retention.bytes=%" PRIu64
               " or more on it, or -1\"",
               topic, settings->retention_bytes, 2 * need_bytes);
}

void fr_publisher_look_at_retention(struct fr_publisher *publisher)
{
    struct fr_kafka_topic_settings settings;
    if (publisher->administrable && publisher->producer &&
        ask_settings(publisher->producer, publisher->options.topic, &settings))
        judge_retention(publisher, &settings);
}

/* Later the topic may get a smaller limit; then records that it refuses wait, and the problem is
 * said (publisher.c), because ending would help nobody. */
static enum fr_status judge_size(const struct fr_publisher *publisher, const char *topic, const char *what,
                                 uint64_t bytes, uint64_t takes, struct fr_err *err)
{
    if (publisher->checked || bytes == 0 || takes == 0 || takes >= bytes + BATCH_ROOM)
        return FR_OK;
    return fr_err_set(err, FR_E_MISMATCH,
                      "topic %s takes %" PRIu64
                      " bytes at once (max.message.bytes of the topic, else message.max.bytes "
                      "of the brokers), and %s lets a record have %" PRIu64 ": set max.message.bytes=%" PRIu64
                      " or more on the topic%s",
                      topic, takes, what, bytes, bytes + BATCH_ROOM,
                      strcmp(what, "export.piece_max") == 0
                          ? ", or a smaller export.piece_max, which holds for epochs that are cut from then on"
                          : "");
}

enum fr_status fr_publisher_check_size(struct fr_publisher *publisher, rd_kafka_t *client, const char *topic,
                                       const char *what, uint64_t bytes, struct fr_err *err)
{
    struct fr_kafka_topic_settings settings;
    if (publisher->checked || !ask_settings(client, topic, &settings))
        return FR_OK;
    return judge_size(publisher, topic, what, bytes, settings.message_bytes, err);
}

bool fr_publisher_takes_refused(struct fr_publisher *publisher, rd_kafka_t *client)
{
    struct fr_kafka_topic_settings settings;
    return publisher->administrable && ask_settings(client, publisher->refused.topic, &settings) &&
           settings.message_bytes >= publisher->refused.bytes;
}

static enum fr_status check_policy(struct fr_publisher *publisher, rd_kafka_t *client, bool administrable,
                                   struct fr_err *err)
{
    const char *topic = publisher->options.topic;
    struct fr_kafka_topic_settings settings;
    publisher->administrable = administrable;
    if (!administrable || !ask_settings(client, topic, &settings)) {
        fr_log(
            FR_LOG_WARN, "publisher", "topic_policy_unknown",
            "topic=%s problem=\"the brokers did not give the topic's settings: grant DESCRIBE_CONFIGS on the topic, or "
            "check yourself that its cleanup.policy is delete\"",
            topic);
        return FR_OK;
    }
    if (settings.compacted)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s is compacted, which would delete delta records; set cleanup.policy=delete on it or "
                          "name another topic in export.topic",
                          topic);
    judge_retention(publisher, &settings);
    return judge_size(publisher, topic, "export.piece_max", publisher->options.record_max, settings.message_bytes, err);
}

static enum fr_status make_topic(struct fr_publisher *publisher, rd_kafka_t *client, const char *topic,
                                 struct fr_kafka_topic *found, struct fr_err *err)
{
    if (!publisher->options.create)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s does not exist and export.create is off", topic);
    /* Nothing may be deleted that new replicas need, or compacted. An operator who keeps less is
     * warned. */
    char keeps_ms[32];
    int64_t need_ms = publisher->options.retention_ms;
    snprintf(keeps_ms, sizeof(keeps_ms), "%" PRId64, need_ms > 0 ? 2 * need_ms : -1);
    const struct fr_kafka_setting settings[] = {
        {"cleanup.policy", "delete"}, {"retention.ms", keeps_ms}, {"retention.bytes", "-1"}, {NULL, NULL}};
    enum fr_status status = found->administrable
                                ? fr_kafka_topic_create(client, topic, publisher->options.partitions, settings, err)
                                : FR_AGAIN;
    if (status == FR_OK) {
        fr_log(FR_LOG_INFO, "publisher", "topic_created", "topic=%s partitions=%u retention_ms=%s retention_bytes=-1",
               topic, publisher->options.partitions, keeps_ms);
        return await_topic(publisher, client, topic, found, err);
    }
    if (status != FR_AGAIN) {
        (void)fr_err_wrap(err, "cannot create topic %s", topic);
        return status;
    }
    fr_log(FR_LOG_WARN, "publisher", "topic_create_unanswered",
           "topic=%s problem=\"the broker does not create topics on request; asking it to do so by itself\"", topic);
    status = fr_publisher_producer(publisher, err);
    return status == FR_OK ? await_topic(publisher, publisher->producer, topic, found, err) : status;
}

enum fr_status fr_publisher_find_topic(struct fr_publisher *publisher, rd_kafka_t *client, const char *topic,
                                       struct fr_kafka_topic *found, struct fr_err *err)
{
    enum fr_status status = ask_topic(publisher, client, topic, found, err);
    if (status == FR_OK && found->partitions == 0)
        status = make_topic(publisher, client, topic, found, err);
    if (status == FR_OK && found->partitions < publisher->options.partitions)
        status =
            fr_err_set(err, FR_E_MISMATCH,
                       "topic %s has %u partitions, export.partitions is %u; the number is fixed for a timeline: set "
                       "export.partitions to %u before the first epoch, or name another topic",
                       topic, found->partitions, publisher->options.partitions, found->partitions);
    return status;
}

enum fr_status fr_publisher_check_topic(struct fr_publisher *publisher, rd_kafka_t *client, struct fr_err *err)
{
    const char *topic = publisher->options.topic;
    struct fr_kafka_topic found;
    enum fr_status status = fr_publisher_find_topic(publisher, client, topic, &found, err);
    if (status != FR_OK)
        return status;
    if (found.partitions > publisher->options.partitions && publisher->checked_partitions != found.partitions)
        fr_log(FR_LOG_WARN, "publisher", "topic_partitions_unused",
               "topic=%s partitions=%u used=%u problem=\"the number that rows are divided by is fixed for a timeline: "
               "partitions from %u on stay empty\"",
               topic, found.partitions, publisher->options.partitions, publisher->options.partitions);
    publisher->checked_partitions = found.partitions;
    return check_policy(publisher, client, found.administrable, err);
}
