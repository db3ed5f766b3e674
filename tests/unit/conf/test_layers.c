/* Every operation of a network: what is read, its shape, and that printing and the model JSON keep
 * it; the messages when shapes do not fit. */
#include "conf_fixture.h"

/* A model with slots of every kind; %s: layers, the last of which is `out`, and what follows
 * them. */
static const char frame[] = EVERY_KIND_OF_SLOT "    - %s\n"
                                               "    - {name: zero, dense: price, units: 1}\n"
                                               "tasks: [{name: click, label: click, logit: zero}]\n";

static char *framed(const char *layers)
{
    char *text = calloc(1, sizeof(frame) + strlen(layers));
    assert_non_null(text);
    snprintf(text, sizeof(frame) + strlen(layers), frame, layers);
    return text;
}

static const struct fr_conf_layer *find(const struct fr_conf *conf, const char *name)
{
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        if (strcmp(conf->layers[i].name, name) == 0)
            return &conf->layers[i];
    }
    fail_msg("no layer %s", name);
    return NULL;
}

static void assert_same_layers(const struct fr_conf *a, const struct fr_conf *b, bool training)
{
    assert_int_equal(a->n_layers, b->n_layers);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        struct fr_conf_layer x = a->layers[i], y = b->layers[i];
        assert_memory_equal(x.refs, y.refs, x.n_refs * sizeof(*x.refs));
        x.refs = y.refs = NULL;
        x.line = y.line = 0;
        if (!training) { /* not in the model's description */
            x.init = y.init;
            x.has_optimizer = y.has_optimizer;
            x.optimizer = y.optimizer;
        }
        assert_memory_equal(&x, &y, sizeof(x));
    }
}

static void assert_round_trips(const struct fr_conf *conf)
{
    char *text = printed(conf), *json = model_json(conf), *training = training_json(conf);
    struct fr_conf *again = load(text), *parsed = NULL;
    struct fr_err err = {0};
    assert_same_layers(conf, again, true);
    char *text_again = printed(again), *training_again = training_json(again);
    assert_string_equal(text, text_again);
    assert_string_equal(training, training_again);
    if (fr_conf_model_parse(json, strlen(json), &parsed, &err) != FR_OK)
        fail_msg("%s in %s", err.text, json);
    assert_same_layers(conf, parsed, false);
    assert_int_equal(fr_conf_fingerprint(parsed), fr_conf_fingerprint(conf));
    fr_conf_free(parsed);
    fr_conf_free(again);
    free(text_again);
    free(training_again);
    free(training);
    free(json);
    free(text);
}

