/* Records of a writer that knows more than ours: bf16 and i8 segments, `seen` and `st` of
 * export.state (docs/formats/deltas.md). This version reads them and writes none. */
#include "case.h"

#include <string.h>

#include "base/crc32c.h"
#include "codec/codec.h"

enum { ROWS = 2, DIM = 2 };

static void put_text(struct fr_buffer *out, const char *text)
{
    fr_put_u8(out, (uint8_t)(0xa0 | strlen(text)));
    fr_buffer_append(out, text, strlen(text));
}

static void put_number(struct fr_buffer *out, const char *key, uint8_t value)
{
    put_text(out, key);
    fr_put_u8(out, value);
}

static void put_bin(struct fr_buffer *out, const char *key, const void *bytes, size_t size)
{
    put_text(out, key);
    fr_put_u8(out, 0xc4);
    fr_put_u8(out, (uint8_t)size);
    fr_buffer_append(out, bytes, size);
}

static void put_envelope(struct fr_buffer *out, uint8_t n_fields, const char *kind)
{
    static const char *const names[] = {"fp", "tl", "e", "from", "dig", "p", "np", "i"};
    static const uint8_t values[] = {7, 1, 1, 1, 9, 0, 1, 0};
    fr_buffer_append(out, "\xde\0", 2);
    fr_put_u8(out, (uint8_t)(11 + n_fields + 1));
    put_number(out, "v", 1);
    put_text(out, "k");
    put_text(out, kind);
    put_text(out, "m");
    put_text(out, "other");
    for (size_t i = 0; i < sizeof(values); i++)
        put_number(out, names[i], values[i]);
}

static void put_segment(struct fr_buffer *out, const char *quantize, const void *values, size_t size)
{
    bool scaled = strcmp(quantize, "i8") == 0;
    static const float scales[ROWS] = {0.5f, 0.0f};
    fr_put_u8(out, scaled ? 0x85 : 0x84);
    put_text(out, "part");
    put_text(out, quantize);
    put_number(out, "dim", DIM);
    put_text(out, "q");
    put_text(out, quantize);
    put_bin(out, "vals", values, size);
    if (scaled)
        put_bin(out, "sc", scales, sizeof(scales));
}

static void finish(struct fr_buffer *out)
{
    uint32_t crc = __builtin_bswap32(fr_crc32c(0, out->data, out->size));
    put_text(out, "crc");
    fr_put_u8(out, 0xce);
    fr_buffer_append(out, &crc, 4);
}

FR_CASE(bf16_and_i8_segments_are_read_and_seen_and_counters_passed_over)
{
    static const uint64_t keys[ROWS] = {5, 6};
    static const uint16_t bf16[ROWS * DIM] = {0x3f80, 0xc049, 0x0000, 0x7f7f};
    static const int8_t i8[ROWS * DIM] = {127, -3, 0, 0};
    static const uint32_t seen[ROWS] = {1, 2};
    static const float show[ROWS] = {3, 4};
    struct fr_buffer out = {0};
    put_envelope(&out, 5, "rows");
    put_text(&out, "tb");
    put_text(&out, "item");
    put_bin(&out, "keys", keys, sizeof(keys));
    put_text(&out, "seg");
    fr_put_u8(&out, 0x92);
    put_segment(&out, "bf16", bf16, sizeof(bf16));
    put_segment(&out, "i8", i8, sizeof(i8));
    put_bin(&out, "seen", seen, sizeof(seen));
    put_text(&out, "st");
    fr_put_u8(&out, 0x81);
    put_bin(&out, "show", show, sizeof(show));
    finish(&out);
    struct fr_delta_record record;
    struct fr_err err = {0};
    if (fr_delta_read(out.data, out.size, &record, &err) != FR_OK)
        fail_msg("%s", err.text);
    float values[ROWS][2][DIM];
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t s = 0; s < 2; s++)
            fr_delta_segment_row(&record, s, r, values[r][s]);
    assert_true(values[0][0][0] == 1.0f && values[0][0][1] == -3.140625f && values[1][0][0] == 0.0f);
    assert_true(values[1][0][1] == 0x1.fep127f); /* the largest finite bf16 */
    assert_true(values[0][1][0] == 63.5f && values[0][1][1] == -1.5f && values[1][1][0] == 0.0f);
    fr_buffer_release(&out);
}

FR_CASE(i8_without_a_scale_for_every_row_is_refused)
{
    static const uint64_t keys[ROWS] = {5, 6};
    static const int8_t i8[ROWS * DIM] = {1, 2, 3, 4};
    for (int scales = 0; scales < 3; scales++) {
        struct fr_buffer out = {0};
        put_envelope(&out, 3, "rows");
        put_text(&out, "tb");
        put_text(&out, "item");
        put_bin(&out, "keys", keys, sizeof(keys));
        put_text(&out, "seg");
        fr_put_u8(&out, 0x91);
        fr_put_u8(&out, scales ? 0x85 : 0x84);
        put_text(&out, "part");
        put_text(&out, "v");
        put_number(&out, "dim", DIM);
        put_text(&out, "q");
        put_text(&out, "i8");
        put_bin(&out, "vals", i8, sizeof(i8));
        if (scales)
            put_bin(&out, "sc", "\0\0\0\0\0\0\0", (size_t)scales * 4);
        finish(&out);
        struct fr_delta_record record;
        assert_int_equal(fr_delta_read(out.data, out.size, &record, NULL), scales == ROWS ? FR_OK : FR_E_INVALID);
        fr_buffer_release(&out);
    }
}

FR_CASE(dense_parameters_are_read_as_bf16_and_never_as_i8)
{
    static const uint16_t bf16[2] = {0x3f80, 0xbf00};
    for (int wrong = 0; wrong < 2; wrong++) {
        struct fr_buffer out = {0};
        put_envelope(&out, 5, "dense");
        put_text(&out, "name");
        put_text(&out, "h/bias");
        put_text(&out, "shape");
        fr_buffer_append(&out, "\x91\x04", 2);
        put_text(&out, "q");
        put_text(&out, wrong ? "i8" : "bf16");
        put_number(&out, "off", 2);
        put_bin(&out, "vals", bf16, wrong ? 2 : sizeof(bf16));
        finish(&out);
        struct fr_delta_record record;
        assert_int_equal(fr_delta_read(out.data, out.size, &record, NULL), wrong ? FR_E_INVALID : FR_OK);
        if (!wrong) {
            float values[2];
            fr_delta_dense_values(&record, values);
            assert_int_equal(record.dense.n_values, 2);
            assert_true(values[0] == 1.0f && values[1] == -0.5f);
        }
        fr_buffer_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_and_i8_segments_are_read_and_seen_and_counters_passed_over),
        cmocka_unit_test(i8_without_a_scale_for_every_row_is_refused),
        cmocka_unit_test(dense_parameters_are_read_as_bf16_and_never_as_i8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
