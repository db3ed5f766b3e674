/* base/arena.h: alignment, reuse, large requests. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

FR_CASE(memory_is_aligned_and_disjoint)
{
    struct fr_arena arena = {.block_size = 4096};
    unsigned char *pieces[200];
    size_t sizes[200];
    for (int i = 0; i < 200; i++) {
        sizes[i] = (size_t)(i * 37 % 500);
        pieces[i] = fr_arena_take(&arena, sizes[i]);
        assert_true((uintptr_t)pieces[i] % 64 == 0);
        memset(pieces[i], i, sizes[i]);
    }
    for (int i = 0; i < 200; i++)
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(pieces[i][k], i);
    assert_true(arena.used <= arena.reserved);
    fr_arena_release(&arena);
    assert_int_equal(arena.reserved, 0);
    assert_int_equal(arena.block_size, 4096);
}

FR_CASE(a_repeated_workload_asks_the_system_for_nothing_more)
{
    struct fr_arena arena = {.block_size = 4096};
    size_t after_first = 0;
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 300; i++)
            (void)fr_arena_take(&arena, i * 131 % 9000);
        if (round == 0)
            after_first = arena.reserved;
        assert_int_equal(arena.reserved, after_first);
        fr_arena_reset(&arena);
        assert_int_equal(arena.used, 0);
    }
    fr_arena_release(&arena);
}

FR_CASE(a_request_above_the_block_size_is_served)
{
    struct fr_arena arena = {.block_size = 1024};
    unsigned char *small = fr_arena_take(&arena, 10);
    unsigned char *large = fr_arena_take(&arena, 100000);
    memset(large, 1, 100000);
    unsigned char *next = fr_arena_take(&arena, 10);
    /* the first block is still in use after the large request */
    assert_ptr_equal(next, small + 64);
    fr_arena_release(&arena);
}

FR_CASE(an_unused_arena_can_be_released)
{
    struct fr_arena arena = {0};
    fr_arena_reset(&arena);
    fr_arena_release(&arena);
    fr_arena_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_and_disjoint),
        cmocka_unit_test(a_repeated_workload_asks_the_system_for_nothing_more),
        cmocka_unit_test(a_request_above_the_block_size_is_served),
        cmocka_unit_test(an_unused_arena_can_be_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
