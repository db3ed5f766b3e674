/* f16 and bf16: exhaustive over all 65536 halves and over every rounding boundary between them; i8
 * at its ties and edges. */
#include <math.h>
#include "case.h"

#include "base/math.h"
#include "codec/codec.h"

FR_CASE(every_half_survives_the_way_to_f32_and_back)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        if ((bits & 0x7fff) == 0x7c00)
            continue; /* infinities saturate */
        uint64_t saturated = 0;
        assert_int_equal(fr_f16_from_f32(fr_f32_from_f16((uint16_t)bits), &saturated), bits);
        assert_int_equal(saturated, 0);
    }
}

FR_CASE(f32_values_of_halves_follow_the_definition)
{
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        int exponent = (int)(bits >> 10), mantissa = (int)(bits & 0x3ff);
        double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
        assert_true((double)fr_f32_from_f16((uint16_t)bits) == value);
        assert_true((double)fr_f32_from_f16((uint16_t)(bits | 0x8000)) == -value);
    }
}

FR_CASE(values_between_two_halves_go_to_the_nearer_and_ties_to_the_even_one)
{
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float low = fr_f32_from_f16((uint16_t)bits), high = fr_f32_from_f16((uint16_t)(bits + 1));
        /* exact: f32 has 24 bits, and one more than 11 is needed */
        float middle = (low + high) / 2;
        uint32_t even = bits & 1 ? bits + 1 : bits;
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
            float s = sign ? -1.0f : 1.0f;
            assert_int_equal(fr_f16_from_f32(s * middle, NULL), even | sign);
            assert_int_equal(fr_f16_from_f32(s * nextafterf(middle, 0), NULL), bits | sign);
            assert_int_equal(fr_f16_from_f32(s * nextafterf(middle, 1e9f), NULL), (bits + 1) | sign);
        }
    }
}

FR_CASE(values_beyond_the_finite_range_saturate_and_are_counted)
{
    uint64_t saturated = 0;
    assert_int_equal(fr_f16_from_f32(65519.996f, &saturated), 0x7bff);
    assert_int_equal(saturated, 0);
    assert_int_equal(fr_f16_from_f32(65520.0f, &saturated), 0x7bff);
    assert_int_equal(fr_f16_from_f32(-1e30f, &saturated), 0xfbff);
    assert_int_equal(fr_f16_from_f32(INFINITY, &saturated), 0x7bff);
    assert_int_equal(fr_f16_from_f32(-INFINITY, &saturated), 0xfbff);
    assert_int_equal(saturated, 4);
}

/* Boundaries, their neighbours and a spread of all bits, among them values that are not finite.
 * Runs have lengths that the fast path takes completely, and lengths of which it leaves a rest. */
FR_CASE(many_values_become_the_bits_that_each_becomes_alone)
{
    enum { MANY = 40009 };
    static float values[MANY];
    static uint16_t halves[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t bits = fr_f32_bits(fr_f32_from_f16((uint16_t)(i * 5))) + i % 3 - 1;
        bits = i % 4 == 1 ? i * 2654435761u : i % 4 == 2 ? bits + 0x1000 : bits;
        values[i] = fr_bits_f32(bits);
    }
    for (size_t begin = 0; begin < 19; begin++) {
        uint64_t together = 0, alone = 0;
        fr_f16_from_f32s((const uint8_t *)(values + begin), MANY - begin, (uint8_t *)halves, &together);
        for (size_t i = begin; i < MANY; i++)
            assert_int_equal(halves[i - begin], fr_f16_from_f32(values[i], &alone));
        assert_true(together == alone && alone > 0);
    }
}

FR_CASE(nan_stays_nan)
{
    uint64_t saturated = 0;
    assert_true(isnan(fr_f32_from_f16(fr_f16_from_f32(NAN, &saturated))));
    assert_true(isnan(fr_f32_from_f16(fr_f16_from_f32(fr_bits_f32(0x7f800001u), &saturated))));
    assert_true(isnan(fr_quantized(fr_bits_f32(0xff800001u), FR_CODEC_BF16)));
    assert_int_equal(saturated, 0);
}

FR_CASE(f32_below_half_of_the_smallest_half_becomes_signed_zero)
{
    assert_int_equal(fr_f16_from_f32(ldexpf(1, -25), NULL), 0);
    assert_int_equal(fr_f16_from_f32(nextafterf(ldexpf(1, -25), 1), NULL), 1);
    assert_int_equal(fr_f16_from_f32(-1e-30f, NULL), 0x8000);
    assert_int_equal(fr_f16_from_f32(fr_bits_f32(1), NULL), 0);
}

