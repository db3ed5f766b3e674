/* CPU backend: ragged sequences: pooling over steps, attention, auxiliary losses.
 *
 * Entries are computed one by one, with steps in ascending order and vectorised columns. Sums
 * over a row use lanes (lanes.h). An entry's bits do not depend on its chunk or its neighbours.
 * Thread: any, no state. Neither finite numbers nor offsets are checked. */
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "cpu.h"
#include "lanes.h"
#include "ops/pooling.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

FR_IN_LINE bool is_masked(const struct fr_steps *steps, uint32_t p)
{
    return steps->masked && steps->masked[p];
}

FR_IN_LINE float *row_at(struct fr_view v, size_t row)
{
    return v.values + row * v.ld;
}

FR_IN_LINE void add_scaled(float *restrict d, float scale, const float *restrict a, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        d[j] += scale * a[j];
}

/* Pools by a choice: each column has a step of its own. */
static void pool_chosen(const struct fr_pool_steps *c, uint32_t e, float *out)
{
    for (uint32_t j = 0; j < c->width; j++) {
        uint32_t p = fr_pooling_chosen_step(c, e, j);
        out[j] = p < c->steps.begin[e + 1] ? row_at(c->in, p)[j] : 0.0f;
    }
}

static void add_to_chosen(const struct fr_pool_steps *c, uint32_t e, const float *g)
{
    for (uint32_t j = 0; j < c->width; j++) {
        uint32_t p = fr_pooling_chosen_step(c, e, j);
        if (p < c->steps.begin[e + 1])
            row_at(c->in_gradient, p)[j] += g[j];
    }
}

FR_CLONES
void fr_cpu_pool_steps(const struct fr_pool_steps *c)
{
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        float *restrict out = row_at(c->out, e - c->steps.entry_begin);
        uint32_t begin = c->steps.begin[e], end = c->steps.begin[e + 1];
        float scale = fr_pooling_scale(c->kind, NULL, begin, end);
        memset(out, 0, c->width * sizeof(float));
        if (fr_pooling_chooses(c->kind)) {
            pool_chosen(c, e, out);
            continue;
        }
        for (uint32_t p = begin; p < end; p++)
            if (fr_pooling_takes_step(c, p, end))
                add_scaled(out, scale, row_at(c->in, p), c->width);
    }
}

FR_CLONES
void fr_cpu_pool_steps_backward(const struct fr_pool_steps *c)
{
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end && c->in_gradient.values; e++) {
        const float *g = row_at(c->out, e - c->steps.entry_begin);
        uint32_t begin = c->steps.begin[e], end = c->steps.begin[e + 1];
        float scale = fr_pooling_scale(c->kind, NULL, begin, end);
        if (fr_pooling_chooses(c->kind)) {
            add_to_chosen(c, e, g);
            continue;
        }
        for (uint32_t p = begin; p < end; p++)
            if (fr_pooling_takes_step(c, p, end))
                add_scaled(row_at(c->in_gradient, p), scale, g, c->width);
    }
}

FR_CLONES
void fr_cpu_softmax_steps(const struct fr_softmax_steps *c)
{
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        uint32_t begin = c->steps.begin[e], end = c->steps.begin[e + 1];
        float largest = -INFINITY, sum = 0.0f;
        for (uint32_t p = begin; p < end; p++) {
            float x = *row_at(c->in, p);
            largest = !is_masked(&c->steps, p) && x > largest ? x : largest;
        }
        for (uint32_t p = begin; p < end; p++) {
            float x = is_masked(&c->steps, p) ? 0.0f : fr_expf(*row_at(c->in, p) - largest);
            *row_at(c->out, p) = x;
            sum += x;
        }
        for (uint32_t p = begin; p < end; p++)
            *row_at(c->out, p) = is_masked(&c->steps, p) ? 0.0f : *row_at(c->out, p) / sum;
    }
}

void fr_cpu_softmax_steps_backward(const struct fr_softmax_steps *c)
{
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end && c->in_gradient.values; e++) {
        uint32_t begin = c->steps.begin[e], end = c->steps.begin[e + 1];
        float mean = 0.0f;
        for (uint32_t p = begin; p < end; p++)
            mean += is_masked(&c->steps, p) ? 0.0f : *row_at(c->out, p) * *row_at(c->gradient, p);
        for (uint32_t p = begin; p < end; p++)
            if (!is_masked(&c->steps, p))
                *row_at(c->in_gradient, p) += *row_at(c->out, p) * (*row_at(c->gradient, p) - mean);
    }
}

FR_CLONES
void fr_cpu_attention_pool(const struct fr_attention_pool *c)
{
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        float *restrict out = row_at(c->out, e - c->steps.entry_begin);
        memset(out, 0, c->width * sizeof(float));
        for (uint32_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++)
            if (!is_masked(&c->steps, p))
                add_scaled(out, *row_at(c->scores, p), row_at(c->keys, p), c->width);
    }
}

