/* Losses of tasks, all of the vocabulary: every backend against the reference, the reference's
 * gradients against finite differences of its own losses, known values and extremes. */
#include "backends.h"

#include "base/math.h"
#include "vocabulary/loss.h"

enum { N = 90, FACTORS = 3, GROUPS = 7 };

static const uint32_t group_begin[GROUPS + 1] = {0, 1, 1, 12, 40, 41, 88, N};
static const float group_scale[GROUPS] = {1.0f, 1.0f, 0.5f, 0.25f, 1.0f, 0.125f, 2.0f};

/* Every loss of a task; pairs of which each has a few partners only; products. */
#define ONE_MORE(name, ...) +1
enum { LOSSES = 0 FR_TASK_LOSSES(ONE_MORE), PAIRWISE_BOUNDED = LOSSES, PRODUCT, KINDS };

static const char *name_of(int kind)
{
    return kind == PRODUCT            ? "product"
           : kind == PAIRWISE_BOUNDED ? "bounded pairwise"
                                      : fr_task_loss_text((enum fr_task_loss)kind);
}

static bool is_of_pairs(int kind)
{
    return kind == PAIRWISE_BOUNDED || (kind < LOSSES && fr_loss_terms((enum fr_task_loss)kind) == FR_TRAINS_PAIRS);
}

static bool is_none(int kind)
{
    return kind < LOSSES && fr_loss_terms((enum fr_task_loss)kind) == FR_TRAINS_NOTHING;
}

struct world {
    float *z[FACTORS], *gradient[FACTORS], *labels, *weights;
    uint8_t trained[N];
};

static bool masked(uint32_t i)
{
    return i % 7 == 0 || i % 11 == 4;
}

static void make_world(struct world *w, float spread)
{
    for (size_t k = 0; k < FACTORS; k++) {
        w->z[k] = guarded(N);
        w->gradient[k] = guarded(N);
        fill(w->z[k], N, 5 + k);
        fill(w->gradient[k], N, 15 + k); /* gradients are added to what is there */
        for (size_t i = 0; i < N; i++) {
            w->z[k][i] *= spread;
            w->gradient[k][i] *= 0.01f;
        }
    }
    w->labels = guarded(N);
    w->weights = guarded(N);
    for (uint32_t i = 0; i < N; i++) {
        w->labels[i] = i % 7 == 0 ? NAN : i % 5 == 0 ? 0.25f : (float)(i % 2);
        w->weights[i] = 0.5f + (float)(i % 3);
        w->trained[i] = i % 11 != 4;
    }
}

static void release_world(struct world *w)
{
    for (size_t k = 0; k < FACTORS; k++) {
        release_guarded(w->z[k], N);
        release_guarded(w->gradient[k], N);
    }
    release_guarded(w->labels, N);
    release_guarded(w->weights, N);
}

