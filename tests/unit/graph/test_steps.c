/* The parts of a training step: penalties on kernels only, the bound on the norm of all layers'
 * gradients, configured first values, half-lives, and the sum over a row's occurrences. */
#include "fixture.h"

#include "networks.h"
#include "ops/row.h"

enum { SAMPLES = 64, ITEM = 1, VALUES_MAX = 512 };

static const char layers[] = NX_HEAD "network:\n"
                                     "  layers:\n"
                                     "    - {name: h, dense: [user_id, price], units: 5, activation: prelu}\n"
                                     "    - {name: n, layer_norm: h}\n"
                                     "    - {name: k, dense: [n, item_id.v], units: 3, activation: tanh}\n"
                                     "    - {name: out, dense: k, units: 1}\n" NX_ONE_TASK;

static void make_world(struct fixture *fx)
{
    fx_load(fx, 40, layers);
    fx->conf.ingest.batch_size = SAMPLES; /* a batch is one step */
    fx_make_rows(fx, 3);
    fx_make_batch(fx, SAMPLES, 1, false, 5);
}

/* Values of all parameters after one step from the same start, one parameter after the other. */
static void one_step(struct fixture *fx, float *first, float *after)
{
    struct fr_graph *graph = fx_graph(fx, NULL, NULL);
    fx_make_rows(fx, 3);
    fx_resolve(fx);
    size_t at = 0;
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        for (size_t i = 0; i < fr_graph_parameters(graph)[p].n_values; i++)
            first[at++] = fr_graph_parameters(graph)[p].values[i];
    fx_step(fx, graph);
    at = 0;
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        for (size_t i = 0; i < fr_graph_parameters(graph)[p].n_values; i++)
            after[at++] = fr_graph_parameters(graph)[p].values[i];
    assert_true(at <= VALUES_MAX);
    fr_graph_free(graph);
}

/* ---- penalties ---- */

static void expect_penalty(struct fixture *fx, const struct fr_optimizer *penalty, const char *what)
{
    float first[VALUES_MAX], plain[VALUES_MAX], spared[VALUES_MAX], all[VALUES_MAX];
    struct fr_optimizer without = *penalty;
    without.l1 = without.l2 = without.weight_decay = 0.0f;
    fx->conf.dense_optimizer = without;
    one_step(fx, first, plain);
    fx->conf.dense_optimizer = *penalty;
    one_step(fx, first, spared);
    fx->conf.dense_optimizer.decay_all = true;
    one_step(fx, first, all);
    struct fr_graph *graph = fx_graph(fx, NULL, NULL);
    size_t at = 0, vectors = 0, kernels = 0;
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
        const struct fr_parameter *q = &fr_graph_parameters(graph)[p];
        size_t differ = 0, differ_all = 0, nonzero = 0;
        for (size_t i = 0; i < q->n_values && q->trained; i++) {
            differ += spared[at + i] != plain[at + i];
            differ_all += all[at + i] != plain[at + i];
            nonzero += first[at + i] != 0.0f;
        }
        at += q->n_values;
        if (!q->trained || nonzero == 0)
            continue;
        if ((differ > 0) != (q->n_dims == 2))
            fail_msg("%s: %s", what, q->name);
        if (differ_all == 0)
            fail_msg("%s, decay_all: %s", what, q->name);
        vectors += q->n_dims == 1;
        kernels += q->n_dims == 2;
    }
    assert_true(kernels == 3 && vectors >= 4);
    fr_graph_free(graph);
}

FR_CASE(penalties_are_for_kernels_unless_all_are_asked_for)
{
    struct fixture fx;
    make_world(&fx);
    static const enum fr_optimizer_kind kinds[] = {FR_OPT_SGD, FR_OPT_MOMENTUM, FR_OPT_ADAM, FR_OPT_RMSPROP};
    for (size_t k = 0; k < FR_ARRAY_LEN(kinds); k++) {
        struct fr_optimizer o = fx_optimizer(kinds[k], 0.05f);
        o.l2 = 0.3f;
        expect_penalty(&fx, &o, "l2");
        o.l2 = 0.0f, o.l1 = 0.2f;
        expect_penalty(&fx, &o, "l1");
    }
    struct fr_optimizer o = fx_optimizer(FR_OPT_ADAMW, 0.05f);
    o.weight_decay = 0.3f;
    expect_penalty(&fx, &o, "adamw");
    fx_release(&fx);
}

/* ---- clip_global_norm ---- */

