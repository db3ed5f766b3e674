/* Properties over random valid records: both formats give one batch, splitting an append changes
 * nothing, every truncation is refused, and no mutation does harm. A failure prints its seed;
 * FR_TEST_SEED repeats it. */
#include "fixture.h"

#include "base/random.h"
#include "writer.h"

/* one thread, and twenty times slower under TSan; ASan is the sanitizer that checks this */
#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 60, MUTATIONS = 3000 };
#else
enum { ROUNDS = 300, MUTATIONS = 30000 };
#endif

static uint64_t seed(void)
{
    const char *text = getenv("FR_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 20240;
}

/* Draws are numbered within a record, so both formats see the same ones. */
struct dice {
    uint64_t record, count;
};

static uint64_t roll(struct dice *dice, uint64_t sides)
{
    return fr_random_u64(seed(), 1, dice->record, dice->count++) % sides;
}

static void write_id(struct writer *w, struct dice *dice)
{
    char text[40];
    switch (roll(dice, 6)) {
    case 0:
        write_integer(w, (int64_t)roll(dice, 100));
        break;
    case 1:
        write_integer(w, -(int64_t)roll(dice, 1ULL << 62));
        break;
    case 2:
        write_float(w, (double)roll(dice, 1000) - 500.0);
        break;
    case 3:
        snprintf(text, sizeof(text), "%llu", (unsigned long long)roll(dice, 1ULL << 63));
        write_string(w, text);
        break;
    case 4:
        snprintf(text, sizeof(text), "a longer identifier, %llu", (unsigned long long)roll(dice, 1000));
        write_string(w, text);
        break;
    default:
        write_string(w, roll(dice, 2) ? ""
                                      : "Gr\xc3\xbc\xc3\x9f"
                                        "e");
        break;
    }
}

static void write_sparse(struct writer *w, struct dice *dice)
{
    uint32_t n = (uint32_t)roll(dice, 9);
    switch (roll(dice, 5)) {
    case 0:
        write_nil(w);
        return;
    case 1:
        write_map(w, 2);
        bool ids_first = roll(dice, 2);
        for (int turn = 0; turn < 2; turn++) {
            bool ids = (turn == 0) == ids_first;
            write_string(w, ids ? "i" : "w");
            write_array(w, n);
            for (uint32_t i = 0; i < n; i++)
                ids ? write_id(w, dice) : write_float(w, (double)roll(dice, 64) / 8.0 - 2.0);
        }
        return;
    case 2:
        write_array(w, n);
        for (uint32_t i = 0; i < n; i++)
            write_id(w, dice);
        return;
    default:
        write_id(w, dice);
        return;
    }
}

static void write_dense(struct writer *w, struct dice *dice, uint32_t dim)
{
    uint64_t form = roll(dice, 8);
    if (form == 0) {
        write_nil(w);
        return;
    }
    if (dim > 1 || form == 1)
        write_array(w, dim);
    for (uint32_t i = 0; i < dim; i++)
        roll(dice, 3) ? write_float(w, (double)roll(dice, 1 << 20) / 977.0)
                      : write_integer(w, (int64_t)roll(dice, 1 << 30));
}

static void write_slots(struct writer *w, struct dice *dice)
{
    static const char *const names[] = {"user_id", "item_id", "history", "price", "vec", "context", "strange", "odd"};
    enum { N = sizeof(names) / sizeof(names[0]) };
    uint32_t mask = (uint32_t)roll(dice, 4) ? 0x3f : (uint32_t)roll(dice, 1 << N);
    uint32_t start = (uint32_t)roll(dice, 4) ? 0 : (uint32_t)roll(dice, N);
    write_map(w, (uint32_t)__builtin_popcount(mask));
    for (uint32_t k = 0; k < N; k++) {
        uint32_t s = (start + k) % N;
        if (!(mask & 1u << s))
            continue;
        write_string(w, names[s]);
        if (s == SLOT_PRICE || s == SLOT_VEC)
            write_dense(w, dice, s == SLOT_VEC ? 3 : 1);
        else
            write_sparse(w, dice);
    }
}

static void write_labels(struct writer *w, struct dice *dice)
{
    bool as_map = roll(dice, 2);
    uint32_t n = (uint32_t)roll(dice, 3);
    as_map ? write_map(w, n) : write_array(w, n);
    for (uint32_t i = 0; i < n; i++) {
        if (as_map)
            write_string(w, i ? "buy" : "click");
        uint64_t form = roll(dice, 4);
        if (form == 0)
            write_nil(w);
        else if (form == 1)
            write_bool(w, roll(dice, 2));
        else
            write_float(w, (double)roll(dice, 1025) / 1024.0);
    }
}

static void write_sample(struct writer *w, struct dice *dice)
{
    uint32_t extra = (uint32_t)roll(dice, 1 << 4);
    write_map(w, 2 + (uint32_t)__builtin_popcount(extra));
    if (extra & 1) {
        write_string(w, "t");
        write_integer(w, TIMESTAMP_MS - (int64_t)roll(dice, 1000000));
    }
    write_string(w, "f");
    write_slots(w, dice);
    if (extra & 2) {
        write_string(w, "w");
        write_float(w, (double)roll(dice, 100) / 16.0);
    }
    write_string(w, "y");
    write_labels(w, dice);
    if (extra & 4) {
        write_string(w, "u");
        write_integer(w, 1 + (int64_t)roll(dice, 3));
    }
    if (extra & 8) {
        write_string(w, "x_note");
        write_string(w, "kept aside");
    }
}

static void write_record(struct writer *w, enum fr_format format, uint64_t record)
{
    struct dice dice = {.record = record};
    writer_clear(w, format);
    if (roll(&dice, 4) == 0) {
        write_sample(w, &dice);
        return;
    }
    uint32_t n = (uint32_t)roll(&dice, 20);
    write_array(w, n);
    for (uint32_t i = 0; i < n; i++)
        write_sample(w, &dice);
}

static void assert_equal_batches(const struct fr_batch *a, const struct fr_batch *b, uint64_t record)
{
#define SAME(condition)                                                                                                \
    if (!(condition))                                                                                                  \
    fail_msg("seed %llu, record %llu: %s", (unsigned long long)seed(), (unsigned long long)record, #condition)
    uint32_t n = a->n_samples;
    SAME(n == b->n_samples && a->n_groups == b->n_groups);
    SAME(memcmp(a->t_ms, b->t_ms, n * sizeof(*a->t_ms)) == 0);
    SAME(memcmp(a->use, b->use, n) == 0 && memcmp(a->role, b->role, n) == 0);
    SAME(memcmp(a->group_begin, b->group_begin, (n + 1) * sizeof(*a->group_begin)) == 0);
    for (uint32_t l = 0; l < N_LABELS; l++) {
        SAME(memcmp(a->labels + (size_t)l * a->capacity_samples, b->labels + (size_t)l * b->capacity_samples, n * 4) ==
             0);
        SAME(memcmp(a->weights + (size_t)l * a->capacity_samples, b->weights + (size_t)l * b->capacity_samples,
                    n * 4) == 0);
    }
    for (uint32_t s = 0; s < N_SLOTS; s++) {
        const struct fr_column *x = &a->columns[s], *y = &b->columns[s];
        if (x->dim) {
            SAME(memcmp(x->dense, y->dense, (size_t)n * x->dim * 4) == 0);
            continue;
        }
        SAME(memcmp(x->begin, y->begin, (n + 1) * sizeof(*x->begin)) == 0);
        SAME(memcmp(x->keys, y->keys, x->begin[n] * sizeof(*x->keys)) == 0);
        for (uint32_t k = 0; k < x->begin[n]; k++)
            SAME((x->weights ? x->weights[k] : 1.0f) == (y->weights ? y->weights[k] : 1.0f));
    }
    SAME(a->unknown_slots == b->unknown_slots && a->unknown_keys == b->unknown_keys);
    SAME(a->excess_ids == b->excess_ids);
#undef SAME
}

struct both {
    struct fixture *of[2]; /* by format */
};

FR_FIXTURE(both_setup)
{
    struct both *both = calloc(1, sizeof(*both));
    for (int format = 0; format < 2; format++) {
        fixture_setup(state);
        both->of[format] = *state;
        both->of[format]->schema.conf.ingest.format = format;
        both->of[format]->schema.conf.ingest.record_max = 1 << 20;
        both->of[format]->schema.conf.ingest.batch_size = 3; /* small, so that appends grow it */
        fixture_renew(both->of[format]);
    }
    *state = both;
    return 0;
}

FR_FIXTURE(both_teardown)
{
    struct both *both = *state;
    for (int format = 0; format < 2; format++) {
        *state = both->of[format];
        fixture_teardown(state);
    }
    free(both);
    return 0;
}

FR_CASE(both_formats_give_one_batch)
{
    struct both *both = *state;
    struct writer w = {.depth = 0};
    for (uint64_t record = 0; record < ROUNDS; record++) {
        for (int format = 0; format < 2; format++) {
            struct fixture *f = both->of[format];
            uint32_t n = 0;
            if (record % 7 == 0)
                fr_batch_clear(f->batch);
            write_record(&w, (enum fr_format)format, record);
            if (decode_bytes(f, w.out.data, w.out.size, &n) != FR_OK)
                fail_msg("seed %llu, record %llu: %s", (unsigned long long)seed(), (unsigned long long)record,
                         f->reason);
            fr_decode_append(f->decoder, 0, n, f->batch);
        }
        assert_equal_batches(both->of[0]->batch, both->of[1]->batch, record);
    }
    fr_buffer_release(&w.out);
}

FR_CASE(split_appends_equal_one_append)
{
    struct both *both = *state;
    struct fixture *f = both->of[FR_FORMAT_MSGPACK];
    struct fr_batch *whole = both->of[FR_FORMAT_JSON]->batch, *split = f->batch;
    struct writer w = {.depth = 0};
    for (uint64_t record = 0; record < ROUNDS; record++) {
        struct dice dice = {.record = record + (1ULL << 32)};
        uint32_t n = 0;
        write_record(&w, FR_FORMAT_MSGPACK, record);
        assert_int_equal(decode_bytes(f, w.out.data, w.out.size, &n), FR_OK);
        fr_decode_append(f->decoder, 0, n, whole);
        for (uint32_t from = 0; from < n;) {
            uint32_t count = 1 + (uint32_t)roll(&dice, n - from);
            fr_decode_append(f->decoder, from, count, split);
            from += count;
        }
        assert_equal_batches(whole, split, record);
        if (record % 11 == 0) {
            fr_batch_clear(whole);
            fr_batch_clear(split);
        }
    }
    fr_buffer_release(&w.out);
}

FR_CASE(every_truncation_is_refused)
{
    struct both *both = *state;
    struct writer w = {.depth = 0};
    for (uint64_t record = 0; record < 30; record++) {
        for (int format = 0; format < 2; format++) {
            write_record(&w, (enum fr_format)format, record);
            for (size_t size = 0; size < w.out.size; size++) {
                uint32_t n;
                uint8_t *exact = malloc(size ? size : 1); /* so that a read past the end is seen */
                memcpy(exact, w.out.data, size);
                enum fr_status status = decode_bytes(both->of[format], exact, size, &n);
                free(exact);
                if (status != FR_E_INVALID)
                    fail_msg("seed %llu, record %llu cut to %zu bytes: status %d", (unsigned long long)seed(),
                             (unsigned long long)record, size, (int)status);
            }
        }
    }
    fr_buffer_release(&w.out);
}

FR_CASE(mutated_records_do_no_harm)
{
    struct both *both = *state;
    struct writer w = {.depth = 0};
    unsigned accepted = 0;
    for (uint64_t round = 0; round < MUTATIONS; round++) {
        int format = (int)(round % 2);
        struct fixture *f = both->of[format];
        struct dice dice = {.record = round + (1ULL << 40)};
        write_record(&w, (enum fr_format)format, round % 100);
        for (uint64_t i = 1 + roll(&dice, 4); i > 0; i--) {
            uint64_t at = roll(&dice, w.out.size);
            w.out.data[at] =
                roll(&dice, 2) ? (uint8_t)roll(&dice, 256) : (uint8_t)(w.out.data[at] ^ 1u << roll(&dice, 8));
        }
        uint32_t n = 0;
        if (decode_bytes(f, w.out.data, w.out.size, &n) != FR_OK) {
            assert_true(f->reason[0] == '$');
            continue;
        }
        accepted++;
        fr_batch_clear(f->batch);
        fr_decode_append(f->decoder, 0, n, f->batch);
        assert_int_equal(f->batch->n_samples, n);
    }
    assert_true(accepted > 0);
    fr_buffer_release(&w.out);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, both_setup, both_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(both_formats_give_one_batch),
        CASE(split_appends_equal_one_append),
        CASE(every_truncation_is_refused),
        CASE(mutated_records_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
