/* Some samples of a batch, selected as a batch of their own, are the batch that decoding only these
 * samples gives. */
#include "fixture.h"

enum { GROUPS = 12, TURNS = 200 };

static uint32_t dice(uint64_t *state, uint32_t n)
{
    *state = fr_fmix64(*state + 0x9e3779b97f4a7c15);
    return (uint32_t)(*state % n);
}

/* An item of a group: everything about it follows from its number. */
static void put_item(struct fr_buffer *text, uint64_t number)
{
    uint64_t d = number * 77;
    fr_buffer_printf(text, "{\"f\":{\"item_id\":%u", dice(&d, 50));
    if (dice(&d, 3) == 0)
        fr_buffer_printf(text, ",\"history\":{\"i\":[%u,%u],\"w\":[2,0.5]}", dice(&d, 50), dice(&d, 50));
    if (dice(&d, 2) == 0)
        fr_buffer_printf(text, ",\"price\":%u", dice(&d, 9));
    fr_buffer_printf(text, "},\"y\":[%u,0.5],\"w\":%u,\"s\":0.5,\"u\":%u,\"t\":%llu", dice(&d, 2), 1 + dice(&d, 4),
                     1 + dice(&d, 3), 1600000000000ull + number);
    if (dice(&d, 4) == 0)
        fr_buffer_printf(text, ",\"p\":{\"click_rate\":0.25}");
    fr_buffer_printf(text, "}");
}

/* Group g has 1 to 4 items, and numbers run through all groups. Items marked in left_out are not
 * written, nor are groups that have only such items. */
static uint32_t accept_groups(struct fixture *f, uint64_t seed, bool single, const uint8_t *left_out)
{
    uint32_t number = 0;
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint64_t d = seed * 131 + g;
        uint32_t size = single ? 1 : 1 + dice(&d, 4), kept = 0;
        struct fr_buffer text = {0};
        fr_buffer_printf(&text, "{\"shared\":{\"user_id\":[%u,%u],\"vec\":[%u,2,3]},\"items\":[", dice(&d, 20),
                         dice(&d, 20), g);
        for (uint32_t i = 0; i < size; i++, number++) {
            if (left_out && left_out[number])
                continue;
            fr_buffer_printf(&text, "%s", kept++ ? "," : "");
            put_item(&text, seed * 1000 + number);
        }
        fr_buffer_printf(&text, "]}");
        fr_put_u8(&text, 0);
        if (kept)
            accept_json(f, (const char *)text.data);
        fr_buffer_release(&text);
    }
    return number;
}

/* Compares sample by sample, because a column may still be written out although the sample that was
 * the reason for it was left out. */
static void assert_same_column(const struct fr_batch *a, const struct fr_batch *b, uint32_t slot)
{
    const struct fr_column *x = &a->columns[slot], *y = &b->columns[slot];
    assert_true(!x->shared || y->shared || a->n_groups == a->n_samples);
    for (uint32_t i = 0; i < b->n_samples; i++) {
        uint32_t at = x->shared ? a->group_of[i] : i, bt = y->shared ? b->group_of[i] : i;
        if (x->dim) {
            assert_memory_equal(x->dense + (size_t)at * x->dim, y->dense + (size_t)bt * x->dim, x->dim * sizeof(float));
            continue;
        }
        uint32_t n = y->begin[bt + 1] - y->begin[bt];
        assert_int_equal(x->begin[at + 1] - x->begin[at], n);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t xk = x->begin[at] + k, yk = y->begin[bt] + k;
            assert_true(x->keys[xk] == y->keys[yk]);
            assert_true((x->weights ? x->weights[xk] : 1.0f) == (y->weights ? y->weights[yk] : 1.0f));
        }
    }
}

static float bits_or_nan(const float *values, size_t at)
{
    return values ? values[at] : __builtin_nanf("");
}

static void assert_same_batch(const struct fr_batch *a, const struct fr_batch *b)
{
    assert_int_equal(a->n_samples, b->n_samples);
    assert_int_equal(a->n_groups, b->n_groups);
    assert_memory_equal(a->group_begin, b->group_begin, ((size_t)b->n_groups + 1) * sizeof(uint32_t));
    assert_memory_equal(a->group_of, b->group_of, b->n_samples * sizeof(uint32_t));
    assert_memory_equal(a->t_ms, b->t_ms, b->n_samples * sizeof(int64_t));
    assert_memory_equal(a->use, b->use, b->n_samples);
    assert_memory_equal(a->role, b->role, b->n_samples);
    assert_memory_equal(a->keep, b->keep, b->n_samples * sizeof(float));
    for (uint32_t i = 0; i < b->n_samples; i++) {
        for (uint32_t l = 0; l < b->n_labels; l++) {
            size_t at = (size_t)l * a->capacity_samples + i, bt = (size_t)l * b->capacity_samples + i;
            assert_memory_equal(&a->labels[at], &b->labels[bt], sizeof(float));
            assert_memory_equal(&a->weights[at], &b->weights[bt], sizeof(float));
        }
        for (uint32_t t = 0; t < b->n_tasks; t++) {
            float x = bits_or_nan(a->served, (size_t)t * a->capacity_samples + i),
                  y = bits_or_nan(b->served, (size_t)t * b->capacity_samples + i);
            assert_true(x == y || (x != x && y != y));
        }
    }
    for (uint32_t s = 0; s < b->n_slots; s++)
        assert_same_column(a, b, s);
}

static void expect_what_decoding_alone_gives(struct fixture *f, bool single)
{
    struct fr_batch *rest = fr_batch_new(&f->schema.conf);
    for (uint64_t seed = 0; seed < TURNS; seed++) {
        uint8_t left_out[4 * GROUPS];
        uint64_t d = seed;
        uint32_t share = 1 + dice(&d, 6);
        for (uint32_t i = 0; i < 4 * GROUPS; i++)
            left_out[i] = dice(&d, 6) >= share;
        fr_batch_clear(f->batch);
        accept_groups(f, seed, single, NULL);
        fr_batch_select(f->batch, left_out, rest);
        fr_batch_clear(f->batch);
        accept_groups(f, seed, single, left_out);
        assert_same_batch(rest, f->batch);
    }
    fr_batch_free(rest);
}

FR_CASE(what_is_left_of_groups_is_what_decoding_it_alone_gives)
{
    expect_what_decoding_alone_gives(*state, false);
}

FR_CASE(what_is_left_of_single_samples_is_what_decoding_it_alone_gives)
{
    expect_what_decoding_alone_gives(*state, true);
}

FR_CASE(nothing_left_is_an_empty_batch)
{
    struct fixture *f = *state;
    struct fr_batch *rest = fr_batch_new(&f->schema.conf);
    uint8_t left_out[4 * GROUPS];
    memset(left_out, 1, sizeof(left_out));
    accept_groups(f, 3, false, NULL);
    fr_batch_select(f->batch, left_out, rest);
    assert_int_equal(rest->n_samples + rest->n_groups, 0);
    fr_batch_free(rest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_left_of_groups_is_what_decoding_it_alone_gives, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(what_is_left_of_single_samples_is_what_decoding_it_alone_gives, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(nothing_left_is_an_empty_batch, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
