/* The rules of the optimizers: golden steps for rows and dense parameters, shaping of gradients,
 * bounds, lanes. */
#include "backends.h"

#include "base/math.h"
#include "golden_optimizers.h"

struct golden {
    const char *name;
    enum fr_optimizer_kind kind;
    float lr, l1, l2, l21;
    float rho, initial;
    const float (*expected)[GOLDEN_DIM];
};

static const struct golden goldens[] = {
    {"sgd", FR_OPT_SGD, 0.1f, 0, 0, 0, 0, 0, golden_sgd},
    {"sgd, l2", FR_OPT_SGD, 0.1f, 0, 0.25f, 0, 0, 0, golden_sgd_l2},
    {"momentum", FR_OPT_MOMENTUM, 0.1f, 0, 0, 0, 0, 0, golden_momentum},
    {"adagrad", FR_OPT_ADAGRAD, 0.1f, 0, 0, 0, 0, 0, golden_adagrad},
    {"adagrad, l2", FR_OPT_ADAGRAD, 0.1f, 0, 0.25f, 0, 0, 0.5f, golden_adagrad_l2_initial},
    {"rmsprop", FR_OPT_RMSPROP, 0.1f, 0, 0, 0, 0.9f, 0, golden_rmsprop},
    {"adam", FR_OPT_ADAM, 0.1f, 0, 0, 0, 0, 0, golden_adam},
    {"adam, l2", FR_OPT_ADAM, 0.1f, 0, 0.25f, 0, 0, 0, golden_adam_l2},
    {"adamw", FR_OPT_ADAMW, 0.1f, 0, 0, 0, 0, 0, golden_adamw},
    {"adagrad_rowwise", FR_OPT_ADAGRAD_ROWWISE, 0.1f, 0, 0, 0, 0, 0, golden_adagrad_rowwise},
    {"adam_rowwise", FR_OPT_ADAM_ROWWISE, 0.1f, 0, 0, 0, 0, 0, golden_adam_rowwise},
    {"ftrl", FR_OPT_FTRL, 0.1f, 0, 0, 0, 0, 0, golden_ftrl},
    {"ftrl, l1, l2", FR_OPT_FTRL, 0.1f, 0.5f, 0.25f, 0, 0, 0, golden_ftrl_l1_l2},
    {"group_ftrl", FR_OPT_GROUP_FTRL, 0.1f, 0.5f, 0.25f, 1.5f, 0, 0, golden_group_ftrl},
};

static struct fr_optimizer optimizer_of(const struct golden *golden)
{
    return (struct fr_optimizer){.kind = golden->kind,
                                 .lr = golden->lr,
                                 .eps = 1e-8f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.99f,
                                 .momentum = 0.9f,
                                 .rho = golden->rho,
                                 .beta = 1.0f,
                                 .l1 = golden->l1,
                                 .l2 = golden->l2,
                                 .l21 = golden->l21,
                                 .weight_decay = 0.25f};
}

static void expect_close(const char *name, int step, const float *got, const float *want)
{
    for (size_t i = 0; i < GOLDEN_DIM; i++)
        if (!(fabsf(got[i] - want[i]) <= 2e-6f))
            fail_msg("%s, step %d, value %zu: %.9g, expected %.9g", name, step + 1, i, (double)got[i], (double)want[i]);
}

FR_CASE(rows_follow_the_golden_steps)
{
    for (size_t k = 0; k < FR_ARRAY_LEN(goldens); k++) {
        if (goldens[k].kind == FR_OPT_ADAMW)
            continue;
        struct fr_optimizer o = optimizer_of(&goldens[k]);
        float w[GOLDEN_DIM], g[GOLDEN_DIM], states[2 * GOLDEN_DIM + 2] = {0};
        memcpy(w, golden_start, sizeof(w));
        for (size_t i = 0; i < GOLDEN_DIM; i++)
            states[i] = goldens[k].initial;
        for (int step = 0; step < GOLDEN_STEPS; step++) {
            memcpy(g, golden_gradients[step], sizeof(g));
            fr_row_step(w, states, g, GOLDEN_DIM, 1, &o);
            expect_close(goldens[k].name, step, w, goldens[k].expected[step]);
        }
    }
}

