/* The start check and what happens when a partition cannot be read any more: losses, another log,
 * brokers that are away. */
#include "fixture.h"
#include "status_of.h"

/* Ten one-sample records on one partition, all trained, then killed. */
static struct service *trained(const char *ingest)
{
    struct service *s = service_new(ingest, 1);
    for (int i = 0; i < 10; i++)
        append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].offset, 10);
    service_kill(s);
    return s;
}

FR_CASE(an_absent_topic_can_be_waited_for)
{
    struct service *s = service_new(", batch_size: 1", 1);
    s->log.absent = true;
    assert_int_equal(service_start(s, false), FR_E_UNAVAILABLE);
    s->log.absent = false;
    s->log.down = true;
    assert_int_equal(fr_ingest_start(s->ingest, &s->err), FR_E_UNAVAILABLE);
    s->log.down = false;
    append(&s->log, 0, 1);
    assert_int_equal(fr_ingest_start(s->ingest, &s->err), FR_OK);
    service_run(s);
    assert_int_equal(s->n_batches, 1);
}

FR_CASE(another_cluster_is_refused)
{
    struct service *s = trained(", batch_size: 1");
    snprintf(s->log.cluster_id, sizeof(s->log.cluster_id), "two");
    assert_int_equal(service_start(s, false), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "cluster two, the state was trained from cluster one"));
}

FR_CASE(a_changed_last_record_is_another_topic)
{
    for (int what = 0; what < 2; what++) {
        struct service *s = trained(", batch_size: 1");
        if (what == 0)
            s->log.partitions[0].records[9].value[3]++;
        else
            s->log.partitions[0].records[9].timestamp_ms++;
        assert_int_equal(service_start(s, false), FR_E_MISMATCH);
        assert_non_null(strstr(s->err.text, "the record at offset 9 is not the one that was trained"));
        assert_non_null(strstr(s->err.text, "another state_dir, or continue with this log by ingest.on_loss"));
        service_free(s);
    }
}

FR_CASE(on_loss_continues_in_a_topic_created_again)
{
    for (int latest = 0; latest < 2; latest++) {
        struct service *s = trained(latest ? ", batch_size: 1, batch_wait: 20ms, on_loss: latest"
                                           : ", batch_size: 1, on_loss: earliest");
        for (uint32_t i = 0; i < 10; i++)
            s->log.partitions[0].records[i].timestamp_ms++;
        append(&s->log, 0, 1);
        service_serve(s);
        fr_clock_fake_advance_ms(&s->clock, 20);
        service_run(s);
        const struct fr_partition_position *p = &s->positions.partitions[0];
        assert_int_equal(p->offset, 11);
        assert_int_equal(p->trained, latest ? 10 : 21);
        assert_int_equal(p->lost, latest ? 11 : 0); /* of the new log, unread */
        service_kill(s);
        append(&s->log, 0, 1); /* and from then on it is our log */
        service_serve(s);
        assert_int_equal(s->positions.partitions[0].trained, latest ? 11 : 22);
        service_free(s);
    }
}

FR_CASE(on_loss_continues_in_a_log_that_became_shorter)
{
    for (int latest = 0; latest < 2; latest++) {
        struct service *s = trained(latest ? ", batch_size: 1, batch_wait: 20ms, on_loss: latest"
                                           : ", batch_size: 1, on_loss: earliest");
        while (s->log.partitions[0].n > 4)
            free(s->log.partitions[0].records[--s->log.partitions[0].n].value);
        s->log.partitions[0].high = s->log.partitions[0].available = 4;
        assert_int_equal(service_start(s, false), FR_OK);
        append(&s->log, 0, 1);
        service_run(s);
        assert_int_equal(s->positions.partitions[0].offset, 5);
        assert_int_equal(s->positions.partitions[0].trained, latest ? 11 : 15);
        assert_int_equal(s->positions.partitions[0].lost, latest ? 4 : 0);
        service_free(s);
    }
}

FR_CASE(an_unchanged_log_is_read_on)
{
    struct service *s = trained(", batch_size: 1");
    append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].trained, 11);
}

FR_CASE(a_last_record_gone_from_the_log_is_accepted_inside_it)
{
    struct service *s = trained(", batch_size: 1");
    delete_before(&s->log, 0, 10); /* all that was trained; nothing that was not */
    append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].trained, 11);
    assert_int_equal(s->positions.partitions[0].lost, 0);
}

FR_CASE(records_deleted_unread_stop_the_service)
{
    struct service *s = trained(", batch_size: 1");
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    delete_before(&s->log, 0, 13);
    assert_int_equal(service_start(s, false), FR_E_LOST);
    assert_non_null(strstr(s->err.text, "samples/0: 3 records were deleted before they were read"));
    assert_non_null(strstr(s->err.text, "on_loss"));
}

FR_CASE(on_loss_earliest_continues_and_counts_the_hole)
{
    struct service *s = trained(", batch_size: 1, on_loss: earliest");
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    delete_before(&s->log, 0, 13);
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].lost, 3);
    assert_int_equal(s->positions.partitions[0].trained, 12);
    assert_int_equal(s->positions.partitions[0].offset, 15);
}

