/* Pooling, row updates and optimizers. */
#include "backends.h"

#include "base/math.h"

enum { SAMPLES = 6, UNIQUE = 5, IDS = 12 };

/* 6 samples, 12 ids, 5 unique keys of which key 3 has no row; sample 4 has no ids. */
static const uint32_t id_begin[SAMPLES + 1] = {0, 1, 4, 6, 9, 9, 12};
static const uint32_t unique_of[IDS] = {0, 1, 0, 2, 3, 3, 4, 1, 0, 4, 3, 2};
static const float id_weights[IDS] = {1.0f, 2.0f, 0.5f, 0.25f, 1.0f, 3.0f, 1.5f, 1.0f, 0.125f, 2.0f, 4.0f, 1.0f};

static void make_row_pointers(float *memory, size_t row_floats, float **rows)
{
    for (size_t u = 0; u < UNIQUE; u++)
        rows[u] = u == 3 ? NULL : memory + u * row_floats;
}

static void gather_with(const struct fr_ops *ops, uint32_t dim, bool mean, bool weighted, struct fr_view out,
                        float *scale)
{
    struct fr_view memory = random_view(UNIQUE, dim + 3, dim + 3, 8);
    float *rows[UNIQUE];
    make_row_pointers(memory.values, dim + 3, rows);
    struct fr_gather gather = {.begin = id_begin,
                               .weights = weighted ? id_weights : NULL,
                               .unique_of = unique_of,
                               .rows = rows,
                               .value_offset = 2,
                               .dim = dim,
                               .sample_end = SAMPLES,
                               .mean = mean,
                               .scale = scale,
                               .out = out};
    ops->gather(&gather);
    release_guarded(memory.values, UNIQUE * (dim + 3));
}

static void pooling_agrees_with_the_reference(void **state)
{
    (void)state;
    struct backend_list list = list_backends();
    static const uint32_t dims[] = {1, 3, 16, 45};
    for (size_t b = 0; b < list.n; b++) {
        for (uint32_t variant = 0; variant < 16; variant++) {
            uint32_t dim = dims[variant / 4];
            struct fr_view got = {guarded(SAMPLES * (dim + 2)), dim + 2},
                           want = {guarded(SAMPLES * (dim + 2)), dim + 2};
            float *scale = guarded(SAMPLES), *scale_want = guarded(SAMPLES);
            gather_with(list.ops[b], dim, variant & 1, variant & 2, got, scale);
            gather_with(fr_ops_reference(), dim, variant & 1, variant & 2, want, scale_want);
            assert_nmse(got, want, SAMPLES, dim, 1e-12, list.ops[b]->name);
            assert_nmse((struct fr_view){scale, 1}, (struct fr_view){scale_want, 1}, SAMPLES, 1, 1e-12, "scale");
            assert_row_ends_untouched(got, SAMPLES, dim);
            release_guarded(got.values, SAMPLES * (dim + 2));
            release_guarded(want.values, SAMPLES * (dim + 2));
            release_guarded(scale, SAMPLES);
            release_guarded(scale_want, SAMPLES);
        }
    }
}

static void the_mean_counts_ids_without_a_row(void **state)
{
    (void)state;
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        float one = 6.0f, *rows[2] = {&one, NULL}, out[3] = {9.0f, 9.0f, 9.0f}, scale[3];
        const uint32_t begin[4] = {0, 3, 3, 4}, unique[4] = {0, 1, 1, 0};
        const float weights[4] = {1.0f, 1.0f, 4.0f, 0.0f};
        struct fr_gather gather = {.begin = begin,
                                   .unique_of = unique,
                                   .rows = rows,
                                   .dim = 1,
                                   .sample_end = 3,
                                   .mean = true,
                                   .scale = scale,
                                   .out = {out, 1}};
        list.ops[b]->gather(&gather);
        assert_true(fabsf(out[0] - 2.0f) < 1e-6f && out[1] == 0.0f && out[2] == 6.0f);
        gather.weights = weights;
        list.ops[b]->gather(&gather);
        assert_true(fabsf(out[0] - 1.0f) < 1e-6f && out[1] == 0.0f && out[2] == 0.0f);
    }
}

