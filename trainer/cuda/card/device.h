/* The macros that kernel.h uses, for a card, as nvcc compiles them. Private to the module. */
#ifndef FR_CUDA_DEVICE_H
#define FR_CUDA_DEVICE_H

#define FR_DEVICE static __device__ inline
#define FR_KERNEL(name, type) static __global__ void __launch_bounds__(FR_BLOCK) name(const type c)
#define FR_LAUNCH(queue, name, blocks, call)                                                                           \
    fr_queue_launch((queue), #name, (const void *)(name), &(call), sizeof(call), (blocks))
#define FR_SHARED(type, name, n) __shared__ type name[n]
#define fr_block_meet() __syncthreads()
#define fr_warp_meet() __syncwarp()
#define fr_warp_down_f32(x, n) __shfl_down_sync(0xffffffffu, x, n)
#define fr_warp_from_f32(x, lane) __shfl_sync(0xffffffffu, x, lane)
#define fr_warp_down_f64(x, n) __shfl_down_sync(0xffffffffu, x, n)
#define fr_atomic_max(word, bits) atomicMax(word, bits)
#define fr_atomic_or(word, bits) atomicOr(word, bits)

#endif
