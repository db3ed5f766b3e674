/* A clock that moves only when a test advances it. It is in the caller's memory and belongs to one
 * thread. */
#ifndef FR_TESTS_FAKE_CLOCK_H
#define FR_TESTS_FAKE_CLOCK_H

#include "base/check.h"
#include "base/clock.h"

struct fr_clock_fake {
    struct fr_clock clock;
    uint64_t mono_ns;
    int64_t wall_ms;
};

static inline uint64_t fr_fake_mono_ns(void *self)
{
    const struct fr_clock_fake *fake = self;
    return fake->mono_ns;
}

static inline int64_t fr_fake_wall_ms(void *self)
{
    const struct fr_clock_fake *fake = self;
    return fake->wall_ms;
}

static inline void fr_clock_fake_init(struct fr_clock_fake *fake, int64_t wall_ms)
{
    fake->clock = (struct fr_clock){.mono_ns = fr_fake_mono_ns, .wall_ms = fr_fake_wall_ms, .self = fake};
    /* Not 0: for several timers 0 means "never", and a real monotonic clock is never 0 either. */
    fake->mono_ns = 1000000000u;
    fake->wall_ms = wall_ms;
}

static inline void fr_clock_fake_advance_ms(struct fr_clock_fake *fake, int64_t ms)
{
    FR_CHECK(ms >= 0);
    fake->mono_ns += (uint64_t)ms * 1000000u;
    fake->wall_ms += ms;
}

#endif
