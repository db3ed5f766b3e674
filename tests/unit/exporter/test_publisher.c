/* The publisher against librdkafka's embedded broker: order, resumption, refusal, recovery from
 * failed deliveries. */
#include "recorded_clients.h"

#include "mock_broker.h"

enum { PRODUCE_API_KEY = 0 };

static uint32_t look_ms; /* the next publisher's interval between looks; 0: a minute */

FR_FIXTURE(open_state)
{
    new_topic();
    f = (struct fixture){0};
    return fixture_open(&f, "ctr");
}

static void restart(struct fixture *of, const char *to)
{
    static const struct fr_publisher_property log[] = {{"log_level", "3", NULL}};
    make_publisher((struct fr_publisher_options){.durable = of->durable,
                                                 .topic = to,
                                                 .create = true,
                                                 .max_in_flight_bytes = 64 * 1024,
                                                 .properties = log,
                                                 .n_properties = 1,
                                                 .look_ms = look_ms});
}

static void publish(void)
{
    restart(&f, topic);
    check_ok();
    offer_all();
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

static struct log topic_log;

static void read_partition(int32_t partition)
{
    struct log *log = &topic_log;
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
    FR_UNTIL (ended) {
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
    rd_kafka_consumer_close(client);
    rd_kafka_destroy(client);
}

static void drop_log(void)
{
    for (size_t i = 0; i < topic_log.n; i++)
        fr_buffer_release(&topic_log.records[i].bytes);
    topic_log.n = 0;
}

struct expected {
    uint32_t partition;
    size_t at;
    uint64_t epoch;
};

static enum fr_status expect_record(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct expected *expected = self;
    if (partition != expected->partition)
        return FR_OK;
    assert_true(expected->at < topic_log.n);
    const struct fr_buffer *held = &topic_log.records[expected->at].bytes;
    assert_int_equal(topic_log.records[expected->at].epoch, expected->epoch);
    assert_int_equal(topic_log.records[expected->at].piece, piece);
    assert_int_equal(held->size, size);
    assert_memory_equal(held->data, bytes, size);
    expected->at += 1;
    return FR_OK;
}

/* From record `at` on, the partition holds exactly the records of epochs first..last; returns where
 * they end. */
static size_t expect_epochs(uint32_t partition, size_t at, uint64_t first, uint64_t last)
{
    struct expected expected = {partition, at, 0};
    for (expected.epoch = first; expected.epoch <= last; expected.epoch++) {
        struct fr_buffer bytes = {0};
        struct fr_epoch epoch;
        uint64_t saturated = 0;
        assert_int_equal(fr_durable_read_epoch(f.durable, expected.epoch, &bytes, NULL, NULL), FR_OK);
        assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
        assert_int_equal(export_epoch(&f.settings, &epoch, expect_record, &expected, &saturated, NULL), FR_OK);
        fr_buffer_release(&bytes);
    }
    return expected.at;
}

/* The partition holds epochs first..last and nothing else. */
static void expect_partition(uint32_t partition, uint64_t first, uint64_t last)
{
    read_partition((int32_t)partition);
    assert_int_equal(expect_epochs(partition, 0, first, last), topic_log.n);
    drop_log();
}

/* ---- cases ---- */

FR_CASE(durable_epochs_arrive_whole_in_order_and_byte_for_byte)
{
    append(&f, 3000); /* several pieces a partition, more bytes than may be in flight */
    append(&f, 10);
    append(&f, 0);
    publish();
    step_until(3);
    assert_int_equal(status.in_flight_bytes, 0);
    assert_int_equal(status.offered, 3);
    assert_int_equal(status.resent_epochs, 0);
    append(&f, 5);
    fr_publisher_offer(publisher, 4);
    step_until(4);
    for (uint32_t p = 0; p < FIXTURE_PARTITIONS; p++)
        expect_partition(p, 1, 4);
}

FR_CASE(nothing_beyond_the_offered_epoch_is_sent)
{
    append(&f, 3);
    publish();
    append(&f, 3); /* appended, not offered */
    step_until(1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fr_publisher_step(publisher, 5, NULL), FR_OK);
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.sent, 1);
}

/* A hold outlasts a restart, so the caller says which durable epochs may be sent, not the check. */
FR_CASE(a_check_offers_nothing)
{
    append(&f, 3);
    append(&f, 3);
    restart(&f, topic);
    check_ok();
    fr_publisher_offer(publisher, 1);
    step_until(1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fr_publisher_step(publisher, 5, NULL), FR_OK);
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.sent, 1);
}

