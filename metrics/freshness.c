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

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum {
    FR_FRESHNESS_EPOCHS = 64, /* unacknowledged ones kept apart */
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

struct epoch {
    uint64_t number;
    struct ages ages;
};

struct fr_freshness {
    struct fr_metric *series[FR_FRESH_SERIES];
    struct ages open;  /* owner loop: trained since the last cut */
    struct ages batch; /* owner loop: scratch */
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

static void observe_bucket(struct fr_metric *metric, double age_ms, uint32_t count)
{
    if (count)
        fr_metric_observe_many(metric, age_ms > 0 ? age_ms / 1e3 : 0, count);
}

static void ages_observe(const struct ages *ages, int64_t wall_ms, struct fr_metric *metric)
{
    double since_ms = (double)wall_ms - (double)ages->reference_ms;
    for (size_t i = 0; i < BUCKETS; i++) {
        observe_bucket(metric, since_ms + distance_of(i), ages->before[i]);
        observe_bucket(metric, since_ms - distance_of(i), ages->after[i]);
    }
}

struct fr_freshness *fr_freshness_new(struct fr_registry *registry)
{
    /* 5 ms to ten years: live streams at the lower end, replays at the upper one. */
    static const double bounds[] = {0.005, 0.01,  0.02,  0.05,   0.1,    0.2,     0.5,      1,        2,    5,
                                    10,    20,    30,    60,     120,    300,     600,      1800,     3600, 7200,
                                    21600, 43200, 86400, 259200, 604800, 2592000, 31536000, 315360000};
    static const char *const stages[] = {"stage=\"trained\"", "stage=\"durable\"", "stage=\"published\""};
    struct fr_freshness *freshness = fr_alloc(1, sizeof(*freshness));
    pthread_mutex_init(&freshness->lock, NULL);
    for (size_t i = 0; i < FR_ARRAY_LEN(stages); i++)
        freshness->series[i] = fr_histogram(
            registry, "freshet_freshness_seconds", stages[i],
            "Wall time minus event time of trained samples when they reached the stage.", bounds, FR_ARRAY_LEN(bounds));
    freshness->series[FR_FRESH_LAG] = fr_histogram(
        registry, "freshet_ingest_lag_seconds", NULL,
        "Wall time minus the newest Kafka timestamp of a batch when it was trained.", bounds, FR_ARRAY_LEN(bounds));
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
    if (freshness->open.count == 0)
        ages_begin(&freshness->open, wall_ms);
    ages_begin(&freshness->batch, wall_ms);
    for (size_t i = 0; i < count; i++)
        if (!skip[i]) {
            ages_add(&freshness->batch, t_ms[i], 1);
            ages_add(&freshness->open, t_ms[i], 1);
        }
    ages_observe(&freshness->batch, wall_ms, freshness->series[FR_FRESH_TRAINED]);
}

void fr_freshness_lag(struct fr_freshness *freshness, int64_t kafka_ms, int64_t wall_ms)
{
    observe_bucket(freshness->series[FR_FRESH_LAG], (double)wall_ms - (double)kafka_ms, 1);
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
    if (freshness->open.count == 0)
        return;
    pthread_mutex_lock(&freshness->lock);
    if (freshness->count == FR_FRESHNESS_EPOCHS) {
        /* Into the older one: what it gathered keeps its reference and is put into buckets once,
         * not at every merge. */
        ages_merge(&nth(freshness, 0)->ages, &nth(freshness, 1)->ages);
        nth(freshness, 1)->ages = nth(freshness, 0)->ages;
        drop_first(freshness);
    }
    struct epoch *last = nth(freshness, freshness->count++);
    last->number = epoch;
    last->ages = freshness->open;
    pthread_mutex_unlock(&freshness->lock);
    freshness->open.count = 0;
}

void fr_freshness_durable(struct fr_freshness *freshness, uint64_t epoch, int64_t wall_ms)
{
    pthread_mutex_lock(&freshness->lock);
    while (freshness->durable < freshness->count && nth(freshness, freshness->durable)->number <= epoch)
        ages_observe(&nth(freshness, freshness->durable++)->ages, wall_ms, freshness->series[FR_FRESH_DURABLE]);
    pthread_mutex_unlock(&freshness->lock);
}

void fr_freshness_published(struct fr_freshness *freshness, uint64_t epoch, int64_t wall_ms)
{
    pthread_mutex_lock(&freshness->lock);
    while (freshness->count > 0 && nth(freshness, 0)->number <= epoch) {
        ages_observe(&nth(freshness, 0)->ages, wall_ms, freshness->series[FR_FRESH_PUBLISHED]);
        drop_first(freshness);
    }
    pthread_mutex_unlock(&freshness->lock);
}

double fr_freshness_quantile(const struct fr_freshness *freshness, enum fr_freshness_series series, double q)
{
    return fr_metric_quantile(freshness->series[series], q);
}
