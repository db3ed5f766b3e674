/* The start check: is the delta topic ours, and from which epoch on must be sent.
 *
 * The newest record of every partition is read back (a transaction marker or an aborted record may
 * lie behind it, hence the walk back) and compared with the chain of the journal: same model,
 * timeline not newer, epoch not newer than the durable one, digest that of our own epoch of that
 * number. Anything else is a copy of the state directory, a second writer or a foreign topic, and
 * an operator must decide. A commit shows its epoch complete in its partition; any other record
 * shows the epoch before. Sending resumes behind the least of them, so that an epoch which was cut
 * off in the middle is completed before anything later (the replicas drop what they hold already).
 *
 * Source: reading back one's own log before writing, DESIGN section 5 (Recovery). Thread: the
 * publisher thread, before the first step. It does not read whole partitions or change the
 * topic. */
#include "publisher_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

enum { WALK_FIRST = 4, WALK_FACTOR = 16, WALK_MAX = 1 << 14, POLL_MS = 100 };

#define REMEDY "start in the right state directory, or name an empty topic in export.topic of a fresh state_dir"

/* The end of one partition, as read. */
struct tail {
    struct fr_publisher *publisher;
    rd_kafka_t *client;
    int32_t partition;
    bool found;
    struct fr_buffer value; /* of its newest record */
};

/* Reads [from, high) of the partition and keeps its last record's value; none: *found stays
 * false. */
static enum fr_status read_span(struct tail *tail, int64_t from, int64_t high, struct fr_err *err)
{
    rd_kafka_t *client = tail->client;
    const char *topic = tail->publisher->options.topic;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, tail->partition)->offset = from;
    rd_kafka_resp_err_t error = rd_kafka_assign(client, list);
    rd_kafka_topic_partition_list_destroy(list);
    if (error)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s: %s", topic, rd_kafka_err2str(error));
    uint64_t deadline = fr_mono_ns(fr_clock_system()) + UINT64_C(1000000) * BROKER_TIMEOUT_MS;
    bool ended = false;
    while (!ended && fr_mono_ns(fr_clock_system()) < deadline) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, POLL_MS);
        if (!message)
            continue;
        if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            ended = true;
        } else if (!message->err) {
            fr_buffer_clear(&tail->value);
            fr_buffer_append(&tail->value, message->payload, message->len);
            tail->found = true;
            ended = message->offset >= high - 1;
            deadline = fr_mono_ns(fr_clock_system()) + UINT64_C(1000000) * BROKER_TIMEOUT_MS;
        }
        rd_kafka_message_destroy(message);
    }
    (void)rd_kafka_assign(client, NULL);
    return ended
               ? FR_OK
               : fr_err_set(err, FR_E_UNAVAILABLE, "the newest record of topic %s partition %d did not arrive in time",
                            topic, (int)tail->partition);
}

static enum fr_status newest_record(struct tail *tail, struct fr_err *err)
{
    const char *topic = tail->publisher->options.topic;
    int64_t low = 0, high = 0;
    rd_kafka_resp_err_t error =
        rd_kafka_query_watermark_offsets(tail->client, topic, tail->partition, &low, &high, BROKER_TIMEOUT_MS);
    if (error)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic %s partition %d: %s", topic, (int)tail->partition,
                          rd_kafka_err2str(error));
    tail->found = false;
    for (int64_t back = WALK_FIRST; high > low && back <= WALK_MAX; back *= WALK_FACTOR) {
        int64_t from = high - back > low ? high - back : low;
        enum fr_status status = read_span(tail, from, high, err);
        if (status != FR_OK || tail->found || from == low)
            return status;
    }
    return FR_OK;
}

static bool text_is(const struct fr_delta_text *text, const char *name)
{
    return text->size == strlen(name) && memcmp(text->bytes, name, text->size) == 0;
}

struct chain {
    struct fr_durable_status durable;
    char model[128];
};

/* The record of one partition against our chain; *complete = the newest epoch that this partition
 * holds wholly. */
static enum fr_status judge_record(const struct tail *tail, const struct chain *chain, uint64_t *complete,
                                   struct fr_err *err)
{
    const struct fr_publisher *publisher = tail->publisher;
    const char *topic = publisher->options.topic;
    const struct fr_durable_status *durable = &chain->durable;
    struct fr_delta_record record;
    struct fr_err problem = {0};
    if (fr_delta_read(tail->value.data, tail->value.size, &record, &problem) != FR_OK)
        return fr_err_set(err, FR_E_MISMATCH, "topic %s partition %d ends with something that is not ours (%s); %s",
                          topic, (int)tail->partition, problem.text, REMEDY);
    if (durable->epoch == 0 || record.timeline > durable->timeline ||
        (record.timeline == durable->timeline && record.epoch > durable->epoch))
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s partition %d holds epoch %" PRIu64 " of timeline %" PRIu64
                          ", but this state ends at epoch %" PRIu64 " of timeline %" PRIu64
                          ": an older copy of the state, or another writer; %s",
                          topic, (int)tail->partition, record.epoch, record.timeline, durable->epoch, durable->timeline,
                          REMEDY);
    if (!text_is(&record.model, chain->model))
        return fr_err_set(err, FR_E_MISMATCH, "topic %s holds deltas of model %.*s, this state is of model %s; %s",
                          topic, (int)record.model.size, record.model.bytes, chain->model, REMEDY);
    if (record.np != publisher->options.partitions || record.partition != (uint32_t)tail->partition)
        return fr_err_set(err, FR_E_MISMATCH, "topic %s partition %d holds a record of partition %u of %u; %s", topic,
                          (int)tail->partition, record.partition, record.np, REMEDY);
    *complete = 0;
    if (record.timeline < durable->timeline)
        return FR_OK; /* nothing of this timeline arrived yet */
    struct fr_sha256 digest;
    enum fr_status status = fr_durable_digest(publisher->options.durable, record.epoch, &digest);
    if (status != FR_OK)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s partition %d ends at epoch %" PRIu64 ", which the journal (from epoch %" PRIu64
                          ") no longer knows: the topic lost its newest records; %s",
                          topic, (int)tail->partition, record.epoch, durable->journal_first, REMEDY);
    if (fr_sha256_u64(&digest) != record.digest)
        return fr_err_set(err, FR_E_MISMATCH,
                          "topic %s partition %d holds an epoch %" PRIu64
                          " with another digest than ours: a second writer, or a copy of this state; %s",
                          topic, (int)tail->partition, record.epoch, REMEDY);
    *complete = record.kind == FR_DELTA_COMMIT ? record.epoch : record.from - 1;
    return FR_OK;
}

