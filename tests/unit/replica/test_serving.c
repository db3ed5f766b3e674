/* What a replica serves: scores and the dump. */
#include <math.h>

#include "history.h"

static uint64_t id_key(const char *name_space, uint64_t id)
{
    return fr_fmix64(id ^ fr_xxh3(name_space, strlen(name_space)));
}

/* Rows: user 1 (0.5, -1); items 7 (w 0.25; 1, 2), 8 (w 4; 3, 4). */
static struct history *scoring_history(void)
{
    static float user[3] = {0.5f, -1.0f}, seven[3] = {0.25f, 1.0f, 2.0f}, eight[3] = {4.0f, 3.0f, 4.0f};
    struct history *h = history_new(0);
    h->rows[0] = (struct fr_delta_row){.key = id_key("user", 1), .table = 0, .values = user};
    h->rows[1] = (struct fr_delta_row){.key = id_key("item", 7), .table = 1, .values = seven};
    h->rows[2] = (struct fr_delta_row){.key = id_key("item", 8), .table = 1, .values = eight};
    h->n_rows = 3;
    static const float kernel[KERNEL] = {1.0f, 2.0f, 0.5f, -0.25f, 0.125f, -0.5f, 0.0625f};
    memcpy(h->kernel, kernel, sizeof(kernel));
    h->bias[0] = 0.375f;
    history_write(h, &(struct write_options){.model = true});
    return h;
}

static double probability(double logit)
{
    return 1.0 / (1.0 + exp(-logit));
}

static float score_one(struct freshet_replica *replica, const char *json)
{
    float score = -1;
    uint32_t n = 1;
    int status = freshet_replica_score_json(replica, json, strlen(json), &score, &n);
    if (status != FRESHET_OK)
        print_error("%s: %s\n", json, freshet_replica_score_problem(replica));
    assert_int_equal(status, FRESHET_OK);
    assert_int_equal(n, 1);
    return score;
}

