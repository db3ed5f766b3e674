/* Moving rows, products of vectors, cross, mixture and sums over columns of every backend: see
 * scene.h. */
#include "scene.h"

/* ---- moving rows ---- */

/* A row of an entry goes to each step of sequence 0: a group's row to its samples. */
static void lay_out_expand(struct scene *s)
{
    add_in(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_STEPS, s->width);
}

static void expand(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    const uint32_t *begin = s->sequence[0].begin;
    uint32_t *source = positive_alloc(begin[s->m], sizeof(uint32_t));
    for (uint32_t e = 0; e < s->m; e++)
        for (uint32_t p = begin[e]; p < begin[e + 1]; p++)
            source[p] = e;
    ops->expand(&(struct fr_expand){.source = source,
                                    .begin = begin[first],
                                    .end = begin[first + n],
                                    .width = s->width,
                                    .in = s->in[0],
                                    .out = s->out[0]});
    free(source);
}

static void collapse(const struct fr_ops *ops, struct scene *s)
{
    if (s->in_gradient[0].values)
        ops->collapse(&(struct fr_collapse){.group_begin = s->sequence[0].begin,
                                            .begin = 0,
                                            .end = s->m,
                                            .width = s->width,
                                            .in = s->out_gradient,
                                            .out = s->in_gradient[0]});
}

FR_CASE(expand_copies_rows_and_collapse_is_its_gradient)
{
    check_operation(&(struct operation){.name = "expand",
                                        .bound = 1e-12,
                                        .copies = true,
                                        .lay_out = lay_out_expand,
                                        .forward = expand,
                                        .backward = collapse});
}

/* The steps of sequence 1 go to each sample of sequence 0. */
static void lay_out_expand_steps(struct scene *s)
{
    add_in(s, ROWS_STEPS_1, s->width);
    add_out(s, ROWS_EXPANDED, s->width);
}

static void expand_steps(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    const uint32_t *samples = s->sequence[0].begin, *steps = s->sequence[1].begin;
    uint32_t total = s->expanded_begin[samples[s->m]];
    uint32_t *source = positive_alloc(total, sizeof(uint32_t)), at = 0;
    for (uint32_t e = 0; e < s->m; e++)
        for (uint32_t p = samples[e]; p < samples[e + 1]; p++)
            for (uint32_t t = steps[e]; t < steps[e + 1]; t++)
                source[at++] = t;
    ops->expand(&(struct fr_expand){.source = source,
                                    .begin = s->expanded_begin[samples[first]],
                                    .end = s->expanded_begin[samples[first + n]],
                                    .width = s->width,
                                    .in = s->in[0],
                                    .out = s->out[0]});
    free(source);
}

static void collapse_steps(const struct fr_ops *ops, struct scene *s)
{
    if (s->in_gradient[0].values)
        ops->collapse_steps(&(struct fr_collapse_steps){.group_begin = s->sequence[0].begin,
                                                        .steps_begin = s->sequence[1].begin,
                                                        .expanded_begin = s->expanded_begin,
                                                        .begin = 0,
                                                        .end = s->m,
                                                        .width = s->width,
                                                        .in = s->out_gradient,
                                                        .out = s->in_gradient[0]});
}

FR_CASE(collapse_steps_is_the_gradient_of_expanded_sequences)
{
    check_operation(&(struct operation){.name = "collapse_steps",
                                        .bound = 1e-12,
                                        .copies = true,
                                        .lay_out = lay_out_expand_steps,
                                        .forward = expand_steps,
                                        .backward = collapse_steps});
}

static void lay_out_align(struct scene *s)
{
    add_in(s, ROWS_STEPS_1, s->width);
    add_out(s, ROWS_STEPS, s->width);
}

static struct fr_align align_call(struct scene *s, uint32_t first, uint32_t n)
{
    return (struct fr_align){.to_begin = s->sequence[0].begin,
                             .from_begin = s->sequence[1].begin,
                             .entry_begin = first,
                             .entry_end = first + n,
                             .width = s->width,
                             .to = s->out[0],
                             .from = s->in[0]};
}

static void align(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_align call = align_call(s, first, n);
    ops->align(&call);
}

