/* Transactions that are open: lag, the problem and the end say that records wait for them; and a
 * topic that is gone. */
#include "fixture.h"

static struct fr_ingest_status status_of(struct service *s)
{
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    return status;
}

static void expect(struct service *s, int64_t lag_ms, bool at_end, const char *problem)
{
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.lag_ms, lag_ms);
    assert_int_equal(status.partitions[0].transaction_ms, lag_ms);
    assert_int_equal(status.at_end, at_end);
    if (problem ? strncmp(status.problem, problem, strlen(problem)) != 0 : status.problem[0] != 0)
        fail_msg("%s", status.problem);
    fr_ingest_status_release(&status);
}

static void advance(struct service *s, int64_t ms)
{
    fr_clock_fake_advance_ms(&s->clock, ms);
    service_run(s);
}

/* Two samples, then one of a transaction, then a committed one. */
static void open_transaction(struct service *s)
{
    for (int i = 0; i < 4; i++)
        append(&s->log, 0, 1);
    s->log.partitions[0].open_from = 2;
}

static void end_transaction(struct service *s)
{
    s->log.partitions[0].open_from = 0;
    s->log.partitions[0].end_reported = false;
}

FR_CASE(live_lag_counts_at_once_and_the_problem_is_reported_after_ready_lag)
{
    struct service *s = service_new(", batch_size: 1, ready_lag: 5s", 1);
    open_transaction(s);
    service_serve(s);
    assert_int_equal(s->n_batches, 2);
    expect(s, 0, true, NULL); /* new records may be on their way */
    advance(s, 999);
    expect(s, 0, true, NULL);
    advance(s, 1);
    expect(s, 1000, false, NULL);
    advance(s, 4000);
    expect(s, 5000, false,
           "samples/0: records from offset 2 to 3 wait for a producer's transaction, open for 5 s or more;");
    end_transaction(s);
    advance(s, 1);
    expect(s, 0, true, NULL);
    assert_int_equal(s->n_batches, 4);
}

FR_CASE(another_transaction_is_waited_for_from_its_own_beginning)
{
    struct service *s = service_new(", batch_size: 1, ready_lag: 5s", 1);
    open_transaction(s);
    service_serve(s);
    advance(s, 3000);
    expect(s, 3000, false, NULL);
    s->log.partitions[0].open_from = 3; /* that one has ended */
    s->log.partitions[0].end_reported = false;
    advance(s, 1000);
    assert_int_equal(s->n_batches, 3);
    expect(s, 0, true, NULL);
    advance(s, 1000);
    expect(s, 1000, false, NULL);
}

FR_CASE(a_daemon_that_waits_for_another_reason_meets_no_transaction)
{
    struct service *s = service_new(", batch_size: 1, ready_lag: 1s", 1);
    append(&s->log, 0, 1);
    service_serve(s);
    append(&s->log, 0, 1);
    s->log.partitions[0].available = 1; /* on its way */
    s->log.partitions[0].end_reported = true;
    (void)!service_step(s, RING);
    s->log.partitions[0].available = 2;
    for (int i = 0; i < 4; i++) {
        fr_clock_fake_advance_ms(&s->clock, 1000);
        fr_ingest_serve(s->ingest);
        expect(s, 0, true, NULL);
    }
    s->log.partitions[0].end_reported = false;
    service_run(s);
    expect(s, 0, true, NULL);
    assert_int_equal(s->n_batches, 2);
}

/* One partition's records keep another's, which was at its end, from being polled. */
FR_CASE(a_full_ring_is_no_transaction)
{
    struct service *s = service_new(", batch_size: 1, ready_lag: 1s", 2);
    service_serve(s);
    for (int i = 0; i < RING + 2; i++)
        append(&s->log, 1, 1);
    for (int i = 0; i < 4; i++) { /* nothing is applied */
        (void)!service_step(s, 0);
        if (i == 0)
            append(&s->log, 0, 1);
        fr_clock_fake_advance_ms(&s->clock, 1000);
    }
    (void)!service_step(s, 0);
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.partitions[0].transaction_ms, 0);
    assert_string_equal(status.problem, "");
    fr_ingest_status_release(&status);
}

