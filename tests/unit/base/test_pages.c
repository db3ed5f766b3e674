/* Large memory from the system is zeroed and aligned, and comes from the reserve if there is
 * one. */
#include "case.h"

#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/pages.h"

FR_CASE(large_memory_is_zeroed_and_aligned_to_huge_pages_when_they_are_asked_for)
{
    const size_t sizes[] = {256 << 10, (2 << 20) - 64, 2 << 20, (5 << 20) + 4096 + 8};
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes); i++)
        for (int huge = 0; huge < 2; huge++) {
            uint8_t *memory = fr_pages_take(sizes[i], huge);
            assert_int_equal((uintptr_t)memory % (huge ? FR_HUGE_PAGE : FR_PAGE), 0);
            assert_int_equal(memory[0] | memory[sizes[i] / 2] | memory[sizes[i] - 1], 0);
            memory[0] = memory[sizes[i] - 1] = 1;
            fr_pages_give(memory, sizes[i]);
        }
}

/* This is the last case, because a reserve stays until the process ends. */
FR_CASE(what_comes_from_the_reserve_is_zeroed_and_goes_back_to_it)
{
    enum { RESERVE = 24 << 20, UNIT = 64 << 10 };
    struct fr_pool *pool = fr_pool_new(2);
    assert_false(fr_pages_reserved(1));
    fr_pages_reserve(1, pool); /* less than a huge page */
    assert_int_equal(fr_pages_idle(), 0);
    fr_pages_reserve(RESERVE + 1, pool);
    fr_pages_reserve(2 * RESERVE, pool);
    fr_pool_free(pool);
    assert_int_equal(fr_pages_idle(), RESERVE);

    uint8_t *all = fr_pages_take(RESERVE, 0);
    uint8_t *more = fr_pages_take(RESERVE, 0); /* from the system */
    assert_int_equal(fr_pages_idle(), 0);
    assert_false(fr_pages_reserved(1));
    memset(all, 1, RESERVE);
    fr_pages_give(more, RESERVE);
    fr_pages_give(all, RESERVE);
    assert_int_equal(fr_pages_idle(), RESERVE);
    uint8_t *first = fr_pages_take(3 * UNIT + UNIT + 1, 1), *second = fr_pages_take(4 * UNIT, 1);
    assert_ptr_equal(first, all);
    assert_ptr_equal(second, first + 5 * UNIT);
    assert_int_equal(fr_pages_idle(), RESERVE - 9 * UNIT);
    for (size_t i = 0; i < 9 * UNIT; i++)
        assert_int_equal(first[i], 0);
    memset(second, 1, 4 * UNIT);
    fr_pages_forget(second, 1, 4 * UNIT);
    assert_int_equal(second[FR_PAGE - 1], 1);
    for (size_t i = FR_PAGE; i < 4 * UNIT; i++)
        assert_int_equal(second[i], 0);
    fr_pages_give(first, 3 * UNIT + UNIT + 1);
    assert_true(fr_pages_reserved(RESERVE - 9 * UNIT));
    assert_false(fr_pages_reserved(RESERVE - 8 * UNIT)); /* not in one piece */
    assert_ptr_equal(fr_pages_take(5 * UNIT, 0), first);
    fr_pages_give(first, 5 * UNIT);
    fr_pages_give(second, 4 * UNIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_memory_is_zeroed_and_aligned_to_huge_pages_when_they_are_asked_for),
        cmocka_unit_test(what_comes_from_the_reserve_is_zeroed_and_goes_back_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
