/* base/cursor.h, MessagePack: every type at its boundaries, every cut, every byte damaged. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <math.h>
#include <stdbool.h>

#include "base/cursor.h"

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

/* First token of a value that stands alone, then the end. */
static struct fr_token one(const uint8_t *bytes, size_t size)
{
    struct fr_cursor cursor;
    struct fr_token token, after;
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, bytes, size, NULL);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_int_equal(fr_cursor_next(&cursor, &after), FR_EOF);
    assert_int_equal(fr_cursor_next(&cursor, &after), FR_EOF);
    assert_int_equal(fr_cursor_offset(&cursor), size);
    return token;
}

/* Reads to the end or the first error. */
static enum fr_status read_all(const uint8_t *bytes, size_t size, const char **problem)
{
    struct fr_cursor cursor;
    struct fr_token token;
    enum fr_status status;
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, bytes, size, NULL);
    while ((status = fr_cursor_next(&cursor, &token)) == FR_OK) {
    }
    *problem = cursor.problem;
    if (status != FR_EOF) {
        size_t offset = fr_cursor_offset(&cursor);
        assert_non_null(cursor.problem);
        assert_true(offset <= size);
        /* a failed call fails again, at the same byte */
        assert_int_equal(fr_cursor_next(&cursor, &token), status);
        assert_int_equal(fr_cursor_offset(&cursor), offset);
    }
    return status;
}

static void assert_status(const uint8_t *bytes, size_t size, enum fr_status expected)
{
    const char *problem;
    assert_int_equal(read_all(bytes, size, &problem), expected);
}

static void assert_uint(const uint8_t *bytes, size_t size, uint64_t value)
{
    struct fr_token token = one(bytes, size);
    assert_int_equal(token.kind, FR_TOKEN_UINT);
    assert_true(token.u == value);
}

static void assert_int(const uint8_t *bytes, size_t size, int64_t value)
{
    struct fr_token token = one(bytes, size);
    assert_int_equal(token.kind, FR_TOKEN_INT);
    assert_true(token.i == value);
}

FR_CASE(integers_of_every_width_are_exact)
{
    assert_uint(BYTES(0x00), 0);
    assert_uint(BYTES(0x7f), 127);
    assert_int(BYTES(0xe0), -32);
    assert_int(BYTES(0xff), -1);
    assert_uint(BYTES(0xcc, 0xff), 255);
    assert_uint(BYTES(0xcd, 0x12, 0x34), 0x1234);
    assert_uint(BYTES(0xce, 0x12, 0x34, 0x56, 0x78), 0x12345678);
    assert_uint(BYTES(0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe), UINT64_MAX - 1);
    assert_int(BYTES(0xd0, 0x80), -128);
    assert_int(BYTES(0xd1, 0x80, 0x00), -32768);
    assert_int(BYTES(0xd2, 0x80, 0x00, 0x00, 0x00), INT32_MIN);
    assert_int(BYTES(0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0), INT64_MIN);
}

FR_CASE(a_signed_type_with_a_value_of_0_or_more_is_unsigned)
{
    assert_uint(BYTES(0xd0, 0x00), 0);
    assert_uint(BYTES(0xd0, 0x7f), 127);
    assert_uint(BYTES(0xd1, 0x7f, 0xff), 32767);
    assert_uint(BYTES(0xd2, 0x00, 0x00, 0x00, 0x05), 5);
    assert_uint(BYTES(0xd3, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), INT64_MAX);
}

FR_CASE(floats_keep_their_value_also_when_not_finite)
{
    struct fr_token token = one(BYTES(0xca, 0xc0, 0x20, 0x00, 0x00));
    assert_int_equal(token.kind, FR_TOKEN_FLOAT);
    assert_true(token.f == -2.5);
    token = one(BYTES(0xcb, 0x3f, 0xb9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a));
    assert_int_equal(token.kind, FR_TOKEN_FLOAT);
    assert_true(token.f == 0.1);
    assert_true(isnan(one(BYTES(0xca, 0x7f, 0xc0, 0x00, 0x00)).f));
    assert_true(isinf(one(BYTES(0xcb, 0xff, 0xf0, 0, 0, 0, 0, 0, 0)).f));
}

FR_CASE(nil_and_booleans_are_tokens)
{
    assert_int_equal(one(BYTES(0xc0)).kind, FR_TOKEN_NIL);
    struct fr_token token = one(BYTES(0xc2));
    assert_int_equal(token.kind, FR_TOKEN_BOOL);
    assert_int_equal(token.i, 0);
    token = one(BYTES(0xc3));
    assert_int_equal(token.kind, FR_TOKEN_BOOL);
    assert_int_equal(token.i, 1);
}

