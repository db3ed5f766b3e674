/* Live assembly: when batches close, how records are split, what their positions say, dead letters,
 * back-pressure. */
#include "fixture.h"

FR_CASE(batches_close_at_exactly_batch_size_samples)
{
    struct service *s = service_new(", batch_size: 128", 1);
    for (int i = 0; i < 100; i++)
        append(&s->log, 0, 5);
    service_serve(s);
    assert_int_equal(s->n_batches, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(s->sizes[i], 128);
    /* 384 samples = 76 records and 4 items of the next. */
    assert_int_equal(s->last[0].offset, 76);
    assert_int_equal(s->last[0].item, 4);
    assert_int_equal(s->last[0].fingerprint.offset, 75);
    assert_int_equal(s->positions.partitions[0].decoded, 76);
    assert_int_equal(s->positions.partitions[0].samples, 384);
}

FR_CASE(a_batch_closes_batch_wait_after_its_first_record)
{
    struct service *s = service_new(", batch_size: 128, batch_wait: 20ms", 1);
    append(&s->log, 0, 3);
    service_serve(s);
    assert_int_equal(s->n_batches, 0);
    fr_clock_fake_advance_ms(&s->clock, 19);
    append(&s->log, 0, 2);
    service_run(s);
    assert_int_equal(s->n_batches, 0);
    fr_clock_fake_advance_ms(&s->clock, 1);
    service_run(s);
    assert_int_equal(s->n_batches, 1);
    assert_string_equal(written(s), "batch 5: 0 1 2 3 4; 0@2.0\n");
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->n_batches, 1); /* nothing came: no batch */
}

FR_CASE(one_record_fills_several_batches)
{
    struct service *s = service_new(", batch_size: 4", 1);
    append(&s->log, 0, 10);
    append(&s->log, 0, 2);
    service_serve(s);
    assert_string_equal(written(s), "batch 4: 0 1 2 3; 0@0.4\nbatch 4: 4 5 6 7; 0@0.8\nbatch 4: 8 9 10 11; 0@2.0\n");
    assert_int_equal(s->positions.partitions[0].delivered, 2);
}

FR_CASE(samples_know_their_place_whatever_batch_they_are_in)
{
    enum { SAMPLES = 17 };
    struct service *whole = service_new(", batch_size: 128, batch_wait: 0ms", 2);
    struct service *split = service_new(", batch_size: 4", 2);
    for (int twice = 0; twice < 2; twice++) {
        struct service *s = twice ? split : whole;
        append(&s->log, 0, 10);
        append(&s->log, 1, 2);
        append(&s->log, 0, 5);
    }
    service_serve(whole);
    assert_int_equal(service_start(split, false), FR_OK);
    while (split->n_batches < 1)
        assert_true(service_step(split, 1) >= 0);
    service_kill(split); /* and on from inside the record */
    service_serve(split);
    fr_clock_fake_advance_ms(&split->clock, 1000);
    service_run(split);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        assert_true(whole->origins[i] != 0);
        assert_true(whole->origins[i] == split->origins[i]);
        for (uint32_t j = 0; j < i; j++)
            assert_true(whole->origins[i] != whole->origins[j]);
    }
}

FR_CASE(a_restart_inside_a_record_skips_the_items_in_effect)
{
    struct service *s = service_new(", batch_size: 4", 1);
    append(&s->log, 0, 10);
    append(&s->log, 0, 2);
    assert_int_equal(service_start(s, false), FR_OK);
    while (s->n_batches < 1)
        assert_true(service_step(s, 1) >= 0);
    service_kill(s);
    service_serve(s);
    assert_string_equal(written(s), "batch 4: 0 1 2 3; 0@0.4\nbatch 4: 4 5 6 7; 0@0.8\nbatch 4: 8 9 10 11; 0@2.0\n");
    assert_int_equal(s->positions.partitions[0].delivered, 2);
    assert_int_equal(s->positions.partitions[0].samples, 12);
}

