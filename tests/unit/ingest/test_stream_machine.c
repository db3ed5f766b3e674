/* The table of a stream's transitions, walked: every state has a row and is reached, each event is
 * accepted and refused where it is listed here, and ingest itself makes every transition.
 *
 * fr_stream_change_state is wrapped by the linker, so that the cases see each change. */
#include "files_of.h"

#include "../../../ingest/streams.h"

#define NAME(name) FR_STREAM_##name,
static const enum fr_stream_state states[] = {FR_STREAM_STATE_LIST(NAME)};
static const enum fr_stream_event events[] = {FR_STREAM_EVENT_LIST(NAME)};
#undef NAME

enum { N_STATES = FR_ARRAY_LEN(states), N_EVENTS = FR_ARRAY_LEN(events) };

/* ---- the table ---- */

/* An event, the state that follows it, and those in which it happens; all others refuse it. */
struct row {
    enum fr_stream_event event;
    enum fr_stream_state to, from[N_STATES + 1]; /* from: up to NO_STATE */
};

#define STOPPED FR_STREAM_NEW, FR_STREAM_WAITS, FR_STREAM_GONE, FR_STREAM_READY, FR_STREAM_HALTED
#define READ FR_STREAM_READS, FR_STREAM_CUT, FR_STREAM_AT_END

static const struct row rows[] = {
    {FR_STREAM_CHECK_PASSED, FR_STREAM_READY, {STOPPED}},
    {FR_STREAM_CHECK_FAILED, FR_STREAM_WAITS, {STOPPED}},
    {FR_STREAM_TOPIC_MISSING, FR_STREAM_WAITS, {FR_STREAM_NEW, FR_STREAM_READY, FR_STREAM_HALTED}},
    {FR_STREAM_TOPIC_MISSING, FR_STREAM_GONE, {FR_STREAM_WAITS, FR_STREAM_GONE}},
    {FR_STREAM_BEGUN, FR_STREAM_READS, {FR_STREAM_READY}},
    {FR_STREAM_BEGUN_AT_MARK, FR_STREAM_VERIFIES, {FR_STREAM_READY}},
    {FR_STREAM_BEGUN_AT_END, FR_STREAM_AT_END, {FR_STREAM_READY}},
    {FR_STREAM_MARK_MATCHED, FR_STREAM_READS, {FR_STREAM_VERIFIES}},
    {FR_STREAM_RECORD_CAME, FR_STREAM_READS, {FR_STREAM_CUT, FR_STREAM_AT_END}},
    {FR_STREAM_RECORD_CUT, FR_STREAM_CUT, {FR_STREAM_READS}},
    {FR_STREAM_END_CAME, FR_STREAM_AT_END, {FR_STREAM_READS, FR_STREAM_AT_END}},
    {FR_STREAM_RESTARTED, FR_STREAM_HALTED, {READ}},
    {FR_STREAM_FAILED, FR_STREAM_HALTED, {READ}},
    {FR_STREAM_FINISHED, FR_STREAM_DONE, {FR_STREAM_NEW, FR_STREAM_READY, FR_STREAM_READS, FR_STREAM_AT_END}},
};

/* The state that is listed above; NO_STATE: the event is refused. */
static enum fr_stream_state listed(enum fr_stream_state from, enum fr_stream_event event)
{
    for (size_t r = 0; r < FR_ARRAY_LEN(rows); r++)
        for (size_t i = 0; rows[r].event == event && rows[r].from[i] != FR_STREAM_NO_STATE; i++)
            if (rows[r].from[i] == from)
                return rows[r].to;
    return FR_STREAM_NO_STATE;
}

static enum fr_stream_state follows(enum fr_stream_state from, enum fr_stream_event event)
{
    const struct fr_stream_transition *transition = fr_stream_transition(from, event);
    return transition ? transition->to : FR_STREAM_NO_STATE;
}

FR_CASE(an_event_leads_where_it_is_listed_and_is_refused_in_all_other_states)
{
    for (size_t s = 0; s < N_STATES; s++)
        for (size_t e = 0; e < N_EVENTS; e++)
            if (follows(states[s], events[e]) != listed(states[s], events[e]))
                fail_msg("%s leads from %s to \"%s\", not to \"%s\"", fr_stream_event_name(events[e]),
                         fr_stream_state_name(states[s]), fr_stream_state_name(follows(states[s], events[e])),
                         fr_stream_state_name(listed(states[s], events[e])));
}

/* ---- what ingest does ---- */

static bool made[FR_STREAM_STATES][FR_STREAM_EVENTS];
static enum fr_stream_state now[LOG_PARTITIONS + FILES]; /* of each stream, after its last event */

void __real_fr_stream_change_state(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_stream_event event);
void __wrap_fr_stream_change_state(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_stream_event event);
void __wrap_fr_stream_change_state(struct fr_ingest *ingest, struct fr_stream *stream, enum fr_stream_event event)
{
    made[stream->state][event] = true;
    __real_fr_stream_change_state(ingest, stream, event);
    now[stream->stream_index] = stream->state;
}

