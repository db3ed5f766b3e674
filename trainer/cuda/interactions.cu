/* Kernels over several inputs: sums and products of pairs, cross, mixture of experts.
 *
 * A thread computes one column of one row and loops over the inputs in their order; a dot
 * product belongs to a warp. The same view may occur several times among the gradients, because
 * a thread adds to its own column, one input after another. The lists of views are device
 * memory. */
#include "kernel.h"

struct bi_call {
    uint32_t m, n, count;
    const struct fr_view *in;
    struct fr_view out; /* in the backward pass the gradient of `out` */
    const struct fr_view *in_gradient;
};

FR_KERNEL(bi_interaction_kernel, struct bi_call)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        float sum = 0.0f, squares = 0.0f;
        for (uint32_t a = 0; a < c.count; a++) {
            float v = *fr_cell_at(c.in[a], cell);
            sum += v;
            squares += v * v;
        }
        *fr_cell_at(c.out, cell) = 0.5f * (sum * sum - squares);
    }
}

void fr_device_bi_interaction(struct fr_device_queue *queue, uint32_t m, uint32_t n, uint32_t count,
                              const struct fr_view *in, struct fr_view out)
{
    struct bi_call call = {m, n, count, in, out, NULL};
    FR_LAUNCH(queue, bi_interaction_kernel, fr_queue_blocks(queue, (size_t)m * n), call);
}

FR_KERNEL(bi_interaction_backward_kernel, struct bi_call)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        float sum = 0.0f, g = *fr_cell_at(c.out, cell);
        for (uint32_t a = 0; a < c.count; a++)
            sum += *fr_cell_at(c.in[a], cell);
        for (uint32_t a = 0; a < c.count; a++)
            if (c.in_gradient[a].values)
                *fr_cell_at(c.in_gradient[a], cell) += g * (sum - *fr_cell_at(c.in[a], cell));
    }
}

void fr_device_bi_interaction_backward(struct fr_device_queue *queue, uint32_t m, uint32_t n, uint32_t count,
                                       const struct fr_view *in, struct fr_view gradient,
                                       const struct fr_view *in_gradient)
{
    struct bi_call call = {m, n, count, in, gradient, in_gradient};
    FR_LAUNCH(queue, bi_interaction_backward_kernel, fr_queue_blocks(queue, (size_t)m * n), call);
}

FR_KERNEL(product_kernel, struct fr_interaction)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        float product = 1.0f;
        for (uint32_t a = 0; a < c.count; a++)
            product *= *fr_cell_at(c.in[a], cell);
        *fr_cell_at(c.out, cell) = product;
    }
}

void fr_device_product(struct fr_device_queue *queue, const struct fr_interaction *call)
{
    FR_LAUNCH(queue, product_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

FR_KERNEL(product_backward_kernel, struct fr_interaction)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        for (uint32_t a = 0; a < c.count; a++) {
            if (!c.in_gradient[a].values)
                continue;
            float product = *fr_cell_at(c.out, cell);
            for (uint32_t b = 0; b < c.count; b++)
                product *= b == a ? 1.0f : *fr_cell_at(c.in[b], cell);
            *fr_cell_at(c.in_gradient[a], cell) += product;
        }
    }
}

void fr_device_product_backward(struct fr_device_queue *queue, const struct fr_interaction *call)
{
    FR_LAUNCH(queue, product_backward_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

/* Each row has a warp, which computes the pairs one after another. */
FR_KERNEL(dot_interaction_kernel, struct fr_interaction)
{
    FR_EACH_BY_WARP (i, c.m) {
        uint32_t pair = 0;
        for (uint32_t b = 1; b < c.count; b++) {
            for (uint32_t a = 0; a < b; a++, pair++) {
                float dot = 0.0f;
                FR_EACH_BY_LANE (j, c.n)
                    dot += *fr_at(c.in[a], i, j) * *fr_at(c.in[b], i, j);
                dot = fr_warp_sum(dot);
                if (fr_lane() == 0)
                    *fr_at(c.out, i, pair) = dot;
            }
        }
    }
}

void fr_device_dot_interaction(struct fr_device_queue *queue, const struct fr_interaction *call)
{
    FR_LAUNCH(queue, dot_interaction_kernel, fr_queue_blocks(queue, (size_t)call->m * FR_WARP), *call);
}

FR_KERNEL(dot_interaction_backward_kernel, struct fr_interaction)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        const float *g = fr_at(c.out, cell.row, 0);
        for (uint32_t a = 0; a < c.count; a++) {
            if (!c.in_gradient[a].values)
                continue;
            float sum = 0.0f;
            for (size_t b = 0; b < c.count; b++)
                if (b != a)
                    sum +=
                        (b < a ? g[(size_t)a * (a - 1) / 2 + b] : g[b * (b - 1) / 2 + a]) * *fr_cell_at(c.in[b], cell);
            *fr_cell_at(c.in_gradient[a], cell) += sum;
        }
    }
}

