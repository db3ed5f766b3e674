/* Fixed-order matrix products in FMA instructions: what cpu.c calls. Private to the module. See
 * gemm.c. */
#ifndef FR_OPS_GEMM_H
#define FR_OPS_GEMM_H

#include <stdbool.h>

#include "ops/ops.h"

/* One tile loop per instruction set. Element (i, j) of the product is the same chain of fused
 * multiply-adds over ascending k in each, so the results are equal in every bit. */
void fr_gemm_avx512(const struct fr_multiply *product);
void fr_gemm_avx2(const struct fr_multiply *product);

size_t fr_gemm_packed_floats(uint32_t rows, uint32_t columns);
void fr_gemm_pack_avx512(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end);
void fr_gemm_pack_avx2(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end);

#endif
