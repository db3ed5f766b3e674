/* The sketches of insight against the same numbers computed without them. */
#include <math.h>
#include <string.h>

#include "case.h"

#include "../../../insight/decayed_auc.h"
#include "../../../insight/drift.h"
#include "../../../insight/hot_keys.h"
#include "../../../insight/key_sample.h"
#include "base/check.h"
#include "base/hash.h"

enum { IDS = 5000, DRAWS = 200000 };

/* Draws an id: half of all draws are ids below 20, the rest any. */
static uint64_t draw(uint64_t i)
{
    uint64_t x = fr_fmix64(i + 1);
    return x % 2 ? x / 2 % 20 * (x / 64 % 20) % 20 : x / 2 % IDS;
}

FR_CASE(every_frequent_key_has_a_counter_within_its_error)
{
    static struct fr_hot_keys hot;
    static double counts[IDS];
    double total = 0;
    memset(&hot, 0, sizeof(hot));
    memset(counts, 0, sizeof(counts));
    for (uint64_t i = 0; i < DRAWS; i++) {
        float weight = i % 7 == 0 ? 3 : 1;
        fr_hot_keys_add(&hot, fr_fmix64(draw(i)), weight);
        counts[draw(i)] += (double)weight;
        total += (double)weight;
    }
    assert_true(hot.total == total && hot.n == FR_INSIGHT_HOT);
    uint32_t frequent = 0;
    for (uint64_t id = 0; id < IDS; id++) {
        uint32_t at = 0;
        while (at < hot.n && hot.keys[at] != fr_fmix64(id))
            at++;
        frequent += counts[id] > total / FR_INSIGHT_HOT;
        assert_true(at < hot.n || counts[id] <= total / FR_INSIGHT_HOT);
        if (at == hot.n)
            continue;
        assert_true((double)hot.counts[at] >= counts[id]);
        assert_true((double)(hot.counts[at] - hot.errors[at]) <= counts[id]);
    }
    assert_true(frequent > 3);
    uint32_t places[8], n = fr_hot_keys_top(&hot, places, 8);
    assert_int_equal(n, 8);
    for (uint32_t i = 1; i < n; i++)
        assert_true(hot.counts[places[i - 1]] >= hot.counts[places[i]]);
    for (uint32_t i = 0; i < hot.n; i++)
        assert_true(hot.counts[places[0]] >= hot.counts[i]);
    float first = hot.counts[places[0]];
    fr_hot_keys_halve(&hot);
    assert_true(hot.counts[places[0]] == first / 2 && hot.total == total / 2);
}

FR_CASE(keys_that_come_once_share_all_counters)
{
    static struct fr_hot_keys hot;
    memset(&hot, 0, sizeof(hot));
    for (uint64_t i = 0; i < 64 * 100; i++)
        fr_hot_keys_add(&hot, fr_fmix64(i), 1);
    for (uint32_t i = 0; i < hot.n; i++)
        assert_true(hot.counts[i] == 100 && hot.errors[i] == 99);
}

FR_CASE(the_sample_has_the_smallest_keys_each_once)
{
    static struct fr_key_sample sample;
    memset(&sample, 0, sizeof(sample));
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < IDS; i++) {
            struct fr_sampled_key *key = fr_insight_key_add(&sample, fr_fmix64(i));
            assert_true(!key || key->key == fr_fmix64(i));
        }
    assert_int_equal(sample.n, FR_INSIGHT_KEYS);
    uint32_t below = 0;
    for (uint64_t i = 0; i < IDS; i++) {
        bool is_small = fr_fmix64(i) <= sample.keys[FR_INSIGHT_KEYS - 1].key;
        below += is_small;
        assert_true((fr_insight_key_find(&sample, fr_fmix64(i)) != NULL) == is_small);
    }
    assert_int_equal(below, FR_INSIGHT_KEYS);
    static bool keep[FR_INSIGHT_KEYS];
    keep[3] = keep[9] = true;
    uint64_t kept = sample.keys[9].key;
    fr_insight_key_keep(&sample, keep);
    assert_true(sample.n == 2 && sample.keys[1].key == kept);
}

