/* Assembly of records with groups: a group is never split, a batch may exceed its size by less than
 * one, positions stand between groups, and a restart there gives the same batches. */
#include "fixture.h"

/* A record: an array of groups of these sizes. */
static void append_groups(struct fake_log *log, const int *sizes, int n)
{
    struct log_partition *p = &log->partitions[0];
    struct fr_buffer text = {0};
    for (int g = 0; g < n; g++) {
        fr_buffer_printf(&text, "%s{\"shared\":{\"user_id\":%d},\"items\":[", g ? "," : "[", g);
        for (int i = 0; i < sizes[g]; i++, log->made++)
            fr_buffer_printf(&text, "%s{\"t\":%lld,\"f\":{},\"y\":[1]}", i ? "," : "", T0 + (long long)log->made);
        fr_buffer_printf(&text, "]}");
    }
    fr_buffer_printf(&text, "]");
    fr_put_u8(&text, 0);
    assert_true(p->n < LOG_RECORDS);
    p->records[p->n++] =
        (struct log_record){.offset = p->high++, .timestamp_ms = T0 + 3600000, .value = (char *)text.data};
    p->available = p->n;
}

static const int sizes[] = {3, 3, 2, 1, 4};
static const char expected[] =
    "batch 6: 0 1 2 3 4 5; 0@0.6\nbatch 7: 6 7 8 9 10 11 12; 0@1.0\nbatch 4: 13 14 15 16; 0@2.0\n";

FR_CASE(a_batch_ends_between_groups)
{
    struct service *s = service_new(", batch_size: 4", 1);
    append_groups(&s->log, sizes, 5);
    append(&s->log, 0, 4);
    service_serve(s);
    assert_string_equal(written(s), expected);
    assert_int_equal(s->positions.partitions[0].samples, 17);
}

FR_CASE(a_restart_between_groups_gives_the_same_batches)
{
    for (uint32_t batches = 1; batches < 3; batches++) {
        struct service *s = service_new(", batch_size: 4", 1);
        append_groups(&s->log, sizes, 5);
        append(&s->log, 0, 4);
        assert_int_equal(service_start(s, false), FR_OK);
        while (s->n_batches < batches)
            assert_true(service_step(s, 1) >= 0);
        service_kill(s);
        service_serve(s);
        assert_string_equal(written(s), expected);
        assert_int_equal(s->positions.partitions[0].delivered, 2);
        service_free(s);
    }
}

FR_CASE(a_group_larger_than_the_batch_is_one_batch)
{
    struct service *s = service_new(", batch_size: 2", 1);
    append_groups(&s->log, (const int[]){5, 1}, 2);
    append(&s->log, 0, 1);
    service_serve(s);
    assert_string_equal(written(s), "batch 5: 0 1 2 3 4; 0@0.5\nbatch 2: 5 6; 0@2.0\n");
}

/* A record: a group whose `samples` samples share `ids` ids, or have one each. */
static void append_wide(struct fake_log *log, int samples, int ids)
{
    struct log_partition *p = &log->partitions[0];
    struct fr_buffer text = {0};
    fr_buffer_printf(&text, "{\"shared\":{");
    for (int i = 0; i < ids; i++)
        fr_buffer_printf(&text, i ? ",%d" : "\"user_id\":[%d", i);
    fr_buffer_printf(&text, ids ? "]},\"items\":[" : "},\"items\":[");
    for (int i = 0; i < samples; i++, log->made++)
        fr_buffer_printf(&text, "%s{\"t\":%lld,\"f\":{%s},\"y\":[1]}", i ? "," : "", T0 + (long long)log->made,
                         ids ? "" : "\"user_id\":7");
    fr_buffer_printf(&text, "]}");
    fr_put_u8(&text, 0);
    assert_true(p->n < LOG_RECORDS);
    p->records[p->n++] =
        (struct log_record){.offset = p->high++, .timestamp_ms = T0 + 3600000, .value = (char *)text.data};
    p->available = p->n;
}

static const int wide[][2] = {{2, 0}, {1500, 1000}, {2, 0}, {1500, 1000}}; /* samples, shared ids */

/* Beside samples with values of their own the shared ones would be written out, 1,500,000 ids: each
 * such record gets a batch of its own, and the same ones after a restart. */
FR_CASE(shared_ids_are_not_written_out_beyond_the_bound_of_a_batch)
{
    for (int lockstep = 0; lockstep < 2; lockstep++)
        for (uint32_t killed = 0; killed < 4; killed++) {
            struct service *s = service_new(lockstep ? ", lockstep: {records: 4}" : "", 1);
            for (size_t i = 0; i < FR_ARRAY_LEN(wide); i++)
                append_wide(&s->log, wide[i][0], wide[i][1]);
            assert_int_equal(service_start(s, false), FR_OK);
            while (killed > 0 && s->n_batches < killed)
                assert_true(service_step(s, 1) >= 0);
            if (killed > 0) {
                service_kill(s);
                assert_int_equal(service_start(s, false), FR_OK);
            }
            service_run(s);
            assert_int_equal(s->dead.n, 0);
            for (size_t i = 0; i < FR_ARRAY_LEN(wide); i++)
                assert_int_equal(s->sizes[i], wide[i][0]);
            assert_int_equal(s->positions.partitions[0].samples, 3004);
            service_free(s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(a_batch_ends_between_groups),
        SERVICE_CASE(a_restart_between_groups_gives_the_same_batches),
        SERVICE_CASE(a_group_larger_than_the_batch_is_one_batch),
        SERVICE_CASE(shared_ids_are_not_written_out_beyond_the_bound_of_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
