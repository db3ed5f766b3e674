/* What the parity suite uses of cmocka, for machines with a card and without cmocka. Everywhere
 * else the real one runs. A failed assertion ends its case. */
#ifndef FR_GPU_CMOCKA_H
#define FR_GPU_CMOCKA_H

#include <fnmatch.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(name)                                                                                         \
    {                                                                                                                  \
#name, name                                                                                                    \
    }

static jmp_buf fr_case_end;
enum { FR_CASE_FAILED = 1, FR_CASE_SKIPPED };

#define fail_msg(...)                                                                                                  \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fprintf(stderr, "\n"),              \
     longjmp(fr_case_end, FR_CASE_FAILED))
#define skip() longjmp(fr_case_end, FR_CASE_SKIPPED)
#define assert_true(x) ((x) ? (void)0 : fail_msg("not true: %s", #x))
#define assert_false(x) ((x) ? fail_msg("true: %s", #x) : (void)0)
#define assert_null(x) assert_true((x) == NULL)
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_memory_not_equal(a, b, n) assert_true(memcmp(a, b, n) != 0)
#define assert_float_equal(a, b, epsilon) assert_true(fabs((double)((a) - (b))) <= (double)(epsilon))

static const char *fr_case_filter; /* NULL: all cases run */

static inline void cmocka_set_test_filter(const char *pattern)
{
    fr_case_filter = pattern;
}

static inline int fr_run_cases(const struct CMUnitTest *tests, size_t n)
{
    static size_t at, failed; /* longjmp keeps them */
    for (at = failed = 0; at < n; at++) {
        if (fr_case_filter && fnmatch(fr_case_filter, tests[at].name, 0) != 0)
            continue;
        int end = setjmp(fr_case_end);
        if (end == 0)
            tests[at].run(NULL);
        failed += end == FR_CASE_FAILED;
        fprintf(stderr, "%-8s %s\n", end == 0 ? "ok" : end == FR_CASE_FAILED ? "FAILED" : "skipped", tests[at].name);
    }
    return failed > 0;
}
#define cmocka_run_group_tests(tests, setup, teardown) fr_run_cases(tests, sizeof(tests) / sizeof((tests)[0]))

#endif
