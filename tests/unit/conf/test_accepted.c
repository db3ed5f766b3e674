/* What a valid configuration becomes: defaults, units, layers, --set, printing, the committed
 * files. */
#include "conf_fixture.h"
#include "reference.h"

#include "base/hash.h"

#define LAYER_X "{name: x, concat: [user_id, item_id.v, {mean: history.v}, price]}"

FR_CASE(defaults_are_those_of_the_design)
{
    struct fr_conf *conf = load(base_text);
    assert_string_equal(conf->model, "ctr");
    assert_int_equal(conf->memory_limit, 4ULL << 30);
    assert_int_equal(conf->seed, 1);
    assert_int_equal(conf->threads, 0);
    assert_int_equal(conf->chunk_rows, 128);
    assert_int_equal(conf->epoch_ms, 1000);
    assert_int_equal(conf->heartbeat_ms, 10000);
    assert_int_equal(conf->epoch_bytes_max, 128 << 20);
    assert_int_equal(conf->unfolded_max, 512 << 20);
    assert_int_equal(conf->journal_max, 2048ULL << 20);
    assert_string_equal(conf->ingest.dead_letter_topic, "samples.dead");
    assert_int_equal(conf->ingest.batch_wait_ms, 20);
    assert_int_equal(conf->ingest.record_max, 1 << 20);
    assert_int_equal(conf->ingest.group_max, 4096);
    assert_int_equal(conf->ingest.future_max_ms, 3600000);
    assert_int_equal(conf->ingest.ready_lag_ms, 30000);
    assert_int_equal(conf->ingest.ring_batches, 16);
    assert_int_equal(conf->ingest.start, FR_START_EARLIEST);
    assert_int_equal(conf->ingest.on_loss, FR_ON_LOSS_STOP);
    assert_false(conf->ingest.strict);
    assert_false(conf->ingest.lockstep);
    assert_string_equal(conf->export_.topic, "ctr.delta");
    assert_string_equal(conf->export_.brokers, "localhost:9092");
    assert_int_equal(conf->export_.quantize, FR_QUANT_F32);
    assert_int_equal(conf->export_.partitions, 4);
    assert_int_equal(conf->export_.piece_max, 512 << 10);
    assert_true(conf->export_.create);
    assert_int_equal(conf->export_.drain_timeout_ms, 60000);
    assert_string_equal(conf->metrics.listen_host, "127.0.0.1");
    assert_int_equal(conf->metrics.listen_port, 8080);
    assert_int_equal(conf->metrics.n_half_lives, 3);
    assert_int_equal(conf->metrics.half_life_ms[1], 3600000);
    assert_string_equal(conf->metrics.half_life_name[2], "1d");
    assert_int_equal(conf->dense_optimizer.kind, FR_OPT_ADAM);
    assert_float_equal(conf->dense_optimizer.beta2, 0.999f, 0);
    fr_conf_free(conf);
}

FR_CASE(tables_and_slots_get_their_defaults)
{
    struct fr_conf *conf = load(base_text);
    assert_int_equal(conf->n_tables, 2);
    const struct fr_conf_table *user = &conf->tables[0], *item = &conf->tables[1];
    assert_int_equal(user->n_parts, 1);
    assert_string_equal(user->parts[0].name, "v");
    assert_int_equal(user->parts[0].optimizer.kind, FR_OPT_ADAGRAD);
    assert_float_equal(user->parts[0].optimizer.eps, 1e-8f, 0);
    assert_float_equal(user->parts[0].optimizer.initial, 0, 0);
    assert_int_equal(user->parts[0].init.kind, FR_INIT_NORMAL);
    assert_float_equal(user->parts[0].init.scale, 0.01f, 0);
    assert_int_equal(user->admit_count, 1);
    assert_int_equal(user->admit_count_max, 16777216);
    assert_int_equal(user->admit_idle_ms, 86400000);
    assert_int_equal(user->expire.idle.idle_ms, 0);
    assert_int_equal(user->expire_every, 16);
    assert_int_equal(user->expire_slice_rows, 65536);
    assert_int_equal(user->initial_capacity, 0);
    assert_int_equal(item->n_parts, 2);
    assert_int_equal(item->parts[0].optimizer.kind, FR_OPT_FTRL);
    assert_float_equal(item->parts[0].optimizer.beta, 1, 0);
    assert_int_equal(item->parts[0].init.kind, FR_INIT_ZEROS);
    const struct fr_conf_slot *history = &conf->slots[2], *price = &conf->slots[3];
    assert_int_equal(conf->slots[0].kind, FR_SLOT_SPARSE);
    assert_int_equal(conf->slots[0].max_ids, 1024);
    assert_int_equal(conf->slots[0].index, FR_NO_INDEX);
    assert_true(conf->slots[0].admit && conf->slots[0].touch);
    assert_int_equal(history->max_len, 50);
    assert_int_equal(history->table, 1);
    assert_string_equal(history->name_space, "item");
    assert_int_equal(history->seed, fr_xxh3("item", 4));
    assert_int_equal(price->table, FR_NO_INDEX);
    assert_int_equal(price->dim, 2);
    fr_conf_free(conf);
}

