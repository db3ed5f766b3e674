/* A batch in the order of its lanes is the batch that decoding its records in that order gives,
 * with each sample's record; and leaving samples out keeps the lanes of the others. The parts of
 * ranks that have agreed on a shape are, one after the other, the batch of all lanes. */
#include "fixture.h"

#include "base/check.h"
#include "base/ranks.h"
#include "batch/records.h"

enum { RECORDS = 20, TURNS = 300 };

static uint32_t dice(uint64_t *state, uint32_t n)
{
    *state = fr_fmix64(*state + 0x9e3779b97f4a7c15);
    return (uint32_t)(*state % n);
}

/* What occurs in the records of a turn, in bits. */
enum { GROUPS = 1, OWN_VALUES = 2, WEIGHTS = 4, SCORES = 8, KINDS = 16 };

static void put_item(struct fr_buffer *text, uint64_t *d, uint32_t kinds, bool own_values)
{
    fr_buffer_printf(text, "{\"f\":{\"item_id\":%u", dice(d, 50));
    if (own_values)
        fr_buffer_printf(text, ",\"user_id\":[%u,%u],\"vec\":[%u,2,3]", dice(d, 20), dice(d, 20), dice(d, 9));
    if (kinds & WEIGHTS && dice(d, 3) == 0)
        fr_buffer_printf(text, ",\"history\":{\"i\":[%u,%u],\"w\":[2,0.5]}", dice(d, 50), dice(d, 50));
    if (dice(d, 2) == 0)
        fr_buffer_printf(text, ",\"price\":%u", dice(d, 9));
    fr_buffer_printf(text, "},\"y\":[%u,0.5],\"w\":%u,\"s\":0.%u,\"u\":%u,\"t\":%llu", dice(d, 2), 1 + dice(d, 4),
                     1 + dice(d, 9), 1 + dice(d, 3), 1600000000000ull + dice(d, 100000));
    if (kinds & SCORES && dice(d, 4) == 0)
        fr_buffer_printf(text, ",\"p\":{\"click_rate\":0.25}");
    fr_buffer_printf(text, "}");
}

/* A record of up to three groups of up to four samples, or of up to three single samples. */
static void put_record(struct fr_buffer *text, uint64_t d, uint32_t kinds)
{
    for (uint32_t g = 0, n = 1 + dice(&d, 3); g < n; g++) {
        bool group = kinds & GROUPS && dice(&d, 3) > 0, own = !group || (kinds & OWN_VALUES && dice(&d, 3) == 0);
        fr_buffer_printf(text, "%s%s", g ? "," : "[", group ? "{\"shared\":{" : "");
        if (!own)
            fr_buffer_printf(text, "\"user_id\":[%u,%u],\"vec\":[%u,2,3]", dice(&d, 20), dice(&d, 20), dice(&d, 9));
        bool history = group && !own && kinds & WEIGHTS && dice(&d, 2);
        if (history)
            fr_buffer_printf(text, ",\"history\":{\"i\":[%u,%u],\"w\":[3,0.25]}", dice(&d, 50), dice(&d, 50));
        fr_buffer_printf(text, group ? "},\"items\":[" : "");
        for (uint32_t i = 0, size = group ? 1 + dice(&d, 4) : 1; i < size; i++) {
            fr_buffer_printf(text, "%s", i ? "," : "");
            put_item(text, &d, history ? kinds & ~(uint32_t)WEIGHTS : kinds, own);
        }
        fr_buffer_printf(text, group ? "]}" : "");
    }
    fr_buffer_printf(text, "]");
    fr_put_u8(text, 0);
}

struct turn {
    uint64_t seed;
    uint32_t kinds, n_lanes;
    bool uneven; /* some lanes have no groups of several, some no values of their own in groups */
};

static uint32_t lane_of(const struct turn *turn, uint32_t record)
{
    uint64_t d = turn->seed * 7919 + record;
    return dice(&d, turn->n_lanes);
}

static uint32_t kinds_of(const struct turn *turn, uint32_t lane)
{
    uint64_t d = turn->seed * 104729 + lane;
    bool single = turn->uneven && dice(&d, 4) < turn->seed % 5, common = turn->uneven && dice(&d, 10) > 0;
    return turn->kinds & ~((single ? GROUPS : 0u) | (common ? OWN_VALUES : 0u));
}