/* The pace of step number `age` of one unit. */
static struct fr_pace pace_of_one(const struct fr_optimizer *o, uint64_t age)
{
    const struct fr_powers powers = {.units = 1.0,
                                     .units1 = fr_base1(o),
                                     .units2 = fr_base2(o),
                                     .age1 = fr_power((double)o->beta1, age),
                                     .age2 = fr_power((double)o->beta2, age)};
    return fr_pace_of(o, &powers);
}

/* One step of a dense parameter as the graph makes it. */
static void dense_step(const struct fr_ops *ops, const struct fr_optimizer *o, int step, float *w, float (*states)[8])
{
    struct fr_dense_update update = {.n = GOLDEN_DIM,
                                     .values = w,
                                     .gradient = golden_gradients[step],
                                     .state0 = states[0],
                                     .state1 = states[1],
                                     .optimizer = *o,
                                     .pace = pace_of_one(o, (uint64_t)step + 1)};
    ops->update_dense(&update);
}

FR_CASE(dense_parameters_follow_the_golden_steps)
{
    struct backend_list list = list_backends();
    list.ops[list.n++] = fr_reference_ops();
    for (size_t b = 0; b < list.n; b++) {
        for (size_t k = 0; k < FR_ARRAY_LEN(goldens); k++) {
            enum fr_optimizer_kind kind = goldens[k].kind;
            if (kind == FR_OPT_ADAGRAD_ROWWISE || kind == FR_OPT_ADAM_ROWWISE || kind == FR_OPT_GROUP_FTRL)
                continue;
            struct fr_optimizer o = optimizer_of(&goldens[k]);
            float w[GOLDEN_DIM], states[2][8] = {{0}};
            memcpy(w, golden_start, sizeof(w));
            for (size_t i = 0; i < GOLDEN_DIM; i++)
                states[0][i] = goldens[k].initial;
            for (int step = 0; step < GOLDEN_STEPS; step++) {
                dense_step(list.ops[b], &o, step, w, states);
                expect_close(goldens[k].name, step, w, goldens[k].expected[step]);
            }
        }
    }
}

/* A row that occurs in some steps only is like a PyTorch parameter that is stepped in those only:
 * between them its moments, step count and corrections stand still. */
FR_CASE(lazy_rows_move_only_when_they_occur)
{
    static const enum fr_optimizer_kind kinds[] = {FR_OPT_ADAM, FR_OPT_MOMENTUM};
    for (size_t k = 0; k < 2; k++) {
        struct golden golden = {
            "lazy", kinds[k], 0.1f, 0, 0, 0, 0, 0, k == 0 ? golden_adam_lazy : golden_momentum_lazy};
        struct fr_optimizer o = optimizer_of(&golden);
        float row[GOLDEN_DIM + 2 * GOLDEN_DIM + 1] = {0}, *rows[1] = {row}, scratch[32];
        memcpy(row, golden_start, sizeof(golden_start));
        const uint32_t occ_begin[2] = {0, 1}, occ[1] = {0}, source_begin[2] = {0, 1};
        const struct fr_row_part part = {.dim = GOLDEN_DIM, .state_offset = GOLDEN_DIM, .optimizer = o};
        for (int step = 0; step < GOLDEN_STEPS; step++) {
            float g[GOLDEN_DIM];
            memcpy(g, golden_gradients[step], sizeof(g));
            const struct fr_row_source source = {
                .gradient = {g, GOLDEN_DIM}, .trained = &golden_present[step], .counted = &golden_present[step]};
            fr_ops_cpu()->update_rows(&(struct fr_row_update){.rows = rows,
                                                              .occ_begin = occ_begin,
                                                              .occ = occ,
                                                              .occ_from = occ,
                                                              .entry_bits = 1,
                                                              .source_begin = source_begin,
                                                              .sources = &source,
                                                              .parts = &part,
                                                              .n_parts = 1,
                                                              .end = 1,
                                                              .scratch = scratch});
            expect_close(golden.name, step, row, golden.expected[step]);
        }
        if (k == 0)
            assert_true(row[3 * GOLDEN_DIM] == 4.0f);
    }
}

