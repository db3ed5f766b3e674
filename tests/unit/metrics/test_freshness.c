/* Freshness: what is observed at which stage, and what happens when the delta topic is away. */
#include <math.h>
#include "case.h"

#include <stdio.h>
#include <string.h>

#include "metrics/freshness.h"

static const int64_t now = 1700000000000;
static const uint8_t all[8] = {0};

struct scene {
    struct fr_registry *registry;
    struct fr_freshness *freshness;
};

static struct fr_timings timings;

static struct scene open_scene(void)
{
    struct scene scene = {.registry = fr_registry_new("m")};
    fr_timings_init(&timings, scene.registry);
    scene.freshness = fr_freshness_new(scene.registry, &timings);
    return scene;
}

static void close_scene(struct scene *scene)
{
    fr_freshness_free(scene->freshness);
    fr_registry_free(scene->registry);
}

/* The value of a series in the rendered text. */
static double value_of(const struct scene *scene, const char *series)
{
    struct fr_buffer out = {0};
    fr_registry_render(scene->registry, &out);
    fr_put_u8(&out, 0);
    const char *at = strstr((const char *)out.data, series);
    double value = NAN;
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(series), " %lf", &value), 1);
    fr_buffer_release(&out);
    return value;
}

static double count_of(const struct scene *scene, const char *stage)
{
    char series[128];
    snprintf(series, sizeof(series), "freshet_freshness_seconds_count{model=\"m\",stage=\"%s\"}", stage);
    return value_of(scene, series);
}

static double sum_of(const struct scene *scene, const char *stage)
{
    char series[128];
    snprintf(series, sizeof(series), "freshet_freshness_seconds_sum{model=\"m\",stage=\"%s\"}", stage);
    return value_of(scene, series);
}

FR_CASE(every_trained_sample_is_observed_at_every_stage)
{
    struct scene scene = open_scene();
    const int64_t t_ms[] = {now - 40, now - 3000, now - 999999, now};
    const uint8_t skip[] = {0, 0, 1, 0}; /* the third did not train */
    fr_freshness_trained(scene.freshness, t_ms, skip, 4, now);
    assert_true(count_of(&scene, "trained") == 3 && fabs(sum_of(&scene, "trained") - 3.040) < 0.2);
    assert_true(count_of(&scene, "durable") == 0);
    fr_freshness_cut(scene.freshness, 1);
    fr_freshness_published(scene.freshness, 0, now + 50);
    fr_freshness_durable(scene.freshness, 1, now + 100);
    assert_true(count_of(&scene, "durable") == 3 && fabs(sum_of(&scene, "durable") - 3.340) < 0.2);
    assert_true(count_of(&scene, "published") == 0);
    fr_freshness_durable(scene.freshness, 1, now + 900); /* the same epoch is reported again */
    fr_freshness_published(scene.freshness, 1, now + 1000);
    fr_freshness_published(scene.freshness, 1, now + 2000);
    assert_true(count_of(&scene, "durable") == 3);
    assert_true(count_of(&scene, "published") == 3 && fabs(sum_of(&scene, "published") - 6.040) < 0.2);
    close_scene(&scene);
}

FR_CASE(an_age_is_within_a_sixteenth)
{
    for (int64_t age = 1; age < (int64_t)1 << 41; age += age / 3 + 1) {
        struct scene scene = open_scene();
        int64_t t_ms = now - age;
        fr_freshness_trained(scene.freshness, &t_ms, all, 1, now);
        assert_true(fabs(sum_of(&scene, "trained") * 1000 - (double)age) <= (double)age / 16);
        close_scene(&scene);
    }
}

FR_CASE(events_after_the_first_batch_of_an_epoch_are_not_made_older)
{
    struct scene scene = open_scene();
    int64_t first = now - 5, second = now + 800; /* trained 5 ms after it happened */
    fr_freshness_trained(scene.freshness, &first, all, 1, now);
    fr_freshness_trained(scene.freshness, &second, all, 1, now + 805);
    assert_true(fabs(sum_of(&scene, "trained") - 0.010) < 1e-6);
    fr_freshness_cut(scene.freshness, 7);
    fr_freshness_durable(scene.freshness, 7, now + 1000);
    assert_true(fabs(sum_of(&scene, "durable") - (1.005 + 0.200)) < 0.06);
    close_scene(&scene);
}

FR_CASE(clocks_that_disagree_count_as_zero)
{
    struct scene scene = open_scene();
    int64_t t_ms = now + 60000;
    fr_freshness_trained(scene.freshness, &t_ms, all, 1, now);
    fr_freshness_lag(scene.freshness, now + 10, now);
    assert_true(count_of(&scene, "trained") == 1 && sum_of(&scene, "trained") == 0);
    assert_true(value_of(&scene, "freshet_ingest_lag_seconds_sum{model=\"m\"}") == 0);
    close_scene(&scene);
}

FR_CASE(a_long_absence_of_the_delta_topic_loses_no_sample)
{
    struct scene scene = open_scene();
    for (uint64_t epoch = 1; epoch <= 500; epoch++) {
        int64_t wall = now + (int64_t)epoch * 1000, t_ms = wall - 100;
        fr_freshness_trained(scene.freshness, &t_ms, all, 1, wall);
        fr_freshness_cut(scene.freshness, epoch);
        fr_freshness_durable(scene.freshness, epoch, wall + 10);
    }
    assert_true(count_of(&scene, "durable") == 500 && fabs(sum_of(&scene, "durable") - 500 * 0.110) < 4);
    fr_freshness_published(scene.freshness, 500, now + 500 * 1000 + 200);
    double exact = 0;
    for (int epoch = 1; epoch <= 500; epoch++)
        exact += 500 - epoch + 0.3;
    assert_true(count_of(&scene, "published") == 500);
    assert_true(fabs(sum_of(&scene, "published") / exact - 1) < 0.15);
    close_scene(&scene);
}