FR_CASE(scores_are_those_of_the_formula)
{
    struct history *h = scoring_history();
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, h->n_topic);
    assert_int_equal(freshet_replica_tasks(replica), 1);
    assert_string_equal(freshet_replica_task_name(replica, 0), "click");
    assert_string_equal(freshet_replica_task_name(replica, 1), "");
    assert_string_equal(freshet_replica_trained_kernel(replica), "some kernel");
    /* user -1.5, item 7 (0.5 - 0.5), history mean of 7 and 8 (2, 3) 0.25 - 1.5, price 2 * 0.0625,
     * bias 0.375, w 0.25 */
    double logit = -1.5 + 0.0 + 0.25 - 1.5 + 0.125 + 0.375 + 0.25;
    float score = score_one(replica, "{\"f\":{\"user_id\":1,\"item_id\":7,\"history\":[7,8],\"price\":2}}");
    assert_true(fabs((double)score - probability(logit)) < 1e-6);
    /* unknown ids and missing slots are zeros; a label may be there */
    score = score_one(replica, "{\"f\":{\"user_id\":99,\"item_id\":98},\"y\":{\"click\":1}}");
    assert_true(fabs((double)score - probability(0.375)) < 1e-6);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(a_batch_scores_as_its_samples_do_alone_in_both_formats)
{
    struct history *h = scoring_history();
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, h->n_topic);
    float a = score_one(replica, "{\"f\":{\"user_id\":1,\"item_id\":[7,8]}}"),
          b = score_one(replica, "{\"f\":{\"item_id\":8,\"history\":[8]}}");
    const char *both = "[{\"f\":{\"user_id\":1,\"item_id\":[7,8]}},{\"f\":{\"item_id\":8,\"history\":[8]}}]";
    float scores[3] = {0, 0, -7};
    uint32_t n = 3;
    assert_int_equal(freshet_replica_score_json(replica, both, strlen(both), scores, &n), FRESHET_OK);
    assert_int_equal(n, 2);
    assert_memory_equal(&scores[0], &a, sizeof(a));
    assert_memory_equal(&scores[1], &b, sizeof(b));
    assert_true(scores[2] == -7);
    static const char packed[] = "\x81\xa1"
                                 "f\x82\xa7user_id\x01\xa7item_id\x92\x07\x08";
    n = 1;
    assert_int_equal(freshet_replica_score_msgpack(replica, packed, sizeof(packed) - 1, scores, &n), FRESHET_OK);
    assert_memory_equal(&scores[0], &a, sizeof(a));
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(scoring_says_why_it_cannot)
{
    struct history *h = scoring_history();
    struct freshet_replica *replica = replica_new();
    float scores[1];
    uint32_t n = 1;
    const char *one = "{\"f\":{\"user_id\":1}}", *two = "[{\"f\":{}},{\"f\":{}}]", *bad = "{\"f\":{\"user_id\":1.5}}";
    assert_int_equal(freshet_replica_score_json(replica, one, strlen(one), scores, &n), FRESHET_E_NOT_READY);
    feed_ok(replica, h, 0, h->n_topic);
    assert_int_equal(freshet_replica_score_json(replica, two, strlen(two), scores, &n), FRESHET_E_INVALID);
    assert_int_equal(n, 2);
    n = 1;
    assert_int_equal(freshet_replica_score_json(replica, bad, strlen(bad), scores, &n), FRESHET_E_INVALID);
    assert_non_null(strstr(freshet_replica_score_problem(replica), "user_id"));
    assert_int_equal(freshet_replica_score_json(replica, one, strlen(one), scores, &n), FRESHET_OK);
    assert_string_equal(freshet_replica_score_problem(replica), "");
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(scoring_says_what_it_ignored)
{
    struct history *h = scoring_history();
    struct freshet_replica *replica = replica_new();
    char names[64];
    feed_ok(replica, h, 0, h->n_topic);
    (void)score_one(replica, "{\"f\":{\"user_id\":1}}");
    assert_int_equal(freshet_replica_score_ignored(replica, names, sizeof(names)), 0);
    assert_string_equal(names, "");
    float misspelled = score_one(replica, "{\"f\":{\"usr\":1,\"itemid\":7}}");
    assert_true(misspelled == score_one(replica, "{\"f\":{}}"));
    (void)score_one(replica, "{\"f\":{\"usr\":1,\"itemid\":7}}");
    assert_int_equal(freshet_replica_score_ignored(replica, NULL, 0), 2);
    assert_int_equal(freshet_replica_score_ignored(replica, names, sizeof(names)), 2);
    assert_string_equal(names, "usr itemid");
    (void)freshet_replica_score_ignored(replica, names, 6);
    assert_string_equal(names, "usr i");
    freshet_replica_free(replica);
    history_free(h);
}

static int collect(void *self, const void *bytes, size_t size)
{
    fr_buffer_append(self, bytes, size);
    return 0;
}

FR_CASE(a_row_is_written_where_there_is_room_for_it)
{
    struct history *h = scoring_history();
    struct freshet_replica *replica = replica_new();
    float values[3] = {9.0f, 9.0f, 9.0f};
    uint32_t dim = 3;
    assert_int_equal(freshet_replica_row(replica, "item", "v", id_key("item", 8), values, &dim), FRESHET_E_NOT_READY);
    assert_int_equal(freshet_replica_tables(replica), 0);
    feed_ok(replica, h, 0, h->n_topic);
    dim = 1;
    assert_int_equal(freshet_replica_row(replica, "item", "v", id_key("item", 8), values, &dim), FRESHET_E_INVALID);
    assert_int_equal(dim, 2);
    assert_true(values[0] == 9.0f);
    assert_int_equal(freshet_replica_row(replica, "item", "v", id_key("item", 8), values, &dim), FRESHET_OK);
    assert_int_equal(dim, 2);
    assert_true(values[0] == 3.0f && values[1] == 4.0f && values[2] == 9.0f);
    assert_int_equal(freshet_replica_row(replica, "item", "x", id_key("item", 8), values, &dim), FRESHET_E_NOT_FOUND);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(tables_and_parts_are_those_of_the_model)
{
    struct history *h = scoring_history();
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, h->n_topic);
    assert_int_equal(freshet_replica_tables(replica), 2);
    assert_string_equal(freshet_replica_table_name(replica, 1), "item");
    assert_string_equal(freshet_replica_table_name(replica, 2), "");
    assert_int_equal(freshet_replica_parts(replica, 1), 2);
    assert_int_equal(freshet_replica_parts(replica, 2), 0);
    assert_string_equal(freshet_replica_part_name(replica, 1, 0), "w");
    assert_int_equal(freshet_replica_part_dim(replica, 1, 0), 1);
    assert_string_equal(freshet_replica_part_name(replica, 1, 1), "v");
    assert_int_equal(freshet_replica_part_dim(replica, 1, 1), 2);
    assert_string_equal(freshet_replica_part_name(replica, 1, 2), "");
    assert_int_equal(freshet_replica_part_dim(replica, 1, 2), 0);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(the_dump_lists_tables_by_name_and_keys_ascending)
{
    struct history *h = scoring_history();
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, h->n_topic);
    struct fr_buffer out = {0};
    uint64_t hash = 0;
    assert_int_equal(freshet_replica_dump(replica, collect, &out, &hash), FRESHET_OK);
    uint64_t seven = id_key("item", 7), eight = id_key("item", 8);
    char lines[2][128], expected[2048];
    snprintf(lines[seven > eight], 128, "{\"table\":\"item\",\"key\":\"%llu\",\"parts\":{\"w\":[0.25],\"v\":[1,2]}}\n",
             (unsigned long long)seven);
    snprintf(lines[seven < eight], 128, "{\"table\":\"item\",\"key\":\"%llu\",\"parts\":{\"w\":[4],\"v\":[3,4]}}\n",
             (unsigned long long)eight);
    int size = snprintf(expected, sizeof(expected),
                        "%s%s{\"table\":\"user\",\"key\":\"%llu\",\"parts\":{\"v\":[0.5,-1]}}\n"
                        "{\"dense\":\"z/bias\",\"shape\":[1],\"values\":[0.375]}\n"
                        "{\"dense\":\"z/kernel\",\"shape\":[7,1],\"values\":[1,2,0.5,-0.25,0.125,-0.5,0.0625]}\n",
                        lines[0], lines[1], (unsigned long long)id_key("user", 1));
    assert_int_equal(hash, fr_xxh3(expected, (size_t)size));
    snprintf(expected + size, sizeof(expected) - (size_t)size,
             "{\"tl\":1,\"epoch\":1,\"wm\":1700000000001,\"samples\":100,\"hash\":\"0x%016llx\"}\n",
             (unsigned long long)hash);
    fr_put_u8(&out, 0);
    assert_string_equal((char *)out.data, expected);
    fr_buffer_release(&out);
    freshet_replica_free(replica);
    history_free(h);
}

static int refuse_third(void *self, const void *bytes, size_t size)
{
    (void)bytes, (void)size;
    return ++*(int *)self == 3;
}

FR_CASE(a_dump_ends_when_its_writer_fails)
{
    struct history *h = scoring_history();
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, h->n_topic);
    int calls = 0;
    assert_int_equal(freshet_replica_dump(replica, refuse_third, &calls, NULL), FRESHET_E_INVALID);
    assert_int_equal(calls, 3);
    freshet_replica_free(replica);
    history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_the_formula),
        cmocka_unit_test(a_batch_scores_as_its_samples_do_alone_in_both_formats),
        cmocka_unit_test(scoring_says_why_it_cannot),
        cmocka_unit_test(scoring_says_what_it_ignored),
        cmocka_unit_test(a_row_is_written_where_there_is_room_for_it),
        cmocka_unit_test(tables_and_parts_are_those_of_the_model),
        cmocka_unit_test(the_dump_lists_tables_by_name_and_keys_ascending),
        cmocka_unit_test(a_dump_ends_when_its_writer_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