FR_CASE(units_are_read)
{
    static const char *const sets[] = {"ingest.batch_wait=5ms", "ingest.ready_lag=2m",   "ingest.future_max=3h",
                                       "heartbeat=0",           "memory_limit=3GiB",     "unfolded_max=65536B",
                                       "journal_max=1TiB",      "export.piece_max=64KiB"};
    struct fr_conf *conf = load_with(base_text, sets, 3);
    assert_int_equal(conf->ingest.batch_wait_ms, 5);
    assert_int_equal(conf->ingest.ready_lag_ms, 120000);
    assert_int_equal(conf->ingest.future_max_ms, 3 * 3600000);
    fr_conf_free(conf);
    conf = load_with(base_text, sets + 4, 4);
    assert_int_equal(conf->memory_limit, 3ULL << 30);
    assert_int_equal(conf->unfolded_max, 65536);
    assert_int_equal(conf->journal_max, 1ULL << 40);
    assert_int_equal(conf->export_.piece_max, 65536);
    fr_conf_free(conf);
}

FR_CASE(zero_needs_no_unit)
{
    static const char *const sets[] = {"ingest.batch_wait=0"};
    struct fr_conf *conf = load_with(base_text, sets, 1);
    assert_int_equal(conf->ingest.batch_wait_ms, 0);
    fr_conf_free(conf);
}

FR_CASE(memory_decides_the_sizes_that_follow_from_it)
{
    static const char *const sets[] = {"memory_limit=64MiB"};
    struct fr_conf *conf = load_with(base_text, sets, 1);
    assert_int_equal(conf->epoch_bytes_max, 4 << 20);
    assert_int_equal(conf->unfolded_max, 16 << 20);
    assert_int_equal(conf->journal_max, 64 << 20);
    fr_conf_free(conf);
}

FR_CASE(epochs_take_less_of_a_larger_memory)
{
    static const char *const limits[] = {"memory_limit=1536MiB", "memory_limit=3GiB", "memory_limit=64GiB"};
    static const unsigned epoch_mib[] = {64, 96, 256};
    for (size_t i = 0; i < 3; i++) {
        struct fr_conf *conf = load_with(base_text, &limits[i], 1);
        assert_int_equal(conf->epoch_bytes_max, epoch_mib[i] << 20);
        fr_conf_free(conf);
    }
}

FR_CASE(a_large_network_begins_with_larger_batches)
{
    static const char network[] =
        "version: 1\nmodel: m\nstate_dir: /tmp/m\ningest: {brokers: \"localhost:9092\", topic: samples}\n"
        "tables: {user: {dim: 8}}\nslots: {user_id: {table: user}}\nlabels: {click: {}}\n"
        "network: {layers: [{name: h, mlp: user_id, units: [%d]}, {name: out, dense: h, units: 1}]}\n"
        "tasks: [{name: click, label: click, logit: out, loss: logloss}]\n";
    static const char *const given[] = {"ingest.batch_warmup.first=3"}, *const none[] = {"ingest.batch_warmup.first=0"};
    char text[2048];
    /* 8 + 2 numbers a unit, and the bias of the output */
    const struct {
        int units;
        uint32_t first;
    } sizes[] = {{13107, 2}, {13108, 8}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        snprintf(text, sizeof(text), network, sizes[i].units);
        struct fr_conf *conf = load_with(text, NULL, 0);
        assert_int_equal(conf->dense_parameters, 10 * sizes[i].units + 1);
        assert_int_equal(conf->ingest.batch_warmup_first, sizes[i].first);
        fr_conf_free(conf);
        conf = load_with(text, given, 1);
        assert_int_equal(conf->ingest.batch_warmup_first, 3);
        fr_conf_free(conf);
        conf = load_with(text, none, 1);
        assert_int_equal(conf->ingest.batch_warmup_first, 0);
        fr_conf_free(conf);
    }
}

