/* Dense arrays through many chunks, both chunks that are allocated singly and regions of huge
 * pages. */
#include "case.h"

#include <stdint.h>
#include <stdlib.h>

#include "../../../store/array.h"
#include "base/pages.h"
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

/* This is the last case, because a reserve stays until the process ends. */
FR_CASE(items_keep_their_bytes_beyond_the_reserve_and_back_into_it)
{
    enum { RESERVE = 24 << 20 };
    struct fr_pool *pool = fr_pool_new(2);
    fr_pages_reserve(RESERVE, pool);
    fr_pool_free(pool);
    grow_and_shrink();
    assert_int_equal(fr_pages_idle(), RESERVE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_keep_their_bytes_while_an_array_grows_and_shrinks_by_any_steps),
        cmocka_unit_test(items_keep_their_bytes_beyond_the_reserve_and_back_into_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
