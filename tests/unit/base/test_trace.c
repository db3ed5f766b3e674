/* The trace file: spans of named threads as JSON that viewers open; the newest are kept; nothing
 * happens while it is off. */
#include "case.h"

#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/thread.h"
#include "base/trace.h"

static char folder[FR_TEST_FOLDER], path[FR_TEST_FOLDER + 8];

FR_FIXTURE(make_folder)
{
    fr_test_folder(folder);
    snprintf(path, sizeof(path), "%s/trace", folder);
    return 0;
}

FR_FIXTURE(remove_folder)
{
    unlink(path);
    return rmdir(folder);
}

/* What was written, as a string of the buffer. */
static char *written(struct fr_buffer *text)
{
    assert_int_equal(fr_file_read(path, 1u << 28, text, NULL), FR_OK);
    fr_put_u8(text, 0);
    return (char *)text->data;
}

/* Does not use strstr, which under a sanitizer measures the whole rest of the text in each call. */
static size_t count(const char *text, const char *word)
{
    size_t n = 0, length = strlen(word);
    for (const char *at = text; *at; at++)
        n += strncmp(at, word, length) == 0;
    return n;
}

static void *one_span(void *unused)
{
    (void)unused;
    uint64_t begin_ns = fr_trace_begin();
    assert_true(begin_ns > 0);
    fr_trace_end("beside", begin_ns);
    return NULL;
}

FR_CASE(spans_are_written_with_the_names_of_their_threads)
{
    struct fr_buffer text = {0};
    pthread_t thread;
    uint64_t lost = 1;
    assert_int_equal(fr_trace_open(path, NULL), FR_OK);
    uint64_t begin_ns = fr_trace_begin();
    fr_trace_end("a \"quoted\" phase", begin_ns);
    assert_true(fr_thread_start(&thread, "fold", one_span, NULL));
    pthread_join(thread, NULL);
    assert_int_equal(fr_trace_close(&lost, NULL), FR_OK);
    assert_int_equal(lost, 0);
    const char *json = written(&text);
    assert_int_equal(count(json, "\"ph\":\"X\""), 2);
    assert_int_equal(count(json, "\"thread_name\""), 2);
    assert_non_null(strstr(json, "\"a \\\"quoted\\\" phase\""));
    assert_non_null(strstr(json, "{\"name\":\"fold\"}"));
    assert_non_null(strstr(json, "\"beside\""));
    assert_int_equal(strncmp(json, "{\"displayTimeUnit\"", 18), 0);
    fr_buffer_release(&text);
}

FR_CASE(the_newest_spans_are_kept_and_the_lost_are_counted)
{
    struct fr_buffer text = {0};
    uint64_t lost = 0;
    assert_int_equal(fr_trace_open(path, NULL), FR_OK);
    for (int i = 0; i < 3; i++)
        fr_trace_end("old", fr_trace_begin());
    for (int i = 0; i < FR_TRACE_EVENTS; i++)
        fr_trace_end("new", fr_trace_begin());
    assert_int_equal(fr_trace_close(&lost, NULL), FR_OK);
    assert_int_equal(lost, 3);
    const char *json = written(&text);
    assert_int_equal(count(json, "\"name\":\"old\""), 0);
    assert_int_equal(count(json, "\"name\":\"new\""), FR_TRACE_EVENTS);
    assert_non_null(strstr(json, "\"lost\":\"3\""));
    fr_buffer_release(&text);
}

FR_CASE(nothing_is_traced_before_and_after)
{
    uint64_t lost = 1;
    assert_int_equal(fr_trace_begin(), 0);
    fr_trace_end("off", 1);
    assert_int_equal(fr_trace_close(&lost, NULL), FR_OK);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(fr_trace_open(path, NULL), FR_OK);
    uint64_t begin_ns = fr_trace_begin();
    assert_int_equal(fr_trace_close(&lost, NULL), FR_OK);
    fr_trace_end("late", begin_ns);
    assert_int_equal(fr_trace_begin(), 0);
}

FR_CASE(a_place_that_cannot_be_written_is_named)
{
    struct fr_err err = {0};
    assert_int_equal(fr_trace_open("/dev/null/trace", &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, "/dev/null/trace"));
    assert_int_equal(fr_trace_begin(), 0);
}

FR_CASE(a_disk_that_takes_nothing_is_an_error)
{
    struct fr_err err = {0};
    assert_int_equal(fr_trace_open("/dev/full", &err), FR_OK);
    fr_trace_end("lost", fr_trace_begin());
    assert_int_equal(fr_trace_close(NULL, &err), FR_E_IO);
    assert_non_null(strstr(err.text, "/dev/full"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(spans_are_written_with_the_names_of_their_threads),
        CASE(the_newest_spans_are_kept_and_the_lost_are_counted),
        CASE(nothing_is_traced_before_and_after),
        CASE(a_place_that_cannot_be_written_is_named),
        CASE(a_disk_that_takes_nothing_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
