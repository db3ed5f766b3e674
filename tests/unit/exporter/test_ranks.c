/* The publishers of a job of several ranks, against librdkafka's embedded broker: their records
 * have the digests of the job, and each of them sends and reads its own partitions only. */
#include "mock_broker.h"

FR_FIXTURE(open_state)
{
    new_topic();
    f = (struct fixture){0};
    return fixture_open(&f, "ctr");
}

/* The digests of a job; those of its epochs before `job.first` are not known. */
static struct job {
    uint64_t number, first;
} job;

static enum fr_status digest_of(void *self, uint64_t epoch, struct fr_sha256 *out)
{
    const struct job *of = self;
    uint64_t bytes[] = {of->number, epoch};
    if (epoch < of->first)
        return FR_E_NOT_FOUND;
    *out = fr_sha256(bytes, sizeof(bytes));
    return FR_OK;
}

static uint64_t dig_of(uint64_t epoch)
{
    struct fr_sha256 digest = {{0}};
    (void)digest_of(&(struct job){job.number, 0}, epoch, &digest);
    return fr_sha256_u64(&digest);
}

static uint64_t max_backlog_bytes; /* of the next publisher */

/* The publisher of the partitions [first, end). */
static void publish_part(uint32_t first, uint32_t end)
{
    static const struct fr_publisher_property log[] = {{"log_level", "3", NULL}};
    make_publisher((struct fr_publisher_options){.create = true,
                                                 .properties = log,
                                                 .n_properties = 1,
                                                 .digests = {&job, digest_of, job.first},
                                                 .max_backlog_bytes = max_backlog_bytes,
                                                 .first_partition = first,
                                                 .end_partition = end});
}

static void publish(void)
{
    publish_part(0, 0);
}

struct seen {
    uint64_t records, commits, newest;
    uint64_t of[FIXTURE_PARTITIONS], models; /* records of each partition; those with the model */
};

/* Reads the topic; each record has the digests of its epoch and of the one before. */
static struct seen read_topic(void)
{
    struct seen seen = {0};
    char text[256];
    uint32_t ended = 0;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    static const char *const settings[][2] = {
        {"group.id", "test"}, {"enable.partition.eof", "true"}, {"log_level", "3"}};
    (void)rd_kafka_conf_set(conf, "bootstrap.servers", brokers, text, sizeof(text));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(rd_kafka_conf_set(conf, settings[i][0], settings[i][1], text, sizeof(text)), RD_KAFKA_CONF_OK);
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof(text));
    assert_non_null(client);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(FIXTURE_PARTITIONS);
    for (int32_t p = 0; p < FIXTURE_PARTITIONS; p++)
        rd_kafka_topic_partition_list_add(list, topic, p)->offset = RD_KAFKA_OFFSET_BEGINNING;
    assert_int_equal(rd_kafka_assign(client, list), 0);
    rd_kafka_topic_partition_list_destroy(list);
    FR_UNTIL (ended == FIXTURE_PARTITIONS) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(client, 100);
        if (!message)
            continue;
        ended += message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (!message->err) {
            struct fr_delta_record record;
            assert_int_equal(fr_delta_read(message->payload, message->len, &record, NULL), FR_OK);
            assert_int_equal(record.digest, dig_of(record.epoch));
            if (record.kind == FR_DELTA_COMMIT)
                assert_int_equal(record.commit.previous, record.from > 1 ? dig_of(record.from - 1) : 0);
            seen.records++;
            seen.of[record.partition]++;
            seen.models += record.kind == FR_DELTA_MODEL;
            seen.commits += record.kind == FR_DELTA_COMMIT;
            seen.newest = record.epoch > seen.newest ? record.epoch : seen.newest;
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(client);
    rd_kafka_destroy(client);
    return seen;
}

FR_CASE(records_have_the_digests_of_the_job_also_after_a_restart)
{
    job = (struct job){.number = 1};
    append(&f, 20);
    append(&f, 20);
    publish();
    check_ok();
    offer_all();
    step_until(2);
    append(&f, 20);
    job.first = 2; /* as where another rank has no journal of epoch 2 any more */
    publish();
    check_ok();
    assert_int_equal(status.acked, 2);
    offer_all();
    step_until(3);
    struct seen seen = read_topic();
    assert_int_equal(seen.newest, 3);
    assert_int_equal(seen.commits, 3 * FIXTURE_PARTITIONS);
    assert_true(seen.records > seen.commits);
}

/* The number that this journal has noted may be behind that of a rank whose journal is shorter. */
FR_CASE(sending_resumes_where_the_digests_of_the_job_begin)
{
    job = (struct job){.number = 2};
    for (int i = 0; i < 4; i++)
        append(&f, 20);
    publish();
    check_ok();
    fr_publisher_offer(publisher, 1);
    step_until(1);
    offer_all();
    FR_UNTIL (status.acked == 4) { /* which the journal does not note */
        assert_int_equal(fr_publisher_step(publisher, STEP_MS, &err), FR_OK);
        fr_publisher_get_status(publisher, &status);
    }
    job.first = 3;
    publish();
    check_ok();
    assert_int_equal(status.acked, 3);
    offer_all();
    step_until(4);
    assert_int_equal(read_topic().commits, 5 * FIXTURE_PARTITIONS); /* epoch 4 twice */
}

FR_CASE(records_with_the_digests_of_another_job_are_refused)
{
    job = (struct job){.number = 3};
    append(&f, 20);
    publish();
    check_ok();
    offer_all();
    step_until(1);
    job.number = 4;
    publish();
    assert_int_equal(check_until_answered(), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "with another digest than ours"));
}

