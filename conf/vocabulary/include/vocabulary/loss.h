/* Losses of tasks, and auxiliary ones. */
#ifndef FR_VOCABULARY_LOSS_H
#define FR_VOCABULARY_LOSS_H

#include "vocabulary/kinds.h"

#define FR_TASK_LOSSES(KIND)                                                                                           \
    KIND(FR_LOSS_LOGLOSS, "logloss")                                                                                   \
    KIND(FR_LOSS_NONE, "none") /* measured, not trained */                                                             \
    KIND(FR_LOSS_MSE, "mse")   /* 1/2 (z - y)^2; the score is z itself */                                              \
    /* Lin et al. 2017: -alpha (1-p)^gamma y log p - (1-alpha) p^gamma (1-y) log(1-p) */                               \
    KIND(FR_LOSS_FOCAL, "focal")                                                                                       \
    /* within a group: log(1 + exp(-(z_i - z_j))) over pairs y_i > y_j (Burges et al. 2005) */                         \
    KIND(FR_LOSS_PAIRWISE, "pairwise")

FR_KINDS(fr_task_loss, FR_TASK_LOSSES)

#define FR_AUX_LOSSES(KIND)                                                                                            \
    KIND(FR_AUX_MSE, "mse") /* refs a, b of one width: 1/2 |a - b|^2 */                                                \
    /* DIEN: states h, positives e, negatives n (sequences, one width): logloss of h_t . e_{t+1} */                    \
    /* as 1 and h_t . n_{t+1} as 0, mean over steps */                                                                 \
    KIND(FR_AUX_NEXT_STEP, "next_step")

FR_KINDS(fr_aux_loss, FR_AUX_LOSSES)

#endif
