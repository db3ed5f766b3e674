/* Spans of one group's scores (see metrics/spans.h).
 *
 * A score inside a span is added to it; otherwise it becomes a span of its own, and when there are
 * too many, the two neighbours of least joint weight become one, which keeps spans about equally
 * deep, as in equi-depth histograms. Spans never overlap, so pairs of different spans are ordered
 * right. What is left is the order of pairs inside a span.
 *
 * Counting them one half is biased: scores that mean something put positives above negatives inside
 * a span too, so every such AUC was low. Instead, by Mann and Whitney (1947): positives outrank
 * negatives in a share of the pairs of 1/2 + (R+ - R-), R a class's mean rank over the span as a
 * share of its weight. Ranks go up with scores at about 1 / (sqrt(12) sigma), sigma the standard
 * deviation of the span's scores: exactly so where they are spread evenly (m distinct ones: times
 * sqrt(1 - 1/m^2)), and within 2 % where they are normal. So each class's mean score and one
 * variance are all that is needed.
 *
 * The width of the span in place of sigma was rejected, because its rarest score decides it.
 *
 * Where scores narrow, or old ones decayed, a span can come to hold most of what is new. So a span
 * of more than a quarter of the group's weight is split at the next score inside it, and so is one
 * whose weight is dust beside that score. Its weight is shared out by densities that change
 * linearly (of two distinct scores, its ends, exactly) and is remembered as guessed.
 *
 * The bound of the error stays rigorous: of pairs inside a span any share may be in order, and
 * guessed weight may stand wrong against everything of the other class.
 *
 * Owner thread: the trainer's loop. Not here: decay, which groups there are (gauc.c). */
#include "spans.h"

#include <math.h>
#include <string.h>

#include "base/math.h"

/* A span of more than this share of its group's weight is split: of equally deep spans one holds 1
 * to 2 / FR_GAUC_SPANS, and at 1/8 error_max was five times as large where scores drift. Dust is
 * less than this share of one sample. */
static const double split_share = 0.25, dust_share = 0.125;

static double weight_of(const struct fr_span *span)
{
    return span->positive + span->negative;
}

static uint32_t distinct_of(uint32_t distinct)
{
    return distinct < FR_SPAN_DISTINCT_MAX ? distinct : FR_SPAN_DISTINCT_MAX;
}

/* Returns the mean of two weighted means, which lies between them whatever the rounding. At least
 * one of them has weight > 0. */
static float mean_of(float a, double a_weight, float b, double b_weight)
{
    if (!(a_weight > 0))
        return b;
    float mean = (float)((double)a + ((double)b - (double)a) * (b_weight / (a_weight + b_weight)));
    float low = a < b ? a : b, high = a < b ? b : a;
    return mean < low ? low : mean > high ? high : mean;
}

/* Returns the mean score of both classes, whose weight must be > 0. */
static double joint_mean(const struct fr_span *span)
{
    double p = span->positive > 0 ? span->positive * (double)span->mean_positive : 0;
    double n = span->negative > 0 ? span->negative * (double)span->mean_negative : 0;
    return (p + n) / weight_of(span);
}

/* Returns the variance of two spans' scores together: within them and between their means. */
static float joint_variance(const struct fr_span *a, const struct fr_span *b)
{
    double total = weight_of(a) + weight_of(b), share = weight_of(b) / total;
    if (a->low == b->low && a->high == b->high && a->low == a->high)
        return 0; /* one score: no rounding may make two of it */
    if (!(total > 0) || !(share > 0))
        return a->variance;
    if (!(share < 1))
        return b->variance;
    double apart = joint_mean(a) - joint_mean(b);
    return (float)((double)a->variance * (1 - share) + (double)b->variance * share +
                   apart * apart * share * (1 - share));
}

static void span_add(struct fr_span *into, const struct fr_span *from)
{
    into->variance = joint_variance(into, from);
    if (from->positive > 0)
        into->mean_positive = mean_of(into->mean_positive, into->positive, from->mean_positive, from->positive);
    if (from->negative > 0)
        into->mean_negative = mean_of(into->mean_negative, into->negative, from->mean_negative, from->negative);
    into->positive += from->positive;
    into->negative += from->negative;
}

/* Joins the two neighbours of least joint weight, the first ones of several, so that there is one
 * span less. */
