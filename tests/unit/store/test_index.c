/* The index: exactness against a plain array, bounded growth, scans, merging, group matching. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

#include "../../../store/index.h"
#include "base/check.h"
#include "base/hash.h"

FR_CASE(vector_and_portable_matching_agree)
{
    struct fr_group group = {0};
    uint64_t random = 1;
    for (int round = 0; round < 2000; round++) {
        for (uint32_t i = 0; i < FR_GROUP_PLACES; i++) {
            random = fr_fmix64(random + 1);
            group.tags[i] = random % 3 == 0 ? (uint8_t)(random >> 60 & 1) : (uint8_t)(0x80 | (random >> 8 & 3));
        }
        group.behind = (uint32_t)round % 256 * 0x01010101u; /* never taken for a tag */
        for (unsigned tag = 0; tag < 256; tag += tag == 3 ? 125 : 1)
            assert_int_equal(fr_group_match(&group, (uint8_t)tag), fr_group_match_portable(&group, (uint8_t)tag));
        assert_int_equal(fr_group_full(&group), fr_group_full_portable(&group));
    }
}

struct keys { /* an index with light entries, which suffice here */
    struct fr_index index;
    struct fr_entries entries;
};

static void keys_open(struct keys *k)
{
    fr_index_init(&k->index);
    fr_entries_init(&k->entries, sizeof(float));
}

static void keys_close(struct keys *k)
{
    fr_index_release(&k->index);
    fr_entries_release(&k->entries);
}

static void insert(struct keys *k, uint64_t hash, uint32_t count)
{
    assert_int_equal(fr_index_find(&k->index, &k->entries, hash), FR_NO_ENTRY);
    uint32_t number = fr_array_push(&k->entries.light) | FR_LIGHT;
    *fr_entries_light(&k->entries, number) = (struct fr_light_entry){.entry = {.hash = hash}, .count = count};
    fr_index_insert(&k->index, &k->entries, hash, number);
}

static void erase(struct keys *k, uint64_t hash)
{
    uint32_t number = fr_index_find(&k->index, &k->entries, hash), last = (k->entries.light.n - 1) | FR_LIGHT;
    assert_true(number != FR_NO_ENTRY);
    fr_index_erase(&k->index, hash, number);
    if (number != last) {
        *fr_entries_light(&k->entries, number) = *fr_entries_light(&k->entries, last);
        fr_index_renumber(&k->index, fr_entries_at(&k->entries, number)->hash, last, number);
    }
    k->entries.light.n--;
}

static bool holds(const struct keys *k, uint64_t hash, uint32_t count)
{
    uint32_t number = fr_index_find(&k->index, &k->entries, hash);
    return number != FR_NO_ENTRY && fr_entries_light(&k->entries, number)->count == count;
}

enum { MANY = 1000000 };

FR_CASE(segments_split_one_by_one_and_spread_over_the_growth)
{
    struct keys k;
    keys_open(&k);
    uint32_t segments_half = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t before = k.index.n_segments;
        size_t bytes = k.index.bytes;
        insert(&k, fr_fmix64(i) >> 4, i);
        assert_in_range(k.index.n_segments, before, before + 1);
        assert_true(k.index.bytes <= bytes + 2 * FR_SEGMENT_GROUPS * sizeof(struct fr_group));
        if (i == MANY / 2)
            segments_half = k.index.n_segments;
    }
    /* neither all before the middle nor all after it */
    assert_in_range(segments_half, k.index.n_segments / 3, k.index.n_segments * 2 / 3);
    assert_true(k.index.bytes <= (size_t)MANY * 8);
    for (uint32_t i = 0; i < MANY; i++)
        assert_true(holds(&k, fr_fmix64(i) >> 4, i));
    assert_int_equal(fr_index_find(&k.index, &k.entries, fr_fmix64(MANY + 1) >> 4), FR_NO_ENTRY);
    keys_close(&k);
}

/* As many calls as there are segments are enough: each merges two at most. */
static void trim_all(struct keys *k)
{
    for (uint32_t i = k->index.n_segments; i > 0; i--) {
        uint32_t before = k->index.n_segments;
        fr_index_trim(&k->index, &k->entries);
        assert_in_range(before - k->index.n_segments, 0, 1);
    }
}

