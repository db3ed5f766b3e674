/* Values of a model that was trained elsewhere (fr_graph_adopt): state that training would
 * otherwise overwrite continues from them. */
#include "fixture.h"

#include "networks.h"

enum { SAMPLES = 64 };

#define LAYERS                                                                                                         \
    NX_HEAD "network:\n"                                                                                               \
            "  layers:\n"                                                                                              \
            "    - {name: h, mlp: [user_id, price], units: [4], activation: dice}\n"                                   \
            "    - {name: z, dense: h, units: 1}\n"                                                                    \
            "tasks: [{name: click, label: click, logit: z}]\n"

struct scene {
    struct fixture fx;
    struct fr_graph *graph;
    bool given[64];
};

static void begin(struct scene *s)
{
    memset(s, 0, sizeof(*s));
    fx_load(&s->fx, 40, LAYERS);
    s->fx.conf.tasks[0].bias_from_labels = true;
    s->fx.conf.ingest.batch_size = 1024;
    s->fx.conf.dense_optimizer = fx_optimizer(FR_OPT_SGD, 1e-30f);
    fx_make_rows(&s->fx, 3);
    s->graph = fx_graph(&s->fx, NULL, NULL);
    assert_true(fr_graph_parameter_count(s->graph) <= FR_ARRAY_LEN(s->given));
}

static void end(struct scene *s)
{
    fr_graph_free(s->graph);
    fx_release(&s->fx);
}

static float *give(struct scene *s, const char *name)
{
    struct fr_parameter *parameter = fx_parameter(s->graph, name);
    s->given[parameter - fr_graph_parameters(s->graph)] = true;
    return parameter->values;
}

static void step(struct scene *s, uint64_t seed)
{
    fx_make_batch(&s->fx, SAMPLES, 2, false, seed);
    fx_vary_roles(&s->fx);
    fx_step(&s->fx, s->graph);
}

/* The learning rate is next to nothing, so only first labels and statistics change parameters. */
FR_CASE(a_bias_that_is_given_does_not_begin_at_the_first_labels)
{
    for (int given = 0; given < 2; given++) {
        struct scene s;
        begin(&s);
        float *bias = given ? give(&s, "z/bias") : fx_parameter(s.graph, "z/bias")->values;
        *bias = 3.25f;
        assert_int_equal(fr_graph_adopt(s.graph, s.given, NULL), FR_OK);
        step(&s, 7);
        assert_true((*bias == 3.25f) == given);
        end(&s);
    }
}

FR_CASE(statistics_continue_from_those_that_are_given)
{
    struct scene s;
    begin(&s);
    float *mean = give(&s, "h/0/mean"), *variance = give(&s, "h/0/variance");
    for (int j = 0; j < 4; j++) {
        mean[j] = 1000.0f;
        variance[j] = 4.0f;
    }
    assert_int_equal(fr_graph_adopt(s.graph, s.given, NULL), FR_OK);
    assert_true(mean[0] == 1000.0f && fabsf(variance[0] - 4.0f) < 1e-3f);
    step(&s, 7);
    /* a batch moves them by a small part of the way, as it would after much training */
    assert_true(mean[0] < 1000.0f && mean[0] > 900.0f);
    end(&s);
}

FR_CASE(half_of_a_statistic_is_refused_and_named)
{
    struct scene s;
    struct fr_err err = {0};
    begin(&s);
    give(&s, "h/0/mean")[0] = 1.0f;
    assert_int_equal(fr_graph_adopt(s.graph, s.given, &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, "h/0/mean and h/0/variance belong together"));
    give(&s, "h/0/variance")[1] = -1.0f;
    assert_int_equal(fr_graph_adopt(s.graph, s.given, &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, "h/0/variance: a variance is at least 0"));
    end(&s);
}

FR_CASE(an_average_begins_with_the_values)
{
    struct scene s;
    memset(&s, 0, sizeof(s));
    fx_load(&s.fx, 40, LAYERS);
    s.fx.conf.export_.average_half_life = 1000;
    fx_make_rows(&s.fx, 3);
    s.graph = fx_graph(&s.fx, NULL, NULL);
    struct fr_parameter *kernel = fx_parameter(s.graph, "z/kernel");
    *give(&s, "z/kernel") = 42.0f;
    assert_true(kernel->published != kernel->values && kernel->published[0] != 42.0f);
    assert_int_equal(fr_graph_adopt(s.graph, s.given, NULL), FR_OK);
    assert_true(kernel->published[0] == 42.0f);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bias_that_is_given_does_not_begin_at_the_first_labels),
        cmocka_unit_test(statistics_continue_from_those_that_are_given),
        cmocka_unit_test(half_of_a_statistic_is_refused_and_named),
        cmocka_unit_test(an_average_begins_with_the_values),
    };
    return cmocka_run_group_tests_name("adopt", tests, NULL, NULL);
}