static void merge_lightest(struct fr_spans *spans)
{
    uint32_t best = 0;
    double before = weight_of(&spans->items[0]), least = INFINITY;
    for (uint32_t i = 0; i + 1 < spans->count; i++) {
        double next = weight_of(&spans->items[i + 1]);
        if (before + next < least) {
            least = before + next;
            best = i;
        }
        before = next;
    }
    struct fr_span *into = &spans->items[best];
    span_add(into, &into[1]);
    into->high = into[1].high;
    into->distinct = distinct_of(into->distinct + into[1].distinct);
    spans->count--;
    memmove(into + 1, into + 2, (spans->count - best - 1) * sizeof(*into));
}

/* One class of a span that is split at a place 0 < u < 1 of its width. */
struct division {
    double below, above;          /* weights */
    float mean_below, mean_above; /* scores */
};

/* Density 1 + tilt (2t - 1) over the width, with the mean that is known. */
static struct division divide(const struct fr_span *span, double weight, float mean, double u)
{
    double low = (double)span->low, range = (double)span->high - low, center = ((double)mean - low) / range;
    if (span->distinct == 2)
        return (struct division){weight * (1 - center), weight * center, span->low, span->high};
    double tilt = 6 * center - 3;
    tilt = tilt < -1 ? -1 : tilt > 1 ? 1 : tilt;
    double share = u + tilt * (u * u - u), moment = u * u * (0.5 - 0.5 * tilt) + tilt * u * u * u * (2.0 / 3);
    double all = 0.5 + tilt / 6;
    return (struct division){.below = weight * share,
                             .above = weight * (1 - share),
                             .mean_below = (float)(low + range * (moment / share)),
                             .mean_above = (float)(low + range * ((all - moment) / (1 - share)))};
}

static float into_range(float mean, float low, float high)
{
    return mean < low ? low : mean > high ? high : mean;
}

static struct fr_span piece_of(float low, float high, uint32_t distinct)
{
    bool wide = low < high;
    return (struct fr_span){.low = low, .high = high, .distinct = !wide ? 1 : distinct < 2 ? 2 : distinct};
}

/* Splits spans->items[i] around a score strictly inside it, which becomes a span without weight
 * between two others. */
static void split(struct fr_spans *spans, uint32_t i, float score)
{
    const struct fr_span old = spans->items[i];
    double u = ((double)score - (double)old.low) / ((double)old.high - (double)old.low);
    struct division p = divide(&old, old.positive, old.mean_positive, u);
    struct division n = divide(&old, old.negative, old.mean_negative, u);
    bool exact = old.distinct == 2;
    uint32_t below = (uint32_t)(u * (double)old.distinct + 0.5);
    struct fr_span *piece = &spans->items[i];
    memmove(piece + 3, piece + 1, (spans->count - i - 1) * sizeof(*piece));
    spans->count += 2;
    piece[0] = piece_of(old.low, exact ? old.low : nextafterf(score, old.low), below);
    piece[1] = piece_of(score, score, 1);
    piece[2] = piece_of(exact ? old.high : nextafterf(score, old.high), old.high, old.distinct - below);
    for (int k = 0; k < 3; k += 2) { /* of an even density */
        double range = (double)piece[k].high - (double)piece[k].low;
        piece[k].variance = (float)(range * range / 12);
    }
    piece[0].positive = p.below;
    piece[0].negative = n.below;
    piece[2].positive = p.above;
    piece[2].negative = n.above;
    piece[0].mean_positive = into_range(p.mean_below, piece[0].low, piece[0].high);
    piece[0].mean_negative = into_range(n.mean_below, piece[0].low, piece[0].high);
    piece[2].mean_positive = into_range(p.mean_above, piece[2].low, piece[2].high);
    piece[2].mean_negative = into_range(n.mean_above, piece[2].low, piece[2].high);
    if (!exact) {
        spans->guessed_positive += old.positive;
        spans->guessed_negative += old.negative;
    }
}

/* Whether a span must not take in a score of this weight as it is. */
static bool must_split(const struct fr_spans *spans, const struct fr_span *span, double weight)
{
    if (weight_of(span) < dust_share * weight)
        return true;
    double total = 0, held = weight_of(span);
    for (uint32_t i = 0; i < spans->count; i++) {
        total += weight_of(&spans->items[i]);
        if (held <= split_share * total) /* weights are not negative: the whole is no less */
            return false;
    }
    return true;
}

