/* CPU backend: moving rows between samples, groups and sequences.
 *
 * A group's samples are consecutive, so forward is a copy per sample and backward a sum per group,
 * samples ascending: no two workers write one row.
 *
 * Thread: any, no state. The offsets, which the graph made, are not checked. */
#include <string.h>

#include "cpu.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

void fr_cpu_expand(const struct fr_expand *c)
{
    for (size_t r = c->begin; r < c->end; r++)
        memcpy(c->out.values + r * c->out.ld, c->in.values + c->source[r] * c->in.ld, c->width * sizeof(float));
}

static inline void add_row(float *restrict out, const float *restrict in, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        out[j] += in[j];
}

FR_CLONES
void fr_cpu_collapse(const struct fr_collapse *c)
{
    for (size_t g = c->begin; g < c->end; g++)
        for (size_t s = c->group_begin[g]; s < c->group_begin[g + 1]; s++)
            add_row(c->out.values + g * c->out.ld, c->in.values + s * c->in.ld, c->width);
}

FR_CLONES
void fr_cpu_collapse_steps(const struct fr_collapse_steps *c)
{
    for (size_t g = c->begin; g < c->end; g++) {
        size_t first = c->steps_begin[g], steps = c->steps_begin[g + 1] - first;
        for (size_t s = c->group_begin[g]; s < c->group_begin[g + 1]; s++)
            for (size_t t = 0; t < steps; t++)
                add_row(c->out.values + (first + t) * c->out.ld, c->in.values + (c->expanded_begin[s] + t) * c->in.ld,
                        c->width);
    }
}

void fr_cpu_align(const struct fr_align *c)
{
    for (size_t e = c->entry_begin; e < c->entry_end; e++) {
        size_t to_end = c->to_begin[e + 1], from_end = c->from_begin[e + 1];
        size_t from = from_end - c->from_begin[e];
        for (size_t p = c->to_begin[e]; p < to_end; p++) {
            float *out = c->to.values + p * c->to.ld;
            size_t back = to_end - p; /* 1: the newest */
            if (back <= from)
                memcpy(out, c->from.values + (from_end - back) * c->from.ld, c->width * sizeof(float));
            else
                memset(out, 0, c->width * sizeof(float));
        }
    }
}

FR_CLONES
void fr_cpu_align_backward(const struct fr_align *c)
{
    for (size_t e = c->entry_begin; e < c->entry_end; e++) {
        size_t to = c->to_begin[e + 1] - c->to_begin[e], from = c->from_begin[e + 1] - c->from_begin[e];
        for (size_t back = to < from ? to : from; back > 0; back--)
            add_row(c->from.values + (c->from_begin[e + 1] - back) * c->from.ld,
                    c->to.values + (c->to_begin[e + 1] - back) * c->to.ld, c->width);
    }
}
