/* The queue of a card, and what runtime.cu and graphs.cu share. Private to these two files;
 * launchers see queue.h. */
#ifndef FR_CUDA_RUNTIME_H
#define FR_CUDA_RUNTIME_H

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernel.h"
#include "recording.h"

struct fr_device_queue {
    int card, processors;
    cudaStream_t stream, beside;
    cudaEvent_t joined; /* recorded on the stream `beside`, for the queue's stream to wait for */
    cudaEvent_t marks[FR_DEVICE_MARKS];
    cublasHandle_t blas;
    void *workspace, *blas_workspace;
    __nv_bfloat16 *rounded[2]; /* factors of a bf16 product */
    size_t rounded_floats[2];
    const uint32_t *flag;
    struct fr_device_graphs graphs;
    enum fr_status status;
    char text[256]; /* of the first error */
};

/* Records the queue's first error. False: the queue has an error. */
bool fr_cuda_keep(struct fr_device_queue *queue, cudaError_t error, const char *what);
/* Makes the queue's card the current one of the calling thread, because the queue may have been
 * opened by another thread. */
void fr_cuda_enter(struct fr_device_queue *queue);
/* Starts one kernel, copy, clearing or product on the queue's stream. `call` is a kernel's
 * argument. */
void fr_cuda_start(struct fr_device_queue *queue, const struct fr_started *started, void *call);

extern const struct fr_device_graph_calls fr_cuda_graph_calls; /* graphs.cu */

#endif
