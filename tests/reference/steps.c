/* Reference backend: sequences: pooling, attention, recurrence, auxiliary losses.
 *
 * Plain loops in double, each result rounded once when stored (states of a recurrence and what it
 * carries back are stored at each step).
 *
 * Thread: any, no state. It does not run fast. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "view.h"

static bool masked(const struct fr_steps *steps, size_t p)
{
    return steps->masked && steps->masked[p];
}

/* Whether step p of entry e is the one that counts in column j, where one counts alone. */
static bool is_chosen(const struct fr_pool_steps *c, size_t e, size_t p, size_t j, int sign)
{
    bool chosen = true;
    for (size_t q = c->steps.begin[e]; q < c->steps.begin[e + 1]; q++) {
        double more = (fr_at(c->in, q, j) - fr_at(c->in, p, j)) * (double)sign;
        chosen &= masked(&c->steps, q) || q == p || (q < p ? more < 0.0 : more <= 0.0);
    }
    return chosen;
}

/* What column j of a step's row counts in the pooled row of its entry. */
static double pool_weight(const struct fr_pool_steps *c, size_t e, size_t p, size_t j)
{
    size_t end = c->steps.begin[e + 1];
    double n = (double)(end - c->steps.begin[e]);
    struct fr_reference_pooling pooling = fr_reference_pooling(c->kind, n, n);
    if (pooling.newest)
        return p + 1 == end ? 1.0 : 0.0;
    if (masked(&c->steps, p) || (pooling.sign != 0 && !is_chosen(c, e, p, j, pooling.sign)))
        return 0.0;
    return pooling.scale;
}

void fr_reference_pool_steps(const struct fr_pool_steps *c)
{
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        for (size_t j = 0; j < c->width; j++) {
            double sum = 0.0;
            for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++) {
                double w = pool_weight(c, e, p, j);
                if (w != 0.0)
                    sum += w * fr_at(c->in, p, j);
            }
            fr_put(c->out, e - c->steps.entry_begin, j, sum);
        }
    }
}

void fr_reference_pool_steps_backward(const struct fr_pool_steps *c)
{
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++) {
            for (size_t j = 0; j < c->width; j++) {
                double w = pool_weight(c, e, p, j);
                if (w != 0.0)
                    fr_put_sum(c->in_gradient, p, j, w * fr_at(c->out, e - c->steps.entry_begin, j));
            }
        }
    }
}

/* The entries' steps, from the first one. */
static size_t first_step(const struct fr_attention_dense *c)
{
    return c->steps.begin[c->steps.entry_begin];
}

static size_t count_steps(const struct fr_attention_dense *c)
{
    return c->steps.begin[c->steps.entry_end] - first_step(c);
}

/* [q, k, q - k, q o k] of every step; the caller frees it. */
static double *attended(const struct fr_attention_dense *c)
{
    size_t width = c->width;
    double *all = fr_alloc(count_steps(c) * 4 * width, sizeof(*all)), *x = all;
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++)
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++, x += 4 * width)
            for (size_t j = 0; j < width; j++) {
                double q = fr_at(c->query, e - c->steps.entry_begin, j), k = fr_at(c->keys, p, j);
                x[j] = q;
                x[width + j] = k;
                x[2 * width + j] = q - k;
                x[3 * width + j] = q * k;
            }
    return all;
}

static double weight(const struct fr_attention_dense *c, size_t i, size_t o)
{
    return (double)c->kernel[i * c->units + o];
}

size_t fr_reference_attention_workspace(uint32_t width, uint32_t units)
{
    (void)width, (void)units;
    return 0;
}

void fr_reference_attention_dense(const struct fr_attention_dense *c)
{
    size_t width = 4 * (size_t)c->width;
    double *inputs = attended(c);
    for (size_t s = 0; s < count_steps(c); s++) {
        for (size_t o = 0; o < c->units; o++) {
            double sum = c->bias ? (double)c->bias[o] : 0.0;
            for (size_t i = 0; i < width; i++)
                sum += inputs[s * width + i] * weight(c, i, o);
            fr_put(c->out, first_step(c) + s, o, c->relu && sum < 0.0 ? 0.0 : sum);
        }
    }
    free(inputs);
}

/* Gradient of output o of step p, before its relu. */
static double before_relu(const struct fr_attention_dense *c, size_t p, size_t o)
{
    return c->relu && !(fr_at(c->out, p, o) > 0.0) ? 0.0 : fr_at(c->gradient, p, o);
}

