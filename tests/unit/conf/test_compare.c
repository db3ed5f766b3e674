/* The changes that a configuration makes to an existing model: how they are reported, and whether a
 * state can accept them. */
#include "conf_fixture.h"

#include <stdarg.h>

/* The lines of all changes between base_text with one and with the other setting; a refused one
 * ends with its reason in brackets. */
static void compare(const char *before_set, const char *after_set, struct fr_buffer *out)
{
    struct fr_conf *before = load_with(base_text, &before_set, before_set ? 1 : 0),
                   *after = load_with(base_text, &after_set, after_set ? 1 : 0);
    char *model_a = model_json(before), *model_b = model_json(after);
    char *training_a = training_json(before), *training_b = training_json(after);
    struct fr_conf_changes changes = {0};
    struct fr_err err = {0};
    assert_int_equal(fr_conf_compare_models(model_a, model_b, &changes, &err), FR_OK);
    assert_int_equal(fr_conf_compare_training(training_a, training_b, &changes, &err), FR_OK);
    assert_in_range(changes.n, 0, FR_CONF_CHANGES_MAX);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < changes.n; i++) {
        const struct fr_conf_change *change = &changes.list[i];
        refused += change->refused != NULL;
        fr_buffer_printf(out, "%s%s", i ? "\n" : "", change->text);
        if (change->refused)
            fr_buffer_printf(out, " [%s]", change->refused);
    }
    fr_buffer_terminate(out);
    assert_int_equal(changes.n_refused, refused);
    free(model_a);
    free(model_b);
    free(training_a);
    free(training_b);
    fr_conf_free(before);
    fr_conf_free(after);
}

static void assert_changes(const char *before, const char *after, const char *expected)
{
    struct fr_buffer out = {0};
    compare(before, after, &out);
    assert_string_equal((const char *)out.data, expected);
    fr_buffer_release(&out);
}

#define TAKEN(set, text) assert_changes(NULL, set, text)
#define SERVED " [replicas hold it]"

FR_CASE(equal_configurations_have_no_changes)
{
    TAKEN("memory_limit=64MiB", "");
    TAKEN("network.optimizer={adam: {lr: 0.001}}", "");
}

FR_CASE(what_training_goes_by_can_change_and_is_named_with_short_numbers)
{
    TAKEN("network.optimizer={adam: {lr: 0.002}}", "network.optimizer.lr: 0.001 -> 0.002");
    TAKEN("tables.user.optimizer={adagrad: {lr: 1}}", "tables.user.parts.v.optimizer.lr: 0.05 -> 1");
    TAKEN("network.optimizer={adam: {l2: 1e-5, clip_norm: 5}}",
          "network.optimizer.clip_norm: 0 -> 5\nnetwork.optimizer.l2: 0 -> 1e-05");
    TAKEN("network.optimizer={adam: {warmup_samples: 1000}}", "network.optimizer.warmup_samples: 0 -> 1000");
    TAKEN("network.optimizer={adam: {decay_all: true}}", "network.optimizer.decay_all: false -> true");
    TAKEN("network.clip_global_norm=1", "network.clip_global_norm: 0 -> 1");
    TAKEN("tables.user.init={uniform: 0.05}",
          "tables.user.parts.v.init.kind: normal -> uniform\ntables.user.parts.v.init.scale: 0.01 -> 0.05");
    TAKEN("tasks.0.weight=2.5", "tasks.click.weight: 1 -> 2.5");
    TAKEN("ingest.sampling=none", "ingest.sampling: all -> none");
    TAKEN("ingest.batch_size=512", "ingest.batch_size: 256 -> 512");
    TAKEN("seed=18446744073709551615", "seed: 1 -> 18446744073709551615");
    TAKEN("network.precision=bf16", "network.precision: f32 -> bf16");
}

