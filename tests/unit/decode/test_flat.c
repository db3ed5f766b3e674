/* Flat records (ingest.envelope): slots, labels and the event time as keys of one object or at
 * paths in it. */
#include "fixture.h"

#include <math.h>

#include "base/check.h"

static char user_key[] = "user.id", click_key[] = "clicked", time_key[] = "ts", features[] = "features";

static int flat_setup(void **state)
{
    fixture_setup(state);
    struct fixture *f = *state;
    f->schema.conf.ingest.envelope = true;
    f->schema.conf.ingest.envelope_t = time_key;
    f->schema.slots[SLOT_USER_ID].key = user_key;
    f->schema.labels[LABEL_CLICK].key = click_key;
    fixture_renew(f);
    return 0;
}

static int64_t time_at(const struct fixture *f, uint32_t sample)
{
    return f->batch->t_ms[sample];
}

/* What the decoder has counted so far. */
static void assert_counted(const struct fixture *f, int slots, const char *name, uint64_t count)
{
    const struct fr_unknown *unknown = fr_decoder_unknown(f->decoder);
    const struct fr_unknown_names *names = slots ? &unknown->slots : &unknown->keys;
    for (uint32_t i = 0; i < names->n; i++) {
        if (strcmp(names->names[i], name) == 0) {
            assert_int_equal(names->counts[i], count);
            return;
        }
    }
    fail_msg("%s is not counted", name);
}

FR_CASE(a_flat_record_is_the_sample_that_an_adapter_would_make_of_it)
{
    struct fixture *f = *state, *plain = NULL;
    fixture_setup((void **)&plain);
    assert_int_equal(accept_json(f, "{\"ts\":1700000000,\"user\":{\"id\":5,\"age\":30},\"clicked\":true,\"buy\":0,"
                                    "\"item_id\":\"sku-7\",\"history\":[1,\"b\"],\"price\":12.5,\"vec\":[1,2,3],"
                                    "\"context\":{\"i\":[1,2],\"w\":[0.5,2]}}"),
                     1);
    accept_json(plain,
                "{\"t\":1700000000000,\"y\":{\"click\":1,\"buy\":0},\"f\":{\"user_id\":5,\"item_id\":\"sku-7\","
                "\"history\":[1,\"b\"],\"price\":12.5,\"vec\":[1,2,3],\"context\":{\"i\":[1,2],\"w\":[0.5,2]}}}");
    assert_int_equal(time_at(f, 0), time_at(plain, 0));
    for (int l = 0; l < N_LABELS; l++)
        assert_true(label_at(f, l, 0) == label_at(plain, l, 0));
    for (int s = 0; s < N_SLOTS; s++) {
        const struct fr_column *a = &f->batch->columns[s], *b = &plain->batch->columns[s];
        if (s == SLOT_PRICE || s == SLOT_VEC) {
            assert_memory_equal(a->dense, b->dense, f->schema.slots[s].dim * sizeof(float));
            continue;
        }
        assert_int_equal(n_ids(f, s, 0), n_ids(plain, s, 0));
        assert_memory_equal(a->keys, b->keys, n_ids(f, s, 0) * sizeof(uint64_t));
    }
    assert_counted(f, 1, "user.age", 1);
    fixture_teardown((void **)&plain);
}

FR_CASE(the_event_time_is_in_seconds_or_milliseconds_or_that_of_the_message)
{
    struct fixture *f = *state;
    static const struct {
        const char *value;
        int64_t t_ms;
    } times[] = {{"1699999999", 1699999999000},
                 {"1699999999000", 1699999999000},
                 {"1699999999.25", 1699999999250},
                 {"1.699999999e12", 1699999999000},
                 {"null", TIMESTAMP_MS}};
    char text[128];
    for (uint32_t i = 0; i < FR_ARRAY_LEN(times); i++) {
        snprintf(text, sizeof(text), "{\"user\":{\"id\":1},\"ts\":%s,\"clicked\":1}", times[i].value);
        accept_json(f, text);
        assert_int_equal(time_at(f, i), times[i].t_ms);
    }
    accept_json(f, "{\"user\":{\"id\":1},\"clicked\":1}");
    assert_int_equal(time_at(f, 5), TIMESTAMP_MS);
    refuse_json(f, "{\"ts\":\"2026-01-02\"}", "$.t: a string where a Unix time in seconds or milliseconds");
    refuse_json(f, "{\"ts\":86400}", "$.t: 86400 is no Unix time in seconds or milliseconds later than March 1973");
    refuse_json(f, "{\"ts\":0}", "$.t: event time is not above 0");
    refuse_json(f, "{\"ts\":-1e300}", "$.t: event time is not above 0");
    refuse_json(f, "{\"ts\":1e300}", "$.t: the number is no Unix time");
    refuse_json(f, "{\"ts\":1700000000000000}", "$.t: 1700000000000000 is micro- or nanoseconds");
    refuse_json(f, "{\"ts\":99999999999}", "$.t: event time is");
    assert_int_equal(fr_decoder_malformed(f->decoder), FR_MALFORMED_TIME);
    refuse_json(f, "{\"ts\":1700000000,\"ts\":1700000000}", "$.t: duplicate key");
}

