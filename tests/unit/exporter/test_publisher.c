/* The publisher against librdkafka's embedded broker: order, resumption, refusal, recovery from
 * failed deliveries. */
#include "recorded_clients.h"

#include <librdkafka/rdkafka_mock.h>

#include "exporter/publisher.h"
#include "fixture.h"

enum { STEPS_MAX = 600, STEP_MS = 50, PRODUCE_API_KEY = 0 };

static rd_kafka_t *host;
static rd_kafka_mock_cluster_t *cluster;
static char brokers[256];
static int topic_number;

FR_FIXTURE(start_broker)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "test.mock.num.brokers", "1", text, sizeof(text)), RD_KAFKA_CONF_OK);
    assert_int_equal(rd_kafka_conf_set(conf, "log_level", "3", text, sizeof(text)), RD_KAFKA_CONF_OK);
    host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof(text));
    assert_non_null(host);
    cluster = rd_kafka_handle_mock_cluster(host);
    snprintf(brokers, sizeof(brokers), "%s", rd_kafka_mock_cluster_bootstraps(cluster));
    return 0;
}

FR_FIXTURE(stop_broker)
{
    rd_kafka_destroy(host);
    return 0;
}

/* A fresh topic of two partitions. */
static void make_topic(char topic[32])
{
    snprintf(topic, 32, "delta-%d", ++topic_number);
    assert_int_equal(rd_kafka_mock_topic_create(cluster, topic, FIXTURE_PARTITIONS, 1), 0);
}

static struct fr_publisher *make_publisher(struct fixture *f, const char *topic)
{
    static const struct fr_publisher_property log[] = {{"log_level", "3"}};
    struct fr_publisher_options options = {.durable = f->durable,
                                           .clock = fr_clock_system(),
                                           .model = "ctr",
                                           .brokers = brokers,
                                           .topic = topic,
                                           .partitions = FIXTURE_PARTITIONS,
                                           .create = true,
                                           .max_in_flight_bytes = 64 * 1024,
                                           .properties = log,
                                           .n_properties = 1};
    struct fr_publisher *publisher = NULL;
    struct fr_err err = {0};
    assert_int_equal(fr_publisher_new(&options, &publisher, &err), FR_OK);
    return publisher;
}

static uint64_t durable_epoch(struct fixture *f)
{
    struct fr_durable_status durable;
    fr_durable_get_status(f->durable, &durable);
    return durable.epoch;
}

static void check_ok(struct fixture *f, struct fr_publisher *publisher)
{
    struct fr_err err = {0};
    enum fr_status status = fr_publisher_check(publisher, &err);
    if (status != FR_OK)
        print_error("%s\n", err.text);
    assert_int_equal(status, FR_OK);
    /* as the daemon does when nothing is held back */
    fr_publisher_offer(publisher, durable_epoch(f));
}

static struct fr_publisher_status step_until(struct fr_publisher *publisher, uint64_t acked)
{
    struct fr_publisher_status status = {0};
    struct fr_err err = {0};
    for (int i = 0; i < STEPS_MAX && status.acked < acked; i++) {
        enum fr_status result = fr_publisher_step(publisher, STEP_MS, &err);
        assert_true(result == FR_OK || result == FR_E_UNAVAILABLE);
        fr_publisher_get_status(publisher, &status);
        assert_true(status.acked <= status.sent);
    }
    assert_int_equal(status.acked, acked);
    return status;
}

static void append(struct fixture *f, int rows)
{
    struct fr_err err = {0};
    assert_int_equal(fixture_append(f, rows, 1700000000000, &err), FR_OK);
}

/* ---- what the topic holds ---- */

struct log {
    size_t n;
    struct {
        uint64_t epoch;
        uint32_t piece;
        struct fr_buffer bytes;
    } records[2048];
};

static void read_partition(const char *topic, int32_t partition, struct log *log)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    static const char *const settings[][2] = {
        {"group.id", "test"}, {"enable.partition.eof", "true"}, {"fetch.wait.max.ms", "10"}, {"log_level", "3"}};
    (void)rd_kafka_conf_set(conf, "bootstrap.servers", brokers, text, sizeof(text));
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(rd_kafka_conf_set(conf, settings[i][0], settings[i][1], text, sizeof(text)), RD_KAFKA_CONF_OK);
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof(text));
    assert_non_null(client);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = RD_KAFKA_OFFSET_BEGINNING;
    assert_int_equal(rd_kafka_assign(client, list), 0);
    rd_kafka_topic_partition_list_destroy(list);
    bool ended = false;
    for (int i = 0; i < 5000 && !ended; i++) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, 100);
        if (!message)
            continue;
        ended = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (!message->err) {
            struct fr_delta_record record;
            assert_int_equal(fr_delta_read(message->payload, message->len, &record, NULL), FR_OK);
            assert_int_equal(record.partition, partition);
            assert_null(message->key);
            assert_true(log->n < 2048);
            log->records[log->n].epoch = record.epoch;
            log->records[log->n].piece = record.piece;
            log->records[log->n].bytes = (struct fr_buffer){0};
            fr_buffer_append(&log->records[log->n++].bytes, message->payload, message->len);
        }
        rd_kafka_message_destroy(message);
    }
    assert_true(ended);
    rd_kafka_consumer_close(client);
    rd_kafka_destroy(client);
}

