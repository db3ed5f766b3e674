/* CPU backend: the loss of pairs of one group and its gradients (RankNet, Burges et al. 2005).
 *
 * Exponentials and logarithms of a pair dominate; they are computed for PAIR_TILE pairs at a time,
 * without a branch, so that the loop vectorises, and summed in the order of pairs in double.
 *
 * Thread: any, no state; a group belongs to one worker. Pairs are chosen by fr_pair_partner. */
#include "cpu.h"

#include <string.h>

#include "base/math.h"
#include "lanes.h"

/* The loops here are worth vectorising; with -O2 alone the compiler vectorises only the
 * cheapest. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { PAIR_TILE = 64 }; /* pairs that one loop without a gather computes */

struct pair_tile {
    uint32_t n;
    uint32_t at[PAIR_TILE]; /* positions in the group's order */
    float z[PAIR_TILE], weights[PAIR_TILE];
    float slope[PAIR_TILE], loss[PAIR_TILE];
};

/* Reads the partners [turn, turn + n) of position i. */
static void fill_tile(const struct fr_pair_loss *call, uint32_t i, uint32_t count, uint32_t turn,
                      struct pair_tile *tile)
{
    uint32_t lower = call->lower[i];
    tile->n = count - turn < PAIR_TILE ? count - turn : PAIR_TILE;
    for (uint32_t t = 0; t < tile->n; t++) {
        uint32_t at = count == lower ? turn + t : fr_pair_partner(lower, count, i, turn + t);
        uint32_t sample = call->order[at];
        tile->at[t] = at;
        tile->z[t] = call->z[sample];
        tile->weights[t] = call->weights[sample];
    }
}

/* Returns log(1 + x) = 2 atanh(x / (2 + x)) for x in [0, 1], by its series up to the fifteenth
 * power (the rest is below 2e-9 of the value). The logarithm of base/math.h has branches, so it
 * is not used. */
FR_IN_LINE float log1p_unit(float x)
{
    float s = x / (2.0f + x), q = s * s;
    float p = 1.0f / 15.0f;
    p = p * q + 1.0f / 13.0f;
    p = p * q + 1.0f / 11.0f;
    p = p * q + 1.0f / 9.0f;
    p = p * q + 1.0f / 7.0f;
    p = p * q + 1.0f / 5.0f;
    p = p * q + 1.0f / 3.0f;
    return 2.0f * s * (p * q + 1.0f);
}

FR_CLONES
static void pair_slopes(struct pair_tile *tile, float z)
{
    for (uint32_t t = 0; t < tile->n; t++) {
        float x = tile->z[t] - z, a = fr_select_f32(x >= 0.0f, x, -x), e = fr_expf(-a);
        float cost = fr_select_f32(x >= 0.0f, x, 0.0f) + log1p_unit(e); /* log(1 + e^x) */
        tile->slope[t] = tile->weights[t] * (fr_select_f32(x >= 0.0f, 1.0f, e) / (1.0f + e));
        tile->loss[t] = tile->weights[t] * cost;
    }
}

/* Computes all pairs of position i with smaller labels. Returns what they add to the loss,
 * without the factor. */
static double pair_position(const struct fr_pair_loss *call, uint32_t i, double factor)
{
    uint32_t lower = call->lower[i], count = lower < call->partners ? lower : call->partners;
    double sum = 0.0, own = 0.0;
    struct pair_tile tile;
    for (uint32_t turn = 0; turn < count; turn += tile.n) {
        fill_tile(call, i, count, turn, &tile);
        pair_slopes(&tile, call->z[call->order[i]]);
        for (uint32_t t = 0; t < tile.n; t++) {
            sum += (double)tile.loss[t];
            own += (double)tile.slope[t];
            call->sums[tile.at[t]] += factor * (double)tile.slope[t];
        }
    }
    call->sums[i] -= factor * own;
    return factor * sum;
}

double fr_cpu_pairwise(const struct fr_pair_loss *call)
{
    double total = 0.0;
    memset(call->sums, 0, call->n * sizeof(*call->sums));
    for (uint32_t i = 0; i < call->n; i++) {
        uint32_t lower = call->lower[i];
        double stands_for = lower > call->partners ? (double)lower / (double)call->partners : 1.0;
        if (lower > 0)
            total += pair_position(call, i, stands_for * (double)call->weights[call->order[i]]);
    }
    for (uint32_t i = 0; i < call->n; i++)
        call->gradient[call->order[i]] += (float)((double)call->scale * (double)call->group_scale * call->sums[i]);
    return (double)call->group_scale * total;
}
