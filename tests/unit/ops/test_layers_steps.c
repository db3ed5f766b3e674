/* Pooling over steps, attention and auxiliary losses of every backend: see scene.h. */
#include "scene.h"

/* ---- pooling ---- */

static const enum fr_pooling poolings[] = {FR_POOLINGS(FR_KIND_MEMBER)};
static enum fr_pooling kind; /* of the pooling under test */

static void lay_out_pool(struct scene *s)
{
    add_in(s, ROWS_STEPS, s->width);
    add_out(s, ROWS_VECTOR, s->width);
}

static struct fr_pool_steps pool_call(struct scene *s, uint32_t first, uint32_t n)
{
    return (struct fr_pool_steps){.steps = steps_of(s, 0, first, n),
                                  .kind = kind,
                                  .width = s->width,
                                  .in = s->in[0],
                                  .out = from_row(s->out[0], first),
                                  .in_gradient = s->in_gradient[0]};
}

static void pool(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_pool_steps call = pool_call(s, first, n);
    ops->pool_steps(&call);
}

static void pool_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_pool_steps call = pool_call(s, 0, s->m);
    call.out = s->out_gradient;
    ops->pool_steps_backward(&call);
}

FR_CASE(pooling_of_every_kind_agrees_with_the_reference_and_with_differences)
{
    for (size_t k = 0; k < FR_ARRAY_LEN(poolings); k++) {
        kind = poolings[k];
        check_operation(&(struct operation){
            .name = "pool_steps", .bound = 1e-10, .lay_out = lay_out_pool, .forward = pool, .backward = pool_backward});
    }
}

FR_CASE(masked_steps_add_nothing_but_count_and_the_last_step_is_the_newest_row)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    static const float want[][3] = {[FR_POOL_SUM] = {5.0f, 0.0f, 0.0f},
                                    [FR_POOL_MEAN] = {1.25f, 0.0f, 0.0f},
                                    [FR_POOL_SQRTN] = {2.5f, 0.0f, 0.0f},
                                    [FR_POOL_MAX] = {4.0f, 0.0f, 0.0f},
                                    [FR_POOL_LAST] = {8.0f, 0.0f, 9.0f}};
    for (size_t b = 0; b < list.n; b++) {
        for (size_t k = 0; k < FR_ARRAY_LEN(poolings); k++) {
            kind = poolings[k];
            uint32_t begin[4] = {0, 4, 4, 5};
            uint8_t masked[5] = {0, 1, 0, 1, 1};
            float in[5] = {1.0f, NAN, 4.0f, 8.0f, 9.0f}, out[3];
            list.ops[b]->pool_steps(&(struct fr_pool_steps){.steps = {.begin = begin, .masked = masked, .entry_end = 3},
                                                            .kind = kind,
                                                            .width = 1,
                                                            .in = {in, 1},
                                                            .out = {out, 1}});
            assert_memory_equal(out, want[kind], sizeof(out));
        }
    }
}

/* ---- attention ---- */

static bool relu; /* of the layer under test */

/* query, keys, kernel, bias; three units more than a key is wide. */
static void lay_out_attention(struct scene *s)
{
    uint32_t units = s->width + 3;
    add_in(s, ROWS_VECTOR, s->width);
    add_in(s, ROWS_STEPS, s->width);
    add_in(s, ROWS_PARAMETER, 4 * s->width * units);
    add_in(s, ROWS_PARAMETER, units);
    add_out(s, ROWS_STEPS, units);
}

static struct fr_attention_dense attention_call(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    uint32_t units = s->width + 3;
    return (struct fr_attention_dense){.steps = steps_of(s, 0, first, n),
                                       .width = s->width,
                                       .units = units,
                                       .relu = relu,
                                       .kernel = s->in[2].values,
                                       .bias = s->in[3].values,
                                       .query = from_row(s->in[0], first),
                                       .keys = s->in[1],
                                       .out = s->out[0],
                                       /* the workspace need not be aligned */
                                       .workspace = guarded(ops->attention_workspace(s->width, units) + 1) + 1,
                                       .gradient = s->out_gradient,
                                       .query_gradient = s->in_gradient[0],
                                       .keys_gradient = s->in_gradient[1],
                                       .kernel_gradient = s->in_gradient[2].values,
                                       .bias_gradient = s->in_gradient[3].values};
}

static void attention(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_attention_dense call = attention_call(ops, s, first, n);
    ops->attention_dense(&call);
    release_guarded(call.workspace - 1, ops->attention_workspace(call.width, call.units) + 1);
}

