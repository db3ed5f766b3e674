/* AUC within groups against brute force; which groups are kept; the image of the state. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "metrics/gauc.h"

enum { GROUPS = 300 };

struct stream {
    size_t n;
    uint64_t *keys;
    float *scores, *labels;
    double *weights;
};

/* n samples of GROUPS groups whose sizes differ much; the score says something within a group and more between groups.
 * Scores are rounded to 1/64, so that some are equal. */
static struct stream make_stream(uint64_t seed, size_t n)
{
    struct stream s = {.n = n,
                       .keys = fr_alloc(n, sizeof(*s.keys)),
                       .scores = fr_alloc(n, sizeof(*s.scores)),
                       .labels = fr_alloc(n, sizeof(*s.labels)),
                       .weights = fr_alloc(n, sizeof(*s.weights))};
    for (size_t i = 0; i < n; i++) {
        double u = fr_random_uniform(seed, 1, i, 0);
        s.keys[i] = (uint64_t)(GROUPS * u * u * u);
        double level = fr_random_normal(seed, 2, s.keys[i], 0);
        s.labels[i] = fr_random_uniform(seed, 3, i, 0) < 0.2 + 0.1 * (level > 0) ? 1.0f : 0.0f;
        double score = level + fr_random_normal(seed, 4, i, 0) + 0.7 * (double)s.labels[i];
        s.scores[i] = (float)(floor(score * 64) / 64);
        s.weights[i] = 0.5 + fr_random_uniform(seed, 5, i, 0);
    }
    return s;
}

static void release(struct stream *s)
{
    free(s->keys);
    free(s->scores);
    free(s->labels);
    free(s->weights);
}

static void feed(struct fr_gauc *gauc, const struct stream *s, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        fr_gauc_add(gauc, s->keys[i], s->scores[i], s->labels[i], s->weights[i]);
}

/* Over the groups whose hash is below bound. */
static struct fr_gauc_result brute_force(const struct stream *s, uint64_t salt, uint64_t bound)
{
    struct fr_gauc_result out = {0};
    double sum = 0;
    for (uint64_t key = 0; key < GROUPS; key++) {
        double area = 0, positives = 0, negatives = 0;
        for (size_t i = 0; i < s->n && fr_fmix64(key ^ salt) < bound; i++) {
            if (s->keys[i] != key)
                continue;
            *(s->labels[i] > 0 ? &positives : &negatives) += s->weights[i];
            for (size_t j = 0; s->labels[i] > 0 && j < s->n; j++)
                if (s->keys[j] == key && s->labels[j] == 0 && s->scores[j] <= s->scores[i])
                    area += s->weights[i] * s->weights[j] * (s->scores[j] < s->scores[i] ? 1.0 : 0.5);
        }
        if (positives == 0 || negatives == 0)
            continue;
        out.groups++;
        out.weight += positives + negatives;
        sum += (positives + negatives) * (area / (positives * negatives));
    }
    out.auc = sum / out.weight;
    return out;
}

static const struct fr_gauc_options all = {.salt = 77, .groups_max = GROUPS};

static void groups_with_few_scores_are_exact(void **state)
{
    (void)state;
    struct stream s = make_stream(3, 2000);
    for (size_t i = 0; i < s.n; i++) /* 32 distinct scores, of any number of samples */
        s.scores[i] = (float)((int)(s.scores[i] * 4) & 31);
    struct fr_gauc *gauc = fr_gauc_new(&all);
    feed(gauc, &s, 0, s.n);
    struct fr_gauc_result result, exact = brute_force(&s, 77, UINT64_MAX);
    fr_gauc_result(gauc, &result);
    assert_true(fabs(result.auc - exact.auc) < 1e-12);
    assert_true(result.groups == exact.groups && fabs(result.weight - exact.weight) < 1e-8);
    assert_true(result.error_max == 0);
    fr_gauc_free(gauc);
    release(&s);
}

