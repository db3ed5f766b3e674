/* Kernels of the losses of tasks, pairs and vectors; of sums in double; of the largest bits; and
 * of the flag of a refusal.
 *
 * Each sample has one thread (for vectors, a warp). Losses are summed in a fixed tree within a
 * block, and the blocks in a fixed order (fr_device_join). The mathematics of a sample is
 * ops/loss.h. */
#include "kernel.h"

#include "ops/loss.h"

/* ---- joining sums ---- */

struct join_call {
    const double *parts;
    size_t n;
    double *sum;
};

FR_KERNEL(join_kernel, struct join_call)
{
    FR_SHARED(double, shared, FR_BLOCK_WARPS);
    double sum = 0.0;
    for (size_t i = threadIdx.x; i < c.n; i += FR_BLOCK)
        sum += c.parts[i];
    sum = fr_block_sum(sum, shared);
    if (threadIdx.x == 0)
        *c.sum = sum;
}

void fr_device_join(struct fr_device_queue *queue, const double *parts, size_t n, double *sum)
{
    struct join_call call = {parts, n, sum};
    FR_LAUNCH(queue, join_kernel, 1, call);
}

struct squares_call {
    size_t n;
    const float *x;
    double *parts;
};

enum { SUM_BLOCKS = 1024 }; /* parts of a long sum, the same number on every card */

FR_KERNEL(squares_kernel, struct squares_call)
{
    FR_SHARED(double, shared, FR_BLOCK_WARPS);
    double sum = 0.0;
    FR_EACH (i, c.n)
        sum += (double)c.x[i] * (double)c.x[i];
    sum = fr_block_sum(sum, shared);
    if (threadIdx.x == 0)
        c.parts[blockIdx.x] = sum;
}

void fr_device_sum_squares(struct fr_device_queue *queue, double *sum, size_t n, const float *x)
{
    size_t blocks = (n + FR_BLOCK - 1) / FR_BLOCK;
    struct squares_call call = {n, x, (double *)fr_queue_workspace(queue)};
    blocks = blocks < 1 ? 1 : blocks < SUM_BLOCKS ? blocks : SUM_BLOCKS;
    FR_LAUNCH(queue, squares_kernel, (uint32_t)blocks, call);
    fr_device_join(queue, call.parts, blocks, sum);
}

struct max_call {
    uint32_t m, n;
    struct fr_view x;
    uint32_t *bits;
};

