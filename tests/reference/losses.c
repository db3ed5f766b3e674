/* Reference backend: losses of tasks in double with libm, written from their definitions (ops.h),
 * each in a stable form.
 *
 * Thread: any, no state. It does not run fast, or give equal bits on every libm. */
#include <math.h>

#include "view.h"

static double softplus(double z)
{
    return fmax(z, 0.0) + log1p(exp(-fabs(z)));
}

static double sigmoid(double z)
{
    return z >= 0.0 ? 1.0 / (1.0 + exp(-z)) : exp(z) / (1.0 + exp(z));
}

static bool counts(const struct fr_loss *loss, size_t i)
{
    return loss->trained[i] && !isnan(loss->labels[i]);
}

static void add_gradient(const struct fr_loss *loss, size_t i, double slope)
{
    double step = (double)loss->scale * (double)loss->weights[i] * slope;
    loss->gradient[i] = (float)((double)loss->gradient[i] + step);
}

double fr_reference_logloss(const struct fr_loss *loss)
{
    double total = 0.0;
    for (size_t i = 0; i < loss->n; i++) {
        if (!counts(loss, i))
            continue;
        double z = (double)loss->z[i], y = (double)loss->labels[i];
        total += (double)loss->weights[i] * (fmax(z, 0.0) - y * z + log1p(exp(-fabs(z))));
        add_gradient(loss, i, sigmoid(z) - y);
    }
    return total;
}

double fr_reference_mse(const struct fr_loss *loss)
{
    double total = 0.0;
    for (size_t i = 0; i < loss->n; i++) {
        if (!counts(loss, i))
            continue;
        double d = (double)loss->z[i] - (double)loss->labels[i];
        total += (double)loss->weights[i] / 2.0 * d * d;
        add_gradient(loss, i, d);
    }
    return total;
}

double fr_reference_focal(const struct fr_loss *loss)
{
    double total = 0.0, gamma = (double)loss->gamma, alpha = (double)loss->alpha;
    for (size_t i = 0; i < loss->n; i++) {
        if (!counts(loss, i))
            continue;
        double z = (double)loss->z[i], y = (double)loss->labels[i], p = sigmoid(z), q = sigmoid(-z);
        double log_p = -softplus(-z), log_q = -softplus(z);
        total += (double)loss->weights[i] *
                 (-alpha * pow(q, gamma) * y * log_p - (1.0 - alpha) * pow(p, gamma) * (1.0 - y) * log_q);
        double positive = alpha * y * pow(q, gamma) * (gamma * p * log_p - q);
        double negative = (1.0 - alpha) * (1.0 - y) * pow(p, gamma) * (p - gamma * q * log_q);
        add_gradient(loss, i, positive + negative);
    }
    return total;
}

double fr_reference_pairwise(const struct fr_pair_loss *c)
{
    double total = 0.0;
    for (size_t i = 0; i < c->n; i++)
        c->sums[i] = 0.0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t lower = c->lower[i], count = lower < c->partners ? lower : c->partners;
        for (uint32_t turn = 0; turn < count; turn++) {
            uint32_t j = fr_pair_partner(lower, count, i, turn), high = c->order[i], low = c->order[j];
            double apart = (double)c->z[high] - (double)c->z[low];
            double w = (double)c->weights[high] * (double)c->weights[low] * (double)lower / (double)count;
            total += w * softplus(-apart);
            c->sums[i] -= w * sigmoid(-apart);
            c->sums[j] += w * sigmoid(-apart);
        }
    }
    for (size_t i = 0; i < c->n; i++) {
        float *g = &c->gradient[c->order[i]];
        *g = (float)((double)*g + (double)c->scale * (double)c->group_scale * c->sums[i]);
    }
    return (double)c->group_scale * total;
}

/* log(e^S - 1), S = sum of softplus(-z): S in double resolves z up to 700; beyond, log S by the
 * largest term. */
static double log_inverse_odds(uint32_t count, const float *const *z, size_t i, double *surprise)
{
    double smallest = INFINITY, sum = 0.0, relative = 0.0;
    for (uint32_t k = 0; k < count; k++) {
        smallest = fmin(smallest, (double)z[k][i]);
        sum += softplus(-(double)z[k][i]);
    }
    for (uint32_t k = 0; k < count; k++)
        relative += exp(smallest - (double)z[k][i]);
    *surprise = sum;
    if (smallest > 40.0)
        return log(relative) - smallest;
    return sum > 1.0 ? sum + log1p(-exp(-sum)) : log(expm1(sum));
}

void fr_reference_product_logit(uint32_t n, uint32_t count, const float *const *z, float *out)
{
    double surprise;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)-log_inverse_odds(count, z, i, &surprise);
}

double fr_reference_product_logloss(const struct fr_product_loss *loss)
{
    double total = 0.0;
    for (size_t i = 0; i < loss->n; i++) {
        if (!loss->trained[i] || isnan(loss->labels[i]))
            continue;
        double y = (double)loss->labels[i], w = (double)loss->weights[i], surprise;
        double inverse = log_inverse_odds(loss->count, loss->z, i, &surprise);
        /* -log(1 - p) = softplus of the logit */
        total += w * (y * surprise + (1.0 - y) * softplus(-inverse));
        for (uint32_t k = 0; k < loss->count; k++) {
            double z = (double)loss->z[k][i], log_miss = -softplus(z); /* of sigmoid(-z) */
            double slope = (1.0 - y) * exp(log_miss - inverse) - y * exp(log_miss);
            float *g = &loss->gradient[k][i];
            *g = (float)((double)*g + (double)loss->scale * w * slope);
        }
    }
    return total;
}
