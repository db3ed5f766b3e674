/* base/log.h: one line an event, quoting, level, rate limit. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <unistd.h>

#include "base/log.h"

struct capture {
    int saved;
    int read_end;
};

static struct capture begin_capture(void)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    struct capture capture = {.saved = dup(STDERR_FILENO), .read_end = fds[0]};
    fflush(stderr);
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]);
    return capture;
}

/* What was written since, at most what a pipe holds. */
static size_t end_capture(struct capture capture, char *out, size_t size)
{
    dup2(capture.saved, STDERR_FILENO);
    close(capture.saved);
    size_t got = 0;
    ssize_t n;
    while (got < size - 1 && (n = read(capture.read_end, out + got, size - 1 - got)) > 0)
        got += (size_t)n;
    out[got] = '\0';
    close(capture.read_end);
    return got;
}

FR_CASE(a_line_has_time_level_component_event_and_fields)
{
    char line[5000];
    struct capture capture = begin_capture();
    fr_log(FR_LOG_WARN, "ingest", "assigned", "topic=%s partition=%d", "clicks", 3);
    end_capture(capture, line, sizeof(line));
    int year, month, day, hour, minute, second, ms, used = 0;
    assert_int_equal(
        sscanf(line, "ts=%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &year, &month, &day, &hour, &minute, &second, &ms, &used), 7);
    assert_string_equal(line + used, " level=warn component=ingest event=assigned topic=clicks partition=3\n");
}

FR_CASE(lines_below_the_level_are_not_written)
{
    char line[5000];
    struct capture capture = begin_capture();
    fr_log(FR_LOG_DEBUG, "a", "hidden", NULL);
    fr_log_set_level(FR_LOG_ERROR);
    fr_log(FR_LOG_WARN, "a", "hidden", NULL);
    fr_log(FR_LOG_ERROR, "a", "shown", NULL);
    fr_log_set_level(FR_LOG_DEBUG);
    fr_log(FR_LOG_DEBUG, "a", "also_shown", NULL);
    fr_log_set_level(FR_LOG_INFO);
    end_capture(capture, line, sizeof(line));
    assert_null(strstr(line, "hidden"));
    assert_non_null(strstr(line, "event=shown\n"));
    assert_non_null(strstr(line, "event=also_shown\n"));
}

FR_CASE(data_cannot_begin_a_second_line)
{
    char line[5000];
    struct capture capture = begin_capture();
    fr_log(FR_LOG_INFO, "a", "b", "k=%s", "x\nlevel=error\r\x1b[0m");
    size_t size = end_capture(capture, line, sizeof(line));
    assert_true(strchr(line, '\n') == line + size - 1);
    assert_null(strchr(line, '\r'));
    assert_null(strchr(line, '\x1b'));
}

FR_CASE(a_long_line_is_cut_at_4096_bytes_and_says_so)
{
    char line[9000];
    struct capture capture = begin_capture();
    fr_log(FR_LOG_INFO, "a", "b", "k=%08000d", 1);
    size_t size = end_capture(capture, line, sizeof(line));
    assert_true(size <= 4096 && size > 4000);
    assert_string_equal(line + size - 4, "...\n");
}

FR_CASE(errno_is_kept)
{
    char line[5000];
    struct capture capture = begin_capture();
    errno = ENOTTY;
    fr_log(FR_LOG_INFO, "a", "b", "k=1");
    int after = errno;
    end_capture(capture, line, sizeof(line));
    assert_int_equal(after, ENOTTY);
}

FR_CASE(quotes_escape_what_would_end_them)
{
    char out[64];
    assert_string_equal(fr_log_quote(out, sizeof(out), "plain text"), "\"plain text\"");
    assert_string_equal(fr_log_quote(out, sizeof(out), "a\"b\\c"), "\"a\\\"b\\\\c\"");
    assert_string_equal(fr_log_quote(out, sizeof(out), "a\nb\t\x01"), "\"a\\nb\\t\\x01\"");
    assert_string_equal(fr_log_quote(out, sizeof(out), "gr\xc3\xbc\xc3\x9f"), "\"gr\xc3\xbc\xc3\x9f\"");
    assert_string_equal(fr_log_quote(out, sizeof(out), NULL), "\"\"");
}

FR_CASE(a_cut_quote_is_closed)
{
    char out[16];
    for (size_t size = 3; size <= sizeof(out); size++) {
        memset(out, 'z', sizeof(out));
        fr_log_quote(out, size, "\\\\\"\"\x02\x03zzzzzzzzzzzzzzzzzzz");
        size_t length = strlen(out);
        assert_true(length < size && length >= 2);
        assert_int_equal(out[0], '"');
        assert_int_equal(out[length - 1], '"');
        size_t backslashes = 0;
        for (size_t i = length - 1; i > 1 && out[i - 1] == '\\'; i--)
            backslashes++;
        assert_true(backslashes % 2 == 0); /* the closing quote is not escaped */
    }
}

FR_CASE(a_repeated_event_is_due_once_an_interval)
{
    unsigned long long last = 0;
    assert_true(fr_log_due(&last, 1000, 500));
    assert_false(fr_log_due(&last, 1499, 500));
    assert_true(fr_log_due(&last, 1500, 500));
    assert_false(fr_log_due(&last, 1999, 500));
    last = 0;
    assert_true(fr_log_due(&last, 0, 500));
    assert_false(fr_log_due(&last, 100, 500));
}

FR_CASE(a_label_stands_in_every_line_behind_the_level)
{
    char line[5000];
    struct capture capture = begin_capture();
    fr_log_set_label("model=ctr");
    fr_log(FR_LOG_INFO, "a", "b", "k=1");
    fr_log_set_label("");
    fr_log(FR_LOG_INFO, "a", "b", "k=2");
    end_capture(capture, line, sizeof(line));
    assert_non_null(strstr(line, " level=info model=ctr component=a event=b k=1\n"));
    assert_non_null(strstr(line, " level=info component=a event=b k=2\n"));
}

/* Ends the log of this process: the last case. */
FR_CASE(nothing_follows_the_last_line)
{
    char line[5000];
    struct capture capture = begin_capture();
    fr_log_set_level(FR_LOG_ERROR);
    fr_log_last(FR_LOG_INFO, "daemon", "drained", "epoch=7");
    fr_log(FR_LOG_ERROR, "a", "late", "k=1");
    fr_log_last(FR_LOG_ERROR, "a", "later", "k=1");
    end_capture(capture, line, sizeof(line));
    assert_non_null(strstr(line, "event=drained epoch=7\n"));
    assert_null(strstr(line, "late"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_time_level_component_event_and_fields),
        cmocka_unit_test(lines_below_the_level_are_not_written),
        cmocka_unit_test(data_cannot_begin_a_second_line),
        cmocka_unit_test(a_long_line_is_cut_at_4096_bytes_and_says_so),
        cmocka_unit_test(errno_is_kept),
        cmocka_unit_test(quotes_escape_what_would_end_them),
        cmocka_unit_test(a_cut_quote_is_closed),
        cmocka_unit_test(a_repeated_event_is_due_once_an_interval),
        cmocka_unit_test(a_label_stands_in_every_line_behind_the_level),
        cmocka_unit_test(nothing_follows_the_last_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
