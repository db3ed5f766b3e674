/* CPU backend: dense parameters' updates and the sum of squares for clip_norm. The rules are
 * ops/row.h's.
 *
 * A gradient that is clipped or regularised is shaped block by block into a buffer on the stack,
 * so that each rule is one loop over plain arrays. Elements are independent: bits do not depend
 * on vector width or block. Thread: any, no state. Whether numbers are finite is not checked.
 * Schedules were applied before: the given optimizer is that of this step. */
#include "cpu.h"

#include "base/check.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { SHAPED_BLOCK = 1024 };

double fr_cpu_sum_squares(size_t n, const float *x)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

FR_CLONES
static void sgd(const struct fr_dense_update *u)
{
    fr_row_sgd(u->values, u->gradient, (uint32_t)u->n, &u->pace, 0, 1);
}

FR_CLONES
static void momentum(const struct fr_dense_update *u)
{
    fr_row_momentum(u->values, u->state0, u->gradient, (uint32_t)u->n, &u->pace, 0, 1);
}

FR_CLONES
static void adagrad(const struct fr_dense_update *u)
{
    fr_row_adagrad(u->values, u->state0, u->gradient, (uint32_t)u->n, &u->optimizer, &u->pace, 0, 1);
}

FR_CLONES
static void rmsprop(const struct fr_dense_update *u)
{
    fr_row_rmsprop(u->values, u->state0, u->gradient, (uint32_t)u->n, &u->optimizer, &u->pace, 0, 1);
}

FR_CLONES
static void ftrl(const struct fr_dense_update *u)
{
    FR_CHECK(u->state0 && u->state1);
    fr_row_ftrl(u->values, u->state0, u->state1, u->gradient, (uint32_t)u->n, &u->optimizer, &u->pace, 0, 1);
}

FR_CLONES
static void adam(const struct fr_dense_update *u)
{
    fr_row_adam(u->values, u->state0, u->state1, u->gradient, (uint32_t)u->n, &u->optimizer, &u->pace, 0, 1);
}

FR_CLONES
static void adamw(const struct fr_dense_update *u)
{
    fr_row_adamw(u->values, u->state0, u->state1, u->gradient, (uint32_t)u->n, &u->optimizer, &u->pace, 0, 1);
}

static void apply(const struct fr_dense_update *u)
{
    switch (u->optimizer.kind) {
    case FR_OPT_SGD:
        sgd(u);
        break;
    case FR_OPT_MOMENTUM:
        momentum(u);
        break;
    case FR_OPT_ADAGRAD:
        adagrad(u);
        break;
    case FR_OPT_RMSPROP:
        rmsprop(u);
        break;
    case FR_OPT_ADAM:
        adam(u);
        break;
    case FR_OPT_ADAMW:
        adamw(u);
        break;
    case FR_OPT_FTRL:
        ftrl(u);
        break;
    case FR_OPT_ADAGRAD_ROWWISE: /* optimizers of rows only; refused when the graph is made */
    case FR_OPT_ADAM_ROWWISE:
    case FR_OPT_GROUP_FTRL:
        break;
    }
}

FR_CLONES
static void shape(const struct fr_dense_update *u, float *restrict out)
{
    const float *restrict w = u->values, *restrict g = u->gradient;
    const struct fr_optimizer o = u->optimizer;
    const struct fr_pace pace = u->pace;
    for (size_t i = 0; i < u->n; i++)
        out[i] = fr_shaped_gradient(g[i], w[i], &o, &pace);
}

void fr_cpu_update_dense(const struct fr_dense_update *update)
{
    FR_CHECK(update->n <= UINT32_MAX);
    if (!fr_shapes_gradient(&update->optimizer)) {
        apply(update);
        return;
    }
    float shaped[SHAPED_BLOCK];
    for (size_t at = 0; at < update->n; at += SHAPED_BLOCK) {
        struct fr_dense_update block = *update;
        block.n = update->n - at < SHAPED_BLOCK ? update->n - at : SHAPED_BLOCK;
        block.values += at;
        block.gradient += at;
        block.state0 = update->state0 ? update->state0 + at : NULL;
        block.state1 = update->state1 ? update->state1 + at : NULL;
        shape(&block, shaped);
        block.gradient = shaped;
        block.pace.scale = 1.0f;
        apply(&block);
    }
}
