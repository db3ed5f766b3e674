/* Series of this process: processor time, memory, descriptors, start. They are read from /proc once
 * a second at most; what cannot be read is NaN.
 *
 * Thread: one. */
#ifndef FR_METRICS_PROCESS_SERIES_H
#define FR_METRICS_PROCESS_SERIES_H

#include <stdbool.h>

#include "base/clock.h"
#include "metrics/registry.h"

struct fr_process_series { /* zeroed before the first call */
    uint64_t looked_ns;
    double start_seconds; /* Unix time */
    double resident_bytes;
};

/* False when the last call that set them is less than a second ago. */
bool fr_series_of_process(struct fr_process_series *state, struct fr_registry *registry, const struct fr_clock *clock);

#endif