FR_CASE(booleans_are_0_and_1_and_nulls_are_absent)
{
    struct fixture *f = *state;
    accept_json(f, "{\"user\":{\"id\":true},\"item_id\":null,\"price\":false,\"clicked\":false}");
    assert_int_equal(n_ids(f, SLOT_USER_ID, 0), 1);
    assert_true(key_at(f, SLOT_USER_ID, 0, 0) == integer_key(f, SLOT_USER_ID, 1));
    assert_int_equal(n_ids(f, SLOT_ITEM_ID, 0), 0);
    assert_true(f->batch->columns[SLOT_PRICE].dense[0] == 0.0f && label_at(f, LABEL_CLICK, 0) == 0.0f);
    refuse_json(f, "{\"clicked\":1,\"vec\":[1,null,3]}", "$.f.vec[1]: nil");
    assert_int_equal(fr_decoder_malformed(f->decoder), FR_MALFORMED_SLOTS);
    refuse_json(f, "{\"clicked\":\"yes\"}", "$.y.click: a string where a label was expected");
    assert_int_equal(fr_decoder_malformed(f->decoder), FR_MALFORMED_LABELS);
    refuse_json(f, "{\"clicked\":2}", "$.y.click: label 2 is not in [0,1]");
}

FR_CASE(a_record_without_labels_is_masked)
{
    struct fixture *f = *state;
    accept_json(f, "{\"user\":{\"id\":1},\"clicked\":null}");
    accept_json(f, "{\"user\":{\"id\":1}}");
    accept_json(f, "{}");
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(f->batch->role[i], FR_ROLE_MASKED);
    assert_true(isnan(label_at(f, LABEL_CLICK, 1)));
}

FR_CASE(names_that_nobody_reads_are_counted_as_slots)
{
    struct fixture *f = *state;
    accept_json(f, "{\"city\":{\"a\":[[[[[[[[[[[[1]]]]]]]]]]]]},\"clicked\":1,\"user\":{\"id\":1,\"zone\":\"x\"},"
                   "\"user_id\":7,\"f\":{},\"y\":2}");
    assert_counted(f, 1, "city", 1);
    assert_counted(f, 1, "user.zone", 1);
    assert_counted(f, 1, "user_id", 1);
    assert_counted(f, 1, "f", 1);
    f->schema.conf.ingest.strict = true;
    refuse_json(f, "{\"user\":{\"zone\":1}}", "unknown slot \"user.zone\" (ingest.strict)");
}

FR_CASE(a_path_may_be_written_with_dots_and_stands_once)
{
    struct fixture *f = *state;
    accept_json(f, "{\"user.id\":4,\"clicked\":1}");
    assert_true(key_at(f, SLOT_USER_ID, 0, 0) == integer_key(f, SLOT_USER_ID, 4));
    refuse_json(f, "{\"user.id\":4,\"user\":{\"id\":4}}", "$.f.user_id: duplicate slot");
    refuse_json(f, "{\"user\":{\"id\":4,\"id\":4}}", "$.f.user_id: duplicate slot");
    refuse_json(f, "{\"user\":{},\"user\":{\"id\":4}}", "duplicate key \"user\"");
    refuse_json(f, "{\"clicked\":1,\"clicked\":1}", "$.y.click: duplicate key");
    refuse_json(f, "{\"city\":1,\"city\":1}", "duplicate key \"city\"");
    refuse_json(f, "{\"user\":5}", "$: an integer at \"user\", where paths of the configuration expect an object");
    refuse_json(f, "{\"pair\":1}", "\"pair\" is computed");
    accept_json(f, "{\"user\":null,\"clicked\":1}");
    assert_int_equal(n_ids(f, SLOT_USER_ID, 1), 0);
    /* A key and a value that are both unescaped use the same memory one after the other. */
    char text[256];
    fixture_renew(f);
    snprintf(text, sizeof(text), "{\"us\\u0065r\":\"\\n%0100d\"}", 7);
    refuse_json(f, text, "$: a string at \"user\", where paths of the configuration expect an object");
}

FR_CASE(slots_may_be_the_keys_of_one_object)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.envelope_f = features;
    fixture_renew(f);
    accept_json(
        f, "{\"clicked\":1,\"item_id\":9,\"features\":{\"item_id\":3,\"user\":{\"id\":5},\"city\":1},\"trace\":\"x\"}");
    assert_int_equal(n_ids(f, SLOT_ITEM_ID, 0), 1);
    assert_true(key_at(f, SLOT_ITEM_ID, 0, 0) == fr_key_integer(3, f->schema.slots[SLOT_ITEM_ID].seed));
    assert_true(key_at(f, SLOT_USER_ID, 0, 0) == integer_key(f, SLOT_USER_ID, 5));
    assert_counted(f, 1, "city", 1);
    assert_counted(f, 0, "item_id", 1);
    assert_counted(f, 0, "trace", 1);
    refuse_json(f, "{\"clicked\":1}", "the object that ingest.envelope.f names is missing");
    refuse_json(f, "{\"features\":null,\"clicked\":1}", "where paths of the configuration expect an object");
    f->schema.conf.ingest.strict = true;
    refuse_json(f, "{\"features\":{},\"trace\":1}", "unknown key \"trace\" (ingest.strict)");
    accept_json(f, "{\"features\":{},\"x_trace\":1,\"clicked\":0}");
}

