/* Checks, by the settings of the topics, how long they keep records, and to how many bytes a
 * batch may inflate. The check is made at the start and once a minute.
 *
 * A compacted topic deletes a record when a later record has the same key, whether the first was
 * read or not. An offset that is missing would look like that of a transaction marker, so none
 * would be counted as lost (P8). Such a topic is refused, as a compacted delta topic is.
 * librdkafka's embedded broker, and brokers that do not let this user describe the topic, do not
 * answer; the start warns once.
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
    /* a warning is logged if a batch can inflate to more than memory_limit / BATCH_SHARE */
    BATCH_SHARE = 2,
};

/* Returns how many bytes of records one byte of a batch may hold, according to the topic's
 * compression.type: `uncompressed` makes brokers store, and measure, what the producer
 * compressed; any other setting makes brokers inflate the batch and compress it themselves.
 * librdkafka inflates gzip (and lz4) without a bound, zstd up to receive.message.max.bytes. */
static uint64_t inflation(const char *compression)
{
    static const struct {
        const char *type;
        uint64_t most;
    } types[] = {{"uncompressed", 1}, {"snappy", 22}, {"lz4", 255}, {"zstd", 100}};
    for (size_t i = 0; i < FR_ARRAY_LEN(types); i++)
        if (strcmp(compression, types[i].type) == 0)
            return types[i].most;
    return 1032; /* gzip, or the compression that the producer chooses */
}

static void log_bound(const struct fr_kafka_source *source, const char *topic, uint64_t bytes, const char *compression)
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
                 "compression.type=uncompressed on the topic, so that brokers refuse batches larger than "
                 "max.message.bytes, or a smaller max.message.bytes; otherwise its producers must be trusted"
               : "memory that one batch may take while it is read");
}

static enum fr_status judge_policy(const struct fr_kafka_source *source, const char *topic,
                                   const struct fr_kafka_topic_settings *settings, struct fr_err *err)
{
    if (!source->policies_logged)
        log_bound(source, topic, settings->message_bytes, settings->compression);
    if (settings->compacted)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s is compacted (cleanup.policy=%s): samples whose key comes again are deleted before "
                          "they are trained, and nobody could count them; set cleanup.policy=delete on it, or read "
                          "another topic",
                          topic, settings->cleanup);
    return FR_OK;
}

static void log_unknown_policy(const char *topic, const char *reason)
{
    char quoted[256];
    fr_log(
        FR_LOG_WARN, "ingest", "topic_policy_unknown",
        "topic=%s reason=%s problem=\"the topic's settings cannot be read: grant DESCRIBE_CONFIGS on the topic, or check "
        "yourself that its cleanup.policy is delete\"",
        topic, fr_log_quote(quoted, sizeof(quoted), reason));
}

bool fr_ingest_kafka_is_compacted(rd_kafka_t *client, char *topic)
{
    struct fr_kafka_topic_settings settings;
    char text[FR_KAFKA_TEXT_MAX];
    return fr_kafka_topic_describe(client, &topic, 1, &settings, text) && settings.compacted;
}

enum fr_status fr_ingest_kafka_policies(void *self, struct fr_err *err)
{
    struct fr_kafka_source *source = self;
    struct fr_kafka_topic found = {0};
    struct fr_err local;
    char *const *topics = source->conf->ingest.topics;
    uint32_t n = source->conf->ingest.n_topics;
    struct fr_kafka_topic_settings *settings = fr_alloc(n, sizeof(*settings));
    char text[FR_KAFKA_TEXT_MAX] = "the brokers did not answer";
    bool answered =
        fr_ingest_kafka_probe(source, &local) == FR_OK &&
        fr_kafka_topic_ask(source->probe, topics[0], false, POLICY_METADATA_MS, &found) == RD_KAFKA_RESP_ERR_NO_ERROR &&
        found.administrable && fr_kafka_topic_describe(source->probe, topics, n, settings, text);
    enum fr_status status = FR_OK;
    for (uint32_t i = 0; i < n && answered && status == FR_OK; i++) {
        if (settings[i].error == RD_KAFKA_RESP_ERR_NO_ERROR)
            status = judge_policy(source, topics[i], &settings[i], err);
        else if (!source->policies_logged)
            log_unknown_policy(topics[i], rd_kafka_err2str(settings[i].error));
    }
    if (!answered && !source->policies_logged)
        log_unknown_policy(topics[0], text);
    source->policies_logged = true;
    free(settings);
    return status;
}
