/* base/thread.h: a thread runs with its argument, under its name. */
#define _GNU_SOURCE
#include "case.h"

#include <semaphore.h>

#include "base/thread.h"

static void *wait_for_end(void *argument)
{
    sem_t *end = argument;
    while (sem_wait(end) != 0)
        ;
    return end;
}

static void check_name(const char *name, const char *expected)
{
    sem_t end;
    pthread_t thread;
    char text[64];
    void *result = NULL;
    assert_int_equal(sem_init(&end, 0, 0), 0);
    assert_true(fr_thread_start(&thread, name, wait_for_end, &end));
    assert_int_equal(pthread_getname_np(thread, text, sizeof(text)), 0);
    assert_int_equal(sem_post(&end), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &end);
    assert_string_equal(text, expected);
    sem_destroy(&end);
}

FR_CASE(a_thread_has_its_name)
{
    check_name("ingest", "ingest");
}

FR_CASE(a_long_name_is_cut)
{
    check_name("worker-of-a-very-large-pool", "worker-of-a-ver");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_its_name),
        cmocka_unit_test(a_long_name_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
