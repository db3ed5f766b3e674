/* base/thread.h: a thread runs with its argument, and has its name before it runs. */
#define _GNU_SOURCE
#include "case.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/thread.h"

static void *read_own_name(void *text)
{
    assert_int_equal(pthread_getname_np(pthread_self(), text, FR_THREAD_NAME), 0);
    return text;
}

static void check_name(const char *name, const char *expected)
{
    pthread_t thread;
    char text[FR_THREAD_NAME] = "";
    void *result = NULL;
    assert_true(fr_thread_start(&thread, name, read_own_name, text));
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, text);
    assert_string_equal(text, expected);
}

FR_CASE(a_thread_has_its_name_from_its_first_line_on)
{
    check_name("ingest", "ingest");
}

FR_CASE(a_long_name_is_cut)
{
    check_name("worker-of-a-very-large-pool", "worker-of-a-ver");
}

static uint64_t time_of(const char *name)
{
    struct fr_thread_time times[64];
    size_t n = fr_thread_times(times, FR_ARRAY_LEN(times));
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        if (strcmp(times[i].name, name) == 0)
            return times[i].ns;
    return 0;
}

static void *work_for_long(void *self)
{
    atomic_bool *stop = self;
    while (!atomic_load(stop))
        continue;
    return NULL;
}

FR_CASE(the_time_of_two_threads_of_a_name_is_one_sum_that_grows)
{
    pthread_t threads[2];
    atomic_bool stop = false;
    for (int i = 0; i < 2; i++)
        assert_true(fr_thread_start(&threads[i], "busy", work_for_long, &stop));
    FR_UNTIL (time_of("busy") > 50000000)
        ;
    assert_int_equal(time_of("idle"), 0);
    struct fr_thread_time one[1];
    assert_int_equal(fr_thread_times(one, 1), 1);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(time_of("busy"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_its_name_from_its_first_line_on),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(the_time_of_two_threads_of_a_name_is_one_sum_that_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
