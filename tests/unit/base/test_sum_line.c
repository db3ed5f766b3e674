/* A checksum line finds every change of the text and of itself. */
#include "case.h"

#include <string.h>

#include "base/sum_line.h"

static const char text[] = "samples 0 24\nsamples 1 7\n";

static void make(struct fr_buffer *out)
{
    fr_buffer_clear(out);
    fr_buffer_append(out, text, sizeof(text) - 1);
    fr_sum_line_append(out);
}

FR_CASE(a_line_is_a_comment_of_its_own_and_comes_off_again)
{
    struct fr_buffer out = {0};
    make(&out);
    assert_int_equal(out.size, sizeof(text) - 1 + 19);
    assert_memory_equal(out.data, text, sizeof(text) - 1);
    assert_memory_equal(out.data + sizeof(text) - 1, "\n# crc32c ", 10);
    assert_int_equal(fr_sum_line_take(&out), FR_OK);
    assert_int_equal(out.size, sizeof(text) - 1);
    assert_int_equal(fr_sum_line_take(&out), FR_E_NOT_FOUND);
    assert_int_equal(out.size, sizeof(text) - 1);
    fr_buffer_release(&out);
}

FR_CASE(an_empty_text_has_a_line_too)
{
    struct fr_buffer out = {0};
    assert_int_equal(fr_sum_line_take(&out), FR_E_NOT_FOUND);
    fr_sum_line_append(&out);
    assert_int_equal(fr_sum_line_take(&out), FR_OK);
    assert_int_equal(out.size, 0);
    fr_buffer_release(&out);
}

FR_CASE(no_flipped_bit_passes)
{
    struct fr_buffer out = {0};
    make(&out);
    for (size_t bit = 0; bit < 8 * out.size; bit++) {
        size_t size = out.size;
        out.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(fr_sum_line_take(&out), FR_OK);
        assert_int_equal(out.size, size);
        out.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    fr_buffer_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_comment_of_its_own_and_comes_off_again),
        cmocka_unit_test(an_empty_text_has_a_line_too),
        cmocka_unit_test(no_flipped_bit_passes),
    };
    return cmocka_run_group_tests_name("base sum line", tests, NULL, NULL);
}