FR_CASE(the_index_is_that_of_its_formula)
{
    static struct fr_drift drift;
    struct fr_drift_weights weights[FR_DRIFT_CELLS] = {{0}};
    double terms[FR_DRIFT_CELLS];
    memset(&drift, 0, sizeof(drift));
    for (uint32_t b = 0; b < FR_DRIFT_CELLS; b++)
        weights[b] = (struct fr_drift_weights){1000, 1000, b == 2 ? 900 : 100};
    fr_drift_add(&drift, weights);
    assert_true(fabs(fr_drift_index(&drift, FR_DRIFT_VALUES, terms)) < 1e-12);
    fr_drift_decay(&drift, (const double[]){[FR_DRIFT_LONG] = 1, [FR_DRIFT_SHORT] = 0});
    assert_true(isnan(fr_drift_index(&drift, FR_DRIFT_VALUES, terms)));
    memset(weights, 0, sizeof(weights));
    weights[0].all = weights[FR_DRIFT_ABSENT].all = 500;
    fr_drift_add(&drift, weights);
    double expected = 0, n = 1000 + 0.5 * FR_DRIFT_CELLS, m = 17000 + 1000 + 0.5 * FR_DRIFT_CELLS;
    for (uint32_t b = 0; b < FR_DRIFT_CELLS; b++) {
        bool now = b == 0 || b == FR_DRIFT_ABSENT;
        double p = (now ? 500.5 : 0.5) / n, q = (now ? 1500.5 : 1000.5) / m;
        expected += (p - q) * log(p / q);
    }
    assert_true(fabs(fr_drift_index(&drift, FR_DRIFT_VALUES, terms) - expected) < 1e-9);
    /* no positive is recent */
    assert_true(isnan(fr_drift_index(&drift, FR_DRIFT_POSITIVES, terms)));
}

FR_CASE(numbers_fall_into_sixteenths_of_the_first)
{
    static struct fr_drift drift;
    uint32_t counts[FR_DRIFT_CELLS + 1] = {0};
    memset(&drift, 0, sizeof(drift));
    for (uint32_t i = 0; i < FR_DRIFT_FIRST - 1; i++)
        assert_int_equal(fr_drift_bucket_of_number(&drift, (float)(i * 37 % 511)), FR_DRIFT_CELLS);
    assert_int_equal(fr_drift_bucket_of_number(&drift, NAN), FR_DRIFT_CELLS); /* as numbers are */
    (void)fr_drift_bucket_of_number(&drift, 511);
    for (uint32_t i = 0; i < 512; i++)
        counts[fr_drift_bucket_of_number(&drift, (float)i)]++;
    for (uint32_t b = 0; b < FR_INSIGHT_BUCKETS; b++)
        assert_int_equal(counts[b], 32);
    assert_int_equal(fr_drift_bucket_of_number(&drift, -1e9f), 0);
    assert_int_equal(fr_drift_bucket_of_number(&drift, 1e9f), FR_INSIGHT_BUCKETS - 1);
    assert_int_equal(fr_drift_bucket_of_number(&drift, NAN), FR_DRIFT_ABSENT);
}

FR_CASE(the_auc_is_that_of_all_pairs)
{
    static struct fr_decayed_auc auc;
    enum { N = 400 };
    float logits[N];
    double won = 0, positives = 0, negatives = 0, weight;
    memset(&auc, 0, sizeof(auc));
    assert_true(isnan(fr_decayed_auc_result(&auc, &weight)));
    for (uint64_t i = 0; i < N; i++) { /* in steps of bins: with their ties */
        logits[i] = (float)((int)(fr_fmix64(i) % 600) - 300 + (i % 3 == 0 ? 40 : 0)) / 16.0f;
        fr_decayed_auc_add(&auc, logits[i], i % 3 == 0, i % 5 == 0 ? 2 : 1);
    }
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t k = 0; k < N && i % 3 == 0; k++) {
            float p = fmaxf(-16.0f, fminf(logits[i], 15.9375f)), n = fmaxf(-16.0f, fminf(logits[k], 15.9375f));
            double w = (i % 5 == 0 ? 2 : 1) * (k % 5 == 0 ? 2 : 1);
            won += k % 3 == 0 ? 0 : w * (p > n ? 1 : p < n ? 0 : 0.5);
        }
    for (uint32_t i = 0; i < N; i++)
        *(i % 3 == 0 ? &positives : &negatives) += i % 5 == 0 ? 2 : 1;
    assert_true(fabs(fr_decayed_auc_result(&auc, &weight) - won / (positives * negatives)) < 1e-9);
    assert_true(weight == positives + negatives);
    fr_decayed_auc_decay(&auc, 0.25);
    assert_true(fabs(fr_decayed_auc_result(&auc, &weight) - won / (positives * negatives)) < 1e-9);
    assert_true(weight == (positives + negatives) / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_frequent_key_has_a_counter_within_its_error),
        cmocka_unit_test(keys_that_come_once_share_all_counters),
        cmocka_unit_test(the_sample_has_the_smallest_keys_each_once),
        cmocka_unit_test(the_index_is_that_of_its_formula),
        cmocka_unit_test(numbers_fall_into_sixteenths_of_the_first),
        cmocka_unit_test(the_auc_is_that_of_all_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
