/* Freshness: the age of events when their batch was trained, when its epoch was durable, and
 * when the delta topic had acknowledged the epoch. There is one observation per trained sample
 * and stage: the wall time of the stage minus the event time. A second series subtracts the
 * record's Kafka timestamp instead, which is also meaningful when old events are replayed.
 *
 * Between the stages an epoch carries a histogram of its samples' event times (buckets of at
 * most 1/8 of their distance from the epoch's first batch), so the later stages are exact to
 * that and to the bounds of the registry's histograms. Ages below zero (clocks that disagree)
 * count as zero. Freshness is never part of a state; it starts empty with each process. Its
 * series are freshet_freshness_seconds{stage}, freshet_arrival_age_seconds{stage} and
 * freshet_ingest_lag_seconds.
 *
 * Thread: the owner loop calls trained and cut, the durable thread durable, the publisher thread
 * published. */
#ifndef FR_METRICS_FRESHNESS_H
#define FR_METRICS_FRESHNESS_H

#include <stddef.h>
#include <stdint.h>

#include "metrics/timings.h"

struct fr_freshness;

/* Both are borrowed; timings may be NULL. */
struct fr_freshness *fr_freshness_new(struct fr_registry *registry, const struct fr_timings *timings);
void fr_freshness_free(struct fr_freshness *freshness);

/* Records that a batch was trained at wall_ms, with the event times of its samples. Samples
 * whose skip[i] is not 0 do not count. */
void fr_freshness_trained(struct fr_freshness *freshness, const int64_t *t_ms, const uint8_t *skip, size_t count,
                          int64_t wall_ms);
/* Records the Kafka timestamp of a record and how many of its samples were trained at wall_ms. */
void fr_freshness_arrived(struct fr_freshness *freshness, int64_t kafka_ms, uint32_t count, int64_t wall_ms);
/* Records the newest Kafka timestamp of a trained batch: one observation a batch. */
void fr_freshness_lag(struct fr_freshness *freshness, int64_t kafka_ms, int64_t wall_ms);
/* Assigns the samples trained since the last cut to epoch `epoch`; numbers ascend. */
void fr_freshness_cut(struct fr_freshness *freshness, uint64_t epoch);
/* Both record that epochs up to `epoch` have reached the stage. A repeated call changes nothing. */
void fr_freshness_durable(struct fr_freshness *freshness, uint64_t epoch, int64_t wall_ms);
void fr_freshness_published(struct fr_freshness *freshness, uint64_t epoch, int64_t wall_ms);

enum fr_freshness_series {
    FR_FRESH_TRAINED,
    FR_FRESH_DURABLE,
    FR_FRESH_PUBLISHED,
    FR_FRESH_ARRIVAL_TRAINED,
    FR_FRESH_ARRIVAL_DURABLE,
    FR_FRESH_ARRIVAL_PUBLISHED,
    FR_FRESH_LAG,
    FR_FRESH_SERIES
};
/* Returns quantile q in seconds over all observations of this process, within a sixteenth; NaN
 * if there are none. Any thread may call. */
double fr_freshness_quantile(const struct fr_freshness *freshness, enum fr_freshness_series series, double q);

/* Quantiles of the last 5 to 10 seconds, for charts: the observations since a moment that
 * fr_freshness_window_move keeps that far in the past. One thread. */
struct fr_freshness_window;
struct fr_freshness_window *fr_freshness_window_new(void);
void fr_freshness_window_free(struct fr_freshness_window *window);
/* Call it at least once a second, or the window is longer. */
void fr_freshness_window_move(struct fr_freshness_window *window, const struct fr_freshness *freshness,
                              uint64_t now_ns);
/* As fr_freshness_quantile; NaN if nothing reached the stage within the window. */
double fr_freshness_window_quantile(const struct fr_freshness_window *window, const struct fr_freshness *freshness,
                                    enum fr_freshness_series series, double q);

#endif
