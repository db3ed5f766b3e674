/* Decayed AUC over logit bins (see metrics/auc.h for the contract).
 *
 * Idea: an accumulator holds, per bin of the logit, the weight of positives and of negatives. Decay multiplies
 * everything by 2^(-dt / half_life); instead of touching all bins at every batch, weights are kept relative to a
 * reference time `reference`: a sample adds w 2^((t - reference) / half_life). When that exponent could exceed
 * FR_AUC_STEP the reference moves by whole multiples of FR_AUC_STEP half-lives and all weights are scaled by an exact
 * power of two. So the state depends on the samples in their order only, not on when it was read, cut or restored.
 * Bins: 32768 of equal width over logits [-16, 16), outer scores in the outer bins. Owner thread: the trainer's loop.
 * Not here: GAUC, served scores. */
#include "metrics/auc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

enum { FR_AUC_BINS = 32768, FR_AUC_STEP = 32, FR_AUC_FORMAT = 1, FR_USE_METRICS_BIT = 2 };
static const float logit_limit = 16.0f;

struct accumulator {
    double *positive; /* [FR_AUC_BINS] */
    double *negative; /* [FR_AUC_BINS] */
    double logloss, prediction, label, weight;
    int64_t reference_ms; /* INT64_MIN: no sample yet */
};

struct fr_auc {
    uint32_t n_half_lives;
    int64_t half_life_ms[FR_AUC_HALF_LIVES_MAX];
    int64_t as_of_ms; /* watermark of the last batch */
    struct accumulator decayed[FR_AUC_HALF_LIVES_MAX];
    struct accumulator lifetime;
};

/* 2^x for |x| < 1000 by 2^n e^(f ln2), |f| <= 1/2, Taylor to degree 13 (error below 1 ulp of the sum): basic operations
 * only, the same bits everywhere. */
static double exp2_portable(double x)
{
    double n = x >= 0 ? (double)(int64_t)(x + 0.5) : (double)(int64_t)(x - 0.5);
    double r = (x - n) * 0.69314718055994530942;
    double sum = 1.0;
    for (int k = 13; k >= 1; k--)
        sum = 1.0 + sum * r / (double)k;
    return ldexp(sum, (int)n);
}

static void accumulator_init(struct accumulator *a)
{
    a->positive = fr_alloc(FR_AUC_BINS, sizeof(double));
    a->negative = fr_alloc(FR_AUC_BINS, sizeof(double));
    a->reference_ms = INT64_MIN;
}

static void accumulator_release(struct accumulator *a)
{
    free(a->positive);
    free(a->negative);
}

static void accumulator_clear(struct accumulator *a)
{
    memset(a->positive, 0, FR_AUC_BINS * sizeof(double));
    memset(a->negative, 0, FR_AUC_BINS * sizeof(double));
    a->logloss = a->prediction = a->label = a->weight = 0;
    a->reference_ms = INT64_MIN;
}

struct fr_auc *fr_auc_new(const struct fr_auc_options *options)
{
    FR_CHECK(options->n_half_lives <= FR_AUC_HALF_LIVES_MAX);
    struct fr_auc *auc = fr_alloc(1, sizeof(*auc));
    auc->n_half_lives = options->n_half_lives;
    auc->as_of_ms = INT64_MIN;
    for (uint32_t i = 0; i < auc->n_half_lives; i++) {
        FR_CHECK(options->half_life_ms[i] > 0);
        auc->half_life_ms[i] = options->half_life_ms[i];
        accumulator_init(&auc->decayed[i]);
    }
    accumulator_init(&auc->lifetime);
    return auc;
}

void fr_auc_free(struct fr_auc *auc)
{
    if (!auc)
        return;
    for (uint32_t i = 0; i < auc->n_half_lives; i++)
        accumulator_release(&auc->decayed[i]);
    accumulator_release(&auc->lifetime);
    free(auc);
}

