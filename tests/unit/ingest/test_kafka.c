/* The Kafka source and dead letters against a real broker (kafka_fixture.h); the case that takes
 * the broker down needs the node's directory in FRESHET_KAFKA_DIR as well. */
#include "kafka_fixture.h"

FR_CASE(all_partitions_are_read_to_their_ends_and_resumed)
{
    stream_new(3);
    for (int p = 0; p < 3; p++)
        put(stream.producer, stream.topic, p, 1000 * (p + 1), 10000 * p);
    struct run *run = run_new(", batch_size: 128");
    run_whole(run);
    assert_int_equal(run->samples, 6000);
    assert_string_not_equal(run->positions.cluster_id, "");
    fr_ingest_commit(run->ingest, &run->positions);
    (void)run_step(run);
    run_kill(run);

    assert_int_equal(committed(stream.topic, 2), 3000);

    put(stream.producer, stream.topic, 1, 10, 0);
    run_whole(run);
    assert_int_equal(run->samples, 6010);
}

FR_CASE(lockstep_gives_the_same_order_whenever_it_is_killed)
{
    stream_new(3);
    for (int p = 0; p < 3; p++)
        put(stream.producer, stream.topic, p, 400 * (p + 1), 10000 * p);
    uint64_t order = 0;
    for (uint64_t kill_every = 0; kill_every < 3; kill_every++) {
        struct run *run = run_new(", lockstep: {records: 50, epoch_batches: 4}");
        assert_int_equal(run_start(run, true), FR_OK);
        run_killed_every(run, kill_every);
        assert_int_equal(run->samples, 2400);
        if (kill_every == 0)
            order = run->order;
        assert_true(run->order == order);
    }
}

FR_CASE(an_absent_topic_is_unavailable)
{
    stream_new(1);
    struct run *run = run_new("");
    delete_topic(stream.producer, stream.topic);
    assert_int_equal(run_start(run, false), FR_E_UNAVAILABLE);
    assert_non_null(strstr(run->err.text, "does not exist"));
    create(stream.producer, stream.topic, 1, NULL);
    enum fr_status status = FR_E_UNAVAILABLE;
    FR_UNTIL (status != FR_E_UNAVAILABLE)
        status = fr_ingest_start(run->ingest, &run->err);
    assert_int_equal(status, FR_OK);
    put(stream.producer, stream.topic, 0, 3, 0);
    run_to(run, 3);
}

FR_CASE(a_topic_created_again_is_recognized)
{
    for (int longer = 0; longer < 2; longer++) {
        stream_new(1);
        put(stream.producer, stream.topic, 0, 20, 0);
        struct run *run = run_new("");
        run_whole(run);
        run_kill(run);
        delete_topic(stream.producer, stream.topic);
        create(stream.producer, stream.topic, 1, NULL);
        /* a new one: the old may hold what it knew of the topic */
        rd_kafka_destroy(stream.producer);
        stream.producer = client(RD_KAFKA_PRODUCER, NULL);
        put(stream.producer, stream.topic, 0, longer ? 30 : 10, 0);
        assert_int_equal(run_start(run, false), longer ? FR_E_MISMATCH : FR_E_LOST);
        drop(NULL);
    }
}

FR_CASE(a_topic_created_again_while_running_is_recognized)
{
    stream_new(1);
    put(stream.producer, stream.topic, 0, 20, 0);
    struct run *run =
        run_new(", kafka: {topic.metadata.refresh.interval.ms: 1000, topic.metadata.propagation.max.ms: 1000}");
    assert_int_equal(run_start(run, false), FR_OK);
    run_to(run, 20);
    delete_topic(stream.producer, stream.topic);
    struct fr_ingest_status status = run_to_problem(run, true, 0);
    fr_ingest_status_release(&status);
    create(stream.producer, stream.topic, 1, NULL);
    rd_kafka_destroy(stream.producer);
    stream.producer = client(RD_KAFKA_PRODUCER, NULL);
    put(stream.producer, stream.topic, 0, 30, 0);
    enum fr_status failure = run_to_failure(run);
    assert_true(failure == FR_E_MISMATCH ||
                failure == FR_E_LOST); /* LOST when looked at before the records were there */
    assert_int_equal(run->samples, 20);
}