FR_CASE(killed_anywhere_every_sample_arrives_once)
{
    for (uint32_t kill_after = 1; kill_after < 12; kill_after++) {
        struct service *s = service_new(", batch_size: 7", 3);
        for (int i = 0; i < 40; i++)
            append(&s->log, (uint32_t)i % 3, i % 11 == 5 ? -1 : i % 6);
        uint64_t samples = s->log.made;
        assert_int_equal(service_start(s, true), FR_OK);
        for (uint32_t killed = 0; !s->end_of_stream;) {
            uint32_t before = s->n_batches;
            assert_true(service_step(s, 1) >= 0);
            if (s->n_batches > before && s->n_batches % kill_after == 0 && killed++ < 20 && !s->end_of_stream) {
                service_kill(s);
                assert_int_equal(service_start(s, true), FR_OK);
            }
        }
        uint64_t trained = 0, delivered = 0, dead = 0;
        for (uint32_t p = 0; p < 3; p++) {
            trained += s->positions.partitions[p].trained;
            delivered += s->positions.partitions[p].delivered;
            dead += s->positions.partitions[p].dead_lettered;
        }
        assert_int_equal(trained, samples);
        assert_int_equal(delivered, 40);
        assert_int_equal(dead, 4);
        /* Each event time exactly once. */
        for (uint64_t t = 0; t < samples; t++) {
            char word[32];
            snprintf(word, sizeof(word), " %llu", (unsigned long long)t);
            int seen = 0;
            for (const char *at = written(s); (at = strstr(at, word)); at++)
                /* not of "batch N" */
                seen += (at[strlen(word)] == ' ' && at[-1] != 'h') || at[strlen(word)] == ';';
            if (seen != 1)
                fail_msg("sample %llu: %d times in\n%s", (unsigned long long)t, seen, written(s));
        }
        service_free(s);
    }
}

FR_CASE(a_malformed_record_goes_to_the_dead_letters_and_is_counted)
{
    struct service *s = service_new(", batch_size: 4", 1);
    append(&s->log, 0, 2);
    append(&s->log, 0, -1);
    append(&s->log, 0, 2);
    service_serve(s);
    assert_string_equal(written(s), "batch 4: 0 1 2 3; 0@3.0\n");
    assert_int_equal(s->last[0].dead_lettered, 1);
    assert_int_equal(s->last[0].decoded, 2);
    assert_int_equal(s->dead.n, 1);
    assert_int_equal(s->dead.letters[0].offset, 1);
    assert_string_equal(s->dead.letters[0].value, "{\"broken\":2}");
    assert_int_equal(s->dead.letters[0].n_headers, 1);
    assert_string_equal(s->dead.letters[0].reason, "$: f is missing");
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_int_equal(status.malformed, 1);
    assert_int_equal(status.records, 3);
    fr_ingest_status_release(&status);
}

FR_CASE(a_sample_from_the_far_future_is_counted_apart)
{
    struct service *s = service_new(", batch_size: 1, future_max: 1s", 1);
    append(&s->log, 0, 1);
    s->log.partitions[0].records[0].timestamp_ms = T0 - 5000;
    append(&s->log, 0, 1);
    service_serve(s);
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_int_equal(status.future_timestamp, 1);
    assert_int_equal(status.future_clock, 0);
    assert_int_equal(status.malformed, 0);
    assert_int_equal(status.samples, 1);
    fr_ingest_status_release(&status);
}

/* One sample with event time and Kafka timestamp so far after T0. */
static void append_at(struct fake_log *log, int64_t after_ms)
{
    struct fr_buffer text = {0};
    append(log, 0, 0);
    struct log_record *record = &log->partitions[0].records[log->partitions[0].n - 1];
    fr_buffer_printf(&text, "{\"t\":%lld,\"f\":{\"user_id\":1},\"y\":{\"click\":1}}", T0 + (long long)after_ms);
    fr_put_u8(&text, 0);
    free(record->value);
    record->value = (char *)text.data;
    record->timestamp_ms = T0 + after_ms;
}

FR_CASE(a_record_of_a_clock_that_is_ahead_is_a_dead_letter)
{
    struct service *s = service_new(", batch_size: 1", 1);
    append_at(&s->log, -5000);
    append_at(&s->log, 365LL * 86400000);
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_int_equal(status.future_clock, 1);
    assert_int_equal(status.future_timestamp, 0);
    assert_int_equal(status.malformed, 0);
    assert_int_equal(status.samples, 1);
    fr_ingest_status_release(&status);
    assert_int_equal(s->dead.n, 1);
    assert_int_equal(s->dead.letters[0].offset, 1);
    assert_non_null(strstr(s->dead.letters[0].reason, "after the clock of the host that read it"));
    assert_int_equal(s->positions.partitions[0].dead_lettered, 1);
    assert_int_equal(s->positions.partitions[0].trained, 1);
    assert_true(fr_positions_balanced(&s->positions, &s->err));
}

