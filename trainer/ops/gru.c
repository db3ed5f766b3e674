/* CPU backend: GRU (Cho et al. 2014, PyTorch's form) and AUGRU (Zhou et al. 2019, DIEN) over ragged
 * sequences.
 *
 * Idea: step t is computed for all entries of the chunk at once. The states of the entries that
 * have a step t are gathered and multiplied by the recurrent kernel as one product, so a long
 * sequence is not a chain of matrix-vector products; an entry without a step t, or with a masked
 * one, costs a comparison. In the backward pass the same rows are gathered again: the kernel's
 * gradient is the product of earlier states and gate gradients of a step, added for steps
 * descending and entries ascending. Memory does not grow with the length of a sequence.
 *
 * Bits of an entry do not depend on the others where rows of a product do not
 * (fr_ops.rows_independent).
 *
 * Thread: any, no state. Whether numbers are finite is not checked. */
#include <string.h>

#include "base/math.h"
#include "cpu.h"
#include "lanes.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { ALIGNMENT = 16 }; /* floats in a cache line */

struct workspace {
    float *carry; /* [entries, units] gradient of the state after the present step */
    /* [entries with the step, units] state before the step; then the gradient of that state
     * through the kernel */
    float *hidden;
    /* [entries with the step, 3 units] h U; in the backward pass gradients of h U + c */
    float *sums;
    float *flipped; /* packed copy of the transposed kernel */
};

static size_t rounded(size_t floats)
{
    return (floats + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t fr_cpu_gru_workspace(const struct fr_steps *steps, uint32_t units, const struct fr_ops *ops)
{
    size_t entries = steps->entry_end - steps->entry_begin, u = units;
    return ALIGNMENT + 2 * rounded(entries * u) + rounded(entries * 3 * u) + ops->packed_floats(3 * units, units);
}

static struct workspace lay_out(const struct fr_gru *c)
{
    size_t states = rounded((size_t)(c->steps.entry_end - c->steps.entry_begin) * c->units);
    size_t sums = rounded((size_t)(c->steps.entry_end - c->steps.entry_begin) * 3 * c->units);
    size_t misaligned = (uintptr_t)c->workspace / sizeof(float) % ALIGNMENT;
    float *base = c->workspace + (misaligned ? ALIGNMENT - misaligned : 0);
    return (struct workspace){base, base + states, base + 2 * states, base + 2 * states + sums};
}

static uint32_t longest(const struct fr_steps *steps)
{
    uint32_t most = 0;
    for (uint32_t e = steps->entry_begin; e < steps->entry_end; e++) {
        uint32_t length = steps->begin[e + 1] - steps->begin[e];
        most = length > most ? length : most;
    }
    return most;
}

enum step_kind { STEP_NONE, STEP_MASKED, STEP_THERE };

/* Whether entry e has a step t, whose row is then in *p. */
FR_IN_LINE enum step_kind step_at(const struct fr_steps *steps, uint32_t e, uint32_t t, size_t *p)
{
    if (steps->begin[e + 1] - steps->begin[e] <= t)
        return STEP_NONE;
    *p = (size_t)steps->begin[e] + t;
    return steps->masked && steps->masked[*p] ? STEP_MASKED : STEP_THERE;
}

/* Gathers the states before step t, one row for each entry that has the step, entries ascending.
 * Returns the number of rows. */
static uint32_t gather_states(const struct fr_gru *c, uint32_t t, float *hidden)
{
    uint32_t rows = 0;
    size_t p;
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        if (step_at(&c->steps, e, t, &p) != STEP_THERE)
            continue;
        float *row = hidden + (size_t)rows++ * c->units;
        if (t > 0)
            memcpy(row, c->states.values + (p - 1) * c->states.ld, c->units * sizeof(float));
        else
            memset(row, 0, c->units * sizeof(float));
    }
    return rows;
}

/* Computes r and z, 2 units next to each other. */
FR_IN_LINE void sigmoid_gates(float *restrict gates, const float *restrict x, const float *restrict sums,
                              const float *restrict bias, size_t n)
{
    for (size_t j = 0; j < n; j++)
        gates[j] = fr_sigmoidf(x[j] + (sums[j] + bias[j]));
}

/* Computes n = tanh(x + r q). */
FR_IN_LINE void candidate(float *restrict n, const float *restrict x, const float *restrict r, const float *restrict q,
                          size_t units)
{
    for (size_t j = 0; j < units; j++)
        n[j] = fr_tanhf(x[j] + r[j] * q[j]);
}

/* Computes gates and state of step p from the state before it and the product of that state with
 * the kernel. The loops are short, because gcc 12 does not vectorise a single loop over all of
 * this. */
FR_IN_LINE void gates_forward(const struct fr_gru *c, size_t p, const float *restrict h, const float *restrict sums)
{
    size_t u = c->units;
    const float *x = c->input.values + p * c->input.ld, *restrict bias = c->bias + 2 * u;
    float *gates = c->gates.values + p * c->gates.ld, *restrict state = c->states.values + p * c->states.ld;
    const float *restrict z = gates + u, *restrict n = gates + 2 * u;
    float *restrict q = gates + 3 * u, score = c->scores.values ? c->scores.values[p * c->scores.ld] : 1.0f;
    sigmoid_gates(gates, x, sums, c->bias, 2 * u);
    for (size_t j = 0; j < u; j++)
        q[j] = sums[2 * u + j] + bias[j];
    candidate(gates + 2 * u, x + 2 * u, gates, q, u);
    for (size_t j = 0; j < u; j++)
        state[j] = h[j] + score * (1.0f - z[j]) * (n[j] - h[j]);
}

/* A masked step keeps the state; its gates are zeros. */
static void keep_state(const struct fr_gru *c, size_t p, uint32_t t)
{
    float *state = c->states.values + p * c->states.ld;
    memset(c->gates.values + p * c->gates.ld, 0, 4 * (size_t)c->units * sizeof(float));
    if (t > 0)
        memcpy(state, state - c->states.ld, c->units * sizeof(float));
    else
        memset(state, 0, c->units * sizeof(float));
}

FR_CLONES
static void step_forward(const struct fr_gru *c, uint32_t t, const struct workspace *w)
{
    uint32_t row = 0;
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        size_t p = 0;
        switch (step_at(&c->steps, e, t, &p)) {
        case STEP_NONE:
            break;
        case STEP_MASKED:
            keep_state(c, p, t);
            break;
        case STEP_THERE:
            gates_forward(c, p, w->hidden + (size_t)row * c->units, w->sums + (size_t)row * 3 * c->units);
            row++;
            break;
        }
    }
}

