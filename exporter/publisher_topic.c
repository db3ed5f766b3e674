/* Questions about the delta topic: does it exist, how many partitions has it, which cleanup policy.
 *
 * Asked through a consumer handle, which never creates a topic by asking for it; a broker of its
 * own default partition count must not decide ours. librdkafka's embedded broker has no controller
 * and answers neither CreateTopics nor DescribeConfigs: it is used with a warning (DESIGN section
 * 9), and a missing topic is then made by asking through the producer handle, which lets the broker
 * create it. Thread: the publisher thread, at start; each call blocks for at most a few seconds.
 * Does not: change the settings of a topic that exists. */
#include "publisher_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { CREATED_POLLS_MAX = 30, CREATED_POLL_MS = 100 };

/* Topic administration goes to the controller. The embedded broker names one that is none of its
 * brokers: asking it would only wait out the time limit. */
static bool has_controller(rd_kafka_t *client, const struct rd_kafka_metadata *metadata)
{
    int32_t controller = rd_kafka_controllerid(client, 0);
    for (int i = 0; i < metadata->broker_cnt; i++)
        if (metadata->brokers[i].id == controller)
            return true;
    return false;
}

struct topic_answer {
    uint32_t partitions; /* 0: the topic does not exist */
    bool administrable;
};

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

static enum fr_status ask_partitions(struct fr_publisher *publisher, rd_kafka_t *client, struct topic_answer *answer,
                                     struct fr_err *err)
{
    const char *topic = publisher->options.topic;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    if (!handle)
        return fr_err_set(err, FR_E_INVALID, "topic %s: %s", topic, rd_kafka_err2str(rd_kafka_last_error()));
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, handle, &metadata, BROKER_TIMEOUT_MS);
    rd_kafka_topic_destroy(handle);
    if (error)
        return no_metadata(publisher, client, error, err);
    rd_kafka_resp_err_t reason = metadata->topic_cnt == 1 ? metadata->topics[0].err : RD_KAFKA_RESP_ERR__FAIL;
    answer->partitions = reason == RD_KAFKA_RESP_ERR_NO_ERROR ? (uint32_t)metadata->topics[0].partition_cnt : 0;
    answer->administrable = has_controller(client, metadata);
    rd_kafka_metadata_destroy(metadata);
    if (reason == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        return fr_err_set(err, FR_E_DENIED, "not authorised for topic %s", topic);
    if (reason && reason != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART && reason != RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s: %s", topic, rd_kafka_err2str(reason));
    return FR_OK;
}

static bool no_answer(rd_kafka_resp_err_t error)
{
    return error == RD_KAFKA_RESP_ERR__TIMED_OUT || error == RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE ||
           error == RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT || error == RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION;
}

static rd_kafka_AdminOptions_t *admin_options(rd_kafka_t *client, rd_kafka_admin_op_t operation)
{
    char text[256];
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(client, operation);
    (void)rd_kafka_AdminOptions_set_request_timeout(options, ADMIN_TIMEOUT_MS, text, sizeof(text));
    return options;
}

/* FR_AGAIN: the broker does not answer such requests. */
static enum fr_status create_topic(struct fr_publisher *publisher, rd_kafka_t *client, struct fr_err *err)
{
    char text[512];
    const char *topic = publisher->options.topic;
    rd_kafka_NewTopic_t *request =
        rd_kafka_NewTopic_new(topic, (int)publisher->options.partitions, -1, text, sizeof(text));
    if (!request)
        return fr_err_set(err, FR_E_INVALID, "topic %s: %s", topic, text);
    /* Replicas begin at epoch 1: nothing may be deleted or compacted. An operator who keeps less is
     * warned at start. */
    (void)rd_kafka_NewTopic_set_config(request, "cleanup.policy", "delete");
    (void)rd_kafka_NewTopic_set_config(request, "retention.ms", "-1");
    (void)rd_kafka_NewTopic_set_config(request, "retention.bytes", "-1");
    rd_kafka_AdminOptions_t *options = admin_options(client, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_CreateTopics(client, &request, 1, options, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, ADMIN_TIMEOUT_MS + 1000);
    rd_kafka_resp_err_t error = event ? rd_kafka_event_error(event) : RD_KAFKA_RESP_ERR__TIMED_OUT;
    snprintf(text, sizeof(text), "%s", event && error ? rd_kafka_event_error_string(event) : "no answer");
    if (event && !error) {
        size_t n = 0;
        const rd_kafka_topic_result_t **results =
            rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &n);
        error = n == 1 ? rd_kafka_topic_result_error(results[0]) : RD_KAFKA_RESP_ERR__FAIL;
        if (error && n == 1 && rd_kafka_topic_result_error_string(results[0]))
            snprintf(text, sizeof(text), "%s", rd_kafka_topic_result_error_string(results[0]));
    }
    if (event)
        rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_NewTopic_destroy(request);
    if (!error || error == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
        return FR_OK;
    if (no_answer(error))
        return FR_AGAIN;
    bool denied = error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
                  error == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    return fr_err_set(err, denied ? FR_E_DENIED : FR_E_UNAVAILABLE, "cannot create topic %s: %s", topic, text);
}

/* Waits (bounded) until the brokers know the topic that was just created. */
static enum fr_status await_topic(struct fr_publisher *publisher, rd_kafka_t *client, struct topic_answer *answer,
                                  struct fr_err *err)
{
    for (int i = 0; i < CREATED_POLLS_MAX; i++) {
        enum fr_status status = ask_partitions(publisher, client, answer, err);
        if (status == FR_OK && answer->partitions > 0)
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
    rd_kafka_AdminOptions_t *options = admin_options(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DescribeConfigs(client, &resource, 1, options, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, ADMIN_TIMEOUT_MS + 1000);
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

static enum fr_status make_topic(struct fr_publisher *publisher, rd_kafka_t *client, struct topic_answer *answer,
                                 struct fr_err *err)
{
    const char *topic = publisher->options.topic;
    if (!publisher->options.create)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s does not exist and export.create is off", topic);
    enum fr_status status = answer->administrable ? create_topic(publisher, client, err) : FR_AGAIN;
    if (status == FR_OK) {
        fr_log(FR_LOG_INFO, "publisher", "topic_created", "topic=%s partitions=%u", topic,
               publisher->options.partitions);
        return await_topic(publisher, client, answer, err);
    }
    if (status != FR_AGAIN)
        return status;
    fr_log(FR_LOG_WARN, "publisher", "topic_create_unanswered",
           "topic=%s problem=\"the broker does not create topics on request; asking it to do so by itself\"", topic);
    status = fr_publisher_producer(publisher, err);
    return status == FR_OK ? await_topic(publisher, publisher->producer, answer, err) : status;
}

enum fr_status fr_publisher_check_topic(struct fr_publisher *publisher, rd_kafka_t *client, struct fr_err *err)
{
    const char *topic = publisher->options.topic;
    struct topic_answer answer = {0};
    enum fr_status status = ask_partitions(publisher, client, &answer, err);
    if (status == FR_OK && answer.partitions == 0)
        status = make_topic(publisher, client, &answer, err);
    if (status != FR_OK)
        return status;
    if (answer.partitions != publisher->options.partitions)
        return fr_err_set(
            err, FR_E_MISMATCH,
            "topic %s has %u partitions, export.partitions is %u; the number is fixed for a timeline: set "
            "export.partitions to %u before the first epoch, or name another topic",
            topic, answer.partitions, publisher->options.partitions, answer.partitions);
    return check_policy(publisher, client, answer.administrable, err);
}
