/* Idle expiry: a row goes when no batch has trained it for longer than `idle_ms` of event time.
 *
 * The rank is the negative idle time. As a double it is exact up to 2^53 ms (285,000 years). Beyond
 * that, rank and threshold are rounded in the same way, and no idle time that can be configured is
 * that long.
 *
 * Thread: any; pure functions. Weights and counters are not read; the time is the watermark, never
 * a clock. */
#include "eviction/eviction.h"

#include "idle.h"

static double idle_rank(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms)
{
    (void)config;
    return -(double)fr_idle_time(facts->seen_ms, watermark_ms);
}

struct fr_expiry_policy fr_expire_idle_policy(const struct fr_expire_idle *config)
{
    return (struct fr_expiry_policy){.name = "idle",
                                     .reason = FR_ABSENT_IDLE,
                                     .rank = config->idle_ms > 0 ? idle_rank : NULL,
                                     .threshold = -(double)config->idle_ms,
                                     .config = config};
}