FR_CASE(on_loss_latest_continues_at_the_end)
{
    struct service *s = trained(", batch_size: 1, on_loss: latest, batch_wait: 20ms");
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    delete_before(&s->log, 0, 13);
    service_serve(s);
    /* no record follows: the loss is reported nevertheless */
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].lost, 5);
    assert_int_equal(s->positions.partitions[0].offset, 15);
    assert_int_equal(s->positions.partitions[0].trained, 10);
}

FR_CASE(a_log_shorter_than_the_position_stops_the_service)
{
    struct service *s = trained(", batch_size: 1");
    while (s->log.partitions[0].n > 4)
        free(s->log.partitions[0].records[--s->log.partitions[0].n].value);
    s->log.partitions[0].high = 4;
    assert_int_equal(service_start(s, false), FR_E_LOST);
    assert_non_null(strstr(s->err.text, "6 records are missing at its end"));
}

FR_CASE(a_topic_with_fewer_partitions_is_refused)
{
    struct service *s = service_new(", batch_size: 1", 2);
    append(&s->log, 1, 1);
    service_serve(s);
    service_kill(s);
    s->log.n_partitions = 1;
    assert_int_equal(service_start(s, false), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "has no partition 1"));
    service_kill(s);
    s->conf->ingest.on_loss = FR_ON_LOSS_EARLIEST;
    append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].trained, 1);
}

FR_CASE(records_deleted_while_running_stop_the_service)
{
    struct service *s = service_new(", batch_size: 1", 1);
    for (int i = 0; i < 10; i++)
        append(&s->log, 0, 1);
    s->log.partitions[0].available = 2;
    service_serve(s);
    delete_before(&s->log, 0, 6);
    enum fr_status status = FR_OK;
    for (int i = 0; i < 5 && status >= 0; i++)
        status = service_step(s, RING);
    assert_int_equal(status, FR_E_LOST);
    assert_non_null(strstr(s->err.text, "4 records were deleted"));
}

FR_CASE(records_deleted_while_running_are_skipped_under_earliest)
{
    struct service *s = service_new(", batch_size: 1, on_loss: earliest", 1);
    for (int i = 0; i < 10; i++)
        append(&s->log, 0, 1);
    s->log.partitions[0].available = 2;
    service_serve(s);
    delete_before(&s->log, 0, 6);
    s->log.partitions[0].available = 10;
    service_run(s);
    assert_int_equal(s->positions.partitions[0].lost, 4);
    assert_int_equal(s->positions.partitions[0].trained, 6);
}

FR_CASE(a_topic_deleted_while_running_is_waited_for_and_checked)
{
    struct service *s = service_new(", batch_size: 1", 1);
    append(&s->log, 0, 1);
    service_serve(s);
    s->log.partitions[0].gone = true;
    service_run(s);
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_non_null(strstr(status.problem, "unknown topic"));
    fr_ingest_status_release(&status);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    fr_ingest_get_status(s->ingest, &status);
    assert_string_equal(status.problem, "samples/0: no offsets: no leader (1 of 1 partitions wait)");
    fr_ingest_status_release(&status);
    /* Back under the same name, longer than before, with other records. */
    s->log.partitions[0].gone = false;
    s->log.partitions[0].records[0].timestamp_ms++;
    append(&s->log, 0, 1);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    assert_int_equal(service_step(s, RING), FR_E_MISMATCH);
    assert_int_equal(s->n_batches, 1);
}

/* The text of the problem while brokers are away since the given second of a minute. */
static const char *away_since(const char *second)
{
    static char text[128];
    snprintf(text, sizeof(text),
             "brokers are down (since 2023-11-14T22:13:%sZ; reading continues by itself when brokers answer)", second);
    return text;
}

FR_CASE(brokers_that_are_away_are_a_problem_with_its_beginning_not_an_error)
{
    struct service *s = service_new(", batch_size: 1", 1);
    append(&s->log, 0, 1);
    service_serve(s);
    for (uint32_t outage = 1; outage <= 2; outage++) {
        s->log.down = true;
        append(&s->log, 0, 1);
        service_run(s);
        assert_false(status_of(s).connected);
        for (int i = 0; i < 2; i++) { /* it lasts, and its beginning stays */
            fr_clock_fake_advance_ms(&s->clock, 10000);
            service_run(s);
            assert_string_equal(status_of(s).problem, away_since(outage == 1 ? "21" : "41"));
        }
        s->log.down = false;
        service_run(s);
        assert_string_equal(status_of(s).problem, "");
        assert_int_equal(s->n_batches, 1 + outage);
    }
}

