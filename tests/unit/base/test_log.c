/* base/log.h: one line an event, quoting, level, rate limit. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/wait.h>
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

/* Ends the capture and returns what was written since it began, at most what a pipe holds. */
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

/* ---- a reader that does not read ---- */

enum { HANG_S = 60, LINES = 20000 }; /* a caller that waits ends by SIGALRM */

static void fill_pipe(int fd)
{
    static const char bytes[4096] = "";
    int flags = fcntl(fd, F_GETFL);
    assert_int_equal(fcntl(fd, F_SETFL, flags | O_NONBLOCK), 0);
    for (size_t size = sizeof(bytes); size > 0; size /= 2)
        while (write(fd, bytes, size) > 0)
            ;
    assert_int_equal(fcntl(fd, F_SETFL, flags), 0);
}

FR_CASE(a_line_that_would_wait_is_lost_and_the_next_one_says_so)
{
    static char text[1 << 20];
    uint64_t before, unsaid, lost;
    struct capture capture = begin_capture();
    lost = fr_log_lost(&before);
    fill_pipe(STDERR_FILENO);
    alarm(HANG_S);
    fr_log(FR_LOG_INFO, "a", "first", NULL);
    fr_log(FR_LOG_INFO, "a", "second", NULL);
    alarm(0);
    uint64_t now = fr_log_lost(&unsaid);
    bool full = read(capture.read_end, text, sizeof(text)) == (ssize_t)sizeof(text); /* never */
    fr_log(FR_LOG_INFO, "a", "third", NULL);
    uint64_t after_unsaid, after = fr_log_lost(&after_unsaid);
    size_t size = end_capture(capture, text, sizeof(text));
    assert_false(full);
    assert_true(now == lost + 2 && unsaid == before + 2);
    assert_true(after == now && after_unsaid == 0);
    assert_true(size > 0 && strstr(text, "event=lines_lost lines=2 "));
    assert_true(strstr(text, "event=lines_lost") < strstr(text, "event=third"));
    assert_null(strstr(text, "event=first"));
}

FR_CASE(a_closed_stderr_loses_lines_and_nothing_else)
{
    uint64_t unsaid, lost = fr_log_lost(&unsaid);
    int saved = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    fr_log(FR_LOG_INFO, "a", "b", NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    uint64_t now = fr_log_lost(&unsaid);
    assert_true(now == lost + 1 && unsaid == 1);
    char line[5000];
    struct capture capture = begin_capture();
    fr_log(FR_LOG_INFO, "a", "c", NULL);
    end_capture(capture, line, sizeof(line));
    assert_non_null(strstr(line, "event=lines_lost lines=1 "));
}

/* ---- the log's own thread: in a child, since a process starts it once ---- */

struct child {
    pid_t pid;
    /* pipes: the child's stderr; where the child reports that it is done; where it waits */
    int err, report, go;
};

/* Starts a child whose stderr is a full pipe. */
static struct child start_child(void (*body)(int report, int go))
{
    int err[2], report[2], go[2];
    assert_true(pipe(err) == 0 && pipe(report) == 0 && pipe(go) == 0);
    fill_pipe(err[1]);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(HANG_S);
        dup2(err[1], STDERR_FILENO);
        close(err[0]);
        close(err[1]);
        if (!fr_log_start())
            _exit(2);
        body(report[1], go[0]);
        _exit(0);
    }
    close(err[1]);
    close(report[1]);
    close(go[0]);
    return (struct child){.pid = pid, .err = err[0], .report = report[0], .go = go[1]};
}

/* Returns all that the child writes until its end, without the zeros that filled the pipe. */
static char *read_lines(struct child child)
{
    static char text[8 << 20];
    size_t size = 0, filled = 0;
    ssize_t n;
    while (size < sizeof(text) - 1 && (n = read(child.err, text + size, sizeof(text) - 1 - size)) > 0)
        size += (size_t)n;
    text[size] = '\0';
    while (filled < size && text[filled] == '\0')
        filled++;
    return text + filled;
}

static int end_child(struct child child)
{
    int status = 0;
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    close(child.err);
    close(child.report);
    close(child.go);
    return status;
}

static void log_many(int report, int go)
{
    char byte = 0;
    uint64_t unsaid, before = fr_log_lost(&unsaid);
    for (int i = 0; i < LINES; i++)
        fr_log(FR_LOG_INFO, "a", "many", "i=%d", i);
    uint64_t lost = fr_log_lost(&unsaid) - before;
    if (write(report, &lost, sizeof(lost)) != (ssize_t)sizeof(lost) || read(go, &byte, 1) != 1)
        _exit(3);
    fr_log_last(FR_LOG_INFO, "a", "end", NULL);
    fr_log(FR_LOG_INFO, "a", "late", NULL);
}

/* Checks the lines of log_many: they come in order, and the missing ones are those that lines_lost
 * reports. */
