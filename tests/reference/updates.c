/* Reference backend: updates of rows and dense parameters in double, each result rounded once.
 *
 * Written from the papers, independently of ops/row.h on purpose: a mistake there must show. State
 * is kept in f32 as everywhere, so every step starts from what the last one rounded.
 *
 * Thread: any, no state. It does not run fast. */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/math.h"
#include "view.h"

/* Gradient of element i of one part, summed over its trained occurrences; returns how many trained
 * samples they are. */
static uint32_t row_gradient(const struct fr_row_update *u, uint32_t unique, uint32_t part, uint32_t i,
                             double *gradient)
{
    uint32_t count = 0;
    double sum = 0.0;
    for (uint32_t o = u->occ_begin[unique]; o < u->occ_begin[unique + 1]; o++) {
        struct fr_occurrence at = fr_occurrence_at(u, o);
        bool counted = false;
        for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
            const struct fr_row_source *s = &u->sources[k];
            if (s->part != part || s->trained[at.entry] == 0)
                continue;
            uint32_t id = u->occ[o] - s->first;
            if (s->masked && s->masked[id])
                continue;
            double coef = s->weights ? (double)s->weights[id] : 1.0;
            struct fr_reference_pooling pooling = fr_reference_pooling(s->pooling, 1.0, 1.0);
            if (pooling.scaled)
                coef *= (double)s->kept[at.entry];
            if (pooling.sign != 0 && fr_f32_bits(s->kept[at.entry * u->parts[part].dim + i]) != id)
                coef = 0.0;
            size_t row = s->by_id ? id : at.entry;
            sum += coef * (double)s->gradient.values[row * s->gradient.ld + i];
            count += counted ? 0 : s->counted[at.entry];
            counted = true;
        }
    }
    *gradient = sum;
    return count;
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
    return o->kind == FR_OPT_FTRL || o->kind == FR_OPT_GROUP_FTRL;
}

/* g: the mean gradient of a unit; returns what the rule sees, summed over the units. */
static double shaped(const struct fr_optimizer *o, double g, double w, double units)
{
    if (o->clip_value > 0.0f)
        g = fmax(-(double)o->clip_value, fmin((double)o->clip_value, g));
    if (!is_ftrl(o))
        g += (double)o->l2 * w + (double)o->l1 * (double)((w > 0.0) - (w < 0.0));
    return fmax(-(double)FR_GRADIENT_MAX, fmin((double)FR_GRADIENT_MAX, g * units));
}

/* ---- rules for one element; square: what stands for s^2 ---- */

struct element {
    float *w, *state0, *state1;
    double s, square;
    double units, rate;             /* rate: of the step, damped */
    double first_left, second_left; /* adam*: 1 - beta^t */
};

static void step_adam(const struct fr_optimizer *o, const struct element *e)
{
    double w = (double)*e->w, lr = (double)o->lr, k = e->units;
    if (o->kind == FR_OPT_ADAMW)
        w *= fmax(0.0, 1.0 - lr * k * (double)o->weight_decay);
    double keep1 = pow((double)o->beta1, k), keep2 = pow((double)o->beta2, k);
    double m = keep1 * (double)*e->state0 + (1.0 - keep1) * e->s / k;
    double v = keep2 * (double)*e->state1 + (1.0 - keep2) * e->square / k;
    *e->state0 = moment(m);
    if (o->kind != FR_OPT_ADAM_ROWWISE)
        *e->state1 = moment(v);
    double step = lr * k * (m / e->first_left) / (sqrt(v / e->second_left) + (double)o->eps);
    *e->w = narrow(w - step, (double)FR_VALUE_MAX);
}

static double ftrl_rate(const struct fr_optimizer *o, double n)
{
    return ((double)o->beta + sqrt(n)) / (double)o->lr + (double)o->l2;
}

/* z and n; returns z moved towards 0 by l1. `stretch`: of a first z, by which a group's penalty
 * shortens it. */