/* Orders the samples of group g that count by their labels; returns their number. */
static uint32_t order_group(const struct world *w, uint32_t g, uint32_t *order, uint32_t *lower)
{
    uint32_t n = 0;
    for (uint32_t i = group_begin[g]; i < group_begin[g + 1]; i++) {
        if (masked(i))
            continue;
        uint32_t at = n++;
        for (; at > 0 && w->labels[order[at - 1]] > w->labels[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (uint32_t i = 0; i < n; i++)
        lower[i] = i > 0 && w->labels[order[i]] == w->labels[order[i - 1]] ? lower[i - 1] : i;
    return n;
}

static double run_groups(const struct fr_ops *ops, struct world *w, uint32_t partners, float scale)
{
    double total = 0.0, sums[N];
    uint32_t order[N], lower[N];
    for (uint32_t g = 0; g < GROUPS; g++)
        total += ops->pairwise(&(struct fr_pair_loss){.n = order_group(w, g, order, lower),
                                                      .order = order,
                                                      .lower = lower,
                                                      .partners = partners,
                                                      .group_scale = group_scale[g],
                                                      .scale = scale,
                                                      .z = w->z[0],
                                                      .weights = w->weights,
                                                      .gradient = w->gradient[0],
                                                      .sums = sums});
    return total;
}

static double run(const struct fr_ops *ops, int kind, struct world *w, float scale)
{
    struct fr_loss loss = {.n = N,
                           .z = w->z[0],
                           .labels = w->labels,
                           .weights = w->weights,
                           .trained = w->trained,
                           .scale = scale,
                           .gradient = w->gradient[0],
                           .gamma = 2.0f,
                           .alpha = 0.25f};
    const float *z[FACTORS] = {w->z[0], w->z[1], w->z[2]};
    struct fr_product_loss product = {.n = N,
                                      .count = FACTORS,
                                      .z = z,
                                      .labels = w->labels,
                                      .weights = w->weights,
                                      .trained = w->trained,
                                      .scale = scale,
                                      .gradient = w->gradient};
    if (kind == PRODUCT)
        return ops->product_logloss(&product);
    if (kind == PAIRWISE_BOUNDED)
        return run_groups(ops, w, 3, scale);
    switch ((enum fr_task_loss)kind) {
    case FR_LOSS_LOGLOSS:
        return ops->logloss(&loss);
    case FR_LOSS_MSE:
        return ops->mse(&loss);
    case FR_LOSS_FOCAL:
        return ops->focal(&loss);
    case FR_LOSS_PAIRWISE:
        return run_groups(ops, w, N, scale);
    case FR_LOSS_NONE: /* no gradient of it is computed */
        break;
    }
    return NAN;
}

static void compare(const struct fr_ops *ops, int kind, float spread)
{
    struct world got, again, want, before;
    struct world *const all[] = {&got, &again, &want, &before};
    for (size_t i = 0; i < 4; i++)
        make_world(all[i], spread);
    double total = run(ops, kind, &got, 0.01f), repeated = run(ops, kind, &again, 0.01f);
    double expected = run(fr_reference_ops(), kind, &want, 0.01f);
    if (!(fabs(total - expected) <= 1e-6 * expected))
        fail_msg("%s, %s, z up to %g: %.9g, reference %.9g", ops->name, name_of(kind), (double)spread, total, expected);
    assert_true(total == repeated);
    for (size_t k = 0; k < FACTORS; k++) {
        struct fr_view g = {got.gradient[k], 1}, r = {again.gradient[k], 1}, e = {want.gradient[k], 1};
        assert_nmse(g, e, N, 1, 1e-10, name_of(kind));
        assert_same_bits(g, r, N, 1, name_of(kind));
        for (uint32_t i = 0; i < N; i++) {
            bool same = got.gradient[k][i] == before.gradient[k][i];
            if (masked(i) || (kind != PRODUCT && k > 0))
                assert_true(same);
            else if (spread <= 4.0f && !is_of_pairs(kind))
                assert_false(same);
        }
    }
    for (size_t i = 0; i < 4; i++)
        release_world(all[i]);
}

FR_CASE(losses_agree_with_the_reference_and_skip_masked_samples)
{
    struct backend_list list = list_backends();
    static const float spreads[] = {0.5f, 4.0f, 30.0f, 200.0f};
    for (size_t b = 0; b < list.n; b++)
        for (int kind = 0; kind < KINDS; kind++)
            for (size_t s = 0; s < FR_ARRAY_LEN(spreads) && !is_none(kind); s++)
                compare(list.ops[b], kind, spreads[s]);
}

/* d (scale * loss) / dz by central differences, in steps exact in f32. */
FR_CASE(gradients_are_the_slopes_of_the_losses)
{
    const float scale = 0.5f, h = 0x1p-8f;
    for (int kind = 0; kind < KINDS; kind++) {
        if (is_none(kind))
            continue;
        struct world w;
        make_world(&w, 3.0f);
        for (size_t k = 0; k < FACTORS; k++)
            for (size_t i = 0; i < N; i++) {
                w.gradient[k][i] = 0.0f;
                w.z[k][i] = roundf(w.z[k][i] * 256.0f) / 256.0f;
            }
        struct fr_view slopes = {guarded(FACTORS * N), N}, got = {guarded(FACTORS * N), N};
        run(fr_reference_ops(), kind, &w, scale);
        for (size_t k = 0; k < FACTORS; k++)
            memcpy(got.values + k * N, w.gradient[k], N * sizeof(float));
        for (size_t k = 0; k < FACTORS; k++)
            for (size_t i = 0; i < N; i++) {
                float at = w.z[k][i];
                w.z[k][i] = at + h;
                double above = run(fr_reference_ops(), kind, &w, 0.0f);
                w.z[k][i] = at - h;
                double below = run(fr_reference_ops(), kind, &w, 0.0f);
                w.z[k][i] = at;
                slopes.values[k * N + i] = (float)((double)scale * (above - below) / (2.0 * (double)h));
            }
        assert_nmse(got, slopes, FACTORS, N, 1e-9, name_of(kind));
        release_guarded(slopes.values, FACTORS * N);
        release_guarded(got.values, FACTORS * N);
        release_world(&w);
    }
}

/* The smallest of the losses of some outputs, all samples' labels being `label`. */
static double least_loss(int kind, float label)
{
    double least = 0.0;
    struct world w;
    make_world(&w, 1.0f);
    for (int z = -60; z <= 60; z += 4) {
        for (size_t i = 0; i < N; i++) {
            w.labels[i] = label;
            w.z[0][i] = (float)z;
        }
        least = fmin(least, run(fr_reference_ops(), kind, &w, 0.0f));
    }
    release_world(&w);
    return least;
}

/* A loss has a least value exactly for the labels that it may have: if the row says [0, 1], the
 * loss of a label of 3 falls without end. */
FR_CASE(a_loss_has_a_least_value_for_every_label_it_may_have)
{
    for (int kind = 0; kind < LOSSES; kind++) {
        if (is_none(kind) || is_of_pairs(kind))
            continue;
        bool unit = fr_loss_labels((enum fr_task_loss)kind) == FR_LABELS_UNIT;
        static const float labels[] = {0.0f, 0.5f, 1.0f, -2.0f, 3.0f};
        double least = 0.0;
        for (size_t l = 0; l < (unit ? 3 : FR_ARRAY_LEN(labels)); l++)
            least = fmin(least, least_loss(kind, labels[l]));
        if (least < 0.0)
            fail_msg("%s is %g at a label it may have", name_of(kind), least);
        if (unit && !(least_loss(kind, 3.0f) < 0.0))
            fail_msg("%s keeps labels in [0, 1] without need", name_of(kind));
    }
}

static struct fr_loss one_sample(const float *z, const float *y, float *gradient)
{
    static const float weight[2] = {1.0f, 1.0f};
    static const uint8_t trained[2] = {1, 1};
    return (struct fr_loss){.n = 1,
                            .z = z,
                            .labels = y,
                            .weights = weight,
                            .trained = trained,
                            .scale = 1.0f,
                            .gradient = gradient,
                            .gamma = 2.0f,
                            .alpha = 0.25f};
}

/* Lin et al. 2017, p = 0.9: -0.25 * 0.1^2 log 0.9 and -0.75 * 0.9^2 log 0.1. */
FR_CASE(focal_loss_has_the_papers_values)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        float z = logf(9.0f), y = 1.0f, gradient = 0.0f;
        struct fr_loss loss = one_sample(&z, &y, &gradient);
        assert_true(fabs(list.ops[b]->focal(&loss) - 0.00026340128945) < 1e-9);
        y = 0.0f;
        assert_true(fabs(list.ops[b]->focal(&loss) - 1.39882049) < 1e-6);
        loss.gamma = 0.0f, loss.alpha = 0.5f; /* half the logloss */
        double half = list.ops[b]->focal(&loss), whole = list.ops[b]->logloss(&loss);
        assert_true(fabs(half - whole / 2.0) < 1e-7);
    }
}

/* Labels 1, 1, 2: sample 4 above samples 1 and 3. */
FR_CASE(pairs_are_those_of_unequal_labels_with_both_weights)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        const float z[5] = {9, 1.0f, 9, -1.0f, 0.0f}, weights[5] = {9, 1, 9, 3, 2};
        const uint32_t order[3] = {1, 3, 4}, lower[3] = {0, 0, 2};
        float gradient[5] = {0};
        double sums[3];
        struct fr_pair_loss call = {.n = 3,
                                    .order = order,
                                    .lower = lower,
                                    .partners = 2,
                                    .group_scale = 0.5f,
                                    .scale = 4.0f,
                                    .z = z,
                                    .weights = weights,
                                    .gradient = gradient,
                                    .sums = sums};
        assert_true(fabs(list.ops[b]->pairwise(&call) - 1.31326169 - 3.0 * 0.31326169) < 1e-6);
        /* -(sigmoid(1) + 3 sigmoid(-1)) */
        assert_float_equal(gradient[4], -4.0f * 1.53788284f, 1e-5f);
        assert_float_equal(gradient[1], 4.0f * 0.73105858f, 1e-5f);
        assert_float_equal(gradient[3], 4.0f * 0.80682426f, 1e-5f);
        assert_true(gradient[0] == 0.0f && gradient[2] == 0.0f);
        call.partners = 1; /* position 2 meets position 2 % 2 = 0, for both */
        memset(gradient, 0, sizeof(gradient));
        assert_true(fabs(list.ops[b]->pairwise(&call) - 2.0 * 1.31326169) < 1e-6);
        assert_float_equal(gradient[1], 8.0f * 0.73105858f, 1e-5f);
        assert_float_equal(gradient[4], -gradient[1], 1e-6f);
        assert_true(gradient[3] == 0.0f);
    }
}

