/* Operations over several inputs and over sequences, losses of several logits: which memory each
 * reads and writes. */
#include "staging.h"

#define OPS fr_shim_api()->ops
#define QUEUE fr_shim_queue()

/* One more than the largest of values [begin, end). */
static uint32_t bound_of(const uint32_t *values, uint32_t begin, uint32_t end)
{
    uint32_t bound = 0;
    for (uint32_t i = begin; i < end; i++)
        bound = values[i] >= bound ? values[i] + 1 : bound;
    return bound;
}

/* What says which steps there are; last, for offsets are read on the host before. */
static void steps(struct shim_staging *s, struct fr_steps *at)
{
    uint32_t rows = at->begin[at->entry_end];
    SHIM_ARRAY(s, at->begin, at->entry_end + 1, SHIM_READ);
    SHIM_ARRAY(s, at->masked, rows, SHIM_READ);
}

void fr_shim_expand(const struct fr_expand *call)
{
    struct shim_staging s = {0};
    struct fr_expand c = *call;
    fr_shim_view(&s, &c.in, bound_of(c.source, c.begin, c.end), c.width, SHIM_READ);
    SHIM_ARRAY(&s, c.source, c.end, SHIM_READ);
    fr_shim_view(&s, &c.out, c.end, c.width, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->expand(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_collapse(const struct fr_collapse *call)
{
    struct shim_staging s = {0};
    struct fr_collapse c = *call;
    fr_shim_view(&s, &c.in, c.group_begin[c.end], c.width, SHIM_READ);
    fr_shim_view(&s, &c.out, c.end, c.width, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.group_begin, c.end + 1, SHIM_READ);
    fr_shim_enter(&s);
    OPS->collapse(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_collapse_steps(const struct fr_collapse_steps *call)
{
    struct shim_staging s = {0};
    struct fr_collapse_steps c = *call;
    uint32_t samples = c.group_begin[c.end];
    fr_shim_view(&s, &c.in, c.expanded_begin[samples], c.width, SHIM_READ);
    fr_shim_view(&s, &c.out, c.steps_begin[c.end], c.width, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.group_begin, c.end + 1, SHIM_READ);
    SHIM_ARRAY(&s, c.steps_begin, c.end + 1, SHIM_READ);
    SHIM_ARRAY(&s, c.expanded_begin, samples + 1, SHIM_READ);
    fr_shim_enter(&s);
    OPS->collapse_steps(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_align(const struct fr_align *call)
{
    struct shim_staging s = {0};
    struct fr_align c = *call;
    fr_shim_view(&s, &c.to, c.to_begin[c.entry_end], c.width, SHIM_WRITTEN);
    fr_shim_view(&s, &c.from, c.from_begin[c.entry_end], c.width, SHIM_READ);
    SHIM_ARRAY(&s, c.to_begin, c.entry_end + 1, SHIM_READ);
    SHIM_ARRAY(&s, c.from_begin, c.entry_end + 1, SHIM_READ);
    fr_shim_enter(&s);
    OPS->align(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_align_backward(const struct fr_align *call)
{
    struct shim_staging s = {0};
    struct fr_align c = *call;
    fr_shim_view(&s, &c.to, c.to_begin[c.entry_end], c.width, SHIM_READ);
    fr_shim_view(&s, &c.from, c.from_begin[c.entry_end], c.width, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.to_begin, c.entry_end + 1, SHIM_READ);
    SHIM_ARRAY(&s, c.from_begin, c.entry_end + 1, SHIM_READ);
    fr_shim_enter(&s);
    OPS->align_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_product(const struct fr_interaction *call)
{
    struct shim_staging s = {0};
    struct fr_interaction c = *call;
    fr_shim_views(&s, &c.in, c.count, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.out, c.m, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->product(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_dot_interaction(const struct fr_interaction *call)
{
    struct shim_staging s = {0};
    struct fr_interaction c = *call;
    fr_shim_views(&s, &c.in, c.count, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.out, c.m, c.count * (c.count - 1) / 2, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->dot_interaction(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_product_backward(const struct fr_interaction *call)
{
    struct shim_staging s = {0};
    struct fr_interaction c = *call;
    fr_shim_views(&s, &c.in, c.count, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.out, c.m, c.n, SHIM_READ);
    fr_shim_views(&s, &c.in_gradient, c.count, c.m, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->product_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_dot_interaction_backward(const struct fr_interaction *call)
{
    struct shim_staging s = {0};
    struct fr_interaction c = *call;
    fr_shim_views(&s, &c.in, c.count, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.out, c.m, c.count * (c.count - 1) / 2, SHIM_READ);
    fr_shim_views(&s, &c.in_gradient, c.count, c.m, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->dot_interaction_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_bi_interaction(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in, struct fr_view out)
{
    struct shim_staging s = {0};
    fr_shim_views(&s, &in, count, m, n, SHIM_READ);
    fr_shim_view(&s, &out, m, n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->bi_interaction(QUEUE, m, n, count, in, out);
    fr_shim_leave(&s);
}

void fr_shim_bi_interaction_backward(uint32_t m, uint32_t n, uint32_t count, const struct fr_view *in,
                                     struct fr_view gradient, const struct fr_view *in_gradient)
{
    struct shim_staging s = {0};
    fr_shim_views(&s, &in, count, m, n, SHIM_READ);
    fr_shim_view(&s, &gradient, m, n, SHIM_READ);
    fr_shim_views(&s, &in_gradient, count, m, n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->bi_interaction_backward(QUEUE, m, n, count, in, gradient, in_gradient);
    fr_shim_leave(&s);
}

void fr_shim_cross(const struct fr_cross *call)
{
    struct shim_staging s = {0};
    struct fr_cross c = *call;
    fr_shim_view(&s, &c.x0, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.t, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.out, c.m, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->cross(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_cross_backward(const struct fr_cross *call)
{
    struct shim_staging s = {0};
    struct fr_cross c = *call;
    fr_shim_view(&s, &c.x0, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.t, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.x, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.out, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.x0_gradient, c.m, c.n, SHIM_WRITTEN);
    fr_shim_view(&s, &c.t_gradient, c.m, c.n, SHIM_WRITTEN);
    fr_shim_view(&s, &c.x_gradient, c.m, c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->cross_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_mixture(const struct fr_mixture *call)
{
    struct shim_staging s = {0};
    struct fr_mixture c = *call;
    fr_shim_view(&s, &c.gates, c.m, c.count, SHIM_READ);
    fr_shim_view(&s, &c.experts, c.m, (size_t)c.count * c.n, SHIM_READ);
    fr_shim_view(&s, &c.out, c.m, c.n, SHIM_WRITTEN);
    fr_shim_view(&s, &c.weights, c.m, c.count, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->mixture(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_mixture_backward(const struct fr_mixture *call)
{
    struct shim_staging s = {0};
    struct fr_mixture c = *call;
    fr_shim_view(&s, &c.experts, c.m, (size_t)c.count * c.n, SHIM_READ);
    fr_shim_view(&s, &c.weights, c.m, c.count, SHIM_READ);
    fr_shim_view(&s, &c.gradient, c.m, c.n, SHIM_READ);
    fr_shim_view(&s, &c.gates_gradient, c.m, c.count, SHIM_WRITTEN);
    fr_shim_view(&s, &c.experts_gradient, c.m, (size_t)c.count * c.n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->mixture_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_pool_steps(const struct fr_pool_steps *call)
{
    struct shim_staging s = {0};
    struct fr_pool_steps c = *call;
    uint32_t entries = c.steps.entry_end - c.steps.entry_begin, rows = c.steps.begin[c.steps.entry_end];
    fr_shim_view(&s, &c.out, entries, c.width, SHIM_WRITTEN);
    fr_shim_view(&s, &c.in, rows, c.width, SHIM_READ);
    steps(&s, &c.steps);
    fr_shim_enter(&s);
    OPS->pool_steps(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_pool_steps_backward(const struct fr_pool_steps *call)
{
    struct shim_staging s = {0};
    struct fr_pool_steps c = *call;
    uint32_t entries = c.steps.entry_end - c.steps.entry_begin, rows = c.steps.begin[c.steps.entry_end];
    fr_shim_view(&s, &c.out, entries, c.width, SHIM_READ);
    fr_shim_view(&s, &c.in, rows, c.width, SHIM_READ);
    fr_shim_view(&s, &c.in_gradient, rows, c.width, SHIM_WRITTEN);
    steps(&s, &c.steps);
    fr_shim_enter(&s);
    OPS->pool_steps_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_softmax_steps(const struct fr_softmax_steps *call)
{
    struct shim_staging s = {0};
    struct fr_softmax_steps c = *call;
    uint32_t rows = c.steps.begin[c.steps.entry_end];
    fr_shim_view(&s, &c.in, rows, 1, SHIM_READ);
    fr_shim_view(&s, &c.out, rows, 1, SHIM_WRITTEN);
    steps(&s, &c.steps);
    fr_shim_enter(&s);
    OPS->softmax_steps(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_softmax_steps_backward(const struct fr_softmax_steps *call)
{
    struct shim_staging s = {0};
    struct fr_softmax_steps c = *call;
    uint32_t rows = c.steps.begin[c.steps.entry_end];
    fr_shim_view(&s, &c.out, rows, 1, SHIM_READ);
    fr_shim_view(&s, &c.gradient, rows, 1, SHIM_READ);
    fr_shim_view(&s, &c.in_gradient, rows, 1, SHIM_WRITTEN);
    steps(&s, &c.steps);
    fr_shim_enter(&s);
    OPS->softmax_steps_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_attention_pool(const struct fr_attention_pool *call)
{
    struct shim_staging s = {0};
    struct fr_attention_pool c = *call;
    uint32_t entries = c.steps.entry_end - c.steps.entry_begin, rows = c.steps.begin[c.steps.entry_end];
    fr_shim_view(&s, &c.out, entries, c.width, SHIM_WRITTEN);
    fr_shim_view(&s, &c.scores, rows, 1, SHIM_READ);
    fr_shim_view(&s, &c.keys, rows, c.width, SHIM_READ);
    steps(&s, &c.steps);
    fr_shim_enter(&s);
    OPS->attention_pool(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_attention_pool_backward(const struct fr_attention_pool *call)
{
    struct shim_staging s = {0};
    struct fr_attention_pool c = *call;
    uint32_t entries = c.steps.entry_end - c.steps.entry_begin, rows = c.steps.begin[c.steps.entry_end];
    fr_shim_view(&s, &c.out, entries, c.width, SHIM_READ);
    fr_shim_view(&s, &c.scores, rows, 1, SHIM_READ);
    fr_shim_view(&s, &c.keys, rows, c.width, SHIM_READ);
    fr_shim_view(&s, &c.scores_gradient, rows, 1, SHIM_WRITTEN);
    fr_shim_view(&s, &c.keys_gradient, rows, c.width, SHIM_WRITTEN);
    steps(&s, &c.steps);
    fr_shim_enter(&s);
    OPS->attention_pool_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_dot_steps(const struct fr_dot_steps *call)
{
    struct shim_staging s = {0};
    struct fr_dot_steps c = *call;
    uint32_t entries = c.steps.entry_end - c.steps.entry_begin, rows = c.steps.begin[c.steps.entry_end];
    fr_shim_view(&s, &c.query, entries, c.width, SHIM_READ);
    fr_shim_view(&s, &c.keys, rows, c.width, SHIM_READ);
    fr_shim_view(&s, &c.out, rows, 1, SHIM_WRITTEN);
    steps(&s, &c.steps);
    fr_shim_enter(&s);
    OPS->dot_steps(QUEUE, &c);
    fr_shim_leave(&s);
}

void fr_shim_dot_steps_backward(const struct fr_dot_steps *call)
{
    struct shim_staging s = {0};
    struct fr_dot_steps c = *call;
    uint32_t entries = c.steps.entry_end - c.steps.entry_begin, rows = c.steps.begin[c.steps.entry_end];
    fr_shim_view(&s, &c.query, entries, c.width, SHIM_READ);
    fr_shim_view(&s, &c.query_gradient, entries, c.width, SHIM_WRITTEN);
    fr_shim_view(&s, &c.keys, rows, c.width, SHIM_READ);
    fr_shim_view(&s, &c.out, rows, 1, SHIM_READ);
    fr_shim_view(&s, &c.keys_gradient, rows, c.width, SHIM_WRITTEN);
    steps(&s, &c.steps);
    fr_shim_enter(&s);
    OPS->dot_steps_backward(QUEUE, &c);
    fr_shim_leave(&s);
}

double fr_shim_next_step(const struct fr_next_step *call)
{
    struct shim_staging s = {0};
    struct fr_next_step c = *call;
    uint32_t end = c.states_steps.entry_end, states = c.states_steps.begin[end];
    uint32_t positives = c.positive_steps.begin[end], negatives = c.negative_steps.begin[end];
    fr_shim_view(&s, &c.states, states, c.width, SHIM_READ);
    fr_shim_view(&s, &c.positives, positives, c.width, SHIM_READ);
    fr_shim_view(&s, &c.negatives, negatives, c.width, SHIM_READ);
    fr_shim_view(&s, &c.states_gradient, states, c.width, SHIM_WRITTEN);
    fr_shim_view(&s, &c.positives_gradient, positives, c.width, SHIM_WRITTEN);
    fr_shim_view(&s, &c.negatives_gradient, negatives, c.width, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.trained, end, SHIM_READ);
    SHIM_ARRAY(&s, c.counts, end, SHIM_WRITTEN);
    steps(&s, &c.states_steps);
    steps(&s, &c.positive_steps);
    steps(&s, &c.negative_steps);
    fr_shim_enter(&s);
    OPS->next_step(QUEUE, fr_shim_sum(), &c);
    fr_shim_leave(&s);
    return fr_shim_sum_of();
}

double fr_shim_pairwise(const struct fr_pair_loss *call)
{
    struct shim_staging s = {0};
    struct fr_pair_loss c = *call;
    uint32_t samples = bound_of(c.order, 0, c.n);
    fr_shim_memory(&s, &c.order, c.n * sizeof(uint32_t), SHIM_READ);
    SHIM_ARRAY(&s, c.lower, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.z, samples, SHIM_READ);
    SHIM_ARRAY(&s, c.weights, samples, SHIM_READ);
    SHIM_ARRAY(&s, c.gradient, samples, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->pairwise(QUEUE, fr_shim_sum(), &c);
    fr_shim_leave(&s);
    return fr_shim_sum_of();
}

double fr_shim_product_logloss(const struct fr_product_loss *call)
{
    struct shim_staging s = {0};
    struct fr_product_loss c = *call;
    fr_shim_rows(&s, &c.z, c.count, c.n, SHIM_READ);
    fr_shim_rows(&s, &c.gradient, c.count, c.n, SHIM_WRITTEN);
    SHIM_ARRAY(&s, c.labels, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.weights, c.n, SHIM_READ);
    SHIM_ARRAY(&s, c.trained, c.n, SHIM_READ);
    fr_shim_enter(&s);
    OPS->product_logloss(QUEUE, fr_shim_sum(), &c);
    fr_shim_leave(&s);
    return fr_shim_sum_of();
}

void fr_shim_product_logit(uint32_t n, uint32_t count, const float *const *z, float *out)
{
    struct shim_staging s = {0};
    fr_shim_rows(&s, &z, count, n, SHIM_READ);
    SHIM_ARRAY(&s, out, n, SHIM_WRITTEN);
    fr_shim_enter(&s);
    OPS->product_logit(QUEUE, n, count, z, out);
    fr_shim_leave(&s);
}
