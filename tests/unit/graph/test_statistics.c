/* Statistics of standardize and dice: whose samples they are, what they converge to, the same bits
 * for all forms. */
#include "fixture.h"

#include "base/math.h"
#include "networks.h"

FR_CASE(standardized_numbers_follow_the_trained_samples)
{
    struct fixture fx;
    fx_load(&fx, 40, nx_networks[0].text);
    fx_make_rows(&fx, 2);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    double count = 0.0, sum[2] = {0}, square[2] = {0};
    for (uint64_t i = 0; i < 5; i++) {
        fx_vary(&fx, 50 + i);
        float *age = fx.batch.columns[6].dense;
        for (uint32_t s = 0; s < 90; s++) {
            age[2 * s] = 1000.0f + age[2 * s]; /* a mean far from 0 must not eat the variance */
            for (size_t j = 0; j < 2 && fx.batch.role[s] == FR_ROLE_TRAIN; j++) {
                sum[j] += (double)age[2 * s + j];
                square[j] += (double)age[2 * s + j] * (double)age[2 * s + j];
            }
            count += fx.batch.role[s] == FR_ROLE_TRAIN;
        }
        const float *mean = fx_parameter(graph, "age/mean")->values,
                    *variance = fx_parameter(graph, "age/variance")->values;
        float before[2] = {mean[0], variance[0]};
        fr_graph_forward(graph, &fx.batch, &fx.rows);
        assert_true(mean[0] == before[0] && variance[0] == before[1]);
        assert_int_equal(fr_graph_train(graph, &fx.batch, &fx.rows, NULL), FR_OK);
        for (size_t j = 0; j < 2; j++) {
            double average = sum[j] / count, squares = square[j] - count * average * average;
            assert_true(fabs((double)mean[j] - average) <= 1e-6 * (1.0 + fabs(average)));
            assert_true(fabs((double)variance[j] - squares / count) <= 1e-5);
        }
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Epochs and publications carry what is noted as changed, and nothing else. */
FR_CASE(whatever_a_batch_changes_is_noted)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        struct fixture fx;
        fx_load(&fx, 40, nx_networks[i].text);
        fx_make_rows(&fx, 2);
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        size_t n = fr_graph_parameter_count(graph);
        const struct fr_parameter *parameters = fr_graph_parameters(graph);
        struct fr_buffer before = {0};
        uint64_t *seen = fr_alloc(n, sizeof(*seen));
        for (uint64_t batch = 0; batch < 3; batch++) {
            before.size = 0;
            for (size_t p = 0; p < n; p++) {
                fr_buffer_append(&before, parameters[p].values, parameters[p].n_values * sizeof(float));
                seen[p] = parameters[p].changes;
            }
            fx_vary(&fx, 70 + batch);
            (void)fx_step(&fx, graph);
            const uint8_t *values = before.data;
            for (size_t p = 0; p < n; values += parameters[p++].n_values * sizeof(float))
                if (parameters[p].changes == seen[p] &&
                    memcmp(values, parameters[p].values, parameters[p].n_values * sizeof(float)) != 0)
                    fail_msg("%s: %s changed unseen", nx_networks[i].name, parameters[p].name);
        }
        free(seen);
        fr_buffer_release(&before);
        fr_graph_free(graph);
        fx_release(&fx);
    }
}

/* ---- one standardized slot, its kernel and a bias ---- */

static const char one_number[] = "version: 1\n"
                                 "model: test\n"
                                 "state_dir: nowhere\n"
                                 "ingest: {brokers: 'localhost:9092', topic: t}\n"
                                 "slots:\n"
                                 "  x: {kind: dense, %s}\n"
                                 "labels: {click: {}}\n"
                                 "network:\n"
                                 "  layers: [{name: out, dense: x, units: 1, init: {uniform: 0.2}}]\n"
                                 "  optimizer: %s\n" NX_ONE_TASK;

