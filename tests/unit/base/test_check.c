/* base/check.h: arithmetic that cannot overflow silently, memory that is never NULL, invariants
 * that end the process. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

/* Runs body in a child with stderr in a pipe; returns the wait status and what the child
 * printed. */
static int run_child(void (*body)(void), char *said, size_t size)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        signal(SIGABRT, SIG_DFL); /* cmocka has a handler of its own */
        body();
        _exit(0);
    }
    close(fds[1]);
    size_t got = 0;
    ssize_t n;
    char rest[512];
    while ((n = read(fds[0], rest, sizeof(rest))) > 0) {
        size_t keep = (size_t)n < size - 1 - got ? (size_t)n : size - 1 - got;
        memcpy(said + got, rest, keep);
        got += keep;
    }
    said[got] = '\0';
    close(fds[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void break_an_invariant(void)
{
    int two = 2;
    FR_CHECK(two == 3);
}

static void keep_an_invariant(void)
{
    int two = 2;
    FR_CHECK(two == 2);
}

static void ask_for_an_overflowing_array(void)
{
    volatile size_t count = SIZE_MAX / 2;
    free(fr_realloc(NULL, count, 4));
}

FR_CASE(a_broken_invariant_says_where_and_aborts)
{
    char said[1024];
    int status = run_child(break_an_invariant, said, sizeof(said));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "test_check.c:"));
    assert_non_null(strstr(said, "two == 3"));
    status = run_child(keep_an_invariant, said, sizeof(said));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

FR_CASE(refused_memory_ends_the_process_with_a_message)
{
    char said[1024];
    int status = run_child(ask_for_an_overflowing_array, said, sizeof(said));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "out of memory"));
}

FR_CASE(sums_and_products_that_overflow_are_refused)
{
    size_t out = 7;
    assert_false(fr_add_size(SIZE_MAX, 1, &out));
    assert_false(fr_mul_size(SIZE_MAX / 2 + 1, 2, &out));
    assert_int_equal(out, 7);
    assert_true(fr_add_size(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_true(fr_mul_size(6, 7, &out));
    assert_int_equal(out, 42);
}

FR_CASE(allocations_are_zeroed_aligned_and_never_null)
{
    unsigned char *plain = fr_alloc(100, 3);
    for (int i = 0; i < 300; i++)
        assert_int_equal(plain[i], 0);
    free(plain);
    free(fr_alloc(0, 8));
    free(fr_realloc(NULL, 0, 8));
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        unsigned char *aligned = fr_alloc_aligned(alignment, 777);
        assert_true((uintptr_t)aligned % alignment == 0);
        for (int i = 0; i < 777; i++)
            assert_int_equal(aligned[i], 0);
        free(aligned);
    }
}

FR_CASE(realloc_keeps_the_bytes)
{
    char *text = fr_strdup("freshet");
    text = fr_realloc(text, 1000, 1);
    assert_string_equal(text, "freshet");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_invariant_says_where_and_aborts),
        cmocka_unit_test(refused_memory_ends_the_process_with_a_message),
        cmocka_unit_test(sums_and_products_that_overflow_are_refused),
        cmocka_unit_test(allocations_are_zeroed_aligned_and_never_null),
        cmocka_unit_test(realloc_keeps_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