FR_CASE(steps_before_the_check_are_refused)
{
    restart(&f, "never-asked");
    assert_int_equal(fr_publisher_step(publisher, 0, &err), FR_E_STATE);
}

FR_CASE(a_restart_resumes_behind_what_every_partition_shows_complete)
{
    append(&f, 20);
    append(&f, 20);
    publish();
    step_until(2);
    append(&f, 20);
    publish();
    assert_int_equal(status.acked, 2);
    step_until(3);
    expect_partition(1, 1, 3);
}

static void produce(int32_t partition, const void *bytes, size_t size)
{
    assert_int_equal(rd_kafka_producev(host, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                                       RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                       RD_KAFKA_V_VALUE((void *)(uintptr_t)bytes, size), RD_KAFKA_V_END),
                     0);
    assert_int_equal(rd_kafka_flush(host, FR_PATIENCE_S * 1000), 0);
}

static enum fr_status produce_partial(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    const uint32_t *pieces = self;
    /* partition 0 has all of it, 1 its first pieces */
    if (partition == 0 || piece < *pieces)
        produce((int32_t)partition, bytes, size);
    return FR_OK;
}

FR_CASE(an_epoch_cut_off_in_the_middle_is_sent_again_from_its_first_piece)
{
    append(&f, 20);
    publish();
    step_until(1);
    append(&f, 2000);
    struct fr_buffer bytes = {0};
    struct fr_epoch epoch;
    uint64_t saturated = 0;
    assert_int_equal(fr_durable_read_epoch(f.durable, 2, &bytes, NULL, NULL), FR_OK);
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    uint32_t pieces = 2;
    assert_int_equal(export_epoch(&f.settings, &epoch, produce_partial, &pieces, &saturated, NULL), FR_OK);
    publish();
    assert_int_equal(status.acked, 1);
    step_until(2);
    read_partition(1);
    size_t at = expect_epochs(1, 0, 1, 1) + 2;
    assert_int_equal(expect_epochs(1, at, 2, 2), topic_log.n);
    drop_log();
    fr_buffer_release(&bytes);
}

static enum fr_status produce_all(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    (void)self;
    (void)piece;
    produce((int32_t)partition, bytes, size);
    return FR_OK;
}

/* Publishes an epoch as another process would. */
static void produce_epoch(struct fixture *from, uint64_t number)
{
    struct fr_buffer bytes = {0};
    struct fr_epoch epoch;
    uint64_t saturated = 0;
    assert_int_equal(fr_durable_read_epoch(from->durable, number, &bytes, NULL, NULL), FR_OK);
    assert_int_equal(fr_epoch_parse(bytes.data, bytes.size, &epoch), FR_OK);
    assert_int_equal(export_epoch(&from->settings, &epoch, produce_all, NULL, &saturated, NULL), FR_OK);
    fr_buffer_release(&bytes);
}

/* A process was killed before the delivery reports of epoch 2 came, so the topic holds a commit
 * that the journal has not noted as acknowledged. */
FR_CASE(a_start_sends_again_what_the_journal_has_not_noted_as_acknowledged)
{
    append(&f, 20);
    publish();
    step_until(1);
    append(&f, 20);
    produce_epoch(&f, 2);
    publish();
    assert_int_equal(status.acked, 1);
    step_until(2);
    read_partition(1);
    size_t again = expect_epochs(1, 0, 1, 2);
    assert_int_equal(expect_epochs(1, again, 2, 2), topic_log.n);
    drop_log();
}

