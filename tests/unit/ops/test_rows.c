/* Updates of rows by every backend against the reference. Poolings: test_pooling.c; the rules:
 * test_optimizers.c. */
#include "rows_scene.h"

#include "base/math.h"

/* Two parts, two groups: group 0 (ids 0-5) reads part 0 twice (sum, and mean with scale) and part
 * 1, id by id; group 1 (ids 6-11) part 0, weighted. */
struct update_world {
    struct fr_view memory, gradients, step_gradients;
    float *rows[UNIQUE];
    uint32_t occ_begin[UNIQUE + 1], occ[IDS], occ_from[IDS];
    uint32_t trained[SAMPLES];
    uint32_t source_begin[3];
    struct fr_row_source sources[4];
    struct fr_row_part parts[2];
    float scale[SAMPLES];
    float *scratch;
    struct fr_row_update update;
};

static bool adam_kind(enum fr_optimizer_kind kind)
{
    return kind == FR_OPT_ADAM || kind == FR_OPT_ADAM_ROWWISE;
}

static void make_world(struct update_world *w, enum fr_optimizer_kind kind, uint32_t dim, bool clipped)
{
    memset(w, 0, sizeof(*w));
    uint32_t row_floats = 2 * dim + 2 * (2 * dim + 2);
    struct fr_optimizer optimizer = test_optimizer(kind);
    optimizer.l1 = 0.01f;
    optimizer.l21 = 0.3f;
    w->memory = random_view(UNIQUE, row_floats, row_floats, 40);
    for (uint32_t u = 0; u < UNIQUE; u++) {
        float *states = w->memory.values + u * row_floats + 2 * dim;
        for (uint32_t i = 0; i < 2 * (2 * dim + 2); i++)
            states[i] = fabsf(states[i]);
        for (uint32_t p = 0; p < 2 && adam_kind(kind); p++) /* steps of the row are a count */
            states[p * (2 * dim + 2) + fr_row_state_floats(kind, dim) - 1] = (float)u;
    }
    make_row_pointers(w->memory.values, row_floats, w->rows);
    w->parts[0] = (struct fr_row_part){0, dim, 2 * dim, optimizer};
    optimizer.clip_norm = clipped ? 0.5f : 0.0f;
    optimizer.clip_value = clipped ? 0.3f : 0.0f;
    w->parts[1] = (struct fr_row_part){dim, dim, 4 * dim + 2, optimizer};
    w->gradients = random_view(SAMPLES, dim, dim + 1, 41);
    w->step_gradients = random_view(6, dim, dim + 2, 43);
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
    for (uint32_t p = 0; p < IDS; p++)
        w->occ_from[p] = from(w->occ[p] % 6 > 4 ? 2 : w->occ[p] % 5, w->occ[p] / 6);
    for (uint32_t s = 0; s < SAMPLES; s++)
        /* above 1: the number of samples that share the entry */
        w->trained[s] = s == 1 ? 0 : 1 + s % 3;
    w->source_begin[1] = 3;
    w->source_begin[2] = 4;
    struct fr_row_source plain = {.gradient = w->gradients, .trained = w->trained, .counted = w->trained};
    for (uint32_t i = 0; i < 4; i++)
        w->sources[i] = plain;
    w->sources[1].pooling = FR_POOL_MEAN;
    w->sources[1].kept = w->scale;
    w->sources[2] = (struct fr_row_source){.part = 1,
                                           .gradient = w->step_gradients,
                                           .weights = id_weights,
                                           .trained = w->trained,
                                           .counted = w->trained,
                                           .by_id = true};
    w->sources[3].first = 6;
    w->sources[3].weights = id_weights;
    w->sources[3].pooling = FR_POOL_MEAN;
    w->sources[3].kept = w->scale;
    w->scratch = guarded(4 * ((dim + 15) / 16 * 16));
    w->update = (struct fr_row_update){.rows = w->rows,
                                       .occ_begin = w->occ_begin,
                                       .occ = w->occ,
                                       .occ_from = w->occ_from,
                                       .entry_bits = ENTRY_BITS,
                                       .n_groups = 2,
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
    release_guarded(w->step_gradients.values, 6 * w->step_gradients.ld);
    release_guarded(w->scratch, 4 * ((dim + 15) / 16 * 16));
}

#define ROW_KIND(name, text, number, where, ...) FR_ROWS_##where(name, )
static const enum fr_optimizer_kind row_kinds[] = {FR_OPTIMIZERS(ROW_KIND)};

/* Three steps in two blocks, as workers do; again must give the same bits. */
static void compare_updates(const struct fr_ops *ops, enum fr_optimizer_kind kind, uint32_t dim, bool clipped)
{
    struct update_world got, again, want;
    make_world(&got, kind, dim, clipped);
    make_world(&again, kind, dim, clipped);
    make_world(&want, kind, dim, clipped);
    for (uint32_t step = 0; step < 3; step++) {
        got.update.end = 2;
        ops->update_rows(&got.update);
        got.update.begin = 2, got.update.end = UNIQUE;
        ops->update_rows(&got.update);
        got.update.begin = 0;
        ops->update_rows(&again.update);
        fr_reference_ops()->update_rows(&want.update);
    }
    char what[64];
    snprintf(what, sizeof(what), "%s, kind %d, dim %u", ops->name, (int)kind, dim);
    assert_nmse(got.memory, want.memory, UNIQUE, 2 * dim, 1e-10, what); /* values */
    assert_nmse(got.memory, want.memory, UNIQUE, got.memory.ld, 1e-10, what);
    assert_same_bits(got.memory, again.memory, UNIQUE, got.memory.ld, what);
    release_world(&got, dim);
    release_world(&again, dim);
    release_world(&want, dim);
}

FR_CASE(row_updates_agree_with_the_reference)
{
    struct backend_list list = list_backends();
    static const uint32_t dims[] = {1, 5, 16, 70};
    for (size_t b = 0; b < list.n; b++)
        for (size_t k = 0; k < FR_ARRAY_LEN(row_kinds); k++)
            for (size_t d = 0; d < FR_ARRAY_LEN(dims); d++)
                for (int clipped = 0; clipped < 2; clipped++)
                    compare_updates(list.ops[b], row_kinds[k], dims[d], clipped);
}

/* 40 rows of one value, an occurrence each in a sample of its own: value, z, squares. */
enum { WEIGHTS = 40, WEIGHT_FLOATS = 3 };

struct weight_world {
    float memory[WEIGHTS][WEIGHT_FLOATS], gradient[WEIGHTS];
    float *rows[WEIGHTS];
    uint32_t occ_begin[WEIGHTS + 1], occ[WEIGHTS], occ_from[WEIGHTS], trained[WEIGHTS];
    struct fr_row_part part;
    struct fr_row_source source;
    float scratch[32];
};

/* Row 7 is absent, row 9 occurs in an untrained sample, every fourth row has met no gradient. */
static void make_weights(struct weight_world *w)
{
    memset(w, 0, sizeof(*w));
    fill(&w->memory[0][0], WEIGHTS * WEIGHT_FLOATS, 50);
    fill(w->gradient, WEIGHTS, 51);
    for (uint32_t i = 0; i < WEIGHTS; i++) {
        w->memory[i][2] = i % 4 == 0 ? 0.0f : fabsf(w->memory[i][2]);
        w->rows[i] = i == 7 ? NULL : w->memory[i];
        w->occ[i] = i;
        w->occ_begin[i + 1] = i + 1;
        w->trained[i] = i != 9;
        w->occ_from[i] = from(i, 0);
    }
    struct fr_optimizer optimizer = {.kind = FR_OPT_FTRL, .lr = 0.1f, .beta = 1.0f, .l1 = 0.2f, .l2 = 0.02f};
    w->part = (struct fr_row_part){0, 1, 1, optimizer};
    w->source = (struct fr_row_source){.gradient = {w->gradient, 1}, .trained = w->trained, .counted = w->trained};
}

static void step_weights(const struct fr_ops *ops, struct weight_world *w, uint32_t begin, uint32_t end)
{
    const uint32_t source_begin[] = {0, 1};
    ops->update_rows(&(struct fr_row_update){.rows = w->rows,
                                             .occ_begin = w->occ_begin,
                                             .occ = w->occ,
                                             .occ_from = w->occ_from,
                                             .entry_bits = ENTRY_BITS,
                                             .n_groups = 1,
                                             .source_begin = source_begin,
                                             .sources = &w->source,
                                             .parts = &w->part,
                                             .n_parts = 1,
                                             .begin = begin,
                                             .end = end,
                                             .scratch = w->scratch});
}

FR_CASE(weights_of_ftrl_are_stepped_as_each_alone)
{
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        struct weight_world got, parts, want;
        make_weights(&got);
        make_weights(&parts);
        make_weights(&want);
        for (uint32_t step = 0; step < 3; step++) {
            step_weights(list.ops[b], &got, 0, WEIGHTS);
            step_weights(list.ops[b], &parts, 0, 17);
            step_weights(list.ops[b], &parts, 17, 18);
            step_weights(list.ops[b], &parts, 18, WEIGHTS);
            for (uint32_t i = 0; i < WEIGHTS; i++) {
                float g = want.gradient[i];
                if (i != 7 && i != 9)
                    fr_row_step(want.memory[i], want.memory[i] + 1, &g, 1, 1, &want.part.optimizer);
            }
        }
        assert_memory_equal(got.memory, want.memory, sizeof(want.memory));
        assert_memory_equal(parts.memory, want.memory, sizeof(want.memory));
    }
}

