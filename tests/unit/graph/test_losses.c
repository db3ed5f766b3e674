/* Losses of tasks as the graph combines them: labels, masks, weights, sampling, groups, products,
 * and batches that make no step. Expected values are computed here in double from the logits of the
 * forward pass. */
#include "fixture.h"

#include "base/hash.h"
#include "networks.h"

enum { SAMPLES = 150, CLICK = 0, BUY = 1 };

static double softplus(double z)
{
    return fmax(z, 0.0) + log1p(exp(-fabs(z)));
}

static double sigmoid(double z)
{
    return 1.0 / (1.0 + exp(-z));
}

static float *label(struct fixture *fx, uint32_t l)
{
    return fx->batch.labels + (size_t)l * fx->batch.capacity_samples;
}

static float *weight(struct fixture *fx, uint32_t l)
{
    return fx->batch.weights + (size_t)l * fx->batch.capacity_samples;
}

static bool counts(struct fixture *fx, uint32_t l, uint32_t i)
{
    return fx->batch.role[i] == FR_ROLE_TRAIN && !isnan(label(fx, l)[i]);
}

static double effective(struct fixture *fx, uint32_t l, uint32_t i)
{
    double w = (double)weight(fx, l)[i];
    return fx->conf.ingest.sampling == FR_SAMPLING_ALL ? w / (double)fx->batch.keep[i] : w;
}

static double sample_loss(const struct fr_conf_task *task, double z, double y)
{
    double p = sigmoid(z), a = (double)task->focal_alpha, gamma = (double)task->focal_gamma;
    switch (task->loss) {
    case FR_LOSS_MSE:
        return 0.5 * (z - y) * (z - y);
    case FR_LOSS_FOCAL:
        return a * pow(1.0 - p, gamma) * y * softplus(-z) + (1.0 - a) * pow(p, gamma) * (1.0 - y) * softplus(z);
    case FR_LOSS_LOGLOSS: /* also for a product, whose logit is z */
    case FR_LOSS_NONE:
    case FR_LOSS_PAIRWISE: /* group_loss */
        break;
    }
    return y * softplus(-z) + (1.0 - y) * softplus(z);
}

/* Adds the loss of the pairs of group g to *sum, and returns the number of samples that are in a
 * pair. */
static double group_loss(struct fixture *fx, uint32_t l, uint32_t g, const float *z, double *sum)
{
    double total = 0.0, pairs = 0.0, standing = 0.0;
    for (uint32_t i = fx->batch.group_begin[g]; i < fx->batch.group_begin[g + 1]; i++) {
        bool stands = false;
        for (uint32_t j = fx->batch.group_begin[g]; j < fx->batch.group_begin[g + 1]; j++) {
            double w = effective(fx, l, i) * effective(fx, l, j), apart = (double)z[j] - (double)z[i];
            if (!counts(fx, l, i) || !counts(fx, l, j) || label(fx, l)[i] == label(fx, l)[j] || w == 0.0)
                continue;
            stands = true;
            if (label(fx, l)[i] > label(fx, l)[j])
                total += w * softplus(apart), pairs += 1.0;
        }
        standing += stands;
    }
    *sum += pairs > 0.0 ? standing / pairs * total : 0.0;
    return standing;
}

/* The mean of the weighted losses of task t, times the task's weight. */
static double expected_loss(struct fixture *fx, uint32_t t, const float *z)
{
    const struct fr_conf_task *task = &fx->conf.tasks[t];
    uint32_t l = (uint32_t)task->label;
    double sum = 0.0, n = 0.0;
    bool pairs = fr_loss_terms(task->loss) == FR_TRAINS_PAIRS;
    for (uint32_t g = 0; g < fx->batch.n_groups && pairs; g++)
        n += group_loss(fx, l, g, z, &sum);
    for (uint32_t i = 0; i < fx->batch.n_samples && !pairs; i++) {
        if (!counts(fx, l, i))
            continue;
        sum += effective(fx, l, i) * sample_loss(task, (double)z[i], (double)label(fx, l)[i]);
        n += 1.0;
    }
    return fr_loss_terms(task->loss) == FR_TRAINS_NOTHING || n == 0.0 ? 0.0 : (double)task->weight * sum / n;
}

