/* Kernels of the dense parameters' updates: the rules of ops/row.h, with one thread for each
 * element.
 *
 * They do nothing once the queue's flag is set. The factors of clipped gradients are computed
 * here, too, from sums of squares, so that the host does not wait for these sums. */
#include "kernel.h"

struct dense_call {
    struct fr_dense_update update;
    const float *factors; /* factors of the pace's mean_scale and scale; NULL: 1 */
    const uint32_t *flag;
};

/* Applies the rule to element i; s is the gradient of the step, scaled. */
FR_DEVICE void dense_rule(const struct fr_dense_update *u, size_t i, float s)
{
    const struct fr_optimizer *o = &u->optimizer;
    const struct fr_pace *pace = &u->pace;
    float *w = &u->values[i];
    switch (o->kind) {
    case FR_OPT_SGD:
        fr_sgd_element(w, s, pace->rate);
        break;
    case FR_OPT_MOMENTUM:
        fr_momentum_element(w, &u->state0[i], s, pace);
        break;
    case FR_OPT_ADAGRAD:
        fr_adagrad_element(w, &u->state0[i], s, pace, o->eps);
        break;
    case FR_OPT_RMSPROP:
        fr_rmsprop_element(w, &u->state0[i], s, pace, o->eps);
        break;
    case FR_OPT_ADAM:
        fr_adam_element(w, &u->state0[i], &u->state1[i], s, pace, o->eps);
        break;
    case FR_OPT_ADAMW: /* the decay is applied first, as in PyTorch */
        *w = fr_cut(*w * pace->shrink, FR_VALUE_MAX);
        fr_adam_element(w, &u->state0[i], &u->state1[i], s, pace, o->eps);
        break;
    case FR_OPT_FTRL:
        fr_ftrl_element(w, &u->state0[i], &u->state1[i], s, o);
        break;
    case FR_OPT_ADAGRAD_ROWWISE: /* optimizers of rows only; refused when the graph is made */
    case FR_OPT_ADAM_ROWWISE:
    case FR_OPT_GROUP_FTRL:
        break;
    }
}

FR_KERNEL(update_dense_kernel, struct dense_call)
{
    if (c.flag && *c.flag)
        return;
    struct fr_dense_update u = c.update;
    bool shaped = fr_shapes_gradient(&u.optimizer);
    if (c.factors) {
        u.pace.mean_scale *= c.factors[0];
        u.pace.scale *= c.factors[1];
    }
    FR_EACH (i, u.n) {
        float g = u.gradient[i];
        dense_rule(&u, i, shaped ? fr_shaped_gradient(g, u.values[i], &u.optimizer, &u.pace) : g * u.pace.scale);
    }
}

void fr_device_update_dense_clipped(struct fr_device_queue *queue, const struct fr_dense_update *update,
                                    const float *factors)
{
    struct dense_call call = {*update, factors, fr_queue_flag(queue)};
    FR_LAUNCH(queue, update_dense_kernel, fr_queue_blocks(queue, update->n), call);
}

void fr_device_update_dense(struct fr_device_queue *queue, const struct fr_dense_update *update)
{
    fr_device_update_dense_clipped(queue, update, NULL);
}

/* One thread suffices, because a network has some hundred parameters. */
FR_KERNEL(clip_norms_kernel, struct fr_device_clip)
{
    if (fr_thread() != 0)
        return;
    double all = 0.0;
    for (uint32_t p = 0; p < c.n; p++) {
        double mean = (double)c.mean_scales[p];
        c.factors[2 * p] = fr_clip_scale((float)(sqrt(c.squares[p]) * mean), c.clip_norms[p]);
        all += c.squares[p] * mean * mean;
    }
    float scale = fr_clip_scale((float)sqrt(all), c.clip_global_norm);
    for (uint32_t p = 0; p < c.n; p++) {
        c.factors[2 * p] *= scale;
        c.factors[2 * p + 1] = scale;
    }
}

void fr_device_clip_norms(struct fr_device_queue *queue, const struct fr_device_clip *call)
{
    FR_LAUNCH(queue, clip_norms_kernel, 1, *call);
}

struct average_call {
    struct fr_device_average average;
    const uint32_t *flag;
};

FR_KERNEL(average_kernel, struct average_call)
{
    if (c.flag && *c.flag)
        return;
    const struct fr_device_average *a = &c.average;
    FR_EACH (i, a->n)
        a->average[i] = a->share == 1.0f ? a->values[i] : a->average[i] + a->share * (a->values[i] - a->average[i]);
}

void fr_device_average(struct fr_device_queue *queue, const struct fr_device_average *call)
{
    struct average_call average = {*call, fr_queue_flag(queue)};
    FR_LAUNCH(queue, average_kernel, fr_queue_blocks(queue, call->n), average);
}