FR_CASE(a_set_replaces_adds_and_indexes)
{
    static const char *const sets[] = {"ingest.batch_size=7",        "tables.user.optimizer={sgd: {lr: 0.5}}",
                                       "tasks.0.weight=2.5",         "ingest.lockstep.records=3",
                                       "metrics.listen=\"[::1]:0\"", "ingest.kafka.security.protocol=ssl",
                                       "metrics.hosts=[freshet.svc]"};
    struct fr_conf *conf = load_with(base_text, sets, 7);
    assert_int_equal(conf->ingest.batch_size, 7);
    assert_int_equal(conf->tables[0].parts[0].optimizer.kind, FR_OPT_SGD);
    assert_float_equal(conf->tables[0].parts[0].optimizer.lr, 0.5f, 0);
    assert_float_equal(conf->tasks[0].weight, 2.5f, 0);
    assert_true(conf->ingest.lockstep);
    assert_int_equal(conf->ingest.lockstep_records, 3);
    assert_int_equal(conf->ingest.lockstep_epoch_batches, 64);
    assert_string_equal(conf->metrics.listen_host, "::1");
    assert_int_equal(conf->metrics.listen_port, 0);
    assert_int_equal(conf->metrics.n_hosts, 1);
    assert_string_equal(conf->metrics.hosts[0], "freshet.svc");
    assert_int_equal(conf->ingest.n_kafka, 1);
    assert_string_equal(conf->ingest.kafka[0].name, "security.protocol");
    assert_string_equal(conf->ingest.kafka[0].value, "ssl");
    fr_conf_free(conf);
}

FR_CASE(an_alias_is_a_reference_and_not_a_shared_value)
{
    char *text = variant("  user: {dim: 8}\n", "  user: &t {dim: 8}\n  other: *t\n");
    static const char *const sets[] = {"tables.other.dim=9"};
    struct fr_conf *conf = load_with(text, sets, 1);
    assert_int_equal(conf->tables[0].parts[0].dim, 8);
    assert_string_equal(conf->tables[1].name, "other");
    assert_int_equal(conf->tables[1].parts[0].dim, 9);
    fr_conf_free(conf);
    free(text);
}

FR_CASE(layers_are_sorted_and_keep_the_order_of_the_file_where_they_can)
{
    char *text =
        variant("    - " LAYER_X "\n    - {name: h, mlp: x, units: [16, 8]}\n    - {name: out, dense: h, units: 1}\n",
                "    - {name: out, add: [z, wide]}\n"
                "    - {name: fm, bi_interaction: [user_id, item_id.v, {sum: history.v}]}\n"
                "    - {name: z, dense: [h, fm], units: 1}\n"
                "    - {name: wide, sum: [item_id.w, {sum: history.w}]}\n"
                "    - {name: h, mlp: [price, {mean: user_id}], units: 4, activation: none}\n");
    struct fr_conf *conf = load(text);
    static const char *const order[] = {"fm", "wide", "h", "z", "out"};
    assert_int_equal(conf->n_layers, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(conf->layers[i].name, order[i]);
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        for (uint32_t r = 0; r < conf->layers[i].n_refs; r++)
            assert_true(conf->layers[i].refs[r].kind != FR_REF_LAYER || conf->layers[i].refs[r].index < (int32_t)i);
    }
    const struct fr_conf_layer *wide = &conf->layers[1], *h = &conf->layers[2], *z = &conf->layers[3];
    assert_int_equal(wide->refs[1].kind, FR_REF_POOLED);
    assert_int_equal(wide->refs[1].index, 2);
    assert_int_equal(wide->refs[1].part, 0);
    assert_int_equal(wide->refs[1].pooling, FR_POOL_SUM);
    assert_int_equal(wide->line, 23);
    assert_int_equal(h->activation, FR_ACT_NONE);
    assert_int_equal(h->n_units, 1);
    assert_int_equal(h->refs[0].kind, FR_REF_DENSE);
    assert_int_equal(h->refs[1].pooling, FR_POOL_MEAN);
    assert_int_equal(h->refs[1].part, 0);
    assert_int_equal(z->refs[0].index, 2);
    assert_int_equal(conf->tasks[0].logit, 4);
    fr_conf_free(conf);
    free(text);
}

