/* What a valid sample means (docs/formats/samples.md, "The four forms"): values, labels, fields,
 * defaults, limits that cut instead of refusing. */
#include "fixture.h"

#include <math.h>

#include "base/math.h"

FR_CASE(a_sparse_value_is_nil_an_id_an_array_or_weighted_ids)
{
    struct fixture *f = *state;
    accept_json(
        f, "[{\"f\":{\"user_id\":null},\"y\":{}},{\"f\":{\"user_id\":5},\"y\":{}},{\"f\":{\"user_id\":[5,2]},\"y\":{}},"
           "{\"f\":{\"user_id\":{\"i\":[7,8],\"w\":[0.5,-2]}},\"y\":{}},{\"f\":{\"user_id\":[]},\"y\":{}}]");
    assert_int_equal(n_ids(f, SLOT_USER_ID, 0), 0);
    assert_int_equal(n_ids(f, SLOT_USER_ID, 1), 1);
    assert_int_equal(n_ids(f, SLOT_USER_ID, 2), 2);
    assert_int_equal(n_ids(f, SLOT_USER_ID, 3), 2);
    assert_int_equal(n_ids(f, SLOT_USER_ID, 4), 0);
    assert_int_equal(key_at(f, SLOT_USER_ID, 2, 0), integer_key(f, SLOT_USER_ID, 5));
    assert_int_equal(key_at(f, SLOT_USER_ID, 2, 1), integer_key(f, SLOT_USER_ID, 2));
    const float *weights = f->batch->columns[SLOT_USER_ID].weights;
    assert_non_null(weights);
    assert_true(weights[0] == 1.0f && weights[2] == 1.0f && weights[3] == 0.5f && weights[4] == -2.0f);
    assert_null(f->batch->columns[SLOT_ITEM_ID].weights);
}

FR_CASE(repeated_ids_count_each_time)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{\"user_id\":[5,5,\"5\",5.0]},\"y\":{}}");
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(key_at(f, SLOT_USER_ID, 0, i), integer_key(f, SLOT_USER_ID, 5));
}

FR_CASE(weights_may_come_before_their_ids)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{\"history\":{\"w\":[1,2,3],\"i\":[4,5,6]}},\"y\":{}}");
    assert_int_equal(key_at(f, SLOT_HISTORY, 0, 2), integer_key(f, SLOT_HISTORY, 6));
    assert_true(f->batch->columns[SLOT_HISTORY].weights[2] == 3.0f);
}

FR_CASE(over_max_ids_the_last_are_kept_and_the_excess_counted)
{
    struct fixture *f = *state;
    accept_json(f, "[{\"f\":{\"context\":[1,2,3,4,5,6]},\"y\":{}},{\"f\":{\"context\":[1,2,3,4]},\"y\":{}},"
                   "{\"f\":{\"context\":{\"i\":[1,2,3,4,5],\"w\":[10,20,30,40,50]}},\"y\":{}}]");
    assert_int_equal(n_ids(f, SLOT_CONTEXT, 0), 4);
    assert_int_equal(key_at(f, SLOT_CONTEXT, 0, 0), integer_key(f, SLOT_CONTEXT, 3));
    assert_int_equal(key_at(f, SLOT_CONTEXT, 0, 3), integer_key(f, SLOT_CONTEXT, 6));
    assert_int_equal(n_ids(f, SLOT_CONTEXT, 1), 4);
    assert_true(f->batch->columns[SLOT_CONTEXT].weights[8] == 20.0f);
    assert_int_equal(f->batch->excess_ids, 3);
}

FR_CASE(a_sequence_keeps_its_newest_max_len_and_counts_no_excess)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{\"history\":[1,2,3,4,5,6,7]},\"y\":{}}");
    assert_int_equal(n_ids(f, SLOT_HISTORY, 0), 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(key_at(f, SLOT_HISTORY, 0, i), integer_key(f, SLOT_HISTORY, 3 + i));
    assert_int_equal(f->batch->excess_ids, 0);
}

