/* Gate and expiry policies (docs/architecture.md, "Admission and expiry"). Each constructor is in
 * the file named after its policy. The configurations belong to the caller and must outlive the
 * policy. */
#ifndef FR_EVICTION_EVICTION_H
#define FR_EVICTION_EVICTION_H

#include "policy/policy.h"

struct fr_gate_count {
    uint32_t count;  /* occurrences at which a key is admitted; >= 1 */
    int64_t idle_ms; /* a pending key that was idle for longer is forgotten; 0: never */
};
struct fr_gate_policy fr_gate_count_policy(const struct fr_gate_count *config);

struct fr_gate_sketch {
    uint32_t min;         /* occurrences at which a key is admitted; 1 .. FR_GATE_SKETCH_MAX */
    int64_t half_life_ms; /* event time after which counts are halved; 0: never */
    uint64_t bytes;       /* most bytes that the counters may take */
};
struct fr_gate_policy fr_gate_sketch_policy(const struct fr_gate_sketch *config);

struct fr_gate_probability {
    float probability; /* that one occurrence admits its key; in (0, 1] */
};
struct fr_gate_policy fr_gate_probability_policy(const struct fr_gate_probability *config);

struct fr_expire_idle {
    int64_t idle_ms; /* a row that was idle for longer goes; > 0 */
};
struct fr_expiry_policy fr_expire_idle_policy(const struct fr_expire_idle *config);

struct fr_expire_weak {
    float norm; /* a row with a smaller norm goes; > 0 */
};
struct fr_expiry_policy fr_expire_weak_policy(const struct fr_expire_weak *config);

struct fr_expire_score {
    double show_weight, click_weight; /* score = show_weight * shows + click_weight * clicks */
    /* event time since the row was last trained that halves its score; 0: no decay */
    int64_t half_life_ms;
    double min; /* a row with a smaller score goes; > 0 */
};
struct fr_expiry_policy fr_expire_score_policy(const struct fr_expire_score *config);

struct fr_expire_capacity {
    uint64_t rows_max; /* rows that may stay; > 0 */
};
struct fr_expiry_policy fr_expire_capacity_policy(const struct fr_expire_capacity *config);

#endif
