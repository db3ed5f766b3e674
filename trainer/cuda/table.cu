/* The table of a device. It has every operation of ops/ops.h by the same list, so an operation
 * without a kernel does not link. */
#include "kernel.h"

#define FR_DEVICE_ENTRY(result, name, arguments) fr_device_##name,
/* In the order of the members. */
const struct fr_device_ops fr_device_table = {
    FR_OPS_SHARED(FR_DEVICE_ENTRY) fr_device_multiply,
    fr_device_gru,
    fr_device_gru_backward,
    fr_device_attention_dense,
    fr_device_attention_dense_backward,
    fr_device_update_rows_long,
    fr_device_update_dense_clipped,
    fr_device_clip_norms,
    fr_device_average,
    fr_device_init_rows,
    fr_device_gather_rows,
    fr_device_scatter_rows,
    fr_device_judge,
    fr_device_judge_sums,
};

void fr_device_multiply(struct fr_device_queue *queue, const struct fr_multiply *product, bool bf16)
{
    const struct fr_operand *left = product->left, *right = product->right;
    size_t row = left->transposed ? 1 : left->ld;
    struct fr_product call;
    call.m = product->row_end - product->row_begin;
    call.n = right->columns;
    call.k = left->columns;
    call.left_ld = left->ld;
    call.right_ld = right->ld;
    call.out_ld = product->out.ld;
    call.left = left->values + product->row_begin * row;
    call.right = right->values;
    call.out = product->out.values + product->row_begin * product->out.ld;
    call.left_transposed = left->transposed;
    call.right_transposed = right->transposed;
    call.accumulate = product->accumulate;
    call.bf16 = bf16;
    if (call.m > 0 && call.n > 0)
        fr_queue_multiply(queue, &call);
}
