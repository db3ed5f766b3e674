/* Output biases that begin at the log-odds of the first labels (tasks.*.bias_from_labels). */
#include "fixture.h"

#include "networks.h"

enum { CLICK, BUY, SAMPLES = 150, FOLLOWED = 1000 /* labels: FR_PRIOR_SAMPLES */ };

#define LAYERS                                                                                                         \
    NX_HEAD "network:\n"                                                                                               \
            "  layers:\n"                                                                                              \
            "    - {name: h, mlp: [user_id, price], units: [4, 1], activation: none}\n"                                \
            "    - {name: z, dense: h, units: 1}\n"                                                                    \
            "    - {name: wide, sum: item_id.w}\n"                                                                     \
            "    - {name: deeper, add: [wide, z]}\n"                                                                   \
            "    - {name: out, add: [wide, deeper]}\n"                                                                 \
            "    - {name: y, dense: price, units: 1}\n"

/* When `lr` is next to nothing, only labels and weights change parameters. */
static struct fr_graph *make_graph(struct fixture *fx, const char *text, float lr)
{
    fx_load(fx, 40, text);
    for (uint32_t t = 0; t < fx->conf.n_tasks; t++)
        fx->conf.tasks[t].bias_from_labels = true;
    fx->conf.dense_optimizer = fx_optimizer(FR_OPT_SGD, lr);
    fx_make_rows(fx, 3);
    return fx_graph(fx, NULL, NULL);
}

static void make_samples(struct fixture *fx, uint64_t seed)
{
    fx_make_batch(fx, SAMPLES, 2, false, seed);
    fx_vary_roles(fx);
}

/* Labels seen, by the definition. */
struct seen {
    uint64_t samples;
    double weight, positives;
};

static void see(struct seen *seen, const struct fixture *fx, uint32_t l)
{
    const struct fr_batch *b = &fx->batch;
    if (seen->samples >= FOLLOWED)
        return;
    for (uint32_t i = 0; i < b->n_samples; i++) {
        float label = b->labels[l * b->capacity_samples + i], weight = b->weights[l * b->capacity_samples + i];
        if (b->role[i] != FR_ROLE_TRAIN || isnan(label))
            continue;
        seen->samples++;
        seen->weight += (double)weight;
        seen->positives += (double)weight * (double)label;
    }
}

static double odds_of(const struct seen *seen)
{
    return log((seen->positives + 0.5) / (seen->weight - seen->positives + 0.5));
}

/* Through `add`, at any depth, the bias is that of the first argument with one; weights of samples
 * count. Changes by training stay in it. */
