/* Arguments of the layer operations of the table in ops.h: activations, normalisation,
 * interactions, sequences, attention, recurrence, mixtures, auxiliary losses.
 *
 * A vector view has one row per entry of a chunk: row 0 is the chunk's first. A step view is ragged
 * and absolute: the steps of entry e are rows begin[e] .. begin[e + 1] of the whole batch, whatever
 * chunk is computed. Every backward operation ADDS to the gradients it is given; a view with
 * .values NULL means that the gradient is not wanted. Gradients of parameters are partial sums of
 * one chunk, added to; the caller joins chunks in ascending order. Sums run over ascending rows,
 * steps, then columns (the cpu backends: 8 interleaved partial sums over columns). Outputs do not
 * overlap inputs, except where a comment allows it; the same view may occur several times among the
 * gradients that are added to.
 *
 * Forward, the bits of an entry do not depend on its chunk or its neighbours (gru, attention_dense:
 * where fr_ops.rows_independent). Tolerance NMSE(1e-10) unless a comment says otherwise. Thread and
 * limits: ops.h. */
#ifndef FR_OPS_LAYERS_H
#define FR_OPS_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vocabulary/activation.h"
#include "vocabulary/pooling.h"

struct fr_view {
    float *values;
    size_t ld; /* floats from one row to the next, >= the number of columns */
};

/* Entries [entry_begin, entry_end) of a ragged sequence. */
struct fr_steps {
    const uint32_t *begin; /* [entries + 1] */
    const uint8_t *masked; /* per step: 1: the step has no row; NULL: every step has one */
    uint32_t entry_begin, entry_end;
};

/* ---- rows of a sequence slot ---- */

/* Step row p = weight(p) * row(p), zeros and masked[p] = 1 where there is no row. */
struct fr_gather_steps {
    const float *weights;      /* [ids]; NULL: all weights are 1 */
    const uint32_t *unique_of; /* per id */
    float *const *rows;
    uint32_t value_offset, dim;
    uint32_t begin, end; /* range of ids */
    uint8_t *masked;     /* out, indexed by steps of the whole batch */
    struct fr_view out;  /* row 0 is step 0 of the whole batch */
};

/* ---- moving rows ---- */

/* out[r] = in[source[r]] for rows [begin, end); all absolute. EXACT. */
struct fr_expand {
    const uint32_t *source;
    uint32_t begin, end, width;
    struct fr_view in, out;
};
/* Backward of expand for vectors: out[g] += sum over samples s of group_begin[g] .. group_begin[g +
 * 1] of in[s]. */
struct fr_collapse {
    const uint32_t *group_begin;
    uint32_t begin, end, width; /* groups */
    struct fr_view in, out;     /* absolute */
};
/* Backward of expand for step rows: out[steps_begin[g] + t] += sum over samples s of group g of
 * in[expanded_begin[s] + t]. */
struct fr_collapse_steps {
    const uint32_t *group_begin, *steps_begin, *expanded_begin;
    uint32_t begin, end, width;
    struct fr_view in, out;
};
/* Joins a sequence of other lengths, newest to newest: with T steps in `to` and F in `from`, step t
 * of `to` is step t + F - T of `from`, zeros where that is negative. EXACT; backward adds. */
struct fr_align {
    const uint32_t *to_begin, *from_begin;
    uint32_t entry_begin, entry_end, width;
    struct fr_view to, from; /* backward: gradients of both; from is added to */
};

/* ---- element by element ---- */

/* y may be x for none, relu, leaky_relu, sigmoid and tanh, whose backward pass reads only y; the
 * backward pass of the others reads only x. */
struct fr_activate {
    enum fr_activation kind;
    uint32_t m, n;
    const float *alpha;           /* [n] prelu, dice */
    const float *mean, *variance; /* [n] dice: constants, no gradient */
    struct fr_view x, y;
    struct fr_view gradient, x_gradient; /* backward */
    float *alpha_gradient;               /* [n] or NULL */
};
/* y = scale o (x - mean) / sqrt(variance + epsilon) + bias over each row's n values (biased
 * variance). */
