/* The batch as memory: growth, reuse, column weights, counters. */
#include "fixture.h"

FR_CASE(labels_survive_growth)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.batch_size = 2;
    fixture_renew(f);
    for (int i = 0; i < 100; i++)
        accept_json(f, i % 2 ? "{\"f\":{\"user_id\":1,\"vec\":[1,2,3]},\"y\":[0.25,1],\"w\":3}"
                             : "{\"f\":{},\"y\":[0.5,0]}");
    assert_int_equal(f->batch->n_samples, 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(label_at(f, LABEL_CLICK, i) == (i % 2 ? 0.25f : 0.5f));
        assert_true(label_at(f, LABEL_BUY, i) == (i % 2 ? 1.0f : 0.0f));
        assert_true(weight_at(f, LABEL_BUY, i) == (i % 2 ? 3.0f : 1.0f));
        assert_int_equal(n_ids(f, SLOT_USER_ID, i), i % 2);
        assert_true(f->batch->columns[SLOT_VEC].dense[3 * i + 2] == (i % 2 ? 3.0f : 0.5f));
        assert_int_equal(f->batch->group_begin[i + 1], i + 1);
    }
}

FR_CASE(a_cleared_batch_is_as_new)
{
    struct fixture *f = *state;
    accept_json(
        f, "{\"f\":{\"user_id\":{\"i\":[1],\"w\":[2]},\"no\":1,\"context\":[1,2,3,4,5]},\"y\":{},\"x_a\":1,\"s\":1}");
    f->batch->end_of_stream = true;
    f->batch->kafka_t_max_ms = 5;
    fr_batch_clear(f->batch);
    assert_int_equal(f->batch->n_samples + f->batch->n_groups + f->batch->n_positions, 0);
    assert_false(f->batch->end_of_stream);
    assert_true(f->batch->kafka_t_max_ms == 0);
    assert_int_equal(f->batch->unknown_slots + f->batch->unknown_keys + f->batch->excess_ids, 0);
    accept_json(f, "{\"f\":{\"user_id\":9},\"y\":{}}");
    assert_null(f->batch->columns[SLOT_USER_ID].weights);
    assert_int_equal(key_at(f, SLOT_USER_ID, 0, 0), integer_key(f, SLOT_USER_ID, 9));
}

FR_CASE(ids_before_the_first_weighted_entry_weigh_one)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{\"user_id\":[1,2]},\"y\":{}}");
    accept_json(f, "{\"f\":{\"user_id\":{\"i\":[3],\"w\":[7]}},\"y\":{}}");
    accept_json(f, "{\"f\":{\"user_id\":[4,5]},\"y\":{}}");
    const float expected[] = {1, 1, 7, 1, 1};
    assert_memory_equal(f->batch->columns[SLOT_USER_ID].weights, expected, sizeof(expected));
}

FR_CASE(counters_go_to_the_batch_that_takes_item_0)
{
    struct fixture *f = *state;
    static const char text[] = "[{\"f\":{\"no\":1},\"y\":{}},{\"f\":{\"no\":1},\"y\":{}},{\"f\":{},\"y\":{}}]";
    uint32_t n;
    assert_int_equal(decode_bytes(f, text, strlen(text), &n), FR_OK);
    fr_decode_append(f->decoder, 1, 2, f->batch);
    assert_int_equal(f->batch->unknown_slots, 0);
    assert_int_equal(f->batch->n_samples, 2);
    fr_decode_append(f->decoder, 0, 1, f->batch);
    assert_int_equal(f->batch->unknown_slots, 2);
}

FR_CASE(a_steady_stream_moves_no_memory)
{
    struct fixture *f = *state;
    static const char text[] = "[{\"f\":{\"user_id\":{\"i\":[1,2],\"w\":[1,2]},\"vec\":[1,2,3]},\"y\":[1]},{\"f\":{"
                               "\"user_id\":[1]},\"y\":[1]}]";
    accept_json(f, text);
    struct fr_batch before = *f->batch;
    struct fr_column user = f->batch->columns[SLOT_USER_ID];
    for (int i = 0; i < 100; i++) {
        fr_batch_clear(f->batch);
        accept_json(f, text);
    }
    assert_ptr_equal(f->batch->labels, before.labels);
    assert_ptr_equal(f->batch->columns[SLOT_USER_ID].keys, user.keys);
    assert_ptr_equal(f->batch->columns[SLOT_USER_ID].weights, user.weights);
}

FR_CASE(free_takes_null)
{
    fr_batch_free(NULL);
    fr_decoder_free(NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(labels_survive_growth),
        CASE(a_cleared_batch_is_as_new),
        CASE(ids_before_the_first_weighted_entry_weigh_one),
        CASE(counters_go_to_the_batch_that_takes_item_0),
        CASE(a_steady_stream_moves_no_memory),
        cmocka_unit_test(free_takes_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
