/* What a device has beside the processor's table: the flag of a refusal, first values of rows,
 * staging for a cut, clipping by a sum that stays on the device. */
#include "ops/backends.h"

#include "shim/shim.h"
#include "random_weight.h"

/* Copies bytes to the device; the caller may change `host` afterwards. */
static void *to_device(const void *host, size_t bytes)
{
    struct fr_err err = {0};
    void *device = fr_shim_api()->alloc(fr_shim_queue(), bytes);
    assert_non_null(device);
    fr_shim_api()->upload(fr_shim_queue(), device, host, bytes);
    assert_int_equal(fr_shim_api()->finish(fr_shim_queue(), &err), FR_OK);
    return device;
}

static void from_device(void *host, const void *device, size_t bytes)
{
    struct fr_err err = {0};
    fr_shim_api()->download(fr_shim_queue(), host, device, bytes);
    assert_int_equal(fr_shim_api()->finish(fr_shim_queue(), &err), FR_OK);
}

static void release(void *device)
{
    fr_shim_api()->release(fr_shim_queue(), device);
}

static bool same_bits(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

/* ---- refusal ---- */

static uint32_t judged(uint32_t bits, uint32_t before)
{
    uint32_t *words = to_device((const uint32_t[]){bits, before}, 2 * sizeof(*words)), flag;
    const struct fr_device_judge call = {words, fr_f32_bits(1e15f), 4, words + 1};
    fr_shim_api()->ops->judge(fr_shim_queue(), &call);
    from_device(&flag, words + 1, sizeof(flag));
    release(words);
    return flag;
}

FR_CASE(a_number_over_its_bound_sets_the_flag_and_nothing_clears_it)
{
    assert_int_equal(judged(fr_f32_bits(1.0f), 0), 0);
    assert_int_equal(judged(fr_f32_bits(1e15f), 0), 0);
    assert_int_equal(judged(fr_f32_bits(1.1e15f), 0), 4);
    assert_int_equal(judged(fr_f32_bits(INFINITY), 1), 5);
    assert_int_equal(judged(fr_f32_bits(NAN), 0), 4);
    assert_int_equal(judged(fr_f32_bits(0.0f), 2), 2);
}

enum { N = 300 };

static void update_dense(float *values, const float *gradient, float *state)
{
    struct fr_dense_update update = {.n = N, .values = values, .gradient = gradient, .state0 = state};
    update.optimizer = (struct fr_optimizer){.kind = FR_OPT_ADAGRAD, .lr = 0.1f, .eps = 1e-8f};
    update.pace = fr_pace_of(&update.optimizer, &(struct fr_powers){.units = 1.0, .units1 = 1.0, .units2 = 1.0});
    fr_shim_ops()->update_dense(&update);
}

static void update_row(float *row, float *gradient)
{
    float *rows[] = {row};
    const uint32_t occ_begin[] = {0, 1}, occ[] = {0}, source_begin[] = {0, 1}, trained[] = {1};
    const struct fr_row_part part = {0, 8, 8, {.kind = FR_OPT_ADAGRAD, .lr = 0.1f, .eps = 1e-8f}};
    const struct fr_row_source source = {.gradient = {gradient, 8}, .trained = trained, .counted = trained};
    fr_shim_ops()->update_rows(&(struct fr_row_update){.rows = rows,
                                                       .occ_begin = occ_begin,
                                                       .occ = occ,
                                                       .occ_from = occ,
                                                       .entry_bits = 1,
                                                       .n_groups = 1,
                                                       .source_begin = source_begin,
                                                       .sources = &source,
                                                       .parts = &part,
                                                       .n_parts = 1,
                                                       .end = 1});
}

FR_CASE(a_refused_step_updates_nothing)
{
    float values[N], gradient[N], moments[N], row[16], before[N], row_before[16];
    fill(values, N, 1);
    fill(gradient, N, 2);
    fill(row, 16, 3);
    memset(moments, 0, sizeof(moments));
    memcpy(before, values, sizeof(before));
    memcpy(row_before, row, sizeof(row));
    for (uint32_t i = 8; i < 16; i++)
        row[i] = row_before[i] = 1.0f;
    for (uint32_t refused = 2; refused-- > 0;) {
        uint32_t *flag = to_device(&refused, sizeof(refused));
        fr_shim_api()->obey(fr_shim_queue(), flag);
        update_dense(values, gradient, moments);
        update_row(row, gradient);
        fr_shim_api()->obey(fr_shim_queue(), NULL);
        release(flag);
        assert_true(same_bits(values, before, sizeof(values)) == (refused == 1));
        assert_true(same_bits(row, row_before, sizeof(row)) == (refused == 1));
    }
}

/* ---- clipping ---- */

FR_CASE(clipping_by_a_sum_on_the_device_is_clipping_by_the_hosts)
{
    const struct fr_optimizer optimizer = {.kind = FR_OPT_SGD, .lr = 0.1f, .clip_norm = 0.5f};
    struct fr_pace pace = fr_pace_of(&optimizer, &(struct fr_powers){.units = 2.0, .units1 = 1.0, .units2 = 1.0});
    float gradient[N], got[N], want[N];
    fill(gradient, N, 4);
    fill(got, N, 5);
    memcpy(want, got, sizeof(want));
    float *values = to_device(got, sizeof(got)), *slopes = to_device(gradient, sizeof(gradient));
    double *squares = to_device(&(double){0.0}, sizeof(double)), sum;
    const float none = 0.0f, scale = pace.mean_scale, norm = optimizer.clip_norm;
    float *factors = to_device((float[2]){0}, 2 * sizeof(float));
    const float *scales = to_device(&scale, sizeof(scale)), *norms = to_device(&norm, sizeof(norm));
    struct fr_device_clip clip = {.n = 1,
                                  .squares = squares,
                                  .mean_scales = scales,
                                  .clip_norms = norms,
                                  .clip_global_norm = none,
                                  .factors = factors};
    struct fr_dense_update update = {
        .n = N, .values = values, .gradient = slopes, .optimizer = optimizer, .pace = pace};
    fr_shim_api()->ops->sum_squares(fr_shim_queue(), squares, N, slopes);
    fr_shim_api()->ops->clip_norms(fr_shim_queue(), &clip);
    fr_shim_api()->ops->update_dense_clipped(fr_shim_queue(), &update, factors);
    from_device(&sum, squares, sizeof(sum));
    from_device(got, values, sizeof(got));
    update.values = want;
    update.gradient = gradient;
    update.pace.mean_scale *= fr_clip_scale((float)(sqrt(sum) * (double)pace.mean_scale), optimizer.clip_norm);
    assert_true(update.pace.mean_scale < pace.mean_scale);
    fr_shim_ops()->update_dense(&update);
    assert_memory_equal(got, want, sizeof(want));
    release(values);
    release(slopes);
    release(squares);
    release(factors);
    release((void *)(uintptr_t)scales);
    release((void *)(uintptr_t)norms);
}

/* ---- rows where they live ---- */

enum { ROWS = 7, ROW_FLOATS = 48 };

/* Row pointers on the device, into one slab. */
static float **row_list(float *slab)
{
    float *rows[ROWS];
    for (size_t r = 0; r < ROWS; r++)
        rows[r] = slab + (ROWS - 1 - r) * ROW_FLOATS;
    return to_device(rows, sizeof(rows));
}

static double draw(enum fr_init_kind kind, uint64_t key, uint64_t index)
{
    switch (kind) {
    case FR_INIT_NORMAL:
        return (double)random_weight(9, 77, key, index);
    case FR_INIT_TRUNCATED_NORMAL:
        return fr_random_truncated_normal(9, 77, key, index);
    case FR_INIT_UNIFORM:
        return 2.0 * fr_random_uniform(9, 77, key, index) - 1.0;
    default:
        return kind == FR_INIT_CONSTANT;
    }
}

FR_CASE(first_values_of_rows_are_the_hosts_to_the_bit)
{
    static const enum fr_init_kind kinds[] = {FR_INIT_ZEROS, FR_INIT_CONSTANT, FR_INIT_UNIFORM, FR_INIT_NORMAL,
                                              FR_INIT_TRUNCATED_NORMAL};
    uint64_t keys[ROWS];
    float got[ROWS][ROW_FLOATS];
    for (size_t r = 0; r < ROWS; r++)
        keys[r] = fr_random_u64(1, 2, 3, r);
    for (size_t k = 0; k < FR_ARRAY_LEN(kinds); k++) {
        const struct fr_device_part_init parts[] = {{0, 5, 38, 2, 0.25f, kinds[k], 0.01},
                                                    {5, 33, 40, 8, 0.0f, FR_INIT_NORMAL, 2.0}};
        memset(got, 0xff, sizeof(got));
        float *slab = to_device(got, sizeof(got)), **rows = row_list(slab);
        uint64_t *there = to_device(keys, sizeof(keys));
        void *parts_there = to_device(parts, sizeof(parts));
        const struct fr_device_row_init call = {ROWS, rows, there, parts_there, 2, 9, 77};
        fr_shim_api()->ops->init_rows(fr_shim_queue(), &call);
        from_device(got, slab, sizeof(got));
        for (size_t r = 0; r < ROWS; r++) {
            const float *row = got[ROWS - 1 - r];
            for (uint32_t j = 0; j < 38; j++) {
                enum fr_init_kind kind = j < 5 ? kinds[k] : FR_INIT_NORMAL;
                assert_true(row[j] == (float)(draw(kind, keys[r], j) * (j < 5 ? 0.01 : 2.0)));
            }
            for (uint32_t j = 38; j < ROW_FLOATS; j++)
                assert_true(row[j] == (j < 40 ? 0.25f : 0.0f));
        }
        release(slab);
        release(rows);
        release(there);
        release(parts_there);
    }
}

FR_CASE(rows_go_to_staging_in_the_lists_order_and_back)
{
    float values[ROWS][ROW_FLOATS], staged[ROWS][ROW_FLOATS], again[ROWS][ROW_FLOATS];
    fill(values[0], ROWS * ROW_FLOATS, 6);
    memset(again, 0, sizeof(again));
    float *slab = to_device(values, sizeof(values)), **rows = row_list(slab);
    float *staging = to_device(again, sizeof(again)), *other = to_device(again, sizeof(again));
    struct fr_device_rows call = {ROWS, rows, staging, ROW_FLOATS};
    fr_shim_api()->ops->gather_rows(fr_shim_queue(), &call);
    from_device(staged, staging, sizeof(staged));
    for (size_t r = 0; r < ROWS; r++)
        assert_memory_equal(staged[r], values[ROWS - 1 - r], sizeof(staged[r]));
    release(rows);
    call.rows = rows = row_list(other);
    fr_shim_api()->ops->scatter_rows(fr_shim_queue(), &call);
    from_device(again, other, sizeof(again));
    assert_memory_equal(again, values, sizeof(again));
    release(slab);
    release(rows);
    release(staging);
    release(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_over_its_bound_sets_the_flag_and_nothing_clears_it),
        cmocka_unit_test(a_refused_step_updates_nothing),
        cmocka_unit_test(clipping_by_a_sum_on_the_device_is_clipping_by_the_hosts),
        cmocka_unit_test(first_values_of_rows_are_the_hosts_to_the_bit),
        cmocka_unit_test(rows_go_to_staging_in_the_lists_order_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
