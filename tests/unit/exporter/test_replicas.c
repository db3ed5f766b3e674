/* The reader of acknowledgements on librdkafka's embedded broker, by a clock that the test
 * moves. */
#include "case.h"

#include <string.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "exporter/replicas.h"
#include "fake_clock.h"

enum { LOOK_MS = 10000 };

static rd_kafka_t *host; /* of the broker */
static rd_kafka_mock_cluster_t *cluster;
static const char topic[] = "ctr.ack";
static struct fr_replicas_chain chain = {.timeline = 1, .durable = 10};

FR_FIXTURE(start_broker)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "test.mock.num.brokers", "1", text, sizeof(text)), RD_KAFKA_CONF_OK);
    host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof(text));
    assert_non_null(host);
    cluster = rd_kafka_handle_mock_cluster(host);
    assert_int_equal(rd_kafka_mock_topic_create(cluster, topic, 2, 1), 0);
    return 0;
}

FR_FIXTURE(stop_broker)
{
    rd_kafka_destroy(host);
    return 0;
}

static struct fr_replicas_chain chain_of(void *self)
{
    (void)self;
    return chain;
}

/* An epoch becomes durable, and a replica says that it serves it, while the reader waits. */
static struct fr_replicas_chain next_chain_of(void *self)
{
    (void)self;
    chain.durable = 11;
    return chain;
}

static void write_record(const char *text)
{
    rd_kafka_resp_err_t error = rd_kafka_producev(host, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(1),
                                                  RD_KAFKA_V_VALUE((void *)(uintptr_t)text, strlen(text)),
                                                  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
    assert_int_equal(error, RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_int_equal(rd_kafka_flush(host, 60000), RD_KAFKA_RESP_ERR_NO_ERROR);
}

FR_CASE(a_topic_that_is_missing_is_named_and_looked_for_again)
{
    static struct fr_replicas_status now;
    struct fr_clock_fake clock;
    fr_clock_fake_init(&clock, 1767225600000);
    struct fr_publisher_options options = {
        .clock = &clock.clock, .model = "ctr", .brokers = rd_kafka_mock_cluster_bootstraps(cluster)};
    struct fr_replicas *replicas = fr_replicas_new(&options, topic);
    rd_kafka_mock_topic_set_error(cluster, topic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    assert_false(fr_replicas_step(replicas, chain_of, NULL));
    fr_replicas_get_status(replicas, &now);
    assert_non_null(strstr(now.problem, "does not exist and export.create is off: create it with one partition"));
    /* nothing is asked until the next look is due */
    rd_kafka_mock_topic_set_error(cluster, topic, RD_KAFKA_RESP_ERR_NO_ERROR);
    fr_clock_fake_advance_ms(&clock, LOOK_MS - 1);
    assert_false(fr_replicas_step(replicas, chain_of, NULL));
    fr_clock_fake_advance_ms(&clock, 1);
    assert_true(fr_replicas_step(replicas, chain_of, NULL));
    fr_replicas_get_status(replicas, &now);
    assert_string_equal(now.problem, "");
    write_record("{\"v\":1,\"m\":\"ctr\",\"name\":\"a\",\"tl\":1,\"e\":10}");
    write_record("{\"v\":1,\"m\":\"ctr\",\"name\":\"b\",\"tl\":1,\"e\":11}");
    FR_UNTIL (now.records == 2) {
        assert_true(fr_replicas_step(replicas, chain_of, NULL));
        fr_replicas_get_status(replicas, &now);
    }
    assert_int_equal(now.count, 1);
    assert_string_equal(now.listed[0].said.name, "a");
    assert_int_equal(now.refused[FR_REPLICA_REFUSED_AHEAD], 1);
    write_record("{\"v\":1,\"m\":\"ctr\",\"name\":\"a\",\"tl\":1,\"e\":11}");
    FR_UNTIL (now.records == 3) {
        assert_true(fr_replicas_step(replicas, next_chain_of, NULL));
        fr_replicas_get_status(replicas, &now);
    }
    assert_int_equal(now.listed[0].said.epoch, 11);
    assert_int_equal(now.refused[FR_REPLICA_REFUSED_AHEAD], 1);
    /* deleted under the reader: what is known stays, and the topic is named again */
    rd_kafka_mock_topic_set_error(cluster, topic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    fr_clock_fake_advance_ms(&clock, LOOK_MS);
    assert_false(fr_replicas_step(replicas, chain_of, NULL));
    fr_replicas_get_status(replicas, &now);
    assert_non_null(strstr(now.problem, "does not exist"));
    assert_int_equal(now.count, 1);
    /* it is there again */
    rd_kafka_mock_topic_set_error(cluster, topic, RD_KAFKA_RESP_ERR_NO_ERROR);
    fr_clock_fake_advance_ms(&clock, LOOK_MS);
    assert_true(fr_replicas_step(replicas, chain_of, NULL));
    fr_replicas_free(replicas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_topic_that_is_missing_is_named_and_looked_for_again),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
