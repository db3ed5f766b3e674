/* GAUC: the AUC within each group (a user, a query), averaged over groups with both classes, weighted by their
 * impressions: sum_g w_g AUC_g / sum_g w_g, w_g the sum of the group's sample weights. It leaves out what separates
 * groups from each other, which a ranking within a group cannot use.
 * Source: Zhu et al., Optimized Cost per Click in Taobao Display Advertising (KDD 2017); Zhou et al., Deep Interest
 * Network (KDD 2018), section 6.3.
 *
 * Bounded: of all groups those groups_max with the smallest hash of their key are kept, each whole, from its first
 * sample on: a uniform sample of groups. A group is kept as at most FR_GAUC_SPANS spans of scores: exact while it has
 * no more than that many distinct scores; beyond it the two neighbouring spans of least weight become one, pairs inside
 * a span count one half, and `error_max` bounds what that can make. Determinism: which groups are kept depends on the
 * set of keys seen only, a group's state on its own samples in their order; neither on cuts or restarts. */
#ifndef FR_METRICS_GAUC_H
#define FR_METRICS_GAUC_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

enum { FR_GAUC_SPANS = 32 };

struct fr_gauc;

struct fr_gauc_options {
    uint64_t salt;       /* names the grouping: seed and slot; another salt is another sample of other groups */
    uint32_t groups_max; /* at least 1 */
};

struct fr_gauc *fr_gauc_new(const struct fr_gauc_options *options);
void fr_gauc_free(struct fr_gauc *gauc);

/* label in [0, 1] (a fraction adds to both classes), weight > 0, score not NaN. */
void fr_gauc_add(struct fr_gauc *gauc, uint64_t key, float score, float label, double weight);

struct fr_gauc_result {
    double auc;       /* NaN: no group with both classes */
    uint64_t groups;  /* kept ones with both classes */
    double weight;    /* of their samples */
    double error_max; /* auc is within this of the exact value for the kept groups; 0 when all are exact */
};
void fr_gauc_result(const struct fr_gauc *gauc, struct fr_gauc_result *out);

/* Absolute image: per group 9 bytes, per span 5 bytes (one sample of weight 1) to 25. Parse replaces the state. Another
 * groups_max: smaller keeps what a run with it would have kept; larger goes on with the groups that are there, those
 * refused before stay out. FR_E_MISMATCH: another salt; the state is empty then (logged by the caller). FR_E_CORRUPT.
 */
void fr_gauc_encode(const struct fr_gauc *gauc, struct fr_buffer *out);
enum fr_status fr_gauc_parse(struct fr_gauc *gauc, const uint8_t *bytes, size_t size) FR_MUST_CHECK;
/* Options with which an image can be read: for readers without a configuration. FR_E_CORRUPT. */
enum fr_status fr_gauc_image_options(const uint8_t *bytes, size_t size, struct fr_gauc_options *out) FR_MUST_CHECK;

#endif
