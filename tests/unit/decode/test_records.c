/* Records that travel with a batch: their bytes come back as they were read, and the counters are
 * right when a sample is quarantined. */
#include "fixture.h"

#include "batch/records.h"

static const struct fr_record_header two_headers[] = {{"trace", "7", 1}, {"none", NULL, 0}};

static void accept_of(struct fixture *f, int n, const struct fr_batch_record *record,
                      const struct fr_record_parts *parts)
{
    fr_batch_add_record(f->batch, record, parts);
    for (int i = 0; i < n; i++)
        accept_json(f, "{\"f\":{\"user_id\":1},\"y\":[1]}");
}

FR_CASE(a_record_comes_back_as_it_was_read)
{
    struct fixture *f = *state;
    const struct fr_record_parts parts[] = {
        {.value = "value", .size = 5, .key = "k", .key_size = 1, .n_headers = 2, .headers = two_headers},
        {.value = "", .size = 0},
        {.key = "only", .key_size = 4},
    };
    for (int i = 0; i < 3; i++)
        accept_of(f, i + 1, &(struct fr_batch_record){.offset = 10 + i, .first_item = (uint32_t)i}, &parts[i]);
    const int record_of[] = {0, 1, 1, 2, 2, 2};
    for (uint32_t i = 0; i < 6; i++) {
        const struct fr_batch_record *record = fr_batch_record_of(f->batch, i);
        const struct fr_record_parts *was = &parts[record_of[i]];
        struct fr_record_parts is;
        struct fr_record_header headers[4];
        fr_batch_record_parts(f->batch, record, headers, 4, &is);
        assert_int_equal(record->offset, 10 + record_of[i]);
        assert_true((is.value != NULL) == (was->value != NULL) && (is.key != NULL) == (was->key != NULL));
        assert_true(is.size == was->size && is.key_size == was->key_size && is.n_headers == was->n_headers);
        if (is.size)
            assert_memory_equal(is.value, was->value, is.size);
        if (is.key_size)
            assert_memory_equal(is.key, was->key, is.key_size);
        if (is.n_headers) {
            assert_string_equal(is.headers[0].name, "trace");
            assert_memory_equal(is.headers[0].value, "7", 1);
            assert_true(is.headers[1].value == NULL && is.headers[1].size == 0);
        }
    }
    fr_batch_clear(f->batch);
    assert_null(fr_batch_record_of(f->batch, 0));
    assert_int_equal(f->batch->image_bytes, 0);
}

/* The leak sanitizer and valgrind report a lost reference. */
FR_CASE(a_shared_image_lives_as_long_as_its_last_batch)
{
    struct fixture *f = *state;
    struct fr_batch *other = fr_batch_new(&f->schema.conf);
    const struct fr_record_parts parts = {.value = "large", .size = 5};
    struct fr_record_image *image = fr_record_image_new(&parts);
    accept_of(f, 1, &(struct fr_batch_record){.shared = image}, &parts);
    fr_batch_add_record(other, &(struct fr_batch_record){.shared = image, .first_item = 1}, &parts);
    fr_record_image_drop(image);
    fr_batch_free(other);
    struct fr_record_parts is;
    fr_batch_record_parts(f->batch, fr_batch_record_of(f->batch, 0), NULL, 0, &is);
    assert_memory_equal(is.value, "large", 5);
    assert_int_equal(f->batch->record_bytes.size, 0);
    assert_int_equal(f->batch->image_bytes, fr_record_image_size(&parts));
}

FR_CASE(a_quarantined_sample_moves_in_the_counts_of_its_partition)
{
    struct fixture *f = *state;
    struct fr_batch_position positions[2] = {{.stream_index = 4, .roles = {2}}, {.stream_index = 9, .roles = {1}}};
    accept_of(f, 2, &(struct fr_batch_record){.stream_index = 4}, &(struct fr_record_parts){.value = "a", .size = 1});
    accept_of(f, 1, &(struct fr_batch_record){.stream_index = 9}, &(struct fr_record_parts){.value = "b", .size = 1});
    f->batch->positions = positions;
    f->batch->n_positions = 2;
    fr_batch_quarantine(f->batch, 2);
    fr_batch_quarantine(f->batch, 0);
    f->batch->positions = NULL;
    f->batch->n_positions = 0;
    assert_int_equal(f->batch->role[0], FR_ROLE_QUARANTINED);
    assert_int_equal(f->batch->role[1], FR_ROLE_TRAIN);
    assert_int_equal(f->batch->role[2], FR_ROLE_QUARANTINED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(positions[i].roles[FR_ROLE_QUARANTINED], 1);
        assert_int_equal(positions[i].roles[FR_ROLE_TRAIN], 1 - i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_record_comes_back_as_it_was_read, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_shared_image_lives_as_long_as_its_last_batch, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_quarantined_sample_moves_in_the_counts_of_its_partition, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
