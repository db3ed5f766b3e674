/* What docs/formats/samples.md says about records as wholes: a refused one leaves no trace, in no
 * form; which ids are the same feature; numbers as f32. */
#include "fixture.h"

#include <math.h>

#include "base/math.h"

/* Sound records of every form, and records whose last value is malformed: everything before it has
 * been staged. */
static const char *const sound[] = {
    "{\"f\":{\"user_id\":[1,2],\"price\":3,\"history\":{\"i\":[4],\"w\":[5]}},\"y\":[1,0],\"w\":2}",
    "{\"t\":1600000000000,\"shared\":{\"user_id\":7},\"items\":[{\"f\":{\"item_id\":1},\"y\":[1]},{\"f\":{},\"y\":[]}]"
    "}",
    "[{\"f\":{\"context\":[1,2,3,4,5]},\"y\":[1],\"x_a\":0},{\"shared\":{},\"items\":[{\"f\":{\"no\":1},\"y\":[0]}]}]",
    "{\"n\":2,\"cols\":{\"vec\":[[1,2,3],null]},\"y\":{\"click\":[1,0]},\"g\":[2],\"shared\":{\"user_id\":[[8,9]]},"
    "\"s\":[0.5,1]}"};
static const char *const refused[] = {
    "{\"x_b\":1,\"f\":{\"user_id\":[1,2,3],\"context\":[1,2,3,4,5,6],\"no\":1,\"price\":9},\"y\":[1,0],"
    "\"p\":{\"click_rate\":0.5},\"w\":-1}",
    "{\"shared\":{\"user_id\":{\"i\":[7],\"w\":[3]}},\"items\":[{\"f\":{\"item_id\":1},\"y\":[1]},{\"f\":{},\"y\":[2]}]"
    "}",
    "[{\"f\":{\"context\":[1,2,3,4,5]},\"y\":[1],\"x_a\":0},{\"f\":{\"user_id\":true},\"y\":[1]}]",
    "{\"n\":2,\"cols\":{\"user_id\":[{\"i\":[1],\"w\":[2]},null]},\"y\":{\"click\":[1,0]},\"g\":[2],"
    "\"shared\":{\"vec\":[[8,9]]}}"};

static void assert_same_batch(const struct fr_batch *a, const struct fr_batch *b)
{
    assert_int_equal(a->n_samples, b->n_samples);
    assert_int_equal(a->n_groups, b->n_groups);
    assert_memory_equal(a->group_begin, b->group_begin, (a->n_groups + 1) * sizeof(uint32_t));
    assert_memory_equal(a->t_ms, b->t_ms, a->n_samples * sizeof(int64_t));
    assert_memory_equal(a->role, b->role, a->n_samples);
    assert_memory_equal(a->keep, b->keep, a->n_samples * sizeof(float));
    assert_true((a->served == NULL) == (b->served == NULL));
    assert_int_equal(a->unknown_slots, b->unknown_slots);
    assert_int_equal(a->unknown_keys, b->unknown_keys);
    assert_int_equal(a->excess_ids, b->excess_ids);
    for (uint32_t l = 0; l < a->n_labels; l++) {
        const float *x = a->labels + (size_t)l * a->capacity_samples, *y = b->labels + (size_t)l * b->capacity_samples;
        assert_memory_equal(x, y, a->n_samples * sizeof(float));
    }
    for (uint32_t s = 0; s < a->n_slots; s++) {
        const struct fr_column *x = &a->columns[s], *y = &b->columns[s];
        uint32_t n = fr_batch_entries(a, s);
        assert_int_equal(x->shared, y->shared);
        if (x->dim > 0) {
            assert_memory_equal(x->dense, y->dense, (size_t)n * x->dim * sizeof(float));
            continue;
        }
        assert_memory_equal(x->begin, y->begin, (n + 1) * sizeof(uint32_t));
        assert_memory_equal(x->keys, y->keys, x->begin[n] * sizeof(uint64_t));
        assert_true((x->weights == NULL) == (y->weights == NULL));
        if (x->weights)
            assert_memory_equal(x->weights, y->weights, x->begin[n] * sizeof(float));
    }
}

