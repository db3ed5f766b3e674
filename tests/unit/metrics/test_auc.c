/* Decayed AUC against a weighted Mann-Whitney statistic by ranks, and the image of the state. */
#include <math.h>
#include "case.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"
#include "metrics/auc.h"

enum { N = 6000, BATCH = 128 };

struct stream {
    float logits[N], labels[N];
    double weights[N];
    int64_t t_ms[N], watermark_ms[N];
};

/* Scores are center + spread * (signal + noise); a few samples are late, some are masked. */
static struct stream *make_stream(uint64_t seed, float center, float spread)
{
    struct stream *s = fr_alloc(1, sizeof(*s));
    int64_t watermark = 0;
    for (int i = 0; i < N; i++) {
        double u = fr_random_uniform(seed, 1, (uint64_t)i, 0);
        s->labels[i] = u < 0.3 ? 1.0f : 0.0f;
        double z = fr_random_normal(seed, 2, (uint64_t)i, 0) + (s->labels[i] > 0 ? 0.8 : 0.0);
        s->logits[i] = center + spread * (float)z;
        s->weights[i] = 0.5 + fr_random_uniform(seed, 3, (uint64_t)i, 0);
        s->t_ms[i] = 1700000000000 + (int64_t)i * 1000 - (i % 17 == 0 ? 400000 : 0);
        if (i % 23 == 0)
            s->labels[i] = NAN;
    }
    for (int b = 0; b < N; b += BATCH) {
        int end = b + BATCH < N ? b + BATCH : N;
        for (int i = b; i < end; i++)
            watermark = s->t_ms[i] > watermark ? s->t_ms[i] : watermark;
        for (int i = b; i < end; i++)
            s->watermark_ms[i] = watermark;
    }
    return s;
}

static void feed(struct fr_auc *auc, const struct stream *s, int from, int to)
{
    for (int b = from; b < to; b += BATCH) {
        int end = b + BATCH < to ? b + BATCH : to;
        struct fr_auc_samples samples = {.count = (size_t)(end - b),
                                         .scores = s->logits + b,
                                         .labels = s->labels + b,
                                         .weights = s->weights + b,
                                         .t_ms = s->t_ms + b,
                                         .watermark_ms = s->watermark_ms[b]};
        fr_auc_add(auc, &samples);
    }
}

struct scored {
    float logit;
    double positive, negative;
};

static int compare_scored(const void *left, const void *right)
{
    const struct scored *a = left, *b = right;
    return (a->logit > b->logit) - (a->logit < b->logit);
}

/* The share of pairs of a positive and a negative in which the positive is above, ties for half. */
static double by_ranks(const struct stream *s, double half_life_ms)
{
    static struct scored all[N];
    double area = 0, positives = 0, below = 0;
    int n = 0;
    for (int i = 0; i < N; i++) {
        int64_t t = s->t_ms[i] < s->watermark_ms[i] ? s->t_ms[i] : s->watermark_ms[i];
        double age = half_life_ms > 0 ? (double)(s->watermark_ms[N - 1] - t) / half_life_ms : 0;
        double weight = s->weights[i] * exp2(-age);
        if (!isnan(s->labels[i]))
            all[n++] = (struct scored){s->logits[i], s->labels[i] > 0 ? weight : 0, s->labels[i] > 0 ? 0 : weight};
    }
    qsort(all, (size_t)n, sizeof(*all), compare_scored);
    for (int i = 0; i < n;) { /* of one score */
        struct scored tie = {.logit = all[i].logit};
        for (; i < n && all[i].logit == tie.logit; i++) {
            tie.positive += all[i].positive;
            tie.negative += all[i].negative;
        }
        area += tie.positive * (below + 0.5 * tie.negative);
        below += tie.negative;
        positives += tie.positive;
    }
    return area / positives / below;
}

static const struct fr_auc_options options = {.n_half_lives = 3, .half_life_ms = {60000, 600000, 3600000}};

