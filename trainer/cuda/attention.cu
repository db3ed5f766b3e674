/* The first layer of a target attention (Zhou et al. 2018, DIN) over [q, k, q - k, q o k], of all
 * entries at once.
 *
 * With Q, K, D, P the kernel's rows for the four parts, a step's output is k (K - D) + (q o k) P
 * + c with c = q (Q + D) + b of its entry. So two products over all steps and one over all
 * entries replace the small products that the processor computes for each entry, and nothing
 * wider than a key is stored.
 *
 * In the backward pass, let s be the sum of an entry's g, and t = g P'. The gradient of the keys
 * is g (K - D)' + q o t, that of the query is s (Q + D)' + sum of k o t, and those of the
 * kernel's parts are q' s, k' g, their difference and (q o k)' g. */
#include "kernel.h"

struct attention_step {
    struct fr_attention_dense a;
    uint32_t first, rows;
    float *of_keys, *of_query; /* [width, units] K - D, Q + D */
    float *outer, *crossed;    /* [width, units] q' s, k' g */
    float *entries;            /* [entries, units] c; in the backward pass s */
    float *products;           /* [rows, width] q o k */
    float *turned;             /* [rows, width] t; then [entries, width] q where there are steps */
};

static uint32_t entries_of(const struct fr_attention_dense *a)
{
    return a->steps.entry_end - a->steps.entry_begin;
}

static struct attention_step step_of(const struct fr_device_attention *call)
{
    size_t block = (size_t)call->call.width * call->call.units, keys = (size_t)call->rows * call->call.width;
    struct attention_step step;
    step.a = call->call;
    step.first = call->first;
    step.rows = call->rows;
    step.of_keys = call->call.workspace;
    step.of_query = step.of_keys + block;
    step.outer = step.of_query + block;
    step.crossed = step.outer + block;
    step.entries = step.crossed + block;
    step.products = step.entries + (size_t)entries_of(&call->call) * call->call.units;
    step.turned = step.products + keys;
    return step;
}

/* Returns the index of row j of part 0 to 3 of the kernel, or of the kernel's gradient. */
FR_DEVICE size_t kernel_at(const struct fr_attention_dense *a, uint32_t part, size_t j, uint32_t o)
{
    return ((size_t)part * a->width + j) * a->units + o;
}

FR_KERNEL(attention_kernel_kernel, struct attention_step)
{
    FR_EACH (at, (size_t)c.a.width * c.a.units) {
        struct fr_cell cell = fr_cell_of(at, c.a.units);
        float difference = c.a.kernel[kernel_at(&c.a, 2, cell.row, cell.column)];
        c.of_keys[at] = c.a.kernel[kernel_at(&c.a, 1, cell.row, cell.column)] - difference;
        c.of_query[at] = c.a.kernel[kernel_at(&c.a, 0, cell.row, cell.column)] + difference;
    }
}

/* Computes q o k of every step of an entry, column by column. */
FR_KERNEL(attention_products_kernel, struct attention_step)
{
    FR_EACH (at, (size_t)(c.a.steps.entry_end - c.a.steps.entry_begin) * c.a.width) {
        struct fr_cell cell = fr_cell_of(at, c.a.width);
        size_t e = c.a.steps.entry_begin + cell.row;
        float q = *fr_cell_at(c.a.query, cell);
        for (size_t p = c.a.steps.begin[e]; p < c.a.steps.begin[e + 1]; p++)
            c.products[(p - c.first) * c.a.width + cell.column] = q * *fr_at(c.a.keys, p, cell.column);
    }
}

FR_KERNEL(attention_begin_kernel, struct attention_step)
{
    FR_EACH (at, (size_t)(c.a.steps.entry_end - c.a.steps.entry_begin) * c.a.units) {
        struct fr_cell cell = fr_cell_of(at, c.a.units);
        size_t e = c.a.steps.entry_begin + cell.row;
        float begun = c.entries[at] + (c.a.bias ? c.a.bias[cell.column] : 0.0f);
        for (size_t p = c.a.steps.begin[e]; p < c.a.steps.begin[e + 1]; p++)
            *fr_at(c.a.out, p, cell.column) = begun;
    }
}