static void align_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_align call = align_call(s, 0, s->m);
    call.to = s->out_gradient;
    call.from = s->in_gradient[0];
    if (call.from.values)
        ops->align_backward(&call);
}

FR_CASE(align_joins_newest_to_newest_and_goes_back)
{
    check_operation(&(struct operation){.name = "align",
                                        .bound = 1e-12,
                                        .copies = true,
                                        .lay_out = lay_out_align,
                                        .forward = align,
                                        .backward = align_backward});
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        uint32_t to_begin[3] = {0, 3, 4}, from_begin[3] = {0, 2, 5};
        float from[5] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f}, to[4];
        list.ops[b]->align(&(struct fr_align){.to_begin = to_begin,
                                              .from_begin = from_begin,
                                              .entry_end = 2,
                                              .width = 1,
                                              .to = {to, 1},
                                              .from = {from, 1}});
        assert_true(to[0] == 0.0f && to[1] == 1.0f && to[2] == 2.0f && to[3] == 5.0f);
    }
}

/* The result for a step is the row of its key times its weight; key 3 has no row. */
FR_CASE(gather_steps_masks_what_has_no_row)
{
    enum { IDS = 9, ROW = 20 };
    static const uint32_t unique_of[IDS] = {4, 0, 3, 1, 1, 3, 2, 0, 4};
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        struct fr_view memory = random_view(5, ROW, ROW, 3), weights = random_view(1, IDS, IDS, 4);
        struct fr_view out = {guarded(IDS * 18), 18};
        float *rows[5];
        uint8_t masked[IDS] = {7, 7, 7, 7, 7, 7, 7, 7, 7};
        for (size_t u = 0; u < 5; u++)
            rows[u] = u == 3 ? NULL : memory.values + u * ROW;
        struct fr_gather_steps call = {.weights = weights.values,
                                       .unique_of = unique_of,
                                       .rows = rows,
                                       .value_offset = 2,
                                       .dim = 17,
                                       .begin = 1,
                                       .end = IDS,
                                       .masked = masked,
                                       .out = out};
        for (uint32_t weighted = 0; weighted < 2; weighted++) {
            call.weights = weighted ? weights.values : NULL;
            list.ops[b]->gather_steps(&call);
            for (uint32_t p = 1; p < IDS; p++) {
                assert_int_equal(masked[p], unique_of[p] == 3);
                for (uint32_t i = 0; i < 17; i++) {
                    float value = memory.values[unique_of[p] * ROW + 2 + i] * (weighted ? weights.values[p] : 1.0f);
                    assert_true(out.values[p * 18 + i] == (masked[p] ? 0.0f : value));
                }
            }
            assert_true(masked[0] == 7 && out.values[0] == GUARD_VALUE);
        }
        assert_row_ends_untouched(out, IDS, 17);
        release_guarded(out.values, IDS * 18);
        release_guarded(memory.values, 5 * ROW);
        release_guarded(weights.values, IDS);
    }
}

/* ---- over several vectors ---- */

static void lay_out_product(struct scene *s)
{
    for (uint32_t k = 0; k < s->count; k++)
        add_in(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_VECTOR, s->width);
}

static void lay_out_dots(struct scene *s)
{
    for (uint32_t k = 0; k < s->count; k++)
        add_in(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_VECTOR, s->count * (s->count - 1) / 2);
}

typedef void interaction_member(const struct fr_interaction *call);

static void interact(interaction_member *member, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_view in[VIEWS_MAX];
    for (uint32_t k = 0; k < s->count; k++)
        in[k] = from_row(s->in[k], first);
    member(&(struct fr_interaction){
        .m = n, .n = s->width, .count = s->count, .in = in, .out = from_row(s->out[0], first)});
}

static void interact_backward(interaction_member *member, struct scene *s)
{
    member(&(struct fr_interaction){.m = s->m,
                                    .n = s->width,
                                    .count = s->count,
                                    .in = s->in,
                                    .out = s->out_gradient,
                                    .in_gradient = s->in_gradient});
}

static void product(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    interact(ops->product, s, first, n);
}

static void product_backward(const struct fr_ops *ops, struct scene *s)
{
    interact_backward(ops->product_backward, s);
}

