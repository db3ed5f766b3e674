/* Several topics, partitions added, where reading begins and ends, idle partitions, rights that
 * come and go. */
#include "fixture.h"

/* Partitions a/0, a/1 and b/0. */
static struct service *two_topics(const char *ingest)
{
    struct service *s = service_new(ingest, 3);
    snprintf(s->log.names[0].topic, FR_TOPIC_MAX, "a");
    snprintf(s->log.names[1].topic, FR_TOPIC_MAX, "a");
    snprintf(s->log.names[2].topic, FR_TOPIC_MAX, "b");
    s->log.names[2].partition = 0;
    return s;
}

static const struct fr_partition_position *position(const struct service *s, const char *topic, int32_t partition)
{
    for (uint32_t i = 0; i < s->positions.count; i++)
        if (strcmp(s->positions.partitions[i].topic, topic) == 0 && s->positions.partitions[i].partition == partition)
            return &s->positions.partitions[i];
    fail_msg("no position of %s/%d", topic, (int)partition);
    return NULL;
}

FR_CASE(positions_and_letters_name_their_topic)
{
    struct service *s = two_topics(", batch_size: 4, batch_wait: 20ms");
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t i = 0; i <= p; i++)
            append(&s->log, p, 1);
    append(&s->log, 2, -1);
    append(&s->log, 2, 1);
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_int_equal(position(s, "a", 0)->trained, 1);
    assert_int_equal(position(s, "a", 1)->trained, 2);
    assert_int_equal(position(s, "b", 0)->trained, 4);
    assert_int_equal(position(s, "b", 0)->dead_lettered, 1);
    assert_int_equal(position(s, "b", 0)->offset, 5);
    assert_int_equal(s->dead.n, 1);
    assert_string_equal(s->dead.letters[0].topic, "b");
    assert_int_equal(s->dead.letters[0].partition, 0);
    assert_int_equal(s->dead.letters[0].offset, 3);
}

FR_CASE(lockstep_takes_all_topics_in_order_whenever_it_is_killed)
{
    static const char batches[] = "batch 5: 0 1 3 4 5; 0@2.0 1@1.0 2@2.0\n"
                                  "batch 2: 2 6; 0@3.0 2@3.0\n"
                                  "batch 0 end:;\n";
    for (uint32_t kill_at = 0; kill_at < 3; kill_at++) {
        struct service *s = two_topics(", lockstep: {records: 2, epoch_batches: 4}");
        const uint32_t records[] = {3, 1, 3};
        for (uint32_t p = 0; p < 3; p++)
            for (uint32_t i = 0; i < records[p]; i++)
                append(&s->log, p, 1);
        assert_int_equal(service_start(s, false), FR_OK);
        while (kill_at && s->n_batches < kill_at)
            assert_true(service_step(s, 1) >= 0);
        if (kill_at) {
            service_kill(s);
            append(&s->log, 0, 1); /* beyond the ends that were fixed */
            assert_int_equal(service_start(s, false), FR_OK);
        }
        service_run(s);
        assert_string_equal(written(s), batches);
        assert_string_equal(s->ends, "partitions 3\na 0 3\na 1 1\nb 0 3\n");
        service_free(s);
    }
}

FR_CASE(a_topic_added_to_the_configuration_begins_as_start_says)
{
    struct service *s = two_topics(", batch_size: 1, start: latest");
    s->log.n_partitions = 1; /* a/0 alone */
    assert_int_equal(service_start(s, false), FR_OK);
    append(&s->log, 0, 1);
    service_run(s);
    service_kill(s);
    s->log.n_partitions = 3;
    append(&s->log, 1, 1); /* a partition that a got since: from its first record */
    append(&s->log, 2, 1); /* another topic: from its end */
    assert_int_equal(service_start(s, false), FR_OK);
    append(&s->log, 2, 1);
    service_run(s);
    assert_int_equal(position(s, "a", 1)->trained, 1);
    assert_int_equal(position(s, "b", 0)->trained, 1);
    assert_int_equal(position(s, "b", 0)->offset, 2);
}

FR_CASE(positions_that_would_be_too_many_are_refused)
{
    struct service *s = two_topics("");
    for (int32_t p = 0; p < FR_PARTITIONS_MAX - 2; p++) { /* of a topic that was left */
        uint32_t slot = fr_positions_index(&s->positions, "old", p);
        s->positions.partitions[slot].offset = 0;
    }
    assert_int_equal(service_start(s, false), FR_E_LIMIT);
    assert_non_null(strstr(s->err.text, "another state_dir"));
    service_kill(s);
    s->log.n_partitions = 2;
    assert_int_equal(service_start(s, false), FR_OK);
}

