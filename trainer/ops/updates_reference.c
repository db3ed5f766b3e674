/* Reference backend: updates of rows and dense parameters in double, each result rounded once.
 *
 * Written from the papers, independently of ops/row.h on purpose: a mistake there must show. State is kept in f32 as
 * everywhere, so every step starts from what the last one rounded. Thread: any, no state. Does not: run fast. */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/math.h"
#include "learning.h"

/* Gradient of element i of one part; false when no trained occurrence reaches the part. */
static bool row_gradient(const struct fr_row_update *u, uint32_t unique, uint32_t part, uint32_t i, double *gradient)
{
    bool reached = false;
    double sum = 0.0;
    for (uint32_t o = u->occ_begin[unique]; o < u->occ_begin[unique + 1]; o++) {
        struct fr_occurrence at = u->occurrences[u->occ[o]];
        for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
            const struct fr_row_source *s = &u->sources[k];
            if (s->part != part || !s->trained[at.entry])
                continue;
            uint32_t id = u->occ[o] - s->first;
            double coef = (s->weights ? (double)s->weights[id] : 1.0) * (s->scale ? (double)s->scale[at.entry] : 1.0);
            size_t row = s->by_id ? id : at.entry;
            sum += coef * (double)s->gradient.values[row * s->gradient.ld + i];
            reached = true;
        }
    }
    *gradient = sum;
    return reached;
}

static float narrow(double x, double bound)
{
    return (float)fmax(-bound, fmin(bound, x));
}

static float moment(double x)
{
    return fabs(x) < (double)FR_MOMENT_FLUSH ? 0.0f : (float)x;
}

static bool is_ftrl(const struct fr_optimizer *o)
{
    return o->kind == FR_UPDATE_FTRL || o->kind == FR_UPDATE_GROUP_FTRL;
}

static double shaped(const struct fr_optimizer *o, double g, double w, double scale)
{
    g *= scale;
    if (o->clip_value > 0.0f)
        g = fmax(-(double)o->clip_value, fmin((double)o->clip_value, g));
    if (!is_ftrl(o))
        g += (double)o->l2 * w + (double)o->l1 * (double)((w > 0.0) - (w < 0.0));
    return fmax(-(double)FR_GRADIENT_MAX, fmin((double)FR_GRADIENT_MAX, g));
}

/* ---- rules for one element; squares: what stands for g^2 ---- */

struct element {
    float *w, *state0, *state1;
    double g, square;
    double step_size, second_scale; /* adam */
};

static void step_adam(const struct fr_optimizer *o, const struct element *e)
{
    double w = (double)*e->w;
    if (o->kind == FR_UPDATE_ADAMW)
        w -= (double)o->lr * (double)o->weight_decay * w;
    double m = (double)o->beta1 * (double)*e->state0 + (double)(1.0f - o->beta1) * e->g;
    double v = (double)o->beta2 * (double)*e->state1 + (double)(1.0f - o->beta2) * e->square;
    *e->state0 = moment(m);
    if (o->kind != FR_UPDATE_ADAM_ROWWISE)
        *e->state1 = moment(v);
    *e->w = narrow(w - e->step_size * m / (sqrt(v) * e->second_scale + (double)o->eps), (double)FR_VALUE_MAX);
}

/* z and n; returns z moved towards 0 by l1. */
static double step_ftrl_state(const struct fr_optimizer *o, const struct element *e)
{
    double n = (double)*e->state1, n_new = n + e->g * e->g;
    double z = (double)*e->state0 + e->g - (sqrt(n_new) - sqrt(n)) / (double)o->lr * (double)*e->w;
    *e->state0 = narrow(z, (double)FR_STATE_MAX);
    *e->state1 = narrow(n_new, (double)FR_STATE_MAX);
    return fabs(z) <= (double)o->l1 ? 0.0 : z - copysign((double)o->l1, z);
}

static float ftrl_value(const struct fr_optimizer *o, double z, float n)
{
    double rate = ((double)o->beta + sqrt((double)n)) / (double)o->lr + (double)o->l2;
    return z == 0.0 ? 0.0f : narrow(-z / rate, (double)FR_VALUE_MAX);
}

static void step_element(const struct fr_optimizer *o, const struct element *e)
{
    double w = (double)*e->w, lr = (double)o->lr, by = 0.0;
    switch (o->kind) {
    case FR_UPDATE_SGD:
        by = lr * e->g;
        break;
    case FR_UPDATE_MOMENTUM: {
        double b = (double)o->momentum * (double)*e->state0 + e->g;
        *e->state0 = moment(b);
        by = lr * b;
        break;
    }
    case FR_UPDATE_ADAGRAD:
    case FR_UPDATE_ADAGRAD_ROWWISE: {
        double acc = (double)*e->state0 + e->square;
        if (o->kind == FR_UPDATE_ADAGRAD)
            *e->state0 = narrow(acc, (double)FR_STATE_MAX);
        by = lr * e->g / (sqrt(acc) + (double)o->eps);
        break;
    }
    case FR_UPDATE_RMSPROP: {
        double s = (double)o->rho * (double)*e->state0 + (double)(1.0f - o->rho) * e->square;
        *e->state0 = moment(s);
        by = lr * e->g / (sqrt(s) + (double)o->eps);
        break;
    }
    case FR_UPDATE_ADAM:
    case FR_UPDATE_ADAM_ROWWISE:
    case FR_UPDATE_ADAMW:
        step_adam(o, e);
        return;
    case FR_UPDATE_FTRL: {
        double z = step_ftrl_state(o, e);
        *e->w = ftrl_value(o, z, *e->state1);
        return;
    }
    case FR_UPDATE_GROUP_FTRL: /* update_group_ftrl */
        return;
    }
    *e->w = narrow(w - by, (double)FR_VALUE_MAX);
}

