/* Zstd files are read like plain ones, frame after frame; what is cut, damaged or in another format
 * is an error that says so. */
#include "packed_lines.h"

#include <zstd.h>

#include "base/check.h"

static size_t add_frame(size_t at, uint32_t first)
{
    static char text[CAPACITY];
    size_t length = lines_text(text, first);
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1)));
    size_t packed = ZSTD_compress2(context, bytes + at, CAPACITY - at, text, length);
    ZSTD_freeCCtx(context);
    assert_false(ZSTD_isError(packed));
    return at + packed;
}

static void make_frames(void)
{
    memset(bytes, 0, sizeof(bytes));
    second = add_frame(0, 0);
    size = add_frame(second, LINES);
}

FR_CASE(frames_are_one_text_and_skippable_ones_none)
{
    struct fr_err err;
    int64_t count;
    make_frames();
    assert_int_equal(read_lines(size, &count, &err), FR_EOF);
    assert_int_equal(count, 2 * LINES);
    assert_int_equal(read_lines(second, &count, &err), FR_EOF);
    assert_int_equal(count, LINES);
    static const char skippable[] = {0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
    memmove(bytes + sizeof(skippable), bytes, size);
    memcpy(bytes, skippable, sizeof(skippable));
    assert_int_equal(read_lines(size + sizeof(skippable), &count, &err), FR_EOF);
    assert_int_equal(count, 2 * LINES);
}

FR_CASE(every_cut_of_a_frame_is_an_error)
{
    struct fr_err err;
    int64_t count;
    make_frames();
    for (size_t n = second + 1; n < size; n++) {
        assert_int_equal(read_lines(n, &count, &err), FR_E_CORRUPT);
        assert_true(count >= LINES);
        assert_non_null(strstr(err.text, "unexpected end of file"));
    }
}

FR_CASE(damage_and_what_follows_the_frames_are_errors)
{
    struct fr_err err;
    int64_t count;
    make_frames();
    for (size_t at = second; at < size; at += 7) {
        bytes[at] ^= 0x11;
        assert_int_equal(read_lines(size, &count, &err), FR_E_CORRUPT);
        assert_non_null(strstr(err.text, "zstd near byte "));
        bytes[at] ^= 0x11;
    }
    memcpy(bytes + size, "more", 4);
    assert_int_equal(read_lines(size + 4, &count, &err), FR_E_CORRUPT);
}

FR_CASE(other_formats_are_refused_by_name)
{
    static const struct {
        const char *begins, *says;
        size_t size;
    } formats[] = {
        {"\xfd"
         "7zXZ\0\0\4",
         "is xz-compressed, which is not read; decompress it (xz -d)", 8},
        {"BZh91AY&SY", "is bzip2-compressed", 10},
        {"\x04\x22\x4d\x18@", "is lz4-compressed", 5},
        {"PK\x03\x04\x14\0", "is a zip archive", 6},
        {"PAR1\x15\0", "is a Parquet file", 6},
        {"\xff\xfe{\0}\0", "is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)", 6},
        {"\xfe\xff\0{\0}", "is UTF-16", 6},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(formats); i++) {
        struct fr_err err = {0};
        int64_t count;
        memcpy(bytes, formats[i].begins, formats[i].size);
        assert_int_equal(read_lines(formats[i].size, &count, &err), FR_E_INVALID);
        assert_non_null(strstr(err.text, formats[i].says));
    }
    static const char *const readable[] = {"{}", "[{}]", "82a16680", "\xef\xbb\xbf{}", "BZ"};
    for (size_t i = 0; i < FR_ARRAY_LEN(readable); i++)
        assert_null(fr_lines_unreadable((const uint8_t *)readable[i], strlen(readable[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_one_text_and_skippable_ones_none),
        cmocka_unit_test(every_cut_of_a_frame_is_an_error),
        cmocka_unit_test(damage_and_what_follows_the_frames_are_errors),
        cmocka_unit_test(other_formats_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
