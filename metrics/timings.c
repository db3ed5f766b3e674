/* Histograms of durations and sizes (contract: metrics/timings.h). All durations have the same
 * bounds, so that a dashboard can lay them on one axis: from half a millisecond, below which
 * nothing here matters, to the minutes of a fold on a disk that is too slow. */
#include "metrics/timings.h"

#include "base/check.h"

static const double seconds[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                 0.5,    1,     2,     5,     10,   30,   60,   300};
static const double samples[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};

void fr_timings_init(struct fr_timings *timings, struct fr_registry *registry)
{
#define REGISTER(name, bounds, series)                                                                                 \
    timings->histograms[FR_TIMING_##name] =                                                                            \
        fr_series_histogram(registry, FR_SERIES_##series, NULL, bounds, FR_ARRAY_LEN(bounds));
    FR_TIMINGS(REGISTER)
#undef REGISTER
}

void fr_timings_observe(const struct fr_timings *timings, enum fr_timing timing, double value)
{
    if (timings)
        fr_metric_observe_many(timings->histograms[timing], value, 1);
}
