/* What counts as delivered (kafka/kafka.h, fr_kafka_refusal), through the tool's producer on
 * librdkafka's embedded broker. Like a leader that does not know the producer yet, this broker
 * accepts any sequence number: the request after a refused one succeeds, and librdkafka reports the
 * refused one's records too. */
#include "case.h"

#include <stdio.h>
#include <string.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "kafka/kafka.h"
#include "samples/producer.h"

/* REFUSAL_MS is how long a refusal takes. With several requests in flight, the next requests must
 * be sent meanwhile; if they are not, the case is repeated with twice the time. */
enum { PRODUCE_API_KEY = 0, REFUSAL_MS = 500, REFUSAL_MS_MAX = 16000, RECORDS = 8 };

static rd_kafka_t *host;
static rd_kafka_mock_cluster_t *cluster;
static struct fr_tool_producer *producer;
static struct fr_err err;

FR_FIXTURE(open_broker)
{
    struct fr_kafka_options options = {.type = RD_KAFKA_PRODUCER, .name = "host"};
    assert_int_equal(fr_kafka_open(&options, &host, NULL), FR_OK);
    cluster = rd_kafka_mock_cluster_new(host, 1);
    assert_int_equal(rd_kafka_mock_topic_create(cluster, "samples", 1, 1), 0);
    return 0;
}

FR_FIXTURE(close_broker)
{
    fr_tool_producer_close(producer);
    producer = NULL;
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(host);
    return 0;
}

/* Sends one record a request; the first request is refused. */
static enum fr_status produce(const char *in_flight, int refusal_ms)
{
    const char *kafka[] = {"batch.num.messages=1", in_flight};
    struct fr_tool_producer_options options = {.brokers = rd_kafka_mock_cluster_bootstraps(cluster),
                                               .topic = "samples",
                                               .kafka = kafka,
                                               .n_kafka = in_flight ? 2 : 1};
    assert_int_equal(fr_tool_producer_open(&options, &producer, &err), FR_OK);
    assert_int_equal(rd_kafka_mock_broker_push_request_error_rtts(
                         cluster, 1, PRODUCE_API_KEY, 1, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, refusal_ms),
                     0);
    for (int i = 0; i < RECORDS; i++) {
        char text[8];
        int size = snprintf(text, sizeof(text), "%d", i);
        assert_int_equal(fr_tool_producer_send(producer, 0, text, (size_t)size, 0, &err), FR_OK);
    }
    return fr_tool_producer_finish(producer, &err);
}

static int64_t log_end(void)
{
    struct fr_kafka_options options = {
        .type = RD_KAFKA_CONSUMER, .brokers = rd_kafka_mock_cluster_bootstraps(cluster), .name = "test"};
    rd_kafka_t *reader = NULL;
    int64_t low, end;
    assert_int_equal(fr_kafka_open(&options, &reader, NULL), FR_OK);
    assert_int_equal(rd_kafka_query_watermark_offsets(reader, "samples", 0, &low, &end, FR_PATIENCE_S * 1000), 0);
    rd_kafka_destroy(reader);
    return end;
}

FR_CASE(a_refused_request_goes_again_before_the_next_one)
{
    assert_int_equal(produce(NULL, REFUSAL_MS), FR_OK);
    assert_int_equal(fr_tool_producer_totals(producer).acknowledged, RECORDS);
    assert_int_equal(log_end(), RECORDS);
}

FR_CASE(what_a_later_request_alone_acknowledges_counts_as_failed)
{
    enum fr_status status = FR_OK;
    for (int ms = REFUSAL_MS; status == FR_OK && ms <= REFUSAL_MS_MAX; ms *= 2) {
        if (ms > REFUSAL_MS) { /* the next request was not sent before the refusal */
            assert_int_equal(close_broker(state), 0);
            assert_int_equal(open_broker(state), 0);
        }
        status = produce("max.in.flight.requests.per.connection=5", ms);
    }
    assert_int_equal(status, FR_E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "acknowledged without an offset: the log may lack it"));
    struct fr_tool_producer_totals totals = fr_tool_producer_totals(producer);
    assert_true(totals.failed > 0);
    assert_int_equal(totals.acknowledged, log_end());
    assert_int_equal(totals.acknowledged + totals.failed, RECORDS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_broker, close_broker)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_refused_request_goes_again_before_the_next_one),
        CASE(what_a_later_request_alone_acknowledges_counts_as_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
