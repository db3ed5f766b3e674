/* Questions to the brokers about the topics that are read: partitions, ends of the log, records
 * at an offset. A client of its own (the probe) asks them. The probe lives during checks only.
 * Since it has its own connections, a question never waits until records have been streamed.
 *
 * Many partitions are asked for at once: offsets by one request for each topic and leader,
 * records through one queue. Metadata shows which partitions have no leader, and nothing waits
 * for those. If a broker does not answer, only the partitions that it leads have no answer.
 * librdkafka 2.0.2 has no ListOffsets in its admin interface; rd_kafka_offsets_for_times sends
 * the same request and accepts the protocol's numbers for the beginning and the end of a log
 * instead of a time.
 *
 * Owner: ingest thread. Offsets are chosen by the caller. */
#include "kafka_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/log.h"

enum {
    METADATA_MS = 5000,
    OFFSETS_MS = 5000,
    MARKS_MS = 5000,
    AGAIN_MS = 1000,    /* limit of each question while other partitions are being read */
    MARKS_LATE_MAX = 5, /* how often the limit is doubled for a record that takes long to inflate */
    MARKS_AT_ONCE = 256,
    /* Limit of the memory of fetched records that were not read yet, of all partitions together.
     * librdkafka 2.0.2 checks a full queue again after a second, so at most this amount is read
     * in a second. */
    QUEUE_SHARE = 16, /* the limit is memory_limit / QUEUE_SHARE */
    QUEUE_KBYTES_MIN = 1024,
    QUEUE_KBYTES_MAX = 1048576,
    /* Limit of the records in a queue, because the client needs memory for each record in
     * addition to its bytes: this number, which is librdkafka's default, or one for each
     * kilobyte if that is more. A queue that is full by this limit is also checked again after a
     * second. */
    QUEUE_RECORDS_MIN = 100000,
    FETCH_SHARE = 32,       /* one answer has at most memory_limit / FETCH_SHARE bytes */
    FETCH_BYTES = 52428800, /* librdkafka's own default */
    FETCH_BYTES_MIN = 1048576,
    /* bytes of a partition in one answer, or one batch: a small service meets one decompression
     * bomb at a time */
    PARTITION_SHARE = 256,
    PARTITION_BYTES = 1048576, /* librdkafka's own default */
    PARTITION_BYTES_MIN = 65536,
};