static void drop_log(struct log *log)
{
    for (size_t i = 0; i < log->n; i++)
        fr_buffer_release(&log->records[i].bytes);
    log->n = 0;
}

struct expected {
    struct log *log;
    uint32_t partition;
    size_t at;
    uint64_t epoch;
};

static enum fr_status expect_record(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct expected *expected = self;
    if (partition != expected->partition)
        return FR_OK;
    assert_true(expected->at < expected->log->n);
    const struct fr_buffer *held = &expected->log->records[expected->at].bytes;
    assert_int_equal(expected->log->records[expected->at].epoch, expected->epoch);
    assert_int_equal(expected->log->records[expected->at].piece, piece);
    assert_int_equal(held->size, size);
    assert_memory_equal(held->data, bytes, size);
    expected->at += 1;
    return FR_OK;
}

/* From record `at` on, the partition holds exactly the records of epochs first..last; returns where
 * they end. */
static size_t expect_epochs(struct fixture *f, struct log *log, uint32_t partition, size_t at, uint64_t first,
                            uint64_t last)
{
    struct expected expected = {log, partition, at, 0};
    for (expected.epoch = first; expected.epoch <= last; expected.epoch++) {
        struct fr_buffer bytes = {0};
        struct fr_epoch epoch;
        uint64_t saturated = 0;
        assert_int_equal(fr_durable_read_epoch(f->durable, expected.epoch, &bytes, NULL, NULL), FR_OK);
        assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
        assert_int_equal(fr_delta_of_epoch(&f->settings, &epoch, expect_record, &expected, &saturated, NULL), FR_OK);
        fr_buffer_release(&bytes);
    }
    return expected.at;
}

static struct log topic_log;

/* ---- cases ---- */

FR_CASE(durable_epochs_arrive_whole_in_order_and_byte_for_byte)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 3000); /* several pieces a partition, more bytes than may be in flight */
    append(&f, 10);
    append(&f, 0);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    struct fr_publisher_status status = step_until(publisher, 3);
    assert_int_equal(status.in_flight_bytes, 0);
    assert_int_equal(status.offered, 3);
    assert_int_equal(status.resent_epochs, 0);
    append(&f, 5);
    fr_publisher_offer(publisher, 4);
    step_until(publisher, 4);
    for (uint32_t p = 0; p < FIXTURE_PARTITIONS; p++) {
        read_partition(topic, (int32_t)p, &topic_log);
        assert_int_equal(expect_epochs(&f, &topic_log, p, 0, 1, 4), topic_log.n);
        drop_log(&topic_log);
    }
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(nothing_beyond_the_offered_epoch_is_sent)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 3);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    append(&f, 3); /* appended, not offered */
    step_until(publisher, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fr_publisher_step(publisher, 5, NULL), FR_OK);
    struct fr_publisher_status status;
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.sent, 1);
    fr_publisher_free(publisher);
    fixture_close(&f);
}

/* A hold outlasts a restart: which durable epochs may be sent is the caller's to say. */
FR_CASE(a_check_offers_nothing)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 3);
    append(&f, 3);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    struct fr_err err = {0};
    assert_int_equal(fr_publisher_check(publisher, &err), FR_OK);
    fr_publisher_offer(publisher, 1);
    step_until(publisher, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fr_publisher_step(publisher, 5, NULL), FR_OK);
    struct fr_publisher_status status;
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.sent, 1);
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(steps_before_the_check_are_refused)
{
    struct fixture f = {0};
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    struct fr_publisher *publisher = make_publisher(&f, "never-asked");
    struct fr_err err;
    assert_int_equal(fr_publisher_step(publisher, 0, &err), FR_E_STATE);
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(a_restart_resumes_behind_what_every_partition_shows_complete)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 20);
    append(&f, 20);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    step_until(publisher, 2);
    fr_publisher_free(publisher);
    append(&f, 20);
    publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    struct fr_publisher_status status;
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.acked, 2);
    step_until(publisher, 3);
    read_partition(topic, 1, &topic_log);
    assert_int_equal(expect_epochs(&f, &topic_log, 1, 0, 1, 3), topic_log.n);
    drop_log(&topic_log);
    fr_publisher_free(publisher);
    fixture_close(&f);
}

