/* Activations, normalisation, dropout and dense transforms of every backend: see scene.h. */
#include "scene.h"

/* ---- activations ---- */

static const enum fr_activation activations[] = {FR_ACTIVATIONS(FR_KIND_MEMBER)};
static enum fr_activation kind; /* of the activation under test */

static void lay_out_activate(struct scene *s)
{
    add_in(s, ROWS_VECTOR, s->width);
    add_in(s, ROWS_PARAMETER, s->width); /* alpha */
    add_out(s, ROWS_VECTOR, s->width);
}

static const float means[64] = {0.1f, -0.3f, 0.7f}, variances[64] = {0.5f, 1.5f, 0.25f, 2.0f};

static struct fr_activate activate_call(struct scene *s, uint32_t first, uint32_t n)
{
    return (struct fr_activate){.kind = kind,
                                .m = n,
                                .n = s->width,
                                .alpha = s->in[1].values,
                                .mean = means,
                                .variance = variances,
                                .x = from_row(s->in[0], first),
                                .y = from_row(s->out[0], first),
                                .gradient = from_row(s->out_gradient, first),
                                .x_gradient = from_row(s->in_gradient[0], first),
                                .alpha_gradient = s->in_gradient[1].values};
}

static void activate(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_activate call = activate_call(s, first, n);
    ops->activate(&call);
}

static void activate_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_activate call = activate_call(s, 0, s->m);
    ops->activate_backward(&call);
}

static const struct operation activate_operation = {.name = "activate",
                                                    .bound = 1e-10,
                                                    .lay_out = lay_out_activate,
                                                    .forward = activate,
                                                    .backward = activate_backward};

FR_CASE(every_activation_agrees_with_the_reference_and_its_gradient_with_differences)
{
    for (size_t k = 0; k < FR_ARRAY_LEN(activations); k++) {
        kind = activations[k];
        check_operation(&activate_operation);
    }
}

FR_CASE(activations_have_the_values_of_their_formulas)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    static const struct {
        enum fr_activation kind;
        double below, above; /* at -1.5 and 2; alpha 0.3, mean 0.1, variance 0.5 */
    } known[] = {
        {FR_ACT_RELU, 0.0, 2.0},
        {FR_ACT_LEAKY_RELU, -0.015, 2.0},
        {FR_ACT_SIGMOID, 0.18242552380635635, 0.8807970779778823},
        {FR_ACT_TANH, -0.9051482536448664, 0.9640275800758169},
        /* PyTorch, approximate='tanh' */
        {FR_ACT_GELU, -0.10042842301976707, 1.954597694087775},
        {FR_ACT_PRELU, -0.45, 2.0},
        {FR_ACT_DICE, -0.5489688468904746, 1.9107577219173786},
    };
    for (size_t b = 0; b < list.n; b++) {
        for (size_t k = 0; k < FR_ARRAY_LEN(known); k++) {
            float x[2] = {-1.5f, 2.0f}, y[2], alpha[2] = {0.3f, 0.3f}, mean[2] = {0.1f, 0.1f}, var[2] = {0.5f, 0.5f};
            list.ops[b]->activate(&(struct fr_activate){.kind = known[k].kind,
                                                        .m = 1,
                                                        .n = 2,
                                                        .alpha = alpha,
                                                        .mean = mean,
                                                        .variance = var,
                                                        .x = {x, 2},
                                                        .y = {y, 2}});
            assert_true(fabs((double)y[0] - known[k].below) < 1e-6);
            assert_true(fabs((double)y[1] - known[k].above) < 1e-6);
        }
    }
}