FR_CASE(what_the_clock_refused_before_a_crash_may_be_accepted_after_and_the_ledger_balances)
{
    struct service *s = service_new(", batch_size: 1", 1);
    append_at(&s->log, 0);
    append_at(&s->log, 2 * 3600000);
    service_serve(s);
    assert_int_equal(s->dead.n, 1);
    /* nothing was durable; the record's time has come when it is read again */
    service_kill(s);
    fr_positions_release(&s->positions);
    fr_clock_fake_advance_ms(&s->clock, 3600000);
    service_serve(s);
    assert_int_equal(s->dead.n, 1);
    assert_int_equal(s->positions.partitions[0].delivered, 2);
    assert_int_equal(s->positions.partitions[0].dead_lettered, 0);
    assert_int_equal(s->positions.partitions[0].trained, 2);
    assert_true(fr_positions_balanced(&s->positions, &s->err));
}

FR_CASE(a_record_partly_in_effect_stays_accepted_under_a_clock_set_back)
{
    struct service *s = service_new(", batch_size: 2", 1);
    append(&s->log, 0, 3);
    assert_int_equal(service_start(s, false), FR_OK);
    assert_true(service_step(s, 1) >= 0);
    assert_int_equal(s->positions.partitions[0].item, 2);
    service_kill(s);
    s->clock.wall_ms -= 7200000;
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_int_equal(s->dead.n, 0);
    assert_int_equal(s->positions.partitions[0].trained, 3);
    assert_int_equal(s->positions.partitions[0].decoded, 1);
}

FR_CASE(a_batch_names_the_dead_letters_its_positions_depend_on)
{
    struct service *s = service_new(", batch_size: 2", 1);
    const int sizes[] = {1, -1, 1, 1, 1, -1, -1, 1, 1};
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes); i++)
        append(&s->log, 0, sizes[i]);
    assert_int_equal(service_start(s, false), FR_OK);
    assert_int_equal(fr_ingest_step(s->ingest, 0, &s->err), FR_OK);
    const uint64_t expected[] = {1, 1, 3};
    for (int i = 0; i < 3; i++) {
        void *batch;
        assert_int_equal(fr_ring_pop(s->full, &batch, 0), FR_OK);
        assert_int_equal(((struct fr_batch *)batch)->dead_sequence, expected[i]);
        fr_batch_free(batch);
    }
    s->dead.acknowledged = 2;
    assert_int_equal(fr_ingest_dead_acknowledged(s->ingest), 2);
}

FR_CASE(a_full_sink_pauses_reading_and_says_so)
{
    struct service *s = service_new(", batch_size: 2, batch_wait: 20ms", 1);
    append(&s->log, 0, 1);
    append(&s->log, 0, -1);
    append(&s->log, 0, 1);
    s->dead.full = true;
    service_serve(s);
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_string_equal(status.problem, "letters wait");
    assert_int_equal(status.records, 2); /* the third was not polled */
    fr_ingest_status_release(&status);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_string_equal(written(s), "batch 1: 0; 0@1.0\n"); /* the timer continues */
    s->dead.full = false;
    service_run(s);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_string_equal(written(s), "batch 1: 0; 0@1.0\nbatch 1: 1; 0@3.0\n");
    fr_ingest_get_status(s->ingest, &status);
    assert_string_equal(status.problem, "");
    fr_ingest_status_release(&status);
}

FR_CASE(a_full_ring_stops_polling_and_nothing_is_lost)
{
    struct service *s = service_new(", batch_size: 2", 1);
    for (int i = 0; i < 50; i++)
        append(&s->log, 0, 1);
    assert_int_equal(service_start(s, false), FR_OK);
    for (int i = 0; i < 10; i++)
        assert_true(service_step(s, 0) >= 0);
    assert_true(s->log.partitions[0].next <= 2 * (RING + 1));
    assert_int_equal(service_step(s, 0), FR_AGAIN);
    service_run(s);
    assert_int_equal(s->n_batches, 25);
    assert_int_equal(s->last[0].offset, 50);
}

