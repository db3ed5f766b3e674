/* Batches while the model is young: their sizes follow from the samples before them, also after a
 * restart, and in lockstep no partition runs ahead. */
#include "fixture.h"

#include "decode/decoder.h"

static uint32_t n_decoded;

enum fr_status __real_fr_decode_record(struct fr_decoder *decoder, const struct fr_record *record, uint32_t *n_samples,
                                       const char **reason);
enum fr_status __wrap_fr_decode_record(struct fr_decoder *decoder, const struct fr_record *record, uint32_t *n_samples,
                                       const char **reason);
enum fr_status __wrap_fr_decode_record(struct fr_decoder *decoder, const struct fr_record *record, uint32_t *n_samples,
                                       const char **reason)
{
    n_decoded++;
    return __real_fr_decode_record(decoder, record, n_samples, reason);
}

#define RAMP ", batch_size: 32, batch_warmup: {first: 4, growth: 8}"

/* Returns the size of a batch after n samples, by the options above. */
static uint32_t target(uint64_t n)
{
    uint64_t grown = n / 8;
    return grown < 4 ? 4 : grown > 32 ? 32 : (uint32_t)grown;
}

/* Every batch but the last ones, which the end of the log closes, has the size that the samples
 * before it ask for. */
static void assert_ramp(const struct service *s, uint32_t n_batches)
{
    uint64_t n = 0;
    assert_true(n_batches <= s->n_batches);
    for (uint32_t i = 0; i < n_batches; i++) {
        assert_int_equal(s->sizes[i], target(n));
        n += s->sizes[i];
    }
}

static uint64_t samples_of(const struct service *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->positions.count; i++)
        n += s->positions.partitions[i].samples;
    return n;
}

/* Runs to the end of the stream; killed after every `kill_every`th batch (0: never), and started
 * again. */
static void run_killed(struct service *s, uint32_t kill_every)
{
    assert_int_equal(service_start(s, true), FR_OK);
    for (uint32_t i = 0; !s->end_of_stream; i++) {
        uint32_t before = s->n_batches;
        assert_true(i < 10000);
        assert_true(service_step(s, 1) >= 0);
        if (kill_every && s->n_batches > before && s->n_batches % kill_every == 0 && !s->end_of_stream) {
            service_kill(s);
            assert_int_equal(service_start(s, true), FR_OK);
        }
    }
}

FR_CASE(batches_grow_with_the_samples_before_them)
{
    struct service *s = service_new(RAMP, 1);
    for (int i = 0; i < 600; i++)
        append(&s->log, 0, 1);
    service_serve(s);
    assert_ramp(s, s->n_batches);
    assert_int_equal(s->sizes[0], 4);
    assert_int_equal(s->sizes[s->n_batches - 1], 32);
}

FR_CASE(batches_grow_with_the_cube_and_are_full_in_time)
{
    struct service *s = service_new(", batch_size: 32, batch_warmup: {first: 2, growth: 1048576, full: 64}", 1);
    for (int i = 0; i < 200; i++)
        append(&s->log, 0, 1);
    service_serve(s);
    uint64_t n = 0;
    for (uint32_t i = 0; i + 1 < s->n_batches; i++) { /* the end of the log closes the last one */
        uint64_t cube = n >= 64 ? 32 : 32 * n * n * n / (64 * 64 * 64);
        assert_int_equal(s->sizes[i], cube > 2 ? cube : 2);
        n += s->sizes[i];
    }
    assert_true(n > 64 && s->sizes[0] == 2 && s->sizes[s->n_batches - 2] == 32);
}

FR_CASE(the_larger_of_both_sizes_closes_a_batch)
{
    struct service *s = service_new(", batch_size: 32, batch_warmup: {first: 1, growth: 8, full: 64}", 1);
    for (int i = 0; i < 200; i++)
        append(&s->log, 0, 1);
    service_serve(s);
    uint64_t n = 0, by_cube = 0, by_growth = 0;
    for (uint32_t i = 0; i + 1 < s->n_batches; i++) {
        uint64_t linear = n / 8, cube = n >= 64 ? 32 : 32 * n * n * n / (64 * 64 * 64);
        uint64_t larger = linear > cube ? linear : cube;
        by_cube += cube > linear;
        by_growth += linear > cube;
        assert_int_equal(s->sizes[i], larger > 1 ? larger : 1);
        n += s->sizes[i];
    }
    assert_true(by_cube > 0 && by_growth > 0);
}

