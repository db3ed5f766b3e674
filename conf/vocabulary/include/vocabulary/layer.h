/* Operations of layers: names, what the reference says of them, what each takes.
 *
 * `x` is the concatenation of the argument's vectors. Roles are read as maps: attention: {query: a,
 * keys: h}. Several sequences in one role are joined step by step, aligned at the newest; the first
 * one's length counts. */
#ifndef FR_VOCABULARY_LAYER_H
#define FR_VOCABULARY_LAYER_H

#include <stdint.h>

#include "vocabulary/pooling.h"

/* Options a layer may have, in the order in which they are checked; FR_LAYER_UNITS and so on are
 * bits. */
#define FR_LAYER_OPTIONS(KIND)                                                                                         \
    KIND(FR_LAYER_UNITS, "units")                                                                                      \
    KIND(FR_LAYER_ACTIVATION, "activation")                                                                            \
    KIND(FR_LAYER_DEPTH, "depth")                                                                                      \
    KIND(FR_LAYER_RANK, "rank")                                                                                        \
    KIND(FR_LAYER_COUNT, "count")                                                                                      \
    KIND(FR_LAYER_RATE, "rate")                                                                                        \
    KIND(FR_LAYER_SOFTMAX, "softmax")                                                                                  \
    KIND(FR_LAYER_INIT, "init")                                                                                        \
    KIND(FR_LAYER_OPTIMIZER, "optimizer")

#define FR_LAYER_OPTION_PLACE(name, text) name##_PLACE,
#define FR_LAYER_OPTION_BIT(name, text) name = 1 << name##_PLACE,
enum fr_layer_option_place { FR_LAYER_OPTIONS(FR_LAYER_OPTION_PLACE) };
enum fr_layer_option {
    FR_LAYER_OPTIONS(FR_LAYER_OPTION_BIT)
    /* what a layer that learns takes; what dense layers take */
    FR_LAYER_LEARNS = FR_LAYER_INIT | FR_LAYER_OPTIMIZER,
    FR_LAYER_DENSES = FR_LAYER_UNITS | FR_LAYER_ACTIVATION | FR_LAYER_LEARNS,
};

enum { FR_LAYER_ROLES = 2 };

struct fr_layer_rule {
    unsigned options, required;
    const char *roles[FR_LAYER_ROLES]; /* NULL: a plain argument */
    uint32_t refs_min, refs_max;       /* of a plain argument; 0: no further limit */
    bool one_unit;                     /* `units` is an integer */
    bool one_width;                    /* all vectors must have one width */
    bool inline_;                      /* may stand inside an argument */
};

#define FR_REFS_FORM "ref or list of refs"

