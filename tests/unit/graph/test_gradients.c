/* Every gradient against finite differences of the loss, through the whole graph.
 *
 * Without kinks the loss is smooth and the bound tight; with relu and slopes some differences
 * straddle a kink, so the bound is wider there. With sgd and lr 1 a step subtracts exactly the
 * gradient, so the gradient is what a step changed; with lr 0 a step only measures the loss. State
 * and statistics are put back before every measurement: dropout masks and normalisation are those
 * of the step whose gradient is checked. */
#include "fixture.h"
#include "networks.h"
#include "reference/reference.h"

struct difference {
    double error, size;
};

/* A graph that only measures losses. */
struct meter {
    struct fr_graph *graph;
    const struct fixture *fx;
    struct fr_buffer state;
    float **statistics; /* by parameter; NULL: trained */
};

static void set_rates(struct fixture *fx, float lr)
{
    fx->conf.dense_optimizer = fx_optimizer(FR_OPT_SGD, lr);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        for (uint32_t p = 0; p < fx->conf.tables[t].n_parts; p++)
            fx->conf.tables[t].parts[p].optimizer = fx_optimizer(FR_OPT_SGD, lr);
}

/* Returns the loss whose slopes the gradients are: a sum, where fr_graph_train returns a mean. */
static double step(struct fr_graph *graph, const struct fixture *fx)
{
    double loss = 0.0;
    fr_graph_forward(graph, &fx->batch, &fx->rows);
    assert_int_equal(fr_graph_train(graph, &fx->batch, &fx->rows, NULL), FR_OK);
    for (uint32_t k = 0; k < fx->conf.n_tasks + fx->conf.n_losses; k++)
        loss += fr_graph_losses_of(graph)[k].sum;
    return loss;
}

static void meter_init(struct meter *meter, struct fixture *fx)
{
    set_rates(fx, 1e-30f);
    *meter = (struct meter){.graph = fx_graph(fx, fr_reference_ops(), NULL), .fx = fx};
    fx_count_enough(meter->graph);
    save_state(meter->graph, &meter->state);
    size_t n = fr_graph_parameter_count(meter->graph);
    meter->statistics = fr_alloc(n, sizeof(*meter->statistics));
    for (size_t p = 0; p < n; p++) {
        const struct fr_parameter *parameter = &fr_graph_parameters(meter->graph)[p];
        if (parameter->trained)
            continue;
        meter->statistics[p] = fr_alloc(parameter->n_values, sizeof(float));
        memcpy(meter->statistics[p], parameter->values, parameter->n_values * sizeof(float));
    }
}

static void meter_release(struct meter *meter)
{
    for (size_t p = 0; p < fr_graph_parameter_count(meter->graph); p++)
        free(meter->statistics[p]);
    free(meter->statistics);
    fr_buffer_release(&meter->state);
    fr_graph_free(meter->graph);
}

static double loss_of(struct meter *meter)
{
    assert_int_equal(restore_state(meter->graph, meter->state.data, meter->state.size), FR_OK);
    for (size_t p = 0; p < fr_graph_parameter_count(meter->graph); p++) {
        struct fr_parameter *parameter = &fr_graph_parameters(meter->graph)[p];
        if (!parameter->trained)
            memcpy(parameter->values, meter->statistics[p], parameter->n_values * sizeof(float));
    }
    return step(meter->graph, meter->fx);
}

static void compare(struct meter *meter, float *value, double gradient, struct difference *d)
{
    float before = *value, width = 0.004f;
    *value = before + width;
    float above = *value;
    double up = loss_of(meter);
    *value = before - width;
    double down = loss_of(meter), between = (double)above - (double)*value;
    *value = before;
    double numeric = (up - down) / between;
    d->error += (numeric - gradient) * (numeric - gradient);
    d->size += gradient * gradient;
}

static void assert_close(const char *network, const char *what, const struct difference *d, double bound)
{
    if (!(d->error <= bound * d->size + 1e-9) || !(d->size > 1e-8))
        fail_msg("%s, %s: squared error %g of %g", network, what, d->error, d->size);
}