FR_CASE(an_activation_may_overwrite_what_it_reads)
{
    static const enum fr_activation in_place[] = {FR_ACT_RELU, FR_ACT_LEAKY_RELU, FR_ACT_SIGMOID, FR_ACT_TANH};
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        for (size_t k = 0; k < FR_ARRAY_LEN(in_place); k++) {
            kind = in_place[k];
            struct scene apart = make_scene(&activate_operation, 5, 37, false),
                         same = make_scene(&activate_operation, 5, 37, false);
            activate(list.ops[b], &apart, 0, 5);
            activate_backward(list.ops[b], &apart);
            struct fr_activate call = activate_call(&same, 0, 5);
            call.y = call.x;
            list.ops[b]->activate(&call);
            list.ops[b]->activate_backward(&call);
            assert_same_bits(same.in[0], apart.out[0], 5, 37, "in place");
            assert_same_bits(same.in_gradient[0], apart.in_gradient[0], 5, 37, "gradient in place");
            release_scene(&apart);
            release_scene(&same);
        }
    }
}

FR_CASE(activations_let_nan_through)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        for (size_t k = 0; k < FR_ARRAY_LEN(activations); k++) {
            kind = activations[k];
            struct scene s = make_scene(&activate_operation, 1, 17, false);
            s.in[0].values[3] = s.in[0].values[16] = NAN;
            activate(list.ops[b], &s, 0, 1);
            for (uint32_t j = 0; j < 17; j++)
                assert_true(isnan(s.out[0].values[j]) == (j == 3 || j == 16));
            release_scene(&s);
        }
    }
}

/* ---- layer norm ---- */

static void lay_out_norm(struct scene *s)
{
    add_in(s, ROWS_VECTOR, s->width);
    add_in(s, ROWS_PARAMETER, s->width);
    add_in(s, ROWS_PARAMETER, s->width);
    add_out(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_VECTOR, 2);
}

static struct fr_layer_norm norm_call(struct scene *s, uint32_t first, uint32_t n)
{
    return (struct fr_layer_norm){.m = n,
                                  .n = s->width,
                                  .epsilon = s->width == 1 ? 0.5f : 1e-2f,
                                  .scale = s->in[1].values,
                                  .bias = s->in[2].values,
                                  .x = from_row(s->in[0], first),
                                  .y = from_row(s->out[0], first),
                                  .moments = from_row(s->out[1], first),
                                  .gradient = from_row(s->out_gradient, first),
                                  .x_gradient = from_row(s->in_gradient[0], first),
                                  .scale_gradient = s->in_gradient[1].values,
                                  .bias_gradient = s->in_gradient[2].values};
}

static void norm(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_layer_norm call = norm_call(s, first, n);
    ops->layer_norm(&call);
}

static void norm_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_layer_norm call = norm_call(s, 0, s->m);
    ops->layer_norm_backward(&call);
}

FR_CASE(layer_norm_agrees_with_the_reference_and_with_differences)
{
    check_operation(&(struct operation){
        .name = "layer_norm", .bound = 1e-10, .lay_out = lay_out_norm, .forward = norm, .backward = norm_backward});
}

/* ---- dropout ---- */

static void lay_out_dropout(struct scene *s)
{
    add_in(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_VECTOR, s->width);
}

static struct fr_dropout dropout_call(uint32_t m, uint32_t n, uint32_t first)
{
    return (struct fr_dropout){.m = m, .n = n, .first = 1000 + first, .seed = 5, .key = 77, .rate = 0.3f};
}

static void dropout(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_dropout call = dropout_call(n, s->width, first);
    call.x = from_row(s->in[0], first);
    call.y = from_row(s->out[0], first);
    ops->dropout(&call);
}

static void dropout_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_dropout call = dropout_call(s->m, s->width, 0);
    call.x = s->out_gradient;
    call.y = s->in_gradient[0];
    call.accumulate = true;
    if (call.y.values)
        ops->dropout(&call);
}

FR_CASE(dropout_has_the_same_bits_in_every_backend_and_chunk_and_goes_back_through_its_mask)
{
    check_operation(&(struct operation){
        .name = "dropout", .bound = 0.0, .lay_out = lay_out_dropout, .forward = dropout, .backward = dropout_backward});
}

/* Share of elements kept of [400, 250], and of those kept in both this and the mask of (seed, key)
 * 5, 77. */
