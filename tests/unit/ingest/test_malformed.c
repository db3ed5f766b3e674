/* What an operator sees of malformed records, and what happens at a start that reads only such
 * records. */
#include "fixture.h"
#include "status_of.h"

/* A record of the log with these bytes. */
static void append_text(struct fake_log *log, const char *text)
{
    append(log, 0, -1);
    struct log_partition *p = &log->partitions[0];
    free(p->records[p->n - 1].value);
    p->records[p->n - 1].value = fr_strdup(text);
}

FR_CASE(refusals_are_counted_by_kind_and_the_last_one_is_shown)
{
    struct service *s = service_new(", batch_size: 100", 1);
    const struct {
        const char *text;
        enum fr_malformed kind;
    } records[] = {
        {"", FR_MALFORMED_EMPTY},
        {"nonsense", FR_MALFORMED_SYNTAX},
        {"{\"f\":{\"user_id\":1},\"y\":{\"click\":1}", FR_MALFORMED_SYNTAX},
        {"7", FR_MALFORMED_FORM},
        {"{\"f\":{},\"y\":1,\"n\":2}", FR_MALFORMED_FORM},
        {"{\"y\":1}", FR_MALFORMED_FORM},
        {"{\"f\":{\"user_id\":true},\"y\":1}", FR_MALFORMED_SLOTS},
        {"{\"f\":{},\"y\":7}", FR_MALFORMED_LABELS},
        {"{\"f\":{},\"y\":-1}", FR_MALFORMED_SIGNED},
        {"{\"f\":{},\"y\":1,\"w\":-1}", FR_MALFORMED_WEIGHTS},
        {"{\"f\":{},\"y\":1,\"t\":5}", FR_MALFORMED_TIME},
        {"[[[[[[[[[[[[1]]]]]]]]]]]]", FR_MALFORMED_FORM},
    };
    uint64_t expected[FR_MALFORMED_KINDS] = {0};
    append(&s->log, 0, 1);
    for (size_t i = 0; i < FR_ARRAY_LEN(records); i++) {
        append_text(&s->log, records[i].text);
        expected[records[i].kind]++;
    }
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 2000); /* from the tenth in a row on, records wait */
    service_run(s);
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.malformed, FR_ARRAY_LEN(records));
    for (int kind = 0; kind < FR_MALFORMED_KINDS; kind++)
        if (status.malformed_kinds[kind] != expected[kind])
            fail_msg("%s: %llu", fr_malformed_names[kind], (unsigned long long)status.malformed_kinds[kind]);
    assert_string_equal(status.last_malformed.topic, "samples");
    assert_int_equal(status.last_malformed.offset, FR_ARRAY_LEN(records));
    assert_string_equal(status.last_malformed.reason, s->dead.letters[FR_ARRAY_LEN(records) - 1].reason);
}

FR_CASE(a_share_of_malformed_records_is_a_problem_for_a_minute)
{
    struct service *s = service_new(", batch_size: 1, malformed_max: 0.2", 1);
    for (int i = 0; i < 50; i++)
        append(&s->log, 0, i % 5 == 1 ? -1 : 1);
    service_serve(s);
    assert_string_equal(status_of(s).problem, ""); /* 10 of 50 are not above 0.2 */
    append(&s->log, 0, -1);
    service_run(s);
    struct fr_ingest_status status = status_of(s);
    assert_non_null(strstr(status.problem, "11 of the last minute's 51 records are malformed"));
    assert_non_null(strstr(status.problem, "samples/0 offset 50"));
    assert_int_equal(status.pause, FR_INGEST_READS);
    fr_clock_fake_advance_ms(&s->clock, 71000);
    service_run(s);
    assert_string_equal(status_of(s).problem, "");
    assert_true(status_of(s).malformed_share == 0.0);
}

/* ---- a start that reads nothing else ---- */

