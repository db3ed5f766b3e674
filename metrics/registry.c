/* Counters, gauges and histograms, rendered as Prometheus text 0.0.4. Values are relaxed atomics;
 * the list of series is searched, grows and is rendered under a mutex. */
#include "metrics/registry.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { FR_BOUNDS_MAX = 32 };
enum metric_kind { METRIC_COUNTER, METRIC_SECONDS, METRIC_GAUGE, METRIC_HISTOGRAM };

struct fr_metric {
    struct fr_metric *next; /* in order of registration */
    enum metric_kind kind;
    char *name, *labels, *help;
    _Atomic uint64_t total;
    _Atomic double value; /* seconds, gauge; histogram: sum of observations */
    size_t n_bounds;
    double bounds[FR_BOUNDS_MAX];
    _Atomic uint64_t buckets[FR_BOUNDS_MAX + 1];
};

struct fr_registry {
    pthread_mutex_t lock;
    char *model;
    struct fr_metric *first, **last;
    struct fr_metric *found; /* the metric that the last search found */
};

struct fr_registry *fr_registry_new(const char *model)
{
    struct fr_registry *registry = fr_alloc(1, sizeof(*registry));
    pthread_mutex_init(&registry->lock, NULL);
    registry->model = fr_strdup(model);
    registry->last = &registry->first;
    return registry;
}

void fr_registry_free(struct fr_registry *registry)
{
    if (!registry)
        return;
    for (struct fr_metric *metric = registry->first; metric;) {
        struct fr_metric *next = metric->next;
        free(metric->name);
        free(metric->labels);
        free(metric->help);
        free(metric);
        metric = next;
    }
    pthread_mutex_destroy(&registry->lock);
    free(registry->model);
    free(registry);
}

struct definition {
    enum metric_kind kind;
    const char *name, *labels, *help;
    const double *bounds;
    size_t n_bounds;
};

static bool is_series(const struct fr_metric *metric, const char *name, const char *labels)
{
    return strcmp(metric->name, name) == 0 && strcmp(metric->labels, labels) == 0;
}

/* Values are set in the order in which they were registered, over and over: most searches end where
 * they begin. */
static struct fr_metric *find(struct fr_registry *registry, const char *name, const char *labels)
{
    struct fr_metric *next = registry->found ? registry->found->next : NULL;
    if (next && is_series(next, name, labels))
        return registry->found = next;
    struct fr_metric *metric = registry->first;
    while (metric && !is_series(metric, name, labels))
        metric = metric->next;
    return registry->found = metric;
}

/* A new metric is complete before the lock is given back: the renderer sees all of it or
 * nothing. */
static struct fr_metric *obtain(struct fr_registry *registry, const struct definition *wanted)
{
    const char *labels = wanted->labels ? wanted->labels : "";
    pthread_mutex_lock(&registry->lock);
    struct fr_metric *metric = find(registry, wanted->name, labels);
    if (!metric) {
        metric = fr_alloc(1, sizeof(*metric));
        metric->kind = wanted->kind;
        metric->name = fr_strdup(wanted->name);
        metric->labels = fr_strdup(labels);
        metric->help = fr_strdup(wanted->help);
        metric->n_bounds = wanted->n_bounds;
        if (wanted->n_bounds > 0)
            memcpy(metric->bounds, wanted->bounds, wanted->n_bounds * sizeof(*wanted->bounds));
        *registry->last = metric;
        registry->last = &metric->next;
        registry->found = metric;
    }
    pthread_mutex_unlock(&registry->lock);
    FR_CHECK(metric->kind == wanted->kind);
    return metric;
}

void fr_counter(struct fr_registry *registry, const char *name, const char *labels, const char *help, uint64_t total)
{
    struct definition wanted = {.kind = METRIC_COUNTER, .name = name, .labels = labels, .help = help};
    atomic_store_explicit(&obtain(registry, &wanted)->total, total, memory_order_relaxed);
}

void fr_counter_seconds(struct fr_registry *registry, const char *name, const char *labels, const char *help,
                        double total)
{
    struct definition wanted = {.kind = METRIC_SECONDS, .name = name, .labels = labels, .help = help};
    atomic_store_explicit(&obtain(registry, &wanted)->value, total, memory_order_relaxed);
}

void fr_gauge(struct fr_registry *registry, const char *name, const char *labels, const char *help, double value)
{
    struct definition wanted = {.kind = METRIC_GAUGE, .name = name, .labels = labels, .help = help};
    atomic_store_explicit(&obtain(registry, &wanted)->value, value, memory_order_relaxed);
}