FR_CASE(memory_goes_back_when_entries_go)
{
    struct keys k;
    keys_open(&k);
    for (uint32_t i = 0; i < MANY; i++)
        insert(&k, fr_fmix64(i) >> 4, i);
    size_t full = k.index.bytes;
    for (uint32_t i = 0; i < MANY; i++)
        if (i % 16)
            erase(&k, fr_fmix64(i) >> 4);
    trim_all(&k);
    assert_true(k.index.bytes < full / 6);
    assert_true(k.index.pieces.n * FR_EXTENT < full / 2);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(holds(&k, fr_fmix64(i) >> 4, i), i % 16 == 0);
    for (uint32_t i = 0; i < MANY; i += 16)
        erase(&k, fr_fmix64(i) >> 4);
    trim_all(&k);
    assert_int_equal(k.index.n_segments, 1);
    assert_int_equal(k.index.depth, 0);
    keys_close(&k);
}

FR_CASE(a_reserved_index_takes_what_it_was_made_for)
{
    for (uint32_t n = 1; n <= MANY; n *= 10) {
        struct keys k;
        keys_open(&k);
        fr_index_reserve(&k.index, n);
        uint32_t segments = k.index.n_segments;
        for (uint32_t i = 0; i < n; i++)
            insert(&k, fr_fmix64(i) >> 4, i);
        assert_true(k.index.n_segments <= segments + segments / 4);
        for (uint32_t i = 0; i < n; i++)
            assert_true(holds(&k, fr_fmix64(i) >> 4, i));
        keys_close(&k);
    }
}

FR_CASE(what_an_index_is_made_for_stays_its_own)
{
    struct keys k;
    keys_open(&k);
    k.index.least = MANY;
    fr_index_reserve(&k.index, MANY / 10);
    uint32_t segments = k.index.n_segments;
    size_t bytes = k.index.bytes;
    assert_true(segments > 1);
    for (uint32_t i = 0; i < MANY; i++)
        insert(&k, fr_fmix64(i) >> 4, i);
    assert_true(k.index.n_segments <= segments + segments / 4);
    for (uint32_t i = 0; i < MANY; i++)
        erase(&k, fr_fmix64(i) >> 4);
    trim_all(&k);
    assert_true(k.index.bytes >= bytes);
    keys_close(&k);
}

static uint64_t plain_hash(uint64_t i)
{
    return fr_fmix64(i) >> 4;
}

static void set_hashes(struct keys *k, uint64_t flip)
{
    for (uint32_t i = 0; i < k->entries.light.n; i++)
        fr_entries_light(&k->entries, i | FR_LIGHT)->entry.hash = plain_hash(i) ^ flip;
}

FR_CASE(a_segment_grows_by_a_step_without_reading_entries)
{
    for (uint32_t size = FR_SEGMENT_GROUPS; size < FR_SEGMENT_GROUPS_MAX; size += FR_SEGMENT_STEP) {
        struct keys k;
        keys_open(&k);
        uint32_t n = 0, found = 0;
        const struct fr_segment *segment = &k.index.segments[0];
        for (; segment->n_groups < size || segment->used < segment->limit; n++)
            insert(&k, plain_hash(n), n);
        set_hashes(&k, UINT64_MAX); /* whose entry is read now is not found again */
        insert(&k, plain_hash(n), n);
        set_hashes(&k, 0);
        assert_int_equal(segment->n_groups, size + FR_SEGMENT_STEP);
        for (uint32_t i = 0; i < n; i++)
            found += holds(&k, plain_hash(i), i);
        assert_in_range(found, n - n / 32, n);
        keys_close(&k);
    }
}

enum { UNIVERSE = 1024 };

/* Hashes that crowd the last and the first groups of a shard, mixed with ordinary ones, to test
 * wrapping and displacement. */
static uint64_t crowded_hash(uint64_t i)
{
    if (i % 3 == 0)
        return i << 4 | 5; /* lowest group */
    if (i % 3 == 1)
        return 0x0fffffffffffffffULL - (i << 7); /* highest group, equal tags */
    return fr_fmix64(i) >> 4;
}

static void check_all(const struct keys *k, const uint8_t *present)
{
    size_t n = 0;
    for (uint32_t i = 0; i < UNIVERSE; i++) {
        assert_int_equal(holds(k, crowded_hash(i), i), present[i]);
        n += present[i];
    }
    assert_int_equal(k->index.n_entries, n);
}

FR_CASE(random_inserts_and_erases_match_a_plain_array)
{
    struct keys k;
    keys_open(&k);
    uint8_t present[UNIVERSE] = {0};
    uint64_t random = 42;
    for (int op = 0; op < 60000; op++) {
        random = fr_fmix64(random + 0x9e3779b97f4a7c15ULL);
        /* Phases of growth and of decay, so that deleted tags pile up. */
        bool grow = (random >> 32) % 100 < (op / 5000 % 2 == 0 ? 70u : 35u);
        uint64_t i = random % UNIVERSE;
        if (grow && !present[i]) {
            insert(&k, crowded_hash(i), (uint32_t)i);
            present[i] = 1;
        } else if (!grow && present[i]) {
            erase(&k, crowded_hash(i));
            present[i] = 0;
        }
        if (op % 1000 == 0)
            check_all(&k, present);
        if (op % 7000 == 0)
            fr_index_trim(&k.index, &k.entries);
    }
    check_all(&k, present);
    keys_close(&k);
}

