/* Pooling of rows by every backend against the reference; the gradients of poolings against the
 * slopes of what they pool. */
#include "rows_scene.h"

#include "base/math.h"
#include "ops/pooling.h"

static void gather_with(const struct fr_ops *ops, uint32_t dim, enum fr_pooling kind, bool weighted, struct fr_view out,
                        float *kept)
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
                               .entry_end = SAMPLES,
                               .kind = kind,
                               .kept = kept,
                               .out = out};
    ops->gather(&gather);
    release_guarded(memory.values, UNIQUE * (dim + 3));
}

FR_CASE(pooling_agrees_with_the_reference)
{
    struct backend_list list = list_backends();
    static const uint32_t dims[] = {1, 3, 16, 45};
    static const enum fr_pooling poolings[] = {FR_ROW_POOLINGS(FR_KIND_MEMBER)};
    enum { N = FR_ARRAY_LEN(poolings) };
    for (size_t b = 0; b < list.n; b++) {
        for (uint32_t variant = 0; variant < 8 * N; variant++) {
            uint32_t dim = dims[variant / (2 * N)];
            enum fr_pooling kind = poolings[variant / 2 % N];
            struct fr_view got = {guarded(SAMPLES * (dim + 2)), dim + 2},
                           want = {guarded(SAMPLES * (dim + 2)), dim + 2};
            size_t n = (size_t)SAMPLES * fr_pooling_kept(kind, dim);
            float *kept = guarded(n), *kept_want = guarded(n);
            gather_with(list.ops[b], dim, kind, variant & 1, got, kept);
            gather_with(fr_reference_ops(), dim, kind, variant & 1, want, kept_want);
            assert_nmse(got, want, SAMPLES, dim, 1e-12, list.ops[b]->name);
            if (fr_pooling_keeps_scale(kind))
                assert_nmse((struct fr_view){kept, 1}, (struct fr_view){kept_want, 1}, SAMPLES, 1, 1e-12, "scale");
            else
                assert_memory_equal(kept, kept_want, n * sizeof(float));
            assert_row_ends_untouched(got, SAMPLES, dim);
            release_guarded(got.values, SAMPLES * (dim + 2));
            release_guarded(want.values, SAMPLES * (dim + 2));
            release_guarded(kept, n);
            release_guarded(kept_want, n);
        }
    }
}

FR_CASE(an_entry_of_one_id_is_its_row_to_the_bit)
{
    struct backend_list list = list_backends();
    static const uint32_t dims[] = {1, 5, 8, 16};
    static const enum fr_pooling poolings[] = {FR_ROW_POOLINGS(FR_KIND_MEMBER)};
    uint32_t begin[IDS + 1];
    for (uint32_t s = 0; s <= IDS; s++)
        begin[s] = s;
    for (size_t b = 0; b < list.n; b++)
        for (size_t v = 0; v < FR_ARRAY_LEN(dims) * FR_ARRAY_LEN(poolings); v++) {
            uint32_t dim = dims[v % FR_ARRAY_LEN(dims)];
            float *rows[UNIQUE], kept[IDS * 16];
            struct fr_view memory = random_view(UNIQUE, dim + 1, dim + 1, 9), out = random_view(IDS, dim, dim + 2, 10);
            make_row_pointers(memory.values, dim + 1, rows);
            list.ops[b]->gather(&(struct fr_gather){.begin = begin,
                                                    .unique_of = unique_of,
                                                    .rows = rows,
                                                    .value_offset = 1,
                                                    .dim = dim,
                                                    .entry_begin = 2,
                                                    .entry_end = IDS,
                                                    .kind = poolings[v / FR_ARRAY_LEN(dims)],
                                                    .kept = kept,
                                                    .out = out});
            for (uint32_t s = 2; s < IDS; s++)
                for (uint32_t i = 0; i < dim; i++) {
                    const float *row = rows[unique_of[s]];
                    assert_true(out.values[s * out.ld + i] == (row ? row[1 + i] : 0.0f));
                    if (fr_pooling_keeps_scale(poolings[v / FR_ARRAY_LEN(dims)]))
                        assert_true(kept[s] == 1.0f);
                }
            assert_row_ends_untouched(out, IDS, dim);
            release_guarded(memory.values, UNIQUE * (dim + 1));
            release_guarded(out.values, IDS * out.ld);
        }
}