static void check_lines(char *text, uint64_t lost)
{
    long next = 0;
    uint64_t said = 0;
    bool ended = false;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && line[0];) {
        const char *many = strstr(line, "event=many i="), *missing = strstr(line, "event=lines_lost lines=");
        assert_false(ended);
        ended = strstr(line, "event=end") != NULL;
        assert_true(many || missing || ended);
        if (many) {
            assert_int_equal(strtol(many + strlen("event=many i="), NULL, 10), next);
            next++;
        }
        if (missing) {
            uint64_t n = strtoull(missing + strlen("event=lines_lost lines="), NULL, 10);
            said += n;
            next += (long)n;
        }
    }
    assert_true(ended);
    assert_int_equal(next, LINES);
    assert_true(said == lost);
}

FR_CASE(no_caller_waits_for_the_reader_and_what_is_missing_is_said_where_it_is)
{
    uint64_t lost = 0;
    struct child child = start_child(log_many);
    /* nobody reads until here */
    assert_int_equal(read(child.report, &lost, sizeof(lost)), sizeof(lost));
    assert_true(lost > 0 && lost < LINES);
    assert_int_equal(write(child.go, "g", 1), 1);
    char *lines = read_lines(child);
    assert_int_equal(end_child(child), 0);
    check_lines(lines, lost);
}

static void report_lost_and_wait(int report, int go, uint64_t number)
{
    char byte = 0;
    if (write(report, &number, sizeof(number)) != (ssize_t)sizeof(number) || read(go, &byte, 1) != 1)
        _exit(3);
}

static void lose_and_log(int report, int go)
{
    uint64_t unsaid = 0;
    for (int i = 0; i < LINES; i++)
        fr_log(FR_LOG_INFO, "a", "many", "i=%d", i);
    (void)fr_log_lost(&unsaid);
    report_lost_and_wait(report, go, unsaid);
    fr_log_surely(FR_LOG_INFO, "a", "after", NULL); /* the line lines_lost comes before this line */
    report_lost_and_wait(report, go, unsaid);
    (void)fr_log_lost(&unsaid);
    report_lost_and_wait(report, go, unsaid);
}

static void read_some(int fd, size_t size)
{
    static char bytes[4096];
    for (ssize_t n; size > 0; size -= (size_t)n) {
        n = read(fd, bytes, size < sizeof(bytes) ? size : sizeof(bytes));
        assert_true(n > 0);
    }
}

FR_CASE(lines_are_unsaid_until_the_line_that_names_them_is_written)
{
    enum { SOME = 80 << 10 }; /* more than a pipe holds, so that lines are written; not all */
    uint64_t unsaid[3];
    struct child child = start_child(lose_and_log);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(read(child.report, &unsaid[i], sizeof(unsaid[i])), sizeof(unsaid[i]));
        if (i < 2)
            read_some(child.err, SOME);
        assert_int_equal(write(child.go, "g", 1), 1);
    }
    assert_int_equal(end_child(child), 0);
    assert_true(unsaid[0] > 0);
    assert_true(unsaid[2] == unsaid[0]);
}

static void stop_after_a_burst(int report, int go)
{
    (void)go;
    for (int i = 0; i < LINES; i++)
        fr_log(FR_LOG_INFO, "a", "many", "i=%d", i);
    if (write(report, "t", 1) != 1)
        _exit(3);
    /* there is no room for this line */
    fr_log_surely(FR_LOG_ERROR, "daemon", "stopped", "reason=%03000d", 1);
    fr_log_flush();
}

FR_CASE(a_line_that_must_be_written_waits_for_room_in_a_burst)
{
    char byte;
    struct child child = start_child(stop_after_a_burst);
    assert_int_equal(read(child.report, &byte, 1), 1);
    const char *lines = read_lines(child);
    assert_int_equal(end_child(child), 0);
    assert_non_null(strstr(lines, "event=stopped "));
}

static void end_at_once(int report, int go)
{
    (void)report;
    (void)go;
    fr_log_text("for people\n", 11);
    fr_log_flush();
    fr_log_last(FR_LOG_INFO, "a", "end", NULL);
    _exit(7);
}

FR_CASE(an_end_waits_for_the_reader_no_longer_than_its_patience)
{
    int status = end_child(start_child(end_at_once));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void write_as_a_library(int report, int go)
{
    (void)report;
    (void)go;
    fprintf(stderr, "terminate called\n");
    _exit(fr_log_descriptor() == STDERR_FILENO ? 1 : 8);
}

FR_CASE(what_libraries_write_to_a_full_pipe_does_not_wait_either)
{
    int status = end_child(start_child(write_as_a_library));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 8);
}

/* The case ends the log of this process, so it is the last one. */
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
        cmocka_unit_test(a_line_that_would_wait_is_lost_and_the_next_one_says_so),
        cmocka_unit_test(a_closed_stderr_loses_lines_and_nothing_else),
        cmocka_unit_test(no_caller_waits_for_the_reader_and_what_is_missing_is_said_where_it_is),
        cmocka_unit_test(lines_are_unsaid_until_the_line_that_names_them_is_written),
        cmocka_unit_test(a_line_that_must_be_written_waits_for_room_in_a_burst),
        cmocka_unit_test(an_end_waits_for_the_reader_no_longer_than_its_patience),
        cmocka_unit_test(what_libraries_write_to_a_full_pipe_does_not_wait_either),
        cmocka_unit_test(nothing_follows_the_last_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
