/* What runtime.cu and graphs.cu of trainer/cuda use of CUDA's runtime, for a compiler and a machine
 * without it: calls succeed and do nothing. The test that includes these files decides what
 * cudaFuncGetAttributes answers (standin_code). C++, as nvcc reads them. */
#ifndef FR_STANDIN_CUDA_RUNTIME_H
#define FR_STANDIN_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define __host__
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(threads)

struct standin_index {
    unsigned x;
};
static struct standin_index threadIdx, blockIdx, gridDim;
static inline void __syncthreads(void)
{
}
static inline void __syncwarp(void)
{
}
template <class T> static inline T __shfl_down_sync(unsigned, T x, unsigned)
{
    return x;
}
template <class T> static inline T __shfl_sync(unsigned, T x, unsigned)
{
    return x;
}

enum cudaError_t {
    cudaSuccess,
    cudaErrorMemoryAllocation,
    cudaErrorNoKernelImageForDevice,
};
extern cudaError_t standin_code; /* what is answered about a kernel's code */
extern unsigned standin_calls;   /* calls that a card without code must not see */

static inline const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorNoKernelImageForDevice ? "no kernel image is available for execution on the device"
                                                    : "standin";
}
static inline cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

struct cudaFuncAttributes {
    int binaryVersion;
};
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *)
{
    return standin_code;
}

struct cudaDeviceProp {
    char name[256];
    int major, minor;
};
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int)
{
    strcpy(out->name, "Tesla V100");
    out->major = 7;
    out->minor = 0;
    return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
static inline cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr, int)
{
    *out = 80;
    return cudaSuccess;
}
static inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}
static inline cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}
static inline cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}
static inline cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    *free = *total = 1 << 30;
    return cudaSuccess;
}

typedef struct standin_stream *cudaStream_t;
typedef struct standin_event *cudaEvent_t;
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0 };
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned)
{
    standin_calls++;
    return cudaSuccess;
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventCreate(cudaEvent_t *)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *, unsigned)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
    *ms = 0;
    return cudaSuccess;
}

enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
static inline cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    standin_calls++;
    *memory = malloc(bytes);
    return cudaSuccess;
}
template <class T> static inline cudaError_t cudaMalloc(T **memory, size_t bytes)
{
    return cudaMalloc((void **)memory, bytes);
}
static inline cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}
static inline cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    *memory = malloc(bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaLaunchKernel(const void *, unsigned, unsigned, void **, size_t, cudaStream_t)
{
    return cudaSuccess;
}

typedef struct standin_graph *cudaGraph_t;
typedef struct standin_graph_exec *cudaGraphExec_t;
typedef struct standin_graph_node *cudaGraphNode_t;
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
struct standin_dim {
    unsigned x, y, z;
    standin_dim(unsigned first = 1) : x(first), y(1), z(1)
    {
    }
};
typedef standin_dim dim3;
struct cudaKernelNodeParams {
    void *func;
    dim3 gridDim, blockDim;
    unsigned sharedMemBytes;
    void **kernelParams;
    void **extra;
};
static inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode)
{
    return cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *)
{
    return cudaSuccess;
}
static inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus *, void *, void *,
                                                   const cudaGraphNode_t **, void *, size_t *)
{
    return cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned)
{
    return cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaGraphDestroy(cudaGraph_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t, cudaGraphNode_t,
                                                           const cudaKernelNodeParams *)
{
    return cudaSuccess;
}
static inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

#endif
