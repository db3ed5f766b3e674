/* See cuda_runtime.h beside this file. */
#ifndef FR_STANDIN_CUBLAS_V2_H
#define FR_STANDIN_CUBLAS_V2_H

#include <stdint.h>

#include "cuda_runtime.h"

typedef struct standin_blas *cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_ALLOC_FAILED };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t { CUBLAS_PEDANTIC_MATH };
enum cudaDataType { CUDA_R_32F, CUDA_R_16BF };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT };
static inline const char *cublasGetStatusString(cublasStatus_t)
{
    return "standin";
}
static inline cublasStatus_t cublasCreate(cublasHandle_t *)
{
    standin_calls++;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasDestroy(cublasHandle_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSgemm_v2_64(cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t,
                                               int64_t, const float *, const float *, int64_t, const float *, int64_t,
                                               const float *, float *, int64_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasGemmEx_64(cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t,
                                             int64_t, const void *, const void *, cudaDataType, int64_t, const void *,
                                             cudaDataType, int64_t, const void *, void *, cudaDataType, int64_t,
                                             cublasComputeType_t, cublasGemmAlgo_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

#endif