/* Two parts, two groups: group 0 (ids 0-5) reads part 0 twice (sum, and mean with scale) and part 1; group 1 (ids 6-11)
 * part 0, weighted. */
struct update_world {
    struct fr_view memory, gradients;
    float *rows[UNIQUE];
    uint32_t occ_begin[UNIQUE + 1], occ[IDS];
    struct fr_occurrence occurrences[IDS];
    uint8_t trained[SAMPLES];
    uint32_t source_begin[3];
    struct fr_row_source sources[4];
    struct fr_row_part parts[2];
    float scale[SAMPLES];
    float *scratch;
    struct fr_row_update update;
};

static void make_world(struct update_world *w, enum fr_update_kind kind, uint32_t dim)
{
    memset(w, 0, sizeof(*w));
    uint32_t row_floats = 2 * dim + 2 * dim + 2 * dim + 4;
    struct fr_optimizer optimizer = {.kind = kind, .lr = 0.1f, .eps = 1e-8f, .beta = 1.0f, .l1 = 0.01f, .l2 = 0.02f};
    w->memory = random_view(UNIQUE, row_floats, row_floats, 40);
    for (size_t i = 0; i < (size_t)UNIQUE * row_floats; i++)
        w->memory.values[i] = fabsf(w->memory.values[i]);
    make_row_pointers(w->memory.values, row_floats, w->rows);
    w->parts[0] = (struct fr_row_part){0, dim, 2 * dim, optimizer};
    w->parts[1] = (struct fr_row_part){dim, dim, 4 * dim + 2, optimizer};
    w->gradients = random_view(SAMPLES, dim, dim + 1, 41);
    fill(w->scale, SAMPLES, 42);
    for (uint32_t o = 0; o < IDS; o++)
        w->occ_begin[unique_of[o] + 1]++;
    uint32_t next[UNIQUE];
    for (uint32_t u = 0; u < UNIQUE; u++) {
        w->occ_begin[u + 1] += w->occ_begin[u];
        next[u] = w->occ_begin[u];
    }
    for (uint32_t o = 0; o < IDS; o++)
        w->occ[next[unique_of[o]]++] = o;
    for (uint32_t o = 0; o < IDS; o++)
        w->occurrences[o] = (struct fr_occurrence){o % 6 > 4 ? 2 : o % 5, o / 6};
    for (uint32_t s = 0; s < SAMPLES; s++)
        w->trained[s] = s != 1;
    w->source_begin[1] = 3;
    w->source_begin[2] = 4;
    w->sources[0] = (struct fr_row_source){0, 0, w->gradients, NULL, NULL};
    w->sources[1] = (struct fr_row_source){0, 0, w->gradients, NULL, w->scale};
    w->sources[2] = (struct fr_row_source){1, 0, w->gradients, id_weights, NULL};
    w->sources[3] = (struct fr_row_source){0, 6, w->gradients, id_weights, w->scale};
    w->scratch = guarded(2 * ((dim + 15) / 16 * 16));
    w->update = (struct fr_row_update){.rows = w->rows,
                                       .occ_begin = w->occ_begin,
                                       .occ = w->occ,
                                       .occurrences = w->occurrences,
                                       .trained = w->trained,
                                       .source_begin = w->source_begin,
                                       .sources = w->sources,
                                       .parts = w->parts,
                                       .n_parts = 2,
                                       .end = UNIQUE,
                                       .scratch = w->scratch};
}

static void release_world(struct update_world *w, uint32_t dim)
{
    release_guarded(w->memory.values, UNIQUE * w->memory.ld);
    release_guarded(w->gradients.values, SAMPLES * w->gradients.ld);
    release_guarded(w->scratch, 2 * ((dim + 15) / 16 * 16));
}

