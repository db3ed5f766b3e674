/* base/cursor.h: the fr_cursor_take functions give what fr_cursor_next would give, or leave the
 * cursor unchanged. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/random.h"

enum { TAIL = 9 }; /* bytes after a value, so that fr_cursor_next is not needed */

/* An array of the value and nine nils. */
static struct fr_cursor cursor_at(uint8_t *bytes, const uint8_t *value, size_t size)
{
    struct fr_cursor cursor;
    struct fr_token array;
    bytes[0] = 0x90 | (1 + TAIL);
    memcpy(bytes + 1, value, size);
    memset(bytes + 1 + size, 0xc0, TAIL);
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, bytes, 1 + size + TAIL, NULL);
    assert_int_equal(fr_cursor_next(&cursor, &array), FR_OK);
    return cursor;
}

FR_CASE(takes_agree_with_the_general_way)
{
    for (uint64_t round = 0; round < 100000; round++) {
        uint8_t value[9], bytes[32];
        for (size_t i = 0; i < sizeof(value); i++)
            value[i] = (uint8_t)fr_random_u64(1, 1, round, i);
        if (round % 2)
            value[0] = (uint8_t)(0xca + round / 2 % 6);
        struct fr_cursor general = cursor_at(bytes, value, sizeof(value)), taken = general, before = general;
        struct fr_token token;
        uint64_t integer = 0;
        double number = 0;
        enum fr_status status = fr_cursor_next(&general, &token);
        bool is_unsigned = fr_cursor_take_unsigned(&taken, &integer);
        if (is_unsigned) {
            assert_int_equal(status, FR_OK);
            assert_int_equal(token.kind, FR_TOKEN_UINT);
            assert_true(token.u == integer);
        } else if (fr_cursor_take_float(&taken, &number)) {
            assert_int_equal(status, FR_OK);
            assert_int_equal(token.kind, FR_TOKEN_FLOAT);
            assert_memory_equal(&token.f, &number, sizeof(number));
        } else {
            assert_ptr_equal(taken.at, before.at);
            assert_true(taken.level[1].remaining == before.level[1].remaining);
            assert_true(status != FR_OK ||
                        (token.kind != FR_TOKEN_FLOAT && value[0] > 0x7f && (value[0] < 0xcc || value[0] > 0xcf)));
            continue;
        }
        assert_ptr_equal(taken.at, general.at);
        assert_true(taken.level[1].remaining == general.level[1].remaining);
    }
}

FR_CASE(expected_bytes_are_taken_and_others_left)
{
    static const uint8_t text[] = {0xa9, 'n', 'i', 'n', 'e', ' ', 'c', 'h', 'a', 'r'};
    uint8_t bytes[32], other[sizeof(text)];
    struct fr_cursor cursor = cursor_at(bytes, text, sizeof(text)), before = cursor;
    for (size_t i = 0; i < sizeof(text); i++) {
        memcpy(other, text, sizeof(text));
        other[i] ^= 1;
        assert_false(fr_cursor_take(&cursor, other, sizeof(other)));
    }
    assert_ptr_equal(cursor.at, before.at);
    assert_true(fr_cursor_take(&cursor, text, sizeof(text)));
    assert_ptr_equal(cursor.at, before.at + sizeof(text));
    assert_true(cursor.level[1].remaining == TAIL);
}

FR_CASE(nothing_is_taken_past_a_container_the_input_or_from_json)
{
    static const uint8_t inner[] = {0x90, 0x05, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0};
    struct fr_cursor cursor;
    struct fr_token token;
    struct fr_buffer scratch = {0};
    uint64_t integer;
    double number;
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, inner, sizeof(inner), NULL);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_false(fr_cursor_take(&cursor, inner + 1, 1)); /* the array is complete */
    assert_false(fr_cursor_take_unsigned(&cursor, &integer));
    static const uint8_t cut[] = {0xcb, 1, 2, 3};
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, cut, sizeof(cut), NULL);
    assert_false(fr_cursor_take_float(&cursor, &number));
    assert_false(fr_cursor_take(&cursor, inner, sizeof(inner)));
    fr_cursor_init(&cursor, FR_FORMAT_JSON, "1234567890", 10, &scratch);
    assert_false(fr_cursor_take(&cursor, (const uint8_t *)"1", 1));
    assert_false(fr_cursor_take_unsigned(&cursor, &integer));
    assert_false(fr_cursor_take_float(&cursor, &number));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_agree_with_the_general_way),
        cmocka_unit_test(expected_bytes_are_taken_and_others_left),
        cmocka_unit_test(nothing_is_taken_past_a_container_the_input_or_from_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
