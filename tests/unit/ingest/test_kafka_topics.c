/* Several topics, added partitions, times, lost and recreated logs against a real broker
 * (kafka_fixture.h). */
#include "kafka_fixture.h"

static const struct fr_partition_position *position(const struct run *run, const char *topic, int32_t partition)
{
    for (uint32_t i = 0; i < run->positions.count; i++)
        if (strcmp(run->positions.partitions[i].topic, topic) == 0 &&
            run->positions.partitions[i].partition == partition)
            return &run->positions.partitions[i];
    fail_msg("no position of %s/%d", topic, (int)partition);
    return NULL;
}

/* A stream whose second topic sorts before its first. */
static void pair_new(int partitions, int second)
{
    stream_new(partitions);
    snprintf(stream.second, sizeof(stream.second), "a-%s", stream.topic);
    create(stream.producer, stream.second, second, NULL);
}

FR_CASE(all_topics_are_read_resumed_and_committed)
{
    pair_new(2, 3);
    put(stream.producer, stream.topic, 0, 100, 0);
    put(stream.producer, stream.topic, 1, 200, 0);
    put(stream.producer, stream.second, 2, 300, 0); /* its partitions 0 and 1 stay idle */
    put_value(stream.producer, stream.second, 2, "not json");
    put(stream.producer, stream.second, 2, 1, 0);
    struct run *run = run_new(", batch_size: 64");
    run_whole(run);
    assert_int_equal(run->samples, 601);
    assert_int_equal(position(run, stream.topic, 1)->trained, 200);
    assert_int_equal(position(run, stream.second, 2)->trained, 301);
    assert_int_equal(position(run, stream.second, 2)->dead_lettered, 1);
    /* (topic, partition) order, not that of the configuration. */
    assert_string_equal(run->positions.partitions[0].topic, stream.second);
    assert_int_equal(run->positions.partitions[2].partition, 2);
    assert_string_equal(run->positions.partitions[3].topic, stream.topic);
    wait_for_letter(run);
    fr_ingest_commit(run->ingest, &run->positions);
    (void)run_step(run);
    run_kill(run);
    assert_int_equal(committed(stream.topic, 1), 200);
    assert_int_equal(committed(stream.second, 2), 302);

    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, NULL);
    /* of the first topic in the configuration */
    rd_kafka_message_t *message = first_message(consumer, stream.dead);
    assert_header(message, "__connect.errors.topic", stream.second);
    assert_header(message, "__connect.errors.partition", "2");
    assert_header(message, "__connect.errors.offset", "300");
    rd_kafka_message_destroy(message);
    rd_kafka_destroy(consumer);

    put(stream.producer, stream.second, 0, 10, 0);
    run_whole(run);
    assert_int_equal(run->samples, 611);
}

FR_CASE(lockstep_over_two_topics_is_the_same_whenever_it_is_killed)
{
    pair_new(2, 2);
    for (int p = 0; p < 2; p++) {
        put(stream.producer, stream.topic, p, 300 * (p + 1), 10000 * p);
        put(stream.producer, stream.second, p, 200 * (p + 1), 10000 * (p + 2));
    }
    uint64_t order = 0;
    for (uint64_t kill_every = 0; kill_every < 3; kill_every += 2) {
        struct run *run = run_new(", lockstep: {records: 50, epoch_batches: 4}");
        assert_int_equal(run_start(run, true), FR_OK);
        run_killed_every(run, kill_every);
        assert_int_equal(run->samples, 1500);
        order = kill_every ? order : run->order;
        assert_true(run->order == order);
    }
}

static void grow(rd_kafka_t *rk, const char *topic, size_t partitions)
{
    char reason[256];
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_NewPartitions_t *what = rd_kafka_NewPartitions_new(topic, partitions, reason, sizeof(reason));
    rd_kafka_CreatePartitions(rk, &what, 1, NULL, queue);
    wait_result(queue);
    rd_kafka_NewPartitions_destroy(what);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, topic, NULL);
    int known = 0;
    /* The controller has made them; the broker hears of it later. */
    FR_UNTIL ((size_t)known == partitions) {
        const struct rd_kafka_metadata *metadata;
        assert_int_equal(rd_kafka_metadata(rk, 0, handle, &metadata, PATIENCE_MS), 0);
        known = metadata->topics[0].partition_cnt;
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(handle);
}

FR_CASE(partitions_added_while_running_are_read_whole)
{
    pair_new(1, 1);
    put(stream.producer, stream.topic, 0, 10, 0);
    /* start: latest is for what was there; what is added later is read from its first record. */
    struct run *run =
        run_new(", batch_size: 10, batch_wait: 5ms, start: latest, kafka: {topic.metadata.refresh.interval.ms: 200}");
    assert_int_equal(run_start(run, false), FR_OK);
    put(stream.producer, stream.topic, 0, 10, 100);
    run_to(run, 10);
    grow(stream.producer, stream.topic, 3);
    grow(stream.producer, stream.second, 2);
    rd_kafka_destroy(stream.producer); /* a new one: the old may not know of them yet */
    stream.producer = client(RD_KAFKA_PRODUCER, NULL);
    put(stream.producer, stream.topic, 1, 20, 0);
    put(stream.producer, stream.topic, 2, 30, 0);
    put(stream.producer, stream.second, 1, 40, 0);
    run_to(run, 100);
    for (int i = 0; i < 20; i++) /* nothing comes twice */
        assert_true(run_step(run) >= 0);
    assert_int_equal(run->samples, 100);
    assert_int_equal(position(run, stream.topic, 2)->trained, 30);
    assert_int_equal(position(run, stream.second, 1)->trained, 40);
    run_kill(run);
    put(stream.producer, stream.topic, 2, 5, 0);
    run_whole(run);
    assert_int_equal(run->samples, 105);
}

