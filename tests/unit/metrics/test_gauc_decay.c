/* GAUC per half-life: against brute force, what it forgets, which groups give way, the image of the
 * state. */
#include "case.h"

#include "gauc_fixture.h"
#include "metrics/auc.h"

static const struct hashes every_group = {.salt = 77, .bound = UINT64_MAX};

/* The stream covers 20, 5 and half a half-life, and a sample of 100 ms. */
static const struct fr_gauc_options decayed = {
    .salt = 77, .groups_max = GROUPS, .n_half_lives = 3, .half_life_ms = {300000, 1200000, 12000000}};

static struct fr_gauc_result result_of(const struct fr_gauc *gauc, int half_life)
{
    struct fr_gauc_result result;
    fr_gauc_result(gauc, half_life, &result);
    return result;
}

FR_CASE(decayed_gauc_is_within_the_stated_error_and_not_biased)
{
    enum { STREAMS = 8 };
    double mean[3] = {0};
    for (uint64_t seed = 1; seed <= STREAMS; seed++) {
        struct stream s = make_stream(seed, 60000);
        struct fr_gauc *gauc = fr_gauc_new(&decayed);
        feed(gauc, &s, 0, s.n);
        for (int h = 0; h < 3; h++) {
            struct fr_gauc_result result = result_of(gauc, h);
            struct fr_gauc_result exact = brute_force(&s, &every_group, decayed.half_life_ms[h]);
            double error = result.auc - exact.auc;
            print_message("seed %d half-life %d s: exact %.6f error %+.6f stated %.6f\n", (int)seed,
                          (int)(decayed.half_life_ms[h] / 1000), exact.auc, error, result.error_max);
            assert_true(fabs(error) <= result.error_max && result.error_max < 0.1);
            assert_true(fabs(error) < 5e-4);
            assert_true(fabs(result.weight / exact.weight - 1) < 1e-5);
            mean[h] += error / STREAMS;
        }
        fr_gauc_free(gauc);
        release(&s);
    }
    for (int h = 0; h < 3; h++) {
        print_message("half-life %d s: mean error %+.6f\n", (int)(decayed.half_life_ms[h] / 1000), mean[h]);
        assert_true(fabs(mean[h]) < 1.5e-4);
    }
}

/* 60,000 impressions, then 12,000 with flipped labels: four half-lives of 5 minutes. */
FR_CASE(it_follows_flipped_labels_as_decayed_auc_does)
{
    struct stream s = make_stream(3, 72000);
    struct fr_gauc *gauc = fr_gauc_new(&decayed);
    struct fr_auc_options options = {.n_half_lives = 1, .half_life_ms = {decayed.half_life_ms[0]}};
    struct fr_auc *auc = fr_auc_new(&options);
    for (size_t i = 60000; i < s.n; i++)
        s.labels[i] = 1 - s.labels[i];
    feed(gauc, &s, 0, 60000 - 60000 % BATCH);
    assert_true(result_of(gauc, 0).auc > 0.65);
    feed(gauc, &s, 60000 - 60000 % BATCH, s.n);
    for (size_t i = 0; i < s.n; i += BATCH)
        fr_auc_add(auc, &(struct fr_auc_samples){.count = BATCH,
                                                 .scores = s.scores + i,
                                                 .labels = s.labels + i,
                                                 .t_ms = s.t_ms + i,
                                                 .watermark_ms = s.t_ms[i + BATCH - 1]});
    struct fr_auc_result plain;
    fr_auc_result(auc, 0, &plain);
    print_message("auc %.4f, gauc of 300 s %.4f, of 1200 s %.4f, lifetime %.4f\n", plain.auc, result_of(gauc, 0).auc,
                  result_of(gauc, 1).auc, result_of(gauc, -1).auc);
    assert_true(plain.auc < 0.42 && result_of(gauc, 0).auc < 0.36);
    assert_true(result_of(gauc, 1).auc < 0.5 && result_of(gauc, -1).auc > 0.55);
    fr_auc_free(auc);
    fr_gauc_free(gauc);
    release(&s);
}

/* Eight generations of users, each of six half-lives; the scores of the last generation mean the
 * opposite. If groups were chosen by their hash only, 64 places would hold 8 users of each
 * generation. */
