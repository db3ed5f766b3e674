/* The history of /history: what a point of each resolution says, gaps, rates, the ring's end, and
 * what a query asks for. */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fake_clock.h"
#include "metrics/history.h"

struct scene {
    struct fr_clock_fake clock;
    struct fr_history *history;
    struct fr_buffer text;
};

FR_FIXTURE(setup)
{
    struct scene *scene = fr_alloc(1, sizeof(*scene));
    fr_clock_fake_init(&scene->clock, 1700000000000);
    scene->history = fr_history_new(&scene->clock.clock);
    *state = scene;
    return 0;
}

FR_FIXTURE(teardown)
{
    struct scene *scene = *state;
    fr_history_free(scene->history);
    fr_buffer_release(&scene->text);
    free(scene);
    return 0;
}

static void add(struct scene *scene, const char *name, enum fr_history_of of)
{
    struct fr_history_column column = {.of = of};
    snprintf(column.name, sizeof(column.name), "%s", name);
    assert_true(fr_history_add(scene->history, &column));
}

/* Of one column. */
static void put(struct scene *scene, double value)
{
    fr_history_put(scene->history, &value);
}

static void put_then_wait(struct scene *scene, double value)
{
    put(scene, value);
    fr_clock_fake_advance_ms(&scene->clock, 1000);
}

/* The document's part from `"second"` on without the columns, or the error. */
static const char *ask(struct scene *scene, const char *query, int status)
{
    fr_buffer_clear(&scene->text);
    assert_int_equal(fr_history_answer(scene->history, query, &scene->text), status);
    fr_buffer_terminate(&scene->text);
    const char *part = strstr((const char *)scene->text.data, "\"step\":");
    return part ? part : (const char *)scene->text.data;
}

FR_CASE(a_point_joins_its_seconds_as_its_column_says)
{
    struct scene *scene = *state;
    add(scene, "mean", FR_HISTORY_MEAN);
    add(scene, "max", FR_HISTORY_MAX);
    add(scene, "last", FR_HISTORY_LAST);
    for (int s = 0; s < 12; s++) {
        const double values[3] = {s, 100 - s, s == 9 ? NAN : s};
        assert_true(fr_history_due(scene->history));
        fr_history_put(scene->history, values);
        assert_false(fr_history_due(scene->history));
        fr_history_put(scene->history, (const double[3]){-1, 1000, -1}); /* in the same second */
        fr_clock_fake_advance_ms(&scene->clock, 1000);
    }
    assert_string_equal(ask(scene, "step=10", 200),
                        "\"step\":10,\"first\":0,\"values\":[[4.5,10.5],[100,90],[8,11]]}\n");
    assert_non_null(
        strstr((const char *)scene->text.data,
               "{\"begin_ms\":1700000000000,\"second\":11,\"columns\":[{\"name\":\"mean\",\"of\":\"mean\"},"));
}

FR_CASE(seconds_without_values_and_values_that_are_not_known_are_null)
{
    struct scene *scene = *state;
    add(scene, "x", FR_HISTORY_MEAN);
    put_then_wait(scene, 1);
    put_then_wait(scene, NAN);
    fr_clock_fake_advance_ms(&scene->clock, 25000);
    put(scene, 3);
    assert_string_equal(ask(scene, "step=10", 200), "\"step\":10,\"first\":0,\"values\":[[1,null,3]]}\n");
    assert_string_equal(ask(scene, "step=1&since=24", 200),
                        "\"step\":1,\"first\":24,\"values\":[[null,null,null,3]]}\n");
}

FR_CASE(a_counter_becomes_its_growth_over_five_seconds)
{
    struct scene *scene = *state;
    add(scene, "rate", FR_HISTORY_RATE);
    const double counts[] = {100, 110, 110, 140, 140, 140, 260, NAN, 20, 20};
    for (size_t i = 0; i < FR_ARRAY_LEN(counts); i++)
        put_then_wait(scene, counts[i]);
    /* second 6: (260 - 110) / 5; 8: the counter fell since second 3 */
    assert_string_equal(ask(scene, "step=1", 200), "\"step\":1,\"first\":0,\"values\":[[null,10,5,13."
                                                   "33333,10,8,30,null,null,null]]}\n");
    fr_clock_fake_advance_ms(&scene->clock, 60000);
    put_then_wait(scene, 1000); /* nothing within five seconds to compare with */
    put(scene, 1001);
    assert_string_equal(ask(scene, "step=1&since=70", 200), "\"step\":1,\"first\":70,\"values\":[[null,1]]}\n");
}

