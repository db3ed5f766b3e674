/* Kernels over ragged sequences: pooling over steps, attention without its first layer, the loss of
 * next steps.
 *
 * Work on single columns belongs to one thread per (entry, column), which loops over the entry's
 * steps. A sum over columns belongs to a warp, step after step. Steps are processed in ascending
 * order, so an entry's bits do not depend on its neighbours. */
#include "kernel.h"
#include "ops/pooling.h"

FR_DEVICE uint32_t entries_of(const struct fr_steps *steps)
{
    return steps->entry_end - steps->entry_begin;
}

static size_t cells(const struct fr_steps *steps, uint32_t width)
{
    return (size_t)(steps->entry_end - steps->entry_begin) * width;
}

/* ---- pooling ---- */

FR_KERNEL(pool_steps_kernel, struct fr_pool_steps)
{
    FR_EACH (at, (size_t)entries_of(&c.steps) * c.width) {
        struct fr_cell cell = fr_cell_of(at, c.width);
        uint32_t e = c.steps.entry_begin + (uint32_t)cell.row, begin = c.steps.begin[e], end = c.steps.begin[e + 1];
        float scale = fr_pooling_scale(c.kind, NULL, begin, end), pooled = 0.0f;
        if (fr_pooling_chooses(c.kind)) {
            uint32_t p = fr_pooling_chosen_step(&c, e, cell.column);
            pooled = p < end ? *fr_at(c.in, p, cell.column) : 0.0f;
        } else {
            for (uint32_t p = begin; p < end; p++)
                if (fr_pooling_takes_step(&c, p, end))
                    pooled += scale * *fr_at(c.in, p, cell.column);
        }
        *fr_cell_at(c.out, cell) = pooled;
    }
}

void fr_device_pool_steps(struct fr_device_queue *queue, const struct fr_pool_steps *call)
{
    FR_LAUNCH(queue, pool_steps_kernel, fr_queue_blocks(queue, cells(&call->steps, call->width)), *call);
}

FR_KERNEL(pool_steps_backward_kernel, struct fr_pool_steps)
{
    FR_EACH (at, (size_t)entries_of(&c.steps) * c.width) {
        struct fr_cell cell = fr_cell_of(at, c.width);
        uint32_t e = c.steps.entry_begin + (uint32_t)cell.row, begin = c.steps.begin[e], end = c.steps.begin[e + 1];
        float scale = fr_pooling_scale(c.kind, NULL, begin, end), g = *fr_cell_at(c.out, cell);
        if (fr_pooling_chooses(c.kind)) {
            uint32_t p = fr_pooling_chosen_step(&c, e, cell.column);
            if (p < end)
                *fr_at(c.in_gradient, p, cell.column) += g;
            continue;
        }
        for (uint32_t p = begin; p < end; p++)
            if (fr_pooling_takes_step(&c, p, end))
                *fr_at(c.in_gradient, p, cell.column) += scale * g;
    }
}

void fr_device_pool_steps_backward(struct fr_device_queue *queue, const struct fr_pool_steps *call)
{
    if (call->in_gradient.values)
        FR_LAUNCH(queue, pool_steps_backward_kernel, fr_queue_blocks(queue, cells(&call->steps, call->width)), *call);
}

/* ---- attention ---- */

FR_KERNEL(softmax_steps_kernel, struct fr_softmax_steps)
{
    FR_EACH_BY_WARP (at, entries_of(&c.steps)) {
        uint32_t e = c.steps.entry_begin + at, begin = c.steps.begin[e], n = c.steps.begin[e + 1] - begin;
        float largest = -INFINITY, sum = 0.0f;
        FR_EACH_BY_LANE (j, n) {
            float x = *fr_at(c.in, begin + j, 0);
            largest = !fr_is_masked(&c.steps, begin + j) && x > largest ? x : largest;
        }
        largest = fr_warp_largest(largest);
        FR_EACH_BY_LANE (j, n) {
            size_t p = begin + j;
            float x = fr_is_masked(&c.steps, p) ? 0.0f : fr_expf(*fr_at(c.in, p, 0) - largest);
            *fr_at(c.out, p, 0) = x;
            sum += x;
        }
        sum = fr_warp_sum(sum);
        FR_EACH_BY_LANE (j, n) {
            size_t p = begin + j;
            *fr_at(c.out, p, 0) = fr_is_masked(&c.steps, p) ? 0.0f : *fr_at(c.out, p, 0) / sum;
        }
    }
}

void fr_device_softmax_steps(struct fr_device_queue *queue, const struct fr_softmax_steps *call)
{
    FR_LAUNCH(queue, softmax_steps_kernel, fr_queue_blocks(queue, cells(&call->steps, FR_WARP)), *call);
}