FR_CASE(arrivals_are_observed_at_every_stage_whatever_the_event_times)
{
    struct scene scene = open_scene();
    const int64_t t_ms[] = {1000, 1001, 1002}; /* a replay */
    fr_freshness_trained(scene.freshness, t_ms, all, 3, now);
    fr_freshness_arrived(scene.freshness, now - 20, 2, now);
    fr_freshness_arrived(scene.freshness, now - 10, 1, now);
    fr_freshness_cut(scene.freshness, 1);
    fr_freshness_durable(scene.freshness, 1, now + 100);
    fr_freshness_published(scene.freshness, 1, now + 150);
    const struct {
        const char *stage;
        enum fr_freshness_series series;
        double sum, median;
    } stages[] = {{"trained", FR_FRESH_ARRIVAL_TRAINED, 0.050, 0.020},
                  {"durable", FR_FRESH_ARRIVAL_DURABLE, 0.350, 0.120},
                  {"published", FR_FRESH_ARRIVAL_PUBLISHED, 0.500, 0.170}};
    for (size_t i = 0; i < 3; i++) {
        char series[128];
        snprintf(series, sizeof(series), "freshet_arrival_age_seconds_sum{model=\"m\",stage=\"%s\"}", stages[i].stage);
        assert_true(fabs(value_of(&scene, series) / stages[i].sum - 1) < 1.0 / 16);
        double median = fr_freshness_quantile(scene.freshness, stages[i].series, 0.5);
        assert_true(fabs(median / stages[i].median - 1) < 1.0 / 8);
    }
    assert_true(value_of(&scene, "freshet_publish_delay_seconds_sum{model=\"m\"}") == 0.05);
    close_scene(&scene);
}

FR_CASE(quantiles_are_right_where_buckets_are_wide)
{
    struct scene scene = open_scene();
    const int64_t t_ms[] = {now - 28100000000, now - 28100000000, now - 3000};
    fr_freshness_trained(scene.freshness, t_ms, all, 3, now);
    assert_true(fabs(fr_freshness_quantile(scene.freshness, FR_FRESH_TRAINED, 0.1) / 3 - 1) < 1.0 / 16);
    assert_true(fabs(fr_freshness_quantile(scene.freshness, FR_FRESH_TRAINED, 0.5) / 28.1e6 - 1) < 1.0 / 16);
    assert_true(fabs(fr_freshness_quantile(scene.freshness, FR_FRESH_TRAINED, 0.99) / 28.1e6 - 1) < 1.0 / 16);
    close_scene(&scene);
}

FR_CASE(an_epoch_without_samples_is_not_observed)
{
    struct scene scene = open_scene();
    fr_freshness_cut(scene.freshness, 1);
    fr_freshness_durable(scene.freshness, 1, now);
    fr_freshness_published(scene.freshness, 1, now);
    assert_true(count_of(&scene, "published") == 0);
    assert_true(isnan(fr_freshness_quantile(scene.freshness, FR_FRESH_PUBLISHED, 0.5)));
    close_scene(&scene);
}

static double recent_median(const struct scene *scene, struct fr_freshness_window *window, int64_t second)
{
    fr_freshness_window_move(window, scene->freshness, (uint64_t)(second + 1) * 1000000000u);
    return fr_freshness_window_quantile(window, scene->freshness, FR_FRESH_ARRIVAL_TRAINED, 0.5);
}

/* A minute at 1 s of age, then a minute at 8 s, of which the quantiles of the whole life would show
 * nothing for long; then nothing arrives. */
FR_CASE(a_window_has_the_quantiles_of_the_last_ten_seconds)
{
    struct scene scene = open_scene();
    struct fr_freshness_window *window = fr_freshness_window_new();
    assert_true(isnan(recent_median(&scene, window, 0)));
    for (int64_t second = 1; second <= 120; second++) {
        fr_freshness_arrived(scene.freshness, now - (second <= 60 ? 1000 : 8000), 10, now);
        double median = recent_median(&scene, window, second);
        if (second <= 60 || second > 70)
            assert_true(fabs(median / (second <= 60 ? 1 : 8) - 1) < 1.0 / 16);
    }
    assert_true(fabs(fr_freshness_quantile(scene.freshness, FR_FRESH_ARRIVAL_TRAINED, 0.5) - 1) < 1.0 / 16);
    for (int64_t second = 121; second <= 124; second++)
        assert_false(isnan(recent_median(&scene, window, second)));
    for (int64_t second = 125; second <= 131; second++)
        (void)recent_median(&scene, window, second);
    assert_true(isnan(recent_median(&scene, window, 132)));
    fr_freshness_window_free(window);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_trained_sample_is_observed_at_every_stage),
        cmocka_unit_test(an_age_is_within_a_sixteenth),
        cmocka_unit_test(events_after_the_first_batch_of_an_epoch_are_not_made_older),
        cmocka_unit_test(clocks_that_disagree_count_as_zero),
        cmocka_unit_test(a_long_absence_of_the_delta_topic_loses_no_sample),
        cmocka_unit_test(arrivals_are_observed_at_every_stage_whatever_the_event_times),
        cmocka_unit_test(quantiles_are_right_where_buckets_are_wide),
        cmocka_unit_test(an_epoch_without_samples_is_not_observed),
        cmocka_unit_test(a_window_has_the_quantiles_of_the_last_ten_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
