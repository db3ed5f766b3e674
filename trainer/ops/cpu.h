/* The loops that all CPU backends share: fr_cpu_<name> for each of FR_OPS_SHARED. Also the
 * recurrence and the attention, which run the products of one backend. Private to the module. */
#ifndef FR_OPS_CPU_H
#define FR_OPS_CPU_H

#include "base/clones.h"
#include "ops/ops.h"

#define FR_CPU_DECLARE(result, name, arguments) result fr_cpu_##name arguments;
#define FR_CPU_MEMBER(result, name, arguments) .name = fr_cpu_##name,
FR_OPS_SHARED(FR_CPU_DECLARE)
FR_OPS_SPARED(FR_CPU_DECLARE)

/* A part of a product whose sums are complete; fr_cpu_finish does what follows the sums. */
struct fr_product_part {
    uint32_t row, rows, column, columns;
};
void fr_cpu_finish(const struct fr_multiply *product, const struct fr_product_part *part);

/* `ops`: the backend whose products the functions run. */
size_t fr_cpu_gru_workspace(const struct fr_steps *steps, uint32_t units, const struct fr_ops *ops);
void fr_cpu_gru(const struct fr_gru *c, const struct fr_ops *ops);
void fr_cpu_gru_backward(const struct fr_gru *c, const struct fr_ops *ops);
size_t fr_cpu_attention_workspace(uint32_t width, uint32_t units);
void fr_cpu_attention_dense(const struct fr_attention_dense *c, const struct fr_ops *ops);
void fr_cpu_attention_dense_backward(const struct fr_attention_dense *c, const struct fr_ops *ops);

/* Defines the recurrence and the attention of one backend: functions that pass the backend's
 * table. */
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
    }                                                                                                                  \
    static void attention_dense_##backend(const struct fr_attention_dense *c)                                          \
    {                                                                                                                  \
        fr_cpu_attention_dense(c, &(table));                                                                           \
    }                                                                                                                  \
    static void attention_dense_backward_##backend(const struct fr_attention_dense *c)                                 \
    {                                                                                                                  \
        fr_cpu_attention_dense_backward(c, &(table));                                                                  \
    }
#define FR_CPU_MEMBERS(backend)                                                                                        \
    FR_OPS_SHARED(FR_CPU_MEMBER)                                                                                       \
    FR_OPS_SPARED(FR_CPU_MEMBER).gru_workspace = gru_workspace_##backend, .gru = gru_##backend,                        \
    .gru_backward = gru_backward_##backend, .attention_workspace = fr_cpu_attention_workspace,                         \
    .attention_dense = attention_dense_##backend, .attention_dense_backward = attention_dense_backward_##backend

#endif
