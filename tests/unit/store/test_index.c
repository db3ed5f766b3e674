/* The index: exactness against a plain array, bounded growth, scans, group matching. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

#include "../../../store/index.h"
#include "base/check.h"
#include "base/hash.h"

FR_CASE(vector_and_portable_matching_agree)
{
    uint8_t tags[FR_GROUP_ENTRIES];
    uint64_t random = 1;
    for (int round = 0; round < 2000; round++) {
        for (uint32_t i = 0; i < FR_GROUP_ENTRIES; i++) {
            random = fr_fmix64(random + 1);
            tags[i] = random % 3 == 0 ? (uint8_t)(random >> 60 & 1) : (uint8_t)(0x80 | (random >> 8 & 3));
        }
        for (unsigned tag = 0; tag < 256; tag += tag == 3 ? 125 : 1)
            assert_int_equal(fr_group_match(tags, (uint8_t)tag), fr_group_match_portable(tags, (uint8_t)tag));
        assert_int_equal(fr_group_full(tags), fr_group_full_portable(tags));
    }
}

static void insert_one(struct fr_index *index, uint64_t hash, size_t *moved_max)
{
    size_t moved = fr_index_prepare(index, 1);
    if (moved > *moved_max)
        *moved_max = moved;
    assert_null(fr_index_find(index, hash));
    fr_index_insert(index, hash)->count = (uint32_t)hash;
}

FR_CASE(growth_moves_a_bounded_number_of_groups_per_insert)
{
    struct fr_index index;
    fr_index_init(&index);
    size_t moved_max = 0;
    uint64_t generations = 0;
    const struct fr_group *groups = index.now.groups;
    for (uint64_t i = 1; i <= 200000; i++) {
        insert_one(&index, fr_fmix64(i), &moved_max);
        generations += index.now.groups != groups;
        groups = index.now.groups;
    }
    assert_int_equal(moved_max, FR_INDEX_MIGRATE_PER_KEY);
    assert_true(generations >= 12);
    assert_int_equal(index.n_entries, 200000);
    for (uint64_t i = 1; i <= 200000; i++) {
        const struct fr_entry *entry = fr_index_find(&index, fr_fmix64(i));
        assert_non_null(entry);
        assert_int_equal(entry->count, (uint32_t)fr_fmix64(i));
    }
    assert_null(fr_index_find(&index, fr_fmix64(200001)));
    fr_index_release(&index);
}

FR_CASE(a_large_prepare_during_migration_fits_all_its_inserts)
{
    for (uint64_t first = 1; first < 3000; first += 137) {
        struct fr_index index;
        fr_index_init(&index);
        size_t moved_max = 0;
        uint64_t i = 1;
        for (; i <= first; i++)
            insert_one(&index, fr_fmix64(i), &moved_max);
        size_t moved = fr_index_prepare(&index, 5000);
        assert_true(moved <= (size_t)5000 * FR_INDEX_MIGRATE_PER_KEY);
        struct fr_entry *kept = fr_index_insert(&index, fr_fmix64(i++));
        for (; i <= first + 5000; i++)
            fr_index_insert(&index, fr_fmix64(i));
        assert_ptr_equal(kept, fr_index_find(&index, fr_fmix64(first + 1))); /* nothing moved */
        fr_index_release(&index);
    }
}

enum { UNIVERSE = 1024 };

/* Hashes that crowd the last and first groups of a shard beside ordinary ones: wrapping and
 * displacement. */
static uint64_t crowded_hash(uint64_t i)
{
    if (i % 3 == 0)
        return i << 4 | 5; /* lowest group */
    if (i % 3 == 1)
        return 0x0fffffffffffffffULL - (i << 7); /* highest group, equal tags */
    return fr_fmix64(i);
}

static void check_all(const struct fr_index *index, const uint8_t *present)
{
    size_t n = 0;
    for (uint64_t i = 0; i < UNIVERSE; i++) {
        const struct fr_entry *entry = fr_index_find(index, crowded_hash(i));
        assert_int_equal(entry != NULL, present[i]);
        if (entry)
            assert_int_equal(entry->count, i);
        n += present[i];
    }
    assert_int_equal(index->n_entries, n);
}

FR_CASE(random_inserts_and_erases_match_a_plain_array)
{
    struct fr_index index;
    fr_index_init(&index);
    uint8_t present[UNIVERSE] = {0};
    uint64_t random = 42;
    for (int op = 0; op < 60000; op++) {
        random = fr_fmix64(random + 0x9e3779b97f4a7c15ULL);
        /* Phases of growth and of decay, so that deleted tags pile up. */
        bool grow = (random >> 32) % 100 < (op / 5000 % 2 == 0 ? 70u : 35u);
        uint64_t i = random % UNIVERSE;
        if (grow && !present[i]) {
            assert_true(fr_index_prepare(&index, 1) <= FR_INDEX_MIGRATE_PER_KEY);
            fr_index_insert(&index, crowded_hash(i))->count = (uint32_t)i;
            present[i] = 1;
        } else if (!grow && present[i]) {
            fr_index_erase(&index, fr_index_find(&index, crowded_hash(i)));
            present[i] = 0;
        }
        if (op % 1000 == 0)
            check_all(&index, present);
    }
    check_all(&index, present);
    fr_index_release(&index);
}