static void compare(float center, float spread)
{
    struct stream *s = make_stream(7, center, spread);
    struct fr_auc *auc = fr_auc_new(&options);
    feed(auc, s, 0, N);
    for (int h = -1; h < 3; h++) {
        struct fr_auc_result result;
        fr_auc_result(auc, h, &result);
        double exact = by_ranks(s, h < 0 ? 0 : (double)options.half_life_ms[h]);
        assert_true(fabs(result.auc - exact) < 1e-3 && result.outside == 0);
    }
    fr_auc_free(auc);
    free(s);
}

FR_CASE(auc_is_within_1e_3_of_the_one_by_ranks)
{
    compare(-1.0f, 1.0f);
}

FR_CASE(auc_is_within_1e_3_for_scores_far_narrower_than_one_logit)
{
    compare(-5.2f, 0.02f);
}

/* The scores are shifted as if clicks were rare and scaled by any factor, as those of an untrained
 * network, of raw inputs or of a pairwise loss are. */
FR_CASE(auc_is_within_1e_3_at_any_scale_of_the_logits)
{
    static const float scales[] = {1e-4f, 1e-3f, 0.1f, 10, 100, 1000, 30000, 100000};
    for (size_t i = 0; i < sizeof(scales) / sizeof(*scales); i++)
        compare(-1.0f * scales[i], scales[i]);
    compare(-52.0f, 1.0f);
    compare(14.0f, 3.0f);
    compare(-900.0f, 300.0f);
}

static void feed_probabilities(struct fr_auc *auc, struct stream *s)
{
    for (int i = 0; i < N; i++)
        s->logits[i] = (float)(1 / (1 + exp(-(double)s->logits[i])));
    feed(auc, s, 0, N);
}

FR_CASE(served_probabilities_below_1e_7_are_distinguished)
{
    struct stream *s = make_stream(7, -20.0f, 1.0f);
    double exact = by_ranks(s, 0);
    struct fr_auc *auc = fr_auc_new(&(struct fr_auc_options){.scores = FR_AUC_PROBABILITIES});
    feed_probabilities(auc, s);
    struct fr_auc_result result;
    fr_auc_result(auc, -1, &result);
    assert_true(fabs(result.auc - exact) < 1e-3 && result.outside == 0);
    fr_auc_free(auc);
    free(s);
}

/* n of 1000 samples of the class have a logit that no bin resolves; the others are in order. */
static struct fr_auc_result with_outside(int n, float label, float far)
{
    struct fr_auc *auc = fr_auc_new(&(struct fr_auc_options){0});
    for (int i = 0; i < 2000; i++) {
        float own = i % 2 ? 1.0f : 0.0f, logit = own + (float)i * 1e-5f;
        int64_t t = 1700000000000;
        if (own == label && i / 2 < n)
            logit = far;
        fr_auc_add(
            auc, &(struct fr_auc_samples){.count = 1, .scores = &logit, .labels = &own, .t_ms = &t, .watermark_ms = t});
    }
    struct fr_auc_result result;
    fr_auc_result(auc, -1, &result);
    fr_auc_free(auc);
    return result;
}

FR_CASE(above_one_percent_outside_the_range_auc_is_undefined)
{
    for (int label = 0; label < 2; label++)
        for (int sign = -1; sign < 2; sign += 2) {
            struct fr_auc_result none = with_outside(100, (float)label, (float)sign * 1048575.0f);
            assert_true(none.outside == 0 && none.auc >= 0.9);
            struct fr_auc_result some = with_outside(10, (float)label, (float)sign * 1048576.0f);
            assert_true(fabs(some.outside - 0.01) < 1e-12 && some.auc >= 0.98);
            struct fr_auc_result many = with_outside(11, (float)label, (float)sign * 3e38f);
            assert_true(fabs(many.outside - 0.011) < 1e-12 && isnan(many.auc) && !isnan(many.prediction_mean));
        }
}