#define ASSERT_STATE(stream, name)                                                                                     \
    if (now[stream] != FR_STREAM_##name)                                                                               \
    fail_msg("%s:%d: stream %d is in state %s", __FILE__, __LINE__, (int)(stream), fr_stream_state_name(now[stream]))

/* What happened to the connections since the last poll. */
static enum fr_source_event_kind contact;
static bool mute; /* no question is answered; reading continues */

static enum fr_status poll_contact(void *self, int64_t partition, int wait_ms, struct fr_source_event *out,
                                   struct fr_err *err)
{
    if (contact == FR_SOURCE_RECORD)
        return log_poll(self, partition, wait_ms, out, err);
    *out = (struct fr_source_event){.kind = contact};
    contact = FR_SOURCE_RECORD;
    return FR_OK;
}

static enum fr_status ask_offsets(void *self, int64_t when, struct fr_source_answer *answers, uint32_t n,
                                  struct fr_err *err)
{
    return mute ? fr_err_set(err, FR_E_UNAVAILABLE, "no offsets") : log_offsets(self, when, answers, n, err);
}

static struct service *service_of(const char *ingest, uint32_t n_partitions)
{
    struct service *s = service_new(ingest, n_partitions);
    s->source.poll = poll_contact;
    s->source.offsets = ask_offsets;
    contact = FR_SOURCE_RECORD;
    mute = false;
    return s;
}

static void set_gone(struct service *s, uint32_t partition, bool gone, bool absent)
{
    s->log.partitions[partition].gone = gone;
    s->log.partitions[partition].absent = absent;
}

/* Runs once any waiting time between two checks is over. */
static void run_later(struct service *s)
{
    fr_clock_fake_advance_ms(&s->clock, 17000);
    service_run(s);
}

static void lose_contact(struct service *s, enum fr_source_event_kind how)
{
    contact = how;
    service_run(s);
}

FR_CASE(a_partition_waits_until_it_can_be_read_and_is_gone_when_its_topic_is_missing_twice)
{
    struct service *s = service_of(", batch_size: 1", 3);
    append(&s->log, 0, 1);
    set_gone(s, 1, true, false);
    set_gone(s, 2, true, true);
    service_serve(s);
    ASSERT_STATE(0, AT_END);
    ASSERT_STATE(1, WAITS);
    ASSERT_STATE(2, WAITS);
    set_gone(s, 2, false, false);
    run_later(s);
    ASSERT_STATE(1, WAITS);
    ASSERT_STATE(2, AT_END); /* an empty one */
    set_gone(s, 1, true, true);
    run_later(s);
    ASSERT_STATE(1, GONE);
    run_later(s);
    ASSERT_STATE(1, GONE);
    set_gone(s, 1, true, false);
    run_later(s);
    ASSERT_STATE(1, WAITS);
    set_gone(s, 1, true, true);
    run_later(s);
    ASSERT_STATE(1, GONE);
    set_gone(s, 1, false, false);
    append(&s->log, 1, 1);
    run_later(s);
    ASSERT_STATE(1, AT_END);
    assert_int_equal(s->positions.partitions[1].trained, 1);
}

FR_CASE(a_bounded_run_checks_ready_streams_again_until_all_are_and_reads_each_to_its_end)
{
    struct service *s = service_of(", batch_size: 1", 3);
    append(&s->log, 0, 2);
    set_gone(s, 2, true, false);
    assert_int_equal(service_start(s, true), FR_E_UNAVAILABLE);
    ASSERT_STATE(0, READY);
    assert_int_equal(fr_ingest_start(s->ingest, &s->err), FR_E_UNAVAILABLE);
    ASSERT_STATE(0, READY);
    set_gone(s, 0, true, false);
    set_gone(s, 1, true, true);
    assert_int_equal(fr_ingest_start(s->ingest, &s->err), FR_E_UNAVAILABLE);
    ASSERT_STATE(0, WAITS);
    ASSERT_STATE(1, WAITS); /* asked for the first time since it was there */
    for (uint32_t p = 0; p < 3; p++)
        set_gone(s, p, false, false);
    assert_int_equal(fr_ingest_start(s->ingest, &s->err), FR_OK);
    ASSERT_STATE(0, READS);
    ASSERT_STATE(1, DONE); /* an empty one */
    service_run(s);
    ASSERT_STATE(0, DONE);
}

FR_CASE(a_stream_at_its_end_reads_on_when_a_record_comes)
{
    struct service *s = service_of(", batch_size: 1", 1);
    service_serve(s);
    ASSERT_STATE(0, AT_END);
    append(&s->log, 0, 1);
    service_run(s);
    ASSERT_STATE(0, AT_END);
    skip_offsets(&s->log, 0, 1); /* only a marker: another end */
    service_run(s);
    ASSERT_STATE(0, AT_END);
    append(&s->log, 0, 2);
    append(&s->log, 0, 1);
    s->log.partitions[0].available = 2;
    service_run(s);
    ASSERT_STATE(0, READS);
}

FR_CASE(a_stream_is_halted_and_checked_when_reading_fails_or_contact_was_lost)
{
    /* 1: it reads, 2: it is at its end */
    for (uint32_t available = 1; available <= 2; available++) {
        struct service *s = service_of(", batch_size: 1", 1);
        struct log_partition *p = &s->log.partitions[0];
        append(&s->log, 0, 1);
        append(&s->log, 0, 1);
        p->available = available;
        service_serve(s);
        lose_contact(s, FR_SOURCE_CONNECTED); /* restarted, and passed */
        p->gone = true;
        service_run(s); /* failed; it is checked a second later */
        ASSERT_STATE(0, HALTED);
        run_later(s);
        ASSERT_STATE(0, WAITS);
        p->gone = false;
        run_later(s);
        mute = true;
        lose_contact(s, FR_SOURCE_GAP); /* failed, and there is no answer */
        ASSERT_STATE(0, HALTED);
        mute = false;
        p->gone = p->absent = true;
        run_later(s);
        ASSERT_STATE(0, WAITS); /* its topic is missing for the first time */
        p->gone = p->absent = false;
        p->available = 2;
        run_later(s);
        ASSERT_STATE(0, AT_END);
        assert_int_equal(s->positions.partitions[0].trained, 2);
        service_free(s);
    }
}

FR_CASE(a_record_that_a_round_cuts_waits_for_the_next_round_or_is_read_again)
{
    for (int how = 0; how < 3; how++) {
        struct service *s = service_of(", record_max: 16MiB, lockstep: {records: 1, epoch_batches: 4}", 2);
        append(&s->log, 0, 1);
        append(&s->log, 0, 1);
        append(&s->log, 1, 70000);
        s->log.partitions[0].available = 1; /* the next round waits for this partition */
        assert_int_equal(service_start(s, true), FR_OK);
        service_run(s);
        ASSERT_STATE(1, CUT);
        mute = how == 2;
        lose_contact(s, how == 0 ? FR_SOURCE_RECORD : how == 1 ? FR_SOURCE_CONNECTED : FR_SOURCE_GAP);
        if (how == 2)
            ASSERT_STATE(1, HALTED);
        mute = false;
        s->log.partitions[0].available = 2;
        run_later(s);
        ASSERT_STATE(1, DONE);
        assert_int_equal(s->positions.partitions[0].trained, 2);
        assert_int_equal(s->positions.partitions[1].trained, 70000);
        service_free(s);
    }
}

FR_CASE(a_file_is_verified_at_its_mark_and_done_at_its_end)
{
    struct service *s = service_of(", batch_size: 4", 1);
    add_file(s, "a.jsonl", lines(0, 10));
    add_file(s, "b.jsonl", lines(10, 1));
    append(&s->log, 0, 1);
    assert_int_equal(service_start(s, false), FR_OK);
    while (s->n_batches < 1)
        assert_true(service_step(s, 1) >= 0);
    service_kill(s);
    assert_int_equal(service_start(s, false), FR_OK);
    ASSERT_STATE(0, VERIFIES);
    ASSERT_STATE(1, READY); /* its turn is not yet */
    run_later(s);
    ASSERT_STATE(0, DONE);
    ASSERT_STATE(1, DONE);
    run_later(s);
    service_kill(s);
    memset(now, 0, sizeof(now));
    service_serve(s); /* records of topics are in effect: files are not even opened */
    ASSERT_STATE(0, DONE);
    files_free(s);
}

FR_CASE(ingest_makes_every_transition_of_the_table)
{
    memset(made, 0, sizeof(made));
    a_partition_waits_until_it_can_be_read_and_is_gone_when_its_topic_is_missing_twice(state);
    a_bounded_run_checks_ready_streams_again_until_all_are_and_reads_each_to_its_end(state);
    a_stream_at_its_end_reads_on_when_a_record_comes(state);
    a_stream_is_halted_and_checked_when_reading_fails_or_contact_was_lost(state);
    a_record_that_a_round_cuts_waits_for_the_next_round_or_is_read_again(state);
    a_file_is_verified_at_its_mark_and_done_at_its_end(state);
    unsigned missing = 0;
    for (size_t s = 0; s < N_STATES; s++)
        for (size_t e = 0; e < N_EVENTS; e++)
            if (fr_stream_transition(states[s], events[e]) && !made[states[s]][events[e]]) {
                print_error("no case makes %s in %s\n", fr_stream_event_name(events[e]),
                            fr_stream_state_name(states[s]));
                missing++;
            }
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_leads_where_it_is_listed_and_is_refused_in_all_other_states),
        SERVICE_CASE(a_partition_waits_until_it_can_be_read_and_is_gone_when_its_topic_is_missing_twice),
        SERVICE_CASE(a_bounded_run_checks_ready_streams_again_until_all_are_and_reads_each_to_its_end),
        SERVICE_CASE(a_stream_at_its_end_reads_on_when_a_record_comes),
        SERVICE_CASE(a_stream_is_halted_and_checked_when_reading_fails_or_contact_was_lost),
        SERVICE_CASE(a_record_that_a_round_cuts_waits_for_the_next_round_or_is_read_again),
        SERVICE_CASE(a_file_is_verified_at_its_mark_and_done_at_its_end),
        SERVICE_CASE(ingest_makes_every_transition_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
