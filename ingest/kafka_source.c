/* The sample source over Kafka: librdkafka's per-partition consumer ("simple" API), two clients.
 *
 * The reader streams: consume_start at our offsets, no group membership, so nothing can rebalance
 * or reset them; one queue for all partitions, or, in lockstep, one each, which the group consumer
 * offers only with a race at assignment. Back-pressure is not polling: each partition's queue is
 * bounded (queued.max.messages.kbytes), fetching stops when it is full. The probe answers questions
 * that block (metadata, watermarks, one record); it lives during checks only, so that a question
 * never waits behind a stream. Messages are polled one by one, because 2.0.2's batch calls may lose
 * some (fixed in 2.1.0). Records below the begun offset may appear (2.0.2, fixed in 2.4.0); the
 * caller drops them. A message set that fails its check sum is skipped by librdkafka; it is
 * reported as FR_SOURCE_BROKEN, and the caller begins again at its own offset.
 *
 * Owner: ingest thread. It does not decide anything about offsets. */
#include "kafka.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "kafka_internal.h"

enum {
    METADATA_MS = 5000,
    WATERMARKS_MS = 5000,
    FETCH_MS = 5000,
    /* how long the last commit may hold up a stop; it is for lag tools only */
    COMMIT_CLOSE_MS = 2000,
    REVIVED_LOOK_MS = 200, /* a question to a broker that was down, once a second */
    LOOK_EVERY = 20,       /* empty polls between two of them */
    QUEUE_KBYTES = 65536,  /* of all partitions together */
    QUEUE_KBYTES_MIN = 1024,
};

struct partition {
    uint32_t topic; /* in conf->ingest.topics */
    bool reading;
};

struct topic {
    uint32_t n, capacity;
    uint32_t *index; /* [n] of its partitions, in the layout */
};

struct kafka_source {
    struct fr_ingest_health health; /* first: the clients' opaque */
    const struct fr_conf *conf;
    bool per_partition;
    uint32_t *order;      /* [n_topics] by name: the order of the layout */
    struct topic *topics; /* [n_topics] as in the conf; the opaque of the reader's */
    rd_kafka_t *probe, *reader;
    rd_kafka_topic_t **probe_topics, **reader_topics; /* [n_topics] */
    rd_kafka_queue_t *queue;                          /* of the reader, unless per_partition */
    rd_kafka_queue_t *commits;                        /* answers to commits */
    uint32_t n_partitions, capacity, n_commits;
    struct fr_source_partition *names;
    struct partition *partitions;
    uint32_t empty_polls;
    bool committed_error_said;
};

/* ---- clients ---- */

static enum fr_status client_new(struct kafka_source *source, bool probe, rd_kafka_t **out, rd_kafka_topic_t ***topics,
                                 struct fr_err *err)
{
    char group[FR_MODEL_MAX + 16], kbytes[16];
    /* A full queue is looked at again after a second (2.0.2). Partitions that share a queue are
     * each measured by all of it: a share of the bound would stop them all early and starve the
     * trainer. */
    uint32_t share = source->per_partition && source->n_partitions ? QUEUE_KBYTES / source->n_partitions : QUEUE_KBYTES;
    snprintf(group, sizeof(group), "freshet.%s", source->conf->model);
    snprintf(kbytes, sizeof(kbytes), "%u", share < QUEUE_KBYTES_MIN ? QUEUE_KBYTES_MIN : share);
    const struct fr_kafka_setting ours[] = {
        FR_INGEST_KAFKA_FIXED,
        {"group.id", group},
        {"isolation.level", "read_committed"},
        {"check.crcs", "true"},
        {"allow.auto.create.topics", "false"},
        {"fetch.wait.max.ms", "50"},
        {"fetch.error.backoff.ms", "100"},
        {"queued.max.messages.kbytes", kbytes},
        {NULL, NULL},
    };
    const struct fr_kafka_setting one_record[] = {
        {"fetch.message.max.bytes", "65536"}, {"queued.max.messages.kbytes", "1024"}, {NULL, NULL}};
    struct fr_kafka_options options = {
        .type = RD_KAFKA_CONSUMER, .ours = ours, .required = probe ? one_record : NULL, .opaque = &source->health};
    rd_kafka_t *client;
    enum fr_status status = fr_ingest_kafka_client(source->conf, options, &client, err);
    if (status != FR_OK)
        return status;
    uint32_t n = source->conf->ingest.n_topics;
    *topics = fr_alloc(n, sizeof(rd_kafka_topic_t *));
    for (uint32_t i = 0; i < n; i++) {
        rd_kafka_topic_conf_t *topic = rd_kafka_default_topic_conf_dup(client);
        rd_kafka_topic_conf_set_opaque(topic, &source->topics[i]);
        (*topics)[i] = rd_kafka_topic_new(client, source->conf->ingest.topics[i], topic);
        FR_CHECK((*topics)[i]);
    }
    *out = client;
    return FR_OK;
}