static const struct operation {
    const char *name, *layers; /* the test looks at the layer `a` */
    enum fr_layer_op op;
    uint32_t n_refs, width;
    bool is_sequence;
} operations[] = {
    {"concat", "{name: a, concat: [user_id, {mean: history.v}, price]}", FR_LAYER_CONCAT, 3, 18, false},
    {"concat_of_sequences", "{name: a, concat: [history.v, skipped.w]}", FR_LAYER_CONCAT, 2, 9, true},
    {"mlp", "{name: a, mlp: [user_id, age], units: [16, 4], activation: prelu}", FR_LAYER_MLP, 2, 4, false},
    {"dense", "{name: a, dense: [user_id], units: 3, activation: gelu}", FR_LAYER_DENSE, 1, 3, false},
    {"dense_of_sequences", "{name: a, dense: [history.v, seen], units: 5, activation: dice}", FR_LAYER_DENSE, 2, 5,
     true},
    {"bi_interaction", "{name: a, bi_interaction: [user_id, item_id.v]}", FR_LAYER_BI_INTERACTION, 2, 8, false},
    {"sum", "{name: a, sum: [item_id.w, {sqrtn: history.w}]}", FR_LAYER_SUM, 2, 1, false},
    {"sum_of_a_sequence_slot", "{name: a, sum: history.v}", FR_LAYER_SUM, 1, 8, false},
    {"sum_of_a_sequence_layer", "{name: g, gru: history.v, units: 4}\n    - {name: a, sum: g}", FR_LAYER_SUM, 1, 4,
     false},
    {"add", "{name: a, add: [user_id, item_id.v]}", FR_LAYER_ADD, 2, 8, false},
    {"mean_of_a_slot", "{name: a, mean: history.v}", FR_LAYER_SUM, 1, 8, false},
    {"mean", "{name: g, gru: history.v, units: 4}\n    - {name: a, mean: g}", FR_LAYER_MEAN, 1, 4, false},
    {"sqrtn", "{name: g, gru: history.v, units: 4}\n    - {name: a, sqrtn: [g]}", FR_LAYER_SQRTN, 1, 4, false},
    {"max_of_a_slot", "{name: a, max: history.v}", FR_LAYER_SUM, 1, 8, false},
    {"max", "{name: g, gru: history.v, units: 4}\n    - {name: a, max: g}", FR_LAYER_MAX, 1, 4, false},
    {"last", "{name: a, last: history.v}", FR_LAYER_LAST, 1, 8, false},
    {"multiply", "{name: a, multiply: [user_id, item_id.v]}", FR_LAYER_MULTIPLY, 2, 8, false},
    {"fm", "{name: a, fm: [user_id, item_id.v, {mean: history.v}]}", FR_LAYER_FM, 3, 1, false},
    {"dot_interaction", "{name: a, dot_interaction: [user_id, item_id.v, {mean: seen}, {sum: history.v}]}",
     FR_LAYER_DOT_INTERACTION, 4, 6, false},
    {"cross", "{name: a, cross: [user_id, price]}", FR_LAYER_CROSS, 2, 10, false},
    {"cross_of_low_rank", "{name: a, cross: [user_id, price], depth: 3, rank: 4}", FR_LAYER_CROSS, 2, 10, false},
    {"bias", "{name: a, bias: price, optimizer: {sgd: {lr: 0.5}}}", FR_LAYER_BIAS, 1, 2, false},
    {"layer_norm", "{name: a, layer_norm: [price, user_id]}", FR_LAYER_LAYER_NORM, 2, 10, false},
    {"dropout", "{name: a, dropout: price, rate: 0.3}", FR_LAYER_DROPOUT, 1, 2, false},
    {"activate", "{name: a, activate: price, activation: leaky_relu}", FR_LAYER_ACTIVATE, 1, 2, false},
    {"stop_gradient", "{name: a, stop_gradient: [user_id]}", FR_LAYER_STOP_GRADIENT, 1, 8, false},
    {"attention", "{name: a, attention: {query: item_id.v, keys: history.v}}", FR_LAYER_ATTENTION, 2, 8, false},
    {"attention_with_options",
     "{name: a, attention: {keys: [history.v, seen], query: [user_id, item_id.v]}, units: [36, 12], activation: "
     "sigmoid, softmax: true, init: {truncated_normal: 0.1}, optimizer: {adamw: {weight_decay: 0.1}}}",
     FR_LAYER_ATTENTION, 4, 16, false},
    {"gru", "{name: a, gru: [history.v], units: 12, init: xavier_uniform}", FR_LAYER_GRU, 1, 12, true},
    {"augru", "{name: a, augru: {query: user_id, keys: g}}\n    - {name: g, gru: history.v, units: 12}", FR_LAYER_AUGRU,
     2, 12, false},
    {"experts", "{name: a, experts: [user_id, price], count: 3, units: [16, 4]}", FR_LAYER_EXPERTS, 2, 12, false},
    {"all_slots_of_a_part", "{name: a, fm: {mean: {slots: all.v}}}", FR_LAYER_FM, 5, 1, false},
    {"all_slots_and_numbers", "{name: a, mlp: [{mean: {slots: all.v}}, user_id], units: 4}", FR_LAYER_MLP, 8, 4, false},
    {"all_slots_inside_an_argument", "{name: a, bias: {concat: {sum: {slots: all.w}}}}", FR_LAYER_BIAS, 1, 13, false},
    {"mixture", "{name: a, mixture: {gate: user_id, experts: e}}\n    - {name: e, experts: price, count: 3, units: 4}",
     FR_LAYER_MIXTURE, 2, 4, false},
};

FR_CASE(is_read_and_kept)
{
    const struct operation *operation = *state;
    char *text = framed(operation->layers);
    struct fr_conf *conf = load(text);
    const struct fr_conf_layer *layer = find(conf, "a");
    assert_int_equal(layer->op, operation->op);
    assert_int_equal(layer->n_refs, operation->n_refs);
    assert_int_equal(layer->role_begin[FR_LAYER_ROLES], operation->n_refs);
    assert_int_equal(layer->width, operation->width);
    assert_int_equal(layer->is_sequence, operation->is_sequence);
    assert_round_trips(conf);
    fr_conf_free(conf);
    free(text);
}