/* Decodes and appends the turn's record; one in four has its bytes in a shared image. */
static void append_record(struct fixture *f, const struct turn *turn, uint32_t record)
{
    struct fr_buffer text = {0};
    put_record(&text, turn->seed * 131 + record, kinds_of(turn, lane_of(turn, record)));
    const struct fr_record_parts parts = {.value = text.data, .size = text.size, .key = &record, .key_size = 4};
    struct fr_record_image *image = record % 4 == 0 ? fr_record_image_new(&parts) : NULL;
    uint32_t lane = lane_of(turn, record);
    fr_batch_add_record(
        f->batch,
        &(struct fr_batch_record){.stream_index = 100 + lane, .lane = lane, .offset = record, .shared = image}, &parts);
    fr_record_image_drop(image);
    accept_json(f, (const char *)text.data);
    fr_buffer_release(&text);
}

static void assert_same_floats(const float *a, size_t a_step, const float *b, size_t b_step, uint32_t rows, uint32_t n)
{
    assert_true(!a == !b);
    for (uint32_t r = 0; a && r < rows; r++)
        assert_memory_equal(a + r * a_step, b + r * b_step, n * sizeof(*a));
}

static void assert_same_column(const struct fr_column *a, const struct fr_column *b, uint32_t n_entries)
{
    assert_int_equal(a->shared, b->shared);
    if (b->dim) {
        assert_memory_equal(a->dense, b->dense, (size_t)n_entries * b->dim * sizeof(float));
        return;
    }
    uint32_t n_ids = b->begin[n_entries];
    assert_memory_equal(a->begin, b->begin, ((size_t)n_entries + 1) * sizeof(uint32_t));
    if (n_ids)
        assert_memory_equal(a->keys, b->keys, n_ids * sizeof(uint64_t));
    assert_same_floats(a->weights, 0, b->weights, 0, 1, n_ids);
}

static void assert_same_records(const struct fr_batch *a, const struct fr_batch *b)
{
    assert_int_equal(a->n_records, b->n_records);
    assert_int_equal(a->image_bytes, b->image_bytes);
    for (uint32_t i = 0; i < b->n_samples; i++) {
        const struct fr_batch_record *x = fr_batch_record_of(a, i), *y = fr_batch_record_of(b, i);
        struct fr_record_parts is, expected;
        assert_true(x->offset == y->offset && x->stream_index == y->stream_index && x->lane == y->lane);
        assert_int_equal(x->first_sample, y->first_sample);
        fr_batch_record_parts(a, x, NULL, 0, &is);
        fr_batch_record_parts(b, y, NULL, 0, &expected);
        assert_true(is.size == expected.size && is.key_size == 4 && expected.key_size == 4);
        assert_memory_equal(is.value, expected.value, is.size);
        assert_memory_equal(is.key, expected.key, 4);
    }
}

static void assert_same_batch(const struct fr_batch *a, const struct fr_batch *b)
{
    uint32_t n = b->n_samples;
    assert_int_equal(a->n_samples, n);
    assert_int_equal(a->n_groups, b->n_groups);
    assert_int_equal(a->ids, b->ids);
    assert_memory_equal(a->group_begin, b->group_begin, ((size_t)b->n_groups + 1) * sizeof(uint32_t));
    assert_memory_equal(a->group_of, b->group_of, n * sizeof(uint32_t));
    assert_memory_equal(a->t_ms, b->t_ms, n * sizeof(int64_t));
    assert_memory_equal(a->origin, b->origin, n * sizeof(uint64_t));
    assert_memory_equal(a->use, b->use, n);
    assert_memory_equal(a->role, b->role, n);
    assert_memory_equal(a->keep, b->keep, n * sizeof(float));
    assert_same_floats(a->labels, a->capacity_samples, b->labels, b->capacity_samples, b->n_labels, n);
    assert_same_floats(a->weights, a->capacity_samples, b->weights, b->capacity_samples, b->n_labels, n);
    assert_same_floats(a->served, a->capacity_samples, b->served, b->capacity_samples, b->n_tasks, n);
    for (uint32_t s = 0; s < b->n_slots; s++)
        assert_same_column(&a->columns[s], &b->columns[s], fr_batch_entries(b, s));
    assert_same_records(a, b);
}

static void renew_for(struct fixture *f, uint32_t n_lanes)
{
    f->schema.conf.domains = n_lanes;
    fixture_renew(f);
}

