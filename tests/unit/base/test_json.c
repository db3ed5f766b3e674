/* base/json.h: commas, names, escapes, numbers, line breaks. */
#include "case.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

static struct fr_buffer text;

static void says(const char *expected)
{
    fr_buffer_terminate(&text);
    assert_string_equal((const char *)text.data, expected);
    fr_buffer_release(&text);
}

FR_CASE(members_and_elements_are_separated_however_they_are_nested)
{
    struct fr_json json = {.out = &text};
    fr_json_object(&json, NULL);
    fr_json_u64(&json, "a", UINT64_MAX);
    fr_json_array(&json, "b");
    fr_json_i64(&json, NULL, INT64_MIN);
    fr_json_object(&json, NULL);
    fr_json_end(&json);
    fr_json_array(&json, NULL);
    fr_json_end(&json);
    fr_json_bool(&json, NULL, false);
    fr_json_end(&json);
    fr_json_bool(&json, "c", true);
    fr_json_null(&json, "d");
    fr_json_end(&json);
    says("{\"a\":18446744073709551615,\"b\":[-9223372036854775808,{},[],false],\"c\":true,\"d\":null}");
}

FR_CASE(names_and_texts_are_escaped)
{
    struct fr_json json = {.out = &text};
    fr_json_object(&json, NULL);
    fr_json_text(&json, "a\"b", "c\\d\n");
    fr_json_end(&json);
    says("{\"a\\\"b\":\"c\\\\d\\u000a\"}");
}

/* A text may have been cut inside a character, and a file's name may be any bytes. */
FR_CASE(what_is_not_utf8_is_replaced)
{
    struct fr_json json = {.out = &text};
    fr_json_array(&json, NULL);
    fr_json_text(&json, NULL, "\xc3\xa9t\xc3");
    fr_json_text(&json, NULL, "\xff\xe2\x82\xac\xe2\x82");
    fr_json_end(&json);
    says("[\"\xc3\xa9t\xef\xbf\xbd\",\"\xef\xbf\xbd\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd\"]");
}

FR_CASE(a_number_that_is_not_finite_is_null)
{
    struct fr_json json = {.out = &text};
    fr_json_array(&json, NULL);
    fr_json_number(&json, NULL, 0.1);
    fr_json_number(&json, NULL, 1e-9);
    fr_json_number(&json, NULL, (double)NAN);
    fr_json_number(&json, NULL, -(double)INFINITY);
    fr_json_end(&json);
    says("[0.1,1e-09,null,null]");
}

FR_CASE(doubles_floats_ids_and_hashes_keep_all_their_bits)
{
    static const float floats[] = {0.1f, -0.0f, NAN, 16777217.0f};
    struct fr_json json = {.out = &text};
    fr_json_object(&json, NULL);
    fr_json_exact(&json, "a", 0.1);
    fr_json_exact(&json, "b", (double)NAN);
    fr_json_floats(&json, "c", floats, 4);
    fr_json_floats(&json, "d", NULL, 0);
    fr_json_id(&json, "e", UINT64_MAX);
    fr_json_hash(&json, "f", 255);
    fr_json_end(&json);
    says(
        "{\"a\":0.10000000000000001,\"b\":null,\"c\":[0.100000001,-0,null,16777216],\"d\":[],\"e\":\"18446744073709551615\","
        "\"f\":\"0x00000000000000ff\"}");
}

FR_CASE(no_text_is_null)
{
    struct fr_json json = {.out = &text};
    fr_json_array(&json, NULL);
    fr_json_text(&json, NULL, NULL);
    fr_json_text(&json, NULL, "");
    fr_json_end(&json);
    says("[null,\"\"]");
}

FR_CASE(a_break_starts_a_line_for_the_next_value_and_for_no_other)
{
    struct fr_json json = {.out = &text};
    fr_json_array(&json, NULL);
    for (int i = 0; i < 2; i++) {
        fr_json_break(&json);
        fr_json_object(&json, NULL);
        fr_json_i64(&json, "i", i);
        fr_json_end(&json);
    }
    fr_json_break(&json);
    fr_json_end(&json);
    says("[\n{\"i\":0},\n{\"i\":1}]");
}

FR_CASE(what_the_buffer_holds_stays_before_it)
{
    struct fr_json json = {.out = &text};
    fr_buffer_printf(&text, "x=");
    fr_json_u64(&json, NULL, 1);
    says("x=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_and_elements_are_separated_however_they_are_nested),
        cmocka_unit_test(names_and_texts_are_escaped),
        cmocka_unit_test(what_is_not_utf8_is_replaced),
        cmocka_unit_test(a_number_that_is_not_finite_is_null),
        cmocka_unit_test(doubles_floats_ids_and_hashes_keep_all_their_bits),
        cmocka_unit_test(no_text_is_null),
        cmocka_unit_test(a_break_starts_a_line_for_the_next_value_and_for_no_other),
        cmocka_unit_test(what_the_buffer_holds_stays_before_it),
    };
    return cmocka_run_group_tests_name("base json", tests, NULL, NULL);
}
