/* A stream of groups and its exact GAUC, for the tests of gauc.c. */
#ifndef FR_GAUC_FIXTURE_H
#define FR_GAUC_FIXTURE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "metrics/gauc.h"

enum { GROUPS = 300, STEP_MS = 100, BATCH = 64 };
static const int64_t begin_ms = 1700000000000;

struct stream {
    size_t n;
    uint64_t *keys;
    float *scores, *labels;
    double *weights;
    int64_t *t_ms; /* ascending */
};

/* n samples of GROUPS groups whose sizes differ much; the score predicts something within a group
 * and more between groups. Scores are rounded to 1/64, so that some are equal. */
static inline struct stream make_stream(uint64_t seed, size_t n)
{
    struct stream s = {.n = n,
                       .keys = fr_alloc(n, sizeof(*s.keys)),
                       .scores = fr_alloc(n, sizeof(*s.scores)),
                       .labels = fr_alloc(n, sizeof(*s.labels)),
                       .weights = fr_alloc(n, sizeof(*s.weights)),
                       .t_ms = fr_alloc(n, sizeof(*s.t_ms))};
    for (size_t i = 0; i < n; i++) {
        double u = fr_random_uniform(seed, 1, i, 0);
        s.keys[i] = (uint64_t)(GROUPS * u * u * u);
        double level = fr_random_normal(seed, 2, s.keys[i], 0);
        s.labels[i] = fr_random_uniform(seed, 3, i, 0) < 0.2 + 0.1 * (level > 0) ? 1.0f : 0.0f;
        double score = level + fr_random_normal(seed, 4, i, 0) + 0.7 * (double)s.labels[i];
        s.scores[i] = (float)(floor(score * 64) / 64);
        s.weights[i] = 0.5 + fr_random_uniform(seed, 5, i, 0);
        s.t_ms[i] = begin_ms + (int64_t)i * STEP_MS;
    }
    return s;
}

static inline void release(struct stream *s)
{
    free(s->keys);
    free(s->scores);
    free(s->labels);
    free(s->weights);
    free(s->t_ms);
}

/* Adds the samples in batches, with watermarks. `from` is a multiple of BATCH. */
static inline void feed(struct fr_gauc *gauc, const struct stream *s, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        size_t end = i - i % BATCH + BATCH < s->n ? i - i % BATCH + BATCH : s->n;
        fr_gauc_advance(gauc, s->t_ms[end - 1]);
        fr_gauc_add(gauc, &(struct fr_gauc_sample){.key = s->keys[i],
                                                   .score = s->scores[i],
                                                   .label = s->labels[i],
                                                   .weight = s->weights[i],
                                                   .t_ms = s->t_ms[i]});
    }
}

struct scored {
    uint64_t key;
    float score;
    double positive, negative;
};

static inline int compare_scored(const void *left, const void *right)
{
    const struct scored *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->score > b->score) - (a->score < b->score);
}

struct hashes {
    uint64_t salt, bound;
};

/* Computes the exact result over the groups whose hash is below the bound; half_life_ms 0:
 * lifetime. */
static inline struct fr_gauc_result brute_force(const struct stream *s, const struct hashes *hashes,
                                                int64_t half_life_ms)
{
    struct scored *all = fr_alloc(s->n + 1, sizeof(*all));
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        double age = half_life_ms ? (double)(s->t_ms[s->n - 1] - s->t_ms[i]) / (double)half_life_ms : 0;
        double weight = s->weights[i] * exp2(-age);
        if (fr_fmix64(s->keys[i] ^ hashes->salt) < hashes->bound)
            all[n++] = (struct scored){s->keys[i], s->scores[i], weight * (double)s->labels[i],
                                       weight * (1 - (double)s->labels[i])};
    }
    qsort(all, n, sizeof(*all), compare_scored);
    struct fr_gauc_result out = {0};
    double sum = 0;
    for (size_t i = 0; i < n;) { /* a group */
        uint64_t key = all[i].key;
        double area = 0, positives = 0, below = 0;
        while (i < n && all[i].key == key) { /* samples of one score */
            struct scored tie = {.score = all[i].score};
            for (; i < n && all[i].key == key && all[i].score == tie.score; i++) {
                tie.positive += all[i].positive;
                tie.negative += all[i].negative;
            }
            area += tie.positive * (below + 0.5 * tie.negative);
            below += tie.negative;
            positives += tie.positive;
        }
        if (positives == 0 || below == 0)
            continue;
        out.groups++;
        out.weight += positives + below;
        sum += (positives + below) * (area / (positives * below));
    }
    out.auc = sum / out.weight;
    free(all);
    return out;
}

#endif