FR_CASE(roles_keep_their_order_whatever_that_of_the_file)
{
    char *text = framed("{name: a, attention: {keys: [history.v, seen], query: [user_id, item_id.v]}}");
    struct fr_conf *conf = load(text);
    const struct fr_conf_layer *layer = find(conf, "a");
    assert_int_equal(layer->role_begin[0], 0);
    assert_int_equal(layer->role_begin[1], 2);
    assert_int_equal(layer->refs[0].kind, FR_REF_POOLED);
    assert_int_equal(layer->refs[2].kind, FR_REF_SEQUENCE);
    assert_int_equal(layer->refs[2].index, 2);
    assert_int_equal(layer->refs[2].part, 1);
    assert_int_equal(layer->n_units, 1);
    assert_int_equal(layer->units[0], 16);
    assert_int_equal(layer->activation, FR_ACT_RELU);
    fr_conf_free(conf);
    free(text);
}

FR_CASE(operations_inside_arguments_become_layers_of_their_own)
{
    char *text = framed("{name: a, concat: [{layer_norm: {concat: [price, user_id]}}, {last: history.v}, {sum: "
                        "history.v}, {mean: g}]}\n    - {name: g, gru: history.v, units: 4}");
    struct fr_conf *conf = load(text);
    const struct fr_conf_layer *a = find(conf, "a");
    assert_int_equal(a->n_refs, 4);
    assert_int_equal(a->width, 10 + 8 + 8 + 4);
    assert_string_equal(conf->layers[a->refs[0].index].name, "a__0");
    assert_string_equal(conf->layers[a->refs[1].index].name, "a__1");
    assert_int_equal(a->refs[2].kind, FR_REF_POOLED);
    assert_string_equal(conf->layers[a->refs[3].index].name, "a__2");
    assert_int_equal(find(conf, "a__0")->op, FR_LAYER_LAYER_NORM);
    assert_int_equal(find(conf, "a__0__0")->op, FR_LAYER_CONCAT);
    assert_int_equal(find(conf, "a__1")->op, FR_LAYER_LAST);
    assert_int_equal(find(conf, "a__1")->refs[0].kind, FR_REF_SEQUENCE);
    assert_int_equal(find(conf, "a__2")->op, FR_LAYER_MEAN);
    assert_round_trips(conf);
    fr_conf_free(conf);
    free(text);
}

FR_CASE(all_slots_are_the_names_that_they_stand_for)
{
    char *all = framed("{name: a, mlp: [{mean: {slots: all.v}}, user_id], units: 4}");
    char *named = framed("{name: a, mlp: [{mean: user_id}, {mean: item_id.v}, {mean: history.v}, {mean: skipped.v}, "
                         "{mean: seen}, price, age, user_id], units: 4}");
    struct fr_conf *first = load(all), *second = load(named);
    char *first_text = model_json(first), *second_text = model_json(second);
    assert_string_equal(first_text, second_text);
    char *text = printed(first);
    assert_null(strstr(text, "all.v"));
    free(text);
    free(first_text);
    free(second_text);
    fr_conf_free(first);
    fr_conf_free(second);
    free(all);
    free(named);
}

FR_CASE(layers_have_their_own_weights_and_rules)
{
    char *text = framed("{name: a, mlp: price, units: 4, init: {uniform: 0.2}, optimizer: {momentum: {lr: 0.5}}}\n"
                        "    - {name: b, mlp: price, units: 4}");
    static const char *const sets[] = {"network.init=kaiming_normal", "network.optimizer={rmsprop: {rho: 0.9}}"};
    struct fr_conf *conf = load_with(text, sets, 2);
    assert_int_equal(conf->dense_init.kind, FR_INIT_KAIMING_NORMAL);
    assert_int_equal(conf->dense_optimizer.kind, FR_OPT_RMSPROP);
    assert_float_equal(conf->dense_optimizer.rho, 0.9f, 0);
    assert_int_equal(find(conf, "a")->init.kind, FR_INIT_UNIFORM);
    assert_float_equal(find(conf, "a")->init.scale, 0.2f, 0);
    assert_true(find(conf, "a")->has_optimizer);
    assert_int_equal(find(conf, "a")->optimizer.kind, FR_OPT_MOMENTUM);
    assert_float_equal(find(conf, "a")->optimizer.momentum, 0.9f, 0);
    assert_int_equal(find(conf, "b")->init.kind, FR_INIT_KAIMING_NORMAL);
    assert_false(find(conf, "b")->has_optimizer);
    assert_round_trips(conf);
    fr_conf_free(conf);
    free(text);
}