static void client_free(struct kafka_source *source, rd_kafka_t **client, rd_kafka_topic_t ***topics)
{
    if (!*client)
        return;
    for (uint32_t i = 0; i < source->conf->ingest.n_topics; i++)
        rd_kafka_topic_destroy((*topics)[i]);
    free(*topics);
    *topics = NULL;
    rd_kafka_destroy_flags(*client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    *client = NULL;
}

static enum fr_status need_probe(struct kafka_source *source, struct fr_err *err)
{
    return source->probe ? FR_OK : client_new(source, true, &source->probe, &source->probe_topics, err);
}

/* "what: answer (what the connection said)" */
static enum fr_status unavailable(struct kafka_source *source, rd_kafka_resp_err_t code, const char *what,
                                  struct fr_err *err)
{
    if (source->probe)
        rd_kafka_poll(source->probe, 0);
    bool said = source->health.text[0] != 0;
    return fr_err_set(err, fr_kafka_status(code), "%s at %s: %s%s%s%s", what, source->conf->ingest.brokers,
                      rd_kafka_err2str(code), said ? " (" : "", source->health.text, said ? ")" : "");
}

/* ---- questions ---- */

/* Partitions of a topic are 0 .. n-1 and only grow in number. */
static void add_partition(struct kafka_source *source, uint32_t topic)
{
    struct topic *of = &source->topics[topic];
    if (of->n == of->capacity) {
        of->capacity = of->capacity ? 2 * of->capacity : 16;
        of->index = fr_realloc(of->index, of->capacity, sizeof(*of->index));
    }
    int32_t partition = (int32_t)of->n;
    of->index[of->n++] = source->n_partitions;
    if (source->n_partitions == source->capacity) {
        source->capacity = source->capacity ? 2 * source->capacity : 16;
        source->names = fr_realloc(source->names, source->capacity, sizeof(*source->names));
        source->partitions = fr_realloc(source->partitions, source->capacity, sizeof(*source->partitions));
    }
    struct fr_source_partition *name = &source->names[source->n_partitions];
    *name = (struct fr_source_partition){.partition = partition};
    snprintf(name->topic, sizeof(name->topic), "%s", source->conf->ingest.topics[topic]);
    source->partitions[source->n_partitions++] = (struct partition){.topic = topic};
}

static enum fr_status discover_topic(struct kafka_source *source, uint32_t topic, struct fr_err *err)
{
    const char *name = source->conf->ingest.topics[topic];
    struct fr_kafka_topic found;
    rd_kafka_resp_err_t code =
        fr_kafka_topic_ask(source->reader ? source->reader : source->probe, name, false, METADATA_MS, &found);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return unavailable(source, code, "no answer from the brokers", err);
    if (found.error)
        return fr_err_set(err, fr_kafka_status(found.error), "topic %s at %s: %s", name, source->conf->ingest.brokers,
                          rd_kafka_err2str(found.error));
    /* Of one that was there its partitions say so; the other topics are looked at all the same. */
    if (found.partitions == 0 && !(source->topics[topic].n && source->reader))
        return fr_err_set(
            err, FR_E_UNAVAILABLE,
            "topic %s does not exist at %s: create it, or correct ingest.topic; reading begins when it is there", name,
            source->conf->ingest.brokers);
    while (source->topics[topic].n < found.partitions &&
           source->n_partitions <= FR_PARTITIONS_MAX) /* one too many: the caller refuses */
        add_partition(source, topic);
    return FR_OK;
}

static enum fr_status discover(void *self, struct fr_source_layout *out, struct fr_err *err)
{
    struct kafka_source *source = self;
    enum fr_status status = source->reader ? FR_OK : need_probe(source, err);
    for (uint32_t i = 0; status == FR_OK && i < source->conf->ingest.n_topics; i++)
        status = discover_topic(source, source->order[i], err);
    if (status != FR_OK)
        return status;
    out->cluster_id[0] = 0;
    rd_kafka_t *client = source->reader ? source->reader : source->probe;
    char *cluster_id = rd_kafka_clusterid(client, METADATA_MS);
    if (cluster_id) {
        snprintf(out->cluster_id, sizeof(out->cluster_id), "%s", cluster_id);
        rd_kafka_mem_free(client, cluster_id);
    }
    out->n_partitions = source->n_partitions;
    out->partitions = source->names;
    source->health = (struct fr_ingest_health){0};
    return FR_OK;
}

static enum fr_status watermarks(void *self, uint32_t index, int64_t *low, int64_t *high, struct fr_err *err)
{
    struct kafka_source *source = self;
    enum fr_status status = need_probe(source, err);
    if (status != FR_OK)
        return status;
    const struct fr_source_partition *name = &source->names[index];
    rd_kafka_resp_err_t code =
        rd_kafka_query_watermark_offsets(source->probe, name->topic, name->partition, low, high, WATERMARKS_MS);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        return FR_OK;
    char what[FR_TOPIC_MAX + 64];
    snprintf(what, sizeof(what), "no offsets of %s/%" PRId32, name->topic, name->partition);
    return unavailable(source, code, what, err);
}

static enum fr_status offset_at(void *self, uint32_t index, int64_t timestamp_ms, int64_t *offset, struct fr_err *err)
{
    struct kafka_source *source = self;
    enum fr_status status = need_probe(source, err);
    if (status != FR_OK)
        return status;
    const struct fr_source_partition *name = &source->names[index];
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *asked = rd_kafka_topic_partition_list_add(list, name->topic, name->partition);
    asked->offset = timestamp_ms;
    rd_kafka_resp_err_t code = rd_kafka_offsets_for_times(source->probe, list, WATERMARKS_MS);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        code = asked->err;
    int64_t found = asked->offset;
    rd_kafka_topic_partition_list_destroy(list);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        char what[FR_TOPIC_MAX + 64];
        snprintf(what, sizeof(what), "no offset by time of %s/%" PRId32, name->topic, name->partition);
        return unavailable(source, code, what, err);
    }
    if (found < 0) /* RD_KAFKA_OFFSET_END */
        return FR_EOF;
    *offset = found;
    return FR_OK;
}

