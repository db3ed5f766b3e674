/* Properties over random groups of samples in all forms and both formats: they decode to the same
 * samples; forms that carry groups give the same batches to the bit, whether a record is read at
 * once or resumed between groups; no truncation is accepted and no mutation does harm. A failure
 * prints its seed; FR_TEST_SEED repeats it. */
#include "model.h"

/* one thread, and twenty times slower under TSan; ASan is the sanitizer that checks this */
#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 40, TRUNCATIONS = 4, MUTATIONS = 3000 };
#else
enum { ROUNDS = 400, TRUNCATIONS = 20, MUTATIONS = 40000 };
#endif

static uint64_t seed(void)
{
    const char *text = getenv("FR_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 20261;
}

/* What was decoded: the samples with all their values, once without and once with the layout of the
 * batches. */
struct seen {
    struct fr_buffer samples, layout;
    uint64_t excess_ids;
};

static void see_entry(struct seen *seen, const struct fr_column *column, uint32_t entry)
{
    if (column->dim) {
        fr_buffer_append(&seen->samples, column->dense + (size_t)entry * column->dim, column->dim * sizeof(float));
        return;
    }
    uint32_t first = column->begin[entry], count = column->begin[entry + 1] - first;
    fr_put_u32(&seen->samples, count);
    for (uint32_t k = first; k < first + count; k++) {
        fr_put_u64(&seen->samples, column->keys[k]);
        put_f32(&seen->samples, column->weights ? column->weights[k] : 1.0f);
    }
}

static void see_batch(struct seen *seen, struct fr_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        fr_put_u64(&seen->samples, (uint64_t)batch->t_ms[i]);
        fr_put_u8(&seen->samples, batch->use[i]);
        fr_put_u8(&seen->samples, batch->role[i]);
        put_f32(&seen->samples, batch->keep[i]);
        for (uint32_t l = 0; l < batch->n_labels; l++) {
            put_f32(&seen->samples, batch->labels[(size_t)l * batch->capacity_samples + i]);
            put_f32(&seen->samples, batch->weights[(size_t)l * batch->capacity_samples + i]);
        }
        for (uint32_t s = 0; s < batch->n_slots; s++)
            see_entry(seen, &batch->columns[s], batch->columns[s].shared ? batch->group_of[i] : i);
    }
    fr_buffer_append(&seen->layout, batch->group_begin, (batch->n_groups + 1) * sizeof(*batch->group_begin));
    for (uint32_t s = 0; s < batch->n_slots; s++)
        fr_put_u8(&seen->layout, batch->columns[s].shared);
    seen->excess_ids += batch->excess_ids;
    fr_batch_clear(batch);
}

/* Decodes a record into batches of at least `limit` samples. resume: after a batch that ends in
 * mid-record, a new decoder starts at the item where the batch ended. */
static void feed(struct fixture *f, const struct writer *w, const size_t span[2], uint32_t limit, bool resume,
                 struct seen *seen)
{
    uint32_t n = 0;
    if (decode_bytes(f, w->out.data + span[0], span[1] - span[0], &n) != FR_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed(), f->reason);
    for (uint32_t from = 0; from < n;) {
        uint32_t count = fr_decode_take(f->decoder, from, limit - f->batch->n_samples);
        assert_in_range(count, 1, n - from);
        fr_decode_append(f->decoder, from, count, f->batch);
        from += count;
        if (f->batch->n_samples >= limit)
            see_batch(seen, f->batch);
        if (resume && from < n) {
            fr_decoder_free(f->decoder);
            f->decoder = fr_decoder_new(&f->schema.conf);
            assert_int_equal(decode_bytes(f, w->out.data + span[0], span[1] - span[0], &n), FR_OK);
        }
    }
}

/* Models [first, first + count) in one form, in batches of at least `limit` samples. */
static void decode_models(struct fixture *f, enum form form, const uint64_t range[2], uint32_t limit, bool resume,
                          struct seen *seen)
{
    struct writer w = {.depth = 0};
    fr_batch_clear(f->batch);
    *seen = (struct seen){.excess_ids = 0};
    for (uint64_t number = range[0]; number < range[1]; number++) {
        struct model model;
        size_t begin[MODEL_SAMPLES + 1];
        roll_model(seed(), number, &model);
        writer_clear(&w, (enum fr_format)f->schema.conf.ingest.format);
        uint32_t n = write_records(&w, form, &model, begin);
        for (uint32_t r = 0; r < n; r++)
            feed(f, &w, begin + r, limit, resume, seen);
    }
    see_batch(seen, f->batch);
    fr_buffer_release(&w.out);
}

static void assert_same(const struct fr_buffer *a, const struct fr_buffer *b, const char *what, uint64_t round)
{
    if (a->size != b->size || memcmp(a->data, b->data, a->size) != 0)
        fail_msg("seed %llu, round %llu: %s", (unsigned long long)seed(), (unsigned long long)round, what);
}

static struct fixture *renewed(void **state, enum fr_format format)
{
    struct fixture *f = *state;
    f->schema.conf.ingest.format = format;
    f->schema.conf.ingest.record_max = 1 << 20;
    f->schema.conf.ingest.batch_size = 3; /* small, so that appends grow it */
    fixture_renew(f);
    return f;
}

