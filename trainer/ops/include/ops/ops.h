/* One operation table, several backends: `cpu` (own fixed-order products, vectorised loops) and
 * `openblas` (the same with cblas_sgemm). The CUDA plug-in has a table with the same members
 * (cuda/api.h). The parity suite (tests/unit/ops) drives every backend against `reference`
 * (tests/reference: double accumulation, plain loops), which only tests link.
 *
 * Each operation works on one chunk or block; the graph splits the work over workers, so an
 * operation needs no pool, keeps no state and allocates nothing. Matrices are row-major; row i of a
 * view begins at values + i * ld. Element mathematics is in ops/row.h and base/math.h, valid as C
 * and CUDA.
 *
 * Tolerance classes against `reference`: EXACT (same bits), NMSE(e) (sum of squared differences
 * <= e * sum of squares of the reference). Thread: any; an operation touches only its arguments.
 * Determinism: the order of every reduction is stated; no backend depends on the number of
 * workers. */
#ifndef FR_OPS_OPS_H
#define FR_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/lane_tree.h"
#include "ops/layers.h"
#include "ops/row.h"

/* ---- matrix products ---- */

/* A factor: logically rows x columns; element (i, j) is values[i * ld + j], or values[j * ld + i]
 * when transposed. `packed` is the backend's own copy of a right factor (packed_floats, pack) or
 * NULL. A transposed right factor must be packed where packed_floats > 0. */
struct fr_operand {
    const float *values;
    size_t ld;
    uint32_t rows, columns;
    bool transposed;
    float *packed; /* 64-byte aligned */
};

struct fr_multiply {
    const struct fr_operand *left;  /* [m, k] */
    const struct fr_operand *right; /* [k, n] */
    uint32_t row_begin, row_end;    /* rows of the product that are computed */
    struct fr_view out;             /* [m, n]: row 0 is product row 0, whatever row_begin says */
    bool accumulate;                /* out += product instead of out = product */

    /* What is done to the computed rows once they are complete, in this order, while they are in
     * the cache: bias_activate unless bias is NULL; relu_backward by the values of `gate` unless
     * gate.values is NULL; max_bits joined into *bits by maximum, unless bits is NULL. */
    const float *bias; /* [n] */
    bool relu;
    struct fr_view gate; /* [m, n] */
    uint32_t *bits;
};

enum { FR_ROW_BLOCK = 96 }; /* rows of a weight gradient computed by one task */

/* ---- pooled embeddings ---- */

/* An entry is a sample, or a group where the slot's column is shared. Out row s = the pooling
 * (ops/pooling.h) of coef(p) * row(p) over the ids p of entry s; coef = weight, times 1 / sum of
 * weights (mean) or 1 / sqrt(sum of squared weights) (sqrtn). Ids without a row add zeros and count
 * in the denominator, and are not chosen; no ids, none to choose from, or a denominator of 0:
 * zeros. */
struct fr_gather {
    const uint32_t *begin;     /* [entries + 1] ids of entry s are begin[s] .. begin[s + 1] */
    const float *weights;      /* per id; NULL: all weights are 1 */
    const uint32_t *unique_of; /* per id: index into rows */
    float *const *rows;        /* NULL: no row */
    uint32_t value_offset, dim;
    uint32_t entry_begin, entry_end;
    enum fr_pooling kind;
    float *kept; /* [entries, fr_pooling_kept] out: what the update of the rows needs */
    struct fr_view out;
};

/* The sum of one row from each of several slots, and the rows' interaction by pairs
 * (bi_interaction). */
struct fr_summed_slot {
    const uint32_t *unique_of; /* [entries]: every entry has one id, without a weight */
    float *const *rows;        /* NULL: no row, zeros */
    uint32_t value_offset;
};
enum { FR_SUM_DIM_MAX = 16 };
struct fr_row_sums {
    uint32_t count; /* slots */
    const struct fr_summed_slot *slots;
    uint32_t dim; /* FR_SUM_DIM_MAX at most */
    uint32_t entry_begin, entry_end;
    struct fr_view sum, pairs; /* [entries, dim]; pairs.values NULL: not wanted */
};