static uint64_t between(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* ---- clients ---- */

enum fr_status fr_ingest_kafka_connect(struct fr_kafka_source *source, bool probe, rd_kafka_t **out,
                                       rd_kafka_topic_t ***topics, struct fr_err *err)
{
    char group[FR_MODEL_MAX + 16], kbytes[16], records[16], fetch[24], part[24];
    /* librdkafka compares the limit of each partition with the whole queue that the partitions
     * share. If each partition had a share of the limit, all would stop early and the trainer
     * would have no records. */
    uint64_t limit = source->conf->memory_limit;
    uint32_t queue = (uint32_t)between(limit / QUEUE_SHARE / 1024, QUEUE_KBYTES_MIN, QUEUE_KBYTES_MAX);
    uint32_t share = source->per_partition && source->n_partitions ? queue / source->n_partitions : queue;
    snprintf(group, sizeof(group), "freshet.%s", source->conf->model);
    snprintf(fetch, sizeof(fetch), "%" PRIu64, between(limit / FETCH_SHARE, FETCH_BYTES_MIN, FETCH_BYTES));
    snprintf(part, sizeof(part), "%" PRIu64, between(limit / PARTITION_SHARE, PARTITION_BYTES_MIN, PARTITION_BYTES));
    snprintf(kbytes, sizeof(kbytes), "%u", share < QUEUE_KBYTES_MIN ? QUEUE_KBYTES_MIN : share);
    snprintf(records, sizeof(records), "%u", share < QUEUE_RECORDS_MIN ? QUEUE_RECORDS_MIN : share);
    const struct fr_kafka_setting ours[] = {
        FR_INGEST_KAFKA_FIXED,
        {"group.id", group},
        /* for the probe, the end of a log does not depend on transactions */
        {"isolation.level", probe && !source->stable ? "read_uncommitted" : "read_committed"},
        /* the probe reports why a broker closed its connection; the reader connects again */
        {"log.connection.close", probe ? "true" : "false"},
        {"check.crcs", "true"},
        {"allow.auto.create.topics", "false"},
        {"fetch.wait.max.ms", "50"},
        /* After an error of a partition the client asks about its topic before it fetches again;
         * after the answer the fingerprint is requested (kafka_source.c). */
        {"topic.metadata.refresh.fast.interval.ms", "50"},
        {"fetch.error.backoff.ms", "300"},
        {"queued.max.messages.kbytes", kbytes},
        {"queued.min.messages", records},
        {"fetch.max.bytes", fetch},
        {"fetch.message.max.bytes", part},
        {NULL, NULL},
    };
    const struct fr_kafka_setting one_record[] = {
        {"fetch.message.max.bytes", "65536"}, {"queued.max.messages.kbytes", "1024"}, {NULL, NULL}};
    if (!probe && !source->report && !source->contact)
        source->contact = fr_kafka_contact_new(source->asked);
    struct fr_kafka_listener listener = fr_kafka_contact_listener(source->contact);
    struct fr_kafka_options options = {.type = RD_KAFKA_CONSUMER,
                                       .ours = ours,
                                       .required = probe ? one_record : NULL,
                                       .opaque = &source->health,
                                       .listener = probe || source->report ? NULL : &listener,
                                       .report = source->report};
    rd_kafka_t *client;
    enum fr_status status = fr_ingest_kafka_client(source->conf, options, &client, err);
    if (status != FR_OK || source->report)
        return status;
    uint32_t n = source->conf->ingest.n_topics;
    *topics = fr_alloc(n, sizeof(rd_kafka_topic_t *));
    for (uint32_t i = 0; i < n; i++) {
        rd_kafka_topic_conf_t *topic = rd_kafka_default_topic_conf_dup(client);
        rd_kafka_topic_conf_set_opaque(topic, &source->topics[i]);
        (*topics)[i] = rd_kafka_topic_new(client, source->conf->ingest.topics[i], topic);
        FR_CHECK((*topics)[i]);
    }
    if (!probe)
        fr_kafka_contact_begin(source->contact, client);
    *out = client;
    return FR_OK;
}

void fr_ingest_kafka_shut(struct fr_kafka_source *source, rd_kafka_t **client, rd_kafka_topic_t ***topics)
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

enum fr_status fr_ingest_kafka_probe(struct fr_kafka_source *source, struct fr_err *err)
{
    return source->probe ? FR_OK : fr_ingest_kafka_connect(source, true, &source->probe, &source->probe_topics, err);
}

/* Sets err to "what: answer (last error of the connection)". */
static enum fr_status unavailable(struct fr_kafka_source *source, rd_kafka_resp_err_t code, const char *what,
                                  struct fr_err *err)
{
    if (source->probe)
        rd_kafka_poll(source->probe, 0);
    bool reported = source->health.text[0] != 0;
    return fr_err_set(err, fr_kafka_status(code), "%s at %s: %s%s%s%s", what, source->conf->ingest.brokers,
                      rd_kafka_err2str(code), reported ? " (" : "", source->health.text, reported ? ")" : "");
}

/* ---- questions ---- */

/* Partitions of a topic are 0 .. n-1 and only grow in number. */
static void add_partition(struct fr_kafka_source *source, uint32_t topic)
{
    struct fr_kafka_lanes *of = &source->topics[topic];
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
    source->partitions[source->n_partitions++] = (struct fr_kafka_partition){.topic = topic};
}

static enum fr_status discover_topic(struct fr_kafka_source *source, uint32_t topic, struct fr_err *err)
{
    const char *name = source->conf->ingest.topics[topic];
    struct fr_kafka_topic found;
    struct fr_kafka_contact_count before = fr_ingest_kafka_asking(source);
    rd_kafka_resp_err_t code =
        fr_kafka_topic_ask(source->reader ? source->reader : source->probe, name, false, METADATA_MS, &found);
    if (source->reader)
        fr_ingest_kafka_asked(source, before);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return unavailable(source, code, "no answer from the brokers", err);
    if (found.error)
        return fr_err_set(err, fr_kafka_status(found.error), "topic %s at %s: %s", name, source->conf->ingest.brokers,
                          rd_kafka_err2str(found.error));
    /* If the topic existed before, its partitions report this; other topics are still checked. */
    if (found.partitions == 0 && !(source->topics[topic].n && source->reader))
        return fr_err_set(
            err, FR_E_UNAVAILABLE,
            "topic %s does not exist at %s: create it, or correct ingest.topic; reading begins when it is there", name,
            source->conf->ingest.brokers);
    while (source->topics[topic].n < found.partitions &&
           /* one more than allowed suffices for the caller to refuse */
           source->n_partitions <= FR_PARTITIONS_MAX)
        add_partition(source, topic);
    return FR_OK;
}

enum fr_status fr_ingest_kafka_discover(void *self, struct fr_source_layout *out, struct fr_err *err)
{
    struct fr_kafka_source *source = self;
    enum fr_status status = source->reader ? FR_OK : fr_ingest_kafka_probe(source, err);
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
    if (!source->reader && !source->policies_logged)
        status = fr_ingest_kafka_policies(source, err);
    source->health = (struct fr_ingest_health){0};
    return status;
}

/* ---- offsets ---- */

static int limit_ms(const struct fr_kafka_source *source, int first_ms)
{
    return source->reader ? AGAIN_MS : first_ms;
}

static void refuse(struct fr_source_answer *answer, rd_kafka_resp_err_t code)
{
    bool unknown = code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
    answer->status = unknown ? FR_E_NOT_FOUND : fr_kafka_status(code);
    answer->why = rd_kafka_err2str(code);
}

static bool is_asked(const struct fr_kafka_source *source, const struct fr_source_answer *answers, uint32_t n,
                     uint32_t topic)
{
    for (uint32_t i = 0; i < n; i++)
        if (source->partitions[answers[i].partition].topic == topic)
            return true;
    return false;
}

/* Updates the leaders of the topic's partitions. */
static rd_kafka_resp_err_t ask_leaders(struct fr_kafka_source *source, uint32_t topic)
{
    const struct rd_kafka_metadata *metadata = NULL;
    struct fr_kafka_lanes *of = &source->topics[topic];
    rd_kafka_resp_err_t code =
        rd_kafka_metadata(source->probe, false, source->probe_topics[topic], &metadata, limit_ms(source, METADATA_MS));
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return code;
    for (uint32_t i = 0; i < of->n; i++)
        source->partitions[of->index[i]].leader = -1;
    if (metadata->topic_cnt == 1) {
        const struct rd_kafka_metadata_topic *found = &metadata->topics[0];
        code = found->err;
        for (int i = 0; i < found->partition_cnt; i++) {
            const struct rd_kafka_metadata_partition *partition = &found->partitions[i];
            if (partition->id >= 0 && (uint32_t)partition->id < of->n)
                source->partitions[of->index[partition->id]].leader = partition->leader;
        }
    }
    rd_kafka_metadata_destroy(metadata);
    return code;
}

/* Sends one request for partitions of a topic that one broker leads. */
static void ask_group(struct fr_kafka_source *source, int64_t when, struct fr_source_answer **group, uint32_t n)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
    for (uint32_t i = 0; i < n; i++) {
        const struct fr_source_partition *name = &source->names[group[i]->partition];
        rd_kafka_topic_partition_list_add(list, name->topic, name->partition)->offset = when;
    }
    rd_kafka_resp_err_t code = rd_kafka_offsets_for_times(source->probe, list, limit_ms(source, OFFSETS_MS));
    for (uint32_t i = 0; i < n; i++) {
        const rd_kafka_topic_partition_t *found = &list->elems[i];
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR || found->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            refuse(group[i], code != RD_KAFKA_RESP_ERR_NO_ERROR ? code : found->err);
            continue;
        }
        group[i]->offset = found->offset;
        /* -1: no record has such a timestamp */
        group[i]->status = found->offset < 0 ? FR_EOF : FR_OK;
    }
    rd_kafka_topic_partition_list_destroy(list);
}

