/* Activations of layers. */
#ifndef FR_VOCABULARY_ACTIVATION_H
#define FR_VOCABULARY_ACTIVATION_H

#include "vocabulary/kinds.h"

#define FR_ACTIVATIONS(KIND)                                                                                           \
    KIND(FR_ACT_NONE, "none")                                                                                          \
    KIND(FR_ACT_RELU, "relu")                                                                                          \
    KIND(FR_ACT_SIGMOID, "sigmoid")                                                                                    \
    KIND(FR_ACT_TANH, "tanh")                                                                                          \
    /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016) */                                    \
    KIND(FR_ACT_GELU, "gelu")                                                                                          \
    /* alpha_j x below 0; alpha is trained, from 0.25 (He et al. 2015) */                                              \
    KIND(FR_ACT_PRELU, "prelu")                                                                                        \
    /* p x + (1 - p) alpha_j x, p = sigmoid((x - mean_j) / sqrt(variance_j + 1e-9)); statistics */                     \
    /* are a moving average of earlier batches: training = serving (Zhou et al. 2018) */                               \
    KIND(FR_ACT_DICE, "dice")                                                                                          \
    KIND(FR_ACT_LEAKY_RELU, "leaky_relu") /* slope 0.01 below 0 */

FR_KINDS(fr_activation, FR_ACTIVATIONS)

#endif