/* Whether each of n entries has one id, and no weight. */
static inline bool fr_single_ids(const uint32_t *begin, uint32_t n, const float *weights)
{
    uint32_t other = 0;
    for (uint32_t i = 0; i <= n; i++)
        other |= (begin[i] - begin[0]) ^ i;
    return other == 0 && !weights;
}

/* The place in a batch that an id comes from. */
struct fr_occurrence {
    uint32_t entry;
    uint32_t group; /* the slot's number among the sources */
};

/* One reader of a slot's rows, seen from the gradient. */
struct fr_row_source {
    uint32_t part;
    uint32_t first; /* occurrence number of the slot's first id */
    /* [entries, dim] of the pooled output; by_id: [ids of the slot, dim], of step rows */
    struct fr_view gradient;
    /* When .values is not NULL, the gradient of a row v (as it was served) is gradient + pairs *
     * (sum - v) instead, as for rows that were read by sum_rows. Of the members below only
     * trained, counted and whole are then set. */
    struct fr_view pairs, sum;
    const float *weights; /* per id of the slot; NULL: all weights are 1 */
    const float *kept;    /* per entry, from fr_gather */
    /* per entry: its samples that are trained through this reader; 0 contributes nothing */
    const uint32_t *trained;
    /* per entry: how much an occurrence counts if this is the first reader that contributes to
     * it */
    const uint32_t *counted;
    /* by_id: steps that were masked in the forward pass contribute nothing; may be NULL */
    const uint8_t *masked;
    bool by_id;
    bool whole; /* trained and counted are 1 for every entry */
    /* the pooling by which the entry was read; by_id: FR_POOL_SUM */
    enum fr_pooling pooling;
};

struct fr_row_part {
    uint32_t value_offset, dim, state_offset;
    struct fr_optimizer optimizer;
};

enum { FR_ROW_SCRATCH = 2, FR_ROW_SCRATCH_LANES = FR_ROW_SCRATCH + FR_LANE_TREE_DEPTH };

struct fr_row_update {
    float *const *rows; /* by unique key; NULL: no row, no gradient */
    /* as the forward pass read them, NULL: zeros; for sources with pairs */
    float *const *served;
    const uint32_t *occ_begin, *occ;
    /* parallel to occ: the entry in the low entry_bits bits, and above them the slot's number among
     * the sources */
    const uint32_t *occ_from;
    /* parallel to occ: the lane of the occurrence, ascending for each key; NULL: all have one */
    const uint8_t *occ_lane;
    uint32_t entry_bits;
    uint32_t n_groups;
    const uint32_t *source_begin; /* [n_groups + 1] into sources */
    const struct fr_row_source *sources;
    const struct fr_row_part *parts;
    uint32_t n_parts;
    uint32_t begin, end; /* unique keys of this block */
    /* [FR_ROW_SCRATCH x sum over parts of dim rounded up to 16], 64-byte aligned; with occ_lane as
     * many times FR_ROW_SCRATCH_LANES */
    float *scratch;
};

FR_HD struct fr_occurrence fr_occurrence_at(const struct fr_row_update *u, uint32_t o)
{
    struct fr_occurrence at;
    at.entry = u->occ_from[o] & (((uint32_t)1 << u->entry_bits) - 1);
    at.group = u->occ_from[o] >> u->entry_bits;
    return at;
}

/* The gradients of rows from one of several ranks, which has some of the lanes: for each key and
 * each span of its lanes (lane_tree.h) the sums of the parts that a trained occurrence of the span
 * reaches. */
struct fr_row_spans {
    struct fr_row_update update; /* of rows only which are NULL matters, of parts the lengths */
    uint32_t n_spans;
    const struct fr_lane_span *spans; /* ascending; together they have all lanes of the update */
    /* Out, for key begin + k: */
    uint16_t *reached; /* [keys, n_spans] bit p: the span reaches part p; 0 without a row */
    uint32_t *counts;  /* [keys, n_parts] samples that are trained with the part, of all spans */
    /* key by key, span by span, part by part without gaps: the sums of the parts that are reached;
     * room for all parts in each span that has an occurrence */
    float *sums;
};