FR_CASE(raw_ids_tell_a_string_from_its_integer)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{\"item_id\":[\"5\",5],\"history\":[\"5\",5]},\"y\":{}}");
    assert_int_not_equal(key_at(f, SLOT_ITEM_ID, 0, 0), key_at(f, SLOT_ITEM_ID, 0, 1));
    assert_int_equal(key_at(f, SLOT_HISTORY, 0, 0), key_at(f, SLOT_HISTORY, 0, 1));
    /* one namespace */
    assert_int_equal(key_at(f, SLOT_ITEM_ID, 0, 1), key_at(f, SLOT_HISTORY, 0, 1));
}

FR_CASE(dense_values_are_transformed_and_defaults_too)
{
    struct fixture *f = *state;
    accept_json(f,
                "[{\"f\":{\"price\":3,\"vec\":[1,-2.5,1e-3]},\"y\":{}},{\"f\":{\"price\":[3],\"vec\":null},\"y\":{}},"
                "{\"f\":{},\"y\":{}},{\"f\":{\"price\":-0.5},\"y\":{}}]");
    const float *price = f->batch->columns[SLOT_PRICE].dense, *vec = f->batch->columns[SLOT_VEC].dense;
    assert_true(price[0] == fr_log1pf(3.0f) && price[1] == price[0] && price[2] == 0.0f &&
                price[3] == fr_log1pf(-0.5f));
    assert_true(vec[0] == 1.0f && vec[1] == -2.5f && vec[2] == 1e-3f);
    for (int i = 3; i < 12; i++)
        assert_true(vec[i] == 0.5f);
}

FR_CASE(a_default_is_transformed)
{
    struct fixture *f = *state;
    f->schema.slots[SLOT_PRICE].default_value = 7.0f;
    fixture_renew(f);
    accept_json(f, "{\"f\":{},\"y\":{}}");
    assert_true(f->batch->columns[SLOT_PRICE].dense[0] == fr_log1pf(7.0f));
}

FR_CASE(a_default_without_image_makes_the_slot_required)
{
    struct fixture *f = *state;
    f->schema.slots[SLOT_PRICE].default_value = -1.0f;
    fixture_renew(f);
    accept_json(f, "{\"f\":{\"price\":1},\"y\":{}}");
    refuse_json(f, "{\"f\":{},\"y\":{}}", "$.f.price: absent, and the slot's default has no log1p");
    refuse_json(f, "[{\"f\":{\"price\":null},\"y\":{}}]", "$[0].f.price: nil, and the slot's default has no log1p");
}

FR_CASE(labels_are_a_map_or_an_array_and_nil_masks)
{
    struct fixture *f = *state;
    accept_json(
        f, "[{\"f\":{},\"y\":{\"buy\":1,\"click\":0.25}},{\"f\":{},\"y\":{\"click\":null}},{\"f\":{},\"y\":[true]},"
           "{\"f\":{},\"y\":[null,false]},{\"f\":{},\"y\":[]},{\"f\":{},\"y\":null}]");
    assert_true(label_at(f, LABEL_CLICK, 0) == 0.25f && label_at(f, LABEL_BUY, 0) == 1.0f);
    assert_true(isnan(label_at(f, LABEL_CLICK, 1)) && isnan(label_at(f, LABEL_BUY, 1)));
    assert_true(label_at(f, LABEL_CLICK, 2) == 1.0f && isnan(label_at(f, LABEL_BUY, 2)));
    assert_true(isnan(label_at(f, LABEL_CLICK, 3)) && label_at(f, LABEL_BUY, 3) == 0.0f);
    const uint8_t roles[] = {FR_ROLE_TRAIN, FR_ROLE_MASKED, FR_ROLE_TRAIN,
                             FR_ROLE_TRAIN, FR_ROLE_MASKED, FR_ROLE_MASKED};
    assert_memory_equal(f->batch->role, roles, sizeof(roles));
}

FR_CASE(a_bare_label_serves_a_config_with_one_label)
{
    struct fixture *f = *state;
    /* click */
    f->schema.conf.n_labels = f->schema.conf.n_sample_labels = f->schema.conf.n_tasks = 1;
    fixture_renew(f);
    accept_json(f, "[{\"f\":{},\"y\":1},{\"f\":{},\"y\":false},{\"f\":{},\"y\":[0.5]}]");
    assert_true(label_at(f, 0, 0) == 1.0f && label_at(f, 0, 1) == 0.0f && label_at(f, 0, 2) == 0.5f);
}