/* Only a layer that no loss reaches has no gradient; a softmax's scores have no bias. */
static bool expects_no_gradient(const char *name)
{
    return strncmp(name, "spare", 5) == 0;
}

static void check_parameters(const char *network, struct meter *meter, float **stepped, double bound)
{
    for (size_t p = 0; p < fr_graph_parameter_count(meter->graph); p++) {
        struct fr_parameter *a = &fr_graph_parameters(meter->graph)[p];
        struct difference d = {0};
        if (!a->trained)
            continue;
        for (size_t i = 0; i < a->n_values; i += 1 + a->n_values / 60)
            compare(meter, &a->values[i], (double)a->values[i] - (double)stepped[p][i], &d);
        if (expects_no_gradient(a->name))
            assert_true(d.error < 1e-9 && d.size < 1e-12);
        else
            assert_close(network, a->name, &d, bound);
    }
}

static void check_rows(const char *network, struct meter *meter, const struct fixture *fx, float **gradients,
                       double bound)
{
    for (uint32_t t = 0; t < fx->conf.n_tables; t++) {
        for (uint32_t p = 0; p < fx->layouts[t].n_parts; p++) {
            struct difference d = {0};
            for (uint32_t id = 0; id < fx->vocabulary; id++) {
                for (uint32_t i = 0; i < fx->layouts[t].parts[p].dim; i++) {
                    size_t at = (size_t)id * fx->layouts[t].row_floats + fx->layouts[t].parts[p].value_offset + i;
                    compare(meter, &fx->row_memory[t][at], (double)gradients[t][at], &d);
                }
            }
            /* a part no layer of this network reads has neither */
            if (d.error > 0.0 || d.size > 0.0)
                assert_close(network, fx->conf.tables[t].parts[p].name, &d, bound);
        }
    }
}

/* Rows of +-1 instead of +-0.2 and larger kernels: every parameter's gradient must be larger than
 * rounding errors. */
static void enlarge(struct fixture *fx)
{
    for (uint32_t l = 0; l < fx->conf.n_layers; l++)
        fx->conf.layers[l].init = (struct fr_conf_init){.kind = FR_INIT_UNIFORM, .scale = 0.8f};
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        for (size_t i = 0; i < (size_t)fx->vocabulary * fx->layouts[t].row_floats; i++)
            fx->row_memory[t][i] *= 5.0f;
}

/* Computes what one step at rate `lr` takes from the rows, and restores the rows. Returns the graph
 * that made the step. */
static struct fr_graph *step_rows(struct fixture *fx, const struct fr_ops *ops, float lr, float **moved)
{
    set_rates(fx, lr);
    struct fr_graph *graph = fx_graph(fx, ops, NULL);
    fx_count_enough(graph);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++) {
        size_t n = (size_t)fx->vocabulary * fx->layouts[t].row_floats;
        moved[t] = fr_alloc(n, sizeof(float));
        memcpy(moved[t], fx->row_memory[t], n * sizeof(float));
    }
    (void)step(graph, fx);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++) {
        size_t n = (size_t)fx->vocabulary * fx->layouts[t].row_floats;
        for (size_t i = 0; i < n; i++) {
            float before = moved[t][i];
            moved[t][i] -= fx->row_memory[t][i];
            fx->row_memory[t][i] = before;
        }
    }
    return graph;
}

/* Computes the summed gradients of rows from two damped steps, lr s / (1 + lr k / 4): at rates 1
 * and 1/8 s is 7 d D / (d - D), whatever k. */
static void undamp(const struct fixture *fx, float **gradients, float **slow)
{
    for (uint32_t t = 0; t < fx->conf.n_tables; t++) {
        for (size_t i = 0; i < (size_t)fx->vocabulary * fx->layouts[t].row_floats; i++) {
            double d = (double)gradients[t][i], slower = (double)slow[t][i];
            gradients[t][i] = d == slower ? 0.0f : (float)(7.0 * d * slower / (d - slower));
        }
        free(slow[t]);
    }
}

