/* Idle expiry: a row goes when no batch trained it for longer than `idle_ms` of event time.
 *
 * Thread: any; pure functions. It does not look at weights or counters, or read a clock (the
 * watermark is an argument). */
#include "eviction/eviction.h"

#include "idle.h"

/* `why` of the delta format (DESIGN section 7). */
enum { WHY_IDLE = 1 };

static bool idle_expires(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms)
{
    const struct fr_expire_idle *idle = config;
    return idle->idle_ms > 0 && fr_idle_longer(facts->seen_ms, watermark_ms, idle->idle_ms);
}

struct fr_expiry_policy fr_expire_idle_policy(const struct fr_expire_idle *config)
{
    return (struct fr_expiry_policy){.name = "idle", .reason = WHY_IDLE, .expires = idle_expires, .config = config};
}
