/* The system's clocks and a fake clock, with the same function table. mono_ns reads
 * CLOCK_MONOTONIC, which is never set back, only slewed; wall_ms reads CLOCK_REALTIME.
 *
 * Thread: any for the system clock; a fake clock belongs to one test thread. */
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

static uint64_t fake_mono_ns(void *self)
{
    const struct fr_clock_fake *fake = self;
    return fake->mono_ns;
}

static int64_t fake_wall_ms(void *self)
{
    const struct fr_clock_fake *fake = self;
    return fake->wall_ms;
}

void fr_clock_fake_init(struct fr_clock_fake *fake, int64_t wall_ms)
{
    fake->clock = (struct fr_clock){.mono_ns = fake_mono_ns, .wall_ms = fake_wall_ms, .self = fake};
    /* Not 0: for several timers 0 means "never", and a real monotonic clock is never 0 either. */
    fake->mono_ns = 1000000000u;
    fake->wall_ms = wall_ms;
}

void fr_clock_fake_advance_ms(struct fr_clock_fake *fake, int64_t ms)
{
    FR_CHECK(ms >= 0);
    fake->mono_ns += (uint64_t)ms * 1000000u;
    fake->wall_ms += ms;
}