static void attention_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_attention_dense call = attention_call(ops, s, 0, s->m);
    ops->attention_dense_backward(&call);
    release_guarded(call.workspace - 1, ops->attention_workspace(call.width, call.units) + 1);
}

FR_CASE(attention_layers_agree_with_the_reference_and_with_differences)
{
    struct operation op = {.name = "attention_dense",
                           .bound = 1e-10,
                           .lay_out = lay_out_attention,
                           .forward = attention,
                           .backward = attention_backward,
                           .whole_rows = true};
    check_operation(&op);
    relu = true;
    op.backward = NULL; /* differences would step over the kink of relu */
    check_operation(&op);
    relu = false;
}

/* The gradient of a step is that of the layer without relu where its output is positive, and
 * nothing elsewhere. */
FR_CASE(attention_layers_with_relu_pass_gradients_where_they_are_positive)
{
    const struct operation op = {.name = "attention_dense", .bound = 1e-10, .lay_out = lay_out_attention};
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        struct scene got = make_scene(&op, 20, 5, false), want = make_scene(&op, 20, 5, false);
        attention(list.ops[b], &got, 0, 20);
        for (size_t i = 0; i < rows_in(&got, ROWS_STEPS); i++)
            for (size_t j = 0; j < got.out_columns[0]; j++)
                if (!(got.out[0].values[i * got.out[0].ld + j] > 0.0f))
                    want.out_gradient.values[i * want.out_gradient.ld + j] = 0.0f;
        attention_backward(list.ops[b], &want);
        relu = true;
        attention(list.ops[b], &got, 0, 20);
        attention_backward(list.ops[b], &got);
        relu = false;
        compare_gradients(&op, &got, &want, true, UINT32_MAX);
        release_scene(&got);
        release_scene(&want);
    }
}

/* Width 1, two units: W = [1 2; 3 5; 7 11; 13 17], b = [0.5, -100]. q = 2, k = 3: [2, 3, -1, 6] W +
 * b by hand; a masked step's key is zero. */
FR_CASE(attention_layers_follow_their_equation)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    const float kernel[] = {1.0f, 2.0f, 3.0f, 5.0f, 7.0f, 11.0f, 13.0f, 17.0f}, bias[] = {0.5f, -100.0f};
    const float want[] = {82.5f, 10.0f, 16.5f, -74.0f}, rectified[] = {82.5f, 10.0f, 16.5f, 0.0f};
    const uint32_t begin[] = {0, 0, 2};
    const uint8_t masked[] = {0, 1};
    for (size_t b = 0; b < list.n; b++) {
        float query[] = {NAN, 2.0f}, keys[] = {3.0f, 0.0f}, out[4];
        struct fr_attention_dense call = {.steps = {begin, masked, 0, 2},
                                          .width = 1,
                                          .units = 2,
                                          .kernel = kernel,
                                          .bias = bias,
                                          .query = {query, 1},
                                          .keys = {keys, 1},
                                          .out = {out, 2},
                                          .workspace = guarded(list.ops[b]->attention_workspace(1, 2))};
        list.ops[b]->attention_dense(&call);
        assert_memory_equal(out, want, sizeof(out));
        call.relu = true;
        list.ops[b]->attention_dense(&call);
        assert_memory_equal(out, rectified, sizeof(out));
        release_guarded(call.workspace, list.ops[b]->attention_workspace(1, 2));
    }
}

static void lay_out_softmax(struct scene *s)
{
    add_in(s, ROWS_STEPS, 1);
    add_out(s, ROWS_STEPS, 1);
}

static struct fr_softmax_steps softmax_call(struct scene *s, uint32_t first, uint32_t n)
{
    return (struct fr_softmax_steps){.steps = steps_of(s, 0, first, n),
                                     .in = s->in[0],
                                     .out = s->out[0],
                                     .gradient = s->out_gradient,
                                     .in_gradient = s->in_gradient[0]};
}

static void softmax(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_softmax_steps call = softmax_call(s, first, n);
    ops->softmax_steps(&call);
}

static void softmax_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_softmax_steps call = softmax_call(s, 0, s->m);
    ops->softmax_steps_backward(&call);
}

FR_CASE(softmax_over_steps_agrees_with_the_reference_and_with_differences)
{
    check_operation(&(struct operation){.name = "softmax_steps",
                                        .bound = 1e-10,
                                        .lay_out = lay_out_softmax,
                                        .forward = softmax,
                                        .backward = softmax_backward});
}

