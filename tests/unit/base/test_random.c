/* base/random.h: golden values (they are initial weights), and the statistics of sequential keys
 * and indexes, which is how tables use it. The seeds are fixed: these tests give the same result on
 * every run. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <math.h>

#include "base/check.h"
#include "base/random.h"
#include "random_weight.h"

enum { DRAWS = 1 << 20 };

static uint64_t by_index(uint64_t i)
{
    return fr_random_u64(7, 1, 42, i);
}

static uint64_t by_key(uint64_t i)
{
    return fr_random_u64(7, 1, i, 0);
}

static uint64_t by_seed(uint64_t i)
{
    return fr_random_u64(i, 1, 42, 0);
}

static uint64_t by_stream(uint64_t i)
{
    return fr_random_u64(7, i, 42, 0);
}

/* Keys that share their low bits, as ids with a type in the high bits do. */
static uint64_t by_high_key(uint64_t i)
{
    return fr_random_u64(7, 1, i << 40, 3);
}

static uint64_t (*const walks[])(uint64_t) = {by_index, by_key, by_seed, by_stream, by_high_key};
enum { WALKS = sizeof(walks) / sizeof(walks[0]) };

FR_CASE(every_bit_is_set_half_the_time)
{
    for (int w = 0; w < WALKS; w++) {
        int ones[64] = {0};
        for (uint64_t i = 0; i < DRAWS; i++) {
            uint64_t value = walks[w](i);
            for (int b = 0; b < 64; b++)
                ones[b] += (int)(value >> b & 1);
        }
        for (int b = 0; b < 64; b++) /* 5 standard deviations of the binomial, 512 each */
            assert_true(abs(ones[b] - DRAWS / 2) < 5 * 512);
    }
}

FR_CASE(one_step_changes_half_of_the_bits)
{
    for (int w = 0; w < WALKS; w++) {
        int flips[64] = {0};
        for (uint64_t i = 0; i < DRAWS; i++) {
            uint64_t change = walks[w](i) ^ walks[w](i + 1);
            for (int b = 0; b < 64; b++)
                flips[b] += (int)(change >> b & 1);
        }
        for (int b = 0; b < 64; b++)
            assert_true(abs(flips[b] - DRAWS / 2) < 5 * 512);
    }
}

FR_CASE(bytes_are_evenly_spread)
{
    for (int w = 0; w < WALKS; w++)
        for (int shift = 0; shift < 64; shift += 8) {
            int counts[256] = {0};
            for (uint64_t i = 0; i < DRAWS; i++)
                counts[walks[w](i) >> shift & 0xff] += 1;
            double chi2 = 0, expected = DRAWS / 256.0;
            for (int i = 0; i < 256; i++)
                chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
            assert_true(chi2 > 255 - 5 * 22.6 && chi2 < 255 + 5.5 * 22.6); /* sd = sqrt(2 * 255) */
        }
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? -1 : x > y;
}

FR_CASE(small_tuples_do_not_collide)
{
    enum { SIDE = 24 };
    size_t count = SIDE * SIDE * SIDE * SIDE, n = 0;
    uint64_t *values = malloc(count * sizeof(*values));
    assert_non_null(values);
    for (uint64_t seed = 0; seed < SIDE; seed++)
        for (uint64_t stream = 0; stream < SIDE; stream++)
            for (uint64_t key = 0; key < SIDE; key++)
                for (uint64_t index = 0; index < SIDE; index++)
                    values[n++] = fr_random_u64(seed, stream, key, index);
    qsort(values, count, sizeof(*values), compare_u64);
    for (size_t i = 1; i < count; i++)
        assert_true(values[i] != values[i - 1]);
    free(values);
}

FR_CASE(uniform_numbers_fill_the_unit_interval)
{
    double sum = 0, low = 1, high = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = fr_random_uniform(3, 2, i, i & 7);
        assert_true(u >= 0.0 && u < 1.0);
        sum += u;
        low = u < low ? u : low;
        high = u > high ? u : high;
    }
    assert_true(fabs(sum / DRAWS - 0.5) < 5 * 0.2887 / 1024);
    assert_true(low < 1e-4 && high > 1 - 1e-4);
}