FR_CASE(every_entry_is_found_at_every_step_of_a_migration)
{
    struct fr_index index;
    fr_index_init(&index);
    uint8_t present[UNIVERSE] = {0};
    size_t migrating = 0;
    for (uint32_t i = 0; i < UNIVERSE; i++) {
        (void)fr_index_prepare(&index, 1);
        fr_index_insert(&index, crowded_hash(i))->count = i;
        present[i] = 1;
        if (!index.old.groups)
            continue;
        check_all(&index, present);
        migrating++;
    }
    assert_true(migrating > 10);
    fr_index_release(&index);
}

FR_CASE(deleted_tags_do_not_make_the_index_grow_without_end)
{
    struct fr_index index;
    fr_index_init(&index);
    for (uint64_t i = 1; i <= 100000; i++) { /* a window of 100 keys slides */
        (void)fr_index_prepare(&index, 1);
        fr_index_insert(&index, fr_fmix64(i));
        if (i > 100)
            fr_index_erase(&index, fr_index_find(&index, fr_fmix64(i - 100)));
    }
    assert_int_equal(index.n_entries, 100);
    assert_true(fr_index_bytes(&index) <= (size_t)2 * 64 * sizeof(struct fr_group));
    fr_index_release(&index);
}

struct scan_sum {
    uint32_t *visits;
    struct fr_index *index;
    bool erase;
};

FR_CASE(inserts_taken_back_leave_every_tag_as_it_was)
{
    enum { KEYS = 620, ERASED = 60, EXTRA = 180 };
    struct fr_index index;
    fr_index_init(&index);
    (void)fr_index_prepare(&index, KEYS + EXTRA);
    for (uint64_t i = 0; i < KEYS; i++)
        fr_index_insert(&index, fr_fmix64(i));
    for (uint64_t i = 0; i < ERASED; i++) /* some from full groups: deleted tags */
        fr_index_erase(&index, fr_index_find(&index, fr_fmix64(i)));
    size_t n_groups = (size_t)1 << index.now.log2_groups;
    uint8_t *tags = fr_alloc(n_groups, FR_GROUP_ENTRIES);
    for (size_t g = 0; g < n_groups; g++)
        memcpy(tags + g * FR_GROUP_ENTRIES, index.now.groups[g].tags, FR_GROUP_ENTRIES);
    struct fr_index before = index;
    struct fr_entry *made[EXTRA];
    bool was_empty[EXTRA];
    for (uint64_t i = 0; i < EXTRA; i++) {
        size_t used = index.now.used;
        made[i] = fr_index_insert(&index, fr_fmix64(KEYS + i));
        was_empty[i] = index.now.used != used;
    }
    for (uint64_t i = EXTRA; i > 0; i--)
        fr_index_uninsert(&index, made[i - 1], was_empty[i - 1]);
    assert_memory_equal(&index, &before, sizeof(index));
    for (size_t g = 0; g < n_groups; g++)
        assert_memory_equal(tags + g * FR_GROUP_ENTRIES, index.now.groups[g].tags, FR_GROUP_ENTRIES);
    free(tags);
    fr_index_release(&index);
}

static void count_visit(void *self, struct fr_entry *entry)
{
    struct scan_sum *sum = self;
    sum->visits[entry->count]++;
    if (sum->erase)
        fr_index_erase(sum->index, entry);
}

static void check_slices(uint32_t n, uint32_t bits, bool erase)
{
    struct fr_index index;
    fr_index_init(&index);
    for (uint32_t i = 0; i < n; i++) {
        (void)fr_index_prepare(&index, 1);
        fr_index_insert(&index, crowded_hash(i))->count = i;
    }
    uint32_t visits[UNIVERSE] = {0};
    for (uint64_t slice = 0; slice >> bits == 0; slice++) {
        uint32_t before[UNIVERSE];
        memcpy(before, visits, sizeof(before));
        struct scan_sum sum = {.visits = visits, .index = &index, .erase = erase};
        fr_index_scan(&index, bits, slice, count_visit, &sum);
        for (uint32_t i = 0; i < n; i++) {
            bool mine = bits == 0 || (crowded_hash(i) << FR_SHARD_BITS) >> (64 - bits) == slice;
            assert_int_equal(visits[i] - before[i], mine);
        }
    }
    assert_int_equal(index.n_entries, erase ? 0 : n);
    fr_index_release(&index);
}

FR_CASE(slices_visit_every_entry_once_also_while_migrating)
{
    for (uint32_t n = 0; n <= UNIVERSE; n += 61)
        for (uint32_t bits = 0; bits <= 9; bits += 3)
            check_slices(n, bits, false);
}

FR_CASE(a_scan_may_erase_what_it_visits)
{
    for (uint32_t n = 0; n <= UNIVERSE; n += 61)
        for (uint32_t bits = 0; bits <= 9; bits += 3)
            check_slices(n, bits, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_and_portable_matching_agree),
        cmocka_unit_test(growth_moves_a_bounded_number_of_groups_per_insert),
        cmocka_unit_test(a_large_prepare_during_migration_fits_all_its_inserts),
        cmocka_unit_test(random_inserts_and_erases_match_a_plain_array),
        cmocka_unit_test(every_entry_is_found_at_every_step_of_a_migration),
        cmocka_unit_test(deleted_tags_do_not_make_the_index_grow_without_end),
        cmocka_unit_test(inserts_taken_back_leave_every_tag_as_it_was),
        cmocka_unit_test(slices_visit_every_entry_once_also_while_migrating),
        cmocka_unit_test(a_scan_may_erase_what_it_visits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