FR_KERNEL(attention_relu_kernel, struct attention_step)
{
    FR_EACH (at, (size_t)c.rows * c.a.units) {
        struct fr_cell cell = fr_cell_of(at, c.a.units);
        float *y = fr_at(c.a.out, c.first + cell.row, cell.column);
        *y = *y < 0.0f ? 0.0f : *y; /* NaN stays NaN */
    }
}

/* out = left right, or out += left right; in f32 whatever the precision is. */
static struct fr_product product_of(size_t m, size_t n, size_t k, bool accumulate)
{
    struct fr_product product;
    memset(&product, 0, sizeof(product));
    product.m = m;
    product.n = n;
    product.k = k;
    product.accumulate = accumulate;
    return product;
}

static void multiply(struct fr_device_queue *queue, struct fr_product product, struct fr_view left,
                     struct fr_view right, struct fr_view out)
{
    product.left = left.values;
    product.left_ld = left.ld;
    product.right = right.values;
    product.right_ld = right.ld;
    product.out = out.values;
    product.out_ld = out.ld;
    fr_queue_multiply(queue, &product);
}

static struct fr_view dense_view(float *values, size_t columns)
{
    struct fr_view view = {values, columns};
    return view;
}

static struct fr_view from_step(struct fr_view view, size_t step)
{
    view.values += step * view.ld;
    return view;
}

/* Returns P, the last part of the kernel, or of the kernel's gradient. */
static struct fr_view products_part(const struct fr_attention_dense *a, const float *kernel)
{
    return dense_view((float *)kernel + 3 * (size_t)a->width * a->units, a->units);
}

static void begin_step(struct fr_device_queue *queue, const struct attention_step *step)
{
    const struct fr_attention_dense *a = &step->a;
    FR_LAUNCH(queue, attention_kernel_kernel, fr_queue_blocks(queue, (size_t)a->width * a->units), *step);
    FR_LAUNCH(queue, attention_products_kernel, fr_queue_blocks(queue, (size_t)entries_of(a) * a->width), *step);
}

void fr_device_attention_dense(struct fr_device_queue *queue, const struct fr_device_attention *call)
{
    struct attention_step step = step_of(call);
    const struct fr_attention_dense *a = &step.a;
    size_t w = a->width, u = a->units;
    struct fr_view keys = from_step(a->keys, step.first), out = from_step(a->out, step.first);
    if (step.rows == 0)
        return;
    begin_step(queue, &step);
    multiply(queue, product_of(entries_of(a), u, w, false), a->query, dense_view(step.of_query, u),
             dense_view(step.entries, u));
    FR_LAUNCH(queue, attention_begin_kernel, fr_queue_blocks(queue, entries_of(a) * u), step);
    multiply(queue, product_of(step.rows, u, w, true), keys, dense_view(step.of_keys, u), out);
    multiply(queue, product_of(step.rows, u, w, true), dense_view(step.products, w), products_part(a, a->kernel), out);
    if (a->relu)
        FR_LAUNCH(queue, attention_relu_kernel, fr_queue_blocks(queue, step.rows * u), step);
}

/* ---- backward ---- */

/* Computes s of every entry, steps ascending. With a relu, the gradient of the relu is applied
 * first. */
FR_KERNEL(attention_sums_kernel, struct attention_step)
{
    FR_EACH (at, (size_t)(c.a.steps.entry_end - c.a.steps.entry_begin) * c.a.units) {
        struct fr_cell cell = fr_cell_of(at, c.a.units);
        size_t e = c.a.steps.entry_begin + cell.row;
        float sum = 0.0f;
        for (size_t p = c.a.steps.begin[e]; p < c.a.steps.begin[e + 1]; p++) {
            float *g = fr_at(c.a.gradient, p, cell.column);
            if (c.a.relu && !(*fr_at(c.a.out, p, cell.column) > 0.0f))
                *g = 0.0f;
            sum += *g;
        }
        c.entries[at] = sum;
    }
}

