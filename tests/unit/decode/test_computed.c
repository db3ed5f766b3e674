/* Slots computed from others: buckets of numbers, crosses of ids. This file tests values and their
 * places; test_forms.c and interop/messages.py test that all forms give the same. */
#include "fixture.h"

#include <math.h>

/* The key of `pair` for a user, the bucket of the price and a context. */
static uint64_t pair_key(const struct fixture *f, int64_t user, int64_t bucket, int64_t context)
{
    uint64_t key = f->schema.slots[SLOT_PAIR].seed;
    key = fr_fmix64(key ^ integer_key(f, SLOT_USER_ID, user));
    key = fr_fmix64(key ^ integer_key(f, SLOT_BUCKET, bucket));
    return fr_fmix64(key ^ integer_key(f, SLOT_CONTEXT, context));
}

FR_CASE(a_bucket_is_that_of_the_number_before_its_transform)
{
    struct fixture *f = *state;
    /* boundaries 1, 100, 500; price is log1p */
    accept_json(f,
                "[{\"f\":{\"price\":0.5},\"y\":{}},{\"f\":{\"price\":1},\"y\":{}},{\"f\":{\"price\":[99.9]},\"y\":{}},"
                "{\"f\":{\"price\":100},\"y\":{}},{\"f\":{\"price\":1e9},\"y\":{}}]");
    const int64_t buckets[] = {0, 1, 1, 2, 3};
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(n_ids(f, SLOT_BUCKET, i), 1);
        assert_int_equal(key_at(f, SLOT_BUCKET, i, 0), integer_key(f, SLOT_BUCKET, buckets[i]));
    }
    /* without steps no second copy of the number is kept */
    f->schema.slots[SLOT_PRICE].n_steps = 0;
    fixture_renew(f);
    accept_json(f, "{\"n\":2,\"cols\":{\"price\":[99.9,501]},\"y\":{}}");
    assert_int_equal(key_at(f, SLOT_BUCKET, 0, 0), integer_key(f, SLOT_BUCKET, 1));
    assert_int_equal(key_at(f, SLOT_BUCKET, 1, 0), integer_key(f, SLOT_BUCKET, 3));
}

FR_CASE(a_missing_number_has_no_bucket)
{
    struct fixture *f = *state;
    accept_json(f, "[{\"f\":{},\"y\":{}},{\"f\":{\"price\":null},\"y\":{}},{\"f\":{\"price\":0},\"y\":{}}]");
    assert_int_equal(n_ids(f, SLOT_BUCKET, 0), 0);
    assert_int_equal(n_ids(f, SLOT_BUCKET, 1), 0);
    assert_int_equal(n_ids(f, SLOT_BUCKET, 2), 1);
}

FR_CASE(a_cross_takes_every_combination_the_last_slot_fastest)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{\"user_id\":[1,2],\"price\":7,\"context\":[3,4]},\"y\":{}}");
    const int64_t users[] = {1, 1, 2, 2}, contexts[] = {3, 4, 3, 4};
    assert_int_equal(n_ids(f, SLOT_PAIR, 0), 4);
    for (uint32_t k = 0; k < 4; k++)
        assert_int_equal(key_at(f, SLOT_PAIR, 0, k), pair_key(f, users[k], 1, contexts[k]));
    assert_null(f->batch->columns[SLOT_PAIR].weights);
}

FR_CASE(a_cross_without_an_id_of_each_slot_has_none)
{
    struct fixture *f = *state;
    accept_json(f, "[{\"f\":{\"user_id\":1,\"price\":7},\"y\":{}},{\"f\":{\"user_id\":1,\"context\":2},\"y\":{}},"
                   "{\"f\":{\"user_id\":[],\"price\":7,\"context\":2},\"y\":{}},{\"f\":{},\"y\":{}}]");
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(n_ids(f, SLOT_PAIR, i), 0);
}

FR_CASE(weights_of_a_cross_are_multiplied)
{
    struct fixture *f = *state;
    accept_json(
        f, "[{\"f\":{\"user_id\":9,\"price\":7,\"context\":9},\"y\":{}},"
           "{\"f\":{\"user_id\":{\"i\":[1,2],\"w\":[0.5,-2]},\"price\":7,\"context\":{\"i\":[3,4],\"w\":[3,0.25]}},"
           "\"y\":{}}]");
    const float want[] = {1, 1.5f, 0.125f, -6, -0.5f};
    assert_memory_equal(f->batch->columns[SLOT_PAIR].weights, want, sizeof(want));
    refuse_json(f,
                "{\"f\":{\"user_id\":{\"i\":[1],\"w\":[1e4]},\"price\":7,\"context\":{\"i\":[3],\"w\":[-2]}},\"y\":{}}",
                "$.pair: weights of ids multiply to -20000, beyond ingest.weight_max (10000)");
}

