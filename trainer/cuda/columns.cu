/* Sums down the columns of a batch: gradients of biases, scales and slopes, moments. Also the sums
 * along rows that go with them (layer_norm, sums of rows).
 *
 * There are two kernels. The first sums the rows of each block of COLUMN_ROWS rows, the second
 * sums the blocks, both in ascending order. This is the order of the processor if its chunks
 * have 128 rows. The sums of blocks lie in the queue's workspace. A sum along a row belongs to a
 * warp: lane l has elements l, l + 32, .., and the lanes are joined by a tree. */
#include "kernel.h"

enum { COLUMN_ROWS = 128 };
#define DICE_EPSILON 1e-9f

enum column_kind { COLUMN_GRADIENT, COLUMN_NORM_SCALE, COLUMN_PRELU, COLUMN_DICE };

struct column_call {
    uint32_t m, n, rows; /* rows of a block */
    enum column_kind kind;
    bool add;
    struct fr_view gradient, x, moments;
    const float *mean, *variance;
    float *parts; /* [blocks, n] */
    float *out;   /* [n] */
};

FR_DEVICE float column_term(const struct column_call *c, size_t i, uint32_t j)
{
    float g = *fr_at(c->gradient, i, j);
    switch (c->kind) {
    case COLUMN_GRADIENT:
        break;
    case COLUMN_NORM_SCALE:
        return g * ((*fr_at(c->x, i, j) - *fr_at(c->moments, i, 0)) * *fr_at(c->moments, i, 1));
    case COLUMN_PRELU: {
        float x = *fr_at(c->x, i, j);
        return g * (x > 0.0f ? 0.0f : x);
    }
    case COLUMN_DICE: {
        float x = *fr_at(c->x, i, j), inverse = 1.0f / sqrtf(c->variance[j] + DICE_EPSILON);
        return g * ((1.0f - fr_sigmoidf((x - c->mean[j]) * inverse)) * x);
    }
    }
    return g;
}

FR_KERNEL(column_parts_kernel, struct column_call)
{
    uint32_t blocks = (c.m + c.rows - 1) / c.rows;
    FR_EACH (at, (size_t)blocks * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        size_t begin = cell.row * c.rows, end = begin + c.rows < c.m ? begin + c.rows : c.m;
        float sum = 0.0f;
        for (size_t i = begin; i < end; i++)
            sum += column_term(&c, i, cell.column);
        c.parts[at] = sum;
    }
}

FR_KERNEL(column_join_kernel, struct column_call)
{
    uint32_t blocks = (c.m + c.rows - 1) / c.rows;
    FR_EACH (j, c.n) {
        float sum = c.add ? c.out[j] : 0.0f;
        for (uint32_t b = 0; b < blocks; b++)
            sum += c.parts[(size_t)b * c.n + j];
        c.out[j] = sum;
    }
}

static void sum_columns(struct fr_device_queue *queue, struct column_call call)
{
    size_t capacity = FR_WORKSPACE_BYTES / sizeof(float);
    call.parts = (float *)fr_queue_workspace(queue);
    call.rows = COLUMN_ROWS;
    while ((call.m + (size_t)call.rows - 1) / call.rows * call.n > capacity && call.rows < call.m)
        call.rows *= 2;
    if (call.m > 0)
        FR_LAUNCH(queue, column_parts_kernel,
                  fr_queue_blocks(queue, (call.m + (size_t)call.rows - 1) / call.rows * call.n), call);
    FR_LAUNCH(queue, column_join_kernel, fr_queue_blocks(queue, call.n), call);
}

void fr_device_bias_gradient(struct fr_device_queue *queue, uint32_t m, uint32_t n, struct fr_view gradient, float *out)
{
    struct column_call call = {.m = m, .n = n, .kind = COLUMN_GRADIENT, .gradient = gradient, .out = out};
    sum_columns(queue, call);
}

void fr_device_add_columns(struct fr_device_queue *queue, uint32_t m, uint32_t n, struct fr_view x, float *out)
{
    struct column_call call = {.m = m, .n = n, .kind = COLUMN_GRADIENT, .add = true, .gradient = x, .out = out};
    sum_columns(queue, call);
}

void fr_device_activate_backward(struct fr_device_queue *queue, const struct fr_activate *call)
{
    fr_device_activate_elements_backward(queue, call);
    if (!fr_activation_has_alpha(call->kind) || !call->alpha_gradient)
        return;
    struct column_call sums = {.m = call->m,
                               .n = call->n,
                               .kind = fr_activation_has_statistics(call->kind) ? COLUMN_DICE : COLUMN_PRELU,
                               .add = true,
                               .gradient = call->gradient,
                               .x = call->x,
                               .mean = call->mean,
                               .variance = call->variance,
                               .out = call->alpha_gradient};
    sum_columns(queue, sums);
}

/* ---- moments ---- */

struct moment_call {
    struct fr_moments call;
    uint32_t rows;
    double *parts; /* [blocks, 2 n] */
};

FR_KERNEL(moment_parts_kernel, struct moment_call)
{
    uint32_t n = c.call.n, blocks = (c.call.m + c.rows - 1) / c.rows;
    FR_EACH (at, (size_t)blocks * n) {
        struct fr_cell cell = fr_cell_of(at, n);
        size_t begin = cell.row * c.rows, end = begin + c.rows < c.call.m ? begin + c.rows : c.call.m;
        /* the first block continues from the present contents */
        double sum = begin > 0 ? 0.0 : c.call.sum[cell.column], square = begin > 0 ? 0.0 : c.call.square[cell.column];
        for (size_t i = begin; i < end; i++) {
            double v = (double)*fr_at(c.call.x, i, cell.column);
            if (c.call.use && !c.call.use[i])
                continue;
            sum += v;
            square += v * v;
        }
        c.parts[2 * at] = sum;
        c.parts[2 * at + 1] = square;
    }
}