/* ---- partitions added while running ---- */

FR_CASE(an_added_partition_is_read_from_its_first_record)
{
    struct service *s = service_new(", batch_size: 1, start: latest", 1);
    assert_int_equal(service_start(s, false), FR_OK);
    append(&s->log, 0, 1);
    service_run(s);
    s->log.n_partitions = 2;
    append(&s->log, 1, 1);
    append(&s->log, 1, 1);
    fr_clock_fake_advance_ms(&s->clock, 29999);
    service_run(s);
    assert_int_equal(s->positions.count, 1);
    fr_clock_fake_advance_ms(&s->clock, 1);
    service_run(s);
    assert_int_equal(s->positions.partitions[1].trained, 2);
    assert_int_equal(s->positions.partitions[1].delivered, 2);
    service_kill(s);
    append(&s->log, 1, 1);
    service_serve(s);
    assert_int_equal(s->positions.partitions[1].trained, 3);
}

FR_CASE(looking_for_partitions_follows_the_clients_own_interval)
{
    struct service *s = service_new(", batch_size: 1, kafka: {topic.metadata.refresh.interval.ms: 1000}", 1);
    assert_int_equal(service_start(s, false), FR_OK);
    s->log.n_partitions = 2;
    append(&s->log, 1, 1);
    fr_clock_fake_advance_ms(&s->clock, 999);
    service_run(s);
    assert_int_equal(s->n_batches, 0);
    fr_clock_fake_advance_ms(&s->clock, 1);
    service_run(s);
    assert_int_equal(s->n_batches, 1);
}

FR_CASE(an_added_partition_that_is_not_ready_holds_up_itself_only)
{
    struct service *s = service_new(", batch_size: 1", 1);
    assert_int_equal(service_start(s, false), FR_OK);
    s->log.n_partitions = 3;
    s->log.partitions[1].gone = true; /* its leader is not elected yet */
    append(&s->log, 1, 1);
    append(&s->log, 2, 1);
    append(&s->log, 0, 1);
    for (int i = 0; i < 5; i++) {
        fr_clock_fake_advance_ms(&s->clock, 30000);
        service_run(s);
    }
    assert_int_equal(s->n_batches, 2);
    assert_int_equal(s->positions.partitions[2].trained, 1);
    assert_int_equal(s->positions.partitions[1].offset, -1);
    s->log.partitions[1].gone = false;
    fr_clock_fake_advance_ms(&s->clock, 16000);
    service_run(s);
    assert_int_equal(s->n_batches, 3);
    assert_int_equal(s->positions.partitions[1].trained, 1);
}

/* ---- beginnings and ends ---- */

FR_CASE(a_start_time_begins_at_the_first_record_at_or_after_it)
{
    struct service *s = service_new(", batch_size: 1", 3);
    s->conf->ingest.start = FR_START_TIME;
    /* the log's timestamps are T0 + 1, T0 + 2, ... on each partition */
    s->conf->ingest.start_ms = T0 + 3;
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    append(&s->log, 1, 1); /* older only; the third is empty */
    assert_int_equal(service_start(s, false), FR_OK);
    append(&s->log, 1, 1); /* after the start: read, whatever its timestamp */
    service_run(s);
    assert_int_equal(s->positions.partitions[0].trained, 3);
    assert_int_equal(s->positions.partitions[1].trained, 1);
    assert_int_equal(s->positions.partitions[1].offset, 2);
    service_kill(s);
    s->conf->ingest.start_ms = T0; /* there are positions now */
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].trained, 3);
}

FR_CASE(a_run_until_a_time_ends_before_the_first_record_at_or_after_it)
{
    struct service *s = service_new(", batch_size: 1", 3);
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    append(&s->log, 1, 1);
    s->until_ms = T0 + 3;
    assert_int_equal(service_start(s, true), FR_OK);
    append(&s->log, 1, 1); /* beyond the end that the log had at the start */
    service_run(s);
    assert_true(s->end_of_stream);
    assert_string_equal(s->ends, "partitions 3\nsamples 0 2\nsamples 1 1\nsamples 2 0\n");
    assert_int_equal(s->positions.partitions[0].trained, 2);
    assert_int_equal(s->positions.partitions[1].trained, 1);
    service_kill(s);
    free(s->ends); /* another run, to an earlier time: nothing to do */
    s->ends = NULL;
    s->until_ms = T0 + 1;
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_true(s->end_of_stream);
    assert_int_equal(s->positions.partitions[0].trained, 2);
}

