/* Statistics of standardize and dice: whose samples they are, what they converge to, the same bits for all forms. */
#include "fixture.h"

#include "networks.h"

static void standardized_numbers_follow_the_trained_samples(void **state)
{
    (void)state;
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
            assert_true(fabs((double)variance[j] - (squares + 1.0) / (count + 1.0)) <= 1e-5);
        }
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

/* One sample a batch: the variance of one number is 0, which must not blow up what comes next. */
static void the_first_samples_of_a_stream_are_not_divided_by_nothing(void **state)
{
    (void)state;
    struct fixture fx;
    fx_load(&fx, 40, nx_networks[0].text);
    fx_make_rows(&fx, 2);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        fx_make_batch(&fx, 1, 1, false, 60 + i);
        fx_step(&fx, graph);
        assert_true(fx_parameter(graph, "age/variance")->values[0] >= 0.25f);
    }
    fr_graph_free(graph);
    fx_release(&fx);
}

static void old_numbers_fade_behind_ten_million_samples(void **state)
{
    (void)state;
    struct fixture fx;
    fx_init(&fx, 1);
    int32_t price = fx_slot(&fx, "price", FR_NO_INDEX, 1);
    fx.slots[price].transform = FR_TRANSFORM_STANDARDIZE;
    struct fr_conf_layer *z = fx_layer(&fx, "z", FR_LAYER_DENSE);
    fx_dense(z, price);
    fx_units(z, FR_ACT_NONE, 1, (uint32_t[]){1});
    fx_task(&fx, "click", 0, z, 1.0f);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    /* The state ends with the slot's dim, count, mean, M2 the number of dice and
     * a task's first labels: as if 10^7 samples of mean 0 and
     * variance 1 had been. */
    struct fr_buffer bytes = {0};
    fr_graph_save_state(graph, &bytes);
    double numbers[3] = {1e7, 0.0, 1e7};
    memcpy(bytes.data + bytes.size - 4 - 24 - sizeof(numbers), numbers, sizeof(numbers));
    assert_int_equal(fr_graph_restore_state(graph, bytes.data, bytes.size), FR_OK);
    fx_make_batch(&fx, 5000, 1, false, 8);
    for (uint32_t i = 0; i < 5000; i++)
        fx.batch.columns[0].dense[i] = 10.0f;
    fx_step(&fx, graph);
    fr_buffer_release(&bytes);
    fr_graph_save_state(graph, &bytes);
    memcpy(numbers, bytes.data + bytes.size - 4 - 24 - sizeof(numbers), sizeof(numbers));
    assert_true(numbers[0] == 1e7);
    double mean = 10.0 * (1.0 - pow(1.0 - 1e-7, 5000));
    assert_true(fabs(numbers[1] - mean) < 1e-9);
    /* E (x - mean)^2 of the mixture: the old ones count e^-0.0005 */
    double old = pow(1.0 - 1e-7, 5000),
           variance = old * (1.0 + mean * mean) + (1.0 - old) * (10.0 - mean) * (10.0 - mean);
    assert_true(fabs(numbers[2] / 1e7 - variance) < 1e-5);
    fr_buffer_release(&bytes);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* Dice on a known input: the numbers of a dense slot themselves. */
static void dice_statistics_are_a_moving_average_of_trained_samples(void **state)
{
    (void)state;
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

/* Of a sequence: steps with a row behind them, of trained samples. */
static void dice_over_steps_leaves_out_masked_ones(void **state)
{
    (void)state;
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

/* Learning does not depend on the batch: samples one by one leave what they leave together, variance included. */
static void dice_statistics_do_not_depend_on_the_batch(void **state)
{
    (void)state;
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

/* Groups with shared columns, and the same samples written out: standardize on a shared and an own column, dice over
 * vectors of groups, of samples, and over steps. */
static void statistics_are_the_same_bits_for_all_sample_forms(void **state)
{
    (void)state;
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
                /* g reads an own column before a shared one: its values, not its counts, differ in their last bits */
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
        cmocka_unit_test(the_first_samples_of_a_stream_are_not_divided_by_nothing),
        cmocka_unit_test(old_numbers_fade_behind_ten_million_samples),
        cmocka_unit_test(dice_statistics_are_a_moving_average_of_trained_samples),
        cmocka_unit_test(dice_over_steps_leaves_out_masked_ones),
        cmocka_unit_test(dice_statistics_do_not_depend_on_the_batch),
        cmocka_unit_test(statistics_are_the_same_bits_for_all_sample_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
