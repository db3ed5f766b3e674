/* Counters, gauges and histograms with Prometheus text output. Asking for a series registers it, or
 * finds it again. Updates are relaxed atomics from any thread, and any thread may render.
 *
 * Names are `freshet_*` (`process_*` where Prometheus has a name of its own), in base units, with
 * `_total` on counters and `_timestamp_seconds` on times; a help is a sentence that can be read
 * alone. The renderer puts label `model` on every series. A counter never falls while the model
 * lives, except to zero with a new process: Prometheus takes any fall for a new beginning. */
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

/* labels: `table="user",reason="idle"` or NULL; a name may have several label sets (one HELP/TYPE,
 * of the first). The three functions set a number that is kept elsewhere, and take the lock of the
 * list. */
void fr_counter(struct fr_registry *registry, const char *name, const char *labels, const char *help, uint64_t total);
void fr_counter_seconds(struct fr_registry *registry, const char *name, const char *labels, const char *help,
                        double total);
void fr_gauge(struct fr_registry *registry, const char *name, const char *labels, const char *help, double value);
/* Upper bounds ascend, +Inf is added, and there are at most 32. The registry owns the series;
 * observing takes no lock. */
struct fr_metric *fr_histogram(struct fr_registry *registry, const char *name, const char *labels, const char *help,
                               const double *bounds, size_t n_bounds);

void fr_metric_observe_many(struct fr_metric *histogram, double value, uint64_t count);
/* Appends `name="value"` to labels, a text of at most `size` bytes with its end; a value from
 * outside is escaped. */
void fr_metric_label(char *labels, size_t size, const char *name, const char *value);

/* text format 0.0.4 */
void fr_registry_render(struct fr_registry *registry, struct fr_buffer *out);

#endif