FR_CASE(strings_and_bins_point_into_the_input)
{
    static const struct {
        uint8_t head[5];
        size_t head_size;
        size_t size;
        enum fr_token_kind kind;
    } forms[] = {
        {{0xa0}, 1, 0, FR_TOKEN_STRING},
        {{0xbf}, 1, 31, FR_TOKEN_STRING},
        {{0xd9, 200}, 2, 200, FR_TOKEN_STRING},
        {{0xda, 0x10, 0x00}, 3, 4096, FR_TOKEN_STRING},
        {{0xdb, 0, 0, 0x01, 0x00}, 5, 256, FR_TOKEN_STRING},
        {{0xc4, 255}, 2, 255, FR_TOKEN_BIN},
        {{0xc5, 0x20, 0x00}, 3, 8192, FR_TOKEN_BIN}, /* bin is limited by the bytes only */
        {{0xc6, 0, 0, 0, 3}, 5, 3, FR_TOKEN_BIN},
        {{0xd4, 9}, 2, 1, FR_TOKEN_EXT},
        {{0xd5, 9}, 2, 2, FR_TOKEN_EXT},
        {{0xd6, 9}, 2, 4, FR_TOKEN_EXT},
        {{0xd7, 9}, 2, 8, FR_TOKEN_EXT},
        {{0xd8, 9}, 2, 16, FR_TOKEN_EXT},
        {{0xc7, 5, 9}, 3, 5, FR_TOKEN_EXT},
        {{0xc8, 0, 6, 9}, 4, 6, FR_TOKEN_EXT},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        /* Exactly as large as the value: the address sanitizer watches the end. */
        size_t total = forms[i].head_size + forms[i].size;
        uint8_t *bytes = malloc(total);
        assert_non_null(bytes);
        memcpy(bytes, forms[i].head, forms[i].head_size);
        for (size_t k = 0; k < forms[i].size; k++)
            bytes[forms[i].head_size + k] = (uint8_t)('a' + k % 26);
        struct fr_token token = one(bytes, total);
        assert_int_equal(token.kind, forms[i].kind);
        assert_int_equal(token.size, forms[i].size);
        assert_ptr_equal(token.bytes, bytes + forms[i].head_size);
        for (size_t cut = 0; cut < total; cut++)
            assert_status(bytes, cut, FR_E_INVALID);
        free(bytes);
    }
    assert_status(BYTES(0xc9, 0, 0, 0, 2, 9, 1, 2), FR_EOF);
    assert_status(BYTES(0xc9, 0, 0, 0, 2, 9, 1), FR_E_INVALID);
}

FR_CASE(containers_end_with_a_token)
{
    static const uint8_t bytes[] = {0x82, 0xa1, 'a', 0x93, 1, 2, 0x90, 0xa1, 'b', 0x80};
    static const enum fr_token_kind kinds[] = {FR_TOKEN_MAP,    FR_TOKEN_STRING, FR_TOKEN_ARRAY, FR_TOKEN_UINT,
                                               FR_TOKEN_UINT,   FR_TOKEN_ARRAY,  FR_TOKEN_END,   FR_TOKEN_END,
                                               FR_TOKEN_STRING, FR_TOKEN_MAP,    FR_TOKEN_END,   FR_TOKEN_END};
    static const uint32_t counts[] = {2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    struct fr_cursor cursor;
    struct fr_token token;
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, bytes, sizeof(bytes), NULL);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
        assert_int_equal(token.kind, kinds[i]);
        if (token.kind == FR_TOKEN_ARRAY || token.kind == FR_TOKEN_MAP)
            assert_int_equal(token.count, counts[i]);
    }
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_EOF);
    for (size_t cut = 0; cut < sizeof(bytes); cut++)
        assert_status(bytes, cut, FR_E_INVALID);
}

FR_CASE(long_containers_are_read_in_all_their_forms)
{
    static const struct {
        uint8_t head[5];
        size_t head_size;
        size_t values;
    } forms[] = {{{0xdc, 0x01, 0x00}, 3, 256},
                 {{0xdd, 0, 1, 0, 0}, 5, 65536},
                 {{0xde, 0x01, 0x00}, 3, 512},
                 {{0xdf, 0, 0, 0, 3}, 5, 6}};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        size_t total = forms[i].head_size + forms[i].values;
        uint8_t *bytes = calloc(total, 1);
        assert_non_null(bytes);
        memcpy(bytes, forms[i].head, forms[i].head_size);
        assert_status(bytes, total, FR_EOF);
        assert_status(bytes, total - 1, FR_E_INVALID);
        free(bytes);
    }
}

