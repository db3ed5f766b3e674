/* The layer operations as one list, so that prototypes and table members of the reference and of
 * the CPU backends cannot differ. Private to the module. X(name, struct of the argument). gru and
 * gru_backward of a CPU backend are its own: they multiply. */
#ifndef FR_OPS_LAYER_TABLE_H
#define FR_OPS_LAYER_TABLE_H

#include "ops/ops.h"

#define FR_LAYER_OPS(X)                                                                                                \
    X(gather_steps, fr_gather_steps)                                                                                   \
    X(expand, fr_expand)                                                                                               \
    X(collapse, fr_collapse)                                                                                           \
    X(collapse_steps, fr_collapse_steps)                                                                               \
    X(align, fr_align)                                                                                                 \
    X(align_backward, fr_align)                                                                                        \
    X(activate, fr_activate)                                                                                           \
    X(activate_backward, fr_activate)                                                                                  \
    X(layer_norm, fr_layer_norm)                                                                                       \
    X(layer_norm_backward, fr_layer_norm)                                                                              \
    X(dropout, fr_dropout)                                                                                             \
    X(bucketize, fr_bucketize)                                                                                         \
    X(standardize, fr_standardize)                                                                                     \
    X(fill_missing, fr_fill_missing)                                                                                   \
    X(mark_missing, fr_mark_missing)                                                                                   \
    X(moments, fr_moments)                                                                                             \
    X(product, fr_interaction)                                                                                         \
    X(product_backward, fr_interaction)                                                                                \
    X(dot_interaction, fr_interaction)                                                                                 \
    X(dot_interaction_backward, fr_interaction)                                                                        \
    X(cross, fr_cross)                                                                                                 \
    X(cross_backward, fr_cross)                                                                                        \
    X(mixture, fr_mixture)                                                                                             \
    X(mixture_backward, fr_mixture)                                                                                    \
    X(pool_steps, fr_pool_steps)                                                                                       \
    X(pool_steps_backward, fr_pool_steps)                                                                              \
    X(attention_input, fr_attention_input)                                                                             \
    X(attention_input_backward, fr_attention_input)                                                                    \
    X(softmax_steps, fr_softmax_steps)                                                                                 \
    X(softmax_steps_backward, fr_softmax_steps)                                                                        \
    X(attention_pool, fr_attention_pool)                                                                               \
    X(attention_pool_backward, fr_attention_pool)                                                                      \
    X(dot_steps, fr_dot_steps)                                                                                         \
    X(dot_steps_backward, fr_dot_steps)

#define FR_REFERENCE_DECLARE(name, call) void fr_reference_##name(const struct call *c);
#define FR_REFERENCE_MEMBER(name, call) .name = fr_reference_##name,
FR_LAYER_OPS(FR_REFERENCE_DECLARE)
void fr_reference_row_sum(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out);
void fr_reference_row_sum_backward(uint32_t m, uint32_t n, struct fr_view gradient, struct fr_view in_gradient);
size_t fr_reference_gru_workspace(const struct fr_steps *steps, uint32_t units);
void fr_reference_gru(const struct fr_gru *c);
void fr_reference_gru_backward(const struct fr_gru *c);
double fr_reference_mse_pair(const struct fr_mse_pair *c);
double fr_reference_next_step(const struct fr_next_step *c);

#define FR_REFERENCE_LAYERS                                                                                            \
    FR_LAYER_OPS(FR_REFERENCE_MEMBER).row_sum = fr_reference_row_sum,                                                  \
    .row_sum_backward = fr_reference_row_sum_backward, .gru_workspace = fr_reference_gru_workspace,                    \
    .gru = fr_reference_gru, .gru_backward = fr_reference_gru_backward, .mse_pair = fr_reference_mse_pair,             \
    .next_step = fr_reference_next_step

#define FR_CPU_DECLARE(name, call) void fr_cpu_##name(const struct call *c);
#define FR_CPU_MEMBER(name, call) .name = fr_cpu_##name,
FR_LAYER_OPS(FR_CPU_DECLARE)
void fr_cpu_row_sum(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out);
void fr_cpu_row_sum_backward(uint32_t m, uint32_t n, struct fr_view gradient, struct fr_view in_gradient);
/* `ops`: whose products they run. */
size_t fr_cpu_gru_workspace(const struct fr_steps *steps, uint32_t units, const struct fr_ops *ops);
void fr_cpu_gru(const struct fr_gru *c, const struct fr_ops *ops);
void fr_cpu_gru_backward(const struct fr_gru *c, const struct fr_ops *ops);
double fr_cpu_mse_pair(const struct fr_mse_pair *c);
double fr_cpu_next_step(const struct fr_next_step *c);

#define FR_CPU_LAYERS                                                                                                  \
    FR_LAYER_OPS(FR_CPU_MEMBER).row_sum = fr_cpu_row_sum, .row_sum_backward = fr_cpu_row_sum_backward,                 \
    .mse_pair = fr_cpu_mse_pair, .next_step = fr_cpu_next_step

/* The recurrence of one backend: three functions that close over its table. */
#define FR_CPU_RECURRENCE(backend, table)                                                                              \
    static size_t gru_workspace_##backend(const struct fr_steps *steps, uint32_t units)                                \
    {                                                                                                                  \
        return fr_cpu_gru_workspace(steps, units, &(table));                                                           \
    }                                                                                                                  \
    static void gru_##backend(const struct fr_gru *c)                                                                  \
    {                                                                                                                  \
        fr_cpu_gru(c, &(table));                                                                                       \
    }                                                                                                                  \
    static void gru_backward_##backend(const struct fr_gru *c)                                                         \
    {                                                                                                                  \
        fr_cpu_gru_backward(c, &(table));                                                                              \
    }
#define FR_CPU_RECURRENCE_MEMBERS(backend)                                                                             \
    .gru_workspace = gru_workspace_##backend, .gru = gru_##backend, .gru_backward = gru_backward_##backend

#endif