FR_CASE(admission_and_expiry_can_change_but_no_gate_reads_a_sketch)
{
    TAKEN("tables.user.admit={count: 3, idle: 2h}",
          "tables.user.admit.count: 1 -> 3\ntables.user.admit.idle: 1d -> 2h");
    TAKEN("tables.user.admit={sketch: {min: 2}}", "tables.user.admit: count -> sketch");
    TAKEN("tables.user.admit={probability: 0.1}", "tables.user.admit: count -> probability");
    assert_changes("tables.user.admit={probability: 0.1}", NULL, "tables.user.admit: probability -> count");
    assert_changes("tables.user.admit={sketch: {min: 2}}", "tables.user.admit={sketch: {min: 3}}",
                   "tables.user.admit.sketch.min: 2 -> 3");
    assert_changes("tables.user.admit={sketch: {min: 2}}", "tables.user.admit={sketch: {min: 2, half_life: 2h}}",
                   "tables.user.admit.sketch.half_life: 1d -> 2h [counters are dated by it]");
    assert_changes("tables.user.admit={sketch: {min: 2}}", "tables.user.admit={sketch: {min: 2, bytes: 1MiB}}",
                   "tables.user.admit.sketch.bytes: 64MiB -> 1MiB [counters lie where it says]");
    assert_changes("tables.user.admit={sketch: {min: 2}}", NULL,
                   "tables.user.admit: sketch -> count [no other gate reads the counters of a sketch]");
    TAKEN("tables.user.expire={idle: 30d, rows_max: 1000}",
          "tables.user.expire.idle: 0 -> 30d\ntables.user.expire.rows_max: absent -> 1000");
    assert_changes("tables.user.expire={idle: 30d, score: {min: 1}}", "tables.user.expire={weak: 0.5}",
                   "tables.user.expire.idle: 30d -> 0\ntables.user.expire.score: removed\n"
                   "tables.user.expire.weak: absent -> 0.5");
}

FR_CASE(an_optimizer_continues_only_from_the_state_of_its_kind)
{
    TAKEN("network.optimizer=adamw",
          "network.optimizer: adam -> adamw\nnetwork.optimizer.weight_decay: absent -> 0.01");
    assert_changes("network.optimizer=adamw", NULL,
                   "network.optimizer: adamw -> adam\nnetwork.optimizer.weight_decay: 0.01 -> absent");
    assert_changes("tables.item.parts.w.optimizer={group_ftrl: {l21: 0.1}}", NULL,
                   "tables.item.parts.w.optimizer: group_ftrl -> ftrl\n"
                   "tables.item.parts.w.optimizer.l21: 0.1 -> absent");
    TAKEN("network.optimizer=sgd", "network.optimizer: adam -> sgd [their states differ]");
    /* the states have equally many numbers, with different meanings */
    TAKEN("network.optimizer=ftrl", "network.optimizer: adam -> ftrl [their states differ]");
    TAKEN("tables.user.optimizer=rmsprop", "tables.user.parts.v.optimizer: adagrad -> rmsprop [their states differ]");
    TAKEN("tables.user.optimizer=momentum", "tables.user.parts.v.optimizer: adagrad -> momentum [their states differ]");
    TAKEN("tables.item.parts.w.optimizer=group_ftrl",
          "tables.item.parts.w.optimizer: ftrl -> group_ftrl\ntables.item.parts.w.optimizer.l21: absent -> 0");
    TAKEN("tables.item.parts.w.optimizer={ftrl: {l1: 0.5}}", "tables.item.parts.w.optimizer.l1: 0 -> 0.5");
    TAKEN("tables.item.parts.w.optimizer={ftrl: {lr: 0.5}}",
          "tables.item.parts.w.optimizer.lr: 0.1 -> 0.5 [weights follow from it and the accumulators]");
    TAKEN("tables.item.parts.w.optimizer={group_ftrl: {beta: 2, l21: 0.1}}",
          "tables.item.parts.w.optimizer: ftrl -> group_ftrl\n"
          "tables.item.parts.w.optimizer.beta: 1 -> 2 [weights follow from it and the accumulators]\n"
          "tables.item.parts.w.optimizer.l21: absent -> 0.1");
}

FR_CASE(a_layer_without_an_optimizer_of_its_own_has_the_networks)
{
    TAKEN("network.layers.1.optimizer={adam: {lr: 0.01}}", "network.layers.h.optimizer.lr: 0.001 -> 0.01");
    TAKEN("network.layers.1.optimizer=adam", "");
    TAKEN("network.layers.1.optimizer=sgd", "network.layers.h.optimizer: adam -> sgd [their states differ]");
    assert_changes("network.layers.1.optimizer=sgd", NULL,
                   "network.layers.h.optimizer: sgd -> adam [their states differ]");
}

FR_CASE(what_replicas_hold_is_fixed_and_named_by_name)
{
    TAKEN("slots.user_id.namespace=u", "slots.user_id.namespace: user -> u" SERVED);
    TAKEN("tables.extra={dim: 3}", "tables.extra: added" SERVED);
    TAKEN("tables.user.dim=16", "tables.user.parts.v.dim: 8 -> 16" SERVED);
    TAKEN("network.layers.1.units=[16, 4]", "network.layers.h.units: [16,8] -> [16,4]" SERVED);
    TAKEN("tasks.0.loss=mse", "tasks.click.loss: logloss -> mse" SERVED);
    TAKEN("export.quantize=f16", "export.quantize: f32 -> f16" SERVED);
    /* the value is not shown, because logs have other readers */
    TAKEN("key_seed=2", "key_seed: absent -> given" SERVED);
    assert_changes("key_seed=1", "key_seed=2", "key_seed: given -> another" SERVED);
}