static void expect_mismatch(struct fixture *of, const char *to, const char *word)
{
    restart(of, to);
    assert_int_equal(fr_publisher_check(publisher, &err), FR_E_MISMATCH);
    if (!strstr(err.text, word))
        fail_msg("%s", err.text);
    assert_int_equal(fr_publisher_step(publisher, 0, &err), FR_E_STATE);
}

FR_CASE(topics_with_another_history_are_refused_with_a_remedy)
{
    struct fixture copy = {0}, other = {0};
    append(&f, 20);
    append(&f, 20);
    publish();
    step_until(2);

    assert_int_equal(fixture_open(&copy, "ctr"), FR_OK);
    expect_mismatch(&copy, topic, "export.topic"); /* nothing durable, the topic is not empty */
    append(&copy, 20);
    expect_mismatch(&copy, topic, "older copy");
    append(&copy, 21); /* an epoch 2 with other content */
    append(&copy, 20);
    expect_mismatch(&copy, topic, "digest");

    assert_int_equal(fixture_open(&other, "ranking"), FR_OK);
    append(&other, 20);
    append(&other, 20);
    expect_mismatch(&other, topic, "model ctr");
    fixture_close(&copy);
    fixture_close(&other);
}

/* Records without a valid CRC belong to no writer; replicas pass over them, too. */
FR_CASE(strays_are_passed_over_and_counted)
{
    append(&f, 20);
    publish();
    step_until(1);
    for (int i = 0; i < 70; i++) /* more than the first looks back */
        produce(1, "{\"hello\":1}", 11);
    publish();
    assert_int_equal(status.acked, 1);
    assert_true(status.strays >= 70);
    append(&f, 20);
    fr_publisher_offer(publisher, 2);
    produce(0, "", 0);
    step_until(2);
    assert_int_equal(status.strays, 71 + 64 + 4);
}

FR_CASE(a_topic_of_nothing_but_strays_is_filled)
{
    produce(0, "x", 1);
    produce(1, "x", 1);
    append(&f, 1);
    publish();
    step_until(1);
    publish();
    assert_int_equal(status.acked, 1);
    assert_int_equal(status.topic.begin, 1);
}

static void expect_stranger(const char *word)
{
    enum fr_status result = FR_OK;
    FR_UNTIL (result == FR_E_MISMATCH)
        result = fr_publisher_step(publisher, STEP_MS, &err);
    if (!strstr(err.text, word))
        fail_msg("%s", err.text);
}

FR_CASE(another_writer_is_noticed_between_two_of_our_records)
{
    struct fixture other = {0};
    append(&f, 20);
    publish();
    step_until(1);
    assert_int_equal(fixture_open(&other, "ctr"), FR_OK);
    append(&other, 21);
    append(&other, 21);
    produce_epoch(&other, 1);
    append(&f, 20);
    fr_publisher_offer(publisher, 2);
    expect_stranger("epoch 1 of model ctr");
    fr_publisher_get_status(publisher, &status);
    assert_int_equal(status.acked, 1);

    publish();
    FR_UNTIL (status.acked == 2) {
        assert_int_equal(fr_publisher_step(publisher, STEP_MS, &err), FR_OK);
        fr_publisher_get_status(publisher, &status);
    }
    produce_epoch(&other, 2);
    append(&f, 20);
    fr_publisher_offer(publisher, 3);
    expect_stranger("digest");
    fixture_close(&other);
}

FR_CASE(another_writer_is_noticed_while_nothing_is_sent)
{
    struct fixture other = {0};
    append(&f, 20);
    look_ms = 20;
    publish();
    look_ms = 0;
    step_until(1);
    assert_int_equal(fixture_open(&other, "ranking"), FR_OK);
    append(&other, 1);
    produce_epoch(&other, 1);
    expect_stranger("model ranking");
    fixture_close(&other);
}