void fr_cpu_gru(const struct fr_gru *c, const struct fr_ops *ops)
{
    struct workspace w = lay_out(c);
    uint32_t u = c->units, steps = longest(&c->steps);
    struct fr_operand kernel = {.values = c->kernel, .ld = 3 * (size_t)u, .rows = u, .columns = 3 * u};
    for (uint32_t t = 0; t < steps; t++) {
        uint32_t rows = gather_states(c, t, w.hidden);
        struct fr_operand hidden = {.values = w.hidden, .ld = u, .rows = rows, .columns = u};
        struct fr_multiply product = {.left = &hidden, .right = &kernel, .row_end = rows, .out = {w.sums, kernel.ld}};
        if (rows > 0)
            ops->multiply(&product);
        step_forward(c, t, &w);
    }
}

/* Computes the gradients of what the gates of step p were made from: of i_r, i_z, i_n in the
 * input's gradient, and of h U + c in `sums`. `carry` is the gradient of the state after the
 * step. It becomes the gradient of the state before the step, without the part that passes
 * through the kernel. */
FR_IN_LINE void gates_backward(const struct fr_gru *c, size_t p, const float *restrict h, float *restrict carry,
                               float *restrict sums)
{
    size_t u = c->units;
    const float *restrict gates = c->gates.values + p * c->gates.ld;
    float *restrict d = c->input_gradient.values ? c->input_gradient.values + p * c->input_gradient.ld : NULL;
    float score = c->scores.values ? c->scores.values[p * c->scores.ld] : 1.0f;
    for (size_t j = 0; j < u; j++) {
        float r = gates[j], z = gates[u + j], n = gates[2 * u + j], q = gates[3 * u + j];
        float step = score * (1.0f - z), d_step = carry[j] * (n - h[j]);
        float d_n = carry[j] * step * (1.0f - n * n);
        sums[j] = d_n * q * (r * (1.0f - r));
        sums[u + j] = -score * d_step * (z * (1.0f - z));
        sums[2 * u + j] = d_n;
        carry[j] *= 1.0f - step;
    }
    if (d)
        for (size_t j = 0; j < 3 * u; j++)
            d[j] += sums[j];
    for (size_t j = 0; j < u; j++)
        sums[2 * u + j] *= gates[j];
}