/* The gradient of each parameter and row value of one step on `fx`, against differences taken
 * through the reference backend. */
static void check_gradients(const char *network, struct fixture *fx, const struct fr_ops *ops, double bound)
{
    float *gradients[FX_SLOTS], *slow[FX_SLOTS], **stepped;
    fr_graph_free(step_rows(fx, ops, 0.125f, slow));
    struct fr_graph *moving = step_rows(fx, ops, 1.0f, gradients);
    undamp(fx, gradients, slow);
    size_t n_parameters = fr_graph_parameter_count(moving);
    stepped = fr_alloc(n_parameters, sizeof(*stepped));
    for (size_t p = 0; p < n_parameters; p++) {
        const struct fr_parameter *parameter = &fr_graph_parameters(moving)[p];
        stepped[p] = fr_alloc(parameter->n_values, sizeof(float));
        memcpy(stepped[p], parameter->values, parameter->n_values * sizeof(float));
    }
    fr_graph_free(moving);
    struct meter meter;
    meter_init(&meter, fx);
    check_parameters(network, &meter, stepped, bound);
    check_rows(network, &meter, fx, gradients, bound);
    meter_release(&meter);
    for (size_t p = 0; p < n_parameters; p++)
        free(stepped[p]);
    free(stepped);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        free(gradients[t]);
}

static void run_by_hand(const struct fr_ops *ops, enum fr_activation activation, double bound)
{
    struct fixture fx;
    fx_every_operation(&fx, 12, FR_OPT_SGD);
    fx.layers[2].activation = activation;
    fx_make_batch(&fx, 40, 3, true, 21);
    fx_vary_roles(&fx);
    check_gradients("by hand", &fx, ops, bound);
    fx_release(&fx);
}

FR_CASE(smooth_gradients_match_finite_differences)
{
    run_by_hand(fr_reference_ops(), FR_ACT_NONE, 1e-5);
    run_by_hand(fr_ops_cpu(), FR_ACT_NONE, 1e-5);
    run_by_hand(fr_ops_openblas(), FR_ACT_NONE, 1e-5);
}

FR_CASE(gradients_through_relu_match_finite_differences)
{
    run_by_hand(fr_reference_ops(), FR_ACT_RELU, 5e-3);
    run_by_hand(fr_ops_cpu(), FR_ACT_RELU, 5e-3);
    run_by_hand(fr_ops_openblas(), FR_ACT_RELU, 5e-3);
}

static double bound_of(const struct network *network)
{
    return strcmp(network->name, "slopes") == 0 ? 5e-3 : 1e-4;
}

FR_CASE(every_layers_gradients_match_finite_differences)
{
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        struct fixture fx;
        if (nx_networks[i].stops)
            continue;
        fx_load(&fx, 12, nx_networks[i].text);
        set_rates(&fx, 1.0f); /* sgd: rows without state */
        fx_make_rows(&fx, 11);
        enlarge(&fx);
        fx_make_batch(&fx, 40, 4, true, 21);
        fx_vary_roles(&fx);
        check_gradients(nx_networks[i].name, &fx, fr_ops_cpu(), bound_of(&nx_networks[i]));
        fx_release(&fx);
    }
}

FR_CASE(gradients_of_groups_match_finite_differences)
{
    static const uint32_t masks[] = {0x01 | 0x04 | 0x20, 0x02 | 0x08 | 0x40 | 0x80, 0xff};
    for (size_t i = 0; i < FR_ARRAY_LEN(nx_networks); i++) {
        for (size_t m = 0; m < FR_ARRAY_LEN(masks) && !nx_networks[i].stops; m++) {
            struct fixture fx;
            fx_load(&fx, 12, nx_networks[i].text);
            set_rates(&fx, 1.0f);
            fx_make_rows(&fx, 11);
            enlarge(&fx);
            fx_make_groups(&fx, 50, 5, masks[m], 22);
            fx_vary_roles(&fx);
            check_gradients(nx_networks[i].name, &fx, fr_ops_cpu(), bound_of(&nx_networks[i]));
            fx_release(&fx);
        }
    }
}

