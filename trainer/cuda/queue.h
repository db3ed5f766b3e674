/* The part of a queue that the launchers of kernels use. Launchers start work on the queue's
 * stream; sums that need a second kernel keep their partial sums in the queue's workspace.
 * Implemented by runtime.cu for a card and by tests/emulate/runtime.c for the processor. Private
 * to the module. */
#ifndef FR_CUDA_QUEUE_H
#define FR_CUDA_QUEUE_H

#include "cuda/api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FR_WORKSPACE_BYTES = 32 << 20 };

/* Starts a kernel (device.h) with this number of blocks. The argument is copied. */
void fr_queue_launch(struct fr_device_queue *queue, const char *name, const void *kernel, const void *call,
                     size_t bytes, uint32_t blocks);
/* FR_WORKSPACE_BYTES of device memory, for kernels that follow each other in one operation. */
void *fr_queue_workspace(const struct fr_device_queue *queue);
const uint32_t *fr_queue_flag(const struct fr_device_queue *queue);
/* The number of blocks for this number of threads, at most a few times what fills the card. */
uint32_t fr_queue_blocks(const struct fr_device_queue *queue, size_t threads);
void fr_queue_zero(struct fr_device_queue *queue, void *device, size_t bytes);
void fr_queue_copy(struct fr_device_queue *queue, void *to, const void *from, size_t bytes);
/* C = A B (+ C), [m, k] times [k, n], row-major, either factor stored transposed. */
struct fr_product {
    size_t m, n, k, left_ld, right_ld, out_ld;
    const float *left, *right;
    float *out;
    bool left_transposed, right_transposed, accumulate, bf16;
};
void fr_queue_multiply(struct fr_device_queue *queue, const struct fr_product *product);

/* The operations: fr_device_<name>, each in the file of its kind. */
#define FR_DEVICE_DECLARE(result, name, arguments)                                                                     \
    void fr_device_##name(struct fr_device_queue *queue FR_DEVICE_OUT_##result FR_DEVICE_ARGUMENTS arguments);
FR_OPS_SHARED(FR_DEVICE_DECLARE)
void fr_device_multiply(struct fr_device_queue *queue, const struct fr_multiply *product, bool bf16);
void fr_device_gru(struct fr_device_queue *queue, const struct fr_device_gru *call);
void fr_device_gru_backward(struct fr_device_queue *queue, const struct fr_device_gru *call);
void fr_device_attention_dense(struct fr_device_queue *queue, const struct fr_device_attention *call);
void fr_device_attention_dense_backward(struct fr_device_queue *queue, const struct fr_device_attention *call);
void fr_device_update_rows_long(struct fr_device_queue *queue, const struct fr_row_update *update,
                                const struct fr_device_long_keys *keys);
void fr_device_update_dense_clipped(struct fr_device_queue *queue, const struct fr_dense_update *update,
                                    const float *factors);
void fr_device_clip_norms(struct fr_device_queue *queue, const struct fr_device_clip *call);
void fr_device_average(struct fr_device_queue *queue, const struct fr_device_average *call);
void fr_device_init_rows(struct fr_device_queue *queue, const struct fr_device_row_init *call);
void fr_device_gather_rows(struct fr_device_queue *queue, const struct fr_device_rows *call);
void fr_device_scatter_rows(struct fr_device_queue *queue, const struct fr_device_rows *call);
void fr_device_judge(struct fr_device_queue *queue, const struct fr_device_judge *call);
void fr_device_judge_sums(struct fr_device_queue *queue, const struct fr_device_judge_sums *call);
extern const struct fr_device_ops fr_device_table;

/* out[n] += sum over the rows. */
void fr_device_add_columns(struct fr_device_queue *queue, uint32_t m, uint32_t n, struct fr_view x, float *out);
/* Runs activate_backward without the gradient of the slopes. */
void fr_device_activate_elements_backward(struct fr_device_queue *queue, const struct fr_activate *call);
/* Runs the last step that launchers share: *sum = sum of `parts` [n], in fixed order. */
void fr_device_join(struct fr_device_queue *queue, const double *parts, size_t n, double *sum);

#ifdef __cplusplus
}
#endif

#endif