static const enum fr_update_kind row_kinds[] = {FR_UPDATE_SGD, FR_UPDATE_ADAGRAD, FR_UPDATE_ADAGRAD_ROWWISE,
                                                FR_UPDATE_FTRL};

static void row_updates_agree_with_the_reference(void **state)
{
    (void)state;
    struct backend_list list = list_backends();
    static const uint32_t dims[] = {1, 5, 16, 70};
    for (size_t b = 0; b < list.n; b++) {
        for (size_t v = 0; v < 16; v++) {
            uint32_t dim = dims[v % 4];
            struct update_world got, want;
            make_world(&got, row_kinds[v / 4], dim);
            make_world(&want, row_kinds[v / 4], dim);
            for (uint32_t step = 0; step < 3; step++) {
                got.update.end = 2; /* in two blocks, as workers do */
                list.ops[b]->update_rows(&got.update);
                got.update.begin = 2, got.update.end = UNIQUE;
                list.ops[b]->update_rows(&got.update);
                got.update.begin = 0;
                fr_ops_reference()->update_rows(&want.update);
            }
            assert_nmse(got.memory, want.memory, UNIQUE, got.memory.ld, 1e-10, list.ops[b]->name);
            release_world(&got, dim);
            release_world(&want, dim);
        }
    }
}

static void a_part_no_trained_occurrence_reaches_keeps_its_bits(void **state)
{
    (void)state;
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        for (size_t k = 0; k < FR_ARRAY_LEN(row_kinds); k++) {
            struct update_world got, before;
            make_world(&got, row_kinds[k], 8);
            make_world(&before, row_kinds[k], 8);
            for (uint32_t o = 0; o < IDS; o++) /* key 4 occurs in an untrained sample only, key 2 in group 1 only */
                if (unique_of[o] == 4)
                    got.occurrences[o].sample = 1;
                else if (unique_of[o] == 2)
                    got.occurrences[o] = (struct fr_occurrence){0, 1};
            got.sources[3].first = 0; /* group 1 now holds occurrence 3 as well */
            list.ops[b]->update_rows(&got.update);
            size_t row = got.memory.ld;
            assert_memory_equal(got.memory.values + 4 * row, before.memory.values + 4 * row, row * sizeof(float));
            assert_memory_equal(got.memory.values + 2 * row + 8, before.memory.values + 2 * row + 8, 8 * sizeof(float));
            assert_memory_not_equal(got.memory.values + 2 * row, before.memory.values + 2 * row, 8 * sizeof(float));
            assert_memory_equal(got.memory.values + 3 * row, before.memory.values + 3 * row, row * sizeof(float));
            release_world(&got, 8);
            release_world(&before, 8);
        }
    }
}

static void check_rows_measures_the_gradients_and_changes_nothing(void **state)
{
    (void)state;
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        struct update_world got, before;
        make_world(&got, FR_UPDATE_ADAGRAD, 16);
        make_world(&before, FR_UPDATE_ADAGRAD, 16);
        float largest = fr_bits_f32(list.ops[b]->check_rows(&got.update));
        float expected = fr_bits_f32(fr_ops_reference()->check_rows(&before.update));
        assert_true(fabsf(largest - expected) <= 1e-5f * expected);
        assert_same_bits(got.memory, before.memory, UNIQUE, got.memory.ld, "rows");
        got.gradients.values[0] = 1e38f;
        got.gradients.values[got.gradients.ld * 2] = 1e38f;
        got.sources[0].weights = (const float[IDS]){9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
        assert_true(list.ops[b]->check_rows(&got.update) >= 0x7f800000u);
        release_world(&got, 16);
        release_world(&before, 16);
    }
}

/* Golden values: the published update rules evaluated by hand in exact or double arithmetic, two steps each from w = 1.
 */
