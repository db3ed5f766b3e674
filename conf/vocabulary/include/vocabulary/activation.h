/* Activations of layers. */
#ifndef FR_VOCABULARY_ACTIVATION_H
#define FR_VOCABULARY_ACTIVATION_H

#include "vocabulary/kinds.h"

/* How a layer computes it: not at all, in the product before it, or by a node of its own. */
enum fr_activation_form { FR_ACTIVATED_NOWHERE, FR_ACTIVATED_IN_PRODUCT, FR_ACTIVATED_BY_NODE };

/* What x = 0 becomes: 0 and gradients pass, 0 and gradients end there, another number. */
enum fr_activation_zero { FR_ZERO_PASSES, FR_ZERO_BLOCKS, FR_ZERO_LIFTED };

/* KIND(name, text, form, zero, alpha, statistics): alpha is a trained slope for each column;
 * statistics are a mean and a variance for each column, which move without gradients. */
#define FR_ACTIVATIONS(KIND)                                                                                           \
    KIND(FR_ACT_NONE, "none", NOWHERE, PASSES, false, false)                                                           \
    KIND(FR_ACT_RELU, "relu", IN_PRODUCT, BLOCKS, false, false)                                                        \
    KIND(FR_ACT_SIGMOID, "sigmoid", BY_NODE, LIFTED, false, false)                                                     \
    KIND(FR_ACT_TANH, "tanh", BY_NODE, PASSES, false, false)                                                           \
    /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016) */                                    \
    KIND(FR_ACT_GELU, "gelu", BY_NODE, PASSES, false, false)                                                           \
    /* alpha_j x below 0; alpha is trained, from 0.25 (He et al. 2015) */                                              \
    KIND(FR_ACT_PRELU, "prelu", BY_NODE, PASSES, true, false)                                                          \
    /* p x + (1 - p) alpha_j x, p = sigmoid((x - mean_j) / sqrt(variance_j + 1e-9)); statistics */                     \
    /* are a moving average of earlier batches: training = serving (Zhou et al. 2018) */                               \
    KIND(FR_ACT_DICE, "dice", BY_NODE, PASSES, true, true)                                                             \
    KIND(FR_ACT_LEAKY_RELU, "leaky_relu", BY_NODE, PASSES, false, false) /* slope 0.01 below 0 */

FR_KINDS(fr_activation, FR_ACTIVATIONS)

#define FR_ACTIVATION_FORM(name, text, form, zero, alpha, statistics)                                                  \
    case name:                                                                                                         \
        return FR_ACTIVATED_##form;
#define FR_ACTIVATION_ZERO(name, text, form, zero, alpha, statistics)                                                  \
    case name:                                                                                                         \
        return FR_ZERO_##zero;
#define FR_ACTIVATION_ALPHA(name, text, form, zero, alpha, statistics)                                                 \
    case name:                                                                                                         \
        return alpha;
#define FR_ACTIVATION_STATISTICS(name, text, form, zero, alpha, statistics)                                            \
    case name:                                                                                                         \
        return statistics;
FR_KIND_COLUMN(enum fr_activation_form, fr_activation_form, fr_activation, FR_ACTIVATIONS, FR_ACTIVATION_FORM)
FR_KIND_COLUMN(enum fr_activation_zero, fr_activation_zero, fr_activation, FR_ACTIVATIONS, FR_ACTIVATION_ZERO)
FR_KIND_COLUMN(bool, fr_activation_has_alpha, fr_activation, FR_ACTIVATIONS, FR_ACTIVATION_ALPHA)
FR_KIND_COLUMN(bool, fr_activation_has_statistics, fr_activation, FR_ACTIVATIONS, FR_ACTIVATION_STATISTICS)

#endif
