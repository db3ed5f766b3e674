/* A decoder, a batch and one-line ways to feed and look at them, over the schema of schema.h. */
#ifndef TEST_DECODE_FIXTURE_H
#define TEST_DECODE_FIXTURE_H

#include "case.h"

#include <stdlib.h>

#include "decode/decoder.h"
#include "schema.h"

struct fixture {
    struct schema schema;
    struct fr_decoder *decoder;
    struct fr_batch *batch;
    const char *reason;
};

/* Call after changes to fixture->schema. */
static inline void fixture_renew(struct fixture *fixture)
{
    fr_decoder_free(fixture->decoder);
    fr_batch_free(fixture->batch);
    fixture->decoder = fr_decoder_new(&fixture->schema.conf);
    fixture->batch = fr_batch_new(&fixture->schema.conf);
}

static inline int fixture_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    schema_init(&fixture->schema, FR_FORMAT_JSON);
    fixture_renew(fixture);
    *state = fixture;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    fr_decoder_free(fixture->decoder);
    fr_batch_free(fixture->batch);
    free(fixture);
    return 0;
}

static inline enum fr_status decode_bytes(struct fixture *fixture, const void *bytes, size_t size, uint32_t *n)
{
    struct fr_record record = {bytes, size, TIMESTAMP_MS, 0};
    fixture->reason = "accepted";
    enum fr_status status = fr_decode_record(fixture->decoder, &record, n, &fixture->reason);
    fr_decode_effective(fixture->decoder);
    return status;
}

/* Decodes JSON and appends all of it. */
static inline uint32_t accept_json(struct fixture *fixture, const char *text)
{
    uint32_t n = 0;
    if (decode_bytes(fixture, text, strlen(text), &n) != FR_OK)
        fail_msg("%s\n%s", text, fixture->reason);
    fr_decode_append(fixture->decoder, 0, n, fixture->batch);
    return n;
}

static inline void refuse_json(struct fixture *fixture, const char *text, const char *reason)
{
    uint32_t n = 0;
    assert_int_not_equal(decode_bytes(fixture, text, strlen(text), &n), FR_OK);
    if (!strstr(fixture->reason, reason))
        fail_msg("%s: %s; expected %s", text, fixture->reason, reason);
}

static inline uint32_t n_ids(const struct fixture *fixture, int slot, uint32_t sample)
{
    const struct fr_column *column = &fixture->batch->columns[slot];
    return column->begin[sample + 1] - column->begin[sample];
}

static inline uint64_t key_at(const struct fixture *fixture, int slot, uint32_t sample, uint32_t i)
{
    const struct fr_column *column = &fixture->batch->columns[slot];
    assert_true(i < n_ids(fixture, slot, sample));
    return column->keys[column->begin[sample] + i];
}

static inline uint64_t integer_key(const struct fixture *fixture, int slot, int64_t id)
{
    return fr_key_integer((uint64_t)id, fixture->schema.slots[slot].seed);
}

static inline float label_at(const struct fixture *fixture, int label, uint32_t sample)
{
    return fixture->batch->labels[(size_t)label * fixture->batch->capacity_samples + sample];
}

static inline float weight_at(const struct fixture *fixture, int label, uint32_t sample)
{
    return fixture->batch->weights[(size_t)label * fixture->batch->capacity_samples + sample];
}

static inline float served_at(const struct fixture *fixture, int task, uint32_t sample)
{
    assert_non_null(fixture->batch->served);
    return fixture->batch->served[(size_t)task * fixture->batch->capacity_samples + sample];
}

#endif