FR_CASE(counts_beyond_the_bytes_that_remain_are_refused_at_once)
{
    static const uint8_t values[][8] = {{0xdd, 0xff, 0xff, 0xff, 0xff, 0, 0, 0},
                                        {0xdf, 0xff, 0xff, 0xff, 0xff, 0, 0, 0},
                                        /* 2 x 2^31 must not wrap to 0 */
                                        {0xdf, 0x80, 0x00, 0x00, 0x00, 0, 0, 0},
                                        {0xdd, 0, 0, 0, 4, 0, 0, 0},
                                        {0xdf, 0, 0, 0, 2, 0, 0, 0}};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct fr_cursor cursor;
        struct fr_token token;
        fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, values[i], 8, NULL);
        assert_int_equal(fr_cursor_next(&cursor, &token),
                         FR_E_INVALID); /* the container itself, not its last element */
        assert_int_equal(fr_cursor_offset(&cursor), 0);
        assert_non_null(strstr(cursor.problem, "counts more"));
    }
}

FR_CASE(the_ninth_container_is_refused)
{
    uint8_t bytes[16];
    const char *problem;
    memset(bytes, 0x91, sizeof(bytes));
    bytes[8] = 0x00;
    assert_status(bytes, 9, FR_EOF); /* eight arrays around an integer */
    bytes[8] = 0x90;
    assert_int_equal(read_all(bytes, 9, &problem), FR_E_LIMIT);
    assert_string_equal(problem, "nested deeper than 8 containers");
    bytes[8] = 0x80;
    assert_status(bytes, 9, FR_E_LIMIT);
}

FR_CASE(a_deeper_limit_stays_inside_the_level_table)
{
    uint8_t bytes[2 * FR_PASSED_DEPTH_MAX];
    memset(bytes, 0x91, sizeof(bytes));
    struct fr_cursor cursor;
    struct fr_token token;
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, bytes, sizeof(bytes), NULL);
    cursor.depth_max = 1000;
    int depth = 0;
    enum fr_status status;
    while ((status = fr_cursor_next(&cursor, &token)) == FR_OK)
        depth++;
    assert_int_equal(status, FR_E_LIMIT);
    assert_int_equal(depth, FR_PASSED_DEPTH_MAX);
}

FR_CASE(strings_have_a_limit_and_must_be_utf8)
{
    uint8_t bytes[4100];
    memset(bytes, 'x', sizeof(bytes));
    bytes[0] = 0xda;
    bytes[1] = 0x10;
    bytes[2] = 0x01;
    assert_status(bytes, 3 + 4097, FR_E_LIMIT);
    bytes[2] = 0x00;
    assert_status(bytes, 3 + 4096, FR_EOF);
    assert_status(BYTES(0xa1, 0x80), FR_E_INVALID);
    assert_status(BYTES(0xa2, 0xc3, 0xa9), FR_EOF);
}

/* Every position of a bad byte, through each of the short-string paths. */
FR_CASE(a_byte_that_is_not_utf8_is_found_at_every_place)
{
    uint8_t bytes[64];
    for (size_t size = 1; size < 32; size++)
        for (size_t bad = 0; bad < size; bad++) {
            memset(bytes, 'k', sizeof(bytes));
            bytes[0] = (uint8_t)(0xa0 | size);
            assert_status(bytes, size + 1, FR_EOF);
            bytes[1 + bad] = 0xff;
            assert_status(bytes, size + 1, FR_E_INVALID);
        }
}

/* An oracle that works the other way round: it decodes a code point, encodes it again and
 * compares. */
