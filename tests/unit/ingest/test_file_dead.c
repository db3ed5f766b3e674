/* Dead letters of a daemon without brokers: a file in the state directory. */
#include "case.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_clock.h"
#include "ingest/source.h"

struct scene {
    char folder[FR_TEST_FOLDER], path[FR_TEST_FOLDER + 32];
    struct fr_conf conf;
    struct fr_clock_fake clock;
    struct fr_dead_sink sink;
};

static void begin(struct scene *s)
{
    memset(s, 0, sizeof(*s));
    fr_test_folder(s->folder);
    snprintf(s->path, sizeof(s->path), "%s/dead_letters.jsonl", s->folder);
    s->conf.state_dir = s->folder;
    fr_clock_fake_init(&s->clock, 1000);
    assert_int_equal(fr_ingest_file_dead(&s->conf, &s->clock.clock, &s->sink, NULL), FR_OK);
    s->sink.prepare(s->sink.self);
}

static void end(struct scene *s)
{
    s->sink.close(s->sink.self);
    unlink(s->path);
    rmdir(s->folder);
}

static enum fr_status send(struct scene *s, int64_t offset, const void *value, size_t size, uint64_t *number)
{
    const struct fr_dead_letter letter = {
        .topic = "file:/a.jsonl", .offset = offset, .reason = "not \"JSON\"", .parts = {.value = value, .size = size}};
    return s->sink.send(s->sink.self, &letter, number);
}

static uint64_t acknowledged(struct scene *s)
{
    return s->sink.acknowledged(s->sink.self);
}

static void expect_file(const struct scene *s, const char *expected)
{
    char text[512] = "";
    FILE *file = fopen(s->path, "r");
    if (file) {
        size_t size = fread(text, 1, sizeof(text) - 1, file);
        text[size] = '\0';
        fclose(file);
    }
    assert_string_equal(text, expected);
}

#define LINE(offset, value)                                                                                            \
    "{\"topic\":\"file:/a.jsonl\",\"partition\":0,\"offset\":" #offset                                                 \
    ",\"reason\":\"not \\\"JSON\\\"\",\"value\":\"" value "\"}\n"

FR_CASE(letters_are_written_when_somebody_asks_for_them)
{
    struct scene s;
    uint64_t number;
    begin(&s);
    assert_int_equal(send(&s, 7, "x\t", 2, &number), FR_OK);
    assert_int_equal(number, 1);
    assert_int_equal(send(&s, 8, NULL, 0, &number), FR_OK);
    assert_int_equal(number, 2);
    expect_file(&s, "");
    assert_int_equal(acknowledged(&s), 2);
    expect_file(&s, LINE(7, "x\\u0009") LINE(8, ""));
    struct fr_dead_counts counts;
    s.sink.counts(s.sink.self, &counts);
    assert_int_equal(counts.sent, 2);
    end(&s);
}

FR_CASE(letters_that_are_withheld_are_in_no_file)
{
    struct scene s;
    uint64_t number;
    begin(&s);
    s.sink.withhold(s.sink.self, true);
    assert_int_equal(send(&s, 7, "x", 1, &number), FR_OK);
    assert_int_equal(acknowledged(&s), 0);
    expect_file(&s, "");
    s.sink.withhold(s.sink.self, false);
    assert_int_equal(acknowledged(&s), 1);
    expect_file(&s, LINE(7, "x"));
    end(&s);
}

FR_CASE(a_file_that_cannot_be_written_is_said_and_tried_again)
{
    struct scene s;
    uint64_t number;
    char problem[256];
    begin(&s);
    assert_int_equal(mkdir(s.path, 0700), 0); /* a folder in its place */
    assert_int_equal(send(&s, 7, "x", 1, &number), FR_OK);
    assert_int_equal(acknowledged(&s), 0);
    assert_false(s.sink.healthy(s.sink.self, problem, sizeof(problem)));
    assert_non_null(strstr(problem, "dead_letters.jsonl"));
    assert_non_null(strstr(problem, "1 dead letters wait"));
    assert_int_equal(rmdir(s.path), 0);
    assert_int_equal(acknowledged(&s), 0); /* not before a second has passed */
    fr_clock_fake_advance_ms(&s.clock, 1001);
    assert_int_equal(acknowledged(&s), 1);
    assert_true(s.sink.healthy(s.sink.self, problem, sizeof(problem)));
    expect_file(&s, LINE(7, "x"));
    end(&s);
}

FR_CASE(a_line_that_was_cut_is_ended)
{
    struct scene s;
    uint64_t number;
    begin(&s);
    FILE *file = fopen(s.path, "w");
    assert_non_null(file);
    fprintf(file, "{\"topic\":");
    fclose(file);
    assert_int_equal(send(&s, 7, "x", 1, &number), FR_OK);
    assert_int_equal(acknowledged(&s), 1);
    expect_file(&s, "{\"topic\":\n" LINE(7, "x"));
    end(&s);
}

FR_CASE(a_value_that_is_no_text_is_given_as_digits)
{
    struct scene s;
    uint64_t number;
    begin(&s);
    assert_int_equal(send(&s, 7, "\xff\x00z", 3, &number), FR_OK);
    assert_int_equal(acknowledged(&s), 1);
    expect_file(&s, "{\"topic\":\"file:/a.jsonl\",\"partition\":0,\"offset\":7,\"reason\":\"not \\\"JSON\\\"\","
                    "\"hex\":\"ff007a\"}\n");
    end(&s);
}

FR_CASE(a_file_that_is_cut_or_moved_is_continued)
{
    struct scene s;
    uint64_t number;
    char moved[sizeof(s.path) + 8];
    begin(&s);
    snprintf(moved, sizeof(moved), "%s.1", s.path);
    assert_int_equal(send(&s, 7, "x", 1, &number), FR_OK);
    assert_int_equal(acknowledged(&s), 1);
    assert_int_equal(truncate(s.path, 0), 0);
    assert_int_equal(send(&s, 8, "y", 1, &number), FR_OK);
    assert_int_equal(acknowledged(&s), 2);
    expect_file(&s, LINE(8, "y"));
    assert_int_equal(rename(s.path, moved), 0);
    assert_int_equal(send(&s, 9, "z", 1, &number), FR_OK);
    assert_int_equal(acknowledged(&s), 3);
    expect_file(&s, LINE(9, "z"));
    unlink(moved);
    end(&s);
}

FR_CASE(letters_beyond_the_bound_wait)
{
    struct scene s;
    uint64_t number;
    begin(&s);
    s.sink.withhold(s.sink.self, true);
    size_t size = (size_t)40 << 20;
    char *value = malloc(size);
    assert_non_null(value);
    memset(value, 'x', size);
    assert_int_equal(send(&s, 7, value, size, &number), FR_OK);
    assert_int_equal(send(&s, 8, value, size, &number), FR_AGAIN);
    s.sink.withhold(s.sink.self, false);
    assert_int_equal(send(&s, 8, value, size, &number), FR_OK);
    assert_int_equal(number, 2);
    assert_int_equal(acknowledged(&s), 2);
    free(value);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_are_written_when_somebody_asks_for_them),
        cmocka_unit_test(letters_that_are_withheld_are_in_no_file),
        cmocka_unit_test(a_file_that_cannot_be_written_is_said_and_tried_again),
        cmocka_unit_test(a_line_that_was_cut_is_ended),
        cmocka_unit_test(a_value_that_is_no_text_is_given_as_digits),
        cmocka_unit_test(a_file_that_is_cut_or_moved_is_continued),
        cmocka_unit_test(letters_beyond_the_bound_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
