/* Real topics and a service over them, for tests against a broker. FRESHET_KAFKA has the address
 * of a broker that may be written to (tests/kafka/start prints it); without it the cases are
 * skipped. */
#ifndef FR_TESTS_INGEST_KAFKA_FIXTURE_H
#define FR_TESTS_INGEST_KAFKA_FIXTURE_H

#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <librdkafka/rdkafka.h>

#include "base/check.h"
#include "ingest/ingest.h"

enum { BATCHES = 4, PATIENCE_MS = FR_PATIENCE_S * 1000 };

struct stream {
    char topic[64], dead[80];
    char second[80]; /* another topic of the same run; empty: none */
    rd_kafka_t *producer;
};

struct run {
    struct run *next; /* made before it in this case */
    struct fr_conf *conf;
    struct fr_ring *full, *empty;
    struct fr_ingest *ingest;
    struct fr_positions positions;
    /* order: a hash of the event times in their order */
    uint64_t samples, batches, dead_sequence, order;
    bool end_of_stream;
    int64_t until_ms;
    struct fr_err err;
};

/* Of the case that runs; `drop` ends them. */
static struct stream stream;
static struct run *runs;

static inline const char *broker(void)
{
    const char *address = getenv("FRESHET_KAFKA");
    if (!address || !*address)
        skip();
    return address;
}

/* ---- topics ---- */

static inline rd_kafka_t *client(rd_kafka_type_t type, const char *const *settings)
{
    char reason[256];
    const char *address = broker();
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "bootstrap.servers", address, reason, sizeof(reason)), 0);
    for (; settings && *settings; settings += 2)
        assert_int_equal(rd_kafka_conf_set(conf, settings[0], settings[1], reason, sizeof(reason)), 0);
    rd_kafka_t *made = rd_kafka_new(type, conf, reason, sizeof(reason));
    assert_non_null(made);
    return made;
}

static inline void wait_result(rd_kafka_queue_t *queue)
{
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, PATIENCE_MS);
    assert_non_null(event);
    assert_int_equal(rd_kafka_event_error(event), 0);
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
}

/* Waits until the broker knows that the controller has made or deleted the topic, which takes a
 * moment. A topic that is deleted before the broker knows of it would come back. */
static inline void await_topic(rd_kafka_t *rk, const char *topic, rd_kafka_resp_err_t wanted)
{
    rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, topic, NULL);
    rd_kafka_resp_err_t known = RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
    FR_UNTIL (known == wanted) {
        const struct rd_kafka_metadata *metadata;
        assert_int_equal(rd_kafka_metadata(rk, 0, handle, &metadata, PATIENCE_MS), 0);
        known = metadata->topics[0].err;
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(handle);
}

static inline void create(rd_kafka_t *rk, const char *topic, int partitions, const char *max_bytes)
{
    char reason[256];
    rd_kafka_NewTopic_t *wanted = rd_kafka_NewTopic_new(topic, partitions, 1, reason, sizeof(reason));
    if (max_bytes)
        (void)rd_kafka_NewTopic_set_config(wanted, "max.message.bytes", max_bytes);
    /* The broker still forgets a topic of that name that was deleted a moment ago. */
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS;
    FR_UNTIL (code == 0) {
        rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
        rd_kafka_CreateTopics(rk, &wanted, 1, NULL, queue);
        rd_kafka_event_t *event = rd_kafka_queue_poll(queue, PATIENCE_MS);
        assert_non_null(event);
        size_t n;
        const rd_kafka_topic_result_t **results =
            rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &n);
        assert_int_equal(n, 1);
        code = rd_kafka_topic_result_error(results[0]);
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
        assert_true(code == 0 || code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS);
    }
    rd_kafka_NewTopic_destroy(wanted);
    await_topic(rk, topic, RD_KAFKA_RESP_ERR_NO_ERROR);
}

static inline void delete_topic(rd_kafka_t *rk, const char *topic)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_DeleteTopic_t *what = rd_kafka_DeleteTopic_new(topic);
    rd_kafka_DeleteTopics(rk, &what, 1, NULL, queue);
    wait_result(queue);
    rd_kafka_DeleteTopic_destroy(what);
    await_topic(rk, topic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
}

static inline void delete_before(rd_kafka_t *rk, const char *topic, int32_t partition, int64_t offset)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = offset;
    rd_kafka_DeleteRecords_t *what = rd_kafka_DeleteRecords_new(list);
    rd_kafka_DeleteRecords(rk, &what, 1, NULL, queue);
    wait_result(queue);
    rd_kafka_DeleteRecords_destroy(what);
    rd_kafka_topic_partition_list_destroy(list);
}

static inline void stream_new(int partitions)
{
    static int n_topics;
    stream = (struct stream){.producer = client(RD_KAFKA_PRODUCER, NULL)};
    snprintf(stream.topic, sizeof(stream.topic), "ingest-%d-%d", (int)getpid(), n_topics++);
    snprintf(stream.dead, sizeof(stream.dead), "%s.dead", stream.topic);
    create(stream.producer, stream.topic, partitions, NULL);
}