FR_KERNEL(softmax_steps_backward_kernel, struct fr_softmax_steps)
{
    FR_EACH_BY_WARP (at, entries_of(&c.steps)) {
        uint32_t e = c.steps.entry_begin + at, begin = c.steps.begin[e], n = c.steps.begin[e + 1] - begin;
        float mean = 0.0f;
        FR_EACH_BY_LANE (j, n)
            mean += fr_is_masked(&c.steps, begin + j) ? 0.0f
                                                      : *fr_at(c.out, begin + j, 0) * *fr_at(c.gradient, begin + j, 0);
        mean = fr_warp_sum(mean);
        FR_EACH_BY_LANE (j, n) {
            size_t p = begin + j;
            if (!fr_is_masked(&c.steps, p))
                *fr_at(c.in_gradient, p, 0) += *fr_at(c.out, p, 0) * (*fr_at(c.gradient, p, 0) - mean);
        }
    }
}

void fr_device_softmax_steps_backward(struct fr_device_queue *queue, const struct fr_softmax_steps *call)
{
    if (call->in_gradient.values)
        FR_LAUNCH(queue, softmax_steps_backward_kernel, fr_queue_blocks(queue, cells(&call->steps, FR_WARP)), *call);
}

FR_KERNEL(attention_pool_kernel, struct fr_attention_pool)
{
    FR_EACH (at, (size_t)entries_of(&c.steps) * c.width) {
        struct fr_cell cell = fr_cell_of(at, c.width);
        uint32_t e = c.steps.entry_begin + (uint32_t)cell.row;
        float sum = 0.0f;
        for (uint32_t p = c.steps.begin[e]; p < c.steps.begin[e + 1]; p++)
            if (!fr_is_masked(&c.steps, p))
                sum += *fr_at(c.scores, p, 0) * *fr_at(c.keys, p, cell.column);
        *fr_cell_at(c.out, cell) = sum;
    }
}

void fr_device_attention_pool(struct fr_device_queue *queue, const struct fr_attention_pool *call)
{
    FR_LAUNCH(queue, attention_pool_kernel, fr_queue_blocks(queue, cells(&call->steps, call->width)), *call);
}

FR_KERNEL(attention_pool_backward_kernel, struct fr_attention_pool)
{
    FR_EACH_BY_WARP (at, entries_of(&c.steps)) {
        uint32_t e = c.steps.entry_begin + at;
        for (uint32_t p = c.steps.begin[e]; p < c.steps.begin[e + 1]; p++) {
            if (fr_is_masked(&c.steps, p))
                continue;
            float dot = 0.0f, score = *fr_at(c.scores, p, 0);
            FR_EACH_BY_LANE (j, c.width) {
                float g = *fr_at(c.out, at, j);
                dot += g * *fr_at(c.keys, p, j);
                if (c.keys_gradient.values)
                    *fr_at(c.keys_gradient, p, j) += score * g;
            }
            dot = fr_warp_sum(dot);
            if (c.scores_gradient.values && fr_lane() == 0)
                *fr_at(c.scores_gradient, p, 0) += dot;
        }
    }
}

void fr_device_attention_pool_backward(struct fr_device_queue *queue, const struct fr_attention_pool *call)
{
    FR_LAUNCH(queue, attention_pool_backward_kernel, fr_queue_blocks(queue, cells(&call->steps, FR_WARP)), *call);
}

FR_KERNEL(dot_steps_kernel, struct fr_dot_steps)
{
    FR_EACH_BY_WARP (at, entries_of(&c.steps)) {
        uint32_t e = c.steps.entry_begin + at;
        for (uint32_t p = c.steps.begin[e]; p < c.steps.begin[e + 1]; p++) {
            float dot = 0.0f;
            FR_EACH_BY_LANE (j, c.width)
                dot += *fr_at(c.query, at, j) * *fr_at(c.keys, p, j);
            dot = fr_warp_sum(dot);
            if (fr_lane() == 0)
                *fr_at(c.out, p, 0) = dot;
        }
    }
}

void fr_device_dot_steps(struct fr_device_queue *queue, const struct fr_dot_steps *call)
{
    FR_LAUNCH(queue, dot_steps_kernel, fr_queue_blocks(queue, cells(&call->steps, FR_WARP)), *call);
}

