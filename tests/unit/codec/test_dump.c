/* The public dump, byte for byte. */
#include <math.h>
#include "case.h"

#include <stdio.h>

#include "codec/dump.h"

static enum fr_status collect(void *self, const void *bytes, size_t size)
{
    fr_buffer_append(self, bytes, size);
    return FR_OK;
}

static const char before_last[] =
    "{\"table\":\"item\",\"key\":\"3\",\"parts\":{\"w\":[0.5],\"v\":[1,-0,0.0999755859]}}\n"
    "{\"table\":\"item\",\"key\":\"18446744073709551615\",\"parts\":{\"w\":[65504],\"v\":[null,2,3]}}\n"
    "{\"table\":\"user\",\"key\":\"0\",\"parts\":{\"v\":[5.96046448e-08]}}\n"
    "{\"dense\":\"h/0/bias\",\"shape\":[2],\"values\":[1,2]}\n"
    "{\"dense\":\"h/0/kernel\",\"shape\":[1,2],\"values\":[-1.5,0.25]}\n";

FR_CASE(a_dump_is_the_golden_text_with_the_hash_of_all_lines_but_the_last)
{
    struct fr_buffer out = {0};
    struct fr_dump dump;
    fr_dump_init(&dump, FR_CODEC_F16, collect, &out);
    float w = 0.5f, v[3] = {1, -0.0f, 0.1f}, w2 = 1e6f, v2[3] = {NAN, 2, 3}, u = 5.9604645e-8f;
    struct fr_dump_segment item[] = {{"w", 1, &w}, {"v", 3, v}}, item2[] = {{"w", 1, &w2}, {"v", 3, v2}},
                           user = {"v", 1, &u};
    assert_int_equal(fr_dump_row(&dump, "item", 3, item, 2), FR_OK);
    assert_int_equal(fr_dump_row(&dump, "item", UINT64_MAX, item2, 2), FR_OK);
    assert_int_equal(fr_dump_row(&dump, "user", 0, &user, 1), FR_OK);
    float bias[] = {1, 2}, kernel[] = {-1.5f, 0.25f};
    assert_int_equal(fr_dump_dense(&dump, &(struct fr_delta_dense){"h/0/bias", 1, {2}, 2, bias, false}), FR_OK);
    assert_int_equal(fr_dump_dense(&dump, &(struct fr_delta_dense){"h/0/kernel", 2, {1, 2}, 2, kernel, false}), FR_OK);
    uint64_t hash = 0;
    assert_int_equal(fr_dump_end(&dump, &(struct fr_dump_end){1, 812, 1700000000000, 90213}, &hash), FR_OK);
    char expected[2048];
    int size = snprintf(expected, sizeof(expected),
                        "%s{\"tl\":1,\"epoch\":812,\"wm\":1700000000000,\"samples\":90213,\"hash\":\"0x%016llx\"}\n",
                        before_last, (unsigned long long)hash);
    fr_put_u8(&out, 0);
    assert_string_equal((char *)out.data, expected);
    assert_int_equal(out.size, size + 1);
    assert_int_equal(hash, fr_xxh3(before_last, sizeof(before_last) - 1));
    assert_int_equal(hash, 0x6c3e6d46e12f8f81u);
    assert_int_equal(dump.n_rows, 3);
    assert_int_equal(dump.n_dense, 2);
    fr_dump_release(&dump);
    fr_buffer_release(&out);
}

FR_CASE(lines_out_of_order_are_refused)
{
    struct fr_buffer out = {0};
    struct fr_dump dump;
    fr_dump_init(&dump, FR_CODEC_F32, collect, &out);
    float v = 1;
    struct fr_dump_segment segment = {"v", 1, &v};
    struct fr_delta_dense dense = {"b", 1, {1}, 1, &v, false};
    assert_int_equal(fr_dump_row(&dump, "item", 3, &segment, 1), FR_OK);
    assert_int_equal(fr_dump_row(&dump, "item", 3, &segment, 1), FR_E_STATE);
    assert_int_equal(fr_dump_row(&dump, "a", 9, &segment, 1), FR_E_STATE);
    assert_int_equal(fr_dump_row(&dump, "user", 1, &segment, 1), FR_OK);
    assert_int_equal(fr_dump_dense(&dump, &dense), FR_OK);
    assert_int_equal(fr_dump_dense(&dump, &dense), FR_E_STATE);
    assert_int_equal(fr_dump_row(&dump, "zoo", 1, &segment, 1), FR_E_STATE);
    fr_dump_release(&dump);
    fr_buffer_release(&out);
}

FR_CASE(exact_parameters_are_not_quantized)
{
    struct fr_buffer out = {0};
    struct fr_dump dump;
    fr_dump_init(&dump, FR_CODEC_F16, collect, &out);
    float v = 0.1f;
    assert_int_equal(fr_dump_dense(&dump, &(struct fr_delta_dense){"a/kernel", 1, {1}, 1, &v, false}), FR_OK);
    assert_int_equal(fr_dump_dense(&dump, &(struct fr_delta_dense){"price/mean", 1, {1}, 1, &v, true}), FR_OK);
    fr_put_u8(&out, 0);
    assert_string_equal((char *)out.data, "{\"dense\":\"a/kernel\",\"shape\":[1],\"values\":[0.0999755859]}\n"
                                          "{\"dense\":\"price/mean\",\"shape\":[1],\"values\":[0.100000001]}\n");
    fr_dump_release(&dump);
    fr_buffer_release(&out);
}

FR_CASE(printed_floats_read_back_with_the_same_bits)
{
    for (uint32_t i = 1; i < 20000; i++) {
        uint32_t bits = i * 2654435761u, again_bits;
        float value, again;
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value))
            continue;
        struct fr_buffer out = {0};
        struct fr_dump dump;
        fr_dump_init(&dump, FR_CODEC_F32, collect, &out);
        assert_int_equal(fr_dump_row(&dump, "t", 1, &(struct fr_dump_segment){"v", 1, &value}, 1), FR_OK);
        fr_put_u8(&out, 0);
        assert_int_equal(sscanf((char *)out.data, "{\"table\":\"t\",\"key\":\"1\",\"parts\":{\"v\":[%f", &again), 1);
        memcpy(&again_bits, &again, sizeof(again));
        assert_int_equal(again_bits, bits);
        fr_dump_release(&dump);
        fr_buffer_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dump_is_the_golden_text_with_the_hash_of_all_lines_but_the_last),
        cmocka_unit_test(lines_out_of_order_are_refused),
        cmocka_unit_test(exact_parameters_are_not_quantized),
        cmocka_unit_test(printed_floats_read_back_with_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
