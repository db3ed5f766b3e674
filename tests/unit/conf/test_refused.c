/* Broken configurations and their messages. Each row is a case of its own. */
#include "conf_fixture.h"

#include "base/check.h"
#include "base/random.h"

struct row {
    const char *name;
    /* replaced in the base; from NULL: `to` is the whole text; from "": --set `to` */
    const char *from, *to;
};

#define LAYER_X "{name: x, concat: [user_id, item_id.v, {mean: history.v}, price]}"
#define LAYER_OUT "{name: out, dense: h, units: 1}"
#define TASK "{name: click, label: click, logit: out}"
#define LONG_NAME "a0123456789-b0123456789-c0123456789-d0123456789-" /* 48 bytes */

static const struct row rows[] = {
    /* the document */
    {"an_empty_file", NULL, ""},
    {"a_file_of_comments", NULL, "# nothing\n"},
    {"a_list_at_the_top", NULL, "[1, 2]"},
    {"a_scalar_at_the_top", NULL, "hello"},
    {"bad_syntax_with_its_place", "labels: {click: {}}", "labels: {click: {}"},
    {"a_second_document", "version: 1\n", "--- {}\n---\nversion: 1\n"},
    {"garbage_after_the_document", NULL, "version: 1\n...\n}\n"},
    {"bad_utf8", "model: ctr", "model: \xff\xfe"},
    {"a_duplicate_key", "model: ctr\n", "model: ctr\nmodel: other\n"},
    {"a_duplicate_key_beside_another_mistake", "model: ctr\n", "model: ctr\nmodel: other\nqqqqqq: 1\n"},
    {"a_duplicate_nested_key", "price: {kind: dense, dim: 2}", "price: {kind: dense, dim: 2, dim: 3}"},
    {"a_tag", "batch_size: 256", "batch_size: !!int 256"},
    {"a_merge_key", "user_id: {table: user}", "user_id: {<<: {table: user}}"},
    {"an_alias_inside_itself", "labels: {click: {}}", "labels: &a {click: *a}"},
    {"a_list_as_a_key", "labels: {click: {}}", "labels: {[a]: {}}"},
    {"nul_in_a_text", "topic: samples", "topic: \"a\\0b\""},
    /* keys and scalars */
    {"an_unknown_key_with_a_suggestion", "batch_size", "batch_siz"},
    {"an_unknown_key_by_prefix", "  batch_size: 256", "  batch: 256"},
    {"an_unknown_key_without_a_suggestion", "  batch_size: 256", "  qqqqqq: 256"},
    {"a_wrong_version", "version: 1", "version: 2"},
    {"no_version", "version: 1\n", ""},
    {"no_model", "model: ctr\n", ""},
    {"no_state_dir", "state_dir: /tmp/ctr\n", ""},
    {"no_brokers", "  brokers: \"localhost:9092\"\n", ""},
    {"no_topic", "  topic: samples\n", ""},
    {"no_slots", "slots:", "x_slots:"},
    {"a_model_name_with_blanks", "model: ctr", "model: c tr"},
    {"a_null_value", "model: ctr", "model:"},
    {"text_for_an_integer", "batch_size: 256", "batch_size: 16px"},
    {"a_quoted_integer", "batch_size: 256", "batch_size: \"256\""},
    {"a_fraction_for_an_integer", "batch_size: 256", "batch_size: 1.5"},
    {"a_negative_integer", "batch_size: 256", "batch_size: -1"},
    {"a_hexadecimal_integer", "batch_size: 256", "batch_size: 0x10"},
    {"zero_below_the_range", "batch_size: 256", "batch_size: 0"},
    {"an_integer_above_the_range", "batch_size: 256", "batch_size: 65537"},
    {"an_integer_beyond_64_bits", "", "seed=99999999999999999999999"},
    {"maybe_as_a_boolean", "", "ingest.strict=maybe"},
    {"yes_as_a_boolean", "", "ingest.strict=yes"},
    {"a_duration_without_unit", "", "epoch=20"},
    {"a_duration_in_weeks", "", "epoch=1w"},
    {"a_fractional_duration", "", "epoch=1.5s"},
    {"a_duration_too_long", "", "epoch=99999999999999999d"},
    {"a_size_without_unit", "", "memory_limit=8"},
    {"a_size_in_gigabytes", "", "memory_limit=8GB"},
    {"a_size_beyond_64_bits", "", "memory_limit=99999999999TiB"},
    {"a_number_with_a_suffix", "user: {dim: 8}", "user: {dim: 8, optimizer: {adagrad: {lr: 0.05x}}}"},
    {"a_rate_of_nan", "user: {dim: 8}", "user: {dim: 8, optimizer: {sgd: {lr: .nan}}}"},
    {"a_rate_of_infinity", "user: {dim: 8}", "user: {dim: 8, optimizer: {sgd: {lr: .inf}}}"},
    {"a_rate_beyond_f64", "user: {dim: 8}", "user: {dim: 8, optimizer: {sgd: {lr: 1e999}}}"},
    {"a_rate_that_rounds_to_zero", "user: {dim: 8}", "user: {dim: 8, optimizer: {sgd: {lr: 1e-60}}}"},
    {"a_map_for_a_value", "batch_size: 256", "batch_size: {a: 1}"},
    {"a_value_for_a_map", "labels: {click: {}}", "labels: click"},
    {"an_unknown_choice", "", "ingest.format=msgpak"},
    {"a_flat_record_with_two_values_at_one_path", "", "ingest.envelope={t: click}"},
    {"a_flat_record_with_a_path_through_a_value", "", "ingest.envelope={t: price.at, f: rest}"},
    {"a_flat_record_with_a_path_too_deep", "", "ingest.envelope={t: a.b.c.d.e.f.g, f: rest}"},
    {"an_empty_path_of_a_flat_record", "", "ingest.envelope={f: \"\"}"},
    /* ingest, export, metrics */
    {"both_topic_and_topics", "  topic: samples\n", "  topic: samples\n  topics: [samples]\n"},
    {"a_topic_twice", "  topic: samples\n", "  topics: [a, b, a]\n"},
    {"no_topics", "  topic: samples\n", "  topics: []\n"},
    {"a_delta_topic_that_is_the_second_topic", "  topic: samples\n", "  topics: [a, ctr.delta]\n"},
    {"a_bad_topic_name", "topic: samples", "topic: a/b"},
    {"a_file_twice", "", "ingest.files=[a.jsonl, b.jsonl, a.jsonl]"},
    {"a_file_name_with_a_quote", "", "ingest.files=[\"a\\\"b.jsonl\"]"},
    {"a_file_alone_of_an_odd_name", "  brokers: \"localhost:9092\"\n  topic: samples\n", "  files: [\"a\\\"b\"]\n"},
    {"a_file_name_with_a_newline", "", "ingest.files=[\"a\\nb.jsonl\"]"},
    {"a_file_name_beyond_ascii", "", "ingest.files=[a.jsonl, \xc3\xa9.jsonl]"},
    {"a_file_name_too_long", "",
     "ingest.files=[" LONG_NAME "/" LONG_NAME "/" LONG_NAME "/" LONG_NAME "/" LONG_NAME "x]"},
    {"a_dead_letter_topic_that_is_the_topic", "", "ingest.dead_letter_topic=samples"},
    {"a_delta_topic_that_is_the_topic", "", "export.topic=samples"},
    {"other_delta_brokers", "", "export.brokers=elsewhere:9092"},
    {"snapshots_in_the_state", "", "snapshot.dir=/tmp/ctr/"},
    {"snapshots_in_the_cold_store", "", "snapshot.dir=/tmp/ctr/cold"},
    {"an_address_without_port", "", "metrics.listen=localhost"},
    {"an_address_with_a_large_port", "", "metrics.listen=localhost:65536"},
    {"an_address_that_is_a_name", "", "metrics.listen=localhost:8080"},
    {"a_host_with_a_port", "", "metrics.hosts=[freshet, \"freshet:8080\"]"},
    {"a_half_life_without_unit", "", "metrics.auc_half_life=[5m, 1]"},
    {"a_half_life_twice", "", "metrics.auc_half_life=[60m, 1h]"},
    {"a_journal_below_two_folds", "", "journal_max=64KiB"},
    {"an_epoch_above_a_fold", "units: [16, 8]", "units: [8000, 9000]"},
    {"a_piece_below_its_floor", "state_dir: /tmp/ctr\n", "state_dir: /tmp/ctr\nexport: {piece_max: 63KiB}\n"},
    {"a_piece_below_a_row", "    parts: {w: {dim: 1, optimizer: ftrl}, v: {dim: 8}}\n",
     "    parts: {w: {dim: 1}, v: {dim: 8}, a: {dim: 4096}, b: {dim: 4096}, c: {dim: 4096}, d: {dim: 4096}}\n"
     "export: {piece_max: 64KiB}\n"},
    {"a_set_without_value", "", "epoch"},
    {"a_set_of_an_unknown_key", "", "ingest.batchsize=5"},
    {"a_set_into_a_value", "", "model.name=5"},
    {"a_set_beyond_a_list", "", "tasks.7.weight=5"},
    /* tables */
    {"a_table_without_width", "user: {dim: 8}", "user: {}"},
    {"a_table_with_dim_and_parts", "parts: {w", "dim: 8\n    parts: {w"},
    {"an_optimizer_beside_parts", "parts: {w", "optimizer: sgd\n    parts: {w"},
    {"a_part_without_width", "v: {dim: 8}", "v: {}"},
    {"a_width_too_large", "user: {dim: 8}", "user: {dim: 4097}"},
    {"a_table_name_with_a_hyphen", "user: {dim: 8}", "us-er: {dim: 8}"},
    {"adamw_for_a_table", "user: {dim: 8}", "user: {dim: 8, optimizer: adamw}"},
    {"an_ftrl_rate_that_changes", "user: {dim: 8}", "user: {dim: 8, optimizer: {ftrl: {decay_samples: 5}}}"},
    {"an_unknown_optimizer", "user: {dim: 8}", "user: {dim: 8, optimizer: adagradd}"},
    {"an_unknown_optimizer_option", "user: {dim: 8}", "user: {dim: 8, optimizer: {ftrl: {alpha: 1}}}"},
    {"two_optimizers", "user: {dim: 8}", "user: {dim: 8, optimizer: {sgd: {}, ftrl: {}}}"},
    {"normal_without_a_number", "user: {dim: 8}", "user: {dim: 8, init: normal}"},
    {"zeros_with_a_number", "user: {dim: 8}", "user: {dim: 8, init: {zeros: 1}}"},
    {"a_negative_scale", "user: {dim: 8}", "user: {dim: 8, init: {normal: -1}}"},
    {"unknown_initial_weights", "user: {dim: 8}", "user: {dim: 8, init: {norml: 1}}"},
    {"a_sketch_beside_a_count", "user: {dim: 8}", "user: {dim: 8, admit: {count: 2, sketch: {min: 3}}}"},
    {"a_sketch_beside_a_bound_of_counts", "user: {dim: 8}", "user: {dim: 8, admit: {sketch: {min: 3}, count_max: 9}}"},
    {"a_sketch_beside_a_probability", "user: {dim: 8}", "user: {dim: 8, admit: {probability: 0.1, sketch: {min: 3}}}"},
    {"a_probability_beside_an_idle_time", "user: {dim: 8}", "user: {dim: 8, admit: {probability: 0.1, idle: 1d}}"},
    {"a_sketch_without_min", "user: {dim: 8}", "user: {dim: 8, admit: {sketch: {bytes: 1MiB}}}"},
    {"a_sketch_beyond_its_counters", "user: {dim: 8}", "user: {dim: 8, admit: {sketch: {min: 16}}}"},
    {"a_sketch_of_fast_halves", "user: {dim: 8}", "user: {dim: 8, admit: {sketch: {min: 3, half_life: 999ms}}}"},
    {"a_reserve_beyond_memory", "tables:", "memory_limit: 1GiB\nmemory_reserve: 800MiB\ntables:"},
    {"a_sketch_beyond_memory", "user: {dim: 8}", "user: {dim: 8, admit: {sketch: {min: 3, bytes: 3GiB}}}"},
    {"an_index_beyond_memory", "user: {dim: 8}", "user: {dim: 8, initial_capacity: 300000000}"},
    {"a_probability_of_zero", "user: {dim: 8}", "user: {dim: 8, admit: {probability: 0}}"},
    {"a_probability_above_one", "user: {dim: 8}", "user: {dim: 8, admit: {probability: 1.5}}"},
    {"a_capacity_of_zero", "user: {dim: 8}", "user: {dim: 8, expire: {rows_max: 0}}"},
    {"a_norm_of_zero", "user: {dim: 8}", "user: {dim: 8, expire: {weak: 0}}"},
    {"a_score_that_is_a_number", "user: {dim: 8}", "user: {dim: 8, expire: {score: 1}}"},
    {"a_score_without_min", "user: {dim: 8}", "user: {dim: 8, expire: {score: {show_weight: 1}}}"},
    /* slots and labels */
    {"an_unknown_table", "user_id: {table: user}", "user_id: {table: usr}"},
    {"a_slot_without_table", "user_id: {table: user}", "user_id: {}"},
    {"a_dense_slot_with_a_table", "price: {kind: dense, dim: 2}", "price: {kind: dense, table: user}"},
    {"max_len_of_a_sparse_slot", "user_id: {table: user}", "user_id: {table: user, max_len: 5}"},
    {"an_unknown_kind", "kind: sequence", "kind: sequenc"},
    {"a_non_finite_default", "price: {kind: dense, dim: 2}", "price: {kind: dense, dim: 2, default: .inf}"},
    {"an_index_twice", "slots:\n", "slots:\n  a: {table: user, index: 3}\n  b: {table: user, index: 3}\n"},
    {"no_labels", "labels: {click: {}}", "labels: {}"},
    {"a_negative_label_that_is_the_positive_one", "labels: {click: {}}", "labels: {click: {negative: 1}}"},
    {"a_negative_label_that_rounds_to_one", "labels: {click: {}}", "labels: {click: {negative: 1.00000001}}"},
    /* layers */
    {"an_unknown_reference_with_its_layer", LAYER_X, "{name: x, concat: [user_idd]}"},
    {"an_empty_slot_name", LAYER_X, "{name: x, concat: [.v]}"},
    {"a_cycle_with_its_layers", LAYER_X, "{name: x, concat: [price, out]}"},
    {"a_layer_that_reads_itself", LAYER_X, "{name: x, concat: [price, x]}"},
    {"a_missing_part", LAYER_X, "{name: x, concat: [item_id]}"},
    {"an_unknown_part", LAYER_X, "{name: x, concat: [item_id.u]}"},
    {"a_part_of_a_dense_slot", LAYER_X, "{name: x, concat: [price.v]}"},
    {"a_pooled_dense_slot", LAYER_X, "{name: x, concat: [{sum: price}]}"},
    {"batch_normalization", LAYER_X, "{name: x, batch_norm: [price]}"},
    {"an_unknown_operation", LAYER_X, "{name: x, concatt: [price]}"},
    {"two_operations", LAYER_X, "{name: x, concat: [price], add: [price]}"},
    {"a_layer_without_name", LAYER_X, "{concat: [price]}"},
    {"a_layer_named_like_a_slot", LAYER_X, "{name: price, concat: [price]}"},
    {"two_layers_of_one_name", LAYER_X, "{name: h, concat: [price]}"},
    {"an_mlp_without_units", "units: [16, 8]", "activation: relu"},
    {"units_of_zero", "units: [16, 8]", "units: [16, 0]"},
    {"several_units_of_a_dense_layer", LAYER_OUT, "{name: out, dense: h, units: [2, 1]}"},
    {"an_empty_argument", LAYER_X, "{name: x, concat: []}"},
    {"too_many_parameters", "units: [16, 8]", "units: [65536, 65536, 8]"},
    {"a_dense_optimizer_of_tables", "  layers:\n", "  optimizer: adagrad_rowwise\n  layers:\n"},
    /* tasks */
    {"an_unknown_label", TASK, "{name: click, label: clik, logit: out}"},
    {"an_unknown_logit", TASK, "{name: click, label: click, logit: outt}"},
    {"two_tasks_of_one_name", "  - " TASK, "  - " TASK "\n  - " TASK},
    {"a_loss_without_layers", "network:\n", "losses: [{name: l, mse: [{bias: price}, price]}]\nx_network:\n"},
    /* later */
    {"an_unknown_device", "", "device=gpu"},
    {"a_card_that_is_no_number", "", "device=cuda:first"},
    {"a_card_of_the_cpu", "", "device=cpu:1"},
    {"format", "", "export.format=triton"},
    {"state_in_the_deltas", "", "export.state=true"},
    {"retention_without_snapshots", "", "export.retention=snapshots"},
    {"hook_without_path", "", "snapshot.hook=[upload]"},
    {"domains_that_partitions_would_straddle", "", "scale.domains=3"},
    /* Kafka */
    {"a_plugin", "", "ingest.kafka.plugin.library.paths=x"},
    {"a_command", "", "ingest.kafka.sasl.kerberos.kinit.cmd=x"},
    {"an_ssl_engine", "", "ingest.kafka.ssl.engine.location=x"},
    {"ssl_providers", "", "ingest.kafka.ssl.providers=x"},
    {"a_mock_cluster", "", "ingest.kafka.test.mock.num.brokers=3"},
    {"a_group_id", "", "ingest.kafka.group.id=x"},
    {"auto_commit", "", "ingest.kafka.enable.auto.commit=true"},
    {"auto_offset_reset", "", "ingest.kafka.auto.offset.reset=latest"},
    {"auto_offset_store", "", "ingest.kafka.enable.auto.offset.store=true"},
    {"bootstrap_servers", "", "ingest.kafka.bootstrap.servers=x"},
    {"a_broker_list", "", "ingest.kafka.metadata.broker.list=x"},
    {"an_isolation_level", "", "ingest.kafka.isolation.level=x"},
    {"partition_eof", "", "ingest.kafka.enable.partition.eof=true"},
    {"a_callback", "", "ingest.kafka.rebalance_cb=x"},
    {"a_delivery_callback", "", "ingest.kafka.dr_msg_cb=x"},
    {"a_property_without_value", "  batch_size: 256", "  kafka: {client.id: }"},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Messages of libyaml, whose words may change: the place, and one word. */
static const char *const foreign[][3] = {{"bad_syntax_with_its_place", "test.yaml:18:", "mapping"},
                                         {"garbage_after_the_document", "test.yaml:3:1:", ""}};

FR_CASE(is_refused)
{
    const struct row *row = *state;
    const char *sets[] = {row->to};
    bool set = row->from && row->from[0] == '\0';
    char *text = row->from && !set ? variant(row->from, row->to) : NULL;
    char *problems = problems_of(set ? base_text : text ? text : row->to, sets, set ? 1 : 0);
    size_t at = 0;
    while (at < FR_ARRAY_LEN(foreign) && strcmp(foreign[at][0], row->name) != 0)
        at++;
    if (at == FR_ARRAY_LEN(foreign))
        assert_said("refused", row->name, problems);
    for (size_t part = 1; at < FR_ARRAY_LEN(foreign) && part < 3; part++)
        assert_contains(problems, foreign[at][part]);
    free(problems);
    free(text);
}

FR_CASE(a_piece_below_a_commit_of_many_topics_is_refused)
{
    struct fr_buffer topics = {0};
    fr_buffer_printf(&topics, "  topics: [");
    for (int i = 0; i < 32; i++)
        fr_buffer_printf(&topics, "%s%0240d", i ? ", t" : "t", i);
    fr_buffer_printf(&topics, "]\n%c", 0);
    char *text = variant("  topic: samples\n", (const char *)topics.data);
    const char *sets[] = {"export.piece_max=64KiB"};
    char *problems = problems_of(text, sets, 1);
    assert_contains(problems, "a commit with the offsets of 4096 partitions takes");
    sets[0] = "export.piece_max=128KiB";
    fr_conf_free(load_with(text, sets, 1));
    free(problems);
    free(text);
    fr_buffer_release(&topics);
}

FR_CASE(every_problem_of_a_file_is_reported_in_its_order)
{
    static const char text[] = "version: 3\n"
                               "epoch: 20\n"
                               "ingest: {brokers: b, topic: t, batch_size: 0, strct: true}\n"
                               "slots: {a: {table: none}}\n";
    char *problems = problems_of(text, NULL, 0);
    assert_said("refused", "several_problems", problems);
    free(problems);
    assert_said_of("refused", N_ROWS - FR_ARRAY_LEN(foreign) + 1);
}

FR_CASE(a_doubling_chain_of_aliases_is_refused_and_stays_small)
{
    char text[4096] = "a0: &a0 [x, x]\n";
    for (int i = 1; i < 30; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1,
                 i - 1, i - 1, i - 1);
    char *problems = problems_of(text, NULL, 0);
    assert_contains(problems, "aliases");
    free(problems);
}

FR_CASE(more_problems_than_the_limit_are_counted)
{
    char *text = calloc(1, 8192);
    for (int i = 0; i < 300; i++)
        snprintf(text + strlen(text), 8192 - strlen(text), "zzz%d: 1\n", i);
    char *problems = problems_of(text, NULL, 0);
    assert_contains(problems, " more problems\n");
    free(problems);
    free(text);
}

FR_CASE(a_missing_file_is_a_problem)
{
    struct fr_buffer problems = {0};
    struct fr_conf *conf = NULL;
    struct fr_conf_load_options options = {.path = "/nonexistent/freshet.yaml"};
    assert_int_equal(fr_conf_load(&options, &conf, &problems), FR_E_INVALID);
    assert_contains((const char *)problems.data, "/nonexistent/freshet.yaml:1:1: ");
    fr_buffer_release(&problems);
}

/* Changed texts must not crash the loader, and an accepted text must print to itself. */
static void mutate(const char *original, size_t size, uint64_t count)
{
    static const char bytes[] = "{}[],:#&*!|>'\"%@`-0 \n\tax.\xff";
    char *text = calloc(1, size + 1);
    for (uint64_t i = 0; i < count; i++) {
        struct fr_buffer problems = {0};
        struct fr_conf *conf = NULL;
        memcpy(text, original, size);
        for (uint64_t edit = 0; edit <= i % 3; edit++)
            text[fr_random_u64(7, 0, i, 2 * edit) % size] =
                bytes[fr_random_u64(7, 0, i, 2 * edit + 1) % (sizeof(bytes) - 1)];
        struct fr_conf_load_options options = {.path = "mutated.yaml", .text = text};
        if (fr_conf_load(&options, &conf, &problems) == FR_OK) {
            char *once = printed(conf);
            struct fr_conf *again = load(once);
            char *twice = printed(again);
            assert_string_equal(once, twice);
            free(twice);
            free(once);
            fr_conf_free(again);
            fr_conf_free(conf);
        } else {
            assert_true(problems.size > 0);
        }
        fr_buffer_release(&problems);
    }
    free(text);
}

/* There are fewer changes under a sanitizer, which has a fuzz target for them. */
#if defined(__SANITIZE_ADDRESS__)
enum { MUTATIONS = 600 };
#else
enum { MUTATIONS = 3000 };
#endif

FR_CASE(a_mutated_file_is_refused_or_loads_and_prints)
{
    mutate(base_text, sizeof(base_text) - 1, MUTATIONS);
    mutate(rich_text, sizeof(rich_text) - 1, MUTATIONS);
}

int main(void)
{
    struct CMUnitTest *tests = calloc(N_ROWS + 6, sizeof(*tests));
    char(*names)[128] = calloc(N_ROWS, sizeof(*names));
    if (!tests || !names) {
        free(tests);
        free(names);
        return 1;
    }
    for (size_t i = 0; i < N_ROWS; i++) {
        snprintf(names[i], sizeof(names[i]), "%s_is_refused", rows[i].name);
        tests[i] = (struct CMUnitTest){names[i], is_refused, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    }
    tests[N_ROWS] = (struct CMUnitTest)cmocka_unit_test(every_problem_of_a_file_is_reported_in_its_order);
    tests[N_ROWS + 1] = (struct CMUnitTest)cmocka_unit_test(a_doubling_chain_of_aliases_is_refused_and_stays_small);
    tests[N_ROWS + 2] = (struct CMUnitTest)cmocka_unit_test(more_problems_than_the_limit_are_counted);
    tests[N_ROWS + 3] = (struct CMUnitTest)cmocka_unit_test(a_missing_file_is_a_problem);
    tests[N_ROWS + 4] = (struct CMUnitTest)cmocka_unit_test(a_mutated_file_is_refused_or_loads_and_prints);
    tests[N_ROWS + 5] = (struct CMUnitTest)cmocka_unit_test(a_piece_below_a_commit_of_many_topics_is_refused);
    int failed = _cmocka_run_group_tests("refused", tests, N_ROWS + 6, NULL, NULL);
    free(tests);
    free(names);
    return failed;
}