static void produce(const char *topic, int32_t partition, const void *bytes, size_t size)
{
    assert_int_equal(rd_kafka_producev(host, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                                       RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                       RD_KAFKA_V_VALUE((void *)(uintptr_t)bytes, size), RD_KAFKA_V_END),
                     0);
    assert_int_equal(rd_kafka_flush(host, 10000), 0);
}

struct partial {
    const char *topic;
    uint32_t pieces;
};

static enum fr_status produce_partial(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct partial *partial = self;
    /* partition 0 has all of it, 1 its first pieces */
    if (partition == 0 || piece < partial->pieces)
        produce(partial->topic, (int32_t)partition, bytes, size);
    return FR_OK;
}

FR_CASE(an_epoch_cut_off_in_the_middle_is_sent_again_from_its_first_piece)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 20);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    step_until(publisher, 1);
    fr_publisher_free(publisher);
    append(&f, 2000);
    struct fr_buffer bytes = {0};
    struct fr_epoch epoch;
    uint64_t saturated = 0;
    assert_int_equal(fr_durable_read_epoch(f.durable, 2, &bytes, NULL, NULL), FR_OK);
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    struct partial partial = {topic, 2};
    assert_int_equal(fr_delta_of_epoch(&f.settings, &epoch, produce_partial, &partial, &saturated, NULL), FR_OK);
    publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    struct fr_publisher_status status;
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.acked, 1);
    step_until(publisher, 2);
    read_partition(topic, 1, &topic_log);
    size_t at = expect_epochs(&f, &topic_log, 1, 0, 1, 1) + 2;
    assert_int_equal(expect_epochs(&f, &topic_log, 1, at, 2, 2), topic_log.n);
    drop_log(&topic_log);
    fr_buffer_release(&bytes);
    fr_publisher_free(publisher);
    fixture_close(&f);
}

static void expect_mismatch(struct fixture *f, const char *topic, const char *word)
{
    struct fr_err err = {0};
    struct fr_publisher *publisher = make_publisher(f, topic);
    assert_int_equal(fr_publisher_check(publisher, &err), FR_E_MISMATCH);
    if (!strstr(err.text, word))
        print_error("%s\n", err.text);
    assert_non_null(strstr(err.text, word));
    assert_int_equal(fr_publisher_step(publisher, 0, &err), FR_E_STATE);
    fr_publisher_free(publisher);
}

FR_CASE(topics_with_another_history_are_refused_with_a_remedy)
{
    struct fixture f = {0}, copy = {0}, other = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 20);
    append(&f, 20);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    step_until(publisher, 2);
    fr_publisher_free(publisher);

    assert_int_equal(fixture_open(&copy, "ctr"), FR_OK);
    expect_mismatch(&copy, topic, "export.topic"); /* nothing durable, the topic is not empty */
    append(&copy, 20);
    expect_mismatch(&copy, topic, "older copy");
    append(&copy, 21); /* another epoch 2 */
    append(&copy, 20);
    expect_mismatch(&copy, topic, "digest");

    assert_int_equal(fixture_open(&other, "ranking"), FR_OK);
    append(&other, 20);
    append(&other, 20);
    expect_mismatch(&other, topic, "model ctr");
    fixture_close(&f);
    fixture_close(&copy);
    fixture_close(&other);
}

FR_CASE(a_topic_that_holds_something_else_is_refused)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 1);
    produce(topic, 1, "{\"hello\":1}", 11);
    expect_mismatch(&f, topic, "not ours");
    fixture_close(&f);
}

FR_CASE(another_number_of_partitions_is_refused)
{
    struct fixture f = {0};
    assert_int_equal(rd_kafka_mock_topic_create(cluster, "three", 3, 1), 0);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    expect_mismatch(&f, "three", "3 partitions");
    fixture_close(&f);
}

