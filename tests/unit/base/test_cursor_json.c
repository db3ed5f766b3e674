/* base/cursor.h, JSON (RFC 8259): grammar, escapes, numbers that are exact or correctly rounded. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <math.h>
#include <stdbool.h>

#include "base/cursor.h"

/* The text in memory of exactly its size, so that the address sanitizer watches both ends. */
struct reading {
    uint8_t *text;
    struct fr_buffer scratch;
    struct fr_cursor cursor;
};

static void begin(struct reading *reading, const char *text, size_t size)
{
    memset(reading, 0, sizeof(*reading));
    reading->text = malloc(size ? size : 1);
    assert_non_null(reading->text);
    memcpy(reading->text, text, size);
    fr_cursor_init(&reading->cursor, FR_FORMAT_JSON, reading->text, size, &reading->scratch);
}

static void finish(struct reading *reading)
{
    free(reading->text);
    fr_buffer_release(&reading->scratch);
}

static enum fr_status verdict_sized(const char *text, size_t size, const char **problem)
{
    struct reading reading;
    struct fr_token token;
    enum fr_status status;
    begin(&reading, text, size);
    while ((status = fr_cursor_next(&reading.cursor, &token)) == FR_OK) {
    }
    *problem = reading.cursor.problem;
    if (status != FR_EOF) {
        size_t offset = fr_cursor_offset(&reading.cursor);
        assert_non_null(*problem);
        assert_int_equal(fr_cursor_next(&reading.cursor, &token), status);
        assert_int_equal(fr_cursor_offset(&reading.cursor), offset);
    }
    finish(&reading);
    return status;
}

static enum fr_status verdict(const char *text)
{
    const char *problem;
    return verdict_sized(text, strlen(text), &problem);
}

static struct fr_token scalar(const char *text)
{
    struct reading reading;
    struct fr_token token, after;
    begin(&reading, text, strlen(text));
    assert_int_equal(fr_cursor_next(&reading.cursor, &token), FR_OK);
    assert_int_equal(fr_cursor_next(&reading.cursor, &after), FR_EOF);
    finish(&reading);
    return token;
}

/* Returns one letter for each token that the grammar finds in the text. */
static const char *shape(const char *text)
{
    static char out[128];
    static const char letters[] = "nbiufsxxame"; /* in the order of enum fr_token_kind */
    struct reading reading;
    struct fr_token token;
    size_t size = 0;
    begin(&reading, text, strlen(text));
    while (size + 1 < sizeof(out) && fr_cursor_next(&reading.cursor, &token) == FR_OK)
        out[size++] = letters[token.kind];
    out[size] = '\0';
    finish(&reading);
    return out;
}

FR_CASE(values_give_the_tokens_of_their_structure)
{
    assert_string_equal(shape("{\"a\":[1,-2,3.5,null,true],\"b\":{}}"), "msauifnbesmee");
    assert_string_equal(shape(" [ ] "), "ae");
    assert_string_equal(shape("\t\r\n{ \"k\" : [ { } , [ ] ] }\n"), "msameaeee");
    assert_string_equal(shape("false"), "b");
}

