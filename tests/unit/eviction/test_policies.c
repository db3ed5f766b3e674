/* Gate and expiry policies: thresholds, strictness of "longer than", hostile times. */
#include "case.h"

#include <string.h>

#include "eviction/eviction.h"

FR_CASE(count_gate_admits_at_its_threshold_and_above)
{
    struct fr_gate_count config = {.count = 3};
    struct fr_gate_policy gate = fr_gate_count_policy(&config);
    assert_false(gate.admits(gate.config, 0));
    assert_false(gate.admits(gate.config, 2));
    assert_true(gate.admits(gate.config, 3));
    assert_true(gate.admits(gate.config, UINT32_MAX));
    assert_string_equal(gate.name, "count");
}

FR_CASE(count_gate_of_one_admits_the_first_occurrence)
{
    struct fr_gate_count config = {.count = 1};
    struct fr_gate_policy gate = fr_gate_count_policy(&config);
    assert_true(gate.admits(gate.config, 1));
    assert_false(gate.admits(gate.config, 0));
}

FR_CASE(count_gate_forgets_only_what_is_idle_longer)
{
    struct fr_gate_count config = {.count = 2, .idle_ms = 100};
    struct fr_gate_policy gate = fr_gate_count_policy(&config);
    assert_false(gate.forgets(gate.config, 1000, 1000));
    assert_false(gate.forgets(gate.config, 1000, 1100));
    assert_true(gate.forgets(gate.config, 1000, 1101));
    assert_false(gate.forgets(gate.config, 1000, 0));
}

FR_CASE(count_gate_without_idle_time_never_forgets)
{
    struct fr_gate_count config = {.count = 2, .idle_ms = 0};
    struct fr_gate_policy gate = fr_gate_count_policy(&config);
    assert_false(gate.forgets(gate.config, 0, INT64_MAX));
    assert_false(gate.forgets(gate.config, INT64_MIN, INT64_MAX));
}

static bool expires(const struct fr_expiry_policy *policy, int64_t seen_ms, int64_t watermark_ms)
{
    struct fr_row_facts facts = {.seen_ms = seen_ms, .show = 1e9f, .click = 1e9f};
    return policy->rank(policy->config, &facts, watermark_ms) < policy->threshold;
}

FR_CASE(idle_expiry_takes_only_rows_idle_longer)
{
    struct fr_expire_idle config = {.idle_ms = 1000};
    struct fr_expiry_policy policy = fr_expire_idle_policy(&config);
    assert_int_equal(policy.reason, 1);
    assert_false(expires(&policy, 5000, 5000));
    assert_false(expires(&policy, 5000, 6000));
    assert_true(expires(&policy, 5000, 6001));
}

FR_CASE(idle_expiry_survives_a_watermark_behind_and_distances_beyond_64_bits)
{
    struct fr_expire_idle config = {.idle_ms = 1000};
    struct fr_expiry_policy policy = fr_expire_idle_policy(&config);
    assert_false(expires(&policy, 5000, 10));
    assert_false(expires(&policy, INT64_MAX, INT64_MIN));
    assert_true(expires(&policy, INT64_MIN, INT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(count_gate_admits_at_its_threshold_and_above),
        cmocka_unit_test(count_gate_of_one_admits_the_first_occurrence),
        cmocka_unit_test(count_gate_forgets_only_what_is_idle_longer),
        cmocka_unit_test(count_gate_without_idle_time_never_forgets),
        cmocka_unit_test(idle_expiry_takes_only_rows_idle_longer),
        cmocka_unit_test(idle_expiry_survives_a_watermark_behind_and_distances_beyond_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
