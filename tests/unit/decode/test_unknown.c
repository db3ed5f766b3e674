/* What producers change first: labels, weights, scores, fields, slots and indexes that the
 * configuration does not have are passed over and counted by name, in every form and both formats,
 * whatever their values are as long as these are well-formed. The second part has words of
 * producers that the configuration maps: keys that are not names, labels of -1 and 1. */
#include "fixture.h"

#include <math.h>

#include "base/check.h"

/* ---- JSON as MessagePack ---- */

static void put_value(struct fr_cursor *cursor, const struct fr_token *token, struct fr_buffer *out);

static void put_text(struct fr_buffer *out, const struct fr_token *token)
{
    fr_put_u8(out, 0xdb);
    for (int shift = 24; shift >= 0; shift -= 8)
        fr_put_u8(out, (uint8_t)(token->size >> shift));
    fr_buffer_append(out, token->bytes, token->size);
}

static void put_container(struct fr_cursor *cursor, bool map, struct fr_buffer *out)
{
    struct fr_buffer body = {0};
    uint32_t n = 0;
    struct fr_token token;
    for (;; n++) {
        assert_int_equal(fr_cursor_next(cursor, &token), FR_OK);
        if (token.kind == FR_TOKEN_END)
            break;
        put_value(cursor, &token, &body);
    }
    n = map ? n / 2 : n;
    fr_put_u8(out, map ? 0xdf : 0xdd);
    for (int shift = 24; shift >= 0; shift -= 8)
        fr_put_u8(out, (uint8_t)(n >> shift));
    fr_buffer_append(out, body.data, body.size);
    fr_buffer_release(&body);
}

static void put_value(struct fr_cursor *cursor, const struct fr_token *token, struct fr_buffer *out)
{
    uint64_t bits;
    switch (token->kind) {
    case FR_TOKEN_NIL:
        fr_put_u8(out, 0xc0);
        break;
    case FR_TOKEN_BOOL:
        fr_put_u8(out, token->i ? 0xc3 : 0xc2);
        break;
    case FR_TOKEN_STRING:
        put_text(out, token);
        break;
    case FR_TOKEN_MAP:
    case FR_TOKEN_ARRAY:
        put_container(cursor, token->kind == FR_TOKEN_MAP, out);
        break;
    default:
        memcpy(&bits, &token->f, sizeof(bits));
        fr_put_u8(out, token->kind == FR_TOKEN_FLOAT ? 0xcb : token->kind == FR_TOKEN_INT ? 0xd3 : 0xcf);
        for (int shift = 56; shift >= 0; shift -= 8)
            fr_put_u8(out, (uint8_t)(bits >> shift));
    }
}

static void to_msgpack(const char *text, struct fr_buffer *out)
{
    struct fr_buffer scratch = {0};
    struct fr_cursor cursor;
    struct fr_token token;
    fr_cursor_init(&cursor, FR_FORMAT_JSON, text, strlen(text), &scratch);
    cursor.depth_max = FR_PASSED_DEPTH_MAX;
    cursor.string_max = UINT32_MAX;
    assert_int_equal(fr_cursor_next(&cursor, &token), FR_OK);
    fr_buffer_clear(out);
    put_value(&cursor, &token, out);
    fr_buffer_release(&scratch);
}

/* ---- records and what is counted of them ---- */

/* What the decoder has counted so far, as "slots: city 2; keys: y.buy 1". */
static const char *counted(const struct fixture *f)
{
    static char text[2048];
    const struct fr_unknown *unknown = fr_decoder_unknown(f->decoder);
    const struct fr_unknown_names *both[] = {&unknown->slots, &unknown->keys};
    size_t at = 0;
    for (int k = 0; k < 2; k++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s", k ? "; keys:" : "slots:");
        for (uint32_t i = 0; i < both[k]->n; i++)
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %s %llu", both[k]->names[i],
                                   (unsigned long long)both[k]->counts[i]);
        if (both[k]->counts[FR_UNKNOWN_OTHERS])
            at += (size_t)snprintf(text + at, sizeof(text) - at, " others %llu",
                                   (unsigned long long)both[k]->counts[FR_UNKNOWN_OTHERS]);
    }
    return text;
}

/* Decodes the record in both formats, and expects these counts, which must agree with those of the
 * batch. */