FR_KERNEL(dot_steps_backward_kernel, struct fr_dot_steps)
{
    FR_EACH (at, (size_t)entries_of(&c.steps) * c.width) {
        struct fr_cell cell = fr_cell_of(at, c.width);
        uint32_t e = c.steps.entry_begin + (uint32_t)cell.row;
        for (uint32_t p = c.steps.begin[e]; p < c.steps.begin[e + 1]; p++) {
            float g = *fr_at(c.out, p, 0);
            if (c.keys_gradient.values)
                *fr_at(c.keys_gradient, p, cell.column) += g * *fr_cell_at(c.query, cell);
            if (c.query_gradient.values)
                *fr_cell_at(c.query_gradient, cell) += g * *fr_at(c.keys, p, cell.column);
        }
    }
}

void fr_device_dot_steps_backward(struct fr_device_queue *queue, const struct fr_dot_steps *call)
{
    FR_LAUNCH(queue, dot_steps_backward_kernel, fr_queue_blocks(queue, cells(&call->steps, call->width)), *call);
}

/* ---- the loss of next steps ---- */

struct next_call {
    struct fr_next_step call;
    bool counts_only;
    double *parts; /* [entries] */
};

/* Returns the row of `other` that is `back` steps before its entry's end; UINT32_MAX: there is
 * none, or it is masked. */
FR_DEVICE uint32_t row_from_end(const struct fr_steps *other, uint32_t e, uint32_t back)
{
    uint32_t begin = other->begin[e], end = other->begin[e + 1];
    return end - begin < back || fr_is_masked(other, end - back) ? UINT32_MAX : end - back;
}

FR_DEVICE bool next_rows(const struct fr_next_step *c, uint32_t e, uint32_t p, uint32_t *positive, uint32_t *negative)
{
    uint32_t back = c->states_steps.begin[e + 1] - p - 1;
    *positive = row_from_end(&c->positive_steps, e, back);
    *negative = row_from_end(&c->negative_steps, e, back);
    return !fr_is_masked(&c->states_steps, p) && *positive != UINT32_MAX && *negative != UINT32_MAX;
}

/* Computes, by a warp, softplus(-h . e) for the positive of step p in `row`, or softplus(h . e)
 * for its negative, and adds the derivatives. */
FR_DEVICE double next_term(const struct fr_next_step *c, float scale, uint32_t p, bool positive, uint32_t row)
{
    struct fr_view gradient = positive ? c->positives_gradient : c->negatives_gradient;
    struct fr_view rows = positive ? c->positives : c->negatives;
    float sign = positive ? -1.0f : 1.0f, dot = 0.0f;
    FR_EACH_BY_LANE (j, c->width)
        dot += *fr_at(c->states, p, j) * *fr_at(rows, row, j);
    float z = sign * fr_warp_sum(dot), d = scale * sign * fr_sigmoidf(z);
    FR_EACH_BY_LANE (j, c->width) {
        if (c->states_gradient.values)
            *fr_at(c->states_gradient, p, j) += d * *fr_at(rows, row, j);
        if (gradient.values)
            *fr_at(gradient, row, j) += d * *fr_at(c->states, p, j);
    }
    return (double)fr_softplusf(z);
}

FR_KERNEL(next_step_kernel, struct next_call)
{
    FR_EACH_BY_WARP (at, entries_of(&c.call.states_steps)) {
        uint32_t e = c.call.states_steps.entry_begin + at, positive, negative, count = 0;
        uint32_t begin = c.call.states_steps.begin[e], end = c.call.states_steps.begin[e + 1];
        for (uint32_t p = begin; p + 1 < end && c.call.trained[e]; p++)
            count += next_rows(&c.call, e, p, &positive, &negative);
        double sum = 0.0;
        for (uint32_t p = begin; p + 1 < end && count > 0 && !c.counts_only; p++) {
            if (!next_rows(&c.call, e, p, &positive, &negative))
                continue;
            sum += next_term(&c.call, c.call.scale / (float)count, p, true, positive);
            sum += next_term(&c.call, c.call.scale / (float)count, p, false, negative);
        }
        if (fr_lane() == 0) {
            c.call.counts[e] = count;
            c.parts[at] = count > 0 ? sum / (double)count : 0.0;
        }
    }
}

void fr_device_next_step(struct fr_device_queue *queue, double *sum, const struct fr_next_step *call)
{
    uint32_t entries = call->states_steps.entry_end - call->states_steps.entry_begin;
    struct next_call loss = {*call, false, (double *)fr_queue_workspace(queue)};
    loss.counts_only =
        !call->states_gradient.values && !call->positives_gradient.values && !call->negatives_gradient.values;
    FR_LAUNCH(queue, next_step_kernel, fr_queue_blocks(queue, (size_t)entries * FR_WARP), loss);
    fr_device_join(queue, loss.parts, entries, sum);
}
