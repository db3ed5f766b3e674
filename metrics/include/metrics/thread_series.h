/* Series of this process's threads: processor time by the names the daemon gives its threads, those
 * of the pool together. They are read once a second at most and never fall.
 *
 * Thread: one. */
#ifndef FR_METRICS_THREAD_SERIES_H
#define FR_METRICS_THREAD_SERIES_H

#include "base/clock.h"
#include "metrics/registry.h"

enum { FR_TIMED_THREADS = 11 };

struct fr_thread_series { /* zeroed before the first call */
    uint64_t looked_ns, other_ns, thread_ns[FR_TIMED_THREADS];
};

void fr_series_of_threads(struct fr_thread_series *state, struct fr_registry *registry, const struct fr_clock *clock);

#endif