/* Norm of the step of all layers, and of those of `h`. */
static void step_norms(struct fixture *fx, double *all, double *of_h, float *step)
{
    float first[VALUES_MAX], after[VALUES_MAX];
    double squares = 0.0, h = 0.0;
    one_step(fx, first, after);
    size_t n = (4 + 2) * 5 + 5 + 5 + 5 + 5 + (5 + 4) * 3 + 3 + 3 + 1, n_h = (4 + 2) * 5 + 5 + 5;
    for (size_t i = 0; i < n; i++) {
        double d = (double)after[i] - (double)first[i];
        step[i] = (float)d;
        squares += d * d;
        h += i < n_h ? d * d : 0.0;
    }
    *all = sqrt(squares);
    *of_h = sqrt(h);
}

FR_CASE(the_global_norm_bounds_rules_with_and_without_their_own_clipping)
{
    struct fixture fx;
    make_world(&fx);
    float free_step[VALUES_MAX], step[VALUES_MAX];
    double norm, of_h, bounded, unused;
    fx.conf.dense_optimizer = fx_optimizer(FR_OPT_SGD, 1.0f);
    step_norms(&fx, &norm, &of_h, free_step);
    assert_true(of_h > 0.1 * norm);
    const struct fr_optimizer plain = fx.conf.dense_optimizer;
    struct fr_optimizer variants[3] = {plain, plain, plain};
    variants[1].clip_norm = 1e6f; /* takes the path for clipped gradients, but bounds nothing */
    variants[2].l2 = 1e-12f;
    for (size_t v = 0; v < FR_ARRAY_LEN(variants); v++) {
        fx.conf.dense_optimizer = variants[v];
        fx.conf.clip_global_norm = (float)(norm / 4.0);
        step_norms(&fx, &bounded, &unused, step);
        if (!(fabs(bounded - norm / 4.0) < 1e-4 * norm))
            fail_msg("variant %zu: a step of norm %g, expected %g", v, bounded, norm / 4.0);
        for (size_t i = 0; i < 80; i++) /* all values by the same factor */
            assert_true(fabs((double)step[i] - 0.25 * (double)free_step[i]) < 1e-4 * norm);
        fx.conf.clip_global_norm = (float)(norm * 1.01);
        step_norms(&fx, &bounded, &unused, step);
        assert_true(fabs(bounded - norm) < 1e-4 * norm);
    }
    /* Layer h has a bound of its own, too; the other layers have only the global one. */
    fx.conf.dense_optimizer = plain;
    fx.conf.layers[0].has_optimizer = true;
    fx.conf.layers[0].optimizer = plain;
    fx.conf.layers[0].optimizer.clip_norm = (float)(of_h / 20.0);
    fx.conf.clip_global_norm = (float)(norm / 4.0);
    step_norms(&fx, &bounded, &of_h, step);
    assert_true(bounded <= norm / 4.0 * 1.0001 && bounded > 0.0);
    fx_release(&fx);
}

/* ---- first values ---- */