FR_CASE(a_refused_record_of_any_form_leaves_no_trace)
{
    struct fixture *f = *state;
    enum { N = sizeof(sound) / sizeof(sound[0]) };
    for (size_t i = 0; i < N; i++)
        accept_json(f, sound[i]);
    struct fr_batch *expected = f->batch;
    f->batch = fr_batch_new(&f->schema.conf);
    /* one decoder for all records, whose staging must not keep anything */
    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < N; k++)
            refuse_json(f, refused[k], "$");
        accept_json(f, sound[i]);
    }
    assert_same_batch(f->batch, expected);
    fr_batch_free(expected);
}

FR_CASE(slots_share_ids_exactly_when_they_share_table_and_namespace)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{\"user_id\":[5,\"a\"],\"context\":[5,\"a\"],\"history\":[5,\"a\"],\"item_id\":[5,\"a\"]},"
                   "\"y\":{}}");
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t history = key_at(f, SLOT_HISTORY, 0, i), user = key_at(f, SLOT_USER_ID, 0, i);
        assert_int_equal(history, key_at(f, SLOT_ITEM_ID, 0, i));
        /* the same table, but another namespace */
        assert_int_not_equal(user, key_at(f, SLOT_CONTEXT, 0, i));
        assert_int_not_equal(user, history);
    }
    assert_int_equal(f->schema.slots[SLOT_CONTEXT].table, f->schema.slots[SLOT_USER_ID].table);
}

FR_CASE(numbers_are_rounded_to_the_nearest_f32)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{\"vec\":[0.1,16777217,1.0000000596046448],\"user_id\":{\"i\":[1],\"w\":[0.1]}},"
                   "\"y\":{\"click\":0.3},\"w\":0.7,\"s\":0.9,\"p\":{\"buy_rate\":0.6}}");
    const float *vec = f->batch->columns[SLOT_VEC].dense;
    assert_true(vec[0] == 0.1f && vec[1] == 16777216.0f && vec[2] == 1.0f); /* ties to even */
    assert_true(f->batch->columns[SLOT_USER_ID].weights[0] == 0.1f);
    assert_true(label_at(f, LABEL_CLICK, 0) == 0.3f && weight_at(f, LABEL_CLICK, 0) == 0.7f);
    assert_true(f->batch->keep[0] == 0.9f && served_at(f, 1, 0) == 0.6f);
}

FR_CASE(whitespace_around_a_json_record_is_allowed_and_a_second_value_is_not)
{
    struct fixture *f = *state;
    accept_json(f, " \t\r\n{\"f\":{},\"y\":{}} \n\t");
    refuse_json(f, "{\"f\":{},\"y\":{}} {\"f\":{},\"y\":{}}", "bytes after the value");
    refuse_json(f, "\v{\"f\":{},\"y\":{}}", "$");
}

FR_CASE(a_time_of_10_to_the_11_is_the_first_that_is_not_seconds)
{
    struct fixture *f = *state;
    refuse_json(f, "{\"f\":{},\"y\":{},\"t\":99999999999}", "is seconds, not ms");
    accept_json(f, "{\"f\":{},\"y\":{},\"t\":100000000000}");
    refuse_json(f, "{\"n\":1,\"cols\":{},\"y\":{},\"t\":[99999999999]}", "is seconds, not ms");
    refuse_json(f, "{\"n\":1,\"cols\":{},\"y\":{},\"t\":0}", "event time is not above 0");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_refused_record_of_any_form_leaves_no_trace),
        CASE(slots_share_ids_exactly_when_they_share_table_and_namespace),
        CASE(numbers_are_rounded_to_the_nearest_f32),
        CASE(whitespace_around_a_json_record_is_allowed_and_a_second_value_is_not),
        CASE(a_time_of_10_to_the_11_is_the_first_that_is_not_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
