/* Streaming AUC, logloss, calibration and positive rate of one task's scores: exponentially
 * decayed by event time at several half-lives, and over the lifetime.
 *
 * Scores fall into bins of the logit, of equal width in the usual range and of growing width
 * below and above. AUC is the Mann-Whitney statistic over binned weights; a tie counts one half.
 *
 * A sample at event time t has weight w * 2^(-(as_of - min(t, wm)) / half_life). Weights are
 * kept relative to a reference time that moves in whole steps, so that the state is a function
 * of the samples alone (P10), not of cuts or restarts. The owner loop adds samples in sample
 * order. State is f64.
 *
 * Accuracy: AUC is within 1e-3 of a brute-force weighted AUC at any scale of the logits from
 * 2^-20 to 2^20, also for scores far narrower than 1 in the logit (unit test). `outside` is the
 * share of a class whose scores lie beyond that range. Above FR_AUC_OUTSIDE_MAX AUC is
 * undefined; below, the resulting error is at most 5e-5.
 *
 * The caller decides which samples count, and with what weight (metrics/task.h).
 *
 * Memory: 1.1 MB a half-life, and as much for the lifetime. */
#ifndef FR_METRICS_AUC_H
#define FR_METRICS_AUC_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

enum { FR_AUC_HALF_LIVES_MAX = 8 };
#define FR_AUC_OUTSIDE_MAX 0.01

enum fr_auc_scores {
    FR_AUC_LOGITS,
    FR_AUC_PROBABILITIES, /* in [0, 1]; for logloss cut to logits in [-16, 16] */
    FR_AUC_VALUES,        /* of a regression: no AUC, no logloss, but mse; labels are any number */
};

struct fr_auc;

struct fr_auc_options {
    enum fr_auc_scores scores;
    uint32_t n_half_lives;
    int64_t half_life_ms[FR_AUC_HALF_LIVES_MAX];
};

struct fr_auc *fr_auc_new(const struct fr_auc_options *options);
void fr_auc_free(struct fr_auc *auc);

struct fr_auc_samples {
    size_t count;
    const float *scores; /* not NaN where weight is > 0; as options.scores says */
    /* NaN: skipped; in [0,1] unless FR_AUC_VALUES; a fractional label adds to both classes */
    const float *labels;
    const double *weights; /* 0: skipped; NULL: all 1 */
    const int64_t *t_ms;
    int64_t watermark_ms;
};
void fr_auc_add(struct fr_auc *auc, const struct fr_auc_samples *samples);

/* Grows whenever what fr_auc_encode writes changes. */
uint64_t fr_auc_changes(const struct fr_auc *auc);
/* Returns the watermark of the last batch: the time that decayed weights are as of. INT64_MIN means
 * none yet. */
int64_t fr_auc_as_of_ms(const struct fr_auc *auc);
void fr_auc_set_as_of_ms(struct fr_auc *auc, int64_t as_of_ms);

struct fr_auc_result { /* NaN: undefined */
    double auc, logloss, calibration, positive_rate, prediction_mean, weight;
    /* share of positives or of negatives, whichever is larger, with |logit| >= 2^20; 0 when
     * empty */
    double outside;
    double mse; /* FR_AUC_VALUES only, whose positive_rate is the mean label */
};
/* half_life < n_half_lives, or -1: lifetime. */
void fr_auc_result(const struct fr_auc *auc, int half_life, struct fr_auc_result *out);

/* The calibration curve: predictions against labels, in buckets of equal weight by the score (the
 * deciles of Hosmer & Lemeshow 1980). */
enum { FR_AUC_CURVE_BUCKETS = 10 };
struct fr_auc_bucket {
    /* mean prediction, by the middles of the bins: 1e-3 of itself at most from a logit of -16 on */
    double predicted;
    double observed; /* mean label */
    /* 95 % interval of `observed` (Wilson 1927). The decayed weight stands for the number of
     * samples, so the interval is rather too wide than too narrow if samples weigh 1. */
    double low, high;
    double weight;
};
struct fr_auc_curve {
    uint32_t n; /* buckets with samples; fewer than all where many samples have one score */
    struct fr_auc_bucket buckets[FR_AUC_CURVE_BUCKETS]; /* `predicted` never falls */
};
/* half_life as above. FR_AUC_VALUES: no buckets. */
void fr_auc_curve(const struct fr_auc *auc, int half_life, struct fr_auc_curve *out);

/* The image is absolute and sparse (non-empty bins only). The image does not contain the as-of
 * time, which changes with every batch; parse replaces the whole state except that time.
 *
 * FR_E_MISMATCH: half-lives differ; the lifetime part is restored, and decayed parts of unknown
 * half-lives start empty (the caller logs it). FR_E_CORRUPT: the image does not parse, or has
 * another format or kind of scores. */
void fr_auc_encode(const struct fr_auc *auc, struct fr_buffer *out);
enum fr_status fr_auc_parse(struct fr_auc *auc, const uint8_t *bytes, size_t size) FR_MUST_CHECK;
/* Reads the options an image was made with, for readers without a configuration. Errors:
 * FR_E_CORRUPT. */
enum fr_status fr_auc_image_options(const uint8_t *bytes, size_t size, struct fr_auc_options *out) FR_MUST_CHECK;

#endif