static void larger_groups_are_within_the_stated_error(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct stream s = make_stream(seed, 20000); /* the largest group has about 3000 samples */
        struct fr_gauc *gauc = fr_gauc_new(&all);
        feed(gauc, &s, 0, s.n);
        struct fr_gauc_result result, exact = brute_force(&s, 77, UINT64_MAX);
        fr_gauc_result(gauc, &result);
        print_message("seed %d: gauc %.6f exact %.6f error %.6f stated %.6f\n", (int)seed, result.auc, exact.auc,
                      fabs(result.auc - exact.auc), result.error_max);
        assert_true(fabs(result.auc - exact.auc) <= result.error_max);
        assert_true(fabs(result.auc - exact.auc) < 1e-3);
        assert_true(result.error_max > 0 && result.error_max < 0.03);
        assert_true(result.groups == exact.groups && fabs(result.weight / exact.weight - 1) < 1e-12);
        fr_gauc_free(gauc);
        release(&s);
    }
}

static void the_stated_error_holds_when_scores_drift_or_come_sorted(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct stream s = make_stream(9, 4000);
        for (size_t i = 0; i < s.n; i++) {
            s.keys[i] %= 3;
            if (kind == 0)
                s.scores[i] += (float)i * 0.01f; /* drifts away */
            else if (kind == 1)
                s.scores[i] *= 100.0f / (float)(i + 1); /* narrows */
            else
                s.scores[i] = (float)i;
        }
        struct fr_gauc *gauc = fr_gauc_new(&all);
        feed(gauc, &s, 0, s.n);
        struct fr_gauc_result result, exact = brute_force(&s, 77, UINT64_MAX);
        fr_gauc_result(gauc, &result);
        print_message("kind %d: error %.6f stated %.6f\n", kind, fabs(result.auc - exact.auc), result.error_max);
        assert_true(fabs(result.auc - exact.auc) <= result.error_max);
        fr_gauc_free(gauc);
        release(&s);
    }
}

