/* Time behind a function table, so that tests and simulation drive it. mono_ns never goes back
 * (intervals, timers); wall_ms is Unix time (logs, record timestamps; of decisions about data only
 * the one that a live record comes from the future). */
#ifndef FR_BASE_CLOCK_H
#define FR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

struct fr_clock {
    uint64_t (*mono_ns)(void *self);
    int64_t (*wall_ms)(void *self);
    void *self;
};

const struct fr_clock *fr_clock_system(void);

/* A fake clock lies in the caller's memory and is advanced by hand, by one thread. */
struct fr_clock_fake {
    struct fr_clock clock;
    uint64_t mono_ns;
    int64_t wall_ms;
};
void fr_clock_fake_init(struct fr_clock_fake *fake, int64_t wall_ms);
void fr_clock_fake_advance_ms(struct fr_clock_fake *fake, int64_t ms);

/* Counts while the machine is suspended, too. Any thread. */
uint64_t fr_clock_boot_ns(void);
/* Processor time of the process, and of the calling thread. Any thread. */
uint64_t fr_clock_process_ns(void);
uint64_t fr_clock_thread_ns(void);

/* The instant of CLOCK_MONOTONIC that is so far from now, for waits of pthread; a year at most. Any
 * thread. */
struct timespec fr_clock_deadline(uint64_t after_ns);

static inline uint64_t fr_mono_ns(const struct fr_clock *clock)
{
    return clock->mono_ns(clock->self);
}

static inline int64_t fr_wall_ms(const struct fr_clock *clock)
{
    return clock->wall_ms(clock->self);
}

#endif
