/* Reference backend: layer operations on vectors: moving rows, element by element, interactions.
 *
 * Plain loops in double, each result rounded once when stored; libm's functions, so that a mistake
 * in base/math.h shows.
 *
 * Thread: any, no state. It does not run fast. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "ops/dropout.h"
#include "view.h"

void fr_reference_gather_steps(const struct fr_gather_steps *c)
{
    for (size_t p = c->begin; p < c->end; p++) {
        const float *row = c->rows[c->unique_of[p]];
        c->masked[p] = row == NULL;
        for (size_t i = 0; i < c->dim; i++)
            fr_put(c->out, p, i,
                   row ? (c->weights ? (double)c->weights[p] : 1.0) * (double)row[c->value_offset + i] : 0.0);
    }
}

void fr_reference_expand(const struct fr_expand *c)
{
    for (size_t r = c->begin; r < c->end; r++)
        for (size_t j = 0; j < c->width; j++)
            c->out.values[r * c->out.ld + j] = c->in.values[c->source[r] * c->in.ld + j];
}

void fr_reference_collapse(const struct fr_collapse *c)
{
    for (size_t g = c->begin; g < c->end; g++) {
        for (size_t j = 0; j < c->width; j++) {
            double sum = 0.0;
            for (size_t s = c->group_begin[g]; s < c->group_begin[g + 1]; s++)
                sum += fr_at(c->in, s, j);
            fr_put_sum(c->out, g, j, sum);
        }
    }
}

void fr_reference_collapse_steps(const struct fr_collapse_steps *c)
{
    for (size_t g = c->begin; g < c->end; g++) {
        for (size_t p = c->steps_begin[g]; p < c->steps_begin[g + 1]; p++) {
            for (size_t j = 0; j < c->width; j++) {
                double sum = 0.0;
                for (size_t s = c->group_begin[g]; s < c->group_begin[g + 1]; s++)
                    sum += fr_at(c->in, c->expanded_begin[s] + (p - c->steps_begin[g]), j);
                fr_put_sum(c->out, p, j, sum);
            }
        }
    }
}

/* Row of `from` beside step t of `to`; negative: none. */
static ptrdiff_t aligned_row(const struct fr_align *c, size_t e, size_t t)
{
    ptrdiff_t to = (ptrdiff_t)(c->to_begin[e + 1] - c->to_begin[e]);
    ptrdiff_t from = (ptrdiff_t)(c->from_begin[e + 1] - c->from_begin[e]);
    ptrdiff_t step = (ptrdiff_t)t + from - to;
    return step < 0 ? -1 : (ptrdiff_t)c->from_begin[e] + step;
}

void fr_reference_align(const struct fr_align *c)
{
    for (size_t e = c->entry_begin; e < c->entry_end; e++) {
        for (size_t p = c->to_begin[e]; p < c->to_begin[e + 1]; p++) {
            ptrdiff_t row = aligned_row(c, e, p - c->to_begin[e]);
            for (size_t j = 0; j < c->width; j++)
                fr_put(c->to, p, j, row < 0 ? 0.0 : fr_at(c->from, (size_t)row, j));
        }
    }
}

void fr_reference_align_backward(const struct fr_align *c)
{
    for (size_t e = c->entry_begin; e < c->entry_end; e++) {
        for (size_t p = c->to_begin[e]; p < c->to_begin[e + 1]; p++) {
            ptrdiff_t row = aligned_row(c, e, p - c->to_begin[e]);
            for (size_t j = 0; j < c->width && row >= 0; j++)
                fr_put_sum(c->from, (size_t)row, j, fr_at(c->to, p, j));
        }
    }
}

/* ---- element by element ---- */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* What gelu takes the hyperbolic tangent of, and its derivative. */
static double gelu_inner(double x, double *derivative)
{
    double scale = sqrt(2.0 / acos(-1.0));
    *derivative = scale * (1.0 + 3.0 * 0.044715 * x * x);
    return scale * (x + 0.044715 * x * x * x);
}

static double dice_gate(const struct fr_activate *c, double x, size_t j, double *inverse)
{
    *inverse = 1.0 / sqrt((double)c->variance[j] + 1e-9);
    return sigmoid((x - (double)c->mean[j]) * *inverse);
}