FR_KERNEL(moment_join_kernel, struct moment_call)
{
    uint32_t n = c.call.n, blocks = (c.call.m + c.rows - 1) / c.rows;
    FR_EACH (j, n) {
        double sum = 0.0, square = 0.0;
        for (uint32_t b = 0; b < blocks; b++) {
            sum += c.parts[2 * ((size_t)b * n + j)];
            square += c.parts[2 * ((size_t)b * n + j) + 1];
        }
        c.call.sum[j] = sum;
        c.call.square[j] = square;
    }
}

void fr_device_moments(struct fr_device_queue *queue, const struct fr_moments *call)
{
    size_t capacity = FR_WORKSPACE_BYTES / (2 * sizeof(double));
    struct moment_call sums = {*call, COLUMN_ROWS, (double *)fr_queue_workspace(queue)};
    while ((call->m + (size_t)sums.rows - 1) / sums.rows * call->n > capacity && sums.rows < call->m)
        sums.rows *= 2;
    if (call->m == 0)
        return;
    FR_LAUNCH(queue, moment_parts_kernel,
              fr_queue_blocks(queue, (call->m + (size_t)sums.rows - 1) / sums.rows * call->n), sums);
    FR_LAUNCH(queue, moment_join_kernel, fr_queue_blocks(queue, call->n), sums);
}

/* ---- along rows ---- */

FR_KERNEL(layer_norm_kernel, struct fr_layer_norm)
{
    FR_EACH_BY_WARP (i, c.m) {
        float sum = 0.0f, squares = 0.0f;
        FR_EACH_BY_LANE (j, c.n)
            sum += *fr_at(c.x, i, j);
        float mean = fr_warp_sum(sum) / (float)c.n;
        FR_EACH_BY_LANE (j, c.n) {
            float off = *fr_at(c.x, i, j) - mean;
            squares += off * off;
        }
        float inverse = 1.0f / sqrtf(fr_warp_sum(squares) / (float)c.n + c.epsilon);
        if (fr_lane() == 0) {
            *fr_at(c.moments, i, 0) = mean;
            *fr_at(c.moments, i, 1) = inverse;
        }
        FR_EACH_BY_LANE (j, c.n)
            *fr_at(c.y, i, j) = c.scale[j] * ((*fr_at(c.x, i, j) - mean) * inverse) + c.bias[j];
    }
}

void fr_device_layer_norm(struct fr_device_queue *queue, const struct fr_layer_norm *call)
{
    FR_LAUNCH(queue, layer_norm_kernel, fr_queue_blocks(queue, (size_t)call->m * FR_WARP), *call);
}

FR_KERNEL(layer_norm_backward_kernel, struct fr_layer_norm)
{
    FR_EACH_BY_WARP (i, c.m) {
        float mean = *fr_at(c.moments, i, 0), inverse = *fr_at(c.moments, i, 1), sum = 0.0f, along = 0.0f;
        FR_EACH_BY_LANE (j, c.n) {
            float d = *fr_at(c.gradient, i, j) * c.scale[j];
            sum += d;
            along += d * ((*fr_at(c.x, i, j) - mean) * inverse);
        }
        sum = fr_warp_sum(sum);
        along = fr_warp_sum(along);
        float share = 1.0f / (float)c.n;
        FR_EACH_BY_LANE (j, c.n)
            *fr_at(c.x_gradient, i, j) += inverse * (*fr_at(c.gradient, i, j) * c.scale[j] -
                                                     (sum + (*fr_at(c.x, i, j) - mean) * inverse * along) * share);
    }
}

void fr_device_layer_norm_backward(struct fr_device_queue *queue, const struct fr_layer_norm *call)
{
    struct column_call sums = {.m = call->m,
                               .n = call->n,
                               .kind = COLUMN_NORM_SCALE,
                               .add = true,
                               .gradient = call->gradient,
                               .x = call->x,
                               .moments = call->moments,
                               .out = call->scale_gradient};
    if (call->scale_gradient)
        sum_columns(queue, sums);
    sums.kind = COLUMN_GRADIENT;
    sums.out = call->bias_gradient;
    if (call->bias_gradient)
        sum_columns(queue, sums);
    if (call->x_gradient.values)
        FR_LAUNCH(queue, layer_norm_backward_kernel, fr_queue_blocks(queue, (size_t)call->m * FR_WARP), *call);
}

struct rows_call {
    uint32_t m, n;
    struct fr_view in, out;
};

FR_KERNEL(row_sum_kernel, struct rows_call)
{
    FR_EACH_BY_WARP (i, c.m) {
        float sum = 0.0f;
        FR_EACH_BY_LANE (j, c.n)
            sum += *fr_at(c.in, i, j);
        sum = fr_warp_sum(sum);
        if (fr_lane() == 0)
            *fr_at(c.out, i, 0) = sum;
    }
}

void fr_device_row_sum(struct fr_device_queue *queue, uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    struct rows_call call = {m, n, in, out};
    FR_LAUNCH(queue, row_sum_kernel, fr_queue_blocks(queue, (size_t)m * FR_WARP), call);
}

FR_KERNEL(row_sum_backward_kernel, struct rows_call)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        *fr_cell_at(c.out, cell) += *fr_at(c.in, cell.row, 0);
    }
}

void fr_device_row_sum_backward(struct fr_device_queue *queue, uint32_t m, uint32_t n, struct fr_view gradient,
                                struct fr_view in_gradient)
{
    struct rows_call call = {m, n, gradient, in_gradient};
    FR_LAUNCH(queue, row_sum_backward_kernel, fr_queue_blocks(queue, (size_t)m * n), call);
}