struct fr_metric *fr_histogram(struct fr_registry *registry, const char *name, const char *labels, const char *help,
                               const double *bounds, size_t n_bounds)
{
    FR_CHECK(n_bounds <= FR_BOUNDS_MAX);
    return obtain(registry, &(struct definition){METRIC_HISTOGRAM, name, labels, help, bounds, n_bounds});
}

void fr_metric_label(char *labels, size_t size, const char *name, const char *value)
{
    struct fr_buffer out = {0};
    fr_buffer_printf(&out, "%s%s%s=\"", labels, labels[0] ? "," : "", name);
    for (; *value; value++) {
        if (*value == '\n') {
            fr_buffer_printf(&out, "\\n");
            continue;
        }
        if (*value == '"' || *value == '\\')
            fr_put_u8(&out, '\\');
        fr_put_u8(&out, (uint8_t)*value);
    }
    fr_buffer_printf(&out, "\"");
    FR_CHECK(out.size < size);
    memcpy(labels, out.data, out.size);
    labels[out.size] = '\0';
    fr_buffer_release(&out);
}

void fr_metric_observe_many(struct fr_metric *histogram, double value, uint64_t count)
{
    size_t i = 0;
    while (i < histogram->n_bounds && value > histogram->bounds[i])
        i++;
    atomic_fetch_add_explicit(&histogram->buckets[i], count, memory_order_relaxed);
    double sum = atomic_load_explicit(&histogram->value, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&histogram->value, &sum, sum + value * (double)count,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static void put_value(struct fr_buffer *out, double value)
{
    if (isnan(value))
        fr_buffer_printf(out, "NaN\n");
    else if (isinf(value))
        fr_buffer_printf(out, value > 0 ? "+Inf\n" : "-Inf\n");
    else {
        /* The shortest text that reads as the same number: 0.017, not 0.017000000000000001. */
        char text[40];
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof(text), "%.*g", digits, value);
            if (strtod(text, NULL) == value)
                break;
        }
        fr_buffer_printf(out, "%s\n", text);
    }
}

static void put_series(struct fr_buffer *out, const char *model, const struct fr_metric *metric, const char *suffix,
                       const char *le)
{
    fr_buffer_printf(out, "%s%s{model=\"%s\"", metric->name, suffix, model);
    if (metric->labels[0])
        fr_buffer_printf(out, ",%s", metric->labels);
    if (le)
        fr_buffer_printf(out, ",le=\"%s\"", le);
    fr_buffer_printf(out, "} ");
}

static void put_histogram(struct fr_buffer *out, const char *model, const struct fr_metric *metric)
{
    uint64_t total = 0;
    for (size_t i = 0; i <= metric->n_bounds; i++) {
        char le[32] = "+Inf";
        if (i < metric->n_bounds)
            snprintf(le, sizeof(le), "%.9g", metric->bounds[i]);
        total += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        put_series(out, model, metric, "_bucket", le);
        fr_buffer_printf(out, "%" PRIu64 "\n", total);
    }
    put_series(out, model, metric, "_sum", NULL);
    put_value(out, atomic_load_explicit(&metric->value, memory_order_relaxed));
    put_series(out, model, metric, "_count", NULL);
    fr_buffer_printf(out, "%" PRIu64 "\n", total);
}

static void put_metric(struct fr_buffer *out, const char *model, const struct fr_metric *metric)
{
    if (metric->kind == METRIC_HISTOGRAM) {
        put_histogram(out, model, metric);
        return;
    }
    put_series(out, model, metric, "", NULL);
    if (metric->kind == METRIC_COUNTER)
        fr_buffer_printf(out, "%" PRIu64 "\n", atomic_load_explicit(&metric->total, memory_order_relaxed));
    else
        put_value(out, atomic_load_explicit(&metric->value, memory_order_relaxed));
}

/* Whether an earlier series of the list has this name: its family is rendered there. */
static bool rendered_before(const struct fr_registry *registry, const struct fr_metric *metric)
{
    for (const struct fr_metric *m = registry->first; m != metric; m = m->next)
        if (strcmp(m->name, metric->name) == 0)
            return true;
    return false;
}

void fr_registry_render(struct fr_registry *registry, struct fr_buffer *out)
{
    static const char *const types[] = {"counter", "counter", "gauge", "histogram"};
    pthread_mutex_lock(&registry->lock);
    for (const struct fr_metric *family = registry->first; family; family = family->next) {
        if (rendered_before(registry, family))
            continue;
        fr_buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name,
                         types[family->kind]);
        for (const struct fr_metric *m = family; m; m = m->next)
            if (strcmp(m->name, family->name) == 0)
                put_metric(out, registry->model, m);
    }
    pthread_mutex_unlock(&registry->lock);
}
