/* Skipped ranges: their samples are counted and never trained, they are kept with the positions,
 * and what cannot be passed over is refused. */
#include "fixture.h"

static void ask(struct service *s, const char *text)
{
    assert_true(s->n_skips < FR_ARRAY_LEN(s->skips));
    assert_true(fr_ingest_skip_parse(text, &s->skips[s->n_skips++], &s->err));
}

/* Ends the service and gives the next start another command line. */
static void restart(struct service *s, const char *text)
{
    service_kill(s);
    s->n_skips = 0;
    if (text)
        ask(s, text);
}

static void assert_refused(struct service *s, const char *text, enum fr_status status, const char *reason)
{
    restart(s, text);
    assert_int_equal(service_start(s, false), status);
    if (!strstr(s->err.text, reason))
        fail_msg("%s: %s", text, s->err.text);
    service_kill(s);
    s->n_skips = 0;
}

FR_CASE(a_range_is_topic_partition_and_two_offsets)
{
    struct fr_ingest_skip skip;
    struct fr_err err = {0};
    assert_true(fr_ingest_skip_parse("samples:3:12-12", &skip, &err));
    assert_string_equal(skip.topic, "samples");
    assert_int_equal(skip.partition, 3);
    assert_int_equal(skip.range.first, 12);
    assert_int_equal(skip.range.last, 12);
    assert_true(fr_ingest_skip_parse("file:/a:b-c/d.jsonl:0:0-9223372036854775807", &skip, &err));
    assert_string_equal(skip.topic, "file:/a:b-c/d.jsonl");
    assert_int_equal(skip.range.last, INT64_MAX);
    const char *const bad[] = {"",
                               ":",
                               "::",
                               "samples",
                               "samples:0",
                               "0:1-2",
                               ":0:1-2",
                               "samples:0:1",
                               "samples:0:-2",
                               "samples:0:1-",
                               "samples:0:1-2-3",
                               "samples:0:2-1",
                               "samples:0: 1-2",
                               "samples:0:1-2 ",
                               "samples:0:+1-2",
                               "samples::1-2",
                               "samples:x:1-2",
                               "samples:-1:1-2",
                               "samples:2147483648:1-2",
                               "samples:0:1-9223372036854775808",
                               "samples:0:1-99999999999999999999"};
    for (size_t i = 0; i < FR_ARRAY_LEN(bad); i++) {
        err.text[0] = 0;
        if (fr_ingest_skip_parse(bad[i], &skip, &err))
            fail_msg("accepted: %s", bad[i]);
        assert_true(err.text[0] != 0);
    }
    char text[FR_TOPIC_MAX + 16];
    memset(text, 'a', FR_TOPIC_MAX);
    snprintf(text + FR_TOPIC_MAX - 1, 16, ":0:1-2");
    assert_true(fr_ingest_skip_parse(text, &skip, &err));
    snprintf(text + FR_TOPIC_MAX, 16, ":0:1-2");
    text[FR_TOPIC_MAX - 1] = 'a';
    assert_false(fr_ingest_skip_parse(text, &skip, &err));
}

FR_CASE(records_of_a_range_are_counted_and_not_trained)
{
    struct service *s = service_new("", 2);
    const int records[] = {1, 2, 3, -1, 0, 4, 1};
    for (size_t i = 0; i < FR_ARRAY_LEN(records); i++)
        append(&s->log, 0, records[i]);
    append(&s->log, 1, 5);
    ask(s, "samples:0:1-5");
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    const struct fr_partition_position *p = &s->positions.partitions[0];
    assert_int_equal(p->offset, 7);
    assert_int_equal(p->fingerprint_offset, 6);
    assert_int_equal(p->delivered, 7);
    assert_int_equal(p->decoded, 6);
    assert_int_equal(p->dead_lettered, 1); /* offset 3 is malformed */
    assert_int_equal(s->dead.letters[0].offset, 3);
    assert_int_equal(p->samples, 11);
    assert_int_equal(p->skipped, 9);
    assert_int_equal(p->trained, 2);
    assert_int_equal(s->positions.partitions[1].skipped, 0);
    assert_int_equal(s->positions.partitions[1].trained, 5);
    assert_int_equal(p->n_skips, 1);
    assert_int_equal(p->skips[0].first, 1);
    assert_int_equal(p->skips[0].last, 5);
    for (int number = 1; number < 10; number++)
        assert_int_equal(s->origins[number], 0); /* in no batch */
    assert_true(s->origins[0] != 0);
    assert_true(s->origins[10] != 0);
}