FR_CASE(activations_default_by_operation)
{
    struct fr_conf *conf = load(base_text);
    assert_int_equal(conf->layers[1].activation, FR_ACT_RELU);
    assert_int_equal(conf->layers[1].n_units, 2);
    assert_int_equal(conf->layers[2].activation, FR_ACT_NONE);
    fr_conf_free(conf);
}

FR_CASE(slot_options_are_read)
{
    char *text = variant(
        "  user_id: {table: user}\n",
        "  user_id: {table: user, namespace: people, id: raw, index: 4, max_ids: 9, admit: never, touch: false}\n");
    struct fr_conf *conf = load(text);
    const struct fr_conf_slot *slot = &conf->slots[0];
    assert_string_equal(slot->name_space, "people");
    assert_int_equal(slot->seed, fr_xxh3("people", 6));
    assert_true(slot->id_raw);
    assert_int_equal(slot->index, 4);
    assert_int_equal(slot->max_ids, 9);
    assert_false(slot->admit || slot->touch);
    fr_conf_free(conf);
    free(text);
}

FR_CASE(gates_and_expiry_are_read)
{
    struct fr_conf *conf = load_variant(
        "user: {dim: 8}",
        "user: {dim: 8, admit: {count: 2, count_max: 100, idle: 2h}, expire: {idle: 30d, every: 8, slice_rows: 4096}, "
        "initial_capacity: 1000000}");
    const struct fr_conf_table *table = &conf->tables[0];
    assert_int_equal(table->admit_count, 2);
    assert_int_equal(table->admit_count_max, 100);
    assert_int_equal(table->admit_idle_ms, 7200000);
    assert_int_equal(table->expire.idle.idle_ms, 30LL * 86400000);
    assert_int_equal(table->expire_every, 8);
    assert_int_equal(table->expire_slice_rows, 4096);
    assert_int_equal(table->initial_capacity, 1000000);
    fr_conf_free(conf);
}

FR_CASE(a_sketch_and_every_rule_of_expiry_are_read_and_shown_when_given)
{
    struct fr_conf *conf =
        load_variant("user: {dim: 8}", "user: {dim: 8, admit: {sketch: {min: 3, half_life: 2h, bytes: 1MiB}}, expire: "
                                       "{weak: 0.5, rows_max: 1000, score: {click_weight: 2, min: 0.25}}}");
    const struct fr_conf_table *table = &conf->tables[0];
    assert_true(table->admit_sketch && !table->admit_counts && !table->admit_coins);
    assert_int_equal(table->admit_sketch_min, 3);
    assert_int_equal(table->admit_sketch_half_life_ms, 7200000);
    assert_int_equal(table->admit_sketch_bytes, 1 << 20);
    assert_true(table->expires.weak && table->expires.score && table->expires.capacity);
    assert_float_equal(table->expire.weak.norm, 0.5f, 0);
    assert_int_equal(table->expire.capacity.rows_max, 1000);
    assert_float_equal(table->expire.score.show_weight, 0.1f, 0);
    assert_float_equal(table->expire.score.click_weight, 2.0f, 0);
    assert_float_equal(table->expire.score.min, 0.25f, 0);
    assert_int_equal(table->expire.score.half_life_ms, 30LL * 86400000);
    assert_prints_and_loads(conf);
    struct fr_buffer json = {0};
    fr_conf_training_json(conf, &json);
    fr_put_u8(&json, 0);
    assert_contains(
        (const char *)json.data,
        "{\"admit\":{\"sketch\":{\"bytes\":\"1MiB\",\"half_life\":\"2h\",\"min\":3}},\"expire\":{\"rows_max\":1000,\"score\":{\"click_weight\":2,"
        "\"half_life\":\"30d\",\"min\":0.25,\"show_weight\":0.100000001},\"weak\":0.5},\"name\":\"user\"");
    fr_buffer_release(&json);
    fr_conf_free(conf);
}