/* PERSIA divides by the accumulator of the previous steps; ours, like PyTorch's, includes the
 * square of this step. */
FR_CASE(adagrad_does_not_divide_by_a_late_accumulator)
{
    struct fr_optimizer o = {.kind = FR_OPT_ADAGRAD, .lr = 0.01f, .eps = 1e-10f};
    float w[GOLDEN_DIM], g[GOLDEN_DIM], acc[GOLDEN_DIM] = {0.01f, 0.01f, 0.01f};
    memcpy(w, golden_start, sizeof(w));
    memcpy(g, golden_gradients[0], sizeof(g));
    fr_row_step(w, acc, g, GOLDEN_DIM, 1, &o);
    assert_float_equal(w[0], 1.0f - 0.005f / sqrtf(0.26f), 1e-6f);
    assert_true(fabsf(w[0] - golden_late_accumulator[0][0]) > 0.03f);
}

/* ---- the gradient before the rule ---- */

static void sgd_step(struct fr_optimizer o, float *w, float g0, float g1)
{
    float g[2] = {g0, g1};
    o.kind = FR_OPT_SGD;
    o.lr = 1.0f;
    fr_row_step(w, NULL, g, 2, 1, &o);
}

FR_CASE(a_gradient_is_scaled_then_cut_then_regularised)
{
    float w[2] = {0.0f, 0.0f};
    sgd_step((struct fr_optimizer){.clip_norm = 5.0f}, w, 6.0f, -8.0f); /* norm 10 */
    assert_true(w[0] == -3.0f && w[1] == 4.0f);
    w[0] = w[1] = 0.0f;
    /* below the bound: as it is */
    sgd_step((struct fr_optimizer){.clip_norm = 20.0f}, w, 6.0f, -8.0f);
    assert_true(w[0] == -6.0f && w[1] == 8.0f);
    w[0] = w[1] = 0.0f;
    sgd_step((struct fr_optimizer){.clip_norm = 5.0f, .clip_value = 3.5f}, w, 6.0f, -8.0f);
    assert_true(w[0] == -3.0f && w[1] == 3.5f);
    w[0] = 2.0f, w[1] = -4.0f; /* penalties come after the cut and are not cut themselves */
    sgd_step((struct fr_optimizer){.clip_value = 1.0f, .l1 = 0.25f, .l2 = 0.5f}, w, 6.0f, -8.0f);
    assert_true(w[0] == 2.0f - (1.0f + 1.0f + 0.25f) && w[1] == -4.0f + (1.0f + 2.0f + 0.25f));
    w[0] = 0.0f, w[1] = 0.0f; /* sign(0) = 0 */
    sgd_step((struct fr_optimizer){.l1 = 0.25f}, w, 0.0f, 0.0f);
    assert_true(w[0] == 0.0f && w[1] == 0.0f);
}

FR_CASE(ftrl_keeps_its_own_penalties)
{
    struct golden golden = {"ftrl", FR_OPT_FTRL, 0.1f, 0.5f, 0.25f, 0, 0, 0, golden_ftrl_l1_l2};
    struct fr_optimizer o = optimizer_of(&golden);
    o.clip_value = 1e6f; /* shaping is on, and must not add l1 and l2 a second time */
    float w[GOLDEN_DIM], g[GOLDEN_DIM], states[2 * GOLDEN_DIM + 2] = {0};
    memcpy(w, golden_start, sizeof(w));
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        memcpy(g, golden_gradients[step], sizeof(g));
        fr_row_step(w, states, g, GOLDEN_DIM, 1, &o);
        expect_close("clipped ftrl", step, w, golden.expected[step]);
    }
}

