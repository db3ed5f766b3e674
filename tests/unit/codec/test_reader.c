/* The reader of delta records: it refuses damage and contradictions, and reads the encodings and
 * keys of other writers. */
#include "delta_records.h"

#include "base/crc32c.h"

FR_CASE(every_truncation_of_every_record_is_refused)
{
    struct golden g;
    golden_init(&g);
    write_golden(&g);
    struct fr_delta_record record;
    for (size_t i = 0; i < all.count; i++)
        for (size_t size = 0; size < all.list[i].size; size++) {
            uint8_t *cut = malloc(size ? size : 1);
            memcpy(cut, all.list[i].bytes, size);
            assert_true(fr_delta_read(cut, size, &record, NULL) < 0);
            free(cut);
        }
}

FR_CASE(every_flipped_bit_of_every_record_is_refused)
{
    struct golden g;
    golden_init(&g);
    write_golden(&g);
    struct fr_delta_record record;
    for (size_t i = 0; i < all.count; i++)
        for (size_t bit = 0; bit < all.list[i].size * 8; bit++) {
            all.list[i].bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(fr_delta_read(all.list[i].bytes, all.list[i].size, &record, NULL), FR_E_CORRUPT);
            all.list[i].bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
}

/* Damage with a crc that fits: the parser itself must stay inside the bytes (the address sanitizer
 * watches). */
FR_CASE(damaged_records_with_a_fitting_crc_never_read_outside)
{
    struct golden g;
    golden_init(&g);
    write_golden(&g);
    size_t refused = 0, taken = 0;
    for (size_t i = 0; i < all.count; i++)
        for (size_t at = 0; at + 9 < all.list[i].size; at++)
            for (int change = 0; change < 4; change++) {
                static const uint8_t values[] = {0xff, 0xc6, 0x00, 0xdd};
                size_t size = all.list[i].size;
                uint8_t *copy = malloc(size);
                memcpy(copy, all.list[i].bytes, size);
                copy[at] = change == 3 ? (uint8_t)(copy[at] + 1) : values[change];
                uint32_t crc = __builtin_bswap32(fr_crc32c(0, copy, size - 9));
                memcpy(copy + size - 4, &crc, 4);
                struct fr_delta_record record;
                if (fr_delta_read(copy, size, &record, NULL) != FR_OK) {
                    refused++;
                } else {
                    taken++;
                    float *row = malloc(1 << 16);
                    for (uint32_t s = 0; record.kind == FR_DELTA_ROWS && s < record.rows.n_segments; s++)
                        for (uint32_t r = 0; r < record.rows.n_rows; r++)
                            fr_delta_segment_row(&record, s, r, row);
                    if (record.kind == FR_DELTA_DENSE)
                        fr_delta_dense_values(&record, row);
                    free(row);
                }
                free(copy);
            }
    assert_true(refused > 1000);
    assert_true(taken > 1000);
}

/* Replaces `from` by `to` (same size) once and fits the crc. */
static enum fr_status read_changed(size_t i, const char *from, const char *to, size_t size, struct fr_err *err)
{
    uint8_t *bytes = all.list[i].bytes;
    size_t total = all.list[i].size, at = 0;
    while (at + size <= total && memcmp(bytes + at, from, size) != 0)
        at++;
    assert_true(at + size <= total);
    memcpy(bytes + at, to, size);
    uint32_t crc = __builtin_bswap32(fr_crc32c(0, bytes, total - 9));
    memcpy(bytes + total - 4, &crc, 4);
    struct fr_delta_record record;
    *err = (struct fr_err){0};
    return fr_delta_read(bytes, total, &record, err);
}

FR_CASE(fields_that_contradict_each_other_are_refused_with_their_name)
{
    struct golden g;
    struct fr_err err;
    golden_init(&g);
    write_golden(&g);
    size_t last = all.count - 1, rows = 2;
    assert_int_equal(read_changed(last,
                                  "\xa4"
                                  "from\x07",
                                  "\xa4"
                                  "from\x08",
                                  6, &err),
                     FR_E_INVALID);
    assert_non_null(strstr(err.text, "from"));
    assert_int_equal(read_changed(last - 1, "\xa1p\x01", "\xa1p\x02", 3, &err), FR_E_INVALID);
    assert_int_equal(read_changed(0, "\xa2np\x02", "\xa2np\x00", 4, &err), FR_E_INVALID);
    assert_int_equal(read_changed(rows,
                                  "\xa3"
                                  "dim\x02",
                                  "\xa3"
                                  "dim\x03",
                                  5, &err),
                     FR_E_INVALID);
    assert_non_null(strstr(err.text, "vals"));
    /* model in partition 1 */
    assert_int_equal(read_changed(1, "\xa1p\x00", "\xa1p\x01", 3, &err), FR_E_INVALID);
    write_golden(&g);
    /* keys of partition 0 */
    assert_int_equal(read_changed(rows, "\xa1p\x00", "\xa1p\x01", 3, &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, "keys"));
    write_golden(&g);
    assert_int_equal(read_changed(rows,
                                  "\xa1q\xa3"
                                  "f16",
                                  "\xa1q\xa3"
                                  "f17",
                                  6, &err),
                     FR_E_UNSUPPORTED);
}

FR_CASE(keys_that_do_not_ascend_are_refused)
{
    struct golden g;
    golden_init(&g);
    write_golden(&g);
    struct fr_delta_record record = read_ok(2);
    assert_int_equal(record.kind, FR_DELTA_ROWS);
    assert_true(record.rows.n_rows >= 2);
    uint8_t *keys = (uint8_t *)(uintptr_t)record.rows.keys;
    memcpy(keys + 8, keys, 8);
    struct fr_err err;
    assert_int_equal(read_changed(2, "\xa1p\x00", "\xa1p\x00", 3, &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, "ascending"));
}

/* ---- records of other writers ---- */

static void put_text(struct fr_buffer *out, const char *text)
{
    fr_put_u8(out, 0xdb); /* str32: legal, not shortest */
    fr_buffer_append(out, "\0\0\0", 3);
    fr_put_u8(out, (uint8_t)strlen(text));
    fr_buffer_append(out, text, strlen(text));
}

static void put_number(struct fr_buffer *out, const char *key, uint64_t value)
{
    put_text(out, key);
    fr_put_u8(out, 0xd3); /* int64 for an unsigned value */
    fr_put_u64(out, __builtin_bswap64(value));
}

static void finish(struct fr_buffer *out)
{
    uint32_t crc = __builtin_bswap32(fr_crc32c(0, out->data, out->size));
    fr_buffer_append(out,
                     "\xa3"
                     "crc\xce",
                     5);
    fr_buffer_append(out, &crc, 4);
}

/* A drop record with keys in another order, other encodings, unknown keys of every shape, and the
 * given version and kind. */
static void foreign_record(struct fr_buffer *out, uint64_t version, const char *kind)
{
    fr_buffer_clear(out);
    fr_buffer_append(out, "\xdf\0\0\0\x13", 5);
    put_text(out, "why");
    fr_buffer_append(out, "\xc6\0\0\0\x02\x01\x05", 7);
    put_text(out, "x_list");
    fr_buffer_append(out, "\x92\xc0\x81\x01\xca\0\0\0\0", 9);
    put_text(out, "tb");
    put_text(out, "item");
    put_text(out, "keys");
    fr_buffer_append(out, "\xc5\0\x10", 3);
    fr_put_u64(out, 3);
    fr_put_u64(out, 4);
    fr_buffer_append(out, "\x07\x08", 2); /* an integer key */
    put_number(out, "i", 4);
    put_number(out, "np", 1);
    put_number(out, "p", 0);
    put_number(out, "dig", 99);
    put_number(out, "from", 3);
    put_number(out, "e", 5);
    put_number(out, "tl", 1);
    put_number(out, "fp", 77);
    put_text(out, "m");
    put_text(out, "other");
    put_text(out, "k");
    put_text(out, kind);
    put_number(out, "v", version);
    put_text(out, "x_nil");
    fr_put_u8(out, 0xc0);
    put_text(out, "x_ext");
    fr_buffer_append(out, "\xd4\x01\x02", 3);
    finish(out);
}

FR_CASE(any_encoding_and_order_is_read_and_unknown_keys_are_ignored)
{
    struct fr_buffer out = {0};
    struct fr_delta_record record;
    struct fr_err err = {0};
    foreign_record(&out, 1, "drop");
    enum fr_status status = fr_delta_read(out.data, out.size, &record, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(status, FR_OK);
    assert_int_equal(record.kind, FR_DELTA_DROP);
    assert_int_equal(record.drop.n_rows, 2);
    assert_int_equal(record.drop.why[1], 5);
    assert_int_equal(record.from, 3);
    assert_int_equal(record.fp, 77);
    fr_buffer_release(&out);
}

FR_CASE(unknown_kinds_are_read_as_pieces_and_other_versions_refused)
{
    struct fr_buffer out = {0};
    struct fr_delta_record record;
    foreign_record(&out, 1, "sparkles");
    assert_int_equal(fr_delta_read(out.data, out.size, &record, NULL), FR_OK);
    assert_int_equal(record.kind, FR_DELTA_UNKNOWN);
    assert_int_equal(record.piece, 4);
    foreign_record(&out, 2, "drop");
    assert_int_equal(fr_delta_read(out.data, out.size, &record, NULL), FR_E_UNSUPPORTED);
    fr_buffer_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_truncation_of_every_record_is_refused),
        cmocka_unit_test(every_flipped_bit_of_every_record_is_refused),
        cmocka_unit_test(damaged_records_with_a_fitting_crc_never_read_outside),
        cmocka_unit_test(fields_that_contradict_each_other_are_refused_with_their_name),
        cmocka_unit_test(keys_that_do_not_ascend_are_refused),
        cmocka_unit_test(any_encoding_and_order_is_read_and_unknown_keys_are_ignored),
        cmocka_unit_test(unknown_kinds_are_read_as_pieces_and_other_versions_refused),
    };
    return cmocka_run_group_tests(tests, NULL, release_all);
}
