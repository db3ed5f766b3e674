/* What the operation tests share: the list of backends, guarded memory, error measures. */
#ifndef FR_TESTS_OPS_BACKENDS_H
#define FR_TESTS_OPS_BACKENDS_H

#include <math.h>
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "reference/reference.h"
#ifdef FR_PARITY_DEVICE
#include "shim/shim.h"
#endif

enum { BACKENDS_MAX = 7, GUARD = 64 };
#define GUARD_VALUE 12345.678f

struct backend_list {
    size_t n;
    const struct fr_ops *ops[BACKENDS_MAX];
};

/* Every rule uses some of these numbers. */
static inline struct fr_optimizer test_optimizer(enum fr_optimizer_kind kind)
{
    return (struct fr_optimizer){.kind = kind,
                                 .lr = 0.1f,
                                 .eps = 1e-8f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.99f,
                                 .momentum = 0.9f,
                                 .rho = 0.95f,
                                 .beta = 1.0f,
                                 .l2 = 0.02f};
}

#ifdef FR_PARITY_DEVICE
/* Only the device, when the suite runs on one. */
static inline struct backend_list list_backends(void)
{
    return (struct backend_list){1, {fr_shim_ops()}};
}

static inline struct backend_list list_bf16_backends(void)
{
    return (struct backend_list){1, {fr_shim_bf16_ops()}};
}
#else
/* Every backend that this machine can run, except the reference. */
static inline struct backend_list list_backends(void)
{
    const struct fr_ops *all[] = {fr_ops_cpu(), fr_ops_cpu_avx512(), fr_ops_cpu_avx2(), fr_ops_openblas()};
    struct backend_list list = {0};
    for (size_t i = 0; i < FR_ARRAY_LEN(all); i++) {
        bool have = !all[i];
        for (size_t j = 0; j < list.n; j++)
            have |= list.ops[j] == all[i];
        if (!have)
            list.ops[list.n++] = all[i];
    }
    return list;
}

/* The backends whose products round their factors to bf16; they are compared with
 * fr_reference_bf16_ops. */
static inline struct backend_list list_bf16_backends(void)
{
    const struct fr_ops *all[] = {fr_ops_bf16_dot(), fr_ops_bf16_tiles()};
    struct backend_list list = {0};
    for (size_t i = 0; i < FR_ARRAY_LEN(all); i++)
        if (all[i])
            list.ops[list.n++] = all[i];
    return list;
}

#endif

/* n floats between two guards. */
static inline float *guarded(size_t n)
{
    float *memory = fr_alloc_aligned(64, (n + 2 * GUARD) * sizeof(float));
    for (size_t i = 0; i < n + 2 * GUARD; i++)
        memory[i] = GUARD_VALUE;
    return memory + GUARD;
}

static inline void release_guarded(float *values, size_t n)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_true(values[-1 - (ptrdiff_t)i] == GUARD_VALUE);
        assert_true(values[n + i] == GUARD_VALUE);
    }
    free(values - GUARD);
}

/* Expects that the columns beyond n of each row still have the guard. */
static inline void assert_row_ends_untouched(struct fr_view v, size_t m, size_t n)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = n; j < v.ld; j++)
            assert_true(v.values[i * v.ld + j] == GUARD_VALUE);
}

static inline void fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(2.0 * fr_random_uniform(seed, 3, 0, i) - 1.0);
}

/* [m, n] of random numbers, guard values beyond column n. */
static inline struct fr_view random_view(size_t m, size_t n, size_t ld, uint64_t seed)
{
    struct fr_view v = {guarded(m * ld), ld};
    for (size_t i = 0; i < m; i++)
        fill(v.values + i * ld, n, seed * 1000 + i);
    return v;
}

static inline void assert_nmse(struct fr_view got, struct fr_view want, size_t m, size_t n, double bound,
                               const char *what)
{
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double g = (double)got.values[i * got.ld + j], w = (double)want.values[i * want.ld + j];
            difference += (g - w) * (g - w);
            size += w * w;
        }
    }
    if (!(difference <= bound * size + 1e-30))
        fail_msg("%s: normalized mean square error %g, allowed %g", what, difference / size, bound);
}

static inline void assert_same_bits(struct fr_view a, struct fr_view b, size_t m, size_t n, const char *what)
{
    for (size_t i = 0; i < m; i++)
        if (memcmp(a.values + i * a.ld, b.values + i * b.ld, n * sizeof(float)) != 0)
            fail_msg("%s: row %zu differs", what, i);
}

#endif
