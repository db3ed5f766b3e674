/* A clock that is wrong, this host's or a producer's, and what is held until it shows which. */
#include "fixture.h"
#include "status_of.h"

#define HOUR 3600000LL
#define DAY (24 * HOUR)

/* n records of one sample whose event time and Kafka timestamp are this. */
static void append_times(struct service *s, uint32_t partition, uint32_t n, int64_t t_ms, int64_t kafka_ms)
{
    struct log_partition *p = &s->log.partitions[partition];
    for (uint32_t i = 0; i < n; i++) {
        struct fr_buffer text = {0};
        append(&s->log, partition, 0);
        struct log_record *record = &p->records[p->n - 1];
        fr_buffer_printf(&text, "{\"t\":%lld,\"f\":{\"user_id\":1},\"y\":{\"click\":1}}", (long long)t_ms);
        fr_put_u8(&text, 0);
        free(record->value);
        record->value = (char *)text.data;
        record->timestamp_ms = kafka_ms;
    }
}

static void append_now(struct service *s, uint32_t partition, uint32_t n, int64_t true_ms)
{
    append_times(s, partition, n, true_ms, true_ms);
}

/* Steps with the clock moving on, a tenth of a second each. */
static void pass(struct service *s, int seconds)
{
    for (int i = 0; i < 10 * seconds; i++) {
        assert_true(service_step(s, RING) >= 0);
        fr_clock_fake_advance_ms(&s->clock, 100);
    }
    service_run(s);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
}

static uint64_t trained(const struct service *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->positions.count; i++)
        n += s->positions.partitions[i].trained;
    return n;
}

static uint64_t lettered(const struct service *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->positions.count; i++)
        n += s->positions.partitions[i].dead_lettered;
    return n;
}

static struct service *clock_service(uint32_t n_partitions)
{
    struct service *s = service_new(", batch_size: 16, batch_wait: 20ms", n_partitions);
    s->dead.forget = true;
    return s;
}

/* ---- this host's clock is behind ---- */

FR_CASE(a_clock_set_back_pauses_reading_and_nothing_is_refused)
{
    struct service *s = clock_service(2);
    append_now(s, 0, 200, s->clock.wall_ms);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    assert_int_equal(trained(s), 200);
    int64_t true_ms = s->clock.wall_ms;
    s->clock.wall_ms -= 3 * HOUR;
    append_now(s, 0, 1500, true_ms);
    append_now(s, 1, 1500, true_ms);
    pass(s, 5);
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.pause, FR_INGEST_PAUSED_CLOCK);
    if (!strstr(status.problem, "is 3 h behind what it showed before and the records' event times"))
        fail_msg("%s", status.problem);
    assert_int_equal(trained(s), 200);
    assert_int_equal(s->positions.partitions[0].delivered, 200);
    assert_int_equal(s->dead.made, 0);
    /* By itself, when the clock is right again. */
    s->clock.wall_ms += 3 * HOUR;
    pass(s, 1);
    status = status_of(s);
    assert_int_equal(status.pause, FR_INGEST_READS);
    assert_string_equal(status.problem, "");
    assert_int_equal(status.future_clock, 0);
    assert_int_equal(trained(s), 3200);
    assert_int_equal(lettered(s), 0);
}

FR_CASE(a_start_under_a_clock_behind_the_last_epoch_pauses)
{
    struct service *s = clock_service(1);
    s->epoch_wall_ms = s->clock.wall_ms;
    s->clock.wall_ms -= 3 * HOUR;
    append_now(s, 0, 20, s->epoch_wall_ms + 1000);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.pause, FR_INGEST_PAUSED_CLOCK);
    assert_non_null(strstr(status.problem, "3 h behind what it showed at the last epoch"));
    s->clock.wall_ms += 3 * HOUR;
    pass(s, 1);
    assert_int_equal(trained(s), 20);
    assert_int_equal(s->dead.made, 0);
}

FR_CASE(the_brokers_clock_and_the_record_outvote_this_hosts)
{
    for (int of_broker = 0; of_broker < 2; of_broker++) {
        struct service *s = clock_service(1);
        int64_t true_ms = s->clock.wall_ms + 3 * HOUR;
        s->log.of_broker = of_broker;
        append_now(s, 0, 4, s->clock.wall_ms); /* a backlog: good */
        append_times(s, 0, 4, true_ms - 50, true_ms);
        assert_int_equal(service_start(s, false), FR_OK);
        pass(s, 1);
        assert_int_equal(status_of(s).pause, of_broker ? FR_INGEST_PAUSED_CLOCK : FR_INGEST_READS);
        assert_int_equal(lettered(s), of_broker ? 0 : 4);
        if (of_broker)
            assert_non_null(strstr(status_of(s).problem, "3 h behind the brokers' clock"));
    }
}

