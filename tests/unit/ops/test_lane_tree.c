/* The order in which lanes are joined (ops/lane_tree.h), and rows of which several lanes have
 * occurrences, against the tree by its definition. */
#include <inttypes.h>

#include "rows_scene.h"

#include "base/random.h"
#include "base/ranks.h"

/* Joins what is present of lanes [lane, lane + span); false: nothing. */
static bool join(const double *sums, uint64_t present, uint32_t lane, uint32_t span, double *out)
{
    double right;
    if (span == 1) {
        *out = sums[lane];
        return present >> lane & 1;
    }
    bool is_left = join(sums, present, lane, span / 2, out);
    if (!join(sums, present, lane + span / 2, span / 2, &right))
        return is_left;
    *out = is_left ? *out + right : right;
    return true;
}

/* Numbers of very different sizes, so that another order is another result; some are minus zero. */
static double number(uint64_t set, uint32_t lane)
{
    double u = fr_random_uniform(5, 1, set, lane);
    return u < 0.1 ? -0.0 : (u - 0.5) * pow(2.0, 40.0 * fr_random_uniform(5, 2, set, lane));
}

static void compare_set(uint64_t set, uint64_t present)
{
    struct fr_lane_sum sum = {0};
    double sums[FR_LANES_MAX], want = 0.0;
    for (uint32_t lane = 0; lane < FR_LANES_MAX; lane++) {
        sums[lane] = number(set, lane);
        if (present >> lane & 1)
            fr_lane_sum_add(&sum, lane, sums[lane]);
        assert_true(sum.tree.depth <= FR_LANE_TREE_DEPTH);
    }
    if (!join(sums, present, 0, FR_LANES_MAX, &want))
        want = 0.0;
    double got = fr_lane_sum_total(&sum);
    if (memcmp(&got, &want, sizeof(got)) != 0)
        fail_msg("lanes %#" PRIx64 ": %a, expected %a", present, got, want);
}

FR_CASE(lanes_are_joined_as_a_complete_tree_without_those_that_are_absent)
{
    for (uint64_t present = 0; present < 1 << 12; present++)
        compare_set(present, present);
    for (uint64_t set = 0; set < 4000; set++) {
        uint64_t all = UINT64_MAX;
        for (uint32_t lane = 0; lane < FR_LANES_MAX && set > 0; lane++)
            if (fr_random_uniform(5, 3, set, lane) < (double)(set % 10) / 10.0)
                all &= ~(1ull << lane);
        compare_set(set, all);
    }
}

/* A lane that has only minus zero keeps it: nothing is added for the lanes that are absent. */
FR_CASE(nothing_is_added_for_an_absent_lane)
{
    struct fr_lane_sum sum = {0};
    fr_lane_sum_add(&sum, 5, -0.0);
    double got = fr_lane_sum_total(&sum);
    assert_true(signbit(got));
}

/* The sum of the present lanes of a span. */
static bool sum_span(const double *sums, uint64_t present, struct fr_lane_span span, double *out)
{
    struct fr_lane_sum sum = {0};
    bool any = false;
    for (uint32_t lane = span.first; lane < span.end && lane < FR_LANES_MAX; lane++)
        if (present >> lane & 1) {
            fr_lane_sum_add(&sum, lane, sums[lane]);
            any = true;
        }
    *out = fr_lane_sum_total(&sum);
    return any;
}