FR_CASE(a_probability_is_read_and_shown_when_given)
{
    struct fr_conf *conf = load_variant("user: {dim: 8}", "user: {dim: 8, admit: {probability: 0.25}}");
    assert_true(conf->tables[0].admit_coins && !conf->tables[0].admit_counts);
    assert_float_equal(conf->tables[0].admit_probability, 0.25f, 0);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
    conf = load_variant("user: {dim: 8}", "user: {dim: 8}");
    char *text = printed(conf);
    assert_null(strstr(text, "probability"));
    assert_null(strstr(text, "sketch"));
    assert_null(strstr(text, "rows_max"));
    assert_null(strstr(text, "score"));
    free(text);
    assert_true(conf->tables[0].admit_counts);
    fr_conf_free(conf);
}

FR_CASE(every_optimizer_of_a_table_is_read)
{
    static const struct {
        const char *text;
        enum fr_optimizer_kind kind;
        float lr;
    } rows[] = {{"sgd", FR_OPT_SGD, 0.01f},
                {"{adagrad: {lr: 0.1, eps: 1e-6, initial: 0.5}}", FR_OPT_ADAGRAD, 0.1f},
                {"{adagrad_rowwise: {}}", FR_OPT_ADAGRAD_ROWWISE, 0.05f},
                {"{ftrl: {lr: 0.3, beta: 2, l1: 0.001, l2: 1}}", FR_OPT_FTRL, 0.3f}};
    for (size_t i = 0; i < 4; i++) {
        char text[160];
        snprintf(text, sizeof(text), "user: {dim: 8, optimizer: %s}", rows[i].text);
        struct fr_conf *conf = load_variant("user: {dim: 8}", text);
        const struct fr_conf_part *part = &conf->tables[0].parts[0];
        assert_int_equal(part->optimizer.kind, rows[i].kind);
        assert_float_equal(part->optimizer.lr, rows[i].lr, 0);
        assert_int_equal(part->init.kind, FR_INIT_NORMAL);
        fr_conf_free(conf);
        snprintf(text, sizeof(text), "user: {dim: 1, optimizer: %s}", rows[i].text);
        conf = load_variant("user: {dim: 8}", text);
        assert_int_equal(conf->tables[0].parts[0].init.kind,
                         rows[i].kind == FR_OPT_FTRL ? FR_INIT_ZEROS : FR_INIT_NORMAL);
        fr_conf_free(conf);
    }
}