static void dots(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    interact(ops->dot_interaction, s, first, n);
}

static void dots_backward(const struct fr_ops *ops, struct scene *s)
{
    interact_backward(ops->dot_interaction_backward, s);
}

FR_CASE(products_agree_with_the_reference_and_with_differences)
{
    for (uint32_t count = 1; count <= 4; count++)
        check_operation(&(struct operation){.name = "product",
                                            .bound = 1e-10,
                                            .lay_out = lay_out_product,
                                            .forward = product,
                                            .backward = product_backward,
                                            .count = count});
}

FR_CASE(dot_interactions_agree_with_the_reference_and_with_differences)
{
    for (uint32_t count = 2; count <= 7; count++)
        check_operation(&(struct operation){.name = "dot_interaction",
                                            .bound = 1e-10,
                                            .lay_out = lay_out_dots,
                                            .forward = dots,
                                            .backward = dots_backward,
                                            .count = count});
}

FR_CASE(pairs_come_second_index_ascending_then_the_first)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        float value[4] = {2.0f, 3.0f, 5.0f, 7.0f}, out[6];
        static const float want[6] = {6.0f, 10.0f, 15.0f, 14.0f, 21.0f, 35.0f};
        struct fr_view in[4] = {{value, 1}, {value + 1, 1}, {value + 2, 1}, {value + 3, 1}};
        list.ops[b]->dot_interaction(&(struct fr_interaction){.m = 1, .n = 1, .count = 4, .in = in, .out = {out, 6}});
        assert_memory_equal(out, want, sizeof(want));
    }
}

/* One factor is zero, so a gradient that divides by factors would fail. */
FR_CASE(the_gradient_of_a_product_survives_zeros)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        float value[3] = {2.0f, 0.0f, 5.0f}, gradient[3] = {1.0f, 1.0f, 1.0f}, g = 3.0f;
        struct fr_view in[3] = {{value, 1}, {value + 1, 1}, {value + 2, 1}};
        struct fr_view d[3] = {{gradient, 1}, {gradient + 1, 1}, {gradient + 2, 1}};
        list.ops[b]->product_backward(
            &(struct fr_interaction){.m = 1, .n = 1, .count = 3, .in = in, .out = {&g, 1}, .in_gradient = d});
        assert_true(gradient[0] == 1.0f && gradient[1] == 31.0f && gradient[2] == 1.0f);
    }
}

static void lay_out_cross(struct scene *s)
{
    for (uint32_t k = 0; k < 3; k++)
        add_in(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_VECTOR, s->width);
}

static void cross(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    ops->cross(&(struct fr_cross){.m = n,
                                  .n = s->width,
                                  .x0 = from_row(s->in[0], first),
                                  .t = from_row(s->in[1], first),
                                  .x = from_row(s->in[2], first),
                                  .out = from_row(s->out[0], first)});
}

static void cross_backward(const struct fr_ops *ops, struct scene *s)
{
    ops->cross_backward(&(struct fr_cross){.m = s->m,
                                           .n = s->width,
                                           .x0 = s->in[0],
                                           .t = s->in[1],
                                           .x = s->in[2],
                                           .out = s->out_gradient,
                                           .x0_gradient = s->in_gradient[0],
                                           .t_gradient = s->in_gradient[1],
                                           .x_gradient = s->in_gradient[2]});
}

FR_CASE(cross_agrees_with_the_reference_and_with_differences)
{
    check_operation(&(struct operation){
        .name = "cross", .bound = 1e-10, .lay_out = lay_out_cross, .forward = cross, .backward = cross_backward});
}

/* The first layer of a cross network: x is x0. */
FR_CASE(both_gradients_of_a_cross_may_be_one_view)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        float x[2] = {2.0f, 3.0f}, t[2] = {0.5f, 7.0f}, g[2] = {10.0f, 100.0f}, d[2] = {1.0f, 1.0f};
        list.ops[b]->cross_backward(&(struct fr_cross){.m = 1,
                                                       .n = 2,
                                                       .x0 = {x, 2},
                                                       .t = {t, 2},
                                                       .x = {x, 2},
                                                       .out = {g, 2},
                                                       .x0_gradient = {d, 2},
                                                       .x_gradient = {d, 2}});
        assert_true(d[0] == 16.0f && d[1] == 801.0f);
    }
}