FR_CASE(without_a_first_size_every_batch_is_full)
{
    struct service *s = service_new(", batch_size: 32, batch_warmup: {first: 0, growth: 8}", 1);
    for (int i = 0; i < 64; i++)
        append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->n_batches, 2);
    assert_int_equal(s->sizes[0], 32);
}

FR_CASE(a_first_size_above_batch_size_is_batch_size)
{
    struct service *s = service_new(", batch_size: 4, batch_warmup: {first: 8, growth: 1}", 1);
    for (int i = 0; i < 8; i++)
        append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->n_batches, 2);
    assert_int_equal(s->sizes[0], 4);
}

FR_CASE(records_without_samples_do_not_grow_batches)
{
    struct service *s = service_new(", batch_size: 32, batch_warmup: {first: 2, growth: 2}", 1);
    for (int i = 0; i < 6; i++)
        append(&s->log, 0, -1);
    for (int i = 0; i < 40; i++)
        append(&s->log, 0, i % 5 ? 1 : 0);
    service_serve(s);
    const uint32_t expected[] = {2, 2, 2, 3, 4, 6, 9};
    for (uint32_t i = 0; i < FR_ARRAY_LEN(expected); i++)
        assert_int_equal(s->sizes[i], expected[i]);
}

FR_CASE(batch_wait_closes_a_small_batch_too)
{
    struct service *s = service_new(RAMP ", batch_wait: 20ms", 1);
    append(&s->log, 0, 3);
    service_serve(s);
    assert_int_equal(s->n_batches, 0);
    fr_clock_fake_advance_ms(&s->clock, 20);
    service_run(s);
    assert_int_equal(s->n_batches, 1);
    assert_int_equal(s->sizes[0], 3);
}

/* One partition and no timer, so that live batches are a function of the log as well. */
FR_CASE(a_run_killed_after_any_batch_has_the_same_sizes_and_positions)
{
    struct fr_buffer whole = {0};
    for (uint32_t kill_every = 0; kill_every < 6; kill_every++) {
        struct service *s = service_new(RAMP, 1);
        for (int i = 0; i < 60; i++)
            append(&s->log, 0, i % 7 == 3 ? 100 : i % 7 == 5 ? -1 : i % 4);
        run_killed(s, kill_every);
        assert_ramp(s, s->n_batches - 2);
        assert_int_equal(samples_of(s), s->log.made);
        if (kill_every == 0)
            fr_buffer_append(&whole, written(s), strlen(written(s)) + 1);
        assert_string_equal(written(s), (const char *)whole.data);
        service_free(s);
    }
    fr_buffer_release(&whole);
}

FR_CASE(several_partitions_grow_one_model)
{
    struct service *s = service_new(RAMP, 3);
    for (int i = 0; i < 900; i++)
        append(&s->log, (uint32_t)i % 3, 1);
    run_killed(s, 7);
    assert_ramp(s, s->n_batches - 2);
    assert_int_equal(samples_of(s), 900);
}

FR_CASE(a_position_within_a_group_does_not_arise)
{
    struct service *s = service_new(RAMP, 1);
    struct log_partition *p = &s->log.partitions[0];
    struct fr_buffer text = {0};
    for (int g = 0; g < 6; g++) {
        fr_buffer_printf(&text, "%s{\"shared\":{\"user_id\":%d},\"items\":[", g ? "," : "[", g);
        for (int i = 0; i < 3; i++)
            fr_buffer_printf(&text, "%s{\"t\":%lld,\"f\":{},\"y\":[1]}", i ? "," : "", T0 + 3LL * g + i);
        fr_buffer_printf(&text, "]}");
    }
    fr_buffer_printf(&text, "]");
    fr_put_u8(&text, 0);
    p->records[p->n++] =
        (struct log_record){.offset = p->high++, .timestamp_ms = T0 + 3600000, .value = (char *)text.data};
    p->available = p->n;
    run_killed(s, 1);
    assert_string_equal(written(s), "batch 6: 0 1 2 3 4 5; 0@0.6\nbatch 6: 6 7 8 9 10 11; 0@0.12\n"
                                    "batch 6: 12 13 14 15 16 17; 0@1.0\nbatch 0 end:;\n");
}

