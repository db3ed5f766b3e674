/* Shapes, parameters, errors. */
#include "fixture.h"

static void expect_error(const struct fixture *fx, const char *const *parts, size_t n)
{
    struct fr_graph_options options = {.conf = &fx->conf};
    struct fr_graph *graph = NULL;
    struct fr_err err = {0};
    assert_int_equal(fr_graph_new(&options, &graph, &err), FR_E_INVALID);
    assert_null(graph);
    for (size_t i = 0; i < n; i++)
        if (!strstr(err.text, parts[i]))
            fail_msg("\"%s\" is missing in: %s", parts[i], err.text);
}

static void unequal_widths_are_reported_with_layer_line_and_both_shapes(void **state)
{
    (void)state;
    struct fixture fx;
    fx_every_operation(&fx, 10, FR_OPT_SGD);
    fx.layers[1].refs[1].part = 0; /* item.w in the bi_interaction */
    expect_error(&fx, (const char *[]){"layer `fm`", "line 41", "user_id.v` is [4]", "item_id.w` is [1]"}, 4);
    fx_release(&fx);
}

static void a_logit_that_is_not_one_wide_is_reported(void **state)
{
    (void)state;
    struct fixture fx;
    fx_every_operation(&fx, 10, FR_OPT_SGD);
    fx.tasks[0].logit = 2;
    expect_error(&fx, (const char *[]){"task `click`", "layer `h`", "line 42", "[1]", "[7]"}, 5);
    fx_release(&fx);
}

static void a_layer_that_reads_a_later_one_is_refused(void **state)
{
    (void)state;
    struct fixture fx;
    fx_every_operation(&fx, 10, FR_OPT_SGD);
    fx.layers[2].refs[1].index = 3;
    expect_error(&fx, (const char *[]){"layer `h`", "argument 2"}, 2);
    fx_release(&fx);
}

static void optimizers_in_the_wrong_place_are_refused(void **state)
{
    (void)state;
    struct fixture fx;
    fx_every_operation(&fx, 10, FR_OPT_SGD);
    fx.conf.dense_optimizer.kind = FR_OPT_FTRL;
    expect_error(&fx, (const char *[]){"network.optimizer"}, 1);
    fx.conf.dense_optimizer.kind = FR_OPT_SGD;
    fx.tables[1].parts[1].optimizer.kind = FR_OPT_ADAM;
    expect_error(&fx, (const char *[]){"table `item`", "part `v`"}, 2);
    fx_release(&fx);
}

static const struct fr_parameter *find(struct fr_graph *graph, const char *name)
{
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        if (strcmp(fr_graph_parameters(graph)[p].name, name) == 0)
            return &fr_graph_parameters(graph)[p];
    fail_msg("no parameter %s", name);
    return NULL;
}

