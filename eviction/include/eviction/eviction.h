/* Gate and expiry policies (DESIGN section 5): one admits by exact count, one expires by idle time.
 * The configs are the caller's memory and must outlive the policy. */
#ifndef FR_EVICTION_EVICTION_H
#define FR_EVICTION_EVICTION_H

#include "policy/policy.h"

struct fr_gate_count {
    uint32_t count;  /* admit at this many occurrences; >= 1 */
    int64_t idle_ms; /* forget pending keys idle longer; 0: never */
};
struct fr_gate_policy fr_gate_count_policy(const struct fr_gate_count *config);

struct fr_expire_idle {
    int64_t idle_ms; /* > 0 */
};
struct fr_expiry_policy fr_expire_idle_policy(const struct fr_expire_idle *config);

#endif
