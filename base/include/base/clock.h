/* Time from a function table, so that tests and simulations can control it. mono_ns never goes
 * backwards; it serves intervals and timers. wall_ms is Unix time, for logs and record timestamps.
 * Only one decision about data uses wall_ms: whether a live record comes from the future. */
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

/* Nanoseconds since boot, including the time for which the machine was suspended. Thread: any. */
uint64_t fr_clock_boot_ns(void);
/* Processor time of the process and of the calling thread. Thread: any. */
uint64_t fr_clock_process_ns(void);
uint64_t fr_clock_thread_ns(void);

/* The CLOCK_MONOTONIC time after_ns from now, at most a year ahead, for pthread's timed waits.
 * Thread: any. */
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