/* The previous producer may have sent more than was acknowledged to it. */
FR_CASE(our_own_records_between_ours_are_no_other_writer)
{
    append(&f, 20);
    publish();
    step_until(1);
    produce_epoch(&f, 1);
    append(&f, 20);
    fr_publisher_offer(publisher, 2);
    step_until(2);
}

FR_CASE(fewer_partitions_are_refused_and_more_stay_empty)
{
    assert_int_equal(rd_kafka_mock_topic_create(cluster, "one", 1, 1), 0);
    expect_mismatch(&f, "one", "1 partitions");
    snprintf(topic, sizeof(topic), "three");
    assert_int_equal(rd_kafka_mock_topic_create(cluster, topic, 3, 1), 0);
    append(&f, 20);
    publish();
    step_until(1);
    expect_partition(1, 1, 1);
    read_partition(2);
    assert_int_equal(topic_log.n, 0);
}

FR_CASE(an_emptied_topic_is_counted_as_loss_and_filled_from_the_journal)
{
    append(&f, 20);
    append(&f, 20);
    assert_int_equal(fr_durable_acknowledge(f.durable, 2, &err), FR_OK);
    publish();
    assert_int_equal(status.lost_partitions, 2);
    step_until(2);
    expect_partition(0, 1, 2);
}

static bool is_covered;

static bool covers(void *self, const int64_t *low, const int64_t *high, uint32_t partitions)
{
    (void)self, (void)low, (void)high, (void)partitions;
    return is_covered;
}

FR_CASE(a_topic_that_no_snapshot_covers_any_more_is_filled_while_nothing_is_sent)
{
    append(&f, 20);
    append(&f, 20);
    append(&f, 20);
    produce_epoch(&f, 3);
    assert_int_equal(fr_durable_acknowledge(f.durable, 3, &err), FR_OK);
    is_covered = true;
    make_publisher((struct fr_publisher_options){.max_in_flight_bytes = 64 * 1024, .look_ms = 20, .covers = covers});
    check_ok();
    assert_int_equal(status.acked, 3);
    is_covered = false;
    FR_UNTIL (status.resent_epochs == 3) {
        assert_int_equal(fr_publisher_step(publisher, STEP_MS, &err), FR_OK);
        offer_all();
        fr_publisher_get_status(publisher, &status);
    }
    step_until(3);
    for (uint32_t p = 0; p < FIXTURE_PARTITIONS; p++) {
        read_partition((int32_t)p);
        size_t again = expect_epochs(p, 0, 3, 3);
        assert_int_equal(expect_epochs(p, again, 1, 3), topic_log.n);
        drop_log();
    }
}