/* KIND(name, text, argument and meaning as the reference says them, members of its rule). */
#define FR_LAYER_OPS(KIND)                                                                                             \
    KIND(FR_LAYER_CONCAT, "concat", FR_REFS_FORM, "vectors, or the steps of sequences, one after the other",           \
         .inline_ = true)                                                                                              \
    KIND(FR_LAYER_MLP, "mlp", FR_REFS_FORM,                                                                            \
         "the concatenation through dense layers of `units`, each followed by the activation",                         \
         .options = FR_LAYER_DENSES, .required = FR_LAYER_UNITS)                                                       \
    KIND(FR_LAYER_DENSE, "dense", FR_REFS_FORM,                                                                        \
         "the concatenation (or that of every step of sequences) through one dense layer", .options = FR_LAYER_DENSES, \
         .required = FR_LAYER_UNITS, .one_unit = true)                                                                 \
    KIND(FR_LAYER_BI_INTERACTION, "bi_interaction", FR_REFS_FORM,                                                      \
         "½((Σv)² − Σv²) over vectors of one width (He and Chua 2017)", .one_width = true, .inline_ = true)            \
    KIND(FR_LAYER_SUM, "sum", FR_REFS_FORM,                                                                            \
         "elementwise sum of pooled slots of one width (a wide part); of one sequence: pooling", .one_width = true,    \
         .inline_ = true)                                                                                              \
    KIND(FR_LAYER_ADD, "add", FR_REFS_FORM, "elementwise sum of vectors of one width", .one_width = true,              \
         .inline_ = true)                                                                                              \
    FR_STEP_LAYERS(KIND)                                                                                               \
    KIND(FR_LAYER_MULTIPLY, "multiply", FR_REFS_FORM, "elementwise product of vectors of one width",                   \
         .one_width = true, .inline_ = true)                                                                           \
    KIND(FR_LAYER_FM, "fm", FR_REFS_FORM, "Σ over the elements of bi_interaction: width 1 (Rendle 2010)",              \
         .refs_min = 2, .one_width = true, .inline_ = true)                                                            \
    KIND(FR_LAYER_DOT_INTERACTION, "dot_interaction", FR_REFS_FORM,                                                    \
         "dot products of all pairs of n vectors of one width: n(n−1)/2 (DLRM)", .refs_min = 2, .one_width = true,     \
         .inline_ = true)                                                                                              \
    /* x_{l+1} = x_0 o (W x_l + b) + x_l, `depth` times; `rank` r: W = U V */                                          \
    KIND(FR_LAYER_CROSS, "cross", FR_REFS_FORM,                                                                        \
         "x₀ ∘ (Wx + b) + x on the concatenation, `depth` times (DCN-v2, Wang et al. 2021)",                           \
         .options = FR_LAYER_DEPTH | FR_LAYER_RANK | FR_LAYER_LEARNS)                                                  \
    KIND(FR_LAYER_BIAS, "bias", FR_REFS_FORM, "the concatenation plus a learned vector", .options = FR_LAYER_LEARNS,   \
         .inline_ = true)                                                                                              \
    /* scale o (x - mean) / sqrt(variance + 1e-5) + bias over the width */                                             \
    KIND(FR_LAYER_LAYER_NORM, "layer_norm", FR_REFS_FORM,                                                              \
         "normalized over the width, learned scale and bias (Ba et al. 2016)", .options = FR_LAYER_OPTIMIZER,          \
         .inline_ = true)                                                                                              \
    /* masks are counter-based */                                                                                      \
    KIND(FR_LAYER_DROPOUT, "dropout", FR_REFS_FORM, "while training, elements are zeroed at `rate`",                   \
         .options = FR_LAYER_RATE, .required = FR_LAYER_RATE)                                                          \
    KIND(FR_LAYER_ACTIVATE, "activate", FR_REFS_FORM, "the activation of the concatenation",                           \
         .options = FR_LAYER_ACTIVATION | FR_LAYER_OPTIMIZER, .required = FR_LAYER_ACTIVATION)                         \
    KIND(FR_LAYER_STOP_GRADIENT, "stop_gradient", FR_REFS_FORM,                                                        \
         "the concatenation; nothing before it learns from what reads it", .inline_ = true)                            \
    /* query and keys of one width; `softmax` of the scores */                                                         \
    KIND(FR_LAYER_ATTENTION, "attention", "`{query: refs, keys: sequences}`",                                          \
         "Σ score · key, scores by an mlp of `units` and 1 on [q, k, q−k, q∘k] (DIN, Zhou et al. 2018)",               \
         .options = FR_LAYER_DENSES | FR_LAYER_SOFTMAX, .roles = {"query", "keys"})                                    \
    /* as in PyTorch; masked steps keep the state */                                                                   \
    KIND(FR_LAYER_GRU, "gru", FR_REFS_FORM, "recurrence over a sequence: a sequence of `units` (Cho et al. 2014)",     \
         .options = FR_LAYER_UNITS | FR_LAYER_LEARNS, .required = FR_LAYER_UNITS, .one_unit = true)                    \
    /* the update gate is multiplied by softmax over steps of (keys W) . query */                                      \
    KIND(FR_LAYER_AUGRU, "augru", "`{query: refs, keys: sequence}`",                                                   \
         "last state of a GRU over keys whose update gate follows attention (DIEN, Zhou et al. 2019)",                 \
         .options = FR_LAYER_LEARNS, .roles = {"query", "keys"})                                                       \
    KIND(FR_LAYER_EXPERTS, "experts", FR_REFS_FORM, "`count` mlps of `units` side by side",                            \
         .options = FR_LAYER_DENSES | FR_LAYER_COUNT, .required = FR_LAYER_UNITS | FR_LAYER_COUNT)                     \
    /* softmax(gate W) weighted sum */                                                                                 \
    KIND(FR_LAYER_MIXTURE, "mixture", "`{gate: refs, experts: layer}`",                                                \
         "the experts weighted by softmax of a linear gate (MMoE, Ma et al. 2018)", .options = FR_LAYER_LEARNS,        \
         .roles = {"gate", "experts"})

/* Of one sequence: pooled over its steps -> vector. */
#define FR_STEP_LAYERS(KIND)                                                                                           \
    KIND(FR_LAYER_MEAN, "mean", "ref", "mean of the steps of a sequence, or of a slot's rows", .refs_max = 1,          \
         .inline_ = true)                                                                                              \
    KIND(FR_LAYER_SQRTN, "sqrtn", "ref", "their sum divided by √Σw²", .refs_max = 1, .inline_ = true)                  \
    KIND(FR_LAYER_MAX, "max", "ref", "largest value of the steps, or of a slot's weighted rows, in each column",       \
         .refs_max = 1, .inline_ = true)                                                                               \
    KIND(FR_LAYER_LAST, "last", "ref", "the newest step of a sequence", .refs_max = 1, .inline_ = true)

FR_KINDS(fr_layer_op, FR_LAYER_OPS)

/* Finds the pooling of steps or rows that a layer operation is; false: the operation is no
 * pooling. */
#define FR_LAYER_IS_POOLING(name, text, layer, ...)                                                                    \
    if (op == (layer)) {                                                                                               \
        *out = name;                                                                                                   \
        return true;                                                                                                   \
    }
static inline bool fr_layer_step_pooling(enum fr_layer_op op, enum fr_pooling *out)
{
    FR_POOLINGS(FR_LAYER_IS_POOLING)
    return false;
}
static inline bool fr_layer_row_pooling(enum fr_layer_op op, enum fr_pooling *out)
{
    FR_ROW_POOLINGS(FR_LAYER_IS_POOLING)
    return false;
}

#endif
