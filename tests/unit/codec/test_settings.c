/* The settings of a timeline as bytes: they survive, and damage is refused. */
#include "case.h"

#include "base/crc32c.h"
#include "golden_epoch.h"

FR_CASE(settings_survive_encoding_and_give_the_same_bytes_again)
{
    struct golden g;
    golden_init(&g);
    struct fr_buffer bytes = {0}, again = {0};
    fr_codec_settings_encode(&g.settings, &bytes);
    struct fr_codec_settings read;
    assert_int_equal(fr_codec_settings_parse(bytes.data, bytes.size, &read), FR_OK);
    assert_string_equal(read.model, "golden");
    assert_string_equal(read.kernel, "reference 1 none");
    assert_string_equal(read.cfg, golden_cfg);
    assert_int_equal(read.tables[1].value_floats, 4);
    assert_string_equal(read.tables[1].parts[1].name, "v");
    assert_int_equal(read.piece_max, 400);
    fr_codec_settings_encode(&read, &again);
    assert_int_equal(again.size, bytes.size);
    assert_memory_equal(again.data, bytes.data, bytes.size);
    fr_codec_settings_release(&read);
    fr_buffer_release(&bytes);
    fr_buffer_release(&again);
}

FR_CASE(damaged_settings_are_refused)
{
    struct golden g;
    golden_init(&g);
    struct fr_buffer bytes = {0};
    fr_codec_settings_encode(&g.settings, &bytes);
    struct fr_codec_settings read;
    for (size_t size = 0; size < bytes.size; size++)
        assert_int_equal(fr_codec_settings_parse(bytes.data, size, &read), FR_E_CORRUPT);
    for (size_t at = 0; at + 4 < bytes.size; at++) {
        uint8_t kept = bytes.data[at];
        bytes.data[at] = 0xff;
        assert_int_equal(fr_codec_settings_parse(bytes.data, bytes.size, &read), FR_E_CORRUPT);
        /* with a CRC that fits the damage is refused, or read and released without a fault */
        uint32_t crc = fr_crc32c(0, bytes.data, bytes.size - 4), good;
        memcpy(&good, bytes.data + bytes.size - 4, 4);
        memcpy(bytes.data + bytes.size - 4, &crc, 4);
        if (fr_codec_settings_parse(bytes.data, bytes.size, &read) == FR_OK)
            fr_codec_settings_release(&read);
        memcpy(bytes.data + bytes.size - 4, &good, 4);
        bytes.data[at] = kept;
    }
    fr_buffer_release(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_survive_encoding_and_give_the_same_bytes_again),
        cmocka_unit_test(damaged_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
