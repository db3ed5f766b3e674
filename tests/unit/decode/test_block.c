/* Blocks: array and packed columns mean what the same samples mean. */
#include "fixture.h"

#include <math.h>

#include "base/math.h"
#include "writer.h"

FR_CASE(a_block_of_arrays_takes_every_value_form)
{
    struct fixture *f = *state;
    accept_json(f, "{\"n\":4,\"cols\":{\"user_id\":[1,null,[2,\"3\"],{\"i\":[4],\"w\":[0.5]}],"
                   "\"history\":[[1,2,3,4,5,6],[],7,null],\"price\":[1,[2],null,3.5],"
                   "\"vec\":[[1,2,3],null,[4,5,6],[7,8,9]],\"strange\":[1]},"
                   "\"y\":{\"click\":[1,0,null,true],\"buy\":[0.5,null,null,0]},\"x_note\":[]}");
    const struct fr_batch *b = f->batch;
    assert_int_equal(b->n_samples, 4);
    assert_int_equal(b->n_groups, 4);
    const uint32_t user[] = {0, 1, 1, 3, 4}, history[] = {0, 5, 5, 6, 6};
    assert_memory_equal(b->columns[SLOT_USER_ID].begin, user, sizeof(user));
    assert_memory_equal(b->columns[SLOT_HISTORY].begin, history, sizeof(history));
    assert_int_equal(key_at(f, SLOT_USER_ID, 2, 1), integer_key(f, SLOT_USER_ID, 3));
    assert_int_equal(key_at(f, SLOT_HISTORY, 0, 0), integer_key(f, SLOT_HISTORY, 2));
    assert_true(b->columns[SLOT_USER_ID].weights[0] == 1.0f && b->columns[SLOT_USER_ID].weights[3] == 0.5f);
    assert_true(b->columns[SLOT_PRICE].dense[1] == fr_log1pf(2.0f) && b->columns[SLOT_PRICE].dense[2] == 0.0f);
    assert_true(b->columns[SLOT_VEC].dense[3] == 0.5f && b->columns[SLOT_VEC].dense[11] == 9.0f);
    assert_true(isnan(label_at(f, LABEL_CLICK, 2)) && label_at(f, LABEL_CLICK, 3) == 1.0f);
    assert_true(label_at(f, LABEL_BUY, 0) == 0.5f);
    const uint8_t roles[] = {FR_ROLE_TRAIN, FR_ROLE_TRAIN, FR_ROLE_MASKED, FR_ROLE_TRAIN};
    assert_memory_equal(b->role, roles, sizeof(roles));
    assert_int_equal(b->unknown_slots, 4); /* of samples, not columns */
    assert_int_equal(b->unknown_keys, 1);
    assert_int_equal(b->excess_ids, 0);
}

FR_CASE(a_blocks_fields_are_columns)
{
    struct fixture *f = *state;
    accept_json(f, "{\"y\":{\"click\":[1,1]},\"t\":[1600000000000,1600000000001],\"w\":[2,{\"buy\":3}],\"u\":[1,2],"
                   "\"s\":[0.5,1],\"cols\":{},\"n\":2}");
    const struct fr_batch *b = f->batch;
    assert_true(b->t_ms[0] == 1600000000000 && b->t_ms[1] == 1600000000001);
    assert_true(weight_at(f, LABEL_CLICK, 0) == 2.0f && weight_at(f, LABEL_BUY, 0) == 2.0f);
    assert_true(weight_at(f, LABEL_CLICK, 1) == 1.0f && weight_at(f, LABEL_BUY, 1) == 3.0f);
    assert_true(weight_at(f, LABEL_BOUGHT, 1) == 3.0f);
    assert_true(b->use[0] == 1 && b->use[1] == 2 && b->keep[0] == 0.5f && b->keep[1] == 1.0f);
    assert_int_equal(b->role[1], FR_ROLE_METRICS_ONLY);
}

FR_CASE(one_event_time_serves_all_and_none_means_kafkas)
{
    struct fixture *f = *state;
    accept_json(f, "{\"n\":2,\"cols\":{},\"y\":{},\"t\":1600000000000}");
    accept_json(f, "{\"n\":1,\"cols\":{},\"y\":{}}");
    assert_true(f->batch->t_ms[0] == 1600000000000 && f->batch->t_ms[1] == 1600000000000);
    assert_true(f->batch->t_ms[2] == TIMESTAMP_MS);
}

