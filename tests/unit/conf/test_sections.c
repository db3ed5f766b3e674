/* What options with several parts become: sources, transforms, labels, tasks, losses, optimizers,
 * initial weights; each also survives printing and loading again. */
#include "conf_fixture.h"

#include <math.h>

#include "base/check.h"
#include "base/math.h"

FR_CASE(several_topics_are_read)
{
    struct fr_conf *conf = load_variant("  topic: samples\n", "  topics: [b, a]\n");
    assert_int_equal(conf->ingest.n_topics, 2);
    assert_string_equal(conf->ingest.topics[0], "b");
    assert_string_equal(conf->ingest.topics[1], "a");
    assert_string_equal(conf->ingest.dead_letter_topic, "b.dead");
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(files_are_read_with_and_without_a_topic)
{
    struct fr_conf *conf = load_variant("  topic: samples\n", "  topic: samples\n  files: [a.jsonl.gz, \"b: c\"]\n");
    assert_int_equal(conf->ingest.n_files, 2);
    assert_string_equal(conf->ingest.files[1], "b: c");
    assert_string_equal(conf->ingest.dead_letter_topic, "samples.dead");
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
    conf = load_variant("  topic: samples\n", "  files: [a.jsonl]\n");
    assert_int_equal(conf->ingest.n_topics, 0);
    assert_string_equal(conf->ingest.dead_letter_topic, "ctr.dead");
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(brokers_have_the_form_that_kafka_reads)
{
    static const char *const good[] = {
        "h:1",      "h", "a:1,b:65535", "10.0.0.1:9092", "[::1]:9092", "[fe80::1%eth0]:1,b:2", "SASL_SSL://h:9092",
        "a_b-c.d:9"};
    static const char *const bad[] = {"kafka://h:1", "http://h", "a:1;b:2",  "a:99999",  "a:0",  "a:",       ":1",
                                      "a:1,",        ",a:1",     "a:1,,b:2", "a:1, b:2", " a:1", "a b:1",    "::1:9092",
                                      "[::1",        "[::1]9",   "[]:1",     "a:1x",     "a:-1", "a:065536", "[h]:1"};
    char problem[256];
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!fr_conf_brokers_are_sound(good[i], problem, sizeof(problem)))
            fail_msg("%s: %s", good[i], problem);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (fr_conf_brokers_are_sound(bad[i], problem, sizeof(problem)))
            fail_msg("%s", bad[i]);
        assert_contains(problem, "expected host:port,host:port (an IPv6 address in brackets, [::1]:9092)");
    }
    char *text = variant("brokers: \"localhost:9092\"", "brokers: \"a:1,b:99999\"");
    char *problems = problems_of(text, NULL, 0);
    assert_contains(problems, "test.yaml:5:12: ingest.brokers: `b:99999`: not a port from 1 to 65535; expected");
    free(problems);
    free(text);
}

