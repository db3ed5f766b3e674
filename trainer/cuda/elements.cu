/* Kernels over elements: moves, activations, normalisation forward, dropout, dense transforms.
 *
 * Each element has one thread, and neighbours in a row have neighbouring threads, so a warp
 * reads whole lines. The numbers equal those of the processor: every element is the same
 * expression of base/math.h, compiled without fused multiply-adds. Sums down columns are in
 * columns.cu. */
#include "kernel.h"
#include "ops/dropout.h"

#define LEAKY_SLOPE 0.01f
#define GELU_SCALE 0.79788456f /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715f
#define DICE_EPSILON 1e-9f

/* ---- moves ---- */

struct matrix_call {
    uint32_t m, n;
    struct fr_view in, out;
};

FR_KERNEL(copy_kernel, struct matrix_call)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        *fr_cell_at(c.out, cell) = *fr_cell_at(c.in, cell);
    }
}

FR_KERNEL(add_kernel, struct matrix_call)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        *fr_cell_at(c.out, cell) += *fr_cell_at(c.in, cell);
    }
}

void fr_device_copy(struct fr_device_queue *queue, uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    struct matrix_call call = {m, n, in, out};
    FR_LAUNCH(queue, copy_kernel, fr_queue_blocks(queue, (size_t)m * n), call);
}

void fr_device_add(struct fr_device_queue *queue, uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    struct matrix_call call = {m, n, in, out};
    FR_LAUNCH(queue, add_kernel, fr_queue_blocks(queue, (size_t)m * n), call);
}

FR_KERNEL(expand_kernel, struct fr_expand)
{
    FR_EACH (at, (size_t)(c.end - c.begin) * c.width) {
        struct fr_cell cell = fr_cell_of(at, c.width);
        cell.row += c.begin;
        *fr_cell_at(c.out, cell) = *fr_at(c.in, c.source[cell.row], cell.column);
    }
}

void fr_device_expand(struct fr_device_queue *queue, const struct fr_expand *call)
{
    FR_LAUNCH(queue, expand_kernel, fr_queue_blocks(queue, (size_t)(call->end - call->begin) * call->width), *call);
}

FR_KERNEL(collapse_kernel, struct fr_collapse)
{
    FR_EACH (at, (size_t)(c.end - c.begin) * c.width) {
        struct fr_cell cell = fr_cell_of(at, c.width);
        cell.row += c.begin;
        float sum = *fr_cell_at(c.out, cell);
        for (size_t s = c.group_begin[cell.row]; s < c.group_begin[cell.row + 1]; s++)
            sum += *fr_at(c.in, s, cell.column);
        *fr_cell_at(c.out, cell) = sum;
    }
}

void fr_device_collapse(struct fr_device_queue *queue, const struct fr_collapse *call)
{
    FR_LAUNCH(queue, collapse_kernel, fr_queue_blocks(queue, (size_t)(call->end - call->begin) * call->width), *call);
}

FR_KERNEL(collapse_steps_kernel, struct fr_collapse_steps)
{
    FR_EACH (at, (size_t)(c.end - c.begin) * c.width) {
        struct fr_cell cell = fr_cell_of(at, c.width);
        size_t g = c.begin + cell.row, first = c.steps_begin[g], steps = c.steps_begin[g + 1] - first;
        for (size_t t = 0; t < steps; t++) {
            float sum = *fr_at(c.out, first + t, cell.column);
            for (size_t s = c.group_begin[g]; s < c.group_begin[g + 1]; s++)
                sum += *fr_at(c.in, c.expanded_begin[s] + t, cell.column);
            *fr_at(c.out, first + t, cell.column) = sum;
        }
    }
}

void fr_device_collapse_steps(struct fr_device_queue *queue, const struct fr_collapse_steps *call)
{
    FR_LAUNCH(queue, collapse_steps_kernel, fr_queue_blocks(queue, (size_t)(call->end - call->begin) * call->width),
              *call);
}

FR_KERNEL(align_kernel, struct fr_align)
{
    FR_EACH (at, (size_t)(c.entry_end - c.entry_begin) * c.width) {
        struct fr_cell cell = fr_cell_of(at, c.width);
        size_t e = c.entry_begin + cell.row, to_end = c.to_begin[e + 1], from_end = c.from_begin[e + 1];
        size_t from = from_end - c.from_begin[e];
        for (size_t p = c.to_begin[e]; p < to_end; p++) {
            size_t back = to_end - p; /* 1: the newest */
            *fr_at(c.to, p, cell.column) = back <= from ? *fr_at(c.from, from_end - back, cell.column) : 0.0f;
        }
    }
}

void fr_device_align(struct fr_device_queue *queue, const struct fr_align *call)
{
    size_t n = (size_t)(call->entry_end - call->entry_begin) * call->width;
    FR_LAUNCH(queue, align_kernel, fr_queue_blocks(queue, n), *call);
}