/* Keys of one reader a slot, one of which occurs more often than a block holds: [PLAIN_KEYS]
 * rows. */
enum { PLAIN_KEYS = 40, PLAIN_ENTRIES = 150, PLAIN_IDS = 2 * PLAIN_ENTRIES, PLAIN_DIM_MAX = 17 };

static void step_plainly(const struct fr_ops *ops, const struct fr_optimizer *optimizer, uint32_t dim, bool whole,
                         float *memory)
{
    enum fr_optimizer_kind kind = optimizer->kind;
    uint32_t states = fr_row_state_floats(kind, dim), floats = dim + states, n = 0;
    uint32_t occ_begin[PLAIN_KEYS + 1] = {0}, occ[PLAIN_IDS], occ_from[PLAIN_IDS], ones[PLAIN_ENTRIES];
    float *rows[PLAIN_KEYS], *scratch = guarded(2 * ((dim + 15) / 16 * 16));
    struct fr_view gradients[2];
    struct fr_row_source sources[2];
    const struct fr_row_part part = {0, dim, dim, *optimizer};
    const uint32_t source_begin[] = {0, 1, 2};
    fill(memory, (size_t)PLAIN_KEYS * floats, 60);
    for (uint32_t s = 0; s < PLAIN_ENTRIES; s++)
        ones[s] = 1;
    for (uint32_t g = 0; g < 2; g++) {
        gradients[g] = random_view(PLAIN_ENTRIES, dim, dim + g, 61 + g);
        sources[g] = (struct fr_row_source){
            .first = g * PLAIN_ENTRIES, .gradient = gradients[g], .trained = ones, .counted = ones, .whole = whole};
    }
    for (uint32_t u = 0; u < PLAIN_KEYS; u++) {
        rows[u] = u == 7 ? NULL : memory + (size_t)u * floats;
        for (uint32_t i = 0; i < states; i++)
            memory[(size_t)u * floats + dim + i] = fabsf(memory[(size_t)u * floats + dim + i]);
        for (uint32_t o = 0; o < PLAIN_IDS; o++) {
            if ((o % 2 ? o * 7 / 2 % PLAIN_KEYS : 0) != u)
                continue;
            occ[n] = o;
            occ_from[n++] = from(o % PLAIN_ENTRIES, o / PLAIN_ENTRIES);
        }
        occ_begin[u + 1] = n;
    }
    ops->update_rows(&(struct fr_row_update){.rows = rows,
                                             .occ_begin = occ_begin,
                                             .occ = occ,
                                             .occ_from = occ_from,
                                             .entry_bits = ENTRY_BITS,
                                             .n_groups = 2,
                                             .source_begin = source_begin,
                                             .sources = sources,
                                             .parts = &part,
                                             .n_parts = 1,
                                             .end = PLAIN_KEYS,
                                             .scratch = scratch});
    for (uint32_t g = 0; g < 2; g++)
        release_guarded(gradients[g].values, PLAIN_ENTRIES * gradients[g].ld);
    release_guarded(scratch, 2 * ((dim + 15) / 16 * 16));
}