/* Neighbours that can have the same partners meet each of these partners about equally often. */
FR_CASE(partners_differ_and_are_met_alike)
{
    static const uint32_t lowers[] = {1, 2, 7, 100, 2048, 4095}, counts[] = {1, 2, 5, 16, 32, 1000};
    for (size_t l = 0; l < FR_ARRAY_LEN(lowers); l++) {
        for (size_t c = 0; c < FR_ARRAY_LEN(counts) && counts[c] <= lowers[l]; c++) {
            uint32_t lower = lowers[l], count = counts[c], *met = calloc(lower, sizeof(*met));
            for (uint32_t i = lower; i < 2 * lower; i++) {
                uint8_t *now = calloc(lower, 1);
                for (uint32_t turn = 0; turn < count; turn++) {
                    uint32_t at = fr_pair_partner(lower, count, i, turn);
                    assert_true(at < lower && !now[at]);
                    now[at] = 1;
                    met[at]++;
                }
                free(now);
            }
            for (uint32_t at = 0; at < lower; at++)
                assert_int_equal(met[at], count);
            free(met);
        }
    }
}

/* ---- products ---- */

FR_CASE(a_product_of_one_is_the_logloss)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        for (int i = -300; i <= 300; i++) {
            float z = (float)i / 3.0f, y = i % 2 ? 1.0f : 0.25f, gradient = 0.0f, product_gradient = 0.0f, logit;
            struct fr_loss loss = one_sample(&z, &y, &gradient);
            const float *zs[1] = {&z};
            float *gradients[1] = {&product_gradient};
            double want = list.ops[b]->logloss(&loss);
            double got = list.ops[b]->product_logloss(&(struct fr_product_loss){.n = 1,
                                                                                .count = 1,
                                                                                .z = zs,
                                                                                .labels = &y,
                                                                                .weights = loss.weights,
                                                                                .trained = loss.trained,
                                                                                .scale = 1.0f,
                                                                                .gradient = gradients});
            list.ops[b]->product_logit(1, 1, zs, &logit);
            assert_true(fabs(got - want) <= 2e-6 * (want + 1e-30));
            assert_true(fabsf(logit - z) <= 2e-6f * (1.0f + fabsf(z)));
            assert_true(fabsf(product_gradient - gradient) <= 1e-6f);
        }
    }
}