/* Moves the reference so that exponents of samples up to as_of stay within one step. */
static void accumulator_rebase(struct accumulator *a, int64_t half_life_ms, int64_t as_of_ms)
{
    if (a->reference_ms == INT64_MIN) {
        a->reference_ms = as_of_ms;
        return;
    }
    int64_t step_ms = half_life_ms * FR_AUC_STEP;
    int64_t steps = (as_of_ms - a->reference_ms) / step_ms;
    if (steps <= 0)
        return;
    a->reference_ms += steps * step_ms;
    int exponent = steps > 64 ? -2048 : (int)(-steps * FR_AUC_STEP); /* far in the past: everything becomes 0 */
    for (size_t i = 0; i < FR_AUC_BINS; i++) {
        a->positive[i] = ldexp(a->positive[i], exponent);
        a->negative[i] = ldexp(a->negative[i], exponent);
    }
    a->logloss = ldexp(a->logloss, exponent);
    a->prediction = ldexp(a->prediction, exponent);
    a->label = ldexp(a->label, exponent);
    a->weight = ldexp(a->weight, exponent);
}

static size_t bin_of(float logit)
{
    float position = (logit + logit_limit) * ((float)FR_AUC_BINS / (2.0f * logit_limit));
    if (!(position > 0.0f)) /* below, or NaN (the caller checked) */
        return 0;
    return position >= (float)(FR_AUC_BINS - 1) ? FR_AUC_BINS - 1 : (size_t)position;
}

struct sample {
    size_t bin;
    double label, prediction, logloss;
};

static void accumulator_add(struct accumulator *a, const struct sample *sample, double weight)
{
    a->positive[sample->bin] += weight * sample->label;
    a->negative[sample->bin] += weight * (1.0 - sample->label);
    a->logloss += weight * sample->logloss;
    a->prediction += weight * sample->prediction;
    a->label += weight * sample->label;
    a->weight += weight;
}

void fr_auc_add(struct fr_auc *auc, const struct fr_auc_samples *samples)
{
    if (samples->watermark_ms != INT64_MIN) /* else nothing was trained yet: no time to decay by, lifetime only */
        auc->as_of_ms = samples->watermark_ms;
    bool timed = auc->as_of_ms != INT64_MIN;
    for (uint32_t h = 0; timed && h < auc->n_half_lives; h++)
        accumulator_rebase(&auc->decayed[h], auc->half_life_ms[h], auc->as_of_ms);
    for (size_t i = 0; i < samples->count; i++) {
        float label = samples->labels[i];
        double weight = samples->weights ? (double)samples->weights[i] : 1.0;
        if (label != label || weight <= 0 || (samples->use && !(samples->use[i] & FR_USE_METRICS_BIT)))
            continue;
        float logit = samples->logits[i];
        struct sample sample = {.bin = bin_of(logit), .label = (double)label, .prediction = (double)fr_sigmoidf(logit)};
        sample.logloss = (double)fr_softplusf(logit) - (double)label * (double)logit;
        accumulator_add(&auc->lifetime, &sample, weight);
        int64_t t_ms = samples->t_ms[i] < auc->as_of_ms ? samples->t_ms[i] : auc->as_of_ms;
        for (uint32_t h = 0; timed && h < auc->n_half_lives; h++) {
            struct accumulator *a = &auc->decayed[h];
            double age = (double)(t_ms - a->reference_ms) / (double)auc->half_life_ms[h];
            if (age > -900.0) /* older: below the smallest double */
                accumulator_add(a, &sample, weight * exp2_portable(age));
        }
    }
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : (double)NAN;
}

void fr_auc_result(const struct fr_auc *auc, int half_life, struct fr_auc_result *out)
{
    FR_CHECK(half_life < (int)auc->n_half_lives);
    const struct accumulator *a = half_life < 0 ? &auc->lifetime : &auc->decayed[half_life];
    double below = 0, area = 0, positives = 0;
    for (size_t i = 0; i < FR_AUC_BINS; i++) {
        area += a->positive[i] * (below + 0.5 * a->negative[i]);
        below += a->negative[i];
        positives += a->positive[i];
    }
    out->auc = ratio(area, positives * below);
    out->logloss = ratio(a->logloss, a->weight);
    out->calibration = ratio(a->prediction, a->label);
    out->positive_rate = ratio(a->label, a->weight);
    out->prediction_mean = ratio(a->prediction, a->weight);
    out->weight = a->weight;
    if (half_life >= 0 && a->reference_ms != INT64_MIN)
        out->weight *= exp2_portable(-(double)(auc->as_of_ms - a->reference_ms) / (double)auc->half_life_ms[half_life]);
}

