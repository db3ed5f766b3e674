/* Counters, gauges and histograms with Prometheus text output. Registration at start; updates are
 * relaxed atomics from any thread; rendering from any thread. Names are `freshet_*`, base units,
 * `_total` on counters; label `model` is put on every series by the renderer. */
#ifndef FR_METRICS_REGISTRY_H
#define FR_METRICS_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

struct fr_registry;
struct fr_metric;

struct fr_registry *fr_registry_new(const char *model);
void fr_registry_free(struct fr_registry *registry);

/* labels: `table="user",reason="idle"` or NULL; the same name may be registered with several label
 * sets (one HELP/TYPE). Owned by the registry. */
struct fr_metric *fr_counter(struct fr_registry *registry, const char *name, const char *labels, const char *help);
struct fr_metric *fr_gauge(struct fr_registry *registry, const char *name, const char *labels, const char *help);
/* Upper bounds ascending; +Inf is added. At most 32 bounds. */
struct fr_metric *fr_histogram(struct fr_registry *registry, const char *name, const char *labels, const char *help,
                               const double *bounds, size_t n_bounds);

void fr_metric_add(struct fr_metric *counter, uint64_t amount);
void fr_metric_set_total(struct fr_metric *counter, uint64_t total); /* counters kept elsewhere */
void fr_metric_set(struct fr_metric *gauge, double value);
void fr_metric_observe(struct fr_metric *histogram, double value);
void fr_metric_observe_many(struct fr_metric *histogram, double value, uint64_t count);
/* Quantile estimate by linear interpolation inside the bucket; NaN when empty. */
double fr_metric_quantile(const struct fr_metric *histogram, double q);

/* text format 0.0.4 */
void fr_registry_render(struct fr_registry *registry, struct fr_buffer *out);

#endif
