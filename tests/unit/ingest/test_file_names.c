/* Which file a path means: one file under two names, and one whose path is written in another way
 * at a restart. */
#include "files_of.h"

#include <limits.h>
#include <sys/stat.h>

FR_CASE(one_file_under_two_names_is_refused)
{
    static int (*const name_also[])(const char *, const char *) = {link, symlink};
    for (size_t i = 0; i < FR_ARRAY_LEN(name_also); i++) {
        struct service *s = service_new("", 1);
        add_file(s, "a.jsonl", lines(0, 1));
        add_file(s, "other.jsonl", lines(0, 1));
        add_file(s, "b.jsonl", NULL);
        assert_int_equal(name_also[i](path_of(s, 0), path_of(s, 2)), 0);
        assert_int_equal(service_start(s, false), FR_E_INVALID);
        assert_non_null(strstr(s->err.text, "a.jsonl and /tmp/"));
        assert_non_null(strstr(s->err.text, "b.jsonl are one file"));
        files_free(s);
    }
}

/* Each written in another way than the state has it: `write` makes the path of the same file. */
static void write_with_dots(const char *path, char *out)
{
    const char *slash = strrchr(path, '/');
    snprintf(out, PATH_MAX, "%.*s/././%s", (int)(slash - path), path, slash + 1);
}

static void write_relative(const char *path, char *out)
{
    char here[PATH_MAX];
    assert_non_null(getcwd(here, sizeof(here)));
    *out = 0;
    for (const char *at = here; (at = strchr(at, '/')) != NULL && at[1]; at++)
        strcat(out, "../");
    strcat(out, path + 1);
}

static void write_link(const char *path, char *out)
{
    snprintf(out, PATH_MAX, "%s.link", path);
    assert_int_equal(symlink(path, out), 0);
}

FR_CASE(a_file_whose_path_is_written_in_another_way_is_read_on)
{
    static void (*const written_as[])(const char *, char *) = {write_with_dots, write_relative, write_link};
    for (size_t i = 0; i < FR_ARRAY_LEN(written_as); i++) {
        char other[PATH_MAX], topic[FR_TOPIC_MAX];
        struct service *s = half_read("a.jsonl");
        char *first = s->conf->ingest.files[0];
        written_as[i](first, other);
        snprintf(topic, sizeof(topic), "file:%.240s", other);
        s->conf->ingest.files[0] = other;
        s->skips[s->n_skips++] = (struct fr_ingest_skip){.range = {8, 8}};
        snprintf(s->skips[0].topic, sizeof(s->skips[0].topic), "file:%.200s", other);
        assert_int_equal(service_start(s, true), FR_OK);
        service_run(s);
        assert_true(s->end_of_stream);
        assert_string_equal(s->positions.partitions[0].topic, topic);
        assert_int_equal(s->positions.partitions[0].delivered, 10);
        assert_int_equal(s->positions.partitions[0].skipped, 1);
        for (uint32_t p = 1; p < s->positions.count; p++)
            assert_string_equal(s->positions.partitions[p].topic, "samples");
        s->conf->ingest.files[0] = first;
        if (written_as[i] == write_link)
            assert_int_equal(unlink(other), 0);
        files_free(s);
    }
}

FR_CASE(a_file_that_is_absent_is_known_by_its_path)
{
    char other[PATH_MAX], aside[PATH_MAX];
    struct service *s = half_read("a.jsonl");
    char *first = s->conf->ingest.files[0];
    write_with_dots(first, other);
    snprintf(aside, sizeof(aside), "%s.aside", first);
    assert_int_equal(rename(first, aside), 0);
    s->conf->ingest.files[0] = other;
    assert_int_equal(service_start(s, true), FR_E_UNAVAILABLE);
    assert_int_equal(rename(aside, first), 0);
    assert_int_equal(fr_ingest_start(s->ingest, &s->err), FR_OK);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].delivered, 10);
    s->conf->ingest.files[0] = first;
    files_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(one_file_under_two_names_is_refused),
        SERVICE_CASE(a_file_whose_path_is_written_in_another_way_is_read_on),
        SERVICE_CASE(a_file_that_is_absent_is_known_by_its_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
