/* Dead letters of samples the owner loop found unfit: the bytes of records travel with their batch,
 * one letter a record. */
#include "fixture.h"

static struct fr_batch *next_batch(struct service *s)
{
    void *batch = NULL;
    for (int i = 0; i < 1000 && fr_ring_pop(s->full, &batch, 0) != FR_OK; i++)
        assert_true(fr_ingest_step(s->ingest, 0, &s->err) >= 0);
    assert_non_null(batch);
    return batch;
}

static uint64_t send_letter(struct service *s, const struct fr_batch *batch, uint32_t sample)
{
    uint64_t number = 77;
    assert_int_equal(fr_ingest_dead_letter(s->ingest, batch, fr_batch_record_of(batch, sample), "not fit", &number),
                     FR_OK);
    return number;
}

static void give_back(struct service *s, struct fr_batch *batch)
{
    assert_true(fr_ring_try_push(s->empty, batch));
}

/* A record of n samples and as many bytes besides. */
static void append_padded(struct fake_log *log, int n, size_t padding)
{
    append(log, 0, n);
    struct log_record *record = &log->partitions[0].records[log->partitions[0].n - 1];
    size_t size = strlen(record->value);
    char *padded = malloc(size + padding + 1);
    assert_non_null(padded);
    memcpy(padded, record->value, size);
    memset(padded + size, ' ', padding);
    padded[size + padding] = 0;
    free(record->value);
    record->value = padded;
}

FR_CASE(a_letter_holds_the_record_and_is_numbered_with_the_others)
{
    struct service *s = service_new(", batch_size: 4", 2);
    append(&s->log, 0, -1);
    append(&s->log, 0, 2);
    append(&s->log, 0, 2);
    assert_int_equal(service_start(s, false), FR_OK);
    struct fr_batch *batch = next_batch(s);
    assert_int_equal(batch->n_samples, 4);
    assert_int_equal(batch->dead_sequence, 1);
    assert_int_equal(send_letter(s, batch, 2), 2);
    assert_int_equal(s->dead.letters[1].offset, 2);
    assert_string_equal(s->dead.letters[1].topic, "samples");
    assert_string_equal(s->dead.letters[1].reason, "not fit");
    assert_string_equal(s->dead.letters[1].header, "trace=7");
    assert_int_equal(strncmp(s->dead.letters[1].value, s->log.partitions[0].records[2].value, 100), 0);
    s->dead.full = true;
    uint64_t number;
    assert_int_equal(fr_ingest_dead_letter(s->ingest, batch, fr_batch_record_of(batch, 0), "", &number), FR_AGAIN);
    s->dead.full = false;
    assert_int_equal(send_letter(s, batch, 0), 3);
    give_back(s, batch);
    append(&s->log, 0, -1); /* the next malformed one comes after ours */
    append(&s->log, 0, 4);
    batch = next_batch(s);
    assert_int_equal(batch->dead_sequence, 4);
    give_back(s, batch);
}

static void expect_one_letter(size_t padding, bool shared)
{
    struct service *s = service_new(", batch_size: 4", 1);
    append_padded(&s->log, 10, padding);
    append(&s->log, 0, 4);
    assert_int_equal(service_start(s, false), FR_OK);
    for (uint32_t i = 0; i < 3; i++) {
        struct fr_batch *batch = next_batch(s);
        const struct fr_batch_record *record = fr_batch_record_of(batch, 0);
        assert_int_equal(record->offset, 0);
        assert_int_equal(record->first_item, 4 * i);
        assert_int_equal(record->shared != NULL, shared);
        assert_int_equal(send_letter(s, batch, 0), i == 0 ? 1 : 0);
        if (i == 2) { /* the other record begins in this batch */
            assert_int_equal(fr_batch_record_of(batch, 2)->offset, 1);
            assert_int_equal(send_letter(s, batch, 3), 2);
        }
        give_back(s, batch);
    }
    assert_int_equal(s->dead.n, 2);
}

FR_CASE(a_record_split_between_batches_has_one_letter)
{
    expect_one_letter(0, false);
}

FR_CASE(batches_share_the_bytes_of_a_large_split_record)
{
    expect_one_letter(FR_SHARED_IMAGE_MIN, true);
}

FR_CASE(a_batch_closes_before_the_record_that_is_too_many_bytes)
{
    struct service *s = service_new(", batch_size: 64", 1);
    enum { PADDING = 900000, FIT = FR_BATCH_BYTES_MIN / (PADDING + 1000) };
    for (int i = 0; i < 2 * FIT + 1; i++)
        append_padded(&s->log, 1, PADDING);
    assert_int_equal(service_start(s, true), FR_OK);
    for (int i = 0; i < 2; i++) {
        struct fr_batch *batch = next_batch(s);
        assert_int_equal(batch->n_samples, FIT);
        assert_true(batch->image_bytes <= FR_BATCH_BYTES_MIN);
        give_back(s, batch);
    }
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_true(status.record_bytes >= (uint64_t)FIT * PADDING);
    fr_ingest_status_release(&status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(a_letter_holds_the_record_and_is_numbered_with_the_others),
        SERVICE_CASE(a_record_split_between_batches_has_one_letter),
        SERVICE_CASE(batches_share_the_bytes_of_a_large_split_record),
        SERVICE_CASE(a_batch_closes_before_the_record_that_is_too_many_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