static void step_backward(const struct fr_attention_dense *c, size_t e, size_t p, double *query)
{
    double *gradient = fr_alloc(c->units, sizeof(*gradient));
    for (size_t o = 0; o < c->units; o++)
        gradient[o] = before_relu(c, p, o);
    for (size_t j = 0; j < c->width; j++) {
        double part[4] = {0.0}, q = fr_at(c->query, e - c->steps.entry_begin, j), k = fr_at(c->keys, p, j);
        for (size_t i = 0; i < 4; i++)
            for (size_t o = 0; o < c->units; o++)
                part[i] += gradient[o] * weight(c, i * c->width + j, o);
        query[j] += part[0] + part[2] + part[3] * k;
        fr_put_sum(c->keys_gradient, p, j, part[1] - part[2] + part[3] * q);
    }
    free(gradient);
}

static void parameters_backward(const struct fr_attention_dense *c)
{
    size_t width = 4 * (size_t)c->width, n_steps = count_steps(c);
    double *inputs = attended(c), *gradient = fr_alloc(n_steps, sizeof(*gradient));
    for (size_t o = 0; o < c->units; o++) {
        for (size_t s = 0; s < n_steps; s++)
            gradient[s] = before_relu(c, first_step(c) + s, o);
        for (size_t i = 0; i <= width; i++) {
            double sum = 0.0;
            for (size_t s = 0; s < n_steps; s++)
                sum += gradient[s] * (i < width ? inputs[s * width + i] : 1.0);
            if (i < width && c->kernel_gradient)
                c->kernel_gradient[i * c->units + o] += (float)sum;
            if (i == width && c->bias_gradient)
                c->bias_gradient[o] += (float)sum;
        }
    }
    free(inputs);
    free(gradient);
}

void fr_reference_attention_dense_backward(const struct fr_attention_dense *c)
{
    double *query = fr_alloc(c->width, sizeof(*query));
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        memset(query, 0, c->width * sizeof(*query));
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++)
            step_backward(c, e, p, query);
        for (size_t j = 0; j < c->width; j++)
            fr_put_sum(c->query_gradient, e - c->steps.entry_begin, j, query[j]);
    }
    parameters_backward(c);
    free(query);
}

void fr_reference_softmax_steps(const struct fr_softmax_steps *c)
{
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        double largest = -INFINITY, sum = 0.0;
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++)
            if (!masked(&c->steps, p))
                largest = fmax(largest, fr_at(c->in, p, 0));
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++)
            if (!masked(&c->steps, p))
                sum += exp(fr_at(c->in, p, 0) - largest);
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++)
            fr_put(c->out, p, 0, masked(&c->steps, p) ? 0.0 : exp(fr_at(c->in, p, 0) - largest) / sum);
    }
}

void fr_reference_softmax_steps_backward(const struct fr_softmax_steps *c)
{
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        double mean = 0.0;
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++)
            if (!masked(&c->steps, p))
                mean += fr_at(c->out, p, 0) * fr_at(c->gradient, p, 0);
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++)
            if (!masked(&c->steps, p))
                fr_put_sum(c->in_gradient, p, 0, fr_at(c->out, p, 0) * (fr_at(c->gradient, p, 0) - mean));
    }
}

void fr_reference_attention_pool(const struct fr_attention_pool *c)
{
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        for (size_t j = 0; j < c->width; j++) {
            double sum = 0.0;
            for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++)
                if (!masked(&c->steps, p))
                    sum += fr_at(c->scores, p, 0) * fr_at(c->keys, p, j);
            fr_put(c->out, e - c->steps.entry_begin, j, sum);
        }
    }
}

void fr_reference_attention_pool_backward(const struct fr_attention_pool *c)
{
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++) {
            double sum = 0.0;
            for (size_t j = 0; j < c->width && !masked(&c->steps, p); j++) {
                double g = fr_at(c->out, e - c->steps.entry_begin, j);
                sum += g * fr_at(c->keys, p, j);
                fr_put_sum(c->keys_gradient, p, j, g * fr_at(c->scores, p, 0));
            }
            if (!masked(&c->steps, p))
                fr_put_sum(c->scores_gradient, p, 0, sum);
        }
    }
}