FR_CASE(means_count_ids_without_a_row)
{
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++) {
        float one = 6.0f, *rows[2] = {&one, NULL}, out[3] = {9.0f, 9.0f, 9.0f}, kept[3];
        const uint32_t begin[4] = {0, 3, 3, 4}, unique[4] = {0, 1, 1, 0};
        const float weights[4] = {1.0f, 1.0f, 4.0f, 0.0f};
        struct fr_gather gather = {.begin = begin,
                                   .unique_of = unique,
                                   .rows = rows,
                                   .dim = 1,
                                   .entry_end = 3,
                                   .kind = FR_POOL_MEAN,
                                   .kept = kept,
                                   .out = {out, 1}};
        list.ops[b]->gather(&gather);
        assert_true(fabsf(out[0] - 2.0f) < 1e-6f && out[1] == 0.0f && out[2] == 6.0f);
        gather.weights = weights;
        list.ops[b]->gather(&gather);
        assert_true(fabsf(out[0] - 1.0f) < 1e-6f && out[1] == 0.0f && out[2] == 0.0f);
        gather.kind = FR_POOL_SQRTN; /* 6 / sqrt(1 + 1 + 16) */
        list.ops[b]->gather(&gather);
        assert_true(fabsf(out[0] - 1.41421356f) < 1e-6f && out[1] == 0.0f && out[2] == 0.0f);
    }
}

/* ---- gradients of poolings ---- */

/* Rows of one part that one slot reads: what a step of SGD subtracts from them, divided by the
 * rate, is the gradient of the sum of the pooled entries times some numbers, for every pooling. */
enum { POOLED_DIM_MAX = 16 };
static const float POOLED_RATE = 0x1p-10f; /* so small that steps are hardly damped */
struct pooled {
    uint32_t dim;
    enum fr_pooling kind;
    bool weighted;
    struct fr_view memory, along; /* rows; those numbers, [SAMPLES, dim] */
};

/* Pools the rows of every sample. `kept`: [SAMPLES, fr_pooling_kept], `out`: [SAMPLES, dim]. */
static void pool_rows(const struct fr_ops *ops, const struct pooled *p, float **rows, float *kept, struct fr_view out)
{
    ops->gather(&(struct fr_gather){.begin = id_begin,
                                    .weights = p->weighted ? id_weights : NULL,
                                    .unique_of = unique_of,
                                    .rows = rows,
                                    .dim = p->dim,
                                    .entry_end = SAMPLES,
                                    .kind = p->kind,
                                    .kept = kept,
                                    .out = out});
}

static double pooled_sum(const struct pooled *p)
{
    struct fr_view out = random_view(SAMPLES, p->dim, p->dim, 1);
    float *rows[UNIQUE], kept[SAMPLES * POOLED_DIM_MAX];
    double sum = 0.0;
    make_row_pointers(p->memory.values, p->dim, rows);
    pool_rows(fr_reference_ops(), p, rows, kept, out);
    for (size_t i = 0; i < (size_t)SAMPLES * p->dim; i++)
        sum += (double)out.values[i] * (double)p->along.values[i];
    release_guarded(out.values, SAMPLES * out.ld);
    return sum;
}

/* [UNIQUE, dim]: central differences of pooled_sum. */
static struct fr_view pooled_slopes(const struct pooled *p)
{
    const float h = 0x1p-10f; /* so small that a choice of rows seldom changes within it */
    struct fr_view slopes = random_view(UNIQUE, p->dim, p->dim, 2);
    for (size_t i = 0; i < (size_t)UNIQUE * p->dim; i++) {
        float at = p->memory.values[i];
        p->memory.values[i] = at + h;
        double above = pooled_sum(p);
        p->memory.values[i] = at - h;
        slopes.values[i] = (float)((above - pooled_sum(p)) / (2.0 * (double)h));
        p->memory.values[i] = at;
    }
    return slopes;
}