static void take_message(rd_kafka_message_t *message, uint32_t index, struct fr_source_event *out)
{
    *out = (struct fr_source_event){
        .kind = FR_SOURCE_RECORD,
        .partition = index,
        .offset = message->offset,
        .timestamp_ms = rd_kafka_message_timestamp(message, NULL),
        .value = message->payload,
        .size = message->payload ? message->len : 0,
        .key = message->key,
        .key_size = message->key ? message->key_len : 0,
        .handle = message,
    };
}

static enum fr_status fetch(void *self, uint32_t index, int64_t offset, struct fr_source_event *out, struct fr_err *err)
{
    struct kafka_source *source = self;
    enum fr_status status = need_probe(source, err);
    if (status != FR_OK)
        return status;
    const struct fr_source_partition *name = &source->names[index];
    rd_kafka_topic_t *topic = source->probe_topics[source->partitions[index].topic];
    char what[FR_TOPIC_MAX + 64];
    snprintf(what, sizeof(what), "no record %" PRId64 " of %s/%" PRId32, offset, name->topic, name->partition);
    if (rd_kafka_consume_start(topic, name->partition, offset) != 0)
        return unavailable(source, rd_kafka_last_error(), what, err);
    rd_kafka_message_t *message = rd_kafka_consume(topic, name->partition, FETCH_MS);
    rd_kafka_resp_err_t code = message ? message->err : RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && message->offset == offset) {
        take_message(message, index, out);
        message = NULL;
        status = FR_OK;
    } else if (code == RD_KAFKA_RESP_ERR_NO_ERROR || code == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        status = FR_EOF;
    } else {
        status = unavailable(source, code, what, err);
    }
    if (message)
        rd_kafka_message_destroy(message);
    rd_kafka_consume_stop(topic, name->partition);
    return status;
}

