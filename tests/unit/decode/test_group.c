/* Groups: inheritance, the rule for shared columns, batches that end between groups. */
#include "fixture.h"

#include <math.h>

#include "base/math.h"

/* A group of n items: user_id shared; item ids first, first + 1, ..; with item_price each item has
 * a price. */
static const char *group_of(char *text, int n, int first, bool item_price)
{
    int at = sprintf(text, "{\"shared\":{\"user_id\":%d},\"items\":[", 100 + first);
    for (int i = 0; i < n; i++)
        at += sprintf(text + at, "%s{\"f\":{\"item_id\":%d%s},\"y\":[%d]}", i ? "," : "", first + i,
                      item_price ? ",\"price\":1" : "", i % 2);
    sprintf(text + at, "]}");
    return text;
}

static void accept_group(struct fixture *f, int n, int first)
{
    char text[1024];
    assert_int_equal(accept_json(f, group_of(text, n, first, false)), n);
}

FR_CASE(a_group_shares_its_slots_and_time)
{
    struct fixture *f = *state;
    accept_json(f, "{\"id\":[7],\"t\":1600000000000,\"shared\":{\"user_id\":[1,2],\"vec\":[1,2,3]},\"items\":["
                   "{\"f\":{\"item_id\":5},\"y\":[1],\"id\":8},"
                   "{\"f\":{\"item_id\":6,\"price\":1},\"y\":[0],\"t\":1600000000001,\"w\":2,\"u\":1,\"s\":0.5}]}");
    const struct fr_batch *b = f->batch;
    assert_int_equal(b->n_samples, 2);
    assert_int_equal(b->n_groups, 1);
    assert_int_equal(b->group_begin[1], 2);
    assert_int_equal(b->group_of[1], 0);
    assert_true(b->t_ms[0] == 1600000000000 && b->t_ms[1] == 1600000000001);
    assert_true(b->columns[SLOT_USER_ID].shared && b->columns[SLOT_VEC].shared);
    assert_false(b->columns[SLOT_ITEM_ID].shared || b->columns[SLOT_PRICE].shared);
    assert_int_equal(n_ids(f, SLOT_USER_ID, 0), 2);
    assert_int_equal(b->columns[SLOT_ITEM_ID].begin[2], 2);
    assert_true(b->columns[SLOT_PRICE].dense[0] == 0.0f && b->columns[SLOT_PRICE].dense[1] == fr_log1pf(1.0f));
    assert_true(b->columns[SLOT_VEC].dense[2] == 3.0f);
    assert_true(weight_at(f, LABEL_CLICK, 1) == 2.0f && b->keep[1] == 0.5f && b->use[1] == 1);
}

FR_CASE(a_groups_time_may_come_after_its_items)
{
    struct fixture *f = *state;
    accept_json(f, "{\"items\":[{\"f\":{},\"y\":[1]},{\"f\":{},\"y\":[1],\"t\":1500000000000}],\"t\":1600000000000,"
                   "\"shared\":{\"user_id\":3}}");
    assert_true(f->batch->t_ms[0] == 1600000000000 && f->batch->t_ms[1] == 1500000000000);
    assert_int_equal(key_at(f, SLOT_USER_ID, 0, 0), integer_key(f, SLOT_USER_ID, 3));
}

FR_CASE(without_a_time_a_groups_samples_have_the_kafka_timestamp)
{
    struct fixture *f = *state;
    accept_group(f, 2, 0);
    assert_true(f->batch->t_ms[0] == TIMESTAMP_MS && f->batch->t_ms[1] == TIMESTAMP_MS);
}

FR_CASE(a_slot_absent_on_both_levels_is_shared)
{
    struct fixture *f = *state;
    accept_json(f, "{\"shared\":{\"user_id\":1},\"items\":[{\"f\":{\"history\":null},\"y\":[1]},"
                   "{\"f\":{\"history\":[]},\"y\":[1]}]}");
    for (int s = 0; s < N_SLOTS; s++)
        assert_true(f->batch->columns[s].shared);
    assert_int_equal(fr_batch_entries(f->batch, SLOT_HISTORY), 1);
    assert_int_equal(n_ids(f, SLOT_HISTORY, 0), 0);
    assert_true(f->batch->columns[SLOT_VEC].dense[0] == 0.5f);
}