struct fr_layer_norm {
    uint32_t m, n;
    float epsilon;
    const float *scale, *bias; /* [n] */
    struct fr_view x, y;
    /* [m, 2] out of forward, for backward: mean, 1 / sqrt(variance + epsilon) */
    struct fr_view moments;
    struct fr_view gradient, x_gradient;
    float *scale_gradient, *bias_gradient; /* [n] */
};
/* y = 0 or x * (1 / (1 - rate)), rate in [0, 1); whether element (i, j) survives is a pure function
 * of (seed, key, first + i, j): the same in forward and backward (x: gradient in, y: gradient out,
 * added when `accumulate`), for every backend and chunk. y may be x. EXACT. */
struct fr_dropout {
    uint32_t m, n, first; /* first: sample number of row 0 in the batch */
    uint64_t seed, key;   /* key: layer and step */
    float rate;
    bool accumulate;
    struct fr_view x, y;
};
/* One-hot of the number of boundaries <= x, per number: [m, dim] -> [m, dim * (n_boundaries +
 * 1)]. A NaN is a missing number and counts as `missing` (if that is NaN, too, no boundary is
 * below it). EXACT. */
struct fr_bucketize {
    uint32_t m, dim, n_boundaries;
    const float *boundaries; /* ascending */
    float missing;
    struct fr_view x, y;
};
/* y = (x - mean_j) / sqrt(variance_j + epsilon), cut to +-limit; 0 everywhere while *count <
 * count_min. A NaN is a missing number and counts as `missing`; if that is NaN, too, y is 0. y
 * may be x. */
struct fr_standardize {
    uint32_t m, n;
    const float *mean, *variance, *count;
    float epsilon, limit, count_min, missing;
    struct fr_view x, y;
};
/* y = x, or missing[j mod 2] where x is NaN. EXACT. */
struct fr_fill_missing {
    uint32_t m, n;
    float missing[2];
    struct fr_view x, y;
};
/* [m, 1]: 1 where the first number of x is NaN, else 0. EXACT. */
struct fr_mark_missing {
    uint32_t m;
    struct fr_view x, y;
};
/* sum_j += x and square_j += x^2 over rows whose `use` is not 0, in ascending order, in double. */
struct fr_moments {
    uint32_t m, n;
    struct fr_view x;
    const uint8_t *use; /* per row, or NULL: all */
    double *sum, *square;
};

/* ---- interactions ---- */

/* Over `count` inputs [m, n]. product: out [m, n]. dot_interaction: out [m, count (count - 1) / 2],
 * pairs (0,1), (0,2), (1,2), (0,3) ... : j ascending, then i < j. */
struct fr_interaction {
    uint32_t m, n, count;
    const struct fr_view *in;
    struct fr_view out;                /* forward: written; backward: its gradient */
    const struct fr_view *in_gradient; /* backward */
};
/* out = x0 o t + x; out may be x. */
struct fr_cross {
    uint32_t m, n;
    struct fr_view x0, t, x, out; /* backward: out is the gradient */
    struct fr_view x0_gradient, t_gradient, x_gradient;
};
/* gates [m, count] logits, experts [m, count * n] side by side: out = sum_e softmax(gates)_e
 * experts_e. */
struct fr_mixture {
    uint32_t m, n, count;
    struct fr_view gates, experts, out;
    struct fr_view weights; /* [m, count] softmax, written by forward */
    struct fr_view gradient, gates_gradient, experts_gradient;
};

/* ---- sequences ---- */

/* Vector rows are entries (row 0: entry_begin). Masked steps add nothing, but mean and sqrtn divide
 * by the number of all steps; last: the newest row, masked or not (a recurrence holds its state
 * there); no steps: zeros. Backward: in_gradient from `out` as gradient. */