static double kept_share(uint64_t seed, uint64_t key, float rate, double *both)
{
    enum { M = 400, N = 250 };
    float *x = positive_alloc(M * N, sizeof(float)), *y = positive_alloc(M * N, sizeof(float)),
          *other = positive_alloc(M * N, sizeof(float));
    for (size_t i = 0; i < M * N; i++)
        x[i] = 1.0f;
    struct fr_dropout call = {.m = M, .n = N, .seed = seed, .key = key, .rate = rate, .x = {x, N}, .y = {y, N}};
    fr_ops_cpu()->dropout(&call);
    call.seed = 5;
    call.key = 77;
    call.y.values = other;
    fr_ops_cpu()->dropout(&call);
    size_t kept = 0, kept_both = 0;
    for (size_t i = 0; i < M * N; i++) {
        assert_true(y[i] == 0.0f || y[i] == 1.0f / (1.0f - rate));
        kept += y[i] != 0.0f;
        kept_both += y[i] != 0.0f && other[i] != 0.0f;
    }
    free(x);
    free(y);
    free(other);
    *both = (double)kept_both / (double)(M * N);
    return (double)kept / (double)(M * N);
}

FR_CASE(dropout_keeps_its_share_and_masks_of_other_keys_and_seeds_are_independent)
{
    double both;
    /* 10^5 draws: standard deviation of a share is at most 0.0016. */
    static const float rates[] = {0.1f, 0.5f, 0.9f};
    for (size_t k = 0; k < FR_ARRAY_LEN(rates); k++) {
        double keep = 1.0 - (double)rates[k];
        for (uint64_t other = 0; other < 4; other++) {
            double share = kept_share(other < 2 ? 5 : 6, other % 2 ? 77 : 78, rates[k], &both);
            assert_true(fabs(share - keep) < 0.008);
            double want = other == 1 ? keep : keep * keep;
            assert_true(fabs(both - want) < 0.008);
        }
    }
    assert_true(kept_share(5, 78, 0.0f, &both) == 1.0);
}

/* ---- dense transforms ---- */

static const float boundaries[] = {-0.5f, 0.0f, 0.0f, 0.25f, 0.75f};

static void lay_out_bucketize(struct scene *s)
{
    add_in(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_VECTOR, s->width * 6);
}

static void bucketize(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    ops->bucketize(&(struct fr_bucketize){.m = n,
                                          .dim = s->width,
                                          .n_boundaries = 5,
                                          .boundaries = boundaries,
                                          .missing = 0.3f,
                                          .x = from_row(s->in[0], first),
                                          .y = from_row(s->out[0], first)});
}

FR_CASE(bucketize_agrees_with_the_reference)
{
    check_operation(
        &(struct operation){.name = "bucketize", .bound = 0.0, .lay_out = lay_out_bucketize, .forward = bucketize});
}

FR_CASE(a_number_on_a_boundary_is_in_the_bucket_above)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        float x[6] = {-0.51f, -0.5f, 0.0f, 0.3f, 100.0f, NAN}, y[36];
        static const uint32_t bucket[6] = {0, 1, 3, 4, 5, 0};
        list.ops[b]->bucketize(&(struct fr_bucketize){
            .m = 1, .dim = 6, .n_boundaries = 5, .boundaries = boundaries, .missing = NAN, .x = {x, 6}, .y = {y, 36}});
        for (uint32_t k = 0; k < 36; k++)
            assert_true(y[k] == (k % 6 == bucket[k / 6] ? 1.0f : 0.0f));
    }
}

static float standardized; /* number of samples that the statistics have counted */

static void lay_out_standardize(struct scene *s)
{
    add_in(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_VECTOR, s->width);
}

static void standardize(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    ops->standardize(&(struct fr_standardize){.m = n,
                                              .n = s->width,
                                              .mean = means,
                                              .variance = variances,
                                              .count = &standardized,
                                              .epsilon = 1e-6f,
                                              .limit = 2.0f,
                                              .count_min = 50.0f,
                                              .missing = 0.25f,
                                              .x = from_row(s->in[0], first),
                                              .y = from_row(s->out[0], first)});
}

FR_CASE(standardize_agrees_with_the_reference)
{
    for (standardized = 49.0f; standardized < 52.0f; standardized += 1.0f)
        check_operation(&(struct operation){
            .name = "standardize", .bound = 1e-10, .lay_out = lay_out_standardize, .forward = standardize});
}

