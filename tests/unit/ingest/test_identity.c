/* Whether a log that is being read still is the one that was read: after contact was lost, and once
 * a minute. */
#include "fixture.h"
#include "status_of.h"

#define LIVE ", batch_size: 1, batch_wait: 20ms"

/* What happened to the log's brokers, for the case that runs. */
static struct {
    bool gap, connected, moved; /* contact was lost since the last poll */
    bool compacted;             /* the brokers report a topic as compacted */
    bool mute;                  /* no question is answered; reading continues */
} brokers;

static enum fr_status poll_brokers(void *self, int64_t partition, int wait_ms, struct fr_source_event *out,
                                   struct fr_err *err)
{
    const struct fake_log *log = self;
    if (brokers.gap || brokers.connected) {
        *out = (struct fr_source_event){.kind = brokers.connected ? FR_SOURCE_CONNECTED : FR_SOURCE_GAP};
        brokers.gap = brokers.connected = false;
        return FR_OK;
    }
    if (brokers.moved && log->partitions[0].begun >= 0) {
        *out = (struct fr_source_event){.kind = FR_SOURCE_MOVED};
        brokers.moved = false;
        return FR_OK;
    }
    return log_poll(self, partition, wait_ms, out, err);
}

static enum fr_status ask_offsets(void *self, int64_t when, struct fr_source_answer *answers, uint32_t n,
                                  struct fr_err *err)
{
    if (brokers.mute)
        return fr_err_set(err, FR_E_UNAVAILABLE, "no offsets");
    return log_offsets(self, when, answers, n, err);
}

static enum fr_status ask_policies(void *self, struct fr_err *err)
{
    (void)self;
    return brokers.compacted ? fr_err_set(err, FR_E_MISMATCH, "topic samples is compacted") : FR_OK;
}

static struct service *with_brokers(const char *ingest)
{
    struct service *s = service_new(ingest, 1);
    memset(&brokers, 0, sizeof(brokers));
    s->source.poll = poll_brokers;
    s->source.offsets = ask_offsets;
    s->source.policies = ask_policies;
    return s;
}

/* One partition of ten one-sample records, all in effect, and still running. */
static struct service *reading(const char *ingest)
{
    struct service *s = with_brokers(ingest);
    for (int i = 0; i < 10; i++)
        append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].offset, 10);
    return s;
}

/* The topic is deleted and made again, with n other records; the reader gets no error. */
static void create_again(struct service *s, uint32_t n)
{
    struct log_partition *p = &s->log.partitions[0];
    for (uint32_t i = 0; i < p->n; i++)
        free(p->records[i].value);
    p->n = p->available = 0;
    p->high = 0;
    s->log.made += 1000;
    for (uint32_t i = 0; i < n; i++) {
        append(&s->log, 0, 1);
        p->records[i].timestamp_ms += 1000;
    }
    p->next = n < 10 ? n : 10; /* the reader continues by offset number */
    p->end_reported = true;
}

static uint64_t trained(const struct service *s)
{
    return s->positions.count ? s->positions.partitions[0].trained : 0;
}

/* Steps until ingest fails; nothing may take effect meanwhile. */
static enum fr_status fails(struct service *s)
{
    enum fr_status status = FR_OK;
    uint64_t before = trained(s);
    for (int i = 0; i < 10 && status >= 0; i++)
        status = service_step(s, RING);
    assert_int_equal(trained(s), before);
    return status;
}

FR_CASE(a_topic_created_again_in_a_gap_is_a_loss_before_a_record_of_it_is_trained)
{
    static const uint32_t sizes[] = {0, 4, 9, 10, 11, 30};
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes); i++)
        for (int connected = 0; connected < 2; connected++) {
            struct service *s = reading(LIVE);
            create_again(s, sizes[i]);
            brokers.gap = !connected;
            brokers.connected = connected;
            assert_int_equal(fails(s), sizes[i] < 10 ? FR_E_LOST : FR_E_MISMATCH);
            assert_non_null(
                strstr(s->err.text, sizes[i] < 10 ? "missing at its end" : "the record at offset 9 is not"));
            service_free(s);
        }
}