void fr_spans_add(struct fr_spans *spans, float score, double positive, double negative)
{
    uint32_t i = 0;
    while (i < spans->count && spans->items[i].high < score)
        i++;
    struct fr_span *span = &spans->items[i];
    struct fr_span one = {.low = score,
                          .high = score,
                          .mean_positive = score,
                          .mean_negative = score,
                          .positive = positive,
                          .negative = negative,
                          .distinct = 1};
    if (i == spans->count || score < span->low) {
        memmove(span + 1, span, (spans->count - i) * sizeof(*span));
        *span = one;
        spans->count++;
    } else if (span->low < score && score < span->high) {
        if (must_split(spans, span, positive + negative)) {
            split(spans, i, score);
            spans->items[i + 1] = one;
        } else {
            span_add(span, &one);
            span->distinct = distinct_of(span->distinct + 1);
        }
    } else {
        span_add(span, &one);
    }
    while (spans->count > FR_GAUC_SPANS)
        merge_lightest(spans);
}

void fr_spans_clear(struct fr_spans *spans)
{
    spans->count = 0;
    spans->guessed_positive = spans->guessed_negative = 0;
}

void fr_spans_scale(struct fr_spans *spans, int exponent)
{
    for (uint32_t i = 0; i < spans->count; i++) {
        spans->items[i].positive = ldexp(spans->items[i].positive, exponent);
        spans->items[i].negative = ldexp(spans->items[i].negative, exponent);
    }
    spans->guessed_positive = ldexp(spans->guessed_positive, exponent);
    spans->guessed_negative = ldexp(spans->guessed_negative, exponent);
}

/* Returns the share of a wide span's pairs in which the positive has the higher score; ties count
 * half. */
