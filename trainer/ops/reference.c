/* Reference backend: the meaning of each operation in plain loops with double accumulation. The parity suite holds
 * every other backend against it; finite differences are taken through it.
 *
 * Each result is computed in double from f32 inputs and rounded once. Written independently of the shared row
 * mathematics on purpose: a mistake in ops/row.h must show. Thread: any, no state. Does not: run fast. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "ops/ops.h"

static size_t unpacked(uint32_t rows, uint32_t columns)
{
    (void)rows, (void)columns;
    return 0;
}

static void pack_nothing(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end)
{
    (void)right, (void)row_begin, (void)row_end;
}

static double element(const struct fr_operand *x, size_t i, size_t j)
{
    return (double)(x->transposed ? x->values[j * x->ld + i] : x->values[i * x->ld + j]);
}

static void multiply(const struct fr_multiply *product)
{
    const struct fr_operand *left = product->left, *right = product->right;
    FR_CHECK(left->columns == right->rows && product->row_end <= left->rows);
    for (size_t i = product->row_begin; i < product->row_end; i++) {
        for (size_t j = 0; j < right->columns; j++) {
            float *out = &product->out.values[i * product->out.ld + j];
            double sum = product->accumulate ? (double)*out : 0.0;
            for (size_t k = 0; k < right->rows; k++)
                sum += element(left, i, k) * element(right, k, j);
            *out = (float)sum;
        }
    }
}

static void gather(const struct fr_gather *g)
{
    for (size_t s = g->sample_begin; s < g->sample_end; s++) {
        double weights = 0.0;
        for (uint32_t p = g->begin[s]; p < g->begin[s + 1]; p++)
            weights += g->weights ? (double)g->weights[p] : 1.0;
        double scale = !g->mean ? 1.0 : weights == 0.0 ? 0.0 : 1.0 / weights;
        if (g->mean)
            g->scale[s] = (float)scale;
        for (size_t i = 0; i < g->dim; i++) {
            double sum = 0.0;
            for (uint32_t p = g->begin[s]; p < g->begin[s + 1]; p++) {
                const float *row = g->rows[g->unique_of[p]];
                if (row)
                    sum += (g->weights ? (double)g->weights[p] : 1.0) * scale * (double)row[g->value_offset + i];
            }
            g->out.values[s * g->out.ld + i] = (float)sum;
        }
    }
}

static void copy(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            out.values[i * out.ld + j] = in.values[i * in.ld + j];
}

static void add(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            out.values[i * out.ld + j] = (float)((double)out.values[i * out.ld + j] + (double)in.values[i * in.ld + j]);
}

static void bias_activate(uint32_t m, uint32_t n, struct fr_view y, const float *bias, bool relu)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double z = (double)y.values[i * y.ld + j] + (double)bias[j];
            y.values[i * y.ld + j] = relu && z < 0.0 ? 0.0f : (float)z;
        }
    }
}

static void relu_backward(uint32_t m, uint32_t n, struct fr_view y, struct fr_view gradient)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            if (!(y.values[i * y.ld + j] > 0.0f))
                gradient.values[i * gradient.ld + j] = 0.0f;
}

static void bias_gradient(uint32_t m, uint32_t n, struct fr_view gradient, float *out)
{
    for (size_t j = 0; j < n; j++) {
        double sum = 0.0;
        for (size_t i = 0; i < m; i++)
            sum += (double)gradient.values[i * gradient.ld + j];
        out[j] = (float)sum;
    }
}

static void bi_interaction(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in, struct fr_view out)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0.0, squares = 0.0;
            for (uint32_t a = 0; a < count; a++) {
                double v = (double)in[a].values[i * in[a].ld + j];
                sum += v;
                squares += v * v;
            }
            out.values[i * out.ld + j] = (float)(0.5 * (sum * sum - squares));
        }
    }
}

static void bi_interaction_backward(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in,
                                    struct fr_view gradient, const struct fr_view *in_gradient)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0.0, g = (double)gradient.values[i * gradient.ld + j];
            for (uint32_t a = 0; a < count; a++)
                sum += (double)in[a].values[i * in[a].ld + j];
            for (uint32_t a = 0; a < count; a++) {
                if (!in_gradient[a].values)
                    continue;
                float *d = &in_gradient[a].values[i * in_gradient[a].ld + j];
                *d = (float)((double)*d + g * (sum - (double)in[a].values[i * in[a].ld + j]));
            }
        }
    }
}

static double logloss(const struct fr_logloss *loss)
{
    double total = 0.0;
    for (size_t i = 0; i < loss->n; i++) {
        if (!loss->trained[i] || isnan(loss->labels[i]))
            continue;
        double z = (double)loss->logits.values[i * loss->logits.ld], y = (double)loss->labels[i];
        double w = (double)loss->weights[i];
        total += w * (fmax(z, 0.0) - y * z + log1p(exp(-fabs(z))));
        float *g = &loss->gradient.values[i * loss->gradient.ld];
        *g = (float)((double)*g + (double)loss->scale * w * (1.0 / (1.0 + exp(-z)) - y));
    }
    return total;
}

static uint32_t max_bits(uint32_t m, uint32_t n, struct fr_view x)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            uint32_t bits = fr_f32_bits(fabsf(x.values[i * x.ld + j]));
            if (bits > largest)
                largest = bits;
        }
    }
    return largest;
}

/* Gradient of element i of one part; false when no trained occurrence reaches the part. */
static bool row_gradient(const struct fr_row_update *u, uint32_t unique, uint32_t part, uint32_t i, double *gradient)
{
    bool reached = false;
    double sum = 0.0;
    for (uint32_t o = u->occ_begin[unique]; o < u->occ_begin[unique + 1]; o++) {
        struct fr_occurrence at = u->occurrences[u->occ[o]];
        if (!u->trained[at.sample])
            continue;
        for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
            const struct fr_row_source *s = &u->sources[k];
            if (s->part != part)
                continue;
            double coef = (s->weights ? (double)s->weights[u->occ[o] - s->first] : 1.0) *
                          (s->scale ? (double)s->scale[at.sample] : 1.0);
            sum += coef * (double)s->gradient.values[at.sample * s->gradient.ld + i];
            reached = true;
        }
    }
    *gradient = sum;
    return reached;
}