FR_CLONES
void fr_cpu_attention_pool_backward(const struct fr_attention_pool *c)
{
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        const float *g = row_at(c->out, e - c->steps.entry_begin);
        for (uint32_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++) {
            if (is_masked(&c->steps, p))
                continue;
            if (c->scores_gradient.values)
                *row_at(c->scores_gradient, p) += fr_lanes_dot(g, row_at(c->keys, p), c->width);
            if (c->keys_gradient.values)
                add_scaled(row_at(c->keys_gradient, p), *row_at(c->scores, p), g, c->width);
        }
    }
}

FR_CLONES
void fr_cpu_dot_steps(const struct fr_dot_steps *c)
{
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        const float *q = row_at(c->query, e - c->steps.entry_begin);
        for (uint32_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++)
            *row_at(c->out, p) = fr_lanes_dot(q, row_at(c->keys, p), c->width);
    }
}

FR_CLONES
void fr_cpu_dot_steps_backward(const struct fr_dot_steps *c)
{
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        uint32_t row = e - c->steps.entry_begin;
        for (uint32_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++) {
            float g = *row_at(c->out, p);
            if (c->keys_gradient.values)
                add_scaled(row_at(c->keys_gradient, p), g, row_at(c->query, row), c->width);
            if (c->query_gradient.values)
                add_scaled(row_at(c->query_gradient, row), g, row_at(c->keys, p), c->width);
        }
    }
}

/* ---- auxiliary losses ---- */

FR_CLONES
double fr_cpu_mse_pair(const struct fr_mse_pair *c)
{
    double total = 0.0;
    for (uint32_t i = 0; i < c->m; i++) {
        if (!c->trained[i])
            continue;
        const float *a = row_at(c->a, i), *b = row_at(c->b, i);
        total += 0.5 * (double)fr_lanes_distance(a, b, c->n);
        if (c->a_gradient.values) {
            float *d = row_at(c->a_gradient, i);
            for (uint32_t j = 0; j < c->n; j++)
                d[j] += c->scale * (a[j] - b[j]);
        }
        if (c->b_gradient.values) {
            float *d = row_at(c->b_gradient, i);
            for (uint32_t j = 0; j < c->n; j++)
                d[j] -= c->scale * (a[j] - b[j]);
        }
    }
    return total;
}

/* Returns the row of `other` that is `back` steps before its entry's end; UINT32_MAX: there is
 * none, or it is masked. */
FR_IN_LINE uint32_t row_from_end(const struct fr_steps *other, uint32_t e, uint32_t back)
{
    uint32_t begin = other->begin[e], end = other->begin[e + 1];
    return end - begin < back || is_masked(other, end - back) ? UINT32_MAX : end - back;
}

/* Whether step p of entry e, which has a next step, counts; gets the rows of the positive and
 * the negative of the next step. */
FR_IN_LINE bool next_rows(const struct fr_next_step *c, uint32_t e, uint32_t p, uint32_t *positive, uint32_t *negative)
{
    uint32_t back = c->states_steps.begin[e + 1] - p - 1;
    *positive = row_from_end(&c->positive_steps, e, back);
    *negative = row_from_end(&c->negative_steps, e, back);
    return !is_masked(&c->states_steps, p) && *positive != UINT32_MAX && *negative != UINT32_MAX;
}

/* Returns softplus(-h . e) for the positive of step p in `row`, or softplus(h . e) for its
 * negative, and adds the derivatives. */
FR_IN_LINE double next_term(const struct fr_next_step *c, float scale, uint32_t p, bool positive, uint32_t row)
{
    struct fr_view gradient = positive ? c->positives_gradient : c->negatives_gradient;
    const float *h = row_at(c->states, p), *x = row_at(positive ? c->positives : c->negatives, row);
    float sign = positive ? -1.0f : 1.0f;
    float z = sign * fr_lanes_dot(h, x, c->width);
    float d = scale * sign * fr_sigmoidf(z);
    if (c->states_gradient.values)
        add_scaled(row_at(c->states_gradient, p), d, x, c->width);
    if (gradient.values)
        add_scaled(row_at(gradient, row), d, h, c->width);
    return (double)fr_softplusf(z);
}

FR_CLONES
double fr_cpu_next_step(const struct fr_next_step *c)
{
    bool counts_only = !c->states_gradient.values && !c->positives_gradient.values && !c->negatives_gradient.values;
    double total = 0.0;
    for (uint32_t e = c->states_steps.entry_begin; e < c->states_steps.entry_end; e++) {
        uint32_t begin = c->states_steps.begin[e], end = c->states_steps.begin[e + 1], positive, negative, count = 0;
        for (uint32_t p = begin; p + 1 < end && c->trained[e]; p++)
            count += next_rows(c, e, p, &positive, &negative);
        c->counts[e] = count;
        if (count == 0 || counts_only)
            continue;
        double sum = 0.0;
        for (uint32_t p = begin; p + 1 < end; p++) {
            if (!next_rows(c, e, p, &positive, &negative))
                continue;
            sum += next_term(c, c->scale / (float)count, p, true, positive);
            sum += next_term(c, c->scale / (float)count, p, false, negative);
        }
        total += sum / (double)count;
    }
    return total;
}
