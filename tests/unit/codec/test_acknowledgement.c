/* Acknowledgements as JSON: what is written is read, and what other programs may write is read, cut
 * or refused. */
#include "case.h"

#include <string.h>

#include "codec/acknowledgement.h"

static enum fr_status parse(const char *text, struct fr_acknowledgement *out)
{
    return fr_acknowledgement_parse(text, strlen(text), "ctr", out);
}

#define SAID(more) "{\"v\":1,\"m\":\"ctr\",\"name\":\"a\",\"tl\":2,\"e\":7" more "}"

FR_CASE(an_acknowledgement_survives_writing_and_reading)
{
    const struct fr_acknowledgement said = {.name = "pod-\xe2\x98\x83\"",
                                            .timeline = 3,
                                            .epoch = UINT64_MAX,
                                            .written_ms = 1767225600000,
                                            .cut_ms = 1767225599000,
                                            .watermark_ms = 1767225598000,
                                            .rows = 12,
                                            .has_rows = true,
                                            .scores_per_second = 0.5,
                                            .has_scores = true,
                                            .leaving = true,
                                            .problem = "no \"broker\"\n"};
    struct fr_acknowledgement read;
    struct fr_buffer bytes = {0};
    fr_acknowledgement_write(&said, "ctr", &bytes);
    assert_int_equal(fr_acknowledgement_parse(bytes.data, bytes.size, "ctr", &read), FR_OK);
    assert_string_equal(read.name, said.name);
    assert_string_equal(read.problem, said.problem);
    assert_true(read.timeline == 3 && read.epoch == UINT64_MAX && read.rows == 12 && read.has_rows);
    assert_true(read.written_ms == said.written_ms && read.cut_ms == said.cut_ms);
    assert_true(read.watermark_ms == said.watermark_ms && read.scores_per_second == 0.5 && read.leaving);
    /* cut anywhere it is not a record */
    for (size_t size = 0; size < bytes.size; size++)
        assert_int_equal(fr_acknowledgement_parse(bytes.data, size, "ctr", &read), FR_E_INVALID);
    fr_buffer_release(&bytes);
}

FR_CASE(what_is_unknown_is_not_written_and_a_problem_is_always_text)
{
    struct fr_acknowledgement said = {.name = "a", .problem = "broken \xc3"};
    struct fr_buffer bytes = {0};
    fr_acknowledgement_write(&said, "ctr", &bytes);
    fr_buffer_terminate(&bytes);
    assert_string_equal((const char *)bytes.data,
                        "{\"v\":1,\"m\":\"ctr\",\"name\":\"a\",\"tl\":0,\"e\":0,\"problem\":\"broken \"}");
    fr_buffer_release(&bytes);
}

FR_CASE(other_keys_null_and_any_order_are_read)
{
    struct fr_acknowledgement read;
    assert_int_equal(
        parse(" {\"e\":7,\"x\":{\"y\":[1,{}]},\"name\":\"\\u00e4\",\"rows\":null,\"m\":\"ctr\",\"tl\":2,\"v\":1} ",
              &read),
        FR_OK);
    assert_string_equal(read.name, "\xc3\xa4");
    assert_true(read.epoch == 7 && read.timeline == 2 && !read.has_rows && !read.has_scores && !read.leaving);
    assert_int_equal(parse(SAID(",\"scores\":3"), &read), FR_OK);
    assert_true(read.has_scores && read.scores_per_second == 3);
}

FR_CASE(another_model_is_told_from_a_malformed_record)
{
    struct fr_acknowledgement read;
    assert_int_equal(fr_acknowledgement_parse(SAID(""), strlen(SAID("")), "ct", &read), FR_E_MISMATCH);
    assert_int_equal(fr_acknowledgement_parse(SAID(""), strlen(SAID("")), "ctrs", &read), FR_E_MISMATCH);
}