/* Asks for the topic's partitions that have no answer yet, leader by leader. */
static void ask_topic(struct fr_kafka_source *source, int64_t when, uint32_t topic, struct fr_source_answer *answers,
                      uint32_t n)
{
    struct fr_source_answer **group = fr_alloc(n, sizeof(struct fr_source_answer *));
    rd_kafka_resp_err_t code = ask_leaders(source, topic);
    for (uint32_t i = 0; i < n; i++) {
        const struct fr_kafka_partition *partition = &source->partitions[answers[i].partition];
        if (partition->topic != topic || answers[i].status != FR_AGAIN)
            continue;
        int32_t leader = partition->leader;
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR || leader < 0) {
            refuse(&answers[i], code != RD_KAFKA_RESP_ERR_NO_ERROR ? code : RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE);
            continue;
        }
        uint32_t size = 0;
        for (uint32_t k = i; k < n; k++) {
            const struct fr_kafka_partition *other = &source->partitions[answers[k].partition];
            if (other->topic == topic && other->leader == leader && answers[k].status == FR_AGAIN)
                group[size++] = &answers[k];
        }
        ask_group(source, when, group, size);
    }
    free(group);
}

enum fr_status fr_ingest_kafka_offsets(void *self, int64_t when, struct fr_source_answer *answers, uint32_t n,
                                       struct fr_err *err)
{
    struct fr_kafka_source *source = self;
    bool stable = when == FR_SOURCE_STABLE;
    if (when == FR_SOURCE_EARLIEST) /* EARLIEST is the first question of a check */
        source->asked = fr_kafka_contact_now();
    if (stable != source->stable) /* isolation is a setting of the client */
        fr_ingest_kafka_shut(source, &source->probe, &source->probe_topics);
    source->stable = stable;
    enum fr_status status = fr_ingest_kafka_probe(source, err);
    if (status != FR_OK)
        return status;
    for (uint32_t i = 0; i < n; i++)
        answers[i].status = FR_AGAIN;
    for (uint32_t topic = 0; topic < source->conf->ingest.n_topics; topic++)
        if (is_asked(source, answers, n, topic))
            ask_topic(source, stable ? FR_SOURCE_LATEST : when, topic, answers, n);
    rd_kafka_poll(source->probe, 0); /* error callbacks */
    return FR_OK;
}