FR_CASE(a_start_is_a_word_or_a_time)
{
    static const struct {
        const char *set;
        enum fr_start start;
        int64_t ms;
    } rows[] = {
        {"ingest.start=earliest", FR_START_EARLIEST, 0},
        {"ingest.start=latest", FR_START_LATEST, 0},
        {"ingest.start=1767323045000", FR_START_TIME, 1767323045000},
        {"ingest.start=2026-01-02T03:04:05Z", FR_START_TIME, 1767323045000},
        {"ingest.start=\"2026-01-02T03:04:05.678Z\"", FR_START_TIME, 1767323045678},
        {"ingest.start=2024-02-29T23:59:59Z", FR_START_TIME, 1709251199000},
        {"ingest.start=2100-03-01T00:00:00Z", FR_START_TIME, 4107542400000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fr_conf *conf = load_with(base_text, &rows[i].set, 1);
        assert_int_equal(conf->ingest.start, rows[i].start);
        assert_int_equal(conf->ingest.start_ms, rows[i].ms);
        assert_prints_and_loads(conf);
        fr_conf_free(conf);
    }
}

FR_CASE(a_time_on_the_command_line_is_read_like_a_start)
{
    int64_t ms = 7;
    assert_true(fr_conf_time("2026-01-02T03:04:05Z", &ms));
    assert_int_equal(ms, 1767323045000);
    assert_true(fr_conf_time("1767323045001", &ms));
    assert_int_equal(ms, 1767323045001);
    static const char *const bad[] = {
        "", "end", "1767323045", "2026-13-01T00:00:00Z", "2026-01-02", "99999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(fr_conf_time(bad[i], &ms));
    assert_int_equal(ms, 1767323045001);
}

FR_CASE(sampling_and_grouped_metrics_are_read)
{
    static const char *const sets[] = {"ingest.sampling=metrics", "metrics.gauc_by=item_id",
                                       "metrics.gauc_groups_max=77"};
    struct fr_conf *conf = load(base_text);
    assert_int_equal(conf->ingest.sampling, FR_SAMPLING_ALL);
    assert_int_equal(conf->metrics.gauc_by, FR_NO_INDEX);
    assert_int_equal(conf->metrics.gauc_groups_max, 1024);
    fr_conf_free(conf);
    conf = load_with(base_text, sets, 3);
    assert_int_equal(conf->ingest.sampling, FR_SAMPLING_METRICS);
    assert_int_equal(conf->metrics.gauc_by, 1);
    assert_int_equal(conf->metrics.gauc_groups_max, 77);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(transforms_are_read)
{
    struct fr_conf *conf = load_variant("price: {kind: dense, dim: 2}",
                                        "price: {kind: dense, dim: 2, transform: {bucketize: [-1, 0.1, 7e3]}}");
    const struct fr_conf_slot *slot = &conf->slots[3];
    assert_int_equal(slot->transform, FR_TRANSFORM_BUCKETIZE);
    assert_int_equal(slot->n_boundaries, 3);
    assert_float_equal(slot->boundaries[1], 0.1f, 0);
    assert_int_equal(fr_conf_slot_width(slot), 8);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
    conf = load_variant("price: {kind: dense, dim: 2}", "price: {kind: dense, dim: 2, transform: standardize}");
    assert_int_equal(conf->slots[3].transform, FR_TRANSFORM_STANDARDIZE);
    assert_int_equal(fr_conf_slot_width(&conf->slots[3]), 2);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

static struct fr_conf *load_price(const char *options)
{
    char to[256];
    snprintf(to, sizeof(to), "price: {kind: dense, dim: 2, %s}", options);
    return load_variant("price: {kind: dense, dim: 2}", to);
}

FR_CASE(transforms_are_lists_and_single_ones_are_written_alone)
{
    static const struct {
        const char *options, *json;
        uint32_t numbers, width, steps;
        bool keeps_missing;
    } cases[] = {
        {"transform: [{clip: [0, 1000]}, log1p, standardize]",
         "\"transform\":[{\"clip\":[0,1000]},\"log1p\",\"standardize\"]", 2, 2, 2, true},
        {"transform: [log1p]", "\"transform\":\"log1p\"", 2, 2, 1, false},
        {"transform: {clip: [-1.5, 2]}", "\"transform\":{\"clip\":[-1.5,2]}", 2, 2, 1, false},
        {"transform: [log1p, {bucketize: [1, 2.5]}], indicator: true",
         "\"transform\":[\"log1p\",{\"bucketize\":[1,2.5]}]", 2, 7, 1, true},
        {"transform: time_of_week", "\"transform\":\"time_of_week\"", 4, 4, 1, false},
        {"transform: time_of_day, indicator: true", "\"indicator\":true", 4, 5, 1, true},
        {"transform: standardize", "{\"dim\":2,\"indicator\":false", 2, 2, 0, true},
        {"transform: standardize, default: 0", "{\"default\":0,\"dim\":2", 2, 2, 0, false},
        {"default: 3", "{\"default\":3,\"dim\":2", 2, 2, 0, false},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(cases); i++) {
        struct fr_conf *conf = load_price(cases[i].options);
        const struct fr_conf_slot *slot = &conf->slots[3];
        char *json = model_json(conf);
        assert_contains(json, cases[i].json);
        assert_int_equal(fr_conf_slot_numbers(slot), cases[i].numbers);
        assert_int_equal(fr_conf_slot_width(slot), cases[i].width);
        assert_int_equal(slot->n_steps, cases[i].steps);
        assert_int_equal(fr_conf_slot_keeps_missing(slot), cases[i].keeps_missing);
        assert_prints_and_loads(conf);
        struct fr_conf *parsed = NULL;
        struct fr_err err = {0};
        if (fr_conf_model_parse(json, strlen(json), &parsed, &err) != FR_OK)
            fail_msg("%s", err.text);
        assert_int_equal(parsed->slots[3].has_default, slot->has_default);
        assert_int_equal(fr_conf_slot_width(&parsed->slots[3]), cases[i].width);
        fr_conf_free(parsed);
        free(json);
        fr_conf_free(conf);
    }
}

FR_CASE(computed_slots_are_read_whatever_stands_first)
{
    struct fr_conf *conf =
        load_variant("user_id: {table: user}",
                     "pair: {table: item, cross: [item_id, price_bucket], max_ids: 9}\n"
                     "  user_id: {table: user}\n"
                     "  price_bucket: {table: user, buckets: {of: cost, boundaries: [1, 10, 100]}, namespace: other}\n"
                     "  cost: {kind: dense, transform: log1p}");
    const struct fr_conf_slot *pair = &conf->slots[0], *bucket = &conf->slots[2];
    assert_int_equal(pair->source, FR_SOURCE_CROSS);
    assert_int_equal(pair->n_sources, 2);
    assert_int_equal(pair->sources[0], 4);
    assert_int_equal(pair->sources[1], 2);
    assert_int_equal(pair->max_ids, 9);
    assert_string_equal(pair->name_space, "pair");
    assert_int_equal(bucket->source, FR_SOURCE_BUCKETS);
    assert_int_equal(bucket->sources[0], 3);
    assert_int_equal(bucket->n_boundaries, 3);
    assert_string_equal(bucket->name_space, "other");
    assert_prints_and_loads(conf);
    char *json = model_json(conf);
    assert_contains(json,
                    "{\"cross\":[\"item_id\",\"price_bucket\"],\"kind\":\"sparse\",\"max_ids\":9,\"name\":\"pair\"");
    assert_contains(json, "{\"buckets\":{\"boundaries\":[1,10,100],\"of\":\"cost\"},\"kind\":\"sparse\",\"name\":");
    struct fr_conf *parsed = NULL;
    struct fr_err err = {0};
    if (fr_conf_model_parse(json, strlen(json), &parsed, &err) != FR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(parsed->slots[0].sources[1], 2);
    fr_conf_free(parsed);
    free(json);
    fr_conf_free(conf);
}

FR_CASE(carried_labels_come_first_and_derived_ones_point_to_them)
{
    struct fr_conf *conf = load_variant(
        "labels: {click: {}}", "labels: {long: {of: seconds, given: paid, min: 30.5}, click: {}, paid: {of: buy}, "
                               "seconds: {given: click}, buy: {}}");
    static const char *const order[] = {"click", "seconds", "buy", "long", "paid"};
    assert_int_equal(conf->n_labels, 5);
    assert_int_equal(conf->n_sample_labels, 3);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(conf->labels[i].name, order[i]);
    assert_int_equal(conf->labels[0].of, FR_NO_INDEX);
    assert_int_equal(conf->labels[0].given, FR_NO_INDEX);
    assert_int_equal(conf->labels[1].given, 0);
    assert_int_equal(conf->labels[3].of, 1);
    assert_int_equal(conf->labels[3].given, 4);
    assert_true(conf->labels[3].has_min);
    assert_float_equal(conf->labels[3].min, 30.5f, 0);
    assert_int_equal(conf->labels[4].of, 2);
    assert_false(conf->labels[4].has_min);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(tasks_take_products_and_other_losses)
{
    struct fr_conf *conf = load_variant("  - {name: click, label: click, logit: out}\n",
                                        "  - {name: click, label: click, logit: out, loss: focal}\n"
                                        "  - {name: buy, label: click, logit: out, loss: {focal: {gamma: 3}}}\n"
                                        "  - {name: both, label: click, prob: [buy, click], loss: none}\n"
                                        "  - {name: worth, label: click, logit: out, loss: mse, weight: 0.1}\n"
                                        "  - {name: order, label: click, logit: out, loss: pairwise}\n");
    const struct fr_conf_task *tasks = conf->tasks;
    assert_int_equal(tasks[0].loss, FR_LOSS_FOCAL);
    assert_float_equal(tasks[0].focal_gamma, 2, 0);
    assert_float_equal(tasks[0].focal_alpha, 0.25f, 0);
    assert_float_equal(tasks[1].focal_gamma, 3, 0);
    assert_float_equal(tasks[1].focal_alpha, 0.25f, 0);
    assert_int_equal(tasks[2].logit, FR_NO_INDEX);
    assert_int_equal(tasks[2].n_prob, 2);
    assert_int_equal(tasks[2].prob[0], 1);
    assert_int_equal(tasks[2].prob[1], 0);
    assert_int_equal(tasks[2].loss, FR_LOSS_NONE);
    assert_int_equal(tasks[3].loss, FR_LOSS_MSE);
    assert_int_equal(tasks[4].loss, FR_LOSS_PAIRWISE);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(auxiliary_losses_are_read)
{
    static const char *const sets[] = {"losses=[{name: near, mse: [x, {stop_gradient: {concat: [user_id, item_id.v, "
                                       "history.w, price]}}], weight: 0.5}]"};
    char *text = variant("    - {name: h, mlp: x, units: [16, 8]}\n",
                         "    - {name: h, mlp: x, units: [16, 8]}\n    - {name: g, gru: history.v, units: 8}\n");
    struct fr_conf *conf = NULL;
    struct fr_buffer problems = {0};
    struct fr_conf_load_options options = {.path = "test.yaml", .text = text, .sets = sets, .n_sets = 1};
    /* a sequence inside the concat */
    assert_int_equal(fr_conf_load(&options, &conf, &problems), FR_E_INVALID);
    assert_contains((const char *)problems.data, "layer `near__0__0` mixes");
    fr_buffer_release(&problems);
    static const char *const good[] = {"losses=[{name: near, mse: [user_id, {stop_gradient: item_id.v}], weight: 0.5}, "
                                       "{name: next, next_step: {states: "
                                       "g, negatives: history.v, positives: history.v}}]"};
    conf = load_with(text, good, 1);
    assert_int_equal(conf->n_losses, 2);
    const struct fr_conf_loss *near = &conf->losses[0], *next = &conf->losses[1];
    assert_int_equal(near->kind, FR_AUX_MSE);
    assert_int_equal(near->n_refs, 2);
    assert_int_equal(near->refs[0].kind, FR_REF_POOLED);
    assert_string_equal(conf->layers[near->refs[1].index].name, "near__0");
    assert_float_equal(near->weight, 0.5f, 0);
    assert_int_equal(next->kind, FR_AUX_NEXT_STEP);
    assert_int_equal(next->n_refs, 3);
    assert_string_equal(conf->layers[next->refs[0].index].name, "g");
    assert_int_equal(next->refs[2].kind, FR_REF_SEQUENCE);
    assert_float_equal(next->weight, 1, 0);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
    free(text);
}

FR_CASE(every_optimizer_has_its_fields_and_the_common_ones)
{
    static const char *const rows[] = {"sgd",
                                       "momentum: {momentum: 0.8}",
                                       "adagrad: {initial: 0.1}",
                                       "adagrad_rowwise",
                                       "adam: {beta2: 0.99}",
                                       "adam_rowwise: {beta1: 0.8}",
                                       "rmsprop: {rho: 0.95}",
                                       "ftrl: {l1: 0.5}",
                                       "group_ftrl: {l21: 0.25}"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[160];
        snprintf(text, sizeof(text),
                 strchr(rows[i], ':') ? "user: {dim: 8, optimizer: {%s}}" : "user: {dim: 8, optimizer: %s}", rows[i]);
        struct fr_conf *conf = load_variant("user: {dim: 8}", text);
        assert_prints_and_loads(conf);
        fr_conf_free(conf);
    }
    struct fr_conf *conf =
        load_variant("user: {dim: 8}", "user: {dim: 8, init: {truncated_normal: 0.02}, optimizer: {adam_rowwise: {lr: "
                                       "0.25, l1: 1, l2: 2, clip_value: 3, clip_norm: 4, warmup_samples: 5, "
                                       "decay_samples: 6, decay_rate: 0.75, decay_floor: 0.125}}}");
    const struct fr_optimizer expected = {.kind = FR_OPT_ADAM_ROWWISE,
                                          .lr = 0.25f,
                                          .eps = 1e-8f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.999f,
                                          .l1 = 1,
                                          .l2 = 2,
                                          .clip_value = 3,
                                          .clip_norm = 4,
                                          .warmup_samples = 5,
                                          .decay_samples = 6,
                                          .decay_rate = 0.75f,
                                          .decay_floor = 0.125f};
    assert_memory_equal(&conf->tables[0].parts[0].optimizer, &expected, sizeof(expected));
    assert_int_equal(conf->tables[0].parts[0].init.kind, FR_INIT_TRUNCATED_NORMAL);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(every_kind_of_initial_weights_is_read)
{
    static const char *const names[] = {
        "default",        "zeros",         "{uniform: 0.5}",  "{normal: 0.5}", "{truncated_normal: 0.5}",
        "xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal"};
    for (int i = 0; i < 9; i++) {
        char set[64];
        const char *sets[] = {set};
        snprintf(set, sizeof(set), "network.init=%s", names[i]);
        struct fr_conf *conf = load_with(base_text, sets, 1);
        assert_int_equal(conf->dense_init.kind, i);
        assert_int_equal(conf->layers[1].init.kind, i);
        assert_float_equal(conf->layers[1].init.scale, names[i][0] == '{' ? 0.5f : 0, 0);
        assert_prints_and_loads(conf);
        fr_conf_free(conf);
        if (i == FR_INIT_DEFAULT)
            continue;
        snprintf(set, sizeof(set), "tables.user.init=%s", names[i]);
        conf = load_with(base_text, sets, 1);
        assert_int_equal(conf->tables[0].parts[0].init.kind, i);
        assert_prints_and_loads(conf);
        fr_conf_free(conf);
    }
}

FR_CASE(a_name_that_reads_like_a_value_stays_a_name)
{
    struct fr_conf *conf =
        load_variant("labels: {click: {}}", "labels: {click: {}, \"null\": {}, true: {of: \"null\", given: \"null\"}}");
    assert_string_equal(conf->labels[1].name, "null");
    assert_int_equal(conf->labels[2].of, 1);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
    conf = load_variant("  user: {dim: 8}\n", "  user: {dim: 8}\n  \"null\": {dim: 3}\n");
    assert_string_equal(conf->tables[1].name, "null");
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(something_of_everything_prints_and_loads)
{
    struct fr_conf *conf = load(rich_text);
    assert_int_equal(conf->n_layers, 17); /* 12 of the text, 5 from inside arguments */
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_topics_are_read),
        cmocka_unit_test(files_are_read_with_and_without_a_topic),
        cmocka_unit_test(brokers_have_the_form_that_kafka_reads),
        cmocka_unit_test(a_start_is_a_word_or_a_time),
        cmocka_unit_test(a_time_on_the_command_line_is_read_like_a_start),
        cmocka_unit_test(sampling_and_grouped_metrics_are_read),
        cmocka_unit_test(transforms_are_read),
        cmocka_unit_test(transforms_are_lists_and_single_ones_are_written_alone),
        cmocka_unit_test(computed_slots_are_read_whatever_stands_first),
        cmocka_unit_test(carried_labels_come_first_and_derived_ones_point_to_them),
        cmocka_unit_test(tasks_take_products_and_other_losses),
        cmocka_unit_test(auxiliary_losses_are_read),
        cmocka_unit_test(every_optimizer_has_its_fields_and_the_common_ones),
        cmocka_unit_test(every_kind_of_initial_weights_is_read),
        cmocka_unit_test(a_name_that_reads_like_a_value_stays_a_name),
        cmocka_unit_test(something_of_everything_prints_and_loads),
    };
    return cmocka_run_group_tests_name("sections", tests, NULL, NULL);
}