enum { KEPT_RECORDS = 30 };

/* Partition 0 has offsets 5 to 17 and 22 to 23 passed over, or never had records there. */
static struct service *spoiled(const char *options, bool without)
{
    struct service *s = service_new(options, 2);
    for (uint32_t i = 0; i < KEPT_RECORDS; i++) {
        bool out = (i >= 5 && i <= 17) || i == 22 || i == 23;
        int n = i % 3 == 0 ? 2 : 1;
        if (out && without) {
            skip_offsets(&s->log, 0, 1);
            s->log.made += (uint64_t)n;
        } else {
            append(&s->log, 0, n);
        }
        append(&s->log, 1, 1);
    }
    if (!without) {
        ask(s, "samples:0:5-17");
        ask(s, "samples:0:22-23");
    }
    return s;
}

FR_CASE(in_lockstep_batches_are_those_of_a_log_without_the_range_also_after_kills)
{
    static const char options[] = ", lockstep: {records: 3, epoch_batches: 4}";
    struct service *clean = spoiled(options, true);
    service_serve(clean);
    assert_non_null(strstr(written(clean), "end"));
    for (uint32_t kill_at = 0; kill_at <= 10; kill_at++) {
        struct service *s = spoiled(options, false);
        assert_int_equal(service_start(s, false), FR_OK);
        while (kill_at && s->n_batches < kill_at)
            assert_true(service_step(s, 1) >= 0);
        if (kill_at) {
            restart(s, NULL); /* recorded ranges apply without --skip */
            assert_int_equal(service_start(s, false), FR_OK);
        }
        service_run(s);
        assert_string_equal(written(s), written(clean));
        assert_memory_equal(s->origins, clean->origins, sizeof(s->origins));
        uint64_t skipped = s->positions.partitions[0].skipped;
        assert_int_equal(s->positions.partitions[0].samples - skipped, clean->positions.partitions[0].samples);
        assert_int_equal(skipped, 13 + 4 + 2);
        service_free(s);
    }
}

FR_CASE(a_young_model_grows_by_what_it_trained)
{
    static const char options[] = ", batch_size: 16, batch_warmup: {first: 2, growth: 4}, "
                                  "lockstep: {records: 3, epoch_batches: 4}";
    struct fr_buffer whole = {0};
    for (uint32_t kill_at = 0; kill_at <= 6; kill_at++) {
        struct service *s = spoiled(options, false);
        assert_int_equal(service_start(s, false), FR_OK);
        while (kill_at && s->n_batches < kill_at)
            assert_true(service_step(s, 1) >= 0);
        if (kill_at) {
            restart(s, "samples:0:5-17"); /* named again: the range is recorded already */
            assert_int_equal(service_start(s, false), FR_OK);
        }
        service_run(s);
        assert_int_equal(s->positions.partitions[0].skipped, 13 + 4 + 2);
        if (kill_at == 0)
            fr_buffer_append(&whole, written(s), strlen(written(s)) + 1);
        assert_string_equal(written(s), (const char *)whole.data);
        service_free(s);
    }
    fr_buffer_release(&whole);
}

FR_CASE(a_range_ahead_of_the_log_is_recorded_before_a_record_comes)
{
    struct service *s = service_new("", 1);
    append(&s->log, 0, 1);
    service_serve(s);
    restart(s, "samples:0:3-4");
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].n_skips, 1);
    restart(s, NULL);
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].offset, 6);
    assert_int_equal(s->positions.partitions[0].skipped, 2);
    assert_int_equal(s->positions.partitions[0].trained, 4);
}