FR_CASE(standardize_gives_zero_before_its_count_and_for_missing_and_is_cut)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        float x[4] = {2e4f, NAN, 1e15f, -1e15f}, y[4] = {7, 7, 7, 7};
        const float mean[4] = {1.9e4f, 1, 1, 1}, variance[4] = {1e6f, 1, 1, 1};
        float count = 99.0f;
        struct fr_standardize call = {.m = 1, .n = 4, .mean = mean, .variance = variance, .count = &count};
        call.limit = 10.0f;
        call.count_min = 100.0f;
        call.missing = NAN;
        call.x = (struct fr_view){x, 4};
        call.y = (struct fr_view){y, 4};
        list.ops[b]->standardize(&call);
        for (size_t j = 0; j < 4; j++)
            assert_true(y[j] == 0.0f);
        count = 100.0f;
        list.ops[b]->standardize(&call);
        assert_true(y[0] == 1.0f && y[1] == 0.0f && y[2] == 10.0f && y[3] == -10.0f);
        call.missing = 3.0f; /* a default counts as the value given */
        list.ops[b]->standardize(&call);
        assert_true(y[1] == 2.0f);
    }
}

FR_CASE(missing_numbers_are_filled_and_marked)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        float x[6] = {1, 2, 3, NAN, NAN, NAN}, y[8], want[8] = {1, 2, 3, 0, 5, 6, 5, 1};
        struct fr_view in = {x, 3}, out = {y, 4}, last = {y + 3, 4};
        list.ops[b]->fill_missing(&(struct fr_fill_missing){.m = 2, .n = 3, .missing = {5, 6}, .x = in, .y = out});
        list.ops[b]->mark_missing(&(struct fr_mark_missing){.m = 2, .x = in, .y = last});
        assert_memory_equal(y, want, sizeof(y));
    }
}

FR_CASE(moments_add_the_rows_in_use_in_order)
{
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        for (uint32_t all = 0; all < 2; all++) {
            struct fr_view x = random_view(50, 19, 21, 4);
            uint8_t use[50];
            double got[2][19], want[2][19];
            for (uint32_t i = 0; i < 50; i++)
                use[i] = i % 3 != 1;
            for (uint32_t j = 0; j < 19; j++) {
                got[0][j] = got[1][j] = want[0][j] = want[1][j] = 10.0 + (double)j;
                for (uint32_t i = 0; i < 50; i++) {
                    double v = (double)x.values[i * x.ld + j];
                    want[0][j] += all || use[i] ? v : 0.0;
                    want[1][j] += all || use[i] ? v * v : 0.0;
                }
            }
            list.ops[b]->moments(&(struct fr_moments){
                .m = 50, .n = 19, .x = x, .use = all ? NULL : use, .sum = got[0], .square = got[1]});
            assert_memory_equal(got, want, sizeof(got));
            release_guarded(x.values, 50 * 21);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_activation_agrees_with_the_reference_and_its_gradient_with_differences),
        cmocka_unit_test(activations_have_the_values_of_their_formulas),
        cmocka_unit_test(an_activation_may_overwrite_what_it_reads),
        cmocka_unit_test(activations_let_nan_through),
        cmocka_unit_test(layer_norm_agrees_with_the_reference_and_with_differences),
        cmocka_unit_test(dropout_has_the_same_bits_in_every_backend_and_chunk_and_goes_back_through_its_mask),
        cmocka_unit_test(dropout_keeps_its_share_and_masks_of_other_keys_and_seeds_are_independent),
        cmocka_unit_test(bucketize_agrees_with_the_reference),
        cmocka_unit_test(a_number_on_a_boundary_is_in_the_bucket_above),
        cmocka_unit_test(standardize_agrees_with_the_reference),
        cmocka_unit_test(standardize_gives_zero_before_its_count_and_for_missing_and_is_cut),
        cmocka_unit_test(missing_numbers_are_filled_and_marked),
        cmocka_unit_test(moments_add_the_rows_in_use_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
