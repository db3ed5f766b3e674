/* Hostile documents, on which the YAML parser or the expansion of aliases would spend minutes or
 * gigabytes, are refused at once, each with the limit that it exceeds. */
#include "conf_fixture.h"

#include <sys/resource.h>

#include "base/check.h"

/* The program is ended beyond these; without the limits of conf the cases take far more. */
enum { CPU_SECONDS = 60, MEMORY_BYTES = 1 << 30 };

/* `times` copies of `part` between head and tail; freed by the caller. */
static char *repeated(const char *head, const char *part, size_t times, const char *tail)
{
    size_t size = strlen(part);
    char *text = malloc(strlen(head) + times * size + strlen(tail) + 1), *at = text;
    assert_non_null(text);
    at += sprintf(at, "%s", head);
    for (size_t i = 0; i < times; i++, at += size)
        memcpy(at, part, size);
    sprintf(at, "%s", tail);
    return text;
}

static void assert_refused(char *text, const char *part)
{
    char *problems = problems_of(text, NULL, 0);
    assert_contains(problems, part);
    free(problems);
    free(text);
}

FR_CASE(brackets_without_end_are_too_deep)
{
    assert_refused(repeated("", "[", 300000, ""), "test.yaml:1:17: nested too deeply");
    assert_refused(repeated("", "{a: ", 200000, ""), "nested too deeply");
    assert_refused(repeated("", "- ", 300000, ""), "nested too deeply");
}

FR_CASE(aliases_are_counted)
{
    assert_refused(repeated("a: &a x\nb: [", "*a,", 150000, "]\n"), "more than 1000 aliases");
}

FR_CASE(copies_of_a_long_text_are_counted)
{
    char *scalar = repeated("a: &a ", "x", 400000, "\nb: ["), *text = repeated(scalar, "*a,", 900, "]\n");
    free(scalar);
    assert_refused(text, "values of more than 4MiB once aliases are expanded");
}

FR_CASE(anchors_are_counted)
{
    struct fr_buffer text = {0};
    fr_buffer_printf(&text, "a: [");
    for (int i = 0; i < 60000; i++)
        fr_buffer_printf(&text, "&a%d x,", i);
    fr_buffer_printf(&text, "]\n");
    assert_refused((char *)text.data, "more than 1000 anchors");
}

FR_CASE(directives_are_refused)
{
    struct fr_buffer text = {0};
    for (int i = 0; i < 60000; i++)
        fr_buffer_printf(&text, "%%TAG !a%d! b\n", i);
    fr_buffer_printf(&text, "--- {}\n");
    assert_refused((char *)text.data, "test.yaml:1:1: a %TAG directive");
}

FR_CASE(a_large_file_is_refused_by_its_size)
{
    assert_refused(repeated("", "# comment\n", 110000, ""), "too large; expected at most 1MiB");
}

FR_CASE(what_people_write_with_aliases_loads)
{
    struct fr_conf *conf = load_variant("  user: {dim: 8}\n", "  user: &t {dim: 8}\n  other: *t\n");
    assert_int_equal(conf->n_tables, 3);
    assert_int_equal(conf->tables[1].parts[0].dim, 8);
    fr_conf_free(conf);
}

int main(void)
{
    struct rlimit cpu = {CPU_SECONDS, CPU_SECONDS};
    if (setrlimit(RLIMIT_CPU, &cpu) != 0)
        return 1;
#ifndef __SANITIZE_ADDRESS__ /* which maps terabytes */
    struct rlimit memory = {MEMORY_BYTES, MEMORY_BYTES};
    if (setrlimit(RLIMIT_AS, &memory) != 0)
        return 1;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brackets_without_end_are_too_deep),
        cmocka_unit_test(aliases_are_counted),
        cmocka_unit_test(copies_of_a_long_text_are_counted),
        cmocka_unit_test(anchors_are_counted),
        cmocka_unit_test(directives_are_refused),
        cmocka_unit_test(a_large_file_is_refused_by_its_size),
        cmocka_unit_test(what_people_write_with_aliases_loads),
    };
    return cmocka_run_group_tests_name("conf limits", tests, NULL, NULL);
}