static struct fr_graph *load_one(struct fixture *fx, const char *slot, const char *optimizer)
{
    char text[1024];
    snprintf(text, sizeof(text), one_number, slot, optimizer);
    fx_load(fx, 10, text);
    fx->conf.ingest.batch_size = 256;
    return fx_graph(fx, NULL, NULL);
}

/* A batch of the numbers; the label is drawn from sigmoid(2 (x - mean) / sd). */
static void batch_of(struct fixture *fx, uint32_t n, const double law[2], uint64_t seed)
{
    fx_make_batch(fx, n, 1, false, seed);
    for (uint32_t i = 0; i < n; i++) {
        double z = fr_random_normal(7, 1, seed, i);
        fx->batch.columns[0].dense[i] = (float)(law[0] + law[1] * z);
        fx->batch.labels[i] = fx_uniform(seed, 901, i) < 1.0 / (1.0 + exp(-2.0 * z)) ? 1.0f : 0.0f;
    }
}

static float logit_of(const struct fixture *fx, struct fr_graph *graph)
{
    fr_graph_forward(graph, &fx->batch, &fx->rows);
    return fr_graph_logits(graph, 0)[0];
}

FR_CASE(a_standardized_number_learns_like_one_standardized_before)
{
    static const char *const optimizers[] = {"{adam: {lr: 0.02}}", "{adagrad: {lr: 0.1}}", "{sgd: {lr: 0.5}}"};
    static const char *const slots[] = {"transform: none", "transform: standardize"};
    static const double laws[2][2] = {{0.0, 1.0}, {2e4, 5e3}};
    for (size_t o = 0; o < FR_ARRAY_LEN(optimizers); o++) {
        float kernel[2];
        for (size_t s = 0; s < 2; s++) {
            struct fixture fx;
            struct fr_graph *graph = load_one(&fx, slots[s], optimizers[o]);
            for (uint64_t i = 0; i < 300; i++) {
                batch_of(&fx, 256, laws[s], i);
                fx_step(&fx, graph);
            }
            kernel[s] = fx_parameter(graph, "out/kernel")->values[0];
            fr_graph_free(graph);
            fx_release(&fx);
        }
        if (!(fabsf(kernel[0] - kernel[1]) < 0.05f && kernel[1] > 1.2f))
            fail_msg("%s: kernel %g behind standardize, %g standardized before", optimizers[o], (double)kernel[1],
                     (double)kernel[0]);
    }
}

FR_CASE(nothing_is_read_before_a_hundred_samples_were_counted)
{
    struct fixture fx;
    struct fr_graph *graph = load_one(&fx, "transform: standardize", "{sgd: {lr: 0.5}}");
    const struct fr_parameter *kernel = fx_parameter(graph, "out/kernel"), *bias = fx_parameter(graph, "out/bias");
    const struct fr_parameter *count = fx_parameter(graph, "x/count");
    const double law[] = {2e4, 5e3};
    float first = kernel->values[0];
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(count->values[0] == (float)i);
        batch_of(&fx, 1, law, i);
        assert_true(logit_of(&fx, graph) == bias->values[0]);
        fx_step(&fx, graph);
        assert_true(kernel->values[0] == first); /* the input is 0: no gradient */
    }
    assert_true(count->values[0] == 100.0f);
    batch_of(&fx, 1, law, 100);
    assert_true(logit_of(&fx, graph) != bias->values[0]);
    fx_step(&fx, graph);
    assert_true(kernel->values[0] != first);
    assert_true(count->values[0] == 101.0f);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* The second graph begins with published values, as one does when a snapshot or a dump is imported
 * (`freshet import`). */