FR_CASE(a_label_no_task_uses_is_any_number_and_does_not_train)
{
    struct fixture *f = *state;
    f->schema.conf.n_tasks = 1; /* click only */
    fixture_renew(f);
    accept_json(f, "[{\"f\":{},\"y\":{\"buy\":-17.5}},{\"f\":{},\"y\":{\"buy\":2,\"click\":1}}]");
    assert_true(label_at(f, LABEL_BUY, 0) == -17.5f);
    assert_int_equal(f->batch->role[0], FR_ROLE_MASKED);
    assert_int_equal(f->batch->role[1], FR_ROLE_TRAIN);
}

FR_CASE(use_decides_the_role_of_a_labelled_sample)
{
    struct fixture *f = *state;
    accept_json(
        f,
        "[{\"f\":{},\"y\":[1]},{\"f\":{},\"y\":[1],\"u\":1},{\"f\":{},\"y\":[1],\"u\":2},{\"f\":{},\"y\":[1],\"u\":3},"
        "{\"f\":{},\"y\":[],\"u\":2}]");
    const uint8_t roles[] = {FR_ROLE_TRAIN, FR_ROLE_TRAIN, FR_ROLE_METRICS_ONLY, FR_ROLE_TRAIN, FR_ROLE_MASKED};
    const uint8_t use[] = {3, 1, 2, 3, 2};
    assert_memory_equal(f->batch->role, roles, sizeof(roles));
    assert_memory_equal(f->batch->use, use, sizeof(use));
}

FR_CASE(weights_are_one_for_all_labels_or_one_each)
{
    struct fixture *f = *state;
    accept_json(f, "[{\"f\":{},\"y\":{}},{\"f\":{},\"y\":{},\"w\":2.5},{\"w\":{\"buy\":0},\"f\":{},\"y\":{}},{\"f\":{},"
                   "\"y\":{},\"w\":{}}]");
    assert_true(weight_at(f, LABEL_CLICK, 0) == 1.0f && weight_at(f, LABEL_BUY, 0) == 1.0f);
    assert_true(weight_at(f, LABEL_CLICK, 1) == 2.5f && weight_at(f, LABEL_BUY, 1) == 2.5f);
    assert_true(weight_at(f, LABEL_CLICK, 2) == 1.0f && weight_at(f, LABEL_BUY, 2) == 0.0f);
    assert_true(weight_at(f, LABEL_CLICK, 3) == 1.0f && weight_at(f, LABEL_BUY, 3) == 1.0f);
}

FR_CASE(event_time_defaults_to_the_kafka_timestamp)
{
    struct fixture *f = *state;
    accept_json(f,
                "[{\"f\":{},\"y\":{}},{\"f\":{},\"y\":{},\"t\":100000000000},{\"f\":{},\"y\":{},\"t\":1700003600000}]");
    assert_true(f->batch->t_ms[0] == TIMESTAMP_MS);
    assert_true(f->batch->t_ms[1] == 100000000000);
    assert_true(f->batch->t_ms[2] == TIMESTAMP_MS + 3600000); /* exactly future_max ahead */
}

