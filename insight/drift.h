/* Whether the distribution of a slot's values, or of the labels that come with them, has changed:
 * weights of buckets, decayed by two half-lives of event time, and the population stability index
 * between them, sum over buckets of (p - q) ln(p / q) (Lewis 1994; the Jeffreys divergence of two
 * histograms).
 *
 * An id's bucket follows from its key. Boundaries for numbers are the sixteenths of the first
 * FR_DRIFT_FIRST of them, and nothing is counted before. One more bucket has the samples without a
 * value. Owner: the owner loop. */
#ifndef FR_INSIGHT_DRIFT_H
#define FR_INSIGHT_DRIFT_H

#include <stdbool.h>
#include <stdint.h>

#include "insight/insight.h"

enum { FR_DRIFT_ABSENT = FR_INSIGHT_BUCKETS, FR_DRIFT_CELLS, FR_DRIFT_FIRST = 512, FR_DRIFT_SAMPLES_MIN = 256 };
enum fr_drift_age { FR_DRIFT_LONG, FR_DRIFT_SHORT, FR_DRIFT_AGES };

struct fr_drift {
    struct fr_drift_weights {
        double all, labelled, positives;
    } of[FR_DRIFT_AGES][FR_DRIFT_CELLS];
    uint32_t n_first;
    float first[FR_DRIFT_FIRST]; /* once n_first is FR_DRIFT_FIRST: the boundaries */
};

/* Orders floats, without NaN, for qsort. */
int fr_drift_ascending(const void *a, const void *b);
uint32_t fr_drift_bucket_of_key(uint64_t key);
/* The bucket of a number; NaN is absent. FR_DRIFT_CELLS: there are no boundaries yet, and nothing
 * is counted. */
uint32_t fr_drift_bucket_of_number(struct fr_drift *drift, float x);
void fr_drift_decay(struct fr_drift *drift, const double factors[FR_DRIFT_AGES]);
/* Adds the weights of a batch. */
void fr_drift_add(struct fr_drift *drift, const struct fr_drift_weights weights[FR_DRIFT_CELLS]);

enum fr_drift_of { FR_DRIFT_VALUES, FR_DRIFT_POSITIVES };
/* The index; NaN: an age has less than FR_DRIFT_SAMPLES_MIN samples. terms: the part of each bucket
 * in the index. */
double fr_drift_index(const struct fr_drift *drift, enum fr_drift_of of, double terms[FR_DRIFT_CELLS]);

#endif
