/* See sweep.h. The section "expiry": u32 version, u32 n_tables; per table u64 number of the next
 * slice, i64 watermark of the ranks that are being counted, u8 whether there is an edge, u32 bin,
 * u64 share, i64 watermark of its ranks, u32 n, then n times u32 bin, u64 rows. Bins ascend.
 * Little-endian. It does not remove rows (expire.c). */
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "store/section.h"

enum { VERSION = 1, DRAW_MIX = 0x5eed };

static const struct fr_expiry_policy *capacity_of(const struct fr_table *table)
{
    for (uint32_t i = 0; i < table->spec.n_expiries; i++)
        if (table->spec.expiries[i].rows_max > 0)
            return &table->spec.expiries[i];
    return NULL;
}

void fr_sweep_open(struct fr_table *table)
{
    table->sweep = fr_alloc(1, sizeof(*table->sweep));
    table->sweep->began_ms = table->sweep->swept_ms = INT64_MIN;
    if (capacity_of(table))
        table->sweep->bins = fr_alloc(FR_SHARDS, sizeof(*table->sweep->bins));
}

void fr_sweep_close(struct fr_table *table)
{
    if (!table->sweep)
        return;
    free(table->sweep->bins);
    free(table->sweep);
    table->sweep = NULL;
}

uint64_t fr_sweep_bytes(const struct fr_table *table)
{
    return table->sweep->bins ? FR_SHARDS * sizeof(*table->sweep->bins) : 0;
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

static void sum_bins(const struct fr_sweep *sweep, uint64_t sum[FR_SWEEP_BINS])
{
    memset(sum, 0, FR_SWEEP_BINS * sizeof(*sum));
    for (uint32_t s = 0; sweep->bins && s < FR_SHARDS; s++)
        for (uint32_t b = 0; b < FR_SWEEP_BINS; b++)
            sum[b] += sweep->bins[s][b];
}

/* ---- slices ---- */

uint64_t fr_sweep_begin_slice(struct fr_table *table, uint32_t bits, int64_t watermark_ms)
{
    struct fr_sweep *sweep = table->sweep;
    const struct fr_expiry_policy *capacity = capacity_of(table);
    if (sweep->next >> table->slice_bits > 0)
        sweep->next = 0;
    if (sweep->next == 0) {
        table->slice_bits = bits;
        sweep->counted_ms = sweep->began_ms = watermark_ms;
        if (sweep->bins)
            memset(sweep->bins, 0, FR_SHARDS * sizeof(*sweep->bins));
    }
    sweep->over = capacity && fr_table_counts(table).rows > capacity->rows_max;
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

uint8_t fr_sweep_judge(const struct fr_table *table, uint32_t shard, uint64_t hash, const struct fr_row_facts *facts,
                       int64_t watermark_ms)
{
    const struct fr_store_table *spec = &table->spec;
    struct fr_sweep *sweep = table->sweep;
    for (uint32_t i = 0; i < spec->n_expiries; i++) {
        const struct fr_expiry_policy *rule = &spec->expiries[i];
        if (rule->rows_max > 0 ? beyond_edge(sweep, rule, hash, facts)
                               : rule->rank(rule->config, facts, watermark_ms) < rule->threshold)
            return rule->reason;
    }
    const struct fr_expiry_policy *capacity = capacity_of(table);
    if (capacity)
        sweep->bins[shard][fr_sweep_bin(capacity->rank(capacity->config, facts, sweep->counted_ms))]++;
    return FR_ABSENT_SILENT;
}

void fr_sweep_end_slice(struct fr_table *table)
{
    struct fr_sweep *sweep = table->sweep;
    const struct fr_expiry_policy *capacity = capacity_of(table);
    sweep->changed = true;
    if (++sweep->next >> table->slice_bits == 0)
        return;
    sweep->next = 0;
    sweep->swept_ms = sweep->began_ms;
    if (!capacity)
        return;
    uint64_t rows = fr_table_counts(table).rows, sum[FR_SWEEP_BINS];
    sum_bins(sweep, sum);
    sweep->edge = fr_sweep_find_edge(sum, rows > capacity->rows_max ? rows - capacity->rows_max : 0);
    sweep->edge.rank_ms = sweep->counted_ms;
    memset(sweep->bins, 0, FR_SHARDS * sizeof(*sweep->bins));
}

/* ---- section ---- */

static void put_sweep(const struct fr_sweep *sweep, struct fr_buffer *out)
{
    uint64_t sum[FR_SWEEP_BINS];
    uint32_t n = 0;
    sum_bins(sweep, sum);
    for (uint32_t b = 0; b < FR_SWEEP_BINS; b++)
        n += sum[b] > 0;
    fr_put_u64(out, sweep->next);
    fr_put_u64(out, (uint64_t)sweep->counted_ms);
    fr_put_u8(out, sweep->edge.set);
    fr_put_u32(out, sweep->edge.bin);
    fr_put_u64(out, sweep->edge.share);
    fr_put_u64(out, (uint64_t)sweep->edge.rank_ms);
    fr_put_u32(out, n);
    for (uint32_t b = 0; b < FR_SWEEP_BINS; b++) {
        if (sum[b] == 0)
            continue;
        fr_put_u32(out, b);
        fr_put_u64(out, sum[b]);
    }
}

void fr_sweep_cut(struct fr_store *store, struct fr_stage *stage)
{
    bool changed = false;
    for (uint32_t t = 0; t < store->n_tables; t++) {
        changed |= store->tables[t].sweep->changed;
        store->tables[t].sweep->changed = false;
    }
    if (!changed)
        return;
    struct fr_buffer *out = fr_stage_section(stage, FR_SECTION_EXPIRY);
    fr_put_u32(out, VERSION);
    fr_put_u32(out, store->n_tables);
    for (uint32_t t = 0; t < store->n_tables; t++)
        put_sweep(store->tables[t].sweep, out);
}

/* What a table has no rule for any more is read and left. */
static bool take_sweep(struct fr_reader *reader, struct fr_sweep *sweep)
{
    sweep->next = fr_take_u64(reader);
    sweep->counted_ms = (int64_t)fr_take_u64(reader);
    uint8_t set = fr_take_u8(reader);
    sweep->edge = (struct fr_sweep_edge){.set = set == 1};
    sweep->edge.bin = fr_take_u32(reader);
    sweep->edge.share = fr_take_u64(reader);
    sweep->edge.rank_ms = (int64_t)fr_take_u64(reader);
    uint32_t n = fr_take_u32(reader), last = 0;
    if (reader->failed || set > 1 || n > FR_SWEEP_BINS || sweep->edge.bin >= FR_SWEEP_BINS ||
        sweep->edge.share > FR_SWEEP_ALL || sweep->next > (uint64_t)1 << FR_INDEX_SLICE_BITS_MAX)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bin = fr_take_u32(reader);
        uint64_t rows = fr_take_u64(reader);
        if (reader->failed || bin >= FR_SWEEP_BINS || (i > 0 && bin <= last))
            return false;
        if (sweep->bins)
            sweep->bins[0][bin] = rows;
        last = bin;
    }
    return true;
}

enum fr_status fr_store_restore_expiry(struct fr_store *store, const uint8_t *bytes, size_t size)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    uint32_t version = fr_take_u32(&reader), n_tables = fr_take_u32(&reader);
    if (reader.failed)
        return FR_E_CORRUPT;
    if (version != VERSION || n_tables != store->n_tables)
        return FR_E_MISMATCH;
    for (uint32_t t = 0; t < n_tables; t++)
        if (!take_sweep(&reader, store->tables[t].sweep))
            return FR_E_CORRUPT;
    return reader.failed || reader.at != reader.end ? FR_E_CORRUPT : FR_OK;
}