#define LOCKSTEP RAMP ", lockstep: {records: 16, epoch_batches: 4}"

FR_CASE(a_record_of_many_batches_is_decoded_once)
{
    static const char *const options[] = {RAMP, LOCKSTEP};
    for (size_t i = 0; i < FR_ARRAY_LEN(options); i++) {
        struct service *s = service_new(options[i], 2);
        append(&s->log, 0, 50);
        append(&s->log, 1, 50);
        n_decoded = 0;
        run_killed(s, 0);
        assert_ramp(s, s->n_batches - 2);
        assert_int_equal(n_decoded, 2);
        service_free(s);
    }
}

/* ---- lockstep ---- */

/* Three partitions of 150, 170 and 190 records: packed, single, empty and malformed ones. */
static struct service *packed(void)
{
    struct service *s = service_new(LOCKSTEP, 3);
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t i = 0; i < 150 + 20 * p; i++)
            append(&s->log, p, i % 13 == 4 ? -1 : i % 11 == 7 ? 0 : i % 9 == p ? 21 : 1);
    return s;
}

FR_CASE(lockstep_batches_grow_the_same_way_whenever_it_is_killed)
{
    struct fr_buffer whole = {0};
    for (uint32_t kill_every = 0; kill_every < 5; kill_every++) {
        struct service *s = packed();
        run_killed(s, kill_every);
        uint32_t young = 0;
        for (uint64_t n = 0; target(n) < 32; n += s->sizes[young++])
            assert_int_equal(s->sizes[young], target(n));
        assert_true(young > 20 && s->n_batches > young + 4);
        assert_true(s->sizes[young] > 32); /* 48 records: from here on batches are rounds */
        assert_int_equal(samples_of(s), s->log.made);
        if (kill_every == 0)
            fr_buffer_append(&whole, written(s), strlen(written(s)) + 1);
        assert_string_equal(written(s), (const char *)whole.data);
        service_free(s);
    }
    fr_buffer_release(&whole);
}

FR_CASE(lockstep_batches_grow_the_same_way_however_records_arrive)
{
    struct service *s = packed();
    run_killed(s, 0);
    char *whole = fr_strdup(written(s));
    service_free(s);
    s = packed();
    for (uint32_t p = 0; p < 3; p++)
        s->log.partitions[p].available = 0;
    assert_int_equal(service_start(s, true), FR_OK);
    for (uint32_t i = 0; i < 190; i++) { /* the last partition first */
        service_run(s);
        fr_clock_fake_advance_ms(&s->clock, 1000);
        for (uint32_t p = 3; p-- > 0;)
            if (i >= 40 - 20 * p && s->log.partitions[p].available < s->log.partitions[p].n)
                s->log.partitions[p].available++;
    }
    for (uint32_t p = 0; p < 3; p++)
        s->log.partitions[p].available = s->log.partitions[p].n;
    service_run(s);
    assert_string_equal(written(s), whole);
    free(whole);
}

FR_CASE(in_young_lockstep_no_partition_runs_ahead)
{
    struct service *s = packed();
    assert_int_equal(service_start(s, true), FR_OK);
    while (target(samples_of(s)) < 32) {
        assert_true(service_step(s, 1) >= 0);
        uint64_t fewest = UINT64_MAX, most = 0;
        for (uint32_t p = 0; p < s->positions.count; p++) {
            uint64_t delivered = s->positions.partitions[p].delivered;
            fewest = delivered < fewest ? delivered : fewest;
            most = delivered > most ? delivered : most;
        }
        assert_true(s->positions.count == 0 || most - fewest <= 1);
    }
}