/* Bins must ascend with the logit across every border between two kinds of bins, and both zeros are
 * one score. */
FR_CASE(a_higher_logit_is_never_counted_below_a_lower_one)
{
    static const float border[] = {0, 9.5367431640625e-7f, 0.0625f, 16, 1048576};
    for (int b = 0; b < 5; b++)
        for (int sign = -1; sign < 2; sign += 2) {
            float lower = (float)sign * border[b], higher = lower + (border[b] > 0 ? 0.02f * border[b] : 1e-6f);
            const float logits[] = {lower - (border[b] > 0 ? 0.02f * border[b] : 1e-6f), higher}, labels[] = {0, 1};
            const int64_t t_ms[] = {1, 1};
            struct fr_auc *auc = fr_auc_new(&(struct fr_auc_options){0});
            fr_auc_add(auc, &(struct fr_auc_samples){.count = 2, .scores = logits, .labels = labels, .t_ms = t_ms});
            struct fr_auc_result result;
            fr_auc_result(auc, -1, &result);
            assert_true(isnan(result.auc) ? border[b] > 16 : result.auc == 1);
            fr_auc_free(auc);
        }
    struct fr_auc *auc = fr_auc_new(&(struct fr_auc_options){0});
    const float zeros[] = {0.0f, -0.0f}, labels[] = {0, 1};
    const int64_t t_ms[] = {1, 1};
    fr_auc_add(auc, &(struct fr_auc_samples){.count = 2, .scores = zeros, .labels = labels, .t_ms = t_ms});
    struct fr_auc_result result;
    fr_auc_result(auc, -1, &result);
    assert_true(result.auc == 0.5);
    fr_auc_free(auc);
}

FR_CASE(logloss_calibration_and_rate_match_direct_sums)
{
    struct stream *s = make_stream(9, -1.0f, 1.0f);
    struct fr_auc *auc = fr_auc_new(&options);
    feed(auc, s, 0, N);
    struct fr_auc_result result;
    fr_auc_result(auc, 1, &result);
    double w = 0, loss = 0, p_sum = 0, y_sum = 0;
    for (int i = 0; i < N; i++) {
        if (isnan(s->labels[i]))
            continue;
        int64_t t = s->t_ms[i] < s->watermark_ms[i] ? s->t_ms[i] : s->watermark_ms[i];
        double weight = s->weights[i] * exp2(-(double)(s->watermark_ms[N - 1] - t) / 600000.0);
        double p = 1 / (1 + exp(-(double)s->logits[i]));
        w += weight;
        loss += -weight * (s->labels[i] > 0 ? log(p) : log(1 - p));
        p_sum += weight * p;
        y_sum += weight * s->labels[i];
    }
    assert_true(fabs(result.logloss - loss / w) < 1e-5);
    assert_true(fabs(result.calibration - p_sum / y_sum) < 1e-5);
    assert_true(fabs(result.positive_rate - y_sum / w) < 1e-9);
    assert_true(fabs(result.weight / w - 1) < 1e-9);
    fr_auc_free(auc);
    free(s);
}

/* Labels are drawn with the odds of the prediction times `odds`. half_life as in fr_auc_curve. */
static struct fr_auc_curve planted_curve(double odds, float center, float spread, int half_life)
{
    struct stream *s = make_stream(17, center, spread);
    for (int i = 0; i < N; i++) {
        double p = 1 / (1 + exp(-(double)s->logits[i]) / odds);
        s->labels[i] = fr_random_uniform(17, 4, (uint64_t)i, 0) < p ? 1.0f : 0.0f;
        s->weights[i] = 1;
    }
    struct fr_auc *auc = fr_auc_new(&options);
    struct fr_auc_result result;
    struct fr_auc_curve curve;
    feed(auc, s, 0, N);
    fr_auc_result(auc, half_life, &result);
    fr_auc_curve(auc, half_life, &curve);
    double weight = 0, predicted = 0, observed = 0;
    for (uint32_t b = 0; b < curve.n; b++) {
        const struct fr_auc_bucket *bucket = &curve.buckets[b];
        weight += bucket->weight;
        predicted += bucket->weight * bucket->predicted;
        observed += bucket->weight * bucket->observed;
        assert_true(b == 0 || bucket->predicted >= curve.buckets[b - 1].predicted);
        assert_true(bucket->low <= bucket->observed && bucket->observed <= bucket->high);
    }
    assert_true(fabs(weight / result.weight - 1) < 1e-9);
    assert_true(fabs(predicted / weight / result.prediction_mean - 1) < 1e-3);
    assert_true(fabs(observed / weight - result.positive_rate) < 1e-9);
    fr_auc_free(auc);
    free(s);
    return curve;
}

