/* nvcc finds this header before that of base, so that shared mathematics is compiled for the
 * host and for the card. */
#ifndef FR_CUDA_MARKER_H
#define FR_CUDA_MARKER_H

#define FR_HD static __host__ __device__ inline

#endif
