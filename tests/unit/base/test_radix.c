/* The radix sorts against qsort, in every number of passes they may take. */
#include <stdlib.h>
#include <string.h>

#include "base/radix.h"
#include "base/random.h"
#include "case.h"

enum { ITEMS = 3000 };

static int compare_items(const void *left, const void *right)
{
    const struct fr_radix_item *a = left, *b = right;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index); /* stable */
}

/* Random numbers that differ only in the bits of a mask, so that the number of passes varies from
 * none to all. */
FR_CASE(values_are_sorted_and_equal_items_keep_their_order)
{
    static struct fr_radix_item items[ITEMS], spare_items[ITEMS], expected[ITEMS];
    static uint64_t values[ITEMS], spare[ITEMS];
    static const uint64_t masks[] = {0, 1, 0xff, 0xff00ff, UINT64_C(0xf000000000000001), UINT32_MAX, UINT64_MAX};
    for (uint32_t c = 0; c < sizeof(masks) / sizeof(masks[0]); c++) {
        for (uint32_t i = 0; i < ITEMS; i++) {
            values[i] = fr_random_u64(5, c, i, 0) & masks[c];
            items[i] = expected[i] = (struct fr_radix_item){.value = values[i], .index = i};
        }
        qsort(expected, ITEMS, sizeof(expected[0]), compare_items);
        fr_radix_sort_items(items, spare_items, ITEMS);
        fr_radix_sort(values, spare, ITEMS);
        assert_memory_equal(items, expected, sizeof(expected));
        for (uint32_t i = 0; i < ITEMS; i++)
            assert_int_equal(values[i], expected[i].value);
    }
}

FR_CASE(none_and_one_are_sorted)
{
    struct fr_radix_item one = {.value = 7, .index = 3};
    fr_radix_sort(NULL, NULL, 0);
    fr_radix_sort(&one.value, NULL, 1);
    fr_radix_sort_items(&one, NULL, 1);
    assert_int_equal(one.value, 7);
    assert_int_equal(one.index, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_sorted_and_equal_items_keep_their_order),
        cmocka_unit_test(none_and_one_are_sorted),
    };
    return cmocka_run_group_tests_name("base radix", tests, NULL, NULL);
}