static void counts(struct fixture *f, const char *text, const char *expected)
{
    struct fr_buffer bytes = {0};
    for (int format = FR_FORMAT_MSGPACK; format <= FR_FORMAT_JSON; format++) {
        uint32_t n = 0;
        f->schema.conf.ingest.format = format;
        fixture_renew(f);
        fr_buffer_clear(&bytes);
        if (format == FR_FORMAT_JSON)
            fr_buffer_append(&bytes, text, strlen(text));
        else
            to_msgpack(text, &bytes);
        if (decode_bytes(f, bytes.data, bytes.size, &n) != FR_OK)
            fail_msg("%.300s\n%s", text, f->reason);
        if (strcmp(counted(f), expected) != 0)
            fail_msg("%.300s\n%s; expected %s", text, counted(f), expected);
        fr_decode_append(f->decoder, 0, n, f->batch);
        const struct fr_unknown *unknown = fr_decoder_unknown(f->decoder);
        uint64_t slots = 0, keys = 0;
        for (uint32_t i = 0; i < FR_UNKNOWN_PLACES; i++) {
            slots += unknown->slots.counts[i];
            keys += unknown->keys.counts[i];
        }
        assert_int_equal(f->batch->unknown_slots, slots);
        assert_int_equal(f->batch->unknown_keys, keys);
    }
    fr_buffer_release(&bytes);
}

FR_CASE(names_that_the_configuration_lacks_are_ignored_and_counted_in_every_form)
{
    struct fixture *f = *state;
    counts(f,
           "{\"request\":1,\"f\":{\"user_id\":1,\"city\":5},\"y\":{\"click\":1,\"like\":0,\"share\":null},\"x_a\":1}",
           "slots: city 1; keys: request 1 y.like 1 y.share 1");
    counts(f, "{\"f\":{},\"y\":{},\"w\":{\"like\":\"much\",\"buy\":2},\"p\":{\"like_rate\":[0.5],\"click_rate\":0.5}}",
           "slots:; keys: w.like 1 p.like_rate 1");
    counts(f, "[{\"f\":{\"city\":1},\"y\":{\"like\":1}},{\"f\":{\"city\":1},\"y\":{\"like\":1},\"a\":{}}]",
           "slots: city 2; keys: y.like 2 a 1");
    counts(f,
           "{\"trace\":1,\"shared\":{\"city\":1,\"user_id\":2},\"items\":[{\"f\":{},\"y\":{\"like\":1},\"rank\":3},"
           "{\"f\":{\"zone\":1},\"y\":{\"like\":1},\"rank\":4}]}",
           "slots: city 1 zone 1; keys: trace 1 y.like 2 rank 2");
    counts(f,
           "{\"trace\":1,\"y\":{\"like\":[1],\"click\":[1,0,1]},\"n\":3,\"cols\":{\"city\":[7],\"user_id\":[1,2,3]},"
           "\"w\":[1,{\"like\":9},1],\"g\":[2,1],\"shared\":{\"zone\":{},\"context\":[1,2]}}",
           "slots: city 3 zone 2; keys: trace 1 y.like 3 w.like 1");
    assert_true(isnan(label_at(f, LABEL_BUY, 0)) && label_at(f, LABEL_CLICK, 0) == 1.0f);
}

FR_CASE(what_nobody_reads_may_be_long_deep_and_huge)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.record_max = 1 << 20;
    struct fr_buffer value = {0}, text = {0};
    static const char *const places[][2] = {{"{\"f\":{\"page\":", "},\"y\":{}}"},
                                            {"{\"f\":{},\"y\":{\"page\":", "}}"},
                                            {"{\"f\":{},\"y\":{},\"page\":", "}"},
                                            {"{\"f\":{},\"y\":{},\"id\":", "}"},
                                            {"{\"n\":1,\"cols\":{\"page\":", "},\"y\":{}}"},
                                            {"{\"shared\":{\"page\":", "},\"items\":[{\"f\":{},\"y\":{}}]}"}};
    static const char *const seen[] = {"slots: page 1; keys:", "slots:; keys: y.page 1", "slots:; keys: page 1",
                                       "slots:; keys:",        "slots: page 1; keys:",   "slots: page 1; keys:"};
    for (int kind = 0; kind < 2; kind++) {
        fr_buffer_clear(&value);
        fr_buffer_printf(&value, kind ? "\"" : "");
        for (int i = 0; i < (kind ? 200000 : 60); i++)
            fr_put_u8(&value, kind ? 'x' : '[');
        for (int i = 0; i < 60 && !kind; i++)
            fr_put_u8(&value, ']');
        fr_buffer_printf(&value, kind ? "\"" : "");
        fr_buffer_terminate(&value);
        for (size_t i = 0; i < FR_ARRAY_LEN(places); i++) {
            fr_buffer_clear(&text);
            fr_buffer_printf(&text, "%s%s%s", places[i][0], (const char *)value.data, places[i][1]);
            fr_buffer_terminate(&text);
            counts(f, (const char *)text.data, seen[i]);
        }
    }
    f->schema.conf.ingest.format = FR_FORMAT_JSON;
    fixture_renew(f);
    accept_json(f, "{\"f\":{\"city\":1e400,\"user_id\":1},\"y\":{\"like\":-1e999}}");
    refuse_json(f, "{\"f\":{\"city\":1e,\"user_id\":1},\"y\":{}}", "$.f: not a JSON number");
    refuse_json(f, "{\"f\":{\"city\":[1,},\"user_id\":1},\"y\":{}}", "$.f: not a JSON value");
    fr_buffer_release(&value);
    fr_buffer_release(&text);
}