FR_CASE(group_ftrl_without_its_penalty_is_ftrl)
{
    struct golden golden = {"ftrl", FR_OPT_FTRL, 0.1f, 0.5f, 0.25f, 0, 0, 0, NULL};
    struct fr_optimizer plain = optimizer_of(&golden), group = plain;
    group.kind = FR_OPT_GROUP_FTRL;
    float a[40], b[40], g[40], h[40], a_state[80] = {0}, b_state[80] = {0};
    fill(a, 40, 1);
    memcpy(b, a, sizeof(a));
    for (uint64_t step = 0; step < 5; step++) {
        fill(g, 40, 20 + step);
        memcpy(h, g, sizeof(g));
        fr_row_step(a, a_state, g, 40, 1, &plain);
        fr_row_step(b, b_state, h, 40, 1, &group);
    }
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_equal(a_state, b_state, sizeof(a_state));
    group.l21 = 1e4f;
    fr_row_step(b, b_state, h, 40, 1, &group);
    for (size_t i = 0; i < 40; i++)
        assert_true(b[i] == 0.0f);
}

/* ---- dense against the reference ---- */

enum { N = 2500 };

#define DENSE_KIND(name, text, number, where, ...) FR_LAYERS_##where(name, )
static const enum fr_optimizer_kind dense_kinds[] = {FR_OPTIMIZERS(DENSE_KIND)};
#define ROW_KIND(name, text, number, where, ...) FR_ROWS_##where(name, )
static const enum fr_optimizer_kind row_kinds[] = {FR_OPTIMIZERS(ROW_KIND)};

/* Makes steps of 1/4, 1/2, .. of a unit of 32 samples, from sums over 8 samples each. */
static void run_dense(const struct fr_ops *ops, struct fr_optimizer o, struct fr_view memory, float clip)
{
    double age = 0.0;
    float *gradient = guarded(N);
    for (uint64_t step = 1; step <= 5; step++) {
        fill(gradient, N, 60 + step);
        double units = 0.25 * (double)step;
        age += units;
        const struct fr_powers powers = {.units = units,
                                         .units1 = pow(fr_base1(&o), units),
                                         .units2 = pow(fr_base2(&o), units),
                                         .age1 = pow((double)o.beta1, age),
                                         .age2 = pow((double)o.beta2, age)};
        struct fr_dense_update update = {.n = N,
                                         .values = memory.values,
                                         .gradient = gradient,
                                         .state0 = memory.values + memory.ld,
                                         .state1 = memory.values + 2 * memory.ld,
                                         .optimizer = o,
                                         .pace = fr_pace_of(&o, &powers)};
        update.pace.scale = 1.0f / 32.0f;
        update.pace.mean_scale = clip / (float)(32.0 * units);
        ops->update_dense(&update);
    }
    release_guarded(gradient, N);
}

static void compare_dense(const struct fr_ops *ops, enum fr_optimizer_kind kind, bool shaped)
{
    struct golden golden = {.kind = kind, .lr = 0.01f, .rho = 0.9f};
    struct fr_optimizer o = optimizer_of(&golden);
    if (shaped)
        o.clip_value = 0.5f, o.clip_norm = 1.0f, o.l1 = 0.01f, o.l2 = 0.02f;
    struct fr_view memory[3];
    for (size_t i = 0; i < 3; i++) {
        memory[i] = random_view(3, N, N + 1, 50);
        for (uint32_t j = 0; j < N; j++)
            for (uint32_t s = 1; s < 3; s++)
                memory[i].values[s * memory[i].ld + j] = 0.0f;
        run_dense(i == 2 ? fr_reference_ops() : ops, o, memory[i], shaped ? 0.8f : 1.0f);
    }
    assert_nmse(memory[0], memory[2], 1, N, 1e-10, ops->name);
    assert_nmse(memory[0], memory[2], 3, N, 1e-10, ops->name);
    assert_same_bits(memory[0], memory[1], 3, N, "second run");
    assert_row_ends_untouched(memory[0], 3, N);
    for (size_t i = 0; i < 3; i++)
        release_guarded(memory[i].values, 3 * (N + 1));
}

FR_CASE(dense_updates_agree_with_the_reference)
{
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++)
        for (size_t k = 0; k < FR_ARRAY_LEN(dense_kinds); k++)
            for (int shaped = 0; shaped < 2; shaped++)
                compare_dense(list.ops[b], dense_kinds[k], shaped);
}

