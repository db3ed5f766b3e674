/* First values of rows: every initializer is its distribution of the counter-based numbers of
 * (seed, table, key, index), to the bit. */
#include "store_fixture.h"
#include "random_weight.h"

enum { SEED = 7, DIM = 6, KEYS = 40 };

struct initializer {
    enum fr_init_kind kind;
    char distribution; /* u: uniform, n: normal, t: truncated normal, 0: zeros */
    double scale;      /* of numbers in +-1, or of a standard normal */
};

static double expected_value(const struct initializer *i, uint64_t stream, uint64_t key, uint64_t index)
{
    switch (i->distribution) {
    case 'u':
        return (2.0 * fr_random_uniform(SEED, stream, key, index) - 1.0) * i->scale;
    case 'n':
        return (double)random_weight(SEED, stream, key, index) * i->scale;
    case 't':
        return fr_random_truncated_normal(SEED, stream, key, index) * i->scale;
    default:
        return 0.0;
    }
}

/* The part is the second of its row, and the index counts the floats of the whole row. */
static void expect_rows(const struct initializer *initializer)
{
    struct world w = {0};
    world_add_table(&w, 1, 0, 0);
    struct fr_store_table *table = &w.tables[0];
    table->layout.n_parts = 2;
    table->layout.value_floats = 2 + DIM;
    table->layout.row_floats = 2 + DIM + 1;
    table->layout.parts[0] =
        (struct fr_layout_part){.dim = 2, .state_offset = 2 + DIM, .init = {.kind = FR_INIT_ZEROS}};
    table->layout.parts[1] = (struct fr_layout_part){.value_offset = 2,
                                                     .dim = DIM,
                                                     .state_offset = 2 + DIM,
                                                     .state_floats = 1,
                                                     .state_initial = 0.25f,
                                                     .init = {.kind = initializer->kind, .scale = 0.5f}};
    world_add_slot(&w, 0, true, true);
    world_open(&w, 1);
    struct test_batch *b = fr_alloc(1, sizeof(*b));
    batch_begin(b, &w);
    batch_sample(b, FR_ROLE_TRAIN, 0.0f);
    for (uint64_t i = 0; i < KEYS; i++)
        batch_id(b, 0, test_key(i));
    fr_store_plan(w.store, &b->batch, 1000, w.rows);
    uint64_t stream = fr_xxh3(table->name, strlen(table->name));
    const struct fr_table_rows *rows = &w.rows->tables[0];
    assert_int_equal(rows->n_unique, KEYS);
    for (uint32_t u = 0; u < KEYS; u++) {
        const float *row = rows->rows[u];
        assert_true(row[0] == 0.0f && row[1] == 0.0f && row[2 + DIM] == 0.25f);
        for (uint32_t j = 0; j < DIM; j++)
            assert_true(row[2 + j] == (float)expected_value(initializer, stream, rows->keys[u], 2 + j));
    }
    free(b);
    world_close(&w);
}

FR_CASE(every_initializer_is_its_distribution_of_the_counter)
{
    static const struct initializer initializers[] = {
        {FR_INIT_ZEROS, 0, 0.0},
        /* 1 / sqrt(6); the loader gives it to no row */
        {FR_INIT_DEFAULT, 'u', 0.40824829046386302},
        {FR_INIT_UNIFORM, 'u', 0.5},
        {FR_INIT_NORMAL, 'n', 0.5},
        {FR_INIT_TRUNCATED_NORMAL, 't', 0.5},
        /* sqrt(6 / 12): both fans are the dimension */
        {FR_INIT_XAVIER_UNIFORM, 'u', 0.70710678118654757},
        {FR_INIT_XAVIER_NORMAL, 'n', 0.40824829046386302},  /* sqrt(2 / 12) */
        {FR_INIT_KAIMING_UNIFORM, 'u', 1.0},                /* sqrt(6 / 6) */
        {FR_INIT_KAIMING_NORMAL, 'n', 0.57735026918962573}, /* sqrt(2 / 6) */
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(initializers); i++)
        expect_rows(&initializers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_initializer_is_its_distribution_of_the_counter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
