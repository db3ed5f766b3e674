/* Matrix products of factors rounded to bf16, summed in f32: what backends.c puts into the tables
 * of `precision: bf16`. Private to the module. See bf16.c. */
#ifndef FR_OPS_BF16_H
#define FR_OPS_BF16_H

#include <stdbool.h>

#include "ops/ops.h"

size_t fr_bf16_packed_floats(uint32_t rows, uint32_t columns);
void fr_bf16_pack(const struct fr_operand *right, uint32_t row_begin, uint32_t row_end);
/* Multiplies the same packed factors, but sums products in another order (bf16.c). */
void fr_bf16_multiply_dot(const struct fr_multiply *product);
void fr_bf16_multiply_tiles(const struct fr_multiply *product);

/* Whether the processor has AVX512_BF16. */
bool fr_bf16_has_dot(void);
/* Whether the processor also has AMX tiles, and the system lets this process use them. */
bool fr_bf16_has_tiles(void);

#endif
