/* Dense numbers: steps of transforms, missing values, bounds; bounds of weights. */
#include "fixture.h"

#include <float.h>
#include <math.h>

#include "base/buffer.h"
#include "base/math.h"
#include "numerics/transform_values.h"

static const float *dense(const struct fixture *f, int slot)
{
    return f->batch->columns[slot].dense;
}

static void steps(struct fixture *f, int slot, uint32_t n, const struct fr_conf_step *list)
{
    f->schema.slots[slot].n_steps = n;
    memcpy(f->schema.slots[slot].steps, list, n * sizeof(*list));
    fixture_renew(f);
}

FR_CASE(steps_are_applied_in_their_order_in_every_column)
{
    struct fixture *f = *state;
    steps(f, SLOT_VEC, 2,
          (const struct fr_conf_step[]){{FR_TRANSFORM_CLIP, 0.0f, 10.0f}, {FR_TRANSFORM_LOG1P, 0.0f, 0.0f}});
    accept_json(f, "{\"n\":2,\"cols\":{\"vec\":[[-5,3,1e9],null]},\"y\":{}}");
    const float want[] = {0.0f, fr_log1pf(3.0f), fr_log1pf(10.0f), fr_log1pf(0.5f), fr_log1pf(0.5f), fr_log1pf(0.5f)};
    assert_memory_equal(dense(f, SLOT_VEC), want, sizeof(want));
}

FR_CASE(missing_numbers_are_nan_where_the_network_has_to_know)
{
    struct fixture *f = *state;
    struct fr_conf_slot *vec = &f->schema.slots[SLOT_VEC];
    vec->transform = FR_TRANSFORM_STANDARDIZE;
    fixture_renew(f);
    accept_json(f, "[{\"f\":{},\"y\":{}},{\"f\":{\"vec\":[1,2,3]},\"y\":{}},{\"f\":{\"vec\":null},\"y\":{}}]");
    assert_true(isnan(dense(f, SLOT_VEC)[0]) && isnan(dense(f, SLOT_VEC)[2]) && isnan(dense(f, SLOT_VEC)[6]));
    assert_true(dense(f, SLOT_VEC)[3] == 1.0f && dense(f, SLOT_VEC)[5] == 3.0f);
    vec->has_default = true;
    fixture_renew(f);
    accept_json(f, "{\"f\":{},\"y\":{}}");
    assert_true(dense(f, SLOT_VEC)[0] == 0.5f);
    vec->transform = FR_TRANSFORM_NONE;
    vec->indicator = true;
    fixture_renew(f);
    accept_json(f, "{\"f\":{},\"y\":{}}");
    assert_true(isnan(dense(f, SLOT_VEC)[0]));
}

FR_CASE(times_keep_their_seconds_but_in_packed_columns)
{
    struct fixture *f = *state;
    static const double second = 1700000001.0;
    float want[2], rounded[2];
    steps(f, SLOT_PRICE, 1, (const struct fr_conf_step[]){{FR_TRANSFORM_TIME_OF_DAY, 0.0f, 0.0f}});
    f->schema.slots[SLOT_BUCKET].sources[0] = SLOT_VEC; /* a time has no buckets */
    f->schema.slots[SLOT_VEC].dim = 1;
    fixture_renew(f);
    assert_true(fr_transform_apply(&f->schema.slots[SLOT_PRICE], second, want));
    assert_true(fr_transform_apply(&f->schema.slots[SLOT_PRICE], (double)(float)second, rounded));
    accept_json(f, "[{\"f\":{\"price\":1700000001},\"y\":{}},{\"f\":{\"price\":[1700000001000]},\"y\":{}},"
                   "{\"f\":{\"price\":1700000001.0},\"y\":{}},{\"f\":{},\"y\":{}}]");
    assert_int_equal(f->batch->columns[SLOT_PRICE].dim, 2);
    for (size_t i = 0; i < 3; i++)
        assert_memory_equal(dense(f, SLOT_PRICE) + 2 * i, want, sizeof(want));
    assert_true(dense(f, SLOT_PRICE)[6] == 0.0f && dense(f, SLOT_PRICE)[7] == 0.0f);
    refuse_json(f, "{\"f\":{\"price\":1700000001000000},\"y\":{}}",
                "$.f.price: 1700000001000000 is no Unix time in seconds or milliseconds");
    refuse_json(f, "{\"f\":{\"price\":\"now\"},\"y\":{}}", "$.f.price: a string where a number was expected");

    f->schema.conf.ingest.format = FR_FORMAT_MSGPACK;
    fixture_renew(f);
    struct fr_buffer block = {0};
    uint32_t n;
    float time = (float)second;
    static const char head[] = "\x83\xa1n\x01\xa4"
                               "cols\x81\xa5price\x81\xa1"
                               "b\xc4\x04";
    fr_buffer_append(&block, head, sizeof(head) - 1);
    fr_buffer_append(&block, &time, sizeof(time));
    fr_buffer_append(&block, "\xa1y\x80", 3);
    assert_int_equal(decode_bytes(f, block.data, block.size, &n), FR_OK);
    fr_decode_append(f->decoder, 0, n, f->batch);
    assert_memory_equal(dense(f, SLOT_PRICE), rounded, sizeof(rounded));
    assert_true(rounded[0] != want[0]);
    fr_buffer_release(&block);
}

/* ---- bounds ---- */