/* ---- records ---- */

bool fr_ingest_kafka_index(const rd_kafka_message_t *message, uint32_t *index)
{
    const struct fr_kafka_lanes *topic = message->rkt ? rd_kafka_topic_opaque(message->rkt) : NULL;
    if (!topic || message->partition < 0 || (uint32_t)message->partition >= topic->n)
        return false;
    *index = topic->index[message->partition];
    return true;
}

static void stop_asking(struct fr_kafka_source *source, const struct fr_source_answer *answer)
{
    rd_kafka_consume_stop(source->probe_topics[source->partitions[answer->partition].topic],
                          source->names[answer->partition].partition);
}

/* Writes the answer from the first message of a partition: the record, or the fact that there is
 * none. False: an earlier record, which answers nothing. */
static bool match_mark(const rd_kafka_message_t *message, struct fr_source_answer *answer)
{
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR && message->offset < answer->offset)
        return false; /* 2.0.2 may give earlier records of the batch */
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR && message->offset == answer->offset) {
        answer->status = FR_OK;
        answer->timestamp_ms = rd_kafka_message_timestamp(message, NULL);
        answer->crc32c = fr_crc32c(0, message->payload, message->payload ? message->len : 0);
    } else if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR || message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        answer->status = FR_EOF;
    } else {
        refuse(answer, message->err);
    }
    return true;
}

