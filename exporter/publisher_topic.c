/* Questions about the delta topic: does it exist, how many partitions has it, which cleanup policy.
 *
 * Asked through a consumer handle, which never creates a topic by asking for it; a broker of its
 * own default partition count must not decide ours. librdkafka's embedded broker has no controller
 * and answers neither CreateTopics nor DescribeConfigs: it is used with a warning (DESIGN section
 * 9), and a missing topic is then made by asking through the producer handle, which lets the broker
 * create it.
 *
 * Thread: the publisher thread, at start; each call blocks for at most a few seconds. It does not
 * change the settings of a topic that exists. */
#include "publisher_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { CREATED_POLLS_MAX = 30, CREATED_POLL_MS = 100 };

/* "what: answer (what the connection said)" */
static enum fr_status no_metadata(struct fr_publisher *publisher, rd_kafka_t *client, rd_kafka_resp_err_t error,
                                  struct fr_err *err)
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
                      publisher->options.brokers, publisher->options.topic, rd_kafka_err2str(error),
                      said[0] ? " (" : "", said, said[0] ? ")" : "");
}

static enum fr_status ask_topic(struct fr_publisher *publisher, rd_kafka_t *client, struct fr_kafka_topic *found,
                                struct fr_err *err)
{
    const char *topic = publisher->options.topic;
    rd_kafka_resp_err_t error = fr_kafka_topic_ask(client, topic, false, BROKER_TIMEOUT_MS, found);
    if (error)
        return no_metadata(publisher, client, error, err);
    if (found->error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        return fr_err_set(err, FR_E_DENIED, "not authorised for topic %s", topic);
    if (found->error)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s: %s", topic, rd_kafka_err2str(found->error));
    return FR_OK;
}

/* Waits (bounded) until the brokers know the topic that was just created. */
static enum fr_status await_topic(struct fr_publisher *publisher, rd_kafka_t *client, struct fr_kafka_topic *found,
                                  struct fr_err *err)
{
    for (int i = 0; i < CREATED_POLLS_MAX; i++) {
        enum fr_status status = ask_topic(publisher, client, found, err);
        if (status == FR_OK && found->partitions > 0)
            return FR_OK;
        if (status != FR_OK && status != FR_E_UNAVAILABLE)
            return status;
        rd_kafka_poll(client, CREATED_POLL_MS);
    }
    return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s was created, but the brokers do not show it yet",
                      publisher->options.topic);
}

static void judge_entry(const char *name, const char *value, bool *compacted, bool *finite)
{
    if (strcmp(name, "cleanup.policy") == 0)
        *compacted = strstr(value, "compact") != NULL;
    if ((strcmp(name, "retention.ms") == 0 || strcmp(name, "retention.bytes") == 0) && strcmp(value, "-1") != 0)
        *finite = true;
}

/* FR_AGAIN: the broker does not answer. */
static enum fr_status ask_policy(struct fr_publisher *publisher, rd_kafka_t *client, bool *compacted, bool *finite)
{
    rd_kafka_ConfigResource_t *resource =
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, publisher->options.topic);
    rd_kafka_AdminOptions_t *options = fr_kafka_admin_options(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DescribeConfigs(client, &resource, 1, options, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, FR_KAFKA_ADMIN_MS + 1000);
    enum fr_status status = FR_AGAIN;
    if (event && !rd_kafka_event_error(event)) {
        size_t n = 0, n_entries = 0;
        const rd_kafka_ConfigResource_t **resources =
            rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(event), &n);
        if (n == 1 && !rd_kafka_ConfigResource_error(resources[0])) {
            const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resources[0], &n_entries);
            for (size_t i = 0; i < n_entries; i++) {
                const char *value = rd_kafka_ConfigEntry_value(entries[i]);
                judge_entry(rd_kafka_ConfigEntry_name(entries[i]), value ? value : "", compacted, finite);
            }
            status = FR_OK;
        }
    }
    if (event)
        rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_ConfigResource_destroy(resource);
    return status;
}

static enum fr_status check_policy(struct fr_publisher *publisher, rd_kafka_t *client, bool administrable,
                                   struct fr_err *err)
{
    const char *topic = publisher->options.topic;
    bool compacted = false, finite = false;
    if (!administrable || ask_policy(publisher, client, &compacted, &finite) != FR_OK) {
        fr_log(FR_LOG_WARN, "publisher", "topic_policy_unknown",
               "topic=%s problem=\"the broker does not tell the topic's settings; it must not be compacted\"", topic);
        return FR_OK;
    }
    if (compacted)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s is compacted, which would delete delta records; set cleanup.policy=delete on it or "
                          "name another topic in export.topic",
                          topic);
    if (finite)
        fr_log(FR_LOG_WARN, "publisher", "topic_retention_finite",
               "topic=%s problem=\"old delta records are deleted, and in this version a replica starts at epoch 1: set "
               "retention.ms=-1 and retention.bytes=-1 on it\"",
               topic);
    return FR_OK;
}

static enum fr_status make_topic(struct fr_publisher *publisher, rd_kafka_t *client, struct fr_kafka_topic *found,
                                 struct fr_err *err)
{
    const char *topic = publisher->options.topic;
    if (!publisher->options.create)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s does not exist and export.create is off", topic);
    /* Replicas begin at epoch 1: nothing may be deleted or compacted. An operator who keeps less is
     * warned at start. */
    static const struct fr_kafka_setting settings[] = {
        {"cleanup.policy", "delete"}, {"retention.ms", "-1"}, {"retention.bytes", "-1"}, {NULL, NULL}};
    enum fr_status status = found->administrable
                                ? fr_kafka_topic_create(client, topic, publisher->options.partitions, settings, err)
                                : FR_AGAIN;
    if (status == FR_OK) {
        fr_log(FR_LOG_INFO, "publisher", "topic_created", "topic=%s partitions=%u", topic,
               publisher->options.partitions);
        return await_topic(publisher, client, found, err);
    }
    if (status != FR_AGAIN) {
        (void)fr_err_wrap(err, "cannot create topic %s", topic);
        return status;
    }
    fr_log(FR_LOG_WARN, "publisher", "topic_create_unanswered",
           "topic=%s problem=\"the broker does not create topics on request; asking it to do so by itself\"", topic);
    status = fr_publisher_producer(publisher, err);
    return status == FR_OK ? await_topic(publisher, publisher->producer, found, err) : status;
}

enum fr_status fr_publisher_check_topic(struct fr_publisher *publisher, rd_kafka_t *client, struct fr_err *err)
{
    const char *topic = publisher->options.topic;
    struct fr_kafka_topic found;
    enum fr_status status = ask_topic(publisher, client, &found, err);
    if (status == FR_OK && found.partitions == 0)
        status = make_topic(publisher, client, &found, err);
    if (status != FR_OK)
        return status;
    if (found.partitions > publisher->options.partitions && publisher->checked_partitions != found.partitions)
        fr_log(FR_LOG_WARN, "publisher", "topic_partitions_unused",
               "topic=%s partitions=%u used=%u problem=\"the number that rows are divided by is fixed for a timeline: "
               "partitions from %u on stay empty\"",
               topic, found.partitions, publisher->options.partitions, publisher->options.partitions);
    publisher->checked_partitions = found.partitions;
    if (found.partitions < publisher->options.partitions)
        return fr_err_set(
            err, FR_E_MISMATCH,
            "topic %s has %u partitions, export.partitions is %u; the number is fixed for a timeline: set "
            "export.partitions to %u before the first epoch, or name another topic",
            topic, found.partitions, publisher->options.partitions, found.partitions);
    return check_policy(publisher, client, found.administrable, err);
}