FR_CASE(over_max_ids_the_last_combinations_stay_and_the_rest_is_counted)
{
    struct fixture *f = *state; /* max_ids 8, and of context 4 */
    accept_json(f, "{\"f\":{\"user_id\":[1,2,3],\"price\":7,\"context\":[4,5,6,7]},\"y\":{}}");
    assert_int_equal(n_ids(f, SLOT_PAIR, 0), 8);
    for (uint32_t k = 0; k < 8; k++)
        assert_int_equal(key_at(f, SLOT_PAIR, 0, k), pair_key(f, 2 + k / 4, 1, 4 + k % 4));
    assert_int_equal(f->batch->excess_ids, 4);
}

FR_CASE(combinations_of_a_record_are_bounded)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.record_max = 1 << 20;
    f->schema.slots[SLOT_PAIR].max_ids = 65536;
    f->schema.slots[SLOT_USER_ID].max_ids = f->schema.slots[SLOT_CONTEXT].max_ids = 65536;
    fixture_renew(f);
    struct fr_buffer text = {0};
    fr_buffer_printf(&text, "[");
    for (int sample = 0; sample < 65; sample++) { /* 65 * 65536 is just above 2^22 */
        fr_buffer_printf(&text, "%s{\"f\":{\"price\":1", sample ? "," : "");
        for (int slot = 0; slot < 2; slot++) {
            fr_buffer_printf(&text, ",\"%s\":[0", slot ? "context" : "user_id");
            for (int i = 1; i < 256; i++)
                fr_buffer_printf(&text, ",%d", i);
            fr_buffer_printf(&text, "]");
        }
        fr_buffer_printf(&text, "},\"y\":{}}");
    }
    fr_buffer_append(&text, "]", 2);
    refuse_json(f, (const char *)text.data,
                "$.pair: more than 4194304 combinations in a record; lower max_ids of the slot");
    fr_buffer_release(&text);
}

FR_CASE(what_is_computed_from_shared_slots_alone_is_shared)
{
    struct fixture *f = *state;
    static const char items[] = "\"items\":[{\"f\":{%s},\"y\":{}},{\"f\":{%s},\"y\":{}}]}";
    char text[512], part[256];
    snprintf(part, sizeof(part), items, "\"item_id\":1", "\"item_id\":2");
    snprintf(text, sizeof(text), "{\"shared\":{\"user_id\":1,\"price\":7,\"context\":3},%s", part);
    accept_json(f, text);
    assert_true(f->batch->columns[SLOT_BUCKET].shared && f->batch->columns[SLOT_PAIR].shared);
    assert_int_equal(key_at(f, SLOT_PAIR, 0, 0), pair_key(f, 1, 1, 3));
    fixture_renew(f);
    snprintf(part, sizeof(part), items, "\"context\":4", "\"context\":5");
    snprintf(text, sizeof(text), "{\"shared\":{\"user_id\":1,\"price\":7},%s", part);
    accept_json(f, text);
    assert_true(f->batch->columns[SLOT_BUCKET].shared && !f->batch->columns[SLOT_PAIR].shared);
    assert_int_equal(key_at(f, SLOT_PAIR, 0, 0), pair_key(f, 1, 1, 4));
    assert_int_equal(key_at(f, SLOT_PAIR, 1, 0), pair_key(f, 1, 1, 5));
}

FR_CASE(copies_of_a_shared_cross_count_as_ids_of_the_batch)
{
    struct fixture *f = *state;
    accept_json(f, "{\"shared\":{\"user_id\":[1,2],\"price\":7,\"context\":[3,4]},"
                   "\"items\":[{\"f\":{},\"y\":{}},{\"f\":{},\"y\":{}},{\"f\":{},\"y\":{}}]}");
    assert_int_equal(f->batch->ids, 3 * (2 + 2 + 1 + 4));
}

FR_CASE(scoring_computes_them_too)
{
    struct fixture *f = *state;
    fr_decoder_free(f->decoder);
    f->decoder = fr_decoder_new_scoring(&f->schema.conf, FR_FORMAT_JSON);
    accept_json(f, "{\"f\":{\"user_id\":1,\"price\":7,\"context\":3}}");
    assert_int_equal(key_at(f, SLOT_PAIR, 0, 0), pair_key(f, 1, 1, 3));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_bucket_is_that_of_the_number_before_its_transform),
        CASE(a_missing_number_has_no_bucket),
        CASE(a_cross_takes_every_combination_the_last_slot_fastest),
        CASE(a_cross_without_an_id_of_each_slot_has_none),
        CASE(weights_of_a_cross_are_multiplied),
        CASE(over_max_ids_the_last_combinations_stay_and_the_rest_is_counted),
        CASE(combinations_of_a_record_are_bounded),
        CASE(what_is_computed_from_shared_slots_alone_is_shared),
        CASE(copies_of_a_shared_cross_count_as_ids_of_the_batch),
        CASE(scoring_computes_them_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
