/* Queries about topics: whether a topic exists, its number of partitions, its settings.
 *
 * Queries go through a consumer, which never creates a topic by asking for it, because a broker's
 * default number of partitions must not decide ours. librdkafka's embedded broker has no controller
 * and answers neither CreateTopics nor DescribeConfigs. It is used with a warning
 * (docs/commands.md, "Topics"); a missing topic is then created by a query through a producer, upon
 * which the broker creates it.
 *
 * Thread: the publisher thread; each call blocks for at most a few seconds. The settings of a topic
 * that exists are never changed. */
#include "publisher_topic.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum {
    CREATED_POLLS_MAX = 30,
    CREATED_POLL_MS = 100,
    NEEDED_AFTER_MS = 600000,
    SETTINGS_MS = 3600000, /* between two queries of the topic's retention */
};

/* Sets the error that brokers do not answer, with the client's newest report of its connections. */
static enum fr_status no_metadata(const struct fr_publisher_board *board, rd_kafka_t *client, const char *topic,
                                  rd_kafka_resp_err_t error, struct fr_err *err)
{
    if (rd_kafka_type(client) == RD_KAFKA_CONSUMER) {
        /* Runs error callbacks; nothing is subscribed. */
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, 0);
        if (message)
            rd_kafka_message_destroy(message);
    } else {
        rd_kafka_poll(client, 0);
    }
    const char *reported = board->connection;
    return fr_err_set(err, FR_E_UNAVAILABLE, "brokers %s do not answer about topic %s: %s%s%s%s",
                      board->options.brokers, topic, rd_kafka_err2str(error), reported[0] ? " (" : "", reported,
                      reported[0] ? ")" : "");
}

