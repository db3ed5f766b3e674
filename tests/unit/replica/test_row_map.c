/* Rows of a table whose keys someone chose: where they lie is not theirs to choose. The map is not
 * part of the library's ABI, so it is compiled in here. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>

#include "../../../replica/row_map.c"

enum { CROWD = 98000 }; /* a little less than 3/4 of 2^17: about as full as a map gets */

/* By the ways to choose them: as they come, one pattern in the low bits, in the high bits,
 * multiples of a large number, small numbers, and those that share a place in every map that mixes
 * without a salt. */
static uint64_t chosen(int way, uint64_t i)
{
    switch (way) {
    case 0:
        return fr_fmix64(i);
    case 1:
        return i << 32 | 0x1234;
    case 2:
        return (uint64_t)0xabcdef << 40 | i;
    case 3:
        return i * ((uint64_t)1 << 47);
    case 4:
        return i;
    default:
        return fr_fmix64_inverse(i << 20 | 0x5a5a5);
    }
}

/* Steps from where a key belongs to where it is, of all keys. */
static uint64_t steps(const struct fr_row_map *map)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < map->capacity; at++)
        if (map->cells[at] != 0)
            sum += (at - home_of(map, map->keys[at])) & (map->capacity - 1);
    return sum;
}

FR_CASE(chosen_keys_lie_as_close_as_any)
{
    for (int way = 0; way < 6; way++) {
        struct fr_row_map map;
        fr_row_map_init(&map, 1);
        uint64_t distinct = 0;
        for (uint64_t i = 0; i < CROWD; i++)
            *fr_row_map_put(&map, chosen(way, i)) = (float)i;
        distinct = map.n_rows;
        assert_true(way == 3 || distinct == CROWD);
        /* one and a half expected; thousands when a place is shared */
        if (steps(&map) > 6 * distinct)
            fail_msg("way %d, salt 0x%llx: %llu steps for %llu keys", way, (unsigned long long)map.order.salt,
                     (unsigned long long)steps(&map), (unsigned long long)distinct);
        for (uint64_t i = 0; way != 3 && i < CROWD; i++)
            assert_true(*fr_row_map_find(&map, chosen(way, i)) == (float)i);
        fr_row_map_release(&map);
    }
}

FR_CASE(two_maps_have_two_orders_and_one_list_of_keys)
{
    struct fr_row_map maps[2];
    uint64_t *keys[2];
    for (int m = 0; m < 2; m++) {
        fr_row_map_init(&maps[m], 2);
        for (uint64_t i = 0; i < 5000; i++)
            (void)fr_row_map_put(&maps[m], chosen(1, m ? 4999 - i : i));
        for (uint64_t i = 0; i < 5000; i += 3)
            fr_row_map_erase(&maps[m], chosen(1, i));
        for (uint64_t i = 0; i < 5000; i++)
            assert_int_equal(fr_row_map_find(&maps[m], chosen(1, i)) != NULL, i % 3 != 0);
        keys[m] = fr_row_map_sorted_keys(&maps[m]);
    }
    assert_true(maps[0].order.salt != maps[1].order.salt);
    assert_int_equal(maps[0].n_rows, 3333);
    assert_int_equal(maps[1].n_rows, 3333);
    assert_memory_equal(keys[0], keys[1], 3333 * sizeof(uint64_t));
    for (int m = 0; m < 2; m++) {
        free(keys[m]);
        fr_row_map_release(&maps[m]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_keys_lie_as_close_as_any),
        cmocka_unit_test(two_maps_have_two_orders_and_one_list_of_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