FR_CASE(a_graph_that_begins_with_what_is_published_continues_like_its_origin)
{
    static const char *const names[] = {"x/mean", "x/variance", "x/count"};
    struct fixture fx, other_fx;
    struct fr_graph *graph = load_one(&fx, "transform: standardize", "{sgd: {lr: 0.5}}");
    struct fr_graph *other = load_one(&other_fx, "transform: standardize", "{sgd: {lr: 0.5}}");
    const double law[] = {3.0, 2.0}, later[] = {7.0, 4.0};
    bool given[8] = {false};
    batch_of(&fx, 5000, law, 1);
    fx_step(&fx, graph);
    for (size_t i = 0; i < FR_ARRAY_LEN(names); i++) {
        struct fr_parameter *to = fx_parameter(other, names[i]);
        to->values[0] = fx_parameter(graph, names[i])->values[0];
        given[to - fr_graph_parameters(other)] = true;
    }
    assert_int_equal(fr_graph_adopt(other, given, NULL), FR_OK);
    batch_of(&fx, 300, later, 2);
    fx_step(&fx, graph);
    batch_of(&other_fx, 300, later, 2);
    fx_step(&other_fx, other);
    for (size_t i = 0; i < FR_ARRAY_LEN(names); i++) {
        double want = (double)fx_parameter(graph, names[i])->values[0];
        assert_true(fabs((double)fx_parameter(other, names[i])->values[0] - want) <= 1e-6 * want);
    }
    fr_graph_free(graph);
    fr_graph_free(other);
    fx_release(&fx);
    fx_release(&other_fx);
}

FR_CASE(one_broken_number_neither_wrecks_the_moments_nor_is_read_at_its_size)
{
    struct fixture fx;
    struct fr_graph *graph = load_one(&fx, "transform: standardize", "{sgd: {lr: 1e-30}}");
    const struct fr_parameter *mean = fx_parameter(graph, "x/mean"), *variance = fx_parameter(graph, "x/variance");
    const double law[] = {5.0, 2.0};
    batch_of(&fx, 2000, law, 1);
    fx_step(&fx, graph);
    float before[2] = {mean->values[0], variance->values[0]};
    batch_of(&fx, 1, law, 2);
    fx.batch.columns[0].dense[0] = 1e15f;
    float want = 10.0f * fx_parameter(graph, "out/kernel")->values[0] + fx_parameter(graph, "out/bias")->values[0];
    assert_true(logit_of(&fx, graph) == want);
    fx_step(&fx, graph);
    assert_true(fabsf(mean->values[0] - before[0]) <= 10.0f * sqrtf(before[1]) / 2000.0f);
    assert_true(variance->values[0] > before[1] && variance->values[0] <= before[1] * (1.0f + 100.0f / 2000.0f));
    fr_graph_free(graph);
    fx_release(&fx);
}

/* The moments follow a stream whose distribution changes, which is no broken number, even if
 * nothing had varied before. */