FR_KERNEL(max_bits_kernel, struct max_call)
{
    uint32_t largest = 0;
    FR_EACH (at, (size_t)c.m * c.n) {
        uint32_t bits = fr_f32_bits(*fr_cell_at(c.x, fr_cell_of(at, c.n))) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    if (largest > 0)
        fr_atomic_max(c.bits, largest);
}

void fr_device_max_bits(struct fr_device_queue *queue, uint32_t *bits, uint32_t m, uint32_t n, struct fr_view x)
{
    struct max_call call = {m, n, x, bits};
    FR_LAUNCH(queue, max_bits_kernel, fr_queue_blocks(queue, (size_t)m * n), call);
}

FR_KERNEL(judge_kernel, struct fr_device_judge)
{
    if (fr_thread() == 0 && *c.bits > c.bound)
        fr_atomic_or(c.flag, c.reason);
}

void fr_device_judge(struct fr_device_queue *queue, const struct fr_device_judge *call)
{
    FR_LAUNCH(queue, judge_kernel, 1, *call);
}

FR_KERNEL(judge_sums_kernel, struct fr_device_judge_sums)
{
    FR_EACH (i, c.n)
        if (!(c.sums[i] - c.sums[i] == 0.0))
            fr_atomic_or(c.flag, c.reason);
}

void fr_device_judge_sums(struct fr_device_queue *queue, const struct fr_device_judge_sums *call)
{
    FR_LAUNCH(queue, judge_sums_kernel, fr_queue_blocks(queue, call->n), *call);
}

/* ---- tasks ---- */

#define LOSS_KIND(result, name, arguments) LOSS_##name,
#define LOSS_OF_SAMPLE(result, name, arguments)                                                                        \
    case LOSS_##name:                                                                                                  \
        value = fr_##name##_loss(loss, z, y, &slope);                                                                  \
        break;
#define LOSS_OF_BATCH(result, name, arguments)                                                                         \
    void fr_device_##name(struct fr_device_queue *queue, result *sum, const struct fr_loss *loss)                      \
    {                                                                                                                  \
        run_loss(queue, sum, loss, LOSS_##name);                                                                       \
    }

enum loss_kind { FR_OPS_SAMPLE_LOSSES(LOSS_KIND) };

struct loss_call {
    struct fr_loss loss;
    enum loss_kind kind;
    double *parts; /* [blocks] */
};

FR_DEVICE double sample_loss(const struct loss_call *c, size_t i)
{
    const struct fr_loss *loss = &c->loss;
    float z = loss->z[i], y = loss->labels[i], w = loss->weights[i], slope = 0.0f;
    double value = 0.0;
    switch (c->kind) {
        FR_OPS_SAMPLE_LOSSES(LOSS_OF_SAMPLE)
    }
    loss->gradient[i] += loss->scale * w * slope;
    return (double)w * value;
}

FR_KERNEL(loss_kernel, struct loss_call)
{
    FR_SHARED(double, shared, FR_BLOCK_WARPS);
    size_t i = fr_thread();
    bool counts = i < c.loss.n && c.loss.trained[i] && c.loss.labels[i] == c.loss.labels[i];
    double sum = fr_block_sum(counts ? sample_loss(&c, i) : 0.0, shared);
    if (threadIdx.x == 0)
        c.parts[blockIdx.x] = sum;
}

/* Returns one block for each FR_BLOCK samples, so that the tree depends on the number of samples
 * alone. */
static size_t sample_blocks(size_t n)
{
    return n > 0 ? (n + FR_BLOCK - 1) / FR_BLOCK : 1;
}

static void run_loss(struct fr_device_queue *queue, double *sum, const struct fr_loss *loss, enum loss_kind kind)
{
    struct loss_call call = {*loss, kind, (double *)fr_queue_workspace(queue)};
    FR_LAUNCH(queue, loss_kernel, (uint32_t)sample_blocks(loss->n), call);
    fr_device_join(queue, call.parts, sample_blocks(loss->n), sum);
}

FR_OPS_SAMPLE_LOSSES(LOSS_OF_BATCH)

/* ---- products of probabilities ---- */

struct logit_call {
    uint32_t n, count;
    const float *const *z;
    float *out;
};

FR_KERNEL(product_logit_kernel, struct logit_call)
{
    FR_EACH (i, c.n)
        c.out[i] = fr_probability_of(c.count, c.z, i).logit;
}

void fr_device_product_logit(struct fr_device_queue *queue, uint32_t n, uint32_t count, const float *const *z,
                             float *out)
{
    struct logit_call call = {n, count, z, out};
    FR_LAUNCH(queue, product_logit_kernel, fr_queue_blocks(queue, n), call);
}

struct product_loss_call {
    struct fr_product_loss loss;
    double *parts;
};

FR_DEVICE double product_loss(const struct fr_product_loss *loss, size_t i)
{
    float y = loss->labels[i], w = loss->weights[i];
    struct fr_probability p = fr_probability_of(loss->count, loss->z, i);
    for (uint32_t k = 0; k < loss->count; k++)
        loss->gradient[k][i] += loss->scale * w * fr_probability_slope(&p, loss->z[k][i], y);
    return (double)w * fr_probability_loss(&p, y);
}

FR_KERNEL(product_loss_kernel, struct product_loss_call)
{
    FR_SHARED(double, shared, FR_BLOCK_WARPS);
    size_t i = fr_thread();
    bool counts = i < c.loss.n && c.loss.trained[i] && c.loss.labels[i] == c.loss.labels[i];
    double sum = fr_block_sum(counts ? product_loss(&c.loss, i) : 0.0, shared);
    if (threadIdx.x == 0)
        c.parts[blockIdx.x] = sum;
}

void fr_device_product_logloss(struct fr_device_queue *queue, double *sum, const struct fr_product_loss *loss)
{
    struct product_loss_call call = {*loss, (double *)fr_queue_workspace(queue)};
    FR_LAUNCH(queue, product_loss_kernel, (uint32_t)sample_blocks(loss->n), call);
    fr_device_join(queue, call.parts, sample_blocks(loss->n), sum);
}

/* ---- pairs of a group ---- */

/* The processor loops over pairs and adds to both samples. On a card each position gathers its
 * own sum, so that no other thread writes it: first over its own partners, then over the
 * positions whose partner it is. */
struct pair_call {
    struct fr_pair_loss loss;
    double *parts;
};

FR_DEVICE uint32_t partners_of(const struct fr_pair_loss *loss, uint32_t i)
{
    return loss->lower[i] < loss->partners ? loss->lower[i] : loss->partners;
}

/* Whether position k is one of the partners that fr_pair_partner gives to i: partner t is at t *
 * lower / count, shifted by i. */
FR_DEVICE bool is_partner(const struct fr_pair_loss *loss, uint32_t i, uint32_t k)
{
    uint64_t lower = loss->lower[i], count = partners_of(loss, i);
    if (k >= lower)
        return false;
    if (count == lower)
        return true;
    uint64_t place = (k + lower - i % lower) % lower;
    uint64_t turn = (place * count + lower - 1) / lower;
    return turn < count && turn * lower / count == place;
}

/* Returns, for the pair of position i and a smaller label at k, the slope by z_k - z_i without
 * weights; *cost gets the loss of the pair. */
FR_DEVICE float pair_slope(const struct fr_pair_loss *loss, uint32_t i, uint32_t k, float *cost)
{
    float x = loss->z[loss->order[k]] - loss->z[loss->order[i]], e = fr_expf(x >= 0.0f ? -x : x);
    *cost = (x >= 0.0f ? x : 0.0f) + fr_log1pf(e);
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

FR_DEVICE double pair_factor(const struct fr_pair_loss *loss, uint32_t i)
{
    uint32_t lower = loss->lower[i];
    double stands_for = lower > loss->partners ? (double)lower / (double)loss->partners : 1.0;
    return stands_for * (double)loss->weights[loss->order[i]];
}

FR_DEVICE double position_loss(const struct fr_pair_loss *loss, uint32_t k)
{
    uint32_t lower = loss->lower[k], count = partners_of(loss, k);
    double total = 0.0, own = 0.0, given = 0.0;
    float cost;
    for (uint32_t turn = 0; turn < count; turn++) {
        uint32_t at = count == lower ? turn : fr_pair_partner(lower, count, k, turn);
        float weight = loss->weights[loss->order[at]];
        own += (double)(weight * pair_slope(loss, k, at, &cost));
        total += (double)(weight * cost);
    }
    float weight = loss->weights[loss->order[k]];
    for (uint32_t i = k + 1; i < loss->n; i++)
        if (is_partner(loss, i, k))
            given += pair_factor(loss, i) * (double)(weight * pair_slope(loss, i, k, &cost));
    double sum = given - (count > 0 ? pair_factor(loss, k) * own : 0.0);
    loss->gradient[loss->order[k]] += (float)((double)loss->scale * (double)loss->group_scale * sum);
    return count > 0 ? pair_factor(loss, k) * total : 0.0;
}

FR_KERNEL(pair_kernel, struct pair_call)
{
    FR_SHARED(double, shared, FR_BLOCK_WARPS);
    size_t k = fr_thread();
    double sum = fr_block_sum(k < c.loss.n ? position_loss(&c.loss, (uint32_t)k) : 0.0, shared);
    if (threadIdx.x == 0)
        c.parts[blockIdx.x] = (double)c.loss.group_scale * sum;
}

void fr_device_pairwise(struct fr_device_queue *queue, double *sum, const struct fr_pair_loss *loss)
{
    struct pair_call call = {*loss, (double *)fr_queue_workspace(queue)};
    FR_LAUNCH(queue, pair_kernel, (uint32_t)sample_blocks(loss->n), call);
    fr_device_join(queue, call.parts, sample_blocks(loss->n), sum);
}

/* ---- vectors ---- */

struct mse_call {
    struct fr_mse_pair call;
    double *parts; /* [m] */
};

FR_KERNEL(mse_pair_kernel, struct mse_call)
{
    FR_EACH_BY_WARP (i, c.call.m) {
        float squares = 0.0f;
        bool counts = c.call.trained[i] != 0;
        FR_EACH_BY_LANE (j, c.call.n) {
            float difference = counts ? *fr_at(c.call.a, i, j) - *fr_at(c.call.b, i, j) : 0.0f;
            squares += difference * difference;
            if (counts && c.call.a_gradient.values)
                *fr_at(c.call.a_gradient, i, j) += c.call.scale * difference;
            if (counts && c.call.b_gradient.values)
                *fr_at(c.call.b_gradient, i, j) -= c.call.scale * difference;
        }
        squares = fr_warp_sum(squares);
        if (fr_lane() == 0)
            c.parts[i] = 0.5 * (double)squares;
    }
}

void fr_device_mse_pair(struct fr_device_queue *queue, double *sum, const struct fr_mse_pair *call)
{
    struct mse_call loss = {*call, (double *)fr_queue_workspace(queue)};
    FR_LAUNCH(queue, mse_pair_kernel, fr_queue_blocks(queue, (size_t)call->m * FR_WARP), loss);
    fr_device_join(queue, loss.parts, call->m, sum);
}