/* Replicas get another model record. */
FR_CASE(what_nothing_of_a_state_depends_on_can_change)
{
    TAKEN("slots.history.max_len=60", "slots.history.max_len: 50 -> 60");
    TAKEN("slots.user_id.max_ids=7", "slots.user_id.max_ids: 1024 -> 7");
    TAKEN("slots.user_id.index=3", "slots.user_id.index: absent -> 3");
    TAKEN("slots.user_id.key=user.id", "slots.user_id.key: absent -> user.id");
    assert_changes("slots.user_id.key=user.id", NULL, "slots.user_id.key: user.id -> absent");
    TAKEN("labels.click.key=clicked", "labels.click.key: absent -> clicked");
    TAKEN("labels.click.negative=-1", "labels.click.negative: absent -> -1");
    TAKEN("slots.age={kind: dense}", "slots.age: added");
    assert_changes("slots.age={kind: dense}", NULL, "slots.age: removed");
    TAKEN("slots.zone={table: user}", "slots.zone: added");
    TAKEN("labels.like={}", "labels.like: added");
    assert_changes("labels.like={}", NULL, "labels.like: removed");
    /* a different slot of the same name takes two restarts */
    assert_changes("slots.age={kind: dense}", "slots.age={kind: dense, dim: 2}", "slots.age.dim: 1 -> 2" SERVED);
    TAKEN("slots.age={kind: dense, transform: standardize}",
          "slots.age: none -> there [its statistics are parameters of the model]");
    assert_changes("slots.age={kind: dense, transform: [log1p, standardize]}", NULL,
                   "slots.age: there -> none [its statistics are parameters of the model]");
}

FR_CASE(what_gives_parameters_a_state_neither_comes_nor_goes)
{
#define LOSS(weight) "losses=[{name: near, mse: [h, h], weight: " weight "}]"
    TAKEN("export.average.half_life=1000", "export.average.half_life: 0 -> 1000 [parameters have an average or none "
                                           "from the first epoch on]");
    assert_changes("export.average.half_life=1000", "export.average.half_life=2000",
                   "export.average.half_life: 1000 -> 2000");
    TAKEN(LOSS("1"), "losses.near: added [which parameters have a state follows from it]");
    assert_changes(LOSS("1"), NULL, "losses.near: removed [which parameters have a state follows from it]");
    assert_changes(LOSS("1"), LOSS("0.5"), "losses.near.weight: 1 -> 0.5");
}

FR_CASE(domains_stay_what_they_were)
{
    TAKEN("scale.domains=4", "scale.domains: 1 -> 4 [tables, limits and sums are divided by it]");
    assert_changes("scale.domains=4", "scale.domains=2",
                   "scale.domains: 4 -> 2 [tables, limits and sums are divided by it]");
}

FR_CASE(an_order_of_its_own_is_a_change_of_the_model)
{
    struct fr_conf_changes changes = {0};
    struct fr_err err = {0};
    assert_int_equal(fr_conf_compare_models("{\"tables\":[{\"name\":\"a\"},{\"name\":\"b\"}]}",
                                            "{\"tables\":[{\"name\":\"b\"},{\"name\":\"a\"}]}", &changes, &err),
                     FR_OK);
    assert_int_equal(changes.n_refused, 1);
    assert_string_equal(changes.list[0].text, "tables: this order -> another");
    memset(&changes, 0, sizeof(changes));
    assert_int_equal(fr_conf_compare_models("{\"slots\":[{\"name\":\"a\"},{\"name\":\"b\"}]}",
                                            "{\"slots\":[{\"name\":\"b\"},{\"name\":\"a\"}]}", &changes, &err),
                     FR_OK);
    assert_int_equal(changes.n_refused, 0);
    assert_string_equal(changes.list[0].text, "slots: this order -> another");
    assert_int_equal(fr_conf_compare_models("{\"slots\":[{\"name\":\"a\"},{\"name\":\"b\"}]}",
                                            "{\"slots\":[{\"name\":\"b\"},{\"name\":\"a\"}]}", &changes, &err),
                     FR_OK);
    assert_int_equal(changes.n, 1); /* each change is reported once */
}

