/* Decayed AUC over logit bins (see metrics/auc.h for the contract).
 *
 * Idea: an accumulator holds, per bin of the logit, the weight of positives and of negatives;
 * decay.h computes the decay.
 *
 * Bins go by magnitude, are the same on both sides of 0 and ascend over both. They have equal width
 * 2^-10 where logits belong, in [2^-4, 2^4). Below and above they grow with the logit, 64 to an
 * octave down to 2^-20 and 1024 to an octave up to 2^20 (6 and 10 bits of the mantissa), so that a
 * network's scale changes nothing. One bin holds everything around 0. What is beyond 2^20 falls
 * into the two outermost bins, which hold nothing else: they say which share is not resolved. Two
 * thousand more bins below and 32 thousand above cost 0.5 MB an accumulator; bins of equal width
 * for this range would be 2^31. FR_AUC_VALUES has no bins.
 *
 * Owner thread: the trainer's loop. Not here: AUC within groups (gauc.c), which samples count
 * (task.c). */
#include "metrics/auc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clones.h"
#include "base/math.h"
#include "decay.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum {
    FR_AUC_FORMAT = 4,
    BLOCK = 128, /* samples whose numbers are computed side by side */
    /* Exponents of the borders between kinds of bins. */
    AROUND_ZERO = -20,
    SMALL = -4,
    LARGE = 4,
    OUTSIDE = 20,
    /* Bits of the mantissa that tell bins apart. */
    SMALL_BITS = 6,
    LARGE_BITS = 10,
    /* Bins of one side, counted from 0. The one around 0 is shared. */
    SMALL_BEGIN = 1,
    EVEN_BEGIN = SMALL_BEGIN + ((SMALL - AROUND_ZERO) << SMALL_BITS),
    EVEN_BINS = (16 << 10) - (1 << SMALL_BITS),
    LARGE_BEGIN = EVEN_BEGIN + EVEN_BINS,
    OUTSIDE_BIN = LARGE_BEGIN + ((OUTSIDE - LARGE) << LARGE_BITS),
    FR_AUC_BINS = 2 * OUTSIDE_BIN + 1,
};
_Static_assert(SMALL == -4 && LARGE == 4 && SMALL_BITS == SMALL + 10,
               "bins of equal width begin and end where they say");

/* The logit of a probability of 0 or 1 is cut here: for log loss, and (beyond the logit of any
 * other float) for bins. */
static const float loss_limit = 16.0f, logit_limit = 128.0f;

enum { SUM_LOGLOSS, SUM_PREDICTION, SUM_LABEL, SUM_WEIGHT, SUM_SQUARES, SUMS };

struct accumulator {
    size_t n_bins;    /* FR_AUC_BINS or 0 */
    double *positive; /* [n_bins] */
    double *negative; /* [n_bins] */
    uint64_t *used;   /* one bit for each bin: the bin may differ from 0 */
    double sums[SUMS];
    int64_t reference_ms; /* INT64_MIN: no sample yet */
};

struct fr_auc {
    enum fr_auc_scores scores;
    uint32_t n_half_lives;
    int64_t half_life_ms[FR_AUC_HALF_LIVES_MAX];
    int64_t as_of_ms; /* watermark of the last batch */
    uint64_t changes;
    struct accumulator decayed[FR_AUC_HALF_LIVES_MAX];
    struct accumulator lifetime;
};

static size_t used_words(const struct accumulator *a)
{
    return (a->n_bins + 63) / 64;
}

static void accumulator_init(struct accumulator *a, size_t n_bins)
{
    a->n_bins = n_bins;
    a->positive = fr_alloc(n_bins ? n_bins : 1, sizeof(double));
    a->negative = fr_alloc(n_bins ? n_bins : 1, sizeof(double));
    a->used = fr_alloc(n_bins ? used_words(a) : 1, sizeof(uint64_t));
    a->reference_ms = INT64_MIN;
}

static void accumulator_release(struct accumulator *a)
{
    free(a->positive);
    free(a->negative);
    free(a->used);
}

static void accumulator_clear(struct accumulator *a)
{
    memset(a->positive, 0, a->n_bins * sizeof(double));
    memset(a->negative, 0, a->n_bins * sizeof(double));
    memset(a->used, 0, used_words(a) * sizeof(uint64_t));
    memset(a->sums, 0, sizeof(a->sums));
    a->reference_ms = INT64_MIN;
}

