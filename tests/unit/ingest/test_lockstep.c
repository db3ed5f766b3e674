/* Lockstep: batches are a function of the log alone. */
#include "fixture.h"

static const char options[] = ", lockstep: {records: 2, epoch_batches: 4}";

/* Three partitions of 5, 2 and 7 records, one of them malformed, one empty, markers at an end. */
static struct service *uneven(void)
{
    struct service *s = service_new(options, 3);
    const uint32_t records[] = {5, 2, 7};
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t i = 0; i < records[p]; i++)
            append(&s->log, p, p == 2 && i == 3 ? -1 : p == 0 && i == 1 ? 0 : p == 2 && i == 0 ? 3 : 1);
    skip_offsets(&s->log, 1, 1);
    return s;
}

static const char uneven_batches[] = "batch 7: 0 4 5 6 7 8 9; 0@2.0 1@2.0 2@2.0\n"
                                     "batch 3: 1 2 10; 0@4.0 2@4.0 1@3.0\n"
                                     "batch 3: 3 11 12; 0@5.0 2@6.0\n"
                                     "batch 1: 13; 2@7.0\n"
                                     "batch 0 end:;\n";

FR_CASE(a_batch_takes_its_records_of_each_partition_in_order)
{
    struct service *s = uneven();
    service_serve(s);
    assert_string_equal(written(s), uneven_batches);
}

FR_CASE(how_records_arrive_makes_no_difference)
{
    struct service *s = uneven();
    for (uint32_t p = 0; p < 3; p++)
        s->log.partitions[p].available = 0;
    assert_int_equal(service_start(s, false), FR_OK);
    for (uint32_t i = 0; i < 7; i++) { /* the last partition first */
        service_run(s);
        fr_clock_fake_advance_ms(&s->clock, 1000);
        for (uint32_t p = 3; p-- > 0;)
            if (i >= (p == 2 ? 0 : 2u) && s->log.partitions[p].available < s->log.partitions[p].n)
                s->log.partitions[p].available++;
    }
    for (uint32_t p = 0; p < 3; p++)
        s->log.partitions[p].available = s->log.partitions[p].n;
    service_run(s);
    assert_string_equal(written(s), uneven_batches);
}

FR_CASE(a_run_killed_after_any_batch_gives_the_same_batches)
{
    for (uint32_t kill_at = 1; kill_at <= 4; kill_at++) {
        struct service *s = uneven();
        assert_int_equal(service_start(s, false), FR_OK);
        while (s->n_batches < kill_at)
            assert_true(service_step(s, 1) >= 0);
        service_kill(s);
        append(&s->log, 0, 1); /* beyond the ends fixed before: not read */
        service_serve(s);
        assert_string_equal(written(s), uneven_batches);
        service_free(s);
    }
}

FR_CASE(huge_records_cut_a_round_the_same_way_after_a_kill)
{
    struct fr_buffer whole = {0};
    for (uint32_t kill_every = 0; kill_every < 3; kill_every++) {
        struct service *s = service_new(", record_max: 16MiB, lockstep: {records: 2, epoch_batches: 4}", 2);
        append(&s->log, 0, 10);
        append(&s->log, 0, 5);
        /* the next round begins with this one, whatever is left of the second partition's */
        append(&s->log, 0, 7);
        append(&s->log, 1, 30000);
        append(&s->log, 1, 50000);
        assert_int_equal(service_start(s, false), FR_OK);
        for (uint32_t i = 0; !s->end_of_stream; i++) {
            uint32_t before = s->n_batches;
            assert_true(i < 100);
            assert_true(service_step(s, 1) >= 0);
            if (kill_every && s->n_batches > before && s->n_batches % kill_every == 0 && !s->end_of_stream) {
                service_kill(s);
                assert_int_equal(service_start(s, false), FR_OK);
            }
        }
        assert_int_equal(s->sizes[0], 65536);
        assert_int_equal(s->positions.partitions[1].trained, 80000);
        assert_int_equal(s->positions.partitions[1].delivered, 2);
        assert_int_equal(s->last[0].offset, 3);
        if (kill_every == 0)
            fr_buffer_append(&whole, written(s), strlen(written(s)) + 1);
        assert_string_equal(written(s), (const char *)whole.data);
        service_free(s);
    }
    fr_buffer_release(&whole);
}

FR_CASE(a_log_that_ends_before_its_fixed_end_is_refused)
{
    struct service *s = uneven();
    s->ends = fr_strdup("samples 0 5\nsamples 1 3\nsamples 2 9\n");
    assert_int_equal(service_start(s, false), FR_E_LOST);
    assert_non_null(strstr(s->err.text, "samples/2: the log ends at 7, before the end 9"));
}

FR_CASE(damaged_end_offsets_are_refused)
{
    const char *const bad[] = {"samples 0\n",
                               "samples 0 5",
                               "samples 0 5 6\n",
                               "samples -1 5\n",
                               "samples 0 -5\n",
                               "\n",
                               " 0 5\n",
                               "samples 0 99999999999999999999\n",
                               "samples 4294967296 5\n",
                               "",
                               "partitions 3\n",
                               "partitions 3\nsamples 0 5\nsamples 1 3\n",
                               "partitions 3\nsamples 0 5\nsamples 1 3\nsamples 2",
                               "partitions 0\nsamples 0 5\n",
                               "partitions 1\nsamples 0 5\nsamples 1 3\n"};
    for (size_t i = 0; i < FR_ARRAY_LEN(bad); i++) {
        struct service *s = uneven();
        s->ends = fr_strdup(bad[i]);
        assert_int_equal(service_start(s, false), FR_E_CORRUPT);
        service_free(s);
    }
}

FR_CASE(the_clock_of_the_host_decides_nothing)
{
    for (int i = 0; i < 2; i++) {
        struct service *s = uneven();
        s->clock.wall_ms = i == 0 ? T0 - 365LL * 86400000 : T0 + 365LL * 86400000;
        service_serve(s);
        assert_string_equal(written(s), uneven_batches);
        service_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(a_batch_takes_its_records_of_each_partition_in_order),
        SERVICE_CASE(how_records_arrive_makes_no_difference),
        SERVICE_CASE(a_run_killed_after_any_batch_gives_the_same_batches),
        SERVICE_CASE(huge_records_cut_a_round_the_same_way_after_a_kill),
        SERVICE_CASE(a_log_that_ends_before_its_fixed_end_is_refused),
        SERVICE_CASE(damaged_end_offsets_are_refused),
        SERVICE_CASE(the_clock_of_the_host_decides_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