FR_CASE(a_wrong_format_pauses_reading_before_anything_took_effect)
{
    struct service *s = service_new(", batch_size: 4, batch_wait: 20ms", 2);
    s->conf->ingest.format = FR_FORMAT_MSGPACK;
    s->dead.forget = true;
    for (int i = 0; i < 1500; i++)
        append(&s->log, (uint32_t)i % 2, 1);
    assert_int_equal(service_start(s, false), FR_OK);
    for (int i = 0; i < 20; i++) {
        assert_true(service_step(s, RING) >= 0);
        fr_clock_fake_advance_ms(&s->clock, 1000);
    }
    struct fr_ingest_status status = status_of(s);
    assert_int_equal(status.pause, FR_INGEST_PAUSED_RECORDS);
    assert_non_null(strstr(status.problem, "looks like json and the format is msgpack"));
    assert_int_equal(status.malformed, 1000);
    s->dead.full = true; /* another problem does not hide this one */
    assert_int_equal(service_step(s, RING), FR_AGAIN);
    assert_non_null(strstr(status_of(s).problem, "looks like json and the format is msgpack"));
    s->dead.full = false;
    fr_clock_fake_advance_ms(&s->clock, 3600000); /* an hour passes, and no position moves */
    assert_int_equal(service_step(s, RING), FR_AGAIN);
    assert_int_equal(s->n_batches, 0);
    /* The operator corrects it: nothing was lost. */
    service_kill(s);
    s->conf->ingest.format = FR_FORMAT_JSON;
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].trained + s->positions.partitions[1].trained, 1500);
    assert_int_equal(s->positions.partitions[0].dead_lettered, 0);
}

FR_CASE(what_to_do_about_a_format_goes_by_what_the_records_look_like)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *said;
    } forms[] = {
        {"\x81\xa1", 2, "looks like msgpack and the format is json): correct ingest.format and restart"},
        {"\0\0\0\1\7Avro", 9, "send MessagePack or JSON without that framing and restart"},
        {"\x1f\x8b\x08\x01", 4, "send values uncompressed"},
        {"user=1", 6, "correct ingest.format or what is sent and restart"},
        {"{\"f\": {", 7, "correct what is sent, which begins as the format does and is not valid, and restart"},
        {"", 0, "the record is empty): correct what is sent"},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(forms); i++) {
        struct service *s = service_new(", batch_size: 4", 1);
        struct log_partition *p = &s->log.partitions[0];
        for (int n = 0; n < 10; n++) {
            append_text(&s->log, "");
            free(p->records[p->n - 1].value);
            p->records[p->n - 1].value = fr_alloc(1, forms[i].size + 1);
            p->records[p->n - 1].size = forms[i].size;
            memcpy(p->records[p->n - 1].value, forms[i].bytes, forms[i].size);
        }
        assert_int_equal(service_start(s, true), FR_OK);
        enum fr_status status = FR_OK;
        for (int n = 0; n < 100 && status >= 0 && status != FR_EOF; n++)
            status = service_step(s, RING);
        assert_int_equal(status, FR_E_INVALID);
        if (!strstr(s->err.text, forms[i].said))
            fail_msg("%s", s->err.text);
    }
}

FR_CASE(an_operator_may_pass_over_any_number)
{
    struct service *s = service_new(", batch_size: 4, batch_wait: 20ms, malformed_max: 1", 1);
    s->dead.forget = true;
    for (int i = 0; i < 1200; i++)
        append(&s->log, 0, -1);
    append(&s->log, 0, 4);
    service_serve(s);
    assert_int_equal(status_of(s).pause, FR_INGEST_READS);
    assert_int_equal(s->positions.partitions[0].dead_lettered, 1200);
    assert_int_equal(s->positions.partitions[0].trained, 4);
}

FR_CASE(malformed_records_wait_for_the_first_good_one_or_a_minute)
{
    for (int good = 0; good < 2; good++) {
        struct service *s = service_new(", batch_size: 100, batch_wait: 20ms", 1);
        for (int i = 0; i < 5; i++)
            append(&s->log, 0, -1);
        service_serve(s);
        fr_clock_fake_advance_ms(&s->clock, 30000);
        service_run(s);
        assert_int_equal(s->n_batches, 0);
        assert_int_equal(s->dead.n, 0); /* a letter would be of a record that may be read again */
        if (good)
            append(&s->log, 0, 1);
        else
            fr_clock_fake_advance_ms(&s->clock, 31000);
        service_run(s);
        assert_int_equal(s->dead.n, 5);
        fr_clock_fake_advance_ms(&s->clock, 20);
        service_run(s);
        assert_int_equal(s->n_batches, 1);
        assert_int_equal(s->last[0].offset, 5 + good);
    }
}