static double step_ftrl_state(const struct fr_optimizer *o, const struct element *e, bool first, double stretch)
{
    double w = (double)*e->w, z = (double)*e->state0;
    if (first) {
        z = -w * ftrl_rate(o, 0.0) * stretch;
        z -= (double)o->l1 * (double)((w > 0.0) - (w < 0.0));
    }
    double n = (double)*e->state1, n_new = n + e->s * e->s;
    z += e->s - (sqrt(n_new) - sqrt(n)) / (double)o->lr * w;
    *e->state0 = narrow(z, (double)FR_STATE_MAX);
    *e->state1 = narrow(n_new, (double)FR_STATE_MAX);
    return fabs(z) <= (double)o->l1 ? 0.0 : z - copysign((double)o->l1, z);
}

static float ftrl_value(const struct fr_optimizer *o, double z, float n)
{
    return z == 0.0 ? 0.0f : narrow(-z / ftrl_rate(o, (double)n), (double)FR_VALUE_MAX);
}

static double accumulated(const struct fr_optimizer *o, double acc, double units, double square)
{
    return acc * (o->keep > 0.0 ? pow(o->keep, units) : 1.0) + square;
}

static void step_element(const struct fr_optimizer *o, const struct element *e)
{
    double w = (double)*e->w, lr = (double)o->lr, by = 0.0;
    switch (o->kind) {
    case FR_OPT_SGD:
        by = e->rate * e->s;
        break;
    case FR_OPT_MOMENTUM: {
        double keep = pow((double)o->momentum, e->units);
        double b = keep * (double)*e->state0 + (1.0 - keep) / (1.0 - (double)o->momentum) * e->s / e->units;
        *e->state0 = moment(b);
        by = e->rate * e->units * b;
        break;
    }
    case FR_OPT_ADAGRAD:
    case FR_OPT_ADAGRAD_ROWWISE: {
        double acc = accumulated(o, (double)*e->state0, e->units, e->square);
        if (o->kind == FR_OPT_ADAGRAD)
            *e->state0 = narrow(acc, (double)FR_STATE_MAX);
        by = lr * e->s / (sqrt(acc) + (double)o->eps);
        break;
    }
    case FR_OPT_RMSPROP: {
        double keep = pow((double)o->rho, e->units);
        double v = keep * (double)*e->state0 + (1.0 - keep) * e->square / e->units;
        *e->state0 = moment(v);
        by = lr * e->s / (sqrt(v) + (double)o->eps);
        break;
    }
    case FR_OPT_ADAM:
    case FR_OPT_ADAM_ROWWISE:
    case FR_OPT_ADAMW:
        step_adam(o, e);
        return;
    case FR_OPT_FTRL: {
        double z = step_ftrl_state(o, e, *e->state1 == 0.0f, 1.0);
        *e->w = ftrl_value(o, z, *e->state1);
        return;
    }
    case FR_OPT_GROUP_FTRL: /* update_group_ftrl */
        return;
    }
    *e->w = narrow(w - by, (double)FR_VALUE_MAX);
}

/* ---- rows ---- */

static void update_group_ftrl(const struct fr_row_part *part, float *w, float *state, const double *s)
{
    const struct fr_optimizer *o = &part->optimizer;
    double *z = fr_alloc(part->dim, sizeof(*z)), norm = 0.0, first_norm = 0.0;
    double threshold = sqrt((double)part->dim) * (double)o->l21;
    bool first = true;
    for (uint32_t i = 0; i < part->dim; i++) {
        first &= state[part->dim + i] == 0.0f;
        first_norm += (double)w[i] * (double)w[i];
    }
    first_norm = sqrt(first_norm) * ftrl_rate(o, 0.0);
    double stretch = first_norm > 0.0 ? 1.0 + threshold / first_norm : 1.0;
    for (uint32_t i = 0; i < part->dim; i++) {
        struct element e = {.w = &w[i], .state0 = &state[i], .state1 = &state[part->dim + i], .s = s[i]};
        z[i] = step_ftrl_state(o, &e, first, stretch);
        norm += z[i] * z[i];
    }
    norm = sqrt(norm);
    double factor = threshold == 0.0 ? 1.0 : norm <= threshold ? 0.0 : 1.0 - threshold / norm;
    for (uint32_t i = 0; i < part->dim; i++)
        w[i] = ftrl_value(o, z[i] * factor, state[part->dim + i]);
    free(z);
}