FR_CASE(an_emptied_topic_is_counted_as_loss_and_filled_from_the_journal)
{
    struct fixture f = {0};
    char topic[32];
    struct fr_err err = {0};
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 20);
    append(&f, 20);
    assert_int_equal(fr_durable_acknowledge(f.durable, 2, &err), FR_OK);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    struct fr_publisher_status status;
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.lost_partitions, 2);
    step_until(publisher, 2);
    read_partition(topic, 0, &topic_log);
    assert_int_equal(expect_epochs(&f, &topic_log, 0, 0, 1, 2), topic_log.n);
    drop_log(&topic_log);
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(a_refused_record_restarts_the_producer_and_everything_arrives)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 2000);
    append(&f, 20);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    rd_kafka_mock_push_request_errors(cluster, PRODUCE_API_KEY, 2, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    struct fr_publisher_status status = step_until(publisher, 2);
    assert_true(status.errors > 0);
    assert_true(status.resent_epochs > 0);
    assert_string_equal(status.problem, "");
    /* the last records are the whole of the newest epoch */
    for (uint32_t p = 0; p < FIXTURE_PARTITIONS; p++) {
        read_partition(topic, (int32_t)p, &topic_log);
        size_t last = topic_log.n;
        while (last > 0 && topic_log.records[last - 1].epoch == 2)
            last--;
        assert_int_equal(expect_epochs(&f, &topic_log, p, last, 2, 2), topic_log.n);
        size_t first = last;
        while (first > 0 && topic_log.records[first - 1].piece != 0)
            first--;
        assert_int_equal(expect_epochs(&f, &topic_log, p, first - 1, 1, 1), last);
        drop_log(&topic_log);
    }
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(a_broker_that_goes_away_is_a_problem_until_it_returns)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 20);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    step_until(publisher, 1);
    assert_int_equal(rd_kafka_mock_broker_set_down(cluster, 1), 0);
    append(&f, 20);
    fr_publisher_offer(publisher, 2);
    struct fr_publisher_status status = {0};
    struct fr_err err = {0};
    for (int i = 0; i < STEPS_MAX && status.problem[0] == '\0'; i++) {
        (void)!fr_publisher_step(publisher, STEP_MS, &err);
        fr_publisher_get_status(publisher, &status);
    }
    assert_string_not_equal(status.problem, "");
    assert_int_equal(status.acked, 1);
    assert_int_equal(rd_kafka_mock_broker_set_up(cluster, 1), 0);
    status = step_until(publisher, 2);
    assert_string_equal(status.problem, "");
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(unreachable_brokers_are_unavailable)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    assert_int_equal(rd_kafka_mock_broker_set_down(cluster, 1), 0);
    struct fr_publisher *publisher = make_publisher(&f, topic);
    struct fr_err err = {0};
    assert_int_equal(fr_publisher_check(publisher, &err), FR_E_UNAVAILABLE);
    assert_int_equal(rd_kafka_mock_broker_set_up(cluster, 1), 0);
    check_ok(&f, publisher);
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(its_clients_name_the_model_and_are_back_within_a_second)
{
    struct fixture f = {0};
    char topic[32];
    make_topic(topic);
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 1);
    size_t before = n_recorded;
    struct fr_publisher *publisher = make_publisher(&f, topic);
    check_ok(&f, publisher);
    step_until(publisher, 1);
    expect_recorded(before, RD_KAFKA_CONSUMER, "freshet-ctr");
    expect_recorded(before, RD_KAFKA_PRODUCER, "freshet-ctr");
    fr_publisher_free(publisher);
    fixture_close(&f);
}

FR_CASE(unknown_properties_are_refused_by_name)
{
    struct fixture f = {0};
    struct fr_publisher_property wrong[] = {{"no.such.thing", "1"}};
    struct fr_publisher_options options = {.clock = fr_clock_system(),
                                           .brokers = brokers,
                                           .topic = "t",
                                           .partitions = 1,
                                           .properties = wrong,
                                           .n_properties = 1};
    struct fr_publisher *publisher = NULL;
    struct fr_err err = {0};
    (void)f;
    assert_int_equal(fr_publisher_new(&options, &publisher, &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, "no.such.thing"));
    assert_null(publisher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durable_epochs_arrive_whole_in_order_and_byte_for_byte),
        cmocka_unit_test(nothing_beyond_the_offered_epoch_is_sent),
        cmocka_unit_test(a_check_offers_nothing),
        cmocka_unit_test(steps_before_the_check_are_refused),
        cmocka_unit_test(a_restart_resumes_behind_what_every_partition_shows_complete),
        cmocka_unit_test(an_epoch_cut_off_in_the_middle_is_sent_again_from_its_first_piece),
        cmocka_unit_test(topics_with_another_history_are_refused_with_a_remedy),
        cmocka_unit_test(a_topic_that_holds_something_else_is_refused),
        cmocka_unit_test(another_number_of_partitions_is_refused),
        cmocka_unit_test(an_emptied_topic_is_counted_as_loss_and_filled_from_the_journal),
        cmocka_unit_test(a_refused_record_restarts_the_producer_and_everything_arrives),
        cmocka_unit_test(a_broker_that_goes_away_is_a_problem_until_it_returns),
        cmocka_unit_test(its_clients_name_the_model_and_are_back_within_a_second),
        cmocka_unit_test(unreachable_brokers_are_unavailable),
        cmocka_unit_test(unknown_properties_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
