/* See drift.h. */
#include "drift.h"

#include <math.h>
#include <stdlib.h>

uint32_t fr_drift_bucket_of_key(uint64_t key)
{
    return (uint32_t)(key % FR_INSIGHT_BUCKETS);
}

int fr_drift_ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

uint32_t fr_drift_bucket_of_number(struct fr_drift *drift, float x)
{
    if (isnan(x)) /* not counted before numbers are, of which it would then be too large a share */
        return drift->n_first < FR_DRIFT_FIRST ? FR_DRIFT_CELLS : FR_DRIFT_ABSENT;
    if (drift->n_first < FR_DRIFT_FIRST) {
        drift->first[drift->n_first++] = x;
        if (drift->n_first < FR_DRIFT_FIRST)
            return FR_DRIFT_CELLS;
        qsort(drift->first, FR_DRIFT_FIRST, sizeof(*drift->first), fr_drift_ascending);
        for (uint32_t b = 1; b < FR_INSIGHT_BUCKETS; b++)
            drift->first[b - 1] = drift->first[(size_t)b * FR_DRIFT_FIRST / FR_INSIGHT_BUCKETS];
    }
    uint32_t bucket = 0;
    while (bucket < FR_INSIGHT_BUCKETS - 1 && x >= drift->first[bucket])
        bucket++;
    return bucket;
}

void fr_drift_decay(struct fr_drift *drift, const double factors[FR_DRIFT_AGES])
{
    for (uint32_t age = 0; age < FR_DRIFT_AGES; age++)
        for (uint32_t b = 0; b < FR_DRIFT_CELLS; b++) {
            drift->of[age][b].all *= factors[age];
            drift->of[age][b].labelled *= factors[age];
            drift->of[age][b].positives *= factors[age];
        }
}

void fr_drift_add(struct fr_drift *drift, const struct fr_drift_weights weights[FR_DRIFT_CELLS])
{
    for (uint32_t age = 0; age < FR_DRIFT_AGES; age++)
        for (uint32_t b = 0; b < FR_DRIFT_CELLS; b++) {
            drift->of[age][b].all += weights[b].all;
            drift->of[age][b].labelled += weights[b].labelled;
            drift->of[age][b].positives += weights[b].positives;
        }
}

static double weight_of(const struct fr_drift *drift, enum fr_drift_age age, uint32_t bucket, enum fr_drift_of of)
{
    const struct fr_drift_weights *weights = &drift->of[age][bucket];
    return of == FR_DRIFT_VALUES ? weights->all : weights->positives;
}

double fr_drift_index(const struct fr_drift *drift, enum fr_drift_of of, double terms[FR_DRIFT_CELLS])
{
    const double prior = 0.5; /* in each bucket, so that an empty one has a logarithm */
    double total[FR_DRIFT_AGES] = {0}, index = 0.0;
    for (uint32_t age = 0; age < FR_DRIFT_AGES; age++) {
        for (uint32_t b = 0; b < FR_DRIFT_CELLS; b++)
            total[age] += weight_of(drift, (enum fr_drift_age)age, b, of);
        if (!(total[age] >= FR_DRIFT_SAMPLES_MIN))
            return NAN;
    }
    for (uint32_t b = 0; b < FR_DRIFT_CELLS; b++) {
        double share[FR_DRIFT_AGES];
        for (uint32_t age = 0; age < FR_DRIFT_AGES; age++)
            share[age] = (weight_of(drift, (enum fr_drift_age)age, b, of) + prior) /
                         (total[age] + prior * (double)FR_DRIFT_CELLS);
        terms[b] = (share[FR_DRIFT_SHORT] - share[FR_DRIFT_LONG]) * log(share[FR_DRIFT_SHORT] / share[FR_DRIFT_LONG]);
        index += terms[b];
    }
    return index;
}
