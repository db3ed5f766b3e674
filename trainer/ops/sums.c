/* CPU backend: sums of rows, one row of each slot for an entry, without copying the rows.
 *
 * Entries are computed one by one, so that sums stay in registers, while the rows of the next
 * entry are prefetched. The order of sums is that of the slots, as in fr_cpu_add and
 * fr_cpu_bi_interaction, and so are the bits. Thread: any, no state. The caller has checked that
 * entries have one id. */
#include "cpu.h"

#include "base/math.h"
#include "lanes.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { ENTRIES = 128 }; /* entries of rows of one value that are summed together */

FR_IN_LINE const float *summed_row(const struct fr_summed_slot *slot, uint32_t entry, const float *nothing)
{
    const float *row = slot->rows[slot->unique_of[entry]];
    return row ? row + slot->value_offset : nothing;
}

/* What was read of an entry's rows so far. */
struct sums {
    float sum[FR_SUM_DIM_MAX], squares[FR_SUM_DIM_MAX];
    uint32_t largest[FR_SUM_DIM_MAX]; /* bits of the largest value of all entries */
};

/* A separate function, because compilers use `restrict` of parameters only; so the loop is kept
 * and vectorised. */
FR_IN_LINE void add_row(struct sums *restrict sums, const float *restrict v, uint32_t dim, bool paired)
{
    _Pragma("GCC unroll 1") for (uint32_t i = 0; i < dim; i++)
    {
        uint32_t bits = fr_f32_bits(v[i]) & 0x7fffffffu;
        sums->largest[i] = bits > sums->largest[i] ? bits : sums->largest[i];
        sums->sum[i] += v[i];
        if (paired)
            sums->squares[i] += v[i] * v[i];
    }
}

FR_IN_LINE void put_sums(const struct fr_row_sums *c, uint32_t entry, const struct sums *sums, uint32_t dim,
                         bool paired)
{
    for (uint32_t i = 0; i < dim; i++) {
        c->sum.values[entry * c->sum.ld + i] = sums->sum[i];
        if (paired)
            c->pairs.values[entry * c->pairs.ld + i] = 0.5f * (sums->sum[i] * sums->sum[i] - sums->squares[i]);
    }
}

FR_IN_LINE uint32_t sum_rows(const struct fr_row_sums *c, uint32_t dim, bool paired)
{
    static const float nothing[FR_SUM_DIM_MAX];
    struct sums sums = {.sum = {0}};
    uint32_t largest = 0;
    for (uint32_t e = c->entry_begin; e < c->entry_end; e++) {
        uint32_t next = e + 1 < c->entry_end ? e + 1 : e;
        for (uint32_t i = 0; i < dim; i++) {
            sums.sum[i] = -0.0f; /* minus zero plus a number is exactly that number */
            sums.squares[i] = 0.0f;
        }
        for (uint32_t s = 0; s < c->count; s++) {
            const float *later = summed_row(&c->slots[s], next, nothing);
            __builtin_prefetch(later);
            __builtin_prefetch(later + dim - 1);
            add_row(&sums, summed_row(&c->slots[s], e, nothing), dim, paired);
        }
        put_sums(c, e, &sums, dim, paired);
    }
    for (uint32_t i = 0; i < dim; i++)
        largest = sums.largest[i] > largest ? sums.largest[i] : largest;
    return largest;
}

FR_IN_LINE uint32_t add_weights(float *restrict sum, const float *restrict v, bool first)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        uint32_t bits = fr_f32_bits(v[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
        sum[i] = first ? v[i] : sum[i] + v[i];
    }
    return largest;
}

/* Sums rows of one value slot by slot, so that sums do not wait for each other. */
FR_CLONES
static uint32_t sum_weights(const struct fr_row_sums *c)
{
    static const float nothing[1];
    uint32_t largest = 0;
    for (uint32_t first = c->entry_begin; first < c->entry_end; first += ENTRIES) {
        uint32_t n = c->entry_end - first < ENTRIES ? c->entry_end - first : ENTRIES;
        float sum[ENTRIES] = {0}, v[ENTRIES] = {0};
        for (uint32_t s = 0; s < c->count; s++) {
            for (uint32_t i = 0; i < n; i++)
                v[i] = *summed_row(&c->slots[s], first + i, nothing);
            uint32_t bits = add_weights(sum, v, s == 0);
            largest = bits > largest ? bits : largest;
        }
        for (uint32_t i = 0; i < n; i++)
            c->sum.values[(first + i) * c->sum.ld] = sum[i];
    }
    return largest;
}

FR_CLONES
static uint32_t sum_pairs_8(const struct fr_row_sums *c)
{
    return sum_rows(c, 8, true);
}

FR_CLONES
static uint32_t sum_pairs_16(const struct fr_row_sums *c)
{
    return sum_rows(c, 16, true);
}

FR_CLONES
static uint32_t sum_any(const struct fr_row_sums *c)
{
    return sum_rows(c, c->dim, c->pairs.values != NULL);
}

uint32_t fr_cpu_sum_rows(const struct fr_row_sums *c)
{
    bool paired = c->pairs.values != NULL;
    if (c->dim == 1 && !paired)
        return sum_weights(c);
    if (c->dim == 8 && paired)
        return sum_pairs_8(c);
    if (c->dim == 16 && paired)
        return sum_pairs_16(c);
    return sum_any(c);
}