/* The same from one rank as the home of the rows got it. */
struct fr_row_sent {
    uint32_t n_spans;
    const uint32_t *lanes; /* [n_spans] a lane of each span: ascending, also from rank to rank */
    const uint16_t *reached;
    const uint32_t *counts;
    const float *sums;
    const size_t *begin; /* [keys] the first of the key's sums */
};

/* Where a key is in what the ranks sent. */
struct fr_row_place {
    uint32_t rank, key;
};

/* Rows of which all ranks sent sums. */
struct fr_row_join {
    const struct fr_row_sent *sent; /* [ranks] */
    float *const *rows;             /* NULL: no row, and no sums */
    /* the places of row i are places[places_begin[i]] .. places[places_begin[i + 1]], in the order
     * of ranks */
    const uint32_t *places_begin;
    const struct fr_row_place *places;
    const struct fr_row_part *parts;
    uint32_t n_parts;
    uint32_t begin, end; /* rows of this block */
    float *scratch;      /* as of fr_row_update with occ_lane */
    bool checks;         /* computes the gradients only */
};

/* The gradients of a row's occurrences are summed in blocks of this size, one occurrence after the
 * other, and then the blocks are summed in order. Every backend has this one fixed tree, whose
 * chains are short. With several lanes each lane's occurrences are summed so, and lanes are joined
 * by lane_tree.h. */
enum { FR_OCCURRENCE_BLOCK = 64 };

enum { FR_ROW_PARTS_MAX = 16 };

/* ---- losses of tasks ---- */

/* Over whole arrays of the batch; they return the sum of w * l in double, ascending. */

struct fr_loss {
    uint32_t n;
    const float *z;         /* logits (mse: predictions) */
    const float *labels;    /* NaN: masked */
    const float *weights;   /* effective: sample weight, times 1/s */
    const uint8_t *trained; /* 0: no loss, no gradient */
    float scale;            /* task weight: gradients are those of the sum over the batch */
    float *gradient;        /* [n], added to: scale * w * dl/dz */
    float gamma, alpha;     /* focal */
};

/* Product of probabilities p = prod sigmoid(z_k) against the label, logloss; `logit` = log(p / (1 -
 * p)) by fr_ops.product_logit. */
struct fr_product_loss {
    uint32_t n, count;
    const float *const *z; /* [count][n] */
    const float *labels, *weights;
    const uint8_t *trained;
    float scale;
    float *const *gradient; /* [count][n], added to */
};

/* Pairs of one group: `order` holds its samples that count, ascending by label (equal labels by
 * number); those of a smaller label than order[i]'s are order[0 .. lower[i]). i is compared with
 * min(lower[i], partners) of them, chosen by fr_pair_partner. Their contribution is multiplied
 * by lower[i] / their number, so that they represent all of i's pairs. Returns group_scale * sum
 * of a_i a_j log(1 + exp(-(z_i - z_j))), i ascending, partners in turn, in double; adds scale
 * times its derivative to gradients, summed per sample in double, in the order of pairs, before
 * it is rounded (thousands of equal terms would drift in f32). Burges et al. 2005, with labels
 * instead of probabilities. */
struct fr_pair_loss {
    uint32_t n;
    const uint32_t *order, *lower; /* [n] */
    uint32_t partners;             /* at least 1 */
    float group_scale;             /* (samples of this group that are part of a pair) / pairs */
    float scale;                   /* task weight */
    const float *z, *weights;      /* logits and weights by sample */
    float *gradient;               /* gradient by sample, added to */
    double *sums;                  /* [n] scratch */
};

/* Returns partner `turn` of the `count` partners that position i has in [0, lower), 0 < count <=
 * lower. Partners are evenly spread and distinct, and are shifted by i, so that neighbours in
 * the order have other partners. */
FR_HD uint32_t fr_pair_partner(uint32_t lower, uint32_t count, uint32_t i, uint32_t turn)
{
    return (uint32_t)(((uint64_t)turn * lower / count + i) % lower);
}