static inline void put_value(rd_kafka_t *producer, const char *topic, int32_t partition, const char *value)
{
    assert_int_equal(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                                       RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                       RD_KAFKA_V_VALUE((void *)value, strlen(value)), RD_KAFKA_V_END),
                     0);
}

/* n one-sample records with the Kafka timestamps first_ms, first_ms + 1, ... */
static inline void put_at(rd_kafka_t *producer, const char *topic, int32_t partition, int n, int64_t first_ms)
{
    for (int i = 0; i < n; i++) {
        char value[128];
        snprintf(value, sizeof(value), "{\"f\":{\"user_id\":%d},\"y\":{\"click\":1}}", i);
        assert_int_equal(rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                                           RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                           RD_KAFKA_V_VALUE(value, strlen(value)), RD_KAFKA_V_TIMESTAMP(first_ms + i),
                                           RD_KAFKA_V_END),
                         0);
    }
    assert_int_equal(rd_kafka_flush(producer, PATIENCE_MS), 0);
}

/* n one-sample records, event times first, first + 1, ... ms before now. */
static inline void put(rd_kafka_t *producer, const char *topic, int32_t partition, int n, int first)
{
    int64_t now = fr_wall_ms(fr_clock_system());
    for (int i = 0; i < n; i++) {
        char value[128];
        snprintf(value, sizeof(value), "{\"t\":%lld,\"f\":{\"user_id\":%d},\"y\":{\"click\":1}}",
                 (long long)(now - 1000000 + first + i), i);
        put_value(producer, topic, partition, value);
    }
    assert_int_equal(rd_kafka_flush(producer, PATIENCE_MS), 0);
}

/* ---- the service ---- */

static inline struct fr_conf *conf_of(const char *ingest)
{
    char text[2048];
    struct fr_buffer problems = {0};
    struct fr_conf *conf = NULL;
    snprintf(text, sizeof(text),
             "version: 1\nmodel: %s\nstate_dir: /tmp/ctr\n"
             "ingest: {brokers: \"%s\", topics: [%s%s%s], format: json, batch_warmup: {first: 0}%s}\n"
             "tables: {user: {dim: 2}}\nslots: {user_id: {table: user}}\nlabels: {click: {}}\n"
             "network: {layers: [{name: out, dense: user_id, units: 1}]}\ntasks: [{name: click, label: click, logit: "
             "out}]\n",
             stream.topic, broker(), stream.topic, stream.second[0] ? ", " : "", stream.second, ingest);
    struct fr_conf_load_options options = {.path = "test.yaml", .text = text};
    if (fr_conf_load(&options, &conf, &problems) != FR_OK)
        fail_msg("%.*s", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&problems);
    return conf;
}

static inline struct run *run_new(const char *ingest)
{
    struct run *run = calloc(1, sizeof(*run));
    run->conf = conf_of(ingest);
    run->next = runs;
    runs = run;
    return run;
}

static inline enum fr_status run_start(struct run *run, bool until_end)
{
    run->full = fr_ring_new(BATCHES);
    run->empty = fr_ring_new(BATCHES);
    for (int i = 0; i < BATCHES; i++)
        assert_true(fr_ring_try_push(run->empty, fr_batch_new(run->conf)));
    struct fr_ingest_options options = {.conf = run->conf,
                                        .clock = fr_clock_system(),
                                        .positions = &run->positions,
                                        .full = run->full,
                                        .empty = run->empty,
                                        .until_end = until_end,
                                        .until_ms = run->until_ms};
    run->end_of_stream = false;
    assert_int_equal(fr_ingest_new(&options, &run->ingest, &run->err), FR_OK);
    return fr_ingest_start(run->ingest, &run->err);
}