FR_CASE(malformed_texts_are_refused)
{
    static const char *const texts[] = {
        "",
        " ",
        "{",
        "[",
        "]",
        "}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1,,2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{1:2}",
        "{a:1}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1:2}",
        "[1:2]",
        "[1}",
        "{\"a\":1]",
        "{\"a\",1}",
        "1 2",
        "[] []",
        "nul",
        "nullx",
        "True",
        "NaN",
        "[NaN]",
        "Infinity",
        "-Infinity",
        "inf",
        "'a'",
        "\"a",
        "\"",
        "\"\\\"",
        "\"\\",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u\"",
        "/**/1",
        "1//",
        "[1;2]",
        "\xef\xbb\xbf",
        "\xef\xbb[]",
        "[\xef\xbb\xbf]",
        "\xff\xfe[\0]\0",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\x01\"",
        "\"\xff\"",
        "\"\xc3\"",
        "{\"\xc0\x80\":1}",
        "\v1",
        "{null:1}",
        "{[]:1}",
        "nulll",
        "[true false]",
        ",",
        ":",
        "{\"a\":1}}",
        "[[1]",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (verdict(texts[i]) != FR_E_INVALID)
            fail_msg("accepted or misjudged: %s", texts[i]);
}

FR_CASE(every_cut_of_a_valid_text_is_malformed)
{
    const char text[] = "{\"f\":{\"a\":[1,2.5e3,\"x\\u00e9\\ud83d\\ude00\"],\"b\":null},\"y\":[true,false,-7]}";
    const char *problem;
    assert_int_equal(verdict(text), FR_EOF);
    for (size_t size = 0; size < sizeof(text) - 1; size++)
        assert_int_equal(verdict_sized(text, size, &problem), FR_E_INVALID);
}

FR_CASE(a_zero_byte_is_not_the_end)
{
    const char *problem;
    assert_int_equal(verdict_sized("1\0", 2, &problem), FR_E_INVALID);
    assert_int_equal(verdict_sized("[1\0]", 4, &problem), FR_E_INVALID);
    assert_int_equal(verdict_sized("\"a\0\"", 4, &problem), FR_E_INVALID);
}

/* ---- strings ---- */

static void assert_string(const char *text, const char *expected, size_t size)
{
    struct reading reading;
    struct fr_token token;
    begin(&reading, text, strlen(text));
    assert_int_equal(fr_cursor_next(&reading.cursor, &token), FR_OK);
    assert_int_equal(token.kind, FR_TOKEN_STRING);
    assert_int_equal(token.size, size);
    assert_memory_equal(token.bytes, expected, size);
    finish(&reading);
}

FR_CASE(escapes_are_resolved)
{
    assert_string("\"\"", "", 0);
    assert_string("\"plain\"", "plain", 5);
    assert_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
    assert_string("\"\\u0041\\u00e9\\u20AC\"", "A\xc3\xa9\xe2\x82\xac", 6);
    assert_string("\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", 4);
    assert_string("\"\\uDBFF\\uDFFF\"", "\xf4\x8f\xbf\xbf", 4);
    assert_string("\"\\uD800\\uDC00\"", "\xf0\x90\x80\x80", 4);
    assert_string("\"a\\u0000b\"", "a\0b", 3);
    assert_string("\"\xc3\xa9\\n\"", "\xc3\xa9\n", 3);
}

FR_CASE(half_a_surrogate_pair_is_malformed)
{
    static const char *const texts[] = {"\"\\ud83d\"",        "\"\\ude00\"",    "\"\\ude00\\ud83d\"",
                                        "\"\\ud83dx\"",       "\"\\ud83d\\n\"", "\"\\ud83d\\u0041\"",
                                        "\"\\ud83d\\ud83d\"", "\"\\ud83d\\u\"", "\"\xed\xa0\xbd\""};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(verdict(texts[i]), FR_E_INVALID);
}

FR_CASE(strings_without_escapes_point_into_the_input)
{
    struct reading reading;
    struct fr_token token;
    begin(&reading, "[\"abc\"]", 7);
    assert_int_equal(fr_cursor_next(&reading.cursor, &token), FR_OK);
    assert_int_equal(fr_cursor_next(&reading.cursor, &token), FR_OK);
    assert_ptr_equal(token.bytes, reading.text + 2);
    assert_int_equal(reading.scratch.capacity, 0); /* nothing was copied */
    finish(&reading);
}

FR_CASE(the_string_limit_counts_the_bytes_after_unescaping)
{
    struct fr_buffer text = {0};
    const char *problem;
    for (int extra = 0; extra <= 1; extra++) {
        fr_buffer_clear(&text);
        fr_buffer_printf(&text, "\"%0*d\"", 4096 + extra, 0);
        assert_int_equal(verdict_sized((const char *)text.data, text.size, &problem), extra ? FR_E_LIMIT : FR_EOF);
        fr_buffer_clear(&text);
        fr_buffer_printf(&text, "\"");
        for (int i = 0; i < 4096 + extra; i++)
            fr_buffer_printf(&text, "\\u0041");
        fr_buffer_printf(&text, "\"");
        assert_int_equal(verdict_sized((const char *)text.data, text.size, &problem), extra ? FR_E_LIMIT : FR_EOF);
    }
    fr_buffer_release(&text);
}

/* ---- numbers ---- */

FR_CASE(integers_of_64_bits_are_exact)
{
    static const struct {
        const char *text;
        uint64_t value;
    } naturals[] = {
        {"0", 0}, {"-0", 0}, {"7", 7}, {"9223372036854775808", 1ULL << 63}, {"18446744073709551615", UINT64_MAX}};
    for (size_t i = 0; i < sizeof(naturals) / sizeof(naturals[0]); i++) {
        struct fr_token token = scalar(naturals[i].text);
        assert_int_equal(token.kind, FR_TOKEN_UINT);
        assert_true(token.u == naturals[i].value);
    }
    static const struct {
        const char *text;
        int64_t value;
    } negatives[] = {{"-1", -1}, {"-9223372036854775807", -INT64_MAX}, {"-9223372036854775808", INT64_MIN}};
    for (size_t i = 0; i < sizeof(negatives) / sizeof(negatives[0]); i++) {
        struct fr_token token = scalar(negatives[i].text);
        assert_int_equal(token.kind, FR_TOKEN_INT);
        assert_true(token.i == negatives[i].value);
    }
}

FR_CASE(integers_beyond_64_bits_become_the_nearest_double)
{
    static const char *const texts[] = {"18446744073709551616", "-9223372036854775809",
                                        "123456789012345678901234567890", "36893488147419103233"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct fr_token token = scalar(texts[i]);
        assert_int_equal(token.kind, FR_TOKEN_FLOAT);
        assert_true(token.f == strtod(texts[i], NULL));
    }
}

FR_CASE(numbers_that_json_does_not_know_are_malformed)
{
    static const char *const texts[] = {"-",   "+1",   "01",  "-01",  "1.",  ".5", "-.5",   "1.e5", "1e",   "1e+",
                                        "1E-", "0x10", "1_0", "1e5.", "--1", "00", "1.2.3", "-a",   "1ee5", "1f"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (verdict(texts[i]) != FR_E_INVALID)
            fail_msg("accepted or misjudged: %s", texts[i]);
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

static void assert_float(const char *text)
{
    struct fr_token token = scalar(text);
    assert_int_equal(token.kind, FR_TOKEN_FLOAT);
    if (!same_bits(token.f, strtod(text, NULL)))
        fail_msg("%s is %a, not %a", text, token.f, strtod(text, NULL));
}

FR_CASE(floats_are_the_nearest_double)
{
    static const char *const texts[] = {
        "0.1",
        "1e22",
        "1e23",
        "-0.0",
        "0.0e5",
        "1.7976931348623157e308",
        "4.9e-324",
        "2.2250738585072011e-308",
        "1e-400",
        "0e9999",
        "1e-9999",
        "-1e-5",
        "1E+2",
        "9007199254740993.0",
        "123456.789",
        "1.0000000000000002220446049250313080847263336181640625",
        "0.000001",
        "9007199254740992e-22",
        "9007199254740993e22",
        "1.5e0000000000000000001",
        "0.1e-0",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_float(texts[i]);
    uint64_t random = 2463534242ULL;
    for (int i = 0; i < 100000; i++) {
        char text[64];
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        snprintf(text, sizeof(text), "%s%llu.%0*llue%d", random & 1 ? "-" : "",
                 (unsigned long long)(random >> 12 & 0xfffff), (int)(1 + (random >> 1 & 15)),
                 (unsigned long long)(random >> 40), (int)(random >> 5 & 63) - 32);
        assert_float(text);
    }
}

FR_CASE(a_number_beyond_every_double_is_not_finite)
{
    const char *problem;
    assert_int_equal(verdict_sized("1e309", 5, &problem), FR_E_INVALID);
    assert_string_equal(problem, "number is not finite");
    assert_int_equal(verdict("-1e999999999999"), FR_E_INVALID);
    assert_int_equal(verdict("[1.8e308]"), FR_E_INVALID);
}

FR_CASE(a_number_text_has_a_limit)
{
    struct fr_buffer text = {0};
    const char *problem;
    fr_buffer_printf(&text, "[1%0511d]", 0);
    /* 1e511: not finite */
    assert_int_equal(verdict_sized((const char *)text.data, text.size, &problem), FR_E_INVALID);
    fr_buffer_clear(&text);
    fr_buffer_printf(&text, "[0.%0510d]", 1);
    assert_int_equal(verdict_sized((const char *)text.data, text.size, &problem), FR_EOF);
    fr_buffer_clear(&text);
    fr_buffer_printf(&text, "[0.%0511d]", 1);
    assert_int_equal(verdict_sized((const char *)text.data, text.size, &problem), FR_E_LIMIT);
    assert_string_equal(problem, "number longer than 512 characters");
    fr_buffer_release(&text);
}

/* ---- depth, skip ---- */

FR_CASE(the_ninth_container_is_refused)
{
    const char *problem;
    assert_int_equal(verdict("[[[[[[[[1]]]]]]]]"), FR_EOF);
    assert_int_equal(verdict("{\"a\":{\"a\":{\"a\":{\"a\":[[[[]]]]}}}}"), FR_EOF);
    assert_int_equal(verdict_sized("[[[[[[[[[1]]]]]]]]]", 19, &problem), FR_E_LIMIT);
    assert_string_equal(problem, "nested deeper than 8 containers");
}

FR_CASE(skip_takes_exactly_one_value)
{
    struct reading reading;
    struct fr_token token;
    const char text[] = "{\"x\":{\"a\":[1,[2]],\"\\u0062\":null},\"y\":7}";
    begin(&reading, text, sizeof(text) - 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fr_cursor_next(&reading.cursor, &token), FR_OK);
    assert_int_equal(token.kind, FR_TOKEN_MAP);
    assert_int_equal(fr_cursor_skip(&reading.cursor, &token), FR_OK);
    assert_int_equal(fr_cursor_next(&reading.cursor, &token), FR_OK);
    assert_memory_equal(token.bytes, "y", 1);
    assert_int_equal(fr_cursor_next(&reading.cursor, &token), FR_OK);
    assert_int_equal(token.u, 7);
    finish(&reading);
}

/* Texts over the alphabet of JSON: no crash, no read outside (sanitizer). Seed fixed. */
FR_CASE(random_texts_always_end_in_a_verdict)
{
    static const char alphabet[] = "{}[]\",:\\u0123456789abcdefntr.eE+- \xc3\xa9l";
    uint64_t random = 88172645463325252ULL;
    size_t whole = 0;
    for (int round = 0; round < 300000; round++) {
        char text[20];
        size_t size = (size_t)round % sizeof(text);
        for (size_t i = 0; i < size; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            text[i] = alphabet[(random >> 33) % (sizeof(alphabet) - 1)];
        }
        const char *problem;
        enum fr_status status = verdict_sized(text, size, &problem);
        assert_true(status == FR_EOF || status == FR_E_INVALID || status == FR_E_LIMIT);
        whole += status == FR_EOF;
    }
    assert_true(whole > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_give_the_tokens_of_their_structure),
        cmocka_unit_test(malformed_texts_are_refused),
        cmocka_unit_test(every_cut_of_a_valid_text_is_malformed),
        cmocka_unit_test(a_zero_byte_is_not_the_end),
        cmocka_unit_test(escapes_are_resolved),
        cmocka_unit_test(half_a_surrogate_pair_is_malformed),
        cmocka_unit_test(strings_without_escapes_point_into_the_input),
        cmocka_unit_test(the_string_limit_counts_the_bytes_after_unescaping),
        cmocka_unit_test(integers_of_64_bits_are_exact),
        cmocka_unit_test(integers_beyond_64_bits_become_the_nearest_double),
        cmocka_unit_test(numbers_that_json_does_not_know_are_malformed),
        cmocka_unit_test(floats_are_the_nearest_double),
        cmocka_unit_test(a_number_beyond_every_double_is_not_finite),
        cmocka_unit_test(a_number_text_has_a_limit),
        cmocka_unit_test(the_ninth_container_is_refused),
        cmocka_unit_test(skip_takes_exactly_one_value),
        cmocka_unit_test(random_texts_always_end_in_a_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