/* ---- dense updates ---- */

struct fr_dense_update {
    size_t n;
    float *values;
    const float *gradient;
    /* as many as fr_dense_states gives: adam*: m, v; ftrl: z, n; adagrad, momentum, rmsprop: one
     * array */
    float *state0, *state1;
    struct fr_optimizer optimizer;
    /* scale: 1 / batch_size; mean_scale: clip_norm's factor / trained samples */
    struct fr_pace pace;
};

/* The operations: X(result, name, arguments). One list makes the table and, of every backend, the
 * declarations and members; a name without its function does not link. Those that each backend has
 * its own of, because they multiply: */
#define FR_OPS_OWN(X)                                                                                                  \
    /* Floats of the packed copy of a right factor; 0: the backend reads factors as they are. */                       \
    X(size_t, packed_floats, (uint32_t rows, uint32_t columns))                                                        \
    /* Fills right->packed for rows [row_begin, row_end); ranges may be packed by different */                         \
    /* workers. Padding of the last panel becomes zeros. EXACT. */                                                     \
    X(void, pack, (const struct fr_operand *right, uint32_t row_begin, uint32_t row_end))                              \
    /* out[row_begin..row_end) = left * right. f32 accumulation over ascending k (cpu: one */                          \
    /* fused chain per element, so bits do not depend on the blocking; openblas: the library's */                      \
    /* order for this shape). NMSE(1e-10). */                                                                          \
    X(void, multiply, (const struct fr_multiply *product))                                                             \
    /* Floats of the workspace, for forward and backward. */                                                           \
    X(size_t, gru_workspace, (const struct fr_steps *steps, uint32_t units))                                           \
    X(void, gru, (const struct fr_gru *call))                                                                          \
    X(void, gru_backward, (const struct fr_gru *call))                                                                 \
    X(size_t, attention_workspace, (uint32_t width, uint32_t units))                                                   \
    X(void, attention_dense, (const struct fr_attention_dense *call))                                                  \
    X(void, attention_dense_backward, (const struct fr_attention_dense *call))

/* Losses of tasks that are sums over samples, NMSE(1e-10). The mathematics of a sample is
 * fr_<name>_loss of ops/loss.h; the backends make their loops from that function by this list. */
#define FR_OPS_SAMPLE_LOSSES(X)                                                                                        \
    /* w (log(1 + e^z) - y z); w/2 (z - y)^2; Lin et al. 2017 */                                                       \
    X(double, logloss, (const struct fr_loss *loss))                                                                   \
    X(double, mse, (const struct fr_loss *loss))                                                                       \
    X(double, focal, (const struct fr_loss *loss))

