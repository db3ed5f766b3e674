/* base/buffer.h: growth, formatted text, little-endian stores, the bounded reader. */
#include "case.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/random.h"

FR_CASE(appended_bytes_come_back_in_order)
{
    struct fr_buffer buffer = {0};
    for (uint32_t i = 0; i < 10000; i++)
        fr_put_u32(&buffer, i);
    assert_int_equal(buffer.size, 40000);
    assert_true(buffer.capacity >= buffer.size && buffer.capacity < 2 * buffer.size);
    for (uint32_t i = 0; i < 10000; i++)
        assert_int_equal(fr_load_u32(buffer.data + 4 * i), i);
    fr_buffer_clear(&buffer);
    assert_int_equal(buffer.size, 0);
    assert_non_null(buffer.data);
    fr_buffer_release(&buffer);
    assert_null(buffer.data);
    fr_buffer_release(&buffer);
    fr_buffer_release(NULL);
}

FR_CASE(appending_nothing_is_fine)
{
    struct fr_buffer buffer = {0};
    fr_buffer_append(&buffer, NULL, 0);
    assert_int_equal(buffer.size, 0);
    assert_non_null(fr_buffer_reserve(&buffer, 0));
    fr_buffer_release(&buffer);
}

FR_CASE(reserve_leaves_the_size)
{
    struct fr_buffer buffer = {0};
    fr_put_u8(&buffer, 1);
    uint8_t *at = fr_buffer_reserve(&buffer, 100000);
    assert_ptr_equal(at, buffer.data + 1);
    assert_int_equal(buffer.size, 1);
    assert_true(buffer.capacity >= 100001);
    memset(at, 2, 100000);
    fr_buffer_release(&buffer);
}

FR_CASE(printf_appends_text_of_any_length)
{
    struct fr_buffer buffer = {0};
    size_t expected = 0;
    for (int width = 0; width < 700; width++) {
        fr_buffer_printf(&buffer, "%*s|", width, "");
        expected += (size_t)width + 1;
        assert_int_equal(buffer.size, expected);
        assert_int_equal(buffer.data[buffer.size - 1], '|');
    }
    fr_buffer_printf(&buffer, "%s=%d", "n", -5);
    assert_memory_equal(buffer.data + expected, "n=-5", 4);
    fr_buffer_release(&buffer);
}

FR_CASE(the_reader_returns_what_was_put)
{
    struct fr_buffer buffer = {0};
    fr_put_u8(&buffer, 0xfe);
    fr_put_u32(&buffer, 0x01020304);
    fr_put_u64(&buffer, 0x0102030405060708ULL);
    fr_put_f64(&buffer, -2.5);
    assert_int_equal(buffer.data[1], 4); /* little-endian */
    struct fr_reader reader = {.at = buffer.data, .end = buffer.data + buffer.size};
    assert_int_equal(fr_take_u8(&reader), 0xfe);
    assert_int_equal(fr_take_u32(&reader), 0x01020304);
    assert_true(fr_take_u64(&reader) == 0x0102030405060708ULL);
    assert_true(fr_take_f64(&reader) == -2.5);
    assert_false(reader.failed);
    assert_ptr_equal(reader.at, reader.end);
    fr_buffer_release(&buffer);
}

FR_CASE(reading_past_the_end_fails_and_yields_zeros)
{
    const uint8_t bytes[5] = {1, 2, 3, 4, 5};
    struct fr_reader reader = {.at = bytes, .end = bytes + sizeof(bytes)};
    assert_int_equal(fr_take_u64(&reader), 0);
    assert_true(reader.failed);
    assert_int_equal(fr_take_u8(&reader), 0); /* a failed reader stays failed */
    struct fr_reader huge = {.at = bytes, .end = bytes + sizeof(bytes)};
    assert_null(fr_take(&huge, SIZE_MAX));
}

FR_CASE(json_text_escapes_quotes_backslashes_and_controls)
{
    struct fr_buffer buffer = {0};
    fr_buffer_json_text(&buffer, "a\"b\\c\n\x01\xc3\xa9");
    fr_put_u8(&buffer, 0);
    assert_string_equal((const char *)buffer.data, "\"a\\\"b\\\\c\\u000a\\u0001\xc3\xa9\"");
    fr_buffer_release(&buffer);
}

static void assert_number(float value)
{
    char text[64] = "null";
    struct fr_buffer buffer = {0};
    if (isfinite(value))
        snprintf(text, sizeof(text), "%.9g", (double)value);
    fr_buffer_number(&buffer, value);
    fr_put_u8(&buffer, 0);
    if (strcmp((const char *)buffer.data, text) != 0)
        fail_msg("%a: %s, printf says %s", (double)value, (const char *)buffer.data, text);
    fr_buffer_release(&buffer);
}

FR_CASE(yaml_text_has_nothing_that_ends_a_line_or_cannot_be_seen)
{
    struct fr_buffer buffer = {0};
    fr_buffer_yaml_text(&buffer,
                        "a\"\n\x7f\xc2\x80\xc2\x85\xc2\x9f\xc2\xa0\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xae\xef\xbb\xbf"
                        "\xef\xbf\xbe\xe6\x97\xa5\xf0\x9f\x98\x80\xff");
    fr_buffer_terminate(&buffer);
    assert_string_equal((const char *)buffer.data,
                        "\"a\\\"\\u000a\\u007f\\u0080\\u0085\\u009f\xc2\xa0\\u2028\\u2029\\u202e\\ufeff\\ufffe"
                        "\xe6\x97\xa5\xf0\x9f\x98\x80\xef\xbf\xbd\"");
    fr_buffer_release(&buffer);
}

FR_CASE(numbers_are_those_of_printf)
{
    static const float special[] = {0.0f,   -0.0f,          1.0f,         -1.0f,    0.1f,      1e-5f,
                                    1e-4f,  9.99999975e-5f, 999999999.0f, 1e9f,     1e10f,     1e-22f,
                                    1e-23f, 16777216.0f,    0.5f,         FLT_MAX,  FLT_MIN,   FLT_TRUE_MIN,
                                    NAN,    INFINITY,       -INFINITY,    123.456f, 8388608.5f};
    for (size_t i = 0; i < FR_ARRAY_LEN(special); i++)
        assert_number(special[i]);
    for (uint64_t i = 0; i < 100000; i++) {
        uint32_t bits = (uint32_t)fr_random_u64(7, 0, 0, i);
        float value;
        memcpy(&value, &bits, sizeof(value));
        assert_number(value); /* any */
        /* values as rows have them */
        assert_number((float)((fr_random_uniform(7, 1, 0, i) - 0.5) * 0.02));
        assert_number(ldexpf((float)(bits % 1000), (int)(bits % 61) - 30)); /* ties */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_printf),
        cmocka_unit_test(json_text_escapes_quotes_backslashes_and_controls),
        cmocka_unit_test(yaml_text_has_nothing_that_ends_a_line_or_cannot_be_seen),
        cmocka_unit_test(appended_bytes_come_back_in_order),
        cmocka_unit_test(appending_nothing_is_fine),
        cmocka_unit_test(reserve_leaves_the_size),
        cmocka_unit_test(printf_appends_text_of_any_length),
        cmocka_unit_test(the_reader_returns_what_was_put),
        cmocka_unit_test(reading_past_the_end_fails_and_yields_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