FR_CASE(no_event_time_lies_beyond_the_clock_of_the_host_whatever_kafkas_timestamp)
{
    struct fixture *f = *state;
    static const int64_t year = 365LL * 86400000;
    static const struct {
        const char *text;
        int64_t timestamp_ms, received_ms;
        const char *reason;
        enum fr_future future;
    } cases[] = {
        {"{\"f\":{},\"y\":{},\"t\":1700003600000}", TIMESTAMP_MS + year, TIMESTAMP_MS, NULL, FR_FUTURE_NONE},
        {"{\"f\":{},\"y\":{},\"t\":1700003600001}", TIMESTAMP_MS + year, TIMESTAMP_MS,
         "$.t: event time is 3600001 ms after the clock of the host that read it, more than ingest.future_max (3600000 "
         "ms)",
         FR_FUTURE_CLOCK},
        {"{\"f\":{},\"y\":{},\"t\":1700003600001}", TIMESTAMP_MS, TIMESTAMP_MS + year,
         "$.t: event time is 3600001 ms after the Kafka timestamp, more than ingest.future_max (3600000 ms)",
         FR_FUTURE_TIMESTAMP},
        /* Kafka's timestamp is the event time where there is none */
        {"{\"f\":{},\"y\":{}}", TIMESTAMP_MS + year, TIMESTAMP_MS, "", FR_FUTURE_CLOCK},
        {"{\"shared\":{},\"items\":[{\"f\":{},\"y\":{}}]}", 99999999999999, TIMESTAMP_MS, "", FR_FUTURE_CLOCK},
        {"{\"n\":1,\"cols\":{},\"y\":{}}", 99999999999999, TIMESTAMP_MS, "", FR_FUTURE_CLOCK},
        {"{\"f\":{},\"y\":{},\"t\":1700000000000}", INT64_MAX, TIMESTAMP_MS, NULL, FR_FUTURE_NONE},
        /* lines of files; no clock */
        {"{\"f\":{},\"y\":{},\"t\":1700003600001}", 0, TIMESTAMP_MS, "", FR_FUTURE_CLOCK},
        {"{\"f\":{},\"y\":{}}", TIMESTAMP_MS + year, 0, NULL, FR_FUTURE_NONE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fr_record record = {cases[i].text, strlen(cases[i].text), cases[i].timestamp_ms, cases[i].received_ms};
        uint32_t n;
        enum fr_status status = fr_decode_record(f->decoder, &record, &n, &f->reason);
        assert_int_equal(status, cases[i].reason ? FR_E_INVALID : FR_OK);
        assert_int_equal(fr_decoder_refused_future(f->decoder), cases[i].future);
        if (cases[i].reason && cases[i].reason[0])
            assert_string_equal(f->reason, cases[i].reason);
    }
}

FR_CASE(without_a_kafka_timestamp_t_is_limited_by_its_unit_only)
{
    struct fixture *f = *state;
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"{\"f\":{},\"y\":{},\"t\":9000000000000}", NULL},
        {"{\"f\":{},\"y\":{},\"t\":99999999999999}", NULL},
        {"{\"f\":{},\"y\":{},\"t\":100000000000000}", "$.t: 100000000000000 is micro- or nanoseconds, not ms"},
        {"{\"shared\":{},\"items\":[{\"f\":{},\"y\":{}}],\"t\":1700000000000000}",
         "$.t: 1700000000000000 is micro- or nanoseconds, not ms"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fr_record record = {cases[i].text, strlen(cases[i].text), -1, 0};
        uint32_t n;
        enum fr_status status = fr_decode_record(f->decoder, &record, &n, &f->reason);
        assert_int_equal(status, cases[i].reason ? FR_E_INVALID : FR_OK);
        if (cases[i].reason)
            assert_string_equal(f->reason, cases[i].reason);
    }
}

FR_CASE(keep_rates_and_served_scores_are_kept)
{
    struct fixture *f = *state;
    accept_json(f, "[{\"f\":{},\"y\":{}},{\"f\":{},\"y\":{},\"s\":1}]");
    assert_null(f->batch->served);
    accept_json(f, "[{\"f\":{},\"y\":{},\"s\":0.01,\"p\":{\"click_rate\":0.3,\"buy_rate\":1}},"
                   "{\"f\":{},\"y\":{},\"p\":{}},{\"f\":{},\"y\":{},\"p\":{\"buy_rate\":0.5}}]");
    accept_json(f, "{\"f\":{},\"y\":{}}");
    const float keep[] = {1, 1, 0.01f, 1, 1, 1};
    assert_memory_equal(f->batch->keep, keep, sizeof(keep));
    assert_true(served_at(f, 0, 2) == 0.3f && served_at(f, 1, 2) == 1.0f && served_at(f, 1, 4) == 0.5f);
    assert_true(isnan(served_at(f, 0, 0)) && isnan(served_at(f, 1, 3)) && isnan(served_at(f, 0, 4)) &&
                isnan(served_at(f, 0, 5)));
}

FR_CASE(served_scores_survive_growth)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.batch_size = 1;
    fixture_renew(f);
    for (int i = 0; i < 20; i++)
        accept_json(f, i % 3 ? "{\"f\":{},\"y\":{}}" : "{\"f\":{},\"y\":{},\"p\":{\"buy_rate\":0.25}}");
    for (uint32_t i = 0; i < 20; i++)
        assert_true(i % 3 ? isnan(served_at(f, 1, i)) : served_at(f, 1, i) == 0.25f);
    fr_batch_clear(f->batch);
    accept_json(f, "{\"f\":{},\"y\":{}}");
    assert_null(f->batch->served);
}

