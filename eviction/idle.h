/* Idle time in event time, for gates and expiry. */
#ifndef FR_EVICTION_IDLE_H
#define FR_EVICTION_IDLE_H

#include <stdbool.h>
#include <stdint.h>

/* The time from seen to the watermark, 0 if the watermark is before seen. The result fits an
 * unsigned number for all inputs: a hostile event time may put the two 2^64 apart. */
static inline uint64_t fr_idle_time(int64_t seen_ms, int64_t watermark_ms)
{
    return watermark_ms <= seen_ms ? 0 : (uint64_t)watermark_ms - (uint64_t)seen_ms;
}

static inline bool fr_idle_longer(int64_t seen_ms, int64_t watermark_ms, int64_t idle_ms)
{
    return fr_idle_time(seen_ms, watermark_ms) > (uint64_t)idle_ms;
}

#endif