/* A record of the probe (fetch) keeps it alive: librdkafka's destroy waits for its messages. The
 * caller has released them. */
static void checked(void *self)
{
    struct kafka_source *source = self;
    client_free(source, &source->probe, &source->probe_topics);
}

/* ---- the stream ---- */

static enum fr_status begin(void *self, uint32_t index, int64_t offset, struct fr_err *err)
{
    struct kafka_source *source = self;
    const struct fr_source_partition *name = &source->names[index];
    if (!source->reader) {
        enum fr_status status = client_new(source, false, &source->reader, &source->reader_topics, err);
        if (status != FR_OK)
            return status;
        source->queue = source->per_partition ? NULL : rd_kafka_queue_new(source->reader);
        source->commits = rd_kafka_queue_new(source->reader);
    }
    rd_kafka_topic_t *topic = source->reader_topics[source->partitions[index].topic];
    int failed = source->queue ? rd_kafka_consume_start_queue(topic, name->partition, offset, source->queue)
                               : rd_kafka_consume_start(topic, name->partition, offset);
    if (failed)
        return fr_err_set(err, FR_E_UNAVAILABLE, "%s/%" PRId32 ": reading from %" PRId64 ": %s", name->topic,
                          name->partition, offset, rd_kafka_err2str(rd_kafka_last_error()));
    source->partitions[index].reading = true;
    /* from before the check that let this begin */
    source->health.topic_gone = source->health.topic_denied = false;
    return FR_OK;
}

static void halt(void *self, uint32_t index)
{
    struct kafka_source *source = self;
    if (!source->partitions[index].reading)
        return;
    source->partitions[index].reading = false;
    rd_kafka_consume_stop(source->reader_topics[source->partitions[index].topic], source->names[index].partition);
}

static bool index_of(const rd_kafka_message_t *message, uint32_t *index)
{
    const struct topic *topic = message->rkt ? rd_kafka_topic_opaque(message->rkt) : NULL;
    if (!topic || message->partition < 0 || (uint32_t)message->partition >= topic->n)
        return false;
    *index = topic->index[message->partition];
    return true;
}

/* A right that was taken away may come back: reading is tried again and goes on where it was. */
static void say_denied(const struct kafka_source *source, const char *reason, struct fr_source_event *out)
{
    out->kind = FR_SOURCE_BROKEN;
    snprintf(out->text, sizeof(out->text), "%.60s; grant this user READ on the topic and on group freshet.%.120s",
             reason, source->conf->model);
}

static void take_error(const struct kafka_source *source, const rd_kafka_message_t *message, uint32_t index,
                       struct fr_source_event *out)
{
    rd_kafka_resp_err_t code = message->err;
    *out = (struct fr_source_event){.partition = index, .offset = message->offset};
    snprintf(out->text, sizeof(out->text), "%s", rd_kafka_message_errstr(message));
    switch (code) {
    case RD_KAFKA_RESP_ERR__PARTITION_EOF:
        out->kind = FR_SOURCE_END;
        break;
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        out->kind = FR_SOURCE_RESET;
        break;
    default:
        out->kind = FR_SOURCE_BROKEN;
        if (fr_kafka_status(code) == FR_E_DENIED)
            say_denied(source, rd_kafka_err2str(code), out);
    }
}