FR_CASE(spans_of_processes_join_to_the_tree_of_all_lanes)
{
    for (uint64_t set = 0; set < 4000; set++) {
        uint32_t n_lanes = 1 + (uint32_t)(set % FR_LANES_MAX);
        uint32_t ranks = 1 + (uint32_t)(fr_random_uniform(5, 4, set, 0) * n_lanes);
        uint64_t present = 0;
        double sums[FR_LANES_MAX], want, part, got;
        struct fr_lane_sum all = {0}, whole = {0};
        for (uint32_t lane = 0; lane < n_lanes; lane++) {
            sums[lane] = number(set, lane);
            if (fr_random_uniform(5, 5, set, lane) < 0.7)
                present |= 1ull << lane;
            if (present >> lane & 1)
                fr_lane_sum_add(&whole, lane, sums[lane]);
        }
        want = fr_lane_sum_total(&whole);
        for (uint32_t r = 0, next = 0; r < ranks; r++) {
            struct fr_domains lanes = fr_rank_domains(r, ranks, n_lanes);
            struct fr_lane_span spans[FR_LANE_SPANS_MAX];
            uint32_t n = fr_lane_spans(lanes.first, lanes.end, n_lanes, spans);
            assert_true(n >= 1 && n <= FR_LANE_SPANS_MAX && (ranks > 1 || n == 1));
            for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(spans[i].first, next);
                next = spans[i].end;
                if (sum_span(sums, present, spans[i], &part))
                    fr_lane_sum_add(&all, spans[i].first, part);
            }
        }
        got = fr_lane_sum_total(&all);
        if (memcmp(&got, &want, sizeof(got)) != 0)
            fail_msg("%u lanes, %u ranks: %a, expected %a", n_lanes, ranks, got, want);
    }
}

/* ---- rows ---- */

enum { KEYS = 40, DIM_MAX = 16, OCCURRENCES = 3000, BLOCK = FR_OCCURRENCE_BLOCK };

/* One slot; occurrence o is entry o. Keys have very different numbers of occurrences in lanes of
 * very different numbers. */
struct keys {
    uint32_t dim, n, occ_begin[KEYS + 1], occ[OCCURRENCES], occ_from[OCCURRENCES], ones[OCCURRENCES];
    uint8_t lanes[OCCURRENCES];
    float *gradients, *memory, *rows[KEYS], *scratch;
};

static void make_keys(struct keys *k, uint32_t dim)
{
    memset(k, 0, sizeof(*k));
    k->dim = dim;
    for (uint32_t u = 0; u < KEYS; u++) {
        uint32_t size = u % 5 == 0 ? 1 : (uint32_t)(150.0 * fr_random_uniform(6, 1, u, 0)) + 1, from = k->n;
        for (uint32_t i = 0; i < size && k->n < OCCURRENCES; i++, k->n++)
            k->lanes[k->n] = (uint8_t)((uint64_t)i * i * (u % 64) / ((uint64_t)size * size));
        k->occ_begin[u + 1] = k->n;
        assert_true(k->n > from);
    }
    k->gradients = fr_alloc((size_t)k->n * dim, sizeof(float));
    for (uint32_t o = 0; o < k->n; o++) {
        k->occ[o] = o;
        k->occ_from[o] = o;
        k->ones[o] = 1;
        for (uint32_t i = 0; i < dim; i++)
            k->gradients[o * dim + i] = o % 7 == 3 ? -0.0f : (float)number(o, i);
    }
    for (uint32_t u = 6; u < KEYS; u += 8) /* of these keys nothing is left but minus zero */
        for (uint32_t i = k->occ_begin[u] * dim; i < k->occ_begin[u + 1] * dim; i++)
            k->gradients[i] = -0.0f;
    k->memory = fr_alloc_aligned(64, (size_t)KEYS * dim * sizeof(float));
    k->scratch = fr_alloc_aligned(64, (size_t)FR_ROW_SCRATCH_LANES * DIM_MAX * sizeof(float));
    for (uint32_t u = 0; u < KEYS; u++)
        k->rows[u] = k->memory + (size_t)u * dim;
    for (uint32_t i = 0; i < KEYS * dim; i++)
        k->memory[i] = -0.0f;
}

static void release_keys(struct keys *k)
{
    free(k->gradients);
    free(k->memory);
    free(k->scratch);
}

