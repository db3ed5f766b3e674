/* What trainer/ops uses of OpenBLAS, for machines with a card and without OpenBLAS: plain loops, so
 * that the tests link. Nothing is measured with it. */
#ifndef FR_GPU_CBLAS_H
#define FR_GPU_CBLAS_H

#include <stddef.h>

typedef int blasint;
enum { CblasRowMajor, CblasNoTrans, CblasTrans };

static inline void openblas_set_num_threads(int n)
{
    (void)n;
}

static inline const char *openblas_get_config(void)
{
    return "OpenBLAS stand-in";
}

static inline const char *openblas_get_corename(void)
{
    return "none";
}

static inline void cblas_sgemm(int order, int left_turned, int right_turned, blasint m, blasint n, blasint k,
                               float alpha, const float *left, blasint left_ld, const float *right, blasint right_ld,
                               float beta, float *out, blasint out_ld)
{
    (void)order;
    for (blasint i = 0; i < m; i++) {
        for (blasint j = 0; j < n; j++) {
            float sum = 0.0f, *to = &out[(size_t)i * (size_t)out_ld + (size_t)j];
            for (blasint t = 0; t < k; t++)
                sum += left[left_turned == CblasTrans ? t * left_ld + i : i * left_ld + t] *
                       right[right_turned == CblasTrans ? j * right_ld + t : t * right_ld + j];
            *to = alpha * sum + (beta != 0.0f ? beta * *to : 0.0f);
        }
    }
}

#endif
