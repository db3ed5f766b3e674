/* The loops that every CPU backend shares (cpu.c, rows.c). Private to the module. */
#ifndef FR_OPS_CPU_H
#define FR_OPS_CPU_H

#include "layer_table.h"
#include "learning.h"
#include "ops/ops.h"

/* One body, compiled for three vector widths and chosen when the program starts. Elementwise loops
 * without fused operations give the same bits in each; a loop that reduces fixes its own order. The
 * sanitizers' start-up does not bear the resolver. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FR_CLONES
#endif

void fr_cpu_gather(const struct fr_gather *gather);
void fr_cpu_copy(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out);
void fr_cpu_add(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out);
void fr_cpu_bias_activate(uint32_t m, uint32_t n, struct fr_view y, const float *bias, bool relu);
void fr_cpu_relu_backward(uint32_t m, uint32_t n, struct fr_view y, struct fr_view gradient);
void fr_cpu_bias_gradient(uint32_t m, uint32_t n, struct fr_view gradient, float *out);
void fr_cpu_bi_interaction(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in, struct fr_view out);
void fr_cpu_bi_interaction_backward(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in,
                                    struct fr_view gradient, const struct fr_view *in_gradient);
uint32_t fr_cpu_max_bits(uint32_t m, uint32_t n, struct fr_view x);

#define FR_CPU_LOOPS                                                                                                   \
    FR_CPU_LAYERS, .gather = fr_cpu_gather, .copy = fr_cpu_copy, .add = fr_cpu_add,                                    \
                   .bias_activate = fr_cpu_bias_activate, .relu_backward = fr_cpu_relu_backward,                       \
                   .bias_gradient = fr_cpu_bias_gradient, .bi_interaction = fr_cpu_bi_interaction,                     \
                   .bi_interaction_backward = fr_cpu_bi_interaction_backward, .max_bits = fr_cpu_max_bits,             \
                   FR_CPU_LEARNING

#endif