FR_CASE(constants_are_first_values)
{
    struct fixture fx;
    fx_load(&fx, 10,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: h, dense: price, units: 3, init: {constant: 0.125}}\n"
                    "    - {name: b, bias: h, init: {constant: -0.5}}\n"
                    "    - {name: out, dense: b, units: 1}\n" NX_ONE_TASK);
    fx_make_rows(&fx, 3);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    for (size_t i = 0; i < 6; i++)
        assert_true(fx_parameter(graph, "h/kernel")->values[i] == 0.125f);
    for (size_t i = 0; i < 3; i++) {
        assert_true(fx_parameter(graph, "h/bias")->values[i] == 0.0f);
        assert_true(fx_parameter(graph, "b/bias")->values[i] == -0.5f);
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

/* A weight of FTRL begins at 0; a vector does not, because the factors of a product would otherwise
 * never learn. */
FR_CASE(vectors_of_ftrl_do_not_begin_at_zero)
{
    static const char text[] = "version: 1\n"
                               "model: test\n"
                               "state_dir: nowhere\n"
                               "ingest: {brokers: 'localhost:9092', topic: t}\n"
                               "tables:\n"
                               "  a:\n"
                               "    parts:\n"
                               "      w: {dim: 1, optimizer: ftrl}\n"
                               "      v: {dim: 4, optimizer: ftrl}\n"
                               "      g: {dim: 4, optimizer: group_ftrl}\n"
                               "      s: {dim: 1, optimizer: adagrad}\n"
                               "      z: {dim: 4, optimizer: ftrl, init: zeros}\n"
                               "  b: {dim: 1, optimizer: ftrl}\n"
                               "  c: {dim: 2, optimizer: ftrl}\n"
                               "  d: {dim: 2, optimizer: sgd, init: {constant: 0.25}}\n"
                               "slots: {x: {table: a}}\n"
                               "labels: {click: {}}\n"
                               "network: {layers: [{name: out, sum: x.w}]}\n"
                               "tasks: [{name: click, label: click, logit: out}]\n";
    static const enum fr_init_kind expected[] = {FR_INIT_ZEROS, FR_INIT_NORMAL, FR_INIT_NORMAL, FR_INIT_NORMAL,
                                                 FR_INIT_ZEROS, FR_INIT_ZEROS,  FR_INIT_NORMAL, FR_INIT_CONSTANT};
    struct fixture fx;
    fx_load(&fx, 10, text);
    size_t at = 0;
    for (uint32_t t = 0; t < fx.conf.n_tables; t++)
        for (uint32_t p = 0; p < fx.conf.tables[t].n_parts; p++, at++) {
            const struct fr_conf_init *init = &fx.conf.tables[t].parts[p].init;
            assert_int_equal(init->kind, expected[at]);
            assert_true(init->kind != FR_INIT_NORMAL || init->scale == 0.01f);
            assert_true(init->kind != FR_INIT_CONSTANT || init->scale == 0.25f);
        }
    assert_int_equal(at, FR_ARRAY_LEN(expected));
    fx_release(&fx);
}

/* ---- half_life ---- */

/* Computes the accumulators of the layer's kernel [2, 1] and of item 5's row after `steps`
 * steps. */
static void accumulators(uint64_t half_life, unsigned steps, float dense[2], float *row, uint32_t *occurrences)
{
    struct fixture fx;
    fx_load(&fx, 40,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: z, dense: price, units: 1}\n"
                    "    - {name: u, sum: item_id.w}\n"
                    "    - {name: out, add: [z, u]}\n" NX_ONE_TASK);
    fx.conf.ingest.batch_size = 32;
    fx.conf.dense_optimizer = fx_optimizer(FR_OPT_ADAGRAD, 0.05f);
    fx.conf.dense_optimizer.half_life = half_life;
    fx.conf.tables[ITEM].parts[0].optimizer = fx.conf.dense_optimizer;
    fx_make_rows(&fx, 3);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    for (uint64_t i = 0; i < steps; i++) {
        fx_make_batch(&fx, SAMPLES, 1, false, 5 + i);
        for (uint32_t s = 0; s < 10; s++)
            fx.batch.columns[ITEM].keys[s] = 5;
        fx_resolve(&fx);
        *occurrences = 0;
        for (uint32_t s = 0; s < SAMPLES; s++)
            *occurrences += fx.batch.columns[ITEM].keys[s] == 5;
        fx_step(&fx, graph);
    }
    struct fr_buffer bytes = {0};
    fr_graph_save_parameter(graph, (size_t)(fx_parameter(graph, "z/kernel") - fr_graph_parameters(graph)), &bytes);
    memcpy(dense, bytes.data + bytes.size - 2 * sizeof(float), 2 * sizeof(float));
    fr_buffer_release(&bytes);
    *row = fx.row_memory[ITEM][5 * fx.layouts[ITEM].row_floats + fx.layouts[ITEM].parts[0].state_offset];
    fr_graph_free(graph);
    fx_release(&fx);
}

/* The runs take the same first step, so their second steps add the same amount. */
FR_CASE(accumulators_halve_in_their_half_life_of_samples)
{
    enum { HALF_LIFE = 50 };
    float first[2], whole[2], halved[2], row_first, row_whole, row_halved;
    uint32_t occurrences;
    accumulators(0, 1, first, &row_first, &occurrences);
    accumulators(0, 2, whole, &row_whole, &occurrences);
    accumulators(HALF_LIFE, 2, halved, &row_halved, &occurrences);
    for (size_t i = 0; i < 2; i++) {
        double kept = (double)first[i] * pow(0.5, (double)SAMPLES / HALF_LIFE);
        assert_true(fabs((double)halved[i] - (kept + (double)whole[i] - (double)first[i])) < 1e-5 * (double)whole[i]);
        assert_true(halved[i] < 0.95f * whole[i]);
    }
    double kept = (double)row_first * pow(0.5, (double)occurrences / HALF_LIFE);
    assert_true(fabs((double)row_halved - (kept + (double)row_whole - (double)row_first)) < 1e-5 * (double)row_whole);
    assert_true(row_halved < 0.95f * row_whole);
}

/* ---- occurrences ---- */