FR_CASE(on_loss_goes_by_policy_after_a_gap)
{
    for (int latest = 0; latest < 2; latest++) {
        struct service *s = reading(latest ? LIVE ", on_loss: latest" : LIVE ", on_loss: earliest");
        create_again(s, 30);
        brokers.gap = true;
        service_run(s);
        append(&s->log, 0, 1);
        service_run(s);
        fr_clock_fake_advance_ms(&s->clock, 20);
        service_run(s);
        assert_int_equal(trained(s), latest ? 11 : 41);
        assert_int_equal(s->positions.partitions[0].lost, latest ? 30 : 0);
        assert_int_equal(s->positions.partitions[0].offset, 31);
        service_free(s);
    }
}

FR_CASE(the_same_log_is_read_on_after_a_gap)
{
    struct service *s = reading(LIVE);
    for (int i = 0; i < 6; i++) {
        uint32_t questions = s->log.questions;
        brokers.gap = i % 2 == 0;
        brokers.connected = !brokers.gap;
        if (i == 2)
            skip_offsets(&s->log, 0, 3);
        append(&s->log, 0, 1);
        service_run(s);
        assert_int_equal(trained(s), 11 + i);
        assert_true(s->log.questions > questions);
    }
    assert_int_equal(s->positions.partitions[0].lost, 0);
    brokers.gap = true;
    /* the fingerprint's record, too: unverified */
    delete_before(&s->log, 0, s->log.partitions[0].high);
    append(&s->log, 0, 1);
    service_run(s);
    assert_int_equal(trained(s), 17);
    assert_int_equal(s->positions.partitions[0].lost, 0);
}

FR_CASE(what_was_fetched_before_retention_took_it_is_no_loss_after_a_gap)
{
    struct service *s = reading(LIVE);
    struct log_partition *p = &s->log.partitions[0];
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    p->fetched = p->n;
    p->low = 12;
    brokers.gap = true;
    service_run(s);
    assert_int_equal(trained(s), 15);
    assert_int_equal(s->positions.partitions[0].lost, 0);
}

FR_CASE(nothing_takes_effect_until_the_question_is_answered)
{
    for (int connected = 0; connected < 2; connected++)
        for (int one = 0; one < 2; one++) {
            struct service *s = reading(LIVE);
            append(&s->log, 0, 1);
            brokers.gap = !connected;
            brokers.connected = connected;
            s->log.partitions[0].gone = one;
            s->log.down = !one;
            for (int i = 0; i < 20; i++)
                assert_true(service_step(s, RING) >= 0);
            assert_int_equal(trained(s), 10);
            struct fr_ingest_status status;
            fr_ingest_get_status(s->ingest, &status);
            assert_true(status.partitions[0].waits && status.problem[0]);
            fr_ingest_status_release(&status);
            s->log.partitions[0].gone = s->log.down = false;
            fr_clock_fake_advance_ms(&s->clock, 20000);
            service_run(s);
            assert_int_equal(trained(s), 11);
            service_free(s);
        }
}

FR_CASE(a_partition_whose_leader_moved_is_asked_about_and_begun_again)
{
    struct service *s = reading(LIVE);
    append(&s->log, 0, 1);
    brokers.moved = true;
    uint32_t questions = s->log.questions;
    service_run(s);
    assert_int_equal(trained(s), 11);
    assert_int_equal(s->log.partitions[0].begun, 10);
    assert_true(s->log.questions > questions);
}

/* Records were fetched before an election cut the log after what was delivered, and filled it. */
FR_CASE(what_another_connection_gives_is_fetched_again)
{
    struct service *s = reading(LIVE);
    struct log_partition *p = &s->log.partitions[0];
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    /* offsets 10 to 14 are fetched but not given; the reader would continue at 15 */
    p->next = p->n;
    append(&s->log, 0, 1);
    brokers.connected = true;
    service_run(s);
    assert_int_equal(trained(s), 16);
}

FR_CASE(where_reading_begins_at_the_end_the_record_before_is_the_fingerprint)
{
    struct service *s = with_brokers(LIVE ", start: latest");
    for (int i = 0; i < 10; i++)
        append(&s->log, 0, 1);
    service_serve(s);
    create_again(s, 30);
    brokers.gap = true;
    assert_int_equal(fails(s), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "the record at offset 9 is not"));
}