/* One value of a key's gradient: in each lane blocks, and then the tree. */
static float gradient_of(const struct keys *k, uint32_t u, uint32_t i)
{
    float lanes[FR_LANES_MAX] = {0};
    uint64_t present = 0;
    for (uint32_t o = k->occ_begin[u]; o < k->occ_begin[u + 1];) {
        uint32_t lane = k->lanes[o];
        for (bool begun = false; o < k->occ_begin[u + 1] && k->lanes[o] == lane; begun = true) {
            float block = k->gradients[o * k->dim + i];
            uint32_t end = o + BLOCK;
            for (o++; o < end && o < k->occ_begin[u + 1] && k->lanes[o] == lane; o++)
                block += k->gradients[o * k->dim + i];
            lanes[lane] = begun ? lanes[lane] + block : block;
        }
        present |= 1ull << lane;
    }
    for (uint32_t span = 1; span < FR_LANES_MAX; span *= 2)
        for (uint32_t lane = 0; lane < FR_LANES_MAX; lane += 2 * span) {
            bool is_left = present >> lane & 1, is_right = present >> (lane + span) & 1;
            if (is_left && is_right)
                lanes[lane] += lanes[lane + span];
            else if (is_right)
                lanes[lane] = lanes[lane + span];
            if (is_right)
                present |= 1ull << lane;
        }
    return lanes[0];
}

/* Steps of sgd from -0 with a rate that is a power of two and undamped show every bit. With
 * `scaled` the slot has weights, so that the loops of plain.c do not apply. */
static void compare_rows(uint32_t dim, bool scaled)
{
    struct keys k;
    make_keys(&k, dim);
    float *weights = fr_alloc(k.n, sizeof(*weights));
    for (uint32_t o = 0; o < k.n; o++)
        weights[o] = 1.0f;
    uint32_t source_begin[2] = {0, 1};
    struct fr_row_source source = {.gradient = {k.gradients, dim},
                                   .trained = k.ones,
                                   .counted = k.ones,
                                   .weights = scaled ? weights : NULL,
                                   .whole = true};
    struct fr_optimizer sgd = test_optimizer(FR_OPT_SGD);
    sgd.lr = 0x1p-60f;
    sgd.l1 = sgd.l2 = sgd.l21 = sgd.clip_norm = sgd.clip_value = 0.0f;
    struct fr_row_part part = {.dim = dim, .optimizer = sgd};
    fr_ops_cpu()->update_rows(&(struct fr_row_update){.rows = k.rows,
                                                      .occ_begin = k.occ_begin,
                                                      .occ = k.occ,
                                                      .occ_from = k.occ_from,
                                                      .occ_lane = k.lanes,
                                                      .entry_bits = 20,
                                                      .n_groups = 1,
                                                      .source_begin = source_begin,
                                                      .sources = &source,
                                                      .parts = &part,
                                                      .n_parts = 1,
                                                      .end = KEYS,
                                                      .scratch = k.scratch});
    for (uint32_t u = 0; u < KEYS; u++)
        for (uint32_t i = 0; i < dim; i++) {
            float got = k.rows[u][i] * -0x1p60f, want = gradient_of(&k, u, i);
            if (memcmp(&got, &want, sizeof(got)) != 0)
                fail_msg("dim %u, key %u, value %u: %a, expected %a", dim, u, i, (double)got, (double)want);
        }
    free(weights);
    release_keys(&k);
}

FR_CASE(rows_are_summed_in_each_lane_and_then_by_the_tree)
{
    static const uint32_t dims[] = {1, 3, 8, 16};
    for (size_t d = 0; d < FR_ARRAY_LEN(dims); d++) {
        compare_rows(dims[d], false);
        compare_rows(dims[d], true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_are_joined_as_a_complete_tree_without_those_that_are_absent),
        cmocka_unit_test(spans_of_processes_join_to_the_tree_of_all_lanes),
        cmocka_unit_test(nothing_is_added_for_an_absent_lane),
        cmocka_unit_test(rows_are_summed_in_each_lane_and_then_by_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
