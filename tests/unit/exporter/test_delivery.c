/* Delivery reports that prove nothing (kafka/kafka.h, fr_kafka_refusal), as the publisher gets them
 * from librdkafka's embedded broker. Like a leader that does not know the producer yet, that broker
 * takes any sequence number: a request after a refused one succeeds, and both are reported. */
#include "mock_broker.h"

/* REFUSAL_MS is how long a refusal takes. The next requests must be sent meanwhile; if they are
 * not, the case is repeated with twice the time. */
enum { PRODUCE_API_KEY = 0, REFUSAL_MS = 500, REFUSAL_MS_MAX = 16000 };

FR_FIXTURE(open_state)
{
    new_topic();
    f = (struct fixture){0};
    return fixture_open(&f, "ctr");
}

/* Several requests of a record each are in flight. */
static void publish(void)
{
    static const struct fr_publisher_property pipelined[] = {
        {"log_level", "3", NULL}, {"batch.num.messages", "1", NULL}, {"max.in.flight", "5", NULL}};
    make_publisher((struct fr_publisher_options){.create = true, .properties = pipelined, .n_properties = 3});
    check_ok();
    offer_all();
}

static rd_kafka_t *reader_new(void)
{
    char text[256];
    static const char *const settings[][2] = {
        {"group.id", "test"}, {"enable.partition.eof", "true"}, {"fetch.wait.max.ms", "10"}, {"log_level", "3"}};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(rd_kafka_conf_set(conf, "bootstrap.servers", brokers, text, sizeof(text)), RD_KAFKA_CONF_OK);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(rd_kafka_conf_set(conf, settings[i][0], settings[i][1], text, sizeof(text)), RD_KAFKA_CONF_OK);
    rd_kafka_t *reader = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof(text));
    assert_non_null(reader);
    return reader;
}

struct end {
    uint64_t epoch; /* of the partition's last record */
    bool commit;    /* the partition's last record is a commit */
    bool whole;     /* all of its pieces lie before it, from 0 on */
};

static struct end read_end(int32_t partition)
{
    struct end end = {0};
    rd_kafka_t *reader = reader_new();
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = RD_KAFKA_OFFSET_BEGINNING;
    assert_int_equal(rd_kafka_assign(reader, list), 0);
    rd_kafka_topic_partition_list_destroy(list);
    uint32_t next = 0;
    bool ended = false;
    FR_UNTIL (ended) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, 100);
        ended = message && message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (message && !message->err) {
            struct fr_delta_record record;
            assert_int_equal(fr_delta_read(message->payload, message->len, &record, NULL), FR_OK);
            bool begins = record.piece == 0;
            end.whole = begins || (end.whole && record.epoch == end.epoch && record.piece == next);
            end.epoch = record.epoch;
            end.commit = record.kind == FR_DELTA_COMMIT;
            next = record.piece + 1;
        }
        if (message)
            rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(reader);
    rd_kafka_destroy(reader);
    return end;
}

/* Sends all records until the epoch's commits are there and librdkafka has reported all of them as
 * delivered. Returns the number of partitions that lack no piece. */
static uint32_t hand_over(uint64_t epoch)
{
    (void)!fr_publisher_step(publisher, 0, &err);
    uint32_t commits = 0, whole = 0;
    FR_UNTIL (commits == FIXTURE_PARTITIONS) {
        commits = whole = 0;
        for (int32_t p = 0; p < FIXTURE_PARTITIONS; p++) {
            struct end end = read_end(p);
            commits += end.commit && end.epoch == epoch;
            whole += end.whole;
        }
    }
    return whole;
}

static void expect_whole(uint64_t epoch)
{
    for (int32_t p = 0; p < FIXTURE_PARTITIONS; p++) {
        struct end end = read_end(p);
        assert_true(end.commit && end.whole && end.epoch == epoch);
    }
}

/* A later epoch of a topic: that the first is there whole lets a look go by commits alone. */
FR_CASE(a_record_that_only_a_later_one_acknowledges_is_sent_again)
{
    append(&f, 20);
    publish();
    step_until(1);
    uint64_t epoch = 1;
    uint32_t whole = FIXTURE_PARTITIONS;
    for (int ms = REFUSAL_MS; whole == FIXTURE_PARTITIONS && ms <= REFUSAL_MS_MAX; ms *= 2) {
        epoch++;
        append(&f, 3);
        publish();
        assert_int_equal(rd_kafka_mock_broker_push_request_error_rtts(cluster, 1, PRODUCE_API_KEY, 1,
                                                                      RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, ms),
                         0);
        whole = hand_over(epoch);
        /* the refused request was sent again before the next one */
        if (whole == FIXTURE_PARTITIONS)
            step_until(epoch);
    }
    assert_int_equal(whole, FIXTURE_PARTITIONS - 1);
    step_until(epoch);
    assert_int_equal(status.errors, 1);
    assert_string_equal(status.problem, "");
    expect_whole(epoch);
}

/* Commits of it are there everywhere, and what it holds is no longer in the journal. */
FR_CASE(a_whole_state_of_which_a_piece_was_only_reported_is_sent_again)
{
    fixture_close(&f);
    f = (struct fixture){.journal_file_max = 1};
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 4000);
    append(&f, 3);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    assert_int_equal(fr_durable_acknowledge(f.durable, 2, &err), FR_OK);
    publish();
    assert_int_equal(rd_kafka_mock_broker_push_request_error_rtts(
                         cluster, 1, PRODUCE_API_KEY, 4, RD_KAFKA_RESP_ERR_NO_ERROR, 0, RD_KAFKA_RESP_ERR_NO_ERROR, 0,
                         RD_KAFKA_RESP_ERR_NO_ERROR, 0, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, REFUSAL_MS),
                     0);
    assert_int_equal(hand_over(2), FIXTURE_PARTITIONS - 1);
    step_until(2);
    assert_int_equal(status.errors, 1);
    assert_int_equal(status.rebases, 1);
    expect_whole(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_record_that_only_a_later_one_acknowledges_is_sent_again, open_state,
                                        close_state),
        cmocka_unit_test_setup_teardown(a_whole_state_of_which_a_piece_was_only_reported_is_sent_again, open_state,
                                        close_state),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