FR_CASE(a_stream_that_is_only_served_is_not_read)
{
    struct service *s = service_new(", batch_size: 2", 1);
    for (int i = 0; i < 9; i++)
        append(&s->log, 0, 1);
    assert_int_equal(service_start(s, false), FR_OK);
    assert_int_equal(service_step(s, 1), FR_OK);
    uint32_t read = s->log.partitions[0].next, batches = s->n_batches;
    fr_ingest_commit(s->ingest, &s->positions);
    for (int i = 0; i < 3; i++)
        fr_ingest_serve(s->ingest);
    assert_int_equal(s->log.partitions[0].next, read);
    assert_int_equal(s->n_batches, batches);
    assert_int_equal(s->log.committed, 2); /* lag tools see the position of the drain */
}

FR_CASE(records_below_the_position_are_dropped_and_counted)
{
    struct service *s = service_new(", batch_size: 3", 1);
    for (int i = 0; i < 6; i++)
        append(&s->log, 0, 1);
    assert_int_equal(service_start(s, false), FR_OK);
    while (s->n_batches < 1)
        assert_true(service_step(s, 1) >= 0);
    service_kill(s);
    s->log.duplicates = 2;
    service_serve(s);
    assert_string_equal(written(s), "batch 3: 0 1 2; 0@3.0\nbatch 3: 3 4 5; 0@6.0\n");
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_int_equal(status.dropped_duplicates, 2);
    fr_ingest_status_release(&status);
}

FR_CASE(the_position_follows_markers_at_the_end_of_the_log)
{
    struct service *s = service_new(", batch_size: 8, batch_wait: 20ms", 1);
    append(&s->log, 0, 1);
    skip_offsets(&s->log, 0, 1);
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_string_equal(written(s), "batch 1: 0; 0@2.0\n");
    assert_int_equal(s->positions.partitions[0].fingerprint_offset, 0);
    assert_int_equal(s->positions.partitions[0].delivered, 1);
    /* If only markers follow, a batch without samples carries the position. */
    skip_offsets(&s->log, 0, 3);
    service_run(s);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_string_equal(written(s), "batch 1: 0; 0@2.0\nbatch 0:; 0@5.0\n");
}

FR_CASE(until_end_stops_at_the_ends_fixed_at_the_start)
{
    struct service *s = service_new(", batch_size: 4", 3);
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    append(&s->log, 1, 1);
    skip_offsets(&s->log, 1, 2); /* the end is a marker: no record lies at end - 1 */
    assert_int_equal(service_start(s, true), FR_OK);
    assert_string_equal(s->ends, "partitions 3\nsamples 0 5\nsamples 1 3\nsamples 2 0\n");
    append(&s->log, 0, 1);
    append(&s->log, 1, 1);
    append(&s->log, 2, 1);
    service_run(s);
    assert_true(s->end_of_stream);
    assert_int_equal(s->positions.partitions[0].offset, 5);
    assert_int_equal(s->positions.partitions[1].offset, 3);
    assert_int_equal(s->positions.partitions[0].trained + s->positions.partitions[1].trained, 6);
    assert_int_equal(s->positions.partitions[2].trained, 0);
    assert_int_equal(service_step(s, 1), FR_EOF);
    /* Started again there, it ends at once. */
    service_kill(s);
    assert_int_equal(service_start(s, true), FR_OK);
    uint32_t before = s->n_batches;
    service_run(s);
    assert_true(s->end_of_stream);
    assert_int_equal(s->n_batches, before + 1);
    assert_int_equal(s->sizes[before], 0);
}

FR_CASE(status_reports_lag_and_the_end_of_the_log)
{
    struct service *s = service_new(", batch_size: 1", 2);
    for (int i = 0; i < 3; i++)
        append(&s->log, 0, 1);
    s->log.partitions[0].available = 1;
    service_serve(s);
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_false(status.at_end);
    assert_int_equal(status.n_partitions, 2);
    assert_int_equal(status.partitions[0].next_offset, 1);
    assert_int_equal(status.partitions[0].high, 3);
    assert_int_equal(status.lag_ms, 1000 - 1); /* wall T0 + 1000, the record's timestamp T0 + 1 */
    fr_ingest_status_release(&status);
    s->log.partitions[0].available = 3;
    service_run(s);
    fr_ingest_get_status(s->ingest, &status);
    assert_true(status.at_end);
    assert_int_equal(status.lag_ms, 0);
    assert_true(status.connected);
    fr_ingest_status_release(&status);
}