FR_CASE(what_is_printed_loads_to_an_equal_configuration)
{
    static const char *const sets[] = {"ingest.lockstep={}",
                                       "ingest.kafka={client.id: \"a \\\"b\\\"\\n\", linger.ms: 5}",
                                       "memory_limit=1048577B",
                                       "epoch=1001ms",
                                       "slots.price.default=-0.1",
                                       "slots.price.key=\"a\\u2028\\x85\\x7f\\ufeffb\"",
                                       "slots.price.transform=log1p",
                                       "slots.user_id.index=7",
                                       "slots.user_id.id=raw",
                                       "slots.user_id.admit=never",
                                       "slots.history.touch=false",
                                       "tables.user.init={uniform: 0.05}",
                                       "tables.user.expire.idle=30d",
                                       "network.optimizer={sgd: {lr: 0.333}}",
                                       "tasks.0.weight=0.25",
                                       "seed=18446744073709551615",
                                       "metrics.auc_half_life=[90m, 36h]",
                                       "export.quantize=f16",
                                       "device=cuda:3",
                                       "gpu_memory_limit=7MiB"};
    struct fr_conf *conf = load_with(base_text, sets, sizeof(sets) / sizeof(sets[0]));
    assert_int_equal(conf->seed, UINT64_MAX);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(files_without_brokers_print_and_load)
{
    static const char *const sets[] = {"ingest={files: [a.jsonl], format: json}"};
    struct fr_conf *conf = load_with(base_text, sets, FR_ARRAY_LEN(sets));
    assert_null(conf->ingest.brokers);
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(secrets_are_masked)
{
    static const char *const sets[] = {"ingest.kafka.sasl.password=hunter2", "ingest.kafka.ssl.key.pem=topkey",
                                       "ingest.kafka.sasl.oauthbearer.client.secret=abc123",
                                       "ingest.kafka.client.id=shown"};
    struct fr_conf *conf = load_with(base_text, sets, 4);
    char *text = printed(conf);
    assert_null(strstr(text, "hunter2"));
    assert_null(strstr(text, "topkey"));
    assert_null(strstr(text, "abc123"));
    assert_contains(text, "sasl.password: \"***\"");
    assert_contains(text, "client.id: \"shown\"");
    assert_string_equal(conf->ingest.kafka[0].value, "hunter2");
    free(text);
    fr_conf_free(conf);
}

static struct fr_conf *load_file(const char *name)
{
    struct fr_buffer problems = {0};
    struct fr_conf *conf = NULL;
    char path[512];
    snprintf(path, sizeof(path), "%s/conf/%s", FR_SOURCE_DIR, name);
    struct fr_conf_load_options options = {.path = path};
    if (fr_conf_load(&options, &conf, &problems) != FR_OK)
        fail_msg("%s", (const char *)problems.data);
    fr_buffer_release(&problems);
    return conf;
}

FR_CASE(the_sample_configuration_loads_and_prints)
{
    struct fr_conf *conf = load_file("freshet.yaml");
    assert_int_equal(conf->n_tasks, 2);
    assert_int_equal(conf->export_.quantize, FR_QUANT_F16);
    assert_string_equal(conf->slots[4].name_space, "country");
    assert_prints_and_loads(conf);
    fr_conf_free(conf);
}

FR_CASE(the_samples_of_models_load_and_print)
{
    static const struct {
        const char *name;
        uint32_t tasks;
        enum fr_layer_op op; /* an operation that some layer has */
    } rows[] = {{"samples/general.yaml", 1, FR_LAYER_FM},           {"samples/fm.yaml", 1, FR_LAYER_FM},
                {"samples/dlrm.yaml", 1, FR_LAYER_DOT_INTERACTION}, {"samples/dcn.yaml", 1, FR_LAYER_CROSS},
                {"samples/din.yaml", 1, FR_LAYER_ATTENTION},        {"samples/esmm.yaml", 3, FR_LAYER_MLP},
                {"samples/mmoe.yaml", 3, FR_LAYER_MIXTURE}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fr_conf *conf = load_file(rows[i].name);
        bool has = false;
        for (uint32_t l = 0; l < conf->n_layers; l++)
            has = has || conf->layers[l].op == rows[i].op;
        assert_true(has);
        assert_int_equal(conf->n_tasks, rows[i].tasks);
        assert_prints_and_loads(conf);
        fr_conf_free(conf);
    }
}

static void assert_reference_part(const struct fr_conf_part *part, const char *model)
{
    bool ftrl = strcmp(model, "ftrl") == 0, linear = strcmp(part->name, "v") != 0;
    assert_int_equal(part->dim, linear ? 1 : 8);
    assert_int_equal(part->optimizer.kind, ftrl ? FR_OPT_FTRL : FR_OPT_ADAGRAD);
    assert_float_equal(part->optimizer.lr, ftrl ? 0.3f : 0.1f, 0);
    assert_float_equal(part->optimizer.l2, ftrl ? 1 : 0, 0);
    assert_int_equal(part->init.kind, linear ? FR_INIT_ZEROS : FR_INIT_NORMAL);
}

/* What is learned on the public streams is defined in the data's README; a slip here would look
 * like a wrong AUC. */
FR_CASE(the_reference_configurations_are_those_of_the_reference_runs)
{
    static const struct {
        const char *stream;
        uint32_t slots, dense, labels;
        bool history;
    } rows[] = {{"adult", 10, 6, 1, false},      {"ml", 9, 2, 2, true},         {"globo_200k", 14, 3, 2, true},
                {"grocery", 7, 2, 1, true},      {"hillstrom", 9, 2, 2, false}, {"criteo_2000", 27, 13, 1, false},
                {"open_bandit", 13, 2, 1, false}};
    static const char *const models[] = {"mlp", "fm", "ftrl", "din", "two"};
    for (size_t i = 0; i < 5 * sizeof(rows) / sizeof(rows[0]); i++) {
        const char *model = models[i % 5];
        bool din = strcmp(model, "din") == 0, two = strcmp(model, "two") == 0, ftrl = strcmp(model, "ftrl") == 0;
        char name[64];
        if ((din && !rows[i / 5].history) || (two && rows[i / 5].labels == 1))
            continue;
        snprintf(name, sizeof(name), "reference/%s_%s.yaml", rows[i / 5].stream, model);
        struct fr_conf *conf = load_file(name);
        assert_int_equal(conf->n_slots, rows[i / 5].slots);
        assert_int_equal(conf->slots[conf->n_slots - 1].dim, rows[i / 5].dense);
        assert_int_equal(conf->n_sample_labels, rows[i / 5].labels);
        /* The reference runs of hillstrom, except ftrl, have two outputs; its `two` is ESMM. */
        uint32_t both = strcmp(rows[i / 5].stream, "hillstrom") == 0 && !ftrl;
        assert_int_equal(conf->n_tasks, 1 + both + two);
        assert_int_equal(conf->tasks[0].label, 0);
        assert_int_equal(conf->ingest.lockstep_records, ftrl ? 1 : 128);
        assert_int_equal(conf->ingest.batch_warmup_first, 0);
        assert_int_equal(conf->dense_optimizer.kind, ftrl ? FR_OPT_FTRL : FR_OPT_ADAM);
        for (uint32_t t = 0; t < conf->n_tables; t++) {
            assert_int_equal(conf->tables[t].admit_count, 1);
            assert_int_equal(conf->tables[t].expire.idle.idle_ms, 0);
            for (uint32_t p = 0; p < conf->tables[t].n_parts; p++)
                assert_reference_part(&conf->tables[t].parts[p], model);
        }
        /* the history and the items are the same rows */
        for (uint32_t l = 0; din && l < conf->n_slots; l++) {
            if (strcmp(conf->slots[l].name, "hist") == 0 || strcmp(conf->slots[l].name, "prev") == 0)
                assert_string_equal(conf->slots[l].name_space, "item");
        }
        assert_prints_and_loads(conf);
        fr_conf_free(conf);
    }
}

/* With FR_UPDATE set in the environment the file is written instead. */
FR_CASE(the_committed_reference_is_that_of_the_table)
{
    static const char path[] = FR_SOURCE_DIR "/conf/OPTIONS.md";
    struct fr_buffer expected = {0};
    write_reference(&expected);
    FILE *file = fopen(path, getenv("FR_UPDATE") ? "w" : "r");
    assert_non_null(file);
    if (getenv("FR_UPDATE")) {
        assert_int_equal(fwrite(expected.data, 1, expected.size, file), expected.size);
    } else {
        char *have = calloc(1, 1 << 20);
        size_t size = fread(have, 1, (1 << 20) - 1, file);
        assert_int_equal(size, expected.size);
        assert_string_equal(have, (const char *)expected.data);
        free(have);
    }
    assert_int_equal(fclose(file), 0);
    fr_buffer_release(&expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_design),
        cmocka_unit_test(tables_and_slots_get_their_defaults),
        cmocka_unit_test(units_are_read),
        cmocka_unit_test(zero_needs_no_unit),
        cmocka_unit_test(memory_decides_the_sizes_that_follow_from_it),
        cmocka_unit_test(epochs_take_less_of_a_larger_memory),
        cmocka_unit_test(a_large_network_begins_with_larger_batches),
        cmocka_unit_test(a_set_replaces_adds_and_indexes),
        cmocka_unit_test(an_alias_is_a_reference_and_not_a_shared_value),
        cmocka_unit_test(layers_are_sorted_and_keep_the_order_of_the_file_where_they_can),
        cmocka_unit_test(activations_default_by_operation),
        cmocka_unit_test(slot_options_are_read),
        cmocka_unit_test(gates_and_expiry_are_read),
        cmocka_unit_test(a_sketch_and_every_rule_of_expiry_are_read_and_shown_when_given),
        cmocka_unit_test(a_probability_is_read_and_shown_when_given),
        cmocka_unit_test(every_optimizer_of_a_table_is_read),
        cmocka_unit_test(what_is_printed_loads_to_an_equal_configuration),
        cmocka_unit_test(files_without_brokers_print_and_load),
        cmocka_unit_test(secrets_are_masked),
        cmocka_unit_test(the_sample_configuration_loads_and_prints),
        cmocka_unit_test(the_samples_of_models_load_and_print),
        cmocka_unit_test(the_reference_configurations_are_those_of_the_reference_runs),
        cmocka_unit_test(the_committed_reference_is_that_of_the_table),
    };
    return cmocka_run_group_tests_name("accepted", tests, NULL, NULL);
}