static void parameters_have_their_names_and_shapes(void **state)
{
    (void)state;
    struct fixture fx;
    fx_every_operation(&fx, 10, FR_OPT_SGD);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    static const struct {
        const char *name;
        uint32_t n_dims, shape[2];
    } expected[] = {{"h/0/kernel", 2, {18, 24}},  {"h/0/bias", 1, {24, 0}},  {"h/1/kernel", 2, {24, 7}},
                    {"h/1/bias", 1, {7, 0}},      {"z/kernel", 2, {7, 1}},   {"z/bias", 1, {1, 0}},
                    {"spare/kernel", 2, {14, 3}}, {"spare/bias", 1, {3, 0}}, {"other/kernel", 2, {13, 1}},
                    {"other/bias", 1, {1, 0}}};
    assert_int_equal(fr_graph_parameter_count(graph), FR_ARRAY_LEN(expected));
    for (size_t i = 0; i < FR_ARRAY_LEN(expected); i++) {
        const struct fr_parameter *p = find(graph, expected[i].name);
        assert_int_equal(p->n_dims, expected[i].n_dims);
        assert_int_equal(p->shape[0], expected[i].shape[0]);
        assert_int_equal(p->shape[1], expected[i].shape[1]);
        assert_int_equal(p->n_values, (size_t)p->shape[0] * (p->n_dims == 2 ? p->shape[1] : 1));
        assert_int_equal((uintptr_t)p->values % 64, 0);
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

static void initial_values_depend_on_seed_and_name_and_stay_in_their_bounds(void **state)
{
    (void)state;
    struct fixture fx, longer;
    fx_every_operation(&fx, 10, FR_OPT_SGD);
    fx_every_operation(&longer, 10, FR_OPT_SGD);
    fx_units(&longer.layers[5], FR_ACT_NONE, 1, (uint32_t[]){9}); /* another layer changes */
    struct fr_graph *a = fx_graph(&fx, NULL, NULL), *b = fx_graph(&longer, NULL, NULL);
    const struct fr_parameter *kernel = find(a, "h/0/kernel"), *bias = find(a, "h/0/bias");
    assert_memory_equal(kernel->values, find(b, "h/0/kernel")->values, kernel->n_values * sizeof(float));
    float bound = (float)(1.0 / sqrt(18.0)), largest = 0.0f;
    for (size_t i = 0; i < kernel->n_values; i++)
        largest = fmaxf(largest, fabsf(kernel->values[i]));
    assert_true(largest <= bound && largest > 0.95f * bound);
    for (size_t i = 0; i < bias->n_values; i++)
        assert_true(fabsf(bias->values[i]) <= bound && bias->values[i] != 0.0f);
    fr_graph_free(b);
    longer.conf.seed = 2;
    b = fx_graph(&longer, NULL, NULL);
    assert_memory_not_equal(kernel->values, find(b, "h/0/kernel")->values, kernel->n_values * sizeof(float));
    fr_graph_free(a);
    fr_graph_free(b);
    fx_release(&fx);
    fx_release(&longer);
}

static void a_row_holds_all_values_and_then_all_optimizer_state(void **state)
{
    (void)state;
    struct fr_conf_table table = {0};
    fx_part(&table, "a", 3, FR_OPT_FTRL);
    fx_part(&table, "b", 5, FR_OPT_ADAGRAD_ROWWISE);
    fx_part(&table, "c", 2, FR_OPT_ADAGRAD);
    fx_part(&table, "d", 4, FR_OPT_SGD);
    table.parts[1].optimizer.initial = 0.25f;
    struct fr_row_layout layout;
    fr_row_layout_of(&table, &layout);
    assert_int_equal(layout.value_floats, 14);
    assert_int_equal(layout.row_floats, 14 + 6 + 1 + 2);
    static const uint32_t values[] = {0, 3, 8, 10}, states[] = {14, 20, 21, 23}, floats[] = {6, 1, 2, 0};
    for (uint32_t p = 0; p < 4; p++) {
        assert_int_equal(layout.parts[p].value_offset, values[p]);
        assert_int_equal(layout.parts[p].state_offset, states[p]);
        assert_int_equal(layout.parts[p].state_floats, floats[p]);
        assert_true(layout.parts[p].state_initial == (p == 1 ? 0.25f : 0.0f));
    }
}

static void flops_count_the_products_of_layers_a_task_reaches(void **state)
{
    (void)state;
    struct fixture fx;
    fx_every_operation(&fx, 10, FR_OPT_SGD);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    assert_true(fr_graph_flops_per_sample(graph) == 3.0 * 2.0 * (18 * 24 + 24 * 7 + 7 + 13));
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_widths_are_reported_with_layer_line_and_both_shapes),
        cmocka_unit_test(a_logit_that_is_not_one_wide_is_reported),
        cmocka_unit_test(a_layer_that_reads_a_later_one_is_refused),
        cmocka_unit_test(optimizers_in_the_wrong_place_are_refused),
        cmocka_unit_test(parameters_have_their_names_and_shapes),
        cmocka_unit_test(initial_values_depend_on_seed_and_name_and_stay_in_their_bounds),
        cmocka_unit_test(a_row_holds_all_values_and_then_all_optimizer_state),
        cmocka_unit_test(flops_count_the_products_of_layers_a_task_reaches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