/* The messages when shapes or options do not fit, word for word. */
static const struct refusal {
    const char *name, *layers;
} refusals[] = {
    {"a_sequence_in_an_mlp", "{name: a, mlp: [price, history.v], units: 4}"},
    {"a_sequence_layer_in_an_mlp", "{name: a, mlp: g, units: 4}\n    - {name: g, gru: seen, units: 5}"},
    {"a_concat_of_vectors_and_sequences", "{name: a, concat: [price, history.v]}"},
    {"a_dense_of_sequences_and_vectors", "{name: a, dense: [history.v, price], units: 4}"},
    {"an_addition_of_two_widths", "{name: a, add: [user_id, price]}"},
    {"a_product_of_two_widths", "{name: a, multiply: [{mean: history.v}, price]}"},
    {"a_product_with_a_sequence", "{name: a, multiply: [user_id, history.v]}"},
    {"an_interaction_of_two_widths", "{name: a, bi_interaction: [item_id.w, item_id.v]}"},
    {"an_fm_of_two_widths", "{name: a, fm: [item_id.w, item_id.v]}"},
    {"an_fm_of_one_vector", "{name: a, fm: user_id}"},
    {"dot_products_of_two_widths", "{name: a, dot_interaction: [user_id, item_id.v, price]}"},
    {"dot_products_of_one_vector", "{name: a, dot_interaction: [user_id]}"},
    {"a_sum_of_parts_of_two_widths", "{name: a, sum: [item_id.w, {sum: history.v}]}"},
    {"a_sum_of_a_vector_layer", "{name: a, sum: zero}"},
    {"a_sum_of_several_layers", "{name: a, sum: [zero, item_id.w]}"},
    {"a_mean_of_a_vector", "{name: a, mean: zero}"},
    {"a_maximum_of_a_vector", "{name: a, max: [price]}"},
    {"a_mean_of_two_sequences", "{name: a, mean: [history.v, seen]}"},
    {"the_root_mean_of_a_pooled_slot", "{name: a, sqrtn: {sum: history.v}}"},
    {"the_last_step_of_a_sparse_slot", "{name: a, last: user_id}"},
    {"a_cross_of_a_sequence", "{name: a, cross: history.v}"},
    {"a_bias_of_a_sequence", "{name: a, bias: history.v}"},
    {"normalization_of_a_sequence", "{name: a, layer_norm: history.v}"},
    {"dropout_of_a_sequence", "{name: a, dropout: history.v, rate: 0.5}"},
    {"an_activation_of_a_sequence", "{name: a, activate: history.v, activation: relu}"},
    {"a_stopped_gradient_of_a_sequence", "{name: a, stop_gradient: history.v}"},
    {"attention_of_two_widths", "{name: a, attention: {query: price, keys: [history.v, seen]}}"},
    {"attention_with_a_sequence_as_query", "{name: a, attention: {query: history.v, keys: history.v}}"},
    {"attention_with_a_vector_as_keys", "{name: a, attention: {query: user_id, keys: {mean: history.v}}}"},
    {"attention_without_keys", "{name: a, attention: {query: user_id}}"},
    {"attention_of_a_list", "{name: a, attention: [user_id, history.v]}"},
    {"attention_with_another_role", "{name: a, attention: {query: user_id, keys: history.v, values: history.v}}"},
    {"a_gru_of_a_vector", "{name: a, gru: user_id, units: 4}"},
    {"a_gru_without_units", "{name: a, gru: history.v}"},
    {"a_gru_of_several_units", "{name: a, gru: history.v, units: [4, 4]}"},
    {"augru_of_a_vector", "{name: a, augru: {query: user_id, keys: user_id}}"},
    {"experts_of_a_sequence", "{name: a, experts: history.v, count: 2, units: 4}"},
    {"experts_without_a_count", "{name: a, experts: user_id, units: 4}"},
    {"a_mixture_of_an_mlp", "{name: a, mixture: {gate: user_id, experts: e}}\n    - {name: e, mlp: price, units: 4}"},
    {"a_mixture_of_a_slot", "{name: a, mixture: {gate: user_id, experts: user_id}}"},
    {"a_mixture_of_two_expert_layers",
     "{name: a, mixture: {gate: user_id, experts: [e, e]}}\n    - {name: e, experts: price, count: 2, units: 4}"},
    {"a_gate_that_is_a_sequence",
     "{name: a, mixture: {gate: history.v, experts: e}}\n    - {name: e, experts: price, count: 2, units: 4}"},
    {"more_numbers_than_a_layer_can_give", "{name: a, experts: price, count: 32, units: 65536}"},
    {"more_numbers_than_a_layer_can_read",
     "{name: a, mlp: [e, e], units: 4}\n    - {name: e, experts: price, count: 16, units: 65536}"},
    {"a_cross_with_too_many_parameters",
     "{name: a, cross: e, depth: 2}\n    - {name: e, experts: price, count: 1, units: 16384}"},
    {"more_numbers_than_a_sample_can_have",
     "{name: a, add: [e]}\n    - {name: e, experts: price, count: 16, units: 65536}"},
    {"more_numbers_than_the_steps_of_a_sample_can_have", "{name: a, dense: history.v, units: 65536}"},
    {"units_of_a_concat", "{name: a, concat: [price], units: 3}"},
    {"an_optimizer_of_what_learns_nothing", "{name: a, add: [price], optimizer: sgd}"},
    {"initial_weights_of_a_normalization", "{name: a, layer_norm: [price], init: zeros}"},
    {"a_softmax_of_an_mlp", "{name: a, mlp: price, units: 4, softmax: true}"},
    {"dropout_without_a_rate", "{name: a, dropout: price}"},
    {"a_rate_of_one", "{name: a, dropout: price, rate: 1}"},
    {"an_activation_without_its_name", "{name: a, activate: price}"},
    {"an_unknown_activation", "{name: a, mlp: price, units: 4, activation: swish}"},
    {"an_optimizer_of_rows", "{name: a, mlp: price, units: 4, optimizer: adagrad_rowwise}"},
    {"a_layer_with_options_inside_an_argument", "{name: a, concat: [{mlp: price}]}"},
    {"an_unknown_operation_inside_an_argument", "{name: a, concat: [{maximum: history.v}]}"},
    {"a_pooled_dense_slot", "{name: a, concat: [{mean: price}]}"},
    {"two_operations_inside_one_argument", "{name: a, concat: [{mean: history.v, sum: history.v}]}"},
    {"a_layer_of_the_name_of_a_lifted_one", "{name: a, concat: [{bias: price}]}\n    - {name: a__0, bias: price}"},
    {"all_slots_of_tables_with_several_parts", "{name: a, mlp: {mean: {slots: all}}, units: 4}"},
    {"all_slots_of_a_part_that_no_table_has", "{name: a, fm: {slots: all.vec}}"},
    {"all_slots_of_a_kind", "{name: a, fm: {slots: dense}}"},
    {"all_slots_with_another_key", "{name: a, fm: {slots: all.v, but: history}}"},
    {"all_slots_where_a_sequence_is_not_pooled", "{name: a, mlp: {slots: all.v}, units: 4}"},
    {"all_slots_as_one_mean", "{name: a, mean: {slots: all.v}}"},
    {"a_shape_inside_an_argument", "{name: a, concat: [{layer_norm: history.v}]}"},
    {"only_the_first_of_mistakes_that_follow",
     "{name: a, add: [user_id, price]}\n    - {name: b, mlp: a, units: 4}\n    - {name: c, gru: price, units: 4}"},
};