/* The logit of an occurrence is the row's weight alone, and the gradient is the logit minus the
 * label. */
FR_CASE(a_row_sums_its_occurrences_in_blocks)
{
    enum { N = 200, KEY = 5 };
    struct fixture fx;
    fx_load(&fx, 10,
            NX_HEAD "network: {layers: [{name: out, sum: item_id.w}]}\n"
                    "tasks: [{name: click, label: click, logit: out, loss: mse}]\n");
    fx_make_rows(&fx, 3);
    fx_make_batch(&fx, N, 1, false, 5);
    float *w = fx.row_memory[ITEM] + KEY * fx.layouts[ITEM].row_floats;
    *w = 0.0f;
    float blocks = 0.0f, block = 0.0f, straight = 0.0f;
    for (uint32_t i = 0; i < N; i++) {
        float y = (float)((fx_uniform(9, 1, i) - 0.3) * pow(10.0, 6.0 * fx_uniform(9, 2, i) - 3.0));
        fx.batch.columns[ITEM].keys[i] = KEY;
        fx.batch.labels[i] = y;
        straight -= y;
        block -= y;
        if (i % FR_OCCURRENCE_BLOCK == FR_OCCURRENCE_BLOCK - 1 || i == N - 1) {
            blocks += block;
            block = 0.0f;
        }
    }
    fx_resolve(&fx);
    const struct fr_optimizer o = {.kind = FR_OPT_SGD, .lr = 0.05f};
    float expected = 0.0f, otherwise = 0.0f, state_of_none[4] = {0};
    fr_row_step(&expected, state_of_none, &blocks, 1, N, &o);
    fr_row_step(&otherwise, state_of_none, &straight, 1, N, &o);
    assert_true(expected != otherwise); /* the test can tell the two orders apart */
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    fx_step(&fx, graph);
    assert_memory_equal(w, &expected, sizeof(expected));
    fr_graph_free(graph);
    fx_release(&fx);
}

/* The steps of a key that the batch itself made are masked: its row does not learn from these
 * steps, and they do not count toward the row's age. */
FR_CASE(a_masked_step_is_no_occurrence)
{
    enum { N = 40, FRESH = 5, KNOWN = 6, HISTORY = 2 };
    struct fixture fx;
    fx_load(&fx, 10,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: a, attention: {query: item_id.v, keys: history.v}, units: [3]}\n"
                    "    - {name: out, dense: [a, item_id.v], units: 1}\n" NX_ONE_TASK);
    fx.conf.tables[ITEM].parts[1].optimizer = fx_optimizer(FR_OPT_ADAM, 0.05f);
    fx_make_rows(&fx, 3);
    fx_make_batch(&fx, N, 1, false, 5);
    for (uint32_t i = 0; i < N; i++) {
        fx.batch.columns[ITEM].keys[i] = i % 4 == 0 ? FRESH : i % 4 == 1 ? KNOWN : 0;
        fx.batch.columns[HISTORY].keys[i] = i % 2 ? FRESH : KNOWN;
    }
    fx.batch.role[0] = FR_ROLE_METRICS_ONLY; /* the sample's item is FRESH and its step is KNOWN */
    fx_resolve(&fx);
    struct fr_table_rows *rows = &fx.rows.tables[ITEM];
    rows->served = fr_alloc(rows->n_unique, sizeof(*rows->served));
    for (uint32_t u = 0; u < rows->n_unique; u++)
        rows->served[u] = rows->keys[u] == FRESH ? NULL : rows->rows[u];
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    fx_step(&fx, graph);
    const struct fr_row_layout *layout = &fx.layouts[ITEM];
    const float *ages = fx.row_memory[ITEM] + layout->parts[1].state_offset + 2 * layout->parts[1].dim;
    assert_int_equal(ages[FRESH * layout->row_floats], 9);
    assert_int_equal(ages[KNOWN * layout->row_floats], 10 + 19);
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(penalties_are_for_kernels_unless_all_are_asked_for),
        cmocka_unit_test(the_global_norm_bounds_rules_with_and_without_their_own_clipping),
        cmocka_unit_test(constants_are_first_values),
        cmocka_unit_test(vectors_of_ftrl_do_not_begin_at_zero),
        cmocka_unit_test(accumulators_halve_in_their_half_life_of_samples),
        cmocka_unit_test(a_row_sums_its_occurrences_in_blocks),
        cmocka_unit_test(a_masked_step_is_no_occurrence),
    };
    return cmocka_run_group_tests_name("steps", tests, NULL, NULL);
}