FR_CASE(each_rank_sends_the_partitions_of_its_own)
{
    job = (struct job){.number = 5};
    append(&f, 20);
    append(&f, 20);
    publish_part(1, 2);
    check_ok();
    offer_all();
    step_until(2);
    struct seen second = read_topic();
    assert_int_equal(second.of[0], 0);
    assert_int_equal(second.commits, 2);
    assert_int_equal(second.models, 0);
    uint64_t offsets[FIXTURE_PARTITIONS];
    assert_false(fr_publisher_offsets(publisher, offsets)); /* the other rank knows its own */

    publish_part(0, 1); /* nothing of the other partition counts for this one */
    check_ok();
    assert_int_equal(status.acked, 0);
    assert_int_equal(status.topic.begin, 0);
    offer_all();
    step_until(2);
    struct seen both = read_topic();
    assert_int_equal(both.of[1], second.of[1]);
    assert_int_equal(both.commits, 4);
    assert_int_equal(both.models, 1);

    publish_part(1, 2); /* begins where it ended */
    check_ok();
    assert_int_equal(status.acked, 2);
    assert_int_equal(status.topic.begin, 1);
}

FR_CASE(a_rank_does_not_judge_partitions_of_other_ranks)
{
    job = (struct job){.number = 6};
    append(&f, 20);
    publish_part(0, 1);
    check_ok();
    offer_all();
    step_until(1);
    job.number = 7;
    publish_part(1, 2);
    check_ok(); /* what partition 0 has is not of this job, which rank 0 will find */
    publish_part(0, 1);
    assert_int_equal(check_until_answered(), FR_E_MISMATCH);
}

FR_CASE(a_rank_does_not_fill_its_partitions_with_the_whole_state)
{
    job = (struct job){.number = 9, .first = 2};
    for (int i = 0; i < 3; i++)
        append(&f, 20);
    publish_part(1, 2);
    assert_int_equal(check_until_answered(), FR_E_LOST);
    assert_non_null(strstr(err.text, "partitions 1 to 1: they lack epochs that the journals no longer have"));
    assert_non_null(strstr(err.text, "begin a new job, with empty state directories and an empty topic"));
    publish_part(0, 0); /* a publisher of all partitions does */
    check_ok();
    assert_true(status.topic.looks == 1);
}

FR_CASE(a_rank_begins_no_timeline)
{
    job = (struct job){.number = 10};
    append(&f, 20);
    assert_int_equal(fr_durable_begin_timeline(f.durable, 2, &err), FR_OK);
    append(&f, 20);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    job.first = 2;
    publish_part(0, 0);
    check_ok();
    offer_all();
    FR_UNTIL (status.acked == 2) {
        assert_int_equal(fr_publisher_step(publisher, STEP_MS, &err), FR_OK);
        fr_publisher_get_status(publisher, &status);
    }
    /* so it is not known that the timeline is ours */
    assert_int_equal(fr_durable_write_file(f.durable, "delta.begin", "", 0, &err), FR_OK);
    publish_part(0, 1);
    assert_int_equal(check_until_answered(), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "partitions 0 to 0: they hold records of this state's timeline"));
    struct fr_durable_status durable;
    fr_durable_get_status(f.durable, &durable);
    assert_int_equal(durable.timeline, 2);
}

FR_CASE(a_rank_without_brokers_begins_no_timeline)
{
    const char *kept = brokers;
    job = (struct job){.number = 11};
    append(&f, 20);
    brokers = NULL;
    publish_part(0, 1);
    brokers = kept;
    check_ok();
    struct fr_durable_status durable;
    fr_durable_get_status(f.durable, &durable);
    assert_int_equal(durable.timeline, 1);
    assert_int_equal(fr_publisher_least_timeline(publisher), 0);
}

FR_CASE(a_rank_merges_no_epochs)
{
    enum { EPOCHS = 40 };
    job = (struct job){.number = 12};
    max_backlog_bytes = 1;
    for (int i = 0; i < EPOCHS; i++)
        append(&f, 20);
    publish_part(0, 1);
    check_ok();
    offer_all();
    step_until(EPOCHS);
    max_backlog_bytes = 0;
    assert_int_equal(status.backlog.merges, 0);
    assert_int_equal(read_topic().commits, EPOCHS);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(records_have_the_digests_of_the_job_also_after_a_restart, open_state,
                                        close_state),
        cmocka_unit_test_setup_teardown(sending_resumes_where_the_digests_of_the_job_begin, open_state, close_state),
        cmocka_unit_test_setup_teardown(records_with_the_digests_of_another_job_are_refused, open_state, close_state),
        cmocka_unit_test_setup_teardown(each_rank_sends_the_partitions_of_its_own, open_state, close_state),
        cmocka_unit_test_setup_teardown(a_rank_does_not_fill_its_partitions_with_the_whole_state, open_state,
                                        close_state),
        cmocka_unit_test_setup_teardown(a_rank_begins_no_timeline, open_state, close_state),
        cmocka_unit_test_setup_teardown(a_rank_without_brokers_begins_no_timeline, open_state, close_state),
        cmocka_unit_test_setup_teardown(a_rank_merges_no_epochs, open_state, close_state),
        cmocka_unit_test_setup_teardown(a_rank_does_not_judge_partitions_of_other_ranks, open_state, close_state),
    };
    return cmocka_run_group_tests_name("ranks", cases, start_broker, stop_broker);
}
