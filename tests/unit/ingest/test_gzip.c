/* Gzip files of several members: all of them are one text, and nothing but padding of zeros may
 * follow the last one. */
#include "packed_lines.h"

#include <zlib.h>

#include "base/check.h"

static size_t add_member(size_t at, uint32_t first)
{
    static char text[CAPACITY];
    size_t length = lines_text(text, first);
    z_stream out = {0};
    assert_int_equal(deflateInit2(&out, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    out.next_in = (Bytef *)text;
    out.avail_in = (uInt)length;
    out.next_out = (Bytef *)bytes + at;
    out.avail_out = (uInt)(CAPACITY - at);
    assert_int_equal(deflate(&out, Z_FINISH), Z_STREAM_END);
    size_t end = CAPACITY - out.avail_out;
    deflateEnd(&out);
    return end;
}

static void make_members(void)
{
    memset(bytes, 0, sizeof(bytes));
    second = add_member(0, 0);
    size = add_member(second, LINES);
}

FR_CASE(members_are_one_text)
{
    struct fr_err err;
    int64_t count;
    make_members();
    for (size_t padding = 0; padding < 3; padding++) {
        assert_int_equal(read_lines(size + 10000 * padding + padding, &count, &err), FR_EOF);
        assert_int_equal(count, 2 * LINES);
    }
}

FR_CASE(a_member_that_ends_inside_a_line_is_continued_by_the_next)
{
    struct fr_err err;
    int64_t count;
    static const char *parts[] = {"line 0 of", "", " the text\nline 1 of the te", "xt"};
    size = 0;
    for (size_t i = 0; i < FR_ARRAY_LEN(parts); i++) {
        z_stream out = {0};
        assert_int_equal(deflateInit2(&out, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
        out.next_in = (Bytef *)parts[i];
        out.avail_in = (uInt)strlen(parts[i]);
        out.next_out = (Bytef *)bytes + size;
        out.avail_out = (uInt)(CAPACITY - size);
        assert_int_equal(deflate(&out, Z_FINISH), Z_STREAM_END);
        size = CAPACITY - out.avail_out;
        deflateEnd(&out);
    }
    assert_int_equal(read_lines(size, &count, &err), FR_EOF);
    assert_int_equal(count, 2);
}

FR_CASE(every_cut_of_the_second_member_is_an_error)
{
    struct fr_err err;
    int64_t count;
    make_members();
    for (size_t n = second + 1; n < size; n++) {
        assert_int_equal(read_lines(n, &count, &err), FR_E_CORRUPT);
        assert_true(count >= LINES);
        if (!strstr(err.text, "gzip member 2, which begins at byte") || !strstr(err.text, "unexpected end of file"))
            fail_msg("%zu: %s", n, err.text);
    }
}

FR_CASE(damage_of_a_later_member_is_an_error_that_says_where)
{
    struct fr_err err;
    int64_t count;
    make_members();
    const struct {
        size_t flipped;
        const char *says;
    } damages[] = {
        {second, "gzip member 2"},
        {second + 1, "gzip member 2"},
        {second + 2, "gzip member 2"},
        {(second + size) / 2, "gzip member 2"},
        {size - 6, "incorrect data check"},
        {size - 2, "incorrect length check"},
        {second - 2, "gzip member 1, which begins at byte 0"},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(damages); i++) {
        bytes[damages[i].flipped] ^= 0x11;
        assert_int_equal(read_lines(size, &count, &err), FR_E_CORRUPT);
        if (!strstr(err.text, damages[i].says))
            fail_msg("%zu: %s", i, err.text);
        bytes[damages[i].flipped] ^= 0x11;
    }
}

FR_CASE(what_follows_the_members_is_padding_of_zeros_or_an_error)
{
    struct fr_err err;
    int64_t count;
    make_members();
    bytes[size + 5000] = 1;
    assert_int_equal(read_lines(size + 5001, &count, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "neither a further member nor padding"));
    memcpy(bytes + size, "xy", 2);
    assert_int_equal(read_lines(size + 2, &count, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "gzip member 3"));
    assert_int_equal(read_lines(size + 1, &count, &err), FR_E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_one_text),
        cmocka_unit_test(a_member_that_ends_inside_a_line_is_continued_by_the_next),
        cmocka_unit_test(every_cut_of_the_second_member_is_an_error),
        cmocka_unit_test(damage_of_a_later_member_is_an_error_that_says_where),
        cmocka_unit_test(what_follows_the_members_is_padding_of_zeros_or_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