static void accepts_and_refuses(struct fixture *f, const char *good, const char *bad, const char *reason)
{
    char text[256];
    fixture_renew(f);
    snprintf(text, sizeof(text), "{\"f\":{\"vec\":[0,%s,0]},\"y\":{}}", good);
    accept_json(f, text);
    snprintf(text, sizeof(text), "{\"f\":{\"vec\":[0,%s,0]},\"y\":{}}", bad);
    refuse_json(f, text, reason);
    snprintf(text, sizeof(text), "[{\"f\":{},\"y\":{}},{\"f\":{\"vec\":[0,%s,0]},\"y\":{}}]", bad);
    /* one bad sample makes its record malformed, as with other faults */
    refuse_json(f, text, "$[1].f.vec[1]: ");
}

FR_CASE(a_number_is_bounded_as_the_network_reads_it)
{
    struct fixture *f = *state;
    struct fr_conf_slot *vec = &f->schema.slots[SLOT_VEC];
    f->schema.conf.ingest.dense_max = 0.0f; /* the default */
    accepts_and_refuses(
        f, "-1e5", "-100001",
        "$.f.vec[1]: -100001 is beyond ingest.dense_max (100000); clip or standardize the slot, or raise the bound");
    f->schema.conf.ingest.dense_max = 3.0f;
    accepts_and_refuses(f, "3", "3.5", "3.5 is beyond ingest.dense_max (3)");
    vec->n_steps = 1;
    vec->steps[0].kind = FR_TRANSFORM_LOG1P;
    /* log 20, log 21 */
    accepts_and_refuses(f, "19", "20", "3.04452252 is beyond ingest.dense_max (3)");
    vec->n_steps = 0;
    vec->transform = FR_TRANSFORM_STANDARDIZE;
    accepts_and_refuses(f, "1e15", "-1.1e15", "is beyond +-1e+15, the most that standardize takes; clip the slot");
    vec->transform = FR_TRANSFORM_BUCKETIZE; /* a one-hot needs none */
    fixture_renew(f);
    accept_json(f, "{\"f\":{\"vec\":[3e38,0,0]},\"y\":{}}");
}

FR_CASE(clip_makes_a_number_one_within_bounds)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.dense_max = 3.0f;
    steps(f, SLOT_VEC, 1, (const struct fr_conf_step[]){{FR_TRANSFORM_CLIP, -3.0f, 3.0f}});
    accept_json(f, "{\"f\":{\"vec\":[3.4e38,0,-1e20]},\"y\":{}}");
    assert_true(dense(f, SLOT_VEC)[0] == 3.0f && dense(f, SLOT_VEC)[2] == -3.0f);
}

FR_CASE(what_only_buckets_read_has_no_bound)
{
    struct fixture *f = *state;
    struct fr_conf_ref ref = {.kind = FR_REF_DENSE, .index = SLOT_PRICE};
    struct fr_conf_layer layer = {.n_refs = 1, .refs = &ref};
    f->schema.slots[SLOT_PRICE].n_steps = 0;
    fixture_renew(f);
    accept_json(f, "{\"f\":{\"price\":1e30},\"y\":{}}");
    f->schema.conf.n_layers = 1;
    f->schema.conf.layers = &layer;
    fixture_renew(f);
    refuse_json(f, "{\"f\":{\"price\":1e30},\"y\":{}}", "$.f.price: 1.00000002e+30 is beyond ingest.dense_max");
}

FR_CASE(weights_are_bounded_with_and_without_their_keep_rate)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.weight_max = 20.0f;
    fixture_renew(f);
    accept_json(f,
                "[{\"f\":{},\"y\":{},\"w\":20},{\"f\":{},\"y\":{},\"s\":0.05},{\"f\":{},\"y\":{},\"w\":0,\"s\":1e-9}]");
    refuse_json(
        f, "{\"f\":{},\"y\":{},\"w\":{\"buy\":20.5}}",
        "$.w: weight 20.5 is above ingest.weight_max (20); cut weights where they are made, or raise the bound");
    refuse_json(f, "{\"f\":{},\"y\":{},\"s\":0.04}",
                "$.w: weight by keep rate (w / s) 25 is above ingest.weight_max (20)");
    refuse_json(f, "{\"n\":3,\"cols\":{},\"y\":{},\"w\":[1,2,30]}", "$.w[2]: weight 30 is above");
    refuse_json(f, "{\"shared\":{},\"items\":[{\"f\":{},\"y\":{}},{\"f\":{},\"y\":{},\"w\":30}]}", "$.w[1]: weight 30");
    f->schema.conf.ingest.sampling = FR_SAMPLING_NONE; /* nothing is divided by s */
    fixture_renew(f);
    accept_json(f, "{\"f\":{},\"y\":{},\"w\":20,\"s\":1e-9}");
}

FR_CASE(scores_are_asked_for_without_bounds)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.dense_max = 3.0f;
    f->schema.conf.ingest.weight_max = 3.0f;
    fixture_renew(f);
    fr_decoder_free(f->decoder);
    f->decoder = fr_decoder_new_scoring(&f->schema.conf, FR_FORMAT_JSON);
    accept_json(f, "{\"f\":{\"vec\":[1e30,0,0]},\"w\":1e9}");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(steps_are_applied_in_their_order_in_every_column),
        CASE(missing_numbers_are_nan_where_the_network_has_to_know),
        CASE(times_keep_their_seconds_but_in_packed_columns),
        CASE(a_number_is_bounded_as_the_network_reads_it),
        CASE(clip_makes_a_number_one_within_bounds),
        CASE(what_only_buckets_read_has_no_bound),
        CASE(weights_are_bounded_with_and_without_their_keep_rate),
        CASE(scores_are_asked_for_without_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
