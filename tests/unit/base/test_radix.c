/* The radix sort against qsort, in every number of passes it may take. */
#include <stdlib.h>
#include <string.h>

#include "base/radix.h"
#include "base/random.h"
#include "case.h"

enum { ITEMS = 3000 };

static int compare_items(const void *left, const void *right)
{
    const struct fr_radix_item *a = left, *b = right;
    if (a->high != b->high)
        return a->high < b->high ? -1 : 1;
    if (a->low != b->low)
        return a->low < b->low ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index); /* stable */
}

/* Random numbers of which only the bytes in a mask differ: so many passes, from none to twelve. */
FR_CASE(items_are_sorted_by_high_then_low_and_equal_ones_keep_their_order)
{
    static struct fr_radix_item items[ITEMS], spare[ITEMS], expected[ITEMS];
    static const uint64_t low_masks[] = {0, 0xff, 0xff00ff, UINT64_MAX};
    static const uint32_t high_masks[] = {0, 3, 0xff000000, UINT32_MAX};
    for (uint32_t c = 0; c < 16; c++) {
        for (uint32_t i = 0; i < ITEMS; i++)
            items[i] = (struct fr_radix_item){.low = fr_random_u64(5, c, i, 0) & low_masks[c % 4],
                                              .high = (uint32_t)fr_random_u64(5, c, i, 1) & high_masks[c / 4],
                                              .index = i};
        memcpy(expected, items, sizeof(items));
        qsort(expected, ITEMS, sizeof(expected[0]), compare_items);
        const struct fr_radix_item *sorted = fr_radix_sort(items, spare, ITEMS);
        assert_true(sorted == items || sorted == spare);
        assert_memory_equal(sorted, expected, sizeof(expected));
    }
}

FR_CASE(none_and_one_are_sorted)
{
    struct fr_radix_item one = {.low = 7, .high = 1, .index = 3};
    assert_ptr_equal(fr_radix_sort(NULL, NULL, 0), NULL);
    assert_ptr_equal(fr_radix_sort(&one, NULL, 1), &one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_sorted_by_high_then_low_and_equal_ones_keep_their_order),
        cmocka_unit_test(none_and_one_are_sorted),
    };
    return cmocka_run_group_tests_name("base radix", tests, NULL, NULL);
}