FR_CASE(nothing_is_shared_while_all_groups_have_one_sample)
{
    struct fixture *f = *state;
    accept_group(f, 1, 0);
    accept_json(f, "[{\"f\":{\"user_id\":7},\"y\":[1]},{\"shared\":{\"price\":2},\"items\":[{\"f\":{},\"y\":[1]}]}]");
    assert_int_equal(f->batch->n_groups, 3);
    for (int s = 0; s < N_SLOTS; s++)
        assert_false(f->batch->columns[s].shared);
    assert_int_equal(key_at(f, SLOT_USER_ID, 0, 0), integer_key(f, SLOT_USER_ID, 100));
    assert_int_equal(key_at(f, SLOT_USER_ID, 1, 0), integer_key(f, SLOT_USER_ID, 7));
    assert_true(f->batch->columns[SLOT_PRICE].dense[2] == fr_log1pf(2.0f));
}

FR_CASE(single_samples_before_and_after_leave_a_column_shared)
{
    struct fixture *f = *state;
    accept_json(f, "{\"f\":{\"user_id\":1,\"item_id\":1},\"y\":[1]}");
    accept_group(f, 3, 10);
    accept_json(f, "{\"f\":{\"user_id\":2},\"y\":[1]}");
    accept_group(f, 1, 20);
    const struct fr_batch *b = f->batch;
    const uint32_t begin[] = {0, 1, 4, 5, 6}, of[] = {0, 1, 1, 1, 2, 3};
    assert_int_equal(b->n_groups, 4);
    assert_memory_equal(b->group_begin, begin, sizeof(begin));
    assert_memory_equal(b->group_of, of, sizeof(of));
    assert_true(b->columns[SLOT_USER_ID].shared);
    assert_int_equal(fr_batch_entries(b, SLOT_USER_ID), 4);
    const int ids[] = {1, 110, 2, 120};
    for (uint32_t g = 0; g < 4; g++)
        assert_int_equal(key_at(f, SLOT_USER_ID, g, 0), integer_key(f, SLOT_USER_ID, ids[g]));
    assert_int_equal(b->columns[SLOT_ITEM_ID].begin[6], 5);
}

FR_CASE(a_later_group_with_values_of_its_own_expands_a_column)
{
    struct fixture *f = *state;
    accept_json(f, "{\"shared\":{\"user_id\":{\"i\":[1,2],\"w\":[3,4]},\"vec\":[1,2,3],\"price\":1},\"items\":["
                   "{\"f\":{},\"y\":[1]},{\"f\":{},\"y\":[1]}]}");
    accept_json(f, "{\"f\":{\"price\":2},\"y\":[1]}");
    assert_true(f->batch->columns[SLOT_USER_ID].shared && f->batch->columns[SLOT_VEC].shared);
    accept_json(f,
                "{\"shared\":{},\"items\":[{\"f\":{\"user_id\":5,\"vec\":[4,5,6]},\"y\":[1]},{\"f\":{},\"y\":[1]}]}");
    const struct fr_batch *b = f->batch;
    assert_false(b->columns[SLOT_USER_ID].shared || b->columns[SLOT_VEC].shared);
    assert_true(b->columns[SLOT_PRICE].shared);
    const uint32_t begin[] = {0, 2, 4, 4, 5, 5};
    const float weights[] = {3, 4, 3, 4, 1};
    const float vec[] = {1, 2, 3, 1, 2, 3, 0.5f, 0.5f, 0.5f, 4, 5, 6, 0.5f, 0.5f, 0.5f};
    assert_memory_equal(b->columns[SLOT_USER_ID].begin, begin, sizeof(begin));
    assert_memory_equal(b->columns[SLOT_USER_ID].weights, weights, sizeof(weights));
    assert_memory_equal(b->columns[SLOT_VEC].dense, vec, sizeof(vec));
    assert_int_equal(key_at(f, SLOT_USER_ID, 1, 1), integer_key(f, SLOT_USER_ID, 2));
    assert_true(b->columns[SLOT_PRICE].dense[1] == fr_log1pf(2.0f) && b->columns[SLOT_PRICE].dense[2] == 0.0f);
}

FR_CASE(an_expanded_column_stays_so_and_copies_later_shared_values)
{
    struct fixture *f = *state;
    accept_json(f, "{\"shared\":{},\"items\":[{\"f\":{\"user_id\":1},\"y\":[1]},{\"f\":{},\"y\":[1]}]}");
    accept_group(f, 3, 0);
    const uint32_t begin[] = {0, 1, 1, 2, 3, 4};
    assert_false(f->batch->columns[SLOT_USER_ID].shared);
    assert_memory_equal(f->batch->columns[SLOT_USER_ID].begin, begin, sizeof(begin));
    assert_int_equal(key_at(f, SLOT_USER_ID, 4, 0), integer_key(f, SLOT_USER_ID, 100));
}