FR_CASE(softmax_gives_masked_steps_nothing_and_survives_large_scores)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        uint32_t begin[5] = {0, 4, 4, 6, 8};
        uint8_t masked[8] = {0, 1, 0, 0, 1, 1, 1, 0};
        float in[8] = {300.0f, NAN, 300.0f, -300.0f, 1.0f, INFINITY, 1e30f, 2.0f}, out[8];
        static const float want[8] = {0.5f, 0.0f, 0.5f, 0.0f, 0.0f, 0.0f, 0.0f, 1.0f};
        list.ops[b]->softmax_steps(&(struct fr_softmax_steps){
            .steps = {.begin = begin, .masked = masked, .entry_end = 4}, .in = {in, 1}, .out = {out, 1}});
        for (uint32_t p = 0; p < 8; p++)
            assert_true(fabsf(out[p] - want[p]) < 1e-30f);
    }
}

static void lay_out_attention_pool(struct scene *s)
{
    add_in(s, ROWS_STEPS, 1);
    add_in(s, ROWS_STEPS, s->width);
    add_out(s, ROWS_VECTOR, s->width);
}

static struct fr_attention_pool attention_pool_call(struct scene *s, uint32_t first, uint32_t n)
{
    return (struct fr_attention_pool){.steps = steps_of(s, 0, first, n),
                                      .width = s->width,
                                      .scores = s->in[0],
                                      .keys = s->in[1],
                                      .out = from_row(s->out[0], first),
                                      .scores_gradient = s->in_gradient[0],
                                      .keys_gradient = s->in_gradient[1]};
}

static void attention_pool(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_attention_pool call = attention_pool_call(s, first, n);
    ops->attention_pool(&call);
}

static void attention_pool_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_attention_pool call = attention_pool_call(s, 0, s->m);
    call.out = s->out_gradient;
    ops->attention_pool_backward(&call);
}

FR_CASE(attention_pools_agree_with_the_reference_and_with_differences)
{
    check_operation(&(struct operation){.name = "attention_pool",
                                        .bound = 1e-10,
                                        .lay_out = lay_out_attention_pool,
                                        .forward = attention_pool,
                                        .backward = attention_pool_backward});
}

static void lay_out_dot_steps(struct scene *s)
{
    add_in(s, ROWS_STEPS, s->width);
    add_in(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_STEPS, 1);
}

static struct fr_dot_steps dot_steps_call(struct scene *s, uint32_t first, uint32_t n)
{
    return (struct fr_dot_steps){.steps = steps_of(s, 0, first, n),
                                 .width = s->width,
                                 .keys = s->in[0],
                                 .query = from_row(s->in[1], first),
                                 .out = s->out[0],
                                 .keys_gradient = s->in_gradient[0],
                                 .query_gradient = s->in_gradient[1]};
}

static void dot_steps(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_dot_steps call = dot_steps_call(s, first, n);
    ops->dot_steps(&call);
}

static void dot_steps_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_dot_steps call = dot_steps_call(s, 0, s->m);
    call.out = s->out_gradient;
    ops->dot_steps_backward(&call);
}

FR_CASE(dots_with_steps_agree_with_the_reference_and_with_differences)
{
    check_operation(&(struct operation){.name = "dot_steps",
                                        .bound = 1e-10,
                                        .lay_out = lay_out_dot_steps,
                                        .forward = dot_steps,
                                        .backward = dot_steps_backward});
}

/* ---- auxiliary losses ---- */

/* `values` and the places of the gradients may belong to two scenes. */
typedef double loss_call(const struct fr_ops *ops, struct scene *values, struct scene *gradients, float scale,
                         uint32_t *counts);

static uint8_t trained[256]; /* per entry */

static void set_trained(void)
{
    for (uint32_t e = 0; e < FR_ARRAY_LEN(trained); e++)
        trained[e] = e % 7 != 2;
}

static void lay_out_pair(struct scene *s)
{
    add_in(s, ROWS_VECTOR, s->width);
    add_in(s, ROWS_VECTOR, s->width);
}

static double mse_pair(const struct fr_ops *ops, struct scene *v, struct scene *g, float scale, uint32_t *counts)
{
    (void)counts;
    return ops->mse_pair(&(struct fr_mse_pair){.m = v->m,
                                               .n = v->width,
                                               .trained = trained,
                                               .scale = scale,
                                               .a = v->in[0],
                                               .b = v->in[1],
                                               .a_gradient = g->in_gradient[0],
                                               .b_gradient = g->in_gradient[1]});
}

