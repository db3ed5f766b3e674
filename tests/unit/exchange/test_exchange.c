/* The exchange: one suite over its back ends (self, threads of 1 to 8 ranks, with and without
 * delays), and what a rank that hangs, ends or sends too much does to the others. */
#include "exchange/threads.h"

#include "exchange/calls.h"

static const uint64_t patience_ns = 60000000000;

/* Runs all ranks of a group to their end. The caller frees nothing. */
static void run_group(const struct fr_exchange_group_options *options, struct worker *workers)
{
    struct fr_exchange_group *group = fr_exchange_group_new(options);
    for (uint32_t r = 0; r < options->ranks; r++) {
        init(&workers[r], fr_exchange_group_rank(group, r));
        assert_int_equal(pthread_create(&workers[r].thread, NULL, work, &workers[r]), 0);
    }
    for (uint32_t r = 0; r < options->ranks; r++) {
        pthread_join(workers[r].thread, NULL);
        release(&workers[r]);
    }
    fr_exchange_group_free(group);
}

FR_CASE(every_rank_gets_what_the_others_sent_whatever_the_delays)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes); i++)
        for (uint64_t delay_ns = 0; delay_ns <= 2000000; delay_ns += 2000000) {
            struct worker workers[RANKS];
            run_group(
                &(struct fr_exchange_group_options){
                    .ranks = sizes[i], .deadline_ns = patience_ns, .delay_max_ns = delay_ns, .seed = i},
                workers);
            for (uint32_t r = 0; r < sizes[i]; r++) {
                assert_int_equal(workers[r].err.status, FR_OK);
                assert_int_equal(workers[r].calls, CALLS);
            }
        }
}

FR_CASE(a_rank_alone_gets_its_own_parts_without_a_copy)
{
    struct worker worker;
    init(&worker, fr_exchange_self_new());
    work(&worker);
    assert_int_equal(worker.calls, CALLS);
    struct fr_bytes out = {worker.bytes[0][0], 5}, in;
    assert_int_equal(fr_exchange_send(worker.exchange, FR_CHANNEL_KEYS, &out, &worker.err), FR_OK);
    assert_int_equal(fr_exchange_receive(worker.exchange, FR_CHANNEL_KEYS, &in, &worker.err), FR_OK);
    assert_ptr_equal(in.data, out.data);
    fr_exchange_free(worker.exchange);
    release(&worker);
}

FR_CASE(a_rank_that_hangs_is_named_by_the_others_after_the_deadline)
{
    for (uint64_t at = 1; at <= 9; at += 2) {
        struct worker workers[RANKS];
        run_group(
            &(struct fr_exchange_group_options){.ranks = 4, .deadline_ns = 200000000, .fault_rank = 2, .fault_at = at},
            workers);
        uint32_t named = 0;
        for (uint32_t r = 0; r < 4; r++) {
            assert_int_not_equal(workers[r].err.status, FR_OK);
            assert_true(workers[r].calls < 3);
            named += workers[r].err.status == FR_E_UNAVAILABLE;
            if (workers[r].err.status == FR_E_UNAVAILABLE)
                assert_non_null(strstr(workers[r].err.text, "rank 2 has not come to exchange"));
            else
                assert_non_null(strstr(workers[r].err.text, "ended the job with code 75"));
        }
        assert_true(named >= 1);
    }
}

FR_CASE(a_rank_that_ends_ends_all_with_its_code_and_the_error_stays)
{
    struct worker workers[RANKS];
    run_group(
        &(struct fr_exchange_group_options){
            .ranks = 5, .deadline_ns = patience_ns, .fault_rank = 3, .fault_at = 17, .fault_code = 3},
        workers);
    for (uint32_t r = 0; r < 5; r++) {
        assert_int_equal(workers[r].err.status, FR_E_CANCELLED);
        assert_string_equal(workers[r].err.text, "rank 3 ended the job with code 3");
    }
}

FR_CASE(a_part_that_engines_cannot_count_is_refused_for_good)
{
    struct fr_exchange *exchange = fr_exchange_self_new();
    struct fr_err err = {0};
    uint8_t byte = 0;
    struct fr_bytes part = {&byte, (size_t)FR_EXCHANGE_PART_MAX + 1};
    assert_int_equal(fr_exchange_send(exchange, FR_CHANNEL_KEYS, &part, &err), FR_E_LIMIT);
    assert_non_null(strstr(err.text, "lower ingest.batch_size"));
    part.size = 1;
    assert_int_equal(fr_exchange_send(exchange, FR_CHANNEL_VALUES, &part, &err), FR_E_LIMIT);
    fr_exchange_free(exchange);
}

struct uneven {
    struct fr_exchange *exchange;
    enum fr_status status;
    struct fr_err err;
};

static void *gather_uneven(void *context)
{
    struct uneven *uneven = context;
    uint8_t mine[16] = {0}, all[32];
    size_t size = 8 + 8 * fr_exchange_rank(uneven->exchange);
    uneven->status = fr_exchange_gather(uneven->exchange, mine, size, all, &uneven->err);
    return NULL;
}

FR_CASE(a_gather_of_two_sizes_is_an_error_on_both_sides)
{
    struct fr_exchange_group *group =
        fr_exchange_group_new(&(struct fr_exchange_group_options){.ranks = 2, .deadline_ns = patience_ns});
    struct uneven sides[2] = {{.exchange = fr_exchange_group_rank(group, 0)},
                              {.exchange = fr_exchange_group_rank(group, 1)}};
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, gather_uneven, &sides[1]), 0);
    gather_uneven(&sides[0]);
    pthread_join(other, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(sides[r].status, FR_E_MISMATCH);
        assert_non_null(strstr(sides[r].err.text, "different versions of the program"));
    }
    fr_exchange_group_free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_what_the_others_sent_whatever_the_delays),
        cmocka_unit_test(a_rank_alone_gets_its_own_parts_without_a_copy),
        cmocka_unit_test(a_rank_that_hangs_is_named_by_the_others_after_the_deadline),
        cmocka_unit_test(a_rank_that_ends_ends_all_with_its_code_and_the_error_stays),
        cmocka_unit_test(a_part_that_engines_cannot_count_is_refused_for_good),
        cmocka_unit_test(a_gather_of_two_sizes_is_an_error_on_both_sides),
    };
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