FR_CASE(a_refused_record_restarts_the_producer_and_everything_arrives)
{
    append(&f, 2000);
    append(&f, 20);
    publish();
    rd_kafka_mock_push_request_errors(cluster, PRODUCE_API_KEY, 2, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    FR_UNTIL (status.refused[0]) {
        (void)!fr_publisher_step(publisher, STEP_MS, &err);
        fr_publisher_get_status(publisher, &status);
    }
    assert_non_null(strstr(status.refused, "set max.message.bytes="));
    step_until(2);
    assert_string_equal(status.refused, "");
    assert_true(status.errors > 0);
    assert_true(status.resent_epochs > 0);
    assert_string_equal(status.problem, "");
    /* the last records are the whole of the newest epoch */
    for (uint32_t p = 0; p < FIXTURE_PARTITIONS; p++) {
        read_partition((int32_t)p);
        size_t last = topic_log.n;
        while (last > 0 && topic_log.records[last - 1].epoch == 2)
            last--;
        assert_int_equal(expect_epochs(p, last, 2, 2), topic_log.n);
        size_t first = last;
        while (first > 0 && topic_log.records[first - 1].piece != 0)
            first--;
        assert_int_equal(expect_epochs(p, first - 1, 1, 1), last);
        drop_log();
    }
}

/* A row of this width does not fit. Nothing of the epoch was sent yet, so it may be encoded
 * again. */
FR_CASE(an_epoch_that_does_not_fit_its_piece_max_is_sent_in_larger_pieces)
{
    fixture_close(&f);
    f.piece_max = 128;
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    append(&f, 20);
    append(&f, 20);
    publish();
    step_until(2);
    f.settings.piece_max = 256;
    expect_partition(0, 1, 2);
    expect_partition(1, 1, 2);
}

FR_CASE(a_broker_that_goes_away_is_a_problem_until_it_returns)
{
    append(&f, 20);
    publish();
    step_until(1);
    assert_int_equal(rd_kafka_mock_broker_set_down(cluster, 1), 0);
    append(&f, 20);
    fr_publisher_offer(publisher, 2);
    FR_UNTIL (status.problem[0] != '\0') {
        (void)!fr_publisher_step(publisher, STEP_MS, &err);
        fr_publisher_get_status(publisher, &status);
    }
    assert_int_equal(status.acked, 1);
    assert_int_equal(rd_kafka_mock_broker_set_up(cluster, 1), 0);
    step_until(2);
    assert_string_equal(status.problem, "");
}

FR_CASE(unreachable_brokers_are_unavailable)
{
    assert_int_equal(rd_kafka_mock_broker_set_down(cluster, 1), 0);
    restart(&f, topic);
    assert_int_equal(fr_publisher_check(publisher, &err), FR_E_UNAVAILABLE);
    assert_int_equal(rd_kafka_mock_broker_set_up(cluster, 1), 0);
    check_ok();
}

FR_CASE(its_clients_name_the_model_and_are_back_within_a_second)
{
    append(&f, 1);
    size_t before = n_recorded;
    publish();
    step_until(1);
    expect_recorded(before, RD_KAFKA_CONSUMER, "freshet-ctr");
    expect_recorded(before, RD_KAFKA_PRODUCER, "freshet-ctr");
}

FR_CASE(unknown_properties_are_refused_by_name)
{
    struct fr_publisher_property wrong[] = {{"no.such.thing", "1", NULL}};
    struct fr_publisher_options options = {.clock = fr_clock_system(),
                                           .brokers = brokers,
                                           .topic = "t",
                                           .partitions = 1,
                                           .properties = wrong,
                                           .n_properties = 1};
    assert_int_equal(fr_publisher_new(&options, &publisher, &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, "no.such.thing"));
    assert_null(publisher);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_state, close_state)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(durable_epochs_arrive_whole_in_order_and_byte_for_byte),
        CASE(nothing_beyond_the_offered_epoch_is_sent),
        CASE(a_check_offers_nothing),
        CASE(steps_before_the_check_are_refused),
        CASE(a_restart_resumes_behind_what_every_partition_shows_complete),
        CASE(an_epoch_cut_off_in_the_middle_is_sent_again_from_its_first_piece),
        CASE(a_start_sends_again_what_the_journal_has_not_noted_as_acknowledged),
        CASE(topics_with_another_history_are_refused_with_a_remedy),
        CASE(strays_are_passed_over_and_counted),
        CASE(a_topic_of_nothing_but_strays_is_filled),
        CASE(another_writer_is_noticed_between_two_of_our_records),
        CASE(another_writer_is_noticed_while_nothing_is_sent),
        CASE(our_own_records_between_ours_are_no_other_writer),
        CASE(fewer_partitions_are_refused_and_more_stay_empty),
        CASE(an_emptied_topic_is_counted_as_loss_and_filled_from_the_journal),
        CASE(a_topic_that_no_snapshot_covers_any_more_is_filled_while_nothing_is_sent),
        CASE(a_refused_record_restarts_the_producer_and_everything_arrives),
        CASE(an_epoch_that_does_not_fit_its_piece_max_is_sent_in_larger_pieces),
        CASE(a_broker_that_goes_away_is_a_problem_until_it_returns),
        CASE(its_clients_name_the_model_and_are_back_within_a_second),
        CASE(unreachable_brokers_are_unavailable),
        CASE(unknown_properties_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
