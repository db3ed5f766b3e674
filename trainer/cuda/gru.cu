/* GRU and AUGRU over the ragged steps of a batch. For each time there is one product over all
 * entries that have a step at this time. The lists of these entries are arguments (struct
 * fr_device_gru), so the host waits for nothing.
 *
 * Entries without a step cost nothing. Entries whose step is masked keep their state: they take
 * part in the product with zeros, and pass zeros in the backward pass. */
#include "kernel.h"

struct gru_step {
    struct fr_gru gru;
    uint32_t t, rows;
    const uint32_t *entries; /* [rows] the entries that have a step t */
    float *carry;            /* [entries, units] gradient of the state after the present step */
    /* [rows, units] state before the step; then the gradient of that state through the kernel */
    float *hidden;
    float *sums; /* [rows, 3 units] h U; in the backward pass gradients of h U + c */
};

FR_DEVICE size_t gru_row(const struct gru_step *c, size_t row)
{
    return (size_t)c->gru.steps.begin[c->entries[row]] + c->t;
}

FR_DEVICE float state_before(const struct gru_step *c, size_t p, uint32_t j)
{
    return c->t > 0 ? *fr_at(c->gru.states, p - 1, j) : 0.0f;
}

FR_KERNEL(gru_states_kernel, struct gru_step)
{
    FR_EACH (at, (size_t)c.rows * c.gru.units) {
        struct fr_cell cell = fr_cell_of(at, c.gru.units);
        size_t p = gru_row(&c, cell.row);
        c.hidden[at] = fr_is_masked(&c.gru.steps, p) ? 0.0f : state_before(&c, p, cell.column);
    }
}

FR_KERNEL(gru_forward_kernel, struct gru_step)
{
    uint32_t u = c.gru.units;
    FR_EACH (at, (size_t)c.rows * u) {
        struct fr_cell cell = fr_cell_of(at, u);
        uint32_t j = cell.column;
        size_t p = gru_row(&c, cell.row);
        float h = state_before(&c, p, j), *gates = fr_at(c.gru.gates, p, j);
        if (fr_is_masked(&c.gru.steps, p)) {
            gates[0] = gates[u] = gates[2 * (size_t)u] = gates[3 * (size_t)u] = 0.0f;
            *fr_at(c.gru.states, p, j) = h;
            continue;
        }
        const float *x = fr_at(c.gru.input, p, j), *sums = c.sums + cell.row * 3 * u + j, *bias = c.gru.bias + j;
        float score = c.gru.scores.values ? *fr_at(c.gru.scores, p, 0) : 1.0f;
        float r = fr_sigmoidf(x[0] + (sums[0] + bias[0]));
        float z = fr_sigmoidf(x[u] + (sums[u] + bias[u]));
        float q = sums[2 * (size_t)u] + bias[2 * (size_t)u];
        float n = fr_tanhf(x[2 * (size_t)u] + r * q);
        gates[0] = r;
        gates[u] = z;
        gates[2 * (size_t)u] = n;
        gates[3 * (size_t)u] = q;
        *fr_at(c.gru.states, p, j) = h + score * (1.0f - z) * (n - h);
    }
}

static struct gru_step gru_step_of(const struct fr_device_gru *call)
{
    size_t entries = call->call.steps.entry_end - call->call.steps.entry_begin, u = call->call.units;
    struct gru_step step;
    memset(&step, 0, sizeof(step));
    step.gru = call->call;
    step.carry = call->call.workspace;
    step.hidden = step.carry + entries * u;
    step.sums = step.hidden + entries * u;
    return step;
}

static void enter_time(struct gru_step *step, const struct fr_device_gru *call, uint32_t t)
{
    step->t = t;
    step->rows = call->begin[t + 1] - call->begin[t];
    step->entries = call->entries + call->begin[t];
}

void fr_device_gru(struct fr_device_queue *queue, const struct fr_device_gru *call)
{
    struct gru_step step = gru_step_of(call);
    size_t u = call->call.units;
    for (uint32_t t = 0; t < call->longest; t++) {
        enter_time(&step, call, t);
        uint32_t blocks = fr_queue_blocks(queue, step.rows * u);
        struct fr_product product = {.m = step.rows, .n = 3 * u, .k = u, .left_ld = u, .right_ld = 3 * u};
        product.out_ld = 3 * u;
        product.left = step.hidden;
        product.right = call->call.kernel;
        product.out = step.sums;
        FR_LAUNCH(queue, gru_states_kernel, blocks, step);
        fr_queue_multiply(queue, &product);
        FR_LAUNCH(queue, gru_forward_kernel, blocks, step);
    }
}

/* ---- backward ---- */