static void optimizers_follow_their_papers(void **state)
{
    (void)state;
    float v = 1.0f, s[2] = {0.0f, 0.0f}, g = 0.5f, g2 = -2.0f;
    struct fr_optimizer o = {.kind = FR_UPDATE_SGD, .lr = 0.1f, .eps = 1e-8f, .beta = 1.0f};
    fr_row_step(&v, s, &g, 1, &o);
    assert_float_equal(v, 0.95f, 1e-7f);
    /* Adagrad: acc 0.25, w = 1 - 0.1 * 0.5 / 0.5 = 0.9; acc 4.25, w = 0.9 + 0.2 / sqrt(4.25) = 0.99701425 */
    v = 1.0f;
    o.kind = FR_UPDATE_ADAGRAD;
    fr_row_step(&v, s, &g, 1, &o);
    assert_float_equal(v, 0.9f, 1e-6f);
    fr_row_step(&v, s, &g2, 1, &o);
    assert_float_equal(v, 0.99701425f, 1e-6f);
    assert_float_equal(s[0], 4.25f, 1e-6f);
    /* Row-wise: acc = (0.25 + 4) / 2 = 2.125, rate = 0.1 / 1.4577380 */
    float w[2] = {1.0f, 1.0f}, gradient[2] = {0.5f, -2.0f}, acc = 0.0f;
    o.kind = FR_UPDATE_ADAGRAD_ROWWISE;
    fr_row_step(w, &acc, gradient, 2, &o);
    assert_float_equal(acc, 2.125f, 1e-6f);
    assert_float_equal(w[0], 0.96570029f, 1e-6f);
    assert_float_equal(w[1], 1.13719887f, 1e-6f);
    /* FTRL, alpha 0.1, beta 1, l1 0.1, l2 0: sigma = 5, z = 0.5 - 5 = -4.5, n = 0.25, w = 4.4 / 15; then n = 4.25,
     * sigma = 15.615528, z = -4.5 - 2 - 15.615528 * 0.29333333 = -11.08055493, w = 10.98055493 / 30.61552813 */
    v = 1.0f;
    s[0] = s[1] = 0.0f;
    o.kind = FR_UPDATE_FTRL;
    o.l1 = 0.1f;
    fr_row_step(&v, s, &g, 1, &o);
    assert_float_equal(v, 4.4f / 15.0f, 1e-6f);
    fr_row_step(&v, s, &g2, 1, &o);
    assert_float_equal(s[0], -11.08055493f, 2e-6f);
    assert_float_equal(v, 10.98055493f / 30.61552813f, 1e-6f);
    o.l1 = 20.0f;
    fr_row_step(&v, s, &g, 1, &o);
    assert_true(v == 0.0f);
}

static void dense_updates_agree_with_the_reference(void **state)
{
    (void)state;
    struct backend_list list = list_backends();
    static const enum fr_update_kind kinds[] = {FR_UPDATE_SGD, FR_UPDATE_ADAGRAD, FR_UPDATE_ADAM};
    enum { N = 101 };
    for (size_t b = 0; b < list.n; b++) {
        for (size_t k = 0; k < 3; k++) {
            struct fr_view got = random_view(3, N, N + 1, 50), want = random_view(3, N, N + 1, 50);
            for (uint32_t j = 0; j < N; j++) /* moments and accumulators start at 0 */
                for (uint32_t i = 1; i < 3; i++)
                    got.values[i * got.ld + j] = want.values[i * want.ld + j] = 0.0f;
            struct fr_view gradient = random_view(1, N, N, 60);
            struct fr_optimizer o = {.kind = kinds[k], .lr = 0.01f, .eps = 1e-8f, .beta1 = 0.9f, .beta2 = 0.999f};
            for (int step = 1; step <= 5; step++) {
                struct fr_dense_update update = {.n = N, .gradient = gradient.values, .optimizer = o};
                update.step_size = (float)(0.01 / (1.0 - pow(0.9, step)));
                update.second_scale = (float)(1.0 / sqrt(1.0 - pow(0.999, step)));
                update.values = got.values, update.state0 = got.values + got.ld,
                update.state1 = got.values + 2 * got.ld;
                list.ops[b]->update_dense(&update);
                update.values = want.values, update.state0 = want.values + want.ld,
                update.state1 = want.values + 2 * want.ld;
                fr_ops_reference()->update_dense(&update);
            }
            assert_nmse(got, want, 3, N, 1e-10, list.ops[b]->name);
            assert_row_ends_untouched(got, 3, N);
            release_guarded(got.values, 3 * (N + 1));
            release_guarded(want.values, 3 * (N + 1));
            release_guarded(gradient.values, N);
        }
    }
}

