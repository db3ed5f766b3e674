/* Reads the acknowledgement topic (exporter/replicas.h) into the table (replica_table.h).
 *
 * The topic is looked for at the start and every LOOK_MS: a topic that is missing is created, if
 * that is configured; one that was deleted, or whose number of partitions changed, is opened again.
 * Reading begins with the records that are younger than FR_REPLICA_FORGOTTEN_MS. The age of a
 * record that was on the topic at the open is that of its Kafka timestamp; a record that comes
 * later counts as new, so clocks that differ make no replica silent.
 *
 * No group is joined and nothing is committed. The client holds at most QUEUE_KIB of records.
 *
 * Owner: the thread that calls fr_replicas_step. The mutex guards the copy of the status. */
#include "exporter/replicas.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "kafka/kafka.h"
#include "replica_table.h"

enum {
    PARTITIONS_MAX = 64, /* partitions beyond them are not read: one is enough for the table */
    LOOK_MS = 10000,
    ANSWER_MS = 2000, /* a query about the topic */
    WAIT_MS = 200,    /* for the first record of a turn */
    TURN_RECORDS = 1024,
};
#define QUEUE_KIB "1024"
/* Of the topic that is created: an hour, which is more than FR_REPLICA_FORGOTTEN_MS. A broker
 * deletes whole segments. */
#define KEPT_MS "3600000"
#define SEGMENT_MS "600000"
#define RECORD_BYTES "65536"

struct fr_replicas {
    struct fr_publisher_options options;
    struct fr_kafka_property *properties;
    char *topic;
    rd_kafka_t *client;        /* NULL: not made */
    uint32_t partitions;       /* of the topic, as assigned; 0: not open */
    bool live[PARTITIONS_MAX]; /* the records that were there at the open were read */
    uint64_t look_ns;          /* when to look again */
    char connection[256];      /* the newest report of the client about its connections */
    struct fr_replicas_table *table;
    struct fr_replicas_status tally; /* `problem` is set here, the rest when it is published */
    pthread_mutex_t mutex;           /* guards `status` */
    struct fr_replicas_status status;
};

struct fr_replicas *fr_replicas_new(const struct fr_publisher_options *options, const char *topic)
{
    struct fr_replicas *replicas = fr_alloc(1, sizeof(*replicas));
    replicas->options = *options;
    replicas->properties = fr_alloc(options->n_properties + 1, sizeof(*replicas->properties));
    for (size_t i = 0; i < options->n_properties; i++)
        replicas->properties[i] = (struct fr_kafka_property){options->properties[i].name, options->properties[i].value,
                                                             options->properties[i].place};
    replicas->topic = fr_strdup(topic);
    replicas->table = fr_replicas_table_new(options->model);
    int rc = pthread_mutex_init(&replicas->mutex, NULL);
    FR_CHECK(rc == 0);
    return replicas;
}

