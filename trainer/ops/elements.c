/* CPU backend: activations, normalisation, dropout and dense transforms.
 *
 * Elements are independent, rows are summed in lanes (lanes.h), columns down the rows in
 * ascending order: bits do not depend on vector width, on the chunk or on a row's neighbours. If
 * a function has cases, all of them are computed and one is selected, so that the loops
 * vectorise. Thread: any, no state. Whether numbers are finite is not checked. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "cpu.h"
#include "lanes.h"
#include "ops/dropout.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define LEAKY_SLOPE 0.01f
#define GELU_SCALE 0.79788456f /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715f
#define DICE_EPSILON 1e-9f

enum { COLUMNS = 64 }; /* columns whose constants are kept at hand for all rows */

/* y = f(x) over a row; y may be x. */
#define EACH(expression)                                                                                               \
    do {                                                                                                               \
        _Pragma("GCC ivdep") for (size_t j = 0; j < n; j++) y[j] = (expression);                                       \
    } while (0)

FR_IN_LINE float gelu_tanh(float x)
{
    return fr_tanhf(GELU_SCALE * (x + GELU_CUBIC * (x * x * x)));
}

FR_IN_LINE float gelu_slope(float x)
{
    float t = gelu_tanh(x);
    float inner = GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * (x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

FR_CLONES
static void dice(const struct fr_activate *c)
{
    for (size_t first = 0; first < c->n; first += COLUMNS) {
        size_t n = c->n - first < COLUMNS ? c->n - first : COLUMNS;
        const float *restrict mean = c->mean + first, *restrict alpha = c->alpha + first;
        float inverse[COLUMNS];
        for (size_t j = 0; j < n; j++)
            inverse[j] = 1.0f / sqrtf(c->variance[first + j] + DICE_EPSILON);
        for (uint32_t i = 0; i < c->m; i++) {
            const float *x = c->x.values + i * c->x.ld + first;
            float *y = c->y.values + i * c->y.ld + first;
            _Pragma("GCC ivdep") for (size_t j = 0; j < n; j++)
            {
                float p = fr_sigmoidf((x[j] - mean[j]) * inverse[j]);
                y[j] = p * x[j] + (1.0f - p) * alpha[j] * x[j];
            }
        }
    }
}

FR_CLONES
void fr_cpu_activate(const struct fr_activate *c)
{
    size_t n = c->n;
    if (fr_activation_has_statistics(c->kind)) {
        dice(c);
        return;
    }
    for (uint32_t i = 0; i < c->m; i++) {
        const float *x = c->x.values + i * c->x.ld, *alpha = c->alpha;
        float *y = c->y.values + i * c->y.ld;
        switch (c->kind) {
        case FR_ACT_NONE:
            EACH(x[j]);
            break;
        case FR_ACT_RELU:
            EACH(fr_select_f32(x[j] < 0.0f, 0.0f, x[j])); /* NaN stays NaN */
            break;
        case FR_ACT_LEAKY_RELU:
            EACH(fr_select_f32(x[j] > 0.0f, x[j], LEAKY_SLOPE * x[j]));
            break;
        case FR_ACT_SIGMOID:
            EACH(fr_sigmoidf(x[j]));
            break;
        case FR_ACT_TANH:
            EACH(fr_tanhf(x[j]));
            break;
        case FR_ACT_GELU:
            EACH(0.5f * x[j] * (1.0f + gelu_tanh(x[j])));
            break;
        case FR_ACT_PRELU:
            EACH(fr_select_f32(x[j] > 0.0f, x[j], alpha[j] * x[j]));
            break;
        case FR_ACT_DICE:
            break;
        }
    }
}

/* prelu and dice. x_gradient and alpha_gradient may both be absent. */
FR_CLONES
static void trained_slope_backward(const struct fr_activate *c)
{
    bool is_dice = fr_activation_has_statistics(c->kind);
    for (size_t first = 0; first < c->n; first += COLUMNS) {
        size_t n = c->n - first < COLUMNS ? c->n - first : COLUMNS;
        const float *restrict alpha = c->alpha + first;
        float inverse[COLUMNS], mean[COLUMNS], alpha_sum[COLUMNS] = {0}, dx[COLUMNS];
        for (size_t j = 0; j < n; j++) {
            inverse[j] = is_dice ? 1.0f / sqrtf(c->variance[first + j] + DICE_EPSILON) : 0.0f;
            mean[j] = is_dice ? c->mean[first + j] : 0.0f;
        }
        for (uint32_t i = 0; i < c->m; i++) {
            const float *restrict x = c->x.values + i * c->x.ld + first;
            const float *restrict g = c->gradient.values + i * c->gradient.ld + first;
            if (is_dice) {
                for (size_t j = 0; j < n; j++) {
                    float p = fr_sigmoidf((x[j] - mean[j]) * inverse[j]), rest = 1.0f - p;
                    dx[j] = p + rest * alpha[j] + p * rest * inverse[j] * (1.0f - alpha[j]) * x[j];
                    alpha_sum[j] += g[j] * (rest * x[j]);
                }
            } else {
                for (size_t j = 0; j < n; j++) {
                    dx[j] = fr_select_f32(x[j] > 0.0f, 1.0f, alpha[j]);
                    alpha_sum[j] += g[j] * fr_select_f32(x[j] > 0.0f, 0.0f, x[j]);
                }
            }
            float *restrict d = c->x_gradient.values ? c->x_gradient.values + i * c->x_gradient.ld + first : NULL;
            if (d)
                for (size_t j = 0; j < n; j++)
                    d[j] += g[j] * dx[j];
        }
        if (c->alpha_gradient)
            for (size_t j = 0; j < n; j++)
                c->alpha_gradient[first + j] += alpha_sum[j];
    }
}

FR_CLONES
void fr_cpu_activate_backward(const struct fr_activate *c)
{
    if (fr_activation_has_alpha(c->kind)) {
        trained_slope_backward(c);
        return;
    }
    size_t n = c->n;
    for (uint32_t i = 0; i < c->m && c->x_gradient.values; i++) {
        const float *x = c->x.values + i * c->x.ld, *v = c->y.values + i * c->y.ld;
        const float *g = c->gradient.values + i * c->gradient.ld;
        float *y = c->x_gradient.values + i * c->x_gradient.ld;
        switch (c->kind) {
        case FR_ACT_NONE:
            EACH(y[j] + g[j]);
            break;
        case FR_ACT_RELU:
            EACH(y[j] + fr_select_f32(v[j] > 0.0f, g[j], 0.0f));
            break;
        case FR_ACT_LEAKY_RELU:
            EACH(y[j] + fr_select_f32(v[j] > 0.0f, g[j], LEAKY_SLOPE * g[j]));
            break;
        case FR_ACT_SIGMOID:
            EACH(y[j] + g[j] * (v[j] * (1.0f - v[j])));
            break;
        case FR_ACT_TANH:
            EACH(y[j] + g[j] * (1.0f - v[j] * v[j]));
            break;
        case FR_ACT_GELU:
            EACH(y[j] + g[j] * gelu_slope(x[j]));
            break;
        case FR_ACT_PRELU:
        case FR_ACT_DICE:
            break;
        }
    }
}

FR_CLONES
void fr_cpu_layer_norm(const struct fr_layer_norm *c)
{
    size_t n = c->n;
    const float *restrict scale = c->scale, *restrict bias = c->bias;
    for (uint32_t i = 0; i < c->m; i++) {
        const float *x = c->x.values + i * c->x.ld;
        float *y = c->y.values + i * c->y.ld;
        float mean = fr_lanes_sum(x, n) / (float)n;
        float inverse = 1.0f / sqrtf(fr_lanes_squares(x, mean, n) / (float)n + c->epsilon);
        float *moments = c->moments.values + i * c->moments.ld;
        moments[0] = mean;
        moments[1] = inverse;
        EACH(scale[j] * ((x[j] - mean) * inverse) + bias[j]);
    }
}

/* Computes the sums over a row of g scale and of g scale (x - mean) inverse. */
FR_IN_LINE void norm_sums(const struct fr_layer_norm *c, uint32_t i, float *sum, float *along)
{
    const float *x = c->x.values + i * c->x.ld, *g = c->gradient.values + i * c->gradient.ld, *scale = c->scale;
    const float *moments = c->moments.values + i * c->moments.ld;
    float a[FR_LANES] = {0}, b[FR_LANES] = {0};
    size_t whole = c->n - c->n % FR_LANES;
    for (size_t j = 0; j < whole; j += FR_LANES) {
        for (size_t l = 0; l < FR_LANES; l++) {
            float d = g[j + l] * scale[j + l];
            a[l] += d;
            b[l] += d * ((x[j + l] - moments[0]) * moments[1]);
        }
    }
    for (size_t j = whole; j < c->n; j++) {
        float d = g[j] * scale[j];
        a[j - whole] += d;
        b[j - whole] += d * ((x[j] - moments[0]) * moments[1]);
    }
    *sum = fr_lanes_tree(a);
    *along = fr_lanes_tree(b);
}

FR_CLONES
void fr_cpu_layer_norm_backward(const struct fr_layer_norm *c)
{
    size_t n = c->n;
    const float *restrict scale = c->scale;
    float *restrict scale_gradient = c->scale_gradient, *restrict bias_gradient = c->bias_gradient;
    for (uint32_t i = 0; i < c->m; i++) {
        const float *restrict x = c->x.values + i * c->x.ld, *restrict g = c->gradient.values + i * c->gradient.ld;
        float mean = c->moments.values[i * c->moments.ld], inverse = c->moments.values[i * c->moments.ld + 1];
        if (c->x_gradient.values) {
            float *restrict d = c->x_gradient.values + i * c->x_gradient.ld, sum, along;
            norm_sums(c, i, &sum, &along);
            float share = 1.0f / (float)n;
            for (size_t j = 0; j < n; j++)
                d[j] += inverse * (g[j] * scale[j] - (sum + (x[j] - mean) * inverse * along) * share);
        }
        if (scale_gradient)
            for (size_t j = 0; j < n; j++)
                scale_gradient[j] += g[j] * ((x[j] - mean) * inverse);
        if (bias_gradient)
            for (size_t j = 0; j < n; j++)
                bias_gradient[j] += g[j];
    }
}

FR_CLONES
void fr_cpu_dropout(const struct fr_dropout *c)
{
    FR_CHECK(c->rate >= 0.0f && c->rate < 1.0f);
    uint32_t n = c->n, threshold = fr_dropout_threshold(c->rate);
    float factor = 1.0f / (1.0f - c->rate);
    for (uint32_t i = 0; i < c->m; i++) {
        const float *x = c->x.values + i * c->x.ld;
        float *y = c->y.values + i * c->y.ld;
        uint64_t row = fr_dropout_row(c, i);
        if (c->accumulate)
            EACH(y[j] + fr_select_f32(fr_dropout_bits(row, j) >= threshold, x[j] * factor, 0.0f));
        else
            EACH(fr_select_f32(fr_dropout_bits(row, j) >= threshold, x[j] * factor, 0.0f));
    }
}

FR_CLONES
void fr_cpu_bucketize(const struct fr_bucketize *c)
{
    uint32_t width = c->n_boundaries + 1;
    for (uint32_t i = 0; i < c->m; i++) {
        float *y = c->y.values + i * c->y.ld;
        memset(y, 0, (size_t)c->dim * width * sizeof(float));
        for (uint32_t d = 0; d < c->dim; d++) {
            float x = c->x.values[i * c->x.ld + d];
            x = fr_select_f32(x == x, x, c->missing);
            uint32_t bucket = 0;
            for (uint32_t k = 0; k < c->n_boundaries; k++)
                bucket += c->boundaries[k] <= x;
            y[(size_t)d * width + bucket] = 1.0f;
        }
    }
}

/* Standardizes a number that is present or filled in; returns 0 for NaN. */
static inline float standardized(float x, float mean, float variance, float limit)
{
    float v = (x - mean) / sqrtf(variance);
    v = fr_select_f32(v > limit, limit, v);
    v = fr_select_f32(v < -limit, -limit, v);
    return fr_select_f32(v == v, v, 0.0f);
}

FR_CLONES
void fr_cpu_standardize(const struct fr_standardize *c)
{
    size_t n = c->n;
    const float *restrict mean = c->mean, *restrict variance = c->variance;
    bool ready = *c->count >= c->count_min;
    for (uint32_t i = 0; i < c->m; i++) {
        const float *x = c->x.values + i * c->x.ld;
        float *y = c->y.values + i * c->y.ld;
        if (!ready)
            memset(y, 0, n * sizeof(*y));
        else
            EACH(standardized(fr_select_f32(x[j] == x[j], x[j], c->missing), mean[j], variance[j] + c->epsilon,
                              c->limit));
    }
}

FR_CLONES
void fr_cpu_fill_missing(const struct fr_fill_missing *c)
{
    size_t n = c->n;
    for (uint32_t i = 0; i < c->m; i++) {
        const float *x = c->x.values + i * c->x.ld;
        float *y = c->y.values + i * c->y.ld;
        EACH(fr_select_f32(x[j] == x[j], x[j], c->missing[j & 1]));
    }
}

void fr_cpu_mark_missing(const struct fr_mark_missing *c)
{
    for (uint32_t i = 0; i < c->m; i++) {
        float x = c->x.values[i * c->x.ld];
        c->y.values[i * c->y.ld] = x == x ? 0.0f : 1.0f;
    }
}

FR_CLONES
void fr_cpu_moments(const struct fr_moments *c)
{
    double *restrict sum = c->sum, *restrict square = c->square;
    for (uint32_t i = 0; i < c->m; i++) {
        const float *restrict x = c->x.values + i * c->x.ld;
        if (c->use && !c->use[i])
            continue;
        for (uint32_t j = 0; j < c->n; j++) {
            double v = (double)x[j];
            sum[j] += v;
            square[j] += v * v;
        }
    }
}
