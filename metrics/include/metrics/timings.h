/* How long things take and how large they are, as histograms. A new one is a line of the
 * list here and a row of metrics/series.h.
 *
 * Thread: any may observe. */
#ifndef FR_METRICS_TIMINGS_H
#define FR_METRICS_TIMINGS_H

#include "metrics/series.h"

/* enumerator, bounds (timings.c), series */
#define FR_TIMINGS(X)                                                                                                  \
    X(BATCH, samples, BATCH_SAMPLES)                                                                                   \
    X(STEP, seconds, STEP_DURATION_SECONDS)                                                                            \
    X(CUT, seconds, CUT_DURATION_SECONDS)                                                                              \
    X(APPEND, seconds, APPEND_DURATION_SECONDS)                                                                        \
    X(DURABLE, seconds, DURABLE_DELAY_SECONDS)                                                                         \
    X(PUBLISH, seconds, PUBLISH_DELAY_SECONDS)                                                                         \
    X(FOLD, seconds, FOLD_DURATION_SECONDS)

enum fr_timing {
#define FR_TIMING_ENUMERATOR(name, bounds, series) FR_TIMING_##name,
    FR_TIMINGS(FR_TIMING_ENUMERATOR)
#undef FR_TIMING_ENUMERATOR
        FR_TIMING_COUNT
};

struct fr_timings {
    struct fr_metric *histograms[FR_TIMING_COUNT]; /* the registry's */
};

void fr_timings_init(struct fr_timings *timings, struct fr_registry *registry);
/* timings NULL: does nothing. */
void fr_timings_observe(const struct fr_timings *timings, enum fr_timing timing, double value);

#endif
