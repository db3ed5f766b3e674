/* Rows of a table: chosen keys, growing, removing, refused memory. The table is not part of the
 * library's ABI, so it is compiled in here, with an allocator that refuses on demand. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>

#include "../../../replica/overlay.c"
#include "../../../replica/retire.c"
#include "../../../replica/row_table.c"

static int64_t left = INT64_MAX; /* allocations until one is refused */
static uint64_t held;            /* bytes of all that was given, freed or not */

void *fr_replica_memory_try(struct fr_replica_memory *memory, size_t alignment, size_t size)
{
    void *given = NULL;
    (void)memory;
    if (left-- <= 0 || posix_memalign(&given, alignment, size) != 0)
        return NULL;
    held += size;
    return memset(given, 0, size);
}

enum { CROWD = 98000, WIDTH = 16 };

/* By the ways to choose keys: as they come, one pattern in the low bits, in the high bits,
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
        return i * ((uint64_t)1 << 40);
    case 4:
        return i;
    default:
        return fr_fmix64_inverse(i << 20 | 0x5a5a5);
    }
}

static void put(struct fr_row_table *rows, uint64_t key, float value)
{
    uint32_t slot, old;
    assert_true(fr_row_take(rows, key, &slot));
    *fr_row_values(rows, slot) = value;
    assert_true(fr_row_set(rows, key, slot, &old));
    if (old != FR_NO_SLOT)
        fr_row_give(rows, old);
}

static float get(const struct fr_row_table *rows, uint64_t key)
{
    uint32_t slot = fr_row_find(rows, fr_row_hash(rows, key), key);
    return slot == FR_NO_SLOT ? -1.0f : *fr_row_values(rows, slot);
}

/* Returns the sum over all keys of the lines between a key's home and its place. */
static uint64_t lines_walked(const struct fr_row_table *rows)
{
    const struct fr_row_directory *directory = atomic_load(&rows->directory);
    uint64_t sum = 0;
    for (size_t d = 0; d < (size_t)1 << directory->depth; d++) {
        const struct fr_row_segment *segment = atomic_load(&directory->segments[d]);
        for (uint32_t l = 0; l < segment->n_lines; l++)
            for (uint32_t i = 0; i < FR_LINE_CELLS; i++) {
                uint32_t slot;
                uint64_t hash;
                if (hash_at(rows, &segment->lines[l], i, &slot, &hash) && place_in(directory->depth, hash) == d)
                    sum += (l + segment->n_lines - home_of(segment, hash)) % segment->n_lines;
            }
    }
    return sum;
}

FR_CASE(chosen_keys_lie_as_close_as_any)
{
    for (int way = 0; way < 6; way++) {
        struct fr_row_table *rows = fr_row_table_new(1, NULL);
        for (uint64_t i = 0; i < CROWD; i++)
            put(rows, chosen(way, i), (float)i);
        assert_true(way == 3 || rows->n_rows == CROWD);
        if (lines_walked(rows) > rows->n_rows)
            fail_msg("way %d: %llu lines walked for %llu keys", way, (unsigned long long)lines_walked(rows),
                     (unsigned long long)rows->n_rows);
        for (uint64_t i = 0; way != 3 && i < CROWD; i++)
            assert_true(get(rows, chosen(way, i)) == (float)i);
        assert_true(get(rows, 0x123456789abcdefULL) == -1.0f);
        fr_row_table_free(rows);
    }
}

/* Bytes a row of slabs and index, without what was freed. */
static double bytes_a_row(const struct fr_row_table *rows)
{
    const struct fr_row_directory *directory = atomic_load(&rows->directory);
    uint64_t bytes = (rows->n_slabs * rows->stride << rows->slab_bits) * sizeof(float);
    size_t places;
    for (size_t d = 0; d < (size_t)1 << directory->depth; d += places) {
        const struct fr_row_segment *segment = atomic_load(&directory->segments[d]);
        places = (size_t)1 << (directory->depth - segment->depth);
        bytes += places * 8 + segment->n_lines * sizeof(struct fr_row_line);
    }
    return (double)bytes / (double)rows->n_rows;
}

FR_CASE(a_row_costs_no_more_than_its_floats_and_a_third_and_sixteen_bytes)
{
    for (uint32_t width = 1; width <= 64; width *= 4) {
        struct fr_row_table *rows = fr_row_table_new(width, NULL);
        double most = 0;
        for (uint64_t i = 0; i < 600000; i++) {
            put(rows, i, 0.0f);
            if (i >= 200000 && i % 1000 == 0 && bytes_a_row(rows) > most)
                most = bytes_a_row(rows);
        }
        print_message("width %u: at most %.1f bytes a row of %u\n", width, most, width * 4);
        assert_true(most <= 1.3 * width * 4 + 16);
        fr_row_table_free(rows);
    }
}