FR_CASE(records_deleted_under_a_running_service_are_noticed)
{
    stream_new(1);
    put(stream.producer, stream.topic, 0, 20, 0);
    struct run *run = run_new(", batch_size: 5, kafka: {queued.min.messages: 1, queued.max.messages.kbytes: "
                              "1, fetch.message.max.bytes: 1000}");
    assert_int_equal(run_start(run, false), FR_OK);
    run_to(run, 20);
    /* Wholly ahead of the consumer: written while it does not poll and its small queue is full. */
    for (int i = 0; i < 30; i++)
        put(stream.producer, stream.topic, 0, 100, 0);
    delete_before(stream.producer, stream.topic, 0, 3000);
    assert_int_equal(run_to_failure(run), FR_E_LOST);
    assert_true(run->samples < 3000);
}

FR_CASE(a_malformed_record_arrives_as_a_dead_letter)
{
    stream_new(2);
    put(stream.producer, stream.topic, 1, 3, 0);
    assert_int_equal(rd_kafka_producev(stream.producer, RD_KAFKA_V_TOPIC(stream.topic), RD_KAFKA_V_PARTITION(1),
                                       RD_KAFKA_V_KEY("key", 3), RD_KAFKA_V_VALUE("not json", 8),
                                       RD_KAFKA_V_HEADER("trace", "77", 2), RD_KAFKA_V_END),
                     0);
    put(stream.producer, stream.topic, 1, 3, 0);
    struct run *run = run_new(", batch_size: 6");
    run_whole(run);
    assert_int_equal(run->samples, 6);
    assert_int_equal(run->dead_sequence, 1);
    wait_for_letter(run);
    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, NULL);
    rd_kafka_message_t *message = first_message(consumer, stream.dead);
    assert_int_equal(message->len, 8);
    assert_memory_equal(message->payload, "not json", 8);
    assert_int_equal(message->key_len, 3);
    assert_memory_equal(message->key, "key", 3);
    assert_header(message, "trace", "77");
    assert_header(message, "__connect.errors.topic", stream.topic);
    assert_header(message, "__connect.errors.partition", "1");
    assert_header(message, "__connect.errors.offset", "3");
    rd_kafka_headers_t *headers;
    const void *reason;
    size_t size;
    assert_int_equal(rd_kafka_message_headers(message, &headers), 0);
    assert_int_equal(rd_kafka_header_get_last(headers, "__connect.errors.exception.message", &reason, &size), 0);
    assert_true(size > 0);
    rd_kafka_message_destroy(message);
    rd_kafka_destroy(consumer);
}

FR_CASE(a_letter_over_the_topics_size_goes_without_its_value)
{
    stream_new(1);
    create(stream.producer, stream.dead, 1, "2000");
    char value[3001];
    memset(value, 'a', 3000);
    value[3000] = 0;
    put_value(stream.producer, stream.topic, 0, value);
    put(stream.producer, stream.topic, 0, 1, 0);
    struct run *run = run_new("");
    run_whole(run);
    wait_for_letter(run);
    (void)run_step(run);
    struct fr_ingest_status status;
    fr_ingest_get_status(run->ingest, &status);
    assert_int_equal(status.dead_without_value, 1);
    assert_int_equal(status.dead_sent, 1);
    assert_string_equal(status.problem, "");
    fr_ingest_status_release(&status);
    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, NULL);
    rd_kafka_message_t *message = first_message(consumer, stream.dead);
    assert_null(message->payload);
    assert_header(message, "freshet.length", "3000");
    assert_header(message, "freshet.sha256", "556ac82f23f64d2f41b3fb3b9a171791364021aa95c0af6df9e2b5e1d88c8038");
    rd_kafka_message_destroy(message);
    rd_kafka_destroy(consumer);
}

/* A commit returns when its coordinator took it; the partition gets its marker a moment later. */
static void await_stable_end(int64_t wanted)
{
    int64_t low, end = -1;
    FR_UNTIL (end == wanted)
        assert_int_equal(rd_kafka_query_watermark_offsets(stream.producer, stream.topic, 0, &low, &end, PATIENCE_MS),
                         0);
}