FR_CASE(rows_whose_entries_all_count_are_stepped_to_the_same_bits_without_asking)
{
    struct backend_list list = list_backends();
    static const uint32_t dims[] = {1, 8, 16, PLAIN_DIM_MAX};
    for (size_t b = 0; b < list.n; b++)
        for (size_t k = 0; k < 2 * FR_ARRAY_LEN(row_kinds); k++)
            for (size_t d = 0; d < FR_ARRAY_LEN(dims); d++) {
                struct fr_optimizer optimizer = test_optimizer(row_kinds[k / 2]);
                if (k % 2) { /* without options that change a gradient before the rule */
                    optimizer.keep = 0.99;
                    optimizer.clip_norm = optimizer.clip_value = optimizer.l1 = optimizer.l2 = 0.0f;
                }
                float got[PLAIN_KEYS * (3 * PLAIN_DIM_MAX + 2)], want[PLAIN_KEYS * (3 * PLAIN_DIM_MAX + 2)];
                step_plainly(list.ops[b], &optimizer, dims[d], true, got);
                step_plainly(list.ops[b], &optimizer, dims[d], false, want);
                size_t floats = dims[d] + fr_row_state_floats(optimizer.kind, dims[d]);
                assert_memory_equal(got, want, PLAIN_KEYS * floats * sizeof(float));
            }
}

