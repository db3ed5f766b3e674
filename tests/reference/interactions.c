/* Reference backend: products of vectors, cross, mixture, sums over columns.
 *
 * Plain loops in double, each result rounded once when stored.
 *
 * Thread: any, no state. It does not run fast. */
#include <math.h>

#include "view.h"

static double product_without(const struct fr_interaction *c, uint32_t skipped, size_t i, size_t j)
{
    double product = 1.0;
    for (uint32_t a = 0; a < c->count; a++)
        if (a != skipped)
            product *= fr_at(c->in[a], i, j);
    return product;
}

void fr_reference_product(const struct fr_interaction *c)
{
    for (size_t i = 0; i < c->m; i++)
        for (size_t j = 0; j < c->n; j++)
            fr_put(c->out, i, j, product_without(c, c->count, i, j));
}

void fr_reference_product_backward(const struct fr_interaction *c)
{
    for (uint32_t a = 0; a < c->count; a++)
        for (size_t i = 0; i < c->m; i++)
            for (size_t j = 0; j < c->n; j++)
                fr_put_sum(c->in_gradient[a], i, j, fr_at(c->out, i, j) * product_without(c, a, i, j));
}

static double row_dot(struct fr_view a, struct fr_view b, size_t i, uint32_t n)
{
    double sum = 0.0;
    for (size_t j = 0; j < n; j++)
        sum += fr_at(a, i, j) * fr_at(b, i, j);
    return sum;
}

void fr_reference_dot_interaction(const struct fr_interaction *c)
{
    for (size_t i = 0; i < c->m; i++) {
        size_t pair = 0;
        for (uint32_t b = 1; b < c->count; b++)
            for (uint32_t a = 0; a < b; a++)
                fr_put(c->out, i, pair++, row_dot(c->in[a], c->in[b], i, c->n));
    }
}

void fr_reference_dot_interaction_backward(const struct fr_interaction *c)
{
    for (size_t i = 0; i < c->m; i++) {
        for (uint32_t a = 0; a < c->count; a++) {
            for (size_t j = 0; j < c->n; j++) {
                double sum = 0.0;
                for (size_t b = 0; b < c->count; b++) {
                    size_t low = a < b ? a : b, high = a < b ? b : a;
                    if (a != b)
                        sum += fr_at(c->out, i, high * (high - 1) / 2 + low) * fr_at(c->in[b], i, j);
                }
                fr_put_sum(c->in_gradient[a], i, j, sum);
            }
        }
    }
}

void fr_reference_cross(const struct fr_cross *c)
{
    for (size_t i = 0; i < c->m; i++)
        for (size_t j = 0; j < c->n; j++)
            fr_put(c->out, i, j, fr_at(c->x0, i, j) * fr_at(c->t, i, j) + fr_at(c->x, i, j));
}

void fr_reference_cross_backward(const struct fr_cross *c)
{
    for (size_t i = 0; i < c->m; i++) {
        for (size_t j = 0; j < c->n; j++) {
            double g = fr_at(c->out, i, j);
            fr_put_sum(c->x0_gradient, i, j, g * fr_at(c->t, i, j));
            fr_put_sum(c->t_gradient, i, j, g * fr_at(c->x0, i, j));
            fr_put_sum(c->x_gradient, i, j, g);
        }
    }
}

void fr_reference_mixture(const struct fr_mixture *c)
{
    for (size_t i = 0; i < c->m; i++) {
        double largest = fr_at(c->gates, i, 0), sum = 0.0;
        for (size_t e = 1; e < c->count; e++)
            largest = fmax(largest, fr_at(c->gates, i, e));
        for (size_t e = 0; e < c->count; e++)
            sum += exp(fr_at(c->gates, i, e) - largest);
        for (size_t e = 0; e < c->count; e++)
            fr_put(c->weights, i, e, exp(fr_at(c->gates, i, e) - largest) / sum);
        for (size_t j = 0; j < c->n; j++) {
            double mixed = 0.0;
            for (size_t e = 0; e < c->count; e++)
                mixed += exp(fr_at(c->gates, i, e) - largest) / sum * fr_at(c->experts, i, e * c->n + j);
            fr_put(c->out, i, j, mixed);
        }
    }
}

static double expert_dot(const struct fr_mixture *c, size_t i, size_t e)
{
    double sum = 0.0;
    for (size_t j = 0; j < c->n; j++)
        sum += fr_at(c->gradient, i, j) * fr_at(c->experts, i, e * c->n + j);
    return sum;
}

void fr_reference_mixture_backward(const struct fr_mixture *c)
{
    for (size_t i = 0; i < c->m; i++) {
        double mean = 0.0;
        for (size_t e = 0; e < c->count; e++)
            mean += fr_at(c->weights, i, e) * expert_dot(c, i, e);
        for (size_t e = 0; e < c->count; e++) {
            double w = fr_at(c->weights, i, e);
            fr_put_sum(c->gates_gradient, i, e, w * (expert_dot(c, i, e) - mean));
            for (size_t j = 0; j < c->n; j++)
                fr_put_sum(c->experts_gradient, i, e * c->n + j, w * fr_at(c->gradient, i, j));
        }
    }
}

void fr_reference_row_sum(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    for (size_t i = 0; i < m; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < n; j++)
            sum += fr_at(in, i, j);
        fr_put(out, i, 0, sum);
    }
}

void fr_reference_row_sum_backward(uint32_t m, uint32_t n, struct fr_view gradient, struct fr_view in_gradient)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            fr_put_sum(in_gradient, i, j, fr_at(gradient, i, 0));
}
