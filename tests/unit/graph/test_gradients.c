/* Every gradient against finite differences of the loss, through the whole graph.
 *
 * Without activations the loss is smooth and the bound tight; with relu some differences straddle a kink, so the bound
 * is wider there. With sgd and lr 1 a step subtracts exactly the gradient, so the gradient is what a step changed; with
 * lr 0 a step only measures the loss. */
#include "fixture.h"

struct difference {
    double error, size;
};

static void set_rates(struct fixture *fx, float lr)
{
    fx->conf.dense_optimizer = fx_optimizer(FR_OPT_SGD, lr);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        for (uint32_t p = 0; p < fx->tables[t].n_parts; p++)
            fx->tables[t].parts[p].optimizer.lr = lr;
}

static double loss_of(struct fr_graph *graph, const struct fixture *fx)
{
    double loss = 0.0;
    fr_graph_forward(graph, &fx->batch, &fx->rows);
    assert_int_equal(fr_graph_train(graph, &fx->batch, &fx->rows, &loss), FR_OK);
    return loss;
}

static void compare(struct fr_graph *still, const struct fixture *fx, float *value, double gradient,
                    struct difference *d)
{
    float before = *value, step = 0.004f;
    *value = before + step;
    float above = *value;
    double up = loss_of(still, fx);
    *value = before - step;
    double down = loss_of(still, fx), width = (double)above - (double)*value;
    *value = before;
    double numeric = (up - down) / width;
    d->error += (numeric - gradient) * (numeric - gradient);
    d->size += gradient * gradient;
}

static void assert_close(const char *what, const struct difference *d, double bound)
{
    if (!(d->error <= bound * d->size) || !(d->size > 1e-8))
        fail_msg("%s: squared error %g of %g", what, d->error, d->size);
}

/* The gradient of each parameter and row value of one step on `fx`, against differences taken through the reference
 * backend. */
static void check_gradients(struct fixture *fx, const struct fr_ops *ops, double bound)
{
    set_rates(fx, 0.0f);
    struct fr_graph *still = fx_graph(fx, fr_ops_reference(), NULL);
    set_rates(fx, 1.0f);
    struct fr_graph *moving = fx_graph(fx, ops, NULL);
    float *rows[2], *gradients[2];
    for (uint32_t t = 0; t < 2; t++) {
        size_t n = (size_t)fx->vocabulary * fx->layouts[t].row_floats;
        rows[t] = fr_alloc(n, sizeof(float));
        gradients[t] = fr_alloc(n, sizeof(float));
        memcpy(rows[t], fx->row_memory[t], n * sizeof(float));
    }
    (void)loss_of(moving, fx);
    for (uint32_t t = 0; t < 2; t++) {
        size_t n = (size_t)fx->vocabulary * fx->layouts[t].row_floats;
        for (size_t i = 0; i < n; i++)
            gradients[t][i] = rows[t][i] - fx->row_memory[t][i];
        memcpy(fx->row_memory[t], rows[t], n * sizeof(float));
    }
    for (size_t p = 0; p < fr_graph_parameter_count(still); p++) {
        struct fr_parameter *a = &fr_graph_parameters(still)[p], *b = &fr_graph_parameters(moving)[p];
        struct difference d = {0};
        for (size_t i = 0; i < a->n_values; i += 1 + a->n_values / 60)
            compare(still, fx, &a->values[i], (double)a->values[i] - (double)b->values[i], &d);
        if (strncmp(a->name, "spare", 5) == 0)
            assert_true(d.error == 0.0 && d.size == 0.0);
        else
            assert_close(a->name, &d, bound);
    }
    for (uint32_t t = 0; t < 2; t++) {
        for (uint32_t p = 0; p < fx->layouts[t].n_parts; p++) {
            struct difference d = {0};
            for (uint32_t id = 0; id < fx->vocabulary; id++) {
                for (uint32_t i = 0; i < fx->layouts[t].parts[p].dim; i++) {
                    size_t at = (size_t)id * fx->layouts[t].row_floats + fx->layouts[t].parts[p].value_offset + i;
                    compare(still, fx, &fx->row_memory[t][at], (double)gradients[t][at], &d);
                }
            }
            assert_close(fx->tables[t].parts[p].name, &d, bound);
        }
        free(rows[t]);
        free(gradients[t]);
    }
    fr_graph_free(still);
    fr_graph_free(moving);
}

static void run(const struct fr_ops *ops, enum fr_activation activation, double bound)
{
    struct fixture fx;
    fx_every_operation(&fx, 12, FR_OPT_SGD);
    fx.layers[2].activation = activation;
    fx_make_batch(&fx, 40, 3, true, 21);
    fx_vary_roles(&fx);
    check_gradients(&fx, ops, bound);
    fx_release(&fx);
}

static void smooth_gradients_match_finite_differences(void **state)
{
    (void)state;
    run(fr_ops_reference(), FR_ACT_NONE, 1e-5);
    run(fr_ops_cpu(), FR_ACT_NONE, 1e-5);
    run(fr_ops_openblas(), FR_ACT_NONE, 1e-5);
}

static void gradients_through_relu_match_finite_differences(void **state)
{
    (void)state;
    run(fr_ops_reference(), FR_ACT_RELU, 5e-3);
    run(fr_ops_cpu(), FR_ACT_RELU, 5e-3);
    run(fr_ops_openblas(), FR_ACT_RELU, 5e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smooth_gradients_match_finite_differences),
        cmocka_unit_test(gradients_through_relu_match_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
