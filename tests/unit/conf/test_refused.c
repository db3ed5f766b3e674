/* Broken configurations and what is said about them. Each row is a case of its own. */
#include "conf_fixture.h"

#include "base/random.h"

struct row {
    const char *name;
    /* replaced in the base; from NULL: `to` is the whole text; from "": --set `to` */
    const char *from, *to;
    const char *parts[4]; /* all must be in the problems */
};

#define LAYER_X "{name: x, concat: [user_id, item_id.v, {mean: history.v}, price]}"
#define LAYER_OUT "{name: out, dense: h, units: 1}"
#define TASK "{name: click, label: click, logit: out}"
#define LATER "not in this version"

static const struct row rows[] = {
    /* the document */
    {"an_empty_file", NULL, "", {"test.yaml:1:1: empty; expected a map"}},
    {"a_file_of_comments", NULL, "# nothing\n", {"empty"}},
    {"a_list_at_the_top", NULL, "[1, 2]", {"a list; expected a map"}},
    {"a_scalar_at_the_top", NULL, "hello", {"a single value; expected a map"}},
    {"bad_syntax_with_its_place", "labels: {click: {}}", "labels: {click: {}", {"test.yaml:18:", "mapping"}},
    {"a_second_document", "version: 1\n", "--- {}\n---\nversion: 1\n", {"test.yaml:3:1: a second document"}},
    {"garbage_after_the_document", NULL, "version: 1\n...\n}\n", {"test.yaml:3:1:"}},
    {"bad_utf8", "model: ctr", "model: \xff\xfe", {"expected UTF-8"}},
    {"a_duplicate_key", "model: ctr\n", "model: ctr\nmodel: other\n", {"test.yaml:3:1: duplicate key `model`"}},
    {"a_duplicate_key_beside_another_mistake",
     "model: ctr\n",
     "model: ctr\nmodel: other\nqqqqqq: 1\n",
     {"test.yaml:3:1: duplicate key `model`", "test.yaml:4:1: unknown key `qqqqqq`"}},
    {"a_duplicate_nested_key",
     "price: {kind: dense, dim: 2}",
     "price: {kind: dense, dim: 2, dim: 3}",
     {"16:32: duplicate key `dim`"}},
    {"a_tag", "batch_size: 256", "batch_size: !!int 256", {"test.yaml:7:15: a tag"}},
    {"a_merge_key", "user_id: {table: user}", "user_id: {<<: {table: user}}", {"unknown key `<<`"}},
    {"an_alias_inside_itself", "labels: {click: {}}", "labels: &a {click: *a}", {"nested too deeply"}},
    {"a_list_as_a_key", "labels: {click: {}}", "labels: {[a]: {}}", {"a key must be a single value"}},
    {"nul_in_a_text", "topic: samples", "topic: \"a\\0b\"", {"NUL inside a text"}},
    /* keys and scalars */
    {"an_unknown_key_with_a_suggestion",
     "batch_size",
     "batch_siz",
     {"test.yaml:7:3: ingest: unknown key `batch_siz`", "did you mean `batch_size`?"}},
    {"an_unknown_key_by_prefix", "  batch_size: 256", "  batch: 256", {"did you mean `batch_size`?"}},
    {"an_unknown_key_without_a_suggestion",
     "  batch_size: 256",
     "  qqqqqq: 256",
     {"unknown key `qqqqqq`", "expected brokers"}},
    {"a_wrong_version", "version: 1", "version: 2", {"test.yaml:1:10: version: `2`", "expected 1"}},
    {"no_version", "version: 1\n", "", {"version: missing"}},
    {"no_model", "model: ctr\n", "", {"model: missing"}},
    {"no_state_dir", "state_dir: /tmp/ctr\n", "", {"state_dir: missing"}},
    {"no_brokers", "  brokers: \"localhost:9092\"\n", "", {"ingest.brokers: missing"}},
    {"no_topic", "  topic: samples\n", "", {"ingest.topic: missing"}},
    {"no_slots", "slots:", "x_slots:", {"slots: missing", "unknown key `x_slots`", "did you mean `slots`?"}},
    {"a_model_name_with_blanks", "model: ctr", "model: c tr", {"not a model name", "[A-Za-z0-9_-]{1,120}"}},
    {"a_null_value", "model: ctr", "model:", {"2:7: model: empty"}},
    {"text_for_an_integer",
     "batch_size: 256",
     "batch_size: 16px",
     {"7:15: ingest.batch_size: `16px` is not an integer"}},
    {"a_quoted_integer", "batch_size: 256", "batch_size: \"256\"", {"`256` is not an integer; expected no quotes"}},
    {"a_fraction_for_an_integer", "batch_size: 256", "batch_size: 1.5", {"`1.5` is not an integer"}},
    {"a_negative_integer", "batch_size: 256", "batch_size: -1", {"`-1` is not an integer"}},
    {"a_hexadecimal_integer", "batch_size: 256", "batch_size: 0x10", {"`0x10` is not an integer"}},
    {"zero_below_the_range", "batch_size: 256", "batch_size: 0", {"`0` is out of range; expected 1 to 65536"}},
    {"an_integer_above_the_range", "batch_size: 256", "batch_size: 65537", {"out of range"}},
    {"an_integer_beyond_64_bits",
     "",
     "seed=99999999999999999999999",
     {"seed: `99999999999999999999999` is out of range"}},
    {"maybe_as_a_boolean",
     "",
     "ingest.strict=maybe",
     {"ingest.strict: `maybe` is not a boolean; expected true or false"}},
    {"yes_as_a_boolean", "", "ingest.strict=yes", {"`yes` is not a boolean"}},
    {"a_duration_without_unit", "", "epoch=20", {"epoch: `20` needs a unit; expected a duration such as 20ms"}},
    {"a_duration_in_weeks", "", "epoch=1w", {"`1w` is not a duration"}},
    {"a_fractional_duration", "", "epoch=1.5s", {"`1.5s` is not a duration"}},
    {"a_duration_too_long",
     "",
     "epoch=99999999999999999d",
     {"`99999999999999999d` is out of range; expected 1ms to 1d"}},
    {"a_size_without_unit", "", "memory_limit=8", {"memory_limit: `8` needs a unit; expected a size"}},
    {"a_size_in_gigabytes", "", "memory_limit=8GB", {"`8GB` is not a size; expected a size such as 512B, 64KiB"}},
    {"a_size_beyond_64_bits", "", "memory_limit=99999999999TiB", {"out of range; expected 1MiB to 64TiB"}},
    {"a_number_with_a_suffix",
     "user: {dim: 8}",
     "user: {dim: 8, optimizer: {adagrad: {lr: 0.05x}}}",
     {"9:44: tables.user.optimizer.adagrad.lr: `0.05x` is not a number"}},
    {"a_rate_of_nan", "user: {dim: 8}", "user: {dim: 8, optimizer: {sgd: {lr: .nan}}}", {"`.nan` is not a number"}},
    {"a_rate_of_infinity",
     "user: {dim: 8}",
     "user: {dim: 8, optimizer: {sgd: {lr: .inf}}}",
     {"`.inf` is not a number"}},
    {"a_rate_beyond_f64",
     "user: {dim: 8}",
     "user: {dim: 8, optimizer: {sgd: {lr: 1e999}}}",
     {"`1e999` is out of range"}},
    {"a_rate_that_rounds_to_zero",
     "user: {dim: 8}",
     "user: {dim: 8, optimizer: {sgd: {lr: 1e-60}}}",
     {"`1e-60` is out of range"}},
    {"a_map_for_a_value", "batch_size: 256", "batch_size: {a: 1}", {"ingest.batch_size: a map; expected an integer"}},
    {"a_value_for_a_map", "labels: {click: {}}", "labels: click", {"labels: a single value; expected a map"}},
    {"an_unknown_choice",
     "",
     "ingest.format=msgpak",
     {"unknown value `msgpak`; expected msgpack or json; did you mean `msgpack`?"}},
    /* ingest, export, metrics */
    {"both_topic_and_topics", "  topic: samples\n", "  topic: samples\n  topics: [samples]\n", {"given twice"}},
    {"a_topic_twice", "  topic: samples\n", "  topics: [a, b, a]\n", {"ingest.topics.2: `a` is there twice"}},
    {"no_topics", "  topic: samples\n", "  topics: []\n", {"ingest.topics: 0 entries; expected 1 to 64"}},
    {"a_delta_topic_that_is_the_second_topic",
     "  topic: samples\n",
     "  topics: [a, ctr.delta]\n",
     {"export.topic: `ctr.delta` is a topic of `ingest`"}},
    {"a_bad_topic_name", "topic: samples", "topic: a/b", {"not a topic name"}},
    {"a_dead_letter_topic_that_is_the_topic", "", "ingest.dead_letter_topic=samples", {"is the topic of the samples"}},
    {"a_delta_topic_that_is_the_topic", "", "export.topic=samples", {"export.topic: `samples` is a topic of `ingest`"}},
    {"other_delta_brokers", "", "export.brokers=elsewhere:9092", {"export.brokers", LATER}},
    {"an_address_without_port", "", "metrics.listen=localhost", {"metrics.listen: `localhost` is not an address"}},
    {"an_address_with_a_large_port", "", "metrics.listen=localhost:65536", {"not an address"}},
    {"a_half_life_without_unit", "", "metrics.auc_half_life=[5m, 1]", {"metrics.auc_half_life.1: `1` needs a unit"}},
    {"a_half_life_twice", "", "metrics.auc_half_life=[60m, 1h]", {"`1h` is there twice"}},
    {"a_journal_below_two_folds", "", "journal_max=64KiB", {"journal_max: below twice unfolded_max"}},
    {"an_epoch_above_a_fold",
     "units: [16, 8]",
     "units: [8000, 9000]",
     {"unfolded_max: an epoch that trains holds 8", "expected at least 8", "longer `epoch`"}},
    {"a_piece_below_the_model",
     "state_dir: /tmp/ctr\n",
     "state_dir: /tmp/ctr\nexport: {piece_max: 4KiB}\n",
     {"export.piece_max: the model's description takes"}},
    {"a_set_without_value", "", "epoch", {"--set epoch:1:1: no value; expected path=value"}},
    {"a_set_of_an_unknown_key",
     "",
     "ingest.batchsize=5",
     {"--set ingest.batchsize=5:1:1: ingest: unknown key `batchsize`", "did you mean `batch_size`?"}},
    {"a_set_into_a_value", "", "model.name=5", {"`name` is not there"}},
    {"a_set_beyond_a_list", "", "tasks.7.weight=5", {"`7` is not there"}},
    /* tables */
    {"a_table_without_width",
     "user: {dim: 8}",
     "user: {}",
     {"tables.user: no width; expected dim (one part) or parts"}},
    {"a_table_with_dim_and_parts", "parts: {w", "dim: 8\n    parts: {w", {"tables.item: both dim and parts"}},
    {"an_optimizer_beside_parts",
     "parts: {w",
     "optimizer: sgd\n    parts: {w",
     {"optimizer and init belong to each of the parts"}},
    {"a_part_without_width", "v: {dim: 8}", "v: {}", {"tables.item.parts.v.dim: missing"}},
    {"a_width_too_large", "user: {dim: 8}", "user: {dim: 4097}", {"expected 1 to 4096"}},
    {"a_table_name_with_a_hyphen",
     "user: {dim: 8}",
     "us-er: {dim: 8}",
     {"`us-er` is not a name", "unknown table `user`"}},
    {"adamw_for_a_table",
     "user: {dim: 8}",
     "user: {dim: 8, optimizer: adamw}",
     {"tables.user.optimizer: rows of tables have no `adamw`; expected sgd, momentum"}},
    {"an_ftrl_rate_that_changes",
     "user: {dim: 8}",
     "user: {dim: 8, optimizer: {ftrl: {decay_samples: 5}}}",
     {"tables.user.optimizer.ftrl: a rate that changes would rescale"}},
    {"an_unknown_optimizer", "user: {dim: 8}", "user: {dim: 8, optimizer: adagradd}", {"did you mean `adagrad`?"}},
    {"an_unknown_optimizer_option",
     "user: {dim: 8}",
     "user: {dim: 8, optimizer: {ftrl: {alpha: 1}}}",
     {"unknown key `alpha`; expected lr, beta, l1, l2, clip_value"}},
    {"two_optimizers", "user: {dim: 8}", "user: {dim: 8, optimizer: {sgd: {}, ftrl: {}}}", {"not exactly one key"}},
    {"normal_without_a_number", "user: {dim: 8}", "user: {dim: 8, init: normal}", {"`normal` needs a number"}},
    {"zeros_with_a_number", "user: {dim: 8}", "user: {dim: 8, init: {zeros: 1}}", {"`zeros` takes no number"}},
    {"a_negative_scale", "user: {dim: 8}", "user: {dim: 8, init: {normal: -1}}", {"not a scale"}},
    {"unknown_initial_weights", "user: {dim: 8}", "user: {dim: 8, init: {norml: 1}}", {"did you mean `normal`?"}},
    {"a_sketch_gate",
     "user: {dim: 8}",
     "user: {dim: 8, admit: {sketch: {min: 3}}}",
     {"tables.user.admit.sketch: " LATER}},
    {"a_probability_gate",
     "user: {dim: 8}",
     "user: {dim: 8, admit: {probability: 0.1}}",
     {"tables.user.admit.probability: " LATER}},
    {"a_capacity", "user: {dim: 8}", "user: {dim: 8, expire: {rows_max: 5}}", {"tables.user.expire.rows_max: " LATER}},
    {"expiry_by_weight", "user: {dim: 8}", "user: {dim: 8, expire: {weak: 0.1}}", {"tables.user.expire.weak: " LATER}},
    {"expiry_by_score", "user: {dim: 8}", "user: {dim: 8, expire: {score: 1}}", {"tables.user.expire.score: " LATER}},
    /* slots and labels */
    {"an_unknown_table",
     "user_id: {table: user}",
     "user_id: {table: usr}",
     {"13:20: slots.user_id.table: unknown table `usr`; expected user or item; did you mean `user`?"}},
    {"a_slot_without_table", "user_id: {table: user}", "user_id: {}", {"slots.user_id.table: missing"}},
    {"a_dense_slot_with_a_table",
     "price: {kind: dense, dim: 2}",
     "price: {kind: dense, table: user}",
     {"slots.price.table: not for a slot of this kind; expected with kind sparse or sequence only"}},
    {"max_len_of_a_sparse_slot",
     "user_id: {table: user}",
     "user_id: {table: user, max_len: 5}",
     {"expected with kind sequence only"}},
    {"an_unknown_kind", "kind: sequence", "kind: sequenc", {"did you mean `sequence`?"}},
    {"a_non_finite_default",
     "price: {kind: dense, dim: 2}",
     "price: {kind: dense, dim: 2, default: .inf}",
     {"slots.price.default: `.inf` is not a number"}},
    {"an_index_twice",
     "slots:\n",
     "slots:\n  a: {table: user, index: 3}\n  b: {table: user, index: 3}\n",
     {"slots.b: index 3 is also that of `a`"}},
    {"no_labels",
     "labels: {click: {}}",
     "labels: {}",
     {"labels: 0 entries; expected 1 to 16", "unknown label `click`"}},
    /* layers */
    {"an_unknown_reference_with_its_layer",
     LAYER_X,
     "{name: x, concat: [user_idd]}",
     {"test.yaml:20:26: network.layers.0: layer `x` reads an unknown slot or layer `user_idd`",
      "did you mean `user_id`?"}},
    {"an_empty_slot_name", LAYER_X, "{name: x, concat: [.v]}", {"unknown slot or layer `.v`"}},
    {"a_cycle_with_its_layers",
     LAYER_X,
     "{name: x, concat: [price, out]}",
     {"reads itself: ", " -> ", "expected no cycle", "test.yaml:2"}},
    {"a_layer_that_reads_itself",
     LAYER_X,
     "{name: x, concat: [price, x]}",
     {"test.yaml:20:7: network.layers.0: layer `x` reads itself: x -> x"}},
    {"a_missing_part",
     LAYER_X,
     "{name: x, concat: [item_id]}",
     {"table `item` has the parts w, v; expected one of them, as in item_id.w"}},
    {"an_unknown_part",
     LAYER_X,
     "{name: x, concat: [item_id.u]}",
     {"table `item` has no part `u`; expected one of w, v"}},
    {"a_part_of_a_dense_slot", LAYER_X, "{name: x, concat: [price.v]}", {"`price.v` has no parts"}},
    {"a_pooled_dense_slot", LAYER_X, "{name: x, concat: [{sum: price}]}", {"`price` is a vector already"}},
    {"a_maximum", LAYER_X, "{name: x, max: [price]}", {"network.layers.0.max: " LATER}},
    {"batch_normalization", LAYER_X, "{name: x, batch_norm: [price]}", {"network.layers.0.batch_norm: " LATER}},
    {"an_unknown_operation",
     LAYER_X,
     "{name: x, concatt: [price]}",
     {"unknown key `concatt`", "did you mean `concat`?", "no operation"}},
    {"two_operations", LAYER_X, "{name: x, concat: [price], add: [price]}", {"a second operation in one layer"}},
    {"a_layer_without_name", LAYER_X, "{concat: [price]}", {"network.layers.0.name: missing"}},
    {"a_layer_named_like_a_slot", LAYER_X, "{name: price, concat: [price]}", {"the name `price` is that of a slot"}},
    {"two_layers_of_one_name", LAYER_X, "{name: h, concat: [price]}", {"the name `h` is taken by another layer"}},
    {"an_mlp_without_units", "units: [16, 8]", "activation: relu", {"network.layers.1: mlp needs units"}},
    {"units_of_zero", "units: [16, 8]", "units: [16, 0]", {"out of range; expected 1 to 65536"}},
    {"several_units_of_a_dense_layer",
     LAYER_OUT,
     "{name: out, dense: h, units: [2, 1]}",
     {"several units in one dense layer"}},
    {"an_empty_argument", LAYER_X, "{name: x, concat: []}", {"0 entries; expected 1 to 1024"}},
    {"too_many_parameters",
     "units: [16, 8]",
     "units: [65536, 65536, 8]",
     {"layer `h` brings the layers to more than 268435456 parameters"}},
    {"a_dense_optimizer_of_tables",
     "  layers:\n",
     "  optimizer: adagrad_rowwise\n  layers:\n",
     {"network.optimizer: layers have no `adagrad_rowwise`"}},
    /* tasks */
    {"an_unknown_label",
     TASK,
     "{name: click, label: clik, logit: out}",
     {"tasks.0.label: unknown label `clik`; expected click; did you mean `click`?"}},
    {"an_unknown_logit",
     TASK,
     "{name: click, label: click, logit: outt}",
     {"tasks.0.logit: unknown layer `outt`", "did you mean `out`?"}},
    {"two_tasks_of_one_name", "  - " TASK, "  - " TASK "\n  - " TASK, {"the name `click` is taken"}},
    {"a_loss_without_layers",
     "network:\n",
     "losses: [{name: l, mse: [{bias: price}, price]}]\nx_network:\n",
     {"network: missing", "unknown key `x_network`"}},
    /* later */
    {"cuda", "", "device=cuda", {"device: `cuda` is " LATER}},
    {"bf16", "", "export.quantize=bf16", {"export.quantize: `bf16` is " LATER}},
    {"i8", "", "export.quantize=i8", {"export.quantize: `i8` is " LATER}},
    {"hps", "", "export.format=hps", {"export.format: " LATER}},
    {"state_in_the_deltas", "", "export.state=true", {"export.state: " LATER}},
    {"snapshots", "", "export.snapshot_dir=/tmp/s", {"export.snapshot_dir: " LATER}},
    {"snapshot_intervals", "", "export.snapshot_every=1h", {"export.snapshot_every: " LATER}},
    {"kept_snapshots", "", "export.snapshot_keep=3", {"export.snapshot_keep: " LATER}},
    {"savepoints", "", "savepoints={every: 1h, keep: 6}", {"savepoints: " LATER}},
    /* Kafka */
    {"a_plugin",
     "",
     "ingest.kafka.plugin.library.paths=x",
     {"ingest.kafka.plugin.library.paths: may not be set: it loads code"}},
    {"a_command", "", "ingest.kafka.sasl.kerberos.kinit.cmd=x", {"may not be set: it runs a command"}},
    {"an_ssl_engine", "", "ingest.kafka.ssl.engine.location=x", {"may not be set: it loads code"}},
    {"ssl_providers", "", "ingest.kafka.ssl.providers=x", {"may not be set"}},
    {"a_mock_cluster", "", "ingest.kafka.test.mock.num.brokers=3", {"may not be set"}},
    {"a_group_id", "", "ingest.kafka.group.id=x", {"may not be set: positions live in the state directory"}},
    {"auto_commit", "", "ingest.kafka.enable.auto.commit=true", {"may not be set"}},
    {"auto_offset_reset",
     "",
     "ingest.kafka.auto.offset.reset=latest",
     {"may not be set: it is `ingest.start` and `ingest.on_loss`"}},
    {"auto_offset_store", "", "ingest.kafka.enable.auto.offset.store=true", {"may not be set"}},
    {"bootstrap_servers", "", "ingest.kafka.bootstrap.servers=x", {"may not be set: it is `ingest.brokers`"}},
    {"a_broker_list", "", "ingest.kafka.metadata.broker.list=x", {"may not be set: it is `ingest.brokers`"}},
    {"an_isolation_level", "", "ingest.kafka.isolation.level=x", {"may not be set"}},
    {"partition_eof", "", "ingest.kafka.enable.partition.eof=true", {"may not be set"}},
    {"a_callback", "", "ingest.kafka.rebalance_cb=x", {"may not be set: it is a function"}},
    {"a_delivery_callback", "", "ingest.kafka.dr_msg_cb=x", {"may not be set: it is a function"}},
    {"a_property_without_value", "  batch_size: 256", "  kafka: {client.id: }", {"ingest.kafka.client.id: empty"}},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

FR_CASE(is_refused)
{
    const struct row *row = *state;
    const char *sets[] = {row->to};
    bool set = row->from && row->from[0] == '\0';
    char *text = row->from && !set ? variant(row->from, row->to) : NULL;
    char *problems = problems_of(set ? base_text : text ? text : row->to, sets, set ? 1 : 0);
    for (size_t i = 0; i < 4 && row->parts[i]; i++)
        assert_contains(problems, row->parts[i]);
    free(problems);
    free(text);
}

FR_CASE(every_problem_of_a_file_is_reported_in_its_order)
{
    static const char text[] = "version: 3\n"
                               "epoch: 20\n"
                               "ingest: {brokers: b, topic: t, batch_size: 0, strct: true}\n"
                               "slots: {a: {table: none}}\n";
    char *problems = problems_of(text, NULL, 0);
    static const char *const expected[] = {"1:1: labels: missing",
                                           "1:1: model: missing",
                                           "1:10: version: `3`",
                                           "2:8: epoch: `20` needs a unit",
                                           "3:44: ingest.batch_size: `0`",
                                           "3:47: ingest: unknown key `strct`",
                                           "4:20: slots.a.table: unknown table `none`"};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        assert_contains(problems, expected[i]);
    assert_true(strstr(problems, expected[2]) < strstr(problems, expected[3]));
    assert_true(strstr(problems, expected[3]) < strstr(problems, expected[4]));
    assert_true(strstr(problems, expected[4]) < strstr(problems, expected[5]));
    assert_true(strstr(problems, expected[5]) < strstr(problems, expected[6]));
    free(problems);
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

/* Neither a crash nor an accepted text that does not print to itself. */
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

FR_CASE(a_mutated_file_is_refused_or_loads_and_prints)
{
    mutate(base_text, sizeof(base_text) - 1, 3000);
    mutate(rich_text, sizeof(rich_text) - 1, 3000);
}

int main(void)
{
    struct CMUnitTest *tests = calloc(N_ROWS + 5, sizeof(*tests));
    char(*names)[128] = calloc(N_ROWS, sizeof(*names));
    if (!tests || !names)
        return 1;
    for (size_t i = 0; i < N_ROWS; i++) {
        snprintf(names[i], sizeof(names[i]), "%s_is_refused", rows[i].name);
        tests[i] = (struct CMUnitTest){names[i], is_refused, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    }
    tests[N_ROWS] = (struct CMUnitTest)cmocka_unit_test(every_problem_of_a_file_is_reported_in_its_order);
    tests[N_ROWS + 1] = (struct CMUnitTest)cmocka_unit_test(a_doubling_chain_of_aliases_is_refused_and_stays_small);
    tests[N_ROWS + 2] = (struct CMUnitTest)cmocka_unit_test(more_problems_than_the_limit_are_counted);
    tests[N_ROWS + 3] = (struct CMUnitTest)cmocka_unit_test(a_missing_file_is_a_problem);
    tests[N_ROWS + 4] = (struct CMUnitTest)cmocka_unit_test(a_mutated_file_is_refused_or_loads_and_prints);
    int failed = _cmocka_run_group_tests("refused", tests, N_ROWS + 5, NULL, NULL);
    free(tests);
    free(names);
    return failed;
}
