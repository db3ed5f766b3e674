/* Dense arrays through many chunks, singly taken ones and regions of huge pages alike. */
#include "case.h"

#include <stdint.h>
#include <stdlib.h>

#include "../../../store/array.h"
#include "../../../store/pages.h"
#include "base/check.h"
#include "base/random.h"

enum { STRIDE = 68 << 10, ITEMS_MAX = 1400, STEPS = 60 }; /* 32 items a chunk: 44 chunks */

static uint32_t *last_word(const struct fr_array *array, uint32_t i)
{
    return (uint32_t *)((uint8_t *)fr_array_at(array, i) + STRIDE) - 1;
}

static void grow_to(struct fr_array *array, uint32_t n)
{
    while (array->n < n) {
        uint32_t i = fr_array_push(array);
        *(uint32_t *)fr_array_at(array, i) = i;
        *last_word(array, i) = ~i;
    }
}

static void check_items(const struct fr_array *array)
{
    for (uint32_t i = 0; i < array->n; i++) {
        assert_int_equal(*(uint32_t *)fr_array_at(array, i), i);
        assert_int_equal(*last_word(array, i), ~i);
    }
}

static void grow_and_shrink(void)
{
    for (uint32_t place = 0; place < 3; place++) {
        struct fr_array array;
        fr_array_init(&array, STRIDE);
        fr_array_stagger(&array, place, 3);
        grow_to(&array, ITEMS_MAX);
        for (uint32_t step = 0; step < STEPS; step++) {
            uint32_t n = (uint32_t)(fr_random_u64(place, 1, step, 0) % ITEMS_MAX);
            grow_to(&array, n);
            array.n = n;
            fr_array_trim(&array);
            assert_true(fr_array_bytes(&array) < ((size_t)n + 16) * STRIDE);
            check_items(&array);
        }
        fr_array_release(&array);
    }
}

FR_CASE(items_keep_their_bytes_while_an_array_grows_and_shrinks_by_any_steps)
{
    grow_and_shrink();
}

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

/* The last case: a reserve stays. */
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

    grow_and_shrink(); /* beyond the reserve, and back into it */
    assert_int_equal(fr_pages_idle(), RESERVE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_keep_their_bytes_while_an_array_grows_and_shrinks_by_any_steps),
        cmocka_unit_test(large_memory_is_zeroed_and_aligned_to_huge_pages_when_they_are_asked_for),
        cmocka_unit_test(what_comes_from_the_reserve_is_zeroed_and_goes_back_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