FR_CASE(an_id_is_any_value_and_ignored)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{},\"y\":{},\"id\":{\"any\":[1,{\"thing\":null}]}}");
    assert_int_equal(f->batch->unknown_keys + f->batch->unknown_slots, 0);
}

FR_CASE(unknown_slots_and_keys_are_ignored_and_counted)
{
    struct fixture *f = *state;
    accept_json(
        f, "[{\"x_trace\":{\"a\":[1]},\"f\":{\"nope\":[1,2],\"user_id\":1,\"other\":{\"a\":{}}},\"y\":{},\"x_\":0},"
           "{\"f\":{\"nope\":true,\"7\":1,\"x_trace\":1},\"y\":{},\"x_trace\":1}]");
    assert_int_equal(f->batch->unknown_slots, 5);
    assert_int_equal(f->batch->unknown_keys, 3);
    assert_int_equal(n_ids(f, SLOT_USER_ID, 0), 1);
    assert_int_equal(n_ids(f, SLOT_CONTEXT, 1), 0); /* JSON has no integer keys: "7" is a name */
}

FR_CASE(a_name_that_differs_in_one_byte_is_no_slot)
{
    struct fixture *f = *state;
    for (int size = 1; size < 20; size++) {
        char *name = f->schema.slots[SLOT_USER_ID].name, text[128];
        memset(name, 0, FR_NAME_MAX);
        memset(name, 'q', (size_t)size);
        fixture_renew(f);
        snprintf(text, sizeof(text), "{\"f\":{\"%s\":1},\"y\":{}}", name);
        accept_json(f, text); /* from now on this name is what the decoder expects */
        accept_json(f, text);
        assert_int_equal(f->batch->unknown_slots, 0);
        for (int i = 0; i < size; i++) {
            text[7 + i] = 'r';
            accept_json(f, text);
            text[7 + i] = 'q';
            assert_int_equal(f->batch->unknown_slots, i + 1);
        }
    }
}

FR_CASE(many_unknown_slots_are_distinguished)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.record_max = 1 << 20;
    fixture_renew(f);
    struct fr_buffer text = {0};
    fr_buffer_printf(&text, "{\"f\":{");
    for (int i = 0; i < 5000; i++)
        fr_buffer_printf(&text, "\"u%d\":%d,", i, i);
    size_t size = text.size;
    fr_buffer_printf(&text, "\"user_id\":1},\"y\":{}}");
    fr_put_u8(&text, 0);
    accept_json(f, (const char *)text.data);
    assert_int_equal(f->batch->unknown_slots, 5000);
    text.size = size;
    fr_buffer_printf(&text, "\"u0\":1},\"y\":{}}");
    fr_put_u8(&text, 0);
    refuse_json(f, (const char *)text.data, "$.f: duplicate key \"u0\"");
    fr_buffer_release(&text);
}

FR_CASE(a_declared_index_stands_for_the_slot)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.format = FR_FORMAT_MSGPACK;
    fixture_renew(f);
    static const uint8_t record[] = {0x82, 0xa1, 'f', 0x81, 0x07, 0x2a, 0xa1, 'y', 0x80};
    uint32_t n;
    assert_int_equal(decode_bytes(f, record, sizeof(record), &n), FR_OK);
    fr_decode_append(f->decoder, 0, n, f->batch);
    assert_int_equal(key_at(f, SLOT_CONTEXT, 0, 0), integer_key(f, SLOT_CONTEXT, 42));
}

FR_CASE(slots_come_in_any_order)
{
    struct fixture *f = *state;
    accept_json(f, "[{\"f\":{\"user_id\":1,\"item_id\":2,\"price\":3},\"y\":{}},{\"f\":{\"price\":3,\"item_id\":2,"
                   "\"user_id\":1},\"y\":{}},"
                   "{\"y\":{},\"f\":{\"item_id\":2,\"vec\":[1,2,3],\"user_id\":1,\"price\":3}}]");
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(key_at(f, SLOT_USER_ID, i, 0), integer_key(f, SLOT_USER_ID, 1));
        assert_int_equal(key_at(f, SLOT_ITEM_ID, i, 0), integer_key(f, SLOT_ITEM_ID, 2));
        assert_true(f->batch->columns[SLOT_PRICE].dense[i] == fr_log1pf(3.0f));
    }
}