static int compare_hashes(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void the_kept_groups_are_those_of_least_hash_and_whole(void **state)
{
    (void)state;
    struct stream s = make_stream(5, 3000);
    uint64_t hashes[GROUPS];
    for (uint64_t key = 0; key < GROUPS; key++)
        hashes[key] = fr_fmix64(key ^ 77); /* every key occurs: checked by the exact counts below */
    qsort(hashes, GROUPS, sizeof(*hashes), compare_hashes);
    struct fr_gauc *gauc = fr_gauc_new(&(struct fr_gauc_options){.salt = 77, .groups_max = 40});
    feed(gauc, &s, 0, s.n);
    struct fr_gauc_result result, exact = brute_force(&s, 77, hashes[40]);
    fr_gauc_result(gauc, &result);
    assert_true(result.groups == exact.groups && result.groups > 20);
    assert_true(fabs(result.weight - exact.weight) < 1e-9);
    assert_true(fabs(result.auc - exact.auc) <= result.error_max + 1e-12);
    fr_gauc_free(gauc);
    release(&s);
}

static void the_order_of_groups_does_not_matter(void **state)
{
    (void)state;
    struct stream s = make_stream(6, 3000);
    struct fr_gauc_options options = {.salt = 5, .groups_max = 30};
    struct fr_gauc *mixed = fr_gauc_new(&options), *sorted = fr_gauc_new(&options);
    feed(mixed, &s, 0, s.n);
    for (uint64_t key = GROUPS; key-- > 0;)
        for (size_t i = 0; i < s.n; i++)
            if (s.keys[i] == key)
                feed(sorted, &s, i, i + 1);
    struct fr_buffer a = {0}, b = {0};
    fr_gauc_encode(mixed, &a);
    fr_gauc_encode(sorted, &b);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    fr_buffer_release(&a);
    fr_buffer_release(&b);
    fr_gauc_free(mixed);
    fr_gauc_free(sorted);
    release(&s);
}

static void a_restored_state_goes_on_to_the_same_bytes(void **state)
{
    (void)state;
    struct stream s = make_stream(7, 6000);
    for (size_t i = 0; i < s.n; i += 2)
        s.weights[i] = 1; /* the short form of the image */
    struct fr_gauc_options options = {.salt = 5, .groups_max = 50};
    struct fr_gauc *whole = fr_gauc_new(&options), *second = fr_gauc_new(&options);
    struct fr_buffer image = {0}, a = {0}, b = {0};
    feed(whole, &s, 0, s.n / 2);
    fr_gauc_encode(whole, &image);
    assert_int_equal(fr_gauc_parse(second, image.data, image.size), FR_OK);
    feed(whole, &s, s.n / 2, s.n);
    feed(second, &s, s.n / 2, s.n);
    fr_gauc_encode(whole, &a);
    fr_gauc_encode(second, &b);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    for (size_t cut = 0; cut < image.size; cut += 1 + image.size / 97)
        assert_int_equal(fr_gauc_parse(second, image.data, cut), FR_E_CORRUPT);
    fr_buffer_release(&image);
    fr_buffer_release(&a);
    fr_buffer_release(&b);
    fr_gauc_free(whole);
    fr_gauc_free(second);
    release(&s);
}

static void a_smaller_limit_keeps_what_a_run_with_it_would_have_kept(void **state)
{
    (void)state;
    struct stream s = make_stream(8, 3000);
    struct fr_gauc *large = fr_gauc_new(&(struct fr_gauc_options){.salt = 5, .groups_max = 100});
    struct fr_gauc *small = fr_gauc_new(&(struct fr_gauc_options){.salt = 5, .groups_max = 20});
    struct fr_gauc *restored = fr_gauc_new(&(struct fr_gauc_options){.salt = 5, .groups_max = 20});
    feed(large, &s, 0, s.n);
    feed(small, &s, 0, s.n);
    struct fr_buffer image = {0}, a = {0}, b = {0};
    fr_gauc_encode(large, &image);
    assert_int_equal(fr_gauc_parse(restored, image.data, image.size), FR_OK);
    fr_gauc_encode(small, &a);
    fr_gauc_encode(restored, &b);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    struct fr_gauc *other = fr_gauc_new(&(struct fr_gauc_options){.salt = 6, .groups_max = 100});
    assert_int_equal(fr_gauc_parse(other, image.data, image.size), FR_E_MISMATCH);
    struct fr_gauc_result result;
    fr_gauc_result(other, &result);
    assert_true(result.groups == 0 && isnan(result.auc));
    fr_buffer_release(&image);
    fr_buffer_release(&a);
    fr_buffer_release(&b);
    fr_gauc_free(large);
    fr_gauc_free(small);
    fr_gauc_free(restored);
    fr_gauc_free(other);
    release(&s);
}

static void a_larger_limit_takes_no_group_that_was_refused_before(void **state)
{
    (void)state;
    struct fr_gauc *small = fr_gauc_new(&(struct fr_gauc_options){.salt = 5, .groups_max = 2});
    struct fr_gauc *large = fr_gauc_new(&(struct fr_gauc_options){.salt = 5, .groups_max = 9});
    uint64_t keys[6];
    for (uint64_t i = 0; i < 6; i++)
        keys[i] =
            fr_fmix64_inverse((i + 1) * 1000) ^ 5; /* hashes 1000, 2000, ..: the first two stay, nobody is pushed out */
    for (int i = 0; i < 6; i++)
        for (int label = 0; label < 2; label++)
            fr_gauc_add(small, keys[i], (float)label, (float)label, 1);
    struct fr_buffer image = {0};
    fr_gauc_encode(small, &image);
    assert_int_equal(fr_gauc_parse(large, image.data, image.size), FR_OK);
    for (int i = 0; i < 6; i++)
        for (int label = 0; label < 2; label++)
            fr_gauc_add(large, keys[i], (float)label, (float)label, 1);
    struct fr_gauc_result result;
    fr_gauc_result(large, &result);
    assert_true(result.groups == 2 && result.weight == 8);
    fr_gauc_add(large, fr_fmix64_inverse(2500) ^ 5, 0.5f, 0.0f,
                1); /* never seen, below the bound: whole, so it may come */
    fr_gauc_add(large, fr_fmix64_inverse(2500) ^ 5, 0.75f, 1.0f, 1);
    fr_gauc_result(large, &result);
    assert_true(result.groups == 3 && result.weight == 10);
    fr_buffer_release(&image);
    fr_gauc_free(small);
    fr_gauc_free(large);
}

static void the_image_is_small_enough_for_an_epoch_a_second(void **state)
{
    (void)state;
    struct fr_gauc_options options = {.salt = 5, .groups_max = 1024};
    struct fr_gauc *few = fr_gauc_new(&options), *many = fr_gauc_new(&options);
    for (uint64_t i = 0; i < 20000; i++) /* 2000 users with 10 impressions each */
        fr_gauc_add(few, i % 2000, (float)fr_random_normal(1, 2, i, 0), (float)(i % 7 == 0), 1.0);
    for (uint64_t i = 0; i < 400000; i++)
        fr_gauc_add(many, i % 2000, (float)fr_random_normal(1, 2, i, 0), (float)(i % 7 == 0), 1.0);
    struct fr_buffer image = {0};
    fr_gauc_encode(few, &image);
    print_message("1024 groups of 10 samples: %zu bytes\n", image.size);
    assert_true(image.size < 64 << 10);
    fr_buffer_clear(&image);
    fr_gauc_encode(many, &image);
    print_message("1024 groups of 200 samples: %zu bytes\n", image.size);
    assert_true(image.size < 640 << 10);
    fr_buffer_release(&image);
    fr_gauc_free(few);
    fr_gauc_free(many);
}

static void a_damaged_span_is_refused(void **state)
{
    (void)state;
    struct fr_gauc *gauc = fr_gauc_new(&all);
    fr_gauc_add(gauc, 1, 0.5f, 1.0f, 1.0);
    fr_gauc_add(gauc, 1, 0.75f, 0.0f, 1.0);
    struct fr_buffer image = {0};
    fr_gauc_encode(gauc, &image);
    assert_int_equal(image.size, 4 + 8 + 8 + 4 + 9 + 2 * 5);
    uint8_t keep = image.data[image.size - 1];
    image.data[image.size - 1] = 0x3e; /* 0.75 -> 0.1875: not ascending any more */
    assert_int_equal(fr_gauc_parse(gauc, image.data, image.size), FR_E_CORRUPT);
    image.data[image.size - 1] = keep;
    image.data[4 + 8 + 8 + 4 + 8] = FR_GAUC_SPANS + 1;
    assert_int_equal(fr_gauc_parse(gauc, image.data, image.size), FR_E_CORRUPT);
    fr_buffer_release(&image);
    fr_gauc_free(gauc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_with_few_scores_are_exact),
        cmocka_unit_test(larger_groups_are_within_the_stated_error),
        cmocka_unit_test(the_stated_error_holds_when_scores_drift_or_come_sorted),
        cmocka_unit_test(the_kept_groups_are_those_of_least_hash_and_whole),
        cmocka_unit_test(the_order_of_groups_does_not_matter),
        cmocka_unit_test(a_restored_state_goes_on_to_the_same_bytes),
        cmocka_unit_test(a_smaller_limit_keeps_what_a_run_with_it_would_have_kept),
        cmocka_unit_test(a_larger_limit_takes_no_group_that_was_refused_before),
        cmocka_unit_test(the_image_is_small_enough_for_an_epoch_a_second),
        cmocka_unit_test(a_damaged_span_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
