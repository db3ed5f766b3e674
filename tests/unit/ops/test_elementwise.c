/* Elementwise and reducing operations of every backend against the reference, with guards around
 * all memory. */
#include "backends.h"

#include "base/math.h"

static const uint32_t sizes[][2] = {{1, 1}, {3, 5}, {7, 16}, {128, 33}, {20, 200}};

/* Runs `body` on two copies of the same guarded inputs and compares `out` afterwards. */
struct case_memory {
    struct fr_view in[3], out;
    float *vector; /* [n] */
};

static struct case_memory make_case(uint32_t m, uint32_t n)
{
    struct case_memory c;
    for (size_t i = 0; i < 3; i++)
        c.in[i] = random_view(m, n, n + i, 10 + i);
    c.out = random_view(m, n, n + 4, 20);
    c.vector = guarded(n);
    fill(c.vector, n, 30);
    return c;
}

static void release_case(struct case_memory *c, uint32_t m, uint32_t n)
{
    for (size_t i = 0; i < 3; i++)
        release_guarded(c->in[i].values, m * c->in[i].ld);
    assert_row_ends_untouched(c->out, m, n);
    release_guarded(c->out.values, m * c->out.ld);
    release_guarded(c->vector, n);
}

typedef void case_body(const struct fr_ops *ops, uint32_t m, uint32_t n, struct case_memory *c);

static void for_all(case_body *body, double bound)
{
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        for (size_t s = 0; s < FR_ARRAY_LEN(sizes); s++) {
            uint32_t m = sizes[s][0], n = sizes[s][1];
            struct case_memory got = make_case(m, n), again = make_case(m, n), want = make_case(m, n);
            body(list.ops[b], m, n, &got);
            body(list.ops[b], m, n, &again);
            body(fr_reference_ops(), m, n, &want);
            struct fr_view vector_got = {got.vector, n}, vector_want = {want.vector, n};
            if (bound == 0.0) {
                assert_same_bits(got.out, want.out, m, n, list.ops[b]->name);
            } else {
                assert_nmse(got.out, want.out, m, n, bound, list.ops[b]->name);
                assert_nmse(vector_got, vector_want, 1, n, bound, list.ops[b]->name);
            }
            assert_same_bits(got.out, again.out, m, n, "second run");
            release_case(&got, m, n);
            release_case(&again, m, n);
            release_case(&want, m, n);
        }
    }
}

static void run_copy(const struct fr_ops *ops, uint32_t m, uint32_t n, struct case_memory *c)
{
    ops->copy(m, n, c->in[1], c->out);
}

static void run_add(const struct fr_ops *ops, uint32_t m, uint32_t n, struct case_memory *c)
{
    ops->add(m, n, c->in[2], c->out);
}

static void run_bias(const struct fr_ops *ops, uint32_t m, uint32_t n, struct case_memory *c)
{
    ops->bias_activate(m, n, c->out, c->vector, false);
}

static void run_bias_relu(const struct fr_ops *ops, uint32_t m, uint32_t n, struct case_memory *c)
{
    ops->bias_activate(m, n, c->out, c->vector, true);
}

static void run_relu_backward(const struct fr_ops *ops, uint32_t m, uint32_t n, struct case_memory *c)
{
    ops->relu_backward(m, n, c->in[1], c->out);
}

static void run_bias_gradient(const struct fr_ops *ops, uint32_t m, uint32_t n, struct case_memory *c)
{
    ops->bias_gradient(m, n, c->in[1], c->vector);
}

static void run_bi_interaction(const struct fr_ops *ops, uint32_t m, uint32_t n, struct case_memory *c)
{
    ops->bi_interaction(m, n, 3, c->in, c->out);
}

static void run_bi_backward(const struct fr_ops *ops, uint32_t m, uint32_t n, struct case_memory *c)
{
    struct fr_view gradients[3] = {c->out, {NULL, 0}, c->out}; /* one skipped, one given twice */
    ops->bi_interaction_backward(m, n, 3, c->in, c->in[2], gradients);
}

FR_CASE(copy_and_relu_backward_are_exact)
{
    for_all(run_copy, 0.0);
    for_all(run_relu_backward, 0.0);
}

FR_CASE(sums_and_activations_agree_with_the_reference)
{
    for_all(run_add, 1e-12);
    for_all(run_bias, 1e-12);
    for_all(run_bias_relu, 1e-12);
    for_all(run_bias_gradient, 1e-10);
}

FR_CASE(bi_interaction_and_its_gradient_agree_with_the_reference)
{
    for_all(run_bi_interaction, 1e-10);
    for_all(run_bi_backward, 1e-10);
}

FR_CASE(relu_lets_nan_through)
{
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        float y[3] = {NAN, -1.0f, 2.0f}, bias[3] = {0};
        list.ops[b]->bias_activate(1, 3, (struct fr_view){y, 3}, bias, true);
        assert_true(isnan(y[0]) && y[1] == 0.0f && y[2] == 2.0f);
    }
}

FR_CASE(max_bits_finds_the_largest_and_every_value_that_is_not_finite)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        struct fr_view x = random_view(9, 37, 40, 5);
        x.values[4 * 40 + 20] = -7.5f;
        assert_int_equal(list.ops[b]->max_bits(9, 37, x), fr_f32_bits(7.5f));
        x.values[8 * 40 + 36] = -INFINITY;
        assert_int_equal(list.ops[b]->max_bits(9, 37, x), 0x7f800000u);
        x.values[0] = NAN;
        assert_true(list.ops[b]->max_bits(9, 37, x) > 0x7f800000u);
        release_guarded(x.values, 9 * 40);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_and_relu_backward_are_exact),
        cmocka_unit_test(sums_and_activations_agree_with_the_reference),
        cmocka_unit_test(bi_interaction_and_its_gradient_agree_with_the_reference),
        cmocka_unit_test(relu_lets_nan_through),
        cmocka_unit_test(max_bits_finds_the_largest_and_every_value_that_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