FR_CASE(the_logit_of_a_product_is_finite_and_rises_with_each_factor)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        for (int other = -200; other <= 200; other += 8) {
            float before = -INFINITY;
            for (int i = -4000; i <= 4000; i++) {
                float z[2] = {(float)i / 16.0f, (float)other}, logit;
                const float *zs[2] = {&z[0], &z[1]};
                list.ops[b]->product_logit(1, 2, zs, &logit);
                float least = z[0] < z[1] ? z[0] : z[1];
                assert_true(isfinite(logit) && logit <= least + 1e-6f * (1.0f + fabsf(least)));
                assert_true(logit >= before - 2e-6f * (1.0f + fabsf(before)) || i == -4000);
                before = logit;
            }
        }
    }
}

FR_CASE(a_logit_that_is_not_a_number_stays_none)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        for (size_t k = 0; k < 2; k++) {
            float z[2] = {30.0f, 30.0f}, logit = 0.0f;
            z[k] = NAN;
            const float *zs[2] = {&z[0], &z[1]};
            list.ops[b]->product_logit(1, 2, zs, &logit);
            assert_true(isnan(logit));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_agree_with_the_reference_and_skip_masked_samples),
        cmocka_unit_test(gradients_are_the_slopes_of_the_losses),
        cmocka_unit_test(a_loss_has_a_least_value_for_every_label_it_may_have),
        cmocka_unit_test(focal_loss_has_the_papers_values),
        cmocka_unit_test(pairs_are_those_of_unequal_labels_with_both_weights),
        cmocka_unit_test(partners_differ_and_are_met_alike),
        cmocka_unit_test(a_product_of_one_is_the_logloss),
        cmocka_unit_test(the_logit_of_a_product_is_finite_and_rises_with_each_factor),
        cmocka_unit_test(a_logit_that_is_not_a_number_stays_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