/* Ten minutes of seconds; the older ones are left to the coarser steps. */
FR_CASE(each_resolution_keeps_its_newest_points)
{
    struct scene *scene = *state;
    add(scene, "second", FR_HISTORY_LAST);
    for (int s = 0; s <= 86400 + 59; s++)
        put_then_wait(scene, s);
    assert_non_null(strstr(ask(scene, "", 200), "\"step\":1,\"first\":85860,\"values\":[[85860,85861,"));
    assert_non_null(strstr(ask(scene, "step=10", 200), "\"step\":10,\"first\":79260,\"values\":[[79269,79279,"));
    const char *text = ask(scene, "step=60", 200);
    assert_non_null(strstr(text, "\"step\":60,\"first\":60,\"values\":[[119,179,"));
    assert_non_null(strstr(text, "86339,86399,86459]]}\n"));
    fr_clock_fake_advance_ms(&scene->clock, 1000ll * 86400 * 400); /* longer than every ring */
    put(scene, 5);
    text = ask(scene, "step=60", 200);
    assert_non_null(strstr(text, "null,null,5]]}\n"));
    assert_null(strstr(text, "86459"));
}

FR_CASE(a_wall_clock_that_is_set_moves_the_whole_history)
{
    struct scene *scene = *state;
    add(scene, "x", FR_HISTORY_LAST);
    put_then_wait(scene, 1);
    scene->clock.wall_ms += 3600000;
    put(scene, 2);
    assert_string_equal(ask(scene, "step=1", 200), "\"step\":1,\"first\":0,\"values\":[[1,2]]}\n");
    assert_non_null(strstr((const char *)scene->text.data, "{\"begin_ms\":1700003600000,\"second\":1,"));
}

FR_CASE(a_query_that_asks_for_anything_else_is_refused)
{
    struct scene *scene = *state;
    static const char *const queries[] = {"step=7",
                                          "step=",
                                          "since=-1",
                                          "since=1x",
                                          "x=1",
                                          "step=1&&since=1",
                                          "?",
                                          "since=1;",
                                          "&",
                                          "since=1.50",
                                          "since=99999999999999999999"};
    add(scene, "x", FR_HISTORY_LAST);
    assert_string_equal(ask(scene, "step=1", 200), "\"step\":1,\"first\":0,\"values\":[[]]}\n");
    put(scene, 1);
    for (size_t i = 0; i < FR_ARRAY_LEN(queries); i++)
        assert_non_null(strstr(ask(scene, queries[i], 400), "since=SECOND and step=1, 10 or 60"));
    /* a reader of a daemon that was started again asks for what has not come yet */
    assert_string_equal(ask(scene, "since=5000&step=1", 200), "\"step\":1,\"first\":5000,\"values\":[[]]}\n");
}

/* What the header says of memory, and what happens at its limit. */
FR_CASE(columns_are_bounded_and_so_is_memory)
{
    struct scene *scene = *state;
    double values[FR_HISTORY_COLUMNS_MAX];
    for (size_t c = 0; c < FR_HISTORY_COLUMNS_MAX; c++) {
        values[c] = (double)c;
        add(scene, "x", FR_HISTORY_MEAN);
    }
    assert_false(fr_history_add(scene->history, &(struct fr_history_column){.name = "one more"}));
    assert_true((size_t)(600 + 720 + 1440) * FR_HISTORY_COLUMNS_MAX * sizeof(float) < 1500000);
    for (int s = 0; s < 3; s++) {
        fr_history_put(scene->history, values);
        fr_clock_fake_advance_ms(&scene->clock, 1000);
    }
    assert_non_null(strstr(ask(scene, "step=1", 200), ",[126,126,126],[127,127,127]]}\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_point_joins_its_seconds_as_its_column_says, setup, teardown),
        cmocka_unit_test_setup_teardown(seconds_without_values_and_values_that_are_not_known_are_null, setup, teardown),
        cmocka_unit_test_setup_teardown(a_counter_becomes_its_growth_over_five_seconds, setup, teardown),
        cmocka_unit_test_setup_teardown(each_resolution_keeps_its_newest_points, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wall_clock_that_is_set_moves_the_whole_history, setup, teardown),
        cmocka_unit_test_setup_teardown(a_query_that_asks_for_anything_else_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(columns_are_bounded_and_so_is_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
