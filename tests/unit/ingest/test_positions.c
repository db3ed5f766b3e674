/* Positions: applying, the P2 equations, the stored form. */
#include "case.h"

#include <stdlib.h>

#include "base/check.h"
#include "ingest/positions.h"

static struct fr_positions two_partitions(void)
{
    struct fr_positions positions = {.cluster_id = "cluster"};
    assert_int_equal(fr_positions_index(&positions, "a", 0), 0);
    assert_int_equal(fr_positions_index(&positions, "a", 7), 1);
    positions.partitions[0].offset = 41;
    positions.partitions[0].item = 3;
    positions.partitions[1] = (struct fr_partition_position){.topic = "a",
                                                             .partition = 7,
                                                             .offset = INT64_MAX,
                                                             .fingerprint_offset = 9,
                                                             .fingerprint_timestamp_ms = -1,
                                                             .fingerprint_crc32c = 0xdeadbeef,
                                                             .delivered = 1,
                                                             .decoded = 2,
                                                             .dead_lettered = 3,
                                                             .lost = 4,
                                                             .samples = 5,
                                                             .trained = 6,
                                                             .metrics_only = 7,
                                                             .masked = 8,
                                                             .quarantined = 9,
                                                             .skipped = 10};
    return positions;
}

FR_CASE(a_slot_keeps_its_number_and_begins_without_a_position)
{
    struct fr_positions positions = {0};
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(fr_positions_index(&positions, "t", (int32_t)i), i);
    assert_int_equal(fr_positions_index(&positions, "t", 63), 63);
    assert_int_equal(fr_positions_index(&positions, "u", 63), 100);
    assert_int_equal(positions.partitions[63].offset, -1);
    assert_int_equal(positions.partitions[63].fingerprint_offset, -1);
    fr_positions_release(&positions);
}

FR_CASE(what_was_encoded_is_parsed_to_the_same)
{
    struct fr_positions positions = two_partitions(), parsed = {0};
    struct fr_buffer bytes = {0}, again = {0};
    fr_positions_encode(&positions, &bytes);
    assert_int_equal(fr_positions_parse(bytes.data, bytes.size, &parsed), FR_OK);
    assert_int_equal(parsed.count, 2);
    assert_string_equal(parsed.cluster_id, "cluster");
    assert_int_equal(parsed.partitions[0].item, 3);
    assert_int_equal(parsed.partitions[1].offset, INT64_MAX);
    assert_int_equal(parsed.partitions[1].fingerprint_crc32c, 0xdeadbeef);
    assert_int_equal(parsed.partitions[1].skipped, 10);
    fr_positions_encode(&parsed, &again);
    assert_int_equal(again.size, bytes.size);
    assert_memory_equal(again.data, bytes.data, bytes.size);
    fr_buffer_release(&bytes);
    fr_buffer_release(&again);
    fr_positions_release(&positions);
    fr_positions_release(&parsed);
}

FR_CASE(skipped_ranges_are_stored_and_without_any_the_form_is_the_plain_one)
{
    struct fr_positions positions = two_partitions(), parsed = {0};
    struct fr_buffer plain = {0}, bytes = {0}, again = {0};
    fr_positions_encode(&positions, &plain);
    positions.partitions[1].n_skips = 2;
    positions.partitions[1].skips[0] = (struct fr_skip){0, 0};
    positions.partitions[1].skips[1] = (struct fr_skip){7, INT64_MAX};
    fr_positions_encode(&positions, &bytes);
    assert_int_equal(plain.data[0], 1);
    assert_int_equal(bytes.data[0], 2);
    assert_int_equal(bytes.size, plain.size + 2 * 4 + 2 * 16);
    assert_int_equal(fr_positions_parse(bytes.data, bytes.size, &parsed), FR_OK);
    assert_int_equal(parsed.partitions[0].n_skips, 0);
    assert_int_equal(parsed.partitions[1].n_skips, 2);
    assert_true(fr_positions_skips(&parsed.partitions[1], 0));
    assert_false(fr_positions_skips(&parsed.partitions[1], 1));
    assert_false(fr_positions_skips(&parsed.partitions[1], 6));
    assert_true(fr_positions_skips(&parsed.partitions[1], 7));
    assert_true(fr_positions_skips(&parsed.partitions[1], INT64_MAX));
    fr_positions_encode(&parsed, &again);
    assert_int_equal(again.size, bytes.size);
    assert_memory_equal(again.data, bytes.data, bytes.size);
    bytes.data[bytes.size - 1] = 0x80; /* the last end is negative */
    assert_int_equal(fr_positions_parse(bytes.data, bytes.size, &parsed), FR_E_CORRUPT);
    bytes.data[bytes.size - 1] = 0;
    memset(bytes.data + bytes.size - 8, 0, 8); /* it is before its begin */
    assert_int_equal(fr_positions_parse(bytes.data, bytes.size, &parsed), FR_E_CORRUPT);
    bytes.data[bytes.size - 2 * 16 - 4] = FR_SKIPS_MAX + 1;
    assert_int_equal(fr_positions_parse(bytes.data, bytes.size, &parsed), FR_E_CORRUPT);
    bytes.data[bytes.size - 2 * 16 - 4] = 0; /* form 2 without a range */
    assert_int_equal(fr_positions_parse(bytes.data, bytes.size - 2 * 16, &parsed), FR_E_CORRUPT);
    fr_buffer_release(&plain);
    fr_buffer_release(&bytes);
    fr_buffer_release(&again);
    fr_positions_release(&positions);
    fr_positions_release(&parsed);
}