FR_CASE(what_is_arranged_is_what_decoding_lane_by_lane_gives)
{
    struct fixture *f = *state;
    static const uint32_t lanes[] = {2, 3, 12, FR_DOMAINS_MAX};
    for (size_t l = 0; l < FR_ARRAY_LEN(lanes); l++) {
        renew_for(f, lanes[l]);
        /* their memory goes from one turn to the next */
        struct fr_batch *mixed = f->batch, *in_lanes = fr_batch_new(&f->schema.conf);
        struct fr_batch *spare = fr_batch_new(&f->schema.conf);
        for (uint64_t seed = 0; seed < TURNS; seed++) {
            struct turn turn = {.seed = seed, .kinds = (uint32_t)(seed % KINDS), .n_lanes = lanes[l]};
            fr_batch_clear(mixed);
            fr_batch_clear(in_lanes);
            mixed->dead_sequence = seed;
            f->batch = mixed;
            for (uint32_t r = 0; r < RECORDS; r++)
                append_record(f, &turn, r);
            fr_batch_arrange(mixed, spare);
            f->batch = in_lanes;
            for (uint32_t lane = 0; lane < lanes[l]; lane++) {
                assert_int_equal(fr_batch_lane_begin(mixed, lane), in_lanes->n_groups);
                for (uint32_t r = 0; r < RECORDS; r++)
                    if (lane_of(&turn, r) == lane)
                        append_record(f, &turn, r);
            }
            assert_same_batch(mixed, in_lanes);
            assert_true(mixed->dead_sequence == seed);
            f->batch = mixed;
        }
        fr_batch_free(in_lanes);
        fr_batch_free(spare);
    }
}

FR_CASE(what_lies_in_order_is_not_moved)
{
    struct fixture *f = *state;
    renew_for(f, 4);
    for (uint32_t lane = 1; lane < 4; lane += 2) {
        fr_batch_add_record(f->batch, &(struct fr_batch_record){.lane = lane}, &(struct fr_record_parts){0});
        accept_json(f, "[{\"f\":{\"user_id\":1},\"y\":[1]},{\"f\":{\"user_id\":2},\"y\":[1]}]");
    }
    const int64_t *t_ms = f->batch->t_ms;
    fr_batch_arrange(f->batch, NULL);
    assert_ptr_equal(f->batch->t_ms, t_ms);
    const uint32_t begins[] = {0, 0, 2, 2, 4};
    for (uint32_t lane = 0; lane <= 4; lane++)
        assert_int_equal(fr_batch_lane_begin(f->batch, lane), begins[lane]);
}

FR_CASE(samples_that_stay_are_in_their_lanes)
{
    struct fixture *f = *state;
    renew_for(f, 5);
    struct fr_batch *spare = fr_batch_new(&f->schema.conf), *rest = fr_batch_new(&f->schema.conf);
    for (uint64_t seed = 0; seed < TURNS; seed++) {
        struct turn turn = {.seed = seed, .kinds = KINDS - 1, .n_lanes = 5};
        uint8_t left_out[RECORDS * 12];
        uint64_t d = seed;
        fr_batch_clear(f->batch);
        for (uint32_t r = 0; r < RECORDS; r++)
            append_record(f, &turn, r);
        fr_batch_arrange(f->batch, spare);
        for (uint32_t i = 0; i < f->batch->n_samples; i++) {
            f->batch->origin[i] = fr_batch_record_of(f->batch, i)->lane;
            left_out[i] = dice(&d, 3) < seed % 4;
        }
        fr_batch_select(f->batch, left_out, rest);
        for (uint32_t lane = 0; lane < 5; lane++)
            for (uint32_t g = fr_batch_lane_begin(rest, lane); g < fr_batch_lane_begin(rest, lane + 1); g++)
                assert_int_equal(rest->origin[rest->group_begin[g]], lane);
    }
    fr_batch_free(spare);
    fr_batch_free(rest);
}

/* ---- parts of ranks ---- */

enum { RANKS_MAX = 6 };

/* Lets all ranks agree on a shape. */
static void agree(struct fr_batch *const *parts, uint32_t n_ranks)
{
    struct fr_batch_shape joined = {0}, shape;
    for (uint32_t r = 0; r < n_ranks; r++) {
        fr_batch_get_shape(parts[r], &shape);
        joined.several |= shape.several;
        for (size_t w = 0; w < FR_ARRAY_LEN(joined.own); w++)
            joined.own[w] |= shape.own[w];
    }
    for (uint32_t r = 0; r < n_ranks; r++)
        fr_batch_take_shape(parts[r], &joined);
}

/* Whether an entry of each column is the same; weights of 1 may be written out or not. */
static void assert_same_entry(const struct fr_column *a, uint32_t at, const struct fr_column *b, uint32_t bt)
{
    if (a->dim) {
        assert_memory_equal(a->dense + (size_t)at * a->dim, b->dense + (size_t)bt * a->dim, a->dim * sizeof(float));
        return;
    }
    uint32_t n = b->begin[bt + 1] - b->begin[bt];
    assert_int_equal(a->begin[at + 1] - a->begin[at], n);
    for (uint32_t k = 0; k < n; k++) {
        assert_true(a->keys[a->begin[at] + k] == b->keys[b->begin[bt] + k]);
        assert_true((a->weights ? a->weights[a->begin[at] + k] : 1.0f) ==
                    (b->weights ? b->weights[b->begin[bt] + k] : 1.0f));
    }
}

