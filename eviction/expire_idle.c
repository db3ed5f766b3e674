/* Idle expiry: a row goes when no batch trained it for longer than `idle_ms` of event time.
 *
 * The rank is the negative idle time. As a double it is exact up to 2^53 ms (285,000 years); beyond
 * that both sides round the same way and no configurable idle time is near.
 *
 * Thread: any; pure functions. It does not look at weights or counters, or read a clock (the
 * watermark is an argument). */
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
                                     .rank = idle_rank,
                                     .threshold = -(double)config->idle_ms,
                                     .config = config};
}