FR_CASE(moments_follow_a_stream_that_changes_its_scale)
{
    struct fixture fx;
    struct fr_graph *graph = load_one(&fx, "transform: standardize", "{sgd: {lr: 1e-30}}");
    const double constant[] = {0.0, 0.0}, law[] = {3e4, 1e4};
    batch_of(&fx, 1000, constant, 1);
    fx_step(&fx, graph);
    assert_true(fx_parameter(graph, "x/variance")->values[0] == 0.0f);
    for (uint64_t i = 0; i < 40; i++) {
        batch_of(&fx, 1000, law, 2 + i);
        fx_step(&fx, graph);
    }
    assert_true(fabsf(fx_parameter(graph, "x/mean")->values[0] - 3e4f) < 3e3f);
    assert_true(fabsf(sqrtf(fx_parameter(graph, "x/variance")->values[0]) - 1e4f) < 3e3f);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* ---- missing values ---- */

FR_CASE(missing_values_are_left_out_of_the_statistics_and_read_as_zero)
{
    struct fixture fx;
    struct fr_graph *graph = load_one(&fx, "transform: standardize", "{sgd: {lr: 1e-30}}");
    const double law[] = {5.0, 1.0};
    double sum = 0.0, square = 0.0;
    for (uint64_t i = 0; i < 10; i++) {
        batch_of(&fx, 400, law, i);
        for (uint32_t s = 0; s < 400; s++) {
            double x = (double)fx.batch.columns[0].dense[s];
            if (s % 2 == 0)
                fx.batch.columns[0].dense[s] = NAN;
            sum += s % 2 ? x : 0.0;
            square += s % 2 ? x * x : 0.0;
        }
        fx_step(&fx, graph);
    }
    double mean = sum / 2000.0;
    assert_float_equal(fx_parameter(graph, "x/mean")->values[0], (float)mean, 1e-5f);
    assert_float_equal(fx_parameter(graph, "x/variance")->values[0], (float)(square / 2000.0 - mean * mean), 1e-4f);
    assert_true(isnan(fx.batch.columns[0].dense[0]));
    assert_true(logit_of(&fx, graph) == fx_parameter(graph, "out/bias")->values[0]);
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(a_default_that_was_written_counts_as_the_value_given)
{
    struct fixture fx;
    struct fr_graph *graph =
        load_one(&fx, "transform: [log1p, standardize], default: 3, indicator: true", "{sgd: {lr: 1e-30}}");
    const double law[] = {5.0, 0.0};
    batch_of(&fx, 400, law, 1);
    for (uint32_t s = 0; s < 400; s += 2)
        fx.batch.columns[0].dense[s] = NAN; /* because of the indicator */
    fx_step(&fx, graph);
    float low = fr_log1pf(3.0f), mean = (5.0f + low) / 2.0f;
    assert_float_equal(fx_parameter(graph, "x/mean")->values[0], mean, 1e-5f);
    const float *kernel = fx_parameter(graph, "out/kernel")->values;
    float want = (low - mean) / ((5.0f - low) / 2.0f) * kernel[0] + kernel[1];
    assert_float_equal(logit_of(&fx, graph), want + fx_parameter(graph, "out/bias")->values[0], 1e-5f);
    fr_graph_free(graph);
    fx_release(&fx);
}

FR_CASE(an_indicator_says_what_was_missing_behind_every_transform)
{
    static const struct {
        const char *slot;
        uint32_t width; /* with the indicator */
        float filled;   /* the first number of a missing value */
    } cases[] = {{"dim: 2, default: 0.5, indicator: true", 3, 0.5f},
                 {"dim: 2, transform: {bucketize: [-1, 1]}, default: -3, indicator: true", 7, 1.0f},
                 {"transform: time_of_day, indicator: true", 3, 0.0f},
                 {"transform: time_of_day, default: 43200, indicator: true", 3, 0.0f},
                 {"dim: 2, transform: standardize, indicator: true", 3, 0.0f}};
    for (size_t c = 0; c < FR_ARRAY_LEN(cases); c++) {
        struct fixture fx;
        struct fr_graph *graph = load_one(&fx, cases[c].slot, "{sgd: {lr: 1e-30}}");
        const struct fr_parameter *kernel = fx_parameter(graph, "out/kernel");
        uint32_t width = cases[c].width;
        assert_int_equal(kernel->n_values, width);
        for (int look = 0; look < 2; look++) { /* at the indicator; at the first number */
            memset(kernel->values, 0, width * sizeof(float));
            kernel->values[look ? 0 : width - 1] = 1.0f;
            fx_parameter(graph, "out/bias")->values[0] = 0.0f;
            fx_make_batch(&fx, 2, 1, false, 3);
            struct fr_column *column = &fx.batch.columns[0];
            for (uint32_t j = 0; j < column->dim; j++) {
                column->dense[j] = 0.25f;
                column->dense[column->dim + j] = NAN;
            }
            fr_graph_forward(graph, &fx.batch, &fx.rows);
            const float *logits = fr_graph_logits(graph, 0);
            if (look)
                assert_true(logits[1] == cases[c].filled);
            else
                assert_true(logits[0] == 0.0f && logits[1] == 1.0f);
        }
        fr_graph_free(graph);
        fx_release(&fx);
    }
}

FR_CASE(old_numbers_fade_behind_ten_million_samples)
{
    struct fixture fx;
    fx_init(&fx, 1);
    int32_t price = fx_slot(&fx, "price", FR_NO_INDEX, 1);
    fx.slots[price].transform = FR_TRANSFORM_STANDARDIZE;
    struct fr_conf_layer *z = fx_layer(&fx, "z", FR_LAYER_DENSE);
    fx_dense(z, price);
    fx_units(z, FR_ACT_NONE, 1, (uint32_t[]){1});
    fx_task(&fx, "click", 0, z, 1.0f);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    /* The state ends with the slot's dim, count, mean and M2, the number of dice layers, and a
     * task's first labels. They are set as after 10^7 samples of mean 0 and variance 1. */
    struct fr_buffer bytes = {0};
    save_state(graph, &bytes);
    double numbers[3] = {1e7, 0.0, 1e7};
    memcpy(bytes.data + bytes.size - 4 - 24 - sizeof(numbers), numbers, sizeof(numbers));
    assert_int_equal(restore_state(graph, bytes.data, bytes.size), FR_OK);
    fx_make_batch(&fx, 5000, 1, false, 8);
    for (uint32_t i = 0; i < 5000; i++)
        fx.batch.columns[0].dense[i] = 10.0f;
    fx_step(&fx, graph);
    fr_buffer_release(&bytes);
    save_state(graph, &bytes);
    memcpy(numbers, bytes.data + bytes.size - 4 - 24 - sizeof(numbers), sizeof(numbers));
    assert_true(numbers[0] == 1e7);
    double mean = 10.0 * (1.0 - pow(1.0 - 1e-7, 5000));
    assert_true(fabs(numbers[1] - mean) < 1e-9);
    /* E (x - mean)^2 of the mixture; the old numbers have the weight e^-0.0005 */
    double old = pow(1.0 - 1e-7, 5000),
           variance = old * (1.0 + mean * mean) + (1.0 - old) * (10.0 - mean) * (10.0 - mean);
    assert_true(fabs(numbers[2] / 1e7 - variance) < 1e-5);
    fr_buffer_release(&bytes);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Dice on a known input, the numbers of a dense slot. */
FR_CASE(dice_statistics_are_a_moving_average_of_trained_samples)
{
    struct fixture fx;
    fx_load(&fx, 40,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: d, activate: price, activation: dice}\n"
                    "    - {name: out, dense: d, units: 1}\n" NX_ONE_TASK);
    fx.conf.ingest.batch_size = 250;
    fx_make_rows(&fx, 2);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    double first[2] = {0.0, 0.0}, second[2] = {0.01, 0.01}, weight = 0.01;
    for (uint64_t i = 0; i < 3; i++) {
        fx_make_batch(&fx, 300, 3, true, 80 + i); /* three chunks */
        fx_vary_roles(&fx);
        double sum[2] = {0}, square[2] = {0}, count = 0.0;
        for (uint32_t s = 0; s < 300; s++) {
            count += fx.batch.role[s] == FR_ROLE_TRAIN;
            for (size_t j = 0; j < 2 && fx.batch.role[s] == FR_ROLE_TRAIN; j++) {
                double x = (double)fx.batch.columns[5].dense[2 * s + j];
                sum[j] += x;
                square[j] += x * x;
            }
        }
        fx_step(&fx, graph);
        double keep = pow(0.99, count / 250.0);
        weight = keep * weight + (1.0 - keep);
        for (size_t j = 0; j < 2; j++) {
            first[j] = keep * first[j] + (1.0 - keep) * sum[j] / count;
            second[j] = keep * second[j] + (1.0 - keep) * square[j] / count;
            double mean = first[j] / weight, variance = second[j] / weight - mean * mean;
            assert_true(fabs((double)fx_parameter(graph, "d/mean")->values[j] - mean) < 1e-6);
            assert_true(fabs((double)fx_parameter(graph, "d/variance")->values[j] - variance) < 1e-6);
        }
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Over a sequence, the steps count that have a row and belong to a trained sample. */
FR_CASE(dice_over_steps_leaves_out_masked_ones)
{
    struct fixture fx;
    fx_load(&fx, 40,
            NX_HEAD "network:\n"
                    "  layers:\n"
                    "    - {name: d, dense: history.v, units: 1, activation: dice}\n"
                    "    - {name: out, mean: d}\n" NX_ONE_TASK);
    fx_make_rows(&fx, 2);
    fx_make_batch(&fx, 200, 4, false, 6);
    fx_vary_roles(&fx);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    const struct fr_column *history = &fx.batch.columns[2];
    const float *kernel = fx_parameter(graph, "d/kernel")->values, bias = fx_parameter(graph, "d/bias")->values[0];
    double sum = 0.0, square = 0.0, count = 0.0, masked = 0.0, trained = 0.0;
    for (uint32_t i = 0; i < 200; i++) {
        trained += fx.batch.role[i] == FR_ROLE_TRAIN;
        for (uint32_t p = history->begin[i]; p < history->begin[i + 1] && fx.batch.role[i] == FR_ROLE_TRAIN; p++) {
            const float *row = fx.row_memory[1] + history->keys[p] * fx.layouts[1].row_floats + 1;
            double x = (double)bias;
            for (size_t j = 0; j < 4; j++)
                x += (double)kernel[j] * (double)row[j];
            masked += history->keys[p] % 7 == 3;
            if (history->keys[p] % 7 == 3)
                continue;
            count += 1.0;
            sum += x;
            square += x * x;
        }
    }
    assert_true(masked > 10.0);
    fx_step(&fx, graph);
    double keep = pow(0.99, trained), weight = keep * 0.01 + (1.0 - keep);
    double mean = (1.0 - keep) * sum / count / weight;
    double variance = (keep * 0.01 + (1.0 - keep) * square / count) / weight - mean * mean;
    assert_true(fabs((double)fx_parameter(graph, "d/mean")->values[0] - mean) < 1e-7);
    assert_true(fabs((double)fx_parameter(graph, "d/variance")->values[0] - variance) < 1e-7);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Learning does not depend on the batch: samples trained one by one leave the same statistics,
 * variance included, as the same samples in one batch. */
FR_CASE(dice_statistics_do_not_depend_on_the_batch)
{
    float numbers[2][4];
    for (int single = 0; single < 2; single++) {
        struct fixture fx;
        fx_load(&fx, 40,
                NX_HEAD "network:\n"
                        "  layers:\n"
                        "    - {name: d, activate: price, activation: dice}\n"
                        "    - {name: out, dense: d, units: 1}\n" NX_ONE_TASK);
        fx.conf.ingest.batch_size = 64;
        fx_make_rows(&fx, 2);
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        for (uint64_t i = 0; i < 60; i++) {
            float rest[128];
            fx_make_batch(&fx, 64, 3, true, 80 + i);
            memcpy(rest, fx.batch.columns[5].dense, sizeof(rest));
            for (uint32_t s = 0; single && s < 64; s++) {
                fx_make_batch(&fx, 1, 3, true, 80 + i);
                memcpy(fx.batch.columns[5].dense, rest + 2 * s, 2 * sizeof(float));
                fx_step(&fx, graph);
            }
            if (!single)
                fx_step(&fx, graph);
        }
        memcpy(numbers[single], fx_parameter(graph, "d/mean")->values, 2 * sizeof(float));
        memcpy(numbers[single] + 2, fx_parameter(graph, "d/variance")->values, 2 * sizeof(float));
        fr_graph_free(graph);
        fx_release(&fx);
    }
    for (size_t j = 0; j < 2; j++) {
        assert_float_equal(numbers[0][j], numbers[1][j], 0.01f);
        assert_float_equal(numbers[0][2 + j], numbers[1][2 + j], 0.01f * numbers[0][2 + j]);
    }
}

/* Groups with shared columns, and the same samples written out: standardize on a shared and an own
 * column, dice over vectors of groups, of samples, and over steps. */
FR_CASE(statistics_are_the_same_bits_for_all_sample_forms)
{
    static const char *const text =
        NX_HEAD "network:\n"
                "  layers:\n"
                "    - {name: g, dense: [user_id, age], units: 5, activation: dice}\n"
                "    - {name: s, dense: [g, item_id.v], units: 4, activation: dice}\n"
                "    - {name: a, attention: {query: user_id, keys: history.v}, units: [6], activation: dice}\n"
                "    - {name: b, attention: {query: item_id.v, keys: history.v}, units: [3], activation: dice}\n"
                "    - {name: out, dense: [g, s, a, b], units: 1}\n" NX_ONE_TASK;
    static const char *const names[] = {"age/mean",   "age/variance", "g/mean",       "g/variance", "s/mean",
                                        "s/variance", "a/0/mean",     "a/0/variance", "b/0/mean",   "b/0/variance"};
    for (uint32_t shared = 0; shared < 2; shared++) { /* user_id, history and age; age alone */
        struct fixture fx[2];
        struct fr_graph *graphs[2];
        for (size_t expanded = 0; expanded < 2; expanded++) {
            struct fixture *f = &fx[expanded];
            fx_load(f, 40, text);
            fx_make_rows(f, 2);
            fx_make_groups(f, 200, 5, shared ? 1 << 6 : 1 << 0 | 1 << 2 | 1 << 6, 9);
            /* missing in a third of the groups */
            for (uint32_t g = 0; g < f->batch.n_groups; g += 3)
                f->batch.columns[6].dense[2 * g] = f->batch.columns[6].dense[2 * g + 1] = NAN;
            fx_vary_roles(f);
            if (expanded)
                fx_expand_groups(f);
            graphs[expanded] = fx_graph(f, NULL, NULL);
            fx_step(f, graphs[expanded]);
        }
        for (size_t i = 0; i < FR_ARRAY_LEN(names); i++) {
            const struct fr_parameter *one = fx_parameter(graphs[0], names[i]),
                                      *other = fx_parameter(graphs[1], names[i]);
            for (size_t j = 0; j < one->n_values; j++) {
                /* g reads a column of its own before a shared one, so its values (not its counts)
                 * differ in their last bits */
                double apart = fabs((double)one->values[j] - (double)other->values[j]);
                double room = shared == 1 && i >= 2 ? 1e-5 * fabs((double)one->values[j]) : 0.0;
                if (!(apart <= room))
                    fail_msg("%s differs between the forms", names[i]);
            }
            assert_true(one->values[0] != 0.0f && one->values[0] != 1.0f);
        }
        for (size_t expanded = 0; expanded < 2; expanded++) {
            fr_graph_free(graphs[expanded]);
            fx_release(&fx[expanded]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(standardized_numbers_follow_the_trained_samples),
        cmocka_unit_test(whatever_a_batch_changes_is_noted),
        cmocka_unit_test(a_standardized_number_learns_like_one_standardized_before),
        cmocka_unit_test(nothing_is_read_before_a_hundred_samples_were_counted),
        cmocka_unit_test(a_graph_that_begins_with_what_is_published_continues_like_its_origin),
        cmocka_unit_test(one_broken_number_neither_wrecks_the_moments_nor_is_read_at_its_size),
        cmocka_unit_test(moments_follow_a_stream_that_changes_its_scale),
        cmocka_unit_test(missing_values_are_left_out_of_the_statistics_and_read_as_zero),
        cmocka_unit_test(a_default_that_was_written_counts_as_the_value_given),
        cmocka_unit_test(an_indicator_says_what_was_missing_behind_every_transform),
        cmocka_unit_test(old_numbers_fade_behind_ten_million_samples),
        cmocka_unit_test(dice_statistics_are_a_moving_average_of_trained_samples),
        cmocka_unit_test(dice_over_steps_leaves_out_masked_ones),
        cmocka_unit_test(dice_statistics_do_not_depend_on_the_batch),
        cmocka_unit_test(statistics_are_the_same_bits_for_all_sample_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
