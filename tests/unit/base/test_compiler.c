/* The compiler gives right numbers for a pattern that gcc 12.2 gets wrong at -O2 (its pass
 * -fipa-modref, which cmake/options.cmake turns off): a function that changes an element of a local
 * array through a pointer, between two others, and the caller that then reads the first element. */
#include "case.h"

#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { DEPTH = 7, LEAVES = 5 };

/* A stack of sums of the leaves of a binary tree. */
struct stack {
    uint32_t depth;
    uint8_t leaves[DEPTH];
    double counts[DEPTH];
    double *moments; /* [DEPTH, 2] */
};

static uint32_t pop(struct stack *stack, uint32_t next)
{
    uint32_t top = stack->depth - 1;
    if (stack->depth < 2 || (uint32_t)(stack->leaves[top - 1] ^ stack->leaves[top]) > (stack->leaves[top] ^ next))
        return 0;
    stack->depth = top;
    return top;
}

__attribute__((noinline)) static void merge(double *count, double *moments, double n, const double *added)
{
    double all = *count + n, d = added[0] - moments[0];
    if (n == 0.0)
        return;
    moments[0] += d * (n / all);
    moments[1] += added[1] + d * d * (*count * (n / all));
    *count = all;
}

__attribute__((noinline)) static void merge_all(struct stack *stack, uint32_t next)
{
    for (uint32_t at; (at = pop(stack, next)) > 0;)
        merge(&stack->counts[at - 1], stack->moments + (at - 1) * 2, stack->counts[at], stack->moments + at * 2);
}

__attribute__((noinline)) static double count_all(const double *counts, double *moments)
{
    struct stack stack = {.moments = moments};
    for (uint32_t i = 0; i < LEAVES; i++) {
        merge_all(&stack, i);
        stack.leaves[stack.depth] = (uint8_t)i;
        stack.counts[stack.depth] = counts[i];
        moments[stack.depth * 2] = i;
        moments[stack.depth * 2 + 1] = 0;
        stack.depth++;
    }
    merge_all(&stack, UINT8_MAX);
    return stack.counts[0];
}

FR_CASE(an_element_of_an_array_is_read_after_the_call_that_changes_it)
{
    static const double counts[LEAVES] = {3, 5, 7, 11, 15};
    double moments[2 * DEPTH];
    assert_true(count_all(counts, moments) == 41);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_element_of_an_array_is_read_after_the_call_that_changes_it),
    };
    return cmocka_run_group_tests_name("compiler", tests, NULL, NULL);
}