FR_CASE(the_sum_of_squares_is_that_of_the_reference)
{
    struct backend_list list = list_backends();
    float *x = guarded(N);
    fill(x, N, 3);
    x[7] = 1e15f;
    for (size_t b = 0; b < list.n; b++)
        assert_true(list.ops[b]->sum_squares(N, x) == fr_reference_ops()->sum_squares(N, x));
    assert_true(fr_ops_cpu()->sum_squares(0, x) == 0.0);
    release_guarded(x, N);
}

/* ---- units ---- */

/* A weight whose gradients are noise around a slope that vanishes at 1: the same 4096 occurrences,
 * `count` a step. */
static float learnt(const struct fr_optimizer *o, uint32_t count)
{
    enum { OCCURRENCES = 4096 };
    float w = 0.0f, state[4] = {0}, noise[OCCURRENCES];
    fill(noise, OCCURRENCES, 5);
    for (uint32_t i = 0; i < OCCURRENCES; i += count) {
        float sum = 0.0f;
        for (uint32_t j = 0; j < count; j++)
            sum += 0.02f * (w - 1.0f) + noise[i + j];
        fr_row_step(&w, state, &sum, 1, count, o);
    }
    return w;
}

FR_CASE(learning_does_not_depend_on_how_occurrences_fall_into_steps)
{
    static const struct {
        enum fr_optimizer_kind kind;
        float lr;
    } rules[] = {{FR_OPT_SGD, 0.005f},           {FR_OPT_MOMENTUM, 0.0005f}, {FR_OPT_ADAGRAD, 0.1f},
                 {FR_OPT_ADAGRAD_ROWWISE, 0.1f}, {FR_OPT_RMSPROP, 0.003f},   {FR_OPT_ADAM, 0.003f},
                 {FR_OPT_ADAM_ROWWISE, 0.003f},  {FR_OPT_FTRL, 0.1f},        {FR_OPT_GROUP_FTRL, 0.1f}};
    for (size_t k = 0; k < FR_ARRAY_LEN(rules); k++) {
        struct golden golden = {.kind = rules[k].kind, .lr = rules[k].lr, .rho = 0.99f};
        struct fr_optimizer o = optimizer_of(&golden);
        float one = learnt(&o, 1), some = learnt(&o, 16), many = learnt(&o, 128);
        if (!(fabsf(some - one) <= 0.12f && fabsf(many - one) <= 0.12f && one > 0.1f))
            fail_msg("kind %d: %g in steps of 1, %g of 16, %g of 128", (int)rules[k].kind, (double)one, (double)some,
                     (double)many);
    }
}

/* However often a key occurs in a batch, plain SGD goes no further than 4 mean gradients. */
FR_CASE(a_hot_key_does_not_overshoot)
{
    struct fr_optimizer o = {.kind = FR_OPT_SGD, .lr = 0.5f};
    float w = 0.0f, g = 65536.0f * 0.25f;
    fr_row_step(&w, NULL, &g, 1, 65536, &o);
    assert_true(w < -0.99f && w >= -1.0f);
}

FR_CASE(an_accumulator_with_a_half_life_forgets)
{
    struct fr_optimizer o = {.kind = FR_OPT_ADAGRAD, .lr = 0.1f, .eps = 1e-8f, .keep = pow(0.5, 1.0 / 100.0)};
    float w = 0.0f, acc = 8.0f, g = 0.0f;
    fr_row_step(&w, &acc, &g, 1, 200, &o);
    assert_float_equal(acc, 2.0f, 1e-6f);
    for (int i = 0; i < 100; i++) {
        g = 0.0f;
        fr_row_step(&w, &acc, &g, 1, 1, &o);
    }
    assert_float_equal(acc, 1.0f, 1e-5f);
}

