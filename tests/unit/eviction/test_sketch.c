/* Sketch: counts are never low, rarely high, halved by the watermark, and taken back exactly. */
#include "case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "policy/policy.h"
#include "policy/sketch.h"

static uint64_t next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dULL;
}

static uint64_t hash_of(uint32_t key)
{
    return fr_fmix64(key + 1) >> 4; /* all keys are of shard 0 */
}

/* Zipf of exponent 1: the rank's logarithm is uniform. */
static uint32_t draw(uint64_t *random, uint32_t universe, bool zipf)
{
    uint64_t x = next(random) >> 32;
    if (!zipf)
        return (uint32_t)(x * universe >> 32);
    return (uint32_t)pow(universe, (double)x / 4294967296.0) - 1;
}

struct errors {
    uint64_t keys, over, false_admissions;
};

/* A stream of n occurrences over a sketch of `bytes`; false admissions are those at a count of 3 of
 * keys that came less often. */
static struct errors measure(uint64_t bytes, uint32_t universe, uint64_t n, bool zipf)
{
    struct fr_sketch sketch;
    fr_sketch_init(&sketch, bytes, 0);
    struct fr_sketch_log log = {0};
    uint32_t *counts = fr_alloc(universe, sizeof(*counts)), *reads = fr_alloc(universe, sizeof(*reads));
    uint64_t random = 11;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t key = draw(&random, universe, zipf);
        bool changed;
        counts[key]++;
        reads[key] = fr_sketch_add(&sketch, hash_of(key), 1, 0, &log, &changed);
        uint32_t exact = counts[key] < FR_GATE_SKETCH_MAX ? counts[key] : FR_GATE_SKETCH_MAX;
        assert_true(reads[key] >= exact);
        log.n = 0;
    }
    struct errors errors = {0};
    for (uint32_t k = 0; k < universe; k++) {
        errors.keys += counts[k] > 0;
        errors.over += reads[k] > counts[k] && counts[k] < FR_GATE_SKETCH_MAX;
        errors.false_admissions += counts[k] > 0 && counts[k] < 3 && reads[k] >= 3;
    }
    printf("%s, %.1f bytes a key: %.3f %% too high, %.3f %% admitted at 3 too early\n", zipf ? "zipf" : "uniform",
           (double)bytes / (double)errors.keys, 100.0 * (double)errors.over / (double)errors.keys,
           100.0 * (double)errors.false_admissions / (double)errors.keys);
    fr_sketch_log_release(&log);
    fr_sketch_release(&sketch);
    free(counts);
    free(reads);
    return errors;
}

FR_CASE(counts_are_never_low_and_rarely_high)
{
    struct errors uniform = measure(800000, 100000, 100000, false);
    assert_true(uniform.over * 100 < uniform.keys * 2);
    assert_true(uniform.false_admissions * 1000 < uniform.keys * 3);
    struct errors zipf = measure(600000, 400000, 400000, true);
    assert_true(zipf.over * 100 < zipf.keys * 2);
    assert_true(zipf.false_admissions * 1000 < zipf.keys * 3);
    struct errors tight = measure(200000, 100000, 100000, false);
    assert_true(tight.over > uniform.over);
}

static uint32_t add(struct fr_sketch *sketch, uint32_t key, uint64_t n, int64_t watermark_ms)
{
    struct fr_sketch_log log = {0};
    bool changed;
    uint32_t count = fr_sketch_add(sketch, hash_of(key), n, watermark_ms, &log, &changed);
    fr_sketch_log_release(&log);
    return count;
}

FR_CASE(a_count_stops_at_its_limit)
{
    struct fr_sketch sketch;
    fr_sketch_init(&sketch, 1 << 16, 0);
    assert_int_equal(add(&sketch, 1, 14, 0), 14);
    assert_int_equal(add(&sketch, 1, 1, 0), 15);
    assert_int_equal(add(&sketch, 1, 1, 0), 15);
    assert_int_equal(add(&sketch, 2, UINT64_MAX, 0), 15);
    fr_sketch_release(&sketch);
}

FR_CASE(counts_are_halved_once_per_half_life_whenever_they_are_touched)
{
    struct fr_sketch sketch;
    fr_sketch_init(&sketch, 1 << 20, 1000);
    assert_int_equal(add(&sketch, 1, 12, 5999), 12);
    assert_int_equal(add(&sketch, 1, 1, 6000), 7);
    assert_int_equal(add(&sketch, 1, 1, 6999), 8);
    assert_int_equal(add(&sketch, 1, 1, 8000), 3); /* two half-lives at once */
    assert_int_equal(add(&sketch, 1, 1, 12000), 1);
    assert_int_equal(add(&sketch, 1, 1, 3000), 2); /* never goes back, but might */
    assert_int_equal(add(&sketch, 1, 1, INT64_MAX), 1);
    assert_int_equal(add(&sketch, 1, 1, INT64_MIN), 2);
    fr_sketch_release(&sketch);
}

FR_CASE(a_batch_is_taken_back_to_the_bit)
{
    struct fr_sketch sketch;
    fr_sketch_init(&sketch, 64 * 100, 10);
    uint64_t random = 5;
    struct fr_sketch_log log = {0};
    for (uint32_t round = 0; round < 200; round++) {
        struct fr_sketch_block before[100];
        memcpy(before, sketch.blocks, sizeof(before));
        uint64_t bits[2] = {sketch.changed_bits[0], sketch.changed_bits[1]};
        size_t n_changed = sketch.n_changed;
        for (uint32_t i = 0; i < 50; i++) {
            bool changed;
            (void)fr_sketch_add(&sketch, hash_of((uint32_t)(next(&random) % 3000)), 1 + next(&random) % 3, round, &log,
                                &changed);
        }
        if (round % 3 == 0) {
            fr_sketch_revert(&sketch, &log);
            assert_memory_equal(before, sketch.blocks, sizeof(before));
            assert_memory_equal(bits, sketch.changed_bits, sizeof(bits));
            assert_int_equal(n_changed, sketch.n_changed);
        }
        log.n = 0;
        if (round % 7 == 0) {
            fr_sketch_clear_changes(&sketch);
            assert_true(sketch.changed_bits[0] == 0 && sketch.changed_bits[1] == 0 && sketch.n_changed == 0);
        }
    }
    fr_sketch_log_release(&log);
    fr_sketch_release(&sketch);
}

FR_CASE(every_changed_block_is_listed_once)
{
    struct fr_sketch sketch;
    fr_sketch_init(&sketch, 64 * 500, 0);
    for (uint32_t i = 0; i < 2000; i++)
        (void)add(&sketch, i, 1, 0);
    static const struct fr_sketch_block empty;
    size_t used = 0;
    for (size_t b = 0; b < sketch.n_blocks; b++)
        used += memcmp(&sketch.blocks[b], &empty, sizeof(empty)) != 0;
    assert_int_equal(used, sketch.n_changed);
    fr_sketch_release(&sketch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_never_low_and_rarely_high),
        cmocka_unit_test(a_count_stops_at_its_limit),
        cmocka_unit_test(counts_are_halved_once_per_half_life_whenever_they_are_touched),
        cmocka_unit_test(a_batch_is_taken_back_to_the_bit),
        cmocka_unit_test(every_changed_block_is_listed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