/* Returns in how many buckets the prediction lies within the interval of the rate. */
static int covered(const struct fr_auc_curve *curve)
{
    int n = 0;
    for (uint32_t b = 0; b < curve->n; b++)
        n += curve->buckets[b].low <= curve->buckets[b].predicted &&
             curve->buckets[b].predicted <= curve->buckets[b].high;
    return n;
}

FR_CASE(the_curve_of_right_probabilities_lies_within_its_intervals)
{
    static const float scales[][2] = {{-1, 1}, {-3, 0.5f}, {0, 0.001f}, {0.5f, 30}, {-18, 0.5f}};
    for (size_t i = 0; i < sizeof(scales) / sizeof(*scales); i++)
        for (int h = -1; h < 3; h++) {
            struct fr_auc_curve curve = planted_curve(1, scales[i][0], scales[i][1], h);
            assert_int_equal(curve.n, FR_AUC_CURVE_BUCKETS);
            assert_true(covered(&curve) >= 8);
            /* deciles, as far as single samples and bins allow */
            for (uint32_t b = 1; b < curve.n; b++)
                assert_true(fabs(curve.buckets[b].weight / curve.buckets[0].weight - 1) < (h == 0 ? 0.4 : 0.1));
        }
}

FR_CASE(the_curve_of_a_model_that_is_wrong_by_a_factor_shows_the_factor)
{
    for (int side = 0; side < 2; side++) {
        double odds = side ? 3 : 1.0 / 3;
        struct fr_auc_curve curve = planted_curve(odds, -1, 1, -1);
        assert_true(covered(&curve) == 0);
        for (uint32_t b = 0; b < curve.n; b++) {
            double p = 1 / (1 + (1 / curve.buckets[b].predicted - 1) / odds);
            assert_true(fabs(curve.buckets[b].observed / p - 1) < 0.3);
        }
    }
}

/* The interval of 3 of 10 by hand is 0.1078 to 0.6032. */
FR_CASE(samples_of_one_score_are_one_bucket_of_the_curve)
{
    float logits[10] = {0}, labels[10] = {1, 1, 1};
    const int64_t t_ms[10] = {0};
    struct fr_auc *auc = fr_auc_new(&(struct fr_auc_options){0});
    struct fr_auc_curve curve;
    fr_auc_curve(auc, -1, &curve);
    assert_int_equal(curve.n, 0);
    fr_auc_add(auc, &(struct fr_auc_samples){.count = 10, .scores = logits, .labels = labels, .t_ms = t_ms});
    fr_auc_curve(auc, -1, &curve);
    assert_int_equal(curve.n, 1);
    const struct fr_auc_bucket *only = &curve.buckets[0];
    assert_true(only->predicted == 0.5 && fabs(only->observed - 0.3) < 1e-12 && only->weight == 10);
    assert_true(fabs(only->low - 0.1078) < 1e-4 && fabs(only->high - 0.6032) < 1e-4);
    fr_auc_free(auc);
    struct fr_auc *values = fr_auc_new(&(struct fr_auc_options){.scores = FR_AUC_VALUES});
    fr_auc_add(values, &(struct fr_auc_samples){.count = 10, .scores = logits, .labels = labels, .t_ms = t_ms});
    fr_auc_curve(values, -1, &curve);
    assert_int_equal(curve.n, 0);
    fr_auc_free(values);
}