/* Receives the records that come within the limit; a record that does not come in time gets a
 * longer limit at the next question. */
static void receive_marks(struct fr_kafka_source *source, rd_kafka_queue_t *queue, struct fr_source_answer **asked,
                          uint32_t n, int wait_ms)
{
    uint64_t begun = fr_mono_ns(fr_clock_system());
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++)
        left += asked[i]->status == FR_AGAIN;
    while (left) {
        uint32_t at;
        rd_kafka_message_t *message = rd_kafka_consume_queue(queue, wait_ms);
        if (!message) /* no message of any partition */
            break;
        for (uint32_t i = 0; fr_ingest_kafka_index(message, &at) && i < n; i++) {
            if (asked[i]->partition != at || asked[i]->status != FR_AGAIN || !match_mark(message, asked[i]))
                continue;
            stop_asking(source, asked[i]);
            left--;
            if (fr_mono_ns(fr_clock_system()) - begun < (uint64_t)AGAIN_MS * 1000000)
                source->partitions[at].marks_late = 0;
        }
        rd_kafka_message_destroy(message);
    }
    for (uint32_t i = 0; left && i < n; i++)
        if (asked[i]->status == FR_AGAIN) {
            source->partitions[asked[i]->partition].marks_late++;
            stop_asking(source, asked[i]);
            refuse(asked[i], RD_KAFKA_RESP_ERR__TIMED_OUT);
        }
}

/* Asks for at most MARKS_AT_ONCE records, through one queue. */
static void ask_marks(struct fr_kafka_source *source, struct fr_source_answer **asked, uint32_t n, int wait_ms)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(source->probe);
    for (uint32_t i = 0; i < n; i++)
        if (rd_kafka_consume_start_queue(source->probe_topics[source->partitions[asked[i]->partition].topic],
                                         source->names[asked[i]->partition].partition, asked[i]->offset, queue) != 0)
            refuse(asked[i], rd_kafka_last_error());
    receive_marks(source, queue, asked, n, wait_ms);
    rd_kafka_queue_destroy(queue);
}

/* Returns how often the limit of the question is doubled. 0 if nothing waits for the answer: the
 * next check asks such a question again. */
static uint32_t lateness(const struct fr_kafka_source *source, const struct fr_source_answer *asked)
{
    uint32_t late = source->partitions[asked->partition].marks_late;
    return asked->in_passing ? 0 : late < MARKS_LATE_MAX ? late : MARKS_LATE_MAX;
}

/* Partitions whose record came in time before are asked about first. A leader that does not give
 * records therefore delays the others at most by the time that all late partitions may take
 * together. */
enum fr_status fr_ingest_kafka_marks(void *self, struct fr_source_answer *answers, uint32_t n, struct fr_err *err)
{
    struct fr_kafka_source *source = self;
    enum fr_status status = fr_ingest_kafka_probe(source, err);
    if (status != FR_OK)
        return status;
    int limit = limit_ms(source, MARKS_MS);
    uint64_t late_until = 0;
    struct fr_source_answer *asked[MARKS_AT_ONCE];
    for (uint32_t i = 0; i < n; i++)
        answers[i].status = FR_AGAIN;
    for (uint32_t late = 0, i = 0; late <= MARKS_LATE_MAX; late++, i = 0)
        while (i < n) {
            uint32_t size = 0;
            for (; i < n && size < MARKS_AT_ONCE; i++)
                if (answers[i].status == FR_AGAIN && lateness(source, &answers[i]) == late)
                    asked[size++] = &answers[i];
            uint64_t now = fr_mono_ns(fr_clock_system());
            if (late && !late_until)
                late_until = now + ((uint64_t)limit << MARKS_LATE_MAX) * 1000000;
            if (size && (!late || now < late_until))
                ask_marks(source, asked, size, limit << late);
            for (uint32_t k = 0; k < size; k++)
                if (asked[k]->status == FR_AGAIN)
                    refuse(asked[k], RD_KAFKA_RESP_ERR__TIMED_OUT);
        }
    return FR_OK;
}