/* network `products`: logloss, none, a product, mse, pairwise and focal. */
static void make_world(struct fixture *fx)
{
    for (size_t n = 0; n < FR_ARRAY_LEN(nx_networks); n++)
        if (strcmp(nx_networks[n].name, "products") == 0)
            fx_load(fx, 40, nx_networks[n].text);
    assert_int_equal(fx->conf.n_tasks, 6);
    fx_make_rows(fx, 2);
    fx_make_groups(fx, SAMPLES, 6, 1 << 0, 5);
    fx_vary_roles(fx);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        fx->batch.keep[i] = i % 3 == 0 ? 0.1f : i % 3 == 1 ? 0.5f : 1.0f;
        if (i % 11 == 3)
            label(fx, CLICK)[i] = NAN;
        if (label(fx, CLICK)[i] == 1.0f && i % 4 == 1)
            label(fx, CLICK)[i] = 0.25f;
        if (i % 9 == 5)
            weight(fx, CLICK)[i] = 0.0f;
    }
}

static uint64_t parameters_hash(struct fr_graph *graph)
{
    struct fr_buffer bytes = {0};
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        fr_buffer_append(&bytes, fr_graph_parameters(graph)[p].values,
                         fr_graph_parameters(graph)[p].n_values * sizeof(float));
    save_state(graph, &bytes);
    uint64_t hash = fr_xxh3(bytes.data, bytes.size);
    fr_buffer_release(&bytes);
    return hash;
}

static double loss_of(struct fixture *fx, struct fr_graph *graph)
{
    double loss = -1.0;
    fr_graph_forward(graph, &fx->batch, &fx->rows);
    assert_int_equal(fr_graph_train(graph, &fx->batch, &fx->rows, &loss), FR_OK);
    return loss;
}

static void expect_expected_loss(struct fixture *fx, const char *what)
{
    struct fr_graph *graph = fx_graph(fx, NULL, NULL);
    double loss = loss_of(fx, graph), expected = 0.0;
    for (uint32_t t = 0; t < fx->conf.n_tasks; t++)
        expected += expected_loss(fx, t, fr_graph_logits(graph, t));
    if (!(fabs(loss - expected) <= 1e-5 * expected))
        fail_msg("%s: loss %.9g, expected %.9g", what, loss, expected);
    fr_graph_free(graph);
}

FR_CASE(the_loss_of_each_kind_and_their_sum_are_as_defined)
{
    for (uint32_t only = 0; only <= 6; only++) {
        struct fixture fx;
        make_world(&fx);
        for (uint32_t t = 0; t < 6 && only < 6; t++)
            fx.conf.tasks[t].weight = t == only ? 0.75f : 0.0f;
        expect_expected_loss(&fx, only < 6 ? fx.conf.tasks[only].name : "all");
        fx_release(&fx);
    }
}

FR_CASE(the_keep_rate_corrects_training_where_the_config_says_so)
{
    double losses[3];
    for (int sampling = FR_SAMPLING_ALL; sampling <= FR_SAMPLING_NONE; sampling++) {
        struct fixture fx;
        make_world(&fx);
        fx.conf.ingest.sampling = (enum fr_sampling)sampling;
        expect_expected_loss(&fx, "sampling");
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        fx_make_rows(&fx, 2);
        fx_resolve(&fx);
        losses[sampling] = loss_of(&fx, graph);
        fr_graph_free(graph);
        fx_release(&fx);
    }
    assert_true(losses[FR_SAMPLING_ALL] > 1.5 * losses[FR_SAMPLING_METRICS]);
    assert_true(losses[FR_SAMPLING_METRICS] == losses[FR_SAMPLING_NONE]);
}