FR_CASE(a_time_is_where_a_run_begins_and_ends)
{
    stream_new(3);
    int64_t now = fr_wall_ms(fr_clock_system()), t0 = now - 3600000;
    put_at(stream.producer, stream.topic, 0, 100, t0);
    /* all older; the third partition is empty */
    put_at(stream.producer, stream.topic, 1, 10, t0 - 1000);
    struct run *run = run_new(", batch_size: 16");
    run->conf->ingest.start = FR_START_TIME;
    run->conf->ingest.start_ms = t0 + 20;
    run->until_ms = t0 + 50;
    run_whole(run);
    assert_int_equal(run->samples, 30);
    assert_int_equal(position(run, stream.topic, 0)->offset, 50);
    assert_int_equal(position(run, stream.topic, 1)->offset, 10);
    run_kill(run);
    run->until_ms = now + 3600000; /* no record so late: the end of the log */
    run_whole(run);
    assert_int_equal(run->samples, 80);
}

/* ---- losses: stop, earliest and latest on one and the same log ---- */

static struct run *by_policy[3]; /* FR_ON_LOSS_STOP, _EARLIEST, _LATEST */

static void trained_to_20(void)
{
    static const char *const options[] = {", batch_size: 5", ", batch_size: 5, on_loss: earliest",
                                          ", batch_size: 5, on_loss: latest"};
    stream_new(1);
    put(stream.producer, stream.topic, 0, 20, 0);
    for (int i = 0; i < 3; i++) {
        by_policy[i] = run_new(options[i]);
        run_whole(by_policy[i]);
        assert_int_equal(by_policy[i]->samples, 20);
        run_kill(by_policy[i]);
    }
}

static void goes_on(struct run *run, uint64_t samples, uint64_t lost)
{
    run_whole(run);
    assert_int_equal(run->samples, 20 + samples);
    assert_int_equal(run->positions.partitions[0].lost, lost);
}

FR_CASE(deleted_records_are_lost_by_policy)
{
    trained_to_20();
    put(stream.producer, stream.topic, 0, 30, 100);
    delete_before(stream.producer, stream.topic, 0, 27);
    assert_int_equal(run_start(by_policy[0], true), FR_E_LOST);
    assert_non_null(strstr(by_policy[0]->err.text, "7 records were deleted before they were read (retention)"));
    assert_non_null(strstr(by_policy[0]->err.text, "ingest.on_loss: earliest or latest"));
    goes_on(by_policy[1], 23, 7);
    goes_on(by_policy[2], 0, 30);
}

static void make_anew(int records)
{
    delete_topic(stream.producer, stream.topic);
    create(stream.producer, stream.topic, 1, NULL);
    rd_kafka_destroy(stream.producer);
    stream.producer = client(RD_KAFKA_PRODUCER, NULL);
    put(stream.producer, stream.topic, 0, records, 500);
}

FR_CASE(a_topic_created_again_is_read_by_policy)
{
    for (int longer = 0; longer < 2; longer++) {
        uint64_t records = longer ? 30 : 10;
        trained_to_20();
        make_anew((int)records);
        assert_int_equal(run_start(by_policy[0], true), longer ? FR_E_MISMATCH : FR_E_LOST);
        assert_non_null(
            strstr(by_policy[0]->err.text, longer ? "is not the one that was trained" : "missing at its end"));
        assert_non_null(strstr(by_policy[0]->err.text, "ingest.on_loss: earliest or latest"));
        assert_non_null(strstr(by_policy[0]->err.text, "another state_dir"));
        goes_on(by_policy[1], records, 0);
        goes_on(by_policy[2], 0, records);
        drop(NULL);
    }
}

FR_CASE(a_topic_created_again_while_running_is_read_under_earliest)
{
    stream_new(1);
    put(stream.producer, stream.topic, 0, 20, 0);
    struct run *run = run_new(", batch_wait: 5ms, on_loss: earliest, kafka: "
                              "{topic.metadata.refresh.interval.ms: 500, "
                              "topic.metadata.propagation.max.ms: 500}");
    assert_int_equal(run_start(run, false), FR_OK);
    run_to(run, 20);
    make_anew(10);
    run_to(run, 30);
    assert_int_equal(run->positions.partitions[0].offset, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KAFKA_CASE(all_topics_are_read_resumed_and_committed),
        KAFKA_CASE(lockstep_over_two_topics_is_the_same_whenever_it_is_killed),
        KAFKA_CASE(partitions_added_while_running_are_read_whole),
        KAFKA_CASE(a_time_is_where_a_run_begins_and_ends),
        KAFKA_CASE(deleted_records_are_lost_by_policy),
        KAFKA_CASE(a_topic_created_again_is_read_by_policy),
        KAFKA_CASE(a_topic_created_again_while_running_is_read_under_earliest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
