/* The system's clocks. mono_ns reads CLOCK_MONOTONIC, which is never set back, only slewed; wall_ms
 * reads CLOCK_REALTIME.
 *
 * Thread: any. */
#include "base/clock.h"

#include <stddef.h>
#include <time.h>

#include "base/check.h"

/* practically for ever, and far from an overflow */
#define YEAR_NS (366 * UINT64_C(86400000000000))

static uint64_t clock_ns(clockid_t id)
{
    struct timespec now;
    int rc = clock_gettime(id, &now);
    FR_CHECK(rc == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t fr_clock_boot_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

uint64_t fr_clock_process_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t fr_clock_thread_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

struct timespec fr_clock_deadline(uint64_t after_ns)
{
    if (after_ns > YEAR_NS)
        after_ns = YEAR_NS;
    uint64_t at = clock_ns(CLOCK_MONOTONIC) + after_ns;
    return (struct timespec){.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
}

static uint64_t system_mono_ns(void *self)
{
    (void)self;
    return clock_ns(CLOCK_MONOTONIC);
}

static int64_t system_wall_ms(void *self)
{
    (void)self;
    struct timespec now;
    int rc = clock_gettime(CLOCK_REALTIME, &now);
    FR_CHECK(rc == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const struct fr_clock *fr_clock_system(void)
{
    static const struct fr_clock clock = {.mono_ns = system_mono_ns, .wall_ms = system_wall_ms, .self = NULL};
    return &clock;
}