FR_CASE(a_restored_state_continues_to_the_same_bytes)
{
    struct stream *s = make_stream(11, 0.0f, 1.0f);
    struct fr_auc *whole = fr_auc_new(&options), *second = fr_auc_new(&options);
    struct fr_buffer image = {0}, a = {0}, b = {0};
    int middle = N / 2 / BATCH * BATCH;
    feed(whole, s, 0, middle);
    fr_auc_encode(whole, &image);
    assert_int_equal(fr_auc_parse(second, image.data, image.size), FR_OK);
    feed(whole, s, middle, N);
    feed(second, s, middle, N);
    fr_auc_encode(whole, &a);
    fr_auc_encode(second, &b);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    for (size_t cut = 0; cut < image.size; cut += 1 + image.size / 97)
        assert_int_not_equal(fr_auc_parse(second, image.data, cut), FR_OK);
    fr_buffer_release(&image);
    fr_buffer_release(&a);
    fr_buffer_release(&b);
    fr_auc_free(whole);
    fr_auc_free(second);
    free(s);
}

/* The changed bytes are the reference time of the first half-life, after format, scores, the number
 * of half-lives and the half-lives. */
FR_CASE(an_image_that_names_a_time_beyond_all_is_refused)
{
    static const int64_t half_life_ms[2] = {300000, 3600000};
    static const int64_t times[] = {INT64_MIN + 1, INT64_MAX, -4000000000000000, 4000000000000000};
    struct fr_auc_options two = {.n_half_lives = 2};
    memcpy(two.half_life_ms, half_life_ms, sizeof(half_life_ms));
    struct fr_auc *auc = fr_auc_new(&two);
    struct fr_buffer image = {0};
    fr_auc_encode(auc, &image);
    for (size_t i = 0; i < 4; i++) {
        struct fr_auc_result result;
        memcpy(image.data + 12 + sizeof(half_life_ms), &times[i], sizeof(times[i]));
        assert_int_equal(fr_auc_parse(auc, image.data, image.size), i < 2 ? FR_E_CORRUPT : FR_OK);
        if (i < 2)
            continue;
        fr_auc_set_as_of_ms(auc, 1700000000000);
        fr_auc_result(auc, 0, &result);
        assert_true(isfinite(result.weight));
    }
    fr_buffer_release(&image);
    fr_auc_free(auc);
}

FR_CASE(other_half_lives_keep_the_lifetime_part)
{
    struct stream *s = make_stream(13, 0.0f, 1.0f);
    struct fr_auc *auc = fr_auc_new(&options);
    struct fr_auc *other = fr_auc_new(&(struct fr_auc_options){.n_half_lives = 2, .half_life_ms = {60000, 777}});
    feed(auc, s, 0, N);
    struct fr_buffer image = {0};
    fr_auc_encode(auc, &image);
    assert_int_equal(fr_auc_parse(other, image.data, image.size), FR_E_MISMATCH);
    struct fr_auc_result before, after;
    fr_auc_result(auc, -1, &before);
    fr_auc_result(other, -1, &after);
    assert_true(before.auc == after.auc && before.weight == after.weight);
    fr_auc_result(other, 1, &after);
    assert_true(isnan(after.auc) && after.weight == 0);
    fr_buffer_release(&image);
    fr_auc_free(auc);
    fr_auc_free(other);
    free(s);
}

/* Three half-lives of true labels, then false ones. Weighted by decay the old part is 0.4375 to 0.5
 * after one half-life: AUC falls below one half, and the lifetime's does not. Samples of a batch
 * come in another order than they happened. */