static void close_client(struct fr_replicas *replicas)
{
    /* There is no group to leave. librdkafka 2.0.2 does not end a client whose assigned topic was
     * deleted, unless the topic is there again and assigned again (not to nothing before): a daemon
     * that ends at such a moment does not wait for the client (FR_CLOSE_S). */
    if (replicas->client)
        rd_kafka_destroy_flags(replicas->client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    replicas->client = NULL;
    replicas->partitions = 0;
}

void fr_replicas_free(struct fr_replicas *replicas)
{
    if (!replicas)
        return;
    close_client(replicas);
    pthread_mutex_destroy(&replicas->mutex);
    fr_replicas_table_free(replicas->table);
    free(replicas->topic);
    free(replicas->properties);
    free(replicas);
}

/* ---- the status ---- */

/* "": acknowledgements are read. The log has the beginning and the end of a problem. */
static void set_problem(struct fr_replicas *replicas, const char *text)
{
    char *problem = replicas->tally.problem, quoted[400];
    if (text[0] && !problem[0])
        fr_log(FR_LOG_WARN, "replicas", "acknowledgements_unread", "topic=%s problem=%s", replicas->topic,
               fr_log_quote(quoted, sizeof(quoted), text));
    if (!text[0] && problem[0])
        fr_log(FR_LOG_INFO, "replicas", "acknowledgements_read", "topic=%s", replicas->topic);
    snprintf(problem, FR_REPLICAS_PROBLEM_MAX, "%.319s", text);
}

static void publish(struct fr_replicas *replicas, int64_t now_ms)
{
    fr_replicas_table_describe(replicas->table, now_ms, &replicas->tally);
    pthread_mutex_lock(&replicas->mutex);
    replicas->status = replicas->tally;
    pthread_mutex_unlock(&replicas->mutex);
}

void fr_replicas_get_status(struct fr_replicas *replicas, struct fr_replicas_status *out)
{
    pthread_mutex_lock(&replicas->mutex);
    *out = replicas->status;
    pthread_mutex_unlock(&replicas->mutex);
}

/* ---- the topic ---- */

static void on_error(rd_kafka_t *client, int code, const char *reason, void *opaque)
{
    struct fr_replicas *replicas = opaque;
    (void)client;
    (void)fr_kafka_explain_connection(code, reason, replicas->connection, sizeof(replicas->connection));
}

static enum fr_status open_client(struct fr_replicas *replicas, struct fr_err *err)
{
    static const struct fr_kafka_setting required[] = {
        {"group.id", "freshet.replicas"}, /* required for assigning; never joined */
        {"enable.auto.commit", "false"},           {"enable.partition.eof", "true"},
        {"auto.offset.reset", "earliest"}, /* the topic was created again */
        {"isolation.level", "read_uncommitted"},   {"queued.max.messages.kbytes", QUEUE_KIB},
        {"fetch.message.max.bytes", RECORD_BYTES}, {NULL, NULL},
    };
    enum fr_status status = fr_kafka_open(&(struct fr_kafka_options){.type = RD_KAFKA_CONSUMER,
                                                                     .brokers = replicas->options.brokers,
                                                                     .name = replicas->options.model,
                                                                     .properties = replicas->properties,
                                                                     .n_properties = replicas->options.n_properties,
                                                                     .required = required,
                                                                     .opaque = replicas,
                                                                     .on_error = on_error},
                                          &replicas->client, err);
    if (status == FR_OK)
        rd_kafka_poll_set_consumer(replicas->client);
    return status;
}

static enum fr_status create_topic(struct fr_replicas *replicas, const struct fr_kafka_topic *found, struct fr_err *err)
{
    /* Acknowledgements are worth nothing after ten minutes. A compacted topic would keep one of
     * each name that there ever was. The broker's time decides what is old, not each replica's. */
    static const struct fr_kafka_setting settings[] = {{"cleanup.policy", "delete"},
                                                       {"retention.ms", KEPT_MS},
                                                       {"segment.ms", SEGMENT_MS},
                                                       {"max.message.bytes", RECORD_BYTES},
                                                       {"message.timestamp.type", "LogAppendTime"},
                                                       {NULL, NULL}};
    const char *topic = replicas->topic;
    if (!replicas->options.create)
        return fr_err_set(err, FR_E_NOT_FOUND,
                          "topic %s does not exist and export.create is off: create it with one partition, "
                          "cleanup.policy=delete and retention.ms=" KEPT_MS,
                          topic);
    if (!found->administrable)
        return fr_err_set(
            err, FR_E_NOT_FOUND,
            "topic %s does not exist, and the broker does not create topics on request: create it with one "
            "partition, cleanup.policy=delete and retention.ms=" KEPT_MS,
            topic);
    enum fr_status status = fr_kafka_topic_create(
        replicas->client, &(struct fr_kafka_new_topic){.name = topic, .partitions = 1, .settings = settings}, err);
    if (status == FR_OK)
        fr_log(FR_LOG_INFO, "replicas", "topic_created", "topic=%s partitions=1 retention_ms=" KEPT_MS, topic);
    else
        (void)fr_err_wrap(err, "topic %s does not exist and cannot be created", topic);
    return status;
}

/* Assigns all partitions, from the first record that is younger than FR_REPLICA_FORGOTTEN_MS. */
static enum fr_status assign(struct fr_replicas *replicas, uint32_t partitions, struct fr_err *err)
{
    uint32_t n = partitions < PARTITIONS_MAX ? partitions : PARTITIONS_MAX;
    int64_t since_ms = fr_wall_ms(replicas->options.clock) - FR_REPLICA_FORGOTTEN_MS;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
    for (uint32_t i = 0; i < n; i++)
        rd_kafka_topic_partition_list_add(list, replicas->topic, (int32_t)i)->offset = since_ms > 0 ? since_ms : 0;
    rd_kafka_resp_err_t error = rd_kafka_offsets_for_times(replicas->client, list, ANSWER_MS);
    for (int i = 0; i < list->cnt && !error; i++)
        error = list->elems[i].err;
    if (!error)
        error = rd_kafka_assign(replicas->client, list);
    rd_kafka_topic_partition_list_destroy(list);
    if (error)
        return fr_err_set(err, FR_E_UNAVAILABLE, "the brokers do not report where to begin in topic %s: %s",
                          replicas->topic, rd_kafka_err2str(error));
    memset(replicas->live, 0, sizeof(replicas->live));
    replicas->partitions = partitions;
    return FR_OK;
}

static enum fr_status look(struct fr_replicas *replicas, struct fr_err *err)
{
    struct fr_kafka_topic found;
    enum fr_status status = replicas->client ? FR_OK : open_client(replicas, err);
    if (status != FR_OK)
        return status;
    rd_kafka_resp_err_t error = fr_kafka_topic_ask(replicas->client, replicas->topic, false, ANSWER_MS, &found);
    if (error) {
        const char *reported = replicas->connection;
        return fr_err_set(err, FR_E_UNAVAILABLE, "brokers %s do not answer about topic %s: %s%s%s%s",
                          replicas->options.brokers, replicas->topic, rd_kafka_err2str(error), reported[0] ? " (" : "",
                          reported, reported[0] ? ")" : "");
    }
    replicas->connection[0] = '\0';
    if (found.error)
        return fr_err_set(err, fr_kafka_status(found.error), "topic %s: %s", replicas->topic,
                          rd_kafka_err2str(found.error));
    if (found.partitions == 0) {
        replicas->partitions = 0;
        status = create_topic(replicas, &found, err);
        return status == FR_OK ? FR_AGAIN : status; /* brokers may need a while to show it */
    }
    return found.partitions == replicas->partitions ? FR_OK : assign(replicas, found.partitions, err);
}

/* Looks at the topic if that is due. */
static void look_if_due(struct fr_replicas *replicas)
{
    enum { CREATED_MS = 500 };
    struct fr_err err = {0};
    uint64_t now_ns = fr_mono_ns(replicas->options.clock);
    if (now_ns < replicas->look_ns)
        return;
    enum fr_status status = look(replicas, &err);
    bool created = status == FR_AGAIN && err.text[0] == '\0';
    if (!created)
        set_problem(replicas, status == FR_OK ? "" : err.text);
    replicas->look_ns = now_ns + UINT64_C(1000000) * (created ? CREATED_MS : LOOK_MS);
}

/* ---- records ---- */

static int64_t age_of(const struct fr_replicas *replicas, const rd_kafka_message_t *message)
{
    rd_kafka_timestamp_type_t type;
    int64_t written_ms = rd_kafka_message_timestamp(message, &type), now_ms = fr_wall_ms(replicas->options.clock);
    bool live = message->partition < PARTITIONS_MAX && replicas->live[message->partition];
    return live || written_ms < 0 || written_ms >= now_ms ? 0 : now_ms - written_ms;
}

static void take(struct fr_replicas *replicas, const rd_kafka_message_t *message, fr_replicas_chain_of *chain_of,
                 void *self)
{
    int64_t now_ms = (int64_t)(fr_mono_ns(replicas->options.clock) / 1000000);
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF && message->partition < PARTITIONS_MAX)
        replicas->live[message->partition] = true;
    else if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        struct fr_replicas_chain chain = chain_of(self);
        fr_replicas_table_take(replicas->table, message->payload, message->payload ? message->len : 0,
                               age_of(replicas, message), &chain, now_ms);
    }
    /* Other errors are waited out by the client, or found by the next look. */
}

bool fr_replicas_step(struct fr_replicas *replicas, fr_replicas_chain_of *chain_of, void *self)
{
    look_if_due(replicas);
    int wait_ms = WAIT_MS;
    for (int i = 0; i < TURN_RECORDS && replicas->partitions > 0; i++) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(replicas->client, wait_ms);
        if (!message)
            break;
        take(replicas, message, chain_of, self);
        rd_kafka_message_destroy(message);
        wait_ms = 0;
    }
    int64_t now_ms = (int64_t)(fr_mono_ns(replicas->options.clock) / 1000000);
    fr_replicas_table_forget(replicas->table, now_ms);
    publish(replicas, now_ms);
    return replicas->partitions > 0;
}