FR_CASE(groups_that_left_give_way_to_those_that_came)
{
    enum { GENERATION = 18000 };
    struct stream s = make_stream(4, 8 * GENERATION);
    for (size_t i = 0; i < s.n; i++) {
        uint64_t generation = i / GENERATION;
        s.keys[i] = generation * 1000 + fr_fmix64(i) % 200;
        s.scores[i] = (float)fr_random_normal(4, 4, i, 0) + (generation == 7 ? -s.labels[i] : s.labels[i]);
    }
    struct fr_gauc_options options = decayed;
    options.groups_max = 64;
    struct fr_gauc *gauc = fr_gauc_new(&options);
    feed(gauc, &s, 0, s.n);
    struct fr_gauc_result result = result_of(gauc, 0), exact = brute_force(&s, &every_group, 300000);
    print_message("gauc %.4f exact %.4f, %d groups, weight %.0f of %.0f, lifetime %.4f\n", result.auc, exact.auc,
                  (int)result.groups, result.weight, exact.weight, result_of(gauc, -1).auc);
    /* another sample of users: three standard errors */
    assert_true(fabs(result.auc - exact.auc) < 0.06);
    assert_true(result.groups >= 32 && result.groups <= 64);
    assert_true(result.weight > 0.15 * exact.weight);
    assert_true(result_of(gauc, -1).auc > 0.6 && result_of(gauc, -1).groups == 64);
    fr_gauc_free(gauc);
    release(&s);
}

/* A group that was refused during a crowd is admitted after the crowd has gone. */
FR_CASE(the_bound_rises_again_after_a_crowd)
{
    struct stream s = make_stream(5, 60000); /* 20 half-lives */
    for (size_t i = 0; i < s.n; i++)
        s.keys[i] = i < 6000 ? 1000 + i % 3000 : fr_fmix64(i) % 40;
    struct fr_gauc_options options = decayed;
    options.groups_max = 64;
    struct fr_gauc *gauc = fr_gauc_new(&options);
    feed(gauc, &s, 0, 7000 - 7000 % BATCH);
    assert_true(result_of(gauc, 0).weight < 500);
    feed(gauc, &s, 7000 - 7000 % BATCH, s.n);
    struct fr_gauc_result exact = brute_force(&s, &every_group, 300000), result = result_of(gauc, 0);
    print_message("error %+.6f, weight %.1f of %.1f\n", result.auc - exact.auc, result.weight, exact.weight);
    assert_true(result.weight > 0.99 * exact.weight && fabs(result.auc - exact.auc) < 5e-3);
    fr_gauc_free(gauc);
    release(&s);
}

FR_CASE(few_groups_are_never_dropped_for_being_idle)
{
    struct stream s = make_stream(6, 30000);
    for (size_t i = 0; i < s.n; i++)
        s.keys[i] = i < 3000 ? 1 : 2; /* group 1 is idle for nine half-lives */
    struct fr_gauc *gauc = fr_gauc_new(&decayed);
    feed(gauc, &s, 0, s.n);
    assert_int_equal(result_of(gauc, 0).groups, 2);
    fr_gauc_free(gauc);
    release(&s);
}

/* From the middle on, scores are 50 times as close together, so all new scores fall into one or two
 * of the old spans. */
FR_CASE(scores_that_narrowed_are_distinguished_again)
{
    struct stream s = make_stream(7, 60000);
    for (size_t i = s.n / 2; i < s.n; i++)
        s.scores[i] *= 0.02f;
    struct fr_gauc *gauc = fr_gauc_new(&decayed);
    feed(gauc, &s, 0, s.n);
    for (int h = 0; h < 2; h++) {
        struct fr_gauc_result result = result_of(gauc, h),
                              exact = brute_force(&s, &every_group, decayed.half_life_ms[h]);
        print_message("half-life %d s: error %+.6f stated %.6f\n", (int)(decayed.half_life_ms[h] / 1000),
                      result.auc - exact.auc, result.error_max);
        assert_true(fabs(result.auc - exact.auc) <= result.error_max);
        assert_true(fabs(result.auc - exact.auc) < (h == 0 ? 1e-3 : 1e-2));
    }
    fr_gauc_free(gauc);
    release(&s);
}

/* A group has about two samples in a half-life: old samples without weight must not make the new
 * ones less exact. */
FR_CASE(groups_with_few_samples_in_a_half_life_stay_exact_enough)
{
    double mean = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct stream s = make_stream(seed, 60000);
        for (size_t i = 0; i < s.n; i++) {
            s.keys[i] = fr_fmix64(i) % GROUPS;
            s.labels[i] = fr_random_uniform(seed, 6, i, 0) < 0.5 ? s.labels[i] : 1 - s.labels[i];
            s.scores[i] += 2 * s.labels[i];
        }
        struct fr_gauc_options options = decayed;
        options.half_life_ms[0] = 60000;
        struct fr_gauc *gauc = fr_gauc_new(&options);
        feed(gauc, &s, 0, s.n);
        struct fr_gauc_result result = result_of(gauc, 0), exact = brute_force(&s, &every_group, 60000);
        print_message("seed %d: exact %.6f error %+.6f stated %.6f\n", (int)seed, exact.auc, result.auc - exact.auc,
                      result.error_max);
        assert_true(fabs(result.auc - exact.auc) <= result.error_max && result.error_max < 0.02);
        assert_true(fabs(result.auc - exact.auc) < 2e-4);
        mean += (result.auc - exact.auc) / 4;
        fr_gauc_free(gauc);
        release(&s);
    }
    assert_true(fabs(mean) < 1e-4);
}