static double normal_number(uint64_t i)
{
    return fr_random_normal(11, 5, i / 16, i % 16);
}

static double weight(uint64_t i)
{
    return (double)random_weight(11, 5, i / 16, i % 16);
}

static void expect_normal_moments(double (*number)(uint64_t i))
{
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0, before = 0;
    int beyond2 = 0, beyond4 = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = number(i);
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
        lag += x * before;
        before = x;
        beyond2 += fabs(x) > 2;
        beyond4 += fabs(x) > 4;
    }
    /* Standard errors over 2^20 draws: 1/1024, sqrt(2)/1024, sqrt(15)/1024, sqrt(96)/1024; five of
     * each. */
    assert_true(fabs(m1 / DRAWS) < 5 / 1024.0);
    assert_true(fabs(m2 / DRAWS - 1) < 5 * 1.4143 / 1024);
    assert_true(fabs(m3 / DRAWS) < 5 * 3.873 / 1024);
    assert_true(fabs(m4 / DRAWS - 3) < 5 * 9.798 / 1024);
    assert_true(fabs(lag / DRAWS) < 5 / 1024.0);
    assert_true(fabs(beyond2 / (double)DRAWS - 0.0455003) < 5 * 0.2084 / 1024);
    assert_true(beyond4 > 20 && beyond4 < 120); /* 66.4 expected */
}

FR_CASE(normal_numbers_have_the_normal_moments)
{
    expect_normal_moments(normal_number);
    expect_normal_moments(weight);
}

/* Box-Muller from libm, with the two uniforms that the header names. */
FR_CASE(normal_numbers_match_libm_closely)
{
    double worst = 0;
    for (uint64_t i = 0; i < 200000; i++) {
        double u1 = (double)((fr_random_u64(1, 2, i, 0) >> 11) + 1) * 0x1p-53;
        double u2 = fr_random_uniform(1, 2, i, 1);
        double expected = sqrt(-2 * log(u1)) * cos(2 * 3.14159265358979323846 * u2);
        double error = fabs(fr_random_normal(1, 2, i, 0) - expected);
        worst = error > worst ? error : worst;
    }
    printf("normal: at most %.3g from libm\n", worst);
    assert_true(worst < 5e-15);
}

FR_CASE(weights_match_libm_closely)
{
    double worst = 0;
    for (uint64_t i = 0; i < 200000; i++) {
        uint64_t bits = fr_random_u64(1, 2, i, 0);
        float u = (float)((bits >> 32) + 1) * 0x1p-32f;
        double radius = sqrt(-2 * log((double)u));
        double angle = (double)(uint32_t)bits * 0x1p-31 * 3.14159265358979323846;
        for (uint64_t k = 0; k < 2; k++) {
            double expected = radius * (k ? sin(angle) : cos(angle));
            double error = fabs((double)random_weight(1, 2, i, k) - expected);
            worst = error > worst ? error : worst;
        }
    }
    printf("weight: at most %.3g from libm\n", worst);
    assert_true(worst < 2e-6);
}

/* Cut at two standard deviations: variance 1 - 2 * 2 phi(2) / (2 Phi(2) - 1) = 0.7737413. */
FR_CASE(truncated_normal_numbers_are_drawn_again_beyond_two_deviations)
{
    double sum = 0, squares = 0;
    uint64_t again = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = fr_random_truncated_normal(5, 6, 7, i), first = fr_random_normal(5, 6, 7, i);
        assert_true(x >= -2.0 && x <= 2.0);
        if (x == first)
            assert_true(fabs(first) <= 2.0);
        else
            again++;
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(again / (double)DRAWS - 0.0455003) < 5 * 0.2084 / 1024);
    assert_true(fabs(sum / DRAWS) < 5 * 0.88 / 1024);
    assert_true(fabs(squares / DRAWS - 0.7737413) < 5 * 0.98 / 1024);
}