FR_CASE(a_partition_added_later_is_read_from_its_first_record)
{
    struct service *s = service_new(", batch_size: 1, start: latest", 1);
    append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->n_batches, 0); /* latest: what was there is not read */
    s->log.n_partitions = 2;
    append(&s->log, 1, 1);
    service_run(s);
    assert_int_equal(s->n_batches, 0);
    fr_clock_fake_advance_ms(&s->clock, 31000);
    service_run(s);
    assert_string_equal(written(s), "batch 1: 1; 1@1.0\n");
    assert_int_equal(s->positions.count, 2);
    /* `latest` is remembered from the first batch on */
    assert_int_equal(s->positions.partitions[0].offset, 1);
}

FR_CASE(durable_positions_reach_the_group)
{
    struct service *s = service_new(", batch_size: 1", 1);
    append(&s->log, 0, 1);
    service_serve(s);
    fr_ingest_commit(s->ingest, &s->positions);
    service_run(s);
    assert_int_equal(s->log.committed, 1);
}

/* Returns what the consumer group shows once `position` is durable, after_ms later. */
static int64_t group_says(struct service *s, int64_t after_ms, int64_t position)
{
    fr_clock_fake_advance_ms(&s->clock, after_ms);
    s->positions.partitions[0].offset = position;
    fr_ingest_commit(s->ingest, &s->positions);
    fr_ingest_serve(s->ingest);
    return s->log.committed;
}

FR_CASE(the_group_is_written_once_a_second_and_at_the_end)
{
    struct service *s = service_new(", batch_size: 1", 1);
    append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(group_says(s, 0, 1), 1);
    assert_int_equal(group_says(s, 500, 2), 1);
    assert_int_equal(group_says(s, 400, 3), 1);
    assert_int_equal(group_says(s, 200, 4), 4);
    assert_int_equal(group_says(s, 0, 5), 4);
    service_kill(s);
    assert_int_equal(s->log.committed, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(batches_close_at_exactly_batch_size_samples),
        SERVICE_CASE(a_batch_closes_batch_wait_after_its_first_record),
        SERVICE_CASE(one_record_fills_several_batches),
        SERVICE_CASE(samples_know_their_place_whatever_batch_they_are_in),
        SERVICE_CASE(a_restart_inside_a_record_skips_the_items_in_effect),
        SERVICE_CASE(killed_anywhere_every_sample_arrives_once),
        SERVICE_CASE(a_malformed_record_goes_to_the_dead_letters_and_is_counted),
        SERVICE_CASE(a_sample_from_the_far_future_is_counted_apart),
        SERVICE_CASE(a_record_of_a_clock_that_is_ahead_is_a_dead_letter),
        SERVICE_CASE(what_the_clock_refused_before_a_crash_may_be_accepted_after_and_the_ledger_balances),
        SERVICE_CASE(a_record_partly_in_effect_stays_accepted_under_a_clock_set_back),
        SERVICE_CASE(a_batch_names_the_dead_letters_its_positions_depend_on),
        SERVICE_CASE(a_full_sink_pauses_reading_and_says_so),
        SERVICE_CASE(a_full_ring_stops_polling_and_nothing_is_lost),
        SERVICE_CASE(a_stream_that_is_only_served_is_not_read),
        SERVICE_CASE(records_below_the_position_are_dropped_and_counted),
        SERVICE_CASE(the_position_follows_markers_at_the_end_of_the_log),
        SERVICE_CASE(until_end_stops_at_the_ends_fixed_at_the_start),
        SERVICE_CASE(status_reports_lag_and_the_end_of_the_log),
        SERVICE_CASE(a_partition_added_later_is_read_from_its_first_record),
        SERVICE_CASE(durable_positions_reach_the_group),
        SERVICE_CASE(the_group_is_written_once_a_second_and_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