FR_CASE(ends_that_were_fixed_by_time_are_kept)
{
    struct service *s = service_new(", lockstep: {records: 1, epoch_batches: 4}", 1);
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    s->until_ms = T0 + 4;
    assert_int_equal(service_start(s, true), FR_OK);
    while (s->n_batches < 1)
        assert_true(service_step(s, 1) >= 0);
    service_kill(s);
    s->until_ms = T0 + 100;
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].trained, 3);
}

/* ---- idle partitions ---- */

FR_CASE(an_idle_partition_delays_neither_batches_nor_lag)
{
    struct service *s = service_new(", batch_size: 2, batch_wait: 20ms", 3);
    append(&s->log, 1, 1); /* the others stay empty */
    assert_int_equal(service_start(s, false), FR_OK);
    append(&s->log, 1, 1);
    service_run(s);
    assert_int_equal(s->n_batches, 1);
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_true(status.at_end);
    assert_int_equal(status.lag_ms, 0);
    fr_ingest_status_release(&status);
    /* An hour later one record comes: the lag is its own, not that of the idle ones. */
    fr_clock_fake_advance_ms(&s->clock, 3600000);
    append(&s->log, 1, 1);
    s->log.partitions[1].records[2].timestamp_ms = fr_wall_ms(&s->clock.clock) - 5;
    s->log.partitions[1].end_reported = true; /* its end is not reported before the next one */
    service_run(s);
    fr_ingest_get_status(s->ingest, &status);
    assert_int_equal(status.lag_ms, 5);
    fr_ingest_status_release(&status);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_int_equal(s->n_batches, 2);
}

FR_CASE(an_idle_partition_does_not_delay_the_end)
{
    for (int lockstep = 0; lockstep < 2; lockstep++) {
        struct service *s = service_new(lockstep ? ", lockstep: {records: 2, epoch_batches: 4}" : ", batch_size: 2", 3);
        append(&s->log, 1, 1);
        skip_offsets(&s->log, 2, 3); /* markers only: no record will ever come from it */
        assert_int_equal(service_start(s, true), FR_OK);
        service_run(s);
        assert_true(s->end_of_stream);
        assert_int_equal(s->positions.partitions[1].trained, 1);
        assert_int_equal(s->positions.partitions[2].offset, 3);
        service_free(s);
    }
}

/* ---- rights ---- */

FR_CASE(access_denied_while_running_is_waited_out)
{
    struct service *s = service_new(", batch_size: 1", 1);
    append(&s->log, 0, 1);
    service_serve(s);
    s->log.partitions[0].denied = true;
    append(&s->log, 0, 1);
    struct fr_ingest_status status;
    service_run(s);
    fr_ingest_get_status(s->ingest, &status);
    assert_string_equal(status.problem, "samples/0: no right to read");
    fr_ingest_status_release(&status);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    fr_ingest_get_status(s->ingest, &status);
    assert_string_equal(status.problem, "samples/0: no offsets: no right to describe (1 of 1 partitions wait)");
    fr_ingest_status_release(&status);
    s->log.partitions[0].denied = false;
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->n_batches, 2);
    fr_ingest_get_status(s->ingest, &status);
    assert_string_equal(status.problem, "");
    fr_ingest_status_release(&status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(positions_and_letters_name_their_topic),
        SERVICE_CASE(lockstep_takes_all_topics_in_order_whenever_it_is_killed),
        SERVICE_CASE(a_topic_added_to_the_configuration_begins_as_start_says),
        SERVICE_CASE(positions_that_would_be_too_many_are_refused),
        SERVICE_CASE(an_added_partition_is_read_from_its_first_record),
        SERVICE_CASE(looking_for_partitions_follows_the_clients_own_interval),
        SERVICE_CASE(an_added_partition_that_is_not_ready_holds_up_itself_only),
        SERVICE_CASE(a_start_time_begins_at_the_first_record_at_or_after_it),
        SERVICE_CASE(a_run_until_a_time_ends_before_the_first_record_at_or_after_it),
        SERVICE_CASE(ends_that_were_fixed_by_time_are_kept),
        SERVICE_CASE(an_idle_partition_delays_neither_batches_nor_lag),
        SERVICE_CASE(an_idle_partition_does_not_delay_the_end),
        SERVICE_CASE(access_denied_while_running_is_waited_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