/* What the client as a whole was told concerns its partitions; a topic that was deleted or may not
 * be read breaks them one a call (all topics': which one it was shows when each is looked at
 * again). */
static enum fr_status take_health(struct kafka_source *source, struct fr_source_event *out)
{
    bool broken = source->health.topic_gone || source->health.topic_denied;
    for (uint32_t i = 0; broken && i < source->n_partitions; i++)
        if (source->partitions[i].reading) {
            *out = (struct fr_source_event){.kind = FR_SOURCE_BROKEN, .partition = i};
            snprintf(out->text, sizeof(out->text), "%.255s", source->health.text);
            if (source->health.topic_denied)
                say_denied(source, source->health.text, out);
            return FR_OK;
        }
    source->health.topic_gone = source->health.topic_denied = false;
    return FR_AGAIN;
}

/* Whether the brokers are back when there is nothing to read: only a question can tell. */
static void look_again(struct kafka_source *source)
{
    if (!source->health.down || source->empty_polls++ % LOOK_EVERY != 0)
        return;
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(source->reader, 0, source->reader_topics[0], &metadata, REVIVED_LOOK_MS) ==
        RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_metadata_destroy(metadata);
        source->health = (struct fr_ingest_health){0};
    }
}

static void drain_commits(struct kafka_source *source, int wait_ms)
{
    rd_kafka_event_t *event;
    while (source->n_commits && (event = rd_kafka_queue_poll(source->commits, wait_ms))) {
        source->n_commits--;
        rd_kafka_resp_err_t code = rd_kafka_event_error(event);
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR && !source->committed_error_said) {
            source->committed_error_said = true;
            fr_log(FR_LOG_WARN, "ingest", "group_commit",
                   "reason=\"%s\" effect=\"lag tools see no progress; training is not affected\"",
                   rd_kafka_err2str(code));
        }
        rd_kafka_event_destroy(event);
    }
}

static enum fr_status poll_event(void *self, int64_t index, int wait_ms, struct fr_source_event *out,
                                 struct fr_err *err)
{
    struct kafka_source *source = self;
    (void)err;
    FR_CHECK(source->reader && (index < 0) == (source->queue != NULL));
    rd_kafka_message_t *message = source->queue
                                      ? rd_kafka_consume_queue(source->queue, wait_ms)
                                      : rd_kafka_consume(source->reader_topics[source->partitions[index].topic],
                                                         source->names[index].partition, wait_ms);
    if (!message) {
        rd_kafka_poll(source->reader, 0); /* error callbacks */
        drain_commits(source, 0);
        look_again(source);
        return take_health(source, out);
    }
    uint32_t at;
    enum fr_status status = FR_AGAIN;
    bool ours = index_of(message, &at);
    if (ours && message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        take_message(message, at, out);
        source->health.down = false;
        source->health.text[0] = 0;
        return FR_OK;
    }
    if (ours && source->partitions[at].reading) {
        take_error(source, message, at, out);
        status = FR_OK;
    }
    if (status == FR_OK && out->kind == FR_SOURCE_END)
        source->health = (struct fr_ingest_health){0};
    rd_kafka_message_destroy(message);
    return status;
}

static void release(void *self, struct fr_source_event *event)
{
    (void)self;
    if (event->handle)
        rd_kafka_message_destroy(event->handle);
    event->handle = NULL;
}