/* And those that all CPU backends share. */
#define FR_OPS_SHARED(X)                                                                                               \
    /* Ids of a sample in order, f32. EXACT for single ids with weight 1, else NMSE(1e-12). */                         \
    X(void, gather, (const struct fr_gather *gather))                                                                  \
    /* [m, n] out = in, EXACT. */                                                                                      \
    X(void, copy, (uint32_t m, uint32_t n, struct fr_view in, struct fr_view out))                                     \
    /* [m, n] out += in. NMSE(1e-12). */                                                                               \
    X(void, add, (uint32_t m, uint32_t n, struct fr_view in, struct fr_view out))                                      \
    /* [m, n] y = y + bias[n], then max(y, 0) when relu; NaN stays NaN. NMSE(1e-12). */                                \
    X(void, bias_activate, (uint32_t m, uint32_t n, struct fr_view y, const float *bias, bool relu))                   \
    /* [m, n] gradient = y > 0 ? gradient : 0. EXACT. */                                                               \
    X(void, relu_backward, (uint32_t m, uint32_t n, struct fr_view y, struct fr_view gradient))                        \
    /* out[n] = sum over the m rows, ascending, f32. NMSE(1e-10). */                                                   \
    X(void, bias_gradient, (uint32_t m, uint32_t n, struct fr_view gradient, float *out))                              \
    /* out = 1/2 ((sum v)^2 - sum v^2) over `count` inputs [m, n], in argument order (He and */                        \
    /* Chua 2017, eq. 4). NMSE(1e-10). */                                                                              \
    X(void, bi_interaction, (uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in, struct fr_view out))    \
    /* in_gradient[i] += gradient * (sum v - v_i), inputs with .values NULL skipped. */                                \
    /* NMSE(1e-10). */                                                                                                 \
    X(void, bi_interaction_backward,                                                                                   \
      (uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in, struct fr_view gradient,                      \
       const struct fr_view *in_gradient))                                                                             \
    FR_OPS_SAMPLE_LOSSES(X)                                                                                            \
    X(double, pairwise, (const struct fr_pair_loss *loss))                                                             \
    X(double, product_logloss, (const struct fr_product_loss *loss))                                                   \
    /* out[i] = log(p / (1 - p)), p the product of sigmoid(z[k][i]): stable for every z. */                            \
    X(void, product_logit, (uint32_t n, uint32_t count, const float *const *z, float *out))                            \
    /* Layers: ops/layers.h. */                                                                                        \
    X(void, gather_steps, (const struct fr_gather_steps *call))                                                        \
    X(void, expand, (const struct fr_expand *call))                                                                    \
    X(void, collapse, (const struct fr_collapse *call))                                                                \
    X(void, collapse_steps, (const struct fr_collapse_steps *call))                                                    \
    X(void, align, (const struct fr_align *call))                                                                      \
    X(void, align_backward, (const struct fr_align *call))                                                             \
    X(void, activate, (const struct fr_activate *call))                                                                \
    X(void, activate_backward, (const struct fr_activate *call))                                                       \
    X(void, layer_norm, (const struct fr_layer_norm *call))                                                            \
    X(void, layer_norm_backward, (const struct fr_layer_norm *call))                                                   \
    X(void, dropout, (const struct fr_dropout *call))                                                                  \
    X(void, bucketize, (const struct fr_bucketize *call))                                                              \
    X(void, standardize, (const struct fr_standardize *call))                                                          \
    X(void, fill_missing, (const struct fr_fill_missing *call))                                                        \
    X(void, mark_missing, (const struct fr_mark_missing *call))                                                        \
    X(void, moments, (const struct fr_moments *call))                                                                  \
    X(void, product, (const struct fr_interaction *call))                                                              \
    X(void, product_backward, (const struct fr_interaction *call))                                                     \
    X(void, dot_interaction, (const struct fr_interaction *call))                                                      \
    X(void, dot_interaction_backward, (const struct fr_interaction *call))                                             \
    X(void, cross, (const struct fr_cross *call))                                                                      \
    X(void, cross_backward, (const struct fr_cross *call))                                                             \
    X(void, mixture, (const struct fr_mixture *call))                                                                  \
    X(void, mixture_backward, (const struct fr_mixture *call))                                                         \
    /* out [m, 1] = sum of the n columns; backward: in[i, j] += gradient[i]. */                                        \
    X(void, row_sum, (uint32_t m, uint32_t n, struct fr_view in, struct fr_view out))                                  \
    X(void, row_sum_backward, (uint32_t m, uint32_t n, struct fr_view gradient, struct fr_view in_gradient))           \
    X(void, pool_steps, (const struct fr_pool_steps *call))                                                            \
    X(void, pool_steps_backward, (const struct fr_pool_steps *call))                                                   \
    X(void, softmax_steps, (const struct fr_softmax_steps *call))                                                      \
    X(void, softmax_steps_backward, (const struct fr_softmax_steps *call))                                             \
    X(void, attention_pool, (const struct fr_attention_pool *call))                                                    \
    X(void, attention_pool_backward, (const struct fr_attention_pool *call))                                           \
    X(void, dot_steps, (const struct fr_dot_steps *call))                                                              \
    X(void, dot_steps_backward, (const struct fr_dot_steps *call))                                                     \
    X(double, mse_pair, (const struct fr_mse_pair *call))                                                              \
    /* gradient views NULL: counts only */                                                                             \
    X(double, next_step, (const struct fr_next_step *call))                                                            \
    /* Largest |x| of [m, n] as bits (fr_f32_bits): >= 0x7f800000 exactly when some x is not */                        \
    /* finite. EXACT. */                                                                                               \
    X(uint32_t, max_bits, (uint32_t m, uint32_t n, struct fr_view x))                                                  \
    /* For each unique key of [begin, end) with a row and a trained occurrence: per part, */                           \
    /* gradient = sum over its occurrences, in blocks of FR_OCCURRENCE_BLOCK, f32, of coef * */                        \
    /* gradient[entry]; then the part's optimizer in place, for as many units as samples are */                        \
    /* trained with it. Parts no trained occurrence reaches stay as they are. NMSE(1e-10). */                          \
    X(void, update_rows, (const struct fr_row_update *update))                                                         \
    /* The same gradients without applying them: their max_bits. */                                                    \
    X(uint32_t, check_rows, (const struct fr_row_update *update))                                                      \
    /* sum of squares of x over all n, in double, ascending: for clip_norm. */                                         \
    X(double, sum_squares, (size_t n, const float *x))                                                                 \
    /* Elementwise, ops/row.h; the gradient given is the sum over samples. Moments below */                            \
    /* FR_MOMENT_FLUSH become 0. NMSE(1e-10). */                                                                       \
    X(void, update_dense, (const struct fr_dense_update *update))