static void lay_out_next(struct scene *s)
{
    add_in(s, ROWS_STEPS, s->width);
    add_in(s, ROWS_STEPS_1, s->width);
    add_in(s, ROWS_STEPS_2, s->width);
}

static double next_step(const struct fr_ops *ops, struct scene *v, struct scene *g, float scale, uint32_t *counts)
{
    struct fr_next_step call = {.states_steps = steps_of(v, 0, 0, v->m),
                                .positive_steps = steps_of(v, 1, 0, v->m),
                                .negative_steps = steps_of(v, 2, 0, v->m),
                                .width = v->width,
                                .trained = trained,
                                .scale = scale,
                                .states = v->in[0],
                                .positives = v->in[1],
                                .negatives = v->in[2],
                                .states_gradient = g->in_gradient[0],
                                .positives_gradient = g->in_gradient[1],
                                .negatives_gradient = g->in_gradient[2],
                                .counts = counts};
    return ops->next_step(&call);
}

static void release_loss_scene(struct scene *s)
{
    add_out(s, ROWS_VECTOR, 1); /* release_scene wants an output */
    release_scene(s);
}

static void compare_loss(const struct operation *op, loss_call *loss, const struct fr_ops *ops, uint32_t m,
                         uint32_t width)
{
    struct scene got = make_scene(op, m, width, false), again = make_scene(op, m, width, false),
                 want = make_scene(op, m, width, false);
    uint32_t counts[256] = {0}, counts_again[256] = {0}, counts_want[256] = {0};
    double total = loss(ops, &got, &got, 0.25f, counts);
    double total_again = loss(ops, &again, &again, 0.25f, counts_again);
    double total_want = loss(fr_reference_ops(), &want, &want, 0.25f, counts_want);
    assert_true(fabs(total - total_want) <= 1e-6 * fabs(total_want));
    assert_true(total == total_again);
    assert_memory_equal(counts, counts_want, sizeof(counts));
    assert_memory_equal(counts, counts_again, sizeof(counts));
    compare_gradients(op, &got, &want, false, UINT32_MAX);
    compare_gradients(op, &got, &again, true, UINT32_MAX);
    for (uint32_t k = 0; k < got.n_in; k++) { /* one unwanted */
        struct scene s = make_scene(op, m, width, false);
        float *kept = s.in_gradient[k].values;
        s.in_gradient[k].values = NULL;
        assert_true(loss(ops, &s, &s, 0.25f, counts) == total);
        s.in_gradient[k].values = kept;
        compare_gradients(op, &got, &s, true, k);
        release_loss_scene(&s);
    }
    release_loss_scene(&got);
    release_loss_scene(&again);
    release_loss_scene(&want);
}

/* The reference's loss is a double, so plain central differences reach 1e-5. */
static void check_loss_gradient(const struct operation *op, loss_call *loss, uint32_t m, uint32_t width)
{
    struct scene s = make_scene(op, m, width, true), sink = make_scene(op, m, width, true);
    const float h = 0x1p-7f;
    uint32_t counts[256];
    loss(fr_reference_ops(), &s, &s, 1.0f, counts);
    for (uint32_t k = 0; k < s.n_in; k++) {
        for (size_t i = 0; i < rows_in(&s, s.in_rows[k]) * s.in_columns[k]; i++) {
            size_t row = i / s.in_columns[k], column = i % s.in_columns[k];
            float *x = &s.in[k].values[row * s.in[k].ld + column], at = *x;
            *x = at + h;
            double above = loss(fr_reference_ops(), &s, &sink, 1.0f, counts);
            *x = at - h;
            double below = loss(fr_reference_ops(), &s, &sink, 1.0f, counts);
            *x = at;
            double got = (double)s.in_gradient[k].values[row * s.in_gradient[k].ld + column];
            assert_true(fabs((above - below) / (2.0 * (double)h) - got) <= 2e-5 * (1.0 + fabs(got)));
        }
    }
    release_loss_scene(&s);
    release_loss_scene(&sink);
}

static void check_loss(const struct operation *op, loss_call *loss)
{
    static const uint32_t entries[] = {0, 1, 3, 128, 200}, widths[] = {1, 3, 8, 17, 64};
    struct backend_list list = list_backends();
    set_trained();
    for (size_t b = 0; b < list.n; b++)
        for (size_t i = 0; i < FR_ARRAY_LEN(entries); i++)
            for (size_t j = 0; j < FR_ARRAY_LEN(widths); j++)
                compare_loss(op, loss, list.ops[b], entries[i], widths[j]);
    check_loss_gradient(op, loss, 6, 1);
    check_loss_gradient(op, loss, 6, 5);
}