static double activated(const struct fr_activate *c, double x, size_t j)
{
    double alpha = c->alpha ? (double)c->alpha[j] : 0.0, scratch;
    switch (c->kind) {
    case FR_ACT_NONE:
        return x;
    case FR_ACT_RELU:
        return x < 0.0 ? 0.0 : x;
    case FR_ACT_LEAKY_RELU:
        return x > 0.0 ? x : (double)0.01f * x;
    case FR_ACT_SIGMOID:
        return sigmoid(x);
    case FR_ACT_TANH:
        return tanh(x);
    case FR_ACT_GELU:
        return 0.5 * x * (1.0 + tanh(gelu_inner(x, &scratch)));
    case FR_ACT_PRELU:
        return x > 0.0 ? x : alpha * x;
    case FR_ACT_DICE: {
        double p = dice_gate(c, x, j, &scratch);
        return p * x + (1.0 - p) * alpha * x;
    }
    }
    return 0.0;
}

void fr_reference_activate(const struct fr_activate *c)
{
    for (size_t i = 0; i < c->m; i++)
        for (size_t j = 0; j < c->n; j++)
            fr_put(c->y, i, j, activated(c, fr_at(c->x, i, j), j));
}

/* Derivative by x, and by alpha_j, of element (i, j); of y where y says it all, as x may have been
 * overwritten. */
static double activated_derivative(const struct fr_activate *c, size_t i, size_t j, double *by_alpha)
{
    double y = fr_at(c->y, i, j), x = fr_at(c->x, i, j), alpha = c->alpha ? (double)c->alpha[j] : 0.0, factor;
    *by_alpha = 0.0;
    switch (c->kind) {
    case FR_ACT_NONE:
        return 1.0;
    case FR_ACT_RELU:
        return y > 0.0 ? 1.0 : 0.0;
    case FR_ACT_LEAKY_RELU:
        return y > 0.0 ? 1.0 : (double)0.01f;
    case FR_ACT_SIGMOID:
        return y * (1.0 - y);
    case FR_ACT_TANH:
        return 1.0 - y * y;
    case FR_ACT_GELU: {
        double t = tanh(gelu_inner(x, &factor));
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * factor;
    }
    case FR_ACT_PRELU:
        *by_alpha = x > 0.0 ? 0.0 : x;
        return x > 0.0 ? 1.0 : alpha;
    case FR_ACT_DICE: {
        double p = dice_gate(c, x, j, &factor);
        *by_alpha = (1.0 - p) * x;
        return p + (1.0 - p) * alpha + p * (1.0 - p) * factor * (1.0 - alpha) * x;
    }
    }
    return 0.0;
}

void fr_reference_activate_backward(const struct fr_activate *c)
{
    for (size_t j = 0; j < c->n; j++) {
        double alpha_sum = 0.0;
        for (size_t i = 0; i < c->m; i++) {
            double by_alpha, by_x = activated_derivative(c, i, j, &by_alpha);
            fr_put_sum(c->x_gradient, i, j, fr_at(c->gradient, i, j) * by_x);
            alpha_sum += fr_at(c->gradient, i, j) * by_alpha;
        }
        if (fr_activation_has_alpha(c->kind))
            fr_put_sum((struct fr_view){c->alpha_gradient, c->n}, 0, j, alpha_sum);
    }
}

void fr_reference_layer_norm(const struct fr_layer_norm *c)
{
    for (size_t i = 0; i < c->m; i++) {
        double sum = 0.0, squares = 0.0;
        for (size_t j = 0; j < c->n; j++)
            sum += fr_at(c->x, i, j);
        double mean = sum / (double)c->n;
        for (size_t j = 0; j < c->n; j++)
            squares += (fr_at(c->x, i, j) - mean) * (fr_at(c->x, i, j) - mean);
        double inverse = 1.0 / sqrt(squares / (double)c->n + (double)c->epsilon);
        for (size_t j = 0; j < c->n; j++)
            fr_put(c->y, i, j, (double)c->scale[j] * (fr_at(c->x, i, j) - mean) * inverse + (double)c->bias[j]);
        fr_put(c->moments, i, 0, mean);
        fr_put(c->moments, i, 1, inverse);
    }
}

