/* Reference backend: the meaning of each operation in plain loops with double accumulation. The
 * parity suite holds every other backend against it; finite differences are taken through it.
 *
 * Each result is computed in double from f32 inputs and rounded once. Written independently of the
 * shared row mathematics on purpose: a mistake in ops/row.h must show.
 *
 * Thread: any, no state. It does not run fast. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "reference/reference.h"
#include "view.h"

size_t fr_reference_packed_floats(uint32_t rows, uint32_t columns)
{
    (void)rows, (void)columns;
    return 0;
}

void fr_reference_pack(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end)
{
    (void)right, (void)row_begin, (void)row_end;
}

static double element(const struct fr_operand *x, size_t i, size_t j)
{
    return (double)(x->transposed ? x->values[j * x->ld + i] : x->values[i * x->ld + j]);
}

/* The nearest number of 8 significant bits, ties to the even one; subnormals become 0. */
static double element_bf16(const struct fr_operand *x, size_t i, size_t j)
{
    double value = element(x, i, j);
    int exponent;
    double fraction = frexp(value, &exponent); /* in [0.5, 1) */
    if (!isfinite(value) || value == 0.0)
        return value;
    return exponent <= -126 ? 0.0 : ldexp(rint(ldexp(fraction, 8)), exponent - 8);
}

/* What is done to an element of a product. */
static float finished(const struct fr_multiply *product, size_t i, size_t j, double sum)
{
    if (product->bias)
        sum += (double)product->bias[j];
    if (product->bias && product->relu && sum < 0.0)
        sum = 0.0;
    if (product->gate.values && !(product->gate.values[i * product->gate.ld + j] > 0.0f))
        sum = 0.0;
    uint32_t bits = fr_f32_bits(fabsf((float)sum));
    if (product->bits && bits > *product->bits)
        *product->bits = bits;
    return (float)sum;
}

static void multiply(const struct fr_multiply *product, double (*factor)(const struct fr_operand *, size_t, size_t))
{
    const struct fr_operand *left = product->left, *right = product->right;
    FR_CHECK(left->columns == right->rows && product->row_end <= left->rows);
    size_t depth = right->rows;
    double *row = fr_alloc(depth, sizeof(*row)), *columns = fr_alloc(right->columns * depth, sizeof(*columns));
    for (size_t j = 0; j < right->columns; j++)
        for (size_t k = 0; k < depth; k++)
            columns[j * depth + k] = factor(right, k, j);
    for (size_t i = product->row_begin; i < product->row_end; i++) {
        for (size_t k = 0; k < depth; k++)
            row[k] = factor(left, i, k);
        for (size_t j = 0; j < right->columns; j++) {
            float *out = &product->out.values[i * product->out.ld + j];
            double sum = product->accumulate ? (double)*out : 0.0;
            for (size_t k = 0; k < depth; k++)
                sum += row[k] * columns[j * depth + k];
            *out = finished(product, i, j, sum);
        }
    }
    free(row);
    free(columns);
}

void fr_reference_multiply(const struct fr_multiply *product)
{
    multiply(product, element);
}

static void multiply_bf16(const struct fr_multiply *product)
{
    multiply(product, element_bf16);
}

/* Column i of entry s; *chosen: the id that counts alone, UINT32_MAX: none does. */
static double pool_column(const struct fr_gather *g, size_t s, uint32_t i, const struct fr_reference_pooling *pooling,
                          uint32_t *chosen)
{
    double pooled = 0.0;
    *chosen = UINT32_MAX;
    for (uint32_t p = g->begin[s]; p < g->begin[s + 1]; p++) {
        const float *row = g->rows[g->unique_of[p]];
        if (!row)
            continue;
        double value = (g->weights ? (double)g->weights[p] : 1.0) * pooling->scale * (double)row[g->value_offset + i];
        if (pooling->sign == 0) {
            pooled += value;
        } else if (*chosen == UINT32_MAX || (double)pooling->sign * (value - pooled) > 0.0) {
            pooled = value;
            *chosen = p;
        }
    }
    return pooled;
}

void fr_reference_gather(const struct fr_gather *g)
{
    for (size_t s = g->entry_begin; s < g->entry_end; s++) {
        double sum = 0.0, squares = 0.0;
        for (uint32_t p = g->begin[s]; p < g->begin[s + 1]; p++) {
            double w = g->weights ? (double)g->weights[p] : 1.0;
            sum += w;
            squares += w * w;
        }
        struct fr_reference_pooling pooling = fr_reference_pooling(g->kind, sum, squares);
        if (pooling.scaled)
            g->kept[s] = (float)pooling.scale;
        for (uint32_t i = 0; i < g->dim; i++) {
            uint32_t chosen;
            g->out.values[s * g->out.ld + i] = (float)pool_column(g, s, i, &pooling, &chosen);
            if (pooling.sign != 0)
                g->kept[s * g->dim + i] = fr_bits_f32(chosen);
        }
    }
}

void fr_reference_copy(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            out.values[i * out.ld + j] = in.values[i * in.ld + j];
}

void fr_reference_add(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            out.values[i * out.ld + j] = (float)((double)out.values[i * out.ld + j] + (double)in.values[i * in.ld + j]);
}

void fr_reference_bias_activate(uint32_t m, uint32_t n, struct fr_view y, const float *bias, bool relu)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double z = (double)y.values[i * y.ld + j] + (double)bias[j];
            y.values[i * y.ld + j] = relu && z < 0.0 ? 0.0f : (float)z;
        }
    }
}

void fr_reference_relu_backward(uint32_t m, uint32_t n, struct fr_view y, struct fr_view gradient)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            if (!(y.values[i * y.ld + j] > 0.0f))
                gradient.values[i * gradient.ld + j] = 0.0f;
}

void fr_reference_bias_gradient(uint32_t m, uint32_t n, struct fr_view gradient, float *out)
{
    for (size_t j = 0; j < n; j++) {
        double sum = 0.0;
        for (size_t i = 0; i < m; i++)
            sum += (double)gradient.values[i * gradient.ld + j];
        out[j] = (float)sum;
    }
}

void fr_reference_bi_interaction(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in, struct fr_view out)
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

void fr_reference_bi_interaction_backward(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in,
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

uint32_t fr_reference_max_bits(uint32_t m, uint32_t n, struct fr_view x)
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

const struct fr_ops *fr_reference_ops(void)
{
    static const struct fr_ops table = {.name = "reference",
                                        .kernel = "reference 1",
                                        .rows_independent = true,
                                        FR_OPS_OWN(FR_REFERENCE_MEMBER) FR_OPS_SHARED(FR_REFERENCE_MEMBER)};
    return &table;
}

const struct fr_ops *fr_reference_bf16_ops(void)
{
    static struct fr_ops table; /* every thread that writes it writes the same bytes */
    struct fr_ops bf16 = *fr_reference_ops();
    bf16.name = "reference-bf16";
    bf16.kernel = "reference bf16 1";
    bf16.multiply = multiply_bf16;
    table = bf16;
    return &table;
}
