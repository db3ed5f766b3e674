/* Prometheus text: families, labels, histograms, quantiles. */
#include <math.h>
#include "case.h"

#include <string.h>

#include "metrics/registry.h"

static void expect_text(struct fr_registry *registry, const char *part)
{
    struct fr_buffer out = {0};
    fr_registry_render(registry, &out);
    fr_put_u8(&out, 0);
    if (!strstr((const char *)out.data, part))
        fail_msg("missing:\n%s\nin:\n%s", part, (const char *)out.data);
    fr_buffer_release(&out);
}

FR_CASE(a_family_has_one_help_line_and_the_model_label)
{
    struct fr_registry *registry = fr_registry_new("ctr");
    fr_counter(registry, "freshet_rows_total", "table=\"user\"", "Rows.", 2);
    fr_gauge(registry, "freshet_between", NULL, "Between.", 0);
    fr_counter(registry, "freshet_rows_total", "table=\"item\"", "Rows.", 9007199254740993u);
    fr_counter(registry, "freshet_rows_total", "table=\"user\"", "Rows.", 3); /* the same series */
    expect_text(registry, "# HELP freshet_rows_total Rows.\n# TYPE freshet_rows_total "
                          "counter\nfreshet_rows_total{model=\"ctr\",table=\"user\"} 3\n"
                          "freshet_rows_total{model=\"ctr\",table=\"item\"} 9007199254740993\n# HELP freshet_between");
    fr_registry_free(registry);
}

FR_CASE(counted_seconds_keep_their_fraction)
{
    struct fr_registry *registry = fr_registry_new("m");
    fr_counter_seconds(registry, "freshet_step_seconds_total", NULL, "Steps.", 0.75);
    expect_text(registry, "# TYPE freshet_step_seconds_total counter\nfreshet_step_seconds_total{model=\"m\"} 0.75\n");
    fr_registry_free(registry);
}

FR_CASE(undefined_gauges_are_nan)
{
    struct fr_registry *registry = fr_registry_new("m");
    fr_gauge(registry, "freshet_auc", NULL, "AUC.", (double)NAN);
    expect_text(registry, "freshet_auc{model=\"m\"} NaN\n");
    fr_registry_free(registry);
}

FR_CASE(values_have_their_shortest_form)
{
    struct fr_registry *registry = fr_registry_new("m");
    fr_gauge(registry, "freshet_a", NULL, "A.", 17 / 1e3);
    fr_gauge(registry, "freshet_b", NULL, "B.", 0.1 + 0.2);
    fr_gauge(registry, "freshet_c", NULL, "C.", 1700000000.125);
    fr_gauge(registry, "freshet_d", NULL, "D.", 281474976710656.0);
    expect_text(registry, "freshet_a{model=\"m\"} 0.017\n");
    expect_text(registry, "freshet_b{model=\"m\"} 0.30000000000000004\n");
    expect_text(registry, "freshet_c{model=\"m\"} 1700000000.125\n");
    expect_text(registry, "freshet_d{model=\"m\"} 281474976710656\n");
    fr_registry_free(registry);
}

FR_CASE(a_label_from_outside_is_escaped)
{
    struct fr_registry *registry = fr_registry_new("m");
    char labels[64] = "";
    fr_metric_label(labels, sizeof(labels), "topic", "a\\b \"c\"\n");
    fr_metric_label(labels, sizeof(labels), "partition", "0");
    fr_gauge(registry, "freshet_lag", labels, "Lag.", 1);
    expect_text(registry, "freshet_lag{model=\"m\",topic=\"a\\\\b \\\"c\\\"\\n\",partition=\"0\"} 1\n");
    fr_registry_free(registry);
}

FR_CASE(histogram_buckets_are_cumulative)
{
    struct fr_registry *registry = fr_registry_new("m");
    const double bounds[] = {0.1, 1, 10};
    struct fr_metric *histogram = fr_histogram(registry, "freshet_delay_seconds", NULL, "Delay.", bounds, 3);
    fr_metric_observe_many(histogram, 0.5, 4);
    fr_metric_observe_many(histogram, 0.1, 1);
    fr_metric_observe_many(histogram, 100, 1);
    expect_text(
        registry,
        "freshet_delay_seconds_bucket{model=\"m\",le=\"0.1\"} 1\nfreshet_delay_seconds_bucket{model=\"m\",le=\"1\"} 5\n"
        "freshet_delay_seconds_bucket{model=\"m\",le=\"10\"} 5\nfreshet_delay_seconds_bucket{model=\"m\",le=\"+Inf\"} "
        "6\n"
        "freshet_delay_seconds_sum{model=\"m\"} 102.1\nfreshet_delay_seconds_count{model=\"m\"} 6\n");
    fr_registry_free(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_family_has_one_help_line_and_the_model_label),
        cmocka_unit_test(counted_seconds_keep_their_fraction),
        cmocka_unit_test(undefined_gauges_are_nan),
        cmocka_unit_test(values_have_their_shortest_form),
        cmocka_unit_test(a_label_from_outside_is_escaped),
        cmocka_unit_test(histogram_buckets_are_cumulative),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
