/* GRU and AUGRU of every backend: see scene.h. */
#include "scene.h"

/* input, kernel, bias, and for AUGRU the scores. */
static void lay_out_gru(struct scene *s)
{
    add_in(s, ROWS_STEPS, 3 * s->width);
    add_in(s, ROWS_PARAMETER, 3 * s->width * s->width);
    add_in(s, ROWS_PARAMETER, 3 * s->width);
    for (uint32_t i = 0; i < s->in_columns[1]; i++) /* keeps wide inputs out of saturation */
        s->in[1].values[i] *= s->width > 3 ? 0.25f : 1.0f;
    add_out(s, ROWS_STEPS, s->width);
    add_out(s, ROWS_STEPS, 4 * s->width);
}

static void lay_out_augru(struct scene *s)
{
    lay_out_gru(s);
    add_in(s, ROWS_STEPS, 1);
}

static struct fr_gru gru_call(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_gru call = {.steps = steps_of(s, 0, first, n),
                          .units = s->width,
                          .input = s->in[0],
                          .kernel = s->in[1].values,
                          .bias = s->in[2].values,
                          .states = s->out[0],
                          .gates = s->out[1],
                          .gradient = s->out_gradient,
                          .input_gradient = s->in_gradient[0],
                          .kernel_gradient = s->in_gradient[1].values,
                          .bias_gradient = s->in_gradient[2].values};
    if (s->n_in > 3) {
        call.scores = s->in[3];
        call.scores_gradient = s->in_gradient[3];
    }
    /* the workspace need not be aligned */
    call.workspace = guarded(ops->gru_workspace(&call.steps, s->width) + 1) + 1;
    return call;
}

static void release_workspace(const struct fr_ops *ops, const struct fr_gru *call)
{
    release_guarded(call->workspace - 1, ops->gru_workspace(&call->steps, call->units) + 1);
}

static void gru(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_gru call = gru_call(ops, s, first, n);
    ops->gru(&call);
    release_workspace(ops, &call);
}

static void gru_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_gru call = gru_call(ops, s, 0, s->m);
    ops->gru_backward(&call);
    release_workspace(ops, &call);
}

FR_CASE(gru_agrees_with_the_reference_and_with_differences)
{
    check_operation(&(struct operation){.name = "gru",
                                        .bound = 1e-10,
                                        .lay_out = lay_out_gru,
                                        .forward = gru,
                                        .backward = gru_backward,
                                        .whole_rows = true});
}

FR_CASE(augru_agrees_with_the_reference_and_with_differences)
{
    check_operation(&(struct operation){.name = "augru",
                                        .bound = 1e-10,
                                        .lay_out = lay_out_augru,
                                        .forward = gru,
                                        .backward = gru_backward,
                                        .whole_rows = true});
}

/* One unit: weights r, z, n of the input 0.5, -0.25, 1, recurrent 0.75, 0.5, -1, biases 0.1, 0.2,
 * 0.3 and -0.1, 0.4, 0.6, inputs 1 and -2 with a masked step between them; h' = (1 - z) n + z h as
 * PyTorch's documentation of GRU has it. */
FR_CASE(gru_follows_its_equations_and_keeps_the_state_over_masked_steps)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    double h = 0.0, want[3];
    const double x[3] = {1.0, 7.0, -2.0};
    for (uint32_t t = 0; t < 3; t++) {
        if (t != 1) {
            double r = 1.0 / (1.0 + exp(-(0.5 * x[t] + 0.1 + 0.75 * h - 0.1)));
            double z = 1.0 / (1.0 + exp(-(-0.25 * x[t] + 0.2 + 0.5 * h + 0.4)));
            double n = tanh(x[t] + 0.3 + r * (-h + 0.6));
            h = (1.0 - z) * n + z * h;
        }
        want[t] = h;
    }
    for (size_t b = 0; b < list.n; b++) {
        uint32_t begin[2] = {0, 3};
        uint8_t masked[3] = {0, 1, 0};
        float in[9], kernel[3] = {0.75f, 0.5f, -1.0f}, bias[3] = {-0.1f, 0.4f, 0.6f}, states[3], gates[12];
        for (uint32_t t = 0; t < 3; t++) {
            in[3 * t] = (float)(0.5 * x[t] + 0.1);
            in[3 * t + 1] = (float)(-0.25 * x[t] + 0.2);
            in[3 * t + 2] = (float)(x[t] + 0.3);
        }
        struct fr_gru call = {.steps = {begin, masked, 0, 1},
                              .units = 1,
                              .input = {in, 3},
                              .kernel = kernel,
                              .bias = bias,
                              .states = {states, 1},
                              .gates = {gates, 4}};
        call.workspace = guarded(list.ops[b]->gru_workspace(&call.steps, 1));
        list.ops[b]->gru(&call);
        release_guarded(call.workspace, list.ops[b]->gru_workspace(&call.steps, 1));
        for (uint32_t t = 0; t < 3; t++)
            assert_true(fabs((double)states[t] - want[t]) < 1e-6);
        assert_true(states[1] == states[0]);
    }
}

FR_CASE(the_workspace_does_not_grow_with_the_sequence)
{
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        uint32_t short_begin[3] = {0, 1, 1}, long_begin[3] = {0, 1000, 4000};
        struct fr_steps few = {short_begin, NULL, 0, 2}, many = {long_begin, NULL, 0, 2};
        assert_true(list.ops[b]->gru_workspace(&few, 16) == list.ops[b]->gru_workspace(&many, 16));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gru_agrees_with_the_reference_and_with_differences),
        cmocka_unit_test(augru_agrees_with_the_reference_and_with_differences),
        cmocka_unit_test(gru_follows_its_equations_and_keeps_the_state_over_masked_steps),
        cmocka_unit_test(the_workspace_does_not_grow_with_the_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
