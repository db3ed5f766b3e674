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

/* fr_expire_<rule>_policy for each rule; the one of parameters that are zeros has no rank, and no
 * table has it. The name cannot be in parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_EXPIRY_POLICY(name, text, number, rule)                                                                     \
    struct fr_expiry_policy fr_expire_##rule##_policy(const struct fr_expire_##rule *config);
FR_EXPIRIES(FR_EXPIRY_POLICY)

#endif