FR_CASE(eight_containers_and_strings_of_4096_bytes_are_within_the_limits)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{},\"y\":{},\"id\":[[[[[[[1]]]]]]]}");
    struct fr_buffer text = {0};
    fr_buffer_printf(&text, "{\"f\":{\"user_id\":\"");
    for (int i = 0; i < FR_STRING_MAX; i++)
        fr_put_u8(&text, 's');
    fr_buffer_printf(&text, "\"},\"y\":{}}");
    fr_put_u8(&text, 0);
    accept_json(f, (const char *)text.data);
    fr_buffer_release(&text);
}

FR_CASE(a_record_of_exactly_record_max_is_accepted)
{
    struct fixture *f = *state;
    char text[8194];
    memset(text, ' ', sizeof(text));
    memcpy(text, "{\"f\":{},\"y\":{}}", 15);
    uint32_t n;
    assert_int_equal(decode_bytes(f, text, 8192, &n), FR_OK);
    assert_int_equal(decode_bytes(f, text, 8193, &n), FR_E_LIMIT);
}

FR_CASE(an_empty_array_is_a_record_without_samples)
{
    struct fixture *f = *state;
    assert_int_equal(accept_json(f, " [ ] "), 0);
    assert_int_equal(f->batch->n_samples, 0);
}

FR_CASE(scoring_needs_neither_labels_nor_time)
{
    struct fixture *f = *state;
    /* a model's conf has no ingest part */
    memset(&f->schema.conf.ingest, 0, sizeof(f->schema.conf.ingest));
    struct fr_decoder *decoder = fr_decoder_new_scoring(&f->schema.conf, FR_FORMAT_JSON);
    static const char text[] = "[{\"f\":{\"user_id\":1}},{\"f\":{\"user_id\":2},\"y\":[1],\"t\":1700000000000}]";
    struct fr_record record = {text, sizeof(text) - 1, 0, 0};
    uint32_t n = 0;
    assert_int_equal(fr_decode_record(decoder, &record, &n, &f->reason), FR_OK);
    assert_int_equal(n, 2);
    fr_decode_append(decoder, 0, n, f->batch);
    assert_int_equal(key_at(f, SLOT_USER_ID, 1, 0), integer_key(f, SLOT_USER_ID, 2));
    assert_int_equal(f->batch->role[0], FR_ROLE_MASKED);
    fr_decoder_free(decoder);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_sparse_value_is_nil_an_id_an_array_or_weighted_ids),
        CASE(repeated_ids_count_each_time),
        CASE(weights_may_come_before_their_ids),
        CASE(over_max_ids_the_last_are_kept_and_the_excess_counted),
        CASE(a_sequence_keeps_its_newest_max_len_and_counts_no_excess),
        CASE(raw_ids_tell_a_string_from_its_integer),
        CASE(dense_values_are_transformed_and_defaults_too),
        CASE(a_default_is_transformed),
        CASE(a_default_without_image_makes_the_slot_required),
        CASE(labels_are_a_map_or_an_array_and_nil_masks),
        CASE(a_bare_label_serves_a_config_with_one_label),
        CASE(a_label_no_task_uses_is_any_number_and_does_not_train),
        CASE(use_decides_the_role_of_a_labelled_sample),
        CASE(weights_are_one_for_all_labels_or_one_each),
        CASE(event_time_defaults_to_the_kafka_timestamp),
        CASE(no_event_time_lies_beyond_the_clock_of_the_host_whatever_kafkas_timestamp),
        CASE(without_a_kafka_timestamp_t_is_limited_by_its_unit_only),
        CASE(keep_rates_and_served_scores_are_kept),
        CASE(served_scores_survive_growth),
        CASE(an_id_is_any_value_and_ignored),
        CASE(unknown_slots_and_keys_are_ignored_and_counted),
        CASE(a_name_that_differs_in_one_byte_is_no_slot),
        CASE(many_unknown_slots_are_distinguished),
        CASE(a_declared_index_stands_for_the_slot),
        CASE(slots_come_in_any_order),
        CASE(eight_containers_and_strings_of_4096_bytes_are_within_the_limits),
        CASE(a_record_of_exactly_record_max_is_accepted),
        CASE(an_empty_array_is_a_record_without_samples),
        CASE(scoring_needs_neither_labels_nor_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