/* The model's name from the head of the newest epoch's journal file. */
static enum fr_status learn_chain(struct fr_publisher *publisher, struct chain *chain, struct fr_err *err)
{
    fr_durable_get_status(publisher->options.durable, &chain->durable);
    if (chain->durable.epoch == 0)
        return FR_OK;
    struct fr_codec_settings settings;
    fr_buffer_clear(&publisher->head_bytes);
    enum fr_status status = fr_durable_newest_head(publisher->options.durable, &publisher->head_bytes, err);
    if (status != FR_OK)
        return status;
    status = fr_codec_settings_parse(publisher->head_bytes.data, publisher->head_bytes.size, &settings);
    if (status != FR_OK)
        return fr_err_set(err, status, "the head of the newest journal file does not parse");
    memcpy(chain->model, settings.model, sizeof(chain->model));
    fr_codec_settings_release(&settings);
    return FR_OK;
}

static enum fr_status check_partitions(struct fr_publisher *publisher, rd_kafka_t *client, const struct chain *chain,
                                       uint64_t *resume, struct fr_err *err)
{
    struct tail tail = {.publisher = publisher, .client = client};
    enum fr_status status = FR_OK;
    uint64_t least = UINT64_MAX;
    for (uint32_t p = 0; p < publisher->options.partitions && status == FR_OK; p++) {
        uint64_t complete = 0;
        tail.partition = (int32_t)p;
        status = newest_record(&tail, err);
        if (status == FR_OK && tail.found)
            status = judge_record(&tail, chain, &complete, err);
        if (status == FR_OK && !tail.found && chain->durable.acked > 0) {
            fr_log(
                FR_LOG_WARN, "publisher", "delta_topic_lost_records",
                "topic=%s partition=%u acked=%" PRIu64
                " problem=\"the partition is empty although epochs were acknowledged; sending what the journal holds\"",
                publisher->options.topic, p, chain->durable.acked);
            publisher->tally.lost_partitions += 1;
        }
        least = complete < least ? complete : least;
    }
    fr_buffer_release(&tail.value);
    if (status == FR_OK)
        *resume = least;
    return status;
}

static enum fr_status open_client(struct fr_publisher *publisher, rd_kafka_t **out, struct fr_err *err)
{
    static const struct fr_kafka_setting required[] = {
        {"group.id", "freshet.check"},
        {"enable.auto.commit", "false"},
        {"enable.partition.eof", "true"},
        {"auto.offset.reset", "earliest"},
        {"allow.auto.create.topics", "false"},
        {"fetch.wait.max.ms", "10"},
        {NULL, NULL},
    };
    rd_kafka_t *client;
    struct fr_kafka_options options = {.type = RD_KAFKA_CONSUMER, .required = required};
    enum fr_status status = fr_publisher_client(publisher, options, &client, err);
    if (status != FR_OK)
        return status;
    (void)rd_kafka_poll_set_consumer(client);
    *out = client;
    return FR_OK;
}

enum fr_status fr_publisher_check(struct fr_publisher *publisher, struct fr_err *err)
{
    rd_kafka_t *client = NULL;
    struct chain chain = {0};
    uint64_t resume = 0;
    publisher->connection[0] = '\0';
    enum fr_status status = open_client(publisher, &client, err);
    if (status == FR_OK)
        status = fr_publisher_check_topic(publisher, client, err);
    if (status == FR_OK)
        status = learn_chain(publisher, &chain, err);
    if (status == FR_OK)
        status = check_partitions(publisher, client, &chain, &resume, err);
    if (client) {
        (void)rd_kafka_consumer_close(client);
        rd_kafka_destroy(client);
    }
    if (status != FR_OK) {
        if (err)
            fr_publisher_problem(publisher, err->text);
        return status;
    }
    if (chain.durable.journal_first > 0 && resume < chain.durable.journal_first - 1)
        resume = chain.durable.journal_first - 1;
    publisher->sent = publisher->acked = publisher->highest_sent = resume;
    publisher->checked = true;
    fr_publisher_problem(publisher, "");
    fr_log(FR_LOG_INFO, "publisher", "topic_checked", "topic=%s durable=%" PRIu64 " complete=%" PRIu64,
           publisher->options.topic, chain.durable.epoch, resume);
    return FR_OK;
}