static void lay_out_mixture(struct scene *s)
{
    add_in(s, ROWS_VECTOR, s->count);
    add_in(s, ROWS_VECTOR, s->count * s->width);
    add_out(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_VECTOR, s->count);
}

static struct fr_mixture mixture_call(struct scene *s, uint32_t first, uint32_t n)
{
    return (struct fr_mixture){.m = n,
                               .n = s->width,
                               .count = s->count,
                               .gates = from_row(s->in[0], first),
                               .experts = from_row(s->in[1], first),
                               .out = from_row(s->out[0], first),
                               .weights = from_row(s->out[1], first),
                               .gradient = from_row(s->out_gradient, first),
                               .gates_gradient = from_row(s->in_gradient[0], first),
                               .experts_gradient = from_row(s->in_gradient[1], first)};
}

static void mixture(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    struct fr_mixture call = mixture_call(s, first, n);
    ops->mixture(&call);
}

static void mixture_backward(const struct fr_ops *ops, struct scene *s)
{
    struct fr_mixture call = mixture_call(s, 0, s->m);
    ops->mixture_backward(&call);
}

FR_CASE(mixtures_agree_with_the_reference_and_with_differences)
{
    static const uint32_t counts[] = {1, 3, 8};
    for (size_t k = 0; k < FR_ARRAY_LEN(counts); k++)
        check_operation(&(struct operation){.name = "mixture",
                                            .bound = 1e-10,
                                            .lay_out = lay_out_mixture,
                                            .forward = mixture,
                                            .backward = mixture_backward,
                                            .count = counts[k]});
}

FR_CASE(large_gates_do_not_overflow)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        float gates[3] = {500.0f, 500.0f, -500.0f}, experts[3] = {1.0f, 3.0f, 1e30f}, out, weights[3];
        list.ops[b]->mixture(&(struct fr_mixture){.m = 1,
                                                  .n = 1,
                                                  .count = 3,
                                                  .gates = {gates, 3},
                                                  .experts = {experts, 3},
                                                  .out = {&out, 1},
                                                  .weights = {weights, 3}});
        assert_true(out == 2.0f && weights[0] == 0.5f && weights[2] == 0.0f);
    }
}

static void lay_out_row_sum(struct scene *s)
{
    add_in(s, ROWS_VECTOR, s->width);
    add_out(s, ROWS_VECTOR, 1);
}

static void row_sum(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n)
{
    ops->row_sum(n, s->width, from_row(s->in[0], first), from_row(s->out[0], first));
}

static void row_sum_backward(const struct fr_ops *ops, struct scene *s)
{
    if (s->in_gradient[0].values)
        ops->row_sum_backward(s->m, s->width, s->out_gradient, s->in_gradient[0]);
}

FR_CASE(row_sums_agree_with_the_reference_and_with_differences)
{
    check_operation(&(struct operation){.name = "row_sum",
                                        .bound = 1e-10,
                                        .lay_out = lay_out_row_sum,
                                        .forward = row_sum,
                                        .backward = row_sum_backward});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expand_copies_rows_and_collapse_is_its_gradient),
        cmocka_unit_test(collapse_steps_is_the_gradient_of_expanded_sequences),
        cmocka_unit_test(align_joins_newest_to_newest_and_goes_back),
        cmocka_unit_test(gather_steps_masks_what_has_no_row),
        cmocka_unit_test(products_agree_with_the_reference_and_with_differences),
        cmocka_unit_test(dot_interactions_agree_with_the_reference_and_with_differences),
        cmocka_unit_test(pairs_come_second_index_ascending_then_the_first),
        cmocka_unit_test(the_gradient_of_a_product_survives_zeros),
        cmocka_unit_test(cross_agrees_with_the_reference_and_with_differences),
        cmocka_unit_test(both_gradients_of_a_cross_may_be_one_view),
        cmocka_unit_test(mixtures_agree_with_the_reference_and_with_differences),
        cmocka_unit_test(large_gates_do_not_overflow),
        cmocka_unit_test(row_sums_agree_with_the_reference_and_with_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