static inline void run_kill(struct run *run)
{
    void *batch;
    fr_ingest_free(run->ingest);
    run->ingest = NULL;
    while (run->full && fr_ring_pop(run->full, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    while (run->empty && fr_ring_pop(run->empty, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    fr_ring_free(run->full);
    fr_ring_free(run->empty);
    run->full = run->empty = NULL;
}

FR_FIXTURE(drop)
{
    for (struct run *next; runs; runs = next) {
        next = runs->next;
        if (runs->ingest)
            run_kill(runs);
        fr_positions_release(&runs->positions);
        fr_conf_free(runs->conf);
        free(runs);
    }
    if (stream.producer) {
        delete_topic(stream.producer, stream.topic);
        delete_topic(stream.producer, stream.dead);
        if (stream.second[0])
            delete_topic(stream.producer, stream.second);
        rd_kafka_destroy(stream.producer);
    }
    stream = (struct stream){.producer = NULL};
    return 0;
}

#define KAFKA_CASE(name) cmocka_unit_test_teardown(name, drop)

static inline enum fr_status run_step(struct run *run)
{
    enum fr_status status = fr_ingest_step(run->ingest, 20, &run->err);
    void *item;
    while (fr_ring_pop(run->full, &item, 0) == FR_OK) {
        struct fr_batch *batch = item;
        fr_ingest_adopt(run->ingest, &run->positions);
        fr_positions_apply(&run->positions, batch);
        assert_true(fr_positions_balanced(&run->positions, &run->err));
        run->samples += batch->n_samples;
        run->batches++;
        run->dead_sequence = batch->dead_sequence;
        run->end_of_stream |= batch->end_of_stream;
        for (uint32_t i = 0; i < batch->n_samples; i++)
            run->order = run->order * 1000003u + (uint64_t)(batch->t_ms[i] % 1000000);
        assert_true(fr_ring_try_push(run->empty, item));
    }
    return status;
}

static inline void run_to(struct run *run, uint64_t samples)
{
    FR_UNTIL (run->samples >= samples)
        if (run_step(run) < 0)
            fail_msg("%s", run->err.text);
}

static inline void run_to_end(struct run *run)
{
    enum fr_status status = FR_OK;
    FR_UNTIL (status == FR_EOF) {
        status = run_step(run);
        if (status < 0)
            fail_msg("%s", run->err.text);
    }
    assert_true(run->end_of_stream);
}

/* Starts a run and reads to the end. */
static inline void run_whole(struct run *run)
{
    assert_int_equal(run_start(run, true), FR_OK);
    run_to_end(run);
}

static inline enum fr_status run_to_failure(struct run *run)
{
    enum fr_status status = FR_OK;
    FR_UNTIL (status < 0)
        status = run_step(run);
    return status;
}

/* Steps until the status has a problem (or none) and all `letters` are acknowledged. The caller
 * releases the status that is returned. */
static inline struct fr_ingest_status run_to_problem(struct run *run, bool problem, uint64_t letters)
{
    struct fr_ingest_status status = {0};
    fr_ingest_get_status(run->ingest, &status);
    FR_UNTIL (!status.problem[0] != problem && fr_ingest_dead_acknowledged(run->ingest) >= letters) {
        assert_true(run_step(run) >= 0);
        fr_ingest_status_release(&status);
        fr_ingest_get_status(run->ingest, &status);
    }
    return status;
}

static inline void wait_for_letter(struct run *run)
{
    FR_UNTIL (fr_ingest_dead_acknowledged(run->ingest) >= 1)
        usleep(1000);
}

/* Runs to the end of the stream; the run is killed after every `batches` batches (0: never) and
 * started again. */
static inline void run_killed_every(struct run *run, uint64_t batches)
{
    FR_UNTIL (run->end_of_stream) {
        uint64_t before = run->batches;
        assert_true(run_step(run) >= 0);
        if (batches && run->batches >= before + batches && !run->end_of_stream) {
            run_kill(run);
            assert_int_equal(run_start(run, true), FR_OK);
        }
    }
}

/* What the consumer group shows lag tools. */
static inline int64_t committed(const char *topic, int32_t partition)
{
    char group[96];
    snprintf(group, sizeof(group), "freshet.%s", stream.topic);
    rd_kafka_t *tool = client(RD_KAFKA_CONSUMER, (const char *const[]){"group.id", group, NULL});
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    (void)rd_kafka_topic_partition_list_add(list, topic, partition);
    assert_int_equal(rd_kafka_committed(tool, list, PATIENCE_MS), 0);
    int64_t offset = list->elems[0].offset;
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(tool);
    return offset;
}

/* The first message of a topic's partition 0; destroyed by the caller with its client. */
static inline rd_kafka_message_t *first_message(rd_kafka_t *consumer, const char *topic)
{
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(consumer, topic, NULL);
    assert_int_equal(rd_kafka_consume_start(rkt, 0, RD_KAFKA_OFFSET_BEGINNING), 0);
    rd_kafka_message_t *message = rd_kafka_consume(rkt, 0, PATIENCE_MS);
    assert_non_null(message);
    assert_int_equal(message->err, 0);
    assert_int_equal(rd_kafka_consume_stop(rkt, 0), 0);
    rd_kafka_topic_destroy(rkt);
    return message;
}

static inline void assert_header(const rd_kafka_message_t *message, const char *name, const char *value)
{
    rd_kafka_headers_t *headers;
    const void *bytes;
    size_t size;
    assert_int_equal(rd_kafka_message_headers(message, &headers), 0);
    if (rd_kafka_header_get_last(headers, name, &bytes, &size) != 0)
        fail_msg("no header %s", name);
    if (size != strlen(value) || memcmp(bytes, value, size) != 0)
        fail_msg("header %s is %.*s, not %s", name, (int)size, (const char *)bytes, value);
}

#endif