FR_CASE(what_no_replica_writes_is_refused)
{
    static const char *const texts[] = {
        "",
        "null",
        "[]",
        "7",
        "{}",
        "{\"v\":1,\"m\":\"ctr\",\"name\":\"a\",\"tl\":2}",
        "{\"v\":2,\"m\":\"ctr\",\"name\":\"a\",\"tl\":2,\"e\":7}",
        "{\"v\":1,\"m\":\"ctr\",\"name\":\"\",\"tl\":2,\"e\":7}",
        "{\"v\":1,\"m\":\"ctr\",\"name\":\"a\\u0000b\",\"tl\":2,\"e\":7}",
        "{\"v\":1,\"m\":\"ctr\",\"name\":\"a\\u001b[2J\",\"tl\":2,\"e\":7}",
        "{\"v\":1,\"m\":\"ctr\",\"name\":\"\xff\",\"tl\":2,\"e\":7}",
        "{\"v\":1,\"m\":\"ctr\",\"name\":\"a\",\"tl\":2,\"e\":-7}",
        "{\"v\":1,\"m\":\"ctr\",\"name\":\"a\",\"tl\":2,\"e\":7.5}",
        "{\"v\":1,\"m\":\"ctr\",\"name\":\"a\",\"tl\":2,\"e\":18446744073709551616}",
        "{\"v\":1,\"m\":\"ctr\",\"name\":\"a\",\"tl\":\"2\",\"e\":7}",
        SAID(",\"wm\":253402300800000"),
        SAID(",\"wm\":-1"),
        SAID(",\"cut\":[]"),
        SAID(",\"rows\":0.5"),
        SAID(",\"scores\":-1"),
        SAID(",\"scores\":1e999"),
        SAID(",\"problem\":{}"),
        SAID(",\"leaving\":1"),
        SAID("") SAID(""),
    };
    struct fr_acknowledgement read;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (parse(texts[i], &read) != FR_E_INVALID)
            fail_msg("it is taken: %s", texts[i]);
    assert_int_equal(parse(SAID(""), &read), FR_OK);
}

FR_CASE(lengths_end_at_their_limits)
{
    char text[FR_ACKNOWLEDGEMENT_BYTES_MAX + 200], filler[FR_ACKNOWLEDGEMENT_BYTES_MAX];
    struct fr_acknowledgement read;
    memset(filler, 'n', sizeof(filler));
    for (int more = 0; more < 2; more++) {
        int name = FR_REPLICA_NAME_MAX + more;
        snprintf(text, sizeof(text), "{\"v\":1,\"m\":\"ctr\",\"name\":\"%.*s\",\"tl\":2,\"e\":7}", name, filler);
        assert_int_equal(parse(text, &read), more ? FR_E_INVALID : FR_OK);
        int rest = FR_ACKNOWLEDGEMENT_BYTES_MAX - (int)strlen(SAID(",\"x\":\"\"")) + more;
        snprintf(text, sizeof(text), SAID(",\"x\":\"%.*s\""), rest, filler);
        assert_int_equal(strlen(text), FR_ACKNOWLEDGEMENT_BYTES_MAX + more);
        assert_int_equal(parse(text, &read), more ? FR_E_INVALID : FR_OK);
    }
    /* a problem is cut, between two characters */
    snprintf(text, sizeof(text), SAID(",\"problem\":\"%.*s\xe2\x98\x83\""), FR_REPLICA_PROBLEM_MAX - 2, filler);
    assert_int_equal(parse(text, &read), FR_OK);
    assert_int_equal(strlen(read.problem), FR_REPLICA_PROBLEM_MAX - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_acknowledgement_survives_writing_and_reading),
        cmocka_unit_test(what_is_unknown_is_not_written_and_a_problem_is_always_text),
        cmocka_unit_test(other_keys_null_and_any_order_are_read),
        cmocka_unit_test(another_model_is_told_from_a_malformed_record),
        cmocka_unit_test(what_no_replica_writes_is_refused),
        cmocka_unit_test(lengths_end_at_their_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