FR_CASE(a_label_of_the_model_is_read_beside_unknown_ones)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{},\"y\":{\"like\":1}}");
    assert_int_equal(f->batch->role[0], FR_ROLE_MASKED);
    accept_json(f, "{\"f\":{},\"y\":{\"like\":1,\"click\":0,\"share\":2},\"w\":{\"like\":-7,\"click\":2}}");
    assert_true(label_at(f, LABEL_CLICK, 1) == 0.0f && weight_at(f, LABEL_CLICK, 1) == 2.0f);
    refuse_json(f, "{\"f\":{},\"y\":{\"bought\":1}}", "$.y: \"bought\" is derived, not given");
    refuse_json(f, "{\"fs\":{\"user_id\":1},\"y\":{\"click\":1}}", "$: f is missing");
    refuse_json(f, "{\"f\":{},\"Y\":{\"click\":1}}", "$: y is missing");
}

FR_CASE(a_malformed_record_counts_nothing_and_names_are_few)
{
    struct fixture *f = *state;
    refuse_json(f, "{\"f\":{\"city\":1},\"request\":1,\"y\":{\"click\":7}}", "is not in [0,1]");
    assert_string_equal(counted(f), "slots: city 0; keys: request 0");
    accept_json(f,
                "{\"a1\":0,\"a2\":0,\"a3\":0,\"a4\":0,\"a5\":0,\"a6\":0,\"a7\":0,\"a8\":0,\"a9\":0,\"f\":{},\"y\":{}}");
    accept_json(f, "{\"a9\":0,\"f\":{},\"y\":{}}");
    assert_string_equal(counted(f), "slots: city 0; keys: request 0 a1 1 a2 1 a3 1 a4 1 a5 1 a6 1 a7 1 others 3");
}

FR_CASE(an_index_that_no_slot_declares_is_an_unknown_slot)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.format = FR_FORMAT_MSGPACK;
    fixture_renew(f);
    static const char record[] = "\x82\xa1"
                                 "f\x83\x08\x01\x07\x05\xa1"
                                 "8\x02\xa1y\x80";
    uint32_t n;
    assert_int_equal(decode_bytes(f, record, sizeof(record) - 1, &n), FR_OK);
    fr_decode_append(f->decoder, 0, n, f->batch);
    assert_int_equal(n_ids(f, SLOT_CONTEXT, 0), 1);
    assert_string_equal(counted(f), "slots: 8 2; keys:");
}

FR_CASE(a_served_score_out_of_range_costs_the_score_only)
{
    struct fixture *f = *state;
    counts(f, "{\"f\":{},\"y\":{\"click\":1},\"p\":{\"click_rate\":1e30,\"buy_rate\":0.5}}",
           "slots:; keys: p.click_rate 1");
    assert_true(isnan(served_at(f, 0, 0)) && served_at(f, 1, 0) == 0.5f);
    f->schema.tasks[0].loss = FR_LOSS_MSE;
    counts(f, "{\"f\":{},\"y\":{\"click\":1},\"p\":{\"click_rate\":-1e14,\"buy_rate\":-0.5}}",
           "slots:; keys: p.buy_rate 1");
    counts(f, "{\"f\":{},\"y\":{\"click\":1},\"p\":{\"click_rate\":1e16}}", "slots:; keys: p.click_rate 1");
}

/* ---- words of others ---- */