FR_CASE(ftrl_keeps_first_values_until_gradients_move_them)
{
    static const enum fr_optimizer_kind kinds[] = {FR_OPT_FTRL, FR_OPT_GROUP_FTRL};
    for (size_t k = 0; k < 2; k++) {
        struct golden golden = {.kind = kinds[k], .lr = 0.1f, .l1 = 0.5f, .l2 = 0.25f, .l21 = 1.5f};
        struct fr_optimizer o = optimizer_of(&golden);
        float w[GOLDEN_DIM], g[GOLDEN_DIM] = {1e-4f, -1e-4f, 1e-4f}, states[2 * GOLDEN_DIM + 2] = {0};
        memcpy(w, golden_start, sizeof(w));
        fr_row_step(w, states, g, GOLDEN_DIM, 1, &o);
        for (size_t i = 0; i < GOLDEN_DIM; i++)
            assert_float_equal(w[i], golden_start[i], 1e-4f);
    }
}

/* ---- finite stays finite ---- */

/* Takes steps with the extremes that the checks of conf and graph accept, from the largest
 * states. */
static void expect_finite(enum fr_optimizer_kind kind, float lr, float eps, float g, float w)
{
    float rate[] = {0.0f, 0.999999f};
    for (size_t r = 0; r < 2; r++) {
        for (int penalty = 0; penalty < 2; penalty++) {
            struct fr_optimizer o = {.kind = kind,
                                     .lr = lr,
                                     .eps = eps,
                                     .beta1 = rate[r],
                                     .beta2 = rate[r],
                                     .momentum = rate[r],
                                     .rho = rate[r],
                                     .weight_decay = penalty ? 1e6f : 0.0f,
                                     .beta = penalty ? 1e6f : 0.0f,
                                     .l1 = penalty ? 1e6f : 0.0f,
                                     .l2 = penalty ? 1e6f : 0.0f,
                                     .l21 = penalty ? 1e6f : 0.0f};
            float v[2] = {w, -w}, gradient[2], states[8] = {0};
            for (int step = 0; step < 60; step++) {
                gradient[0] = step % 3 == 2 ? 0.0f : g;
                gradient[1] = step % 2 ? -g : g;
                fr_row_step(v, states, gradient, 2, step % 2 ? 1 : 1u << 26, &o);
                for (size_t i = 0; i < 2; i++)
                    assert_true(fabsf(v[i]) <= FR_VALUE_MAX);
                for (uint32_t i = 0; i < fr_row_state_floats(kind, 2); i++)
                    assert_true(isfinite(states[i]));
            }
        }
    }
}

FR_CASE(no_finite_gradient_makes_a_value_that_is_not)
{
    static const float rates[] = {1.17549435e-38f, 0.1f, 1e6f}, epsilons[] = {1.17549435e-38f, 1.0f},
                       gradients[] = {0.0f, 1e-45f, 1e-30f, 1.0f, FR_GRADIENT_MAX},
                       values[] = {0.0f, 1e-45f, 1.0f, FR_VALUE_MAX, 3e38f};
    for (size_t k = 0; k < FR_ARRAY_LEN(row_kinds); k++)
        for (size_t i = 0; i < FR_ARRAY_LEN(rates) * FR_ARRAY_LEN(epsilons); i++)
            for (size_t g = 0; g < FR_ARRAY_LEN(gradients); g++)
                for (size_t w = 0; w < FR_ARRAY_LEN(values); w++)
                    expect_finite(row_kinds[k], rates[i / 2], epsilons[i % 2], gradients[g], values[w]);
}

/* Decoupled decay is the only rule for layers that rows do not have. */
FR_CASE(decoupled_decay_keeps_values_finite_too)
{
    static const float values[] = {1.0f, FR_VALUE_MAX, 3e38f};
    for (size_t i = 0; i < FR_ARRAY_LEN(values); i++) {
        struct fr_optimizer o = {.kind = FR_OPT_ADAMW,
                                 .lr = 1e6f,
                                 .eps = 1.17549435e-38f,
                                 .beta1 = 0.999999f,
                                 .beta2 = 0.0f,
                                 .weight_decay = 1e6f};
        float w[GOLDEN_DIM] = {values[i], -values[i], 0.0f}, states[2][8] = {{0}};
        for (int step = 0; step < GOLDEN_STEPS; step++) {
            dense_step(fr_ops_cpu(), &o, step, w, states);
            for (size_t j = 0; j < GOLDEN_DIM; j++)
                assert_true(fabsf(w[j]) <= FR_VALUE_MAX);
        }
    }
}

