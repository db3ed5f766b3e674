/* How a unit test is written: cmocka with the headers that it needs, and a case or a fixture in one
 * line. */
#ifndef FR_TESTS_CASE_H
#define FR_TESTS_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

/* One behaviour. Its name is a sentence; `state` is what the fixture left, if the case has a
 * fixture. */
#define FR_CASE(name) static void name(void **state __attribute__((unused)))
/* The work before or after a case or a program; returns 0 on success. */
#define FR_FIXTURE(name) static int name(void **state __attribute__((unused)))

/* Waits for an asynchronous result: repeats the statement after it until the condition holds. Only
 * a failing test waits until the patience ends, so that a loaded machine does not make a test
 * fail. */
#define FR_UNTIL(condition)                                                                                            \
    for (int64_t end_ = fr_now_s() + FR_PATIENCE_S; !(condition); assert_true(fr_now_s() < end_))

enum { FR_PATIENCE_S = 200 };

/* FR_TEST_CASE='expire_*' runs only the cases whose names match (tests/one). */
__attribute__((constructor)) static inline void fr_test_one_case(void)
{
    const char *name = getenv("FR_TEST_CASE");
    if (name)
        cmocka_set_test_filter(name);
}

static inline int64_t fr_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

enum { FR_TEST_FOLDER = 128 };

/* A new folder for the files of a test, which is in memory under tests/run (TMPDIR). The caller
 * removes it. */
static inline void fr_test_folder(char path[FR_TEST_FOLDER])
{
    const char *place = getenv("TMPDIR");
    int length = snprintf(path, FR_TEST_FOLDER, "%s/freshet-unit-XXXXXX", place ? place : "/tmp");
    assert_true(length < FR_TEST_FOLDER);
    assert_non_null(mkdtemp(path));
}

#endif
