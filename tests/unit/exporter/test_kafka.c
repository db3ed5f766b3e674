/* The publisher's questions to a real Apache Kafka, which the embedded broker cannot answer: topic
 * creation, cleanup policy, transaction markers at the end of a partition. FRESHET_KAFKA names the
 * broker (tests/kafka/start prints one); without it every case is skipped, and says so. */
#include "publisher_fixture.h"

#include <unistd.h>

#include <librdkafka/rdkafka.h>

enum { WAIT_MS = FR_PATIENCE_S * 1000 };

FR_FIXTURE(open_state)
{
    static int number;
    brokers = getenv("FRESHET_KAFKA");
    snprintf(topic, sizeof(topic), "freshet-test-%ld-%d", (long)getpid(), ++number);
    f = (struct fixture){0};
    return fixture_open(&f, "ctr");
}

static void need_kafka(void)
{
    if (!brokers) {
        print_message("skipped: FRESHET_KAFKA is not set; see tests/kafka/README.md\n");
        skip();
    }
}

static rd_kafka_t *client_new(rd_kafka_type_t type, const char *name, const char *value)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "bootstrap.servers", brokers, text, sizeof(text)), RD_KAFKA_CONF_OK);
    if (name)
        assert_int_equal(rd_kafka_conf_set(conf, name, value, text, sizeof(text)), RD_KAFKA_CONF_OK);
    rd_kafka_t *client = rd_kafka_new(type, conf, text, sizeof(text));
    assert_non_null(client);
    return client;
}

static void create_topic(const char *policy)
{
    char text[256];
    rd_kafka_t *client = client_new(RD_KAFKA_PRODUCER, NULL, NULL);
    rd_kafka_NewTopic_t *request = rd_kafka_NewTopic_new(topic, FIXTURE_PARTITIONS, 1, text, sizeof(text));
    assert_int_equal(rd_kafka_NewTopic_set_config(request, "cleanup.policy", policy), 0);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_CreateTopics(client, &request, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, WAIT_MS);
    assert_non_null(event);
    assert_int_equal(rd_kafka_event_error(event), 0);
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(request);
    rd_kafka_destroy(client);
}

/* Returns what the check of the topic says. With `create` the check is repeated until there is an
 * answer; without it, one call is enough. */
static enum fr_status check(bool create)
{
    make_publisher((struct fr_publisher_options){.create = create});
    return create ? check_until_answered() : fr_publisher_check(publisher, &err);
}

/* Checks the topic, and publishes the epochs that it lacks. */
static void publish(void)
{
    if (check(true) != FR_OK)
        fail_msg("%s", err.text);
    offer_all();
}

FR_CASE(a_missing_topic_is_created_filled_and_resumed)
{
    need_kafka();
    assert_int_equal(check(false), FR_E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "does not exist"));
    for (int i = 0; i < 20; i++) /* cut "years ago": the broker would delete by timestamp */
        assert_int_equal(fixture_append(&f, 500, 1600000000000, &err), FR_OK);
    publish();
    step_until(20);
    assert_int_equal(fixture_append(&f, 10, 1600000000000, &err), FR_OK);
    publish();
    assert_int_equal(status.acked, 20);
    step_until(21);
}

FR_CASE(a_compacted_topic_is_refused)
{
    need_kafka();
    create_topic("compact");
    assert_int_equal(check(true), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "compacted"));
}

FR_CASE(transaction_markers_and_aborted_records_behind_our_newest_are_walked_over)
{
    need_kafka();
    create_topic("delete");
    assert_int_equal(fixture_append(&f, 50, 1, &err), FR_OK);
    publish();
    step_until(1);
    rd_kafka_t *other = client_new(RD_KAFKA_PRODUCER, "transactional.id", topic);
    assert_null(rd_kafka_init_transactions(other, WAIT_MS));
    for (int i = 0; i < 20; i++) {
        assert_null(rd_kafka_begin_transaction(other));
        for (int32_t p = 0; p < FIXTURE_PARTITIONS; p++)
            assert_int_equal(rd_kafka_producev(other, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(p),
                                               RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE("never", 5),
                                               RD_KAFKA_V_END),
                             0);
        assert_int_equal(rd_kafka_flush(other, WAIT_MS), 0);
        assert_null(rd_kafka_abort_transaction(other, WAIT_MS));
    }
    rd_kafka_destroy(other);
    publish();
    assert_int_equal(status.acked, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_state, close_state)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_missing_topic_is_created_filled_and_resumed),
        CASE(a_compacted_topic_is_refused),
        CASE(transaction_markers_and_aborted_records_behind_our_newest_are_walked_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