FR_CASE(a_label_flip_shows_within_one_half_life_of_event_time)
{
    enum { HALF_LIFE_MS = 60000, STEP_MS = 15, PER_BATCH = 100 };
    const int64_t begin = 1700000000000, flip = begin + 3 * HALF_LIFE_MS;
    struct fr_auc *auc = fr_auc_new(&(struct fr_auc_options){.n_half_lives = 1, .half_life_ms = {HALF_LIFE_MS}});
    int64_t crossed = 0;
    for (int64_t t = begin; t < flip + HALF_LIFE_MS; t += PER_BATCH * STEP_MS) {
        float logits[PER_BATCH], labels[PER_BATCH];
        int64_t t_ms[PER_BATCH];
        for (int i = 0; i < PER_BATCH; i++) {
            t_ms[i] = t + (i * 37 % PER_BATCH) * STEP_MS;
            logits[i] = (float)fr_random_normal(5, 0, (uint64_t)t_ms[i], 0);
            labels[i] = (logits[i] > 0) != (t_ms[i] >= flip);
        }
        fr_auc_add(auc, &(struct fr_auc_samples){.count = PER_BATCH,
                                                 .scores = logits,
                                                 .labels = labels,
                                                 .t_ms = t_ms,
                                                 .watermark_ms = t + (PER_BATCH - 1) * STEP_MS});
        struct fr_auc_result result;
        fr_auc_result(auc, 0, &result);
        assert_true(t >= flip || result.auc > 0.999);
        if (!crossed && t >= flip && result.auc < 0.5)
            crossed = t;
    }
    struct fr_auc_result lifetime;
    fr_auc_result(auc, -1, &lifetime);
    assert_true(lifetime.auc > 0.7);
    assert_true(crossed > flip + HALF_LIFE_MS / 2 && crossed <= flip + HALF_LIFE_MS);
    fr_auc_free(auc);
}

FR_CASE(a_regression_has_a_squared_error_and_no_auc)
{
    struct fr_auc *auc =
        fr_auc_new(&(struct fr_auc_options){.scores = FR_AUC_VALUES, .n_half_lives = 1, .half_life_ms = {1000}});
    const float scores[] = {2.0f, -1.0f, 4.0f}, labels[] = {3.0f, -2.0f, 5.5f};
    const double weights[] = {1, 2, 0.5};
    const int64_t t_ms[] = {1700000000000, 1700000000000, 1700000000000};
    fr_auc_add(auc, &(struct fr_auc_samples){.count = 3,
                                             .scores = scores,
                                             .labels = labels,
                                             .weights = weights,
                                             .t_ms = t_ms,
                                             .watermark_ms = 1700000001000});
    struct fr_auc_result result;
    for (int h = -1; h < 1; h++) { /* all samples have one age, so decay changes the weight only */
        fr_auc_result(auc, h, &result);
        assert_true(isnan(result.auc) && isnan(result.logloss));
        assert_true(fabs(result.mse - (1 + 2 + 0.5 * 2.25) / 3.5) < 1e-12);
        assert_true(fabs(result.calibration - (2.0 - 2 + 2) / (3.0 - 4 + 2.75)) < 1e-12);
        assert_true(fabs(result.positive_rate - 1.75 / 3.5) < 1e-12);
        assert_true(fabs(result.prediction_mean - 2.0 / 3.5) < 1e-12);
        assert_true(fabs(result.weight - (h < 0 ? 3.5 : 1.75)) < 1e-12);
    }
    struct fr_buffer image = {0};
    fr_auc_encode(auc, &image);
    struct fr_auc *logits = fr_auc_new(&(struct fr_auc_options){.n_half_lives = 1, .half_life_ms = {1000}});
    assert_int_equal(fr_auc_parse(logits, image.data, image.size), FR_E_CORRUPT);
    assert_int_equal(fr_auc_parse(auc, image.data, image.size), FR_OK);
    fr_buffer_release(&image);
    fr_auc_free(auc);
    fr_auc_free(logits);
}

