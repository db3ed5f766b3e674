/* Gate and expiry policies: thresholds, strictness of "longer than", hostile times. */
#include "case.h"

#include <math.h>
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

static uint64_t next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dULL;
}

FR_CASE(sketch_gate_admits_at_its_threshold_and_says_what_it_needs)
{
    struct fr_gate_sketch config = {.min = 4, .half_life_ms = 1000, .bytes = 1 << 20};
    struct fr_gate_policy gate = fr_gate_sketch_policy(&config);
    assert_false(gate.admits(gate.config, 3));
    assert_true(gate.admits(gate.config, 4));
    assert_true(gate.memory == FR_GATE_SKETCH && !gate.forgets && !gate.falls);
    assert_true(gate.sketch_bytes == 1 << 20 && gate.sketch_half_life_ms == 1000);
}

FR_CASE(coins_fall_with_the_probability)
{
    uint64_t random = 3;
    for (uint32_t percent = 10; percent <= 100; percent += 30) {
        struct fr_gate_probability config = {.probability = (float)percent / 100};
        struct fr_gate_policy gate = fr_gate_probability_policy(&config);
        uint32_t fell = 0;
        for (uint32_t i = 0; i < 100000; i++)
            fell += gate.falls(gate.config, next(&random));
        assert_true(fabs(fell / 100000.0 - percent / 100.0) < 0.006);
        assert_true(gate.falls(gate.config, 0));
        assert_int_equal(gate.falls(gate.config, UINT64_MAX), percent == 100);
    }
    struct fr_gate_probability config = {.probability = 0.5f};
    struct fr_gate_policy gate = fr_gate_probability_policy(&config);
    assert_true(gate.memory == FR_GATE_NOTHING && gate.admits(gate.config, 1) && !gate.admits(gate.config, 0));
}

FR_CASE(weak_expiry_is_the_l2_norm_of_the_values)
{
    struct fr_expire_weak config = {.norm = 0.8f};
    struct fr_expiry_policy policy = fr_expire_weak_policy(&config);
    assert_true(policy.needs_values && policy.reason == 2);
    uint64_t random = 4;
    uint32_t gone = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        float values[16];
        double sum = 0;
        uint32_t n = 1 + (uint32_t)(next(&random) % 16);
        for (uint32_t j = 0; j < n; j++) {
            values[j] = (float)(next(&random) >> 40) / 16777216.0f - 0.5f;
            sum += (double)values[j] * (double)values[j];
        }
        struct fr_row_facts facts = {.values = values, .n_values = n};
        bool goes = policy.rank(policy.config, &facts, 0) < policy.threshold;
        assert_int_equal(goes, sqrt(sum) < (double)0.8f);
        gone += goes;
    }
    assert_true(gone > 1000 && gone < 9000);
    float bad[2] = {NAN, 0};
    struct fr_row_facts facts = {.values = bad, .n_values = 2};
    assert_false(policy.rank(policy.config, &facts, 0) < policy.threshold);
}

FR_CASE(score_expiry_halves_with_the_time_since_the_row_was_trained)
{
    struct fr_expire_score config = {.show_weight = 0.25, .click_weight = 2, .half_life_ms = 1000, .min = 1};
    struct fr_expiry_policy policy = fr_expire_score_policy(&config);
    assert_int_equal(policy.reason, 3);
    uint64_t random = 5;
    for (uint32_t i = 0; i < 20000; i++) {
        struct fr_row_facts facts = {.seen_ms = (int64_t)(next(&random) % 10000),
                                     .show = next(&random) % 1000,
                                     .click = (double)(next(&random) % 50) / 2};
        int64_t watermark_ms = facts.seen_ms + (int64_t)(next(&random) % 20000);
        double expected =
            (0.25 * (double)facts.show + 2 * facts.click) * pow(0.5, (double)(watermark_ms - facts.seen_ms) / 1000);
        assert_true(fabs(policy.rank(policy.config, &facts, watermark_ms) - expected) <= 1e-13 * expected);
    }
    struct fr_row_facts once = {.seen_ms = 0, .show = 4};
    assert_false(policy.rank(policy.config, &once, -50) < policy.threshold);
    assert_true(policy.rank(policy.config, &once, 1) < policy.threshold);
    assert_true(policy.rank(policy.config, &once, INT64_MAX) == 0);
    config.half_life_ms = 0;
    assert_false(policy.rank(policy.config, &once, INT64_MAX) < policy.threshold);
}

FR_CASE(capacity_ranks_by_the_time_of_training)
{
    struct fr_expire_capacity config = {.rows_max = 10};
    struct fr_expiry_policy policy = fr_expire_capacity_policy(&config);
    assert_true(policy.reason == 4 && policy.rows_max == 10 && !policy.needs_values);
    struct fr_row_facts old = {.seen_ms = 5}, young = {.seen_ms = 9}, later = {.seen_ms = 21};
    assert_true(policy.rank(policy.config, &old, 20) < policy.rank(policy.config, &young, 20));
    assert_true(policy.rank(policy.config, &later, 20) > 0);
}

/* The names cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define PARAMETERS(name, text, number, rule) struct fr_expire_##rule rule;
#define RULE(name, text, number, rule)                                                                                 \
    {text, name, fr_expire_##rule##_policy(&bounds.rule), fr_expire_##rule##_policy(&none.rule)},
/* NOLINTEND(bugprone-macro-parentheses) */

FR_CASE(every_rule_has_its_reason_and_none_without_a_bound)
{
    static const struct {
        FR_EXPIRIES(PARAMETERS)
    } bounds = {.idle = {1}, .weak = {1}, .score = {.min = 1}, .capacity = {1}}, none;
    const struct {
        const char *text;
        uint8_t reason;
        struct fr_expiry_policy with, without;
    } rules[] = {FR_EXPIRIES(RULE)};
    for (size_t i = 0; i < FR_EXPIRY_RULES; i++) {
        if (!rules[i].with.rank)
            fail_msg("give the rule %s a bound in this test", rules[i].text);
        assert_string_equal(rules[i].with.name, rules[i].text);
        assert_int_equal(rules[i].with.reason, rules[i].reason);
        assert_null(rules[i].without.rank);
        assert_true(rules[i].with.rows_max == 0 || i + 1 == FR_EXPIRY_RULES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(count_gate_admits_at_its_threshold_and_above),
        cmocka_unit_test(count_gate_of_one_admits_the_first_occurrence),
        cmocka_unit_test(count_gate_forgets_only_what_is_idle_longer),
        cmocka_unit_test(count_gate_without_idle_time_never_forgets),
        cmocka_unit_test(idle_expiry_takes_only_rows_idle_longer),
        cmocka_unit_test(sketch_gate_admits_at_its_threshold_and_says_what_it_needs),
        cmocka_unit_test(coins_fall_with_the_probability),
        cmocka_unit_test(weak_expiry_is_the_l2_norm_of_the_values),
        cmocka_unit_test(score_expiry_halves_with_the_time_since_the_row_was_trained),
        cmocka_unit_test(capacity_ranks_by_the_time_of_training),
        cmocka_unit_test(every_rule_has_its_reason_and_none_without_a_bound),
        cmocka_unit_test(idle_expiry_survives_a_watermark_behind_and_distances_beyond_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