/* ---- rows ---- */

static void update_group_ftrl(const struct fr_row_part *part, float *w, float *state, const double *g)
{
    const struct fr_optimizer *o = &part->optimizer;
    double *z = fr_alloc(part->dim, sizeof(*z)), norm = 0.0;
    for (uint32_t i = 0; i < part->dim; i++) {
        struct element e = {.w = &w[i], .state0 = &state[i], .state1 = &state[part->dim + i], .g = g[i]};
        z[i] = step_ftrl_state(o, &e);
        norm += z[i] * z[i];
    }
    norm = sqrt(norm);
    double threshold = sqrt((double)part->dim) * (double)o->l21;
    double factor = threshold == 0.0 ? 1.0 : norm <= threshold ? 0.0 : 1.0 - threshold / norm;
    for (uint32_t i = 0; i < part->dim; i++)
        w[i] = ftrl_value(o, z[i] * factor, state[part->dim + i]);
    free(z);
}

static void update_elements(const struct fr_row_part *part, float *w, float *state, const double *g)
{
    const struct fr_optimizer *o = &part->optimizer;
    uint32_t dim = part->dim;
    bool by_row = o->kind == FR_UPDATE_ADAGRAD_ROWWISE || o->kind == FR_UPDATE_ADAM_ROWWISE;
    double mean = 0.0;
    for (uint32_t i = 0; i < dim; i++)
        mean += g[i] * g[i] / (double)dim;
    struct element e = {.state0 = state, .state1 = state + dim}; /* of a row-wise kind: as they are */
    if (o->kind == FR_UPDATE_ADAM || o->kind == FR_UPDATE_ADAM_ROWWISE) {
        float *steps = &state[fr_row_state_floats(o->kind, dim) - 1];
        *steps += 1.0f;
        e.step_size = (double)o->lr / (1.0 - pow((double)o->beta1, (double)*steps));
        e.second_scale = 1.0 / sqrt(1.0 - pow((double)o->beta2, (double)*steps));
    }
    for (uint32_t i = 0; i < dim; i++) {
        e.w = &w[i];
        e.g = g[i];
        e.square = by_row ? mean : g[i] * g[i];
        if (o->kind != FR_UPDATE_ADAGRAD_ROWWISE)
            e.state0 = state + i;
        if (!by_row)
            e.state1 = state + dim + i;
        step_element(o, &e);
    }
    if (o->kind == FR_UPDATE_ADAGRAD_ROWWISE)
        *state = narrow((double)*state + mean, (double)FR_STATE_MAX);
    if (o->kind == FR_UPDATE_ADAM_ROWWISE)
        state[dim] = moment((double)o->beta2 * (double)state[dim] + (double)(1.0f - o->beta2) * mean);
}

static void update_part(const struct fr_row_update *u, uint32_t unique, uint32_t p)
{
    const struct fr_row_part *part = &u->parts[p];
    float *w = u->rows[unique] + part->value_offset, *state = u->rows[unique] + part->state_offset;
    double *g = fr_alloc(part->dim, sizeof(*g)), squares = 0.0;
    bool reached = true;
    for (uint32_t i = 0; i < part->dim && reached; i++) {
        reached = row_gradient(u, unique, p, i, &g[i]);
        squares += g[i] * g[i];
    }
    if (reached) {
        double limit = (double)part->optimizer.clip_norm;
        double scale = limit > 0.0 && sqrt(squares) > limit ? limit / sqrt(squares) : 1.0;
        for (uint32_t i = 0; i < part->dim; i++)
            g[i] = shaped(&part->optimizer, g[i], (double)w[i], scale);
        if (part->optimizer.kind == FR_UPDATE_GROUP_FTRL)
            update_group_ftrl(part, w, state, g);
        else
            update_elements(part, w, state, g);
    }
    free(g);
}

void fr_reference_update_rows(const struct fr_row_update *u)
{
    for (uint32_t unique = u->begin; unique < u->end; unique++)
        for (uint32_t p = 0; p < u->n_parts && u->rows[unique]; p++)
            update_part(u, unique, p);
}

uint32_t fr_reference_check_rows(const struct fr_row_update *u)
{
    uint32_t largest = 0;
    for (uint32_t unique = u->begin; unique < u->end; unique++) {
        for (uint32_t p = 0; p < u->n_parts && u->rows[unique]; p++) {
            double g;
            for (uint32_t i = 0; i < u->parts[p].dim && row_gradient(u, unique, p, i, &g); i++) {
                uint32_t bits = fr_f32_bits((float)fabs(g));
                if (bits > largest)
                    largest = bits;
            }
        }
    }
    return largest;
}

/* ---- dense ---- */

double fr_reference_sum_squares(size_t n, const float *x)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

void fr_reference_update_dense(const struct fr_dense_update *u)
{
    float none = 0.0f; /* in place of state the rule does not have */
    for (size_t i = 0; i < u->n; i++) {
        struct element e = {.w = &u->values[i],
                            .state0 = u->state0 ? &u->state0[i] : &none,
                            .state1 = u->state1 ? &u->state1[i] : &none,
                            .step_size = (double)u->step_size,
                            .second_scale = (double)u->second_scale};
        bool as_it_is = u->optimizer.clip_norm == 0.0f;
        e.g = shaped(&u->optimizer, (double)u->gradient[i], (double)u->values[i],
                     as_it_is ? 1.0 : (double)u->gradient_scale);
        e.square = e.g * e.g;
        step_element(&u->optimizer, &e);
    }
}