/* While keys come and go, places are used again and the index does not grow. */
FR_CASE(a_table_that_turns_over_stays_as_it_is)
{
    enum { ROWS = 20000, ROUNDS = 20 };
    struct fr_row_table *rows = fr_row_table_new(WIDTH, NULL);
    double first = 0;
    for (uint64_t i = 0; i < (uint64_t)ROWS * ROUNDS; i++) {
        put(rows, i, (float)(i % 1000));
        if (i < ROWS)
            continue;
        uint32_t old = fr_row_unset(rows, i - ROWS);
        assert_true(old != FR_NO_SLOT && *fr_row_values(rows, old) == (float)((i - ROWS) % 1000));
        fr_row_give(rows, old);
        if (i == 2 * ROWS)
            first = bytes_a_row(rows);
    }
    assert_int_equal(rows->n_rows, ROWS);
    assert_true(bytes_a_row(rows) < 1.2 * first);
    for (uint64_t i = 0; i < (uint64_t)ROWS * ROUNDS; i++)
        assert_true(get(rows, i) == (i >= (uint64_t)ROWS * (ROUNDS - 1) ? (float)(i % 1000) : -1.0f));
    fr_row_table_free(rows);
}

static void count_key(void *self, uint64_t key)
{
    uint8_t *seen = self;
    assert_true(key < CROWD && !seen[key]);
    seen[key] = 1;
}

FR_CASE(a_reserved_table_lists_every_key_once)
{
    static uint8_t seen[CROWD];
    struct fr_row_table *rows = fr_row_table_new(1, NULL);
    assert_true(fr_row_table_reserve(rows, CROWD));
    uint64_t before = held;
    for (uint64_t i = 0; i < CROWD; i++)
        put(rows, i, 0.0f);
    assert_true(held - before < CROWD * 12 + (1 << 20)); /* slots, no index */
    fr_row_list(rows, count_key, seen);
    for (uint64_t i = 0; i < CROWD; i++)
        assert_true(seen[i]);
    fr_row_table_free(rows);
}

/* Every allocation is refused once; what was there is there, and the call goes through later. */
FR_CASE(a_refusal_changes_nothing)
{
    int refusals = 0;
    struct fr_row_table *rows = NULL;
    for (left = 0; !rows; left = ++refusals)
        rows = fr_row_table_new(WIDTH, NULL);
    for (uint64_t i = 0; i < 60000; i++) {
        uint32_t slot = FR_NO_SLOT, old = FR_NO_SLOT;
        for (left = 0; !fr_row_take(rows, i, &slot); left = 1)
            refusals++;
        *fr_row_values(rows, slot) = (float)i;
        for (int64_t allowed = left = 0; !fr_row_set(rows, i, slot, &old); left = ++allowed) {
            refusals++;
            assert_true(get(rows, i) == -1.0f && (i == 0 || get(rows, i / 2) == (float)(i / 2)));
        }
    }
    left = INT64_MAX;
    print_message("%d refusals\n", refusals);
    assert_true(refusals > 40);
    for (uint64_t i = 0; i < 60000; i++)
        assert_true(get(rows, i) == (float)i);
    fr_row_table_free(rows);
}

FR_CASE(an_overlay_is_found_first_and_goes_into_the_rows_piece_by_piece)
{
    enum { ROWS = 40000 };
    struct fr_retirement retirement;
    fr_retired_init(&retirement);
    struct fr_row_table *rows = fr_row_table_new(1, NULL);
    for (uint64_t i = 0; i < ROWS; i++)
        put(rows, i, 1.0f);
    rows->retirement = &retirement;
    struct fr_overlay *overlay = fr_overlay_new(rows, 2 * ROWS, NULL);
    for (uint64_t i = 0; i < 2 * ROWS; i += 2) { /* half change, a few of these go */
        uint32_t *slot = fr_overlay_put(overlay, i), found;
        if (i % 10 != 0)
            assert_true(fr_row_take(rows, i, slot));
        if (i % 10 != 0)
            *fr_row_values(rows, *slot) = 2.0f;
        assert_true(fr_overlay_find(overlay, fr_row_hash(rows, i), i, &found) && found == *slot);
        assert_false(fr_overlay_find(overlay, fr_row_hash(rows, i + 1), i + 1, &found));
    }
    int tries = 1;
    for (left = 0; !fr_overlay_merge(overlay); left = 1)
        tries++;
    left = INT64_MAX;
    print_message("%d tries\n", tries);
    assert_true(tries > 2);
    assert_int_equal(overlay->n_replaced, ROWS / 2);
    uint32_t spare = rows->n_spare;
    fr_overlay_retire(overlay, &retirement);
    fr_retired_release(&retirement, 1);
    assert_int_equal(rows->n_spare, spare + ROWS / 2);
    for (uint64_t i = 0; i < 2 * ROWS; i++)
        assert_true(get(rows, i) == (i % 10 == 0 ? -1.0f : i % 2 == 0 ? 2.0f : i < ROWS ? 1.0f : -1.0f));
    fr_row_table_free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_keys_lie_as_close_as_any),
        cmocka_unit_test(a_row_costs_no_more_than_its_floats_and_a_third_and_sixteen_bytes),
        cmocka_unit_test(a_table_that_turns_over_stays_as_it_is),
        cmocka_unit_test(a_reserved_table_lists_every_key_once),
        cmocka_unit_test(a_refusal_changes_nothing),
        cmocka_unit_test(an_overlay_is_found_first_and_goes_into_the_rows_piece_by_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
