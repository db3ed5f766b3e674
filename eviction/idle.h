/* Idle time in event time, for gate and expiry alike. */
#ifndef FR_EVICTION_IDLE_H
#define FR_EVICTION_IDLE_H

#include <stdbool.h>
#include <stdint.h>

/* More than idle_ms lie between seen and watermark. A watermark before seen means not idle; a
 * distance that does not fit 64 bits (a hostile event time) is longer than any idle time. */
static inline bool fr_idle_longer(int64_t seen_ms, int64_t watermark_ms, int64_t idle_ms)
{
    if (watermark_ms <= seen_ms)
        return false;
    int64_t distance;
    if (__builtin_sub_overflow(watermark_ms, seen_ms, &distance))
        return true;
    return distance > idle_ms;
}

#endif
