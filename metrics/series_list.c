/* The rows of metrics/series.h, and setting them in a registry. */
#include "metrics/series.h"

#include "base/check.h"

const struct fr_series_row fr_series_rows[FR_SERIES_COUNT] = {
#define ROW(id, kind, name, help) {FR_SERIES_##kind, name, help},
    FR_SERIES(ROW)
#undef ROW
};

void fr_series_count(struct fr_registry *registry, enum fr_series series, const char *labels, uint64_t total)
{
    const struct fr_series_row *row = &fr_series_rows[series];
    FR_CHECK(row->kind == FR_SERIES_COUNTER);
    fr_counter(registry, row->name, labels, row->help, total);
}

void fr_series_set(struct fr_registry *registry, enum fr_series series, const char *labels, double value)
{
    const struct fr_series_row *row = &fr_series_rows[series];
    FR_CHECK(row->kind == FR_SERIES_GAUGE || row->kind == FR_SERIES_SECONDS);
    if (row->kind == FR_SERIES_GAUGE)
        fr_gauge(registry, row->name, labels, row->help, value);
    else
        fr_counter_seconds(registry, row->name, labels, row->help, value);
}

struct fr_metric *fr_series_histogram(struct fr_registry *registry, enum fr_series series, const char *labels,
                                      const double *bounds, size_t n_bounds)
{
    const struct fr_series_row *row = &fr_series_rows[series];
    FR_CHECK(row->kind == FR_SERIES_HISTOGRAM);
    return fr_histogram(registry, row->name, labels, row->help, bounds, n_bounds);
}