FR_CASE(bf16_rounds_half_to_even_and_saturates)
{
    assert_true(fr_quantized(1.0f + ldexpf(1, -8), FR_CODEC_BF16) == 1.0f);
    assert_true(fr_quantized(1.0f + 3 * ldexpf(1, -8), FR_CODEC_BF16) == 1.0f + ldexpf(1, -6));
    assert_true(fr_quantized(nextafterf(1.0f + ldexpf(1, -8), 2), FR_CODEC_BF16) == 1.0f + ldexpf(1, -7));
    assert_true(fr_quantized(INFINITY, FR_CODEC_BF16) == fr_bits_f32(0x7f7f0000u));
    assert_true(fr_quantized(-3.4028234e38f, FR_CODEC_BF16) == fr_bits_f32(0xff7f0000u));
    assert_true(fr_quantized(0.1f, FR_CODEC_F32) == 0.1f);
}

FR_CASE(quantizing_twice_changes_nothing)
{
    for (uint32_t i = 0; i < 200000; i++) {
        float value = fr_bits_f32(i * 2654435761u);
        for (int q = FR_CODEC_F32; q <= FR_CODEC_BF16; q++) {
            float once = fr_quantized(value, (enum fr_codec_quantize)q);
            float twice = fr_quantized(once, (enum fr_codec_quantize)q);
            assert_true(fr_f32_bits(once) == fr_f32_bits(twice));
        }
    }
}

FR_CASE(i8_is_within_half_a_step_and_keeps_the_largest)
{
    float values[] = {1, -0.5f, 0.25f, -3, 3, 0, 1e-9f}, held;
    int8_t steps[7];
    uint64_t saturated = 0;
    float scale = fr_codec_i8((const uint8_t *)values, 7, steps, &saturated);
    assert_true(scale == 3.0f / 127 && scale == fr_codec_i8_scale((const uint8_t *)values, 7));
    assert_int_equal(steps[4], 127);
    assert_int_equal(steps[3], -127);
    for (int i = 0; i < 7; i++) {
        held = (float)steps[i] * scale;
        assert_true(fabsf(held - values[i]) <= scale / 2 * 1.001f);
    }
    assert_int_equal(saturated, 0);
}

FR_CASE(i8_rounds_half_to_even)
{
    float values[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f}; /* the scale is 1 */
    static const int8_t expected[] = {127, 0, 2, 2, 0, -2};
    int8_t steps[6];
    assert_true(fr_codec_i8((const uint8_t *)values, 6, steps, NULL) == 1.0f);
    assert_memory_equal(steps, expected, sizeof(expected));
}

FR_CASE(i8_of_zeros_of_the_smallest_and_of_what_is_not_finite_is_defined)
{
    float zeros[] = {0, -0.0f}, smallest[] = {1e-45f, -1e-45f}, odd[] = {NAN, INFINITY, -INFINITY, 2};
    int8_t steps[4];
    uint64_t saturated = 0;
    assert_true(fr_codec_i8((const uint8_t *)zeros, 2, steps, &saturated) == 0);
    assert_true(steps[0] == 0 && steps[1] == 0);
    assert_true(fr_codec_i8((const uint8_t *)smallest, 2, steps, &saturated) == 0);
    assert_true(steps[0] == 0 && steps[1] == 0 && saturated == 0);
    assert_true(fr_codec_i8((const uint8_t *)odd, 4, steps, &saturated) == 2.0f / 127);
    assert_true(steps[0] == 0 && steps[1] == 127 && steps[2] == -127 && steps[3] == 127 && saturated == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_survives_the_way_to_f32_and_back),
        cmocka_unit_test(f32_values_of_halves_follow_the_definition),
        cmocka_unit_test(values_between_two_halves_go_to_the_nearer_and_ties_to_the_even_one),
        cmocka_unit_test(values_beyond_the_finite_range_saturate_and_are_counted),
        cmocka_unit_test(many_values_become_the_bits_that_each_becomes_alone),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(f32_below_half_of_the_smallest_half_becomes_signed_zero),
        cmocka_unit_test(bf16_rounds_half_to_even_and_saturates),
        cmocka_unit_test(quantizing_twice_changes_nothing),
        cmocka_unit_test(i8_is_within_half_a_step_and_keeps_the_largest),
        cmocka_unit_test(i8_rounds_half_to_even),
        cmocka_unit_test(i8_of_zeros_of_the_smallest_and_of_what_is_not_finite_is_defined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