FR_CASE(the_bias_follows_the_log_odds_of_the_first_labels)
{
    struct fixture fx;
    struct fr_graph *graph = make_graph(&fx, LAYERS "tasks: [{name: click, label: click, logit: out}]\n", 1e-30f);
    float *bias = fx_parameter(graph, "z/bias")->values;
    float others[2] = {fx_parameter(graph, "y/bias")->values[0], fx_parameter(graph, "h/1/bias")->values[0]};
    struct seen seen = {0};
    double moved = 0.0, at_the_end = 0.0;
    unsigned followed = 0;
    for (uint64_t i = 0; i < 12; i++) {
        bool follows = seen.samples < FOLLOWED;
        make_samples(&fx, 20 + i);
        see(&seen, &fx, CLICK);
        fx_step(&fx, graph);
        if (follows)
            at_the_end = odds_of(&seen) + moved;
        followed += follows;
        if (!(fabs((double)*bias - at_the_end) < 1e-5))
            fail_msg("after %u labels %.9g, expected %.9g", (unsigned)seen.samples, (double)*bias, at_the_end);
        if (i == 1) {
            *bias += 0.25f;
            moved = 0.25;
        }
    }
    assert_true(followed > 5 && followed < 12);
    assert_true(fabs(seen.weight - (double)seen.samples) > 10.0);
    assert_true(fx_parameter(graph, "y/bias")->values[0] == others[0]);
    assert_true(fx_parameter(graph, "h/1/bias")->values[0] == others[1]);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Expects whether the bias of z, and that of y, changes when only labels can change it. */
static void expect_moves(const char *tasks, bool z, bool y)
{
    char text[4096];
    snprintf(text, sizeof(text), "%s%s", LAYERS, tasks);
    struct fixture fx;
    struct fr_graph *graph = make_graph(&fx, text, 1e-30f);
    float before[2] = {fx_parameter(graph, "z/bias")->values[0], fx_parameter(graph, "y/bias")->values[0]};
    make_samples(&fx, 20);
    fx_step(&fx, graph);
    if ((fx_parameter(graph, "z/bias")->values[0] != before[0]) != z ||
        (fx_parameter(graph, "y/bias")->values[0] != before[1]) != y)
        fail_msg("%s", tasks);
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(only_log_odds_and_own_logits_take_it)
{
    expect_moves("tasks: [{name: click, label: click, logit: out, loss: focal}]\n", true, false);
    expect_moves("tasks: [{name: click, label: click, logit: out, loss: mse}]\n", false, false);
    expect_moves("tasks: [{name: click, label: click, logit: z}, {name: buy, label: buy, logit: y}]\n", true, true);
    expect_moves("tasks:\n"
                 "  - {name: click, label: click, logit: z}\n"
                 "  - {name: then, label: buy, logit: y, loss: none}\n"
                 "  - {name: both, label: buy, prob: [click, then]}\n",
                 true, false);
}

FR_CASE(a_bias_that_is_shared_follows_the_first_of_its_tasks)
{
    struct fixture fx;
    struct fr_graph *graph = make_graph(
        &fx, LAYERS "tasks: [{name: buy, label: buy, logit: z}, {name: click, label: click, logit: z}]\n", 1e-30f);
    struct seen seen = {0};
    make_samples(&fx, 20);
    see(&seen, &fx, BUY);
    fx_step(&fx, graph);
    assert_true(fabs((double)fx_parameter(graph, "z/bias")->values[0] - odds_of(&seen)) < 1e-5);
    fr_graph_free(graph);
    fx_release(&fx);
}

static uint64_t run_of(uint64_t restart_at)
{
    struct fixture fx;
    const char *text = LAYERS "tasks: [{name: click, label: click, logit: out}, {name: buy, label: buy, logit: y}]\n";
    struct fr_graph *graph = make_graph(&fx, text, 0.01f);
    for (uint64_t i = 0; i < 10; i++) {
        if (i == restart_at) {
            struct fr_graph *from = graph;
            struct fr_buffer bytes = {0};
            graph = fx_graph(&fx, NULL, NULL);
            save_state(from, &bytes);
            assert_int_equal(restore_state(graph, bytes.data, bytes.size), FR_OK);
            for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
                memcpy(fr_graph_parameters(graph)[p].values, fr_graph_parameters(from)[p].values,
                       fr_graph_parameters(from)[p].n_values * sizeof(float));
            fr_buffer_release(&bytes);
            fr_graph_free(from);
        }
        make_samples(&fx, 20 + i);
        fx_step(&fx, graph);
    }
    uint64_t hash = fx_hash(&fx, graph);
    fr_graph_free(graph);
    fx_release(&fx);
    return hash;
}

FR_CASE(a_restored_run_follows_on_to_the_same_bits)
{
    uint64_t whole = run_of(UINT64_MAX);
    for (uint64_t at = 0; at < 10; at += 3)
        assert_true(run_of(at) == whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bias_follows_the_log_odds_of_the_first_labels),
        cmocka_unit_test(only_log_odds_and_own_logits_take_it),
        cmocka_unit_test(a_bias_that_is_shared_follows_the_first_of_its_tasks),
        cmocka_unit_test(a_restored_run_follows_on_to_the_same_bits),
    };
    return cmocka_run_group_tests_name("prior", tests, NULL, NULL);
}