static double ordered_share(const struct fr_span *span)
{
    static const double root_of_12 = 3.4641016151377546;
    double apart = (double)span->mean_positive - (double)span->mean_negative, m = span->distinct;
    double share = 0.5;
    if (span->distinct == 2)
        share += 0.5 * apart / ((double)span->high - (double)span->low);
    else if (span->variance > 0)
        share += apart * sqrt((1 - 1 / (m * m)) / (double)span->variance) / root_of_12;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

bool fr_spans_auc(const struct fr_spans *spans, struct fr_spans_auc *out)
{
    double area = 0, below = 0, positives = 0, unsure = 0;
    for (uint32_t i = 0; i < spans->count; i++) {
        const struct fr_span *span = &spans->items[i];
        double inside = span->positive * span->negative;
        area += span->positive * below;
        if (span->low < span->high && inside > 0) {
            double share = ordered_share(span);
            area += share * inside;
            unsure += (share > 0.5 ? share : 1 - share) * inside;
        } else {
            area += 0.5 * inside;
        }
        below += span->negative;
        positives += span->positive;
    }
    double pairs = positives * below;
    if (!(pairs > 0))
        return false;
    double error = unsure / pairs + spans->guessed_positive / positives + spans->guessed_negative / below;
    *out = (struct fr_spans_auc){.auc = area / pairs, .error_max = error < 1 ? error : 1, .weight = positives + below};
    return true;
}

/* The image: u8 spans, with GUESSED f64 guessed weight of positives and of negatives; per span u8
 * SPAN_*, f32 low, then what its bits say: f32 high, f32 variance and u8 distinct (WIDE); weights
 * of the classes it has, positives first: none (UNIT: each is 1), f64 (LONG) or f32, whichever is
 * the shortest that is exact; then f32 means of the classes it has (WIDE). */

enum {
    SPAN_WIDE = 1,
    SPAN_POSITIVE = 2,
    SPAN_NEGATIVE = 4,
    SPAN_UNIT = 8,
    SPAN_LONG = 16,
    SPAN_BITS = 31,
    GUESSED = 128
};

static void put_weight(struct fr_buffer *out, uint8_t bits, double weight)
{
    if (bits & SPAN_LONG)
        fr_put_f64(out, weight);
    else if (!(bits & SPAN_UNIT))
        fr_put_u32(out, fr_f32_bits((float)weight));
}

static uint8_t bits_of(const struct fr_span *span)
{
    bool p = span->positive > 0, n = span->negative > 0;
    bool unit = (!p || span->positive == 1) && (!n || span->negative == 1);
    bool is_f32 = (double)(float)span->positive == span->positive && (double)(float)span->negative == span->negative;
    return (uint8_t)((span->low < span->high ? SPAN_WIDE : 0) | (p ? SPAN_POSITIVE : 0) | (n ? SPAN_NEGATIVE : 0) |
                     (unit     ? SPAN_UNIT
                      : is_f32 ? 0
                               : SPAN_LONG));
}

static void encode_span(const struct fr_span *span, struct fr_buffer *out)
{
    uint8_t bits = bits_of(span);
    fr_put_u8(out, bits);
    fr_put_u32(out, fr_f32_bits(span->low));
    if (bits & SPAN_WIDE) {
        fr_put_u32(out, fr_f32_bits(span->high));
        fr_put_u32(out, fr_f32_bits(span->variance));
        fr_put_u8(out, (uint8_t)span->distinct);
    }
    if (bits & SPAN_POSITIVE)
        put_weight(out, bits, span->positive);
    if (bits & SPAN_NEGATIVE)
        put_weight(out, bits, span->negative);
    if ((bits & SPAN_WIDE) && (bits & SPAN_POSITIVE))
        fr_put_u32(out, fr_f32_bits(span->mean_positive));
    if ((bits & SPAN_WIDE) && (bits & SPAN_NEGATIVE))
        fr_put_u32(out, fr_f32_bits(span->mean_negative));
}

void fr_spans_encode(const struct fr_spans *spans, struct fr_buffer *out)
{
    bool guessed = spans->guessed_positive > 0 || spans->guessed_negative > 0;
    fr_put_u8(out, (uint8_t)(spans->count | (guessed ? GUESSED : 0)));
    if (guessed) {
        fr_put_f64(out, spans->guessed_positive);
        fr_put_f64(out, spans->guessed_negative);
    }
    for (uint32_t i = 0; i < spans->count; i++)
        encode_span(&spans->items[i], out);
}

static double take_weight(struct fr_reader *reader, uint8_t bits)
{
    if (bits & SPAN_LONG)
        return fr_take_f64(reader);
    return bits & SPAN_UNIT ? 1.0 : (double)fr_bits_f32(fr_take_u32(reader));
}

static bool is_weight(double weight)
{
    return weight >= 0 && isfinite(weight);
}

static bool is_inside(const struct fr_span *span, float mean)
{
    return span->low <= mean && mean <= span->high; /* NaN: no */
}

static bool parse_span(struct fr_reader *reader, struct fr_span *out)
{
    uint8_t bits = fr_take_u8(reader);
    bool wide = bits & SPAN_WIDE, p = bits & SPAN_POSITIVE, n = bits & SPAN_NEGATIVE;
    out->low = out->high = fr_bits_f32(fr_take_u32(reader));
    out->distinct = 1;
    out->variance = 0;
    if (wide) {
        out->high = fr_bits_f32(fr_take_u32(reader));
        out->variance = fr_bits_f32(fr_take_u32(reader));
        out->distinct = fr_take_u8(reader);
    }
    out->positive = p ? take_weight(reader, bits) : 0;
    out->negative = n ? take_weight(reader, bits) : 0;
    out->mean_positive = wide && p ? fr_bits_f32(fr_take_u32(reader)) : out->low;
    out->mean_negative = wide && n ? fr_bits_f32(fr_take_u32(reader)) : out->low;
    return !reader->failed && bits <= SPAN_BITS && isfinite(out->low) && isfinite(out->high) &&
           (!wide || (out->low < out->high && out->distinct >= 2)) && is_weight((double)out->variance) &&
           is_weight(out->positive) && is_weight(out->negative) && is_inside(out, out->mean_positive) &&
           is_inside(out, out->mean_negative);
}

bool fr_spans_parse(struct fr_spans *spans, struct fr_reader *reader)
{
    uint8_t head = fr_take_u8(reader);
    fr_spans_clear(spans);
    spans->count = head & (GUESSED - 1);
    if (head & GUESSED) {
        spans->guessed_positive = fr_take_f64(reader);
        spans->guessed_negative = fr_take_f64(reader);
    }
    if (reader->failed || spans->count == 0 || spans->count > FR_GAUC_SPANS || !is_weight(spans->guessed_positive) ||
        !is_weight(spans->guessed_negative))
        return false;
    for (uint32_t i = 0; i < spans->count; i++)
        if (!parse_span(reader, &spans->items[i]) || (i > 0 && !(spans->items[i - 1].high < spans->items[i].low)))
            return false;
    return true;
}