/* ---- image: u32 format, i64 as_of, u32 n, then n + 1 accumulators (half-lives in order, lifetime with half-life 0) of
 * i64 half_life_ms, i64 reference, 4 f64 sums, u32 non-empty bins, per bin u32 index, f64 positive, f64 negative ----
 */

static void encode_accumulator(const struct accumulator *a, int64_t half_life_ms, struct fr_buffer *out)
{
    fr_put_u64(out, (uint64_t)half_life_ms);
    fr_put_u64(out, (uint64_t)a->reference_ms);
    fr_put_f64(out, a->logloss);
    fr_put_f64(out, a->prediction);
    fr_put_f64(out, a->label);
    fr_put_f64(out, a->weight);
    size_t at = out->size;
    uint32_t count = 0;
    fr_put_u32(out, 0);
    for (uint32_t i = 0; i < FR_AUC_BINS; i++)
        if (a->positive[i] != 0 || a->negative[i] != 0) {
            fr_put_u32(out, i);
            fr_put_f64(out, a->positive[i]);
            fr_put_f64(out, a->negative[i]);
            count++;
        }
    memcpy(out->data + at, &count, sizeof(count));
}

void fr_auc_encode(const struct fr_auc *auc, struct fr_buffer *out)
{
    fr_put_u32(out, FR_AUC_FORMAT);
    fr_put_u64(out, (uint64_t)auc->as_of_ms);
    fr_put_u32(out, auc->n_half_lives);
    for (uint32_t h = 0; h < auc->n_half_lives; h++)
        encode_accumulator(&auc->decayed[h], auc->half_life_ms[h], out);
    encode_accumulator(&auc->lifetime, 0, out);
}

/* target NULL: a half-life that is no longer configured; read over. */
static bool parse_accumulator(struct fr_reader *reader, struct accumulator *target)
{
    int64_t reference_ms = (int64_t)fr_take_u64(reader);
    double sums[4];
    for (int i = 0; i < 4; i++)
        sums[i] = fr_take_f64(reader);
    uint32_t count = fr_take_u32(reader);
    if (reader->failed || count > FR_AUC_BINS)
        return false;
    if (target) {
        accumulator_clear(target);
        target->reference_ms = reference_ms;
        target->logloss = sums[0];
        target->prediction = sums[1];
        target->label = sums[2];
        target->weight = sums[3];
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bin = fr_take_u32(reader);
        double positive = fr_take_f64(reader), negative = fr_take_f64(reader);
        if (reader->failed || bin >= FR_AUC_BINS || !(positive >= 0) || !(negative >= 0))
            return false;
        if (target) {
            target->positive[bin] = positive;
            target->negative[bin] = negative;
        }
    }
    return true;
}

static struct accumulator *find_accumulator(struct fr_auc *auc, int64_t half_life_ms)
{
    if (half_life_ms == 0)
        return &auc->lifetime;
    for (uint32_t h = 0; h < auc->n_half_lives; h++)
        if (auc->half_life_ms[h] == half_life_ms)
            return &auc->decayed[h];
    return NULL;
}

enum fr_status fr_auc_parse(struct fr_auc *auc, const uint8_t *bytes, size_t size)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    if (fr_take_u32(&reader) != FR_AUC_FORMAT)
        return FR_E_CORRUPT;
    auc->as_of_ms = (int64_t)fr_take_u64(&reader);
    uint32_t count = fr_take_u32(&reader);
    if (reader.failed || count > FR_AUC_HALF_LIVES_MAX)
        return FR_E_CORRUPT;
    uint32_t found = 0;
    for (uint32_t h = 0; h < auc->n_half_lives; h++)
        accumulator_clear(&auc->decayed[h]);
    for (uint32_t i = 0; i <= count; i++) {
        int64_t half_life_ms = (int64_t)fr_take_u64(&reader);
        struct accumulator *target = find_accumulator(auc, half_life_ms);
        found += target && half_life_ms != 0;
        if (!parse_accumulator(&reader, target))
            return FR_E_CORRUPT;
    }
    if (reader.failed || reader.at != reader.end)
        return FR_E_CORRUPT;
    return found == auc->n_half_lives && count == found ? FR_OK : FR_E_MISMATCH;
}