FR_CASE(transactions_end_with_markers_and_aborted_records_are_not_read)
{
    stream_new(1);
    rd_kafka_t *writer = client(RD_KAFKA_PRODUCER, (const char *const[]){"transactional.id", stream.topic, NULL});
    assert_null(rd_kafka_init_transactions(writer, PATIENCE_MS));
    for (int commit = 0; commit < 3; commit++) {
        assert_null(rd_kafka_begin_transaction(writer));
        put(writer, stream.topic, 0, 10, 100 * commit);
        assert_null(commit == 1 ? rd_kafka_abort_transaction(writer, PATIENCE_MS)
                                : rd_kafka_commit_transaction(writer, PATIENCE_MS));
    }
    /* An open transaction: its records lie beyond the last stable offset. */
    assert_null(rd_kafka_begin_transaction(writer));
    put(writer, stream.topic, 0, 10, 1000);
    await_stable_end(33);
    struct run *run = run_new(", batch_size: 4");
    assert_int_equal(run_start(run, true), FR_OK);
    run_to(run, 20);
    struct fr_ingest_status status = run_to_problem(run, true, 0);
    assert_non_null(strstr(status.problem, "records from offset 33 to 42 wait for a producer's transaction"));
    fr_ingest_status_release(&status);
    assert_int_equal(run->positions.partitions[0].fingerprint_offset, 31);
    run_kill(run);
    assert_null(rd_kafka_commit_transaction(writer, PATIENCE_MS));
    await_stable_end(44);
    run_whole(run);
    assert_int_equal(run->samples, 30);
    assert_int_equal(run->positions.partitions[0].offset, 44);
    rd_kafka_destroy(writer);
}

static void node(const char *command)
{
    char line[1024];
    snprintf(line, sizeof(line), "%s/tests/kafka/%s %s >/dev/null", FR_SOURCE_DIR, command,
             getenv("FRESHET_KAFKA_DIR"));
    if (system(line) != 0)
        fail_msg("%s", line);
}

FR_CASE(a_broker_restart_is_a_problem_and_then_none)
{
    if (!getenv("FRESHET_KAFKA_DIR"))
        skip();
    stream_new(2);
    put(stream.producer, stream.topic, 0, 10, 0);
    put_value(stream.producer, stream.topic, 1, "not json");
    put(stream.producer, stream.topic, 1, 10, 0);
    struct run *run = run_new(", batch_size: 10, batch_wait: 5ms");
    assert_int_equal(run_start(run, false), FR_OK);
    run_to(run, 20);
    node("stop --keep --kill");
    struct fr_ingest_status status = run_to_problem(run, true, 0);
    assert_false(status.connected);
    print_message("while down: %s\n", status.problem);
    node("start --dir");
    put(stream.producer, stream.topic, 0, 10, 50);
    put_value(stream.producer, stream.topic, 1, "not json either");
    put(stream.producer, stream.topic, 1, 10, 50);
    run_to(run, 40);
    fr_ingest_status_release(&status);
    status = run_to_problem(run, false, 2);
    assert_true(status.connected);
    assert_int_equal(status.dropped_duplicates, 0);
    fr_ingest_status_release(&status);
}

FR_CASE(a_property_of_ours_cannot_be_changed)
{
    snprintf(stream.topic, sizeof(stream.topic), "t");
    char place[] = "c.yaml:7:5";
    const struct fr_conf_property bad[] = {
        {"auto.offset.reset", "latest", place}, {"no.such.property", "1", place}, {"fetch.wait.max.ms", "-5", place}};
    for (size_t i = 0; i < FR_ARRAY_LEN(bad); i++) {
        struct fr_conf *conf = conf_of("");
        struct fr_positions positions = {0};
        struct fr_conf_property property = bad[i];
        conf->ingest.kafka = &property;
        conf->ingest.n_kafka = 1;
        struct fr_ingest_options options = {.conf = conf, .clock = fr_clock_system(), .positions = &positions};
        struct fr_ingest *ingest;
        struct fr_err err;
        assert_int_equal(fr_ingest_new(&options, &ingest, &err), FR_E_INVALID);
        assert_non_null(strstr(err.text, "c.yaml:7:5: ingest.kafka."));
        conf->ingest.kafka = NULL;
        conf->ingest.n_kafka = 0;
        fr_conf_free(conf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KAFKA_CASE(all_partitions_are_read_to_their_ends_and_resumed),
        KAFKA_CASE(lockstep_gives_the_same_order_whenever_it_is_killed),
        KAFKA_CASE(an_absent_topic_is_unavailable),
        KAFKA_CASE(a_topic_created_again_is_recognized),
        KAFKA_CASE(a_topic_created_again_while_running_is_recognized),
        KAFKA_CASE(records_deleted_under_a_running_service_are_noticed),
        KAFKA_CASE(a_malformed_record_arrives_as_a_dead_letter),
        KAFKA_CASE(a_letter_over_the_topics_size_goes_without_its_value),
        KAFKA_CASE(transactions_end_with_markers_and_aborted_records_are_not_read),
        KAFKA_CASE(a_broker_restart_is_a_problem_and_then_none),
        KAFKA_CASE(a_property_of_ours_cannot_be_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