static void expect_parts_of(struct fr_batch *const *parts, uint32_t n_ranks, const struct fr_batch *whole)
{
    for (uint32_t s = 0; s < whole->n_slots; s++) {
        uint32_t at = 0;
        for (uint32_t r = 0; r < n_ranks; r++) {
            assert_int_equal(parts[r]->columns[s].shared, whole->columns[s].shared);
            for (uint32_t i = 0; i < fr_batch_entries(parts[r], s); i++)
                assert_same_entry(&parts[r]->columns[s], i, &whole->columns[s], at++);
        }
        assert_int_equal(at, fr_batch_entries(whole, s));
    }
}

/* Leaves the same samples out of the whole and of the parts, which become `rest`. */
static void leave_out(struct fr_batch *const *parts, uint32_t n_ranks, uint64_t seed, struct fr_batch *const *rest)
{
    uint8_t left_out[RECORDS * 12];
    uint64_t d = seed;
    for (uint32_t r = 0; r < n_ranks; r++) {
        for (uint32_t i = 0; i < parts[r]->n_samples; i++)
            left_out[i] = dice(&d, 4) < seed % 5;
        fr_batch_select(parts[r], left_out, rest[r]);
    }
}

/* Splits one turn's batch among ranks; part RANKS_MAX is the whole. Counts what occurred. */
static void expect_parts_of_turn(struct fixture *f, const struct turn *turn, struct fr_batch *const (*batches)[2],
                                 uint32_t *seen)
{
    struct fr_batch *whole[2] = {batches[RANKS_MAX][0], batches[RANKS_MAX][1]};
    struct fr_batch *parts[2][RANKS_MAX];
    for (uint32_t n_ranks = 1; n_ranks <= RANKS_MAX; n_ranks++) {
        fr_batch_clear(whole[0]);
        for (uint32_t r = 0; r < n_ranks; r++) {
            struct fr_domains lanes = fr_rank_domains(r, n_ranks, turn->n_lanes);
            parts[0][r] = batches[r][0];
            parts[1][r] = batches[r][1];
            fr_batch_clear(parts[0][r]);
            for (uint32_t lane = lanes.first; lane < lanes.end; lane++)
                for (uint32_t i = 0; i < RECORDS; i++)
                    for (uint32_t b = 0; lane_of(turn, i) == lane && b < 2; b++) {
                        f->batch = b ? whole[0] : parts[0][r];
                        append_record(f, turn, i);
                    }
            fr_batch_arrange(parts[0][r], NULL);
        }
        fr_batch_arrange(whole[0], NULL);
        for (uint32_t r = 0; r < n_ranks; r++)
            for (uint32_t s = 0; s < whole[0]->n_slots; s++)
                seen[2 * whole[0]->columns[s].shared + parts[0][r]->columns[s].shared]++;
        agree(parts[0], n_ranks);
        expect_parts_of(parts[0], n_ranks, whole[0]);
        leave_out(whole, 1, turn->seed, whole + 1);
        leave_out(parts[0], n_ranks, turn->seed, parts[1]);
        agree(parts[1], n_ranks);
        expect_parts_of(parts[1], n_ranks, whole[1]);
    }
}

FR_CASE(the_parts_of_ranks_have_the_columns_of_the_whole)
{
    struct fixture *f = *state;
    renew_for(f, 12);
    struct fr_batch *batches[RANKS_MAX + 1][2], *own = f->batch;
    uint32_t seen[4] = {0};
    for (uint32_t i = 0; i < 2 * (RANKS_MAX + 1); i++)
        batches[i / 2][i % 2] = fr_batch_new(&f->schema.conf);
    for (uint64_t seed = 0; seed < TURNS; seed++) {
        struct turn turn = {.seed = seed, .kinds = (uint32_t)(seed % KINDS) | GROUPS, .n_lanes = 12, .uneven = true};
        expect_parts_of_turn(f, &turn, batches, seen);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_true(seen[i] > 100); /* by the form in the whole and in a part */
    for (uint32_t i = 0; i < 2 * (RANKS_MAX + 1); i++)
        fr_batch_free(batches[i / 2][i % 2]);
    f->batch = own;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_arranged_is_what_decoding_lane_by_lane_gives, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(what_lies_in_order_is_not_moved, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(samples_that_stay_are_in_their_lanes, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(the_parts_of_ranks_have_the_columns_of_the_whole, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
