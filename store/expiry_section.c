/* The section "expiry": the state of each table's sweep (policy/sweep.h), in the epochs in which a
 * slice ran. With several domains there is a section for each domain, of its sub-tables.
 *
 * Layout, little-endian: u32 version, u32 n_tables; for each table: u64 number of the next slice,
 * i64 watermark of the ranks being counted, u8 whether there is an edge, u32 bin of the edge, u64
 * its share, i64 watermark of its ranks, u32 n, then n times u32 bin, u64 rows, by ascending
 * bin. */
#include "base/check.h"
#include "store/section.h"
#include "tables.h"

enum { VERSION = 1 };

static void put_sweep(const struct fr_sweep *sweep, struct fr_buffer *out)
{
    uint64_t sum[FR_SWEEP_BINS];
    uint32_t n = 0;
    fr_sweep_sum(sweep, sum);
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

static void cut_domain(struct fr_store *store, uint32_t domain, struct fr_stage *stage)
{
    char name[FR_SECTION_NAME_MAX];
    bool changed = false;
    for (uint32_t t = 0; t < store->n_configured; t++) {
        struct fr_sweep *sweep = fr_store_subtable(store, t, domain)->sweep;
        changed |= sweep->changed;
        sweep->changed = false;
    }
    if (!changed)
        return;
    fr_store_section_name(FR_SECTION_EXPIRY, domain, store->n_domains, name);
    struct fr_buffer *out = fr_stage_section(stage, name);
    fr_put_u32(out, VERSION);
    fr_put_u32(out, store->n_configured);
    for (uint32_t t = 0; t < store->n_configured; t++)
        put_sweep(fr_store_subtable(store, t, domain)->sweep, out);
}

void fr_expiry_cut(struct fr_store *store, struct fr_stage *stage)
{
    for (uint32_t d = 0; d < store->n_domains; d++)
        cut_domain(store, d, stage);
}

/* A histogram for which the table no longer has a rule is read and dropped. */
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

enum fr_status fr_expiry_restore(struct fr_store *store, uint32_t domain, const uint8_t *bytes, size_t size)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    uint32_t version = fr_take_u32(&reader), n_tables = fr_take_u32(&reader);
    if (reader.failed)
        return FR_E_CORRUPT;
    if (version != VERSION || n_tables != store->n_configured)
        return FR_E_MISMATCH;
    for (uint32_t t = 0; t < n_tables; t++)
        if (!take_sweep(&reader, fr_store_subtable(store, t, domain)->sweep))
            return FR_E_CORRUPT;
    return reader.failed || reader.at != reader.end ? FR_E_CORRUPT : FR_OK;
}
