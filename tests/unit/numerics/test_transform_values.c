/* The results of transforms for a number: steps in their order, times as points of a circle,
 * numbers without a result. */
#include "conf/conf_fixture.h"

#include <math.h>

#include "base/math.h"
#include "numerics/transform_values.h"

static struct fr_conf *load_price(const char *options)
{
    char to[256];
    snprintf(to, sizeof(to), "price: {kind: dense, dim: 2, %s}", options);
    return load_variant("price: {kind: dense, dim: 2}", to);
}

FR_CASE(steps_are_applied_in_their_order)
{
    float out[2];
    struct fr_conf *conf = load_price("transform: [{clip: [0, 7]}, log1p, {clip: [1, 2]}]");
    assert_true(fr_transform_apply(&conf->slots[3], -5.0, out) && out[0] == 1.0f);
    assert_true(fr_transform_apply(&conf->slots[3], 5.0, out) && out[0] == fr_log1pf(5.0f));
    assert_true(fr_transform_apply(&conf->slots[3], 1e30, out) && out[0] == 2.0f);
    fr_transform_missing(&conf->slots[3], out);
    assert_true(out[0] == 1.0f);
    fr_conf_free(conf);
    conf = load_price("transform: log1p");
    assert_false(fr_transform_apply(&conf->slots[3], -1.0, out));
    fr_conf_free(conf);
}

/* 2023-11-14 22:13:20 UTC was a Tuesday. */
FR_CASE(times_are_points_of_a_circle_in_seconds_and_in_milliseconds)
{
    static const char *const names[] = {"transform: time_of_day", "transform: time_of_week"};
    const double turns[] = {(22 * 3600 + 13 * 60 + 20) / 86400.0, (86400 + 22 * 3600 + 13 * 60 + 20) / 604800.0};
    for (size_t i = 0; i < 2; i++) {
        struct fr_conf *conf = load_price(names[i]);
        const struct fr_conf_slot *slot = &conf->slots[3];
        float s[2], ms[2], other[2];
        assert_true(fr_transform_apply(slot, 1700000000.0, s) && fr_transform_apply(slot, 1700000000000.0, ms));
        assert_memory_equal(s, ms, sizeof(s));
        assert_float_equal(s[0], (float)sin(2.0 * M_PI * turns[i]), 1e-6f);
        assert_float_equal(s[1], (float)cos(2.0 * M_PI * turns[i]), 1e-6f);
        /* f32 cannot tell these two seconds apart */
        assert_true(fr_transform_apply(slot, 1700000001.0, other) && other[0] != s[0]);
        /* midnight; of a Monday */
        assert_true(fr_transform_apply(slot, i ? -3 * 86400.0 : -86400.0, other));
        assert_true(other[0] == 0.0f && other[1] == 1.0f);
        assert_false(fr_transform_apply(slot, 1700000000000000.0, other)); /* microseconds */
        fr_transform_missing(slot, other);
        assert_true(other[0] == 0.0f && other[1] == 0.0f);
        fr_conf_free(conf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_applied_in_their_order),
        cmocka_unit_test(times_are_points_of_a_circle_in_seconds_and_in_milliseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
