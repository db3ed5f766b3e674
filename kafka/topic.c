/* Topics: what the brokers report about a topic, and creating one through the admin interface.
 *
 * librdkafka's embedded broker answers no admin request; `administrable` shows that before a time
 * limit is over. Each call blocks for a few seconds at most.
 *
 * Owner: the thread that owns the client. An existing topic is not changed. */
#include "kafka/kafka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { ADMIN_MS = 5000 }; /* limit of a request about topics */

/* ---- looking up ---- */

static bool has_controller(rd_kafka_t *client, const struct rd_kafka_metadata *metadata)
{
    int32_t controller = rd_kafka_controllerid(client, 0);
    for (int i = 0; i < metadata->broker_cnt; i++)
        if (metadata->brokers[i].id == controller)
            return true;
    return false;
}

static void describe(const struct rd_kafka_metadata_topic *found, struct fr_kafka_topic *out)
{
    bool unknown =
        found->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || found->err == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
    out->error = unknown ? RD_KAFKA_RESP_ERR_NO_ERROR : found->err;
    out->partitions = found->err ? 0 : (uint32_t)found->partition_cnt;
    out->replicas = out->partitions ? (uint32_t)found->partitions[0].replica_cnt : 0;
    out->led = true;
    for (uint32_t i = 0; i < out->partitions; i++)
        out->led &= found->partitions[i].leader >= 0;
}

rd_kafka_resp_err_t fr_kafka_topic_ask(rd_kafka_t *client, const char *topic, bool listed, int wait_ms,
                                       struct fr_kafka_topic *out)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *handle = listed ? NULL : rd_kafka_topic_new(client, topic, NULL);
    if (!listed && !handle)
        return rd_kafka_last_error();
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, listed, handle, &metadata, wait_ms);
    if (handle)
        rd_kafka_topic_destroy(handle);
    if (error)
        return error;
    *out = (struct fr_kafka_topic){.administrable = has_controller(client, metadata)};
    for (int i = 0; i < metadata->topic_cnt; i++)
        if (strcmp(metadata->topics[i].topic, topic) == 0)
            describe(&metadata->topics[i], out);
    rd_kafka_metadata_destroy(metadata);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* ---- creating ---- */

static rd_kafka_AdminOptions_t *admin_options(rd_kafka_t *client, rd_kafka_admin_op_t operation)
{
    char text[256];
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(client, operation);
    (void)rd_kafka_AdminOptions_set_request_timeout(options, ADMIN_MS, text, sizeof(text));
    return options;
}

static rd_kafka_resp_err_t creation_result(rd_kafka_event_t *event, char *text, size_t size)
{
    rd_kafka_resp_err_t error = event ? rd_kafka_event_error(event) : RD_KAFKA_RESP_ERR__TIMED_OUT;
    const char *reason = event && error ? rd_kafka_event_error_string(event) : NULL;
    if (!error) {
        size_t n = 0;
        const rd_kafka_topic_result_t **results =
            rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &n);
        error = n == 1 ? rd_kafka_topic_result_error(results[0]) : RD_KAFKA_RESP_ERR__BAD_MSG;
        reason = n == 1 ? rd_kafka_topic_result_error_string(results[0]) : NULL;
    }
    snprintf(text, size, "%s", reason ? reason : rd_kafka_err2str(error));
    return error;
}

static enum fr_status judge(rd_kafka_resp_err_t error, const char *text, struct fr_err *err)
{
    switch (error) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
    case RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS:
        return FR_OK;
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION:
        (void)fr_err_set(err, FR_AGAIN, "%s", text);
        return FR_AGAIN;
    default:
        return fr_err_set(err, fr_kafka_status(error), "%s", text);
    }
}

enum fr_status fr_kafka_topic_create(rd_kafka_t *client, const struct fr_kafka_new_topic *wanted, struct fr_err *err)
{
    char text[512];
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(
        wanted->name, (int)wanted->partitions, wanted->replicas ? (int)wanted->replicas : -1, text, sizeof(text));
    if (!topic)
        return fr_err_set(err, FR_E_INVALID, "%s", text);
    for (const struct fr_kafka_setting *setting = wanted->settings; setting && setting->name; setting++)
        (void)rd_kafka_NewTopic_set_config(topic, setting->name, setting->value);
    rd_kafka_AdminOptions_t *options = admin_options(client, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_CreateTopics(client, &topic, 1, options, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, ADMIN_MS + 1000);
    rd_kafka_resp_err_t error = creation_result(event, text, sizeof(text));
    if (event)
        rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_NewTopic_destroy(topic);
    return judge(error, text, err);
}

/* ---- settings ---- */

static void read_setting(const char *name, const char *value, struct fr_kafka_topic_settings *out)
{
    if (strcmp(name, "cleanup.policy") == 0) {
        snprintf(out->cleanup, sizeof(out->cleanup), "%s", value);
        out->compacted = strstr(value, "compact") != NULL;
    }
    if (strcmp(name, "retention.ms") == 0)
        out->retention_ms = strtoll(value, NULL, 10);
    if (strcmp(name, "retention.bytes") == 0)
        out->retention_bytes = strtoll(value, NULL, 10);
    if (strcmp(name, "max.message.bytes") == 0)
        out->message_bytes = strtoull(value, NULL, 10);
    if (strcmp(name, "compression.type") == 0)
        snprintf(out->compression, sizeof(out->compression), "%s", value);
}

static void read_settings(const rd_kafka_ConfigResource_t *resource, struct fr_kafka_topic_settings *out)
{
    size_t n = 0;
    const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resource, &n);
    out->error = rd_kafka_ConfigResource_error(resource);
    for (size_t i = 0; i < n && !out->error; i++) {
        const char *value = rd_kafka_ConfigEntry_value(entries[i]);
        if (value)
            read_setting(rd_kafka_ConfigEntry_name(entries[i]), value, out);
    }
}

static rd_kafka_event_t *describe_configs(rd_kafka_t *client, char *const *topics, uint32_t n)
{
    rd_kafka_ConfigResource_t **resources = fr_alloc(n, sizeof(rd_kafka_ConfigResource_t *));
    for (uint32_t i = 0; i < n; i++)
        resources[i] = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topics[i]);
    rd_kafka_AdminOptions_t *options = admin_options(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DescribeConfigs(client, resources, n, options, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, ADMIN_MS + 1000);
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_ConfigResource_destroy_array(resources, n);
    free(resources);
    return event;
}

bool fr_kafka_topic_describe(rd_kafka_t *client, char *const *topics, uint32_t n, struct fr_kafka_topic_settings *out,
                             char text[FR_KAFKA_TEXT_MAX])
{
    rd_kafka_event_t *event = describe_configs(client, topics, n);
    bool answered = event && !rd_kafka_event_error(event);
    snprintf(text, FR_KAFKA_TEXT_MAX, "%s", event ? rd_kafka_event_error_string(event) : "the brokers did not answer");
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct fr_kafka_topic_settings){
            .error = RD_KAFKA_RESP_ERR__NOENT, .retention_ms = -1, .retention_bytes = -1, .compression = "producer"};
    size_t n_answers = 0;
    const rd_kafka_ConfigResource_t **answers =
        answered ? rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(event), &n_answers)
                 : NULL;
    for (size_t a = 0; a < n_answers; a++)
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(rd_kafka_ConfigResource_name(answers[a]), topics[i]) == 0)
                read_settings(answers[a], &out[i]);
    if (event)
        rd_kafka_event_destroy(event);
    return answered;
}