/* References move, groups come and go, spans are split: 200 half-lives, more groups than places. */
FR_CASE(a_restored_state_continues_to_the_same_bytes)
{
    struct stream s = make_stream(8, 20000);
    for (size_t i = 0; i < s.n; i++) {
        s.keys[i] += i / 1500 * 100;
        s.scores[i] *= i > s.n / 2 ? 0.05f : 1.0f;
    }
    struct fr_gauc_options options = decayed;
    options.groups_max = 50;
    options.half_life_ms[0] = 10000;
    struct fr_gauc *whole = fr_gauc_new(&options);
    for (int part = 1; part < 6; part++) {
        size_t cut = s.n / 6 * (size_t)part;
        struct fr_gauc *second = fr_gauc_new(&options);
        struct fr_buffer image = {0}, a = {0}, b = {0};
        feed(whole, &s, s.n / 6 * (size_t)(part - 1), cut);
        fr_gauc_encode(whole, &image);
        assert_int_equal(fr_gauc_parse(second, image.data, image.size), FR_OK);
        struct fr_gauc *first = fr_gauc_new(&options);
        feed(first, &s, 0, s.n);
        feed(second, &s, cut, s.n);
        fr_gauc_encode(first, &a);
        fr_gauc_encode(second, &b);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        for (size_t at = 0; at < image.size; at += 1 + image.size / 97)
            assert_int_equal(fr_gauc_parse(second, image.data, at), FR_E_CORRUPT);
        fr_buffer_release(&image);
        fr_buffer_release(&a);
        fr_buffer_release(&b);
        fr_gauc_free(first);
        fr_gauc_free(second);
    }
    fr_gauc_free(whole);
    release(&s);
}

FR_CASE(other_half_lives_keep_what_they_have_in_common)
{
    struct stream s = make_stream(9, 6000);
    struct fr_gauc_options options = decayed;
    options.half_life_ms[0] = 777;
    struct fr_gauc *gauc = fr_gauc_new(&decayed), *other = fr_gauc_new(&options);
    feed(gauc, &s, 0, s.n);
    struct fr_buffer image = {0};
    fr_gauc_encode(gauc, &image);
    assert_int_equal(fr_gauc_parse(other, image.data, image.size), FR_E_MISMATCH);
    assert_true(isnan(result_of(other, 0).auc) && result_of(other, 0).weight == 0);
    assert_true(result_of(other, 1).auc == result_of(gauc, 1).auc &&
                result_of(other, -1).auc == result_of(gauc, -1).auc);
    fr_buffer_release(&image);
    fr_gauc_free(gauc);
    fr_gauc_free(other);
    release(&s);
}

FR_CASE(before_the_first_watermark_samples_count_for_the_lifetime_only)
{
    struct fr_gauc *gauc = fr_gauc_new(&decayed);
    fr_gauc_advance(gauc, INT64_MIN);
    for (int label = 0; label < 2; label++)
        fr_gauc_add(gauc,
                    &(struct fr_gauc_sample){.key = 1, .score = (float)label, .label = (float)label, .weight = 1});
    assert_true(result_of(gauc, -1).auc == 1 && isnan(result_of(gauc, 0).auc) && result_of(gauc, 0).weight == 0);
    struct fr_buffer image = {0};
    fr_gauc_encode(gauc, &image);
    assert_int_equal(fr_gauc_parse(gauc, image.data, image.size), FR_OK);
    fr_buffer_release(&image);
    fr_gauc_free(gauc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decayed_gauc_is_within_the_stated_error_and_not_biased),
        cmocka_unit_test(it_follows_flipped_labels_as_decayed_auc_does),
        cmocka_unit_test(groups_that_left_give_way_to_those_that_came),
        cmocka_unit_test(the_bound_rises_again_after_a_crowd),
        cmocka_unit_test(few_groups_are_never_dropped_for_being_idle),
        cmocka_unit_test(scores_that_narrowed_are_distinguished_again),
        cmocka_unit_test(groups_with_few_samples_in_a_half_life_stay_exact_enough),
        cmocka_unit_test(a_restored_state_continues_to_the_same_bytes),
        cmocka_unit_test(other_half_lives_keep_what_they_have_in_common),
        cmocka_unit_test(before_the_first_watermark_samples_count_for_the_lifetime_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