static void step_element(const struct fr_optimizer *o, float *v, float *state, float *second, double g)
{
    double w = (double)*v, lr = (double)o->lr;
    switch (o->kind) {
    case FR_UPDATE_SGD:
        *v = (float)(w - lr * g);
        break;
    case FR_UPDATE_ADAGRAD: {
        double acc = (double)*state + g * g;
        *state = (float)acc;
        *v = (float)(w - lr * g / (sqrt(acc) + (double)o->eps));
        break;
    }
    case FR_UPDATE_FTRL: {
        FR_CHECK(second);
        double n = (double)*second, n_new = n + g * g;
        double z = (double)*state + g - (sqrt(n_new) - sqrt(n)) / lr * w;
        *state = (float)z;
        *second = (float)n_new;
        double rate = ((double)o->beta + sqrt(n_new)) / lr + (double)o->l2;
        *v = fabs(z) <= (double)o->l1 ? 0.0f : (float)(-(z - copysign((double)o->l1, z)) / rate);
        break;
    }
    case FR_UPDATE_ADAGRAD_ROWWISE: /* the caller's: it needs the whole part */
    case FR_UPDATE_ADAM:
        break;
    }
}

static void update_part(const struct fr_row_update *u, uint32_t unique, uint32_t p)
{
    const struct fr_row_part *part = &u->parts[p];
    const struct fr_optimizer *o = &part->optimizer;
    float *v = u->rows[unique] + part->value_offset, *state = u->rows[unique] + part->state_offset;
    double g = 0.0, squares = 0.0;
    for (uint32_t i = 0; i < part->dim; i++) {
        if (!row_gradient(u, unique, p, i, &g))
            return;
        squares += g * g;
        if (o->kind != FR_UPDATE_ADAGRAD_ROWWISE)
            step_element(o, &v[i], &state[i], o->kind == FR_UPDATE_FTRL ? &state[part->dim + i] : NULL, g);
    }
    if (o->kind != FR_UPDATE_ADAGRAD_ROWWISE)
        return;
    double acc = (double)*state + squares / (double)part->dim;
    for (uint32_t i = 0; i < part->dim; i++) {
        FR_CHECK(row_gradient(u, unique, p, i, &g));
        v[i] = (float)((double)v[i] - (double)o->lr * g / (sqrt(acc) + (double)o->eps));
    }
    *state = (float)acc;
}

static void update_rows(const struct fr_row_update *u)
{
    for (uint32_t unique = u->begin; unique < u->end; unique++)
        for (uint32_t p = 0; p < u->n_parts && u->rows[unique]; p++)
            update_part(u, unique, p);
}

static uint32_t check_rows(const struct fr_row_update *u)
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

static void update_dense(const struct fr_dense_update *u)
{
    const struct fr_optimizer *o = &u->optimizer;
    for (size_t i = 0; i < u->n; i++) {
        double g = (double)u->gradient[i];
        if (o->kind != FR_UPDATE_ADAM) {
            step_element(o, &u->values[i], o->kind == FR_UPDATE_ADAGRAD ? &u->state0[i] : NULL, NULL, g);
            continue;
        }
        double m = (double)o->beta1 * (double)u->state0[i] + (double)(1.0f - o->beta1) * g;
        double v = (double)o->beta2 * (double)u->state1[i] + (double)(1.0f - o->beta2) * g * g;
        u->state0[i] = fabs(m) < (double)FR_MOMENT_FLUSH ? 0.0f : (float)m;
        u->state1[i] = v < (double)FR_MOMENT_FLUSH ? 0.0f : (float)v;
        double step = (double)u->step_size * m / (sqrt(v) * (double)u->second_scale + (double)o->eps);
        u->values[i] = (float)((double)u->values[i] - step);
    }
}

static const struct fr_ops reference_table = {
    .name = "reference",
    .rows_independent = true,
    .packed_floats = unpacked,
    .pack = pack_nothing,
    .multiply = multiply,
    .gather = gather,
    .copy = copy,
    .add = add,
    .bias_activate = bias_activate,
    .relu_backward = relu_backward,
    .bias_gradient = bias_gradient,
    .bi_interaction = bi_interaction,
    .bi_interaction_backward = bi_interaction_backward,
    .logloss = logloss,
    .max_bits = max_bits,
    .update_rows = update_rows,
    .check_rows = check_rows,
    .update_dense = update_dense,
};

const struct fr_ops *fr_ops_reference(void)
{
    return &reference_table;
}
