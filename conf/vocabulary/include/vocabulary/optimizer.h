/* Optimizers: their names, where each may be written, and the struct with the settings of one. */
#ifndef FR_VOCABULARY_OPTIMIZER_H
#define FR_VOCABULARY_OPTIMIZER_H

#include <stdint.h>

#include "vocabulary/kinds.h"

/* KIND(name, text, number, where, values, extra): the number is stored in saved states and never
 * changes; ROWS of tables, LAYERS or BOTH; state floats per value, and additional ones. */
#define FR_OPTIMIZERS(KIND)                                                                                            \
    KIND(FR_OPT_SGD, "sgd", 0, BOTH, 0, 0)                                                                             \
    KIND(FR_OPT_MOMENTUM, "momentum", 5, BOTH, 1, 0)                                                                   \
    KIND(FR_OPT_ADAGRAD, "adagrad", 1, BOTH, 1, 0)                                                                     \
    KIND(FR_OPT_ADAGRAD_ROWWISE, "adagrad_rowwise", 2, ROWS, 0, 1) /* mean of the row's squares */                     \
    KIND(FR_OPT_ADAM, "adam", 3, BOTH, 2, 1)                       /* m, v; rows have an age */                        \
    KIND(FR_OPT_ADAM_ROWWISE, "adam_rowwise", 7, ROWS, 1, 2)       /* m; one v and the age */                          \
    KIND(FR_OPT_ADAMW, "adamw", 9, LAYERS, 2, 0)                   /* rows: too seldom to decay */                     \
    KIND(FR_OPT_RMSPROP, "rmsprop", 6, BOTH, 1, 0)                                                                     \
    KIND(FR_OPT_FTRL, "ftrl", 4, BOTH, 2, 0)             /* z, n */                                                    \
    KIND(FR_OPT_GROUP_FTRL, "group_ftrl", 8, ROWS, 2, 0) /* a penalty on the norm of the row */

#define FR_OPTIMIZER_MEMBER(name, text, number, ...) name = number,
enum fr_optimizer_kind { FR_OPTIMIZERS(FR_OPTIMIZER_MEMBER) };
FR_KIND_WORDS(fr_optimizer_kind, FR_OPTIMIZERS)

/* FR_ROWS_* and FR_LAYERS_* expand to their argument if the optimizer is for rows, or for layers.
 * They make the choices of both. */
#define FR_ROWS_BOTH(...) __VA_ARGS__
#define FR_ROWS_ROWS(...) __VA_ARGS__
#define FR_ROWS_LAYERS(...)
#define FR_LAYERS_BOTH(...) __VA_ARGS__
#define FR_LAYERS_ROWS(...)
#define FR_LAYERS_LAYERS(...) __VA_ARGS__
#define FR_OPTIMIZER_OF_ROWS(name, text, number, where, ...) FR_ROWS_##where("|" text)
#define FR_OPTIMIZER_OF_LAYERS(name, text, number, where, ...) FR_LAYERS_##where("|" text)
#define FR_ROW_OPTIMIZERS (&FR_OPTIMIZERS(FR_OPTIMIZER_OF_ROWS)[1])
#define FR_LAYER_OPTIMIZERS (&FR_OPTIMIZERS(FR_OPTIMIZER_OF_LAYERS)[1])

/* State floats of a row's part of `dim` values, all values' first; arrays of state of a layer's
 * parameter: 0 to 2. */
#define FR_OPTIMIZER_ROW_STATE(name, text, number, where, values, extra)                                               \
    case name:                                                                                                         \
        return (values)*dim + (extra);
#define FR_OPTIMIZER_DENSE_STATE(name, text, number, where, values, extra)                                             \
    case name:                                                                                                         \
        return values;
static inline uint32_t fr_row_state_floats(enum fr_optimizer_kind kind, uint32_t dim)
{
    switch (kind) {
        FR_OPTIMIZERS(FR_OPTIMIZER_ROW_STATE)
    }
    return 0;
}
static inline uint32_t fr_dense_states(enum fr_optimizer_kind kind)
{
    switch (kind) {
        FR_OPTIMIZERS(FR_OPTIMIZER_DENSE_STATE)
    }
    return 0;
}

/* Returns whether one optimizer continues from the state of the other: the same numbers with the
 * same meaning. An equal count is not enough (momentum: a mean; adagrad: a sum of squares). */
static inline bool fr_optimizer_same_state(enum fr_optimizer_kind a, enum fr_optimizer_kind b)
{
    if (a == FR_OPT_ADAMW || a == FR_OPT_GROUP_FTRL)
        a = a == FR_OPT_ADAMW ? FR_OPT_ADAM : FR_OPT_FTRL;
    if (b == FR_OPT_ADAMW || b == FR_OPT_GROUP_FTRL)
        b = b == FR_OPT_ADAMW ? FR_OPT_ADAM : FR_OPT_FTRL;
    return a == b;
}

/* Returns whether the first value of state that an optimizer keeps of a value may be negative. All
 * others are sums of squares and ages. */
static inline bool fr_optimizer_first_state_signed(enum fr_optimizer_kind kind)
{
    switch (kind) {
    case FR_OPT_MOMENTUM:
    case FR_OPT_ADAM:
    case FR_OPT_ADAM_ROWWISE:
    case FR_OPT_ADAMW:
    case FR_OPT_FTRL:
    case FR_OPT_GROUP_FTRL:
        return true;
    case FR_OPT_SGD:
    case FR_OPT_ADAGRAD:
    case FR_OPT_ADAGRAD_ROWWISE:
    case FR_OPT_RMSPROP:
        break;
    }
    return false;
}

struct fr_optimizer {
    enum fr_optimizer_kind kind;
    float lr;           /* ftrl*: alpha; in a step: the scheduled value */
    float eps;          /* adagrad*, adam*, rmsprop: 1e-8 */
    float initial;      /* adagrad*: accumulator start, 0 */
    float beta1, beta2; /* adam* 0.9 0.999 */
    float momentum;     /* momentum 0.9 */
    float rho;          /* rmsprop 0.99 */
    float beta;         /* ftrl*: 1 */
    /* ftrl*: of the algorithm; others: mean gradient + l2 w + l1 sign(w), after clipping; 0 */
    float l1, l2;
    float l21;               /* group_ftrl: 0 */
    float weight_decay;      /* adamw: 0.01 */
    float clip_value;        /* elements of the mean gradient are cut to +-this; 0: off */
    float clip_norm;         /* mean gradient of a row's part, or of a layer's parameter; 0: off */
    uint64_t warmup_samples; /* rate rises linearly from 0; 0: off */
    /* rate is multiplied by decay_rate each so many samples, smoothly; 0: off */
    uint64_t decay_samples;
    float decay_rate;  /* 0.5 */
    float decay_floor; /* smallest factor, 0.1: a stream has no end */
    /* adagrad*: of the accumulator, in units' samples (ops/row.h); 0: never forgets */
    uint64_t half_life;
    /* adagrad*: what a unit leaves of the accumulator, 0: all; the graph sets it from half_life */
    double keep;
    /* l1, l2, weight_decay of layers hold for all parameters, not for kernels only */
    bool decay_all;
};

#endif