FR_CASE(the_values_never_change)
{
    assert_true(fr_random_u64(0, 0, 0, 0) == 0xa2dfab51d48989dfULL);
    assert_true(fr_random_u64(1, 2, 3, 4) == 0xb0b80bb5b140883eULL);
    assert_true(fr_random_u64(UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX) == 0x4bf2c69d1f89f9f7ULL);
    assert_true(fr_random_uniform(1, 2, 3, 4) == 0x1.6170176b62811p-1);
    assert_true(fr_random_normal(1, 2, 3, 4) == 0x1.4c26a10746d4ep+0);
    assert_true(fr_random_normal(0, 0, 0, 0) == -0x1.9be10a7524556p-1);
    assert_true(fr_random_normal(42, 7, 0xdeadbeef, 31) == -0x1.9c3de7bdacde3p+0);
    /* a hash of many numbers: it depends on every coefficient and every quarter of a turn */
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 4096; i++) {
        double x = fr_random_normal(9, 9, i, 0);
        uint64_t bits;
        memcpy(&bits, &x, sizeof(bits));
        sum = sum * 31 + bits;
    }
    assert_true(sum == 0xa9ea7414277d2be5ULL);
    assert_true(random_weight(1, 2, 3, 4) == 0x1.29f2d2p-1f);
    assert_true(random_weight(1, 2, 3, 5) == 0x1.2f1554p-1f);
    for (uint64_t i = 0; i < 4096; i++)
        sum = sum * 31 + fr_f32_bits(random_weight(9, 9, i / 2, i % 2));
    assert_true(sum == 0x3c61426378b1627bULL);
}

FR_CASE(many_at_once_are_those_drawn_one_by_one)
{
    double many[40];
    for (uint64_t key = 0; key < 2000; key++) {
        struct fr_doubles out = {many, 1 + key % FR_ARRAY_LEN(many)};
        uint64_t first = key % 7;
        fr_random_uniforms(3, 4, key, first, out);
        for (size_t i = 0; i < out.n; i++)
            assert_true(many[i] == fr_random_uniform(3, 4, key, first + i));
    }
}

/* Any number of keys and values, from any index on; nothing outside them is written. */
FR_CASE(weights_of_many_keys_are_those_drawn_one_by_one)
{
    enum { KEYS = 21, N_MAX = 40, BEFORE = 3 };
    float values[KEYS][BEFORE + N_MAX + 1], *rows[KEYS];
    uint64_t keys[KEYS];
    for (size_t k = 0; k < KEYS; k++) {
        keys[k] = fr_random_u64(1, 1, k, 0);
        rows[k] = values[k];
    }
    for (size_t n_keys = 0; n_keys <= KEYS; n_keys += 1 + n_keys / 2)
        for (size_t n = 0; n <= N_MAX; n++)
            for (uint64_t index = 0; index < 3; index++) {
                double scale = n % 2 ? 1.0 : 0.3;
                memset(values, 0, sizeof(values));
                fr_random_weights(&(struct fr_random_rows){3, 4, index, scale, keys, rows, n_keys, BEFORE, n});
                for (size_t k = 0; k < KEYS; k++)
                    for (size_t i = 0; i < BEFORE + N_MAX + 1; i++) {
                        bool drawn = k < n_keys && i >= BEFORE && i < BEFORE + n;
                        assert_true(
                            values[k][i] ==
                            (drawn ? (float)(scale * (double)random_weight(3, 4, keys[k], index + i - BEFORE)) : 0.0f));
                    }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_many_keys_are_those_drawn_one_by_one),
        cmocka_unit_test(every_bit_is_set_half_the_time),
        cmocka_unit_test(one_step_changes_half_of_the_bits),
        cmocka_unit_test(bytes_are_evenly_spread),
        cmocka_unit_test(small_tuples_do_not_collide),
        cmocka_unit_test(uniform_numbers_fill_the_unit_interval),
        cmocka_unit_test(normal_numbers_have_the_normal_moments),
        cmocka_unit_test(normal_numbers_match_libm_closely),
        cmocka_unit_test(weights_match_libm_closely),
        cmocka_unit_test(truncated_normal_numbers_are_drawn_again_beyond_two_deviations),
        cmocka_unit_test(the_values_never_change),
        cmocka_unit_test(many_at_once_are_those_drawn_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