FR_CASE(g_makes_groups_with_shared_columns)
{
    struct fixture *f = *state;
    accept_json(f, "{\"n\":4,\"shared\":{\"user_id\":[1,[2,3]],\"price\":[1,null]},\"g\":[3,1],"
                   "\"cols\":{\"item_id\":[5,6,7,8]},\"y\":{\"click\":[1,0,1,0]}}");
    const struct fr_batch *b = f->batch;
    const uint32_t begin[] = {0, 3, 4}, of[] = {0, 0, 0, 1};
    assert_int_equal(b->n_groups, 2);
    assert_memory_equal(b->group_begin, begin, sizeof(begin));
    assert_memory_equal(b->group_of, of, sizeof(of));
    assert_true(b->columns[SLOT_USER_ID].shared && b->columns[SLOT_PRICE].shared && b->columns[SLOT_VEC].shared);
    assert_false(b->columns[SLOT_ITEM_ID].shared);
    assert_int_equal(n_ids(f, SLOT_USER_ID, 1), 2);
    assert_true(b->columns[SLOT_PRICE].dense[0] == fr_log1pf(1.0f) && b->columns[SLOT_PRICE].dense[1] == 0.0f);
    assert_int_equal(fr_decode_take(f->decoder, 0, 2), 3);
}

FR_CASE(what_a_block_carries_is_counted_by_samples)
{
    struct fixture *f = *state;
    uint64_t present[N_SLOTS] = {0};
    accept_json(f, "{\"n\":4,\"shared\":{\"user_id\":[1,null],\"usr\":[1,2]},\"g\":[3,1],"
                   "\"cols\":{\"item_id\":[5,null,7,8],\"itm\":[1,2,3,4]},\"y\":{\"click\":[1,0,1,0]}}");
    assert_int_equal(f->batch->unknown_slots, 6);
    fr_decode_present(f->decoder, 0, 4, present);
    assert_int_equal(present[SLOT_USER_ID], 3);
    assert_int_equal(present[SLOT_ITEM_ID], 3);
    assert_int_equal(present[SLOT_PRICE], 0);
    fr_decode_present(f->decoder, 3, 1, present);
    assert_int_equal(present[SLOT_USER_ID], 3);
    assert_int_equal(present[SLOT_ITEM_ID], 4);
    assert_int_equal(fr_decoder_unknown(f->decoder)->slots.n, 2);
    assert_string_equal(fr_decoder_unknown(f->decoder)->slots.names[0], "usr");
    assert_string_equal(fr_decoder_unknown(f->decoder)->slots.names[1], "itm");
}

FR_CASE(an_empty_block_is_a_record_without_samples)
{
    struct fixture *f = *state;
    assert_int_equal(accept_json(f, "{\"n\":0,\"cols\":{\"user_id\":[]},\"y\":{\"click\":[]}}"), 0);
    assert_int_equal(accept_json(f, "{\"n\":0,\"cols\":{},\"y\":{},\"g\":[],\"shared\":{\"user_id\":[]}}"), 0);
}

FR_CASE(a_block_may_lack_labels_when_scoring)
{
    struct fixture *f = *state;
    struct fr_decoder *decoder = fr_decoder_new_scoring(&f->schema.conf, FR_FORMAT_JSON);
    static const char text[] = "{\"n\":2,\"g\":[2],\"shared\":{\"user_id\":[1]},\"cols\":{\"item_id\":[1,2]}}";
    struct fr_record record = {text, sizeof(text) - 1, 0, 0};
    uint32_t n = 0;
    assert_int_equal(fr_decode_record(decoder, &record, &n, &f->reason), FR_OK);
    assert_int_equal(n, 2);
    fr_decoder_free(decoder);
}

FR_CASE(a_block_needs_the_slots_without_a_usable_default)
{
    struct fixture *f = *state;
    f->schema.slots[SLOT_PRICE].default_value = -1.0f;
    fixture_renew(f);
    accept_json(f, "{\"n\":2,\"cols\":{\"price\":[1,2]},\"y\":{}}");
    accept_json(f, "{\"n\":2,\"cols\":{},\"g\":[1,1],\"shared\":{\"price\":[1,2]},\"y\":{}}");
    refuse_json(f, "{\"n\":2,\"cols\":{},\"y\":{}}", "$.cols.price: absent, and the slot's default has no log1p");
    refuse_json(f, "{\"n\":2,\"cols\":{\"price\":[1,null]},\"y\":{}}", "$.cols.price[1]: nil, and the slot's default");
}

/* ---- packed ---- */

FR_FIXTURE(msgpack_setup)
{
    fixture_setup(state);
    struct fixture *f = *state;
    f->schema.conf.ingest.format = FR_FORMAT_MSGPACK;
    fixture_renew(f);
    return 0;
}