/* Between malformed records that trickle in, the source reports its end several times. */
FR_CASE(after_malformed_records_that_waited_the_end_of_the_log_is_the_last_that_was_reported)
{
    struct service *s = service_new(", batch_size: 100, batch_wait: 20ms", 1);
    append(&s->log, 0, -1);
    service_serve(s);
    append(&s->log, 0, -1);
    service_run(s);
    assert_false(status_of(s).at_end);
    fr_clock_fake_advance_ms(&s->clock, 61000);
    service_run(s);
    assert_int_equal(s->dead.n, 2);
    assert_true(status_of(s).at_end);
    assert_int_equal(status_of(s).lag_ms, 0);
}

FR_CASE(a_bounded_run_of_nothing_but_malformed_records_fails)
{
    for (int lockstep = 0; lockstep < 2; lockstep++) {
        struct service *s = service_new(lockstep ? ", batch_size: 4, lockstep: {records: 2}" : ", batch_size: 4", 1);
        for (int i = 0; i < 10; i++)
            append(&s->log, 0, -1);
        assert_int_equal(service_start(s, true), FR_OK);
        enum fr_status status = FR_OK;
        for (int i = 0; i < 100 && status >= 0 && status != FR_EOF; i++)
            status = service_step(s, RING);
        assert_int_equal(status, FR_E_INVALID);
        assert_non_null(strstr(s->err.text, "all 10 records since the start are malformed"));
        assert_int_equal(s->n_batches, 0); /* no position moved */
        assert_true(s->dead.n == 0 || s->dead.withheld);
        /* With one good record, or with few records left at the end of the log, the run ends
         * well. */
        service_kill(s);
        free(s->ends);
        s->ends = NULL;
        append(&s->log, 0, 1);
        assert_int_equal(service_start(s, true), FR_OK);
        service_run(s);
        service_kill(s);
        free(s->ends);
        s->ends = NULL;
        append(&s->log, 0, -1);
        assert_int_equal(service_start(s, true), FR_OK);
        service_run(s);
        assert_true(s->end_of_stream);
        assert_int_equal(s->positions.partitions[0].dead_lettered, 11);
        assert_int_equal(s->positions.partitions[0].trained, 1);
    }
}

/* The end that is seen is where the transaction begins: the run's lies after it. */
FR_CASE(a_bounded_run_whose_end_is_all_malformed_fails)
{
    struct service *s = service_new(", batch_size: 4", 1);
    append(&s->log, 0, 1);
    for (int i = 0; i < 1000; i++)
        append(&s->log, 0, -1);
    assert_int_equal(service_start(s, true), FR_OK);
    enum fr_status status = FR_OK;
    for (int i = 0; i < 2000 && status >= 0 && status != FR_EOF; i++)
        status = service_step(s, RING);
    assert_int_equal(status, FR_E_INVALID);
    assert_non_null(strstr(s->err.text, "all of the last 1000 records are malformed"));
    assert_true(s->dead.n < 10);
}