FR_CASE(what_is_not_ahead_overlaps_or_is_not_read_is_refused)
{
    struct service *s = service_new(", batch_size: 2", 2);
    for (int i = 0; i < 4; i++)
        append(&s->log, 0, 1);
    append(&s->log, 0, 5); /* the owner applies two batches: two of its items are in effect */
    append(&s->log, 0, 1);
    append(&s->log, 1, 1);
    s->log.n_partitions = 1;
    assert_int_equal(service_start(s, false), FR_OK);
    while (s->n_batches < 3)
        assert_true(service_step(s, 1) >= 0);
    s->log.n_partitions = 2;
    assert_int_equal(s->positions.partitions[0].offset, 4);
    assert_int_equal(s->positions.partitions[0].item, 2);
    assert_refused(s, "samples:0:2-9", FR_E_MISMATCH, "before offset 5 has taken effect");
    assert_refused(s, "samples:0:4-4", FR_E_MISMATCH, "(of the last record a part has)");
    assert_refused(s, "samples:2:0-4", FR_E_INVALID,
                   "topic samples has 2 partitions, which count from 0: there is no 2");
    assert_refused(s, "sample:0:0-4", FR_E_INVALID, "reads no topic sample;");
    restart(s, "samples:0:5-7");
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].skipped, 1);
    assert_int_equal(s->positions.partitions[0].trained, 9);
    assert_refused(s, "samples:0:7-8", FR_E_MISMATCH, "overlaps the range 5-7, which is recorded");
    assert_refused(s, "samples:0:3-8", FR_E_MISMATCH, "before offset 6");
    restart(s, "samples:0:5-6"); /* lies in a recorded range */
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].n_skips, 1);
}

FR_CASE(a_partition_keeps_its_newest_ranges)
{
    struct service *s = service_new("", 1);
    char text[64];
    for (int i = 0; i < 4; i++)
        append(&s->log, 0, 1);
    for (int i = 0; i <= FR_SKIPS_MAX; i++) {
        snprintf(text, sizeof(text), "samples:0:%d-%d", 2 * i + 1, 2 * i + 1);
        ask(s, text);
    }
    assert_int_equal(service_start(s, false), FR_E_INVALID);
    assert_non_null(strstr(s->err.text, "16 ranges lie ahead"));
    service_kill(s);
    s->n_skips = FR_SKIPS_MAX;
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].skipped, 2); /* offsets 1 and 3 */
    assert_int_equal(s->positions.partitions[0].n_skips, FR_SKIPS_MAX);
    restart(s, text);
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].n_skips, FR_SKIPS_MAX);
    assert_int_equal(s->positions.partitions[0].skips[0].first, 3); /* offset 1 was dropped */
    assert_int_equal(s->positions.partitions[0].skips[FR_SKIPS_MAX - 1].first, 2 * FR_SKIPS_MAX + 1);
}

FR_CASE(a_topic_created_again_has_no_ranges)
{
    struct service *s = service_new(", on_loss: earliest", 1);
    for (int i = 0; i < 4; i++)
        append(&s->log, 0, 1);
    ask(s, "samples:0:6-7");
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].n_skips, 1);
    restart(s, NULL);
    for (uint32_t i = 0; i < s->log.partitions[0].n; i++)
        free(s->log.partitions[0].records[i].value);
    s->log.partitions[0].n = s->log.partitions[0].available = 0;
    s->log.partitions[0].high = 0;
    for (int i = 0; i < 10; i++)
        append(&s->log, 0, 2);
    service_serve(s);
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].n_skips, 0);
    assert_int_equal(s->positions.partitions[0].skipped, 0);
    assert_int_equal(s->positions.partitions[0].trained, 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_topic_partition_and_two_offsets),
        SERVICE_CASE(records_of_a_range_are_counted_and_not_trained),
        SERVICE_CASE(in_lockstep_batches_are_those_of_a_log_without_the_range_also_after_kills),
        SERVICE_CASE(a_young_model_grows_by_what_it_trained),
        SERVICE_CASE(a_range_ahead_of_the_log_is_recorded_before_a_record_comes),
        SERVICE_CASE(what_is_not_ahead_overlaps_or_is_not_read_is_refused),
        SERVICE_CASE(a_partition_keeps_its_newest_ranges),
        SERVICE_CASE(a_topic_created_again_has_no_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