/* PyTorch's Adam, lr 0.1, from w = 1 with gradients 0.5, -2: m 0.05, v 0.00025, w 0.9; then m -0.155, v 0.00424975,
 * w = 0.9 + 0.1 * (0.155 / 0.19) / sqrt(0.00424975 / 0.001999) = 0.95595054. */
static void adam_follows_pytorch(void **state)
{
    (void)state;
    float w = 1.0f, m = 0.0f, v = 0.0f, g[2] = {0.5f, -2.0f};
    struct fr_optimizer o = {.kind = FR_UPDATE_ADAM, .lr = 0.1f, .eps = 1e-8f, .beta1 = 0.9f, .beta2 = 0.999f};
    static const float expected[2] = {0.9f, 0.95595054f};
    for (int step = 1; step <= 2; step++) {
        struct fr_dense_update update = {
            .n = 1, .values = &w, .gradient = &g[step - 1], .state0 = &m, .state1 = &v, .optimizer = o};
        update.step_size = (float)(0.1 / (1.0 - pow(0.9, step)));
        update.second_scale = (float)(1.0 / sqrt(1.0 - pow(0.999, step)));
        fr_ops_cpu()->update_dense(&update);
        assert_float_equal(w, expected[step - 1], 2e-6f);
    }
}

static void the_sum_of_squares_does_not_depend_on_the_number_of_lanes(void **state)
{
    (void)state;
    for (uint32_t dim = 1; dim < 130; dim += 9) {
        float g[130], partial[FR_ROW_LANES];
        fill(g, dim, dim);
        for (uint32_t lane = 0; lane < FR_ROW_LANES; lane++)
            partial[lane] = fr_row_square_partial(g, dim, lane);
        float by_lanes = fr_row_tree(partial), by_one = fr_row_sum_squares(g, dim);
        assert_memory_equal(&by_lanes, &by_one, sizeof(float));
        float a[130], b[130], acc_a = 0.5f, acc_b = 0.5f;
        fill(a, dim, 7);
        fill(b, dim, 7);
        struct fr_optimizer o = {.lr = 0.1f, .eps = 1e-8f};
        fr_row_adagrad_rowwise(a, &acc_a, g, dim, by_one, &o, 0, 1);
        for (uint32_t lane = FR_ROW_LANES; lane-- > 0;) /* lane 0, which writes the accumulator, last */
            fr_row_adagrad_rowwise(b, &acc_b, g, dim, by_one, &o, lane, FR_ROW_LANES);
        assert_memory_equal(a, b, dim * sizeof(float));
        assert_true(acc_a == acc_b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooling_agrees_with_the_reference),
        cmocka_unit_test(the_mean_counts_ids_without_a_row),
        cmocka_unit_test(row_updates_agree_with_the_reference),
        cmocka_unit_test(a_part_no_trained_occurrence_reaches_keeps_its_bits),
        cmocka_unit_test(check_rows_measures_the_gradients_and_changes_nothing),
        cmocka_unit_test(optimizers_follow_their_papers),
        cmocka_unit_test(dense_updates_agree_with_the_reference),
        cmocka_unit_test(adam_follows_pytorch),
        cmocka_unit_test(the_sum_of_squares_does_not_depend_on_the_number_of_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