FR_CASE(a_bounded_run_under_a_clock_set_back_fails)
{
    struct service *s = clock_service(1);
    s->epoch_wall_ms = s->clock.wall_ms + 3 * HOUR;
    append_now(s, 0, 20, s->epoch_wall_ms);
    assert_int_equal(service_start(s, true), FR_OK);
    enum fr_status status = FR_OK;
    for (int i = 0; i < 100 && status >= 0 && status != FR_EOF; i++)
        status = service_step(s, RING);
    assert_int_equal(status, FR_E_INVALID);
    assert_non_null(strstr(s->err.text, "set the clock right (NTP) and run it again; no position moved"));
    assert_null(strstr(s->err.text, "by itself"));
    assert_int_equal(s->dead.made, 0);
}

FR_CASE(a_bounded_run_in_which_no_clock_is_known_to_be_right_does_not_wait)
{
    struct service *s = clock_service(1);
    append_now(s, 0, 20, s->clock.wall_ms + 2 * HOUR);
    assert_int_equal(service_start(s, true), FR_OK);
    enum fr_status status = FR_OK;
    for (int i = 0; i < 100 && status >= 0 && status != FR_EOF; i++)
        status = service_step(s, RING);
    assert_int_equal(status, FR_E_INVALID);
    assert_non_null(
        strstr(s->err.text, "host's right (NTP) and run it again; ingest.malformed_max: 1 would pass over"));
    assert_null(strstr(s->err.text, "by itself"));
}

/* ---- producers' clocks are ahead ---- */

FR_CASE(one_producer_of_the_future_is_dead_lettered_and_the_stream_continues)
{
    struct service *s = clock_service(2);
    for (int i = 0; i < 1500; i++) {
        append_now(s, 0, 1, s->clock.wall_ms);
        append_now(s, 1, 1, s->clock.wall_ms + 2 * HOUR);
    }
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.pause, FR_INGEST_READS);
    assert_non_null(strstr(status.problem, "some producers' clocks are ahead; find them"));
    assert_int_equal(status.future_clock, 1500);
    assert_int_equal(s->positions.partitions[0].trained, 1500);
    assert_int_equal(s->positions.partitions[1].dead_lettered, 1500);
}

FR_CASE(a_burst_of_one_producer_is_decided_by_the_good_record_after_it)
{
    struct service *s = clock_service(1);
    append_now(s, 0, 20, s->clock.wall_ms);
    append_now(s, 0, 3000, s->clock.wall_ms + 2 * HOUR);
    append_now(s, 0, 20, s->clock.wall_ms);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 3);
    assert_int_equal(status_of(s).pause, FR_INGEST_READS);
    assert_int_equal(trained(s), 40);
    assert_int_equal(lettered(s), 3000);
    assert_int_equal(status_of(s).future_clock, 3000);
}

FR_CASE(when_all_are_of_the_future_reading_pauses_until_the_clock_agrees)
{
    struct service *s = clock_service(1);
    append_now(s, 0, 20, s->clock.wall_ms);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    append_now(s, 0, 3000, s->clock.wall_ms + 2 * HOUR);
    pass(s, 3);
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.pause, FR_INGEST_PAUSED_CLOCK);
    assert_non_null(strstr(status.problem, "nothing else says which clock is wrong"));
    uint64_t before = lettered(s);
    assert_true(before < 10);
    fr_clock_fake_advance_ms(&s->clock, HOUR);
    pass(s, 1);
    assert_int_equal(status_of(s).pause, FR_INGEST_READS);
    assert_int_equal(lettered(s), before);
    assert_int_equal(trained(s) + before, 3020);
}

FR_CASE(a_start_whose_records_all_are_of_the_future_pauses)
{
    struct service *s = clock_service(1);
    append_now(s, 0, 1200, s->clock.wall_ms + 2 * HOUR);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    assert_int_equal(status_of(s).pause, FR_INGEST_PAUSED_CLOCK);
    assert_non_null(strstr(status_of(s).problem, "all 1000 records since the start lie"));
    assert_int_equal(s->n_batches, 0);
    /* The operator passes over them. */
    service_kill(s);
    s->conf->ingest.malformed_max = 1;
    append_now(s, 0, 5, s->clock.wall_ms);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    assert_int_equal(lettered(s), 1200);
    assert_int_equal(trained(s), 5);
}