static enum fr_status ask_topic(const struct fr_publisher_board *board, rd_kafka_t *client, const char *topic,
                                struct fr_kafka_topic *found, struct fr_err *err)
{
    rd_kafka_resp_err_t error = fr_kafka_topic_ask(client, topic, false, BROKER_TIMEOUT_MS, found);
    if (error)
        return no_metadata(board, client, topic, error, err);
    if (found->error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        return fr_err_set(err, FR_E_DENIED, "not authorised for topic %s", topic);
    if (found->error)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s: %s", topic, rd_kafka_err2str(found->error));
    return FR_OK;
}

/* Waits (bounded) until the brokers know the topic that was just created. */
static enum fr_status await_topic(const struct fr_publisher_board *board, rd_kafka_t *client, const char *topic,
                                  struct fr_kafka_topic *found, struct fr_err *err)
{
    for (int i = 0; i < CREATED_POLLS_MAX; i++) {
        enum fr_status status = ask_topic(board, client, topic, found, err);
        if (status == FR_OK && found->partitions > 0)
            return FR_OK;
        if (status != FR_OK && status != FR_E_UNAVAILABLE)
            return status;
        rd_kafka_poll(client, CREATED_POLL_MS);
    }
    return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s was created, but the brokers do not show it yet", topic);
}

/* Queries the settings of a topic. false: the broker does not answer. */
static bool ask_settings(rd_kafka_t *client, const char *topic, struct fr_kafka_topic_settings *out)
{
    char name[256], text[FR_KAFKA_TEXT_MAX]; /* a topic has 249 characters at most */
    char *const topics[] = {name};
    snprintf(name, sizeof(name), "%s", topic);
    return fr_kafka_topic_describe(client, topics, 1, out, text) && out->error == RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Estimates the bytes that a partition gets during retention_ms, from the bytes that this process
 * has sent. 0: unknown yet. */
static uint64_t needed_bytes(const struct fr_publisher_topic *topic)
{
    const struct fr_publisher_options *options = &topic->board->options;
    uint64_t ms = (fr_mono_ns(options->clock) - topic->begun_ns) / 1000000;
    if (ms < NEEDED_AFTER_MS)
        return 0;
    double bytes = (double)topic->board->tally.bytes * (double)options->retention_ms / (double)ms;
    return (uint64_t)(bytes / (options->end_partition - options->first_partition));
}

/* Judges whether the topic keeps what new replicas need, and logs which setting to change. */
static void judge_retention(const struct fr_publisher_topic *of, const struct fr_kafka_topic_settings *settings)
{
    const char *topic = of->board->options.topic;
    int64_t need_ms = of->board->options.retention_ms;
    uint64_t need_bytes = need_ms > 0 ? needed_bytes(of) : 0;
    bool short_ms = settings->retention_ms >= 0 && (need_ms == 0 || settings->retention_ms < need_ms);
    bool short_bytes =
        settings->retention_bytes >= 0 && (need_ms == 0 || (uint64_t)settings->retention_bytes < need_bytes);
    of->board->tally.topic.short_retention = short_ms || short_bytes;
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

void fr_publisher_check_retention(struct fr_publisher_topic *topic, rd_kafka_t *client, uint64_t now_ns)
{
    struct fr_kafka_topic_settings settings;
    if (now_ns - topic->settings_asked_ns < SETTINGS_MS * UINT64_C(1000000))
        return;
    topic->settings_asked_ns = now_ns;
    if (topic->administrable && ask_settings(client, topic->board->options.topic, &settings))
        judge_retention(topic, &settings);
}

/* ---- the size of records ---- */

static enum fr_status judge_size(const char *topic, const char *what, uint64_t bytes, uint64_t takes,
                                 struct fr_err *err)
{
    if (bytes == 0 || takes == 0 || takes >= bytes + BATCH_ROOM)
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

enum fr_status fr_publisher_check_size(rd_kafka_t *client, const char *topic, const char *what, uint64_t bytes,
                                       struct fr_err *err)
{
    struct fr_kafka_topic_settings settings;
    if (!ask_settings(client, topic, &settings))
        return FR_OK;
    return judge_size(topic, what, bytes, settings.message_bytes, err);
}

void fr_publisher_record_refused(struct fr_publisher_topic *topic, const rd_kafka_message_t *message)
{
    struct fr_publisher_board *board = topic->board;
    char text[sizeof(board->tally.refused)], remedy[80] = "";
    bool large = message->err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    uint64_t most = board->options.record_max > message->len ? board->options.record_max : message->len;
    if (large)
        snprintf(remedy, sizeof(remedy), "; set max.message.bytes=%" PRIu64 " on it", most + BATCH_ROOM);
    snprintf(text, sizeof(text), "a record of %zu bytes was not accepted by topic %.80s partition %d: %.60s%s",
             message->len, rd_kafka_topic_name(message->rkt), (int)message->partition, fr_kafka_refusal(message),
             remedy);
    board->tally.refused[0] = '\0'; /* unless it is set below, the reason is no longer the size */
    if (large) {
        memcpy(board->tally.refused, text, sizeof(text));
        snprintf(topic->refused.topic, sizeof(topic->refused.topic), "%s", rd_kafka_topic_name(message->rkt));
        topic->refused.bytes = most + BATCH_ROOM;
    }
    fr_publisher_set_problem(board, text);
}

bool fr_publisher_accepts_refused(const struct fr_publisher_topic *topic, rd_kafka_t *client)
{
    struct fr_kafka_topic_settings settings;
    return topic->administrable && ask_settings(client, topic->refused.topic, &settings) &&
           settings.message_bytes >= topic->refused.bytes;
}

/* ---- existence ---- */

static enum fr_status make_topic(struct fr_publisher_board *board, rd_kafka_t *client, const char *topic,
                                 struct fr_kafka_topic *found, struct fr_err *err)
{
    if (board->options.first_partition > 0)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s does not exist yet; rank 0 creates it", topic);
    if (!board->options.create)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s does not exist and export.create is off", topic);
    /* Nothing that new replicas need may be deleted or compacted. If the operator's topic keeps
     * less, the log has a warning. */
    char keeps_ms[32];
    int64_t need_ms = board->options.retention_ms;
    snprintf(keeps_ms, sizeof(keeps_ms), "%" PRId64, need_ms > 0 ? 2 * need_ms : -1);
    const struct fr_kafka_setting settings[] = {
        {"cleanup.policy", "delete"}, {"retention.ms", keeps_ms}, {"retention.bytes", "-1"}, {NULL, NULL}};
    const struct fr_kafka_new_topic wanted = {
        .name = topic, .partitions = board->options.partitions, .settings = settings};
    enum fr_status status = found->administrable ? fr_kafka_topic_create(client, &wanted, err) : FR_AGAIN;
    if (status == FR_OK) {
        fr_log(FR_LOG_INFO, "publisher", "topic_created", "topic=%s partitions=%u retention_ms=%s retention_bytes=-1",
               topic, board->options.partitions, keeps_ms);
        return await_topic(board, client, topic, found, err);
    }
    if (status != FR_AGAIN) {
        (void)fr_err_wrap(err, "cannot create topic %s", topic);
        return status;
    }
    fr_log(
        FR_LOG_WARN, "publisher", "topic_create_unanswered",
        "topic=%s problem=\"the broker does not create topics on request; a query for the topic may make the broker create it\"",
        topic);
    rd_kafka_t *producer = NULL;
    status = fr_publisher_client(board, (struct fr_kafka_options){.type = RD_KAFKA_PRODUCER}, &producer, err);
    if (status != FR_OK)
        return status;
    status = await_topic(board, producer, topic, found, err);
    rd_kafka_destroy(producer);
    return status;
}

enum fr_status fr_publisher_find_topic(struct fr_publisher_board *board, rd_kafka_t *client, const char *topic,
                                       struct fr_kafka_topic *found, struct fr_err *err)
{
    enum fr_status status = ask_topic(board, client, topic, found, err);
    if (status == FR_OK && found->partitions == 0)
        status = make_topic(board, client, topic, found, err);
    if (status == FR_OK && found->partitions < board->options.partitions)
        status =
            fr_err_set(err, FR_E_MISMATCH,
                       "topic %s has %u partitions, export.partitions is %u; the number is fixed for a timeline: set "
                       "export.partitions to %u before the first epoch, or name another topic",
                       topic, found->partitions, board->options.partitions, found->partitions);
    return status;
}

static enum fr_status check_settings(struct fr_publisher_topic *topic, rd_kafka_t *client, bool first,
                                     struct fr_err *err)
{
    const struct fr_publisher_options *options = &topic->board->options;
    struct fr_kafka_topic_settings settings;
    if (!topic->administrable || !ask_settings(client, options->topic, &settings)) {
        fr_log(
            FR_LOG_WARN, "publisher", "topic_policy_unknown",
            "topic=%s problem=\"the brokers did not give the topic's settings: grant DESCRIBE_CONFIGS on the topic, or "
            "check yourself that its cleanup.policy is delete\"",
            options->topic);
        return FR_OK;
    }
    if (settings.compacted)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s is compacted, which would delete delta records; set cleanup.policy=delete on it or "
                          "name another topic in export.topic",
                          options->topic);
    judge_retention(topic, &settings);
    return first ? judge_size(options->topic, "export.piece_max", options->record_max, settings.message_bytes, err)
                 : FR_OK;
}

enum fr_status fr_publisher_check_topic(struct fr_publisher_topic *topic, rd_kafka_t *client, bool first,
                                        struct fr_err *err)
{
    const struct fr_publisher_options *options = &topic->board->options;
    struct fr_kafka_topic found;
    enum fr_status status = fr_publisher_find_topic(topic->board, client, options->topic, &found, err);
    if (status != FR_OK)
        return status;
    if (found.partitions > options->partitions && topic->partitions != found.partitions)
        fr_log(FR_LOG_WARN, "publisher", "topic_partitions_unused",
               "topic=%s partitions=%u used=%u problem=\"the number that rows are divided by is fixed for a timeline: "
               "partitions from %u on stay empty\"",
               options->topic, found.partitions, options->partitions, options->partitions);
    topic->partitions = found.partitions;
    topic->administrable = found.administrable;
    return check_settings(topic, client, first, err);
}
