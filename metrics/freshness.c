/* Freshness from event to trained, durable and published (see metrics/freshness.h for the
 * contract).
 *
 * Event times are kept as distances from a reference, the wall time of the epoch's first batch, in
 * buckets: below 16 ms one a millisecond, above 8 to an octave, on both sides. At a stage every
 * bucket is one observation of (wall - reference) + distance, as often as it has samples. Epochs
 * wait in a ring for their acknowledgement; when the delta topic is away for longer than the ring,
 * the two oldest become one, which is observed with the later of them.
 *
 * The mutex guards the ring only; cut, durable and published take it once an epoch. */
#include "metrics/freshness.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "metrics/series.h"

enum {
    FR_FRESHNESS_EPOCHS = 64, /* unacknowledged epochs that are kept separately */
    EXACT = 16,               /* distances below are buckets of their own */
    OCTAVES = 38,             /* up to 2^42 ms, 139 years; more counts as that */
    BUCKETS = EXACT + OCTAVES * 8,
};

struct ages {
    int64_t reference_ms;
    uint64_t count;
    uint32_t before[BUCKETS]; /* events at or before the reference, by distance */
    uint32_t after[BUCKETS];
};

/* What an age is measured from. */
enum origin { EVENT, ARRIVAL, ORIGINS };

struct epoch {
    uint64_t number;
    int64_t durable_ms;
    struct ages ages[ORIGINS];
};

struct fr_freshness {
    const struct fr_timings *timings;
    struct fr_metric *series[FR_FRESH_SERIES];
    /* All observations, in the buckets of `ages`: quantiles are right wherever they lie. */
    _Atomic uint64_t fine[FR_FRESH_SERIES][BUCKETS];
    struct ages open[ORIGINS]; /* owner loop: trained since the last cut */
    struct ages batch;         /* owner loop: scratch */
    pthread_mutex_t lock;
    struct epoch ring[FR_FRESHNESS_EPOCHS];
    size_t first, count; /* oldest epoch; how many */
    size_t durable;      /* how many of them, from the oldest, are durable */
};

static size_t bucket_of(uint64_t distance_ms)
{
    if (distance_ms < EXACT)
        return (size_t)distance_ms;
    int octave = 63 - __builtin_clzll(distance_ms); /* at least 4 */
    size_t bucket = EXACT + (size_t)(octave - 4) * 8 + (size_t)(distance_ms >> (octave - 3) & 7);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* Middle of a bucket. */
static double distance_of(size_t bucket)
{
    if (bucket < EXACT)
        return (double)bucket;
    uint64_t width = (uint64_t)1 << ((bucket - EXACT) / 8 + 1);
    return (double)(width * (8 + (bucket - EXACT) % 8)) + 0.5 * (double)(width - 1);
}

static void ages_begin(struct ages *ages, int64_t reference_ms)
{
    memset(ages, 0, sizeof(*ages));
    ages->reference_ms = reference_ms;
}

static void ages_add(struct ages *ages, int64_t t_ms, uint32_t count)
{
    bool later = t_ms > ages->reference_ms;
    uint64_t distance =
        later ? (uint64_t)t_ms - (uint64_t)ages->reference_ms : (uint64_t)ages->reference_ms - (uint64_t)t_ms;
    *(later ? &ages->after[bucket_of(distance)] : &ages->before[bucket_of(distance)]) += count;
    ages->count += count;
}

static void ages_merge(struct ages *into, const struct ages *from)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        int64_t distance = (int64_t)distance_of(i);
        if (from->before[i])
            ages_add(into, from->reference_ms - distance, from->before[i]);
        if (from->after[i])
            ages_add(into, from->reference_ms + distance, from->after[i]);
    }
}

static void observe_bucket(struct fr_freshness *freshness, enum fr_freshness_series series, double age_ms,
                           uint32_t count)
{
    age_ms = age_ms > 0 ? age_ms : 0;
    if (count == 0)
        return;
    fr_metric_observe_many(freshness->series[series], age_ms / 1e3, count);
    atomic_fetch_add_explicit(&freshness->fine[series][bucket_of((uint64_t)age_ms)], count, memory_order_relaxed);
}

static void ages_observe(struct fr_freshness *freshness, const struct ages *ages, int64_t wall_ms,
                         enum fr_freshness_series series)
{
    double since_ms = (double)wall_ms - (double)ages->reference_ms;
    for (size_t i = 0; i < BUCKETS; i++) {
        observe_bucket(freshness, series, since_ms + distance_of(i), ages->before[i]);
        observe_bucket(freshness, series, since_ms - distance_of(i), ages->after[i]);
    }
}