FR_CASE(a_long_name_is_passed_over_and_deep_paths_end)
{
    struct fixture *f = *state;
    static char deep_key[] = "a.b.c.d.e.f.g.h.i.j";
    char text[2048];
    snprintf(text, sizeof(text), "{\"user\":{\"%0600d\":1,\"id\":2},\"clicked\":1}", 7);
    accept_json(f, text);
    assert_true(key_at(f, SLOT_USER_ID, 0, 0) == integer_key(f, SLOT_USER_ID, 2));
    /* The same name in two objects is two names. */
    snprintf(text, sizeof(text), "{\"user\":{\"%0255d\":1,\"id\":2},\"%0255d\":1,\"clicked\":1}", 7, 7);
    accept_json(f, text);
    snprintf(text, sizeof(text), "{\"user\":{\"%0600d\":1,\"id\":2},\"%0600d\":1,\"clicked\":1}", 7, 7);
    accept_json(f, text);
    f->schema.slots[SLOT_USER_ID].key = deep_key;
    fixture_renew(f);
    accept_json(f, "{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":{\"f\":{\"g\":{}}}}}}},\"clicked\":1}");
    refuse_json(f, "{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":{\"f\":{\"g\":{\"h\":{\"i\":{\"j\":1}}}}}}}}},\"clicked\":1}",
                "nested");
    assert_int_equal(fr_decoder_malformed(f->decoder), FR_MALFORMED_LIMIT);
}

FR_CASE(flat_records_come_in_arrays_and_in_msgpack_too)
{
    struct fixture *f = *state;
    static const uint8_t packed[] = {0x82, 0xa4, 'u', 's', 'e', 'r', 0x81, 0xa2, 'i', 'd',
                                     0x07, 0xa7, 'c', 'l', 'i', 'c', 'k',  'e',  'd', 0xc3};
    assert_int_equal(accept_json(f, "[{\"clicked\":1,\"user\":{\"id\":1}},{\"clicked\":0,\"user\":{\"id\":2}}]"), 2);
    assert_true(key_at(f, SLOT_USER_ID, 1, 0) == integer_key(f, SLOT_USER_ID, 2));
    refuse_json(f, "[{\"clicked\":1},{\"clicked\":7}]", "$[1].y.click: label 7");
    f->schema.conf.ingest.format = FR_FORMAT_MSGPACK;
    fixture_renew(f);
    uint32_t n = 0;
    assert_int_equal(decode_bytes(f, packed, sizeof(packed), &n), FR_OK);
    fr_decode_append(f->decoder, 0, n, f->batch);
    assert_true(key_at(f, SLOT_USER_ID, 0, 0) == integer_key(f, SLOT_USER_ID, 7));
    assert_true(label_at(f, LABEL_CLICK, 0) == 1.0f);
    static const uint8_t numbered[] = {0x81, 0x07, 0x01};
    assert_int_not_equal(decode_bytes(f, numbered, sizeof(numbered), &n), FR_OK);
    assert_non_null(strstr(f->reason, "an integer as a key"));
}

FR_CASE(a_record_to_be_scored_has_the_form_of_a_sample)
{
    struct fixture *f = *state;
    fr_decoder_free(f->decoder);
    f->decoder = fr_decoder_new_scoring(&f->schema.conf, FR_FORMAT_JSON);
    accept_json(f, "{\"f\":{\"user.id\":3}}");
    assert_true(key_at(f, SLOT_USER_ID, 0, 0) == integer_key(f, SLOT_USER_ID, 3));
}

#define FLAT_CASE(name) cmocka_unit_test_setup_teardown(name, flat_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FLAT_CASE(a_flat_record_is_the_sample_that_an_adapter_would_make_of_it),
        FLAT_CASE(the_event_time_is_in_seconds_or_milliseconds_or_that_of_the_message),
        FLAT_CASE(booleans_are_0_and_1_and_nulls_are_absent),
        FLAT_CASE(a_record_without_labels_is_masked),
        FLAT_CASE(names_that_nobody_reads_are_counted_as_slots),
        FLAT_CASE(a_path_may_be_written_with_dots_and_stands_once),
        FLAT_CASE(slots_may_be_the_keys_of_one_object),
        FLAT_CASE(a_long_name_is_passed_over_and_deep_paths_end),
        FLAT_CASE(flat_records_come_in_arrays_and_in_msgpack_too),
        FLAT_CASE(a_record_to_be_scored_has_the_form_of_a_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