struct fr_auc *fr_auc_new(const struct fr_auc_options *options)
{
    FR_CHECK(options->n_half_lives <= FR_AUC_HALF_LIVES_MAX);
    struct fr_auc *auc = fr_alloc(1, sizeof(*auc));
    size_t n_bins = options->scores == FR_AUC_VALUES ? 0 : FR_AUC_BINS;
    auc->scores = options->scores;
    auc->n_half_lives = options->n_half_lives;
    auc->as_of_ms = INT64_MIN;
    for (uint32_t i = 0; i < auc->n_half_lives; i++) {
        FR_CHECK(options->half_life_ms[i] > 0);
        auc->half_life_ms[i] = options->half_life_ms[i];
        accumulator_init(&auc->decayed[i], n_bins);
    }
    accumulator_init(&auc->lifetime, n_bins);
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

static void use_bin(struct accumulator *a, size_t bin)
{
    a->used[bin / 64] |= UINT64_C(1) << (bin % 64);
}

/* The first used bin from `bin` on, or n_bins. Most models use few of them, and every cut goes over
 * all that are used. */
static size_t next_used(const struct accumulator *a, size_t bin)
{
    size_t word = bin / 64, words = used_words(a);
    if (word >= words)
        return a->n_bins;
    uint64_t bits = a->used[word] & (UINT64_MAX << (bin % 64));
    while (bits == 0 && ++word < words)
        bits = a->used[word];
    return bits == 0 ? a->n_bins : word * 64 + (size_t)__builtin_ctzll(bits);
}

/* Moves the reference time if necessary. Returns whether the accumulator changed. */
static bool accumulator_rebase(struct accumulator *a, int64_t half_life_ms, int64_t as_of_ms)
{
    bool first = a->reference_ms == INT64_MIN;
    int exponent = fr_decay_rebase(&a->reference_ms, half_life_ms, as_of_ms);
    if (exponent == 0)
        return first;
    for (size_t i = next_used(a, 0); i < a->n_bins; i = next_used(a, i + 1)) {
        a->positive[i] = ldexp(a->positive[i], exponent);
        a->negative[i] = ldexp(a->negative[i], exponent);
    }
    for (size_t i = 0; i < SUMS; i++)
        a->sums[i] = ldexp(a->sums[i], exponent);
    return true;
}

/* Returns the bin of a magnitude, counted from the bin around 0. */
static size_t magnitude_bin(float magnitude)
{
    uint32_t bits = fr_f32_bits(magnitude) & 0x7fffffffu; /* of -0 too */
    int exponent = (int)(bits >> 23) - 127;
    if (exponent >= SMALL && exponent < LARGE)
        return EVEN_BEGIN + (size_t)(magnitude * 1024.0f) - (1 << SMALL_BITS);
    if (exponent < AROUND_ZERO)
        return 0;
    if (exponent < SMALL)
        return SMALL_BEGIN + (bits >> (23 - SMALL_BITS)) - ((uint32_t)(AROUND_ZERO + 127) << SMALL_BITS);
    if (exponent < OUTSIDE)
        return LARGE_BEGIN + (bits >> (23 - LARGE_BITS)) - ((uint32_t)(LARGE + 127) << LARGE_BITS);
    return OUTSIDE_BIN; /* infinities too */
}

static uint32_t bin_of(float logit)
{
    return (uint32_t)(logit < 0 ? OUTSIDE_BIN - magnitude_bin(-logit) : OUTSIDE_BIN + magnitude_bin(logit));
}

static float cut(float logit, float limit)
{
    return logit > limit ? limit : logit < -limit ? -limit : logit;
}

/* Numbers of BLOCK samples, computed with vector instructions where possible, also for samples that
 * are skipped. */
struct block {
    size_t n;
    const float *labels;
    uint32_t bins[BLOCK];
    double prediction[BLOCK], logloss[BLOCK], square[BLOCK];
    double weights[BLOCK]; /* 0: skipped */
};

FR_CLONES
static void measure_logits(struct block *block, const float *logits)
{
    const float *restrict labels = block->labels;
    for (size_t i = 0; i < block->n; i++) {
        block->prediction[i] = (double)fr_sigmoidf(logits[i]);
        block->logloss[i] = (double)fr_softplusf(logits[i]) - (double)labels[i] * (double)logits[i];
    }
}

static void measure_probabilities(struct block *block, const float *scores)
{
    for (size_t i = 0; i < block->n; i++) {
        float logit = cut(fr_logf(scores[i]) - fr_logf(1.0f - scores[i]), logit_limit);
        block->bins[i] = bin_of(logit);
        logit = cut(logit, loss_limit);
        block->prediction[i] = (double)scores[i];
        block->logloss[i] = (double)fr_softplusf(logit) - (double)block->labels[i] * (double)logit;
    }
}

static void measure_values(struct block *block, const float *scores)
{
    for (size_t i = 0; i < block->n; i++) {
        double difference = (double)scores[i] - (double)block->labels[i];
        block->prediction[i] = (double)scores[i];
        block->square[i] = difference * difference;
    }
}

static void measure(enum fr_auc_scores scores, const struct fr_auc_samples *samples, size_t first, struct block *block)
{
    block->labels = samples->labels + first;
    for (size_t i = 0; i < block->n; i++) {
        double weight = samples->weights ? samples->weights[first + i] : 1.0;
        bool counts = block->labels[i] == block->labels[i] && weight > 0;
        block->weights[i] = counts ? weight : 0;
    }
    switch (scores) {
    case FR_AUC_LOGITS:
        for (size_t i = 0; i < block->n; i++)
            block->bins[i] = bin_of(samples->scores[first + i]);
        measure_logits(block, samples->scores + first);
        break;
    case FR_AUC_PROBABILITIES:
        measure_probabilities(block, samples->scores + first);
        break;
    case FR_AUC_VALUES:
        measure_values(block, samples->scores + first);
        break;
    }
}

/* With a label of 0 or 1 one class gets nothing, so the bin of that class is not touched. */
static void add_to_bin(struct accumulator *a, uint32_t bin, double label, double weight)
{
    if (label != 0)
        a->positive[bin] += weight * label;
    if (label != 1)
        a->negative[bin] += weight * (1.0 - label);
    use_bin(a, bin);
}

/* Returns how many samples counted. */
static uint64_t accumulator_add(struct accumulator *a, enum fr_auc_scores scores, const struct block *block,
                                const double *weights)
{
    uint64_t counted = 0;
    for (size_t i = 0; i < block->n; i++) {
        double weight = weights[i], label = (double)block->labels[i];
        if (!(weight > 0))
            continue;
        counted++;
        a->sums[SUM_PREDICTION] += weight * block->prediction[i];
        a->sums[SUM_LABEL] += weight * label;
        a->sums[SUM_WEIGHT] += weight;
        if (scores == FR_AUC_VALUES) {
            a->sums[SUM_SQUARES] += weight * block->square[i];
            continue;
        }
        a->sums[SUM_LOGLOSS] += weight * block->logloss[i];
        add_to_bin(a, block->bins[i], label, weight);
    }
    return counted;
}

/* Computes the block's weights as of the reference time. weights[] has the samples' distances from
 * that time, in ms, before the call. */
FR_CLONES
static void decay(const struct block *block, double half_life_ms, double *restrict weights)
{
    for (size_t i = 0; i < block->n; i++)
        weights[i] = block->weights[i] * fr_decay_power(weights[i] / half_life_ms);
}

static void add_decayed(struct fr_auc *auc, uint32_t h, const struct block *block, const int64_t *t_ms)
{
    struct accumulator *a = &auc->decayed[h];
    double weights[BLOCK];
    for (size_t i = 0; i < block->n; i++)
        weights[i] = (double)((t_ms[i] < auc->as_of_ms ? t_ms[i] : auc->as_of_ms) - a->reference_ms);
    decay(block, (double)auc->half_life_ms[h], weights);
    (void)accumulator_add(a, auc->scores, block, weights);
}

void fr_auc_add(struct fr_auc *auc, const struct fr_auc_samples *samples)
{
    /* else nothing was trained yet: no time to decay by, lifetime only */
    if (samples->watermark_ms != INT64_MIN)
        auc->as_of_ms = samples->watermark_ms;
    bool timed = auc->as_of_ms != INT64_MIN;
    for (uint32_t h = 0; timed && h < auc->n_half_lives; h++)
        auc->changes += accumulator_rebase(&auc->decayed[h], auc->half_life_ms[h], auc->as_of_ms);
    for (size_t first = 0; first < samples->count; first += BLOCK) {
        struct block block;
        block.n = samples->count - first < BLOCK ? samples->count - first : BLOCK;
        measure(auc->scores, samples, first, &block);
        auc->changes += accumulator_add(&auc->lifetime, auc->scores, &block, block.weights);
        for (uint32_t h = 0; timed && h < auc->n_half_lives; h++)
            add_decayed(auc, h, &block, samples->t_ms + first);
    }
}

uint64_t fr_auc_changes(const struct fr_auc *auc)
{
    return auc->changes;
}

int64_t fr_auc_as_of_ms(const struct fr_auc *auc)
{
    return auc->as_of_ms;
}

void fr_auc_set_as_of_ms(struct fr_auc *auc, int64_t as_of_ms)
{
    auc->as_of_ms = as_of_ms;
}

static double ratio(double a, double b)
{
    return b != 0 ? a / b : (double)NAN;
}

static const struct accumulator *accumulator_of(const struct fr_auc *auc, int half_life)
{
    FR_CHECK(half_life < (int)auc->n_half_lives);
    return half_life < 0 ? &auc->lifetime : &auc->decayed[half_life];
}

/* Returns what a weight of the accumulator counts at the time that the numbers are as of. */
static double as_of_factor(const struct fr_auc *auc, int half_life)
{
    const struct accumulator *a = accumulator_of(auc, half_life);
    if (half_life < 0 || a->reference_ms == INT64_MIN)
        return 1;
    return fr_decay_since(auc->as_of_ms, a->reference_ms, auc->half_life_ms[half_life]);
}

/* Computes AUC, and the share of a class (of the one with more of it) whose scores lie outside the
 * range that bins resolve. */
static void area_of(const struct accumulator *a, struct fr_auc_result *out)
{
    double below = 0, area = 0, positives = 0;
    for (size_t i = next_used(a, 0); i < a->n_bins; i = next_used(a, i + 1)) {
        area += a->positive[i] * (below + 0.5 * a->negative[i]);
        below += a->negative[i];
        positives += a->positive[i];
    }
    out->outside = 0;
    if (a->n_bins > 0) {
        double p = a->positive[0] + a->positive[a->n_bins - 1], n = a->negative[0] + a->negative[a->n_bins - 1];
        double share_p = p > 0 ? p / positives : 0, share_n = n > 0 ? n / below : 0;
        out->outside = share_p > share_n ? share_p : share_n;
    }
    out->auc = out->outside > FR_AUC_OUTSIDE_MAX ? (double)NAN : ratio(area, positives * below);
}

void fr_auc_result(const struct fr_auc *auc, int half_life, struct fr_auc_result *out)
{
    const struct accumulator *a = accumulator_of(auc, half_life);
    bool values = auc->scores == FR_AUC_VALUES;
    double weight = a->sums[SUM_WEIGHT];
    area_of(a, out);
    out->logloss = values ? (double)NAN : ratio(a->sums[SUM_LOGLOSS], weight);
    out->calibration = ratio(a->sums[SUM_PREDICTION], a->sums[SUM_LABEL]);
    out->positive_rate = ratio(a->sums[SUM_LABEL], weight);
    out->prediction_mean = ratio(a->sums[SUM_PREDICTION], weight);
    out->mse = values ? ratio(a->sums[SUM_SQUARES], weight) : (double)NAN;
    out->weight = weight * as_of_factor(auc, half_life);
}

/* ---- the calibration curve ---- */

/* Returns the middle of a bin, counted from the bin around 0. */
static float magnitude_of(size_t bin)
{
    if (bin == 0)
        return 0;
    if (bin == OUTSIDE_BIN)
        return logit_limit;
    if (bin >= EVEN_BEGIN && bin < LARGE_BEGIN)
        return ((float)(bin - EVEN_BEGIN + (1 << SMALL_BITS)) + 0.5f) / 1024.0f;
    bool small = bin < EVEN_BEGIN;
    uint32_t bits = (uint32_t)(small ? bin - SMALL_BEGIN : bin - LARGE_BEGIN), own = small ? SMALL_BITS : LARGE_BITS;
    bits += (uint32_t)((small ? AROUND_ZERO : LARGE) + 127) << own;
    return fr_bits_f32((2 * bits + 1) << (22 - own));
}

/* Wilson 1927, equation 4, with the quantile 1.96 of the normal distribution. For a rate of
 * 0 or 1 one bound is the rate itself, which rounding must not exclude. */
static void set_interval(struct fr_auc_bucket *bucket)
{
    const double z2 = 1.96 * 1.96, n = bucket->weight, p = bucket->observed;
    double middle = p + z2 / (2 * n), half = 1.96 * sqrt(p * (1 - p) / n + z2 / (4 * n * n));
    bucket->low = fmax(0, fmin(p, (middle - half) / (1 + z2 / n)));
    bucket->high = fmin(1, fmax(p, (middle + half) / (1 + z2 / n)));
}

FR_CLONES
static void predict(size_t n, const float *restrict logits, float *restrict predictions)
{
    for (size_t i = 0; i < n; i++)
        predictions[i] = fr_sigmoidf(logits[i]);
}

/* Adds up to BLOCK used bins from *at on, and moves *at to the next one. A bin belongs to one
 * bucket, that of the middle of its weight; *below is the weight below the bin. */
static void add_to_curve(const struct accumulator *a, size_t *at, double *below, struct fr_auc_bucket *sums)
{
    const double buckets_a_weight = FR_AUC_CURVE_BUCKETS / a->sums[SUM_WEIGHT];
    size_t bins[BLOCK], n = 0;
    float logits[BLOCK], predictions[BLOCK];
    for (; n < BLOCK && *at < a->n_bins; *at = next_used(a, *at + 1)) {
        logits[n] = *at < OUTSIDE_BIN ? -magnitude_of(OUTSIDE_BIN - *at) : magnitude_of(*at - OUTSIDE_BIN);
        bins[n++] = *at;
    }
    predict(n, logits, predictions);
    for (size_t i = 0; i < n; i++) {
        double positive = a->positive[bins[i]], weight = positive + a->negative[bins[i]];
        double share = (*below + 0.5 * weight) * buckets_a_weight;
        struct fr_auc_bucket *sum = &sums[share < FR_AUC_CURVE_BUCKETS ? (size_t)share : FR_AUC_CURVE_BUCKETS - 1];
        sum->predicted += weight * (double)predictions[i];
        sum->observed += positive;
        sum->weight += weight;
        *below += weight;
    }
}

void fr_auc_curve(const struct fr_auc *auc, int half_life, struct fr_auc_curve *out)
{
    const struct accumulator *a = accumulator_of(auc, half_life);
    struct fr_auc_bucket sums[FR_AUC_CURVE_BUCKETS] = {{0}};
    double below = 0, factor = as_of_factor(auc, half_life);
    *out = (struct fr_auc_curve){0};
    for (size_t at = next_used(a, 0); at < a->n_bins;)
        add_to_curve(a, &at, &below, sums);
    for (size_t b = 0; b < FR_AUC_CURVE_BUCKETS; b++) {
        struct fr_auc_bucket bucket = sums[b];
        bucket.predicted /= sums[b].weight;
        bucket.observed /= sums[b].weight;
        bucket.weight *= factor;
        if (!(bucket.weight > 0))
            continue;
        set_interval(&bucket);
        out->buckets[out->n++] = bucket;
    }
}

/* The image: u32 format, u32 scores, u32 n, n i64 half_life_ms, then n + 1 accumulators (half-lives
 * in order, lifetime) of i64 reference, 5 f64 sums, u32 non-empty bins; per bin u32 index, f64
 * positive, f64 negative. */

static void encode_accumulator(const struct accumulator *a, struct fr_buffer *out)
{
    fr_put_u64(out, (uint64_t)a->reference_ms);
    for (size_t i = 0; i < SUMS; i++)
        fr_put_f64(out, a->sums[i]);
    size_t at = out->size;
    uint32_t count = 0;
    fr_put_u32(out, 0);
    for (size_t i = next_used(a, 0); i < a->n_bins; i = next_used(a, i + 1))
        if (a->positive[i] != 0 || a->negative[i] != 0) {
            fr_put_u32(out, (uint32_t)i);
            fr_put_f64(out, a->positive[i]);
            fr_put_f64(out, a->negative[i]);
            count++;
        }
    memcpy(out->data + at, &count, sizeof(count));
}

void fr_auc_encode(const struct fr_auc *auc, struct fr_buffer *out)
{
    fr_put_u32(out, FR_AUC_FORMAT);
    fr_put_u32(out, auc->scores);
    fr_put_u32(out, auc->n_half_lives);
    for (uint32_t h = 0; h < auc->n_half_lives; h++)
        fr_put_u64(out, (uint64_t)auc->half_life_ms[h]);
    for (uint32_t h = 0; h < auc->n_half_lives; h++)
        encode_accumulator(&auc->decayed[h], out);
    encode_accumulator(&auc->lifetime, out);
}

/* `target` is NULL for a half-life that is no longer configured, which is skipped. */
static bool parse_accumulator(struct fr_reader *reader, size_t n_bins, struct accumulator *target)
{
    int64_t reference_ms = (int64_t)fr_take_u64(reader);
    double sums[SUMS];
    for (size_t i = 0; i < SUMS; i++)
        sums[i] = fr_take_f64(reader);
    uint32_t count = fr_take_u32(reader);
    if (reader->failed || count > n_bins || (reference_ms != INT64_MIN && !fr_decay_is_time(reference_ms)))
        return false;
    if (target) {
        accumulator_clear(target);
        target->reference_ms = reference_ms;
        memcpy(target->sums, sums, sizeof(sums));
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bin = fr_take_u32(reader);
        double positive = fr_take_f64(reader), negative = fr_take_f64(reader);
        if (reader->failed || bin >= n_bins || !(positive >= 0) || !(negative >= 0))
            return false;
        if (target) {
            target->positive[bin] = positive;
            target->negative[bin] = negative;
            use_bin(target, bin);
        }
    }
    return true;
}

static struct accumulator *find_accumulator(struct fr_auc *auc, int64_t half_life_ms)
{
    for (uint32_t h = 0; h < auc->n_half_lives; h++)
        if (auc->half_life_ms[h] == half_life_ms)
            return &auc->decayed[h];
    return NULL;
}

/* Parses everything before the accumulators. */
static bool parse_head(struct fr_reader *reader, struct fr_auc_options *options)
{
    if (fr_take_u32(reader) != FR_AUC_FORMAT)
        return false;
    uint32_t scores = fr_take_u32(reader);
    options->n_half_lives = fr_take_u32(reader);
    if (reader->failed || scores > FR_AUC_VALUES || options->n_half_lives > FR_AUC_HALF_LIVES_MAX)
        return false;
    options->scores = (enum fr_auc_scores)scores;
    for (uint32_t h = 0; h < options->n_half_lives; h++) {
        options->half_life_ms[h] = (int64_t)fr_take_u64(reader);
        if (options->half_life_ms[h] <= 0)
            return false;
    }
    return !reader->failed;
}

enum fr_status fr_auc_image_options(const uint8_t *bytes, size_t size, struct fr_auc_options *out)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    struct fr_auc_options options = {0};
    if (!parse_head(&reader, &options))
        return FR_E_CORRUPT;
    *out = options;
    return FR_OK;
}

enum fr_status fr_auc_parse(struct fr_auc *auc, const uint8_t *bytes, size_t size)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    struct fr_auc_options image = {0};
    if (!parse_head(&reader, &image) || image.scores != auc->scores)
        return FR_E_CORRUPT;
    uint32_t found = 0;
    for (uint32_t h = 0; h < auc->n_half_lives; h++)
        accumulator_clear(&auc->decayed[h]);
    for (uint32_t h = 0; h <= image.n_half_lives; h++) {
        bool lifetime = h == image.n_half_lives;
        struct accumulator *target = lifetime ? &auc->lifetime : find_accumulator(auc, image.half_life_ms[h]);
        found += target && !lifetime;
        if (!parse_accumulator(&reader, auc->lifetime.n_bins, target))
            return FR_E_CORRUPT;
    }
    if (reader.failed || reader.at != reader.end)
        return FR_E_CORRUPT;
    return found == auc->n_half_lives && image.n_half_lives == found ? FR_OK : FR_E_MISMATCH;
}