FR_CASE(a_slot_and_a_label_go_by_the_keys_that_the_configuration_says)
{
    struct fixture *f = *state;
    static char user[] = "user.id", click[] = "is clicked?",
                item[] = "a key that is longer than sixty-three bytes, which is the most of a name, and has blanks";
    f->schema.slots[SLOT_USER_ID].key = user;
    f->schema.slots[SLOT_ITEM_ID].key = item;
    f->schema.labels[LABEL_CLICK].key = click;
    for (int turn = 0; turn < 3; turn++) { /* first found by hash, then expected */
        counts(
            f,
            "[{\"f\":{\"user.id\":1,\"a key that is longer than sixty-three bytes, which is the most of a name, and has blanks\":\"a\"},"
            "\"y\":{\"is clicked?\":1},\"w\":{\"is clicked?\":3}},"
            "{\"f\":{\"user.id\":2,\"a key that is longer than sixty-three bytes, which is the most of a name, and has blanks\":\"b\",\"user_id\":3},"
            "\"y\":{\"click\":1}}]",
            "slots: user_id 1; keys: y.click 1");
        assert_int_equal(key_at(f, SLOT_USER_ID, 0, 0), integer_key(f, SLOT_USER_ID, 1));
        assert_int_equal(key_at(f, SLOT_USER_ID, 1, 0), integer_key(f, SLOT_USER_ID, 2));
        assert_int_equal(n_ids(f, SLOT_ITEM_ID, 1), 1);
        assert_true(label_at(f, LABEL_CLICK, 0) == 1.0f && weight_at(f, LABEL_CLICK, 0) == 3.0f);
        assert_int_equal(f->batch->role[1], FR_ROLE_MASKED);
    }
    refuse_json(f, "{\"f\":{\"user.id\":true},\"y\":{}}", "$.f.user_id: a boolean is no id");
}

FR_CASE(labels_of_minus_one_and_one_are_mapped_where_the_configuration_says_so)
{
    struct fixture *f = *state;
    refuse_json(f, "{\"f\":{},\"y\":{\"click\":-1}}", "map them to 0 and 1 with labels.click.negative: -1");
    assert_int_equal(fr_decoder_malformed(f->decoder), FR_MALFORMED_SIGNED);
    refuse_json(f, "{\"f\":{},\"y\":{\"click\":-1.5}}", "label -1.5 is not in [0,1]");
    assert_int_equal(fr_decoder_malformed(f->decoder), FR_MALFORMED_LABELS);
    f->schema.labels[LABEL_CLICK].has_negative = true;
    f->schema.labels[LABEL_CLICK].negative = -1.0f;
    counts(
        f,
        "[{\"f\":{},\"y\":{\"click\":-1}},{\"f\":{},\"y\":{\"click\":-1.0}},{\"f\":{},\"y\":[1]},{\"f\":{},\"y\":[0]}]",
        "slots:; keys:");
    const float expected[] = {0, 0, 1, 0};
    for (uint32_t i = 0; i < 4; i++)
        assert_true(label_at(f, LABEL_CLICK, i) == expected[i]);
    counts(f, "{\"n\":2,\"cols\":{},\"y\":{\"click\":[-1,1]}}", "slots:; keys:");
    refuse_json(f, "{\"f\":{},\"y\":{\"click\":-2}}", "label -2 is not in [0,1]");
}

FR_CASE(a_byte_order_mark_before_json_is_passed_over)
{
    struct fixture *f = *state;
    accept_json(f, "\xef\xbb\xbf{\"f\":{\"user_id\":1},\"y\":{}}");
    accept_json(f, "\xef\xbb\xbf {\"shared\":{},\"items\":[{\"f\":{\"user_id\":1},\"y\":{}}]}");
    assert_int_equal(f->batch->n_samples, 2);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(names_that_the_configuration_lacks_are_ignored_and_counted_in_every_form),
        CASE(what_nobody_reads_may_be_long_deep_and_huge),
        CASE(a_label_of_the_model_is_read_beside_unknown_ones),
        CASE(a_malformed_record_counts_nothing_and_names_are_few),
        CASE(an_index_that_no_slot_declares_is_an_unknown_slot),
        CASE(a_served_score_out_of_range_costs_the_score_only),
        CASE(a_slot_and_a_label_go_by_the_keys_that_the_configuration_says),
        CASE(labels_of_minus_one_and_one_are_mapped_where_the_configuration_says_so),
        CASE(a_byte_order_mark_before_json_is_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