FR_CASE(event_times_ahead_of_good_timestamps_pause_and_the_producers_are_named)
{
    struct service *s = clock_service(1);
    s->log.of_broker = true;
    append_times(s, 0, 1200, s->clock.wall_ms + 2 * HOUR, s->clock.wall_ms);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.pause, FR_INGEST_PAUSED_RECORDS);
    if (!strstr(status.problem, "the brokers' clock and this host's agree"))
        fail_msg("%s", status.problem);
    assert_int_equal(s->dead.made, 0);
}

FR_CASE(a_clock_that_was_ahead_and_was_set_right_is_believed)
{
    struct service *s = clock_service(1);
    s->clock.wall_ms += 2 * DAY;
    append_now(s, 0, 20, s->clock.wall_ms - 2 * DAY);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    s->clock.wall_ms -= 2 * DAY;
    append_now(s, 0, 20, s->clock.wall_ms);
    pass(s, 1);
    append_now(s, 0, 1, s->clock.wall_ms + DAY);
    append_now(s, 0, 20, s->clock.wall_ms);
    pass(s, 1);
    assert_int_equal(status_of(s).pause, FR_INGEST_READS);
    assert_int_equal(trained(s), 60);
    assert_int_equal(lettered(s), 1);
}

/* ---- what is held ---- */

FR_CASE(a_stream_that_turns_malformed_pauses_before_it_is_read_away)
{
    struct service *s = clock_service(2);
    append_now(s, 0, 20, s->clock.wall_ms);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    for (int i = 0; i < 3000; i++)
        append(&s->log, (uint32_t)i % 2, -1);
    pass(s, 3);
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.pause, FR_INGEST_PAUSED_RECORDS);
    if (!strstr(status.problem, "all of the last 3000 records are malformed") ||
        !strstr(status.problem, "a sample is a map with `f`, `y` and `t`, see docs/formats/samples.md"))
        fail_msg("%s", status.problem);
    assert_int_equal(lettered(s), 9);
    assert_int_equal(s->dead.made, 9);
    assert_int_equal(s->positions.partitions[0].delivered + s->positions.partitions[1].delivered, 29);
}

FR_CASE(a_slow_stream_of_malformed_records_pauses_within_a_thousand)
{
    struct service *s = clock_service(1);
    append_now(s, 0, 20, s->clock.wall_ms);
    assert_int_equal(service_start(s, false), FR_OK);
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < 50; k++)
            append(&s->log, 0, -1);
        pass(s, 1);
    }
    assert_int_equal(status_of(s).pause, FR_INGEST_PAUSED_RECORDS);
    assert_true(lettered(s) >= 900 && lettered(s) < 1000);
}

FR_CASE(held_records_and_markers_after_them_take_effect_in_their_order)
{
    struct service *s = clock_service(1);
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, -1);
    skip_offsets(&s->log, 0, 3);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    assert_int_equal(s->n_batches, 0);
    append(&s->log, 0, 2);
    append(&s->log, 0, -1);
    pass(s, 1);
    assert_int_equal(s->positions.partitions[0].offset, 10);
    assert_int_equal(lettered(s), 6);
    assert_int_equal(trained(s), 2);
}

FR_CASE(held_records_of_a_partition_that_breaks_are_read_again)
{
    struct service *s = clock_service(2);
    for (int i = 0; i < 5; i++)
        append(&s->log, (uint32_t)i % 2, -1);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 1);
    s->log.partitions[0].gone = true;
    pass(s, 1);
    s->log.partitions[0].gone = false;
    pass(s, 20);
    append(&s->log, 0, 1);
    pass(s, 1);
    assert_int_equal(s->positions.partitions[0].delivered, 4);
    assert_int_equal(s->positions.partitions[1].delivered, 2);
    assert_int_equal(s->dead.made, 5);
    assert_int_equal(status_of(s).dropped_duplicates, 0);
}

FR_CASE(held_records_at_the_end_of_a_bounded_run_take_effect)
{
    struct service *s = clock_service(2);
    append_now(s, 0, 20, s->clock.wall_ms);
    for (int i = 0; i < 40; i++)
        append(&s->log, 1, -1);
    for (int i = 0; i < 40; i++)
        append(&s->log, 0, -1);
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_true(s->end_of_stream);
    assert_int_equal(lettered(s), 80);
    assert_int_equal(trained(s), 20);
    assert_int_equal(s->positions.partitions[0].offset, 60);
}

