/* Operations over elements, losses and dense updates: which memory each reads and writes. */
#include "staging.h"

#define OPS fr_shim_api()->ops
#define QUEUE fr_shim_queue()

void fr_shim_copy(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    struct shim_staging s = {0};
    fr_shim_view(&s, &in, m, n, SHIM_READ);
    fr_shim_view(&s, &out, m, n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->copy(QUEUE, m, n, in, out);
    fr_shim_leave(&s);
}

void fr_shim_add(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    struct shim_staging s = {0};
    fr_shim_view(&s, &in, m, n, SHIM_READ);
    fr_shim_view(&s, &out, m, n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->add(QUEUE, m, n, in, out);
    fr_shim_leave(&s);
}

void fr_shim_bias_activate(uint32_t m, uint32_t n, struct fr_view y, const float *bias, bool relu)
{
    struct shim_staging s = {0};
    fr_shim_view(&s, &y, m, n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, bias, n, SHIM_READ);
    fr_shim_enter(&s);
    OPS->bias_activate(QUEUE, m, n, y, bias, relu);
    fr_shim_leave(&s);
}

void fr_shim_relu_backward(uint32_t m, uint32_t n, struct fr_view y, struct fr_view gradient)
{
    struct shim_staging s = {0};
    fr_shim_view(&s, &y, m, n, SHIM_READ);
    fr_shim_view(&s, &gradient, m, n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->relu_backward(QUEUE, m, n, y, gradient);
    fr_shim_leave(&s);
}

void fr_shim_bias_gradient(uint32_t m, uint32_t n, struct fr_view gradient, float *out)
{
    struct shim_staging s = {0};
    fr_shim_view(&s, &gradient, m, n, SHIM_READ);
    SHIM_ARRAY(&s, out, n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->bias_gradient(QUEUE, m, n, gradient, out);
    fr_shim_leave(&s);
}

uint32_t fr_shim_max_bits(uint32_t m, uint32_t n, struct fr_view x)
{
    struct shim_staging s = {0};
    fr_shim_view(&s, &x, m, n, SHIM_READ);
    fr_shim_enter(&s);
    OPS->max_bits(QUEUE, fr_shim_bits(), m, n, x);
    fr_shim_leave(&s);
    return fr_shim_bits_of();
}

double fr_shim_sum_squares(size_t n, const float *x)
{
    struct shim_staging s = {0};
    SHIM_ARRAY(&s, x, n, SHIM_READ);
    fr_shim_enter(&s);
    OPS->sum_squares(QUEUE, fr_shim_sum(), n, x);
    fr_shim_leave(&s);
    return fr_shim_sum_of();
}

void fr_shim_row_sum(uint32_t m, uint32_t n, struct fr_view in, struct fr_view out)
{
    struct shim_staging s = {0};
    fr_shim_view(&s, &in, m, n, SHIM_READ);
    fr_shim_view(&s, &out, m, 1, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->row_sum(QUEUE, m, n, in, out);
    fr_shim_leave(&s);
}

void fr_shim_row_sum_backward(uint32_t m, uint32_t n, struct fr_view gradient, struct fr_view in_gradient)
{
    struct shim_staging s = {0};
    fr_shim_view(&s, &gradient, m, 1, SHIM_READ);
    fr_shim_view(&s, &in_gradient, m, n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->row_sum_backward(QUEUE, m, n, gradient, in_gradient);
    fr_shim_leave(&s);
}

void fr_shim_activate(const struct fr_activate *call)
{
    struct shim_staging s = {0};
    struct fr_activate c = *call;
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.y, c.m, c.n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.alpha, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.mean, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.variance, c.n, SHIM_READ);
    fr_shim_enter(&s);
    OPS->activate(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_activate_backward(const struct fr_activate *call)
{
    struct shim_staging s = {0};
    struct fr_activate c = *call;
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.y, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.gradient, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.x_gradient, c.m, c.n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.alpha, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.mean, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.variance, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.alpha_gradient, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->activate_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_layer_norm(const struct fr_layer_norm *call)
{
    struct shim_staging s = {0};
    struct fr_layer_norm c = *call;
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.y, c.m, c.n, SHIM_WRITTEN);
    fr_shim_view(&s, &c.moments, c.m, 2, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.scale, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.bias, c.n, SHIM_READ);
    fr_shim_enter(&s);
    OPS->layer_norm(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_layer_norm_backward(const struct fr_layer_norm *call)
{
    struct shim_staging s = {0};
    struct fr_layer_norm c = *call;
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.moments, c.m, 2, SHIM_READ);
    fr_shim_view(&s, &c.gradient, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.x_gradient, c.m, c.n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.scale, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.scale_gradient, c.n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.bias_gradient, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->layer_norm_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_dropout(const struct fr_dropout *call)
{
    struct shim_staging s = {0};
    struct fr_dropout c = *call;
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.y, c.m, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->dropout(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_bucketize(const struct fr_bucketize *call)
{
    struct shim_staging s = {0};
    struct fr_bucketize c = *call;
    fr_shim_view(&s, &c.x, c.m, c.dim, SHIM_READ);
    fr_shim_view(&s, &c.y, c.m, (size_t)c.dim * (c.n_boundaries + 1), SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.boundaries, c.n_boundaries, SHIM_READ);
    fr_shim_enter(&s);
    OPS->bucketize(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_standardize(const struct fr_standardize *call)
{
    struct shim_staging s = {0};
    struct fr_standardize c = *call;
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.y, c.m, c.n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.mean, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.variance, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.count, 1, SHIM_READ);
    fr_shim_enter(&s);
    OPS->standardize(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_fill_missing(const struct fr_fill_missing *call)
{
    struct shim_staging s = {0};
    struct fr_fill_missing c = *call;
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.y, c.m, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->fill_missing(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_mark_missing(const struct fr_mark_missing *call)
{
    struct shim_staging s = {0};
    struct fr_mark_missing c = *call;
    fr_shim_view(&s, &c.x, c.m, 1, SHIM_READ);
    fr_shim_view(&s, &c.y, c.m, 1, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->mark_missing(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_moments(const struct fr_moments *call)
{
    struct shim_staging s = {0};
    struct fr_moments c = *call;
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.use, c.m, SHIM_READ);
    SHIM_ARRAY(&s, c.sum, c.n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.square, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->moments(QUEUE, &c);
    fr_shim_leave(&s);
}

/* A loss over samples and its gradient: all of them touch the same memory. */
static double loss(const struct fr_loss *call,
                   void (*op)(struct fr_device_queue *queue, double *sum, const struct fr_loss *call))
{
    struct shim_staging s = {0};
    struct fr_loss c = *call;
    SHIM_ARRAY(&s, c.z, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.labels, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.weights, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.trained, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.gradient, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    op(QUEUE, fr_shim_sum(), &c);
    fr_shim_leave(&s);
    return fr_shim_sum_of();
}

#define SHIM_LOSS(result, name, arguments)                                                                             \
    result fr_shim_##name(const struct fr_loss *call)                                                                  \
    {                                                                                                                  \
        return loss(call, OPS->name);                                                                                  \
    }
FR_OPS_SAMPLE_LOSSES(SHIM_LOSS)

void fr_shim_update_dense(const struct fr_dense_update *call)
{
    struct shim_staging s = {0};
    struct fr_dense_update c = *call;
    SHIM_ARRAY(&s, c.values, c.n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.gradient, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.state0, c.n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.state1, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->update_dense(QUEUE, &c);
    fr_shim_leave(&s);
}

double fr_shim_mse_pair(const struct fr_mse_pair *call)
{
    struct shim_staging s = {0};
    struct fr_mse_pair c = *call;
    SHIM_ARRAY(&s, c.trained, c.m, SHIM_READ);
    fr_shim_view(&s, &c.a, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.b, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.a_gradient, c.m, c.n, SHIM_WRITTEN);
    fr_shim_view(&s, &c.b_gradient, c.m, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->mse_pair(QUEUE, fr_shim_sum(), &c);
    fr_shim_leave(&s);
    return fr_shim_sum_of();
}