/* Records of it were deleted, and reading begins inside it: brokers give nothing, nor an end. */
FR_CASE(a_transaction_that_the_logs_beginning_lies_in_is_named)
{
    const char *problem =
        "samples/0: records from offset 3 to 5 wait for a producer's transaction, open for 5 s or more;";
    struct service *s = service_new(", batch_size: 1, ready_lag: 5s, on_loss: earliest", 1);
    append(&s->log, 0, 1);
    service_serve(s);
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    s->log.partitions[0].open_from = 1;
    delete_before(&s->log, 0, 3);
    for (int start = 0; start < 2; start++) { /* found while it was read, and at a start */
        for (int i = 0; i < 4; i++)
            advance(s, 1000);
        expect(s, 3000, false, NULL);
        advance(s, 2000);
        expect(s, 5000, false, problem);
        if (start)
            break;
        service_kill(s);
        assert_int_equal(service_start(s, false), FR_OK);
    }
    end_transaction(s);
    advance(s, 1);
    expect(s, 0, true, NULL);
    assert_int_equal(s->positions.partitions[0].trained, 4);
    assert_int_equal(s->positions.partitions[0].lost, 2);
}

static void expect_bounded(const char *options, bool aborted)
{
    struct service *s = service_new(options, 1);
    open_transaction(s);
    assert_int_equal(service_start(s, true), FR_OK);
    assert_string_equal(s->ends, "partitions 1\nsamples 0 4\n");
    for (int i = 0; i < 3; i++)
        (void)!service_step(s, RING);
    assert_false(s->end_of_stream);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    (void)!service_step(s, RING);
    struct fr_ingest_status status = status_of(s);
    assert_non_null(strstr(status.problem, "records from offset 2 to 3 wait for a producer's transaction"));
    fr_ingest_status_release(&status);
    skip_offsets(&s->log, 0, 1); /* the marker, beyond the end */
    struct log_partition *log = &s->log.partitions[0];
    while (aborted && log->n > 2)
        free(log->records[--log->n].value);
    log->available = log->n < log->available ? log->n : log->available;
    end_transaction(s);
    service_run(s);
    assert_true(s->end_of_stream);
    assert_int_equal(s->positions.partitions[0].offset, 4);
    assert_int_equal(s->positions.partitions[0].trained, aborted ? 2 : 4);
}

FR_CASE(a_bounded_run_waits_for_a_transaction_that_was_open_when_it_began)
{
    expect_bounded(", batch_size: 4", false);
    expect_bounded(", lockstep: {records: 2}", false);
}

/* Both records beyond the open one's beginning are of it: the end is passed by the marker alone. */
FR_CASE(a_bounded_run_ends_when_the_transaction_is_aborted)
{
    expect_bounded(", batch_size: 4", true);
    expect_bounded(", lockstep: {records: 2}", true);
}

FR_CASE(latest_begins_before_what_an_open_transaction_holds)
{
    struct service *s = service_new(", batch_size: 1, start: latest", 1);
    open_transaction(s);
    service_serve(s);
    assert_int_equal(s->n_batches, 0);
    end_transaction(s);
    service_run(s);
    assert_string_equal(written(s), "batch 1: 2; 0@3.0\nbatch 1: 3; 0@4.0\n");
}

FR_CASE(reading_stands_when_no_partition_is_there_or_a_topic_is_gone)
{
    struct service *s = service_new(", batch_size: 1", 2);
    service_serve(s);
    struct log_partition *p = s->log.partitions;
    const struct {
        bool gone[2], absent, stands;
    } steps[] = {{{true, false}, false, false},
                 {{true, true}, false, true},
                 {{false, false}, false, false},
                 {{true, false}, true, true}};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        for (int k = 0; k < 2; k++) {
            p[k].gone = steps[i].gone[k];
            p[k].absent = steps[i].absent;
        }
        for (int k = 0; k < 4; k++)
            advance(s, 17000); /* longer than between two looks */
        struct fr_ingest_status status = status_of(s);
        assert_int_equal(status.stands, steps[i].stands);
        assert_int_equal(strstr(status.problem, "topic samples is gone (deleted?)") != NULL, steps[i].absent);
        fr_ingest_status_release(&status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(live_lag_counts_at_once_and_the_problem_is_reported_after_ready_lag),
        SERVICE_CASE(another_transaction_is_waited_for_from_its_own_beginning),
        SERVICE_CASE(a_daemon_that_waits_for_another_reason_meets_no_transaction),
        SERVICE_CASE(a_full_ring_is_no_transaction),
        SERVICE_CASE(a_transaction_that_the_logs_beginning_lies_in_is_named),
        SERVICE_CASE(a_bounded_run_waits_for_a_transaction_that_was_open_when_it_began),
        SERVICE_CASE(a_bounded_run_ends_when_the_transaction_is_aborted),
        SERVICE_CASE(latest_begins_before_what_an_open_transaction_holds),
        SERVICE_CASE(reading_stands_when_no_partition_is_there_or_a_topic_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