FR_CASE(a_young_lockstep_batch_has_no_more_records_than_a_round)
{
    struct service *s = service_new(
        ", batch_size: 1024, batch_warmup: {first: 500, growth: 1}, lockstep: {records: 2, epoch_batches: 4}", 2);
    for (int i = 0; i < 12; i++)
        append(&s->log, (uint32_t)i % 2, i == 5 ? -1 : 1);
    run_killed(s, 1);
    assert_string_equal(written(s), "batch 4: 0 1 2 3; 0@2.0 1@2.0\n"
                                    "batch 3: 4 5 6; 0@4.0 1@4.0\n"
                                    "batch 4: 7 8 9 10; 0@6.0 1@6.0\n"
                                    "batch 0 end:;\n");
}

FR_CASE(a_partition_added_later_makes_no_difference_to_young_lockstep_batches)
{
    struct service *s = service_new(
        ", batch_size: 1024, batch_warmup: {first: 500, growth: 1}, lockstep: {records: 2, epoch_batches: 4}", 2);
    for (int i = 0; i < 8; i++)
        append(&s->log, (uint32_t)i % 2, 1);
    assert_int_equal(service_start(s, true), FR_OK);
    while (s->n_batches < 1)
        assert_true(service_step(s, 1) >= 0);
    service_kill(s);
    s->log.n_partitions = 3;
    append(&s->log, 2, 1);
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_string_equal(written(s), "batch 4: 0 1 2 3; 0@2.0 1@2.0\n"
                                    "batch 4: 4 5 6 7; 0@4.0 1@4.0\n"
                                    "batch 0 end:;\n");
}

/* The round after the last young batch begins with the first partition, whatever is left of the
 * second one's record. */
FR_CASE(rounds_begin_in_the_middle_of_a_record_the_same_way_after_a_kill)
{
    for (uint32_t kill_every = 0; kill_every < 2; kill_every++) {
        struct service *s = service_new(
            ", batch_size: 4, batch_warmup: {first: 2, growth: 2}, lockstep: {records: 2, epoch_batches: 4}", 2);
        append(&s->log, 0, 1);
        append(&s->log, 1, 9);
        append(&s->log, 0, 1);
        append(&s->log, 1, 1);
        run_killed(s, kill_every);
        assert_string_equal(written(s), "batch 2: 0 1; 0@1.0 1@0.1\n"
                                        "batch 2: 2 3; 1@0.3\n"
                                        "batch 2: 4 5; 1@0.5\n"
                                        "batch 3: 6 7 8; 1@0.8\n"
                                        "batch 3: 10 9 11; 0@2.0 1@2.0\n"
                                        "batch 0 end:;\n");
        service_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(batches_grow_with_the_samples_before_them),
        SERVICE_CASE(batches_grow_with_the_cube_and_are_full_in_time),
        SERVICE_CASE(the_larger_of_both_sizes_closes_a_batch),
        SERVICE_CASE(without_a_first_size_every_batch_is_full),
        SERVICE_CASE(a_first_size_above_batch_size_is_batch_size),
        SERVICE_CASE(records_without_samples_do_not_grow_batches),
        SERVICE_CASE(batch_wait_closes_a_small_batch_too),
        SERVICE_CASE(a_run_killed_after_any_batch_has_the_same_sizes_and_positions),
        SERVICE_CASE(several_partitions_grow_one_model),
        SERVICE_CASE(a_position_within_a_group_does_not_arise),
        SERVICE_CASE(a_record_of_many_batches_is_decoded_once),
        SERVICE_CASE(lockstep_batches_grow_the_same_way_whenever_it_is_killed),
        SERVICE_CASE(lockstep_batches_grow_the_same_way_however_records_arrive),
        SERVICE_CASE(in_young_lockstep_no_partition_runs_ahead),
        SERVICE_CASE(a_young_lockstep_batch_has_no_more_records_than_a_round),
        SERVICE_CASE(a_partition_added_later_makes_no_difference_to_young_lockstep_batches),
        SERVICE_CASE(rounds_begin_in_the_middle_of_a_record_the_same_way_after_a_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