static void epoch_observe(struct fr_freshness *freshness, const struct epoch *epoch, int64_t wall_ms,
                          enum fr_freshness_series event, enum fr_freshness_series arrival)
{
    ages_observe(freshness, &epoch->ages[EVENT], wall_ms, event);
    ages_observe(freshness, &epoch->ages[ARRIVAL], wall_ms, arrival);
}

struct scale {
    const double *bounds;
    size_t count;
};

static void register_stages(struct fr_freshness *freshness, struct fr_registry *registry, enum fr_series series,
                            enum fr_freshness_series first, const struct scale *scale)
{
    static const char *const stages[] = {"stage=\"trained\"", "stage=\"durable\"", "stage=\"published\""};
    for (size_t i = 0; i < FR_ARRAY_LEN(stages); i++)
        freshness->series[first + i] = fr_series_histogram(registry, series, stages[i], scale->bounds, scale->count);
}

struct fr_freshness *fr_freshness_new(struct fr_registry *registry, const struct fr_timings *timings)
{
    /* 5 ms to ten years: live streams at the lower end, replays at the upper one. */
    static const double event[] = {0.005, 0.01,  0.02,  0.05,   0.1,    0.2,     0.5,      1,        2,    5,
                                   10,    20,    30,    60,     120,    300,     600,      1800,     3600, 7200,
                                   21600, 43200, 86400, 259200, 604800, 2592000, 31536000, 315360000};
    /* Ages of interest of arrivals lie between 50 ms and a second; a backlog is older. */
    static const double arrival[] = {0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1,   0.12,  0.15,
                                     0.2,   0.25, 0.3,  0.4,  0.5,  0.75,  1,     2,     5,
                                     10,    30,   60,   300,  1800, 3600,  21600, 86400, 604800};
    struct fr_freshness *freshness = fr_alloc(1, sizeof(*freshness));
    pthread_mutex_init(&freshness->lock, NULL);
    freshness->timings = timings;
    register_stages(freshness, registry, FR_SERIES_FRESHNESS_SECONDS, FR_FRESH_TRAINED,
                    &(struct scale){event, FR_ARRAY_LEN(event)});
    register_stages(freshness, registry, FR_SERIES_ARRIVAL_AGE_SECONDS, FR_FRESH_ARRIVAL_TRAINED,
                    &(struct scale){arrival, FR_ARRAY_LEN(arrival)});
    freshness->series[FR_FRESH_LAG] =
        fr_series_histogram(registry, FR_SERIES_INGEST_LAG_SECONDS, NULL, event, FR_ARRAY_LEN(event));
    return freshness;
}

void fr_freshness_free(struct fr_freshness *freshness)
{
    if (!freshness)
        return;
    pthread_mutex_destroy(&freshness->lock);
    free(freshness);
}

void fr_freshness_trained(struct fr_freshness *freshness, const int64_t *t_ms, const uint8_t *skip, size_t count,
                          int64_t wall_ms)
{
    if (freshness->open[EVENT].count == 0)
        ages_begin(&freshness->open[EVENT], wall_ms);
    ages_begin(&freshness->batch, wall_ms);
    for (size_t i = 0; i < count; i++)
        if (!skip[i]) {
            ages_add(&freshness->batch, t_ms[i], 1);
            ages_add(&freshness->open[EVENT], t_ms[i], 1);
        }
    ages_observe(freshness, &freshness->batch, wall_ms, FR_FRESH_TRAINED);
}

void fr_freshness_arrived(struct fr_freshness *freshness, int64_t kafka_ms, uint32_t count, int64_t wall_ms)
{
    struct ages *open = &freshness->open[ARRIVAL];
    if (count == 0)
        return;
    if (open->count == 0)
        ages_begin(open, wall_ms);
    ages_add(open, kafka_ms, count);
    observe_bucket(freshness, FR_FRESH_ARRIVAL_TRAINED, (double)wall_ms - (double)kafka_ms, count);
}

void fr_freshness_lag(struct fr_freshness *freshness, int64_t kafka_ms, int64_t wall_ms)
{
    observe_bucket(freshness, FR_FRESH_LAG, (double)wall_ms - (double)kafka_ms, 1);
}

static struct epoch *nth(struct fr_freshness *freshness, size_t i)
{
    return &freshness->ring[(freshness->first + i) % FR_FRESHNESS_EPOCHS];
}

static void drop_first(struct fr_freshness *freshness)
{
    freshness->first = (freshness->first + 1) % FR_FRESHNESS_EPOCHS;
    freshness->count--;
    freshness->durable -= freshness->durable > 0;
}