#define BEHIND_STOP                                                                                                    \
    NX_HEAD "network:\n"                                                                                               \
            "  layers:\n"                                                                                              \
            "    - {name: behind, dense: [item_id.v], units: 2}\n"                                                     \
            "    - {name: x, concat: [{stop_gradient: behind}, user_id]}\n"                                            \
            "    - {name: out, dense: x, units: 1}\n" NX_ONE_TASK
#define STOPPED(x)                                                                                                     \
    NX_HEAD "network:\n"                                                                                               \
            "  layers:\n"                                                                                              \
            "    - {name: x, concat: [" x ", user_id]}\n"                                                              \
            "    - {name: h, dense: x, units: 4, activation: tanh}\n"                                                  \
            "    - {name: out, dense: h, units: 1}\n" NX_ONE_TASK

/* Rows after one step on 60 samples; `copy` holds the sums of user_id's rows. */
static float *rows_after_step(const char *text, uint32_t table, size_t *n)
{
    struct fixture fx;
    fx_load(&fx, 12, text);
    set_rates(&fx, 1.0f);
    fx_make_rows(&fx, 11);
    fx_make_batch(&fx, 60, 3, false, 23);
    struct fr_column *user = &fx.batch.columns[0];
    for (uint32_t i = 0; i < 60; i++) {
        float *copy = fx.batch.columns[8].dense + 4 * i;
        memset(copy, 0, 4 * sizeof(float));
        for (uint32_t p = user->begin[i]; p < user->begin[i + 1]; p++)
            for (uint32_t j = 0; j < 4 && user->keys[p] % 7 != 3; j++)
                copy[j] += fx.row_memory[0][user->keys[p] * fx.layouts[0].row_floats + j];
    }
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    (void)step(graph, &fx);
    *n = (size_t)12 * fx.layouts[table].row_floats;
    float *rows = fr_alloc(*n, sizeof(float));
    memcpy(rows, fx.row_memory[table], *n * sizeof(float));
    fr_graph_free(graph);
    fx_release(&fx);
    return rows;
}

FR_CASE(a_stopped_argument_is_a_constant)
{
    size_t n, m;
    float *stopped = rows_after_step(STOPPED("{stop_gradient: user_id}"), 0, &n);
    float *constant = rows_after_step(STOPPED("copy"), 0, &m), *twice = rows_after_step(STOPPED("user_id"), 0, &m);
    assert_memory_equal(stopped, constant, n * sizeof(float));
    assert_memory_not_equal(stopped, twice, n * sizeof(float));
    free(stopped);
    free(constant);
    free(twice);
}

FR_CASE(nothing_behind_a_stop_is_trained)
{
    struct fixture fx;
    fx_load(&fx, 12, BEHIND_STOP);
    fx.conf.dense_optimizer.l2 = 0.1f; /* l2 would shrink what is trained */
    fx_make_rows(&fx, 11);
    fx_make_batch(&fx, 60, 3, false, 23);
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    float kernel[8], *rows = fr_alloc((size_t)12 * fx.layouts[1].row_floats, sizeof(float));
    memcpy(rows, fx.row_memory[1], (size_t)12 * fx.layouts[1].row_floats * sizeof(float));
    assert_string_equal(fr_graph_parameters(graph)[0].name, "behind/kernel");
    memcpy(kernel, fr_graph_parameters(graph)[0].values, sizeof(kernel));
    (void)step(graph, &fx);
    assert_memory_equal(kernel, fr_graph_parameters(graph)[0].values, sizeof(kernel));
    assert_memory_equal(rows, fx.row_memory[1], (size_t)12 * fx.layouts[1].row_floats * sizeof(float));
    free(rows);
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smooth_gradients_match_finite_differences),
        cmocka_unit_test(gradients_through_relu_match_finite_differences),
        cmocka_unit_test(every_layers_gradients_match_finite_differences),
        cmocka_unit_test(gradients_of_groups_match_finite_differences),
        cmocka_unit_test(a_stopped_argument_is_a_constant),
        cmocka_unit_test(nothing_behind_a_stop_is_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
