/* base/hash.h and base/crc32c.h: golden values (they are stored and sent), the inverse, both CRC
 * paths, streams. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"

FR_CASE(fmix64_matches_the_published_finalizer)
{
    assert_true(fr_fmix64(0) == 0);
    assert_true(fr_fmix64(1) == 0xb456bcfc34c2cb2cULL);
    assert_true(fr_fmix64(0xffffffffffffffffULL) == 0x64b5720b4b825f21ULL);
}

FR_CASE(fmix64_inverse_undoes_fmix64)
{
    uint64_t k = 0;
    for (int i = 0; i < 100000; i++) {
        assert_true(fr_fmix64_inverse(fr_fmix64(k)) == k);
        assert_true(fr_fmix64(fr_fmix64_inverse(k)) == k);
        k = k * 6364136223846793005ULL + 1442695040888963407ULL;
    }
    assert_true(fr_fmix64_inverse(fr_fmix64(UINT64_MAX)) == UINT64_MAX);
}

FR_CASE(xxh3_has_its_published_values)
{
    assert_true(fr_xxh3("", 0) == 0x2d06800538d394c2ULL);
    assert_true(fr_xxh3("abc", 3) == 0x78af5f94892f3950ULL);
    assert_true(fr_xxh3_seed("abc", 3, 0) == fr_xxh3("abc", 3));
    assert_true(fr_xxh3_seed("abc", 3, 1) != fr_xxh3("abc", 3));
}

FR_CASE(a_stream_gives_the_value_of_the_whole)
{
    uint8_t bytes[5000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 31 + i / 256);
    for (size_t piece = 1; piece < 1500; piece += 211) {
        struct fr_xxh3_stream *stream = fr_xxh3_stream_new();
        for (size_t at = 0; at < sizeof(bytes); at += piece)
            fr_xxh3_stream_update(stream, bytes + at, sizeof(bytes) - at < piece ? sizeof(bytes) - at : piece);
        fr_xxh3_stream_update(stream, NULL, 0);
        assert_true(fr_xxh3_stream_digest(stream) == fr_xxh3(bytes, sizeof(bytes)));
        fr_xxh3_stream_free(stream);
    }
    fr_xxh3_stream_free(NULL);
}

FR_CASE(a_sha256_stream_gives_the_value_of_the_whole_and_begins_again)
{
    uint8_t bytes[3000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37 + i / 256);
    struct fr_sha256 whole = fr_sha256(bytes, sizeof(bytes)), empty = fr_sha256(NULL, 0);
    struct fr_sha256_stream *stream = fr_sha256_stream_new();
    for (size_t piece = 1; piece < 1500; piece += 211) {
        for (size_t at = 0; at < sizeof(bytes); at += piece)
            fr_sha256_stream_update(stream, bytes + at, sizeof(bytes) - at < piece ? sizeof(bytes) - at : piece);
        fr_sha256_stream_update(stream, NULL, 0);
        struct fr_sha256 digest = fr_sha256_stream_end(stream);
        assert_memory_equal(digest.bytes, whole.bytes, sizeof(whole.bytes));
    }
    struct fr_sha256 digest = fr_sha256_stream_end(stream);
    assert_memory_equal(digest.bytes, empty.bytes, sizeof(empty.bytes));
    fr_sha256_stream_free(stream);
    fr_sha256_stream_free(NULL);
}

FR_CASE(sha256_has_the_values_of_fips_180)
{
    static const uint8_t abc[32] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
                                    0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
                                    0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    struct fr_sha256 digest = fr_sha256("abc", 3);
    assert_memory_equal(digest.bytes, abc, sizeof(abc));
    assert_true(fr_sha256_u64(&digest) == 0xba7816bf8f01cfeaULL);
    struct fr_sha256 empty = fr_sha256(NULL, 0);
    assert_true(fr_sha256_u64(&empty) == 0xe3b0c44298fc1c14ULL);
}

FR_CASE(crc32c_has_its_check_value)
{
    assert_int_equal(fr_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(fr_crc32c_portable(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(fr_crc32c(0, NULL, 0), 0);
    const uint8_t zeros[32] = {0}; /* RFC 3720, appendix B.4 */
    assert_int_equal(fr_crc32c(0, zeros, sizeof(zeros)), 0x8a9136aau);
}

FR_CASE(both_crc_paths_agree_for_every_length_and_alignment)
{
    uint8_t bytes[600];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)fr_fmix64(i + 1);
    for (size_t offset = 0; offset < 9; offset++)
        for (size_t size = 0; size + offset <= sizeof(bytes); size++)
            assert_int_equal(fr_crc32c(0x1234, bytes + offset, size), fr_crc32c_portable(0x1234, bytes + offset, size));
}

FR_CASE(both_crc_paths_agree_where_long_inputs_go_in_streams)
{
    enum { STREAMS = 3 * 1024, SIZE = 3 * STREAMS + 64 };
    uint8_t *bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)fr_fmix64(i + 7);
    for (size_t streams = 1; streams <= 3; streams++)
        for (size_t size = streams * STREAMS - 17; size < streams * STREAMS + 17; size++)
            for (size_t offset = 0; offset < 9; offset += 4)
                assert_int_equal(fr_crc32c(0x4321, bytes + offset, size),
                                 fr_crc32c_portable(0x4321, bytes + offset, size));
    free(bytes);
}

FR_CASE(crc_continues_over_pieces)
{
    const char text[] = "the positions advance with the epoch";
    uint32_t whole = fr_crc32c(0, text, sizeof(text));
    for (size_t cut = 0; cut <= sizeof(text); cut++)
        assert_int_equal(fr_crc32c(fr_crc32c(0, text, cut), text + cut, sizeof(text) - cut), whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fmix64_matches_the_published_finalizer),
        cmocka_unit_test(fmix64_inverse_undoes_fmix64),
        cmocka_unit_test(xxh3_has_its_published_values),
        cmocka_unit_test(a_stream_gives_the_value_of_the_whole),
        cmocka_unit_test(a_sha256_stream_gives_the_value_of_the_whole_and_begins_again),
        cmocka_unit_test(sha256_has_the_values_of_fips_180),
        cmocka_unit_test(crc32c_has_its_check_value),
        cmocka_unit_test(both_crc_paths_agree_for_every_length_and_alignment),
        cmocka_unit_test(both_crc_paths_agree_where_long_inputs_go_in_streams),
        cmocka_unit_test(crc_continues_over_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