FR_CASE(probabilities_give_what_their_logits_give)
{
    struct stream *s = make_stream(15, -1.0f, 1.0f);
    struct fr_auc *logits = fr_auc_new(&(struct fr_auc_options){0});
    struct fr_auc *probabilities = fr_auc_new(&(struct fr_auc_options){.scores = FR_AUC_PROBABILITIES});
    feed(logits, s, 0, N);
    for (int i = 0; i < N; i++)
        s->logits[i] = (float)(1 / (1 + exp(-(double)s->logits[i])));
    feed(probabilities, s, 0, N);
    struct fr_auc_result a, b;
    fr_auc_result(logits, -1, &a);
    fr_auc_result(probabilities, -1, &b);
    assert_true(fabs(a.auc - b.auc) < 1e-4 && fabs(a.logloss - b.logloss) < 1e-6);
    assert_true(fabs(a.calibration - b.calibration) < 1e-6 && a.weight == b.weight);
    fr_auc_free(logits);
    fr_auc_free(probabilities);
    free(s);
}

FR_CASE(probabilities_of_zero_and_one_have_a_finite_logloss)
{
    struct fr_auc *auc = fr_auc_new(&(struct fr_auc_options){.scores = FR_AUC_PROBABILITIES});
    const float scores[] = {0.0f, 1.0f, 0.5f}, labels[] = {1.0f, 1.0f, 0.0f};
    const int64_t t_ms[] = {1, 1, 1};
    fr_auc_add(auc, &(struct fr_auc_samples){.count = 3, .scores = scores, .labels = labels, .t_ms = t_ms});
    struct fr_auc_result result;
    fr_auc_result(auc, -1, &result);
    assert_true(fabs(result.logloss - (16 + 0 + log(2)) / 3) < 1e-5); /* cut at logits of +-16 */
    assert_true(fabs(result.auc - 0.5) < 1e-12);
    assert_true(fabs(result.prediction_mean - 0.5) < 1e-12);
    fr_auc_free(auc);
}

FR_CASE(without_both_classes_auc_is_undefined)
{
    struct fr_auc *auc = fr_auc_new(&options);
    float logit = 0.5f, label = 1.0f;
    int64_t t = 1700000000000;
    fr_auc_add(auc,
               &(struct fr_auc_samples){.count = 1, .scores = &logit, .labels = &label, .t_ms = &t, .watermark_ms = t});
    struct fr_auc_result result;
    fr_auc_result(auc, 0, &result);
    assert_true(isnan(result.auc) && !isnan(result.logloss));
    fr_auc_free(auc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auc_is_within_1e_3_of_the_one_by_ranks),
        cmocka_unit_test(auc_is_within_1e_3_for_scores_far_narrower_than_one_logit),
        cmocka_unit_test(auc_is_within_1e_3_at_any_scale_of_the_logits),
        cmocka_unit_test(served_probabilities_below_1e_7_are_distinguished),
        cmocka_unit_test(above_one_percent_outside_the_range_auc_is_undefined),
        cmocka_unit_test(a_higher_logit_is_never_counted_below_a_lower_one),
        cmocka_unit_test(logloss_calibration_and_rate_match_direct_sums),
        cmocka_unit_test(the_curve_of_right_probabilities_lies_within_its_intervals),
        cmocka_unit_test(the_curve_of_a_model_that_is_wrong_by_a_factor_shows_the_factor),
        cmocka_unit_test(samples_of_one_score_are_one_bucket_of_the_curve),
        cmocka_unit_test(a_restored_state_continues_to_the_same_bytes),
        cmocka_unit_test(an_image_that_names_a_time_beyond_all_is_refused),
        cmocka_unit_test(other_half_lives_keep_the_lifetime_part),
        cmocka_unit_test(a_label_flip_shows_within_one_half_life_of_event_time),
        cmocka_unit_test(a_regression_has_a_squared_error_and_no_auc),
        cmocka_unit_test(probabilities_give_what_their_logits_give),
        cmocka_unit_test(probabilities_of_zero_and_one_have_a_finite_logloss),
        cmocka_unit_test(without_both_classes_auc_is_undefined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
