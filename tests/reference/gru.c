/* Reference backend: GRU and AUGRU forward and back through time, entry by entry, step by step.
 *
 * Equations of struct fr_gru. States of a step are read as they were stored; everything within a
 * step is double.
 *
 * Thread: any, no state. It does not run fast. */
#include <math.h>
#include <string.h>

#include "view.h"

/* State k before step p. */
static double before(const struct fr_gru *c, size_t e, size_t p, size_t k)
{
    return p == c->steps.begin[e] ? 0.0 : fr_at(c->states, p - 1, k);
}

/* Column j of h U + c at step p. */
static double recurrent(const struct fr_gru *c, size_t e, size_t p, size_t j)
{
    double sum = (double)c->bias[j];
    for (size_t k = 0; k < c->units; k++)
        sum += before(c, e, p, k) * (double)c->kernel[k * 3 * c->units + j];
    return sum;
}

static double score(const struct fr_gru *c, size_t p)
{
    return c->scores.values ? fr_at(c->scores, p, 0) : 1.0;
}

size_t fr_reference_gru_workspace(const struct fr_steps *steps, uint32_t units)
{
    (void)steps;
    return 5 * (size_t)units;
}

void fr_reference_gru(const struct fr_gru *c)
{
    size_t u = c->units;
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        for (size_t p = c->steps.begin[e]; p < c->steps.begin[e + 1]; p++) {
            bool there = !c->steps.masked || !c->steps.masked[p];
            for (size_t j = 0; j < u; j++) {
                double r = 0.0, z = 0.0, n = 0.0, q = 0.0, h = before(c, e, p, j), step = 0.0;
                if (there) {
                    r = 1.0 / (1.0 + exp(-(fr_at(c->input, p, j) + recurrent(c, e, p, j))));
                    z = 1.0 / (1.0 + exp(-(fr_at(c->input, p, u + j) + recurrent(c, e, p, u + j))));
                    q = recurrent(c, e, p, 2 * u + j);
                    n = tanh(fr_at(c->input, p, 2 * u + j) + r * q);
                    step = score(c, p) * (1.0 - z);
                }
                fr_put(c->gates, p, j, r);
                fr_put(c->gates, p, u + j, z);
                fr_put(c->gates, p, 2 * u + j, n);
                fr_put(c->gates, p, 3 * u + j, q);
                fr_put(c->states, p, j, there ? (1.0 - step) * h + step * n : h);
            }
        }
    }
}

/* Gradients of what the gates of step p were made from, from that of the state after it (in
 * `carry`, which becomes the part of the state before it that does not go through the kernel): of
 * i_r, i_z, i_n into the input's gradient, of h U + c into `products`. */
static void gates_backward(const struct fr_gru *c, size_t e, size_t p, float *carry, float *products)
{
    size_t u = c->units;
    double score_sum = 0.0;
    for (size_t j = 0; j < u; j++) {
        double r = fr_at(c->gates, p, j), z = fr_at(c->gates, p, u + j);
        double n = fr_at(c->gates, p, 2 * u + j), q = fr_at(c->gates, p, 3 * u + j);
        double step = score(c, p) * (1.0 - z), g = (double)carry[j];
        double d_step = g * (n - before(c, e, p, j));
        double d_n = g * step * (1.0 - n * n);
        double d_z = -score(c, p) * d_step * z * (1.0 - z);
        double d_r = d_n * q * r * (1.0 - r);
        score_sum += d_step * (1.0 - z);
        fr_put_sum(c->input_gradient, p, j, d_r);
        fr_put_sum(c->input_gradient, p, u + j, d_z);
        fr_put_sum(c->input_gradient, p, 2 * u + j, d_n);
        products[j] = (float)d_r;
        products[u + j] = (float)d_z;
        products[2 * u + j] = (float)(d_n * r);
        carry[j] = (float)(g * (1.0 - step));
    }
    fr_put_sum(c->scores_gradient, p, 0, score_sum);
}

void fr_reference_gru_backward(const struct fr_gru *c)
{
    size_t u = c->units;
    float *carry = c->workspace, *products = c->workspace + u, *through = c->workspace + 4 * u;
    struct fr_view kernel = {c->kernel_gradient, 3 * u}, bias = {c->bias_gradient, 3 * u};
    for (size_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        memset(carry, 0, u * sizeof(float));
        for (size_t p = c->steps.begin[e + 1]; p-- > c->steps.begin[e];) {
            for (size_t j = 0; j < u; j++)
                carry[j] = (float)((double)carry[j] + fr_at(c->gradient, p, j));
            if (c->steps.masked && c->steps.masked[p])
                continue;
            gates_backward(c, e, p, carry, products);
            for (size_t k = 0; k < u; k++) {
                double sum = 0.0;
                for (size_t j = 0; j < 3 * u; j++) {
                    sum += (double)products[j] * (double)c->kernel[k * 3 * u + j];
                    fr_put_sum(kernel, k, j, before(c, e, p, k) * (double)products[j]);
                }
                through[k] = (float)sum;
            }
            for (size_t j = 0; j < 3 * u; j++)
                fr_put_sum(bias, 0, j, (double)products[j]);
            for (size_t k = 0; k < u; k++)
                carry[k] = (float)((double)carry[k] + (double)through[k]);
        }
    }
}