/* Those that only the processor's tables have (otherwise NULL). */
#define FR_OPS_SPARED(X)                                                                                               \
    /* The two halves of update_rows over ranks, the same bits. At the source: the sums over spans of */               \
    /* lanes; returns their floats. */                                                                                 \
    X(size_t, sum_spans, (const struct fr_row_spans *call))                                                            \
    /* At the home: the sums of all ranks, joined by lane_tree.h, then each part's optimizer. With */                  \
    /* `checks` nothing is changed, and the result is the gradients' max_bits; otherwise 0. */                         \
    X(uint32_t, join_spans, (const struct fr_row_join *call))                                                          \
    /* sum = gather of each slot, added in order; pairs = bi_interaction of them: the same bits. */                    \
    /* Returns max_bits of what was read. */                                                                           \
    X(uint32_t, sum_rows, (const struct fr_row_sums *call))

/* A member is no expression. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_OPS_MEMBER(result, name, arguments) result(*name) arguments;
struct fr_ops {
    const char *name;
    /* Names the arithmetic of the products; equal names on one machine type mean equal bits:
     * "fma 1" (every processor with FMA), "openblas 0.3.21 SkylakeX". */
    const char *kernel;
    /* Rows of a product do not depend on their position or on the number of rows computed with
     * them: bits of a sample are the same alone, in any chunk, in trainer and replica. Otherwise
     * products must run on whole chunks of exactly C rows. */
    bool rows_independent;
    FR_OPS_OWN(FR_OPS_MEMBER)
    FR_OPS_SHARED(FR_OPS_MEMBER)
    FR_OPS_SPARED(FR_OPS_MEMBER)
};

/* Returns the best table for this machine: avx512 or avx2, which give equal bits, or `openblas`
 * if the processor has no FMA. */
const struct fr_ops *fr_ops_cpu(void);
/* The table of one instruction set, for tests and comparisons; NULL if the machine lacks it. */
const struct fr_ops *fr_ops_cpu_avx512(void);
const struct fr_ops *fr_ops_cpu_avx2(void);
/* Tables whose products round factors to bf16 and sum in f32; all other operations are those of
 * fr_ops_cpu_avx512. fr_ops_bf16 is the best of them for this machine; NULL if the processor has
 * no AVX512_BF16. `dot` and `tiles` (AMX) sum in different orders, and their kernels have
 * different names. */
const struct fr_ops *fr_ops_bf16(void);
const struct fr_ops *fr_ops_bf16_dot(void);
const struct fr_ops *fr_ops_bf16_tiles(void);
/* Sets OpenBLAS to one thread per call. */
const struct fr_ops *fr_ops_openblas(void);

#endif