FR_CASE(once_a_minute_the_record_of_the_minute_before_is_looked_at)
{
    struct service *s = reading(LIVE);
    fr_clock_fake_advance_ms(&s->clock, 60000);
    service_run(s);
    uint32_t questions = s->log.questions;
    fr_clock_fake_advance_ms(&s->clock, 59000);
    service_run(s);
    assert_int_equal(s->log.questions, questions);
    create_again(s, 20); /* in a silence that was too short to be seen: read on from 10 */
    service_run(s);
    assert_int_equal(trained(s), 20);
    brokers.gap = true; /* the newest record is of the new log */
    service_run(s);
    brokers.connected = true;
    service_run(s);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    assert_int_equal(fails(s), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "the record at offset 9 is not"));
}

/* A minute after the start, the check records the record delivered last; the next check compares
 * with that one. */
static void check_after_a_minute(struct service *s)
{
    fr_clock_fake_advance_ms(&s->clock, 60000);
    service_run(s);
}

/* Steps whose batches nobody takes, until the ring is full and nothing moves. */
static void fill_the_ring(struct service *s)
{
    for (int i = 0; i < 10; i++)
        assert_true(service_step(s, 0) >= 0);
}

FR_CASE(a_minutes_look_waits_until_the_record_at_hand_is_in_effect)
{
    struct service *s = reading(LIVE ", on_loss: earliest");
    check_after_a_minute(s);
    for (int i = 0; i < 10; i++)
        append(&s->log, 0, 3);
    fill_the_ring(s);
    uint64_t read = status_of(s).records; /* a part of the last one of them waits for a batch */
    assert_true(read > 10 && read < 20);
    create_again(s, 30);
    fr_clock_fake_advance_ms(&s->clock, 60000);
    fill_the_ring(s);
    service_run(s);
    assert_int_equal(trained(s), 10 + 3 * (read - 10) + 30);
    assert_int_equal(status_of(s).dropped_duplicates, 0);
}

FR_CASE(a_minutes_look_comes_between_two_records_while_the_trainer_is_slower)
{
    struct service *s = reading(LIVE);
    for (int i = 0; i < 60; i++)
        append(&s->log, 0, 1);
    fill_the_ring(s);
    uint32_t questions = s->log.questions;
    fr_clock_fake_advance_ms(&s->clock, 60000);
    for (int i = 0; i < 4; i++)
        assert_true(service_step(s, 1) >= 0);
    assert_true(trained(s) < 60 && s->log.questions > questions);
}

/* Held records take effect, the ring is full after the last record of partition 0, and that
 * partition has another log now. */
FR_CASE(a_minutes_look_waits_until_what_is_held_is_in_effect)
{
    struct service *s = service_new(LIVE ", on_loss: earliest", 2);
    for (int i = 0; i < 20; i++)
        append(&s->log, (uint32_t)i % 2, 1);
    service_serve(s);
    check_after_a_minute(s);
    for (int i = 0; i < 12; i++) /* the first one, of a label -1, begins a trial of labels */
        append(&s->log, (uint32_t)i % 2, 1);
    struct log_record *first = &s->log.partitions[0].records[10];
    free(first->value);
    first->value = fr_strdup("{\"f\":{},\"y\":-1}");
    s->log.turn = 0;
    fill_the_ring(s);
    assert_int_equal(s->positions.partitions[0].offset, 10);
    fr_clock_fake_advance_ms(&s->clock, 2000);
    fill_the_ring(s);
    create_again(s, 30);
    fr_clock_fake_advance_ms(&s->clock, 60000);
    fill_the_ring(s);
    service_run(s);
    assert_int_equal(s->positions.partitions[1].trained, 16);
    assert_int_equal(s->positions.partitions[0].trained, 15 + 30);
}

FR_CASE(what_is_held_and_fetched_again_counts_once_and_waits_as_long)
{
    struct service *s = with_brokers(LIVE);
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, -1);
    service_serve(s);
    for (int i = 0; i < 3; i++) {
        fr_clock_fake_advance_ms(&s->clock, 18000);
        brokers.connected = true;
        service_run(s);
        assert_int_equal(status_of(s).malformed, 5);
        assert_int_equal(status_of(s).records, 5);
        assert_int_equal(s->dead.n, 0);
    }
    fr_clock_fake_advance_ms(&s->clock, 6000);
    service_run(s);
    assert_int_equal(s->dead.n, 5);
}