static uint64_t partly_crowded_hash(uint64_t i)
{
    return i % 4 ? plain_hash(i) : crowded_hash(i);
}

FR_CASE(segments_with_places_far_behind_their_homes_grow_and_split)
{
    enum { KEYS = 40000, LOOK = 2000 };
    struct keys k;
    keys_open(&k);
    for (uint32_t i = 0; i < KEYS; i++) {
        insert(&k, partly_crowded_hash(i), i);
        if (i % 2 && i / 2 % 5 < 2)
            erase(&k, partly_crowded_hash(i / 2));
        for (uint32_t j = 0; i % LOOK == 0 && j <= i; j++)
            assert_int_equal(holds(&k, partly_crowded_hash(j), j), j % 5 >= 2 || 2 * j + 1 > i);
    }
    assert_in_range(k.index.n_segments, 2, 16);
    keys_close(&k);
}

FR_CASE(hashes_that_are_no_hashes_do_not_make_the_directory_explode)
{
    struct keys k;
    keys_open(&k);
    for (uint32_t i = 0; i < 100000; i++)
        insert(&k, (uint64_t)i << 3, i);
    assert_in_range(k.index.depth, 0, 16);
    for (uint32_t i = 0; i < 100000; i += 97)
        assert_true(holds(&k, (uint64_t)i << 3, i));
    keys_close(&k);
}

FR_CASE(deleted_tags_do_not_make_the_index_grow_without_end)
{
    struct keys k;
    keys_open(&k);
    for (uint32_t i = 1; i <= 100000; i++) { /* a window of 100 keys slides */
        insert(&k, fr_fmix64(i) >> 4, i);
        if (i > 100)
            erase(&k, fr_fmix64(i - 100) >> 4);
    }
    assert_int_equal(k.index.n_entries, 100);
    assert_true(k.index.bytes <= 64 * sizeof(struct fr_group));
    keys_close(&k);
}

struct scan_sum {
    const struct keys *keys;
    uint32_t *visits;
};

static void count_visit(void *self, uint32_t number)
{
    struct scan_sum *sum = self;
    sum->visits[fr_entries_light(&sum->keys->entries, number)->count]++;
}

static void check_slices(uint32_t n, uint32_t bits, uint64_t (*hash)(uint64_t))
{
    struct keys k;
    keys_open(&k);
    uint32_t *visits = fr_alloc(n + 1, sizeof(*visits)), *before = fr_alloc(n + 1, sizeof(*before));
    for (uint32_t i = 0; i < n; i++)
        insert(&k, hash(i), i);
    struct scan_sum sum = {.keys = &k, .visits = visits};
    for (uint64_t slice = 0; slice >> bits == 0; slice++) {
        memcpy(before, visits, n * sizeof(*visits));
        fr_index_scan(&k.index, &k.entries, bits, slice, count_visit, &sum);
        for (uint32_t i = 0; i < n; i++) {
            bool mine = bits == 0 || (hash(i) << FR_SHARD_BITS) >> (64 - bits) == slice;
            assert_int_equal(visits[i] - before[i], mine);
        }
    }
    free(visits);
    free(before);
    keys_close(&k);
}

FR_CASE(slices_visit_every_entry_once)
{
    for (uint32_t n = 0; n <= UNIVERSE; n += 61)
        for (uint32_t bits = 0; bits <= 9; bits += 3)
            check_slices(n, bits, crowded_hash);
    check_slices(100000, 0, plain_hash); /* several segments */
    check_slices(100000, 2, plain_hash);
    check_slices(100000, 7, plain_hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_and_portable_matching_agree),
        cmocka_unit_test(segments_split_one_by_one_and_spread_over_the_growth),
        cmocka_unit_test(memory_goes_back_when_entries_go),
        cmocka_unit_test(a_reserved_index_takes_what_it_was_made_for),
        cmocka_unit_test(what_an_index_is_made_for_stays_its_own),
        cmocka_unit_test(a_segment_grows_by_a_step_without_reading_entries),
        cmocka_unit_test(random_inserts_and_erases_match_a_plain_array),
        cmocka_unit_test(segments_with_places_far_behind_their_homes_grow_and_split),
        cmocka_unit_test(hashes_that_are_no_hashes_do_not_make_the_directory_explode),
        cmocka_unit_test(deleted_tags_do_not_make_the_index_grow_without_end),
        cmocka_unit_test(slices_visit_every_entry_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