FR_CASE(accumulators_stop_at_their_bound)
{
    struct fr_optimizer o = {.kind = FR_OPT_ADAGRAD, .lr = 0.1f, .eps = 1e-8f};
    float w = 1.0f, acc = FR_STATE_MAX, g = FR_GRADIENT_MAX;
    fr_row_step(&w, &acc, &g, 1, 1, &o);
    assert_true(acc == FR_STATE_MAX && w < 1.0f && w > 0.0f);
}

FR_CASE(steps_of_a_row_stop_where_a_float_counts_no_further)
{
    struct fr_optimizer o = {.kind = FR_OPT_ADAM, .lr = 0.1f, .eps = 1e-8f, .beta1 = 0.9f, .beta2 = 0.999f};
    float w = 1.0f, states[3] = {0.0f, 0.0f, 16777215.0f}, g = 1.0f;
    fr_row_step(&w, states, &g, 1, 1, &o);
    fr_row_step(&w, states, &g, 1, 1, &o);
    assert_true(states[2] == 16777216.0f && isfinite(w));
    struct fr_pace late = fr_row_pace(&o, 1, 16777216);
    assert_true(late.rate == 0.1f && late.second_scale == 1.0f);
    states[2] = 16777000.0f; /* also when a step would carry the count beyond */
    g = 1.0f;
    fr_row_step(&w, states, &g, 1, 1000, &o);
    assert_true(states[2] == 16777216.0f);
}

/* ---- lanes ---- */

FR_CASE(adam_factors_follow_the_definition)
{
    struct fr_optimizer o = {.kind = FR_OPT_ADAM, .lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.999f};
    for (uint32_t t = 1; t < 3000; t = t * 3 + 1) {
        struct fr_pace got = fr_row_pace(&o, 1, t);
        double first = (double)0.1f / (1.0 - pow((double)0.9f, (double)t));
        double second = 1.0 / sqrt(1.0 - pow((double)0.999f, (double)t));
        assert_true(fabs((double)got.rate - first) <= 1e-7 * first);
        assert_true(fabs((double)got.second_scale - second) <= 1e-7 * second);
    }
}

FR_CASE(the_sum_of_squares_of_a_row_does_not_depend_on_lanes)
{
    for (uint32_t dim = 1; dim < 130; dim++) {
        float g[130], partial[FR_ROW_LANES];
        fill(g, dim, dim);
        for (uint32_t lane = 0; lane < FR_ROW_LANES; lane++)
            partial[lane] = fr_row_square_partial(g, dim, lane);
        float by_lanes = fr_row_tree(partial), by_one = fr_row_sum_squares(g, dim);
        assert_memory_equal(&by_lanes, &by_one, sizeof(float));
    }
}

/* One step with 32 lanes. Lane 0, which writes what all lanes read, comes last. */
static void step_by_lanes(float *w, float *s, float *g, uint32_t dim, uint32_t count, const struct fr_optimizer *o)
{
    float squares = fr_row_sum_squares(g, dim);
    float *age = fr_row_age_of(s, dim, o->kind);
    uint32_t next = age ? fr_row_age(*age, count) : 0;
    struct fr_pace pace = fr_row_pace(o, count, next), shaped = pace;
    for (uint32_t l = FR_ROW_LANES; l-- > 0;) {
        shaped = pace;
        fr_row_shape_gradient(g, w, dim, squares, o, &shaped, l, FR_ROW_LANES);
    }
    squares = fr_row_sum_squares(g, dim);
    float first = fr_row_untouched(s + dim, dim) ? fr_row_sum_squares(w, dim) : -1.0f;
    for (uint32_t l = FR_ROW_LANES; l-- > 0;) {
        switch (o->kind) {
        case FR_OPT_SGD:
            fr_row_sgd(w, g, dim, &shaped, l, FR_ROW_LANES);
            break;
        case FR_OPT_MOMENTUM:
            fr_row_momentum(w, s, g, dim, &shaped, l, FR_ROW_LANES);
            break;
        case FR_OPT_ADAGRAD:
            fr_row_adagrad(w, s, g, dim, o, &shaped, l, FR_ROW_LANES);
            break;
        case FR_OPT_ADAGRAD_ROWWISE:
            fr_row_adagrad_rowwise(w, s, g, dim, squares, o, &shaped, l, FR_ROW_LANES);
            break;
        case FR_OPT_RMSPROP:
            fr_row_rmsprop(w, s, g, dim, o, &shaped, l, FR_ROW_LANES);
            break;
        case FR_OPT_ADAM:
            fr_row_adam(w, s, s + dim, g, dim, o, &shaped, l, FR_ROW_LANES);
            break;
        case FR_OPT_ADAM_ROWWISE:
            fr_row_adam_rowwise(w, s, s + dim, g, dim, squares, o, &shaped, l, FR_ROW_LANES);
            break;
        case FR_OPT_FTRL:
            fr_row_ftrl(w, s, s + dim, g, dim, o, &shaped, l, FR_ROW_LANES);
            break;
        default:
            fr_row_group_ftrl_shrink(w, s, s + dim, g, dim, first, o, l, FR_ROW_LANES);
        }
    }
    if (age)
        *age = (float)next;
    float shrunk = fr_row_sum_squares(w, dim);
    for (uint32_t l = FR_ROW_LANES; l-- > 0 && o->kind == FR_OPT_GROUP_FTRL;)
        fr_row_group_ftrl_values(w, s + dim, dim, shrunk, o, l, FR_ROW_LANES);
}