FR_CASE(a_check_of_stopped_partitions_says_nothing_about_those_that_are_read)
{
    struct service *s = service_new(LIVE, 2);
    append(&s->log, 0, 1);
    append(&s->log, 1, 1);
    service_serve(s);
    uint32_t checks = s->log.checks, questions = s->log.questions;
    s->log.partitions[1].gone = true;
    service_run(s);
    s->log.partitions[1].gone = false;
    fr_clock_fake_advance_ms(&s->clock, 20000);
    service_run(s);
    append(&s->log, 1, 1);
    service_run(s);
    assert_true(s->log.questions > questions && s->log.partitions[1].begun == 1);
    assert_int_equal(s->log.checks, checks);
}

FR_CASE(a_minutes_look_without_an_answer_stops_nothing)
{
    struct service *s = reading(LIVE);
    brokers.mute = true;
    fr_clock_fake_advance_ms(&s->clock, 60000);
    append(&s->log, 0, 1);
    service_run(s);
    assert_int_equal(trained(s), 11);
    assert_int_equal(s->log.partitions[0].begun, 0);
}

FR_CASE(a_topic_that_is_compacted_while_it_is_read_stops_the_service)
{
    struct service *s = reading(LIVE);
    brokers.compacted = true;
    service_run(s);
    fr_clock_fake_advance_ms(&s->clock, 60000);
    assert_int_equal(fails(s), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "compacted"));
}

FR_CASE(lockstep_asks_after_a_gap_too)
{
    struct service *s = with_brokers(", lockstep: {records: 2, epoch_batches: 4}");
    for (int i = 0; i < 20; i++)
        append(&s->log, 0, 1);
    assert_int_equal(service_start(s, true), FR_OK);
    while (s->positions.count == 0 || s->positions.partitions[0].offset < 10)
        assert_true(service_step(s, 1) >= 0);
    s->log.partitions[0].records[s->positions.partitions[0].offset + RING].timestamp_ms++;
    for (int i = 0; i < 20; i++)
        s->log.partitions[0].records[i].timestamp_ms++;
    brokers.gap = true;
    enum fr_status status = FR_OK;
    for (int i = 0; i < 100 && status >= 0; i++)
        status = service_step(s, 1);
    assert_int_equal(status, FR_E_MISMATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(a_topic_created_again_in_a_gap_is_a_loss_before_a_record_of_it_is_trained),
        SERVICE_CASE(on_loss_goes_by_policy_after_a_gap),
        SERVICE_CASE(the_same_log_is_read_on_after_a_gap),
        SERVICE_CASE(what_was_fetched_before_retention_took_it_is_no_loss_after_a_gap),
        SERVICE_CASE(nothing_takes_effect_until_the_question_is_answered),
        SERVICE_CASE(a_partition_whose_leader_moved_is_asked_about_and_begun_again),
        SERVICE_CASE(what_another_connection_gives_is_fetched_again),
        SERVICE_CASE(where_reading_begins_at_the_end_the_record_before_is_the_fingerprint),
        SERVICE_CASE(once_a_minute_the_record_of_the_minute_before_is_looked_at),
        SERVICE_CASE(a_minutes_look_waits_until_the_record_at_hand_is_in_effect),
        SERVICE_CASE(a_minutes_look_comes_between_two_records_while_the_trainer_is_slower),
        SERVICE_CASE(a_minutes_look_waits_until_what_is_held_is_in_effect),
        SERVICE_CASE(what_is_held_and_fetched_again_counts_once_and_waits_as_long),
        SERVICE_CASE(a_check_of_stopped_partitions_says_nothing_about_those_that_are_read),
        SERVICE_CASE(a_minutes_look_without_an_answer_stops_nothing),
        SERVICE_CASE(a_topic_that_is_compacted_while_it_is_read_stops_the_service),
        SERVICE_CASE(lockstep_asks_after_a_gap_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