FR_CASE(a_cleared_batch_decides_again)
{
    struct fixture *f = *state;
    accept_group(f, 2, 0);
    fr_batch_clear(f->batch);
    assert_false(f->batch->columns[SLOT_USER_ID].shared);
    accept_json(f, "{\"shared\":{},\"items\":[{\"f\":{\"user_id\":1},\"y\":[1]},{\"f\":{\"user_id\":2},\"y\":[1]}]}");
    assert_false(f->batch->columns[SLOT_USER_ID].shared);
    assert_true(f->batch->columns[SLOT_ITEM_ID].shared);
}

FR_CASE(a_group_is_never_split)
{
    struct fixture *f = *state;
    char text[4096] = "[", one[1024];
    static const int sizes[] = {1, 3, 2, 5, 1}; /* ends: 1 4 6 11 12 */
    for (int g = 0; g < 5; g++) {
        strcat(text, group_of(one, sizes[g], 10 * g, false));
        strcat(text, g < 4 ? "," : "]");
    }
    uint32_t n;
    assert_int_equal(decode_bytes(f, text, strlen(text), &n), FR_OK);
    assert_int_equal(n, 12);
    static const uint32_t cases[][3] = {{0, 1, 1},   {0, 2, 4},  {0, 4, 4}, {0, 5, 6},   {1, 1, 3},  {4, 1, 2},
                                        {6, 1, 5},   {6, 5, 5},  {6, 6, 6}, {6, 100, 6}, {12, 3, 0}, {11, 1, 1},
                                        {0, 11, 11}, {0, 7, 11}, {5, 1, 1}, {7, 2, 4}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(fr_decode_take(f->decoder, cases[i][0], cases[i][1]), cases[i][2]);
}

FR_CASE(the_rest_of_a_group_is_a_group)
{
    struct fixture *f = *state;
    uint32_t n;
    char text[1024];
    group_of(text, 4, 0, false);
    assert_int_equal(decode_bytes(f, text, strlen(text), &n), FR_OK);
    fr_decode_append(f->decoder, 2, fr_decode_take(f->decoder, 2, 100), f->batch);
    assert_int_equal(f->batch->n_groups, 1);
    assert_int_equal(f->batch->group_begin[1], 2);
    assert_true(f->batch->columns[SLOT_USER_ID].shared);
    fr_decode_append(f->decoder, 3, 1, f->batch); /* a group of one */
    assert_int_equal(key_at(f, SLOT_USER_ID, 1, 0), integer_key(f, SLOT_USER_ID, 100));
    assert_int_equal(key_at(f, SLOT_ITEM_ID, 2, 0), integer_key(f, SLOT_ITEM_ID, 3));
}

FR_CASE(the_rest_of_a_group_is_copied_to_an_expanded_column)
{
    struct fixture *f = *state;
    uint32_t n;
    char text[2048];
    accept_json(f, "{\"shared\":{},\"items\":[{\"f\":{\"user_id\":1},\"y\":[1]},{\"f\":{},\"y\":[1]}]}");
    char one[512], two[512];
    snprintf(text, sizeof(text), "[%s,%s]", group_of(one, 4, 0, false), group_of(two, 2, 50, false));
    assert_int_equal(decode_bytes(f, text, strlen(text), &n), FR_OK);
    fr_decode_append(f->decoder, 1, 5, f->batch);
    const uint32_t begin[] = {0, 1, 1, 2, 3, 4, 5, 6};
    const int ids[] = {100, 100, 100, 150, 150};
    assert_int_equal(f->batch->n_samples, 7);
    assert_memory_equal(f->batch->columns[SLOT_USER_ID].begin, begin, sizeof(begin));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(key_at(f, SLOT_USER_ID, 2 + i, 0), integer_key(f, SLOT_USER_ID, ids[i]));
    assert_int_equal(key_at(f, SLOT_ITEM_ID, 2, 0), integer_key(f, SLOT_ITEM_ID, 1));
}

FR_CASE(a_default_without_image_may_come_from_either_level)
{
    struct fixture *f = *state;
    f->schema.slots[SLOT_PRICE].default_value = -1.0f;
    fixture_renew(f);
    accept_json(f, "{\"shared\":{\"price\":1},\"items\":[{\"f\":{},\"y\":[1]},{\"f\":{},\"y\":[1]}]}");
    accept_json(f, "{\"shared\":{},\"items\":[{\"f\":{\"price\":1},\"y\":[1]},{\"f\":{\"price\":2},\"y\":[1]}]}");
    refuse_json(f, "{\"shared\":{},\"items\":[{\"f\":{\"price\":1},\"y\":[1]},{\"f\":{},\"y\":[1]}]}",
                "price: absent, and the slot's default has no log1p");
    refuse_json(f, "{\"shared\":{\"price\":null},\"items\":[{\"f\":{},\"y\":[1]}]}",
                "$.shared.price: nil, and the slot's default has no log1p");
}

FR_CASE(group_max_items_are_accepted)
{
    struct fixture *f = *state;
    accept_group(f, 6, 0);
    char text[2048];
    refuse_json(f, group_of(text, 7, 0, false), "$.items[6]: more than the 6 samples of ingest.group_max");
    f->schema.conf.ingest.group_max = 0;
    fixture_renew(f);
    accept_group(f, 7, 0); /* 4096 by default */
}

FR_CASE(unknown_keys_of_groups_are_counted_once)
{
    struct fixture *f = *state;
    accept_json(f,
                "{\"x_a\":1,\"items\":[{\"f\":{\"no\":1},\"y\":[1],\"x_a\":2},{\"f\":{\"no\":1},\"y\":[1]}],\"x_b\":{},"
                "\"shared\":{\"no\":1,\"user_id\":2}}");
    assert_int_equal(f->batch->unknown_keys, 3);
    assert_int_equal(f->batch->unknown_slots, 3);
}

FR_CASE(a_groups_keys_are_distinguished_around_its_items)
{
    struct fixture *f = *state;
    refuse_json(
        f, "{\"x_a\":1,\"x_longer\":1,\"shared\":{},\"items\":[{\"f\":{},\"y\":[1],\"x_between\":2}],\"x_longer\":2}",
        "$: duplicate key \"x_longer\"");
}

FR_CASE(a_record_whose_copies_would_be_huge_is_refused)
{
    struct fixture *f = *state;
    enum { IDS = 65536, ITEMS = 1025 };
    f->schema.conf.ingest.record_max = 1 << 20;
    f->schema.conf.ingest.group_max = 65536;
    f->schema.slots[SLOT_USER_ID].max_ids = 65536;
    fixture_renew(f);
    for (int block = 0; block < 2; block++) {
        struct fr_buffer text = {0};
        fr_buffer_printf(&text, block ? "{\"shared\":{\"user_id\":[[1" : "{\"shared\":{\"user_id\":[1");
        for (int i = 1; i < IDS; i++)
            fr_buffer_printf(&text, ",1");
        if (block)
            fr_buffer_printf(&text, "]]},\"g\":[%d],\"n\":%d,\"cols\":{},\"y\":{}}", ITEMS, ITEMS);
        else
            fr_buffer_printf(&text, "]},\"items\":[{\"f\":{},\"y\":[]}");
        for (int i = 1; i < ITEMS && !block; i++)
            fr_buffer_printf(&text, ",{\"f\":{},\"y\":[]}");
        fr_buffer_printf(&text, block ? " " : "]}");
        fr_put_u8(&text, 0);
        refuse_json(f, (const char *)text.data,
                    "$.shared.user_id: 67174400 ids when the samples of its groups are written");
        fr_buffer_release(&text);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_group_shares_its_slots_and_time),
        CASE(a_groups_time_may_come_after_its_items),
        CASE(without_a_time_a_groups_samples_have_the_kafka_timestamp),
        CASE(a_slot_absent_on_both_levels_is_shared),
        CASE(nothing_is_shared_while_all_groups_have_one_sample),
        CASE(single_samples_before_and_after_leave_a_column_shared),
        CASE(a_later_group_with_values_of_its_own_expands_a_column),
        CASE(an_expanded_column_stays_so_and_copies_later_shared_values),
        CASE(a_cleared_batch_decides_again),
        CASE(a_group_is_never_split),
        CASE(the_rest_of_a_group_is_a_group),
        CASE(the_rest_of_a_group_is_copied_to_an_expanded_column),
        CASE(a_default_without_image_may_come_from_either_level),
        CASE(group_max_items_are_accepted),
        CASE(unknown_keys_of_groups_are_counted_once),
        CASE(a_groups_keys_are_distinguished_around_its_items),
        CASE(a_record_whose_copies_would_be_huge_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