static void update_elements(const struct fr_row_part *part, float *w, float *state, const double *s, uint32_t count)
{
    const struct fr_optimizer *o = &part->optimizer;
    uint32_t dim = part->dim;
    bool by_row = o->kind == FR_OPT_ADAGRAD_ROWWISE || o->kind == FR_OPT_ADAM_ROWWISE;
    double mean = 0.0, step = o->kind == FR_OPT_MOMENTUM ? 1.0 - (double)o->momentum : 1.0;
    for (uint32_t i = 0; i < dim; i++)
        mean += s[i] * s[i] / (double)dim;
    struct element e = {.units = (double)count,
                        .rate = (double)o->lr / (1.0 + (double)o->lr / step * ((double)count - 1.0) / 4.0),
                        .state0 = state, /* of a row-wise kind: as they are */
                        .state1 = state + dim};
    if (o->kind == FR_OPT_ADAM || o->kind == FR_OPT_ADAM_ROWWISE) {
        float *age = &state[fr_row_state_floats(o->kind, dim) - 1];
        *age += (float)count;
        e.first_left = 1.0 - pow((double)o->beta1, (double)*age);
        e.second_left = 1.0 - pow((double)o->beta2, (double)*age);
    }
    for (uint32_t i = 0; i < dim; i++) {
        e.w = &w[i];
        e.s = s[i];
        e.square = by_row ? mean : s[i] * s[i];
        if (o->kind != FR_OPT_ADAGRAD_ROWWISE)
            e.state0 = state + i;
        if (!by_row)
            e.state1 = state + dim + i;
        step_element(o, &e);
    }
    if (o->kind == FR_OPT_ADAGRAD_ROWWISE)
        *state = narrow(accumulated(o, (double)*state, e.units, mean), (double)FR_STATE_MAX);
    if (o->kind == FR_OPT_ADAM_ROWWISE) {
        double keep = pow((double)o->beta2, e.units);
        state[dim] = moment(keep * (double)state[dim] + (1.0 - keep) * mean / e.units);
    }
}

static void update_part(const struct fr_row_update *u, uint32_t unique, uint32_t p)
{
    const struct fr_row_part *part = &u->parts[p];
    float *w = u->rows[unique] + part->value_offset, *state = u->rows[unique] + part->state_offset;
    double *s = fr_alloc(part->dim, sizeof(*s)), squares = 0.0;
    uint32_t count = 1;
    for (uint32_t i = 0; i < part->dim && count > 0; i++) {
        count = row_gradient(u, unique, p, i, &s[i]);
        squares += s[i] * s[i];
    }
    if (count > 0) {
        double limit = (double)part->optimizer.clip_norm, norm = sqrt(squares) / (double)count;
        double scale = limit > 0.0 && norm > limit ? limit / norm : 1.0;
        for (uint32_t i = 0; i < part->dim; i++)
            s[i] = shaped(&part->optimizer, s[i] / (double)count * scale, (double)w[i], (double)count);
        if (part->optimizer.kind == FR_OPT_GROUP_FTRL)
            update_group_ftrl(part, w, state, s);
        else
            update_elements(part, w, state, s, count);
    }
    free(s);
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
            for (uint32_t i = 0; i < u->parts[p].dim && row_gradient(u, unique, p, i, &g) > 0; i++) {
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

/* Of the pace it reads what the rule cannot know: units, scales, and the corrections of adam's
 * age. */
void fr_reference_update_dense(const struct fr_dense_update *u)
{
    const struct fr_optimizer *o = &u->optimizer;
    float none = 0.0f; /* in place of state the rule does not have */
    double units = (double)u->pace.units;
    for (size_t i = 0; i < u->n; i++) {
        struct element e = {.w = &u->values[i],
                            .state0 = u->state0 ? &u->state0[i] : &none,
                            .state1 = u->state1 ? &u->state1[i] : &none,
                            .units = units,
                            .rate = (double)o->lr,
                            .first_left = (double)o->lr * units / (double)u->pace.rate,
                            .second_left = 1.0 / ((double)u->pace.second_scale * (double)u->pace.second_scale)};
        double gradient = (double)u->gradient[i];
        e.s = fr_shapes_gradient(o) ? shaped(o, gradient * (double)u->pace.mean_scale, (double)u->values[i], units)
                                    : gradient * (double)u->pace.scale;
        e.square = e.s * e.s;
        step_element(o, &e);
    }
}