static void accept_bytes(struct fixture *f, struct writer *w)
{
    uint32_t n = 0;
    if (decode_bytes(f, w->out.data, w->out.size, &n) != FR_OK)
        fail_msg("%s", f->reason);
    fr_decode_append(f->decoder, 0, n, f->batch);
    fr_buffer_release(&w->out);
}

/* A packed map's key and bin. */
static void put(struct writer *w, const char *key, const void *bytes, size_t size)
{
    write_string(w, key);
    write_bin(w, bytes, size);
}

#define PUT(w, key, values) put(w, key, values, sizeof(values))

FR_CASE(packed_ids_are_little_endian_u64)
{
    struct fixture *f = *state;
    struct writer w = {.format = FR_FORMAT_MSGPACK};
    const uint64_t one_each[] = {7, UINT64_MAX, 0}, several[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const uint32_t lengths[] = {6, 0, 3};
    const float weights[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    write_map(&w, 3);
    write_string(&w, "n");
    write_integer(&w, 3);
    write_string(&w, "cols");
    write_map(&w, 3);
    write_string(&w, "user_id");
    write_map(&w, 1);
    PUT(&w, "b", one_each);
    write_string(&w, "history");
    write_map(&w, 3);
    PUT(&w, "w", weights);
    PUT(&w, "l", lengths);
    PUT(&w, "b", several);
    write_integer(&w, 7); /* context by its index; max_ids 4 */
    write_map(&w, 2);
    PUT(&w, "l", lengths);
    PUT(&w, "b", several);
    write_string(&w, "y");
    write_map(&w, 0);
    accept_bytes(f, &w);
    const struct fr_batch *b = f->batch;
    const uint32_t history[] = {0, 5, 5, 8}, context[] = {0, 4, 4, 7};
    const float kept[] = {2, 3, 4, 5, 6, 7, 8, 9};
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(key_at(f, SLOT_USER_ID, i, 0), integer_key(f, SLOT_USER_ID, (int64_t)one_each[i]));
    assert_null(b->columns[SLOT_USER_ID].weights);
    assert_memory_equal(b->columns[SLOT_HISTORY].begin, history, sizeof(history));
    assert_memory_equal(b->columns[SLOT_HISTORY].weights, kept, sizeof(kept));
    assert_memory_equal(b->columns[SLOT_CONTEXT].begin, context, sizeof(context));
    assert_int_equal(key_at(f, SLOT_HISTORY, 2, 2), integer_key(f, SLOT_HISTORY, 9));
    assert_int_equal(key_at(f, SLOT_CONTEXT, 0, 0), integer_key(f, SLOT_CONTEXT, 3));
    /* of context; a history that is cut to max_len has no excess */
    assert_int_equal(b->excess_ids, 2);
}

FR_CASE(packed_strings_are_ids_like_any_string)
{
    struct fixture *f = *state;
    struct writer w = {.format = FR_FORMAT_MSGPACK};
    static const char text[] = "5abc-7Gr\xc3\xbc\xc3\x9f";
    const uint32_t sizes[] = {1, 3, 2, 6, 0}, lengths[] = {2, 3};
    write_map(&w, 3);
    write_string(&w, "n");
    write_integer(&w, 2);
    write_string(&w, "y");
    write_map(&w, 0);
    write_string(&w, "cols");
    write_map(&w, 2);
    for (int raw = 0; raw < 2; raw++) {
        write_string(&w, raw ? "item_id" : "user_id");
        write_map(&w, 3);
        PUT(&w, "l", lengths);
        PUT(&w, "sl", sizes);
        put(&w, "s", text, sizeof(text) - 1);
    }
    accept_bytes(f, &w);
    assert_int_equal(key_at(f, SLOT_USER_ID, 0, 0), integer_key(f, SLOT_USER_ID, 5));
    assert_int_equal(key_at(f, SLOT_USER_ID, 1, 0), integer_key(f, SLOT_USER_ID, -7));
    uint64_t seed = f->schema.slots[SLOT_ITEM_ID].seed;
    assert_int_equal(key_at(f, SLOT_ITEM_ID, 0, 0), fr_xxh3_seed("5", 1, seed));
    assert_int_equal(key_at(f, SLOT_ITEM_ID, 0, 1), fr_xxh3_seed("abc", 3, seed));
    assert_int_equal(key_at(f, SLOT_ITEM_ID, 1, 1), fr_xxh3_seed(text + 6, 6, seed));
    assert_int_equal(key_at(f, SLOT_ITEM_ID, 1, 2), fr_xxh3_seed("", 0, seed));
}

FR_CASE(packed_numbers_and_fields)
{
    struct fixture *f = *state;
    struct writer w = {.format = FR_FORMAT_MSGPACK};
    const float price[] = {1, 3}, vec[] = {1, 2, 3, 4, 5, 6}, click[] = {1, NAN}, weight[] = {0, 2},
                keep[] = {1, 0.25f};
    const int64_t t_ms[] = {1600000000000, 1600000000001};
    const uint8_t use[] = {3, 2};
    const uint32_t groups[] = {2};
    const uint64_t user[] = {9};
    write_map(&w, 9);
    write_string(&w, "n");
    write_integer(&w, 2);
    write_string(&w, "cols");
    write_map(&w, 2);
    write_string(&w, "price");
    write_map(&w, 1);
    PUT(&w, "b", price);
    write_string(&w, "vec");
    write_map(&w, 1);
    PUT(&w, "b", vec);
    write_string(&w, "y");
    write_map(&w, 1);
    write_string(&w, "click");
    write_map(&w, 1);
    PUT(&w, "b", click);
    static const char *const names[] = {"t", "u", "w", "s", "g"};
    const void *const bytes[] = {t_ms, use, weight, keep, groups};
    const size_t sizes[] = {sizeof(t_ms), sizeof(use), sizeof(weight), sizeof(keep), sizeof(groups)};
    for (int i = 0; i < 5; i++) {
        write_string(&w, names[i]);
        write_map(&w, 1);
        put(&w, "b", bytes[i], sizes[i]);
    }
    write_string(&w, "shared");
    write_map(&w, 1);
    write_string(&w, "user_id");
    write_map(&w, 1);
    PUT(&w, "b", user);
    accept_bytes(f, &w);
    const struct fr_batch *b = f->batch;
    assert_true(b->columns[SLOT_PRICE].dense[0] == fr_log1pf(1.0f) &&
                b->columns[SLOT_PRICE].dense[1] == fr_log1pf(3.0f));
    assert_memory_equal(b->columns[SLOT_VEC].dense, vec, sizeof(vec));
    assert_true(label_at(f, LABEL_CLICK, 0) == 1.0f && isnan(label_at(f, LABEL_CLICK, 1)));
    assert_memory_equal(b->t_ms, t_ms, sizeof(t_ms));
    assert_memory_equal(b->use, use, sizeof(use));
    assert_memory_equal(b->keep, keep, sizeof(keep));
    assert_true(weight_at(f, LABEL_BUY, 0) == 0.0f && weight_at(f, LABEL_BUY, 1) == 2.0f);
    assert_int_equal(b->n_groups, 1);
    assert_true(b->columns[SLOT_USER_ID].shared);
    assert_int_equal(key_at(f, SLOT_USER_ID, 0, 0), integer_key(f, SLOT_USER_ID, 9));
}

FR_CASE(standardize_and_bucketize_are_the_networks)
{
    struct fixture *f = *state;
    static float boundaries[] = {1, 2};
    f->schema.conf.ingest.format = FR_FORMAT_JSON;
    f->schema.slots[SLOT_PRICE].n_steps = 0;
    f->schema.slots[SLOT_PRICE].transform = FR_TRANSFORM_STANDARDIZE;
    f->schema.slots[SLOT_PRICE].has_default = true;
    f->schema.slots[SLOT_PRICE].default_value = -3.0f;
    f->schema.slots[SLOT_VEC].transform = FR_TRANSFORM_BUCKETIZE;
    f->schema.slots[SLOT_VEC].n_boundaries = 2;
    f->schema.slots[SLOT_VEC].boundaries = boundaries;
    fixture_renew(f);
    accept_json(f, "{\"n\":2,\"cols\":{\"price\":[-5,null],\"vec\":[[-1,1.5,7],null]},\"y\":{}}");
    const float price[] = {-5, -3}, vec[] = {-1, 1.5f, 7, 0.5f, 0.5f, 0.5f};
    assert_memory_equal(f->batch->columns[SLOT_PRICE].dense, price, sizeof(price));
    assert_memory_equal(f->batch->columns[SLOT_VEC].dense, vec, sizeof(vec));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
#define PACKED(name) cmocka_unit_test_setup_teardown(name, msgpack_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_block_of_arrays_takes_every_value_form),
        CASE(a_blocks_fields_are_columns),
        CASE(one_event_time_serves_all_and_none_means_kafkas),
        CASE(g_makes_groups_with_shared_columns),
        CASE(what_a_block_carries_is_counted_by_samples),
        CASE(an_empty_block_is_a_record_without_samples),
        CASE(a_block_may_lack_labels_when_scoring),
        CASE(a_block_needs_the_slots_without_a_usable_default),
        PACKED(packed_ids_are_little_endian_u64),
        PACKED(packed_strings_are_ids_like_any_string),
        PACKED(packed_numbers_and_fields),
        CASE(standardize_and_bucketize_are_the_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
