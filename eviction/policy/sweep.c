/* See sweep.h. The store removes the rows and saves the state of sweeps. */
#include "policy/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum { DRAW_MIX = 0x5eed };

static const struct fr_expiry_policy *capacity_of(const struct fr_sweep *sweep)
{
    for (uint32_t i = 0; i < sweep->n_rules; i++)
        if (sweep->rules[i].rows_max > 0)
            return &sweep->rules[i];
    return NULL;
}

struct fr_sweep *fr_sweep_open(const struct fr_expiry_policy *rules, uint32_t n_rules, uint32_t n_shards)
{
    struct fr_sweep *sweep = fr_alloc(1, sizeof(*sweep));
    *sweep = (struct fr_sweep){
        .rules = rules, .n_rules = n_rules, .n_shards = n_shards, .began_ms = INT64_MIN, .swept_ms = INT64_MIN};
    if (capacity_of(sweep))
        sweep->bins = fr_alloc(n_shards, sizeof(*sweep->bins));
    return sweep;
}

void fr_sweep_close(struct fr_sweep *sweep)
{
    if (!sweep)
        return;
    free(sweep->bins);
    free(sweep);
}

uint64_t fr_sweep_bytes(const struct fr_sweep *sweep)
{
    return sweep->bins ? sweep->n_shards * sizeof(*sweep->bins) : 0;
}

/* ---- histogram ---- */

uint32_t fr_sweep_bin(double rank)
{
    double magnitude = -rank;
    if (!(magnitude >= 1))
        return 0;
    uint64_t bits;
    memcpy(&bits, &magnitude, sizeof(bits));
    uint64_t bin = 1 + (bits >> (52 - FR_SWEEP_FINE_BITS)) - ((uint64_t)1023 << FR_SWEEP_FINE_BITS);
    return bin < FR_SWEEP_BINS ? (uint32_t)bin : FR_SWEEP_BINS - 1;
}

struct fr_sweep_edge fr_sweep_find_edge(const uint64_t bins[FR_SWEEP_BINS], uint64_t excess)
{
    struct fr_sweep_edge edge = {.set = excess > 0};
    uint64_t left = excess;
    for (uint32_t b = FR_SWEEP_BINS; edge.set && b > 0; b--) {
        edge.bin = b - 1;
        edge.share = FR_SWEEP_ALL;
        if (bins[b - 1] >= left) {
            edge.share = bins[b - 1] ? (uint64_t)((unsigned __int128)left * FR_SWEEP_ALL / bins[b - 1]) : 0;
            break;
        }
        left -= bins[b - 1];
    }
    return edge;
}

void fr_sweep_sum(const struct fr_sweep *sweep, uint64_t sum[FR_SWEEP_BINS])
{
    memset(sum, 0, FR_SWEEP_BINS * sizeof(*sum));
    for (uint32_t s = 0; sweep->bins && s < sweep->n_shards; s++)
        for (uint32_t b = 0; b < FR_SWEEP_BINS; b++)
            sum[b] += sweep->bins[s][b];
}

/* ---- slices ---- */

uint64_t fr_sweep_begin_slice(struct fr_sweep *sweep, uint32_t *slice_bits, uint32_t bits, uint64_t rows,
                              int64_t watermark_ms)
{
    const struct fr_expiry_policy *capacity = capacity_of(sweep);
    if (sweep->next >> *slice_bits > 0)
        sweep->next = 0;
    if (sweep->next == 0) {
        *slice_bits = bits;
        sweep->counted_ms = sweep->began_ms = watermark_ms;
        if (sweep->bins)
            memset(sweep->bins, 0, sweep->n_shards * sizeof(*sweep->bins));
    }
    sweep->over = capacity && rows > capacity->rows_max;
    return sweep->next;
}

static bool beyond_edge(const struct fr_sweep *sweep, const struct fr_expiry_policy *rule, uint64_t hash,
                        const struct fr_row_facts *facts)
{
    const struct fr_sweep_edge *edge = &sweep->edge;
    if (!sweep->over || !edge->set)
        return false;
    double rank = rule->rank(rule->config, facts, edge->rank_ms);
    uint32_t bin = fr_sweep_bin(rank);
    if (rank > 0 || bin < edge->bin)
        return false;
    return bin > edge->bin || fr_fmix64(hash ^ DRAW_MIX) >> 32 < edge->share;
}

uint8_t fr_sweep_judge(const struct fr_sweep *sweep, uint32_t shard, uint64_t hash, const struct fr_row_facts *facts,
                       int64_t watermark_ms)
{
    for (uint32_t i = 0; i < sweep->n_rules; i++) {
        const struct fr_expiry_policy *rule = &sweep->rules[i];
        if (rule->rows_max > 0 ? beyond_edge(sweep, rule, hash, facts)
                               : rule->rank(rule->config, facts, watermark_ms) < rule->threshold)
            return rule->reason;
    }
    const struct fr_expiry_policy *capacity = capacity_of(sweep);
    if (capacity)
        sweep->bins[shard][fr_sweep_bin(capacity->rank(capacity->config, facts, sweep->counted_ms))]++;
    return 0;
}

void fr_sweep_end_slice(struct fr_sweep *sweep, uint32_t slice_bits, uint64_t rows)
{
    const struct fr_expiry_policy *capacity = capacity_of(sweep);
    sweep->changed = true;
    if (++sweep->next >> slice_bits == 0)
        return;
    sweep->next = 0;
    sweep->swept_ms = sweep->began_ms;
    if (!capacity)
        return;
    uint64_t sum[FR_SWEEP_BINS];
    fr_sweep_sum(sweep, sum);
    sweep->edge = fr_sweep_find_edge(sum, rows > capacity->rows_max ? rows - capacity->rows_max : 0);
    sweep->edge.rank_ms = sweep->counted_ms;
    memset(sweep->bins, 0, sweep->n_shards * sizeof(*sweep->bins));
}