FR_CASE(no_rule_depends_on_the_number_of_lanes)
{
    for (size_t k = 0; k < FR_ARRAY_LEN(row_kinds); k++) {
        for (uint32_t dim = 1; dim < 100; dim += 33) {
            struct golden golden = {.kind = row_kinds[k], .lr = 0.1f, .l21 = 0.1f, .rho = 0.9f};
            struct fr_optimizer o = optimizer_of(&golden);
            o.clip_norm = 1.0f, o.clip_value = 0.5f, o.l1 = 0.01f, o.l2 = 0.02f;
            float a[100], b[100], g[100], h[100], s[202] = {0}, t[202] = {0};
            fill(a, dim, 7);
            memcpy(b, a, sizeof(a));
            for (uint32_t step = 0; step < 3; step++) {
                fill(g, dim, 70 + step);
                memcpy(h, g, sizeof(g));
                fr_row_step(a, s, g, dim, 1 + 6 * step, &o);
                step_by_lanes(b, t, h, dim, 1 + 6 * step, &o);
            }
            assert_memory_equal(a, b, dim * sizeof(float));
            assert_memory_equal(s, t, sizeof(s));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_follow_the_golden_steps),
        cmocka_unit_test(dense_parameters_follow_the_golden_steps),
        cmocka_unit_test(lazy_rows_move_only_when_they_occur),
        cmocka_unit_test(adagrad_does_not_divide_by_a_late_accumulator),
        cmocka_unit_test(a_gradient_is_scaled_then_cut_then_regularised),
        cmocka_unit_test(ftrl_keeps_its_own_penalties),
        cmocka_unit_test(group_ftrl_without_its_penalty_is_ftrl),
        cmocka_unit_test(dense_updates_agree_with_the_reference),
        cmocka_unit_test(the_sum_of_squares_is_that_of_the_reference),
        cmocka_unit_test(learning_does_not_depend_on_how_occurrences_fall_into_steps),
        cmocka_unit_test(a_hot_key_does_not_overshoot),
        cmocka_unit_test(an_accumulator_with_a_half_life_forgets),
        cmocka_unit_test(ftrl_keeps_first_values_until_gradients_move_them),
        cmocka_unit_test(no_finite_gradient_makes_a_value_that_is_not),
        cmocka_unit_test(decoupled_decay_keeps_values_finite_too),
        cmocka_unit_test(accumulators_stop_at_their_bound),
        cmocka_unit_test(steps_of_a_row_stop_where_a_float_counts_no_further),
        cmocka_unit_test(adam_factors_follow_the_definition),
        cmocka_unit_test(the_sum_of_squares_of_a_row_does_not_depend_on_lanes),
        cmocka_unit_test(no_rule_depends_on_the_number_of_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
