/* base/pool.h: every index once, no index before or after its loop (run it under the thread
 * sanitizer, too). */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdatomic.h>

#include "base/pool.h"
#include "base/thread.h"

/* Number of threads that can still be started; below 0: any number. pthread_create is replaced at
 * link time. */
static int startable = -1;
bool __real_fr_thread_start(pthread_t *out, const char *name, void *(*run)(void *argument), void *argument);
bool __wrap_fr_thread_start(pthread_t *out, const char *name, void *(*run)(void *argument), void *argument);

bool __wrap_fr_thread_start(pthread_t *out, const char *name, void *(*run)(void *argument), void *argument)
{
    if (startable == 0)
        return false;
    startable -= startable > 0;
    return __real_fr_thread_start(out, name, run, argument);
}

enum { COUNT_MAX = 1000, WORKERS_MAX = 8 };

/* The memory is not atomic on purpose: the thread sanitizer checks that the hand-over is ordered in
 * both directions. */
struct loop {
    size_t count;
    size_t workers;
    unsigned runs[COUNT_MAX];
    unsigned long long scratch[WORKERS_MAX];
    atomic_int bad;
};

static void count_index(void *context, size_t index, size_t worker)
{
    struct loop *loop = context;
    if (index >= loop->count || worker >= loop->workers) {
        atomic_fetch_add(&loop->bad, 1);
        return;
    }
    loop->runs[index] += 1;
    loop->scratch[worker] += index; /* one thread per worker number at a time */
}

FR_CASE(every_index_runs_exactly_once)
{
    for (size_t workers = 1; workers <= WORKERS_MAX; workers++) {
        struct fr_pool *pool = fr_pool_new(workers);
        assert_int_equal(fr_pool_workers(pool), workers);
        for (size_t count = 0; count <= COUNT_MAX; count = count * 2 + 1) {
            struct loop loop = {.count = count, .workers = workers};
            unsigned long long sum = 0;
            fr_pool_run(pool, count, count_index, &loop);
            for (size_t i = 0; i < COUNT_MAX; i++)
                assert_int_equal(loop.runs[i], i < count ? 1 : 0);
            for (size_t i = 0; i < WORKERS_MAX; i++)
                sum += loop.scratch[i];
            assert_true(sum == (unsigned long long)count * (count ? count - 1 : 0) / 2);
            assert_int_equal(atomic_load(&loop.bad), 0);
        }
        fr_pool_free(pool);
    }
    fr_pool_free(NULL);
}

FR_CASE(loops_in_quick_succession_do_not_mix)
{
    struct fr_pool *pool = fr_pool_new(4);
    struct loop *loop = calloc(1, sizeof(*loop));
    assert_non_null(loop);
    loop->workers = 4;
    unsigned expected[16] = {0};
    for (int round = 0; round < 20000; round++) {
        loop->count = 2 + (size_t)round % 15;
        fr_pool_run(pool, loop->count, count_index, loop);
        for (size_t i = 0; i < loop->count; i++) {
            expected[i] += 1;
            assert_int_equal(loop->runs[i], expected[i]);
        }
    }
    assert_int_equal(atomic_load(&loop->bad), 0);
    free(loop);
    fr_pool_free(pool);
}

/* The first `workers` indexes meet: the loop ends only if that many threads run it at once. */
struct meeting {
    size_t wanted;
    atomic_size_t arrived;
};

static void meet(void *context, size_t index, size_t worker)
{
    (void)index;
    (void)worker;
    struct meeting *meeting = context;
    atomic_fetch_add(&meeting->arrived, 1);
    while (atomic_load(&meeting->arrived) < meeting->wanted) {
    }
}

FR_CASE(all_workers_take_part)
{
    struct fr_pool *pool = fr_pool_new(3);
    for (int round = 0; round < 50; round++) {
        struct meeting meeting = {.wanted = 3};
        fr_pool_run(pool, 3, meet, &meeting);
        assert_int_equal(atomic_load(&meeting.arrived), 3);
    }
    fr_pool_free(pool);
}

/* Each thread waits in its first index until all threads have one. A thread's first index is the
 * beginning of its own range, so that a loop finds in the processor's cache what the previous loop
 * left there. */
enum { RANGE = 7 };
struct ranges {
    struct meeting meeting;
    size_t first[WORKERS_MAX];
};

static void note_first(void *context, size_t index, size_t worker)
{
    struct ranges *ranges = context;
    if (ranges->first[worker] != SIZE_MAX)
        return;
    ranges->first[worker] = index;
    meet(&ranges->meeting, index, worker);
}

FR_CASE(each_thread_begins_at_its_own_range)
{
    struct fr_pool *pool = fr_pool_new(4);
    for (int round = 0; round < 50; round++) {
        struct ranges ranges = {.meeting = {.wanted = 4}, .first = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX}};
        fr_pool_run(pool, 4 * RANGE, note_first, &ranges);
        for (size_t w = 0; w < 4; w++)
            assert_int_equal(ranges.first[w], w * RANGE);
    }
    fr_pool_free(pool);
}

FR_CASE(a_pool_has_the_workers_that_could_be_started)
{
    for (int possible = 0; possible < 4; possible++) {
        startable = possible;
        struct fr_pool *pool = fr_pool_new(6);
        startable = -1;
        assert_int_equal(fr_pool_workers(pool), possible + 1);
        struct loop loop = {.count = COUNT_MAX, .workers = (size_t)possible + 1};
        fr_pool_run(pool, COUNT_MAX, count_index, &loop);
        for (size_t i = 0; i < COUNT_MAX; i++)
            assert_int_equal(loop.runs[i], 1);
        assert_int_equal(atomic_load(&loop.bad), 0);
        fr_pool_free(pool);
    }
}

FR_CASE(one_worker_runs_in_the_caller_in_order)
{
    struct fr_pool *pool = fr_pool_new(1);
    struct loop loop = {.count = 10, .workers = 1};
    fr_pool_run(pool, 10, count_index, &loop);
    assert_true(loop.scratch[0] == 45);
    fr_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_runs_exactly_once),
        cmocka_unit_test(loops_in_quick_succession_do_not_mix),
        cmocka_unit_test(all_workers_take_part),
        cmocka_unit_test(each_thread_begins_at_its_own_range),
        cmocka_unit_test(a_pool_has_the_workers_that_could_be_started),
        cmocka_unit_test(one_worker_runs_in_the_caller_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
