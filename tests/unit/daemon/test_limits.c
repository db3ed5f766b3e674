/* daemon/limits.c: warnings about a configuration that is too large for the machine. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "process_limits.h"

static const uint64_t GIB = (uint64_t)1 << 30;

/* The warnings as text; *lines: how many. */
static const char *warn(const struct fr_conf *conf, const struct fr_machine *machine, int *lines)
{
    static struct fr_buffer out;
    fr_buffer_clear(&out);
    fr_limits_warn(conf, machine, "c.yaml", &out);
    *lines = 0;
    for (size_t i = 0; i < out.size; i++)
        *lines += out.data[i] == '\n';
    fr_put_u8(&out, 0);
    return (const char *)out.data;
}

FR_CASE(what_fits_is_not_warned_of)
{
    int lines;
    const struct fr_machine machine = {.online = 8, .allowed = 8, .memory = 16 * GIB};
    const struct fr_conf conf = {.memory_limit = 16 * GIB, .threads = 8}, any = {.memory_limit = GIB};
    (void)warn(&conf, &machine, &lines);
    assert_int_equal(lines, 0);
    (void)warn(&any, &machine, &lines);
    assert_int_equal(lines, 0);
}

FR_CASE(memory_beyond_the_machine_or_its_group_is_named)
{
    int lines;
    struct fr_machine machine = {.online = 8, .allowed = 8, .memory = 16 * GIB};
    const struct fr_conf conf = {.memory_limit = 16 * GIB + 1};
    const char *text = warn(&conf, &machine, &lines);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(text, "c.yaml: memory_limit: 17179869185B, but this machine gives 17179869184B"));
    machine.limit = GIB;
    text = warn(&conf, &machine, &lines);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(text, "but the control group gives 1073741824B"));
}

FR_CASE(threads_beyond_affinity_or_quota_are_named)
{
    int lines;
    struct fr_machine machine = {.online = 8, .allowed = 1, .memory = 16 * GIB};
    const struct fr_conf conf = {.memory_limit = GIB, .threads = 2};
    const char *text = warn(&conf, &machine, &lines);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(text, "threads: 2, but the process may use 1 of 8"));
    machine = (struct fr_machine){.online = 8, .allowed = 8, .quota = 1.5, .memory = 16 * GIB};
    (void)warn(&conf, &machine, &lines);
    assert_int_equal(lines, 0); /* a quota of 1.5 processors counts as two */
}

FR_CASE(workers_follow_the_machine_where_none_are_named)
{
    const struct fr_conf named = {.threads = 3}, any = {.threads = 0};
    assert_int_equal(fr_limits_workers(&named), 3);
    assert_int_equal(fr_limits_workers(&any), fr_machine_processors(fr_machine()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_not_warned_of),
        cmocka_unit_test(memory_beyond_the_machine_or_its_group_is_named),
        cmocka_unit_test(threads_beyond_affinity_or_quota_are_named),
        cmocka_unit_test(workers_follow_the_machine_where_none_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
