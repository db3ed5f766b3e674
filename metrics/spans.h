/* The scores of one group, as at most FR_GAUC_SPANS spans [low, high] that do not overlap,
 * ascending, each with the weight of its positives and of its negatives. That is enough for the
 * group's AUC, and exact while there are no more distinct scores than spans. Private to metrics;
 * the reasoning is in spans.c. */
#ifndef FR_METRICS_SPANS_H
#define FR_METRICS_SPANS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "metrics/gauc.h"

struct fr_span {
    float low, high;
    /* Mean score of each class. Meaningless where the class has no weight. */
    float mean_positive, mean_negative;
    float variance;            /* of the scores of both classes, by weight; 0 where low == high */
    double positive, negative; /* weights */
    /* Distinct scores in the span, at most FR_SPAN_DISTINCT_MAX; 1 where low == high. */
    uint32_t distinct;
};

enum { FR_SPAN_DISTINCT_MAX = 255 };

struct fr_spans {
    uint32_t count;
    /* Weight that was shared out over parts of a span without knowing where in it it was. */
    double guessed_positive, guessed_negative;
    struct fr_span items[FR_GAUC_SPANS + 2]; /* two more than stay, while a score is added */
};

void fr_spans_clear(struct fr_spans *spans);
/* score finite; weights of the sample's positive and negative part, at least one of them > 0. */
void fr_spans_add(struct fr_spans *spans, float score, double positive, double negative);
/* Multiplies all weights by 2^exponent. */
void fr_spans_scale(struct fr_spans *spans, int exponent);

struct fr_spans_auc {
    double auc;
    double error_max; /* auc is within this of the exact value */
    double weight;
};
/* Returns false if a class is missing. */
bool fr_spans_auc(const struct fr_spans *spans, struct fr_spans_auc *out);
/* 1 or 17 bytes and, per span, 5 (one sample of weight 1) to 38 bytes. */
void fr_spans_encode(const struct fr_spans *spans, struct fr_buffer *out);
/* Returns false if the bytes are damaged. */
bool fr_spans_parse(struct fr_spans *spans, struct fr_reader *reader);

#endif