/* The logit of a product agrees with the logits of its factors by the definition p = p1 p2. */
FR_CASE(the_logit_of_a_product_task_is_that_of_its_probability)
{
    struct fixture fx;
    make_world(&fx);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    fr_graph_forward(graph, &fx.batch, &fx.rows);
    const float *click = fr_graph_logits(graph, 0), *then = fr_graph_logits(graph, 1),
                *both = fr_graph_logits(graph, 2);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        double p = sigmoid((double)click[i]) * sigmoid((double)then[i]);
        assert_true(fabs((double)both[i] - log(p / (1.0 - p))) < 1e-5);
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

/* ---- batches that make no step ---- */

static void expect_no_step(struct fixture *fx, const char *what)
{
    struct fr_graph *graph = fx_graph(fx, NULL, NULL);
    uint64_t before = parameters_hash(graph);
    double loss = loss_of(fx, graph);
    if (loss != 0.0 || parameters_hash(graph) != before)
        fail_msg("%s: loss %g, or something changed", what, loss);
    fr_graph_free(graph);
}

FR_CASE(only_losses_that_count_make_a_step)
{
    struct fixture fx;
    make_world(&fx);
    for (uint32_t i = 0; i < SAMPLES; i++)
        label(&fx, CLICK)[i] = label(&fx, BUY)[i] = NAN;
    expect_no_step(&fx, "all labels masked");
    fx_release(&fx);
    make_world(&fx);
    memset(fx.batch.role, FR_ROLE_MASKED, SAMPLES);
    expect_no_step(&fx, "no sample to be trained");
    fx_release(&fx);
    make_world(&fx);
    for (uint32_t t = 0; t < 6; t++)
        fx.conf.tasks[t].weight = 0.0f;
    expect_no_step(&fx, "no task with a weight");
    fx_release(&fx);
    make_world(&fx);
    for (uint32_t t = 0; t < 6; t++)
        fx.conf.tasks[t].loss = FR_LOSS_NONE;
    expect_no_step(&fx, "no task with a loss");
    fx_release(&fx);
}

FR_CASE(a_batch_without_pairs_teaches_a_ranking_nothing)
{
    struct fixture fx;
    make_world(&fx);
    for (uint32_t t = 0; t < 6; t++)
        fx.conf.tasks[t].weight = t == 4 ? 1.0f : 0.0f;
    for (uint32_t i = 0; i < SAMPLES; i++)
        label(&fx, CLICK)[i] = 1.0f;
    expect_no_step(&fx, "equal labels");
    /* unequal labels, but never two that count in one group */
    for (uint32_t i = 0; i < SAMPLES; i++)
        label(&fx, CLICK)[i] = fx.batch.group_begin[fx.batch.group_of[i]] == i ? (float)(i % 2) : NAN;
    expect_no_step(&fx, "one label a group");
    fx_release(&fx);
}

/* An auxiliary loss needs a trained sample but no label. If it reads steps, it needs a next step,
 * too. */
FR_CASE(an_auxiliary_loss_alone_makes_a_step_when_something_counts)
{
    for (size_t n = 0; n < FR_ARRAY_LEN(nx_networks); n++) {
        struct fixture fx;
        fx_load(&fx, 40, nx_networks[n].text);
        if (fx.conf.n_losses > 0) {
            bool of_steps = fr_aux_loss_reads_steps(fx.conf.losses[0].kind);
            fx_make_rows(&fx, 2);
            fx_make_batch(&fx, 60, 4, false, 5);
            for (uint32_t i = 0; i < 60; i++)
                label(&fx, CLICK)[i] = label(&fx, BUY)[i] = NAN;
            struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
            uint64_t before = parameters_hash(graph);
            assert_true(loss_of(&fx, graph) > 0.0);
            assert_true(parameters_hash(graph) != before);
            fr_graph_free(graph);
            memset(fx.batch.role, FR_ROLE_METRICS_ONLY, 60);
            expect_no_step(&fx, "not trained");
            fx_make_batch(&fx, 60, 1, false, 5); /* one step a sequence: none has a next one */
            for (uint32_t i = 0; i < 60; i++)
                label(&fx, CLICK)[i] = label(&fx, BUY)[i] = NAN;
            if (of_steps)
                expect_no_step(&fx, "no next steps");
        }
        fx_release(&fx);
    }
}

/* A task that is only measured has a logit, and its own parameters do not change. */
FR_CASE(a_task_without_a_loss_is_scored_and_not_trained)
{
    struct fixture fx;
    fx_load(&fx, 40,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: z, dense: user_id, units: 1}\n"
                    "    - {name: v, dense: [user_id, price], units: 1}\n"
                    "tasks:\n"
                    "  - {name: click, label: click, logit: z}\n"
                    "  - {name: seen, label: buy, logit: v, loss: none}\n");
    fx_make_rows(&fx, 2);
    fx_make_batch(&fx, 60, 2, false, 5);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    float before[4][8];
    for (size_t p = 0; p < 4; p++)
        memcpy(before[p], fr_graph_parameters(graph)[p].values, fr_graph_parameters(graph)[p].n_values * sizeof(float));
    loss_of(&fx, graph);
    for (size_t p = 0; p < 4; p++) {
        const struct fr_parameter *q = &fr_graph_parameters(graph)[p];
        bool same = memcmp(before[p], q->values, q->n_values * sizeof(float)) == 0;
        assert_true(same == (q->name[0] == 'v'));
    }
    assert_true(fr_graph_logits(graph, 1)[0] != 0.0f);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* sigmoid(z1) sigmoid(z2) with an infinite z1 is finite, and so are all gradients where z1 is a sum
 * of rows. Nevertheless the batch is refused, because the factor is a task of its own and its logit
 * is infinite. */
FR_CASE(a_factor_that_is_not_finite_refuses_the_batch)
{
    struct fixture fx;
    fx_load(&fx, 40,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: z, sum: [item_id.w, {sum: history.w}]}\n"
                    "    - {name: v, dense: user_id, units: 1}\n"
                    "tasks:\n"
                    "  - {name: first, label: click, logit: z, loss: none}\n"
                    "  - {name: then, label: buy, logit: v, loss: none}\n"
                    "  - {name: both, label: buy, prob: [first, then]}\n");
    fx_make_rows(&fx, 2);
    fx_make_batch(&fx, 60, 2, false, 5);
    uint64_t key = fx.batch.columns[1].keys[0];
    key = key % 7 == 3 ? fx.batch.columns[1].keys[1] : key;
    assert_true(key % 7 != 3);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    for (int finite = 0; finite < 2; finite++) {
        fx.row_memory[1][key * fx.layouts[1].row_floats] = finite ? 0.1f : INFINITY;
        fr_graph_forward(graph, &fx.batch, &fx.rows);
        for (uint32_t i = 0; i < 60; i++)
            assert_true(isfinite(fr_graph_logits(graph, 2)[i]) && (!finite || isfinite(fr_graph_logits(graph, 0)[i])));
        uint64_t before = parameters_hash(graph);
        assert_int_equal(fr_graph_train(graph, &fx.batch, &fx.rows, NULL), finite ? FR_OK : FR_E_NONFINITE);
        assert_true((parameters_hash(graph) == before) == !finite);
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_of_each_kind_and_their_sum_are_as_defined),
        cmocka_unit_test(the_keep_rate_corrects_training_where_the_config_says_so),
        cmocka_unit_test(the_logit_of_a_product_task_is_that_of_its_probability),
        cmocka_unit_test(only_losses_that_count_make_a_step),
        cmocka_unit_test(a_batch_without_pairs_teaches_a_ranking_nothing),
        cmocka_unit_test(an_auxiliary_loss_alone_makes_a_step_when_something_counts),
        cmocka_unit_test(a_task_without_a_loss_is_scored_and_not_trained),
        cmocka_unit_test(a_factor_that_is_not_finite_refuses_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
