/* Every line of tests/golden/malformed.jsonl is refused with its reason, and leaves nothing behind.
 * Each line of the file names the clause of the format that it breaks. */
#include "case.h"

#include <stdlib.h>

#include "base/file.h"
#include "decode/decoder.h"
#include "schema.h"

struct line {
    char name[256], reason[512];
    enum fr_format format;
    struct fr_buffer bytes;
    int64_t timestamp_ms;
    bool strict;
};

static void copy_text(char *out, size_t size, const struct fr_token *token)
{
    assert_true(token->size < size);
    memcpy(out, token->bytes, token->size);
    out[token->size] = '\0';
}

static uint8_t hex_digit(uint8_t c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void read_line(const uint8_t *text, size_t size, struct line *line)
{
    struct fr_buffer scratch = {0};
    struct fr_cursor cursor;
    struct fr_token key, value;
    fr_cursor_init(&cursor, FR_FORMAT_JSON, text, size, &scratch);
    cursor.string_max = 1 << 20;
    line->timestamp_ms = TIMESTAMP_MS;
    line->strict = false;
    fr_buffer_clear(&line->bytes);
    assert_int_equal(fr_cursor_next(&cursor, &key), FR_OK);
    for (;;) {
        char name[32];
        assert_int_equal(fr_cursor_next(&cursor, &key), FR_OK);
        if (key.kind == FR_TOKEN_END)
            break;
        copy_text(name, sizeof(name), &key);
        assert_int_equal(fr_cursor_next(&cursor, &value), FR_OK);
        if (!strcmp(name, "name"))
            copy_text(line->name, sizeof(line->name), &value);
        else if (!strcmp(name, "reason"))
            copy_text(line->reason, sizeof(line->reason), &value);
        else if (!strcmp(name, "format"))
            line->format = value.bytes[0] == 'j' ? FR_FORMAT_JSON : FR_FORMAT_MSGPACK;
        else if (!strcmp(name, "text"))
            fr_buffer_append(&line->bytes, value.bytes, value.size);
        else if (!strcmp(name, "timestamp_ms"))
            line->timestamp_ms = value.i;
        else if (!strcmp(name, "strict"))
            line->strict = value.i != 0;
        else if (!strcmp(name, "hex"))
            for (uint32_t i = 0; i + 1 < value.size; i += 2)
                fr_put_u8(&line->bytes, (uint8_t)(hex_digit(value.bytes[i]) << 4 | hex_digit(value.bytes[i + 1])));
        else
            fail_msg("unknown key %s", name);
    }
    fr_buffer_release(&scratch);
}

/* True when the record is refused as the line says. */
static bool refused_as_expected(const struct line *line)
{
    struct schema schema;
    schema_init(&schema, line->format);
    schema.conf.ingest.strict = line->strict;
    struct fr_decoder *decoder = fr_decoder_new(&schema.conf);
    struct fr_batch *batch = fr_batch_new(&schema.conf);
    struct fr_record record = {line->bytes.data, line->bytes.size, line->timestamp_ms, 0};
    uint32_t n = 77;
    const char *reason = "accepted";
    enum fr_status status = fr_decode_record(decoder, &record, &n, &reason);
    bool expected =
        (status == FR_E_INVALID || status == FR_E_LIMIT) && strstr(reason, line->reason) && strlen(reason) < 512;
    if (!expected)
        print_error("%s (%s): status %d, %s; expected %s\n", line->name,
                    line->format == FR_FORMAT_JSON ? "json" : "msgpack", (int)status, reason, line->reason);
    assert_int_equal(n, 77);
    /* After a refused record the decoder is as good as new: a valid record decodes to exactly its
     * own sample. */
    static const char good_json[] = "{\"f\":{\"user_id\":1},\"y\":{\"click\":1}}";
    static const char good_msgpack[] = "\x82\xa1"
                                       "f\x81\xa7user_id\x01\xa1y\x81\xa5"
                                       "click\x01";
    bool json = line->format == FR_FORMAT_JSON;
    record = (struct fr_record){json ? good_json : good_msgpack,
                                json ? sizeof(good_json) - 1 : sizeof(good_msgpack) - 1, TIMESTAMP_MS, 0};
    assert_int_equal(fr_decode_record(decoder, &record, &n, &reason), FR_OK);
    fr_decode_append(decoder, 0, n, batch);
    assert_int_equal(batch->n_samples, 1);
    assert_int_equal(batch->columns[SLOT_USER_ID].begin[1], 1);
    assert_int_equal(batch->columns[SLOT_ITEM_ID].begin[1], 0);
    assert_int_equal(batch->unknown_slots + batch->unknown_keys + batch->excess_ids, 0);
    fr_batch_free(batch);
    fr_decoder_free(decoder);
    return expected;
}

FR_CASE(every_golden_malformed_record_is_refused_with_its_reason)
{
    struct fr_buffer text = {0};
    assert_int_equal(fr_file_read(FR_SOURCE_DIR "/tests/golden/malformed.jsonl", 1 << 20, &text, NULL), FR_OK);
    struct line line = {.bytes = {0}};
    unsigned n = 0, wrong = 0;
    for (size_t at = 0; at < text.size; n++) {
        const uint8_t *end = memchr(text.data + at, '\n', text.size - at);
        assert_non_null(end);
        read_line(text.data + at, (size_t)(end - text.data) - at, &line);
        wrong += !refused_as_expected(&line);
        at = (size_t)(end - text.data) + 1;
    }
    fr_buffer_release(&line.bytes);
    fr_buffer_release(&text);
    assert_true(n >= 600);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_malformed_record_is_refused_with_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