static const char *const form_names[N_FORMS] = {"samples", "an array of samples", "groups", "an array of groups",
                                                "a block", "a packed block"};

FR_CASE(all_forms_and_formats_give_the_same_batches)
{
    for (uint64_t round = 0; round < ROUNDS; round += 4) {
        const uint64_t range[2] = {round, round + 1 + round % 3};
        uint32_t limit = 1 + (uint32_t)(round * 7 % 23);
        struct seen base, seen;
        bool first = true;
        for (int form = N_FORMS; form-- > 0;) {
            for (int format = 0; format < (form == FORM_PACKED ? 1 : 2); format++) {
                struct fixture *f = renewed(state, (enum fr_format)format);
                decode_models(f, (enum form)form, range, limit, false, &seen);
                if (!first) {
                    assert_same(&base.samples, &seen.samples, form_names[form], round);
                    if (form >= FORM_GROUP)
                        assert_same(&base.layout, &seen.layout, form_names[form], round);
                    if (form >= FORM_GROUP)
                        assert_int_equal(base.excess_ids, seen.excess_ids);
                }
                if (first)
                    base = seen;
                else {
                    fr_buffer_release(&seen.samples);
                    fr_buffer_release(&seen.layout);
                }
                first = false;
            }
        }
        fr_buffer_release(&base.samples);
        fr_buffer_release(&base.layout);
    }
}

FR_CASE(a_record_resumed_between_groups_gives_the_same_batches)
{
    for (uint64_t round = 0; round < ROUNDS; round += 10) {
        const uint64_t range[2] = {round, round + 3};
        for (int form = 0; form < N_FORMS; form++) {
            struct seen once, resumed;
            struct fixture *f = renewed(state, FR_FORMAT_MSGPACK);
            decode_models(f, (enum form)form, range, 5, false, &once);
            decode_models(f, (enum form)form, range, 5, true, &resumed);
            assert_same(&once.samples, &resumed.samples, form_names[form], round);
            assert_same(&once.layout, &resumed.layout, form_names[form], round);
            fr_buffer_release(&once.samples);
            fr_buffer_release(&once.layout);
            fr_buffer_release(&resumed.samples);
            fr_buffer_release(&resumed.layout);
        }
    }
}

FR_CASE(every_truncation_is_refused)
{
    struct writer w = {.depth = 0};
    for (uint64_t round = 0; round < TRUNCATIONS; round++) {
        for (int form = FORM_ARRAY_ALONE; form < N_FORMS; form++) {
            struct model model;
            size_t begin[MODEL_SAMPLES + 1];
            enum fr_format format = form == FORM_PACKED ? FR_FORMAT_MSGPACK : (enum fr_format)(round % 2);
            struct fixture *f = renewed(state, format);
            roll_model(seed(), round, &model);
            writer_clear(&w, format);
            write_records(&w, (enum form)form, &model, begin);
            for (size_t size = 0; size < begin[1]; size++) {
                uint32_t n;
                uint8_t *exact = malloc(size ? size : 1); /* so that a read past the end is seen */
                memcpy(exact, w.out.data, size);
                enum fr_status status = decode_bytes(f, exact, size, &n);
                free(exact);
                if (status != FR_E_INVALID)
                    fail_msg("seed %llu, round %llu, %s cut to %zu bytes: status %d", (unsigned long long)seed(),
                             (unsigned long long)round, form_names[form], size, (int)status);
            }
        }
    }
    fr_buffer_release(&w.out);
}

FR_CASE(mutated_records_do_no_harm)
{
    struct writer w = {.depth = 0};
    struct fixture *f = NULL;
    unsigned accepted = 0;
    for (uint64_t round = 0; round < MUTATIONS; round++) {
        enum form form = (enum form)(FORM_GROUP + round % (N_FORMS - FORM_GROUP));
        enum fr_format format = form == FORM_PACKED ? FR_FORMAT_MSGPACK : (enum fr_format)(round / 4 % 2);
        struct dice dice = {.seed = seed(), .record = round + (1ULL << 40)};
        struct model model;
        size_t begin[MODEL_SAMPLES + 1];
        if (!f || f->schema.conf.ingest.format != (int)format)
            f = renewed(state, format);
        roll_model(seed(), round % 100, &model);
        writer_clear(&w, format);
        write_records(&w, form, &model, begin);
        for (uint64_t i = 1 + roll(&dice, 4); i > 0; i--) {
            uint64_t at = roll(&dice, begin[1]);
            w.out.data[at] =
                roll(&dice, 2) ? (uint8_t)roll(&dice, 256) : (uint8_t)(w.out.data[at] ^ 1u << roll(&dice, 8));
        }
        uint32_t n = 0;
        if (decode_bytes(f, w.out.data, begin[1], &n) != FR_OK) {
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

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_forms_and_formats_give_the_same_batches),
        CASE(a_record_resumed_between_groups_gives_the_same_batches),
        CASE(every_truncation_is_refused),
        CASE(mutated_records_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