FR_KERNEL(attention_turned_kernel, struct attention_step)
{
    FR_EACH (at, (size_t)(c.a.steps.entry_end - c.a.steps.entry_begin) * c.a.width) {
        struct fr_cell cell = fr_cell_of(at, c.a.width);
        size_t e = c.a.steps.entry_begin + cell.row;
        float q = *fr_cell_at(c.a.query, cell), sum = 0.0f;
        for (size_t p = c.a.steps.begin[e]; p < c.a.steps.begin[e + 1]; p++) {
            float t = c.turned[(p - c.first) * c.a.width + cell.column];
            sum += *fr_at(c.a.keys, p, cell.column) * t;
            if (c.a.keys_gradient.values)
                *fr_at(c.a.keys_gradient, p, cell.column) += q * t;
        }
        if (c.a.query_gradient.values)
            *fr_cell_at(c.a.query_gradient, cell) += sum;
    }
}

FR_KERNEL(attention_parts_kernel, struct attention_step)
{
    FR_EACH (at, (size_t)c.a.width * c.a.units) {
        struct fr_cell cell = fr_cell_of(at, c.a.units);
        float outer = c.outer[at], crossed = c.crossed[at];
        c.a.kernel_gradient[kernel_at(&c.a, 0, cell.row, cell.column)] += outer;
        c.a.kernel_gradient[kernel_at(&c.a, 1, cell.row, cell.column)] += crossed;
        c.a.kernel_gradient[kernel_at(&c.a, 2, cell.row, cell.column)] += outer - crossed;
    }
}

/* The query of an entry without steps may be any number, also one that is not finite. Its s is
 * 0, and the product of both must be 0. */
FR_KERNEL(attention_query_kernel, struct attention_step)
{
    FR_EACH (at, (size_t)(c.a.steps.entry_end - c.a.steps.entry_begin) * c.a.width) {
        struct fr_cell cell = fr_cell_of(at, c.a.width);
        size_t e = c.a.steps.entry_begin + cell.row;
        bool empty = c.a.steps.begin[e] == c.a.steps.begin[e + 1];
        c.turned[at] = empty ? 0.0f : *fr_cell_at(c.a.query, cell);
    }
}

static void kernel_gradient(struct fr_device_queue *queue, const struct attention_step *step)
{
    const struct fr_attention_dense *a = &step->a;
    size_t w = a->width, u = a->units;
    struct fr_view g = from_step(a->gradient, step->first), keys = from_step(a->keys, step->first);
    struct fr_product outer = product_of(w, u, entries_of(a), false), crossed = product_of(w, u, step->rows, false);
    outer.left_transposed = crossed.left_transposed = true;
    FR_LAUNCH(queue, attention_query_kernel, fr_queue_blocks(queue, entries_of(a) * w), *step);
    multiply(queue, outer, dense_view(step->turned, w), dense_view(step->entries, u), dense_view(step->outer, u));
    multiply(queue, crossed, keys, g, dense_view(step->crossed, u));
    FR_LAUNCH(queue, attention_parts_kernel, fr_queue_blocks(queue, w * u), *step);
    crossed.accumulate = true;
    multiply(queue, crossed, dense_view(step->products, w), g, products_part(a, a->kernel_gradient));
}

void fr_device_attention_dense_backward(struct fr_device_queue *queue, const struct fr_device_attention *call)
{
    struct attention_step step = step_of(call);
    const struct fr_attention_dense *a = &step.a;
    size_t w = a->width, u = a->units;
    struct fr_view g = from_step(a->gradient, step.first);
    struct fr_product by_step = product_of(step.rows, w, u, false), by_entry = product_of(entries_of(a), w, u, true);
    by_step.right_transposed = by_entry.right_transposed = true;
    if (step.rows == 0)
        return;
    begin_step(queue, &step);
    FR_LAUNCH(queue, attention_sums_kernel, fr_queue_blocks(queue, entries_of(a) * u), step);
    if (a->bias_gradient)
        fr_device_add_columns(queue, step.rows, a->units, g, a->bias_gradient);
    multiply(queue, by_step, g, products_part(a, a->kernel), dense_view(step.turned, w));
    FR_LAUNCH(queue, attention_turned_kernel, fr_queue_blocks(queue, entries_of(a) * w), step);
    by_step.accumulate = true;
    if (a->keys_gradient.values)
        multiply(queue, by_step, g, dense_view(step.of_keys, u), from_step(a->keys_gradient, step.first));
    if (a->query_gradient.values)
        multiply(queue, by_entry, dense_view(step.entries, u), dense_view(step.of_query, u), a->query_gradient);
    if (a->kernel_gradient)
        kernel_gradient(queue, &step);
}
