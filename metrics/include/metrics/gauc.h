/* GAUC: the AUC within each group (a user, a query), averaged over groups with both classes,
 * weighted by their impressions: sum_g w_g AUC_g / sum_g w_g, w_g the sum of the group's sample
 * weights. It ignores differences between groups, which a ranking within a group cannot use. It
 * is kept over the lifetime, and exponentially decayed by event time at several half-lives, as
 * in auc.h.
 *
 * Source: Zhu et al., Optimized Cost per Click in Taobao Display Advertising (KDD 2017); Zhou et
 * al., Deep Interest Network (KDD 2018), section 6.3.
 *
 * Bounded: the lifetime and each half-life keep at most groups_max groups.
 * - Lifetime: the groups with the smallest hashes of their keys are kept, each whole, from its
 *   first sample on: a uniform sample of groups.
 * - Half-life: groups whose hash is below a bound are kept. If a place is needed, groups without a
 *   sample for more than FR_GAUC_IDLE half-lives are dropped. If there are none, the group with the
 *   largest hash is dropped, and this hash becomes the bound. The bound doubles, at most once a
 *   half-life, while groups that are not idle fill less than half of the places. Groups idle for
 *   FR_GAUC_FORGET half-lives (weight 2^-32) are dropped in any case.
 *
 * A group is kept as at most FR_GAUC_SPANS spans of scores: it is exact while it has no more
 * than that many distinct scores. With more scores, the order of pairs inside a span is
 * estimated without bias, and `error_max` bounds the error.
 *
 * Determinism: the state is a function of the samples in their order and their watermarks, not
 * of cuts or restarts. Thread: one owner. */
#ifndef FR_METRICS_GAUC_H
#define FR_METRICS_GAUC_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"
#include "metrics/auc.h"

enum { FR_GAUC_SPANS = 32, FR_GAUC_IDLE = 4, FR_GAUC_FORGET = 32 };

struct fr_gauc;

struct fr_gauc_options {
    /* names the grouping: seed and slot; another salt is another sample of other groups */
    uint64_t salt;
    uint32_t groups_max; /* at least 1; of the lifetime and of each half-life */
    uint32_t n_half_lives;
    int64_t half_life_ms[FR_AUC_HALF_LIVES_MAX];
};

struct fr_gauc *fr_gauc_new(const struct fr_gauc_options *options);
void fr_gauc_free(struct fr_gauc *gauc);

/* Advances time to a batch's watermark. INT64_MIN: there is no watermark yet; until there is
 * one, samples count for the lifetime only. */
void fr_gauc_advance(struct fr_gauc *gauc, int64_t watermark_ms);

struct fr_gauc_sample {
    uint64_t key;  /* of the group */
    float score;   /* not NaN */
    float label;   /* in [0, 1]; a fraction adds to both classes */
    double weight; /* > 0 */
    int64_t t_ms;
};
void fr_gauc_add(struct fr_gauc *gauc, const struct fr_gauc_sample *sample);

struct fr_gauc_result {
    double auc;      /* NaN: no group with both classes */
    uint64_t groups; /* kept ones with both classes */
    double weight;   /* of their samples */
    /* auc is within this of the exact value for the samples kept, whatever the scores; 0: exact */
    double error_max;
};
/* half_life < n_half_lives, or -1: lifetime. */
void fr_gauc_result(const struct fr_gauc *gauc, int half_life, struct fr_gauc_result *out);

/* The image is absolute: per group 9 to 33 bytes, per span 5 (one sample of weight 1) to 38.
 * Parse replaces the state.
 *
 * If groups_max is smaller than the image's, the groups with the smallest hashes are kept (for
 * the lifetime, the same groups that a run with this groups_max would have kept). If it is
 * larger, all groups of the image are kept; groups refused earlier stay out of the lifetime.
 *
 * FR_E_MISMATCH: the salt differs (the state is then empty), or half-lives differ (those that
 * are not in the image are empty); the caller logs it. FR_E_CORRUPT: the image does not parse or
 * has another format. */
void fr_gauc_encode(const struct fr_gauc *gauc, struct fr_buffer *out);
enum fr_status fr_gauc_parse(struct fr_gauc *gauc, const uint8_t *bytes, size_t size) FR_MUST_CHECK;
/* Reads the options with which an image can be read, for readers without a configuration. Errors:
 * FR_E_CORRUPT. */
enum fr_status fr_gauc_image_options(const uint8_t *bytes, size_t size, struct fr_gauc_options *out) FR_MUST_CHECK;

#endif