static void step_pooled(const struct fr_ops *ops, struct pooled *p)
{
    struct fr_view out = random_view(SAMPLES, p->dim, p->dim, 3);
    float *rows[UNIQUE], kept[SAMPLES * POOLED_DIM_MAX], *scratch = guarded(2 * 64);
    uint32_t ones[SAMPLES] = {1, 1, 1, 1, 1, 1}, occ_begin[UNIQUE + 1] = {0}, occ[IDS], occ_from[IDS], n = 0;
    const uint32_t source_begin[] = {0, 1};
    make_row_pointers(p->memory.values, p->dim, rows);
    const float *weights = p->weighted ? id_weights : NULL;
    pool_rows(ops, p, rows, kept, out);
    for (uint32_t u = 0; u < UNIQUE; u++) {
        for (uint32_t e = 0; e < SAMPLES; e++)
            for (uint32_t id = id_begin[e]; id < id_begin[e + 1]; id++)
                if (unique_of[id] == u) {
                    occ[n] = id;
                    occ_from[n++] = from(e, 0);
                }
        occ_begin[u + 1] = n;
    }
    const struct fr_row_source source = {.gradient = p->along,
                                         .weights = weights,
                                         .pooling = p->kind,
                                         .kept = kept,
                                         .trained = ones,
                                         .counted = ones,
                                         .whole = true};
    const struct fr_row_part part = {
        .dim = p->dim, .state_offset = p->dim, .optimizer = {.kind = FR_OPT_SGD, .lr = POOLED_RATE}};
    ops->update_rows(&(struct fr_row_update){.rows = rows,
                                             .occ_begin = occ_begin,
                                             .occ = occ,
                                             .occ_from = occ_from,
                                             .entry_bits = ENTRY_BITS,
                                             .n_groups = 1,
                                             .source_begin = source_begin,
                                             .sources = &source,
                                             .parts = &part,
                                             .n_parts = 1,
                                             .end = UNIQUE,
                                             .scratch = scratch});
    release_guarded(out.values, SAMPLES * out.ld);
    release_guarded(scratch, 2 * 64);
}

/* The lengths include those that have loops of their own, so that a pooling that takes a wrong path
 * is found. */
FR_CASE(gradients_of_every_pooling_are_the_slopes_of_what_it_pools)
{
    struct backend_list list = list_backends();
    static const uint32_t dims[] = {1, 5, 8, POOLED_DIM_MAX};
    static const enum fr_pooling poolings[] = {FR_ROW_POOLINGS(FR_KIND_MEMBER)};
    for (size_t b = 0; b < list.n; b++)
        for (size_t v = 0; v < 2 * FR_ARRAY_LEN(dims) * FR_ARRAY_LEN(poolings); v++) {
            struct pooled p = {.weighted = v % 2,
                               .dim = dims[v / 2 % FR_ARRAY_LEN(dims)],
                               .kind = poolings[v / 2 / FR_ARRAY_LEN(dims)]};
            p.memory = random_view(UNIQUE, p.dim, p.dim, 61);
            p.along = random_view(SAMPLES, p.dim, p.dim, 62);
            struct fr_view want = pooled_slopes(&p), got = random_view(UNIQUE, p.dim, p.dim, 63);
            memcpy(got.values, p.memory.values, UNIQUE * p.dim * sizeof(float));
            step_pooled(list.ops[b], &p);
            for (size_t i = 0; i < (size_t)UNIQUE * p.dim; i++)
                got.values[i] = (got.values[i] - p.memory.values[i]) / POOLED_RATE;
            char what[64];
            snprintf(what, sizeof(what), "%s, %s of %u", list.ops[b]->name, fr_pooling_text(p.kind), p.dim);
            assert_nmse(got, want, UNIQUE, p.dim, 1e-5, what);
            release_guarded(p.memory.values, UNIQUE * p.dim);
            release_guarded(p.along.values, SAMPLES * p.dim);
            release_guarded(want.values, UNIQUE * p.dim);
            release_guarded(got.values, UNIQUE * p.dim);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooling_agrees_with_the_reference),
        cmocka_unit_test(an_entry_of_one_id_is_its_row_to_the_bit),
        cmocka_unit_test(means_count_ids_without_a_row),
        cmocka_unit_test(gradients_of_every_pooling_are_the_slopes_of_what_it_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