struct fr_pool_steps {
    struct fr_steps steps;
    enum fr_pooling kind;
    uint32_t width;
    struct fr_view in, out, in_gradient;
};
/* out[p] = [q, k_p, q - k_p, q o k_p] W + b, W [4 width, units], then max(out, 0) when relu; masked
 * steps like others (their key is zeros). Computed as k_p (K - D + diag(q) P) + (q (Q + D) + b)
 * with Q, K, D, P the blocks of W's rows. Products are the backend's `multiply`, of f32 in every
 * backend; gradients: steps ascending within an entry, then entries. The gradient of a relu's
 * output becomes that of its input in place. */
struct fr_attention_dense {
    struct fr_steps steps;
    uint32_t width, units;
    bool relu;
    const float *kernel;      /* W */
    const float *bias;        /* b [units] or NULL */
    struct fr_view query;     /* vector */
    struct fr_view keys, out; /* steps */
    float *workspace;         /* fr_ops.attention_workspace floats */
    struct fr_view gradient;  /* gradient of `out` */
    struct fr_view query_gradient, keys_gradient;
    float *kernel_gradient, *bias_gradient;
};
/* Softmax over the unmasked steps of an entry, 0 for masked ones; [T, 1]. */
struct fr_softmax_steps {
    struct fr_steps steps;
    struct fr_view in, out;
    struct fr_view gradient, in_gradient; /* backward (needs out) */
};
/* out = sum over unmasked steps of score_t * key_t. */
struct fr_attention_pool {
    struct fr_steps steps;
    uint32_t width;
    struct fr_view scores, keys; /* steps */
    struct fr_view out;          /* vector; backward: gradient */
    struct fr_view scores_gradient, keys_gradient;
};
/* out[p] = key_p . query of its entry, masked steps like others. */
struct fr_dot_steps {
    struct fr_steps steps;
    uint32_t width;
    struct fr_view keys, query;
    struct fr_view out; /* backward: gradient */
    struct fr_view keys_gradient, query_gradient;
};
/* GRU over steps, PyTorch's equations. input = x W + b, columns r | z | n. With h the state before
 * the step: r = s(i_r + h U_r + c_r), z = s(i_z + h U_z + c_z), n = tanh(i_n + r (h U_n + c_n)), u
 * = 1 - z, h' = (1 - u) h + u n. With scores a_t (AUGRU): u = a_t (1 - z). A masked step keeps the
 * state and its gates are zeros. First state: zeros. Products are the backend's `multiply`;
 * gradients of kernel and bias: steps descending, entries ascending. */
struct fr_gru {
    struct fr_steps steps;
    uint32_t units;
    struct fr_view input;    /* [T, 3 units] */
    struct fr_view scores;   /* [T, 1] or .values NULL */
    const float *kernel;     /* U [units, 3 units] */
    const float *bias;       /* c [3 units] */
    struct fr_view states;   /* [T, units] */
    struct fr_view gates;    /* [T, 4 units] out of forward, for backward: r, z, n, h U_n + c_n */
    float *workspace;        /* fr_ops.gru_workspace floats: grows with entries, not with steps */
    struct fr_view gradient; /* gradient of the states */
    struct fr_view input_gradient, scores_gradient;
    float *kernel_gradient, *bias_gradient;
};

/* ---- auxiliary losses ---- */

/* They return the sum over trained entries in double, and add scale * derivative. */

/* 1/2 |a - b|^2. */
struct fr_mse_pair {
    uint32_t m, n;
    const uint8_t *trained; /* per row */
    float scale;
    struct fr_view a, b, a_gradient, b_gradient;
};
/* Over steps t with a next one: log(1 + exp(-h_t . e_{t+1})) + log(1 + exp(h_t . n_{t+1})), where
 * positives and negatives are aligned newest to newest with states; a step counts when state t,
 * e_{t+1} and n_{t+1} are there and unmasked. An entry's loss is the mean over its steps that
 * count. */
struct fr_next_step {
    /* all three have the same entries */
    struct fr_steps states_steps, positive_steps, negative_steps;
    uint32_t width;
    const uint8_t *trained; /* per entry, absolute */
    float scale;
    struct fr_view states, positives, negatives;
    struct fr_view states_gradient, positives_gradient, negatives_gradient;
    uint32_t *counts; /* out: [entries], absolute: steps that counted */
};

#endif