/* Adds the gradient of step p's score: sum over units of carry (n - h) (1 - z). */
FR_IN_LINE void score_backward(const struct fr_gru *c, size_t p, const float *h, const float *carry)
{
    size_t u = c->units, whole = u - u % FR_LANES;
    const float *z = c->gates.values + p * c->gates.ld + u, *n = z + u;
    float lane[FR_LANES] = {0};
    for (size_t j = 0; j < whole; j += FR_LANES)
        for (size_t l = 0; l < FR_LANES; l++)
            lane[l] += carry[j + l] * (n[j + l] - h[j + l]) * (1.0f - z[j + l]);
    for (size_t j = whole; j < u; j++)
        lane[j - whole] += carry[j] * (n[j] - h[j]) * (1.0f - z[j]);
    c->scores_gradient.values[p * c->scores_gradient.ld] += fr_lanes_tree(lane);
}

FR_CLONES
static void step_backward(const struct fr_gru *c, uint32_t t, const struct workspace *w)
{
    uint32_t u = c->units, row = 0;
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        size_t p;
        enum step_kind kind = step_at(&c->steps, e, t, &p);
        if (kind == STEP_NONE)
            continue;
        float *restrict carry = w->carry + (size_t)(e - c->steps.entry_begin) * u;
        const float *restrict g = c->gradient.values + p * c->gradient.ld;
        for (uint32_t j = 0; j < u; j++)
            carry[j] += g[j];
        if (kind == STEP_MASKED)
            continue;
        const float *h = w->hidden + (size_t)row * u;
        if (c->scores.values && c->scores_gradient.values)
            score_backward(c, p, h, carry);
        gates_backward(c, p, h, carry, w->sums + (size_t)row * 3 * u);
        row++;
    }
}

FR_CLONES
static void add_bias_gradient(const struct fr_gru *c, const struct workspace *w, uint32_t rows)
{
    float *restrict d = c->bias_gradient;
    for (uint32_t i = 0; i < rows && d; i++) {
        const float *restrict sums = w->sums + (size_t)i * 3 * c->units;
        for (uint32_t j = 0; j < 3 * c->units; j++)
            d[j] += sums[j];
    }
}

/* Adds the gradients that pass through the kernel to the states before step t. */
FR_CLONES
static void add_through_kernel(const struct fr_gru *c, uint32_t t, const struct workspace *w)
{
    uint32_t u = c->units, row = 0;
    size_t p;
    for (uint32_t e = c->steps.entry_begin; e < c->steps.entry_end; e++) {
        if (step_at(&c->steps, e, t, &p) != STEP_THERE)
            continue;
        float *restrict carry = w->carry + (size_t)(e - c->steps.entry_begin) * u;
        const float *restrict through = w->hidden + (size_t)row++ * u;
        for (uint32_t j = 0; j < u; j++)
            carry[j] += through[j];
    }
}

void fr_cpu_gru_backward(const struct fr_gru *c, const struct fr_ops *ops)
{
    struct workspace w = lay_out(c);
    uint32_t u = c->units, entries = c->steps.entry_end - c->steps.entry_begin;
    struct fr_operand flipped = {.values = c->kernel, .ld = 3 * (size_t)u, .rows = 3 * u, .columns = u};
    flipped.transposed = true;
    if (ops->packed_floats(3 * u, u) > 0) {
        flipped.packed = w.flipped;
        ops->pack(&flipped, 0, 3 * u);
    }
    memset(w.carry, 0, (size_t)entries * u * sizeof(float));
    for (uint32_t t = longest(&c->steps); t-- > 0;) {
        uint32_t rows = gather_states(c, t, w.hidden);
        step_backward(c, t, &w);
        add_bias_gradient(c, &w, rows);
        if (t == 0 || rows == 0) /* the first state is zeros and not a parameter */
            continue;
        struct fr_operand hidden = {.values = w.hidden, .ld = u, .rows = u, .columns = rows, .transposed = true};
        struct fr_operand sums = {.values = w.sums, .ld = 3 * (size_t)u, .rows = rows, .columns = 3 * u};
        if (c->kernel_gradient)
            ops->multiply(&(struct fr_multiply){.left = &hidden,
                                                .right = &sums,
                                                .row_end = u,
                                                .out = {c->kernel_gradient, 3 * (size_t)u},
                                                .accumulate = true});
        ops->multiply(&(struct fr_multiply){.left = &sums, .right = &flipped, .row_end = rows, .out = {w.hidden, u}});
        add_through_kernel(c, t, &w);
    }
}