FR_CASE(a_part_no_trained_occurrence_reaches_keeps_its_bits)
{
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        for (size_t k = 0; k < FR_ARRAY_LEN(row_kinds); k++) {
            struct update_world got, before;
            make_world(&got, row_kinds[k], 8, false);
            make_world(&before, row_kinds[k], 8, false);
            /* key 4 occurs in an untrained sample only, key 2 in group 1 only */
            for (uint32_t p = 0; p < IDS; p++)
                if (unique_of[got.occ[p]] == 4)
                    got.occ_from[p] = from(1, got.occ[p] / 6);
                else if (unique_of[got.occ[p]] == 2)
                    got.occ_from[p] = from(0, 1);
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

FR_CASE(check_rows_measures_the_gradients_and_changes_nothing)
{
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        struct update_world got, before;
        make_world(&got, FR_OPT_ADAGRAD, 16, false);
        make_world(&before, FR_OPT_ADAGRAD, 16, false);
        float largest = fr_bits_f32(list.ops[b]->check_rows(&got.update));
        float expected = fr_bits_f32(fr_reference_ops()->check_rows(&before.update));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_updates_agree_with_the_reference),
        cmocka_unit_test(weights_of_ftrl_are_stepped_as_each_alone),
        cmocka_unit_test(rows_whose_entries_all_count_are_stepped_to_the_same_bits_without_asking),
        cmocka_unit_test(a_part_no_trained_occurrence_reaches_keeps_its_bits),
        cmocka_unit_test(check_rows_measures_the_gradients_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