void fr_device_dot_interaction_backward(struct fr_device_queue *queue, const struct fr_interaction *call)
{
    FR_LAUNCH(queue, dot_interaction_backward_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

/* ---- cross ---- */

FR_KERNEL(cross_kernel, struct fr_cross)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        *fr_cell_at(c.out, cell) = *fr_cell_at(c.x0, cell) * *fr_cell_at(c.t, cell) + *fr_cell_at(c.x, cell);
    }
}

void fr_device_cross(struct fr_device_queue *queue, const struct fr_cross *call)
{
    FR_LAUNCH(queue, cross_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

FR_KERNEL(cross_backward_kernel, struct fr_cross)
{
    FR_EACH (at, (size_t)c.m * c.n) {
        struct fr_cell cell = fr_cell_of(at, c.n);
        float g = *fr_cell_at(c.out, cell);
        if (c.x0_gradient.values)
            *fr_cell_at(c.x0_gradient, cell) += g * *fr_cell_at(c.t, cell);
        if (c.t_gradient.values)
            *fr_cell_at(c.t_gradient, cell) += g * *fr_cell_at(c.x0, cell);
        if (c.x_gradient.values)
            *fr_cell_at(c.x_gradient, cell) += g;
    }
}

void fr_device_cross_backward(struct fr_device_queue *queue, const struct fr_cross *call)
{
    FR_LAUNCH(queue, cross_backward_kernel, fr_queue_blocks(queue, (size_t)call->m * call->n), *call);
}

/* ---- mixture of experts ---- */

/* Each row has a warp. There are few experts, so every lane loops over all gates. */
FR_KERNEL(mixture_kernel, struct fr_mixture)
{
    FR_EACH_BY_WARP (i, c.m) {
        const float *gates = fr_at(c.gates, i, 0);
        float largest = gates[0], sum = 0.0f;
        for (uint32_t e = 1; e < c.count; e++)
            largest = gates[e] > largest ? gates[e] : largest;
        for (uint32_t e = 0; e < c.count; e++)
            sum += fr_expf(gates[e] - largest);
        FR_EACH_BY_LANE (e, c.count)
            *fr_at(c.weights, i, e) = fr_expf(gates[e] - largest) / sum;
        fr_warp_meet();
        FR_EACH_BY_LANE (j, c.n) {
            float out = 0.0f;
            for (uint32_t e = 0; e < c.count; e++)
                out += *fr_at(c.weights, i, e) * *fr_at(c.experts, i, (size_t)e * c.n + j);
            *fr_at(c.out, i, j) = out;
        }
    }
}

void fr_device_mixture(struct fr_device_queue *queue, const struct fr_mixture *call)
{
    FR_LAUNCH(queue, mixture_kernel, fr_queue_blocks(queue, (size_t)call->m * FR_WARP), *call);
}

FR_DEVICE float expert_dot(const struct fr_mixture *c, size_t i, uint32_t e)
{
    float dot = 0.0f;
    FR_EACH_BY_LANE (j, c->n)
        dot += *fr_at(c->gradient, i, j) * *fr_at(c->experts, i, (size_t)e * c->n + j);
    return fr_warp_sum(dot);
}

FR_KERNEL(mixture_backward_kernel, struct fr_mixture)
{
    FR_EACH_BY_WARP (i, c.m) {
        float mean = 0.0f;
        for (uint32_t e = 0; e < c.count && c.gates_gradient.values; e++)
            mean += *fr_at(c.weights, i, e) * expert_dot(&c, i, e);
        for (uint32_t e = 0; e < c.count; e++) {
            float w = *fr_at(c.weights, i, e), dot = c.gates_gradient.values ? expert_dot(&c, i, e) : 0.0f;
            if (c.gates_gradient.values && fr_lane() == 0)
                *fr_at(c.gates_gradient, i, e) += w * (dot - mean);
            FR_EACH_BY_LANE (j, c.n)
                if (c.experts_gradient.values)
                    *fr_at(c.experts_gradient, i, (size_t)e * c.n + j) += w * *fr_at(c.gradient, i, j);
        }
    }
}

void fr_device_mixture_backward(struct fr_device_queue *queue, const struct fr_mixture *call)
{
    FR_LAUNCH(queue, mixture_backward_kernel, fr_queue_blocks(queue, (size_t)call->m * FR_WARP), *call);
}