void fr_reference_dot_steps(const struct fr_dot_steps *c)
{
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++) {
            double sum = 0.0;
            for (size_t j = 0; j < c->width; j++)
                sum += fr_at(c->keys, p, j) * fr_at(c->query, e - c->steps.entry_begin, j);
            fr_put(c->out, p, 0, sum);
        }
    }
}

void fr_reference_dot_steps_backward(const struct fr_dot_steps *c)
{
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        size_t row = e - c->steps.entry_begin;
        for (size_t j = 0; j < c->width; j++) {
            double sum = 0.0;
            for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++) {
                sum += fr_at(c->out, p, 0) * fr_at(c->keys, p, j);
                fr_put_sum(c->keys_gradient, p, j, fr_at(c->out, p, 0) * fr_at(c->query, row, j));
            }
            fr_put_sum(c->query_gradient, row, j, sum);
        }
    }
}

/* ---- auxiliary losses ---- */

double fr_reference_mse_pair(const struct fr_mse_pair *c)
{
    double total = 0.0;
    for (size_t i = 0; i < c->m; i++) {
        for (size_t j = 0; j < c->n && c->trained[i]; j++) {
            double difference = fr_at(c->a, i, j) - fr_at(c->b, i, j);
            total += 0.5 * difference * difference;
            fr_put_sum(c->a_gradient, i, j, (double)c->scale * difference);
            fr_put_sum(c->b_gradient, i, j, -(double)c->scale * difference);
        }
    }
    return total;
}

/* Row of `other` beside step t of entry e of the states, newest to newest; negative: none or
 * masked. */
static ptrdiff_t partner(const struct fr_steps *states, const struct fr_steps *other, size_t e, size_t t)
{
    ptrdiff_t length = (ptrdiff_t)(states->begin[e + 1] - states->begin[e]);
    ptrdiff_t step = (ptrdiff_t)t - length + (ptrdiff_t)(other->begin[e + 1] - other->begin[e]);
    if (step < 0 || masked(other, other->begin[e] + (size_t)step))
        return -1;
    return (ptrdiff_t)other->begin[e] + step;
}

/* softplus(-h . e) for the positive of step p in `row`, softplus(h . e) for its negative; adds the
 * derivatives. */
static double next_term(const struct fr_next_step *c, double scale, size_t p, bool positive, size_t row)
{
    struct fr_view other = positive ? c->positives : c->negatives;
    double sign = positive ? -1.0 : 1.0, dot = 0.0;
    for (size_t j = 0; j < c->width; j++)
        dot += fr_at(c->states, p, j) * fr_at(other, row, j);
    double z = sign * dot, d = scale * sign / (1.0 + exp(-z));
    for (size_t j = 0; j < c->width; j++) {
        fr_put_sum(c->states_gradient, p, j, d * fr_at(other, row, j));
        fr_put_sum(positive ? c->positives_gradient : c->negatives_gradient, row, j, d * fr_at(c->states, p, j));
    }
    return fmax(z, 0.0) + log1p(exp(-fabs(z)));
}

/* Steps of entry e that count; with `sum` their losses are added to *sum and derivatives to
 * gradients. */
static uint32_t next_steps(const struct fr_next_step *c, size_t e, double scale, double *sum)
{
    size_t begin = c->states_steps.begin[e], end = c->states_steps.begin[e + 1];
    uint32_t count = 0;
    for (size_t p = begin; p + 1 < end && c->trained[e]; p++) {
        ptrdiff_t positive = partner(&c->states_steps, &c->positive_steps, e, p + 1 - begin);
        ptrdiff_t negative = partner(&c->states_steps, &c->negative_steps, e, p + 1 - begin);
        if (masked(&c->states_steps, p) || positive < 0 || negative < 0)
            continue;
        count++;
        if (!sum)
            continue;
        *sum += next_term(c, scale, p, true, (size_t)positive);
        *sum += next_term(c, scale, p, false, (size_t)negative);
    }
    return count;
}

double fr_reference_next_step(const struct fr_next_step *c)
{
    bool counts_only = !c->states_gradient.values && !c->positives_gradient.values && !c->negatives_gradient.values;
    double total = 0.0;
    for (size_t e = c->states_steps.entry_begin; e < c->states_steps.entry_end; e++) {
        uint32_t count = next_steps(c, e, 0.0, NULL);
        c->counts[e] = count;
        if (count == 0 || counts_only)
            continue;
        double sum = 0.0;
        (void)next_steps(c, e, (double)c->scale / (double)count, &sum);
        total += sum / (double)count;
    }
    return total;
}
