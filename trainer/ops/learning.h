/* Losses of tasks and updates, by backend: losses.c, rows.c, updates.c for every CPU backend;
 * losses_reference.c and updates_reference.c for the reference. Private to the module. */
#ifndef FR_OPS_LEARNING_H
#define FR_OPS_LEARNING_H

#include "ops/ops.h"

double fr_cpu_logloss(const struct fr_loss *loss);
double fr_cpu_mse(const struct fr_loss *loss);
double fr_cpu_focal(const struct fr_loss *loss);
double fr_cpu_pairwise(const struct fr_pair_loss *call);
double fr_cpu_product_logloss(const struct fr_product_loss *loss);
void fr_cpu_product_logit(uint32_t n, uint32_t count, const float *const *z, float *out);
void fr_cpu_update_rows(const struct fr_row_update *update);
uint32_t fr_cpu_check_rows(const struct fr_row_update *update);
double fr_cpu_sum_squares(size_t n, const float *x);
void fr_cpu_update_dense(const struct fr_dense_update *update);

#define FR_CPU_LEARNING                                                                                                \
    .logloss = fr_cpu_logloss, .mse = fr_cpu_mse, .focal = fr_cpu_focal, .pairwise = fr_cpu_pairwise,                  \
    .product_logloss = fr_cpu_product_logloss, .product_logit = fr_cpu_product_logit,                                  \
    .update_rows = fr_cpu_update_rows, .check_rows = fr_cpu_check_rows, .sum_squares = fr_cpu_sum_squares,             \
    .update_dense = fr_cpu_update_dense

double fr_reference_logloss(const struct fr_loss *loss);
double fr_reference_mse(const struct fr_loss *loss);
double fr_reference_focal(const struct fr_loss *loss);
double fr_reference_pairwise(const struct fr_pair_loss *call);
double fr_reference_product_logloss(const struct fr_product_loss *loss);
void fr_reference_product_logit(uint32_t n, uint32_t count, const float *const *z, float *out);
void fr_reference_update_rows(const struct fr_row_update *update);
uint32_t fr_reference_check_rows(const struct fr_row_update *update);
double fr_reference_sum_squares(size_t n, const float *x);
void fr_reference_update_dense(const struct fr_dense_update *update);

#define FR_REFERENCE_LEARNING                                                                                          \
    .logloss = fr_reference_logloss, .mse = fr_reference_mse, .focal = fr_reference_focal,                             \
    .pairwise = fr_reference_pairwise, .product_logloss = fr_reference_product_logloss,                                \
    .product_logit = fr_reference_product_logit, .update_rows = fr_reference_update_rows,                              \
    .check_rows = fr_reference_check_rows, .sum_squares = fr_reference_sum_squares,                                    \
    .update_dense = fr_reference_update_dense

#endif