FR_CASE(is_refused_in_these_words)
{
    const struct refusal *refusal = *state;
    char *text = framed(refusal->layers);
    char *problems = problems_of(text, NULL, 0);
    assert_said("layers", refusal->name, problems);
    free(problems);
    free(text);
}

FR_CASE(every_refusal_on_record_is_here)
{
    assert_said_of("layers", sizeof(refusals) / sizeof(refusals[0]));
}

enum {
    N_OPERATIONS = sizeof(operations) / sizeof(operations[0]),
    N_REFUSALS = sizeof(refusals) / sizeof(refusals[0]),
};

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(roles_keep_their_order_whatever_that_of_the_file),
        cmocka_unit_test(operations_inside_arguments_become_layers_of_their_own),
        cmocka_unit_test(all_slots_are_the_names_that_they_stand_for),
        cmocka_unit_test(layers_have_their_own_weights_and_rules),
        cmocka_unit_test(every_refusal_on_record_is_here),
    };
    enum { N_OTHERS = sizeof(others) / sizeof(others[0]), N = N_OPERATIONS + N_REFUSALS + N_OTHERS };
    static struct CMUnitTest tests[N];
    static char names[N][128];
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        snprintf(names[i], sizeof(names[i]), "%s_is_read_and_kept", operations[i].name);
        tests[i] = (struct CMUnitTest){names[i], is_read_and_kept, NULL, NULL, (void *)(uintptr_t)&operations[i]};
    }
    for (size_t i = 0; i < N_REFUSALS; i++) {
        char *name = names[N_OPERATIONS + i];
        snprintf(name, sizeof(names[0]), "%s_is_refused_in_these_words", refusals[i].name);
        tests[N_OPERATIONS + i] =
            (struct CMUnitTest){name, is_refused_in_these_words, NULL, NULL, (void *)(uintptr_t)&refusals[i]};
    }
    memcpy(tests + N_OPERATIONS + N_REFUSALS, others, sizeof(others));
    return _cmocka_run_group_tests("layers", tests, N, NULL, NULL);
}