FR_CASE(mse_of_pairs_agrees_with_the_reference_and_with_differences)
{
    check_loss(&(struct operation){.name = "mse_pair", .bound = 1e-10, .lay_out = lay_out_pair}, mse_pair);
}

FR_CASE(next_step_agrees_with_the_reference_and_with_differences)
{
    check_loss(&(struct operation){.name = "next_step", .bound = 1e-10, .lay_out = lay_out_next}, next_step);
}

/* Entry 0: states of 4 steps, positives of 3, negatives of 5; entry 1 is not trained; entry 2 has
 * one step; entry 3 has two. */
FR_CASE(next_step_is_a_mean_over_an_entrys_unmasked_steps_that_are_there_in_all_three)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        uint32_t h_begin[5] = {0, 4, 6, 7, 9}, e_begin[5] = {0, 3, 5, 6, 8}, n_begin[5] = {0, 5, 7, 8, 10};
        uint8_t h_masked[9] = {0}, e_masked[8] = {0}, n_masked[10] = {0}, train[4] = {1, 0, 1, 1};
        float h[9] = {1.0f, 2.0f, 3.0f, 4.0f, 0, 0, 0, 1.0f}, e[8] = {0.5f, 0.25f, 1.0f, 0, 0, 0, 0, 2.0f},
              n[10] = {9.0f, 9.0f, 1.0f, 2.0f, -1.0f, 0, 0, 0, 0, 3.0f};
        uint32_t counts[4];
        struct fr_next_step call = {.states_steps = {h_begin, h_masked, 0, 4},
                                    .positive_steps = {e_begin, e_masked, 0, 4},
                                    .negative_steps = {n_begin, n_masked, 0, 4},
                                    .width = 1,
                                    .trained = train,
                                    .scale = 2.0f,
                                    .states = {h, 1},
                                    .positives = {e, 1},
                                    .negatives = {n, 1},
                                    .counts = counts};
        /* no gradient is wanted: the call only counts */
        assert_true(list.ops[b]->next_step(&call) == 0.0);
        assert_memory_equal(counts, ((uint32_t[]){3, 0, 0, 1}), sizeof(counts));
        float gradient[9] = {0};
        call.states_gradient = (struct fr_view){gradient, 1};
        double want = log1p(exp(-0.5)) + log1p(exp(1.0)) + log1p(exp(-0.5)) + log1p(exp(4.0)) + log1p(exp(-3.0)) +
                      log1p(exp(-3.0));
        want = want / 3.0 + log1p(exp(-2.0)) + log1p(exp(3.0));
        assert_true(fabs(list.ops[b]->next_step(&call) - want) < 1e-5);
        /* of the first step of entry 0, once */
        double slope = -0.5 / (1.0 + exp(0.5)) + 1.0 / (1.0 + exp(-1.0));
        assert_true(fabs((double)gradient[0] - 2.0 / 3.0 * slope) < 1e-6);
        slope = -2.0 / (1.0 + exp(2.0)) + 3.0 / (1.0 + exp(-3.0));
        assert_true(fabs((double)gradient[7] - 2.0 * slope) < 1e-6);
        uint8_t *const masks[] = {&h_masked[0], &e_masked[1], &n_masked[4]};
        for (uint32_t m = 0; m < 3; m++) {
            *masks[m] = 1;
            list.ops[b]->next_step(&call);
            assert_int_equal(counts[0], 2 - m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooling_of_every_kind_agrees_with_the_reference_and_with_differences),
        cmocka_unit_test(masked_steps_add_nothing_but_count_and_the_last_step_is_the_newest_row),
        cmocka_unit_test(attention_layers_agree_with_the_reference_and_with_differences),
        cmocka_unit_test(attention_layers_with_relu_pass_gradients_where_they_are_positive),
        cmocka_unit_test(attention_layers_follow_their_equation),
        cmocka_unit_test(softmax_over_steps_agrees_with_the_reference_and_with_differences),
        cmocka_unit_test(softmax_gives_masked_steps_nothing_and_survives_large_scores),
        cmocka_unit_test(attention_pools_agree_with_the_reference_and_with_differences),
        cmocka_unit_test(dots_with_steps_agree_with_the_reference_and_with_differences),
        cmocka_unit_test(mse_of_pairs_agrees_with_the_reference_and_with_differences),
        cmocka_unit_test(next_step_agrees_with_the_reference_and_with_differences),
        cmocka_unit_test(next_step_is_a_mean_over_an_entrys_unmasked_steps_that_are_there_in_all_three),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
