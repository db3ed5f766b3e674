/* The publisher's questions to a real Apache Kafka, which the embedded broker cannot answer: topic
 * creation, cleanup policy, transaction markers at the end of a partition. FRESHET_KAFKA names the
 * broker (tests/kafka/start prints one); without it every case is skipped, and says so. */
#include "case.h"

#include <unistd.h>

#include <librdkafka/rdkafka.h>

#include "exporter/publisher.h"
#include "fixture.h"

enum { STEPS_MAX = 600, STEP_MS = 50, WAIT_MS = 10000 };

static const char *brokers;

static void need_kafka(void)
{
    brokers = getenv("FRESHET_KAFKA");
    if (!brokers) {
        print_message("skipped: FRESHET_KAFKA is not set; see tests/kafka/README.md\n");
        skip();
    }
}

static void topic_name(char name[64], const char *what)
{
    snprintf(name, 64, "freshet-test-%s-%ld", what, (long)getpid());
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

static void create_topic(const char *topic, const char *policy)
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

static struct fr_publisher *make_publisher(struct fixture *f, const char *topic, bool create)
{
    struct fr_publisher_options options = {.durable = f->durable,
                                           .clock = fr_clock_system(),
                                           .model = "ctr",
                                           .brokers = brokers,
                                           .topic = topic,
                                           .partitions = FIXTURE_PARTITIONS,
                                           .create = create};
    struct fr_publisher *publisher = NULL;
    assert_int_equal(fr_publisher_new(&options, &publisher, NULL), FR_OK);
    return publisher;
}

static void check_ok(struct fixture *f, struct fr_publisher *publisher)
{
    struct fr_err err = {0};
    enum fr_status status = FR_E_UNAVAILABLE;
    for (int i = 0; i < 20 && status == FR_E_UNAVAILABLE; i++)
        status = fr_publisher_check(publisher, &err);
    if (status != FR_OK)
        print_error("%s\n", err.text);
    assert_int_equal(status, FR_OK);
    struct fr_durable_status durable;
    fr_durable_get_status(f->durable, &durable);
    fr_publisher_offer(publisher, durable.epoch);
}

static void step_until(struct fr_publisher *publisher, uint64_t acked)
{
    struct fr_publisher_status status = {0};
    for (int i = 0; i < STEPS_MAX && status.acked < acked; i++) {
        (void)!fr_publisher_step(publisher, STEP_MS, NULL);
        fr_publisher_get_status(publisher, &status);
    }
    assert_int_equal(status.acked, acked);
}

FR_CASE(a_missing_topic_is_created_filled_and_resumed)
{
    need_kafka();
    struct fixture f = {0};
    struct fr_err err = {0};
    char topic[64];
    topic_name(topic, "create");
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    struct fr_publisher *publisher = make_publisher(&f, topic, false);
    assert_int_equal(fr_publisher_check(publisher, &err), FR_E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "does not exist"));
    fr_publisher_free(publisher);
    for (int i = 0; i < 20; i++) /* cut "years ago": the broker would delete by timestamp */
        assert_int_equal(fixture_append(&f, 500, 1600000000000, &err), FR_OK);
    publisher = make_publisher(&f, topic, true);
    check_ok(&f, publisher);
    step_until(publisher, 20);
    fr_publisher_free(publisher);
    assert_int_equal(fixture_append(&f, 10, 1600000000000, &err), FR_OK);
    publisher = make_publisher(&f, topic, true);
    check_ok(&f, publisher);
    struct fr_publisher_status status;
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.acked, 20);
    step_until(publisher, 21);
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(a_compacted_topic_is_refused)
{
    need_kafka();
    struct fixture f = {0};
    struct fr_err err = {0};
    char topic[64];
    topic_name(topic, "compact");
    create_topic(topic, "compact");
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    struct fr_publisher *publisher = make_publisher(&f, topic, true);
    enum fr_status status = FR_E_UNAVAILABLE;
    for (int i = 0; i < 20 && status == FR_E_UNAVAILABLE; i++)
        status = fr_publisher_check(publisher, &err);
    assert_int_equal(status, FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "compacted"));
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(transaction_markers_and_aborted_records_behind_our_newest_are_walked_over)
{
    need_kafka();
    struct fixture f = {0};
    struct fr_err err = {0};
    char topic[64];
    topic_name(topic, "markers");
    create_topic(topic, "delete");
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    assert_int_equal(fixture_append(&f, 50, 1, &err), FR_OK);
    struct fr_publisher *publisher = make_publisher(&f, topic, true);
    check_ok(&f, publisher);
    step_until(publisher, 1);
    fr_publisher_free(publisher);

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
    publisher = make_publisher(&f, topic, true);
    check_ok(&f, publisher);
    struct fr_publisher_status status;
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.acked, 1);
    fr_publisher_free(publisher);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_topic_is_created_filled_and_resumed),
        cmocka_unit_test(a_compacted_topic_is_refused),
        cmocka_unit_test(transaction_markers_and_aborted_records_behind_our_newest_are_walked_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