FR_CASE(every_truncation_and_a_trailing_byte_are_refused)
{
    struct fr_positions positions = two_partitions(), parsed = {0};
    positions.partitions[0].n_skips = 1;
    positions.partitions[0].skips[0] = (struct fr_skip){50, 60};
    struct fr_buffer bytes = {0};
    fr_positions_encode(&positions, &bytes);
    for (size_t size = 0; size < bytes.size; size++) {
        /* its own allocation: a read past the end is seen */
        uint8_t *cut = malloc(size ? size : 1);
        memcpy(cut, bytes.data, size);
        assert_int_equal(fr_positions_parse(cut, size, &parsed), FR_E_CORRUPT);
        free(cut);
    }
    fr_put_u8(&bytes, 0);
    assert_int_equal(fr_positions_parse(bytes.data, bytes.size, &parsed), FR_E_CORRUPT);
    assert_int_equal(parsed.count, 0);
    fr_buffer_release(&bytes);
    fr_positions_release(&positions);
}

FR_CASE(a_partition_named_twice_is_refused)
{
    struct fr_positions positions = two_partitions(), parsed = {0};
    positions.partitions[0].partition = 7;
    struct fr_buffer bytes = {0};
    fr_positions_encode(&positions, &bytes);
    assert_int_equal(fr_positions_parse(bytes.data, bytes.size, &parsed), FR_E_CORRUPT);
    fr_buffer_release(&bytes);
    fr_positions_release(&positions);
}

FR_CASE(a_batch_moves_positions_and_adds_to_the_ledger)
{
    struct fr_positions positions = {0};
    struct fr_err err;
    (void)fr_positions_index(&positions, "a", 0);
    struct fr_batch_position entry = {.stream_index = 0,
                                      .offset = 12,
                                      .item = 2,
                                      .fingerprint = {11, 5, 6},
                                      .delivered = 3,
                                      .decoded = 2,
                                      .dead_lettered = 1,
                                      .samples = 15,
                                      .roles = {7, 2, 1},
                                      .skipped = 5,
                                      .lost = 4};
    struct fr_batch batch = {.n_positions = 1, .positions = &entry};
    fr_positions_apply(&positions, &batch);
    assert_int_equal(positions.partitions[0].offset, 12);
    assert_int_equal(positions.partitions[0].item, 2);
    assert_int_equal(positions.partitions[0].fingerprint_offset, 11);
    assert_int_equal(positions.partitions[0].trained, 7);
    assert_int_equal(positions.partitions[0].skipped, 5);
    assert_int_equal(positions.partitions[0].lost, 4);
    assert_true(fr_positions_balanced(&positions, &err));
    entry.roles[FR_ROLE_TRAIN] = 0;
    entry.roles[FR_ROLE_QUARANTINED] = 7;
    fr_positions_apply(&positions, &batch);
    assert_int_equal(positions.partitions[0].quarantined, 7);
    assert_int_equal(positions.partitions[0].trained, 7);
    assert_int_equal(positions.partitions[0].masked, 2);
    assert_true(fr_positions_balanced(&positions, &err));
    fr_positions_release(&positions);
}

FR_CASE(an_equation_that_fails_is_named)
{
    struct fr_positions positions = {0};
    struct fr_err err;
    (void)fr_positions_index(&positions, "a", 5);
    positions.partitions[0].delivered = 2;
    positions.partitions[0].decoded = 1;
    assert_false(fr_positions_balanced(&positions, &err));
    assert_non_null(strstr(err.text, "a/5: 1 decoded + 0 dead-lettered records are not the 2 delivered"));
    positions.partitions[0].dead_lettered = 1;
    positions.partitions[0].samples = 1;
    assert_false(fr_positions_balanced(&positions, &err));
    assert_non_null(strstr(err.text, "samples are not the 1 decoded"));
    positions.partitions[0].skipped = 1;
    assert_true(fr_positions_balanced(&positions, &err));
    fr_positions_release(&positions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_keeps_its_number_and_begins_without_a_position),
        cmocka_unit_test(what_was_encoded_is_parsed_to_the_same),
        cmocka_unit_test(skipped_ranges_are_stored_and_without_any_the_form_is_the_plain_one),
        cmocka_unit_test(every_truncation_and_a_trailing_byte_are_refused),
        cmocka_unit_test(a_partition_named_twice_is_refused),
        cmocka_unit_test(a_batch_moves_positions_and_adds_to_the_ledger),
        cmocka_unit_test(an_equation_that_fails_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