void fr_freshness_cut(struct fr_freshness *freshness, uint64_t epoch)
{
    if (freshness->open[EVENT].count == 0)
        return;
    pthread_mutex_lock(&freshness->lock);
    if (freshness->count == FR_FRESHNESS_EPOCHS) {
        /* The younger epoch is merged into the older one, so that the older one's ages keep their
         * reference and are not put into other buckets at every merge. */
        struct epoch *older = nth(freshness, 0), *younger = nth(freshness, 1);
        for (size_t i = 0; i < ORIGINS; i++)
            ages_merge(&older->ages[i], &younger->ages[i]);
        memcpy(younger->ages, older->ages, sizeof(younger->ages));
        drop_first(freshness);
    }
    struct epoch *last = nth(freshness, freshness->count++);
    last->number = epoch;
    memcpy(last->ages, freshness->open, sizeof(last->ages));
    pthread_mutex_unlock(&freshness->lock);
    /* an epoch without an observation has empty buckets, too */
    for (size_t i = 0; i < ORIGINS; i++)
        ages_begin(&freshness->open[i], 0);
}

void fr_freshness_durable(struct fr_freshness *freshness, uint64_t epoch, int64_t wall_ms)
{
    pthread_mutex_lock(&freshness->lock);
    while (freshness->durable < freshness->count && nth(freshness, freshness->durable)->number <= epoch) {
        struct epoch *now = nth(freshness, freshness->durable++);
        now->durable_ms = wall_ms;
        epoch_observe(freshness, now, wall_ms, FR_FRESH_DURABLE, FR_FRESH_ARRIVAL_DURABLE);
    }
    pthread_mutex_unlock(&freshness->lock);
}

void fr_freshness_published(struct fr_freshness *freshness, uint64_t epoch, int64_t wall_ms)
{
    pthread_mutex_lock(&freshness->lock);
    while (freshness->count > 0 && nth(freshness, 0)->number <= epoch) {
        const struct epoch *now = nth(freshness, 0);
        epoch_observe(freshness, now, wall_ms, FR_FRESH_PUBLISHED, FR_FRESH_ARRIVAL_PUBLISHED);
        if (now->durable_ms) /* this process made the epoch durable */
            fr_timings_observe(freshness->timings, FR_TIMING_PUBLISH, (double)(wall_ms - now->durable_ms) / 1e3);
        drop_first(freshness);
    }
    pthread_mutex_unlock(&freshness->lock);
}

/* ---- quantiles ---- */

/* Of the observations that are not in `before`; NULL: of all. */
static double quantile(const struct fr_freshness *freshness, enum fr_freshness_series series, const uint64_t *before,
                       double q)
{
    uint64_t counts[BUCKETS], total = 0, below = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        counts[i] = atomic_load_explicit(&freshness->fine[series][i], memory_order_relaxed);
        counts[i] -= before ? before[i] : 0;
        total += counts[i];
    }
    if (total == 0)
        return (double)NAN;
    size_t i = 0;
    while (i + 1 < BUCKETS && (double)(below + counts[i]) < q * (double)total)
        below += counts[i++];
    return distance_of(i) / 1e3;
}

double fr_freshness_quantile(const struct fr_freshness *freshness, enum fr_freshness_series series, double q)
{
    return quantile(freshness, series, NULL, q);
}

static const uint64_t WINDOW_NS = 5000000000u;

/* The window begins at `begin` (zeros at first). `next` is WINDOW_NS later, and becomes the
 * beginning when it is WINDOW_NS old itself. */
struct fr_freshness_window {
    uint64_t next_ns; /* when `next` was counted; 0: never */
    uint64_t begin[FR_FRESH_SERIES][BUCKETS], next[FR_FRESH_SERIES][BUCKETS];
};

struct fr_freshness_window *fr_freshness_window_new(void)
{
    return fr_alloc(1, sizeof(struct fr_freshness_window));
}

void fr_freshness_window_free(struct fr_freshness_window *window)
{
    free(window);
}

void fr_freshness_window_move(struct fr_freshness_window *window, const struct fr_freshness *freshness, uint64_t now_ns)
{
    if (window->next_ns && now_ns - window->next_ns < WINDOW_NS)
        return;
    memcpy(window->begin, window->next, sizeof(window->begin));
    window->next_ns = now_ns;
    for (size_t s = 0; s < FR_FRESH_SERIES; s++)
        for (size_t i = 0; i < BUCKETS; i++)
            window->next[s][i] = atomic_load_explicit(&freshness->fine[s][i], memory_order_relaxed);
}

double fr_freshness_window_quantile(const struct fr_freshness_window *window, const struct fr_freshness *freshness,
                                    enum fr_freshness_series series, double q)
{
    return quantile(freshness, series, window->begin[series], q);
}
