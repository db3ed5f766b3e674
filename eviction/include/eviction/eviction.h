/* Gate and expiry policies (docs/architecture.md, "Admission and expiry"). Each constructor stands
 * in a file of its name. The configs are the caller's memory and must outlive the policy. */
#ifndef FR_EVICTION_EVICTION_H
#define FR_EVICTION_EVICTION_H

#include "policy/policy.h"

struct fr_gate_count {
    uint32_t count;  /* admit at this many occurrences; >= 1 */
    int64_t idle_ms; /* forget pending keys idle longer; 0: never */
};
struct fr_gate_policy fr_gate_count_policy(const struct fr_gate_count *config);

struct fr_gate_sketch {
    uint32_t min;         /* admit at this many occurrences; 1 .. FR_GATE_SKETCH_MAX */
    int64_t half_life_ms; /* in event time; 0: counts are kept for ever */
    uint64_t bytes;       /* of counters, from above */
};
struct fr_gate_policy fr_gate_sketch_policy(const struct fr_gate_sketch *config);

struct fr_gate_probability {
    float probability; /* of one occurrence to admit its key; in (0, 1] */
};
struct fr_gate_policy fr_gate_probability_policy(const struct fr_gate_probability *config);

struct fr_expire_idle {
    int64_t idle_ms; /* > 0 */
};
struct fr_expiry_policy fr_expire_idle_policy(const struct fr_expire_idle *config);

struct fr_expire_weak {
    float norm; /* rows with a smaller norm go; > 0 */
};
struct fr_expiry_policy fr_expire_weak_policy(const struct fr_expire_weak *config);

struct fr_expire_score {
    double show_weight, click_weight; /* score = their sum over shows and clicks */
    int64_t half_life_ms;             /* of event time since the row was seen; 0: no decay */
    double min;                       /* rows with a smaller score go; > 0 */
};
struct fr_expiry_policy fr_expire_score_policy(const struct fr_expire_score *config);

struct fr_expire_capacity {
    uint64_t rows_max; /* > 0 */
};
struct fr_expiry_policy fr_expire_capacity_policy(const struct fr_expire_capacity *config);

#endif