static bool utf8_oracle(const uint8_t *at, size_t size)
{
    for (size_t i = 0; i < size;) {
        uint32_t point;
        size_t length;
        if (at[i] < 0x80)
            point = at[i], length = 1;
        else if (at[i] >> 5 == 6)
            point = at[i] & 31u, length = 2;
        else if (at[i] >> 4 == 14)
            point = at[i] & 15u, length = 3;
        else if (at[i] >> 3 == 30)
            point = at[i] & 7u, length = 4;
        else
            return false;
        if (i + length > size)
            return false;
        for (size_t k = 1; k < length; k++) {
            if (at[i + k] >> 6 != 2)
                return false;
            point = point << 6 | (at[i + k] & 63u);
        }
        size_t shortest = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
        if (length != shortest || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
            return false;
        i += length;
    }
    return true;
}

FR_CASE(utf8_is_judged_as_rfc_3629_does)
{
    static const uint8_t edge[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf,
                                   0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
    enum { EDGES = sizeof(edge) };
    uint8_t bytes[5] = {0xa4};
    int valid = 0;
    for (int a = 0; a < EDGES; a++)
        for (int b = 0; b < EDGES; b++)
            for (int c = 0; c < EDGES; c++)
                for (int d = 0; d < EDGES; d++) {
                    bytes[1] = edge[a];
                    bytes[2] = edge[b];
                    bytes[3] = edge[c];
                    bytes[4] = edge[d];
                    bool expected = utf8_oracle(bytes + 1, 4);
                    assert_status(bytes, 5, expected ? FR_EOF : FR_E_INVALID);
                    valid += expected;
                }
    assert_true(valid > 100);
}

FR_CASE(the_unused_byte_and_trailing_bytes_are_malformed)
{
    assert_status(BYTES(0xc1), FR_E_INVALID);
    assert_status(BYTES(0x01, 0x02), FR_E_INVALID);
    assert_status(BYTES(0x90, 0xc0), FR_E_INVALID);
    assert_status((const uint8_t *)"", 0, FR_E_INVALID);
    assert_status(NULL, 0, FR_E_INVALID);
}

FR_CASE(skip_takes_exactly_one_value)
{
    static const uint8_t bytes[] = {0x93, 0x82, 0xa1, 'a', 0x92, 1, 0x91, 2, 0xa1, 'b', 0xc0, 7, 0x90};
    struct fr_cursor cursor;
    struct fr_token token;
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, bytes, sizeof(bytes), NULL);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_int_equal(token.kind, FR_TOKEN_MAP);
    assert_int_equal(fr_cursor_skip(&cursor, &token), FR_OK);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_int_equal(token.u, 7);
    assert_int_equal(fr_cursor_skip(&cursor, &token), FR_OK); /* a scalar: nothing to do */
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_int_equal(token.kind, FR_TOKEN_ARRAY);
    assert_int_equal(fr_cursor_skip(&cursor, &token), FR_OK);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_int_equal(token.kind, FR_TOKEN_END);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_EOF);
}

FR_CASE(skip_checks_what_it_passes_over)
{
    static const uint8_t bad_string[] = {0x91, 0xa1, 0xff};
    static const uint8_t deep[] = {0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x00};
    struct fr_cursor cursor;
    struct fr_token token;
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, bad_string, sizeof(bad_string), NULL);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_int_equal(fr_cursor_skip(&cursor, &token), FR_E_INVALID);
    fr_cursor_init(&cursor, FR_FORMAT_MSGPACK, deep, sizeof(deep), NULL);
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    assert_int_equal(fr_cursor_skip(&cursor, &token), FR_E_LIMIT);
}

/* Random bytes: no crash, no read outside (sanitizer), and every run ends. Seed fixed; repeat by
 * running this program. */
FR_CASE(random_bytes_always_end_in_a_verdict)
{
    uint64_t random = 88172645463325252ULL;
    size_t whole = 0;
    for (int round = 0; round < 200000; round++) {
        uint8_t small[24];
        size_t size = (size_t)round % sizeof(small);
        for (size_t i = 0; i < size; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            /* Heads of containers and of short values come more often than by chance. */
            small[i] = random >> 60 < 6 ? (uint8_t)(0x80 + (random >> 32) % 0x60) : (uint8_t)(random >> 24);
        }
        uint8_t *exact = malloc(size ? size : 1);
        assert_non_null(exact);
        memcpy(exact, small, size);
        const char *problem;
        enum fr_status status = read_all(exact, size, &problem);
        assert_true(status == FR_EOF || status == FR_E_INVALID || status == FR_E_LIMIT);
        whole += status == FR_EOF;
        free(exact);
    }
    assert_true(whole > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_every_width_are_exact),
        cmocka_unit_test(a_signed_type_with_a_value_of_0_or_more_is_unsigned),
        cmocka_unit_test(floats_keep_their_value_also_when_not_finite),
        cmocka_unit_test(nil_and_booleans_are_tokens),
        cmocka_unit_test(strings_and_bins_point_into_the_input),
        cmocka_unit_test(containers_end_with_a_token),
        cmocka_unit_test(long_containers_are_read_in_all_their_forms),
        cmocka_unit_test(counts_beyond_the_bytes_that_remain_are_refused_at_once),
        cmocka_unit_test(the_ninth_container_is_refused),
        cmocka_unit_test(a_deeper_limit_stays_inside_the_level_table),
        cmocka_unit_test(strings_have_a_limit_and_must_be_utf8),
        cmocka_unit_test(a_byte_that_is_not_utf8_is_found_at_every_place),
        cmocka_unit_test(utf8_is_judged_as_rfc_3629_does),
        cmocka_unit_test(the_unused_byte_and_trailing_bytes_are_malformed),
        cmocka_unit_test(skip_takes_exactly_one_value),
        cmocka_unit_test(skip_checks_what_it_passes_over),
        cmocka_unit_test(random_bytes_always_end_in_a_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