/* ---- labels -1 and 1 ---- */

static void append_label(struct service *s, int label)
{
    struct log_partition *p = &s->log.partitions[0];
    char text[128];
    append(&s->log, 0, 0);
    snprintf(text, sizeof(text), "{\"f\":{\"user_id\":1},\"y\":{\"click\":%d}}", label);
    free(p->records[p->n - 1].value);
    p->records[p->n - 1].value = fr_strdup(text);
}

FR_CASE(labels_of_minus_one_and_one_pause_a_start)
{
    for (int until_end = 0; until_end < 2; until_end++) {
        struct service *s = clock_service(1);
        for (int i = 0; i < 200; i++)
            append_label(s, i % 3 == 0 ? 1 : -1);
        assert_int_equal(service_start(s, until_end), FR_OK);
        enum fr_status status = FR_OK;
        for (int i = 0; i < 30 && status >= 0; i++) {
            status = service_step(s, RING);
            fr_clock_fake_advance_ms(&s->clock, 100);
        }
        assert_int_equal(status, until_end ? FR_E_INVALID : FR_AGAIN);
        struct fr_ingest_status now = status_of(s);
        assert_int_equal(now.pause, FR_INGEST_PAUSED_RECORDS);
        assert_non_null(strstr(now.problem, "67 of 100 records are malformed for a label of -1"));
        assert_non_null(strstr(now.problem, "labels -1/1: map them to 0/1"));
        assert_int_equal(s->dead.made, 0);
        assert_true(trained(s) <= 1); /* the one before the first -1 */
    }
}

FR_CASE(labels_of_minus_one_end_a_lockstep_run)
{
    struct service *s = service_new(", batch_size: 16, lockstep: {records: 8}", 1);
    s->dead.forget = true;
    for (int i = 0; i < 200; i++)
        append_label(s, i % 3 == 0 ? 1 : -1);
    assert_int_equal(service_start(s, true), FR_OK);
    enum fr_status status = FR_OK;
    for (int i = 0; i < 100 && status >= 0 && status != FR_EOF; i++)
        status = service_step(s, RING);
    assert_int_equal(status, FR_E_INVALID);
    assert_non_null(strstr(s->err.text, "labels -1/1: map them to 0/1"));
}

FR_CASE(a_few_labels_of_minus_one_are_dead_letters)
{
    struct service *s = clock_service(1);
    for (int i = 0; i < 300; i++)
        append_label(s, i % 15 == 3 ? -1 : i % 2);
    assert_int_equal(service_start(s, false), FR_OK);
    pass(s, 3);
    assert_int_equal(status_of(s).pause, FR_INGEST_READS);
    assert_int_equal(lettered(s), 20);
    assert_int_equal(trained(s), 280);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(a_clock_set_back_pauses_reading_and_nothing_is_refused),
        SERVICE_CASE(a_start_under_a_clock_behind_the_last_epoch_pauses),
        SERVICE_CASE(the_brokers_clock_and_the_record_outvote_this_hosts),
        SERVICE_CASE(a_bounded_run_under_a_clock_set_back_fails),
        SERVICE_CASE(a_bounded_run_in_which_no_clock_is_known_to_be_right_does_not_wait),
        SERVICE_CASE(one_producer_of_the_future_is_dead_lettered_and_the_stream_continues),
        SERVICE_CASE(a_burst_of_one_producer_is_decided_by_the_good_record_after_it),
        SERVICE_CASE(when_all_are_of_the_future_reading_pauses_until_the_clock_agrees),
        SERVICE_CASE(a_start_whose_records_all_are_of_the_future_pauses),
        SERVICE_CASE(event_times_ahead_of_good_timestamps_pause_and_the_producers_are_named),
        SERVICE_CASE(a_clock_that_was_ahead_and_was_set_right_is_believed),
        SERVICE_CASE(a_stream_that_turns_malformed_pauses_before_it_is_read_away),
        SERVICE_CASE(a_slow_stream_of_malformed_records_pauses_within_a_thousand),
        SERVICE_CASE(held_records_and_markers_after_them_take_effect_in_their_order),
        SERVICE_CASE(held_records_of_a_partition_that_breaks_are_read_again),
        SERVICE_CASE(held_records_at_the_end_of_a_bounded_run_take_effect),
        SERVICE_CASE(labels_of_minus_one_and_one_pause_a_start),
        SERVICE_CASE(labels_of_minus_one_end_a_lockstep_run),
        SERVICE_CASE(a_few_labels_of_minus_one_are_dead_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