static size_t headers(void *self, const struct fr_source_event *event, struct fr_record_header *out, size_t capacity)
{
    (void)self;
    rd_kafka_headers_t *list;
    if (!event->handle || rd_kafka_message_headers(event->handle, &list) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return 0;
    size_t n = rd_kafka_header_cnt(list);
    for (size_t i = 0; i < n && i < capacity; i++)
        if (rd_kafka_header_get_all(list, i, &out[i].name, &out[i].value, &out[i].size) != RD_KAFKA_RESP_ERR_NO_ERROR)
            return i;
    return n;
}

/* Positions also name files, and topics that were left. */
static bool is_topic(const struct kafka_source *source, const char *name)
{
    for (uint32_t i = 0; i < source->conf->ingest.n_topics; i++)
        if (strcmp(source->conf->ingest.topics[i], name) == 0)
            return true;
    return false;
}

static void commit(void *self, const struct fr_positions *positions)
{
    struct kafka_source *source = self;
    if (!source->reader)
        return;
    drain_commits(source, 0);
    if (source->n_commits) /* the broker does not answer; the next durable epoch says more anyway */
        return;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)positions->count);
    for (uint32_t i = 0; i < positions->count; i++)
        if (positions->partitions[i].offset >= 0 && is_topic(source, positions->partitions[i].topic))
            rd_kafka_topic_partition_list_add(list, positions->partitions[i].topic, positions->partitions[i].partition)
                ->offset = positions->partitions[i].offset;
    if (list->cnt &&
        rd_kafka_commit_queue(source->reader, list, source->commits, NULL, NULL) == RD_KAFKA_RESP_ERR_NO_ERROR)
        source->n_commits++;
    rd_kafka_topic_partition_list_destroy(list);
}

static int64_t high(void *self, uint32_t index)
{
    struct kafka_source *source = self;
    int64_t first, end;
    if (!source->reader ||
        rd_kafka_get_watermark_offsets(source->reader, source->names[index].topic, source->names[index].partition,
                                       &first, &end) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return -1;
    return end;
}

static bool connected(void *self, char *problem, size_t size)
{
    struct kafka_source *source = self;
    if (source->reader && !source->health.down)
        return true;
    if (source->health.text[0])
        snprintf(problem, size, "brokers %s: %s", source->conf->ingest.brokers, source->health.text);
    else
        snprintf(problem, size, "brokers %s: not connected yet", source->conf->ingest.brokers);
    return false;
}

/* ---- life ---- */

static void kafka_source_free(struct kafka_source *source)
{
    for (uint32_t i = 0; i < source->conf->ingest.n_topics; i++)
        free(source->topics[i].index);
    free(source->topics);
    free(source->order);
    free(source->names);
    free(source->partitions);
    free(source);
}

static void source_close(void *self)
{
    struct kafka_source *source = self;
    client_free(source, &source->probe, &source->probe_topics);
    if (source->reader) {
        for (uint32_t i = 0; i < source->n_partitions; i++)
            halt(source, i);
        drain_commits(source, COMMIT_CLOSE_MS);
        rd_kafka_queue_destroy(source->commits);
        if (source->queue)
            rd_kafka_queue_destroy(source->queue);
        client_free(source, &source->reader, &source->reader_topics);
    }
    kafka_source_free(source);
}

enum fr_status fr_ingest_kafka_source(const struct fr_conf *conf, bool per_partition, struct fr_source *out,
                                      struct fr_err *err)
{
    struct kafka_source *source = fr_alloc(1, sizeof(*source));
    source->conf = conf;
    source->per_partition = per_partition;
    uint32_t n = conf->ingest.n_topics;
    source->topics = fr_alloc(n, sizeof(*source->topics));
    source->order = fr_alloc(n, sizeof(*source->order));
    for (uint32_t i = 0; i < n; i++) { /* inserted by name */
        uint32_t at = i;
        for (; at > 0 && strcmp(conf->ingest.topics[source->order[at - 1]], conf->ingest.topics[i]) > 0; at--)
            source->order[at] = source->order[at - 1];
        source->order[at] = i;
    }
    /* the properties are checked now, the broker later */
    enum fr_status status = need_probe(source, err);
    if (status != FR_OK) {
        kafka_source_free(source);
        return status;
    }
    *out = (struct fr_source){
        .self = source,
        .discover = discover,
        .watermarks = watermarks,
        .offset_at = offset_at,
        .fetch = fetch,
        .checked = checked,
        .begin = begin,
        .halt = halt,
        .poll = poll_event,
        .release = release,
        .headers = headers,
        .commit = commit,
        .high = high,
        .connected = connected,
        .close = source_close,
    };
    return FR_OK;
}