FR_CASE(a_bounded_run_waits_for_an_open_transaction_before_it_says_that_all_is_malformed)
{
    struct service *s = service_new(", batch_size: 4", 1);
    for (int i = 0; i < 10; i++)
        append(&s->log, 0, -1);
    append(&s->log, 0, 1);
    s->log.partitions[0].open_from = 10;
    assert_int_equal(service_start(s, true), FR_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(service_step(s, RING) < 0, false);
    s->log.partitions[0].open_from = 0;
    s->log.partitions[0].end_reported = false;
    service_run(s);
    assert_true(s->end_of_stream);
    assert_int_equal(s->positions.partitions[0].dead_lettered, 10);
    assert_int_equal(s->positions.partitions[0].trained, 1);
}

FR_CASE(large_refused_records_of_a_running_service_take_effect_when_no_more_can_be_held)
{
    struct service *s = service_new(", batch_size: 1", 1);
    char *text = malloc((1 << 20) + 1);
    memset(text, 'x', 1 << 20);
    text[1 << 20] = 0;
    append(&s->log, 0, 1);
    for (int i = 0; i < 40; i++)
        append_text(&s->log, text);
    append(&s->log, 0, 1);
    free(text);
    service_serve(s);
    assert_int_equal(status_of(s).pause, FR_INGEST_READS);
    assert_int_equal(s->positions.partitions[0].dead_lettered, 40);
    assert_int_equal(s->positions.partitions[0].trained, 2);
}

/* ---- slots ---- */

FR_CASE(unknown_slots_are_named_and_known_ones_counted)
{
    struct service *s = service_new(", batch_size: 3", 1);
    append_text(&s->log, "{\"f\":{\"userid\":1},\"y\":1}");
    append_text(&s->log, "{\"f\":{\"user_id\":1,\"a\\\"b\":2},\"y\":1}");
    append_text(&s->log, "{\"shared\":{\"user_id\":4},\"items\":[{\"f\":{},\"y\":1},{\"f\":{\"userid\":1},\"y\":1}]}");
    append_text(&s->log, "{\"f\":{\"user_id\":null},\"y\":1}");
    service_serve(s);
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_int_equal(status.unknown.slots.n, 2);
    assert_string_equal(status.unknown.slots.names[0], "userid");
    assert_int_equal(status.unknown.slots.counts[0], 2);
    assert_string_equal(status.unknown.slots.names[1], "a\"b");
    assert_int_equal(status.unknown.slots.counts[FR_UNKNOWN_OTHERS], 0);
    assert_int_equal(status.n_slots, 1);
    assert_int_equal(status.present[0], 3);
    fr_ingest_status_release(&status);
    for (int i = 0; i < 8; i++) {
        char text[64];
        snprintf(text, sizeof(text), "{\"f\":{\"n%d\":1},\"y\":1}", i);
        append_text(&s->log, text);
    }
    service_run(s);
    assert_int_equal(status_of(s).unknown.slots.n, FR_UNKNOWN_NAMES_MAX);
    assert_int_equal(status_of(s).unknown.slots.counts[FR_UNKNOWN_OTHERS], 2);
}

/* What begins a trial of labels, and what comes in it, is decoded twice. */
FR_CASE(what_is_held_counts_its_unknown_names_once_and_goes_nowhere_yet)
{
    struct service *s = service_new(", batch_size: 100, malformed_max: 0.2", 1);
    append(&s->log, 0, 1);
    append_text(&s->log, "{\"f\":{\"userid\":1},\"y\":1}");
    append_text(&s->log, "{\"f\":{},\"y\":-1}");
    append_text(&s->log, "{\"f\":{\"userid\":1},\"y\":1}");
    for (int i = 0; i < 9; i++)
        append(&s->log, 0, -1);
    service_serve(s);
    assert_int_equal(status_of(s).unknown.slots.counts[0], 1);
    assert_non_null(strstr(status_of(s).problem, "; they wait until it is known"));
    fr_clock_fake_advance_ms(&s->clock, 2000);
    service_run(s);
    assert_int_equal(status_of(s).unknown.slots.counts[0], 2);
    assert_non_null(strstr(status_of(s).problem, "; they go to the dead-letter topic"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(refusals_are_counted_by_kind_and_the_last_one_is_shown),
        SERVICE_CASE(a_share_of_malformed_records_is_a_problem_for_a_minute),
        SERVICE_CASE(a_wrong_format_pauses_reading_before_anything_took_effect),
        SERVICE_CASE(what_to_do_about_a_format_goes_by_what_the_records_look_like),
        SERVICE_CASE(an_operator_may_pass_over_any_number),
        SERVICE_CASE(malformed_records_wait_for_the_first_good_one_or_a_minute),
        SERVICE_CASE(after_malformed_records_that_waited_the_end_of_the_log_is_the_last_that_was_reported),
        SERVICE_CASE(a_bounded_run_of_nothing_but_malformed_records_fails),
        SERVICE_CASE(a_bounded_run_whose_end_is_all_malformed_fails),
        SERVICE_CASE(a_bounded_run_waits_for_an_open_transaction_before_it_says_that_all_is_malformed),
        SERVICE_CASE(large_refused_records_of_a_running_service_take_effect_when_no_more_can_be_held),
        SERVICE_CASE(what_is_held_counts_its_unknown_names_once_and_goes_nowhere_yet),
        SERVICE_CASE(unknown_slots_are_named_and_known_ones_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