/* Adds the gradient of each state to that from later steps. Each entry has a warp, because the
 * gradient of the score is a sum over units. */
FR_KERNEL(gru_backward_kernel, struct gru_step)
{
    uint32_t u = c.gru.units;
    FR_EACH_BY_WARP (row, c.rows) {
        size_t p = gru_row(&c, row), e = c.entries[row] - c.gru.steps.entry_begin;
        bool masked = fr_is_masked(&c.gru.steps, p);
        float score = c.gru.scores.values ? *fr_at(c.gru.scores, p, 0) : 1.0f, along = 0.0f;
        FR_EACH_BY_LANE (j, u) {
            float *sums = c.sums + (size_t)row * 3 * u + j, *carry = c.carry + e * u + j;
            *carry += *fr_at(c.gru.gradient, p, j);
            if (masked) {
                sums[0] = sums[u] = sums[2 * (size_t)u] = 0.0f;
                continue;
            }
            const float *gates = fr_at(c.gru.gates, p, j);
            float r = gates[0], z = gates[u], n = gates[2 * (size_t)u], q = gates[3 * (size_t)u];
            float h = state_before(&c, p, j), step = score * (1.0f - z), d_step = *carry * (n - h);
            float d_n = *carry * step * (1.0f - n * n), d_r = d_n * q * (r * (1.0f - r));
            float d_z = -score * d_step * (z * (1.0f - z));
            along += d_step * (1.0f - z);
            if (c.gru.input_gradient.values) {
                float *d = fr_at(c.gru.input_gradient, p, j);
                d[0] += d_r;
                d[u] += d_z;
                d[2 * (size_t)u] += d_n;
            }
            sums[0] = d_r;
            sums[u] = d_z;
            sums[2 * (size_t)u] = d_n * r;
            *carry *= 1.0f - step;
        }
        along = fr_warp_sum(along);
        if (!masked && c.gru.scores.values && c.gru.scores_gradient.values && fr_lane() == 0)
            *fr_at(c.gru.scores_gradient, p, 0) += along;
    }
}

/* Adds the gradients that pass through the kernel to the states before the step. */
FR_KERNEL(gru_through_kernel, struct gru_step)
{
    FR_EACH (at, (size_t)c.rows * c.gru.units) {
        struct fr_cell cell = fr_cell_of(at, c.gru.units);
        size_t e = c.entries[cell.row] - c.gru.steps.entry_begin;
        if (!fr_is_masked(&c.gru.steps, gru_row(&c, cell.row)))
            c.carry[e * c.gru.units + cell.column] += c.hidden[at];
    }
}

static void gru_kernel_gradient(struct fr_device_queue *queue, const struct gru_step *step)
{
    size_t u = step->gru.units;
    struct fr_product product = {.m = u, .n = 3 * u, .k = step->rows, .left_ld = u, .right_ld = 3 * u, .out_ld = 3 * u};
    product.left = step->hidden;
    product.right = step->sums;
    product.out = step->gru.kernel_gradient;
    product.left_transposed = true;
    product.accumulate = true;
    fr_queue_multiply(queue, &product);
}

void fr_device_gru_backward(struct fr_device_queue *queue, const struct fr_device_gru *call)
{
    struct gru_step step = gru_step_of(call);
    size_t u = call->call.units, entries = call->call.steps.entry_end - call->call.steps.entry_begin;
    fr_queue_zero(queue, step.carry, entries * u * sizeof(float));
    for (uint32_t t = call->longest; t-- > 0;) {
        enter_time(&step, call, t);
        uint32_t blocks = fr_queue_blocks(queue, step.rows * u);
        FR_LAUNCH(queue, gru_states_kernel, blocks, step);
        FR_LAUNCH(queue, gru_backward_kernel, fr_queue_blocks(queue, (size_t)step.rows * FR_WARP), step);
        struct fr_view sums = {step.sums, 3 * u};
        if (call->call.bias_gradient)
            fr_device_add_columns(queue, step.rows, 3 * (uint32_t)u, sums, call->call.bias_gradient);
        if (t == 0) /* the first state is zeros and not a parameter */
            continue;
        if (call->call.kernel_gradient)
            gru_kernel_gradient(queue, &step);
        struct fr_product product = {.m = step.rows, .n = u, .k = 3 * u, .left_ld = 3 * u, .right_ld = 3 * u};
        product.out_ld = u;
        product.left = step.sums;
        product.right = call->call.kernel;
        product.out = step.hidden;
        product.right_transposed = true;
        fr_queue_multiply(queue, &product);
        FR_LAUNCH(queue, gru_through_kernel, blocks, step);
    }
}