FR_KERNEL(align_backward_kernel, struct fr_align)
{
    FR_EACH (at, (size_t)(c.entry_end - c.entry_begin) * c.width) {
        struct fr_cell cell = fr_cell_of(at, c.width);
        size_t e = c.entry_begin + cell.row, to = c.to_begin[e + 1] - c.to_begin[e];
        size_t from = c.from_begin[e + 1] - c.from_begin[e];
        for (size_t back = to < from ? to : from; back > 0; back--)
            *fr_at(c.from, c.from_begin[e + 1] - back, cell.column) +=
                *fr_at(c.to, c.to_begin[e + 1] - back, cell.column);
    }
}

void fr_device_align_backward(struct fr_device_queue *queue, const struct fr_align *call)
{
    size_t n = (size_t)(call->entry_end - call->entry_begin) * call->width;
    FR_LAUNCH(queue, align_backward_kernel, fr_queue_blocks(queue, n), *call);
}

/* ---- activations ---- */

struct bias_call {
    uint32_t m, n;
    struct fr_view y;
    const float *bias;
    bool relu;
};

FR_KERNEL(bias_activate_kernel, struct bias_call)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        float z = *fr_cell_at(c.y, cell) + c.bias[cell.column];
        /* NaN stays NaN, so that the check of the logits finds it */
        *fr_cell_at(c.y, cell) = c.relu && z < 0.0f ? 0.0f : z;
    }
}

void fr_device_bias_activate(struct fr_device_queue *queue, uint32_t m, uint32_t n, struct fr_view y, const float *bias,
                             bool relu)
{
    struct bias_call call = {m, n, y, bias, relu};
    FR_LAUNCH(queue, bias_activate_kernel, fr_queue_blocks(queue, (size_t)m * n), call);
}

FR_KERNEL(relu_backward_kernel, struct matrix_call)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        if (!(*fr_cell_at(c.in, cell) > 0.0f))
            *fr_cell_at(c.out, cell) = 0.0f;
    }
}

void fr_device_relu_backward(struct fr_device_queue *queue, uint32_t m, uint32_t n, struct fr_view y,
                             struct fr_view gradient)
{
    struct matrix_call call = {m, n, y, gradient};
    FR_LAUNCH(queue, relu_backward_kernel, fr_queue_blocks(queue, (size_t)m * n), call);
}

FR_DEVICE float gelu_tanh(float x)
{
    return fr_tanhf(GELU_SCALE * (x + GELU_CUBIC * (x * x * x)));
}

FR_DEVICE float gelu_slope(float x)
{
    float t = gelu_tanh(x);
    float inner = GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * (x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

FR_DEVICE float dice_inverse(const struct fr_activate *c, uint32_t j)
{
    return 1.0f / sqrtf(c->variance[j] + DICE_EPSILON);
}

FR_DEVICE float activated(const struct fr_activate *c, float x, uint32_t j)
{
    switch (c->kind) {
    case FR_ACT_NONE:
        break;
    case FR_ACT_RELU:
        return x < 0.0f ? 0.0f : x; /* NaN stays NaN */
    case FR_ACT_LEAKY_RELU:
        return x > 0.0f ? x : LEAKY_SLOPE * x;
    case FR_ACT_SIGMOID:
        return fr_sigmoidf(x);
    case FR_ACT_TANH:
        return fr_tanhf(x);
    case FR_ACT_GELU:
        return 0.5f * x * (1.0f + gelu_tanh(x));
    case FR_ACT_PRELU:
        return x > 0.0f ? x : c->alpha[j] * x;
    case FR_ACT_DICE: {
        float p = fr_sigmoidf((x - c->mean[j]) * dice_inverse(c, j));
        return p * x + (1.0f - p) * c->alpha[j] * x;
    }
    }
    return x;
}

FR_KERNEL(activate_kernel, struct fr_activate)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        *fr_cell_at(c.y, cell) = activated(&c, *fr_cell_at(c.x, cell), cell.column);
    }
}