void fr_reference_layer_norm_backward(const struct fr_layer_norm *c)
{
    for (size_t i = 0; i < c->m; i++) {
        double mean = fr_at(c->moments, i, 0), inverse = fr_at(c->moments, i, 1), sum = 0.0, along = 0.0;
        for (size_t j = 0; j < c->n; j++) {
            double g = fr_at(c->gradient, i, j) * (double)c->scale[j];
            sum += g;
            along += g * (fr_at(c->x, i, j) - mean) * inverse;
        }
        for (size_t j = 0; j < c->n; j++) {
            double hat = (fr_at(c->x, i, j) - mean) * inverse, g = fr_at(c->gradient, i, j);
            fr_put_sum(c->x_gradient, i, j, inverse * (g * (double)c->scale[j] - (sum + hat * along) / (double)c->n));
        }
    }
    for (size_t j = 0; j < c->n; j++) {
        double scale_sum = 0.0, bias_sum = 0.0;
        for (size_t i = 0; i < c->m; i++) {
            double hat = (fr_at(c->x, i, j) - fr_at(c->moments, i, 0)) * fr_at(c->moments, i, 1);
            scale_sum += fr_at(c->gradient, i, j) * hat;
            bias_sum += fr_at(c->gradient, i, j);
        }
        fr_put_sum((struct fr_view){c->scale_gradient, c->n}, 0, j, scale_sum);
        fr_put_sum((struct fr_view){c->bias_gradient, c->n}, 0, j, bias_sum);
    }
}

void fr_reference_dropout(const struct fr_dropout *c)
{
    FR_CHECK(c->rate >= 0.0f && c->rate < 1.0f);
    float factor = 1.0f / (1.0f - c->rate);
    for (uint32_t i = 0; i < c->m; i++) {
        for (uint32_t j = 0; j < c->n; j++) {
            bool kept = fr_dropout_bits(fr_dropout_row(c, i), j) >= fr_dropout_threshold(c->rate);
            float x = kept ? c->x.values[i * c->x.ld + j] * factor : 0.0f, *y = &c->y.values[i * c->y.ld + j];
            *y = c->accumulate ? *y + x : x;
        }
    }
}

static double present(struct fr_view x, size_t i, size_t j, double missing)
{
    return isnan(fr_at(x, i, j)) ? missing : fr_at(x, i, j);
}

void fr_reference_bucketize(const struct fr_bucketize *c)
{
    size_t width = (size_t)c->n_boundaries + 1;
    for (size_t i = 0; i < c->m; i++) {
        for (size_t d = 0; d < c->dim; d++) {
            size_t bucket = 0;
            double x = present(c->x, i, d, (double)c->missing);
            for (size_t k = 0; k < c->n_boundaries; k++)
                bucket += (double)c->boundaries[k] <= x;
            for (size_t k = 0; k < width; k++)
                fr_put(c->y, i, d * width + k, k == bucket ? 1.0 : 0.0);
        }
    }
}

void fr_reference_standardize(const struct fr_standardize *c)
{
    double limit = (double)c->limit;
    for (size_t i = 0; i < c->m; i++) {
        for (size_t j = 0; j < c->n; j++) {
            double x = present(c->x, i, j, (double)c->missing);
            double v = (x - (double)c->mean[j]) / sqrt((double)c->variance[j] + (double)c->epsilon);
            bool known = *c->count >= c->count_min && !isnan(x);
            fr_put(c->y, i, j, !known ? 0.0 : v > limit ? limit : v < -limit ? -limit : v);
        }
    }
}

void fr_reference_fill_missing(const struct fr_fill_missing *c)
{
    for (size_t i = 0; i < c->m; i++)
        for (size_t j = 0; j < c->n; j++)
            fr_put(c->y, i, j, present(c->x, i, j, (double)c->missing[j % 2]));
}

void fr_reference_mark_missing(const struct fr_mark_missing *c)
{
    for (size_t i = 0; i < c->m; i++)
        fr_put(c->y, i, 0, isnan(fr_at(c->x, i, 0)) ? 1.0 : 0.0);
}

void fr_reference_moments(const struct fr_moments *c)
{
    for (size_t i = 0; i < c->m; i++) {
        for (size_t j = 0; j < c->n && (!c->use || c->use[i]); j++) {
            c->sum[j] += fr_at(c->x, i, j);
            c->square[j] += fr_at(c->x, i, j) * fr_at(c->x, i, j);
        }
    }
}
