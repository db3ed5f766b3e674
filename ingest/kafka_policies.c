/* What the topics that are read keep, and what a batch of them may inflate to, as their settings
 * say: at the start and with the minute's look.
 *
 * A compacted topic deletes records whose key came again, read or not: an offset that is missing
 * would look like one that was taken by a transaction marker, so none of it would be
 * counted as lost (P8). It is refused, as the delta topic is. librdkafka's embedded broker, and
 * brokers that do not let this user describe the topic, do not answer; the start warns once.
 *
 * Owner: ingest thread. */
#include "kafka_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

enum {
    POLICY_METADATA_MS = 5000,
    BATCH_SHARE = 2, /* a batch that inflates to more than this part of memory_limit is warned of */
};

/* How many bytes of records a byte of a batch may hold, as the topic's compression.type bounds it:
 * `uncompressed` makes brokers store, and measure, what the producer compressed; any other makes
 * them store their own compression of whatever it inflates to. librdkafka inflates gzip (and lz4)
 * without a bound, zstd up to receive.message.max.bytes. */
static uint64_t inflation(const char *compression)
{
    static const struct {
        const char *type;
        uint64_t most;
    } types[] = {{"uncompressed", 1}, {"snappy", 22}, {"lz4", 255}, {"zstd", 100}};
    for (size_t i = 0; i < FR_ARRAY_LEN(types); i++)
        if (strcmp(compression, types[i].type) == 0)
            return types[i].most;
    return 1032; /* gzip, or what the producer likes */
}

static void tell_bound(const struct fr_kafka_source *source, const char *topic, uint64_t bytes, const char *compression)
{
    uint64_t inflated = bytes * inflation(compression), limit = source->conf->memory_limit;
    if (bytes == 0)
        return;
    fr_log(inflated > limit / BATCH_SHARE ? FR_LOG_WARN : FR_LOG_INFO, "ingest", "batch_bound",
           "topic=%s max.message.bytes=%" PRIu64 " compression.type=%s inflates_to=%" PRIu64 " memory_limit=%" PRIu64
           " note=\"%s\"",
           topic, bytes, compression, inflated, limit,
           inflated > limit / BATCH_SHARE
               ? "one batch may take that much memory beyond memory_limit while it is read: set "
                 "compression.type=uncompressed on the topic, so that brokers refuse what is larger than "
                 "max.message.bytes, or a smaller max.message.bytes; else its producers have to be trusted"
               : "what one batch may take while it is read");
}

static enum fr_status judge_policy(const struct fr_kafka_source *source, const rd_kafka_ConfigResource_t *resource,
                                   struct fr_err *err)
{
    size_t n = 0;
    const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resource, &n);
    const char *topic = rd_kafka_ConfigResource_name(resource), *compression = "producer", *cleanup = "";
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = rd_kafka_ConfigEntry_name(entries[i]), *value = rd_kafka_ConfigEntry_value(entries[i]);
        if (value && strcmp(name, "max.message.bytes") == 0)
            bytes = strtoull(value, NULL, 10);
        if (value && strcmp(name, "compression.type") == 0)
            compression = value;
        if (value && strcmp(name, "cleanup.policy") == 0)
            cleanup = value;
    }
    if (!source->policies_told)
        tell_bound(source, topic, bytes, compression);
    if (strstr(cleanup, "compact"))
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s is compacted (cleanup.policy=%s): samples whose key comes again are deleted before "
                          "they are trained, and nobody could count them; set cleanup.policy=delete on it, or read "
                          "another topic",
                          topic, cleanup);
    return FR_OK;
}

static void tell_unknown(const char *topic, const char *reason)
{
    char quoted[256];
    fr_log(
        FR_LOG_WARN, "ingest", "topic_policy_unknown",
        "topic=%s reason=%s problem=\"the topic's settings cannot be read: grant DESCRIBE_CONFIGS on the topic, or check "
        "yourself that its cleanup.policy is delete\"",
        topic, fr_log_quote(quoted, sizeof(quoted), reason));
}

/* Of all topics at once; NULL: no answer. */
static rd_kafka_event_t *ask(rd_kafka_t *client, char *const *topics, uint32_t n_topics)
{
    rd_kafka_ConfigResource_t **resources = fr_alloc(n_topics, sizeof(rd_kafka_ConfigResource_t *));
    for (uint32_t i = 0; i < n_topics; i++)
        resources[i] = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topics[i]);
    rd_kafka_AdminOptions_t *options = fr_kafka_admin_options(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DescribeConfigs(client, resources, n_topics, options, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, FR_KAFKA_ADMIN_MS + 1000);
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_ConfigResource_destroy_array(resources, n_topics);
    free(resources);
    return event;
}

static const rd_kafka_ConfigResource_t **answers_of(rd_kafka_event_t *event, size_t *n)
{
    *n = 0;
    return event && !rd_kafka_event_error(event)
               ? rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(event), n)
               : NULL;
}

bool fr_ingest_kafka_is_compacted(rd_kafka_t *client, char *topic)
{
    rd_kafka_event_t *event = ask(client, &topic, 1);
    size_t n = 0, n_entries = 0;
    const rd_kafka_ConfigResource_t **answers = answers_of(event, &n);
    const rd_kafka_ConfigEntry_t **entries = n == 1 ? rd_kafka_ConfigResource_configs(answers[0], &n_entries) : NULL;
    bool compacted = false;
    for (size_t i = 0; i < n_entries; i++) {
        const char *value = rd_kafka_ConfigEntry_value(entries[i]);
        compacted |=
            strcmp(rd_kafka_ConfigEntry_name(entries[i]), "cleanup.policy") == 0 && value && strstr(value, "compact");
    }
    if (event)
        rd_kafka_event_destroy(event);
    return compacted;
}

enum fr_status fr_ingest_kafka_policies(void *self, struct fr_err *err)
{
    struct fr_kafka_source *source = self;
    struct fr_kafka_topic found = {0};
    struct fr_err local;
    const char *first = source->conf->ingest.topics[0];
    bool asked =
        fr_ingest_kafka_probe(source, &local) == FR_OK &&
        fr_kafka_topic_ask(source->probe, first, false, POLICY_METADATA_MS, &found) == RD_KAFKA_RESP_ERR_NO_ERROR &&
        found.administrable;
    rd_kafka_event_t *event =
        asked ? ask(source->probe, source->conf->ingest.topics, source->conf->ingest.n_topics) : NULL;
    size_t n = 0;
    const rd_kafka_ConfigResource_t **answers = answers_of(event, &n);
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < n && status == FR_OK; i++) {
        rd_kafka_resp_err_t error = rd_kafka_ConfigResource_error(answers[i]);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
            status = judge_policy(source, answers[i], err);
        else if (!source->policies_told)
            tell_unknown(rd_kafka_ConfigResource_name(answers[i]), rd_kafka_err2str(error));
    }
    if (n == 0 && !source->policies_told)
        tell_unknown(first, event ? rd_kafka_event_error_string(event) : "the brokers did not answer");
    source->policies_told = true;
    if (event)
        rd_kafka_event_destroy(event);
    return status;
}