void fr_device_activate(struct fr_device_queue *queue, const struct fr_activate *call)
{
    FR_LAUNCH(queue, activate_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

/* Returns the gradient of an element before the activation, from its gradient g after it. Only
 * values that this kind of activation needs are read. */
FR_DEVICE float through_activation(const struct fr_activate *c, struct fr_cell cell, float g)
{
    uint32_t j = cell.column;
    switch (c->kind) {
    case FR_ACT_NONE:
        break;
    case FR_ACT_RELU:
        return *fr_cell_at(c->y, cell) > 0.0f ? g : 0.0f;
    case FR_ACT_LEAKY_RELU:
        return *fr_cell_at(c->y, cell) > 0.0f ? g : LEAKY_SLOPE * g;
    case FR_ACT_SIGMOID: {
        float v = *fr_cell_at(c->y, cell);
        return g * (v * (1.0f - v));
    }
    case FR_ACT_TANH: {
        float v = *fr_cell_at(c->y, cell);
        return g * (1.0f - v * v);
    }
    case FR_ACT_GELU:
        return g * gelu_slope(*fr_cell_at(c->x, cell));
    case FR_ACT_PRELU:
        return g * (*fr_cell_at(c->x, cell) > 0.0f ? 1.0f : c->alpha[j]);
    case FR_ACT_DICE: {
        float x = *fr_cell_at(c->x, cell), inverse = dice_inverse(c, j), alpha = c->alpha[j];
        float p = fr_sigmoidf((x - c->mean[j]) * inverse), rest = 1.0f - p;
        return g * (p + rest * alpha + p * rest * inverse * (1.0f - alpha) * x);
    }
    }
    return g;
}

FR_KERNEL(activate_backward_kernel, struct fr_activate)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        *fr_cell_at(c.x_gradient, cell) += through_activation(&c, cell, *fr_cell_at(c.gradient, cell));
    }
}

void fr_device_activate_elements_backward(struct fr_device_queue *queue, const struct fr_activate *call)
{
    if (call->x_gradient.values)
        FR_LAUNCH(queue, activate_backward_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

/* ---- dropout and dense transforms ---- */

FR_KERNEL(dropout_kernel, struct fr_dropout)
{
    uint32_t threshold = fr_dropout_threshold(c.rate);
    float factor = 1.0f / (1.0f - c.rate);
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        uint64_t row = fr_dropout_row(&c, (uint32_t)cell.row);
        float x = *fr_cell_at(c.x, cell), kept = fr_dropout_bits(row, cell.column) >= threshold ? x * factor : 0.0f;
        *fr_cell_at(c.y, cell) = c.accumulate ? *fr_cell_at(c.y, cell) + kept : kept;
    }
}

void fr_device_dropout(struct fr_device_queue *queue, const struct fr_dropout *call)
{
    FR_LAUNCH(queue, dropout_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

FR_KERNEL(bucketize_kernel, struct fr_bucketize)
{
    uint32_t width = c.n_boundaries + 1;
    FR_EACH (at, (size_t)c.m * c.dim) {
        struct fr_cell cell = fr_cell_of(at, c.dim);
        float x = *fr_cell_at(c.x, cell);
        x = x == x ? x : c.missing;
        uint32_t bucket = 0;
        for (uint32_t k = 0; k < c.n_boundaries; k++)
            bucket += c.boundaries[k] <= x;
        for (uint32_t k = 0; k < width; k++)
            *fr_at(c.y, cell.row, (size_t)cell.column * width + k) = k == bucket ? 1.0f : 0.0f;
    }
}

void fr_device_bucketize(struct fr_device_queue *queue, const struct fr_bucketize *call)
{
    FR_LAUNCH(queue, bucketize_kernel, fr_queue_blocks(queue, (size_t)call->m * call->dim), *call);
}

FR_DEVICE float standardized(float x, float mean, float variance, float limit)
{
    float v = (x - mean) / sqrtf(variance);
    v = v > limit ? limit : v;
    v = v < -limit ? -limit : v;
    return v == v ? v : 0.0f;
}

FR_KERNEL(standardize_kernel, struct fr_standardize)
{
    bool ready = *c.count >= c.count_min;
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        float x = *fr_cell_at(c.x, cell), variance = c.variance[cell.column] + c.epsilon;
        float y = standardized(x == x ? x : c.missing, c.mean[cell.column], variance, c.limit);
        *fr_cell_at(c.y, cell) = ready ? y : 0.0f;
    }
}

void fr_device_standardize(struct fr_device_queue *queue, const struct fr_standardize *call)
{
    FR_LAUNCH(queue, standardize_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

FR_KERNEL(fill_missing_kernel, struct fr_fill_missing)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        float x = *fr_cell_at(c.x, cell);
        *fr_cell_at(c.y, cell) = x == x ? x : c.missing[cell.column & 1];
    }
}

void fr_device_fill_missing(struct fr_device_queue *queue, const struct fr_fill_missing *call)
{
    FR_LAUNCH(queue, fill_missing_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

FR_KERNEL(mark_missing_kernel, struct fr_mark_missing)
{
    FR_EACH (i, c.m) {
        float x = *fr_at(c.x, i, 0);
        *fr_at(c.y, i, 0) = x == x ? 0.0f : 1.0f;
    }
}

void fr_device_mark_missing(struct fr_device_queue *queue, const struct fr_mark_missing *call)
{
    FR_LAUNCH(queue, mark_missing_kernel, fr_queue_blocks(queue, call->m), *call);
}