FR_CASE(what_deltas_are_encoded_with_has_the_paths_of_the_configuration)
{
    struct fr_conf_changes changes = {0};
    struct fr_err err = {0};
    assert_int_equal(fr_conf_compare_models("{\"model\":\"a\",\"partitions\":4,\"quantize\":\"f32\"}",
                                            "{\"model\":\"b\",\"partitions\":2,\"quantize\":\"f16\"}", &changes, &err),
                     FR_OK);
    assert_int_equal(changes.n_refused, 3);
    assert_string_equal(changes.list[0].text, "model: a -> b");
    assert_string_equal(changes.list[1].text, "export.partitions: 4 -> 2");
    assert_string_equal(changes.list[2].text, "export.quantize: f32 -> f16");
}

FR_CASE(changes_beyond_the_list_are_counted_and_a_refused_one_is_seen)
{
    struct fr_buffer before = {0}, after = {0};
    for (uint32_t i = 0; i <= FR_CONF_CHANGES_MAX; i++) {
        fr_buffer_printf(&before, "%s\"t%u\":1", i ? "," : "{\"seed\":1,\"tables\":[],", i);
        fr_buffer_printf(&after, "%s\"t%u\":2", i ? "," : "{\"seed\":2,\"tables\":[],", i);
    }
    fr_buffer_printf(&before, "}");
    fr_buffer_printf(&after, "}");
    fr_buffer_terminate(&before);
    fr_buffer_terminate(&after);
    struct fr_conf_changes changes = {0};
    struct fr_err err = {0};
    assert_int_equal(fr_conf_compare_training((const char *)before.data, (const char *)after.data, &changes, &err),
                     FR_OK);
    assert_int_equal(changes.n, FR_CONF_CHANGES_MAX + 2);
    assert_int_equal(changes.n_refused, FR_CONF_CHANGES_MAX + 1); /* not of this version */
    assert_null(changes.list[0].refused);
    assert_string_equal(changes.list[0].text, "seed: 1 -> 2");
    assert_non_null(changes.list[FR_CONF_CHANGES_MAX - 1].refused);
    fr_buffer_release(&before);
    fr_buffer_release(&after);
}

/* Such documents come from a damaged file of the state. */
FR_CASE(a_recorded_document_with_an_empty_key_is_compared_and_one_with_repeated_keys_refused)
{
    struct fr_conf_changes changes = {0};
    struct fr_err err = {0};
    assert_int_equal(fr_conf_compare_models("{\"x\":{\"\":1,\"b\":2,\"a\":1}}", "{\"x\":5}", &changes, &err), FR_OK);
    assert_int_equal(changes.n_refused, 1);
    assert_string_equal(changes.list[0].text, "x: {\"a\":1,\"b\":2} -> 5");
    assert_int_equal(fr_conf_compare_models("{\"x\":{\"a\":1,\"a\":3}}", "{}", &changes, &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, "duplicate key `a`"));
}

FR_CASE(a_text_that_is_no_json_is_refused)
{
    struct fr_conf_changes changes = {0};
    struct fr_err err = {0};
    assert_int_equal(fr_conf_compare_models("{", "{}", &changes, &err), FR_E_INVALID);
    assert_int_equal(fr_conf_compare_training("{}", "[", &changes, &err), FR_E_INVALID);
    assert_true(err.text[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_configurations_have_no_changes),
        cmocka_unit_test(what_training_goes_by_can_change_and_is_named_with_short_numbers),
        cmocka_unit_test(admission_and_expiry_can_change_but_no_gate_reads_a_sketch),
        cmocka_unit_test(an_optimizer_continues_only_from_the_state_of_its_kind),
        cmocka_unit_test(a_layer_without_an_optimizer_of_its_own_has_the_networks),
        cmocka_unit_test(what_replicas_hold_is_fixed_and_named_by_name),
        cmocka_unit_test(what_nothing_of_a_state_depends_on_can_change),
        cmocka_unit_test(what_gives_parameters_a_state_neither_comes_nor_goes),
        cmocka_unit_test(domains_stay_what_they_were),
        cmocka_unit_test(an_order_of_its_own_is_a_change_of_the_model),
        cmocka_unit_test(what_deltas_are_encoded_with_has_the_paths_of_the_configuration),
        cmocka_unit_test(changes_beyond_the_list_are_counted_and_a_refused_one_is_seen),
        cmocka_unit_test(a_recorded_document_with_an_empty_key_is_compared_and_one_with_repeated_keys_refused),
        cmocka_unit_test(a_text_that_is_no_json_is_refused),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
