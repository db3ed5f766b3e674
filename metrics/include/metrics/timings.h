/* How long things take and how large they are, as histograms. A new one is a line of the list.
 *
 * Thread: any may observe. */
#ifndef FR_METRICS_TIMINGS_H
#define FR_METRICS_TIMINGS_H

#include "metrics/registry.h"

/* enumerator, bounds (timings.c), series, help */
#define FR_TIMINGS(X)                                                                                                  \
    X(BATCH, samples, "freshet_batch_samples", "Samples of the batches that were trained.")                            \
    X(STEP, seconds, "freshet_step_duration_seconds", "How long one batch took the owner loop, plan to update.")       \
    X(CUT, seconds, "freshet_cut_duration_seconds", "How long a cut held up training.")                                \
    X(APPEND, seconds, "freshet_append_duration_seconds",                                                              \
      "How long the journal took to write and sync an epoch and its high-water mark.")                                 \
    X(DURABLE, seconds, "freshet_durable_delay_seconds", "Time from the cut of an epoch until it was durable.")        \
    X(PUBLISH, seconds, "freshet_publish_delay_seconds",                                                               \
      "Time from an epoch with samples being durable until the delta topic had acknowledged it.")                      \
    X(FOLD, seconds, "freshet_fold_duration_seconds", "How long a fold of the journal into the cold store took.")

enum fr_timing {
#define FR_TIMING_ENUMERATOR(name, bounds, series, help) FR_TIMING_##name,
    FR_TIMINGS(FR_TIMING_ENUMERATOR)
#undef FR_TIMING_ENUMERATOR
        FR_TIMING_COUNT
};

struct fr_timings {
    struct fr_metric *histograms[FR_TIMING_COUNT]; /* the registry's */
};

void fr_timings_init(struct fr_timings *timings, struct fr_registry *registry);
/* timings NULL: nobody wants to know. */
void fr_timings_observe(const struct fr_timings *timings, enum fr_timing timing, double value);

#endif