FR_CASE(problems_of_different_kinds_are_reported_at_once)
{
    struct service *s = service_new(", batch_size: 1", 2);
    append(&s->log, 0, 1);
    s->log.partitions[1].gone = true;
    service_serve(s);
    s->dead.full = s->log.down = true;
    service_run(s);
    struct fr_ingest_status status = status_of(s);
    assert_string_equal(status.problem, away_since("21"));
    assert_int_equal(status.first, FR_INGEST_PROBLEM_BROKERS);
    assert_string_equal(status.problems[FR_INGEST_PROBLEM_BROKERS], away_since("21"));
    assert_string_equal(status.problems[FR_INGEST_PROBLEM_STREAMS],
                        "samples/1: no offsets: no leader (1 of 2 partitions wait)");
    assert_string_equal(status.problems[FR_INGEST_PROBLEM_DEAD_LETTER_SINK], "letters wait");
    assert_string_equal(status.problems[FR_INGEST_PROBLEM_TRANSACTIONS], "");
    assert_string_equal(status.problems[FR_INGEST_PROBLEM_RECORDS], "");
    s->log.down = false;
    service_run(s);
    status = status_of(s);
    assert_string_equal(status.problem, "samples/1: no offsets: no leader (1 of 2 partitions wait)");
    assert_string_equal(status.problems[FR_INGEST_PROBLEM_BROKERS], "");
}

FR_CASE(a_partition_without_leader_delays_itself_alone)
{
    struct service *s = service_new(", batch_size: 2", 3);
    for (uint32_t p = 0; p < 3; p++)
        append(&s->log, p, 2);
    s->log.partitions[1].gone = true;
    service_serve(s);
    assert_int_equal(s->log.questions, 2); /* where all logs begin, and where they end */
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_string_equal(status.problem, "samples/1: no offsets: no leader (1 of 3 partitions wait)");
    assert_true(status.partitions[1].waits && !status.partitions[0].waits && !status.partitions[2].waits);
    fr_ingest_status_release(&status);
    assert_int_equal(s->positions.count, 3);
    assert_int_equal(s->positions.partitions[0].trained, 2);
    assert_int_equal(s->positions.partitions[1].offset, -1);
    assert_int_equal(s->positions.partitions[2].trained, 2);
    s->log.partitions[1].gone = false;
    service_run(s);
    assert_int_equal(s->positions.partitions[1].trained, 0); /* not before its second is over */
    fr_clock_fake_advance_ms(&s->clock, 1001);
    service_run(s);
    assert_int_equal(s->positions.partitions[1].trained, 2);
    fr_ingest_get_status(s->ingest, &status);
    assert_string_equal(status.problem, "");
    fr_ingest_status_release(&status);
}

FR_CASE(a_partition_that_comes_late_reports_where_it_begins)
{
    struct service *s = service_new(", batch_size: 1, batch_wait: 20ms, start: latest", 2);
    append(&s->log, 0, 1);
    append(&s->log, 1, 1);
    s->log.partitions[0].gone = true;
    service_serve(s);
    append(&s->log, 1, 1);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].offset, -1);
    s->log.partitions[0].gone = false;
    fr_clock_fake_advance_ms(&s->clock, 1001);
    service_run(s);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].offset, 1); /* the end, though no record came */
    service_kill(s);
    append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].trained, 1);
}

FR_CASE(a_bounded_run_waits_for_all_partitions)
{
    struct service *s = service_new(", batch_size: 2", 2);
    append(&s->log, 0, 2);
    append(&s->log, 1, 2);
    s->log.partitions[1].gone = true;
    assert_int_equal(service_start(s, true), FR_E_UNAVAILABLE);
    assert_non_null(strstr(s->err.text, "samples/1: no offsets: no leader"));
    s->log.partitions[1].gone = false;
    assert_int_equal(fr_ingest_start(s->ingest, &s->err), FR_OK);
    service_run(s);
    assert_int_equal(s->positions.partitions[1].trained, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(a_partition_without_leader_delays_itself_alone),
        SERVICE_CASE(a_partition_that_comes_late_reports_where_it_begins),
        SERVICE_CASE(a_bounded_run_waits_for_all_partitions),
        SERVICE_CASE(an_absent_topic_can_be_waited_for),
        SERVICE_CASE(another_cluster_is_refused),
        SERVICE_CASE(a_changed_last_record_is_another_topic),
        SERVICE_CASE(on_loss_continues_in_a_topic_created_again),
        SERVICE_CASE(on_loss_continues_in_a_log_that_became_shorter),
        SERVICE_CASE(an_unchanged_log_is_read_on),
        SERVICE_CASE(a_last_record_gone_from_the_log_is_accepted_inside_it),
        SERVICE_CASE(records_deleted_unread_stop_the_service),
        SERVICE_CASE(on_loss_earliest_continues_and_counts_the_hole),
        SERVICE_CASE(on_loss_latest_continues_at_the_end),
        SERVICE_CASE(a_log_shorter_than_the_position_stops_the_service),
        SERVICE_CASE(a_topic_with_fewer_partitions_is_refused),
        SERVICE_CASE(records_deleted_while_running_stop_the_service),
        SERVICE_CASE(records_deleted_while_running_are_skipped_under_earliest),
        SERVICE_CASE(a_topic_deleted_while_running_is_waited_for_and_checked),
        SERVICE_CASE(brokers_that_are_away_are_a_problem_with_its_beginning_not_an_error),
        SERVICE_CASE(problems_of_different_kinds_are_reported_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
